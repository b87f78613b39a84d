"""Conversion of Arrow record batches to blocks of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._checks.marked import MarkedError, ParameterError, mark
from shoal._checks.params import shown

from .stream import Block, block_rows, listed, required

#: Maximum number of rows per batch of lists: a list can be longer than the first one.
MOST_LISTS = 1 << 14


def import_pyarrow(what: str) -> Any:
    """Import pyarrow to read `what`."""
    return required("pyarrow", "arrow", what)


def empty_table(names: Iterable[str]) -> Any:
    """Return a table without rows and types, which only has the names of its columns."""
    pa = import_pyarrow("a table")
    return pa.schema([(name, pa.null()) for name in names]).empty_table()


class Columns:
    """The columns of a schema that make up the rows.

    Rows are one column of vectors, which is read without a copy, or several columns of numbers. Vectors are
    fixed-size lists, one-dimensional tensors, or lists of one length, which the first row tells. Raises
    `ValueError` if a column is missing, is given twice, or does not hold numbers or vectors. Messages name
    the data `name`, and the option for the columns `parameter`.
    """

    def __init__(
        self, name: str, schema: Any, columns: Sequence[Any] | None, parameter: str = "columns"
    ) -> None:
        pa = import_pyarrow(name)
        self._name = name
        there: list[str] = schema.names
        self.names = list(there) if columns is None else find_columns(name, columns, there, parameter)
        if not self.names:
            raise ValueError(f"{name}: has no columns")
        times = Counter(there)
        for column in self.names:
            if times[column] > 1:
                raise ValueError(f"{name}: has several columns with the name {column!r}")
        kinds = [schema.field(column).type for column in self.names]
        self._remedy = remedy(pa, schema, self.names, parameter)
        for column, kind in zip(self.names, kinds, strict=True):
            self._check_type(pa, column, kind, len(kinds))
        of = [item_type(pa, kind) or kind for kind in kinds]
        self.is_vector = is_vector_type(pa, kinds[0])
        # Whether the values tell the length of the vectors: `cols` is 0 until `measure` is called.
        self.is_list = self.is_vector and width(pa, kinds[0]) is None
        self.cols = (width(pa, kinds[0]) or 0) if self.is_vector else len(kinds)
        # Number of rows of the same source in earlier files.
        self.rows_before = 0
        # Distinct types only: `np.result_type` takes at most 64 arguments.
        self.dtype: np.dtype[Any] = np.result_type(*dict.fromkeys(kind.to_pandas_dtype() for kind in of))

    def _check_type(self, pa: Any, column: str, kind: Any, among: int) -> None:
        """Raise `ValueError` if a column cannot be used as rows, or as one of `among` features."""
        what = f"{self._name}: column {column!r}"
        value = item_type(pa, kind)
        if value is None:
            if not is_number_type(pa, kind):
                raise MarkedError(f"{what} is of type {kind}. {cast_hint(pa, kind)}{self._remedy}")
            return
        if not is_number_type(pa, value):
            raise MarkedError(
                f"{what} must hold vectors of real numbers, got vectors of type {value}. "
                f"{cast_hint(pa, value)}{self._remedy}"
            )
        length = width(pa, kind)
        # A damaged file can claim a negative length.
        if length is not None and length < 1:
            raise ValueError(f"{what} must hold vectors of length 1 or more, got length {length}")
        if isinstance(kind, pa.FixedShapeTensorType) and len(kind.shape) != 1:
            raise ValueError(f"{what} must hold one-dimensional tensors, got shape {tuple(kind.shape)}")
        if among > 1:
            raise MarkedError(
                f"{what} holds vectors, so it must be the only column, got {among} columns. {self._remedy}"
            )

    def measure(self, batches: Iterable[Any]) -> list[Any]:
        """Set the length of lists to that of the first row; return the batches that were read."""
        read: list[Any] = []
        if self.cols:
            return read
        (column,) = self.names
        for batch in batches:
            batch.validate()
            read.append(batch)
            if batch.num_rows:
                lists = batch.column(batch.schema.get_field_index(column)).slice(0, 1)
                self._check_nulls(lists, 0, 1)
                self.cols = int(spans(lists)[1][0])
                if self.cols < 1:
                    raise ValueError(
                        f"{self._name}: column {column!r} must hold vectors of length 1 or more, got length "
                        f"{self.cols} at {self._row(0)}"
                    )
                return read
        raise ValueError(
            f"{self._name}: has no rows, so the length of the lists in column {column!r} is unknown. Store "
            "vectors of one length as pyarrow.list_(type, length)."
        )

    def batch_rows(self, numbers: int) -> int:
        """Return the number of rows of a batch of about `numbers` numbers."""
        rows = max(1, numbers // self.cols)
        return min(rows, MOST_LISTS) if self.is_list else rows

    def header(self) -> Any:
        """Return an empty table with the names of the features; None for a column of vectors."""
        if self.is_vector:
            return None
        return empty_table(self.names)

    def block(self, batch: Any, start: int) -> Block:
        """Convert a batch that starts at row `start` to a block; a column of vectors is not copied."""
        # In a damaged file the lengths can contradict the buffers.
        batch.validate()
        found = [batch.column(batch.schema.get_field_index(column)) for column in self.names]
        if self.is_vector:
            return self._vectors(found[0], start)
        block = np.empty((batch.num_rows, self.cols), dtype=self.dtype)
        for j, array in enumerate(found):
            self._check_nulls(array, start, 1, j)
            block[:, j] = array.to_numpy(zero_copy_only=False)
        return block

    def _vectors(self, array: Any, start: int) -> Block:
        array = getattr(array, "storage", array)
        self._check_nulls(array, start, 1)
        values = self._items(array, start) if self.is_list else array.flatten()
        self._check_nulls(values, start, self.cols)
        block: Block = values.to_numpy(zero_copy_only=False).reshape(-1, self.cols)
        return block

    def _items(self, lists: Any, start: int) -> Any:
        """Return the items of lists of one length, without a copy if the lists are contiguous."""
        first, lengths = spans(lists)
        wrong = lengths != self.cols
        if wrong.any():
            at = int(wrong.argmax())
            raise ValueError(
                f"{self._name}: column {self.names[0]!r} must hold vectors of length {self.cols}, the length "
                f"of the first row, got length {lengths[at]} at {self._row(start + at)}"
            )
        values, steps = lists.values, np.arange(len(first)) * self.cols
        # A damaged file can have any offsets.
        if len(first) and (int(first.min()) < 0 or int(first.max()) + self.cols > len(values)):
            raise ValueError(
                f"{self._name}: column {self.names[0]!r} is damaged: its offsets exceed its values"
            )
        if not len(first) or (first == first[0] + steps).all():
            return values.slice(int(first[0]) if len(first) else 0, len(first) * self.cols)
        return values.take(import_pyarrow(self._name).array((first[:, None] + np.arange(self.cols)).ravel()))

    def _check_nulls(self, array: Any, start: int, each: int, column: int = 0) -> None:
        if array.null_count:
            first = int(array.is_null().to_numpy(zero_copy_only=False).argmax()) // each
            raise ValueError(
                f"{self._name}: column {self.names[column]!r} must not hold missing values, got a null at "
                f"{self._row(start + first)}"
            )

    def _row(self, row: int) -> str:
        """Name a row of a file in an error message: by its number in the source, and in the file."""
        return f"row {self.rows_before + row}" + (f" (row {row} of the file)" if self.rows_before else "")

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


def find_columns(
    name: str, columns: Sequence[Any], there: list[str], parameter: str = "columns"
) -> list[str]:
    """Return the names of `columns`; raise `ValueError` if one is missing or given twice."""
    names: dict[str, None] = {}
    known = set(there)
    for column in columns:
        if not isinstance(column, str) or column not in known:
            raise ParameterError(
                f"{name}: {mark(parameter)} must be among {listed(there)}, got {shown(column)}"
            )
        if column in names:
            raise ParameterError(f"{name}: {mark(parameter)} must be distinct, got {column!r} twice")
        names[column] = None
    return list(names)


def is_number_type(pa: Any, kind: Any) -> bool:
    """Whether a type is an integer, floating-point or boolean type."""
    t = pa.types
    return bool(t.is_integer(kind) or t.is_floating(kind) or t.is_boolean(kind))


def is_vector_type(pa: Any, kind: Any) -> bool:
    """Whether a type is a list or tensor type of any length."""
    return item_type(pa, kind) is not None


def item_type(pa: Any, kind: Any) -> Any:
    """Return the type of the items of a list or tensor type; None for any other type."""
    kind, t = stored(pa, kind), pa.types
    lists = (t.is_fixed_size_list, t.is_list, t.is_large_list, t.is_list_view, t.is_large_list_view)
    return kind.value_type if any(check(kind) for check in lists) else None


def stored(pa: Any, kind: Any) -> Any:
    """Return the storage type of a tensor type; any other type is returned unchanged."""
    return kind.storage_type if isinstance(kind, pa.FixedShapeTensorType) else kind


def width(pa: Any, kind: Any) -> int | None:
    """Return the length of the vectors that a type tells; None if it tells none."""
    kind = stored(pa, kind)
    return kind.list_size if pa.types.is_fixed_size_list(kind) else None


def spans(lists: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the first items and the lengths of lists, as 64-bit integers, whose differences are exact."""
    if hasattr(lists, "sizes"):
        return lists.offsets.to_numpy().astype(np.int64), lists.sizes.to_numpy().astype(np.int64)
    bounds = lists.offsets.to_numpy().astype(np.int64) if len(lists) else np.zeros(1, dtype=np.int64)
    return bounds[:-1], np.diff(bounds)


def cast_hint(pa: Any, kind: Any) -> str:
    """Say how to convert numbers that are stored as another type."""
    if pa.types.is_decimal(kind) or (pa.types.is_dictionary(kind) and is_number_type(pa, kind.value_type)):
        return "Cast it to a floating-point type, or leave it out. "
    return ""


def remedy(pa: Any, schema: Any, among: list[str], parameter: str) -> str:
    """Say which of the columns make up rows, for error messages."""
    kinds = {field.name: field.type for field in schema if field.name in among}
    items = {name: item_type(pa, kind) for name, kind in kinds.items()}
    vectors = [name for name, item in items.items() if item is not None and is_number_type(pa, item)]
    numbers = [name for name, kind in kinds.items() if is_number_type(pa, kind)]
    if len(vectors) == 1:
        return f"Choose the vectors with {mark(parameter)}=[{vectors[0]!r}]."
    if vectors or not numbers:
        return (
            "Choose columns of numbers, or one column of vectors (lists of one length), with "
            f"{mark(parameter)}=[...]."
        )
    return f"Choose columns of numbers with {mark(parameter)}=[{listed(numbers)}]."
