"""Zarr stores in format 2 or 3, and arrays of zarr."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from . import chunked
from .stream import Reading, Stream, name_errors, required


def open_zarr(name: str, reading: Reading) -> Stream:
    """Open a store that holds one array, or the array `key` of a group; None for the only array."""
    key, limit = reading.key, reading.limit
    zarr = required("zarr", "zarr", name)
    # The error of zarr for a missing store says that it is not a group.
    if not stat.S_ISDIR(Path(name).stat().st_mode):
        raise ValueError(f"{name}: must be a folder with a zarr store, got a file")
    with name_errors(name):
        stored = zarr.open(name, mode="r")
        if isinstance(stored, zarr.Array):
            if key is not None:
                raise ValueError(f"{name}: is a single array, so key must be None, got {key!r}")
            return chunked.stream_of(stored, name, limit)
        if key is None or not isinstance(stored.get(key), zarr.Array):
            arrays = [path for path, item in stored.members(max_depth=None) if isinstance(item, zarr.Array)]
            key = chunked.choose_key(name, key, arrays)
        array = stored[key]
        return chunked.stream_of(array, f"{name}[{array.path!r}]", limit)


def of_array(array: Any, limit: int) -> Stream:
    """Open an array of zarr, which holds no file open between passes."""
    return chunked.stream_of(array, f"zarr array {array.store_path}", limit)
