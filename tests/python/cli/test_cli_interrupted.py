"""Fits of the command line that are interrupted: the checkpoint, the message, and the resumed fit."""

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import shoal
from command_line import failure, run
from shoal import _core, cli
from shoal._fit.estimator import has_begun

METHODS = ["kmeans", "minibatch", "nested", "vrkm", "vrkm++", "sbe", "breathing", "balanced", "gmm", "kmodes"]


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """A file of rows with clusters, in the working folder."""
    rng = np.random.default_rng(1)
    centers = 4 * rng.normal(size=(12, 6))
    X = (centers[rng.integers(12, size=3000)] + rng.normal(size=(3000, 6))).astype(np.float32)
    np.save(tmp_path / "rows.npy", X)
    monkeypatch.chdir(tmp_path)
    return X


class Interrupted:
    """Rows that are read in blocks, and raise a Ctrl-C from one block on, counted over all passes.

    A pass may end before a block that was prefetched: this interrupt is lost, and that of the next block is
    not.
    """

    def __init__(self, X, at):
        self.X, self.at = X, at
        self.count = itertools.count()

    def __call__(self):
        for start in range(0, len(self.X), 1600):
            if next(self.count) >= self.at >= 0:
                raise KeyboardInterrupt
            yield self.X[start : start + 1600]


ESTIMATORS = [
    shoal.KMeans(3, random_state=3, init="k-means++"),
    shoal.KMeans(3, random_state=3, n_init=2, init="random"),
    shoal.MiniBatchKMeans(5, random_state=3, batch_size=700, max_iter=4),
    shoal.NestedMiniBatchKMeans(5, random_state=3, batch_size=400, shuffle=False),
    shoal.VarianceReducedKMeans(5, random_state=3, max_iter=3, init="k-means||"),
    shoal.BackwardEulerKMeans(5, random_state=3, batch_size=500, max_iter=6),
    shoal.TruncatedGaussianMixture(5, random_state=3, max_iter=4),
    shoal.TruncatedGaussianMixture(5, random_state=3, max_iter=4, coreset_size=300, n_init=2),
]


@pytest.mark.filterwarnings("ignore:the fit did not converge")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_a_first_step_interrupted_anywhere_is_resumed_to_the_same_bits(rows, estimator):
    from sklearn.base import clone

    expected = clone(estimator).fit(Interrupted(rows, -1))
    states = []
    file = Path("c.safetensors")
    for at in range(200):
        file.unlink(missing_ok=True)
        keeper = shoal.callbacks.Checkpoint("c.safetensors")
        broken = clone(estimator).set_params(callbacks=[keeper])
        try:
            broken.fit(Interrupted(rows, at))
        except KeyboardInterrupt:
            pass
        else:
            break
        if keeper.n_steps_ is None:
            # Before the fit: the rows were being counted or sampled.
            assert not file.exists()
            continue
        if keeper.n_steps_ > 0:
            break
        state = _core.load_model("c.safetensors")
        states.append(has_begun(state))
        resumed = shoal.resume("c.safetensors", Interrupted(rows, -1))
        assert np.array_equal(resumed.predict(rows), expected.predict(rows))
        names = ("means_",) if hasattr(expected, "means_") else ("cluster_centers_", "counts_")
        for name in names:
            assert np.array_equal(getattr(resumed, name), getattr(expected, name)), (at, name)
        assert resumed.init_ == expected.init_
        table, wanted = resumed.history_, expected.history_
        for field in ("iteration", "rows_seen", "objective", "center_shift", "n_changed"):
            assert np.array_equal(table[field], wanted[field], equal_nan=True), (at, field)
    # How many blocks a pass that ends early has prefetched depends on the clock, so an interrupt after the
    # initial centers were chosen may be missed; the next tests do not miss it. The rows of a coreset are in
    # memory: no interrupt comes from their stream after the seeding.
    assert False in states
    assert not (getattr(estimator, "coreset_size", None) and True in states)


@pytest.mark.parametrize("init", ["k-means++", "spectral"])
def test_k_modes_are_resumed_before_their_first_step(rows, init, monkeypatch):
    X = np.load("rows.npy")
    made = {"n_clusters": 4, "init": init, "random_state": 2, "max_iter": 3}
    expected = shoal.LaplacianKModes(**made).fit(X)
    step, steps = _core.Run.step, []
    model = shoal.LaplacianKModes(**made, callbacks=[shoal.callbacks.Checkpoint("c.safetensors")])

    class Stopped:
        """A run whose first step is interrupted."""

        def __init__(self, run):
            self._run = run

        def __getattr__(self, name):
            return getattr(self._run, name)

        def step(self):
            steps.append(step)
            raise KeyboardInterrupt

    start = model._start
    monkeypatch.setattr(model, "_start", lambda *given: Stopped(start(*given)))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert len(steps) == 1
    resumed = shoal.resume("c.safetensors", X)
    assert np.array_equal(resumed.labels_, expected.labels_)
    assert resumed.init_ == expected.init_
    assert resumed.energies_.tolist() == expected.energies_.tolist()


