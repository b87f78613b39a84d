"""The distributed estimators, written once over an engine; adapters add ``fit`` and ``predict``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import KW_ONLY
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from shoal._checks import params as _params
from shoal._checks.warn import warn
from shoal._core import Step
from shoal._fit.bases import BaseEstimator
from shoal._fit.cloning import clone_estimator
from shoal._fit.declared import Checked, estimator
from shoal._fit.history import STEP_DTYPE, record
from shoal._fit.watch import asked_to_stop, leave, watching
from shoal._rows.zeros import warn_of_zeros
from shoal.kmeans import KMeans as LocalKMeans
from shoal.typing import Callbacks, Centers, Metric, PathName, RandomState

from . import checkpoint
from .engine import Engine, naming_losses, total_of
from .passes import KMeansPass, LabelPass, MiniBatchPass
from .seeding import first_sweep, rules_of_init


def timed(step: Step, elapsed: float, stop_reason: str | None) -> Step:
    """Return a step with its time and stop reason."""
    names = ("iteration", "rows_seen", "batch_size", "objective", "center_shift", "n_changed", "n_distances")
    figures = {name: getattr(step, name) for name in names}
    return Step(**figures, elapsed=elapsed, stop_reason=stop_reason)


@estimator
class KMeansOnEngine(Checked, BaseEstimator):
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

    #: The class of the passes.
    _pass: ClassVar[type[KMeansPass]] = KMeansPass

    #: Callbacks of local fits ask for a run; it has no meaning here.
    _run = None
    #: Whether an error ended the steps of the last fit.
    _failed = False

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
        try:
            self._check()
            self._forget()
            self._seed = _params.seed(self.random_state)
            with watching(self) as watchers:
                yield from self._steps(engine, watchers, resume_from)
                self._conclude(engine)
        finally:
            engine.close()

    # ---------------------------------------------------------------- the loop

    def _forget(self) -> None:
        """Delete the attributes of an earlier fit."""
        for name in [n for n in vars(self) if n.endswith("_") and not n.startswith("_")]:
            delattr(self, name)
        # The next pass.
        self._task: KMeansPass | None = None
        # The rows of `history_`.
        self._history: list[tuple[Any, ...]] = []
        # The limit of the squared length of the move of the centers; None before the first step.
        self._threshold: float | None = None
        self._labels: Any = None
        self._inertia: float | None = None
        self.stop_reason_: str | None = None
        self.init_, self.n_zero_rows_ = "", 0

    def _first(self, engine: Engine) -> KMeansPass:
        """Choose the first centers, and return the first pass. Sets `init_`."""
        task, self.init_ = first_sweep(self, engine)
        return task

    def _steps(self, engine: Engine, watchers: list[Any], resume_from: PathName | None) -> Iterator[Step]:
        """Seed or resume, then step to the end; call the callbacks' `leave` however the loop ends."""
        begun, before = time.monotonic(), 0.0
        try:
            if resume_from is None:
                task = self._first(engine)
            else:
                task, before = self._resumed(resume_from)
            self._take_over(task)
            while self.stop_reason_ is None:
                total = total_of(engine, task, self._known())
                task, step = task.commit(total)
                self.n_zero_rows_ = total.n_zero_rows
                if self._threshold is None:
                    self._threshold = float(self.tol) * task.variance
                step = timed(step, before + time.monotonic() - begun, self._reason(step))
                self._take_over(task)
                self._note(step)
                reason = asked_to_stop(watchers, self, step)
                if reason is not None:
                    step = step.with_reason(reason)
                    self._history.pop()
                    self._note(step)
                yield step
        except BaseException as error:
            leave(self, watchers, error)
            raise
        leave(self, watchers, None)

    def _reason(self, step: Step) -> str | None:
        """Return why the fit ends with this step; None to continue."""
        if step.stop_reason is not None:
            return step.stop_reason
        if self._threshold is not None and step.center_shift**2 <= self._threshold:
            return "tolerance"
        return "max-iter" if step.iteration >= self.max_iter else None

    def _known(self) -> str:
        """Say which state an estimator holds after a failure."""
        if self._task is None:
            return "No centers are chosen yet."
        if not self._history:
            return "No step is complete: cluster_centers_ holds the first centers."
        return (
            f"The estimator holds the state after step {len(self._history)}; the callback Checkpoint writes "
            "it to a file, from which fit(..., resume_from=path) continues."
        )

    def _take_over(self, task: KMeansPass) -> None:
        """Set the attributes that belong to the centers of a pass."""
        self._task = task
        self.cluster_centers_, self.counts_ = task.centers, task.counts
        self.n_iter_, self.n_features_in_ = task.iteration, task.centers.shape[1]
        names = task._state.names
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)

    def _labeling(self) -> LabelPass:
        """Return the pass that labels rows with the features of the fit."""
        task = LabelPass(self.cluster_centers_, metric=self.metric)
        names = getattr(self, "feature_names_in_", None)
        task._names = None if names is None else names.tolist()
        return task

    def _note(self, step: Step) -> None:
        self._history.append(record(step))
        self.stop_reason_ = step.stop_reason

    def _conclude(self, engine: Engine) -> None:
        """Measure the inertia of the final centers, and label the rows."""
        assert self._task is not None
        # The last sweep of exact k-means had these centers; batches of an epoch have centers of their own.
        if self.stop_reason_ == "labels-stable" and type(self._task) is KMeansPass:
            self._inertia = float(self._history[-1][3])
        else:
            final = KMeansPass(self.cluster_centers_, metric=self.metric)._after(self._task)
            total = total_of(engine, final, self._known())
            # Compares the rows with those of the passes before; the centers do not move any more.
            final.commit(total)
            self._inertia, self.counts_, self.n_zero_rows_ = total.inertia, total.counts, total.n_zero_rows
        if self.compute_labels:
            with naming_losses(engine, self._known()):
                self._labels = engine.labels(self._labeling())
        warn_of_zeros(self.n_zero_rows_)
        found = int(np.count_nonzero(self.counts_))
        if found < self.n_clusters:
            warn(
                f"Number of distinct clusters ({found}) found smaller than n_clusters ({self.n_clusters}). "
                "Possibly due to duplicate points in X.",
                ConvergenceWarning,
            )

    # ---------------------------------------------------------------- checkpoints

    def _write_checkpoint(self, path: str) -> None:
        """Write a checkpoint as of the last complete step; called by `shoal.callbacks.Checkpoint`."""
        assert self._task is not None
        progress = checkpoint.FitState(
            self._task.to_bytes(), self._threshold, self._history, self.init_, self.n_zero_rows_
        )
        checkpoint.write(path, type(self).__name__, self.get_params(deep=False), progress)

    def _is_before_first_step(self) -> bool:
        # A first step that failed would fail again.
        return self._task is not None and not self._history and not self._failed

    def _step_limit(self) -> int:
        return int(self.max_iter)

    def _resumed(self, path: PathName) -> tuple[KMeansPass, float]:
        """Restore the state of a checkpoint; return the next pass and the seconds so far."""
        name = os.fsdecode(path)
        found = checkpoint.read(path, type(self).__name__, self.get_params(deep=False))
        try:
            task = self._pass.from_bytes(found.task)
            if task.centers.shape[0] != self.n_clusters or task.metric != self.metric:
                raise ValueError("is damaged: its pass has other centers than its parameters say")
            if task.iteration != len(found.history):
                raise ValueError(
                    f"is damaged: its pass comes after {task.iteration} steps, its history has "
                    f"{len(found.history)}"
                )
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        self._history, self._threshold, self.init_ = list(found.history), found.threshold, found.init
        self.n_zero_rows_ = found.n_zero_rows
        if found.history and self._reason_of_last() in ("tolerance", "labels-stable", "max-iter"):
            self.stop_reason_ = self._reason_of_last()
        return task, float(self._history[-1][7]) if self._history else 0.0

    def _reason_of_last(self) -> str:
        return str(self._history[-1][-1])

    # ---------------------------------------------------------------- results

    @property
    def history_(self) -> npt.NDArray[np.void]:
        """Structured array with one row per step."""
        check_is_fitted(self, "cluster_centers_")
        return np.array(self._history, dtype=STEP_DTYPE)

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

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted estimator with the same parameters and copies of the callbacks."""
        return clone_estimator(self)

    # ---------------------------------------------------------------- parameters

    def _rules(self, problems: _params.Problems) -> None:
        p = _params
        super()._rules(problems)
        problems.check(p.at_least_0, "tol", self.tol)
        p.check_callbacks(problems, self.callbacks)
        problems.check(p.threads, self.n_jobs)
        problems.check(p.verbosity, self.verbose)
        rules_of_init(self, problems)


@estimator
class MiniBatchKMeansOnEngine(KMeansOnEngine):
    """Mini-batch k-means over an engine."""

    _: KW_ONLY
    batch_size: int = 1024
    max_iter: int = 10

    _pass = MiniBatchPass

    def _first(self, engine: Engine) -> MiniBatchPass:
        task = super()._first(engine)
        return MiniBatchPass(task.centers, batch_size=self.batch_size, metric=self.metric)._after(task)
