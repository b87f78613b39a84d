"""Balanced k-means: compared with exact assignments, plus invariants, streams, files and the command line."""

import json
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import shoal
from balanced_reference import ascent, dual, least_energy
from reference import inertia, nearest, normalized
from shoal import BalancedKMeans, KMeans
from shoal.cli import main
from sklearn.base import clone


def uneven_blobs(n, d, seed, dtype=np.float64, k=12):
    """Rows in groups of very different sizes."""
    rng = np.random.default_rng(seed)
    middles = rng.normal(size=(k, d)) * 3
    share = rng.dirichlet(np.ones(k))
    return (middles[rng.choice(k, size=n, p=share)] + rng.normal(size=(n, d))).astype(dtype)


def results(model):
    """All results of a fit except times."""
    fields = ["iteration", "rows_seen", "batch_size", "objective", "center_shift", "n_changed"]
    arrays = [model.cluster_centers_, model.labels_, model.counts_, model.prices_]
    figures = (model.inertia_, model.lower_bound_, model.gap_, model.stop_reason_)
    return (*(array.tobytes() for array in [*arrays, *(model.history_[f] for f in fields)]), *figures)


def in_rows(size, mean, rounded, otherwise):
    """Return a limit as a number of rows."""
    if size is None:
        return otherwise
    return int(rounded(round(size * mean, 9))) if isinstance(size, float) else size


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("n", "d", "k", "size_min", "size_max"),
    [
        (200, 2, 8, None, 1.1),
        (200, 3, 8, 1.0, 1.0),
        (173, 5, 6, 1.0, 1.0),
        (150, 2, 5, 28, None),
        (180, 1, 9, 0.5, 1.5),
        (190, 20, 30, 3, 8),
        (60, 2, 60, 1, 1),
        (40, 2, 1, 40, 40),
    ],
)
def test_the_labels_are_those_of_an_exact_assignment(n, d, k, size_min, size_max, dtype, metric):
    if metric == "cosine" and d == 1:
        pytest.skip("all rows have one of two directions")
    X = uneven_blobs(n, d, n + d, dtype) + (5 if metric == "cosine" else 0)
    given = {"size_min": size_min, "size_max": size_max, "metric": metric, "random_state": 3}
    model = BalancedKMeans(k, **given).fit(X)
    least, most = in_rows(size_min, n / k, np.floor, 0), in_rows(size_max, n / k, np.ceil, n)
    sizes = np.bincount(model.labels_, minlength=k)
    assert (sizes >= least).all()
    assert (sizes <= most).all()
    np.testing.assert_array_equal(model.sizes_, sizes)
    seen = X.astype(np.float64)
    seen = normalized(seen) if metric == "cosine" else seen
    centers = model.cluster_centers_.astype(np.float64)
    best, _ = least_energy(seen, centers, least, most)
    rounding = 1e-5 if metric == "cosine" and dtype == np.float32 else 1e-9
    assert model.inertia_ == pytest.approx(inertia(seen, centers, model.labels_), rel=rounding)
    assert 0 <= model.gap_ < 1
    assert model.gap_ * model.inertia_ == pytest.approx(max(0, model.inertia_ - model.lower_bound_))
    assert model.lower_bound_ <= best * (1 + rounding)
    assert model.inertia_ <= best / (1 - model.gap_) * (1 + rounding)
    # The bound is the dual at the prices, up to candidates that are left out.
    assert model.lower_bound_ <= dual(seen, centers, model.prices_, least, most) * (1 + rounding) + rounding
    if k <= 16:
        assert model.gap_ <= 10 * rounding
        assert model.inertia_ == pytest.approx(best, rel=10 * rounding)
    # An independent ascent finds no higher bound than an exact assignment.
    assert ascent(seen, centers, least, most) <= best * (1 + 1e-9)


def test_many_clusters_have_a_small_gap():
    X = uneven_blobs(6000, 8, 1, np.float32, k=30)
    for limits in ({"size_max": 1.1}, {"size_min": 1.0, "size_max": 1.0}, {"size_min": 0.8}):
        model = BalancedKMeans(100, random_state=0, **limits).fit(X)
        assert model.gap_ < 0.005
        mean = 60
        assert (model.sizes_ <= np.ceil(limits.get("size_max", 100) * mean)).all()
        assert (model.sizes_ >= np.floor(limits.get("size_min", 0) * mean)).all()


