"""Seeding with AFK-MC2, K-MC2 and k-means||."""

import itertools

import coreset_reference
import numpy as np
import pytest
import reference
import scipy.sparse
import scipy.stats
import shoal
from generated import groups
from shoal import KMeans, _core
from sklearn.base import clone

WAYS = {
    "afk-mc2": lambda X, k, **more: shoal.afkmc2(X, k, **({"chain_length": 20} | more)),
    "k-mc2": lambda X, k, **more: shoal.afkmc2(X, k, adaptive=False, **({"chain_length": 20} | more)),
    "k-means||": shoal.kmeans_parallel,
}
way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@pytest.fixture(scope="module")
def rows():
    return groups(200)


def counted(X, k, name, chain=None, oversampling=None, rounds=None, **more):
    given = {"options": (chain, oversampling, rounds), "seed": 0, "weights": None, "threads": 2}
    return _core.first_centers(shoal.open(X)._source, n_clusters=k, seeding=name, **(given | more))


# ---------------------------------------------------------------- distributions

LINE = np.array([[0.0], [1.0], [1.5], [4.0], [9.0]])
HEAVY = np.array([1.0, 3.0, 0.5, 2.0, 1.0])


@pytest.mark.parametrize(
    ("chain", "adaptive", "weights"),
    [
        (1, True, None),
        (1, True, HEAVY),
        (2, True, HEAVY),
        (3, True, None),
        (5, False, HEAVY),
        (2, False, None),
    ],
)
def test_chains_have_the_distribution_of_the_paper(chain, adaptive, weights):
    triples = list(itertools.permutations(range(5), 3))
    first = np.ones(5) / 5 if weights is None else weights / weights.sum()
    law = []
    for one, two, three in triples:
        second = coreset_reference.chain_law(LINE, weights, [one], chain, adaptive=adaptive)
        third = coreset_reference.chain_law(LINE, weights, [one, two], chain, adaptive=adaptive)
        law.append(first[one] * second[two] * third[three])
    assert sum(law) == pytest.approx(1)
    draws = 6000
    seen = dict.fromkeys(triples, 0)
    for seed in range(draws):
        found = shoal.afkmc2(
            LINE, 3, chain_length=chain, adaptive=adaptive, sample_weight=weights, random_state=seed
        )[1]
        seen[tuple(found.tolist())] += 1
    assert scipy.stats.chisquare(list(seen.values()), np.array(law) * draws).pvalue > 1e-3


@pytest.mark.parametrize("weights", [None, HEAVY])
def test_long_chains_draw_by_squared_distance(weights):
    w = np.ones(5) if weights is None else weights
    seen, expected = np.zeros((5, 5)), np.zeros((5, 5))
    draws = 6000
    for seed in range(draws):
        one, two = shoal.afkmc2(LINE, 2, chain_length=300, sample_weight=weights, random_state=seed)[1]
        seen[one, two] += 1
    for one in range(5):
        d = w * ((LINE - LINE[one]) ** 2)[:, 0]
        expected[one] = draws * w[one] / w.sum() * d / d.sum()
    drawn = expected > 0
    assert (seen[~drawn] == 0).all()
    assert scipy.stats.chisquare(seen[drawn], expected[drawn]).pvalue > 1e-3


def test_a_weight_counts_as_repeated_rows():
    weights = np.array([1, 3, 2, 1, 2])
    repeated = np.repeat(LINE, weights, axis=0)
    draws = 4000
    tables = np.zeros((2, 5))
    for seed in range(draws):
        heavy = shoal.afkmc2(LINE, 3, chain_length=4, sample_weight=weights, random_state=seed)[0]
        many = shoal.afkmc2(repeated, 3, chain_length=4, random_state=seed)[0]
        for table, found in zip(tables, (heavy, many), strict=True):
            table[np.searchsorted(LINE[:, 0], found[2, 0])] += 1
    assert scipy.stats.chi2_contingency(tables).pvalue > 1e-3


