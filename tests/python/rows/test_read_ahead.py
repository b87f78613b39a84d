"""The protocol of the prefetching thread, in every order in which it and its consumer can step.

The primitives of `shoal._rows.prefetch` are replaced by those of a scheduler. It lets one thread step at a
time: up to its next call of a primitive. All schedules are tried, depth first.
"""

import queue
import threading
from types import SimpleNamespace

import pytest
from shoal._rows import prefetch


class Schedule:
    """One run of some threads, whose order of steps is `choices`, and then the first thread that can step."""

    def __init__(self, choices):
        self.choices = list(choices)
        # How many threads could step at each choice.
        self.widths = []
        self.waiting = {}
        self.errors = []
        self._stepped = threading.Semaphore(0)
        self._turns = {}

    def thread(self, target, **_):
        """Return a thread of the schedule; its keyword arguments are those of `threading.Thread`."""
        name = len(self._turns)
        self._turns[name] = threading.Semaphore(0)

        def work():
            self._turns[name].acquire()
            try:
                target()
            except BaseException as error:  # noqa: BLE001 - shown by the test
                self.errors.append(error)
            self._stepped.release()

        def start():
            self.waiting[name] = lambda: True
            threading.Thread(target=work, daemon=True, name=str(name)).start()

        return SimpleNamespace(start=start)

    def step(self, ready=lambda: True):
        """Wait for the next turn of the present thread, which it gets only when `ready`."""
        name = int(threading.current_thread().name)
        self.waiting[name] = ready
        self._stepped.release()
        self._turns[name].acquire()

    def run(self):
        """Let the threads step until none can; return whether all of them have ended."""
        while able := sorted(name for name, ready in self.waiting.items() if ready()):
            at = len(self.widths)
            if at == len(self.choices):
                self.choices.append(0)
            self.widths.append(len(able))
            name = able[self.choices[at]]
            del self.waiting[name]
            self._turns[name].release()
            assert self._stepped.acquire(timeout=60), "a thread waits for something else"
        return not self.waiting


def semaphore(schedule):
    """Return the class that replaces `threading.Semaphore`."""

    class Semaphore:
        def __init__(self, value):
            self.value = value

        def acquire(self):
            schedule.step(lambda: self.value > 0)
            self.value -= 1
            return True

        def release(self):
            schedule.step()
            self.value += 1

    return Semaphore


def simple_queue(schedule, timeouts):
    """Return the class that replaces `queue.SimpleQueue`. At most `timeouts` calls find nothing in time."""

    class SimpleQueue:
        def __init__(self):
            self.items = []
            self.timeouts = timeouts

        def put(self, item):
            schedule.step()
            self.items.append(item)

        def get(self, timeout):
            schedule.step(lambda: self.items or self.timeouts)
            if self.items:
                return self.items.pop(0)
            self.timeouts -= 1
            raise queue.Empty

    return SimpleQueue


class Blocks:
    """An iterator over `range(n)` that ends with an exception, and notes what happens to it."""

    def __init__(self, n, end, seen):
        self.n, self.end, self.seen = n, end, seen
        self.pulled = self.closed = 0

    def __iter__(self):
        return self

    def __next__(self):
        # One block is pulled while the consumer works on the one before.
        assert self.pulled <= len(self.seen), "two blocks are ahead"
        assert not self.closed
        if self.pulled == self.n:
            raise self.end
        self.pulled += 1
        return self.pulled - 1

    def close(self):
        self.closed += 1


def every_schedule(monkeypatch, consume, n, end, timeouts=0):
    """Call `consume(ahead, seen)` in every schedule, with prefetched blocks and the list of those seen.

    Yields
    ------
    Blocks
        The iterator after each schedule, whose threads have all ended.
    """
    choices = []
    while choices is not None:
        schedule, seen = Schedule(choices), []
        blocks = Blocks(n, end, seen)
        primitives = SimpleNamespace(Thread=schedule.thread, Semaphore=semaphore(schedule))
        monkeypatch.setattr(prefetch, "threading", primitives)
        monkeypatch.setattr(
            prefetch,
            "queue",
            SimpleNamespace(SimpleQueue=simple_queue(schedule, timeouts), Empty=queue.Empty),
        )
        schedule.thread(lambda blocks=blocks, seen=seen: consume(prefetch.Prefetch(blocks), seen)).start()
        assert schedule.run(), f"deadlock in {schedule.choices}"
        assert not schedule.errors, (schedule.choices, schedule.errors)
        yield blocks
        # The next schedule in depth-first order.
        choices, widths = schedule.choices, schedule.widths
        while choices and choices[-1] + 1 == widths[len(choices) - 1]:
            choices.pop()
        choices = [*choices[:-1], choices[-1] + 1] if choices else None


def read_all(end):
    """Return a consumer that reads all blocks, and then meets the exception twice."""

    def consume(ahead, seen):
        def read():
            while True:
                seen.append(next(ahead))

        with pytest.raises(type(end)) as met:
            read()
        assert met.value is end
        with pytest.raises(type(end)):
            ahead.poll(0.0)
        ahead.close()

    return consume


class FailedError(Exception):
    """An error of the iterator."""


@pytest.mark.parametrize("end", [StopIteration(), FailedError("it fails"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("n", [0, 1, 2])
def test_blocks_come_in_order_and_then_the_end(monkeypatch, end, n):
    tried = 0
    for blocks in every_schedule(monkeypatch, read_all(end), n, end, timeouts=2):
        assert blocks.seen == list(range(n))
        assert blocks.closed == 1
        tried += 1
    # More than one order is possible only where the consumer looks before a block has come.
    assert tried >= 10 * (n + 1)


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_a_consumer_that_leaves_ends_the_thread(monkeypatch, wanted):
    def consume(ahead, seen):
        with ahead:
            while len(seen) < wanted:
                seen.append(next(ahead))

    for blocks in every_schedule(monkeypatch, consume, 9, StopIteration()):
        assert blocks.seen == list(range(wanted))
        assert blocks.pulled <= wanted + 1
        assert blocks.closed == 1
