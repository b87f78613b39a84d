"""The validation curve of a fit: error on held-out rows against time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from shoal._core import Step
from shoal.callbacks import Callback


@dataclass(frozen=True)
class Point:
    """The scores of held-out rows after one step."""

    iteration: int
    seconds: float
    rows: int
    energy: float


class EnergyCurve(Callback):
    """Score held-out rows after the first step, and whenever 10% more rows have been read.

    The number of points grows with the logarithm of the rows read and does not depend on a clock. The seconds
    of a point count steps only. `spent` is the total time of the scoring.
    """

    #: The next point is due at this many tenths of the rows of the last point.
    GROWTH = 11

    def __init__(self, held_out: Any) -> None:
        self.held_out = held_out
        self.points: list[Point] = []
        self.spent = 0.0

    def __call__(self, estimator: Any, step: Step) -> bool | None:
        if not self.points or 10 * step.rows_seen >= self.GROWTH * self.points[-1].rows:
            self._add(step.iteration, step.elapsed, step.rows_seen, estimator)
        return None

    def conclude(self, model: Any) -> None:
        """Add a point for the finished model, which can differ from the model of the last step."""
        last = model.history_[-1]
        self._add(int(last["iteration"]), float(last["elapsed"]), int(last["rows_seen"]), model)
        if len(self.points) > 1 and self.points[-2].rows == self.points[-1].rows:
            del self.points[-2]

    def _add(self, iteration: int, seconds: float, rows: int, model: Any) -> None:
        begun = time.perf_counter()
        energy = model._energy(self.held_out) / self.held_out._total_weight
        self.spent += time.perf_counter() - begun
        self.points.append(Point(iteration, seconds, rows, energy))
