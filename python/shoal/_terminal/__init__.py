"""Output on a terminal: tables of text, and progress."""
