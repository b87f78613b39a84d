"""Blocks that are pulled while the one before them is worked on."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from typing import Any, Self

import numpy.typing as npt


class Prefetch:
    """An iterator of blocks that a thread of its own pulls from, one block ahead of who reads.

    The thread belongs to Python and is a daemon: one that hangs in an iterator of the user keeps neither an
    interrupted call nor the end of the program waiting.

    Parameters
    ----------
    blocks : iterator of ndarray
        Only the thread touches it from now on, and closes it at the end if it can be closed.
    """

    def __init__(self, blocks: Iterator[npt.NDArray[Any]]) -> None:
        self._blocks = blocks
        # Room for one block beside the one that is worked on.
        self._room = threading.Semaphore(1)
        self._pulled: queue.SimpleQueue[npt.NDArray[Any] | BaseException] = queue.SimpleQueue()
        self._closed = False
        # What ended the blocks, raised again at the next call.
        self._end: BaseException | None = None
        # A fork has no thread but the one that forked.
        self._process = os.getpid()
        threading.Thread(target=self._pull, name="shoal-read-ahead", daemon=True).start()

    def _pull(self) -> None:
        try:
            while self._room.acquire() and not self._closed:
                self._pulled.put(next(self._blocks))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised where blocks are read
            self._pulled.put(error)
        close = getattr(self._blocks, "close", None)
        if close is not None:
            close()

    def poll(self, seconds: float) -> npt.NDArray[Any] | None:
        """Give the next block, or None when it has not come within so many seconds.

        Raises
        ------
        StopIteration
            After the last block.
        RuntimeError
            In a process that was forked during the pass.
        BaseException
            What the iterator raised.
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                "this process was forked in the middle of a pass over a stream, whose blocks only the parent "
                "pulls: begin a fit of its own in the child, or fork before the pass"
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
        """Give the blocks to loop over."""
        return self

    def __exit__(self, *_: object) -> None:
        """Pull no more."""
        self.close()

    def __iter__(self) -> Self:
        """Give itself."""
        return self

    def __next__(self) -> npt.NDArray[Any]:
        """Give the next block, waited for."""
        # Ctrl-C is seen between two waits.
        while (block := self.poll(0.05)) is None:
            pass
        return block

    def close(self) -> None:
        """Pull no more; a block that is on its way is dropped."""
        self._closed = True
        # In a fork the lock may be held by a thread that is not there.
        if os.getpid() == self._process:
            self._room.release()
