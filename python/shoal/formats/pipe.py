"""NPY files and text from a pipe or another binary file object, in one pass; NPY files behind a URL."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shoal._checks.marked import ParameterError
from shoal._checks.params import shown

from .npz import HEADERS
from .remote import open_file
from .stream import CHANGED, Block, Stream, block_rows, chunk_limit, name_errors, numbers, refuse_large

#: Name of standard input in messages.
STDIN = "standard input"
#: The first bytes of an ``.npy`` file.
MAGIC = b"\x93NUMPY"
#: Bytes per read where no size is given.
BYTES = 1 << 20


def is_file(obj: Any) -> bool:
    """Whether an object is an open file, which would be an iterator of lines otherwise."""
    # Temporary files of the standard library forward these methods, and do not derive from `IOBase`.
    methods = (getattr(obj, name, None) for name in ("read", "readline"))
    return isinstance(obj, io.IOBase) or all(map(callable, methods))


def read_pipe(file: Any, columns: Sequence[Any] | None, limit: int) -> Stream:
    """Open the rows of a binary file object: an NPY file from its current position on, or CSV.

    The file is read to its end, and not closed. `limit` is the maximum size of a row in bytes.
    """
    name = STDIN if file is getattr(sys.stdin, "buffer", None) else f"the file object {shown(file)}"
    # Temporary files have the open file as `file`.
    if any(isinstance(each, io.TextIOBase) for each in (file, getattr(file, "file", None))):
        raise TypeError(
            f"X must be a binary file, got the text file {shown(file)}. Use its attribute buffer."
        )
    begun = Begun(file)
    with name_errors(name):
        start = begun.peek(len(MAGIC))
    if start == MAGIC:
        if columns is not None:
            raise ParameterError(f"{name}: `columns`={columns!r} does not belong to NPY files")
        return npy(begun, name, limit)
    if b"\0" in begun.peek(BYTES):
        raise ValueError(f"{name}: must hold an NPY file or CSV text, got bytes that begin {start!r}")
    from .csv import open_piped_csv as of_text

    return of_text(begun, name, columns)


class Begun(io.RawIOBase):
    """A binary file object whose first bytes can be inspected before they are read.

    Closing it leaves the underlying file open.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._start = b""

    def readable(self) -> bool:
        return True

    def peek(self, size: int) -> bytes:
        """Return the next bytes without consuming them; fewer at the end of the file."""
        if len(self._start) < size:
            self._start += self._pull(size - len(self._start))
        return self._start[:size]

    def read(self, size: int = -1, /) -> bytes:
        """Read as many bytes; fewer at the end of the file. A negative size reads to the end."""
        if size < 0:
            return b"".join(iter(lambda: self.read(BYTES), b""))
        start, self._start = self._start[:size], self._start[size:]
        return start + self._pull(size - len(start))

    def _pull(self, size: int) -> bytes:
        """Read from the file; a pipe may give fewer bytes than asked for at a time."""
        parts = []
        while size > 0:
            part = self._file.read(size)
            if part is None:
                raise ValueError("the file must be blocking, got one with no bytes yet")
            if not isinstance(part, (bytes, bytearray, memoryview)):
                raise TypeError(f"X must be a binary file, got one that gives {type(part).__name__}")
            if not part:
                break
            parts.append(bytes(part))
            size -= len(part)
        return b"".join(parts)


def npy(file: Begun, name: str, limit: int) -> Stream:
    """Open the rows of an NPY file."""
    with name_errors(name, "is damaged"):
        version = np.lib.format.read_magic(file)
        if version not in HEADERS:
            raise ValueError(f"{name}: the version of its format must be (1, 0) or (2, 0), got {version}")
        shape, fortran, dtype = HEADERS[version](file)
        if len(shape) != 2 or min(shape) < 0:
            raise ValueError(f"{name}: rows must be a 2-D array, got shape {shape}")
        if dtype.hasobject:
            raise ValueError(f"{name}: must hold numbers, got Python objects")
    kind = numbers(dtype, name)
    rows, cols = shape
    if fortran and min(shape) > 1:
        raise ValueError(
            f"{name}: must hold rows one after the other, got an array in Fortran order. Save "
            "numpy.ascontiguousarray(X) instead."
        )
    if cols < 1:
        raise ValueError(f"{name}: rows need at least 1 column, got shape {shape}")
    row = cols * dtype.itemsize
    refuse_large(name, "one row", row, limit)

    def blocks() -> Generator[Block]:
        most = block_rows(cols, dtype)
        for start in range(0, rows, most):
            wanted = min(most, rows - start)
            data = file.read(wanted * row)
            if len(data) != wanted * row:
                raise ValueError(
                    f"{name}: is cut off: its header says {rows} rows, and row {start + len(data) // row} is "
                    "missing or incomplete"
                )
            yield np.frombuffer(data, dtype).reshape(wanted, cols).astype(kind, copy=False)
        if file.peek(1):
            raise ValueError(f"{name}: holds more bytes than the {math.prod(shape)} values of its header")

    return Stream(name, rows, cols, kind, blocks, once=True)


def open_remote_npy(name: str) -> Stream:
    """Open the ``.npy`` file behind a URL, which is read again in every pass."""
    limit = chunk_limit(None)

    def begin(file: Any) -> Stream:
        return npy(Begun(file), name, limit)

    with open_file(name) as file:
        first = begin(file)

    def blocks() -> Iterator[Block]:
        with open_file(name) as file, name_errors(name):
            found = begin(file)
            if (found.rows, found.cols, found.dtype) != (first.rows, first.cols, first.dtype):
                raise ValueError(f"{name}: {CHANGED}")
            yield from found.blocks()

    return replace(first, blocks=blocks, once=False)
