"""The choice of the number of clusters: measures, criteria, warm starts and callbacks."""

import itertools
import sys

import numpy as np
import pytest
import scipy.sparse
import shoal
from shoal import metrics
from shoal._quality import elbow as kneedle
from shoal._quality import growing
from shoal._quality.choosing import CRITERIA, choose, margin, verdict


def spaced_blobs(k=4, n=80, d=3, seed=0, apart=12.0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    centers = apart * rng.permutation(np.eye(max(k, d), d + k))[:k, :d] + apart * np.arange(k)[:, None] % 7
    return np.concatenate([center + rng.normal(size=(n, d)) for center in centers]).astype(dtype)


# ---------------------------------------------------------------- the elbow


def test_the_elbow_of_the_paper():
    # Figure 2 of the paper: y = -1 / (x + 0.1) + 5, concave and increasing; its knee is 0.22.
    x = np.linspace(0.0, 1.0, 10)
    assert x[kneedle.elbow(x, 1 / (x + 0.1))] == pytest.approx(0.222, abs=1e-3)


def test_no_elbow():
    x = np.arange(2, 12)
    assert kneedle.elbow(x, -x) is None
    assert kneedle.elbow(x, np.ones(10)) is None
    assert kneedle.elbow([2, 3], [5, 1]) is None
    assert kneedle.elbow(x, -(x**2.0)) is None


def test_the_elbow_does_not_depend_on_the_scale():
    x = np.arange(2, 30)
    for at in (4, 9, 15):
        y = np.where(x < at, (at - x) * 10.0, 0.0) - 0.01 * x
        assert {kneedle.elbow(x, scale * y + shift) for scale in (1e-6, 3.0) for shift in (0, 1e3)} == {
            at - 2
        }


# ---------------------------------------------------------------- measures


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_the_table_holds_the_metrics(metric):
    X = spaced_blobs()
    weights = np.random.default_rng(1).integers(1, 4, size=len(X)).astype(float)
    model = shoal.KMeans(metric=metric, tol=0.0)
    found = shoal.select_n_clusters(
        X, [5, 2, 3], estimator=model, sample_weight=weights, random_state=0, n_resamples=0
    )
    assert found.table_["n_clusters"].tolist() == [2, 3, 5]
    for row in found.table_:
        centers = found.centers_[row["n_clusters"]]
        assert len(centers) == row["n_clusters"]
        labels, sq_dists = shoal.nearest(X, centers, metric=metric)
        assert row["inertia"] == pytest.approx(weights @ sq_dists, rel=1e-12)
        assert row["silhouette"] == pytest.approx(
            metrics.silhouette_score(X, labels, centers=centers, sample_weight=weights, metric=metric)
        )
        assert np.isnan(row["stability"])
        if metric == "euclidean":
            options = {"sample_weight": weights}
            expected = metrics.calinski_harabasz_score(X, labels, **options)
            assert row["calinski_harabasz"] == pytest.approx(expected)
            expected = metrics.davies_bouldin_score(X, labels, **options)
            assert row["davies_bouldin"] == pytest.approx(expected)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_only_shares_of_the_weight_matter(metric, factor):
    X = spaced_blobs()
    weights = np.random.default_rng(1).uniform(0.1, 2.0, size=len(X))
    weights[::9] = 0.0

    def selection(weights):
        model = shoal.KMeans(metric=metric)
        return shoal.select_n_clusters(
            X, range(1, 8), estimator=model, sample_weight=weights, random_state=0, n_resamples=2
        )

    expected, found = selection(weights), selection(factor * weights)
    assert found.best_ == expected.best_
    assert found.suggestions_ == expected.suggestions_
    assert None not in found.suggestions_.values()
    for name in found.table_.dtype.names:
        scale = factor if name == "inertia" else 1.0
        np.testing.assert_allclose(found.table_[name], scale * expected.table_[name], rtol=1e-12)
    for k, centers in expected.centers_.items():
        np.testing.assert_allclose(found.centers_[k], centers, rtol=1e-12, atol=1e-12)


def test_rows_without_weight_are_not_drawn():
    X = spaced_blobs(apart=40.0)
    weights = np.where(np.arange(len(X)) % 8 == 0, 1.0, 0.0)
    weighty = shoal.select_n_clusters(X, [4], sample_weight=weights, random_state=0)
    assert weighty.table_["stability"][0] == 1.0
    alone = shoal.select_n_clusters(X[::8], [4], random_state=0)
    for name in ("inertia", "silhouette", "calinski_harabasz", "davies_bouldin"):
        assert weighty.table_[name] == pytest.approx(alone.table_[name], rel=1e-12)
    with pytest.raises(ValueError, match="ks must be at most the number of rows with weight, 40, got 41"):
        shoal.select_n_clusters(X, [41], sample_weight=weights)
    for n in (len(X) - 1, len(X) + 1):
        with pytest.raises(ValueError, match=f"sample_weight has {n} values, X has {len(X)} rows"):
            shoal.select_n_clusters(lambda: iter([X]), [2], sample_weight=np.ones(n))


def test_clear_clusters_are_found_by_all_criteria():
    X = spaced_blobs(k=5, d=6, apart=40.0)
    found = shoal.select_n_clusters(X, range(2, 12), random_state=0)
    assert found.suggestions_ == dict.fromkeys(CRITERIA, 5)
    assert found.best_ == 5
    assert (found.agreement_, found.doubts_) == (list(CRITERIA), [])
    assert repr(found).startswith("<KSelection of 2 to 11: 5 by auto, 5 of 5 criteria agree, margin 0.")
    text = str(found)
    assert len(text.splitlines()) == 14
    assert "davies bouldin 5" in text
    assert text.endswith(f"\nbest: 5 by auto, 5 of 5 criteria agree, margin {found.margin_:.2f}")
    for name in CRITERIA:
        assert shoal.select_n_clusters(X, [3, 5, 7], criterion=name, random_state=0).criterion_ == name


@pytest.mark.parametrize("pool", [20_000, 60])
def test_the_inertia_never_rises(monkeypatch, pool):
    # A start that is best in a small pool may be worse for all rows.
    monkeypatch.setattr(growing, "POOL_ROWS", pool)
    monkeypatch.setattr(growing, "POOL_PER_CLUSTER", 1)
    X = np.random.default_rng(0).normal(size=(500, 4))
    found = shoal.select_n_clusters(X, range(1, 40), n_resamples=0, random_state=0)
    assert (np.diff(found.table_["inertia"]) < 0).all()
    if pool < len(X):
        return
    # Warm starts need fewer iterations than cold ones, for no more inertia on average.
    cold = [shoal.KMeans(k, random_state=0).fit(X) for k in range(20, 40)]
    warm = found.table_[19:]
    assert warm["n_iter"].mean() < np.mean([model.n_iter_ for model in cold])
    assert warm["inertia"].mean() < np.mean([model.inertia_ for model in cold])


def test_a_single_cluster_has_an_inertia_only():
    found = shoal.select_n_clusters(spaced_blobs(), [1, 2], random_state=0)
    row = found.table_[0]
    assert np.isnan([row[name] for name in ("silhouette", "calinski_harabasz", "davies_bouldin")]).all()
    assert np.isnan([row["stability"], row["stability_std"]]).all()
    assert not np.isnan(found.table_["stability"][1])
    alone = shoal.select_n_clusters(spaced_blobs(), [1], random_state=0)
    assert alone.suggestions_["silhouette"] is None
    assert alone.suggestions_["stability"] is None
    with pytest.raises(AttributeError, match=r"criterion='auto' chooses none of \[1\] clusters"):
        alone.best_  # noqa: B018 - raises
    assert "none by auto" in repr(alone)
    assert (alone.agreement_, alone.doubts_) == ([], ["no number of clusters is chosen"])
    assert np.isnan(alone.margin_)


def test_a_single_cluster_is_not_the_most_stable():
    noise = np.random.default_rng(0).normal(size=(300, 8))
    table = shoal.select_n_clusters(noise, [1, 2, 3], random_state=0).table_
    assert table["stability"][1:].max() < 1.0
    assert choose("stability", table) == table["n_clusters"][1 + table["stability"][1:].argmax()]


def test_criteria_choose_from_the_table():
    table = np.zeros(
        4, dtype=[("n_clusters", "i8"), ("inertia", "f8"), ("silhouette", "f8"), ("stability", "f8")]
    )
    table["n_clusters"] = [2, 3, 4, 5]
    table["silhouette"] = [0.1, 0.5, 0.5, np.nan]
    assert choose("silhouette", table) == 3
    table["stability"] = [0.95, 0.7, 0.95, 0.3]
    assert choose("stability", table) == 4
    table["stability"] = [0.5, np.nan, 0.2, 0.3]
    assert choose("stability", table) == 2
    table["inertia"] = [90.0, 3.0, 2.9, 2.8]
    assert choose("elbow", table) == 3
    table["inertia"] = [90.0, 0.0, 0.0, 0.0]
    assert choose("elbow", table) == 3
    table["inertia"] = 0.0
    assert choose("elbow", table) is None
    table["stability"] = np.nan
    assert choose("stability", table) is None


def test_most_criteria_decide():
    def chosen(*choices, criterion="auto"):
        return verdict(criterion, dict(zip(CRITERIA, choices, strict=True)))

    assert chosen(10, 2, 10, 2, 2) == 10
    assert chosen(10, 2, 10, 2, 2, criterion="silhouette") == 2
    # 18 and 21 are both about 20, but not about each other.
    assert chosen(18, 21, 20, 5, 5) == 20
    # All three are about 30, and two are exactly 30.
    assert chosen(30, 29, 30, 5, 5) == 30
    # The silhouette decides if two are about the same, or none are.
    assert chosen(19, 20, 2, 5, 5) == 20
    assert chosen(10, 4, 7, 10, 10) == chosen(None, 4, 7, 7, None) == 4
    assert chosen(10, None, None, 4, 4) == 10
    assert chosen(None, None, None, 4, 4) is None


def test_margins_by_hand():
    table = np.zeros(5, dtype=[(name, "f8") for name in ("n_clusters", *CRITERIA[1:])])
    table["n_clusters"] = [2, 3, 20, 21, 30]
    table["silhouette"] = [0.1, 0.3, 0.5, 0.49, np.nan]
    assert margin("silhouette", 20, table) == pytest.approx((0.5 - 0.3) / (0.5 - 0.1))
    table["davies_bouldin"] = [0.9, 0.4, 0.5, 0.6, 0.8]
    assert margin("davies_bouldin", 3, table) == pytest.approx((0.5 - 0.4) / (0.9 - 0.4))
    table["stability"] = [1.0, 1.0, 0.2, 0.1, 0.3]
    assert margin("stability", 3, table) == 0.0
    assert np.isnan(margin("silhouette", 20, table[2:4]))


def selection_of(criterion, **columns):
    """Return a selection with these measures, without fits."""
    names = ("n_clusters", "inertia", *CRITERIA[1:], "stability_std", "n_iter")
    n = len(columns["n_clusters"])
    every = {name: np.full(n, np.nan) for name in names} | {"n_iter": np.ones(n)} | columns
    found = shoal.KSelection(criterion)
    found._rows = list(zip(*(every[name] for name in names), strict=True))
    return found


def test_doubts():
    # The elbow chooses nothing, because the inertia falls at the same rate everywhere.
    found = selection_of(
        "auto",
        n_clusters=[2, 3, 4, 5],
        inertia=np.exp([4.0, 3.0, 2.0, 1.0]),
        silhouette=[0.2, 0.5, 0.4, 0.3],
        calinski_harabasz=[1.0, 9.0, 3.0, 5.0],
        davies_bouldin=[0.4, 0.3, 0.2, 0.1],
    )
    assert found.suggestions_ == dict(zip(CRITERIA, (None, 3, 3, 5, None), strict=True))
    assert found.agreement_ == ["silhouette", "calinski_harabasz"]
    assert found.margin_ == pytest.approx(((0.5 - 0.4) / 0.3 + (9 - 5) / 8) / 2)
    assert found.doubts_ == []
    found.criterion_ = "davies_bouldin"
    assert (found.best_, found.margin_) == (5, pytest.approx(1 / 3))
    end = "5 is the largest number of clusters compared"
    assert found.doubts_ == ["only 1 of 3 criteria chooses about 5 clusters", end]
    assert repr(found).endswith(": 5 by davies_bouldin, 1 of 3 criteria agree, margin 0.33, 2 doubts>")
    assert str(found).endswith(f"\ndoubt: {end}")
    found = selection_of(
        "silhouette",
        n_clusters=[2, 3, 4],
        inertia=np.ones(3),
        silhouette=[0.5, 0.2, 0.499],
        stability=[0.8, 0.9, 1.0],
    )
    assert found.doubts_ == [
        "only 1 of 2 criteria chooses about 2 clusters",
        "2 is the smallest number of clusters compared",
        "fits of samples differ: the stability is 0.80",
        "other numbers of clusters are nearly as good: the margin is 0.003",
    ]


@pytest.mark.parametrize("d", [3, 8])
def test_rows_without_groups_are_in_doubt(d):
    noise = np.random.default_rng(0).normal(size=(1000, d))
    assert shoal.select_n_clusters(noise, range(2, 15), random_state=0).doubts_


@pytest.mark.parametrize(("k", "d", "seed"), [(20, 3, 0), (20, 16, 1), (30, 6, 2)])
def test_many_groups_are_found(k, d, seed):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(k, d))
    gaps = np.linalg.norm(centers[:, None] - centers, axis=2)
    centers *= 7.0 / gaps[gaps > 0].min()
    X = np.concatenate([rng.normal(size=(60, d)) + center for center in centers])
    found = shoal.select_n_clusters(X, range(2, 2 * k), random_state=0, n_resamples=0)
    assert (found.best_, found.doubts_) == (k, [])
    # As good as the best of three fits from other starts, which leave their local minimum.
    best = min(shoal.BreathingKMeans(k, random_state=start).fit(X).inertia_ for start in range(3))
    assert found.table_["inertia"][k - 2] == pytest.approx(best, rel=1e-6)


