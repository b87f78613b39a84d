"""Models of scikit-learn and faiss made from fitted models, and models made from scikit-learn."""

import json
import pickle
import subprocess
import sys

import faiss
import numpy as np
import pandas as pd
import pytest
import shoal
import sklearn.cluster
import sklearn.mixture
from converted import CLUSTERERS, COVARIANCES, TYPES, distinct_blobs, fitted, mixture, on_sphere, ran
from shoal.convert import from_sklearn, to_faiss, to_onnx, to_sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

# -------------------------------------------------------------------- scikit-learn


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", CLUSTERERS)
def test_a_clusterer_becomes_a_kmeans_of_sklearn(name, dtype):
    X, model = distinct_blobs(dtype), fitted(name, dtype)
    made = to_sklearn(model)
    assert type(made) is sklearn.cluster.KMeans
    assert made.cluster_centers_.dtype == dtype
    np.testing.assert_array_equal(made.cluster_centers_, model.cluster_centers_)
    np.testing.assert_array_equal(made.labels_, model.labels_)
    np.testing.assert_array_equal(made.predict(X), model.predict(X))
    np.testing.assert_allclose(
        made.transform(X), model.transform(X), atol=1e-2 if dtype == "float32" else 1e-9
    )
    assert made.score(X) == pytest.approx(model.score(X), rel=1e-4)
    assert (made.inertia_, made.n_iter_, made.n_features_in_) == (model.inertia_, model.n_iter_, 4)
    assert made.get_feature_names_out().tolist() == [f"kmeans{j}" for j in range(5)]
    assert made.get_params()["n_clusters"] == 5
    # The model is a copy.
    made.cluster_centers_[:] = 0
    assert model.cluster_centers_.any()


def test_the_kmeans_of_sklearn_can_be_used_without_shoal(tmp_path):
    X, model = distinct_blobs(), fitted()
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(to_sklearn(model)))
    np.save(tmp_path / "X.npy", X)
    program = (
        "import pickle, sys, numpy as np; "
        "model = pickle.load(open('model.pkl', 'rb')); labels = model.predict(np.load('X.npy')); "
        "assert 'shoal' not in sys.modules; print(labels.tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=True, text=True, timeout=60
    )
    assert json.loads(done.stdout) == model.labels_.tolist()


def test_parameters_that_sklearn_shares_are_copied():
    start = distinct_blobs()[:5]
    model = shoal.KMeans(5, init=start, n_init=1, max_iter=17, tol=1e-3, copy_x=False, algorithm="elkan")
    X = distinct_blobs()
    made = to_sklearn(model.fit(X))
    params = made.get_params()
    assert params.pop("init") is start
    assert params.pop("algorithm") in ("elkan", "lloyd")
    expected = {"n_clusters": 5, "n_init": 1, "max_iter": 17, "tol": 1e-3, "copy_x": False}
    assert params == expected | {"random_state": None, "verbose": 0}
    again = clone(made).fit(X)
    np.testing.assert_allclose(again.cluster_centers_, model.cluster_centers_)


@pytest.mark.parametrize(
    ("random_state", "expected"), [(7, 7), (2**40, None), (np.random.default_rng(0), None), (None, None)]
)
def test_random_states_that_sklearn_does_not_take_are_left_out(random_state, expected):
    made = to_sklearn(shoal.KMeans(2, init="afk-mc2", random_state=random_state).fit(distinct_blobs()))
    assert made.random_state == expected
    assert (made.init, made.n_init) == ("k-means++", "auto")
    clone(made).fit(distinct_blobs())
    model = shoal.TruncatedGaussianMixture(2, n_active=2, n_neighbors=2, random_state=random_state)
    assert to_sklearn(model.fit(distinct_blobs())).random_state == expected


