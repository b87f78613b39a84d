"""Readers for file formats and objects of other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy.typing as npt

from shoal._checks.marked import ParameterError
from shoal._core import Source

from .remote import is_url
from .stream import Stream, chunk_limit

#: For every suffix: the module of its reader, the function, and the option of `shoal.open` that it takes. The
#: functions of the modules in `CHUNKED` also take the maximum size of a chunk.
SUFFIXES = {
    ".arrow": ("ipc", "open_ipc", "columns"),
    ".csv": ("csv", "open_csv", "columns"),
    ".csv.gz": ("csv", "open_csv", "columns"),
    ".feather": ("ipc", "open_ipc", "columns"),
    ".h5": ("hdf5", "open_hdf5", "key"),
    ".hdf5": ("hdf5", "open_hdf5", "key"),
    ".parquet": ("parquet", "open_parquet", "columns"),
    ".safetensors": ("safetensors", "open_safetensors", "key"),
    ".tsv": ("csv", "open_csv", "columns"),
    ".tsv.gz": ("csv", "open_csv", "columns"),
    ".zarr": ("zarr", "open_zarr", "key"),
}
CHUNKED = ("hdf5", "ipc", "parquet", "zarr")
#: Suffixes of text files, whose numbers are parsed as the `dtype` of `shoal.open`.
TEXT = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
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


def of_file(
    name: str,
    suffix: str,
    columns: Sequence[Any] | None,
    key: str | None,
    limit: int | str | None,
    dtype: npt.DTypeLike | None = None,
) -> Stream | Source:
    """Open a file with a suffix of `SUFFIXES`, which :func:`suffix_of` returns.

    The other parameters are those of :func:`shoal.open`; `limit` is its `chunk_limit`. Raises `ValueError` if
    an option does not belong to the format.
    """
    module, function, option = SUFFIXES[suffix]
    given: dict[str, Any] = {"columns": columns, "key": key}
    value = given.pop(option)
    further: list[Any] = [chunk_limit(limit)] if module in CHUNKED else []
    if suffix in TEXT:
        further.append(dtype)
    else:
        given["dtype"] = dtype
    if module not in CHUNKED:
        given["chunk_limit"] = limit
    for other, unwanted in given.items():
        if unwanted is not None:
            raise ParameterError(f"{name}: `{other}`={unwanted!r} does not belong to {suffix} files")
    opened: Stream | Source = getattr(import_module(f".{module}", __name__), function)(name, value, *further)
    return opened


def libraries_of(obj: Any) -> set[str]:
    """Return the packages that define the class of an object and its bases."""
    return {cls.__module__.partition(".")[0] for cls in type(obj).__mro__}


def is_chunked(obj: Any) -> bool:
    """Whether an object is a chunked array of h5py or zarr."""
    return not libraries_of(obj).isdisjoint({"h5py", "zarr"}) and hasattr(obj, "chunks")


def of_object(obj: Any, columns: Sequence[Any] | None, limit: int | str | None) -> Stream | Source | None:
    """Open an object of another library without loading it; None if it is array-like.

    The class of the object tells its library, so no library is imported for the check.
    """
    libraries = libraries_of(obj)
    if "pyarrow" in libraries:
        from .tables import of_pyarrow

        return of_pyarrow(obj, columns)
    # The module of a class of the user may have this name too.
    if "datasets" in libraries and hasattr(obj, "with_format"):
        from .tables import of_hugging_face

        return of_hugging_face(obj, columns)
    if "polars" in libraries and type(obj).__name__ == "LazyFrame":
        from .queries import of_lazy

        return of_lazy(obj, columns)
    if "polars" in libraries:
        from .tables import of_polars

        return of_polars(obj, columns)
    if "pandas" in libraries:
        from .frames import of_pandas

        return of_pandas(obj, columns)
    if not libraries.isdisjoint({"duckdb", "_duckdb"}):
        from .queries import of_duckdb

        return of_duckdb(obj, columns)
    if "adbc_driver_manager" in libraries and hasattr(obj, "fetch_record_batch"):
        from .tables import of_reader

        return of_reader(obj.fetch_record_batch(), columns, "ADBC cursor")
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
    if libraries.isdisjoint({"pandas", "polars", "pyarrow"}):
        return None
    from .kept import find_table

    return find_table(obj, columns, libraries)
