"""The distributed estimators, written once over an engine; adapters add ``fit`` and ``predict``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import KW_ONLY
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from shoal._checks import params as _params
from shoal._checks.warn import warn
from shoal._core import Step
from shoal._fit.declared import estimator
from shoal._fit.loop import RunLoop
from shoal._fit.saved import Arrays, Texts
from shoal._fit.watch import watching
from shoal.kmeans import KMeans as LocalKMeans
from shoal.typing import Callbacks, Centers, Metric, PathName, RandomState

from . import checkpoint
from .engine import Engine, naming_losses
from .passes import KMeansPass, LabelPass, MiniBatchPass
from .run import EngineRun
from .seeding import first_sweep, rules_of_init


@estimator
class KMeansOnEngine(RunLoop):
    """Exact k-means over an engine.

    Adapters define ``fit``, which makes an engine of its arguments and calls :meth:`_fit`, and ``predict``,
    which calls :meth:`_predict`.
    """

    n_clusters: int = 8
    _: KW_ONLY
    init: str | Centers = "k-means++"
    max_iter: int = 300
    tol: float = 1e-4
    metric: Metric = "euclidean"
    oversampling_factor: float = 2.0
    n_rounds: int = 5
    coreset_size: int | None = None
    compute_labels: bool = True
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0
    callbacks: Callbacks = None

    _resume_call = "fit(..., resume_from=path)"
    #: The class of the passes.
    _pass: ClassVar[type[KMeansPass]] = KMeansPass

    # ---------------------------------------------------------------- for adapters

    def _fit(self, engine: Engine, resume_from: PathName | None = None) -> Self:
        """Cluster the rows of an engine, and close the engine."""
        for _ in self._iterate(engine, resume_from):
            pass
        return self

    def _predict(self, engine: Engine) -> Any:
        """Label the rows of an engine, and close the engine."""
        try:
            check_is_fitted(self, "cluster_centers_")
            with naming_losses(engine, "The estimator is unchanged."):
                return engine.labels(self._labeling())
        finally:
            engine.close()

    def _iterate(self, engine: Engine, resume_from: PathName | None = None) -> Iterator[Step]:
        """Make one step per ``next()``; close the engine at the end."""
        run = None
        try:
            self._check()
            self._forget()
            self._seed = _params.seed(self.random_state)
            run = self._run = EngineRun(engine, float(self.tol), self.max_iter)
            self._resumed_from = resume_from
            with watching(self) as watchers:
                yield from self._driven(run, watchers, partial(self._begin, run, resume_from))
        finally:
            engine.close()
            if self._run is run:
                self._run = self._resumed_from = None

    # ---------------------------------------------------------------- the parts of the loop

    def _forget(self) -> None:
        super()._forget()
        self._labels: Any = None
        self._inertia: float | None = None
        self.init_, self.n_zero_rows_ = "", 0

    def _begin(self, run: EngineRun, resume_from: PathName | None) -> None:
        """Choose the first centers, or read a checkpoint."""
        if resume_from is None:
            run.begin(*self._first(run.engine))
        else:
            task, state = self._read_checkpoint(resume_from)
            run.resume(task, state)
            self._history, self.stop_reason_ = state.history, run.stop_reason
        self._update(run, None)

    def _first(self, engine: Engine) -> tuple[KMeansPass, str]:
        """Choose the first centers; return the first pass and how they were chosen."""
        return first_sweep(self, engine)

    def _update(self, run: EngineRun, step: Step | None) -> None:
        task = run.task
        self.cluster_centers_, self.counts_ = task.centers, task.counts
        self.n_iter_, self.n_features_in_ = task.iteration, task.centers.shape[1]
        self.init_, self.n_zero_rows_ = run.init, run.n_zero_rows
        names = task._state.names
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)

    def _labeling(self) -> LabelPass:
        """Return the pass that labels rows with the features of the fit."""
        task = LabelPass(self.cluster_centers_, metric=self.metric)
        names = getattr(self, "feature_names_in_", None)
        task._names = None if names is None else names.tolist()
        return task

    def _conclude(self, run: EngineRun) -> None:
        """Measure the inertia of the final centers, and label the rows."""
        self.counts_ = run.finish(self.metric)
        self._inertia, self.n_zero_rows_ = run.inertia, run.n_zero_rows
        if self.compute_labels:
            self._labels = run.labels(self._labeling())
        found = int(np.count_nonzero(self.counts_))
        if found < self.n_clusters:
            warn(
                f"Number of distinct clusters ({found}) found smaller than n_clusters ({self.n_clusters}). "
                "Possibly due to duplicate points in X.",
                ConvergenceWarning,
            )

    # ---------------------------------------------------------------- checkpoints

    def _write_checkpoint(self, path: str) -> None:
        run = self._run
        state = checkpoint.FitState(
            run.task.to_bytes(), run.threshold, self._history, run.init, run.n_zero_rows
        )
        checkpoint.write(path, type(self).__name__, self.get_params(deep=False), state)

    def _compare_checkpoint(self, name: str, state: tuple[str, Arrays, Texts]) -> None:
        self._read_checkpoint(name)

    def _is_before_first_step(self) -> bool:
        return super()._is_before_first_step() and bool(self._run.init)

    def _read_checkpoint(self, path: PathName) -> tuple[KMeansPass, checkpoint.FitState]:
        """Return the next pass and the state of a checkpoint."""
        state = checkpoint.read(path, type(self).__name__, self.get_params(deep=False))
        try:
            task = self._pass.from_bytes(state.task)
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
        check_is_fitted(self, "cluster_centers_")
        return super().history_

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
        return AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}: {why}")

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
        check_is_fitted(self, "cluster_centers_")
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
        model.timings_ = dict.fromkeys(("seeding", "sweeps", "final"), 0.0)
        model.init_, model.algorithm_ = self.init_, "lloyd"
        model._inertia, model._history = self.__dict__.get("_inertia"), self.history_
        model.stop_reason_ = self.stop_reason_
        return model

    def __getstate__(self) -> dict[str, Any]:
        """Pickle plain values and arrays, without the run and its engine."""
        return {**super().__getstate__(), "_run": None}

    # ---------------------------------------------------------------- parameters

    def _rules(self, problems: _params.Problems) -> None:
        super()._rules(problems)
        problems.check(_params.at_least_0, "tol", self.tol)
        self._rules_of_a_run(problems)
        rules_of_init(self, problems)


@estimator
class MiniBatchKMeansOnEngine(KMeansOnEngine):
    """Mini-batch k-means over an engine."""

    _: KW_ONLY
    batch_size: int = 1024
    max_iter: int = 10

    _pass = MiniBatchPass

    def _first(self, engine: Engine) -> tuple[KMeansPass, str]:
        task, init = super()._first(engine)
        first = MiniBatchPass(task.centers, batch_size=self.batch_size, metric=self.metric)
        return first._after(task), init
