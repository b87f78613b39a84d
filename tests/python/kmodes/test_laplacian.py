"""Laplacian K-modes: compared with a reference, and properties of the results."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import shoal
from laplacian_parts import DIGITS, labeled_blobs
from reference import normalized
from shoal import LaplacianKModes
from shoal.kmodes import STARTS
from sklearn.exceptions import ConvergenceWarning
from slk_reference import affinity, energy, kernel, mean_shift, rises, slk, softmax


def seeds_of(X, k, seed=0):
    return X[np.random.default_rng(seed).choice(len(X), k, replace=False)]


@pytest.mark.parametrize(
    ("n", "weight", "variant", "seed"),
    [
        (1797, 1.0, "byproduct", 0),
        (700, 0.0, "byproduct", 0),
        (700, 2.0, "byproduct", 1),
        (700, 4.0, "byproduct", 0),
        (500, 2.0, "mean-shift", 0),
    ],
)
def test_digits_label_for_label(n, weight, variant, seed):
    X = normalized(DIGITS.data[:n])
    seeds = seeds_of(X, 10, seed)
    wanted = slk(X, seeds, weight, variant=variant)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LaplacianKModes(10, laplacian_weight=weight, mode_update=variant, init=seeds)
        found = model.fit(DIGITS.data[:n])
    assert (found.labels_ == wanted.labels).all()
    np.testing.assert_allclose(found.modes_, wanted.modes, atol=1e-12)
    assert (found.collapsed_, found.shifted_) == (wanted.collapsed, wanted.shifted)
    if variant == "byproduct":
        assert (found.mode_indices_ == wanted.rows).all()
        np.testing.assert_allclose(found.modes_, X[found.mode_indices_], rtol=0, atol=1e-15)
    if not wanted.collapsed:
        np.testing.assert_allclose(found.responsibilities_, wanted.Z, atol=1e-9)
        np.testing.assert_allclose(found.energies_, wanted.energies, rtol=1e-12)
        for mine, theirs in zip(found.relaxed_energies_, wanted.watched, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-10)


def test_the_affinity_is_symmetric_and_the_bandwidth_follows_the_neighbors():
    X, _ = labeled_blobs()
    model = LaplacianKModes(3, n_neighbors=4, normalize=False, random_state=0).fit(X)
    np.testing.assert_array_equal(model.affinity_.toarray(), affinity(X, 4))
    graph = shoal.knn_graph(X, 4)
    assert model.bandwidth_**2 == pytest.approx(graph.data.mean(), rel=1e-12)
    gaussian = LaplacianKModes(3, n_neighbors=4, normalize=False, affinity="gaussian", random_state=0).fit(X)
    weights = graph.copy()
    weights.data = np.exp(-graph.data / (2 * gaussian.bandwidth_**2))
    np.testing.assert_allclose(
        gaussian.affinity_.toarray(), ((weights + weights.T) / 2).toarray(), rtol=1e-12, atol=1e-15
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("variant", ["byproduct", "mean-shift"])
def test_without_weight_labels_depend_on_modes_only(variant, dtype):
    X, _ = labeled_blobs(seed=3)
    X = X.astype(dtype)
    model = LaplacianKModes(3, laplacian_weight=0.0, mode_update=variant, normalize=False, random_state=1)
    model.fit(X)
    Z = model.responsibilities_
    assert (Z > 0).all()
    close = 1e-6 if dtype == np.float32 else 1e-14
    np.testing.assert_allclose(Z.sum(axis=1), 1.0, atol=close)
    assert (model.labels_ == Z.argmax(axis=1)).all()
    if variant == "mean-shift":
        A = kernel(X, model.modes_, model.bandwidth_**2)
        np.testing.assert_allclose(Z, softmax(A), atol=10 * close)
        for j, mode in enumerate(model.modes_):
            rows = X[model.labels_ == j].astype(np.float64)
            again = mean_shift(rows, mode.astype(np.float64), model.bandwidth_**2)
            assert np.abs(again - mode).max() < 1e-3 * np.abs(mode).max()


def test_the_relaxed_energy_never_rises_on_random_graphs():
    rng = np.random.default_rng(0)
    risen = 0
    for trial in range(300):
        n, k = int(rng.integers(5, 14)), int(rng.integers(2, 4))
        W = rng.random((n, n)) * (rng.random((n, n)) < 0.4)
        W = (W + W.T) / 2
        weight = float(rng.uniform(0.2, 4))
        lowest = max(0.0, -np.linalg.eigvalsh(W)[0])
        if trial % 2:
            # The condition for convergence holds without a shift.
            weight = min(weight, 1.99 / lowest) if lowest > 0 else weight
            shift = 0.0
        else:
            shift = max(0.0, lowest - 2 / weight)
        X = rng.normal(size=(n, 3))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = LaplacianKModes(
                k,
                laplacian_weight=weight,
                affinity="precomputed",
                diagonal_shift=shift,
                bandwidth=1.0,
                normalize=False,
                init=X[:k],
            ).fit(sp.csr_matrix(W), features=X)
        assert len(model.relaxed_energies_) >= 1
        risen += sum(rises(values) for values in model.relaxed_energies_)
    assert risen == 0


def test_the_shift_ends_endless_label_swaps():
    # Two mutual neighbors would swap labels forever.
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 9.0], [1.0, 9.0]])
    W = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]])
    given = {"laplacian_weight": 30.0, "affinity": "precomputed", "bandwidth": 1.0, "normalize": False}
    paper = LaplacianKModes(2, diagonal_shift=0, init=X[[0, 1]], max_iter=1, **given)
    plain = paper.fit(sp.csr_matrix(W), features=X)
    assert len(plain.relaxed_energies_[0]) == 1001
    assert rises(plain.relaxed_energies_[0])
    safe = LaplacianKModes(2, init=X[[0, 1]], **given).fit(sp.csr_matrix(W), features=X)
    assert safe.shifted_
    assert not any(rises(values) for values in safe.relaxed_energies_)


def test_the_energy_is_that_of_labels_and_modes():
    X, _ = labeled_blobs(seed=5)
    W = affinity(X, 5)
    for variant in ("byproduct", "mean-shift"):
        given = {"laplacian_weight": 1.0, "normalize": False, "random_state": 2}
        model = LaplacianKModes(3, mode_update=variant, **given).fit(X)
        A = kernel(X, model.modes_, model.bandwidth_**2)
        one_hot = np.eye(3)[model.labels_]
        by_identity = -(one_hot * A).sum() + (W.sum() - (one_hot * (W @ one_hot)).sum())
        assert model.energy_ == pytest.approx(energy(model.labels_, A, W, 1.0), rel=1e-10)
        assert model.energy_ == pytest.approx(by_identity, rel=1e-10)
        assert (model.history_["objective"] == model.energies_).all()


def test_two_components_are_found():
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.normal(size=(60, 4)), rng.normal(size=(90, 4)) + 50])
    for weight in (0.3, 1.0, 2.0):
        model = LaplacianKModes(2, laplacian_weight=weight, normalize=False, init=X[[3, 70]]).fit(X)
        assert (model.labels_ == (np.arange(150) >= 60)).all()


def test_the_order_of_rows_and_modes_does_not_matter():
    X, _ = labeled_blobs(n=150, seed=7)
    order = np.random.default_rng(0).permutation(150)
    seeds = X[[0, 1, 2]]
    one = LaplacianKModes(3, init=seeds, normalize=False).fit(X)
    two = LaplacianKModes(3, init=seeds[[2, 0, 1]], normalize=False).fit(X[order])
    assert (one.labels_[order] == np.array([2, 0, 1])[two.labels_]).all()
    assert (order[two.mode_indices_] == one.mode_indices_[[2, 0, 1]]).all()


def test_threads_and_sources_do_not_change_results(tmp_path):
    X = (DIGITS.data[:700] * 3).astype(np.uint8)
    np.save(tmp_path / "rows.npy", X)
    first = LaplacianKModes(6, random_state=0, n_jobs=1).fit(X)
    for rows, jobs in (
        (X, 2),
        (np.load(tmp_path / "rows.npy", mmap_mode="r"), 3),
        (tmp_path / "rows.npy", 2),
        (np.asfortranarray(X), 1),
    ):
        other = LaplacianKModes(6, random_state=0, n_jobs=jobs).fit(rows)
        assert (other.labels_ == first.labels_).all()
        assert (other.responsibilities_ == first.responsibilities_).all()
        assert (other.energies_ == first.energies_).all()
    steps = list(LaplacianKModes(6, random_state=0).iter_fit(X))
    assert [step.objective for step in steps] == first.energies_.tolist()
    assert first.labels_.dtype == np.int32
    assert first.responsibilities_.dtype == np.float32


@pytest.mark.filterwarnings("ignore:.* rows? of X (is|are) all zeros:UserWarning")
def test_sparse_rows_equal_dense_rows_up_to_rounding():
    X = sp.random(400, 60, density=0.1, format="csr", random_state=0)
    sparse = LaplacianKModes(4, init=X[:4].toarray(), laplacian_weight=0.2).fit(X)
    dense = LaplacianKModes(4, init=X[:4].toarray(), laplacian_weight=0.2).fit(X.toarray())
    assert (sparse.labels_ == dense.labels_).all()
    np.testing.assert_allclose(sparse.energies_, dense.energies_, rtol=1e-9)
    assert (sparse.predict(X[:50]) == dense.predict(X[:50].toarray())).all()


def test_threads_do_not_change_results_on_many_tiles():
    X, _ = labeled_blobs(n=5000, k=5, seed=11, apart=1.0)
    for variant in ("byproduct", "mean-shift"):
        given = {"mode_update": variant, "laplacian_weight": 0.5, "normalize": False, "random_state": 0}
        one, three = (LaplacianKModes(5, n_jobs=jobs, **given).fit(X) for jobs in (1, 3))
        for name in ("labels_", "responsibilities_", "modes_", "energies_"):
            assert (getattr(one, name) == getattr(three, name)).all(), name
        assert [e.tolist() for e in one.relaxed_energies_] == [e.tolist() for e in three.relaxed_energies_]
        assert (one.responsibilities(X[:3000]) == three.responsibilities(X[:3000])).all()


def test_without_weight_labels_are_those_of_the_nearest_modes():
    # Neighbors of rows between two clusters would change the labels.
    X, _ = labeled_blobs(n=400, seed=13, apart=1.0)
    model = LaplacianKModes(3, laplacian_weight=0.0, normalize=False, random_state=0).fit(X)
    assert (shoal.nearest(X, model.modes_)[0] == model.labels_).all()


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_truncated_responsibilities_give_the_same_labels(weight, tmp_path):
    X = DIGITS.data
    given = {"laplacian_weight": weight, "init": seeds_of(X, 10, 0)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        whole = LaplacianKModes(10, **given).fit(X)
        # Three times the memory of 5 responsibilities with their clusters, and the sum of the others.
        room = 3 * len(X) * (5 * (8 + 4) + 8)
        some = LaplacianKModes(10, memory=room, **given).fit(X)
        other = LaplacianKModes(10, memory=room, n_jobs=1, **given).fit(X)
    assert not whole.collapsed_
    Z = some.responsibilities_
    assert sp.issparse(Z)
    assert (np.diff(Z.indptr) == 5).all()
    assert Z.has_sorted_indices
    assert (other.responsibilities_ != Z).nnz == 0
    assert (some.labels_ == Z.toarray().argmax(axis=1)).all()
    assert (some.labels_ == whole.labels_).mean() > 0.99
    assert some.energy_ == pytest.approx(whole.energy_, rel=5e-3)
    rest = (1 - Z.sum(axis=1).A1) / 5
    assert (rest > 0).all()
    assert (rest <= Z.data.reshape(-1, 5).min(axis=1) + 1e-15).all()
    # New rows also use the remainder, which is spread over the other clusters.
    dense = Z.toarray()
    dense[dense == 0] = np.repeat(rest, 5)
    near = shoal.knn_graph(normalized(np.concatenate([X, X[:1] + 0.5])), 5).indices[-5:]
    logits = kernel(normalized(X[:1] + 0.5), some.modes_, some.bandwidth_**2) + weight * dense[near].sum(
        axis=0
    )
    np.testing.assert_allclose(some.responsibilities(X[:1] + 0.5), softmax(logits), atol=1e-12)
    some.save(tmp_path / "some.safetensors")
    again = shoal.load(tmp_path / "some.safetensors")
    assert (again.responsibilities_ != Z).nnz == 0
    assert (again.predict(X[:100]) == some.predict(X[:100])).all()
    least = LaplacianKModes(10, memory=0, max_iter=1, **given).fit(X)
    assert (np.diff(least.responsibilities_.indptr) == 2).all()
    for bad in ("much", -1):
        with pytest.raises(ValueError, match="memory"):
            LaplacianKModes(10, memory=bad).fit(X)


@pytest.mark.parametrize("variant", ["byproduct", "mean-shift"])
def test_results_are_consistent_after_a_collapse_in_the_first_iteration(variant):
    X, _ = labeled_blobs(n=120, k=2, seed=2, apart=0.3)
    model = LaplacianKModes(
        6,
        init="k-means++",
        laplacian_weight=40.0,
        mode_update=variant,
        normalize=False,
        random_state=1,
        diagonal_shift=0,
    )
    with pytest.warns(ConvergenceWarning, match="last row"):
        model.fit(X)
    assert (model.collapsed_, model.n_iter_) == (True, 1)
    assert (model.labels_ == model.responsibilities_.argmax(axis=1)).all()
    A = kernel(X, model.modes_, model.bandwidth_**2)
    np.testing.assert_allclose(model.responsibilities_, softmax(A), atol=1e-12)
    assert model.energy_ == pytest.approx(energy(model.labels_, A, affinity(X, 5), 40.0), rel=1e-10)


@pytest.mark.parametrize("init", STARTS)
def test_every_initialization(init):
    X, truth = labeled_blobs(n=300, seed=9, apart=6.0)
    model = LaplacianKModes(3, laplacian_weight=0.3, init=init, normalize=False, random_state=4).fit(X)
    assert len(np.unique(model.labels_)) == 3
    assert shoal.metrics.clustering_accuracy(truth, model.labels_) > 0.6


def test_random_modes_may_coincide():
    X = np.repeat(np.random.default_rng(0).normal(size=(4, 3)), 30, axis=0)
    for seed in range(5):
        model = LaplacianKModes(
            4, init="random", laplacian_weight=0.0, normalize=False, bandwidth=1.0, random_state=seed
        ).fit(X)
        assert sorted(np.bincount(model.labels_)) == [30, 30, 30, 30]


def test_a_collapse_is_reported_and_undone_or_avoided():
    X, _ = labeled_blobs(n=120, k=2, seed=2, apart=0.3)
    given = {"init": "k-means++", "random_state": 0, "normalize": False, "diagonal_shift": 0}
    given["laplacian_weight"] = 40.0
    with pytest.warns(ConvergenceWarning, match="last row"):
        restored = LaplacianKModes(6, **given).fit(X)
    assert restored.collapsed_
    assert restored.stop_reason_ == "collapsed"
    assert len(np.unique(restored.labels_)) == 6
    assert restored.responsibilities_.shape == (120, 6)
    with pytest.warns(ConvergenceWarning, match="reduced"):
        reduced = LaplacianKModes(6, on_collapse="reduce", **given).fit(X)
    assert reduced.collapsed_
    assert reduced.laplacian_weight_ < 40.0
    assert len(np.unique(reduced.labels_)) == 6


def test_labels_of_new_rows_depend_on_modes_and_neighbors():
    X, truth = labeled_blobs(n=300, seed=4)
    given = {"laplacian_weight": 1.0, "n_neighbors": 4, "normalize": False, "random_state": 0}
    model = LaplacianKModes(3, **given).fit(X[:200])
    new = X[200:]
    d = ((new[:, None, :] - X[None, :200, :]) ** 2).sum(axis=2)
    near = d.argsort(axis=1, kind="stable")[:, :4]
    logits = kernel(new, model.modes_, model.bandwidth_**2) + model.responsibilities_[near].sum(axis=1)
    np.testing.assert_allclose(model.responsibilities(new), softmax(logits), atol=1e-12)
    assert (model.predict(new) == softmax(logits).argmax(axis=1)).all()
    assert shoal.metrics.clustering_accuracy(truth[200:], model.predict(new)) > 0.9
    alone = np.empty(100, dtype=np.int32)
    assert (model.predict(new, out=alone) == alone).all()
    assert (model.predict(lambda: iter([new[:30], new[30:]])) == alone).all()


def test_the_pull_on_new_rows_follows_the_affinity():
    X, _ = labeled_blobs(n=300, seed=4, apart=1.0)
    new, old = X[200:], X[:200]
    d = ((new[:, None, :] - old[None, :, :]) ** 2).sum(axis=2)
    near = d.argsort(axis=1, kind="stable")[:, :4]
    given = {"n_neighbors": 4, "normalize": False, "laplacian_weight": 0.7, "init": old[:3]}
    gaussian = LaplacianKModes(3, affinity="gaussian", **given).fit(old)
    weights = np.exp(-np.take_along_axis(d, near, axis=1) / (2 * gaussian.bandwidth_**2))
    graph = shoal.knn_graph(old, 6)
    graph.data[:] = 0.3
    precomputed = LaplacianKModes(3, affinity="precomputed", **given).fit(graph, features=old)
    # Six neighbors of weight 0.3 sum to 1.8 per row; each of four neighbors gives a quarter.
    for model, pull in ((gaussian, weights), (precomputed, np.full(near.shape, 1.8 / 4))):
        others = (pull[:, :, None] * model.responsibilities_[near]).sum(axis=1)
        logits = kernel(new, model.modes_, model.bandwidth_**2) + 0.7 * others
        np.testing.assert_allclose(model.responsibilities(new), softmax(logits), atol=1e-12)
