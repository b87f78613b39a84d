"""Labels and distances written block by block to arrays and files."""

import errno
import os
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest
import shoal
from shoal._files.outputs import Mapped

X = np.random.default_rng(2).normal(size=(3000, 4)).astype("f4")
MODEL = shoal.KMeans(7, random_state=0).fit(X)
LABELS = MODEL.predict(X)
DISTANCES = np.linalg.norm(X.astype("f8") - MODEL.cluster_centers_[LABELS].astype("f8"), axis=1)


def blocks():
    return iter(np.array_split(X, 11))


@pytest.fixture(params=["array", "callable", "iterator", "path", "fortran", "list"])
def rows(request, tmp_path):
    if request.param == "path":
        np.save(tmp_path / "rows.npy", X)
    return {
        "array": X,
        "callable": blocks,
        "iterator": blocks(),
        "path": tmp_path / "rows.npy",
        "fortran": np.asfortranarray(X),
        "list": X.astype("f8").tolist(),
    }[request.param]


def test_into_arrays(rows):
    out, distances = np.full(3000, -1, dtype="i4"), np.empty(6000)[::2]
    assert MODEL.predict(rows, out=out, distances=distances) is out
    np.testing.assert_array_equal(out, LABELS)
    np.testing.assert_allclose(distances, DISTANCES, rtol=1e-12)


def test_into_files(rows, tmp_path, monkeypatch):
    monkeypatch.setattr("shoal._fit.results.PART_ROWS", 999)
    (tmp_path / "labels.npy").write_bytes(b"older")
    found = MODEL.predict(rows, out=tmp_path / "labels.npy", distances=str(tmp_path / "distances.npy"))
    np.testing.assert_array_equal(found, LABELS)
    assert isinstance(found, np.memmap)
    stored = np.load(tmp_path / "labels.npy")
    assert stored.dtype == np.int32
    np.testing.assert_array_equal(stored, LABELS)
    np.testing.assert_allclose(np.load(tmp_path / "distances.npy"), DISTANCES, rtol=1e-12)


def test_outputs_that_share_memory_with_the_rows_are_refused():
    rows = np.zeros((4, 4), dtype="f8")
    out = rows.reshape(-1).view("i4")[:4]
    with pytest.raises(ValueError, match="out shares memory with X"):
        MODEL.predict(rows, out=out)
    with pytest.raises(ValueError, match="distances shares memory with X"):
        MODEL.predict(rows, distances=rows[:, 0])
    both = np.zeros(8)
    with pytest.raises(ValueError, match="distances shares memory with out"):
        MODEL.predict(np.ones((4, 4)), out=both.view("i4")[:4], distances=both[:4])
    assert not rows.any()
    # Different parts of one array do not overlap.
    MODEL.predict(np.zeros((4, 4)), out=both.view("i4")[:4], distances=both[4:])


def test_labels_or_distances_alone(rows):
    distances = np.empty(3000)
    np.testing.assert_array_equal(MODEL.predict(rows, distances=distances), LABELS)
    np.testing.assert_allclose(distances, DISTANCES, rtol=1e-12)


