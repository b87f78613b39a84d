"""File formats and objects of other libraries: rows, options, errors and memory."""

import json
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import shoal
from exporters import Exporter, Sized
from shoal import KMeans, MiniBatchKMeans
from shoal.cli import main
from stored import DTYPES
from stored import made as made_as

pa = pytest.importorskip("pyarrow")
h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")
pl = pytest.importorskip("polars")
tensors = pytest.importorskip("safetensors.numpy")
parquet = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")
dataset = pytest.importorskip("pyarrow.dataset")


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
        pl.DataFrame({f"c{j}": X[:, j] for j in range(X.shape[1])}).write_parquet(f / "x.parquet")
        or f / "x.parquet"
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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", WRITERS)
def test_rows_of_files(kind, dtype, tmp_path):
    if dtype == "float16" and kind == "parquet of polars":
        pytest.skip("polars has no numbers of 16 bits")
    X = made(dtype)
    source = shoal.open(WRITERS[kind](tmp_path, X))
    assert source.shape == X.shape
    assert len(source) == len(X)
    assert source.dtype == X.dtype
    assert source.nbytes == X.nbytes
    assert source.access == ("random" if kind == "safetensors" else "replay")
    for rows in (None, 1, 70, 1000):
        blocks = list(source.blocks(rows))
        assert all(block.dtype == X.dtype for block in blocks)
        assert (np.concatenate(blocks) == X).all()
    wanted = [3, 3, 0, -1, len(X) - 1]
    assert (source.take(wanted) == X[wanted]).all()


@pytest.mark.parametrize("kind", WRITERS)
def test_one_row_of_one_column(kind, tmp_path):
    X = made("float32", rows=1, cols=1)
    path = tmp_path / "one"
    path.mkdir()
    if "," not in kind:
        assert (np.concatenate(list(shoal.open(WRITERS[kind](path, X)).blocks())) == X).all()
        model = KMeans(1).fit(WRITERS[kind](tmp_path, X))
        assert (model.cluster_centers_ == X).all()


def streamed(X, rows):
    """Return a function that yields the rows in blocks of the given size."""
    return lambda: (X[start : start + rows] for start in range(0, len(X), rows))


@pytest.mark.parametrize(
    "make",
    [
        lambda: KMeans(7, random_state=0, max_iter=4),
        lambda: KMeans(7, random_state=0, init="random", n_init=2, max_iter=3),
        lambda: MiniBatchKMeans(7, random_state=0, batch_size=64, max_iter=2),
    ],
)
# Some of the files have feature names, the array has none.
@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("dtype", ["uint8", "float64"])
def test_sequential_formats_give_bit_identical_fits(make, dtype, tmp_path, monkeypatch):
    X = (np.random.default_rng(1).normal(size=(5003, 6)) * 20 + 100).astype(dtype)
    expected = make().fit(streamed(X, 700))
    found = {}
    for i, (kind, write) in enumerate(WRITERS.items()):
        if kind == "safetensors":
            continue
        # Blocks of another length for every kind of file.
        monkeypatch.setattr("shoal.formats.stream.BLOCK_BYTES", 3000 + 5000 * i)
        monkeypatch.setattr("shoal.formats.parquet.NUMBERS", 700 + 2000 * i)
        folder = tmp_path / str(i)
        folder.mkdir()
        found[kind] = make().fit(write(folder, X))
    for kind, model in found.items():
        assert (model.cluster_centers_ == expected.cluster_centers_).all(), kind
        assert (model.labels_ == expected.labels_).all(), kind
        assert model.inertia_ == expected.inertia_, kind
    memory = make().fit(X)
    mapped = make().fit(WRITERS["safetensors"](tmp_path, X))
    assert (mapped.cluster_centers_ == memory.cluster_centers_).all()
    for kind, write in WRITERS.items():
        folder = tmp_path / f"again {kind}"
        folder.mkdir()
        path = write(folder, X)
        assert (memory.predict(path) == memory.labels_).all(), kind
        assert memory.score(path) == memory.score(X), kind


