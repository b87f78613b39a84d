"""Rows that can only be read in their order, for what wants them at any place: by way of a temporary file."""

from __future__ import annotations

import atexit
import os
import tempfile
from pathlib import Path
from typing import Any

from shoal import _core
from shoal.writing import write

from .opening import opened
from .streams import refuse_once

__all__ = ["at_any_place"]


def at_any_place(X: Any, who: str) -> Any:
    """Give X, or where it can only be read in its order (and not just once) a mapped copy in a file.

    The file lies in the folder of temporary files, and is gone when nothing reads it any more. `who` is what
    a message names.
    """
    refuse_once(X, who)
    rows = opened(X)
    if rows is None:
        return X
    refuse_once(rows, who)
    if rows.access == "random":
        return rows
    # A process that is killed leaves its folder to the next one that makes such a copy.
    folder = _core.TemporaryFolder(Path(tempfile.gettempdir()) / "copied-rows")
    try:
        copy = write(rows, Path(folder.name) / "rows.npy")
        copy._header = rows._header
        return copy
    finally:
        # What is mapped stays readable without a name, but not everywhere.
        if os.name == "posix":
            folder.close()
        else:
            atexit.register(folder.close)
