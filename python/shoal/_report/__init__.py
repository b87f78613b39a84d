"""The parts of a report about clusters: one pass over the rows, pictures, and the page."""
