"""Labels beside kept columns, partitions by cluster, and `transform` into files."""

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest
import shoal
from hypothesis import given, settings
from hypothesis import strategies as st
from shoal import cli
from shoal._files import tables as _tables
from shoal.formats import kept as _kept

pa = pytest.importorskip("pyarrow")
ds = pytest.importorskip("pyarrow.dataset")
csv = pytest.importorskip("pyarrow.csv")
feather = pytest.importorskip("pyarrow.feather")
ipc = pytest.importorskip("pyarrow.ipc")
pq = pytest.importorskip("pyarrow.parquet")

N, D, K = 3000, 4, 7
X = np.random.default_rng(2).normal(size=(N, D)).astype("f4")
MODEL = shoal.KMeans(K, random_state=0).fit(X)
LABELS = MODEL.predict(X)
DISTANCES = np.empty(N)
MODEL.predict(X, distances=DISTANCES)
IDS = [f"row {i}, {'é' * (i % 5)}" for i in range(N)]
TABLE = pa.table(
    {
        "id": IDS,
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), D),
        "year": pa.array([None if i % 9 == 0 else i for i in range(N)], pa.int16()),
        "kind": pa.array(["a", "b", "c"] * (N // 3)).dictionary_encode(),
        "tags": [[i] * (i % 3) for i in range(N)],
    }
)
KINDS = TABLE["kind"].combine_chunks().dictionary_decode()

#: Readers of tables.
READERS = {
    ".parquet": pq.read_table,
    ".arrow": lambda path: ipc.open_file(path).read_all(),
    ".feather": feather.read_table,
    ".csv": csv.read_csv,
}


