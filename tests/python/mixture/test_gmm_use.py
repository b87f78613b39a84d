"""Truncated Gaussian mixtures in use: files, samples, interrupted and resumed fits, invalid rows."""

import json

import numpy as np
import pytest
import shoal
from generated import blobs
from gmm_parts import KINDS
from reference import sq_dists
from shoal import TruncatedGaussianMixture
from shoal.callbacks import Checkpoint
from sklearn.exceptions import NotFittedError

# Many fits here run only a few iterations.
pytestmark = pytest.mark.filterwarnings("ignore:the fit did not converge")


def test_samples_come_from_the_mixture():
    X = blobs(4000, 2, 3, 14, apart=9.0)
    for kind in KINDS:
        model = TruncatedGaussianMixture(3, covariance_type=kind, random_state=0).fit(X)
        rows, labels = model.sample(20_000)
        assert rows.shape == (20_000, 2)
        assert rows.dtype == X.dtype
        for j in range(3):
            inside = rows[labels == j]
            assert len(inside) / 20_000 == pytest.approx(model.weights_[j], abs=0.02)
            np.testing.assert_allclose(inside.mean(axis=0), model.means_[j], atol=0.1)
            if kind in ("tied", "full"):
                expected = np.broadcast_to(model.covariances_, (3, 2, 2))[j]
            else:
                expected = np.broadcast_to(
                    model.covariances_ if kind != "spherical" else model.covariances_[j], (3, 2)
                )[j]
            if kind == "factor":
                expected = np.diag(expected) + model.loadings_[j].T @ model.loadings_[j]
            if expected.ndim == 2:
                np.testing.assert_allclose(np.cov(inside.T), expected, rtol=0.1, atol=0.05)
                expected = np.diag(expected)
            np.testing.assert_allclose(inside.var(axis=0), expected, rtol=0.1)
        assert (model.sample(5)[0] == model.sample(5)[0]).all()
    with pytest.raises(ValueError, match="n_samples must be an integer"):
        model.sample(0)


class InterruptedRows:
    """Rows in blocks; an interrupt comes in the middle of the pass number `fails`."""

    def __init__(self, X):
        self.X, self.passes, self.fails = X, 0, None

    def __call__(self):
        self.passes += 1
        mine = self.passes
        for start in range(0, len(self.X), 300):
            if mine == self.fails and start == 900:
                raise KeyboardInterrupt
            yield self.X[start : start + 300]


@pytest.mark.parametrize("size", [None, 400])
def test_an_interrupt_keeps_the_previous_step(size):
    X = blobs(1500, 3, 12, 22)
    params = {"coreset_size": size, "random_state": 0, "max_iter": 6, "tol": 0.0}
    expected = TruncatedGaussianMixture(12, **params).fit(X)
    rows = InterruptedRows(X)
    source = shoal.open(rows)
    opened = rows.passes
    model = TruncatedGaussianMixture(12, **params).fit(source)
    made = rows.passes - opened
    assert model.means_.tobytes() == expected.means_.tobytes()
    left = broke = 0
    for number in range(1, made + 1):
        source = shoal.open(rows)
        rows.fails = rows.passes + number
        model = TruncatedGaussianMixture(12, **params)
        try:
            model.fit(source)
        except KeyboardInterrupt:
            left += 1
        else:
            # No fit has that many passes.
            continue
        # An interrupt in the first iteration leaves no model, a later one leaves the previous iteration.
        done = len(model.history_) if hasattr(model, "means_") else 0
        broke += done
        if done:
            assert (model.history_["objective"] == expected.history_["objective"][:done]).all()
            assert model.stop_reason_ is None
        assert model.fit(source).means_.tobytes() == expected.means_.tobytes()
    assert left >= (6 if size is None else 2)
    assert (broke > 0) == (size is None)


def test_a_fit_with_several_starts_resumes_from_any_step(tmp_path):
    X, path = blobs(1500, 3, 12, 22), tmp_path / "run.safetensors"
    params = {"init": "random", "n_init": 3, "random_state": 0, "max_iter": 3, "tol": 0.0}
    rows = InterruptedRows(X)
    source = shoal.open(rows)
    opened = rows.passes
    expected = TruncatedGaussianMixture(12, **params).fit(source)
    left = []
    for number in range(1, rows.passes - opened + 1):
        source = shoal.open(rows)
        # Checking the rows for a checkpoint takes one more pass.
        rows.fails = rows.passes + 1 + number
        model = TruncatedGaussianMixture(12, callbacks=[Checkpoint(path, every=1e6)], **params)
        try:
            model.fit(source)
        except KeyboardInterrupt:
            left.append(len(model.history_) if hasattr(model, "means_") else 0)
        rows.fails = None
        if path.exists():
            resumed = shoal.resume(path, source)
            assert resumed.means_.tobytes() == expected.means_.tobytes()
            assert (resumed.lower_bounds_ == expected.lower_bounds_).all()
            objectives = [fit.history_["objective"] for fit in (resumed, expected)]
            np.testing.assert_array_equal(*objectives)
            path.unlink()
    # Also in the first iterations of the second and the third start.
    assert {3, 6} <= set(left)


