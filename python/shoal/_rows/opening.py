"""Opens files, streams and objects of other libraries as sources."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal import formats
from shoal._checks.marked import ParameterError
from shoal._checks.params import shown, weights, whole
from shoal._core import Source
from shoal._files.staged import Name, is_name
from shoal.formats.pipe import is_file, open_remote_npy, read_pipe
from shoal.formats.remote import check_url, is_url
from shoal.formats.shards import open_shards
from shoal.formats.stream import Reading, Stream
from shoal.formats.stream import chunk_limit as limit_of

from .arrays import array_source, as_rows, native, source_of_values, sparse_source, warn_of_format
from .bfloat16 import name_of
from .coreset import Coreset, is_coreset, read_coreset
from .features import SameNames
from .paths import is_paths, join_names, list_files
from .prefetch import Prefetch
from .source import DataSource
from .sparse import csr_of
from .streams import Blocks, Fresh, Passes, Single, convert_blocks, is_once, is_stream, split_first

#: Supported inputs, for messages.
SUPPORTED = (
    "arrays, SciPy's sparse matrices, coresets, streams of blocks, .npy, .npz, .fvecs, .bvecs, "
    f".ivecs, .fbin, .u8bin, .i8bin, .ibin, {', '.join(formats.SUFFIXES)} files, and raw files of any other "
    "name given with shape= and dtype="
)

#: Functions that open mapped files with a header, by suffix.
MAPPED: dict[str, Callable[[str], Source]] = {
    ".npy": Source.open_npy,
    **dict.fromkeys((".fvecs", ".bvecs", ".ivecs"), Source.open_vecs),
    **dict.fromkeys((".fbin", ".u8bin", ".i8bin", ".ibin"), Source.open_bin),
}


#: Modules that cluster the collections of other libraries without gathering them.
ENGINES = {"dask": "shoal.dask", "pyspark": "shoal.spark", "ray": "shoal.ray"}


def refuse_collections(X: Any) -> None:
    """Raise `TypeError` for a collection of an engine; NumPy would gather it in this process."""
    kind = type(X)
    engine = ENGINES.get(kind.__module__.partition(".")[0])
    if engine is not None and not isinstance(X, np.ndarray):
        raise TypeError(
            f"X must be rows on this machine, got a {kind.__name__} of {kind.__module__.partition('.')[0]}. "
            f"Use {engine}.KMeans, or any estimator on {engine}.lightweight_coreset(X, n_samples), instead."
        )


def open_rows(X: Any) -> DataSource | None:
    """Open a path, a stream or an object of another library; None for rows in memory."""
    if isinstance(X, DataSource):
        return X
    return open_path(X) if is_name(X) or is_paths(X) else open_object(X)


def describes_itself(name: str) -> bool:
    """Whether files of that suffix describe their own rows, so that `shape` and `dtype` are not needed."""
    suffix = formats.suffix_of(name)
    return suffix in MAPPED or suffix in formats.SUFFIXES or suffix == ".npz"


def list_names(columns: Any, parameter: str = "columns") -> list[Any]:
    """Return `columns` as a list; a single string is one name."""
    if isinstance(columns, str):
        return [columns]
    try:
        return list(columns)
    except TypeError:
        raise ValueError(f"{parameter} must be a list of names, got {shown(columns)}") from None


def open_path(
    path: Name | Sequence[Name], reading: Reading | None = None, *, argument: str = "X"
) -> DataSource:
    """Open a file, or many files as one source: a source that can be pickled.

    Messages call the path `argument`.
    """
    reading = reading or Reading()
    files = list_files(path, describes_itself)
    name = os.fsdecode(path) if is_name(path) else ""
    if files is not None and len(files) == 1 and formats.suffix_of(files[0]) == ".npz":
        name, files = files[0], None
    if files is None:
        source = open_one(name, reading, argument)
    else:
        source = open_files(files, name if name and Path(name).is_dir() else None, reading)
    source._reopen = partial(reopen, reading=reading)
    return source


def open_files(files: list[str], folder: str | None, reading: Reading) -> DataSource:
    """Open many files as one source. Messages name `folder`, if they are its files."""
    suffix = formats.suffix_of(files[0])
    if reading.shape is not None or (reading.dtype is not None and suffix not in formats.TEXT):
        raise ParameterError(
            "`shape` and `dtype` describe one raw file: many files must have headers, such as .npy"
        )
    kinds = {kind_of(name): name for name in reversed(files)}
    if len(kinds) > 1:
        one, other = list(kinds.values())[-1], list(kinds.values())[-2]
        raise ValueError(
            f"{other}: files of one source must be of one kind, got one of another kind than {one}"
        )
    (kind,) = kinds
    name = f"{len(files)} file{'s' * (len(files) != 1)}" + (f" of {folder}" if folder else "")
    if kind == "safetensors":
        rows = Source.of_files(open_one(file, reading, "X")._source for file in files)
    elif suffix in MAPPED:
        reading.refuse(files[0], suffix)
        rows = Source.of_files(Source.open_shard(file) for file in files)
    else:
        return source_of_stream(open_shards(name, files, reading), name, path=folder, shards=files)
    return DataSource(rows, name, path=folder, shards=files)


def kind_of(name: str) -> str:
    """Return what reads a file, by its suffix."""
    suffix = formats.suffix_of(name)
    if suffix in MAPPED:
        return MAPPED[suffix].__name__
    if suffix in formats.SUFFIXES:
        return formats.SUFFIXES[suffix][0]
    if not Path(name).exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    known = ", ".join([*MAPPED, *formats.SUFFIXES])
    if suffix == ".npz":
        raise ValueError(
            f"{name}: an .npz file must be opened alone, got many files; many files must end in one of "
            f"{known}"
        )
    raise ValueError(f"{name}: one of many files must end in one of {known}")


def open_one(name: str, reading: Reading, argument: str) -> DataSource:
    """Open one file."""
    if not name:
        raise ValueError(f"{argument} must be rows or the path of a file, got an empty path: {name!r}")
    if "\0" in name:
        raise ValueError(f"{argument} must be the path of a file, got one with a null character: {name!r}")
    suffix, (shape, dtype) = formats.suffix_of(name), (reading.shape, reading.dtype)
    known = describes_itself(name)
    if known and (shape is not None or (dtype is not None and suffix not in formats.TEXT)):
        raise ParameterError(f"{name}: an {suffix} file has its own `shape` and `dtype`, leave them out")
    if is_url(name):
        check_url(name, suffix)
    if suffix in formats.SUFFIXES:
        return source_of_stream(formats.of_file(name, reading), name, path=name)
    reading.refuse(name, suffix, except_for=("dtype", *(("key", "chunk_limit") if suffix == ".npz" else ())))
    if is_url(name):
        return source_of_stream(open_remote_npy(name), name, path=name)
    if suffix in MAPPED:
        return DataSource(MAPPED[suffix](name), name, path=name)
    if suffix == ".npz":
        return open_npz(name, reading.key, reading.limit)
    if shape is None or dtype is None:
        if Path(name).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not Path(name).exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        kind = f"that end in {suffix}" if suffix else "without a suffix"
        raise ValueError(f"{name}: files {kind} are not supported yet; supported: {SUPPORTED}")
    if not isinstance(shape, tuple) or len(shape) != 2:
        raise ParameterError(f"`shape` must be (rows, columns), got {shown(shape)}")
    rows, cols = whole("shape[0]", shape[0], 1), whole("shape[1]", shape[1], 1)
    stored = "bfloat16"
    if not (isinstance(dtype, str) and dtype == stored):
        found = np.dtype(dtype)
        if found.newbyteorder("<") != found:
            raise ValueError(f"dtype={found.str!r}: raw files must be little-endian")
        stored = found.name
    return DataSource(Source.open_raw(name, stored, rows, cols), name, path=name)


def reopen(
    path: str | list[str],
    slices: tuple[tuple[int, int], ...],
    shape: tuple[tuple[int | None, int], str],
    name: str,
    *,
    reading: Reading,
) -> DataSource:
    """Open a file again from a pickle of its source, and apply the slices."""
    source = open_path(path, reading, argument="source")
    if not isinstance(path, str):
        path = join_names(path)
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


def open_object(
    obj: Any, columns: list[Any] | None = None, limit: int | str | None = None
) -> DataSource | None:
    """Open an object of another library or a stream; None for an array-like."""
    refuse_collections(obj)
    source = _open_object(obj, columns, limit)
    if source is not None:
        source._shards = files_behind(obj) or None
    return source


def files_behind(obj: Any) -> list[str]:
    """Return the files that an open file or a dataset of pyarrow reads, if they have names."""
    if is_file(obj):
        name = getattr(obj, "name", None)
        return [str(Path(os.fsdecode(name)).absolute())] if isinstance(name, (str, bytes)) else []
    if "pyarrow" not in formats.libraries_of(obj):
        return []
    # A dataset of datasets has children.
    files = list(getattr(obj, "files", ()))
    files += [file for child in getattr(obj, "children", ()) for file in files_behind(child)]
    return [str(Path(file).absolute()) for file in files]


def _open_object(obj: Any, columns: list[Any] | None, limit: int | str | None) -> DataSource | None:
    if is_file(obj):
        piped = read_pipe(obj, columns, limit_of(limit))
        return source_of_stream(piped, piped.name)
    found = formats.of_object(obj, columns, limit)
    if limit is not None and not formats.is_chunked(obj):
        raise ValueError(f"chunk_limit={limit!r} does not belong to {type(obj).__name__} objects")
    if found is not None:
        source = source_of_stream(found, type(obj).__name__)
        if source._table is None:
            source._table = partial(formats.table_of, obj, columns)
        return source
    if isinstance(obj, Coreset):
        if columns is not None:
            raise ValueError(f"columns={columns!r} is for frames, got a coreset")
        return weighted_source(obj)
    if not is_stream(obj):
        return None
    if columns is not None:
        raise ValueError(f"columns={columns!r} is for frames: select the columns in every block")
    return open_stream(obj)


def weighted_source(coreset: Coreset) -> DataSource:
    """Make a source of the points of a coreset, with their weights."""
    points = as_rows(coreset.points)
    values = weights(coreset.weights, points.shape[0])
    if values is None:
        raise ValueError("the weights of a coreset must be an array, got None")
    return DataSource(source_of_values(points), "coreset", weights=values)


def source_of_stream(
    found: Stream | Source,
    name: str = "",
    path: str | None = None,
    shards: list[str] | None = None,
    first: npt.NDArray[Any] | None = None,
) -> DataSource:
    """Make a source from the result of a module of `formats`; one block of a stream is prefetched.

    The blocks of a stream are 2-D arrays in native byte order, which must not change later. Every pass must
    yield `found.rows` rows, if this number is known. With `first`, the first rows, every pass is checked to
    have the same rows in the same order.
    """
    if isinstance(found, Source):
        return DataSource(found, name, path=path, shards=shards)
    if not found.cols:
        # Lists of an unknown length, in a file without rows.
        found.columns.measure(())
    make = Single(found.blocks()) if found.once else found.blocks
    named = "X" if path is None and shards is None else f"{found.name}: X"
    passes = Passes(make, found.cols, found.dtype, found.rows, name=named, first=first)
    stored = name_of(found.dtype)
    source = Source.from_stream(
        lambda: Prefetch(passes()), found.once, found.cols, stored, found.rows, found.file_of
    )
    return DataSource(source, found.name, passes, path, found.header, found.table, shards=shards)


def open_stream(obj: Any) -> DataSource:
    """Open an iterator of blocks, or a callable that returns a fresh one for each pass."""
    from sklearn.utils.validation import check_array

    names = SameNames()

    def rows_of(block: Any) -> npt.NDArray[Any]:
        if is_name(block):
            raise TypeError(f"must be rows, got a path, {block!r}: pass the paths as a list")
        vectors = vectors_of(block)
        if vectors is not None:
            return vectors
        if isinstance(block, DataSource) and block.sample_weight is not None:
            raise ValueError("must be rows without weights: a stream of blocks has no weights")
        rows = native(as_rows(block, partial(check_array, ensure_min_samples=0)))
        if len(rows):
            names.check(block)
        return rows

    if is_once(obj):
        first, blocks = split_first(convert_blocks(obj, rows_of))
        return source_of_stream(
            Stream("iterator", None, first.shape[1], first.dtype, lambda: blocks, True, names.header)
        )
    if callable(obj):
        name, fresh = "callable", Fresh(obj)
    else:
        name, fresh = type(obj).__name__, Fresh(lambda: iter(obj), "iter(X)")
    first, blocks = split_first(convert_blocks(fresh(), rows_of))
    blocks.close()

    def again() -> Blocks:
        return convert_blocks(fresh(), rows_of)

    stream = Stream(name, None, first.shape[1], first.dtype, again, header=names.header)
    return source_of_stream(stream, first=first)


def vectors_of(block: Any) -> npt.NDArray[Any] | None:
    """Convert a table with a column of vectors to an array; None for any other block."""
    if formats.libraries_of(block).isdisjoint(formats.TABLES) or not len(block):
        return None
    found = formats.of_object(block, None, None)
    return None if found is None else np.asarray(source_of_stream(found, "X"))


def open_npz(name: str, key: str | None, limit: int) -> DataSource:
    """Open an .npz file: a coreset, a sparse matrix, or one of its arrays."""
    from shoal.formats.npz import members_of, open_member

    members = members_of(name)
    if key is None and is_coreset(members):
        coreset = weighted_source(read_coreset(name, limit))
        coreset._name, coreset._path = name, str(Path(name).absolute())
        return coreset
    if key is None and {"format", "shape", "data"} <= members.keys():
        return DataSource(sparse_source(load_npz(name, limit)), name, path=name)
    rows = open_member(name, key, limit)
    source = rows if isinstance(rows, Source) else array_source(rows)
    return DataSource(source, name, path=name)


def load_npz(name: str, limit: int) -> Any:
    """Load the sparse matrix of an .npz file as CSR."""
    from scipy.sparse import load_npz as load

    from shoal.formats.npz import checked_npz, most_unpacked
    from shoal.formats.stream import name_errors, refuse_large

    with name_errors(name, "holds no sparse matrix as scipy.sparse.save_npz writes it"):
        with checked_npz(name, limit) as file:
            matrix = load(file)
            if matrix.ndim != 2:
                raise ValueError(f"rows must be a 2-D matrix, got {matrix.ndim}-D")
            refuse_large(name, "an index of its rows", 8 * (matrix.shape[0] + 1), most_unpacked(name, limit))
        rows = csr_of(matrix, "it")
    warn_of_format(matrix)
    return rows
