"""`shoal.dask` on local clusters: the conformance suite, lost workers and clusters, inputs, memory."""

import gc
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import dask_parts
import numpy as np
import pytest
import shoal
from distributed_suite import SHORT, UNEQUAL, Suite, blobs, cut, same
from shoal import distributed
from shoal._distributed import dask_engine, ranges
from shoal._distributed.kept import STATES, Fits, States
from shoal._distributed.ranges import RangedSweep
from shoal.callbacks import Checkpoint

pytest.importorskip("distributed")

import dask
import dask.array as da
import shoal.dask

from distributed import Client, LocalCluster, futures_of, wait

EVEN = (0.25, 0.5, 0.75)


def local(n_workers=2, threads=1, processes=False):
    return LocalCluster(
        n_workers=n_workers,
        threads_per_worker=threads,
        processes=processes,
        **({"host": "127.0.0.1"} if processes else {}),
        dashboard_address="127.0.0.1:0",
        memory_limit=0,
    )


@pytest.fixture(scope="module")
def processes():
    """A client of two processes, for all tests of this module."""
    # A cluster gives a worker up that is missing this long after it was lost, also if it is lost once more.
    patient = dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"})
    with patient, local(processes=True) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture
def threads():
    """A client of a cluster of its own, in this process."""
    with local() as cluster, Client(cluster) as client:
        yield client


def array_of(partitions):
    """A dask array with these chunks, also empty ones, which `dask.array.concatenate` drops."""
    sizes = tuple(len(rows) for rows in partitions)
    first = np.asarray(partitions[0])
    chunks = (sizes, *((size,) for size in first.shape[1:]))
    numbers = da.arange(len(sizes), chunks=1).reshape((-1,) + (1,) * (first.ndim - 1))
    pick = [np.asarray(rows) for rows in partitions]
    return da.map_blocks(lambda i: pick[i.item()], numbers, chunks=chunks, dtype=first.dtype, meta=first[:0])


class Arrays:
    """Runs the suite on dask arrays; paths stay a list."""

    KMeans = shoal.dask.KMeans
    lightweight_coreset = staticmethod(shoal.dask.lightweight_coreset)
    kinds = frozenset({"weights", "paths", "empty", "storage"})

    def __init__(self, client):
        self.client = client

    def given(self, partitions, sample_weight=None):
        if isinstance(partitions[0], str):
            return (partitions,), {"client": self.client}
        weights = {} if sample_weight is None else {"sample_weight": array_of(sample_weight)}
        return (array_of(partitions),), {"client": self.client, **weights}

    def rows(self, partitions):
        return (array_of(partitions),), {}

    def labels(self, labels):
        assert isinstance(labels, da.Array)
        return self.client.compute(labels).result()

    distances = labels


@pytest.fixture(scope="module")
def runner(processes):
    return Arrays(processes)


class TestSuite(Suite):
    """The conformance suite."""


@pytest.fixture
def ranged(monkeypatch):
    """Commit sweeps in ranges of clusters, however small their results are."""
    monkeypatch.setattr(dask_engine, "LEAST_RANGED", 0)

    def refuse(*_):
        raise AssertionError("the driver must not see the sums")

    monkeypatch.setattr(dask_engine.DaskEngine, "total", refuse)


@pytest.mark.usefixtures("small_ranges")
class TestSuiteInRanges(Suite):
    """The conformance suite, with sweeps that are committed in ranges of clusters."""

    @pytest.fixture
    def small_ranges(self, monkeypatch):
        monkeypatch.setattr(dask_engine, "LEAST_RANGED", 0)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_ranges_of_clusters_change_no_bit(processes, ranged, metric, dtype):
    rows = blobs(dtype=dtype)
    # The last centers are far from all rows.
    init = np.concatenate([rows[:9], np.full((2, 5), 1e6, dtype)])
    weights = np.random.default_rng(1).integers(0, 4, 2400) / 3
    partitions, weights = cut(rows, *UNEQUAL), cut(weights, *UNEQUAL)
    params = {"n_clusters": 11, "init": init, "metric": metric, "tol": 0.0, "max_iter": 6}
    for weighted in ({}, {"sample_weight": weights}):
        known = distributed.KMeans(**params).fit(partitions, **weighted)
        given = {name: array_of(value) for name, value in weighted.items()}
        model = shoal.dask.KMeans(**params).fit(array_of(partitions), client=processes, **given)
        same(model, known)
        assert model.n_iter_ > 3


