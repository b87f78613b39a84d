"""Messages of ``shoal fit`` about the file of ``--checkpoint``."""

from __future__ import annotations

import argparse
import json
from typing import Any

from .errors import FailedError
from .options import Options


def counted(steps: int) -> str:
    """Format a number of iterations."""
    return "1 iteration" if steps == 1 else f"{steps} iterations"


def refuse_to_overwrite(args: argparse.Namespace, model: Any, rows: Any) -> None:
    """Raise an error that says what the file holds, and how to keep it or to be rid of it."""
    import shoal
    from shoal import _core

    name = args.checkpoint
    others = "give --checkpoint another name, or delete the file"
    try:
        kind, arrays, meta = _core.load_model(name)
        if kind not in shoal.io.CHECKPOINTS:
            raise ValueError(kind)
        run = json.loads(meta["run"])
        finished = run["stop_reason"] not in (None, "callback", "deadline", "patience")
        steps = counted(len(arrays["history_counts"]))
    except (OSError, ValueError, LookupError, TypeError):
        raise FailedError(f"{name}: exists, and holds no checkpoint: {others}") from None
    what = f"holds {'the end' if finished else 'a checkpoint'} of a fit, after {steps}"
    try:
        shoal.io.continue_steps(model, name, rows)
    except ValueError as error:
        why = Options(args).of(error).removeprefix(f"{name}: ")
        raise FailedError(f"{name}: {what}, with other rows or options ({why}): {others}") from error
    raise FailedError(f"{name}: {what}, with these rows and options: add --resume to continue it, {others}")


def kept_note(args: argparse.Namespace, keeper: Any, *, resumed: bool) -> str:
    """Say after an interrupt whether a checkpoint was kept, and how to resume."""
    if keeper is None:
        return "no checkpoint was kept: use --checkpoint to keep one"
    if keeper.n_steps_ is not None:
        from shoal import _core
        from shoal._fit.estimator import has_begun

        begun = has_begun(_core.load_model(args.checkpoint))
        about = counted(keeper.n_steps_) if begun else "0 iterations, before the initial centers were chosen,"
        return f"checkpoint with {about} in {args.checkpoint}; resume with --resume"
    if resumed:
        return f"the checkpoint in {args.checkpoint} is unchanged; resume with --resume"
    return "no checkpoint was kept"
