"""Mini-batch k-means: compared with a reference, the rules of a fit, and its seedings."""

import warnings

import minibatch_reference
import numpy as np
import pytest
import reference
import scipy.sparse
import shoal
import sklearn.cluster
from generated import blobs, tight_blobs
from minibatch_parts import PURE, cut, same
from scipy.sparse import csr_array
from shoal import BackwardEulerKMeans, MiniBatchKMeans, NestedMiniBatchKMeans
from shoal._rows.arrays import some_rows
from sklearn.exceptions import ConvergenceWarning

# ---------------------------------------------------------------- against the reference


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("n", "d", "k", "lengths"),
    [
        (600, 3, 5, [50]),
        (500, 1, 4, [7, 1, 100]),
        (400, 20, 1, [64]),
        (700, 40, 70, [300, 5]),
        (90, 2, 6, [1]),
        (5000, 4, 3, [2500]),
    ],
)
def test_partial_fit_is_sculley_s_algorithm(n, d, k, lengths, weighted, dtype):
    X = tight_blobs(n, d, k, dtype=dtype)
    weights = np.random.default_rng(1).integers(0, 4, size=n).astype(float) + 0.25 if weighted else None
    slow = minibatch_reference.Sculley(X[:k], dtype=dtype)
    fast = MiniBatchKMeans(k, init=X[:k], **PURE)
    at = 0
    for batch in cut(X, lengths):
        some = None if weights is None else weights[at : at + len(batch)]
        at += len(batch)
        slow.step(batch, some)
        fast.partial_fit(batch, sample_weight=some)
        assert fast.cluster_centers_.dtype == dtype
    assert slow.least_gap > 1e-9, "the course must be determined"
    np.testing.assert_allclose(fast.counts_, slow.counts, rtol=1e-12)
    close = 3e-6 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(fast.cluster_centers_, slow.centers, rtol=close, atol=close)
    assert fast.n_steps_ == len(cut(X, lengths))


def test_batches_of_one_row_are_online_gradient_descent():
    X = tight_blobs(300, 3, 4)
    centers, counts = minibatch_reference.online(X, X[:4])
    model = MiniBatchKMeans(4, init=X[:4], **PURE)
    for row in X:
        model.partial_fit(row[None])
    assert (model.counts_ == counts).all()
    np.testing.assert_allclose(model.cluster_centers_, centers, rtol=1e-10)


def test_a_whole_batch_is_labeled_before_centers_move():
    # Row by row, the second row would go to the center that the first row moved.
    model = MiniBatchKMeans(2, init=[[0.0], [10.0]], **PURE).partial_fit([[4.9], [5.1]])
    assert model.counts_.tolist() == [2, 2]
    assert model.cluster_centers_.ravel().tolist() == [2.45, 7.55]


def test_ties_go_to_the_lower_index_and_centers_without_rows_stay():
    model = MiniBatchKMeans(3, init=[[0.0], [2.0], [50.0]], **PURE).partial_fit([[1.0], [1.0]])
    assert model.counts_.tolist() == [3, 1, 1]
    assert model.cluster_centers_.ravel().tolist() == [2 / 3, 2.0, 50.0]


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_scaled_and_shifted_rows_give_scaled_and_shifted_centers(scale, offset):
    X = tight_blobs(400, 3, 4)
    moved = (X + offset) * scale
    slow = minibatch_reference.Sculley(moved[:4])
    fast = MiniBatchKMeans(4, init=moved[:4], **PURE)
    for batch in cut(moved, [100]):
        slow.step(batch)
        fast.partial_fit(batch)
    np.testing.assert_allclose(fast.cluster_centers_, slow.centers, rtol=1e-9)


def test_the_history_describes_the_batches():
    X = tight_blobs(1000, 3, 5)
    model = MiniBatchKMeans(5, batch_size=100, max_iter=2, random_state=3, **PURE)
    steps = list(model.iter_fit(X))
    history = model.history_
    assert len(history) == len(steps) == model.n_steps_ == 20
    assert (history["batch_size"] == 100).all()
    assert (history["rows_seen"] == np.arange(1, 21) * 100).all()
    assert (history["n_distances"] == 500).all()
    assert (history["iteration"] == np.arange(1, 21)).all()
    assert history["stop_reason"].tolist() == [""] * 19 + ["max-iter"]
    assert model.stop_reason_ == "max-iter"
    assert model.n_iter_ == 2
    assert model.counts_.sum() == 2000 + 5


