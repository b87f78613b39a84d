"""Output files of tables: .parquet, .arrow, .feather and .csv, written batch by batch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .staged import Name, PlainFile, Staged, WholeFile

#: Limits of a row group of a Parquet file, and of a record batch of an Arrow file.
GROUP_ROWS, GROUP_BYTES = 1 << 20, 64 << 20

#: Suffixes of files of tables.
TABLES = (".parquet", ".arrow", ".feather", ".csv")


class TableFile(Staged):
    """A table in a file that is written to a temporary name and renamed; the suffix gives the format.

    `whole` is the open file, by default a :class:`WholeFile`.
    """

    def __init__(self, path: Name, schema: Any, whole: WholeFile | PlainFile | None = None) -> None:
        name = os.fsdecode(path)
        self._pa = require_pyarrow(name)
        suffix = Path(name).suffix.lower()
        if suffix == ".csv":
            refuse_nested(self._pa, name, schema)
        self._schema = schema
        # An Arrow file has one batch per group; the other formats write chunks without a copy.
        self._one_batch = suffix in (".arrow", ".feather")
        self._waiting: list[Any] = []
        self._rows = self._bytes = 0
        self._target = self._whole = WholeFile(name) if whole is None else whole
        try:
            self._writer = self._begun(suffix)
        except BaseException:
            self._whole.close()
            raise

    def _begun(self, suffix: str) -> Any:
        """Return the writer of the format."""
        file, schema = self._whole.file, self._schema
        if suffix == ".parquet":
            from pyarrow import parquet

            return parquet.ParquetWriter(file, schema, use_dictionary=dictionary_columns(self._pa, schema))
        if suffix == ".csv":
            from pyarrow import csv

            return csv.CSVWriter(file, schema)
        # Without compression, so that readers can map the file.
        return self._pa.ipc.new_file(file, schema)

    def append(self, batch: Any) -> None:
        """Buffer the next rows, and write full groups. The batch must not change until then."""
        while self._rows + batch.num_rows >= GROUP_ROWS:
            room = GROUP_ROWS - self._rows
            self._take(batch.slice(0, room))
            self._write()
            batch = batch.slice(room)
        self._take(batch)
        if self._bytes >= GROUP_BYTES:
            self._write()

    def _take(self, batch: Any) -> None:
        if batch.num_rows:
            self._waiting.append(batch)
            self._rows += batch.num_rows
            self._bytes += batch.nbytes

    def _write(self) -> None:
        if self._rows:
            table = self._pa.Table.from_batches(self._waiting, schema=self._schema)
            if self._one_batch:
                table = table.combine_chunks()
            with self._whole.named_errors():
                self._writer.write_table(table, self._rows)
            self._waiting, self._rows, self._bytes = [], 0, 0

    def prepare(self) -> None:
        if not self._whole.file.closed:
            self._write()
            with self._whole.named_errors():
                self._writer.close()
        super().prepare()

    def close(self) -> None:
        if hasattr(self._writer, "is_open"):
            # Otherwise the writer writes its footer to a closed file when it is garbage-collected.
            self._writer.is_open = False
        super().close()


def require_pyarrow(what: str) -> Any:
    """Import pyarrow to write `what`."""
    from shoal.formats.stream import required

    required("pyarrow.parquet", "arrow", what)
    return required("pyarrow", "arrow", what)


def dictionary_columns(pa: Any, schema: Any) -> list[str]:
    """Return the columns whose values may repeat, for dictionary encoding: it costs memory for all others."""
    t = pa.types
    return [field.name for field in schema if not (t.is_floating(field.type) or t.is_nested(field.type))]


def refuse_nested(pa: Any, name: str, schema: Any) -> None:
    """Raise `ValueError` if a column holds lists or other nested values, which CSV cannot hold."""
    for field in schema:
        if pa.types.is_nested(field.type):
            raise ValueError(
                f"{name}: column {field.name!r} must hold single values in a .csv file, got {field.type}. "
                "Write a .parquet or .arrow file instead."
            )


def column_type(pa: Any, dtype: Any, cols: int | None) -> Any:
    """Return the type of a column of numbers, or of vectors of `cols` numbers."""
    kind = pa.from_numpy_dtype(dtype)
    return kind if cols is None else pa.list_(kind, cols)


def column_of(pa: Any, values: Any) -> Any:
    """Convert an array to a column: numbers, or vectors for an array of two dimensions."""
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
