"""The pass over the rows of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.extmath import randomized_svd

from shoal import _core
from shoal._checks.params import RowWeights
from shoal._core import Source
from shoal._fit.results import pieces
from shoal._quality.indices import Floats, per_cluster, rows_with_weight, widths
from shoal._quality.labeled import split
from shoal._rows.arrays import source_of_values
from shoal._rows.source import DataSource
from shoal._rows.zeros import count_zeros, warn_of_zeros

from .extremes import Sample, Smallest

#: Size of a part of the rows, in values of float64: it stays in memory while several functions read it.
PART_BYTES = 32 << 20
#: Rows per part of sparse rows, of any number of columns.
SPARSE_ROWS = 4096
#: Rows drawn on the picture.
SAMPLED = 2000
#: Rows that give the second axis of the picture if there are fewer than three centers.
FIRST_ROWS = 2000


def dense_rows(d: int) -> int:
    """Return how many rows in float64 fit in a part."""
    return max(1, PART_BYTES // (8 * d))


def equal_pieces(rows: DataSource) -> Iterator[tuple[Source, int]]:
    """Yield parts of a source and the numbers of their first rows.

    Sources of any kind with the same rows are cut at the same rows, so sums over parts are bit-identical.
    """
    most = SPARSE_ROWS if rows.sparse else dense_rows(rows.shape[1])
    if rows.access == "random":
        for piece, first, _ in pieces(rows, most):
            yield piece, first
        return
    first = 0
    with rows._prefetched(most) as blocks:
        for block in blocks:
            yield source_of_values(block), first
            first += len(block)


class Measured:
    """Measures of clusters, from one pass over labeled rows.

    `model` labels the rows unless `labels` are given. `metric` holds the metrics of the rows and of the
    centers, `extremes` the numbers of nearest and of farthest rows per cluster.
    """

    def __init__(
        self,
        model: Any,
        centers: npt.NDArray[Any],
        labels: npt.NDArray[np.int32] | None,
        weights: RowWeights,
        metric: tuple[str, str],
        threads: int | None,
        extremes: tuple[int, int],
    ) -> None:
        k, d = centers.shape
        self.centers = centers
        self._model, self._labels, self._weights = model, labels, weights
        self._metric, self.threads = metric, threads
        self.n_rows = 0
        #: Rows, and rows with weight.
        self.sizes, self.weighty = np.zeros(k, dtype=np.int64), np.zeros(k, dtype=np.int64)
        self.totals, self.distances, self.sq_distances, self.widths = (np.zeros(k) for _ in range(4))
        self.radii = np.full(k, np.nan)
        self.sums = np.zeros((k, d))
        #: Weight, mean and sum of squared differences from the mean, per column.
        self.columns = (0.0, np.zeros(d), np.zeros(d))
        self.nearest, self.farthest = (Smallest(k, most) for most in extremes)
        self.sample = Sample(SAMPLED)
        #: Origin and two axes of the picture.
        self.axes: tuple[Floats, Floats] | None = None

    def read(self, rows: DataSource, tell: Callable[[int], object]) -> None:
        """Measure all rows; `tell` gets the number of rows of every part."""
        n_zeros = 0
        for piece, first in equal_pieces(rows):
            seen = piece.seen_by(self._metric[0])
            n = self._part(seen, first)
            self.n_rows = first + n
            n_zeros += count_zeros(seen, self._metric[0])
            tell(n)
        for name, given in (("labels", self._labels), ("sample_weight", self._weights)):
            if given is not None and len(given) != self.n_rows:
                raise ValueError(f"{name} has {len(given)} values, X has {self.n_rows} rows")
        if not self.n_rows:
            raise ValueError("X must have at least 1 row, got 0")
        if not self.totals.any():
            raise ValueError("sample_weight must be above 0 for at least one row, got zero for every row")
        # A row alone in its cluster has no width.
        self.widths[self.weighty == 1] = 0.0
        warn_of_zeros(n_zeros)

    def _part(self, seen: Source, first: int) -> int:
        """Measure the next rows and return their number."""
        k, threads = len(self.centers), self.threads
        near, sq_dists = _core.nearest(seen, self.centers, min(2, k), self._metric[1], threads, first)
        n = len(near)
        stop = first + n
        for name, given in (("labels", self._labels), ("sample_weight", self._weights)):
            if given is not None and len(given) < stop:
                raise ValueError(f"{name} has {len(given)} values, X has at least {stop} rows")
        if self._labels is not None:
            labels = self._labels[first:stop]
        elif self._model is not None:
            labels, _ = self._model._labeled(seen, first, False)
        else:
            labels = near[:, 0] if k > 1 else near
        if k > 1:
            own, other = split(seen, self.centers, labels, near, sq_dists, self._metric[1], threads, first)
        else:
            own, other = np.sqrt(sq_dists), np.zeros(n)
        weights = None if self._weights is None else self._weights[first:stop]

        def summed(values: Floats) -> Floats:
            return per_cluster(values, labels, weights, k)

        self.sizes += np.bincount(labels, minlength=k)
        self.weighty += rows_with_weight(labels, weights, k)
        self.totals += summed(np.ones(n))
        self.distances += summed(own)
        self.sq_distances += summed(np.square(own))
        if k > 1:
            self.widths += summed(widths(own, other, np.zeros(n, dtype=np.bool_)))
        farthest = np.full(k, -np.inf)
        np.maximum.at(farthest, labels, own)
        self.radii = np.fmax(self.radii, np.where(farthest < 0.0, np.nan, farthest))
        self.nearest.add(labels, own, first)
        self.farthest.add(labels, -own, first)
        if weights is None or weights.any():
            _, sums = _core.sums_of(seen, labels, k, weights, "euclidean", threads, first)
            self.sums += sums
            self._add_columns(*seen.column_moments(weights))
        self._draw(seen, labels, first)
        return n

    def _add_columns(self, weight: float, mean: Floats, variance: Floats) -> None:
        """Add the moments of the columns of a part (Chan and others, 1979)."""
        before, center, spread = self.columns
        total = before + weight
        off = mean - center
        spread = spread + variance * weight + off * off * (before * weight / total)
        self.columns = total, center + off * (weight / total), spread

    def _draw(self, seen: Source, labels: npt.NDArray[np.int32], first: int) -> None:
        """Project a sample of the rows for the picture."""
        most = dense_rows(self.centers.shape[1])
        if self.axes is None:
            n = min(FIRST_ROWS, len(labels), most)
            self.axes = axes_of(self.centers, seen.take(np.arange(n)))
        wanted = self.sample.wanted(first, len(labels))
        origin, axes = self.axes
        for start in range(0, len(wanted), most):
            # Sparse rows become dense.
            some = wanted[start : start + most]
            points = (seen.take(some).astype(np.float64) - origin) @ axes.T
            self.sample.add(some + first, labels[some], points)

    def projected(self) -> Floats:
        """Return the positions of the centers on the picture."""
        assert self.axes is not None
        origin, axes = self.axes
        return (self.centers.astype(np.float64) - origin) @ axes.T


def axes_of(centers: npt.NDArray[Any], rows: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """Return the origin and two orthogonal axes of the picture: principal axes of the centers.

    Missing axes are those of `rows`, or zero in a single column.
    """
    points = centers.astype(np.float64)
    origin = points.mean(axis=0)
    axes = np.zeros((2, points.shape[1]))
    found = 0
    for values in (points, rows.astype(np.float64)):
        off = values - origin
        off -= off @ axes.T @ axes
        scale = np.abs(off).max(initial=0.0)
        if found == 2 or min(off.shape) == 0 or scale == 0.0:
            continue
        _, strengths, directions = randomized_svd(off / scale, min(2 - found, *off.shape), random_state=0)
        for strength, direction in zip(strengths, directions, strict=True):
            if strength > 1e-6 and found < 2:
                # The sign is arbitrary: the largest value is positive.
                axes[found] = direction * np.sign(direction[np.abs(direction).argmax()])
                found += 1
    return origin, axes
