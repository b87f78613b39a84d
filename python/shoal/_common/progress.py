"""Progress of long compiled work."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from shoal import _core

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
