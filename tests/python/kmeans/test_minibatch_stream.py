"""Mini-batch k-means on streams: batches, merged states, files and errors."""

import copy
import pickle
import warnings

import minibatch_reference
import numpy as np
import pytest
import shoal
from generated import tight_blobs
from minibatch_parts import PURE, cut, same
from shoal import MiniBatchKMeans
from sklearn.exceptions import NotFittedError

# ---------------------------------------------------------------- partial_fit


@pytest.mark.parametrize("make", [MiniBatchKMeans, shoal.NestedMiniBatchKMeans, shoal.BackwardEulerKMeans])
def test_a_warning_that_is_raised_leaves_the_estimator_unchanged(make):
    X = np.random.default_rng(0).normal(size=(600, 3))
    zero = X[200:400].copy()
    zero[7] = 0
    model = make(5, metric="cosine", random_state=0).partial_fit(X[:200])
    expected = make(5, metric="cosine", random_state=0).partial_fit(X[:200]).partial_fit(X[400:])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="1 row of X is all zeros"):
            model.partial_fit(zero)
        assert model.n_steps_ == 1
        model.partial_fit(X[400:])
    np.testing.assert_array_equal(model.counts_, expected.counts_)
    np.testing.assert_array_equal(model.cluster_centers_, expected.cluster_centers_)


def test_attributes_change_only_with_the_whole_batch(monkeypatch):
    X = tight_blobs(60, 3, 5)
    model = MiniBatchKMeans(5, random_state=0).partial_fit(X)
    before = dict(vars(model))

    def interrupted(self, run):
        self.n_iter_ = 77
        raise KeyboardInterrupt

    monkeypatch.setattr(MiniBatchKMeans, "_read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(X)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())


def test_a_model_whose_rows_wait_cannot_be_saved(tmp_path):
    model = MiniBatchKMeans(16).partial_fit(np.eye(3))
    with pytest.raises(NotFittedError, match=r"3 of 16 rows so far\. Call it with more rows, or pickle"):
        model.save(tmp_path / "model.safetensors")
    pickle.loads(pickle.dumps(model)).partial_fit(np.eye(3, 3).repeat(6, 0)).save(
        tmp_path / "model.safetensors"
    )


def test_an_estimator_cannot_be_merged_with_itself():
    model = MiniBatchKMeans(5, random_state=0).partial_fit(tight_blobs(60, 3, 5))
    counts = model.counts_.copy()
    with pytest.raises(ValueError, match="its rows would count twice"):
        model.merge(model)
    np.testing.assert_array_equal(model.counts_, counts)


def test_rows_of_a_short_first_batch_are_kept():
    X = tight_blobs(60, 3, 5)
    model = MiniBatchKMeans(20, random_state=0)
    for start in range(0, 18, 6):
        model.partial_fit(X[start : start + 6])
        with pytest.raises(NotFittedError):
            model.predict(X)
        model = pickle.loads(pickle.dumps(model))
    model.partial_fit(X[18:60])
    assert model.counts_.sum() == 20 + 60
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :2])


def test_kept_rows_keep_their_weights():
    X = np.array([[0.0], [1.0], [10.0], [11.0]])
    model = MiniBatchKMeans(3, random_state=0, **PURE)
    model.partial_fit(X[:1], sample_weight=[3.0]).partial_fit(X[1:2])
    model.partial_fit(X[2:], sample_weight=[2.0, 0.5])
    assert model.counts_.sum() == 3 + 3 + 1 + 2.5


@pytest.mark.parametrize(
    "bad",
    [
        np.empty((0, 3)),
        np.zeros((4, 2)),
        np.array([[0.0, np.nan, 1.0]]),
        np.array([[0.0, np.inf, 1.0]] * 50),
        np.full((3, 3), 1e200),
    ],
)
@pytest.mark.parametrize("before", [2, 40])
def test_an_invalid_batch_leaves_the_state_unchanged(bad, before):
    X = tight_blobs(100, 3, 5)
    model = MiniBatchKMeans(5, random_state=0).partial_fit(X[:before])
    twin = copy.deepcopy(model)
    kept = pickle.dumps(model)
    with pytest.raises(ValueError, match=r"0 sample|features|NaN|inf|overflow"):
        model.partial_fit(bad)
    assert pickle.dumps(model) == kept
    with pytest.raises(ValueError, match="sample_weight"):
        model.partial_fit(X[:3], sample_weight=[1.0, -1.0, 2.0])
    with pytest.raises(ValueError, match="sample_weight"):
        model.partial_fit(X[:3], sample_weight=[0.0, 0.0, 0.0])
    assert pickle.dumps(model) == kept
    assert same(model.partial_fit(X[before:]), twin.partial_fit(X[before:]))


