"""``shoal dedup``: find near-duplicate rows, and keep one of each group."""

from __future__ import annotations

import argparse
import time

from .arguments import VALUES_HELP, Verbs, add_verb
from .files import check_outputs, open_data
from .results import show

KEEPS = ("first", "nearest-to-center", "farthest-from-center")
LINKAGES = ("leader", "components", "semdedup")


def add(verbs: Verbs) -> None:
    """Add the subcommand."""
    dedup = add_verb(verbs, "dedup", "find near-duplicate rows, and keep one of each group", run)
    dedup.add_rows()
    about = "rows at most this far from each other are duplicates"
    dedup.add_option("-t --threshold", "T", about, float, required=True)
    dedup.add_output("KEEP.npy", "write whether each row is kept (bool) to this .npy file")
    about = f"write the number of the kept row of every row (int64) to this {VALUES_HELP} file"
    dedup.add_file("--groups", "OUT.npy", about)
    for name, what, names in (
        ("--keep", "which row of a group is kept", KEEPS),
        ("--linkage", "how pairs become groups", LINKAGES),
    ):
        about = f"{what}: {', '.join(names)} (default: {names[0]})"
        dedup.add_option(name, "HOW", about, choices=names, default=names[0])
    about = "compare rows only with the rows of the N nearest cells, which misses pairs (default: find all)"
    dedup.add_option("--n-probes", "N", about, int)
    about = "write the state to FILE every minute and at an interrupt; the same command resumes from it"
    dedup.add_file("--checkpoint", "FILE", about)
    dedup.add_seed()
    dedup.add_metric("cosine")
    dedup.add_common()


def run(args: argparse.Namespace) -> int:
    """Find the duplicates and write which rows are kept."""
    from shoal._files.outputs import ARRAYS, MODELS, VALUES, write_values
    from shoal.curation import deduplicate

    outputs = [
        ("--output", args.output, ARRAYS),
        ("--groups", args.groups, VALUES),
        ("--checkpoint", args.checkpoint, MODELS),
    ]
    check_outputs([args.data], outputs)
    with open_data(args, args.data) as source:
        begun = time.perf_counter()
        found = deduplicate(
            source,
            args.threshold,
            metric=args.metric,
            keep=args.keep,
            linkage=args.linkage,
            exact=args.n_probes is None,
            n_probes=1 if args.n_probes is None else args.n_probes,
            out=args.output,
            checkpoint=args.checkpoint,
            random_state=args.random_state,
            n_jobs=args.n_jobs,
            verbose=not args.quiet,
        )
        seconds = time.perf_counter() - begun
    if args.groups is not None:
        write_values("--groups", args.groups, "representative", found.groups_)
    result = {
        "data": args.data,
        "rows": len(found.keep_),
        "kept": len(found.weights_),
        "pairs": found.n_pairs_,
        "threshold": args.threshold,
        "metric": args.metric,
        "linkage": args.linkage,
        "recall": round(found.recall_, 6),
        "cells": found.n_clusters_,
        "compared": round(found.compared_, 6),
        "seconds": round(seconds, 6),
        "keep": args.output,
        "groups": args.groups,
    }
    show(args, result)
    return 0
