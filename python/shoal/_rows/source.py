"""`DataSource`: rows that are opened but not loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from shoal._checks.params import RowWeights, whole
from shoal._core import Source
from shoal.formats.remote import is_url
from shoal.formats.stream import BLOCK_BYTES

from .arrays import read_csr
from .bfloat16 import NAME, widened
from .features import find_names
from .prefetch import Prefetch
from .streams import Blocks, cut_blocks

if TYPE_CHECKING:
    from .transforms import Standardize, Transform


class DataSource:
    """Open rows that are not loaded: an array, a sparse matrix, a mapped file or a stream.

    :func:`shoal.open` returns one. Every estimator and function of shoal takes one as ``X``. The rows keep
    their stored type. Computations convert one tile at a time: ``uint8``, ``int8``, ``int16``, ``uint16``,
    ``float16``, ``bfloat16`` and ``float32`` to ``float32``, all other types to ``float64``.

    Attributes
    ----------
    shape : tuple of (int or None, int)
        Number of rows and features. The number of rows is None for a stream of unknown length.
    dtype : numpy.dtype
        Type of the arrays that :meth:`blocks` yields: the stored type, or ``float32`` for ``bfloat16``,
        which NumPy lacks.
    access : str
        ``"random"``: any row at any time. ``"replay"``: any number of passes in order. ``"once"``: one pass.
    sparse : bool
        Whether only nonzero values are stored, as in CSR. The other values are zeros and cost nothing.
    nbytes : int or None
        Size of all rows as stored, in bytes. None if the number of rows is unknown.
    sample_weight : ndarray of shape (n_rows,), float64, or None
        Weights of the rows of a coreset. Every method that accepts weights uses them, and then takes no other
        ones.
    feature_names : list of str or None
        Names of the columns of a table. None for arrays, for one column of vectors, and for names that are
        not strings. Estimators store them in ``feature_names_in_`` and check them.
    mean_, scale_ : ndarray of shape (n_features,) or None
        What :meth:`standardize` subtracts and divides by. None for sources that it did not return.

    Notes
    -----
    :meth:`normalize`, :meth:`standardize`, :meth:`project` and :meth:`map` return sources whose rows are
    transformed as they are read. Nothing is copied, and each pass transforms the rows again.

    Do not change a file while it is open: write a new file and rename it over the old one instead. A file
    that is mapped once (``.npy``, ``.npz``, ``.safetensors``, ``.fvecs`` and the like, raw files) stays the
    old one. Parquet, Arrow, CSV, HDF5 and zarr, and many files as one source, are opened again for later
    passes, which raise ``ValueError`` if the file, or the folder of a zarr store, was changed or replaced.
    The file behind a URL is only checked for its shape and type.

    If another process changes the file in the middle of a pass, results are undefined but memory is safe. If
    another process truncates a mapped file, reading it raises ``ValueError``: its length is checked every
    256 KiB of a pass. If the file is truncated between a check and the read that follows, the operating
    system ends this process (``SIGBUS`` on Unix).

    An array in native byte order is not copied: do not write to it during a computation.

    A source that was opened by path can be pickled and copied. The copy opens the same absolute path again
    and holds no rows. ``numpy.asarray(source)`` reads all rows into memory.
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
        table: Any = None,
        weights: RowWeights = None,
        shards: list[str] | None = None,
    ) -> None:
        self._weights = weights
        self._open: Source | None = source
        # An empty frame with the columns of the features, if they have names.
        self._header = header
        # The table that the rows are read from, or a function that returns it.
        self._table = table
        self._name = name
        # The file, folder or URL that is read. Absolute: the working directory may change.
        self._path = path if path is None or is_url(path) else str(Path(path).absolute())
        # The files, if the source has many.
        self._shards = None if shards is None else [str(Path(shard).absolute()) for shard in shards]
        # For a stream: returns the blocks of one pass.
        self._make = make
        # Opens the file again in another process. The slices, each of the one before, are then applied.
        self._reopen: Callable[..., DataSource] | None = None
        self._slices: tuple[tuple[int, int], ...] = ()
        # The rows that are transformed, and how.
        self._view: tuple[DataSource, Transform] | None = None

    @property
    def _source(self) -> Source:
        if self._open is None:
            raise ValueError(f"the source ({self._name}) is closed")
        return self._open

    def _kept_from(self) -> Any:
        """Return the table that the rows are read from; None if there is none that can be read again."""
        return self._table() if callable(self._table) else self._table

    @property
    def shape(self) -> tuple[int | None, int]:
        """Number of rows (None if unknown) and features."""
        return self._source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the arrays that :meth:`blocks` yields."""
        stored = self._source.dtype
        return np.dtype("float32" if stored == "bfloat16" else stored)

    @property
    def access(self) -> str:
        """How rows can be read: ``"random"``, ``"replay"`` or ``"once"``."""
        return self._source.access

    @property
    def sparse(self) -> bool:
        """Whether only nonzero values are stored."""
        return self._source.sparse

    @property
    def nbytes(self) -> int | None:
        """Size of all rows as stored, in bytes; None if their number is unknown."""
        return self._source.nbytes

    @property
    def sample_weight(self) -> npt.NDArray[np.float64] | None:
        """Weights of the rows of a coreset; None for other rows."""
        return self._weights

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the columns of a table; None if there are none."""
        return find_names(self._header)

    @property
    def _total_weight(self) -> float:
        """Sum of the weights; the number of rows if there are none."""
        return len(self) if self.sample_weight is None else float(self.sample_weight.sum())

    def __len__(self) -> int:
        """Return the number of rows."""
        rows = self.shape[0]
        if rows is None:
            raise TypeError(f"the source ({self._name}) has no length: only a pass can tell its rows")
        return rows

    def __repr__(self) -> str:
        """Show name, shape, type and access."""
        if self._open is None:
            return f"<DataSource {self._name}, closed>"
        rows, cols = self.shape
        known = "unknown" if rows is None else rows
        kind = f"sparse {self._open.dtype}" if self.sparse else self._open.dtype
        weighted = "" if self.sample_weight is None else ", weighted"
        return f"<DataSource {self._name}: {known} x {cols} {kind}, access {self.access}{weighted}>"

    def blocks(self, rows: int | None = None) -> Iterator[Any]:
        """Iterate over all rows in order, one block at a time.

        Parameters
        ----------
        rows : int, optional
            Rows per block, at least 1. The last block may have fewer. Default: about 8 MiB per block, or the
            blocks of a stream as they come.

        Yields
        ------
        ndarray or scipy.sparse.csr_array of shape (n_rows, n_features)
            A copy of the next rows, of type :attr:`dtype`, sparse if the source is. For a stream, the block
            itself, which may be read-only. Iterating consumes a source with access ``"once"``.
        """
        source = self._source
        size = None if rows is None else whole("rows", rows, 1)
        n, d = source.shape
        if self._make is not None:
            blocks = self._make()
            if source.dtype == NAME:
                blocks = (widened(block) for block in blocks)
            return blocks if size is None else cut_blocks(blocks, size)
        assert n is not None
        if size is None:
            row = (source.nbytes or 0) / max(1, n) if source.sparse else d * self.dtype.itemsize
            size = max(1, int(BLOCK_BYTES / max(1, row)))
        if source.sparse:
            return (read_csr(source, start, min(n, start + size)) for start in range(0, n, size))
        return (source.read(start, min(n, start + size)) for start in range(0, n, size))

    def _prefetched(self, rows: int | None = None) -> Prefetch:
        """Return :meth:`blocks` with one block prefetched in a thread."""
        return Prefetch(self.blocks(rows))

    def _batches(self, rows: int | None = None) -> Prefetch:
        """Return the blocks of a stream, whose rows may come in another order than in the other passes."""
        with self._in_any_order():
            return self._prefetched(rows)

    def _in_any_order(self) -> AbstractContextManager[None]:
        """Let passes that begin within the context have another order of rows."""
        if self._view is not None:
            return self._view[0]._in_any_order()
        context: AbstractContextManager[None] = getattr(self._make, "in_any_order", nullcontext)()
        return context

    def take(self, indices: npt.ArrayLike) -> npt.NDArray[Any]:
        """Copy single rows.

        Parameters
        ----------
        indices : array-like of int, shape (m,)
            Row numbers in any order. Repeats are allowed. Negative numbers count from the end, if the number
            of rows is known. A stream is read up to the last of these rows.

        Returns
        -------
        ndarray of shape (m, n_features)
            The rows as a dense array of type :attr:`dtype`.

        Raises
        ------
        IndexError
            If a row does not exist.
        ValueError
            If the source is a stream that can be read only once.
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
            raise IndexError(f"row {bad[0]} does not exist: the source has {known} rows")
        index = wanted.astype(np.int64)
        index = index if n is None else np.where(index < 0, index + n, index)
        if self.dtype.kind in "iu" and self.dtype.itemsize == 8:
            return self._taken(index)
        # All other types convert to the compute type and back without rounding.
        return self._source.take(index).astype(self.dtype, copy=False)

    def _taken(self, index: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Copy single rows from blocks, which hold integers of 64 bits exactly."""
        wanted, places = np.unique(index, return_inverse=True)
        parts: list[Any] = [np.empty((0, self.shape[1]), dtype=self.dtype)]
        if self.sparse:
            parts += [read_csr(self._source, row, row + 1).toarray() for row in wanted.tolist()]
        elif self.access == "random":
            parts += [self._source.read(row, row + 1) for row in wanted.tolist()]
        else:
            start = 0
            with self._prefetched() as blocks:
                for block in blocks:
                    inside = wanted[(start <= wanted) & (wanted < start + len(block))]
                    parts.append(block[inside - start])
                    start += len(block)
                    if not len(wanted) or start > wanted[-1]:
                        break
                else:
                    raise IndexError(f"row {wanted[-1]} does not exist: the source has {start} rows")
        return np.concatenate(parts)[places]

    def slice(self, start: int, stop: int) -> DataSource:
        """Return consecutive rows as a source, without copying.

        Parameters
        ----------
        start, stop : int
            First row, and the row after the last: ``0 <= start <= stop <= n_rows``.

        Returns
        -------
        DataSource
            The rows, numbered from 0.

        Raises
        ------
        ValueError
            If the source is a stream. Write it to a file with :func:`shoal.write` and open the file.
        IndexError
            If the rows do not lie within the source.
        """
        if self._open is not None and self._view is not None:
            base, transform = self._view
            return base.slice(start, stop)._by(transform)
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
            self._source.slice(start, stop),
            f"{self._name}, rows {start}..{stop}",
            header=self._header,
            table=self._table,
            weights=None if self.sample_weight is None else self.sample_weight[start:stop],
        )
        part._path, part._shards = self._path, self._shards
        part._reopen, part._slices = self._reopen, (*self._slices, (start, stop))
        return part

    def normalize(self) -> DataSource:
        """Divide each row by its Euclidean norm as it is read.

        Returns
        -------
        DataSource
            Rows of length 1, of the compute type, with the access of this source. Rows of zeros stay zeros,
            and sparse rows stay sparse.

        See Also
        --------
        sklearn.preprocessing.Normalizer : The same for rows in memory.

        Examples
        --------
        >>> import numpy as np, shoal
        >>> shoal.open(np.array([[3.0, 4.0], [0.0, 0.0]])).normalize().take([0, 1])
        array([[0.6, 0.8],
               [0. , 0. ]])
        """
        from .transforms import Normalize

        return self._by(Normalize())

    def standardize(
        self, mean: npt.ArrayLike | None = None, scale: npt.ArrayLike | None = None
    ) -> DataSource:
        """Return the rows as ``(x - mean) / scale``, computed as they are read.

        Parameters
        ----------
        mean : float or array-like of shape (n_features,), optional
            What is subtracted. Default: the mean of each column. Sparse rows need ``mean=0``, because any
            other mean would fill in the zeros.
        scale : float or array-like of shape (n_features,), optional
            What columns are divided by, above 0. Default: the standard deviation of each column about its
            measured mean, and 1 for constant columns, as in ``StandardScaler``.

        Returns
        -------
        DataSource
            Rows of the compute type, with the access of this source. Its attributes `mean_` and `scale_` hold
            the values used.

        Raises
        ------
        ValueError
            If a value is not valid, if a measured column holds NaN or infinity, or if `mean` or `scale` is
            missing for a source that can be read only once.

        See Also
        --------
        sklearn.preprocessing.StandardScaler : The same for rows in memory.

        Notes
        -----
        What is not given is measured in one pass, in ``float64``, with the weights of the rows if the source
        has weights. The result is bit-identical for any number of threads. Each value is computed in
        ``float64`` and rounded once.

        Examples
        --------
        >>> import numpy as np, shoal
        >>> rows = shoal.open(np.array([[1.0, 7.0], [3.0, 7.0]])).standardize()
        >>> rows.take([0, 1])
        array([[-1.,  0.],
               [ 1.,  0.]])
        >>> rows.mean_, rows.scale_
        (array([2., 7.]), array([1., 1.]))
        """
        from .transforms import make_standardization

        return self._by(make_standardization(self, mean, scale))

    def project(self, components: npt.ArrayLike, mean: npt.ArrayLike | None = None) -> DataSource:
        """Return the rows as ``(x - mean) @ components.T``, computed as they are read.

        Parameters
        ----------
        components : array-like of shape (n_components, n_features)
            For example ``components_`` of a ``PCA``, an ``IncrementalPCA`` or a random projection.
        mean : float or array-like of shape (n_features,), optional
            What is subtracted first, for example ``mean_`` of a ``PCA``. Default: nothing.

        Returns
        -------
        DataSource
            Dense rows of `n_components` columns and the compute type, with the access of this source.

        Raises
        ------
        ValueError
            If shapes do not match or a value is not finite.

        See Also
        --------
        sklearn.decomposition.IncrementalPCA : Finds components from the blocks of a source.

        Notes
        -----
        Every pass projects the rows again, in ``n_features * n_components`` multiply-adds per row: as many
        as the distances to `n_features` centers. For many passes, write the projected rows to a file with
        :func:`shoal.write`.

        Differences from the mean are computed in ``float64`` and rounded to the compute type. Products are
        summed in the compute type, in blocks of 256 columns: ``float32`` rows have an error of about 1e-6 of
        the norms. The result is bit-identical for any number of threads. Other processors may round
        differently.

        Examples
        --------
        >>> import numpy as np, shoal
        >>> shoal.open(np.array([[1.0, 2.0], [3.0, 5.0]])).project([[1, 1]], mean=[1, 2]).take([0, 1])
        array([[0.],
               [5.]])
        """
        from .transforms import make_projection

        return self._by(make_projection(self, components, mean))

    def map(
        self, fn: Callable[[Any], Any], *, dim: int | None = None, dtype: npt.DTypeLike | None = None
    ) -> DataSource:
        """Call a function with every block of rows as it is read.

        Parameters
        ----------
        fn : callable
            ``fn(block)`` takes a 2-D array of the stored type (a CSR array if the source is sparse), and
            returns a 2-D array of numbers with one row per row of the block. A row of the result must depend
            only on the same row of the block: the lengths of blocks vary.
        dim : int, optional
            Columns of the result. Default: `fn` is called with some of the first rows to find out.
        dtype : dtype, optional
            Type of the result, which is converted to it. Default: the type of the result for the first rows.
            All blocks must then have this type.

        Returns
        -------
        DataSource
            A stream with access ``"replay"``, or ``"once"`` if this source has it. A slice is possible if
            this source has random access.

        Raises
        ------
        TypeError
            If `fn` is not callable.
        ValueError
            If `fn` returns another number of rows or columns or another type, which is checked for each
            block.

        Notes
        -----
        `fn` is called again in every pass, one block ahead, in another thread. Its exceptions are raised
        unchanged. Methods that need random access take the result after it was written with
        :func:`shoal.write`. The source can be pickled if this source and `fn` can.

        Examples
        --------
        >>> import numpy as np, shoal
        >>> rows = shoal.open(np.array([[1, 4], [9, 16]])).map(np.sqrt)
        >>> rows
        <DataSource array, mapped by sqrt: 2 x 2 float64, access replay>
        >>> np.asarray(rows)
        array([[1., 2.],
               [3., 4.]])
        """
        from .transforms import map_rows

        return map_rows(self, fn, dim, dtype)

    @property
    def mean_(self) -> npt.NDArray[np.float64] | None:
        """What :meth:`standardize` subtracts from each column; None for other sources."""
        standard = self._standard
        return None if standard is None else standard.mean

    @property
    def scale_(self) -> npt.NDArray[np.float64] | None:
        """What :meth:`standardize` divides each column by; None for other sources."""
        standard = self._standard
        return None if standard is None else standard.scale

    @property
    def _standard(self) -> Standardize | None:
        from .transforms import Standardize

        transform = self._view and self._view[1]
        return transform if isinstance(transform, Standardize) else None

    def _by(self, transform: Transform) -> Self:
        """Return the rows of this source, transformed."""
        # A copy, which stays open when this source is closed.
        base = self.__copy__()
        made = self.__copy__()
        made._open, made._make = transform.over(base)
        made._name = f"{self._name}, {transform.name}"
        made._header = self._header if transform.keeps_names else None
        made._view, made._reopen = (base, transform), None
        return made

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Copy all rows into an array, for ``numpy.asarray``."""
        if self.sparse:
            raise TypeError(
                f"the source ({self._name}) is sparse, and would not be as an array: use "
                "scipy.sparse.vstack(list(source.blocks()))"
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

    def __copy__(self) -> Self:
        """Return a source of the same rows."""
        made = object.__new__(type(self))
        made.__dict__.update(vars(self))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path, the options and the transforms, not the rows."""
        rows = self._source
        if self._view is not None:
            return restore_transformed, self._view
        if self._reopen is None:
            raise TypeError(
                f"the source ({self._name}) was not opened by the path of a file, and cannot be pickled or "
                "copied: pass a path, or what it was made from"
            )
        shape = (rows.shape, rows.dtype)
        path = self._path if self._shards is None else self._shards
        return self._reopen, (path, self._slices, shape, self._name)

    def close(self) -> None:
        """Close the source. Arrays made from it stay valid."""
        self._open = self._make = None

    def __enter__(self) -> DataSource:
        """Return the source."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the source."""
        self.close()


def restore_transformed(base: DataSource, transform: Transform) -> DataSource:
    """Restore a transformed source from a pickle."""
    return base._by(transform)
