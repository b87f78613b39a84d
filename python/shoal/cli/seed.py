"""``shoal seed``: choose initial centers among the rows."""

from __future__ import annotations

import argparse
import time
from typing import Any

from .arguments import VALUES_HELP, Verbs, add_verb
from .errors import UsageError
from .files import check_outputs, describe, open_data
from .results import show

#: Seeding methods, and the parameters that only this method has.
METHODS: dict[str, tuple[str, ...]] = {
    "auto": (),
    "random": (),
    "k-means++": (),
    "plain-k-means++": (),
    "afk-mc2": ("chain_length",),
    "k-mc2": ("chain_length",),
    "k-means||": ("oversampling_factor", "n_rounds"),
    "hierarchical": (),
}


def add(verbs: Verbs) -> None:
    """Add the subcommand."""
    seed = add_verb(verbs, "seed", "choose initial centers among the rows", run)
    seed.add_rows()
    seed.add_clusters("number of centers")
    seed.add_output("CENTERS.npy", "write the centers to this .npy file")
    about = f"one of: {', '.join(METHODS)} (default: auto)"
    seed.add_option("--method", "NAME", about, choices=tuple(METHODS), default="auto")
    about = "candidates per center, for afk-mc2 and k-mc2 (default: 200)"
    seed.add_option("--chain-length", "N", about, int)
    about = "candidates that a round of k-means|| draws, as a multiple of K (default: 2)"
    seed.add_option("--oversampling-factor", "F", about, float)
    seed.add_option("--n-rounds", "N", "number of rounds of k-means|| (default: 5)", int)
    about = f"write the row numbers of the centers (int64) to this {VALUES_HELP} file"
    seed.add_file("--indices", "OUT.npy", about)
    seed.add_seed()
    seed.add_metric("euclidean")
    seed.add_common()


def run(args: argparse.Namespace) -> int:
    """Choose the centers."""
    from shoal._files.outputs import ARRAYS, VALUES, write_values
    from shoal._files.staged import write_npy
    from shoal._terminal.progress import showing
    from shoal.seeding import How, choose_centers

    given: dict[str, Any] = {
        name: getattr(args, name) for name in ("chain_length", "oversampling_factor", "n_rounds")
    }
    for name, value in given.items():
        if value is not None and name not in METHODS[args.method]:
            raise UsageError(f"--{name.replace('_', '-')}: --method {args.method} has no such parameter")
    if args.indices and args.method == "hierarchical":
        raise UsageError("--indices: the centers of --method hierarchical are means, not rows")
    check_outputs([args.data], [("--output", args.output, ARRAYS), ("--indices", args.indices, VALUES)])
    chain, oversampling, rounds = given.values()
    how = How(args.method, chain, oversampling, rounds, args.metric)
    with open_data(args, args.data) as source, showing("shoal seed", on=not args.quiet):
        begun = time.perf_counter()
        centers, indices, n_distances = choose_centers(
            "shoal seed", how, source, args.n_clusters, None, args.random_state, args.n_jobs
        )
        seconds = time.perf_counter() - begun
        about = describe(args.data, source)
    write_npy(args.output, centers)
    if args.indices:
        write_values("--indices", args.indices, "index", indices)
    result = {
        **about,
        "method": args.method,
        "clusters": args.n_clusters,
        "metric": args.metric,
        "seed": args.random_state,
        "distances": n_distances,
        "seconds": round(seconds, 6),
        "output": args.output,
        "indices": args.indices,
    }
    show(args, result)
    return 0
