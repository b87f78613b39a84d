"""Rows against a set of centers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from . import _core, _params
from ._base import as_source

__all__ = ["nearest"]


def nearest(
    X: Any, centers: npt.ArrayLike, *, n_nearest: int = 1, n_jobs: int | None = None
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
    """Find the nearest centers of every row, by brute force at the speed of the processor.

    Parameters
    ----------
    X : rows of shape (n_samples, n_features)
        Anything that :meth:`shoal.KMeans.fit` takes.
    centers : array-like of shape (n_centers, n_features)
        Finite; rounded to the type that the rows are computed in.
    n_nearest : int, default=1
        How many of them, at most the number of centers.
    n_jobs : int or None
        Threads; None: all that the process may use.

    Returns
    -------
    labels : ndarray of shape (n_samples,), or (n_samples, n_nearest) for `n_nearest` > 1, int32
        Indices of centers, nearest first; the lower index wins a tie.
    sq_dists : ndarray of the same shape, float64
        Squared Euclidean distances, differences and sums in float64.

    Raises
    ------
    ValueError
        For parameters, shapes or values that are refused.
    TypeError
        For values that are no numbers.
    MemoryError
        When the result is larger than memory.

    Notes
    -----
    Costs ``2 n k d`` operations; no ``n x k`` matrix is made.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> labels, sq_dists = shoal.nearest(np.array([[1.0], [8.0]]), [[0.0], [10.0]])
    >>> labels.tolist(), sq_dists.tolist()
    ([0, 1], [1.0, 4.0])
    """
    source = as_source(X)
    values = _params.centers("centers", centers, source.compute, (None, source.shape[1]))
    m = _params.whole("n_nearest", n_nearest, 1)
    if m > len(values):
        raise _params.ParameterError(f"n_nearest={m} must be at most the number of centers, {len(values)}")
    return _core.nearest(source, values, m, "euclidean", _params.threads(n_jobs))
