"""Files of every format, written with the libraries of the formats."""

import pytest
from stored import made as made_as

pa = pytest.importorskip("pyarrow")
h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")
pl = pytest.importorskip("polars")
tensors = pytest.importorskip("safetensors.numpy")
parquet = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")


def made(dtype, rows=203, cols=5):
    """An array with enough rows for several blocks."""
    return made_as(dtype, rows, cols)


def vectors(X, name="v", **others):
    """A table with one column of vectors."""
    values = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])
    return pa.table({**others, name: values})


def numbers(X):
    """A table with one column per feature."""
    return pa.table({f"c{j}": X[:, j] for j in range(X.shape[1])})


def ipc_file(path, table, compression=None, new=pa.ipc.new_file, rows=40):
    with new(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def hdf5_file(path, X, **how):
    with h5py.File(path, "w") as file:
        file.create_dataset("X", data=X, **how)
    return path


def zarr_store(path, X, **how):
    zarr.create_array(path, data=X, **how)
    return path


def folder_of_parts(path, table):
    path.mkdir()
    # Not in the order of their names.
    for name, start, stop in (("b", 70, None), ("a", 0, 70)):
        parquet.write_table(table.slice(start, (stop or len(table)) - start), path / f"{name}.parquet")
    (path / "_SUCCESS").touch()
    return path


def tensor_file(path, X):
    tensors.save_file({"X": X}, path)
    return path


def parts(X):
    """Rows per chunk, for several chunks."""
    return len(X) // 7 + 1


#: For every format: a function that writes rows with the format's own library and returns the path.
WRITERS = {
    "arrow": lambda f, X: ipc_file(f / "x.arrow", vectors(X)),
    "arrow, numbers": lambda f, X: ipc_file(f / "x.arrow", numbers(X)),
    "arrow, lz4": lambda f, X: ipc_file(f / "x.arrow", vectors(X), "lz4"),
    "arrow stream": lambda f, X: ipc_file(f / "x.arrow", vectors(X), None, pa.ipc.new_stream),
    "arrow stream, zstd": lambda f, X: ipc_file(f / "x.ARROW", numbers(X), "zstd", pa.ipc.new_stream),
    "feather": lambda f, X: feather.write_feather(vectors(X), f / "x.feather") or f / "x.feather",
    "parquet": lambda f, X: (
        parquet.write_table(vectors(X), f / "x.parquet", row_group_size=parts(X)) or f / "x.parquet"
    ),
    "parquet, numbers": lambda f, X: (
        parquet.write_table(numbers(X), f / "x.parquet", row_group_size=parts(X)) or f / "x.parquet"
    ),
    "parquet of polars": lambda f, X: (
        pl.from_arrow(numbers(X)).write_parquet(f / "x.parquet") or f / "x.parquet"
    ),
    "arrow of polars, zstd": lambda f, X: (
        pl.from_arrow(numbers(X)).write_ipc(f / "x.arrow", compression="zstd", record_batch_size=parts(X))
        or f / "x.arrow"
    ),
    "parquet, folder": lambda f, X: folder_of_parts(f / "parts", vectors(X)),
    "hdf5": lambda f, X: hdf5_file(f / "x.h5", X),
    "hdf5, chunks": lambda f, X: hdf5_file(f / "x.hdf5", X, chunks=(parts(X), 1), compression="gzip"),
    "zarr 3": lambda f, X: zarr_store(f / "x.zarr", X, chunks=(parts(X), 1)),
    "zarr 2": lambda f, X: zarr_store(f / "x.zarr", X, chunks=(2 * parts(X), X.shape[1]), zarr_format=2),
    "zarr, shards": lambda f, X: zarr_store(
        f / "x", X, chunks=(parts(X), X.shape[1]), shards=(3 * parts(X), X.shape[1])
    ),
    "safetensors": lambda f, X: tensor_file(f / "x.safetensors", X),
}
