"""The reference engine on ``concurrent.futures`` passes the conformance suite of distributed engines."""

import multiprocessing
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest
from distributed_suite import SHORT, UNEQUAL, Suite, blobs, cut
from shoal import distributed


class LastFirst(Executor):
    """Runs the tasks of a pass once all are there: each twice, as after a retry, and the last one first."""

    #: Tasks of a pass.
    expected = 0

    def __init__(self):
        self._waiting = []

    def submit(self, function, /, *args, **kwargs):
        future = Future()
        self._waiting.append((future, function, args, kwargs))
        if len(self._waiting) == self.expected:
            while self._waiting:
                self._run(*self._waiting.pop())
        return future

    def _run(self, future, function, args, kwargs):
        try:
            function(*args, **kwargs)
            future.set_result(function(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - given to whoever waits
            future.set_exception(error)


class OnExecutor:
    """How the suite runs the estimators of `shoal.distributed`."""

    KMeans = distributed.KMeans
    kinds = frozenset({"weights", "paths", "empty", "storage"})

    def __init__(self, executor):
        self.executor = executor

    def given(self, partitions, sample_weight=None):
        self.executor.expected = len(partitions)
        options = {"executor": self.executor}
        if sample_weight is not None:
            options["sample_weight"] = sample_weight
        return (partitions,), options

    def rows(self, partitions):
        return self.given(partitions)

    def labels(self, labels):
        return labels

    distances = labels

    @staticmethod
    def lightweight_coreset(*args, **options):
        return distributed.lightweight_coreset(*args, **options)


def pool(kind, workers):
    if kind == "processes":
        return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("forkserver"))
    return ThreadPoolExecutor(workers) if kind == "threads" else nullcontext(LastFirst())


@pytest.fixture(
    scope="module",
    params=[("threads", 2), ("threads", 4), ("processes", 2), ("last first", 1)],
    ids=lambda given: f"{given[0]}-{given[1]}",
)
def runner(request):
    with pool(*request.param) as executor:
        yield OnExecutor(executor)


class TestExecutor(Suite):
    """The suite on threads, on processes, and with every task run twice, the last one first."""


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_processes(workers):
    with pool("processes", workers) as executor:
        Suite.both(OnExecutor(executor), SHORT, cut(blobs(), *UNEQUAL))


def test_the_sequential_driver_is_close_to_a_local_fit():
    import shoal

    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4)) + 6 * rng.integers(0, 5, (3000, 1))
    init = X[:5].copy()
    local = shoal.KMeans(5, init=init, algorithm="lloyd").fit(X)
    found = distributed.KMeans(5, init=init).fit(np.array_split(X, 7))
    np.testing.assert_allclose(found.cluster_centers_, local.cluster_centers_, rtol=1e-12)
    np.testing.assert_array_equal(found.labels_, local.labels_)
    assert (found.n_iter_, found.stop_reason_) == (local.n_iter_, local.stop_reason_)
    np.testing.assert_allclose(found.inertia_, local.inertia_, rtol=1e-12)
    np.testing.assert_allclose(found.history_["objective"], local.history_["objective"], rtol=1e-12)
