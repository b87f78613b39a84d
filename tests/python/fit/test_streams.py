"""Running fits: steps, callbacks, interrupts and memory; and copied or saved estimators."""

import copy
import io
import logging
import os
import pickle
import select
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from contextlib import ExitStack

import joblib
import numpy as np
import pytest
import reference
import scipy.sparse
import shoal
from shoal import KMeans, MiniBatchKMeans, callbacks
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline

X = np.random.default_rng(0).normal(size=(1200, 4))
HELD_OUT = np.random.default_rng(1).normal(size=(300, 4))
STEP_FIELDS = [
    "iteration",
    "rows_seen",
    "batch_size",
    "objective",
    "center_shift",
    "n_changed",
    "n_distances",
    "elapsed",
    "stop_reason",
]


def fitted(**given):
    return KMeans(9, **{"random_state": 0, "tol": 0.0, **given}).fit(X)


# ---------------------------------------------------------------- steps and history


def test_steps():
    model = KMeans(9, random_state=0, tol=0.0)
    before = labels = last = None
    for i, step in enumerate(model.iter_fit(X)):
        assert isinstance(step, shoal.Step)
        assert step.iteration == i + 1
        assert step.rows_seen == (i + 1) * len(X)
        assert step.batch_size == len(X)
        assert step.n_distances == 9 * len(X)
        assert step.elapsed >= (0 if i == 0 else last.elapsed)
        if before is not None:
            assert step.objective == pytest.approx(reference.inertia(X, before, labels), rel=1e-12)
            assert step.objective <= last.objective
            moved = np.sqrt(np.square(model.cluster_centers_ - before).sum())
            assert step.center_shift == pytest.approx(moved, rel=1e-9, abs=1e-12)
        else:
            assert step.n_changed == len(X)
        before, labels, last = model.cluster_centers_.copy(), model.labels_.copy(), step
    assert last.stop_reason == model.stop_reason_ == "labels-stable"
    assert last.n_changed == 0
    assert last.center_shift == 0
    assert last.objective == pytest.approx(model.inertia_, rel=1e-12)
    for name in STEP_FIELDS:
        assert name in repr(last) or name in ("rows_seen", "batch_size", "n_distances")


def test_history():
    model = fitted()
    history = model.history_
    assert list(history.dtype.names) == STEP_FIELDS
    assert len(history) == model.n_iter_
    assert (history["iteration"] == np.arange(1, len(history) + 1)).all()
    assert (history["stop_reason"][:-1] == "").all()
    assert history["stop_reason"][-1] == model.stop_reason_
    assert (np.diff(history["objective"]) <= 0).all()
    assert (np.diff(history["elapsed"]) >= 0).all()
    for step, row in zip(KMeans(9, random_state=0, tol=0.0).iter_fit(X), history, strict=True):
        for name in STEP_FIELDS:
            if name not in ("elapsed", "stop_reason"):
                assert getattr(step, name) == row[name]
    assert all(seconds >= 0 for seconds in model.timings_.values())
    assert fitted(max_iter=2).stop_reason_ == "max-iter"
    assert fitted(tol=1e-1).stop_reason_ == "tolerance"


def several_starts(init):
    model = fitted(init=init, n_init=3)
    history = model.history_
    # All labels are new in the first sweep.
    begins = np.flatnonzero(history["n_changed"] == len(X))
    assert len(begins) == 3
    lengths = np.diff([*begins, len(history)])
    assert model.n_iter_ in lengths
    assert (history["stop_reason"][:-1] == "").all()
    assert history["stop_reason"][-1] == model.stop_reason_ == "labels-stable"
    return history


def drawn(rows, k, random_state):
    return rows[random_state.permutation(len(rows))[:k]]


@pytest.mark.parametrize(
    "init",
    [
        "random",
        drawn,
    ],
)
def test_history_of_several_starts(init):
    history = several_starts(init)
    assert (history["iteration"] == np.arange(1, len(history) + 1)).all()
    assert (history["rows_seen"] == len(X) * history["iteration"]).all()
    assert (np.diff(history["elapsed"]) >= 0).all()


