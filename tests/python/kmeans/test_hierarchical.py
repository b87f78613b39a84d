"""Hierarchical k-means: sweeps against a slow reference, exact labels, sources, files."""

import json
import pickle
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shoal
from hierarchical_reference import sq_dists, sweeps
from shoal import HierarchicalKMeans, KMeans, _core
from shoal.callbacks import Checkpoint
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

RNG = np.random.default_rng(5)
X = (RNG.normal(size=(6000, 12)) + 4 * RNG.normal(size=(30, 12))[RNG.integers(0, 30, size=6000)]).astype(
    "float32"
)
WEIGHTS = RNG.integers(1, 4, size=len(X)).astype(float)


def left(model):
    """What a fit leaves behind."""
    return (
        model.cluster_centers_.tobytes(),
        model.labels_.tobytes(),
        model.inertia_,
        model.certified_,
        model.sample_rows_,
        model.history_["objective"].tobytes(),
    )


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weights"])
@pytest.mark.parametrize("m", [8, 12, 500])
def test_sweeps_match_the_reference(tmp_path, m, weights):
    path, k, count = tmp_path / "tree.safetensors", 120, 6
    model = HierarchicalKMeans(k, n_candidates=m, tol=0, max_iter=count, random_state=2)
    # The last checkpoint before the sweeps holds the labels of the tree.
    watched = clone(model).set_params(callbacks=[Checkpoint(path, every_steps=1)])
    for _ in watched.iter_fit(X, weights):
        state = _core.load_model(str(path))
        if json.loads(state[2]["state"])["grown"]:
            break
    assert len(watched.history_) < 6
    start = (state[1]["centers"], state[1]["labels"].astype(np.int64))
    centers, _, objectives = sweeps(X, *start, m, count, weights)
    model.fit(X, sample_weight=weights)
    found = model.history_["objective"][-count:]
    if weights is None or m == 500:
        np.testing.assert_allclose(found, objectives, rtol=1e-5)
        np.testing.assert_allclose(model.cluster_centers_, centers, atol=1e-4)
    else:
        # After the third sweep, clusters are merged and split, which the reference does not do.
        np.testing.assert_allclose(found[:2], objectives[:2], rtol=1e-5)
        assert (found[2:] < objectives[2:]).all()


@pytest.mark.parametrize(
    ("d", "m", "certified"), [(2, 10, (0.9, 1)), (5, 40, (0.5, 1)), (12, 2, (0, 0.99)), (12, 500, (1, 1))]
)
def test_labels_are_exact(d, m, certified):
    model = HierarchicalKMeans(200, n_candidates=m, random_state=1).fit(X[:, :d])
    least, most = certified
    assert least <= model.certified_ <= most
    np.testing.assert_array_equal(model.predict(X[:, :d]), model.labels_)
    apart = sq_dists(X[:, :d].astype(float), model.cluster_centers_.astype(float))
    nearest = apart.min(axis=1)
    # Of nearly equal distances float32 may choose another one.
    np.testing.assert_allclose(apart[np.arange(len(X)), model.labels_], nearest, rtol=1e-4, atol=1e-4)
    assert (apart.argmin(axis=1) == model.labels_).mean() > 0.999
    assert model.inertia_ == pytest.approx(nearest.sum(), rel=1e-6)
    assert model.counts_.sum() == len(X)


def test_any_source_and_number_of_threads_give_the_same_bits(tmp_path):
    rows = np.clip(X * 8 + 128, 0, 255).astype(np.uint8)
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "wide.npy", rows.astype(np.float32))
    plan = HierarchicalKMeans(300, n_candidates=20, random_state=3, max_iter=8)
    expected = left(clone(plan).fit(rows))
    for source in (
        rows.astype(np.float32),
        np.asfortranarray(rows),
        str(tmp_path / "rows.npy"),
        str(tmp_path / "wide.npy"),
        np.load(tmp_path / "rows.npy", mmap_mode="r"),
    ):
        for n_jobs in (1, 2, 4):
            assert left(clone(plan).set_params(n_jobs=n_jobs).fit(source)) == expected


