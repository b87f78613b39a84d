"""Nested mini-batch k-means: compared with a reference, plus bounds, streams and errors."""

import pickle
import warnings

import numpy as np
import pytest
import shoal
from generated import blobs
from nested_reference import nested
from reference import inertia, nearest
from shoal import KMeans, NestedMiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning


@pytest.mark.parametrize("bounds", ["none", "elkan", "hamerly"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("n", "d", "k", "batch", "rho"),
    [
        (3000, 5, 12, 100, 10.0),
        (2500, 2, 7, 60, 1.0),
        (4000, 20, 40, 50, 100.0),
        (1111, 3, 5, 33, 0.0),
        (900, 1, 4, 20, np.inf),
        (500, 4, 1, 7, 2.0),
        (300, 3, 6, 1000, 5.0),
    ],
)
def test_rounds_equal_the_reference(n, d, k, batch, rho, weighted, bounds):
    X = blobs(n, d, 12, n + d)
    weights = np.random.default_rng(3).choice([0.5, 1.0, 2.0, 0.0], size=n) if weighted else None
    init = X[np.random.default_rng(1).permutation(min(n, max(batch, k)))[:k]]
    expected = nested(X, init, batch if batch >= k else 10 * k, rho, weights)
    model = NestedMiniBatchKMeans(k, init=init, batch_size=batch, rho=rho, bounds=bounds, shuffle=False)
    steps = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for step, truth in zip(model.iter_fit(X, weights), expected, strict=False):
            assert (step.batch_size, step.n_changed) == (truth.batch, truth.changed), step.iteration
            assert step.objective == pytest.approx(truth.objective, rel=1e-9)
            np.testing.assert_allclose(model.cluster_centers_, truth.centers, rtol=1e-9, atol=1e-9)
            steps.append(step)
    # Recomputed sums can move a center by its last bit, which takes one more round.
    assert len(steps) == len(expected) or model.history_[-1]["n_changed"] == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("shuffle", [True, False])
def test_it_ends_at_a_fixed_point_of_lloyd(dtype, shuffle):
    X = np.clip(blobs(6000, 6, 12, 4) * 8 + 100, 0, 255).astype(dtype)
    model = NestedMiniBatchKMeans(9, batch_size=200, shuffle=shuffle, random_state=5).fit(X)
    assert model.stop_reason_ == "labels-stable"
    labels, _, gap = nearest(X, model.cluster_centers_)
    clear = gap > 1e-5
    assert (labels[clear] == model.labels_[clear]).all()
    close = 1e-5 if dtype != np.float64 else 1e-11
    for j, center in enumerate(model.cluster_centers_):
        np.testing.assert_allclose(
            center, X[model.labels_ == j].mean(axis=0, dtype=float), rtol=close, atol=close
        )
    assert model.inertia_ == pytest.approx(inertia(X, model.cluster_centers_, model.labels_), rel=1e-12)
    assert (model.predict(X) == model.labels_).all()
    assert model.rows_used_ == len(X) == model.batch_sizes_[-1]
    assert (model.batch_sizes_ == model.history_["batch_size"]).all()
    assert (np.diff(model.batch_sizes_) >= 0).all()
    again = KMeans(9, init=model.cluster_centers_, tol=0.0).fit(X)
    assert again.n_iter_ <= 2
    np.testing.assert_allclose(again.cluster_centers_, model.cluster_centers_, rtol=close, atol=close)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("weighted", [False, True])
def test_threads_sources_and_bounds_do_not_change_results(dtype, weighted, tmp_path):
    X = np.clip(blobs(20_011, 17, 12, 1) * 8 + 100, 0, 255).astype(dtype)
    weights = np.random.default_rng(1).uniform(0.0, 2.0, size=len(X)) if weighted else None
    path = tmp_path / "rows.npy"
    np.save(path, X)
    for shuffle in (True, False):
        results = set()
        for rows, n_jobs, bounds in [
            (X, 1, "none"),
            (np.asfortranarray(X), 3, "elkan"),
            (path, 2, "hamerly"),
            (np.load(path, mmap_mode="r"), 1, "auto"),
            (shoal.open(path), 4, "none"),
        ]:
            model = NestedMiniBatchKMeans(
                40, batch_size=300, shuffle=shuffle, bounds=bounds, random_state=2, n_jobs=n_jobs
            ).fit(rows, sample_weight=weights)
            kept = [model.cluster_centers_, model.labels_, model.counts_]
            fields = ["batch_size", "objective", "center_shift", "n_changed"]
            kept += [model.history_[name] for name in fields]
            results.add((*(array.tobytes() for array in kept), model.inertia_, model.n_iter_))
        assert len(results) == 1


def test_integer_weights_are_repeated_rows():
    rng = np.random.default_rng(3)
    X = blobs(400, 5, 12, 8)
    weights = rng.integers(0, 5, size=400)
    given = {"init": X[np.flatnonzero(weights)[:6]], "batch_size": 10**6}
    weighted = NestedMiniBatchKMeans(6, **given).fit(X, sample_weight=weights)
    repeated = NestedMiniBatchKMeans(6, **given).fit(np.repeat(X, weights, axis=0))
    assert (np.repeat(weighted.labels_, weights) == repeated.labels_).all()
    np.testing.assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_, rtol=1e-12, atol=1e-12)
    assert weighted.inertia_ == pytest.approx(repeated.inertia_, rel=1e-12)