def test_partial_fit_continues_a_fit():
    X = tight_blobs(2000, 3, 5)
    model = MiniBatchKMeans(5, random_state=0, **PURE, max_iter=1).fit(X)
    slow = minibatch_reference.Sculley(model.cluster_centers_)
    slow.counts, slow.sums = model.counts_.copy(), model.cluster_centers_ * model.counts_[:, None]
    steps = model.n_steps_
    model.partial_fit(X[:300])
    slow.step(X[:300])
    np.testing.assert_allclose(model.cluster_centers_, slow.centers, rtol=1e-12)
    assert model.n_steps_ == steps + 1
    assert len(model.history_) == steps


def test_a_pickled_estimator_continues_with_identical_results():
    X = tight_blobs(4000, 3, 8, dtype=np.float32)
    plain, pickled = (MiniBatchKMeans(8, random_state=5, half_life=500) for _ in range(2))
    for batch in cut(X, [3, 200, 77]):
        plain.partial_fit(batch)
        pickled.partial_fit(batch)
        pickled = pickle.loads(pickle.dumps(pickled))
        twin = copy.deepcopy(pickled)
    assert same(plain, pickled)
    assert same(plain.partial_fit(X), pickled.partial_fit(X))
    assert not same(twin, pickled)


@pytest.mark.parametrize("n_jobs", [2, 3, 5])
def test_threads_do_not_change_results(n_jobs, tmp_path):
    X = tight_blobs(9000, 30, 40, dtype=np.float32)
    np.save(tmp_path / "rows.npy", X)
    given = {"random_state": 2, "batch_size": 3000, "max_iter": 3}
    alone = MiniBatchKMeans(40, n_jobs=1, **given).fit(X)
    for rows in (X, np.load(tmp_path / "rows.npy", mmap_mode="r"), tmp_path / "rows.npy"):
        model = MiniBatchKMeans(40, n_jobs=n_jobs, **given).fit(rows)
        assert same(alone, model)
        assert (alone.labels_ == model.labels_).all()
        assert alone.inertia_ == model.inertia_
    one, many = (MiniBatchKMeans(40, random_state=0, n_jobs=n) for n in (1, n_jobs))
    for batch in cut(X, [2500, 13]):
        one.partial_fit(batch)
        many.partial_fit(batch)
    assert same(one, many)


def test_small_types_are_computed_as_float32():
    X = np.random.default_rng(0).integers(0, 255, size=(3000, 6), dtype=np.uint8)
    given = {"random_state": 0, "batch_size": 100, "max_iter": 1}
    stored, widened = (MiniBatchKMeans(5, **given).fit(rows) for rows in (X, X.astype(np.float32)))
    assert same(stored, widened)
    stream = MiniBatchKMeans(5, random_state=0).partial_fit(X).partial_fit(X[:50].astype(np.int16))
    twin = copy.deepcopy(stream)
    assert same(stream.partial_fit(X.astype(np.float64)), twin.partial_fit(X)), "in the type of the centers"
    assert stream.cluster_centers_.dtype == np.float32


def test_the_state_does_not_grow():
    X = tight_blobs(20_000, 3, 5)
    model = MiniBatchKMeans(5, random_state=0).partial_fit(X[:100])
    size = len(pickle.dumps(model))
    for batch in cut(X, [100]):
        model.partial_fit(batch)
    assert len(pickle.dumps(model)) < size + 200


# ---------------------------------------------------------------- merging


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_merged_states_add_up(dtype):
    X = tight_blobs(1000, 3, 5, dtype=dtype)
    parts = [MiniBatchKMeans(5, init=X[:5], **PURE).partial_fit(part) for part in (X[:400], X[400:])]
    one, other = parts
    sums = [part.cluster_centers_ * part.counts_[:, None] for part in parts]
    counts = one.counts_ + other.counts_
    kept = pickle.dumps(other)
    assert one.merge(other) is one
    assert pickle.dumps(other) == kept
    assert (one.counts_ == counts).all()
    close = 1e-6 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(one.cluster_centers_, (sums[0] + sums[1]) / counts[:, None], rtol=close)
    assert one.n_steps_ == 2
    one.partial_fit(X[:10])
    assert one.counts_.sum() == counts.sum() + 10
    # Fits can be merged too.
    fitted = MiniBatchKMeans(5, random_state=0).fit(X)
    before = fitted.counts_.copy()
    fitted.merge(copy.deepcopy(fitted))
    assert (fitted.counts_ == 2 * before).all()
    with pytest.raises(AttributeError, match="predict"):
        _ = fitted.labels_


