"""The base class of estimators that fit centers or means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar, Self, get_args

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from shoal import _core
from shoal._checks import params as _params
from shoal._checks.params import RowWeights
from shoal._checks.warn import warn, warn_of_few
from shoal._core import Run, Source, Step
from shoal._files.staged import is_name
from shoal._rows.arrays import as_csr
from shoal._rows.checked import weighted
from shoal._rows.paths import is_paths
from shoal._rows.source import DataSource
from shoal._rows.streams import refuse_once
from shoal.typing import Metric, Rows, Seeding, Weights

from .estimator import Clusterer, has_begun
from .saved import Arrays, Claims, State, Texts, floats, need, not_nan

INITS: tuple[str, ...] = get_args(Seeding)


def called(init: Any, rows: Any, k: int, random_state: np.random.RandomState) -> Any:
    """Return the centers that a callable `init` chooses; seedings of shoal return row numbers too."""
    chosen = init(rows, int(k), random_state=random_state)
    if isinstance(chosen, tuple) and len(chosen) == 2 and np.ndim(chosen[0]) == 2:
        return chosen[0]
    return chosen


class CenterFitter(Clusterer):
    """Base class of the estimators that fit centers of clusters or means of components.

    A subclass checks parameters in `_rules` and may replace some of those of its run in `_options`. It sets
    attributes of its own in `_read`, and lists those that a file holds in `_saved_attributes`.
    """

    counts_: npt.NDArray[np.float64]

    n_clusters: Any
    init: Any
    n_init: Any
    max_iter: Any
    random_state: Any
    n_jobs: Any
    _centers: npt.NDArray[Any] | None
    #: The run that holds the centers until they are accessed: copying them takes as long as moving them.
    _centers_of: Any
    metric: Metric
    #: Starts with `n_init="auto"` from random rows or from a callable.
    _blind_starts = 10
    #: Whether a single pass over the rows is enough for a fit.
    _one_pass = False
    #: Whether `counts_` are the weights of the rows of each label.
    _counts_labels = True
    #: Further attributes in files, with the method of `Claims` that checks their type.
    _saved_attributes: ClassVar[dict[str, str]] = {}

    @property
    def _representatives(self) -> npt.NDArray[Any]:
        return self.cluster_centers_

    @property
    def _metric_of_rows(self) -> Metric:
        return self.metric

    @property
    def _metric_of_centers(self) -> Metric:
        """The metric that says where centers lie: on the unit sphere for ``"cosine"``."""
        return self.metric

    @property
    def _k(self) -> Any:
        """Value of the parameter for the number of centers."""
        return getattr(self, self._count)

    # ---------------------------------------------------------------- fitting

    def fit(self, X: Rows, y: Any = None, sample_weight: Weights = None) -> Self:
        """Cluster the rows of X.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            An array (any strides and real type), a list, a numeric data frame, a memory map, a sparse matrix
            or array of SciPy, the path of a file or an object of another library that :func:`shoal.open`
            takes, a :class:`~shoal.DataSource`, or a :class:`~shoal.Coreset`. Also a stream of blocks: an
            object whose ``__iter__`` begins again each time (such as a ``DataLoader`` of PyTorch), or a
            callable without arguments that returns a fresh iterator for each pass; an iterator, if the method
            makes a single pass. NaN and infinity raise ``ValueError``. CSR matrices are read in place,
            without their zeros. Other sparse formats are converted with a warning.
        y : ignored
        sample_weight : array-like of shape (n_samples,), float or None
            Weight of every row: finite, at least 0, not all 0. None means 1, or the weights of a coreset. For
            a stream of unknown length, an array, whose length is checked at the end of the first pass.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If parameters, shapes or values are invalid. The message lists all invalid parameters.
        TypeError
            If values are not numbers.
        OSError
            If a file cannot be read.
        KeyboardInterrupt
            On Ctrl-C, within the time of one tile. The estimator keeps the state of the last complete step.
        """
        for _ in self.iter_fit(X, sample_weight):
            pass
        return self

    def iter_fit(self, X: Rows, sample_weight: Weights = None) -> Iterator[Step]:
        """Cluster the rows of X, one step per ``next()``.

        After each step, `cluster_centers_`, `counts_`, `history_` and similar attributes are current.
        `labels_` and `inertia_` are computed on access, and `counts_` then belong to the labels. Breaking
        out of the loop leaves a usable estimator. ``fit(X)`` exhausts this iterator. Parameters and X are
        checked when the method is called. Calling another fitting method inside the loop ends it early.

        Parameters
        ----------
        X, sample_weight
            As for :meth:`fit`.

        Yields
        ------
        shoal.Step
            Figures of the step. `objective` is the inertia of the rows that the step visited, for the centers
            before the step moved them.

        Raises
        ------
        ValueError, TypeError, OSError, KeyboardInterrupt
            As :meth:`fit`.
        """
        with self._set_aside():
            source, rows, weights = self._taken(X, sample_weight)
            self._by_callable = False
            return self._iterate(self._make_run(source, rows, weights), source, weights)

    def _taken(
        self, X: Rows, sample_weight: Weights
    ) -> tuple[Source, npt.NDArray[Any] | DataSource, RowWeights]:
        """Check parameters, rows and weights of a fit; return source, rows for callables, and weights."""
        self._check()
        if not self._one_pass:
            refuse_once(X, type(self).__name__)
        rows = self._checked(self._readable(X), reset=True)
        self._of_files = is_name(X) or is_paths(X)
        source, weights = weighted(rows, sample_weight)
        n = source.shape[0]
        if n is not None and n < self._k:
            raise _params.too_many_clusters(self._count, self._k, n)
        return source, rows, weights

    def _readable(self, X: Rows) -> Any:
        """Return the rows of a fit as its method can read them."""
        return X

    def _go_on(self, state: State, source: Source, rows: Any, weights: RowWeights) -> Iterator[Step]:
        """Iterate over the remaining steps of a checkpoint; the other arguments come from `_taken`."""
        self._by_callable = self._same_features(state[2])
        if has_begun(state):
            run = self._resumed_run(source, rows, weights, state)
        else:
            run = self._made_anew(state, lambda: self._make_run(source, rows, weights))
        return self._iterate(run, source, weights)

    def _rules(self, problems: _params.Problems) -> None:
        super()._rules(problems)
        if isinstance(self.init, str):
            problems.check(_params.seeding, self.init, INITS)
        self._rules_of_a_run(problems)

    def _make_run(self, source: Source, rows: Any, weights: RowWeights) -> Any:
        """Make the run of a fit; `rows` is the source as callables of the user take it."""
        seed = _params.seed(self.random_state)
        return self._start(source, weights, self._seeding(source, rows, seed), seed)

    def _resumed_run(self, source: Source, rows: Any, weights: RowWeights, state: State) -> Any:
        """Make a run that continues from a checkpoint, which holds the seed and the centers."""
        return self._start(source, weights, self._seeding_by_name(), 0, state)

    def _start(
        self,
        source: Source | None,
        weights: RowWeights,
        init: str | npt.NDArray[Any],
        seed: int,
        state: State | None = None,
        **more: Any,
    ) -> Run:
        """Make a run, from the beginning or from a state; `more` are parameters in place of some others."""
        params = self._run_params(init, seed, **self._options(source), **more)
        return _core.start(self._method, source, params, weights=weights, state=state)

    def _options(self, source: Source | None) -> dict[str, Any]:
        """Return the parameters of a run over `source` that differ from those of the estimator."""
        return {}

    def _n_starts(self) -> int:
        """Return the number of starts from different seedings."""
        if self.n_init != "auto":
            return int(self.n_init)
        blind = callable(self.init) or (isinstance(self.init, str) and self.init == "random")
        return self._blind_starts if blind else 1

    def _seeding_by_name(self) -> str:
        return self.init if isinstance(self.init, str) else "auto"

    @property
    def _first(self) -> Any:
        """The name of a seeding, an array, or a callable that chooses the initial centers."""
        return self.init

    def _seeding(self, source: Source, rows: Any, seed: int) -> str | npt.NDArray[Any]:
        """Return the name of the seeding, or the centers of an array or a callable."""
        centers = self._first
        if isinstance(centers, str):
            return centers
        if callable(centers):
            centers = called(centers, rows, self._k, _params.random_state_of(seed))
        return self._given(centers, source)

    def _given(self, centers: Any, source: Source) -> npt.NDArray[Any]:
        """Check initial centers of the user."""
        return _params.centers("init", centers, source.compute, (int(self._k), source.shape[1]))

    @property
    def cluster_centers_(self) -> npt.NDArray[Any]:
        """Centers, an array of shape (n_clusters, n_features) of the compute type."""
        if self.__dict__.get("_centers") is None:
            run = self.__dict__.get("_centers_of")
            if run is None:
                raise _params.missing_attribute(self, "cluster_centers_")
            self._centers = run.centers()
        assert self._centers is not None
        return self._centers

    @cluster_centers_.setter
    def cluster_centers_(self, centers: npt.NDArray[Any]) -> None:
        self._centers, self._centers_of = centers, None

    def _forget(self) -> None:
        super()._forget()
        self._centers = self._centers_of = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle plain values and arrays, including the centers."""
        state = super().__getstate__()
        if state.get("_centers_of") is not None:
            state["_centers"], state["_centers_of"] = self.cluster_centers_, None
        return state

    def _update(self, run: Any, step: Step | None) -> None:
        self._centers, self._centers_of = None, run
        self._read(run)
        self.init_ = self._describe_init(self._first, run)
        # Labels and inertia of an earlier step are outdated.
        self._drop_labels()

    def _complete(self, run: Any) -> None:
        super()._complete(run)
        # A step that was interrupted in its last pass had already moved the centers.
        self.cluster_centers_ = run.centers()
        self._read(run)

    def _read(self, run: Any) -> None:
        """Set the attributes that a run knows at any time; subclasses add their own."""
        self.n_iter_ = run.n_iter
        self.counts_ = run.counts()
        self.timings_ = run.timings()
        self.n_zero_rows_ = run.zero_rows

    def _make_pass(self) -> None:
        super()._make_pass()
        if self._counts_labels and self._visited is not None:
            labels, weights = self.labels_, self._visited[1]
            self.counts_ = np.bincount(labels, weights, len(self.cluster_centers_)).astype(np.float64)

    def _measure(self, source: Source, weights: RowWeights) -> tuple[npt.NDArray[np.int32], float]:
        labels = _core.predict(source, self.cluster_centers_, self.metric, self._threads)
        return labels, _core.inertia(
            source, self.cluster_centers_, weights, labels, self.metric, self._threads
        )

    def _conclude(self, run: Any) -> None:
        super()._conclude(run)
        self._warn_if_few()

    def _conclude_without_labels(self, run: Any) -> None:
        """Release the rows without a pass for labels."""
        self.cluster_centers_, self.counts_ = run.centers(), run.counts()
        self.timings_ = run.timings()
        # Labels that were read after the last step may be those of other centers.
        self._drop_labels()
        self._run = self._visited = None
        self._history = self.history_
        self._warn_if_few()

    def _warn_if_few(self) -> None:
        """Warn if clusters are empty."""
        found = int(np.count_nonzero(self.counts_))
        if found < self._k:
            warn_of_few("clusters", found, self._k)

    def _warn_of_one_start(self, n_init: int) -> None:
        """Warn that given initial centers make a single start; Python shows the text of scikit-learn."""
        warn(
            f"the initial centers are given, so `n_init`={n_init} is ignored",
            RuntimeWarning,
            f"Explicit initial center position passed: performing only one init in {type(self).__name__} "
            f"instead of n_init={n_init}.",
        )

    def _warn_if_boundless(self, asked: str) -> None:
        """Warn that the memory budget is too small for the bounds that `asked` needs."""
        name, budget = self._budget("bounds_memory")
        warn(
            f"`{name}`={budget} has no room for the bounds of {asked}: every distance was "
            "measured. The result is the same.",
            RuntimeWarning,
        )

    def fit_predict(self, X: Rows, y: Any = None, sample_weight: Weights = None) -> npt.NDArray[np.int32]:
        """Cluster the rows of X and return their labels.

        Parameters
        ----------
        X, y, sample_weight
            As for :meth:`fit`.

        Returns
        -------
        ndarray of shape (n_samples,), int32
            `labels_`.
        """
        refuse_once(X, f"{type(self).__name__}.fit_predict")
        X = as_csr(X)
        fitted: Any = self.fit(X, sample_weight=sample_weight)
        # No labels with compute_labels=False.
        known = any(fitted.__dict__.get(name) is not None for name in ("_labels", "_finished"))
        labels: npt.NDArray[np.int32] = fitted.labels_ if known else fitted.predict(X)
        return labels

    def _require_fitted(self) -> None:
        """Raise `NotFittedError` before a fit."""
        check_is_fitted(self, "cluster_centers_")

    def _require_distances(self, argument: str) -> None:
        """Raise `ValueError` if the labels are not those of the nearest centers; `argument` asks for them."""

    def _fitted_rows(self, X: Rows) -> Source:
        self._require_fitted()
        return self._rows(X, reset=False)

    def _fitted_weighted(self, X: Rows, sample_weight: Weights) -> tuple[Source, RowWeights]:
        """Return the rows and their weights for a fitted model."""
        self._require_fitted()
        return weighted(self._checked(X, reset=False), sample_weight)

    def __sklearn_tags__(self) -> Any:
        """Return the tags of scikit-learn: sparse input is allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _energy(self, X: Rows) -> float:
        """Compute the inertia of rows for the current centers."""
        source, weights = self._fitted_weighted(X, None)
        centers = self.cluster_centers_
        # The metric of the rows scales centers too: the means of a mixture lie inside the unit sphere.
        metric = self._metric_of_rows
        return _core.inertia(source.seen_by(metric), centers, weights, None, metric, self._threads)

    def _labeled(
        self, part: Source, first_row: int, with_distances: bool
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64] | None]:
        """Label rows as the metric sees them, and compute distances if asked for.

        `first_row` is the number of the first row, for messages.
        """
        if not with_distances:
            return _core.predict(
                part, self.cluster_centers_, self._metric_of_centers, self._threads, first_row
            ), None
        labels, sq_dists = _core.nearest(
            part, self.cluster_centers_, 1, self._metric_of_centers, self._threads, first_row
        )
        return labels, np.sqrt(sq_dists)

    # ---------------------------------------------------------------- keeping

    def _kept(self) -> tuple[Arrays, Texts]:
        arrays, texts = self._described()
        arrays |= {"cluster_centers": self.cluster_centers_, "counts": self.counts_}
        arrays["history"], about = self._kept_fit(texts)
        about |= {
            "inertia": self.__dict__.get("_inertia"),
            **{name.removesuffix("_"): not_nan(getattr(self, name)) for name in self._saved_attributes},
        }
        return arrays, {"params": texts["params"], "fitted": json.dumps(about)}

    @classmethod
    def _restored(cls, arrays: Arrays, meta: Texts) -> Self:
        about = Claims.read(meta, "fitted")
        centers = floats(arrays, "cluster_centers", (None, None))
        k, d = centers.shape
        counts = floats(arrays, "counts", (k,))
        need(k > 0 and d > 0, f"it has {k} centers of {d} columns")
        need(bool((counts >= 0).all()), "it has a cluster of negative weight")
        model = cls._of_params(arrays, meta)
        _params.one_of("metric", model.metric, Metric)
        model._forget()
        model.cluster_centers_, model.counts_ = centers, counts
        model._recall_fit(arrays, about, d)
        for name, kind in cls._saved_attributes.items():
            setattr(model, name, getattr(about, kind)(name.removesuffix("_")))
        model._inertia = about.figure("inertia", optional=True)
        return model
