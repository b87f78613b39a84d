"""``shoal predict``: rows are labelled with the centers of a model."""

from __future__ import annotations

import argparse
import time

from .arguments import Verbs, add_common, add_rows, add_verb, file_of
from .files import check_outputs, rows_of
from .results import show


def add(verbs: Verbs) -> None:
    """Add the verb."""
    predict = add_verb(verbs, "predict", "label rows with the centers of a model", run)
    predict.add_argument("model", type=file_of, metavar="MODEL", help="a file that `shoal fit -o` wrote")
    add_rows(predict)
    predict.add_argument(
        "-o",
        "--output",
        required=True,
        type=file_of,
        metavar="LABELS.npy",
        help="the label of every row (int32)",
    )
    predict.add_argument(
        "--distances",
        type=file_of,
        metavar="OUT.npy",
        help="the distance of every row to its center (float64)",
    )
    add_common(predict)


def run(args: argparse.Namespace) -> int:
    """Label rows."""
    import numpy as np

    import shoal
    from shoal import _core, _params
    from shoal._files import write_npy

    check_outputs([args.model, args.data], [args.output, args.distances])
    model = shoal.load(args.model)
    model.set_params(n_jobs=args.threads)
    with rows_of(args, args.data) as source:
        begun = time.perf_counter()
        if args.distances:
            rows = model._rows(source, reset=False)
            threads = _params.threads(args.threads)
            labels, sq_dists = _core.nearest(rows, model.cluster_centers_, 1, model.metric, threads)
            write_npy(args.distances, np.sqrt(sq_dists))
        else:
            labels = model.predict(source)
        write_npy(args.output, labels)
        seconds = time.perf_counter() - begun
    result = {
        "model": args.model,
        "data": args.data,
        "rows": len(labels),
        "clusters": len(model.cluster_centers_),
        "clusters_used": len(np.unique(labels)),
        "seconds": round(seconds, 6),
        "labels": args.output,
        "distances": args.distances,
    }
    show(args, result)
    return 0
