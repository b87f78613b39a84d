"""Partitions that arrive as Arrow batches, from Spark and Ray: rows, weights, and a fingerprint of both."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal._checks.params import RowWeights, shown
from shoal._rows.arrays import source_of_values
from shoal._rows.opening import source_of_stream
from shoal._rows.source import DataSource
from shoal._rows.streams import Print
from shoal.formats.arrow import MOST_LISTS, Columns, find_columns, import_pyarrow, is_number_type, spans
from shoal.formats.stream import Block, Stream, block_rows

from .partial import Partial
from .passes import Pass, RowPass

#: Fields of the struct by which Spark stores ML vectors.
ML_VECTOR = ["type", "size", "indices", "values"]
#: The value of the field `type` of a sparse ML vector.
SPARSE = 0

#: Rows with their weights, if there are any.
Piece = tuple[Block, RowWeights]

OTHER_ROWS = (
    "the engine gave other rows or weights, or another order of rows, than in the first pass. A partition "
    "that is lost and computed again must have the same rows in the same order: sort the rows within the "
    "partitions, or write them to files first."
)


class Wanted(NamedTuple):
    """The columns that hold the rows, and their weights."""

    features: list[str]
    weights: str | None

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        return [*self.features, *([] if self.weights is None else [self.weights])]


def wanted(
    name: str, features: str | Sequence[str], weights: str | None, output: str | None, there: list[str]
) -> Wanted:
    """Check the names of columns: those that are read must be there once, that of results must be new."""
    names = [features] if isinstance(features, str) else list(features)
    if not names:
        raise ValueError(f"{name}: features must name at least one column, got {shown(features)}")
    found = Wanted(find_columns(name, names, there, "features"), weights)
    if weights is not None:
        find_columns(name, [weights], there, "sample_weight")
        if weights in found.features:
            raise ValueError(f"{name}: sample_weight must not be one of the features, got {weights!r}")
    for column in found.names:
        if there.count(column) > 1:
            raise ValueError(f"{name}: has several columns with the name {column!r}")
    if output is not None and output in there:
        raise ValueError(f"{name}: output must be the name of a new column, got {output!r}, which is there")
    return found


class Layout:
    """Reads rows and weights from the Arrow batches of one schema.

    Rows are one column of vectors (lists, one-dimensional tensors or ML vectors of Spark), or several columns
    of numbers. Lists and dense vectors are read without a copy, sparse vectors are made dense block by block.
    Raises `ValueError` if a column holds neither numbers nor vectors. Messages name the data `name`.
    """

    def __init__(self, name: str, schema: Any, of: Wanted) -> None:
        pa = self._pa = import_pyarrow(name)
        self._name, self._of = name, of
        plain = pa.schema([(field.name, self._plain_type(field)) for field in schema])
        self._columns = Columns(name, plain, of.features, "features")
        if of.weights is not None:
            kind = schema.field(of.weights).type
            if not is_number_type(pa, kind):
                raise ValueError(f"{name}: column {of.weights!r} must hold numbers as weights, got {kind}")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the rows."""
        return self._columns.dtype

    @property
    def weighted(self) -> bool:
        """Whether the rows have weights."""
        return self._of.weights is not None

    @property
    def header(self) -> Any:
        """An empty table with the names of the features; None for a column of vectors."""
        return self._columns.header()

    def pieces(self, batches: Iterable[Any]) -> Iterator[Piece]:
        """Yield the rows of batches, with their weights.

        Raises `ValueError`, which names the row, if a value is missing, or vectors have different lengths.
        """
        start = 0
        for batch in batches:
            most = self._most_rows(batch)
            for first in range(0, batch.num_rows, most):
                piece = self._plain_batch(batch.slice(first, most), start)
                if not self._columns.cols:
                    self._columns.measure([piece])
                rows = self._columns.block(piece, start)
                yield rows, self._weights(piece, start)
                start += len(rows)

    def _weights(self, batch: Any, start: int) -> RowWeights:
        if self._of.weights is None:
            return None
        column = batch.column(batch.schema.get_field_index(self._of.weights))
        self._refuse_nulls(self._of.weights, column, start)
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)

    def _refuse_nulls(self, name: str, column: Any, start: int) -> None:
        if column.null_count:
            row = start + int(column.is_null().to_numpy(zero_copy_only=False).argmax())
            raise ValueError(
                f"{self._name}: column {name!r} must not hold missing values, got a null at row {row}"
            )

    def _plain_type(self, field: Any) -> Any:
        """Return the type of a column after :meth:`_plain_batch`."""
        pa, kind = self._pa, field.type
        if is_ml_vector(pa, kind):
            return pa.list_(kind.field("values").type.value_type)
        if is_foreign_tensor(pa, kind):
            shape = getattr(kind, "shape", ())
            if len(shape) != 1 or None in shape:
                raise ValueError(
                    f"{self._name}: column {field.name!r} must hold one-dimensional tensors of one length, "
                    f"got {kind}"
                )
            return kind.storage_type
        return kind

    def _plain_batch(self, batch: Any, start: int) -> Any:
        """Return a batch with lists in place of the vectors of Spark and the tensors of Ray."""
        pa = self._pa
        arrays = []
        for name in self._of.names:
            array = batch.column(batch.schema.get_field_index(name))
            if is_ml_vector(pa, array.type):
                self._refuse_nulls(name, array, start)
                array = lists_of(pa, array)
            elif is_foreign_tensor(pa, array.type):
                array = array.storage
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, self._of.names)

    def _most_rows(self, batch: Any) -> int:
        """Return the number of rows of a batch that may be dense at a time."""
        if self._columns.is_list and batch.num_rows:
            vectors = batch.column(batch.schema.get_field_index(self._of.features[0]))
            sizes = vectors.field("size") if is_ml_vector(self._pa, vectors.type) else None
            if sizes is not None and sizes.null_count < len(sizes):
                return min(MOST_LISTS, block_rows(max(1, sizes.drop_null()[0].as_py()), self.dtype))
            return MOST_LISTS
        return block_rows(max(1, self._columns.cols), self.dtype)


