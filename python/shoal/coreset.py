"""Coresets: weighted rows that represent all rows, drawn in a few passes or built from a stream."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import KW_ONLY
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import NotFittedError

from . import _core
from ._checks import params as _params
from ._checks.warn import warn
from ._docs import documented
from ._files.outputs import MODELS, check_suffix
from ._fit.bases import BaseEstimator
from ._fit.cloning import clone_estimator
from ._fit.declared import estimator
from ._fit.saved import Arrays, Claims, Texts, need
from ._fit.watch import watched
from ._rows.checked import (
    as_weighted,
    checked_rows,
    learn_blocks,
    own_weights,
    refuse_weights_of_stream,
    weighted,
)
from ._rows.coreset import Coreset, csr
from ._rows.features import names_of
from ._rows.source import DataSource
from ._rows.streams import refuse_once
from ._rows.zeros import SeenBy, warn_of_zeros
from .typing import Callbacks, Metric, PathName, RandomState, Rows, Weights

__all__ = ["Coreset", "StreamingCoreset", "lightweight_coreset"]

#: Points, weights and indices from the compiled code; sparse points are the three arrays of a CSR matrix.
Parts = tuple[Any, npt.NDArray[np.float64], npt.NDArray[np.int64]]
#: Approximate size of a batch of a file or a memory map, in bytes.
STEP_BYTES = 1 << 26
#: The kind of file that holds an unfinished coreset.
KIND = "streaming-coreset"


@documented
def lightweight_coreset(
    X: Rows,
    n_samples: int,
    *,
    n_clusters: int | None = None,
    sample_weight: Weights = None,
    metric: Metric = "euclidean",
    random_state: RandomState = None,
    n_jobs: int | None = None,
    progress: bool | int = False,
    callbacks: Callbacks = None,
) -> Coreset:
    """Draw a coreset: weighted rows that represent all rows.

    Choose it for data that is too large for many passes: it takes two, or four with `n_clusters`. For any
    centers, the expected weighted sum of squared distances on the coreset equals the sum on all rows. Without
    `n_clusters`, a small coreset may miss clusters of few rows.

    Parameters
    ----------
    X : rows of shape (n_samples_in, n_features)
        Any input of :meth:`shoal.KMeans.fit`.
    n_samples : int
        Rows in the coreset, at least 1. If X has no more rows than this, the coreset is all rows, each with
        its own weight.
    n_clusters : int or None, default=None
        Number of clusters of the fits to come, at least 1. With a number, rows are drawn by their distances
        to a rough solution with about as many clusters, so that rare groups are not lost. None: by their
        distances to the mean of all rows (a lightweight coreset).
    sample_weight : array-like, float or None
        Weight of every row of X, finite, at least 0, not all 0. None: 1.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"``: a coreset of the rows scaled to length 1. The points are these scaled rows, so that
        a fit to the coreset needs no other input. A warning counts rows of zeros, which are not scaled.
    {seed} {threads}
    progress : bool or int, default=False
        Whether to show a progress bar on stderr, as `verbose` of estimators.
    callbacks : iterable of callables, optional
        Called as ``callback(None, step)`` after each part of a pass; see :mod:`shoal.callbacks`.
        ``Checkpoint``, ``ValidationCurve`` and ``EarlyStopping`` need a fit and do not work here. `step`
        counts rows and has no objective (NaN). A true result ends the call with a `RuntimeError`. With
        `n_clusters`, they are called once, when the coreset is complete, and their results are ignored;
        meanwhile :meth:`Callback.working <shoal.callbacks.Callback.working>` is called.

    Returns
    -------
    Coreset
        Points in the order of X. A row that is drawn twice appears twice.

    Raises
    ------
    {invalid}
    RuntimeError
        If a callback ended the call.

    See Also
    --------
    StreamingCoreset : For rows that can be read only once.

    Notes
    -----
    Without `n_clusters`, rows are drawn with replacement, each with probability ``q = w / (2 W) + w d2 / (2
    S)``, where ``d2`` is the squared distance to the mean, and ``W`` and ``S`` are the sums of ``w`` and ``w
    d2``. A drawn row gets the weight ``w / (n_samples q)``, which is at most ``2 W / n_samples``.

    With `n_clusters`, the candidates of three rounds of k-means|| are the rough solution: about ``1.5
    n_clusters`` of the rows, to which ``c`` non-empty clusters of weight ``W_b`` belong. Then ``q = w / (3 W)
    + w d2 / (3 S) + w / (3 c W_b)``, where ``d2`` is the squared distance to the nearest candidate. It takes
    ``1.5 n_clusters`` distances and 16 bytes per row. If a few outliers hold most of the squared distances,
    up to eight more rounds follow, with a pass each. More than 67,108,864 rows are drawn from in parts of
    1 GiB of consecutive rows, at least one row from each, so that the 16 bytes per row take at most 1 GiB.
    The parts of a stream are copied, and read in a single pass.

    References
    ----------
    O. Bachem, M. Lucic and A. Krause, "Scalable k-means clustering via lightweight coresets", KDD 2018.

    D. Feldman and M. Langberg, "A unified framework for approximating and clustering data", STOC 2011.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> X = np.random.default_rng(0).normal(size=(10_000, 3))
    >>> coreset = shoal.lightweight_coreset(X, 100, random_state=0)
    >>> coreset.points.shape, bool(coreset.weights.max() <= 200)
    ((100, 3), True)
    """
    problems = _params.Problems()
    size = problems.check(_params.whole, "n_samples", n_samples, 1)
    threads = problems.check(_params.threads, n_jobs)
    if n_clusters is not None:
        problems.check(_params.whole, "n_clusters", n_clusters, 1, other="None or ")
    problems.check(_params.one_of, "metric", metric, Metric)
    problems.check(_params.verbosity, progress, "progress")
    _params.check_callbacks(problems, callbacks)
    problems.refuse()
    refuse_once(X, "lightweight_coreset")
    source, weights = as_weighted(X, sample_weight)
    n = source.shape[0]
    passes = 2 if n_clusters is None else 4
    counted = ("row", None if n is None else passes * n)
    single = n_clusters is not None
    watching = watched("lightweight_coreset", None, progress, callbacks, counted=counted, single=single)
    with SeenBy(source, metric) as seen, watching as tell:
        if n_clusters is not None:
            seed = _params.seed(random_state)
            drawn = _core.sensitivity_coreset(seen, size, int(n_clusters), seed, weights, threads)
            # The coreset is complete, whatever a callback answers.
            tell(0 if n is None else passes * n)
            return coreset_of(drawn, source.shape[1])
        run = _core.LightweightCoreset(seen, size, _params.seed(random_state), weights, threads)
        while (rows := run.step()) is not None:
            if tell(rows):
                raise RuntimeError("a callback ended lightweight_coreset before the coreset was complete")
    return coreset_of(run.result(), source.shape[1])


def coreset_of(parts: Parts, cols: int) -> Coreset:
    points, weights, indices = parts
    if isinstance(points, tuple):
        points = csr(points, (len(weights), cols))
    return Coreset(points, weights, indices)


@estimator
class StreamingCoreset(BaseEstimator):
    """A coreset of a stream, built in one pass and in bounded memory.

    Rows are merged and reduced repeatedly, so that there is a coreset of all rows so far at any time.
    Coresets of several machines can be merged.

    Choose it for rows that can be read only once, or that arrive over time. For rows that can be read twice,
    :func:`lightweight_coreset` has a smaller error at the same size.

    Parameters
    ----------
    n_samples : int, default=1000
        Rows in the coreset. At most ``n_samples * (2 + log2(n / n_samples))`` rows are kept between two
        batches, and a few times `n_samples` more while a batch is absorbed.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"``: a coreset of the rows scaled to length 1, whose points are these scaled rows. Each
        :meth:`partial_fit` warns of rows of zeros, which are not scaled.
    random_state : int, RandomState, Generator or None, default=None
        An int makes the draws repeatable. Use different values for coresets that will be merged.
    {threads}
    progress : bool, default=False
        Whether :meth:`partial_fit` shows a progress line on stderr.
    callbacks : iterable of callables, optional
        Called as ``callback(self, step)`` after each batch, including the batches into which streams and
        files are cut; see :mod:`shoal.callbacks`. ``Checkpoint``, ``ValidationCurve`` and ``EarlyStopping``
        need a fit and do not work here. `step` counts rows and has no objective (NaN). A true result ends the
        current :meth:`partial_fit`.

    Attributes
    ----------
    {features_in}
    n_rows_ : int
        Rows so far.
    n_kept_ : int
        Rows that are currently kept.
    n_zero_rows_ : int
        Rows of zeros so far; 0 with ``metric="euclidean"``.

    See Also
    --------
    lightweight_coreset : For rows that can be read twice.
    MiniBatchKMeans : Cluster a stream directly.

    References
    ----------
    J. L. Bentley and J. B. Saxe, "Decomposable searching problems", Journal of Algorithms 1 (1980).

    S. Har-Peled and S. Mazumdar, "On coresets for k-means and k-median clustering", STOC 2004.

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

    n_samples: int = 1000
    _: KW_ONLY
    metric: Metric = "euclidean"
    random_state: RandomState = None
    n_jobs: int | None = None
    progress: bool = False
    callbacks: Callbacks = None

    def partial_fit(self, X: Rows, y: Any = None, sample_weight: Weights = None) -> Self:
        """Add rows to the coreset.

        The result does not depend on how the rows are cut into batches. A batch that raises an error changes
        nothing.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`shoal.KMeans.fit`, and also an iterator. Later batches are computed in the type of
            the first. Each block of a stream is a batch. A file or a memory map without weights is cut into
            batches of about 64 MB.
        y : ignored
            Present for scikit-learn compatibility.
        sample_weight : array-like of shape (n_samples,), float or None
            Weight of every row, finite, at least 0, not all 0. None: 1. Must be None for a stream.

        Returns
        -------
        self
            The coreset.

        Raises
        ------
        ValueError, TypeError, OSError
            If a parameter, shape or value is invalid, or a file cannot be read.
        """
        size, threads = self._checked()
        if isinstance(X, np.memmap):
            from .data import open as open_rows

            X = open_rows(X)
        before = self.__dict__.get("n_zero_rows_", 0)
        try:
            self._take_all(X, sample_weight, size, threads)
        except BaseException:
            if "_state" not in self.__dict__:
                for noted in ("n_features_in_", "feature_names_in_"):
                    self.__dict__.pop(noted, None)
            raise
        warn_of_zeros(self.n_zero_rows_ - before)
        return self

    def _take_all(self, X: Rows, sample_weight: Weights, size: int, threads: int | None) -> None:
        """Absorb X, in batches unless it is an array."""
        given = checked_rows(self, X, reset="_state" not in self.__dict__)
        rows = given if isinstance(given, DataSource) else None
        with watched("StreamingCoreset", self, self.progress, self.callbacks) as tell:
            random_access = rows is None or rows.access == "random"
            has_weights = sample_weight is not None or own_weights(rows) is not None
            if rows is None or (random_access and has_weights):
                self._take(given, sample_weight, size, threads, tell)
                return
            refuse_weights_of_stream(sample_weight)
            with nullcontext(_parts(rows)) if random_access else rows._batches() as blocks:
                learn_blocks(rows, blocks, lambda block, own: self._take(block, own, size, threads, tell))

    def _take(
        self,
        rows: Any,
        sample_weight: Weights,
        size: int,
        threads: int | None,
        tell: Callable[[int], bool],
    ) -> bool:
        """Absorb one checked batch; return whether a callback asked to stop."""
        source, weights = weighted(rows, sample_weight)
        state = self.__dict__.get("_state")
        if state is None:
            state = self._new_state(size, source.compute)
        before = state.size[0]
        seen = source.seen_by(self.metric)
        state.partial_fit(seen, weights, threads)
        self._set_state(state, size, seen.zero_rows)
        return tell(state.size[0] - before)

    def _new_state(self, size: int, compute: str) -> _core.StreamingCoreset:
        """Return a state without rows."""
        self._seed = _params.seed(self.random_state)
        return _core.StreamingCoreset(size, self._seed, compute)

    def _set_state(self, state: Any, size: int, n_zero_rows: int) -> None:
        """Take over a state with `n_zero_rows` more rows of zeros."""
        self._state, self._size, self._metric = state, size, self.metric
        self.n_zero_rows_ = self.__dict__.get("n_zero_rows_", 0) + n_zero_rows
        self.n_rows_, self.n_kept_, self.n_features_in_ = state.size

    def merge(self, other: StreamingCoreset) -> Self:
        """Add the rows of another coreset after the rows of this one.

        Parameters
        ----------
        other : StreamingCoreset
            Must have the same `n_samples`, `metric`, number of features and compute type. It should have
            another `random_state`; equal ones raise a warning. It is not changed. In the merged coreset, the
            `indices` of its rows continue after the rows of this one.

        Returns
        -------
        self
            The merged coreset.

        Raises
        ------
        ValueError, TypeError
            If `other` does not fit; nothing is changed then.

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
            raise ValueError("other must be another coreset, got the same one: its rows would count twice")
        size, threads = self._checked()
        theirs = other.__dict__.get("_state")
        if theirs is None:
            return self
        if other._metric != self.metric:
            raise ValueError(f"other must have metric={self.metric!r}, got {other._metric!r}")
        mine = self.__dict__.get("_state")
        own, names = names_of(self), names_of(other)
        if own is not None and names is not None and own != names:
            raise ValueError(f"other must have the feature names {own}, got {names}")
        begun = mine is not None
        if mine is None:
            mine = self._new_state(size, theirs.compute)
        mine.merge(theirs, threads)
        self._set_state(mine, size, other.n_zero_rows_)
        if names is not None and not begun:
            self.feature_names_in_ = np.array(names, dtype=object)
        if self._seed == other._seed:
            warn(
                "both coresets were drawn with the same random_state, so their errors are not independent. "
                "Use a different random_state for each.",
                UserWarning,
            )
        return self

    def result(self) -> Coreset:
        """Return the coreset of all rows so far; more rows can follow.

        Returns
        -------
        Coreset
            `n_samples` rows, or all rows with their own weights while there are no more than that.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before the first row.
        """
        self._require_rows()
        return coreset_of(self._state.result(_params.threads(self.n_jobs, tell=False)), self.n_features_in_)

    def _require_rows(self) -> None:
        """Raise an error before the first row."""
        if "_state" not in self.__dict__:
            raise NotFittedError("this StreamingCoreset has no rows yet. Call partial_fit first.")

    def save(self, path: PathName) -> None:
        """Write the state to a file, from which :func:`shoal.load` continues elsewhere.

        Parameters
        ----------
        path : str, bytes or os.PathLike
            One safetensors file. It appears whole or not at all.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before the first row.
        ValueError
            If the suffix belongs to another format, such as ``.npy``.
        OSError
            If the file cannot be written.
        """
        self._require_rows()
        check_suffix("path", path, MODELS)
        kind, arrays, meta = self._state.state()
        about = {
            "feature_names": names_of(self),
            "metric": self._metric,
            "n_zero_rows": self.n_zero_rows_,
        }
        texts = {"compute": self._state.compute, "features": json.dumps(about)}
        _core.save_model(os.fsdecode(path), kind, arrays, {**meta, **texts})

    @classmethod
    def _restored(cls, arrays: Arrays, meta: Texts) -> Self:
        """Return a coreset from the arrays and texts of a file."""
        state = _core.StreamingCoreset.of_state(meta.get("compute", "float64"), KIND, arrays, meta)
        numbers = json.loads(meta["state"])
        size = int(numbers["n_samples"])
        about = Claims.read({"features": "{}", **meta}, "features")
        # Files without a metric are Euclidean.
        metric: Any = about.text("metric", optional=True) or "euclidean"
        _params.one_of("metric", metric, Metric)
        made = cls(size, metric=metric)
        made._seed = int(numbers["seed"])
        made._set_state(state, size, about.count("n_zero_rows", optional=True))
        names = about.texts("feature_names", optional=True)
        if names is not None:
            need(len(names) == made.n_features_in_, f"it has names for {len(names)} columns")
            made.feature_names_in_ = np.array(names, dtype=object)
        return made

    def __sklearn_clone__(self) -> Self:
        """Return one without rows and with the same parameters; callbacks are copied."""
        return clone_estimator(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return the picklable state."""
        state = dict(super().__getstate__())
        kept = state.pop("_state", None)
        if kept is not None:
            state["_kept"] = (kept.compute, *kept.state())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled state."""
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
        """Check the parameters; return `n_samples` and the number of threads."""
        problems = _params.Problems()
        size = problems.check(_params.whole, "n_samples", self.n_samples, 1)
        threads = problems.check(_params.threads, self.n_jobs)
        problems.check(_params.one_of, "metric", self.metric, Metric)
        _params.check_callbacks(problems, self.callbacks)
        problems.refuse()
        known = self.__dict__.get("_size")
        if known not in (None, size):
            raise ValueError(
                f"n_samples must stay at {known} after the first rows, got {size}. Clone the coreset to "
                "start again with another value."
            )
        metric = self.__dict__.get("_metric", self.metric)
        if metric != self.metric:
            raise ValueError(
                f"metric must stay at {metric!r} after the first rows, got {self.metric!r}. Clone the "
                "coreset to start again with another value."
            )
        return size, threads


def _parts(rows: DataSource) -> Iterator[DataSource]:
    """Cut rows with random access into batches."""
    n, d = len(rows), rows.shape[1]
    step = max(1, STEP_BYTES // max(1, (rows.nbytes or 8 * n * d) // max(1, n)))
    return (rows.slice(first, min(n, first + step)) for first in range(0, n, step))