@pytest.fixture(autouse=True, scope="module")
def without_sync():
    """Do not wait for the disk after each of thousands of small files."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda file: None)
        yield


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def written(kind, folder):
    """Write `TABLE`, and open its vectors."""
    folder.mkdir(exist_ok=True)
    if kind == "parquet":
        pq.write_table(TABLE, folder / "rows.parquet", row_group_size=171)
        return shoal.open(folder / "rows.parquet", columns=["vector"])
    if kind == "folder":
        (folder / "rows").mkdir()
        for i, start in enumerate((0, 500, 501, 2500)):
            stop = [500, 501, 2500, N][i]
            pq.write_table(TABLE.slice(start, stop - start), folder / "rows" / f"{i}.parquet")
        return shoal.open(folder / "rows", columns=["vector"])
    if kind in ("arrow", "lz4"):
        feather.write_feather(
            TABLE, folder / "rows.arrow", "lz4" if kind == "lz4" else "uncompressed", chunksize=333
        )
        return shoal.open(folder / "rows.arrow", columns=["vector"])
    if kind == "stream":
        with ipc.new_stream(folder / "rows.arrow", TABLE.schema) as to:
            to.write_table(TABLE, 333)
        return shoal.open(folder / "rows.arrow", columns=["vector"])
    if kind == "chunks":
        return shoal.open(pa.concat_tables([TABLE.slice(0, 10), TABLE.slice(10)]), columns=["vector"])
    if kind == "dataset":
        pq.write_table(TABLE, folder / "rows.parquet", row_group_size=171)
        return shoal.open(ds.dataset(folder / "rows.parquet"), columns=["vector"])
    if kind == "slice":
        twice = pa.concat_tables([TABLE.slice(0, 77), TABLE]).combine_chunks()
        rows = shoal.open(twice, columns=["vector"])
        return rows.slice(7, N + 77).slice(70, N + 70)
    if kind == "polars":
        polars = pytest.importorskip("polars")
        return shoal.open(polars.from_arrow(TABLE), columns=["vector"])
    return shoal.open(TABLE.combine_chunks(), columns=["vector"])


SOURCES = ["parquet", "folder", "arrow", "lz4", "stream", "chunks", "dataset", "slice", "polars", "table"]


@pytest.mark.parametrize("kind", SOURCES)
def test_labels_beside_kept_columns(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("shoal._fit.tables.KEPT_ROWS", 100)
    monkeypatch.setattr(_tables, "GROUP_ROWS", 700)
    rows = written(kind, tmp_path)
    out = tmp_path / "labels.arrow"
    n = shoal.write_predictions(MODEL, rows, out, keep=["year", "id", "kind", "tags"], distances=True)
    found = READERS[".arrow"](out)
    assert n == N
    assert found.column_names == ["year", "id", "kind", "tags", "label", "distance"]
    assert found["id"].to_pylist() == IDS
    assert found["year"].to_pylist() == TABLE["year"].to_pylist()
    assert found["kind"].to_pylist() == KINDS.to_pylist()
    assert found["tags"].to_pylist() == TABLE["tags"].to_pylist()
    np.testing.assert_array_equal(found["label"].to_numpy(), LABELS)
    np.testing.assert_array_equal(found["distance"].to_numpy(), DISTANCES)
    assert [str(found.schema.field(name).type) for name in ("label", "distance")] == ["int32", "double"]


@pytest.mark.parametrize("suffix", READERS)
@pytest.mark.parametrize("distances", [False, True])
def test_every_format(suffix, distances, tmp_path):
    out = tmp_path / f"labels{suffix.upper()}"
    out.write_bytes(b"older")
    shoal.write_predictions(MODEL, TABLE.select(["vector"]), out, distances=distances)
    shoal.write_predictions(
        MODEL, shoal.open(TABLE, columns="vector"), str(out), keep="id", distances=distances
    )
    found = READERS[suffix](out)
    assert found.column_names == ["id", "label", *(["distance"] if distances else [])]
    assert found["id"].to_pylist() == IDS
    np.testing.assert_array_equal(found["label"].to_numpy(), LABELS)
    if distances:
        np.testing.assert_array_equal(found["distance"].to_numpy(), DISTANCES)
    assert names(tmp_path) == [out.name]


def test_pandas_frames(tmp_path, monkeypatch):
    monkeypatch.setattr(_kept, "FRAME_ROWS", 700)
    frame = pd.DataFrame({f"x{j}": X[:, j] for j in range(D)})
    model = shoal.KMeans(K, random_state=0).fit(frame)
    frame = frame.assign(id=IDS, late=[None] * (N - 1) + ["text"], kind=pd.Categorical(KINDS.to_pylist()))
    rows = shoal.open(frame, columns=[f"x{j}" for j in range(D)])
    shoal.write_predictions(model, rows, tmp_path / "l.parquet", keep=["late", "id", "kind", "x1"])
    found = pd.read_parquet(tmp_path / "l.parquet")
    assert list(found) == ["late", "id", "kind", "x1", "label"]
    assert found["id"].tolist() == IDS
    assert found["late"].iloc[-1] == "text"
    assert found["late"].isna().sum() == N - 1
    assert found["kind"].tolist() == KINDS.to_pylist()
    np.testing.assert_array_equal(found["x1"], X[:, 1])
    np.testing.assert_array_equal(found["label"], model.labels_)
    # Features with names are single columns.
    shoal.write_partitions(model, rows, tmp_path / "p", keep=["id", "x1"])
    found = pd.read_parquet(tmp_path / "p")
    assert list(found) == ["id", "x0", "x1", "x2", "x3", "cluster"]
    order = pd.Index(IDS).get_indexer(found["id"])
    np.testing.assert_array_equal(found[["x0", "x1", "x2", "x3"]], X[order])


def clusters(folder):
    """Read partitions as one table."""
    return ds.dataset(folder, partitioning="hive").to_table()


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("memory", [2000, 50_000, 1 << 30])
def test_partitions_of_tables(kind, memory, tmp_path, monkeypatch):
    monkeypatch.setattr("shoal._fit.tables.KEPT_ROWS", 100)
    rows = written(kind, tmp_path)
    folder = tmp_path / "by"
    kept = ["id", "kind", "tags", "vector"]
    assert shoal.write_partitions(MODEL, rows, folder, keep=kept, distances=True, memory_limit=memory) == N
    for cluster in range(K):
        path = folder / f"cluster={cluster}"
        assert names(path) == ["part-0.parquet"]
        with pq.ParquetFile(path / "part-0.parquet") as file:
            found = file.read()
        (members,) = np.nonzero(cluster == LABELS)
        assert found.column_names == ["id", "kind", "tags", "vector", "distance"]
        # Rows keep their order.
        assert found["id"].to_pylist() == [IDS[i] for i in members]
        assert found["kind"].to_pylist() == KINDS.take(members).to_pylist()
        assert found["tags"].to_pylist() == TABLE["tags"].take(members).to_pylist()
        np.testing.assert_array_equal(np.stack(found["vector"].to_numpy()), X[members])
        np.testing.assert_array_equal(found["distance"].to_numpy(), DISTANCES[members])
    assert len(names(folder)) == K


def test_other_libraries_read_partitions(tmp_path):
    shoal.write_partitions(MODEL, X, tmp_path / "by")
    expected = dict(zip(*np.unique(LABELS, return_counts=True), strict=True))
    table = clusters(tmp_path / "by")
    assert table.column_names == ["row", "vector", "cluster"]
    rows = table["row"].to_numpy()
    np.testing.assert_array_equal(np.sort(rows), np.arange(N))
    np.testing.assert_array_equal(table["cluster"].to_numpy(), LABELS[rows])
    np.testing.assert_array_equal(np.stack(table["vector"].to_numpy()), X[rows])
    polars = pytest.importorskip("polars")
    frame = polars.scan_parquet(tmp_path / "by", hive_partitioning=True).collect()
    assert dict(frame.group_by("cluster").len().rows()) == expected
    duckdb = pytest.importorskip("duckdb")
    query = f"select cluster, count(*) from read_parquet('{tmp_path}/by/*/*.parquet', hive_partitioning=true)"
    assert dict(duckdb.sql(f"{query} group by cluster").fetchall()) == expected


@settings(max_examples=15, deadline=None)
@given(
    cuts=st.lists(st.integers(0, N), max_size=12),
    memory=st.sampled_from([100, 5000, 20_000, 1 << 28]),
    dtype=st.sampled_from(["u1", "i2", "f2", "f4", "f8", "i8", "?"]),
)
def test_streams_of_random_blocks(cuts, memory, dtype, tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    stored = np.abs(X * 9).astype(dtype)
    blocks = np.split(stored, sorted(cuts))
    model = shoal.KMeans(3, init=[[0.0] * D, [1.0] * D, [9.0] * D]).fit(np.abs(X))
    labels = model.predict(stored)
    assert shoal.write_partitions(model, iter(blocks), folder / "by", memory_limit=memory) == N
    table = clusters(folder / "by")
    rows = table["row"].to_numpy()
    np.testing.assert_array_equal(np.sort(rows), np.arange(N))
    np.testing.assert_array_equal(table["cluster"].to_numpy(), labels[rows])
    values = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    assert values.dtype == stored.dtype
    np.testing.assert_array_equal(values.reshape(-1, D), stored[rows])
    distances = model.transform(iter(blocks), out=folder / "d.npy")
    np.testing.assert_array_equal(distances, model.transform(stored))


def test_other_models(tmp_path):
    mixture = shoal.TruncatedGaussianMixture(3, n_active=2, random_state=0, tol=0.1).fit(X)
    shoal.write_predictions(mixture, X, tmp_path / "m.parquet", distances=True)
    found = pq.read_table(tmp_path / "m.parquet")
    np.testing.assert_array_equal(found["label"].to_numpy(), mixture.predict(X))
    modes = shoal.LaplacianKModes(3, random_state=0).fit(X[:300])
    shoal.write_partitions(modes, X[:300], tmp_path / "k")
    table = clusters(tmp_path / "k")
    np.testing.assert_array_equal(
        table["cluster"].to_numpy(), modes.predict(X[:300])[table["row"].to_numpy()]
    )
    with pytest.raises(ValueError, match="distances must be None for LaplacianKModes"):
        shoal.write_predictions(modes, X, tmp_path / "x.parquet", distances=True)
    diagonal = shoal.TruncatedGaussianMixture(3, n_active=2, covariance_type="diag", tol=0.1).fit(X)
    with pytest.raises(ValueError, match="distances must be None with covariance_type='diag'"):
        shoal.write_partitions(diagonal, X, tmp_path / "x", distances=True)
    assert names(tmp_path) == ["k", "m.parquet"]


# ---------------------------------------------------------------- errors


def test_errors_come_before_any_row_is_read(tmp_path):
    from sklearn.exceptions import NotFittedError

    def refused(error, message, write, *args, **more):
        rows = iter([X])
        with pytest.raises(error, match=message):
            write(more.pop("model", MODEL), more.pop("rows", rows), *args, **more)
        assert len(list(rows)) == 1

    table, parts = shoal.write_predictions, shoal.write_partitions
    for name in ("l.npy", "l.txt", "l", "l.safetensors"):
        refused(ValueError, r"out must be a file that ends in \.parquet, \.arrow", table, tmp_path / name)
    refused(FileNotFoundError, "folder", table, tmp_path / "none" / "l.parquet")
    refused(FileNotFoundError, "parent folder", parts, tmp_path / "none" / "by")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    refused(FileExistsError, "new or empty folder, got one with files", parts, tmp_path / "full")
    refused(FileExistsError, "new or empty folder, got a file", parts, tmp_path / "full" / "file")
    for write, out in ((table, tmp_path / "l.parquet"), (parts, tmp_path / "by")):
        refused(TypeError, "model must be a fitted estimator of shoal, got int", write, out, model=3)
        refused(NotFittedError, "not fitted", write, out, model=shoal.KMeans(3))
        refused(ValueError, "keep must be a list of names, got 3", write, out, keep=3)
    refused(ValueError, "memory_limit", parts, tmp_path / "by", memory_limit="many")
    assert names(tmp_path) == ["full"]


def test_kept_columns_are_checked(tmp_path):
    rows = shoal.open(TABLE, columns=["vector"])
    for write, out in ((shoal.write_predictions, "l.csv"), (shoal.write_partitions, "by")):
        with pytest.raises(ValueError, match=r"pyarrow table: keep must be among 'id', .*, got 'ident'"):
            write(MODEL, rows, tmp_path / out, keep=["ident"])
        with pytest.raises(ValueError, match="keep must be distinct, got 'id' twice"):
            write(MODEL, rows, tmp_path / out, keep=["id", "id"])
        reader = shoal.open(TABLE.select(["vector"]).to_reader())
        for without in (X, lambda: iter([X]), reader):
            with pytest.raises(ValueError, match=r"keep must be None for .*, got \['id'\]"):
                write(MODEL, without, tmp_path / out, keep=["id"])
    with pytest.raises(ValueError, match=r"column 'tags' must hold single values in a \.csv file"):
        shoal.write_predictions(MODEL, rows, tmp_path / "l.csv", keep=["tags"])
    renamed = TABLE.rename_columns(["label", "vector", "cluster", "row", "distance"])
    rows = shoal.open(renamed, columns=["vector"])
    with pytest.raises(ValueError, match="must not have a column 'label'"):
        shoal.write_predictions(MODEL, rows, tmp_path / "l.parquet", keep=["label"])
    for name, distances in (("cluster", False), ("distance", True)):
        with pytest.raises(ValueError, match=f"must not have a column '{name}'"):
            shoal.write_partitions(MODEL, rows, tmp_path / "by", keep=[name], distances=distances)
    shoal.write_partitions(MODEL, rows, tmp_path / "by", keep=["label", "row", "distance"])
    assert sorted(clusters(tmp_path / "by")["label"].to_pylist()) == sorted(IDS)
    assert names(tmp_path) == ["by"]


def test_sparse_rows_have_no_partitions(tmp_path):
    from scipy import sparse

    with pytest.raises(TypeError, match="rows must be dense for folder"):
        shoal.write_partitions(MODEL, sparse.csr_array(X), tmp_path / "by")
    shoal.write_predictions(MODEL, sparse.csr_array(X), tmp_path / "l.parquet")
    assert names(tmp_path) == ["l.parquet"]


def broken():
    yield X[:2000]
    raise RuntimeError("no more")


def interrupted():
    yield X[:2000]
    raise KeyboardInterrupt


@pytest.mark.parametrize(("rows", "error"), [(broken, RuntimeError), (interrupted, KeyboardInterrupt)])
def test_a_failed_pass_leaves_nothing(rows, error, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "l.arrow").write_bytes(b"older")
    for write, out, more in (
        (shoal.write_predictions, "l.arrow", {}),
        (shoal.write_partitions, "by", {"memory_limit": 1000}),
        (shoal.write_partitions, "empty", {"memory_limit": "1GB"}),
    ):
        with pytest.raises(error):
            write(MODEL, rows(), tmp_path / out, **more)
    for out in ("l.arrow", "l.npy", "l.parquet"):
        with pytest.raises(error):
            MODEL.transform(rows(), out=tmp_path / out)
    assert names(tmp_path) == ["empty", "l.arrow"]
    assert (tmp_path / "l.arrow").read_bytes() == b"older"
    # An empty folder is filled.
    shoal.write_partitions(MODEL, X, tmp_path / "empty")
    assert len(names(tmp_path / "empty")) == K


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    sync, calls = os.fsync, []

    def full(file):
        calls.append(file)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(file)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="by") as raised:
        shoal.write_partitions(MODEL, X, tmp_path / "by")
    assert raised.value.errno == errno.ENOSPC
    assert names(tmp_path) == []


def test_a_table_that_changes_is_an_error(tmp_path):
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    rows = shoal.open(tmp_path / "rows.parquet", columns=["vector"])
    pq.write_table(TABLE.slice(0, 100), tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"changed|damaged|cannot be read"):
        shoal.write_predictions(MODEL, rows, tmp_path / "l.parquet", keep=["id"])
    short = _kept.Table("it", TABLE.schema, lambda names: TABLE.slice(0, 99).select(names).to_batches(), [])
    part = _kept.Kept(short, ["id"], 9)
    assert part.take(80)["id"].to_pylist() == IDS[9:89]
    with pytest.raises(ValueError, match="have 10 rows where 20 were read before"):
        part.take(20)


def test_a_damaged_kept_column_is_an_error(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(TABLE, path, compression="none", write_page_checksum=True)
    contents = path.read_bytes()
    at = contents.index(b"row 2000")
    path.write_bytes(contents[:at] + b"x" + contents[at + 1 :])
    rows = shoal.open(path, columns=["vector"])
    with pytest.raises(ValueError, match=r"rows\.parquet"):
        shoal.write_predictions(MODEL, rows, tmp_path / "l.parquet", keep=["id"])
    assert names(tmp_path) == ["rows.parquet"]


def test_tables_cannot_replace_files_that_are_read(tmp_path):
    written("folder", tmp_path)
    rows = shoal.open(tmp_path / "rows", columns=["vector"])
    with pytest.raises(ValueError, match="lies in the folder that is read"):
        shoal.write_predictions(MODEL, rows, tmp_path / "rows" / "l.parquet")
    with pytest.raises(FileExistsError):
        shoal.write_partitions(MODEL, rows, tmp_path / "rows")


# ---------------------------------------------------------------- bounds


def in_process(code, *args):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_2000_clusters_with_few_open_files(tmp_path):
    code = """
        import os, resource, sys, numpy as np, shoal, pyarrow.parquet
        os.fsync = lambda file: None
        rows = np.arange(6000, dtype="f4")[:, None] % 2000
        model = shoal.KMeans(2000, init=np.arange(2000, dtype="f4")[:, None], max_iter=1).fit(rows)
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        print(shoal.write_partitions(model, rows, sys.argv[1], memory_limit=10_000))
    """
    assert in_process(code, tmp_path / "by") == ["6000"]
    assert len(names(tmp_path / "by")) == 2000
    found = pq.read_table(tmp_path / "by" / "cluster=1234" / "part-0.parquet")
    assert found["row"].to_pylist() == [1234, 3234, 5234]


def test_memory_of_partitions_is_bounded(tmp_path):
    code = """
        import sys, numpy as np, pyarrow as pa, shoal
        centers = np.random.default_rng(99).normal(size=(40, 5))
        model = shoal.KMeans(40, init=centers).fit(centers)
        def make():
            for i in range(40):
                yield np.random.default_rng(i).normal(size=(20_000, 5))
        print(shoal.write_partitions(model, make, sys.argv[1], memory_limit="8MB"))
        print(pa.default_memory_pool().max_memory() >> 20)
    """
    rows, most = map(int, in_process(code, tmp_path / "by"))
    # 32 MB of vectors, and 6 MB of row numbers.
    assert rows == 800_000
    assert most < 16, most


# ---------------------------------------------------------------- transform


def test_transform_into_arrays_and_files(tmp_path, monkeypatch):
    monkeypatch.setattr("shoal._fit.results.PART_BYTES", 4 * K * 97)
    expected = MODEL.transform(X)
    np.save(tmp_path / "rows.npy", X)
    out = np.empty((N, K), "f4")
    for rows in (X, tmp_path / "rows.npy", iter(np.array_split(X, 7)), lambda: iter([X]), TABLE.select([1])):
        out[:] = -1
        assert MODEL.transform(rows, out=out) is out
        np.testing.assert_array_equal(out, expected)
    for suffix, read in READERS.items():
        if suffix == ".csv":
            continue
        found = MODEL.transform(iter(np.array_split(X, 7)), out=tmp_path / f"d{suffix}")
        assert isinstance(found, np.memmap)
        np.testing.assert_array_equal(found, expected)
        column = read(tmp_path / f"d{suffix}")["distances"]
        assert str(column.type).endswith("[7]")
        np.testing.assert_array_equal(np.stack(column.to_numpy()), expected)
    found = MODEL.transform(iter(np.array_split(X, 7)), out=tmp_path / "d.npy")
    assert isinstance(found, np.memmap)
    assert not found.flags.writeable
    np.testing.assert_array_equal(found, expected)
    stored = np.load(tmp_path / "d.npy")
    assert stored.dtype == expected.dtype
    np.testing.assert_array_equal(stored, expected)


def test_transform_of_sparse_and_cosine_rows(tmp_path, monkeypatch):
    from scipy import sparse

    monkeypatch.setattr("shoal._fit.results.PART_BYTES", 8 * K * 97)
    rows = sparse.csr_array(np.where(np.abs(X) < 1, 0, X))
    np.testing.assert_array_equal(MODEL.transform(rows, out=tmp_path / "d.npy"), MODEL.transform(rows))
    model = shoal.KMeans(3, metric="cosine", random_state=0).fit(X)
    np.testing.assert_array_equal(model.transform(X, out=tmp_path / "d.npy"), model.transform(X))


def test_errors_of_transform(tmp_path, monkeypatch):
    monkeypatch.setattr("shoal._fit.results.PART_BYTES", 4 * K * 100)
    for out, message in (
        (np.empty((N, K)), "out must be a writable 2-D array of float32, got a 2-D one of float64"),
        (np.empty(N, "f4"), "got a 1-D one"),
        (np.empty((N, K + 1), "f4"), "out must have one column per cluster, 7 columns, got 8"),
        (np.empty((N - 1, K), "f4"), "out has 2999 rows, X has 3000 rows"),
        (tmp_path / "d.csv", r"out must be a file that ends in \.npy, \.parquet, \.arrow or \.feather"),
    ):
        with pytest.raises(ValueError, match=message):
            MODEL.transform(X, out=out)
    with pytest.raises(ValueError, match="out has 2999 rows, X has more rows"):
        MODEL.transform(iter([X]), out=np.empty((N - 1, K), "f4"))
    with pytest.raises(TypeError, match=r"out must be an array, .* \.parquet, \.arrow or \.feather too"):
        MODEL.transform(X, out=3)
    np.save(tmp_path / "rows.npy", X)
    with pytest.raises(ValueError, match="is the file that is read"):
        MODEL.transform(tmp_path / "rows.npy", out=tmp_path / "rows.npy")
    bad = X.copy()
    bad[2500, 1] = np.nan
    for rows in (bad, iter(np.array_split(bad, 11))):
        with pytest.raises(ValueError, match="X must be finite, got NaN at row 2500, column 1"):
            MODEL.transform(rows, out=tmp_path / "d.npy")
    assert names(tmp_path) == ["rows.npy"]


# ---------------------------------------------------------------- command line


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A folder with a model and rows in a table and in an array."""
    monkeypatch.chdir(tmp_path)
    MODEL.save("m.safetensors")
    pq.write_table(TABLE, "rows.parquet", row_group_size=500)
    np.save("rows.npy", X)
    return tmp_path


