"""Mixtures with covariances of features: ``covariance_type="tied"`` and ``"full"``."""

import numpy as np
import pytest
import scipy.sparse as sp
import shoal
from generated import blobs
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from shoal import TruncatedGaussianMixture
from sklearn.mixture import GaussianMixture

pytestmark = [
    pytest.mark.filterwarnings("ignore:the fit did not converge"),
    pytest.mark.parametrize("kind", ["tied", "full"]),
]


def correlated(n, d, k, seed=0):
    """Rows of components that extend in different directions."""
    rng = np.random.default_rng(seed)
    means, roots = 8 * rng.normal(size=(k, d)), rng.normal(size=(k, d, d))
    which = rng.integers(0, k, size=n)
    return means[which] + np.einsum("nij,nj->ni", roots[which], rng.normal(size=(n, d)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_component_has_the_covariance_of_the_rows(kind, dtype):
    X = (correlated(800, 5, 1) + 100).astype(dtype)
    weights = np.random.default_rng(0).integers(1, 4, size=len(X))
    model = TruncatedGaussianMixture(1, covariance_type=kind, tol=0.0, max_iter=5, random_state=0)
    model.fit(X, sample_weight=weights)
    expected = np.cov(X.astype(np.float64).T, fweights=weights, ddof=0)
    close = 1e-10 if dtype == np.float64 else 1e-5
    np.testing.assert_allclose(model.covariances_.reshape(5, 5), expected, rtol=close, atol=10 * close)
    unit = np.broadcast_to(np.eye(5), model.covariances_.shape)
    np.testing.assert_allclose(model.precisions_ @ model.covariances_, unit, atol=1e-9)


def test_densities_equal_those_of_scipy(kind):
    X = correlated(900, 7, 4)
    model = TruncatedGaussianMixture(4, covariance_type=kind, max_iter=9, random_state=0).fit(X)
    covariances = np.broadcast_to(model.covariances_, (4, 7, 7))
    parts = zip(model.weights_, model.means_, covariances, strict=True)
    joint = [np.log(weight) + multivariate_normal(mean, whole).logpdf(X) for weight, mean, whole in parts]
    np.testing.assert_allclose(model.score_samples(X), logsumexp(joint, axis=0), rtol=1e-9)
    np.testing.assert_array_equal(model.predict(X), np.argmax(joint, axis=0))
    assert (model.predict(X, search="neighbors") == model.predict(X)).mean() > 0.9


def test_components_that_extend_in_other_directions_are_found(kind):
    X = correlated(4000, 6, 4, seed=3)
    train, held_out = X[:3000], X[3000:]
    scores = {
        name: TruncatedGaussianMixture(4, covariance_type=name, random_state=0, tol=1e-6)
        .fit(train)
        .score(held_out)
        for name in (kind, "spherical")
    }
    assert scores[kind] > scores["spherical"] + (1 if kind == "full" else 0.2)
    theirs = GaussianMixture(4, covariance_type=kind, n_init=3, random_state=0).fit(train)
    assert scores[kind] == pytest.approx(theirs.score(held_out), abs=0.2)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", ["few", "constant", "equal", "subspace"])
def test_degenerate_rows_have_finite_densities(kind, rows, dtype):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9 if rows == "few" else 200, 12)) + 5
    if rows == "constant":
        X[:, [0, 7]] = 3
    elif rows == "equal":
        X[:] = X[rng.integers(0, 4, size=len(X))]
    elif rows == "subspace":
        X = X[:, :3] @ rng.normal(size=(3, 12))
    X = X.astype(dtype)
    for reg_covar in (0.0, 1e-2):
        model = TruncatedGaussianMixture(3, covariance_type=kind, reg_covar=reg_covar, random_state=0).fit(X)
        assert np.isfinite(model.lower_bounds_).all()
        assert np.isfinite(model.score_samples(X)).all()
        assert np.linalg.eigvalsh(model.covariances_).min() > 0
        assert np.isfinite(model.sample(50)[0]).all()


def test_weights_are_repeated_rows(kind):
    X = correlated(300, 4, 3)
    weights = np.random.default_rng(1).integers(1, 4, size=len(X))
    params = {"covariance_type": kind, "init": X[:3], "n_active": 3, "max_iter": 8, "tol": 0.0}
    one = TruncatedGaussianMixture(3, **params).fit(X, sample_weight=weights)
    two = TruncatedGaussianMixture(3, **params).fit(np.repeat(X, weights, axis=0))
    np.testing.assert_allclose(one.lower_bounds_, two.lower_bounds_, rtol=1e-10)
    np.testing.assert_allclose(one.covariances_, two.covariances_, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("params", [{"metric": "cosine"}, {"coreset_size": 400}, {"n_active": 1}])
def test_other_parameters_work_with_covariances(kind, params, tmp_path):
    X = correlated(1500, 5, 6).astype(np.float32)
    model = TruncatedGaussianMixture(12, covariance_type=kind, max_iter=20, random_state=0, **params).fit(X)
    assert (np.diff(model.lower_bounds_) >= -1e-3).all()
    model.save(tmp_path / "model.safetensors")
    loaded = shoal.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.covariances_, model.covariances_)
    np.testing.assert_array_equal(loaded.score_samples(X), model.score_samples(X))


def test_sparse_rows_are_refused(kind):
    with pytest.raises(
        ValueError, match='covariance_type must be "spherical" or "tied_spherical" for sparse'
    ):
        TruncatedGaussianMixture(2, covariance_type=kind).fit(sp.csr_matrix(blobs(40, 3, 2, 0)))


def test_a_warm_start_of_nearly_singular_covariances(kind):
    X = np.repeat(correlated(40, 6, 2), 2, axis=1)
    model = TruncatedGaussianMixture(
        5, covariance_type=kind, warm_start=True, random_state=0, max_iter=6
    ).fit(X)
    before = model.lower_bound_
    assert model.fit(X).lower_bounds_[0] >= before - 1e-2 * abs(before)