def test_a_drawn_seed_and_an_array_are_in_the_checkpoint_and_a_callable_is_asked_for(rows):
    def broken(**params):
        keeper = shoal.callbacks.Checkpoint("c.safetensors", overwrite=True)
        model = shoal.KMeans(4, max_iter=3, callbacks=[keeper], **params)
        for at in range(20):
            with contextlib.suppress(KeyboardInterrupt):
                model.fit(Interrupted(rows, at))
            if keeper.n_steps_ == 0:
                begin = _core.load_model("c.safetensors")[2]["begin"]
                return int(json.loads(begin)["seed"])
        raise AssertionError("no checkpoint")

    seed = broken()
    resumed = shoal.resume("c.safetensors", Interrupted(rows, -1))
    expected = shoal.KMeans(4, max_iter=3, random_state=seed).fit(rows)
    assert np.array_equal(resumed.cluster_centers_, expected.cluster_centers_)
    assert resumed.random_state is None
    broken(init=rows[:4].astype(np.float64))
    resumed = shoal.resume("c.safetensors", Interrupted(rows, -1))
    assert np.array_equal(
        resumed.cluster_centers_, shoal.KMeans(4, max_iter=3, init=rows[:4]).fit(rows).cluster_centers_
    )


def test_other_rows_are_refused_before_the_first_step_too(rows):
    keeper = shoal.callbacks.Checkpoint("c.safetensors", overwrite=True)
    model = shoal.KMeans(4, random_state=0, callbacks=[keeper])
    for at in range(20):
        with contextlib.suppress(KeyboardInterrupt):
            model.fit(Interrupted(rows, at))
        if keeper.n_steps_ is not None:
            break
    assert not has_begun(_core.load_model("c.safetensors"))
    with pytest.raises(ValueError, match="does not match the checkpoint"):
        shoal.resume("c.safetensors", Interrupted(rows + 1, -1))
    with pytest.raises(ValueError, match="does not match the checkpoint"):
        shoal.resume("c.safetensors", Interrupted(rows[:, :3], -1))


def test_a_first_step_that_fails_leaves_no_checkpoint(rows):
    bad = rows.copy()
    bad[2999, 1] = np.nan
    with pytest.raises(ValueError, match="row 2999, column 1"):
        shoal.KMeans(4, random_state=0, callbacks=[shoal.callbacks.Checkpoint("c.safetensors")]).fit(bad)
    assert not Path("c.safetensors").exists()


# ---------------------------------------------------------------- the command line

FIT = ["fit", "rows.npy", "-k", "4", "--quiet"]


def interrupt_after(monkeypatch, steps):
    """Interrupt fits in the step after so many steps."""
    from shoal._fit.estimator import Clusterer

    made = Clusterer._next
    monkeypatch.setattr(
        Clusterer,
        "_next",
        lambda self, run, watchers: (
            _interrupt() if watchers and len(self._history) == steps else made(self, run, watchers)
        ),
    )


def _interrupt():
    raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("steps", [0, 2])
def test_every_method_says_what_it_kept_and_is_resumed(capsys, rows, method, steps):
    fit = [*FIT, "--method", method, "--max-iter", 4, "-o"]
    assert run(capsys, *fit, "whole.safetensors")[0] == 0
    with pytest.MonkeyPatch.context() as patch:
        interrupt_after(patch, steps)
        status, out, err = run(capsys, *fit, "m.safetensors", "--checkpoint", "c.safetensors")
    assert (status, out) == (130, "")
    kept = {0: "0 iterations, before the initial centers were chosen,", 2: "2 iterations"}
    assert err == (
        f"shoal: interrupted; checkpoint with {kept[steps]} in c.safetensors; resume with --resume\n"
    )
    assert sorted(path.name for path in Path().iterdir()) == [
        "c.safetensors",
        "rows.npy",
        "whole.safetensors",
    ]
    assert run(capsys, *fit, "m.safetensors", "--checkpoint", "c.safetensors", "--resume")[0] == 0
    whole, resumed = (_core.load_model(f"{name}.safetensors")[1] for name in ("whole", "m"))
    assert whole.keys() == resumed.keys()
    for name in whole:
        if not name.startswith(("history", "timings", "state.waiting")):
            assert np.array_equal(whole[name], resumed[name]), name


