"""The reference engine on ``concurrent.futures`` passes the conformance suite of distributed engines."""

import math
import multiprocessing
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest
import shoal
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
        if not future.set_running_or_notify_cancel():
            return
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


def by_definition(X, weights, labels, k):
    """The sums of the rows of every cluster by `math.fsum`, which is exact, and their weights."""
    values = X.astype(np.float64) * weights[:, None]
    sums = np.array([[math.fsum(values[labels == j, t]) for t in range(X.shape[1])] for j in range(k)])
    return sums, np.array([math.fsum(weights[labels == j]) for j in range(k)])


#: Cuts of 4000 rows into partitions.
PARTITIONS = {
    "one": [],
    "even": list(range(250, 4000, 250)),
    "uneven": [1, 2, 3, 700, 701, 2900, 3999],
}


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
def test_a_fit_is_bit_identical_to_a_local_fit_for_any_partitions(dtype, weighted, metric):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 9)) * 10.0 ** rng.integers(-3, 4, 9) + 2 * rng.integers(0, 6, (4000, 1))
    X = rng.integers(0, 256, X.shape).astype(dtype) if dtype == "uint8" else X.astype(dtype)
    weights = rng.random(4000) * 10.0 ** rng.integers(-4, 4, 4000) if weighted else None
    init = X[:8].astype(np.float64 if dtype == "float64" else np.float32)
    options = {"init": init, "metric": metric, "tol": 0, "max_iter": 300}
    local = shoal.KMeans(8, **options, n_jobs=1).fit(X, sample_weight=weights)
    others = [
        shoal.KMeans(8, **options, algorithm=algorithm, n_jobs=n_jobs).fit(X, sample_weight=weights)
        for algorithm, n_jobs in [("lloyd", 3), ("elkan", 2), ("yinyang", 1), ("filtering", 2)]
    ]
    for cut_at in PARTITIONS.values():
        for order in [slice(None), slice(None, None, -1)]:
            parts = np.split(X, cut_at)[order]
            part_weights = None if weights is None else np.split(weights, cut_at)[order]
            found = distributed.KMeans(8, **options).fit(parts, sample_weight=part_weights)
            labels = np.concatenate(np.split(local.labels_, cut_at)[order])
            assert found.labels_.tobytes() == labels.tobytes()
            others.append(found)
    for found in others:
        assert found.cluster_centers_.tobytes() == local.cluster_centers_.tobytes()
        assert (found.inertia_, found.n_iter_) == (local.inertia_, local.n_iter_)
    # At a fixed point, the centers are the rounded quotients of exact sums.
    if metric == "euclidean":
        assert local.n_iter_ < 300
        ones = np.ones(4000) if weights is None else weights
        sums, totals = by_definition(X, ones, local.labels_, 8)
        expected = (sums / totals[:, None]).astype(local.cluster_centers_.dtype)
        assert local.cluster_centers_.tobytes() == expected.tobytes()


def test_the_sequential_driver_is_bit_identical_to_a_local_fit():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4)) + 6 * rng.integers(0, 5, (3000, 1))
    init = X[:5].copy()
    local = shoal.KMeans(5, init=init, algorithm="lloyd").fit(X)
    found = distributed.KMeans(5, init=init).fit(np.array_split(X, 7))
    np.testing.assert_array_equal(found.cluster_centers_, local.cluster_centers_)
    np.testing.assert_array_equal(found.labels_, local.labels_)
    assert (found.n_iter_, found.stop_reason_) == (local.n_iter_, local.stop_reason_)
    assert found.inertia_ == local.inertia_
    # Local sweeps carry the objective.
    np.testing.assert_allclose(found.history_["objective"], local.history_["objective"], rtol=1e-12)
