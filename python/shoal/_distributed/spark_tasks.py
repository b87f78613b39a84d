"""What the executors of Spark do: pack the rows of a partition, look at them, run passes, merge, label."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal import _core
from shoal._checks.params import RowWeights
from shoal.formats.stream import Block

from .base import naming
from .batches import Arriving, Layout, Piece, Seen, Wanted, absorbed_pieces, over_pieces, printed
from .engine import FAN_IN, merged
from .partial import Partial
from .passes import RowPass

#: Bytes of the rows in one record of a packed partition. Spark sends up to 10,000 records at a time.
RECORD_BYTES = 8 << 10

#: Columns of packed partitions, of the first look at them, and of passes over them.
PACKED = "partition int, cols int, rows binary, weights binary, error binary"
LOOK = "partition int, fingerprint long, error binary"
FOUND = "partition int, part binary, error binary"


def this_task() -> Any:
    """Return Spark's description of this task."""
    from pyspark import TaskContext

    return TaskContext.get()


def this_partition() -> int:
    """Return the number of the partition of this task."""
    return int(this_task().partitionId())


def task_cpus() -> int:
    """Return the number of cores of this task."""
    return int(this_task().cpus())


def batch_of(**columns: Any) -> Any:
    """Return a record batch of one record."""
    import pyarrow as pa

    kinds = {int: pa.int64(), bytes: pa.binary(), type(None): pa.binary()}
    arrays = {name: pa.array([value], kinds[type(value)]) for name, value in columns.items()}
    for name in ("partition", "cols"):
        if name in arrays:
            arrays[name] = arrays[name].cast(pa.int32())
    return pa.RecordBatch.from_pydict(arrays)


def pack(of: Wanted, batches: Iterator[Any]) -> Iterator[Any]:
    """Pack the rows of a partition, whose columns come in order, into records of bytes.

    Invalid rows become a record with the error: Spark would run a task that raises again and again.
    """
    try:
        named = (batch.rename_columns(of.names) for batch in batches)
        for first in named:
            for rows, weights in Layout("X", first.schema, of).pieces(chain([first], named)):
                yield records(rows, weights)
    except (ValueError, TypeError) as error:
        yield batch_of(partition=this_partition(), cols=0, rows=b"", weights=None, error=pickled_error(error))


def pickled_error(error: Exception) -> bytes:
    """Pickle an error of the rows, with the number of the partition."""
    try:
        with naming(this_partition()):
            raise error
    except (ValueError, TypeError) as named:
        return pickle.dumps(named)


