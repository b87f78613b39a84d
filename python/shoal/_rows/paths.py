"""Paths of many files that are read as one source: lists, globs and folders."""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from shoal import formats
from shoal._checks.params import shown
from shoal._files.staged import Name, is_name, is_special
from shoal.formats.remote import is_url

#: Number of names in an error message.
MOST_NAMES = 3


def is_paths(X: Any) -> TypeGuard[Sequence[Name]]:
    """Whether X is a list of paths, and no list of rows: its first item is a path."""
    if isinstance(X, np.ndarray):
        return X.ndim == 1 and X.dtype.kind == "U"
    if not isinstance(X, (list, tuple)):
        return False
    if not X:
        raise ValueError(f"X must be rows or a list of paths, got an empty {type(X).__name__}")
    if isinstance(X[0], (list, tuple)) and any(isinstance(item, os.PathLike) for item in X[0]):
        raise ValueError("X must be rows or a flat list of paths, got a list of lists of paths")
    return is_name(X[0])


def list_files(given: Name | Sequence[Name], is_rows: Callable[[str], bool]) -> list[str] | None:
    """List the files of a list of paths, a glob or a folder; None for the path of one file.

    Items of a list may be globs and folders too. `is_rows` tells by the name of a file in a folder whether it
    holds rows. Files of a list keep its order; those of a glob or a folder are sorted by name as text. Raises
    `OSError` if a glob or a folder holds no file of rows, and `ValueError` if an item is not a path, or a
    folder holds files of several kinds, a pipe or a device.
    """
    if is_name(given):
        return expand(os.fsdecode(given), is_rows)
    files: list[str] = []
    items: Any = given
    for i, item in enumerate(items):
        if not is_name(item):
            raise ValueError(f"X[{i}] must be a path like X[0], got {shown(item)}")
        name = os.fsdecode(item)
        if is_url(name):
            raise ValueError(
                f"X must be one URL or a list of local paths, got a list with {name!r}. For many URLs, pass "
                "X = lambda: (block for url in urls for block in shoal.open(url).blocks())."
            )
        found = expand(name, is_rows)
        files += [name] if found is None else found
    return files


def expand(name: str, is_rows: Callable[[str], bool]) -> list[str] | None:
    """List the files of a glob or a folder; None for any other path."""
    if "\0" in name or not name or is_url(name):
        return None
    path = Path(name)
    if path.is_dir():
        return None if formats.suffix_of(name) == ".zarr" else list_folder(path, is_rows)
    if not glob.has_magic(name) or path.exists():
        return None
    # `**` matches folders too. A zarr store is a folder.
    found = [
        match
        for match in glob.iglob(name, recursive=True)  # noqa: PTH207 - takes absolute and relative globs
        if formats.suffix_of(match) == ".zarr" or not Path(match).is_dir()
    ]
    if not found:
        raise FileNotFoundError(errno.ENOENT, "the glob matches no file", name)
    # With several `**` a file can be matched more than once.
    return sorted(set(found))


def list_folder(folder: Path, is_rows: Callable[[str], bool]) -> list[str]:
    """List the files of rows of a folder, without its subfolders."""
    # Names that start with "." or "_" are metadata of the program that wrote the folder.
    found = sorted(
        str(path)
        for path in folder.iterdir()
        if path.name[0] not in "._" and is_rows(path.name) and (path.suffix == ".zarr" or not path.is_dir())
    )
    special = next((name for name in found if is_special(Path(name))), None)
    if special is not None:
        # Opening a pipe would block.
        raise ValueError(f"{special}: is not a regular file: remove it from the folder, or pass a glob")
    if not found:
        if folder.suffix == ".parquet":
            raise FileNotFoundError(errno.ENOENT, "no .parquet files in the folder", str(folder))
        raise IsADirectoryError(errno.EISDIR, "is a folder without files of rows", str(folder))
    if len({formats.suffix_of(name) for name in found}) > 1:
        # Labels and distances may lie beside the rows.
        found = [name for name in found if not is_vector_file(name)]
    suffixes = sorted({formats.suffix_of(name) for name in found})
    if len(suffixes) > 1:
        raise ValueError(
            f"{folder}: must hold files of one kind, got {' and '.join(suffixes)}. Pass a glob, for example "
            f"{str(folder / ('*' + suffixes[0]))!r}."
        )
    return found


def is_vector_file(name: str) -> bool:
    """Whether a file is an intact ``.npy`` file of a one-dimensional array; raise if it is empty."""
    if not name.lower().endswith(".npy"):
        return False
    try:
        return bool(np.load(name, mmap_mode="r", allow_pickle=False).ndim == 1)
    except EOFError as error:
        raise ValueError(f"{name}: is empty") from error
    except (OSError, ValueError):
        return False


def join_names(files: Sequence[str]) -> str:
    """Format the names of files for a message."""
    more = f" and {len(files) - MOST_NAMES} more" if len(files) > MOST_NAMES else ""
    return ", ".join(files[:MOST_NAMES]) + more