def test_the_objective_of_a_step_uses_the_centers_before_it():
    # Rows are zeros and ones, so the center tells how many of each were drawn.
    zeros_and_ones = np.arange(200.0)[:, None] % 2
    model = MiniBatchKMeans(1, init=[[0.25]], batch_size=50, random_state=0, **PURE)
    step = next(model.iter_fit(zeros_and_ones))
    ones = round(model.cluster_centers_[0, 0] * 51 - 0.25)
    assert 0 < ones < 50
    assert step.objective == pytest.approx(ones * 0.75**2 + (50 - ones) * 0.25**2, rel=1e-12)
    X = tight_blobs(200, 3, 4)
    slow = minibatch_reference.Sculley(X[:4])
    rows = np.repeat([[1.0, 2.0, 3.0]], 30, axis=0)
    one = MiniBatchKMeans(4, init=X[:4], batch_size=30, **PURE)
    step = next(one.iter_fit(rows))
    inertia, shift = slow.step(rows)
    assert step.objective == pytest.approx(inertia, rel=1e-12)
    assert step.center_shift == pytest.approx(shift, rel=1e-12)


# ---------------------------------------------------------------- fit


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_labels_inertia_and_centers_are_consistent(dtype):
    X = tight_blobs(3000, 4, 6, dtype=dtype)
    weights = np.random.default_rng(0).random(3000)
    model = MiniBatchKMeans(6, random_state=0, batch_size=200).fit(X, sample_weight=weights)
    labels, _, gap = reference.nearest(X, model.cluster_centers_)
    clear = gap > 1e-5
    assert (model.labels_[clear] == labels[clear]).all()
    assert (model.labels_ == model.predict(X)).all()
    expected = reference.inertia(X, model.cluster_centers_, model.labels_, weights)
    assert model.inertia_ == pytest.approx(expected, rel=1e-12)
    assert model.score(X, sample_weight=weights) == -model.inertia_


def test_it_finds_separate_clusters():
    X = tight_blobs(20_000, 4, 8, 1)
    best = shoal.KMeans(8, random_state=0, n_init=5).fit(X).inertia_
    model = MiniBatchKMeans(8, random_state=0).fit(X)
    assert model.inertia_ < 1.05 * best
    assert model.n_steps_ < 200, "early stopping"


def test_fit_is_iter_fit_and_starts_afresh():
    X = tight_blobs(2000, 3, 5)
    one = MiniBatchKMeans(5, random_state=0, batch_size=100).fit(X)
    other = MiniBatchKMeans(5, random_state=0, batch_size=100).partial_fit(X[:50] + 9)
    for _ in other.iter_fit(X):
        assert other.cluster_centers_.shape == (5, 3)
    assert same(one, other)
    assert (one.labels_ == other.labels_).all()
    assert same(one, one.fit(X))


def test_a_loop_left_early_leaves_a_usable_estimator():
    X = tight_blobs(2000, 3, 5)
    model = MiniBatchKMeans(5, random_state=0, batch_size=100)
    for step in model.iter_fit(X):
        if step.iteration == 3:
            break
    assert model.n_steps_ == 3
    assert (model.labels_ == model.predict(X)).all()
    before = model.counts_.sum()
    model.partial_fit(X[:70])
    assert model.n_steps_ == 4
    assert model.counts_.sum() == before + 70
    assert (model.labels_ == model.predict(X[:70])).all(), "those of the batch"


def test_partial_fit_within_the_loop_ends_it():
    X = tight_blobs(2000, 3, 5)
    within, after = (MiniBatchKMeans(5, random_state=0, batch_size=100, **PURE) for _ in range(2))
    for step in within.iter_fit(X):
        if step.iteration == 3:
            within.partial_fit(X[:70])
    for step in after.iter_fit(X):
        if step.iteration == 3:
            break
    after.partial_fit(X[:70])
    assert same(within, after)
    assert within.n_steps_ == 4
    assert same(within.partial_fit(X), after.partial_fit(X)), "there is one course"


