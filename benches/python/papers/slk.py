"""Laplacian K-modes: the experiments of Ziko, Granger & Ben Ayed, "Scalable Laplacian K-modes" (2018).

``graph``: the exact neighbour graph against scikit-learn's brute force and ``faiss.IndexFlatL2``, the
approximate one against the exact one, and a fit on a graph that is there against ``KMeans.fit`` of
scikit-learn; in turn, in one run. ``quality``: NMI (geometric, as in the paper) and accuracy of k-means and
of both variants for fixed weights, many seeds, with the runs that collapsed; labels are used for no more.
``growth``: seconds over the number of rows.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import _common as common

PACKAGES = ("shoal", "numpy", "scipy", "scikit-learn", "faiss-cpu")
WEIGHTS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0)
SETS = ("mnist_70k", "usps_11k", "coil20_1440", "resnet18_cifar_16k", "shuttle_49k")


def timed(work: Callable[..., Any], *args: Any, **more: Any) -> tuple[float, Any]:
    """Seconds, and what came of them."""
    begun = time.perf_counter()
    result = work(*args, **more)
    return time.perf_counter() - begun, result


def labelled(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows as they are computed, and their classes."""
    if name == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        return digits.data.astype(np.float32), digits.target
    with np.load(Path(os.environ["SHOAL_DATA"]) / f"{name}.npz") as archive:
        return np.ascontiguousarray(archive["X"], dtype=np.float32), archive["y"]


# ---------------------------------------------------------------- speed


