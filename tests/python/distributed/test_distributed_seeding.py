"""The seedings and coresets of fits over partitions."""

from functools import partial

import numpy as np
import pytest
import shoal
from distributed_suite import blobs, cut
from shoal import distributed
from shoal.distributed import KMeans, SeedPass
from sklearn.exceptions import ConvergenceWarning


@pytest.mark.parametrize(
    ("init", "seed"),
    [("k-means++", partial(shoal.kmeans_plusplus, greedy=False)), ("k-means||", shoal.kmeans_parallel)],
    ids=["k-means++", "k-means||"],
)
def test_seeds_are_rows_far_from_each_other(init, seed):
    rows = blobs(n=6000, k=12, seed=3)
    rng = np.random.default_rng(0)
    found, local, random = [], [], []
    for s in range(20):
        model = KMeans(12, init=init, random_state=s, max_iter=1, tol=0).fit(cut(rows, 0.2, 0.9))
        found.append(model.history_["objective"][0])
        local.append(shoal.metrics.inertia(rows, seed(rows, 12, random_state=s)[0]))
        random.append(shoal.metrics.inertia(rows, rows[rng.choice(6000, 12, replace=False)]))
    assert np.mean(found) < 1.2 * np.mean(local) < np.mean(random)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_many_centers_are_chosen_by_a_tree_of_the_coreset(metric):
    rows = blobs(n=12_000, k=12, seed=3)
    params = {"metric": metric, "random_state": 4, "max_iter": 1, "tol": 0}
    parts = cut(rows, 0.2, 0.9)
    tree = KMeans(40, init="hierarchical", **params).fit(parts)
    coreset = distributed.lightweight_coreset(parts, 10_000, metric=metric, random_state=4)
    local = shoal.KMeans(40, init="hierarchical", n_init=1, **params).iter_fit(coreset)
    # The first step of the local fit measures the same centers, over the coreset.
    expected = next(local).objective
    assert tree.history_["objective"][0] == pytest.approx(expected, rel=0.05)
    assert tree.history_["objective"][0] != expected


def test_a_tree_finds_rare_groups():
    rng = np.random.default_rng(0)
    rare = rng.normal(size=(5, 8)) * 100
    rows = np.concatenate([rng.normal(size=(20_000, 8)), np.repeat(rare, 4, axis=0)])
    rows = rows[rng.permutation(len(rows))]
    for seed in range(5):
        model = KMeans(100, init="hierarchical", random_state=seed, max_iter=1).fit(cut(rows, 0.5))
        assert (shoal.nearest(rare, model.cluster_centers_)[1] < 1).all()


def test_draws_of_seeds_follow_weights_and_squared_distances():
    # From a center at 0, the odds of 1, 2 and 3 are 1 : 4 : 9; each round draws one row.
    rows, counts = np.array([[0.0], [1.0], [2.0], [3.0]]), np.zeros(4)
    for seed in range(1500):
        task = SeedPass(2, oversampling_factor=0.5, n_rounds=1, random_state=seed)
        task, _ = task.commit(task.absorb(rows, [1e12, 1e-12, 1e-12, 1e-12], partition=0))
        task, _ = task.commit(task.absorb(rows, partition=0))
        task, _ = task.commit(task.absorb(rows, partition=0))
        assert task.done
        counts[int(task.centers.max())] += 1
    expected = 1500 * np.array([0, 1, 4, 9]) / 14
    assert counts[0] == 0
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected + 1)).all(), counts


def test_coresets_estimate_the_cost():
    rows = blobs(n=20_000, seed=4)
    centers = rows[:6]
    exact = shoal.metrics.inertia(rows, centers)
    errors = []
    for seed in range(8):
        coreset = distributed.lightweight_coreset(cut(rows, 0.1, 0.15, 0.8), 1000, random_state=seed)
        np.testing.assert_array_equal(rows[coreset.indices], coreset.points)
        assert (np.diff(coreset.indices) >= 0).all()
        errors.append(shoal.metrics.inertia(coreset.points, centers, coreset.weights) / exact - 1)
    assert abs(np.mean(errors)) < 0.04
    assert max(map(abs, errors)) < 0.2
    few = distributed.lightweight_coreset(cut(rows[:50], 0.1, 0.1, 0.8), 50)
    np.testing.assert_array_equal(few.indices, np.arange(50))
    np.testing.assert_array_equal(few.weights, np.ones(50))


def test_fewer_distinct_rows_than_clusters():
    rows = np.repeat([[0.0, 1.0], [5.0, 5.0]], 30, axis=0)
    with pytest.warns(
        ConvergenceWarning, match=r"distinct clusters \(2\) found smaller than n_clusters \(4\)"
    ):
        model = KMeans(4, random_state=0).fit(cut(rows, 0.3, 0.7))
    assert model.inertia_ == 0
    assert sorted(model.counts_.tolist()) == [0, 0, 30, 30]
