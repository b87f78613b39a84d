"""Files by their names: those that are read, and those that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, Self, TypeGuard

import numpy as np
import numpy.typing as npt

from shoal import _core

SPECIAL = "is a device, a pipe or a socket, which no file can replace"

#: The name of a file as users give it; `bytes` need not be UTF-8.
Name = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def is_name(obj: Any) -> TypeGuard[Name]:
    """Whether an object is the name of a file."""
    return isinstance(obj, (str, bytes, os.PathLike))


def open_regular(name: str) -> IO[bytes]:
    """Open a file to read it; a pipe would wait for its other end, and a device may have no end.

    Parameters
    ----------
    name : str
        The file.

    Returns
    -------
    file object
        Binary, at its beginning.

    Raises
    ------
    OSError
        When the file cannot be opened.
    ValueError
        When it is no regular file.
    """
    path = Path(name)
    kind = path.stat().st_mode
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not stat.S_ISREG(kind):
        raise ValueError(f"{name}: is not a regular file")
    return path.open("rb")


def is_special(path: Path) -> bool:
    """Whether `path` is something that a file must not take the place of, for example ``/dev/null``."""
    return path.exists() and not path.is_file() and not path.is_dir()


def check_place(path: Name) -> None:
    """Refuse a name that no file can take, before any work is done for it.

    A file is created in the folder and removed again: permissions do not tell everything.

    Parameters
    ----------
    path : str, bytes or os.PathLike
        The file that will be written.

    Raises
    ------
    OSError
        When its folder does not exist or takes no files, or something is there that is no regular file.
    """
    name = Path(os.fsdecode(path))
    if name.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(name))
    if is_special(name):
        raise OSError(errno.EINVAL, SPECIAL, str(name))
    if not name.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "its folder does not exist", str(name))
    with contextlib.suppress(FileNotFoundError):
        # A name that is too long.
        name.lstat()
    WholeFile(name).close()


@contextlib.contextmanager
def named_errors(name: Path) -> Generator[None]:
    """Let errors of the system tell `name`, not that of a temporary file, or none."""
    try:
        yield
    except OSError as error:
        if error.strerror and error.filename != str(name):
            raise type(error)(error.errno, error.strerror, str(name)) from error
        raise


class WholeFile:
    """A file to write to that takes its name once it is whole and on the disk.

    Whatever comes before :meth:`finish`, a kill too, leaves an older file of that name as it was. A kill
    leaves the temporary file behind until another file of that name is written.

    Parameters
    ----------
    path : str, bytes or os.PathLike
        The file; one that exists is replaced at the end, at once.

    Attributes
    ----------
    file : file object
        Binary, open for writing.

    Raises
    ------
    OSError
        When the file cannot be written.
    """

    def __init__(self, path: Name) -> None:
        self._name = Path(os.fsdecode(path))
        self._temporary = _core.TemporaryFile(self._name)
        # The file exists: opening it creates none if somebody has removed it.
        with self.named_errors():
            self.file: IO[bytes] = Path(self._temporary.name).open("r+b")  # noqa: SIM115 - closed by close

    def named_errors(self) -> contextlib.AbstractContextManager[None]:
        """Let errors of the system tell the name that the user knows, not the temporary one."""
        return named_errors(self._name)

    def prepare(self) -> None:
        """Put everything on the disk, so that only the name is missing; nothing can be written any more."""
        if self.file.closed:
            return
        with self.named_errors():
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()

    def finish(self) -> None:
        """Give the file its name."""
        try:
            self.prepare()
            self._temporary.finish()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave nothing of a file that is not finished."""
        # What is still to be written may fail once more.
        with contextlib.suppress(OSError):
            self.file.close()
        self._temporary.close()

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


@contextlib.contextmanager
def whole(path: Name) -> Generator[IO[bytes]]:
    """Give a :class:`WholeFile` to write to, which takes its name at the end of the block.

    Parameters
    ----------
    path : str, bytes or os.PathLike
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
    with WholeFile(path) as writer:
        with writer.named_errors():
            yield writer.file
        writer.finish()


def write_npy(path: Name, values: npt.NDArray[Any]) -> None:
    """Write an array to an ``.npy`` file, which appears whole or not at all.

    Parameters
    ----------
    path : str, bytes or os.PathLike
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
