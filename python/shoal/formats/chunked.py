"""Rows of chunked arrays, as in HDF5 and zarr; blocks are whole chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import numpy as np

from shoal._checks.marked import MarkedError, ParameterError
from shoal._checks.params import shown

from .stream import Block, Stream, block_rows, listed, name_errors, numbers, refuse_large


@contextmanager
def held(array: Any, name: str) -> Generator[Any]:
    """Yield an array that stays open between passes."""
    with name_errors(name):
        yield array


def stream_of(
    array: Any, name: str, limit: int, reopened: Callable[[], AbstractContextManager[Any]] | None = None
) -> Stream:
    """Open an array of h5py or zarr as a stream of rows.

    `limit` is the largest size in bytes of a chunk, and of all chunks that hold the same rows. `reopened`
    returns a context manager of the array for a pass; without it, the array stays open. Raises `ValueError`
    unless the array is a 2-D array of numbers with rows.
    """
    opened = reopened or partial(held, array, name)
    shape = array.shape
    if shape is None or len(shape) != 2:
        raise ValueError(f"{name}: must be a 2-D array, got shape {shape}")
    rows, cols = (int(length) for length in shape)
    if not rows or not cols:
        raise ValueError(f"{name}: must have at least one row and one column, got {rows} x {cols}")
    dtype = numbers(array.dtype, name)
    most = block_rows(cols, dtype)
    row = cols * array.dtype.itemsize
    refuse_large(name, "a row", row, limit)
    chunks = getattr(array, "chunks", None)
    if chunks:
        # The library unpacks whole chunks, even for a few rows.
        refuse_large(name, "a chunk", math.prod(map(int, chunks)) * array.dtype.itemsize, limit)
        refuse_large(name, "a row of chunks", min(rows, int(chunks[0])) * row, limit)
        most = max(1, most // chunks[0]) * chunks[0]

    def blocks() -> Iterator[Block]:
        with opened() as source:
            if source.shape != shape:
                raise ValueError(f"{name}: changed while it was open: had shape {shape}, now {source.shape}")
            for start in range(0, rows, most):
                yield np.ascontiguousarray(source[start : min(rows, start + most)], dtype=dtype)

    return Stream(name, rows, cols, dtype, blocks)


def choose_key(name: str, key: str | None, arrays: list[str]) -> str:
    """Return the key of the array to read: `key`, or the only array."""
    if key is None:
        if len(arrays) == 1:
            return arrays[0]
        raise MarkedError(f"{name}: holds {len(arrays)} arrays. Choose one with `key`=: {listed(arrays)}.")
    if not isinstance(key, str):
        raise ParameterError(f"`key` must be the name of an array, got {shown(key)}")
    # An exact match, or one that differs only in leading and trailing slashes.
    alike = [array for array in arrays if array.strip("/") == key.strip("/")]
    if not alike:
        raise ValueError(f"{name}: key must be one of {listed(arrays)}, got {key!r}")
    return key if key in arrays else alike[0]
