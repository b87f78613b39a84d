"""Initial centers: the distribution and quality of k-means++, and every `init`."""

import itertools
from functools import partial

import numpy as np
import pytest
import reference
import shoal
import sklearn.cluster
from generated import groups
from shoal import KMeans
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning


@pytest.fixture(scope="module")
def rows():
    return groups(60)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("greedy", [True, False])
def test_centers_are_rows(rows, dtype, greedy):
    X = np.abs(rows * 5).astype(dtype)
    centers, indices = shoal.kmeans_plusplus(X, 20, greedy=greedy, random_state=0)
    assert centers.shape == (20, 3)
    assert centers.dtype == (np.float64 if dtype == np.float64 else np.float32)
    assert indices.dtype == np.int64
    assert len(set(indices.tolist())) == 20
    assert (centers == X[indices]).all()
    again = shoal.kmeans_plusplus(X, 20, greedy=greedy, random_state=0)
    assert (again[1] == indices).all()
    assert (shoal.kmeans_plusplus(X, 20, greedy=greedy, random_state=1)[1] != indices).any()


def test_greedy_seeding_is_better_and_as_good_as_scikit_learn(rows):
    def mean(draw):
        return np.mean([reference.potential(rows, draw(seed)) for seed in range(25)])

    greedy = mean(lambda seed: shoal.kmeans_plusplus(rows, 15, random_state=seed)[0])
    plain = mean(lambda seed: shoal.kmeans_plusplus(rows, 15, greedy=False, random_state=seed)[0])
    blind = mean(lambda seed: rows[np.random.default_rng(seed).permutation(len(rows))[:15]])
    theirs = mean(lambda seed: sklearn.cluster.kmeans_plusplus(rows, 15, random_state=seed)[0])
    theirs_plain = mean(
        lambda seed: sklearn.cluster.kmeans_plusplus(rows, 15, random_state=seed, n_local_trials=1)[0]
    )
    assert greedy < plain < blind
    assert greedy < 1.5 * theirs
    assert plain < 1.5 * theirs_plain


def test_the_second_center_is_drawn_by_squared_distance():
    # From 0, the other rows have distances 1 and 3, so squared distances 1 and 9.
    X = np.array([[0.0], [1.0], [3.0]])
    found = {0: [], 1: [], 2: []}
    for seed in range(3000):
        first, second = shoal.kmeans_plusplus(X, 2, greedy=False, random_state=seed)[1].tolist()
        found[first].append(second)
    for first, seconds in found.items():
        # Each row is first in a third of all draws: 1000 draws plus or minus four standard deviations.
        assert abs(len(seconds) - 1000) < 4 * np.sqrt(3000 * (1 / 3) * (2 / 3))
        d = (X[:, 0] - X[first, 0]) ** 2
        p = (d / d.sum())[2 if first < 2 else 1]
        share = np.mean([s == (2 if first < 2 else 1) for s in seconds])
        assert abs(share - p) < 4 * np.sqrt(p * (1 - p) / len(seconds))


def test_weights_count_in_the_draw():
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    weights = [1.0, 0.0, 3.0, 0.0]
    drawn = [
        shoal.kmeans_plusplus(X, 1, sample_weight=weights, random_state=seed)[1][0] for seed in range(2000)
    ]
    counts = np.bincount(drawn, minlength=4)
    assert counts[1] == counts[3] == 0
    assert abs(counts[2] / 2000 - 0.75) < 4 * np.sqrt(0.75 * 0.25 / 2000)
    for greedy in (True, False):
        both = shoal.kmeans_plusplus(X, 2, sample_weight=weights, greedy=greedy, random_state=0)[1]
        assert sorted(both.tolist()) == [0, 2]


def test_random_rows_are_distinct_and_uniform():
    X = np.random.default_rng(3).normal(size=(10, 1))
    # The inertia of the first sweep tells which rows were drawn.
    sets = [list(rows) for rows in itertools.combinations(range(10), 3)]
    known = np.array([reference.potential(X, X[rows]) for rows in sets])
    hits = np.zeros(10)
    for seed in range(600):
        model = KMeans(3, init="random", n_init=1, max_iter=1, random_state=seed).fit(X)
        fitting = np.flatnonzero(np.abs(known / model.history_["objective"][0] - 1) < 1e-12)
        assert len(fitting) > 0, "not three distinct rows"
        # If two rows are nearest to each other, either can have been drawn.
        for i in fitting:
            hits[sets[i]] += 1 / len(fitting)
    assert (abs(hits - 180) < 4.5 * np.sqrt(600 * 0.3 * 0.7)).all()