def records(rows: Block, weights: RowWeights) -> Any:
    """Pack rows into records of about `RECORD_BYTES`, without a copy of the rows."""
    import pyarrow as pa

    rows = np.ascontiguousarray(rows)
    n, cols = rows.shape
    each = max(1, RECORD_BYTES // (cols * rows.itemsize))
    bounds = np.minimum(np.arange(0, n + each, each), n) if n else np.zeros(1, np.int64)

    def binary(values: Any, width: int) -> Any:
        offsets = pa.py_buffer((bounds * width).astype(np.int64))
        kind, count = pa.large_binary(), len(bounds) - 1
        return pa.Array.from_buffers(kind, count, [None, offsets, pa.py_buffer(values)]).cast(pa.binary())

    count = len(bounds) - 1
    return pa.RecordBatch.from_pydict(
        {
            "partition": pa.array(np.full(count, this_partition(), np.int32)),
            "cols": pa.array(np.full(count, cols, np.int32)),
            "rows": binary(rows, cols * rows.itemsize),
            "weights": pa.nulls(count, pa.binary()) if weights is None else binary(weights, 8),
            "error": pa.nulls(count, pa.binary()),
        }
    )


def unpacked(kind: str, batches: Iterable[Any]) -> Iterator[Piece]:
    """Yield the rows of packed batches, without a copy; raise the error that one holds."""
    width = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        for error in batch.column("error").drop_null():
            raise pickle.loads(error.as_py())
        cols = np.asarray(batch.column("cols"))
        width = width or int(cols[0])
        if (cols != width).any():
            other = int(cols[cols != width][0])
            raise ValueError(f"X: rows must have one length, got {width} and {other}")
        weights = batch.column("weights")
        yield (
            values_of(batch.column("rows"), kind).reshape(-1, width),
            None if weights.null_count else values_of(weights, "<f8"),
        )


def values_of(array: Any, kind: str) -> npt.NDArray[Any]:
    """Return the bytes of all records as one array of numbers."""
    _, offsets, values = array.buffers()
    width = np.int64 if "large" in str(array.type) else np.int32
    bounds = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
    return np.frombuffer(values, np.uint8)[bounds[0] : bounds[-1]].view(kind)


def look_at(kind: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Return the fingerprint of a packed partition, or the error of its rows."""
    seen, error = Seen(), None
    try:
        for _ in printed(unpacked(kind, batches), seen):
            pass
    except (ValueError, TypeError) as found:
        error = pickled_error(found)
    yield batch_of(partition=this_partition(), fingerprint=seen.number(), error=error)


def by_partition(batches: Iterable[Any]) -> Iterator[tuple[int, Iterator[Any]]]:
    """Yield the numbers of packed partitions that come one after the other, and the batches of each."""

    def pieces() -> Iterator[tuple[int, Any]]:
        for batch in batches:
            numbers = np.asarray(batch.column("partition"))
            bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
            for begin, end in pairwise(bounds):
                if begin < end:
                    yield int(numbers[begin]), batch.slice(begin, end - begin)

    for number, group in groupby(pieces(), key=itemgetter(0)):
        yield number, (piece for _, piece in group)


def run(sent: Any, kind: str, weighted: bool, n_jobs: int | None, batches: Iterator[Any]) -> Iterator[Any]:
    """Run a pass over packed partitions."""
    task, expected, header = pickle.loads(sent.value)
    error, part, threads = None, None, n_jobs or task_cpus()

    def parts() -> Iterator[Partial]:
        for partition, own in by_partition(batches):
            with naming(partition):
                arriving = Arriving(partition, unpacked(kind, own), weighted, header)
                yield absorbed_pieces(task, arriving, expected[partition], threads)[0]

    try:
        absorbed = parts()
        if (first := next(absorbed, None)) is not None:
            part = merged(chain([first], absorbed)).to_bytes()
    except (ValueError, TypeError) as problem:
        # It names the partition already.
        error = pickle.dumps(problem)
    if part is not None or error is not None:
        yield batch_of(partition=this_partition(), part=part, error=error)


def merge_group(table: Any) -> Any:
    """Merge the partial results of a group, or keep the error of the first partition."""
    import pyarrow as pa

    rows = sorted(table.to_pylist(), key=lambda row: row["partition"])
    errors = [row["error"] for row in rows if row["error"] is not None]
    part = None if errors else _core.Partial.merged([row["part"] for row in rows])
    found = batch_of(partition=rows[0]["partition"] // FAN_IN, part=part, error=errors[0] if errors else None)
    return pa.Table.from_batches([found])


def row_function(of: Wanted, task: RowPass, n_jobs: int | None) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function of Arrow arrays; Spark takes the way to call it from its type hints."""
    import pyarrow as pa

    only = Wanted(of.features, None)

    def computed(columns: Iterator[Any]) -> Iterator[Any]:
        return over_rows(only, task, n_jobs, columns)

    given: Any = pa.Array if len(only.features) == 1 else tuple[pa.Array, ...]
    computed.__annotations__ = {"columns": Iterator[given], "return": Iterator[pa.Array]}
    return computed


def over_rows(of: Wanted, task: RowPass, n_jobs: int | None, columns: Iterator[Any]) -> Iterator[Any]:
    """Yield the labels or distances of the rows in arrays, or in tuples of arrays."""
    import pyarrow as pa

    layout: Layout | None = None
    partition, threads = this_partition(), n_jobs or task_cpus()
    for given in columns:
        arrays = list(given) if isinstance(given, tuple) else [given]
        batch = pa.RecordBatch.from_arrays(arrays, of.names)
        layout = layout or Layout("X", batch.schema, of)
        values = over_pieces(task, layout.pieces([batch]), threads, partition)
        if task.width is None:
            yield pa.array(values)
        else:
            bounds = np.arange(len(values) + 1, dtype=np.int32) * task.width
            yield pa.ListArray.from_arrays(bounds, values.ravel())