def test_feature_names_go_both_ways():
    X = pd.DataFrame(distinct_blobs(), columns=list("abcd"))
    model = shoal.KMeans(5, random_state=0).fit(X)
    made = to_sklearn(model)
    assert made.feature_names_in_.tolist() == list("abcd")
    np.testing.assert_array_equal(made.predict(X), model.labels_)
    with pytest.raises(ValueError, match="feature names"):
        made.predict(X[list("dcba")])
    assert from_sklearn(made).feature_names_in_.tolist() == list("abcd")
    batches = sklearn.cluster.MiniBatchKMeans(5, random_state=0, n_init=1).fit(X)
    assert from_sklearn(batches).partial_fit(X).feature_names_in_.tolist() == list("abcd")
    model = shoal.TruncatedGaussianMixture(5, random_state=0).fit(X)
    assert from_sklearn(to_sklearn(model)).feature_names_in_.tolist() == list("abcd")


def test_a_loaded_model_has_no_labels_for_sklearn(tmp_path):
    fitted().save(tmp_path / "model.safetensors")
    model = shoal.load(tmp_path / "model.safetensors")
    made = to_sklearn(model)
    assert not hasattr(made, "labels_")
    assert made.inertia_ == model.inertia_
    np.testing.assert_array_equal(made.predict(distinct_blobs()), model.predict(distinct_blobs()))
    back = from_sklearn(made)
    assert not hasattr(back, "labels_")
    assert back.counts_.tolist() == [0.0] * 5


def test_cosine_warns_that_sklearn_does_not_normalize():
    X = distinct_blobs()
    model = shoal.KMeans(5, metric="cosine", random_state=0).fit(X)
    with pytest.warns(UserWarning, match="make_pipeline") as caught:
        made = to_sklearn(model)
    assert caught[0].filename == __file__
    assert type(made) is sklearn.cluster.KMeans
    np.testing.assert_array_equal(make_pipeline(Normalizer(), made).predict(X), model.labels_)
    model = mixture(metric="cosine")
    with pytest.warns(UserWarning, match="make_pipeline"):
        made = to_sklearn(model)
    np.testing.assert_array_equal(make_pipeline(Normalizer(), made).predict(X), model.predict(X))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("algorithm", ["lloyd", "elkan"])
def test_a_kmeans_of_sklearn_becomes_one_of_shoal(algorithm, dtype, tmp_path):
    X = distinct_blobs(dtype)
    theirs = sklearn.cluster.KMeans(
        5, init="k-means++", n_init=3, max_iter=50, tol=1e-5, random_state=3, algorithm=algorithm
    ).fit(X)
    model = from_sklearn(theirs)
    assert type(model) is shoal.KMeans
    np.testing.assert_array_equal(model.cluster_centers_, theirs.cluster_centers_)
    assert model.cluster_centers_.dtype == dtype
    for found in (model, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(found.labels_, theirs.labels_)
        np.testing.assert_array_equal(found.predict(X), theirs.labels_)
        assert found.labels_.dtype == np.int32
        assert (found.inertia_, found.n_iter_) == (theirs.inertia_, theirs.n_iter_)
        assert found.counts_.tolist() == np.bincount(theirs.labels_).tolist()
        assert (found.algorithm_, found.init_, found.stop_reason_) == (algorithm, "k-means++", None)
        assert len(found.history_) == 0
    shared = {
        "n_clusters": 5,
        "init": "k-means++",
        "n_init": 3,
        "max_iter": 50,
        "tol": 1e-5,
        "random_state": 3,
    }
    assert shared.items() <= model.get_params().items()
    assert f"n={len(X)}" in repr(model)
    model.save(tmp_path / "model.safetensors")
    loaded = shoal.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(X), theirs.labels_)
    assert loaded.inertia_ == theirs.inertia_
    # The parameters are good for another fit, and the round trip loses nothing.
    assert clone(model).fit(X).inertia_ == pytest.approx(theirs.inertia_, rel=1e-4)
    back = to_sklearn(model)
    assert back.get_params() == theirs.get_params()
    np.testing.assert_array_equal(back.cluster_centers_, theirs.cluster_centers_)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("by_batches", [False, True])
