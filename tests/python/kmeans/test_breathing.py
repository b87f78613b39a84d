"""Breathing k-means: compared with a reference, plus invariants, streams, files and the command line."""

import itertools
import json
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import shoal
from breathing_reference import breathing
from generated import blobs
from reference import inertia, nearest
from shoal import BreathingKMeans, KMeans
from shoal.cli import main
from sklearn.exceptions import ConvergenceWarning


def results(model):
    """All results of a fit except times, and distances, which bounds reduce."""
    fields = ["iteration", "rows_seen", "batch_size", "objective", "center_shift", "n_changed"]
    arrays = [model.cluster_centers_, model.labels_, model.counts_, *(model.history_[f] for f in fields)]
    figures = (model.inertia_, model.start_inertia_, model.n_breaths_, model.stop_reason_)
    return (*(array.tobytes() for array in arrays), *figures)


def first_centers(X, k, seed):
    return X[np.random.default_rng(seed).choice(len(X), k, replace=False)].astype(np.float64)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("n", "d", "k", "m"),
    [(600, 2, 12, 5), (400, 5, 9, 2), (300, 1, 4, 5), (500, 20, 30, 5), (60, 3, 2, 1), (40, 2, 38, 5)],
)
def test_every_sweep_equals_the_reference(n, d, k, m, weighted, metric):
    X = blobs(n, d, 12, n + d) + (0.0 if d > 1 else 9.0)
    if metric == "cosine" and d == 1:
        pytest.skip("all rows have the same direction")
    weights = np.random.default_rng(n).integers(int(n < 50), 4, size=n) / 2 if weighted else None
    start = first_centers(X if weights is None else X[weights > 0], k, 3)
    expected = breathing(X, start, m, 7, weights, metric=metric)
    assert expected.least_gap > 1e-11
    model = BreathingKMeans(k, m=m, init=start, metric=metric, random_state=7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, sample_weight=weights)
    assert len(model.history_) == len(expected.sweeps)
    objective = [value for _, _, value in expected.sweeps]
    np.testing.assert_allclose(model.history_["objective"], objective, rtol=1e-10)
    assert model.n_breaths_ == expected.breaths
    # Clusterings that are equal but for the order of the clusters have inertias that differ by rounding.
    order, _, _ = nearest(expected.centers, model.cluster_centers_)
    assert sorted(order) == list(range(k))
    np.testing.assert_allclose(model.cluster_centers_[order], expected.centers, rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(model.labels_, order[expected.labels])
    np.testing.assert_allclose(
        [model.inertia_, model.start_inertia_], [expected.inertia, expected.start], rtol=1e-12
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("seed", range(4))
def test_never_worse_than_its_own_start(seed, metric, dtype):
    X = blobs(2000, 4, 40, seed, width=0.4)
    X = np.clip(8 * X + 128, 1, 255).astype(dtype) if dtype == np.uint8 else X.astype(dtype)
    given = {"random_state": seed, "metric": metric, "init": "random"}
    start = KMeans(25, n_init=1, **given).fit(X)
    model = BreathingKMeans(25, **given).fit(X)
    assert model.start_inertia_ == start.inertia_
    # Random starts of 25 of 40 blobs can always be improved.
    assert model.inertia_ < start.inertia_
    assert model.n_breaths_ > 0
    first = start.n_iter_
    np.testing.assert_array_equal(model.history_["objective"][: first - 1], start.history_["objective"][:-1])
    objective = model.history_["objective"]
    assert (np.diff(objective) <= 1e-6 * objective[:-1]).all()
    assert (np.diff(objective[first - 1 :]) <= 0).all()
    assert objective[-1] == model.inertia_
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert model.counts_.sum() == len(X)
    assert model.inertia_ == pytest.approx(-model.score(X), rel=1e-12)


def test_without_breaths_it_is_exact_kmeans():
    X = blobs(1500, 6, 12, 1, dtype=np.float32)
    model, start = BreathingKMeans(9, m=0, random_state=4).fit(X), KMeans(9, random_state=4).fit(X)
    assert model.cluster_centers_.tobytes() == start.cluster_centers_.tobytes()
    assert (model.inertia_, model.n_iter_, model.stop_reason_) == (
        start.inertia_,
        start.n_iter_,
        start.stop_reason_,
    )
    assert model.n_breaths_ == 0
    # The mean of all rows cannot be improved, nor can a cluster for each row.
    one = BreathingKMeans(1, random_state=0).fit(X)
    assert (one.n_breaths_, one.n_iter_) == (0, KMeans(1, random_state=0).fit(X).n_iter_)
    every = BreathingKMeans(30, random_state=0).fit(X[:30])
    assert (every.n_breaths_, every.inertia_) == (0, 0.0)


def test_a_known_optimum_is_found_from_a_bad_start():
    # Three blobs of equal weight in each of 12 corners; all first centers lie in a few of them.
    rng = np.random.default_rng(5)
    middles = np.array(list(itertools.product([0.0, 50.0, 90.0, 170.0], [0.0, 60.0, 130.0])))
    X = np.repeat(middles, 100, axis=0) + rng.normal(size=(1200, 2))
    means = X.reshape(12, 100, 2).mean(axis=1)
    best = inertia(X, means, np.arange(1200) // 100)
    stuck = KMeans(12, init=X[:12], n_init=1).fit(X)
    model = BreathingKMeans(12, init=X[:12], random_state=0).fit(X)
    assert stuck.inertia_ > 10 * best
    assert model.inertia_ == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("algorithm", ["lloyd", "yinyang", "elkan", "hamerly", "exponion", "filtering"])
def test_the_algorithm_and_threads_change_no_bit(algorithm):
    X = blobs(20_000, 3, 60, 2, width=0.5, dtype=np.float32)
    expected = results(BreathingKMeans(40, m=3, random_state=1, n_jobs=1, algorithm="lloyd").fit(X))
    for threads in (1, 3):
        model = BreathingKMeans(40, m=3, random_state=1, n_jobs=threads, algorithm=algorithm).fit(X)
        assert results(model) == expected, threads


def test_duplicate_rows_and_rows_without_weight():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(20, 3)), 50, axis=0)
    model = BreathingKMeans(20, random_state=0).fit(X)
    assert model.inertia_ == pytest.approx(0.0, abs=1e-20)
    with pytest.warns(ConvergenceWarning, match="distinct clusters"):
        more = BreathingKMeans(30, random_state=0).fit(X)
    # Clusters whose error is rounding are not split.
    assert (more.n_breaths_, model.n_breaths_) == (0, 0)
    assert more.inertia_ == pytest.approx(0.0, abs=1e-20)
    # Rows without weight change nothing but their own labels.
    kept = blobs(500, 4, 12, 1)
    gone = rng.normal(size=(300, 4)) * 50
    rows = np.concatenate([kept, gone])
    weights = np.r_[np.ones(500), np.zeros(300)]
    start = first_centers(kept, 8, 0)
    plain = breathing(kept, start, 5, 3)
    # The tolerance is relative to the variance of all rows, so it is switched off.
    given = {"init": start, "random_state": 3, "tol": 0.0}
    alone = BreathingKMeans(8, **given).fit(kept)
    weighted = BreathingKMeans(8, **given).fit(rows, sample_weight=weights)
    np.testing.assert_allclose(weighted.cluster_centers_, alone.cluster_centers_, rtol=1e-9)
    assert weighted.inertia_ == pytest.approx(alone.inertia_, rel=1e-12)
    assert alone.inertia_ <= plain.inertia * (1 + 1e-9)
    # Whole weights are as good as copies of the rows.
    twice = BreathingKMeans(8, **given).fit(kept, sample_weight=np.full(500, 2.0))
    assert twice.inertia_ == pytest.approx(2 * alone.inertia_, rel=1e-9)


def test_an_added_center_that_loses_all_rows_is_moved():
    # All rows of a cluster but one are identical, and far from the origin: a copy of the center has no rows.
    X = np.concatenate([np.full((200, 2), 1e6), [[1e6 + 3, 1e6]], blobs(100, 2, 12, 0)]).astype(np.float32)
    model = BreathingKMeans(3, random_state=0).fit(X)
    assert (model.counts_ > 0).all()
    labels, _, _ = nearest(X, model.cluster_centers_)
    np.testing.assert_array_equal(labels, model.labels_)
    assert model.inertia_ <= model.start_inertia_


def test_sparse_rows_streams_and_files_agree(tmp_path):
    rng = np.random.default_rng(3)
    X = rng.random((600, 30)) * (rng.random((600, 30)) < 0.2)
    X = X.astype(np.float32)
    dense = BreathingKMeans(12, random_state=2).fit(X)
    sparse = BreathingKMeans(12, random_state=2).fit(sp.csr_array(X))
    assert sparse.inertia_ == pytest.approx(dense.inertia_, rel=0.05)
    assert sparse.inertia_ <= sparse.start_inertia_
    np.save(tmp_path / "rows.npy", X)
    stream = lambda: (X[i : i + 100] for i in range(0, 600, 100))  # noqa: E731
    first = BreathingKMeans(12, init=X[:12], random_state=2)
    expected = results(first.fit(X))
    for rows in (tmp_path / "rows.npy", stream):
        assert results(BreathingKMeans(12, init=X[:12], random_state=2).fit(rows)) == expected
    with pytest.raises(ValueError, match="more than once"):
        BreathingKMeans(3).fit(iter([X]))


def test_a_fit_can_be_watched_left_and_kept(tmp_path):
    X = blobs(1500, 4, 30, 6)
    model = BreathingKMeans(20, random_state=0)
    lowest = np.inf
    for step in model.iter_fit(X):
        if model.n_breaths_:
            assert step.objective <= lowest
            measured = inertia(X, model.cluster_centers_, model.predict(X))
            assert step.objective == pytest.approx(measured, rel=1e-9)
            lowest = step.objective
        if model.n_breaths_ == 3:
            break
    assert len(model.labels_) == 1500
    assert model.inertia_ == pytest.approx(lowest, rel=1e-12)
    assert model.inertia_ <= model.start_inertia_
    capped = BreathingKMeans(20, random_state=0, max_iter=model.n_iter_).fit(X)
    assert (capped.stop_reason_, capped.n_iter_) == ("max-iter", model.n_iter_)
    assert capped.inertia_ == model.inertia_
    whole = BreathingKMeans(20, random_state=0).fit(X)
    stopped = BreathingKMeans(20, random_state=0, callbacks=[lambda _, step: step.iteration == 2]).fit(X)
    assert (stopped.n_iter_, stopped.n_breaths_, stopped.stop_reason_) == (2, 0, "callback")
    assert np.isnan(stopped.start_inertia_)
    for fitted in (whole, stopped):
        fitted.save(tmp_path / "model.safetensors")
        loaded = shoal.load(tmp_path / "model.safetensors")
        assert isinstance(loaded, BreathingKMeans)
        fitted.callbacks = None
        for other in (loaded, pickle.loads(pickle.dumps(fitted))):
            np.testing.assert_array_equal(other.predict(X), fitted.labels_)
            assert other.n_breaths_ == fitted.n_breaths_
            np.testing.assert_equal(other.start_inertia_, fitted.start_inertia_)


def test_callable_first_centers_and_resuming(tmp_path):
    X = blobs(800, 3, 12, 2)
    start = first_centers(X, 10, 0)
    given = {"m": 4, "random_state": 9}
    expected = results(BreathingKMeans(10, init=start, **given).fit(X))
    made = BreathingKMeans(10, init=lambda X, k, random_state: start, **given).fit(X)
    assert results(made) == expected
    assert (made.init_, made.algorithm_) == ("callable", "lloyd")
    path = tmp_path / "checkpoint.safetensors"
    total = len(made.history_)
    for after in range(1, total, 1 + total // 12):
        keep = shoal.callbacks.Checkpoint(path, every_steps=1, overwrite=True)
        model = BreathingKMeans(10, init=start, callbacks=[keep], **given)
        for step in model.iter_fit(X):
            if step.iteration == after:
                break
        assert results(shoal.resume(path, X)) == expected, after


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"m": -1}, "m must be"),
        ({"m": 2.5}, "m must be"),
        ({"tol": -1}, "tol must be"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"algorithm": "yingyang"}, "algorithm must be"),
        ({"memory": "much"}, "memory must be"),
        ({"n_clusters": 0, "metric": "l1"}, "n_clusters must be.*metric must be"),
    ],
)
def test_bad_parameters_are_refused(params, message):
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        BreathingKMeans(**params).fit(np.eye(9))


def test_command_line(tmp_path, capsys):
    X = blobs(900, 3, 12, 8)
    np.save(tmp_path / "rows.npy", X)
    model = tmp_path / "model.safetensors"
    args = ["fit", tmp_path / "rows.npy", "-k", 9, "--method", "breathing", "--seed", 3, "--json", "--quiet"]
    assert main([str(arg) for arg in [*args, "--set", "m=3", "-o", model]]) == 0
    told = json.loads(capsys.readouterr().out)
    expected = BreathingKMeans(9, m=3, random_state=3).fit(X)
    assert told["inertia"] == expected.inertia_
    assert shoal.load(model).n_breaths_ == expected.n_breaths_