def test_fits_from_given_centers_are_bit_identical_for_all_formats(tmp_path):
    X = (np.random.default_rng(1).normal(size=(5003, 6)) * 20 + 100).astype("uint8")
    expected = KMeans(5, init=X[:5], max_iter=5).fit(X)
    for kind, write in WRITERS.items():
        folder = tmp_path / kind
        folder.mkdir()
        model = KMeans(5, init=X[:5], max_iter=5).fit(write(folder, X))
        assert (model.cluster_centers_ == expected.cluster_centers_).all(), kind
        assert (model.labels_ == expected.labels_).all(), kind


def test_functions_take_files(tmp_path):
    X = made("float32", rows=600)
    weights = np.random.default_rng(1).uniform(0.1, 2.0, size=len(X))
    parquet.write_table(vectors(X), tmp_path / "x.parquet", row_group_size=100)
    path, anew = tmp_path / "x.parquet", streamed(X, 70)
    for given, here in ((path, X), (shoal.open(path), X)):
        labels, sq_dists = shoal.nearest(given, X[:9], n_nearest=2)
        expected = shoal.nearest(here, X[:9], n_nearest=2)
        assert (labels == expected[0]).all()
        assert (sq_dists == expected[1]).all()
        assert shoal.metrics.inertia(given, X[:9], weights) == shoal.metrics.inertia(here, X[:9], weights)
    found = shoal.kmeans_plusplus(path, 7, sample_weight=weights, random_state=0)
    assert (found[1] == shoal.kmeans_plusplus(anew, 7, sample_weight=weights, random_state=0)[1]).all()
    assert (found[0] == X[found[1]]).all()
    model = KMeans(7, random_state=0).fit(path, sample_weight=weights)
    assert (model.labels_ == KMeans(7, random_state=0).fit(anew, sample_weight=weights).labels_).all()
    assert (model.transform(path) == model.transform(X)).all()
    batches = MiniBatchKMeans(7, random_state=0).partial_fit(path).partial_fit(path)
    assert (
        batches.cluster_centers_
        == MiniBatchKMeans(7, random_state=0).partial_fit(X).partial_fit(X).cluster_centers_
    ).all()
    with pytest.raises(ValueError, match="sample_weight has 599 values, X has 600 rows"):
        KMeans(7).fit(path, sample_weight=weights[1:])


def test_columns_of_files(tmp_path):
    X = made("float32")
    table = vectors(X, "v", id=np.arange(len(X)), weight=X[:, 0].astype("float64"), words=["x"] * len(X))
    parquet.write_table(table, tmp_path / "x.parquet")
    ipc_file(tmp_path / "x.arrow", table)
    for name in ("x.parquet", "x.arrow"):
        source = shoal.open(tmp_path / name, columns=["v"])
        assert source.dtype == np.float32
        assert (np.concatenate(list(source.blocks())) == X).all()
        source = shoal.open(tmp_path / name, columns=["weight", "id"])
        assert source.dtype == np.float64
        wanted = np.stack([X[:, 0], np.arange(len(X))], axis=1)
        assert (np.concatenate(list(source.blocks(9))) == wanted).all()
        assert shoal.open(tmp_path / name, columns="id").shape == (len(X), 1)


@pytest.mark.parametrize(
    ("types", "common"),
    [
        (["uint8", "int8"], "int16"),
        (["uint8", "float16"], "float16"),
        (["int16", "float16"], "float32"),
        (["int64", "uint64"], "float64"),
        (["bool", "uint8"], "uint8"),
        (["float32", "float64"], "float64"),
    ],
)
def test_columns_of_several_types_get_a_common_type(types, common, tmp_path):
    X = made("bool", cols=len(types))
    table = pa.table({kind: X[:, j].astype(kind) for j, kind in enumerate(types)})
    parquet.write_table(table, tmp_path / "x.parquet")
    source = shoal.open(tmp_path / "x.parquet")
    assert source.dtype == common
    assert (np.concatenate(list(source.blocks())) == X).all()


