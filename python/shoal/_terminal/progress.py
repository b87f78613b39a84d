"""Progress of long work: reports of the compiled code, and bars on stderr."""

from __future__ import annotations

import math
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
#: Least time between two lines if stderr is not a terminal, in seconds.
LINE_PAUSE = 5.0


def format_progress(phase: str, share: float | None, seconds: float) -> str:
    """Format progress, for example as ``seeding: 43% 12 s``."""
    done = "" if share is None else f" {share:.0%}"
    return f"{phase or 'pass'}:{done} {seconds:.0f} s"


def can_rewrite() -> bool:
    """Whether stderr is a terminal or a notebook, where a carriage return begins the line again."""
    # A stream of the user's own may have nothing but `write` and `flush`.
    is_terminal: Callable[[], bool] = getattr(sys.stderr, "isatty", bool)
    return is_terminal() or any(kind.__module__.startswith("ipykernel.") for kind in type(sys.stderr).__mro__)


class Line:
    """A line on stderr that each text replaces; in a file or a pipe, a new line every few seconds.

    There, the first text and the last one are shown too.
    """

    def __init__(self, label: str) -> None:
        self._label, self._width = label, 0
        self._rewrites = can_rewrite()
        self._due, self._unshown = -math.inf, ""

    def show(self, text: str) -> None:
        """Replace the text."""
        text = f"{self._label}: {text}"
        if self._rewrites:
            sys.stderr.write("\r" + text.ljust(self._width))
            sys.stderr.flush()
            self._width = len(text)
            return
        self._unshown = text
        if time.monotonic() >= self._due:
            self._end_line()

    def close(self) -> None:
        """End the line, if there is one."""
        if self._width or self._unshown:
            self._end_line()

    def _end_line(self) -> None:
        sys.stderr.write(self._unshown + "\n")
        sys.stderr.flush()
        self._due, self._unshown = time.monotonic() + LINE_PAUSE, ""


class Bar:
    """A progress bar on stderr, by tqdm if it is installed and can redraw it, else a :class:`Line`."""

    def __init__(self, label: str, unit: str, total: int | None) -> None:
        self._line = Line(label)
        self._tqdm: Any = None
        if not can_rewrite():
            return
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


@contextmanager
def showing(label: str, *, on: bool) -> Generator[Callable[[str], object]]:
    """Show on stderr, if `on`, how far long work has come; yield a function that shows a text before that."""
    if not on:
        yield lambda _text: None
        return
    line, shown = Line(label), ""

    def show(text: str) -> None:
        nonlocal shown
        shown = f"{text}, "
        line.show(text)

    try:
        with report_progress(lambda *progress: line.show(shown + format_progress(*progress))):
            yield show
    finally:
        line.close()
