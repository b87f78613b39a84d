"""Turns what users pass as `X` into sources of rows."""
