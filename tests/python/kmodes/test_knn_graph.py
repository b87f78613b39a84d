"""Neighbor graphs: exact graphs compared with a slow reference, approximate ones by their recall."""

import numpy as np
import pytest
import scipy.sparse as sp
import shoal
from shoal.cli import main
from sklearn.datasets import load_digits
from slk_reference import neighbors

EXACT = ("auto", "exact", "kd-tree")


def parts(graph, m):
    return graph.indices.reshape(-1, m), graph.data.reshape(-1, m)


def check(m, graph, beyond):
    """Compare all distances, and all neighbors whose distance is not close to another."""
    wanted, true = beyond
    n = len(wanted)
    assert graph.shape == (n, n)
    assert graph.nnz == n * m
    assert graph.dtype == np.float64
    assert (np.diff(graph.indptr) == m).all()
    found, d = parts(graph, m)
    np.testing.assert_allclose(d, true[:, :m], rtol=1e-12, atol=0)
    clear = (np.diff(true, axis=1) > 1e-9 * true[:, :-1]).all(axis=1)
    assert clear.mean() > 0.9
    assert (found[clear] == wanted[clear, :m]).all()
    assert (found != np.arange(n)[:, None]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("shape", "m"),
    [((2, 1), 1), ((3, 7), 2), ((40, 1), 39), ((1100, 3), 1), ((600, 33), 70), ((560, 130), 5)],
)
def test_exact(shape, m, dtype):
    rng = np.random.default_rng(sum(shape))
    X = rng.normal(size=shape).astype(dtype)
    beyond = neighbors(X, min(m + 1, len(X) - 1))
    for method in EXACT:
        check(m, shoal.knn_graph(X, m, method=method), beyond)


@pytest.mark.parametrize("d", [2, 9, 40])
def test_ties_and_duplicates_are_ordered_by_index(d):
    rng = np.random.default_rng(d)
    # Distances of integers are exact, and most of them occur repeatedly.
    X = rng.integers(0, 3, size=(1150, d)).astype(np.float32)
    X[rng.integers(0, 1150, size=300)] = X[7]
    wanted, true = neighbors(X, 6)
    for method in EXACT:
        found, sq_dists = parts(shoal.knn_graph(X, 6, method=method), 6)
        assert (found == wanted).all()
        assert (sq_dists == true).all()


@pytest.mark.parametrize("method", EXACT)
def test_many_coinciding_rows(method):
    X = np.zeros((3000, 4), dtype=np.float32)
    X[::3] = 1.0
    found, sq_dists = parts(shoal.knn_graph(X, 3, method=method), 3)
    assert (sq_dists == 0).all()
    assert found[5].tolist() == [1, 2, 4]
    assert found[1].tolist() == [2, 4, 5]
    assert found[0].tolist() == [3, 6, 9]


def test_ivf_with_many_coinciding_rows():
    # Comparing or storing all pairs would take minutes and gigabytes.
    rng = np.random.default_rng(3)
    X = np.zeros((22_000, 16), dtype=np.float32)
    others = np.sort(rng.choice(len(X), 4000, replace=False))
    X[others] = rng.normal(size=(4000, 16))
    graph = shoal.knn_graph(X, 4, method="ivf")
    found, sq_dists = parts(graph, 4)
    alike = np.setdiff1d(np.arange(len(X)), others)
    assert (sq_dists[alike] == 0).all()
    assert (found[alike[4:]] == alike[:4]).all()
    assert found[alike[1]].tolist() == alike[[0, 2, 3, 4]].tolist()
    assert (sq_dists[others] > 0).all()


def test_ivf_finds_all_neighbors_if_a_third_of_the_rows_coincide():
    # Cells of several parts, and many equal distances.
    X = np.random.default_rng(4).integers(0, 9, size=(9000, 3)).astype(np.float32)
    X[6000:] = 1
    one, other = (shoal.knn_graph(X, 5, method=method, recall=1.0) for method in ("ivf", "kd-tree"))
    assert (one.indices == other.indices).mean() > 0.99
    assert (one.indices == other.indices)[5 * 6000 :].all()
    assert (one.data == other.data).mean() > 0.99


@pytest.mark.parametrize("method", [*EXACT, "ivf"])
def test_distances_that_overflow_are_refused(method):
    X = np.random.default_rng(0).normal(size=(50, 2))
    X[7] *= 1e154
    with pytest.raises(ValueError, match="overflow near row"):
        shoal.knn_graph(X, 2, method=method)


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e15])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_distant_huge_and_tiny_rows(offset, scale):
    rng = np.random.default_rng(4)
    X = ((rng.normal(size=(580, 20)) + offset) * scale).astype(np.float32)
    beyond = neighbors(X, 6)
    for method in EXACT:
        check(5, shoal.knn_graph(X, 5, method=method), beyond)