def test_energies_are_those_of_lloyd():
    X = blobs(8000, 8, 20, 2)
    seeds = range(8)
    with warnings.catch_warnings():
        # A cluster that loses its rows keeps its center.
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours = [NestedMiniBatchKMeans(20, batch_size=400, random_state=s).fit(X).inertia_ for s in seeds]
    theirs = [KMeans(20, init="random", n_init=1, tol=0.0, random_state=s).fit(X).inertia_ for s in seeds]
    assert np.mean(ours) < np.mean(theirs) + 2 * np.std(theirs)


def test_the_draws_depend_on_the_seed():
    X = blobs(3000, 3, 12, 2)
    first = [NestedMiniBatchKMeans(5, batch_size=50, max_iter=1, random_state=s).fit(X) for s in (1, 1, 2)]
    assert (first[0].cluster_centers_ == first[1].cluster_centers_).all()
    assert (first[0].cluster_centers_ != first[2].cluster_centers_).any()


def test_limits_end_a_run_and_labels_cover_all_rows():
    X = blobs(3000, 3, 12, 2)
    model = NestedMiniBatchKMeans(5, batch_size=50, max_iter=3, random_state=0).fit(X)
    assert (model.n_iter_, model.stop_reason_, len(model.labels_)) == (3, "max-iter", 3000)
    assert (model.labels_ == model.predict(X)).all()
    assert model.counts_.sum() == 3000
    assert model.score(X) == -model.inertia_
    loose = NestedMiniBatchKMeans(5, batch_size=50, tol=1e-2, random_state=0).fit(X)
    tight = NestedMiniBatchKMeans(5, batch_size=50, random_state=0).fit(X)
    assert loose.stop_reason_ == "tolerance"
    assert loose.n_iter_ < tight.n_iter_


def test_the_bounds_that_fit_into_memory_are_reported():
    X = blobs(6000, 20, 12, 2, dtype=np.float32)
    given = {"batch_size": 500, "bounds": "elkan", "random_state": 0}
    found = {}
    for memory in ("1GB", 4 * 3 * 6000, 4 * 2 * 6000, 0):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = NestedMiniBatchKMeans(200, memory=memory, **given).fit(X)
        said = f"memory={memory} has no room for the bounds of bounds='elkan'"
        are = [str(warning.message).startswith(said) for warning in caught]
        assert are == ([True] if model.bounds_ == "none" else [])
        found[memory] = (model.bounds_, model.cluster_centers_.tobytes())
    assert [bounds for bounds, _ in found.values()] == ["elkan", "hamerly", "none", "none"]
    assert len({centers for _, centers in found.values()}) == 1


@pytest.mark.parametrize("bounds", ["elkan", "yinyang", "hamerly", "none"])
def test_bounds_of_few_centers_keep_the_requested_name(bounds):
    model = NestedMiniBatchKMeans(3, batch_size=100, bounds=bounds, random_state=0).fit(blobs(2000, 3, 12, 2))
    assert model.bounds_ == bounds


def test_compute_labels():
    X = blobs(3000, 3, 12, 2)
    model = NestedMiniBatchKMeans(5, batch_size=50, compute_labels=False, random_state=0).fit(X)
    with pytest.raises(AttributeError, match="Use predict"):
        _ = model.labels_
    whole = NestedMiniBatchKMeans(5, batch_size=50, random_state=0).fit(X)
    assert (model.cluster_centers_ == whole.cluster_centers_).all()
    assert (whole.labels_ == model.predict(X)).all()
    assert (model.fit_predict(X) == whole.labels_).all()


