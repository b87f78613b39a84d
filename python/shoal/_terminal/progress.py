"""Progress of long work: reports of the compiled code, and bars on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

from shoal import _core

#: Shorter work shows no progress, in seconds.
SHORT = 0.3
#: Least time between two calls, in seconds.
PAUSE = 0.2


def format_progress(phase: str, share: float | None, seconds: float) -> str:
    """Format progress, for example as ``seeding: 43% 12 s``."""
    done = "" if share is None else f" {share:.0%}"
    return f"{phase or 'pass'}:{done} {seconds:.0f} s"


class Line:
    """A line on stderr that each text replaces."""

    def __init__(self, label: str) -> None:
        self._label, self._width = label, 0

    def show(self, text: str) -> None:
        """Replace the text."""
        text = f"{self._label}: {text}"
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def close(self) -> None:
        """End the line, if there is one."""
        if self._width:
            sys.stderr.write("\n")


class Bar:
    """A progress bar on stderr, by tqdm if it is installed, else a :class:`Line`."""

    def __init__(self, label: str, unit: str, total: int | None) -> None:
        self._line = Line(label)
        self._tqdm: Any = None
        with suppress(ImportError):
            from tqdm.auto import tqdm

            self._tqdm = tqdm(total=total, desc=label, unit=unit, unit_scale=unit == "row", file=sys.stderr)

    def show(self, text: str, *, done: int = 0, note: str = "") -> None:
        """Show a text; tqdm counts `done` more units and shows a note instead."""
        if self._tqdm is None:
            self._line.show(text)
            return
        if note:
            self._tqdm.set_postfix_str(note, refresh=not done)
        self._tqdm.update(done)

    def close(self) -> None:
        """Close the bar."""
        (self._line if self._tqdm is None else self._tqdm).close()


@contextmanager
def report_progress(tell: Callable[[str, float | None, float], object]) -> Generator[None]:
    """Call `tell(phase, share, seconds)` a few times per second during long compiled work of this thread."""
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
