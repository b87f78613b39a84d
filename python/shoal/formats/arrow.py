"""Conversion of Arrow record batches to blocks of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from shoal._common.params import shown

from .stream import Block, block_rows, listed, required

REMEDY = "Choose columns of numbers, or one column of vectors (FixedSizeList), with columns=[...]."


def pyarrow(what: str) -> Any:
    """Import pyarrow to read `what`."""
    return required("pyarrow", "arrow", what)


class Columns:
    """The columns of a schema that make up the rows.

    Rows are one column of vectors, which is read without a copy, or several columns of numbers.

    Parameters
    ----------
    name : str
        Name of the data in error messages.
    schema : pyarrow.Schema
        Schema of the data.
    columns : sequence of str or None
        Names of the columns to read; None for all.

    Raises
    ------
    ValueError
        If a column is missing, is given twice, or does not hold numbers or vectors.
    """

    def __init__(self, name: str, schema: Any, columns: Sequence[Any] | None) -> None:
        pa = pyarrow(name)
        self._name = name
        there: list[str] = schema.names
        self.names = list(there) if columns is None else chosen(name, columns, there)
        if not self.names:
            raise ValueError(f"{name}: has no columns")
        times = Counter(there)
        for column in self.names:
            if times[column] > 1:
                raise ValueError(f"{name}: has several columns with the name {column!r}")
        kinds = [schema.field(column).type for column in self.names]
        for column, kind in zip(self.names, kinds, strict=True):
            self._check_type(pa, column, kind, len(kinds))
        self.is_vector = width(pa, kinds[0]) is not None
        self.cols = width(pa, kinds[0]) or len(kinds)
        of = [stored(pa, kind).value_type if self.is_vector else kind for kind in kinds]
        # Distinct types only: `np.result_type` takes at most 64 arguments.
        self.dtype: np.dtype[Any] = np.result_type(*dict.fromkeys(kind.to_pandas_dtype() for kind in of))

    def _check_type(self, pa: Any, column: str, kind: Any, among: int) -> None:
        """Raise `ValueError` if a column cannot be used as rows, or as one of `among` features."""
        t = pa.types
        what = f"{self._name}: column {column!r}"
        d = width(pa, kind)
        if d is None:
            if is_number(pa, kind):
                return
            why = f"is of type {kind}"
            if t.is_list(kind) or t.is_large_list(kind):
                why += ", lists of any length. Store vectors of one length as pyarrow.list_(type, d)"
            raise ValueError(f"{what} {why}. {REMEDY}")
        value = stored(pa, kind).value_type
        if not is_number(pa, value):
            raise ValueError(f"{what} must hold vectors of real numbers, got vectors of type {value}")
        if d < 1:
            raise ValueError(f"{what} must hold vectors of length 1 or more, got length {d}")
        if isinstance(kind, pa.FixedShapeTensorType) and len(kind.shape) != 1:
            raise ValueError(f"{what} must hold one-dimensional tensors, got shape {tuple(kind.shape)}")
        if among > 1:
            raise ValueError(
                f"{what} holds vectors, so it must be the only column, got {among} columns. {REMEDY}"
            )

    def header(self) -> Any:
        """Return an empty table with the names of the features; None for a column of vectors."""
        if self.is_vector:
            return None
        pa = pyarrow(self._name)
        return pa.schema([(column, pa.null()) for column in self.names]).empty_table()

    def description(self) -> str:
        """Describe the rows for error messages."""
        what = f"vectors {self.names[0]!r}" if self.is_vector else listed(self.names)
        return f"{self._name} has {self.cols} columns of {self.dtype} ({what})"

    def block(self, batch: Any, start: int) -> Block:
        """Convert a batch that starts at row `start` to a block; a column of vectors is not copied."""
        # In a damaged file the lengths can contradict the buffers.
        batch.validate()
        found = [batch.column(batch.schema.get_field_index(column)) for column in self.names]
        if self.is_vector:
            return self._vectors(found[0], start)
        block = np.empty((batch.num_rows, self.cols), dtype=self.dtype)
        for j, (column, array) in enumerate(zip(self.names, found, strict=True)):
            self._check_nulls(column, array, start, 1)
            block[:, j] = array.to_numpy(zero_copy_only=False)
        return block

    def _vectors(self, array: Any, start: int) -> Block:
        array = getattr(array, "storage", array)
        (column,) = self.names
        self._check_nulls(column, array, start, 1)
        values = array.flatten()
        self._check_nulls(column, values, start, self.cols)
        block: Block = values.to_numpy(zero_copy_only=False).reshape(-1, self.cols)
        return block

    def _check_nulls(self, column: str, array: Any, start: int, each: int) -> None:
        if array.null_count:
            first = int(array.is_null().to_numpy(zero_copy_only=False).argmax()) // each
            raise ValueError(
                f"{self._name}: column {column!r} must not hold missing values, got a null at row "
                f"{start + first}"
            )

    def blocks(self, batches: Iterable[Any]) -> Iterator[Block]:
        """Convert batches of any length to blocks: split long batches, merge short ones."""
        most = block_rows(self.cols, self.dtype)
        start, waiting = 0, Collected(most, self.cols, self.dtype)
        for batch in batches:
            for first in range(0, batch.num_rows, most):
                block = self.block(batch.slice(first, most), start)
                start += len(block)
                if waiting.rows or 2 * len(block) <= most:
                    yield from waiting.add(block)
                else:
                    yield block
        yield from waiting.rest()


class Collected:
    """Rows of short batches, merged to full blocks: threads are idle on blocks of a few rows."""

    def __init__(self, most: int, cols: int, dtype: np.dtype[Any]) -> None:
        self.rows = 0
        self._shape, self._dtype = (most, cols), dtype
        self._block: Block = np.empty((0, cols), dtype=dtype)

    def add(self, rows: Block) -> Iterator[Block]:
        """Copy rows, and yield every block that they fill."""
        while len(rows):
            if not self.rows:
                # A new array for every block, because the consumer still reads the previous one.
                self._block = np.empty(self._shape, dtype=self._dtype)
            fitting = rows[: len(self._block) - self.rows]
            self._block[self.rows : self.rows + len(fitting)] = fitting
            self.rows += len(fitting)
            rows = rows[len(fitting) :]
            if self.rows == len(self._block):
                yield from self.rest()

    def rest(self) -> Iterator[Block]:
        """Yield the rows that do not fill a block."""
        if self.rows:
            rows, self.rows = self.rows, 0
            yield self._block[:rows]


def chosen(name: str, columns: Sequence[Any], there: list[str], parameter: str = "columns") -> list[str]:
    """Return the names of `columns`; raise `ValueError` if one is missing or given twice."""
    names: dict[str, None] = {}
    known = set(there)
    for column in columns:
        if not isinstance(column, str) or column not in known:
            raise ValueError(f"{name}: {parameter} must be among {listed(there)}, got {shown(column)}")
        if column in names:
            raise ValueError(f"{name}: {parameter} must be distinct, got {column!r} twice")
        names[column] = None
    return list(names)


def is_number(pa: Any, kind: Any) -> bool:
    """Whether a type is an integer, floating-point or boolean type."""
    t = pa.types
    return bool(t.is_integer(kind) or t.is_floating(kind) or t.is_boolean(kind))


def stored(pa: Any, kind: Any) -> Any:
    """Return the storage type of a tensor type; any other type is returned unchanged."""
    return kind.storage_type if isinstance(kind, pa.FixedShapeTensorType) else kind


def width(pa: Any, kind: Any) -> int | None:
    """Return the length of the vectors of a type; None if it is not a vector type."""
    kind = stored(pa, kind)
    return kind.list_size if pa.types.is_fixed_size_list(kind) else None
