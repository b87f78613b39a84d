"""Raises an error for output files that would replace the input rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from shoal._common.files import is_name

from .source import DataSource


def file_of(X: Any) -> str | None:
    """Return the file or folder that rows are read from; None for rows in memory."""
    if is_name(X):
        return os.fsdecode(X)
    if isinstance(X, DataSource):
        return None if X._path is None else str(X._path)
    while isinstance(X, np.ndarray):
        name = getattr(X, "filename", None)
        if isinstance(X, np.memmap) and name is not None:
            return os.fsdecode(name)
        # The array that this one is a view of.
        X = X.base
    return None


def is_same_file(one: str, other: str) -> bool:
    """Whether two names are those of one file, which need not exist yet."""
    if Path(one).resolve() == Path(other).resolve():
        return True
    try:
        return Path(one).samefile(other)
    except OSError:
        return False


def refuse_over(X: Any, argument: str, name: str) -> None:
    """Raise `ValueError` if the output `name`, given as `argument`, is the file that X is read from."""
    read = file_of(X)
    if read is None:
        return
    if is_same_file(read, name):
        raise ValueError(f"{argument}={name!r} is the file that is read: choose another name")
    # A new .parquet file in the folder of a data set would become part of the data set.
    folder, file = Path(read).resolve(), Path(name).resolve()
    if folder in file.parents and (file.suffix == ".parquet" or (file.suffix != ".npy" and file.exists())):
        raise ValueError(f"{argument}={name!r} lies in the folder that is read: choose another name")
