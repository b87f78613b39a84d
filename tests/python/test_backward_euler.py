"""Stochastic backward Euler compared with a slow reference: steps, batches, sources and warnings."""

import copy
import json
import pickle
import warnings

import numpy as np
import pytest
import reference
import sbe_reference
import scipy.sparse as sp
import shoal
from shoal import BackwardEulerKMeans
from shoal.callbacks import Checkpoint
from shoal.cli import main
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError

#: The schedule of the paper except for its first step size, without polish.
PLAIN = {"step_decay": 1 / 1.01, "step_cap": None, "polish": False}


def blobs(n, d, k, seed=0, dtype=np.float64, spread=0.3):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(k, d)) * 3
    return (centers[rng.integers(k, size=n)] + spread * rng.normal(size=(n, d))).astype(dtype)


def same(one, other):
    """Whether two estimators have bit-identical state."""
    return (
        (one.cluster_centers_ == other.cluster_centers_).all()
        and (one.counts_ == other.counts_).all()
        and one.n_steps_ == other.n_steps_
        and one.n_iter_ == other.n_iter_
        and (one.step_sizes_ == other.step_sizes_).all()
    )


def close_to(dtype):
    return {"rtol": 1e-5, "atol": 1e-5} if dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-9}


# ---------------------------------------------------------------- against the reference


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("n", "d", "k", "length", "given"),
    [
        (600, 3, 5, 50, {}),
        (300, 1, 4, 30, {"averaging": 0.0, "n_inner": 3}),
        (300, 20, 1, 64, {"step_size": 0.7}),
        (900, 40, 70, 90, {"step_size": 30.0, "step_decay": 0.9}),
        (60, 2, 6, 1, {"step_size": 0.5, "n_inner": 1}),
        (500, 7, 5, 100, {"step_cap": 0.8, "averaging": 0.9, "n_inner": 2}),
    ],
)
def test_partial_fit_is_the_inner_iteration(n, d, k, length, given, weighted, dtype):
    X = blobs(n, d, k, dtype=dtype)
    weights = np.random.default_rng(1).integers(0, 4, size=n) + 0.25 if weighted else None
    plan = {"step_size": float(k), "step_decay": 1 / 1.01, "averaging": 0.75, "n_inner": 5, "step_cap": None}
    plan |= given
    slow = sbe_reference.BackwardEuler(X[:k], **plan, dtype=dtype)
    fast = BackwardEulerKMeans(k, init=X[:k], **plan)
    for batch, at in enumerate(range(0, n, length)):
        some = None if weights is None else weights[at : at + length]
        slow.feed(X[at : at + length], some)
        fast.partial_fit(X[at : at + length], sample_weight=some)
        assert fast.cluster_centers_.dtype == dtype
        np.testing.assert_allclose(fast.cluster_centers_, slow.mean, **close_to(dtype))
        assert (fast.n_steps_, fast.n_iter_) == (batch + 1, (batch + 1) // plan["n_inner"])
    assert slow.least_gap > 1e-7, "the course must be determined"
    assert fast.counts_.sum() == pytest.approx(n if weights is None else weights.sum(), rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_fit_is_the_algorithm_on_rows_that_are_drawn(dtype):
    X = blobs(500, 4, 6, dtype=dtype)
    plan = {"n_inner": 3, "step_decay": 0.95, "averaging": 0.6, "step_size": 5.0, "step_cap": None}
    slow = sbe_reference.BackwardEuler(X[:6], **plan, dtype=dtype)
    given = {"init": X[:6], "batch_size": 40, "max_iter": 12, "random_state": 7, "polish": False}
    model = BackwardEulerKMeans(6, **given, **plan)
    before, drawn = slow.x, 0
    for step in model.iter_fit(X):
        slow.inertia = 0.0
        for _ in range(3):
            slow.feed(X[sbe_reference.batch_of(7, drawn, 500, 40)])
            drawn += 1
        np.testing.assert_allclose(model.cluster_centers_, slow.x, **close_to(dtype))
        assert step.objective == pytest.approx(slow.inertia, rel=1e-4 if dtype == np.float32 else 1e-9)
        shift = np.sqrt(((slow.x - before) ** 2).sum())
        assert step.center_shift == pytest.approx(shift, rel=1e-2 if dtype == np.float32 else 1e-6, abs=1e-6)
        assert (step.batch_size, step.n_distances, step.n_changed) == (120, 720, 0)
        before = slow.x
    assert slow.least_gap > 1e-7, "the course must be determined"
    np.testing.assert_allclose(model.step_sizes_, slow.step_sizes, rtol=1e-14)
    assert (model.n_iter_, model.n_steps_, model.stop_reason_) == (12, 36, "max-iter")
    assert (model.history_["rows_seen"] == 120 * np.arange(1, 13)).all()
    assert (model.history_["iteration"] == np.arange(1, 13)).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("batch_size", [500, 10**9])
def test_a_batch_of_all_rows_is_the_deterministic_step(batch_size, weighted):
    X = blobs(500, 3, 4)
    weights = np.random.default_rng(3).random(500) if weighted else None
    plan = {"n_inner": 8, "step_decay": 1.0, "averaging": 0.5, "step_size": 3.0, "step_cap": None}
    slow = sbe_reference.BackwardEuler(X[:4], **plan)
    for _ in range(5 * 8):
        slow.feed(X, weights)
    given = {"init": X[:4], "batch_size": batch_size, "max_iter": 5, "polish": False, **plan}
    one, other = (
        BackwardEulerKMeans(4, random_state=seed, **given).fit(X, sample_weight=weights) for seed in (0, 1)
    )
    np.testing.assert_allclose(one.cluster_centers_, slow.x, rtol=1e-9)
    assert (one.cluster_centers_ == other.cluster_centers_).all(), "nothing is drawn"
    assert (one.history_["batch_size"] == 8 * 500).all()


# ---------------------------------------------------------------- mathematical properties


def test_the_implicit_equation_is_solved_and_the_objective_falls():
    X = blobs(400, 3, 5, spread=1.0)
    # The step size is below 1 / L for any cluster sizes, because L <= 1.
    step_size = 0.9
    x = X[:5]
    for _ in range(4):
        plan = PLAIN | {"step_size": step_size, "step_decay": 1.0, "averaging": 0.0, "n_inner": 400}
        model = BackwardEulerKMeans(5, init=x, batch_size=400, max_iter=1, **plan).fit(X)
        y = model.cluster_centers_
        residual = y + step_size * sbe_reference.gradient(X, y) - x
        np.testing.assert_allclose(residual, 0, atol=1e-9)
        assert sbe_reference.phi(X, y) < sbe_reference.phi(X, x)
        x = y


def test_the_inner_iteration_descends():
    X = blobs(300, 2, 4, spread=1.0)
    step_size, x = 0.9, X[:4]

    def moreau(y):
        return sbe_reference.phi(X, y) + ((y - x) ** 2).sum() / (2 * step_size)

    model = BackwardEulerKMeans(4, init=x, step_size=step_size, averaging=0.0, n_inner=60)
    values = [moreau(x), *(moreau(model.partial_fit(X).cluster_centers_) for _ in range(59))]
    assert (np.diff(values) <= 1e-12 * values[0]).all()
    assert values[-1] < 0.95 * values[0]


def test_one_cluster_moves_to_the_balance_of_anchor_and_mean():
    X = blobs(200, 3, 2)
    x, step_size = X[:1], 0.8
    given = {"averaging": 0.0, "n_inner": 300, "max_iter": 1, "batch_size": 200, "polish": False}
    model = BackwardEulerKMeans(1, init=x, step_size=step_size, **given).fit(X)
    expected = (x[0] + step_size * X.mean(axis=0)) / (1 + step_size)
    np.testing.assert_allclose(model.cluster_centers_[0], expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("still", [{"step_size": 0.0}, {"averaging": 1.0}])
def test_step_size_zero_and_averaging_one_keep_the_centers(still, dtype):
    X = blobs(300, 3, 4, dtype=dtype) / 3
    given = {"init": X[:4], "batch_size": 50, "max_iter": 6, "random_state": 0, "polish": False}
    model = BackwardEulerKMeans(4, **given, **still).fit(X)
    assert (model.cluster_centers_ == X[:4]).all()


def test_without_averaging_the_last_iterate_is_the_result():
    X = blobs(300, 3, 4)
    plan = {"step_size": 3.0, "step_decay": 1.0, "averaging": 0.0, "n_inner": 4, "step_cap": None}
    slow = sbe_reference.BackwardEuler(X[:4], **plan)
    model = BackwardEulerKMeans(4, init=X[:4], **plan)
    for batch in np.split(X[:240], 4):
        last = slow.y
        slow.feed(batch)
        model.partial_fit(batch)
        np.testing.assert_allclose(model.cluster_centers_, slow.mean, rtol=1e-12)
    assert (slow.x != last).any()


# A batch can have no row of a cluster.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_mini_batch_gradients_are_unbiased():
    X = blobs(400, 2, 3, spread=1.0)
    centers, size, n = X[:3], 40, 1500
    # One inner iteration without averaging: the shift is minus the step size times the gradient of the batch.
    moves = np.zeros((3, 2))
    squares = np.zeros((3, 2))
    for seed in range(n):
        given = {"step_size": 1.0, "averaging": 0.0, "n_inner": 1, "max_iter": 1, "compute_labels": False}
        given["polish"] = False
        model = BackwardEulerKMeans(3, init=centers, batch_size=size, random_state=seed, n_jobs=1, **given)
        move = centers - model.fit(X).cluster_centers_
        moves += move / n
        squares += move**2 / n
    error = np.sqrt((squares - moves**2) / n)
    assert (np.abs(moves - sbe_reference.gradient(X, centers)) < 5 * error).all()


def test_translation_and_the_order_of_centers_do_not_matter():
    X = blobs(400, 3, 5)
    given = {"batch_size": 60, "max_iter": 20, "random_state": 1}
    model = BackwardEulerKMeans(5, init=X[:5], **given).fit(X)
    away = np.array([50.0, -30.0, 7.0])
    moved = BackwardEulerKMeans(5, init=X[:5] + away, **given).fit(X + away)
    np.testing.assert_allclose(moved.cluster_centers_ - away, model.cluster_centers_, atol=1e-9)
    turned = BackwardEulerKMeans(5, init=X[4::-1], **given).fit(X)
    np.testing.assert_allclose(turned.cluster_centers_[::-1], model.cluster_centers_, atol=1e-10)
    assert (4 - turned.labels_ == model.labels_).all()


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_scaling_the_rows_scales_the_centers(scale):
    X = blobs(300, 3, 4)
    given = {"batch_size": 50, "max_iter": 10, "random_state": 1}
    model = BackwardEulerKMeans(4, init=X[:4], **given).fit(X)
    scaled = BackwardEulerKMeans(4, init=X[:4] * scale, **given).fit(X * scale)
    np.testing.assert_allclose(scaled.cluster_centers_ / scale, model.cluster_centers_, rtol=1e-9)


def test_iris_is_solved_from_random_starts():
    X = load_iris().data
    given = {"batch_size": 60, "n_inner": 5, "max_iter": 100, "n_jobs": 1}
    found = np.array(
        [BackwardEulerKMeans(3, random_state=seed, **given).fit(X).inertia_ / 300 for seed in range(100)]
    )
    assert (found < 0.27).sum() >= 98, np.sort(found)[-5:]
    # Iris is not easy from random starts: Lloyd's algorithm ends higher from some of them.
    exact = [
        shoal.KMeans(3, init="random", n_init=1, random_state=seed, n_jobs=1).fit(X).inertia_ / 300
        for seed in range(100)
    ]
    assert (np.array(exact) < 0.27).sum() < 90


def test_it_leaves_a_local_minimum_of_lloyd():
    rng = np.random.default_rng(0)
    means = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0], [5.0, 5.0]])
    X = (means[:, None] + 0.5 * rng.normal(size=(4, 1000, 2))).reshape(-1, 2)
    # Two centers in one cluster, and one center for two clusters.
    stuck = shoal.KMeans(4, init=[[-0.3, 0], [0.3, 0], [0, 5], [5, 2.5]], n_init=1, tol=0.0).fit(X)
    best = shoal.KMeans(4, init=means, n_init=1, tol=0.0).fit(X)
    assert stuck.inertia_ > 5 * best.inertia_
    model = BackwardEulerKMeans(4, init=stuck.cluster_centers_, random_state=0, polish=True).fit(X)
    assert model.inertia_ == pytest.approx(best.inertia_, rel=1e-3)