def test_leaving_the_loop_keeps_a_usable_estimator():
    X = blobs(500, 3, 12, 17)
    model = TruncatedGaussianMixture(6, random_state=0)
    with pytest.raises(AttributeError, match="not fitted"):
        _ = model.means_
    with pytest.raises(AttributeError, match="not fitted"):
        _ = model.lower_bounds_
    for name in ("labels_", "converged_", "n_distances_"):
        assert not hasattr(model, name)
    with pytest.raises(NotFittedError):
        model.predict(X)
    for step in model.iter_fit(X):
        assert (model.labels_ == model.predict(X)).all()
        assert model.lower_bound_ == step.objective
        if step.iteration == 2:
            break
    assert len(model.history_) == 2
    assert (model.labels_ == model.predict(X)).all()
    model = TruncatedGaussianMixture(
        6, random_state=0, callbacks=[lambda est, step: step.iteration == 3]
    ).fit(X)
    assert model.stop_reason_ == "callback"
    assert not model.converged_


def test_invalid_rows_and_weights():
    X = blobs(50, 2, 12, 0)
    with pytest.raises(ValueError, match="above 0 for at least one row, got zero for every row"):
        TruncatedGaussianMixture(3).fit(X, sample_weight=np.zeros(50))
    with pytest.raises(ValueError, match=r"scale the weights|overflow"):
        TruncatedGaussianMixture(3, init=X[:3]).fit(X, sample_weight=np.full(50, 1e308))
    with pytest.raises(ValueError, match="finite and at least 0"):
        TruncatedGaussianMixture(3).fit(X, sample_weight=np.full(50, -1.0))
    bad = X.copy()
    bad[30, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        TruncatedGaussianMixture(3, init=X[:3]).fit(bad)
    for search in ("exact", "neighbors"):
        with pytest.raises(ValueError, match="NaN"):
            TruncatedGaussianMixture(3, random_state=0).fit(X).predict(bad, search=search)
    model = TruncatedGaussianMixture(3, random_state=0).fit(X)
    for method in (model.predict, model.predict_proba, model.score_samples, model.score):
        with pytest.raises(ValueError, match="3 features"):
            method(np.zeros((4, 3)))
    # Values above the number of components mean all components.
    a = TruncatedGaussianMixture(3, n_active=99, n_neighbors=99, random_state=0).fit(X)
    b = TruncatedGaussianMixture(3, n_active=3, n_neighbors=3, random_state=0).fit(X)
    assert a.means_.tobytes() == b.means_.tobytes()


def test_labels_into_files(tmp_path):
    X = blobs(400, 3, 12, 18)
    model = TruncatedGaussianMixture(5, random_state=0).fit(X)
    labels = model.predict(X, out=tmp_path / "labels.npy", distances=tmp_path / "distances.npy")
    assert (labels == model.labels_).all()
    expected = np.sqrt(sq_dists(X, model.means_)[np.arange(400), labels])
    np.testing.assert_allclose(np.load(tmp_path / "distances.npy"), expected, rtol=1e-12)
    diag = TruncatedGaussianMixture(5, covariance_type="diag", random_state=0).fit(X)
    assert (diag.predict(X, out=np.empty(400, dtype=np.int32)) == diag.labels_).all()
    with pytest.raises(ValueError, match="distances must be None with covariance_type="):
        diag.predict(X, distances=np.empty(400))


def test_the_command_line_fits_and_predicts(tmp_path, capsys):
    from shoal import cli

    X = blobs(600, 3, 12, 19, dtype=np.float32)
    rows, path, labels = (tmp_path / name for name in ("rows.npy", "model.safetensors", "labels.npy"))
    np.save(rows, X)
    args = [
        "fit",
        rows,
        "-k",
        7,
        "--method",
        "gmm",
        "--set",
        "coreset_size=300",
        "--set",
        "n_init=3",
        "-o",
        path,
        "--labels",
        labels,
    ]
    assert (
        cli.main([str(arg) for arg in [*args, "--checkpoint", tmp_path / "run.safetensors", "--json"]]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    model = shoal.TruncatedGaussianMixture(7, coreset_size=300, n_init=3, random_state=0).fit(X)
    assert told["lower_bound"] == model.lower_bound_
    assert told["inertia"] is None
    assert (np.load(labels) == model.labels_).all()
    assert shoal.load(path).means_.tobytes() == model.means_.tobytes()
    assert cli.main(["info", str(path)]) == 0
    assert "gaussian-mixture-model" in capsys.readouterr().out
    assert cli.main(["compare", str(rows), "-k", "7", "--methods", "kmeans,gmm", "--json", "--quiet"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [result["method"] for result in results] == ["kmeans", "gmm"]
    assert results[1]["validation_energy"] < 3 * results[0]["validation_energy"]