def test_sparse_rows_and_float64():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    rows = np.where(RNG.random(X.shape) < 0.3, X, 0).astype(np.float32)
    plan = HierarchicalKMeans(100, n_candidates=15, random_state=3, max_iter=5)
    sparse = clone(plan).fit(scipy_sparse.csr_matrix(rows))
    np.testing.assert_array_equal(sparse.predict(scipy_sparse.csr_matrix(rows)), sparse.labels_)
    assert sparse.inertia_ == pytest.approx(clone(plan).fit(rows).inertia_, rel=0.02)
    wide = clone(plan).fit(rows.astype(float))
    assert wide.cluster_centers_.dtype == np.float64
    np.testing.assert_array_equal(wide.predict(rows.astype(float)), wide.labels_)


def test_cosine():
    model = HierarchicalKMeans(150, metric="cosine", n_candidates=40, random_state=0).fit(X)
    np.testing.assert_allclose(np.linalg.norm(model.cluster_centers_, axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    # A single start of either may end 2% higher.
    trees = [clone(model).set_params(random_state=seed).fit(X).inertia_ for seed in range(5)]
    flats = [KMeans(150, metric="cosine", random_state=seed).fit(X).inertia_ for seed in range(5)]
    assert np.mean(trees) < 1.02 * np.mean(flats)


def test_it_ends_near_exact_k_means():
    flat = KMeans(400, init="random", n_init=1, max_iter=25, random_state=0).fit(X)
    tree = HierarchicalKMeans(400, max_iter=0, random_state=0).fit(X)
    model = HierarchicalKMeans(400, random_state=0).fit(X)
    assert model.inertia_ < tree.inertia_
    assert model.inertia_ < 1.02 * flat.inertia_
    assert (tree.n_iter_, tree.stop_reason_) == (0, "max-iter")
    assert tree.init_.startswith("tree of ")
    assert (model.history_["n_distances"][-model.n_iter_ :] <= len(X) * 129).all()


def test_duplicates_and_few_distinct_rows():
    rows = np.zeros((5000, 3), np.float32)
    rows[::100] = RNG.normal(size=(50, 3))
    with pytest.warns(ConvergenceWarning, match=r"\(51\) found smaller than n_clusters \(60\)"):
        model = HierarchicalKMeans(60, random_state=0).fit(rows)
    assert model.inertia_ == 0
    model = HierarchicalKMeans(51, random_state=0).fit(rows)
    assert len(np.unique(model.cluster_centers_, axis=0)) == 51


def test_iterating_leaves_a_usable_model():
    plan = HierarchicalKMeans(300, n_candidates=10, random_state=4, tol=0, max_iter=6)
    expected = left(clone(plan).fit(X))
    model = clone(plan)
    for _ in model.iter_fit(X):
        # Exact labels in between do not change the rest.
        np.testing.assert_array_equal(model.labels_, model.predict(X))
        assert len(model.counts_) == len(model.cluster_centers_)
        assert np.isnan(model.certified_) or 0 <= model.certified_ <= 1
    assert model.stop_reason_ is not None
    assert left(model) == expected


def test_files(tmp_path):
    path = tmp_path / "model.safetensors"
    model = HierarchicalKMeans(50, n_candidates=20, random_state=0, branching_factor=5).fit(X)
    model.save(path)
    again = shoal.load(path)
    assert again.get_params() == model.get_params()
    assert (again.certified_, again.sample_rows_, again.init_) == (
        model.certified_,
        model.sample_rows_,
        model.init_,
    )
    np.testing.assert_array_equal(again.predict(X), model.labels_)


@pytest.mark.parametrize("max_iter", [0, 3])
def test_without_labels_the_centers_are_the_same(tmp_path, max_iter):
    given = {"n_candidates": 20, "max_iter": max_iter, "random_state": 0}
    exact = HierarchicalKMeans(50, **given).fit(X)
    model = HierarchicalKMeans(50, compute_labels=False, **given).fit(X)
    np.testing.assert_array_equal(model.cluster_centers_, exact.cluster_centers_)
    for name in ("labels_", "inertia_"):
        with pytest.raises(AttributeError, match="predict"):
            getattr(model, name)
    assert np.isnan(model.certified_)
    assert model.counts_.sum() == len(X)
    np.testing.assert_array_equal(model.predict(X), exact.labels_)
    np.testing.assert_array_equal(
        HierarchicalKMeans(50, compute_labels=False, **given).fit_predict(X), exact.labels_
    )
    model.save(tmp_path / "model.safetensors")
    again = shoal.load(tmp_path / "model.safetensors")
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(again)).predict(X), exact.labels_)
    with pytest.raises(AttributeError, match="predict"):
        again.labels_  # noqa: B018


