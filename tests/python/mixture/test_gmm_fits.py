"""Fits of truncated Gaussian mixtures: sources, starts, stopping rules and coresets."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import shoal
from generated import blobs
from gmm_parts import KINDS, variances_of
from gmm_reference import truncated
from shoal import TruncatedGaussianMixture
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import kneighbors_graph

# Many fits here run only a few iterations.
pytestmark = pytest.mark.filterwarnings("ignore:the fit did not converge")


def test_a_walk_finds_nearly_all_labels_of_many_components():
    X = blobs(6000, 8, 300, 2, apart=1.0, dtype=np.float32)
    model = TruncatedGaussianMixture(300, random_state=0).fit(X)
    assert (model.predict(X, search="neighbors") == model.predict(X)).mean() > 0.9
    walked = model.predict_proba(X, search="neighbors")
    assert np.diff(walked.indptr).max() <= 5
    with pytest.raises(ValueError, match="search must be one of exact, neighbors"):
        model.predict(X, search="far")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [None, 3000])
def test_threads_and_sources_do_not_change_results(kind, size, tmp_path):
    X = np.clip(blobs(9001, 17, 40, 1) * 8 + 100, 0, 255).astype(np.uint8)
    weights = np.random.default_rng(1).uniform(0.0, 2.0, size=len(X))
    path = tmp_path / "rows.npy"
    np.save(path, X)
    results = set()

    def stream():
        return (X[start : start + 1000] for start in range(0, len(X), 1000))

    for rows, n_jobs in [(X, 1), (np.asfortranarray(X), 3), (path, 2), (np.load(path, mmap_mode="r"), 4)]:
        model = TruncatedGaussianMixture(
            40, n_active=3, covariance_type=kind, coreset_size=size, random_state=2, n_jobs=n_jobs, max_iter=8
        )
        model.fit(rows, sample_weight=weights)
        kept = [model.means_, variances_of(model), model.weights_, model.neighbors_, model.counts_]
        kept += [] if model.loadings_ is None else [model.loadings_]
        kept += [model.history_[name] for name in ("objective", "center_shift", "n_changed", "n_distances")]
        kept += [model.predict(rows), model.score_samples(rows)]
        results.add((*(array.tobytes() for array in kept), model.inertia_))
    assert len(results) == 1
    given = {
        "init": model.means_,
        "covariance_type": kind,
        "coreset_size": size,
        "random_state": 2,
        "max_iter": 3,
    }
    a = TruncatedGaussianMixture(40, **given).fit(X, sample_weight=weights)
    b = TruncatedGaussianMixture(40, **given).fit(stream, sample_weight=weights)
    assert a.means_.tobytes() == b.means_.tobytes()
    assert (a.lower_bounds_ == b.lower_bounds_).all()


def test_float32_is_close_to_float64():
    X = blobs(3000, 10, 30, 7)
    init = X[:30]
    narrow, wide = (
        TruncatedGaussianMixture(30, init=init, max_iter=10, tol=0.0, random_state=0).fit(X.astype(dtype))
        for dtype in (np.float32, np.float64)
    )
    np.testing.assert_allclose(narrow.lower_bounds_, wide.lower_bounds_, rtol=1e-5)
    assert (np.diff(narrow.lower_bounds_) > -1e-5).all()


@pytest.mark.parametrize("kind", ["tied_spherical", "spherical"])
@pytest.mark.parametrize("size", [None, 800])
def test_sparse_rows_equal_dense_rows(kind, size):
    rng = np.random.default_rng(0)
    dense = rng.poisson(0.3, size=(1500, 40)) * rng.uniform(0.5, 2.0, size=(1500, 1))
    init = dense[rng.permutation(1500)[:12]]
    params = {
        "init": init,
        "covariance_type": kind,
        "coreset_size": size,
        "random_state": 1,
        "max_iter": 6,
        "tol": 0,
    }
    a = TruncatedGaussianMixture(12, **params).fit(dense)
    b = TruncatedGaussianMixture(12, **params).fit(sp.csr_array(dense))
    np.testing.assert_allclose(b.means_, a.means_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(b.covariances_, a.covariances_, rtol=1e-9)
    np.testing.assert_allclose(b.score_samples(sp.csr_array(dense)), a.score_samples(dense), rtol=1e-9)
    if size:
        assert isinstance(b.coreset_.points, sp.csr_array)
    for other in ("diag", "factor"):
        with pytest.raises(ValueError, match=rf"covariance_type must be .* for sparse rows, got .{other}"):
            TruncatedGaussianMixture(12, covariance_type=other).fit(sp.csr_array(dense))


@pytest.mark.parametrize("size", [700, 0.2])
def test_a_fit_to_a_coreset_equals_a_fit_to_its_rows(size):
    X = blobs(3500, 5, 12, 8)
    params = {"random_state": 3, "max_iter": 9, "tol": 0.0}
    model = TruncatedGaussianMixture(15, coreset_size=size, **params).fit(X)
    drawn = shoal.lightweight_coreset(X, 700, random_state=3)
    assert (model.coreset_.indices == drawn.indices).all()
    assert (model.coreset_.weights == drawn.weights).all()
    assert (model.coreset_.points == X[drawn.indices]).all()
    again = TruncatedGaussianMixture(15, **params).fit(drawn.points, sample_weight=drawn.weights)
    assert again.means_.tobytes() == model.means_.tobytes()
    assert again.coreset_ is None
    assert (model.history_["batch_size"] == 700).all()
    assert len(model.labels_) == 3500
    assert model.counts_.sum() == pytest.approx(drawn.weights.sum())
    whole = TruncatedGaussianMixture(15, coreset_size=5000, **params).fit(X)
    assert (whole.coreset_.weights == 1.0).all()
    assert (whole.coreset_.points == X).all()


def test_a_coreset_reads_a_stream_twice():
    X = blobs(5000, 4, 12, 9)
    passes = []

    def stream():
        passes.append(1)
        return iter(np.array_split(X, 7))

    model = TruncatedGaussianMixture(10, coreset_size=500, random_state=0).fit(shoal.open(stream))
    # One pass for the first block, one to count the rows, and two for the coreset.
    assert len(passes) == 4
    assert model.n_iter_ > 3
    assert len(model.labels_) == 5000
    assert len(passes) > 4


def test_distances_are_counted():
    X = blobs(2000, 4, 12, 10)
    for start in ("cells", "random"):
        params = {"start": start, "explore": 0, "max_iter": 4, "tol": 0.0, "random_state": 0}
        given = TruncatedGaussianMixture(40, init=X[:40], **params).fit(X)
        expected = truncated(X, X[:40], 5, 5, seed=0, start=start, rounds=4)
        assert given.n_distances_ == sum(state.n_distances for state in expected)
    # Given means separate the distances of seeding from the distances of the search.
    c = shoal.lightweight_coreset(X, 700, random_state=0)
    for rows, weights, size in ((X, None, None), (c.points, c.weights, 700)):
        seeds, _, seeding = shoal._core.first_centers(
            shoal.open(rows)._source,
            n_clusters=40,
            seeding="afk-mc2",
            options=(20, None, None),
            seed=0,
            weights=weights,
            threads=1,
        )
        assert seeding >= len(rows)
        params = {"explore": 0, "max_iter": 3, "tol": 0.0, "random_state": 0}
        drawn = TruncatedGaussianMixture(40, coreset_size=size, **params).fit(X)
        given = TruncatedGaussianMixture(40, init=seeds, **params).fit(rows, sample_weight=weights)
        assert drawn.means_.tobytes() == given.means_.tobytes()
        assert drawn.n_distances_ == seeding + given.n_distances_
        assert drawn.history_["n_distances"][0] == seeding + given.history_["n_distances"][0]


def test_stopping_rules():
    X = blobs(1000, 4, 12, 11)
    params = {"random_state": 0, "tol": 1e-3}
    absolute = TruncatedGaussianMixture(12, stopping="per-weight", **params).fit(X)
    relative = TruncatedGaussianMixture(12, stopping="relative", **params).fit(X)
    assert absolute.converged_
    assert relative.converged_
    gains, bounds = np.diff(absolute.lower_bounds_), relative.lower_bounds_
    assert gains[-1] <= 1e-3
    assert (gains[:-1] > 1e-3).all()
    changes = np.abs(np.diff(bounds)) / np.abs(bounds[1:])
    assert changes[-1] <= 1e-3
    assert (changes[:-1] > 1e-3).all()
    auto = TruncatedGaussianMixture(12, **params).fit(X)
    gains = np.diff(auto.lower_bounds_)
    assert gains[-1] <= 4e-3
    assert (gains[:-1] > 4e-3).all()
    # The scale of the data does not matter to the default rule and to the first rule.
    for stopping, model in (("auto", auto), ("per-weight", absolute)):
        scaled = TruncatedGaussianMixture(12, stopping=stopping, **params).fit(X * 1024.0)
        assert scaled.n_iter_ == model.n_iter_
        np.testing.assert_allclose(scaled.means_, 1024 * model.means_, rtol=1e-9)
    # Repeated columns, which sharpen the per-row bounds, do not matter to the default rule either.
    X = blobs(3000, 2, 12, 11, apart=9.0)
    given = {"init": X[:12], "n_active": 1, "n_neighbors": 12, "explore": 0, "random_state": 0}
    one = TruncatedGaussianMixture(12, **given).fit(X)
    given["init"] = np.tile(X[:12], 8)
    eight = TruncatedGaussianMixture(12, **given).fit(np.tile(X, 8))
    assert one.n_iter_ == eight.n_iter_
    np.testing.assert_allclose(np.tile(one.means_, 8), eight.means_, rtol=1e-9)


@pytest.mark.filterwarnings("default:the fit did not converge")
def test_a_fit_that_does_not_converge_warns():
    X = blobs(1000, 4, 12, 11)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=2 .* tol=0.0001. Increase max_iter or tol"):
        model = TruncatedGaussianMixture(12, max_iter=2, random_state=0).fit(X)
    assert (model.converged_, model.stop_reason_, model.n_iter_) == (False, "max-iter", 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = TruncatedGaussianMixture(12, random_state=0).fit(X)
        assert (model.converged_, model.stop_reason_) == (True, "tolerance")
        # A caller who stops a fit gets no warning.
        model = TruncatedGaussianMixture(12, random_state=0, callbacks=[lambda *_: True]).fit(X)
        assert (model.converged_, model.stop_reason_) == (False, "callback")


@pytest.mark.parametrize("size", [None, 500])
def test_the_best_of_several_starts_wins(size):
    X = blobs(1500, 3, 25, 21)
    params = {"coreset_size": size, "init": "random", "random_state": 0}
    seen = []
    one = TruncatedGaussianMixture(25, **params).fit(X)
    model = TruncatedGaussianMixture(
        25, n_init=6, callbacks=[lambda est, step: seen.append((est.lower_bound_, step))], **params
    ).fit(X)
    bounds = model.history_["objective"]
    # The first start equals a single start. The bound only falls where a new start begins.
    begun = [0, *(np.flatnonzero(np.diff(bounds) < 0) + 1), len(bounds)]
    assert len(begun) == 7
    np.testing.assert_array_equal(bounds[: begun[1]], one.lower_bounds_)
    ends = [bounds[end - 1] for end in begun[1:]]
    assert len(set(ends)) > 1
    best = int(np.argmax(ends))
    assert best > 0, "take another seed"
    np.testing.assert_array_equal(model.lower_bounds_, bounds[begun[best] : begun[best + 1]])
    assert model.lower_bound_ == max(ends) > one.lower_bound_
    assert model.n_iter_ == len(model.lower_bounds_)
    assert model.converged_
    assert (model.history_["stop_reason"] != "").sum() == 1
    assert (np.diff(model.history_["rows_seen"]) > 0).all()
    rows = model.score(X) if size is None else None
    assert rows is None or rows >= model.lower_bound_
    # During a start, the estimator shows the best previous start.
    assert [shown for shown, step in seen if step.iteration == begun[2]] == [max(ends[:2])]
    again = TruncatedGaussianMixture(25, n_init=6, n_jobs=2, **params).fit(X)
    assert again.means_.tobytes() == model.means_.tobytes()
    assert (again.labels_ == model.labels_).all()
    if size is not None:
        np.testing.assert_array_equal(model.coreset_.indices, one.coreset_.indices)


def test_initial_means_can_be_given_in_two_ways(tmp_path):
    X = blobs(800, 3, 12, 22, dtype=np.float32)
    by_init = TruncatedGaussianMixture(12, init=X[:12], random_state=0).fit(X)
    model = TruncatedGaussianMixture(12, means_init=X[:12].tolist(), random_state=0).fit(X)
    assert model.means_.tobytes() == by_init.means_.tobytes()
    assert model.init_ == by_init.init_ == "array"
    path = tmp_path / "model.safetensors"
    model.save(path)
    loaded = shoal.load(path)
    np.testing.assert_array_equal(loaded.means_init, X[:12])
    assert loaded.fit(X).means_.tobytes() == model.means_.tobytes()
    with pytest.warns(RuntimeWarning, match="n_init=3 is ignored"):
        one = TruncatedGaussianMixture(12, means_init=X[:12], n_init=3, random_state=0).fit(X)
    assert one.means_.tobytes() == model.means_.tobytes()
    with pytest.raises(ValueError, match=r"means_init must have shape \(12, 3\), got \(11, 3\)"):
        TruncatedGaussianMixture(12, means_init=X[:11]).fit(X)
    with pytest.raises(ValueError, match="means_init must be None if init is an array or a callable"):
        TruncatedGaussianMixture(12, means_init=X[:12], init=X[:12]).fit(X)
    with pytest.raises(ValueError, match="means_init must be None or an array, got 'k-means"):
        TruncatedGaussianMixture(12, means_init="k-means++").fit(X)


@pytest.mark.parametrize("kind", KINDS)
def test_criteria_count_parameters(kind):
    X = blobs(900, 3, 12, 23)
    model = TruncatedGaussianMixture(5, covariance_type=kind, random_state=0).fit(X)
    free = {"tied_spherical": 15 + 1, "spherical": 15 + 5 + 4, "diag": 15 + 15 + 4}
    free |= {"tied": 15 + 6 + 4, "full": 15 + 5 * 6 + 4}
    # Loadings have 3 x 2 values, one of which a rotation can remove.
    free = (free | {"factor": free["diag"] + 5 * (6 - 1)})[kind]
    total = model.score_samples(X).sum()
    assert model.aic(X) == pytest.approx(2 * free - 2 * total, rel=1e-12)
    assert model.bic(X) == pytest.approx(np.log(900) * free - 2 * total, rel=1e-12)
    twice = model.aic(X, sample_weight=np.full(900, 2.0))
    assert twice == pytest.approx(2 * free - 4 * total, rel=1e-12)


def test_dense_and_sparse_responsibilities_are_equal():
    X = blobs(400, 3, 12, 24)
    model = TruncatedGaussianMixture(12, n_active=4, random_state=0).fit(X)
    dense = model.predict_proba(X, dense=True)
    assert type(dense) is np.ndarray
    assert (dense.shape, dense.dtype) == ((400, 12), np.float64)
    sparse = model.predict_proba(X)
    np.testing.assert_array_equal(dense, sparse.toarray())
    # As graphs of neighbors, here and in scikit-learn.
    assert type(sparse) is type(shoal.knn_graph(X, 3)) is type(kneighbors_graph(X, 3))
    assert (dense.argmax(axis=1) == model.labels_).all()
    np.testing.assert_allclose(dense.sum(axis=1), 1.0, rtol=1e-12)
    walked = model.predict_proba(X, dense=True, search="neighbors")
    np.testing.assert_array_equal(walked, model.predict_proba(X, search="neighbors").toarray())


@pytest.mark.filterwarnings("ignore:Number of distinct components")
def test_rows_find_clusters_of_very_different_sizes():
    # Many rows lie in few clusters and the others are distant. From random draws, rows would find no near
    # mean in time.
    rng = np.random.default_rng(3)
    middles = rng.normal(size=(300, 8)) * 10.0 ** rng.uniform(0, 3, size=(300, 1))
    which = np.minimum(rng.geometric(0.02, size=20_000), 300) - 1
    X = middles[which] + 0.01 * rng.normal(size=(20_000, 8))
    seeds, _ = shoal.kmeans_plusplus(X, 200, random_state=0)
    of_seeds = shoal.metrics.inertia(X, seeds)
    found = {}
    for start in ("cells", "random"):
        model = TruncatedGaussianMixture(200, init=seeds, start=start, random_state=0).fit(X)
        found[start] = shoal.metrics.inertia(X, model.means_)
    assert found["cells"] < 1.05 * of_seeds
    assert found["random"] > found["cells"]


def test_few_active_components_explore():
    X = blobs(800, 2, 40, 12)
    assert "explore" in TruncatedGaussianMixture().get_params()
    looked = {}
    for active, explore in [(3, "auto"), (3, 1), (3, 0), (4, "auto"), (4, 0)]:
        model = TruncatedGaussianMixture(
            40, n_active=active, explore=explore, init=X[:40], max_iter=5, random_state=0
        )
        looked[active, explore] = model.fit(X).n_distances_
    assert looked[3, "auto"] == looked[3, 1] > looked[3, 0]
    assert looked[4, "auto"] == looked[4, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_files_and_pickles(kind, tmp_path):
    X = blobs(700, 4, 12, 13, dtype=np.float32)
    model = TruncatedGaussianMixture(12, covariance_type=kind, coreset_size=0.5, random_state=0).fit(X)
    path = tmp_path / "model.safetensors"
    model.save(path)
    loaded, pickled = shoal.load(path), pickle.loads(pickle.dumps(model))
    for again in (loaded, pickled):
        assert type(again) is TruncatedGaussianMixture
        assert again.means_.tobytes() == model.means_.tobytes()
        assert np.array_equal(again.covariances_, model.covariances_)
        assert (again.loadings_ is None) == (kind != "factor")
        if kind == "factor":
            np.testing.assert_array_equal(again.loadings_, model.loadings_)
        assert (again.weights_ == model.weights_).all()
        assert (again.neighbors_ == model.neighbors_).all()
        assert (again.score_samples(X) == model.score_samples(X)).all()
        assert (again.predict(X) == model.labels_).all()
        assert again.lower_bound_ == model.lower_bound_
        assert (again.history_ == model.history_).all()
        assert again.n_distances_ == model.n_distances_
        assert again.converged_ is model.converged_
        np.testing.assert_array_equal(again.lower_bounds_, model.lower_bounds_)
    assert loaded.get_params() == model.get_params()
    kind_of, arrays, meta = shoal._core.load_model(str(path))
    arrays["variances"] = -arrays["variances"]
    shoal._core.save_model(str(path), kind_of, arrays, {k: v for k, v in meta.items() if k != "version"})
    with pytest.raises(ValueError, match="is damaged: variances"):
        shoal.load(path)
