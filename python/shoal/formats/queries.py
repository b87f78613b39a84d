"""Queries that run for every pass: LazyFrames of polars, relations of DuckDB."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from .arrow import MOST_LISTS, Columns, import_pyarrow
from .parquet import NUMBERS
from .stream import Block, Stream, name_errors
from .tables import of_reader


def of_lazy(frame: Any, columns: Sequence[Any] | None) -> Stream | None:
    """Open a LazyFrame of polars, which is collected in streaming batches in every pass; None for others."""
    if type(frame).__name__ != "LazyFrame":
        return None
    import polars as pl

    name = "polars LazyFrame"
    pa = import_pyarrow(name)
    if not hasattr(frame, "collect_batches"):
        raise ImportError(f"{name} needs polars 1.34 or later, got {pl.__version__}")
    with name_errors(name):
        schema = pa.table(pl.DataFrame(schema=frame.collect_schema())).schema
        found = Columns(name, schema, columns)
        wanted = frame.select(found.names)
        if found.is_list:
            found.measure(pa.table(wanted.head(1).collect(engine="streaming")).to_batches())
    size = found.batch_rows(NUMBERS)

    def batches() -> Generator[Any]:
        with name_errors(name):
            for part in wanted.collect_batches(chunk_size=size, maintain_order=True, engine="streaming"):
                yield from pa.table(part).to_batches()

    return stream_query(name, found, batches)


def of_duckdb(obj: Any, columns: Sequence[Any] | None) -> Stream | None:
    """Open a relation of DuckDB, which runs in every pass, or a result, which can be read once."""
    if type(obj).__name__ == "DuckDBPyConnection":
        name = "DuckDB connection"
        with name_errors(name):
            reader = reader_of(obj, MOST_LISTS)
        if reader is None:
            raise ValueError(f"{name}: has no result: run a query first, or pass the relation con.sql(query)")
        return of_reader(reader, columns, name)
    if type(obj).__name__ != "DuckDBPyRelation":
        return None
    name = "DuckDB relation"
    # A connection runs one query at a time, so every reader is closed before the next one starts.
    with name_errors(name), closing(reader_of(obj.limit(1), 1)) as first:
        found = Columns(name, first.schema, columns)
        found.measure(first)
    size = found.batch_rows(NUMBERS)

    return stream_query(name, found, Runs(name, obj, size))


class Runs:
    """The runs of a relation, of which only the latest can give batches.

    A connection has one open result at a time. A pass that ends early may still be closing in another thread
    when the next one begins, which therefore closes the open reader itself.
    """

    def __init__(self, name: str, relation: Any, size: int) -> None:
        self._name, self._relation, self._size = name, relation, size
        self._lock = threading.Lock()
        self._reader: Any = None

    def __call__(self) -> Generator[Any]:
        with name_errors(self._name), self._lock:
            self._close()
            reader = self._reader = reader_of(self._relation, self._size)
        try:
            while (batch := self._next(reader)) is not None:
                yield batch
        finally:
            with self._lock:
                if self._reader is reader:
                    self._close()

    def _next(self, reader: Any) -> Any:
        """Return the next batch; None at the end."""
        with name_errors(self._name), self._lock:
            if self._reader is not reader:
                raise ValueError(f"{self._name}: another pass began before this one ended")
            return next(reader, None)

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def reader_of(result: Any, rows: int) -> Any:
    """Return a reader of batches of at most `rows` rows of a query of DuckDB."""
    if not hasattr(result, "to_arrow_reader"):
        raise ValueError(
            f"DuckDB must be of version 2 or later, got a {type(result).__name__} without batches"
        )
    return result.to_arrow_reader(rows)


def stream_query(name: str, found: Columns, batches: Callable[[], Generator[Any]]) -> Stream:
    """Make a stream of a query, whose rows must be the same in every pass."""
    return Stream(name, None, found.cols, found.dtype, SameRows(name, found, batches), header=found.header())


class SameRows:
    """The passes over a query: raises if a complete pass gives other rows than the first one.

    A query without an explicit order may give its rows in another order each time it runs. Labels would then
    belong to other rows.
    """

    def __init__(self, name: str, found: Columns, batches: Callable[[], Generator[Any]]) -> None:
        self._name, self._found, self._batches = name, found, batches
        # The checksum of the rows of the first complete pass.
        self._first: int | None = None

    def __call__(self) -> Iterator[Block]:
        checksum = 0
        with closing(self._batches()) as batches:
            for block in self._found.blocks(batches):
                checksum = zlib.crc32(np.ascontiguousarray(block).view(np.uint8).data, checksum)
                yield block
        if self._first is None:
            self._first = checksum
        elif checksum != self._first:
            raise ValueError(
                f"{self._name}: must give the same rows in the same order each time it runs, got others in "
                "another pass. Sort the rows, or write them to a file with shoal.write."
            )
