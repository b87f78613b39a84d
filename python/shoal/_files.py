"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from . import _core

SPECIAL = "is a device, a pipe or a socket, which no file can replace"


def is_special(path: Path) -> bool:
    """Whether `path` is something that a file must not take the place of, for example ``/dev/null``."""
    return path.exists() and not path.is_file() and not path.is_dir()


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuse a name that no file can take, before any work is done for it.

    Parameters
    ----------
    path : str or os.PathLike
        The file that will be written.

    Raises
    ------
    OSError
        When its folder does not exist, or something is there that is no regular file.
    """
    name = Path(path)
    if name.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(name))
    if is_special(name):
        raise OSError(errno.EINVAL, SPECIAL, str(name))
    if not name.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "its folder does not exist", str(name))


@contextlib.contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Give a file to write to that takes the name `path` once it is whole and on the disk.

    Whatever ends the block early, a kill too, leaves an older file of that name as it was. A kill leaves the
    temporary file behind, until another file of that name is written.

    Parameters
    ----------
    path : str or os.PathLike
        The file; one that exists is replaced at the end, at once.

    Yields
    ------
    file object
        Binary, open for writing, at its beginning.

    Raises
    ------
    OSError
        When the file cannot be written.
    """
    name = Path(path)
    temporary = _core.TemporaryFile(name)
    with contextlib.closing(temporary):
        try:
            # The file is there: opening it makes none where somebody has removed it.
            with Path(temporary.name).open("r+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            # The user knows the file by another name.
            if error.strerror and error.filename in (None, str(temporary.name)):
                raise type(error)(error.errno, error.strerror, str(name)) from error
            raise
        temporary.finish()


def write_npy(path: str | os.PathLike[str], values: npt.NDArray[Any]) -> None:
    """Write an array to an ``.npy`` file, which appears whole or not at all.

    Parameters
    ----------
    path : str or os.PathLike
        The file; one that exists is replaced.
    values : ndarray
        Any shape; no Python objects.

    Raises
    ------
    OSError
        When the file cannot be written.
    """
    with whole(path) as file:
        # To a file as such NumPy writes by a call whose errors do not say why.
        to: Any = SimpleNamespace(write=file.write)
        np.lib.format.write_array(to, np.ascontiguousarray(values), allow_pickle=False)
