"""The structured array `history_`: one row per step of a fit."""

from __future__ import annotations

import copyreg
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._core import Step as Step  # noqa: PLC0414 - `shoal.Step` is imported from here

from .saved import Arrays, Claims, floats

#: Fields of `history_`, those of `Step`.
STEP_FIELDS: tuple[tuple[str, str], ...] = (
    ("iteration", "i8"),
    ("rows_seen", "i8"),
    ("batch_size", "i8"),
    ("objective", "f8"),
    ("center_shift", "f8"),
    ("n_changed", "i8"),
    ("n_distances", "i8"),
    ("elapsed", "f8"),
    ("stop_reason", "U16"),
)

STEP_DTYPE = np.dtype(list(STEP_FIELDS))

#: The fields that are numbers.
FIGURES = tuple(name for name, _ in STEP_FIELDS[:-1])


def record(step: Step) -> tuple[Any, ...]:
    """Convert a step to a row of `history_`."""
    return (*(getattr(step, name) for name in FIGURES), step.stop_reason or "")


def _step_of(*figures: Any) -> Step:
    """Make a step from the values of its fields."""
    return Step(**dict(zip((name for name, _ in STEP_FIELDS), figures, strict=True)))


def _reduced(step: Step) -> tuple[Any, ...]:
    return _step_of, tuple(getattr(step, name) for name, _ in STEP_FIELDS)


copyreg.pickle(Step, _reduced)


def stored_history(history: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.float64], list[str]]:
    """Return `history_` for a file: numbers as an array, stop reasons as texts."""
    table = np.stack([history[name].astype(np.float64) for name in FIGURES], axis=1)
    return table, history["stop_reason"].tolist()


def read_history(arrays: Arrays, about: Claims) -> tuple[npt.NDArray[Any], list[str]]:
    """Return what `stored_history` returned, from the array ``history`` and the texts ``stop_reasons``."""
    reasons = about.texts("stop_reasons") or []
    return floats(arrays, "history", (len(reasons), len(FIGURES))), reasons


def rows_of_history(table: npt.NDArray[Any], reasons: list[str]) -> list[tuple[Any, ...]]:
    """Return the rows of `history_` that `stored_history` took apart."""
    return [(*step, reason) for step, reason in zip(table.tolist(), reasons, strict=True)]