def test_without_limits_it_is_kmeans():
    X = uneven_blobs(1500, 6, 1, np.float32)
    for given in ({}, {"init": "random"}, {"n_init": 3}, {"algorithm": "elkan"}):
        model = BalancedKMeans(9, random_state=4, **given).fit(X)
        plain = KMeans(9, random_state=4, **given).fit(X)
        assert model.cluster_centers_.tobytes() == plain.cluster_centers_.tobytes()
        np.testing.assert_array_equal(model.labels_, plain.labels_)
        np.testing.assert_array_equal(model.predict(X), model.labels_)
        assert (model.inertia_, model.n_iter_, model.stop_reason_) == (
            plain.inertia_,
            plain.n_iter_,
            plain.stop_reason_,
        )
        assert (model.lower_bound_, model.gap_) == (model.inertia_, 0)
        assert not model.prices_.any()


def test_limits_that_do_not_bind_cost_nothing():
    X = uneven_blobs(800, 3, 2)
    model = BalancedKMeans(5, size_min=1, size_max=800, random_state=0).fit(X)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert not model.prices_.any()
    assert model.gap_ < 1e-12
    assert model.inertia_ <= KMeans(5, random_state=0).fit(X).inertia_ * (1 + 1e-6)


@pytest.mark.parametrize("k", [4, 10, 40])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_half_of_the_rows_may_be_identical(k, dtype):
    rng = np.random.default_rng(k)
    X = rng.integers(0, 200, size=(1001, 3)).astype(dtype)
    X[rng.permutation(1001)[:500]] = 77
    model = BalancedKMeans(k, size_min=1.0, size_max=1.0, random_state=0).fit(X)
    sizes = np.bincount(model.labels_, minlength=k)
    assert set(sizes) <= {1001 // k, -(-1001 // k)}
    if k <= 10:
        assert model.gap_ < 1e-9


def test_all_rows_may_be_identical():
    X = np.full((90, 4), 3.5)
    model = BalancedKMeans(9, size_min=10, size_max=10, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X)
    assert (model.sizes_ == 10).all()
    assert (model.inertia_, model.gap_) == (0, 0)


def test_threads_streams_files_and_storage_change_no_bit(tmp_path):
    X = uneven_blobs(5000, 6, 3, np.float32)
    np.save(tmp_path / "rows.npy", X)
    given = {"size_max": 1.05, "size_min": 0.5, "init": X[:30], "random_state": 2}
    expected = results(BalancedKMeans(30, n_jobs=1, **given).fit(X))
    stream = lambda: (X[i : i + 700] for i in range(0, 5000, 700))  # noqa: E731
    for rows in (X, tmp_path / "rows.npy", stream, np.asfortranarray(X)):
        assert results(BalancedKMeans(30, n_jobs=3, **given).fit(rows)) == expected
    with pytest.raises(ValueError, match="more than once"):
        BalancedKMeans(3, size_max=2).fit(iter([X]))


def test_sparse_rows():
    rng = np.random.default_rng(3)
    X = (rng.random((600, 40)) * (rng.random((600, 40)) < 0.2)).astype(np.float32)
    for metric in ("euclidean", "cosine"):
        model = BalancedKMeans(20, size_max=1.0, metric=metric, random_state=2).fit(sp.csr_array(X))
        assert (np.bincount(model.labels_) == 30).all()
        assert model.gap_ < 0.02
        seen = normalized(X) if metric == "cosine" else X.astype(np.float64)
        assert model.inertia_ == pytest.approx(inertia(seen, model.cluster_centers_, model.labels_), rel=1e-5)


def test_with_weights_the_gap_is_small_on_groups_of_very_different_sizes():
    for seed, k, limits in [(0, 12, {"size_min": 1.0, "size_max": 1.0}), (1, 20, {"size_max": 1.25})]:
        rng = np.random.default_rng(seed)
        shares = rng.dirichlet(np.full(k, 0.3))
        middles = 10 * rng.normal(size=(k, 2))
        X = middles[rng.choice(k, 4000, p=shares)] + rng.normal(size=(4000, 2))
        model = BalancedKMeans(k, random_state=0, **limits).fit(X, sample_weight=rng.exponential(size=4000))
        assert model.gap_ <= 0.05, (seed, model.gap_)


def test_weights():
    X = uneven_blobs(900, 3, 4)
    rng = np.random.default_rng(0)
    weights = rng.exponential(size=900)
    model = BalancedKMeans(12, size_min=0.9, size_max=1.1, random_state=0).fit(X, sample_weight=weights)
    sizes = np.bincount(model.labels_, weights=weights, minlength=12)
    mean = weights.sum() / 12
    np.testing.assert_allclose(model.sizes_, sizes)
    assert (sizes <= 1.1 * mean + weights.max()).all()
    assert (sizes >= 0.9 * mean - weights.max()).all()
    assert 0 <= model.gap_ < 0.02
    centers = model.cluster_centers_
    bound = dual(X, centers, model.prices_, 0.9 * mean, 1.1 * mean, weights)
    assert model.lower_bound_ <= bound * (1 + 1e-9)
    assert model.inertia_ == pytest.approx(inertia(X, centers, model.labels_, weights), rel=1e-9)
    # Whole weights that are equal are rows.
    equal = BalancedKMeans(12, size_max=1.0, random_state=0).fit(X, sample_weight=np.full(900, 2.0))
    assert (equal.sizes_ == 150).all()
    assert equal.gap_ < 1e-9


def test_the_fit_can_be_watched_and_left():
    X = uneven_blobs(1500, 4, 6, k=30)
    given = {"size_min": 60, "size_max": 90, "random_state": 0}
    expected = BalancedKMeans(20, **given).fit(X)
    model = BalancedKMeans(20, **given)
    for step in model.iter_fit(X):
        # Labels keep the limits after every step, and looking at them changes nothing.
        sizes = np.bincount(model.labels_, minlength=20)
        assert (sizes >= 60).all()
        assert (sizes <= 90).all()
        assert step.objective > 0
    assert results(model) == results(expected)
    with_limits = expected.history_["objective"][KMeans(20, random_state=0).fit(X).n_iter_ :]
    assert (np.diff(with_limits) <= 1e-9 * with_limits[0]).all()
    for after in (1, len(expected.history_) - 1):
        stopped = BalancedKMeans(20, callbacks=[lambda _, step, a=after: step.iteration == a], **given).fit(X)
        sizes = np.bincount(stopped.labels_, minlength=20)
        assert stopped.stop_reason_ == "callback"
        assert (sizes >= 60).all()
        assert (sizes <= 90).all()
    left = BalancedKMeans(20, **given)
    for _ in left.iter_fit(X):
        break
    sizes = np.bincount(left.labels_, minlength=20)
    assert (sizes >= 60).all()
    assert (sizes <= 90).all()
    assert left.gap_ < 0.005


def test_the_labels_of_new_rows_are_those_of_the_nearest_centers():
    X = uneven_blobs(700, 3, 9)
    model = BalancedKMeans(7, size_min=1.0, size_max=1.0, random_state=1).fit(X)
    found, _, _ = nearest(X, model.cluster_centers_)
    np.testing.assert_array_equal(model.predict(X), found)
    assert (model.labels_ != found).any()
    np.testing.assert_array_equal(clone(model).fit_predict(X), model.labels_)
    assert -model.score(X) < model.inertia_


def test_saving_and_pickling(tmp_path):
    X = uneven_blobs(500, 3, 9)
    limited = BalancedKMeans(7, size_max=1.0, random_state=1).fit(X)
    free = BalancedKMeans(7, random_state=1).fit(X)
    for fitted in (limited, free):
        fitted.save(tmp_path / "model.safetensors")
        loaded = shoal.load(tmp_path / "model.safetensors")
        assert isinstance(loaded, BalancedKMeans)
        for other in (loaded, pickle.loads(pickle.dumps(fitted))):
            np.testing.assert_array_equal(other.predict(X), fitted.predict(X))
            np.testing.assert_array_equal(other.prices_, fitted.prices_)
            np.testing.assert_array_equal(other.sizes_, fitted.sizes_)
            assert (other.lower_bound_, other.gap_) == (fitted.lower_bound_, fitted.gap_)


def test_resuming(tmp_path):
    X = uneven_blobs(800, 3, 2)
    given = {"size_min": 0.9, "size_max": 1.0, "random_state": 9, "tol": 0.0}
    expected = BalancedKMeans(20, **given).fit(X)
    path = tmp_path / "checkpoint.safetensors"
    for after in range(1, len(expected.history_), 1 + len(expected.history_) // 8):
        keep = shoal.callbacks.Checkpoint(path, every_steps=1, overwrite=True)
        model = BalancedKMeans(20, callbacks=[keep], **given)
        for step in model.iter_fit(X):
            if step.iteration == after:
                break
        assert results(shoal.resume(path, X)) == results(expected), after


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"size_max": -1}, "size_max must be None, a number of rows"),
        ({"size_max": True}, "size_max must be"),
        ({"size_min": "many"}, "size_min must be"),
        ({"size_max": "1.1"}, "size_max must be .* text such as '1.1x', got '1.1'"),
        ({"size_max": "x"}, "size_max must be"),
        ({"size_max": "1xx"}, "size_max must be"),
        ({"size_max": "-1x"}, "size_max must be"),
        ({"size_max": "nanx"}, "size_max must be"),
        ({"size_min": np.nan}, "size_min must be"),
        ({"size_max": np.inf}, "size_max must be"),
        ({"n_init": 0}, "n_init must be"),
        ({"copy_x": 3}, "copy_x must be"),
        ({"algorithm": "yingyang"}, "algorithm must be"),
        ({"n_clusters": 0, "size_min": -2}, "(?s)n_clusters must be.*size_min must be"),
        ({"n_clusters": 4, "size_max": 2}, r"n_clusters \* size_max >= 9, the number of rows, .* 4 \* 2 = 8"),
        (
            {"n_clusters": 4, "size_min": 3},
            r"n_clusters \* size_min <= 9, the number of rows, .* 4 \* 3 = 12",
        ),
        ({"n_clusters": 4, "size_min": 1.5}, r"n_clusters \* size_min <= 9"),
        ({"n_clusters": 2, "size_min": 0.8, "size_max": 0.8}, r"n_clusters \* size_max >= 9"),
        ({"n_clusters": 3, "size_min": 3, "size_max": 2}, r"n_clusters \* size_max >= 9"),
        ({"n_clusters": 1, "size_min": 9, "size_max": 8.0, "init": "bad"}, "init must be"),
    ],
)
def test_bad_parameters_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        BalancedKMeans(**params).fit(np.eye(9))


