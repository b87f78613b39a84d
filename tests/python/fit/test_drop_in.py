"""Code written for scikit-learn works with shoal."""

import copy
import gc
import pickle
import threading
import warnings
import weakref

import numpy as np
import pytest
import shoal
import sklearn.cluster
from scipy.sparse import csr_array
from shoal import BackwardEulerKMeans, KMeans, MiniBatchKMeans, NestedMiniBatchKMeans, StreamingCoreset
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

RNG = np.random.default_rng(1)
X = np.concatenate([RNG.normal(size=(400, 4)) + 9 * j for j in range(5)]).astype(np.float32)
RNG.shuffle(X)

STREAMED = [MiniBatchKMeans, NestedMiniBatchKMeans, BackwardEulerKMeans]


# ---------------------------------------------------------------- labels of a batch


@pytest.mark.parametrize("cls", STREAMED)
def test_labels_after_partial_fit_are_those_of_the_last_batch(cls):
    model = cls(5, random_state=0)
    weights = RNG.random(200)
    for first in range(0, 2000, 200):
        batch = X[first : first + 200]
        model.partial_fit(batch, sample_weight=weights)
        np.testing.assert_array_equal(model.labels_, model.predict(batch))
        assert model.labels_.dtype == np.int32
        assert model.inertia_ == pytest.approx(-model.score(batch, sample_weight=weights), rel=1e-12)
    # For a stream, labels are those of its last block.
    model.partial_fit(iter([X[:300], X[300:450]]))
    np.testing.assert_array_equal(model.labels_, model.predict(X[300:450]))
    # A fit sets the labels of its own rows again.
    assert len(model.fit(X).labels_) == len(X)
    model.partial_fit(csr_array(X[:50]))
    np.testing.assert_array_equal(model.labels_, model.predict(X[:50]))


def test_labels_equal_those_of_scikit_learn():
    given = {"n_clusters": 5, "init": X[:5].astype(float), "n_init": 1, "reassignment_ratio": 0.0}
    theirs, ours = sklearn.cluster.MiniBatchKMeans(**given), MiniBatchKMeans(**given)
    for first in range(0, 2000, 500):
        batch = X[first : first + 500].astype(float)
        theirs.partial_fit(batch)
        ours.partial_fit(batch)
        assert ours.labels_.shape == theirs.labels_.shape
        assert np.isscalar(ours.inertia_)


@pytest.mark.parametrize("cls", STREAMED)
def test_a_reused_batch_array_is_not_labeled(cls):
    model, buffer = cls(5, random_state=0), X[:100].copy()
    model.partial_fit(buffer)
    buffer[:] = X[100:200]
    assert not hasattr(model, "labels_")
    with pytest.raises(AttributeError, match="the rows of the last batch have changed since partial_fit"):
        _ = model.inertia_
    model.partial_fit(buffer)
    np.testing.assert_array_equal(model.labels_, model.predict(buffer))


@pytest.mark.parametrize("cls", STREAMED)
def test_cases_without_labels_after_a_batch(cls):
    assert not hasattr(cls(5, compute_labels=False).partial_fit(X[:100]), "labels_")
    # Too few rows for the first centers.
    model = cls(5, random_state=0).partial_fit(X[:3])
    assert not hasattr(model, "labels_")
    model.partial_fit(X[3:40])
    assert len(model.labels_) == 37
    # The labels of the last batch are pickled, whether or not they were read before, but not the batch.
    kept = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(kept.labels_, model.labels_)
    kept = pickle.loads(pickle.dumps(model.partial_fit(X[:40])))
    np.testing.assert_array_equal(kept.labels_, model.predict(X[:40]))
    assert kept.inertia_ == model.inertia_
    batch = X[:40].copy()
    model.partial_fit(batch)
    batch[:] = 0
    assert not hasattr(pickle.loads(pickle.dumps(model)), "labels_")


