"""``shoal predict``: label rows with a model."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .arguments import VALUES_HELP, Verbs, add_verb, parse_names
from .errors import FailedError, UsageError
from .files import check_outputs, open_data, refuse_other_width
from .results import show


def add(verbs: Verbs) -> None:
    """Add the subcommand."""
    predict = add_verb(verbs, "predict", "label rows with a model", run)
    predict.add_model()
    predict.add_rows()
    about = f"write the label of every row (int32) to this {VALUES_HELP} file"
    predict.add_output("LABELS.npy", about, required=False)
    about = (
        f"write the distance of every row to its center (float64) to this {VALUES_HELP} file; with the name "
        "of --output, as a second column of this file (not .npy or .txt)"
    )
    predict.add_file("--distances", "OUT.npy", about)
    about = (
        "copy these columns of a Parquet or Arrow file to --output (.parquet, .arrow, .feather or .csv), "
        "before the labels, and to the files of --partition-by-cluster"
    )
    predict.add_option("--keep", "A,B,...", about, parse_names)
    about = "write the rows of every cluster to DIR/cluster=LABEL/part-0.parquet; DIR must be new or empty"
    predict.add_file("--partition-by-cluster", "DIR", about, sets="partitions")
    predict.add_common()


def run(args: argparse.Namespace) -> int:
    """Label the rows."""
    from contextlib import ExitStack

    import shoal
    from shoal.predictions import check_model, label_all

    check(args)
    model = shoal.load(args.model)
    if isinstance(model, shoal.StreamingCoreset):
        raise FailedError(
            f"{args.model}: holds a coreset, which cannot label rows. Fit a model to the coreset first."
        )
    model.set_params(n_jobs=args.n_jobs)
    clusters = len(model._representatives)
    if args.distances and not hasattr(model, "cluster_centers_"):
        raise UsageError(f"--distances: {type(model).__name__} has no centers to measure distances to")
    check_model(model, distances="--distances" if args.distances else None)
    with ExitStack() as opened:
        takers = [opened.enter_context(taker) for taker in takers_of(args, clusters)]
        source = opened.enter_context(open_data(args, args.data))
        refuse_other_width(model, source, args.data)
        begun = time.perf_counter()
        found = label_all(model, source, takers)
        seconds = time.perf_counter() - begun
    result = {
        "model": args.model,
        "data": args.data,
        "rows": found.n_rows,
        "clusters": clusters,
        "clusters_used": int((found.counts > 0).sum()),
        "seconds": round(seconds, 6),
        "labels": args.output,
        "distances": args.distances,
        "kept": args.keep if args.json or args.keep is None else ", ".join(args.keep),
        "partitions": args.partitions,
    }
    show(args, result)
    return 0


def check(args: argparse.Namespace) -> None:
    """Check the outputs before any work."""
    from shoal._files.outputs import VALUES
    from shoal._files.tables import TABLES
    from shoal._fit.tables import check_folder

    if not args.output and not args.partitions:
        raise UsageError("--output or --partition-by-cluster is required")
    one_table = is_one_table(args)
    formats = TABLES if args.output and (args.keep or one_table) else VALUES
    distances = None if one_table else args.distances
    outputs = [("--output", args.output, formats), ("--distances", distances, VALUES)]
    check_outputs([args.model, args.data], outputs)
    if args.partitions:
        folder = Path(args.partitions).resolve()
        try:
            check_folder("--partition-by-cluster", folder)
        except OSError as error:
            raise FailedError(f"{args.partitions}: {error.strerror or error}") from error
        for name in (args.output, args.distances):
            if name and folder in Path(name).resolve().parents:
                raise FailedError(
                    f"{name}: lies in the folder of --partition-by-cluster: choose another name"
                )


def is_one_table(args: argparse.Namespace) -> bool:
    """Whether labels and distances go to one file."""
    from shoal._files.tables import TABLES

    if not args.output or not args.distances:
        return False
    same = Path(args.output).resolve() == Path(args.distances).resolve()
    return same and Path(args.output).suffix.lower() in TABLES


def takers_of(args: argparse.Namespace, clusters: int) -> Iterator[Any]:
    """Open the outputs, one after the other."""
    import numpy as np

    from shoal._checks.params import DEFAULT_MEMORY, memory
    from shoal._fit.results import InFile, Values
    from shoal._fit.tables import PartitionWriter, TableWriter

    one_table, keep = is_one_table(args), args.keep or []
    if args.output and (keep or one_table):
        yield TableWriter(args.output, keep, distances=one_table, arguments=("--output", "--keep"))
    elif args.output:
        to = InFile("--output", args.output, np.int32, column="label", read=False)
        yield Values(to, distances=False)
    if args.distances and not one_table:
        to = InFile("--distances", args.distances, np.float64, column="distance", read=False)
        yield Values(to, distances=True)
    if args.partitions:
        yield PartitionWriter(
            args.partitions,
            clusters,
            keep,
            distances=False,
            memory=memory("memory_limit", DEFAULT_MEMORY),
            arguments=("--partition-by-cluster", "--keep"),
        )
