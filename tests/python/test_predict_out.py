"""Labels and distances into arrays and files, block by block."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import shoal

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
    monkeypatch.setattr("shoal._results.PART_ROWS", 999)
    (tmp_path / "labels.npy").write_bytes(b"older")
    found = MODEL.predict(rows, out=tmp_path / "labels.npy", distances=str(tmp_path / "distances.npy"))
    np.testing.assert_array_equal(found, LABELS)
    assert isinstance(found, np.memmap)
    stored = np.load(tmp_path / "labels.npy")
    assert stored.dtype == np.int32
    np.testing.assert_array_equal(stored, LABELS)
    np.testing.assert_allclose(np.load(tmp_path / "distances.npy"), DISTANCES, rtol=1e-12)


def test_one_of_the_two(rows):
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
        ("distances", ".", IsADirectoryError, "directory"),
    ],
)
def test_refusals(name, given, kind, message):
    with pytest.raises(kind, match=message):
        MODEL.predict(X, **{name: given})
    if "X has 3000" not in message:
        # Before a row is read.
        untouched = blocks()
        with pytest.raises(kind, match=message):
            MODEL.predict(untouched, **{name: given})
        assert len(list(untouched)) == 11


def test_a_stream_of_another_length_is_told(tmp_path):
    for n, more in ((2000, "more"), (4000, "3000")):
        with pytest.raises(ValueError, match=f"out has {n} values, X has {more} rows"):
            MODEL.predict(blocks(), out=np.empty(n, "i4"))
    with pytest.raises(ValueError, match="same file"):
        MODEL.predict(X, out=tmp_path / "x.npy", distances=str(tmp_path / "x.npy"))


def test_nothing_is_left_of_a_failure(tmp_path):
    def broken():
        yield X
        raise RuntimeError("broken")

    (tmp_path / "labels.npy").write_bytes(b"older")
    for bad, kind in ((broken(), RuntimeError), (iter([X, X[:, :2]]), ValueError), (X * np.nan, ValueError)):
        with pytest.raises(kind):
            MODEL.predict(bad, out=tmp_path / "labels.npy", distances=tmp_path / "distances.npy")
        assert [path.name for path in tmp_path.iterdir()] == ["labels.npy"]
        assert (tmp_path / "labels.npy").read_bytes() == b"older"


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
