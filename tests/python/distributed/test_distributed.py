"""Fits of `shoal.distributed`: their rows, lost workers, checkpoints, and what they refuse."""

import importlib
import multiprocessing
import os
import pickle
import re
import signal
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import shoal
import sklearn.base
from distributed_suite import CUTS, blobs, cut, same
from shoal._distributed.engine import merged
from shoal._distributed.executor import ExecutorEngine
from shoal.callbacks import Checkpoint
from shoal.distributed import KMeans
from sklearn.exceptions import NotFittedError


def test_streams_sparse_rows_and_shards_are_partitions(tmp_path):
    import scipy.sparse as sp

    rows = blobs()
    rows[np.abs(rows) < 4] = 0
    init = rows[:6]
    dense = KMeans(6, init=init).fit(cut(rows, *CUTS["even"]))
    found = KMeans(6, init=init).fit([sp.csr_matrix(part) for part in cut(rows, *CUTS["even"])])
    np.testing.assert_allclose(found.cluster_centers_, dense.cluster_centers_, rtol=1e-5, atol=1e-6)
    seeded = KMeans(6, random_state=0, init="k-means||").fit([sp.csr_matrix(part) for part in cut(rows, 0.5)])
    assert np.isfinite(seeded.inertia_)
    streams = [lambda part=part: iter(np.array_split(part, 7)) for part in cut(rows, *CUTS["even"])]
    same(KMeans(6, init=init).fit(streams), dense)
    for i, part in enumerate(np.array_split(rows[:600], 3)):
        np.save(tmp_path / f"{i}.npy", part)
    same(KMeans(6, init=init).fit([str(tmp_path), *cut(rows, *CUTS["even"])[1:]]), dense)


def test_rows_of_zeros_are_counted():
    rows = np.concatenate([np.zeros((3, 5), np.float32), blobs(), np.zeros((2, 5), np.float32)])
    with pytest.warns(UserWarning, match="5 rows of X are all zeros"):
        model = KMeans(3, metric="cosine", random_state=0, max_iter=3).fit(cut(rows, 0.4))
    assert model.n_zero_rows_ == 5


def test_a_fitted_estimator_becomes_a_local_one(tmp_path):
    rows = blobs()
    model = KMeans(6, random_state=0).fit(cut(rows, 0.5))
    local = model.to_local()
    np.testing.assert_array_equal(local.predict(rows), model.labels_)
    assert (local.inertia_, local.n_iter_) == (model.inertia_, model.n_iter_)
    local.save(tmp_path / "model.safetensors")
    again = shoal.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(rows), model.predict(cut(rows, 0.2)))
    copied = pickle.loads(pickle.dumps(model))
    same(copied, model)
    with pytest.raises(NotFittedError):
        KMeans(3).to_local()
    with pytest.raises(NotFittedError):
        KMeans(3).predict([rows])


def test_parameters_are_checked_together():
    with pytest.raises(
        ValueError, match=r"n_clusters must .*; tol must .*; init must be one of k-means\+\+, hier"
    ) as caught:
        KMeans(0, tol=-1, init="random").fit([blobs()])
    assert "got 'random'" in str(caught.value)
    with pytest.raises(ValueError, match="X must be a list of partitions"):
        KMeans(2).fit(blobs())
    with pytest.raises(ValueError, match="X must be a list of partitions"):
        KMeans(2).fit("rows.npy")
    with pytest.raises(ValueError, match="partition 1 reads its rows more than once, which an iterator"):
        KMeans(2).fit([blobs(), iter([blobs()])])
    with pytest.raises(ValueError, match="at least 1 partition, got 0"):
        KMeans(2).fit([])
    with pytest.raises(ValueError, match=r"executor must be a concurrent\.futures\.Executor or None, got 3"):
        KMeans(2).fit([blobs()], executor=3)
    with pytest.raises(ValueError, match="sample_weight must be a list of 1 arrays"):
        KMeans(2).fit([blobs()], sample_weight=[None, None])
    with pytest.raises(ValueError, match=r"init must have shape \(2, n_features\), got \(3, 5\)"):
        KMeans(2, init=blobs()[:3]).fit([blobs()])


