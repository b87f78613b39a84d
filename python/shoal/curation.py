"""Curation of data sets through their clusters: removal of near-duplicates, and balanced samples."""

from ._curation.duplicates import Duplicates, deduplicate
from ._curation.sampling import sample

__all__ = ["Duplicates", "deduplicate", "sample"]