def test_centers_stay_on_the_workers(threads, ranged, monkeypatch):
    monkeypatch.setattr(ranges, "SENT_EVERY", 3)
    rows = blobs()
    X = threads.persist(array_of(cut(rows, *EVEN)))
    params = {"n_clusters": 12, "init": rows[:12], "tol": 0.0, "max_iter": 9, "compute_labels": False}
    known = distributed.KMeans(**params)
    model, others = shoal.dask.KMeans(**params), known.iter_fit(cut(rows, *EVEN))
    for step in model.iter_fit(X, client=threads):
        assert len(model.history_) == step.iteration
        assert isinstance(model._centers, RangedSweep)
        assert step.objective == next(others).objective
        if step.iteration % 2 == 0:
            np.testing.assert_array_equal(model.cluster_centers_, known.cluster_centers_)
            np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).cluster_centers_, model._centers)
        if step.iteration % 3 == 0:
            # Two tasks per partition, and two ranges of centers and of points: no task of earlier sweeps.
            forgotten(threads, 12, lambda dask_scheduler: len(dask_scheduler.tasks))
    assert model.n_iter_ == 9
    assert isinstance(model._centers, np.ndarray)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 11])
def test_any_number_of_ranges_gives_the_bits_of_a_local_fit(threads, monkeypatch, n):
    rows = blobs()
    params = {"n_clusters": 11, "init": rows[:11], "tol": 0.0, "max_iter": 4}
    monkeypatch.setattr(
        dask_engine.DaskEngine, "ranged", lambda engine, task: RangedSweep.of(engine, task, n)
    )
    model = shoal.dask.KMeans(**params).fit(array_of(cut(rows, *UNEQUAL)), client=threads)
    known = shoal.KMeans(algorithm="lloyd", **params).fit(rows)
    np.testing.assert_array_equal(model.cluster_centers_, known.cluster_centers_)
    np.testing.assert_array_equal(threads.compute(model.labels_).result(), known.labels_)
    assert model.inertia_ == known.inertia_


def test_instead_of_lost_centers_those_sent_last_are_left(threads, ranged, monkeypatch):
    rows = blobs()

    def lose(*_):
        raise ConnectionError("all workers are gone")

    model = shoal.dask.KMeans(12, init=rows[:12], tol=0.0)
    steps = model.iter_fit(array_of(cut(rows, *EVEN)), client=threads)
    next(steps)
    for step in ("range_totals", "fetched"):
        monkeypatch.setattr(dask_engine.DaskEngine, step, lose)
    lost = "after step 1, or the centers after step 0 if the later ones are lost"
    with (
        pytest.warns(RuntimeWarning, match="holds those after step 0"),
        pytest.raises(RuntimeError, match=lost),
    ):
        next(steps)
    np.testing.assert_array_equal(model.cluster_centers_, rows[:12])


@pytest.mark.parametrize(("step", "at"), [("reports", 1), ("moved", 2), ("range_totals", 3)])
def test_workers_that_die_between_the_steps_of_a_sweep_change_no_bit(
    processes, ranged, monkeypatch, step, at
):
    partitions = cut(blobs(), *(i / 11 for i in range(1, 11)))
    params = {"n_clusters": 6, "init": blobs()[:6], "tol": 0.0, "max_iter": 4}
    known = distributed.KMeans(**params).fit(partitions)
    whole, calls, killed = getattr(dask_engine.DaskEngine, step), [], []

    def kill(engine, sent, held, *given):
        calls.append(given)
        if len(calls) == at:
            # The totals, or the centers.
            lost = [*given, held.centers][0][0]
            wait(lost)
            holders = processes.who_has([lost])[lost.key]
            nannies = processes.cluster.workers.values()
            killed.extend(nanny.pid for nanny in nannies if nanny.worker_address in holders)
            for process in killed:
                os.kill(process, signal.SIGKILL)
        return whole(engine, sent, held, *given)

    monkeypatch.setattr(dask_engine.DaskEngine, step, kill)
    same(shoal.dask.KMeans(**params).fit(array_of(partitions), client=processes), known)
    processes.wait_for_workers(2)
    assert killed


