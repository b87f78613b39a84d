"""Coresets: sampling probabilities, expected costs, sources and merging."""

import io
import json
import pickle
import time

import coreset_reference
import numpy as np
import pytest
import scipy.sparse
import scipy.stats
import shoal
from shoal import Coreset, StreamingCoreset, callbacks, cli, coreset, lightweight_coreset


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    centers, sizes = rng.uniform(-9, 9, size=(8, 2)), [500, 400, 300, 200, 100, 50, 20, 10]
    return rng.permutation(
        np.concatenate([rng.normal(c, 0.5, (n, 2)) for c, n in zip(centers, sizes, strict=True)])
    )


@pytest.fixture(scope="module")
def weights(rows):
    return np.random.default_rng(1).integers(0, 5, size=len(rows)).astype(float)


def same(one, other):
    """Whether two coresets are bit-identical."""
    points = [c.points.toarray() if scipy.sparse.issparse(c.points) else c.points for c in (one, other)]
    pairs = zip((points[0], *one[1:]), (points[1], *other[1:]), strict=True)
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


def stream(rows, block):
    return lambda: (rows[i : i + block] for i in range(0, len(rows), block))


def streamed(rows, size, *, seed=0, block=317, sample_weight=None):
    made = StreamingCoreset(size, random_state=seed)
    for i in range(0, rows.shape[0], block):
        w = None if sample_weight is None else sample_weight[i : i + block]
        made.partial_fit(rows[i : i + block], sample_weight=w)
    return made


# ---------------------------------------------------------------- distributions


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_are_drawn_by_their_probabilities_and_weighted_inversely(rows, weighted):
    X = rows[:12]
    w = np.array([1, 0, 3, 1, 2, 0.5, 1, 1, 4, 1, 1, 1]) if weighted else None
    q = coreset_reference.odds(X, w)
    m, seen = 7, np.zeros(12)
    for seed in range(2000):
        c = lightweight_coreset(X, m, sample_weight=w, random_state=seed)
        assert len(c.indices) == m
        assert (c.points == X[c.indices]).all()
        np.testing.assert_allclose(
            c.weights, (1 if w is None else w[c.indices]) / (m * q[c.indices]), rtol=1e-10
        )
        np.add.at(seen, c.indices, 1)
    drawn = q > 0
    assert (seen[~drawn] == 0).all()
    assert scipy.stats.chisquare(seen[drawn], q[drawn] * 2000 * m).pvalue > 1e-3


def test_draws_are_independent():
    # Of two draws from two rows of equal probability, half contain both rows.
    X = np.array([[-1.0], [1.0], [-1.0], [1.0]])
    counts = np.bincount(
        [len(set(lightweight_coreset(X, 2, random_state=s).indices.tolist())) for s in range(4000)],
        minlength=3,
    )
    assert scipy.stats.binomtest(int(counts[1]), 4000, 1 / 4).pvalue > 1e-3


@pytest.mark.parametrize("weighted", [False, True])
def test_costs_are_unbiased(rows, weights, weighted):
    w = weights if weighted else np.ones(len(rows))
    rng = np.random.default_rng(2)
    sets = [rows[rng.integers(len(rows), size=k)] for k in (1, 3, 8)]
    truth = np.array([coreset_reference.cost(rows, centers, w) for centers in sets])
    for make in (
        lambda s: lightweight_coreset(rows, 150, sample_weight=w if weighted else None, random_state=s),
        lambda s: streamed(rows, 150, seed=s, sample_weight=w if weighted else None).result(),
    ):
        found = []
        for seed in range(120):
            c = make(seed)
            assert len(c.weights) == 150
            costs = [coreset_reference.cost(c.points, centers, c.weights) for centers in sets]
            found.append([c.weights.sum() / w.sum(), *(costs / truth)])
        mean, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(120)
        assert (abs(mean - 1) < 4.5 * error).all(), (mean, error)
        assert (error < 0.05).all()


def test_weights_are_bounded(rows, weights):
    for w in (None, weights):
        c = lightweight_coreset(rows, 300, sample_weight=w, random_state=0)
        total = len(rows) if w is None else w.sum()
        assert (c.weights <= 2 * total / 300).all()
        assert (c.weights > 0).all()
        assert (np.diff(c.indices) >= 0).all()


