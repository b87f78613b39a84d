"""ONNX networks made from fitted models."""

import json
import warnings
from importlib import import_module

import numpy as np
import onnx
import pandas as pd
import pytest
import shoal
from converted import CLUSTERERS, COVARIANCES, TYPES, distinct_blobs, exact, fitted, mixture, on_sphere, ran
from hypothesis import example, given, settings
from hypothesis import strategies as st
from shoal.convert import to_onnx
from sklearn.exceptions import ConvergenceWarning


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", CLUSTERERS)
def test_a_network_computes_labels_and_distances(name, dtype):
    X, model = distinct_blobs(dtype), fitted(name, dtype)
    network = to_onnx(model)
    onnx.checker.check_model(network, full_check=True)
    labels, distances = ran(network, X)
    assert (labels.dtype, distances.dtype) == (np.int64, dtype)
    np.testing.assert_array_equal(labels, model.predict(X))
    np.testing.assert_allclose(
        distances, exact(X, model.cluster_centers_), rtol=2e-7 if dtype == "float32" else 1e-11
    )
    np.testing.assert_allclose(distances, model.transform(X), rtol=1e-3 if dtype == "float32" else 1e-9)
    # Any number of rows, also none.
    assert ran(network, X[:1])[1].shape == (1, 5)
    assert [len(output) for output in ran(network, X[:0])] == [0, 0]


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 7),
    st.integers(1, 9),
    st.sampled_from(TYPES),
    st.sampled_from([0.0, 1e3, -1e6]),
    st.sampled_from(["euclidean", "cosine"]),
    st.integers(0, 99),
)
@example(4, 2, "float32", -1e6, "cosine", 2)
def test_networks_of_any_shape_are_exact(k, d, dtype, away, metric, seed):
    X = distinct_blobs(dtype, k, d, 30, seed, away)
    model = shoal.KMeans(k, metric=metric, random_state=0, init=X[:k], n_init=1, max_iter=2)
    with warnings.catch_warnings():
        # On a line there are only two directions.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X)
    labels, distances = ran(to_onnx(model), X)
    rows = on_sphere(X.astype(np.float64)) if metric == "cosine" else X
    wanted = exact(rows, model.cluster_centers_)
    reach = max(1e-30, np.abs(rows - np.median(model.cluster_centers_, axis=0)).max())
    np.testing.assert_allclose(distances, wanted, rtol=1e-6, atol=3e-8 * reach * np.sqrt(d))
    near = np.sort(wanted, axis=1)
    # `predict` rounds the directions of rows to the type of the centers.
    blur = 4 * np.finfo(model.cluster_centers_.dtype).eps * np.sqrt(d) if metric == "cosine" else 0.0
    clear = np.ones(len(X), bool) if k == 1 else near[:, 1] - near[:, 0] > 1e-2 * near[:, 1] + blur
    np.testing.assert_array_equal(labels[clear], model.predict(X)[clear])


def test_rows_far_from_the_origin_keep_their_distances():
    X = distinct_blobs("float32", away=1e6)
    model = shoal.KMeans(5, random_state=0).fit(X)
    labels, distances = ran(to_onnx(model), X)
    np.testing.assert_array_equal(labels, model.labels_)
    np.testing.assert_allclose(distances, exact(X, model.cluster_centers_), rtol=1e-6)
    # One center far away does not spoil the others.
    model.cluster_centers_ = np.vstack([model.cluster_centers_[:4], np.full((1, 4), 1e20)]).astype("float32")
    distances = ran(to_onnx(model), X)[1]
    np.testing.assert_allclose(distances[:, :4], exact(X, model.cluster_centers_[:4]), rtol=1e-6)


@pytest.mark.parametrize("unit", [1e-200, 1e200, 5e-324])
def test_squares_neither_overflow_nor_vanish(unit):
    X = np.array([[1.0, 3.0], [2.0, 3.0], [90.0, 4.0], [91.0, 4.0]]) * unit
    model = fitted()
    model.cluster_centers_ = np.array([[90.0, 4.0], [1.0, 3.0]]) * unit
    model.n_features_in_ = 2
    labels, distances = ran(to_onnx(model), X)
    assert labels.tolist() == [1, 1, 0, 0]
    np.testing.assert_allclose(distances[:, 1] / unit, [0, 1, np.hypot(89, 1), np.hypot(90, 1)], rtol=0.1)


def test_the_lowest_index_wins_a_tie():
    model = fitted()
    model.cluster_centers_ = np.array([[5.0, 0, 0, 0], [1, 0, 0, 0], [-1, 0, 0, 0], [1, 0, 0, 0]])
    labels, distances = ran(to_onnx(model), np.zeros((1, 4)))
    assert (labels.tolist(), distances.tolist()) == ([1], [[5.0, 1.0, 1.0, 1.0]])


