"""Memory-mapped Arrow IPC files (Feather), in the file or stream format."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np

from shoal._files.staged import open_regular

from .arrow import Columns, import_pyarrow
from .kept import Table
from .messages import checked_batches
from .stream import Block, Reading, Stream, name_errors

#: The file format, which has an index of its batches, starts with this. Other files are read as streams.
MAGIC = b"ARROW1"
#: Start of a file in version 1 of Feather, which is not Arrow IPC.
FEATHER_1 = b"FEA1"
PAGE = 4096


def open_ipc(name: str, reading: Reading) -> Stream:
    """Open an ``.arrow`` or ``.feather`` file."""
    pa, limit = import_pyarrow(name), reading.limit
    with name_errors(name):
        buffer = pa.py_buffer(map_file(name))
        indexed = is_indexed(name, buffer)
        reader = pa.ipc.open_file(buffer) if indexed else pa.ipc.open_stream(buffer)
        schema = reader.schema
        found = Columns(name, schema, reading.columns)
        fields = [schema.get_field_index(column) for column in found.names]
        found.measure(batches(pa, name, buffer, fields, limit, indexed=indexed))
        if indexed and hasattr(reader, "count_rows"):
            rows = reader.count_rows()
        else:
            # Streams and older versions of pyarrow have no row count. Decode one column; the values of an
            # uncompressed column are not read.
            first = batches(pa, name, buffer, fields[:1], limit, indexed=indexed)
            rows = sum(batch.num_rows for batch in first)

    def blocks() -> Iterator[Block]:
        with name_errors(name):
            contents = map_file(name)
            buffer = pa.py_buffer(contents)
            indexed = is_indexed(name, buffer)
            read = batches(pa, name, buffer, fields, limit, indexed=indexed)
            for block in found.blocks(checked_length(name, contents, read)):
                if found.is_vector:
                    load_pages(block)
                yield block

    def kept(names: list[str]) -> Iterator[Any]:
        contents = map_file(name)
        buffer = pa.py_buffer(contents)
        fields = [schema.get_field_index(column) for column in names]
        read = batches(pa, name, buffer, fields, limit, indexed=is_indexed(name, buffer))
        return checked_length(name, contents, read)

    table = Table(name, schema, kept, found.names)
    return Stream(name, rows, found.cols, found.dtype, blocks, header=found.header(), table=table)


def map_file(name: str) -> mmap.mmap:
    """Map a file; the mapping lives as long as an object refers to it."""
    with open_regular(name) as file:
        try:
            contents = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise ValueError(f"{name}: is empty") from error
    if hasattr(mmap, "MADV_SEQUENTIAL"):
        contents.madvise(mmap.MADV_SEQUENTIAL)
    return contents


def checked_length(name: str, contents: mmap.mmap, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the batches; raise `ValueError` if the file has become shorter than its mapping.

    Reading beyond the end of the file would kill the process.
    """
    for batch in batches:
        found = contents.size()
        if found < len(contents):
            raise ValueError(
                f"{name}: was cut while it was open: had {len(contents)} bytes, now {found} are left"
            )
        yield batch


def is_indexed(name: str, buffer: Any) -> bool:
    """Whether a file is in the file format, which has an index, and not in the stream format."""
    start = buffer[: len(MAGIC)].to_pybytes()
    if start.startswith(FEATHER_1):
        raise ValueError(f"{name}: must be Arrow IPC, got version 1 of Feather. Write the file again.")
    return bool(start == MAGIC)


def batches(
    pa: Any, name: str, buffer: Any, fields: list[int], limit: int, *, indexed: bool
) -> Iterator[Any]:
    """Yield the batches of a file with only the given fields."""
    # pyarrow would use threads for the fields of one batch only. The cores are busy with the blocks.
    options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    return checked_batches(pa, buffer, options, name, limit, indexed=indexed)


def load_pages(block: Block) -> None:
    """Touch every page of a mapped block, so that the prefetching thread reads it from disk."""
    block.reshape(-1).view(np.uint8)[::PAGE].max(initial=0)
