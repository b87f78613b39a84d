"""Exact k-means: sweeps over all rows until nothing changes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from . import _core, _params
from ._base import STEP_DTYPE, STEP_FIELDS, Clusterer, source_of
from ._claims import Claims, floats, need
from ._core import KMeansRun, Source, Step

__all__ = ["KMeans"]

INITS = ("auto", "random", "k-means++", "plain-k-means++")
LATER_INITS = ("afk-mc2", "k-means||")
ALGORITHMS = ("auto", "lloyd", "yinyang")
LATER_ALGORITHMS = ("elkan", "hamerly", "exponion")
METRICS = ("euclidean", "cosine")
#: Keys of `timings_`.
PHASES = ("seeding", "sweeps", "final")
#: Starts for `n_init="auto"` where the first centers are drawn blindly, as in scikit-learn.
BLIND_STARTS = 10


class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, Clusterer):
    """K-means by sweeps over all rows (Lloyd's algorithm, with or without bounds), exact and deterministic.

    Results have the same bits for every number of threads, and for an array, a memory map or the path of an
    ``.npy`` file with the same rows. Nothing is widened or copied as a whole: rows are read where they lie,
    small types are converted a tile at a time, and sums are kept in float64.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters, at least 1 and at most the number of rows.
    init : {"auto", "random", "k-means++", "plain-k-means++"}, array-like or callable, default="auto"
        First centers. ``"k-means++"`` is the greedy form of scikit-learn, ``"plain-k-means++"`` draws one
        candidate a center, and ``"auto"`` is the greedy form on all rows while that is cheaper than a few
        sweeps, else on a random sample. An array has shape (n_clusters, n_features). A callable is called
        as ``init(X, n_clusters, random_state=RandomState)`` and gives such an array; it gets X as an array,
        or as a :class:`~shoal.DataSource` where X is a path or a source.
    n_init : "auto" or int, default="auto"
        Number of starts, of which the one with the lowest inertia wins. ``"auto"``: 10 for ``init="random"``
        and a callable, else 1.
    max_iter : int, default=300
        Most sweeps of a start; at least 1.
    tol : float, default=1e-4
        A start has converged when the squared length of the centers' move is at most `tol` times the mean
        variance of the features, or when no label changes. 0: only the latter.
    algorithm : {"auto", "lloyd", "yinyang"}, default="auto"
        How a sweep finds the nearest centers; results do not depend on it, bit for bit. ``"lloyd"``
        measures all distances. ``"yinyang"`` keeps a bound for every row and every few dozen centers, and
        measures those that the bounds do not rule out: less and less as centers settle. ``"auto"`` takes it
        once it pays, with many clusters in 32 dimensions and more. ``"elkan"``, ``"hamerly"`` and
        ``"exponion"`` come with a later version.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"`` is spherical k-means: rows are normalised as they are read, centers lie on the unit
        sphere.
    bounds_memory : str or int, default="1GB"
        Most memory that bounds of distances may take, in bytes or as ``"500MB"``: with less, more centers
        share one, down to none. Not used by ``"lloyd"``.
    random_state : int, RandomState, Generator or None, default=None
        An int (0 to 2**64 - 1) makes results repeatable. 64 bits are drawn from a generator at every fit.
    n_jobs : int or None, default=None
        Threads. None and -1: all that the process may use. Results do not depend on it.
    verbose : int, default=0
        1: a progress bar on stderr.
    callbacks : iterable of callables or None, default=None
        Called as ``cb(estimator, step)`` after every sweep; a true result ends the run. See
        :mod:`shoal.callbacks`.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float32 or float64
        Centers, in the type that rows are computed in.
    labels_ : ndarray of shape (n_samples,), int32
        Nearest center of every row; the lower index wins a tie. What ``predict(X)`` gives.
    inertia_ : float
        Sum of `sample_weight` times squared distance of the rows to their centers, differences and sums in
        float64.
    counts_ : ndarray of shape (n_clusters,), float64
        Weight of the rows of each cluster: those of `labels_` once the fit is over, of the last sweep before.
    n_iter_ : int
        Sweeps of the best start.
    history_ : structured ndarray of shape (n_steps,)
        A row for every step, of all starts: ``iteration, rows_seen, batch_size, objective, center_shift,
        n_changed, n_distances, elapsed`` (seconds) and ``stop_reason`` (empty while running).
    stop_reason_ : str or None
        ``"labels-stable"``, ``"tolerance"``, ``"max-iter"``, ``"callback"``, ``"deadline"``, ``"patience"``;
        None while running.
    timings_ : dict of str to float
        Seconds by phase, of all starts together: ``seeding``, ``sweeps``, ``final``.
    algorithm_, init_ : str
        What was used, ``"auto"`` resolved.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, when X has any that are strings.

    Notes
    -----
    A sweep costs about ``2 n k d`` floating-point operations. Memory beyond the rows: a few bytes a row,
    ``O(k d)``, and a tile for each thread.

    An empty cluster gets the row that lies farthest from its center. With fewer distinct rows than clusters
    some clusters stay empty, with weight 0, and a :class:`~sklearn.exceptions.ConvergenceWarning` says so.

    ``X`` must not be written to, by another thread, during a call.

    References
    ----------
    Y. Ding et al., "Yinyang k-means: a drop-in replacement of the classic k-means with consistent speedup",
    ICML 2015.

    S. P. Lloyd, "Least squares quantization in PCM", IEEE Transactions on Information Theory 28 (1982).
    D. Arthur and S. Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import KMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], dtype="float32")
    >>> model = KMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.tolist())
    [[1.0, 2.0], [10.0, 2.0]]
    >>> model.inertia_
    16.0
    """

    cluster_centers_: npt.NDArray[Any]
    counts_: npt.NDArray[np.float64]
    n_iter_: int
    timings_: dict[str, float]
    algorithm_: str
    init_: str

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "auto",
        n_init: Any = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        algorithm: str = "auto",
        metric: str = "euclidean",
        bounds_memory: str | int = "1GB",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        callbacks: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.algorithm = algorithm
        self.metric = metric
        self.bounds_memory = bounds_memory
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    # ---------------------------------------------------------------- fitting

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Cluster the rows of X.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            An array (any strides and real type), a list, a numeric frame, a memory map, the path of an
            ``.npy`` file, or a :class:`~shoal.DataSource`. NaN and infinity are refused.
        y : ignored
        sample_weight : array-like of shape (n_samples,), float or None
            Weight of every row, finite, at least 0, not all 0. None: 1.

        Returns
        -------
        KMeans
            The fitted estimator itself.

        Raises
        ------
        ValueError
            For parameters, shapes or values that are refused; the message names them.
        TypeError
            For sparse matrices and values that are no numbers.
        OSError
            When a file cannot be read.
        KeyboardInterrupt
            On Ctrl-C, within a tile's work; what the last whole sweep left stays usable.
        """
        for _ in self.iter_fit(X, sample_weight):
            pass
        return self

    def iter_fit(self, X: Any, sample_weight: Any = None) -> Iterator[Step]:
        """Cluster the rows of X, one sweep per ``next()``.

        After each, `cluster_centers_`, `counts_`, `history_` and the like are those of the sweep; `labels_`
        and `inertia_` are made on access. Leaving the loop early leaves a usable estimator. Parameters and X
        are checked at once. ``fit(X)`` is the whole of this iterator.

        Parameters
        ----------
        X, sample_weight
            As for :meth:`fit`.

        Yields
        ------
        shoal.Step
            What the sweep did. `objective` is the inertia of all rows about the centers before the sweep
            moved them.

        Raises
        ------
        ValueError, TypeError, OSError, KeyboardInterrupt
            As :meth:`fit`.
        """
        self._check()
        rows = self._checked(X, reset=True)
        source = source_of(rows)
        weights = _params.weights(sample_weight, source.shape[0])
        return self._iterate(self._make_run(source, rows, weights), source, weights)

    def _check(self) -> None:
        """Refuse parameters of a wrong type or range, all together."""
        p = _params
        bad: list[str] = []

        def check(rule: Callable[..., object], *given: Any, **more: Any) -> None:
            try:
                rule(*given, **more)
            except p.ParameterError as error:
                bad.append(str(error))

        check(p.whole, "n_clusters", self.n_clusters, 1)
        if isinstance(self.init, str) and self.init in LATER_INITS:
            bad.append(
                f"init={self.init!r} is not implemented in this version, use one of {', '.join(INITS)}"
            )
        elif isinstance(self.init, str) and self.init not in INITS:
            bad.append(
                f"init must be one of {', '.join(INITS)}, an array or a callable, got {p.shown(self.init)}"
            )
        if not (isinstance(self.n_init, str) and self.n_init == "auto"):
            check(p.whole, "n_init", self.n_init, 1, other="'auto' or ")
        check(p.whole, "max_iter", self.max_iter, 1)
        if not p.is_number(self.tol) or self.tol < 0:
            bad.append(f"tol must be a finite number of at least 0, got {p.shown(self.tol)}")
        check(p.one_of, "algorithm", self.algorithm, ALGORITHMS, LATER_ALGORITHMS)
        check(p.one_of, "metric", self.metric, METRICS)
        if isinstance(self.callbacks, (str, bytes)) or not (
            self.callbacks is None or hasattr(self.callbacks, "__iter__")
        ):
            bad.append(f"callbacks must be None or a list of callables, got {p.shown(self.callbacks)}")
        elif isinstance(self.callbacks, (list, tuple)):
            bad += [
                f"callbacks must be callables, got {p.shown(callback)}"
                for callback in self.callbacks
                if not callable(callback)
            ]
        check(p.memory, "bounds_memory", self.bounds_memory)
        check(p.threads, self.n_jobs)
        check(p.verbosity, self.verbose)
        if bad:
            raise p.ParameterError("; ".join(bad))

    def _make_run(
        self, source: Source, rows: Any, weights: npt.NDArray[np.float64] | None
    ) -> KMeansRun | Starts:
        """Make the run that will do the work; `rows` is `source` as functions of the user take it."""
        n, d = source.shape
        if n < self.n_clusters:
            raise ValueError(f"n_samples={n} should be >= n_clusters={self.n_clusters}.")
        seed = _params.seed(self.random_state)
        n_init = self.n_init
        if n_init == "auto":
            n_init = (
                BLIND_STARTS
                if callable(self.init) or (isinstance(self.init, str) and self.init == "random")
                else 1
            )

        def make(seeding: str, centers: npt.NDArray[Any] | None, starts: int) -> KMeansRun:
            return KMeansRun(
                source,
                n_clusters=int(self.n_clusters),
                seeding=seeding,
                centers=centers,
                n_init=starts,
                max_iter=int(self.max_iter),
                tol=float(self.tol),
                metric=self.metric,
                algorithm=self.algorithm,
                bounds_memory=_params.memory("bounds_memory", self.bounds_memory),
                seed=seed,
                threads=_params.threads(self.n_jobs),
                weights=weights,
            )

        def given(value: Any) -> npt.NDArray[Any]:
            return _params.centers("init", value, source.compute, (int(self.n_clusters), d))

        if isinstance(self.init, str):
            return make(self.init, None, int(n_init))
        if not callable(self.init):
            if n_init != 1:
                warnings.warn(
                    "Explicit initial center position passed: performing only one init in KMeans instead of "
                    f"n_init={n_init}.",
                    RuntimeWarning,
                    stacklevel=4,
                )
            return make("given", given(self.init), 1)
        random_state = _params.random_state_of(seed)
        chosen = self.init
        return Starts(
            lambda: make("given", given(chosen(rows, int(self.n_clusters), random_state=random_state)), 1),
            int(n_init),
        )

    def _update(self, run: Any, step: Step) -> None:
        self.cluster_centers_ = run.centers()
        self.counts_ = run.counts()
        self.n_iter_ = run.n_iter
        self.timings_ = run.timings()
        self.algorithm_ = run.algorithm
        self.init_ = (
            "callable" if callable(self.init) else run.init if isinstance(self.init, str) else "array"
        )
        # Those of an earlier step.
        self._labels = self._inertia = None

    def _complete(self, run: Any) -> None:
        super()._complete(run)
        # A step whose last pass was interrupted had moved the centers already.
        self.cluster_centers_ = run.centers()
        self.n_iter_ = run.n_iter
        self.counts_ = run.counts()
        self.timings_ = run.timings()

    def _measure(
        self, source: Source, weights: npt.NDArray[np.float64] | None
    ) -> tuple[npt.NDArray[np.int32], float]:
        threads = _params.threads(self.n_jobs)
        labels = _core.predict(source, self.cluster_centers_, self.metric, threads)
        return labels, _core.inertia(source, self.cluster_centers_, weights, labels, self.metric, threads)

    def _conclude(self, run: Any) -> None:
        super()._conclude(run)
        found = int(np.count_nonzero(self.counts_))
        if found < self.n_clusters:
            warnings.warn(
                f"Number of distinct clusters ({found}) found smaller than n_clusters "
                f"({self.n_clusters}). Possibly due to duplicate points in X.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> npt.NDArray[np.int32]:
        """Cluster the rows of X and give their labels.

        Parameters
        ----------
        X, y, sample_weight
            As for :meth:`fit`.

        Returns
        -------
        ndarray of shape (n_samples,), int32
            `labels_`.
        """
        return self.fit(X, sample_weight=sample_weight).labels_

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> npt.NDArray[Any]:
        """Cluster the rows of X and give their distances to the centers.

        Parameters
        ----------
        X, y, sample_weight
            As for :meth:`fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_clusters)
            As :meth:`transform`.
        """
        return self.fit(X, sample_weight=sample_weight)._distances(X)

    # ---------------------------------------------------------------- using

    def predict(self, X: Any) -> npt.NDArray[np.int32]:
        """Label rows with their nearest centers.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`fit`; computed in the type of the centers.

        Returns
        -------
        ndarray of shape (n_samples,), int32
            The nearest center of every row; the lower index wins a tie.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        ValueError, TypeError, OSError
            As :meth:`fit`, and for another number of features.
        MemoryError
            When the result is larger than memory.
        """
        source = self._fitted_rows(X)
        return _core.predict(source, self.cluster_centers_, self.metric, _params.threads(self.n_jobs))

    def transform(self, X: Any) -> npt.NDArray[Any]:
        """Give the distances of rows to all centers.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`predict`.

        Returns
        -------
        ndarray of shape (n_samples, n_clusters), of the type of the centers
            Euclidean distances (not squared); with ``metric="cosine"`` those of the normalised rows. This is
            ``n * k`` values.

        Raises
        ------
        ValueError, TypeError, OSError, MemoryError
            As :meth:`predict`.
        """
        return self._distances(X)

    def _distances(self, X: Any) -> npt.NDArray[Any]:
        source = self._fitted_rows(X)
        return _core.transform(source, self.cluster_centers_, self.metric, _params.threads(self.n_jobs))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Give minus the inertia of rows about the centers.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`predict`.
        y : ignored
        sample_weight : array-like of shape (n_samples,), float or None
            As for :meth:`fit`.

        Returns
        -------
        float
            Minus the weighted sum of squared distances of the rows to their nearest centers.

        Raises
        ------
        ValueError, TypeError, OSError
            As :meth:`predict`.
        """
        source = self._fitted_rows(X)
        weights = _params.weights(sample_weight, source.shape[0])
        threads = _params.threads(self.n_jobs)
        return -_core.inertia(source, self.cluster_centers_, weights, None, self.metric, threads)

    def _fitted_rows(self, X: Any) -> Source:
        check_is_fitted(self, "cluster_centers_")
        return self._rows(X, reset=False)

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def __sklearn_tags__(self) -> Any:
        """Say to scikit-learn what this estimator can do."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    # ---------------------------------------------------------------- keeping

    def _kept(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
        params = self.get_params(deep=False)
        # What a file cannot hold, and what only matters to a fit.
        params.pop("callbacks")
        for name, value in params.items():
            if isinstance(value, np.generic):
                params[name] = value.item()
            elif not (value is None or isinstance(value, (bool, int, float, str))):
                params[name] = "array" if name == "init" and not callable(value) else None
        arrays = {"cluster_centers": self.cluster_centers_, "counts": self.counts_}
        if params["init"] == "array":
            arrays["init"] = np.ascontiguousarray(self.init, dtype=self.cluster_centers_.dtype)
        elif params["init"] is None:
            params["init"] = "auto"
        history = self.history_
        figures = [name for name in STEP_DTYPE.names or () if name != "stop_reason"]
        arrays["history"] = np.stack([history[name].astype(np.float64) for name in figures], axis=1)
        about = {
            "n_iter": self.n_iter_,
            "stop_reason": self.stop_reason_,
            "stop_reasons": history["stop_reason"].tolist(),
            "inertia": self.__dict__.get("_inertia"),
            "timings": self.timings_,
            "algorithm": self.algorithm_,
            "init": self.init_,
            "feature_names": names.tolist()
            if (names := getattr(self, "feature_names_in_", None)) is not None
            else None,
        }
        return arrays, {"params": json.dumps(params), "fitted": json.dumps(about)}

    @classmethod
    def _restored(cls, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, str]) -> Self:
        params, about = Claims.read(meta, "params"), Claims.read(meta, "fitted")
        centers = floats(arrays, "cluster_centers", (None, None))
        k, d = centers.shape
        counts = floats(arrays, "counts", (k,))
        need(k > 0 and d > 0, f"it has {k} centers of {d} columns")
        need(bool((counts >= 0).all()), "it has a cluster of negative weight")
        given = params.parameters(cls._get_param_names())
        if given.get("init") == "array":
            given["init"] = floats(arrays, "init", (None, None))
        model = cls(**given)
        _params.one_of("metric", model.metric, METRICS)
        model._forget()
        model.cluster_centers_, model.counts_ = centers, counts
        model.n_features_in_ = d
        names = about.texts("feature_names", optional=True)
        if names is not None:
            need(len(names) == d, f"it has names for {len(names)} columns of {d}")
            model.feature_names_in_ = np.array(names, dtype=object)
        model.n_iter_ = about.count("n_iter")
        model.stop_reason_ = about.text("stop_reason", optional=True)
        model.timings_ = about.figures("timings", PHASES)
        model.algorithm_, model.init_ = str(about.text("algorithm")), str(about.text("init"))
        model._inertia = about.figure("inertia", optional=True)
        reasons = about.texts("stop_reasons") or []
        steps = floats(arrays, "history", (len(reasons), len(STEP_FIELDS) - 1))
        whole = [kind.startswith("i") for _, kind in STEP_FIELDS[:-1]]
        need(bool((np.abs(steps[:, whole]) < 2.0**63).all()), "its steps hold counts beyond 64 bits")
        rows = [(*step, reason) for step, reason in zip(steps.tolist(), reasons, strict=True)]
        model._history = np.array(rows, dtype=STEP_DTYPE)
        return model


class Starts:
    """Starts that a callable of the user makes, one after the other; the lowest inertia wins."""

    def __init__(self, make: Callable[[], KMeansRun], n_init: int) -> None:
        self._make = make
        self._left = n_init
        self._current: KMeansRun | None = None
        self._best: KMeansRun | None = None
        self._last: Step | None = None
        """The last step of the starts before the present one."""
        self._spent = dict.fromkeys(PHASES, 0.0)
        """Seconds of the starts that lost."""

    def step(self) -> Step | None:
        """One sweep of the present start; None when all are over."""
        if self._current is None:
            if self._left == 0:
                return None
            self._current = self._make()
            self._left -= 1
        step = self._current.step()
        if step is not None and self._last is not None:
            step = step.after(self._last)
        if step is None or step.stop_reason is None:
            return step
        self._last = step
        self._current.finish()
        if self._best is None or self._current.inertia() < self._best.inertia():
            self._current, self._best = self._best, self._current
        self._let_go()
        return step.with_reason(None) if self._left else step

    def stop(self, reason: str) -> None:
        """End after the last step."""
        if self._current is not None:
            self._current.stop(reason)
        if self._best is None:
            self._current, self._best = None, self._current
        self._let_go()
        self._left = 0

    def _let_go(self) -> None:
        """Drop the present start, but for the seconds that it took."""
        if self._current is not None:
            for phase, seconds in self._current.timings().items():
                self._spent[phase] += seconds
        self._current = None

    @property
    def _shown(self) -> KMeansRun:
        run = self._best or self._current
        assert run is not None, "no step was made"
        return run

    @property
    def algorithm(self) -> str:
        """How sweeps find the nearest centers."""
        return self._shown.algorithm

    def finish(self) -> None:
        """Make labels and inertia those of the centers."""
        self._shown.finish()

    def centers(self) -> npt.NDArray[Any]:
        """Centers of the best start that is over, else of the present one."""
        return self._shown.centers()

    def counts(self) -> npt.NDArray[np.float64]:
        """Weight of each cluster."""
        return self._shown.counts()

    def labels(self) -> npt.NDArray[np.int32]:
        """Label of every row."""
        return self._shown.labels()

    def inertia(self) -> float:
        """Inertia of the labels."""
        return self._shown.inertia()

    def timings(self) -> dict[str, float]:
        """Seconds by phase, of all starts."""
        runs = [run.timings() for run in (self._best, self._current) if run is not None]
        return {phase: sum((run[phase] for run in runs), spent) for phase, spent in self._spent.items()}

    @property
    def n_iter(self) -> int:
        """Sweeps of the start."""
        return self._shown.n_iter

    @property
    def init(self) -> str:
        """How the first centers came."""
        return self._shown.init
