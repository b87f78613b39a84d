"""Watching a fit, and ending it.

A callback is any callable ``cb(estimator, step) -> bool | None``, called after every step; a true result ends
the run cleanly. The classes here are ready ones. A callback that is a :class:`Callback` is also told when a
run begins and ends, so that one object can serve several fits.

Examples
--------
>>> import numpy as np, shoal
>>> X = np.random.default_rng(0).normal(size=(1000, 2))
>>> model = shoal.KMeans(5, random_state=0, callbacks=[lambda est, step: step.iteration >= 2]).fit(X)
>>> model.stop_reason_, len(model.history_)
('callback', 2)
"""

from __future__ import annotations

import logging
import os
import sys
import time
from abc import ABC, abstractmethod
from typing import Any

from ._common.files import check_place, is_name
from ._common.outputs import MODELS, check_suffix
from ._common.params import ParameterError, is_real, shown, whole
from ._core import Step
from ._rows.streams import refuse_once
from .typing import PathName, Rows

__all__ = [
    "Callback",
    "Checkpoint",
    "Deadline",
    "EarlyStopping",
    "LogSteps",
    "ProgressBar",
    "ValidationCurve",
]


class Callback(ABC):
    """Base of the ready callbacks; derive from it to be told of a run's begin and end.

    Attributes
    ----------
    reason : str
        What ``stop_reason_`` says when this callback ends a run: ``"callback"``, ``"deadline"`` or
        ``"patience"``.
    """

    reason: str = "callback"

    def begin(self, estimator: Any) -> None:  # noqa: B027 - whoever needs it
        """Prepare for a run that is about to begin."""

    @abstractmethod
    def __call__(self, estimator: Any, step: Step) -> bool | None:
        """Look at a step; True ends the run."""

    def leave(self, estimator: Any) -> None:  # noqa: B027 - as above
        """Look at what the last whole step left: the run is over, was left, or failed. Then comes its end."""

    def end(self, estimator: Any) -> None:  # noqa: B027 - as above
        """Clean up after a run."""


class ProgressBar(Callback):
    """A line on stderr that moves on with every step: by tqdm where it is installed, else plain text.

    Parameters
    ----------
    label : str, optional
        What stands before the figures. Default: the name of the estimator's class.
    """

    def __init__(self, label: str | None = None) -> None:
        self.label = label
        self._bar: Any = None
        self._width = 0

    def __getstate__(self) -> dict[str, Any]:
        """Leave the bar on the screen out of the pickle."""
        return {"label": self.label, "_bar": None, "_width": 0}

    def begin(self, estimator: Any) -> None:
        """Open the bar."""
        label = self.label or type(estimator).__name__
        self._width = 0
        try:
            from tqdm.auto import tqdm
        except ImportError:
            self._bar = label
        else:
            limit = estimator._step_limit() if hasattr(estimator, "_step_limit") else None
            self._bar = tqdm(total=limit, desc=label, unit="step", leave=True, file=sys.stderr)

    def __call__(self, estimator: Any, step: Step) -> bool | None:
        """Show a step."""
        if self._bar is None:
            self.begin(estimator)
        if isinstance(self._bar, str):
            text = f"{self._bar}: step {step.iteration}, objective {step.objective:.6g}, {step.elapsed:.1f} s"
            sys.stderr.write("\r" + text.ljust(self._width))
            sys.stderr.flush()
            self._width = len(text)
        elif self._bar is not None:
            self._bar.set_postfix_str(f"objective={step.objective:.6g}", refresh=False)
            self._bar.update(1)
        return None

    def end(self, estimator: Any) -> None:
        """Close the bar."""
        if isinstance(self._bar, str):
            if self._width:
                sys.stderr.write("\n")
        elif self._bar is not None:
            self._bar.close()
        self._bar = None


class Checkpoint(Callback):
    """Keep a fit that is on its way in a file, from which :func:`shoal.resume` goes on.

    One safetensors file, written to another name, flushed to the disk and renamed: whatever kills the
    process, the last whole one is there. It holds labels, sums, counts, positions and the state of all random
    draws, but neither rows nor bounds. One is written when so much time has gone by since the last one, and
    one more when the run ends, is left, or fails, by Ctrl-C too: it is that of the last whole step.

    Parameters
    ----------
    path : str, bytes or os.PathLike
        The file; one that exists is replaced.
    every : float, default=60.0
        Seconds between two of them, at least 0.
    every_steps : int, optional
        Write one after so many steps instead, however long they take.

    Raises
    ------
    ValueError
        For an interval that is none; at the begin of a run, for a suffix of another known format.
    OSError
        At the begin of a run, when there can be no such file, and when it cannot be written.

    Examples
    --------
    >>> import numpy as np, shoal, tempfile
    >>> from shoal.callbacks import Checkpoint
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = f"{folder}/run.safetensors"
    ...     for step in shoal.KMeans(8, random_state=0, callbacks=[Checkpoint(path)]).iter_fit(X):
    ...         if step.iteration == 3:
    ...             break
    ...     model = shoal.resume(path, X)
    >>> bool((model.cluster_centers_ == shoal.KMeans(8, random_state=0).fit(X).cluster_centers_).all())
    True
    """

    def __init__(self, path: PathName, every: float = 60.0, every_steps: int | None = None) -> None:
        if not is_name(path) or not os.fspath(path):
            raise ParameterError(f"path must be the name of a file, got {shown(path)}")
        if not is_real(every) or not every >= 0:
            raise ParameterError(f"every must be a number of seconds of at least 0, got {shown(every)}")
        self.path = path
        self.every = every
        self.every_steps = None if every_steps is None else whole("every_steps", every_steps, 1)
        self._written = 0.0
        self._steps = 0

    def begin(self, estimator: Any) -> None:
        """See whether there can be such a file."""
        check_place(self.path)
        check_suffix("path", self.path, MODELS)
        if estimator._run is not None:
            # Now, since a stream cannot be read from its beginning while a pass is under way.
            estimator._run.know_rows()
        self._written, self._steps = time.monotonic(), 0

    def __call__(self, estimator: Any, step: Step) -> bool | None:
        """Write one when it is time."""
        self._steps += 1
        if self.every_steps is None:
            due = time.monotonic() - self._written >= self.every
        else:
            due = self._steps >= self.every_steps
        if due:
            self._write(estimator)
        return None

    def leave(self, estimator: Any) -> None:
        """Write the last one."""
        if self._steps:
            self._write(estimator)

    def _write(self, estimator: Any) -> None:
        estimator._write_checkpoint(os.fsdecode(self.path))
        self._written, self._steps = time.monotonic(), 0


