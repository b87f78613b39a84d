"""Where rows come from: arrays and files, opened but not loaded."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from ._core import Source
from ._params import shown, whole

__all__ = ["DataSource", "open"]

#: What can be opened now; other suffixes are refused by name.
SUPPORTED = (
    "arrays, .npy files, SciPy's sparse matrices and .npz files of them, "
    "and raw files of any other name given with shape= and dtype="
)

BLOCK_BYTES = 8 << 20


class DataSource:
    """Rows that stay where they are: in an array, in a sparse matrix, or in a file that is memory-mapped.

    Made by :func:`shoal.open`. Every estimator and function of shoal takes one as ``X``. The rows keep the
    type they are stored in; ``uint8``, ``int8``, ``int16``, ``uint16``, ``float16``, ``bfloat16`` and
    ``float32`` are computed as ``float32``, all others as ``float64``, a tile at a time.

    Attributes
    ----------
    shape : tuple of (int, int)
        Rows and columns.
    dtype : numpy.dtype
        Type of the arrays that :meth:`blocks` gives; the stored type (``float32`` for ``bfloat16``, which
        NumPy lacks).
    access : str
        ``"random"``: any row at any time.
    sparse : bool
        Whether the rows are sparse: only the values that are stored are there, and zeros cost nothing.
    nbytes : int
        Size of all rows as stored, in bytes.

    Notes
    -----
    A file should stay as it is while it is open. When another process changes it, results are undefined but
    memory is safe; when another process makes it shorter, the operating system ends this process as soon as
    it reads a row that is gone (``SIGBUS`` on Unix). Write a new file and rename it over the old one instead.

    An array is not copied, unless its byte order is foreign: do not write to it while something is computed
    from it.
    """

    def __init__(self, source: Source, name: str = "array") -> None:
        self._open: Source | None = source
        self._name = name

    @property
    def _source(self) -> Source:
        if self._open is None:
            raise ValueError(f"the source ({self._name}) is closed")
        return self._open

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the arrays that :meth:`blocks` gives."""
        stored = self._source.dtype
        return np.dtype("float32" if stored == "bfloat16" else stored)

    @property
    def access(self) -> str:
        """How rows can be read: ``"random"``, ``"replay"`` or ``"once"``."""
        return self._source.access

    @property
    def sparse(self) -> bool:
        """Whether only the values that are stored are there."""
        return self._source.sparse

    @property
    def nbytes(self) -> int:
        """Size of all rows as stored, in bytes."""
        return self._source.nbytes

    def __len__(self) -> int:
        """Give the number of rows."""
        return self.shape[0]

    def __repr__(self) -> str:
        """Say what is open."""
        if self._open is None:
            return f"<DataSource {self._name}, closed>"
        rows, cols = self.shape
        kind = f"sparse {self._open.dtype}" if self.sparse else self._open.dtype
        return f"<DataSource {self._name}: {rows} x {cols} {kind}, access {self.access}>"

    def blocks(self, rows: int | None = None) -> Iterator[Any]:
        """Give all rows in order, a block at a time.

        Parameters
        ----------
        rows : int, optional
            Rows in a block, at least 1; the last block may have fewer. Default: about 8 MiB.

        Yields
        ------
        ndarray or scipy.sparse.csr_array of shape (n_rows, n_columns)
            A copy of the next rows, of type :attr:`dtype`; sparse, where the rows are.
        """
        source = self._source
        n, d = source.shape
        row = source.nbytes / max(1, n) if source.sparse else d * self.dtype.itemsize
        size = max(1, int(BLOCK_BYTES / max(1, row))) if rows is None else whole("rows", rows, 1)
        if source.sparse:
            return (read_csr(source, start, min(n, start + size)) for start in range(0, n, size))
        return (source.read(start, min(n, start + size)) for start in range(0, n, size))

    def take(self, indices: npt.ArrayLike) -> npt.NDArray[Any]:
        """Copy single rows.

        Parameters
        ----------
        indices : array-like of int, shape (m,)
            Which rows, in any order; repeats are allowed, negative ones count from the end.

        Returns
        -------
        ndarray of shape (m, n_columns)
            The rows in the type that they are computed in, ``float32`` or ``float64``; sparse ones with their
            zeros.

        Raises
        ------
        IndexError
            For a row that is not there.
        """
        wanted = np.asarray(indices)
        if wanted.ndim != 1 or (wanted.size and not np.issubdtype(wanted.dtype, np.integer)):
            raise ValueError(
                f"indices must be a 1-D array of integers, got {wanted.ndim}-D of {wanted.dtype}"
            )
        n = len(self)
        bad = wanted[(wanted < -n) | (wanted >= n)]
        if bad.size:
            raise IndexError(f"row {bad[0]} is not there: the source has {n} rows")
        index = wanted.astype(np.int64)
        return self._source.take(np.where(index < 0, index + n, index))

    def slice(self, start: int, stop: int) -> DataSource:
        """Consecutive rows as a source of their own; nothing is copied.

        Parameters
        ----------
        start, stop : int
            The first row, and the row after the last: ``0 <= start <= stop <= n_rows``.

        Returns
        -------
        DataSource
            The rows, counted from 0 again.
        """
        n = len(self)
        start, stop = whole("start", start, 0), whole("stop", stop, 0)
        if not start <= stop <= n:
            raise IndexError(f"rows {start}..{stop} do not lie within 0..{n}")
        return DataSource(self._source.slice(start, stop), f"{self._name}, rows {start}..{stop}")

    def close(self) -> None:
        """Let go of the array or file. Arrays made from it stay valid."""
        self._open = None

    def __enter__(self) -> DataSource:
        """Give the source itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the source."""
        self.close()


