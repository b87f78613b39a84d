"""Laplacian K-modes: what ``normalize="auto"`` and ``n_neighbors="auto"`` choose, and that it is kept."""

import json
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import shoal
from scipy.sparse.csgraph import connected_components
from shoal import LaplacianKModes
from shoal.callbacks import Checkpoint
from shoal.cli import main
from sklearn.cluster import SpectralClustering
from sklearn.datasets import load_digits
from sklearn.metrics import normalized_mutual_info_score

DIGITS = load_digits().data
#: Warnings about clusters and modes, which do not matter for the choices.
pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:The kernel with bandwidth:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Graph is not fully connected:UserWarning"),
]


def tables():
    """Return rows of many kinds, by name."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(1500, 20))
    sizes = np.exp(2 * rng.normal(size=(1500, 1)))
    counts = sp.random_array((700, 400), density=0.02, rng=rng, format="csr").toarray()
    return {
        "digits": DIGITS,
        "a plane": rng.normal(size=(200, 2)),
        "seven": rng.normal(size=(200, 7)),
        "eight": rng.normal(size=(200, 8)),
        "a table": table,
        "one large feature": table * np.r_[100, np.ones(19)] + 300 * (np.arange(20) == 0),
        "multiples of a row": sizes * (table[0] + 0.1 * table),
        "counts": counts * np.exp(3 * rng.normal(size=(700, 1))),
        "counts and a constant": counts * np.exp(3 * rng.normal(size=(700, 1))) + 1e-3,
    }


def scaled_by_the_rule(X):
    """Return the choice as the documentation states it."""
    if X.shape[1] < 8:
        return False
    count = min(1024, len(X))
    some = X[[i * len(X) // count for i in range(count)]]
    lengths = np.sqrt((some**2).sum(axis=1)).var()
    return bool((some != 0).mean() <= 0.1 or lengths < 0.99 * some.var(axis=0).sum())


@pytest.mark.parametrize("name", tables())
def test_the_rule_for_scaling(name, tmp_path):
    X = tables()[name]
    wanted = scaled_by_the_rule(X)
    params = {"n_clusters": 4, "random_state": 0, "max_iter": 2}
    model = LaplacianKModes(**params).fit(X)
    assert model.normalize_ is wanted
    given = LaplacianKModes(normalize=wanted, **params).fit(X)
    assert (model.labels_ == given.labels_).all()
    assert (model.modes_ == given.modes_).all()
    path = tmp_path / "rows.npy"
    np.save(path, X)
    for rows in (X.astype(np.float32), sp.csr_matrix(X), path, shoal.open(path).slice(0, len(X))):
        assert LaplacianKModes(**params).fit(rows).normalize_ is wanted


def test_both_choices_occur():
    assert {scaled_by_the_rule(X) for X in tables().values() if X.shape[1] >= 8} == {False, True}


@pytest.mark.parametrize("X", [DIGITS[:300], DIGITS[:300, 20:22] + 1.0], ids=["scaled", "unscaled"])
def test_choices_are_kept(X, tmp_path):
    path = tmp_path / "fit.safetensors"
    params = {"n_clusters": 3, "random_state": 0}
    whole = LaplacianKModes(**params).fit(X)
    steps = LaplacianKModes(callbacks=[Checkpoint(path, every_steps=1)], **params).iter_fit(X)
    next(steps)
    steps.close()
    resumed = shoal.resume(path, X)
    whole.save(tmp_path / "model.safetensors")
    loaded = shoal.load(tmp_path / "model.safetensors")
    for again in (resumed, loaded, pickle.loads(pickle.dumps(whole))):
        assert (again.normalize, again.n_neighbors) == ("auto", "auto")
        assert (again.normalize_, again.n_neighbors_) == (whole.normalize_, whole.n_neighbors_)
        assert (again.labels_ == whole.labels_).all()
        assert (again.predict(X) == whole.predict(X)).all()
    assert resumed.energy_ == whole.energy_


def lines(gap):
    """Return the rows of two parallel lines with a gap after every sixth row, and the lines of the rows."""
    i = np.arange(120)
    return np.column_stack([i % 60 + gap * (i % 60 // 6), (i // 60 + 1) * 500.0]), i // 60


def parts(graph):
    """Return the number of components that are not small, and their share of the rows, for two clusters."""
    sizes = np.bincount(connected_components(graph, directed=False)[1])
    large = sizes[sizes >= 0.1 * graph.shape[0] / 2]
    return len(large), large.sum() / graph.shape[0]


def test_a_graph_does_not_fall_apart():
    X, line = lines(gap=9)
    found = LaplacianKModes(2, random_state=0).fit(X)
    assert found.n_neighbors_ == 6
    assert normalized_mutual_info_score(line, found.labels_) == pytest.approx(1)
    fixed = LaplacianKModes(2, n_neighbors=5, random_state=0).fit(X)
    assert (fixed.n_neighbors_, parts(fixed.affinity_)[0]) == (5, 20)
    same = LaplacianKModes(2, n_neighbors=6, random_state=0).fit(X)
    assert (same.affinity_ != found.affinity_).nnz == 0
    assert (same.bandwidth_, same.laplacian_weight_) == (found.bandwidth_, found.laplacian_weight_)
    # New rows are labeled by as many neighbors.
    assert (found.predict(X + 0.1) == same.predict(X + 0.1)).all()


@pytest.mark.parametrize("seed", range(6))
def test_the_number_of_neighbors_is_the_smallest(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(rng.integers(50, 900), 2)) ** rng.uniform(1, 3)
    model = LaplacianKModes(2, max_iter=1, random_state=0).fit(X)
    for m in range(5, model.n_neighbors_ + 1):
        count, share = parts(shoal.knn_graph(X, m))
        assert (count <= 2 and share >= 0.5) == (m == model.n_neighbors_)


@pytest.mark.filterwarnings("ignore:.*found no clusters")
def test_duplicates_and_few_rows():
    model = LaplacianKModes(2, bandwidth=1.0, random_state=0).fit(np.repeat(np.eye(30)[:, :3], 50, axis=0))
    assert model.n_neighbors_ == 5
    assert LaplacianKModes(2, random_state=0).fit(np.arange(4.0)[:, None] ** 2).n_neighbors_ == 3
    with pytest.raises(ValueError, match="at least 2 rows for a neighbor graph, got n_samples=1"):
        LaplacianKModes(1).fit([[1.0, 2.0]])


def test_rows_on_a_ray():
    """Scaled to length 1, all of these rows are equal."""
    x = np.r_[np.linspace(1, 2, 40), np.linspace(5, 6, 40)]
    for X in (x[:, None], np.outer(x, [1.0, 2.0]), np.outer(x, np.arange(1.0, 41.0))):
        model = LaplacianKModes(2, random_state=0).fit(X)
        assert not model.normalize_
        assert normalized_mutual_info_score(np.repeat([0, 1], 40), model.labels_) == pytest.approx(1)


def test_a_path_scales_samples_like_all_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 20))
    given = {"n_resamples": 2, "random_state": 0, "init": "k-means++"}
    table = shoal.laplacian_path(X, 3, **given)
    assert (table == shoal.laplacian_path(X, 3, normalize=True, **given)).all()


def test_the_command_line_shows_the_choices(tmp_path, capsys):
    np.save(tmp_path / "rows.npy", lines(gap=9)[0])
    fit = [
        "fit",
        str(tmp_path / "rows.npy"),
        "-k",
        "2",
        "--method",
        "kmodes",
        "--seed",
        "0",
        "--quiet",
        "--json",
    ]
    for given, chosen in (
        ([], (False, 6)),
        (["normalize=auto", "n_neighbors=auto"], (False, 6)),
        (["normalize=true", "n_neighbors=7"], (True, 7)),
    ):
        options = [word for name in given for word in ("--set", name)]
        assert main([*fit, *options]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["normalize"], told["n_neighbors"]) == chosen


def test_invalid_values():
    with pytest.raises(
        ValueError, match=r"n_neighbors must be 'auto' or .*, got 0.*normalize must be 'auto'"
    ):
        LaplacianKModes(2, n_neighbors=0, normalize="yes").fit(DIGITS)
    with pytest.raises(ValueError, match="normalize must be False for n_features=1"):
        LaplacianKModes(2, metric="cosine").fit(DIGITS[:, 20:21])


def test_shapes(shoal_data):
    """On real sets of shapes, the labels are better than those of spectral clustering on the same graph."""
    found = []
    for name in ("atom", "chainlink", "hepta", "lsun", "target", "tetra", "twodiamonds", "wingnut"):
        X, y = (shoal_data("gagolews_a", f"fcps/{name}/{part}") for part in ("X", "y0"))
        k = len(np.unique(y))
        model = LaplacianKModes(k, random_state=0).fit(X)
        spectral = SpectralClustering(k, affinity="precomputed", random_state=0).fit(model.affinity_)
        means = shoal.KMeans(k, random_state=0).fit(X)
        found.append([normalized_mutual_info_score(y, one.labels_) for one in (model, spectral, means)])
    ours, spectral, means = np.mean(found, axis=0)
    assert ours >= spectral - 1e-3
    assert ours >= means + 0.2
