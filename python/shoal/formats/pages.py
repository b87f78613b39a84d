"""Checks of the page sizes in a Parquet file, before memory is allocated.

pyarrow allocates the size in a page header before it unpacks the page, and has no option for a limit, so
`chunk_limit` needs a reader of page headers. They use the Thrift compact protocol:
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

from .stream import refuse_large

#: Field types of the protocol.
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
INTEGERS = (4, 5, 6)
#: Field numbers of a page header, and of the headers of page types that hold values.
UNPACKED, PACKED = 2, 3
DATA, DICTIONARY, DATA_2 = 5, 7, 8
N_VALUES = 1
#: Maximum nesting depth of a header, and maximum bytes of one value; a damaged header could exceed both.
DEEPEST, LONGEST = 8, 16 << 20


class Reader:
    """Reader of Thrift values from a file."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name = file, name

    def damaged(self) -> ValueError:
        """Create the error for a damaged header."""
        return ValueError(f"{self._name}: has a damaged page header")

    def bytes(self, count: int) -> bytes:
        """Read `count` bytes."""
        if not 0 <= count <= LONGEST:
            raise self.damaged()
        found = self._file.read(count)
        if len(found) < count:
            raise self.damaged()
        return found

    def unsigned(self) -> int:
        """Read a variable-length unsigned integer."""
        value, shift = 0, 0
        while shift < 70:
            (byte,) = self.bytes(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise self.damaged()

    def integer(self) -> int:
        """Read a zigzag-encoded signed integer."""
        value = self.unsigned()
        return (value >> 1) ^ -(value & 1)

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Read a struct; return its fields that are integers or structs, by field number."""
        fields: dict[int, Any] = {}
        number = 0
        while (head := self.bytes(1)[0]) != 0:
            step, kind = head >> 4, head & 15
            number = number + step if step else self.integer()
            value = None if kind in (TRUE, FALSE) else self._value(kind, depth)
            if kind in INTEGERS or kind == STRUCT:
                fields[number] = value
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > DEEPEST:
            raise self.damaged()
        if kind in INTEGERS:
            return self.integer()
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (TRUE, FALSE, BYTE):
            # In a list a boolean takes one byte. As a field its value is the field type.
            return self.bytes(1)
        if kind == DOUBLE:
            return self.bytes(8)
        if kind == BINARY:
            return self.bytes(self.unsigned())
        if kind in (LIST, SET):
            (head,) = self.bytes(1)
            count = head >> 4 if head >> 4 != 15 else self.unsigned()
            return [self._value(head & 15, depth + 1) for _ in range(count)]
        if kind == MAP:
            count = self.unsigned()
            kinds = self.bytes(1)[0] if count else 0
            return [
                (self._value(kinds >> 4, depth + 1), self._value(kinds & 15, depth + 1)) for _ in range(count)
            ]
        raise self.damaged()


def check_pages(
    file: IO[bytes], name: str, metadata: Any, group: int, wanted: Sequence[str], limit: int
) -> None:
    """Check the sizes of all pages of the columns `wanted` of a row group; only page headers are read.

    Raises `ValueError` if a page would take more than `limit` bytes unpacked, or if a header is damaged.
    """
    row_group = metadata.row_group(group)
    reader = Reader(file, name)
    for index in range(row_group.num_columns):
        column = row_group.column(index)
        if column.path_in_schema.partition(".")[0] not in wanted and column.path_in_schema not in wanted:
            continue
        starts = [column.data_page_offset]
        if column.has_dictionary_page and column.dictionary_page_offset:
            starts.append(column.dictionary_page_offset)
        at, values = min(starts), 0
        # pyarrow stops at the same number of values.
        while values < column.num_values:
            file.seek(max(0, at))
            header = reader.struct()
            unpacked, packed = header.get(UNPACKED), header.get(PACKED)
            if not isinstance(unpacked, int) or not isinstance(packed, int) or min(unpacked, packed) < 0:
                raise reader.damaged()
            refuse_large(name, f"a page of column {column.path_in_schema!r}", unpacked, limit)
            for kind in (DATA, DICTIONARY, DATA_2):
                found = header.get(kind)
                count = found.get(N_VALUES) if isinstance(found, dict) else 0
                if not isinstance(count, int) or count < 0:
                    raise reader.damaged()
                if kind != DICTIONARY:
                    values += count
                elif count > unpacked:
                    # Every value of a dictionary takes at least one byte.
                    raise reader.damaged()
            at = file.tell() + packed
