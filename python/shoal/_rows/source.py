"""The class of open sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._common.params import whole
from shoal._core import Source

from .arrays import read_csr
from .features import names_of
from .prefetch import Prefetch
from .streams import Blocks, recut

BLOCK_BYTES = 8 << 20


class DataSource:
    """Rows that stay where they are: an array, a sparse matrix, a file that is mapped, a stream of blocks.

    Made by :func:`shoal.open`. Every estimator and function of shoal takes one as ``X``. The rows keep the
    type they are stored in; ``uint8``, ``int8``, ``int16``, ``uint16``, ``float16``, ``bfloat16`` and
    ``float32`` are computed as ``float32``, all others as ``float64``, a tile at a time.

    Attributes
    ----------
    shape : tuple of (int or None, int)
        Rows and columns; None where only a pass can tell how many rows a stream has.
    dtype : numpy.dtype
        Type of the arrays that :meth:`blocks` gives; the stored type (``float32`` for ``bfloat16``, which
        NumPy lacks).
    access : str
        ``"random"``: any row at any time; ``"replay"``: any number of passes; ``"once"``: one pass.
    sparse : bool
        Whether the rows are sparse: only the values that are stored are there, and zeros cost nothing.
    nbytes : int or None
        Size of all rows as stored, in bytes; None where the number of rows is.
    feature_names : list of str or None
        Names of the columns of a table; None for arrays, for one column of vectors, and where they are no
        texts. Estimators note them in ``feature_names_in_`` and check them.

    Notes
    -----
    A file should stay as it is while it is open. When another process changes it, results are undefined but
    memory is safe. When another process makes it shorter, reading it raises ``ValueError``: the length of a
    mapped file is looked at every 256 KiB of a pass. Only rows that are read before that look, from a part
    that was cut off a moment ago, still make the operating system end this process (``SIGBUS`` on Unix).
    Write a new file and rename it over the old one instead.

    An array is not copied, unless its byte order is foreign: do not write to it while something is computed
    from it.

    A source that was opened by the path of a file can be pickled and copied: it is opened again by its
    absolute path, without its rows. ``numpy.asarray(source)`` reads all rows into memory.
    """

    # The public name, in pickles too.
    __module__ = "shoal.data"

    def __init__(
        self,
        source: Source,
        name: str = "array",
        make: Callable[[], Blocks] | None = None,
        path: str | None = None,
        header: Any = None,
    ) -> None:
        self._open: Source | None = source
        # A frame without rows whose columns are the features, where these have names.
        self._header = header
        self._name = name
        # The file or folder that rows are read from, of slices too; the working directory may change.
        self._path = None if path is None else Path(path).absolute()
        # Of a stream: what gives its blocks.
        self._make = make
        # Opens the file again in another process; then come the slices, one within the other.
        self._reopen: Callable[..., DataSource] | None = None
        self._slices: tuple[tuple[int, int], ...] = ()

    @property
    def _source(self) -> Source:
        if self._open is None:
            raise ValueError(f"the source ({self._name}) is closed")
        return self._open

    @property
    def shape(self) -> tuple[int | None, int]:
        """Rows, None where their number is not known, and columns."""
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
    def nbytes(self) -> int | None:
        """Size of all rows as stored, in bytes; None where their number is not known."""
        return self._source.nbytes

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the columns of a table, None where they have none."""
        return names_of(self._header)

    def __len__(self) -> int:
        """Give the number of rows."""
        rows = self.shape[0]
        if rows is None:
            raise TypeError(f"the source ({self._name}) has no length: only a pass can tell its rows")
        return rows

    def __repr__(self) -> str:
        """Say what is open."""
        if self._open is None:
            return f"<DataSource {self._name}, closed>"
        rows, cols = self.shape
        known = "unknown" if rows is None else rows
        kind = f"sparse {self._open.dtype}" if self.sparse else self._open.dtype
        return f"<DataSource {self._name}: {known} x {cols} {kind}, access {self.access}>"

    def blocks(self, rows: int | None = None) -> Iterator[Any]:
        """Give all rows in order, a block at a time.

        Parameters
        ----------
        rows : int, optional
            Rows in a block, at least 1; the last block may have fewer. Default: about 8 MiB, and those of a
            stream as they come.

        Yields
        ------
        ndarray or scipy.sparse.csr_array of shape (n_rows, n_columns)
            A copy of the next rows, of type :attr:`dtype`, sparse where the rows are; or the block of a
            stream itself, which may be read-only. A stream with access ``"once"`` is used up by it.
        """
        source = self._source
        size = None if rows is None else whole("rows", rows, 1)
        n, d = source.shape
        if self._make is not None:
            blocks = self._make()
            return blocks if size is None else recut(blocks, size)
        assert n is not None
        if size is None:
            row = (source.nbytes or 0) / max(1, n) if source.sparse else d * self.dtype.itemsize
            size = max(1, int(BLOCK_BYTES / max(1, row)))
        if source.sparse:
            return (read_csr(source, start, min(n, start + size)) for start in range(0, n, size))
        return (source.read(start, min(n, start + size)) for start in range(0, n, size))

    def _prefetched(self, rows: int | None = None) -> Prefetch:
        """Give :meth:`blocks`, each pulled in another thread while the one before is worked on."""
        return Prefetch(self.blocks(rows))

    def take(self, indices: npt.ArrayLike) -> npt.NDArray[Any]:
        """Copy single rows.

        Parameters
        ----------
        indices : array-like of int, shape (m,)
            Which rows, in any order; repeats are allowed, negative ones count from the end, where it is
            known. A stream is read up to the last of them.

        Returns
        -------
        ndarray of shape (m, n_columns)
            The rows in the type that they are computed in, ``float32`` or ``float64``; sparse ones with their
            zeros.

        Raises
        ------
        IndexError
            For a row that is not there.
        ValueError
            Of a stream that can be read only once.
        """
        if self.access == "once":
            raise ValueError(
                f"single rows of the source ({self._name}) cannot be read: it can be read only once, in order"
            )
        wanted = np.asarray(indices)
        if wanted.ndim != 1 or (wanted.size and not np.issubdtype(wanted.dtype, np.integer)):
            raise ValueError(
                f"indices must be a 1-D array of integers, got {wanted.ndim}-D of {wanted.dtype}"
            )
        n = self.shape[0]
        bad = wanted[wanted < 0] if n is None else wanted[(wanted < -n) | (wanted >= n)]
        if bad.size:
            known = "an unknown number of" if n is None else n
            raise IndexError(f"row {bad[0]} is not there: the source has {known} rows")
        index = wanted.astype(np.int64)
        return self._source.take(index if n is None else np.where(index < 0, index + n, index))

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

        Raises
        ------
        ValueError
            Of a stream: write it to a file with :func:`shoal.write` and open that.
        """
        if self._make is not None:
            raise ValueError(
                f"the source ({self._name}) has no parts: its rows come in order; write it to a .npy file "
                "with shoal.write and slice that"
            )
        n = len(self)
        start, stop = whole("start", start, 0), whole("stop", stop, 0)
        if not start <= stop <= n:
            raise IndexError(f"rows {start}..{stop} do not lie within 0..{n}")
        part = DataSource(
            self._source.slice(start, stop), f"{self._name}, rows {start}..{stop}", header=self._header
        )
        part._path = self._path
        part._reopen, part._slices = self._reopen, (*self._slices, (start, stop))
        return part

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Copy all rows into an array, for ``numpy.asarray``."""
        if self.sparse:
            raise TypeError(
                f"the source ({self._name}) is sparse, and would not be as an array: use "
                "scipy.sparse.vstack(source.blocks())"
            )
        if copy is False:
            raise ValueError(
                f"copy must not be False: the rows of a source ({self._name}) have to be copied into an array"
            )
        wanted = self.dtype if dtype is None else np.dtype(dtype)
        n, d = self.shape
        if n is None:
            parts = [np.empty((0, d), dtype=wanted), *self.blocks()]
            return np.concatenate(parts, dtype=wanted, casting="unsafe")
        rows, end = np.empty((n, d), dtype=wanted), 0
        for block in self.blocks():
            start, end = end, end + len(block)
            if end <= n:
                rows[start:end] = block
        if end != n:
            raise ValueError(f"the source ({self._name}) has {n} rows, and gave {end}")
        return rows

    def __copy__(self) -> DataSource:
        """Give another one of the same rows."""
        made = object.__new__(type(self))
        made.__dict__.update(vars(self))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Say how the file is opened again; no rows are kept."""
        rows = self._source
        if self._reopen is None:
            raise TypeError(
                f"the source ({self._name}) was not opened by the path of a file, and cannot be pickled or "
                "copied: pass a path, or what it was made from"
            )
        shape = (rows.shape, rows.dtype)
        return self._reopen, (str(self._path), self._slices, shape, self._name)

    def close(self) -> None:
        """Let go of the array or file. Arrays made from it stay valid."""
        self._open = self._make = None

    def __enter__(self) -> DataSource:
        """Give the source itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the source."""
        self.close()
