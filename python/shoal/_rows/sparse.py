"""Checks sparse matrices of SciPy, and converts them to CSR.

SciPy checks little when a matrix is made, and nothing when its arrays change or when it is converted. Its
compiled code then reads or writes out of bounds for an index out of range.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._checks.params import shown


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


def csr_of_equal_rows(values: npt.NDArray[Any], columns: npt.NDArray[Any], n_columns: int) -> Any:
    """Make a CSR matrix whose rows have equal numbers of values, from 2-D arrays of them, without a copy."""
    from scipy.sparse import csr_matrix

    n, each = values.shape
    index = np.int32 if values.size < 2**31 else np.int64
    starts = np.arange(0, values.size + 1, each, dtype=index)
    return csr_matrix((values.ravel(), columns.ravel(), starts), shape=(n, n_columns), copy=False)


def of_compressed(matrix: Any, rows: int, cols: int) -> Any:
    if matrix.format == "bsr" and (rows % matrix.blocksize[0] or cols % matrix.blocksize[1]):
        raise ValueError(f"its blocks must divide its shape, {(rows, cols)}, got {matrix.blocksize}")
    for name in ("indptr", "indices"):
        # SciPy would round other numbers.
        if getattr(matrix, name).dtype.kind not in "iu":
            raise ValueError(f"{name} must hold integers, got {getattr(matrix, name).dtype}")
    # A copy, because the check may replace arrays by shorter ones.
    copy(matrix).check_format(full_check=True)
    return matrix.tocsr()


def of_coo(matrix: Any, rows: int, cols: int) -> Any:
    # A new matrix is checked.
    return type(matrix)((matrix.data, (matrix.row, matrix.col)), shape=(rows, cols)).tocsr()


def of_dia(matrix: Any, rows: int, cols: int) -> Any:
    # Other diagonals lie outside the matrix, and SciPy's index arithmetic may overflow for them.
    inside = (matrix.offsets > -rows) & (matrix.offsets < cols)
    return type(matrix)((matrix.data[inside], matrix.offsets[inside]), shape=(rows, cols)).tocsr()


def of_lil(matrix: Any, rows: int, cols: int) -> Any:
    for name, lists in (("rows", matrix.rows), ("data", matrix.data)):
        if not isinstance(lists, np.ndarray) or lists.shape != (rows,):
            raise ValueError(f"{name} must be an array of {rows} lists, got {shown(lists)}")
    for i, (indices, values) in enumerate(zip(matrix.rows, matrix.data, strict=True)):
        if not isinstance(indices, list) or not isinstance(values, list) or len(indices) != len(values):
            raise ValueError(f"row {i} must be two lists of one length, got {shown(indices)}")
        if not all(isinstance(j, (int, np.integer)) and 0 <= j < cols for j in indices):
            raise ValueError(f"rows must hold columns, 0 to {cols - 1}, got {shown(indices)} in row {i}")
    return matrix.tocsr()


def of_dok(matrix: Any, rows: int, cols: int) -> Any:
    for key in matrix.keys():  # noqa: SIM118 - a matrix is not a dictionary
        if not (
            isinstance(key, tuple)
            and len(key) == 2
            and all(isinstance(i, (int, np.integer)) for i in key)
            and 0 <= key[0] < rows
            and 0 <= key[1] < cols
        ):
            raise ValueError(f"keys must be rows and columns within {(rows, cols)}, got {shown(key)}")
    return matrix.tocsr()


#: Functions that check the matrices of a format and convert them.
CHECKS: dict[str, Callable[[Any, int, int], Any]] = {
    **dict.fromkeys(("csr", "csc", "bsr"), of_compressed),
    "coo": of_coo,
    "dia": of_dia,
    "lil": of_lil,
    "dok": of_dok,
}