def test_tensors_and_slices_of_columns(tmp_path):
    X = made("float32")
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(X)
    table = pa.table({"t": tensor}).slice(11, 150)
    ipc_file(tmp_path / "x.arrow", table)
    parquet.write_table(table, tmp_path / "x.parquet")
    for given in (tmp_path / "x.arrow", tmp_path / "x.parquet", table):
        assert (np.concatenate(list(shoal.open(given).blocks(13))) == X[11:161]).all()


# ---------------------------------------------------------------- keys


def test_keys(tmp_path):
    X, Y = made("float32"), made("uint8", rows=11, cols=2)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["rows/X"], file["Y"] = X, Y
    group = zarr.create_group(tmp_path / "x.zarr")
    group.create_array("Y", data=Y)
    group.create_group("rows").create_array("X", data=X)
    tensors.save_file({"rows/X": X, "Y": Y}, tmp_path / "x.safetensors")
    for name in ("x.h5", "x.zarr", "x.safetensors"):
        for key, rows in (("rows/X", X), ("Y", Y)):
            source = shoal.open(tmp_path / name, key=key)
            assert source.shape == rows.shape
            assert source.dtype == rows.dtype
            assert (np.concatenate(list(source.blocks())) == rows).all()
        with pytest.raises(ValueError, match=rf"{name}: holds 2 arrays. Choose one with key=: '\S+', '\S+'"):
            shoal.open(tmp_path / name)
        with pytest.raises(ValueError, match=rf"{name}: key must be one of '\S+', '\S+', got 'Z'"):
            shoal.open(tmp_path / name, key="Z")


def test_bfloat16_tensors(tmp_path):
    X = np.array([[1.0, -2.5], [0.15625, 96.0], [3.0, 7.0]], dtype=np.float32)
    header = json.dumps({"b": {"dtype": "BF16", "shape": [3, 2], "data_offsets": [0, 12]}}).encode()
    values = (X.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + values)
    source = shoal.open(path)
    assert source.dtype == np.float32
    assert (np.concatenate(list(source.blocks())) == X).all()


def test_a_model_file_can_be_opened_as_rows(tmp_path):
    model = KMeans(3, random_state=0).fit(made("float64"))
    model.save(tmp_path / "m.safetensors")
    source = shoal.open(tmp_path / "m.safetensors", key="cluster_centers")
    assert (next(source.blocks()) == model.cluster_centers_).all()


# ---------------------------------------------------------------- objects


def test_vectors_in_memory_are_not_copied():
    X = made("float32", rows=5000)
    table = vectors(X)
    frame = pl.from_arrow(table)
    for given in (
        table,
        table.to_batches()[0],
        table.column(0),
        table.column(0).chunk(0),
        frame,
        vectors(X, id=np.arange(len(X))),
    ):
        columns = ["v"] if len(getattr(given, "schema", [0])) > 1 else None
        source = shoal.open(given, columns=columns)
        assert source.access == "random"
        assert source.shape == X.shape
        assert source.dtype == X.dtype
        assert (source.take([7, 4000]) == X[[7, 4000]]).all()
    before = pa.total_allocated_bytes()
    source = shoal.open(table)
    assert pa.total_allocated_bytes() == before
    # The source refers to the memory of the column.
    np.frombuffer(table.column(0).chunk(0).values.buffers()[1], dtype=np.float32).flags.writeable = False
    expected = KMeans(4, random_state=0).fit(X)
    for given in (table, frame, table.to_batches()[0]):
        model = KMeans(4, random_state=0).fit(given)
        assert (model.cluster_centers_ == expected.cluster_centers_).all()
        assert model.n_features_in_ == 5
        assert not hasattr(model, "feature_names_in_")
        assert (model.predict(given) == expected.labels_).all()


