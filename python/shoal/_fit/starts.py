"""Restarts of `KMeans` with a callable `init`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from shoal import _core
from shoal._core import Run, Step

from .estimator import PHASES
from .saved import Arrays, Claims, State, Texts, floats, need, part, put

#: The text that marks a checkpoint of `Starts`.
STARTS = "starts"
#: Attributes and methods that come from a single run.
OF_ONE_RUN = ("algorithm", "centers", "counts", "inertia", "init", "labels", "n_iter")
#: Starts a run with the callable of the user.
Maker = Callable[[np.random.RandomState], Run]
#: Fields of a step.
COUNTS = ("iteration", "rows_seen", "batch_size", "n_changed", "n_distances")
FIGURES = ("objective", "center_shift", "elapsed")


class Starts:
    """Runs from several initial centers, one after the other; the lowest inertia wins."""

    def __init__(self, make: Maker | None, n_init: int, random_state: np.random.RandomState) -> None:
        self._make = make
        self._left = n_init
        self._random_state = random_state
        self._current: Run | None = None
        self._best: Run | None = None
        #: Steps of the runs before the current one.
        self._steps: list[Step] = []
        #: Seconds of the runs that lost.
        self._spent: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        #: Random state before the current run.
        self._before: Any = random_state.get_state(legacy=True)
        self._stopped = False

    def step(self) -> Step | None:
        """Make one sweep of the current run; return None after the last run."""
        if self._stopped:
            return None
        if self._current is None:
            if self._left == 0:
                return None
            if self._make is None:
                raise ValueError(
                    "init was a callable, which a checkpoint cannot hold, and "
                    f"{self._left} of its starts are left: pass it again as init="
                )
            self._before = self._random_state.get_state(legacy=True)
            try:
                self._current = self._make(self._random_state)
            except BaseException:
                # The start is made again, with the same draws.
                self._random_state.set_state(self._before)
                raise
            self._left -= 1
        # None: the run ended before, but an interrupt came before its last step was reported.
        step = self._current.step() or self._current.history()[-1]
        if self._steps:
            step = step.after(self._steps[-1])
        if step.stop_reason is None:
            return step
        before = self.history()
        self._current.finish()
        if self._best is None or self._current.inertia() < self._best.inertia():
            self._current, self._best = self._best, self._current
        self._let_go()
        self._steps = [*before, step.with_reason(None) if self._left else step]
        return self._steps[-1]

    def history(self) -> list[Step]:
        """Return all steps so far."""
        now = [] if self._current is None else self._current.history()
        if now and now[-1].stop_reason is not None and not self._stopped:
            # An interrupt came before this last step was reported. `step` will report it.
            now = now[:-1]
        return self._steps + ([step.after(self._steps[-1]) for step in now] if self._steps else now)

    def write_checkpoint(self, path: str, arrays: Arrays, meta: Texts) -> None:
        """Write a checkpoint with the given arrays and texts added."""
        current, left = self._current, self._left
        state: Any = self._random_state.get_state(legacy=True)
        if current is not None and not current.history():
            # Without a step the run begins anew.
            current, left, state = None, left + 1, self._before
        keys, at, has_gauss, gauss = state[1:]
        reason = self._steps[-1].stop_reason if self._steps and not self._stopped else None
        about = {"left": left, "spent": self._spent, "at": at, "has_gauss": has_gauss, "reason": reason}
        arrays = {**arrays, "starts.keys": keys, "starts.gauss": np.array([gauss])}
        for field in COUNTS + FIGURES:
            dtype = np.int64 if field in COUNTS else np.float64
            arrays[f"starts.{field}"] = np.array([getattr(step, field) for step in self._steps], dtype=dtype)
        meta = {**meta, STARTS: json.dumps(about)}
        kind = ""
        for which, run in (("best.", self._best), ("current.", current)):
            if run is not None:
                kind, own, about_run = run.checkpoint()
                more, texts = put(which, own, about_run)
                arrays |= more
                meta |= texts
        _core.save_model(path, kind, arrays, meta)

    @classmethod
    def resumed(cls, make: Maker | None, resume: Callable[[State], Run], state: State) -> Starts:
        """Restore the runs from a checkpoint."""
        kind, arrays, texts = state
        about = Claims.read(texts, STARTS)
        keys = arrays.get("starts.keys", np.empty(0))
        need(keys.dtype == np.uint32 and keys.shape == (624,), "it lacks its random state")
        at, has_gauss = about.count("at"), about.count("has_gauss")
        need(at <= 624 and has_gauss <= 1, "its random state is invalid")
        gauss = float(floats(arrays, "starts.gauss", (1,))[0])
        random_state = np.random.RandomState()
        random_state.set_state(("MT19937", keys.astype(np.uint32), at, has_gauss, gauss))
        starts = cls(make, about.count("left"), random_state)
        starts._spent = about.figures("spent", PHASES)
        runs = []
        for which in ("best.", "current."):
            mine = part(which, arrays, texts)
            runs.append(resume((kind, *mine)) if mine[1] else None)
        starts._best, starts._current = runs
        need(runs != [None, None], "it holds no start")
        columns = [arrays.get(f"starts.{field}", np.empty(())) for field in COUNTS + FIGURES]
        need(all(column.shape == columns[0].shape != () for column in columns), "its steps are inconsistent")
        for values in zip(*(column.tolist() for column in columns), strict=True):
            fields: dict[str, Any] = dict(zip(COUNTS + FIGURES, values, strict=True))
            starts._steps.append(Step(**fields, stop_reason=None))
        if starts._steps:
            starts._steps[-1] = starts._steps[-1].with_reason(about.text("reason", optional=True))
        return starts

    def know_rows(self) -> None:
        """Do nothing: each run samples the rows for its checkpoint itself."""

    def stop(self, reason: str) -> None:
        """End after the last step. A checkpoint written before `finish` can be resumed."""
        if self._current is not None:
            self._current.stop(reason)
        elif self._steps:
            self._steps[-1] = self._steps[-1].with_reason(reason)
        self._stopped = True

    def _let_go(self) -> None:
        """Drop the current run; keep its timings."""
        if self._current is not None:
            for phase, seconds in self._current.timings().items():
                self._spent[phase] += seconds
        self._current = None

    @property
    def _shown(self) -> Run:
        run = self._best or self._current
        assert run is not None, "no step was made"
        return run

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the best finished run, or of the current run if none has finished."""
        if name not in OF_ONE_RUN:
            raise AttributeError(name)
        return getattr(self._shown, name)

    def finish(self) -> None:
        """Compute labels and inertia of the best run; drop an unfinished one."""
        self._steps = self.history()
        if self._best is None:
            self._current, self._best = None, self._current
        self._let_go()
        self._left = 0
        self._shown.finish()

    def timings(self) -> dict[str, float]:
        """Seconds by phase, over all runs."""
        runs = [run.timings() for run in (self._best, self._current) if run is not None]
        return {phase: sum((run[phase] for run in runs), spent) for phase, spent in self._spent.items()}

    @property
    def zero_rows(self) -> int:
        """Rows of zeros; every run reads all rows."""
        return max((run.zero_rows for run in (self._best, self._current) if run is not None), default=0)
