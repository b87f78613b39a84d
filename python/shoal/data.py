"""Opens arrays, files and streams as sources of rows, without loading them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy.typing as npt

from ._files.staged import is_name
from ._rows.arrays import as_rows, source_of_values
from ._rows.features import header_of
from ._rows.opening import list_names, open_object, open_path
from ._rows.overwriting import file_read_by
from ._rows.paths import is_paths
from ._rows.source import DataSource
from ._rows.sparse import is_sparse
from .formats import table_of
from .formats.stream import Reading
from .typing import Rows

__all__ = ["DataSource", "open"]


def open(
    obj: Rows,
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
    obj : array-like, path, list of paths, iterable, callable, coreset, other object or DataSource
        A 2-D array (any strides), or an object that converts to one, such as a numeric data frame, a list, or
        a tensor in the memory of the CPU (PyTorch, JAX, any library with DLPack). bfloat16 arrays of PyTorch
        and ml_dtypes are read in place.
        A sparse matrix or array of SciPy: CSR is read in place, other formats are converted with a warning.

        The path of a file, as str, bytes or os.PathLike:

        - Memory-mapped: ``.npy``, ``.fvecs``, ``.bvecs``, ``.ivecs``, ``.fbin``, ``.u8bin``, ``.i8bin``,
          ``.ibin``, ``.safetensors``, and raw files of row-major numbers, with `shape` and `dtype`.
        - ``.npz``: the array `key`, else ``X``, else the only 2-D array; memory-mapped unless it is
          compressed. Sparse matrices (``scipy.sparse.save_npz``) and coresets (:meth:`Coreset.save`) are
          loaded.
        - Read block by block in every pass: ``.parquet``, ``.arrow`` and ``.feather``, ``.csv``
          and ``.tsv`` also with ``.gz`` (extra ``arrow``), ``.h5`` and ``.hdf5`` (extra ``hdf5``), ``.zarr``
          (extra ``zarr``).

        The URL of a ``.npy``, ``.parquet``, ``.csv`` or ``.tsv`` file, such as ``s3://bucket/rows.npy``: read
        block by block in every pass (extra ``remote``).

        Many files as one source: a list of paths, read in its order; a glob (also with ``**``) or a folder
        (without subfolders), whose files are sorted by name as text.

        A stream: an iterator of blocks, a list of blocks, an object whose ``__iter__`` begins again each time
        (such as a ``DataLoader`` of PyTorch), or a callable without arguments that returns a fresh iterator
        for each pass. A block is any object that converts to an array, or a tuple or list of one such object.
        A list of anything but arrays or frames with two axes is a list of rows.

        A binary file object, such as ``sys.stdin.buffer``, with the contents of an ``.npy`` or ``.csv`` file:
        a stream that can be read once.

        A :class:`shoal.Coreset`: its points, with their weights in ``DataSource.sample_weight``.

        Rows of another library that are not loaded: ``h5py.Dataset`` (its file must stay open),
        ``zarr.Array``, datasets of Hugging Face, ``pyarrow.dataset.Dataset``, ``pyarrow.RecordBatchReader``,
        and other objects with ``__arrow_c_stream__`` that do not convert to an array, results of DuckDB and
        cursors of ADBC. Objects without a length can be read only once. LazyFrames of polars and relations of
        DuckDB run again for each pass. A column of vectors in a pyarrow table or polars frame is read in
        place if it is one chunk; in a pandas frame or Series it is copied.
    shape : tuple of (int, int), optional
        Number of rows and columns of a raw file. The rows begin at its first byte.
    dtype : dtype, optional
        Type of the numbers of a raw file, little-endian: bool, (u)int8 to (u)int64, float16 to float64,
        ``"bfloat16"``. Of a CSV file: float32 or float64, the default.
    columns : list of names, optional
        Columns of a table: either one column of vectors (lists of one length, FixedSizeList,
        FixedShapeTensor), or columns of numbers, which get their common type. Default: all. For a CSV file
        without a line of names: a name for each of its columns. For one whose names are numbers: some of the
        names.
    key : str, optional
        Name of the array in an HDF5, zarr, safetensors or ``.npz`` file. Default: the only array.
    chunk_limit : int or str, optional
        Upper limit of the unpacked size of one chunk of a Parquet, HDF5, zarr or ``.npz`` file, or of one
        compressed batch of an Arrow file: bytes, or text such as ``"4GB"``. Other rows have no chunks.
        Default: the environment variable ``SHOAL_CHUNK_LIMIT``, else 1 GB.

    Returns
    -------
    DataSource

    Raises
    ------
    OSError
        If the file cannot be opened.
    ValueError
        If the file is damaged, or its format is not supported.
    TypeError
        If values are complex or not numbers.
    ImportError
        If a package that the format needs is missing. The message says what to install.

    Notes
    -----
    Many files must have one format, and the same number of columns, type and column names; they may have any
    number of rows. Memory-mapped files have random access together, and give the results of one file with the
    same rows. A file that changes after it was opened is an error of the next pass. The number of open files
    is bounded.

    A stream is read in bounded memory: a thread prefetches one block. All blocks must have the type and the
    number of columns of the first block. The first block is read when the stream is opened, for which a
    callable is called one extra time. Every pass must give the same rows in the same order: the first row and
    every 64th row are compared, and a difference raises ``ValueError``. ``partial_fit`` takes any order.
    Exceptions of the iterator are raised unchanged. A generator is closed
    at the end of each pass, also if the pass ends early.

    The columns of a table keep their names. Estimators store them in ``feature_names_in_``, and raise
    ``ValueError`` for a table with other names or another order. One column of vectors has no names. In a
    stream of data frames, all frames must have the names of the first block.

    Lists must have the length of the first row. A list of another length, a missing list and a missing value
    in a list raise ``ValueError`` with the number of the row.

    A query must give the same rows in the same order in each pass. A checksum of each complete pass is
    compared with the one of the first pass; if they differ, ``ValueError`` is raised.

    In a CSV file all numbers are parsed as `dtype`. The first line holds the names of the columns if
    `columns` are among its cells, or if a cell above numbers is a name: neither a number, nor a truth value,
    nor empty or another spelling of a missing value, such as ``NA``. Otherwise `columns` must tell the names.
    Empty cells and cells that hold no number raise ``ValueError`` with the column and the row, counted from 0
    after the line of names. Blank lines are skipped.

    A source that yields a different number of rows than it announced raises ``ValueError``.

    In ``.fvecs``, ``.bvecs`` and ``.ivecs`` files every row begins with its length. Some of these lengths are
    checked when the file is opened, the others when the rows are read.

    A block of a file has about 8 MiB. Some formats are read in larger pieces: whole chunks of an HDF5 or zarr
    array, whole compressed batches of an Arrow file. A few bytes of a damaged file can claim a chunk of many
    gigabytes, so `chunk_limit` is checked before memory is allocated. It limits the total size of the chunks
    of an HDF5 or zarr array that hold the same rows, one page of a Parquet file, one compressed batch of an
    Arrow file (all columns together), and all arrays of an ``.npz`` file together. An ``.npz`` file may
    always unpack to 100 times its size.

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
        columns = list_names(columns)
    if isinstance(obj, DataSource):
        if any(option is not None for option in (shape, dtype, columns, key, chunk_limit)):
            raise ValueError(
                "shape, dtype, columns, key and chunk_limit belong to what is opened first: this is an open "
                "source"
            )
        return obj
    if is_name(obj) or is_paths(obj):
        return open_path(obj, Reading(shape, dtype, columns, key, chunk_limit), argument="obj")
    if shape is not None or dtype is not None:
        raise ValueError("shape and dtype describe a raw file: an array has its own")
    if key is not None:
        raise ValueError(f"key={key!r} is for files of several arrays, got {type(obj).__name__}")
    source = open_object(obj, columns, chunk_limit)
    if source is not None:
        return source
    given = obj
    if columns is not None:
        if not hasattr(obj, "columns"):
            raise ValueError(f"columns={columns!r} is for frames, got {type(obj).__name__}")
        frame: Any = obj
        # pyarrow and polars have `select`, pandas does not.
        obj = frame.select(columns) if hasattr(type(obj), "select") else frame[columns]
    header = header_of(obj)
    # No rows are allowed here: each algorithm checks how many rows it needs.
    rows = as_rows(obj, least=0)
    name = "sparse matrix" if is_sparse(rows) else "array"
    table = partial(table_of, given, columns)
    return DataSource(source_of_values(rows), name, path=file_read_by(rows), header=header, table=table)
