"""Rows with labels, which the metrics read in one or two passes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal import _core
from shoal._checks import params as _params
from shoal._core import Source
from shoal._fit.results import PART_ROWS, pieces
from shoal._rows.arrays import as_rows, source_of_values
from shoal._rows.checked import weighted
from shoal._rows.opening import open_rows
from shoal._rows.source import DataSource
from shoal._rows.streams import refuse_once
from shoal._rows.zeros import count_zeros, warn_of_zeros
from shoal.typing import Metric

from .indices import Floats, per_cluster, rows_with_weight

#: Values of picked rows in memory at a time.
TAKEN_VALUES = 1 << 22


def open_all(X: Any, many_passes_of: str | None = None) -> DataSource:
    """Open the rows that a function takes; rows that allow only one pass raise for `many_passes_of`."""
    if many_passes_of is not None:
        refuse_once(X, many_passes_of)
    source = open_rows(X)
    if source is None:
        return DataSource(source_of_values(as_rows(X)))
    if many_passes_of is not None:
        refuse_once(source, many_passes_of)
    return source


def codes_of(labels: Any, rows: int | None) -> npt.NDArray[Any]:
    """Return labels as a 1-D array; raise if there is not one for every row."""
    given = np.asarray(labels)
    if given.ndim != 1:
        raise ValueError(f"labels must be 1-D, one label per row, got shape {given.shape}")
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise ValueError("labels must be finite, got NaN or infinity")
    if rows is not None and len(given) != rows:
        raise ValueError(f"labels has {len(given)} values, X has {rows} rows")
    return given


class Labeled:
    """Rows with checked labels, as the metric sees them, for `passes` passes over the rows.

    Only clusters that have weight count. `used` holds their given labels in ascending order, `labels` the
    numbers of these clusters from 0, `totals` their weights, and `sizes` their numbers of rows with weight.
    Rows of other clusters have label 0 and weight 0. Messages name the function `who`.
    """

    def __init__(
        self,
        who: str,
        X: Any,
        labels: Any,
        sample_weight: Any,
        metric: Any,
        n_jobs: Any,
        *,
        passes: int,
    ) -> None:
        self.metric = _params.one_of("metric", metric, Metric)
        self.threads = _params.threads(n_jobs)
        self.rows = open_all(X, who if passes > 1 else None)
        self.source, self.weights = weighted(self.rows, sample_weight)
        given = codes_of(labels, self.source.shape[0])
        self.used, codes = np.unique(given, return_inverse=True)
        totals = np.bincount(codes, self.weights, minlength=len(self.used))
        if not totals.all():
            # Clusters whose rows have no weight.
            kept = totals > 0
            codes = np.where(kept[codes], np.cumsum(kept)[codes] - 1, 0)
            self.used, totals = self.used[kept], totals[kept]
        self.labels, self.totals = codes.astype(np.int32), totals.astype(np.float64)
        k = len(totals)
        self.sizes = rows_with_weight(self.labels, self.weights, k)
        n = int(self.sizes.sum())
        if not 2 <= k < n:
            # As scikit-learn, of the rows with weight.
            what = "rows" if self.weights is None else "rows with weight"
            raise ValueError(
                f"labels must be of at least 2 clusters, and of fewer than the number of {what}, {n}, got {k}"
            )
        self._seen: Source | None = None

    @property
    def seen(self) -> Source:
        """The rows as the metric sees them."""
        if self._seen is None:
            self._seen = self.source.seen_by(self.metric)
        return self._seen

    def count(self) -> None:
        """Raise unless a stream has as many rows as there are labels."""
        if self.source.shape[0] is None:
            self._expect(sum(len(block) for block in self.rows.blocks()))

    def means(self) -> Floats:
        """Compute the mean of every cluster in one pass."""
        totals, sums = _core.sums_of(
            self.seen, self.labels, len(self.totals), self.weights, "euclidean", self.threads
        )
        return sums / totals[:, None]

    def sq_dists(self, centers: npt.NDArray[Any]) -> Floats:
        """Compute the squared distance of every row to the center of its label in one pass."""
        return _core.sq_dists_to(self.seen, centers, self.labels, "euclidean", self.threads)

    def own_and_other(
        self, centers: npt.NDArray[Any], picked: npt.NDArray[np.int64] | None = None
    ) -> tuple[Floats, Floats]:
        """Compute distances of rows to their centers and to the nearest other ones, in one pass.

        `picked` are the numbers of the rows, in ascending order; None for all rows. Of sources with random
        access, only these are read.
        """
        owns, others, end, n_zeros = [], [], 0, 0
        for piece, first, _ in pieces(self.rows, PART_ROWS):
            end = first + (piece.shape[0] or 0)
            if picked is None:
                self._expect(end, at_least=True)
            for part, labels, first_row in self._parts(piece, first, end, picked):
                seen = part.seen_by(self.metric)
                near, sq_dists = _core.nearest(seen, centers, 2, self.metric, self.threads, first_row)
                own, other = split(
                    seen, centers, labels, near, sq_dists, self.metric, self.threads, first_row
                )
                owns.append(own)
                others.append(other)
                n_zeros += count_zeros(seen, self.metric)
        self._expect(end)
        warn_of_zeros(n_zeros)
        return np.concatenate(owns), np.concatenate(others)

    def _parts(
        self, piece: Source, first: int, end: int, picked: npt.NDArray[np.int64] | None
    ) -> Iterator[tuple[Source, npt.NDArray[np.int32], int]]:
        """Yield the picked rows of a piece in parts, with their labels and the number of the first row."""
        if picked is None:
            yield piece, self.labels[first:end], first
            return
        most = max(1, TAKEN_VALUES // self.source.shape[1])
        start, stop = np.searchsorted(picked, (first, end)).tolist()
        for at in range(start, stop, most):
            some = picked[at : min(stop, at + most)]
            yield source_of_values(piece.take(some - first)), self.labels[some], 0

    def _expect(self, rows: int, *, at_least: bool = False) -> None:
        """Raise unless there are as many labels as rows; with `at_least`, there may be more."""
        n = len(self.labels)
        if rows > n or (rows < n and not at_least):
            count = f"at least {rows}" if at_least else rows
            raise ValueError(f"labels has {n} values, X has {count} rows")

    def per_cluster(self, values: Floats) -> Floats:
        """Return the weighted sum of the values of the rows of every cluster."""
        return per_cluster(values, self.labels, self.weights, len(self.totals))

    def warn(self) -> None:
        """Warn of rows of zeros, which have no direction."""
        warn_of_zeros(count_zeros(self.seen, self.metric))


def split(
    source: Source,
    centers: npt.NDArray[Any],
    labels: npt.NDArray[np.int32],
    near: npt.NDArray[np.int32],
    sq_dists: Floats,
    metric: str,
    threads: int | None,
    first_row: int = 0,
) -> tuple[Floats, Floats]:
    """Return own and other distances of rows, from the two nearest centers of every row."""
    first = near[:, 0] == labels
    own = np.where(first, sq_dists[:, 0], sq_dists[:, 1])
    other = np.where(first, sq_dists[:, 1], sq_dists[:, 0])
    if not (first | (near[:, 1] == labels)).all():
        own = _core.sq_dists_to(source, centers, labels, metric, threads, first_row)
    return np.sqrt(own), np.sqrt(other)