class Dying:
    """A partition that kills its process the third time that one reads it."""

    def __init__(self, rows, folder):
        self.rows, self.folder = rows, folder

    def __array__(self, dtype=None, copy=None):
        marks = Path(self.folder)
        n = len(list(marks.iterdir()))
        (marks / str(n)).touch()
        if n == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.rows


def test_a_killed_worker_leaves_the_last_whole_step(tmp_path):
    partitions = cut(blobs(), *CUTS["even"])
    params = {"n_clusters": 12, "init": blobs()[:12], "tol": 0.0}
    whole = KMeans(**params).fit(partitions)
    assert whole.n_iter_ > 3
    path, marks = tmp_path / "run.safetensors", tmp_path / "marks"
    marks.mkdir()
    dying = [partitions[0], Dying(partitions[1], str(marks)), *partitions[2:]]
    model = KMeans(**params, callbacks=[Checkpoint(path, every=3600)])
    lost = r"the executor lost a task: BrokenProcessPool.*state after step \d"
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(2, mp_context=context) as pool, pytest.raises(RuntimeError, match=lost):
        model.fit(dying, executor=pool)
    assert 0 < len(model.history_) < whole.n_iter_
    np.testing.assert_array_equal(
        model.history_["objective"], whole.history_["objective"][: len(model.history_)]
    )
    with pytest.raises(AttributeError, match="inertia_"):
        _ = model.inertia_
    with ThreadPoolExecutor(2) as pool:
        found = KMeans(**params).fit(partitions, executor=pool, resume_from=path)
    same(found, whole)
    with pytest.raises(ValueError, match=r"tol must be 0\.0, as in the checkpoint, got 0\.5"):
        KMeans(**params | {"tol": 0.5}).fit(partitions, resume_from=path)

    class Other(KMeans):
        pass

    with pytest.raises(ValueError, match="must hold a fit of Other, got one of KMeans"):
        Other(**params).fit(partitions, resume_from=path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"run\.safetensors"):
        KMeans(**params).fit(partitions, resume_from=path)


class Losing(ExecutorEngine):
    """Loses the last partition in one pass, or its machines when rows are labeled."""

    name = "the lossy engine"

    def __init__(self, partitions, lost=None, labels=False):
        super().__init__(partitions)
        self.passes, self.lost, self.without_labels = 0, lost, labels

    def total(self, task):
        self.passes += 1
        if self.passes != self.lost:
            return super().total(task)
        return merged(task.absorb(rows, partition=i) for i, rows in enumerate(self._partitions[:-1]))

    def rows(self, task):
        if self.without_labels:
            raise ConnectionError("gone")
        return super().rows(task)


def fitted(model, engine):
    """Fit to the rows of an engine."""
    for _ in model._iterate(engine):
        pass
    return model


@pytest.mark.parametrize(
    ("init", "lost"),
    [("k-means||", 1), ("k-means||", 3), ("k-means++", 1), ("array", 1), ("array", 2), ("array", 3)],
)
def test_a_missing_last_partition_is_an_error(init, lost):
    first = blobs()[:6] if init == "array" else init
    engine = Losing(cut(blobs(), 0.3, 0.6, 0.9), lost)
    model = KMeans(6, init=first, max_iter=2, tol=0.0, random_state=0)
    with pytest.raises(RuntimeError, match="the lossy engine returned results of 3 of 4 partitions"):
        fitted(model, engine)
    assert engine.passes == lost
    assert "_labels" not in vars(model) or model._labels is None