def test_states_that_cannot_be_merged():
    X = tight_blobs(100, 3, 5)
    model = MiniBatchKMeans(5, random_state=0).partial_fit(X)
    kept = pickle.dumps(model)
    others = {
        "same shape": [
            MiniBatchKMeans(4, random_state=0).partial_fit(X),
            MiniBatchKMeans(5, random_state=0).partial_fit(X[:, :2]),
        ],
        "compute type": [MiniBatchKMeans(5, random_state=0).partial_fit(X.astype(np.float32))],
    }
    for text, refused in others.items():
        for other in refused:
            with pytest.raises(ValueError, match=text):
                model.merge(other)
    for other in (MiniBatchKMeans(5), MiniBatchKMeans(5).partial_fit(X[:2])):
        with pytest.raises(NotFittedError, match="the other"):
            model.merge(other)
        with pytest.raises(NotFittedError, match="this"):
            other.merge(model)
    with pytest.raises(TypeError, match="MiniBatchKMeans"):
        model.merge(shoal.KMeans(5).fit(X))
    assert pickle.dumps(model) == kept


# ---------------------------------------------------------------- errors, files


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        ({"batch_size": 2.5}, "batch_size must be an integer"),
        ({"half_life": 0}, "half_life must be None or a finite number of rows above 0, got 0"),
        ({"half_life": -3.0}, "half_life"),
        ({"half_life": float("nan")}, "half_life"),
        ({"half_life": float("inf")}, "half_life"),
        ({"reassignment_ratio": -0.1}, "reassignment_ratio must be a number from 0 to 1"),
        ({"reassignment_ratio": 1.5}, "reassignment_ratio"),
        ({"reassignment_ratio": "no"}, "reassignment_ratio"),
        ({"max_no_improvement": -1}, "max_no_improvement must be None or an integer of at least 0"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": float("nan")}, "tol"),
        ({"compute_labels": "yes"}, "compute_labels must be True or False"),
        ({"n_clusters": 0}, "n_clusters"),
        ({"init": "best"}, "init must be one of"),
        ({"init": [[0.0, 0.0]]}, r"init must have shape \(2, 2\)"),
    ],
)
def test_invalid_parameters(given, text):
    X = tight_blobs(50, 2, 2)
    model = MiniBatchKMeans(**{"n_clusters": 2, **given})
    for use in (model.fit, model.iter_fit, model.partial_fit):
        with pytest.raises(ValueError, match=text):
            use(X)
    assert not hasattr(model, "cluster_centers_")


def test_all_problems_are_listed_at_once():
    wrong = {"n_clusters": 0, "batch_size": 0, "half_life": -1, "max_iter": 0, "compute_labels": None}
    with pytest.raises(ValueError, match="".join(f"(?=.*{name} must)" for name in wrong)):
        MiniBatchKMeans(**wrong).fit([[0.0]])


def test_n_clusters_cannot_change_between_batches():
    X = tight_blobs(100, 3, 5)
    model = MiniBatchKMeans(5, random_state=0).partial_fit(X).set_params(n_clusters=4)
    with pytest.raises(ValueError, match="n_clusters=4 differs from the 5 centers"):
        model.partial_fit(X)


@pytest.mark.parametrize("pickled", [False, True])
def test_parameters_changed_between_batches_apply_from_then_on(pickled):
    X = np.arange(40.0)[:, None]
    model = MiniBatchKMeans(1, init=[[0.0]], **PURE).partial_fit(X)
    model.set_params(half_life=10.0, n_jobs=2)
    if pickled:
        model = pickle.loads(pickle.dumps(model))
    model.partial_fit(np.full((20, 1), 100.0))
    # The earlier rows count one quarter: 40 rows and the initial center.
    share = 0.25 * 41
    assert model.counts_[0] == pytest.approx(share + 20, rel=1e-12)
    middle = (0.25 * X.sum() + 20 * 100) / (share + 20)
    assert model.cluster_centers_[0, 0] == pytest.approx(middle, rel=1e-12)


@pytest.mark.parametrize("pickled", [False, True])
def test_n_clusters_can_change_before_the_first_centers(pickled):
    X = tight_blobs(30, 2, 3)
    model = MiniBatchKMeans(8, random_state=0).partial_fit(X[:5]).set_params(n_clusters=12)
    if pickled:
        model = pickle.loads(pickle.dumps(model))
    assert not hasattr(model.partial_fit(X[5:10]), "cluster_centers_")
    assert model.partial_fit(X[10:]).cluster_centers_.shape == (12, 2)
    given = MiniBatchKMeans(8, init=X[:8]).partial_fit(X).set_params(n_clusters=12)
    with pytest.raises(ValueError, match="n_clusters=12 differs from the 8 centers"):
        given.partial_fit(X)