def test_starts_of_a_callable():
    several_starts(drawn)


@pytest.mark.parametrize("init", ["random", drawn])
def test_timings_cover_all_starts(init):
    rows = np.random.default_rng(0).normal(size=(20_000, 8))
    model = KMeans(30, init=init, n_init=6, tol=0.0, max_iter=20, random_state=0)
    before = 0.0
    for step in model.iter_fit(rows):
        spent = sum(model.timings_.values())
        # Timings of a losing start count too.
        assert before <= spent <= step.elapsed * (1 + 1e-9)
        before = spent
    assert sum(model.timings_.values()) >= before > 0
    stopped = KMeans(30, init=init, n_init=6, tol=0.0, max_iter=5, random_state=0)
    stopped.set_params(callbacks=[lambda estimator, step: step.iteration == 13])
    stopped.fit(rows)
    assert sum(stopped.timings_.values()) > 0


class OnlyDlpack:
    """Rows of another library that only supports DLPack."""

    def __init__(self, rows):
        self.rows = rows

    def __dlpack__(self, **given):
        return self.rows.__dlpack__(**given)

    def __dlpack_device__(self):
        return self.rows.__dlpack_device__()


@pytest.mark.parametrize("wrap", [OnlyDlpack, list, np.asarray], ids=["dlpack", "list", "array"])
def test_arguments_of_an_init_callable(wrap):
    seen = []

    def first(rows, k, random_state):
        seen.append(rows)
        return rows[:k]

    model = KMeans(9, init=first, n_init=1).fit(wrap(X))
    assert (seen[0] == X).all()
    assert isinstance(seen[0], np.ndarray)
    assert (model.labels_ == KMeans(9, init=X[:9]).fit(X).labels_).all()


def test_an_init_callable_gets_a_source_for_a_path(tmp_path):
    np.save(tmp_path / "x.npy", X)
    model = KMeans(9, init=lambda rows, k, random_state: rows.take(range(k)), n_init=1)
    assert (model.fit(tmp_path / "x.npy").labels_ == KMeans(9, init=X[:9]).fit(X).labels_).all()


def test_the_estimator_is_current_after_every_step():
    model = KMeans(9, random_state=0, tol=0.0)
    with pytest.raises(AttributeError):
        _ = model.labels_
    for step in model.iter_fit(X):
        assert model.n_iter_ == step.iteration
        assert model.history_["iteration"][-1] == step.iteration
        assert model.stop_reason_ == step.stop_reason
        assert (model.predict(X) == model.labels_).all()
        assert model.score(X) == -model.inertia_
        assert set(model.timings_) == {"seeding", "sweeps", "final"}


def test_iter_fit_checks_parameters_and_rows_at_once():
    with pytest.raises(ValueError, match="n_clusters"):
        KMeans(0).iter_fit(X)
    with pytest.raises(ValueError, match="n_samples=3"):
        KMeans(4).iter_fit(X[:3])


WARNING_USES = {
    "fit": lambda model, rows: model.fit(rows),
    "fit_predict": lambda model, rows: model.fit_predict(rows),
    "fit_transform": lambda model, rows: model.fit_transform(rows),
    "iter_fit": lambda model, rows: list(model.iter_fit(rows)),
    "pipeline": lambda model, rows: make_pipeline(model).fit(rows),
}


@pytest.mark.parametrize("use", WARNING_USES)
@pytest.mark.parametrize(
    "model",
    [
        KMeans(4, init=np.arange(4.0)[:, None], n_init=3),
        shoal.MiniBatchKMeans(4, random_state=0),
        shoal.MiniBatchKMeans(4, random_state=0, compute_labels=False),
        shoal.NestedMiniBatchKMeans(4, batch_size=3, random_state=0),
        shoal.BackwardEulerKMeans(4, max_iter=5, random_state=0),
        shoal.VarianceReducedKMeans(4, max_iter=5, random_state=0),
        shoal.BreathingKMeans(4, random_state=0),
        shoal.BalancedKMeans(4, size_max=2.5, random_state=0),
    ],
    ids=[
        "kmeans",
        "minibatch",
        "minibatch without labels",
        "nested",
        "backward euler",
        "variance-reduced",
        "breathing",
        "balanced",
    ],
)
def test_warnings_name_the_line_of_the_caller(model, use):
    rows = np.repeat([[0.0], [5.0]], 40, axis=0)
    with pytest.warns() as caught:
        WARNING_USES[use](clone(model), rows)
    assert any(warning.category is ConvergenceWarning for warning in caught)
    assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize("algorithm", ["elkan", "yinyang", "hamerly", "exponion"])
