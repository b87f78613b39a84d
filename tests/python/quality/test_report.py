"""Reports about clusters: measures, nearest and farthest rows, pairs, features, the page and the frame."""

import base64
import html.parser
import io
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import shoal
import sklearn.datasets
import sklearn.metrics
from generated import blobs
from shoal import metrics
from shoal._report import measuring
from shoal._report.extremes import Sample, Smallest
from shoal._report.measuring import Measured
from shoal._report.page import Markup, cells
from shoal._report.pictures import histogram


def by_definition(X, centers, labels, weights):
    """Measures per cluster, row by row."""
    apart = np.linalg.norm(X[:, None] - centers, axis=2)
    found = []
    for j in range(len(centers)):
        mine = np.flatnonzero(labels == j)
        own = apart[mine, j]
        other = np.delete(apart[mine], j, axis=1).min(axis=1)
        w = weights[mine]
        found.append(
            {
                "size": len(mine),
                "weight": w.sum(),
                "share": w.sum() / weights.sum(),
                "mean_distance": np.average(own, weights=w),
                "radius": own.max(),
                "cohesion": np.average((other - own) / np.maximum(own, other), weights=w),
                "exemplar": mine[own.argmin()],
                "outlier": mine[own.argmax()],
                "near": mine[np.argsort(own, kind="stable")],
                "far": mine[np.argsort(-own, kind="stable")],
            }
        )
    return found


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_measures_by_definition(weighted, given, monkeypatch):
    monkeypatch.setattr(measuring, "PART_BYTES", 8 * 4 * 37)
    X = blobs()
    weights = np.random.default_rng(1).uniform(0.5, 2.0, size=len(X)) if weighted else np.ones(len(X))
    model = shoal.KMeans(5, random_state=0, tol=0.0).fit(X)
    centers = model.cluster_centers_
    labels = np.random.default_rng(2).integers(5, size=len(X)) if given else model.labels_
    found = shoal.report(
        model,
        X,
        labels=labels if given else None,
        sample_weight=weights if weighted else None,
        n_exemplars=7,
        n_outliers=3,
    )
    expected = by_definition(X, centers, labels, weights)
    for j, one in enumerate(expected):
        near, far = one.pop("near"), one.pop("far")
        for name, value in one.items():
            assert found.table[name][j] == pytest.approx(value, rel=1e-9), name
        assert found.exemplars[j].tolist() == near[:7].tolist()
        assert found.outliers[j].tolist() == far[:3].tolist()
        assert found.outlier_distances[j][0] == found.table["radius"][j]
        assert found.exemplar_distances[j] == pytest.approx(np.linalg.norm(X[near[:7]] - centers[j], axis=1))
    assert (found.n_rows, found.n_features, found.n_clusters) == (400, 4, 5)
    off = np.square(X - centers[labels]).sum(axis=1)
    assert found.inertia == pytest.approx(weights @ off)
    options = {"sample_weight": weights, "centers": centers}
    assert found.silhouette == pytest.approx(metrics.silhouette_score(X, labels, **options))
    if not weighted and not given:
        assert found.davies_bouldin == pytest.approx(sklearn.metrics.davies_bouldin_score(X, labels))
        expected = sklearn.metrics.calinski_harabasz_score(X, labels)
        assert found.calinski_harabasz == pytest.approx(expected)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_only_shares_of_the_weight_matter(factor):
    X = blobs()
    weights = np.random.default_rng(1).uniform(0.1, 2.0, size=len(X))
    weights[::9] = 0.0
    model = shoal.KMeans(5, random_state=0).fit(X)
    # The only row with weight of its cluster.
    weights[np.flatnonzero(model.labels_ == 2)[1:]] = 0.0
    expected = shoal.report(model, X, sample_weight=weights)
    found = shoal.report(model, X, sample_weight=factor * weights)
    assert found.table["cohesion"][2] == 0.0
    assert found.features == expected.features
    assert found.inertia == pytest.approx(factor * expected.inertia, rel=1e-12)
    for name in ("silhouette", "calinski_harabasz", "davies_bouldin"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-12)
    for table, other in ((found.table, expected.table), (found.pairs, expected.pairs)):
        for name in table.dtype.names:
            scale = factor if name == "weight" else 1.0
            np.testing.assert_allclose(table[name], scale * other[name], rtol=1e-12)
    options = {"sample_weight": weights, "centers": model.cluster_centers_}
    assert found.silhouette == pytest.approx(metrics.silhouette_score(X, model.labels_, **options), rel=1e-12)


