"""What is shown on a terminal: tables of text, and progress."""
