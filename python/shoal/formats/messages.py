"""Unpacked sizes of compressed Arrow IPC batches, from their headers.

pyarrow unpacks a batch of any size, and tells the sizes only afterwards, so `chunk_limit` needs a reader of
the headers. They are FlatBuffers: https://flatbuffers.dev/internals.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from .stream import refuse_large

#: Types of messages that hold buffers.
BATCH, DICTIONARY = "record batch", "dictionary"
#: Positions of fields in the tables of Message.fbs, Schema.fbs and File.fbs of Apache Arrow.
HEADER, DATA, BUFFERS, COMPRESSION = 2, 1, 2, 3
DICTIONARIES, BATCHES = 2, 3
#: A buffer is an offset into the body and a length. A compressed buffer starts with its unpacked length.
BUFFER = struct.Struct("<qq")
LENGTH = struct.Struct("<q")
#: A message that the index of a file names: its offset, and the lengths of its header and its body.
BLOCK = struct.Struct("<qi4xq")
#: A file with an index ends with the index, its length and six bytes that mark such files.
END = struct.Struct("<i6x")


def checked_batches(
    pa: Any, buffer: Any, options: Any, name: str, limit: int, *, indexed: bool
) -> Iterator[Any]:
    """Yield the batches of a stream, or of a file with an index.

    A compressed batch whose buffers would take more than `limit` bytes raises `ValueError` before it is
    unpacked.
    """

    def check(message: Any) -> None:
        refuse_large(name, "a batch", measure_unpacked(message), limit)

    if indexed:
        reader, index = pa.ipc.open_file(buffer, options=options), index_of(memoryview(buffer))
        for block in index.structs(DICTIONARIES, BLOCK):
            check(message_at(pa, buffer, *block))
        for i, block in enumerate(index.structs(BATCHES, BLOCK)):
            check(message_at(pa, buffer, *block))
            yield reader.get_batch(i)
        return
    reader = pa.ipc.open_stream(buffer, options=options)
    for message in pa.ipc.MessageReader.open_stream(buffer):
        if message.type in (BATCH, DICTIONARY):
            check(message)
        if message.type == BATCH:
            yield reader.read_next_batch()


def index_of(data: memoryview) -> FlatTable:
    """Return the index at the end of a file."""
    end = checked_position(len(data) - END.size)
    return FlatTable.root(data[checked_position(end - END.unpack_from(data, end)[0]) : end])


def message_at(pa: Any, buffer: Any, start: int, header: int, body: int) -> Any:
    """Return a message that an index names."""
    return pa.ipc.read_message(buffer.slice(checked_position(start), checked_position(header + body)))


def measure_unpacked(message: Any) -> int:
    """Return the unpacked size in bytes of the compressed buffers of a message."""
    metadata = FlatTable.root(memoryview(message.metadata))
    header = metadata.table(HEADER)
    if header is not None and message.type == DICTIONARY:
        header = header.table(DATA)
    if header is None or header.table(COMPRESSION) is None or message.body is None:
        return 0
    body, size = memoryview(message.body), 0
    for start, length in header.structs(BUFFERS, BUFFER):
        if length >= LENGTH.size:
            # A length of -1 marks a buffer that is not compressed.
            size += max(0, LENGTH.unpack_from(body, checked_position(start))[0])
    return size


class FlatTable:
    """The table at position `at` of a FlatBuffer."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._fields = checked_position(at - self._number("<i", at))

    @classmethod
    def root(cls, data: memoryview) -> FlatTable:
        """Return the outermost table."""
        return cls(data, struct.unpack_from("<I", data, 0)[0])

    def _number(self, kind: str, at: int) -> int:
        return int(struct.unpack_from(kind, self._data, at)[0])

    def _place(self, field: int) -> int | None:
        """Return the position that a field refers to; None if the field is missing."""
        entry = 4 + 2 * field
        if entry >= self._number("<H", self._fields):
            return None
        offset = self._number("<H", self._fields + entry)
        return self._at + offset + self._number("<I", self._at + offset) if offset else None

    def table(self, field: int) -> FlatTable | None:
        """Return the table that a field refers to; None if the field is missing."""
        place = self._place(field)
        return None if place is None else FlatTable(self._data, place)

    def structs(self, field: int, kind: struct.Struct) -> Iterator[tuple[Any, ...]]:
        """Yield the structs of the vector that a field refers to."""
        place = self._place(field)
        if place is not None:
            for i in range(self._number("<I", place)):
                yield kind.unpack_from(self._data, place + 4 + i * kind.size)


def checked_position(position: int) -> int:
    """Raise `ValueError` for a negative position, which Python would count from the end."""
    if position < 0:
        raise ValueError(f"refers to byte {position}")
    return position
