"""Readers for file formats and objects of other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from shoal._core import Source

from .remote import is_url
from .stream import Reading, Stream, Unchanged, chunk_limit

#: For every suffix: the module of its reader, the function, and the options of `shoal.open` that it takes.
SUFFIXES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    ".arrow": ("ipc", "open_ipc", ("columns", "chunk_limit")),
    ".csv": ("csv", "open_csv", ("columns", "dtype")),
    ".csv.gz": ("csv", "open_csv", ("columns", "dtype")),
    ".feather": ("ipc", "open_ipc", ("columns", "chunk_limit")),
    ".h5": ("hdf5", "open_hdf5", ("key", "chunk_limit")),
    ".hdf5": ("hdf5", "open_hdf5", ("key", "chunk_limit")),
    ".parquet": ("parquet", "open_parquet", ("columns", "chunk_limit")),
    ".safetensors": ("safetensors", "open_safetensors", ("key",)),
    ".tsv": ("csv", "open_csv", ("columns", "dtype")),
    ".tsv.gz": ("csv", "open_csv", ("columns", "dtype")),
    ".zarr": ("zarr", "open_zarr", ("key", "chunk_limit")),
}
#: Libraries, with the module and the function that open their objects. The function returns None for other
#: objects, and for array-likes.
OBJECTS = (
    ("pyarrow", "tables", "of_pyarrow"),
    ("datasets", "tables", "of_hugging_face"),
    ("polars", "queries", "of_lazy"),
    ("polars", "tables", "of_polars"),
    ("pandas", "frames", "of_pandas"),
    ("duckdb", "queries", "of_duckdb"),
    ("_duckdb", "queries", "of_duckdb"),
    ("adbc_driver_manager", "tables", "of_cursor"),
)
#: Suffixes of text files, whose numbers are parsed as the `dtype` of `shoal.open`.
TEXT = tuple(suffix for suffix, (_, _, options) in SUFFIXES.items() if "dtype" in options)
#: Libraries of frames and tables.
TABLES = {"pandas", "polars", "pyarrow"}
#: Files in the folder of a zarr store, in format 3 or 2.
STORE = ("zarr.json", ".zarray", ".zgroup")


def suffix_of(name: str) -> str:
    """Return the lower-case suffix of a path; a folder without a known suffix gets one from its contents.

    A URL may have a query behind the suffix.
    """
    path = Path(name.partition("?")[0] if is_url(name) else name)
    suffix = "".join(path.suffixes[-2:]).lower()
    if suffix not in SUFFIXES:
        suffix = path.suffix.lower()
    if suffix not in SUFFIXES and path.is_dir() and any((path / entry).exists() for entry in STORE):
        return ".zarr"
    return suffix


def of_file(name: str, reading: Reading) -> Stream | Source:
    """Open a file with a suffix of `SUFFIXES`; raise `ValueError` for options of other formats.

    Every pass over a stream raises `ValueError` if the file was changed or replaced since.
    """
    suffix = suffix_of(name)
    module, function, options = SUFFIXES[suffix]
    reading.refuse(name, suffix, except_for=options)
    file = None if is_url(name) or not Path(name).exists() else Unchanged(name)
    opened: Stream | Source = getattr(import_module(f".{module}", __name__), function)(name, reading)
    if file is None or isinstance(opened, Source):
        return opened
    table = opened.table and replace(opened.table, batches=partial(file.items, opened.table.batches))
    return replace(opened, blocks=partial(file.items, opened.blocks), table=table)


def libraries_of(obj: Any) -> set[str]:
    """Return the packages that define the class of an object and its bases."""
    return {cls.__module__.partition(".")[0] for cls in type(obj).__mro__}


def is_chunked(obj: Any) -> bool:
    """Whether an object is a chunked array of h5py or zarr."""
    return not libraries_of(obj).isdisjoint({"h5py", "zarr"}) and hasattr(obj, "chunks")


def of_object(obj: Any, columns: Sequence[Any] | None, limit: int | str | None) -> Stream | Source | None:
    """Open an object of another library without loading it; None if it is array-like.

    The class of the object tells its library, so no library is imported for the check. `limit` is the
    `chunk_limit` of `shoal.open`.
    """
    libraries = libraries_of(obj)
    for library, module, function in OBJECTS:
        if library in libraries:
            found: Stream | Source | None
            found = getattr(import_module(f".{module}", __name__), function)(obj, columns)
            if found is not None:
                return found
    if is_chunked(obj) and "h5py" in libraries:
        from .hdf5 import of_dataset

        return of_dataset(obj, chunk_limit(limit))
    if is_chunked(obj):
        from .zarr import of_array

        return of_array(obj, chunk_limit(limit))
    if hasattr(obj, "__arrow_c_stream__") and not hasattr(obj, "__array__"):
        from .tables import of_exporter

        return of_exporter(obj, columns)
    return None


def table_of(obj: Any, columns: Sequence[Any] | None) -> Any:
    """Return the table of an object in memory, for columns beside its features; None if it has none."""
    libraries = libraries_of(obj)
    if libraries.isdisjoint(TABLES):
        return None
    from .kept import find_table

    return find_table(obj, columns, libraries)