def test_pairs_and_closest_clusters():
    X = blobs(k=6)
    model = shoal.KMeans(6, random_state=0, tol=0.0).fit(X)
    found = shoal.report(model, X)
    scatter, centers = found.table["mean_distance"], model.cluster_centers_
    apart = np.linalg.norm(centers[:, None] - centers, axis=2)
    np.fill_diagonal(apart, np.inf)
    ratio = (scatter[:, None] + scatter) / apart
    assert found.table["closest"].tolist() == ratio.argmax(axis=1).tolist()
    assert found.table["overlap"] == pytest.approx(ratio.max(axis=1))
    pairs = found.pairs
    assert (np.diff(pairs["overlap"]) <= 0).all()
    assert (pairs["first"] < pairs["second"]).all()
    assert len({(p["first"], p["second"]) for p in pairs}) == len(pairs)
    at = np.unravel_index(ratio.argmax(), ratio.shape)
    assert {int(pairs["first"][0]), int(pairs["second"][0])} == {int(i) for i in at}
    off = centers[pairs["first"][0]] - centers[pairs["second"][0]]
    assert pairs["distance"][0] == pytest.approx(np.linalg.norm(off))


def test_features_that_distinguish_a_cluster():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 20))
    X[:100, 7] += 9
    X[:100, 3] -= 9
    X[:, 11] = 5.0
    model = shoal.KMeans(2, init=[X[0], X[200]], n_init=1).fit(X)
    found = shoal.report(model, X, n_features=2)
    off = (X[:100].mean(axis=0) - X.mean(axis=0)) / X.std(axis=0).clip(1e-300)
    parts = dict(part.split() for part in found.features[0].split(", "))
    assert set(parts) == {"x3", "x7"}
    assert float(parts["x7"]) == pytest.approx(off[7], abs=0.005)
    assert float(parts["x3"]) == pytest.approx(off[3], abs=0.005)
    iris = sklearn.datasets.load_iris(as_frame=True)["data"]
    model = shoal.KMeans(3, random_state=0).fit(iris)
    text = shoal.report(model, iris).features
    assert all("petal length (cm) " in line for line in text)
    assert shoal.report(model, iris, n_features=0).features == ["", "", ""]


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_any_source_gives_a_bit_identical_report(metric, tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "PART_BYTES", 8 * 4 * 100)
    X = blobs(n=1000, dtype=np.float32)
    np.save(tmp_path / "rows.npy", X)
    for i, part in enumerate(np.array_split(X, 3)):
        np.save(tmp_path / f"part-{i}.npy", part)
    model = shoal.KMeans(5, metric=metric, random_state=0).fit(X)
    weights = np.random.default_rng(0).uniform(size=1000)
    sources = [
        lambda: X,
        lambda: tmp_path / "rows.npy",
        lambda: str(tmp_path / "part-*.npy"),
        lambda: lambda: (X[i : i + 77] for i in range(0, 1000, 77)),
        lambda: (X[i : i + 333] for i in range(0, 1000, 333)),
    ]
    for given in (None, weights):
        found = [shoal.report(model, source(), sample_weight=given) for source in sources]
        assert len({one.to_html() for one in found}) == 1
        found.append(shoal.report(model.set_params(n_jobs=1), X, sample_weight=given))
        model.set_params(n_jobs=None)
        assert len({one.table.tobytes() + one.exemplars.tobytes() for one in found}) == 1
    sparse = shoal.report(model, scipy.sparse.csr_array(X))
    dense = shoal.report(model, X)
    assert sparse.table["size"].tolist() == dense.table["size"].tolist()
    assert sparse.table["mean_distance"] == pytest.approx(dense.table["mean_distance"], rel=1e-5)


def test_reports_compare_and_hash_by_identity():
    X = blobs()
    model = shoal.KMeans(3, random_state=0).fit(X)
    one, other = shoal.report(model, X), shoal.report(model, X)
    assert one == one
    assert one != other
    assert len({one, one, other}) == 2


def test_an_iterator_is_read_once():
    X = blobs()
    model = shoal.KMeans(3, random_state=0).fit(X)
    read = []

    def blocks():
        for start in range(0, 400, 90):
            read.append(start)
            yield X[start : start + 90]

    shoal.report(model, blocks())
    assert read == list(range(0, 400, 90))


