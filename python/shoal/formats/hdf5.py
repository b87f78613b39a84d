"""Data sets of HDF5 files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shoal._common.files import open_regular

from . import chunked
from .stream import Stream, required, told_of


def open_hdf5(name: str, key: str | None, limit: int) -> Stream:
    """Open the data set `key` of a file, which needs no name where it is the only one."""
    h5py = required("h5py", "hdf5", name)
    # The library's own errors do not say which file is missing.
    open_regular(name).close()
    with told_of(name), h5py.File(name, "r") as file:
        array = None if key is None else file.get(key)
        if not isinstance(array, h5py.Dataset):
            array = file[chunked.one_of(name, key, data_sets(h5py, file))]
        found: str = array.name

        @contextmanager
        def opened() -> Iterator[Any]:
            with told_of(name), h5py.File(name, "r") as again:
                yield again[found]

        return chunked.stream_of(array, f"{name}[{found!r}]", limit, opened)


def of_dataset(array: Any, limit: int) -> Stream:
    """Give a data set of an open file, which must stay open as long as it is used."""
    if not array:
        raise ValueError("the HDF5 data set is closed")
    name = f"{array.file.filename}[{array.name!r}]"

    @contextmanager
    def opened() -> Iterator[Any]:
        with told_of(name):
            yield array

    return chunked.stream_of(array, name, limit, opened)


def data_sets(h5py: Any, file: Any) -> list[str]:
    """Give the names of all data sets of a file."""
    names: list[str] = []

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            names.append(name)

    file.visititems(note)
    return names
