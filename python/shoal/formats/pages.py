"""Headers of the pages of a Parquet file, which claim how much memory each page takes.

pyarrow allocates what a header claims before it looks at the page. Headers are written in Thrift's compact
protocol: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

from .stream import refuse_large

#: Types of fields.
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
INTEGERS = (4, 5, 6)
#: Fields of a page header, and of the headers of the kinds of pages that hold values.
UNPACKED, PACKED = 2, 3
DATA, DICTIONARY, DATA_2 = 5, 7, 8
N_VALUES = 1
#: Values within values of a header, and bytes of one: damaged ones would go on for ever.
DEEPEST, LONGEST = 8, 16 << 20


class Reader:
    """Values of the protocol, read from a file."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name = file, name

    def damaged(self) -> ValueError:
        """Give the error of a header that is none."""
        return ValueError(f"{self._name}: has a damaged page header")

    def bytes(self, count: int) -> bytes:
        """Read so many bytes."""
        if not 0 <= count <= LONGEST:
            raise self.damaged()
        found = self._file.read(count)
        if len(found) < count:
            raise self.damaged()
        return found

    def unsigned(self) -> int:
        """Read a number in as many bytes as it needs."""
        value, shift = 0, 0
        while shift < 70:
            (byte,) = self.bytes(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise self.damaged()

    def integer(self) -> int:
        """Read a number with its sign in the last bit."""
        value = self.unsigned()
        return (value >> 1) ^ -(value & 1)

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Read the fields of a struct that are integers or structs, by their numbers."""
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
            # As part of a list; as a field, truth is the type itself.
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
    """Refuse a row group with a page that claims more than `limit` bytes.

    Parameters
    ----------
    file : file object
        Of the file; only the headers of pages are read.
    name : str
        What messages call it.
    metadata : pyarrow.parquet.FileMetaData
        What the end of the file says.
    group : int
        Which row group.
    wanted : sequence of str
        The columns that will be read.
    limit : int
        Bytes.

    Raises
    ------
    ValueError
        For such a page, and a header that is none.
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
        # The library stops at the same number of values.
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
                    # Each value of a dictionary takes a byte at least.
                    raise reader.damaged()
            at = file.tell() + packed
