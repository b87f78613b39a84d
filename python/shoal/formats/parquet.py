"""Parquet files, decoded a few rows at a time; a folder of them is one table."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shoal._files import open_regular

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

    return Stream(name, sum(part.rows for part in parts), first.cols, first.dtype, blocks)


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
        # Row groups whose pages were looked through.
        self._checked = 0
        with told_of(name), open_regular(name) as raw, self._open(raw) as file:
            self._metadata, self.schema, self.rows = file.metadata, file.schema_arrow, file.metadata.num_rows

    def blocks(self, columns: Columns) -> Iterator[Block]:
        """Decode it from the beginning to the end, by one thread, that of the read-ahead."""
        with told_of(self.name):
            refuse_large(self.name, "a row", columns.cols * columns.dtype.itemsize, self._limit)
            yield from columns.blocks(self._batches(columns))

    def _batches(self, columns: Columns) -> Iterator[Any]:
        size = max(1, NUMBERS // columns.cols)
        with (
            # By the library a name that is not UTF-8 cannot be opened.
            open_regular(self.name) as raw,
            open_regular(self.name) as headers,
            self._open(
                raw,
                metadata=self._metadata,
                pre_buffer=False,
                buffer_size=BUFFER_BYTES,
                page_checksum_verification=True,
            ) as file,
        ):
            for groups in self._groups(size):
                for group in groups:
                    if group >= self._checked:
                        check_pages(headers, self.name, self._metadata, group, columns.names, self._limit)
                        self._checked = group + 1
                yield from file.iter_batches(size, groups, columns=columns.names, use_threads=False)

    def _groups(self, size: int) -> Iterator[list[int]]:
        """Give the row groups in order, those together that have about as many rows as a batch."""
        together, rows = list[int](), 0
        for group in range(self._metadata.num_row_groups):
            together.append(group)
            rows += self._metadata.row_group(group).num_rows
            if rows >= size:
                yield together
                together, rows = [], 0
        if together:
            yield together
