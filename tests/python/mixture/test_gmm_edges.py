"""Truncated Gaussian mixtures of unusual rows: constant rows, tight clusters, empty components."""

import warnings

import numpy as np
import pytest
from generated import blobs
from gmm_parts import KINDS, joint_of
from scipy.special import logsumexp
from shoal import TruncatedGaussianMixture
from sklearn.mixture import GaussianMixture

# Many fits here run only a few iterations.
pytestmark = pytest.mark.filterwarnings("ignore:the fit did not converge")


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