def test_scaled_weights_and_repeated_rows(rows, weights):
    known = lightweight_coreset(rows, 99, sample_weight=weights, random_state=3)
    for factor in (8.0, 2.0**-200):
        other = lightweight_coreset(rows, 99, sample_weight=weights * factor, random_state=3)
        assert (other.indices == known.indices).all()
        assert (other.weights == known.weights * factor).all()
    for factor in (2.0**-900, 2.0**900):
        other = lightweight_coreset(rows, 99, sample_weight=weights * factor, random_state=3)
        assert (other.indices == known.indices).all()
        np.testing.assert_allclose(other.weights, known.weights * factor)
    for factor in (1e-290, 1e-312, 5e-324):
        for use in (
            lambda w: lightweight_coreset(rows, 99, sample_weight=w, random_state=3),
            lambda w: StreamingCoreset(99, random_state=3).partial_fit(rows, sample_weight=w),
        ):
            with pytest.raises(ValueError, match=r"sample_weight must .* got weights that are too small"):
                use(weights * factor)
    repeated = np.repeat(rows, weights.astype(int), axis=0)
    q = coreset_reference.odds(rows, weights)
    np.testing.assert_allclose(
        coreset_reference.odds(repeated).sum()
        * np.bincount(
            np.repeat(np.arange(len(rows)), weights.astype(int)),
            weights=coreset_reference.odds(repeated),
            minlength=len(rows),
        ),
        q,
        atol=1e-12,
    )
    many = lightweight_coreset(repeated, 4000, random_state=0)
    heavy = lightweight_coreset(rows, 4000, sample_weight=weights, random_state=0)
    for c in (many, heavy):
        assert c.weights.sum() == pytest.approx(weights.sum(), rel=0.1)


def test_data_far_from_the_origin():
    X = np.random.default_rng(0).normal(size=(5000, 3))
    for offset in (1e6, -1e9):
        c = lightweight_coreset(X + offset, 50, random_state=0)
        q = coreset_reference.odds(X)
        np.testing.assert_allclose(c.weights, 1 / (50 * q[c.indices]), rtol=1e-4)


# ---------------------------------------------------------------- sources


# ---------------------------------------------------------------- for a number of clusters


def test_known_numbers_of_clusters_keep_rare_groups(rows, weights):
    rng = np.random.default_rng(7)
    many = rng.normal(size=(20_000, 3)).astype(np.float32)
    groups = rng.permutation(20_000)[:60].reshape(6, 10)
    for number, group in enumerate(groups):
        many[group] += np.float32([30.0 * (number + 1), 0, 9])
    ratios = []
    for seed in range(5):
        drawn = lightweight_coreset(many, 400, n_clusters=10, random_state=seed)
        assert len(drawn.indices) == 400
        assert drawn.weights.sum() == pytest.approx(20_000, rel=0.1)
        for group in groups:
            of_group = np.isin(drawn.indices, group)
            assert 5 < drawn.weights[of_group].sum() < 20
        model = shoal.KMeans(10, random_state=seed).fit(drawn)
        exact = shoal.KMeans(10, random_state=seed).fit(many)
        ratios.append(shoal.metrics.inertia(many, model.cluster_centers_) / exact.inertia_)
    # Single fits end in different optima, also on all rows.
    assert np.median(ratios) < 1.1
    # Rows of weight 0 are never drawn.
    drawn = lightweight_coreset(rows, 200, n_clusters=4, sample_weight=weights, random_state=0)
    assert (weights[drawn.indices] > 0).all()
    assert drawn.weights.sum() == pytest.approx(weights.sum(), rel=0.2)


