"""``shoal knn``: find the nearest neighbors of every row."""

from __future__ import annotations

import argparse
import time

from .arguments import Verbs, add_verb
from .files import check_outputs, open_data
from .results import show


def add(verbs: Verbs) -> None:
    """Add the subcommand."""
    knn = add_verb(verbs, "knn", "find the nearest neighbors of every row", run)
    knn.add_rows()
    about = "number of neighbors per row, not counting the row itself"
    knn.add_option("-m --neighbors", "M", about, int, sets="n_neighbors", required=True)
    about = "write the squared distances to this .npz file, a sparse matrix for scipy.sparse.load_npz"
    knn.add_output("GRAPH.npz", about)
    knn.add_option("--method", "HOW", "auto, exact, kd-tree or ivf (default: auto)", default="auto")
    about = "recall that ivf must reach on a sample of the rows (default: 0.95)"
    knn.add_option("--recall", "SHARE", about, float, default=0.95)
    knn.add_metric("euclidean")
    knn.add_common()


def run(args: argparse.Namespace) -> int:
    """Find the neighbors and write the graph."""
    from scipy.sparse import save_npz

    import shoal
    from shoal._files.outputs import BUNDLES
    from shoal._files.staged import replace_file
    from shoal._terminal.progress import showing

    check_outputs([args.data], [("--output", args.output, BUNDLES)])
    with open_data(args, args.data) as source, showing("shoal knn", on=not args.quiet):
        begun = time.perf_counter()
        graph, info = shoal.knn_graph(
            source,
            args.n_neighbors,
            method=args.method,
            recall=args.recall,
            metric=args.metric,
            n_jobs=args.n_jobs,
            return_info=True,
        )
        seconds = time.perf_counter() - begun
    with replace_file(args.output) as file:
        save_npz(file, graph, compressed=False)
    result = {
        "data": args.data,
        "rows": graph.shape[0],
        "neighbors": args.n_neighbors,
        "method": info["method"],
        "metric": args.metric,
        "recall": round(info["recall"], 6),
        "cells": info["n_cells"] or None,
        "probes": info["n_probes"] or None,
        "seconds": round(seconds, 6),
        "graph": args.output,
    }
    show(args, result)
    return 0