# ---------------------------------------------------------------- empty clusters, weights


def test_a_center_without_rows_returns_to_its_anchor():
    init = np.array([[0.0], [10.0]])
    model = BackwardEulerKMeans(2, init=init, averaging=0.0, step_size=1.0, n_inner=3)
    model.partial_fit([[0.0], [8.0]])
    assert model.cluster_centers_.ravel().tolist() == [0.0, 9.0]
    model.partial_fit([[1.0], [2.0]])
    assert model.cluster_centers_.ravel().tolist() == [1.5, 10.0]


def test_a_center_that_never_gets_rows_stays_with_a_warning():
    X = blobs(500, 2, 3)
    init = np.vstack([X[:2], [[1e3, 1e3]]])
    given = {"init": init, "batch_size": 50, "max_iter": 20, "random_state": 0}
    with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(2\)"):
        model = BackwardEulerKMeans(3, polish=False, **given).fit(X)
    assert model.cluster_centers_[2].tolist() == [1e3, 1e3]
    assert model.counts_[2] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        polished = BackwardEulerKMeans(3, **given).fit(X)
    assert (polished.counts_ > 0).all()


def test_rows_are_drawn_by_weight():
    X = np.arange(200.0)[:, None]
    weights = np.zeros(200)
    weights[[3, 70, 199]] = [1.0, 2.0, 5.0]
    plan = {"init": [[0.0]], "batch_size": 199, "step_size": 1.0, "step_decay": 1.0, "averaging": 0.99}
    given = {**plan, "max_iter": 800, "random_state": 0, "polish": False}
    model = BackwardEulerKMeans(1, **given, n_inner=1).fit(X, sample_weight=weights)
    assert model.cluster_centers_[0, 0] == pytest.approx((3 * 1 + 70 * 2 + 199 * 5) / 8, rel=0.01)
    again = BackwardEulerKMeans(1, **given, n_inner=1).fit(X, sample_weight=1024 * weights)
    assert (model.cluster_centers_ == again.cluster_centers_).all(), "the unit of weights does not matter"