def test_known_numbers_of_clusters_on_all_sources(rows, tmp_path):
    one = lightweight_coreset(rows, 150, n_clusters=5, random_state=3, n_jobs=1)
    np.save(tmp_path / "rows.npy", rows)
    for source in (tmp_path / "rows.npy", stream(rows, 317)):
        assert same(lightweight_coreset(source, 150, n_clusters=5, random_state=3, n_jobs=2), one)
    sparse = lightweight_coreset(scipy.sparse.csr_array(rows), 150, n_clusters=5, random_state=3)
    assert scipy.sparse.issparse(sparse.points)
    np.testing.assert_array_equal(sparse.indices, one.indices)
    directions = lightweight_coreset(rows, 150, n_clusters=5, metric="cosine", random_state=3)
    np.testing.assert_allclose(np.linalg.norm(directions.points, axis=1), 1.0)
    whole = lightweight_coreset(rows, len(rows), n_clusters=5)
    np.testing.assert_array_equal(whole.points, rows)
    for given, text in [
        ({"n_clusters": 0}, "n_clusters must be None or an integer of at least 1, got 0"),
        ({"n_clusters": len(rows) + 1}, "n_clusters must be at most the number of rows"),
    ]:
        with pytest.raises(ValueError, match=text):
            lightweight_coreset(rows, 150, **given)


def test_callbacks_cannot_discard_a_complete_coreset_of_a_known_number_of_clusters(rows):
    seen = []

    def stop(_, step):
        seen.append(step.rows_seen)
        return True

    drawn = lightweight_coreset(rows, 150, n_clusters=5, random_state=3, callbacks=[stop])
    # Four passes.
    assert seen == [4 * len(rows)]
    assert same(drawn, lightweight_coreset(rows, 150, n_clusters=5, random_state=3))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_threads_and_sources_do_not_change_the_draws(dtype, tmp_path):
    rng = np.random.default_rng(4)
    X = (rng.normal(size=(30_000, 5)) * 20 + 100).clip(0, 255).astype(dtype)
    w = rng.uniform(size=len(X))
    np.save(tmp_path / "rows.npy", X)
    for weight in (None, w):
        known = lightweight_coreset(X, 500, sample_weight=weight, random_state=1, n_jobs=1)
        assert known.points.dtype == (np.float64 if dtype == np.float64 else np.float32)
        assert (known.points == X[known.indices]).all()
        others = [X, tmp_path / "rows.npy", np.load(tmp_path / "rows.npy", mmap_mode="r"), X[::-1][::-1]]
        others += [stream(X, block) for block in (100, 8192, 9999, 30_000)]
        for other in others:
            found = lightweight_coreset(other, 500, sample_weight=weight, random_state=1, n_jobs=2)
            assert same(found, known)
    assert not same(lightweight_coreset(X, 500, random_state=2), lightweight_coreset(X, 500, random_state=1))


def test_two_passes_are_enough():
    X = np.random.default_rng(0).normal(size=(20_000, 3))
    passes = []

    def make():
        passes.append(1)
        return (X[i : i + 1000] for i in range(0, len(X), 1000))

    source = shoal.open(make)
    opened = len(passes)
    lightweight_coreset(source, 100, random_state=0)
    assert len(passes) - opened == 2


def test_sparse_rows_stay_sparse():
    X = scipy.sparse.random(4000, 30, density=0.1, format="csr", random_state=0)
    c = lightweight_coreset(X, 200, random_state=0)
    assert scipy.sparse.issparse(c.points)
    assert c.points.format == "csr"
    assert (c.points.toarray() == X[c.indices].toarray()).all()
    q = coreset_reference.odds(X.toarray())
    np.testing.assert_allclose(c.weights, 1 / (200 * q[c.indices]), rtol=1e-9)
    model = shoal.KMeans(4, random_state=0).fit(c.points, sample_weight=c.weights)
    assert model.counts_.sum() == pytest.approx(c.weights.sum())
    passing = streamed(X, 100, block=999).result()
    assert scipy.sparse.issparse(passing.points)
    assert (passing.points.toarray() == X[passing.indices].toarray()).all()
    assert same(streamed(X.toarray(), 100).result(), streamed(X.toarray(), 100, block=1000).result())


def test_at_most_n_samples_rows(rows, weights):
    for m in (len(rows), len(rows) + 1, 10**9):
        for X in (rows, stream(rows, 100)):
            c = lightweight_coreset(X, m, random_state=0)
            assert (c.points == rows).all()
            assert (c.weights == 1).all()
            assert (c.indices == np.arange(len(rows))).all()
        assert (lightweight_coreset(rows, m, sample_weight=weights).weights == weights).all()
    few = streamed(rows[:50], 60, sample_weight=weights[:50], block=7).result()
    assert (few.points == rows[:50]).all()
    assert (few.weights == weights[:50]).all()
    assert (few.indices == np.arange(50)).all()


