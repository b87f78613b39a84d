"""Lightweight coresets: a few weighted rows that represent all rows."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from . import _core
from ._common import params as _params
from ._common.files import check_place, whole
from ._common.outputs import BUNDLES, check_suffix
from ._common.zeros import SeenBy
from ._fit.centers import METRICS
from ._fit.watch import watched
from ._rows.checked import as_source
from ._rows.sparse import csr_of
from ._rows.streams import refuse_once
from .typing import Callbacks, Metric, PathName, RandomState, Rows, Weights

__all__ = ["Coreset", "lightweight_coreset"]

#: Points, weights and indices from the compiled code; sparse points are the three arrays of a CSR matrix.
Parts = tuple[Any, npt.NDArray[np.float64], npt.NDArray[np.int64]]


class Coreset(NamedTuple):
    """Weighted rows that represent many more rows.

    For any centers, the weighted k-means cost on the coreset is about the cost on all rows. Every estimator
    that accepts weights can be fitted to it: ``KMeans(50).fit(c.points, sample_weight=c.weights)``.

    Attributes
    ----------
    points : ndarray or scipy.sparse.csr_array of shape (m, n_features), float32 or float64
        The rows, in their compute type; sparse if the source is.
    weights : ndarray of shape (m,), float64
        How many rows each point represents. Their sum is about the weight of all rows.
    indices : ndarray of shape (m,), int64
        Row numbers of the points in the source: ``X[indices]``. A row that was drawn several times appears
        several times.

    See Also
    --------
    lightweight_coreset : Draw a coreset in two passes.
    StreamingCoreset : Build a coreset in one pass.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> X = np.random.default_rng(0).normal(size=(10_000, 3))
    >>> c = shoal.lightweight_coreset(X, 500, random_state=0)
    >>> model = shoal.KMeans(5, random_state=0).fit(c.points, sample_weight=c.weights)
    >>> bool(shoal.metrics.inertia(X, model.cluster_centers_) < 1.1 * shoal.KMeans(5).fit(X).inertia_)
    True
    """

    points: Any
    weights: npt.NDArray[np.float64]
    indices: npt.NDArray[np.int64]

    def __repr__(self) -> str:
        """Show shape, type and total weight, not the arrays."""
        sparse = hasattr(self.points, "indptr")
        points = self.points if sparse else np.asarray(self.points)
        size = " x ".join(map(str, points.shape))
        kind = f"sparse {points.dtype}" if sparse else str(points.dtype)
        return f"<Coreset: {size} {kind}, total weight {np.sum(self.weights):.6g}>"

    def save(self, path: PathName) -> None:
        """Write the coreset to an ``.npz`` file.

        The arrays are `points`, `weights` and `indices`. For sparse rows `points_data`, `points_indices`,
        `points_indptr` and `points_shape` replace `points`.

        Parameters
        ----------
        path : str, bytes or os.PathLike
            The file; an existing file is replaced. It appears whole or not at all.

        Raises
        ------
        ValueError
            If the path does not end in ``.npz``.
        OSError
            If the file cannot be written.
        """
        check_suffix("path", path, BUNDLES)
        check_place(path)
        arrays: dict[str, npt.NDArray[Any]] = {"weights": self.weights, "indices": self.indices}
        if hasattr(self.points, "indptr"):
            arrays |= {f"points_{name}": getattr(self.points, name) for name in ("data", "indices", "indptr")}
            arrays["points_shape"] = np.array(self.points.shape, dtype=np.int64)
        else:
            arrays["points"] = self.points
        with whole(path) as file:
            np.savez(file, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: PathName) -> Self:
        """Read a coreset that :meth:`save` wrote, without running code from the file.

        Parameters
        ----------
        path : str, bytes or os.PathLike
            The file.

        Returns
        -------
        Coreset
            The coreset.

        Raises
        ------
        OSError
            If the file cannot be read.
        ValueError
            If the file is damaged, holds no coreset, or would take more memory than :func:`shoal.open` allows
            (its parameter `chunk_limit`, or ``SHOAL_CHUNK_LIMIT`` in the environment).
        """
        from .formats.npz import checked_npz
        from .formats.stream import chunk_limit, told_of

        name = os.fsdecode(path)
        with (
            told_of(name, "holds no coreset as shoal writes it"),
            checked_npz(name, chunk_limit(None)) as opened,
            np.load(opened, allow_pickle=False) as file,
        ):
            weights, found = file["weights"], file["indices"]
            if "points" in file.files:
                points: Any = file["points"]
            else:
                data, indices, indptr = (file[f"points_{part}"] for part in ("data", "indices", "indptr"))
                rows, cols = (int(side) for side in file["points_shape"])
                points = csr_of(_csr((data, indices, indptr), (rows, cols)), "it")
            if not (points.ndim == 2 and weights.shape == found.shape == (points.shape[0],)):
                raise ValueError("its arrays do not match each other")
            kinds = (points.dtype.kind, weights.dtype.kind, found.dtype.kind)
            if kinds != ("f", "f", "i") or not (np.isfinite(weights).all() and (weights >= 0).all()):
                raise ValueError(
                    "weights must be finite and at least 0, points floating-point and indices integers"
                )
        return cls(points, weights, found)


def lightweight_coreset(
    X: Rows,
    n_samples: int,
    *,
    sample_weight: Weights = None,
    metric: Metric = "euclidean",
    random_state: RandomState = None,
    n_jobs: int | None = None,
    progress: bool = False,
    callbacks: Callbacks = None,
) -> Coreset:
    """Draw a lightweight coreset: weighted rows that represent all rows.

    Takes two passes. Choose it to cluster a file that is too large for many passes. For any centers, the
    expected weighted sum of squared distances on the coreset equals the sum on all rows. A small coreset may
    miss clusters of few rows near the mean of all data.

    Parameters
    ----------
    X : rows of shape (n_samples_in, n_features)
        Any input of :meth:`shoal.KMeans.fit`.
    n_samples : int
        Rows in the coreset, at least 1. If X has no more rows than this, the coreset is all rows, each with
        its own weight.
    sample_weight : array-like, float or None
        Weight of every row of X, finite, at least 0, not all 0. None: 1.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"``: a coreset of the rows scaled to length 1. The points are these scaled rows, so that
        a fit to the coreset needs no other input. A warning counts rows of zeros, which are not scaled.
    random_state : int, RandomState, Generator or None
        An int makes the draw repeatable.
    n_jobs : int or None
        Number of threads, as for :class:`shoal.KMeans`. The draw does not depend on it.
    progress : bool, default=False
        Whether to show a progress line on stderr.
    callbacks : iterable of callables, optional
        Called as ``callback(None, step)`` after each part of a pass; see :mod:`shoal.callbacks`.
        ``Checkpoint``, ``ValidationCurve`` and ``EarlyStopping`` need a fit and do not work here. `step`
        counts rows and has no objective (NaN). A true result ends the call with a `RuntimeError`.

    Returns
    -------
    Coreset
        Points in the order of X. A row that was drawn several times appears several times.

    Raises
    ------
    ValueError
        If a parameter, shape or value is invalid.
    TypeError
        If values are not numbers.
    RuntimeError
        If a callback ended the call.

    See Also
    --------
    StreamingCoreset : For rows that can be read only once.

    Notes
    -----
    Rows are drawn independently with probability ``q = w / (2 W) + w d2 / (2 S)``, where ``d2`` is the
    squared distance to the mean, and ``W`` and ``S`` are the sums of ``w`` and ``w d2``. A drawn row gets the
    weight ``w / (n_samples q)``, which is at most ``2 W / n_samples``.

    References
    ----------
    O. Bachem, M. Lucic and A. Krause, "Scalable k-means clustering via lightweight coresets", KDD 2018.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> X = np.random.default_rng(0).normal(size=(10_000, 3))
    >>> coreset = shoal.lightweight_coreset(X, 100, random_state=0)
    >>> coreset.points.shape, bool(coreset.weights.max() <= 200)
    ((100, 3), True)
    """
    problems, found = _params.Problems(), list[Any]()
    problems.check(lambda: found.append(_params.whole("n_samples", n_samples, 1)))
    problems.check(lambda: found.append(_params.threads(n_jobs)))
    problems.check(_params.one_of, "metric", metric, METRICS)
    _params.check_callbacks(problems, callbacks)
    problems.refuse()
    refuse_once(X, "lightweight_coreset")
    source = as_source(X)
    weights = _params.weights(sample_weight, source.shape[0])
    with SeenBy(source, metric) as seen, watched("lightweight_coreset", None, progress, callbacks) as tell:
        run = _core.LightweightCoreset(seen, found[0], _params.seed(random_state), weights, found[1])
        while (rows := run.step()) is not None:
            if tell(rows):
                raise RuntimeError("a callback ended lightweight_coreset before the coreset was complete")
    return coreset_of(run.result(), source.shape[1])


def _csr(parts: Any, shape: tuple[int, int]) -> Any:
    from scipy.sparse import csr_array

    return csr_array(parts, shape=shape)


def coreset_of(parts: Parts, cols: int) -> Coreset:
    points, weights, indices = parts
    if isinstance(points, tuple):
        points = _csr(points, (len(weights), cols))
    return Coreset(points, weights, indices)
