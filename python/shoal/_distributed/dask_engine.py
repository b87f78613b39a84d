"""The engine on Dask: partitions are futures on the workers, and a pass is a task per worker."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import cached_property, partial, reduce
from operator import getitem
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from shoal import _core
from shoal._checks.params import ParameterError, shown

from .dask_rows import Partitions, collected, frame_of, library, memory_limit, started
from .engine import MOST_GATHERED, absorbed, at_once, merged, runs, tree
from .kept import STATES
from .partial import Partial
from .passes import KMeansPass, Pass, RowPass
from .ranges import RangedSweep, Ranges, Sent, moved, report, sweep_of

#: Dask warns of graphs above this size in bytes. A pass holds the centers, which every worker needs.
LARGE_GRAPH = "distributed.admin.large-graph-warning-threshold"

#: Up to this many bytes, a pass is sent with each of its tasks. A larger pass is sent once, as the result of
#: a task of its own, for which the other tasks wait: 10 ms more per pass.
MOST_SENT = 1 << 20

#: Clusters are cut into ranges if a partial result may take this many bytes or more. A sweep in ranges has
#: more tasks, which cost seconds with 100 workers; the driver and single workers receive less.
LEAST_RANGED = 256 << 20

#: Pieces into which the results of all tasks are cut, at most, but 2 for each task. A piece is a task.
MOST_PIECES = 2048

#: The end of a fit waits this many seconds for workers to free its state. Slower workers free it later.
MOST_WAIT = 5

#: The lock of every worker in this process: tasks take turns, and each uses all threads of its worker.
_turns: WeakKeyDictionary[Any, threading.Lock] = WeakKeyDictionary()
_turns_lock = threading.Lock()


class DaskEngine:
    """Runs passes on the workers of a Dask client, where the partitions lie.

    Creating it starts the computation of the partitions. They stay in the memory of the workers until
    `close`. With `client=None`, the current client is used. `n_jobs` is the number of threads per task; with
    None, tasks take turns on a worker, and each uses all its threads.
    """

    name = "Dask"
    keeps = True

    def __init__(self, rows: Partitions, client: Any, n_jobs: int | None) -> None:
        self._client, self._n_jobs, self._frame = client_of(client), n_jobs, rows.frame
        if rows.weights is None:
            [self._blocks] = started(self._client, rows.blocks)
            self._weights: list[Any] = [None] * len(self._blocks)
        else:
            self._blocks, self._weights = started(self._client, rows.blocks, rows.weights)

    @property
    def n_partitions(self) -> int:
        """Number of partitions."""
        return len(self._blocks)

    def total(self, task: Pass) -> Partial:
        """Absorb the partitions on their workers, which merge large results in a tree."""
        with lost_cluster():
            tasks = self._tasks()
            parts = self._submitted(absorbed_here, task, *self._given(tasks))
            merge = partial(self._client.submit, merged_here, pure=False)
            few = tree(parts, lambda group: merge(*group), at_once(task, MOST_GATHERED))
        return merged(map(Partial.from_bytes, self._results(few)))

    def _given(self, tasks: list[list[int]]) -> list[Any]:
        """Return what every task over some partitions takes."""
        held = ([[own[i] for i in run] for run in tasks] for own in (self._blocks, self._weights))
        # Several tasks may run on a worker, each over some of its partitions.
        beside = -(-self.n_partitions // max(1, len(self._threads)))
        return [tasks, *held, [max(len(run), beside) for run in tasks]]

    # ---------------------------------------------------------------- sweeps in ranges of clusters

    def ranged(self, task: KMeansPass) -> RangedSweep | None:
        """Return the sweep in a range per worker, or fewer, if its results are large."""
        workers = len(self._threads)
        if task.result_bytes < LEAST_RANGED or workers < 2:
            return None
        with lost_cluster():
            most = max(2, MOST_PIECES // max(1, len(self._tasks())))
        return RangedSweep.of(self, task, min(workers, most, len(task.counts)))

    def put(self, rows: Sequence[npt.NDArray[Any]]) -> list[Any]:
        """Send rows of centers to the workers."""
        with lost_cluster(), library("dask").config.set({LARGE_GRAPH: "1 TiB"}):
            # As in `_sent`.
            futures: list[Any] = self._client.map(np.ascontiguousarray, rows, pure=False)
        return futures

    def fetched(self, rows: Sequence[Any]) -> list[npt.NDArray[Any]]:
        """Return rows of centers from the workers."""
        with lost_cluster():
            found: list[npt.NDArray[Any]] = self._client.gather(list(rows))
        return found

    def range_totals(self, sent: Sent, ranges: Ranges) -> list[Any]:
        """Absorb the partitions on their workers, and merge the results of each range on one worker."""
        with lost_cluster():
            tasks = self._tasks()
            n, own = len(ranges.centers), ([each] * len(tasks) for each in ranges)
            parts = self._submitted(ranged_here, sent, *own, *self._given(tasks))
            spread = [(part, i) for part in parts for i in range(n)]
            found = self._client.map(getitem, *map(list, zip(*spread, strict=True)), pure=False)
            # One after the other: a task of Dask holds everything that it merges.
            merge = partial(self._client.submit, merged_here, pure=False, allow_other_workers=True)
            workers = sorted(self._threads)
            return [reduce(partial(merge, workers=workers[i % len(workers)]), found[i::n]) for i in range(n)]

    def reports(self, sent: Sent, ranges: Ranges, totals: Sequence[Any]) -> list[bytes]:
        """Let the workers with the totals report."""
        return self._results(self._submitted(report_here, sent, totals, *by_range(ranges)), totals)

    def moved(
        self, sent: Sent, ranges: Ranges, totals: Sequence[Any], moves: bytes
    ) -> tuple[list[Any], list[bytes]]:
        """Move the centers where the totals are; the new ones stay there."""
        found = self._submitted(moved_here, sent, totals, *by_range(ranges), [moves] * len(totals))
        centers, reports = (self._client.map(getitem, found, [i] * len(found), pure=False) for i in range(2))
        return centers, self._results(reports, [*found, *centers, *totals])

    def rows(self, task: RowPass) -> Any:
        """Compute labels or distances of all rows; return a collection whose chunks stay on the workers."""
        with lost_cluster():
            n = self.n_partitions
            values = self._submitted(rows_here, task, range(n), self._blocks, [self._frame is not None] * n)
            counts = self._client.map(len, values, pure=False)
        return collected(task, values, self._results(counts), self._frame)

    def _tasks(self) -> list[list[int]]:
        """Cut the partitions of every worker into runs, one for each task that it runs at a time."""
        # Only computed partitions have a place. If a computation failed, a task of the pass raises its error.
        if self._client.status != "running":
            raise ConnectionError(f"the client is {self._client.status}")
        with self._client.as_current():
            library("distributed").wait(self._blocks)
        holders = self._client.who_has(self._blocks)
        placed: dict[str, list[int]] = {}
        for i, block in enumerate(self._blocks):
            # Lost partitions are computed again, each wherever there is room.
            place = min(holders.get(block.key) or [f"lost {i}"])
            placed.setdefault(place, []).append(i)
        # What one worker holds beyond its share is left to the scheduler, in tasks of their own.
        share = self.n_partitions / max(1, len(self._threads))
        return [
            run
            for place, own in placed.items()
            for run in runs(own, max(self._beside(place), round(len(own) / share)))
        ]

    def _beside(self, worker: str) -> int:
        """Return how many tasks a worker runs at a time."""
        return 1 if self._n_jobs is None else max(1, self._threads.get(worker, 1) // self._n_jobs)

    @cached_property
    def _threads(self) -> dict[str, int]:
        """Number of threads of every worker."""
        threads: dict[str, int] = self._client.nthreads()
        return threads

    def forget(self, fit: tuple[str, int]) -> None:
        """Free the states of a fit on the workers."""
        if self._client.status == "running":
            # The fit may end because of an error, which this one must not hide.
            with suppress(Exception):
                self._client.run(forget_here, fit, on_error="ignore", callback_timeout=MOST_WAIT)

    def close(self) -> None:
        """Release the partitions. Partitions that the caller persisted stay."""
        self._blocks, self._weights = [], []

    def _sent(self, task: Any, n_tasks: int) -> Any:
        """Return a pass as bytes, which the scheduler passes on without reading them."""
        data = pickle.dumps(task)
        if len(data) * n_tasks <= MOST_SENT:
            return data
        # Unlike scattered data, the result of a task is computed again if its worker is lost.
        return self._client.submit(bytes, data, pure=False)

    def _submitted(self, work: Callable[..., Any], task: Any, *given: Sequence[Any]) -> list[Any]:
        """Submit a task for each item of what is given, in one graph; return the futures."""
        n = len(given[0])
        # Text as keys would make all passes one growing group of tasks. The scheduler spreads a large group
        # with few inputs over the workers, wherever the inputs are. Tuples make one group per pass.
        keys = [(f"{work.__name__}-{uuid4().hex}", i) for i in range(n)]
        with library("dask").config.set({LARGE_GRAPH: "1 TiB"}):
            futures: list[Any] = self._client.map(
                work, [self._sent(task, n)] * n, *given, [self._n_jobs] * n, key=keys, pure=False
            )
        return futures

    def _results(self, futures: list[Any], needed: Sequence[Any] = ()) -> list[Any]:
        """Wait for futures; cancel them and what they need if the wait ends early, for example by Ctrl-C."""
        try:
            with lost_cluster():
                results: list[Any] = self._client.gather(futures)
        except BaseException:
            if self._client.status == "running":
                self._client.cancel([*futures, *needed])
            raise
        return results


def lazily(task: RowPass, rows: Partitions, n_jobs: int | None) -> Any:
    """Return labels or distances that any scheduler of Dask computes when they are used."""
    delayed = library("dask").delayed
    sent, work = delayed(pickle.dumps(task), pure=False), delayed(rows_here, pure=False)
    framed = rows.frame is not None
    values = [work(sent, i, block, framed, n_jobs) for i, block in enumerate(rows.blocks.lazy())]
    return collected(task, values, rows.sizes, rows.frame)


def is_lost(collection: Any) -> bool:
    """Whether the cluster that holds the chunks of a collection is closed, or has lost them."""
    futures = library("distributed").futures_of(collection)
    return any(future.client.status != "running" or future.cancelled() for future in futures)


@contextmanager
def lost_cluster() -> Generator[None]:
    """Turn the error of a computation that Dask gave up into a `ConnectionError`."""
    try:
        yield
    except CancelledError as error:
        raise ConnectionError(f"the cluster or the client was closed, or lost its data: {error}") from error


def client_of(client: Any) -> Any:
    """Return a client that can be used, by default the current one.

    Raises `ValueError` if there is no client, or if it is closed or asynchronous.
    """
    distributed = library("distributed")
    if client is None:
        try:
            client = distributed.get_client()
        except ValueError:
            raise ParameterError(
                "client must be a distributed.Client, got None, and there is no current client. Create one "
                "with distributed.Client()."
            ) from None
    if not isinstance(client, distributed.Client):
        raise ParameterError(f"client must be a distributed.Client or None, got {shown(client)}")
    if client.asynchronous:
        raise ParameterError("client must be synchronous, got one with asynchronous=True")
    if client.status != "running":
        raise ParameterError(f"client must be connected to a cluster, got one that is {client.status}")
    return client


# ---------------------------------------------------------------- on the workers


# Tasks exchange bytes: Dask knows their size, and damaged bytes are an error of the task that reads them.


def absorbed_here(
    task: bytes, partitions: list[int], blocks: list[Any], weights: list[Any], beside: int, n_jobs: int | None
) -> bytes:
    """Run a pass over some partitions, of `beside` partitions that this worker may have."""
    with threads_here(n_jobs) as threads:
        own = limited(pickle.loads(task), beside)
        found = absorbed(own, zip(partitions, blocks, weights, strict=True), threads)
    return bytes(found.to_bytes())


def ranged_here(
    sent: bytes,
    centers: list[Any],
    points: list[Any] | None,
    partitions: list[int],
    blocks: list[Any],
    weights: list[Any],
    beside: int,
    n_jobs: int | None,
) -> list[bytes]:
    """Run a sweep over some partitions, as `absorbed_here`; return the results of all ranges."""
    with threads_here(n_jobs) as threads:
        task = limited(sweep_of(pickle.loads(sent), Ranges(centers, points)), beside)
        found = absorbed(task, zip(partitions, blocks, weights, strict=True), threads)
    return found._state.ranges(len(centers))


def by_range(ranges: Ranges) -> tuple[list[Any], list[Any]]:
    """Return the centers and the points of every range."""
    return ranges.centers, ranges.points or [None] * len(ranges.centers)


def report_here(sent: bytes, total: bytes, centers: Any, points: Any, _: int | None) -> bytes:
    """Report what the driver must know of a range."""
    return report(pickle.loads(sent), total, centers, points)


def moved_here(
    sent: bytes, total: bytes, centers: Any, points: Any, moves: bytes, _: int | None
) -> tuple[npt.NDArray[Any], bytes]:
    """Move the centers of a range, and report."""
    return moved(pickle.loads(sent), total, centers, points, moves)


def forget_here(fit: tuple[str, int]) -> None:
    """Free the states of a fit in this process."""
    STATES.forget(fit)


def limited(task: Pass, n_partitions: int) -> Pass:
    """Limit what a worker keeps for the next sweeps to a quarter of its memory."""
    if isinstance(task, KMeansPass) and task._fit is not None:
        limit, memory = memory_limit(), task._fit.memory
        memory = memory if limit is None else min(memory, limit // 4)
        task._fit = task._fit._replace(memory=memory, partitions=n_partitions)
    return task


def rows_here(task: bytes, partition: int, block: Any, framed: bool, n_jobs: int | None) -> Any:
    """Compute labels or distances of one partition, as a series or frame with its index if `framed`."""
    with threads_here(n_jobs) as threads:
        found = pickle.loads(task)
        values = found.of(block, partition=partition, n_jobs=threads)
    return frame_of(found, values, block.index) if framed else values


def merged_here(*parts: bytes) -> bytes:
    """Merge partial results."""
    return _core.Partial.merged(list(parts))


@contextmanager
def threads_here(n_jobs: int | None) -> Generator[int]:
    """Yield the number of threads of a task: `n_jobs`, or all threads of this worker, one task at a time."""
    distributed = library("distributed")
    try:
        worker = distributed.get_worker()
    except ValueError:
        # Another scheduler of Dask, whose threads work on different partitions.
        worker = None
    if n_jobs is not None or worker is None:
        yield 1 if n_jobs is None else n_jobs
        return
    with _turns_lock:
        turn = _turns.setdefault(worker, threading.Lock())
    with turn:
        yield worker.state.nthreads
