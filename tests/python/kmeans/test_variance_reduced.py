"""Variance-reduced k-means: compared with a reference, plus bounds, streams and files."""

import json
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import shoal
from generated import blobs
from reference import Rng, inertia, nearest
from shoal import KMeans, VarianceReducedKMeans
from shoal.callbacks import Deadline
from shoal.cli import main
from sklearn.exceptions import ConvergenceWarning
from vrkm_reference import EPOCH, gamma, vrkm


def searching(model):
    """The same method, with a search over all centers at every step."""
    model._search_always = True
    return model


def left(model):
    """All results of a fit except times, and distances, which bounds reduce."""
    fields = ["iteration", "rows_seen", "batch_size", "objective", "center_shift", "n_changed"]
    arrays = [model.cluster_centers_, model.labels_, model.counts_, *(model.history_[f] for f in fields)]
    return (*(array.tobytes() for array in arrays), model.inertia_, model.learning_rate_, model.stop_reason_)


def test_random_draws_equal_those_of_the_reference():
    # The values of src/rng.rs, which never change.
    rng = Rng(7, 1, 0)
    assert [rng.bits(), rng.bits()] == [0x02EBB3CDC0C88E61, 0xC1EAD045F80C2A6B]
    assert rng.below(1000) == 774
    assert rng.unit() == 7_161_232_513_637_310 / 9_007_199_254_740_992