def test_a_minibatch_kmeans_of_sklearn_learns_on(by_batches, dtype, tmp_path):
    X = distinct_blobs(dtype)
    theirs = sklearn.cluster.MiniBatchKMeans(5, random_state=0, batch_size=64, n_init=3, reassignment_ratio=0)
    theirs = theirs.partial_fit(X[:200]) if by_batches else theirs.fit(X)
    model = from_sklearn(theirs)
    assert type(model) is shoal.MiniBatchKMeans
    np.testing.assert_array_equal(model.cluster_centers_, theirs.cluster_centers_)
    np.testing.assert_array_equal(model.counts_, theirs._counts)
    np.testing.assert_array_equal(model.labels_, theirs.labels_)
    assert (model.n_steps_, model.batch_size) == (theirs.n_steps_, 64)
    assert model.n_iter_ == (0 if by_batches else theirs.n_iter_)
    model.save(tmp_path / "model.safetensors")
    for learner in (pickle.loads(pickle.dumps(model)), shoal.load(tmp_path / "model.safetensors"), model):
        learner.partial_fit(X[:50]).partial_fit(X[50:100])
        assert learner.n_steps_ == theirs.n_steps_ + 2
    # scikit-learn goes on to the same centers.
    theirs.partial_fit(X[:50]).partial_fit(X[50:100])
    np.testing.assert_allclose(model.cluster_centers_, theirs.cluster_centers_, rtol=1e-4)
    np.testing.assert_allclose(model.counts_, theirs._counts)


def test_an_empty_cluster_of_sklearn_keeps_its_place():
    X = np.array([[0.0], [1.0]])
    theirs = sklearn.cluster.MiniBatchKMeans(
        2, init=np.array([[0.5], [99.0]]), n_init=1, reassignment_ratio=0
    )
    model = from_sklearn(theirs.partial_fit(X))
    assert model.counts_.tolist() == [2.0, 0.0]
    assert model.partial_fit(X).cluster_centers_[1] == 99
    assert model.init_ == "array"


def test_callables_go_both_ways():
    def first(X, n_clusters, random_state):
        return X[:n_clusters]

    theirs = sklearn.cluster.KMeans(5, init=first, n_init=1).fit(distinct_blobs())
    model = from_sklearn(theirs)
    assert (model.init, model.init_) == (first, "callable")
    assert to_sklearn(model).init is first


def test_values_that_shoal_does_not_allow_are_named():
    theirs = sklearn.cluster.KMeans(5, n_init=1).fit(distinct_blobs())
    theirs.algorithm = "full"
    with pytest.raises(ValueError, match="algorithm must be one of"):
        from_sklearn(theirs)
    theirs.algorithm = "lloyd"
    theirs.cluster_centers_[2, 1] = np.nan
    with pytest.raises(ValueError, match="cluster_centers_ must be finite, got NaN at row 2, column 1"):
        from_sklearn(theirs)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("covariance_type", COVARIANCES)
def test_a_mixture_goes_both_ways(covariance_type, dtype, tmp_path):
    X, model = distinct_blobs(dtype), mixture(covariance_type, dtype, n_active=5)
    made = to_sklearn(model)
    assert type(made) is sklearn.mixture.GaussianMixture
    theirs = {"tied_spherical": "spherical", "factor": "full"}
    assert made.covariance_type == theirs.get(covariance_type, covariance_type)
    tolerance = 1e-3 if dtype == "float32" else 1e-9
    for found in (made, pickle.loads(pickle.dumps(made))):
        np.testing.assert_array_equal(found.means_, model.means_)
        np.testing.assert_array_equal(found.weights_, model.weights_)
        np.testing.assert_array_equal(found.predict(X), model.predict(X))
        np.testing.assert_allclose(found.score_samples(X), model.score_samples(X), atol=tolerance)
        np.testing.assert_allclose(found.predict_proba(X), model.predict_proba(X, dense=True), atol=tolerance)
        assert found.score(X) == pytest.approx(model.score(X), abs=tolerance)
        assert (found.converged_, found.n_iter_, found.n_features_in_) == (True, model.n_iter_, 4)
        assert found.lower_bound_ == model.lower_bound_
    assert made.sample(3)[0].shape == (3, 4)
    clone(made).fit(X)
    back = from_sklearn(made)
    np.testing.assert_array_equal(back.means_, model.means_)
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    np.testing.assert_allclose(back.lower_bounds_, model.lower_bounds_)
    assert back.neighbors_[:, 0].tolist() == list(range(5))
    back.save(tmp_path / "model.safetensors")
    loaded = shoal.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(loaded.score_samples(X), model.score_samples(X), atol=tolerance)


