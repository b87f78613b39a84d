"""Files: written to a temporary name and renamed, as arrays, text or tables."""
