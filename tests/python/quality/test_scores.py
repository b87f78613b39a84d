"""Silhouette, Davies-Bouldin and Calinski-Harabasz, compared with scikit-learn and with their definitions."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse
import shoal
import sklearn.metrics
from hypothesis import given, settings
from reference import normalized
from shoal import metrics
from shoal._quality import exact, indices, labeled

SCORES = (metrics.davies_bouldin_score, metrics.calinski_harabasz_score, metrics.silhouette_score)


def exact_silhouette(*args, **kwargs):
    return metrics.silhouette_score(*args, simplified=False, **kwargs)


PAIRS = [
    (metrics.davies_bouldin_score, sklearn.metrics.davies_bouldin_score),
    (metrics.calinski_harabasz_score, sklearn.metrics.calinski_harabasz_score),
    (exact_silhouette, sklearn.metrics.silhouette_score),
]


def members(X, labels, weights=None):
    """The rows with weight of every cluster, as pairs of a row and its share of the total weight."""
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
    total = math.fsum(w)
    found = {}
    for row, label, weight in zip(np.asarray(X, dtype=np.float64), labels, w, strict=True):
        if weight > 0:
            found.setdefault(label, []).append((row, weight / total))
    return list(found.values())


def share(pairs):
    return math.fsum(s for _, s in pairs)


def mean_of(pairs):
    return sum(s * row for row, s in pairs) / share(pairs)


def mean_distance(row, pairs):
    return math.fsum(s * math.dist(row, other) for other, s in pairs) / share(pairs)


def width(own, other):
    return (other - own) / max(own, other) if max(own, other) > 0 else 0.0


def simplified(X, labels, weights=None):
    """The simplified silhouette by definition."""
    clusters = members(X, labels, weights)
    means = [mean_of(pairs) for pairs in clusters]
    found = []
    for j, pairs in enumerate(clusters):
        for row, s in pairs if len(pairs) > 1 else []:
            apart = [math.dist(row, mean) for mean in means]
            found.append(s * width(apart.pop(j), min(apart)))
    return math.fsum(found)


def silhouette(X, labels, weights=None):
    """The exact silhouette by definition."""
    clusters = members(X, labels, weights)
    found = []
    for j, pairs in enumerate(clusters):
        for i, (row, s) in enumerate(pairs if len(pairs) > 1 else []):
            apart = [mean_distance(row, other) for at, other in enumerate(clusters) if at != j]
            found.append(s * width(mean_distance(row, pairs[:i] + pairs[i + 1 :]), min(apart)))
    return math.fsum(found)


def calinski_harabasz(X, labels, weights=None):
    """The Calinski-Harabasz index by definition."""
    clusters = members(X, labels, weights)
    every = [pair for pairs in clusters for pair in pairs]
    middle, k, n = mean_of(every), len(clusters), len(every)
    between = math.fsum(share(pairs) * math.dist(mean_of(pairs), middle) ** 2 for pairs in clusters)
    within = math.fsum(s * math.dist(row, mean_of(pairs)) ** 2 for pairs in clusters for row, s in pairs)
    return (between / (k - 1)) / (within / (n - k))


def davies_bouldin(X, labels, weights=None):
    """The Davies-Bouldin index by definition."""
    clusters = members(X, labels, weights)
    means = [mean_of(pairs) for pairs in clusters]
    scatter = [mean_distance(mean, pairs) for mean, pairs in zip(means, clusters, strict=True)]
    worst = [
        max((scatter[i] + scatter[j]) / math.dist(means[i], means[j]) for j in range(len(means)) if j != i)
        for i in range(len(means))
    ]
    return math.fsum(worst) / len(worst)


DEFINED = [
    (metrics.davies_bouldin_score, davies_bouldin),
    (metrics.calinski_harabasz_score, calinski_harabasz),
    (metrics.silhouette_score, simplified),
    (exact_silhouette, silhouette),
]


def some(n, d, k, seed=0, dtype=np.float64, offset=0.0):
    rng = np.random.default_rng(seed)
    centers = 3 * rng.normal(size=(k, d))
    labels = np.concatenate([np.arange(k), rng.integers(k, size=n - k)])
    X = centers[labels] + rng.normal(size=(n, d)) + offset
    return (10 * X if np.dtype(dtype).kind in "iu" else X).astype(dtype), labels


@pytest.mark.parametrize(("own", "theirs"), PAIRS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [np.int16, np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("n", "d", "k"), [(4, 1, 2), (50, 1, 7), (300, 3, 5), (120, 70, 40), (90, 5, 89)])
def test_as_scikit_learn(own, theirs, dtype, n, d, k):
    X, labels = some(n, d, k, seed=n + d, dtype=dtype)
    expected = theirs(X.astype(np.float64), labels)
    assert own(X, labels) == pytest.approx(expected, rel=1e-6, abs=1e-7)
    assert own(X, labels, n_jobs=1) == own(X, labels, n_jobs=3)
    # Any sortable labels.
    names = np.array([f"cluster {label:03d}" for label in labels])
    assert own(X, names) == own(X, labels) == own(X, labels - 5)


@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_simplified_by_definition(offset):
    for n, d, k in [(5, 1, 2), (60, 3, 4), (200, 20, 30)]:
        X, labels = some(n, d, k, offset=offset)
        weights = np.random.default_rng(1).integers(1, 4, size=n).astype(float)
        close = {"rel": 1e-8, "abs": 1e-9} if offset == 0.0 else {"rel": 1e-5, "abs": 1e-6}
        assert metrics.silhouette_score(X, labels) == pytest.approx(simplified(X, labels), **close)
        found = metrics.silhouette_score(X, labels, sample_weight=weights)
        assert found == pytest.approx(simplified(X, labels, weights), **close)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    n=st.integers(9, 60),
    d=st.integers(1, 9),
    k=st.integers(2, 6),
    scale=st.sampled_from([1e-9, 1.0, 1e9]),
)
def test_scores_depend_on_shares_of_the_weight(seed, n, d, k, scale):
    X, labels = some(n, d, k, seed)
    weights = np.random.default_rng(seed).uniform(0.0, 4.0, size=n) * (np.arange(n) % 4 != 3)
    for score, definition in DEFINED:
        found = score(X, labels, sample_weight=weights)
        assert found == pytest.approx(definition(X, labels, weights), rel=1e-7, abs=1e-8)
        assert score(scale * X, labels, sample_weight=weights) == pytest.approx(found, rel=1e-9, abs=1e-10)
        for factor in (1e-6, 1e6, 1e-100):
            scaled = score(X, labels, sample_weight=factor * weights)
            # The rounding of means counts more where centers are close to each other.
            assert scaled == pytest.approx(found, rel=1e-10, abs=1e-13)


@pytest.mark.parametrize(("own", "definition"), DEFINED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_one_row_with_nearly_all_the_weight(own, definition, metric):
    X, labels = some(60, 3, 4)
    weights = np.ones(60)
    # The weight of the other rows is below the rounding of that of the cluster.
    weights[[7, 8]] = 1e18, 1e12
    rows = normalized(X) if metric == "cosine" else X
    expected = definition(rows, labels, weights)
    assert own(X, labels, sample_weight=weights, metric=metric) == pytest.approx(expected, rel=1e-7)


def test_the_only_row_with_weight_of_a_cluster_has_width_0():
    X, labels = np.array([[0.0], [1.0], [8.0], [9.0]]), np.array([0, 0, 1, 1])
    weights = [5.0, 5.0, 20.0, 0.0]
    widths = [1 - 0.5 / 8, 1 - 0.5 / 7]
    found = metrics.silhouette_score(X, labels, sample_weight=weights)
    assert found == pytest.approx(np.mean(widths) / 3, rel=1e-12)
    found = exact_silhouette(X, labels, sample_weight=weights)
    assert found == pytest.approx((1 - 1 / 8 + 1 - 1 / 7) / 6, rel=1e-12)


def test_rows_without_weight_do_not_count():
    X, labels = some(60, 3, 4)
    labels[50:] = 9
    weights = (labels != 9).astype(float)
    for score in (*SCORES, exact_silhouette):
        assert score(X, labels, sample_weight=weights) == pytest.approx(score(X[:50], labels[:50]), rel=1e-7)


@pytest.mark.parametrize("score", [*SCORES, exact_silhouette])
def test_any_source_gives_the_same_value(score, tmp_path):
    X, labels = some(5000, 6, 7, dtype=np.float32)
    np.save(tmp_path / "rows.npy", X)
    for i, part in enumerate(np.array_split(X, 3)):
        np.save(tmp_path / f"part-{i}.npy", part)
    small = labels < 3 if score is exact_silhouette else slice(None)
    if score is exact_silhouette:
        X, labels = np.ascontiguousarray(X[small]), labels[small]
        np.save(tmp_path / "rows.npy", X)
    sources = [X, tmp_path / "rows.npy", shoal.open(tmp_path / "rows.npy"), np.asfortranarray(X)]
    sources += [lambda: (X[i : i + 700] for i in range(0, len(X), 700))]
    if score is not exact_silhouette:
        sources.append(str(tmp_path / "part-*.npy"))
    found = {score(source, labels) for source in sources}
    assert len(found) == 1
    sparse = scipy.sparse.csr_array(X)
    assert score(sparse, labels) == pytest.approx(found.pop(), rel=1e-6)


def test_a_coreset_has_its_weights():
    X, labels = some(400, 3, 4)
    coreset = shoal.Coreset(X, np.arange(1.0, 401.0), np.arange(400))
    for score in SCORES:
        assert score(coreset, labels) == score(X, labels, sample_weight=np.arange(1.0, 401.0))
        with pytest.raises(ValueError, match="sample_weight must be None"):
            score(coreset, labels, sample_weight=np.ones(400))


def test_cosine_is_euclidean_on_normalized_rows():
    X, labels = some(300, 5, 4)
    unit = normalized(X)
    for own, theirs in PAIRS:
        assert own(X, labels, metric="cosine") == pytest.approx(theirs(unit, labels), rel=1e-7)
    model = shoal.KMeans(4, metric="cosine", random_state=0, tol=0.0).fit(X)
    found = metrics.silhouette_score(X, model.labels_, metric="cosine")
    given_centers = metrics.silhouette_score(
        X, model.labels_, centers=model.cluster_centers_, metric="cosine"
    )
    assert found == pytest.approx(given_centers, rel=1e-9)
    X[3] = 0
    for score in (*SCORES, exact_silhouette):
        with pytest.warns(UserWarning, match="1 row of X is all zeros"):
            score(X, labels, metric="cosine")


def test_centers_take_one_pass():
    X, labels = some(2500, 4, 5)
    model = shoal.KMeans(5, random_state=0, tol=0.0).fit(X)
    centers = model.cluster_centers_
    own = metrics.silhouette_score(X, model.labels_)
    blocks = (X[i : i + 400] for i in range(0, len(X), 400))
    assert metrics.silhouette_score(blocks, model.labels_, centers=centers) == pytest.approx(own, rel=1e-9)
    # Labels that are not those of the nearest centers, and a center without rows.
    more = np.concatenate([centers, centers[:1] + 50])
    blocks = (X[i : i + 400] for i in range(0, len(X), 400))
    found = metrics.silhouette_score(blocks, labels, centers=more)
    apart = np.linalg.norm(X[:, None] - centers, axis=2)
    rows = np.arange(len(X))
    mine = apart[rows, labels]
    apart[rows, labels] = np.inf
    nearest = apart.min(axis=1)
    assert found == pytest.approx(np.mean((nearest - mine) / np.maximum(nearest, mine)), rel=1e-9)


def test_a_sample_has_the_widths_among_all_rows():
    X, labels = some(900, 3, 4)
    every = sklearn.metrics.silhouette_samples(X, labels)
    picked = np.sort(np.random.RandomState(5).choice(900, 200, replace=False))
    found = exact_silhouette(X, labels, n_samples=200, random_state=5)
    assert found == pytest.approx(every[picked].mean(), rel=1e-9)
    assert exact_silhouette(X, labels, n_samples=900) == pytest.approx(every.mean(), rel=1e-9)
    assert (
        abs(metrics.silhouette_score(X, labels, n_samples=400, random_state=1) - simplified(X, labels)) < 0.05
    )


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_a_sample_of_the_simplified_silhouette(metric, tmp_path, monkeypatch):
    X, labels = some(900, 3, 4)
    np.save(tmp_path / "rows.npy", X)
    picked = np.sort(np.random.RandomState(5).choice(900, 200, replace=False))
    scaled = normalized(X) if metric == "cosine" else X
    centers = np.stack([scaled[labels == j].mean(axis=0) for j in range(4)])
    centers = normalized(centers) if metric == "cosine" else centers
    apart = np.linalg.norm(scaled[picked][:, None] - centers, axis=2)
    at = np.arange(200), labels[picked]
    own = apart[at]
    apart[at] = np.inf
    other = apart.min(axis=1)
    expected = np.mean((other - own) / np.maximum(own, other))
    nearest, measured = labeled._core.nearest, []

    def counted(source, *args):
        measured.append(source.shape[0])
        return nearest(source, *args)

    monkeypatch.setattr(labeled._core, "nearest", counted)
    monkeypatch.setattr(labeled, "TAKEN_VALUES", 7 * X.shape[1])
    monkeypatch.setattr(labeled, "PART_ROWS", 100)
    for source in (X, tmp_path / "rows.npy", lambda: iter(np.array_split(X, 7)), scipy.sparse.csr_array(X)):
        measured.clear()
        found = metrics.silhouette_score(source, labels, n_samples=200, random_state=5, metric=metric)
        assert found == pytest.approx(expected, rel=1e-9)
        assert sum(measured) == 200
        assert max(measured) <= 7


def test_parts_of_the_exact_silhouette(monkeypatch):
    X, labels = some(500, 3, 6)
    expected = sklearn.metrics.silhouette_score(X, labels)
    for chunk, most in ((7, 1 << 22), (1024, 900)):
        monkeypatch.setattr(exact, "CHUNK_ROWS", chunk)
        monkeypatch.setattr(exact, "MOST_VALUES", most)
        assert exact_silhouette(X, labels) == pytest.approx(expected, rel=1e-9)
    monkeypatch.setattr(indices, "STEP_VALUES", 10)
    expected = sklearn.metrics.davies_bouldin_score(X, labels)
    assert metrics.davies_bouldin_score(X, labels) == pytest.approx(expected, rel=1e-9)


def test_perfect_and_singleton_clusters():
    X = np.repeat([[0.0], [1.0], [5.0]], 3, axis=0)
    labels = np.repeat([0, 1, 2], 3)
    for own, theirs in PAIRS:
        assert own(X, labels) == theirs(X, labels)
    assert metrics.silhouette_score(X, labels) == 1.0
    X, labels = np.array([[0.0], [0.5], [9.0]]), [0, 0, 1]
    assert exact_silhouette(X, labels) == pytest.approx(sklearn.metrics.silhouette_score(X, labels))
    assert metrics.silhouette_score(X, labels) == pytest.approx(simplified(X, np.array(labels)))


@pytest.mark.parametrize("score", [*SCORES, exact_silhouette])
def test_bad_input(score):
    X, labels = some(40, 2, 3)
    for bad, message in [
        (
            np.zeros(40),
            "labels must be of at least 2 clusters, and of fewer than the number of rows, 40, got 1",
        ),
        (np.arange(40), "fewer than the number of rows, 40, got 40"),
        (labels[:39], "labels has 39 values, X has 40 rows"),
        (labels[:, None], r"labels must be 1-D, one label per row, got shape \(40, 1\)"),
        (np.where(labels, np.nan, 1.0), "labels must be finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            score(X, bad)
    with pytest.raises(ValueError, match="metric must be one of"):
        score(X, labels, metric="manhattan")
    with pytest.raises(ValueError, match="reads its rows more than once"):
        score(iter([X]), labels)
    with pytest.raises(ValueError, match="sample_weight has 3 values"):
        score(X, labels, sample_weight=[1, 2, 3])
    few = np.where(np.arange(40) < 3, 50.0, 0.0)
    with pytest.raises(ValueError, match="fewer than the number of rows with weight, 3, got 3"):
        score(X, np.arange(40) % 3, sample_weight=few)
    bad = X.copy()
    bad[7, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        score(shoal.open(bad), labels)
    for n in (39, 41):
        with pytest.raises(ValueError, match="rows"):
            score(lambda n=n: iter([X[:20], np.resize(X, (n - 20, 2))]), labels)


def test_bad_options_of_the_silhouette():
    X, labels = some(40, 2, 3)
    centers = np.zeros((3, 2))
    with pytest.raises(ValueError, match="centers must be None with simplified=False"):
        exact_silhouette(X, labels, centers=centers)
    with pytest.raises(ValueError, match="labels must be numbers of the centers, from 0 to 1, got 0 to 2"):
        metrics.silhouette_score(X, labels, centers=centers[:2])
    with pytest.raises(ValueError, match="n_samples must be at most the number of rows, 40, got 41"):
        metrics.silhouette_score(X, labels, n_samples=41)
    with pytest.raises(ValueError, match="n_samples must be an integer of at least 1, got 0"):
        metrics.silhouette_score(X, labels, n_samples=0)
    many = np.zeros((exact.MOST_ROWS + 1, 1))
    with pytest.raises(
        ValueError, match="n_samples must be given for the exact silhouette of more than 20000"
    ):
        exact_silhouette(many, np.arange(len(many)) % 2)
    blocks = (X[i : i + 10] for i in range(0, 30, 10))
    with pytest.raises(ValueError, match="labels has 40 values, X has 30 rows"):
        metrics.silhouette_score(blocks, labels, centers=centers)
