"""Where rows come from: arrays, files and streams, opened but not loaded."""

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

from . import formats
from ._ahead import Ahead
from ._blocks import Blocks, Fresh, Passes, Single, begun, converted, is_once, is_stream, recut
from ._core import Source
from ._files import is_name
from ._params import shown, whole
from ._sparse import csr_of, is_sparse
from .formats.stream import Stream, listed
from .formats.stream import chunk_limit as limit_of

__all__ = ["DataSource", "open"]

#: What can be opened now; other suffixes are refused by name.
SUPPORTED = (
    "arrays, SciPy's sparse matrices and .npz files of them, streams of blocks, .npy, .fvecs, .bvecs, "
    f".ivecs, .fbin, .u8bin, .i8bin, .ibin, {', '.join(formats.SUFFIXES)} files, and raw files of any other "
    "name given with shape= and dtype="
)
#: What opens the files that are mapped or loaded and say themselves what they hold, by the end of their name.
MAPPED: dict[str, Callable[[str], Source]] = {
    ".npy": Source.open_npy,
    **dict.fromkeys((".fvecs", ".bvecs", ".ivecs"), Source.open_vecs),
    **dict.fromkeys((".fbin", ".u8bin", ".i8bin", ".ibin"), Source.open_bin),
}

BLOCK_BYTES = 8 << 20
#: Sparse rows that are looked through at a time for some of them.
SPARSE_ROWS = 1 << 14


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
        # What a copy in another process is made by: options of `open_path`, and slices, one within the other.
        self._reopened_with: dict[str, Any] | None = None
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

    def _ahead(self, rows: int | None = None) -> Ahead:
        """Give :meth:`blocks`, each pulled in another thread while the one before is worked on."""
        return Ahead(self.blocks(rows))

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
        part._reopened_with, part._slices = self._reopened_with, (*self._slices, (start, stop))
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
        if self._reopened_with is None:
            raise TypeError(
                f"the source ({self._name}) was not opened by the path of a file, and cannot be pickled or "
                "copied: pass a path, or what it was made from"
            )
        shape = (rows.shape, rows.dtype)
        return _reopened, (str(self._path), self._reopened_with, self._slices, shape, self._name)

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


