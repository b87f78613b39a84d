"""Laplacian K-modes in use: files, resumed fits, given affinities, paths, errors and the command line."""

import json
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import shoal
from laplacian_parts import DIGITS, labeled_blobs
from reference import normalized
from shoal import LaplacianKModes
from shoal.callbacks import Checkpoint, EarlyStopping, ValidationCurve
from shoal.cli import main
from shoal.kmodes_path import plot_path
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import kneighbors_graph
from sklearn.utils.estimator_checks import parametrize_with_checks
from slk_reference import inner, kernel


@pytest.mark.filterwarnings("ignore:.* rows? of X (is|are) all zeros:UserWarning")
@pytest.mark.parametrize("variant", ["byproduct", "mean-shift"])
@pytest.mark.parametrize("sparse", [False, True])
def test_saved_models_are_loaded(tmp_path, variant, sparse):
    X, _ = labeled_blobs()
    X = sp.csr_matrix(np.maximum(X, 0)) if sparse else X
    model = LaplacianKModes(3, mode_update=variant, random_state=0).fit(X)
    model.save(tmp_path / "model.safetensors")
    again = shoal.load(tmp_path / "model.safetensors")
    for other in (again, pickle.loads(pickle.dumps(model))):
        assert (other.predict(X) == model.predict(X)).all()
        assert (other.labels_ == model.labels_).all()
        assert (other.modes_ == model.modes_).all()
        assert (other.affinity_ != model.affinity_).nnz == 0
        assert other.energy_ == model.energy_
        assert other.stop_reason_ == model.stop_reason_
        assert [e.tolist() for e in other.relaxed_energies_] == [e.tolist() for e in model.relaxed_energies_]
        assert other.get_params() == model.get_params()


def test_a_checkpoint_resumes(tmp_path):
    X = DIGITS.data[:500]
    given = {"n_clusters": 8, "init": "k-means++", "laplacian_weight": 0.5, "random_state": 3}
    given["mode_update"] = "mean-shift"
    whole = LaplacianKModes(**given).fit(X)
    assert whole.n_iter_ > 2
    path = tmp_path / "fit.safetensors"
    keep = shoal.callbacks.Checkpoint(path, every_steps=1)
    LaplacianKModes(**given, callbacks=[keep, lambda model, step: step.iteration == 2]).fit(X)
    again = shoal.resume(path, X)
    assert (again.labels_ == whole.labels_).all()
    assert (again.modes_ == whole.modes_).all()
    assert (again.responsibilities_ == whole.responsibilities_).all()
    assert (again.energies_ == whole.energies_).all()
    assert again.n_iter_ == whole.n_iter_
    with pytest.raises(ValueError, match="does not match the checkpoint"):
        shoal.resume(path, X[::-1].copy())


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("", {"laplacian_weight": 1.0}),
        ("", {"laplacian_weight": 4.0, "random_state": 0}),
        ("shifted_", {"init": "k-means++", "laplacian_weight": 4.0, "mode_update": "mean-shift"}),
        ("", {"init": "k-means++", "laplacian_weight": 1.0, "memory": 60_000}),
        ("", {"laplacian_weight": 1.0, "affinity": "precomputed"}),
        ("", {"laplacian_weight": 1.0, "memory": 60_000}),
        (
            "collapsed_",
            {
                "init": "k-means++",
                "laplacian_weight": 4.0,
                "mode_update": "mean-shift",
                "on_collapse": "reduce",
            },
        ),
    ],
)
def test_checkpoints_of_all_options_resume(tmp_path, kind, given):
    X, path, stopped = DIGITS.data[:500], tmp_path / "fit.safetensors", 1
    rows, more = X, {}
    if kind == "collapsed_":
        rows = X = labeled_blobs(n=120, k=2, seed=2, apart=0.3)[0]
        given = {"n_clusters": 6, "normalize": False, "random_state": 0, **given}
    if "affinity" in given:
        rows, more = kneighbors_graph(normalized(X), 5, mode="connectivity"), {"features": X}
    given = {"n_clusters": 8, "random_state": 3, **given}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        whole = LaplacianKModes(**given).fit(rows, **more)
        callbacks = [Checkpoint(path, every_steps=1), lambda model, step: step.iteration == stopped]
        LaplacianKModes(**given, callbacks=callbacks).fit(rows, **more)
        again = shoal.resume(path, X)
    assert whole.n_iter_ > stopped
    assert not kind or getattr(whole, kind)
    for name in ("labels_", "modes_", "energies_"):
        assert (getattr(again, name) == getattr(whole, name)).all(), name
    if hasattr(whole, "mode_indices_"):
        assert (again.mode_indices_ == whole.mode_indices_).all()
    assert np.abs(again.responsibilities_ - whole.responsibilities_).max() == 0
    for name in ("n_iter_", "collapsed_", "shifted_", "laplacian_weight_", "bandwidth_", "stop_reason_"):
        assert getattr(again, name) == getattr(whole, name), name


