"""The reference engine: partitions in a list, tasks on an executor of ``concurrent.futures``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._checks.params import ParameterError, shown
from shoal._files.staged import is_name
from shoal._rows.streams import refuse_once
from shoal.typing import Rows, Weights

from .base import Pass
from .engine import absorbed, merged, runs
from .partial import Partial
from .passes import RowPass

#: Tasks of a pass per worker of an executor, at most.
TASKS_PER_WORKER = 4


class ExecutorEngine:
    """Runs passes over a list of partitions on an executor; without one, in this thread.

    `n_jobs` is the number of threads per task; None is 1 on an executor, which has workers of its own.
    """

    name = "the executor"
    keeps = True

    def __init__(
        self,
        partitions: Sequence[Rows],
        sample_weight: Sequence[Weights] | None = None,
        executor: Executor | None = None,
        n_jobs: int | None = None,
    ) -> None:
        if is_name(partitions) or not hasattr(partitions, "__len__") or getattr(partitions, "ndim", 1) == 2:
            raise ParameterError(
                "X must be a list of partitions, such as arrays or paths, got "
                f"{shown(partitions)}. For one partition, pass [X]."
            )
        self._partitions = list(partitions)
        if not self._partitions:
            raise ParameterError("X must have at least 1 partition, got 0")
        for i, block in enumerate(self._partitions):
            refuse_once(block, f"The fit of partition {i}")
        if sample_weight is not None:
            n = length_of(sample_weight)
            if n != len(self._partitions):
                raise ParameterError(
                    f"sample_weight must be a list of {len(self._partitions)} arrays, one per partition, got "
                    f"{shown(sample_weight) if n is None else n}"
                )
        if executor is not None and not isinstance(executor, Executor):
            raise ParameterError(
                f"executor must be a concurrent.futures.Executor or None, got {shown(executor)}"
            )
        self._weights = None if sample_weight is None else list(sample_weight)
        self._executor = executor
        self._threads = 1 if executor is not None and n_jobs is None else n_jobs

    @property
    def n_partitions(self) -> int:
        """Number of partitions."""
        return len(self._partitions)

    def total(self, task: Pass) -> Partial:
        """Absorb every partition, and merge the results as they arrive."""
        weights = self._weights or [None] * self.n_partitions
        tasks = runs(range(self.n_partitions), self._n_tasks)
        calls = ([(i, self._partitions[i], weights[i]) for i in run] for run in tasks)
        return merged(part for _, part in self._each(absorbed, ((task, run) for run in calls)))

    def rows(self, task: RowPass) -> npt.NDArray[Any]:
        """Compute labels or distances of every partition, and return those of all rows in one array."""
        found = dict(self._each(values_of, ((task, i, rows) for i, rows in enumerate(self._partitions))))
        return np.concatenate([found[i] for i in range(self.n_partitions)])

    @property
    def _n_tasks(self) -> int:
        """Number of tasks of a pass; every task costs time, and a few per worker even out their sizes."""
        workers = getattr(self._executor, "_max_workers", None)
        return TASKS_PER_WORKER * workers if isinstance(workers, int) else self.n_partitions

    def _each(
        self, function: Callable[..., Any], calls: Iterator[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Any]]:
        """Yield the result of every call with its number, in the order of completion."""
        if self._executor is None:
            for i, given in enumerate(calls):
                yield i, function(*given, self._threads)
            return
        futures: dict[Future[Any], int] = {}
        try:
            for i, given in enumerate(calls):
                future = self._executor.submit(function, *given, self._threads)
                futures[future] = i
            for future in as_completed(list(futures)):
                # A future keeps its result: forget it once it is merged.
                yield futures.pop(future), future.result()
        finally:
            for future in futures:
                future.cancel()

    def forget(self, fit: tuple[str, int]) -> None:
        """Do nothing: other processes forget the fit when they work for the next one."""

    def close(self) -> None:
        """Forget the partitions; the executor belongs to the caller."""
        self._partitions.clear()


def length_of(items: Any) -> int | None:
    """Return the length of a list or an array; None for paths and other objects."""
    if is_name(items) or not hasattr(items, "__len__") or getattr(items, "ndim", 1) == 0:
        return None
    return len(items)


def values_of(task: RowPass, partition: int, rows: Rows, n_jobs: int | None) -> npt.NDArray[Any]:
    """Compute labels or distances of a partition; for workers."""
    return task.of(rows, partition=partition, n_jobs=n_jobs)