def open(
    obj: Any,
    *,
    shape: tuple[int, int] | None = None,
    dtype: npt.DTypeLike | None = None,
    columns: Sequence[Any] | None = None,
    key: str | None = None,
    chunk_limit: int | str | None = None,
) -> DataSource:
    """Open rows as a source, without loading them.

    Parameters
    ----------
    obj : array-like, path, iterator, callable, object of another library or DataSource
        A 2-D array (any strides), or anything that becomes one (a numeric frame, a list). A sparse matrix or
        array of SciPy: CSR is read in place, others are converted, with a warning.

        The path of a file: a str, bytes or an os.PathLike. Mapped: ``.npy``, ``.fvecs``, ``.bvecs``,
        ``.ivecs``, ``.fbin``, ``.u8bin``, ``.i8bin``, ``.ibin``, ``.safetensors``, and files of row-major
        numbers without a header, together with `shape` and `dtype`. Loaded, once: ``.npz`` files that
        ``scipy.sparse.save_npz`` wrote. Read a block at a time, as often as there are passes:
        ``.parquet`` (or a folder of them, without folders of its own), ``.arrow`` and ``.feather`` (extra
        ``arrow``), ``.h5`` and ``.hdf5`` (extra ``hdf5``), ``.zarr`` (extra ``zarr``).

        A stream: an iterator of blocks, each of which may be anything that becomes an array, or a callable
        without arguments that returns a fresh one for each pass.

        Rows of another library that are not loaded: ``h5py.Dataset`` (its file must stay open),
        ``zarr.Array``, ``pyarrow.dataset.Dataset``, ``pyarrow.RecordBatchReader``, and whatever else has
        ``__arrow_c_stream__`` and does not become an array; it is read once if it has no length. A column
        of vectors of a table of pyarrow or a frame of polars is read in place, if it is in one piece.
    shape : tuple of (int, int), optional
        Rows and columns of a raw file, whose rows begin at its first byte.
    dtype : dtype, optional
        Type of the numbers of a raw file, little-endian: bool, (u)int8 to (u)int64, float16 to float64,
        ``"bfloat16"``.
    columns : list of names, optional
        Of a frame, and of Arrow and Parquet data: the columns to take. Those have either one column of
        vectors (FixedSizeList, FixedShapeTensor), or columns of numbers, which get their common type.
        Default: all.
    key : str, optional
        Of an HDF5, zarr or safetensors file: the name of the array. Default: the only one.
    chunk_limit : int or str, optional
        The most memory that one chunk of a Parquet, HDF5, zarr or ``.npz`` file or a compressed batch of an
        Arrow file may take unpacked, as bytes or as text such as ``"4GB"``. Other rows take no such limit.
        Default: what the environment variable ``SHOAL_CHUNK_LIMIT`` says, else 1 GB.

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
    ImportError
        When a package is missing that a file needs; the message says what to install.

    Notes
    -----
    A stream is read in bounded memory: while a block is worked on, a second thread asks for the next one, and
    keeps no other. All its blocks must have as many columns as the first one, and its type. The first block
    is read at once; a callable is called once more for that. What the iterator raises is raised as it is. A
    generator is closed at the end of each pass, also of one that ends early.

    The columns of a table keep their names: estimators note them in ``feature_names_in_``, and refuse a table
    with others, or with the same in another order. One column of vectors has no names. Of a stream of frames
    the names are those of the first block, which later frames must have too.

    A source that yields a different number of rows than it announced raises ``ValueError``.

    Every row of an ``.fvecs``, ``.bvecs`` or ``.ivecs`` file is led by its length. Some rows of the file are
    checked at once, the others when they are read: a pass over a damaged file ends in an error.

    A block of a file has about 8 MiB. More is read at a time where the file leaves no choice: a whole chunk
    of an HDF5 or zarr array, a whole compressed batch of Arrow. A few bytes of a damaged file can claim a
    chunk of many gigabytes. `chunk_limit` bounds the chunks of an HDF5 or zarr array that lie beside each
    other in the same rows, a page of a Parquet file, a compressed batch of an Arrow file (all columns
    together), and all arrays of an ``.npz`` file together, which may always take a hundred times the size of
    the file. What takes more is refused before any memory is
    allocated for it.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> source = shoal.open(np.arange(6, dtype="uint8").reshape(3, 2))
    >>> source.shape, source.dtype.name
    ((3, 2), 'uint8')
    >>> stream = shoal.open(lambda: (np.full((2, 3), i, dtype="float32") for i in range(4)))
    >>> stream.shape, stream.access
    ((None, 3), 'replay')
    """
    if columns is not None:
        columns = named(columns)
    if isinstance(obj, DataSource):
        if any(option is not None for option in (shape, dtype, columns, key, chunk_limit)):
            raise ValueError(
                "shape, dtype, columns, key and chunk_limit belong to what is opened first: this is an open "
                "source"
            )
        return obj
    if is_name(obj):
        return open_path(os.fspath(obj), shape, dtype, columns, key, argument="obj", limit=chunk_limit)
    if shape is not None or dtype is not None:
        raise ValueError("shape and dtype describe a raw file: an array has its own")
    if key is not None:
        raise ValueError(f"key={key!r} is for files of several arrays, got {type(obj).__name__}")
    source = open_object(obj, columns, chunk_limit)
    if source is not None:
        return source
    if columns is not None:
        if not hasattr(obj, "columns"):
            raise ValueError(f"columns={columns!r} is for frames, got {type(obj).__name__}")
        # As frames of pyarrow and polars have it, else as those of pandas.
        obj = obj.select(columns) if hasattr(type(obj), "select") else obj[columns]
    from sklearn.utils.validation import check_array

    # Rows may be none at all here: what works on them says how many it needs.
    header = header_of(obj)
    rows = as_rows(obj, partial(check_array, accept_sparse="csr", ensure_min_samples=0))
    name = "sparse matrix" if is_sparse(rows) else "array"
    return DataSource(source_of_values(rows), name, path=file_of(rows), header=header)


def _reopened(
    path: str,
    options: dict[str, Any],
    slices: tuple[tuple[int, int], ...],
    shape: tuple[tuple[int | None, int], str],
    name: str,
) -> DataSource:
    """Open a file again, where a source of it was pickled or copied."""
    source = open_path(path, **options, argument="source")
    for start, stop in slices:
        n = len(source)
        if stop > n:
            raise ValueError(f"{path}: has {n} rows, and had {stop} or more when the source was pickled")
        source = source.slice(start, stop)
    found = (source._source.shape, source._source.dtype)
    if found != shape:
        raise ValueError(
            f"{path}: holds {found[0]} {found[1]}, and held {shape[0]} {shape[1]} when the source was pickled"
        )
    source._name = name
    return source


def says_itself(name: str) -> bool:
    """Whether a file of that name says itself what rows it holds."""
    suffix = formats.suffix_of(name)
    return suffix in MAPPED or suffix in formats.SUFFIXES or suffix == ".npz"


def named(columns: Any) -> list[Any]:
    """Give the columns that are asked for as a list; a single name may stand for itself."""
    if isinstance(columns, str):
        return [columns]
    try:
        return list(columns)
    except TypeError:
        raise ValueError(f"columns must be a list of names, got {shown(columns)}") from None