def test_a_killed_worker_changes_no_bit_of_ranges(processes, ranged, tmp_path):
    partitions = cut(blobs(), *(i / 11 for i in range(1, 11)))
    params = {"n_clusters": 6, "init": blobs()[:6], "tol": 0.0}
    known = distributed.KMeans(**params).fit(partitions)
    values, _ = of_a_kind(partitions, dask_parts.Lethal, tmp_path, 3, at=5)
    before = set(processes.run(os.getpid).values())
    same(shoal.dask.KMeans(**params).fit(values, client=processes), known)
    processes.wait_for_workers(2)
    assert before - set(processes.run(os.getpid).values()), "no worker was killed"


# ---------------------------------------------------------------- workers


def test_partitions_stay_on_their_workers(processes):
    X = processes.persist(array_of(cut(blobs(), *EVEN)))
    blocks = futures_of(X)
    wait(blocks)
    held = processes.who_has(blocks)
    shoal.dask.KMeans(**SHORT | {"max_iter": 8, "tol": 0.0}).fit(X, client=processes)
    assert processes.who_has(blocks) == held


@pytest.mark.parametrize(("workers", "n_threads", "n_jobs"), [(1, 4, None), (2, 2, 1)])
def test_results_do_not_depend_on_the_threads(workers, n_threads, n_jobs):
    partitions = cut(blobs(), *(i / 11 for i in range(1, 11)))
    with local(workers, n_threads) as cluster, Client(cluster) as client:
        Suite.both(Arrays(client), SHORT | {"n_jobs": n_jobs}, partitions)


