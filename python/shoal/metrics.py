"""Metrics of clusterings.

The module re-exports ``adjusted_rand_score`` and ``normalized_mutual_info_score`` of scikit-learn. The
latter divides by a mean of two entropies. Scikit-learn's default is ``average_method="arithmetic"``; older
papers and libraries use ``"geometric"``. State the method when you compare figures.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from . import _core
from ._common import params as _params
from ._common.zeros import SeenBy
from ._fit.centers import METRICS
from ._rows.checked import as_weighted
from .typing import Metric, Rows, Weights

__all__ = ["adjusted_rand_score", "clustering_accuracy", "inertia", "normalized_mutual_info_score", "purity"]


def inertia(
    X: Rows,
    centers: npt.ArrayLike,
    sample_weight: Weights = None,
    *,
    metric: Metric = "euclidean",
    n_jobs: int | None = None,
) -> float:
    """Compute the sum of squared distances of rows to their nearest centers.

    Parameters
    ----------
    X : rows of shape (n_samples, n_features)
        Any input of :meth:`shoal.KMeans.fit`.
    centers : array-like of shape (n_centers, n_features)
        Finite. Centers of a wider type than the rows are not rounded: the computation is then in float64.
    sample_weight : array-like of shape (n_samples,), float or None
        Weight of every row, finite, at least 0, not all 0. None: 1.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"`` scales rows and centers to length 1; the sum is then twice that of the cosine distances.
        A row of zeros is not scaled: its squared distance to every center is 1. A warning counts such rows.
    n_jobs : int or None
        Number of threads, as for :class:`shoal.KMeans`. The result does not depend on it.

    Returns
    -------
    float
        The weighted sum; differences and sums in float64.

    Raises
    ------
    ValueError
        If a shape or value is invalid.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> shoal.metrics.inertia(np.array([[1.0], [8.0]]), [[0.0], [10.0]])
    5.0
    """
    source, weights = as_weighted(X, sample_weight)
    given = np.asarray(centers)
    narrow = source.compute == "float32" and given.dtype in (np.dtype(np.float32), np.dtype(np.float16))
    values = _params.centers("centers", given, np.float32 if narrow else np.float64, (None, source.shape[1]))
    _params.one_of("metric", metric, METRICS)
    with SeenBy(source, metric) as seen:
        return _core.inertia(seen, values, weights, None, metric, _params.threads(n_jobs))


def _contingency(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Count the rows by class (rows of the table) and cluster (columns)."""
    true, pred = np.asarray(y_true), np.asarray(y_pred)
    if true.ndim != 1 or pred.ndim != 1 or len(true) != len(pred) or len(true) == 0:
        raise ValueError(
            f"y_true and y_pred must be 1-D, of the same length and not empty, "
            f"got shapes {true.shape} and {pred.shape}"
        )
    classes, rows = np.unique(true, return_inverse=True)
    clusters, columns = np.unique(pred, return_inverse=True)
    cells = np.bincount(rows * len(clusters) + columns, minlength=len(classes) * len(clusters))
    return cells.reshape(len(classes), len(clusters)).astype(np.int64)


def clustering_accuracy(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> float:
    """Fraction of rows that agree under the best matching of clusters and classes.

    The matching is one-to-one and found by the Hungarian method.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        Classes and clusters; any sortable labels. Their numbers may differ.

    Returns
    -------
    float
        Between 0 and 1; rows of clusters without a class of their own count as wrong.

    Raises
    ------
    ValueError
        If the lengths differ or are 0.

    Examples
    --------
    >>> from shoal import metrics
    >>> metrics.clustering_accuracy([0, 0, 1, 1], [5, 5, 3, 5])
    0.75
    """
    from scipy.optimize import linear_sum_assignment

    table = _contingency(y_true, y_pred)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / table.sum())


def purity(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> float:
    """Fraction of rows that belong to the most frequent class of their cluster.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        Classes and clusters; any sortable labels.

    Returns
    -------
    float
        Between 0 and 1; it rises with the number of clusters.

    Raises
    ------
    ValueError
        If the lengths differ or are 0.

    Examples
    --------
    >>> from shoal import metrics
    >>> metrics.purity([0, 0, 1, 1], [0, 1, 2, 3])
    1.0
    """
    table = _contingency(y_true, y_pred)
    return float(table.max(axis=0).sum() / table.sum())
