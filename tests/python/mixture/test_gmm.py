"""Truncated Gaussian mixtures: compared with a reference, plus bounds, starts, files and errors."""

import json
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import shoal
from generated import blobs
from gmm_reference import Draws, free_energy, log_joint, truncated
from reference import inertia, sq_dists
from scipy.special import logsumexp
from shoal import KMeans, TruncatedGaussianMixture
from shoal.callbacks import Checkpoint
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import kneighbors_graph

# Many fits here run only a few iterations.
pytestmark = pytest.mark.filterwarnings("ignore:the fit did not converge")

KINDS = ("tied_spherical", "spherical", "diag", "tied", "full", "factor")


def near_of(model):
    """The active components per row of a fit in progress."""
    arrays = model._run.checkpoint()[1]
    near = arrays.get("best.near", arrays.get("current.near"))
    return near.reshape(-1, min(model.n_active, model.n_components)).astype(int)


def variances_of(model):
    """Variances as the reference has them."""
    variances = np.asarray(model.covariances_)
    return variances[None] if model.covariance_type == "tied" else variances


def loadings_of(model):
    """The loadings, or None; a copy, because the model goes on."""
    return None if model.loadings_ is None else model.loadings_.copy()


def joint_of(model, X):
    means = model.means_
    return log_joint(sq_dists(X, means), X, means, variances_of(model), model.weights_, model.loadings_)


def shares_of(X, near, means, variances, priors, loadings):
    """Equation (3)."""
    joint = log_joint(sq_dists(X, means), X, means, variances, priors, loadings)
    inside = np.zeros(joint.shape, dtype=bool)
    np.put_along_axis(inside, near, True, axis=1)
    joint = np.where(inside, joint, -np.inf)
    return np.exp(joint - logsumexp(joint, axis=1, keepdims=True))


def test_random_draws_equal_those_of_the_reference():
    draws = Draws(7, 0, 0, purpose=1)
    assert [draws.bits(), draws.bits()] == [0x02EBB3CDC0C88E61, 0xC1EAD045F80C2A6B]
    assert draws.below(1000) == 774


