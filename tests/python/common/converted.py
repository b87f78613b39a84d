"""Fitted models that the tests of conversions share, and what their results must be."""

import numpy as np
import onnxruntime
import shoal

TYPES = ("float32", "float64")
CLUSTERERS = {
    "KMeans": {},
    "MiniBatchKMeans": {},
    "NestedMiniBatchKMeans": {"batch_size": 100},
    "VarianceReducedKMeans": {},
    "BreathingKMeans": {},
    "BalancedKMeans": {"size_max": 1.1},
    "BackwardEulerKMeans": {"init": "k-means++", "max_iter": 5},
}
COVARIANCES = ("tied_spherical", "spherical", "diag", "tied", "full", "factor")


def distinct_blobs(dtype="float64", k=5, d=4, n=400, seed=0, away=0.0):
    """Rows of clusters that lie far apart, so that no label is a near tie."""
    rng = np.random.default_rng(seed)
    middles = rng.permutation(k)[:, None] * 20 + rng.uniform(-3, 3, (k, d)) + away
    return (middles[np.arange(n) % k] + rng.normal(size=(n, d))).astype(dtype)


def fitted(name="KMeans", dtype="float64", k=5, **params):
    model = getattr(shoal, name)(k, random_state=0, **{**CLUSTERERS.get(name, {}), **params})
    return model.fit(distinct_blobs(dtype))


def mixture(covariance_type="diag", dtype="float64", **params):
    params = {"n_active": 2, "n_neighbors": 3, **params}
    model = shoal.TruncatedGaussianMixture(5, covariance_type=covariance_type, random_state=0, **params)
    return model.fit(distinct_blobs(dtype))


def ran(network, X, *outputs):
    """The outputs of a network, by onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(network.SerializeToString(), options)
    return session.run(list(outputs) or None, {"X": X})


def exact(X, centers):
    """Distances in float64, by differences."""
    X, centers = X.astype(np.float64), centers.astype(np.float64)
    return np.sqrt(((X[:, None] - centers) ** 2).sum(axis=2))


def on_sphere(X):
    lengths = np.linalg.norm(X.astype(np.float64), axis=1, keepdims=True)
    return X / np.where(lengths == 0, 1, lengths)
