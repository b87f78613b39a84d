"""What workers keep between the sweeps of a fit changes no bit of the results, and skips distances."""

import multiprocessing
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
import shoal
from distributed_suite import blobs, cut, same
from shoal._checks.params import n_bytes
from shoal._core import Kept
from shoal._distributed.base import block_of
from shoal._distributed.engine import merged
from shoal._distributed.executor import ExecutorEngine
from shoal._distributed.kept import FITS, MOST_ENDED, STATES, Fits, States
from shoal.distributed import KMeans, KMeansPass

#: More clusters than blobs, so that labels change in many sweeps, and so many columns that bounds serve.
ROWS = blobs(n=6000, d=20, k=8)
PARTS = cut(ROWS, 0.2, 0.5, 0.75)
PARAMS = {"n_clusters": 30, "random_state": 5, "tol": 0.0, "max_iter": 40}


@pytest.fixture(scope="module")
def plain():
    """The fit whose workers keep nothing."""
    return KMeans(**PARAMS, memory=0).fit(PARTS)


@pytest.fixture(autouse=True)
def nothing_left():
    """Fits free what they keep in this process."""
    yield
    assert STATES._fits == {}


@pytest.fixture
def sweeps(monkeypatch):
    """The distances that sweeps over partitions measured, and the rows, in their order."""
    seen = []
    put = States.put

    def noted(self, keeping, partition, kept, rows):
        seen.append((kept.n_distances, rows))
        put(self, keeping, partition, kept, rows)

    monkeypatch.setattr(States, "put", noted)
    return seen


def test_late_sweeps_skip_distances(plain, sweeps):
    model = KMeans(**PARAMS).fit(PARTS)
    same(model, plain)
    np.testing.assert_array_equal(model.labels_, plain.labels_)
    n_parts = len(PARTS)
    shares = [
        sum(distances for distances, _ in sweeps[i : i + n_parts]) / (len(ROWS) * 30)
        for i in range(0, len(sweeps), n_parts)
    ]
    assert len(shares) >= model.n_iter_ > 8
    assert shares[0] == 1
    assert np.median(shares[-4:]) < 0.4


def test_the_results_are_those_of_a_local_fit(plain):
    start = ROWS[:30]
    params = {**PARAMS, "init": start}
    local = shoal.KMeans(**params).fit(ROWS)
    model = KMeans(**params).fit(PARTS)
    np.testing.assert_array_equal(model.cluster_centers_, local.cluster_centers_)
    np.testing.assert_array_equal(model.labels_, local.labels_)
    np.testing.assert_array_equal(model.counts_, local.counts_)
    assert (model.inertia_, model.n_iter_) == (local.inertia_, local.n_iter_)
    objectives = model.history_["objective"], local.history_["objective"]
    np.testing.assert_allclose(*objectives, rtol=1e-11)


@pytest.mark.parametrize("lost", ["all", "one"])
def test_lost_state_changes_nothing(plain, lost):
    def lose(_, step):
        if step.iteration % 3 == 0:
            for states in STATES._fits.values():
                for partition in list(states) if lost == "all" else [step.iteration % len(PARTS)]:
                    states.pop(partition, None)

    same(KMeans(**PARAMS, callbacks=[lose]).fit(PARTS), plain)


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_partitions_change_workers(plain, pool):
    with pool(2) as executor:
        for _ in range(2):
            model = KMeans(**PARAMS).fit(PARTS, executor=executor)
            same(model, plain)
            np.testing.assert_array_equal(model.labels_, plain.labels_)


@pytest.mark.parametrize("memory", [1, "30kB", "100kB", "500kB", "1GB"])
def test_fits_take_turns_within_any_budget(plain, memory, monkeypatch):
    most = []
    take = States.take

    def noted(self, *given):
        found = take(self, *given)
        # The state that a task takes may grow to its budget.
        most.append(self._most())
        return found

    monkeypatch.setattr(States, "take", noted)
    other = {**PARAMS, "random_state": 6, "n_clusters": 20}
    known = KMeans(**other, memory=0).fit(PARTS[::-1])
    models = [KMeans(**PARAMS, memory=memory), KMeans(**other, memory=memory)]
    fits = [models[0].iter_fit(PARTS), models[1].iter_fit(PARTS[::-1])]
    while fits:
        fits = [fit for fit in fits if next(fit, None) is not None]
    same(models[0], plain)
    same(models[1], known)
    np.testing.assert_array_equal(models[1].labels_, known.labels_)
    assert max(most) <= n_bytes("memory", memory)
    assert (max(most) > 0) == (memory != 1)


