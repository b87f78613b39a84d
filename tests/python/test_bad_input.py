"""Invalid input: clear errors that name the argument, and no lost state."""

import json
import os
import re
import struct

import numpy as np
import pytest
import scipy.sparse
import shoal
from shoal import KMeans
from sklearn.exceptions import NotFittedError

X = np.random.default_rng(0).normal(size=(50, 3))


def refused(error, text, use):
    """Call a function that must fail, and match its whole message."""
    with pytest.raises(error) as caught:
        use()
    assert re.search(text, str(caught.value)), f"{caught.value} is not {text}"
    return caught.value


# ---------------------------------------------------------------- values

USES = {
    "fit": lambda Z: KMeans(3).fit(Z),
    "iter_fit": lambda Z: next(KMeans(3).iter_fit(Z)),
    "predict": lambda Z: KMeans(3, random_state=0).fit(X).predict(Z),
    "transform": lambda Z: KMeans(3, random_state=0).fit(X).transform(Z),
    "score": lambda Z: KMeans(3, random_state=0).fit(X).score(Z),
    "nearest": lambda Z: shoal.nearest(Z, X[:2]),
    "inertia": lambda Z: shoal.metrics.inertia(Z, X[:2]),
    "kmeans_plusplus": lambda Z: shoal.kmeans_plusplus(Z, 2),
    "cosine": lambda Z: KMeans(3, metric="cosine").fit(Z),
    "given centers": lambda Z: KMeans(3, init=X[:3]).fit(Z),
    "random": lambda Z: KMeans(3, init="random").fit(Z),
}


@pytest.mark.parametrize("kind", ["array", "file", "source", "Fortran"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("value", "shown"), [(np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "-inf")])
@pytest.mark.parametrize("use", USES)
def test_values_of_rows(use, value, shown, dtype, kind, tmp_path):
    bad = X.astype(dtype)
    # The first value in row order is named.
    bad[41, 0] = bad[7, 2] = value
    given = np.asfortranarray(bad) if kind == "Fortran" else bad
    if kind in ("file", "source"):
        np.save(tmp_path / "x.npy", bad)
        given = tmp_path / "x.npy" if kind == "file" else shoal.open(tmp_path / "x.npy")
    text = f"X must be finite, got {shown} at row 7, column 2"
    error = refused(ValueError, "", lambda: USES[use](given))
    assert str(error) == text


def test_the_first_bad_row_is_named_for_any_number_of_threads():
    bad = np.random.default_rng(0).normal(size=(60_000, 8)).astype(np.float32)
    bad[[59_999, 31_234, 40_000], [0, 5, 1]] = np.nan
    for n_jobs in (1, 2, 8):
        for init in ("random", "auto", bad[:20]):
            refused(
                ValueError,
                "^X must be finite, got NaN at row 31234, column 5$",
                lambda init=init, n_jobs=n_jobs: KMeans(20, init=init, n_init=1, n_jobs=n_jobs).fit(bad),
            )


def test_values_too_large_to_square():
    big = np.array([[1e200], [2e200], [-1e200]])
    refused(ValueError, "X holds values so large .* row 0", lambda: KMeans(2, random_state=0).fit(big))


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        (np.r_[np.ones(49), np.nan], "sample_weight must be finite and at least 0, got NaN at row 49"),
        (np.r_[np.ones(4), np.inf, np.ones(45)], "sample_weight must be finite and .*, got inf at row 4"),
        (np.r_[1, -2.5, -1, np.ones(47)], r"sample_weight must be finite and .*, got -2\.5 at row 1"),
        (np.zeros(50), "sample_weight must be above 0 for at least one row, got zero for every row$"),
        (0.0, "sample_weight must be above 0 for at least one row, got zero for every row$"),
        (-1.0, "sample_weight must be finite and at least 0, got -1"),
        (np.ones(49), "sample_weight has 49 values, X has 50 rows"),
        (np.ones((50, 1)), r"sample_weight must be 1-D, one weight a row, got shape \(50, 1\)"),
        (np.ones(50) * 1j, "sample_weight must be real, got complex numbers"),
        (["a"] * 50, "sample_weight must hold numbers"),
        ([[1.0], [1.0, 2.0]], "sample_weight must hold numbers"),
        ([10**400] * 50, "sample_weight must hold numbers"),
    ],
)
@pytest.mark.parametrize("use", ["fit", "score", "inertia", "kmeans_plusplus"])
def test_weights(use, weights, text):
    calls = {
        "fit": lambda: KMeans(3).fit(X, sample_weight=weights),
        "score": lambda: KMeans(3, random_state=0).fit(X).score(X, sample_weight=weights),
        "inertia": lambda: shoal.metrics.inertia(X, X[:3], weights),
        "kmeans_plusplus": lambda: shoal.kmeans_plusplus(X, 3, sample_weight=weights),
    }
    refused(ValueError, "^" + text, calls[use])


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize("k", [0, -1, 2.5, 3.0, "3", None, True, np.float64(3), [3]])
def test_n_clusters(k):
    text = re.escape(f"n_clusters must be an integer of at least 1, got {k!r}")
    for use in (lambda: KMeans(k).fit(X), lambda: shoal.kmeans_plusplus(X, k)):
        # The error satisfies both conventions of scikit-learn.
        refused(ValueError, text, use)
        refused(TypeError, text, use)


