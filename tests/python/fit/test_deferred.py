"""Labels and inertia that need a pass: computed when they are named or used, never when they are shown."""

from __future__ import annotations

import copy
import inspect
import operator
import pickle

import numpy as np
import pytest
import shoal
from estimators import MIXTURE, WITH_A_PASS, class_name
from sklearn.metrics import adjusted_rand_score
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

X = np.random.default_rng(0).normal(size=(400, 3))

pytestmark = pytest.mark.filterwarnings(
    "ignore:the fit did not converge", "ignore:shuffle=True has no effect on a sequential source"
)


class Counting:
    """Blocks of rows that count the passes over them."""

    def __init__(self):
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        yield X[:250]
        yield X[250:]


def inspected(model):
    """Do all that shows an estimator without asking for a value."""
    check_is_fitted(model)
    check_is_fitted(model, ["labels_", "inertia_"])
    shown = repr(model), model._repr_html_(), estimator_html_repr(model), str(model._repr_mimebundle_())
    members = dict(inspect.getmembers(model))
    assert hasattr(model, "labels_")
    assert hasattr(model, "inertia_")
    for name in ("labels_", "inertia_"):
        assert name in dir(model)
        value = operator.attrgetter(name)(model)
        assert repr(value) == repr(members[name]) == "<not computed yet>"
        dir(value)
        inspect.getmembers(type(value))
        assert not hasattr(value, "_repr_html_")
    return shown


def test_a_fitted_mixture_is_shown_without_a_pass():
    rows = Counting()
    model = copy.deepcopy(MIXTURE).fit(rows)
    passes = rows.passes
    shown = inspected(model)
    assert "not computed yet" in shown[1]
    assert rows.passes == passes
    # One pass for the labels, and one for the inertia.
    assert model.labels_.tolist() == model.predict(X).tolist()
    assert passes < rows.passes <= passes + 2
    passes = rows.passes
    assert model.inertia_ > 0
    assert rows.passes == passes


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("estimator", WITH_A_PASS, ids=class_name)
def test_nothing_is_computed_between_two_steps_unless_it_is_named(estimator, streamed, monkeypatch):
    if streamed and isinstance(estimator, shoal.HierarchicalKMeans):
        pytest.skip("copies the rows first")
    model, made = copy.deepcopy(estimator), []
    real = type(model)._make_pass
    monkeypatch.setattr(type(model), "_make_pass", lambda self: (made.append(1), real(self)))
    rows = Counting() if streamed else X
    for _ in model.iter_fit(rows):
        before = rows.passes if streamed else 0
        inspected(model)
        assert made == []
        assert not streamed or rows.passes == before
        break
    inspected(model)
    labels = model.labels_
    assert type(labels) is np.ndarray
    assert labels.dtype == np.int32
    assert type(model.inertia_) is float
    assert made == [1]
    np.testing.assert_array_equal(labels, model.predict(X))


@pytest.mark.parametrize(
    "cls", [shoal.MiniBatchKMeans, shoal.NestedMiniBatchKMeans, shoal.BackwardEulerKMeans]
)
def test_the_labels_of_a_batch(cls, monkeypatch):
    model, made = cls(4, random_state=0).partial_fit(X), []
    monkeypatch.setattr(cls, "_measure", lambda *given, real=cls._measure: (made.append(1), real(*given))[1])
    inspected(model)
    assert made == []
    deferred = getattr(model, "labels_")  # noqa: B009 - the question of an inspection
    assert deferred.shape == (400,)
    assert made == []
    np.testing.assert_array_equal(deferred, model.predict(X))
    assert made == [1]
    assert deferred._value() is model.labels_


def deferred():
    model = copy.deepcopy(MIXTURE).fit(X)
    return model, operator.attrgetter("labels_", "inertia_")(model)


