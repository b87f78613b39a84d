"""Files: regular ones to read, and files that are written to a temporary name and renamed."""

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

#: The path of a file as users pass it; `bytes` need not be UTF-8.
Name = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def is_name(obj: Any) -> TypeGuard[Name]:
    """Whether an object is the path of a file."""
    return isinstance(obj, (str, bytes, os.PathLike))


def open_regular(name: str) -> IO[bytes]:
    """Open a regular file for reading; raise `ValueError` for others.

    A pipe would block, and a device may have no end.
    """
    path = Path(name)
    kind = path.stat().st_mode
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not stat.S_ISREG(kind):
        raise ValueError(f"{name}: is not a regular file")
    return path.open("rb")


def is_special(path: Path) -> bool:
    """Whether `path` is a device, pipe or socket, such as ``/dev/null``, which must not be replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def check_place(path: Name) -> None:
    """Raise `OSError` if a file cannot be written, before any work is done for it.

    Permissions do not tell everything, so a temporary file is created in the folder and removed again.
    """
    name = Path(os.fsdecode(path))
    if name.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(name))
    if is_special(name):
        raise OSError(errno.EINVAL, SPECIAL, str(name))
    if not name.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "its folder does not exist", str(name))
    with contextlib.suppress(FileNotFoundError):
        # Raises if the name is too long.
        name.lstat()
    WholeFile(name).close()


@contextlib.contextmanager
def named_errors(name: Path) -> Generator[None]:
    """Make errors of the operating system name `name` instead of a temporary file."""
    try:
        yield
    except OSError as error:
        if error.strerror and error.filename != str(name):
            raise type(error)(error.errno, error.strerror, str(name)) from error
        raise


class Staged:
    """A file or another result that is written in stages.

    `prepare` does everything that may fail, and `finish` replaces existing files. `close`, which is called at
    the end of a ``with`` block, removes unfinished files.
    """

    #: Another result that goes through the same stages, such as the file that is written.
    _target: Staged | None = None

    def prepare(self) -> None:
        """Do everything that may fail, without replacing an existing file."""
        if self._target is not None:
            self._target.prepare()

    def finish(self) -> Any:
        """Replace existing files; return the result, if there is one."""
        self.prepare()
        return None if self._target is None else self._target.finish()

    def close(self) -> None:
        """Remove unfinished files."""
        if self._target is not None:
            self._target.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncedFile(Staged):
    """A file that is flushed to disk before it, or its folder, is renamed."""

    _name: Path
    file: IO[bytes]

    def named_errors(self) -> contextlib.AbstractContextManager[None]:
        """Make errors of the operating system name the final file or folder."""
        return named_errors(self._name)

    def prepare(self) -> None:
        if self.file.closed:
            return
        with self.named_errors():
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()


class WholeFile(SyncedFile):
    """A file that is written to a temporary name, flushed to disk, then renamed.

    An older file of that name stays unchanged until :meth:`finish`, also if the process is killed. A killed
    process leaves the temporary file behind until another file of that name is written.
    """

    def __init__(self, path: Name) -> None:
        self._name = Path(os.fsdecode(path))
        self._temporary = _core.TemporaryFile(self._name)
        # "r+b" does not create the file if it was removed in between.
        with self.named_errors():
            self.file = Path(self._temporary.name).open("r+b")  # noqa: SIM115 - closed by close

    def finish(self) -> None:
        try:
            self.prepare()
            self._temporary.finish()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        # Flushing may fail again.
        with contextlib.suppress(OSError):
            self.file.close()
        self._temporary.close()


class PlainFile(SyncedFile):
    """A file in a temporary folder, with the methods of :class:`WholeFile`; the folder is renamed later.

    Errors name `name`, the final folder.
    """

    def __init__(self, path: Path, name: Path) -> None:
        self._name = name
        with self.named_errors():
            self.file = path.open("wb")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.file.close()


@contextlib.contextmanager
def replace_file(path: Name) -> Generator[IO[bytes]]:
    """Open a :class:`WholeFile` for writing, and rename it at the end of the block."""
    with WholeFile(path) as writer:
        with writer.named_errors():
            yield writer.file
        writer.finish()


def write_npy(path: Name, values: npt.NDArray[Any]) -> None:
    """Write an array to an ``.npy`` file, by way of a temporary file."""
    with replace_file(path) as file:
        # NumPy writes to real files by a call whose errors give no reason.
        to: Any = SimpleNamespace(write=file.write)
        np.lib.format.write_array(to, np.ascontiguousarray(values), allow_pickle=False)