def open(
    obj: Any,
    *,
    shape: tuple[int, int] | None = None,
    dtype: npt.DTypeLike | None = None,
    columns: Sequence[Any] | None = None,
    key: str | None = None,
) -> DataSource:
    """Open rows as a source, without loading them.

    Parameters
    ----------
    obj : array-like, sparse matrix, str, os.PathLike or DataSource
        A 2-D array (any strides), anything that becomes one (a numeric frame, a list), a sparse matrix or
        array of SciPy (CSR is read in place, others are converted, with a warning), the path of an ``.npy``
        file, of an ``.npz`` file that ``scipy.sparse.save_npz`` wrote, or of a file of row-major numbers
        without a header, together with `shape` and `dtype`. A file is memory-mapped, but an ``.npz`` file is
        loaded, once.
    shape : tuple of (int, int), optional
        Rows and columns of a raw file, whose rows begin at its first byte.
    dtype : dtype, optional
        Type of the numbers of a raw file, little-endian: bool, (u)int8 to (u)int64, float16 to float64,
        ``"bfloat16"``.
    columns : sequence, optional
        Of a frame: the columns to take.
    key : str, optional
        Reserved for files that hold several arrays.

    Returns
    -------
    DataSource

    Raises
    ------
    OSError
        When the file cannot be opened.
    ValueError
        When it is not what it should be, or of a kind that is not supported.
    TypeError
        For complex and other values that are no numbers.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> source = shoal.open(np.arange(6, dtype="uint8").reshape(3, 2))
    >>> source.shape, source.dtype.name
    ((3, 2), 'uint8')
    """
    if key is not None:
        raise ValueError(
            f"key={key!r}: no kind of file that holds several arrays is supported yet; supported: {SUPPORTED}"
        )
    if isinstance(obj, DataSource):
        if shape is not None or dtype is not None or columns is not None:
            raise ValueError(
                "shape, dtype and columns belong to what is opened first: this is an open source"
            )
        return obj
    if isinstance(obj, (str, os.PathLike)):
        if columns is not None:
            raise ValueError(
                f"columns={columns!r} is for frames: files of columns are not supported yet; "
                f"supported: {SUPPORTED}"
            )
        return open_path(os.fspath(obj), shape, dtype, "obj")
    if shape is not None or dtype is not None:
        raise ValueError("shape and dtype describe a raw file: an array has its own")
    if columns is not None:
        if not hasattr(obj, "columns"):
            raise ValueError(f"columns={columns!r} is for frames, got {type(obj).__name__}")
        obj = obj[list(columns)]
    from sklearn.utils.validation import check_array

    # Rows may be none at all here: what works on them says how many it needs.
    rows = as_rows(obj, partial(check_array, accept_sparse="csr", ensure_min_samples=0))
    return DataSource(source_of_values(rows), "sparse matrix" if is_sparse(rows) else "array")