def test_a_small_batch_size_is_raised_with_a_warning():
    X = blobs(3000, 3, 12, 2)
    with pytest.warns(
        RuntimeWarning, match="batch_size=5 is below n_clusters=20: the first batch has 200 rows"
    ):
        model = NestedMiniBatchKMeans(20, batch_size=5, random_state=0).fit(X)
    assert model.batch_sizes_[0] == 200
    stream = NestedMiniBatchKMeans(20, batch_size=5, random_state=0)
    with pytest.warns(RuntimeWarning, match="the first batch has up to 200 rows") as caught:
        stream.partial_fit(X[:1000])
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The warning comes once.
        pickle.loads(pickle.dumps(stream.partial_fit(X[1000:]))).partial_fit(X)
        NestedMiniBatchKMeans(20, memory=0, random_state=0).fit(X)
        NestedMiniBatchKMeans(20, memory=0, bounds="none", random_state=0).fit(X)
        NestedMiniBatchKMeans(20, bounds="elkan", max_iter=1, random_state=0).fit(X)
    large = NestedMiniBatchKMeans(20, batch_size=5000, random_state=0).fit(X)
    assert set(large.batch_sizes_.tolist()) == {3000}


def test_all_problems_are_named_at_once():
    wrong = NestedMiniBatchKMeans(
        0, init="best", batch_size=0, rho=float("nan"), bounds="some", memory="much",
        max_iter=0, tol=-1.0, shuffle="yes", compute_labels=None,
    )  # fmt: skip
    with pytest.raises(ValueError, match="n_clusters") as refused:
        wrong.fit([[0.0], [1.0]])
    for name in ["n_clusters", "init", "batch_size", "rho", "bounds", "memory", "max_iter", "tol",
                 "shuffle", "compute_labels"]:  # fmt: skip
        assert f"{name} must be" in str(refused.value), name
    for rho in (-1.0, None, "100", True, 10**400, float("-inf"), np.float32("nan")):
        with pytest.raises(ValueError, match="rho must be a number of at least 0, or infinity"):
            NestedMiniBatchKMeans(2, rho=rho).fit([[0.0], [1.0]])
    for memory in (2**64, "1e30GB"):
        with pytest.raises(ValueError, match=r"memory must be an amount"):
            NestedMiniBatchKMeans(2, memory=memory).partial_fit([[0.0], [1.0]])
    most = NestedMiniBatchKMeans(2, memory=2**64 - 1, bounds="elkan")
    assert most.partial_fit([[0.0], [1.0], [2.0]]).rows_used_ == 3
    assert most.fit([[0.0], [1.0], [2.0]]).bounds_ == "elkan"
    with pytest.raises(ValueError, match="n_samples=2 should be >= n_clusters=3"):
        NestedMiniBatchKMeans(3).fit([[0.0], [1.0]])


def test_fewer_distinct_rows_than_clusters():
    X = np.repeat([[0.0], [1.0], [5.0]], 100, axis=0)
    with pytest.warns(ConvergenceWarning, match="distinct clusters"):
        model = NestedMiniBatchKMeans(6, batch_size=50, random_state=0).fit(X)
    assert np.count_nonzero(model.counts_) == 3
    assert model.inertia_ == 0.0


def test_saved_and_loaded(tmp_path):
    X = blobs(2000, 3, 12, 2, dtype=np.float32)
    model = NestedMiniBatchKMeans(5, batch_size=50, rho=float("inf"), random_state=0).fit(X)
    model.save(tmp_path / "model.safetensors")
    again = shoal.load(tmp_path / "model.safetensors")
    assert type(again) is NestedMiniBatchKMeans
    assert again.get_params() == model.get_params()
    assert (again.predict(X) == model.labels_).all()
    for name in ("n_iter_", "rows_used_", "rows_retired_", "bounds_", "inertia_", "stop_reason_", "init_"):
        assert getattr(again, name) == getattr(model, name), name
    assert (again.batch_sizes_ == model.batch_sizes_).all()
    copied = pickle.loads(pickle.dumps(model))
    assert (copied.labels_ == model.labels_).all()
    assert (copied.batch_sizes_ == model.batch_sizes_).all()


