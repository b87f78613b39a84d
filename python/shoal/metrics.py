"""Metrics of clusterings.

The module re-exports ``adjusted_rand_score`` and ``normalized_mutual_info_score`` of scikit-learn. The
latter divides by a mean of two entropies. Scikit-learn's default is ``average_method="arithmetic"``; older
papers and libraries use ``"geometric"``. State the method when you compare figures.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from . import _core
from ._checks import params as _params
from ._docs import documented
from ._quality.exact import MOST_ROWS, exact_widths
from ._quality.indices import calinski_harabasz, check_count, davies_bouldin, mean, widths
from ._quality.labeled import Labeled
from ._rows.checked import as_weighted
from ._rows.zeros import SeenBy
from .typing import Metric, RandomState, Rows, Weights

__all__ = [
    "adjusted_rand_score",
    "calinski_harabasz_score",
    "clustering_accuracy",
    "davies_bouldin_score",
    "inertia",
    "normalized_mutual_info_score",
    "purity",
    "silhouette_score",
]


@documented
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
    {X}
    centers : array-like of shape (n_centers, n_features)
        Finite. Centers of a wider type than the rows are not rounded: the computation is then in float64.
    {sample_weight}
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"`` scales rows and centers to length 1; the sum is then twice that of the cosine distances.
        A row of zeros is not scaled: its squared distance to every center is 1. A warning counts such rows.
    {threads}

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
    _params.one_of("metric", metric, Metric)
    with SeenBy(source, metric) as seen:
        return _core.inertia(seen, values, weights, None, metric, _params.threads(n_jobs))


@documented
def silhouette_score(
    X: Rows,
    labels: npt.ArrayLike,
    *,
    centers: npt.ArrayLike | None = None,
    simplified: bool = True,
    n_samples: int | None = None,
    sample_weight: Weights = None,
    metric: Metric = "euclidean",
    random_state: RandomState = None,
    n_jobs: int | None = None,
) -> float:
    """Compute the mean silhouette width of rows, simplified or exact.

    The width of a row is ``(b - a) / max(a, b)``. In the simplified silhouette, `a` is the distance of the
    row to the center of its cluster, and `b` that to the nearest other center. In the exact one, `a` is the
    mean distance to the other rows of its cluster, and `b` the smallest mean distance to the rows of another
    cluster. The width is 0 if the row is the only one of its cluster.

    Parameters
    ----------
    X : rows of shape (n_samples, n_features)
        Any input of :meth:`shoal.KMeans.fit`. An iterator only with `centers`, and without `n_samples`.
    labels : array-like of shape (n_samples,)
        Clusters of the rows: any sortable labels, or indices into `centers`. There must be at least 2
        clusters, and fewer clusters than rows.
    centers : array-like of shape (n_centers, n_features), optional
        Centers of the clusters, such as ``cluster_centers_``, for the simplified silhouette. Centers without
        rows are ignored. Default: the means of the clusters, which take one more pass.
    simplified : bool, default=True
        Whether to measure distances to centers, in ``2 n k d`` operations, or ``2 n_samples k d`` for a
        sample. The exact silhouette takes ``2 n**2 d`` operations, or ``2 n_samples n d``.
    n_samples : int, optional
        Number of rows, drawn without replacement, whose widths are averaged. Each width is measured against
        all rows, so the mean is unbiased. Default: all rows; for the exact silhouette of more than 20,000
        rows it must be given.
    sample_weight : array-like of shape (n_samples,), float or None
        Weight of every row, as for :meth:`shoal.KMeans.fit`. Only the shares of the total weight matter. The
        means of distances and the mean of the widths are weighted, and rows of weight 0 do not count.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"`` scales rows and centers to length 1, and measures Euclidean distances between them, whose
        square is twice the cosine distance.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the sample.
    {threads}

    Returns
    -------
    float
        Between -1 and 1; higher is better.

    Raises
    ------
    ValueError
        If a parameter, shape or value is invalid, if there are too few or too many clusters, or if X can be
        read only once and the call needs two passes.
    TypeError
        If values are not numbers.

    See Also
    --------
    sklearn.metrics.silhouette_score : The exact silhouette in memory. With `sample_size`, distances are
        measured only within the sample.
    shoal.select_n_clusters : Compare numbers of clusters.

    Notes
    -----
    Memory beyond the rows: about 45 bytes per row, and for the exact silhouette at most about 130 MB more.

    References
    ----------
    P. J. Rousseeuw, "Silhouettes: a graphical aid to the interpretation and validation of cluster analysis",
    1987. E. R. Hruschka, R. J. G. B. Campello and L. N. de Castro, "Evolving clusters in gene-expression
    data", 2006 (simplified).

    Examples
    --------
    >>> import numpy as np, shoal
    >>> X = np.array([[0.0], [2.0], [10.0], [12.0]])
    >>> shoal.metrics.silhouette_score(X, [0, 0, 1, 1])
    0.898989898989899
    >>> shoal.metrics.silhouette_score(X, [0, 0, 1, 1], simplified=False)
    0.797979797979798
    """
    if centers is not None and not simplified:
        raise _params.ParameterError("`centers` must be None with simplified=False, which uses no centers")
    size = None if n_samples is None else _params.whole("n_samples", n_samples, 1)
    passes = 1 if centers is not None and size is None else 2
    data = Labeled("silhouette_score", X, labels, sample_weight, metric, n_jobs, passes=passes)
    n, weights = len(data.labels), data.weights
    rows = np.arange(n) if weights is None else np.flatnonzero(weights)
    picked = None
    if size is not None:
        check_count("n_samples", size, len(rows), weights)
        draws = _params.random_state_of(_params.seed(random_state))
        picked = np.sort(draws.choice(rows, size, replace=False))
    if simplified:
        own, other = data.own_and_other(_used_centers(data, centers), picked)
        labels = data.labels if picked is None else data.labels[picked]
        found = widths(own, other, data.sizes[labels] == 1)
    else:
        if picked is None and n > MOST_ROWS:
            raise _params.ParameterError(
                f"`n_samples` must be given for the exact silhouette of more than {MOST_ROWS} rows, got {n} "
                "rows. Use n_samples=1000, or simplified=True."
            )
        found = exact_widths(data, np.arange(n) if picked is None else picked)
    return mean(found, weights if weights is None or picked is None else weights[picked])


def _used_centers(data: Labeled, centers: npt.ArrayLike | None) -> npt.NDArray[Any]:
    """Return the centers of the clusters that have weight."""
    compute = data.source.compute
    if centers is None:
        return data.means().astype(compute)
    values = _params.centers("centers", centers, compute, (None, data.source.shape[1]))
    used = data.used
    if used.dtype.kind not in "iu" or used[0] < 0 or used[-1] >= len(values):
        raise ValueError(
            f"labels must be numbers of the centers, from 0 to {len(values) - 1}, got {used[0]} to {used[-1]}"
        )
    found: npt.NDArray[Any] = values[used]
    return found


@documented
def davies_bouldin_score(
    X: Rows,
    labels: npt.ArrayLike,
    *,
    sample_weight: Weights = None,
    metric: Metric = "euclidean",
    n_jobs: int | None = None,
) -> float:
    """Compute the Davies-Bouldin index: the mean overlap of similar clusters.

    The overlap of two clusters is the sum of their mean distances to their means, divided by the distance of
    the means.

    Parameters
    ----------
    {X}
    labels : array-like of shape (n_samples,)
        Clusters of the rows; any sortable labels. At least 2 clusters, and fewer than rows.
    sample_weight : array-like of shape (n_samples,), float or None
        Weight of every row, as for :meth:`shoal.KMeans.fit`. Only the shares of the total weight matter, and
        rows of weight 0 do not count.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"`` scales rows to length 1 as they are read.
    {threads}

    Returns
    -------
    float
        At least 0; lower is better.

    Raises
    ------
    ValueError, TypeError
        As :func:`silhouette_score`.

    See Also
    --------
    sklearn.metrics.davies_bouldin_score : The same in memory.

    Notes
    -----
    Two passes of ``n d`` operations, and ``k**2 d`` operations for the centers.

    References
    ----------
    D. L. Davies and D. W. Bouldin, "A cluster separation measure", 1979.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> shoal.metrics.davies_bouldin_score(np.array([[0.0], [2.0], [10.0], [12.0]]), [0, 0, 1, 1])
    0.2
    """
    data = Labeled("davies_bouldin_score", X, labels, sample_weight, metric, n_jobs, passes=2)
    means = data.means()
    scatter = data.per_cluster(np.sqrt(data.sq_dists(means))) / data.totals
    data.warn()
    return davies_bouldin(means, scatter, data.threads)


def calinski_harabasz_score(
    X: Rows,
    labels: npt.ArrayLike,
    *,
    sample_weight: Weights = None,
    metric: Metric = "euclidean",
    n_jobs: int | None = None,
) -> float:
    """Compute the Calinski-Harabasz index: the variance ratio of the clusters.

    The index is ``B / W * (n - k) / (k - 1)``. `B` is the weighted sum of squared distances of the means of
    the clusters to the mean of all rows, `W` that of the rows to the means of their clusters, `n` the number
    of rows with weight, and `k` the number of clusters with weight.

    Parameters
    ----------
    X, labels, sample_weight, metric, n_jobs
        As for :func:`davies_bouldin_score`.

    Returns
    -------
    float
        At least 0; higher is better. 1 if every row equals the mean of its cluster, as in scikit-learn.

    Raises
    ------
    ValueError, TypeError
        As :func:`silhouette_score`.

    See Also
    --------
    sklearn.metrics.calinski_harabasz_score : The same in memory.

    Notes
    -----
    Two passes of ``n d`` operations.

    References
    ----------
    T. Calinski and J. Harabasz, "A dendrite method for cluster analysis", 1974.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> shoal.metrics.calinski_harabasz_score(np.array([[0.0], [2.0], [10.0], [12.0]]), [0, 0, 1, 1])
    50.0
    """
    data = Labeled("calinski_harabasz_score", X, labels, sample_weight, metric, n_jobs, passes=2)
    means = data.means()
    within = float(data.per_cluster(data.sq_dists(means)).sum())
    data.warn()
    return calinski_harabasz(means, data.totals, within, int(data.sizes.sum()))


def _contingency(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Count the rows by class (rows of the table) and cluster (columns)."""
    true, pred = np.asarray(y_true), np.asarray(y_pred)
    if true.ndim != 1 or pred.ndim != 1 or len(true) != len(pred) or len(true) == 0:
        raise ValueError(
            f"y_true and y_pred must be 1-D, of the same length and not empty, "
            f"got shapes {true.shape} and {pred.shape}"
        )
    for name, labels in (("y_true", true), ("y_pred", pred)):
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise ValueError(f"{name} must be finite, got NaN or infinity")
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
        If the lengths differ or are 0, or a label is NaN or infinite.

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
        If the lengths differ or are 0, or a label is NaN or infinite.

    Examples
    --------
    >>> from shoal import metrics
    >>> metrics.purity([0, 0, 1, 1], [0, 1, 2, 3])
    1.0
    """
    table = _contingency(y_true, y_pred)
    return float(table.max(axis=0).sum() / table.sum())