def test_multiples_of_the_mean_size_may_be_texts():
    X = uneven_blobs(700, 3, 9)
    given = {"n_clusters": 7, "random_state": 1}
    texts = BalancedKMeans(size_min="0.5x", size_max=" 1.25 x", **given).fit(X)
    assert results(texts) == results(BalancedKMeans(size_min=0.5, size_max=1.25, **given).fit(X))
    assert texts.get_params()["size_min"] == "0.5x"
    assert (BalancedKMeans(size_max="1x", **given).fit(X).sizes_ == 100).all()
    with pytest.raises(ValueError, match="size_max >= 700"):
        BalancedKMeans(size_max=1, **given).fit(X)


def test_limits_are_compared_with_weights():
    with pytest.raises(
        ValueError, match=r"size_max >= 4\.5, the sum of the weights, got 1, where 3 \* 1 = 3"
    ):
        BalancedKMeans(3, size_max=1).fit(np.eye(9), sample_weight=np.full(9, 0.5))


def test_command_line(tmp_path, capsys):
    X = uneven_blobs(900, 3, 8)
    np.save(tmp_path / "rows.npy", X)
    model, labels = tmp_path / "model.safetensors", tmp_path / "labels.npy"
    fit = ["fit", tmp_path / "rows.npy", "-k", 9, "--method", "balanced", "--seed", 3, "--json", "--quiet"]
    limits = ["--size-min", "0.95x", "--size-max", 103, "-o", model, "--labels", labels]
    assert main([str(arg) for arg in [*fit, *limits]]) == 0
    told = json.loads(capsys.readouterr().out)
    expected = BalancedKMeans(9, size_min=0.95, size_max=103, random_state=3).fit(X)
    assert told["inertia"] == expected.inertia_
    np.testing.assert_array_equal(np.load(labels), expected.labels_)
    assert shoal.load(model).gap_ == expected.gap_
    with pytest.raises(SystemExit, match="2"):
        main([str(arg) for arg in [*fit, "--size-max", "lots"]])
    assert "--size-max must be a number of rows" in capsys.readouterr().err
    plain = [str(arg) for arg in fit if arg != "balanced"]
    plain.insert(5, "kmeans")
    with pytest.raises(SystemExit, match="2"):
        main([*plain, "--size-max", "3"])
    assert "--size-max: kmeans has no parameter 'size_max'" in capsys.readouterr().err
