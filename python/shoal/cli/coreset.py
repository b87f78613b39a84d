"""``shoal coreset``: draw a small weighted sample of the rows."""

from __future__ import annotations

import argparse
import time

from .arguments import Verbs, add_verb
from .files import check_outputs, describe, open_data
from .results import show


def add(verbs: Verbs) -> None:
    """Add the subcommand."""
    coreset = add_verb(
        verbs,
        "coreset",
        "draw a lightweight coreset: a small weighted sample to fit instead of all rows",
        run,
        details="The output holds the arrays points, weights and indices. Read it with shoal.Coreset.load.",
    )
    coreset.add_rows()
    coreset.add_option("-m --samples", "M", "number of rows to draw", int, sets="n_samples", required=True)
    coreset.add_output("CORESET.npz", "write the coreset to this .npz file")
    coreset.add_seed()
    coreset.add_metric("euclidean")
    coreset.add_common()


def run(args: argparse.Namespace) -> int:
    """Draw a coreset."""
    import shoal
    from shoal._files.outputs import BUNDLES

    check_outputs([args.data], [("--output", args.output, BUNDLES)])
    with open_data(args, args.data) as source:
        begun = time.perf_counter()
        coreset = shoal.lightweight_coreset(
            source,
            args.n_samples,
            metric=args.metric,
            random_state=args.random_state,
            n_jobs=args.n_jobs,
            progress=not args.quiet,
        )
        seconds = time.perf_counter() - begun
        about = describe(args.data, source)
    coreset.save(args.output)
    result = {
        **about,
        "samples": len(coreset.weights),
        "metric": args.metric,
        "weight": float(coreset.weights.sum()),
        "largest_weight": float(coreset.weights.max()),
        "seed": args.random_state,
        "seconds": round(seconds, 6),
        "output": args.output,
    }
    show(args, result)
    return 0
