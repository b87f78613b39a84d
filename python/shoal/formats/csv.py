"""CSV files, compressed with gzip or not, parsed block by block."""

from __future__ import annotations

import io
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._checks.marked import MarkedError, ParameterError
from shoal._checks.params import shown

from .arrow import Columns, import_pyarrow
from .remote import open_file
from .stream import Block, Reading, Stream, listed, name_errors, required

#: Bytes of text per parsed block; the longest line that can be read.
TEXT_BYTES = 4 << 20
#: Types of the rows.
TYPES = ("float32", "float64")
#: First bytes of files that are not plain text, and what such a file is.
NOT_TEXT = {
    b"\x1f\x8b": "compressed with gzip: decompress it, or let its name end in .gz",
    b"\x28\xb5\x2f\xfd": "compressed with zstd: decompress it",
    b"\xfd7zXZ": "compressed with xz: decompress it",
    b"PK\x03\x04": "compressed with zip: decompress it",
    b"\xff\xfe": "not UTF-8 but UTF-16: convert it to UTF-8",
    b"\xfe\xff": "not UTF-8 but UTF-16: convert it to UTF-8",
}
#: An error of pyarrow about a value: the column of the file, the line counted from 1, and the reason.
BAD_VALUE = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?(?:CSV conversion error to \w+: )?(.*)", re.DOTALL
)
#: An error of pyarrow about a line.
BAD_LINE = re.compile(r"CSV parse error: Row #(\d+): (.*)", re.DOTALL)


def open_csv(name: str, reading: Reading) -> Stream:
    """Open a ``.csv`` or ``.tsv`` file, or one that gzip compressed.

    The default of `dtype` is float64. The first line holds the names of the columns. Numbers, ``true``,
    ``false`` and missing values are no names. `columns` are the names to read; for a file without a line of
    names, a name for every column.
    """
    return Text(name, reading.columns, row_type(reading.dtype)).stream()


def open_piped_csv(file: Any, name: str, columns: Sequence[Any] | None) -> Stream:
    """Open the CSV text of a pipe, which can be read once; `columns` as for `open_csv`."""
    return replace(Text(name, columns, row_type(None), file).stream(), once=True)


def row_type(dtype: npt.DTypeLike | None) -> np.dtype[Any]:
    """Return the type of the rows of a CSV file; raise `ValueError` for other types than floats."""
    wanted = np.dtype("float64" if dtype is None else dtype)
    if wanted.name not in TYPES:
        raise ParameterError(f"`dtype` of a CSV file must be float32 or float64, got {shown(dtype)}")
    return wanted


