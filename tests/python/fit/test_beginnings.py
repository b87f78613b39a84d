"""How a fit begins and ends: what an estimator holds before its first step, and after it has failed."""

from __future__ import annotations

import numpy as np
import pytest
import shoal
from estimators import ESTIMATORS, class_name
from shoal.callbacks import Callback, Checkpoint
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

X = np.random.default_rng(0).normal(size=(300, 3))
OTHER = np.random.default_rng(1).normal(size=(200, 2))

pytestmark = pytest.mark.filterwarnings("ignore:the fit did not converge")


class Failing(Callback):
    """Fails in one of its calls."""

    def __init__(self, where):
        self.where = where

    def fail(self, where):
        if where == self.where:
            raise OSError(f"failed in {where}")

    def begin(self, estimator):
        self.fail("begin")

    def __call__(self, estimator, step):
        self.fail("step")

    def leave(self, estimator):
        self.fail("leave")


def held(model):
    """What an estimator holds, as values that compare: its attributes, and the labels of its rows."""
    public = {name: value for name, value in vars(model).items() if name.endswith("_")}
    return {name: repr(value) for name, value in public.items()}, model.predict(X).tolist()


@pytest.mark.parametrize("model", ESTIMATORS, ids=class_name)
def test_an_iterator_that_is_not_advanced_changes_nothing(model):
    model = clone(model).fit(X)
    before = held(model)
    steps = model.iter_fit(OTHER)
    assert model.n_features_in_ == 3
    assert held(model) == before
    with pytest.raises(ValueError, match="2 features"):
        model.predict(OTHER)
    del steps
    assert held(model) == before
    for _ in model.iter_fit(OTHER):
        assert model.n_features_in_ == 2
        break
    assert model.predict(OTHER).shape == (200,)


def test_names_of_features_wait_for_the_first_step():
    frame = pytest.importorskip("pandas").DataFrame(OTHER, columns=["a", "b"])
    model = shoal.KMeans(4, random_state=0).fit(X)
    steps = model.iter_fit(frame)
    assert not hasattr(model, "feature_names_in_")
    next(steps)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    # A further fit without names.
    steps = model.iter_fit(X)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    next(steps)
    assert not hasattr(model, "feature_names_in_")


def test_an_estimator_that_was_not_advanced_is_not_fitted():
    model = shoal.KMeans(4, random_state=0)
    steps = model.iter_fit(X)
    assert not hasattr(model, "n_features_in_")
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert next(steps).iteration == 1
    assert model.n_features_in_ == 3


@pytest.mark.parametrize("model", ESTIMATORS, ids=class_name)
@pytest.mark.parametrize("bad", ["callback", "rows"])
def test_the_earlier_fit_comes_back_if_the_first_step_fails(model, bad):
    model = clone(model).fit(X)
    before = held(model)
    wrong, expected = OTHER.copy(), (ValueError, "NaN")
    if bad == "callback":
        model.set_params(callbacks=[Failing("begin")])
        expected = OSError, "failed in begin"
    else:
        wrong[150, 1] = np.nan
    # A source is not checked before it is read.
    steps = model.iter_fit(shoal.open(wrong))
    with pytest.raises(expected[0], match=expected[1]):
        next(steps)
    assert held(model) == before


def test_a_failure_after_the_first_step_keeps_that_step():
    model = shoal.KMeans(4, random_state=0).fit(X)
    model.set_params(callbacks=[Failing("step")])
    with pytest.raises(OSError, match="failed in step"):
        model.fit(OTHER)
    assert (model.n_features_in_, len(model.history_)) == (2, 1)


# ---------------------------------------------------------------- the last call of callbacks


def test_a_failed_last_call_raises():
    model = shoal.KMeans(4, random_state=0, callbacks=[Failing("leave")])
    with pytest.raises(OSError, match="failed in leave"):
        model.fit(X)
    # Also while the caller handles an exception of its own.
    try:
        raise KeyError("of the caller")
    except KeyError:
        with pytest.raises(OSError, match="failed in leave"):
            model.fit(X)


def test_a_failed_last_call_does_not_hide_the_error_of_the_fit():
    model = shoal.KMeans(4, random_state=0, callbacks=[Failing("leave"), Failing("step")])
    with (
        pytest.warns(RuntimeWarning, match="failed in leave"),
        pytest.raises(OSError, match="failed in step"),
    ):
        model.fit(X)


def test_a_failed_last_checkpoint_raises_while_another_error_is_handled(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "run.safetensors"

    def remove(estimator, step):
        if folder.exists():
            folder.rmdir()

    model = shoal.KMeans(4, random_state=0, callbacks=[Checkpoint(path), remove])
    try:
        raise KeyError("of the caller")
    except KeyError:
        with pytest.raises(OSError, match="run"):
            model.fit(X)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("handled", [None, KeyError, KeyboardInterrupt])
def test_a_checkpoint_before_the_first_step_depends_on_the_fit_alone(error, handled, tmp_path):
    """An interrupt leaves a checkpoint and a failure does not, whatever the caller handles."""
    path = tmp_path / "run.safetensors"
    model = shoal.KMeans(4, random_state=0, callbacks=[Checkpoint(path)])

    def broken(run, watchers):
        raise error("in the first step")

    model._next = broken

    def fit():
        with pytest.raises(error, match="in the first step"):
            model.fit(X)

    if handled is None:
        fit()
    else:
        try:
            raise handled
        except handled:
            fit()
    assert path.exists() == (error is KeyboardInterrupt)


def test_distributed_fits_end_in_the_same_way():
    model = shoal.distributed.KMeans(4, random_state=0, callbacks=[Failing("leave")])
    try:
        raise KeyError("of the caller")
    except KeyError:
        with pytest.raises(OSError, match="failed in leave"):
            model.fit([X[:100], X[100:]])
    model.set_params(callbacks=[Failing("leave"), Failing("step")])
    with (
        pytest.warns(RuntimeWarning, match="failed in leave"),
        pytest.raises(OSError, match="failed in step"),
    ):
        model.fit([X[:100], X[100:]])