def test_vectors_in_several_chunks_are_a_stream():
    X = made("float32")
    table = pa.concat_tables([vectors(X[:50]), vectors(X[50:])])
    source = shoal.open(table)
    assert source.access == "replay"
    assert source.shape == X.shape
    assert (np.concatenate(list(source.blocks(7))) == X).all()
    expected = KMeans(4, random_state=0).fit(streamed(X, 50))
    for given in (
        table,
        pl.concat([pl.from_arrow(vectors(X[:50])), pl.from_arrow(vectors(X[50:]))], rechunk=False),
    ):
        model = KMeans(4, random_state=0).fit(given)
        assert (model.cluster_centers_ == expected.cluster_centers_).all()


def test_frames_of_numbers_keep_their_names():
    X = made("float64")
    for frame in (pl.DataFrame({f"c{j}": X[:, j] for j in range(5)}), numbers(X).to_pandas()):
        model = KMeans(4, random_state=0).fit(frame)
        assert list(model.feature_names_in_) == [f"c{j}" for j in range(5)]
    for frame in (pl.from_arrow(numbers(X)), numbers(X), numbers(X).to_batches()[0]):
        assert (next(shoal.open(frame).blocks()) == X).all()
        assert (next(shoal.open(frame, columns=["c3", "c1"]).blocks()) == X[:, [3, 1]]).all()
        model = KMeans(4, random_state=0).fit(frame)
        assert (model.labels_ == KMeans(4, random_state=0).fit_predict(X)).all()


def test_objects_that_export_arrow_streams():
    X = made("float32")
    table = pa.concat_tables([vectors(X[:50]), vectors(X[50:])])
    once = [
        lambda: pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
        lambda: Exporter(table),
        lambda: Exporter(numbers(X)),
    ]
    for make in once:
        source = shoal.open(make())
        assert source.access == "once"
        assert source.dtype == X.dtype
        assert (np.concatenate(list(source.blocks())) == X).all()
        with pytest.raises(ValueError, match=r"[Oo]nce"):
            KMeans(3).fit(make())
        model = MiniBatchKMeans(3, random_state=0).partial_fit(make())
        assert model.counts_.sum() == MiniBatchKMeans(3, random_state=0).partial_fit(X).counts_.sum()
    again = shoal.open(Sized(table))
    assert again.access == "replay"
    assert again.shape == X.shape
    expected = KMeans(4, random_state=0).fit(streamed(X, 50))
    assert (KMeans(4, random_state=0).fit(Sized(table)).labels_ == expected.labels_).all()


@pytest.mark.parametrize("form", ["parquet", "ipc", "csv"])
def test_datasets(form, tmp_path):
    X = made("float64")
    for i, part in enumerate((numbers(X[:80]), numbers(X[80:]))):
        dataset.write_dataset(
            part,
            tmp_path,
            format=form,
            basename_template=f"{i}-{{i}}.{form}",
            existing_data_behavior="overwrite_or_ignore",
        )
    data = dataset.dataset(tmp_path, format=form)
    source = shoal.open(data)
    assert source.access == "replay"
    assert source.shape == ((None if form == "csv" else len(X)), 5)
    assert (np.concatenate(list(source.blocks())) == X).all()
    assert (np.concatenate(list(shoal.open(data, columns=["c2"]).blocks())) == X[:, [2]]).all()
    expected = KMeans(4, random_state=0).fit(streamed(X, 80))
    assert (KMeans(4, random_state=0).fit(data).labels_ == expected.labels_).all()


def test_stored_arrays_are_not_loaded(tmp_path, monkeypatch):
    X = made("float32", rows=2000)
    expected = KMeans(4, random_state=0).fit(streamed(X, 50))
    monkeypatch.setattr("shoal.formats.stream.BLOCK_BYTES", 64 * X[:1].nbytes)
    stored = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(30, 5))
    read = []
    with h5py.File(hdf5_file(tmp_path / "x.h5", X, chunks=(30, 5))) as file:
        for array in (file["X"], stored):
            cls = type(array)
            get = cls.__getitem__

            def noted(self, key, get=get):
                got = get(self, key)
                read.append(len(got))
                return got

            monkeypatch.setattr(cls, "__getitem__", noted)
            source = shoal.open(array)
            assert source.shape == X.shape
            assert source.access == "replay"
            model = KMeans(4, random_state=0).fit(array)
            monkeypatch.setattr(cls, "__getitem__", get)
            assert (model.cluster_centers_ == expected.cluster_centers_).all()
            assert (model.predict(array) == expected.labels_).all()
    # Two chunks are the largest multiple that fits into a block.
    assert set(read) == {60, 2000 % 60}


