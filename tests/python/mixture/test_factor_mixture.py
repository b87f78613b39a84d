"""Mixtures of factor analyzers: compared with SciPy, scikit-learn and known parameters."""

import json
import warnings

import numpy as np
import pytest
import shoal
from command_line import run
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from shoal import TruncatedGaussianMixture
from shoal._mixture.factors import best_of
from sklearn.decomposition import FactorAnalysis

# Many fits here run only a few iterations.
pytestmark = pytest.mark.filterwarnings("ignore:the fit did not converge")


def drawn(n, d, h, k=1, seed=0, noise=0.3):
    """Rows of a mixture of factor analyzers, and its parameters."""
    rng = np.random.default_rng(seed)
    means, loadings = 6 * rng.normal(size=(k, d)), rng.normal(size=(k, h, d))
    variances = noise * rng.uniform(0.5, 2.0, size=(k, d))
    which = rng.integers(0, k, size=n)
    factors, noise = rng.normal(size=(n, h)), rng.normal(size=(n, d))
    X = means[which] + np.einsum("nh,nhd->nd", factors, loadings[which]) + np.sqrt(variances[which]) * noise
    return X, means, loadings, variances


def log_density(X, weights, means, loadings, variances):
    """The log density of every row, with whole covariances."""
    with np.errstate(divide="ignore"):
        joint = [
            np.log(weight) + multivariate_normal(mean, L.T @ L + np.diag(own)).logpdf(X)
            for weight, mean, L, own in zip(weights, means, loadings, variances, strict=True)
        ]
    return logsumexp(joint, axis=0)


def parameters_of(model):
    return model.weights_, model.means_, model.loadings_, model.covariances_


@pytest.mark.parametrize(("d", "h", "k"), [(2, 1, 3), (6, 2, 5), (9, 8, 2), (33, 5, 4), (40, 11, 3)])
def test_densities_equal_those_of_scipy(d, h, k):
    X = drawn(900, d, h, k, seed=d)[0]
    model = TruncatedGaussianMixture(
        k, covariance_type="factor", n_factors=h, random_state=0, max_iter=9
    ).fit(X)
    assert model.loadings_.shape == (k, h, d)
    assert model.covariances_.shape == (k, d)
    np.testing.assert_allclose(
        model.score_samples(X), log_density(X, *parameters_of(model)), rtol=1e-10, atol=1e-9
    )


@pytest.mark.parametrize("h", [1, 3])
def test_one_component_is_factor_analysis(h):
    X = drawn(1000, 12, h, seed=3)[0] * np.geomspace(0.1, 10, 12)
    model = TruncatedGaussianMixture(
        1, covariance_type="factor", n_factors=h, tol=1e-9, max_iter=2000, random_state=0
    ).fit(X)
    theirs = FactorAnalysis(h, tol=1e-9, max_iter=5000, svd_method="lapack").fit(X)
    assert model.score(X) == pytest.approx(theirs.score(X), abs=1e-4)
    np.testing.assert_allclose(model.means_[0], X.mean(axis=0), rtol=1e-9, atol=1e-9)
    ours = model.loadings_[0].T @ model.loadings_[0] + np.diag(model.covariances_[0])
    scale = np.sqrt(np.outer(ours.diagonal(), ours.diagonal()))
    np.testing.assert_allclose(ours / scale, theirs.get_covariance() / scale, atol=2e-3)


def test_known_parameters_are_found():
    rows, *truth = drawn(12_000, 20, 3, k=4, seed=1)
    X, held_out = rows[:9000], rows[9000:]
    scores = {
        kind: TruncatedGaussianMixture(
            4, covariance_type=kind, n_factors=3 if kind == "factor" else None, tol=1e-6, random_state=0
        )
        .fit(X)
        .score(held_out)
        for kind in ("diag", "factor")
    }
    best = log_density(held_out, np.full(4, 0.25), *truth).mean()
    assert scores["factor"] == pytest.approx(best, abs=0.1)
    assert scores["factor"] > scores["diag"] + 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("size", [None, 700])
def test_the_bound_never_falls(dtype, metric, size):
    X = drawn(2000, 16, 3, k=6, seed=4)[0].astype(dtype)
    weights = np.random.default_rng(0).uniform(0.1, 3, size=len(X))
    for k, h, n_active in [(12, 2, 3), (30, 5, 5), (5, 15, 1)]:
        model = TruncatedGaussianMixture(
            k,
            covariance_type="factor",
            n_factors=h,
            n_active=n_active,
            metric=metric,
            coreset_size=size,
            tol=0.0,
            max_iter=40,
            random_state=1,
        ).fit(X, sample_weight=weights)
        least = np.diff(model.lower_bounds_).min()
        assert least >= (-1e-9 if dtype == np.float64 else -2e-3), (k, h)
        assert model.lower_bounds_[-1] > model.lower_bounds_[3]