def test_an_interrupt_that_an_engine_replaced_by_its_own_error_is_an_interrupt(monkeypatch):
    def broken(self, task):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise LookupError("no connection to send cancel")  # noqa: B904

    rows = blobs()
    monkeypatch.setattr(ExecutorEngine, "total", broken)
    with pytest.raises(KeyboardInterrupt):
        KMeans(6, init=rows[:6]).fit([rows[:100], rows[100:]])


def test_empty_partitions_are_not_missing():
    rows = blobs()
    same(
        fitted(KMeans(6, random_state=0), Losing([rows[:0], rows, rows[:0]])),
        KMeans(6, random_state=0).fit([rows[:0], rows, rows[:0]]),
    )


def test_machines_lost_while_rows_are_labeled(monkeypatch):
    parts = cut(blobs(), 0.5)
    model = KMeans(6, init=blobs()[:6])
    with pytest.raises(
        RuntimeError, match=r"the lossy engine lost a task: ConnectionError: gone\. .*step \d"
    ):
        fitted(model, Losing(parts, labels=True))
    assert model.inertia_ > 0
    monkeypatch.setattr(model, "_open", lambda X, weights, reset: Losing(X, labels=True))
    with pytest.raises(
        RuntimeError, match=r"lost a task: ConnectionError: gone\. The estimator is unchanged"
    ):
        model.predict(parts)


@pytest.mark.parametrize("module", ["distributed", "dask", "spark", "ray"])
def test_what_replaces_mini_batches_is_named(module):
    found = importlib.import_module(f"shoal.{module}")
    message = rf"'shoal\.{module}' has no attribute 'MiniBatchKMeans'.*lightweight_coreset.*KMeans\(max_iter"
    with pytest.raises(AttributeError, match=message):
        _ = found.MiniBatchKMeans
    with pytest.raises(AttributeError, match=r"has no attribute 'Other'$"):
        _ = found.Other
    for name, instead in (("afk-mc2", "Use"), ("random", "Use"), ("kmeans++", "Did you mean")):
        with pytest.raises(ValueError, match=rf"got '{re.escape(name)}'\. {instead} 'k-means\+\+'"):
            found.KMeans(2, init=name).fit([blobs()])
    with pytest.raises(TypeError, match=r"^KMeans\.__init__\(\) got an unexpected keyword argument 'n_init'"):
        found.KMeans(2, n_init=3)


def test_the_output_of_transform_can_be_set():
    pandas = pytest.importorskip("pandas")
    parts = cut(blobs(), 0.3)
    model = KMeans(3, random_state=0).fit(parts)
    known = model.transform(parts)
    assert isinstance(known, np.ndarray)
    model.set_output(transform="pandas")
    for found in (model.transform(parts), model.fit_transform(parts)):
        assert isinstance(found, pandas.DataFrame)
        assert found.columns.tolist() == ["kmeans0", "kmeans1", "kmeans2"]
        np.testing.assert_array_equal(found, known)
    for module in ("dask", "spark", "ray"):
        # The kind of the output is that of the input.
        assert not hasattr(importlib.import_module(f"shoal.{module}").KMeans(), "set_output")


def test_a_loop_takes_the_weights_of_its_rows():
    parts, weights = cut(blobs(), 0.3), cut(np.arange(2400) % 3, 0.3)
    steps = list((model := KMeans(3, random_state=0)).iter_fit(parts, weights))
    assert len(steps) == model.n_iter_
    same(model, KMeans(3, random_state=0).fit(parts, sample_weight=weights))


def test_what_needs_a_fit_says_so():
    for name in ("predict", "transform", "score"):
        with pytest.raises(NotFittedError):
            getattr(KMeans(3), name)([blobs()])
    model = KMeans(3, random_state=0).fit([blobs()])
    for name in ("predict", "transform", "score"):
        message = r"partition 0: (centers have 5 columns, X has 4|X has 4 columns)"
        with pytest.raises(ValueError, match=message):
            getattr(model, name)([blobs()[:, :4]])
    with pytest.raises(ValueError, match="X must have at least 1 row, got 0"):
        model.score([blobs()[:0]])
    assert sorted(sklearn.base.clone(model).get_params()) == sorted(model.get_params())