def test_a_fit_within_the_loop_ends_it():
    X = tight_blobs(2000, 3, 5)
    model = MiniBatchKMeans(5, random_state=0, batch_size=100)
    whole = MiniBatchKMeans(5, random_state=0, batch_size=100).fit(X[:1000])
    steps = []
    for step in model.iter_fit(X):
        steps.append(step)
        model.fit(X[:1000])
    assert len(steps) == 1
    assert same(model, whole)
    assert (model.labels_ == whole.labels_).all()
    watched = MiniBatchKMeans(5, random_state=0, batch_size=100)

    def learn_more(estimator, step):
        # Without callbacks, of which this is one.
        estimator.set_params(callbacks=None).partial_fit(X[:70])

    watched.set_params(callbacks=[learn_more]).fit(X)
    assert watched.n_steps_ == 2


def test_a_batch_has_at_most_all_rows():
    X = tight_blobs(300, 3, 5)
    model = MiniBatchKMeans(5, batch_size=10**9, max_iter=4, random_state=0, **PURE).fit(X)
    assert (model.history_["batch_size"] == 300).all()
    assert model.n_steps_ == 4


def test_rows_are_drawn_uniformly_with_replacement():
    X = np.arange(50.0)[:, None]
    # With one cluster, the center is the mean of the initial center and all drawn rows.
    model = MiniBatchKMeans(1, init=[[0.0]], batch_size=50, max_iter=2000, random_state=0, **PURE).fit(X)
    assert model.counts_[0] == 100_001
    assert model.cluster_centers_[0, 0] == pytest.approx(24.5, abs=0.2)


def test_rows_are_drawn_by_weight():
    X = np.arange(200.0)[:, None]
    weights = np.zeros(200)
    weights[[3, 70, 199]] = [1.0, 2.0, 5.0]
    given = {"init": [[0.0]], "batch_size": 200, "max_iter": 500, "random_state": 0, **PURE}
    model = MiniBatchKMeans(1, **given).fit(X, sample_weight=weights)
    assert model.counts_[0] == 100_001, "a drawn row counts 1"
    mean = (3 * 1 + 70 * 2 + 199 * 5) / 8
    assert model.cluster_centers_[0, 0] == pytest.approx(mean, rel=0.01)
    again = MiniBatchKMeans(1, **given).fit(X, sample_weight=1024 * weights)
    assert same(model, again), "the unit of weights does not matter"


def test_compute_labels():
    X = tight_blobs(500, 3, 4)
    with_labels = MiniBatchKMeans(4, random_state=0).fit(X)
    without = MiniBatchKMeans(4, random_state=0, compute_labels=False).fit(X)
    assert same(with_labels, without)
    with pytest.raises(AttributeError, match="Use predict"):
        _ = without.labels_
    with pytest.raises(AttributeError, match="Use predict"):
        _ = without.inertia_
    assert (without.fit_predict(X) == with_labels.labels_).all()


# ---------------------------------------------------------------- stopping


def test_early_stopping():
    X = tight_blobs(5000, 3, 5)
    given = {"random_state": 0, "batch_size": 100}
    patient = MiniBatchKMeans(5, max_no_improvement=20, **given).fit(X)
    hasty = MiniBatchKMeans(5, max_no_improvement=2, **given).fit(X)
    assert patient.stop_reason_ == hasty.stop_reason_ == "patience"
    assert hasty.n_steps_ < patient.n_steps_ < 5000
    tolerant = MiniBatchKMeans(5, max_no_improvement=None, tol=1e-3, **given).fit(X)
    assert tolerant.stop_reason_ == "tolerance"
    strict = MiniBatchKMeans(5, max_no_improvement=None, tol=1e-5, **given).fit(X)
    assert strict.n_steps_ > tolerant.n_steps_


