"""The parts of Laplacian K-modes: spectral start, fitted model, matrices and model files."""
