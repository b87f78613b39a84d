"""Stochastic backward Euler: whole fits, sources, files, errors and the command line."""

import copy
import json
import pickle

import numpy as np
import pytest
import reference
import sbe_reference
import scipy.sparse as sp
import shoal
from backward_euler_rows import same
from generated import blobs, tight_blobs
from shoal import BackwardEulerKMeans
from shoal.callbacks import Checkpoint
from shoal.cli import main
from sklearn.exceptions import NotFittedError

# ---------------------------------------------------------------- fits, sources, files


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("polish", [False, True])
def test_labels_inertia_counts_and_centers_are_consistent(dtype, polish):
    X = tight_blobs(3000, 4, 6, dtype=dtype)
    weights = np.random.default_rng(0).random(3000)
    model = BackwardEulerKMeans(6, random_state=0, batch_size=200, max_iter=30, polish=polish)
    model.fit(X, sample_weight=weights)
    labels, _, gap = reference.nearest(X, model.cluster_centers_)
    clear = gap > 1e-5
    assert (model.labels_[clear] == labels[clear]).all()
    assert (model.labels_ == model.predict(X)).all()
    expected = reference.inertia(X, model.cluster_centers_, model.labels_, weights)
    assert model.inertia_ == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(model.counts_, np.bincount(model.labels_, weights, 6), rtol=1e-12)


def test_the_polish_is_exact_k_means_from_the_last_outer_step():
    X = blobs(2000, 3, 6, apart=3.0, width=1.5)
    given = {"batch_size": 100, "max_iter": 20, "random_state": 2, "step_size": 6.0}
    given |= {"step_decay": 1 / 1.01, "step_cap": None}
    plain = BackwardEulerKMeans(6, polish=False, **given).fit(X)
    exact = shoal.KMeans(6, init=plain.cluster_centers_, n_init=1).fit(X)
    polished = BackwardEulerKMeans(6, polish=True, **given).fit(X)
    assert (polished.cluster_centers_ == exact.cluster_centers_).all()
    assert (polished.labels_ == exact.labels_).all()
    assert polished.inertia_ == exact.inertia_ < plain.inertia_
    assert polished.stop_reason_ == exact.stop_reason_
    assert (polished.n_iter_, len(polished.step_sizes_)) == (20, 20)
    assert (polished.history_["objective"][20:] == exact.history_["objective"]).all()
    assert (polished.history_["iteration"] == np.arange(1, 21 + exact.n_iter_)).all()
    # A further batch continues from the polished centers.
    batch = polished.partial_fit(X[:100])
    slow = sbe_reference.BackwardEuler(exact.cluster_centers_, 6 / 1.01**20, 1 / 1.01, 0.75, 5)
    slow.feed(X[:100])
    np.testing.assert_allclose(batch.cluster_centers_, slow.mean, rtol=1e-10)
    with pytest.raises(ValueError, match="polish=True reads its rows more than once"):
        BackwardEulerKMeans(6, polish=True).fit(iter([X]))


def test_fit_equals_iter_fit_and_starts_afresh():
    X = tight_blobs(2000, 3, 5)
    given = {"init": "random", "random_state": 0, "batch_size": 100, "max_iter": 12, "polish": False}
    one = BackwardEulerKMeans(5, **given).fit(X)
    other = BackwardEulerKMeans(5, **given).partial_fit(X[:50] + 9)
    for step in other.iter_fit(X):
        assert other.n_iter_ == step.iteration == len(other.step_sizes_)
        assert (other.labels_ == other.predict(X)).all()
    assert same(one, other)
    assert (one.labels_ == other.labels_).all()
    for step in (left := BackwardEulerKMeans(5, **given)).iter_fit(X):
        if step.iteration == 3:
            break
    assert (left.labels_ == left.predict(X)).all()
    # From the third outer step on, one batch at a time.
    twin = copy.deepcopy(left)
    assert same(left.partial_fit(X[:70]), twin.partial_fit(X[:70]))
    assert (left.n_iter_, left.n_steps_, len(left.step_sizes_)) == (3, 16, 3)
    for _ in range(9):
        left.partial_fit(X[:70])
    assert (left.n_iter_, len(left.step_sizes_)) == (5, 3), "those of the fit"
    assert len(BackwardEulerKMeans(5, n_inner=1).partial_fit(X).step_sizes_) == 0
    assert (left.labels_ == left.predict(X[:70])).all(), "those of the batch"


