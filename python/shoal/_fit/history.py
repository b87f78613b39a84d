"""The structured array `history_`: one row per step of a fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal._core import Step

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


def record(step: Step) -> tuple[Any, ...]:
    """Convert a step to a row of `history_`."""
    return (*(getattr(step, name) for name, _ in STEP_FIELDS[:-1]), step.stop_reason or "")