@pytest.mark.parametrize("variant", ["vrkm++", "vrkm"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("n", "d", "k", "rate", "steps"),
    [
        (600, 5, 12, 0.05, 600),
        (500, 2, 7, 0.3, 250),
        (400, 20, 40, 0.1, 400),
        (311, 3, 5, 1.0, 100),
        (300, 1, 4, 0.02, 600),
        (100, 4, 1, 0.1, 50),
        (12, 3, 12, 0.5, 24),
    ],
)
def test_epochs_equal_the_reference(n, d, k, rate, steps, weighted, variant):
    X = blobs(n, d, 12, n + d, width=2.0)
    weights = np.random.default_rng(3).choice([0.5, 1.0, 2.0, 0.0], size=n) if weighted else None
    init = X[np.random.default_rng(1).permutation(n)[:k]]
    expected = vrkm(X, init, rate, steps, 4, 11, weights, plain=variant == "vrkm")
    model = VarianceReducedKMeans(
        k,
        init=init,
        variant=variant,
        learning_rate=rate,
        epoch_size=steps,
        tol=0,
        max_iter=4,
        random_state=11,
    )
    seen = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for step, truth in zip(model.iter_fit(X, weights), expected, strict=False):
            if model.learning_rate_ != rate:
                # The epoch was undone, which the reference does not do.
                assert truth.objective > 1.01 * expected[seen - 1].objective
                break
            seen += 1
            assert step.objective == pytest.approx(truth.objective, rel=1e-9, abs=1e-12)
            assert step.n_changed == truth.changed
            wanted = truth.means if step.stop_reason == "labels-stable" else truth.centers
            np.testing.assert_allclose(model.cluster_centers_, wanted, rtol=1e-9, atol=1e-9)
    assert seen >= 1
    assert seen == 4 or rate > 0.2 or model.stop_reason_ == "labels-stable"
    assert k in (1, 12) or expected[0].switched > 0


def test_float32_is_close_to_the_reference():
    X = blobs(800, 6, 12, 3, width=2.0, dtype=np.float32)
    expected = vrkm(X, X[:15], 0.05, 800, 3, 2, dtype=np.float32)
    model = VarianceReducedKMeans(15, init=X[:15], learning_rate=0.05, tol=0, max_iter=3, random_state=2)
    for step, truth in zip(model.iter_fit(X), expected, strict=True):
        assert step.objective == pytest.approx(truth.objective, rel=1e-5)
        np.testing.assert_allclose(model.cluster_centers_, truth.centers, rtol=1e-4, atol=1e-5)


def test_steps_are_unbiased():
    # The mean step over all rows is the gradient at the centers, which equal the means before the first step.
    X = blobs(40, 3, 12, 5, width=4.0)
    k, rate = 6, 0.25
    given = {"init": X[:k], "max_iter": 1, "tol": 0, "polish": False}
    means = VarianceReducedKMeans(k, epoch_size=0, **given).fit(X).cluster_centers_
    labels, now = nearest(X, X[:k])[0], nearest(X, means)[0]
    steps = {}
    for seed in range(1000):
        row = Rng(seed, EPOCH, 0).below(len(X))
        if row not in steps:
            one = VarianceReducedKMeans(k, learning_rate=rate, epoch_size=1, random_state=seed, **given)
            steps[row] = (means - one.fit(X).cluster_centers_) / rate
            wanted = gamma(X[row], now[row], labels[row], means, means)
            np.testing.assert_allclose(steps[row], wanted, rtol=1e-10, atol=1e-12)
    assert sorted(steps) == list(range(len(X)))
    gradient = np.zeros_like(means)
    for i, j in enumerate(now):
        gradient[j] += means[j] - X[i]
    np.testing.assert_allclose(sum(steps.values()), gradient, rtol=1e-10, atol=1e-10)
    assert (now != labels).sum() > 3


# ---------------------------------------------------------------- bounds


def tied(n, d, seed, dtype):
    """A few distinct rows on a grid: only ties and duplicates."""
    return np.random.default_rng(seed).integers(0, 3, size=(n, d)).astype(dtype)


CASES = {
    "blobs": lambda dtype: (blobs(3000, 20, 60, 1, width=2.0, dtype=dtype), 150),
    "ties": lambda dtype: (tied(2500, 3, 2, dtype), 14),
    "ties, many columns": lambda dtype: (tied(2500, 18, 2, dtype), 200),
    "duplicates": lambda dtype: (np.repeat(blobs(300, 17, 12, 3, dtype=dtype), 9, axis=0), 120),
    "one column": lambda dtype: (blobs(3000, 1, 12, 4, dtype=dtype), 30),
    "few columns, many centers": lambda dtype: (blobs(6000, 2, 100, 5, dtype=dtype), 400),
    "noise": lambda dtype: (np.random.default_rng(6).normal(size=(2500, 40)).astype(dtype), 130),
    "far from the origin": lambda dtype: (blobs(2500, 19, 60, 7, dtype=dtype) + dtype(1000), 140),
    "huge": lambda dtype: (blobs(2000, 18, 60, 8, dtype=dtype) * dtype(1e15), 130),
    "tiny": lambda dtype: (blobs(2000, 18, 60, 8, dtype=dtype) * dtype(1e-15), 130),
    "many columns": lambda dtype: (blobs(1500, 300, 60, 9, width=3.0, dtype=dtype), 140),
    "one center": lambda dtype: (blobs(500, 5, 12, 1, dtype=dtype), 1),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES)
def test_bounds_do_not_change_labels(case, dtype):
    X, k = CASES[case](dtype)
    given = {"init": X[np.random.default_rng(2).permutation(len(X))[:k]], "tol": 0, "random_state": 4}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for rate, epochs in ((0.02, 7), (0.4, 3)):
            model = VarianceReducedKMeans(k, learning_rate=rate, max_iter=epochs, **given).fit(X)
            plain = searching(VarianceReducedKMeans(k, learning_rate=rate, max_iter=epochs, **given)).fit(X)
            assert left(model) == left(plain)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("density", [0.02, 0.4])
def test_bounds_do_not_change_labels_of_sparse_rows(dtype, density):
    X = sp.random(2000, 60, density=density, random_state=1, format="csr", dtype=np.float64).astype(dtype)
    init = X[:140].toarray() + dtype(0.01) * np.random.default_rng(0).normal(size=(140, 60)).astype(dtype)
    given = {"init": init, "tol": 0, "random_state": 4, "max_iter": 4, "learning_rate": 0.05}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = VarianceReducedKMeans(140, **given).fit(X)
        assert left(model) == left(searching(VarianceReducedKMeans(140, **given)).fit(X))
        wide = VarianceReducedKMeans(140, **given).fit(X.astype(np.float64))
        dense = VarianceReducedKMeans(140, **given).fit(X.toarray().astype(np.float64))
    np.testing.assert_allclose(wide.cluster_centers_, dense.cluster_centers_, rtol=1e-9, atol=1e-9)
    assert (wide.labels_ == dense.labels_).mean() > 0.99


def test_variants_agree():
    X = blobs(2000, 8, 12, 3, width=2.5)
    given = {"n_clusters": 70, "init": X[:70], "max_iter": 3, "tol": 0, "random_state": 1}
    plus, plain = (VarianceReducedKMeans(variant=v, **given).fit(X) for v in ("vrkm++", "vrkm"))
    np.testing.assert_allclose(plus.cluster_centers_, plain.cluster_centers_, rtol=1e-11, atol=1e-11)
    assert (plus.labels_ == plain.labels_).all()
    assert left(plain) == left(searching(VarianceReducedKMeans(variant="vrkm", **given)).fit(X))


# ---------------------------------------------------------------- invariants


@pytest.mark.parametrize(("text", "size"), [("1x", 1.0), ("0.25x", 0.25), ("1x", 200), ("0x", 0)])
def test_multiples_of_the_rows_may_be_texts(text, size):
    X = blobs(200, 3, 12, 5)
    fits = [
        VarianceReducedKMeans(6, epoch_size=given, learning_rate=0.05, random_state=0).fit(X)
        for given in (text, size)
    ]
    assert fits[0].n_iter_ > 1
    np.testing.assert_array_equal(fits[0].cluster_centers_, fits[1].cluster_centers_)


@pytest.mark.parametrize("off", [{"learning_rate": 0}, {"epoch_size": 0}, {"epoch_size": 0.0}])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_without_steps_it_equals_lloyd(dtype, off):
    X = blobs(5000, 17, 40, 3, width=2.0, dtype=dtype)
    init = X[:60]
    lloyd = KMeans(60, init=init, n_init=1, tol=0, max_iter=60)
    model = VarianceReducedKMeans(60, init=init, tol=0, max_iter=60, **off)
    for a, b in zip(model.iter_fit(X), lloyd.iter_fit(X), strict=True):
        assert (a.objective, a.n_changed, a.stop_reason) == (b.objective, b.n_changed, b.stop_reason)
        assert (model.cluster_centers_ == lloyd.cluster_centers_).all()
    assert (model.labels_ == lloyd.labels_).all()
    assert model.inertia_ == lloyd.inertia_


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_that_keep_their_labels_do_not_move_the_means(weighted, dtype):
    X = blobs(900, 4, 3, 1, width=0.01, dtype=dtype)
    weights = np.random.default_rng(1).integers(0, 3, size=900).astype(float) if weighted else None
    init = X[[0, np.flatnonzero(((X - X[0]) ** 2).sum(axis=1) > 1)[0]]]
    assert vrkm(X, init, 0.3, 900, 1, 0, weights)[0].switched == 0
    given = {"init": init, "tol": 0, "max_iter": 1, "random_state": 0, "polish": False}
    steps = VarianceReducedKMeans(2, learning_rate=0.3, **given).fit(X, sample_weight=weights)
    none = VarianceReducedKMeans(2, learning_rate=0, **given).fit(X, sample_weight=weights)
    assert (steps.cluster_centers_ == none.cluster_centers_).all()
    assert (steps.history_["rows_seen"][0], none.history_["rows_seen"][0]) == (1800, 900)
    assert (steps.cluster_centers_ != init).any()


@pytest.mark.parametrize("weighted", [False, True])
def test_the_polish_leaves_no_gradient_and_never_raises_the_inertia(weighted):
    X = blobs(1500, 5, 12, 3, width=2.0)
    weights = np.random.default_rng(2).uniform(0, 2, size=1500) if weighted else None
    w = np.ones(1500) if weights is None else weights
    model = VarianceReducedKMeans(25, init=X[:25], learning_rate=0.05, tol=0, max_iter=5, random_state=3)
    centers = X[:25]
    for step in model.iter_fit(X, weights):
        labels = nearest(X, centers)[0]
        before = inertia(X, centers, labels, weights)
        assert step.objective == pytest.approx(before, rel=1e-10)
        # The same sweep without steps.
        only = VarianceReducedKMeans(25, init=centers, learning_rate=0, max_iter=1, polish=False)
        means = only.fit(X, sample_weight=weights).cluster_centers_
        for j in range(25):
            mine = labels == j
            pull = (w[mine, None] * (means[j] - X[mine])).sum(axis=0)
            assert np.abs(pull).max() <= 1e-12 * np.abs(w[mine, None] * X[mine]).sum()
        assert inertia(X, means, labels, weights) <= before * (1 + 1e-12)
        centers = model.cluster_centers_.copy()


def test_polished_centers_are_means_and_results_are_consistent():
    X = blobs(3000, 6, 12, 2, width=2.0)
    given = {"init": X[:30], "tol": 0, "max_iter": 3, "random_state": 1}
    rough = VarianceReducedKMeans(30, polish=False, **given).fit(X)
    model = VarianceReducedKMeans(30, **given).fit(X)
    labels = rough.labels_
    means = np.stack([X[labels == j].mean(axis=0) for j in range(30)])
    np.testing.assert_allclose(model.cluster_centers_, means, rtol=1e-12, atol=1e-12)
    assert model.inertia_ < rough.inertia_
    for each in (rough, model):
        assert (each.predict(X) == each.labels_).all()
        assert each.inertia_ == pytest.approx(-each.score(X), rel=1e-12)
        assert (each.counts_ == np.bincount(each.labels_, minlength=30)).all()
        assert each.n_iter_ == 3
        assert each.stop_reason_ == "max-iter"


def test_an_epoch_lowers_the_inertia_more_than_two_sweeps():
    X = blobs(20_000, 10, 60, 4, width=3.0)
    ours, theirs = [], []
    for seed in range(4):
        init = X[np.random.default_rng(seed).permutation(len(X))[:60]]
        given = {"init": init, "tol": 0, "random_state": seed}
        ours.append(VarianceReducedKMeans(60, max_iter=5, **given).fit(X).inertia_)
        theirs.append(KMeans(60, n_init=1, max_iter=11, **given).fit(X).inertia_)
    assert np.mean(ours) < np.mean(theirs)


def test_epochs_that_raise_the_inertia_are_undone():
    X = blobs(2000, 12, 12, 5, width=3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = VarianceReducedKMeans(40, init=X[:40], learning_rate=1.0, tol=0, max_iter=25).fit(X)
    assert 0 < model.learning_rate_ < 0.5
    assert np.log2(model.learning_rate_) % 1 == 0
    assert (np.diff(model.history_["objective"]) <= 0.0100001 * model.history_["objective"][:-1]).all()
    assert model.inertia_ < KMeans(40, init=X[:40], n_init=1, max_iter=3, tol=0).fit(X).inertia_


def test_stop_rules():
    X = blobs(4000, 5, 12, 6, width=2.0)
    model = VarianceReducedKMeans(20, random_state=1, max_iter=300).fit(X)
    assert model.stop_reason_ == "tolerance"
    fall = -np.diff(model.history_["objective"]) / model.history_["objective"][:-1]
    assert (fall[-2:] < 1e-4).all()
    assert not ((fall[:-2] < 1e-4) & (fall[1:-1] < 1e-4)).any()
    easy = VarianceReducedKMeans(3, init=blobs(3, 2, 3, 1), tol=0).fit(blobs(500, 2, 3, 1, width=0.01))
    assert easy.stop_reason_ == "labels-stable"
    assert easy.n_iter_ < 50


def test_the_automatic_learning_rate():
    X = blobs(4000, 3, 12, 6, width=2.0)
    assert VarianceReducedKMeans(8, max_iter=1).fit(X).learning_rate_ == 3 * 8 / 4000
    assert VarianceReducedKMeans(80, max_iter=1).fit(X).learning_rate_ == 0.05


# ---------------------------------------------------------------- sources


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("weighted", [False, True])
def test_threads_and_sources_do_not_change_results(dtype, weighted, tmp_path):
    X = np.clip(blobs(6_011, 17, 12, 1, width=2.0) * 8 + 100, 0, 255).astype(dtype)
    weights = np.random.default_rng(1).uniform(0.0, 2.0, size=len(X)) if weighted else None
    path = tmp_path / "rows.npy"
    np.save(path, X)
    results = set()
    for rows, n_jobs in [
        (X, 1),
        (np.asfortranarray(X), 3),
        (path, 2),
        (np.load(path, mmap_mode="r"), 1),
        (shoal.open(path), 4),
    ]:
        model = VarianceReducedKMeans(
            130, init=X[:130].astype(float), max_iter=4, n_jobs=n_jobs, random_state=2
        )
        results.add(left(model.fit(rows, sample_weight=weights)))
    assert len(results) == 1


def in_blocks(X, size):
    return lambda: iter([X[i : i + size] for i in range(0, len(X), size)])


@pytest.mark.parametrize("weighted", [False, True])
def test_streams_are_sampled_in_segments(weighted):
    X = blobs(40_000, 2, 12, 3, width=2.0, dtype=np.float32)
    weights = np.random.default_rng(1).uniform(0.0, 2.0, size=len(X)) if weighted else None
    given = {"init": X[:40], "max_iter": 3, "tol": 0, "random_state": 1}
    results = {
        left(VarianceReducedKMeans(40, n_jobs=jobs, **given).fit(in_blocks(X, size), sample_weight=weights))
        for size, jobs in ((1000, 1), (40_000, 2), (777, 3))
    }
    assert len(results) == 1
    stream = VarianceReducedKMeans(40, **given).fit(in_blocks(X, 5000), sample_weight=weights)
    memory = VarianceReducedKMeans(40, **given).fit(X, sample_weight=weights)
    assert stream.history_["rows_seen"].tolist() == memory.history_["rows_seen"].tolist()
    assert stream.inertia_ == pytest.approx(memory.inertia_, rel=0.02)
    assert (stream.cluster_centers_ != memory.cluster_centers_).any()
    # One segment covers all rows.
    few = X[:9000]
    w = None if weights is None else weights[:9000]
    a = VarianceReducedKMeans(40, **given).fit(in_blocks(few, 500), sample_weight=w)
    b = VarianceReducedKMeans(40, **given).fit(few, sample_weight=w)
    assert left(a) == left(b)


def test_one_pass_streams_are_refused_before_reading():
    read = []

    def blocks():
        read.append(1)
        yield np.zeros((3, 2))

    message = "VarianceReducedKMeans reads its rows more than once"
    with pytest.raises(ValueError, match=message):
        VarianceReducedKMeans(2).fit(blocks())
    assert read == []
    stream = shoal.open(blocks())
    # One block is read to find the number of columns.
    peeked = list(read)
    with pytest.raises(ValueError, match=message):
        VarianceReducedKMeans(2).fit(stream)
    assert read == peeked


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("weighted", [False, True])
def test_weighted_sparse_rows_are_drawn_like_dense_rows(weighted):
    rng = np.random.default_rng(4)
    X = np.where(rng.random((1200, 40)) < 0.3, rng.normal(size=(1200, 40)), 0.0)
    weights = rng.integers(0, 3, size=1200) + 0.5 if weighted else None
    given = {"init": X[:15], "tol": 0, "max_iter": 4, "random_state": 5, "learning_rate": 0.02}
    dense = VarianceReducedKMeans(15, **given).fit(X, sample_weight=weights)
    sparse = VarianceReducedKMeans(15, **given).fit(sp.csr_array(X), sample_weight=weights)
    np.testing.assert_allclose(sparse.cluster_centers_, dense.cluster_centers_, rtol=1e-9, atol=1e-11)
    assert (sparse.labels_ == dense.labels_).all()
    assert sparse.inertia_ == pytest.approx(dense.inertia_, rel=1e-11)
    slow = vrkm(X, X[:15], 0.02, 1200, 4, 5, weights)
    np.testing.assert_allclose(sparse.history_["objective"], [e.objective for e in slow], rtol=1e-9)


def test_callbacks_see_every_epoch_and_can_stop_a_fit():
    X = blobs(3000, 4, 12, 6, width=2.0)
    given = {"init": X[:20], "tol": 0, "random_state": 1}
    seen = []

    def look(model, step):
        seen.append((step.iteration, model.cluster_centers_.copy(), model.inertia_))
        return step.iteration == 3

    model = VarianceReducedKMeans(20, callbacks=[look], **given).fit(X)
    assert model.stop_reason_ == "callback"
    assert [iteration for iteration, *_ in seen] == [1, 2, 3]
    # Callbacks see the centers of every epoch. The result is that of three epochs.
    assert left(VarianceReducedKMeans(20, max_iter=3, **given).fit(X))[:3] == left(model)[:3]
    rough = VarianceReducedKMeans(20, max_iter=3, polish=False, **given).fit(X)
    assert (seen[2][1] == rough.cluster_centers_).all()
    assert seen[2][2] == pytest.approx(rough.inertia_, rel=1e-12)
    late = VarianceReducedKMeans(20, callbacks=[Deadline(1e-9)], **given).fit(X)
    assert (late.stop_reason_, late.n_iter_) == ("deadline", 1)


# ---------------------------------------------------------------- weights, empty clusters


def test_scaling_all_weights_does_not_matter():
    X = blobs(2000, 5, 12, 2, width=2.0)
    w = np.random.default_rng(1).integers(0, 4, size=2000).astype(float)
    given = {"init": X[:20], "max_iter": 4, "tol": 0, "random_state": 1}
    a = VarianceReducedKMeans(20, **given).fit(X, sample_weight=w)
    b = VarianceReducedKMeans(20, **given).fit(X, sample_weight=4 * w)
    assert (a.cluster_centers_ == b.cluster_centers_).all()
    assert (a.labels_ == b.labels_).all()
    assert b.inertia_ == 4 * a.inertia_


def test_rows_without_weight_have_no_effect():
    X = blobs(1500, 4, 12, 3, width=2.0)
    w = np.r_[np.ones(1000), np.zeros(500)]
    X[1000:] += 1000
    given = {"init": X[:12], "max_iter": 4, "tol": 0, "random_state": 1, "learning_rate": 0.1}
    model = VarianceReducedKMeans(12, **given).fit(X, sample_weight=w)
    assert abs(model.cluster_centers_).max() < 100
    assert model.counts_.sum() == 1000


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("variant", ["vrkm++", "vrkm"])
@pytest.mark.parametrize("kind", ["array", "sparse", "stream"])
def test_empty_clusters_begin_anew_at_far_rows(kind, variant, weighted):
    X = blobs(500, 3, 12, 7, width=2.0)
    weights = np.random.default_rng(3).choice([0.5, 1.0, 0.0], size=500) if weighted else None
    # Two equal centers, and three that are far from all rows.
    init = np.concatenate([X[:7], X[6:7], X[:3] + 1e4])
    expected = vrkm(X, init, 0.05, 500, 3, 5, weights, plain=variant == "vrkm")
    given = {"learning_rate": 0.05, "epoch_size": 500, "tol": 0, "max_iter": 3, "random_state": 5}
    model = VarianceReducedKMeans(11, init=init, variant=variant, **given)
    rows = {"array": X, "sparse": sp.csr_matrix(X), "stream": lambda: iter([X])}[kind]
    for step, truth in zip(model.iter_fit(rows, weights), expected, strict=True):
        assert step.objective == pytest.approx(truth.objective, rel=1e-9)
        assert step.n_changed == truth.changed
        if kind != "stream":
            np.testing.assert_allclose(model.cluster_centers_, truth.centers, rtol=1e-9, atol=1e-9)
        elif step.iteration == 1:
            break
    assert (model.counts_ > 0).all() or kind == "stream"


def test_duplicates_among_the_first_centers_cost_nothing():
    """Most rows are one point, so most random first centers are equal."""
    rng = np.random.default_rng(0)
    X = np.concatenate([np.zeros((3000, 2)), blobs(600, 2, 12, 3, width=0.5) + 200])
    init = X[rng.permutation(len(X))[:20]]
    plain = KMeans(20, init=init, n_init=1).fit(X)
    model = VarianceReducedKMeans(20, init=init, random_state=0).fit(X)
    assert len(np.unique(model.labels_)) == 20
    assert model.inertia_ <= 1.2 * plain.inertia_


def test_centers_without_rows_do_not_move():
    X = np.repeat([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]], 40, axis=0)
    init = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0], [100.0, 100.0], [0.0, 0.0]])
    with pytest.warns(ConvergenceWarning, match="distinct clusters"):
        model = VarianceReducedKMeans(5, init=init, learning_rate=0.5).fit(X)
    assert model.cluster_centers_.tolist() == init.tolist()
    assert model.counts_.tolist() == [40, 40, 40, 0, 0]
    assert model.inertia_ == 0.0


