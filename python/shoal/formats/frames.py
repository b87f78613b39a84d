"""Frames and Series of pandas with a column of vectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._checks.params import shown
from shoal._core import Source

from .stream import Stream, numbers


def of_pandas(obj: Any, columns: Sequence[Any] | None) -> Stream | Source | None:
    """Open a frame or Series with a column of vectors; None for other objects, which are array-like.

    Vectors are lists or arrays of one length, as objects or as lists of Arrow. Objects are copied into one
    array.
    """
    if not hasattr(obj, "iloc") or not hasattr(obj, "dtype" if obj.ndim == 1 else "dtypes"):
        return None
    frame = obj.to_frame() if obj.ndim == 1 else obj
    wanted = [i for i, name in enumerate(frame.columns) if columns is None or name in columns]
    kinds = list(frame.dtypes)
    vectors = [i for i in wanted if may_hold_vectors(kinds[i]) and holds_vectors(frame.iloc[:, i])]
    if not vectors:
        return None
    name = f"pandas {type(obj).__name__}"
    at = vectors[0]
    column = frame.columns[at]
    if len(wanted) > 1:
        remedy = f" Choose the vectors with columns=[{column!r}]." if len(vectors) == 1 else ""
        raise ValueError(
            f"{name}: column {column!r} holds vectors, so it must be the only column, got {len(wanted)} "
            f"columns.{remedy}"
        )
    series = frame.iloc[:, at]
    if hasattr(series.dtype, "pyarrow_dtype"):
        import pyarrow as pa

        from .tables import of_table

        return of_table(pa.table({str(column): pa.array(series)}), None, name)
    return Source.from_array(stacked(f"{name}: column {column!r}", series))


def may_hold_vectors(kind: Any) -> bool:
    """Whether columns of a type can hold vectors."""
    return str(kind) == "object" or hasattr(kind, "pyarrow_dtype")


def holds_vectors(series: Any) -> bool:
    """Whether the first value of a column is a vector, or the column has a list type of Arrow."""
    kind = getattr(series.dtype, "pyarrow_dtype", None)
    if kind is not None:
        import pyarrow as pa

        from .arrow import is_vector_type

        return is_vector_type(pa, kind)
    first = next((value for value in series if not is_missing(value)), None)
    return isinstance(first, (list, tuple)) or (isinstance(first, np.ndarray) and first.ndim > 0)


def is_missing(value: Any) -> bool:
    """Whether a value of a column of objects stands for a missing one: None, NaN, NA or NaT."""
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and value != value)
    )


def stacked(what: str, values: Iterable[Any]) -> npt.NDArray[Any]:
    """Copy vectors of one length into one array of their common type."""
    vectors: list[npt.NDArray[Any]] = []
    kinds: dict[np.dtype[Any], None] = {}
    for row, value in enumerate(values):
        vector = vector_of(what, row, value)
        if vectors and len(vector) != len(vectors[0]):
            raise ValueError(
                f"{what} must hold vectors of length {len(vectors[0])}, the length of the first row, got "
                f"length {len(vector)} at row {row}"
            )
        vectors.append(vector)
        kinds[vector.dtype] = None
    if not len(vectors[0]):
        raise ValueError(f"{what} must hold vectors of length 1 or more, got length 0 at row 0")
    return np.stack(vectors, dtype=numbers(np.result_type(*kinds), what))


def vector_of(what: str, row: int, value: Any) -> npt.NDArray[Any]:
    """Return a value of a column as an array; raise `ValueError` if it is not a vector of real numbers."""
    items = value.tolist() if isinstance(value, np.ndarray) and value.dtype == object else value
    if is_missing(value) or (isinstance(items, (list, tuple)) and any(item is None for item in items)):
        raise ValueError(f"{what} must not hold missing values, got a null at row {row}")
    if isinstance(items, (list, tuple, np.ndarray)):
        try:
            vector = np.asarray(items)
        except ValueError:
            vector = np.empty(0, dtype=object)
        # An empty list has no type of its own.
        if vector.ndim == 1 and (vector.dtype.kind in "biuf" or not len(items)):
            return vector
    raise ValueError(f"{what} must hold vectors of real numbers, got {shown(value)} at row {row}")
