"""Progress of long steps, from the compiled half to the callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from shoal import _core
from shoal.callbacks import Callback

#: Shorter work shows no progress, in seconds.
SHORT = 0.3
#: Least time between two calls, in seconds.
PAUSE = 0.2


def said(phase: str, share: float | None, seconds: float) -> str:
    """Format progress, for example as ``seeding: 43% 12 s``."""
    done = "" if share is None else f" {share:.0%}"
    return f"{phase or 'pass'}:{done} {seconds:.0f} s"


@contextmanager
def reporting(tell: Callable[[str, float | None, float], object]) -> Generator[None]:
    """Call `tell(phase, share, seconds)` some times a second while compiled work of this thread is long."""
    begun = time.monotonic()
    due = SHORT

    def hear(phase: str, done: int, total: int) -> None:
        nonlocal due
        seconds = time.monotonic() - begun
        if seconds >= due:
            due = seconds + PAUSE
            tell(phase, min(done / total, 1.0) if total else None, seconds)

    before = _core.report_to(hear)
    try:
        yield
    finally:
        _core.report_to(before)


@contextmanager
def telling(estimator: Any, watchers: list[Any]) -> Generator[None]:
    """Tell the callbacks of the progress of one step."""
    told = [
        watcher
        for watcher in watchers
        if isinstance(watcher, Callback) and type(watcher).working is not Callback.working
    ]
    if not told:
        yield
        return

    def tell(phase: str, share: float | None, seconds: float) -> None:
        for watcher in told:
            watcher.working(estimator, phase, share, seconds)

    with reporting(tell):
        yield