@pytest.mark.parametrize("persisted", ["by the fit", "in runs", "in turns", "on one worker"])
def test_a_pass_is_a_task_per_worker_wherever_the_partitions_lie(processes, persisted, monkeypatch):
    partitions = cut(blobs(), *(i / 16 for i in range(1, 16)))
    workers = sorted(processes.nthreads())
    X, in_turn = array_of(partitions), {"in runs": 8, "in turns": 1, "on one worker": 16}
    if persisted in in_turn:
        chunks = []
        for i in range(16):
            worker = workers[i // in_turn[persisted] % 2]
            chunks.append(processes.persist(X.blocks[i : i + 1], workers=[worker]))
        X = processes.persist(da.concatenate(chunks))
        wait(X)
    tasks = []
    cuts = dask_engine.DaskEngine._tasks
    monkeypatch.setattr(
        dask_engine.DaskEngine, "_tasks", lambda *given: tasks.append(cuts(*given)) or tasks[-1]
    )
    found = shoal.dask.KMeans(**SHORT).fit(X, client=processes)
    same(found, distributed.KMeans(**SHORT).fit(partitions))
    assert all(len(runs) == 2 for runs in tasks)
    if persisted in ("by the fit", "in runs", "on one worker"):
        assert all(sorted(runs) == [list(range(8)), list(range(8, 16))] for runs in tasks[:1])


def kept_here(lost=()):
    """Free the states of these partitions on a worker; return the partitions of which it keeps state."""
    for states in STATES._fits.values():
        for partition in lost:
            states.pop(partition, None)
    return sorted(i for states in STATES._fits.values() for i, entry in states.items() if entry.nbytes)


@pytest.mark.parametrize("lost", [(), (1,), (0, 1, 2, 3)])
def test_workers_keep_state_until_the_fit_ends(processes, lost):
    rows = blobs(n=6000, d=20)
    partitions = cut(rows, *EVEN)
    params = {"n_clusters": 30, "random_state": 0, "tol": 0.0, "max_iter": 12}
    held = []

    def note(_, step):
        held.append(processes.run(kept_here, lost if step.iteration == 6 else ()))

    model = shoal.dask.KMeans(**params, callbacks=[note]).fit(array_of(partitions), client=processes)
    whole = shoal.KMeans(**params | {"init": rows[:30]}).fit(rows)
    again = shoal.dask.KMeans(**params | {"init": rows[:30]}).fit(array_of(partitions), client=processes)
    same(model, distributed.KMeans(**params, memory=0).fit(partitions))
    np.testing.assert_array_equal(again.cluster_centers_, whole.cluster_centers_)
    assert again.inertia_ == whole.inertia_
    # Every partition comes back to its worker.
    assert sorted(held[0].values()) == [[0, 1], [2, 3]]
    assert all(found == held[0] for i, found in enumerate(held) if i != 5)
    assert sorted(i for own in held[5].values() for i in own) == [i for i in range(4) if i not in lost]
    assert set(map(tuple, processes.run(kept_here).values())) == {()}


@pytest.mark.parametrize(("limit", "most"), [(None, 10**9), (10**10, 10**9), (10**8, 25 * 10**6)])
def test_state_takes_at_most_a_quarter_of_the_memory_of_a_worker(limit, most, monkeypatch):
    monkeypatch.setattr(dask_engine, "memory_limit", lambda: limit)
    task = distributed.KMeansPass(blobs()[:3])._of_fit(Fits().begin(10**9, 300, 8))
    assert dask_engine.limited(task, 5)._fit[-3:] == (most, 300, 5)
    task = distributed.SeedPass(3)
    assert dask_engine.limited(task, 5) is task


def test_tasks_of_a_worker_share_its_budget(monkeypatch):
    budgets = []
    take = States.take

    def noted(self, *given):
        budgets.append(take(self, *given))
        return budgets[-1]

    monkeypatch.setattr(States, "take", noted)
    params = {"n_clusters": 6, "random_state": 0, "max_iter": 3, "memory": 400_000, "n_jobs": 1}
    with local(1, 4) as cluster, Client(cluster) as client:
        shoal.dask.KMeans(**params).fit(array_of(cut(blobs(), *EVEN)), client=client)
    assert [budget for _, budget in budgets[:4]] == [100_000] * 4


def test_a_failed_fit_leaves_nothing_on_workers(threads, tmp_path):
    partitions = cut(blobs(), *EVEN)
    paths = [str(tmp_path / f"{i}.npy") for i in range(4)]
    for path, rows in zip(paths, partitions, strict=True):
        np.save(path, rows)

    def break_rows(_, step):
        if step.iteration == 2:
            assert STATES.nbytes > 0
            np.save(paths[1], np.full_like(partitions[1], np.nan))

    model = shoal.dask.KMeans(30, random_state=0, tol=0.0, callbacks=[break_rows])
    with pytest.raises(ValueError, match="partition 1: X must be finite"):
        model.fit(paths, client=threads)
    assert STATES._fits == {}


def test_a_worker_that_does_not_answer_frees_its_state_later(processes, monkeypatch):
    monkeypatch.setattr(dask_engine, "MOST_WAIT", 0.2)
    model = shoal.dask.KMeans(30, random_state=0, tol=0.0)
    fit = model.iter_fit(array_of(cut(blobs(), *EVEN)), client=processes)
    next(fit)
    silent = min(processes.run(os.getpid).values())
    resumed = threading.Timer(60, os.kill, (silent, signal.SIGCONT))
    os.kill(silent, signal.SIGSTOP)
    try:
        resumed.start()
        fit.close()
        assert resumed.is_alive()
    finally:
        resumed.cancel()
        os.kill(silent, signal.SIGCONT)
    assert np.isfinite(model.cluster_centers_).all()
    for _ in range(300):
        if not any(processes.run(kept_here).values()):
            break
        time.sleep(0.1)
    else:
        pytest.fail("a worker keeps state")


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_processes(workers):
    with local(workers, processes=True) as cluster, Client(cluster) as client:
        Suite.both(Arrays(client), SHORT, cut(blobs(), *UNEQUAL))


def test_tasks_take_turns_with_all_threads_of_a_worker():
    with local(1, 2) as cluster, Client(cluster) as client:
        turns = client.map(dask_parts.threads_of_two_tasks, [None, None], pure=False)
        assert client.gather(turns) == [(2, False)] * 2
        dask_parts.BARRIER.reset()
        beside = client.map(dask_parts.threads_of_two_tasks, [1, 1], pure=False)
        assert client.gather(beside) == [(1, True)] * 2


def of_a_kind(partitions, kind, tmp_path, *args, at=1):
    """Partitions as delayed values; partition `at` is of another kind."""
    folder = tmp_path / "reads"
    folder.mkdir()
    make = dask.delayed(dask_parts.made, pure=False)
    values = [dask.delayed(rows, traverse=False) for rows in partitions]
    values[at] = make(kind, partitions[at], folder, *args)
    return values, folder


def test_a_killed_worker_changes_nothing(processes, tmp_path):
    partitions = cut(blobs(), *(i / 11 for i in range(1, 11)))
    known = distributed.KMeans(6, random_state=3).fit(partitions)
    values, folder = of_a_kind(partitions, dask_parts.Lethal, tmp_path, 10, at=5)
    before = set(processes.run(os.getpid).values())
    found = shoal.dask.KMeans(6, random_state=3).fit(values, client=processes)
    np.testing.assert_array_equal(processes.compute(found.labels_).result(), known.labels_)
    same(found, known)
    read = [
        int(path.name.split("-")[1])
        for path in sorted(folder.iterdir(), key=lambda p: int(p.name.split("-")[0]))
    ]
    assert read[9] in before
    processes.wait_for_workers(2)
    after = set(processes.run(os.getpid).values())
    assert read[9] not in after, "the worker was not killed"


def test_a_partition_that_kills_every_worker(tmp_path):
    partitions = cut(blobs(), *EVEN)
    path = tmp_path / "run.safetensors"
    params = {"n_clusters": 6, "init": blobs()[:6], "tol": 0.0}
    whole = distributed.KMeans(**params).fit(partitions)
    assert whole.n_iter_ > 4
    values, _ = of_a_kind(partitions, dask_parts.Lethal, tmp_path, 8, True)
    model = shoal.dask.KMeans(**params, callbacks=[Checkpoint(path, every_steps=1)])
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        local(processes=True) as cluster,
        Client(cluster) as client,
        pytest.raises(RuntimeError, match=r"(?s)Dask lost a task: KilledWorker.*state after step \d"),
    ):
        model.fit(values, client=client)
    assert 1 <= len(model.history_) < whole.n_iter_
    found = distributed.KMeans(**params).fit(partitions, resume_from=path)
    same(found, whole)


