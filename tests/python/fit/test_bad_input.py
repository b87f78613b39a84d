"""Invalid input: clear errors that name the argument, and no lost state."""

import re

import numpy as np
import pytest
import scipy.sparse
import shoal
from refusals import X, refused
from shoal import KMeans
from sklearn.exceptions import NotFittedError

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


@pytest.mark.parametrize(
    "use",
    [
        lambda small, Z: shoal.MiniBatchKMeans(3).partial_fit(small).partial_fit(Z),
        lambda small, Z: shoal.NestedMiniBatchKMeans(3).partial_fit(small).partial_fit(Z),
        lambda small, Z: shoal.BackwardEulerKMeans(3).partial_fit(small).partial_fit(Z),
        lambda small, Z: shoal.StreamingCoreset(5).partial_fit(small).partial_fit(Z),
        lambda small, Z: KMeans(3).fit(small).predict(Z),
        lambda small, Z: KMeans(3).fit(small).transform(Z),
    ],
)
def test_a_value_that_only_float64_can_hold(use):
    large = X.astype(np.float64)
    large[7, 2] = 1.5e39
    told = "1.5e39 (infinite in float32, to which the rows are converted)"
    error = refused(ValueError, "", lambda: use(X.astype(np.float32), large))
    assert str(error) == f"X must be finite, got {told} at row 7, column 2"
    large[7, 2] = np.inf
    refused(ValueError, "^X must be finite, got inf at row 7", lambda: use(X.astype(np.float32), large))


def test_a_step_of_a_fit_within_a_step():
    found, model = [], KMeans(3, random_state=0)

    def blocks():
        run = model.__dict__.get("_run")
        if run is not None:
            with pytest.raises(RuntimeError) as error:
                run.step()
            found.append(str(error.value))
        yield X

    model.fit(blocks)
    assert set(found) == {"this fit is in use by another call, for example in another thread"}


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
        (np.ones((50, 1)), r"sample_weight must be 1-D, one weight per row, got shape \(50, 1\)"),
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
            "algorithm must be one of auto, lloyd, .* hamerly, exponion, filtering, sketch, got 'x'",
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
        (
            {"n_jobs": 0},
            "n_jobs must be None, a number of threads, -1 for all cores or -2 for all but one, got 0",
        ),
        ({"n_jobs": 1.5}, r"n_jobs must be None, a number of threads, -1 .*, got 1\.5"),
        ({"random_state": -1}, r"random_state must be within 0\.\.2\*\*64 - 1, got -1"),
        ({"random_state": 2**64}, "random_state must be within"),
        ({"random_state": "a"}, "random_state must be None, an int, a numpy RandomState or Generator"),
        ({"memory": "1XB"}, "memory must be 'auto' or an amount of memory such as '1GB'.*, got '1XB'"),
        ({"memory": -1}, "memory must be 'auto' or an amount of memory"),
        (
            {"memory": 2**64},
            r"memory must be 'auto' or an amount .* at most 2\*\*64 - 1, got 184467440737",
        ),
        ({"memory": "1e30GB"}, "memory must be 'auto' or an amount .*, got '1e30GB'"),
        ({"memory": "1e400"}, "memory must be 'auto' or an amount .*, got '1e400'"),
        ({"callbacks": 3}, "callbacks must be None or a list of callables, got 3"),
        ({"callbacks": "a"}, "callbacks must be None or a list of callables, got 'a'"),
        ({"callbacks": [print, 3]}, "callbacks must be callables, got 3"),
        ({"n_clusters": 2**63}, "n_clusters must be an integer from 1 to 9223372036854775807, got 92233"),
        ({"max_iter": 2**64}, "max_iter must be an integer from 1 to 9223372036854775807, got 184467"),
        ({"max_iter": 10**5000}, "max_iter must be an integer from 1 to .*, got an integer of thousands of"),
        ({"max_iter": -(10**200)}, r"max_iter must be an integer of at least 1, got -10{95}\.\.\.$"),
        ({"n_init": 10**30}, "n_init must be 'auto' or an integer from 1 to 9223372036854775807, got 10000"),
        ({"n_jobs": 2**64}, "n_jobs must be None, a number of threads from 1 to 65535, .*got 1844674"),
        ({"n_jobs": 65536}, "n_jobs must be None, a number of threads from 1 to 65535, .*got 65536"),
        ({"tol": 10**400}, r"tol must be a finite number of at least 0, got 10+\.\.\."),
        ({"random_state": 10**5000}, "random_state must be within .*, got an integer of thousands of digits"),
        ({"metric": np.ones(2)}, r"metric must be one of euclidean, cosine, got array\(\[1\., 1\.\]\)"),
        ({"metric": None}, "metric must be one of euclidean, cosine, got None"),
        ({"algorithm": np.ones(2)}, r"algorithm must be one of auto, lloyd, .*, sketch, got array\(\[1\."),
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
        (np.array([[2j, 1, 2]] * 9, dtype=object), TypeError, "complex"),
        (np.array([[None, 1, 2]] * 9, dtype=object), ValueError, "NaN"),
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