# ---------------------------------------------------------------- doubling epochs


def test_epochs_double_from_two_steps_up_to_the_number_of_rows():
    X = np.random.default_rng(0).random((2000, 3))
    given = {"init": X[:20], "epoch_size": "doubling", "learning_rate": 0.02, "random_state": 0}
    model = VarianceReducedKMeans(20, tol=0, max_iter=13, **given).fit(X)
    # A sweep over all rows, and the steps.
    steps = np.diff(model.history_["rows_seen"], prepend=0) - 2000
    assert steps.tolist() == [*(2**epoch for epoch in range(1, 11)), 2000, 2000, 2000]
    # A tolerance that no epoch meets: the fit ends with the second full epoch.
    model = VarianceReducedKMeans(20, tol=0.9, **given).fit(X)
    assert (model.stop_reason_, model.n_iter_) == ("tolerance", 13)
    assert (model.labels_ == model.predict(X)).all()


def test_doubling_epochs_of_streams_and_weights():
    X = blobs(600, 3, 12, 4, width=2.0)
    weights = np.random.default_rng(0).random(600)
    given = {"epoch_size": "doubling", "random_state": 0}
    model = VarianceReducedKMeans(6, **given).fit(X, sample_weight=weights)
    start = shoal.KMeans(6, n_init=1, max_iter=1, random_state=0).fit(X, sample_weight=weights)
    assert model.inertia_ < start.inertia_
    stream = VarianceReducedKMeans(6, init=X[:6], **given).fit(lambda: iter(np.split(X, 4)))
    assert stream.inertia_ < 1.05 * VarianceReducedKMeans(6, init=X[:6], **given).fit(X).inertia_