@pytest.mark.parametrize(("n", "batch_size"), [(100, 20), (30_000, 256)])
def test_the_tolerance_stops_by_the_documented_rule(n, batch_size):
    X = tight_blobs(n, 2, 3)
    given = {"init": X[:3], "batch_size": batch_size, "max_iter": 20, "max_no_improvement": None}
    steps, theirs = [], []
    for seed in range(10):
        model = MiniBatchKMeans(3, tol=1e-4, random_state=seed, **given).fit(X)
        assert model.stop_reason_ == "tolerance"
        steps.append(model.n_steps_)
        # The same draws, without the rule. The first batch does not count.
        more = MiniBatchKMeans(3, tol=0.0, random_state=seed, **given).fit(X).history_
        shifts = more["center_shift"][1 : steps[-1]] ** 2
        # The variance is that of the first batch.
        assert shifts[-1] <= 1.5e-4 * X.var(axis=0).mean()
        assert (shifts[:-1] > 0.5e-4 * X.var(axis=0).mean()).all()
        other = sklearn.cluster.MiniBatchKMeans(3, tol=1e-4, random_state=seed, n_init=1, **given).fit(X)
        theirs.append(other.n_steps_)
    # Both libraries draw other batches.
    assert np.median(theirs) / 2 < np.median(steps) < 2 * np.median(theirs)


def test_the_smoothed_inertia_stops_by_the_documented_rule():
    X = tight_blobs(3000, 3, 5)
    model = MiniBatchKMeans(5, random_state=1, batch_size=200, max_no_improvement=4).fit(X)
    inertia = model.history_["objective"] / 200
    average = lowest = None
    waited, stops = 0, []
    share = 2 * 200 / 3001
    for batch, value in enumerate(inertia[1:], start=2):
        average = value if average is None else average * (1 - share) + value * share
        if lowest is None or average < lowest:
            lowest, waited = average, 0
        else:
            waited += 1
        stops.append(waited >= 4 and 200 * batch >= 3000)
    assert stops == [False] * (len(stops) - 1) + [True]


def test_rare_rows_end_no_fit_before_all_rows_had_a_chance():
    # A far row in the second batch or later raises the smoothed inertia for a long time.
    X = blobs(20_000, 2, 5)
    X[::4001] += 1e4
    for seed in range(5):
        model = MiniBatchKMeans(5, random_state=seed, batch_size=100).fit(X)
        assert model.stop_reason_ in ("patience", "max-iter")
        assert 100 * model.n_steps_ >= len(X)


# ---------------------------------------------------------------- starving centers


def test_starving_centers_are_reassigned_to_rows_of_the_batch():
    X = blobs(1000, 2, 3, apart=3.0, width=0.1)
    init = np.vstack([X[:2], [[1e3, 1e3]]])
    pure = MiniBatchKMeans(3, init=init, reassignment_ratio=0.0).partial_fit(X)
    assert pure.cluster_centers_[2].tolist() == [1e3, 1e3]
    model = MiniBatchKMeans(3, init=init, reassignment_ratio=0.01, random_state=0).partial_fit(X)
    assert (model.cluster_centers_[2] == X).all(axis=1).any()
    assert model.counts_[2] == min(pure.counts_[:2]), "enough not to starve at once"
    np.testing.assert_array_equal(model.counts_[:2], pure.counts_[:2])


def test_at_most_half_of_a_batch_is_reassigned():
    X = tight_blobs(100, 2, 3)
    init = np.vstack([X[:1], 1e3 + np.arange(18.0).reshape(9, 2)])
    model = MiniBatchKMeans(10, init=init, reassignment_ratio=1.0, random_state=0)
    # Too few rows for the first check.
    model.partial_fit(X[:99])
    assert (model.cluster_centers_[1:] >= 1e3).all()
    model.partial_fit(X[99:])
    # Half of a batch of one row is no row.
    assert (model.cluster_centers_[1:] >= 1e3).all()
    model.partial_fit(X[:100])
    assert (model.cluster_centers_ < 1e3).all()


