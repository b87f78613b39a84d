"""Hierarchical k-means with several levels: labels, files, clones, errors."""

import copy
import io
import json
import pickle
import re

import joblib
import numpy as np
import pytest
import shoal
from shoal import HierarchicalKMeans, KMeans, _core
from shoal.callbacks import Checkpoint
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

RNG = np.random.default_rng(2)
X = (RNG.normal(size=(4000, 5)) + 6 * RNG.normal(size=(12, 5))[RNG.integers(0, 12, size=4000)]).astype("f4")
COUNTS = [200, 40, 8]
GIVEN = {"n_candidates": 20, "max_iter": 4, "random_state": 1}


@pytest.fixture(scope="module")
def model():
    return HierarchicalKMeans(COUNTS, **GIVEN).fit(X)


def same_levels(one, other):
    assert len(one.levels_) == len(other.levels_)
    for a, b in zip(one.levels_, other.levels_, strict=True):
        np.testing.assert_array_equal(a.cluster_centers, b.cluster_centers)
        np.testing.assert_array_equal(a.ancestors, b.ancestors)
        assert (a.parents is None) == (b.parents is None)
        if a.parents is not None:
            np.testing.assert_array_equal(a.parents, b.parents)


def test_the_first_level_is_the_fit_with_one_number(model):
    plain = HierarchicalKMeans(200, **GIVEN).fit(X)
    np.testing.assert_array_equal(model.cluster_centers_, plain.cluster_centers_)
    np.testing.assert_array_equal(model.labels_, plain.labels_)
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    assert model.transform(X[:5]).shape == (5, 200)
    (only,) = plain.levels_
    assert only.parents is None
    np.testing.assert_array_equal(only.cluster_centers, plain.cluster_centers_)
    np.testing.assert_array_equal(only.labels, plain.labels_)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_every_level_clusters_the_centers_below(metric):
    model = HierarchicalKMeans(COUNTS, metric=metric, **GIVEN).fit(X)
    assert [level.cluster_centers.shape for level in model.levels_] == [(k, 5) for k in COUNTS]
    labels = model.labels_
    for below, level in zip(model.levels_, model.levels_[1:], strict=False):
        assert (below.parents.dtype, len(below.parents)) == (np.int32, len(below.cluster_centers))
        nearest, _ = shoal.nearest(below.cluster_centers, level.cluster_centers, metric=metric)
        np.testing.assert_array_equal(below.parents, nearest)
        # The centers are means of the centers below, each with weight 1.
        flat = KMeans(len(level.cluster_centers), init=level.cluster_centers, max_iter=1, metric=metric)
        np.testing.assert_allclose(
            flat.fit(below.cluster_centers).cluster_centers_, level.cluster_centers, atol=1e-4
        )
        labels = below.parents[labels]
        assert level.labels.dtype == model.labels_.dtype
        np.testing.assert_array_equal(level.labels, labels)
        np.testing.assert_array_equal(level.ancestors[model.predict(X)], labels)
    assert model.levels_[-1].parents is None
    assert "40 clusters" in repr(model.levels_)


@pytest.mark.parametrize("counts", [COUNTS, tuple(COUNTS), np.array(COUNTS), np.array(COUNTS, np.uint16)])
def test_numbers_may_be_any_sequence(counts, model):
    fitted = HierarchicalKMeans(counts, **GIVEN).fit(X)
    same_levels(fitted, model)
    again = clone(fitted)
    assert np.array_equal(again.n_clusters, COUNTS)
    assert again.get_params().keys() == fitted.get_params().keys()
    same_levels(again.fit(X), model)


def test_threads_and_files_give_the_same_levels(tmp_path, model):
    np.save(tmp_path / "rows.npy", X)
    for rows, n_jobs in ((X, 1), (tmp_path / "rows.npy", 3)):
        same_levels(HierarchicalKMeans(COUNTS, n_jobs=n_jobs, **GIVEN).fit(rows), model)


def test_saved_and_copied_models_have_their_levels(tmp_path, model, monkeypatch):
    path = tmp_path / "model.safetensors"
    model.save(path)
    buffer = io.BytesIO()
    joblib.dump(model, buffer)
    buffer.seek(0)
    copies = [shoal.load(path), pickle.loads(pickle.dumps(model)), copy.deepcopy(model), joblib.load(buffer)]
    monkeypatch.setattr(_core, "start", None)
    for again in copies[:3]:
        same_levels(again, model)
        assert again.n_clusters == COUNTS
    monkeypatch.undo()
    same_levels(copies[3], model)
    np.testing.assert_array_equal(copies[1].levels_[2].labels, model.levels_[2].labels)
    with pytest.raises(AttributeError, match=r"the model has no labels_.*ancestors\[model.predict"):
        copies[0].levels_[1].labels  # noqa: B018
    copies[0].save(path)
    same_levels(shoal.load(path), model)
    level = pickle.loads(pickle.dumps(model.levels_[1]))
    np.testing.assert_array_equal(level.labels, model.levels_[1].labels)


def test_other_programs_get_the_first_number(tmp_path, model):
    path = tmp_path / "model.safetensors"
    model.save(path)
    assert json.loads(_core.load_model(str(path))[2]["params"])["n_clusters"] == 200
    theirs = shoal.convert.to_sklearn(model)
    assert (theirs.n_clusters, len(theirs.cluster_centers_)) == (200, 200)


