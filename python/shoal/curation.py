"""Curation of data sets through their clusters: removal of near-duplicates."""

from ._curation.duplicates import Duplicates, deduplicate

__all__ = ["Duplicates", "deduplicate"]