# ---------------------------------------------------------------- files, parameters


def test_saved_and_pickled(tmp_path):
    X = blobs(500, 3, 12, 1)
    model = VarianceReducedKMeans(4, learning_rate=0.1, epoch_size=100, random_state=0).fit(X)
    model.save(tmp_path / "model.safetensors")
    for again in (shoal.load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))):
        assert type(again) is VarianceReducedKMeans
        assert again.get_params() == model.get_params()
        assert again.learning_rate_ == model.learning_rate_
        assert (again.history_ == model.history_).all()
        assert (again.predict(X) == model.labels_).all()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("polish", [False, True])
def test_leaving_the_loop_keeps_the_centers(polish, last):
    X = blobs(3000, 5, 12, 1, width=2.0)
    model = VarianceReducedKMeans(15, random_state=0, tol=0, max_iter=4, polish=polish)
    for step in model.iter_fit(X):
        assert model.learning_rate_ > 0
        if step.iteration == (4 if last else 2):
            break
    centers, labels = model.cluster_centers_.copy(), model.predict(X)
    early = pickle.loads(pickle.dumps(model))
    assert (model.labels_ == labels).all()
    assert model.inertia_ == pytest.approx(inertia(X, centers, labels), rel=1e-12)
    assert (model.cluster_centers_ == centers).all()
    assert (model.predict(X) == labels).all()
    assert (model.counts_ == np.bincount(labels, minlength=15)).all()
    for again in (early, pickle.loads(pickle.dumps(model))):
        assert (again.cluster_centers_ == centers).all()
    assert model.n_iter_ == (4 if last else 2)
    means = np.stack([X[labels == j].mean(axis=0) for j in range(15)])
    assert np.abs(centers - means).max() > 1e-6, "a sweep would move them"


