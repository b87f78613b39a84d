"""The cosine metric: every method sees rows of length 1, whatever the source of the rows."""

import contextlib
import pickle
import warnings

import numpy as np
import pytest
import reference
import scipy.sparse as sp
import shoal
from minibatch_reference import Sculley
from nested_reference import nested
from shoal import (
    BackwardEulerKMeans,
    BreathingKMeans,
    KMeans,
    LaplacianKModes,
    MiniBatchKMeans,
    NestedMiniBatchKMeans,
    StreamingCoreset,
    TruncatedGaussianMixture,
    VarianceReducedKMeans,
)

K, N, D = 5, 600, 12


def directions(seed=0, n=N):
    """Rows around `K` directions, of length 1 up to rounding."""
    rng = np.random.default_rng(seed)
    middles = np.linalg.qr(rng.normal(size=(D, D)))[0][:K]
    X = middles[np.arange(n) % K] + 0.08 * rng.normal(size=(n, D))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


U = directions()
#: Powers of two: the rows are scaled without rounding, and are bit-identical once they are normalized.
LENGTHS = 2.0 ** np.random.default_rng(1).integers(-9, 10, size=(N, 1))
X = U * LENGTHS

FAMILY = {
    "kmeans": (KMeans, {"init": "plain-k-means++"}),
    "minibatch": (MiniBatchKMeans, {"batch_size": 64, "init": "k-means++"}),
    "nested": (NestedMiniBatchKMeans, {"batch_size": 64}),
    "vrkm++": (VarianceReducedKMeans, {"max_iter": 8}),
    "vrkm": (VarianceReducedKMeans, {"variant": "vrkm", "polish": False, "max_iter": 8}),
    "breathing": (BreathingKMeans, {"m": 2}),
    "sbe": (BackwardEulerKMeans, {"batch_size": 50, "max_iter": 20, "init": "k-means++"}),
    "sbe, raw": (
        BackwardEulerKMeans,
        {"batch_size": 50, "max_iter": 20, "init": "k-means++", "polish": False},
    ),
}
OTHERS = {
    "mixture": (TruncatedGaussianMixture, {}),
    "mixture, diag": (TruncatedGaussianMixture, {"covariance_type": "diag"}),
    "mixture, coreset": (TruncatedGaussianMixture, {"coreset_size": 300}),
    "kmodes": (LaplacianKModes, {}),
}
STREAMED = ["minibatch", "nested", "sbe"]


def made(name, **params):
    cls, own = {**FAMILY, **OTHERS}[name]
    return cls(K, **{"random_state": 3, **own, **params})


def middles(model):
    return model.modes_ if isinstance(model, LaplacianKModes) else model.cluster_centers_


def results(model):
    """Everything that must not depend on the lengths of the rows."""
    found = [middles(model), model.labels_]
    if isinstance(model, TruncatedGaussianMixture):
        found += [model.weights_, np.asarray(model.covariances_), model.lower_bounds_]
    return found