@pytest.mark.filterwarnings("ignore:.* rows? of X (is|are) all zeros:UserWarning")
@pytest.mark.parametrize("dtype", TYPES)
def test_a_network_of_cosine_normalizes(dtype):
    X = distinct_blobs(dtype)
    X[3] = 0
    model = shoal.KMeans(5, metric="cosine", random_state=0).fit(X)
    labels, distances = ran(to_onnx(model), X)
    np.testing.assert_allclose(distances[3], np.ones(5), rtol=1e-6)
    np.testing.assert_allclose(distances, exact(on_sphere(X), model.cluster_centers_), rtol=1e-4, atol=3e-7)
    near = np.sort(distances, axis=1)
    clear = near[:, 1] - near[:, 0] > 1e-3
    assert clear.sum() > 300
    np.testing.assert_array_equal(labels[clear], model.labels_[clear])
    tiny, huge = (1e-160, 1e160) if dtype == "float64" else (1e-25, 1e25)
    for factor in (tiny, huge):
        np.testing.assert_allclose(ran(to_onnx(model), (X * factor).astype(dtype))[1], distances, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.* rows? of X (is|are) all zeros:UserWarning")
@pytest.mark.parametrize("dtype", TYPES)
def test_a_network_of_cosine_labels_zeros_as_predict(dtype):
    seen = set()
    for seed in range(12):
        X = np.random.default_rng(seed).normal(size=(300, 6)).astype(dtype)
        model = shoal.KMeans(7, metric="cosine", max_iter=3, random_state=seed).fit(X)
        rows = np.vstack([np.zeros_like(X[:2]), X[:5]])
        labels, distances = ran(to_onnx(model), rows)
        np.testing.assert_array_equal(labels[:2], model.predict(rows)[:2])
        np.testing.assert_allclose(distances[:2], 1, rtol=1e-6)
        seen.add(int(labels[0]))
    assert len(seen) > 1


@pytest.mark.parametrize("covariance_type", COVARIANCES)
def test_a_network_of_a_cosine_mixture_normalizes(covariance_type):
    X = np.random.default_rng(0).normal(size=(400, 4)) * np.linspace(0.5, 20, 400)[:, None]
    model = mixture(covariance_type, metric="cosine", n_active=3).fit(X)
    labels, shares, density = ran(to_onnx(model), X, "label", "probabilities", "log_density")
    np.testing.assert_allclose(shares, model.predict_proba(X, dense=True), atol=1e-9)
    np.testing.assert_allclose(density, model.score_samples(X), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(labels, model.predict(X))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n_active", [2, 5])
@pytest.mark.parametrize("covariance_type", COVARIANCES)
def test_a_network_of_a_mixture(covariance_type, n_active, dtype):
    model = mixture(covariance_type, dtype, n_active=n_active)
    # Rows between the components, which share them.
    X = (distinct_blobs(dtype) + np.random.default_rng(1).normal(size=(400, 4)) * 10).astype(dtype)
    network = to_onnx(model)
    onnx.checker.check_model(network, full_check=True)
    labels, shares, density = ran(network, X, "label", "probabilities", "log_density")
    tolerance = 1e-3 if dtype == "float32" else 1e-9
    wanted = model.predict_proba(X, dense=True)
    np.testing.assert_allclose(shares, wanted, atol=tolerance)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)
    assert (np.count_nonzero(shares, axis=1) <= n_active).all()
    np.testing.assert_allclose(density, model.score_samples(X), rtol=tolerance)
    top = np.sort(wanted, axis=1)
    clear = top[:, -1] - top[:, -2] > 0.1
    np.testing.assert_array_equal(labels[clear], model.predict(X)[clear])
    assert (shares.dtype, density.shape) == (dtype, (400,))


def test_a_component_without_weight_is_never_chosen():
    model = mixture("spherical", n_active=5)
    model.weights_ = np.array([0.0, 0.25, 0.25, 0.25, 0.25])
    labels, shares, density = ran(to_onnx(model), distinct_blobs())
    np.testing.assert_array_equal(labels, model.predict(distinct_blobs()))
    assert not shares[:, 0].any()
    assert np.isfinite(density).all()


def test_the_network_names_its_origin():
    X = pd.DataFrame(distinct_blobs("float32"), columns=["a", "b", "ü", "d e"])
    network = to_onnx(shoal.KMeans(5, metric="cosine", random_state=0).fit(X))
    assert (network.producer_name, network.producer_version) == ("shoal", shoal.__version__)
    about = {entry.key: entry.value for entry in network.metadata_props}
    assert json.loads(about.pop("feature_names")) == ["a", "b", "ü", "d e"]
    assert about == {"estimator": "KMeans", "metric": "cosine"}
    assert [(entry.domain, entry.version) for entry in network.opset_import] == [("", 13)]
    shape = network.graph.input[0].type.tensor_type.shape.dim
    assert (shape[0].dim_param, shape[1].dim_value) == ("N", 4)
    assert [output.name for output in network.graph.output] == ["label", "distances"]
    assert "feature_names" not in {entry.key for entry in to_onnx(fitted()).metadata_props}


def test_the_type_of_the_input_can_be_chosen():
    X, model = distinct_blobs("float64"), fitted()
    labels, distances = ran(to_onnx(model, dtype="float32"), X.astype("float32"))
    assert distances.dtype == np.float32
    np.testing.assert_array_equal(labels, model.labels_)
    np.testing.assert_allclose(distances, model.transform(X), rtol=1e-5)
    assert ran(to_onnx(fitted(dtype="float32"), dtype="float64"), X)[1].dtype == np.float64
    with pytest.raises(ValueError, match="dtype must be one of float32, float64, got 'float16'"):
        to_onnx(model, dtype="float16")


def test_a_network_beyond_2_gb_is_refused(monkeypatch):
    monkeypatch.setattr(import_module("shoal.convert.onnx"), "MOST_BYTES", 100)
    with pytest.raises(ValueError, match="at most 2 GB"):
        to_onnx(fitted())