def test_an_interrupt_keeps_the_centers():
    X = blobs(3000, 5, 12, 1, width=2.0)

    def stop(_, step):
        if step.iteration == 2:
            raise KeyboardInterrupt

    model = VarianceReducedKMeans(15, random_state=0, tol=0, callbacks=[stop])
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    centers = model.cluster_centers_.copy()
    assert (model.labels_ == model.predict(X)).all()
    assert (model.cluster_centers_ == centers).all()
    # During the sweep that ends a fit.
    passes = []

    def rows(fail_at=None):
        passes.append(1)
        for start in range(0, len(X), 1000):
            if len(passes) == fail_at and start == 1000:
                raise KeyboardInterrupt
            yield X[start : start + 1000]

    given = {"init": X[:15], "random_state": 0, "tol": 0, "max_iter": 2}
    rough = VarianceReducedKMeans(15, polish=False, **given).fit(rows).cluster_centers_
    passes.clear()
    VarianceReducedKMeans(15, **given).fit(rows)
    whole = len(passes)
    for at in (whole - 1, whole):
        passes.clear()
        model = VarianceReducedKMeans(15, **given)
        with pytest.raises(KeyboardInterrupt):
            model.fit(lambda at=at: rows(at))
        assert (model.cluster_centers_ == rough).all()
        assert (model.labels_ == model.predict(X)).all()
        assert (model.cluster_centers_ == rough).all()