def test_outliers_do_not_reduce_precision():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(600, 30)).astype(np.float32)
    X[[3, 580]] *= 1e12
    check(4, shoal.knn_graph(X, 4, method="exact"), neighbors(X, 5))


def test_threads_and_sources_do_not_change_results(tmp_path):
    rng = np.random.default_rng(6)
    X = rng.integers(0, 40, size=(2600, 12)).astype(np.uint8)
    np.save(tmp_path / "rows.npy", X)
    first = shoal.knn_graph(X, 5, method="exact", n_jobs=1)
    others = [
        shoal.knn_graph(X, 5, method="exact", n_jobs=3),
        shoal.knn_graph(X, 5, method="kd-tree", n_jobs=2),
        shoal.knn_graph(np.asfortranarray(X), 5, method="exact"),
        shoal.knn_graph(X.astype(np.float32), 5, method="exact"),
        shoal.knn_graph(tmp_path / "rows.npy", 5, method="exact"),
        shoal.knn_graph(np.load(tmp_path / "rows.npy", mmap_mode="r"), 5, method="exact"),
    ]
    for other in others:
        assert (other.indices == first.indices).all()
        assert (other.data == first.data).all()
    one, two = (shoal.knn_graph(X, 5, method="ivf", n_jobs=n) for n in (1, 2))
    assert (one.indices == two.indices).all()
    assert (one.data == two.data).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_rows(dtype):
    X = sp.random(700, 300, density=0.03, format="csr", random_state=1, dtype=dtype)
    found, sq_dists = parts(shoal.knn_graph(X, 4, method="exact"), 4)
    wanted, true = neighbors(X.toarray(), 4)
    np.testing.assert_allclose(sq_dists, true, rtol=1e-9, atol=1e-12)
    gaps = np.diff(neighbors(X.toarray(), 5)[1], axis=1).min(axis=1)
    clear = gaps > 1e-9
    assert clear.mean() > 0.9
    assert (found[clear] == wanted[clear]).all()
    with pytest.raises(ValueError, match="kd-tree"):
        shoal.knn_graph(X, 4, method="kd-tree")


def test_recall_is_reached_and_reported():
    X = load_digits().data.astype(np.float32)
    X = np.concatenate([X, X + np.random.default_rng(0).normal(size=X.shape).astype(np.float32)])
    true = shoal.knn_graph(X, 5, method="exact").indices.reshape(-1, 5)
    for recall in (0.8, 0.95, 1.0):
        graph, info = shoal.knn_graph(X, 5, method="ivf", recall=recall, return_info=True)
        found = graph.indices.reshape(-1, 5)
        share = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(found, true, strict=True)])
        assert info["method"] == "ivf"
        assert info["n_probes"] <= info["n_cells"]
        assert share >= recall - 0.02
        assert abs(share - info["recall"]) < 0.03
        assert (np.diff(graph.data.reshape(-1, 5), axis=1) >= 0).all()
    assert info["n_probes"] > 1


def test_against_scikit_learn():
    from sklearn.neighbors import kneighbors_graph

    X = np.random.default_rng(8).normal(size=(500, 10))
    theirs = kneighbors_graph(X, 5, mode="distance").toarray()
    np.testing.assert_allclose(np.sqrt(shoal.knn_graph(X, 5).toarray()), theirs, atol=1e-12)


@pytest.mark.parametrize("m", [0, 20, 21, -1, 2.5, None])
def test_a_wrong_number_of_neighbors(m):
    with pytest.raises(ValueError, match="n_neighbors"):
        shoal.knn_graph(np.random.default_rng(0).normal(size=(20, 2)), m)


def test_other_errors():
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match="method"):
        shoal.knn_graph(X, 2, method="magic")
    with pytest.raises(ValueError, match="recall"):
        shoal.knn_graph(X, 2, recall=0.0)
    with pytest.raises(ValueError, match="more than once"):
        shoal.knn_graph(iter([X]), 2)
    X[3, 1] = np.inf
    for method in ("exact", "kd-tree", "ivf"):
        with pytest.raises(ValueError, match="row 3, column 1"):
            shoal.knn_graph(sp.csr_matrix(X) if method == "ivf" else shoal.open(X), 2, method=method)


def test_command_line(tmp_path, capsys):
    X = np.random.default_rng(9).normal(size=(300, 6)).astype(np.float32)
    np.save(tmp_path / "rows.npy", X)
    out = tmp_path / "graph.npz"
    assert main(["knn", str(tmp_path / "rows.npy"), "-m", "4", "-o", str(out), "--json"]) == 0
    assert '"method"' in capsys.readouterr().out
    graph = sp.load_npz(out)
    assert (graph.data == shoal.knn_graph(X, 4).data).all()
    assert main(["knn", str(tmp_path / "rows.npy"), "-m", "300", "-o", str(out)]) == 2
    assert "-m must be at least 1 and less than the number of rows, 300, got 300" in capsys.readouterr().err