# ---------------------------------------------------------------- errors


BAD = {
    "nulls": (
        pa.table({"a": [1.0, 2.0], "b": [3.0, None]}),
        "column 'b' must not hold missing values, got a null at row 1",
    ),
    "null vectors": (
        pa.table({"v": pa.array([[1, 2], [3, 4], None], pa.list_(pa.int8(), 2))}),
        # Old versions of pyarrow cannot read what they wrote to Parquet.
        "(column 'v' must not hold missing values, got a null at row 2|cannot be read: Expected all lists)",
    ),
    "nulls in vectors": (
        pa.table({"v": pa.array([[1, 2], [3, None]], pa.list_(pa.int8(), 2))}),
        "column 'v' must not hold missing values, got a null at row 1",
    ),
    "strings": (
        pa.table({"a": [1.0, 2.0], "s": ["x", "y"]}),
        "column 's' is of type (large_)?string. Choose",
    ),
    "ragged": (
        pa.table({"r": [[1.0], [2.0, 3.0]]}),
        "column 'r' must hold vectors of length 1, the length of the first row, got length 2 at row 1",
    ),
    "nested": (
        pa.table({"n": pa.array([[[1.0], [2.0]]], pa.list_(pa.list_(pa.float32(), 1), 2))}),
        "column 'n' must hold vectors of real numbers, got vectors of type fixed_size_list<",
    ),
    "struct": (pa.table({"t": [{"x": 1.0}]}), r"column 't' is of type struct<x: double>. Choose"),
    "dates": (
        pa.table({"d": pa.array([0], pa.timestamp("s"))}),
        r"column 'd' is of type timestamp\[\w+\]. Choose",
    ),
    "decimals": (pa.table({"d": pa.array([1], pa.decimal128(5))}), "column 'd' is of type decimal128"),
    "dictionary": (
        pa.table({"k": pa.array(["x", "y", "x"]).dictionary_encode()}),
        "column 'k' is of type dictionary<.*>. Choose",
    ),
    "beside vectors": (
        vectors(made("int8"), a=np.arange(203)),
        "column 'v' holds vectors, so it must be the only column, got 2 columns. Choose",
    ),
}


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("kind", BAD)
def test_invalid_columns(kind, suffix, tmp_path):
    table, text = BAD[kind]
    path = tmp_path / f"x.{suffix}"
    if suffix == "parquet":
        parquet.write_table(table, path)
    else:
        ipc_file(path, table)
    for use in (KMeans(1).fit, lambda X: list(shoal.open(X).blocks())):
        with pytest.raises(ValueError, match=f"x.{suffix}: {text}"):
            use(path)


def test_missing_columns(tmp_path):
    X = made("float32")
    parquet.write_table(numbers(X), tmp_path / "x.parquet")
    ipc_file(tmp_path / "x.arrow", pa.table({}), rows=1)
    parquet.write_table(
        pa.table({"a": [1.0], "A": [2.0]}).rename_columns(["a", "a"]), tmp_path / "two.parquet"
    )
    refused = [
        ({"columns": ["c0", "z"]}, "x.parquet", "x.parquet: columns must be among 'c0', 'c1', .*, got 'z'"),
        ({"columns": [3]}, "x.parquet", "x.parquet: columns must be among 'c0', .*, got 3"),
        ({"columns": ["c0", "c0"]}, "x.parquet", "x.parquet: columns must be distinct, got 'c0' twice"),
        ({"columns": []}, "x.parquet", "x.parquet: has no columns"),
        ({"key": "c0"}, "x.parquet", "x.parquet: key='c0' does not belong to .parquet files"),
        (
            {"shape": (1, 1), "dtype": "u1"},
            "x.parquet",
            "an .parquet file has its own shape",
        ),
        ({}, "x.arrow", "x.arrow: has no columns"),
        ({}, "two.parquet", "two.parquet: has several columns with the name 'a'"),
    ]
    for given, name, text in refused:
        with pytest.raises(ValueError, match=text):
            shoal.open(tmp_path / name, **given)


