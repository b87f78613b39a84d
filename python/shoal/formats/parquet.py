"""Parquet files, decoded a few rows at a time; a folder of them is one table."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from shoal._common.files import open_regular

from .arrow import Columns, pyarrow
from .pages import check_pages
from .stream import Block, Stream, refuse_large, told_of

#: A column of a row group is read in pieces of this many bytes, not as a whole.
BUFFER_BYTES = 1 << 20
#: So many numbers are decoded at a time. Whatever their type, each takes some 17 bytes on its way: as stored,
#: as 32 bits or more, and the levels that say where lists and nulls are.
NUMBERS = 1 << 21


def open_parquet(name: str, columns: Sequence[Any] | None, limit: int) -> Stream:
    """Open a ``.parquet`` file, or those in a folder, in the order of their names."""
    pyarrow(name)
    parts = [Part(part, limit) for part in parts_of(name)]
    first = Columns(parts[0].name, parts[0].schema, columns)
    found = [Columns(part.name, part.schema, columns) for part in parts]
    for other in found:
        if (other.names, other.cols, other.dtype) != (first.names, first.cols, first.dtype):
            raise ValueError(f"{other.told()}, unlike {first.told()}")

    def blocks() -> Iterator[Block]:
        for part, columns in zip(parts, found, strict=True):
            yield from part.blocks(columns)

    rows = sum(part.rows for part in parts)
    return Stream(name, rows, first.cols, first.dtype, blocks, header=first.header())


def parts_of(name: str) -> list[str]:
    """Give the files that a path stands for."""
    folder = Path(name)
    if not folder.is_dir():
        return [name]
    # Names that begin like this belong to those who wrote the folder.
    parts = sorted(
        str(path) for path in folder.iterdir() if path.suffix == ".parquet" and path.name[0] not in "._"
    )
    if not parts:
        raise FileNotFoundError(errno.ENOENT, "no .parquet files in the folder", name)
    return parts


class Part:
    """One Parquet file: what its end says of it."""

    def __init__(self, name: str, limit: int) -> None:
        from pyarrow import parquet

        self.name, self._limit, self._open = name, limit, parquet.ParquetFile
        # Row groups whose pages were looked through, and the first row of the next one.
        self._checked, self._first_unchecked = 0, 0
        with told_of(name), open_regular(name) as raw, self._open(self._readable(raw)) as file:
            self._metadata, self.schema, self.rows = file.metadata, file.schema_arrow, file.metadata.num_rows

    def blocks(self, columns: Columns) -> Iterator[Block]:
        """Decode it from the beginning to the end, by one thread, that of the read-ahead."""
        with told_of(self.name):
            refuse_large(self.name, "a row", columns.cols * columns.dtype.itemsize, self._limit)
            yield from columns.blocks(self._batches(columns))

    def _batches(self, columns: Columns) -> Iterator[Any]:
        size = max(1, NUMBERS // columns.cols)
        with (
            open_regular(self.name) as raw,
            open_regular(self.name) as headers,
            self._open(
                self._readable(raw),
                metadata=self._metadata,
                pre_buffer=False,
                buffer_size=BUFFER_BYTES,
                page_checksum_verification=True,
            ) as file,
        ):
            batches = file.iter_batches(size, columns=columns.names, use_threads=False)
            done = 0
            while True:
                # The next batch may be the last of one row group and the first of another.
                self._check_upto(done + 2 * size, headers, columns)
                batch = next(batches, None)
                if batch is None:
                    break
                yield batch
                done += batch.num_rows

    def _check_upto(self, row: int, headers: IO[bytes], columns: Columns) -> None:
        """Look through the pages of the row groups that begin before a row, once."""
        while self._checked < self._metadata.num_row_groups and self._first_unchecked < row:
            check_pages(headers, self.name, self._metadata, self._checked, columns.names, self._limit)
            self._first_unchecked += self._metadata.row_group(self._checked).num_rows
            self._checked += 1

    def _readable(self, raw: IO[bytes]) -> str | IO[bytes]:
        """Give what pyarrow opens: the name, which is faster, or the open file where that is not UTF-8."""
        try:
            self.name.encode()
        except UnicodeEncodeError:
            return raw
        return self.name
