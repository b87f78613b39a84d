"""Arrays of zarr stores, of format 2 and 3."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import chunked
from .stream import Stream, required, told_of


def open_zarr(name: str, key: str | None, limit: int) -> Stream:
    """Open a store that is one array, or the array `key` of a group, where the only one needs no name."""
    zarr = required("zarr", "zarr", name)
    # Of a store that is missing, zarr says that it is no group.
    if not stat.S_ISDIR(Path(name).stat().st_mode):
        raise ValueError(f"{name}: is not a folder, as a zarr store is")
    with told_of(name):
        stored = zarr.open(name, mode="r")
        if isinstance(stored, zarr.Array):
            if key is not None:
                raise ValueError(f"{name}: is one array: there is none within it for key={key!r}")
            return stream_of(stored, name, limit)
        array = None if key is None else stored.get(key)
        if not isinstance(array, zarr.Array):
            arrays = [path for path, item in stored.members(max_depth=None) if isinstance(item, zarr.Array)]
            array = stored[chunked.one_of(name, key, arrays)]
        return stream_of(array, f"{name}[{array.path!r}]", limit)


def of_array(array: Any, limit: int) -> Stream:
    """Give an open array."""
    return stream_of(array, f"zarr array {array.store_path}", limit)


def stream_of(array: Any, name: str, limit: int) -> Stream:
    """Give an array as rows: an array of zarr holds no file open."""

    @contextmanager
    def opened() -> Iterator[Any]:
        with told_of(name):
            yield array

    return chunked.stream_of(array, name, limit, opened)
