"""A fit over an engine: a pass per step, and the stop rules of k-means."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._core import Step
from shoal._fit.history import FIGURES
from shoal.typing import Metric

from .checkpoint import FitState
from .engine import Engine, naming_losses, total_of
from .kept import FITS
from .passes import KMeansPass, LabelPass
from .ranges import RangedSweep, RangeEngine

#: Reasons for which a fit ends by itself. A fit that was stopped for another reason can be resumed.
COMPLETE = ("tolerance", "labels-stable", "max-iter")


class EngineRun:
    """The run of a distributed estimator, for the loop of :class:`shoal._fit.loop.RunLoop`.

    `tol` is in units of the variance of the rows.
    """

    #: The next pass, once the first centers are chosen.
    task: KMeansPass | RangedSweep
    #: How the first centers were chosen; empty before.
    init = ""

    def __init__(self, engine: Engine, tol: float, max_iter: int, memory: int) -> None:
        self.engine = engine
        self._tol, self._max_iter = tol, max_iter
        # The fit, if its workers keep state.
        self._fit = FITS.begin(memory, max_iter, engine.n_partitions) if memory and engine.keeps else None
        # Whether the objective of the last step was summed about its centers.
        self._is_exact = False
        self._started = time.monotonic()
        self.stop_reason: str | None = None
        self.n_zero_rows = 0
        # The limit of the squared length of the move of the centers; None before the first step.
        self.threshold: float | None = None
        # The objective of the last step; after `finish`, that of the final centers.
        self.inertia = 0.0

    def begin(self, task: KMeansPass, init: str) -> None:
        """Begin with a first pass."""
        with naming_losses(self.engine, "No step is complete."):
            ranged = self.engine.ranged(task) if isinstance(self.engine, RangeEngine) else None
            self.task = self._kept(ranged or task)
        self.init = init

    def _kept(self, task: KMeansPass | RangedSweep) -> KMeansPass | RangedSweep:
        """Return the same pass, whose workers keep state if they can; results do not depend on it."""
        return task._of_fit(None if self._fit is None else FITS.now(self._fit))

    def resume(self, task: KMeansPass, state: FitState) -> None:
        """Begin where another fit ended."""
        self.begin(task, state.init)
        self.threshold, self.n_zero_rows = state.threshold, state.n_zero_rows
        if state.history:
            last = dict(zip(FIGURES, state.history[-1], strict=False))
            self.inertia, self._started = last["objective"], self._started - last["elapsed"]
            reason = state.history[-1][-1]
            self.stop_reason = reason if reason in COMPLETE else None

    def step(self) -> Step | None:
        """Run a pass; return None if the fit is complete."""
        if self.stop_reason is not None:
            return None
        is_exact = not self.task._has_points
        task, step, self.n_zero_rows = self._swept(self.task)
        self.task, self._is_exact, self.inertia = self._kept(task), is_exact, step.objective
        if self.threshold is None:
            self.threshold = self._tol * task.variance
        self.stop_reason = self._reason(step, self.threshold)
        figures = {name: getattr(step, name) for name in FIGURES}
        figures["elapsed"] = time.monotonic() - self._started
        return Step(**figures, stop_reason=self.stop_reason)

    def _swept(self, task: KMeansPass | RangedSweep) -> tuple[KMeansPass | RangedSweep, Step, int]:
        """Run a pass; return the next one, the figures of this one and the number of rows of zeros."""
        if isinstance(task, RangedSweep):
            with naming_losses(self.engine, self.known()):
                return task.swept()
        total = total_of(self.engine, task, self.known())
        return *task.commit(total), total.n_zero_rows

    def _reason(self, step: Step, threshold: float) -> str | None:
        """Return why the fit ends with this step; None to continue."""
        if step.stop_reason is not None:
            return step.stop_reason
        if step.center_shift**2 <= threshold:
            return "tolerance"
        return "max-iter" if step.iteration >= self._max_iter else None

    def stop(self, reason: str) -> None:
        """End the fit after the last step."""
        self.stop_reason = reason

    def close(self) -> None:
        """Free the states of the fit, and close the engine."""
        try:
            if self._fit is not None:
                FITS.end(self._fit)
                self.engine.forget(self._fit.fit)
        finally:
            self.engine.close()

    def know_rows(self) -> None:
        """Do nothing: every commit compares the rows with those of the pass before."""

    def finish(self, metric: Metric) -> npt.NDArray[np.float64]:
        """Measure the inertia of the final centers, and return the weight of their rows."""
        # The last sweep had these centers.
        if self.stop_reason == "labels-stable" and self._is_exact:
            return self.task.counts
        if isinstance(self.task, RangedSweep):
            with naming_losses(self.engine, self.known()):
                found = self.task.measured()
            self.inertia, self.n_zero_rows = found.inertia, found.zero_rows
            return found.counts
        final = KMeansPass(self.task.centers, metric=metric)._after(self.task)
        final._fit = self.task._fit
        total = total_of(self.engine, final, self.known())
        # Compares the rows with those of the passes before; the centers do not move any more.
        final.commit(total)
        self.inertia, self.n_zero_rows = total.inertia, total.n_zero_rows
        return total.counts

    def labels(self, task: LabelPass) -> Any:
        """Label the rows, in the engine's own kind of collection."""
        task._fit = self.task._fit
        with naming_losses(self.engine, self.known()):
            return self.engine.rows(task)

    def known(self) -> str:
        """Say which state the estimator holds after a failure."""
        if not self.task.iteration:
            return "No step is complete: cluster_centers_ holds the first centers."
        lost = ""
        if isinstance(self.task, RangedSweep):
            step, _ = self.task.at_hand
            lost = f", or the centers after step {step} if the later ones are lost"
        return (
            f"The estimator holds the state after step {self.task.iteration}{lost}; the callback Checkpoint "
            "writes it to a file, from which fit(..., resume_from=path) continues."
        )
