"""The validation curve of a fit: the energy of held-out rows over seconds and over rows read."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from shoal._core import Step
from shoal.callbacks import Callback


@dataclass(frozen=True)
class Point:
    """A model on its way: seconds in steps, rows read so far, mean squared distance of the held-out rows."""

    iteration: int
    seconds: float
    rows: int
    energy: float


class EnergyCurve(Callback):
    """Scores held-out rows after the first step, and again whenever a tenth more rows have been read.

    So the number of points grows with the logarithm of the work, whatever the length of a step, and no clock
    decides. The seconds are those of the steps: scoring, which takes `spent` in all, is not in them.
    """

    #: Tenths of the rows at the last point that make the next one.
    GROWTH = 11

    def __init__(self, held_out: Any) -> None:
        self.held_out = held_out
        self.points: list[Point] = []
        self.spent = 0.0

    def __call__(self, estimator: Any, step: Step) -> bool | None:
        """Score the present model, if its turn has come."""
        if not self.points or 10 * step.rows_seen >= self.GROWTH * self.points[-1].rows:
            self._add(step.iteration, step.elapsed, step.rows_seen, estimator)
        return None

    def conclude(self, model: Any) -> None:
        """Add the finished model, which is not always that of the last step."""
        last = model.history_[-1]
        self._add(int(last["iteration"]), float(last["elapsed"]), int(last["rows_seen"]), model)
        if len(self.points) > 1 and self.points[-2].rows == self.points[-1].rows:
            del self.points[-2]

    def _add(self, iteration: int, seconds: float, rows: int, model: Any) -> None:
        begun = time.perf_counter()
        energy = model._energy(self.held_out) / len(self.held_out)
        self.spent += time.perf_counter() - begun
        self.points.append(Point(iteration, seconds, rows, energy))