def test_breathing_is_not_searched_again(monkeypatch):
    fits, fit = [], shoal.BreathingKMeans.fit

    def counted(self, *args, **options):
        fits.append(self.m)
        return fit(self, *args, **options)

    monkeypatch.setattr(shoal.BreathingKMeans, "fit", counted)
    model = shoal.BreathingKMeans(m=2)
    shoal.select_n_clusters(spaced_blobs(), [3, 4], estimator=model, random_state=0, n_resamples=1)
    assert fits == [2, 2, 2, 2]


def test_fewer_different_rows_than_clusters():
    X = np.repeat(np.eye(3), 5, axis=0)
    with pytest.warns(UserWarning, match="distinct"):
        found = shoal.select_n_clusters(X, [2, 3, 5], random_state=0, n_resamples=2)
    assert found.best_ == 3
    assert found.table_["inertia"][1:].tolist() == [0.0, 0.0]


# ---------------------------------------------------------------- sources and estimators


def test_any_source_gives_the_same_table(tmp_path):
    X = spaced_blobs(dtype=np.float32)
    np.save(tmp_path / "rows.npy", X)
    sources = [X, tmp_path / "rows.npy", lambda: (X[i : i + 33] for i in range(0, len(X), 33))]
    sources.append(shoal.Coreset(X, np.ones(len(X)), np.arange(len(X))))
    tables = [shoal.select_n_clusters(s, [2, 4, 7], random_state=3).table_.tobytes() for s in sources]
    assert len(set(tables)) == 1
    one = shoal.select_n_clusters(X, [2, 4, 7], random_state=3, n_jobs=1).table_.tobytes()
    assert one == tables[0]
    sparse = shoal.select_n_clusters(scipy.sparse.csr_array(X), [2, 4, 7], random_state=3).table_
    dense = shoal.select_n_clusters(X, [2, 4, 7], random_state=3).table_
    assert sparse["inertia"] == pytest.approx(dense["inertia"], rel=1e-5)


