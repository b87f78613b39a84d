"""Damaged states and checkpoints raise errors, or give finite centers."""

from __future__ import annotations

import numpy as np
import pytest
import shoal
from shoal import _core
from shoal.callbacks import Checkpoint

RNG = np.random.default_rng(3)
X = (RNG.normal(size=(1200, 3)) + 6 * RNG.integers(0, 4, size=(1200, 1))).astype("float32")

STREAMED = {
    "minibatch": shoal.MiniBatchKMeans(6, batch_size=200, random_state=0),
    "minibatch, fading": shoal.MiniBatchKMeans(6, batch_size=200, half_life=300, random_state=0),
    "nested": shoal.NestedMiniBatchKMeans(6, batch_size=200, random_state=0),
    "backward Euler": shoal.BackwardEulerKMeans(6, init=X[:6], batch_size=200, n_inner=3, random_state=0),
}
FITS = {
    "kmeans": shoal.KMeans(6, init="random", tol=0, random_state=3),
    "kmeans, cosine": shoal.KMeans(6, init="random", metric="cosine", tol=0, random_state=3),
    "kmeans, starts": shoal.KMeans(6, init="random", n_init=3, max_iter=6, random_state=3),
    "minibatch": shoal.MiniBatchKMeans(6, batch_size=200, max_iter=3, random_state=3),
    "nested": shoal.NestedMiniBatchKMeans(6, batch_size=200, random_state=3),
    "hierarchical": shoal.HierarchicalKMeans(60, n_candidates=8, tol=0, max_iter=4, random_state=3),
    "variance-reduced": shoal.VarianceReducedKMeans(6, init="random", tol=0, max_iter=8, random_state=3),
    "breathing": shoal.BreathingKMeans(6, m=2, init="random", random_state=3),
    "balanced": shoal.BalancedKMeans(6, size_min=0.9, size_max=1.1, random_state=3),
    "backward Euler": shoal.BackwardEulerKMeans(6, batch_size=200, n_inner=3, max_iter=9, random_state=3),
    "backward Euler, polished": shoal.BackwardEulerKMeans(
        6, batch_size=200, n_inner=2, max_iter=4, polish=True, random_state=3
    ),
    "mixture": shoal.TruncatedGaussianMixture(6, n_active=3, tol=1e-3, random_state=3),
    "mixture, full": shoal.TruncatedGaussianMixture(6, covariance_type="full", max_iter=9, random_state=3),
    "mixture, diag": shoal.TruncatedGaussianMixture(6, covariance_type="diag", max_iter=9, random_state=3),
    "mixture, factor": shoal.TruncatedGaussianMixture(
        6, covariance_type="factor", max_iter=9, random_state=3
    ),
}
DAMAGE = {
    "tiny": lambda values: 1e-45,
    "zero": lambda values: 0.0,
    "sign": lambda values: -values,
    "huge": lambda values: 1e30 * (1 + abs(values)),
    "exponent": lambda values: values * 2.0**128 if values.dtype == np.float64 else values * 2.0**64,
}


def clone(model, **params):
    """Return an unfitted estimator with the same parameters."""
    return type(model)(**{**model.get_params(deep=False), **params})


def damaged(path, sound):
    """Write files with one damaged value each to `path`, one after the other; yield the name of the array."""
    kind, arrays, meta = sound
    for name, array in arrays.items():
        if array.dtype.kind != "f" or array.size == 0 or name.startswith("history"):
            continue
        for how in DAMAGE.values():
            for place in {0, array.size // 2}:
                values = array.copy()
                with np.errstate(all="ignore"):
                    values.reshape(-1)[place] = how(values.reshape(-1)[place])
                if np.array_equal(values, array):
                    continue
                _core.save_model(str(path), kind, {**arrays, name: values}, meta)
                yield name


def is_sound(model):
    """Whether all results of a model are finite and within the range of the rows."""
    centers = model.cluster_centers_
    return np.isfinite(centers).all() and np.isfinite(model.counts_).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", STREAMED)
def test_states(name, tmp_path):
    path, model = tmp_path / "model.safetensors", clone(STREAMED[name])
    for start in range(0, 1000, 200):
        model.partial_fit(X[start : start + 200])
    model.save(path)
    refused = set()
    for array in damaged(path, _core.load_model(str(path))):
        try:
            again = shoal.load(path)
        except ValueError:
            refused.add(array)
            continue
        for rows in (X[1000:], X[:3]):
            try:
                again.partial_fit(rows)
            except ValueError:
                break
            assert is_sound(again), array
    assert refused >= {"cluster_centers"}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", FITS)
def test_checkpoints(name, tmp_path):
    path, plan = tmp_path / "run.safetensors", FITS[name]
    for step in clone(plan, callbacks=[Checkpoint(path)]).iter_fit(X):
        if step.iteration == 3:
            break
    for array in damaged(path, _core.load_model(str(path))):
        try:
            model = shoal.resume(path, X)
        except ValueError:
            continue
        assert is_sound(model), array
        # Means of rows are within the range of the rows.
        if not isinstance(plan, shoal.BackwardEulerKMeans | shoal.TruncatedGaussianMixture):
            assert (abs(model.cluster_centers_) <= 2 * abs(X).max()).all(), array


def test_sums_that_do_not_match_the_centers(tmp_path):
    path, model = tmp_path / "model.safetensors", clone(STREAMED["minibatch"])
    model.partial_fit(X[:400])
    model.save(path)
    kind, arrays, meta = _core.load_model(str(path))
    for name, value in [("weights", 1e-45), ("sums", 1e9)]:
        (name,) = [found for found in arrays if found.split(".")[-1] == name]
        values = arrays[name].copy()
        values.reshape(-1)[1] = value
        _core.save_model(str(path), kind, {**arrays, name: values}, meta)
        with pytest.raises(ValueError, match='do not match its "centers"'):
            shoal.load(path)


def test_sums_that_overflow():
    rows = np.full((4, 1), 1.5e308)
    with pytest.raises(ValueError, match="the mean of cluster 0 overflows float64"):
        shoal.KMeans(1, init=rows[:1], n_init=1, tol=0).fit(rows)
    model = shoal.MiniBatchKMeans(1, init=rows[:1])
    with pytest.raises(ValueError, match="the mean of cluster 0 overflows float64"):
        model.partial_fit(rows)