def test_without_labels(model):
    bare = HierarchicalKMeans(COUNTS, compute_labels=False, **GIVEN).fit(X)
    same_levels(bare, model)
    with pytest.raises(AttributeError, match="the model has no labels_"):
        bare.levels_[0].labels  # noqa: B018


def test_damaged_levels_are_errors(tmp_path, model):
    path = tmp_path / "model.safetensors"
    model.save(path)
    kind, arrays, meta = _core.load_model(str(path))
    changes = [
        {"levels.1.parents": arrays["levels.1.parents"][:-1]},
        {"levels.0.parents": arrays["levels.0.parents"].astype(np.int64)},
        {"levels.0.parents": np.full(200, 40, np.int32)},
        {"levels.0.parents": np.full(200, -1, np.int32)},
        {"levels.1.cluster_centers": arrays["levels.1.cluster_centers"][:, :3]},
        {"levels.2.cluster_centers": arrays["levels.2.cluster_centers"] * np.float32(np.nan)},
    ]
    for change in changes:
        _core.save_model(str(path), kind, arrays | change, meta)
        with pytest.raises(ValueError, match=r"is damaged.*levels\.\d"):
            shoal.load(path)
    for text in ('{"n_clusters": [200, 200]}', '{"n_clusters": [200, -3]}', '{"n_clusters": 200}', "[]"):
        _core.save_model(str(path), kind, arrays, meta | {"levels": text})
        with pytest.raises(ValueError, match="is damaged"):
            shoal.load(path)
    for missing in ("levels.1.parents", "levels.2.cluster_centers"):
        _core.save_model(str(path), kind, {n: a for n, a in arrays.items() if n != missing}, meta)
        with pytest.raises(ValueError, match="is damaged"):
            shoal.load(path)


def test_fits_that_end_early(tmp_path, model):
    path = tmp_path / "run.safetensors"
    plan = HierarchicalKMeans(COUNTS, branching_factor=6, **GIVEN)
    whole = clone(plan).fit(X)
    watched = clone(plan).set_params(
        callbacks=[Checkpoint(path, every_steps=1), lambda _, step: step.iteration == 2]
    )
    with pytest.warns(ConvergenceWarning, match="distinct clusters"):
        watched.fit(X)
    with pytest.raises(
        AttributeError, match=r"the model has \d+ clusters, not more than the 40 of the second level"
    ):
        watched.levels_  # noqa: B018
    resumed = shoal.resume(path, X, callbacks=[])
    assert resumed.n_clusters == COUNTS
    same_levels(resumed, whole)
    # After a break, the levels are made when they are read.
    broken = clone(plan)
    for _ in broken.iter_fit(X):
        if len(broken.cluster_centers_) == 200:
            break
    assert [len(level.cluster_centers) for level in broken.levels_] == COUNTS
    np.testing.assert_array_equal(broken.levels_[0].cluster_centers, broken.cluster_centers_)
    # A new fit makes new levels.
    same_levels(broken.fit(X), whole)


def test_a_checkpoint_of_other_levels_is_an_error(tmp_path):
    path = tmp_path / "run.safetensors"
    plan = HierarchicalKMeans(COUNTS, **GIVEN)
    clone(plan).set_params(callbacks=[Checkpoint(path, every_steps=1)]).fit(X)
    other = clone(plan).set_params(n_clusters=[200, 30], callbacks=[Checkpoint(path)])
    with pytest.raises(ValueError, match=r"n_clusters must be \[200, 40, 8\], as in the checkpoint"):
        other.fit(X)


@pytest.mark.parametrize(
    "counts", [[], [10, 10], [10, 20], [10, 0], [10, True], [10.0, 5], [10, None], ["10"], np.array([[9, 3]])]
)
def test_wrong_numbers(counts):
    text = (
        "n_clusters must be an integer or a sequence of decreasing integers of at least 1, got "
        f"{' '.join(repr(counts).split())}"
    )
    with pytest.raises(ValueError, match=re.escape(text)):
        HierarchicalKMeans(counts).fit(X)


def test_more_clusters_than_rows():
    with pytest.raises(ValueError, match="n_samples=4000 should be >= n_clusters=5000"):
        HierarchicalKMeans([5000, 10]).fit(X)


def test_there_are_no_levels_before_a_fit():
    with pytest.raises(AttributeError, match="'levels_': it is not fitted yet"):
        HierarchicalKMeans(COUNTS).levels_  # noqa: B018


@pytest.mark.parametrize("changed", [[30, 10, 3], 7])
def test_a_file_holds_the_levels_of_the_fit(tmp_path, changed):
    rows = np.random.default_rng(0).normal(size=(600, 4))
    model = HierarchicalKMeans([30, 5], random_state=0).fit(rows)
    expected = [level.cluster_centers for level in model.levels_]
    model.set_params(n_clusters=changed).save(tmp_path / "model.safetensors")
    loaded = shoal.load(tmp_path / "model.safetensors")
    assert loaded.n_clusters == [30, 5]
    for level, centers in zip(loaded.levels_, expected, strict=True):
        np.testing.assert_array_equal(level.cluster_centers, centers)