def test_weights_of_a_stream_count_and_batches_of_weight_zero_are_skipped():
    X = blobs(400, 3, 4)
    weights = np.r_[np.zeros(100), np.random.default_rng(0).integers(0, 3, size=300)].astype(float)
    given = {"init": X[:4], "batch_size": 50, "max_iter": 3, "n_inner": 4, "step_size": 4.0, **PLAIN}
    stream = BackwardEulerKMeans(4, **given).fit(lambda: iter(np.split(X, 8)), sample_weight=weights)
    slow = sbe_reference.BackwardEuler(X[:4], 4.0, 1 / 1.01, 0.75, 4)
    for batch in (2, 3, 4, 5, 6, 7) * 2:
        slow.feed(X[50 * batch :][:50], weights[50 * batch :][:50])
    np.testing.assert_allclose(stream.cluster_centers_, slow.x, rtol=1e-9)
    assert stream.inertia_ == pytest.approx(
        reference.inertia(X, stream.cluster_centers_, stream.labels_, weights), rel=1e-12
    )


# ---------------------------------------------------------------- divergence


def said(action):
    """Return the warnings of a call as one text."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        action()
    assert all(each.category is ConvergenceWarning for each in found)
    return "; ".join(str(each.message) for each in found)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("step_size", [1e39, 1e150, 1.7e308])
def test_steps_that_diverge_end_with_a_warning_and_finite_centers(step_size, dtype):
    X = blobs(300, 3, 4, dtype=dtype)
    model = BackwardEulerKMeans(4, step_size=step_size, batch_size=50, random_state=0, **PLAIN)
    assert "left the rows far behind" in said(lambda: model.fit(X))
    assert model.stop_reason_ == "diverged"
    assert np.isfinite(model.cluster_centers_).all()
    assert np.isfinite(model.inertia_)
    assert (model.labels_ == model.predict(X)).all()
    assert len(model.step_sizes_) == model.n_iter_ == len(model.history_) - 1
    stream = BackwardEulerKMeans(4, step_size=step_size, init=X[:4], **PLAIN)
    assert "left the rows far behind" in said(lambda: [stream.partial_fit(X) for _ in range(60)])
    assert np.isfinite(stream.cluster_centers_).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("step_size", [16.0, 25.0, 50.0, 100.0])
def test_divergence_is_detected_before_overflow(step_size, dtype):
    X = blobs(600, 3, 4, dtype=dtype)
    model = BackwardEulerKMeans(4, step_size=step_size, n_inner=10, random_state=0, max_iter=100, **PLAIN)
    warning = said(lambda: model.fit(X))
    assert f"step_size={step_size}" in warning
    assert f"after {model.n_iter_} outer steps" in warning
    assert "distinct clusters" not in warning
    assert model.stop_reason_ == "diverged"
    assert len(model.step_sizes_) == model.n_iter_ == len(model.history_) - 1 > 0
    # Far away, but not farther than a million times the variance of the rows.
    assert model.inertia_ < 1e6 * ((X - X.mean(axis=0)) ** 2).sum()
    assert (model.labels_ == model.predict(X)).all()


def test_useful_fits_do_not_count_as_divergence():
    iris = load_iris().data
    for step_size, n_inner in ((6.0, 5), (8.0, 5), (6.0, 10)):
        for seed in range(8):
            given = {"n_inner": n_inner, "batch_size": 60, "max_iter": 60, "random_state": seed, **PLAIN}
            model = BackwardEulerKMeans(3, step_size=step_size, **given)
            assert model.fit(iris).stop_reason_ == "max-iter"
    # Rows far from all others, and a stream that drifts.
    X = blobs(600, 3, 4)
    far = X.copy()
    far[[17, 444]] = 1e9
    given = {"batch_size": 60, "random_state": 1, "max_iter": 60}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for plan in ({"polish": False}, {"step_size": 4.0, **PLAIN}):
            assert BackwardEulerKMeans(4, **given, **plan).fit(far).stop_reason_ == "max-iter"
    stream = BackwardEulerKMeans(4, random_state=0)
    for place in (0.0, 1e6, -1e9, 0.0):
        assert said(lambda place=place: [stream.partial_fit(X + place) for _ in range(7)]) == ""


def test_the_scale_of_the_divergence_check_is_saved(tmp_path):
    X = blobs(600, 3, 4)
    given = {"step_size": 30.0, "n_inner": 10, "batch_size": 80, "random_state": 0, **PLAIN}
    whole = BackwardEulerKMeans(4, **given)
    ends = said(lambda: whole.fit(X))
    path = tmp_path / "run.safetensors"
    for _ in BackwardEulerKMeans(4, callbacks=[Checkpoint(path)], **given).iter_fit(X):
        break
    again = []
    assert said(lambda: again.append(shoal.resume(path, X))) == ends
    assert same(whole, again[0])
    assert again[0].stop_reason_ == "diverged"


# ---------------------------------------------------------------- the defaults


def test_the_default_schedule_falls_from_three_times_the_clusters_to_a_twentieth_with_a_cap():
    X = blobs(900, 3, 5, spread=1.0)
    given = {"batch_size": 60, "max_iter": 30, "random_state": 0}
    spelt = {"step_size": 15.0, "step_decay": 20 ** (-1 / 30), "step_cap": 1.8, "polish": True}
    for inner, cap in ((5, 1.8), (6, 1.5)):
        auto = BackwardEulerKMeans(5, n_inner=inner, **given).fit(X)
        other = BackwardEulerKMeans(5, n_inner=inner, **given, **spelt | {"step_cap": cap}).fit(X)
        np.testing.assert_allclose(auto.cluster_centers_, other.cluster_centers_, rtol=1e-9)
        np.testing.assert_allclose(auto.step_sizes_, 15.0 * 20 ** (-np.arange(30) / 30))
        assert (auto.stop_reason_, len(auto.history_) > 30) == (other.stop_reason_, True)


def test_polish_runs_for_replayable_rows_but_not_for_iterators():
    X = blobs(900, 3, 5, spread=1.0)
    given = {"batch_size": 60, "max_iter": 3, "random_state": 0}
    for rows in (X, lambda: iter([X])):
        assert len(BackwardEulerKMeans(5, **given).fit(rows).history_) > 3
        assert len(BackwardEulerKMeans(5, polish=False, **given).fit(rows).history_) == 3
    assert len(BackwardEulerKMeans(5, **given).fit(iter([X])).history_) == 3


def test_by_default_it_ends_no_higher_than_lloyd_from_the_same_starts():
    rng = np.random.default_rng(1)
    # Many rows in few clusters, and few rows in many clusters: random starts miss some of them.
    sizes = [2000, 1500, 400, 300, 200, 150, 100, 100]
    centers = 8 * rng.normal(size=(8, 2))
    X = np.vstack([c + rng.normal(size=(m, 2)) for c, m in zip(centers, sizes, strict=True)])
    ours, theirs = [], []
    for seed in range(12):
        start = X[np.random.default_rng(seed).choice(len(X), 8, replace=False)]
        model = BackwardEulerKMeans(8, init=start, batch_size=500, max_iter=60, random_state=seed).fit(X)
        ours.append(model.inertia_)
        theirs.append(shoal.KMeans(8, init=start, n_init=1, tol=0.0).fit(X).inertia_)
    assert np.mean(ours) < 0.95 * np.mean(theirs)


# ---------------------------------------------------------------- starving clusters


@pytest.fixture
def far_from_one():
    """Rows around two places, and three centers, the third near three distant rows."""
    X = blobs(6000, 2, 2)
    X[:3] = 500.0
    return X, np.vstack([X[10:12], [[490.0, 490.0]]])


def test_a_starving_cluster_is_warned_of(far_from_one):
    X, init = far_from_one
    given = {"init": init, "batch_size": 500, "max_iter": 20, "random_state": 0}
    text = r"1 of 3 clusters starve: .* hardly moved \(clusters 2\)"
    with pytest.warns(ConvergenceWarning, match=text):
        model = BackwardEulerKMeans(3, polish=False, **given).fit(X)
    assert model.counts_[2] == 3
    with pytest.warns(ConvergenceWarning, match=text):
        BackwardEulerKMeans(3, polish=False, compute_labels=False, **given).fit(X)
    with pytest.warns(ConvergenceWarning, match=text):
        BackwardEulerKMeans(3, **given).fit(iter(np.split(X, 12)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        polished = BackwardEulerKMeans(3, **given).fit(X)
    np.testing.assert_allclose(polished.cluster_centers_[2], [500.0, 500.0])


def test_streams_warn_of_starving_clusters_and_save_the_count(far_from_one):
    X, init = far_from_one
    model = BackwardEulerKMeans(3, init=init, random_state=0)
    assert said(lambda: [model.partial_fit(X[:50]) for _ in range(99)]) == ""
    model = pickle.loads(pickle.dumps(model))
    # The saved count is 99 batches old.
    assert said(lambda: model.partial_fit(X[100:200])).count("starve") == 0
    assert said(lambda: [model.partial_fit(X[100:200]) for _ in range(99)]) == ""
    # Batches with rows of the third cluster have faded by now.
    assert said(lambda: [model.partial_fit(X[3:]) for _ in range(101)]).count("1 of 3 clusters starve") == 1


# ---------------------------------------------------------------- fits, sources, files


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("polish", [False, True])
def test_labels_inertia_counts_and_centers_are_consistent(dtype, polish):
    X = blobs(3000, 4, 6, dtype=dtype)
    weights = np.random.default_rng(0).random(3000)
    model = BackwardEulerKMeans(6, random_state=0, batch_size=200, max_iter=30, polish=polish)
    model.fit(X, sample_weight=weights)
    labels, _, gap = reference.nearest(X, model.cluster_centers_)
    clear = gap > 1e-5
    assert (model.labels_[clear] == labels[clear]).all()
    assert (model.labels_ == model.predict(X)).all()
    expected = reference.inertia(X, model.cluster_centers_, model.labels_, weights)
    assert model.inertia_ == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(model.counts_, np.bincount(model.labels_, weights, 6), rtol=1e-12)


def test_the_polish_is_exact_k_means_from_the_last_outer_step():
    X = blobs(2000, 3, 6, spread=1.5)
    given = {"batch_size": 100, "max_iter": 20, "random_state": 2, "step_size": 6.0}
    given |= {"step_decay": 1 / 1.01, "step_cap": None}
    plain = BackwardEulerKMeans(6, polish=False, **given).fit(X)
    exact = shoal.KMeans(6, init=plain.cluster_centers_, n_init=1).fit(X)
    polished = BackwardEulerKMeans(6, polish=True, **given).fit(X)
    assert (polished.cluster_centers_ == exact.cluster_centers_).all()
    assert (polished.labels_ == exact.labels_).all()
    assert polished.inertia_ == exact.inertia_ < plain.inertia_
    assert polished.stop_reason_ == exact.stop_reason_
    assert (polished.n_iter_, len(polished.step_sizes_)) == (20, 20)
    assert (polished.history_["objective"][20:] == exact.history_["objective"]).all()
    assert (polished.history_["iteration"] == np.arange(1, 21 + exact.n_iter_)).all()
    # A further batch continues from the polished centers.
    batch = polished.partial_fit(X[:100])
    slow = sbe_reference.BackwardEuler(exact.cluster_centers_, 6 / 1.01**20, 1 / 1.01, 0.75, 5)
    slow.feed(X[:100])
    np.testing.assert_allclose(batch.cluster_centers_, slow.mean, rtol=1e-10)
    with pytest.raises(ValueError, match="polish=True reads its rows more than once"):
        BackwardEulerKMeans(6, polish=True).fit(iter([X]))


def test_fit_equals_iter_fit_and_starts_afresh():
    X = blobs(2000, 3, 5)
    given = {"random_state": 0, "batch_size": 100, "max_iter": 12, "polish": False}
    one = BackwardEulerKMeans(5, **given).fit(X)
    other = BackwardEulerKMeans(5, **given).partial_fit(X[:50] + 9)
    for step in other.iter_fit(X):
        assert other.n_iter_ == step.iteration == len(other.step_sizes_)
        assert (other.labels_ == other.predict(X)).all()
    assert same(one, other)
    assert (one.labels_ == other.labels_).all()
    for step in (left := BackwardEulerKMeans(5, **given)).iter_fit(X):
        if step.iteration == 3:
            break
    assert (left.labels_ == left.predict(X)).all()
    # From the third outer step on, one batch at a time.
    twin = copy.deepcopy(left)
    assert same(left.partial_fit(X[:70]), twin.partial_fit(X[:70]))
    assert (left.n_iter_, left.n_steps_, len(left.step_sizes_)) == (3, 16, 3)
    for _ in range(9):
        left.partial_fit(X[:70])
    assert (left.n_iter_, len(left.step_sizes_)) == (5, 3), "those of the fit"
    assert len(BackwardEulerKMeans(5, n_inner=1).partial_fit(X).step_sizes_) == 0
    assert (left.labels_ == left.predict(X[:70])).all(), "those of the batch"


@pytest.mark.parametrize("n_jobs", [2, 3, 5])
def test_threads_and_storage_do_not_change_results(n_jobs, tmp_path):
    X = blobs(9000, 30, 40, dtype=np.float32)
    np.save(tmp_path / "rows.npy", X)
    given = {"random_state": 2, "batch_size": 3000, "max_iter": 4, "n_inner": 2, "step_size": 40.0}
    given |= {"step_decay": 1 / 1.01, "step_cap": None, "polish": n_jobs == 2}
    alone = BackwardEulerKMeans(40, n_jobs=1, **given).fit(X)
    for rows in (X, np.load(tmp_path / "rows.npy", mmap_mode="r"), tmp_path / "rows.npy"):
        model = BackwardEulerKMeans(40, n_jobs=n_jobs, **given).fit(rows)
        assert same(alone, model)
        assert (alone.labels_ == model.labels_).all()
        assert alone.inertia_ == model.inertia_


def test_a_stream_is_cut_into_consecutive_batches_for_any_block_size():
    X = blobs(1700, 3, 5)
    given = {"init": X[:5], "batch_size": 300, "n_inner": 4, "max_iter": 6, "compute_labels": False}
    given["polish"] = False
    batches = BackwardEulerKMeans(5, **given)
    for _ in range(4):
        for start in range(0, 1700, 300):
            batches.partial_fit(X[start : start + 300])
    for length in (7, 300, 5000):
        blocks = [X[start : start + length] for start in range(0, 1700, length)]
        stream = BackwardEulerKMeans(5, **given).fit(lambda blocks=blocks: iter(blocks))
        assert (stream.cluster_centers_ == batches.cluster_centers_).all()
        assert (stream.n_iter_, stream.n_steps_) == (6, 24)
        once = BackwardEulerKMeans(5, **given).fit(iter(blocks))
        # Six batches: four in one outer step, and two in another.
        assert (once.n_iter_, once.n_steps_, len(once.step_sizes_)) == (2, 6, 2)
        assert once.history_["batch_size"].tolist() == [1200, 500]


def test_sparse_rows_give_the_results_of_dense_rows():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((400, 30)) < 0.2, rng.normal(size=(400, 30)), 0.0)
    given = {"init": X[:6], "batch_size": 60, "max_iter": 8, "random_state": 0}
    dense = BackwardEulerKMeans(6, **given).fit(X)
    sparse = BackwardEulerKMeans(6, **given).fit(sp.csr_array(X))
    np.testing.assert_allclose(sparse.cluster_centers_, dense.cluster_centers_, rtol=1e-9, atol=1e-12)
    assert (sparse.labels_ == dense.labels_).all()
    few = BackwardEulerKMeans(6, random_state=0).partial_fit(sp.csr_array(X[:3]))
    assert few.partial_fit(sp.csr_array(X[3:])).counts_.sum() == 400


def test_rows_of_a_short_first_batch_are_kept():
    X = blobs(60, 3, 5)
    model = BackwardEulerKMeans(20, random_state=0)
    for start in range(0, 18, 6):
        model.partial_fit(X[start : start + 6])
        with pytest.raises(NotFittedError):
            model.predict(X)
        model = pickle.loads(pickle.dumps(model))
    model.partial_fit(X[18:60])
    assert model.counts_.sum() == 60
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :2])


@pytest.mark.parametrize(
    "bad",
    [
        np.empty((0, 3)),
        np.zeros((4, 2)),
        np.array([[0.0, np.nan, 1.0]]),
        np.array([[0.0, np.inf, 1.0]] * 50),
        # More rows than centers, each as far from the others as any.
        1e200 * np.arange(18.0).reshape(6, 3),
    ],
)
@pytest.mark.parametrize("before", [2, 40])
def test_an_invalid_batch_leaves_the_state_unchanged(bad, before):
    X = blobs(100, 3, 5)
    model = BackwardEulerKMeans(5, random_state=0).partial_fit(X[:before])
    twin, kept = copy.deepcopy(model), pickle.dumps(model)
    with pytest.raises(ValueError, match=r"0 sample|features|NaN|inf|overflow"):
        model.partial_fit(bad)
    with pytest.raises(ValueError, match="sample_weight"):
        model.partial_fit(X[:3], sample_weight=[1.0, -1.0, 2.0])
    assert pickle.dumps(model) == kept
    assert same(model.partial_fit(X[before:]), twin.partial_fit(X[before:]))


def test_pickled_saved_and_copied_estimators_continue_with_identical_results(tmp_path):
    X = blobs(4000, 3, 8, dtype=np.float32)
    plain, kept, file = (BackwardEulerKMeans(8, random_state=5, step_size=9) for _ in range(3))
    for start in range(0, 4000, 570):
        batch = X[start : start + 570]
        plain.partial_fit(batch)
        kept = copy.deepcopy(pickle.loads(pickle.dumps(kept.partial_fit(batch))))
        file.partial_fit(batch).save(tmp_path / "model.safetensors")
        file = shoal.load(tmp_path / "model.safetensors")
    assert type(file) is BackwardEulerKMeans
    assert same(plain, kept)
    assert same(plain, file)
    fitted = BackwardEulerKMeans(8, random_state=5, max_iter=9, init=X[:8], step_decay=1 / 1.01).fit(X)
    fitted.save(tmp_path / "model.safetensors")
    again = shoal.load(tmp_path / "model.safetensors")
    assert same(fitted, again)
    assert (again.history_ == fitted.history_).all()
    assert (again.get_params()["step_decay"], again.inertia_) == (1 / 1.01, fitted.inertia_)
    assert same(fitted.partial_fit(X), again.partial_fit(X))


def test_parameters_changed_between_batches_apply_from_then_on():
    X = blobs(300, 3, 4)
    slow = sbe_reference.BackwardEuler(X[:4], 4.0, 0.5, 0.75, 2)
    model = BackwardEulerKMeans(4, init=X[:4], step_size=4.0, step_decay=0.5, n_inner=2, step_cap=None)
    for batch in np.split(X, 6):
        slow.feed(batch)
        model.partial_fit(batch)
        model.set_params(step_size=slow.step_size / 0.5 ** len(slow.step_sizes), averaging=0.5)
        slow.averaging = 0.5
    np.testing.assert_allclose(model.cluster_centers_, slow.mean, rtol=1e-9)
    # The decay of the previous steps also applies to the new initial step size.
    model.set_params(step_size=1.0)
    slow.step_size = 1.0 * 0.5**3
    slow.feed(X)
    np.testing.assert_allclose(model.partial_fit(X).cluster_centers_, slow.mean, rtol=1e-9)
    with pytest.raises(ValueError, match="n_clusters=5 differs from the 4 centers"):
        model.set_params(n_clusters=5).partial_fit(X)


class EnoughError(Exception):
    """An error in user code."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("after", [1, 4, 7])
