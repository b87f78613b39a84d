"""What a notebook shows of the objects of the package."""

import pickle

import numpy as np
import pytest
import shoal
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

X = np.array([[0.0], [0.25], [9.0], [9.25]])


def test_a_fitted_estimator_shows_its_figures(tmp_path):
    model = shoal.KMeans(2, random_state=0)
    assert repr(model) == "KMeans(n_clusters=2, random_state=0)"
    model.fit(X)
    shown = f"KMeans(n_clusters=2, random_state=0) <k=2, n=4, inertia=0.0625, sweeps={model.n_iter_}>"
    assert repr(model) == str(model) == shown
    assert repr(pickle.loads(pickle.dumps(model))) == shown
    assert repr(clone(model)) == "KMeans(n_clusters=2, random_state=0)"
    assert "inertia=0.0625" in model._repr_html_()
    assert "KMeans(n_clusters=2" in repr(make_pipeline(model))
    model.save(tmp_path / "model.safetensors")
    # Labels are not saved.
    assert repr(shoal.load(tmp_path / "model.safetensors")) == shown.replace(" n=4,", "")


def test_the_default_number_of_clusters_is_shown():
    model = shoal.KMeans(random_state=0, max_iter=1).fit(np.arange(40.0).reshape(20, 2))
    assert "<k=8, n=20, inertia=" in repr(model)


@pytest.mark.parametrize("name", ["NestedMiniBatchKMeans", "VarianceReducedKMeans", "BackwardEulerKMeans"])
def test_other_methods_count_iterations(name):
    model = getattr(shoal, name)(2, random_state=0).fit(X)
    assert f"<k=2, n=4, inertia={model.inertia_:.6g}, n_iter={model.n_iter_}>" in repr(model)


def test_no_pass_is_made_for_it():
    model = shoal.KMeans(2, random_state=0)
    for _ in model.iter_fit(X):
        assert "inertia" not in repr(model)
        assert "<k=2, n=4, sweeps=1>" in repr(model)
        assert model.__dict__["_labels"] is None
        break


def test_a_stream_without_a_length():
    model = shoal.MiniBatchKMeans(2, random_state=0)
    for block in (X[:3], X[3:]):
        model.partial_fit(block)
    assert repr(model).endswith("<k=2, sweeps=0>")


def test_a_mixture_shows_its_components():
    model = shoal.TruncatedGaussianMixture(2, random_state=0).fit(np.arange(100.0).reshape(50, 2))
    assert f"<k=2, n=50, n_iter={model.n_iter_}>" in repr(model)


def test_coresets_show_no_arrays():
    coreset = shoal.lightweight_coreset(np.repeat(X, 3, axis=1), 10)
    assert repr(coreset) == str(coreset) == "<Coreset: 4 x 3 float64, total weight 4>"
    sparse = shoal.lightweight_coreset(csr_array(X), 10)
    assert repr(sparse) == "<Coreset: 4 x 1 sparse float64, total weight 4>"
    stream = shoal.StreamingCoreset(2, random_state=0)
    assert repr(stream) == "StreamingCoreset(n_samples=2, random_state=0)"
    assert repr(stream.partial_fit(X)).endswith(f" <n=4, kept={stream.n_kept_}>")


def test_a_source():
    assert repr(shoal.open(X)) == "<DataSource array: 4 x 1 float64, access random>"
    assert type(shoal.open(X)).__module__ == "shoal.data"
