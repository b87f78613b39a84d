"""Raises an error for output files that would replace the input rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from shoal._files.staged import is_name

from .opening import describes_itself, files_behind
from .paths import is_paths, list_files
from .source import DataSource


def file_read_by(X: Any) -> str | None:
    """Return the file, folder or URL that rows are read from; None for rows in memory."""
    if is_name(X):
        return os.fsdecode(X)
    if isinstance(X, DataSource):
        return X._path
    while isinstance(X, np.ndarray):
        name = getattr(X, "filename", None)
        if isinstance(X, np.memmap) and name is not None:
            return os.fsdecode(name)
        # The array that this one is a view of.
        X = X.base
    return None


def shards_of(X: Any) -> list[str]:
    """Return the files behind rows: a list of files, or those that an object of another library reads."""
    if isinstance(X, DataSource):
        return X._shards or []
    if is_name(X) or is_paths(X):
        return list_files(X, describes_itself) or []
    return files_behind(X)


def is_one_of(name: str, files: list[str]) -> bool:
    """Whether a file is one of many files that exist."""
    try:
        found = Path(name).stat()
    except OSError:
        return False
    return any(Path(file).exists() and os.path.samestat(found, Path(file).stat()) for file in files)


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
    read, shards = file_read_by(X), shards_of(X)
    if read is not None and is_same_file(read, name):
        raise ValueError(f"{argument}={name!r} is the file that is read: choose another name")
    folder_is_read = read is not None and Path(read).resolve() in Path(name).resolve().parents
    if is_one_of(name, shards) and not folder_is_read:
        raise ValueError(f"{argument}={name!r} is one of the files that are read: choose another name")
    if read is None:
        return
    # A new file of the same kind in a folder of files would become one of them.
    file = Path(name).resolve()
    kinds = {Path(shard).suffix for shard in shards}
    if folder_is_read and (file.suffix in kinds or (file.suffix != ".npy" and file.exists())):
        raise ValueError(f"{argument}={name!r} lies in the folder that is read: choose another name")
