"""Libraries that take an estimator or an index of scikit-learn's kind work with shoal."""

import numpy as np
import pytest
import shoal
import sklearn.cluster
from scipy.sparse import csr_matrix
from sklearn.base import clone

RNG = np.random.default_rng(7)
PLACES = RNG.normal(scale=10, size=(6, 5))
X = np.concatenate([place + RNG.normal(size=(100, 5)) for place in PLACES])
#: Two of the six groups are the small class, with a tenth of their rows.
Y = np.repeat([0, 0, 0, 0, 1, 1], 100)
KEPT = (Y == 0) | (np.arange(len(Y)) % 10 == 0)
X, Y = X[KEPT], Y[KEPT]

ESTIMATORS = [
    shoal.KMeans,
    shoal.MiniBatchKMeans,
    shoal.NestedMiniBatchKMeans,
    shoal.VarianceReducedKMeans,
    shoal.BackwardEulerKMeans,
    shoal.BreathingKMeans,
    shoal.BalancedKMeans,
]


# ---------------------------------------------------------------- imbalanced-learn


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cls", ESTIMATORS)
def test_imbalanced_learn_takes_centers_as_rows(cls, dtype):
    sampling = pytest.importorskip("imblearn.under_sampling")
    model = cls(random_state=0)
    sampler = sampling.ClusterCentroids(estimator=model, random_state=0)
    rows, classes = sampler.fit_resample(X.astype(dtype), Y)
    assert rows.dtype == dtype
    assert np.bincount(classes).tolist() == [20, 20]
    # The sampler fits a clone with as many clusters as the small class has rows.
    assert sampler.estimator_.n_clusters == 20
    assert not hasattr(model, "cluster_centers_")
    expected = cls(20, random_state=0).fit(X[Y == 0].astype(dtype))
    np.testing.assert_array_equal(rows[classes == 0], expected.cluster_centers_)
    np.testing.assert_array_equal(rows[classes == 1], X[Y == 1].astype(dtype))


def test_imbalanced_learn_takes_the_rows_nearest_to_centers():
    sampling = pytest.importorskip("imblearn.under_sampling")
    model = shoal.MiniBatchKMeans(random_state=0)
    sparse = csr_matrix(np.where(X > 0, X, 0))
    for rows, given in [(X, {"voting": "hard"}), (sparse, {"voting": "hard"}), (sparse, {})]:
        sampler = sampling.ClusterCentroids(estimator=model, **given)
        found, classes = sampler.fit_resample(rows, Y)
        assert np.bincount(classes).tolist() == [20, 20]
        dense = rows.toarray() if rows is sparse else rows
        found = found.toarray() if rows is sparse else found
        nearest, _ = shoal.nearest(sampler.estimator_.cluster_centers_, dense[Y == 0])
        np.testing.assert_array_equal(found[classes == 0], dense[Y == 0][nearest])


def test_imbalanced_learn_takes_cosine_clusters():
    sampling = pytest.importorskip("imblearn.under_sampling")
    model = shoal.KMeans(metric="cosine", random_state=0)
    rows, classes = sampling.ClusterCentroids(estimator=model).fit_resample(X, Y)
    np.testing.assert_allclose(np.linalg.norm(rows[classes == 0], axis=1), 1)


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_imbalanced_learn_adds_rows_within_clusters(cls):
    sampling = pytest.importorskip("imblearn.over_sampling")
    # With given centers, the clusters are those of scikit-learn, and so are the new rows.
    given = {"n_clusters": 6, "init": PLACES, "max_iter": 20}
    theirs = sklearn.cluster.KMeans(**given, n_init=1)
    (rows, classes), (expected, _) = (
        sampling.KMeansSMOTE(
            kmeans_estimator=model, k_neighbors=3, cluster_balance_threshold=0.1, random_state=0
        ).fit_resample(X, Y)
        for model in (cls(**given, random_state=0), theirs)
    )
    np.testing.assert_array_equal(rows, expected)
    # imbalanced-learn rounds up in each cluster.
    assert np.bincount(classes)[0] == 400
    assert 400 <= np.bincount(classes)[1] <= 401
    # Every new row lies in a group of the small class.
    new = rows[len(X) :]
    assert len(new) >= 380
    assert set(shoal.nearest(new, PLACES)[0]) == {4, 5}


def test_imbalanced_learn_in_a_search():
    sampling = pytest.importorskip("imblearn.under_sampling")
    pipeline = pytest.importorskip("imblearn.pipeline")
    linear = pytest.importorskip("sklearn.linear_model")
    selection = pytest.importorskip("sklearn.model_selection")
    steps = pipeline.make_pipeline(
        sampling.ClusterCentroids(estimator=shoal.MiniBatchKMeans(random_state=0)),
        linear.LogisticRegression(),
    )
    search = selection.GridSearchCV(
        steps, {"clustercentroids__estimator__batch_size": [64, 1024]}, cv=3, error_score="raise"
    ).fit(X, Y)
    assert search.best_score_ > 0.9


# ---------------------------------------------------------------- faiss


@pytest.mark.parametrize(
    ("model", "metric"),
    [
        (shoal.KMeans(40, random_state=0), "euclidean"),
        (shoal.KMeans(40, metric="cosine", random_state=0), "cosine"),
        (shoal.MiniBatchKMeans(40, random_state=0), "euclidean"),
    ],
    ids=["exact", "cosine", "mini-batch"],
)
def test_faiss_searches_the_lists_of_a_model(model, metric):
    faiss = pytest.importorskip("faiss")
    rng = np.random.default_rng(3)
    places = rng.normal(size=(40, 16))
    rows = (places[rng.integers(40, size=8000)] + 0.7 * rng.normal(size=(8000, 16))).astype(np.float32)
    if metric == "cosine":
        # The index compares inner products.
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    queries = rows[::40]
    model = clone(model).fit(rows)
    lists = shoal.convert.to_faiss(model, index="ivf")
    lists.add(rows)
    assert lists.ntotal == len(rows)
    # A list holds the rows of its cluster.
    sizes = [lists.invlists.list_size(j) for j in range(40)]
    assert np.abs(np.subtract(sizes, np.bincount(model.predict(rows), minlength=40))).sum() <= 2
    flat = faiss.IndexFlatIP(16) if metric == "cosine" else faiss.IndexFlatL2(16)
    flat.add(rows)
    _, exact = flat.search(queries, 10)

    def recall(n_probe):
        lists.nprobe = n_probe
        _, found = lists.search(queries, 10)
        return np.mean([len(np.intersect1d(a, b)) for a, b in zip(found, exact, strict=True)]) / 10

    assert recall(40) > 0.999
    assert recall(8) > 0.95
    # Lists of a partition that ignores the rows have a recall of 8 / 40.
    assert 0.5 < recall(1) < recall(8)
