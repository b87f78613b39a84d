"""The nearest and farthest rows of every cluster, and a sample of all rows, collected part by part."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


class Smallest:
    """The `most` rows of every cluster with the smallest keys, smallest first; the lower row wins a tie.

    Where a cluster has fewer rows, `rows` is -1 and `keys` is infinity.
    """

    def __init__(self, clusters: int, most: int) -> None:
        self.rows: Rows = np.full((clusters, most), -1, dtype=np.int64)
        self.keys = np.full((clusters, most), np.inf)

    def add(self, labels: npt.NDArray[np.int32], keys: npt.NDArray[np.float64], first: int) -> None:
        """Add consecutive rows, the first of which is row `first`."""
        most = self.rows.shape[1]
        if not most:
            return
        better = np.flatnonzero(keys < self.keys[labels, -1])
        if not len(better):
            return
        touched = np.unique(labels[better])
        # The rows so far of these clusters, and the new ones, in the order of cluster, key and row.
        of = np.concatenate([np.repeat(touched, most), labels[better]])
        key = np.concatenate([self.keys[touched].ravel(), keys[better]])
        row = np.concatenate([self.rows[touched].ravel(), better + first])
        order = np.lexsort((row, key, of))
        of = of[order]
        starts = np.searchsorted(of, touched)
        kept = (starts[:, None] + np.arange(most)).ravel()
        self.keys[touched] = key[order][kept].reshape(-1, most)
        self.rows[touched] = row[order][kept].reshape(-1, most)


class Sample:
    """A sample of rows that does not depend on how the rows are cut into parts.

    The `most` rows with the smallest hashes of their numbers are kept, with their labels and their positions
    on the picture.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._hashes = np.empty(0, dtype=np.uint64)
        self.labels = np.empty(0, dtype=np.int32)
        self.points = np.empty((0, 2))

    def wanted(self, first: int, n: int) -> Rows:
        """Return which of the next rows may enter the sample."""
        hashes = hash_of(np.arange(first, first + n, dtype=np.uint64))
        if len(self._hashes) == self._most:
            return np.flatnonzero(hashes < self._hashes[-1])
        return np.sort(np.argsort(hashes, kind="stable")[: self._most])

    def add(self, rows: Rows, labels: npt.NDArray[np.int32], points: npt.NDArray[np.float64]) -> None:
        """Add rows with these numbers."""
        hashes = np.concatenate([self._hashes, hash_of(rows.astype(np.uint64))])
        order = np.argsort(hashes, kind="stable")[: self._most]
        self._hashes = hashes[order]
        self.labels = np.concatenate([self.labels, labels])[order]
        self.points = np.concatenate([self.points, points])[order]


def hash_of(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix the bits of integers (the finalizer of SplitMix64): different integers have different hashes."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
