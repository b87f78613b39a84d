"""Warnings that point to the line of the user that led to them."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import sklearn

#: Folders whose lines are skipped. scikit-learn is one of them: it wraps some methods.
NOT_THEIRS = tuple(
    f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], Path(str(sklearn.__file__)).parent)
)


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the innermost line outside of shoal and scikit-learn."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(NOT_THEIRS):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