def open_path(
    path: str | bytes,
    shape: tuple[int, int] | None,
    dtype: npt.DTypeLike | None,
    argument: str = "X",
) -> DataSource:
    """Open a file by its name, which came as `argument`."""
    name = os.fsdecode(path)
    if not name:
        raise ValueError(f"{argument} must be rows or the path of a file, got an empty path: {path!r}")
    suffix = Path(name).suffix.lower()
    if suffix == ".npy":
        if shape is not None or dtype is not None:
            raise ValueError(f"{name}: an .npy file has its own shape and dtype, leave them out")
        return DataSource(Source.open_npy(name), name)
    if suffix == ".npz":
        if shape is not None or dtype is not None:
            raise ValueError(f"{name}: an .npz file has its own shape and dtype, leave them out")
        return DataSource(sparse_source(load_npz(name)), name)
    if shape is None or dtype is None:
        if Path(name).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not Path(name).exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        kind = f"that end in {suffix}" if suffix else "without a suffix"
        raise ValueError(f"{name}: files {kind} are not supported yet; supported: {SUPPORTED}")
    if not isinstance(shape, tuple) or len(shape) != 2:
        raise ValueError(f"shape must be (rows, columns), got {shown(shape)}")
    rows, cols = whole("shape[0]", shape[0], 1), whole("shape[1]", shape[1], 1)
    stored = "bfloat16"
    if not (isinstance(dtype, str) and dtype == stored):
        found = np.dtype(dtype)
        if found.newbyteorder("<") != found:
            raise ValueError(f"dtype={found.str!r}: raw files must be little-endian")
        stored = found.name
    return DataSource(Source.open_raw(name, stored, rows, cols), name)


def array_source(array: npt.NDArray[Any]) -> Source:
    """Make a source of a 2-D array; copied only where its byte order or its type is foreign."""
    kind = array.dtype
    if not kind.isnative:
        array = array.astype(kind.newbyteorder("="))
    elif kind.kind == "f" and kind.itemsize > 8:
        array = array.astype(np.float64)
    return Source.from_array(np.asarray(array))


def is_sparse(rows: Any) -> bool:
    """Whether rows are a sparse matrix or array of SciPy."""
    if not (hasattr(rows, "toarray") and hasattr(rows, "nnz")):
        # Without an import: most rows are not.
        return False
    from scipy.sparse import issparse

    return bool(issparse(rows))


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


def load_npz(name: str) -> Any:
    """Load the sparse matrix that an .npz file holds, in rows."""
    import zipfile

    from scipy.sparse import load_npz as load

    try:
        matrix = load(name)
    except OSError:
        raise
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{name}: holds no sparse matrix as scipy.sparse.save_npz writes it: {error}"
        ) from error
    if matrix.ndim != 2:
        raise ValueError(f"{name}: rows must be a 2-D matrix, got {matrix.ndim}-D")
    warn_of_format(matrix)
    return matrix.tocsr()


def warn_of_format(matrix: Any) -> None:
    """Say that a sparse matrix that is not compressed by rows is converted."""
    if matrix.format != "csr":
        from sklearn.exceptions import DataConversionWarning

        from ._warn import warn

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
    if is_sparse(obj):
        warn_of_format(obj)
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
    if hasattr(X, "toarray") and hasattr(X, "nnz") and not is_sparse(X):
        kind = f"{type(X).__module__}.{type(X).__name__}"
        raise TypeError(f"X is sparse, but no matrix or array of scipy.sparse: got {kind}")
    if callable(X) or hasattr(X, "__next__"):
        raise TypeError(
            "iterators and callables are not supported as X yet: "
            "write the blocks to a .npy file and pass its path"
        )