def test_reading_results_between_steps_changes_nothing():
    X = blobs(3000, 5, 12, 1, width=2.0)
    whole = VarianceReducedKMeans(15, random_state=0, tol=0, max_iter=4)
    for _ in whole.iter_fit(X):
        assert (whole.labels_ == whole.predict(X)).all()
        assert whole.inertia_ > 0
    assert left(whole) == left(VarianceReducedKMeans(15, random_state=0, tol=0, max_iter=4).fit(X))


def test_all_parameter_errors_are_listed():
    model = VarianceReducedKMeans(
        0, variant="svrg", learning_rate=1.5, epoch_size=-1, polish="no", tol=-1, max_iter=0
    )
    with pytest.raises(ValueError, match="n_clusters") as refused:
        model.fit(np.zeros((5, 2)))
    for name in ("variant", "learning_rate", "epoch_size", "polish", "tol", "max_iter"):
        assert name in str(refused.value)
    assert not hasattr(model, "cluster_centers_")


@pytest.mark.parametrize(
    "bad",
    [
        {"learning_rate": -0.1},
        {"learning_rate": float("nan")},
        {"learning_rate": "fast"},
        {"learning_rate": True},
        {"epoch_size": -0.5},
        {"epoch_size": "0.5"},
        {"epoch_size": "2e6x"},
        {"epoch_size": float("inf")},
        {"epoch_size": None},
        {"epoch_size": False},
        {"epoch_size": 1e300},
        {"epoch_size": 10**18 + 1},
        {"epoch_size": "halving"},
        {"epoch_size": np.array("doubling")},
        {"variant": "VRKM"},
        {"polish": None},
    ],
)
def test_invalid_parameters(bad):
    with pytest.raises((ValueError, TypeError), match=next(iter(bad))):
        VarianceReducedKMeans(2, **bad).fit(np.zeros((5, 2)))


