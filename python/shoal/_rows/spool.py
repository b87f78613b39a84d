"""Copies streams to a temporary file, for algorithms that need random access."""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shoal import _core
from shoal.writing import check_space, write_blocks

from .opening import open_rows
from .streams import refuse_once

__all__ = ["with_random_access"]


@contextmanager
def naming_folder(place: str, who: str) -> Generator[None]:
    """Make errors of files in the temporary folder `place` tell its purpose, and how to choose another."""
    try:
        yield
    except OSError as error:
        # Errors of the stream itself name other files, or none.
        if error.errno is None or not str(error.filename).startswith(place):
            raise
        why = (
            f"{error.strerror}. {who} copies a stream to the folder of temporary files: set TMPDIR "
            "to another folder, or write the rows with shoal.write and pass the file"
        )
        raise OSError(error.errno, why, place) from error


def with_random_access(X: Any, who: str) -> Any:
    """Return X, or a mapped copy if X is a re-readable stream.

    The copy is a temporary file, which is removed once nothing reads it. If the number of rows is known, its
    space is checked first. Messages name `who`.
    """
    refuse_once(X, who)
    rows = open_rows(X)
    if rows is None:
        return X
    refuse_once(rows, who)
    if rows.access == "random":
        return rows
    place = tempfile.gettempdir()
    with naming_folder(place, who):
        # If this process is killed, the next one that makes such a copy removes the folder.
        folder = _core.TemporaryFolder(Path(place) / "copied-rows")
    try:
        with naming_folder(place, who):
            out = Path(folder.name) / "rows.npy"
            n, d = rows.shape
            if n is not None:
                check_space(n * d * rows.dtype.itemsize, str(out))
            copy = write_blocks(rows, out, in_order=True)
        copy._header = rows._header
        return copy
    finally:
        # POSIX systems keep mapped files readable after their removal.
        if os.name == "posix":
            folder.close()
        else:
            atexit.register(folder.close)
