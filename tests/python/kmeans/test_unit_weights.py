"""Weights of 1 give the bits of no weights, and fits depend on the shares of the total weight alone."""

import numpy as np
import pytest
import shoal
from scipy.sparse import csr_array
from shoal import (
    BackwardEulerKMeans,
    BalancedKMeans,
    BreathingKMeans,
    KMeans,
    MiniBatchKMeans,
    NestedMiniBatchKMeans,
    StreamingCoreset,
    TruncatedGaussianMixture,
    VarianceReducedKMeans,
    metrics,
)

X = np.random.default_rng(3).normal(size=(3000, 5)).astype(np.float32)
ONES = np.ones(len(X))


def fits():
    for init in ("auto", "random", "k-means++", "plain-k-means++", "afk-mc2", "k-mc2", "k-means||"):
        yield f"KMeans-{init}", KMeans(20, init=init, n_init=2, random_state=5, max_iter=5)
        yield (
            f"MiniBatchKMeans-{init}",
            MiniBatchKMeans(20, init=init, random_state=5, batch_size=100, n_init=2),
        )
    yield "KMeans-cosine", KMeans(20, metric="cosine", random_state=5)
    yield (
        "MiniBatchKMeans-all",
        MiniBatchKMeans(
            20, random_state=5, batch_size=64, init_size=100, tol=1e-3, half_life=500, reassignment_ratio=0.5
        ),
    )
    yield "NestedMiniBatchKMeans", NestedMiniBatchKMeans(20, random_state=5, batch_size=100)
    yield "BackwardEulerKMeans", BackwardEulerKMeans(20, random_state=5, batch_size=100, max_iter=8)
    yield "BreathingKMeans", BreathingKMeans(20, m=2, random_state=5)
    yield "BalancedKMeans", BalancedKMeans(20, size_max=1.1, random_state=5)
    for variant in ("vrkm", "vrkm++"):
        yield variant, VarianceReducedKMeans(20, variant=variant, random_state=5, max_iter=4)
    for size in (None, 500):
        yield f"mixture-{size}", TruncatedGaussianMixture(20, coreset_size=size, random_state=5, max_iter=9)


FITS = dict(fits())


def state(model):
    """Return all results of a fit except the times."""
    found = {name: value for name, value in model.__dict__.items() if name.endswith("_") and name[0] != "_"}
    found |= {"centers": model.cluster_centers_, "labels": model.labels_, "inertia": model.inertia_}
    found.pop("timings_")
    history = model.history_
    found["history"] = [history[name].tolist() for name in history.dtype.names if name != "elapsed"]
    return found


def assert_same(one, other):
    one, other = state(one), state(other)
    assert one.keys() == other.keys()
    for name in one:
        if isinstance(one[name], shoal.Coreset):
            for part in ("points", "weights", "indices"):
                np.testing.assert_array_equal(getattr(one[name], part), getattr(other[name], part))
        else:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


# The mixtures stop after 9 iterations.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", FITS)
def test_a_fit(name):
    model = FITS[name]
    plain = shoal_clone(model).fit(X)
    for ones in (ONES, 1):
        assert_same(shoal_clone(model).fit(X, sample_weight=ones), plain)
    if name in ("KMeans-auto", "MiniBatchKMeans-k-means++"):
        for rows in (csr_array(X), lambda: iter([X[:1000], X[1000:]])):
            weighted = shoal_clone(model).fit(rows, sample_weight=ONES)
            assert_same(weighted, shoal_clone(model).fit(rows))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", FITS)
