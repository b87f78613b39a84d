"""Laplacian K-modes: compared with a slow reference, plus starts, checkpoints and errors."""

import json
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import shoal
from reference import normalized
from shoal import LaplacianKModes
from shoal._kmodes.spectral import embed, spectral_labels
from shoal.callbacks import Checkpoint, EarlyStopping, ValidationCurve
from shoal.cli import main
from shoal.kmodes import STARTS
from shoal.kmodes_path import plot_path
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import kneighbors_graph
from sklearn.utils.estimator_checks import parametrize_with_checks
from slk_reference import affinity, energy, inner, kernel, mean_shift, rises, slk, softmax

DIGITS = load_digits()


def labeled_blobs(n=160, d=6, k=3, seed=0, apart=3.0):
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % k
    centers = rng.normal(size=(k, d)) * apart
    return centers[truth] + rng.normal(size=(n, d)), truth


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


@pytest.mark.filterwarnings("ignore:.* rows? of X (is|are) all zeros:UserWarning")
@pytest.mark.parametrize("variant", ["byproduct", "mean-shift"])
@pytest.mark.parametrize("sparse", [False, True])
def test_saved_models_are_loaded(tmp_path, variant, sparse):
    X, _ = labeled_blobs()
    X = sp.csr_matrix(np.maximum(X, 0)) if sparse else X
    model = LaplacianKModes(3, mode_update=variant, random_state=0).fit(X)
    model.save(tmp_path / "model.safetensors")
    again = shoal.load(tmp_path / "model.safetensors")
    for other in (again, pickle.loads(pickle.dumps(model))):
        assert (other.predict(X) == model.predict(X)).all()
        assert (other.labels_ == model.labels_).all()
        assert (other.modes_ == model.modes_).all()
        assert (other.affinity_ != model.affinity_).nnz == 0
        assert other.energy_ == model.energy_
        assert other.stop_reason_ == model.stop_reason_
        assert [e.tolist() for e in other.relaxed_energies_] == [e.tolist() for e in model.relaxed_energies_]
        assert other.get_params() == model.get_params()


def test_a_checkpoint_resumes(tmp_path):
    X = DIGITS.data[:500]
    given = {"n_clusters": 8, "init": "k-means++", "laplacian_weight": 0.5, "random_state": 3}
    given["mode_update"] = "mean-shift"
    whole = LaplacianKModes(**given).fit(X)
    assert whole.n_iter_ > 2
    path = tmp_path / "fit.safetensors"
    keep = shoal.callbacks.Checkpoint(path, every_steps=1)
    LaplacianKModes(**given, callbacks=[keep, lambda model, step: step.iteration == 2]).fit(X)
    again = shoal.resume(path, X)
    assert (again.labels_ == whole.labels_).all()
    assert (again.modes_ == whole.modes_).all()
    assert (again.responsibilities_ == whole.responsibilities_).all()
    assert (again.energies_ == whole.energies_).all()
    assert again.n_iter_ == whole.n_iter_
    with pytest.raises(ValueError, match="does not match the checkpoint"):
        shoal.resume(path, X[::-1].copy())


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("", {"laplacian_weight": 1.0}),
        ("", {"laplacian_weight": 4.0, "random_state": 0}),
        ("shifted_", {"init": "k-means++", "laplacian_weight": 4.0, "mode_update": "mean-shift"}),
        ("", {"init": "k-means++", "laplacian_weight": 1.0, "memory": 60_000}),
        ("", {"laplacian_weight": 1.0, "affinity": "precomputed"}),
        ("", {"laplacian_weight": 1.0, "memory": 60_000}),
        (
            "collapsed_",
            {
                "init": "k-means++",
                "laplacian_weight": 4.0,
                "mode_update": "mean-shift",
                "on_collapse": "reduce",
            },
        ),
    ],
)
def test_checkpoints_of_all_options_resume(tmp_path, kind, given):
    X, path, stopped = DIGITS.data[:500], tmp_path / "fit.safetensors", 1
    rows, more = X, {}
    if kind == "collapsed_":
        rows = X = labeled_blobs(n=120, k=2, seed=2, apart=0.3)[0]
        given = {"n_clusters": 6, "normalize": False, "random_state": 0, **given}
    if "affinity" in given:
        rows, more = kneighbors_graph(normalized(X), 5, mode="connectivity"), {"features": X}
    given = {"n_clusters": 8, "random_state": 3, **given}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        whole = LaplacianKModes(**given).fit(rows, **more)
        callbacks = [Checkpoint(path, every_steps=1), lambda model, step: step.iteration == stopped]
        LaplacianKModes(**given, callbacks=callbacks).fit(rows, **more)
        again = shoal.resume(path, X)
    assert whole.n_iter_ > stopped
    assert not kind or getattr(whole, kind)
    for name in ("labels_", "modes_", "energies_"):
        assert (getattr(again, name) == getattr(whole, name)).all(), name
    if hasattr(whole, "mode_indices_"):
        assert (again.mode_indices_ == whole.mode_indices_).all()
    assert np.abs(again.responsibilities_ - whole.responsibilities_).max() == 0
    for name in ("n_iter_", "collapsed_", "shifted_", "laplacian_weight_", "bandwidth_", "stop_reason_"):
        assert getattr(again, name) == getattr(whole, name), name


