"""Stochastic backward Euler compared with a slow reference: steps, batches, sources and warnings."""

import pickle
import warnings

import numpy as np
import pytest
import reference
import sbe_reference
import shoal
from backward_euler_rows import PLAIN, close_to, same
from generated import blobs, tight_blobs
from shoal import BackwardEulerKMeans
from shoal.callbacks import Checkpoint
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

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
    X = tight_blobs(n, d, k, dtype=dtype)
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
    X = tight_blobs(500, 4, 6, dtype=dtype)
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
    X = tight_blobs(500, 3, 4)
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
    X = blobs(400, 3, 5, apart=3.0, width=1.0)
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
    X = blobs(300, 2, 4, apart=3.0, width=1.0)
    step_size, x = 0.9, X[:4]

    def moreau(y):
        return sbe_reference.phi(X, y) + ((y - x) ** 2).sum() / (2 * step_size)

    model = BackwardEulerKMeans(4, init=x, step_size=step_size, averaging=0.0, n_inner=60)
    values = [moreau(x), *(moreau(model.partial_fit(X).cluster_centers_) for _ in range(59))]
    assert (np.diff(values) <= 1e-12 * values[0]).all()
    assert values[-1] < 0.95 * values[0]


def test_one_cluster_moves_to_the_balance_of_anchor_and_mean():
    X = tight_blobs(200, 3, 2)
    x, step_size = X[:1], 0.8
    given = {"averaging": 0.0, "n_inner": 300, "max_iter": 1, "batch_size": 200, "polish": False}
    model = BackwardEulerKMeans(1, init=x, step_size=step_size, **given).fit(X)
    expected = (x[0] + step_size * X.mean(axis=0)) / (1 + step_size)
    np.testing.assert_allclose(model.cluster_centers_[0], expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("still", [{"step_size": 0.0}, {"averaging": 1.0}])
def test_step_size_zero_and_averaging_one_keep_the_centers(still, dtype):
    X = tight_blobs(300, 3, 4, dtype=dtype) / 3
    given = {"init": X[:4], "batch_size": 50, "max_iter": 6, "random_state": 0, "polish": False}
    model = BackwardEulerKMeans(4, **given, **still).fit(X)
    assert (model.cluster_centers_ == X[:4]).all()


def test_without_averaging_the_last_iterate_is_the_result():
    X = tight_blobs(300, 3, 4)
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
    X = blobs(400, 2, 3, apart=3.0, width=1.0)
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
    X = tight_blobs(400, 3, 5)
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
    X = tight_blobs(300, 3, 4)
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
    # The schedule of the paper from random rows: the step size is the number of clusters.
    paper = {"init": "random", "step_decay": 1 / 1.01, "step_cap": None, "polish": False} | given
    model = BackwardEulerKMeans(3, random_state=0, **paper).fit(X)
    assert model.step_sizes_[0] == 3.0
    found = [BackwardEulerKMeans(3, random_state=seed, **paper).fit(X).inertia_ / 300 for seed in range(100)]
    assert (np.array(found) < 0.27).sum() >= 95, np.sort(found)[-5:]
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
    X = tight_blobs(500, 2, 3)
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
    X = tight_blobs(400, 3, 4)
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
    X = tight_blobs(300, 3, 4, dtype=dtype)
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
    X = tight_blobs(600, 3, 4, dtype=dtype)
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
            model = BackwardEulerKMeans(3, init="random", step_size=step_size, **given)
            assert model.fit(iris).stop_reason_ == "max-iter"
    # Rows far from all others, and a stream that drifts.
    X = tight_blobs(600, 3, 4)
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
    X = tight_blobs(600, 3, 4)
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
    X = blobs(900, 3, 5, apart=3.0, width=1.0)
    given = {"batch_size": 60, "max_iter": 30, "random_state": 0}
    spelt = {"step_size": 15.0, "step_decay": 20 ** (-1 / 30), "step_cap": 1.8, "polish": True}
    for inner, cap in ((5, 1.8), (6, 1.5)):
        auto = BackwardEulerKMeans(5, n_inner=inner, **given).fit(X)
        other = BackwardEulerKMeans(5, n_inner=inner, **given, **spelt | {"step_cap": cap}).fit(X)
        np.testing.assert_allclose(auto.cluster_centers_, other.cluster_centers_, rtol=1e-9)
        np.testing.assert_allclose(auto.step_sizes_, 15.0 * 20 ** (-np.arange(30) / 30))
        assert (auto.stop_reason_, len(auto.history_) > 30) == (other.stop_reason_, True)


def test_polish_runs_for_replayable_rows_but_not_for_iterators():
    X = blobs(900, 3, 5, apart=3.0, width=1.0)
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
    X = tight_blobs(6000, 2, 2)
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