def test_leaving_the_loop_keeps_a_fitted_estimator():
    X = DIGITS.data[:500]
    given = {"n_clusters": 8, "laplacian_weight": 0.3, "mode_update": "mean-shift", "random_state": 1}
    model = LaplacianKModes(**given)
    for _ in model.iter_fit(X):
        break
    one = LaplacianKModes(**given, max_iter=1).fit(X)
    assert model.n_iter_ == 1
    assert (model.labels_ == one.labels_).all()
    assert (model.predict(X) == one.predict(X)).all()
    assert model.stop_reason_ is None


def test_spectral_starts_on_a_path_and_the_command_line(tmp_path, capsys):
    X, _ = labeled_blobs(n=200, k=4, seed=3, apart=1.0)
    table = shoal.laplacian_path(X, 4, n_resamples=1, random_state=0, normalize=False)
    model = LaplacianKModes(4, random_state=0, normalize=False).fit(X)
    weights = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0]) * model.laplacian_weight_
    np.testing.assert_allclose(table["weight"], weights, rtol=1e-12)
    assert table["energy"][4] == pytest.approx(model.energy_, rel=1e-12)
    np.save(tmp_path / "rows.npy", X)
    fit = [
        "fit",
        str(tmp_path / "rows.npy"),
        "-k",
        "4",
        "--method",
        "kmodes",
        "--init",
        "spectral",
        "--quiet",
    ]
    assert main([*fit, "--set", "normalize=false", "--set", "laplacian_weight=auto", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["init"], told["laplacian_weight"]) == ("spectral", model.laplacian_weight_)
    assert told["energy"] == pytest.approx(model.energy_, rel=1e-12)


def test_invalid_starts_and_weights():
    X, _ = labeled_blobs(n=30)
    with pytest.raises(ValueError, match=r"laplacian_weight must be 'auto' or.*init must be one of spectral"):
        LaplacianKModes(3, laplacian_weight="much", init="spectrum").fit(X)
    with pytest.raises(ValueError, match="init must be one of auto"):
        shoal.KMeans(3, init="spectral").fit(X)


def test_score_raises_with_an_explanation():
    X, _ = labeled_blobs()
    for callback in (EarlyStopping(X), ValidationCurve(X)):
        with pytest.raises(TypeError, match="LaplacianKModes does not have"):
            LaplacianKModes(3, callbacks=[callback]).fit(X)


def test_precomputed_graphs():
    X, _ = labeled_blobs()
    graph = kneighbors_graph(X, 5, mode="connectivity")
    given = {"init": X[:3], "normalize": False, "bandwidth": 1.5}
    mine = LaplacianKModes(3, **given).fit(X)
    theirs = LaplacianKModes(3, affinity="precomputed", **given).fit(graph, features=X)
    assert (mine.labels_ == theirs.labels_).all()
    assert (mine.affinity_ != theirs.affinity_).nnz == 0
    of_pairs = LaplacianKModes(3, affinity="precomputed", init=X[:3], normalize=False)
    of_pairs.fit(graph, features=X)
    i, j = sp.triu((graph + graph.T) > 0, k=1).nonzero()
    assert of_pairs.bandwidth_**2 == pytest.approx(((X[i] - X[j]) ** 2).sum(axis=1).mean(), rel=1e-12)


def test_sorted_rows():
    X, _ = labeled_blobs()
    model = LaplacianKModes(3, random_state=0).fit(X)
    streamed = LaplacianKModes(3, random_state=0).fit(lambda: iter([X[:17], X[17:]]))
    np.testing.assert_array_equal(streamed.labels_, model.labels_)
    np.testing.assert_array_equal(streamed.predict(X), model.predict(X))
    paths = [
        shoal.laplacian_path(rows, 3, weights=[0.5], n_resamples=1, random_state=0)
        for rows in (X, lambda: iter([X]))
    ]
    np.testing.assert_array_equal(*paths)
    with pytest.raises(ValueError, match="LaplacianKModes reads its rows more than once"):
        LaplacianKModes(3).fit(iter([X]))


def test_a_fit_with_a_precomputed_graph_resumes(tmp_path):
    X, _ = labeled_blobs()
    graph = kneighbors_graph(X, 5, mode="connectivity")
    keep = shoal.callbacks.Checkpoint(tmp_path / "fit.safetensors", every_steps=1, overwrite=True)
    given = {"affinity": "precomputed", "normalize": False, "random_state": 0}
    model = LaplacianKModes(3, callbacks=[keep, lambda model, step: True], **given)
    model.fit(graph, features=X)
    whole = LaplacianKModes(3, **given).fit(graph, features=X)
    again = shoal.resume(tmp_path / "fit.safetensors", graph, features=X)
    np.testing.assert_array_equal(again.labels_, whole.labels_)
    np.testing.assert_array_equal(again.energies_, whole.energies_)
    shoal.KMeans(3, max_iter=2, callbacks=[keep]).fit(X)
    with pytest.raises(TypeError, match="features"):
        shoal.resume(tmp_path / "fit.safetensors", X, features=X)


def test_labels_of_rows_without_neighbors_depend_on_modes():
    X, _ = labeled_blobs(n=40)
    model = LaplacianKModes(2, affinity="precomputed", bandwidth=2.0, normalize=False, init=X[:2])
    model.fit(sp.csr_matrix((40, 40)), features=X)
    Z, _ = inner(kernel(X, X[model.mode_indices_], 4.0), np.zeros((40, 40)), 1.0, np.zeros(40))
    assert (model.labels_ == Z.argmax(axis=1)).all()


def test_errors():
    X, _ = labeled_blobs(n=30)
    with pytest.raises(ValueError, match=r"laplacian_weight.*n_neighbors.*bandwidth.*on_collapse"):
        LaplacianKModes(3, laplacian_weight=-1, n_neighbors=0, bandwidth=-2.0, on_collapse="weep").fit(X)
    with pytest.raises(ValueError, match="n_neighbors=30 must be less than n_samples=30"):
        LaplacianKModes(3, n_neighbors=30).fit(X)
    with pytest.raises(ValueError, match="n_samples=30 should be >= n_clusters=31"):
        LaplacianKModes(31).fit(X)
    with pytest.raises(ValueError, match="coincide"):
        LaplacianKModes(2, normalize=False).fit(np.ones((20, 3)))
    with pytest.raises(ValueError, match=r"neighbors is \d\.\d+e-3\d\d, because"):
        LaplacianKModes(3, normalize=False).fit(np.asarray(X, dtype=float) * 1e-160)
    with pytest.raises(ValueError, match="distinct rows"):
        LaplacianKModes(4, normalize=False, n_neighbors=12).fit(np.repeat(X[:3], 10, axis=0))
    parallel = np.outer(np.arange(1.0, 21.0), [1.0, 0.7, 0.3])
    for rows in (np.ones((20, 3)), parallel, parallel.astype(np.float32)):
        with pytest.raises(ValueError, match="coincide"):
            LaplacianKModes(2, normalize=True).fit(rows)
    precomputed = LaplacianKModes(3, affinity="precomputed", bandwidth=1.0)
    for bad in (1e-170, 1e200):
        with pytest.raises(ValueError, match=f"bandwidth must be.*got {bad:g}"):
            LaplacianKModes(3, affinity="precomputed", bandwidth=bad).fit(sp.eye(30).tocsr(), features=X)
    for scale in (1e-160, 1e160):
        with pytest.raises(ValueError, match=r"too small or too large|overflow"):
            LaplacianKModes(3, normalize=False).fit(X * scale)
    huge = sp.csr_matrix((np.full(3, 1.7e308), ([0, 1, 4], [1, 0, 4])), shape=(30, 30))
    with pytest.raises(ValueError, match="overflow"):
        precomputed.fit(huge, features=X)
    with pytest.raises(ValueError, match="overflow"):
        precomputed.fit(sp.eye(30).tocsr() * 1e38, features=X.astype(np.float32))
    with pytest.raises(ValueError, match="square"):
        precomputed.fit(sp.csr_matrix((30, 29)), features=X)
    with pytest.raises(ValueError, match="29"):
        precomputed.fit(sp.csr_matrix((29, 29)), features=X)
    with pytest.raises(ValueError, match="features"):
        precomputed.fit(sp.csr_matrix((30, 30)))
    for bad in (-1.0, np.nan, np.inf):
        W = sp.lil_matrix((30, 30))
        W[4, 7] = bad
        with pytest.raises(ValueError, match="row 4, column 7"):
            precomputed.fit(W.tocsr(), features=X)
    with pytest.raises(ValueError, match="features"):
        LaplacianKModes(3).fit(X, features=X)
    for seed in range(3):
        with pytest.warns(RuntimeWarning, match="Increase bandwidth"):
            LaplacianKModes(3, bandwidth=1e-9, random_state=seed).fit(X)
    with pytest.warns(RuntimeWarning, match="Increase bandwidth"):
        LaplacianKModes(
            2,
            laplacian_weight=0.0,
            bandwidth=1e-9,
            normalize=False,
            mode_update="mean-shift",
            init=X[:2] + 0.1,
        ).fit(X)


def test_a_failed_fit_keeps_the_previous_one():
    X, _ = labeled_blobs(n=60)
    for model in (LaplacianKModes(3, normalize=False, random_state=0), shoal.KMeans(3, random_state=0)):
        labels = model.fit(X).predict(X)
        with pytest.raises(ValueError, match="n_samples=2"):
            model.fit(X[:2, :4])
        assert model.n_features_in_ == 6
        assert (model.predict(X) == labels).all()
    precomputed = LaplacianKModes(3, affinity="precomputed", normalize=False, bandwidth=1.0)
    with pytest.raises(ValueError, match="59"):
        precomputed.fit(sp.eye(60).tocsr(), features=X[:59])
    assert not hasattr(precomputed, "n_features_in_")


def test_command_line(tmp_path, capsys):
    X, _ = labeled_blobs()
    np.save(tmp_path / "rows.npy", X)
    names = [str(tmp_path / name) for name in ("rows.npy", "model.safetensors", "labels.npy", "new.npy")]
    fit = ["fit", names[0], "-k", "3", "--method", "kmodes", "-o", names[1], "--labels", names[2], "--quiet"]
    assert main([*fit, "--set", "laplacian_weight=0.5", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["collapsed"], told["laplacian_weight"]) == (False, 0.5)
    model = LaplacianKModes(3, laplacian_weight=0.5, random_state=0).fit(X)
    assert (np.load(names[2]) == model.labels_).all()
    assert main(["predict", names[1], names[0], "-o", names[3], "--quiet"]) == 0
    assert (np.load(names[3]) == model.predict(X)).all()
    assert main(["info", names[1]]) == 0


def test_a_path_over_weights(tmp_path):
    X, _ = labeled_blobs(n=120)
    np.save(tmp_path / "rows.npy", X)
    given = {"weights": [1.0, 0.0, 40.0], "n_resamples": 2, "random_state": 1, "normalize": False}
    table = shoal.laplacian_path(X, 3, **given)
    assert table["weight"].tolist() == [0.0, 1.0, 40.0]
    np.testing.assert_allclose(table["energy"], table["weight"] * table["cut"] - table["kernel"], atol=1e-9)
    assert (table["sizes"].sum(axis=1) == 120).all()
    assert (table["sizes"][:, 0] == table["largest"]).all()
    one = LaplacianKModes(3, random_state=1, normalize=False).fit(X)
    assert table["energy"][1] == pytest.approx(one.energy_, rel=1e-12)
    assert table["stability"][1] > 0.8
    assert (shoal.laplacian_path(tmp_path / "rows.npy", 3, **given) == table).all()
    few = shoal.laplacian_path(X[:11], 2, **{**given, "weights": [0.0]}, n_neighbors=9)
    assert np.isfinite(few["stability"]).all()
    alone = shoal.laplacian_path(X, 3, **{**given, "n_resamples": 0})
    assert np.isnan(alone["stability"]).all()
    plot_path(tmp_path / "path.png", table)
    assert (tmp_path / "path.png").read_bytes().startswith(b"\x89PNG")
    for bad in ({"weights": []}, {"weights": [-1.0]}, {"n_resamples": -1}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            shoal.laplacian_path(X, 3, **bad)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.* rows? of X (is|are) all zeros:UserWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@parametrize_with_checks(
    [LaplacianKModes(n_clusters=3), LaplacianKModes(n_clusters=2, mode_update="mean-shift", n_neighbors=2)]
)
def test_estimator_checks(estimator, check):
    """The checks of scikit-learn assert."""
    check(estimator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_path_computes_spectral_labels_once_per_sample(monkeypatch):
    found, calls = shoal.kmodes_path.spectral_labels, []

    def counted(*given, **more):
        calls.append(given[0].shape[0])
        return found(*given, **more)

    for module in (shoal.kmodes_path, shoal.kmodes):
        monkeypatch.setattr(module, "spectral_labels", counted)
    X, _ = labeled_blobs(n=120)
    shoal.laplacian_path(X, 3, weights=[0.0, 1.0], n_resamples=2, random_state=1, normalize=False)
    assert calls == [120, 96, 96]


@pytest.mark.filterwarnings("ignore:.* rows? of X (is|are) all zeros:UserWarning")
def test_sparse_and_dense_rows_are_predicted_by_one_model():
    X = np.random.default_rng(6).normal(size=(120, 5)) * (np.random.default_rng(7).random((120, 5)) < 0.6)
    new = X[:30] + 0.01
    for fitted in (X, sp.csr_matrix(X)):
        model = LaplacianKModes(3, random_state=0).fit(fitted)
        np.testing.assert_array_equal(model.predict(sp.csr_matrix(new)), model.predict(new))
