"""Coresets as X: their points and weights."""

import pickle
import warnings

import ml_dtypes
import numpy as np
import pytest
import shoal
from hypothesis import given, settings
from hypothesis import strategies as st
from loader import WEIGHTED, Loader, X, parts
from shoal import cli
from sklearn.base import clone

CORESET = shoal.lightweight_coreset(X, 120, random_state=0)


@pytest.mark.parametrize("estimator", WEIGHTED.values(), ids=WEIGHTED)
def test_a_coreset_gives_the_bits_of_its_points_and_weights(estimator, tmp_path):
    CORESET.save(tmp_path / "c.npz")
    expected = clone(estimator).fit(CORESET.points, sample_weight=CORESET.weights)
    for rows in (CORESET, tmp_path / "c.npz", shoal.open(CORESET)):
        model = clone(estimator).fit(rows)
        assert parts(model) == parts(expected)
        assert model.score(rows) == expected.score(CORESET.points, sample_weight=CORESET.weights)
    stepped = clone(estimator)
    for _ in stepped.iter_fit(CORESET):
        pass
    assert parts(stepped) == parts(expected)
    labels = clone(estimator).fit_predict(CORESET.points, sample_weight=CORESET.weights)
    np.testing.assert_array_equal(clone(estimator).fit_predict(CORESET), labels)


@given(st.integers(1, 60), st.integers(0, 2**32), st.booleans())
@settings(max_examples=20, deadline=None)
def test_any_coreset_gives_the_bits_of_its_points_and_weights(size, seed, wide):
    rows = X.astype("f8") if wide else X
    coreset = shoal.lightweight_coreset(rows, size, random_state=seed)
    k = min(3, size)
    one = shoal.KMeans(k, random_state=seed, max_iter=5)
    other = clone(one)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert parts(one.fit(coreset)) == parts(other.fit(coreset.points, sample_weight=coreset.weights))


@pytest.mark.parametrize("name", ["MiniBatchKMeans", "NestedMiniBatchKMeans", "BackwardEulerKMeans"])
def test_partial_fit_of_a_coreset(name):
    one, other = clone(WEIGHTED[name]), clone(WEIGHTED[name])
    for _ in range(2):
        one.partial_fit(CORESET)
        other.partial_fit(CORESET.points, sample_weight=CORESET.weights)
    assert parts(one) == parts(other)
    with pytest.raises(ValueError, match="sample_weight must be None for rows that have weights"):
        one.partial_fit(CORESET, sample_weight=CORESET.weights)


def test_functions_take_coresets():
    points, weights, _ = CORESET
    for how in (shoal.kmeans_plusplus, shoal.afkmc2, shoal.kmeans_parallel):
        one = how(CORESET, 5, random_state=0)
        other = how(points, 5, sample_weight=weights, random_state=0)
        np.testing.assert_array_equal(one[1], other[1])
    one = shoal.lightweight_coreset(CORESET, 40, random_state=0)
    other = shoal.lightweight_coreset(points, 40, sample_weight=weights, random_state=0)
    np.testing.assert_array_equal(one.weights, other.weights)
    np.testing.assert_array_equal(one.points, points[one.indices])
    centers = points[:3]
    assert shoal.metrics.inertia(CORESET, centers) == shoal.metrics.inertia(points, centers, weights)
    assert shoal.metrics.inertia(CORESET, centers) != shoal.metrics.inertia(points, centers)
    one = shoal.StreamingCoreset(40, random_state=0).partial_fit(CORESET).result()
    other = shoal.StreamingCoreset(40, random_state=0).partial_fit(points, sample_weight=weights).result()
    np.testing.assert_array_equal(one.weights, other.weights)
    for use in (
        lambda given_weights: shoal.KMeans(2).fit(CORESET, sample_weight=given_weights),
        lambda given_weights: shoal.KMeans(2).fit(X).score(CORESET, sample_weight=given_weights),
        lambda given_weights: shoal.metrics.inertia(CORESET, centers, given_weights),
        lambda given_weights: shoal.kmeans_plusplus(CORESET, 2, sample_weight=given_weights),
        lambda given_weights: shoal.StreamingCoreset(9).partial_fit(CORESET, sample_weight=given_weights),
    ):
        for given_weights in (weights, 1.0):
            with pytest.raises(ValueError, match="sample_weight must be None for rows that have weights"):
                use(given_weights)


def test_callbacks_weight_the_held_out_coreset():
    curve = shoal.callbacks.ValidationCurve(CORESET)
    model = shoal.KMeans(3, random_state=0, callbacks=[curve]).fit(X)
    expected = -shoal.metrics.inertia(CORESET.points, model.cluster_centers_, CORESET.weights)
    assert curve.scores_[-1] == pytest.approx(expected, rel=1e-3)


