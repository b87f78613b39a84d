"""Results with one value or vector per row: in memory, in an array of the caller, or in a file."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal import _core
from shoal._checks import params as _params
from shoal._checks.words import alternatives
from shoal._core import Source
from shoal._files.outputs import VALUES, VECTORS, Mapped, output
from shoal._files.staged import Name, Staged, is_name
from shoal._rows.arrays import source_of_values
from shoal._rows.overwriting import file_read_by, is_same_file, refuse_over
from shoal._rows.source import DataSource
from shoal._rows.zeros import count_zeros, warn_of_zeros
from shoal.formats import table_of

#: Rows per part of a source with random access.
PART_ROWS = 1 << 20
#: Approximate size of a part of the distances to all centers.
PART_BYTES = 64 << 20


class Results(Staged, ABC):
    """A destination for values in row order."""

    def expect(self, rows: int) -> None:
        """Raise if this number of values does not fit."""

    @abstractmethod
    def put(self, values: npt.NDArray[Any]) -> None:
        """Store the next values."""

    @abstractmethod
    def finish(self) -> npt.NDArray[Any]:
        """Return all values."""


class InMemory(Results):
    """Values in a new array."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._parts = [np.empty(0, dtype=dtype)]

    def put(self, values: npt.NDArray[Any]) -> None:
        self._parts.append(values)

    def finish(self) -> npt.NDArray[Any]:
        return np.concatenate(self._parts)


class InArray(Results):
    """Values in an array of the caller."""

    def __init__(
        self, name: str, array: npt.NDArray[Any], dtype: npt.DTypeLike, cols: int | None = None
    ) -> None:
        ndim = 1 if cols is None else 2
        if array.dtype != dtype or array.ndim != ndim or not array.flags.writeable:
            kind = "" if array.flags.writeable else "read-only "
            raise ValueError(
                f"{name} must be a writable {ndim}-D array of {np.dtype(dtype).name}, "
                f"got a {kind}{array.ndim}-D one of {array.dtype.name}"
            )
        if cols is not None and array.shape[1] != cols:
            raise ValueError(f"{name} must have one column per cluster, {cols} columns, got {array.shape[1]}")
        self._name, self._array = name, array
        self._filled = 0

    def _size(self) -> str:
        return f"{len(self._array)} {'values' if self._array.ndim == 1 else 'rows'}"

    def expect(self, rows: int) -> None:
        if rows != len(self._array):
            raise ValueError(f"{self._name} has {self._size()}, X has {rows} rows")

    def put(self, values: npt.NDArray[Any]) -> None:
        end = self._filled + len(values)
        if end > len(self._array):
            raise ValueError(f"{self._name} has {self._size()}, X has more rows")
        self._array[self._filled : end] = values
        self._filled = end

    def prepare(self) -> None:
        self.expect(self._filled)

    def finish(self) -> npt.NDArray[Any]:
        return self._array


class InFile(Results):
    """Values in a file; with `read`, also a memory map of them."""

    def __init__(
        self,
        name: str,
        path: Name,
        dtype: npt.DTypeLike,
        cols: int | None = None,
        *,
        column: str,
        read: bool,
    ) -> None:
        with ExitStack() as stack:
            self._path = Path(os.fsdecode(path))
            self._output = stack.enter_context(output(name, path, column, dtype, cols))
            self._values = np.empty(0, dtype=dtype)
            # Only an .npy file can be mapped as it is.
            self._map_itself = read and self._path.suffix.lower() == ".npy"
            self._copy = Mapped(self._path, dtype, cols) if read and not self._map_itself else None
            if self._copy is not None:
                stack.callback(self._copy.close)
            self._opened = stack.pop_all()

    def put(self, values: npt.NDArray[Any]) -> None:
        self._output.append(values)
        if self._copy is not None:
            self._copy.append(values)

    def prepare(self) -> None:
        self._output.prepare()
        if self._copy is not None:
            self._values = self._copy.finish()

    def finish(self) -> npt.NDArray[Any]:
        self._output.finish()
        return np.load(self._path, mmap_mode="r") if self._map_itself else self._values

    def close(self) -> None:
        self._opened.close()


def results(
    name: str, given: Any, dtype: npt.DTypeLike, cols: int | None = None, *, column: str = "label"
) -> Results:
    """Open the destination `given` for the parameter `name`; with `cols`, for vectors.

    `column` is the name of the column in a file that has columns.
    """
    if given is None:
        return InMemory(dtype)
    if is_name(given):
        # Distances to the own centers are only written, never returned.
        return InFile(name, given, dtype, cols, column=column, read=name == "out")
    if isinstance(given, np.ndarray):
        return InArray(name, given, dtype, cols)
    formats = VALUES if cols is None else VECTORS
    raise TypeError(
        f"{name} must be an array, the path of a .npy file or None, got {_params.shown(given)}; a path may "
        f"end in {alternatives(formats[1:])} too"
    )


def refuse_mixed(X: Any, out: Any, distances: Any) -> None:
    """Raise if results would overwrite the rows or each other, in files or arrays."""
    names = {
        argument: os.fsdecode(given)
        for argument, given in (("out", out), ("distances", distances))
        if is_name(given)
    }
    for argument, name in names.items():
        refuse_over(X, argument, name)
    arrays = {"X": X, "out": out, "distances": distances}
    for (first, a), (second, b) in combinations(arrays.items(), 2):
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.shares_memory(a, b):
            raise ValueError(
                f"{second} shares memory with {first}: what is written would change what is read"
            )
    # One of them may be an array that maps the file.
    one, other = file_read_by(out), file_read_by(distances)
    if names and one is not None and other is not None and is_same_file(one, other):
        raise ValueError(f"out and distances are the same file, {next(iter(names.values()))!r}")