@pytest.mark.parametrize(
    "model",
    [
        shoal.TruncatedGaussianMixture(3, random_state=0),
        shoal.LaplacianKModes(3, random_state=0),
        shoal.MiniBatchKMeans(3, random_state=0),
        shoal.KMeans(1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_models(model):
    X = blobs(k=3)
    model.fit(X)
    found = shoal.report(model, X)
    assert found.sizes.tolist() == np.bincount(model.predict(X), minlength=found.n_clusters).tolist()
    assert type(model).__name__ in found.model
    if found.n_clusters == 1:
        assert np.isnan(found.silhouette)
        assert len(found.pairs) == 0
        assert found.table["closest"].tolist() == [-1]
    for text in (str(found), found.to_html(), found._repr_html_()):
        assert "nan" not in text


def test_empty_clusters():
    X = blobs(k=2)
    model = shoal.KMeans(2, random_state=0).fit(X)
    far = shoal.KMeans(3, init=np.concatenate([model.cluster_centers_, [[1e3] * 4]]), n_init=1, max_iter=1)
    far.fit(X)
    far.cluster_centers_[2] = 1e3
    found = shoal.report(far, X)
    if found.sizes[2]:
        pytest.skip("the empty cluster was relocated")
    assert found.exemplars[2].tolist() == [-1] * 5
    assert np.isnan(found.table["radius"][2])
    assert found.features[2] == ""
    assert "nan" not in found.to_html() + str(found)


def test_the_frame(monkeypatch):
    X = blobs()
    found = shoal.report(shoal.KMeans(3, random_state=0).fit(X), X)
    frame = found.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == 3
    assert frame["size"].sum() == 400
    assert list(frame.columns) == [*found.table.dtype.names, "features"]
    monkeypatch.setitem(sys.modules, "pandas", None)
    other = found.to_frame()
    assert type(other).__module__.startswith("polars")
    assert other["size"].to_list() == frame["size"].tolist()
    monkeypatch.setitem(sys.modules, "polars", None)
    array = found.to_frame()
    assert array.dtype.names == tuple(frame.columns)
    assert array["features"].tolist() == found.features


class Elements(html.parser.HTMLParser):
    """Collects the elements of a page, and checks that they are closed."""

    VOID = ("meta", "img")

    def __init__(self, page):
        super().__init__()
        self.open, self.names, self.links = [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.names.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page(tmp_path):
    X = blobs(n=3000, d=12, k=4)
    names = [f"<b>{j}</b>" for j in range(12)]
    model = shoal.KMeans(4, random_state=0).fit(pd.DataFrame(X, columns=names))
    found = shoal.report(model, pd.DataFrame(X, columns=names), image_shape=(3, 4), title="A & B <i>")
    page = found.to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == page
    read = Elements(page)
    assert read.names.count("svg") == 2
    assert read.names.count("img") == 4
    # No other file is needed.
    assert all(link.startswith("data:image/png;base64,") for link in read.links)
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert read.names.count("circle") == measuring.SAMPLED + 4
    assert read.names.count("b") == 7
    assert "A &amp; B &lt;i&gt;" in page
    Elements(found._repr_html_())


def test_names_cannot_change_the_page_or_the_terminal():
    X = blobs(d=3)
    names = ["\x1b]0;x\x07\n", "</title><script>", "<\u202eb"]
    frame = pd.DataFrame(X, columns=names)
    title = "</title><script>\x1b[2J\udcff"
    found = shoal.report(shoal.KMeans(3, random_state=0).fit(frame), frame, title=title)
    text = str(found)
    assert all(character.isprintable() or character == "\n" for character in text)
    assert "\ufffd]0;x\ufffd  " in text
    # Three lines about the model, a head, and a line per cluster.
    assert text.partition("closest pairs")[0].rstrip().count("\n") == 7
    page = found.to_html()
    assert "<script" not in page
    assert page.count("&lt;/title&gt;&lt;script&gt;") >= 3
    assert not {"\x1b", "\x07", "\u202e", "\udcff"} & set(page)
    assert Elements(page).names.count("script") == 0
    # Values of the table are escaped too, whatever they begin with.
    assert cells(["<b>", Markup("<i></i>")]) == '<tr><td>&lt;b&gt;</td><td class="text"><i></i></td></tr>'


def test_parts_of_sparse_rows(monkeypatch):
    X = blobs(n=500, d=6)
    X[np.abs(X) < 4] = 0.0
    model = shoal.KMeans(2, random_state=0).fit(X)
    expected = shoal.report(model, X)
    parts, part = [], Measured._part
    monkeypatch.setattr(Measured, "_part", lambda self, seen, n: parts.append(n) or part(self, seen, n))
    monkeypatch.setattr(measuring, "PART_BYTES", 8 * 6 * 30)
    monkeypatch.setattr(measuring, "SPARSE_ROWS", 200)
    found = shoal.report(model, scipy.sparse.csr_array(X))
    assert parts == [0, 200, 400]
    assert found.exemplars.tolist() == expected.exemplars.tolist()
    # The picture is drawn from 30 dense rows at a time.
    assert found.point_labels.tolist() == expected.point_labels.tolist()
    assert found.center_points[:, 0] == pytest.approx(expected.center_points[:, 0])


def test_images_of_rows(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    X = np.random.default_rng(0).integers(0, 256, size=(60, 12), dtype=np.uint8)
    model = shoal.KMeans(2, random_state=0).fit(X)

    def sizes(source, shape):
        page = shoal.report(model, source, image_shape=shape).to_html()
        data = [link.partition(",")[2] for link in Elements(page).links]
        return [Image.open(io.BytesIO(base64.b64decode(one))) for one in data]

    for image in sizes(X, (3, 4)):
        # The center, five nearest and two farthest rows, with gaps between them.
        assert (image.size, image.mode) == ((8 * 4 + 7, 3), "L")
    for image in sizes(X, (2, 2, 3)):
        assert (image.size, image.mode) == ((8 * 2 + 7, 2), "RGB")
    # Streams show the centers only.
    assert [image.size for image in sizes(iter([X]), (3, 4))] == [(4, 3), (4, 3)]
    low, high = 0.0, 255.0
    first = np.asarray(sizes(iter([X]), (3, 4))[0], dtype=float)
    centers = model.cluster_centers_
    low, high = centers.min(), centers.max()
    largest = np.bincount(model.labels_).argmax()
    assert first.ravel() == pytest.approx((centers[largest] - low) * 255 / (high - low), abs=0.51)


def test_many_clusters(tmp_path):
    X = np.random.default_rng(0).normal(size=(2000, 2))
    model = shoal.KMeans(250, random_state=0, max_iter=2).fit(X)
    found = shoal.report(model, X)
    page = found.to_html()
    assert "The 200 largest of 250 are shown." in page
    assert Elements(page).names.count("tr") == 1 + 200 + 1 + len(found.pairs)
    assert "... and 230 smaller clusters" in str(found)


def test_histograms():
    for sizes in ([5], [3, 3, 3], list(range(100)), [1] * 90, [1] * 90 + [10**6]):
        picture = histogram(np.array(sizes))
        assert picture.count("<rect") == (len(sizes) if len(sizes) <= 80 else 40)
        Elements(picture)


def test_progress(capfd, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    X = blobs()
    model = shoal.KMeans(3, random_state=0).fit(X)
    shoal.report(model, X)
    assert capfd.readouterr().err == ""
    shoal.report(model, X, progress=True)
    shown = capfd.readouterr().err
    assert "report: 100%" in shown
    assert "400/400" in shown
    assert "nan" not in shown


def test_progress_without_tqdm_counts_rows(capfd, monkeypatch):
    X = blobs()
    model = shoal.KMeans(3, random_state=0).fit(X)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    shoal.report(model, lambda: iter(np.array_split(X, 4)), progress=True)
    last = capfd.readouterr().err.split("\r")[-1]
    assert last.startswith("report: 400 rows, ")
    bar = shoal.callbacks.ProgressBar()
    shoal.lightweight_coreset(X, 9, callbacks=[bar])
    assert capfd.readouterr().err.split("\r")[-1].startswith("shoal: 800 of 800 rows, ")
    # A fit shows its objective again.
    shoal.KMeans(3, random_state=0, callbacks=[bar]).fit(X)
    assert "objective" in capfd.readouterr().err


# ---------------------------------------------------------------- parts


def test_the_smallest_rows_of_any_parts():
    rng = np.random.default_rng(0)
    labels, keys = rng.integers(6, size=500).astype(np.int32), rng.integers(40, size=500).astype(float)
    for most, part in ((1, 500), (4, 7), (200, 33)):
        found = Smallest(7, most)
        for start in range(0, 500, part):
            found.add(labels[start : start + part], keys[start : start + part], start)
        for j in range(7):
            mine = np.flatnonzero(labels == j)
            mine = mine[np.argsort(keys[mine], kind="stable")][:most]
            assert found.rows[j][: len(mine)].tolist() == mine.tolist()
            assert (found.rows[j][len(mine) :] == -1).all()
            assert np.isinf(found.keys[j][len(mine) :]).all()
    Smallest(3, 0).add(np.zeros(2, dtype=np.int32), np.zeros(2), 0)


def test_the_sample_does_not_depend_on_parts():
    found = []
    for part in (1000, 64, 7):
        sample = Sample(50)
        for start in range(0, 1000, part):
            wanted = sample.wanted(start, min(part, 1000 - start))
            rows = wanted + start
            sample.add(rows, rows.astype(np.int32), np.column_stack([rows, rows]).astype(float))
        found.append(sample.labels.tolist())
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) == 50
    # Spread over all rows.
    assert 350 < np.mean(found[0]) < 650


@pytest.mark.parametrize(("k", "d"), [(1, 1), (2, 1), (1, 5), (2, 5), (7, 3), (30, 2)])
def test_the_axes_of_the_picture(k, d):
    rng = np.random.default_rng(0)
    centers, rows = rng.normal(size=(k, d)), rng.normal(size=(100, d))
    origin, axes = measuring.axes_of(centers, rows)
    assert axes.shape == (2, d)
    expected = np.eye(2) if d > 1 else np.diag([1.0, 0.0])
    assert axes @ axes.T == pytest.approx(expected, abs=1e-9)
    if k > 2 and d > 1:
        off = centers - centers.mean(axis=0)
        _, _, directions = np.linalg.svd(off)
        assert abs(axes[0] @ directions[0]) == pytest.approx(1.0)
        assert abs(axes[1] @ directions[1]) == pytest.approx(1.0)
    assert origin == pytest.approx(centers.mean(axis=0))


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_exemplars": -1}, ValueError, "n_exemplars must be an integer of at least 0, got -1"),
        ({"n_features": 1.5}, ValueError, "n_features must be an integer"),
        ({"image_shape": (3, 3)}, ValueError, "image_shape must be .* with 4 values as the rows have"),
        ({"image_shape": (1, 4, 2)}, ValueError, "image_shape"),
        ({"labels": [0, 1]}, ValueError, "labels has 2 values, X has 400 rows"),
        ({"labels": np.full(400, 3)}, ValueError, "labels must be integers from 0 to 2, got 3 to 3"),
        ({"labels": np.zeros(400)}, ValueError, "labels must be integers from 0 to 2, got float64"),
        ({"sample_weight": np.zeros(400)}, ValueError, "sample_weight must be above 0 for at least one row"),
        ({"sample_weight": np.ones(3)}, ValueError, "sample_weight has 3 values"),
    ],
)
def test_bad_options(options, error, message):
    X = blobs()
    model = shoal.KMeans(3, random_state=0).fit(X)
    with pytest.raises(error, match=message):
        shoal.report(model, X, **options)


def test_bad_rows_and_models():
    X = blobs()
    model = shoal.KMeans(3, random_state=0).fit(X)
    with pytest.raises(TypeError, match="model must be a fitted estimator of shoal, got int"):
        shoal.report(3, X)
    with pytest.raises(ValueError, match="not fitted"):
        shoal.report(shoal.KMeans(3), X)
    with pytest.raises(ValueError, match="features"):
        shoal.report(model, X[:, :3])
    for rows, n in ((350, 350), (450, 450)):
        stream = iter([np.resize(X, (rows, 4))])
        with pytest.raises(ValueError, match=f"labels has 400 values, X has (at least )?{n} rows"):
            shoal.report(model, stream, labels=model.labels_)
    bad = X.copy()
    bad[399, 2] = np.inf
    with pytest.raises(ValueError, match="row 399"):
        shoal.report(model, shoal.open(bad))


def test_an_interrupt_ends_the_report(tmp_path):
    X = blobs()
    model = shoal.KMeans(3, random_state=0).fit(X)

    def blocks():
        yield X
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shoal.report(model, blocks())
