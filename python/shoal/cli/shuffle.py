"""``shoal shuffle``: write the rows in random order."""

from __future__ import annotations

import argparse
import time

from .arguments import Verbs, add_verb
from .files import check_outputs, describe, open_data
from .results import show


def add(verbs: Verbs) -> None:
    """Add the subcommand."""
    shuffle = add_verb(verbs, "shuffle", "write the rows in a uniformly random order", run)
    shuffle.add_rows()
    shuffle.add_output("OUT.npy", "write the shuffled rows to this .npy file")
    shuffle.add_seed()
    about = "upper limit of the memory, for example 500MB (default: 1GB)"
    shuffle.add_option("--memory-limit", "SIZE", about, default="1GB")
    shuffle.add_json()
    shuffle.add_quiet()


def run(args: argparse.Namespace) -> int:
    """Shuffle the rows."""
    import shoal
    from shoal._files.outputs import ARRAYS

    check_outputs([args.data], [("--output", args.output, ARRAYS)])
    with open_data(args, args.data) as source:
        begun = time.perf_counter()
        written = shoal.shuffle(
            source,
            args.output,
            random_state=args.random_state,
            memory_limit=args.memory_limit,
            progress=not args.quiet,
        )
        seconds = time.perf_counter() - begun
    with written:
        result = {
            **describe(args.data, written),
            "bytes": written.nbytes,
            "seed": args.random_state,
            "seconds": round(seconds, 6),
            "output": args.output,
        }
    show(args, result)
    return 0
