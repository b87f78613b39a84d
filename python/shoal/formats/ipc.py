"""Arrow IPC files (also called Feather), mapped: files and streams of batches, compressed or not."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shoal._common.files import open_regular

from .arrow import Columns, pyarrow
from .messages import checked_batches
from .stream import Block, Stream, told_of

#: A file with an index of its batches begins like this; what does not is taken for a stream of them.
MAGIC = b"ARROW1"
STREAM_FROM = 8
#: The first version of Feather is another format.
OLD = b"FEA1"
PAGE = 4096


def open_ipc(name: str, columns: Sequence[Any] | None, limit: int) -> Stream:
    """Open an ``.arrow`` or ``.feather`` file."""
    pa = pyarrow(name)
    with told_of(name):
        buffer = pa.py_buffer(mapped(name))
        indexed = is_indexed(name, buffer)
        reader = pa.ipc.open_file(buffer) if indexed else pa.ipc.open_stream(buffer)
        schema = reader.schema
        found = Columns(name, schema, columns)
        fields = [schema.get_field_index(column) for column in found.names]
        if indexed:
            rows = reader.count_rows()
        else:
            # Of a stream one column is looked through; where it is not compressed its values are not read.
            first = batches(pa, name, buffer, fields[:1], limit, indexed=False)
            rows = sum(batch.num_rows for batch in first)

    def blocks() -> Iterator[Block]:
        with told_of(name):
            contents = mapped(name)
            buffer = pa.py_buffer(contents)
            indexed = is_indexed(name, buffer)
            read = batches(pa, name, buffer, fields, limit, indexed=indexed)
            for block in found.blocks(whole(name, contents, read)):
                if found.is_vector:
                    read_in(block)
                yield block

    return Stream(name, rows, found.cols, found.dtype, blocks, header=found.header())


def mapped(name: str) -> mmap.mmap:
    """Map a file; it stays mapped as long as something of it is in use."""
    with open_regular(name) as file:
        try:
            contents = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise ValueError(f"{name}: is empty") from error
    if hasattr(mmap, "MADV_SEQUENTIAL"):
        contents.madvise(mmap.MADV_SEQUENTIAL)
    return contents


def whole(name: str, contents: mmap.mmap, batches: Iterator[Any]) -> Iterator[Any]:
    """Give batches as long as the file is not shorter than what is mapped of it."""
    for batch in batches:
        refuse_cut(name, contents)
        yield batch


def refuse_cut(name: str, contents: mmap.mmap) -> None:
    """Refuse a file that was made shorter: what is gone cannot be read, and the process would end."""
    found = contents.size()
    if found < len(contents):
        raise ValueError(f"{name}: was cut while it was open: it had {len(contents)} bytes, {found} are left")


def is_indexed(name: str, buffer: Any) -> bool:
    """Whether a file has an index of its batches, else it is a stream of them."""
    start = buffer[: len(MAGIC)].to_pybytes()
    if start.startswith(OLD):
        raise ValueError(f"{name}: is of the first version of Feather: write it again as Arrow IPC")
    return bool(start == MAGIC)


def batches(
    pa: Any, name: str, buffer: Any, fields: list[int], limit: int, *, indexed: bool
) -> Iterator[Any]:
    """Give the batches of a file one by one, with these fields alone."""
    # Threads would race for the fields of one batch only; the blocks have the processor.
    options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    # A file with an index is a stream between its magic number and the index.
    stream = buffer.slice(STREAM_FROM) if indexed else buffer
    return checked_batches(pa, stream, options, name, limit)


def read_in(block: Block) -> None:
    """Look at every page of a mapped block: it is read now, by the one who reads ahead."""
    block.reshape(-1).view(np.uint8)[::PAGE].max(initial=0)
