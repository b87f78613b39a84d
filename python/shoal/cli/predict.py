"""``shoal predict``: label rows with a model."""

from __future__ import annotations

import argparse
import time

from .arguments import Verbs, add_common, add_rows, add_verb, file_of
from .errors import FailedError, UsageError
from .files import check_outputs, rows_of
from .methods import centers_of
from .results import show

#: Labels per block when the used clusters are counted.
BLOCK_ROWS = 1 << 20


def add(verbs: Verbs) -> None:
    """Add the subcommand."""
    predict = add_verb(verbs, "predict", "label rows with a model", run)
    predict.add_argument("model", type=file_of, metavar="MODEL", help="model file written by `shoal fit -o`")
    add_rows(predict)
    predict.add_argument(
        "-o",
        "--output",
        required=True,
        type=file_of,
        metavar="LABELS.npy",
        help="write the label of every row (int32) to this .npy, .csv, .txt or .parquet file",
    )
    predict.add_argument(
        "--distances",
        type=file_of,
        metavar="OUT.npy",
        help="write the distance of every row to its center (float64) to this .npy, .csv, .txt or .parquet "
        "file",
    )
    add_common(predict)


def run(args: argparse.Namespace) -> int:
    """Label the rows."""
    import numpy as np

    import shoal
    from shoal._common.outputs import VALUES

    values = [("--output", args.output, VALUES), ("--distances", args.distances, VALUES)]
    check_outputs([args.model, args.data], values)
    model = shoal.load(args.model)
    if isinstance(model, shoal.StreamingCoreset):
        raise FailedError(
            f"{args.model}: holds a coreset, which cannot label rows. Fit a model to the coreset first."
        )
    model.set_params(n_jobs=args.threads)
    clusters = len(centers_of(model))
    with rows_of(args, args.data) as source:
        begun = time.perf_counter()
        more = {"distances": args.distances} if args.distances else {}
        if more and not hasattr(model, "cluster_centers_"):
            raise UsageError(f"--distances: {type(model).__name__} has no centers to measure distances to")
        labels = model.predict(source, out=args.output, **more)
        seconds = time.perf_counter() - begun
    used = np.zeros(clusters, dtype=bool)
    for start in range(0, len(labels), BLOCK_ROWS):
        used[labels[start : start + BLOCK_ROWS]] = True
    result = {
        "model": args.model,
        "data": args.data,
        "rows": len(labels),
        "clusters": clusters,
        "clusters_used": int(used.sum()),
        "seconds": round(seconds, 6),
        "labels": args.output,
        "distances": args.distances,
    }
    show(args, result)
    return 0