TABULAR = ["predict", "m.safetensors", "rows.parquet", "--columns", "vector"]


def test_shoal_predict_writes_tables_and_partitions(program, capsys):
    more = ["-o", "l.parquet", "--keep", "id,year", "--distances", "l.parquet"]
    assert cli.main([*TABULAR, *more, "--partition-by-cluster", "by", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rows"] == N
    assert told["clusters_used"] == K
    assert (told["labels"], told["distances"], told["kept"]) == ("l.parquet", "l.parquet", ["id", "year"])
    assert told["partitions"] == "by"
    found = pq.read_table("l.parquet")
    assert found.column_names == ["id", "year", "label", "distance"]
    np.testing.assert_array_equal(found["label"].to_numpy(), LABELS)
    np.testing.assert_array_equal(found["distance"].to_numpy(), DISTANCES)
    parts = clusters("by")
    assert parts.column_names == ["id", "year", "vector", "cluster"]
    order = pd.Index(IDS).get_indexer(parts["id"].to_pylist())
    np.testing.assert_array_equal(parts["cluster"].to_numpy(), LABELS[order])
    assert cli.main([*TABULAR, "--partition-by-cluster", "other"]) == 0
    assert "other" in capsys.readouterr().out
    assert clusters("other").column_names == ["row", "vector", "cluster"]


def test_shoal_predict_writes_all_outputs_in_one_pass(program, capsys):
    more = ["-o", "l.txt", "--distances", "d.arrow", "--partition-by-cluster", "by"]
    assert cli.main(["predict", "m.safetensors", "rows.npy", *more]) == 0
    np.testing.assert_array_equal(np.loadtxt("l.txt"), LABELS)
    np.testing.assert_array_equal(READERS[".arrow"]("d.arrow")["distance"].to_numpy(), DISTANCES)
    assert len(clusters("by")) == N
    more = ["-o", "k.csv", "--keep", "id", "--distances", "d.npy"]
    assert cli.main([*TABULAR, *more]) == 0
    assert pd.read_csv("k.csv")["label"].tolist() == LABELS.tolist()
    np.testing.assert_array_equal(np.load("d.npy"), DISTANCES)
    capsys.readouterr()


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".txt", ".parquet", ".arrow", ".feather"])
def test_shoal_fit_writes_labels(suffix, program, capsys):
    fit = ["fit", "rows.npy", "-k", "7", "--quiet", "-o", "n.safetensors", "--labels", f"l{suffix}"]
    assert cli.main(fit) == 0
    path = program / f"l{suffix}"
    if suffix == ".npy":
        found = np.load(path)
    elif suffix == ".txt":
        found = np.loadtxt(path, dtype="i4")
    else:
        found = READERS[suffix](path)["label"].to_numpy()
    np.testing.assert_array_equal(found, shoal.load("n.safetensors").predict(X))
    capsys.readouterr()