def test_estimators_accept_coresets(rows):
    c = lightweight_coreset(rows, 400, random_state=0)
    for model in (
        shoal.KMeans(8, random_state=0),
        shoal.MiniBatchKMeans(8, batch_size=100, random_state=0),
        shoal.NestedMiniBatchKMeans(8, init="k-means++", batch_size=400, random_state=0),
    ):
        model.fit(c.points, sample_weight=c.weights)
        exact = shoal.KMeans(8, random_state=0).fit(rows)
        assert -model.score(rows) < 2 * exact.inertia_


def test_constant_rows():
    X = np.full((5000, 3), 7.25)
    for c in (lightweight_coreset(X, 20, random_state=0), streamed(X, 20).result()):
        assert (c.points == 7.25).all()
        assert c.weights.sum() == pytest.approx(5000)
        np.testing.assert_allclose(c.weights, 250)


# ---------------------------------------------------------------- streams


def test_batches_do_not_matter(rows, weights):
    known = streamed(rows, 40, block=len(rows), sample_weight=weights + 0.5)
    for block in (1, 64, 333):
        other = streamed(rows, 40, block=block, sample_weight=weights + 0.5)
        assert same(other.result(), known.result())
    whole = StreamingCoreset(40, random_state=0)
    assert same(whole.partial_fit(stream(rows, 100)).result(), streamed(rows, 40).result())
    assert same(
        StreamingCoreset(40, random_state=0, n_jobs=1).partial_fit(iter([rows])).result(),
        streamed(rows, 40).result(),
    )
    assert same(known.result(), known.result())
    assert (known.result().points == rows[known.result().indices]).all()


def test_memory_grows_logarithmically():
    made = StreamingCoreset(32, random_state=0)
    rng = np.random.default_rng(0)
    for _ in range(100):
        made.partial_fit(rng.normal(size=(1000, 2)))
        assert made.n_kept_ <= 32 * (2 + np.log2(made.n_rows_ / 32))
    assert made.n_rows_ == 100_000
    assert len(made.result().weights) == 32


def test_merging(rows):
    half = len(rows) // 2
    here, there = streamed(rows[:half], 150, seed=0), streamed(rows[half:], 150, seed=1)
    before = there.result()
    here.merge(there)
    assert same(there.result(), before)
    assert here.n_rows_ == len(rows)
    c = here.result()
    assert (c.points == rows[c.indices]).all()
    assert c.weights.sum() == pytest.approx(len(rows), rel=0.5)
    assert (c.indices >= half).any()
    assert (c.indices < half).any()
    empty = StreamingCoreset(150, random_state=5)
    assert same(empty.merge(there).result(), StreamingCoreset(150, random_state=5).merge(there).result())
    assert here.merge(StreamingCoreset(150)).n_rows_ == len(rows)
    with pytest.warns(UserWarning, match="drawn with the same random_state"):
        streamed(rows[:half], 150, seed=3).merge(
            pickle.loads(pickle.dumps(streamed(rows[half:], 150, seed=3)))
        )
    assert empty.partial_fit(rows).n_rows_ == len(rows) - half + len(rows)


def test_states_are_saved(rows, tmp_path):
    whole = streamed(rows, 30, block=len(rows))
    for X in (rows, scipy.sparse.csr_array(rows)):
        part = streamed(X[:777], 30)
        part.save(tmp_path / "part.safetensors")
        for again in (
            pickle.loads(pickle.dumps(part)),
            shoal.load(tmp_path / "part.safetensors"),
        ):
            assert same(again.result(), part.result())
            assert same(again.partial_fit(X[777:]).result(), streamed(X, 30).result())
    assert same(part.partial_fit(X[777:]).result(), streamed(X, 30).result())
    assert same(whole.result(), streamed(rows, 30).result())
    data = bytearray((tmp_path / "part.safetensors").read_bytes())
    at = data.index(b'\\"reduced\\":')
    data[at : at + 5] = b'\\"xxx'
    (tmp_path / "bad.safetensors").write_bytes(bytes(data))
    with pytest.raises(
        ValueError, match=r"bad\.safetensors: is damaged: .* must be a whole number of at least 0"
    ):
        shoal.load(tmp_path / "bad.safetensors")


