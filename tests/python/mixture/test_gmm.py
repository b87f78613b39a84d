"""Truncated Gaussian mixtures, iteration by iteration, compared with a reference; invalid parameters."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from generated import blobs
from gmm_parts import KINDS, joint_of, variances_of
from gmm_reference import Draws, free_energy, log_joint, truncated
from reference import inertia, sq_dists
from scipy.special import logsumexp
from shoal import KMeans, TruncatedGaussianMixture
from sklearn.exceptions import ConvergenceWarning

# Many fits here run only a few iterations.
pytestmark = pytest.mark.filterwarnings("ignore:the fit did not converge")


def near_of(model):
    """The active components per row of a fit in progress."""
    arrays = model._run.checkpoint()[1]
    near = arrays.get("best.near", arrays.get("current.near"))
    return near.reshape(-1, min(model.n_active, model.n_components)).astype(int)


def loadings_of(model):
    """The loadings, or None; a copy, because the model goes on."""
    return None if model.loadings_ is None else model.loadings_.copy()


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
            "n_factors must be 'auto', None or an integer of at least 1, got 0",
        ),
        (
            {"n_factors": 1.5, "covariance_type": "factor"},
            "n_factors must be 'auto', None or an integer of at least 1",
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
