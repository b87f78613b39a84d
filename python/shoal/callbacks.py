"""Callbacks that watch a fit and can stop it.

A callback is any callable ``cb(estimator, step) -> bool | None``. It is called after every step; a true
result ends the fit cleanly. ``partial_fit`` of an estimator calls it after every batch and ignores the
result. This module has ready callbacks. A callback that derives from :class:`Callback` also learns when a fit
or a call of ``partial_fit`` begins and ends, so that one object can serve several of them.

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
import warnings
from abc import ABC, abstractmethod
from typing import Any

from ._checks.params import ParameterError, is_real, shown, whole
from ._core import Step
from ._files.outputs import MODELS, check_output
from ._files.staged import is_name
from ._fit.earlier import refuse_to_replace
from ._rows.checked import open_or_check
from ._rows.streams import refuse_once
from ._rows.zeros import ignore_zeros
from ._terminal.progress import Bar, format_progress
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
    """Base of the ready callbacks, with hooks for the begin and the end of a fit.

    Attributes
    ----------
    reason : str
        The value of ``stop_reason_`` if this callback ends a fit: ``"callback"``, ``"deadline"`` or
        ``"patience"``.
    """

    reason: str = "callback"

    def begin(self, estimator: Any) -> None:  # noqa: B027 - optional hook
        """Prepare for a fit that is about to begin."""

    @abstractmethod
    def __call__(self, estimator: Any, step: Step) -> bool | None:
        """Process a step; True ends the fit."""

    def working(self, estimator: Any, phase: str, share: float | None, seconds: float) -> None:  # noqa: B027
        """Show that a step is in progress.

        Called a few times per second during long steps. `phase` is ``"seeding"``, ``"neighbors"``,
        ``"coreset"``, ``"labels"``, or empty for a pass over the rows; `share` is the part that is done, None
        if unknown; `seconds` is the time since the step began. Not for results: how often it is called
        depends on the clock.
        """

    def leave(self, estimator: Any) -> None:  # noqa: B027 - as above
        """Process the last complete step, after the fit ended, was left or failed."""

    def end(self, estimator: Any) -> None:  # noqa: B027 - as above
        """Clean up after a fit; called after `leave`."""


class ProgressBar(Callback):
    """A progress line on stderr, by tqdm if it is installed, else as plain text.

    If stderr is neither a terminal nor a notebook, progress is a new line at the first step, every few
    seconds, and at the end.

    Parameters
    ----------
    label : str, optional
        Text before the figures. Default: the class name of the estimator.
    """

    def __init__(self, label: str | None = None) -> None:
        self.label = label
        self._bar: Bar | None = None
        #: Unit of work that has no objective, ``"row"`` for rows, and the total if it is known.
        self._counted: tuple[str, int | None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the picklable state, without the bar on the screen."""
        return {"label": self.label, "_bar": None, "_counted": None}

    def begin(self, estimator: Any) -> None:
        """Open the bar."""
        label = self.label or ("shoal" if estimator is None else type(estimator).__name__)
        step_limit = getattr(estimator, "_step_limit", None)
        limit = None if step_limit is None else step_limit()
        self._bar = Bar(label, *(self._counted or ("step", limit)))

    def __call__(self, estimator: Any, step: Step) -> bool | None:
        """Show a step."""
        if self._bar is None:
            self.begin(estimator)
        assert self._bar is not None
        text, done = f"step {step.iteration}, objective {step.objective:.6g}", 1
        note = f"objective={step.objective:.6g}"
        if self._counted is not None:
            unit, total = self._counted
            seen, done = (step.rows_seen, step.batch_size) if unit == "row" else (step.iteration, 1)
            text, note = f"{seen}{'' if total is None else f' of {total}'} {unit}s", ""
        self._bar.show(f"{text}, {step.elapsed:.1f} s", done=done, note=note)
        return None

    def working(self, estimator: Any, phase: str, share: float | None, seconds: float) -> None:
        """Show how far a long step has come."""
        if self._bar is not None:
            text = format_progress(phase, share, seconds)
            self._bar.show(text, note=text)

    def end(self, estimator: Any) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()
        self._bar = None