def test_missing_memory_for_bounds_is_reported(algorithm):
    given = {"random_state": 0, "algorithm": algorithm}
    with pytest.warns(RuntimeWarning, match=f"memory=1kB .* algorithm='{algorithm}'") as caught:
        model = KMeans(9, memory="1kB", **given).fit(X)
    assert [warning.filename for warning in caught] == [__file__]
    assert model.algorithm_ == "lloyd"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert KMeans(9, **given).fit(X).inertia_ == model.inertia_
        KMeans(9, max_iter=1, **given).fit(X)
        for other in ("auto", "lloyd"):
            KMeans(9, algorithm=other, memory=0, random_state=0).fit(X)


def test_rows_that_blocks_cannot_hold_are_reported():
    given = {"random_state": 0, "algorithm": "filtering", "n_init": 1}
    few = X[:, :3]
    for rows, memory in [
        (few, "1kB"),
        (np.hstack([X] * 20)[:, :17], "1GB"),
        (scipy.sparse.csr_array(few), "1GB"),
    ]:
        with pytest.warns(
            RuntimeWarning, match="at most 16 features .* every distance was measured"
        ) as caught:
            model = KMeans(9, memory=memory, **given).fit(rows)
        assert [warning.filename for warning in caught] == [__file__]
        assert model.algorithm_ == "lloyd"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = KMeans(9, **given).fit(few)
    assert model.algorithm_ == "filtering"
    plain = KMeans(9, random_state=0, algorithm="lloyd", n_init=1).fit(few)
    assert (plain.inertia_, plain.n_iter_) == (model.inertia_, model.n_iter_)
    assert np.array_equal(plain.labels_, model.labels_)


# ---------------------------------------------------------------- callbacks


@pytest.mark.parametrize("stop", [True, 1, np.True_])
def test_a_true_result_stops(stop):
    seen = []

    def watch(estimator, step):
        seen.append(step.iteration)
        assert estimator.n_iter_ == step.iteration
        return stop if step.iteration == 3 else None

    model = fitted(callbacks=[watch])
    assert seen == [1, 2, 3]
    assert model.stop_reason_ == "callback"
    assert model.history_["stop_reason"].tolist() == ["", "", "callback"]
    whole = fitted(max_iter=3)
    assert (model.labels_ == whole.labels_).all()
    assert model.inertia_ == whole.inertia_
    assert (model.counts_ == whole.counts_).all()
    steps = list(KMeans(9, random_state=0, tol=0.0, callbacks=[watch]).iter_fit(X))
    assert steps[-1].stop_reason == "callback"


@pytest.mark.parametrize("result", [None, False, 0])
def test_other_results_do_not_stop(result):
    plain = fitted()
    watched = fitted(callbacks=(lambda estimator, step: result,))
    assert watched.n_iter_ == plain.n_iter_
    assert watched.stop_reason_ == "labels-stable"


def test_all_callbacks_see_the_last_step():
    seen = []
    fitted(callbacks=[lambda e, s: s.iteration == 2, lambda e, s: seen.append(s.iteration)])
    assert seen == [1, 2]


def test_a_callback_stops_the_remaining_starts_too():
    model = fitted(init="random", n_init=5, callbacks=[lambda e, s: True])
    assert len(model.history_) == 1
    assert model.stop_reason_ == "callback"
    assert len(model.labels_) == len(X)