def test_more_clusters_than_rows():
    text = "n_samples=50 should be >= n_clusters=51"
    refused(ValueError, text, lambda: KMeans(51).fit(X))
    refused(ValueError, text, lambda: shoal.kmeans_plusplus(X, 51))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"init": "foo"}, "init must be one of auto, random, .* an array or a callable, got 'foo'"),
        ({"init": "afkmc2"}, "init must be one of auto, .* afk-mc2, k-mc2, .* got 'afkmc2'"),
        (
            {"algorithm": "x"},
            "algorithm must be one of auto, lloyd, elkan, yinyang, hamerly, exponion, filtering, got 'x'",
        ),
        ({"metric": "l1"}, "metric must be one of euclidean, cosine, got 'l1'"),
        ({"tol": -1e-9}, "tol must be a finite number of at least 0, got -1e-09"),
        ({"tol": np.nan}, "tol must be a finite number of at least 0, got nan"),
        ({"tol": np.inf}, "tol must be a finite number of at least 0, got inf"),
        ({"tol": "a"}, "tol must be a finite number of at least 0, got 'a'"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1, got 0"),
        ({"max_iter": 2.0}, r"max_iter must be an integer of at least 1, got 2\.0"),
        ({"n_init": 0}, "n_init must be 'auto' or an integer of at least 1, got 0"),
        ({"n_init": "x"}, "n_init must be 'auto' or an integer of at least 1, got 'x'"),
        ({"n_jobs": 0}, "n_jobs must be None, -1 or a number of threads, got 0"),
        ({"n_jobs": 1.5}, r"n_jobs must be None, -1 or a number of threads, got 1\.5"),
        ({"random_state": -1}, r"random_state must be within 0\.\.2\*\*64 - 1, got -1"),
        ({"random_state": 2**64}, "random_state must be within"),
        ({"random_state": "a"}, "random_state must be None, an int, a numpy RandomState or Generator"),
        ({"bounds_memory": "1XB"}, "bounds_memory must be an amount of memory such as '1GB'.*, got '1XB'"),
        ({"bounds_memory": -1}, "bounds_memory must be an amount of memory"),
        (
            {"bounds_memory": 2**64},
            r"bounds_memory must be an amount .* at most 2\*\*64 - 1, got 184467440737",
        ),
        ({"bounds_memory": "1e30GB"}, "bounds_memory must be an amount .*, got '1e30GB'"),
        ({"bounds_memory": "1e400"}, "bounds_memory must be an amount .*, got '1e400'"),
        ({"callbacks": 3}, "callbacks must be None or a list of callables, got 3"),
        ({"callbacks": "a"}, "callbacks must be None or a list of callables, got 'a'"),
        ({"callbacks": [print, 3]}, "callbacks must be callables, got 3"),
        ({"n_clusters": 2**63}, "n_clusters must be an integer from 1 to 9223372036854775807, got 92233"),
        ({"max_iter": 2**64}, "max_iter must be an integer from 1 to 9223372036854775807, got 184467"),
        ({"max_iter": 10**5000}, "max_iter must be an integer from 1 to .*, got an integer of thousands of"),
        ({"max_iter": -(10**200)}, r"max_iter must be an integer of at least 1, got -10{95}\.\.\.$"),
        ({"n_init": 10**30}, "n_init must be 'auto' or an integer from 1 to 9223372036854775807, got 10000"),
        ({"n_jobs": 2**64}, "n_jobs must be None, -1 or a number of threads from 1 to 65535, got 1844674"),
        ({"n_jobs": 65536}, "n_jobs must be None, -1 or a number of threads from 1 to 65535, got 65536"),
        ({"tol": 10**400}, r"tol must be a finite number of at least 0, got 10+\.\.\."),
        ({"random_state": 10**5000}, "random_state must be within .*, got an integer of thousands of digits"),
        ({"metric": np.ones(2)}, r"metric must be one of euclidean, cosine, got array\(\[1\., 1\.\]\)"),
        ({"metric": None}, "metric must be one of euclidean, cosine, got None"),
        ({"algorithm": np.ones(2)}, r"algorithm must be one of auto, lloyd, .*, filtering, got array\(\[1\."),
        ({"verbose": "x"}, "verbose must be True, False or an integer of at least 0, got 'x'"),
        ({"verbose": -1}, "verbose must be True, False or an integer of at least 0, got -1"),
        ({"verbose": np.ones(2)}, r"verbose must be True, False or an integer of at least 0, got array"),
    ],
)
def test_parameters(given, text):
    model = KMeans(**{"n_clusters": 3, **given})
    refused(ValueError, "^" + text, lambda: model.fit(X))
    refused(TypeError, "^" + text, lambda: model.iter_fit(X))
    assert not hasattr(model, "cluster_centers_")


