"""Nearest neighbors: of rows among centers, and of rows among each other."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from . import _core
from ._checks import params as _params
from ._docs import documented
from ._rows.checked import as_source, warn_of_weights
from ._rows.sparse import csr_of_equal_rows
from ._rows.spool import with_random_access
from ._rows.zeros import SeenBy
from .typing import GraphMethod, Metric, NearestMethod, Rows

__all__ = ["knn_graph", "nearest"]


@overload
def nearest(
    X: Rows,
    centers: npt.ArrayLike,
    *,
    n_nearest: int = 1,
    method: NearestMethod = "exact",
    recall: float = 0.99,
    metric: Metric = "euclidean",
    n_jobs: int | None = None,
    return_info: Literal[False] = False,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]: ...
@overload
def nearest(
    X: Rows,
    centers: npt.ArrayLike,
    *,
    n_nearest: int = 1,
    method: NearestMethod = "exact",
    recall: float = 0.99,
    metric: Metric = "euclidean",
    n_jobs: int | None = None,
    return_info: Literal[True],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64], dict[str, Any]]: ...
@documented
def nearest(
    X: Rows,
    centers: npt.ArrayLike,
    *,
    n_nearest: int = 1,
    method: NearestMethod = "exact",
    recall: float = 0.99,
    metric: Metric = "euclidean",
    n_jobs: int | None = None,
    return_info: bool = False,
) -> Any:
    """Find the nearest centers of every row.

    Parameters
    ----------
    X : rows of shape (n_samples, n_features)
        Any input of :meth:`shoal.KMeans.fit`. With ``method="approximate"``, sequential sources (Parquet, a
        callable that returns blocks) are written to a temporary file first.
    centers : array-like of shape (n_centers, n_features)
        Finite; rounded to the compute type of the rows.
    n_nearest : int, default=1
        Number of centers per row, at most the number of centers.
    method : {"exact", "approximate"}, default="exact"
        - ``"exact"`` compares every row with every center.
        - ``"approximate"``, for thousands of centers: a row is compared only with the centers in the nearest
          cells of a k-means partition of the centers. This method also searches exactly if there are fewer
          than 1,024 centers, or if a row would search more than 20% of the cells (5% with 64 features or
          more).
    recall : float, default=0.99
        For ``"approximate"``: fraction of the nearest centers to find, above 0 and at most 1. The number of
        cells to search is chosen to reach it, with a margin, on a sample of 1,024 rows whose nearest centers
        are known.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"`` scales rows and centers to length 1: the nearest center is that of the largest cosine
        similarity, and squared distances are twice the cosine distance. A row of zeros is not scaled: its
        squared distance to every center is 1. A warning counts such rows.
    {threads}
    return_info : bool, default=False
        Whether to also return how the centers were found.

    Returns
    -------
    labels : ndarray of shape (n_samples,), or (n_samples, n_nearest) for `n_nearest` > 1, int32
        Indices of the centers, nearest first; the lower index wins a tie.
    sq_dists : ndarray of the same shape, float64
        Squared Euclidean distances; differences and sums in float64.
    info : dict
        Only with `return_info`: ``method`` (``"exact"`` if the search was exact), ``recall`` (1.0 for an
        exact search, otherwise the recall measured on the sample), ``n_cells`` and ``n_probes`` (searched
        cells per row) of an approximate search.

    Raises
    ------
    ValueError
        If a parameter, shape or value is invalid, or X is an iterator and `method` is ``"approximate"``.
    TypeError
        If values are not numbers.
    MemoryError
        If the result is larger than memory.

    Notes
    -----
    An exact search costs ``2 n k d`` operations. No ``n x k`` matrix is made. An approximate search costs the
    same times ``n_probes / n_cells``, plus ``4 n sqrt(k) d``. Labels that estimators return are always exact.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> labels, sq_dists = shoal.nearest(np.array([[1.0], [8.0]]), [[0.0], [10.0]])
    >>> labels.tolist(), sq_dists.tolist()
    ([0, 1], [1.0, 4.0])
    """
    _params.one_of("method", method, NearestMethod)
    share = _params.POSITIVE_FRACTION.check("recall", recall)
    warn_of_weights(X, "nearest")
    source = as_source(with_random_access(X, "nearest") if method == "approximate" else X)
    values = _params.centers("centers", centers, source.compute, (None, source.shape[1]))
    m = _params.whole("n_nearest", n_nearest, 1)
    if m > len(values):
        raise _params.ParameterError(
            f"`n_nearest` must be at most the number of centers, {len(values)}, got {m}"
        )
    _params.one_of("metric", metric, Metric)
    threads = _params.threads(n_jobs)
    figures = {"exact": 1.0, "recall": 1.0}
    with SeenBy(source, metric) as seen:
        if method == "approximate":
            labels, sq_dists, figures = _core.nearest_approximately(seen, values, m, share, metric, threads)
        else:
            labels, sq_dists = _core.nearest(seen, values, m, metric, threads)
    if not return_info:
        return labels, sq_dists
    if figures["exact"]:
        return labels, sq_dists, {"method": "exact", "recall": 1.0}
    return labels, sq_dists, describe_search("approximate", figures)


@overload
def knn_graph(
    X: Rows,
    n_neighbors: int,
    *,
    method: GraphMethod = "auto",
    recall: float = 0.95,
    metric: Metric = "euclidean",
    n_jobs: int | None = None,
    return_info: Literal[False] = False,
) -> csr_matrix: ...
@overload
def knn_graph(
    X: Rows,
    n_neighbors: int,
    *,
    method: GraphMethod = "auto",
    recall: float = 0.95,
    metric: Metric = "euclidean",
    n_jobs: int | None = None,
    return_info: Literal[True],
) -> tuple[csr_matrix, dict[str, Any]]: ...
@documented
def knn_graph(
    X: Rows,
    n_neighbors: int,
    *,
    method: GraphMethod = "auto",
    recall: float = 0.95,
    metric: Metric = "euclidean",
    n_jobs: int | None = None,
    return_info: bool = False,
) -> Any:
    """Find the nearest neighbors of every row among the other rows.

    Parameters
    ----------
    X : rows of shape (n_samples, n_features)
        Any input of :meth:`shoal.KMeans.fit`. An array, a sparse matrix and a mapped file are read in place;
        ``"kd-tree"`` copies the rows. Sequential sources (Parquet, a callable that returns blocks) are
        written to a temporary file first.
    n_neighbors : int
        Neighbors per row, at least 1 and less than the number of rows.
    method : {"auto", "exact", "kd-tree", "ivf"}, default="auto"
        - ``"exact"`` compares all pairs of rows once, ``n**2 d`` operations.
        - ``"kd-tree"`` is exact too, and much faster for few columns; not for sparse rows.
        - ``"ivf"`` is approximate, for very many rows: each row searches the nearest cells of a k-means
          partition.
        - ``"auto"``: the tree for few columns, else all pairs while that takes minutes at most, else
          ``"ivf"``.
    recall : float, default=0.95
        For ``"ivf"``: fraction of the true neighbors to find, above 0 and at most 1. The number of cells to
        search is chosen to reach it, with a margin, on a sample of 384 rows whose true neighbors are known.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"`` scales rows to length 1 as they are read. The graph holds their squared Euclidean
        distances, and the cosine distance is half of that. A row of zeros is not scaled; a warning counts
        such rows.
    {threads}
    return_info : bool, default=False
        Whether to also return how the graph was computed.

    Returns
    -------
    graph : scipy.sparse.csr_matrix of shape (n_samples, n_samples), float64
        Squared Euclidean distances of every row to its `n_neighbors` nearest other rows, nearest first, in
        the layout of scikit-learn's graphs. A row is never its own neighbor, but duplicates of it are, with a
        stored distance of 0. Of equal distances the lower index comes first. To use the graph as an affinity
        for :class:`~shoal.LaplacianKModes`, set ``graph.data[:] = 1`` first.
    info : dict
        Only with `return_info`: ``method``, ``recall`` (1.0 for an exact method, else measured on the
        sample), ``n_cells`` and ``n_probes`` of ``"ivf"``.

    Raises
    ------
    ValueError
        If a parameter, shape or value is invalid, or X is an iterator, which can be read only once.
    TypeError
        If values are not numbers.
    MemoryError
        If the result is larger than memory.

    Notes
    -----
    Memory beyond the rows and the result: ``16 n_neighbors`` bytes per row (20 with ``"kd-tree"``, which also
    holds the rows twice; with ``"ivf"`` about 20 more for each searched cell) and some dozens of MB. No
    ``n x n`` matrix is made. Distances are differences and sums in float64; rows so large that these may
    overflow raise `ValueError`. All exact methods give the same graph.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> graph = shoal.knn_graph(np.array([[0.0], [1.0], [5.0]]), 1)
    >>> graph.toarray().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 16.0, 0.0]]
    """
    m, share = _params.whole("n_neighbors", n_neighbors, 1), _params.POSITIVE_FRACTION.check("recall", recall)
    _params.one_of("method", method, GraphMethod)
    _params.one_of("metric", metric, Metric)
    threads = _params.threads(n_jobs)
    warn_of_weights(X, "knn_graph")
    source = as_source(with_random_access(X, "knn_graph"))
    with SeenBy(source, metric) as seen:
        neighbors, sq_dists, found_by, figures = _core.knn_graph(seen, m, method, share, threads)
    n = len(neighbors) // m
    graph = csr_of_equal_rows(sq_dists.reshape(n, m), neighbors.reshape(n, m), n)
    return (graph, describe_search(found_by, figures)) if return_info else graph


def describe_search(method: str, figures: dict[str, float]) -> dict[str, Any]:
    """Return how neighbors were found, for `return_info`."""
    counts = {name: int(figures[name]) for name in ("n_cells", "n_probes")}
    return {"method": method, "recall": figures["recall"], **counts}
