"""Copies streams to a temporary file, for algorithms that need random access."""

from __future__ import annotations

import atexit
import os
import tempfile
from pathlib import Path
from typing import Any

from shoal import _core
from shoal.writing import written

from .opening import opened
from .streams import refuse_once

__all__ = ["at_any_place"]


def at_any_place(X: Any, who: str) -> Any:
    """Return X, or a mapped copy if X is a re-readable stream.

    The copy is a temporary file, which is removed once nothing reads it. Messages name `who`.
    """
    refuse_once(X, who)
    rows = opened(X)
    if rows is None:
        return X
    refuse_once(rows, who)
    if rows.access == "random":
        return rows
    # If this process is killed, the next one that makes such a copy removes the folder.
    folder = _core.TemporaryFolder(Path(tempfile.gettempdir()) / "copied-rows")
    try:
        copy = written(rows, Path(folder.name) / "rows.npy", in_order=True)
        copy._header = rows._header
        return copy
    finally:
        # POSIX systems keep mapped files readable after their removal.
        if os.name == "posix":
            folder.close()
        else:
            atexit.register(folder.close)
