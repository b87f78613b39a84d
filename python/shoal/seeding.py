"""First centers, as functions of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from . import _core, _params
from ._base import as_source
from ._blocks import refuse_once

__all__ = ["kmeans_plusplus"]


def kmeans_plusplus(
    X: Any,
    n_clusters: int,
    *,
    sample_weight: Any = None,
    greedy: bool = True,
    random_state: Any = None,
    n_jobs: int | None = None,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Choose first centers among the rows of X by k-means++.

    Parameters
    ----------
    X : rows of shape (n_samples, n_features)
        Anything that :meth:`shoal.KMeans.fit` takes.
    n_clusters : int
        Number of centers, at least 1 and at most the number of rows.
    sample_weight : array-like of shape (n_samples,), float or None
        Weight of every row, finite, at least 0, not all 0. None: 1.
    greedy : bool, default=True
        Draw ``2 + ln k`` candidates for each center and keep the best, as scikit-learn does; else one.
    random_state : int, RandomState, Generator or None
        An int makes the choice repeatable.
    n_jobs : int or None
        Threads; None: all that the process may use. The choice does not depend on it.

    Returns
    -------
    centers : ndarray of shape (n_clusters, n_features), float32 or float64
        The rows chosen, in the type that they are computed in.
    indices : ndarray of shape (n_clusters,), int64
        Which rows they are: ``X[indices]``.

    Raises
    ------
    ValueError
        For parameters, shapes or values that are refused.
    TypeError
        For values that are no numbers.

    Notes
    -----
    Costs up to ``n k d`` operations, times the number of candidates; many pairs are pruned by the triangle
    inequality.

    References
    ----------
    D. Arthur and S. Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> X = np.array([[0.0], [0.1], [9.0], [9.1]])
    >>> centers, indices = shoal.kmeans_plusplus(X, 2, random_state=0)
    >>> bool((centers == X[indices]).all())
    True
    """
    k = _params.whole("n_clusters", n_clusters, 1)
    refuse_once(X, "kmeans_plusplus")
    source = as_source(X)
    rows = source.shape[0]
    if rows is not None and rows < k:
        raise ValueError(f"n_samples={rows} should be >= n_clusters={k}.")
    weights = _params.weights(sample_weight, rows)
    seed = _params.seed(random_state)
    return _core.kmeans_plusplus(source, k, bool(greedy), seed, weights, _params.threads(n_jobs))