class Deadline(Callback):
    """End the run with the first step after some time.

    Parameters
    ----------
    seconds : float
        Time to spend in steps (``step.elapsed``), seeding included, in seconds; positive. A step is never cut
        short.
    """

    reason = "deadline"

    def __init__(self, seconds: float) -> None:
        if not (is_real(seconds) and seconds > 0):
            raise ParameterError(f"seconds must be a positive number, got {shown(seconds)}")
        self.seconds = seconds

    def __call__(self, estimator: Any, step: Step) -> bool | None:
        """Compare the clock."""
        return step.elapsed >= self.seconds


class LogSteps(Callback):
    """Write every step to a logger.

    Parameters
    ----------
    logger : logging.Logger, optional
        Default: the logger ``"shoal"``.
    level : int
        Level of the messages.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self.logger = logging.getLogger("shoal") if logger is None else logger
        self.level = level

    def __call__(self, estimator: Any, step: Step) -> bool | None:
        """Log a step."""
        self.logger.log(
            self.level,
            "%s step %d: objective %.9g, center shift %.3g, %d labels changed, %.3f s%s",
            type(estimator).__name__,
            step.iteration,
            step.objective,
            step.center_shift,
            step.n_changed,
            step.elapsed,
            f", ended: {step.stop_reason}" if step.stop_reason else "",
        )
        return None


class ValidationCurve(Callback):
    """Score held-out rows after every step.

    Parameters
    ----------
    X_val : rows
        Anything that the estimator's ``score`` takes.
    every : int
        Score every so many steps only; at least 1. A pass over `X_val` each.

    Attributes
    ----------
    iterations_ : list of int
        The steps scored in the last run.
    elapsed_ : list of float
        Seconds of the run at each.
    scores_ : list of float
        ``estimator.score(X_val)`` at each: minus the inertia for the k-means family.
    """

    def __init__(self, X_val: Rows, every: int = 1) -> None:
        refuse_once(X_val, type(self).__name__)
        self.X_val = X_val
        self.every = whole("every", every, 1)
        self._reset()

    def _reset(self) -> None:
        self.iterations_: list[int] = []
        self.elapsed_: list[float] = []
        self.scores_: list[float] = []

    def begin(self, estimator: Any) -> None:
        """Forget the last run; refuse an estimator that scores no rows."""
        if not hasattr(estimator, "score"):
            raise TypeError(
                f"{type(self).__name__} asks for score(X), which {type(estimator).__name__} does not have: "
                "its energy is that of the fitted rows alone"
            )
        self._reset()

    def __call__(self, estimator: Any, step: Step) -> bool | None:
        """Score the present model."""
        if step.iteration % self.every == 0 or step.stop_reason is not None:
            self.iterations_.append(step.iteration)
            self.elapsed_.append(step.elapsed)
            self.scores_.append(float(estimator.score(self.X_val)))
        return None

    def plot(self, ax: Any = None) -> Any:
        """Draw the scores over the seconds; needs matplotlib.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw. Default: new axes.

        Returns
        -------
        matplotlib.axes.Axes
        """
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots()[1]
        ax.plot(self.elapsed_, self.scores_, marker=".")
        ax.set_xlabel("seconds")
        ax.set_ylabel("score of the held-out rows")
        return ax


class EarlyStopping(ValidationCurve):
    """End the run when held-out rows no longer gain.

    Parameters
    ----------
    X_val : rows
        Anything that the estimator's ``score`` takes. Scored after every step: a pass over `X_val` each.
    patience : int
        Steps without a gain after which the run ends; at least 1.
    min_delta : float
        What the score must rise by to count as a gain, in the units of ``score``; at least 0.

    Attributes
    ----------
    best_score_ : float
        The best score of the last run.
    """

    reason = "patience"

    def __init__(self, X_val: Rows, patience: int = 10, min_delta: float = 0.0) -> None:
        super().__init__(X_val)
        self.patience = whole("patience", patience, 1)
        if not (is_real(min_delta) and min_delta >= 0):
            raise ParameterError(f"min_delta must be a number of at least 0, got {shown(min_delta)}")
        self.min_delta = min_delta

    def _reset(self) -> None:
        super()._reset()
        self.best_score_ = float("-inf")
        self._waited = 0

    def __call__(self, estimator: Any, step: Step) -> bool | None:
        """Score the present model, and compare with the best."""
        super().__call__(estimator, step)
        if self.scores_[-1] > self.best_score_ + self.min_delta:
            self.best_score_ = self.scores_[-1]
            self._waited = 0
        else:
            self._waited += 1
        return self._waited >= self.patience