def test_the_last_batch_is_neither_copied_nor_kept_alive():
    model, batch = MiniBatchKMeans(5, random_state=0), X[:200].copy()
    kept = weakref.ref(batch)
    model.partial_fit(batch)
    del batch
    # The array is alive because the model refers to it, and not to a copy.
    assert kept() is not None
    model.partial_fit(X[200:400])
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize(
    "cls",
    [
        KMeans,
        *STREAMED,
        shoal.VarianceReducedKMeans,
        shoal.BreathingKMeans,
        shoal.BalancedKMeans,
        shoal.LaplacianKModes,
    ],
)
def test_labels_and_inertia_can_be_assigned(cls):
    model = cls(3, random_state=0).fit(X[:300])
    model.labels_ = mine = np.arange(300)
    assert model.labels_ is mine
    assert pickle.loads(pickle.dumps(model)).labels_.tolist() == mine.tolist()
    if cls is not shoal.LaplacianKModes:
        model.inertia_ = 7.0
        assert model.inertia_ == 7.0
    if cls in STREAMED:
        model.partial_fit(X[:60])
        model.labels_ = mine
        assert model.inertia_ > 0
        assert model.labels_ is mine


def test_the_online_mode_of_bertopic():
    """BERTopic calls partial_fit and then reads labels_ of the batch."""
    model, topics = MiniBatchKMeans(n_clusters=5, random_state=0), []
    for first in range(0, 2000, 250):
        model.partial_fit(X[first : first + 250])
        topics.extend(model.labels_.tolist())
    assert len(topics) == len(X)


# ---------------------------------------------------------------- parameters of scikit-learn


def test_copy_x_changes_nothing():
    before = X.copy()
    models = [KMeans(5, copy_x=copy_x, random_state=0).fit(X) for copy_x in (True, False)]
    np.testing.assert_array_equal(models[0].labels_, models[1].labels_)
    np.testing.assert_array_equal(X, before)
    with pytest.raises(ValueError, match="copy_x must be True or False, got 'no'"):
        KMeans(5, copy_x="no").fit(X)


def test_the_best_of_several_seedings_is_used():
    first = {"init": "random", "batch_size": 50, "max_iter": 1, "max_no_improvement": None}

    def inertia(n_init, seed, **more):
        model = MiniBatchKMeans(5, n_init=n_init, random_state=seed, compute_labels=False, **first, **more)
        for _ in model.iter_fit(X):
            break
        return -model.score(X)

    one, ten = (np.mean([inertia(n_init, seed) for seed in range(30)]) for n_init in (1, 10))
    assert ten < one / 2
    # If the first start is best, the draws are those of a single start.
    assert inertia("auto", 3) == inertia(3, 3) <= inertia(1, 3) * 1.5
    again = [inertia(4, 7, init_size=60) for _ in range(2)]
    assert again[0] == again[1]


def test_a_callable_is_called_once_per_start():
    calls = []

    def choose(rows, k, random_state):
        chosen = random_state.choice(len(rows), k, replace=False)
        calls.append(rows[chosen])
        return calls[-1]

    for n_init, expected in [("auto", 3), (5, 5), (1, 1)]:
        calls.clear()
        model = MiniBatchKMeans(5, init=choose, n_init=n_init, max_iter=1, random_state=0, batch_size=2000)
        model.fit(X)
        assert len(calls) == expected
        best = min(calls, key=lambda centers: shoal.metrics.inertia(X, centers))
        same = MiniBatchKMeans(5, init=best, max_iter=1, random_state=0, batch_size=2000).fit(X)
        np.testing.assert_array_equal(model.cluster_centers_, same.cluster_centers_)


@pytest.mark.parametrize("cls", [KMeans, MiniBatchKMeans])
@pytest.mark.parametrize("init", ["k-means++", "random", "callable", "array"])
def test_auto_is_a_number_of_starts(cls, init):
    rows = np.random.default_rng(3).normal(size=(300, 6))
    starts = (10 if cls is KMeans else 3) if init in ("random", "callable") else 1
    chosen = {
        "callable": lambda X, k, random_state: X[random_state.permutation(len(X))[:k]],
        "array": rows[:12],
    }

    def fits(seed):
        for n_init in ("auto", starts, starts + 1 if init != "array" else 1):
            model = cls(12, init=chosen.get(init, init), n_init=n_init, random_state=seed, max_iter=3)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                yield model.fit(rows).cluster_centers_.tobytes()

    found = [tuple(fits(seed)) for seed in range(12)]
    assert all(auto == same for auto, same, _ in found)
    # One more start is better for some seeds.
    assert init == "array" or any(auto != more for auto, _, more in found)