def test_no_rows_at_all(tmp_path):
    table = vectors(made("float32", rows=0))
    parquet.write_table(table, tmp_path / "x.parquet")
    ipc_file(tmp_path / "x.arrow", table)
    for given in (table, table.schema.empty_table(), tmp_path / "x.parquet", tmp_path / "x.arrow"):
        source = shoal.open(given)
        assert source.shape == (0, 5)
        assert sum(len(block) for block in source.blocks()) == 0
        with pytest.raises(ValueError, match=r"n_samples=0|no rows|0 rows"):
            KMeans(1).fit(given)


def test_hundreds_of_columns(tmp_path):
    X = made("int16", rows=30, cols=300)
    parquet.write_table(numbers(X), tmp_path / "x.parquet")
    assert (np.concatenate(list(shoal.open(tmp_path / "x.parquet").blocks())) == X).all()


def test_files_of_a_folder_must_have_the_same_columns(tmp_path):
    folder = tmp_path / "parts.parquet"
    folder.mkdir()
    with pytest.raises(FileNotFoundError, match=r"no \.parquet files in the folder"):
        shoal.open(folder)
    parquet.write_table(numbers(made("float32")), folder / "a.parquet")
    parquet.write_table(numbers(made("float64")), folder / "b.parquet")
    with pytest.raises(
        ValueError,
        match=r"b\.parquet: has 5 columns of float64 .*, unlike .*a\.parquet, which has 5 columns of float32",
    ):
        KMeans(2).fit(folder)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda p: hdf5_file(p / "x.h5", np.zeros(3)),
            r"x\.h5\['/X'\]: must be a 2-D array, got shape \(3,\)",
        ),
        (
            lambda p: hdf5_file(p / "x.h5", np.zeros((0, 3))),
            "must have at least one row and one column, got 0 x 3",
        ),
        (
            lambda p: hdf5_file(p / "x.h5", np.zeros((2, 3), complex)),
            "must hold real numbers, got complex128",
        ),
        (lambda p: hdf5_file(p / "x.h5", np.array([[b"ab"]])), "must hold real numbers, got .*S2"),
        (
            lambda p: zarr_store(p / "x.zarr", np.zeros((1, 2, 3))),
            r"must be a 2-D array, got shape \(1, 2, 3\)",
        ),
        (lambda p: tensor_file(p / "x.safetensors", np.zeros(3)), r"must be a 2-D tensor, got shape \(3,\)"),
        (
            lambda p: tensor_file(p / "x.safetensors", np.zeros((2, 2), "complex64")),
            "the type must be a boolean, an integer or a float",
        ),
        (lambda p: tensor_file(p / "x.safetensors", np.zeros((0, 2))), "at least 1 row"),
    ],
)
def test_invalid_arrays(make, text, tmp_path):
    path = make(tmp_path)
    with pytest.raises(ValueError, match=text):
        KMeans(1).fit(path)


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.feather", "x.h5", "x.zarr", "x.safetensors"])
def test_missing_files(name, tmp_path):
    with pytest.raises(FileNotFoundError, match=name) as caught:
        KMeans(2).fit(tmp_path / name)
    assert caught.value.filename == str(tmp_path / name)


def test_unknown_suffixes(tmp_path):
    path = tmp_path / "x.xyz"
    path.touch()
    with pytest.raises(ValueError, match=r"that end in \.xyz are not supported yet; supported") as caught:
        KMeans(2).fit(path)
    for suffix in (".npy", ".parquet", ".arrow", ".feather", ".h5", ".hdf5", ".zarr", ".safetensors"):
        assert f" {suffix}" in str(caught.value)