def test_a_checkpoint_has_a_digest_of_the_first_centers(tmp_path):
    path, rows, init = tmp_path / "run.safetensors", blobs(), blobs()[:6]
    KMeans(6, init=init, callbacks=[Checkpoint(path, every_steps=1)]).fit([rows])
    assert b"sha256" in path.read_bytes()
    KMeans(6, init=init.tolist()).fit([rows], resume_from=path)
    other = init.copy()
    other[3, 2] = np.nextafter(other[3, 2], np.float32(0))
    for given in (other, init[:, :2], "k-means++"):
        with pytest.raises(ValueError, match=r"init must be .*as in the checkpoint"):
            KMeans(6, init=given).fit([rows], resume_from=path)


@pytest.mark.parametrize("max_iter", [2, 50])
def test_a_resumed_fit_knows_the_rows_of_zeros(max_iter, tmp_path):
    path = tmp_path / "run.safetensors"
    rows = np.concatenate([np.zeros((3, 5)), blobs(dtype=np.float64)])
    params = {"n_clusters": 3, "metric": "cosine", "init": rows[10:13], "max_iter": max_iter, "tol": 0.0}
    for options in ({}, {"resume_from": path}):
        with pytest.warns(UserWarning, match="3 rows of X are all zeros"):
            model = KMeans(**params, callbacks=[Checkpoint(path, every_steps=1)]).fit([rows], **options)
        assert model.n_zero_rows_ == 3
    assert model.stop_reason_ == ("max-iter" if max_iter == 2 else "labels-stable")


def test_a_checkpoint_whose_history_is_of_another_length_is_refused(tmp_path):
    path, rows = tmp_path / "run.safetensors", blobs()

    def write_too_few(model, step):
        last = model._history.pop()
        model._write_checkpoint(path)
        model._history.append(last)

    KMeans(6, init=rows[:6], max_iter=3, tol=0.0, callbacks=[write_too_few]).fit([rows])
    with pytest.raises(ValueError, match=r"run\.safetensors: is damaged: its pass comes after 3 steps"):
        KMeans(6, init=rows[:6], max_iter=3, tol=0.0).fit([rows], resume_from=path)


def test_weights_are_checked_by_name():
    rows = blobs()
    for bad, problem in (
        (np.ones(2400, complex), "sample_weight must be real, got complex numbers"),
        (["heavy"] * 2400, "sample_weight must hold numbers"),
        (np.ones((2400, 1)), r"sample_weight must be 1-D, one weight per row, got shape \(2400, 1\)"),
        (np.ones(7), "sample_weight has 7 values, X has 2400 rows"),
    ):
        with pytest.raises(ValueError, match="partition 0: " + problem):
            KMeans(2).fit([rows], sample_weight=[bad])
    for bad in (5, "weights", np.float64(2), np.array(1.0)):
        with pytest.raises(
            TypeError, match="sample_weight must be a list of 1 arrays, one per partition, got"
        ):
            KMeans(2).fit([rows], sample_weight=bad)


@pytest.mark.parametrize("seed", range(4))
def test_inertia_has_the_bits_of_a_local_fit_for_any_number_of_partitions(seed):
    X = np.random.default_rng(seed).normal(size=(1500, 5))
    local = shoal.KMeans(9, init=X[:9], max_iter=5, tol=0, algorithm="lloyd").fit(X)
    for n in (1, 2, 3, 5, 10):
        model = KMeans(9, init=X[:9], max_iter=5, tol=0).fit(np.array_split(X, n))
        assert model.inertia_ == local.inertia_
        np.testing.assert_array_equal(model.cluster_centers_, local.cluster_centers_)