def test_shoal_predict_checks_outputs_before_any_work(program, capsys, monkeypatch):
    before = names(program)
    (program / "full").mkdir()
    (program / "full" / "file").touch()
    monkeypatch.setattr(shoal, "open", lambda *_, **__: pytest.fail("work was begun"))
    with pytest.raises(SystemExit) as raised:
        cli.main([*TABULAR, "-o", "l.npy", "--keep", "id"])
    assert raised.value.code == 2
    assert "--output must be a file that ends in .parquet, .arrow" in capsys.readouterr().err
    for args, message in (
        (["-o", "l.npy", "--distances", "l.npy"], "written twice"),
        (["--partition-by-cluster", "full"], "full: --partition-by-cluster must be a new or empty folder"),
        (["--partition-by-cluster", "none/by"], "none/by: its parent folder does not exist"),
        (["--partition-by-cluster", "rows.npy"], "must be a new or empty folder, got a file"),
    ):
        assert cli.main([*TABULAR, *args]) == 1
        assert message in capsys.readouterr().err
    (program / "empty").mkdir()
    assert cli.main([*TABULAR, "-o", "empty/l.npy", "--partition-by-cluster", "empty"]) == 1
    assert "lies in the folder of --partition-by-cluster" in capsys.readouterr().err
    with pytest.raises(SystemExit) as raised:
        cli.main(TABULAR)
    assert raised.value.code == 2
    assert "--output or --partition-by-cluster is required" in capsys.readouterr().err
    assert names(program) == sorted([*before, "full", "empty"])