def test_a_cluster_that_dies_leaves_the_last_step(tmp_path):
    partitions = cut(blobs(), *EVEN)
    path = tmp_path / "run.safetensors"
    params = {"n_clusters": 12, "random_state": 9, "tol": 0.0}
    whole = distributed.KMeans(**params).fit(partitions)
    assert whole.n_iter_ > 4
    cluster = local()
    client = Client(cluster)
    try:

        def die(_, step):
            if step.iteration == 3:
                cluster.close()

        model = shoal.dask.KMeans(**params, callbacks=[die, Checkpoint(path, every_steps=1)])
        with pytest.raises(RuntimeError, match=r"Dask lost a task.*state after step 3"):
            model.fit(array_of(partitions), client=client)
    finally:
        client.close()
        cluster.close()
    assert model.n_iter_ == len(model.history_) == 3
    third = distributed.KMeans(**params | {"max_iter": 3}).fit(partitions)
    np.testing.assert_array_equal(model.cluster_centers_, third.cluster_centers_)
    assert model.to_local().predict(partitions[0]).shape == (len(partitions[0]),)
    with local() as other, Client(other) as client:
        found = shoal.dask.KMeans(**params).fit(array_of(partitions), client=client, resume_from=path)
    same(found, whole)


def test_an_interrupt_cancels_the_tasks(processes, tmp_path):
    values, _ = of_a_kind(cut(blobs(), *EVEN), dask_parts.Slow, tmp_path)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            shoal.dask.KMeans(6, random_state=0).fit(values, client=processes)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    forgotten(processes)


def test_an_interrupt_cancels_the_totals_of_ranges(processes, ranged, monkeypatch):
    gather, first = Client.gather, [True]

    def interrupt_first(client, *given, **options):
        if first:
            first.clear()
            raise KeyboardInterrupt
        return gather(client, *given, **options)

    monkeypatch.setattr(Client, "gather", interrupt_first)
    # The traceback holds the totals.
    with pytest.raises(KeyboardInterrupt) as caught:
        shoal.dask.KMeans(6, init=blobs()[:6]).fit(array_of(cut(blobs(), *EVEN)), client=processes)
    forgotten(processes, 0, lambda dask_scheduler: sum("_here" in str(key) for key in dask_scheduler.tasks))
    del caught
    gc.collect()
    forgotten(processes)


# ---------------------------------------------------------------- memory


def n_tasks(dask_scheduler):
    """How many tasks run or hold results; what is only remembered to be computed again is released."""
    return sum(task.state != "released" for task in dask_scheduler.tasks.values())


def forgotten(client, n=0, count=n_tasks):
    """Wait until the scheduler has at most n tasks; pytest's own limit ends a wait without end."""
    for _ in range(600):
        if client.run_on_scheduler(count) <= n:
            return
        time.sleep(0.05)
    raise AssertionError(f"{client.run_on_scheduler(count)} tasks are left, not {n}")