def test_merging_checks_parameters_too():
    X = tight_blobs(50, 2, 2)
    model = MiniBatchKMeans(2, random_state=0).partial_fit(X).set_params(half_life="long")
    with pytest.raises(ValueError, match="half_life must be"):
        model.merge(MiniBatchKMeans(2, random_state=0).partial_fit(X))


def test_non_finite_rows_are_named_by_position():
    X = tight_blobs(500, 3, 2)
    X[321, 1] = np.nan
    with pytest.raises(ValueError, match="row 321, column 1"):
        MiniBatchKMeans(2, init=X[:2], random_state=0, batch_size=500, max_no_improvement=None).fit(X)


def test_saved_and_loaded(tmp_path):
    X = tight_blobs(500, 3, 4)
    model = MiniBatchKMeans(4, random_state=0, half_life=1000, init=X[:4]).fit(X)
    model.save(tmp_path / "model.safetensors")
    again = shoal.load(tmp_path / "model.safetensors")
    assert type(again) is MiniBatchKMeans
    assert same(model, again)
    assert again.half_life == 1000
    assert again.inertia_ == model.inertia_
    assert (again.history_ == model.history_).all()
    assert (again.predict(X) == model.labels_).all()
    assert same(model.partial_fit(X), again.partial_fit(X)), "it goes on from there"
    stream = MiniBatchKMeans(4, random_state=0).partial_fit(X)
    stream.save(tmp_path / "stream.safetensors")
    assert same(shoal.load(tmp_path / "stream.safetensors"), stream)


@pytest.mark.parametrize(
    "Estimator", [MiniBatchKMeans, shoal.NestedMiniBatchKMeans, shoal.BackwardEulerKMeans]
)
def test_too_few_rows_so_far_are_counted(Estimator, tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 2))
    model = Estimator(50, random_state=0).partial_fit(rows[:20])
    model = pickle.loads(pickle.dumps(model.partial_fit(rows[20:25])))
    told = f"this {Estimator.__name__} has no centers yet: partial_fit has 25 of 50 rows so far"
    for call in (
        model.predict,
        model.transform,
        model.score,
        lambda X: model.predict(X, out=tmp_path / "labels.npy"),
        lambda X: shoal.write_predictions(model, X, tmp_path / "labels.parquet"),
    ):
        with pytest.raises(NotFittedError, match=told):
            call(rows)
    assert model.partial_fit(rows[25:]).predict(rows).max() < 50
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        Estimator(50).predict(rows)


@pytest.mark.parametrize("Estimator", [shoal.KMeans, MiniBatchKMeans, shoal.NestedMiniBatchKMeans])
def test_an_estimator_without_centers_cannot_be_saved(Estimator, tmp_path):
    models = [Estimator(4)]
    if Estimator is not shoal.KMeans:
        models.append(Estimator(4).partial_fit([[0.0], [1.0]]))
    for model in models:
        with pytest.raises(
            NotFittedError, match=f"this {Estimator.__name__} (is not fitted yet: it )?has no centers to save"
        ):
            model.save(tmp_path / "model.safetensors")
    assert not any(tmp_path.iterdir())


def test_callbacks_see_every_batch():
    X = tight_blobs(1000, 3, 4)
    seen = []

    def watch(estimator, step):
        seen.append((step.iteration, estimator.n_steps_))
        return step.iteration == 5

    model = MiniBatchKMeans(4, random_state=0, callbacks=[watch], batch_size=50).fit(X)
    assert seen == [(i, i) for i in range(1, 6)]
    assert model.stop_reason_ == "callback"
    assert model.labels_.shape == (1000,)


@pytest.mark.parametrize("fitted", ["partial_fit", "fit"])
def test_another_metric_is_refused(fitted):
    rows = np.random.default_rng(0).normal(size=(99, 3))
    model = getattr(MiniBatchKMeans(3, random_state=0), fitted)(rows)
    centers = model.cluster_centers_.copy()
    model.set_params(metric="cosine")
    with pytest.raises(
        ValueError, match=r"^metric='cosine' differs from 'euclidean', .*: call fit, or clone"
    ):
        model.partial_fit(rows)
    assert (model.set_params(metric="euclidean").cluster_centers_ == centers).all()
    model.partial_fit(rows)


@pytest.mark.parametrize("name", ["labels_", "inertia_"])
def test_missing_labels_name_the_parameter(name):
    rows = np.random.default_rng(0).normal(size=(99, 3))
    for model in (
        MiniBatchKMeans(3, compute_labels=False).fit(rows),
        MiniBatchKMeans(3, compute_labels=False).partial_fit(rows),
    ):
        with pytest.raises(AttributeError, match=f"{name}': compute_labels is False. Use predict"):
            getattr(model, name)
