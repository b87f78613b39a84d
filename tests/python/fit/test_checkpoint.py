"""Checkpoints: interrupted, killed and resumed fits."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import killable
import numpy as np
import pytest
import shoal
from shoal.callbacks import Callback, Checkpoint

# Mixtures run only a few iterations.
pytestmark = pytest.mark.filterwarnings("ignore:the fit did not converge")

RNG = np.random.default_rng(11)
X = (RNG.normal(size=(3000, 4)) + 3 * RNG.integers(0, 4, size=(3000, 1))).astype("float32")
WEIGHTS = RNG.uniform(0, 2, size=3000)


def first_rows(X, k, random_state):
    """A user-defined function for the initial centers."""
    return X[random_state.choice(len(X), k, replace=False)]


METHODS = {
    "kmeans": shoal.KMeans(12, tol=0, random_state=3),
    "kmeans, starts": shoal.KMeans(12, init="random", n_init=3, max_iter=6, random_state=3),
    "kmeans, given": shoal.KMeans(12, init=X[:12], tol=0),
    "kmeans, callable": shoal.KMeans(12, init=first_rows, n_init=3, max_iter=6, random_state=3),
    "kmeans, bounds": shoal.KMeans(40, algorithm="yinyang", tol=0, random_state=3),
    "kmeans, cosine": shoal.KMeans(12, metric="cosine", tol=0, random_state=3),
    "minibatch": shoal.MiniBatchKMeans(12, batch_size=200, max_iter=2, tol=1e-3, random_state=3),
    "mixture": shoal.TruncatedGaussianMixture(12, n_active=3, tol=1e-3, random_state=3),
    "mixture, coreset": shoal.TruncatedGaussianMixture(
        12, covariance_type="diag", coreset_size=900, max_iter=9, random_state=3
    ),
    "mixture, factors": shoal.TruncatedGaussianMixture(
        12, covariance_type="factor", n_factors=2, n_active=3, max_iter=7, random_state=3
    ),
    "mixture, callable": shoal.TruncatedGaussianMixture(
        12, covariance_type="spherical", init=first_rows, max_iter=6, random_state=3
    ),
    "mixture, starts": shoal.TruncatedGaussianMixture(
        12, n_active=3, init="random", n_init=3, coreset_size=900, tol=1e-3, random_state=3
    ),
    "mixture, full": shoal.TruncatedGaussianMixture(
        12, covariance_type="full", reg_covar=0.1, n_active=3, max_iter=7, random_state=3
    ),
    "mixture, tied": shoal.TruncatedGaussianMixture(
        12, covariance_type="tied", n_active=3, max_iter=7, random_state=3
    ),
    "mixture, means": shoal.TruncatedGaussianMixture(12, means_init=X[:12], max_iter=6, tol=0.0),
    "nested": shoal.NestedMiniBatchKMeans(12, batch_size=200, random_state=3),
    "nested, in order": shoal.NestedMiniBatchKMeans(
        12, batch_size=200, shuffle=False, compute_labels=False, random_state=3
    ),
    "hierarchical": shoal.HierarchicalKMeans(
        200, n_candidates=10, branching_factor=6, tol=0, max_iter=8, random_state=3
    ),
    "variance-reduced": shoal.VarianceReducedKMeans(12, tol=0, max_iter=8, random_state=3),
    "variance-reduced, taken back": shoal.VarianceReducedKMeans(
        40, learning_rate=1.0, epoch_size=1500, max_iter=8, random_state=3
    ),
    "variance-reduced, rough": shoal.VarianceReducedKMeans(
        12, variant="vrkm", polish=False, tol=0, epoch_size=0.3, max_iter=6, random_state=3
    ),
    "variance-reduced, doubling": shoal.VarianceReducedKMeans(
        12, epoch_size="doubling", max_iter=15, random_state=3
    ),
    "breathing": shoal.BreathingKMeans(12, m=2, init="random", random_state=3),
    "balanced": shoal.BalancedKMeans(12, size_min=0.9, size_max=1.1, init="random", random_state=3),
    "nested, random": shoal.NestedMiniBatchKMeans(12, init="random", batch_size=200, random_state=3),
    "backward Euler": shoal.BackwardEulerKMeans(
        12, batch_size=200, n_inner=3, max_iter=9, polish=False, random_state=3
    ),
    "backward Euler, auto": shoal.BackwardEulerKMeans(12, batch_size=200, max_iter=6, random_state=3),
    "backward Euler, polished": shoal.BackwardEulerKMeans(
        12, batch_size=200, n_inner=2, max_iter=6, polish=True, random_state=3
    ),
}


def clone(model, **params):
    """Return an unfitted estimator with the same parameters."""
    return type(model)(**{**model.get_params(deep=False), **params})


def attributes(model):
    """All results of a fit except times, and the number of distances, which depends on the bounds."""
    found = {
        name: getattr(model, name)
        for name in ("cluster_centers_", "counts_", "n_iter_", "stop_reason_", "init_", "n_features_in_")
    }
    if getattr(model, "compute_labels", True):
        found |= {"labels_": model.labels_, "inertia_": model.inertia_}
    more = (
        "prices_",
        "lower_bound_",
        "gap_",
        "learning_rate_",
        "n_steps_",
        "step_sizes_",
        "rows_used_",
        "rows_retired_",
        "batch_sizes_",
    )
    for name in (*more, "lower_bounds_", "converged_"):
        if hasattr(model, name):
            found[name] = getattr(model, name)
    names = [name for name in model.history_.dtype.names if name not in ("elapsed", "n_distances")]
    found["history_"] = model.history_[names].tolist()
    return found


def assert_same(model, expected):
    """Whether two fits have bit-identical results."""
    found, wanted = attributes(model), attributes(expected)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


class Stop(Callback):
    """A callback that raises after a number of steps."""

    def __init__(self, after, error=KeyboardInterrupt):
        self.after = after
        self.error = error

    def __call__(self, estimator, step):
        if step.iteration == self.after:
            raise self.error
        return False


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weights"])
def test_a_resumed_fit_gives_identical_results(name, weights, tmp_path):
    plan, path = METHODS[name], tmp_path / "run.safetensors"
    expected = clone(plan).fit(X, sample_weight=weights)
    again = {"init": first_rows} if callable(plan.init) else {}
    steps = len(expected.history_)
    for after in sorted({1, 2, steps // 2, steps - 1}):
        # The step during which a callback raises is complete. `every` is too long for any other checkpoint.
        broken = clone(plan, callbacks=[Checkpoint(path, every=1e6), Stop(after)])
        with pytest.raises(KeyboardInterrupt):
            broken.fit(X, sample_weight=weights)
        assert len(broken.history_) == after
        resumed = shoal.resume(path, X, sample_weight=weights, **again)
        assert_same(resumed, expected)
        assert resumed.get_params(deep=False).keys() == plan.get_params(deep=False).keys()
        path.unlink()


@pytest.mark.parametrize(
    "name",
    [
        "kmeans",
        "minibatch",
        "nested",
        "hierarchical",
        "variance-reduced",
        "breathing",
        "balanced",
        "backward Euler, polished",
    ],
)
def test_a_fit_resumes_from_any_source_of_the_same_rows(name, tmp_path):
    plan, path, rows = METHODS[name], tmp_path / "run.safetensors", tmp_path / "rows.npy"
    np.save(rows, X)
    expected = clone(plan).fit(X)
    for step in clone(plan, callbacks=[Checkpoint(path)]).iter_fit(rows):
        if step.iteration == 3:
            break
    assert_same(shoal.resume(path, np.load(rows, mmap_mode="r"), n_jobs=1), expected)
    assert_same(shoal.resume(path, str(rows)), expected)


def blocks(size):
    """Return a function that yields the rows in blocks of the given size."""
    return (X[start : start + size] for start in range(0, len(X), size))


@pytest.mark.parametrize(
    "name",
    [
        "kmeans",
        "minibatch",
        "nested, in order",
        "variance-reduced",
        "variance-reduced, taken back",
        "breathing",
        "balanced",
        "backward Euler",
        "backward Euler, polished",
    ],
)
def test_replayable_streams_resume(name, tmp_path):
    plan, path = METHODS[name], tmp_path / "run.safetensors"
    expected = clone(plan).fit(lambda: blocks(700))
    for after in range(1, len(expected.history_), 1 + len(expected.history_) // 6):
        keep = Checkpoint(path, every=1e6, overwrite=True)
        with pytest.raises(KeyboardInterrupt):
            clone(plan, callbacks=[keep, Stop(after)]).fit(lambda: blocks(90))
        assert_same(shoal.resume(path, lambda: blocks(300)), expected)
    with pytest.raises(ValueError, match="values"):
        shoal.resume(path, lambda: (2 * block for block in blocks(300)))


def test_one_pass_streams_resume(tmp_path):
    plan, path = shoal.MiniBatchKMeans(12, batch_size=50, random_state=3), tmp_path / "run.safetensors"
    expected = clone(plan).fit(blocks(700))
    steps = expected.history_["iteration"].tolist()
    assert len(steps) > 20
    for after in steps[:-1:5]:
        keep = Checkpoint(path, every=1e6, overwrite=True)
        with pytest.raises(KeyboardInterrupt):
            clone(plan, callbacks=[keep, Stop(after)]).fit(blocks(90))
        resumed = shoal.resume(path, blocks(300))
        np.testing.assert_array_equal(resumed.cluster_centers_, expected.cluster_centers_)
        np.testing.assert_array_equal(resumed.counts_, expected.counts_)
        assert resumed.history_["objective"].tolist() == expected.history_["objective"].tolist()


def test_a_failing_stream_keeps_the_previous_steps(tmp_path):
    path = tmp_path / "run.safetensors"

    def failing():
        yield from (X[:1000], X[1000:2000])
        raise LookupError("the line went dead")

    model = shoal.MiniBatchKMeans(5, batch_size=100, random_state=3, callbacks=[Checkpoint(path)])
    with pytest.raises(LookupError, match="dead"):
        model.fit(failing())
    # All earlier batches are in the state. Which of the last batches were read together with the failing one
    # is unspecified.
    assert 1500 <= model.history_["rows_seen"][-1] <= 2000
    assert np.isfinite(model.cluster_centers_).all()
    expected = shoal.MiniBatchKMeans(5, batch_size=100, random_state=3).fit(blocks(700))
    np.testing.assert_array_equal(shoal.resume(path, blocks(70)).cluster_centers_, expected.cluster_centers_)


def test_checkpoints_follow_the_interval(tmp_path):
    path, times = tmp_path / "run.safetensors", []

    class Look(Callback):
        def __call__(self, estimator, step):
            times.append((step.iteration, path.exists() and path.stat().st_ino))

    clone(METHODS["kmeans"], callbacks=[Checkpoint(path, every_steps=4), Look()]).fit(X)
    written = [step for (step, now), (_, before) in zip(times[1:], times, strict=False) if now != before]
    assert written == list(range(4, times[-1][0] + 1, 4))
    path.unlink()
    clone(METHODS["kmeans"], callbacks=[Checkpoint(path, every=0), Stop(1, RuntimeError)])
    with pytest.raises(RuntimeError):
        clone(METHODS["kmeans"], callbacks=[Checkpoint(path, every=0), Stop(1, RuntimeError)]).fit(X)
    assert path.exists()


def test_intervals_are_seconds(tmp_path, monkeypatch):
    """Each step takes 7 seconds of a clock that the test turns."""
    path, now, seen = tmp_path / "run.safetensors", [100.0], []
    monkeypatch.setattr("shoal.callbacks.time.monotonic", lambda: now[0])

    class Turn(Callback):
        def __call__(self, estimator, step):
            now[0] += 7

    def look(estimator, step):
        seen.append((step.iteration, estimator.callbacks[1].n_steps_))

    clone(METHODS["kmeans"], callbacks=[Turn(), Checkpoint(path, every=20), look]).fit(X)
    assert len(seen) > 9
    # Due after 21 seconds: in every third step.
    assert seen == [(step, step // 3 * 3 or None) for step in range(1, len(seen) + 1)]


@pytest.mark.parametrize(
    "name",
    [
        "kmeans",
        "kmeans, callable",
        "kmeans, starts",
        "minibatch",
        "nested",
        "variance-reduced",
        "breathing",
        "balanced",
        "backward Euler, polished",
    ],
)
def test_a_run_stopped_by_the_caller_resumes(name, tmp_path):
    plan, path = METHODS[name], tmp_path / "run.safetensors"
    expected = clone(plan).fit(X)
    again = {"init": first_rows} if callable(plan.init) else {}
    steps = len(expected.history_)
    for after in (2, steps // 2, steps - 1):
        keep = Checkpoint(path, overwrite=True)
        stopped = clone(plan, callbacks=[keep, lambda model, step, n=after: step.iteration == n]).fit(X)
        assert (stopped.stop_reason_, len(stopped.history_)) == ("callback", after)
        assert stopped.inertia_ > 0
        model = shoal.resume(path, X, callbacks=[Checkpoint(path)], **again)
        assert_same(model, expected)
    # A finished fit stays finished, with its feature names and without warnings.
    over = shoal.resume(path, X)
    assert_same(over, expected)
    assert getattr(over, "bounds_", None) == getattr(expected, "bounds_", None)


def given_rows(X, k, random_state):
    """A function for the initial centers that needs no pass."""
    return random_state.normal(size=(k, 4)).astype("float32")


@pytest.mark.parametrize(
    "name",
    [
        "kmeans",
        "kmeans, starts",
        "kmeans, callable",
        "nested, in order",
        "minibatch",
        "variance-reduced",
        "variance-reduced, taken back",
        "breathing",
        "balanced",
        "backward Euler, polished",
    ],
)
def test_an_interrupt_within_a_pass_keeps_the_previous_step(name, tmp_path):
    plan, path = METHODS[name], tmp_path / "run.safetensors"
    again = {}
    if callable(plan.init):
        again = {"init": given_rows}
        plan = clone(plan, **again)
    passes = 0

    def rows(fail_at=None):
        nonlocal passes
        passes += 1
        number = passes
        for start in range(0, len(X), 700):
            if fail_at == (number, start):
                raise KeyboardInterrupt
            yield X[start : start + 700]

    expected = clone(plan).fit(rows)
    most, kept, broke = passes, 0, 0
    places = list(itertools.product(range(2, most), (0, 1400, 2800)))
    apart = max(len(places) // 12, 1)
    # Not a multiple of 3, so that all three rows take turns.
    for number, start in places[:: apart + (apart % 3 == 0)]:
        passes = 0
        broken = clone(plan, callbacks=[Checkpoint(path, every=1e6)])
        with contextlib.suppress(KeyboardInterrupt):
            # Not every fit has that many passes.
            broken.fit(lambda at=(number, start): rows(at))
        if path.exists():
            kept += 1
            assert_same(shoal.resume(path, rows, **again), expected)
            path.unlink()
        else:
            assert len(broken.__dict__.get("_history", [])) == 0
        broke += broken.__dict__.get("stop_reason_") is None
    assert min(kept, broke) > 2


def test_feature_names_are_saved(tmp_path):
    frame = pytest.importorskip("pandas").DataFrame(X, columns=list("abcd"))
    path = tmp_path / "run.safetensors"
    for _ in clone(METHODS["kmeans"], callbacks=[Checkpoint(path)]).iter_fit(frame):
        break
    assert shoal.resume(path, frame).feature_names_in_.tolist() == list("abcd")
    with pytest.raises(ValueError, match="features"):
        shoal.resume(path, X)


def test_resuming_with_other_data_or_parameters_fails(tmp_path):
    path = tmp_path / "run.safetensors"
    for _ in clone(METHODS["kmeans"], callbacks=[Checkpoint(path)]).iter_fit(X):
        break
    other = X.copy()
    other[0, 0] += 1
    for rows, weights, match in [
        (other, None, "values"),
        (X[:-1], None, "3000 x 4"),
        (X[:, :3], None, "3000 x 4"),
        (X.astype("float64"), None, "float32"),
        (X, WEIGHTS, "sample_weight"),
    ]:
        with pytest.raises(ValueError, match=match) as refused:
            shoal.resume(path, rows, sample_weight=weights)
        assert str(path) in str(refused.value)
    with pytest.raises(TypeError, match="max_iter"):
        shoal.resume(path, X, max_iter=3)
    with pytest.raises(TypeError, match="init"):
        shoal.resume(path, X, init="random")
    with pytest.raises(ValueError, match="resume"):
        shoal.load(path)
    model = tmp_path / "model.safetensors"
    clone(METHODS["kmeans"]).fit(X).save(model)
    with pytest.raises(ValueError, match="must hold a checkpoint"):
        shoal.resume(model, X)
    with pytest.raises(FileNotFoundError):
        shoal.resume(tmp_path / "none", X)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match="truncated"):
        shoal.resume(path, X)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        "kmeans",
        "kmeans, callable",
        "minibatch",
        "nested",
        "variance-reduced",
        "breathing",
        "balanced",
        "backward Euler, polished",
    ],
)
def test_a_damaged_checkpoint_is_refused_or_harmless(name, tmp_path):
    path, few = tmp_path / "run.safetensors", X[:200]
    plan = clone(METHODS[name], callbacks=[Checkpoint(path)])
    for step in plan.iter_fit(few):
        if step.iteration == 2:
            break
    whole, chance, refused = path.read_bytes(), random.Random(name), 0
    again = {"init": first_rows} if callable(plan.init) else {}
    # Damage to the header has the most effects.
    header = int.from_bytes(whole[:8], "little")
    for _ in range(80):
        damaged = bytearray(whole)
        at = chance.randrange(8 + header) if chance.random() < 0.7 else chance.randrange(len(whole))
        damaged[at] = chance.randrange(256)
        path.write_bytes(damaged[: chance.randrange(len(whole))] if chance.random() < 0.1 else damaged)
        try:
            # A damaged iteration limit may be huge.
            model = shoal.resume(path, few, callbacks=[lambda _, step: True], **again)
        except (ValueError, TypeError):
            refused += 1
        else:
            assert np.isfinite(model.cluster_centers_).all()
    assert refused > 20


def test_a_callable_must_be_given_again(tmp_path):
    path = tmp_path / "run.safetensors"
    for _ in clone(METHODS["kmeans, callable"], callbacks=[Checkpoint(path)]).iter_fit(X):
        break
    with pytest.raises(ValueError, match="callable"):
        shoal.resume(path, X)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"path": ""}, "path"),
        ({"path": 3}, "path"),
        ({"path": "a", "every": -1}, "every"),
        ({"path": "a", "every": float("nan")}, "every"),
        ({"path": "a", "every": "often"}, "every"),
        ({"path": "a", "every_steps": 0}, "every_steps"),
        ({"path": "a", "every_steps": 1.5}, "every_steps"),
        ({"path": "a", "overwrite": "yes"}, "overwrite"),
    ],
)
def test_invalid_intervals(arguments, match):
    with pytest.raises((ValueError, TypeError), match=match):
        Checkpoint(**arguments)


def test_an_invalid_path_fails_before_the_first_step(tmp_path):
    for path, error in [(tmp_path / "none" / "a", FileNotFoundError), (tmp_path, IsADirectoryError)]:
        model = clone(METHODS["kmeans"], callbacks=[Checkpoint(path), Stop(1, RuntimeError)])
        with pytest.raises(error):
            model.fit(X)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
def test_a_full_disk_ends_the_run_and_keeps_it_usable(tmp_path):
    limited = f"""