def test_all_bad_parameters_are_listed_at_once():
    text = "^n_clusters must .*, got 0; max_iter must .*, got 0; tol must .*, got -1$"
    refused(ValueError, text, lambda: KMeans(0, tol=-1, max_iter=0).fit(X))


@pytest.mark.parametrize(
    ("init", "text"),
    [
        (X[:4], r"init must have shape \(3, 3\), got \(4, 3\)"),
        (X[:3, :2], r"init must have shape \(3, 3\), got \(3, 2\)"),
        (X[0], r"init must have shape \(3, 3\), got \(3,\)"),
        (X[None, :3], r"init must have shape \(3, 3\), got \(1, 3, 3\)"),
        (np.where(np.eye(3) > 0, np.nan, X[:3]), "init must be finite, got NaN at row 0, column 0"),
        (np.r_[X[:2], [[0, 0, -np.inf]]], "init must be finite, got -inf at row 2, column 2"),
        (X[:3] * 1j, "init must be real, got complex numbers"),
        ([["a", "b", "c"]] * 3, "init must hold numbers"),
    ],
)
def test_init_arrays(init, text):
    refused(ValueError, "^" + text, lambda: KMeans(3, init=init).fit(X))
    # The result of a callable is checked too.
    refused(ValueError, "^" + text, lambda: KMeans(3, init=lambda *args, **more: init).fit(X))


def test_init_beyond_float32():
    text = "^init must be finite, got inf at row 0, column 0"
    refused(ValueError, text, lambda: KMeans(3, init=X[:3] * 1e300).fit(X.astype(np.float32)))


@pytest.mark.parametrize(
    ("centers", "text"),
    [
        (X[:4, :2], r"centers must have shape \(any number of rows, 3\), got \(4, 2\)"),
        (X[0], r"centers must have shape .*, got \(3,\)"),
        (X[:0], r"centers must have shape .*, got \(0, 3\)"),
        (np.where(np.eye(3) > 0, np.inf, X[:3]), "centers must be finite, got inf at row 0, column 0"),
        ([["a", "b", "c"]], "centers must hold numbers"),
    ],
)
def test_centers_of_functions(centers, text):
    refused(ValueError, "^" + text, lambda: shoal.nearest(X, centers))
    refused(ValueError, "^" + text, lambda: shoal.metrics.inertia(X, centers))


def test_n_nearest():
    refused(ValueError, "n_nearest must be at most the number of centers, 2, got 3", lambda: near(3))
    refused(ValueError, "n_nearest must be an integer of at least 1, got 0", lambda: near(0))
    refused(TypeError, r"n_nearest must be an integer of at least 1, got 1\.0", lambda: near(1.0))
    refused(ValueError, "n_nearest must be an integer from 1 to 9223372036854775807", lambda: near(2**64))
    refused(ValueError, "n_jobs must be", lambda: shoal.nearest(X, X[:2], n_jobs=2**64))
    refused(ValueError, "n_clusters must be", lambda: shoal.kmeans_plusplus(X, 2**64))