def test_a_resumed_fit_gives_identical_results(after, stream, tmp_path):
    X = blobs(900, 3, 6, dtype=np.float32, spread=1.0)
    rows = (lambda: iter(np.split(X, 9))) if stream else X
    given = {"batch_size": 70, "max_iter": 5, "n_inner": 4, "random_state": 3, "polish": True}
    whole = BackwardEulerKMeans(6, **given).fit(rows)
    path = tmp_path / "run.safetensors"

    def leave(_, step):
        if step.iteration == after:
            raise EnoughError

    with pytest.raises(EnoughError):
        BackwardEulerKMeans(6, callbacks=[Checkpoint(path, every_steps=1), leave], **given).fit(rows)
    again = shoal.resume(path, rows)
    assert same(whole, again)
    assert (whole.labels_ == again.labels_).all()
    assert whole.inertia_ == again.inertia_
    fields = [name for name in whole.history_.dtype.names if name not in ("elapsed", "n_distances")]
    assert (whole.history_[fields] == again.history_[fields]).all()


# ---------------------------------------------------------------- errors, command line


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        ({"step_size": -1.0}, "step_size must be 'auto' or a finite number of at least 0, got -1.0"),
        ({"step_size": float("inf")}, "step_size"),
        ({"step_size": float("nan")}, "step_size"),
        ({"step_size": "big"}, "step_size"),
        ({"step_size": None}, "step_size"),
        ({"step_decay": 0.0}, "step_decay must be 'auto' or a number above 0 and at most 1, got 0.0"),
        ({"step_decay": 1.5}, "step_decay"),
        ({"step_decay": "slow"}, "step_decay"),
        ({"averaging": -0.1}, "averaging must be a number from 0 to 1, got -0.1"),
        ({"averaging": 1.1}, "averaging"),
        ({"n_inner": 0}, "n_inner must be an integer of at least 1"),
        ({"max_iter": 0}, "max_iter"),
        ({"step_cap": 0.0}, "step_cap must be 'auto', None or a finite number above 0, got 0.0"),
        ({"step_cap": float("inf")}, "step_cap"),
        ({"polish": "yes"}, "polish must be 'auto', True or False"),
        ({"polish": None}, "polish must be 'auto', True or False, got None"),
        ({"compute_labels": 1}, "compute_labels must be True or False"),
        ({"n_clusters": 0}, "n_clusters"),
        ({"init": "best"}, "init must be one of"),
        ({"init": [[0.0, 0.0]]}, r"init must have shape \(2, 2\)"),
    ],
)
def test_invalid_parameters(given, text):
    X = blobs(50, 2, 2)
    model = BackwardEulerKMeans(**{"n_clusters": 2, **given})
    for use in (model.fit, model.iter_fit, model.partial_fit):
        with pytest.raises(ValueError, match=text):
            use(X)
    assert not hasattr(model, "cluster_centers_")