@pytest.mark.parametrize("contents", [b"", b"no such thing" * 100, b"ARROW1\0\0", b"FEA1" * 9, b"PAR1PAR1"])
@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.feather", "x.h5", "x.safetensors"])
def test_files_with_other_contents(name, contents, tmp_path):
    path = tmp_path / name
    path.write_bytes(contents)
    with pytest.raises(ValueError, match=name):
        shoal.open(path)


def damaged(data, rng):
    """Return the bytes with an end cut off, or with a few bits flipped, often near the start or end."""
    data = bytearray(data)
    if rng.random() < 0.2:
        return data[: rng.integers(len(data))]
    for _ in range(rng.integers(1, 4)):
        near = rng.integers(min(len(data), 500))
        at = (rng.integers(len(data)), near, len(data) - 1 - near)[rng.integers(3)]
        data[at] ^= 1 << rng.integers(8)
    return data


@pytest.mark.parametrize("kind", WRITERS)
def test_damaged_files_are_refused_or_read(kind, tmp_path):
    rng = np.random.default_rng(len(kind))
    X = made("float32")
    path = WRITERS[kind](tmp_path, X)
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    whole = [file.read_bytes() for file in files]
    refusals = []
    for _ in range(60):
        file = rng.integers(len(files))
        if not whole[file]:
            continue
        files[file].write_bytes(damaged(whole[file], rng))
        try:
            source = shoal.open(path)
            for block in source.blocks():
                assert block.shape[1:] == source.shape[1:]
        except (ValueError, OSError) as error:
            refusals.append(str(error))
        files[file].write_bytes(whole[file])
    assert refusals
    assert all(path.name in refusal for refusal in refusals)
    assert (np.concatenate(list(shoal.open(path).blocks())) == X).all()


@pytest.mark.parametrize(
    "entry",
    [
        "x",
        {},
        {"dtype": "F32", "shape": [2, 2], "data_offsets": [0]},
        {"dtype": "F32", "shape": [2, 2], "data_offsets": [8, 0]},
        {"dtype": "F32", "shape": [2, 2], "data_offsets": [-8, 8]},
        {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 15]},
        {"dtype": "F32", "shape": [2, 2], "data_offsets": [16, 32]},
        {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [2.0, 2], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [True, 4], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": 4, "data_offsets": [0, 16]},
        {"dtype": ["F32"], "shape": [2, 2], "data_offsets": [0, 16]},
    ],
)
def test_inconsistent_safetensors_headers(entry, tmp_path):
    header = json.dumps({"X": entry}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    with pytest.raises(ValueError, match=r"x\.safetensors: has a damaged header: "):
        shoal.open(path)


def test_a_file_that_changes_between_two_passes(tmp_path):
    for name, write in (
        ("x.h5", lambda X: hdf5_file(tmp_path / "x.h5", X)),
        ("x.arrow", lambda X: ipc_file(tmp_path / "x.arrow", vectors(X))),
    ):
        source = shoal.open(write(made("float32", rows=300)))
        list(source.blocks())
        write(made("float32", rows=30))
        with pytest.raises(ValueError, match=name.replace(".", r"\.") + "|rows"):
            KMeans(3).fit(source)


# ---------------------------------------------------------------- packages and memory


@pytest.mark.parametrize(
    ("package", "extra", "name"),
    [
        ("pyarrow", "arrow", "x.parquet"),
        ("pyarrow", "arrow", "x.feather"),
        ("h5py", "hdf5", "x.h5"),
        ("zarr", "zarr", "x.zarr"),
    ],
)
def test_missing_packages(package, extra, name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / name).touch()
    with pytest.raises(ImportError, match=rf"{name} needs {package}: pip install 'shoal-cluster\[{extra}\]'"):
        shoal.open(tmp_path / name)


def run(*code):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_packages_are_imported_on_first_use(tmp_path):
    np.save(tmp_path / "x.npy", made("float32"))
    found = run(
        "import sys, shoal, shoal.formats",
        f"rows = shoal.open({str(tmp_path / 'x.npy')!r})",
        "print({'pyarrow', 'polars', 'h5py', 'zarr', 'pandas', 'safetensors'} & set(sys.modules))",
        # scikit-learn imports some of the packages.
        "shoal.KMeans(2).fit(rows)",
        "print({'polars', 'h5py', 'zarr', 'safetensors'} & set(sys.modules))",
    )
    assert found.split() == ["set()", "set()"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "h5"])