def near(m):
    return shoal.nearest(X, X[:2], n_nearest=m)


# ---------------------------------------------------------------- shapes and types


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    ("rows", "error", "text"),
    [
        (X[0], ValueError, "Expected 2D array, got 1D array instead"),
        (X[None], ValueError, "Found array with dim 3"),
        (3.0, ValueError, "Expected 2D array, got scalar array instead"),
        (X[:0], ValueError, r"0 sample\(s\)"),
        (X[:, :0], ValueError, r"0 feature\(s\)"),
        (X * 1j, ValueError, "Complex data not supported"),
        (np.array([[{}, 1, 2]] * 9, dtype=object), TypeError, "number"),
        (np.array([["a", "b", "c"]] * 9), ValueError, "strings"),
        (X.astype("M8[s]"), (TypeError, ValueError), "datetime64"),
        ([[1, 2, 3], [3]], ValueError, "inhomogeneous"),
        (scipy.sparse.csr_array(X[:0]), ValueError, r"0 sample\(s\)"),
        (scipy.sparse.csr_array(X[:, :0]), ValueError, r"0 feature\(s\)"),
        (None, ValueError, "array"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value[:20],
)
def test_shapes_and_types(use, rows, error, text):
    refused(error, text, lambda: USES[use](rows))


@pytest.mark.parametrize("use", USES)
def test_numbers_beyond_float64(use):
    refused(
        ValueError,
        "X must hold numbers that float64 can hold",
        lambda: USES[use](np.array([[10**400, 1, 2]] * 9)),
    )


def test_an_empty_path():
    for use in USES.values():
        refused(
            ValueError,
            "^X must be rows or the path of a file, got an empty path: ''",
            lambda use=use: use(""),
        )
    refused(
        ValueError, "^obj must be rows or the path of a file, got an empty path: ''", lambda: shoal.open("")
    )


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_results_larger_than_memory(dtype):
    model = KMeans(3, random_state=0).fit(X.astype(dtype))
    # One row, repeated without copies so often that no result would fit into memory.
    endless = np.broadcast_to(X[:1].astype(dtype), (2**44, 3))
    for use in (
        model.predict,
        model.transform,
        lambda Z: shoal.nearest(Z, X[:2], n_nearest=2),
        lambda Z: shoal.nearest(Z, X[:2]),
        lambda Z: KMeans(3, init=X[:3]).fit(Z),
        lambda Z: KMeans(3, init="k-means++").fit(Z),
        lambda Z: shoal.open(Z).take(np.zeros(1, dtype=int)) is None or next(shoal.open(Z).blocks(2**44)),
    ):
        refused(MemoryError, "", lambda use=use: use(endless))
    refused(
        MemoryError,
        f"^there is no memory for distances to all centers: {2**44} rows of 3 values take "
        f"{2**44 * 3 * np.dtype(dtype).itemsize} bytes$",
        lambda: model.transform(endless),
    )


@pytest.mark.parametrize("kind", ["array", "file", "source"])
def test_a_different_number_of_features(kind, tmp_path):
    model = KMeans(3, random_state=0).fit(X)
    np.save(tmp_path / "x.npy", X[:, :2])
    given = {"array": X[:, :2], "file": tmp_path / "x.npy", "source": shoal.open(X[:, :2])}[kind]
    for use in (model.predict, model.transform, model.score):
        refused(
            ValueError,
            "^X has 2 features, but KMeans is expecting 3 features as input",
            lambda use=use: use(given),
        )
    assert (model.predict(X) == model.labels_).all()


def test_before_fit(tmp_path):
    model = KMeans()
    for use in (model.predict, model.transform, model.score):
        refused(NotFittedError, "not fitted yet", lambda use=use: use(X))
    refused(NotFittedError, "not fitted yet", lambda: model.save(tmp_path / "m"))
    assert list(tmp_path.iterdir()) == []
    for name in ("labels_", "inertia_", "history_", "cluster_centers_"):
        refused(AttributeError, name, lambda name=name: getattr(model, name))


def test_a_failed_fit_leaves_the_fitted_model_unchanged():
    model = KMeans(3, random_state=0).fit(X)
    centers, labels = model.cluster_centers_.copy(), model.labels_.copy()
    refused(ValueError, "n_samples=2", lambda: model.fit(X[:2]))
    refused(ValueError, "sample_weight", lambda: model.fit(X, sample_weight=np.zeros(50)))
    refused(ValueError, "n_clusters", lambda: model.set_params(n_clusters=0).fit(X))
    assert (model.cluster_centers_ == centers).all()
    assert (model.labels_ == labels).all()


def test_an_estimator_can_be_fitted_after_an_error():
    bad = X.copy()
    bad[3, 1] = np.nan
    model = KMeans(3, random_state=0)
    refused(ValueError, "NaN", lambda: model.fit(bad))
    assert (model.fit(X).labels_ == KMeans(3, random_state=0).fit(X).labels_).all()


# ---------------------------------------------------------------- files


def opened(path):
    """Open a file in all ways, which must give the same result or error."""
    messages = []
    for use in (
        lambda: KMeans(2).fit(path),
        lambda: KMeans(2).fit(str(path)),
        lambda: shoal.open(path),
        lambda: shoal.nearest(path, X[:2]),
        lambda: KMeans(2, random_state=0).fit(X).predict(path),
    ):
        with pytest.raises((ValueError, OSError)) as caught:
            use()
        assert str(path) in str(caught.value)
        messages.append((type(caught.value), str(caught.value)))
    assert len(set(messages)) == 1
    return caught.value


def read_or_refused(read, path):
    """Return the content of a damaged file, or None if an error names the file."""
    try:
        return read(path)
    except ValueError as error:
        message = str(error)
    assert message.startswith(str(path))
    return None


def npy(folder, header, data=b"", magic=b"\x93NUMPY", version=(1, 0)):
    path = folder / "x.npy"
    text = header.encode()
    size = struct.pack("<H" if version[0] == 1 else "<I", len(text))
    path.write_bytes(magic + bytes(version) + size + text + data)
    return path


def head(descr="<f4", order="False", shape="(2, 3)"):
    return f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}".ljust(117) + "\n"


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (head(descr="|O"), "holds Python objects"),
        (head(descr="<c8"), "holds complex numbers"),
        (head(descr="<U4"), "holds text"),
        (head(descr="<M8[s]"), "holds times"),
        (head(descr=">f4"), "holds big-endian values"),
        (head(descr="<f16"), "cannot be clustered"),
        (
            head(shape="(6,)"),
            r"holds an array of shape \(6,\); rows need 2 dimensions: reshape it to \(6, 1\)",
        ),
        (head(shape="(1, 2, 3)"), r"shape \(1, 2, 3\); rows need 2 dimensions"),
        (head(shape="()"), "rows need 2 dimensions"),
        (head(shape="(0, 3)"), r"must have at least 1 row and 1 column, got shape \(0, 3\)"),
        (head(shape="(2, 0)"), r"must have at least 1 row and 1 column, got shape \(2, 0\)"),
        (head(shape="(-2, 3)"), "negative length -2"),
        (head(shape="(3, 3)"), "3 rows of 3 float32 need a file of 164 bytes, found 152"),
        (head(shape="(4611686018427387904, 4)"), "larger than"),
        (head(shape="(99999999999999999999, 4)"), "larger than"),
        (head(order="Maybe"), "fortran_order is neither True nor False"),
        (head(shape="'x'"), "shape is not a tuple"),
        ("{'descr': '<f4'}".ljust(117) + "\n", "fortran_order or shape is missing"),
        ("__import__('os')".ljust(117) + "\n", "it is not a dictionary"),
        ("[('a', '<f4')]".ljust(117) + "\n", "has a damaged header"),
        ("".ljust(118), "has a damaged header"),
    ],
)
def test_headers_of_npy_files(tmp_path, header, text):
    assert len(header) == 118
    path = npy(tmp_path, header, np.zeros(6, dtype=np.float32).tobytes())
    error = opened(path)
    assert isinstance(error, ValueError)
    assert re.search(text, str(error)), error


