"""Progress of a step, for callbacks."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from shoal._common.progress import reporting
from shoal.callbacks import Callback


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
