"""Few rows with weights that stand for a stream."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from . import _core
from ._common import params as _params
from ._common.outputs import MODELS, check_suffix
from ._common.warn import warn
from ._fit.cloning import cloned
from ._fit.saved import Claims, need
from ._fit.watch import watched
from ._rows.checked import checked_rows, source_of
from ._rows.source import DataSource
from .coreset import Coreset, coreset_of
from .typing import Callbacks, PathName, RandomState, Rows, Weights

__all__ = ["StreamingCoreset"]

#: About so many bytes of a file or a memory map are a batch.
STEP_BYTES = 1 << 26
#: What files of a coreset that goes on say that they are.
KIND = "streaming-coreset"


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
        Threads; None: as many as for :class:`shoal.KMeans`. The coreset does not depend on it.
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
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, when X has any that are strings.
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
        random_state: RandomState = None,
        n_jobs: int | None = None,
        progress: bool = False,
        callbacks: Callbacks = None,
    ) -> None:
        self.n_samples = n_samples
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.progress = progress
        self.callbacks = callbacks

    def partial_fit(self, X: Rows, y: Any = None, sample_weight: Weights = None) -> Self:
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
        if isinstance(X, np.memmap):
            from .data import open as open_rows

            X = open_rows(X)
        try:
            self._take_all(X, sample_weight, size, threads)
        except BaseException:
            if "_state" not in self.__dict__:
                for noted in ("n_features_in_", "feature_names_in_"):
                    self.__dict__.pop(noted, None)
            raise
        return self

    def _take_all(self, X: Rows, sample_weight: Weights, size: int, threads: int | None) -> None:
        """Take rows in, in batches where they are no array."""
        given = checked_rows(self, X, reset="_state" not in self.__dict__)
        rows = given if isinstance(given, DataSource) else None
        with watched("StreamingCoreset", self, self.progress, self.callbacks) as tell:
            lies = rows is None or rows.access == "random"
            if rows is None or (lies and sample_weight is not None):
                self._take(given, sample_weight, size, threads, tell)
                return
            if sample_weight is not None:
                raise ValueError(
                    "sample_weight does not go with a stream here: call partial_fit with each of its blocks, "
                    "and the weights of that block"
                )
            first = 0
            with nullcontext(_parts(rows)) if lies else rows._prefetched() as blocks:
                for block in blocks:
                    try:
                        ended = self._take(block, None, size, threads, tell)
                    except ValueError as error:
                        # It counts the rows of the block.
                        raise ValueError(f"block of X from row {first} on: {error}") from error
                    if ended:
                        break
                    first += len(block)

    def _take(
        self,
        rows: Any,
        sample_weight: Weights,
        size: int,
        threads: int | None,
        tell: Callable[[int], bool],
    ) -> bool:
        """Take a batch in, whose features were checked; whether that is to be the last one."""
        source = source_of(rows)
        weights = _params.weights(sample_weight, source.shape[0])
        state = self.__dict__.get("_state")
        if state is None:
            state = self._begun_with(size, source.compute)
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
        own, names = (getattr(each, "feature_names_in_", None) for each in (self, other))
        if own is not None and names is not None and own.tolist() != names.tolist():
            raise ValueError(
                f"the other coreset is of the features {names.tolist()}, this one of {own.tolist()}"
            )
        begun = mine is not None
        if mine is None:
            mine = self._begun_with(size, theirs.compute)
        mine.merge(theirs, threads)
        self._know(mine, size)
        if names is not None and not begun:
            self.feature_names_in_ = names
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
        return coreset_of(self._state.result(_params.threads(self.n_jobs, tell=False)), self.n_features_in_)

    def _begun(self) -> None:
        """Refuse to go on before the first row."""
        if "_state" not in self.__dict__:
            raise NotFittedError("this StreamingCoreset has no rows yet: call partial_fit")

    def save(self, path: PathName) -> None:
        """Write what is kept to a file that :func:`shoal.load` reads, to go on elsewhere.

        Parameters
        ----------
        path : str, bytes or os.PathLike
            One safetensors file, which appears whole or not at all.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before the first row.
        ValueError
            For a suffix of another known format, such as ``.npy``.
        OSError
            When the file cannot be written.
        """
        self._begun()
        check_suffix("path", path, MODELS)
        kind, arrays, meta = self._state.state()
        names = getattr(self, "feature_names_in_", None)
        about = {"feature_names": None if names is None else names.tolist()}
        texts = {"compute": self._state.compute, "features": json.dumps(about)}
        _core.save_model(os.fsdecode(path), kind, arrays, {**meta, **texts})

    @classmethod
    def _restored(cls, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, str]) -> Self:
        """Make one of what a file holds."""
        state = _core.StreamingCoreset.of_state(meta.get("compute", "float64"), KIND, arrays, meta)
        numbers = json.loads(meta["state"])
        size = int(numbers["n_samples"])
        made = cls(size)
        made._seed = int(numbers["seed"])
        made._know(state, size)
        names = Claims.read({"features": "{}", **meta}, "features").texts("feature_names", optional=True)
        if names is not None:
            need(len(names) == made.n_features_in_, f"it has names for {len(names)} columns")
            made.feature_names_in_ = np.array(names, dtype=object)
        return made

    def __sklearn_clone__(self) -> Self:
        """Make one without rows and with the same parameters; callbacks are copied where they can be."""
        return cloned(self)

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

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Show the parameters, and how many rows came and are kept."""
        parameters: str = super().__repr__(N_CHAR_MAX)
        if "_state" not in self.__dict__:
            return parameters
        return f"{parameters} <n={self.n_rows_}, kept={self.n_kept_}>"

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


def _parts(rows: DataSource) -> Iterator[DataSource]:
    """Cut rows that lie somewhere into stretches."""
    n, d = len(rows), rows.shape[1]
    step = max(1, STEP_BYTES // max(1, (rows.nbytes or 8 * n * d) // max(1, n)))
    return (rows.slice(first, min(n, first + step)) for first in range(0, n, step))