def is_ml_vector(pa: Any, kind: Any) -> bool:
    """Whether a type is the struct of an ML vector of Spark."""
    return bool(pa.types.is_struct(kind)) and [field.name for field in kind] == ML_VECTOR


def is_foreign_tensor(pa: Any, kind: Any) -> bool:
    """Whether a type is a tensor type that pyarrow does not know, such as that of Ray."""
    return isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.FixedShapeTensorType)


def lists_of(pa: Any, vectors: Any) -> Any:
    """Convert ML vectors to lists; dense vectors are not copied."""
    kinds, sizes, indices, values = vectors.flatten()
    sparse = kinds.to_numpy(zero_copy_only=False) == SPARSE
    if not sparse.any():
        return values
    first, lengths = spans(values)
    full = np.where(sparse, sizes.fill_null(0).to_numpy(zero_copy_only=False), lengths).astype(np.int64)
    bounds = np.concatenate([[0], full.cumsum()])
    dense = np.zeros(int(bounds[-1]))
    # Where each stored value goes: the start of its row, plus its index, or its position in a dense row.
    rows = np.repeat(np.arange(len(full)), lengths)
    places = np.arange(len(rows)) - np.repeat(lengths.cumsum() - lengths, lengths)
    at = np.repeat(first, lengths) + places
    begin = spans(indices)[0]
    of_sparse = sparse[rows]
    stored = np.asarray(indices.values)
    places[of_sparse] = stored[(begin[rows] + places)[of_sparse]]
    dense[bounds[rows] + places] = np.asarray(values.values)[at]
    return pa.LargeListArray.from_arrays(bounds, dense).cast(pa.list_(pa.float64()))


def rows_of(pieces: Iterator[Piece], weighted: bool, header: Any) -> tuple[Any, RowWeights]:
    """Return the rows of a partition as a pass takes them, and their weights.

    `header` is an empty table with the names of the features; None if they have no names.
    A partition of one piece is an array, of several a stream. The pieces of weighted rows are all held in
    memory, because a pass takes the weights before the rows.
    """
    read = list(pieces if weighted else islice(pieces, 2))
    if not read:
        return np.zeros((0, 1)), np.zeros(0) if weighted else None
    weights = np.concatenate([w for _, w in read if w is not None]) if weighted else None
    rows = read[0][0]
    if len(read) == 1:
        return DataSource(source_of_values(rows), "X", header=header), weights
    blocks = (block for block, _ in chain(read, pieces))
    stream = Stream("X", None, rows.shape[1], rows.dtype, lambda: blocks, once=True, header=header)
    return source_of_stream(stream), weights


class Seen(Print):
    """A fingerprint of a sample of the rows, and of all weights."""

    def __init__(self) -> None:
        super().__init__()
        self._weights = 0

    def add_weights(self, weights: npt.NDArray[np.float64]) -> None:
        """Take the weights of the next rows."""
        self._weights = zlib.crc32(weights.tobytes(), self._weights)

    def number(self) -> int:
        """Return the number of rows and the fingerprint as one number of 63 bits."""
        rows, found = self.all()
        return (rows << 32 | zlib.crc32(found.to_bytes(4, "little"), self._weights)) & (1 << 63) - 1


def rows_seen(fingerprint: int) -> int:
    """Return the number of rows that a fingerprint was taken of."""
    return fingerprint >> 32


def printed(pieces: Iterable[Piece], seen: Seen) -> Generator[Piece]:
    """Yield the pieces, and add the rows and their weights to a fingerprint."""
    for rows, weights in pieces:
        if len(rows):
            seen.add(rows)
            if weights is not None:
                seen.add_weights(weights)
            yield rows, weights


class Arriving(NamedTuple):
    """The rows of a partition, which arrive piece by piece."""

    #: The number of the partition.
    partition: int
    pieces: Iterable[Piece]
    #: Whether the rows have weights.
    weighted: bool
    #: An empty table with the names of the features, if they have names.
    header: Any = None


def absorbed_pieces(
    task: Pass, arriving: Arriving, expected: int | None, n_jobs: int | None
) -> tuple[Partial, int]:
    """Run one pass over one partition; return the result and the fingerprint of the rows. For workers.

    `expected` is the fingerprint of the partition in the first pass, and None in the first pass itself.
    Raises `ValueError` if the rows are not valid, or are not those of the first pass.
    """
    seen, partition = Seen(), arriving.partition
    rows, weights = rows_of(printed(arriving.pieces, seen), arriving.weighted, arriving.header)
    part = task.absorb(rows, weights, partition=partition, n_jobs=n_jobs)
    found = seen.number()
    if expected is not None and found != expected:
        raise ValueError(f"partition {partition}: {OTHER_ROWS}")
    return part, found


def over_pieces(
    task: RowPass, pieces: Iterator[Piece], n_jobs: int | None, partition: int | None = None
) -> npt.NDArray[Any]:
    """Return the labels or distances of the rows of a partition; for workers."""
    found = (task.of(rows, partition=partition, n_jobs=n_jobs) for rows, _ in pieces)
    return np.concatenate([task.none, *found])