class Checkpoint(Callback):
    """Save an unfinished fit to a file, from which :func:`shoal.resume` continues.

    A checkpoint is one safetensors file. It is written to a temporary file, flushed to disk and renamed, so
    the last complete checkpoint survives if the process is killed. It holds labels, sums, counts, positions
    and the state of all random draws, but neither rows nor bounds. A checkpoint is written at regular
    intervals, and once more when the fit ends, is left, or fails, also by Ctrl-C. The last checkpoint holds
    the state after the last complete step.

    A fit that is interrupted before its first step ends leaves a checkpoint too: of the initial centers, if
    they are chosen, else of the parameters and the seed. Only the fit of a callable `init` with several
    starts leaves none before its first step.

    Parameters
    ----------
    path : str, bytes or os.PathLike
        The file. If it exists, the fit must be resumed from it, or `overwrite` be true.
    every : float, default=60.0
        Seconds between two checkpoints, at least 0.
    every_steps : int, optional
        Steps between two checkpoints; replaces `every`.
    overwrite : bool, default=False
        Whether the fit may replace any file, for example the checkpoint of another or of a finished fit.

    Attributes
    ----------
    n_steps_ : int or None
        Steps in the last checkpoint of the last fit; None if it wrote none.

    Raises
    ------
    ValueError
        If an argument is invalid, or if the suffix belongs to another format. Also when the fit begins and at
        the first write, if the file exists, `overwrite` is false and the fit was not resumed from it.
    OSError
        If the file cannot be created when the fit begins, or cannot be written later.

    See Also
    --------
    shoal.resume : Resume a fit from a checkpoint.

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

    def __init__(
        self,
        path: PathName,
        every: float = 60.0,
        every_steps: int | None = None,
        *,
        overwrite: bool = False,
    ) -> None:
        if not is_name(path) or not os.fspath(path):
            raise ParameterError(f"`path` must be the name of a file, got {shown(path)}")
        if not is_real(every) or not every >= 0:
            raise ParameterError(f"`every` must be a number of seconds of at least 0, got {shown(every)}")
        if not isinstance(overwrite, bool):
            raise ParameterError(f"`overwrite` must be True or False, got {shown(overwrite)}")
        self.path = path
        self.overwrite = overwrite
        self.every = every
        self.every_steps = None if every_steps is None else whole("every_steps", every_steps, 1)
        self.n_steps_: int | None = None
        self._written = 0.0
        self._steps = 0

    def begin(self, estimator: Any) -> None:
        """Check that the file can be written, and is not that of another fit."""
        check_output("path", self.path, MODELS)
        self._refuse_to_replace(estimator)
        if estimator._run is not None:
            # Must happen now: a stream cannot be read from its beginning during a pass.
            estimator._run.know_rows()
        self._written, self._steps, self.n_steps_ = time.monotonic(), 0, None

    def __call__(self, estimator: Any, step: Step) -> bool | None:
        """Write a checkpoint if it is due."""
        self._steps += 1
        if self.every_steps is None:
            due = time.monotonic() - self._written >= self.every
        else:
            due = self._steps >= self.every_steps
        if due:
            self._write(estimator)
        return None

    def leave(self, estimator: Any) -> None:
        """Write the last checkpoint."""
        if self._steps or estimator._is_before_first_step():
            self._write(estimator)

    def _refuse_to_replace(self, estimator: Any) -> None:
        if not self.overwrite:
            refuse_to_replace(os.fsdecode(self.path), estimator)

    def _write(self, estimator: Any) -> None:
        if self.n_steps_ is None:
            # Another program may have written the file since the fit began. `leave` does not try again.
            self._steps = 0
            self._refuse_to_replace(estimator)
        estimator._write_checkpoint(os.fsdecode(self.path))
        self._written, self._steps, self.n_steps_ = time.monotonic(), 0, len(estimator._history)


class Deadline(Callback):
    """End the fit with the first step after a given time.

    Parameters
    ----------
    seconds : float
        Time for the steps (``step.elapsed``) including the seeding, in seconds; positive. A step is never cut
        short.
    """

    reason = "deadline"

    def __init__(self, seconds: float) -> None:
        if not (is_real(seconds) and seconds > 0):
            raise ParameterError(f"`seconds` must be a positive number, got {shown(seconds)}")
        self.seconds = seconds

    def __call__(self, estimator: Any, step: Step) -> bool | None:
        """Compare the elapsed time with the limit."""
        return step.elapsed >= self.seconds


class LogSteps(Callback):
    """Log every step.

    Parameters
    ----------
    logger : logging.Logger, optional
        Default: the logger ``"shoal"``; while the program has not configured logging, stderr instead.
    level : int, default=logging.INFO
        Level of the messages.
    """

    _FORMAT = "%s step %d: objective %.9g, center shift %.3g, %d labels changed, %.3f s%s"

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._is_default = logger is None
        self.logger = logging.getLogger("shoal") if logger is None else logger
        self.level = level

    def __call__(self, estimator: Any, step: Step) -> bool | None:
        """Log a step."""
        values = (
            type(estimator).__name__,
            step.iteration,
            step.objective,
            step.center_shift,
            step.n_changed,
            step.elapsed,
            f", stopped: {step.stop_reason}" if step.stop_reason else "",
        )
        if self._is_default and not self.logger.hasHandlers():
            # Without a handler, logging drops everything below a warning.
            print(self._FORMAT % values, file=sys.stderr)
        else:
            self.logger.log(self.level, self._FORMAT, *values)
        return None


class ValidationCurve(Callback):
    """Score held-out rows after every step.

    Parameters
    ----------
    X_val : rows
        Held-out rows: any input of the estimator's ``score``.
    every : int, default=1
        Steps between two scores, at least 1. Each score is a pass over `X_val`.

    Attributes
    ----------
    iterations_ : list of int
        The scored steps of the last fit.
    elapsed_ : list of float
        Seconds of the fit at each scored step.
    scores_ : list of float
        ``estimator.score(X_val)`` at each scored step: minus the inertia for the k-means family.
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
        """Drop the previous fit; check that the estimator can score the rows."""
        if not hasattr(estimator, "score"):
            raise TypeError(
                f"{type(self).__name__} needs an estimator with score(X), which {type(estimator).__name__} "
                "does not have"
            )
        # Estimators over engines score collections, which cannot be opened here.
        if hasattr(estimator, "_checked"):
            wanted, found = estimator.n_features_in_, open_or_check(self.X_val).shape[1]
            if found != wanted:
                raise ParameterError(f"`X_val` must have as many columns as X, {wanted}, got {found}")
        self._reset()

    def __call__(self, estimator: Any, step: Step) -> bool | None:
        """Score the current model."""
        if step.iteration % self.every == 0 or step.stop_reason is not None:
            self.iterations_.append(step.iteration)
            self.elapsed_.append(step.elapsed)
            with warnings.catch_warnings():
                # The first score has warned of them.
                if self.scores_:
                    ignore_zeros()
                self.scores_.append(float(estimator.score(self.X_val)))
        return None

    def plot(self, ax: Any = None) -> Any:
        """Plot the scores over the seconds; needs matplotlib.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to plot. Default: new axes.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots()[1]
        ax.plot(self.elapsed_, self.scores_, marker=".")
        ax.set_xlabel("seconds")
        ax.set_ylabel("score of the held-out rows")
        return ax


class EarlyStopping(ValidationCurve):
    """End the fit when the score of held-out rows no longer improves.

    Parameters
    ----------
    X_val : rows
        Held-out rows: any input of the estimator's ``score``. Scored after every step: a pass over `X_val`
        each.
    patience : int, default=10
        Consecutive steps without an improvement after which the fit ends, at least 1.
    min_delta : float, default=0.0
        Smallest increase of the score that counts as an improvement, in the units of ``score``; at least 0.

    Attributes
    ----------
    best_score_ : float
        The best score of the last fit.
    """

    reason = "patience"

    def __init__(self, X_val: Rows, patience: int = 10, min_delta: float = 0.0) -> None:
        super().__init__(X_val)
        self.patience = whole("patience", patience, 1)
        if not (is_real(min_delta) and min_delta >= 0):
            raise ParameterError(f"`min_delta` must be a number of at least 0, got {shown(min_delta)}")
        self.min_delta = min_delta

    def _reset(self) -> None:
        super()._reset()
        self.best_score_ = float("-inf")
        self._waited = 0

    def __call__(self, estimator: Any, step: Step) -> bool | None:
        """Score the current model and compare it with the best score."""
        super().__call__(estimator, step)
        if self.scores_[-1] > self.best_score_ + self.min_delta:
            self.best_score_ = self.scores_[-1]
            self._waited = 0
        else:
            self._waited += 1
        return self._waited >= self.patience
