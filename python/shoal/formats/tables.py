"""Tables of pyarrow, frames of polars, and other objects with Arrow data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from shoal._checks.params import shown
from shoal._core import Source

from .arrow import MOST_LISTS, Columns, import_pyarrow, is_vector_type
from .parquet import BUFFER_BYTES, NUMBERS
from .stream import Block, Stream

#: Datasets in these formats store their row counts.
COUNTED = ("parquet", "arrow", "feather")


def of_pyarrow(obj: Any, columns: Sequence[Any] | None) -> Stream | Source | None:
    """Open an object of pyarrow; None for tables of numbers, which are array-like."""
    pa = import_pyarrow("a table")
    if isinstance(obj, pa.RecordBatchReader):
        return of_reader(obj, columns)
    if hasattr(obj, "projected_schema"):
        return of_reader(obj.to_reader(), columns, "pyarrow scanner")
    if isinstance(obj, (pa.Array, pa.ChunkedArray)):
        if columns is not None or not is_vector_type(pa, obj.type):
            return None
        obj = pa.table({"vectors": obj})
    if isinstance(obj, pa.RecordBatch):
        obj = pa.Table.from_batches([obj])
    if isinstance(obj, pa.Table):
        return of_table(obj, columns, "pyarrow table")
    return of_data_set(obj, columns) if hasattr(obj, "to_batches") else None


def of_polars(obj: Any, columns: Sequence[Any] | None) -> Stream | Source | None:
    """Open a frame or Series of polars with a column of vectors; None for others, which are array-like."""
    if type(obj).__name__ == "Series" and columns is None:
        obj = obj.to_frame()
    kinds = getattr(obj, "schema", {})
    wanted = list(kinds) if columns is None else columns
    if not any(str(kinds.get(column)).startswith(("Array(", "List(")) for column in wanted):
        return None
    pa = import_pyarrow("a polars frame with a column of vectors")
    return of_table(pa.table(obj), columns, "polars frame")


def of_exporter(obj: Any, columns: Sequence[Any] | None) -> Stream:
    """Open any object that exports an Arrow stream; an object with a length can be read repeatedly."""
    name = type(obj).__name__
    pa = import_pyarrow(name)

    def reader() -> Any:
        return pa.RecordBatchReader.from_stream(obj)

    if not hasattr(obj, "__len__"):
        return of_reader(reader(), columns, name)
    first = reader()
    found = Columns(name, first.schema, columns)
    found.measure(first)
    return streamed(name, len(obj), found, reader)


def of_table(table: Any, columns: Sequence[Any] | None, name: str) -> Stream | Source | None:
    """Open a table with a column of vectors; a table of one batch is used without a copy."""
    pa = import_pyarrow(name)
    wanted = table.schema.names if columns is None else columns
    kinds = {field.name: field.type for field in table.schema}
    if not any(column in kinds and is_vector_type(pa, kinds[column]) for column in wanted):
        return None
    found = Columns(name, table.schema, columns)
    batches = table.select(found.names).to_batches()
    found.measure(batches)
    if len(batches) == 1:
        return Source.from_array(found.block(batches[0], 0))
    return streamed(name, table.num_rows, found, lambda: batches)


def of_reader(reader: Any, columns: Sequence[Any] | None, name: str = "RecordBatchReader") -> Stream:
    """Open a reader of record batches, which can be read once."""
    found = Columns(name, reader.schema, columns)
    read = found.measure(reader)
    return streamed(name, None, found, lambda: chain(read, reader), once=True)


def of_data_set(data: Any, columns: Sequence[Any] | None) -> Stream:
    """Open a dataset of pyarrow; its files are read one after the other."""
    from pyarrow import dataset

    name = "pyarrow dataset"
    found = Columns(name, data.schema, columns)
    stored = getattr(data, "format", None)
    counted = stored is None or stored.default_extname in COUNTED
    options: dict[str, Any] = {}
    if isinstance(stored, dataset.ParquetFileFormat):
        options["fragment_scan_options"] = dataset.ParquetFragmentScanOptions(
            pre_buffer=False, use_buffered_stream=True, buffer_size=BUFFER_BYTES
        )

    def batches(size: int) -> Any:
        return data.to_batches(
            columns=found.names,
            batch_size=size,
            batch_readahead=1,
            fragment_readahead=1,
            use_threads=False,
            **options,
        )

    if found.is_list:
        found.measure(batches(MOST_LISTS))
    size = found.batch_rows(NUMBERS)
    return streamed(name, data.count_rows() if counted else None, found, lambda: batches(size))


def of_cursor(obj: Any, columns: Sequence[Any] | None) -> Stream | None:
    """Open a cursor of ADBC, which can be read once; None for other objects."""
    if not hasattr(obj, "fetch_record_batch"):
        return None
    return of_reader(obj.fetch_record_batch(), columns, "ADBC cursor")


def of_hugging_face(obj: Any, columns: Sequence[Any] | None) -> Stream | None:
    """Open a dataset of the Hugging Face library `datasets`, converted to Arrow batch by batch.

    None for other objects: a module of the user may have the name `datasets` too. Raises `TypeError` for a
    dictionary of splits.
    """
    if not hasattr(obj, "with_format"):
        return None
    name = f"Hugging Face {type(obj).__name__}"
    if isinstance(obj, dict):
        split = shown(next(iter(obj), "train"))
        raise TypeError(f"X must be one split of a {type(obj).__name__}: pass X[{split}]")
    if columns is None:
        # The columns that `with_format(..., columns=)` has chosen.
        columns = getattr(obj, "format", {}).get("columns")
    data = obj.with_format("arrow")
    schema = None if obj.features is None else obj.features.arrow_schema
    if schema is None:
        first = next(iter(data.iter(batch_size=1)), None)
        if first is None:
            raise ValueError(f"{name}: has no rows")
        schema = first.schema
    found = Columns(name, schema, columns)
    data = data.select_columns(found.names)

    def batches(size: int) -> Iterator[Any]:
        for table in data.iter(batch_size=size):
            yield from table.to_batches()

    found.measure(batches(1))
    size = found.batch_rows(NUMBERS)
    rows = len(obj) if hasattr(obj, "__len__") else None
    return streamed(name, rows, found, lambda: batches(size))


def streamed(
    name: str,
    rows: int | None,
    found: Columns,
    batches: Callable[[], Iterable[Any]],
    *,
    once: bool = False,
) -> Stream:
    """Make a stream of rows from batches."""

    def blocks() -> Iterator[Block]:
        return found.blocks(batches())

    return Stream(name, rows, found.cols, found.dtype, blocks, once, found.header())
