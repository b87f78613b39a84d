"""What an engine provides: rows in numbered partitions, and passes over them where they lie.

An adapter implements :class:`Engine`. Its workers call :func:`absorbed`, :func:`labeled` and :func:`merged`,
which can be pickled by name. The engine schedules tasks, places data and retries. Results do not depend on
these, because every partial result carries the number of its partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from shoal.typing import Rows, Weights

from .partial import Partial
from .passes import LabelPass, Pass

#: How many partial results one task of a tree merges.
FAN_IN = 8

#: Bytes of partial results that a driver merges itself. Merging them on the workers first takes one more
#: round of tasks: about 10 ms with Dask, in which a driver receives and merges 1 MB.
MOST_GATHERED = 1 << 20

H = TypeVar("H")


class Engine(Protocol):
    """Rows in numbered partitions, and the machines that run passes over them.

    Partitions are numbered from 0 in the order of the rows. Their list must not change while the engine is in
    use: the same partition must give the same rows to every pass.
    """

    #: What error messages call the engine, for example ``"dask"``.
    name: str

    @property
    def n_partitions(self) -> int:
        """Number of partitions, also of empty ones."""
        ...

    def total(self, task: Pass) -> Partial:
        """Run :func:`absorbed` on every partition where it lies, and merge all results.

        `task` is small and is sent to every worker once. Partial results may be merged in any order and
        grouping. A failed task may be run again; its result must be merged only once.

        Raises
        ------
        Exception
            ``ValueError``, ``TypeError`` and ``OSError`` of :func:`absorbed`, unchanged; anything else if the
            workers are lost.
        """
        ...

    def labels(self, task: LabelPass) -> Any:
        """Run :func:`labeled` on every partition, and return the labels of all rows.

        The result is the engine's own kind of collection and stays distributed if the engine can do so.
        """
        ...

    def close(self) -> None:
        """Release what the engine holds for its rows, such as persisted partitions; called once."""
        ...


def absorbed(
    task: Pass, partition: int, block: Rows, sample_weight: Weights = None, n_jobs: int | None = None
) -> Partial:
    """Run one pass over one partition; for workers.

    Parameters
    ----------
    task : Pass
        The pass.
    partition : int
        Number of the partition.
    block : rows of shape (n_samples, n_features)
        All rows of the partition, also none: anything that estimators take as `X`, also an iterator.
    sample_weight : array-like of shape (n_samples,) or None
        Their weights.
    n_jobs : int or None
        Threads that this task may use. The result does not depend on it.
    """
    return task.absorb(block, sample_weight, partition=partition, n_jobs=n_jobs)


def labeled(task: LabelPass, partition: int, block: Rows, n_jobs: int | None = None) -> npt.NDArray[np.int32]:
    """Label the rows of one partition; for workers."""
    return task.label(block, partition=partition, n_jobs=n_jobs)


def merged(parts: Iterable[Partial]) -> Partial:
    """Merge partial results, in any order; for workers.

    Raises
    ------
    ValueError
        If there are none, or if they do not belong together.
    """
    total: Partial | None = None
    for part in parts:
        total = part if total is None else total.merge(part)
    if total is None:
        raise ValueError("X must have at least 1 partition, got 0")
    return total


def tree(parts: Sequence[H], merge: Callable[[list[H]], H], most: int = 1) -> list[H]:
    """Merge handles of partial results in a tree, until at most `most` are left.

    `merge` gets up to `FAN_IN` neighbors and returns a handle. With futures, no task waits for all
    partitions, and no worker holds more than `FAN_IN` partial results.
    """
    level = list(parts)
    if not level:
        raise ValueError("X must have at least 1 partition, got 0")
    while len(level) > most:
        level = [merge(level[i : i + FAN_IN]) for i in range(0, len(level), FAN_IN)]
    return level


def at_once(task: Pass, most_bytes: int) -> int:
    """Return how many results of a pass a driver may hold, at least 1, to hold at most `most_bytes`."""
    return max(1, most_bytes // max(1, task.result_bytes))