def test_files_that_are_not_npy_files(tmp_path):
    good = tmp_path / "good.npy"
    np.save(good, X)
    whole = good.read_bytes()
    path = tmp_path / "x.npy"
    for content, text in (
        (b"", "is empty"),
        (whole[:5], "is not an .npy file"),
        (whole[:40], "ends within its header"),
        (whole[:128], "need a file of 1328 bytes, found 128"),
        (whole[:-1], "50 rows of 3 float64 need a file of 1328 bytes, found 1327"),
        (b"PK\x03\x04" + whole[4:], "is not an .npy file"),
        (b"a,b\n1,2\n" * 20, "is not an .npy file"),
        (whole[:6] + b"\x09\x00" + whole[8:], r"is \.npy version 9\.0"),
        (whole[:6] + b"\x02\x00\xff\xff\xff\xff" + whole[12:], "claims a header of 4294967295 bytes|header"),
    ):
        path.write_bytes(content)
        error = opened(path)
        assert isinstance(error, ValueError)
        assert re.search(text, str(error)), (content[:10], error)
    # Any other damage gives an error or a result, and never ends the process.
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            damaged[rng.integers(128)] = rng.integers(256)
        path.write_bytes(damaged)
        source = read_or_refused(shoal.open, path)
        assert source is None or source.nbytes <= 1328


