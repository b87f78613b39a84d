"""``shoal seed``: choose initial centers among the rows."""

from __future__ import annotations

import argparse
import time
from typing import Any

from .arguments import (
    VALUES_HELP,
    Verbs,
    add_common,
    add_metric,
    add_output,
    add_rows,
    add_seed,
    add_verb,
    parse_file,
)
from .errors import UsageError
from .files import check_outputs, open_data
from .progress import progress_line
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
    add_rows(seed)
    seed.add_argument("-k", "--clusters", type=int, required=True, metavar="K", help="number of centers")
    add_output(seed, "CENTERS.npy", "write the centers to this .npy file")
    seed.add_argument(
        "--method",
        choices=tuple(METHODS),
        default="auto",
        metavar="NAME",
        help=f"one of: {', '.join(METHODS)} (default: auto)",
    )
    seed.add_argument(
        "--chain-length",
        type=int,
        metavar="N",
        help="candidates per center, for afk-mc2 and k-mc2 (default: 200)",
    )
    seed.add_argument(
        "--oversampling-factor",
        type=float,
        metavar="F",
        help="candidates that a round of k-means|| draws, as a multiple of K (default: 2)",
    )
    seed.add_argument("--n-rounds", type=int, metavar="N", help="number of rounds of k-means|| (default: 5)")
    seed.add_argument(
        "--indices",
        type=parse_file,
        metavar="OUT.npy",
        help=f"write the row numbers of the centers (int64) to this {VALUES_HELP} file",
    )
    add_seed(seed)
    add_metric(seed, "euclidean")
    add_common(seed)


def run(args: argparse.Namespace) -> int:
    """Choose the centers."""
    from shoal._files.outputs import ARRAYS, VALUES, write_values
    from shoal._files.staged import write_npy
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
    with open_data(args, args.data) as source, progress_line("shoal seed", quiet=args.quiet):
        begun = time.perf_counter()
        centers, indices, n_distances = choose_centers(
            "shoal seed", how, source, args.clusters, None, args.seed, args.threads
        )
        seconds = time.perf_counter() - begun
        (rows, cols), dtype = source.shape, source.dtype.name
    write_npy(args.output, centers)
    if args.indices:
        write_values("--indices", args.indices, "index", indices)
    result = {
        "data": args.data,
        "rows": rows,
        "columns": cols,
        "dtype": dtype,
        "method": args.method,
        "clusters": args.clusters,
        "metric": args.metric,
        "seed": args.seed,
        "distances": n_distances,
        "seconds": round(seconds, 6),
        "output": args.output,
        "indices": args.indices,
    }
    show(args, result)
    return 0
