"""Prefetches one block of a stream in a thread."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from typing import Any, Self

import numpy.typing as npt


class Prefetch:
    """An iterator over blocks that prefetches one block in a thread.

    Only the thread uses `blocks` from now on, and closes a generator at the end. The thread is a daemon: if
    it hangs in an iterator of the user, neither Ctrl-C nor the end of the program waits for it.
    """

    def __init__(self, blocks: Iterator[npt.NDArray[Any]]) -> None:
        self._blocks = blocks
        # One block is prefetched while the caller works on another.
        self._room = threading.Semaphore(1)
        self._pulled: queue.SimpleQueue[npt.NDArray[Any] | BaseException] = queue.SimpleQueue()
        self._closed = False
        # The exception that ended the iterator; every later call raises it again.
        self._end: BaseException | None = None
        # The thread does not exist in a forked process.
        self._process = os.getpid()
        threading.Thread(target=self._pull, name="shoal-read-ahead", daemon=True).start()

    def _pull(self) -> None:
        try:
            while self._room.acquire() and not self._closed:
                self._pulled.put(next(self._blocks))
        except BaseException as error:  # noqa: BLE001 - raised again by `poll`
            self._pulled.put(error)
        close = getattr(self._blocks, "close", None)
        if close is not None:
            close()

    def poll(self, seconds: float) -> npt.NDArray[Any] | None:
        """Return the next block, or None if it does not arrive within `seconds`.

        Raises the exception that ended the iterator, `StopIteration` after the last block.
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                "this process was forked in the middle of a pass over a stream, whose blocks only the parent "
                "pulls: start another fit in the child, or fork before the pass"
            )
        if self._end is not None:
            raise self._end
        try:
            pulled = self._pulled.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(pulled, BaseException):
            self._end = pulled
            raise pulled
        self._room.release()
        return pulled

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> npt.NDArray[Any]:
        # Short waits, so that Ctrl-C is handled between them.
        while (block := self.poll(0.05)) is None:
            pass
        return block

    def close(self) -> None:
        """Stop prefetching; drop the prefetched block."""
        self._closed = True
        # In a forked process a thread that no longer exists may hold the lock.
        if os.getpid() == self._process:
            self._room.release()