def test_leaving_the_loop_keeps_a_fitted_estimator():
    X = DIGITS.data[:500]
    given = {"n_clusters": 8, "laplacian_weight": 0.3, "mode_update": "mean-shift", "random_state": 1}
    model = LaplacianKModes(**given)
    for _ in model.iter_fit(X):
        break
    one = LaplacianKModes(**given, max_iter=1).fit(X)
    assert model.n_iter_ == 1
    assert (model.labels_ == one.labels_).all()
    assert (model.predict(X) == one.predict(X)).all()
    assert model.stop_reason_ is None


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
    nobody = LaplacianKModes(3, init=X[:3], **given).fit(sp.csr_matrix((200, 200)), features=X)
    assert nobody.laplacian_weight_ == 0.0


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


def test_spectral_starts_on_a_path_and_the_command_line(tmp_path, capsys):
    X, _ = labeled_blobs(n=200, k=4, seed=3, apart=1.0)
    table = shoal.laplacian_path(X, 4, n_resamples=1, random_state=0, normalize=False)
    model = LaplacianKModes(4, random_state=0, normalize=False).fit(X)
    weights = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0]) * model.laplacian_weight_
    np.testing.assert_allclose(table["weight"], weights, rtol=1e-12)
    assert table["energy"][4] == pytest.approx(model.energy_, rel=1e-12)
    np.save(tmp_path / "rows.npy", X)
    fit = [
        "fit",
        str(tmp_path / "rows.npy"),
        "-k",
        "4",
        "--method",
        "kmodes",
        "--init",
        "spectral",
        "--quiet",
    ]
    assert main([*fit, "--set", "normalize=false", "--set", "laplacian_weight=auto", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["init"], told["laplacian_weight"]) == ("spectral", model.laplacian_weight_)
    assert told["energy"] == pytest.approx(model.energy_, rel=1e-12)


def test_invalid_starts_and_weights():
    X, _ = labeled_blobs(n=30)
    with pytest.raises(ValueError, match=r"laplacian_weight must be 'auto' or.*init must be one of spectral"):
        LaplacianKModes(3, laplacian_weight="much", init="spectrum").fit(X)
    with pytest.raises(ValueError, match="init must be one of auto"):
        shoal.KMeans(3, init="spectral").fit(X)


def test_score_raises_with_an_explanation():
    X, _ = labeled_blobs()
    for callback in (EarlyStopping(X), ValidationCurve(X)):
        with pytest.raises(TypeError, match="LaplacianKModes does not have"):
            LaplacianKModes(3, callbacks=[callback]).fit(X)


def test_precomputed_graphs():
    X, _ = labeled_blobs()
    graph = kneighbors_graph(X, 5, mode="connectivity")
    given = {"init": X[:3], "normalize": False, "bandwidth": 1.5}
    mine = LaplacianKModes(3, **given).fit(X)
    theirs = LaplacianKModes(3, affinity="precomputed", **given).fit(graph, features=X)
    assert (mine.labels_ == theirs.labels_).all()
    assert (mine.affinity_ != theirs.affinity_).nnz == 0
    of_pairs = LaplacianKModes(3, affinity="precomputed", init=X[:3], normalize=False)
    of_pairs.fit(graph, features=X)
    i, j = sp.triu((graph + graph.T) > 0, k=1).nonzero()
    assert of_pairs.bandwidth_**2 == pytest.approx(((X[i] - X[j]) ** 2).sum(axis=1).mean(), rel=1e-12)


def test_sorted_rows():
    X, _ = labeled_blobs()
    model = LaplacianKModes(3, random_state=0).fit(X)
    streamed = LaplacianKModes(3, random_state=0).fit(lambda: iter([X[:17], X[17:]]))
    np.testing.assert_array_equal(streamed.labels_, model.labels_)
    np.testing.assert_array_equal(streamed.predict(X), model.predict(X))
    paths = [
        shoal.laplacian_path(rows, 3, weights=[0.5], n_resamples=1, random_state=0)
        for rows in (X, lambda: iter([X]))
    ]
    np.testing.assert_array_equal(*paths)
    with pytest.raises(ValueError, match="LaplacianKModes reads its rows more than once"):
        LaplacianKModes(3).fit(iter([X]))


def test_a_fit_with_a_precomputed_graph_resumes(tmp_path):
    X, _ = labeled_blobs()
    graph = kneighbors_graph(X, 5, mode="connectivity")
    keep = shoal.callbacks.Checkpoint(tmp_path / "fit.safetensors", every_steps=1, overwrite=True)
    given = {"affinity": "precomputed", "normalize": False, "random_state": 0}
    model = LaplacianKModes(3, callbacks=[keep, lambda model, step: True], **given)
    model.fit(graph, features=X)
    whole = LaplacianKModes(3, **given).fit(graph, features=X)
    again = shoal.resume(tmp_path / "fit.safetensors", graph, features=X)
    np.testing.assert_array_equal(again.labels_, whole.labels_)
    np.testing.assert_array_equal(again.energies_, whole.energies_)
    shoal.KMeans(3, max_iter=2, callbacks=[keep]).fit(X)
    with pytest.raises(TypeError, match="features"):
        shoal.resume(tmp_path / "fit.safetensors", X, features=X)


def test_labels_of_rows_without_neighbors_depend_on_modes():
    X, _ = labeled_blobs(n=40)
    model = LaplacianKModes(2, affinity="precomputed", bandwidth=2.0, normalize=False, init=X[:2])
    model.fit(sp.csr_matrix((40, 40)), features=X)
    Z, _ = inner(kernel(X, X[model.mode_indices_], 4.0), np.zeros((40, 40)), 1.0, np.zeros(40))
    assert (model.labels_ == Z.argmax(axis=1)).all()


def test_errors():
    X, _ = labeled_blobs(n=30)
    with pytest.raises(ValueError, match=r"laplacian_weight.*n_neighbors.*bandwidth.*on_collapse"):
        LaplacianKModes(3, laplacian_weight=-1, n_neighbors=0, bandwidth=-2.0, on_collapse="weep").fit(X)
    with pytest.raises(ValueError, match="n_neighbors=30 must be less than n_samples=30"):
        LaplacianKModes(3, n_neighbors=30).fit(X)
    with pytest.raises(ValueError, match="n_samples=30 should be >= n_clusters=31"):
        LaplacianKModes(31).fit(X)
    with pytest.raises(ValueError, match="coincide"):
        LaplacianKModes(2, normalize=False).fit(np.ones((20, 3)))
    with pytest.raises(ValueError, match="distinct rows"):
        LaplacianKModes(4, normalize=False, n_neighbors=12).fit(np.repeat(X[:3], 10, axis=0))
    parallel = np.outer(np.arange(1.0, 21.0), [1.0, 0.7, 0.3])
    for rows in (np.ones((20, 3)), parallel, parallel.astype(np.float32)):
        with pytest.raises(ValueError, match="coincide"):
            LaplacianKModes(2, normalize=True).fit(rows)
    precomputed = LaplacianKModes(3, affinity="precomputed", bandwidth=1.0)
    for bad in (1e-170, 1e200):
        with pytest.raises(ValueError, match=f"bandwidth must be.*got {bad:g}"):
            LaplacianKModes(3, affinity="precomputed", bandwidth=bad).fit(sp.eye(30).tocsr(), features=X)
    for scale in (1e-160, 1e160):
        with pytest.raises(ValueError, match=r"too small or too large|overflow"):
            LaplacianKModes(3, normalize=False).fit(X * scale)
    huge = sp.csr_matrix((np.full(3, 1.7e308), ([0, 1, 4], [1, 0, 4])), shape=(30, 30))
    with pytest.raises(ValueError, match="overflow"):
        precomputed.fit(huge, features=X)
    with pytest.raises(ValueError, match="overflow"):
        precomputed.fit(sp.eye(30).tocsr() * 1e38, features=X.astype(np.float32))
    with pytest.raises(ValueError, match="square"):
        precomputed.fit(sp.csr_matrix((30, 29)), features=X)
    with pytest.raises(ValueError, match="29"):
        precomputed.fit(sp.csr_matrix((29, 29)), features=X)
    with pytest.raises(ValueError, match="features"):
        precomputed.fit(sp.csr_matrix((30, 30)))
    for bad in (-1.0, np.nan, np.inf):
        W = sp.lil_matrix((30, 30))
        W[4, 7] = bad
        with pytest.raises(ValueError, match="row 4, column 7"):
            precomputed.fit(W.tocsr(), features=X)
    with pytest.raises(ValueError, match="features"):
        LaplacianKModes(3).fit(X, features=X)
    for seed in range(3):
        with pytest.warns(RuntimeWarning, match="Increase bandwidth"):
            LaplacianKModes(3, bandwidth=1e-9, random_state=seed).fit(X)
    with pytest.warns(RuntimeWarning, match="Increase bandwidth"):
        LaplacianKModes(
            2,
            laplacian_weight=0.0,
            bandwidth=1e-9,
            normalize=False,
            mode_update="mean-shift",
            init=X[:2] + 0.1,
        ).fit(X)


def test_a_failed_fit_keeps_the_previous_one():
    X, _ = labeled_blobs(n=60)
    for model in (LaplacianKModes(3, normalize=False, random_state=0), shoal.KMeans(3, random_state=0)):
        labels = model.fit(X).predict(X)
        with pytest.raises(ValueError, match="n_samples=2"):
            model.fit(X[:2, :4])
        assert model.n_features_in_ == 6
        assert (model.predict(X) == labels).all()
    precomputed = LaplacianKModes(3, affinity="precomputed", normalize=False, bandwidth=1.0)
    with pytest.raises(ValueError, match="59"):
        precomputed.fit(sp.eye(60).tocsr(), features=X[:59])
    assert not hasattr(precomputed, "n_features_in_")


def test_command_line(tmp_path, capsys):
    X, _ = labeled_blobs()
    np.save(tmp_path / "rows.npy", X)
    names = [str(tmp_path / name) for name in ("rows.npy", "model.safetensors", "labels.npy", "new.npy")]
    fit = ["fit", names[0], "-k", "3", "--method", "kmodes", "-o", names[1], "--labels", names[2], "--quiet"]
    assert main([*fit, "--set", "laplacian_weight=0.5", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["collapsed"], told["laplacian_weight"]) == (False, 0.5)
    model = LaplacianKModes(3, laplacian_weight=0.5, random_state=0).fit(X)
    assert (np.load(names[2]) == model.labels_).all()
    assert main(["predict", names[1], names[0], "-o", names[3], "--quiet"]) == 0
    assert (np.load(names[3]) == model.predict(X)).all()
    assert main(["info", names[1]]) == 0


def test_a_path_over_weights(tmp_path):
    X, _ = labeled_blobs(n=120)
    np.save(tmp_path / "rows.npy", X)
    given = {"weights": [1.0, 0.0, 40.0], "n_resamples": 2, "random_state": 1, "normalize": False}
    table = shoal.laplacian_path(X, 3, **given)
    assert table["weight"].tolist() == [0.0, 1.0, 40.0]
    np.testing.assert_allclose(table["energy"], table["weight"] * table["cut"] - table["kernel"], atol=1e-9)
    assert (table["sizes"].sum(axis=1) == 120).all()
    assert (table["sizes"][:, 0] == table["largest"]).all()
    one = LaplacianKModes(3, random_state=1, normalize=False).fit(X)
    assert table["energy"][1] == pytest.approx(one.energy_, rel=1e-12)
    assert table["stability"][1] > 0.8
    assert (shoal.laplacian_path(tmp_path / "rows.npy", 3, **given) == table).all()
    few = shoal.laplacian_path(X[:11], 2, **{**given, "weights": [0.0]}, n_neighbors=9)
    assert np.isfinite(few["stability"]).all()
    alone = shoal.laplacian_path(X, 3, **{**given, "n_resamples": 0})
    assert np.isnan(alone["stability"]).all()
    plot_path(tmp_path / "path.png", table)
    assert (tmp_path / "path.png").read_bytes().startswith(b"\x89PNG")
    for bad in ({"weights": []}, {"weights": [-1.0]}, {"n_resamples": -1}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            shoal.laplacian_path(X, 3, **bad)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.* rows? of X (is|are) all zeros:UserWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@parametrize_with_checks(
    [LaplacianKModes(n_clusters=3), LaplacianKModes(n_clusters=2, mode_update="mean-shift", n_neighbors=2)]
)
def test_estimator_checks(estimator, check):
    """The checks of scikit-learn assert."""
    check(estimator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_path_computes_spectral_labels_once_per_sample(monkeypatch):
    found, calls = shoal.kmodes_path.spectral_labels, []

    def counted(*given, **more):
        calls.append(given[0].shape[0])
        return found(*given, **more)

    for module in (shoal.kmodes_path, shoal.kmodes):
        monkeypatch.setattr(module, "spectral_labels", counted)
    X, _ = labeled_blobs(n=120)
    shoal.laplacian_path(X, 3, weights=[0.0, 1.0], n_resamples=2, random_state=1, normalize=False)
    assert calls == [120, 96, 96]


@pytest.mark.filterwarnings("ignore:.* rows? of X (is|are) all zeros:UserWarning")
def test_sparse_and_dense_rows_are_predicted_by_one_model():
    X = np.random.default_rng(6).normal(size=(120, 5)) * (np.random.default_rng(7).random((120, 5)) < 0.6)
    new = X[:30] + 0.01
    for fitted in (X, sp.csr_matrix(X)):
        model = LaplacianKModes(3, random_state=0).fit(fitted)
        np.testing.assert_array_equal(model.predict(sp.csr_matrix(new)), model.predict(new))
