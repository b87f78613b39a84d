"""Arrays that are stored in chunks, as those of HDF5 and zarr: blocks are whole chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from shoal._common.params import shown

from .stream import Block, Stream, block_rows, listed, numbers, refuse_large


def stream_of(array: Any, name: str, limit: int, opened: Callable[[], AbstractContextManager[Any]]) -> Stream:
    """Give a stored array as rows.

    Parameters
    ----------
    array : h5py.Dataset or zarr.Array
        Anything with a shape, a type and chunks that gives rows by slices.
    name : str
        What messages call it.
    limit : int
        Bytes that a chunk, and those beside it in the same rows, may take.
    opened : callable
        Gives a context manager of the array, for every pass anew.
    """
    shape = array.shape
    if shape is None or len(shape) != 2:
        raise ValueError(f"{name}: rows are a 2-D array, got shape {shape}")
    rows, cols = (int(length) for length in shape)
    if not rows or not cols:
        raise ValueError(f"{name}: {rows} rows of {cols} columns are nothing to work on")
    dtype = numbers(array.dtype, name)
    most = block_rows(cols, dtype)
    row = cols * array.dtype.itemsize
    refuse_large(name, "a row", row, limit)
    chunks = getattr(array, "chunks", None)
    if chunks:
        # A chunk is unpacked as a whole, however little of it is wanted.
        refuse_large(name, "a chunk", math.prod(map(int, chunks)) * array.dtype.itemsize, limit)
        refuse_large(name, "a row of chunks", min(rows, int(chunks[0])) * row, limit)
        most = max(1, most // chunks[0]) * chunks[0]

    def blocks() -> Iterator[Block]:
        with opened() as source:
            if source.shape != shape:
                raise ValueError(f"{name}: had shape {shape}, and now {source.shape}")
            for start in range(0, rows, most):
                yield np.ascontiguousarray(source[start : min(rows, start + most)], dtype=dtype)

    return Stream(name, rows, cols, dtype, blocks)


def one_of(name: str, key: str | None, arrays: list[str]) -> str:
    """Give the key of the array that is meant: `key`, or the only one."""
    if key is None:
        if len(arrays) == 1:
            return arrays[0]
        raise ValueError(f"{name}: holds {len(arrays)} arrays, name one with key=: {listed(arrays)}")
    if not isinstance(key, str):
        raise ValueError(f"key must be the name of an array, got {shown(key)}")
    # As it is called, or else but for slashes around the name.
    alike = [array for array in arrays if array.strip("/") == key.strip("/")]
    if not alike:
        raise ValueError(f"{name}: there is no array {key!r}; there are: {listed(arrays)}")
    return key if key in arrays else alike[0]