@pytest.mark.parametrize("start", ["cells", "random"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("n", "d", "k", "active", "size", "exploring", "initial", "weighted"),
    [
        (300, 3, 20, 3, 3, 0, 0, False),
        (250, 5, 17, 2, 4, 1, 2, True),
        (200, 17, 9, 5, 2, 2, 0, False),
        (150, 1, 12, 1, 3, 1, 1, True),
        (120, 2, 6, 6, 3, 1, 0, True),
        (100, 4, 8, 20, 20, 0, 0, False),
        (60, 3, 1, 5, 5, 3, 0, False),
        (90, 2, 30, 4, 1, 2, 0, False),
        # More components than the pivots and the means of two cells.
        (80, 2, 12, 11, 1, 0, 0, False),
    ],
)
def test_iterations_equal_the_reference(n, d, k, active, size, exploring, initial, weighted, kind, start):
    if kind == "factor" and d == 1:
        pytest.skip("a single column has no factors")
    X = blobs(n, d, 12, n + d)
    rng = np.random.default_rng(n)
    weights = rng.choice([0.5, 1.0, 2.0], size=n) if weighted else None
    init = X[rng.permutation(n)[:k]]
    expected = truncated(
        X,
        init,
        active,
        size,
        weights=weights,
        exploring=exploring,
        seed=5,
        start=start,
        initial=initial,
        kind=kind,
        rounds=7,
    )
    if kind in ("spherical", "diag"):
        # The variance of a component with a few rows can reach its floor, which the reference does not have.
        least = [state.variances.min() for state in expected]
        expected = expected[: next((i for i, s2 in enumerate(least) if s2 < 1e-3), len(expected))]
    if kind in ("tied", "full"):
        least = [
            np.linalg.eigvalsh(state.variances).min() if state.variances.ndim else 1 for state in expected
        ]
        expected = expected[: next((i for i, s2 in enumerate(least) if s2 < 1e-3), len(expected))]
    model = TruncatedGaussianMixture(
        k,
        n_active=active,
        n_neighbors=size,
        explore=exploring,
        start=start,
        n_initial_e_steps=initial,
        covariance_type=kind,
        init=init,
        random_state=5,
        tol=0.0,
    )
    seen = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for step, truth in zip(model.iter_fit(X, weights), expected, strict=False):
            assert step.objective == pytest.approx(truth.bound, rel=1e-10, abs=1e-10), step.iteration
            assert step.n_distances == truth.n_distances
            if step.stop_reason:
                break
            np.testing.assert_array_equal(near_of(model), truth.near)
            np.testing.assert_array_equal(model.neighbors_, truth.neighbors)
            np.testing.assert_allclose(model.means_, truth.means, rtol=1e-9, atol=1e-9)
            truth_variances = truth.variances
            if kind in ("tied", "full") and not truth_variances.ndim:
                truth_variances = np.broadcast_to(truth_variances * np.eye(d), variances_of(model).shape)
            np.testing.assert_allclose(variances_of(model), truth_variances, rtol=1e-8, atol=1e-9)
            np.testing.assert_allclose(model.weights_, truth.weights, rtol=1e-9)
            if truth.loadings is not None:
                np.testing.assert_allclose(model.loadings_, truth.loadings, rtol=1e-7, atol=1e-9)
            seen += 1
    # A single component converges at once.
    assert seen >= min(3 if k > 1 else 1, len(expected))


@pytest.mark.filterwarnings("ignore:Number of distinct components")
def test_equal_pivots_count_as_one():
    X = blobs(200, 3, 12, 6)
    # Four of the first five means are equal.
    init = np.concatenate([np.repeat(X[:1], 4, axis=0), X[1:9]])
    expected = truncated(X, init, 2, 3, seed=0, start="cells", rounds=1)[0]
    model = TruncatedGaussianMixture(
        12, n_active=2, n_neighbors=3, explore=0, init=init, tol=0.0, max_iter=1, random_state=0
    )
    step = next(model.iter_fit(X))
    assert step.n_distances == expected.n_distances
    np.testing.assert_array_equal(near_of(model), expected.near)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_no_half_step_lowers_the_bound(kind, seed):
    rng = np.random.default_rng(seed)
    n, d, k = int(rng.integers(40, 250)), int(rng.integers(1, 9)), int(rng.integers(2, 25))
    d = max(d, 2) if kind == "factor" else d
    X = blobs(n, d, k, seed) * rng.choice([1e-3, 1.0, 1e3])
    w = rng.uniform(0.1, 3.0, size=n)
    model = TruncatedGaussianMixture(
        k,
        n_active=int(rng.integers(1, 6)),
        n_neighbors=int(rng.integers(1, 6)),
        covariance_type=kind,
        random_state=seed,
        tol=0.0,
        max_iter=30,
    )
    before, bound = None, -np.inf
    for step in model.iter_fit(X, w):
        # Covariances at their limits have condition numbers up to about 1e12.
        close = (1e-4 if kind == "full" else 1e-9) * max(1.0, abs(step.objective))
        assert step.objective >= bound - close, "an E-step"
        if before is not None and not step.stop_reason:
            q = shares_of(X, near_of(model), *before)
            # The bound computed from responsibilities and entropy equals the bound computed without them.
            assert free_energy(X, w, q, *before) == pytest.approx(step.objective, abs=close)
            after = model.means_, variances_of(model), model.weights_, loadings_of(model)
            bound = free_energy(X, w, q, *after)
            assert bound >= step.objective - close, "an M-step"
        else:
            bound = step.objective
        before = model.means_.copy(), variances_of(model).copy(), model.weights_.copy(), loadings_of(model)
        near = near_of(model)
        assert all(len(set(row)) == len(row) for row in near)
        hoods = model.neighbors_
        assert (hoods[:, 0] == np.arange(k)).all()
        assert all(len(set(row)) == len(row) for row in hoods)
        # The exact log-likelihood of the same parameters is higher.
        assert model.score(X, sample_weight=w) >= bound - close
    close = 1e-4 if kind == "full" else 1e-9
    assert (np.diff(model.lower_bounds_) >= -close * np.abs(model.lower_bounds_[1:])).all()
    assert model.counts_.sum() == pytest.approx(w.sum())


@pytest.mark.parametrize("size", [3, 9])
def test_one_active_component_has_a_closed_form_and_equals_k_means(size):
    X = blobs(500, 4, 9, 1)
    k, d = 9, 4
    init = X[:k]
    model = TruncatedGaussianMixture(
        k, n_active=1, n_neighbors=size, explore=0, init=init, tol=0.0, max_iter=60, random_state=0
    )
    lloyd = KMeans(k, init=init, tol=0.0).fit(X) if size == k else None
    variance = np.nan
    for step in model.iter_fit(X):
        if step.iteration > 1:
            # The bound of hard labels after the M-step, which the next search can only raise.
            closed = -np.log(k) - 0.5 * d * np.log(2 * np.pi * np.e * float(variance))
            assert step.objective >= closed - 1e-12
        variance = model.covariances_
        labels = near_of(model)[:, 0]
        means = np.array([X[labels == j].mean(axis=0) for j in range(k)])
        if not step.stop_reason:
            np.testing.assert_allclose(model.means_, means, rtol=1e-12)
            assert variance == pytest.approx(inertia(X, means, labels) / X.size, rel=1e-12)
        if step.n_changed == 0 and step.iteration > 1:
            assert step.objective == pytest.approx(closed, rel=1e-13)
            break
    if lloyd is not None:
        np.testing.assert_allclose(model.means_, lloyd.cluster_centers_, rtol=1e-12)


def test_all_components_active_equals_textbook_em():
    X = blobs(400, 3, 5, 3, apart=1.5)
    k, (n, d) = 5, X.shape
    means = X[:k].copy()
    d2 = sq_dists(X, means)
    s2 = d2.min(axis=1).mean() / d
    model = TruncatedGaussianMixture(k, n_active=k, init=means, tol=0.0, max_iter=25)
    for step in model.iter_fit(X):
        joint = -np.log(k) - 0.5 * d * np.log(2 * np.pi * s2) - sq_dists(X, means) / (2 * s2)
        likelihood = logsumexp(joint, axis=1)
        assert step.objective == pytest.approx(likelihood.mean(), rel=1e-12)
        assert step.n_distances == n * k
        q = np.exp(joint - likelihood[:, None])
        means = q.T @ X / q.sum(axis=0)[:, None]
        s2 = (q * sq_dists(X, means)).sum() / (n * d)
        np.testing.assert_allclose(model.means_, means, rtol=1e-10)
        assert model.covariances_ == pytest.approx(s2, rel=1e-10)
        # The weighted mean of the means is the mean of all rows.
        np.testing.assert_allclose(model.counts_ @ model.means_ / n, X.mean(axis=0), rtol=1e-11, atol=1e-12)
    assert model.stop_reason_ == "max-iter"
    assert not model.converged_


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_repetitions_and_their_scale_does_not_matter(kind):
    rng = np.random.default_rng(2)
    X = blobs(200, 3, 6, 4)
    weights = rng.integers(0, 4, size=200)
    params = {
        "n_active": 3,
        "n_neighbors": 6,
        "explore": 0,
        "covariance_type": kind,
        "max_iter": 12,
        "tol": 0.0,
    }
    init = X[np.flatnonzero(weights)[:6]]
    fits = []
    for rows, w in [
        (X, weights),
        (np.repeat(X, weights, axis=0), None),
        (X, weights * 1e-7),
        (X, weights * 2.0**80),
    ]:
        fits.append(TruncatedGaussianMixture(6, init=init, **params).fit(rows, sample_weight=w))
    for other in fits[1:]:
        np.testing.assert_allclose(other.means_, fits[0].means_, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(other.covariances_, fits[0].covariances_, rtol=1e-8)
        if kind == "factor":
            np.testing.assert_allclose(other.loadings_, fits[0].loadings_, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(other.weights_, fits[0].weights_, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(other.lower_bounds_, fits[0].lower_bounds_, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_densities_responsibilities_and_labels(kind, dtype):
    X = blobs(600, 6, 10, 5, dtype=dtype)
    model = TruncatedGaussianMixture(10, n_active=3, covariance_type=kind, random_state=1).fit(X)
    close = 1e-4 if dtype == np.float32 else 1e-10
    assert model.means_.dtype == dtype
    joint = joint_of(model, X)
    exact = logsumexp(joint, axis=1)
    np.testing.assert_allclose(model.score_samples(X), exact, rtol=close, atol=close)
    assert model.score(X) == pytest.approx(exact.mean(), rel=close)
    w = np.random.default_rng(0).uniform(size=600)
    assert model.score(X, sample_weight=w) == pytest.approx(np.average(exact, weights=w), rel=close)
    clear = np.diff(np.sort(joint, axis=1)[:, -2:], axis=1)[:, 0] > 100 * close
    labels = model.predict(X)
    assert labels.dtype == np.int32
    assert (labels == joint.argmax(axis=1))[clear].all()
    assert (model.labels_ == labels).all()
    assert model.inertia_ == pytest.approx(inertia(X, model.means_, labels), rel=close)
    proba = model.predict_proba(X)
    assert isinstance(proba, sp.csr_matrix)
    assert proba.shape == (600, 10)
    assert proba.has_canonical_format
    assert np.diff(proba.indptr).max() <= 3
    assert np.diff(proba.indptr).min() >= 1
    top = np.sort(joint, axis=1)[:, -3:]
    expected = np.where(joint >= top[:, :1], np.exp(joint - logsumexp(top, axis=1, keepdims=True)), 0.0)
    np.testing.assert_allclose(proba.toarray(), expected, atol=100 * close)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    free = {"tied_spherical": 61, "spherical": 79, "diag": 129, "tied": 90, "full": 279}
    free = (free | {"factor": 129 + 10 * 20})[kind]
    assert model.bic(X) == pytest.approx(free * np.log(600) - 2 * exact.sum(), rel=close)
    # With ten components, every search compares all of them.
    assert (model.predict(X, search="neighbors") == labels)[clear].mean() > 0.99


def test_a_walk_finds_nearly_all_labels_of_many_components():
    X = blobs(6000, 8, 300, 2, apart=1.0, dtype=np.float32)
    model = TruncatedGaussianMixture(300, random_state=0).fit(X)
    assert (model.predict(X, search="neighbors") == model.predict(X)).mean() > 0.9
    walked = model.predict_proba(X, search="neighbors")
    assert np.diff(walked.indptr).max() <= 5
    with pytest.raises(ValueError, match="search must be one of exact, neighbors"):
        model.predict(X, search="far")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [None, 3000])
def test_threads_and_sources_do_not_change_results(kind, size, tmp_path):
    X = np.clip(blobs(9001, 17, 40, 1) * 8 + 100, 0, 255).astype(np.uint8)
    weights = np.random.default_rng(1).uniform(0.0, 2.0, size=len(X))
    path = tmp_path / "rows.npy"
    np.save(path, X)
    results = set()

    def stream():
        return (X[start : start + 1000] for start in range(0, len(X), 1000))

    for rows, n_jobs in [(X, 1), (np.asfortranarray(X), 3), (path, 2), (np.load(path, mmap_mode="r"), 4)]:
        model = TruncatedGaussianMixture(
            40, n_active=3, covariance_type=kind, coreset_size=size, random_state=2, n_jobs=n_jobs, max_iter=8
        )
        model.fit(rows, sample_weight=weights)
        kept = [model.means_, variances_of(model), model.weights_, model.neighbors_, model.counts_]
        kept += [] if model.loadings_ is None else [model.loadings_]
        kept += [model.history_[name] for name in ("objective", "center_shift", "n_changed", "n_distances")]
        kept += [model.predict(rows), model.score_samples(rows)]
        results.add((*(array.tobytes() for array in kept), model.inertia_))
    assert len(results) == 1
    given = {
        "init": model.means_,
        "covariance_type": kind,
        "coreset_size": size,
        "random_state": 2,
        "max_iter": 3,
    }
    a = TruncatedGaussianMixture(40, **given).fit(X, sample_weight=weights)
    b = TruncatedGaussianMixture(40, **given).fit(stream, sample_weight=weights)
    assert a.means_.tobytes() == b.means_.tobytes()
    assert (a.lower_bounds_ == b.lower_bounds_).all()


def test_float32_is_close_to_float64():
    X = blobs(3000, 10, 30, 7)
    init = X[:30]
    narrow, wide = (
        TruncatedGaussianMixture(30, init=init, max_iter=10, tol=0.0, random_state=0).fit(X.astype(dtype))
        for dtype in (np.float32, np.float64)
    )
    np.testing.assert_allclose(narrow.lower_bounds_, wide.lower_bounds_, rtol=1e-5)
    assert (np.diff(narrow.lower_bounds_) > -1e-5).all()


@pytest.mark.parametrize("kind", ["tied_spherical", "spherical"])
@pytest.mark.parametrize("size", [None, 800])
def test_sparse_rows_equal_dense_rows(kind, size):
    rng = np.random.default_rng(0)
    dense = rng.poisson(0.3, size=(1500, 40)) * rng.uniform(0.5, 2.0, size=(1500, 1))
    init = dense[rng.permutation(1500)[:12]]
    params = {
        "init": init,
        "covariance_type": kind,
        "coreset_size": size,
        "random_state": 1,
        "max_iter": 6,
        "tol": 0,
    }
    a = TruncatedGaussianMixture(12, **params).fit(dense)
    b = TruncatedGaussianMixture(12, **params).fit(sp.csr_array(dense))
    np.testing.assert_allclose(b.means_, a.means_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(b.covariances_, a.covariances_, rtol=1e-9)
    np.testing.assert_allclose(b.score_samples(sp.csr_array(dense)), a.score_samples(dense), rtol=1e-9)
    if size:
        assert isinstance(b.coreset_.points, sp.csr_array)
    for other in ("diag", "factor"):
        with pytest.raises(ValueError, match=rf"covariance_type must be .* for sparse rows, got .{other}"):
            TruncatedGaussianMixture(12, covariance_type=other).fit(sp.csr_array(dense))


@pytest.mark.parametrize("size", [700, 0.2])
def test_a_fit_to_a_coreset_equals_a_fit_to_its_rows(size):
    X = blobs(3500, 5, 12, 8)
    params = {"random_state": 3, "max_iter": 9, "tol": 0.0}
    model = TruncatedGaussianMixture(15, coreset_size=size, **params).fit(X)
    drawn = shoal.lightweight_coreset(X, 700, random_state=3)
    assert (model.coreset_.indices == drawn.indices).all()
    assert (model.coreset_.weights == drawn.weights).all()
    assert (model.coreset_.points == X[drawn.indices]).all()
    again = TruncatedGaussianMixture(15, **params).fit(drawn.points, sample_weight=drawn.weights)
    assert again.means_.tobytes() == model.means_.tobytes()
    assert again.coreset_ is None
    assert (model.history_["batch_size"] == 700).all()
    assert len(model.labels_) == 3500
    assert model.counts_.sum() == pytest.approx(drawn.weights.sum())
    whole = TruncatedGaussianMixture(15, coreset_size=5000, **params).fit(X)
    assert (whole.coreset_.weights == 1.0).all()
    assert (whole.coreset_.points == X).all()


def test_a_coreset_reads_a_stream_twice():
    X = blobs(5000, 4, 12, 9)
    passes = []

    def stream():
        passes.append(1)
        return iter(np.array_split(X, 7))

    model = TruncatedGaussianMixture(10, coreset_size=500, random_state=0).fit(shoal.open(stream))
    # One pass for the first block, one to count the rows, and two for the coreset.
    assert len(passes) == 4
    assert model.n_iter_ > 3
    assert len(model.labels_) == 5000
    assert len(passes) > 4


def test_distances_are_counted():
    X = blobs(2000, 4, 12, 10)
    for start in ("cells", "random"):
        params = {"start": start, "explore": 0, "max_iter": 4, "tol": 0.0, "random_state": 0}
        given = TruncatedGaussianMixture(40, init=X[:40], **params).fit(X)
        expected = truncated(X, X[:40], 5, 5, seed=0, start=start, rounds=4)
        assert given.n_distances_ == sum(state.n_distances for state in expected)
    # Given means separate the distances of seeding from the distances of the search.
    c = shoal.lightweight_coreset(X, 700, random_state=0)
    for rows, weights, size in ((X, None, None), (c.points, c.weights, 700)):
        seeds, _, seeding = shoal._core.first_centers(
            shoal.open(rows)._source,
            n_clusters=40,
            seeding="afk-mc2",
            options=(20, None, None),
            seed=0,
            weights=weights,
            threads=1,
        )
        assert seeding >= len(rows)
        params = {"explore": 0, "max_iter": 3, "tol": 0.0, "random_state": 0}
        drawn = TruncatedGaussianMixture(40, coreset_size=size, **params).fit(X)
        given = TruncatedGaussianMixture(40, init=seeds, **params).fit(rows, sample_weight=weights)
        assert drawn.means_.tobytes() == given.means_.tobytes()
        assert drawn.n_distances_ == seeding + given.n_distances_
        assert drawn.history_["n_distances"][0] == seeding + given.history_["n_distances"][0]


def test_stopping_rules():
    X = blobs(1000, 4, 12, 11)
    params = {"random_state": 0, "tol": 1e-3}
    absolute = TruncatedGaussianMixture(12, stopping="per-weight", **params).fit(X)
    relative = TruncatedGaussianMixture(12, stopping="relative", **params).fit(X)
    assert absolute.converged_
    assert relative.converged_
    gains, bounds = np.diff(absolute.lower_bounds_), relative.lower_bounds_
    assert gains[-1] <= 1e-3
    assert (gains[:-1] > 1e-3).all()
    changes = np.abs(np.diff(bounds)) / np.abs(bounds[1:])
    assert changes[-1] <= 1e-3
    assert (changes[:-1] > 1e-3).all()
    auto = TruncatedGaussianMixture(12, **params).fit(X)
    gains = np.diff(auto.lower_bounds_)
    assert gains[-1] <= 4e-3
    assert (gains[:-1] > 4e-3).all()
    # The scale of the data does not matter to the default rule and to the first rule.
    for stopping, model in (("auto", auto), ("per-weight", absolute)):
        scaled = TruncatedGaussianMixture(12, stopping=stopping, **params).fit(X * 1024.0)
        assert scaled.n_iter_ == model.n_iter_
        np.testing.assert_allclose(scaled.means_, 1024 * model.means_, rtol=1e-9)
    # Repeated columns, which sharpen the per-row bounds, do not matter to the default rule either.
    X = blobs(3000, 2, 12, 11, apart=9.0)
    given = {"init": X[:12], "n_active": 1, "n_neighbors": 12, "explore": 0, "random_state": 0}
    one = TruncatedGaussianMixture(12, **given).fit(X)
    given["init"] = np.tile(X[:12], 8)
    eight = TruncatedGaussianMixture(12, **given).fit(np.tile(X, 8))
    assert one.n_iter_ == eight.n_iter_
    np.testing.assert_allclose(np.tile(one.means_, 8), eight.means_, rtol=1e-9)


@pytest.mark.filterwarnings("default:the fit did not converge")
def test_a_fit_that_does_not_converge_warns():
    X = blobs(1000, 4, 12, 11)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=2 .* tol=0.0001. Increase max_iter or tol"):
        model = TruncatedGaussianMixture(12, max_iter=2, random_state=0).fit(X)
    assert (model.converged_, model.stop_reason_, model.n_iter_) == (False, "max-iter", 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = TruncatedGaussianMixture(12, random_state=0).fit(X)
        assert (model.converged_, model.stop_reason_) == (True, "tolerance")
        # A caller who stops a fit gets no warning.
        model = TruncatedGaussianMixture(12, random_state=0, callbacks=[lambda *_: True]).fit(X)
        assert (model.converged_, model.stop_reason_) == (False, "callback")


@pytest.mark.parametrize("size", [None, 500])
def test_the_best_of_several_starts_wins(size):
    X = blobs(1500, 3, 25, 21)
    params = {"coreset_size": size, "init": "random", "random_state": 0}
    seen = []
    one = TruncatedGaussianMixture(25, **params).fit(X)
    model = TruncatedGaussianMixture(
        25, n_init=6, callbacks=[lambda est, step: seen.append((est.lower_bound_, step))], **params
    ).fit(X)
    bounds = model.history_["objective"]
    # The first start equals a single start. The bound only falls where a new start begins.
    begun = [0, *(np.flatnonzero(np.diff(bounds) < 0) + 1), len(bounds)]
    assert len(begun) == 7
    np.testing.assert_array_equal(bounds[: begun[1]], one.lower_bounds_)
    ends = [bounds[end - 1] for end in begun[1:]]
    assert len(set(ends)) > 1
    best = int(np.argmax(ends))
    assert best > 0, "take another seed"
    np.testing.assert_array_equal(model.lower_bounds_, bounds[begun[best] : begun[best + 1]])
    assert model.lower_bound_ == max(ends) > one.lower_bound_
    assert model.n_iter_ == len(model.lower_bounds_)
    assert model.converged_
    assert (model.history_["stop_reason"] != "").sum() == 1
    assert (np.diff(model.history_["rows_seen"]) > 0).all()
    rows = model.score(X) if size is None else None
    assert rows is None or rows >= model.lower_bound_
    # During a start, the estimator shows the best previous start.
    assert [shown for shown, step in seen if step.iteration == begun[2]] == [max(ends[:2])]
    again = TruncatedGaussianMixture(25, n_init=6, n_jobs=2, **params).fit(X)
    assert again.means_.tobytes() == model.means_.tobytes()
    assert (again.labels_ == model.labels_).all()
    if size is not None:
        np.testing.assert_array_equal(model.coreset_.indices, one.coreset_.indices)


def test_initial_means_can_be_given_in_two_ways(tmp_path):
    X = blobs(800, 3, 12, 22, dtype=np.float32)
    by_init = TruncatedGaussianMixture(12, init=X[:12], random_state=0).fit(X)
    model = TruncatedGaussianMixture(12, means_init=X[:12].tolist(), random_state=0).fit(X)
    assert model.means_.tobytes() == by_init.means_.tobytes()
    assert model.init_ == by_init.init_ == "array"
    path = tmp_path / "model.safetensors"
    model.save(path)
    loaded = shoal.load(path)
    np.testing.assert_array_equal(loaded.means_init, X[:12])
    assert loaded.fit(X).means_.tobytes() == model.means_.tobytes()
    with pytest.warns(RuntimeWarning, match="n_init=3 is ignored"):
        one = TruncatedGaussianMixture(12, means_init=X[:12], n_init=3, random_state=0).fit(X)
    assert one.means_.tobytes() == model.means_.tobytes()
    with pytest.raises(ValueError, match=r"means_init must have shape \(12, 3\), got \(11, 3\)"):
        TruncatedGaussianMixture(12, means_init=X[:11]).fit(X)
    with pytest.raises(ValueError, match="means_init must be None if init is an array or a callable"):
        TruncatedGaussianMixture(12, means_init=X[:12], init=X[:12]).fit(X)
    with pytest.raises(ValueError, match="means_init must be None or an array, got 'k-means"):
        TruncatedGaussianMixture(12, means_init="k-means++").fit(X)


@pytest.mark.parametrize("kind", KINDS)
def test_criteria_count_parameters(kind):
    X = blobs(900, 3, 12, 23)
    model = TruncatedGaussianMixture(5, covariance_type=kind, random_state=0).fit(X)
    free = {"tied_spherical": 15 + 1, "spherical": 15 + 5 + 4, "diag": 15 + 15 + 4}
    free |= {"tied": 15 + 6 + 4, "full": 15 + 5 * 6 + 4}
    # Loadings have 3 x 2 values, one of which a rotation can remove.
    free = (free | {"factor": free["diag"] + 5 * (6 - 1)})[kind]
    total = model.score_samples(X).sum()
    assert model.aic(X) == pytest.approx(2 * free - 2 * total, rel=1e-12)
    assert model.bic(X) == pytest.approx(np.log(900) * free - 2 * total, rel=1e-12)
    twice = model.aic(X, sample_weight=np.full(900, 2.0))
    assert twice == pytest.approx(2 * free - 4 * total, rel=1e-12)


def test_dense_and_sparse_responsibilities_are_equal():
    X = blobs(400, 3, 12, 24)
    model = TruncatedGaussianMixture(12, n_active=4, random_state=0).fit(X)
    dense = model.predict_proba(X, dense=True)
    assert type(dense) is np.ndarray
    assert (dense.shape, dense.dtype) == ((400, 12), np.float64)
    sparse = model.predict_proba(X)
    np.testing.assert_array_equal(dense, sparse.toarray())
    # As graphs of neighbors, here and in scikit-learn.
    assert type(sparse) is type(shoal.knn_graph(X, 3)) is type(kneighbors_graph(X, 3))
    assert (dense.argmax(axis=1) == model.labels_).all()
    np.testing.assert_allclose(dense.sum(axis=1), 1.0, rtol=1e-12)
    walked = model.predict_proba(X, dense=True, search="neighbors")
    np.testing.assert_array_equal(walked, model.predict_proba(X, search="neighbors").toarray())


@pytest.mark.filterwarnings("ignore:Number of distinct components")
def test_rows_find_clusters_of_very_different_sizes():
    # Many rows lie in few clusters and the others are distant. From random draws, rows would find no near
    # mean in time.
    rng = np.random.default_rng(3)
    middles = rng.normal(size=(300, 8)) * 10.0 ** rng.uniform(0, 3, size=(300, 1))
    which = np.minimum(rng.geometric(0.02, size=20_000), 300) - 1
    X = middles[which] + 0.01 * rng.normal(size=(20_000, 8))
    seeds, _ = shoal.kmeans_plusplus(X, 200, random_state=0)
    of_seeds = shoal.metrics.inertia(X, seeds)
    found = {}
    for start in ("cells", "random"):
        model = TruncatedGaussianMixture(200, init=seeds, start=start, random_state=0).fit(X)
        found[start] = shoal.metrics.inertia(X, model.means_)
    assert found["cells"] < 1.05 * of_seeds
    assert found["random"] > found["cells"]


def test_few_active_components_explore():
    X = blobs(800, 2, 40, 12)
    assert "explore" in TruncatedGaussianMixture().get_params()
    looked = {}
    for active, explore in [(3, "auto"), (3, 1), (3, 0), (4, "auto"), (4, 0)]:
        model = TruncatedGaussianMixture(
            40, n_active=active, explore=explore, init=X[:40], max_iter=5, random_state=0
        )
        looked[active, explore] = model.fit(X).n_distances_
    assert looked[3, "auto"] == looked[3, 1] > looked[3, 0]
    assert looked[4, "auto"] == looked[4, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_files_and_pickles(kind, tmp_path):
    X = blobs(700, 4, 12, 13, dtype=np.float32)
    model = TruncatedGaussianMixture(12, covariance_type=kind, coreset_size=0.5, random_state=0).fit(X)
    path = tmp_path / "model.safetensors"
    model.save(path)
    loaded, pickled = shoal.load(path), pickle.loads(pickle.dumps(model))
    for again in (loaded, pickled):
        assert type(again) is TruncatedGaussianMixture
        assert again.means_.tobytes() == model.means_.tobytes()
        assert np.array_equal(again.covariances_, model.covariances_)
        assert (again.loadings_ is None) == (kind != "factor")
        if kind == "factor":
            np.testing.assert_array_equal(again.loadings_, model.loadings_)
        assert (again.weights_ == model.weights_).all()
        assert (again.neighbors_ == model.neighbors_).all()
        assert (again.score_samples(X) == model.score_samples(X)).all()
        assert (again.predict(X) == model.labels_).all()
        assert again.lower_bound_ == model.lower_bound_
        assert (again.history_ == model.history_).all()
        assert again.n_distances_ == model.n_distances_
        assert again.converged_ is model.converged_
        np.testing.assert_array_equal(again.lower_bounds_, model.lower_bounds_)
    assert loaded.get_params() == model.get_params()
    kind_of, arrays, meta = shoal._core.load_model(str(path))
    arrays["variances"] = -arrays["variances"]
    shoal._core.save_model(str(path), kind_of, arrays, {k: v for k, v in meta.items() if k != "version"})
    with pytest.raises(ValueError, match="is damaged: variances"):
        shoal.load(path)


def test_samples_come_from_the_mixture():
    X = blobs(4000, 2, 3, 14, apart=9.0)
    for kind in KINDS:
        model = TruncatedGaussianMixture(3, covariance_type=kind, random_state=0).fit(X)
        rows, labels = model.sample(20_000)
        assert rows.shape == (20_000, 2)
        assert rows.dtype == X.dtype
        for j in range(3):
            inside = rows[labels == j]
            assert len(inside) / 20_000 == pytest.approx(model.weights_[j], abs=0.02)
            np.testing.assert_allclose(inside.mean(axis=0), model.means_[j], atol=0.1)
            if kind in ("tied", "full"):
                expected = np.broadcast_to(model.covariances_, (3, 2, 2))[j]
            else:
                expected = np.broadcast_to(
                    model.covariances_ if kind != "spherical" else model.covariances_[j], (3, 2)
                )[j]
            if kind == "factor":
                expected = np.diag(expected) + model.loadings_[j].T @ model.loadings_[j]
            if expected.ndim == 2:
                np.testing.assert_allclose(np.cov(inside.T), expected, rtol=0.1, atol=0.05)
                expected = np.diag(expected)
            np.testing.assert_allclose(inside.var(axis=0), expected, rtol=0.1)
        assert (model.sample(5)[0] == model.sample(5)[0]).all()
    with pytest.raises(ValueError, match="n_samples must be an integer"):
        model.sample(0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_rows_and_few_distinct_ones(kind, dtype):
    for value in (7, 0):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model = TruncatedGaussianMixture(3, covariance_type=kind, random_state=0).fit(
                np.full((50, 2), value, dtype=dtype)
            )
        assert any("at their lower limit" in str(warning.message) for warning in told)
        assert any("all rows are equal" in str(warning.message) for warning in told)
        assert any("distinct components (1)" in str(warning.message) for warning in told)
        np.testing.assert_allclose(model.means_, value, rtol=1e-6)
        assert np.isfinite(model.lower_bound_)
        assert np.isfinite(model.score(np.full((5, 2), value, dtype=dtype)))
    X = np.repeat(np.array([[0, 0], [1, 5], [9, 9]], dtype=dtype), 20, axis=0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = TruncatedGaussianMixture(5, covariance_type=kind, random_state=0).fit(X)
    assert any("distinct components" in str(warning.message) for warning in told)
    assert any("no more distinct rows than components" in str(warning.message) for warning in told)
    assert np.isfinite(model.means_).all()
    assert np.isfinite(model.lower_bounds_).all()
    assert model.inertia_ < 1e-3


@pytest.mark.parametrize("scale", [1e-25, 1e-12, 1e12, 1e18])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_unit_of_the_rows_does_not_matter(scale, dtype):
    X = blobs(500, 3, 4, 15)
    base = TruncatedGaussianMixture(4, init=X[:4], random_state=0, max_iter=15).fit(X)
    scaled = TruncatedGaussianMixture(4, init=X[:4] * scale, random_state=0, max_iter=15).fit(
        (X * scale).astype(dtype)
    )
    assert (base.labels_ == scaled.labels_).mean() > 0.99
    np.testing.assert_allclose(scaled.means_ / scale, base.means_, rtol=1e-3, atol=1e-3)


def test_tight_clusters_keep_their_variance_in_float32():
    # Squared distances rounded to float32 would leave only rounding errors.
    rng = np.random.default_rng(0)
    middles = rng.normal(size=(6, 3)) * 10
    X = (middles[rng.integers(0, 6, size=900)] + 1e-3 * rng.normal(size=(900, 3))).astype(np.float32)
    init = np.array([X[np.argmin(((X - m) ** 2).sum(axis=1))] for m in middles]) + np.float32(0.5)
    model = TruncatedGaussianMixture(6, n_active=6, init=init, tol=0.0, max_iter=10).fit(X)
    assert (np.diff(model.lower_bounds_) > -1e-3).all()
    assert model.covariances_ == pytest.approx(1e-6, rel=0.1)


@pytest.mark.filterwarnings("ignore:Number of distinct components")
@pytest.mark.parametrize("kind", ["spherical", "diag"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spread", [1e-2, 1e-3])
def test_tight_clusters_far_apart_have_densities(kind, dtype, spread):
    rng = np.random.default_rng(0)
    middles = rng.normal(size=(6, 3)) * 100
    # Half of the clusters are three times as wide.
    which = rng.integers(0, 6, size=1800)
    X = middles[which] + spread * (1 + 2 * (which % 2))[:, None] * rng.normal(size=(1800, 3))
    X, held_out = X[:900].astype(dtype), X[900:].astype(dtype)
    # One component starts in two clusters, and two components share a cluster.
    for init in ("afk-mc2", np.concatenate([middles[:5], middles[:1] + spread])):
        params = {"covariance_type": kind, "init": init, "random_state": 0, "tol": 0.0, "max_iter": 40}
        model = TruncatedGaussianMixture(6, **params).fit(X)
        # Per-component variances start after two iterations. The bound must not fall then either.
        assert (np.diff(model.lower_bounds_) >= -1e-4).all()
        if isinstance(init, str):
            other = GaussianMixture(6, covariance_type=kind, reg_covar=1e-12, random_state=0)
            # Positions of float32 rows have a precision of about 1e-6.
            close = 1e-5 if dtype == np.float64 else 2e-3
            assert model.score(held_out) == pytest.approx(
                other.fit(X.astype(np.float64)).score(held_out.astype(np.float64)), abs=close
            )


@pytest.mark.parametrize("value", [0.0, 5.0, -40.0])
def test_a_constant_feature_has_one_floor_for_both_types(value):
    X = blobs(400, 3, 3, 20, dtype=np.float32)
    X[:, 1] = value
    fits = [
        TruncatedGaussianMixture(3, covariance_type="diag", random_state=0).fit(X.astype(dtype))
        for dtype in (np.float32, np.float64)
    ]
    np.testing.assert_allclose(fits[0].covariances_[:, 1], fits[1].covariances_[:, 1], rtol=1e-4)
    assert fits[0].lower_bound_ == pytest.approx(fits[1].lower_bound_, abs=1e-3)


def test_log_densities_of_float32_lose_few_digits():
    X = blobs(500, 64, 30, 21, dtype=np.float32)
    for kind in KINDS:
        # Components have fewer rows than columns.
        reg_covar = 1.0 if kind == "full" else 0.0
        model = TruncatedGaussianMixture(30, covariance_type=kind, reg_covar=reg_covar, random_state=0).fit(X)
        exact = logsumexp(joint_of(model, X), axis=1)
        # With factors, a distance is a difference of two squares.
        close = 3e-2 if kind == "factor" else 0
        np.testing.assert_allclose(model.score_samples(X), exact, rtol=2e-6, atol=close)


@pytest.mark.parametrize("size", [None, 400])
def test_an_interrupt_keeps_the_previous_step(size):
    X = blobs(1500, 3, 12, 22)
    params = {"coreset_size": size, "random_state": 0, "max_iter": 6, "tol": 0.0}
    expected = TruncatedGaussianMixture(12, **params).fit(X)
    passes, fails = 0, None

    def rows():
        nonlocal passes
        passes += 1
        mine = passes
        for start in range(0, len(X), 300):
            if mine == fails and start == 900:
                raise KeyboardInterrupt
            yield X[start : start + 300]

    source = shoal.open(rows)
    opened = passes
    model = TruncatedGaussianMixture(12, **params).fit(source)
    made = passes - opened
    assert model.means_.tobytes() == expected.means_.tobytes()
    left = broke = 0
    for number in range(1, made + 1):
        source = shoal.open(rows)
        fails = passes + number
        model = TruncatedGaussianMixture(12, **params)
        try:
            model.fit(source)
        except KeyboardInterrupt:
            left += 1
        else:
            # No fit has that many passes.
            continue
        # An interrupt in the first iteration leaves no model, a later one leaves the previous iteration.
        done = len(model.history_) if hasattr(model, "means_") else 0
        broke += done
        if done:
            assert (model.history_["objective"] == expected.history_["objective"][:done]).all()
            assert model.stop_reason_ is None
        assert model.fit(source).means_.tobytes() == expected.means_.tobytes()
    assert left >= (6 if size is None else 2)
    assert (broke > 0) == (size is None)


def test_a_fit_with_several_starts_resumes_from_any_step(tmp_path):
    X, path = blobs(1500, 3, 12, 22), tmp_path / "run.safetensors"
    params = {"init": "random", "n_init": 3, "random_state": 0, "max_iter": 3, "tol": 0.0}
    passes, fails = 0, None

    def rows():
        nonlocal passes
        passes += 1
        mine = passes
        for start in range(0, len(X), 300):
            if mine == fails and start == 900:
                raise KeyboardInterrupt
            yield X[start : start + 300]

    source = shoal.open(rows)
    opened = passes
    expected = TruncatedGaussianMixture(12, **params).fit(source)
    left = []
    for number in range(1, passes - opened + 1):
        source = shoal.open(rows)
        # Checking the rows for a checkpoint takes one more pass.
        fails = passes + 1 + number
        model = TruncatedGaussianMixture(12, callbacks=[Checkpoint(path, every=1e6)], **params)
        try:
            model.fit(source)
        except KeyboardInterrupt:
            left.append(len(model.history_) if hasattr(model, "means_") else 0)
        fails = None
        if path.exists():
            resumed = shoal.resume(path, source)
            assert resumed.means_.tobytes() == expected.means_.tobytes()
            assert (resumed.lower_bounds_ == expected.lower_bounds_).all()
            objectives = [fit.history_["objective"] for fit in (resumed, expected)]
            np.testing.assert_array_equal(*objectives)
            path.unlink()
    # Also in the first iterations of the second and the third start.
    assert {3, 6} <= set(left)


def test_empty_components_have_no_effect():
    X = blobs(300, 2, 3, 16)
    far = np.full((1, 2), 1e6)
    model = TruncatedGaussianMixture(
        4, init=np.concatenate([X[:3], far]), covariance_type="spherical", n_active=2, random_state=0
    ).fit(X)
    assert model.weights_[3] == 0.0
    assert model.weights_.sum() == pytest.approx(1.0)
    assert (model.means_[3] == far).all()
    assert (model.predict(np.concatenate([X, far])) < 3).all()
    assert np.isfinite(model.score_samples(X)).all()
    assert (np.diff(model.lower_bounds_) >= -1e-9).all()


def test_leaving_the_loop_keeps_a_usable_estimator():
    X = blobs(500, 3, 12, 17)
    model = TruncatedGaussianMixture(6, random_state=0)
    with pytest.raises(AttributeError, match="not fitted"):
        _ = model.means_
    with pytest.raises(AttributeError, match="not fitted"):
        _ = model.lower_bounds_
    for name in ("labels_", "converged_", "n_distances_"):
        assert not hasattr(model, name)
    with pytest.raises(NotFittedError):
        model.predict(X)
    for step in model.iter_fit(X):
        assert (model.labels_ == model.predict(X)).all()
        assert model.lower_bound_ == step.objective
        if step.iteration == 2:
            break
    assert len(model.history_) == 2
    assert (model.labels_ == model.predict(X)).all()
    model = TruncatedGaussianMixture(
        6, random_state=0, callbacks=[lambda est, step: step.iteration == 3]
    ).fit(X)
    assert model.stop_reason_ == "callback"
    assert not model.converged_


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"n_components": 0}, "n_components must be an integer of at least 1, got 0"),
        ({"n_components": 51}, "n_samples=50 should be >= n_components=51"),
        ({"n_active": 0}, "n_active must be an integer of at least 1"),
        ({"n_neighbors": 2.5}, "n_neighbors must be an integer of at least 1"),
        ({"explore": -1}, "explore must be 'auto' or an integer of at least 0"),
        ({"explore": "some"}, "explore must be 'auto' or"),
        ({"start": "near"}, "start must be"),
        (
            {"coreset_size": 0},
            "coreset_size must be None, a fraction of the rows or an integer of at least 1",
        ),
        ({"coreset_size": 1.5}, "coreset_size must be a fraction above 0 and at most 1, got 1.5"),
        ({"coreset_size": 7}, "n_components=8 must be at most the number of rows of the coreset, 7"),
        ({"coreset_size": 0.1}, "n_components must be at most the number of rows of the coreset, 5, got 8"),
        (
            {"covariance_type": "whole"},
            "covariance_type must be one of tied_spherical, spherical, diag",
        ),
        ({"n_factors": "auto"}, "n_factors must be None with covariance_type='tied_spherical', got 'auto'"),
        ({"n_factors": 2}, "n_factors must be None with covariance_type='tied_spherical', got 2. Use"),
        (
            {"n_factors": 0, "covariance_type": "factor"},
            "n_factors must be 'auto' or None or an integer of at least 1, got 0",
        ),
        (
            {"n_factors": 1.5, "covariance_type": "factor"},
            "n_factors must be 'auto' or None or an integer of at least 1",
        ),
        (
            {"n_factors": 2, "covariance_type": "factor"},
            "n_factors must be at least 1 and less than the number of columns, 2, got 2",
        ),
        ({"init": "kmeans"}, "init must be one of"),
        ({"chain_length": 0}, "chain_length must be an integer of at least 1"),
        ({"n_initial_e_steps": -1}, "n_initial_e_steps must be an integer of at least 0"),
        ({"n_init": 0}, "n_init must be an integer of at least 1, got 0"),
        ({"stopping": "never"}, "stopping must be one of auto, per-weight, relative"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1"),
        ({"tol": -1.0}, "tol must be a finite number of at least 0"),
    ],
)
def test_invalid_parameters(params, problem):
    X = blobs(50, 2, 12, 0)
    with pytest.raises(ValueError, match=r"n_|explore|coreset|cov|init|start|chain|stop|max|tol") as refused:
        TruncatedGaussianMixture(**params).fit(X)
    assert problem in str(refused.value)


def test_invalid_rows_and_weights():
    X = blobs(50, 2, 12, 0)
    with pytest.raises(ValueError, match="above 0 for at least one row, got zero for every row"):
        TruncatedGaussianMixture(3).fit(X, sample_weight=np.zeros(50))
    with pytest.raises(ValueError, match=r"scale the weights|overflow"):
        TruncatedGaussianMixture(3, init=X[:3]).fit(X, sample_weight=np.full(50, 1e308))
    with pytest.raises(ValueError, match="finite and at least 0"):
        TruncatedGaussianMixture(3).fit(X, sample_weight=np.full(50, -1.0))
    bad = X.copy()
    bad[30, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        TruncatedGaussianMixture(3, init=X[:3]).fit(bad)
    for search in ("exact", "neighbors"):
        with pytest.raises(ValueError, match="NaN"):
            TruncatedGaussianMixture(3, random_state=0).fit(X).predict(bad, search=search)
    model = TruncatedGaussianMixture(3, random_state=0).fit(X)
    for method in (model.predict, model.predict_proba, model.score_samples, model.score):
        with pytest.raises(ValueError, match="3 features"):
            method(np.zeros((4, 3)))
    # Values above the number of components mean all components.
    a = TruncatedGaussianMixture(3, n_active=99, n_neighbors=99, random_state=0).fit(X)
    b = TruncatedGaussianMixture(3, n_active=3, n_neighbors=3, random_state=0).fit(X)
    assert a.means_.tobytes() == b.means_.tobytes()


def test_labels_into_files(tmp_path):
    X = blobs(400, 3, 12, 18)
    model = TruncatedGaussianMixture(5, random_state=0).fit(X)
    labels = model.predict(X, out=tmp_path / "labels.npy", distances=tmp_path / "distances.npy")
    assert (labels == model.labels_).all()
    expected = np.sqrt(sq_dists(X, model.means_)[np.arange(400), labels])
    np.testing.assert_allclose(np.load(tmp_path / "distances.npy"), expected, rtol=1e-12)
    diag = TruncatedGaussianMixture(5, covariance_type="diag", random_state=0).fit(X)
    assert (diag.predict(X, out=np.empty(400, dtype=np.int32)) == diag.labels_).all()
    with pytest.raises(ValueError, match="distances must be None with covariance_type="):
        diag.predict(X, distances=np.empty(400))


def test_the_command_line_fits_and_predicts(tmp_path, capsys):
    from shoal import cli

    X = blobs(600, 3, 12, 19, dtype=np.float32)
    rows, path, labels = (tmp_path / name for name in ("rows.npy", "model.safetensors", "labels.npy"))
    np.save(rows, X)
    args = [
        "fit",
        rows,
        "-k",
        7,
        "--method",
        "gmm",
        "--set",
        "coreset_size=300",
        "--set",
        "n_init=3",
        "-o",
        path,
        "--labels",
        labels,
    ]
    assert (
        cli.main([str(arg) for arg in [*args, "--checkpoint", tmp_path / "run.safetensors", "--json"]]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    model = shoal.TruncatedGaussianMixture(7, coreset_size=300, n_init=3, random_state=0).fit(X)
    assert told["lower_bound"] == model.lower_bound_
    assert told["inertia"] is None
    assert (np.load(labels) == model.labels_).all()
    assert shoal.load(path).means_.tobytes() == model.means_.tobytes()
    assert cli.main(["info", str(path)]) == 0
    assert "gaussian-mixture-model" in capsys.readouterr().out
    assert cli.main(["compare", str(rows), "-k", "7", "--methods", "kmeans,gmm", "--json", "--quiet"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [result["method"] for result in results] == ["kmeans", "gmm"]
    assert results[1]["validation_energy"] < 3 * results[0]["validation_energy"]