def test_without_labels_a_fit_can_be_watched_and_stopped(tmp_path):
    given = {"n_candidates": 20, "metric": "cosine", "compute_labels": False, "random_state": 0}
    whole = HierarchicalKMeans(50, max_iter=3, **given).fit(X)
    model = HierarchicalKMeans(50, max_iter=3, **given)
    for _ in model.iter_fit(X):
        # A pass over the rows, for the centers of the step.
        np.testing.assert_array_equal(model.labels_, model.predict(X))
    with pytest.raises(AttributeError, match="predict"):
        model.labels_  # noqa: B018
    np.testing.assert_array_equal(model.cluster_centers_, whole.cluster_centers_)

    def stop(model, step):
        return step.iteration == 3

    path = tmp_path / "run.safetensors"
    checkpoint = Checkpoint(path, every_steps=1)
    HierarchicalKMeans(50, max_iter=3, callbacks=[checkpoint, stop], **given).fit(X)
    resumed = shoal.resume(path, X, callbacks=[])
    assert resumed.stop_reason_ == whole.stop_reason_
    np.testing.assert_array_equal(resumed.cluster_centers_, whole.cluster_centers_)
    with pytest.raises(AttributeError, match="predict"):
        resumed.labels_  # noqa: B018


def test_defaults_depend_on_the_kind_of_sweeps():
    rng = np.random.default_rng(8)
    # By cells: 5 rows per cluster in 20 features. By lists: few clusters, with few and with many features.
    for d, k, named in [
        (20, 1200, {"n_candidates": 32, "tol": 0.02}),
        (5, 60, {"n_candidates": 32, "tol": 1e-3}),
        (70, 200, {"n_candidates": 128, "tol": 1e-3}),
    ]:
        rows = rng.normal(size=(6000, d)).astype(np.float32)
        auto = HierarchicalKMeans(k, random_state=0).fit(rows)
        same = HierarchicalKMeans(k, random_state=0, **named).fit(rows)
        np.testing.assert_array_equal(auto.cluster_centers_, same.cluster_centers_)
        if d < 70:  # With many features, lists prove hardly any label.
            assert (auto.certified_ == 0) == (k == 1200)
        # Labels are exact also where none was certified.
        np.testing.assert_array_equal(auto.predict(rows), auto.labels_)
    with pytest.raises(ValueError, match="tol must be 'auto' or a finite number of at least 0"):
        HierarchicalKMeans(5, tol="small").fit(rows)


def test_a_sample_is_reported():
    model = HierarchicalKMeans(20, memory=48 * 1000, random_state=0).fit(X)
    assert model.sample_rows_ == 1000
    np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_candidates": 0}, "n_candidates must be"),
        ({"branching_factor": 1}, "branching_factor must be"),
        ({"branching_factor": "wide"}, "branching_factor must be"),
        ({"max_iter": -1}, "max_iter must be"),
        ({"tol": -1}, "tol must be"),
        ({"memory": "much"}, "memory must be"),
        ({"compute_labels": "no"}, "compute_labels must be True or False"),
        ({"metric": "manhattan"}, "metric must be"),
        ({"n_clusters": 7000}, "n_samples=6000"),
    ],
)
def test_bad_parameters(given, message):
    with pytest.raises(ValueError, match=message):
        HierarchicalKMeans(**{"n_clusters": 10, **given}).fit(X)


