"""Metrics: inertia, and scores of a clustering against known classes.

The module also exports ``adjusted_rand_score`` and ``normalized_mutual_info_score`` of scikit-learn. The
latter divides by a mean of two entropies. scikit-learn's default is ``average_method="arithmetic"``. Older
papers and libraries use ``"geometric"``, so state the method when you compare results.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from . import _core
from ._common import params as _params
from ._rows.checked import as_source
from .typing import Rows, Weights

__all__ = ["adjusted_rand_score", "clustering_accuracy", "inertia", "normalized_mutual_info_score", "purity"]


def inertia(
    X: Rows, centers: npt.ArrayLike, sample_weight: Weights = None, *, n_jobs: int | None = None
) -> float:
    """Compute the sum of squared distances of rows to their nearest centers.

    Parameters
    ----------
    X : rows of shape (n_samples, n_features)
        Rows in any form that :meth:`shoal.KMeans.fit` takes.
    centers : array-like of shape (n_centers, n_features)
        Finite numbers. If their type is wider than float32, the computation uses float64.
    sample_weight : array-like of shape (n_samples,), float or None
        Weight of every row: finite, at least 0, not all 0. None means 1.
    n_jobs : int or None
        Number of threads; None as for :class:`shoal.KMeans`. The result does not depend on it.

    Returns
    -------
    float
        The weighted sum, with differences and sums in float64.

    Raises
    ------
    ValueError
        If shapes or values are invalid.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> shoal.metrics.inertia(np.array([[1.0], [8.0]]), [[0.0], [10.0]])
    5.0
    """
    source = as_source(X)
    given = np.asarray(centers)
    narrow = source.compute == "float32" and given.dtype in (np.dtype(np.float32), np.dtype(np.float16))
    values = _params.centers("centers", given, np.float32 if narrow else np.float64, (None, source.shape[1]))
    weights = _params.weights(sample_weight, source.shape[0])
    return _core.inertia(source, values, weights, None, "euclidean", _params.threads(n_jobs))


def _contingency(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Count rows by class (rows of the table) and cluster (columns)."""
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
    """Share of rows in the matched class, under the best one-to-one matching.

    The matching of clusters and classes is found with the Hungarian method.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        Classes and clusters: any comparable labels. Their numbers of distinct labels may differ.

    Returns
    -------
    float
        Between 0 and 1. Rows of clusters without a matched class count as wrong.

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
    """Share of rows that belong to the most frequent class of their cluster.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        Classes and clusters: any comparable labels.

    Returns
    -------
    float
        Between 0 and 1. Purity tends to increase with the number of clusters.

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
