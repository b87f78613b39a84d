"""Memory-mapped vector files (.fvecs, .fbin and others), written here by the definition of their formats."""

import struct

import numpy as np
import pytest
import shoal
from hypothesis import given, settings
from hypothesis import strategies as st

RNG = np.random.default_rng(5)
VECS = {".fvecs": ("<f", "f4"), ".bvecs": ("<B", "u1"), ".ivecs": ("<i", "i4")}
BINS = {".fbin": "f4", ".u8bin": "u1", ".i8bin": "i1", ".ibin": "i4"}


def numbers(dtype, rows, cols):
    if dtype == "f4":
        return RNG.normal(size=(rows, cols)).astype("f4")
    low, high = (0, 256) if dtype == "u1" else (-128, 128)
    return RNG.integers(low, high, size=(rows, cols)).astype(dtype)


def vecs(rows, code):
    """TEXMEX: for each row its length as a little-endian int, then its values."""
    return b"".join(
        struct.pack("<i", len(row)) + b"".join(struct.pack(code, value) for value in row.tolist())
        for row in rows
    )


def bin_(rows):
    """Big-ANN: number of rows and of columns as little-endian unsigned ints, then the rows."""
    return struct.pack("<II", *rows.shape) + rows.tobytes()


def written(folder, suffix, rows):
    path = folder / f"rows{suffix}"
    path.write_bytes(bin_(rows) if suffix in BINS else vecs(rows, VECS[suffix][0]))
    return path


@pytest.mark.parametrize("suffix", [*VECS, *BINS])
def test_rows_equal_the_file(tmp_path, suffix):
    dtype = BINS.get(suffix) or VECS[suffix][1]
    rows = numbers(dtype, 700, 5)
    path = written(tmp_path, suffix, rows)
    with shoal.open(path) as source:
        assert (source.shape, source.dtype, source.access) == ((700, 5), np.dtype(dtype), "random")
        assert source.nbytes == rows.nbytes
        np.testing.assert_array_equal(np.concatenate(list(source.blocks(64))), rows)
        np.testing.assert_array_equal(source.take([699, -700, 3]), rows[[699, 0, 3]])
        np.testing.assert_array_equal(next(source.slice(100, 200).blocks()), rows[100:200])
    make = lambda X: shoal.KMeans(6, random_state=1, max_iter=8).fit(X)  # noqa: E731
    one, other = make(rows), make(str(path))
    np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
    np.testing.assert_array_equal(one.labels_, other.predict(path))
    mini = shoal.MiniBatchKMeans(4, random_state=0)
    np.testing.assert_array_equal(mini.fit(path).cluster_centers_, mini.fit(rows).cluster_centers_)


@pytest.mark.parametrize("suffix", [*VECS, *BINS])
def test_shape_and_dtype_are_refused(tmp_path, suffix):
    path = written(tmp_path, suffix, numbers(BINS.get(suffix) or VECS[suffix][1], 3, 2))
    with pytest.raises(ValueError, match="its own shape and dtype"):
        shoal.open(path, shape=(3, 2), dtype="u1")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_damaged_files_are_read_or_refused(tmp_path_factory, data):
    suffix = data.draw(st.sampled_from([*VECS, *BINS]))
    dtype = BINS.get(suffix) or VECS[suffix][1]
    folder = tmp_path_factory.mktemp("damaged")
    path = written(folder, suffix, numbers(dtype, 200, 3))
    damaged = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.sampled_from([len(damaged), at, len(damaged) - 1])) :]
    if data.draw(st.booleans()):
        damaged += data.draw(st.binary(max_size=20))
    path.write_bytes(damaged)
    for use in (
        lambda X: shoal.KMeans(3, random_state=0, max_iter=2).fit(X).labels_,
        lambda X: shoal.MiniBatchKMeans(3, random_state=0, batch_size=9, max_iter=1).fit(X).labels_,
        lambda X: shoal.NestedMiniBatchKMeans(3, random_state=0, batch_size=9, max_iter=3).fit(X).labels_,
        lambda X: np.concatenate(list(shoal.open(X).blocks(11))),
    ):
        refused = None
        try:
            found = len(use(path))
        except ValueError as error:
            refused = str(error)
        if refused is None:
            assert found == shoal.open(path).shape[0]
        else:
            assert str(path) in refused or "X must be finite" in refused or "n_samples" in refused, refused


def test_every_reader_finds_a_row_of_another_length(tmp_path):
    rows = numbers("u1", 1000, 2)
    path = written(tmp_path, ".bvecs", rows)
    damaged = bytearray(path.read_bytes())
    damaged[6 * 334] = 7
    path.write_bytes(damaged)
    source = shoal.open(path)
    message = r"rows\.bvecs: has rows of different lengths: row 334 has 7 columns, the first one has 2"
    np.testing.assert_array_equal(next(source.slice(0, 334).blocks()), rows[:334])
    for use in (
        lambda: source.take([334]),
        lambda: list(source.blocks()),
        lambda: shoal.nearest(path, [[0, 0]]),
        lambda: shoal.KMeans(3).fit(path),
        lambda: shoal.MiniBatchKMeans(3, batch_size=1000, max_no_improvement=None, max_iter=20).fit(path),
        lambda: shoal.NestedMiniBatchKMeans(3, batch_size=900, random_state=0).fit(path),
        lambda: shoal.kmeans_plusplus(path, 3),
    ):
        with pytest.raises(ValueError, match=message):
            use()