def test_errors_of_a_callback_are_raised_and_bars_are_closed(capsys):
    ended = []

    class Watch(callbacks.Callback):
        def begin(self, estimator):
            ended.append("begin")

        def __call__(self, estimator, step):
            if step.iteration == 2:
                raise KeyError("mine")

        def end(self, estimator):
            ended.append("end")

    model = KMeans(9, random_state=0, tol=0.0, callbacks=[Watch()], verbose=1)
    with pytest.raises(KeyError, match="mine"):
        model.fit(X)
    assert ended == ["begin", "end"]
    assert model.n_iter_ == 2
    assert len(model.predict(X)) == len(X)


def test_deadline():
    # Without a deadline the fit would not end.
    endless = {"max_iter": 10**9, "max_no_improvement": None, "compute_labels": False, "random_state": 0}
    model = MiniBatchKMeans(9, batch_size=50, callbacks=[callbacks.Deadline(0.05)], **endless).fit(X)
    assert model.stop_reason_ == "deadline"
    late = model.history_["elapsed"] >= 0.05
    assert late[-1]
    assert not late[:-1].any()
    at_once = fitted(callbacks=[callbacks.Deadline(1e-9)])
    assert at_once.stop_reason_ == "deadline"
    assert at_once.n_iter_ == 1
    assert fitted(callbacks=[callbacks.Deadline(1e9)]).stop_reason_ == "labels-stable"
    for bad in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="seconds must be a positive number"):
            callbacks.Deadline(bad)


def test_log_steps(caplog):
    with caplog.at_level(logging.DEBUG, logger="shoal"):
        model = fitted(callbacks=[callbacks.LogSteps(level=logging.DEBUG)])
    assert len(caplog.records) == model.n_iter_
    assert caplog.records[0].message.startswith("KMeans step 1: objective ")
    assert caplog.records[-1].message.endswith("stopped: labels-stable")
    caplog.clear()
    mine = logging.getLogger("mine")
    with caplog.at_level(logging.INFO, logger="mine"):
        fitted(callbacks=[callbacks.LogSteps(mine)], max_iter=2)
    assert [record.name for record in caplog.records] == ["mine", "mine"]


def test_validation_curve():
    curve = callbacks.ValidationCurve(HELD_OUT)
    model = fitted(callbacks=[curve])
    assert curve.iterations_ == model.history_["iteration"].tolist()
    assert curve.elapsed_ == model.history_["elapsed"].tolist()
    assert curve.scores_[-1] == model.score(HELD_OUT)
    early = fitted(max_iter=2)
    assert curve.scores_[1] == early.score(HELD_OUT)
    sparse = callbacks.ValidationCurve(HELD_OUT, every=4)
    model = fitted(callbacks=[sparse])
    assert sparse.iterations_ == sorted({*range(4, model.n_iter_ + 1, 4), model.n_iter_})
    fitted(callbacks=[sparse], max_iter=1)
    assert sparse.iterations_ == [1], "each run begins anew"


def test_early_stopping():
    # The held-out rows are unlike the fitted rows, so their score stops improving soon.
    stopping = callbacks.EarlyStopping(HELD_OUT, patience=1, min_delta=1.0)
    model = fitted(callbacks=[stopping])
    assert model.stop_reason_ == "patience"
    scores = stopping.scores_
    assert scores[-1] <= max(scores[:-1]) + 1.0
    gains = [b > max(scores[: i + 1]) + 1.0 for i, b in enumerate(scores[1:])]
    assert all(gains[:-1])
    assert not gains[-1]
    assert stopping.best_score_ == max(scores[:-1])
    patient = callbacks.EarlyStopping(HELD_OUT, patience=1000)
    assert fitted(callbacks=[patient]).stop_reason_ == "labels-stable"
    for bad in ({"patience": 0}, {"patience": 1.5}, {"min_delta": -1}, {"min_delta": float("nan")}):
        with pytest.raises(ValueError, match="must be"):
            callbacks.EarlyStopping(HELD_OUT, **bad)


