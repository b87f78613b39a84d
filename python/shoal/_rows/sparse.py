"""Checks sparse matrices of SciPy, and converts them to CSR.

SciPy checks little when a matrix is made, and nothing when its arrays change or when it is converted. Its
compiled code then reads or writes out of bounds for an index out of range.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._common.params import shown


def is_sparse(rows: Any) -> bool:
    """Whether `rows` is a sparse matrix or array of SciPy."""
    # No import: if `rows` is one of its objects, `scipy.sparse` is imported already.
    module = sys.modules.get("scipy.sparse")
    return module is not None and bool(module.issparse(rows))


def csr_of(matrix: Any, what: str = "X") -> Any:
    """Check a sparse matrix of any format and convert it to CSR; CSR is returned unchanged.

    Raises `ValueError` if its arrays contradict each other or its shape. Messages name the matrix `what`.
    """
    kind = shown(getattr(matrix, "format", None))
    try:
        if matrix.ndim != 2:
            raise ValueError(f"it must be 2-D, got {matrix.ndim}-D")
        rows, cols = (int(length) for length in matrix.shape)
        if rows < 0 or cols < 0:
            raise ValueError(f"its shape is {(rows, cols)}")
        if matrix.format not in CHECKS:
            raise ValueError("this format is not known here: convert it to CSR")
        return CHECKS[matrix.format](matrix, rows, cols)
    # Arrays may have been replaced by any object, which can raise nearly any error.
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{what} is a damaged sparse matrix of format {kind}: {error}") from error


def vector(name: str, array: Any) -> npt.NDArray[Any]:
    """Check that `array` is one-dimensional."""
    if not isinstance(array, np.ndarray) or array.ndim != 1:
        raise ValueError(f"{name} must be a 1-D array, got {shown(array)}")
    return array


def indices_of(name: str, array: Any) -> npt.NDArray[Any]:
    """Check that `array` is one-dimensional and holds integers."""
    if vector(name, array).dtype.kind not in "iu":
        raise ValueError(f"{name} must hold integers, got {array.dtype}")
    return vector(name, array)


def within(name: str, what: str, array: Any, end: int, stored: int | None = None) -> None:
    """Raise `ValueError` if one of the first `stored` indices of `what` is not in 0 to `end` - 1."""
    indices = indices_of(name, array)[:stored]
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= end):
        at = int(((indices < 0) | (indices >= end)).argmax())
        raise ValueError(f"{name} must be {what}, 0 to {end - 1}, got {indices[at]} at position {at}")


def check_compressed(matrix: Any, count: int, end: int, along: str, across: str) -> None:
    """Check a compressed matrix of `count` `along` (say rows) with indices of `across` below `end`."""
    indptr, stored = indices_of("indptr", matrix.indptr), len(matrix.data)
    if len(matrix.indices) != stored:
        raise ValueError(f"indices and data must have one length, got {len(matrix.indices)} and {stored}")
    if len(indptr) != count + 1:
        raise ValueError(
            f"indptr must have one value more than the {count} {along}, got {len(indptr)} values"
        )
    if indptr[0] != 0:
        raise ValueError(f"indptr must begin with 0, got {indptr[0]}")
    falls = indptr[1:] < indptr[:-1]
    if falls.any():
        at = int(falls.argmax())
        place = "row" if along.startswith("row") else "column"
        raise ValueError(f"indptr must not decrease, got {indptr[at + 1]} after {indptr[at]} at {place} {at}")
    if int(indptr[-1]) > stored:
        raise ValueError(f"indptr must end within the {stored} stored values, got {indptr[-1]}")
    within("indices", across, matrix.indices, end, int(indptr[-1]))


def of_csr(matrix: Any, rows: int, cols: int) -> Any:
    vector("data", matrix.data)
    check_compressed(matrix, rows, cols, "rows", "columns")
    return matrix


def of_csc(matrix: Any, rows: int, cols: int) -> Any:
    vector("data", matrix.data)
    check_compressed(matrix, cols, rows, "columns", "rows")
    return matrix.tocsr()


def of_bsr(matrix: Any, rows: int, cols: int) -> Any:
    shape = matrix.data.shape
    if len(shape) != 3 or min(shape[1:]) < 1 or rows % shape[1] or cols % shape[2]:
        raise ValueError(f"data must hold blocks that divide the shape {(rows, cols)}, got shape {shape}")
    check_compressed(matrix, rows // shape[1], cols // shape[2], "rows of blocks", "columns of blocks")
    return matrix.tocsr()


def of_coo(matrix: Any, rows: int, cols: int) -> Any:
    stored = len(vector("data", matrix.data))
    for name, what, array, end in (("row", "rows", matrix.row, rows), ("col", "columns", matrix.col, cols)):
        within(name, what, array, end)
        if len(array) != stored:
            raise ValueError(f"{name} must have {stored} values, one for each of data, got {len(array)}")
    return matrix.tocsr()


def of_dia(matrix: Any, rows: int, cols: int) -> Any:
    offsets, data = indices_of("offsets", matrix.offsets), matrix.data
    if len(set(offsets.tolist())) != len(offsets):
        raise ValueError(f"offsets must differ, got {shown(offsets)}")
    if data.ndim != 2 or len(data) != len(offsets):
        raise ValueError(f"data must have {len(offsets)} rows for offsets, got shape {data.shape}")
    # Other diagonals lie outside the matrix, and SciPy's index arithmetic may overflow for them.
    inside = (offsets > -rows) & (offsets < cols)
    return type(matrix)((data[inside], offsets[inside]), shape=(rows, cols)).tocsr()


def of_lil(matrix: Any, rows: int, cols: int) -> Any:
    for name, lists in (("rows", matrix.rows), ("data", matrix.data)):
        if len(vector(name, lists)) != rows:
            raise ValueError(f"{name} must have {rows} lists, got {len(lists)}")
    for i, (indices, values) in enumerate(zip(matrix.rows, matrix.data, strict=True)):
        if not isinstance(indices, list) or not isinstance(values, list) or len(indices) != len(values):
            raise ValueError(f"row {i} must be two lists of one length, got {shown(indices)}")
        if indices and not all(isinstance(j, (int, np.integer)) and 0 <= j < cols for j in indices):
            raise ValueError(f"rows must hold columns, 0 to {cols - 1}, got {shown(indices)} in row {i}")
    return matrix.tocsr()


def of_dok(matrix: Any, rows: int, cols: int) -> Any:
    for key in matrix.keys():  # noqa: SIM118 - a matrix is no dictionary
        if not (
            isinstance(key, tuple)
            and len(key) == 2
            and all(isinstance(i, (int, np.integer)) for i in key)
            and 0 <= key[0] < rows
            and 0 <= key[1] < cols
        ):
            raise ValueError(f"keys must be rows and columns within {(rows, cols)}, got {shown(key)}")
    return matrix.tocsr()


CHECKS: dict[str, Callable[[Any, int, int], Any]] = {
    "csr": of_csr,
    "csc": of_csc,
    "bsr": of_bsr,
    "coo": of_coo,
    "dia": of_dia,
    "lil": of_lil,
    "dok": of_dok,
}
