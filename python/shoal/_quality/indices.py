"""Indices of a clustering, from distances and weights that passes have measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shoal import _core
from shoal._checks.marked import ParameterError, mark
from shoal._checks.params import RowWeights
from shoal._rows.arrays import source_of_values

#: Distances between centers in memory at a time: 32 MB of float64.
STEP_VALUES = 1 << 22

Floats = npt.NDArray[np.float64]


def widths(own: Floats, other: Floats, alone: npt.NDArray[np.bool_]) -> Floats:
    """Return silhouette widths of rows, from their distances to their cluster and to the nearest other one.

    `alone` marks rows that are the only one with weight of their cluster. Their width is 0, as in
    scikit-learn.
    """
    largest = np.maximum(own, other)
    found = np.zeros(len(own))
    np.divide(other - own, largest, out=found, where=(largest > 0) & ~alone)
    return found


def rows_with_weight(labels: npt.NDArray[Any], weights: RowWeights, k: int) -> npt.NDArray[np.int64]:
    """Return the number of rows with weight of every cluster."""
    return np.bincount(labels if weights is None else labels[weights > 0.0], minlength=k)


def per_cluster(values: Floats, labels: npt.NDArray[Any], weights: RowWeights, k: int) -> Floats:
    """Return the weighted sum of the values of the rows of every cluster."""
    weighty = values if weights is None else values * weights
    return np.bincount(labels, weighty, minlength=k).astype(np.float64)


def check_count(name: str, count: int, n: int, weights: RowWeights) -> None:
    """Raise an error if a parameter exceeds `n`, the number of rows that count: those with weight."""
    if count > n:
        what = "rows" if weights is None else "rows with weight"
        raise ParameterError(f"{mark(name)} must be at most the number of {what}, {n}, got {count}")


def mean(values: Floats, weights: RowWeights) -> float:
    """Return the weighted mean."""
    return total(values, weights) / (len(values) if weights is None else float(weights.sum()))


def total(values: Floats, weights: RowWeights) -> float:
    """Return the weighted sum; weights of 1 give bit-identical results to None."""
    return float((values if weights is None else values * weights).sum())


def overlaps(
    centers: npt.NDArray[Any], scatter: Floats, threads: int | None
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return, per cluster, its largest ratio of scatter to separation, and the other cluster of the pair.

    The ratio of two clusters is the sum of their mean distances to their centers, divided by the distance of
    the centers. Two equal centers have the ratio 0, as in scikit-learn.
    """
    k = len(centers)
    ratios, others = np.zeros(k), np.zeros(k, dtype=np.int64)
    points = np.ascontiguousarray(centers, dtype=np.float64)
    step = max(1, STEP_VALUES // k)
    for start in range(0, k, step):
        stop = min(k, start + step)
        some = source_of_values(points[start:stop])
        apart = _core.transform(some, points, "euclidean", threads)
        apart[apart == 0.0] = np.inf
        found = (scatter[start:stop, None] + scatter) / apart
        others[start:stop] = found.argmax(axis=1)
        ratios[start:stop] = found.max(axis=1)
    return ratios, others


def davies_bouldin(centers: npt.NDArray[Any], scatter: Floats, threads: int | None) -> float:
    """Return the Davies-Bouldin index; `scatter` is the mean distance of the rows of every cluster."""
    return float(overlaps(centers, scatter, threads)[0].mean())


def calinski_harabasz(centers: npt.NDArray[Any], totals: Floats, within: float, n_rows: int) -> float:
    """Return the Calinski-Harabasz index of clusters with the weights `totals` and the inertia `within`.

    Only `n_rows`, the number of rows with weight, makes the index grow with the data: the ratio of the
    scatters depends on the shares of the weight.
    """
    k = len(centers)
    points = np.asarray(centers, dtype=np.float64)
    off = points - totals @ points / float(totals.sum())
    between = float(totals @ np.square(off).sum(axis=1))
    # A perfect clustering has the index 1 in scikit-learn.
    return 1.0 if within == 0.0 else between / within * (n_rows - k) / (k - 1)