@pytest.mark.filterwarnings("ignore:.*are all zeros")
def test_weights_and_zeros():
    rng = np.random.default_rng(1)
    rows = ROWS[:2000].copy()
    rows[[3, 700, 701, 1999]] = 0
    parts, weights = cut(rows, 0.3, 0.31), cut(rng.integers(0, 3, 2000) / 2, 0.3, 0.31)
    for metric in ("euclidean", "cosine"):
        params = {**PARAMS, "metric": metric, "n_clusters": 12}
        one, two = KMeans(**params).fit(parts, sample_weight=weights), KMeans(**params, memory=0)
        same(one, two.fit(parts, sample_weight=weights))
        one, two = KMeans(**params).fit(parts), KMeans(**params, memory=0).fit(parts)
        same(one, two)
        assert one.n_zero_rows_ == two.n_zero_rows_ == (4 if metric == "cosine" else 0)


def test_labels_are_kept(plain, monkeypatch):
    def refused(*_):
        raise AssertionError("the labels are known")

    monkeypatch.setattr("shoal._core.predict", refused)
    np.testing.assert_array_equal(KMeans(**PARAMS).fit(PARTS).labels_, plain.labels_)
    with pytest.raises(RuntimeError, match="the labels are known"):
        KMeans(**PARAMS, memory=0).fit(PARTS)


@pytest.mark.parametrize("threads", [False, True])
def test_a_failed_fit_frees_its_state(threads):
    rows = [part.copy() for part in PARTS]

    def break_rows(_, step):
        if step.iteration == 3:
            assert STATES.nbytes > 0
            rows[1][:] = np.nan

    model = KMeans(**PARAMS, callbacks=[break_rows])
    with ThreadPoolExecutor(2) as pool, pytest.raises(ValueError, match="partition 1: X must be finite"):
        model.fit(rows, executor=pool if threads else None)
    fit = FITS.begin(1, 300, 1)
    FITS.end(fit)
    assert fit.running == {fit.number}


