"""Refuses output files that would replace the rows that are read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from shoal._common.files import is_name

from .source import DataSource


def file_of(X: Any) -> str | None:
    """Give the file or folder that rows are read from; None where they are not, or NumPy does not tell."""
    if is_name(X):
        return os.fsdecode(X)
    if isinstance(X, DataSource):
        return None if X._path is None else str(X._path)
    while isinstance(X, np.ndarray):
        name = getattr(X, "filename", None)
        if isinstance(X, np.memmap) and name is not None:
            return os.fsdecode(name)
        # What it is a view of.
        X = X.base
    return None


def is_same_file(one: str, other: str) -> bool:
    """Whether two names, of files that may not be there yet, are those of one."""
    if Path(one).resolve() == Path(other).resolve():
        return True
    try:
        return Path(one).samefile(other)
    except OSError:
        return False


def refuse_over(X: Any, argument: str, name: str) -> None:
    """Refuse to write the file `name`, which came as `argument`, where it is what rows are read from."""
    read = file_of(X)
    if read is None:
        return
    if is_same_file(read, name):
        raise ValueError(f"{argument}={name!r} is the file that is read: choose another name")
    # No part of rows in a folder is an .npy file; a .parquet file would become one.
    folder, file = Path(read).resolve(), Path(name).resolve()
    if folder in file.parents and (file.suffix == ".parquet" or (file.suffix != ".npy" and file.exists())):
        raise ValueError(f"{argument}={name!r} lies in the folder that is read: choose another name")