def test_files_that_cannot_be_opened(tmp_path):
    assert isinstance(opened(tmp_path / "missing.npy"), FileNotFoundError)
    assert isinstance(opened(tmp_path / "missing.csv"), FileNotFoundError)
    assert isinstance(opened(tmp_path), IsADirectoryError)
    folder = tmp_path / "folder.npy"
    folder.mkdir()
    assert isinstance(opened(folder), IsADirectoryError)
    other = tmp_path / "rows.xyz"
    other.write_text("1,2\n")
    error = opened(other)
    assert isinstance(error, ValueError)
    assert "files that end in .xyz are not supported yet; supported: arrays, SciPy" in str(error)
    assert isinstance(opened(other / "x.npy"), NotADirectoryError)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, X)
    path.chmod(0)
    assert isinstance(opened(path), PermissionError)
    model = KMeans(2, random_state=0).fit(X)
    tmp_path.chmod(0o500)
    try:
        refused(PermissionError, "m.safetensors", lambda: model.save(tmp_path / "m.safetensors"))
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"shape": (1000, 2), "dtype": "f4"}, "1000 rows of 2 float32 need a file of 8000 bytes, found 24"),
        ({"shape": (0, 2), "dtype": "f4"}, r"shape\[0\] must be an integer of at least 1, got 0"),
        ({"shape": (2, -2), "dtype": "f4"}, r"shape\[1\] must be an integer of at least 1, got -2"),
        ({"shape": (2, 2.0), "dtype": "f4"}, r"shape\[1\] must be an integer of at least 1, got 2\.0"),
        ({"shape": (6,), "dtype": "f4"}, r"shape must be \(rows, columns\), got \(6,\)"),
        ({"shape": 6, "dtype": "f4"}, r"shape must be \(rows, columns\), got 6"),
        ({"shape": (2, 3), "dtype": ">f4"}, "dtype='>f4': raw files must be little-endian"),
        ({"shape": (2, 3), "dtype": "c8"}, "dtype must be one of bool.*complex64"),
        ({"shape": (2, 3), "dtype": "O"}, "dtype must be one of bool.*object"),
        ({"shape": (2, 3)}, "are not supported yet; supported: .*with shape= and dtype="),
        ({"shape": (2**62, 2**62), "dtype": "f4"}, "larger|overflow|need"),
        (
            {"shape": (2**70, 2), "dtype": "f4"},
            r"shape\[0\] must be an integer from 1 to 9223372036854775807",
        ),
    ],
)
def test_raw_files(tmp_path, given, text):
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(24))
    refused(ValueError, text, lambda: shoal.open(path, **given))


# ---------------------------------------------------------------- model files