@pytest.mark.parametrize("n_jobs", [2, 3, 5])
def test_threads_and_storage_do_not_change_results(n_jobs, tmp_path):
    X = tight_blobs(9000, 30, 40, dtype=np.float32)
    np.save(tmp_path / "rows.npy", X)
    given = {"random_state": 2, "batch_size": 3000, "max_iter": 4, "n_inner": 2, "step_size": 40.0}
    given |= {"step_decay": 1 / 1.01, "step_cap": None, "polish": n_jobs == 2}
    alone = BackwardEulerKMeans(40, n_jobs=1, **given).fit(X)
    for rows in (X, np.load(tmp_path / "rows.npy", mmap_mode="r"), tmp_path / "rows.npy"):
        model = BackwardEulerKMeans(40, n_jobs=n_jobs, **given).fit(rows)
        assert same(alone, model)
        assert (alone.labels_ == model.labels_).all()
        assert alone.inertia_ == model.inertia_


def test_a_stream_is_cut_into_consecutive_batches_for_any_block_size():
    X = tight_blobs(1700, 3, 5)
    given = {"init": X[:5], "batch_size": 300, "n_inner": 4, "max_iter": 6, "compute_labels": False}
    given["polish"] = False
    batches = BackwardEulerKMeans(5, **given)
    for _ in range(4):
        for start in range(0, 1700, 300):
            batches.partial_fit(X[start : start + 300])
    for length in (7, 300, 5000):
        blocks = [X[start : start + length] for start in range(0, 1700, length)]
        stream = BackwardEulerKMeans(5, **given).fit(lambda blocks=blocks: iter(blocks))
        assert (stream.cluster_centers_ == batches.cluster_centers_).all()
        assert (stream.n_iter_, stream.n_steps_) == (6, 24)
        once = BackwardEulerKMeans(5, **given).fit(iter(blocks))
        # Six batches: four in one outer step, and two in another.
        assert (once.n_iter_, once.n_steps_, len(once.step_sizes_)) == (2, 6, 2)
        assert once.history_["batch_size"].tolist() == [1200, 500]


def test_sparse_rows_give_the_results_of_dense_rows():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((400, 30)) < 0.2, rng.normal(size=(400, 30)), 0.0)
    given = {"init": X[:6], "batch_size": 60, "max_iter": 8, "random_state": 0}
    dense = BackwardEulerKMeans(6, **given).fit(X)
    sparse = BackwardEulerKMeans(6, **given).fit(sp.csr_array(X))
    np.testing.assert_allclose(sparse.cluster_centers_, dense.cluster_centers_, rtol=1e-9, atol=1e-12)
    assert (sparse.labels_ == dense.labels_).all()
    few = BackwardEulerKMeans(6, random_state=0).partial_fit(sp.csr_array(X[:3]))
    assert few.partial_fit(sp.csr_array(X[3:])).counts_.sum() == 400


def test_rows_of_a_short_first_batch_are_kept():
    X = tight_blobs(60, 3, 5)
    model = BackwardEulerKMeans(20, random_state=0)
    for start in range(0, 18, 6):
        model.partial_fit(X[start : start + 6])
        with pytest.raises(NotFittedError):
            model.predict(X)
        model = pickle.loads(pickle.dumps(model))
    model.partial_fit(X[18:60])
    assert model.counts_.sum() == 60
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :2])