def test_nothing_stays_on_the_cluster(processes):
    forgotten(processes)
    X = array_of(cut(blobs(), *EVEN))
    kept = []

    def count(estimator, step):
        # Only the partitions and what is being forgotten: not one result more per sweep.
        forgotten(processes, 4)
        kept.append(processes.run_on_scheduler(n_tasks))

    model = shoal.dask.KMeans(30, random_state=0, tol=0.0, max_iter=12, callbacks=[count])
    model.fit(X, client=processes)
    assert len(kept) == model.n_iter_ >= 8
    # The chunks of the labels, and nothing else.
    forgotten(processes, 4)
    held = [key for keys in processes.has_what().values() for key in keys]
    assert len(held) == 4
    assert all("rows_here" in str(key) for key in held)
    assert processes.compute(model.labels_).result().shape == (2400,)
    del model
    forgotten(processes)


def test_partitions_that_the_caller_persisted_stay(processes):
    X = processes.persist(array_of(cut(blobs(), *EVEN)))
    shoal.dask.lightweight_coreset(X, 100, random_state=0, client=processes)
    shoal.dask.KMeans(6, random_state=0, compute_labels=False).fit(X, client=processes)
    forgotten(processes, 4)
    assert sum(len(keys) for keys in processes.has_what().values()) >= 4
    np.testing.assert_array_equal(processes.compute(X).result(), blobs())
    del X
    forgotten(processes)


# ---------------------------------------------------------------- inputs


def frame_of(rows, n):
    pandas = pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe")
    names = [f"f{i}" for i in range(rows.shape[1])]
    return frames.from_pandas(pandas.DataFrame(rows, columns=names), npartitions=n)


def test_frames(processes):
    rows = blobs()
    X = frame_of(rows, 3)
    partitions = [np.asarray(part.compute(scheduler="sync")) for part in X.partitions]
    weights = (X["f0"] - X["f0"].min()).rename("weight")
    model = shoal.dask.KMeans(6, random_state=3).fit(X, sample_weight=weights, client=processes)
    assert model.feature_names_in_.tolist() == list(X.columns)
    values = [part.compute(scheduler="sync").to_numpy() for part in weights.partitions]
    known = distributed.KMeans(6, random_state=3).fit(partitions, sample_weight=values)
    same(model, known)
    index = X.compute(scheduler="sync").index
    for labels in (processes.compute(model.labels_).result(), model.predict(X).compute(scheduler="threads")):
        assert (labels.name, labels.dtype, labels.index.equals(index)) == ("label", np.int32, True)
        np.testing.assert_array_equal(labels, known.labels_)
    assert model.labels_.divisions == model.predict(X).divisions == X.divisions
    distances = model.transform(X).compute(scheduler="threads")
    assert distances.columns.tolist() == model.get_feature_names_out().tolist()
    assert distances.index.equals(index)
    np.testing.assert_array_equal(distances, known.transform(partitions))
    np.testing.assert_allclose(model.score(X, client=processes), known.score(partitions), rtol=1e-12)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X.rename(columns={"f0": "other"}))
    again = model.fit(array_of(partitions), client=processes)
    assert not hasattr(again, "feature_names_in_")


@pytest.fixture
def scheduled(caplog):
    """The log of the schedulers of this process."""
    log = logging.getLogger("distributed.scheduler")
    log.addHandler(caplog.handler)
    yield caplog
    log.removeHandler(caplog.handler)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["array", "frame"])
def test_rows_that_a_filter_selects(processes, scheduled, kind, weighted):
    if kind == "array":
        X = da.random.default_rng(0).random((4000, 3), chunks=(500, 3))
        X = X[X[:, 0] > 0.3]
        with dask.config.set(scheduler="sync"):
            X.compute_chunk_sizes()
        parts, weights = [part.compute(scheduler="sync") for part in X.blocks], X[:, 1]
    else:
        X = frame_of(blobs(), 5)
        X = X[X["f0"] > X["f0"].mean()]
        weights = (X["f1"] - X["f1"].min()).rename("weight")
        parts = [part.compute(scheduler="sync").to_numpy() for part in X.partitions]
    given, known = {}, {}
    if weighted:
        each = weights.blocks if kind == "array" else weights.partitions
        given = {"sample_weight": weights}
        known = {"sample_weight": [np.asarray(part.compute(scheduler="sync")) for part in each]}
    model = shoal.dask.KMeans(4, random_state=0).fit(X, client=processes, **given)
    expected = distributed.KMeans(4, random_state=0).fit(parts, **known)
    same(model, expected)
    # The labels of the fit are still on the workers.
    for labels in (model.labels_, model.predict(X)):
        np.testing.assert_array_equal(processes.compute(labels).result(), expected.labels_)
    assert "run_spec" not in scheduled.text


