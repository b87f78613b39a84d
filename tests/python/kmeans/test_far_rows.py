"""One distant row does not merge the clusters of the other rows."""

import numpy as np
import pytest
import scipy.sparse
import shoal
from shoal import (
    BackwardEulerKMeans,
    BreathingKMeans,
    KMeans,
    MiniBatchKMeans,
    NestedMiniBatchKMeans,
    TruncatedGaussianMixture,
    VarianceReducedKMeans,
)

# Blocks of rows decline such rows, with a warning.
pytestmark = pytest.mark.filterwarnings("ignore:algorithm='filtering' needs:RuntimeWarning")

FAR = [1e5, 1e9, 1e12, 1e20, 1e25, 1e30, 1e38]


def with_far_row(far, unit=1.0, offset=0.0, columns=2, dtype="float32"):
    """100 rows around each of 0, 10 and 20, and a row at `far`; with the true labels."""
    rng = np.random.default_rng(5)
    labels = np.append(np.repeat([0, 1, 2], 100), 3)
    X = 10.0 * labels[:, None] + rng.normal(scale=0.5, size=(301, columns)) + offset
    X *= unit
    X[-1] = far
    order = rng.permutation(301)
    return X[order].astype(dtype), labels[order]


def seeds(X, labels):
    """Return the first row per cluster."""
    return np.stack([X[labels == j][0] for j in range(4)])


def check(model, labels):
    """Check the labels, and that every cluster has its rows."""
    assert model.labels_.tolist() == labels.tolist()
    # Stream methods count the rows of all batches.
    if not isinstance(model, MiniBatchKMeans | BackwardEulerKMeans):
        assert model.counts_.tolist() == [100, 100, 100, 1]
    assert np.isfinite(model.cluster_centers_).all()


def plans(init):
    """Every method, started from given centers."""
    given = {"n_clusters": 4, "init": init, "random_state": 0}
    exact = ["lloyd", "elkan", "hamerly", "exponion", "yinyang", "auto"]
    if len(init[0]) <= 16:
        exact.append("filtering")
    return [
        *(KMeans(algorithm=algorithm, max_iter=20, tol=0, **given) for algorithm in exact),
        MiniBatchKMeans(batch_size=64, max_iter=3, reassignment_ratio=0, **given),
        NestedMiniBatchKMeans(batch_size=64, **given),
        VarianceReducedKMeans(max_iter=5, tol=0, **given),
        BreathingKMeans(m=2, tol=0, max_iter=60, **given),
        BackwardEulerKMeans(batch_size=301, max_iter=3, n_inner=2, **given),
    ]


@pytest.mark.parametrize("columns", [1, 2, 40])
@pytest.mark.parametrize("far", FAR)
def test_all_methods_keep_clusters_apart(far, columns):
    X, labels = with_far_row(far, columns=columns)
    for plan in plans(seeds(X, labels)):
        check(plan.fit(X), labels)


@pytest.mark.parametrize("far", [1e20, 1e38])
def test_from_random_starts(far):
    X, labels = with_far_row(far)
    for model in [KMeans(4, random_state=1), KMeans(4, init="k-means||", random_state=1)]:
        model.fit(X)
        assert sorted(model.counts_) == [1, 100, 100, 100]
        assert len(set(zip(model.labels_.tolist(), labels.tolist(), strict=True))) == 4


@pytest.mark.parametrize("far", [1e12, 1e30])
def test_predictions_and_distances(far):
    X, labels = with_far_row(far)
    model = KMeans(4, init=seeds(X, labels), n_init=1).fit(X)
    assert model.predict(X).tolist() == labels.tolist()
    assert model.predict(scipy.sparse.csr_matrix(X)).tolist() == labels.tolist()
    wide = X.astype("float64")[:, None] - model.cluster_centers_.astype("float64")
    expected = np.sqrt((wide**2).sum(axis=2))
    np.testing.assert_allclose(model.transform(X), expected, rtol=2e-3, atol=1e-4 * 20)
    assert model.score(X) == pytest.approx(-model.inertia_)


def test_sparse_rows():
    X, labels = with_far_row(1e30, columns=7)
    X[np.abs(X) < 0.3] = 0
    init = seeds(X, labels)
    for plan in [KMeans(4, init=init, n_init=1), MiniBatchKMeans(4, init=init, reassignment_ratio=0)]:
        check(plan.fit(scipy.sparse.csr_matrix(X)), labels)


