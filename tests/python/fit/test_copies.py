"""Copies, pickles and saved models."""

import copy
import pickle

import joblib
import numpy as np
import pytest
import shoal
from fitted_models import X, fitted
from shoal import KMeans, callbacks
from sklearn.base import clone

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


def test_steps_are_pickled():
    step = next(shoal.KMeans(3, random_state=0).iter_fit(np.random.default_rng(0).normal(size=(99, 2))))
    for given in (step, step.with_reason("deadline")):
        for again in (pickle.loads(pickle.dumps(given)), copy.copy(given)):
            assert type(again) is shoal.Step
            for name in shoal.KMeans(1).fit([[0.0], [1.0]]).history_.dtype.names:
                assert getattr(again, name) == getattr(given, name)
