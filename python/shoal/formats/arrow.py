"""Columns of Arrow data as rows: one column of vectors as it lies, or columns of numbers side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from shoal._common.params import shown

from .stream import Block, block_rows, listed, required

REMEDY = "choose columns of numbers, or one of vectors (FixedSizeList), with columns=[...]"


def pyarrow(what: str) -> Any:
    """Import pyarrow to read `what`."""
    return required("pyarrow", "arrow", what)


class Columns:
    """The columns of a schema that are the rows.

    Parameters
    ----------
    name : str
        What messages call the data.
    schema : pyarrow.Schema
        Of the data.
    columns : sequence of str or None
        Which of them; None for all.
    """

    def __init__(self, name: str, schema: Any, columns: Sequence[Any] | None) -> None:
        pa = pyarrow(name)
        self._name = name
        there: list[str] = schema.names
        self.names = list(there) if columns is None else chosen(name, columns, there)
        if not self.names:
            raise ValueError(f"{name}: there are no columns")
        times = Counter(there)
        for column in self.names:
            if times[column] > 1:
                raise ValueError(f"{name}: several columns are called {column!r}")
        kinds = [schema.field(column).type for column in self.names]
        for column, kind in zip(self.names, kinds, strict=True):
            self._refuse(pa, column, kind, len(kinds))
        self.is_vector = width(pa, kinds[0]) is not None
        self.cols = width(pa, kinds[0]) or len(kinds)
        of = [stored(pa, kind).value_type if self.is_vector else kind for kind in kinds]
        # Distinct ones: NumPy takes no more than 64.
        self.dtype: np.dtype[Any] = np.result_type(*dict.fromkeys(kind.to_pandas_dtype() for kind in of))

    def _refuse(self, pa: Any, column: str, kind: Any, among: int) -> None:
        """Refuse a column that cannot be (part of) the rows."""
        t = pa.types
        what = f"{self._name}: column {column!r}"
        d = width(pa, kind)
        if d is None:
            if is_number(pa, kind):
                return
            why = f"is of type {kind}"
            if t.is_list(kind) or t.is_large_list(kind):
                why += (
                    ", lists of any length: vectors are stored with their length, as pyarrow.list_(type, d)"
                )
            raise ValueError(f"{what} {why}; {REMEDY}")
        value = stored(pa, kind).value_type
        if not is_number(pa, value):
            raise ValueError(f"{what} holds vectors of type {value}: rows are real numbers")
        if d < 1:
            raise ValueError(f"{what} holds vectors of length {d}")
        if isinstance(kind, pa.FixedShapeTensorType) and len(kind.shape) != 1:
            raise ValueError(f"{what} holds tensors of shape {tuple(kind.shape)}: rows are one-dimensional")
        if among > 1:
            raise ValueError(f"{what} holds vectors, and there are other columns beside it; {REMEDY}")

    def header(self) -> Any:
        """Give a table without rows whose columns are the features; None for vectors, which have no names."""
        if self.is_vector:
            return None
        pa = pyarrow(self._name)
        return pa.schema([(column, pa.null()) for column in self.names]).empty_table()

    def told(self) -> str:
        """Say what the rows are, for messages."""
        what = f"vectors {self.names[0]!r}" if self.is_vector else listed(self.names)
        return f"{self._name} has {self.cols} columns of {self.dtype} ({what})"

    def block(self, batch: Any, start: int) -> Block:
        """Give a batch as a block; a column of vectors without a copy. `start` is its first row."""
        # What lies in a file may contradict its own lengths.
        batch.validate()
        found = [batch.column(batch.schema.get_field_index(column)) for column in self.names]
        if self.is_vector:
            return self._vectors(found[0], start)
        block = np.empty((batch.num_rows, self.cols), dtype=self.dtype)
        for j, (column, array) in enumerate(zip(self.names, found, strict=True)):
            self._refuse_nulls(column, array, start, 1)
            block[:, j] = array.to_numpy(zero_copy_only=False)
        return block

    def _vectors(self, array: Any, start: int) -> Block:
        array = getattr(array, "storage", array)
        (column,) = self.names
        self._refuse_nulls(column, array, start, 1)
        values = array.flatten()
        self._refuse_nulls(column, values, start, self.cols)
        block: Block = values.to_numpy(zero_copy_only=False).reshape(-1, self.cols)
        return block

    def _refuse_nulls(self, column: str, array: Any, start: int, each: int) -> None:
        if array.null_count:
            first = int(array.is_null().to_numpy(zero_copy_only=False).argmax()) // each
            raise ValueError(
                f"{self._name}: column {column!r} holds a null at row {start + first}: "
                "missing values are refused"
            )

    def blocks(self, batches: Iterable[Any]) -> Iterator[Block]:
        """Give batches of any length as blocks: long ones are cut, short ones are collected."""
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
    """Rows of short batches, until they fill a block: work on a few rows would wait for the next ones."""

    def __init__(self, most: int, cols: int, dtype: np.dtype[Any]) -> None:
        self.rows = 0
        self._shape, self._dtype = (most, cols), dtype
        self._block: Block = np.empty((0, cols), dtype=dtype)

    def add(self, rows: Block) -> Iterator[Block]:
        """Take rows over, and give a block that they fill."""
        while len(rows):
            if not self.rows:
                # A new one every time: the last one is still worked on.
                self._block = np.empty(self._shape, dtype=self._dtype)
            fitting = rows[: len(self._block) - self.rows]
            self._block[self.rows : self.rows + len(fitting)] = fitting
            self.rows += len(fitting)
            rows = rows[len(fitting) :]
            if self.rows == len(self._block):
                yield from self.rest()

    def rest(self) -> Iterator[Block]:
        """Give what is there."""
        if self.rows:
            rows, self.rows = self.rows, 0
            yield self._block[:rows]


def chosen(name: str, columns: Sequence[Any], there: list[str]) -> list[str]:
    """Give the names of `columns`, if all of them are there."""
    names: dict[str, None] = {}
    known = set(there)
    for column in columns:
        if not isinstance(column, str) or column not in known:
            raise ValueError(f"{name}: there is no column {shown(column)}; there are: {listed(there)}")
        if column in names:
            raise ValueError(f"{name}: columns names {column!r} twice")
        names[column] = None
    return list(names)


def is_number(pa: Any, kind: Any) -> bool:
    """Whether values of a type are numbers, or true and false."""
    t = pa.types
    return bool(t.is_integer(kind) or t.is_floating(kind) or t.is_boolean(kind))


def stored(pa: Any, kind: Any) -> Any:
    """Give the type that tensors are stored in; others are their own."""
    return kind.storage_type if isinstance(kind, pa.FixedShapeTensorType) else kind


def width(pa: Any, kind: Any) -> int | None:
    """Give the length of the vectors of a type, or None where its values are none."""
    kind = stored(pa, kind)
    return kind.list_size if pa.types.is_fixed_size_list(kind) else None