def test_cosine():
    model = shoal.KMeans(3, metric="cosine", random_state=0).fit(X)
    distances = np.empty(3000)
    labels = model.predict(X, distances=distances)
    np.testing.assert_array_equal(labels, model.labels_)
    np.testing.assert_allclose(distances, model.transform(X).min(axis=1), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "given", "kind", "message"),
    [
        (
            "out",
            np.empty(3000, "i8"),
            ValueError,
            "out must be a writable 1-D array of int32, got a 1-D one of int64",
        ),
        ("out", np.empty((3000, 1), "i4"), ValueError, "got a 2-D one of int32"),
        ("out", np.empty(2999, "i4"), ValueError, "out has 2999 values, X has 3000 rows"),
        ("distances", np.empty(3001), ValueError, "distances has 3001 values, X has 3000 rows"),
        ("distances", np.empty(3000, "f4"), ValueError, "distances must be a writable 1-D array of float64"),
        ("out", np.broadcast_to(np.int32(0), 3000), ValueError, "got a read-only 1-D one"),
        ("out", [0] * 3000, TypeError, "out must be an array, the path of a .npy file or None"),
        ("out", "no/such/folder/x.npy", FileNotFoundError, "no/such/folder/x.npy"),
        ("distances", "folder.npy", IsADirectoryError, "directory"),
        ("distances", ".", ValueError, "distances must be a file that ends in"),
    ],
)
def test_errors(name, given, kind, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(kind, match=message):
        MODEL.predict(X, **{name: given})
    if "X has 3000" not in message:
        # Errors are raised before a row is read.
        untouched = blocks()
        with pytest.raises(kind, match=message):
            MODEL.predict(untouched, **{name: given})
        assert len(list(untouched)) == 11


def test_a_stream_of_another_length_is_an_error(tmp_path):
    for n, more in ((2000, "more"), (4000, "3000")):
        with pytest.raises(ValueError, match=f"out has {n} values, X has {more} rows"):
            MODEL.predict(blocks(), out=np.empty(n, "i4"))
    with pytest.raises(ValueError, match="same file"):
        MODEL.predict(X, out=tmp_path / "x.npy", distances=str(tmp_path / "x.npy"))


def test_a_failure_leaves_no_files(tmp_path):
    def broken():
        yield X
        raise RuntimeError("broken")

    (tmp_path / "labels.npy").write_bytes(b"older")
    for bad, kind in ((broken(), RuntimeError), (iter([X, X[:, :2]]), ValueError), (X * np.nan, ValueError)):
        with pytest.raises(kind):
            MODEL.predict(bad, out=tmp_path / "labels.npy", distances=tmp_path / "distances.npy")
        assert [path.name for path in tmp_path.iterdir()] == ["labels.npy"]
        assert (tmp_path / "labels.npy").read_bytes() == b"older"


@pytest.mark.parametrize("kind", ["array", "path", "slice", "iterator", "callable"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_errors_count_rows_over_all_blocks(kind, metric, tmp_path, monkeypatch):
    monkeypatch.setattr("shoal._fit.results.PART_ROWS", 1000)
    bad = X.copy()
    bad[2500, 1] = np.nan
    np.save(tmp_path / "rows.npy", bad)
    np.save(tmp_path / "more.npy", np.concatenate([X[:77], bad]))

    def rows():
        return {
            "array": bad,
            "path": tmp_path / "rows.npy",
            "slice": shoal.open(tmp_path / "more.npy").slice(77, 3077),
            "iterator": iter(np.array_split(bad, 11)),
            "callable": lambda: iter(np.array_split(bad, 11)),
        }[kind]

    model = shoal.KMeans(7, metric=metric, random_state=0).fit(X)
    for to in ({}, {"out": np.empty(3000, "i4")}, {"distances": np.empty(3000)}):
        with pytest.raises(ValueError, match=r"X must be finite, got NaN at row 2500, column 1$"):
            model.predict(rows(), **to)


def test_errors_count_rows_over_blocks_of_the_default_size():
    rows = np.zeros(((1 << 20) + 10, 1), "f4")
    rows[(1 << 20) + 7] = np.inf
    model = shoal.KMeans(1).fit(rows[:5])
    with pytest.raises(ValueError, match=r"X must be finite, got inf at row 1048583, column 0$"):
        model.predict(rows, out=np.empty(len(rows), "i4"))


def test_invalid_centers_are_named_by_row():
    model = shoal.KMeans(7, random_state=0).fit(X)
    model.cluster_centers_[3, 2] = np.nan
    with pytest.raises(ValueError, match="centers must be finite, got NaN at row 3, column 2"):
        model.predict(X, out=np.empty(3000, "i4"))


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Rows in the file x.npy in the working folder."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    return tmp_path


@pytest.mark.parametrize("argument", ["out", "distances"])
@pytest.mark.parametrize(
    "read",
    [
        lambda: "x.npy",
        lambda: shoal.open("x.npy"),
        lambda: shoal.open("x.npy").slice(0, 2000).slice(5, 100),
        lambda: np.load("x.npy", mmap_mode="r"),
        lambda: np.asarray(np.load("x.npy", mmap_mode="r"))[5:100, ::-1],
        lambda: shoal.open(np.load("x.npy", mmap_mode="r")).slice(5, 100),
    ],
)
def test_the_input_file_is_not_replaced(elsewhere, read, argument):
    before = (elsewhere / "x.npy").read_bytes()
    (elsewhere / "link.npy").symlink_to("x.npy")
    (elsewhere / "hard.npy").hardlink_to("x.npy")
    rows = read()
    for name in ("x.npy", "./x.npy", elsewhere / "x.npy", "link.npy", "hard.npy"):
        with pytest.raises(ValueError, match=f"{argument}=.*is the file that is read: choose another name"):
            MODEL.predict(rows, **{argument: name})
    assert (elsewhere / "x.npy").read_bytes() == before
    assert sorted(path.name for path in elsewhere.iterdir()) == ["hard.npy", "link.npy", "x.npy"]
    n = rows.shape[0] if hasattr(rows, "shape") else len(X)
    assert len(MODEL.predict(rows, **{argument: "other.npy"})) == n
    assert len(np.load("other.npy")) == n


def test_the_input_file_is_recognized_from_any_working_folder(elsewhere, monkeypatch):
    source = shoal.open("x.npy")
    (elsewhere / "there").mkdir()
    monkeypatch.chdir("there")
    with pytest.raises(ValueError, match="is the file that is read"):
        MODEL.predict(source, out="../x.npy")
    assert len(MODEL.predict(source, out="x.npy")) == len(X)


def test_files_of_an_input_folder_are_not_replaced(elsewhere):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (elsewhere / "rows").mkdir()
    parquet.write_table(arrow.table({c: X[:, i] for i, c in enumerate("abcd")}), "rows/0.parquet")
    before = (elsewhere / "rows" / "0.parquet").read_bytes()
    model = shoal.KMeans(7, random_state=0).fit("rows")
    with pytest.raises(ValueError, match=r"out='rows/0\.parquet' lies in the folder that is read"):
        model.predict("rows", out="rows/0.parquet")
    assert (elsewhere / "rows" / "0.parquet").read_bytes() == before
    # Twice, because the file exists the second time.
    for _ in range(2):
        np.testing.assert_array_equal(model.predict("rows", out="rows/labels.npy"), model.labels_)


def test_outputs_do_not_replace_each_other(elsewhere):
    (elsewhere / "link.npy").symlink_to("y.npy")
    np.save("y.npy", np.empty(3000))
    mapped = np.load("y.npy", mmap_mode="r+")
    for out, distances in (
        ("y.npy", "y.npy"),
        ("y.npy", "link.npy"),
        ("none.npy", "./none.npy"),
        ("y.npy", mapped),
    ):
        with pytest.raises(ValueError, match="out and distances are the same file"):
            MODEL.predict(X, out=out, distances=distances)
    assert sorted(path.name for path in elsewhere.iterdir()) == ["link.npy", "x.npy", "y.npy"]


def test_sparse_rows(tmp_path):
    from scipy import sparse

    dense = np.where(np.abs(X) < 1, 0, X)
    out, distances = np.empty(3000, "i4"), tmp_path / "distances.npy"
    MODEL.predict(sparse.csr_array(dense), out=out, distances=distances)
    np.testing.assert_array_equal(out, MODEL.predict(dense))
    np.testing.assert_allclose(np.load(distances), MODEL.transform(dense).min(axis=1), rtol=1e-5)


def test_memory_is_bounded(tmp_path):
    code = f"""
        import resource, numpy as np, shoal
        model = shoal.KMeans(2, init=[[0.0], [9.0]]).fit(np.array([[0.0], [9.0]]))
        def make():
            for i in range(100):
                yield np.full((100_000, 1), i % 10, dtype="u1")
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        to = dict(out={str(tmp_path / "a.npy")!r}, distances={str(tmp_path / "b.npy")!r})
        model.predict(np.zeros((1 << 20, 1)), **to)
        before = peak()
        found = model.predict(make, **to)
        print(peak() - before, len(found))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    grown, rows = map(int, done.stdout.split())
    # 114 MiB of labels and distances.
    assert rows == 10_000_000
    assert grown < 40, grown


def test_two_files_are_replaced_together(tmp_path, monkeypatch):
    for suffix in (".npy", ".csv"):
        names = tmp_path / f"labels{suffix}", tmp_path / f"distances{suffix}"
        for name in names:
            name.write_bytes(b"older")
        sync, calls = os.fsync, []

        def full(file, sync=sync, calls=calls):
            calls.append(file)
            if len(calls) == 2:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(file)

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=f"distances{suffix}"):
            MODEL.predict(X, out=names[0], distances=names[1])
        monkeypatch.setattr(os, "fsync", sync)
        assert [name.read_bytes() for name in names] == [b"older"] * 2
        MODEL.predict(X, out=names[0], distances=names[1])
        assert all(name.read_bytes() != b"older" for name in names)
        assert sorted(path.suffix for path in tmp_path.glob(f"*{suffix}")) == [suffix] * 2


def test_errors_of_a_mapped_result_name_its_file(tmp_path):
    out = Mapped(tmp_path / "labels.csv", np.int32)
    out._file.close()
    out._file = SimpleNamespace(write=refuse)
    with pytest.raises(OSError, match=r"labels\.csv"):
        out.append(LABELS)
    with pytest.raises(FileNotFoundError, match=r"labels\.csv"):
        Mapped(tmp_path / "none" / "labels.csv", np.int32)


def refuse(_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