def test_model_files(tmp_path):
    model = KMeans(2, random_state=0).fit(X)
    path = tmp_path / "m.safetensors"
    model.save(path)
    whole = path.read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8 : 8 + length])

    def damaged(content, text):
        path.write_bytes(content)
        error = refused(ValueError, text, lambda: shoal.load(path))
        assert str(error).startswith(str(path))

    def changed(change):
        new = json.loads(json.dumps(header))
        change(new)
        text = json.dumps(new).encode()
        return struct.pack("<Q", len(text)) + text + whole[8 + length :]

    damaged(b"", "is not a safetensors file: it holds 0 bytes")
    damaged(whole[: len(whole) // 2], "is truncated")
    damaged(whole[:-1], "")
    damaged(whole + b"\0", "")
    damaged(b"\xff" * 8 + whole[8:], "at most 100000000 bytes, got 18446744073709551615")
    damaged(whole[:8] + b"x" + whole[9:], "has a damaged header")
    damaged(b"PK\x03\x04" * 100, "safetensors")
    damaged(changed(lambda h: h.pop("__metadata__")), "")
    damaged(changed(lambda h: h["__metadata__"].pop("shoal.params")), "damaged")
    damaged(changed(lambda h: h["__metadata__"].update({"shoal.params": "{"})), "damaged")
    damaged(changed(lambda h: h["__metadata__"].update({"shoal.params": '{"no": 1}'})), "damaged")
    damaged(changed(lambda h: h["__metadata__"].update({"shoal.fitted": "[]"})), "damaged")
    damaged(changed(lambda h: h.pop("cluster_centers")), "")
    damaged(changed(lambda h: h["cluster_centers"].update(shape=[3, 2])), "")
    damaged(changed(lambda h: h["cluster_centers"].update(shape=[2**40, 3])), "")
    damaged(changed(lambda h: h["counts"].update(data_offsets=[0, 2**60])), "")
    # NaN among the centers.
    values = bytearray(whole)
    begin = 8 + length + header["cluster_centers"]["data_offsets"][0]
    values[begin : begin + 8] = struct.pack("<d", np.nan)
    damaged(bytes(values), "not finite")
    # Any other damage gives an error or a result, and never ends the process.
    rng = np.random.default_rng(0)
    for _ in range(300):
        content = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            content[rng.integers(8 + length)] = rng.integers(256)
        path.write_bytes(content)
        loaded = read_or_refused(shoal.load, path)
        assert loaded is None or loaded.cluster_centers_.shape == (2, 3)
    path.write_bytes(whole)
    assert (shoal.load(path).predict(X) == model.labels_).all()


HOSTILE = [
    # Values that are valid JSON but that no fit writes.
    ("fitted", {"n_iter": 10**400}, "'n_iter' is no count: 10000"),
    ("fitted", {"n_iter": "5"}, "'n_iter' is no count: '5'"),
    ("fitted", {"n_iter": -1}, "'n_iter' is no count: -1"),
    ("fitted", {"n_iter": True}, "'n_iter' is no count: True"),
    ("fitted", {"inertia": 10**400}, "'inertia' is no figure of at least 0"),
    ("fitted", {"inertia": {}}, "'inertia' is no figure"),
    ("fitted", {"inertia": float("nan")}, "'inertia' is no figure"),
    ("fitted", {"timings": [1, 2, 3]}, "'timings' is no table of seeding, sweeps, final"),
    ("fitted", {"timings": {"seeding": 1, "sweeps": 1, "final": "x"}}, "'final' is no figure"),
    ("fitted", {"timings": {"seeding": 1}}, "'timings' is no table"),
    ("fitted", {"algorithm": 5}, "'algorithm' is no text: 5"),
    ("fitted", {"init": None}, "lacks 'init'"),
    ("fitted", {"stop_reason": []}, "'stop_reason' is no text"),
    ("fitted", {"stop_reasons": ["", 3]}, "'stop_reasons' is no list of texts"),
    ("fitted", {"stop_reasons": [""]}, "array 'history' has shape"),
    ("fitted", {"feature_names": ["a"]}, "names for 1 columns of 3"),
    ("fitted", {"feature_names": [[1], 2, 3]}, "'feature_names' is no list of texts"),
    ("params", {"metric": "manhattan"}, "metric must be one of euclidean, cosine"),
    ("params", {"metric": [[]]}, "'metric' is no parameter"),
    ("params", {"init": "array"}, "lacks the array 'init'"),
    ("params", {"no": 1}, "no parameter 'no'"),
    ("params", {"callbacks": {"a": 1}}, "'callbacks' is no parameter"),
]


def claiming(path, texts=None, arrays=None):
    """Rewrite a model file with other texts, and with other array types than shoal writes."""
    whole = path.read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8 : 8 + length])
    header["__metadata__"].update({f"shoal.{name}": text for name, text in (texts or {}).items()})
    for name, changes in (arrays or {}).items():
        header[name].update(changes)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + length :])
    return header["__metadata__"]


