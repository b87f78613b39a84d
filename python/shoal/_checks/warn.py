"""Warnings that point to the line of the user that led to them."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import sklearn
from sklearn.exceptions import ConvergenceWarning

from .marked import unmarked

#: Folders whose lines are skipped. scikit-learn is one of them: it wraps some methods.
NOT_THEIRS = tuple(
    f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], Path(str(sklearn.__file__)).parent)
)


def may_raise() -> bool:
    """Whether a filter turns some warnings into errors."""
    return any(action == "error" for action, *_ in warnings.filters)


def warn_of_name(old: str, now: str) -> None:
    """Warn that the parameter `now` was given by its earlier name."""
    warn(f"`{old}` is deprecated: use `{now}` instead", FutureWarning)


def warn_of_few(kind: str, found: int, wanted: int) -> None:
    """Warn that a fit found fewer clusters or components (`kind`); Python shows scikit-learn's text."""
    few, why = f"Number of distinct {kind} ({found}) found smaller than", "Possibly due to duplicate"
    marked, plain = (
        f"{few} `n_{kind}` ({wanted}). {why} rows.",
        f"{few} n_{kind} ({wanted}). {why} points in X.",
    )
    warn(marked, ConvergenceWarning, plain)


def warn(message: str, category: type[Warning], plain: str | None = None) -> None:
    """Warn at the innermost line outside of shoal and scikit-learn.

    The message is marked; `plain` is what Python shows, by default the message without marks.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(NOT_THEIRS):
        frame, level = frame.f_back, level + 1
    warning: Any = category(plain or unmarked(message))
    warning.marked = message
    warnings.warn(warning, stacklevel=level)
