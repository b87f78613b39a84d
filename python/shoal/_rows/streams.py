"""Streams of blocks: an iterator, or a callable that returns a fresh one for each pass."""

from __future__ import annotations

import itertools
import weakref
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._checks.marked import MarkedError, mark
from shoal._checks.params import shown
from shoal.formats.pipe import STDIN, is_file

#: Blocks of rows, in order.
Blocks = Iterator[npt.NDArray[Any]]
#: Parts of a tuple or list that are checked for arrays.
MOST_PARTS = 16
#: One row in this many enters the fingerprint of a pass.
EVERY = 64
#: Converts a block of any kind to an array of numbers.
AsRows = Callable[[Any], npt.NDArray[Any]]

READ_ONCE = (
    "this iterator can be read only once, and was already read: pass a callable that returns a fresh iterator"
)

OTHER_ROWS = (
    "X gave other rows, or another order of rows, in one pass than in another: it must give the same rows in "
    "the same order each time. For a data loader, use shuffle=False and no random augmentation; partial_fit "
    "takes any order."
)


def is_once(X: Any) -> bool:
    """Whether X is an iterator."""
    return hasattr(X, "__next__")


def is_stream(X: Any) -> bool:
    """Whether X is an iterator, a callable that returns one, or an object that can be iterated repeatedly."""
    return is_once(X) or callable(X) or is_reiterable(X)


#: Attributes of array-likes, frames and containers without an order of blocks.
NO_BLOCKS = (
    "__array__",
    "__array_interface__",
    "__array_struct__",
    "__arrow_c_array__",
    "__arrow_c_stream__",
    "__buffer__",
    "__dataframe__",
    "__dlpack__",
    "shape",
)


def is_reiterable(X: Any) -> bool:
    """Whether X is an object whose ``__iter__`` begins again each time, and no array-like.

    A ``DataLoader`` of PyTorch is one, and a list of arrays with two axes. Other lists, and all other objects
    with a length and items by number, are array-likes for NumPy: lists of rows.
    """
    if isinstance(X, list):
        return bool(X) and n_axes(X[0]) == 2
    if not hasattr(type(X), "__iter__") or isinstance(X, (str, bytes, Mapping, Set)):
        return False
    is_sequence = hasattr(type(X), "__len__") and hasattr(type(X), "__getitem__")
    return not is_sequence and not any(hasattr(X, name) for name in NO_BLOCKS)


def n_axes(part: Any) -> int:
    """Return the number of axes of an array or tensor; 0 for any other object."""
    shape = getattr(part, "shape", None)
    return len(shape) if isinstance(shape, tuple) else 0


def select_features(item: Any) -> Any:
    """Return the rows of one item of a stream: the item, or the only array of a tuple or list.

    Raises `TypeError` if the item is a dictionary, or holds several arrays, such as features and targets.
    """
    if isinstance(item, Mapping):
        keys = ", ".join(shown(key) for key in itertools.islice(item, 5))
        raise TypeError(
            f"must be an array of rows, got a dictionary of {keys}. Select the features: "
            'X = lambda: (batch["features"] for batch in loader).'
        )
    # A list of rows, or of numbers, has no array with two axes.
    if not isinstance(item, (tuple, list)) or not any(n_axes(part) >= 2 for part in item[:MOST_PARTS]):
        return item
    if len(item) == 1:
        return item[0]
    raise TypeError(
        f"must be an array of rows, got {len(item)} arrays. Select the features: "
        "X = lambda: (x for x, *_ in loader)."
    )


def refuse_once(X: Any, who: str) -> None:
    """Raise `ValueError` if X can be read only once: `who` needs several passes."""
    if is_file(X) or getattr(X, "_name", None) == STDIN:
        raise MarkedError(
            f"{mark(who)} reads its rows more than once, which a pipe or an open file does not allow: save "
            "the rows to a file, and pass its path"
        )
    if is_once(X) or getattr(X, "access", None) == "once":
        raise ValueError(
            f"{who} reads its rows more than once, which an iterator does not allow: pass a callable that "
            "returns a fresh iterator, or write the rows to a .npy file with shoal.write and pass its path. "
            "Instead of an iterator of paths, pass a list of paths"
        )


