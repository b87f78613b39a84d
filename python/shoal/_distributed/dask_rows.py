"""Partitions of dask arrays, data frames and lists of paths."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from shoal._checks.params import ParameterError, memory, n_bytes, shown
from shoal._files.staged import is_name
from shoal._rows.opening import open_rows
from shoal.formats.stream import listed, required

from .base import naming
from .decoded import decoded
from .passes import RowPass

#: What can be clustered, for messages.
ROWS = "a dask array, a dask data frame, or a list of paths or of dask.delayed values, one per partition"


def library(name: str) -> Any:
    """Import a module of Dask."""
    return required(name, "dask", "shoal.dask")


@dataclass(frozen=True)
class Chunks:
    """A dask array with one chunk per partition; the chunks may be frames or other rows.

    Fits and labels go through arrays, so that Dask optimizes the tasks of the rows in the same way for both.
    The scheduler warns of a task that it knows in another form.
    """

    data: Any

    def lazy(self) -> list[Any]:
        """Return the partitions as delayed values, which Dask optimizes with the tasks that take them."""
        return list(np.ravel(self.data.to_delayed(optimize_graph=False)))


def started(client: Any, *chunks: Chunks) -> list[list[Any]]:
    """Return the futures of the partitions of each of these rows or weights, in their order.

    Each worker computes neighbors. Partitions that are computed already stay where they are.
    """
    # Graphs that are optimized one by one may hold the tasks that they share in different forms, which the
    # scheduler does not expect.
    tasks = library("dask").optimize(*(with_consumers(each.data) for each in chunks))
    return [
        computed(each.data) or list(submitted(client, data)) for each, data in zip(chunks, tasks, strict=True)
    ]


def with_consumers(data: Any) -> Any:
    """Return an array with a task that takes each chunk, as labels have one that takes their rows.

    Dask then optimizes the tasks of the rows as it does for labels that are computed during the fit.
    """
    name = f"consumers-{uuid4().hex}"
    tasks = {(name, i): (unchanged, key) for i, key in enumerate(keys_of(data))}
    graph = library("dask.highlevelgraph").HighLevelGraph.from_collections(name, tasks, [data])
    return library("dask.array").Array(graph, name, data.chunks[:1], dtype=object)


def submitted(client: Any, data: Any) -> Iterator[Any]:
    """Start the computation of an optimized array on all workers; yield the futures of its chunks."""
    keys = keys_of(data)
    for worker, begin, end in shares(client.nthreads(), len(keys)):
        own = keys[begin:end]
        tasks, others = data.dask.cull(set(own)), worker is not None
        yield from client.get(tasks, own, workers=worker, allow_other_workers=others, sync=False)


def unchanged(block: Any) -> Any:
    """Return the block."""
    return block


def computed(data: Any) -> list[Any] | None:
    """Return the futures of the chunks of an array, or None if they are not all computed or started."""
    found = {future.key: future for future in library("distributed").futures_of(data)}
    keys = keys_of(data)
    return [found[key] for key in keys] if found.keys() >= set(keys) else None


def keys_of(data: Any) -> list[Any]:
    """Return the keys of the chunks of an array, in their order."""
    return list(library("dask").core.flatten(data.__dask_keys__()))


def shares(threads: dict[str, int], n: int) -> Iterator[tuple[str | None, int, int]]:
    """Yield workers and the neighboring partitions that each computes, by the number of its threads."""
    if not threads:
        # Workers may come later.
        yield None, 0, n
    done, total = 0, sum(threads.values())
    for worker in sorted(threads):
        begin, done = n * done // total, done + threads[worker]
        end = n * done // total
        if begin < end:
            yield worker, begin, end


@dataclass(frozen=True)
class Partitions:
    """Rows in numbered partitions that are not computed yet, and their weights."""

    blocks: Chunks
    weights: Chunks | None
    #: Number of rows of every partition; NaN where it is not known.
    sizes: list[float]
    #: The frame or array whose features scikit-learn counts and names; None if they are not known.
    header: Any
    #: The dask data frame of the rows; None if they are not in one.
    frame: Any = None


def partitions_of(X: Any, sample_weight: Any = None, persist: Any = True) -> Partitions:
    """Find the partitions of rows; workers keep decoded rows of files as `persist` says.

    Raises `ValueError` if X has no partitions, not 2 dimensions, or several chunks of columns, or if the
    weights do not fit.
    """
    dask = library("dask")
    array = library("dask.array")
    budget = persist if isinstance(persist, bool) else n_bytes("persist", persist)
    if isinstance(X, array.Array):
        if X.ndim != 2:
            raise ParameterError(f"X must be a dask array of 2 dimensions, got {X.ndim}")
        if X.numblocks[1] != 1:
            raise ParameterError(
                f"X must be chunked by rows only, got {X.numblocks[1]} chunks of columns. Use "
                "X.rechunk({1: -1}) instead."
            )
        sizes, header, blocks = [float(size) for size in X.chunks[0]], X, Chunks(X)
    elif dask.is_dask_collection(X) and hasattr(X, "npartitions"):
        if not hasattr(X, "columns") or getattr(X, "ndim", 2) != 2:
            raise ParameterError(f"X must be {ROWS}, got a {type(X).__name__} of Dask")
        sizes, header = [math.nan] * X.npartitions, X._meta
        refuse_text(header)
        blocks = Chunks(concatenated(X.to_delayed(), sizes, "rows"))
    elif isinstance(X, (list, tuple)) and X:
        return of_list(list(X), sample_weight, budget)
    else:
        raise ParameterError(
            f"X must be {ROWS}, got {shown(X)}. For rows in memory, use the estimators of shoal."
        )
    weights = None if sample_weight is None else weights_of(sample_weight, sizes)
    return Partitions(blocks, weights, sizes, header, None if isinstance(X, array.Array) else X)


def of_list(items: list[Any], sample_weight: Any, budget: bool | int) -> Partitions:
    """Find the partitions of a list of paths or delayed values."""
    delayed = library("dask.delayed")
    open_there = delayed.delayed(opened_here, pure=False)
    values = []
    for i, item in enumerate(items):
        if not (is_name(item) or isinstance(item, delayed.Delayed)):
            raise ParameterError(f"X must be {ROWS}, got a list whose item {i} is {shown(item)}")
        values.append(open_there(i, item, budget) if is_name(item) else item)
    sizes = [math.nan] * len(values)
    weights: Chunks | None = None
    if isinstance(sample_weight, (list, tuple)):
        if len(sample_weight) != len(values):
            raise ParameterError(
                f"sample_weight must be a list of {len(values)} arrays, one per partition, got "
                f"{len(sample_weight)}"
            )
        hold = delayed.delayed(np.asarray, pure=False)
        weights = Chunks(concatenated([hold(each) for each in sample_weight], sizes, "weights"))
    elif sample_weight is not None:
        weights = weights_of(sample_weight, sizes)
    return Partitions(Chunks(concatenated(values, sizes, "rows")), weights, sizes, None)


def opened_here(partition: int, path: Any, budget: bool | int = False) -> Any:
    """Open the file of a partition, on its worker; decode it if the rows fit into the budget."""
    with naming(partition):
        source = open_rows(path)
        if source is None or budget is False:
            return source
        return decoded(source, half_of_memory() if budget is True else budget)


def half_of_memory() -> int:
    """Return half of the memory limit of this worker, or the budget of a local fit if there is no limit."""
    limit = memory_limit()
    return memory("persist", "1GB") if limit is None else limit // 2


def memory_limit() -> int | None:
    """Return the memory limit of this worker, or None if it has no limit."""
    try:
        return library("distributed").get_worker().memory_manager.memory_limit or None
    except ValueError:
        # Another scheduler of Dask.
        return None


def refuse_text(header: Any) -> None:
    """Raise `ValueError` if the frame of Dask with this header has columns of text; the error names them."""
    # Columns of objects may hold vectors; the workers look at their values.
    kinds = zip(header.columns, header.dtypes, strict=True)
    text = [str(name) for name, kind in kinds if str(kind).startswith(("string", "datetime"))]
    if text:
        raise ValueError(
            f"X must hold columns of numbers, got other values in {listed(text)}. Choose columns of numbers "
            "with X[[name, ...]]."
        )


def weights_of(sample_weight: Any, sizes: list[float]) -> Chunks:
    """Return weights with the partitions of the rows."""
    array = library("dask.array")
    given = sample_weight.to_dask_array() if hasattr(sample_weight, "to_dask_array") else sample_weight
    unknown = any(math.isnan(size) for size in sizes)
    if unknown and not isinstance(given, array.Array):
        raise ParameterError(
            f"sample_weight must be a dask array with the {len(sizes)} partitions of X, whose sizes are not "
            f"known, got {shown(sample_weight)}"
        )
    given = array.asarray(given)
    if given.ndim != 1:
        raise ParameterError(f"sample_weight must be 1-D, one weight per row, got {given.ndim} dimensions")
    if unknown or any(math.isnan(size) for size in given.chunks[0]):
        if given.numblocks[0] != len(sizes):
            raise ParameterError(
                f"sample_weight must have the {len(sizes)} partitions of X, got {given.numblocks[0]}"
            )
        return Chunks(given)
    if given.shape[0] != int(sum(sizes)):
        raise ParameterError(
            f"sample_weight must have {int(sum(sizes))} values, one per row, got {given.shape[0]}"
        )
    return Chunks(given.rechunk((tuple(int(size) for size in sizes),)))


def concatenated(
    values: Iterable[Any], sizes: list[Any], name: str, dtype: Any = object, width: int | None = None
) -> Any:
    """Return the values of all partitions, futures or delayed values, as one dask array."""
    array, base = library("dask.array"), library("dask.base")
    columns = () if width is None else (width,)
    pieces = [
        array.from_delayed(each, shape=(size, *columns), dtype=dtype)
        for each, size in zip(values, sizes, strict=True)
    ]
    # `dask.array.concatenate` drops empty chunks.
    name = f"{name}-" + base.tokenize([piece.name for piece in pieces])
    zeros = (0,) * (1 + len(columns))
    aliases = {(name, i, *zeros[1:]): (piece.name, *zeros) for i, piece in enumerate(pieces)}
    graph = library("dask.highlevelgraph").HighLevelGraph.from_collections(name, aliases, dependencies=pieces)
    return array.Array(graph, name, (tuple(sizes), *((size,) for size in columns)), dtype=dtype)


def collected(task: RowPass, values: list[Any], sizes: list[Any], frame: Any) -> Any:
    """Return results of the partitions, futures or delayed values, in an array or like `frame`."""
    if frame is None:
        return concatenated(values, sizes, task.column, task.dtype, task.width)
    meta = frame_of(
        task, np.zeros((0,) if task.width is None else (0, task.width), task.dtype), frame._meta.index
    )
    return library("dask.dataframe").from_delayed(
        values, meta=meta, divisions=frame.divisions, prefix=task.column, verify_meta=False
    )


def frame_of(task: RowPass, values: npt.NDArray[Any], index: Any) -> Any:
    """Return labels as a series, or distances as a data frame."""
    pandas = library("pandas")
    if task.width is None:
        return pandas.Series(values, index=index, name=task.column)
    return pandas.DataFrame(values, index=index, columns=[f"kmeans{i}" for i in range(task.width)])