def test_the_distribution_of_many_chains_in_one_block():
    # From the second block of chains on, candidates are compared with some centers by kernels, and with
    # others one by one.
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.normal(c, 1e-3, size=(3, 2)) for c in np.arange(40.0)[:, None] * [1, 7]])
    for seed in range(20):
        found = shoal.afkmc2(X, 40, chain_length=1000, random_state=seed)[1]
        # Nearly all squared distance is in the clumps that have no center yet.
        assert sorted(found // 3) == list(range(40))


# ---------------------------------------------------------------- all methods


@way
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_centers_are_rows(rows, way, dtype):
    X = np.abs(rows * 5).astype(dtype)
    for k in (1, 2, 60):
        centers, indices = way(X, k, random_state=0)
        assert centers.shape == (k, 3)
        assert centers.dtype == (np.float64 if dtype == np.float64 else np.float32)
        assert indices.dtype == np.int64
        assert len(np.unique(centers, axis=0)) == k
        assert (centers == X[indices]).all()
    assert (way(X, 60, random_state=0)[1] == indices).all()
    assert (way(X, 60, random_state=1)[1] != indices).any()


@way
def test_threads_and_sources_do_not_change_the_draws(rows, way, tmp_path):
    X = np.tile(rows.astype(np.float32), (4, 1)) + np.arange(12_000, dtype=np.float32)[:, None] / 1e4
    weights = np.random.default_rng(2).integers(0, 4, size=len(X)).astype(float)
    np.save(tmp_path / "rows.npy", X)
    for w in (None, weights):
        known = way(X, 70, sample_weight=w, random_state=5, n_jobs=1)[1]
        assert w is None or (weights[known] > 0).all()
        others = [
            X,
            tmp_path / "rows.npy",
            np.load(tmp_path / "rows.npy", mmap_mode="r"),
            np.asfortranarray(X),
            lambda: (X[i : i + 777] for i in range(0, len(X), 777)),
        ]
        for other in others:
            assert (way(other, 70, sample_weight=w, random_state=5, n_jobs=2)[1] == known).all()


@way
def test_sparse_rows(way):
    X = scipy.sparse.random(600, 50, density=0.1, format="csr", random_state=0)
    centers, indices = way(X, 40, random_state=3)
    assert (centers == X[indices].toarray()).all()
    assert (way(X.toarray(), 40, random_state=3)[1] == indices).mean() > 0.9


def test_initial_inertia_is_close_to_that_of_k_means_plus_plus(rows):
    def mean(draw):
        return np.mean([reference.potential(rows, draw(seed)[0]) for seed in range(15)])

    plain = mean(lambda s: shoal.kmeans_plusplus(rows, 15, greedy=False, random_state=s))
    chains = mean(lambda s: shoal.afkmc2(rows, 15, random_state=s))
    rounds = mean(lambda s: shoal.kmeans_parallel(rows, 15, random_state=s))
    blind = mean(lambda s: (rows[np.random.default_rng(s).permutation(len(rows))[:15]], None))
    assert chains < 2 * plain < blind
    assert rounds < plain


@way
def test_scaling_all_weights_changes_nothing(rows, way):
    weights = np.random.default_rng(1).uniform(size=len(rows))
    known = way(rows, 30, sample_weight=weights, random_state=0)[1]
    for factor in (2.0**40, 2.0**-1000):
        assert (way(rows, 30, sample_weight=weights * factor, random_state=0)[1] == known).all()


@way
def test_fewer_distinct_rows_than_centers(way):
    X = np.repeat([[1.0, 2.0], [3.0, 4.0], [3.0, 4.5]], 40, axis=0)
    centers, indices = way(X, 7, random_state=0)
    assert len(set(indices.tolist())) == 7
    assert len(np.unique(centers[:3], axis=0)) == 3
    alike, indices = way(np.ones((9, 2)), 9, random_state=0)
    assert sorted(indices.tolist()) == list(range(9))
    assert (alike == 1).all()


@way
def test_one_far_row_among_copies_is_found(way):
    X = np.zeros((3000, 2))
    X[1234] = 5.0
    assert 1234 in way(X, 2, random_state=0)[1]


@way
def test_huge_and_tiny_rows(way):
    X = np.random.default_rng(0).normal(size=(300, 2))
    for scale in (1e150, 1e-150):
        assert len(set(way(X * scale, 20, random_state=1)[1].tolist())) == 20
    with pytest.raises(ValueError, match="so large that squared distances overflow"):
        way(X * 1e160, 20)
    X[77, 1] = np.nan
    with pytest.raises(ValueError, match="X must be finite, got NaN at row 77, column 1"):
        way(X, 200 if way is WAYS["k-mc2"] else 20, random_state=0)


@pytest.mark.parametrize("init", WAYS)
@pytest.mark.parametrize("estimator", [KMeans, shoal.MiniBatchKMeans, shoal.NestedMiniBatchKMeans])
def test_every_estimator_accepts_the_method(rows, init, estimator):
    model = estimator(15, init=init, random_state=0).fit(rows, sample_weight=np.ones(len(rows)))
    assert model.init_ == init
    assert (model.counts_ > 0).all()
    assert model.predict(rows).max() == 14


def test_k_means_parallel_fills_up_when_too_few_rows_are_drawn(rows):
    centers, indices = shoal.kmeans_parallel(rows, 40, oversampling_factor=0.01, n_rounds=1, random_state=0)
    assert len(np.unique(indices)) == len(centers) == 40
    # The remaining centers are drawn by k-means++.
    assert reference.potential(rows, centers) < 3 * reference.potential(
        rows, shoal.kmeans_plusplus(rows, 40, greedy=False, random_state=0)[0]
    )


# ---------------------------------------------------------------- counts


def test_distances_are_counted(rows):
    n, k, chain = len(rows), 64, 10
    pairs = k * (k - 1) // 2
    assert counted(rows, k, "random")[2] == 0
    # Every candidate is compared with all earlier centers.
    assert counted(rows, k, "k-mc2", chain=chain)[2] == chain * pairs
    few, many = (counted(rows, k, "afk-mc2", chain=length)[2] for length in (chain, 10**6))
    assert n + pairs <= few <= n + chain * pairs
    # Only the part of a chain that can matter is computed, from its end.
    assert many < n + 10**4 * pairs
    plain = counted(rows, k, "plain-k-means++")[2]
    assert n < plain < n * k
    joined = counted(rows, k, "k-means||", oversampling=2.0, rounds=3)[2]
    assert joined > n * k
    assert counted(rows, k, "afk-mc2", chain=chain, threads=1)[2] == few


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (
            lambda X: shoal.afkmc2(X, 0, chain_length=0),
            "n_clusters must .* got 0; chain_length must .* got 0",
        ),
        (
            lambda X: shoal.afkmc2(X, 3, chain_length=2.5),
            "chain_length must be an integer of at least 1, got 2.5",
        ),
        (
            lambda X: shoal.afkmc2(X, 3, chain_length=2**30),
            "chain_length must be an integer from 1 to 16777216",
        ),
        (
            lambda X: shoal.kmeans_parallel(X, 3, oversampling_factor=0, n_rounds=0),
            "oversampling_factor must be a finite number above 0, got 0; n_rounds must be an integer",
        ),
        (
            lambda X: shoal.kmeans_parallel(X, 3, oversampling_factor=np.inf),
            "oversampling_factor must .* got inf",
        ),
        (lambda X: shoal.afkmc2(X, 51), "n_samples=50 should be >= n_clusters=51"),
        (
            lambda X: shoal.afkmc2(X, 3, sample_weight=np.zeros(50)),
            "sample_weight must be above 0 for at least one row, got zero for every row",
        ),
        (
            lambda X: shoal.afkmc2(X, 3, sample_weight=np.full(50, 1e308)),
            "sample_weight must .* got weights that are too large",
        ),
        (
            lambda X: shoal.kmeans_parallel(X, 3, sample_weight=np.full(50, 1e308)),
            "sample_weight must .* got weights that are too large",
        ),
        (lambda X: shoal.afkmc2(iter([X]), 3), "afkmc2 reads its rows more than once"),
        (lambda X: shoal.kmeans_parallel(iter([X]), 3), "kmeans_parallel reads its rows more than once"),
    ],
)
def test_errors(use, text):
    with pytest.raises(ValueError, match=text):
        use(np.random.default_rng(0).normal(size=(50, 2)))


