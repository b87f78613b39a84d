"""``shoal shuffle``: rows are written in random order."""

from __future__ import annotations

import argparse
import time

from .arguments import Verbs, add_json, add_rows, add_verb, file_of
from .files import check_outputs, rows_of
from .results import show


def add(verbs: Verbs) -> None:
    """Add the verb."""
    shuffle = add_verb(verbs, "shuffle", "write rows in a uniformly random order", run)
    add_rows(shuffle)
    shuffle.add_argument(
        "-o", "--output", required=True, type=file_of, metavar="OUT.npy", help="the rows in their new order"
    )
    shuffle.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the order (default: 0)")
    shuffle.add_argument(
        "--memory-limit",
        default="1GB",
        metavar="SIZE",
        help="memory to use, for example 500MB (default: 1GB)",
    )
    add_json(shuffle)
    shuffle.add_argument("--quiet", action="store_true", help="no progress on stderr")


def run(args: argparse.Namespace) -> int:
    """Shuffle rows."""
    import shoal
    from shoal._common.outputs import ARRAYS

    check_outputs([args.data], [("--output", args.output, ARRAYS)])
    with rows_of(args, args.data) as source:
        begun = time.perf_counter()
        written = shoal.shuffle(
            source,
            args.output,
            random_state=args.seed,
            memory_limit=args.memory_limit,
            progress=not args.quiet,
        )
        seconds = time.perf_counter() - begun
    with written:
        rows, cols = written.shape
        result = {
            "data": args.data,
            "rows": rows,
            "columns": cols,
            "dtype": written.dtype.name,
            "bytes": written.nbytes,
            "seed": args.seed,
            "seconds": round(seconds, 6),
            "output": args.output,
        }
    show(args, result)
    return 0
