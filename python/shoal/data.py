"""Opens arrays, files and streams as sources of rows, without loading them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy.typing as npt

from ._common.files import is_name
from ._rows.arrays import as_rows, source_of_values
from ._rows.features import header_of
from ._rows.opening import named, open_object, open_path
from ._rows.overwriting import file_of
from ._rows.source import DataSource
from ._rows.sparse import is_sparse
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
        frame: Any = obj
        # pyarrow and polars have `select`, pandas does not.
        obj = frame.select(columns) if hasattr(type(obj), "select") else frame[columns]
    from sklearn.utils.validation import check_array

    # Rows may be none at all here: what works on them says how many it needs.
    header = header_of(obj)
    rows = as_rows(obj, partial(check_array, accept_sparse="csr", ensure_min_samples=0))
    name = "sparse matrix" if is_sparse(rows) else "array"
    return DataSource(source_of_values(rows), name, path=file_of(rows), header=header)
