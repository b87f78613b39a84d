"""The file of an earlier fit, which a checkpoint of another fit must not replace."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from shoal import _core
from shoal._checks.marked import MarkedError, marked_text, unmarked

from .saved import Arrays, Claims, Texts

#: Values of `stop_reason_` for a fit that the caller ended, and that can continue.
STOPPED = ("callback", "deadline", "patience")


def refuse_to_replace(name: str, estimator: Any) -> None:
    """Raise an error if `name` is a file other than the one from which the estimator's fit was resumed."""
    resumed = estimator._resumed_from
    file = Path(name)
    if not file.exists() or (resumed is not None and file.samefile(os.fsdecode(resumed))):
        return
    others = "give `path` another name, or delete the file"
    replace = "Checkpoint(path, overwrite=True) replaces it."
    try:
        state = _core.load_model(name)
        problem = f"{name}: holds {held_by(*state)}"
    except (OSError, ValueError):
        problem = f"{name}: exists, and holds no checkpoint"
        raise MarkedError(f"{problem}: {others}", f"{problem}. {replace}") from None
    both = f"{estimator._resume_call} continues it, {replace}"
    try:
        estimator._compare_checkpoint(name, state)
    except ValueError as error:
        why = marked_text(error).removeprefix(f"{name}: ")
        raise MarkedError(
            f"{problem}, with other rows or options ({why}): {others}",
            f"{problem}, with other rows or parameters ({unmarked(why)}). {both}",
        ) from error
    raise MarkedError(
        f"{problem}, with these rows and options: add `resume` to continue it, {others}",
        f"{problem}, with these rows and parameters. {both}",
    )


def held_by(kind: str, _: Arrays, texts: Texts) -> str:
    """Say what a checkpoint holds; raise `ValueError` for other files."""
    if not kind.endswith("-checkpoint"):
        raise ValueError(kind)
    # The checkpoint of several starts of a callable has no text of a single run.
    run = Claims.read(texts, "run") if "run" in texts else Claims({})
    steps, reason = run.count("steps", optional=True), run.text("stop_reason", optional=True)
    part = "a checkpoint" if reason in (None, *STOPPED) else "the end"
    after = {0: "", 1: ", after 1 step"}.get(steps, f", after {steps} steps")
    return f"{part} of a fit{after}"