def test_a_weighted_source(tmp_path):
    CORESET.save(tmp_path / "c.npz")
    for source in (shoal.open(CORESET), shoal.open(tmp_path / "c.npz")):
        np.testing.assert_array_equal(source.sample_weight, CORESET.weights)
        np.testing.assert_array_equal(source.slice(3, 9).sample_weight, CORESET.weights[3:9])
        assert "weighted" in repr(source)
        np.testing.assert_array_equal(np.asarray(source), CORESET.points)
    again = pickle.loads(pickle.dumps(source.slice(3, 9)))
    np.testing.assert_array_equal(again.sample_weight, CORESET.weights[3:9])
    assert shoal.open(X).sample_weight is None
    # An array of the file alone has no weights.
    assert shoal.open(tmp_path / "c.npz", key="points").sample_weight is None
    zero = CORESET._replace(weights=np.zeros(len(CORESET.weights)))
    with pytest.raises(ValueError, match="above 0"):
        shoal.KMeans(2).fit(zero)
    short = CORESET._replace(weights=CORESET.weights[:-1])
    with pytest.raises(ValueError, match="119 values, X has 120 rows"):
        shoal.KMeans(2).fit(short)


def test_transforms_keep_weights_and_types():
    source = shoal.open(CORESET)
    average = np.average(CORESET.points.astype("f8"), axis=0, weights=CORESET.weights)
    np.testing.assert_allclose(source.standardize().mean_, average, rtol=1e-5)
    for made in (source.normalize(), source.standardize()):
        np.testing.assert_array_equal(made.sample_weight, CORESET.weights)
        np.testing.assert_array_equal(made.slice(2, 9).sample_weight, CORESET.weights[2:9])
        expected = shoal.KMeans(3, random_state=0).fit(np.asarray(made), sample_weight=CORESET.weights)
        assert parts(shoal.KMeans(3, random_state=0).fit(made)) == parts(expected)
        with pytest.raises(ValueError, match="rows that have weights"):
            shoal.KMeans(3).fit(made, sample_weight=CORESET.weights)
    mapped = source.map(lambda block: block[:, :2])
    stream = shoal.open(lambda: iter([CORESET.points[:, :2]]))
    expected = shoal.KMeans(3, random_state=0).fit(stream, sample_weight=CORESET.weights)
    assert parts(shoal.KMeans(3, random_state=0).fit(mapped)) == parts(expected)
    small = X.astype(ml_dtypes.bfloat16)
    for rows in (small, Loader(small)):
        wide = np.asarray(shoal.open(rows))
        np.testing.assert_array_equal(
            np.asarray(shoal.open(rows).normalize()), np.asarray(shoal.open(wide).normalize())
        )
        np.testing.assert_array_equal(np.asarray(shoal.open(rows).map(lambda block: block + 1)), wide + 1)


def test_sparse_coresets(tmp_path):
    sparse = pytest.importorskip("scipy.sparse")
    rows = sparse.csr_array(np.where(X > 0.5, X, 0))
    coreset = shoal.lightweight_coreset(rows, 90, random_state=0)
    coreset.save(tmp_path / "c.npz")
    expected = shoal.KMeans(3, random_state=0).fit(coreset.points, sample_weight=coreset.weights)
    for given_rows in (coreset, tmp_path / "c.npz"):
        assert parts(shoal.KMeans(3, random_state=0).fit(given_rows)) == parts(expected)
        assert shoal.open(given_rows).sparse


def test_weights_are_never_ignored_silently(tmp_path):
    CORESET.save(tmp_path / "c.npz")
    for rows in (CORESET, shoal.open(CORESET), tmp_path / "c.npz"):
        for use in (shoal.LaplacianKModes(2).fit, lambda rows: shoal.laplacian_path(rows, 2)):
            with pytest.raises(ValueError, match="takes rows without weights"):
                use(rows)
        with pytest.warns(UserWarning, match="knn_graph ignores the weights"):
            shoal.knn_graph(rows, 2)
        with pytest.warns(UserWarning, match="nearest ignores the weights"):
            shoal.nearest(rows, X[:2])
        for use in (shoal.write, shoal.shuffle):
            with pytest.raises(ValueError, match="rows must have no weights"):
                use(rows, tmp_path / "x.npy")
    with pytest.raises((TypeError, ValueError), match="block 0 of X"):
        shoal.KMeans(2).fit(lambda: iter([CORESET]))
    with pytest.raises(ValueError, match="without weights"):
        shoal.KMeans(2).fit(lambda: iter([shoal.open(CORESET)]))


def test_coreset_files_on_the_command_line(tmp_path, capsys):
    CORESET.save(tmp_path / "c.npz")
    name = str(tmp_path / "c.npz")
    assert (
        cli.main(["fit", name, "-k", "3", "--seed", "0", "--quiet", "-o", str(tmp_path / "m.safetensors")])
        == 0
    )
    expected = shoal.KMeans(3, random_state=0).fit(CORESET.points, sample_weight=CORESET.weights)
    np.testing.assert_array_equal(
        shoal.load(tmp_path / "m.safetensors").cluster_centers_, expected.cluster_centers_
    )
    assert cli.main(["info", name]) == 0
    assert "coreset" in capsys.readouterr().out
    for more in ([], ["--shuffle"]):
        options = ["-k", "3", "--methods", "kmeans", "--held-out", "30", "--quiet"]
        assert cli.main(["compare", name, *options, *more]) == 0
    assert cli.main(["fit", name, "-k", "3", "--method", "kmodes", "--quiet"]) == 1
    assert "takes rows without weights" in capsys.readouterr().err