@pytest.mark.filterwarnings("ignore:Number of distinct", "ignore:the fit did not converge")
@pytest.mark.parametrize("init", ["random", "k-means++", "plain-k-means++", "afk-mc2", "k-mc2", "k-means||"])
@pytest.mark.parametrize(
    "model",
    [
        shoal.MiniBatchKMeans(12, batch_size=200, max_iter=3),
        shoal.NestedMiniBatchKMeans(12, batch_size=500),
        shoal.VarianceReducedKMeans(12, max_iter=3),
        shoal.BackwardEulerKMeans(12, batch_size=200),
        shoal.TruncatedGaussianMixture(12, max_iter=5),
        shoal.TruncatedGaussianMixture(12, max_iter=5, coreset_size=800),
    ],
    ids=lambda model: type(model).__name__,
)
def test_every_estimator_starts_with_any_of_them(rows, model, init):
    fits = [clone(model).set_params(init=init, random_state=1, n_jobs=jobs).fit(rows) for jobs in (1, 2)]
    assert fits[0].cluster_centers_.tobytes() == fits[1].cluster_centers_.tobytes()
    assert fits[0].init_ == init
    # Far better than a single center.
    far = reference.sq_dists(rows, fits[0].cluster_centers_).min(axis=1)
    assert far.sum() < 0.3 * rows.var(axis=0).sum() * len(rows)
