"""Metrics of a clustering."""

import itertools

import numpy as np
import pytest
import reference
import sklearn.metrics
from shoal import metrics


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_inertia(dtype):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 200, size=(500, 7)).astype(dtype)
    centers = rng.uniform(0, 200, size=(11, 7))
    weights = rng.uniform(0, 3, size=500)
    for given in (centers, centers.astype(np.float32), centers.tolist(), np.asfortranarray(centers)):
        exact = reference.sq_dists(X, given).argmin(axis=1)
        for w in (None, weights):
            expected = reference.inertia(X, given, exact, w)
            assert metrics.inertia(X, given, w) == pytest.approx(expected, rel=1e-12)
            assert metrics.inertia(X, given, w, n_jobs=1) == metrics.inertia(X, given, w, n_jobs=3)
    assert metrics.inertia(X, centers, 2.0) == pytest.approx(2 * metrics.inertia(X, centers), rel=1e-14)


def test_accuracy_is_that_of_the_best_matching():
    rng = np.random.default_rng(1)
    for classes, clusters in ((4, 4), (3, 5), (5, 3)):
        true, pred = rng.integers(0, classes, 60), rng.integers(0, clusters, 60)
        size = max(classes, clusters)
        best = max(
            np.mean(np.array(names)[pred] == true) for names in itertools.permutations(range(size), size)
        )
        assert metrics.clustering_accuracy(true, pred) == pytest.approx(best)
    assert metrics.clustering_accuracy(["a", "b", "b"], [7, -1, -1]) == 1.0
    assert metrics.clustering_accuracy([0], [5]) == 1.0


def test_purity():
    assert metrics.purity([0, 0, 1, 1, 2], [0, 0, 0, 1, 1]) == pytest.approx(3 / 5)
    assert metrics.purity(["x", "y"], [0, 0]) == 0.5


def test_scores_equal_those_of_scikit_learn():
    rng = np.random.default_rng(2)
    true, pred = rng.integers(0, 4, 200), rng.integers(0, 6, 200)
    assert metrics.adjusted_rand_score(true, pred) == sklearn.metrics.adjusted_rand_score(true, pred)
    for method in ("arithmetic", "geometric", "min", "max"):
        expected = sklearn.metrics.normalized_mutual_info_score(true, pred, average_method=method)
        assert metrics.normalized_mutual_info_score(true, pred, average_method=method) == expected
    assert metrics.normalized_mutual_info_score(true, pred) == sklearn.metrics.normalized_mutual_info_score(
        true, pred
    )


@pytest.mark.parametrize("score", [metrics.clustering_accuracy, metrics.purity])
@pytest.mark.parametrize(("true", "pred"), [([], []), ([0, 1], [0]), ([[0, 1]], [[0, 1]])])
def test_labels_of_different_lengths(score, true, pred):
    with pytest.raises(ValueError, match="must be 1-D, of the same length and not empty, got shapes"):
        score(true, pred)


def test_metrics_of_scikit_learn_are_reexported():
    assert metrics.adjusted_rand_score is sklearn.metrics.adjusted_rand_score
    assert metrics.normalized_mutual_info_score is sklearn.metrics.normalized_mutual_info_score


@pytest.mark.parametrize("metric", [metrics.clustering_accuracy, metrics.purity])
def test_labels_must_be_finite(metric):
    with pytest.raises(ValueError, match=r"^y_true must be finite"):
        metric([1.0, np.nan], [0, 1])
    with pytest.raises(ValueError, match=r"^y_pred must be finite"):
        metric([0, 1], [1.0, np.inf])
    assert metric([1.0, 2.0], ["a", "b"]) == 1.0