@pytest.mark.parametrize("kind", ["callable", "iterable", "parquet"])
def test_streams_are_copied_to_a_temporary_file(tmp_path, monkeypatch, kind):
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    blocks = [X[:2500], X[2500:]]
    if kind == "callable":
        rows = lambda: iter(blocks)  # noqa: E731
    elif kind == "iterable":
        rows = type("Loader", (), {"__iter__": lambda self: iter(blocks)})()
    else:
        table = pa.table({f"x{i}": column for i, column in enumerate(X.T)})
        rows = tmp_path / "rows.parquet"
        pq.write_table(table, rows)
    weights = np.linspace(0.5, 2, len(X))
    of_array = HierarchicalKMeans(100, random_state=0).fit(X, sample_weight=weights)
    model = HierarchicalKMeans(100, random_state=0).fit(rows, sample_weight=weights)
    assert model.cluster_centers_.tobytes() == of_array.cluster_centers_.tobytes()
    assert model.inertia_ == of_array.inertia_
    assert hasattr(model, "feature_names_in_") == (kind == "parquet")
    del model
    assert not [name for name in place.rglob("*") if name.is_file()]


def test_rare_groups_get_clusters():
    rng = np.random.default_rng(8)
    # More columns than those up to which nodes begin by greedy k-means++. Samples miss most small groups.
    places = 40 * rng.normal(size=(30, 40))
    rows = np.concatenate([rng.normal(size=(30_000, 40)), np.repeat(places, 10, axis=0)])
    rows[30_000:] += rng.normal(size=(300, 40))
    flat, tree = (make(60, random_state=0).fit(rows) for make in (KMeans, HierarchicalKMeans))
    assert tree.inertia_ < 1.05 * flat.inertia_
    assert len(np.unique(tree.predict(places))) == 30


def test_rows_that_cannot_be_read_are_refused():
    with pytest.raises(ValueError, match=r"\.npy"):
        HierarchicalKMeans(10).fit(iter([X]))
    broken = X.copy()
    broken[4321, 7] = np.nan
    for rows in (broken, lambda: iter([broken])):
        with pytest.raises(ValueError, match=r"4321"):
            HierarchicalKMeans(10).fit(rows)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_the_tree_is_a_seeding(tmp_path, metric):
    plan = KMeans(300, init="hierarchical", metric=metric, max_iter=4, random_state=2)
    model = clone(plan).fit(X)
    assert model.init_ == "hierarchical"
    random = clone(plan).set_params(init="random", n_init=1).fit(X)
    assert model.history_["objective"][0] < 0.9 * random.history_["objective"][0]
    assert model.inertia_ < random.inertia_
    np.save(tmp_path / "rows.npy", X)
    for rows, n_jobs in ((X, 3), (str(tmp_path / "rows.npy"), 1)):
        again = clone(plan).set_params(n_jobs=n_jobs).fit(rows)
        assert again.cluster_centers_.tobytes() == model.cluster_centers_.tobytes()
    weighted = clone(plan).fit(X, sample_weight=WEIGHTS)
    assert weighted.counts_.sum() == WEIGHTS.sum()
    several = clone(plan).set_params(n_init=3).fit(X)
    assert several.inertia_ <= model.inertia_