def same(one, other):
    for a, b in zip(results(one), results(other), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def by_cosine(centers, rows):
    return (rows @ np.asarray(centers, dtype=np.float64).T).argmax(axis=1)


@contextlib.contextmanager
def as_source(kind, rows, tmp_path):
    """Yield the rows as a source of this kind."""
    if kind == "npy":
        np.save(tmp_path / "rows.npy", rows)
        yield tmp_path / "rows.npy"
    elif kind == "slice":
        np.save(tmp_path / "more.npy", np.concatenate([rows[:7], rows, rows[:9]]))
        with shoal.open(tmp_path / "more.npy") as source:
            yield source.slice(7, 7 + len(rows))
    elif kind == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        names = [f"x{j}" for j in range(rows.shape[1])]
        table = pa.table({name: rows[:, j] for j, name in enumerate(names)})
        pq.write_table(table, tmp_path / "rows.parquet", row_group_size=100)
        yield tmp_path / "rows.parquet"
    else:
        yield {
            "f64": lambda: rows,
            "f32": lambda: rows.astype(np.float32),
            "csr": lambda: sp.csr_array(rows),
            "stream": lambda: lambda: (rows[i : i + 83] for i in range(0, len(rows), 83)),
            "iterator": lambda: (rows[i : i + 83] for i in range(0, len(rows), 83)),
        }[kind]()


SOURCES = ["f64", "f32", "npy", "slice", "csr", "stream", "iterator", "parquet"]
ONE_PASS = ["minibatch", "sbe, raw"]


def fitted(name, kind, rows, tmp_path):
    params = {}
    if kind in ("stream", "parquet") and name == "nested":
        params["shuffle"] = False
    if kind == "iterator" and name == "minibatch":
        params["init"] = "k-means++"
    with as_source(kind, rows, tmp_path) as source:
        return made(name, metric="cosine", **params).fit(source)


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("name", [*FAMILY, *OTHERS])
def test_lengths_do_not_matter(name, kind, tmp_path):
    if kind == "iterator" and name not in ONE_PASS:
        pytest.skip("needs several passes")
    if kind == "csr" and name == "mixture, diag":
        pytest.skip("takes no sparse rows")
    # Labels may be computed from the files later.
    for folder in ("long", "unit"):
        (tmp_path / folder).mkdir()
    long, unit = fitted(name, kind, X, tmp_path / "long"), fitted(name, kind, U, tmp_path / "unit")
    assert long.n_zero_rows_ == 0
    if kind == "iterator":
        np.testing.assert_array_equal(long.cluster_centers_, unit.cluster_centers_)
        return
    same(long, unit)
    if name not in FAMILY:
        return
    centers = np.asarray(long.cluster_centers_, dtype=np.float64)
    np.testing.assert_allclose(np.linalg.norm(centers, axis=1), 1.0, rtol=2e-7 if kind == "f32" else 1e-15)
    np.testing.assert_array_equal(long.labels_, by_cosine(centers, U))
    # Columns of Parquet files have names, which an array lacks.
    np.testing.assert_array_equal(ignoring(long.predict, X), long.labels_)
    np.testing.assert_allclose(
        long.inertia_, 2 * (1 - (U * centers[long.labels_]).sum(axis=1)).sum(), rtol=1e-4
    )


@pytest.mark.parametrize("name", [*FAMILY, *OTHERS])
def test_labels_are_those_of_the_euclidean_method_on_unit_rows(name):
    cosine, euclidean = made(name, metric="cosine").fit(X), made(name).fit(U)
    assert shoal.metrics.adjusted_rand_score(cosine.labels_, np.arange(N) % K) == 1
    assert shoal.metrics.adjusted_rand_score(cosine.labels_, euclidean.labels_) == 1


@pytest.mark.parametrize("kind", ["f64", "f32", "csr", "stream"])
@pytest.mark.parametrize("name", OTHERS)
def test_mixtures_equal_the_euclidean_ones_on_unit_rows(name, kind, tmp_path):
    if kind == "csr" and name == "mixture, diag":
        pytest.skip("takes no sparse rows")
    dtype = np.float32 if kind == "f32" else np.float64
    # Normalized by the same code, so that the rows are bit-identical.
    unit = shoal.kmeans_plusplus(U.astype(dtype), N, metric="cosine", random_state=0)
    rows = np.empty_like(unit[0])
    rows[unit[1]] = unit[0]
    cosine = fitted(name, kind, X, tmp_path)
    with as_source(kind, rows, tmp_path) as source:
        params = {"normalize": False} if name == "kmodes" else {}
        euclidean = made(name, **params).fit(source)
    same(cosine, euclidean)
    if name == "kmodes":
        long, unit = (sp.csr_array(each) if kind == "csr" else each for each in (4 * X, rows))
        np.testing.assert_array_equal(cosine.predict(long), euclidean.predict(unit))
        return
    np.testing.assert_array_equal(cosine.score_samples(4 * X), euclidean.score_samples(rows))
    np.testing.assert_array_equal(cosine.predict(4 * X), euclidean.predict(rows))
    np.testing.assert_array_equal(
        cosine.predict_proba(4 * X, dense=True), euclidean.predict_proba(rows, dense=True)
    )
    assert cosine.score(4 * X) == euclidean.score(rows)
    assert cosine.bic(4 * X) == euclidean.bic(rows)
    assert cosine.inertia_ == euclidean.inertia_
    # Means of unit rows lie inside the sphere.
    assert (np.linalg.norm(cosine.means_, axis=1) < 0.999).all()


def unit_rows(rows):
    """Rows of length 1 with the bits that shoal reads."""
    points = shoal.lightweight_coreset(rows, len(rows), metric="cosine").points
    return points.toarray() if sp.issparse(points) else points


def seeded(seeding):
    def call(rows, **metric):
        return seeding(rows, 9, random_state=4, **metric)

    return call


def streamed(rows, **metric):
    return StreamingCoreset(50, random_state=2, **metric).partial_fit(rows).result()


CALLS = {
    "kmeans_plusplus": seeded(shoal.kmeans_plusplus),
    "afkmc2": seeded(shoal.afkmc2),
    "kmeans_parallel": seeded(shoal.kmeans_parallel),
    "lightweight_coreset": lambda rows, **m: shoal.lightweight_coreset(rows, 50, random_state=4, **m),
    "StreamingCoreset": streamed,
    "nearest": lambda rows, **m: shoal.nearest(rows, U[:7], n_nearest=3, **m),
    "knn_graph": lambda rows, **m: [shoal.knn_graph(rows, 4, **m)],
    "inertia": lambda rows, **m: [shoal.metrics.inertia(rows, U[:7], **m)],
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("name", CALLS)
def test_functions_equal_the_euclidean_ones_on_unit_rows(name, kind, tmp_path):
    if kind == "iterator" and name != "StreamingCoreset":
        pytest.skip("needs several passes, or an array")
    dtype = np.float32 if kind == "f32" else np.float64
    with as_source(kind, X, tmp_path) as source:
        found = CALLS[name](source, metric="cosine")
    with as_source(kind, unit_rows(X.astype(dtype)), tmp_path) as source:
        expected = CALLS[name](source)
    if name == "inertia" and kind == "f32":
        # The centers are wider than the rows, which are therefore normalized in float64.
        assert found == pytest.approx(expected, rel=1e-6)
        return
    for a, b in zip(found, expected, strict=True):
        dense = [each.toarray() if sp.issparse(each) else np.asarray(each) for each in (a, b)]
        assert dense[0].dtype == dense[1].dtype
        # Centers of length 1 up to rounding are not rounded again.
        np.testing.assert_array_equal(*dense)


def test_centers_of_functions_may_have_any_length():
    centers = U[:7] * 2.0 ** np.arange(-3, 4)[:, None]
    labels, sq_dists = shoal.nearest(X, centers, metric="cosine")
    np.testing.assert_array_equal(labels, by_cosine(U[:7], U))
    np.testing.assert_allclose(sq_dists / 2, 1 - (U * U[labels]).sum(axis=1), atol=1e-12)
    assert shoal.metrics.inertia(X, centers, metric="cosine") == pytest.approx(sq_dists.sum(), rel=1e-12)


def test_small_integers(tmp_path):
    rows = np.random.default_rng(0).integers(0, 200, size=(300, 6)).astype(np.uint8)
    rows[rows.sum(axis=1) == 0, 0] = 1
    for name in FAMILY:
        small, wide = (made(name, metric="cosine").fit(each) for each in (rows, rows.astype(np.float32)))
        np.testing.assert_array_equal(small.cluster_centers_, wide.cluster_centers_)
        np.testing.assert_array_equal(small.labels_, wide.labels_)
    for name, call in CALLS.items():
        if name in ("nearest", "inertia"):
            continue
        a, b = call(rows, metric="cosine"), call(rows.astype(np.float32), metric="cosine")
        for one, other in zip(a, b, strict=True):
            dense = [each.toarray() if sp.issparse(each) else np.asarray(each) for each in (one, other)]
            np.testing.assert_array_equal(*dense)


# ---------------------------------------------------------------- steps against slow references


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_minibatch_follows_the_reference(dtype, weighted):
    rows = X.astype(dtype)
    unit = unit_rows(rows).astype(np.float64)
    weights = np.random.default_rng(5).uniform(0.5, 3, N) if weighted else None
    model = MiniBatchKMeans(K, init=rows[:K], metric="cosine", reassignment_ratio=0.0)
    slow = Sculley(unit[:K], dtype=dtype, metric="cosine")
    for first in range(0, N, 60):
        part = slice(first, first + 60)
        given = None if weights is None else weights[part]
        model.partial_fit(rows[part], sample_weight=given)
        slow.step(unit[part], given)
        np.testing.assert_allclose(model.cluster_centers_, slow.centers, rtol=0, atol=3e-7)
        np.testing.assert_allclose(np.linalg.norm(model.cluster_centers_.astype(float), axis=1), 1, rtol=3e-7)
    assert slow.least_gap > 1e-5
    assert (model.labels_ == by_cosine(slow.centers, unit[-60:])).all()


@pytest.mark.parametrize("bounds", ["none", "hamerly", "elkan"])
@pytest.mark.parametrize("weighted", [False, True])
def test_nested_follows_the_reference(bounds, weighted):
    rng = np.random.default_rng(11)
    rows = rng.normal(size=(800, D)) + 1.5
    unit = unit_rows(rows)
    weights = rng.uniform(0.5, 3, len(rows)) if weighted else None
    model = NestedMiniBatchKMeans(
        20, init=rows[:20], batch_size=100, rho=5.0, bounds=bounds, shuffle=False, metric="cosine"
    )
    slow = nested(unit, unit[:20], 100, 5.0, weights, metric="cosine")
    steps = 0
    for step, expected in zip(model.iter_fit(rows, weights), slow, strict=True):
        assert (step.batch_size, step.n_changed) == (expected.batch, expected.changed)
        assert step.objective == pytest.approx(expected.objective, rel=1e-9)
        np.testing.assert_allclose(model.cluster_centers_, expected.centers, rtol=0, atol=1e-12)
        steps += 1
    assert steps > 5


@pytest.mark.parametrize("cls", [VarianceReducedKMeans, BackwardEulerKMeans])
def test_without_randomness_they_are_lloyds_algorithm(cls):
    rows = np.random.default_rng(2).normal(size=(400, 5))
    unit = unit_rows(rows)
    expected = reference.lloyd(unit, unit[:6], tol=0.0, metric="cosine")
    params = {"learning_rate": 0.0, "tol": 0.0} if cls is VarianceReducedKMeans else {"max_iter": 1}
    if cls is BackwardEulerKMeans:
        # One full batch with a step of length 1 moves every center to the direction of its rows.
        params |= {"batch_size": 400, "n_inner": 1, "averaging": 0.0, "step_cap": 1.0, "step_size": 1e9}
    model = cls(6, init=rows[:6], metric="cosine", **params).fit(rows)
    np.testing.assert_allclose(model.cluster_centers_, expected.centers, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(model.labels_, expected.labels)


@pytest.mark.parametrize("name", FAMILY)
def test_centers_have_length_1_between_steps(name):
    rows = np.random.default_rng(6).normal(size=(500, 7)) * 3
    model = made(name, metric="cosine", random_state=0)
    for _ in model.iter_fit(rows):
        np.testing.assert_allclose(np.linalg.norm(model.cluster_centers_, axis=1), 1, rtol=1e-14)


# ---------------------------------------------------------------- streams, states, files


@pytest.mark.parametrize("name", STREAMED)
def test_partial_fit(name):
    """Batches of any lengths give the centers of batches of unit rows, also after pickling and loading."""
    long, unit = made(name, metric="cosine"), made(name, metric="cosine")
    for first in range(0, N, 120):
        long.partial_fit(X[first : first + 120])
        unit.partial_fit(U[first : first + 120])
        np.testing.assert_array_equal(long.cluster_centers_, unit.cluster_centers_)
        np.testing.assert_allclose(np.linalg.norm(long.cluster_centers_, axis=1), 1, rtol=1e-14)
        long = pickle.loads(pickle.dumps(long))
    assert shoal.metrics.adjusted_rand_score(long.predict(X), np.arange(N) % K) == 1


@pytest.mark.parametrize("name", STREAMED)
def test_a_state_keeps_its_metric(name, tmp_path):
    model = made(name, metric="cosine").partial_fit(X[:200])
    model.save(tmp_path / "model.safetensors")
    again = shoal.load(tmp_path / "model.safetensors")
    assert again.metric == "cosine"
    for each in (model, again):
        each.partial_fit(X[200:400])
    np.testing.assert_array_equal(model.cluster_centers_, again.cluster_centers_)
    with pytest.raises(ValueError, match="metric='euclidean' differs from 'cosine'"):
        again.set_params(metric="euclidean").partial_fit(X[400:])


def test_merge():
    first = np.eye(D)[:K]
    one, other, plain = (MiniBatchKMeans(K, init=first, metric=m) for m in ("cosine", "cosine", "euclidean"))
    one.partial_fit(X[:300])
    other.partial_fit(X[300:])
    with pytest.raises(ValueError, match='metric must be "euclidean", that of the state, got "cosine"'):
        one.merge(plain.partial_fit(U))
    sums = [model.counts_.copy() for model in (one, other)]
    one.merge(other)
    np.testing.assert_array_equal(one.counts_, sums[0] + sums[1])
    np.testing.assert_allclose(np.linalg.norm(one.cluster_centers_, axis=1), 1, rtol=1e-14)


def test_streaming_coresets_keep_their_metric(tmp_path):
    one = StreamingCoreset(30, random_state=0, metric="cosine").partial_fit(X[:300])
    other = StreamingCoreset(30, random_state=1, metric="cosine").partial_fit(X[300:])
    with pytest.raises(ValueError, match="other must have metric='cosine', got 'euclidean'"):
        one.merge(StreamingCoreset(30, random_state=2).partial_fit(X))
    one.save(tmp_path / "coreset.safetensors")
    again = shoal.load(tmp_path / "coreset.safetensors")
    assert again.metric == "cosine"
    for each in (one, again, pickle.loads(pickle.dumps(one))):
        points = each.merge(other).result().points
        np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, rtol=1e-14)
    with pytest.raises(ValueError, match="metric must stay at 'cosine' after the first rows"):
        one.set_params(metric="euclidean").partial_fit(X)


@pytest.mark.parametrize("name", [*FAMILY, *OTHERS])
def test_saved_models_and_checkpoints(name, tmp_path):
    with_zeros = np.concatenate([X, np.zeros((2, D))])
    expected = ignoring(made(name, metric="cosine").fit, with_zeros)
    path = tmp_path / "fit.safetensors"
    model = made(name, metric="cosine", callbacks=[shoal.callbacks.Checkpoint(path, every_steps=1)])
    for _ in model.iter_fit(with_zeros):
        break
    resumed = ignoring(shoal.resume, path, with_zeros)
    same(resumed, expected)
    assert resumed.n_zero_rows_ == expected.n_zero_rows_ == 2
    expected.save(tmp_path / "model.safetensors")
    loaded = shoal.load(tmp_path / "model.safetensors")
    assert (loaded.metric, loaded.n_zero_rows_) == ("cosine", 2)
    np.testing.assert_array_equal(loaded.predict(X), expected.predict(X))
    assert pickle.loads(pickle.dumps(expected)).n_zero_rows_ == 2


@pytest.mark.parametrize("name", [*FAMILY, *OTHERS])
def test_the_number_of_threads_does_not_matter(name):
    rows = np.random.default_rng(0).normal(size=(3000, 6))
    one, two = (ignoring(made(name, metric="cosine", n_jobs=jobs).fit, rows) for jobs in (1, 2))
    same(one, two)


@pytest.mark.parametrize("name", [name for name in FAMILY if name != "minibatch"])
def test_weights_are_repetitions(name):
    if name.startswith(("sbe", "vrkm")):
        pytest.skip("draws rows by weight")
    counts = np.random.default_rng(3).integers(1, 4, size=N)
    params = {"batch_size": 10**6} if name == "nested" else {}
    weighted = made(name, metric="cosine", init=X[:K], **params).fit(X, sample_weight=counts)
    repeated = made(name, metric="cosine", init=X[:K], **params).fit(np.repeat(X, counts, axis=0))
    np.testing.assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_, rtol=0, atol=1e-12)


# ---------------------------------------------------------------- rows of zeros


def ignoring(call, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*args)


def told(call):
    """Return the result of a call and its warnings of rows of zeros."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    about = [each for each in caught if "zeros" in str(each.message)]
    # They point to this file, not into shoal.
    assert all(each.filename == __file__ for each in about)
    return result, [str(each.message) for each in about]


ZEROS = X.copy()
ZEROS[[17, 300, 599]] = 0.0
SOME = "3 rows of X are all zeros and have no direction"


@pytest.mark.parametrize("kind", ["f64", "npy", "csr", "stream"])
@pytest.mark.parametrize("name", [*FAMILY, *OTHERS])
def test_fits_count_rows_of_zeros(name, kind, tmp_path):
    if kind == "csr" and name == "mixture, diag":
        pytest.skip("takes no sparse rows")
    params = {"shuffle": False} if kind == "stream" and name == "nested" else {}
    # Given centers: a row of zeros could be drawn as one.
    given = {} if name in OTHERS else {"init": U[:K]}
    with as_source(kind, ZEROS, tmp_path) as source:
        model, messages = told(lambda: made(name, metric="cosine", **given, **params).fit(source))
    assert model.n_zero_rows_ == 3
    assert len(messages) == 1
    assert messages[0].startswith(SOME)
    if name in FAMILY:
        kept = np.setdiff1d(np.arange(N), [17, 300, 599])
        np.testing.assert_array_equal(model.labels_[kept], by_cosine(model.cluster_centers_, U[kept]))
        np.testing.assert_allclose(ignoring(model.transform, np.zeros((1, D))), 1, rtol=1e-14)
        np.testing.assert_array_equal(ignoring(model.predict, ZEROS), model.labels_)


@pytest.mark.parametrize("name", FAMILY)
def test_the_label_of_a_row_of_zeros_is_that_of_the_shortest_center(name):
    model = ignoring(made(name, metric="cosine", init=U[:K]).fit, ZEROS)
    centers = model.cluster_centers_
    lengths = (centers**2).sum(axis=1)
    found = ignoring(model.predict, np.zeros((1, D)))[0]
    assert lengths[found] == pytest.approx(min(lengths), rel=1e-15)
    assert (model.labels_[[17, 300, 599]] == found).all()


@pytest.mark.parametrize("name", CALLS)
def test_functions_count_rows_of_zeros(name):
    _, messages = told(lambda: CALLS[name](ZEROS, metric="cosine"))
    assert len(messages) == 1
    assert messages[0].startswith(SOME)
    assert told(lambda: CALLS[name](ZEROS))[1] == []
    assert told(lambda: CALLS[name](X, metric="cosine"))[1] == []


@pytest.mark.parametrize("name", [*FAMILY, *OTHERS])
def test_predictions_count_rows_of_zeros(name, tmp_path):
    model = made(name, metric="cosine").fit(X)
    calls = [
        lambda: model.predict(ZEROS),
        lambda: model.predict(ZEROS, out=tmp_path / "labels.npy"),
    ]
    if name in FAMILY:
        calls += [lambda: model.transform(ZEROS), lambda: model.score(ZEROS)]
    elif name != "kmodes":
        calls += [lambda: model.score_samples(ZEROS), lambda: model.predict_proba(ZEROS)]
    for call in calls:
        messages = told(call)[1]
        assert len(messages) == 1
        assert messages[0].startswith(SOME)


@pytest.mark.parametrize("name", STREAMED)
def test_partial_fit_counts_rows_of_zeros(name):
    model = made(name, metric="cosine", init=U[:K])
    assert told(lambda: model.partial_fit(ZEROS[:300]))[1][0].startswith("1 row of X is all zeros")
    assert told(lambda: model.partial_fit(X[:300]))[1] == []
    model = pickle.loads(pickle.dumps(model))
    assert told(lambda: model.partial_fit(ZEROS[300:]))[1][0].startswith("2 rows of X are all zeros")
    assert model.n_zero_rows_ == 3


def test_merged_states_add_their_rows_of_zeros():
    one, other = (MiniBatchKMeans(K, init=U[:K], metric="cosine") for _ in range(2))
    ignoring(one.partial_fit, ZEROS[:300])
    ignoring(other.partial_fit, ZEROS[300:])
    assert one.merge(other).n_zero_rows_ == 3


def test_a_center_whose_rows_cancel_keeps_its_place():
    rows = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    first = np.array([[0.6, 0.8]])
    for cls in (KMeans, NestedMiniBatchKMeans, VarianceReducedKMeans):
        np.testing.assert_array_equal(cls(1, init=first, metric="cosine").fit(rows).cluster_centers_, first)


def test_euclidean_fits_count_nothing():
    model, messages = told(lambda: KMeans(K, random_state=0).fit(ZEROS))
    assert (model.n_zero_rows_, messages) == (0, [])


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize("name", [*FAMILY, *OTHERS])
def test_unknown_metrics(name):
    with pytest.raises(ValueError, match="metric must be one of euclidean, cosine, got 'l1'"):
        made(name, metric="l1").fit(X)


@pytest.mark.parametrize("name", CALLS)
def test_unknown_metrics_of_functions(name):
    with pytest.raises(ValueError, match="metric must be one of euclidean, cosine, got 'l1'"):
        CALLS[name](X, metric="l1")


def test_kmodes_needs_normalized_rows():
    with pytest.raises(ValueError, match="normalize must be True with metric='cosine', got False"):
        LaplacianKModes(K, metric="cosine", normalize=False).fit(X)
    same(
        LaplacianKModes(K, metric="cosine", random_state=0).fit(X), LaplacianKModes(K, random_state=0).fit(X)
    )


def test_laplacian_path():
    params = {"weights": [0.5, 1.0], "n_resamples": 1, "random_state": 0, "metric": "cosine"}
    table, unit = shoal.laplacian_path(X, K, **params), shoal.laplacian_path(U, K, **params)
    assert table.tobytes() == unit.tobytes()
    messages = told(lambda: shoal.laplacian_path(ZEROS, K, **params))[1]
    assert len(messages) == 1
    assert messages[0].startswith(SOME)


def test_callbacks_measure_with_the_metric():
    for name in [*FAMILY, "mixture"]:
        curve = shoal.callbacks.ValidationCurve(X)
        model = made(name, metric="cosine", callbacks=[curve]).fit(X)
        unit = shoal.callbacks.ValidationCurve(U)
        made(name, metric="cosine", callbacks=[unit]).fit(X)
        assert curve.scores_ == unit.scores_, type(model)


# ---------------------------------------------------------------- agreement of fits and predictions


@pytest.mark.filterwarnings("ignore:.* rows? of X (is|are) all zeros:UserWarning")
@pytest.mark.parametrize("cls", [KMeans, NestedMiniBatchKMeans])
def test_rows_of_zeros_have_one_label_with_many_columns(cls):
    X = np.random.default_rng(3).normal(size=(200, 1024))
    X[::20] = 0.0
    for seed in range(4):
        model = cls(9, metric="cosine", random_state=seed, max_iter=5).fit(X)
        np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_normalized_rows_are_not_normalized_again():
    X = np.random.default_rng(4).normal(size=(300, 7))
    plain = KMeans(5, metric="cosine", random_state=0).fit(X)
    twice = KMeans(5, metric="cosine", random_state=0).fit(shoal.open(X).normalize())
    np.testing.assert_array_equal(twice.cluster_centers_, plain.cluster_centers_)
    assert twice.inertia_ == plain.inertia_


def test_only_the_cosine_metric_warns_of_rows_of_zeros():
    X = np.random.default_rng(5).normal(size=(100, 3))
    X[7] = 0.0
    source = shoal.open(X).normalize()
    model = KMeans(3, random_state=0).fit(source)
    # A warning is raised as an error.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(source)
        model.transform(source)
        shoal.nearest(source, model.cluster_centers_)


@pytest.mark.parametrize("kind", ["ValidationCurve", "EarlyStopping"])
def test_callbacks_warn_of_rows_of_zeros_once(kind):
    curve = getattr(shoal.callbacks, kind)(ZEROS)
    model = made("kmeans", metric="cosine", max_iter=5, tol=0, callbacks=[curve])
    for _ in range(2):
        messages = told(lambda: model.fit(X))[1]
        assert len(curve.scores_) > 1
        assert len(messages) == 1
        assert messages[0].startswith(SOME)


def test_the_energy_of_a_mixture_is_that_of_its_directions():
    model = made("mixture", metric="cosine").fit(X)
    means = model.cluster_centers_
    assert (np.linalg.norm(means, axis=1) < 1 - 1e-3).any()
    rows = shoal.open(X)
    expected = shoal.metrics.inertia(X, means, metric="cosine")
    assert model._energy(rows) == pytest.approx(expected, rel=1e-12)
    unit = means / np.linalg.norm(means, axis=1, keepdims=True)
    assert model._energy(rows) == pytest.approx(shoal.metrics.inertia(U, unit), rel=1e-9)
