"""Balanced samples: shares against a slow reference, sources and threads, weights, errors."""

import re

import numpy as np
import pytest
import sampling_reference as reference
import scipy.sparse
import shoal
from shoal import HierarchicalKMeans, _core
from shoal._curation import sampling
from shoal.callbacks import Checkpoint
from shoal.curation import sample
from sklearn.exceptions import NotFittedError

RNG = np.random.default_rng(8)
#: Groups with a long tail.
GROUPS = np.repeat(np.arange(40), 1600 // np.arange(1, 41))
X = (3 * RNG.normal(size=(40, 6))[GROUPS] + RNG.normal(size=(len(GROUPS), 6))).astype(np.float32)
SHUFFLED = RNG.permutation(len(X))
X, GROUPS = X[SHUFFLED], GROUPS[SHUFFLED]
LEVELS = [150, 50, 20]
#: Values of type uint8, which files and arrays hold without rounding.
BYTES = np.clip(X * 8 + 128, 0, 255).astype(np.uint8)


def model_of(levels, **params):
    return HierarchicalKMeans(levels, random_state=0, max_iter=3, **params).fit(X)


# ---------------------------------------------------------------- shares


def test_shares_match_the_reference():
    rng = np.random.default_rng(0)
    for trial in range(300):
        k = int(rng.integers(1, 30))
        sizes = rng.integers(0, rng.choice([2, 5, 60]), size=k)
        parents = []
        while len(parents) < trial % 4:
            count = int(rng.integers(1, max(2, (len(parents[-1]) if parents else k) // 2)))
            below = int(parents[-1].max()) + 1 if parents else k
            parents.append(rng.integers(0, count, size=below).astype(np.int32))
        n = int(rng.integers(1, 2 * sizes.sum() + 3))
        quotas = _core.balanced_quotas(sizes, parents, n, trial)
        assert quotas.dtype == np.int64
        reference.check_quotas(quotas.tolist(), sizes.tolist(), [p.tolist() for p in parents], n)
        assert (quotas == _core.balanced_quotas(sizes, parents, n, trial)).all()


def test_the_nearest_rows_match_the_reference():
    rng = np.random.default_rng(1)
    for _ in range(100):
        n, k = rng.integers(1, 200), rng.integers(1, 9)
        labels = rng.integers(0, k, size=n).astype(np.int32)
        # Many ties.
        sq_dists = rng.integers(0, 6, size=n) / 2
        weights = rng.integers(0, 3, size=n).astype(float) if rng.random() < 0.5 else None
        quotas = rng.integers(0, 40, size=k)
        found = _core.pick_rows(labels, quotas, sq_dists, 0, weights)
        np.testing.assert_array_equal(found, reference.nearest(labels, sq_dists, quotas, weights))


@pytest.mark.parametrize("within", ["random", "nearest"])
@pytest.mark.parametrize("levels", [[60], [150, 20], LEVELS])
def test_a_sample_of_a_model_has_the_shares_of_its_levels(levels, within):
    model = model_of(levels)
    parents = [level.parents.tolist() for level in model.levels_[:-1]]
    sizes = np.bincount(model.labels_, minlength=levels[0]).tolist()
    for n in (1, 7, 300, 2000):
        rows = sample(X, n, levels=model, within=within, random_state=5)
        assert (rows.dtype, len(rows)) == (np.int64, n)
        assert (np.diff(rows) > 0).all()
        taken = np.bincount(model.labels_[rows], minlength=levels[0])
        reference.check_quotas(taken.tolist(), sizes, parents, n)
        if within == "nearest":
            _, sq_dists = shoal.nearest(X, model.cluster_centers_)
            np.testing.assert_array_equal(rows, reference.nearest(model.labels_, sq_dists, taken))


def test_levels_of_numbers_are_clusterings_of_the_nearest_rows(monkeypatch):
    fitted, fit = [], sampling.fit_centers

    def spy(source, k, **options):
        values = source.take(np.arange(source.shape[0]))
        fitted.append((values, k, options["weights"], fit(source, k, **options)))
        return fitted[-1][-1]

    monkeypatch.setattr(sampling, "fit_centers", spy)
    weights = RNG.integers(0, 3, size=len(X)).astype(float)
    options = {"n_resamples": [2, 1], "resample_size": [5, 2]}
    rows = sample(X, 200, levels=[80, 10], sample_weight=weights, random_state=3, **options)
    assert [(len(values), k) for values, k, _, _ in fitted] == [
        (len(X), 80),
        (len(fitted[1][0]), 80),
        (len(fitted[2][0]), 80),
        (80, 10),
        (len(fitted[4][0]), 10),
    ]
    assert fitted[0][2] is weights or (fitted[0][2] == weights).all()
    assert all(given is None for _, _, given, _ in fitted[1:])
    for i, size in ((1, 5), (2, 5)):
        labels, sq_dists = shoal.nearest(X, fitted[i - 1][3][0])
        picked = reference.nearest(labels, sq_dists, [size] * 80, weights)
        np.testing.assert_array_equal(fitted[i][0], X[picked])
    centers = fitted[2][3][0]
    np.testing.assert_array_equal(fitted[3][0], centers)
    above, sq_dists = shoal.nearest(centers, fitted[3][3][0])
    np.testing.assert_array_equal(fitted[4][0], centers[reference.nearest(above, sq_dists, [2] * 10)])
    labels = shoal.nearest(X, centers)[0]
    parents = shoal.nearest(centers, fitted[4][3][0])[0].tolist()
    sizes = np.bincount(labels[weights > 0], minlength=80).tolist()
    taken = np.bincount(labels[rows], minlength=80).tolist()
    # The last level may have empty clusters, which the reference leaves out.
    used = {old: new for new, old in enumerate(sorted(set(parents)))}
    reference.check_quotas(taken, sizes, [[used[parent] for parent in parents]], 200)


def test_groups_come_nearer_to_equal_shares():
    rng = np.random.default_rng(8)
    rows = 1.5 * rng.normal(size=(40, 6))[GROUPS] + rng.normal(size=X.shape)

    def mean(**options):
        found = [GROUPS[sample(rows, 400, random_state=seed, **options)] for seed in range(3)]
        return np.mean([reference.divergence(groups, 40) for groups in found])

    uniform = reference.divergence(GROUPS, 40)
    flat = [mean(levels=[k], n_resamples=0) for k in (150, 40)]
    balanced = [mean(levels=[150, 80, 40], **options) for options in ({"n_resamples": 0}, {})]
    assert max(balanced) < 0.6 * min(flat)
    assert max(flat) < 0.9 * uniform


# ---------------------------------------------------------------- rows


@pytest.mark.parametrize("within", ["random", "nearest"])
def test_any_source_and_number_of_threads_give_the_same_sample(tmp_path, within):
    np.save(tmp_path / "rows.npy", BYTES)
    np.save(tmp_path / "wide.npy", BYTES.astype(np.float32))
    options = {"levels": LEVELS, "within": within, "n_resamples": 2, "random_state": 1}
    expected = sample(BYTES, 300, **options)
    sources = [
        np.asfortranarray(BYTES.astype(np.float32)),
        tmp_path / "rows.npy",
        str(tmp_path / "wide.npy"),
        np.load(tmp_path / "rows.npy", mmap_mode="r"),
        shoal.open(tmp_path / "rows.npy"),
        lambda: iter([BYTES[:700], BYTES[700:]]),
    ]
    for source in sources:
        for n_jobs in (1, 3):
            np.testing.assert_array_equal(sample(source, 300, n_jobs=n_jobs, **options), expected)
    assert not np.array_equal(sample(BYTES, 300, **options | {"random_state": 2}), expected)


def test_a_model_takes_streams():
    model = model_of(LEVELS)
    expected = sample(X, 300, levels=model, random_state=0)
    for rows in (iter([X[:700], X[700:]]), lambda: iter([X[:10], X[10:]])):
        np.testing.assert_array_equal(sample(rows, 300, levels=model, random_state=0), expected)


def test_sparse_rows_and_cosine():
    rows = X * (RNG.random(X.shape) < [0.3, 0.3, 0.3, 0.3, 1, 1])
    rows[7] = 0
    with pytest.warns(UserWarning, match="1 row of X is all zeros") as told:
        dense = sample(rows, 100, levels=[60, 9], metric="cosine", random_state=0)
    assert len(told) == 1
    with pytest.warns(UserWarning, match="1 row of X is all zeros"):
        sparse = sample(scipy.sparse.csr_array(rows), 100, levels=[60, 9], metric="cosine", random_state=0)
    assert len(dense) == len(sparse) == 100
    # The length of rows does not matter.
    scaled = rows * RNG.integers(1, 3, size=(len(X), 1)).astype(np.float32) ** 4
    with pytest.warns(UserWarning, match="1 row of X is all zeros"):
        np.testing.assert_array_equal(
            sample(scaled, 100, levels=[60, 9], metric="cosine", random_state=0), dense
        )


def test_rows_without_weight_are_never_drawn():
    weights = RNG.integers(0, 2, size=len(X)).astype(float)
    # A region without weight.
    weights[X[:, 0] > 2] = 0
    drawn = np.flatnonzero(weights)
    for levels in (LEVELS, model_of(LEVELS)):
        for within in ("random", "nearest"):
            options = {"levels": levels, "within": within, "sample_weight": weights, "random_state": 0}
            rows = sample(X, 500, **options)
            assert len(rows) == 500
            assert weights[rows].all()
            np.testing.assert_array_equal(sample(X, len(X), **options), drawn)
    # Weights above 0 say nothing about the odds of a row.
    model = model_of(LEVELS)
    np.testing.assert_array_equal(
        sample(X, 500, levels=model, sample_weight=1 + weights, random_state=0),
        sample(X, 500, levels=model, random_state=0),
    )


@pytest.mark.parametrize("n", [len(X), len(X) + 1, 10**12])
def test_a_sample_of_all_rows(n):
    np.testing.assert_array_equal(sample(X, n, levels=[30, 5], n_resamples=1), np.arange(len(X)))


def test_duplicates_and_empty_clusters():
    rows = np.repeat([[0.0, 0.0], [5.0, 0.0], [0.0, 9.0]], [900, 60, 40], axis=0)
    kinds = np.repeat([0, 1, 2], [900, 60, 40])
    for levels in ([3], [20, 6, 3], [20, 3]):
        taken = np.bincount(kinds[sample(rows, 90, levels=levels, random_state=0)])
        assert taken.sum() == 90
        assert (taken[1:] >= 30).all() or levels[0] > 3
    with pytest.warns(match="distinct clusters"):
        model = HierarchicalKMeans([20, 3], random_state=0).fit(rows)
    assert len(sample(rows, 90, levels=model, random_state=0)) == 90
    assert len(sample(rows, 990, levels=[1000, 999, 1], random_state=0)) == 990


def test_large_levels_are_trees(monkeypatch):
    started, start = [], _core.start

    def spy(method, *args, **more):
        started.append(method)
        return start(method, *args, **more)

    monkeypatch.setattr(_core, "start", spy)
    rows = sample(X, 500, levels=[1100, 50], n_resamples=[1, 0], resample_size=3, random_state=0)
    assert started == ["hierarchical", "hierarchical", "kmeans"]
    assert len(np.unique(rows)) == 500


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_samples": 0}, "n_samples must be an integer of at least 1, got 0"),
        ({"n_samples": 2.5}, "n_samples must be an integer of at least 1, got 2.5"),
        ({"levels": 100}, "levels must be a fitted HierarchicalKMeans or a sequence of .*, got 100"),
        ({"levels": []}, "levels must be a fitted HierarchicalKMeans or a sequence of .*, got \\[\\]"),
        ({"levels": [10, 10]}, "levels must be .* decreasing integers .*, got \\[10, 10\\]"),
        ({"levels": [10, 2.0]}, "levels must be .* decreasing integers .*, got \\[10, 2.0\\]"),
        ({"levels": "many"}, "levels must be .*, got 'many'"),
        ({"levels": [10**6, 10]}, f"levels must be at most the number of rows, {len(X)}, got 1000000"),
        ({"method": "uniform"}, "method must be one of balanced, got 'uniform'"),
        ({"within": "closest"}, "within must be one of random, nearest, got 'closest'"),
        ({"metric": "l1"}, "metric must be one of euclidean, cosine, got 'l1'"),
        (
            {"n_resamples": -1},
            "n_resamples must be None, .* of at least 0, or one for each level, got -1",
        ),
        ({"n_resamples": [1, 2, 3]}, "n_resamples must be one number for each of 2 levels, got .*3"),
        ({"n_resamples": True}, "n_resamples must be None, an integer of at least 0, or .*, got True"),
        ({"resample_size": 0}, "resample_size must be None, an integer of at least 1, or .*, got 0"),
        ({"resample_size": [1, 0.5]}, "resample_size must be None, an integer of .*, got \\[1, 0.5\\]"),
        (
            {"n_jobs": 0},
            "n_jobs must be None, a number of threads, -1 for all cores or -2 for all but one, got 0",
        ),
        ({"verbose": -1}, "verbose must be True, False or an integer of at least 0, got -1"),
        ({"callbacks": [3]}, "callbacks must be callables, got 3"),
        ({"callbacks": [Checkpoint("x")]}, "callbacks: Checkpoint does not go with a sample"),
        ({"sample_weight": np.zeros(len(X))}, "sample_weight must be above 0 for at least one row"),
        ({"sample_weight": -np.ones(len(X))}, "sample_weight must be finite and at least 0, got -1 at row 0"),
        ({"sample_weight": np.ones(3)}, "sample_weight has 3 values, X has"),
        (
            {"sample_weight": (np.arange(len(X)) < 9).astype(float)},
            "levels must be at most the number of rows with weight, 9, got 30",
        ),
        ({"random_state": -1}, "random_state must be within"),
        ({"n_samples": -1, "within": "x"}, "n_samples must be .*; within must be"),
    ],
)
def test_wrong_options(given, message):
    with pytest.raises(ValueError, match=message):
        sample(X, **{"n_samples": 10, "levels": [30, 5], **given})


def test_options_that_do_not_go_with_a_model():
    model = model_of([30, 5])
    for given, message in (
        ({"metric": "cosine"}, "metric must be 'euclidean', that of levels, got 'cosine'"),
        ({"n_resamples": 0}, "n_resamples must be None if levels is a model, got 0"),
        ({"resample_size": [3]}, "resample_size must be None if levels is a model, got [3]"),
        ({"sample_weight": -np.ones(len(X))}, "sample_weight must be finite and at least 0, got -1 at row 0"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            sample(X, 10, levels=model, **given)
    with pytest.raises(ValueError, match="X has 5 features"):
        sample(X[:, :5], 10, levels=model)
    with pytest.raises(NotFittedError):
        sample(X, 10, levels=HierarchicalKMeans([30, 5]))
    assert len(sample(X, 10, levels=model, metric="euclidean")) == 10


def test_bad_rows():
    broken = X.copy()
    broken[1234, 3] = np.nan
    for levels in ([30, 5], model_of([30, 5])):
        with pytest.raises(ValueError, match="X must be finite, got NaN at row 1234, column 3"):
            sample(broken, 10, levels=levels)
    with pytest.raises(ValueError, match="iterator"):
        sample(iter([X]), 10, levels=[30, 5])


def test_callbacks_and_progress(capsys):
    seen = []
    sample(X, 10, levels=[30, 5], n_resamples=[2, 0], callbacks=[lambda who, step: seen.append((who, step))])
    assert [(who, step.iteration) for who, step in seen] == [(None, 1), (None, 2), (None, 3), (None, 4)]
    sample(X, 10, levels=[30, 5], n_resamples=[2, 0], verbose=1)
    assert "sample: 4 of 4 clusterings" in capsys.readouterr().err
    with pytest.raises(RuntimeError, match="a callback ended sample"):
        sample(X, 10, levels=[30, 5], callbacks=[lambda who, step: step.iteration == 2])