@pytest.mark.parametrize(("persist", "kept"), [(True, 4), (False, 0), ("25kB", 2), (0, 0)])
def test_files_are_decoded_once_within_the_budget(persist, kept, tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    from shoal._distributed import dask_rows, decoded

    frames = [pandas.DataFrame(part, columns=list("abcde")) for part in cut(blobs(), *EVEN)]
    paths = [str(tmp_path / f"{i}.parquet") for i in range(4)]
    for path, part in zip(paths, frames, strict=True):
        part.to_parquet(path, row_group_size=100)
    found = []
    read = dask_rows.decoded
    monkeypatch.setattr(dask_rows, "decoded", lambda *given: found.append(read(*given)) or found[-1])
    before = decoded.BUDGET._held
    # One process, in which a budget holds for both workers; a partition has 12,000 bytes.
    with local() as cluster, Client(cluster) as client:
        model = shoal.dask.KMeans(**SHORT).fit(paths, client=client, persist=persist)
        assert sum(isinstance(each, decoded.Decoded) for each in found) == kept
        assert decoded.BUDGET._held - before == 12_000 * kept
        known = distributed.KMeans(**SHORT).fit(frames)
        same(model, known)
        assert model.feature_names_in_.tolist() == list("abcde")
        np.testing.assert_array_equal(model.labels_.compute(), known.labels_)
        np.testing.assert_array_equal(model.predict(paths).compute(), known.labels_)
        if kept:
            np.testing.assert_array_equal(pickle.loads(pickle.dumps(found[0])).rows, found[0].rows)
            assert dask.sizeof.sizeof(found[0]) >= found[0].rows.nbytes
        for wrong in ("much", -1):
            with pytest.raises(ValueError, match="persist must be"):
                shoal.dask.KMeans(**SHORT).fit(paths, client=client, persist=wrong)
    del model
    found.clear()
    gc.collect()
    assert decoded.BUDGET._held == before


def test_damaged_files_give_their_budget_back(tmp_path):
    pytest.importorskip("pyarrow")
    from shoal._distributed import decoded

    class Broken:
        nbytes, shape, access, sparse, dtype = 80, (10, 2), "replay", False, np.dtype(np.float32)
        _source = type("Source", (), {"dtype": "float32"})

        def __array__(self, dtype=None, copy=None):
            raise OSError("damaged")

    before = decoded.BUDGET._held
    with pytest.raises(OSError, match="damaged"):
        decoded.decoded(Broken(), 1 << 20)
    assert decoded.BUDGET._held == before


def test_predict_needs_no_cluster(processes):
    X = array_of(cut(blobs(), *EVEN))
    model = shoal.dask.KMeans(6, random_state=3).fit(X, client=processes)
    labels = model.predict(X)
    assert (labels.chunks, labels.dtype) == ((X.chunks[0],), np.int32)
    np.testing.assert_array_equal(labels.compute(scheduler="threads"), model.to_local().predict(blobs()))
    with pytest.raises(ValueError, match="features"):
        model.predict(X[:, :3])


def test_pickles_without_the_labels(processes):
    X = array_of(cut(blobs(), *EVEN))
    model = shoal.dask.KMeans(6, random_state=3).fit(X, client=processes)
    copy = pickle.loads(pickle.dumps(model))
    same(copy, model)
    np.testing.assert_array_equal(
        copy.predict(X).compute(scheduler="threads"), processes.compute(model.labels_).result()
    )
    with pytest.raises(AttributeError, match="predict"):
        _ = copy.labels_


def test_partitions_of_different_widths_and_types(processes, tmp_path):
    rows = blobs()
    for name, other in (("width", rows[:, :4]), ("type", rows.astype(np.float64))):
        paths = [str(tmp_path / f"{name}{i}.npy") for i in range(3)]
        for path, part in zip(paths, [rows, rows, other], strict=True):
            np.save(path, part)
        with pytest.raises(ValueError, match="partition"):
            shoal.dask.KMeans(6, random_state=0).fit(paths, client=processes)


def wrong_inputs():
    X = array_of(cut(blobs(), *EVEN))
    yield X.rechunk((600, 2)), None, r"chunked by rows only, got 3 chunks of columns\. Use X\.rechunk"
    yield X[:, 0], None, "2 dimensions, got 1"
    yield blobs(), None, r"X must be a dask array.*use the estimators of shoal"
    yield [], None, "X must be a dask array"
    yield "rows.npy", None, "X must be a dask array"
    yield [blobs()], None, "list whose item 0 is"
    yield X, da.ones(7), "2400 values, one per row, got 7"
    yield X, da.ones((2400, 1)), "1-D"
    yield ["a.npy", "b.npy"], [np.ones(3)], "list of 2 arrays, one per partition, got 1"
    yield ["a.npy", "b.npy"], np.ones(3), "dask array with the 2 partitions"
    yield ["a.npy", "b.npy"], da.ones(3), "2 partitions of X, got 1"


@pytest.mark.parametrize(("X", "weights", "message"), list(wrong_inputs()))
def test_wrong_inputs(processes, X, weights, message):
    with pytest.raises(ValueError, match=message):
        shoal.dask.KMeans(6).fit(X, sample_weight=weights, client=processes)


def test_weights_of_other_chunks_are_rechunked(processes):
    partitions = cut(blobs(), *EVEN)
    weights = np.random.default_rng(0).integers(0, 3, 2400).astype(np.float64)
    known = distributed.KMeans(6, random_state=0).fit(partitions, sample_weight=cut(weights, *EVEN))
    for given in (weights, da.from_array(weights, chunks=1000)):
        found = shoal.dask.KMeans(6, random_state=0).fit(
            array_of(partitions), sample_weight=given, client=processes
        )
        same(found, known)


def test_lists_with_weights(processes, tmp_path):
    partitions = cut(blobs(), *EVEN)
    paths = [tmp_path / f"{i}.npy" for i in range(4)]
    for path, rows in zip(paths, partitions, strict=True):
        np.save(path, rows)
    weights = [np.arange(len(rows)) % 3 for rows in partitions]
    known = distributed.KMeans(6, random_state=0).fit(partitions, sample_weight=weights)
    same(shoal.dask.KMeans(6, random_state=0).fit(paths, sample_weight=weights, client=processes), known)


def test_parameters_are_checked_before_the_cluster_works(processes):
    forgotten(processes)
    X = array_of(cut(blobs(), *EVEN))
    with pytest.raises(ValueError, match="n_clusters must be"):
        shoal.dask.KMeans(0).fit(X, client=processes)
    with pytest.raises(ValueError, match="persist must be"):
        shoal.dask.KMeans(6).fit(X, client=processes, persist="much")
    assert processes.run_on_scheduler(n_tasks) == 0


# ---------------------------------------------------------------- clients and packages


def test_a_client_is_needed(threads):
    X = array_of(cut(blobs(), *EVEN))
    threads.close()
    with pytest.raises(ValueError, match="connected to a cluster, got one that is closed"):
        shoal.dask.KMeans(6).fit(X, client=threads)
    with pytest.raises(ValueError, match=r"must be a distributed\.Client"):
        shoal.dask.KMeans(6).fit(X, client="localhost")


def test_without_a_client_the_error_says_how_to_make_one():
    code = """
import dask.array as da, shoal.dask
try:
    shoal.dask.KMeans(2).fit(da.ones((10, 2)))
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Create one with distributed.Client()" in done.stdout


def test_workers_may_come_after_the_fit_begins():
    X = array_of(cut(blobs(), *EVEN))
    with local(0) as cluster, Client(cluster) as client:
        timer = threading.Timer(1.0, cluster.scale, (2,))
        timer.start()
        found = shoal.dask.KMeans(**SHORT).fit(X, client=client)
        timer.join()
    same(found, distributed.KMeans(**SHORT).fit(cut(blobs(), *EVEN)))


def test_the_current_client_is_the_default(threads):
    X = array_of(cut(blobs(), *EVEN))
    assert shoal.dask.KMeans(6, random_state=0).fit(X).labels_.shape == (2400,)


def test_dask_is_imported_on_use():
    code = (
        "import sys, shoal, shoal.distributed, shoal.dask; print({'dask', 'distributed'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_without_dask_the_error_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] in ("dask", "distributed")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(ImportError, match=r"shoal\.dask needs dask: pip install 'shoal-cluster\[dask\]'"):
        shoal.dask.KMeans(2).fit([["a.npy"]])
