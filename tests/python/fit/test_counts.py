"""`counts_` are the weights of the rows of each label, after every fit and between its steps."""

import warnings

import numpy as np
import pytest
import shoal
from shoal import (
    BackwardEulerKMeans,
    BalancedKMeans,
    BreathingKMeans,
    HierarchicalKMeans,
    KMeans,
    MiniBatchKMeans,
    NestedMiniBatchKMeans,
    VarianceReducedKMeans,
)
from sklearn.exceptions import ConvergenceWarning

#: All estimators with `labels_` whose `counts_` are the weights of the clusters. Those of
#: `MiniBatchKMeans` are the weights of all rows in its batches.
ESTIMATORS = [
    KMeans,
    NestedMiniBatchKMeans,
    VarianceReducedKMeans,
    BackwardEulerKMeans,
    BalancedKMeans,
    BreathingKMeans,
    HierarchicalKMeans,
]


def problem(seed):
    """Rows of at most 5 directions in at most 5 columns, weights or None, and as many clusters or more."""
    rng = np.random.default_rng(seed)
    n_directions, n_columns, n_rows = rng.integers(1, 6), rng.integers(1, 6), rng.integers(8, 60)
    n_clusters = min(int(rng.integers(n_directions, 9)), int(n_rows))
    shape = (n_directions, n_columns)
    directions = rng.normal(size=shape) if seed % 3 else rng.integers(-3, 4, size=shape).astype(float)
    lengths = rng.uniform(0.1, 9, size=(n_rows, 1)) if seed % 3 == 1 else rng.integers(1, 9, size=(n_rows, 1))
    X = directions[rng.integers(0, n_directions, n_rows)] * lengths
    weights = None if seed % 2 else rng.uniform(0, 3, n_rows)
    return X.astype(np.float32 if seed // 3 % 2 else np.float64), weights, n_clusters


# Among these seeds, clusters are relocated by less than rounding in some fits of exact k-means.
@pytest.mark.parametrize("seed", [*range(12), 19, 108, 159, 229, 1224])
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_counts_belong_to_labels(estimator, metric, seed):
    X, weights, k = problem(seed)
    model = estimator(k, metric=metric, random_state=seed)
    with warnings.catch_warnings():
        # Fewer distinct rows than clusters, or rows of zeros.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        model.fit(X, sample_weight=weights)
    expected = np.bincount(model.labels_, weights=weights, minlength=k)
    np.testing.assert_allclose(model.counts_, expected, rtol=1e-12)
    inertia = shoal.metrics.inertia(X, model.cluster_centers_, sample_weight=weights, metric=metric)
    np.testing.assert_allclose(model.inertia_, inertia, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_counts_belong_to_labels_that_are_read_between_steps(estimator, weighted):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(600, 3)) + 3.0 * rng.integers(0, 4, size=(600, 1))
    weights = rng.uniform(0.5, 3, 600) if weighted else None
    batches = {"batch_size": 50} if "batch_size" in estimator(2).get_params() else {}
    model, steps, others = estimator(12, random_state=0, **batches), 0, 0
    for _ in model.iter_fit(X, sample_weight=weights):
        before = model.counts_
        expected = np.bincount(model.labels_, weights, len(model.cluster_centers_))
        np.testing.assert_allclose(model.counts_, expected, rtol=1e-12)
        assert model.counts_.dtype == np.float64
        steps, others = steps + 1, others + (before.tolist() != expected.tolist())
    assert others > 0 or steps == 1
    unread = estimator(12, random_state=0, **batches).fit(X, sample_weight=weights)
    np.testing.assert_array_equal(model.counts_, unread.counts_)
    np.testing.assert_array_equal(model.cluster_centers_, unread.cluster_centers_)


def test_counts_of_all_rows_ever_received_do_not_change_with_the_labels():
    X = np.random.default_rng(5).normal(size=(600, 3))
    model = shoal.MiniBatchKMeans(4, batch_size=50, random_state=0)
    for _ in model.iter_fit(X):
        before = model.counts_
        assert model.labels_.shape == (600,)
        np.testing.assert_array_equal(model.counts_, before)


@pytest.mark.parametrize("cls", [*ESTIMATORS, MiniBatchKMeans])
def test_fewer_rows_of_positive_weight_than_clusters_give_a_warning(cls):
    X = np.random.default_rng(0).normal(size=(100, 2))
    with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(3\)"):
        cls(5, random_state=0).fit(X, sample_weight=np.arange(100) < 3)
