"""Model files that the Rust crate and the Python package exchange."""

import json

import numpy as np
import pytest
import shoal
from shoal import _core

#: Arrays of the files, with type and number of dimensions. `tests/all/models.rs` has the same table.
CENTERS = {"cluster_centers": ("float64", 2), "counts": ("float64", 1), "history": ("float64", 2)}
MIXTURE = CENTERS | {
    "lower_bounds": ("float64", 1),
    "neighbors": ("int32", 2),
    "variances": ("float64", 1),
    "weights": ("float64", 1),
}
MODES = {
    "affinity_columns": ("int32", 1),
    "affinity_starts": ("int64", 1),
    "affinity_weights": ("float64", 1),
    "energies": ("float64", 1),
    "history": ("float64", 2),
    "labels": ("int32", 1),
    "loops": ("int64", 1),
    "mode_indices": ("int64", 1),
    "modes": ("float64", 2),
    "responsibilities": ("float64", 2),
    "watched": ("float64", 1),
}
#: Only Python stores the rows of the fit, and the state for further calls of `partial_fit`.
OF_PYTHON = ("rows", "state.")

ESTIMATORS = [
    (shoal.KMeans, CENTERS),
    (shoal.MiniBatchKMeans, CENTERS),
    (shoal.NestedMiniBatchKMeans, CENTERS),
    (shoal.BackwardEulerKMeans, CENTERS | {"step_sizes": ("float64", 1)}),
    (shoal.VarianceReducedKMeans, CENTERS),
    (shoal.HierarchicalKMeans, CENTERS),
    (shoal.BreathingKMeans, CENTERS),
    (shoal.BalancedKMeans, CENTERS | {"prices": ("float64", 1)}),
    (shoal.TruncatedGaussianMixture, MIXTURE),
    (shoal.LaplacianKModes, MODES),
]

#: The texts that Rust writes for every kind.
COMMON = {"stop_reason": None, "stop_reasons": [], "feature_names": None, "n_iter": 2}
PHASES = {"seeding": 0.5, "sweeps": 0.25, "final": 0.0}


def corners():
    """Forty rows around two corners."""
    i = np.arange(40.0)
    return np.stack([i % 2, 1 - i % 2 + i * 1e-3], axis=1)


def written(path, kind, arrays, params, fitted):
    """Write a file as Rust does."""
    texts = {"params": json.dumps(params), "fitted": json.dumps(COMMON | fitted)}
    _core.save_model(str(path), kind, arrays | {"history": np.empty((0, 8))}, texts)
    return shoal.load(path)


@pytest.mark.parametrize(("estimator", "expected"), ESTIMATORS)
def test_python_writes_the_arrays_that_rust_reads(tmp_path, estimator, expected):
    """Both sides agree on names, types and dimensions of the arrays."""
    path = tmp_path / "model.safetensors"
    estimator(2, random_state=0).fit(corners()).save(path)
    _, arrays, _ = _core.load_model(str(path))
    found = {name: (str(array.dtype), array.ndim) for name, array in arrays.items()}
    found = {name: about for name, about in found.items() if not name.startswith(OF_PYTHON)}
    assert found == expected


def test_a_mixture_of_rust_is_loaded(tmp_path):
    """Rust stores fewer parameters than Python; the others have their defaults."""
    fitted = shoal.TruncatedGaussianMixture(2, random_state=0).fit(corners())
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    _, arrays, _ = _core.load_model(str(path))
    bounds = fitted.lower_bounds_
    again = written(
        path,
        "gaussian-mixture-model",
        arrays,
        {"n_components": 2, "n_active": 2, "n_neighbors": 2, "covariance_type": "tied_spherical"},
        {"n_iter": len(bounds), "inertia": None, "init": "afk-mc2", "timings": PHASES, "converged": True},
    )
    assert again.lower_bound_ == fitted.lower_bound_
    assert (again.predict(corners()) == fitted.predict(corners())).all()
    assert (again.score_samples(corners()) == fitted.score_samples(corners())).all()


def test_a_k_modes_model_of_rust_is_loaded_without_rows(tmp_path):
    """Rust does not store the rows of the fit, so Python cannot predict."""
    fitted = shoal.LaplacianKModes(2, random_state=0).fit(corners())
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    _, arrays, _ = _core.load_model(str(path))
    del arrays["rows"]
    again = written(
        path,
        "laplacian-kmodes-model",
        arrays | {"responsibilities_rest": np.zeros((40, 1))},
        {"n_clusters": 2, "n_neighbors": 5, "normalize": True, "affinity": "knn", "mode_update": "byproduct"},
        {
            "bandwidth": fitted.bandwidth_,
            "laplacian_weight": fitted.laplacian_weight_,
            "collapsed": False,
            "shifted": False,
            "graph_method": "brute",
            "graph_recall": 1.0,
            "timings": {"graph": 0.0, "seeding": 0.0, "iterations": 0.5},
            "init": "k-means++",
        },
    )
    assert (again.labels_ == fitted.labels_).all()
    assert (again.modes_ == fitted.modes_).all()
    assert again.energy_ == fitted.energy_
    with pytest.raises(ValueError, match="needs the rows of the fit"):
        again.predict(corners())


def drawn(X, n_clusters, *, random_state):
    return X[random_state.choice(len(X), n_clusters, replace=False)]


def test_a_loaded_model_has_its_number_of_threads(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 3)) + 9 * np.eye(3)[np.arange(60) % 3]
    for model in (
        shoal.KMeans(3, random_state=0, n_jobs=2),
        shoal.LaplacianKModes(3, random_state=0, n_jobs=2),
    ):
        model.fit(rows).save(tmp_path / "model.safetensors")
        assert shoal.load(tmp_path / "model.safetensors").n_jobs == 2


def test_one_warning_names_the_parameters_that_a_file_does_not_hold(tmp_path):
    rows, path = np.arange(60.0).reshape(20, 3), tmp_path / "model.safetensors"
    generator = np.random.RandomState(0)
    shoal.KMeans(3, init=drawn, n_init=1, random_state=generator).fit(rows).save(path)
    with pytest.warns(
        UserWarning, match=r"init='auto', random_state=None\. Set the parameters again"
    ) as told:
        model = shoal.load(path)
    assert len(told) == 1
    assert model.init_ == "callable"
    # A model without such parameters loads without a warning.
    model.set_params(random_state=0).fit(rows).save(path)
    assert shoal.load(path).init == "auto"
