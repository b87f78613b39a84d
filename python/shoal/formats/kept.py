"""Columns of a table beside its features: identifiers, texts, dates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .arrow import find_columns, import_pyarrow
from .stream import name_errors

#: Rows of a data frame that are converted at a time.
FRAME_ROWS = 1 << 16


@dataclass(frozen=True)
class Table:
    """The table that rows are read from; its columns can be read again by name."""

    name: str
    #: All columns of the table.
    schema: Any
    #: Begins a pass over columns, given by name: record batches in the order of the rows.
    batches: Callable[[list[str]], Iterable[Any]]
    #: Names of the columns that hold the features.
    features: list[str]

    def check(self, columns: Sequence[Any], parameter: str) -> list[str]:
        """Return the names of `columns`; raise `ValueError` if one is missing, or given or stored twice."""
        names = find_columns(self.name, columns, self.schema.names, parameter)
        times = Counter(self.schema.names)
        for column in names:
            if times[column] > 1:
                raise ValueError(f"{self.name}: has several columns with the name {column!r}")
        return names


def find_table(obj: Any, columns: Sequence[Any] | None, libraries: set[str]) -> Table | None:
    """Return the table of an object of pandas, polars or pyarrow that can be read again; None for others.

    `libraries` are the packages that define the class of the object.
    """
    if "pandas" in libraries:
        return table_of_pandas(obj, columns) if hasattr(obj, "iloc") and hasattr(obj, "columns") else None
    if "polars" in libraries:
        if not hasattr(obj, "to_arrow") or not hasattr(obj, "columns"):
            return None
        import_pyarrow("polars frame")
        schema = obj.head(0).to_arrow().schema
        return make_table(
            "polars frame", schema, columns, lambda names: obj.select(names).to_arrow().to_batches()
        )
    return table_of_pyarrow(obj, columns)


def make_table(
    name: str, schema: Any, columns: Sequence[Any] | None, batches: Callable[[list[str]], Iterable[Any]]
) -> Table:
    """Make a table whose features are `columns`; None for all."""
    return Table(name, schema, batches, list(schema.names if columns is None else columns))


def table_of_pyarrow(obj: Any, columns: Sequence[Any] | None) -> Table | None:
    """Return the table of a table, record batch or dataset of pyarrow; None for other objects."""
    pa = import_pyarrow("a table")
    if isinstance(obj, pa.RecordBatch):
        obj = pa.Table.from_batches([obj])
    if isinstance(obj, pa.Table):
        return make_table("pyarrow table", obj.schema, columns, lambda names: obj.select(names).to_batches())
    if isinstance(obj, pa.RecordBatchReader) or not hasattr(obj, "to_batches"):
        return None

    def batches(names: list[str]) -> Any:
        return obj.to_batches(
            columns=names, batch_size=FRAME_ROWS, batch_readahead=1, fragment_readahead=1, use_threads=False
        )

    return make_table("pyarrow dataset", obj.schema, columns, batches)


def table_of_pandas(frame: Any, columns: Sequence[Any] | None) -> Table | None:
    """Return the table of a pandas frame; None if its columns are not named by strings."""
    if not all(isinstance(column, str) for column in frame.columns):
        return None
    pa = import_pyarrow("pandas frame")
    # Types are found when columns are read: the type of a column of objects depends on all of its values.
    unknown = pa.schema([(column, pa.null()) for column in frame.columns])

    def batches(names: list[str]) -> Iterator[Any]:
        kept = frame[names]
        with name_errors("pandas frame"):
            schema = pa.Schema.from_pandas(kept, preserve_index=False)
            # The first batch tells the schema, also of no rows.
            for start in range(0, max(1, len(kept)), FRAME_ROWS):
                part = kept.iloc[start : start + FRAME_ROWS]
                yield pa.RecordBatch.from_pandas(part, schema=schema, preserve_index=False)

    return make_table("pandas frame", unknown, columns, batches)


class Kept:
    """The columns `names` of a table, given out in parts of any length from the row `first` on."""

    def __init__(self, table: Table, names: list[str], first: int) -> None:
        self._pa = import_pyarrow(table.name)
        self._table, self._names = table, names
        self._batches = self._read()
        self._next: Any = next(self._batches, None)
        if self._next is None:
            fields = [table.schema.field(name) for name in names]
            self.schema = self._pa.schema([decode_field(self._pa, field) for field in fields])
        else:
            self.schema = self._next.schema
        self.take(first)

    def _read(self) -> Iterator[Any]:
        with name_errors(self._table.name):
            for batch in self._table.batches(self._names):
                # In a damaged file the lengths can contradict the buffers.
                batch.validate()
                yield decode_batch(self._pa, batch.select(self._names))

    def take(self, rows: int) -> Any:
        """Return the next `rows` rows as a record batch; raise `ValueError` if the table has fewer."""
        parts: list[Any] = []
        missing = rows
        while missing:
            if self._next is None:
                raise ValueError(
                    f"{self._table.name}: the columns {self._names} have {rows - missing} rows where "
                    f"{rows} were read before: it has changed"
                )
            part = self._next.slice(0, missing)
            missing -= part.num_rows
            rest = self._next.slice(part.num_rows)
            self._next = rest if rest.num_rows else next(self._batches, None)
            if part.num_rows:
                parts.append(part)
        if len(parts) == 1:
            return parts[0]
        table = self._pa.Table.from_batches(parts, schema=self.schema).combine_chunks()
        return table.to_batches()[0] if rows else None

    def close(self) -> None:
        """Close the table."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()


def decode_field(pa: Any, field: Any) -> Any:
    """Return a field with the type of the values if it is encoded by a dictionary."""
    return field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field


def decode_batch(pa: Any, batch: Any) -> Any:
    """Decode dictionaries, which differ between the batches of a file."""
    schema = pa.schema([decode_field(pa, field) for field in batch.schema])
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.record_batch(columns, schema=schema)