def test_factors_begin_after_the_warm_up():
    X = drawn(500, 4, 2, k=3)[0]
    model = TruncatedGaussianMixture(3, covariance_type="factor", n_factors=2, random_state=0, tol=0.0)
    diag = TruncatedGaussianMixture(3, covariance_type="diag", random_state=0, tol=0.0)
    for step, other in zip(model.iter_fit(X), diag.iter_fit(X), strict=False):
        if step.iteration <= 2:
            assert step.objective == other.objective
            total = (model.loadings_**2).sum(axis=1) + model.covariances_
            np.testing.assert_allclose(total, diag.covariances_, rtol=1e-12)
        if step.iteration == 1:
            assert not model.loadings_.any()
        if step.iteration == 2:
            # Each factor begins as one column, which does not change the density.
            assert ((model.loadings_ != 0).sum(axis=2) == 1).all()
            np.testing.assert_allclose(model.score_samples(X), diag.score_samples(X), rtol=1e-9)
        if step.iteration == 3:
            assert step.objective == pytest.approx(other.objective, rel=1e-12)
            assert (model.loadings_ != 0).all()
            break
    assert diag.loadings_ is None


@pytest.mark.parametrize(("d", "h"), [(2, 1), (4, 3), (6, 5), (9, 5)])
def test_the_default_number_of_factors(d, h):
    model = TruncatedGaussianMixture(2, covariance_type="factor", random_state=0, max_iter=3)
    assert model.fit(drawn(100, d, 1)[0]).loadings_.shape == (2, h, d)
    assert model.get_params()["n_factors"] is None


def test_a_single_feature_has_no_factors():
    with pytest.raises(ValueError, match="covariance_type must be one without factors for a single column"):
        TruncatedGaussianMixture(2, covariance_type="factor").fit(np.arange(9.0)[:, None])


