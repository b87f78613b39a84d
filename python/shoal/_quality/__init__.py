"""Measures of clusterings in passes over any source, for metrics, reports and the choice of k."""
