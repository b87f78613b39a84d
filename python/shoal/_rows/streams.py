"""Streams of blocks: an iterator, or a callable that returns a fresh one for each pass."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

#: Blocks of rows, in order.
Blocks = Iterator[npt.NDArray[Any]]
#: Converts a block of any kind to an array of numbers.
AsRows = Callable[[Any], npt.NDArray[Any]]

READ_ONCE = (
    "this iterator can be read only once, and was already read: pass a callable that returns a fresh iterator"
)


def is_once(X: Any) -> bool:
    """Whether X is an iterator."""
    return hasattr(X, "__next__")


def is_stream(X: Any) -> bool:
    """Whether X is an iterator, or a callable that returns one."""
    return is_once(X) or callable(X)


def refuse_once(X: Any, who: str) -> None:
    """Raise `ValueError` if X can be read only once: `who` needs several passes."""
    if is_once(X) or getattr(X, "access", None) == "once":
        raise ValueError(
            f"{who} reads its rows more than once, which an iterator does not allow: pass a callable that "
            "returns a fresh iterator, or write the rows to a .npy file with shoal.write and pass its path"
        )


class Single:
    """Blocks of a single pass."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks: Blocks | None = blocks

    def __call__(self) -> Blocks:
        """Return the blocks; a second call raises `ValueError`."""
        blocks, self._blocks = self._blocks, None
        if blocks is None:
            raise ValueError(READ_ONCE)
        return blocks


class Fresh:
    """Calls a callable of the user for each pass; raises if it returns the same iterator twice."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._last: Callable[[], Any] = lambda: None

    def __call__(self) -> Iterator[Any]:
        """Return an iterator for another pass."""
        made = self._make()
        if not isinstance(made, Iterable):
            raise TypeError(f"X() must return an iterator of blocks of rows, got {type(made).__name__}")
        blocks = iter(made)
        if blocks is self._last():
            raise ValueError(
                "X() returned the same iterator for two passes: it must return a fresh one each time, which "
                "begins at the first row"
            )
        try:
            self._last = weakref.ref(blocks)
        except TypeError:
            self._last = lambda: blocks
        return blocks


def converted(given: Iterator[Any], as_rows: AsRows) -> Generator[npt.NDArray[Any]]:
    """Convert blocks to arrays that the caller owns; close a generator at the end."""
    try:
        for i, block in enumerate(given):
            try:
                rows = as_rows(block)
            except TypeError as error:
                raise TypeError(f"block {i} of X: {error}") from error
            except ValueError as error:
                raise ValueError(f"block {i} of X: {error}") from error
            # Copied: the iterator may reuse the memory for the next block, which is prefetched.
            yield np.array(rows)
    finally:
        if isinstance(given, Generator):
            given.close()


def begun(blocks: Generator[npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], Generator[npt.NDArray[Any]]]:
    """Return the first block with rows, and an iterator over all blocks including those read so far."""
    read: list[npt.NDArray[Any]] = []
    for block in blocks:
        read.append(block)
        if len(block):
            return block, put_back(read, blocks)
    raise ValueError(f"X must have at least 1 row, got {len(read)} empty blocks")


def put_back(
    read: list[npt.NDArray[Any]], blocks: Generator[npt.NDArray[Any]]
) -> Generator[npt.NDArray[Any]]:
    """Yield the blocks read so far, then the rest."""
    try:
        while read:
            yield read.pop(0)
        yield from blocks
    finally:
        blocks.close()


class Passes:
    """The passes of a stream. Checks width, type and number of rows of each.

    All code that reads a stream, in Python or Rust, reads it through this class.

    Parameters
    ----------
    make : callable
        Returns the blocks of one pass.
    cols, dtype
        Number of columns and type of every block that has rows.
    rows : int or None
        Number of rows of every pass, if known.
    name : str
        Name of the rows in messages.
    """

    def __init__(
        self,
        make: Callable[[], Blocks],
        cols: int,
        dtype: np.dtype[Any],
        rows: int | None,
        name: str = "X",
    ) -> None:
        self._make, self._cols, self._dtype, self._rows = make, cols, dtype, rows
        self._name = name
        # Rows of the first complete pass.
        self._found: int | None = None

    def __call__(self) -> Generator[npt.NDArray[Any]]:
        """Begin a pass."""
        return self._pass(self._make())

    def _pass(self, blocks: Blocks) -> Generator[npt.NDArray[Any]]:
        cols, dtype, rows = self._cols, self._dtype, self._rows
        found = 0
        try:
            for i, block in enumerate(blocks):
                # Blocks without rows may have any width.
                if not len(block):
                    continue
                if block.shape[1] != cols:
                    raise ValueError(f"block {i} of X has {block.shape[1]} columns, the first one has {cols}")
                if block.dtype != dtype:
                    raise ValueError(
                        f"block {i} of X holds {block.dtype}, the first one {dtype}: make them one type"
                    )
                found += len(block)
                if rows is not None and found > rows:
                    raise ValueError(f"{self._name} gave at least {found} rows, where {rows} were announced")
                yield block
        finally:
            if isinstance(blocks, Generator):
                blocks.close()
        if rows is not None and found != rows:
            raise ValueError(f"{self._name} gave {found} rows, where {rows} were announced")
        before = self._found = found if self._found is None else self._found
        if found != before:
            raise ValueError(
                f"{self._name} gave {before} rows in one pass and {found} in another: the callable must "
                "return a fresh iterator over the same rows each time"
            )


def recut(blocks: Blocks, rows: int) -> Generator[npt.NDArray[Any]]:
    """Yield the same rows in blocks of `rows` each; the last block may have fewer."""
    waiting: list[npt.NDArray[Any]] = []
    found = 0
    for block in blocks:
        while found + len(block) >= rows:
            head, block = block[: rows - found], block[rows - found :]
            yield np.concatenate([*waiting, head]) if waiting else head
            waiting, found = [], 0
        if len(block):
            waiting.append(block)
            found += len(block)
    if waiting:
        yield np.concatenate(waiting)