def test_the_pool_is_a_sample_of_many_rows(monkeypatch):
    X = spaced_blobs(n=400, dtype=np.float32)
    monkeypatch.setattr(growing, "POOL_ROWS", 100)
    assert growing.pool_size(len(X), 3, 4) == 100
    assert growing.pool_size(len(X), 3, 40) == 800
    assert growing.pool_size(50, 3, 40) == 50
    for source in (X, scipy.sparse.csr_array(X), lambda: iter(np.array_split(X, 7))):
        found = shoal.select_n_clusters(source, range(2, 7), random_state=0)
        assert found.best_ == 4


def test_gathered_rows():
    X = np.random.default_rng(0).normal(size=(50, 3))
    picked = np.array([0, 7, 8, 30, 49])
    for source in (shoal.open(X), shoal.open(lambda: iter(np.array_split(X, 4)))):
        assert np.array_equal(growing.gather(source, picked), X[picked])
    sparse = shoal.open(scipy.sparse.csr_array(X))
    assert isinstance(sparse, shoal.DataSource)
    assert np.array_equal(growing.gather(sparse, picked).toarray(), X[picked])


@pytest.mark.parametrize(
    "estimator",
    [shoal.MiniBatchKMeans(batch_size=100), shoal.NestedMiniBatchKMeans(), shoal.BackwardEulerKMeans()],
    ids=lambda model: type(model).__name__,
)
def test_estimators_with_centers(estimator):
    before = estimator.get_params()
    found = shoal.select_n_clusters(
        spaced_blobs(), range(2, 7), estimator=estimator, random_state=0, n_resamples=1
    )
    assert found.best_ == 4
    assert estimator.get_params() == before