@pytest.mark.parametrize("init", ["random", "k-means++", "plain-k-means++", "afk-mc2", "k-means||"])
def test_seedings_draw_by_weight(init):
    rows = np.random.default_rng(3).normal(size=(100, 5))
    # Rows without weight lie far away, where a center would stay.
    rows[::2] += 1e6
    weights = np.random.default_rng(4).uniform(size=100)
    weights[::2] = 0.0
    given = {"init": init, "reassignment_ratio": 0.0, "max_iter": 1, "n_init": 1}
    for seed in range(20):
        model = MiniBatchKMeans(10, random_state=seed, **given).fit(rows, sample_weight=weights)
        assert np.abs(model.cluster_centers_).max() < 1e3
    # A row of nearly all the weight is always drawn.
    heavy = np.where(np.arange(100) == 7, 1e9, 1.0)
    model = MiniBatchKMeans(2, random_state=0, **given)
    assert all(
        np.abs(model.set_params(random_state=seed).fit(rows, sample_weight=heavy).cluster_centers_ - rows[7])
        .max(axis=1)
        .min()
        < 1e-3
        for seed in range(20)
    )


def test_init_size():
    seen = MiniBatchKMeans(5, init="k-means++", init_size=77, random_state=0).fit(X)
    assert seen.init_ == "k-means++ on 77 sampled rows"
    assert MiniBatchKMeans(5, init="random", init_size=9999, random_state=0).fit(X).init_ == "random"
    with pytest.warns(
        RuntimeWarning, match=r"init_size must be at least n_clusters=5, got 3. init_size=15 is used"
    ):
        few = MiniBatchKMeans(5, init_size=3, random_state=0).fit(X)
    assert few.init_ == "k-means++ on 15 sampled rows"
    weights = np.zeros(len(X))
    weights[:40] = 1.0
    for init in ("auto", "random", "k-means++", "afk-mc2", "k-means||"):
        given = {"init": init, "init_size": 100, "n_init": 2, "reassignment_ratio": 0.0, "random_state": 0}
        one, two = (MiniBatchKMeans(5, n_jobs=n, **given).fit(X, sample_weight=weights) for n in (1, 2))
        np.testing.assert_array_equal(one.cluster_centers_, two.cluster_centers_)


def test_n_init_is_refused_where_it_has_no_meaning():
    for given, match in [
        ({"n_init": 0}, "n_init must be 'auto' or an integer of at least 1, got 0"),
        ({"init_size": 0}, "init_size must be None or an integer of at least 1, got 0"),
    ]:
        with pytest.raises(ValueError, match=match):
            MiniBatchKMeans(5, **given).fit(X)
    with pytest.warns(RuntimeWarning, match="performing only one init in MiniBatchKMeans"):
        MiniBatchKMeans(5, init=X[:5], n_init=4).fit(X)


# ---------------------------------------------------------------- clones


class Holding:
    """A callback that cannot be copied."""

    def __init__(self):
        self.lock = threading.Lock()
        self.steps = 0

    def __call__(self, model, step):
        self.steps += 1


class Counting:
    def __init__(self):
        self.steps = 0

    def __call__(self, model, step):
        self.steps += 1


@pytest.mark.parametrize("cls", [KMeans, MiniBatchKMeans, shoal.TruncatedGaussianMixture, StreamingCoreset])
def test_clones_keep_callbacks(cls):
    holding, counting = Holding(), Counting()
    for callbacks in ([holding, counting], (holding, counting)):
        model = cls(3, random_state=0, callbacks=callbacks)
        copied = clone(model)
        assert copied is not model
        assert type(copied.callbacks) is type(callbacks)
        assert copied.callbacks[0] is holding
        # A callback that can be copied is copied, as before.
        assert type(copied.callbacks[1]) is Counting
        assert copied.callbacks[1] is not counting
    assert clone(cls(3)).callbacks is None
    assert clone(cls(4)).get_params() == cls(4).get_params()