def test_invalid_batches_change_nothing(rows):
    made = streamed(rows[:500], 30)
    known = made.result()
    bad = rows.copy()
    bad[700, 1] = np.nan
    cases = [
        (ValueError, "X must be finite, got NaN at row 700, column 1", lambda: made.partial_fit(bad)),
        (
            ValueError,
            "X has 3 features, but StreamingCoreset is expecting 2",
            lambda: made.partial_fit(np.ones((4, 3))),
        ),
        (ValueError, "overflow", lambda: made.partial_fit(rows * 1e155)),
        (
            ValueError,
            "sample_weight must .* got weights that are too large",
            lambda: made.partial_fit(rows, sample_weight=np.full(len(rows), 1e300)),
        ),
        (
            ValueError,
            "sample_weight must be above 0 for at least one row",
            lambda: made.partial_fit(rows, sample_weight=np.zeros(len(rows))),
        ),
        (ValueError, "columns", lambda: made.merge(streamed(np.ones((99, 3)), 30))),
        (
            ValueError,
            "n_samples must be 31, as in the coreset to merge with, got 30",
            lambda: made.merge(streamed(rows, 31)),
        ),
        (ValueError, "float32", lambda: made.merge(streamed(rows.astype(np.float32), 30))),
        (ValueError, "other must be another coreset", lambda: made.merge(made)),
        (TypeError, "other must be a StreamingCoreset", lambda: made.merge(rows)),
        (
            ValueError,
            "sample_weight must be None for a stream",
            lambda: made.partial_fit(stream(rows, 9), sample_weight=1.0),
        ),
    ]
    for error, text, use in cases:
        with pytest.raises(error, match=text):
            use()
        assert same(made.result(), known)
        assert made.n_rows_ == 500
    fresh = StreamingCoreset(30)
    with pytest.raises(ValueError, match="NaN"):
        fresh.partial_fit(bad)
    assert fresh.partial_fit(np.ones((4, 3))).n_features_in_ == 3


# ---------------------------------------------------------------- callbacks, interrupts, errors


def test_the_progress_of_a_coreset_for_clusters_is_told(rows):
    told = []

    class Heard(callbacks.Callback):
        def __call__(self, who, step):
            told.append((who, step.rows_seen))

        def working(self, who, phase, share, seconds):
            told.append((who, phase, share))

    def slow():
        for block in stream(rows, 100)():
            time.sleep(0.02)
            yield block

    drawn = lightweight_coreset(slow, 50, n_clusters=8, random_state=0, callbacks=[Heard()])
    assert same(drawn, lightweight_coreset(rows, 50, n_clusters=8, random_state=0))
    assert [one[0] for one in told] == [None] * len(told)
    assert [len(one) for one in told] == [3] * (len(told) - 1) + [2]
    shares = [share for _, phase, share in told[:-1] if phase == "coreset" and share is not None]
    assert len(shares) > 2
    assert shares == sorted(shares)
    assert 0 <= shares[0] < shares[-1] <= 1


def test_callbacks_get_rows(rows, capsys):
    steps = []
    X = np.tile(rows, (3, 1))
    lightweight_coreset(
        X, 50, callbacks=[lambda who, step: steps.append((who, step.batch_size))], progress=True
    )
    assert steps == [(None, len(X)), (None, len(X))]
    shown = capsys.readouterr().err
    assert f"lightweight_coreset: {6 * len(rows)} of {6 * len(rows)} rows, " in shown
    assert "nan" not in shown
    made, seen = (
        StreamingCoreset(50, callbacks=[callbacks.LogSteps(), lambda who, step: seen.append(step.rows_seen)]),
        [],
    )
    made.partial_fit(stream(rows, 500))
    assert seen == [500, 1000, 1500, 1580]
    with pytest.raises(RuntimeError, match="a callback ended"):
        lightweight_coreset(X, 50, callbacks=[lambda who, step: True])
    made = StreamingCoreset(50, callbacks=[lambda who, step: step.iteration == 2]).partial_fit(
        stream(rows, 500)
    )
    assert made.n_rows_ == 1000