def test_all_problems_are_listed_at_once():
    wrong = {"batch_size": 0, "step_size": -1, "step_decay": 2, "averaging": 7, "n_inner": 0, "step_cap": -1}
    pattern = "n_clusters.*max_iter.*batch_size.*step_size.*step_decay.*averaging.*n_inner.*step_cap"
    with pytest.raises(ValueError, match=pattern):
        BackwardEulerKMeans(0, max_iter=0, **wrong).fit([[0.0]])


def test_non_finite_rows_are_named_by_position():
    X = blobs(500, 3, 2)
    X[321, 1] = np.nan
    for size in (100, 500):
        with pytest.raises(ValueError, match="row 321, column 1"):
            BackwardEulerKMeans(2, init=X[:2], random_state=0, batch_size=size).fit(X)


def test_on_the_command_line(tmp_path, capsys):
    X = blobs(600, 3, 4)
    np.save(tmp_path / "rows.npy", X)
    model = tmp_path / "model.safetensors"
    given = ["fit", tmp_path / "rows.npy", "-k", 4, "--method", "sbe", "--seed", 3, "--max-iter", 20]
    given += ["--set", "batch_size=90", "--set", "polish=true", "-o", model, "--json", "--quiet"]
    assert main([str(argument) for argument in given]) == 0
    result = json.loads(capsys.readouterr().out)
    here = BackwardEulerKMeans(4, batch_size=90, max_iter=20, polish=True, random_state=3).fit(X)
    assert (result["method"], result["inertia"]) == ("sbe", here.inertia_)
    assert (shoal.load(model).cluster_centers_ == here.cluster_centers_).all()
    rows = str(tmp_path / "rows.npy")
    assert main(["compare", rows, "-k", "4", "--methods", "kmeans,sbe", "--json", "--quiet"]) == 0
    assert "sbe" in capsys.readouterr().out
