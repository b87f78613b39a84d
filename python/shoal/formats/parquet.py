"""Parquet files, decoded a few rows at a time; a folder of them is one table."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .arrow import Columns, pyarrow
from .stream import Block, Stream, told_of

#: A column of a row group is read in pieces of this many bytes, not as a whole.
BUFFER_BYTES = 1 << 20
#: So many numbers are decoded at a time. Whatever their type, each takes some 17 bytes on its way: as stored,
#: as 32 bits or more, and the levels that say where lists and nulls are.
NUMBERS = 1 << 21


def open_parquet(name: str, columns: Sequence[Any] | None) -> Stream:
    """Open a ``.parquet`` file, or those in a folder, in the order of their names."""
    pyarrow(name)
    parts = [Part(part) for part in parts_of(name)]
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

    def __init__(self, name: str) -> None:
        from pyarrow import parquet

        self.name, self._open = name, parquet.ParquetFile
        # The library's own errors do not say which file is missing.
        Path(name).open("rb").close()
        with told_of(name), self._open(name) as file:
            self._metadata, self.schema, self.rows = file.metadata, file.schema_arrow, file.metadata.num_rows

    def blocks(self, columns: Columns) -> Iterator[Block]:
        """Decode it from the beginning to the end, by one thread, that of the read-ahead."""
        with (
            told_of(self.name),
            self._open(
                self.name,
                metadata=self._metadata,
                pre_buffer=False,
                buffer_size=BUFFER_BYTES,
                page_checksum_verification=True,
            ) as file,
        ):
            size = max(1, NUMBERS // columns.cols)
            batches = file.iter_batches(size, columns=columns.names, use_threads=False)
            yield from columns.blocks(batches)
