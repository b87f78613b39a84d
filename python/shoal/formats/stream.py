"""Rows that are made a block at a time, as often as they are asked for."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._common.params import n_bytes, shown

#: A block has about this many bytes: enough work for many threads, little beside the centers and sums. Two
#: are alive at a time, one that is worked on and one that is read ahead.
BLOCK_BYTES = 8 << 20
#: The environment variable that sets the most bytes of one chunk unpacked, and the limit without it.
CHUNK_LIMIT, DEFAULT_LIMIT = "SHOAL_CHUNK_LIMIT", "1GB"
#: So many names fit into a message.
MOST_NAMES = 20

Block = npt.NDArray[Any]


@dataclass(frozen=True)
class Stream:
    """Rows of a file or an object, and how a pass over them is made.

    Parameters
    ----------
    name : str
        What messages call it.
    rows : int or None
        How many there are, if that is known.
    cols : int
        Columns.
    dtype : numpy.dtype
        Type of the numbers of every block.
    blocks : callable
        Gives a generator of blocks of that width and type. Nothing stays open after its end.
    once : bool
        Whether there is only one pass.
    header : pyarrow.Table or None
        A table without rows whose columns are the features; None where these have no names.
    """

    name: str
    rows: int | None
    cols: int
    dtype: np.dtype[Any]
    blocks: Callable[[], Iterator[Block]]
    once: bool = False
    header: Any = None

    def __post_init__(self) -> None:
        """Refuse what a damaged file may claim."""
        if self.rows is not None and not 0 <= self.rows < 1 << 63:
            raise ValueError(f"{self.name}: claims {self.rows} rows")


def block_rows(cols: int, dtype: np.dtype[Any]) -> int:
    """Give the number of rows that make a block."""
    return max(1, BLOCK_BYTES // (cols * dtype.itemsize))


def required(package: str, extra: str, what: str) -> Any:
    """Import an optional package, or say how it is installed."""
    try:
        return import_module(package)
    except ImportError as error:
        missing = package.partition(".")[0]
        raise ImportError(f"{what} needs {missing}: pip install 'shoal-cluster[{extra}]'") from error


def chunk_limit(given: Any) -> int:
    """Give the most bytes that one chunk of a file may take unpacked: `given`, or what is set outside."""
    if given is not None:
        return n_bytes("chunk_limit", given)
    return n_bytes(CHUNK_LIMIT, os.environ.get(CHUNK_LIMIT) or DEFAULT_LIMIT)


def refuse_large(name: str, what: str, size: int, limit: int) -> None:
    """Refuse what takes more memory at once than `limit` bytes: a damaged file may claim any size."""
    if size > limit:
        raise ValueError(
            f"{name}: {what} takes {size} bytes unpacked, and at most {limit} are allowed; if the file is as "
            f"it should be, allow more with shoal.open(..., chunk_limit=) or {CHUNK_LIMIT} in the environment"
        )


@contextmanager
def told_of(name: str, problem: str = "cannot be read") -> Iterator[None]:
    """Let errors of another library name the file: of damaged contents they raise nearly anything."""
    try:
        yield
    except OSError as error:
        # Without a number it is no error of the system. Damaged files make libraries seek to negative places.
        if error.errno is None or (error.errno == errno.EINVAL and error.filename is None):
            raise ValueError(f"{name}: {problem}: {error}") from error
        if error.filename is None:
            raise OSError(error.errno, os.strerror(error.errno), name) from error
        raise
    except (ImportError, MemoryError):
        # One says what to install; the other is no fault of the file, whose claims are bounded before.
        raise
    except Exception as error:
        text = str(error) or type(error).__name__
        raise ValueError(text if text.startswith(name) else f"{name}: {problem}: {text}") from error


def listed(names: list[str]) -> str:
    """Give names as one line, for messages."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return (", ".join(shown(name) for name in names[:MOST_NAMES]) + more) or "none"


def numbers(dtype: np.dtype[Any], what: str) -> np.dtype[Any]:
    """Give the type in which numbers of `dtype` are handed on; `what` is refused where it holds none."""
    if dtype.kind == "f" and dtype.itemsize > 8:
        return np.dtype(np.float64)
    if dtype.kind not in "biuf":
        raise ValueError(f"{what} holds {dtype}: rows are real numbers")
    return dtype.newbyteorder("=")
