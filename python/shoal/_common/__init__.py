"""What all parts of shoal share: checks of parameters, files, warnings, text."""
