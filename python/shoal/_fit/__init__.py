"""Base classes of the estimators, and the run loop, results and model files behind them."""