def test_a_seed_repeats_the_selection():
    X = spaced_blobs()
    tables = [shoal.select_n_clusters(X, [2, 3, 4], random_state=7).table_ for _ in range(2)]
    assert tables[0].tobytes() == tables[1].tobytes()


def agreement(first, second):
    """The adjusted Rand index by definition, from all pairs of rows."""
    one, two = ((labels[:, None] == labels)[np.triu_indices(len(labels), 1)] for labels in (first, second))
    expected = one.mean() * two.mean()
    return ((one & two).mean() - expected) / ((one.mean() + two.mean()) / 2 - expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_stability_by_hand(weighted):
    clear = shoal.select_n_clusters(spaced_blobs(apart=40.0), [4], random_state=0, n_resamples=3)
    assert (clear.table_["stability"][0], clear.table_["stability_std"][0]) == (1.0, 0.0)
    noise = np.random.default_rng(0).normal(size=(300, 8))
    weights = np.random.default_rng(1).uniform(0.1, 5.0, size=300) if weighted else None
    rough = shoal.select_n_clusters(noise, [9], random_state=0, n_resamples=3, sample_weight=weights)
    labels, _ = shoal.nearest(noise, rough.centers_[9])
    # Four fifths of the rows are drawn for every resample, after the pool, which holds all rows.
    draws = np.random.RandomState(0)
    draws.choice(300, 300, replace=False)
    found, stuck = [], 0
    for trial in range(3):
        inside = np.sort(draws.choice(300, 240, replace=False))
        some, options = noise[inside], {"sample_weight": None if weights is None else weights[inside]}
        model = shoal.KMeans(9, random_state=trial + 1).fit(some, **options)
        sq_dists = shoal.nearest(some, rough.centers_[9])[1]
        if model.inertia_ > 1.01 * (sq_dists.sum() if weights is None else weights[inside] @ sq_dists):
            stuck += 1
            breaths = shoal.BreathingKMeans(9, m=1, tol=1e-3, random_state=trial + 1)
            breaths.set_params(init=model.cluster_centers_).fit(some, **options)
            model.set_params(init=breaths.cluster_centers_).fit(some, **options)
        found.append(agreement(labels[inside], model.labels_))
    assert stuck
    assert 0.0 < np.mean(found) < 0.8
    assert rough.table_["stability"][0] == pytest.approx(np.mean(found), rel=1e-12)
    assert rough.table_["stability_std"][0] == pytest.approx(np.std(found), rel=1e-12)


# ---------------------------------------------------------------- callbacks, plot, errors


def test_callbacks_and_progress(capfd, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    seen = []

    def stop_at_3(selection, step):
        seen.append((selection.table_["n_clusters"][-1], step.iteration, step.batch_size))
        return len(seen) == 2

    found = shoal.select_n_clusters(
        spaced_blobs(), range(2, 9), callbacks=[stop_at_3], random_state=0, verbose=1
    )
    assert seen == [(2, 1, 320), (3, 2, 320)]
    assert found.table_["n_clusters"].tolist() == [2, 3]
    shown = capfd.readouterr().err
    assert "select_n_clusters:  29%" in shown
    assert "2/7" in shown
    assert "nan" not in shown
    with pytest.raises(ValueError, match="does not go with a selection"):
        shoal.select_n_clusters(spaced_blobs(), [2], callbacks=[shoal.callbacks.Checkpoint("x.safetensors")])


def test_an_interrupt_ends_the_selection():
    def interrupt(selection, step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shoal.select_n_clusters(spaced_blobs(), [2, 3], callbacks=[interrupt])


def test_the_plot(tmp_path):
    pytest.importorskip("matplotlib")
    found = shoal.select_n_clusters(spaced_blobs(), range(1, 7), random_state=0)
    figure = found.plot(tmp_path / "k.png")
    assert len(figure.axes) == len(CRITERIA)
    assert (tmp_path / "k.png").read_bytes().startswith(b"\x89PNG")
    assert {text.get_text() for axes in figure.axes for text in axes.get_legend().get_texts()} >= {
        "silhouette: 4",
        f"elbow: {found.suggestions_['elbow']}",
    }


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"ks": 5}, TypeError, "ks must be an iterable of integers, got 5"),
        ({"ks": "25"}, ValueError, "ks must be an iterable"),
        ({"ks": []}, ValueError, "ks must not be empty"),
        ({"ks": [2, 0]}, ValueError, "ks must be an integer of at least 1, got 0"),
        ({"ks": [2.5]}, ValueError, "ks must be an integer"),
        ({"ks": [2, 321]}, ValueError, "ks must be at most the number of rows, 320, got 321"),
        ({"ks": range(1, 10**30)}, ValueError, "ks must hold at most 100000 numbers of clusters, got more"),
        ({"ks": itertools.count(2)}, ValueError, "ks must hold at most 100000 numbers of clusters, got more"),
        ({"criterion": "gap"}, ValueError, "criterion must be one of auto, elbow"),
        ({"n_resamples": -1}, ValueError, "n_resamples must be an integer of at least 0"),
        ({"estimator": shoal.KMeans}, TypeError, "estimator must be an estimator of shoal with centers"),
        ({"estimator": shoal.LaplacianKModes()}, TypeError, "estimator must be"),
        ({"verbose": "yes"}, ValueError, "verbose must be"),
        ({"sample_weight": [1.0]}, ValueError, "sample_weight has 1 values"),
    ],
)
def test_bad_input(options, error, message):
    ks = options.pop("ks", [2, 3])
    with pytest.raises(error, match=message):
        shoal.select_n_clusters(spaced_blobs(), ks, **options)


def test_an_iterator_is_too_short():
    with pytest.raises(ValueError, match="select_n_clusters reads its rows more than once"):
        shoal.select_n_clusters(iter([spaced_blobs()]), [2])