@pytest.mark.parametrize("scale", [2.0**-60, 2.0**60])
def test_a_power_of_two_scales_all_parameters(scale):
    X = drawn(800, 5, 2, k=3)[0]
    params = {"covariance_type": "factor", "n_factors": 2, "random_state": 0, "max_iter": 12, "tol": 0.0}
    one = TruncatedGaussianMixture(6, **params).fit(X)
    other = TruncatedGaussianMixture(6, **params).fit(X * scale)
    np.testing.assert_allclose(other.means_, one.means_ * scale, rtol=1e-8)
    np.testing.assert_allclose(other.loadings_, one.loadings_ * scale, rtol=1e-6, atol=1e-6 * scale)
    np.testing.assert_allclose(other.covariances_, one.covariances_ * scale**2, rtol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_in_a_subspace_have_finite_densities(dtype):
    rng = np.random.default_rng(0)
    # Two factors explain everything; the variances end at their lower limits.
    X = (rng.normal(size=(600, 2)) @ rng.normal(size=(2, 8)) + 5).astype(dtype)
    X[:, 3] = 7
    with warnings.catch_warnings():
        # Not all rows lie on the means.
        warnings.filterwarnings("error", message="all variances")
        model = TruncatedGaussianMixture(
            3, covariance_type="factor", n_factors=4, random_state=0, max_iter=200, tol=1e-3
        ).fit(X)
    assert np.isfinite(model.score_samples(X)).all()
    assert np.isfinite(model.loadings_).all()
    assert (np.diff(model.lower_bounds_) >= (-1e-9 if dtype == np.float64 else -1e-2)).all()


def test_components_with_few_rows_keep_a_density_for_others():
    # Nearly as many components as rows, and more factors than rows per component.
    X = drawn(3000, 10, 2, k=5, seed=6)[0]
    model = TruncatedGaussianMixture(
        60, covariance_type="factor", n_factors=6, random_state=0, max_iter=30
    ).fit(X[:120])
    assert np.isfinite(model.lower_bounds_).all()
    assert np.isfinite(model.score(X[120:]))


def test_samples_have_the_density_of_the_model():
    X = drawn(4000, 6, 2, k=3, seed=2)[0]
    model = TruncatedGaussianMixture(3, covariance_type="factor", n_factors=2, random_state=0).fit(X)
    rows, labels = model.sample(30_000)
    assert (np.diff(labels) >= 0).all()
    for c in range(3):
        inside = rows[labels == c]
        whole = model.loadings_[c].T @ model.loadings_[c] + np.diag(model.covariances_[c])
        np.testing.assert_allclose(np.cov(inside.T), whole, atol=0.08 * np.abs(whole).max())


def test_the_command_line_takes_a_number_of_factors(tmp_path, capsys):
    from shoal import cli

    X = drawn(400, 5, 2, k=3)[0].astype(np.float32)
    rows, path = tmp_path / "rows.npy", tmp_path / "model.safetensors"
    np.save(rows, X)
    fit = ["fit", str(rows), "-k", "4", "--method", "gmm", "--n-factors", "2", "--quiet"]
    assert cli.main([*fit, "-o", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    expected = TruncatedGaussianMixture(4, covariance_type="factor", n_factors=2, random_state=0).fit(X)
    assert told["lower_bound"] == expected.lower_bound_
    assert (shoal.load(path).loadings_ == expected.loadings_).all()
    assert cli.main([*fit, "--set", "covariance_type=factor"]) == 0
    capsys.readouterr()
    for wrong, message in [
        (
            [*fit, "--set", "covariance_type=diag"],
            "--n-factors must be left out with --set covariance_type=diag",
        ),
        ([*fit[:4], "--n-factors", "2", "--quiet"], "--n-factors: kmeans has no parameter 'n_factors'"),
        (
            [*fit[:-2], "5", "--quiet"],
            "--n-factors must be at least 1 and less than the number of columns, 5",
        ),
    ]:
        status, out, told = run(capsys, *wrong)
        assert (status > 0, out) == (True, "")
        assert message in told


# ---------------------------------------------------------------- the number of factors


def test_auto_is_as_good_as_the_best_of_the_grid():
    X = drawn(8000, 12, 3, k=3, seed=5)[0]
    X, fresh = X[:4000], X[4000:]
    given = {"n_components": 3, "covariance_type": "factor", "random_state": 1}
    model = TruncatedGaussianMixture(n_factors="auto", **given).fit(X)
    brute = {h: TruncatedGaussianMixture(n_factors=h, **given).fit(X).score(fresh) for h in (1, 2, 3, 5, 8)}
    assert model.score(fresh) > max(brute.values()) - 0.01 > brute[2]
    assert model.n_factors_ == 3
    assert model.loadings_.shape == (3, 3, 12)
    chosen = TruncatedGaussianMixture(n_factors=3, **given).fit(X)
    np.testing.assert_array_equal(model.means_, chosen.means_)
    # Rows of weight 0 take no part.
    far = np.vstack([X, 1e3 + X[:200]])
    weights = np.r_[np.ones(4000), np.zeros(200)]
    assert TruncatedGaussianMixture(n_factors="auto", **given).fit(far, sample_weight=weights).n_factors_ == 3
    assert TruncatedGaussianMixture(2, covariance_type="diag").fit(X).n_factors_ is None


def test_more_factors_must_gain_more_than_two_standard_errors():
    tried, noise = [], np.random.default_rng(0).normal(size=400)

    def densities(gains):
        def of(h):
            tried.append(h)
            return noise[: len(noise) // 2] * 0.1 * h + gains[h]

        return of

    assert best_of([1, 2, 3, 5, 8, 13], densities({1: 0, 2: 1, 3: 2, 5: 1.9, 8: 1, 13: 9})) == 3
    # It stops after two that are no better.
    assert tried == [1, 2, 3, 5, 8]
    # Weights count as the rows that would have the same error: 200 rows, of which 20 count, are 20 rows.
    weights = np.r_[np.full(20, 3.0), np.full(180, 1e-12)]
    gain = 0.1 * 1.5 / np.sqrt(20)
    centered = noise[:200] - noise[:20].mean()
    of = {1: 0 * centered, 2: 0.1 * centered / noise[:20].std() + gain}
    assert best_of([1, 2], of.get, weights) == 1
    assert best_of([1, 2], {1: of[1], 2: of[2] + gain}.get, weights) == 2
    assert best_of([1, 2], of.get) == 2
    assert best_of([1, 2], of.get, np.eye(200)[0]) == 1
    # The error of the mean of 200 differences of deviation 0.1 is 0.007.
    assert best_of([1, 2], densities({1: 0, 2: 0.01 - 0.1 * noise[:200].mean()})) == 1
    assert best_of([1, 2], densities({1: 0, 2: 0.02 - 0.1 * noise[:200].mean()})) == 2


def test_auto_is_repeatable_and_resumes(tmp_path, monkeypatch):
    X = drawn(900, 7, 2, k=2, seed=1)[0]
    plan = TruncatedGaussianMixture(
        2, covariance_type="factor", n_factors="auto", random_state=4, tol=0, max_iter=6
    )
    whole = plan.fit(X)
    again = TruncatedGaussianMixture(**plan.get_params()).set_params(n_jobs=2).fit(X)
    np.testing.assert_array_equal(whole.loadings_, again.loadings_)
    path = tmp_path / "fit.safetensors"
    part = TruncatedGaussianMixture(**plan.get_params())
    part.set_params(callbacks=[shoal.callbacks.Checkpoint(path, every_steps=1)])
    for number, _ in enumerate(part.iter_fit(X)):
        if number == 2:
            break
    first = tmp_path / "first.safetensors"

    class Interrupted:
        """A run that is interrupted before its first step."""

        def __init__(self, run):
            self.run = run

        def __getattr__(self, name):
            return getattr(self.run, name)

        def step(self):
            raise KeyboardInterrupt

    start = shoal._core.start
    with monkeypatch.context() as patch:
        patch.setattr("shoal.mixture.chosen_factors", lambda *_: whole.n_factors_)
        patch.setattr("shoal._core.start", lambda *args, **given: Interrupted(start(*args, **given)))
        begun = TruncatedGaussianMixture(**plan.get_params())
        begun.set_params(callbacks=[shoal.callbacks.Checkpoint(first)])
        with pytest.raises(KeyboardInterrupt):
            begun.fit(X)

    def search(*_):
        raise AssertionError("the number of factors is in the checkpoint")

    with monkeypatch.context() as patch:
        patch.setattr("shoal.mixture.chosen_factors", search)
        for checkpoint in (path, first):
            resumed = shoal.resume(checkpoint, X, callbacks=[shoal.callbacks.Checkpoint(checkpoint)])
            np.testing.assert_array_equal(resumed.loadings_, whole.loadings_)
            assert resumed.n_factors == "auto"
    warm = whole.set_params(warm_start=True, max_iter=1).fit(X)
    assert warm.n_factors_ == again.n_factors_


def test_callbacks_and_progress_see_the_search(tmp_path, capfd):
    X = drawn(900, 7, 2, k=2, seed=1)[0]
    seen = []

    def two_steps(estimator, step):
        seen.append((estimator.n_factors, step.iteration))
        return step.iteration == 2

    # A checkpoint of the search would not be one of the fit.
    checkpoint = shoal.callbacks.Checkpoint(tmp_path / "fit.safetensors", every_steps=1)
    given = {"covariance_type": "factor", "n_factors": "auto", "random_state": 4, "tol": 0, "max_iter": 6}
    model = TruncatedGaussianMixture(2, **given, verbose=1, callbacks=[two_steps, checkpoint]).fit(X)
    tried = list(dict.fromkeys(h for h, _ in seen))
    assert tried[:3] == [1, 2, 3]
    assert tried[-1] == "auto"
    assert seen == [(h, step) for h in tried for step in (1, 2)]
    assert (model.stop_reason_, model.n_iter_) == ("callback", 2)
    assert shoal.resume(tmp_path / "fit.safetensors", X).n_factors_ == model.n_factors_
    shown = capfd.readouterr().err
    assert "TruncatedGaussianMixture, trying n_factors=3: " in shown
    assert "TruncatedGaussianMixture: " in shown

    def interrupt(estimator, step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TruncatedGaussianMixture(2, **given, callbacks=[interrupt]).fit(X)
    # An iterator is kept for the fit itself.
    seen.clear()
    TruncatedGaussianMixture(2, **given, callbacks=iter([two_steps])).fit(X)
    assert seen == [("auto", 1), ("auto", 2)]


def test_auto_of_one_feature_and_of_few_rows():
    X = drawn(150, 2, 1, seed=2)[0]
    assert TruncatedGaussianMixture(2, covariance_type="factor", n_factors="auto").fit(X).n_factors_ == 1
    few = drawn(200, 9, 2, seed=2)[0]
    weights = np.r_[np.ones(119), np.zeros(81)]
    for k, given, text in [(2, weights, "120 rows .*here 119"), (180, None, "210 rows .*here 200")]:
        mixture = TruncatedGaussianMixture(k, covariance_type="factor", n_factors="auto")
        with pytest.raises(ValueError, match=f"n_factors must be None or a number if fewer than {text}"):
            mixture.fit(few, sample_weight=given)


def test_the_sample_of_auto_takes_limited_memory(monkeypatch):
    X = drawn(400, 4, 1, k=2, seed=3)[0].astype(np.float32)
    monkeypatch.setattr("shoal._mixture.factors.MOST_BYTES", 200 * 4 * 4)
    taken, model = [], TruncatedGaussianMixture(2, covariance_type="factor", n_factors="auto")

    def densities(mixture, rows, **given):
        taken.append(rows.shape[0])
        return fit(mixture, rows, **given)

    fit = TruncatedGaussianMixture.fit
    monkeypatch.setattr(TruncatedGaussianMixture, "fit", densities)
    fit(model, X)
    assert set(taken) == {150}