def test_a_deferred_array_behaves_like_an_array():
    model, (labels, inertia) = deferred()
    true = model.predict(X)
    assert (labels.shape, labels.dtype, labels.ndim, labels.size, len(labels)) == (
        (400,),
        np.int32,
        1,
        400,
        400,
    )
    assert "not computed" in repr(labels)
    assert (labels == 3).tolist() == (true == 3).tolist()
    assert labels[:10].tolist() == true[:10].tolist()
    assert np.bincount(labels).tolist() == np.bincount(true).tolist()
    assert np.asarray(labels).dtype == np.int32
    assert np.array(labels, dtype=np.int64, copy=True).dtype == np.int64
    assert X[labels == 1].shape == X[true == 1].shape
    assert model.means_[labels].shape == (400, 3)
    assert (2 * labels + labels).sum() == 3 * true.sum()
    assert list(labels) == true.tolist()
    assert adjusted_rand_score(labels, true) == 1.0
    assert type(pickle.loads(pickle.dumps(labels))) is np.ndarray
    assert repr(labels) == repr(true)
    labels += 1
    assert type(labels) is np.ndarray
    with pytest.raises(AttributeError, match="no attribute 'labls'"):
        _ = inertia.labls
    pandas = pytest.importorskip("pandas")
    again = operator.attrgetter("labels_")(copy.deepcopy(MIXTURE).fit(X))
    assert pandas.Series(again).tolist() == true.tolist()


def test_a_deferred_number_behaves_like_a_number():
    model, (_, inertia) = deferred()
    value = float(inertia)
    assert value == model.inertia_ == inertia
    assert inertia > 0
    assert inertia < value + 1
    assert f"{inertia:.3f}" == f"{value:.3f}"
    assert (round(inertia, 1), int(inertia), -inertia) == (round(value, 1), int(value), -value)
    assert np.isclose(inertia, value)
    assert bool(inertia)
    assert inertia.is_integer() == value.is_integer()
    assert type(copy.copy(inertia)) is float


def test_a_deferred_value_of_an_earlier_model_is_an_error():
    model = shoal.KMeans(4, random_state=0, tol=0)
    steps = model.iter_fit(X)
    next(steps)
    early = operator.attrgetter("labels_")(model)
    next(steps)
    with pytest.raises(RuntimeError, match="labels_ was not computed before the estimator changed"):
        np.asarray(early)
    batches = shoal.MiniBatchKMeans(4, random_state=0)
    buffer = X[:100].copy()
    early = operator.attrgetter("labels_")(batches.partial_fit(buffer))
    buffer[:] = 0
    with pytest.raises(RuntimeError, match="the rows of the last batch have changed"):
        early.tolist()


def test_labels_that_no_pass_can_compute_are_missing():
    for model in (shoal.KMeans(4), shoal.MiniBatchKMeans(4, compute_labels=False).fit(X)):
        assert not hasattr(model, "labels_")
        assert getattr(model, "inertia_", None) is None


@pytest.mark.parametrize("make", [shoal.KMeans, shoal.NestedMiniBatchKMeans, shoal.HierarchicalKMeans])
def test_labels_of_many_rows_in_files_stay_in_the_run_until_they_are_read(make, tmp_path, monkeypatch):
    path = tmp_path / "rows.npy"
    np.save(path, X)
    model = make(3, random_state=0)
    plain = copy.deepcopy(model).fit(path)
    monkeypatch.setattr("shoal._fit.labels.CONVERTED_ROWS", len(X) - 1)
    for rows, kept in ((path, True), (X, False)):
        model.fit(rows)
        assert (model._labels is None, model._finished is not None) == (kept, kept)
        assert model.inertia_ == plain.inertia_
        assert not pickle.loads(pickle.dumps(copy.copy(model)))._finished
        np.testing.assert_array_equal(copy.deepcopy(model).labels_, plain.labels_)
        np.testing.assert_array_equal(model.fit(rows).labels_, plain.labels_)
        assert model._finished is None
        np.testing.assert_array_equal(model.fit_predict(rows), plain.labels_)
        model.fit(rows)
        model.labels_ = np.zeros(len(X), dtype=np.int32)
        assert not model.labels_.any()


def test_labels_of_a_run_that_was_left_and_of_levels_come_from_the_run(tmp_path, monkeypatch):
    path = tmp_path / "rows.npy"
    np.save(path, X)
    monkeypatch.setattr("shoal._fit.labels.CONVERTED_ROWS", len(X) - 1)
    for read in (lambda model: model.labels_, lambda model: np.asarray(getattr(model, "labels_", None))):
        model = shoal.KMeans(3, random_state=0)
        for _ in model.iter_fit(path):
            break
        np.testing.assert_array_equal(read(model), model.predict(path))
    model = shoal.HierarchicalKMeans([6, 2], random_state=0).fit(path)
    np.testing.assert_array_equal(model.levels_[0].labels, model.predict(path))
