"""Callbacks and progress bars."""

import io
import logging
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from fitted_models import X, fitted
from shoal import BackwardEulerKMeans, KMeans, MiniBatchKMeans, NestedMiniBatchKMeans, callbacks

HELD_OUT = np.random.default_rng(1).normal(size=(300, 4))


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


@pytest.mark.parametrize("cls", [MiniBatchKMeans, NestedMiniBatchKMeans, BackwardEulerKMeans])
def test_batches_call_callbacks(cls, capsys):
    seen, ended = [], []

    class Watch(callbacks.Callback):
        def begin(self, estimator):
            ended.append("begin")

        def __call__(self, estimator, step):
            seen.append(len(estimator.labels_))
            # Ends fits only.
            return True

        def end(self, estimator):
            ended.append("end")

    model = cls(3, random_state=0, callbacks=[Watch()], verbose=1)
    plain = cls(3, random_state=0)
    assert model.partial_fit(X[:2]).callbacks
    assert seen == [], "there are no centers yet"
    for rows in (X[2:100], X[100:150], iter([X[150:170], X[170:200]])):
        model.partial_fit(rows)
    for rows in (X[:2], X[2:100], X[100:150], X[150:170], X[170:200]):
        plain.partial_fit(rows)
    assert (model.cluster_centers_ == plain.cluster_centers_).all()
    assert seen == [98, 50, 20, 30]
    assert ended == ["begin", "end"] * 4
    assert " rows" in capsys.readouterr().err


def test_batches_refuse_checkpoints(tmp_path):
    path = tmp_path / "run.safetensors"
    model = MiniBatchKMeans(3, callbacks=[callbacks.Checkpoint(path)])
    with pytest.raises(ValueError, match=r"Checkpoint does not go with partial_fit.*Use save"):
        model.partial_fit(X)
    assert not path.exists()
    assert not hasattr(model, "cluster_centers_")


@pytest.mark.parametrize("kind", [callbacks.ValidationCurve, callbacks.EarlyStopping])
def test_columns_of_held_out_rows_are_checked_before_the_first_step(kind):
    seen = []
    watchers = [kind(HELD_OUT[:, :2]), lambda estimator, step: seen.append(step)]
    with pytest.raises(ValueError, match=f"^X_val must have as many columns as X, {X.shape[1]}, got 2$"):
        KMeans(3, callbacks=watchers).fit(X)
    assert seen == []