@pytest.mark.parametrize(
    "watcher",
    [
        callbacks.Checkpoint("run.safetensors"),
        callbacks.ValidationCurve(np.ones((3, 2))),
        callbacks.EarlyStopping(np.ones((3, 2))),
    ],
    ids=lambda watcher: type(watcher).__name__,
)
def test_callbacks_of_fits_are_refused(rows, watcher):
    fresh = StreamingCoreset(50, callbacks=iter([watcher]))
    for use in (lambda: lightweight_coreset(rows, 50, callbacks=[watcher]), lambda: fresh.partial_fit(rows)):
        with pytest.raises(ValueError, match=f"{type(watcher).__name__} does not go with a coreset"):
            use()
    assert not hasattr(fresh, "n_rows_")
    seen = []
    lightweight_coreset(rows, 50, callbacks=(cb for cb in [lambda who, step: seen.append(step.batch_size)]))
    assert sum(seen) == 2 * len(rows)
    with pytest.raises(ValueError, match="callbacks must be callables, got 3"):
        lightweight_coreset(rows, 50, callbacks=iter([3]))


def test_files_are_read_in_parts(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(coreset, "STEP_BYTES", 500 * 16)
    np.save(tmp_path / "rows.npy", rows)
    known = streamed(rows, 40).result()
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    for X in (tmp_path / "rows.npy", mapped, shoal.open(tmp_path / "rows.npy"), shoal.open(mapped)):
        seen = []
        made = StreamingCoreset(
            40, random_state=0, callbacks=[lambda who, step, seen=seen: seen.append(step.rows_seen)]
        )
        assert same(made.partial_fit(X).result(), known)
        assert seen == [500, 1000, 1500, 1580]
    # Weights belong to all rows of the file.
    weights = np.arange(len(rows)) % 3.0
    heavy = StreamingCoreset(40, random_state=0).partial_fit(tmp_path / "rows.npy", sample_weight=weights)
    assert same(heavy.result(), streamed(rows, 40, sample_weight=weights).result())
    bad = rows.copy()
    bad[700, 1] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    made = StreamingCoreset(40, random_state=0)
    with pytest.raises(
        ValueError, match="block of X from row 500 on: X must be finite, got NaN at row 200, column 1"
    ):
        made.partial_fit(tmp_path / "bad.npy")
    assert made.n_rows_ == 500


@pytest.mark.parametrize("number", [1, 2])
def test_an_interrupt_leaves_no_coreset_and_an_unchanged_stream(rows, number):
    passes = 0

    def broken():
        nonlocal passes
        passes += 1
        mine = passes
        for start in range(0, len(rows), 200):
            if mine == number + opened and start == 600:
                raise KeyboardInterrupt
            yield rows[start : start + 200]

    opened = len(rows)
    source = shoal.open(broken)
    opened = passes
    with pytest.raises(KeyboardInterrupt):
        lightweight_coreset(source, 60, random_state=0)
    opened = len(rows)
    assert same(
        lightweight_coreset(source, 60, random_state=0), lightweight_coreset(rows, 60, random_state=0)
    )
    made = StreamingCoreset(60, random_state=0)
    opened = passes + 1 - number
    with pytest.raises(KeyboardInterrupt):
        made.partial_fit(broken())
    assert made.n_rows_ in (400, 600)
    assert same(made.partial_fit(rows[made.n_rows_ :]).result(), streamed(rows, 60).result())


def test_files(rows, tmp_path):
    for X in (rows, scipy.sparse.csr_array(rows.astype(np.float32))):
        c = lightweight_coreset(X, 40, random_state=0)
        c.save(tmp_path / "c.npz")
        again = Coreset.load(tmp_path / "c.npz")
        assert same(again, c)
        assert scipy.sparse.issparse(again.points) == scipy.sparse.issparse(c.points)
        assert same(pickle.loads(pickle.dumps(c)), c)
    np.savez(tmp_path / "other.npz", points=rows, weights=rows)
    (tmp_path / "none.npz").write_bytes(b"PK nothing")
    for name in ("other.npz", "none.npz"):
        with pytest.raises(ValueError, match="holds no coreset"):
            Coreset.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        c.save(tmp_path / "no" / "c.npz")


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (
            lambda X: lightweight_coreset(X, 0, n_jobs=0),
            "n_samples must be an integer of at least 1, got 0; n_jobs",
        ),
        (lambda X: lightweight_coreset(X, 2.5), "n_samples must be an integer of at least 1, got 2.5"),
        (
            lambda X: lightweight_coreset(X, 9, callbacks=3),
            "callbacks must be None or a list of callables, got 3",
        ),
        (
            lambda X: lightweight_coreset(X, 9, sample_weight=np.zeros(50)),
            "sample_weight must be above 0 for at least one row",
        ),
        (
            lambda X: lightweight_coreset(X, 9, sample_weight=np.full(50, 1e308)),
            "sample_weight must .* got weights that are too large",
        ),
        (lambda X: lightweight_coreset(X * 1e160, 9), "so large that squared distances overflow"),
        (lambda X: lightweight_coreset(X * [np.inf, 1], 9), "X must be finite, got -?inf at row 0, column 0"),
        (lambda X: lightweight_coreset(X * [1, np.nan], 99), "X must be finite, got NaN at row 0, column 1"),
        (lambda X: lightweight_coreset(iter([X]), 9), "lightweight_coreset reads its rows more than once"),
        (lambda X: StreamingCoreset(0).partial_fit(X), "n_samples must be an integer of at least 1, got 0"),
        (
            lambda X: StreamingCoreset(5).partial_fit(X).set_params(n_samples=6).partial_fit(X),
            "n_samples must stay at .* got 6",
        ),
        (lambda X: StreamingCoreset(5).result(), "no rows yet. Call partial_fit"),
    ],
)
def test_errors(use, text):
    with pytest.raises(ValueError, match=text):
        use(np.random.default_rng(0).normal(size=(50, 2)))