def test_log_steps_without_a_configuration_of_logging():
    code = """
        import numpy as np, shoal
        from shoal.callbacks import LogSteps
        X = np.random.default_rng(0).normal(size=(100, 2))
        shoal.KMeans(3, random_state=0, max_iter=2, tol=0.0, callbacks=[LogSteps()]).fit(X)
    """
    configured = "import logging; logging.basicConfig(level=logging.WARNING)"
    lines = [
        subprocess.run(
            [sys.executable, "-c", first + textwrap.dedent(code)], capture_output=True, text=True, check=True
        ).stderr.splitlines()
        for first in ("", configured)
    ]
    assert [line[:15] for line in lines[0]] == ["KMeans step 1: ", "KMeans step 2: "]
    assert lines[0][-1].endswith("stopped: max-iter")
    assert lines[1] == []


@pytest.mark.parametrize("tqdm", [True, False])
@pytest.mark.parametrize("terminal", [True, False])
def test_progress_bar(tqdm, terminal, capsys, monkeypatch):
    if tqdm:
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setitem(sys.modules, "tqdm", None)
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    model = fitted(verbose=1)
    out, err = capsys.readouterr()
    assert out == ""
    assert "KMeans" in err
    assert f"{model.history_['objective'][-1]:.6g}" in err
    assert err.endswith("\n")
    assert ("\r" in err) == terminal
    fitted(callbacks=[callbacks.ProgressBar("mine")], max_iter=2)
    assert "mine" in capsys.readouterr().err
    fitted(verbose=0)
    assert capsys.readouterr() == ("", "")


def test_progress_in_a_file_is_a_line_every_few_seconds(capsys, monkeypatch):
    from shoal._terminal import progress

    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    bar = progress.Bar("shuffle", "row", 100)
    for rows in range(1, 13):
        now += 1.0
        bar.show(f"{rows} of 100 rows", done=1)
    assert capsys.readouterr().err == "".join(f"shuffle: {n} of 100 rows\n" for n in (1, 6, 11))
    bar.close()
    bar.close()
    assert capsys.readouterr().err == "shuffle: 12 of 100 rows\n"
    progress.Bar("shuffle", "row", 100).close()
    assert capsys.readouterr().err == ""


def test_a_notebook_and_any_stream_show_progress(capsys, monkeypatch):
    class OutStream(io.StringIO):
        """Stands in for the stderr of a notebook, which is no terminal."""

    OutStream.__module__ = "ipykernel.iostream"
    monkeypatch.setattr(sys, "stderr", OutStream())
    fitted(verbose=1)
    assert "\r" in sys.stderr.getvalue()
    written = []
    plain = type("Plain", (), {"write": lambda self, text: written.append(text), "flush": lambda self: None})
    monkeypatch.setattr(sys, "stderr", plain())
    fitted(verbose=1)
    assert "".join(written).startswith("KMeans: step ")


# ---------------------------------------------------------------- saved and copied

COPIES = {
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}


@pytest.mark.parametrize("how", COPIES)
def test_copies(how):
    model = fitted()
    again = COPIES[how](model)
    assert again.get_params() == model.get_params()
    assert (again.labels_ == model.labels_).all()
    assert again.inertia_ == model.inertia_
    assert (again.history_ == model.history_).all()
    assert (again.predict(X) == model.labels_).all()
    assert (again.fit(X).labels_ == model.labels_).all()


@pytest.mark.parametrize("how", COPIES)
def test_copies_in_the_middle_of_a_fit(how):
    model = KMeans(9, random_state=0, tol=0.0, callbacks=[callbacks.ProgressBar()])
    for step in model.iter_fit(X):
        if step.iteration == 2:
            again = COPIES[how](model)
            assert (again.cluster_centers_ == model.cluster_centers_).all()
            assert len(again.history_) == 2
            assert (again.predict(X) == model.predict(X)).all()
            if how == "pickle":
                with pytest.raises(AttributeError, match=r"Use predict\(X\)"):
                    _ = again.labels_
    assert model.stop_reason_ == "labels-stable"
    assert (model.labels_ == fitted().labels_).all()


def test_a_pickle_does_not_hold_the_rows():
    model = KMeans(9, random_state=0, max_iter=2).fit(np.tile(X, (50, 1)))
    # Labels take 4 bytes per row.
    assert len(pickle.dumps(model)) < 50 * len(X) * 4 + 20_000