class Single:
    """Blocks of a single pass."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks: Blocks | None = blocks

    def __call__(self) -> Blocks:
        blocks, self._blocks = self._blocks, None
        if blocks is None:
            raise ValueError(READ_ONCE)
        return blocks


class Fresh:
    """Calls a callable of the user for each pass; raises if it returns the same iterator twice.

    Messages name the call `called`.
    """

    def __init__(self, make: Callable[[], Any], called: str = "X()") -> None:
        self._make, self._called = make, called
        self._last: Callable[[], Any] = lambda: None

    def __call__(self) -> Iterator[Any]:
        """Return an iterator for another pass."""
        made = self._make()
        if not isinstance(made, Iterable):
            raise TypeError(f"X() must return an iterator of blocks of rows, got {type(made).__name__}")
        blocks = iter(made)
        if blocks is self._last():
            raise ValueError(
                f"{self._called} returned the same iterator for two passes: it must return a fresh one each "
                "time, which begins at the first row"
            )
        try:
            self._last = weakref.ref(blocks)
        except TypeError:
            self._last = lambda: blocks
        return blocks


def close_blocks(blocks: Iterator[Any]) -> None:
    """Close an iterator of blocks if it is a generator; others have nothing to close."""
    if isinstance(blocks, Generator):
        blocks.close()


def convert_blocks(given: Iterator[Any], as_rows: AsRows) -> Generator[npt.NDArray[Any]]:
    """Convert blocks to arrays that the caller owns; close a generator at the end."""
    try:
        for i, block in enumerate(given):
            try:
                rows = as_rows(select_features(block))
            except TypeError as error:
                raise TypeError(f"block {i} of X: {error}") from error
            except ValueError as error:
                raise ValueError(f"block {i} of X: {error}") from error
            # Copied: the iterator may reuse the memory for the next block, which is prefetched.
            yield np.array(rows)
    finally:
        close_blocks(given)


def split_first(blocks: Generator[npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], Generator[npt.NDArray[Any]]]:
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


class Print:
    """A fingerprint of the rows of a pass, of every `EVERY`-th row, however they are cut into blocks."""

    def __init__(self) -> None:
        self._rows = self._sum = 0
        #: Fingerprint of the first row; None before it.
        self.first: int | None = None

    def add(self, block: npt.NDArray[Any]) -> None:
        """Take the next block, which is not empty."""
        if self.first is None:
            self.first = zlib.crc32(block[:1].tobytes())
        self._sum = zlib.crc32(block[-self._rows % EVERY :: EVERY].tobytes(), self._sum)
        self._rows += len(block)

    def all(self) -> tuple[int, int]:
        """Return the number of rows and their fingerprint."""
        return self._rows, self._sum


class Passes:
    """The passes of a stream. Checks width, type and number of rows of each.

    For rows that a program of the user makes, `first` holds the first rows. Of every pass, the first row and
    a sample of the others must then come in the same order.

    All code that reads a stream, in Python or Rust, reads it through this class.
    """

    def __init__(
        self,
        make: Callable[[], Blocks],
        cols: int,
        dtype: np.dtype[Any],
        rows: int | None,
        name: str = "X",
        first: npt.NDArray[Any] | None = None,
    ) -> None:
        self._make, self._cols, self._dtype, self._rows = make, cols, dtype, rows
        self._name = name
        # Rows of the first complete pass.
        self._found: int | None = None
        # Fingerprints of the first row, and of the first complete pass in order.
        self._first: int | None = None
        self._printed: tuple[int, int] | None = None
        self._in_order = first is not None
        if first is not None:
            begin = Print()
            begin.add(first[:1])
            self._first = begin.first

    def __call__(self) -> Generator[npt.NDArray[Any]]:
        return self._pass(self._make(), self._in_order)

    @contextmanager
    def in_any_order(self) -> Generator[None]:
        """Let passes that begin within the context have another order of rows."""
        before, self._in_order = self._in_order, False
        try:
            yield
        finally:
            self._in_order = before

    def _pass(self, blocks: Blocks, in_order: bool) -> Generator[npt.NDArray[Any]]:
        cols, dtype, rows = self._cols, self._dtype, self._rows
        found, seen = 0, Print()
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
                if in_order:
                    seen.add(block)
                    if seen.first != self._first:
                        raise ValueError(OTHER_ROWS)
                found += len(block)
                if rows is not None and found > rows:
                    raise ValueError(f"{self._name} gave at least {found} rows, where {rows} were announced")
                yield block
        finally:
            close_blocks(blocks)
        if rows is not None and found != rows:
            raise ValueError(f"{self._name} gave {found} rows, where {rows} were announced")
        before = self._found = found if self._found is None else self._found
        if found != before:
            raise ValueError(
                f"{self._name} gave {before} rows in one pass and {found} in another: the callable must "
                "return a fresh iterator over the same rows each time"
            )
        if in_order:
            printed = self._printed = seen.all() if self._printed is None else self._printed
            if seen.all() != printed:
                raise ValueError(OTHER_ROWS)


def cut_blocks(blocks: Blocks, rows: int) -> Generator[npt.NDArray[Any]]:
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