# ---------------------------------------------------------------- command line


def test_command_line(rows, tmp_path, capsys):
    np.save(tmp_path / "rows.npy", rows)
    data = str(tmp_path / "rows.npy")
    assert (
        cli.main(
            ["coreset", data, "-m", "60", "-o", str(tmp_path / "c.npz"), "--seed", "3", "--json", "--quiet"]
        )
        == 0
    )
    told = json.load(io.StringIO(capsys.readouterr().out))
    assert (told["samples"], told["rows"]) == (60, len(rows))
    assert same(Coreset.load(tmp_path / "c.npz"), lightweight_coreset(rows, 60, random_state=3))
    for method, centers in (
        ("afk-mc2", shoal.afkmc2(rows, 12, chain_length=30, random_state=0)),
        ("k-means||", shoal.kmeans_parallel(rows, 12, random_state=0)),
        ("k-means++", shoal.kmeans_plusplus(rows, 12, random_state=0)),
    ):
        more = ["--chain-length", "30"] if method == "afk-mc2" else []
        out, indices = str(tmp_path / "centers.npy"), str(tmp_path / "indices.npy")
        args = [
            "seed",
            data,
            "-k",
            "12",
            "-o",
            out,
            "--indices",
            indices,
            "--method",
            method,
            "--json",
            *more,
        ]
        assert cli.main(args) == 0
        assert json.load(io.StringIO(capsys.readouterr().out))["distances"] > 0
        assert (np.load(out) == centers[0]).all()
        assert (np.load(indices) == centers[1]).all()
    model = str(tmp_path / "m.safetensors")
    assert cli.main(["fit", data, "-k", "5", "--init", "afk-mc2", "-o", model, "--quiet"]) == 0
    assert shoal.load(model).init_ == "afk-mc2"
    capsys.readouterr()
    assert cli.main(["coreset", data, "-m", "0", "-o", str(tmp_path / "d.npz"), "--quiet"]) == 2
    assert "-m must be an integer of at least 1" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["seed", data, "-k", "5", "-o", out, "--method", "random", "--chain-length", "5"])
