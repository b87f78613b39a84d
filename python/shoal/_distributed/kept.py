"""The state that workers keep between the sweeps of a fit: labels, bounds and sums; one budget per process.

Results do not depend on it: a sweep over a partition without state measures all distances. The state knows
the centers to which it belongs, so that a process may miss sweeps of a partition.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from shoal._core import Kept

#: A process remembers this many ended fits: a task of one of them, which may still run, keeps nothing.
MOST_ENDED = 1000


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
        self._ended: deque[int] = deque()
        self._lock = Lock()

    def begin(self, memory: int, max_iter: int, partitions: int) -> Keeping:
        """Begin a fit."""
        with self._lock:
            self._last += 1
            number = self._last
            self._running.add(number)
            running = self._still_running()
        return Keeping(self._driver, number, running, number, memory, max_iter, partitions)

    def now(self, keeping: Keeping) -> Keeping:
        """Return the same fit, with the fits that are running now."""
        with self._lock:
            return keeping._replace(running=self._still_running(), last=self._last)

    def _still_running(self) -> frozenset[int]:
        while self._ended:
            self._running.discard(self._ended.popleft())
        return frozenset(self._running)

    def end(self, keeping: Keeping) -> None:
        """End a fit, and free its states in this process."""
        # Without the lock: garbage collection may end an abandoned fit in a thread that holds it.
        self._ended.append(keeping.number)
        STATES.forget(keeping.fit)


class Entry(NamedTuple):
    """The state of a partition."""

    rows: int
    #: None if nothing is kept, or while a task uses it.
    kept: Kept | None
    #: Bytes that are kept, also while a task uses them.
    nbytes: int
    #: Bytes that the task which uses it may take; 0 without such a task.
    lent: int = 0

    @property
    def most(self) -> int:
        """The bytes that the state takes, or may take."""
        return max(self.nbytes, self.lent)


class States:
    """The states that this process keeps, by fit, from the oldest to the newest, and by partition."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Free everything."""
        self._fits: dict[tuple[str, int], dict[int, Entry]] = {}
        #: The last fits that ended, from the oldest, and those among them that may still have states.
        self._ended: dict[tuple[str, int], None] = {}
        self._ending: deque[tuple[str, int]] = deque()
        self._lock = Lock()

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Hold the lock; then free the states of fits that ended in the meantime."""
        try:
            with self._lock:
                yield
        finally:
            self._free_ended()

    def _free_ended(self) -> None:
        # If another thread holds the lock, it calls this method after it releases the lock.
        while self._ending and self._lock.acquire(blocking=False):
            try:
                while self._ending:
                    fit = self._ending.popleft()
                    self._fits.pop(fit, None)
                    self._ended[fit] = None
                    if len(self._ended) > MOST_ENDED:
                        del self._ended[next(iter(self._ended))]
            finally:
                self._lock.release()

    def take(self, keeping: Keeping, partition: int) -> tuple[Kept, int]:
        """Take out the state of a partition; return it with the bytes that it may take."""
        with self._locked():
            if keeping.fit in self._ended:
                return Kept(keeping.max_iter), 0
            for fit in [fit for fit in self._fits if keeping.has_ended(fit)]:
                del self._fits[fit]
            own = self._fits.setdefault(keeping.fit, {})
            entry = own.pop(partition, None)
            # Older fits make room, except for what tasks use.
            room, is_older = keeping.memory, True
            for fit, states in self._fits.items():
                if fit == keeping.fit:
                    is_older = False
                else:
                    room -= sum(each.most for each in states.values() if each.lent or not is_older)
            left = room - sum(each.most for each in own.values())
            if entry is None:
                entry, share = Entry(0, None, 0), keeping.memory // max(1, keeping.partitions)
            else:
                rows = entry.rows + sum(each.rows for each in own.values())
                share = max(room * entry.rows // max(1, rows), entry.nbytes)
            budget = max(0, min(left, share))
            own[partition] = entry._replace(kept=None, lent=budget)
            self._make_room(keeping)
            return Kept(keeping.max_iter) if entry.kept is None else entry.kept, budget

    def put(self, keeping: Keeping, partition: int, kept: Kept, rows: int) -> None:
        """Keep a state until the next sweep, if it fits the budget."""
        with self._locked():
            own = self._fits.get(keeping.fit)
            if own is None:
                # The fit ended in the meantime.
                return
            # Also a state of no bytes: it knows the length of a stream, without which nothing can be kept.
            own[partition] = Entry(rows, kept, kept.nbytes)
            if not self._make_room(keeping):
                own[partition] = Entry(rows, None, 0)

    def _make_room(self, keeping: Keeping) -> bool:
        """Free states of older fits, from the oldest; return whether all states then fit the budget."""
        for fit, states in self._fits.items():
            if fit == keeping.fit or self._most() <= keeping.memory:
                break
            # The fit keeps its age.
            for number in [number for number, entry in states.items() if not entry.lent]:
                del states[number]
        return self._most() <= keeping.memory

    def _most(self) -> int:
        return sum(entry.most for states in self._fits.values() for entry in states.values())

    def labels(
        self, keeping: Keeping, partition: int, centers: npt.NDArray[Any]
    ) -> npt.NDArray[np.int32] | None:
        """Return the labels of a partition, if the last sweep over it had these centers."""
        with self._locked():
            entry = self._fits.get(keeping.fit, {}).get(partition)
            return None if entry is None or entry.kept is None else entry.kept.labels(centers)

    @contextmanager
    def lent(self, keeping: Keeping, partition: int) -> Generator[tuple[Kept, int]]:
        """Lend the state of a partition, and its budget; free it if the block raises."""
        try:
            yield self.take(keeping, partition)
        except BaseException:
            self.drop(keeping, partition)
            raise

    def drop(self, keeping: Keeping, partition: int) -> None:
        """Free the state of a partition."""
        with self._locked():
            self._fits.get(keeping.fit, {}).pop(partition, None)

    def forget(self, fit: tuple[str, int]) -> None:
        """Free the states of a fit, and keep nothing of it any more."""
        # Without waiting for the lock, as `Fits.end`.
        self._ending.append(fit)
        self._free_ended()

    @property
    def nbytes(self) -> int:
        """The bytes of all states."""
        with self._locked():
            return sum(entry.nbytes for states in self._fits.values() for entry in states.values())


FITS, STATES = Fits(), States()


def begin_anew() -> None:
    """Forget all fits: a forked process has copies of them, and maybe of a lock that a thread held."""
    FITS.reset()
    STATES.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=begin_anew)