def open_path(
    path: str | bytes,
    shape: tuple[int, int] | None = None,
    dtype: npt.DTypeLike | None = None,
    columns: list[Any] | None = None,
    key: str | None = None,
    *,
    argument: str = "X",
    limit: int | str | None = None,
) -> DataSource:
    """Open a file by its name, which came as `argument`; a source that pickles by it.

    `limit` is that of a chunk.
    """
    source = _open_path(path, shape, dtype, columns, key, argument, limit)
    source._reopened_with = {"shape": shape, "dtype": dtype, "columns": columns, "key": key, "limit": limit}
    return source


def _open_path(
    path: str | bytes,
    shape: tuple[int, int] | None,
    dtype: npt.DTypeLike | None,
    columns: list[Any] | None,
    key: str | None,
    argument: str,
    limit: int | str | None,
) -> DataSource:
    name = os.fsdecode(path)
    if not name:
        raise ValueError(f"{argument} must be rows or the path of a file, got an empty path: {path!r}")
    if "\0" in name:
        raise ValueError(f"{argument} must be the path of a file, got one with a null character: {path!r}")
    suffix = formats.suffix_of(name)
    known = says_itself(name)
    if known and (shape is not None or dtype is not None):
        raise ValueError(f"{name}: an {suffix} file has its own shape and dtype, leave them out")
    if suffix in formats.SUFFIXES:
        return found_source(formats.of_file(name, suffix, columns, key, limit), name, path=name)
    for option, given in (("columns", columns), ("key", key), ("chunk_limit", limit)):
        if option == "chunk_limit" and suffix == ".npz":
            continue
        if given is not None:
            raise ValueError(f"{name}: {option}={given!r} does not belong to {suffix or 'such'} files")
    if suffix in MAPPED:
        return DataSource(MAPPED[suffix](name), name, path=name)
    if suffix == ".npz":
        return DataSource(sparse_source(load_npz(name, limit_of(limit))), name, path=name)
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
    return DataSource(Source.open_raw(name, stored, rows, cols), name, path=name)


def open_object(
    obj: Any, columns: list[Any] | None = None, limit: int | str | None = None
) -> DataSource | None:
    """Open an object that is neither an array nor array-like: None for those that are."""
    found = formats.of_object(obj, columns, limit)
    if limit is not None and not formats.is_chunked(obj):
        raise ValueError(f"chunk_limit={limit!r} does not belong to {type(obj).__name__} objects")
    if found is not None:
        return found_source(found, type(obj).__name__)
    if not is_stream(obj):
        return None
    if columns is not None:
        raise ValueError(f"columns={columns!r} is for frames: choose the columns of each block")
    return open_stream(obj)


def found_source(found: Stream | Source, name: str, path: str | None = None) -> DataSource:
    """Make a source of what a module of `formats` gives, which may have been read from a file."""
    if isinstance(found, Source):
        return DataSource(found, name, path=path)
    make = Single(found.blocks()) if found.once else found.blocks
    return stream_source(
        make,
        found.cols,
        found.dtype,
        name=found.name,
        once=found.once,
        rows=found.rows,
        path=path,
        header=found.header,
    )


def open_stream(obj: Any) -> DataSource:
    """Open an iterator of blocks, or a callable that returns a fresh one for each pass."""
    from sklearn.utils.validation import check_array

    names = SameNames()

    def rows_of(block: Any) -> npt.NDArray[Any]:
        rows = native(as_rows(block, partial(check_array, ensure_min_samples=0)))
        if len(rows):
            names.check(block)
        return rows

    if is_once(obj):
        first, blocks = begun(converted(obj, rows_of))
        make: Callable[[], Blocks] = Single(blocks)
        name, once = "iterator", True
    else:
        fresh = Fresh(obj)
        first, blocks = begun(converted(fresh(), rows_of))
        blocks.close()
        name, once = "callable", False

        def make() -> Blocks:
            return converted(fresh(), rows_of)

    return stream_source(make, first.shape[1], first.dtype, name=name, once=once, header=names.header)


class SameNames:
    """The names of features in the first block of a stream; others that have names must have the same."""

    def __init__(self) -> None:
        self.header: Any = None
        self._names: list[str] | None = None
        self._begun = False

    def check(self, block: Any) -> None:
        """Refuse a block with other names than the first one."""
        header = header_of(block)
        if not self._begun:
            self.header, self._names, self._begun = header, names_of(header), True
        elif header is not None and self._names is not None:
            names = names_of(header)
            if names is not None and names != self._names:
                raise ValueError(f"its features are {listed(names)}, those of X are {listed(self._names)}")


