"""Bit-identical results for any number of threads and any storage of the rows."""

import os

import numpy as np
import pytest
import shoal
from shoal import KMeans

INITS = ["auto", "random", "k-means++", "plain-k-means++", "array", "callable"]
#: Fields of `history_` without the times.
FIELDS = [
    "iteration",
    "rows_seen",
    "batch_size",
    "objective",
    "center_shift",
    "n_changed",
    "n_distances",
    "stop_reason",
]


def same(a, b):
    assert a.cluster_centers_.tobytes() == b.cluster_centers_.tobytes()
    assert a.cluster_centers_.dtype == b.cluster_centers_.dtype
    assert (a.labels_ == b.labels_).all()
    assert a.inertia_ == b.inertia_
    assert a.counts_.tobytes() == b.counts_.tobytes()
    assert a.n_iter_ == b.n_iter_
    assert a.stop_reason_ == b.stop_reason_
    assert a.init_ == b.init_
    for name in FIELDS:
        assert (a.history_[name] == b.history_[name]).all(), name


def chosen(init, X):
    if init == "array":
        return X[:20].astype(np.float32)
    if init == "callable":
        return lambda rows, k, random_state: X[random_state.permutation(len(X))[:k]]
    return init


# More rows than a block, and enough work for several threads.
@pytest.fixture(scope="module", params=["uint8", "float32", "float64"])
def rows(request):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_011, 17)) + 3.0 * rng.integers(0, 9, size=(20_011, 1))
    return np.clip(X * 7 + 30, 0, 255).astype(request.param)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("init", INITS)
def test_threads_and_sources(rows, init, weighted, tmp_path):
    weights = np.random.default_rng(1).uniform(0.0, 2.0, size=len(rows)) if weighted else None
    path = tmp_path / "rows.npy"
    np.save(path, rows)
    raw = tmp_path / "rows.bin"
    rows.tofile(raw)

    def fit(X, n_jobs):
        given = {"n_init": 2 if init in ("random", "callable") else "auto", "random_state": 11}
        model = KMeans(20, init=chosen(init, rows), n_jobs=n_jobs, max_iter=4, **given)
        return model.fit(X, sample_weight=weights)

    first = fit(rows, 1)
    for n_jobs in (2, 3, 8):
        same(first, fit(rows, n_jobs))
    same(first, fit(np.load(path, mmap_mode="r"), 2))
    same(first, fit(path, 2))
    same(first, fit(str(path), 3))
    same(first, fit(np.asfortranarray(rows), None))
    with shoal.open(path) as source:
        same(first, fit(source, 2))
    with shoal.open(rows) as source:
        same(first, fit(source, -1))
    with shoal.open(raw, shape=rows.shape, dtype=rows.dtype) as source:
        same(first, fit(source, 8))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_predictions_do_not_depend_on_threads(rows, metric, tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, rows)
    model = KMeans(20, random_state=0, max_iter=3, metric=metric).fit(rows)
    for n_jobs in (1, 2, 8):
        model.set_params(n_jobs=n_jobs)
        for X in (rows, path):
            assert (model.predict(X) == model.labels_).all()
            assert model.score(X) == -model.inertia_
        if n_jobs == 1:
            distances = model.transform(rows)
        assert model.transform(path).tobytes() == distances.tobytes()


def test_functions_do_not_depend_on_threads(rows):
    centers = rows[:50].astype(np.float32)
    one = shoal.nearest(rows, centers, n_nearest=4, n_jobs=1)
    drawn = shoal.kmeans_plusplus(rows, 50, random_state=1, n_jobs=1)
    plain = shoal.kmeans_plusplus(rows, 50, greedy=False, random_state=1, n_jobs=1)
    for n_jobs in (2, 3, 8):
        other = shoal.nearest(rows, centers, n_nearest=4, n_jobs=n_jobs)
        assert all((a == b).all() for a, b in zip(one, other, strict=True))
        assert (shoal.kmeans_plusplus(rows, 50, random_state=1, n_jobs=n_jobs)[1] == drawn[1]).all()
        again = shoal.kmeans_plusplus(rows, 50, greedy=False, random_state=1, n_jobs=n_jobs)
        assert (again[1] == plain[1]).all()
        assert shoal.metrics.inertia(rows, centers, n_jobs=n_jobs) == shoal.metrics.inertia(
            rows, centers, n_jobs=1
        )


@pytest.mark.parametrize("init", INITS)
def test_fit_equals_iter_fit(init):
    X = np.random.default_rng(0).normal(size=(1500, 5)).astype(np.float32)
    given = {"init": chosen(init, X), "random_state": 5, "n_init": 3 if init == "random" else "auto"}
    fitted = KMeans(20, **given).fit(X)
    stepped = KMeans(20, **given)
    steps = list(stepped.iter_fit(X))
    same(fitted, stepped)
    assert len(steps) == len(fitted.history_)
    # Reading labels and inertia between steps changes nothing.
    watched = KMeans(20, **given)
    for _ in watched.iter_fit(X):
        assert watched.inertia_ > 0
        assert len(watched.labels_) == len(X)
    same(fitted, watched)


def test_an_iter_fit_stopped_after_a_step_equals_max_iter():
    X = np.random.default_rng(0).normal(size=(1500, 5))
    model = KMeans(9, random_state=5, tol=0.0)
    for step in model.iter_fit(X):
        if step.iteration > 6:
            break
        whole = KMeans(9, random_state=5, tol=0.0, max_iter=step.iteration).fit(X)
        assert model.cluster_centers_.tobytes() == whole.cluster_centers_.tobytes()
        assert (model.labels_ == whole.labels_).all()
        assert model.inertia_ == whole.inertia_
        assert model.n_iter_ == step.iteration == len(model.history_)


@pytest.mark.parametrize("seen", [False, True])
def test_breaking_out_leaves_a_usable_estimator(seen):
    X = np.random.default_rng(0).normal(size=(1500, 5))
    model = KMeans(9, random_state=5, tol=0.0)
    run = model.iter_fit(X)
    for step in run:
        if seen:
            assert model.labels_ is not None
        if step.iteration == 3:
            break
    run.close()
    assert model.n_iter_ == 3
    assert len(model.history_) == 3
    assert model.stop_reason_ is None
    whole = KMeans(9, random_state=5, tol=0.0, max_iter=3).fit(X)
    assert (model.predict(X) == whole.labels_).all()
    assert model.score(X) == -whole.inertia_
    assert model.inertia_ == whole.inertia_
    assert (model.labels_ == whole.labels_).all()
    same(model.set_params(max_iter=3).fit(X), whole)


def test_seeds():
    X = np.random.default_rng(0).normal(size=(800, 4))
    for init in ("auto", "random", "k-means++", "plain-k-means++"):
        first = KMeans(12, init=init, random_state=1, n_init=1).fit(X)
        same(first, KMeans(12, init=init, random_state=1, n_init=1).fit(X))
        other = KMeans(12, init=init, random_state=2, n_init=1).fit(X)
        assert (first.cluster_centers_ != other.cluster_centers_).any()
    # A fit leaves no state that a later fit could see.
    model = KMeans(12, random_state=1)
    same(model.fit(X), KMeans(12, random_state=1).fit(X))
    same(model.fit(X[:500]), KMeans(12, random_state=1).fit(X[:500]))


def test_more_threads_than_processors():
    X = np.random.default_rng(0).normal(size=(3000, 40))
    same(
        KMeans(40, random_state=0, max_iter=2, n_jobs=1).fit(X),
        KMeans(40, random_state=0, max_iter=2, n_jobs=4 * (os.cpu_count() or 1)).fit(X),
    )