def test_the_tree_seeds_other_methods(tmp_path):
    mixture = shoal.TruncatedGaussianMixture(60, init="hierarchical", random_state=0).fit(X)
    assert mixture.init_ == "hierarchical"
    np.testing.assert_array_equal(mixture.predict(X), mixture.labels_)
    coreset = shoal.TruncatedGaussianMixture(40, init="hierarchical", coreset_size=2000, random_state=0).fit(
        X
    )
    assert coreset.init_ == "hierarchical"
    for model in (
        shoal.MiniBatchKMeans(50, init="hierarchical", random_state=0),
        shoal.NestedMiniBatchKMeans(50, init="hierarchical", random_state=0),
        shoal.VarianceReducedKMeans(50, init="hierarchical", random_state=0, max_iter=2),
        shoal.LaplacianKModes(12, init="hierarchical", random_state=0),
    ):
        assert model.fit(X).init_.startswith("hierarchical")
    with pytest.raises(ValueError, match=r"reads rows one by one: write them to a \.npy file .* \"afk-mc2\""):
        KMeans(10, init="hierarchical").fit(lambda: iter([X]))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_approximate_nearest_centers(tmp_path, metric):
    centers = RNG.permutation(X)[:2500] + RNG.normal(scale=0.3, size=(2500, 12)).astype(np.float32)
    exact, sq_dists = shoal.nearest(X, centers, metric=metric)
    labels, at, info = shoal.nearest(X, centers, method="approximate", metric=metric, return_info=True)
    assert info["method"] == "approximate"
    assert 0 < info["n_probes"] <= info["n_cells"] / 5
    recall = (labels == exact).mean()
    assert recall > 0.98
    assert abs(recall - info["recall"]) < 0.01
    np.testing.assert_array_equal(at[labels == exact], sq_dists[labels == exact])
    assert (at >= sq_dists).all()
    less = shoal.nearest(X, centers, method="approximate", metric=metric, recall=0.8, return_info=True)
    assert less[2]["n_probes"] < info["n_probes"]
    assert (less[0] == exact).mean() > 0.78
    # Any source and number of threads.
    np.save(tmp_path / "rows.npy", X)
    for rows in (str(tmp_path / "rows.npy"), lambda: iter([X[:2000], X[2000:]])):
        found = shoal.nearest(rows, centers, method="approximate", metric=metric, n_jobs=1)
        np.testing.assert_array_equal(found[0], labels)
        np.testing.assert_array_equal(found[1], at)


def test_approximate_lists_of_centers():
    centers = RNG.permutation(X)[:1500]
    exact = shoal.nearest(X, centers, n_nearest=10)
    labels, at, info = shoal.nearest(X, centers, n_nearest=10, method="approximate", return_info=True)
    assert labels.shape == at.shape == (len(X), 10)
    assert all(len(set(row)) == 10 for row in labels[:500].tolist())
    assert (np.diff(at) >= 0).all()
    recall = np.mean([np.isin(a, b).mean() for a, b in zip(exact[0], labels, strict=True)])
    assert recall > 0.98
    assert abs(recall - info["recall"]) < 0.01
    # More centers than the nearest cell holds.
    many = shoal.nearest(X[:200], centers, n_nearest=400, method="approximate", recall=0.01)
    assert many[0].shape == (200, 400)
    assert all(len(set(row)) == 400 for row in many[0].tolist())


def test_few_centers_are_searched_exactly():
    centers = X[:900]
    labels, at, info = shoal.nearest(X, centers, method="approximate", recall=0.5, return_info=True)
    assert info == {"method": "exact", "recall": 1.0}
    exact = shoal.nearest(X, centers, return_info=True)
    np.testing.assert_array_equal(labels, exact[0])
    np.testing.assert_array_equal(at, exact[1])
    assert exact[2] == info
    for recall in (0, 1.1, "all", None):
        with pytest.raises(ValueError, match="recall must be a number above 0 and at most 1"):
            shoal.nearest(X, centers, method="approximate", recall=recall)
    with pytest.raises(ValueError, match="method must be one of"):
        shoal.nearest(X, centers, method="rough")
    with pytest.raises((TypeError, ValueError), match="iterator"):
        shoal.nearest(iter([X]), centers, method="approximate")
