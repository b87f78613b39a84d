"""Many files that are read block by block, as one stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .stream import Block, Reading, Stream, Unchanged, listed

#: Number of files whose index stays in memory. The index of any other file is read again in every pass.
KEPT = 256


def open_shards(name: str, names: Sequence[str], reading: Reading) -> Stream:
    """Open files of one kind as one stream, in the order given; one file at a time is open.

    Raises `ValueError` if a file has other columns or another type than the first one.
    """
    shards = Shards(names, reading)
    usual = shards.usual
    table = usual.table and replace(usual.table, name=name, batches=shards.batches)
    rows = shards.starts[-1]
    return replace(usual, name=name, rows=rows, blocks=shards.blocks, table=table, file_of=shards.file_of)


class Shards:
    """Files of one kind, one after the other.

    `usual` is the first file, or the first one that tells the length of its lists. `starts` holds the first
    row of every file, as far as it is known, then the number of all rows; passes complete it.
    """

    def __init__(self, names: Sequence[str], reading: Reading) -> None:
        self._names, self._reading = names, reading
        # The working folder may change.
        self._absolute = [str(Path(file).absolute()) for file in names]
        self._files = [Unchanged(file) for file in names]
        self._kept: list[Stream] = []
        self.starts: list[int | None] = [0]
        self.usual = self._open(0)
        for i in range(len(names)):
            found = self._open(i) if i else self.usual
            other = self.usual
            # Lists in a file without rows have no length.
            if not other.cols:
                self.usual = found
            same_width = found.cols == other.cols or not (found.cols and other.cols)
            if not same_width or (found.dtype, columns_of(found)) != (other.dtype, columns_of(other)):
                raise ValueError(
                    f"{names[i]}: has {describe_rows(found)}, unlike {other.name}, which has "
                    f"{describe_rows(other)}"
                )
            start = self.starts[-1]
            self.starts.append(None if start is None or found.rows is None else start + found.rows)
            if i < KEPT:
                self._kept.append(found)

    def _open(self, i: int) -> Stream:
        from . import of_file

        file = self._names[i] if Path(self._names[i]).exists() else self._absolute[i]
        stream = of_file(file, self._reading)
        assert isinstance(stream, Stream)
        return stream

    def _streams(self) -> Iterator[tuple[int, Stream]]:
        """Yield the files with rows, and their numbers."""
        for i, file in enumerate(self._files):
            file.check()
            stream = self._kept[i] if i < KEPT else self._open(i)
            if stream.columns is not None:
                stream.columns.rows_before = self.starts[i] or 0
            if stream.rows != 0:
                yield i, stream

    def blocks(self) -> Iterator[Block]:
        """Yield the rows of all files."""
        for i, stream in self._streams():
            rows = 0
            for block in stream.blocks():
                rows += len(block)
                yield block
            start = self.starts[i]
            if self.starts[i + 1] is None and start is not None:
                self.starts[i + 1] = start + rows

    def file_of(self, row: int) -> tuple[str, int]:
        """Return the file of a row that was read, and the number of the row there."""
        starts = [
            (start, i) for i, start in enumerate(self.starts[:-1]) if start is not None and start <= row
        ]
        start, i = max(starts)
        return self._names[i], row - start

    def batches(self, wanted: list[str]) -> Iterator[Any]:
        """Yield the columns `wanted` of all files."""
        usual = self.usual
        for _, stream in self._streams():
            table = stream.table
            table.check(wanted, "keep")
            for column in wanted:
                kind, known = (of.schema.field(column).type for of in (table, usual.table))
                if kind != known:
                    raise ValueError(
                        f"{stream.name}: column {column!r} is of type {kind}, unlike {usual.name}, where it "
                        f"is of type {known}"
                    )
            yield from table.batches(wanted)


def columns_of(stream: Stream) -> list[str]:
    """Return the names of the columns that hold the features; empty if the rows are not those of a table."""
    if stream.table is not None:
        return list(stream.table.features)
    # A CSV file has names, but no table.
    return [] if stream.header is None else list(stream.header.column_names)


def describe_rows(stream: Stream) -> str:
    """Describe the rows of a file for error messages."""
    text = f"{stream.cols} columns of {stream.dtype}"
    names = columns_of(stream)
    if not names:
        return text
    return f"{text} ({f'vectors {names[0]!r}' if stream.header is None else listed(names)})"
