"""The state that workers keep between the sweeps of a fit: labels, bounds and sums; one budget per process.

Results do not depend on it: a sweep over a partition without state measures all distances. The state knows
the centers to which it belongs, so that a process may miss sweeps of a partition.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from shoal._core import Kept


class Keeping(NamedTuple):
    """A fit whose workers keep state, as its passes carry it."""

    #: The process that drives the fit, and the number of the fit there.
    driver: str
    number: int
    #: The fits of that process that have not ended, and the number of the last one that began.
    running: frozenset[int]
    last: int
    #: The bytes that a process may keep.
    memory: int
    #: The most sweeps of the fit.
    max_iter: int
    #: How many partitions a process may have.
    partitions: int

    @property
    def fit(self) -> tuple[str, int]:
        """The fit, among those of all drivers."""
        return self.driver, self.number

    def has_ended(self, fit: tuple[str, int]) -> bool:
        """Whether a fit of the same driver had ended when the pass was sent."""
        driver, number = fit
        return driver == self.driver and number <= self.last and number not in self.running


class Fits:
    """The fits that this process drives."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all fits, as another driver."""
        self._driver, self._last = uuid4().hex, -1
        self._running: set[int] = set()
        self._lock = Lock()

    def begin(self, memory: int, max_iter: int, partitions: int) -> Keeping:
        """Begin a fit."""
        with self._lock:
            self._last += 1
            number = self._last
            self._running.add(number)
            running = frozenset(self._running)
        return Keeping(self._driver, number, running, number, memory, max_iter, partitions)

    def now(self, keeping: Keeping) -> Keeping:
        """Return the same fit, with the fits that are running now."""
        with self._lock:
            return keeping._replace(running=frozenset(self._running), last=self._last)

    def end(self, keeping: Keeping) -> None:
        """End a fit, and free its states in this process."""
        with self._lock:
            self._running.discard(keeping.number)
        STATES.forget(keeping.fit)


class Entry(NamedTuple):
    """The state of a partition."""

    rows: int
    #: None if nothing is kept, or while a task uses it.
    kept: Kept | None
    #: Bytes that are kept, also while a task uses them.
    nbytes: int


class States:
    """The states that this process keeps, by fit, from the oldest to the newest, and by partition."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Free everything."""
        self._fits: dict[tuple[str, int], dict[int, Entry]] = {}
        self._lock = Lock()

    def take(self, keeping: Keeping, partition: int) -> tuple[Kept, int]:
        """Take out the state of a partition; return it with the bytes that it may take."""
        with self._lock:
            for fit in [fit for fit in self._fits if keeping.has_ended(fit)]:
                del self._fits[fit]
            own = self._fits.setdefault(keeping.fit, {})
            # Older fits make room.
            fits = list(self._fits)
            newer = fits[fits.index(keeping.fit) + 1 :]
            room = keeping.memory - sum(held(self._fits[fit]) for fit in newer)
            entry = own.pop(partition, None)
            left = room - held(own)
            if entry is None:
                own[partition] = Entry(0, None, 0)
                share = keeping.memory // max(1, keeping.partitions)
                return Kept(keeping.max_iter), max(0, min(left, share))
            own[partition] = entry._replace(kept=None)
            rows = sum(each.rows for each in own.values())
            share = room * entry.rows // max(1, rows)
            kept = Kept(keeping.max_iter) if entry.kept is None else entry.kept
            return kept, max(0, min(left, max(share, entry.nbytes)))

    def put(self, keeping: Keeping, partition: int, kept: Kept, rows: int) -> None:
        """Keep a state until the next sweep; free those of the oldest fits beyond the budget."""
        with self._lock:
            own = self._fits.get(keeping.fit)
            if own is None:
                # The fit ended in the meantime.
                return
            own[partition] = Entry(rows, kept if kept.nbytes else None, kept.nbytes)
            *older, newest = self._fits.values()
            for states in older:
                if sum(map(held, self._fits.values())) > keeping.memory:
                    # The fit keeps its age.
                    states.clear()
            if own is newest and held(own) > keeping.memory:
                own[partition] = Entry(rows, None, 0)

    def labels(
        self, keeping: Keeping, partition: int, centers: npt.NDArray[Any]
    ) -> npt.NDArray[np.int32] | None:
        """Return the labels of a partition, if the last sweep over it had these centers."""
        with self._lock:
            entry = self._fits.get(keeping.fit, {}).get(partition)
            return None if entry is None or entry.kept is None else entry.kept.labels(centers)

    @contextmanager
    def lent(self, keeping: Keeping, partition: int) -> Iterator[tuple[Kept, int]]:
        """Lend the state of a partition, and its budget; free it if the block raises."""
        try:
            yield self.take(keeping, partition)
        except BaseException:
            self.drop(keeping, partition)
            raise

    def drop(self, keeping: Keeping, partition: int) -> None:
        """Free the state of a partition."""
        with self._lock:
            self._fits.get(keeping.fit, {}).pop(partition, None)

    def forget(self, fit: tuple[str, int]) -> None:
        """Free the states of a fit."""
        with self._lock:
            self._fits.pop(fit, None)

    @property
    def nbytes(self) -> int:
        """The bytes of all states."""
        with self._lock:
            return sum(map(held, self._fits.values()))


def held(partitions: dict[int, Entry]) -> int:
    """Return the bytes that are kept of partitions."""
    return sum(entry.nbytes for entry in partitions.values())


FITS, STATES = Fits(), States()


def begin_anew() -> None:
    """Forget all fits: a forked process has copies of them, and maybe of a lock that a thread held."""
    FITS.reset()
    STATES.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=begin_anew)