def test_joblib(tmp_path):
    model = fitted()
    joblib.dump(model, tmp_path / "m.joblib")
    assert (joblib.load(tmp_path / "m.joblib").predict(X) == model.labels_).all()
    jobs = [joblib.delayed(fitted)(random_state=seed, n_jobs=1) for seed in range(3)]
    done = joblib.Parallel(2, prefer="threads")(jobs)
    assert all((m.labels_ == fitted(random_state=seed).labels_).all() for seed, m in enumerate(done))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_save_and_load(tmp_path, dtype, metric):
    rows = X.astype(dtype)
    model = KMeans(9, random_state=np.random.RandomState(0), metric=metric, tol=1e-3, n_jobs=2).fit(rows)
    path = tmp_path / "m.safetensors"
    model.save(path)
    with pytest.warns(UserWarning, match="the model has random_state=None"):
        again = shoal.load(str(path))
    assert type(again) is KMeans
    assert again.cluster_centers_.tobytes() == model.cluster_centers_.tobytes()
    assert again.cluster_centers_.dtype == dtype
    assert (again.counts_ == model.counts_).all()
    assert (again.history_ == model.history_).all()
    for name in ("inertia_", "n_iter_", "stop_reason_", "timings_", "algorithm_", "init_", "n_features_in_"):
        assert getattr(again, name) == getattr(model, name), name
    expected = model.get_params()
    assert again.get_params() == expected | {"random_state": None}
    assert (again.predict(rows) == model.labels_).all()
    assert again.transform(rows).tobytes() == model.transform(rows).tobytes()
    with pytest.raises(AttributeError, match=r"Use predict\(X\)"):
        _ = again.labels_
    # A loaded model can be fitted, saved and cloned.
    again.save(path)
    assert (shoal.load(path).cluster_centers_ == model.cluster_centers_).all()
    clone(again).fit(rows)
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.safetensors"]


def test_save_keeps_init_arrays_and_names(tmp_path):
    import pandas as pd

    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    model = KMeans(3, init=X[:3], callbacks=[print_nothing]).fit(frame)
    model.save(tmp_path / "m")
    again = shoal.load(tmp_path / "m")
    assert (again.init == X[:3]).all()
    assert again.callbacks is None
    assert again.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert (again.predict(frame) == model.labels_).all()


def print_nothing(estimator, step):
    return None


# ---------------------------------------------------------------- processes of their own