import resource, signal, sys, numpy as np, shoal
from shoal.callbacks import Checkpoint
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
X = np.random.default_rng(0).normal(size=(50000, 2)).astype("float32")
resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
model = shoal.KMeans(5, callbacks=[Checkpoint({str(tmp_path / "a")!r}, every=0)])
try:
    model.fit(X)
except OSError as error:
    print("refused:", error, len(model.history_), model.predict(X[:3]).shape)
"""
    done = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("refused:")
    assert str(tmp_path / "a") in done.stdout
    assert "1 (3,)" in done.stdout
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- files of other fits


@pytest.mark.parametrize("name", ["kmeans", "kmeans, starts", "minibatch", "nested", "hierarchical"])
def test_a_new_fit_does_not_replace_the_checkpoint_of_another(name, tmp_path):
    path = tmp_path / "run.safetensors"

    def keeping(**more):
        return clone(METHODS[name], callbacks=[Checkpoint(path, every_steps=1)], **more)

    for step in keeping().iter_fit(X):
        if step.iteration == 2:
            break
    kept = path.read_bytes()
    steps = r"holds a checkpoint of a fit, after 2 steps, with"
    for model, rows, why in [
        (keeping(), X, r"these rows and parameters\."),
        (keeping(random_state=4), X, r"other rows or parameters \(random_state must be 3.* got 4\)\."),
        (keeping(), X + 1, r"other rows or parameters \(.*the values differ\)\."),
    ]:
        with pytest.raises(ValueError, match=rf"{steps} {why} shoal\.resume.*overwrite=True") as refused:
            model.fit(rows)
        assert str(path) in str(refused.value)
        # Nothing was computed.
        assert not hasattr(model, "stop_reason_")
    assert path.read_bytes() == kept
    # A resumed fit replaces the file that it was resumed from, and no other one.
    other = tmp_path / "other.safetensors"
    other.write_bytes(kept)
    with pytest.raises(ValueError, match=r"other.safetensors: holds a checkpoint"):
        shoal.resume(path, X, callbacks=[Checkpoint(other)])
    (tmp_path / "link.safetensors").symlink_to(path)
    model = shoal.resume(path, X, callbacks=[Checkpoint(tmp_path / "link.safetensors")])
    assert_same(model, clone(METHODS[name]).fit(X))


def test_a_file_that_appears_during_the_fit_is_not_replaced(tmp_path):
    path = tmp_path / "run.safetensors"
    steps = clone(METHODS["kmeans"], callbacks=[Checkpoint(path, every_steps=2)]).iter_fit(X)
    next(steps)
    path.write_text("of another program")
    with pytest.raises(ValueError, match="exists, and holds no checkpoint"):
        next(steps)
    assert path.read_text() == "of another program"


def test_a_finished_fit_is_not_replaced(tmp_path):
    path = tmp_path / "run.safetensors"
    keep = Checkpoint(path)
    model = clone(METHODS["kmeans"], callbacks=[keep]).fit(X)
    kept, inertia = path.read_bytes(), model.inertia_
    with pytest.raises(ValueError, match=r"holds the end of a fit, after \d+ steps.*shoal\.resume"):
        model.fit(X)
    assert model.inertia_ == inertia
    # Its result comes back without a step, and the file may be written again.
    assert shoal.resume(path, X, callbacks=[keep]).inertia_ == inertia
    with pytest.raises(ValueError, match="the end of a fit"):
        model.fit(X)
    assert path.read_bytes() == kept
    model.set_params(n_clusters=3, callbacks=[Checkpoint(path, overwrite=True)]).fit(X)
    assert shoal.resume(path, X).n_clusters == 3


@pytest.mark.parametrize("kind", ["text", "model", "damaged"])
def test_a_file_that_is_no_checkpoint_is_not_replaced(kind, tmp_path):
    path = tmp_path / "run.safetensors"
    if kind == "text":
        path.write_text("hello")
    else:
        model = clone(METHODS["kmeans"], callbacks=[Checkpoint(path)]).fit(X)
        if kind == "model":
            model.save(path)
        else:
            path.write_bytes(path.read_bytes()[:-10])
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"holds no checkpoint.*overwrite=True"):
        clone(METHODS["kmeans"], callbacks=[Checkpoint(path)]).fit(X)
    assert path.read_bytes() == before
    clone(METHODS["kmeans"], callbacks=[Checkpoint(path, overwrite=True)]).fit(X)
    assert path.read_bytes() != before


def test_the_file_of_a_callable_with_several_starts_is_not_replaced(tmp_path):
    path = tmp_path / "run.safetensors"
    plan = clone(METHODS["kmeans, callable"], callbacks=[Checkpoint(path)])
    for _ in plan.iter_fit(X):
        break
    with pytest.raises(ValueError, match=r"holds a checkpoint of a fit, with these rows and parameters"):
        plan.fit(X)
    with pytest.raises(ValueError, match=r"other rows or parameters \(max_iter must be 6.* got 7\)"):
        clone(plan, max_iter=7).fit(X)


# ---------------------------------------------------------------- killed

#: Kills per method: most for the exact and streaming fits that the others build on.
KILLS = {"kmeans": 10, "minibatch": 10, "nested": 10}
FEW_KILLS = 4


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.parametrize("name", killable.FITS)
def test_a_kill_at_any_time_loses_no_complete_checkpoint(name, tmp_path):
    rows, path = tmp_path / "rows.npy", tmp_path / "run.safetensors"
    np.save(rows, X)
    expected = killable.FITS[name]().fit(rows)
    # Each process is forked from one that has imported the packages, which would take most of the time.
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["shoal.callbacks"])
    chance, kills, found = random.Random(name), 0, 0
    wanted = KILLS.get(name, FEW_KILLS)
    while kills < wanted:
        process = processes.Process(target=killable.fit, args=(name, str(rows), str(path)))
        process.start()
        begun = time.monotonic()
        while not path.exists() and process.is_alive():
            time.sleep(0.001)
        # Kill while files are being written.
        time.sleep(chance.uniform(0, min(0.3, 5 * (time.monotonic() - begun) + 0.05)))
        process.kill()
        process.join()
        kills += 1
        if path.exists():
            found += 1
            assert_same(shoal.resume(path, rows), expected)
            path.unlink()
    assert found > wanted // 2


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
@pytest.mark.parametrize("method", ["kmeans", "nested"])
def test_the_command_line_writes_a_checkpoint_at_sigterm(number, method, tmp_path):
    rows = np.random.default_rng(1).normal(size=(60000, 8)).astype("float32")
    np.save(tmp_path / "rows.npy", rows)
    command = [sys.executable, "-m", "shoal", "fit", "rows.npy", "-k", "300", "--method", method]
    command += ["--init", "random", "--tol", "0", "--threads", "1", "--quiet", "--json", "--labels"]
    whole = subprocess.run([*command, "whole.npy"], cwd=tmp_path, capture_output=True, text=True, check=True)
    safe = [*command, "labels.npy", "--checkpoint", "run.safetensors", "--resume"]
    # The only checkpoint is written at the signal, which is sent after the first step.
    told = [*(part for part in safe if part != "--quiet"), "--checkpoint-every", "1e6"]
    with (tmp_path / "told.txt").open("w") as stderr:
        first = subprocess.Popen(told, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=stderr)
        while "objective" not in (tmp_path / "told.txt").read_text() and first.poll() is None:
            time.sleep(0.01)
        assert not (tmp_path / "run.safetensors").exists()
        first.send_signal(number)
        out, _ = first.communicate()
    err = (tmp_path / "told.txt").read_text()
    assert (first.returncode, out) == (130, ""), err
    assert err.strip().endswith("in run.safetensors; resume with --resume")
    assert not (tmp_path / "labels.npy").exists()
    again = subprocess.run(safe, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert '"resumed": true' in again.stdout
    np.testing.assert_array_equal(np.load(tmp_path / "labels.npy"), np.load(tmp_path / "whole.npy"))
    assert whole.stdout
    other = subprocess.run([*safe, "--seed", "1"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert other.returncode == 2
    assert "--seed must be 0, as in the checkpoint, got 1" in other.stderr


def test_resume_without_a_checkpoint_file_is_wrong_usage(tmp_path, capsys):
    from shoal.cli import main

    np.save(tmp_path / "rows.npy", X)
    with pytest.raises(SystemExit) as stopped:
        main(["fit", str(tmp_path / "rows.npy"), "-k", "3", "--resume"])
    assert stopped.value.code == 2
    assert "--checkpoint" in capsys.readouterr().err