class Text:
    """The parser of one CSV file, or of the text of `pipe`."""

    def __init__(
        self, name: str, columns: Sequence[Any] | None, dtype: np.dtype[Any], pipe: Any = None
    ) -> None:
        self._pipe = pipe
        self._pa = import_pyarrow(name)
        self._csv = required("pyarrow.csv", "arrow", name)
        self._name, self._dtype = name, dtype
        # Cells that are missing values.
        self._missing: list[str] = self._csv.ConvertOptions().null_values
        # The names of the columns, if the first line does not hold them.
        self._names: list[str] | None = None
        stem = name.lower().removesuffix(".gz")
        self._packed, self._delimiter = stem != name.lower(), "\t" if stem.endswith(".tsv") else ","
        self._check_text()
        first = self._first_block()
        if not self._has_names(first, columns):
            self._names = self._given_names(first.schema.names, columns)
            first = self._first_block()
        self._fields: list[str] = first.schema.names
        number = self._pa.from_numpy_dtype(dtype)
        schema = self._pa.schema(
            [
                (field.name, number if begins_with_number(values) else field.type)
                for field, values in zip(first.schema, first.columns, strict=True)
            ]
        )
        self._check_types(schema, columns)
        names = Columns(name, schema, columns).names
        self._types = {column: schema.field(column).type for column in names}
        self._found = Columns(name, self._pa.schema(list(self._types.items())), None)

    def stream(self) -> Stream:
        """Make the stream of rows, which parses the file in every pass."""
        found = self._found

        def blocks() -> Iterator[Block]:
            for block in found.blocks(self._batches()):
                yield block.astype(self._dtype, copy=False)

        return Stream(self._name, None, found.cols, self._dtype, blocks, header=found.header())

    def _check_text(self) -> None:
        """Raise `ValueError` for files that are compressed or UTF-16."""
        with self._text(begin=True) as raw:
            start = raw.read(max(map(len, NOT_TEXT)))
        for begin, problem in NOT_TEXT.items():
            if start.startswith(begin) and not (self._packed and begin == b"\x1f\x8b"):
                raise ValueError(f"{self._name}: is {problem}")

    def _check_types(self, schema: Any, columns: Sequence[Any] | None) -> None:
        """Raise `ValueError` for columns of text whose remedy `Columns` does not know."""
        types = self._pa.types
        for field in schema:
            if columns is None or field.name in columns:
                if types.is_binary(field.type):
                    raise MarkedError(
                        f"{self._name}: column {field.name!r} is of type binary: it holds text that is not "
                        "UTF-8. Convert the file to UTF-8, or choose columns of numbers with `columns`=[...]."
                    )
                if self._names and types.is_string(field.type):
                    raise ValueError(
                        f"{self._name}: column {field.name!r} is of type string. To leave out columns, add a "
                        "first line with the names of all columns."
                    )

    def _has_names(self, first: Any, columns: Sequence[Any] | None) -> bool:
        """Whether the first line holds names.

        It does if `columns` are among its cells. Otherwise it holds values if each of its cells is a value
        over a column of values. Cells over text tell nothing, unless all columns hold text.
        """
        cells: list[str] = first.schema.names
        if columns and all(column in cells for column in columns):
            return True
        over_values = [
            self._is_value(cell)
            for cell, values in zip(cells, first.columns, strict=True)
            if begins_with_number(values) or self._pa.types.is_boolean(values.type)
        ]
        return not all(over_values or map(self._is_value, cells))

    def _is_value(self, cell: str) -> bool:
        """Whether a cell holds a number, a truth value or a missing value."""
        options = self._csv.ConvertOptions()
        known = (*self._missing, *options.true_values, *options.false_values)
        return is_numeral(cell) or cell in known

    def _first_block(self) -> Any:
        """Parse the first block with the types that pyarrow infers from it."""
        with self._reader({}, [], begin=True) as reader:
            first = next(iter(reader), None) or reader.schema.empty_table()
            # Decodes the names.
            _ = first.schema.names
            return first

    def _batches(self) -> Generator[Any]:
        with self._reader(self._types, list(self._types)) as reader:
            yield from reader

    @contextmanager
    def _reader(self, types: dict[str, Any], columns: list[str], *, begin: bool = False) -> Generator[Any]:
        csv = self._csv
        with name_errors(self._name), self._explained(), self._text(begin=begin) as raw:
            file = self._pa.CompressedInputStream(raw, "gzip") if self._packed else raw
            # Without threads the errors of pyarrow tell the line. The cores are busy with the blocks.
            reading = csv.ReadOptions(use_threads=False, block_size=TEXT_BYTES, column_names=self._names)
            parsing = csv.ParseOptions(delimiter=self._delimiter)
            converting = csv.ConvertOptions(column_types=types, include_columns=columns)
            with csv.open_csv(file, reading, parsing, converting) as reader:
                yield reader

    def _text(self, *, begin: bool) -> Any:
        """Open the text. Of a pipe, the lines at the beginning can be read before the only pass."""
        if self._pipe is None:
            return open_file(self._name)
        if not begin:
            return self._pipe
        start = self._pipe.peek(TEXT_BYTES)
        return io.BytesIO(start if len(start) < TEXT_BYTES else start[: start.rfind(b"\n") + 1] or start)

    @contextmanager
    def _explained(self) -> Generator[None]:
        """Tell the column and the row of a bad value, which pyarrow numbers."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self._name}: the first line is not UTF-8 text. Convert the file to UTF-8."
            ) from error
        except self._pa.ArrowInvalid as error:
            text, header = str(error), 0 if self._names else 1
            if (bad := BAD_VALUE.match(text)) is not None:
                column, line, reason = int(bad[1]), bad[2], bad[3]
                where = f" at row {int(line) - 1 - header}" if line else ""
                raise ValueError(
                    f"{self._name}: column {self._fields[column]!r} must hold numbers, got {reason}{where}"
                ) from error
            if (bad := BAD_LINE.match(text)) is not None:
                raise ValueError(f"{self._name}: row {int(bad[1]) - 1 - header}: {bad[2]}") from error
            if "straddling" in text:
                raise ValueError(f"{self._name}: a line must take at most {TEXT_BYTES} bytes") from error
            raise

    def _given_names(self, first: list[str], columns: Sequence[Any] | None) -> list[str]:
        """Return the names for the columns of a file without a line of names."""
        names = list(columns or ())
        if len(names) != len(first) or not all(isinstance(column, str) for column in names):
            missing = [j for j, cell in enumerate(first) if cell in self._missing]
            got = "numbers" if all(map(is_numeral, first)) else "values"
            problem = (
                f"column {missing[0]} must not hold missing values, got {first[missing[0]]!r} at row 0: the "
                f"first line holds no names, got {listed(first)}"
                if missing
                else f"the first line must hold the names of the columns, got {got}: {listed(first)}"
            )
            raise MarkedError(
                f"{self._name}: {problem}. Name all {len(first)} columns with `columns`=[...]. If these "
                "cells are names, choose some of them with `columns`=[...]."
            )
        return names


def is_numeral(cell: str) -> bool:
    """Whether a cell holds a number. Python reads ``1_0`` as a number, CSV files hold it as a name."""
    if "_" in cell:
        return False
    try:
        float(cell)
    except ValueError:
        return False
    return True


def begins_with_number(values: Any) -> bool:
    """Whether a column of a block is parsed as numbers: its first value is a number, or it has none.

    If a later value is no number, pyarrow infers a column of text. Parsing it as numbers gives an error that
    tells the row.
    """
    first = next((value for value in values if value.is_valid), None)
    if first is None:
        return True
    value = first.as_py()
    return isinstance(value, (int, float, str)) and not isinstance(value, bool) and is_numeral(str(value))
