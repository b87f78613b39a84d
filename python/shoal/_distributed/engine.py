"""What an engine provides: rows in numbered partitions, and passes over them where they lie.

An adapter implements :class:`Engine`. Its workers call :func:`absorbed`, :func:`merged` or a
:class:`~.passes.RowPass`. The engine schedules tasks, places data and retries. Results do not depend on
these, because every partial result carries the numbers of its partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from shoal.typing import Rows, Weights

from .base import Pass
from .partial import Partial
from .passes import RowPass

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
    #: Whether the processes that run a pass of a fit also run the next ones, so that they may keep state.
    keeps: bool

    @property
    def n_partitions(self) -> int:
        """Number of partitions, also of empty ones."""
        ...

    def total(self, task: Pass) -> Partial:
        """Absorb every partition where it lies, and merge all results.

        One task takes many partitions, because every task costs milliseconds: see :func:`runs`. `task` is
        small and is sent to every worker once. Partial results may be merged in any order and grouping. A
        failed task may be run again; its result must be merged only once. Raises ``ValueError``,
        ``TypeError`` and ``OSError`` of the rows unchanged, and any other error if the workers are lost.
        """
        ...

    def rows(self, task: RowPass) -> Any:
        """Compute labels or distances of all rows.

        The result is the engine's own kind of collection and stays distributed if the engine can do so.
        """
        ...

    def forget(self, fit: tuple[str, int]) -> None:
        """Free the states of a fit on the workers; called once before `close`, only if workers keep state."""
        ...

    def close(self) -> None:
        """Release what the engine holds for its rows, such as persisted partitions; called once."""
        ...


def was_interrupted(error: BaseException | None) -> bool:
    """Whether an error was raised while a `KeyboardInterrupt` was handled, as Spark does within a call."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


@contextmanager
def naming_losses(engine: Engine, known: str) -> Generator[None]:
    """Raise `RuntimeError` with the text `known` if workers are lost; errors of the rows pass unchanged."""
    try:
        yield
    except (ValueError, TypeError, MemoryError, Warning):
        raise
    except Exception as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        # Engines report lost workers by errors of the system without a file, or by types of their own.
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise RuntimeError(f"{engine.name} lost a task: {type(error).__name__}: {error}. {known}") from error


def total_of(engine: Engine, task: Pass, known: str) -> Partial:
    """Run a pass on an engine; raise `RuntimeError` if the workers are lost, or partitions are missing."""
    with naming_losses(engine, known):
        total = engine.total(task)
    if total.n_partitions != engine.n_partitions:
        raise RuntimeError(
            f"{engine.name} returned results of {total.n_partitions} of {engine.n_partitions} partitions. "
            f"{known}"
        )
    return total


def absorbed(task: Pass, partitions: Iterable[tuple[int, Rows, Weights]], n_jobs: int | None) -> Partial:
    """Run a pass over numbered partitions, one after the other; for workers."""
    return merged(task.absorb(rows, w, partition=i, n_jobs=n_jobs) for i, rows, w in partitions)


def merged(parts: Iterable[Partial]) -> Partial:
    """Merge partial results, in any order; for workers."""
    # Each is of twice as many results as the next one, or more: a merge copies the sums of both.
    held: list[tuple[int, Partial]] = []
    for part in parts:
        count = 1
        while held and held[-1][0] == count:
            part = held.pop()[1].merge(part)
            count *= 2
        held.append((count, part))
    if not held:
        raise ValueError("X must have at least 1 partition, got 0")
    total = held.pop()[1]
    while held:
        total = held.pop()[1].merge(total)
    return total


def runs(partitions: Sequence[int], n_tasks: int) -> list[list[int]]:
    """Cut partitions of one worker into runs of neighbors, at most one for each of `n_tasks` tasks."""
    size = max(1, -(-len(partitions) // max(1, n_tasks)))
    return [list(partitions[begin : begin + size]) for begin in range(0, len(partitions), size)]


def tree(parts: Sequence[H], merge: Callable[[list[H]], H], most: int) -> list[H]:
    """Merge handles of partial results in a tree, until at most `most` or one is left.

    `merge` gets up to `FAN_IN` handles and returns one. With futures, no task waits for all partitions.
    """
    level = list(parts)
    while len(level) > max(1, most):
        level = [merge(level[i : i + FAN_IN]) for i in range(0, len(level), FAN_IN)]
    return level


def at_once(task: Pass, most_bytes: int) -> int:
    """Return how many results of a pass a driver may hold, at least 1, to hold at most `most_bytes`."""
    return max(1, most_bytes // max(1, task.result_bytes))


def missing(module: str, name: str) -> AttributeError:
    """Return the error for a name that a module of an engine lacks."""
    instead = ""
    if name == "MiniBatchKMeans":
        instead = ". Use a local estimator on a lightweight_coreset, or KMeans(max_iter=3), instead"
    return AttributeError(f"module {module!r} has no attribute {name!r}{instead}")