def test_memory_does_not_grow_with_the_file(suffix, tmp_path):
    X = np.random.default_rng(0).integers(0, 256, size=(400_000, 128), dtype=np.uint8)
    path = tmp_path / f"x.{suffix}"
    if suffix == "parquet":
        # One large row group is the worst case.
        parquet.write_table(vectors(X), path, row_group_size=len(X))
    elif suffix == "arrow":
        ipc_file(path, vectors(X), rows=len(X))
    else:
        hdf5_file(path, X, chunks=(1000, 128))
    found = run(
        "import re, threading, time, numpy as np, shoal",
        "def now(): return int(re.search(r'RssAnon:\\s*(\\d+)', open('/proc/self/status').read())[1])",
        "import warnings; warnings.simplefilter('ignore')",
        "small = np.random.default_rng(0).uniform(0, 255, size=(4, 128))",
        "model = shoal.KMeans(4, init=small, max_iter=2)",
        f"rows = shoal.open({str(path)!r})",
        "model.fit(small)",
        "before = peak = now()",
        "done = threading.Event()",
        "def watch():",
        "    global peak",
        "    while not done.is_set(): peak = max(peak, now()); time.sleep(0.002)",
        "watcher = threading.Thread(target=watch); watcher.start()",
        "model.fit(rows)",
        "done.set(); watcher.join()",
        "print((peak - before) * 1024)",
    )
    # The rows are 51 MB, and decoding a whole row group takes 200 MB more. The peak was 103 to 137 MB, the
    # latter on a busy machine.
    assert int(found) < 160e6


def test_the_example_of_the_guide(tmp_path, monkeypatch):
    guide = (Path(__file__).parents[3] / "docs" / "data.md").read_text(encoding="utf-8")
    (code,) = [
        block for block in re.findall(r"```python\n(.*?)```", guide, re.DOTALL) if "write_table" in block
    ]
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
    names = {"np": np, "shoal": shoal, "X": X}
    exec(code, names)
    expected = KMeans(n_clusters=50, random_state=0, max_iter=20).fit(streamed(X, 300))
    assert (names["model"].labels_ == expected.labels_).all()


def test_command_line(tmp_path, capsys):
    X = made("float32")
    parquet.write_table(vectors(X, "v", id=np.arange(len(X))), tmp_path / "x.parquet")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["X"], file["Y"] = X, X[:3]
    expected = KMeans(3, random_state=0).fit(streamed(X, 50))
    for data, option in (("x.parquet", ["--columns", "v"]), ("x.h5", ["--key", "X"])):
        labels = tmp_path / "labels.npy"
        command = ["fit", str(tmp_path / data), "-k", "3", "--seed", "0", "--labels", str(labels), "--quiet"]
        assert main([*command, *option]) == 0
        assert (np.load(labels) == expected.labels_).all()
    tensor_file(tmp_path / "x.safetensors", X)
    for data, option in (("x.parquet", ["--columns", "v"]), ("x.h5", ["--key", "X"]), ("x.safetensors", [])):
        capsys.readouterr()
        assert main(["info", str(tmp_path / data), "--json", *option]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["shape"], found["dtype"], found["bytes"]) == (list(X.shape), "float32", X.nbytes)
    assert main(["fit", str(tmp_path / "x.parquet"), "-k", "3"]) == 1
    problem = "x.parquet: column 'v' holds vectors, so it must be the only column"
    assert problem in capsys.readouterr().err
    shutil.rmtree(tmp_path)