def test_clones_can_be_fitted():
    holding = Holding()
    model = KMeans(3, random_state=0, callbacks=[holding]).fit(X)
    assert clone(model).set_output(transform="default").fit(X).n_iter_ * 2 == holding.steps
    assert not hasattr(clone(model), "cluster_centers_")


# ---------------------------------------------------------------- sources


def test_sources_of_files_are_pickled_by_path(tmp_path, monkeypatch):
    np.save(tmp_path / "rows.npy", X)
    X.tofile(tmp_path / "rows.raw")
    monkeypatch.chdir(tmp_path)
    sources = [
        shoal.open("rows.npy"),
        shoal.open("rows.raw", shape=X.shape, dtype="float32"),
        shoal.open("rows.npy").slice(100, 1500).slice(10, 400),
    ]
    monkeypatch.chdir("/")
    for source in sources:
        text = pickle.dumps(source)
        assert len(text) < 2000
        for again in (pickle.loads(text), copy.deepcopy(source), copy.copy(source)):
            assert isinstance(again, shoal.DataSource)
            assert repr(again) == repr(source)
            np.testing.assert_array_equal(np.asarray(again), np.asarray(source))
            with pytest.raises(ValueError, match="is the file that is read"):
                KMeans(2).fit(X).predict(again, out=source._path)
    with sources[0]:
        pass
    with pytest.raises(ValueError, match="is closed"):
        pickle.dumps(sources[0])


def test_streamed_files_are_pickled_too(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.table({name: X[:, i] for i, name in enumerate("abcd")})
    parquet.write_table(table, tmp_path / "rows.parquet")
    source = shoal.open(tmp_path / "rows.parquet", columns=["c", "a"])
    again = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(np.asarray(again), X[:, [2, 0]])
    np.testing.assert_array_equal(np.asarray(source), X[:, [2, 0]])


def test_a_pickled_source_of_a_changed_file_is_refused(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, X)
    kept, part = pickle.dumps(shoal.open(path)), pickle.dumps(shoal.open(path).slice(5, 1000))
    np.save(path, X[:500])
    with pytest.raises(ValueError, match=r"rows\.npy: holds \(500, 4\) float32, and held \(2000, 4\)"):
        pickle.loads(kept)
    with pytest.raises(ValueError, match=r"rows\.npy: has 500 rows, and had 1000 or more"):
        pickle.loads(part)


def test_other_sources_cannot_be_pickled(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    for obj in (X, np.load(tmp_path / "rows.npy", mmap_mode="r"), lambda: iter([X]), csr_array(X)):
        with pytest.raises(TypeError, match="was not opened by the path of a file"):
            pickle.dumps(source := shoal.open(obj))
        # A shallow copy has the same rows.
        assert repr(copy.copy(source)) == repr(source)


def test_sources_in_estimators_of_joblib(tmp_path):
    joblib = pytest.importorskip("joblib")
    np.save(tmp_path / "rows.npy", X)
    source = shoal.open(tmp_path / "rows.npy")
    work = joblib.delayed(lambda rows: KMeans(5, random_state=0).fit(rows).inertia_)
    (found,) = joblib.Parallel(n_jobs=2)([work(source)])
    assert found == KMeans(5, random_state=0).fit(X).inertia_


def test_sources_become_arrays():
    source = shoal.open(X)
    for array in (np.asarray(source), np.array(source), np.asarray(shoal.open(lambda: iter([X[:9], X[9:]])))):
        np.testing.assert_array_equal(array, X)
        assert array.dtype == X.dtype
        assert not np.shares_memory(array, X)
    assert np.asarray(source, dtype="f8").dtype == np.float64
    assert np.asarray(shoal.open(iter([X[:9]]))).shape == (9, 4)
    assert np.asarray(shoal.open(X.astype(np.uint8))).dtype == np.uint8
    assert np.asarray(source.slice(3, 3)).shape == (0, 4)
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(ValueError, match="copy must not be False"):
            np.array(source, copy=False)
    with pytest.raises(TypeError, match="is sparse"):
        np.asarray(shoal.open(csr_array(X)))