def test_rows_without_weight_do_not_become_centers():
    X = tight_blobs(200, 2, 3)
    weights = np.r_[np.ones(4), np.zeros(196)]
    init = np.vstack([X[:1], 1e3 + np.arange(18.0).reshape(9, 2)])
    for seed in range(20):
        model = MiniBatchKMeans(10, init=init, reassignment_ratio=1.0, random_state=seed)
        model.partial_fit(X, sample_weight=weights)
        new = [c for c in model.cluster_centers_[1:] if (c < 1e3).all()]
        assert all((X[:4] == c).all(axis=1).any() for c in new)
        assert new


def test_fewer_distinct_rows_than_clusters():
    X = np.repeat([[0.0, 0.0], [5.0, 5.0]], 40, axis=0)
    with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(2\)"):
        model = MiniBatchKMeans(4, random_state=0).fit(X)
    assert sorted(model.counts_ > 0) == [False, False, True, True]
    assert model.inertia_ == 0
    assert np.isfinite(model.cluster_centers_).all()


# ---------------------------------------------------------------- forgetting


def test_half_life_fades_older_rows():
    rng = np.random.default_rng(0)
    batches = [rng.normal(size=(n, 2)) for n in (30, 7, 100, 1, 55)]
    half_life = 40.0
    model = MiniBatchKMeans(1, init=[[9.0, 9.0]], half_life=half_life, **PURE)
    for batch in batches:
        model.partial_fit(batch)
    # The definition: a row counts one half for every `half_life` rows in later batches.
    after = np.cumsum([len(batch) for batch in batches][::-1])[::-1] - [len(batch) for batch in batches]
    share = 0.5 ** (after / half_life)
    first = 0.5 ** (sum(map(len, batches)) / half_life)
    count = first + sum(s * len(batch) for s, batch in zip(share, batches, strict=True))
    total = first * np.array([9.0, 9.0])
    total = total + sum(s * batch.sum(axis=0) for s, batch in zip(share, batches, strict=True))
    assert model.counts_[0] == pytest.approx(count, rel=1e-12)
    np.testing.assert_allclose(model.cluster_centers_[0], total / count, rtol=1e-12)


def test_half_life_against_the_reference_with_clusters():
    X = tight_blobs(900, 3, 5)
    slow = minibatch_reference.Sculley(X[:5], half_life=130.0)
    fast = MiniBatchKMeans(5, init=X[:5], half_life=130, **PURE)
    for batch in cut(X, [40, 90]):
        slow.step(batch)
        fast.partial_fit(batch)
    np.testing.assert_allclose(fast.cluster_centers_, slow.centers, rtol=1e-11)
    np.testing.assert_allclose(fast.counts_, slow.counts, rtol=1e-11)


def test_a_drifting_stream_is_followed_without_underflow():
    model = MiniBatchKMeans(2, init=[[0.0], [1e6]], half_life=1.0, **PURE)
    for t in range(3000):
        model.partial_fit(np.full((5, 1), t / 100))
    assert model.cluster_centers_[0, 0] == pytest.approx(29.99, abs=0.01)
    # The count of the center has underflowed. The center keeps its place and gets rows again.
    assert model.cluster_centers_[1, 0] == 1e6
    model.partial_fit([[1e6 + 2]])
    assert model.cluster_centers_[1, 0] == 1e6 + 2


def test_init_by_a_callable():
    X = tight_blobs(1000, 3, 4)
    asked = []

    def first(rows, n_clusters, random_state):
        asked.append(rows.shape)
        return rows[:n_clusters]

    model = MiniBatchKMeans(4, init=first, n_init=1, random_state=0).fit(X)
    assert asked == [(1000, 3)]
    assert model.init_ == "callable"
    stream = MiniBatchKMeans(4, init=first, **PURE).partial_fit(X[:100]).partial_fit(X[100:])
    assert asked == [(1000, 3), (100, 3)]
    given = MiniBatchKMeans(4, init=X[:4], **PURE).partial_fit(X[:100]).partial_fit(X[100:])
    assert same(stream, given)


