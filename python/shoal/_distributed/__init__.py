"""Estimators and passes over partitions of rows, for any engine; private."""