def refused_model(path, text):
    """Both ways of reading give the same message."""
    error = refused(ValueError, text, lambda: shoal.load(path))
    assert str(error).startswith(f"{path}: ")


@pytest.mark.parametrize(("text", "change", "problem"), HOSTILE)
def test_model_files_with_hostile_texts(tmp_path, text, change, problem):
    path = tmp_path / "m.safetensors"
    KMeans(2, random_state=0).fit(X).save(path)
    sound = json.loads(claiming(path)[f"shoal.{text}"])
    claiming(path, {text: json.dumps({**sound, **change})})
    refused_model(path, "is damaged: .*" + problem)


@pytest.mark.parametrize("text", ["params", "fitted"])
@pytest.mark.parametrize(
    "content",
    ["[" * 100_000, '{"a":' * 100_000, '{"n_iter": ' + "9" * 5000 + "}", "NaN", '"x"', "5", "", "{"],
    ids=lambda content: content[:5],
)
def test_model_files_whose_texts_are_not_objects(tmp_path, text, content):
    path = tmp_path / "m.safetensors"
    KMeans(2, random_state=0).fit(X).save(path)
    claiming(path, {text: content})
    refused_model(path, f"is damaged: its text '{text}' is no JSON")


def test_model_files_with_hostile_arrays(tmp_path):
    path = tmp_path / "m.safetensors"
    KMeans(2, random_state=0, tol=0).fit(X.astype(np.float32)).save(path)
    whole = path.read_bytes()
    for arrays, text in (
        (
            {"cluster_centers": {"dtype": "BF16", "shape": [4, 3]}},
            "'cluster_centers'|\"cluster_centers\" of type bfloat16",
        ),
        ({"cluster_centers": {"dtype": "F16", "shape": [4, 3]}}, "'cluster_centers' is of type float16"),
        ({"cluster_centers": {"dtype": "I32"}}, "'cluster_centers' is of type int32"),
        ({"cluster_centers": {"shape": [6]}}, r"'cluster_centers' has shape \(6,\)"),
        ({"cluster_centers": {"shape": [1] * 70 + [2, 3]}}, "cluster_centers"),
        ({"cluster_centers": {"shape": [1, 6]}}, r"'counts' has shape \(2,\)"),
        ({"counts": {"dtype": "I64"}}, "'counts' is of type int64"),
        ({"counts": {"dtype": "F32", "shape": [4]}}, r"'counts' has shape \(4,\)"),
        ({"history": {"shape": [8, -1]}}, "header"),
    ):
        path.write_bytes(whole)
        claiming(path, arrays=arrays)
        refused_model(path, text)
    # Counts of steps that do not fit any integer.
    length = struct.unpack("<Q", whole[:8])[0]
    begin = 8 + length + json.loads(whole[8 : 8 + length])["history"]["data_offsets"][0]
    for value, text in ((1e300, "counts beyond 64 bits"), (np.nan, "'history' is not finite")):
        path.write_bytes(whole[:begin] + struct.pack("<d", value) + whole[begin + 8 :])
        refused_model(path, text)


def test_model_files_of_a_later_format_version(tmp_path):
    path = tmp_path / "m.safetensors"
    KMeans(2, random_state=0).fit(X).save(path)
    whole = path.read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8 : 8 + length])
    header["__metadata__"]["shoal.format"] = "999"
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + length :])
    refused(ValueError, "999", lambda: shoal.load(path))


def test_models_that_cannot_be_read_or_written(tmp_path):
    model = KMeans(2, random_state=0).fit(X)
    assert str(tmp_path) in str(refused(FileNotFoundError, "none", lambda: shoal.load(tmp_path / "none")))
    refused(IsADirectoryError, "", lambda: shoal.load(tmp_path))
    refused(FileNotFoundError, "m", lambda: model.save(tmp_path / "none" / "m"))
    refused(IsADirectoryError, "", lambda: model.save(tmp_path))
    assert list(tmp_path.iterdir()) == [], "nothing half-written is left"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")  # noqa: PTH110
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    path = tmp_path / "m.safetensors"
    model = KMeans(2, random_state=0).fit(X)
    model.save(path)
    before = path.read_bytes()
    # A limit on the file size makes a write fail as a full disk does.
    big = KMeans(40, random_state=0).fit(np.random.default_rng(0).normal(size=(50, 900)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
        with pytest.raises(OSError, match="too large"):
            big.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