# ---------------------------------------------------------------- the command line


@pytest.mark.parametrize("method", ["vrkm", "vrkm++"])
def test_on_the_command_line(method, tmp_path, capsys):
    X = blobs(900, 3, 12, 4, width=2.0)
    np.save(tmp_path / "rows.npy", X)

    def run(*arguments):
        status = main([str(argument) for argument in arguments])
        return status, *capsys.readouterr()

    model, kept = tmp_path / "model.safetensors", tmp_path / "run.safetensors"
    given = ["fit", tmp_path / "rows.npy", "-k", 6, "--method", method, "--seed", 3, "--quiet", "--json"]
    epochs = 0.5 if method == "vrkm" else "doubling"
    given += ["--max-iter", 5, "--tol", 0, "--set", f"epoch_size={epochs}"]
    status, out, _ = run(*given, "-o", model)
    result = json.loads(out)
    plan = {"variant": method, "epoch_size": epochs, "max_iter": 5, "tol": 0, "random_state": 3}
    here = VarianceReducedKMeans(6, **plan).fit(X)
    assert (status, result["method"], result["inertia"]) == (0, method, here.inertia_)
    assert (shoal.load(model).cluster_centers_ == here.cluster_centers_).all()
    assert shoal.load(model).variant == method

    def leave(_, step):
        if step.iteration == 2:
            raise KeyboardInterrupt

    broken = VarianceReducedKMeans(6, **plan, callbacks=[shoal.callbacks.Checkpoint(kept), leave])
    with pytest.raises(KeyboardInterrupt):
        broken.fit(X)
    status, out, _ = run(*given, "--checkpoint", kept, "--resume", "-o", model)
    result = json.loads(out)
    assert (status, result["resumed"], result["inertia"]) == (0, True, here.inertia_)
    assert (shoal.load(model).cluster_centers_ == here.cluster_centers_).all()
    with pytest.raises(SystemExit) as stopped:
        main([str(a) for a in [*given, "--set", "variant=vrkm"]])
    assert stopped.value.code == 2
    assert f"{method} has no parameter 'variant'" in capsys.readouterr().err
