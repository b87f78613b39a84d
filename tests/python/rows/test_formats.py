"""File formats and objects of other libraries: rows, options and memory."""

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
from shoal.formats.parquet import ParquetRows
from stored import DTYPES
from written import (
    WRITERS,
    hdf5_file,
    ipc_file,
    made,
    numbers,
    tensor_file,
    vectors,
)

pa = pytest.importorskip("pyarrow")
h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")
pl = pytest.importorskip("polars")
tensors = pytest.importorskip("safetensors.numpy")
parquet = pytest.importorskip("pyarrow.parquet")
dataset = pytest.importorskip("pyarrow.dataset")


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


@pytest.mark.parametrize("kind", [*WRITERS, "csv"])
def test_a_file_that_is_replaced_between_two_passes(kind, tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 3)).astype("float32")
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    write = WRITERS.get(kind) or (lambda f, X: pl.DataFrame(X).write_csv(f / "x.csv") or f / "x.csv")
    path, other = write(old, X), write(new, X + 1)
    model = KMeans(4, init=X[:4], max_iter=2, tol=0)
    steps = model.iter_fit(path)
    next(steps)
    if Path(path).is_dir():
        shutil.rmtree(path)
    Path(other).replace(path)
    if kind == "safetensors":
        # The mapped file is the old one.
        assert next(steps).objective == model.__sklearn_clone__().fit(X).history_["objective"][1]
    else:
        with pytest.raises(
            ValueError, match=r"(x|x\.\w+|[ab]\.parquet): was changed or replaced while it was"
        ):
            next(steps)


def test_a_file_that_is_replaced_while_it_is_opened(tmp_path, monkeypatch):
    X = np.random.default_rng(0).normal(size=(200, 3)).astype("float32")
    path, folder = WRITERS["parquet"](tmp_path, X), tmp_path / "other"
    folder.mkdir()
    other = WRITERS["parquet"](folder, X + 1)
    begin = ParquetRows.blocks

    def replaced(self, columns):
        Path(other).replace(path)
        yield from begin(self, columns)

    monkeypatch.setattr(ParquetRows, "blocks", replaced)
    source = shoal.open(path)
    with pytest.raises(ValueError, match="was changed or replaced while it was open"):
        list(source.blocks())


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