def test_a_fit_depends_on_shares_of_the_weight(name):
    weights = np.random.default_rng(4).uniform(size=len(X)) * (np.arange(len(X)) % 11 > 0)
    plain = shoal_clone(FITS[name]).fit(X, sample_weight=weights)
    # Powers of two add no rounding.
    for factor in (2.0**-20, 2.0**20):
        scaled = shoal_clone(FITS[name]).fit(X, sample_weight=factor * weights)
        np.testing.assert_array_equal(scaled.cluster_centers_, plain.cluster_centers_)
        np.testing.assert_array_equal(scaled.labels_, plain.labels_)
        assert scaled.inertia_ == factor * plain.inertia_
        assert (scaled.n_iter_, scaled.stop_reason_) == (plain.n_iter_, plain.stop_reason_)


def shoal_clone(model):
    return type(model)(**model.get_params())


@pytest.mark.parametrize("cls", [MiniBatchKMeans, NestedMiniBatchKMeans, BackwardEulerKMeans])
@pytest.mark.parametrize("size", [7, 400])
def test_batches(cls, size):
    # The first 7 rows are too few for centers and are kept.
    plain, ones, mixed = (cls(20, random_state=5) for _ in range(3))
    for first in range(0, 2000, size):
        batch = X[first : first + size]
        plain.partial_fit(batch)
        ones.partial_fit(batch, sample_weight=np.ones(len(batch)))
        mixed.partial_fit(batch, sample_weight=np.ones(len(batch)) if first % 2 else None)
    for other in (ones, mixed):
        np.testing.assert_array_equal(other.cluster_centers_, plain.cluster_centers_)
        np.testing.assert_array_equal(other.counts_, plain.counts_)
        np.testing.assert_array_equal(other.labels_, plain.labels_)
        assert other.inertia_ == plain.inertia_


def test_functions():
    for choose in (
        shoal.kmeans_plusplus,
        lambda *a, **k: shoal.kmeans_plusplus(*a, greedy=False, **k),
        shoal.afkmc2,
        shoal.kmeans_parallel,
    ):
        plain, ones = (choose(X, 30, sample_weight=w, random_state=2) for w in (None, ONES))
        np.testing.assert_array_equal(plain[1], ones[1])
    plain, ones = (shoal.lightweight_coreset(X, 90, sample_weight=w, random_state=2) for w in (None, ONES))
    np.testing.assert_array_equal(plain.indices, ones.indices)
    np.testing.assert_array_equal(plain.weights, ones.weights)
    streams = [StreamingCoreset(90, random_state=2) for _ in range(2)]
    for stream, weight in zip(streams, (None, 1.0), strict=True):
        for first in range(0, len(X), 500):
            stream.partial_fit(X[first : first + 500], sample_weight=weight)
    plain, ones = (stream.result() for stream in streams)
    np.testing.assert_array_equal(plain.points, ones.points)
    np.testing.assert_array_equal(plain.weights, ones.weights)
    assert metrics.inertia(X, X[:9]) == metrics.inertia(X, X[:9], sample_weight=ONES)
    model = KMeans(9, random_state=0).fit(X)
    assert model.score(X) == model.score(X, sample_weight=ONES)


def test_checkpoints_with_and_without_weights_are_interchangeable(tmp_path):
    path = tmp_path / "kept.safetensors"
    kept = shoal.callbacks.Checkpoint(path, every_steps=1)
    whole = MiniBatchKMeans(20, random_state=5, batch_size=100).fit(X)
    model = MiniBatchKMeans(20, random_state=5, batch_size=100, callbacks=[kept])
    for step in model.iter_fit(X):
        if step.iteration == 3:
            break
    assert_same(shoal.resume(path, X, sample_weight=ONES), whole)


def test_invalid_weights_are_still_refused():
    for bad, match in [
        (np.ones(5), "sample_weight has 5 values, X has 3000 rows"),
        (0.0, "above 0 for at least one row, got zero for every row"),
    ]:
        with pytest.raises(ValueError, match=match):
            KMeans(3).fit(X, sample_weight=bad)
    with pytest.raises(ValueError, match="sample_weight has 4 values, X has 3000 rows"):
        KMeans(3).fit(lambda: iter([X]), sample_weight=np.ones(4))
