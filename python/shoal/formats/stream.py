"""Streams of blocks, made for every pass, and what all readers share."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._checks.marked import MarkedError, ParameterError, marked_text
from shoal._checks.params import n_bytes, shown

#: Approximate size of a block: enough work for many threads, and small beside the centers and sums. Two
#: blocks are in memory at a time, because the next block is prefetched.
BLOCK_BYTES = 8 << 20
#: The environment variable for the maximum size of an unpacked chunk, and its default.
CHUNK_LIMIT, DEFAULT_LIMIT = "SHOAL_CHUNK_LIMIT", "1GB"
#: Maximum number of names that an error message lists.
MOST_NAMES = 20
#: The error for a file that is another one than when it was opened.
CHANGED = "was changed or replaced while it was open: open it again"

Block = npt.NDArray[Any]


@dataclass(frozen=True)
class Stream:
    """Rows of a file or an object that are read block by block."""

    name: str
    #: None if it is unknown.
    rows: int | None
    cols: int
    dtype: np.dtype[Any]
    #: Begins a pass; the generator closes everything at its end.
    blocks: Callable[[], Iterator[Block]]
    #: Whether only one pass is possible.
    once: bool = False
    #: An empty table of pyarrow with the names of the features, if they have names.
    header: Any = None
    #: The `Table` that the rows are read from, if other columns can be read beside them.
    table: Any = None
    #: Returns the file of a row and the number of the row there; None for a single file.
    file_of: Callable[[int], tuple[str, int]] | None = None
    #: The `Columns` of a file that hold the features.
    columns: Any = None

    def __post_init__(self) -> None:
        """Check the number of rows, which a damaged file can get wrong."""
        if self.rows is not None and not 0 <= self.rows < 1 << 63:
            raise ValueError(f"{self.name}: is damaged: its header says {self.rows} rows")


@dataclass(frozen=True)
class Reading:
    """How to read files: the options of `shoal.open`; None for options that were not given."""

    shape: tuple[int, int] | None = None
    dtype: npt.DTypeLike | None = None
    columns: Sequence[Any] | None = None
    key: str | None = None
    chunk_limit: int | str | None = None

    @property
    def limit(self) -> int:
        """The maximum size of an unpacked chunk in bytes."""
        return chunk_limit(self.chunk_limit)

    def refuse(self, name: str, suffix: str, *, except_for: Sequence[str] = ()) -> None:
        """Raise `ValueError` for a given option that is not in `except_for`: `suffix` files lack it."""
        for option in ("columns", "key", "dtype", "chunk_limit"):
            given = getattr(self, option)
            if given is not None and option not in except_for:
                raise ParameterError(
                    f"{name}: `{option}`={given!r} does not belong to {suffix or 'such'} files"
                )


class Unchanged:
    """Raises `ValueError` in a pass over a file that was changed or replaced since this object was made."""

    def __init__(self, name: str) -> None:
        # The working folder may change.
        self._name, self._path = name, Path(name).absolute()
        self._stamp = stamp(self._path)

    def check(self) -> None:
        """Raise if the file is another one."""
        if stamp(self._path) != self._stamp:
            raise ValueError(f"{self._name}: {CHANGED}")

    def items(self, begin: Callable[..., Iterator[Any]], *args: Any) -> Generator[Any]:
        """Yield the items of the pass that ``begin(*args)`` begins, which opens the file."""
        self.check()
        passing: Any = begin(*args)
        with closing(passing):
            for i, item in enumerate(passing):
                if i == 0:
                    # The file could be replaced until it was open. The open file stays the same.
                    self.check()
                yield item


def stamp(path: Path) -> tuple[int, ...]:
    """Return numbers that change when a file is changed or replaced."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev


def block_rows(cols: int, dtype: np.dtype[Any]) -> int:
    """Return the number of rows per block."""
    return max(1, BLOCK_BYTES // (cols * dtype.itemsize))


def required(package: str, extra: str, what: str) -> Any:
    """Import an optional package for `what`; the error of a missing package says how to install it."""
    try:
        return import_module(package)
    except ImportError as error:
        missing = package.partition(".")[0]
        raise ImportError(f"{what} needs {missing}: pip install 'shoal-cluster[{extra}]'") from error


def chunk_limit(given: Any) -> int:
    """Return the maximum size of an unpacked chunk in bytes: `given`, or that of the environment."""
    if given is not None:
        return n_bytes("chunk_limit", given)
    return n_bytes(CHUNK_LIMIT, os.environ.get(CHUNK_LIMIT) or DEFAULT_LIMIT)


def refuse_large(name: str, what: str, size: int, limit: int) -> None:
    """Raise `ValueError` if `what` takes more than `limit` bytes; a damaged file can claim any size."""
    if size > limit:
        problem = (
            f"{name}: {what} must take at most {limit} bytes unpacked, got {size}. If the file is intact, "
            "raise the limit with"
        )
        variable = f"the environment variable {CHUNK_LIMIT}."
        raise MarkedError(f"{problem} {variable}", f"{problem} shoal.open(..., chunk_limit=) or {variable}")


@contextmanager
def name_errors(name: str, problem: str = "cannot be read") -> Generator[None]:
    """Add the file name to errors of other libraries, which raise many types for a damaged file."""
    try:
        yield
    except OSError as error:
        # Without an error number it does not come from the system. EINVAL without a file name comes from a
        # seek to a negative position in a damaged file.
        if error.errno is None or (error.errno == errno.EINVAL and error.filename is None):
            raise ValueError(f"{name}: {problem}: {error}") from error
        if error.filename is None:
            raise OSError(error.errno, os.strerror(error.errno), name) from error
        raise
    except MarkedError as error:
        if str(error).startswith(name):
            raise
        raise type(error)(f"{name}: {problem}: {marked_text(error)}") from error
    except (ImportError, MemoryError):
        # Not caused by a damaged file: a package is missing, or there is too little memory. The sizes in the
        # file are checked before.
        raise
    except Exception as error:
        text = str(error) or type(error).__name__
        raise ValueError(text if text.startswith(name) else f"{name}: {problem}: {text}") from error


def listed(names: list[str]) -> str:
    """Format names for an error message."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return (", ".join(shown(name) for name in names[:MOST_NAMES]) + more) or "none"


def numbers(dtype: np.dtype[Any], what: str) -> np.dtype[Any]:
    """Return the type of the blocks for a stored type; raise `ValueError` if `what` holds no real numbers."""
    if dtype.kind == "f" and dtype.itemsize > 8:
        return np.dtype(np.float64)
    if dtype.kind not in "biuf":
        raise ValueError(f"{what} must hold real numbers, got {dtype}")
    return dtype.newbyteorder("=")