@pytest.mark.parametrize("covariance_type", ["spherical", "diag", "tied", "full"])
def test_a_mixture_of_sklearn_becomes_one_of_shoal(covariance_type):
    X = distinct_blobs("float32")
    theirs = sklearn.mixture.GaussianMixture(5, covariance_type=covariance_type, random_state=0).fit(X)
    model = from_sklearn(theirs)
    np.testing.assert_array_equal(model.predict(X), theirs.predict(X))
    np.testing.assert_allclose(model.predict_proba(X, dense=True), theirs.predict_proba(X), atol=1e-3)
    np.testing.assert_allclose(model.score_samples(X), theirs.score_samples(X), atol=1e-2)
    assert model.predict(X, search="neighbors").shape == (400,)
    assert (model.n_active, model.stopping, model.converged_) == (5, "per-weight", theirs.converged_)
    assert clone(model).fit(X).score(X) == pytest.approx(theirs.score(X), abs=0.2)


def test_equal_means_of_sklearn_are_allowed():
    theirs = sklearn.mixture.GaussianMixture(3, covariance_type="diag", random_state=0).fit(distinct_blobs())
    theirs.means_[1] = theirs.means_[2]
    model = from_sklearn(theirs)
    assert model.neighbors_[:, 0].tolist() == [0, 1, 2]
    assert all(sorted(row) == [0, 1, 2] for row in model.neighbors_.tolist())


# -------------------------------------------------------------------- faiss


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", CLUSTERERS)
def test_a_flat_index_finds_the_labels(name, dtype):
    X, model = distinct_blobs(dtype), fitted(name, dtype)
    index = to_faiss(model)
    assert type(index) is faiss.IndexFlatL2
    assert (index.ntotal, index.d) == (5, 4)
    stored = index.reconstruct_n(0, 5)
    np.testing.assert_array_equal(stored, model.cluster_centers_.astype(np.float32))
    sq_dists, ids = index.search(X.astype(np.float32), 1)
    np.testing.assert_array_equal(ids[:, 0], model.labels_)
    np.testing.assert_allclose(sq_dists[:, 0], model.transform(X).min(axis=1) ** 2, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_an_inverted_file_is_trained_and_empty(metric):
    X = distinct_blobs("float32")
    X = on_sphere(X).astype("float32") if metric == "cosine" else X
    model = shoal.KMeans(5, metric=metric, random_state=0).fit(X)
    index = to_faiss(model, index="ivf")
    assert type(index) is faiss.IndexIVFFlat
    assert (index.is_trained, index.ntotal, index.nlist) == (True, 0, 5)
    assert index.metric_type == (faiss.METRIC_INNER_PRODUCT if metric == "cosine" else faiss.METRIC_L2)
    index.add(X)
    # Every row is in the list of its label.
    for label in range(5):
        size = index.invlists.list_size(label)
        ids = faiss.rev_swig_ptr(index.invlists.get_ids(label), size)
        np.testing.assert_array_equal(np.sort(ids), np.flatnonzero(model.labels_ == label))
    index.nprobe = 5
    _, found = index.search(X[:50], 1)
    np.testing.assert_array_equal(found[:, 0], np.arange(50))
    again = faiss.deserialize_index(faiss.serialize_index(index))
    np.testing.assert_array_equal(again.search(X[:50], 3)[1], index.search(X[:50], 3)[1])


def test_a_flat_index_of_cosine_takes_rows_of_any_length():
    X = distinct_blobs("float32", d=6)
    model = shoal.KMeans(5, metric="cosine", random_state=0).fit(X)
    index = to_faiss(model)
    assert type(index) is faiss.IndexFlatIP
    for rows in (X, on_sphere(X).astype("float32")):
        products, ids = index.search(rows, 2)
        clear = products[:, 0] - products[:, 1] > 1e-5 * np.abs(products[:, 0])
        np.testing.assert_array_equal(ids[clear, 0], model.predict(rows)[clear])
        assert clear.mean() > 0.9


def test_what_faiss_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="index must be one of flat, ivf, got 'hnsw'"):
        to_faiss(fitted(), index="hnsw")
    with pytest.raises(ValueError, match="range of float32"):
        to_faiss(shoal.KMeans(2, random_state=0).fit(np.array([[0.0], [1e100]])))
    model = shoal.KMeans(2, metric="cosine", random_state=0).fit(distinct_blobs())
    model.cluster_centers_ = np.zeros((2, 4))
    with pytest.raises(ValueError, match="length 1, got 2 others"):
        to_faiss(model)
    with pytest.raises(ValueError, match="covariance_type='tied_spherical', got 'diag'"):
        to_faiss(mixture("diag"))