class TestPartialFit:
    def test_streams_and_pickles(self):
        X = blobs(5000, 4, 12, 6)
        through, kept = (
            NestedMiniBatchKMeans(8, init="k-means++", batch_size=100, random_state=1) for _ in range(2)
        )
        for piece in np.array_split(X, 13):
            through.partial_fit(piece)
            kept = pickle.loads(pickle.dumps(kept)).partial_fit(piece)
        assert through.cluster_centers_.tobytes() == kept.cluster_centers_.tobytes()
        assert (through.rows_used_, through.rows_retired_, through.n_iter_) == (
            kept.rows_used_, kept.rows_retired_, kept.n_iter_,
        )  # fmt: skip
        assert through.counts_.sum() == through.rows_used_ > 2500
        assert through.score(X) > 1.2 * KMeans(8, n_init=3, random_state=0).fit(X).score(X)

    def test_threads_do_not_change_results(self):
        X = blobs(9000, 12, 12, 6, dtype=np.float32)
        found = set()
        for n_jobs in (1, 2, 4):
            model = NestedMiniBatchKMeans(30, batch_size=500, random_state=1, n_jobs=n_jobs)
            for piece in np.array_split(X, 5):
                model.partial_fit(piece)
            found.add(model.cluster_centers_.tobytes())
        assert len(found) == 1

    def test_rows_are_kept_until_there_are_enough(self):
        model = NestedMiniBatchKMeans(5, random_state=0)
        model.partial_fit([[0.0], [1.0]])
        assert not hasattr(model, "cluster_centers_")
        model = pickle.loads(pickle.dumps(model))
        model.partial_fit([[2.0], [3.0], [4.0], [5.0]])
        assert len(model.cluster_centers_) == 5

    def test_rows_beyond_the_buffer_are_retired(self):
        X = blobs(5000, 4, 12, 6)
        model = NestedMiniBatchKMeans(8, batch_size=100, memory=1000 * 32, random_state=1)
        for piece in np.array_split(X, 9):
            model.partial_fit(piece)
            assert model.rows_used_ <= 1000
        assert model.rows_retired_ >= 4000
        assert model.counts_.sum() == model.rows_used_ + model.rows_retired_

    def test_partial_fit_continues_a_fit(self, tmp_path):
        X = blobs(3000, 4, 12, 6)
        model = NestedMiniBatchKMeans(8, batch_size=100, random_state=1).fit(X[:2000])
        counts = model.counts_.sum()
        model.save(tmp_path / "model.safetensors")
        models = [model, shoal.load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))]
        for each in models:
            each.partial_fit(X[2000:])
            assert (each.rows_retired_, each.counts_.sum()) == (2000, counts + each.rows_used_)
            assert 500 < each.rows_used_ <= 1000
            assert each.cluster_centers_.tobytes() == models[0].cluster_centers_.tobytes()

    def test_parameters_changed_between_batches_apply_from_then_on(self):
        X = blobs(5000, 4, 12, 6)
        live, pickled, unchanged = (
            NestedMiniBatchKMeans(8, batch_size=100, memory=1000 * 32, random_state=1) for _ in range(3)
        )
        for model in (live, pickled, unchanged):
            model.partial_fit(X[:500])
        for model in (live, pickled):
            model.set_params(memory="1GB")
        pickled = pickle.loads(pickle.dumps(pickled))
        for model in (live, pickled, unchanged):
            model.partial_fit(X[500:])
        assert live.cluster_centers_.tobytes() == pickled.cluster_centers_.tobytes()
        assert live.rows_retired_ == pickled.rows_retired_ == 0 < unchanged.rows_retired_
        live.set_params(n_clusters=9)
        with pytest.raises(ValueError, match="n_clusters=9 differs from the 8 centers"):
            live.partial_fit(X)

    def test_weights(self):
        X = blobs(2000, 4, 12, 6)
        weights = np.random.default_rng(0).integers(1, 4, size=2000).astype(float)
        model = NestedMiniBatchKMeans(8, batch_size=10**6, random_state=1)
        model.partial_fit(X[:1000], sample_weight=weights[:1000]).partial_fit(X[1000:])
        assert model.counts_.sum() == weights[:1000].sum() + 1000

    def test_invalid_batches_leave_the_state_unchanged(self):
        X = blobs(500, 4, 12, 6)
        model = NestedMiniBatchKMeans(8, batch_size=100, random_state=1).partial_fit(X)
        before = pickle.dumps((model.cluster_centers_, model.counts_, model.n_iter_))
        refused = [(X[:, :3], "features"), (X[:0], "0 sample"), (np.full((3, 4), np.nan), "NaN")]
        for bad, match in refused:
            with pytest.raises(ValueError, match=match):
                model.partial_fit(bad)
        with pytest.raises(ValueError, match="sample_weight must be above 0 for at least one row"):
            model.partial_fit(X, sample_weight=np.zeros(500))
        large = X[:3].copy()
        large[2, 1] = 1e200
        with pytest.raises(ValueError, match="squared distances overflow near row 2"):
            model.partial_fit(large)
        assert pickle.dumps((model.cluster_centers_, model.counts_, model.n_iter_)) == before
        with pytest.raises(ValueError, match=r"memory must be at least .* bytes, to have room for more rows"):
            NestedMiniBatchKMeans(8, memory=10).partial_fit(X)
