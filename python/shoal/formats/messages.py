"""Messages of Arrow IPC files: what a compressed batch takes unpacked, told before it is unpacked."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from .stream import refuse_large

#: Kinds of messages that hold buffers.
BATCH, DICTIONARY = "record batch", "dictionary"
#: Fields of the tables of the format, by position: see Message.fbs and Schema.fbs of Apache Arrow.
HEADER, DATA, BUFFERS, COMPRESSION = 2, 1, 2, 3
#: A buffer is an offset into the body and a length; the body of a compressed one begins with its length.
BUFFER = struct.Struct("<qq")
LENGTH = struct.Struct("<q")


def checked_batches(pa: Any, buffer: Any, options: Any, name: str, limit: int) -> Iterator[Any]:
    """Give the batches of a stream; one that takes more than `limit` bytes unpacked is refused before.

    Parameters
    ----------
    pa : module
        pyarrow.
    buffer : pyarrow.Buffer
        The stream.
    options : pyarrow.ipc.IpcReadOptions
        For the reader of the batches.
    name : str
        The file, for messages.
    limit : int
        Bytes that the buffers of a compressed batch may take together.

    Yields
    ------
    pyarrow.RecordBatch
    """
    reader = pa.ipc.open_stream(buffer, options=options)
    for message in pa.ipc.MessageReader.open_stream(buffer):
        if message.type in (BATCH, DICTIONARY):
            refuse_large(name, "a batch", unpacked(message), limit)
        if message.type == BATCH:
            yield reader.read_next_batch()


def unpacked(message: Any) -> int:
    """Give the bytes that the compressed buffers of a message take unpacked."""
    metadata = Table.root(memoryview(message.metadata))
    header = metadata.table(HEADER)
    if header is not None and message.type == DICTIONARY:
        header = header.table(DATA)
    if header is None or header.table(COMPRESSION) is None or message.body is None:
        return 0
    body, size = memoryview(message.body), 0
    for start, length in header.structs(BUFFERS, BUFFER):
        if length >= LENGTH.size:
            # -1: stored as it is.
            size += max(0, LENGTH.unpack_from(body, refuse_negative(start))[0])
    return size


class Table:
    """A table of a FlatBuffer.

    Parameters
    ----------
    data : memoryview
        The whole buffer.
    at : int
        Where the table begins.
    """

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._fields = refuse_negative(at - self._number("<i", at))

    @classmethod
    def root(cls, data: memoryview) -> Table:
        """Give the outermost table."""
        return cls(data, struct.unpack_from("<I", data, 0)[0])

    def _number(self, kind: str, at: int) -> int:
        return int(struct.unpack_from(kind, self._data, at)[0])

    def _place(self, field: int) -> int | None:
        """Give where a field refers to; None where it is not there."""
        entry = 4 + 2 * field
        if entry >= self._number("<H", self._fields):
            return None
        offset = self._number("<H", self._fields + entry)
        return self._at + offset + self._number("<I", self._at + offset) if offset else None

    def table(self, field: int) -> Table | None:
        """Give the table that a field refers to."""
        place = self._place(field)
        return None if place is None else Table(self._data, place)

    def structs(self, field: int, kind: struct.Struct) -> Iterator[tuple[Any, ...]]:
        """Give the structs of the vector that a field refers to."""
        place = self._place(field)
        if place is not None:
            for i in range(self._number("<I", place)):
                yield kind.unpack_from(self._data, place + 4 + i * kind.size)


def refuse_negative(place: int) -> int:
    """Refuse a place before the beginning, which Python would count from the end."""
    if place < 0:
        raise ValueError(f"refers to byte {place}")
    return place
