"""The run loop of all estimators, on one machine or many: steps, callbacks, history and the end of a fit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt

from shoal._checks import params as _params
from shoal._core import Step
from shoal._rows.zeros import warn_of_zeros
from shoal.typing import PathName

from .bases import BaseEstimator
from .cloning import clone_estimator
from .declared import Checked
from .history import STEP_DTYPE, record
from .saved import State
from .watch import asked_to_stop, leave, reporting_to


class Steps(Protocol):
    """A running fit, as the loop advances it."""

    def step(self) -> Step | None:
        """Make one step; return None after the last one."""
        ...

    def stop(self, reason: str) -> None:
        """End the run after the last step."""
        ...

    def know_rows(self) -> None:
        """Sample the rows for a checkpoint, before the first pass."""
        ...


class RunLoop(Checked, BaseEstimator):
    """Base class of the estimators that are fitted in steps."""

    stop_reason_: str | None
    n_zero_rows_: int
    callbacks: Any
    verbose: Any
    n_jobs: Any

    #: Attributes that a fit sets before those of the earlier fit are deleted.
    _set_early: ClassVar[tuple[str, ...]] = ()
    #: The running fit.
    _run: Any = None
    #: Whether an error ended the steps of the last run.
    _failed = False
    #: The checkpoint from which the running fit was resumed.
    _resumed_from: PathName | None = None
    #: The call that resumes a checkpoint, for messages.
    _resume_call: ClassVar[str] = "shoal.resume(path, X)"

    @property
    def _threads(self) -> int | None:
        """The number of threads; None means all that this process may use."""
        return _params.threads(self.n_jobs, tell=False)

    def _forget(self) -> None:
        """Delete the attributes of an earlier fit."""
        fitted = [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]
        for name in fitted:
            if name not in self._set_early:
                delattr(self, name)
        self._run = None
        # The rows of `history_`.
        self._history: Any = []
        self.stop_reason_ = None

    def _driven(
        self, run: Steps, watchers: list[Any], prepare: Callable[[], object] | None = None
    ) -> Generator[Step]:
        """Call `prepare`, make the remaining steps of the current run, one per ``next()``, and end the fit.

        The callbacks are called after every step, and their `leave` however the steps end.
        """
        try:
            if prepare is not None:
                with reporting_to(watchers, self):
                    prepare()
            # `partial_fit` or another fit between two steps replaces `_run`, and ends this one.
            while self._run is run and (step := self._next(run, watchers)) is not None:
                self._history.append(record(step))
                self.stop_reason_ = step.stop_reason
                self._update(run, step)
                reason = asked_to_stop(watchers, self, step)
                if self._run is not run:
                    return
                if reason is not None:
                    run.stop(reason)
                    step = step.with_reason(reason)
                    self._history[-1] = record(step)
                    self.stop_reason_ = reason
                yield step
        except BaseException as error:
            if self._run is run:
                leave(self, watchers, error)
            raise
        if self._run is run:
            leave(self, watchers, None)
        # A callback that was left may have begun another fit.
        if self._run is run:
            with reporting_to(watchers, self):
                self._conclude(run)
            warn_of_zeros(self.n_zero_rows_)

    def _next(self, run: Steps, watchers: list[Any]) -> Step | None:
        """Make one step, and report its progress to the callbacks."""
        with reporting_to(watchers, self):
            return run.step()

    @abstractmethod
    def _update(self, run: Any, step: Step | None) -> None:
        """Set the attributes that are known after a step without another pass."""

    @abstractmethod
    def _conclude(self, run: Any) -> None:
        """Finish the run and release the rows."""

    @abstractmethod
    def _write_checkpoint(self, path: str) -> None:
        """Write a checkpoint of the run, as of its last complete step."""

    @abstractmethod
    def _compare_checkpoint(self, name: str, state: State) -> None:
        """Raise `ValueError` if a checkpoint has not the parameters and the rows of the run."""

    def _is_before_first_step(self) -> bool:
        """Whether the run has made no step, but can be checkpointed."""
        # A first step that failed would fail again.
        return not self._failed and not len(self._history)

    def _step_limit(self) -> int | None:
        """Return the largest number of steps, or None if there is no limit."""
        limit: int | None = getattr(self, "max_iter", None)
        return limit

    def _rules_of_a_run(self, problems: _params.Problems) -> None:
        """Check `callbacks`, `n_jobs` and `verbose`."""
        p = _params
        p.check_callbacks(problems, self.callbacks)
        problems.check(p.threads, self.n_jobs)
        problems.check(p.verbosity, self.verbose)

    @property
    def history_(self) -> npt.NDArray[np.void]:
        """Structured array with one row per step."""
        if "_history" not in self.__dict__:
            raise _params.missing_attribute(self, "history_")
        return np.array(self._history, dtype=STEP_DTYPE)

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted estimator with the same parameters, for :func:`sklearn.base.clone`.

        Callbacks are copied. Those that cannot be copied, for example with an open file, are shared.
        """
        return clone_estimator(self)