@pytest.mark.parametrize(
    "bad",
    [
        np.empty((0, 3)),
        np.zeros((4, 2)),
        np.array([[0.0, np.nan, 1.0]]),
        np.array([[0.0, np.inf, 1.0]] * 50),
        # More rows than centers, each as far from the others as any.
        1e200 * np.arange(18.0).reshape(6, 3),
    ],
)
@pytest.mark.parametrize("before", [2, 40])
def test_an_invalid_batch_leaves_the_state_unchanged(bad, before):
    X = tight_blobs(100, 3, 5)
    model = BackwardEulerKMeans(5, random_state=0).partial_fit(X[:before])
    twin, kept = copy.deepcopy(model), pickle.dumps(model)
    with pytest.raises(ValueError, match=r"0 sample|features|NaN|inf|overflow"):
        model.partial_fit(bad)
    with pytest.raises(ValueError, match="sample_weight"):
        model.partial_fit(X[:3], sample_weight=[1.0, -1.0, 2.0])
    assert pickle.dumps(model) == kept
    assert same(model.partial_fit(X[before:]), twin.partial_fit(X[before:]))


def test_pickled_saved_and_copied_estimators_continue_with_identical_results(tmp_path):
    X = tight_blobs(4000, 3, 8, dtype=np.float32)
    plain, kept, file = (BackwardEulerKMeans(8, random_state=5, step_size=9) for _ in range(3))
    for start in range(0, 4000, 570):
        batch = X[start : start + 570]
        plain.partial_fit(batch)
        kept = copy.deepcopy(pickle.loads(pickle.dumps(kept.partial_fit(batch))))
        file.partial_fit(batch).save(tmp_path / "model.safetensors")
        file = shoal.load(tmp_path / "model.safetensors")
    assert type(file) is BackwardEulerKMeans
    assert same(plain, kept)
    assert same(plain, file)
    fitted = BackwardEulerKMeans(8, random_state=5, max_iter=9, init=X[:8], step_decay=1 / 1.01).fit(X)
    fitted.save(tmp_path / "model.safetensors")
    again = shoal.load(tmp_path / "model.safetensors")
    assert same(fitted, again)
    assert (again.history_ == fitted.history_).all()
    assert (again.get_params()["step_decay"], again.inertia_) == (1 / 1.01, fitted.inertia_)
    assert same(fitted.partial_fit(X), again.partial_fit(X))


def test_parameters_changed_between_batches_apply_from_then_on():
    X = tight_blobs(300, 3, 4)
    slow = sbe_reference.BackwardEuler(X[:4], 4.0, 0.5, 0.75, 2)
    model = BackwardEulerKMeans(4, init=X[:4], step_size=4.0, step_decay=0.5, n_inner=2, step_cap=None)
    for batch in np.split(X, 6):
        slow.feed(batch)
        model.partial_fit(batch)
        model.set_params(step_size=slow.step_size / 0.5 ** len(slow.step_sizes), averaging=0.5)
        slow.averaging = 0.5
    np.testing.assert_allclose(model.cluster_centers_, slow.mean, rtol=1e-9)
    # The decay of the previous steps also applies to the new initial step size.
    model.set_params(step_size=1.0)
    slow.step_size = 1.0 * 0.5**3
    slow.feed(X)
    np.testing.assert_allclose(model.partial_fit(X).cluster_centers_, slow.mean, rtol=1e-9)
    with pytest.raises(ValueError, match="n_clusters=5 differs from the 4 centers"):
        model.set_params(n_clusters=5).partial_fit(X)


