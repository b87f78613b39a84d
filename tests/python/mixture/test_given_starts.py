"""Mixtures that begin with given weights and precisions, warm starts and `reg_covar`."""

import pickle
import warnings

import numpy as np
import pytest
import shoal
from generated import blobs
from gmm_reference import truncated
from shoal import TruncatedGaussianMixture
from shoal.callbacks import Checkpoint
from sklearn.mixture import GaussianMixture

pytestmark = pytest.mark.filterwarnings("ignore:the fit did not converge")

KINDS = ("tied_spherical", "spherical", "diag", "tied", "full", "factor")


def precisions_of(model):
    return 1 / np.asarray(model.covariances_)


def first_of(kind, k, d, seed=0):
    """Variances and weights with which a fit can begin."""
    rng = np.random.default_rng(seed)
    weights = np.full(k, 1 / k) if kind == "tied_spherical" else rng.dirichlet(np.full(k, 5.0))
    if kind in ("tied", "full"):
        parts = rng.normal(size=(d, d) if kind == "tied" else (k, d, d))
        return parts @ parts.swapaxes(-1, -2) + np.eye(d), weights
    shape = {"tied_spherical": (), "spherical": (k,), "diag": (k, d)}[kind]
    return rng.uniform(0.5, 4.0, size=shape), weights


def given(kind, variances, weights):
    weights = None if kind == "tied_spherical" else weights
    precisions = np.linalg.inv(variances) if kind in ("tied", "full") else 1 / variances
    return {"precisions_init": precisions, "weights_init": weights, "covariance_type": kind}


