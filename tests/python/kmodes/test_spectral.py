"""Laplacian K-modes from spectral clustering, and the default weight."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import shoal
from laplacian_parts import DIGITS, labeled_blobs
from reference import normalized
from shoal import LaplacianKModes
from shoal._kmodes.spectral import embed, spectral_labels
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import kneighbors_graph
from slk_reference import kernel, rises, softmax


def nmi(truth, labels):
    return shoal.metrics.normalized_mutual_info_score(truth, labels)


@pytest.mark.parametrize("k", [2, 3, 20, 30, 50])
def test_the_default_weight_grows_with_the_clusters(k):
    # With a weight of 1 and many clusters, responsibilities stay near 1 / k and labels equal those of weight
    # 0.
    X = DIGITS.data
    found = {}
    for init, weight in (("spectral", "auto"), ("spectral", 0.0), ("spectral", 1.0), ("k-means++", "auto")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = LaplacianKModes(k, laplacian_weight=weight, init=init, random_state=0)
            found[init, weight] = model.fit(X)
    transition = 2 * (k - 1) / (k - 2) * np.log(k - 1) if k > 2 else 2.0
    # The mean row sum is the number of neighbors.
    seeded, model = found["k-means++", "auto"], found["spectral", "auto"]
    assert seeded.laplacian_weight_ == pytest.approx(max(transition, k / 2) / 5, rel=1e-12)
    assert model.laplacian_weight_ == pytest.approx(2 * transition / 5, rel=1e-12)
    assert not model.collapsed_
    assert model.get_params()["laplacian_weight"] == "auto"
    pairs = model.affinity_.tocoo()

    def cut(labels):
        return pairs.data[labels[pairs.row] != labels[pairs.col]].sum()

    if k >= 20:
        without, one = (found["spectral", weight].labels_ for weight in (0.0, 1.0))
        assert cut(model.labels_) < 0.6 * cut(without)
        assert cut(model.labels_) < 0.7 * cut(one)


def test_the_default_weight_follows_the_affinity():
    X, _ = labeled_blobs(n=200, seed=3, apart=1.0)
    graph = kneighbors_graph(X, 5, mode="connectivity")
    given = {"affinity": "precomputed", "normalize": False, "bandwidth": 1.5, "random_state": 0}
    one = LaplacianKModes(3, **given).fit(graph, features=X)
    twice = LaplacianKModes(3, **given).fit(2 * graph, features=X)
    assert twice.laplacian_weight_ == pytest.approx(one.laplacian_weight_ / 2, rel=1e-12)
    assert (twice.labels_ == one.labels_).all()
    apart = LaplacianKModes(3, init=X[:3], **given).fit(sp.csr_matrix((200, 200)), features=X)
    assert apart.laplacian_weight_ == 0.0


def test_the_default_weight_beats_weight_1_and_k_means_on_digits():
    X, y = normalized(DIGITS.data), DIGITS.target
    model = LaplacianKModes(10, random_state=0).fit(X)
    means = shoal.KMeans(10, random_state=0).fit(X)
    seeded = LaplacianKModes(10, init="k-means++", random_state=0).fit(X)
    assert (model.init_, seeded.init_) == ("spectral", "k-means++")
    assert nmi(y, model.labels_) > 0.89
    assert nmi(y, seeded.labels_) > nmi(y, means.labels_) + 0.05


def test_a_spectral_start_is_spectral_clustering_of_the_graph():
    X = DIGITS.data[:600]
    model = LaplacianKModes(8, random_state=0, max_iter=1).fit(X)
    labels = spectral_labels(model.affinity_, 8, seed=0, n_jobs=1)
    assert model.init_ == "spectral"
    assert (labels >= 0).all()
    # The affinity is strong enough to keep the initial labels.
    assert (labels == model.labels_).mean() > 0.9
    for loop in LaplacianKModes(8, random_state=0, diagonal_shift="auto").fit(X).relaxed_energies_:
        assert not rises(loop)


def test_each_iteration_continues_from_the_previous_one():
    X = normalized(DIGITS.data[:500])
    weight = 1.5
    one, two = (
        LaplacianKModes(8, random_state=0, laplacian_weight=weight, max_iter=most, diagonal_shift=0)
        for most in (1, 2)
    )
    one.fit(X)
    two.fit(X)
    if two.n_iter_ == 1:
        pytest.fail("the run is too short to show anything")
    A = kernel(X, one.modes_, one.bandwidth_**2)
    W = one.affinity_.toarray()
    Z = softmax(A + weight * W @ one.responsibilities_)
    watched = two.relaxed_energies_[1][0]
    value = (Z * np.log(Z)).sum() - (Z * A).sum() - weight / 2 * (Z * (W @ Z)).sum()
    assert watched == pytest.approx(value, rel=1e-10)


def test_spectral_labels_of_disconnected_graphs():
    def ring(n):
        one = np.arange(n)
        W = sp.csr_matrix((np.ones(n), (one, (one + 1) % n)), shape=(n, n))
        return W + W.T

    # As many components as clusters, more, and fewer; small components do not count.
    pieces = [100, 90, 80, 3]
    W = sp.block_diag([ring(n) for n in pieces], format="csr")
    truth = np.repeat(np.arange(4), pieces)
    for k, large in ((3, 3), (2, 2)):
        labels = spectral_labels(W, k, seed=0, n_jobs=1)
        assert (labels[truth < large] == truth[truth < large]).all()
        assert (labels[truth >= large] == -1).all()
    labels = spectral_labels(W, 5, seed=0, n_jobs=1)
    assert sorted(np.unique(labels)) == [-1, 0, 1, 2, 3, 4]
    assert (labels[truth == 3] == -1).all()
    for one in range(5):
        assert len(np.unique(truth[labels == one])) == 1
    # Large enough for the iterative solver. Each of the eight components has an eigenvalue of 1.
    W = sp.block_diag([ring(100)] * 8, format="csr")
    vectors = embed(W.astype(float), 20)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-12)
    labels = spectral_labels(W, 20, seed=0, n_jobs=1)
    for one in range(20):
        assert len(np.unique(np.flatnonzero(labels == one) // 100)) == 1
    # A graph of isolated pairs.
    assert spectral_labels(sp.block_diag([np.ones((2, 2))] * 200, format="csr"), 3, seed=0, n_jobs=1) is None
    assert (spectral_labels(W, 1, seed=0, n_jobs=1) == 0).all()


def test_eigenvectors_equal_those_of_a_dense_solver():
    X, _ = labeled_blobs(n=700, k=5, seed=4, apart=1.0)
    graph = kneighbors_graph(X, 5, mode="connectivity")
    W = sp.csr_matrix((graph + graph.T) / 2)
    found = embed(W, 5)
    scale = 1 / np.sqrt(W.sum(axis=1).A1)
    vectors = np.linalg.eigh(scale[:, None] * W.toarray() * scale)[1][:, -5:]
    wanted = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    # Equal up to signs and rotations.
    np.testing.assert_allclose(found @ found.T, wanted @ wanted.T, atol=0.02)
    np.testing.assert_array_equal(found, embed(W, 5))


def test_components_of_duplicates_start_from_seeds():
    X = np.repeat(np.random.default_rng(0).normal(size=(60, 4)), 8, axis=0)
    X += np.random.default_rng(1).normal(size=X.shape) * 1e-3
    with pytest.warns(RuntimeWarning, match="much smaller than a cluster"):
        model = LaplacianKModes(3, n_neighbors=5, bandwidth=1.0, random_state=0).fit(X)
    assert model.init_ == "k-means++"
    assert len(np.unique(model.labels_)) == 3


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("n", "k"), [(3, 1), (3, 2), (3, 3), (12, 11), (12, 12), (30, 20), (60, 2)])
@pytest.mark.parametrize("variant", ["byproduct", "mean-shift"])
def test_a_spectral_start_with_few_rows(n, k, variant):
    X, _ = labeled_blobs(n=n, seed=n)
    given = {"n_neighbors": min(5, n - 1), "mode_update": variant, "normalize": False, "random_state": 0}
    model = LaplacianKModes(k, **given).fit(X)
    assert model.init_ == "spectral"
    assert len(np.unique(model.labels_)) == k
    assert (np.isfinite(model.modes_)).all()
    # Duplicates, with at most as many distinct rows as clusters.
    twice = np.concatenate([X, X])
    assert len(np.unique(LaplacianKModes(k, **given).fit(twice).modes_, axis=0)) == k


@pytest.mark.parametrize("variant", ["byproduct", "mean-shift"])
def test_a_collapse_restores_the_initial_labels(variant):
    X, _ = labeled_blobs(n=120, k=2, seed=2, apart=0.3)
    given = {"mode_update": variant, "normalize": False, "random_state": 1}
    for weight in (0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = LaplacianKModes(10, laplacian_weight=weight, **given).fit(X)
        if model.collapsed_ and model.n_iter_ == 1:
            break
    else:
        pytest.fail("no weight made a cluster vanish")
    labels = spectral_labels(model.affinity_, 10, seed=1, n_jobs=1)
    assert (model.labels_ == labels).all()
    assert (model.responsibilities_ == np.eye(10)[labels]).all()
    assert model.stop_reason_ == "collapsed"