def stream_source(
    make: Callable[[], Blocks],
    cols: int,
    dtype: npt.DTypeLike,
    *,
    name: str,
    once: bool = False,
    rows: int | None = None,
    path: str | None = None,
    header: Any = None,
) -> DataSource:
    """Make a source of blocks that are pulled one ahead of the work, in another thread.

    Parameters
    ----------
    make : callable
        Gives the blocks of one pass: 2-D arrays in native byte order, which stay as they are. Closed at the
        end of the pass, if they can be. Called again for each pass; what can be had `once` is a `Single`.
    cols, dtype
        Columns and type of every block.
    name : str
        What messages call the source.
    once : bool
        Whether there is one pass only.
    rows : int, optional
        Number of rows, if it is known; every pass must give as many.
    path : str, optional
        File or folder that the blocks are read from.
    header : frame, optional
        A frame without rows whose columns are the features, where these have names.

    Returns
    -------
    DataSource
    """
    passes = Passes(make, cols, np.dtype(dtype), rows, name="X" if path is None else f"{name}: X")
    source = Source.from_stream(lambda: Ahead(passes()), once, cols, np.dtype(dtype).name, rows)
    return DataSource(source, name, passes, path, header)


#: Libraries whose frames name their columns.
FRAMES = {"cudf", "modin", "pandas", "polars", "pyarrow"}


def header_of(obj: Any) -> Any:
    """Give a frame without rows that has the columns of `obj`; None for what is no frame."""
    libraries = {cls.__module__.partition(".")[0] for cls in type(obj).__mro__}
    if not libraries & FRAMES or not hasattr(obj, "columns") or not hasattr(obj, "shape"):
        return None
    # As frames of pandas have it, else as those of polars and pyarrow.
    return obj.iloc[:0] if hasattr(obj, "iloc") else table_of(obj).slice(0, 0)


def table_of(obj: Any) -> Any:
    """Give a batch of pyarrow as a table, in place: scikit-learn takes the names of tables alone."""
    if type(obj).__name__ == "RecordBatch" and type(obj).__module__.startswith("pyarrow"):
        import pyarrow as pa

        return pa.Table.from_batches([obj])
    return obj


def names_of(header: Any) -> list[str] | None:
    """Give the names that scikit-learn finds in a frame; None where there are none, or they are no texts."""
    if header is None:
        return None
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import validate_data

    noted = BaseEstimator()
    validate_data(noted, header, skip_check_array=True)
    names = getattr(noted, "feature_names_in_", None)
    return None if names is None else list(names)


def file_of(X: Any) -> str | None:
    """Give the file or folder that rows are read from; None where they are not, or NumPy does not tell."""
    if is_name(X):
        return os.fsdecode(X)
    if isinstance(X, DataSource):
        return None if X._path is None else str(X._path)
    while isinstance(X, np.ndarray):
        name = getattr(X, "filename", None)
        if isinstance(X, np.memmap) and name is not None:
            return os.fsdecode(name)
        # What it is a view of.
        X = X.base
    return None


def is_same_file(one: str, other: str) -> bool:
    """Whether two names, of files that may not be there yet, are those of one."""
    if Path(one).resolve() == Path(other).resolve():
        return True
    try:
        return Path(one).samefile(other)
    except OSError:
        return False


def refuse_over(X: Any, argument: str, name: str) -> None:
    """Refuse to write the file `name`, which came as `argument`, where it is what rows are read from."""
    read = file_of(X)
    if read is None:
        return
    if is_same_file(read, name):
        raise ValueError(f"{argument}={name!r} is the file that is read: choose another name")
    # No part of rows in a folder is an .npy file; a .parquet file would become one.
    folder, file = Path(read).resolve(), Path(name).resolve()
    if folder in file.parents and (file.suffix == ".parquet" or (file.suffix != ".npy" and file.exists())):
        raise ValueError(f"{argument}={name!r} lies in the folder that is read: choose another name")


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


def load_npz(name: str, limit: int) -> Any:
    """Load the sparse matrix that an .npz file holds, in rows."""
    from scipy.sparse import load_npz as load

    from .formats.npz import checked_npz, most_unpacked
    from .formats.stream import refuse_large, told_of

    with told_of(name, "holds no sparse matrix as scipy.sparse.save_npz writes it"):
        with checked_npz(name, limit) as file:
            matrix = load(file)
            if matrix.ndim != 2:
                raise ValueError(f"rows must be a 2-D matrix, got {matrix.ndim}-D")
            refuse_large(name, "an index of its rows", 8 * (matrix.shape[0] + 1), most_unpacked(name, limit))
        rows = csr_of(matrix, "it")
    warn_of_format(matrix)
    return rows


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
