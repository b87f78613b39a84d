"""The progress line of commands without steps."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def progress_line(label: str, *, quiet: bool) -> Generator[None]:
    """Show on stderr how far long work has come, unless `quiet`."""
    if quiet:
        yield
        return
    from shoal._terminal.progress import Line, format_progress, report_progress

    line = Line(label)
    try:
        with report_progress(lambda *progress: line.show(format_progress(*progress))):
            yield
    finally:
        line.close()