@dataclass(frozen=True)
class LabeledPart:
    """Consecutive rows that were labeled; `first` is the number of the first row.

    `distances` are those of the rows to their centers. They and `rows` are None unless a taker needs them.
    """

    first: int
    labels: npt.NDArray[np.int32]
    distances: npt.NDArray[np.float64] | None
    rows: Any


class Taker(Staged, ABC):
    """A result of a labeling pass, which takes the labeled rows part by part.

    `distances` and `rows` say whether parts must have them; `most_rows` is the largest number of rows per
    part.
    """

    distances = rows = False
    most_rows = PART_ROWS

    def begin(self, source: DataSource) -> None:
        """Prepare for the rows of a source; raise if they do not fit."""

    @abstractmethod
    def take(self, part: LabeledPart) -> None:
        """Take the next rows."""


class Values(Taker):
    """Stores the labels, or the distances, in a destination."""

    def __init__(self, to: Results, *, distances: bool) -> None:
        self._target = self._to = to
        self.distances, self.most_rows = distances, PART_ROWS
        self.found: Any = None

    def begin(self, source: DataSource) -> None:
        n = source.shape[0]
        if n is not None:
            self._to.expect(n)

    def take(self, part: LabeledPart) -> None:
        values = part.distances if self.distances else part.labels
        assert values is not None
        self._to.put(values)

    def finish(self) -> None:
        self.found = self._to.finish()


def pieces(source: DataSource, most: int, *, rows: bool = False) -> Iterator[tuple[Source, int, Any]]:
    """Yield parts of a source of at most `most` rows, with the number of their first row.

    With `rows`, also yield their values; otherwise rows with random access are read only by the consumer.
    """
    n = source.shape[0]
    if source.access == "random" and not rows:
        assert n is not None
        for start in range(0, n, most):
            yield source._source.slice(start, min(n, start + most)), start, None
        return
    first = 0
    with source._prefetched() as blocks:
        for block in blocks:
            whole, size = source_of_values(block), block.shape[0]
            for start in range(0, size, most):
                stop = min(size, start + most)
                part = whole if stop - start == size else whole.slice(start, stop)
                yield part, first + start, block[start:stop] if rows else None
            first += size


def open_checked(model: Any, X: Any) -> DataSource:
    """Open rows, checked as the model checks them."""
    rows = model._checked(X, reset=False)
    if isinstance(rows, DataSource):
        return rows
    return DataSource(source_of_values(rows), table=partial(table_of, X, None))


def label_rows(model: Any, X: Any, takers: Sequence[Taker]) -> None:
    """Label rows with `model` in one pass, part by part, for all takers."""
    source = open_checked(model, X)
    for taker in takers:
        taker.begin(source)
    wanted = any(taker.distances for taker in takers)
    rows = any(taker.rows for taker in takers)
    n_zeros = 0
    for piece, first, values in pieces(source, min(taker.most_rows for taker in takers), rows=rows):
        seen = piece.seen_by(model._metric_of_rows)
        labels, distances = model._labeled(seen, first, wanted)
        n_zeros += count_zeros(seen, model._metric_of_rows)
        part = LabeledPart(first=first, labels=labels, distances=distances, rows=values)
        for taker in takers:
            taker.take(part)
    # All results are complete on disk before any of them replaces an existing file.
    for taker in takers:
        taker.prepare()
    for taker in takers:
        taker.finish()
    warn_of_zeros(n_zeros)


def label_into(model: Any, X: Any, out: Any, distances: Any) -> npt.NDArray[np.int32]:
    """Label rows with the centers of `model`, block by block, to `out`; distances go to `distances`."""
    refuse_mixed(X, out, distances)
    with ExitStack() as stack:
        # Raises for outputs that cannot be written before any row is read.
        labels = Values(results("out", out, np.int32), distances=False)
        takers: list[Taker] = [stack.enter_context(labels)]
        if distances is not None:
            to = results("distances", distances, np.float64, column="distance")
            takers.append(stack.enter_context(Values(to, distances=True)))
        label_rows(model, X, takers)
        found: npt.NDArray[np.int32] = labels.found
        return found


def transform_into(model: Any, X: Any, out: Any) -> npt.NDArray[Any]:
    """Compute the distances of rows to all centers of `model`, block by block, to `out`."""
    refuse_mixed(X, out, None)
    centers, threads = model.cluster_centers_, model._threads
    with results("out", out, centers.dtype, len(centers), column="distances") as to:
        source = open_checked(model, X)
        n = source.shape[0]
        if n is not None:
            to.expect(n)
        n_zeros = 0
        for piece, first, _ in pieces(source, max(1, PART_BYTES // centers[:, 0].nbytes)):
            seen = piece.seen_by(model.metric)
            try:
                distances = _core.transform(seen, centers, model.metric, threads)
            except ValueError:
                # This error numbers rows from the first row of the part, `predict` from the first of X.
                _core.predict(seen, centers, model.metric, threads, first)
                raise
            n_zeros += count_zeros(seen, model.metric)
            to.put(distances)
        to.prepare()
        made = to.finish()
    warn_of_zeros(n_zeros)
    return made
