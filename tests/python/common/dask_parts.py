"""Partitions that misbehave on the workers of a cluster: imported there by name."""

import os
import signal
import threading
import time
from pathlib import Path

from shoal._distributed.dask_engine import threads_here


class Rows:
    """Rows that can be read again, in one block; counts how often they are read in a file."""

    def __init__(self, rows, folder):
        self.rows, self.folder = rows, str(folder)

    def read(self):
        """Return how often the rows were read, this time included."""
        names = Path(self.folder)
        number = len(list(names.iterdir())) + 1
        (names / f"{number}-{os.getpid()}-{time.monotonic_ns()}").touch()
        return number

    def __iter__(self):
        self.before(self.read())
        yield self.rows

    def before(self, number):
        """Do something before the rows are read."""


class Lethal(Rows):
    """Rows that kill the process of their worker, once or in every later read, from the n-th read on."""

    def __init__(self, rows, folder, at, always=False):
        super().__init__(rows, folder)
        self.at, self.always = at, always

    def before(self, number):
        if number == self.at or (self.always and number > self.at):
            os.kill(os.getpid(), signal.SIGKILL)


class Slow(Rows):
    """Rows that take very long to read."""

    def before(self, number):
        time.sleep(3)


def made(kind, *args):
    """Make a partition on its worker."""
    return kind(*args)


BARRIER = threading.Barrier(2)


def threads_of_two_tasks(n_jobs):
    """Return the threads of a task, and whether another task ran at the same time."""
    with threads_here(n_jobs) as threads:
        try:
            BARRIER.wait(timeout=1)
        except threading.BrokenBarrierError:
            return threads, False
        return threads, True