def script(text, *args, **given):
    """Run a script in a process of its own; return its output."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), *map(str, args)],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
        **given,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_after_a_fit_can_fit():
    said = script(
        """
        import os, sys, warnings
        import numpy as np
        from shoal import KMeans

        warnings.simplefilter("ignore")
        X = np.random.default_rng(0).normal(size=(20_000, 16))
        def fit():
            return KMeans(20, random_state=0, n_jobs=2, max_iter=3).fit(X)
        first = fit()
        child = os.fork()
        if child == 0:
            good = (fit().labels_ == first.labels_).all() and (first.predict(X) == first.labels_).all()
            os._exit(0 if good else 3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (fit().labels_ == first.labels_).all()
        print("good")
        """
    )
    assert said == "good\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("seeding", ["random", "auto"])
def test_a_memory_mapped_file_is_not_copied(tmp_path, seeding):
    """Anonymous memory of a fit is at most 16 bytes per row + 8 bytes per center value + 64 MB."""
    rows, cols, k = 400_000, 128, 16
    path = tmp_path / "rows.npy"
    block = np.random.default_rng(0).integers(0, 256, size=(rows // 20, cols), dtype=np.uint8)
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(rows, cols))
    for i in range(20):
        file[i * len(block) : (i + 1) * len(block)] = np.roll(block, i)
    del file
    said = script(
        """
        import re, sys, threading, time
        import numpy as np
        import shoal

        def anonymous():
            with open("/proc/self/status") as status:
                return int(re.search(r"RssAnon:\\s+(\\d+) kB", status.read())[1]) * 1024

        path, seeding, k = sys.argv[1], sys.argv[2], int(sys.argv[3])
        shoal.KMeans(2, random_state=0).fit(np.zeros((8, 2)) + np.arange(8)[:, None])
        before = peak = anonymous()
        done = threading.Event()
        def watch():
            global peak
            while not done.is_set():
                peak = max(peak, anonymous())
                time.sleep(0.001)
        thread = threading.Thread(target=watch)
        thread.start()
        # The array first: nothing of it is widened either.
        for X in (np.load(path, mmap_mode="r"), path):
            model = shoal.KMeans(k, init=seeding, n_init=1, max_iter=2, random_state=0, n_jobs=2).fit(X)
            model.predict(X)
        done.set()
        thread.join()
        print(peak - before)
        """,
        path,
        seeding,
        k,
    )
    allowed = 16 * rows + 8 * k * cols + 64_000_000
    assert allowed < 4 * rows * cols / 2, "the test would not see a copy"
    assert int(said) <= allowed


LONG_WORK = {
    # Each function runs some seconds in one call.
    "seeding": "model = KMeans(5000, init='k-means++', random_state=0); work = lambda: model.fit(X)",
    "nearest": "work = lambda: shoal.nearest(X, X[:60_000])",
    "sweep": "model = KMeans(60_000, init=X[:60_000], max_iter=1000); work = lambda: model.fit(X)",
    "exact graph": "shoal.knn_graph(X[:100], 5); work = lambda: shoal.knn_graph(X, 5, method='exact')",
    "approximate graph": (
        "shoal.knn_graph(X[:100], 5); X = np.concatenate([X] * 10); "
        "work = lambda: shoal.knn_graph(X, 50, method='ivf', recall=1.0)"
    ),
    "sweeps": (
        "told = []; first = lambda *_: (told or told.append(print('ready', flush=True))) and None; "
        "model = KMeans(300, init='random', n_init=1, random_state=0, tol=0, max_iter=10**9); "
        "model.callbacks = [first]; "
        "work = lambda: [model.fit(X) for _ in range(1000)]"
    ),
}


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
@pytest.mark.parametrize("what", LONG_WORK)
def test_ctrl_c_before_the_work_is_over(what):
    code = """
        import sys, time
        import numpy as np
        import shoal
        from shoal import KMeans

        X = np.random.default_rng(0).normal(size=(200_000, 32)).astype(np.float32)
        model = None
        exec(sys.argv[1])
        if sys.argv[2] != "sweeps":
            # Else after the first of them.
            print("ready", flush=True)
        try:
            work()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        else:
            print("over", flush=True)
        if sys.argv[2] == "sweeps":
            # What the last whole sweep left can be used.
            assert model.predict(X[:10]).shape == (10,)
            assert len(model.history_) == model.n_iter_ > 0
            assert model.stop_reason_ is None
        if model is not None:
            small = model.set_params(n_clusters=5, init="random", max_iter=5, callbacks=None).fit(X[:1000])
            again = KMeans(5, init="random", n_init=small.n_init, tol=small.tol, max_iter=5, random_state=0)
            if small.random_state == 0:
                assert (again.fit(X[:1000]).labels_ == small.labels_).all()
        print("usable", flush=True)
    """
    with ExitStack() as stack:
        # The other process still works when the interrupted one reports.
        process, other = (
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", textwrap.dedent(code), LONG_WORK[what], what],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(2)
        )
        stack.callback(process.kill)
        stack.callback(other.kill)
        for one in (other, process):
            assert one.stdout.readline() == "ready\n", one.stderr.read()
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n", process.stderr.read()
        over = select.select([other.stdout], [], [], 0)[0]
        assert not over, "the work was over: nothing was interrupted"
        assert process.stdout.readline() == "usable\n", process.stderr.read()


def test_optional_packages_are_not_imported():
    """`import shoal` imports neither matplotlib nor pandas nor tqdm."""
    said = script("import sys, shoal; print([m for m in ('matplotlib', 'tqdm') if m in sys.modules])")
    assert said == "[]\n"


def test_versions(capsys):
    shoal.show_versions()
    said = capsys.readouterr().out
    for word in ("shoal", "python", "numpy", "scikit-learn", "instruction set", "threads", shoal.__version__):
        assert word in said
