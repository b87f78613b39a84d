"""What an engine provides: rows in numbered partitions, and passes over them where they lie.

An adapter implements :class:`Engine`. Its workers call `absorb` or `label` of a pass, and :func:`merged`. The
engine schedules tasks, places data and retries. Results do not depend on these, because every partial result
carries the number of its partition.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

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
        """Absorb every partition where it lies, and merge all results.

        `task` is small and is sent to every worker once. Partial results may be merged in any order and
        grouping. A failed task may be run again; its result must be merged only once.

        Raises
        ------
        Exception
            ``ValueError``, ``TypeError`` and ``OSError`` of the rows, unchanged; anything else if the workers
            are lost.
        """
        ...

    def labels(self, task: LabelPass) -> Any:
        """Label every partition, and return the labels of all rows.

        The result is the engine's own kind of collection and stays distributed if the engine can do so.
        """
        ...

    def close(self) -> None:
        """Release what the engine holds for its rows, such as persisted partitions; called once."""
        ...


@contextmanager
def naming_losses(engine: Engine, known: str) -> Generator[None]:
    """Name the engine if it is lost, and say what is `known`; errors of the rows pass unchanged.

    Raises
    ------
    RuntimeError
        If the workers are lost.
    """
    try:
        yield
    except (ValueError, TypeError, MemoryError, Warning):
        raise
    except Exception as error:
        # Engines report lost workers by errors of the system without a file, or by types of their own.
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise RuntimeError(f"{engine.name} lost a task: {type(error).__name__}: {error}. {known}") from error


def total_of(engine: Engine, task: Pass, known: str) -> Partial:
    """Run a pass on an engine, and check that it covers all partitions.

    Raises
    ------
    RuntimeError
        If the workers are lost, or if partitions are missing. Errors of the rows are raised unchanged.
    """
    with naming_losses(engine, known):
        total = engine.total(task)
    if total.n_partitions != engine.n_partitions:
        raise RuntimeError(
            f"{engine.name} returned results of {total.n_partitions} of {engine.n_partitions} partitions. "
            f"{known}"
        )
    return total


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