def test_a_mixture_with_a_shared_variance_becomes_an_index():
    X, model = distinct_blobs("float32"), mixture("tied_spherical", "float32")
    np.testing.assert_array_equal(to_faiss(model).search(X, 1)[1][:, 0], model.predict(X))


# -------------------------------------------------------------------- all


@pytest.mark.parametrize("convert", [to_sklearn, to_faiss, to_onnx])
def test_only_fitted_models_of_shoal_are_converted(convert):
    for unfitted in (
        shoal.KMeans(),
        shoal.MiniBatchKMeans(9).partial_fit([[1.0]]),
        shoal.TruncatedGaussianMixture(),
    ):
        with pytest.raises(NotFittedError):
            convert(unfitted)
    with pytest.raises(
        TypeError, match=r"TruncatedGaussianMixture of shoal, got LaplacianKModes.*all rows of the fit"
    ):
        convert(shoal.LaplacianKModes(2))
    with pytest.raises(TypeError, match=r"got 'model\.safetensors'\. Use shoal\.load"):
        convert("model.safetensors")
    with pytest.raises(TypeError, match=r"must be a fitted KMeans, .* of shoal, got KMeans"):
        convert(sklearn.cluster.KMeans(2, n_init=1).fit(distinct_blobs()))


def test_only_fitted_models_of_sklearn_are_taken():
    for unfitted in (
        sklearn.cluster.KMeans(),
        sklearn.cluster.MiniBatchKMeans(),
        sklearn.mixture.GaussianMixture(covariance_type="diag"),
    ):
        with pytest.raises(NotFittedError):
            from_sklearn(unfitted)
    for other in (sklearn.cluster.BisectingKMeans(2).fit(distinct_blobs()), fitted(), None):
        with pytest.raises(
            TypeError, match="KMeans, MiniBatchKMeans or GaussianMixture of scikit-learn, got"
        ):
            from_sklearn(other)


@pytest.mark.parametrize(("package", "convert"), [("faiss", to_faiss), ("onnx", to_onnx)])
def test_a_missing_package_is_named(package, convert, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"needs {package}: pip install 'shoal-cluster\[{package}\]'"):
        convert(fitted())


def test_the_packages_are_imported_on_first_use():
    # The programs assert: a failed one raises `CalledProcessError`.
    program = "import sys, shoal.convert; assert not {'faiss', 'onnx', 'onnxruntime'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    program = "import sys, shoal; assert 'shoal.convert' not in sys.modules; shoal.convert.to_faiss"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("convert", [to_sklearn, to_faiss, to_onnx])
def test_loaded_models_are_converted(convert, tmp_path):
    X = distinct_blobs()
    for model in (*(fitted(name) for name in CLUSTERERS), mixture("tied_spherical")):
        model.save(tmp_path / "model.safetensors")
        made = convert(shoal.load(tmp_path / "model.safetensors"))
        if convert is to_faiss:
            labels = made.search(X.astype("float32"), 1)[1][:, 0]
        else:
            labels = made.predict(X) if convert is to_sklearn else ran(made, X, "label")[0]
        np.testing.assert_array_equal(labels, model.predict(X))
