"""Transforms of rows as they are read: `DataSource.normalize`, `standardize`, `project` and `map`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from shoal._checks.params import shown, whole
from shoal._core import Source

from .arrays import array_source, native
from .bfloat16 import widened
from .prefetch import Prefetch
from .sparse import is_sparse
from .streams import Blocks, Passes, Single, close_blocks, split_first

#: Rows that `fn` is called with to find the shape and type of its result.
FIRST_ROWS = 32


class _Source(Protocol):
    """The part of `DataSource` that transforms use; its module imports this one."""

    _make: Callable[[], Blocks] | None

    @property
    def _source(self) -> Source: ...
    @property
    def shape(self) -> tuple[int | None, int]: ...
    @property
    def access(self) -> str: ...
    @property
    def sparse(self) -> bool: ...
    @property
    def sample_weight(self) -> npt.NDArray[np.float64] | None: ...
    def blocks(self, rows: int | None = None) -> Iterator[Any]: ...
    def _by(self, transform: Transform) -> Self: ...
    def _in_any_order(self) -> AbstractContextManager[None]: ...
    def __copy__(self) -> Self: ...


#: The source that a transform is applied to.
S = TypeVar("S", bound=_Source)


class Transform(ABC):
    """A transform of rows, which can be pickled and applied to other sources."""

    #: Whether columns keep their names.
    keeps_names = False

    @property
    @abstractmethod
    def name(self) -> str:
        """A participle for messages, such as ``"normalized"``."""

    @abstractmethod
    def over(self, base: _Source) -> tuple[Source, Callable[[], Blocks] | None]:
        """Return the transformed rows of `base`, and the function that makes the blocks of a stream."""


class Compiled(Transform):
    """A transform that the compiled code computes, one tile at a time."""

    @abstractmethod
    def of(self, rows: Source) -> Source:
        """Return the transformed rows."""

    def over(self, base: _Source) -> tuple[Source, Callable[[], Blocks] | None]:
        def make() -> Blocks:
            return transform_blocks(self, base.blocks())

        return self.of(base._source), None if base._make is None else make


@dataclass(frozen=True)
class Normalize(Compiled):
    """Divides rows by their norms."""

    keeps_names = True

    @property
    def name(self) -> str:
        return "normalized"

    def of(self, rows: Source) -> Source:
        return rows.normalized()


@dataclass(frozen=True)
class Standardize(Compiled):
    """Subtracts a mean from each column and divides the column by a scale."""

    mean: npt.NDArray[np.float64]
    scale: npt.NDArray[np.float64]
    keeps_names = True

    @property
    def name(self) -> str:
        return "standardized"

    def of(self, rows: Source) -> Source:
        return rows.standardized(self.mean, self.scale)


@dataclass(frozen=True)
class Project(Compiled):
    """Multiplies rows by components."""

    components: npt.NDArray[np.float64]
    mean: npt.NDArray[np.float64] | None

    @property
    def name(self) -> str:
        return f"projected to {len(self.components)} columns"

    def of(self, rows: Source) -> Source:
        return rows.projected(self.components, self.mean)


@dataclass(frozen=True)
class Map(Transform):
    """Calls a function of the user with every block.

    With `casts`, results are converted to `dtype`; otherwise they must have this type.
    """

    fn: Callable[[Any], Any]
    dim: int
    dtype: np.dtype[Any]
    casts: bool

    @property
    def name(self) -> str:
        return f"mapped by {getattr(self.fn, '__name__', type(self.fn).__name__)}"

    def over(self, base: _Source) -> tuple[Source, Callable[[], Blocks] | None]:
        once, rows = base.access == "once", base.shape[0]

        def make() -> Blocks:
            return map_blocks(self, base.blocks())

        passes = Passes(Single(make()) if once else make, self.dim, self.dtype, rows)
        stream = Source.from_stream(lambda: Prefetch(passes()), once, self.dim, self.dtype.name, rows)
        return stream, passes


def transform_blocks(by: Compiled, blocks: Blocks) -> Generator[npt.NDArray[Any]]:
    """Transform every block."""
    try:
        for block in blocks:
            yield by.of(array_source(block)).read(0, len(block))
    finally:
        close_blocks(blocks)


def map_blocks(by: Map, blocks: Blocks) -> Generator[npt.NDArray[Any]]:
    """Call the function with every block, and check its results."""
    try:
        for i, block in enumerate(blocks):
            yield result_of(by.fn, block, f"block {i}", by.dim, by.dtype if by.casts else None, by.dtype)
    finally:
        close_blocks(blocks)


def result_of(
    fn: Callable[[Any], Any],
    block: Any,
    where: str,
    dim: int | None = None,
    cast: np.dtype[Any] | None = None,
    dtype: np.dtype[Any] | None = None,
) -> npt.NDArray[Any]:
    """Call `fn` with a block, and return its result as a new array.

    The result has `dim` columns. It is converted to `cast`, if given, and must then have the type `dtype`.
    """
    # Counted before the call: the function may change the block.
    n = block.shape[0]
    found = fn(block)
    if is_sparse(found):
        raise ValueError(f"fn must return dense rows, got a sparse matrix for {where}")
    rows = native(np.asarray(found))
    if rows.ndim != 2 or rows.dtype.kind not in "biuf":
        raise ValueError(
            f"fn must return a 2-D array of numbers, got {rows.ndim}-D of {rows.dtype} for {where}"
        )
    if len(rows) != n:
        raise ValueError(f"fn must return one row per row, got {len(rows)} rows for the {n} rows of {where}")
    if dim is not None and rows.shape[1] != dim:
        raise ValueError(f"fn must return {dim} columns, got {rows.shape[1]} for {where}")
    if cast is not None and not np.can_cast(rows.dtype, cast, "same_kind"):
        raise ValueError(f"fn must return values that convert to {cast}, got {rows.dtype} for {where}")
    if cast is None and dtype is not None and rows.dtype != dtype:
        raise ValueError(
            f"fn must return {dtype}, as for the first rows, got {rows.dtype} for {where}: give dtype="
        )
    # Copied: the function may use the memory again for the next block, which is prefetched.
    return np.array(rows, dtype=cast)


def map_rows(source: S, fn: Any, dim: Any, dtype: Any) -> S:
    """Apply `fn` to every block of `source`."""
    if not callable(fn):
        raise TypeError(f"fn must be a function of a block of rows, got {shown(fn)}")
    columns = None if dim is None else whole("dim", dim, 1)
    cast = None if dtype is None else np.dtype(dtype)
    if cast is not None and (cast.kind not in "biuf" or cast.itemsize > 8):
        raise ValueError(f"dtype must be a type of real numbers of at most 64 bits, got {cast}")
    cast = None if cast is None else cast.newbyteorder("=")
    if columns is not None and cast is not None:
        return source._by(Map(fn, columns, cast, casts=True))
    base, block = read_first(source)
    first = result_of(fn, block, "the first rows", columns, cast)
    return base._by(Map(fn, first.shape[1], first.dtype, casts=cast is not None))


def read_first(source: S) -> tuple[S, Any]:
    """Return some rows of a source, and the source with all its rows."""
    rows = source.shape[0]
    if rows == 0:
        raise ValueError("the source has no rows to call fn with: give dim and dtype")
    if source._make is None:
        return source, next(iter(source.blocks(FIRST_ROWS)))
    with source._in_any_order():
        made = source._make()
    assert isinstance(made, Generator), "of `Passes`, or of a transform"
    first, blocks = split_first(made)
    if source.access == "once":
        source = source.__copy__()
        source._make = Single(blocks)
    else:
        close_blocks(blocks)
    return source, widened(first[:FIRST_ROWS].copy())


def per_column(name: str, value: Any, columns: int) -> npt.NDArray[np.float64]:
    """Return one number per column; a single number is for all of them."""
    given = np.asarray(value)
    if given.dtype.kind not in "iuf" or given.ndim > 1:
        raise ValueError(f"{name} must be a number or one number per column, got {shown(value)}")
    if given.ndim == 1 and len(given) != columns:
        raise ValueError(
            f"{name} must be a number or one number for each of {columns} columns, got {len(given)} numbers"
        )
    return np.array(np.broadcast_to(given, columns), dtype=np.float64)


def make_standardization(source: _Source, mean: Any, scale: Any) -> Standardize:
    """Make a standardization; measure a missing mean or scale in one pass."""
    columns = source.shape[1]
    means = None if mean is None else per_column("mean", mean, columns)
    scales = None if scale is None else per_column("scale", scale, columns)
    if means is not None and scales is not None:
        return Standardize(means, scales)
    if source.sparse and means is None:
        raise ValueError(
            "mean must be 0 for sparse rows, got None: subtracting a mean would fill in the zeros. "
            "Use standardize(mean=0)"
        )
    if source.access == "once":
        raise ValueError(
            "mean and scale must be given for rows that can be read only once, got None: measuring them "
            "takes a pass. Write the rows to a .npy file with shoal.write and open it"
        )
    with source._in_any_order():
        weight, measured, variance = source._source.column_moments(source.sample_weight)
    if scales is None:
        # The bound for rounding errors of a constant column is the one of StandardScaler.
        epsilon = np.finfo(np.float64).eps
        with np.errstate(over="ignore"):
            constant = variance <= weight * epsilon * variance + (weight * measured * epsilon) ** 2
        scales = np.where(constant, 1.0, np.sqrt(variance))
    return Standardize(measured if means is None else means, scales)


def make_projection(source: _Source, components: Any, mean: Any) -> Project:
    """Check components for the columns of `source`."""
    columns = source.shape[1]
    given = np.asarray(components)
    if given.ndim != 2 or given.dtype.kind not in "iuf" or not len(given):
        raise ValueError(
            f"components must be a 2-D array of numbers with at least 1 row, got {shown(components)}"
        )
    if given.shape[1] != columns:
        raise ValueError(f"components must have {columns} columns, as X has, got {given.shape[1]}")
    return Project(
        np.array(given, dtype=np.float64, order="C"),
        None if mean is None else per_column("mean", mean, columns),
    )