def test_shoal_predict_names_its_options(program, capsys):
    assert cli.main([*TABULAR, "-o", "l.csv", "--keep", "ident"]) == 1
    assert "--keep must be among 'id'" in capsys.readouterr().err
    assert cli.main(["predict", "m.safetensors", "rows.npy", "-o", "l.csv", "--keep", "id"]) == 1
    assert "--keep must be None" in capsys.readouterr().err
    assert names(program) == ["m.safetensors", "rows.npy", "rows.parquet"]


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_an_interrupted_program_leaves_nothing(program):
    code = """
        import os, signal, sys, shoal
        from shoal import cli
        from shoal._fit import tables
        take = tables.PartitionWriter.take
        def slow(self, part):
            take(self, part)
            os.kill(os.getpid(), signal.SIGINT)
        tables.PartitionWriter.take = slow
        sys.exit(cli.main(sys.argv[1:]))
    """
    args = [*TABULAR, "-o", "l.parquet", "--keep", "id", "--partition-by-cluster", "by"]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *args], capture_output=True, text=True, check=False
    )
    assert done.returncode == 128 + signal.SIGINT
    assert "interrupted" in done.stderr
    assert names(program) == ["m.safetensors", "rows.npy", "rows.parquet"]


@pytest.mark.filterwarnings("ignore:X has feature names")
def test_kept_columns_of_transformed_slices(tmp_path):
    table = TABLE.select(["id", "vector"]).combine_chunks()
    rows = shoal.open(table, columns=["vector"])
    numbers = [f"x{i}" for i in range(D)]
    frame = pd.DataFrame(X, columns=numbers).assign(id=IDS)
    sources = {
        "normalize": rows.slice(100, 200).normalize(),
        "normalize first": rows.normalize().slice(100, 200),
        "map": rows.slice(50, 300).map(abs).slice(50, 150),
        "standardize": rows.slice(50, 300).standardize().slice(50, 150),
        "pandas": shoal.open(frame, columns=numbers).slice(100, 200).normalize(),
    }
    for name, source in sources.items():
        out = tmp_path / "labels.arrow"
        shoal.write_predictions(MODEL, source, out, keep=["id"])
        assert READERS[".arrow"](out)["id"].to_pylist() == IDS[100:200], name
    shoal.write_partitions(MODEL, sources["normalize"], tmp_path / "parts", keep=["id"])
    parts = ds.dataset(tmp_path / "parts").to_table()
    assert sorted(parts["id"].to_pylist()) == sorted(IDS[100:200])