class Blocks:
    """Rows of unknown number, which can be read again."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(np.array_split(self.rows, 7))


def test_streams_keep_state_from_the_second_sweep_on(plain, sweeps):
    same(KMeans(**PARAMS).fit([Blocks(part) for part in PARTS]), plain)
    shares = [distances / rows / 30 for distances, rows in sweeps]
    assert shares[: len(PARTS)] == [1] * len(PARTS)
    assert np.median(shares[-16:]) < 0.4


def test_a_second_interrupt_still_closes_the_engine(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    closed = []
    monkeypatch.setattr(ExecutorEngine, "forget", interrupted)
    monkeypatch.setattr(ExecutorEngine, "close", lambda _: closed.append(True))
    with pytest.raises(KeyboardInterrupt):
        KMeans(**PARAMS, callbacks=[interrupted]).fit(PARTS)
    assert closed == [True]


def test_a_resumed_fit_has_the_same_objectives(plain, tmp_path):
    path = tmp_path / "run.safetensors"
    stop = [shoal.callbacks.Checkpoint(path), lambda _, step: step.iteration == 8]
    KMeans(**PARAMS, callbacks=stop).fit(PARTS)
    found = KMeans(**PARAMS, memory="1MB").fit(PARTS, resume_from=path)
    for name in ("objective", "center_shift"):
        np.testing.assert_array_equal(found.history_[name], plain.history_[name])
    assert (found.inertia_, found.n_iter_) == (plain.inertia_, plain.n_iter_)


def swept(rows):
    """What a sweep keeps of rows."""
    kept = Kept(300)
    KMeansPass(rows[:3])._state.absorb(block_of(rows).source, None, None, 0, 0, 1, kept, 1 << 20)
    return kept


def test_the_oldest_fits_make_room():
    fits, states = Fits(), States()
    size = swept(ROWS[:1000]).nbytes
    assert size > 0
    first, second = fits.begin(3 * size, 300, 2), fits.begin(3 * size, 300, 2)
    for keeping in (first, second):
        for partition in range(2):
            kept, budget = states.take(keeping, partition)
            assert kept.nbytes == 0
            assert budget == 3 * size // 2
            states.put(keeping, partition, swept(ROWS[:1000]), 1000)
    # Four states do not fit; both of the older fit go.
    assert states.nbytes == 2 * size
    assert states.take(first, 0)[1] == size
    assert states.take(second, 1)[0].nbytes == size
    # While a task uses a state, its bytes count, and there is nothing for another task.
    assert states.take(second, 1)[0].nbytes == 0
    assert states.nbytes == 2 * size


def test_the_budget_is_shared_by_rows():
    fits, states = Fits(), States()
    keeping = fits.begin(4_000_000, 300, 4)
    for partition, rows in enumerate((1000, 3000)):
        states.take(keeping, partition)
        states.put(keeping, partition, swept(ROWS[:rows]), rows)
    assert states.take(keeping, 0)[1] == 1_000_000
    assert states.take(keeping, 1)[1] == 3_000_000


def test_ended_fits_are_forgotten_by_other_processes():
    fits, states = Fits(), States()
    stranger = Fits().begin(1 << 20, 300, 1)
    old, kept_on = fits.begin(1 << 20, 300, 1), fits.begin(1 << 20, 300, 1)
    for keeping in (stranger, old, kept_on):
        states.take(keeping, 0)
        states.put(keeping, 0, swept(ROWS[:100]), 100)
    fits.end(old)
    new = fits.begin(1 << 20, 300, 1)
    # A message that was sent before the fit began.
    states.take(pickle.loads(pickle.dumps(kept_on)), 0)
    assert old.fit in states._fits
    states.take(fits.now(kept_on), 0)
    assert list(states._fits) == [stranger.fit, kept_on.fit]
    states.take(new, 0)
    assert list(states._fits) == [stranger.fit, kept_on.fit, new.fit]


def test_a_task_that_outlives_its_fit_keeps_nothing():
    fits, states = Fits(), States()
    keeping = fits.begin(1 << 20, 300, 2)
    states.take(keeping, 0)
    states.forget(keeping.fit)
    states.put(keeping, 0, swept(ROWS[:100]), 100)
    assert states.take(keeping, 1)[1] == 0
    states.put(keeping, 1, swept(ROWS[:100]), 100)
    assert states._fits == {}
    for number in range(2 * MOST_ENDED):
        states.forget(("another driver", number))
    assert len(states._ended) == MOST_ENDED


def test_tasks_at_a_time_share_the_budget():
    states, barrier = States(), threading.Barrier(8)
    # As a task that knows of one partition.
    keeping = Fits().begin(1_000_000, 300, 1)

    def swept_by_a_task(partition):
        kept, budget = states.take(keeping, partition)
        barrier.wait(30)
        states.put(keeping, partition, kept, 100)
        return budget

    with ThreadPoolExecutor(8) as pool:
        first = sum(pool.map(swept_by_a_task, range(8)))
        assert first == 1_000_000
        assert list(pool.map(swept_by_a_task, range(8))) == [125_000] * 8


def test_a_fit_can_end_while_its_thread_holds_the_locks():
    """As garbage collection ends an abandoned `iter_fit`."""
    fits, states = Fits(), States()
    old, new = fits.begin(1 << 20, 300, 1), fits.begin(1 << 20, 300, 1)
    states.take(old, 0)
    with fits._lock, states._locked():
        fits.end(old)
        states.forget(old.fit)
    assert states._fits == {}
    assert fits.now(new).running == {new.number}


def tell_of_fits(queue):
    queue.put((FITS.begin(1, 300, 1).driver, STATES.nbytes))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_begins_anew():
    context = multiprocessing.get_context("fork")
    running, queue = FITS.begin(1 << 20, 300, 1), context.SimpleQueue()
    STATES.take(running, 0)
    STATES.put(running, 0, swept(ROWS[:100]), 100)
    child = context.Process(target=tell_of_fits, args=(queue,), daemon=True)
    # As if threads worked on fits.
    with FITS._lock, STATES._lock:
        child.start()
    child.join(30)
    assert child.exitcode == 0
    driver, nbytes = queue.get()
    assert driver != running.driver
    assert nbytes == 0
    assert STATES.nbytes > 0
    FITS.end(running)


def test_loops_of_your_own_keep_nothing(sweeps):
    task = KMeansPass(ROWS[:4])
    for _ in range(3):
        parts = [task.absorb(rows, partition=i) for i, rows in enumerate(PARTS)]
        task, _ = task.commit(merged(parts))
        assert not task._state.has_points
    assert sweeps == []
