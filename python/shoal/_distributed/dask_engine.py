"""The engine on Dask: partitions are futures on the workers, and every pass is a task for each."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from shoal._checks.params import ParameterError, shown

from .dask_rows import Partitions, concatenated, library
from .engine import MOST_GATHERED, at_once, merged, tree
from .partial import Partial
from .passes import LabelPass, Pass

#: Dask warns of graphs above this size in bytes. A pass holds the centers, which every worker needs.
LARGE_GRAPH = "distributed.admin.large-graph-warning-threshold"

#: Bytes of a pass that are sent with every task of it. A larger pass is sent once, as the result of a task of
#: its own, for which the other tasks wait: 10 ms more per pass.
MOST_SENT = 1 << 20

#: The lock of every worker in this process: tasks take turns, and each uses all threads of its worker.
_turns: WeakKeyDictionary[Any, threading.Lock] = WeakKeyDictionary()
_turns_lock = threading.Lock()


class DaskEngine:
    """Runs passes on the workers of a Dask client, where the partitions lie.

    Creating it starts the computation of the partitions. They stay in the memory of the workers until
    `close`.

    Parameters
    ----------
    rows : Partitions
        The partitions and their weights.
    client : distributed.Client or None
        None: the current client.
    n_jobs : int or None
        Threads per task. None: tasks take turns on a worker, and each uses all its threads.
    """

    name = "Dask"

    def __init__(self, rows: Partitions, client: Any, n_jobs: int | None) -> None:
        self._client, self._n_jobs = client_of(client), n_jobs
        self._blocks = rows.blocks.started(self._client)
        weights = None if rows.weights is None else rows.weights.started(self._client)
        self._weights = [None] * len(self._blocks) if weights is None else weights

    @property
    def n_partitions(self) -> int:
        """Number of partitions."""
        return len(self._blocks)

    def total(self, task: Pass) -> Partial:
        """Absorb every partition on the workers; they merge the results in a tree, unless these are small."""
        with lost_cluster():
            parts = self._on_each(absorbed_here, task, self._weights)
            merge = partial(self._client.submit, merged_here, pure=False)
            few = tree(parts, lambda group: merge(*group), at_once(task, MOST_GATHERED))
        return merged(map(Partial.from_bytes, self._results(few)))

    def labels(self, task: LabelPass) -> Any:
        """Label every partition; return a dask array whose chunks stay on the workers."""
        with lost_cluster():
            labels = self._on_each(labeled_here, task)
            counts = self._client.map(len, labels, pure=False)
        sizes = self._results(counts)
        return concatenated(labels, sizes, "labels", np.int32)

    def close(self) -> None:
        """Release the partitions. Those that the caller persisted stay."""
        self._blocks, self._weights = [], []

    def _sent(self, task: Any) -> Any:
        """Return a pass as bytes, which the scheduler passes on without reading them."""
        data = pickle.dumps(task)
        if len(data) * self.n_partitions <= MOST_SENT:
            return data
        # Unlike scattered data, the result of a task is computed again if its worker is lost.
        return self._client.submit(bytes, data, pure=False)

    def _on_each(self, work: Callable[..., Any], task: Any, *other: list[Any]) -> list[Any]:
        """Submit a task per partition in one graph; return the futures."""
        n = self.n_partitions
        # Text as keys would make all passes one growing group of tasks. The scheduler spreads a large group
        # with few inputs over the workers, wherever the inputs are. Tuples make one group per pass.
        keys = [(f"{work.__name__}-{uuid4().hex}", i) for i in range(n)]
        with library("dask").config.set({LARGE_GRAPH: "1 TiB"}):
            given = ([self._sent(task)] * n, range(n), self._blocks, *other, [self._n_jobs] * n)
            futures: list[Any] = self._client.map(work, *given, key=keys, pure=False)
        return futures

    def _results(self, futures: list[Any]) -> list[Any]:
        """Wait for futures; cancel them if the wait ends early, for example by Ctrl-C."""
        try:
            with lost_cluster():
                results: list[Any] = self._client.gather(futures)
        except BaseException:
            if self._client.status == "running":
                self._client.cancel(futures)
            raise
        return results


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

    Raises
    ------
    ImportError
        If dask is not installed.
    ValueError
        If there is no client, or if it is closed or asynchronous.
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


def absorbed_here(task: bytes, partition: int, block: Any, sample_weight: Any, n_jobs: int | None) -> bytes:
    """Run a pass over one partition."""
    with threads_here(n_jobs) as threads:
        found = pickle.loads(task).absorb(block, sample_weight, partition=partition, n_jobs=threads)
    return bytes(found.to_bytes())


def labeled_here(task: bytes, partition: int, block: Any, n_jobs: int | None) -> npt.NDArray[np.int32]:
    """Label the rows of one partition."""
    with threads_here(n_jobs) as threads:
        labels: npt.NDArray[np.int32] = pickle.loads(task).label(block, partition=partition, n_jobs=threads)
    return labels


def merged_here(*parts: bytes) -> bytes:
    """Merge partial results."""
    return merged(map(Partial.from_bytes, parts)).to_bytes()


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
