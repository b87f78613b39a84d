"""Messages of ``shoal fit`` about the file of ``--checkpoint``."""

from __future__ import annotations

import argparse
from typing import Any


def counted(steps: int) -> str:
    """Format a number of iterations."""
    return "1 iteration" if steps == 1 else f"{steps} iterations"


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
