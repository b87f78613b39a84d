"""Laplacian K-modes: the experiments of Ziko, Granger & Ben Ayed, "Scalable Laplacian K-modes" (2018).

``graph``: the exact neighbor graph against scikit-learn's brute force and ``faiss.IndexFlatL2``, the
approximate graph against the exact one, and a fit on a given graph against ``KMeans.fit`` of scikit-learn;
interleaved in one run.
``quality``: NMI (geometric, as in the paper) and accuracy of k-means, of spectral clustering on small sets,
and of both variants for fixed weights and both graphs of the paper, with many seeds, and the number of
collapsed runs. Class labels are used only for these scores. Fits start from greedy seeds, from plain seeds as
in the paper, and from the centers of k-means.
``monotone``: whether the relaxed energy ever rises, on random graphs that meet the condition.
``growth``: seconds over the number of rows.
``defaults``: fits with the default weight, from spectral clustering and from seeds, against k-means, against
spectral clustering on the same graph, and against a weight of 1. A set is marked if the rule for the weight
was tuned on it.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import _common as common
from _slk import (
    OTHERS,
    SHOWN,
    TUNED,
    about_defaults,
    defaults,
    labeled,
    means,
    of_length_1,
    scores,
    timed,
    verdict,
)

PACKAGES = ("shoal", "numpy", "scipy", "scikit-learn", "faiss-cpu")
WEIGHTS = (0.0, 0.1, 0.5, 1.0, 1.3, 2.0, 4.0)
SETS = (
    "mnist_70k",
    "usps_11k",
    "coil20_1440",
    "fsdd_logmel40_spkA",
    "resnet18_cifar_16k",
    "shuttle_49k",
    "digits",
)
#: Maximum number of rows for scikit-learn's spectral clustering.
SPECTRAL_ROWS = 5000
#: Maximum number of values of a set for mean-shift modes with every seed: they pass over the rows hundreds of
#: times.
SHIFT_VALUES = 1 << 24
#: NMI and accuracy of the paper's MNIST, 70,000 x 784.
PAPER = {"k-means": (0.53, 0.55), "byproduct": (0.77, 0.80), "mean-shift": (0.80, 0.79)}


def nearest_of(graph: Any, m: int) -> Any:
    """Return the 0/1 graph of the ``m`` nearest of the given neighbors."""
    from scipy.sparse import csr_matrix

    n = graph.shape[0]
    ids = graph.indices.reshape(n, -1)[:, :m]
    return csr_matrix((np.ones(ids.size), ids.ravel(), np.arange(0, ids.size + 1, m)), shape=graph.shape)


# ---------------------------------------------------------------- speed


def graphs(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Time the graph builders, interleaved."""
    import shoal
    from sklearn.cluster import KMeans
    from sklearn.neighbors import NearestNeighbors
    from threadpoolctl import threadpool_limits

    X, _ = labeled(args.data)
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
        "scikit-learn brute": lambda: (
            NearestNeighbors(n_neighbors=m, algorithm="brute", n_jobs=threads)
            .fit(X)
            .kneighbors_graph(mode="distance")
        ),
        "shoal ivf": lambda: shoal.knn_graph(X, m, method="ivf", n_jobs=threads, return_info=True),
        "faiss flat": faiss,
        "scikit-learn KMeans(10)": lambda: KMeans(10, n_init=1, random_state=0).fit(X),
    }
    ones = nearest_of(shoal.knn_graph(of_length_1(X), m, n_jobs=threads), m)

    def after(weight: float) -> Any:
        fit = shoal.LaplacianKModes(
            10,
            init="k-means++",
            laplacian_weight=weight,
            n_neighbors=m,
            affinity="precomputed",
            normalize=True,
            random_state=0,
            n_jobs=threads,
        )
        return fit.fit(ones, features=X)

    for weight in (0.5, 1.0):
        makers[f"SLK-BO after the graph, weight {weight:g}"] = partial(after, weight)
    rows = []
    for trial in range(args.repeats):
        times, more = {}, {}
        for name, make in makers.items():
            try:
                with warnings.catch_warnings(), threadpool_limits(threads):
                    warnings.simplefilter("ignore")
                    times[name], made = timed(make)
            except ImportError:
                continue
            if name == "shoal ivf":
                more[name] = {"recall": made[1]["recall"]}
            elif name.startswith("SLK"):
                updates = sum(len(values) - 1 for values in made.relaxed_energies_)
                more[name] = {"collapsed": made.collapsed_, "n_iter": made.n_iter_, "updates": updates}
        for name, seconds in times.items():
            rows.append(
                {
                    "part": "graph",
                    "data": args.data,
                    "rows": len(X),
                    "columns": X.shape[1],
                    "neighbors": m,
                    "trial": trial,
                    "what": name,
                    "seconds": seconds,
                    "of exact": seconds / times["shoal exact"],
                    **more.get(name, {}),
                }
            )
    return rows