class EnoughError(Exception):
    """An error in user code."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("after", [1, 4, 7])
def test_a_resumed_fit_gives_identical_results(after, stream, tmp_path):
    X = blobs(900, 3, 6, apart=3.0, width=1.0, dtype=np.float32)
    rows = (lambda: iter(np.split(X, 9))) if stream else X
    given = {"batch_size": 70, "max_iter": 5, "n_inner": 4, "random_state": 3, "polish": True}
    whole = BackwardEulerKMeans(6, **given).fit(rows)
    path = tmp_path / "run.safetensors"

    def leave(_, step):
        if step.iteration == after:
            raise EnoughError

    with pytest.raises(EnoughError):
        BackwardEulerKMeans(6, callbacks=[Checkpoint(path, every_steps=1), leave], **given).fit(rows)
    again = shoal.resume(path, rows)
    assert same(whole, again)
    assert (whole.labels_ == again.labels_).all()
    assert whole.inertia_ == again.inertia_
    fields = [name for name in whole.history_.dtype.names if name not in ("elapsed", "n_distances")]
    assert (whole.history_[fields] == again.history_[fields]).all()


# ---------------------------------------------------------------- errors, command line


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        ({"step_size": -1.0}, "step_size must be 'auto' or a finite number of at least 0, got -1.0"),
        ({"step_size": float("inf")}, "step_size"),
        ({"step_size": float("nan")}, "step_size"),
        ({"step_size": "big"}, "step_size"),
        ({"step_size": None}, "step_size"),
        ({"step_decay": 0.0}, "step_decay must be 'auto' or a number above 0 and at most 1, got 0.0"),
        ({"step_decay": 1.5}, "step_decay"),
        ({"step_decay": "slow"}, "step_decay"),
        ({"averaging": -0.1}, "averaging must be a number from 0 to 1, got -0.1"),
        ({"averaging": 1.1}, "averaging"),
        ({"n_inner": 0}, "n_inner must be an integer of at least 1"),
        ({"max_iter": 0}, "max_iter"),
        ({"step_cap": 0.0}, "step_cap must be 'auto', None or a finite number above 0, got 0.0"),
        ({"step_cap": float("inf")}, "step_cap"),
        ({"polish": "yes"}, "polish must be 'auto', True or False"),
        ({"polish": None}, "polish must be 'auto', True or False, got None"),
        ({"compute_labels": 1}, "compute_labels must be True or False"),
        ({"n_clusters": 0}, "n_clusters"),
        ({"init": "best"}, "init must be one of"),
        ({"init": [[0.0, 0.0]]}, r"init must have shape \(2, 2\)"),
    ],
)
def test_invalid_parameters(given, text):
    X = tight_blobs(50, 2, 2)
    model = BackwardEulerKMeans(**{"n_clusters": 2, **given})
    for use in (model.fit, model.iter_fit, model.partial_fit):
        with pytest.raises(ValueError, match=text):
            use(X)
    assert not hasattr(model, "cluster_centers_")


def test_all_problems_are_listed_at_once():
    wrong = {"batch_size": 0, "step_size": -1, "step_decay": 2, "averaging": 7, "n_inner": 0, "max_iter": 0}
    wrong["step_cap"] = -1
    with pytest.raises(ValueError, match="".join(f"(?=.*{name} must)" for name in [*wrong, "n_clusters"])):
        BackwardEulerKMeans(0, **wrong).fit([[0.0]])


def test_non_finite_rows_are_named_by_position():
    X = tight_blobs(500, 3, 2)
    X[321, 1] = np.nan
    for size in (100, 500):
        with pytest.raises(ValueError, match="row 321, column 1"):
            BackwardEulerKMeans(2, init=X[:2], random_state=0, batch_size=size).fit(X)


def test_on_the_command_line(tmp_path, capsys):
    X = tight_blobs(600, 3, 4)
    np.save(tmp_path / "rows.npy", X)
    model = tmp_path / "model.safetensors"
    given = ["fit", tmp_path / "rows.npy", "-k", 4, "--method", "sbe", "--seed", 3, "--max-iter", 20]
    given += ["--set", "batch_size=90", "--set", "polish=true", "-o", model, "--json", "--quiet"]
    assert main([str(argument) for argument in given]) == 0
    result = json.loads(capsys.readouterr().out)
    here = BackwardEulerKMeans(4, batch_size=90, max_iter=20, polish=True, random_state=3).fit(X)
    assert (result["method"], result["inertia"]) == ("sbe", here.inertia_)
    assert (shoal.load(model).cluster_centers_ == here.cluster_centers_).all()
    rows = str(tmp_path / "rows.npy")
    assert main(["compare", rows, "-k", "4", "--methods", "kmeans,sbe", "--json", "--quiet"]) == 0
    assert "sbe" in capsys.readouterr().out
