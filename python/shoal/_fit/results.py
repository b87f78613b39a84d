"""Results with one value per row: in memory, in an array of the caller, or in a file."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shoal._common import params as _params
from shoal._common.files import Name, is_name
from shoal._common.outputs import Mapped, output
from shoal._core import Source
from shoal._rows.arrays import array_source, source_of_values
from shoal._rows.overwriting import file_of, is_same_file, refuse_over
from shoal._rows.source import DataSource

#: Rows per part of a source with random access.
PART_ROWS = 1 << 20
#: Column names in files that have them, by parameter.
COLUMNS = {"out": "label", "distances": "distance"}


class Results(ABC):
    """A destination for values in row order."""

    @abstractmethod
    def expect(self, rows: int) -> None:
        """Prepare for a number of values; raise if they do not fit."""

    @abstractmethod
    def put(self, values: npt.NDArray[Any]) -> None:
        """Store the next values."""

    def prepare(self) -> None:  # noqa: B027 - optional
        """Do everything that may fail, without replacing an existing file."""

    @abstractmethod
    def finish(self) -> npt.NDArray[Any]:
        """Return all values."""

    def close(self) -> None:  # noqa: B027 - optional
        """Release what was not finished."""

    def __enter__(self) -> Self:
        """Return the destination."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the destination."""
        self.close()


class InMemory(Results):
    """Values in a new array."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._parts = [np.empty(0, dtype=dtype)]

    def expect(self, rows: int) -> None:
        """Any number will do."""

    def put(self, values: npt.NDArray[Any]) -> None:
        """Store the next values."""
        self._parts.append(values)

    def finish(self) -> npt.NDArray[Any]:
        """Return all values as one array."""
        return np.concatenate(self._parts)


class InArray(Results):
    """Values in an array of the caller."""

    def __init__(self, name: str, array: npt.NDArray[Any], dtype: npt.DTypeLike) -> None:
        if array.dtype != dtype or array.ndim != 1 or not array.flags.writeable:
            kind = "" if array.flags.writeable else "read-only "
            raise ValueError(
                f"{name} must be a writable 1-D array of {np.dtype(dtype).name}, "
                f"got a {kind}{array.ndim}-D one of {array.dtype.name}"
            )
        self._name, self._array = name, array
        self._filled = 0

    def expect(self, rows: int) -> None:
        """Raise unless the array has as many values."""
        if rows != len(self._array):
            raise ValueError(f"{self._name} has {len(self._array)} values, X has {rows} rows")

    def put(self, values: npt.NDArray[Any]) -> None:
        """Copy the next values."""
        end = self._filled + len(values)
        if end > len(self._array):
            raise ValueError(f"{self._name} has {len(self._array)} values, X has more rows")
        self._array[self._filled : end] = values
        self._filled = end

    def prepare(self) -> None:
        """Raise unless the array is full."""
        self.expect(self._filled)

    def finish(self) -> npt.NDArray[Any]:
        """Return the array."""
        return self._array


class InFile(Results):
    """Values in a file; with `read`, also a memory map of them."""

    def __init__(self, name: str, path: Name, dtype: npt.DTypeLike, *, read: bool) -> None:
        with ExitStack() as stack:
            self._path = Path(os.fsdecode(path))
            self._output = stack.enter_context(output(name, path, COLUMNS[name], dtype))
            self._values = np.empty(0, dtype=dtype)
            # Only an .npy file can be mapped as it is.
            self._map_itself = read and self._path.suffix.lower() == ".npy"
            self._copy = Mapped(self._path, dtype) if read and not self._map_itself else None
            if self._copy is not None:
                stack.callback(self._copy.close)
            self._opened = stack.pop_all()

    def expect(self, rows: int) -> None:
        """Any number will do."""

    def put(self, values: npt.NDArray[Any]) -> None:
        """Write the next values."""
        self._output.append(values)
        if self._copy is not None:
            self._copy.append(values)

    def prepare(self) -> None:
        """Flush the values to disk; only the rename is left."""
        self._output.prepare()
        if self._copy is not None:
            self._values = self._copy.finish()

    def finish(self) -> npt.NDArray[Any]:
        """Rename the file and return the memory map."""
        self._output.finish()
        return np.load(self._path, mmap_mode="r") if self._map_itself else self._values

    def close(self) -> None:
        """Remove an unfinished file."""
        self._opened.close()


def results(name: str, given: Any, dtype: npt.DTypeLike) -> Results:
    """Open the destination `given` for the parameter `name`."""
    if given is None:
        return InMemory(dtype)
    if is_name(given):
        # Distances are only written, never returned.
        return InFile(name, given, dtype, read=name == "out")
    if isinstance(given, np.ndarray):
        return InArray(name, given, dtype)
    raise TypeError(
        f"{name} must be an array, the path of a .npy file or None, got {_params.shown(given)}; a path may "
        "end in .csv, .txt or .parquet too"
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
    one, other = file_of(out), file_of(distances)
    if names and one is not None and other is not None and is_same_file(one, other):
        raise ValueError(f"out and distances are the same file, {next(iter(names.values()))!r}")


def label_into(model: Any, X: Any, out: Any, distances: Any) -> npt.NDArray[np.int32]:
    """Label rows with the centers of `model`, block by block, to `out`; distances go to `distances`."""
    refuse_mixed(X, out, distances)
    with ExitStack() as stack:
        # Raises for outputs that cannot be written before any row is read.
        labels = stack.enter_context(results("out", out, np.int32))
        sq_roots = None
        if distances is not None:
            sq_roots = stack.enter_context(results("distances", distances, np.float64))
        rows = model._checked(X, reset=False)
        source = rows if isinstance(rows, DataSource) else DataSource(source_of_values(rows))
        n = source.shape[0]
        if n is not None:
            labels.expect(n)
            if sq_roots is not None:
                sq_roots.expect(n)

        def work(part: Source, first: int) -> None:
            found, apart = model._labeled(part, first, sq_roots is not None)
            labels.put(found)
            if sq_roots is not None:
                sq_roots.put(apart)

        if source.access == "random":
            assert n is not None
            for start in range(0, n, PART_ROWS):
                work(source._source.slice(start, min(n, start + PART_ROWS)), start)
        else:
            first = 0
            with source._prefetched() as blocks:
                for block in blocks:
                    work(array_source(block), first)
                    first += len(block)
        # Both are complete on disk before either replaces an existing file.
        made = [labels] if sq_roots is None else [labels, sq_roots]
        for each in made:
            each.prepare()
        found, *_ = [each.finish() for each in made]
    return found
