"""`shoal.open` and its sources of rows."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import shoal
from scipy.sparse import csr_matrix
from shoal import KMeans
from stored import DTYPES, made


@pytest.mark.parametrize("kind", ["array", "file", "raw", "slice of an array", "slice of a file"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_attributes_and_rows(dtype, kind, tmp_path):
    X = made(dtype)
    npy, raw = tmp_path / "x.npy", tmp_path / "x.bin"
    np.save(npy, X)
    X.tofile(raw)
    if kind == "array":
        source = shoal.open(X)
    elif kind == "raw":
        source = shoal.open(raw, shape=X.shape, dtype=dtype)
    else:
        source = shoal.open(npy if "file" in kind else X)
    if kind.startswith("slice"):
        source, X = source.slice(4, 20), X[4:20]
    assert isinstance(source, shoal.DataSource)
    assert source.shape == X.shape
    assert len(source) == len(X)
    assert source.dtype == X.dtype
    assert source.nbytes == X.nbytes
    assert source.access == "random"
    assert dtype in repr(source)
    assert f"{len(X)} x 3" in repr(source)
    for rows in (None, 1, 7, len(X), 1000):
        blocks = list(source.blocks(rows))
        assert all(block.dtype == X.dtype for block in blocks)
        assert all(len(block) == rows for block in blocks[:-1])
        assert (np.concatenate(blocks) == X).all()
    wanted = [3, 3, 0, -1, len(X) - 1]
    taken = source.take(wanted)
    assert taken.dtype == X.dtype
    assert (taken == X[wanted]).all()
    assert source.take([]).shape == (0, 3)
    part = source.slice(2, 9).slice(1, 5)
    assert part.shape == (4, 3)
    assert (np.concatenate(list(part.blocks(3))) == X[3:7]).all()
    assert source.slice(5, 5).shape == (0, 3)
    assert list(source.slice(5, 5).blocks()) == []


def test_integers_beyond_float64_are_read_exactly(tmp_path):
    X = np.array([[2**53 + 1, -(2**62) - 1], [np.iinfo(np.int64).max, np.iinfo(np.int64).min]])
    assert (X.astype(np.float64).astype(object) != X.astype(object)).any()
    path = tmp_path / "x.npy"
    np.save(path, X)
    sources = [shoal.open(path), shoal.open(X), shoal.open(path).slice(0, 2), shoal.open(lambda: iter([X]))]
    for source in [*sources, shoal.open(csr_matrix(X))]:
        assert source.dtype == np.int64
        (block,) = source.blocks()
        assert ((block.toarray() if source.sparse else block) == X).all()
        taken = source.take([1, 0, 1])
        assert taken.dtype == np.int64
        assert (taken == X[[1, 0, 1]]).all()
        assert source.take([]).shape == (0, 2)
        with pytest.raises(IndexError, match="row 2 does not exist"):
            source.take([2])
    big = np.array([[2**64 - 1, 0]], dtype=np.uint64)
    np.save(path, big)
    assert (next(shoal.open(path).blocks()) == big).all()


@pytest.mark.parametrize("dtype", ["bool", "u1", "i2", "f2", "u4", "f4", "f8"])
def test_single_rows_have_the_type_of_blocks(dtype):
    X = np.arange(12).reshape(4, 3).astype(dtype)
    for source in (shoal.open(X), shoal.open(lambda: iter([X]))):
        (block,) = source.blocks()
        taken = source.take([2, 0])
        assert taken.dtype == block.dtype == source.dtype
        assert (taken == X[[2, 0]]).all()


def test_bfloat16_from_a_raw_file(tmp_path):
    X = np.array([[1.0, -2.5], [0.15625, 96.0], [3.0, 7.0]], dtype=np.float32)
    path = tmp_path / "x.bin"
    (X.view(np.uint32) >> 16).astype(np.uint16).tofile(path)
    source = shoal.open(path, shape=(3, 2), dtype="bfloat16")
    assert source.dtype == np.float32
    assert source.nbytes == 12
    assert (np.concatenate(list(source.blocks(2))) == X).all()
    assert (source.take([2, 0]) == X[[2, 0]]).all()
    model = KMeans(2, random_state=0).fit(source)
    assert model.cluster_centers_.dtype == np.float32
    assert (model.cluster_centers_ == KMeans(2, random_state=0).fit(X).cluster_centers_).all()


def test_blocks_are_copies_of_about_8_mib(tmp_path):
    X = np.zeros((3000, 1000))
    source = shoal.open(X)
    block = next(source.blocks())
    assert block.nbytes <= 8 << 20
    assert len(list(source.blocks())) == 3
    block[:] = 1
    assert not X.any()


def test_every_pass_starts_at_the_first_row():
    source = shoal.open(made("uint8"))
    assert [len(b) for b in source.blocks(10)] == [len(b) for b in source.blocks(10)] == [10, 10, 3]


def test_context_manager_and_closing(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, made("float32"))
    with shoal.open(path) as source:
        (block,) = source.blocks()
        model = KMeans(2, random_state=0).fit(source)
    kept = block.copy()
    assert "closed" in repr(source)
    for use in (
        lambda: source.shape,
        lambda: list(source.blocks()),
        lambda: source.take([0]),
        lambda: KMeans(2).fit(source),
        lambda: model.predict(source),
    ):
        with pytest.raises(ValueError, match=r"the source \(.*x\.npy\) is closed"):
            use()
    source.close()
    path.unlink()
    assert (block == kept).all()
    assert len(model.labels_) == 23


def test_closing_during_a_fit(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).normal(size=(500, 3)))
    source = shoal.open(path)
    model = KMeans(5, random_state=0, tol=0.0)
    for step in model.iter_fit(source):
        if step.iteration == 1:
            source.close()
            path.unlink()
    assert (model.labels_ == model.predict(model.cluster_centers_)[model.labels_]).all()


def test_an_open_source_is_returned_unchanged():
    source = shoal.open(made("uint8"))
    assert shoal.open(source) is source
    with pytest.raises(ValueError, match="this is an open source"):
        shoal.open(source, shape=(2, 2))


def test_arrays_are_not_copied():
    X = made("float64")
    source = shoal.open(X)
    X[3] = 77.0
    assert (source.take([3]) == 77.0).all()


def test_frames():
    frame = pd.DataFrame({"a": [1.0, 2.0], "name": ["x", "y"], "b": [3, 4]})
    source = shoal.open(frame, columns=["b", "a"])
    assert (next(source.blocks()) == [[3, 1], [4, 2]]).all()
    assert (next(shoal.open([[1, 2], [3, 4]]).blocks()) == [[1, 2], [3, 4]]).all()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_versions_and_orders(tmp_path, version, order):
    X = np.asarray(made("int16"), order=order)
    path = tmp_path / "x.npy"
    with path.open("wb") as file:
        np.lib.format.write_array(file, X, version=version)
    source = shoal.open(path)
    assert source.shape == X.shape
    assert (np.concatenate(list(source.blocks(4))) == X).all()
    assert (
        KMeans(3, random_state=0).fit(source).cluster_centers_
        == KMeans(3, random_state=0).fit(X).cluster_centers_
    ).all()


def test_path_types(tmp_path, monkeypatch):
    X = made("float32")
    monkeypatch.chdir(tmp_path)
    for name in ("größe 数.npy", "A.NPY", "with space.npy"):
        with open(name, "wb") as file:  # noqa: PTH123
            np.save(file, X)
        assert (next(shoal.open(name).blocks()) == X).all()
        assert len(KMeans(2, random_state=0).fit_predict(tmp_path / name)) == 23


def test_a_raw_file_may_be_longer_than_its_rows(tmp_path):
    path = tmp_path / "x.bin"
    np.arange(10, dtype=np.uint8).tofile(path)
    assert (next(shoal.open(path, shape=(3, 3), dtype=np.uint8).blocks()) == np.arange(9).reshape(3, 3)).all()


@pytest.mark.parametrize(
    ("use", "error", "text"),
    [
        (lambda s: s.blocks(0), ValueError, "rows must be an integer of at least 1, got 0"),
        (lambda s: s.blocks(2.5), TypeError, r"rows must be an integer of at least 1, got 2\.5"),
        (lambda s: s.take([23]), IndexError, "row 23 does not exist: the source has 23 rows"),
        (lambda s: s.take([0, -24]), IndexError, "row -24 does not exist"),
        (lambda s: s.take([0.5]), ValueError, "indices must be a 1-D array of integers, got 1-D of float64"),
        (lambda s: s.take([[0]]), ValueError, "got 2-D of int64"),
        (lambda s: s.slice(3, 24), IndexError, r"rows 3\.\.24 do not lie within 0\.\.23"),
        (lambda s: s.slice(4, 3), IndexError, r"rows 4\.\.3 do not lie within 0\.\.23"),
        (lambda s: s.slice(-1, 3), ValueError, "start must be an integer of at least 0, got -1"),
        (lambda s: KMeans(1).fit(s.slice(2, 2)), ValueError, "n_samples=0|0 rows|no rows"),
    ],
)
@pytest.mark.parametrize("kind", ["array", "file"])
def test_row_numbers_out_of_range(use, error, text, kind, tmp_path):
    X = made("uint8")
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(error, match=text):
        use(shoal.open(X if kind == "array" else tmp_path / "x.npy"))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"columns": ["a"]}, r"columns=\['a'\] is for frames, got ndarray"),
        ({"key": "a"}, "key='a' is for files of several arrays, got ndarray"),
        ({"shape": (2, 2)}, "shape and dtype describe a raw file: an array has its own"),
        ({"dtype": "u1"}, "shape and dtype describe a raw file: an array has its own"),
    ],
)
def test_options_of_other_formats(given, text):
    with pytest.raises(ValueError, match=text):
        shoal.open(made("uint8"), **given)


@pytest.mark.skipif(os.name != "posix", reason="a mapped file cannot be cut elsewhere")
@pytest.mark.parametrize("suffix", ["npy", "fvecs", "fbin", "arrow"])
def test_a_file_truncated_while_it_is_open_is_an_error(suffix, tmp_path):
    X = made("float32", 50_000, 8)
    path = tmp_path / f"x.{suffix}"
    if suffix == "npy":
        np.save(path, X)
    elif suffix == "fvecs":
        path.write_bytes(np.column_stack([np.full(len(X), 8, "<i4").view("f4"), X]).tobytes())
    elif suffix == "fbin":
        path.write_bytes(np.array(X.shape, "<u4").tobytes() + X.tobytes())
    else:
        pa = pytest.importorskip("pyarrow")
        table = pa.table({f"c{j}": X[:, j] for j in range(8)})
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=1000)
    # In a process of its own, because a failure would kill the process.
    code = f"""
import os, numpy as np, shoal
source = shoal.open({str(path)!r})
steps = shoal.KMeans(3, random_state=0, max_iter=50, tol=0).iter_fit(source)
next(steps)
blocks = source.blocks(100)
next(blocks)
os.truncate({str(path)!r}, 200_000)
fresh = shoal.KMeans(3)
for use in (
    lambda: list(steps),
    # Short batches of Arrow are collected: this was read as a whole.
    *([lambda: list(blocks)] if {suffix!r} != "arrow" else []),
    lambda: source.take([49_999]),
    lambda: fresh.fit(source),
):
    try:
        use()
    except ValueError as error:
        assert "x.{suffix}" in str(error), error
    else:
        raise AssertionError("nothing was said")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
