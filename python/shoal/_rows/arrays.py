"""Makes sources from arrays and CSR matrices in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._core import Source

from .bfloat16 import NAME, is_bf16, marked
from .features import refuse_other_columns, wrap_batch
from .sparse import csr_of, is_sparse
from .tensors import array_of

#: Sparse rows that `some_rows` copies at a time.
SPARSE_ROWS = 1 << 14


def native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array that the Rust code can read; copy only a foreign byte order or `longdouble`."""
    if is_bf16(array):
        return marked(array)
    kind = array.dtype
    if not kind.isnative:
        array = array.astype(kind.newbyteorder("="))
    elif kind.kind == "f" and kind.itemsize > 8:
        array = array.astype(np.float64)
    return np.asarray(array)


def array_source(array: npt.NDArray[Any]) -> Source:
    """Make a source from a 2-D array."""
    return Source.from_array(native(array))


def sparse_source(matrix: Any) -> Source:
    """Make a source from a CSR matrix; copy only a foreign byte order or `longdouble`."""
    data = matrix.data
    if data.dtype.kind == "f" and data.dtype.itemsize > 8:
        data = data.astype(np.float64)
    elif not data.dtype.isnative:
        data = data.astype(data.dtype.newbyteorder("="))

    def in_place(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.require(array, array.dtype.newbyteorder("="), ["C", "ALIGNED"])

    return Source.from_csr(in_place(matrix.indptr), in_place(matrix.indices), data, matrix.shape)


def source_of_values(rows: Any) -> Source:
    """Make a source from an array or a CSR matrix."""
    return sparse_source(rows) if is_sparse(rows) else array_source(rows)


def read_csr(source: Source, start: int, stop: int) -> Any:
    """Copy consecutive rows of a sparse source."""
    from scipy.sparse import csr_array

    indptr, indices, data = source.read_csr(start, stop)
    return csr_array((data, indices, indptr), shape=(stop - start, source.shape[1]))


def some_rows(source: Source, indices: npt.NDArray[np.int64]) -> Source:
    """Copy rows to a new source; `indices` ascend, and sparse rows stay sparse."""
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
    """Warn if a sparse matrix is not CSR and has to be converted."""
    if matrix.format != "csr":
        from sklearn.exceptions import DataConversionWarning

        from shoal._checks.warn import warn

        warn(
            f"sparse X of format {matrix.format!r} is converted to CSR, which is a copy of it: "
            "pass X.tocsr() where it is used more than once",
            DataConversionWarning,
        )


def as_csr(X: Any) -> Any:
    """Convert a sparse matrix of another format to CSR, with a warning; return anything else unchanged."""
    if not is_sparse(X):
        return X
    warn_of_format(X)
    return csr_of(X)


def as_rows(obj: Any, check: Callable[..., Any] | None = None, *, least: int = 1) -> Any:
    """Convert rows in memory to an array of numbers or a CSR matrix, with at least `least` rows.

    `check` is a function of scikit-learn with its first arguments bound, by default `check_array`.
    """
    if check is None:
        from sklearn.utils.validation import check_array

        check = partial(check_array, accept_sparse="csr", ensure_min_samples=least)
    refuse_unreadable(obj)
    obj = array_of(as_csr(wrap_batch(obj)))
    if isinstance(obj, (list, tuple)) and obj and is_bf16(obj[0]):
        obj = np.asarray(obj)
    given: Any = obj
    bf16 = is_bf16(given)
    if bf16:
        # scikit-learn does not know the type.
        obj = marked(given).view(np.uint16)
    try:
        rows: Any = check(obj, dtype="numeric", ensure_all_finite=False)
    except OverflowError as error:
        raise ValueError(f"X must hold numbers that float64 can hold: {error}") from error
    except (TypeError, ValueError) as error:
        refuse_other_columns(obj, error)
        raise
    if getattr(rows, "dtype", np.dtype(np.float64)).kind in "OmM":
        refuse_other_columns(obj)
    return marked(rows) if bf16 else rows


def refuse_unreadable(X: Any) -> None:
    """Raise if X is complex, of a small type of `ml_dtypes`, or sparse but not of SciPy."""
    dtype = getattr(X, "dtype", None)
    if getattr(dtype, "kind", None) == "c":
        raise ValueError(f"Complex data not supported: X has dtype {dtype}")
    if isinstance(dtype, np.dtype) and dtype.type.__module__ == "ml_dtypes" and dtype.name != NAME:
        raise TypeError(
            f"X must hold real numbers of a type of NumPy or bfloat16, got {dtype}. Convert it first: "
            'X.astype("float32").'
        )
    if not is_sparse(X) and hasattr(X, "toarray") and hasattr(X, "nnz"):
        kind = f"{type(X).__module__}.{type(X).__name__}"
        raise TypeError(f"X is sparse, but no matrix or array of scipy.sparse: got {kind}")
