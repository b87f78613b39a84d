"""Fits step by step: iterators, histories, several starts and warnings."""

import warnings

import numpy as np
import pytest
import reference
import scipy.sparse
import shoal
from fitted_models import X, fitted
from shoal import KMeans
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline

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
            RuntimeWarning, match="at most 16 features, .* every distance was measured"
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