def test_an_interrupt_without_a_checkpoint_says_so(capsys, rows, monkeypatch):
    interrupt_after(monkeypatch, 1)
    err = run(capsys, *FIT, "--validation", "rows.npy")[2]
    assert err == "shoal: interrupted; no checkpoint was kept: use --checkpoint to keep one\n"


def test_an_interrupt_before_a_resumed_step_keeps_the_older_checkpoint(capsys, rows, monkeypatch):
    fit = [*FIT, "--checkpoint", "c.safetensors"]
    with pytest.MonkeyPatch.context() as patch:
        interrupt_after(patch, 2)
        assert run(capsys, *fit)[0] == 130
    before = Path("c.safetensors").read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        interrupt_after(patch, 2)
        status, _, err = run(capsys, *fit, "--resume")
    assert status == 130
    assert err == "shoal: interrupted; the checkpoint in c.safetensors is unchanged; resume with --resume\n"
    assert Path("c.safetensors").read_bytes() == before


def test_a_checkpoint_is_not_overwritten(capsys, rows):
    fit = [*FIT, "--checkpoint", "c.safetensors"]
    with pytest.MonkeyPatch.context() as patch:
        interrupt_after(patch, 2)
        assert run(capsys, *fit)[0] == 130
    kept = Path("c.safetensors").read_bytes()
    remedies = "give --checkpoint another name, or delete the file"
    same = failure(capsys, *fit)
    assert same == (
        "shoal: error: c.safetensors: holds a checkpoint of a fit, after 2 steps, with these rows and "
        f"options: add --resume to continue it, {remedies}"
    )
    other = failure(capsys, *fit, "--seed", 5)
    assert "with other rows or options (--seed must be 0, as in the checkpoint, got 5)" in other
    assert other.endswith(remedies)
    assert "--resume" not in other
    np.save("rows.npy", rows + 1)
    assert "rows.npy" in failure(capsys, *fit)
    assert "other rows or options (c.safetensors" not in failure(capsys, *fit)
    np.save("rows.npy", rows)
    assert "kmeans" in failure(capsys, *fit, "--method", "vrkm")
    assert Path("c.safetensors").read_bytes() == kept
    # A finished fit is kept too: --resume returns its result at once.
    status, first, _ = run(capsys, *fit, "--resume")
    assert status == 0
    assert "holds the end of a fit" in failure(capsys, *fit)
    status, again, _ = run(capsys, *fit, "--resume")
    assert status == 0
    value = r"inertia +(\S+)"
    assert re.search(value, first)[1] == re.search(value, again)[1]
    # Files of other kinds.
    for name in ("model.safetensors", "note"):
        if name == "note":
            Path(name).write_text("hello")
        else:
            assert run(capsys, *FIT, "-o", name)[0] == 0
        before = Path(name).read_bytes()
        text = failure(capsys, *FIT, "--checkpoint", name)
        assert name == "note" or text == (
            f"shoal: error: {name}: exists, and holds no checkpoint: {remedies}"
        )
        assert Path(name).read_bytes() == before


@pytest.mark.skipif(os.name == "nt", reason="sends POSIX signals")
@pytest.mark.parametrize(("sent", "init"), [(signal.SIGTERM, "k-means++"), (signal.SIGINT, "random")])
def test_signals_during_the_first_step(tmp_path, sent, init):
    X = np.random.default_rng(0).normal(size=(100_000, 64)).astype(np.float32)
    np.save(tmp_path / "large.npy", X)
    # The seeding takes long; without it, the first sweep.
    k = "1000" if init == "k-means++" else "30000"
    args = ["fit", "large.npy", "-k", k, "--init", init, "--max-iter", "1", "--checkpoint", "c.safetensors"]
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal", *args], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    # The first line of progress: the work has begun some time ago.
    process.stderr.readline()
    process.send_signal(sent)
    out, err = process.communicate(timeout=100)
    assert (process.returncode, out) == (130, b"")
    assert re.search(
        rb"shoal: interrupted; checkpoint with 0 iterations.* in c.safetensors; resume with", err
    )
    assert has_begun(_core.load_model(str(tmp_path / "c.safetensors"))) == (init == "random")
    assert cli.main(["info", str(tmp_path / "c.safetensors")]) == 0
