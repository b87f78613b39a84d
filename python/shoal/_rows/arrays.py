"""Sources made of arrays and CSR matrices in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._core import Source

from .features import table_of
from .sparse import csr_of, is_sparse

#: Sparse rows that are looked through at a time for some of them.
SPARSE_ROWS = 1 << 14


def native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Give an array that can be read in place; copied only where its byte order or its type is foreign."""
    kind = array.dtype
    if not kind.isnative:
        array = array.astype(kind.newbyteorder("="))
    elif kind.kind == "f" and kind.itemsize > 8:
        array = array.astype(np.float64)
    return np.asarray(array)


def array_source(array: npt.NDArray[Any]) -> Source:
    """Make a source of a 2-D array."""
    return Source.from_array(native(array))


def sparse_source(matrix: Any) -> Source:
    """Make a source of a CSR matrix; its arrays are copied only where their byte order or type is foreign."""
    data = matrix.data
    if data.dtype.kind == "f" and data.dtype.itemsize > 8:
        data = data.astype(np.float64)
    elif not data.dtype.isnative:
        data = data.astype(data.dtype.newbyteorder("="))

    def in_place(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.require(array, array.dtype.newbyteorder("="), ["C", "ALIGNED"])

    return Source.from_csr(in_place(matrix.indptr), in_place(matrix.indices), data, matrix.shape)


def source_of_values(rows: Any) -> Source:
    """Make a source of an array, or of a CSR matrix."""
    return sparse_source(rows) if is_sparse(rows) else array_source(rows)


def read_csr(source: Source, start: int, stop: int) -> Any:
    """Copy consecutive rows of a sparse source."""
    from scipy.sparse import csr_array

    indptr, indices, data = source.read_csr(start, stop)
    return csr_array((data, indices, indptr), shape=(stop - start, source.shape[1]))


def some_rows(source: Source, indices: npt.NDArray[np.int64]) -> Source:
    """Copy rows, in ascending order, to a source of their own; sparse rows stay sparse."""
    n = source.shape[0]
    if n is None or not source.sparse:
        return array_source(source.take(indices))
    from scipy.sparse import vstack

    starts = range(0, n, SPARSE_ROWS)
    bounds = np.searchsorted(indices, [*starts, n])
    parts = [
        read_csr(source, start, min(n, start + SPARSE_ROWS))[indices[first:end] - start]
        for start, first, end in zip(starts, bounds, bounds[1:], strict=False)
        if first < end
    ]
    return sparse_source(vstack(parts, format="csr"))


def warn_of_format(matrix: Any) -> None:
    """Say that a sparse matrix that is not compressed by rows is converted."""
    if matrix.format != "csr":
        from sklearn.exceptions import DataConversionWarning

        from shoal._common.warn import warn

        warn(
            f"sparse X of format {matrix.format!r} is converted to CSR, which is a copy of it: "
            "pass X.tocsr() where it is used more than once",
            DataConversionWarning,
        )


def as_rows(obj: Any, check: Callable[..., Any]) -> Any:
    """Give an array of numbers, or a CSR matrix, of anything that is none, or none yet.

    `check` is one of scikit-learn's.
    """
    refuse_unreadable(obj)
    obj = table_of(obj)
    if is_sparse(obj):
        warn_of_format(obj)
        obj = csr_of(obj)
    if hasattr(obj, "__dlpack__") and not hasattr(obj, "__array__"):
        obj = np.from_dlpack(obj)
    try:
        rows: Any = check(obj, dtype="numeric", ensure_all_finite=False)
    except OverflowError as error:
        raise ValueError(f"X must hold numbers that float64 can hold: {error}") from error
    return rows


def refuse_unreadable(X: Any) -> None:
    """Refuse foreign sparse matrices and complex numbers with messages of our own."""
    if getattr(getattr(X, "dtype", None), "kind", None) == "c":
        raise ValueError(f"Complex data not supported: X has dtype {X.dtype}")
    if not is_sparse(X) and hasattr(X, "toarray") and hasattr(X, "nnz"):
        kind = f"{type(X).__module__}.{type(X).__name__}"
        raise TypeError(f"X is sparse, but no matrix or array of scipy.sparse: got {kind}")
