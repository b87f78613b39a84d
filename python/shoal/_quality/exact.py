"""Exact silhouette widths: mean distances of some rows to all rows of every cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from shoal import _core
from shoal._fit.results import pieces
from shoal._rows.zeros import count_zeros, warn_of_zeros

from .indices import Floats, widths
from .labeled import Labeled

#: Largest number of rows whose widths are computed without `n_samples`: n**2 distances.
MOST_ROWS = 20_000
#: Rows whose widths are computed in one pass, at most.
CHUNK_ROWS = 1024
#: Largest number of distances, and of sums per cluster and row, in memory.
MOST_VALUES = 1 << 22


def exact_widths(data: Labeled, picked: npt.NDArray[np.int64]) -> Floats:
    """Return the silhouette widths of the rows `picked`, measured against all rows."""
    data.count()
    k, d = len(data.totals), data.source.shape[1]
    chunk = max(1, min(CHUNK_ROWS, MOST_VALUES // k, MOST_VALUES // d))
    rest = rest_of(data)
    found, n_zeros = [], 0
    for start in range(0, len(picked), chunk):
        some = picked[start : start + chunk]
        sums, n_zeros = distance_sums(data, data.seen.take(some))
        own = data.labels[some]
        at = np.arange(len(some))
        alone = data.sizes[own] == 1
        inner = sums[own, at] / np.where(alone, 1.0, rest[some])
        means = sums / data.totals[:, None]
        means[own, at] = np.inf
        found.append(widths(inner, means.min(axis=0), alone))
    warn_of_zeros(n_zeros)
    return np.concatenate(found)


def rest_of(data: Labeled) -> Floats:
    """Return, for every row, the weight of the other rows of its cluster."""
    totals, labels, weights = data.totals, data.labels, data.weights
    if weights is None:
        return totals[labels] - 1.0
    rest: Floats = totals[labels] - weights
    # One row can have nearly all the weight of its cluster. The difference would then be rounding alone.
    order = np.argsort(weights, kind="stable")
    heaviest = np.zeros(len(totals), dtype=np.int64)
    heaviest[labels[order]] = order
    others = weights.copy()
    others[heaviest] = 0.0
    rest[heaviest] = np.bincount(labels, others, minlength=len(totals))
    return rest


def distance_sums(data: Labeled, rows: npt.NDArray[Any]) -> tuple[Floats, int]:
    """Return the weighted sum of distances of `rows` to the rows of every cluster, and the rows of zeros."""
    k, m = len(data.totals), len(rows)
    points = np.ascontiguousarray(rows, dtype=np.float64)
    sums, n_zeros = np.zeros((k, m)), 0
    for piece, first, _ in pieces(data.rows, max(1, MOST_VALUES // m)):
        seen = piece.seen_by(data.metric)
        # Rows were scaled when they were taken.
        apart = _core.transform(seen, points, "euclidean", data.threads)
        n = len(apart)
        labels = data.labels[first : first + n]
        weights = np.ones(n) if data.weights is None else data.weights[first : first + n]
        sums += csr_array((weights, (labels, np.arange(n))), shape=(k, n)) @ apart
        n_zeros += count_zeros(seen, data.metric)
    return sums, n_zeros