def about_graphs(rows: list[dict[str, Any]]) -> list[str]:
    """Compare the measurements with the targets for graphs: medians of ratios within a round."""
    seconds: dict[str, list[float]] = {}
    for row in rows:
        seconds.setdefault(row["what"], []).append(row["seconds"])

    def faster(fast: str, slow: str, wanted: float) -> str | None:
        if fast not in seconds or slow not in seconds:
            return None
        ratio = common.median(b / a for a, b in zip(seconds[fast], seconds[slow], strict=True))
        return verdict(ratio >= wanted, f"{fast} is {ratio:.2f} x as fast as {slow} (wanted: {wanted:g})")

    lines = [
        faster("shoal exact", "scikit-learn brute", 3.0),
        faster("shoal exact", "faiss flat", 2.0),
        faster("shoal ivf", "shoal exact", 8.0),
        *(
            faster(f"SLK-BO after the graph, weight {weight:g}", "scikit-learn KMeans(10)", 1.0)
            for weight in (0.5, 1.0)
        ),
    ]
    return [line for line in lines if line is not None]


# ---------------------------------------------------------------- quality


def quality(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure NMI and accuracy of k-means, spectral clustering, and both variants on both graphs."""
    import shoal
    from sklearn.cluster import SpectralClustering

    rows: list[dict[str, Any]] = []
    for name in args.sets:
        X, y = labeled(name)
        X, y = X[: args.rows], y[: args.rows]
        k = len(np.unique(y))
        # One graph is enough: the graph with fewer neighbors is part of it.
        whole = shoal.knn_graph(of_length_1(X), max(args.graphs), n_jobs=args.threads)
        about = {"part": "quality", "data": name, "rows": len(X), "columns": X.shape[1]}

        def scored(
            model: Any,
            what: str,
            seed: int,
            *given: Any,
            about: dict[str, Any] = about,
            y: np.ndarray = y,
            start: str | None = None,
            weight: float | None = None,
            m: int | None = None,
            **named: Any,
        ) -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                seconds, _ = timed(model.fit, *given, **named)
            run = {"what": what, "start": start, "neighbors": m, "weight": weight}
            run |= {"seed": seed, "seconds": seconds}
            rows.append({**about, **run, **scores(y, model)})

        centers = []
        for seed in range(args.seeds):
            plain = shoal.KMeans(k, random_state=seed, n_jobs=args.threads)
            scored(plain, "k-means", seed, X)
            # Initial centers refer to rows as the fits use them.
            model = shoal.KMeans(k, random_state=seed, n_jobs=args.threads)
            centers.append(model.fit(of_length_1(X)).cluster_centers_ if "k-means" in args.starts else None)
        for m in args.graphs:
            graph = nearest_of(whole, m)
            width = float(np.sqrt(whole.data.reshape(len(X), -1)[:, :m].mean()))
            if len(X) <= SPECTRAL_ROWS:
                mean = (graph + graph.T) / 2
                for seed in range(args.seeds):
                    model = SpectralClustering(k, affinity="precomputed", random_state=seed)
                    scored(model, "spectral", seed, mean, m=m)
            for variant in args.variants:
                slow = variant == "mean-shift" and X.size > SHIFT_VALUES
                seeds = range(min(args.seeds, args.shift_seeds) if slow else args.seeds)
                for start, weight, seed in itertools.product(args.starts, args.weights, seeds):
                    model = shoal.LaplacianKModes(
                        k,
                        laplacian_weight=weight,
                        mode_update=variant,
                        init=centers[seed] if start == "k-means" else start,
                        n_neighbors=m,
                        affinity="precomputed",
                        normalize=True,
                        bandwidth=width,
                        random_state=seed,
                        n_jobs=args.threads,
                    )
                    scored(model, variant, seed, graph, start=start, weight=weight, m=m, features=X)
        print(common.table([row for row in means(rows) if row["data"] == name], SHOWN), flush=True)
    return rows


def about_quality(rows: list[dict[str, Any]]) -> list[str]:
    """Compare means over the seeds at one weight with the order of the paper, and its values for MNIST."""
    table, lines = means(rows), []
    for data in dict.fromkeys(row["data"] for row in table):
        mine = [row for row in table if row["data"] == data]
        plain = next(row for row in mine if row["what"] == "k-means")
        if data == "mnist_70k":
            nmi, acc = PAPER["k-means"]
            near = abs(plain["nmi"] - nmi) <= 0.05 and abs(plain["acc"] - acc) <= 0.05
            text = f"{data}: k-means {plain['nmi']:.2f}/{plain['acc']:.2f} (paper: {nmi:.2f}/{acc:.2f})"
            lines.append(verdict(near, text))
        for m in dict.fromkeys(row["neighbors"] for row in mine if row["neighbors"]):
            on = [row for row in mine if row["neighbors"] == m]
            others = [("k-means", plain)]
            others += [("spectral clustering", row) for row in on if row["what"] == "spectral"]
            for variant in ("byproduct", "mean-shift"):
                runs = [row for row in on if row["what"] == variant and row["weight"] > 0]
                if not runs:
                    continue
                best = max(runs, key=lambda row: row["nmi"])
                zero = [row for row in on if row["what"] == variant and row["weight"] == 0]
                zero = [row for row in zero if row["start"] == best["start"]]
                who = f"{data}, {m} neighbors: {variant} from {best['start']} at {best['weight']:g}"
                who += f" has NMI {best['nmi']:.3f}"
                who += f" ({best['collapsed']} of {best['runs']} runs collapsed)"
                for name, other in others + [("K-modes", row) for row in zero]:
                    text = f"{who}, {name} {other['nmi']:.3f} (paper: above)"
                    lines.append(verdict(best["nmi"] > other["nmi"], text))
                if data == "mnist_70k":
                    nmi, acc = PAPER[variant]
                    top = max(runs, key=lambda row: row["best nmi"] + row["best acc"])
                    text = f"{data}, {m} neighbors: {variant} from {top['start']} at {top['weight']:g}, "
                    text += "best seeds "
                    text += f"{top['best nmi']:.2f}/{top['best acc']:.2f} (paper: {nmi:.2f}/{acc:.2f})"
                    lines.append(verdict(top["best nmi"] >= nmi and top["best acc"] >= acc, text))
    return lines


# ---------------------------------------------------------------- monotone


def monotone(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Count rises of the relaxed energy on random symmetric graphs that meet the condition."""
    import shoal
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(0)
    rows = []
    for trial in range(args.trials):
        n, k = int(rng.integers(6, 40)), int(rng.integers(2, 6))
        W = rng.random((n, n)) * (rng.random((n, n)) < rng.uniform(0.1, 0.6))
        W = (W + W.T) / 2
        weight = float(rng.uniform(0.1, 4))
        lowest = max(0.0, -float(np.linalg.eigvalsh(W)[0]))
        shift = max(0.0, lowest - 2 / weight)
        X = rng.normal(size=(n, 3))
        model = shoal.LaplacianKModes(
            k,
            init="k-means++",
            laplacian_weight=weight,
            affinity="precomputed",
            diagonal_shift=shift,
            bandwidth=1.0,
            normalize=False,
            random_state=trial,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(csr_matrix(W), features=X)
        values = model.relaxed_energies_
        rises = sum(int((np.diff(v) > 1e-12 * np.abs(v[:-1])).sum()) for v in values)
        updates = sum(len(v) - 1 for v in values)
        row = {"part": "monotone", "what": "rises", "rows": n, "seed": trial, "weight": weight}
        rows.append({**row, "shift": shift, "updates": updates, "rises": rises})
    return rows


def about_rises(rows: list[dict[str, Any]]) -> list[str]:
    """Report whether any update raised the energy."""
    rises, updates = (sum(row[name] for row in rows) for name in ("rises", "updates"))
    return [verdict(rises == 0, f"{rises} of {updates} updates on {len(rows)} random graphs go uphill")]


# ---------------------------------------------------------------- growth


def growth(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the seconds of graph and fit over the number of rows."""
    import shoal

    whole = common.raw(args.growth_data)
    rng = np.random.default_rng(0)
    rows = []
    n = args.first
    while n <= min(args.last, len(whole)):
        X = np.ascontiguousarray(whole[np.sort(rng.choice(len(whole), n, replace=False))])
        # Equal rows have distance 0, which gives no kernel width.
        X = X.astype(np.float32) + rng.normal(scale=0.5, size=X.shape).astype(np.float32)
        model = shoal.LaplacianKModes(
            10,
            init="k-means++",
            laplacian_weight=0.5,
            n_neighbors=5,
            normalize=False,
            graph_method=args.growth_method,
            random_state=0,
            n_jobs=args.threads,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X)
        for phase, seconds in model.timings_.items():
            updates = sum(len(values) for values in model.relaxed_energies_)
            rows.append(
                {
                    "part": "growth",
                    "data": Path(args.growth_data).stem,
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
        axes.plot(*zip(*points, strict=True), "o-", label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("rows")
    axes.set_ylabel("seconds")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"drawn as {path}")


def main() -> None:
    """Run the chosen parts."""
    parser = common.parser(__doc__)
    parser.add_argument(
        "--part", choices=("graph", "quality", "monotone", "growth", "defaults", "all"), default="all"
    )
    parser.add_argument("--data", default="mnist_70k", help="set of the graph part")
    parser.add_argument("--rows", type=int, help="rows of a set, the first ones (default: all)")
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="sets of the quality part")
    parser.add_argument("--variants", nargs="+", default=["byproduct", "mean-shift"])
    parser.add_argument(
        "--starts",
        nargs="+",
        default=["k-means++", "plain-k-means++", "k-means"],
        help="first modes; k-means: its centers",
    )
    parser.add_argument("--weights", nargs="+", type=float, default=list(WEIGHTS))
    parser.add_argument("--neighbors", type=int, default=5, help="of the graph part")
    parser.add_argument("--graphs", nargs="+", type=int, default=[5, 4], help="neighbors, quality part")
    parser.add_argument("--trials", type=int, default=1000, help="graphs of the monotone part")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--shift-seeds", type=int, default=3, help="of mean-shift modes on the largest sets")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--growth-data", default="bsds_pixels_rgb")
    parser.add_argument("--growth-method", default="auto", help="of the graph")
    parser.add_argument("--first", type=int, default=20_000)
    parser.add_argument("--last", type=int, default=640_000)
    parser.add_argument("--default-sets", nargs="+", default=[*TUNED, *OTHERS], help="of the defaults part")
    parser.add_argument("--default-seeds", type=int, default=3)
    parser.add_argument("--most-rows", type=int, default=6000, help="of a set in the defaults part")
    parser.add_argument("--threads", type=int, default=common.cores())
    parser.add_argument("--csv", help="where to keep the table")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its numbers mean nothing")
    args = parser.parse_args()
    if args.quick:
        args.data, args.sets, args.rows, args.seeds, args.repeats = "digits", ["digits"], 600, 1, 1
        args.weights, args.first, args.last, args.trials = [0.0, 0.5], 2000, 4000, 20
        args.default_sets, args.default_seeds, args.most_rows = ["digits"], 1, 600
    parts = {
        "graph": (graphs, about_graphs),
        "quality": (quality, about_quality),
        "monotone": (monotone, about_rises),
        "growth": (growth, lambda _: []),
        "defaults": (defaults, about_defaults),
    }
    rows: list[dict[str, Any]] = []
    lines: list[str] = []
    columns = {"data": "", "rows": "d", "trial": "d", "what": "", "seconds": ".3f", "of exact": ".3f"}
    columns |= {"recall": ".3f", "collapsed": "", "n_iter": "d", "updates": "d"}
    for name, (run, say) in parts.items():
        if args.part not in (name, "all"):
            continue
        found = run(args)
        rows += found
        lines += say(found)
        if name == "quality":
            rows += means(found)
        elif name in ("graph", "growth"):
            print(common.table(found, columns), flush=True)
        if name == "growth":
            place = tempfile.mkdtemp() if args.quick else None
            picture(found, common.results("slk-growth", "png", place))
    print("\n".join(lines))
    common.keep("slk", common.description(PACKAGES), rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
