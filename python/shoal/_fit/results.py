"""One value for every row, as rows come: into an array of the caller, into a file, or into memory."""

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

#: Rows that are worked on together, of a source that could be read as a whole.
PART_ROWS = 1 << 20
#: What the values are called in a file that has names for its columns.
COLUMNS = {"out": "label", "distances": "distance"}


class Results(ABC):
    """Where values go, in row order."""

    @abstractmethod
    def expect(self, rows: int) -> None:
        """Prepare for so many values, or refuse them."""

    @abstractmethod
    def put(self, values: npt.NDArray[Any]) -> None:
        """Take the next values."""

    def prepare(self) -> None:  # noqa: B027 - optional: for outputs whose end may fail
        """Do all that may fail, but change no file that is there."""

    @abstractmethod
    def finish(self) -> npt.NDArray[Any]:
        """Give all of them."""

    def close(self) -> None:  # noqa: B027 - whoever has something to let go of
        """Let go of what was not finished."""

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


class InMemory(Results):
    """Values in a new array."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._parts = [np.empty(0, dtype=dtype)]

    def expect(self, rows: int) -> None:
        """Any number will do."""

    def put(self, values: npt.NDArray[Any]) -> None:
        """Keep them."""
        self._parts.append(values)

    def finish(self) -> npt.NDArray[Any]:
        """Give one array."""
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
        """Refuse any other number than there is room for."""
        if rows != len(self._array):
            raise ValueError(f"{self._name} has {len(self._array)} values, X has {rows} rows")

    def put(self, values: npt.NDArray[Any]) -> None:
        """Copy them."""
        end = self._filled + len(values)
        if end > len(self._array):
            raise ValueError(f"{self._name} has {len(self._array)} values, X has more rows")
        self._array[self._filled : end] = values
        self._filled = end

    def prepare(self) -> None:
        """Refuse an array that is not full."""
        self.expect(self._filled)

    def finish(self) -> npt.NDArray[Any]:
        """Give the array."""
        return self._array


class InFile(Results):
    """Values in a file, which appears whole or not at all, and a memory map of them if they are `read`."""

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
        """Write them."""
        self._output.append(values)
        if self._copy is not None:
            self._copy.append(values)

    def prepare(self) -> None:
        """Put the values on the disk, under no name yet."""
        self._output.prepare()
        if self._copy is not None:
            self._values = self._copy.finish()

    def finish(self) -> npt.NDArray[Any]:
        """Give the file its name, and map the values."""
        self._output.finish()
        return np.load(self._path, mmap_mode="r") if self._map_itself else self._values

    def close(self) -> None:
        """Leave nothing of an unfinished file."""
        self._opened.close()


def results(name: str, given: Any, dtype: npt.DTypeLike) -> Results:
    """Say where values go that the parameter `name` asks for."""
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
    """Refuse files and arrays for results that would replace the rows, or each other."""
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
    """Label rows with the centers of `model`, block by block; with `distances` those to the center too."""
    refuse_mixed(X, out, distances)
    with ExitStack() as stack:
        # Outputs that cannot be written are refused before a row is read.
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
            found, apart = model._labelled(part, first, sq_roots is not None)
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
        # Both are whole on the disk before one of them replaces an older file.
        made = [labels] if sq_roots is None else [labels, sq_roots]
        for each in made:
            each.prepare()
        found, *_ = [each.finish() for each in made]
    return found
