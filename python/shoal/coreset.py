"""Few rows with weights that stand for many, as functions and classes of their own."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from . import _core, _params
from ._base import as_source
from ._blocks import refuse_once
from ._core import Step
from ._files import check_place, whole
from ._warn import warn
from .callbacks import Callback, Checkpoint, ProgressBar, ValidationCurve
from .data import DataSource

__all__ = ["Coreset", "StreamingCoreset", "lightweight_coreset"]

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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the coreset to an ``.npz`` file, which appears whole or not at all.

        The arrays are `points`, `weights` and `indices`. In place of `points`, sparse rows are `points_data`,
        `points_indices`, `points_indptr` and `points_shape`.

        Parameters
        ----------
        path : str or os.PathLike
            The file; one that exists is replaced.

        Raises
        ------
        OSError
            When the file cannot be written.
        """
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
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a coreset that :meth:`save` wrote; no code is run by it.

        Parameters
        ----------
        path : str or os.PathLike
            The file.

        Returns
        -------
        Coreset

        Raises
        ------
        OSError
            When the file cannot be read.
        ValueError
            When it is damaged, or holds no coreset.
        """
        import zipfile

        name = os.fsdecode(path)
        try:
            with np.load(name, allow_pickle=False) as file:
                arrays = {member: file[member] for member in file.files}
            if "points" in arrays:
                points: Any = arrays["points"]
            else:
                data, indices, indptr = (arrays[f"points_{part}"] for part in ("data", "indices", "indptr"))
                rows, cols = (int(side) for side in arrays["points_shape"])
                points = _csr((data, indices, indptr), (rows, cols))
            weights, found = arrays["weights"], arrays["indices"]
            if not (points.ndim == 2 and weights.shape == found.shape == (points.shape[0],)):
                raise ValueError("its arrays do not fit together")
        except OSError:
            raise
        except (ValueError, TypeError, AttributeError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{name}: holds no coreset as shoal writes it: {error}") from error
        return cls(points, weights, found)


def lightweight_coreset(
    X: Any,
    n_samples: int,
    *,
    sample_weight: Any = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    progress: bool = False,
    callbacks: Any = None,
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
        Threads; None: all that the process may use. The draw does not depend on it.
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
    with _watched("lightweight_coreset", None, progress, callbacks) as tell:
        while (rows := run.step()) is not None:
            if tell(rows):
                raise RuntimeError("a callback ended lightweight_coreset before there was a coreset")
    return _coreset(run.result(), source.shape[1])


class StreamingCoreset(BaseEstimator):
    """A coreset of a stream, made in one pass and in bounded memory.

    Rows are put together and reduced again and again (merge and reduce), so that at any time there is a
    coreset of all rows so far. Those of several machines can be merged.

    Choose it for rows that can be read once, or that come by and by; for rows that can be read twice
    :func:`lightweight_coreset` errs less at the same size.

    Parameters
    ----------
    n_samples : int
        Rows of the coreset. At most ``n_samples * (2 + log2(n / n_samples))`` rows are kept between two
        batches, and a few times `n_samples` more while one is taken in.
    random_state : int, RandomState, Generator or None, default=None
        An int makes the draws repeatable. Coresets that are to be merged should have different ones.
    n_jobs : int or None
        Threads; None: all that the process may use. The coreset does not depend on it.
    progress : bool, default=False
        Whether :meth:`partial_fit` shows a line on stderr.
    callbacks : iterable of callables, optional
        Called as ``callback(self, step)`` after each batch, those that streams and files are cut into too;
        see :mod:`shoal.callbacks`, but for ``Checkpoint``, ``ValidationCurve`` and ``EarlyStopping``, which
        need a fit. `step` counts rows; there is no objective (NaN). A true result ends the
        :meth:`partial_fit` that it comes from.

    Attributes
    ----------
    n_features_in_ : int
        Columns of a row.
    n_rows_ : int
        Rows so far.
    n_kept_ : int
        Rows that are kept now.

    References
    ----------
    J. L. Bentley and J. B. Saxe, "Decomposable searching problems", Journal of Algorithms 1 (1980). S.
    Har-Peled and S. Mazumdar, "On coresets for k-means and k-median clustering", STOC 2004.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> rng = np.random.default_rng(0)
    >>> stream = shoal.StreamingCoreset(200, random_state=0)
    >>> for _ in range(50):
    ...     stream = stream.partial_fit(rng.normal(size=(1000, 3)))
    >>> coreset = stream.result()
    >>> coreset.points.shape, bool(abs(coreset.weights.sum() / 50_000 - 1) < 0.5)
    ((200, 3), True)
    """

    def __init__(
        self,
        n_samples: int = 1000,
        *,
        random_state: Any = None,
        n_jobs: int | None = None,
        progress: bool = False,
        callbacks: Any = None,
    ) -> None:
        self.n_samples = n_samples
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.progress = progress
        self.callbacks = callbacks

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Take rows in; a batch that is refused leaves everything as it was.

        Into which batches rows are cut does not matter.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`shoal.KMeans.fit`; later batches are computed in the type of the first. Of a stream,
            an iterator too, each block is a batch; a file or a memory map without weights is cut into batches
            of about 64 MB.
        y : ignored
        sample_weight : array-like of shape (n_samples,), float or None
            Weight of every row, finite, at least 0, not all 0. None: 1, as it must be for a stream.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError, OSError
            For parameters, shapes or values that are refused.
        """
        size, threads = self._checked()
        rows = X if isinstance(X, DataSource) else None
        if rows is None and (_is_stream(X) or isinstance(X, np.memmap)):
            from .data import open as open_rows

            rows = open_rows(X)
        with _watched("StreamingCoreset", self, self.progress, self.callbacks) as tell:
            lies = rows is None or rows.access == "random"
            if rows is None or (lies and sample_weight is not None):
                self._take(X, sample_weight, size, threads, tell)
                return self
            if sample_weight is not None:
                raise ValueError(
                    "sample_weight does not go with a stream here: call partial_fit with each of its blocks, "
                    "and the weights of that block"
                )
            first = 0
            with nullcontext(_parts(rows)) if lies else rows._ahead() as blocks:
                for block in blocks:
                    try:
                        ended = self._take(block, None, size, threads, tell)
                    except ValueError as error:
                        # It counts the rows of the block.
                        raise ValueError(f"block of X from row {first} on: {error}") from error
                    if ended:
                        break
                    first += len(block)
        return self

    def _take(
        self, X: Any, sample_weight: Any, size: int, threads: int | None, tell: Callable[[int], bool]
    ) -> bool:
        """Take a batch in; whether that is to be the last one."""
        source = as_source(X)
        weights = _params.weights(sample_weight, source.shape[0])
        state = self.__dict__.get("_state")
        if state is None:
            state = self._begun_with(size, source.compute)
        elif source.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {source.shape[1]} features, but StreamingCoreset is expecting {self.n_features_in_} "
                "features as input."
            )
        before = state.size[0]
        state.partial_fit(source, weights, threads)
        self._know(state, size)
        return tell(state.size[0] - before)

    def _begun_with(self, size: int, compute: str) -> _core.StreamingCoreset:
        """Make the state of no rows yet."""
        self._seed = _params.seed(self.random_state)
        return _core.StreamingCoreset(size, self._seed, compute)

    def _know(self, state: Any, size: int) -> None:
        self._state, self._size = state, size
        self.n_rows_, self.n_kept_, self.n_features_in_ = state.size

    def merge(self, other: StreamingCoreset) -> Self:
        """Take over the rows of another one, as if they had come after those of this one.

        Parameters
        ----------
        other : StreamingCoreset
            With the same `n_samples`, of rows with the same number of columns and computed in the same type,
            and with another `random_state`: a warning says so where it is the same. It stays as it is. Its
            `indices` count on from the rows of this one.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For one that does not fit; this one is as it was then.

        Examples
        --------
        >>> import numpy as np, shoal
        >>> X = np.random.default_rng(0).normal(size=(10_000, 2))
        >>> here = shoal.StreamingCoreset(100, random_state=0).partial_fit(X[:5000])
        >>> there = shoal.StreamingCoreset(100, random_state=1).partial_fit(X[5000:])
        >>> here.merge(there).n_rows_
        10000
        """
        if not isinstance(other, StreamingCoreset):
            raise TypeError(f"other must be a StreamingCoreset, got {type(other).__name__}")
        if other is self:
            raise ValueError("a coreset cannot be merged with itself: its rows would count twice")
        size, threads = self._checked()
        theirs = other.__dict__.get("_state")
        if theirs is None:
            return self
        mine = self.__dict__.get("_state")
        if mine is None:
            mine = self._begun_with(size, theirs.compute)
        mine.merge(theirs, threads)
        self._know(mine, size)
        if self._seed == other._seed:
            warn(
                "both coresets were drawn with one random_state: their errors are alike, not independent",
                UserWarning,
            )
        return self

    def result(self) -> Coreset:
        """Give the coreset of all rows so far; more can come afterwards.

        Returns
        -------
        Coreset
            `n_samples` rows, or all of them with their own weights while there are no more.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before the first row.
        """
        self._begun()
        return _coreset(self._state.result(_params.threads(self.n_jobs)), self.n_features_in_)

    def _begun(self) -> None:
        """Refuse to go on before the first row."""
        if "_state" not in self.__dict__:
            raise NotFittedError("this StreamingCoreset has no rows yet: call partial_fit")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what is kept to a file that :func:`shoal.load` reads, to go on elsewhere.

        Parameters
        ----------
        path : str or os.PathLike
            One safetensors file, which appears whole or not at all.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before the first row.
        OSError
            When the file cannot be written.
        """
        self._begun()
        kind, arrays, meta = self._state.state()
        _core.save_model(os.fsdecode(path), kind, arrays, {**meta, "compute": self._state.compute})

    @classmethod
    def _restored(cls, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, str]) -> Self:
        """Make one of what a file holds."""
        import json

        state = _core.StreamingCoreset.of_state(meta.get("compute", "float64"), KIND, arrays, meta)
        numbers = json.loads(meta["state"])
        size = int(numbers["n_samples"])
        made = cls(size)
        made._seed = int(numbers["seed"])
        made._know(state, size)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Give plain values and arrays."""
        state = dict(super().__getstate__())
        kept = state.pop("_state", None)
        if kept is not None:
            state["_kept"] = (kept.compute, *kept.state())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take them back."""
        kept = state.pop("_kept", None)
        super().__setstate__(state)
        if kept is not None:
            self._state = _core.StreamingCoreset.of_state(*kept)

    def _checked(self) -> tuple[int, int | None]:
        """Check the parameters: rows of the coreset, threads."""
        problems, found = _params.Problems(), list[Any]()
        problems.check(lambda: found.append(_params.whole("n_samples", self.n_samples, 1)))
        problems.check(lambda: found.append(_params.threads(self.n_jobs)))
        _params.check_callbacks(problems, self.callbacks)
        problems.refuse()
        known = self.__dict__.get("_size")
        if known not in (None, found[0]):
            raise ValueError(
                f"n_samples={found[0]} differs from the n_samples={known} that rows were kept by: clone "
                "this and begin anew"
            )
        return found[0], found[1]


#: About so many bytes of a file or a memory map are a batch.
STEP_BYTES = 1 << 26
#: What files of a coreset that goes on say that they are.
KIND = "streaming-coreset"


def _is_stream(X: Any) -> bool:
    """Whether X is opened rather than taken as an array: a path, an iterator or the like."""
    return isinstance(X, (str, os.PathLike)) or hasattr(X, "__next__") or callable(X)


def _csr(parts: Any, shape: tuple[int, int]) -> Any:
    from scipy.sparse import csr_array

    return csr_array(parts, shape=shape)


def _coreset(parts: Parts, cols: int) -> Coreset:
    points, weights, indices = parts
    if isinstance(points, tuple):
        points = _csr(points, (len(weights), cols))
    return Coreset(points, weights, indices)


def _watchers(callbacks: Any) -> list[Any]:
    """List callbacks, if they are ones that can watch a coreset being made."""
    given = [] if callbacks is None else list(callbacks)
    for callback in given:
        if not callable(callback):
            raise _params.ParameterError(f"callbacks must be callables, got {_params.shown(callback)}")
        if isinstance(callback, (Checkpoint, ValidationCurve)):
            raise _params.ParameterError(
                f"callbacks: {type(callback).__name__} does not go with a coreset, which has neither a fit "
                "that is kept nor centers that are judged"
            )
    return given


def _parts(rows: DataSource) -> Iterator[DataSource]:
    """Cut rows that lie somewhere into stretches."""
    n, d = len(rows), rows.shape[1]
    step = max(1, STEP_BYTES // max(1, (rows.nbytes or 8 * n * d) // max(1, n)))
    return (rows.slice(first, min(n, first + step)) for first in range(0, n, step))


@contextmanager
def _watched(label: str, who: Any, progress: Any, callbacks: Any) -> Iterator[Callable[[int], bool]]:
    """Tell those who watch of each number of rows that was worked on; whether one of them wants an end."""
    watchers = ([ProgressBar(label)] if progress else []) + _watchers(callbacks)
    begun, steps, seen = time.monotonic(), 0, 0

    def tell(rows: int) -> bool:
        nonlocal steps, seen
        steps, seen = steps + 1, seen + rows
        step = Step(
            iteration=steps,
            rows_seen=seen,
            batch_size=rows,
            objective=math.nan,
            center_shift=0.0,
            n_changed=0,
            n_distances=0,
            elapsed=time.monotonic() - begun,
            stop_reason=None,
        )
        wishes = [watcher(who, step) for watcher in watchers]
        return any(wishes)

    told: list[Callback] = [watcher for watcher in watchers if isinstance(watcher, Callback)]
    try:
        for watcher in told:
            watcher.begin(who)
        yield tell
    finally:
        for watcher in told:
            watcher.end(who)