@pytest.mark.parametrize("init", ["auto", "random", "k-means++", "plain-k-means++"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_every_init_by_name(rows, init, metric):
    model = KMeans(15, init=init, n_init=1, random_state=0, metric=metric).fit(rows)
    assert model.init_ != "auto"
    assert model.init_.startswith("k-means++" if init == "auto" else init)
    assert (model.counts_ > 0).all()


def test_auto_seeds_greedily_on_all_rows_if_that_is_cheap(rows):
    auto = KMeans(15, random_state=3).fit(rows)
    named = KMeans(15, init="k-means++", random_state=3).fit(rows)
    assert (auto.cluster_centers_ == named.cluster_centers_).all()


def test_auto_is_kmeans_parallel_for_many_rows():
    X = np.random.default_rng(0).normal(size=(70_000, 4)).astype(np.float32)
    model = KMeans(60, random_state=0, max_iter=1, n_jobs=2).fit(X)
    assert model.init_ == "k-means||"
    objective = model.history_["objective"][0]
    whole = KMeans(60, init="k-means++", random_state=0, max_iter=1, n_jobs=2).fit(X)
    assert whole.init_ == "k-means++"
    assert objective < 1.1 * whole.history_["objective"][0]
    blind = KMeans(60, init="random", n_init=1, random_state=0, max_iter=1, n_jobs=2).fit(X)
    assert objective < blind.history_["objective"][0]


def test_seeding_of_the_estimator_is_as_good_as_the_function(rows):
    potentials = [
        KMeans(15, init="k-means++", max_iter=1, random_state=s).fit(rows).history_["objective"][0]
        for s in range(15)
    ]
    function = [
        reference.potential(rows, shoal.kmeans_plusplus(rows, 15, random_state=s)[0]) for s in range(15)
    ]
    assert np.median(potentials) < 1.5 * np.median(function)
    assert np.median(function) < 1.5 * np.median(potentials)


def test_a_callable(rows):
    calls = []

    def first(X, n_clusters, random_state):
        calls.append((X.shape, n_clusters))
        return X[random_state.permutation(len(X))[:n_clusters]]

    model = KMeans(5, init=first, random_state=0, max_iter=5).fit(rows)
    assert calls == [(rows.shape, 5)] * 10
    assert model.init_ == "callable"
    again = KMeans(5, init=first, random_state=0, max_iter=5).fit(rows)
    assert (again.cluster_centers_ == model.cluster_centers_).all()
    calls.clear()
    single = KMeans(5, init=first, n_init=1, random_state=0, max_iter=5).fit(rows)
    assert len(calls) == 1
    assert single.inertia_ >= model.inertia_


@pytest.mark.parametrize(
    "estimator",
    [
        KMeans(5, n_init=1, max_iter=5),
        KMeans(5, n_init=2, max_iter=5),
        shoal.MiniBatchKMeans(5, max_iter=2, compute_labels=False),
        shoal.NestedMiniBatchKMeans(5, max_iter=3),
        shoal.LaplacianKModes(5, normalize=False, bandwidth=9.0, max_iter=3),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.parametrize(
    ("seeding", "options"),
    [
        (shoal.kmeans_parallel, {"oversampling_factor": 0.7, "n_rounds": 2}),
        (shoal.afkmc2, {"chain_length": 3}),
    ],
)
def test_seedings_with_options_are_callables(rows, estimator, seeding, options):
    calls = []

    def centers_only(X, n_clusters, random_state):
        calls.append(n_clusters)
        return seeding(X, n_clusters, random_state=random_state, **options)[0]

    model = clone(estimator).set_params(init=partial(seeding, **options), random_state=0).fit(rows)
    expected = clone(estimator).set_params(init=centers_only, random_state=0).fit(rows)
    assert set(calls) == {5}
    assert model.init_ == "callable"
    for name in ("cluster_centers_", "modes_", "labels_"):
        if hasattr(expected, name):
            np.testing.assert_array_equal(getattr(model, name), getattr(expected, name))


def test_a_pair_of_rows_is_centers(rows):
    model = KMeans(2, init=lambda X, k, random_state: (X[0], X[1]), n_init=1).fit(rows)
    expected = KMeans(2, init=rows[:2], n_init=1).fit(rows)
    np.testing.assert_array_equal(model.cluster_centers_, expected.cluster_centers_)


def test_an_array_is_used_as_given_and_not_changed(rows):
    init = rows[:4].copy()
    given = KMeans(4, init=init, max_iter=1).fit(rows)
    assert given.init_ == "array"
    assert (init == rows[:4]).all()
    assert given.history_["objective"][0] == pytest.approx(reference.potential(rows, init), rel=1e-12)
    assert (KMeans(4, init=init.tolist(), max_iter=1).fit(rows).labels_ == given.labels_).all()
    with pytest.warns(RuntimeWarning, match="performing only one init"):
        KMeans(4, init=init, n_init=3).fit(rows)


def test_fewer_distinct_rows_than_clusters():
    X = np.repeat(np.arange(3.0)[:, None], 5, axis=0)
    for init in ("auto", "random", "k-means++", "plain-k-means++"):
        with pytest.warns(
            ConvergenceWarning, match=r"distinct clusters \(3\) found smaller than n_clusters \(5\)"
        ):
            model = KMeans(5, init=init, random_state=0).fit(X)
        assert model.inertia_ == 0
        assert sorted(model.counts_.tolist()) == [0, 0, 5, 5, 5]
        assert (np.bincount(model.labels_, minlength=5) == model.counts_).all()
        assert np.isfinite(model.cluster_centers_).all()