@pytest.mark.parametrize("offset", [1e3, 1e5])
@pytest.mark.parametrize("far", [-1e6, 1e7, 1e20, 1e35])
def test_clusters_far_from_the_origin(offset, far):
    """A shift to the distant row would lose the digits of all other rows."""
    X, labels = with_far_row(far, offset=offset)
    for plan in plans(seeds(X, labels)):
        check(plan.fit(X), labels)


def test_the_shift_suits_most_centers():
    X = (10_000 + np.arange(500.0)).astype("float32")
    rows = np.append(np.repeat(X, 2), np.float32(3e8))[:, None]
    model = KMeans(501, init=np.append(X, np.float32(3e8))[:, None], n_init=1, max_iter=1).fit(rows)
    assert model.counts_.tolist() == [2] * 500 + [1]


def test_two_groups_of_near_clusters():
    """No shift is near both groups. Rounding is larger than the distances within a group."""
    for centers in [[1e4, 10_001, 10_002, -1e4, -10_001, -10_002], [1e8, 1e8 + 64, 5, 6]]:
        init = np.array(centers, dtype="float32")[:, None]
        X = np.repeat(init, 50, axis=0)
        for algorithm in ["lloyd", "elkan", "hamerly"]:
            model = KMeans(len(init), init=init, n_init=1, algorithm=algorithm).fit(X)
            assert (model.counts_ == 50).all()
            assert model.inertia_ == 0


@pytest.mark.parametrize(
    ("unit", "far"), [(1e-25, 1.0), (1e-30, 1e-5), (1e-40, 1.0), (1e-40, 1e-20), (1e-40, 1e38), (1e15, 1e38)]
)
def test_the_limits_of_float32(unit, far):
    X, labels = with_far_row(far, unit=unit)
    for plan in plans(seeds(X, labels)):
        check(plan.fit(X), labels)


@pytest.mark.parametrize(
    ("unit", "far"), [(1.0, 1e100), (1.0, 1e150), (1.0, 1e300), (1e-150, 1.0), (1e-300, 1.0), (1e-318, 1.0)]
)
def test_the_limits_of_float64(unit, far):
    X, labels = with_far_row(far, unit=unit, dtype="float64")
    for algorithm in ["lloyd", "elkan", "hamerly"]:
        model = KMeans(4, init=seeds(X, labels), n_init=1, max_iter=5, algorithm=algorithm).fit(X)
        check(model, labels)
    assert model.predict(scipy.sparse.csr_matrix(X)).tolist() == labels.tolist()


def test_threads_and_sources_do_not_change_results(tmp_path):
    X, labels = with_far_row(1e30, columns=5)
    init, X = seeds(X, labels), np.concatenate([X] * 40)
    np.save(tmp_path / "X.npy", X)
    one = KMeans(4, init=init, n_init=1, n_jobs=1).fit(X)
    for source, threads in [(X, 2), (tmp_path / "X.npy", 1), (tmp_path / "X.npy", 2)]:
        again = KMeans(4, init=init, n_init=1, n_jobs=threads).fit(source)
        assert again.cluster_centers_.tobytes() == one.cluster_centers_.tobytes()
        assert (again.labels_ == one.labels_).all()


@pytest.mark.parametrize("far", [1e20, 1e38])
def test_neighbors(far):
    X, _ = with_far_row(far, columns=3)
    graph = shoal.knn_graph(X, 5, method="exact")
    wide = X.astype("float64")
    sq_dists = ((wide[:, None] - wide) ** 2).sum(axis=2)
    np.fill_diagonal(sq_dists, np.inf)
    expected = np.sort(sq_dists, axis=1)[:, :5]
    np.testing.assert_allclose(np.sort(graph.data.reshape(301, 5), axis=1), expected, rtol=1e-6)


def test_a_coreset():
    X, _ = with_far_row(1e30)
    coreset = shoal.lightweight_coreset(X, 200, random_state=0)
    assert np.isfinite(coreset.weights).all()
    assert X.max() in coreset.points


def test_a_mixture_raises_if_float32_cannot_separate_its_means():
    X, labels = with_far_row(1e30)
    with pytest.raises(ValueError, match=r"X has outliers so far away .* float32: pass float64"):
        TruncatedGaussianMixture(4, init=seeds(X, labels), random_state=0).fit(X)
    X, labels = with_far_row(1e6)
    model = TruncatedGaussianMixture(4, init=seeds(X, labels), random_state=0).fit(X)
    assert model.predict(X).tolist() == labels.tolist()