def graphs(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Time the makers of graphs in turn."""
    import shoal
    from sklearn.cluster import KMeans
    from sklearn.neighbors import kneighbors_graph

    X, _ = labelled(args.data)
    X = X[: args.rows]
    m, threads = args.neighbors, args.threads

    def faiss() -> Any:
        import faiss

        faiss.omp_set_num_threads(threads)
        index = faiss.IndexFlatL2(X.shape[1])
        index.add(X)
        return index.search(X, m + 1)

    makers: dict[str, Callable[[], Any]] = {
        "shoal exact": lambda: shoal.knn_graph(X, m, method="exact", n_jobs=threads),
        "scikit-learn brute": lambda: kneighbors_graph(X, m, mode="distance", n_jobs=threads),
        "shoal ivf": lambda: shoal.knn_graph(X, m, method="ivf", n_jobs=threads),
        "faiss flat": faiss,
        "scikit-learn KMeans(10)": lambda: KMeans(10, n_init=1, random_state=0).fit(X),
    }
    rows, exact = [], None
    for trial in range(args.repeats):
        times = {}
        for name, make in makers.items():
            try:
                times[name], made = timed(make)
            except ImportError:
                continue
            if name == "shoal exact":
                exact = made
        fit = shoal.LaplacianKModes(10, n_neighbors=m, affinity="precomputed", bandwidth=0.4, random_state=0)
        ones = exact.copy()
        ones.data = np.ones_like(ones.data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            times["SLK-BO after the graph"], _ = timed(fit.fit, ones, features=X)
        for name, seconds in times.items():
            rows.append(
                {
                    "part": "graph",
                    "data": args.data,
                    "rows": len(X),
                    "columns": X.shape[1],
                    "trial": trial,
                    "what": name,
                    "seconds": seconds,
                    "of exact": seconds / times["shoal exact"],
                }
            )
    return rows


# ---------------------------------------------------------------- quality


def scores(y: np.ndarray, model: Any) -> dict[str, Any]:
    """How good labels are, what their energy is, and whether a cluster was lost."""
    from shoal.metrics import clustering_accuracy, normalized_mutual_info_score

    return {
        "nmi": normalized_mutual_info_score(y, model.labels_, average_method="geometric"),
        "acc": clustering_accuracy(y, model.labels_),
        "energy": getattr(model, "energy_", None),
        "collapsed": getattr(model, "collapsed_", None),
    }


def quality(args: argparse.Namespace) -> list[dict[str, Any]]:
    """NMI and accuracy of k-means and of both variants."""
    import shoal

    rows = []
    for name in args.sets:
        X, y = labelled(name)
        X, y = X[: args.rows], y[: args.rows]
        k = len(np.unique(y))
        length = np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-30)
        graph = shoal.knn_graph(X / length, args.neighbors, n_jobs=args.threads)
        width = float(np.sqrt(graph.data.mean()))
        graph.data[:] = 1.0

        about = {"part": "quality", "data": name, "rows": len(X), "columns": X.shape[1]}
        for seed in range(args.seeds):
            seconds, model = timed(shoal.KMeans(k, random_state=seed).fit, X)
            given = {"what": "k-means", "weight": None, "seed": seed, "seconds": seconds}
            rows.append({**about, **given, **scores(y, model)})
            print(rows[-1], flush=True)
            for method in args.variants:
                for weight in args.weights:
                    model = shoal.LaplacianKModes(
                        k,
                        laplacian_weight=weight,
                        mode_update=method,
                        n_neighbors=args.neighbors,
                        affinity="precomputed",
                        bandwidth=width,
                        random_state=seed,
                        n_jobs=args.threads,
                    )
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        seconds, _ = timed(model.fit, graph, features=X)
                    given = {"what": method, "weight": weight, "seed": seed, "seconds": seconds}
                    rows.append({**about, **given, **scores(y, model)})
                    print(rows[-1], flush=True)
    return rows


# ---------------------------------------------------------------- growth


def growth(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Seconds of graph and fit over the number of rows."""
    import shoal

    whole = common.raw(args.growth_data)
    rng = np.random.default_rng(0)
    rows = []
    n = args.first
    while n <= min(args.last, len(whole)):
        X = np.ascontiguousarray(whole[np.sort(rng.choice(len(whole), n, replace=False))])
        # Rows that are equal have no distance from which a kernel's width could come.
        X = X.astype(np.float32) + rng.normal(scale=0.5, size=X.shape).astype(np.float32)
        model = shoal.LaplacianKModes(
            10, laplacian_weight=0.5, normalize=False, random_state=0, n_jobs=args.threads
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X)
        for phase, seconds in model.timings_.items():
            updates = sum(len(values) for values in model.relaxed_energies_)
            rows.append(
                {
                    "part": "growth",
                    "data": args.growth_data,
                    "rows": n,
                    "columns": X.shape[1],
                    "what": phase,
                    "how": model.graph_method_,
                    "seconds": seconds,
                    "updates": updates if phase == "iterations" else None,
                }
            )
            print(rows[-1], flush=True)
        n *= 2
    return rows


def picture(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the growth."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4), layout="constrained")
    axes = figure.subplots()
    for phase in dict.fromkeys(row["what"] for row in rows):
        points = [
            (row["rows"], row["seconds"] / (row["updates"] or 1)) for row in rows if row["what"] == phase
        ]
        label = "an update" if phase == "iterations" else phase
        axes.loglog(*zip(*points, strict=True), "o-", label=label)
    axes.set_xlabel("rows")
    axes.set_ylabel("seconds")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"drawn as {path}")


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--part", choices=("graph", "quality", "growth", "all"), default="all")
    parser.add_argument("--data", default="mnist_70k", help="set of the graph part")
    parser.add_argument("--rows", type=int, help="rows of a set, the first ones (default: all)")
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="sets of the quality part")
    parser.add_argument("--variants", nargs="+", default=["byproduct", "mean-shift"])
    parser.add_argument("--weights", nargs="+", type=float, default=list(WEIGHTS))
    parser.add_argument("--neighbors", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--growth-data", default="bsds_pixels_rgb")
    parser.add_argument("--first", type=int, default=20_000)
    parser.add_argument("--last", type=int, default=640_000)
    parser.add_argument("--threads", type=int, default=common.cores())
    parser.add_argument("--csv", help="where to keep the table")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its numbers mean nothing")
    args = parser.parse_args()
    if args.quick:
        args.data, args.sets, args.rows, args.seeds, args.repeats = "digits", ["digits"], 600, 1, 1
        args.weights, args.first, args.last = [0.0, 0.5], 2000, 4000
    parts = {"graph": graphs, "quality": quality, "growth": growth}
    rows: list[dict[str, Any]] = []
    for name, run in parts.items():
        if args.part in (name, "all"):
            found = run(args)
            rows += found
            if name == "growth" and not args.quick:
                picture(found, common.results("slk-growth", "png"))
    columns = {
        "data": "",
        "rows": "d",
        "what": "",
        "weight": "g",
        "seconds": ".3f",
        "nmi": ".3f",
        "acc": ".3f",
    }
    print(common.table(rows, columns))
    common.keep("slk", common.description(PACKAGES), rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
