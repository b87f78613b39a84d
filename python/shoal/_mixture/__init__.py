"""The parts of the Gaussian mixture: fitted model and model files."""
