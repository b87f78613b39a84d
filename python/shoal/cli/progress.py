"""The progress line of commands without steps."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def progress_line(label: str, *, quiet: bool) -> Generator[None]:
    """Show on stderr how far long work has come, unless `quiet`."""
    if quiet:
        yield
        return
    from shoal._common.progress import reporting, said

    width = 0

    def tell(phase: str, share: float | None, seconds: float) -> None:
        nonlocal width
        text = f"{label}: {said(phase, share, seconds)}"
        sys.stderr.write("\r" + text.ljust(width))
        sys.stderr.flush()
        width = len(text)

    try:
        with reporting(tell):
            yield
    finally:
        if width:
            sys.stderr.write("\n")
