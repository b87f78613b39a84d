"""The distributed estimator, written once over an engine."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import KW_ONLY
from functools import partial
from typing import Annotated, Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from shoal._checks import params as _params
from shoal._checks.params import NOT_NEGATIVE, POSITIVE
from shoal._checks.warn import warn, warn_of_few
from shoal._core import Step
from shoal._docs import documented
from shoal._fit.bases import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from shoal._fit.declared import estimator
from shoal._fit.loop import RunLoop
from shoal._fit.saved import State
from shoal._fit.watch import watching
from shoal._rows.features import names_of
from shoal.formats.stream import listed
from shoal.kmeans import KMeans as LocalKMeans
from shoal.typing import Callbacks, Centers, Memory, Metric, PathName, RandomState

from . import checkpoint
from .engine import Engine, naming_losses, total_of
from .passes import DistancePass, KMeansPass, LabelPass, RowPass
from .ranges import RangedSweep
from .run import EngineRun
from .seeding import first_sweep, rules_of_init

P = TypeVar("P", KMeansPass, LabelPass, DistancePass)

#: What is known if `predict`, `transform` or `score` fails.
UNCHANGED = "The estimator is unchanged."


@estimator
class KMeansOnEngine(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, RunLoop):
    """Exact k-means over an engine.

    The estimators of the engines derive from it. They say how an engine is made of `X` and of the options
    that all methods take.
    """

    n_clusters: int = 8
    _: KW_ONLY
    init: str | Centers = "k-means++"
    max_iter: int = 300
    tol: Annotated[float, NOT_NEGATIVE] = 1e-4
    metric: Metric = "euclidean"
    oversampling_factor: Annotated[float, POSITIVE] = 2.0
    n_rounds: int = 5
    coreset_size: int | None = None
    compute_labels: bool = True
    memory: Memory = "1GB"
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0
    callbacks: Callbacks = None

    _resume_call = "fit(..., resume_from=path)"
    #: The names of the options of the engine.
    _options: ClassVar[tuple[str, ...]]

    # ---------------------------------------------------------------- for adapters

    @abstractmethod
    def _open(self, *rows: Any, **options: Any) -> Engine:
        """Return an engine that holds `X` and its weights, with the options.

        `reset` among the options says whether the engine is for a fit or for known centers.
        """

    def _over_rows(self, task: RowPass, X: Any, **options: Any) -> Any:
        """Compute labels or distances of all rows, in the engine's own kind of collection."""
        with closing(self._open(X, None, reset=False, **options)) as engine, naming_losses(engine, UNCHANGED):
            return engine.rows(task)

    # ---------------------------------------------------------------- methods

    @documented
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        resume_from: PathName | None = None,
        **options: Any,
    ) -> Self:
        """Cluster the rows of all partitions.

        Parameters
        ----------
        X : partitions of rows
            As the class says. A partition may have no rows. Partitions with column names must have the same
            names in one order; these become `feature_names_in_`.
        y : ignored
        sample_weight : weights of the rows, optional
            As the class says: finite, at least 0, not all 0.
        {resume_from}
        **options
            Those of the engine, as the class says.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ImportError
            If the package of the engine is not installed.
        ValueError, TypeError, OSError
            If the rows, the parameters or the options are not valid. Messages name the partition.
        RuntimeError
            If the workers are lost. The estimator then holds the state after the last complete step.
        """
        self._refuse(y, options)
        for _ in self.iter_fit(X, sample_weight, resume_from=resume_from, **options):
            pass
        return self

    def iter_fit(
        self,
        X: Any,
        sample_weight: Any = None,
        *,
        resume_from: PathName | None = None,
        **options: Any,
    ) -> Iterator[Step]:
        """Cluster the rows of all partitions, one step per ``next()``.

        Parameters and errors are those of :meth:`fit`, which exhausts this iterator.

        Yields
        ------
        shoal.Step
            Figures of the step; see :meth:`shoal.distributed.KMeansPass.commit`.
        """
        self._check()
        self._refuse(None, options)
        return self._iterate(self._open(X, sample_weight, reset=True, **options), resume_from)

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None, **options: Any) -> Any:
        """Cluster the rows of all partitions and return their labels.

        Parameters and errors are those of :meth:`fit`.

        Returns
        -------
        labels
            As :meth:`predict`.
        """
        self.fit(X, y, sample_weight, **options)
        return self.labels_ if self.compute_labels else self.predict(X, **options)

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None, **options: Any) -> Any:
        """Cluster the rows of all partitions and return their distances to the centers.

        Parameters and errors are those of :meth:`fit`.

        Returns
        -------
        distances
            As :meth:`transform`.
        """
        return self.fit(X, y, sample_weight, **options).transform(X, **options)

    def predict(self, X: Any, **options: Any) -> Any:
        """Label the rows of all partitions with their nearest centers.

        Parameters
        ----------
        X : partitions of rows
            As for :meth:`fit`.
        **options
            As for :meth:`fit`.

        Returns
        -------
        labels
            In the engine's own kind of collection, like `labels_`; the lower index wins a tie.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        ValueError, TypeError, OSError, RuntimeError
            As :meth:`fit`; also if X has other features than in the fit. Where the engine computes the
            labels when they are used, errors of the rows are raised then.
        """
        check_is_fitted(self)
        self._refuse(None, options)
        return self._over_rows(self._expecting_names(LabelPass), X, **options)

    def transform(self, X: Any, **options: Any) -> Any:
        """Compute the Euclidean distances of the rows to all centers.

        Parameters and errors are those of :meth:`predict`.

        Returns
        -------
        distances
            `n_clusters` values per row in the type of the centers, in the same kind of collection as the
            labels of :meth:`predict`. With ``metric="cosine"``, distances of the rows scaled to length 1.
        """
        check_is_fitted(self)
        self._refuse(None, options)
        return self._over_rows(self._expecting_names(DistancePass), X, **options)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, **options: Any) -> float:
        """Return the negative inertia of the rows, in one pass.

        Parameters and errors are those of :meth:`fit`.

        Returns
        -------
        float
            Minus the weighted sum of squared distances of the rows to their nearest centers.
        """
        check_is_fitted(self)
        self._refuse(y, options)
        with closing(self._open(X, sample_weight, reset=False, **options)) as engine:
            total = total_of(engine, self._expecting_names(KMeansPass), UNCHANGED)
        if not total.n_rows:
            raise ValueError("X must have at least 1 row, got 0")
        return -total.inertia

    def _refuse(self, y: Any, options: dict[str, Any]) -> None:
        """Raise `TypeError` for options of other engines."""
        for name in options:
            if name not in self._options:
                known = listed(list(self._options))
                raise TypeError(f"options of {type(self).__module__} must be among {known}, got {name!r}")

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _iterate(self, engine: Engine, resume_from: PathName | None = None) -> Iterator[Step]:
        """Make one step per ``next()``; close the engine at the end."""
        run = None
        try:
            self._forget()
            self._seed = _params.seed(self.random_state)
            memory = _params.memory("memory", self.memory)
            run = self._run = EngineRun(engine, float(self.tol), self.max_iter, memory)
            self._resumed_from = resume_from
            with watching(self) as watchers:
                yield from self._driven(run, watchers, partial(self._begin, run, resume_from))
        finally:
            if self._run is run:
                self._run = self._resumed_from = None
            with closing(engine if run is None else run):
                self._fetch_or_fall_back()

    # ---------------------------------------------------------------- the parts of the loop

    def _forget(self) -> None:
        super()._forget()
        self._labels: Any = None
        self._inertia: float | None = None
        self._centers: npt.NDArray[Any] | RangedSweep | None = None
        self.init_, self.n_zero_rows_ = "", 0

    def _begin(self, run: EngineRun, resume_from: PathName | None) -> None:
        """Choose the first centers, or read a checkpoint."""
        if resume_from is None:
            run.begin(*first_sweep(self, run.engine))
        else:
            task, state = self._read_checkpoint(resume_from)
            run.resume(task, state)
            self._history, self.stop_reason_ = state.history, run.stop_reason
        self._update(run, None)

    def _update(self, run: EngineRun, step: Step | None) -> None:
        task = run.task
        # Centers that lie on the workers are fetched when they are used.
        self._centers = task if isinstance(task, RangedSweep) else task.centers
        self.counts_, self.n_iter_, self.n_features_in_ = task.counts, task.iteration, task._state.dim
        self.init_, self.n_zero_rows_ = run.init, run.n_zero_rows
        names = task._state.names
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)

    def _expecting_names(self, kind: Callable[..., P]) -> P:
        """Return a pass with these centers that expects the features of the fit."""
        task = kind(self.cluster_centers_, metric=self.metric)
        task._names = names_of(self)
        return task

    def _conclude(self, run: EngineRun) -> None:
        """Measure the inertia of the final centers, and label the rows."""
        self._fetch_centers()
        self.counts_ = run.finish(self.metric)
        self._inertia, self.n_zero_rows_ = run.inertia, run.n_zero_rows
        if self.compute_labels:
            self._labels = run.labels(self._expecting_names(LabelPass))
        found = int(np.count_nonzero(self.counts_))
        if found < self.n_clusters:
            warn_of_few("clusters", found, self.n_clusters)

    # ---------------------------------------------------------------- checkpoints

    def _write_checkpoint(self, path: str) -> None:
        run = self._run
        state = checkpoint.FitState(
            run.task.to_bytes(), run.threshold, self._history, run.init, run.n_zero_rows
        )
        checkpoint.write(path, type(self).__name__, self.get_params(deep=False), state)

    def _compare_checkpoint(self, name: str, state: State) -> None:
        self._read_checkpoint(name)

    def _is_before_first_step(self) -> bool:
        return super()._is_before_first_step() and bool(self._run.init)

    def _read_checkpoint(self, path: PathName) -> tuple[KMeansPass, checkpoint.FitState]:
        """Return the next pass and the state of a checkpoint."""
        state = checkpoint.read(path, type(self).__name__, self.get_params(deep=False))
        try:
            task = KMeansPass.from_bytes(state.task)
            if task.centers.shape[0] != self.n_clusters or task.metric != self.metric:
                raise ValueError("is damaged: its pass has other centers than its parameters say")
            if task.iteration != len(state.history):
                raise ValueError(
                    f"is damaged: its pass comes after {task.iteration} steps, its history has "
                    f"{len(state.history)}"
                )
        except ValueError as error:
            raise ValueError(f"{os.fsdecode(path)}: {error}") from error
        return task, state

    # ---------------------------------------------------------------- results

    @property
    def history_(self) -> npt.NDArray[np.void]:
        """Structured array with one row per step."""
        check_is_fitted(self)
        return super().history_

    @property
    def cluster_centers_(self) -> npt.NDArray[Any]:
        """The centers."""
        self._fetch_centers()
        centers: npt.NDArray[Any] | None = self.__dict__.get("_centers")
        if centers is None:
            raise self._missing("cluster_centers_", "No centers are chosen yet.")
        return centers

    def __sklearn_is_fitted__(self) -> bool:
        """Tell without fetching centers that lie on the workers."""
        return self.__dict__.get("_centers") is not None

    def _fetch_or_fall_back(self) -> None:
        """Fetch centers that lie on the workers; if they are lost, keep those that were sent last."""
        held = self.__dict__.get("_centers")
        if not isinstance(held, RangedSweep):
            return
        try:
            self._centers = held.centers
        except Exception as error:  # noqa: BLE001
            # An error may end the fit, which this one must not hide.
            step, self._centers = held.at_hand
            warn(
                f"the centers after step {held.iteration} are lost with their workers "
                f"({type(error).__name__}): cluster_centers_ holds those after step {step}",
                RuntimeWarning,
            )

    def _fetch_centers(self) -> None:
        """Fetch centers that lie on the workers."""
        held = self.__dict__.get("_centers")
        if isinstance(held, RangedSweep):
            self._centers = held.centers

    @property
    def inertia_(self) -> float:
        """Weighted sum of squared distances of the rows to their centers."""
        if self.__dict__.get("_inertia") is None:
            raise self._missing("inertia_", "The fit is not complete.")
        return float(self._inertia or 0.0)

    @property
    def labels_(self) -> Any:
        """Label of every row, in the engine's own kind of collection."""
        if self.__dict__.get("_labels") is None:
            raise self._missing("labels_", "Use predict, or a complete fit with compute_labels=True.")
        return self._labels

    def _missing(self, name: str, why: str) -> AttributeError:
        if "_history" not in self.__dict__:
            why = "it is not fitted yet"
        return _params.missing_attribute(self, name, why)

    def to_local(self) -> LocalKMeans:
        """Return a fitted :class:`shoal.KMeans` with these centers, to predict on one machine or to save.

        Returns
        -------
        shoal.KMeans
            Fitted, without `labels_`.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before a fit.
        """
        check_is_fitted(self)
        model = LocalKMeans(
            self.n_clusters,
            init=self.cluster_centers_,
            metric=self.metric,
            max_iter=self.max_iter,
            tol=self.tol,
        )
        model._forget()
        model.cluster_centers_, model.counts_ = self.cluster_centers_.copy(), self.counts_.copy()
        model.n_features_in_, model.n_iter_, model.n_zero_rows_ = self.n_features_in_, self.n_iter_, 0
        if hasattr(self, "feature_names_in_"):
            model.feature_names_in_ = self.feature_names_in_.copy()
        model.timings_ = dict.fromkeys(model._phases, 0.0)
        model.init_, model.algorithm_ = self.init_, "lloyd"
        model._inertia, model._history = self.__dict__.get("_inertia"), self.history_
        model.stop_reason_ = self.stop_reason_
        return model

    def __getstate__(self) -> dict[str, Any]:
        """Pickle plain values and arrays, without the run and its engine."""
        self._fetch_centers()
        return {**super().__getstate__(), "_run": None}

    # ---------------------------------------------------------------- parameters

    def _rules(self, problems: _params.Problems) -> None:
        super()._rules(problems)
        self._rules_of_a_run(problems)
        rules_of_init(self, problems)
