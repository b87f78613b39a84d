"""HDF5 files, and datasets of h5py."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from shoal._files.staged import open_regular

from . import chunked
from .stream import Reading, Stream, name_errors, required


def open_hdf5(name: str, reading: Reading) -> Stream:
    """Open the dataset `key` of a file; None for the only dataset."""
    key, limit = reading.key, reading.limit
    h5py = required("h5py", "hdf5", name)
    # The errors of h5py do not name a missing file.
    open_regular(name).close()
    with name_errors(name), h5py.File(name, "r") as file:
        if key is None or not isinstance(file.get(key), h5py.Dataset):
            key = chunked.choose_key(name, key, data_sets(h5py, file))
        array = file[key]
        found: str = array.name

        @contextmanager
        def opened() -> Generator[Any]:
            with name_errors(name), h5py.File(name, "r") as again:
                yield again[found]

        return chunked.stream_of(array, f"{name}[{found!r}]", limit, opened)


def of_dataset(array: Any, limit: int) -> Stream:
    """Open a dataset of an open file; the file must stay open while the rows are in use."""
    if not array:
        raise ValueError("the HDF5 dataset must be open, got a dataset of a closed file")
    return chunked.stream_of(array, f"{array.file.filename}[{array.name!r}]", limit)


def data_sets(h5py: Any, file: Any) -> list[str]:
    """List the names of all datasets of a file."""
    names: list[str] = []

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            names.append(name)

    file.visititems(note)
    return names