def test_seeding_looks_at_all_rows():
    X = tight_blobs(100_000, 2, 4, dtype=np.float32)
    model = MiniBatchKMeans(4, random_state=0).fit(X)
    assert model.init_ == "k-means||"
    assert MiniBatchKMeans(4, random_state=0).fit(X[:3072]).init_ == "k-means++"
    sampled = MiniBatchKMeans(4, init_size=500, random_state=0).fit(X)
    assert sampled.init_ == "k-means++ on 500 sampled rows"
    # A stream that can be read only once.
    assert MiniBatchKMeans(4, random_state=0).partial_fit(X).init_ == "k-means||"
    # A stream that can be read again.
    blocks = MiniBatchKMeans(4, random_state=0).fit(lambda: iter(np.split(X, 10)))
    assert blocks.init_ == "k-means||"


def rare_groups(n=60_000, rare=12, size=15):
    """Return rows of which most lie in one cloud, and some in rare groups far away; and the groups."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    groups = rng.permutation(n)[: rare * size].reshape(rare, size)
    for number, rows in enumerate(groups):
        X[rows] += np.float32([40.0 * (number % 4 + 1), 40.0 * (number // 4), 90.0])
    return X, groups


def test_a_given_center_of_a_rare_group_stays_while_weights_fade():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2)) + 5 * rng.integers(0, 2, size=(20_000, 1))
    # Between two of these rows, the weight of their center falls below 1.
    X[::3400] = 1000
    given = np.array([[0.0, 0], [5, 5], [1000, 1000]])
    model = MiniBatchKMeans(3, init=given, half_life=2000, batch_size=500, max_iter=3, random_state=0).fit(X)
    assert (model.cluster_centers_ > 900).all(axis=1).any()


@pytest.mark.parametrize("made", [MiniBatchKMeans, BackwardEulerKMeans, NestedMiniBatchKMeans])
def test_rare_groups_keep_their_centers(made):
    X, groups = rare_groups()
    for seed in range(3):
        model = made(30, random_state=seed).fit(X)
        # Each group has a cluster of its own, or several.
        for rows in groups:
            own = np.unique(model.labels_[rows])
            assert np.isin(model.labels_, own).sum() == len(rows)
    # Restarts by counts alone lose them.
    counts = np.bincount(model.labels_)
    assert (counts[counts > 0] < 0.01 * counts.max()).sum() >= len(groups)


@pytest.mark.parametrize("made", [MiniBatchKMeans, NestedMiniBatchKMeans])
def test_each_of_many_equal_groups_gets_a_center(made):
    X = tight_blobs(60_000, 8, 100).astype(np.float32)
    ends = [made(100, random_state=seed).fit(X).inertia_ for seed in range(3)]
    # Without a center of its own, each group would add a hundredth of the squared distances between groups.
    assert np.mean(ends) < 1.3 * shoal.KMeans(100, random_state=0).fit(X).inertia_


def test_usual_fits_do_not_warn():
    # A warning is raised as an error.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MiniBatchKMeans(4, random_state=0).fit(tight_blobs(500, 3, 4))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_starts_of_a_callable_are_compared_with_weights(kind):
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(100, 2)), rng.normal(size=(9900, 2)) + 100]).astype("f4")
    weights = np.r_[np.ones(100), np.zeros(9900)]
    # The first start suits the rows with weight, the second one all others.
    starts = [[[0, 0], [1, 1]], [[100, 100], [101, 101]]]

    def choose(X, k, random_state):
        return np.array(given.pop(0), dtype="f4")

    for order in (1, -1):
        given = starts[::order]
        X = csr_array(rows) if kind == "sparse" else rows
        model = MiniBatchKMeans(2, init=choose, n_init=2, max_iter=1, random_state=0, reassignment_ratio=0)
        assert (model.fit(X, sample_weight=weights).cluster_centers_ < 50).all()


def test_the_sample_for_comparing_starts_stays_sparse():
    X = scipy.sparse.random(50_000, 40, density=0.05, format="csr", random_state=0)
    picked = np.array([0, 5, 16_383, 16_384, 49_999])
    some = some_rows(shoal.open(X)._source, picked)
    assert some.sparse
    np.testing.assert_array_equal(some.take(np.arange(5)), X[picked].toarray())
