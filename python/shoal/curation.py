"""Curation of data sets through their clusters: samples that are balanced over topics."""

from ._curation.sampling import sample

__all__ = ["sample"]