@pytest.mark.parametrize("reg_covar", [0.0, 1e-2])
@pytest.mark.parametrize("kind", ["spherical", "diag", "tied", "full"])
def test_a_given_start_equals_that_of_scikit_learn(kind, reg_covar):
    k, d = 6, 4
    X = blobs(700, d, 9, 3)
    variances, weights = first_of(kind, k, d)
    first = given(kind, variances, weights) | {"means_init": X[:k], "reg_covar": reg_covar}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = GaussianMixture(k, tol=0.0, max_iter=12, **first).fit(X)
        model = TruncatedGaussianMixture(k, n_active=k, tol=0.0, max_iter=12, **first).fit(X)
    assert model.n_iter_ == theirs.n_iter_ == 12
    assert model.lower_bound_ == pytest.approx(theirs.lower_bound_, rel=1e-10)
    np.testing.assert_allclose(model.means_, theirs.means_, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(model.covariances_, theirs.covariances_, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(model.precisions_, theirs.precisions_, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(model.weights_, theirs.weights_, rtol=1e-9)
    np.testing.assert_allclose(model.score_samples(X), theirs.score_samples(X), rtol=1e-9)


@pytest.mark.parametrize("start", ["cells", "random"])
@pytest.mark.parametrize("kind", ["tied_spherical", "spherical", "diag", "tied", "full"])
def test_truncated_iterations_equal_the_reference(kind, start):
    n, d, k, active, size = 240, 4, 14, 3, 4
    X = blobs(n, d, 12, 8)
    rows_weights = np.random.default_rng(1).choice([0.5, 1.0, 2.0], size=n)
    variances, weights = first_of(kind, k, d)
    expected = truncated(
        X,
        X[:k],
        active,
        size,
        weights=rows_weights,
        exploring=1,
        seed=5,
        start=start,
        kind=kind,
        reg=0.05,
        first=(variances[None] if kind == "tied" else variances, weights, None),
        rounds=6,
    )
    model = TruncatedGaussianMixture(
        k,
        n_active=active,
        n_neighbors=size,
        explore=1,
        start=start,
        init=X[:k],
        reg_covar=0.05,
        random_state=5,
        tol=0.0,
        **given(kind, variances, weights),
    )
    for step, truth in zip(model.iter_fit(X, rows_weights), expected, strict=False):
        assert step.objective == pytest.approx(truth.bound, rel=1e-10, abs=1e-10), step.iteration
        assert step.n_distances == truth.n_distances
        assert step.stop_reason is None
        np.testing.assert_array_equal(model.neighbors_, truth.neighbors)
        np.testing.assert_allclose(model.means_, truth.means, rtol=1e-9, atol=1e-9)
        found = np.asarray(model.covariances_)[None] if kind == "tied" else model.covariances_
        np.testing.assert_allclose(found, truth.variances, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(model.weights_, truth.weights, rtol=1e-9)


def test_reg_covar_is_added_to_the_variances_of_factors():
    X = blobs(400, 5, 4, 2)
    model = TruncatedGaussianMixture(
        3, n_active=3, covariance_type="factor", n_factors=2, reg_covar=0.5, init=X[:3], tol=0.0, max_iter=6
    )
    expected = truncated(X, X[:3], 3, 3, kind="factor", n_factors=2, reg=0.5, rounds=6)
    for step, truth in zip(model.iter_fit(X), expected, strict=False):
        assert step.objective == pytest.approx(truth.bound, rel=1e-9)
        np.testing.assert_allclose(model.covariances_, truth.variances, rtol=1e-7)
    assert model.covariances_.min() >= 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_rows_on_the_means_have_the_variance_of_reg_covar(kind):
    X = np.repeat(np.array([[0.0, 0.0, 1.0], [9.0, 0.0, 1.0]]), 20, axis=0)
    with warnings.catch_warnings():
        # No variance is at its lower limit.
        warnings.filterwarnings("error", message="all variances")
        model = TruncatedGaussianMixture(
            2, covariance_type=kind, init=X[[0, -1]], reg_covar=0.25, tol=0.0, max_iter=20
        ).fit(X)
    if kind in ("tied", "full"):
        np.testing.assert_allclose(
            model.covariances_, np.broadcast_to(0.25 * np.eye(3), model.covariances_.shape)
        )
        return
    own = 0.0 if model.loadings_ is None else (model.loadings_**2).sum(axis=1)
    np.testing.assert_allclose(model.covariances_ + own, 0.25, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_warm_start_continues_the_previous_fit(kind, dtype):
    X = blobs(900, 5, 12, 4).astype(dtype)
    params = {"covariance_type": kind, "n_active": 12, "random_state": 0, "tol": 0.0}
    whole = TruncatedGaussianMixture(12, max_iter=9, **params).fit(X)
    model = TruncatedGaussianMixture(12, max_iter=4, warm_start=True, **params).fit(X)
    first = model.lower_bounds_
    model.set_params(max_iter=5).fit(X)
    assert model.init_ == "array"
    close = 1e-9 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(np.concatenate([first, model.lower_bounds_]), whole.lower_bounds_, rtol=close)
    np.testing.assert_allclose(model.means_, whole.means_, rtol=1e3 * close, atol=1e3 * close)
    # A copy continues as well.
    again = pickle.loads(pickle.dumps(model)).fit(X)
    assert again.lower_bounds_[0] >= model.lower_bound_ - close * abs(model.lower_bound_)


def test_a_warm_start_rejects_another_shape():
    X = blobs(300, 5, 5, 1)
    model = TruncatedGaussianMixture(5, warm_start=True, random_state=0, covariance_type="diag").fit(X)
    for change, rows in [
        ({"n_components": 4}, X),
        ({"covariance_type": "spherical"}, X),
        ({"covariance_type": "factor"}, X),
        ({"covariance_type": "full"}, X),
        # Of the same shape, because there are as many components as features.
        ({"covariance_type": "tied"}, X),
        ({}, X[:, :3]),
    ]:
        other = pickle.loads(pickle.dumps(model)).set_params(**change)
        with pytest.raises(ValueError, match="warm_start must be False if n_components, covariance_type"):
            other.fit(rows)
        assert other.set_params(warm_start=False).fit(rows).means_.shape[1] == rows.shape[1]


@pytest.mark.parametrize("kind", ["spherical", "diag", "tied", "full"])
def test_results_do_not_depend_on_threads(kind):
    X = blobs(5000, 6, 20, 7, dtype=np.float32)
    variances, weights = first_of(kind, 20, 6)
    first = given(kind, variances, weights) | {"init": X[:20], "reg_covar": 1e-3, "max_iter": 6}
    one, two = (TruncatedGaussianMixture(20, n_jobs=n, **first).fit(X) for n in (1, 3))
    assert one.means_.tobytes() == two.means_.tobytes()
    assert one.lower_bounds_.tobytes() == two.lower_bounds_.tobytes()


def test_files_and_checkpoints_hold_the_given_parameters(tmp_path):
    X = blobs(500, 4, 6, 9, dtype=np.float32)
    variances, weights = first_of("diag", 6, 4)
    first = given("diag", variances, weights.tolist()) | {"means_init": X[:6], "reg_covar": 1e-3}
    model = TruncatedGaussianMixture(6, tol=0.0, max_iter=8, random_state=0, **first)
    whole = model.fit(X).means_
    model.save(tmp_path / "model.safetensors")
    loaded = shoal.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.weights_init, weights)
    np.testing.assert_array_equal(loaded.precisions_init, 1 / variances)
    assert loaded.fit(X).means_.tobytes() == whole.tobytes()
    path = tmp_path / "checkpoint.safetensors"
    keep = Checkpoint(path, every_steps=1)
    model.set_params(callbacks=[keep, lambda _, step: step.iteration == 3]).fit(X)
    assert shoal.resume(path, X).means_.tobytes() == whole.tobytes()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"weights_init": [0.5, 0.5, 0.5]},
            "weights_init must be 3 numbers of at least 0 with the sum 1, got",
        ),
        ({"weights_init": [1.5, -0.5, 0.0]}, "weights_init must be 3 numbers of at least 0 with the sum 1"),
        ({"weights_init": [0.5, 0.5]}, r"weights_init must have shape \(3,\), got \(2,\)"),
        ({"weights_init": [np.nan, 0.5, 0.5]}, "weights_init must be finite"),
        (
            {"weights_init": [1 / 3] * 3, "covariance_type": "tied_spherical"},
            "weights_init must be None with",
        ),
        ({"weights_init": [1 / 3] * 3, "covariance_type": "factor"}, "weights_init must be None with"),
        (
            {"precisions_init": np.ones((3, 2)), "covariance_type": "factor"},
            "precisions_init must be None with",
        ),
        ({"precisions_init": np.ones(3)}, r"precisions_init must have shape \(3, 2\), got \(3,\)"),
        ({"precisions_init": np.zeros((3, 2))}, "precisions_init must be 6 finite numbers above 0"),
        (
            {"precisions_init": np.ones((2, 2)), "covariance_type": "tied"},
            "precisions_init must be symmetric positive definite matrices",
        ),
        ({"precisions_init": [["a"] * 2] * 3}, "precisions_init must hold numbers"),
        ({"reg_covar": -1.0}, "reg_covar must be a finite number of at least 0, got -1.0"),
        ({"warm_start": "yes"}, "warm_start must be True or False, got 'yes'"),
    ],
)
def test_errors_name_the_parameter(wrong, message):
    X = blobs(60, 2, 3, 0)
    with pytest.raises(ValueError, match=message):
        TruncatedGaussianMixture(3, **{"covariance_type": "diag", **wrong}).fit(X)


def test_scikit_learn_takes_the_parameters_and_gives_them():
    X = blobs(300, 3, 4, 5)
    variances, weights = first_of("diag", 4, 3)
    theirs = GaussianMixture(4, reg_covar=1e-3, means_init=X[:4], **given("diag", variances, weights)).fit(X)
    model = shoal.convert.from_sklearn(theirs)
    assert model.reg_covar == 1e-3
    again = model.set_params(random_state=0).fit(X)
    assert again.score(X) == pytest.approx(theirs.score(X), abs=5e-3)
    assert shoal.convert.to_sklearn(again).reg_covar == 1e-3
