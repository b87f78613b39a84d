"""Few rows with weights that stand for many, drawn in two passes."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from . import _core
from ._common import params as _params
from ._common.files import check_place, whole
from ._common.outputs import BUNDLES, check_suffix
from ._fit.watch import watched
from ._rows.checked import as_source
from ._rows.sparse import csr_of
from ._rows.streams import refuse_once
from .typing import Callbacks, PathName, RandomState, Rows, Weights

__all__ = ["Coreset", "lightweight_coreset"]

#: What the compiled half gives of a coreset: sparse points are values, columns and beginnings.
Parts = tuple[Any, npt.NDArray[np.float64], npt.NDArray[np.int64]]


class Coreset(NamedTuple):
    """Rows with weights that stand for many more: centers cost on them about what they cost on all rows.

    Every estimator that takes weights can be fitted to it: ``KMeans(50).fit(c.points,
    sample_weight=c.weights)``.

    Attributes
    ----------
    points : ndarray or scipy.sparse.csr_array of shape (m, n_features), float32 or float64
        The rows, in the type that they are computed in; sparse where the source is.
    weights : ndarray of shape (m,), float64
        What each of them stands for; their sum is about the weight of all rows.
    indices : ndarray of shape (m,), int64
        Where they come from: ``X[indices]``. Rows that were drawn more than once come as often.

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
        n, d = self.points.shape
        kind = "sparse " if hasattr(self.points, "indptr") else ""
        return f"<Coreset: {n} x {d} {kind}{self.points.dtype}, total weight {self.weights.sum():.6g}>"

    def save(self, path: PathName) -> None:
        """Write the coreset to an ``.npz`` file, which appears whole or not at all.

        The arrays are `points`, `weights` and `indices`. In place of `points`, sparse rows are `points_data`,
        `points_indices`, `points_indptr` and `points_shape`.

        Parameters
        ----------
        path : str, bytes or os.PathLike
            The file; one that exists is replaced.

        Raises
        ------
        ValueError
            For a path that does not end in ``.npz``.
        OSError
            When the file cannot be written.
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
        """Read a coreset that :meth:`save` wrote; no code is run by it.

        Parameters
        ----------
        path : str, bytes or os.PathLike
            The file.

        Returns
        -------
        Coreset

        Raises
        ------
        OSError
            When the file cannot be read.
        ValueError
            When it is damaged, holds no coreset, or would take more memory than :func:`shoal.open` allows
            (`chunk_limit` there; ``SHOAL_CHUNK_LIMIT`` in the environment).
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
                raise ValueError("its arrays do not fit together")
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
    random_state: RandomState = None,
    n_jobs: int | None = None,
    progress: bool = False,
    callbacks: Callbacks = None,
) -> Coreset:
    """Draw a lightweight coreset: rows with weights that stand for all rows, in two passes.

    Choose it to cluster a file that is too large to be passed over many times. For any centers the
    weighted sum of squared distances on the coreset is, in expectation, that of all rows. Clusters of few
    rows near the mean of all data may be missed: they need a larger coreset.

    Parameters
    ----------
    X : rows of shape (n_samples_in, n_features)
        Anything that :meth:`shoal.KMeans.fit` takes.
    n_samples : int
        Rows of the coreset, at least 1. Where X has no more rows, the coreset is all of them, each with its
        own weight.
    sample_weight : array-like, float or None
        Weight of every row of X, finite, at least 0, not all 0. None: 1.
    random_state : int, RandomState, Generator or None
        An int makes the draw repeatable.
    n_jobs : int or None
        Threads; None: as many as for :class:`shoal.KMeans`. The draw does not depend on it.
    progress : bool, default=False
        Whether to show a line on stderr that says how far it is.
    callbacks : iterable of callables, optional
        Called as ``callback(None, step)`` after each part of a pass; see :mod:`shoal.callbacks`, but for
        ``Checkpoint``, ``ValidationCurve`` and ``EarlyStopping``, which need a fit. `step` counts rows; there
        is no objective (NaN). A true result ends the work, by a `RuntimeError`.

    Returns
    -------
    Coreset
        Rows in the order of X, those that were drawn more than once as often.

    Raises
    ------
    ValueError
        For parameters, shapes or values that are refused.
    TypeError
        For values that are no numbers.
    RuntimeError
        When a callback ended the work.

    See Also
    --------
    StreamingCoreset : For rows that can be read once.

    Notes
    -----
    Rows are drawn independently with odds ``q = w / (2 W) + w d2 / (2 S)``, where ``d2`` is the squared
    distance to the mean, and ``W`` and ``S`` are the sums of ``w`` and ``w d2``. A row that is drawn
    stands for ``w / (n_samples q)``, which is at most ``2 W / n_samples``.

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
    _params.check_callbacks(problems, callbacks)
    problems.refuse()
    refuse_once(X, "lightweight_coreset")
    source = as_source(X)
    weights = _params.weights(sample_weight, source.shape[0])
    run = _core.LightweightCoreset(source, found[0], _params.seed(random_state), weights, found[1])
    with watched("lightweight_coreset", None, progress, callbacks) as tell:
        while (rows := run.step()) is not None:
            if tell(rows):
                raise RuntimeError("a callback ended lightweight_coreset before there was a coreset")
    return coreset_of(run.result(), source.shape[1])


def _csr(parts: Any, shape: tuple[int, int]) -> Any:
    from scipy.sparse import csr_array

    return csr_array(parts, shape=shape)


def coreset_of(parts: Parts, cols: int) -> Coreset:
    points, weights, indices = parts
    if isinstance(points, tuple):
        points = _csr(points, (len(weights), cols))
    return Coreset(points, weights, indices)
