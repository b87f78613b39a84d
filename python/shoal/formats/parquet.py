"""Parquet files, decoded in small batches."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from typing import IO, Any

from .arrow import Columns, import_pyarrow
from .kept import Table
from .pages import check_pages
from .remote import is_url, open_file
from .stream import BLOCK_BYTES, CHANGED, Block, Reading, Stream, name_errors, refuse_large

#: Buffer size for reading a column of a row group.
BUFFER_BYTES = 1 << 20
#: Numbers per decoded batch. Each takes about 17 bytes during decoding, for any type: the stored value, the
#: decoded value of 32 bits or more, and the definition and repetition levels of lists and nulls.
NUMBERS = 1 << 21
#: Maximum number of rows per decoded batch of kept columns.
KEPT_ROWS = 1 << 16


def open_parquet(name: str, reading: Reading) -> Stream:
    """Open a ``.parquet`` file."""
    import_pyarrow(name)
    part = ParquetRows(name, reading.limit)
    found = Columns(name, part.schema, reading.columns)
    if part.rows:
        found.measure(part.first_row(found))
    return Stream(
        name,
        part.rows,
        found.cols,
        found.dtype,
        partial(part.blocks, found),
        header=found.header(),
        table=Table(name, part.schema, part.kept, found.names),
        columns=found,
    )


class ParquetRows:
    """One Parquet file and its metadata."""

    def __init__(self, name: str, limit: int) -> None:
        from pyarrow import parquet

        self.name, self._limit, self._open = name, limit, parquet.ParquetFile
        # The number of row groups whose pages were checked, and the first row of the next group. Replaced as
        # one value, because passes can overlap: threads then check a group twice, but never skip one.
        self._checked = 0, 0
        with name_errors(name), open_file(name) as raw, self._open(self._readable(raw)) as file:
            self._metadata, self.schema, self.rows = file.metadata, file.schema_arrow, file.metadata.num_rows

    def blocks(self, columns: Columns) -> Iterator[Block]:
        """Decode the file in the calling thread, which is the prefetching thread."""
        with name_errors(self.name):
            refuse_large(self.name, "a row", columns.cols * columns.dtype.itemsize, self._limit)
            yield from columns.blocks(self._batches(columns.names, columns.batch_rows(NUMBERS)))

    def first_row(self, columns: Columns) -> Iterator[Any]:
        """Decode a batch of the first row; none if the file has no rows."""
        with name_errors(self.name), closing(self._batches(columns.names, 1)) as batches:
            yield from islice(batches, 1)

    def kept(self, names: list[str]) -> Iterator[Any]:
        """Yield batches of the columns `names` of any type."""
        # Another object, because the pages of other columns are checked.
        part = ParquetRows(self.name, self._limit)
        if part.rows != self.rows or not part.schema.equals(self.schema):
            raise ValueError(f"{self.name}: {CHANGED}")
        unpacked = sum(
            group.column(i).total_uncompressed_size
            for group in map(part._metadata.row_group, range(part._metadata.num_row_groups))
            for i in range(group.num_columns)
            if group.column(i).path_in_schema.partition(".")[0] in names
        )
        size = max(1, min(KEPT_ROWS, BLOCK_BYTES * part.rows // max(1, unpacked)))
        with name_errors(self.name):
            yield from part._batches(names, size)

    def _batches(self, names: list[str], size: int) -> Generator[Any]:
        with (
            open_file(self.name) as raw,
            open_file(self.name) as headers,
            self._open(
                self._readable(raw),
                metadata=self._metadata,
                pre_buffer=False,
                buffer_size=BUFFER_BYTES,
                page_checksum_verification=True,
            ) as file,
        ):
            batches = file.iter_batches(size, columns=names, use_threads=False)
            done = 0
            while True:
                # The next batch can span two row groups.
                self._check_upto(done + 2 * size, headers, names)
                batch = next(batches, None)
                if batch is None:
                    break
                yield batch
                done += batch.num_rows

    def _check_upto(self, row: int, headers: IO[bytes], names: list[str]) -> None:
        """Check the pages of all row groups that start before `row`; every group is checked once."""
        group, first = self._checked
        while group < self._metadata.num_row_groups and first < row:
            check_pages(headers, self.name, self._metadata, group, names, self._limit)
            group, first = group + 1, first + self._metadata.row_group(group).num_rows
            self._checked = group, first

    def _readable(self, raw: IO[bytes]) -> str | IO[bytes]:
        """Return what pyarrow can open: the name, which is faster, or the file behind it."""
        if is_url(self.name):
            return raw
        # pyarrow takes names in UTF-8.
        try:
            self.name.encode()
        except UnicodeEncodeError:
            return raw
        return self.name
