"""Checks of parameters, and the words of errors and warnings."""
