"""Variance-reduced k-means: the experiments of Zhao et al., "Variance reduced k-means clustering", 2018.

``speed``: seconds to the inertia that batch k-means (scikit-learn's Lloyd) ends with, from the same distinct
rows, on the same threads, all methods one after the other for every start. A model counts when it was made:
what its inertia is shows in the next sweep, or in a pass that is not counted.
``inner``: seconds of an epoch near the end, with bounds, with a search at every step, and without steps; and
those of the variant that carries the batch gradient.
``quality``: accuracy, NMI (geometric) and purity of all methods of the paper after an equal time.
``rates``: inertia over epochs for several learning rates and epoch sizes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import _common as common

SPEED = ("sift_bsds_trainval:1000", "cifar10_test10k_rgb:100", "resnet18_cifar_16k:257", "mnist_70k:256")
QUALITY = ("cifar10_test10k_rgb:10", "mnist_70k:10")
RATES = ("mnist_70k:256", "resnet18_cifar_16k:257")
PARTS = ("speed", "inner", "quality", "rates")
#: The rate that is compared with the other methods, in `n_clusters / n`, besides the one by default.
MULTIPLES = (1.0, 10.0, 100.0)
SIZES: tuple[float | str, ...] = (0.25, 0.5, 1.0, 2.0, "2^epoch")
#: What the paper measured: data, and seconds of batch k-means over those of VRKM++ and VRKM.
PAPER = {
    "Oxford": (4.14, 2.07),
    "Pittsburgh": (5.54, 2.57),
    "CIFAR-100": (4.30, 2.04),
    "Caltech-256": (3.60, 2.00),
}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "batch": ("KMeans", {"algorithm": "lloyd", "n_init": 1, "tol": 0.0, "max_iter": 100_000}),
    "mini-batch": (
        "MiniBatchKMeans",
        {"max_iter": 100_000, "max_no_improvement": None, "reassignment_ratio": 0.0},
    ),
    "SGD": (
        "MiniBatchKMeans",
        {"batch_size": 1, "max_iter": 100_000, "max_no_improvement": None, "reassignment_ratio": 0.0},
    ),
    "nested, no bounds": ("NestedMiniBatchKMeans", {"bounds": "none"}),
    "nested": ("NestedMiniBatchKMeans", {}),
    "vrkm": ("VarianceReducedKMeans", {"variant": "vrkm", "tol": 0.0, "max_iter": 100_000}),
    "vrkm++": ("VarianceReducedKMeans", {"tol": 0.0, "max_iter": 100_000}),
}

# ---------------------------------------------------------------- the worker's side


class Handler:
    """Commands of the parent."""

    def __init__(self, library: str) -> None:
        self._library = library
        self._X = np.empty((0, 0), dtype=np.float32)
        # Of empty clusters, where rows are equal.
        warnings.simplefilter("ignore")

    def __call__(self, command: str, *args: Any) -> Any:
        return getattr(self, command)(*args)

    def data(self, spec: str, rows: int | None) -> None:
        """Read the rows; all methods get them as float32."""
        self._X = np.ascontiguousarray(common.load(spec)[1], dtype=np.float32)[:rows]
        # Pools, kernels and caches wake up.
        if self._library == "sklearn":
            self.sklearn(self._X[:20], 2)
        else:
            self.curve("VarianceReducedKMeans", {"max_iter": 1}, self._X[:20], 0, None, 60.0)

    def sklearn(self, start: np.ndarray, max_iter: int) -> tuple[float, float, int]:
        """Seconds, inertia and iterations of scikit-learn's Lloyd."""
        from sklearn.cluster import KMeans

        model = KMeans(len(start), init=start, n_init=1, algorithm="lloyd", max_iter=max_iter)
        begun = time.perf_counter()
        model.fit(self._X)
        seconds = time.perf_counter() - begun
        return seconds, common.objective(self._X, model.cluster_centers_), model.n_iter_

    def curve(
        self,
        name: str,
        params: dict[str, Any],
        start: np.ndarray,
        seed: int,
        target: float | None,
        most: float,
        search_always: bool = False,
    ) -> tuple[list[float], list[float], np.ndarray]:
        """Seconds after each step and the inertia then, up to a target or some seconds; the last centers."""
        import shoal

        model = getattr(shoal, name)(len(start), init=start, random_state=seed, **params)
        if search_always:
            model._search_always = True
        seconds, before = [], []
        for step in model.iter_fit(self._X):
            seconds.append(step.elapsed)
            before.append(step.objective)
            if step.elapsed >= most or (target is not None and step.objective <= target):
                break
        last = shoal.metrics.inertia(self._X, model.cluster_centers_)
        # What a step measures is the inertia after the one before.
        return seconds, [*before[1:], last], model.cluster_centers_

    def budget(
        self, name: str, params: dict[str, Any], start: np.ndarray, seed: int, seconds: float
    ) -> tuple[np.ndarray, float]:
        """Labels and inertia of the centers after some seconds."""
        import shoal

        model = getattr(shoal, name)(len(start), init=start, random_state=seed, **params)
        for step in model.iter_fit(self._X):
            if step.elapsed >= seconds:
                break
        return model.predict(self._X), -model.score(self._X)

    def growing(self, start: np.ndarray, seed: int, rate: float, epochs: int) -> list[float]:
        """Inertia after epochs of 2, 4, 8, ... steps."""
        import shoal

        centers, found = start, []
        for epoch in range(epochs):
            model = shoal.VarianceReducedKMeans(
                len(start),
                init=centers,
                learning_rate=rate,
                epoch_size=2 ** (epoch + 1),
                max_iter=1,
                polish=False,
                random_state=seed + epoch,
            ).fit(self._X)
            centers = model.cluster_centers_
            found.append(model.inertia_)
        return found


# ---------------------------------------------------------------- the parent's side


def seconds_to(seconds: list[float], inertia: list[float], target: float) -> float | None:
    """When the inertia was first as low; None: never."""
    return next((s for s, f in zip(seconds, inertia, strict=True) if f <= target * (1 + 1e-7)), None)


def speed(spec: str, workers: dict[str, common.Worker], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Seconds of each method to the inertia that batch k-means ends with."""
    name, X, k = common.load(spec)
    X = np.ascontiguousarray(X, dtype=np.float32)[: args.rows]
    n = len(X)
    for worker in workers.values():
        worker.call("data", spec, args.rows)
    methods: dict[str, tuple[str, dict[str, Any]]] = {
        "own lloyd": ("KMeans", {"n_init": 1, "tol": 0.0, "max_iter": 300}),
        "vrkm++": ("VarianceReducedKMeans", {"tol": 0.0}),
    }
    for multiple in MULTIPLES:
        rate = min(1.0, multiple * k / n)
        methods[f"vrkm++ {multiple:g} K/n"] = ("VarianceReducedKMeans", {"tol": 0.0, "learning_rate": rate})
    methods["vrkm++ T=n/2"] = ("VarianceReducedKMeans", {"tol": 0.0, "epoch_size": 0.5})
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in range(args.seeds):
        start = common.distinct_rows(X, k, seed)
        theirs, target, iterations = workers["sklearn"].call("sklearn", start, 300)
        print(
            f"{name}, seed {seed}: scikit-learn {theirs:.2f} s, {iterations} iterations, {target:.8g}",
            flush=True,
        )
        own = None
        for method, (kind, params) in methods.items():
            seconds, inertia, _ = workers["shoal"].call(
                "curve", kind, params, start, seed, target, 4 * theirs + 1
            )
            took = seconds_to(seconds, inertia, target)
            own = took if method == "own lloyd" else own
            steps = len(seconds)
            row = {"took": took, "steps": steps, "ratio": None if took is None else theirs / took}
            row["own"] = None if took is None or own is None else own / took
            row["end"] = inertia[-1] / target
            found.setdefault(method, []).append(row)
            print(f"  {method}: {took} s, {steps} steps, end {row['end']:.5f}", flush=True)
        found.setdefault("sklearn", []).append(
            {"took": theirs, "steps": iterations, "ratio": 1.0, "end": 1.0}
        )
    table = []
    for method, rows in found.items():
        line: dict[str, Any] = {"data": name, "n": n, "d": X.shape[1], "k": k, "method": method}
        for field in ("took", "ratio", "own"):
            values = [row[field] for row in rows if row.get(field) is not None]
            line[field] = common.median(values) if values else None
        line["never"] = sum(row["took"] is None for row in rows)
        line["steps"] = common.median(row["steps"] for row in rows)
        line["end"] = common.median(row["end"] for row in rows)
        table.append(line)
    return table


def inner(spec: str, workers: dict[str, common.Worker], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Seconds of epochs near the end, by what is done at their steps."""
    name, X, k = common.load(spec)
    X = np.ascontiguousarray(X, dtype=np.float32)[: args.rows]
    worker = workers["shoal"]
    worker.call("data", spec, args.rows)
    start = common.distinct_rows(X, k, 0)
    late = {"tol": 0.0, "max_iter": 12}
    _, _, centers = worker.call("curve", "VarianceReducedKMeans", late, start, 0, None, 600.0)

    def epoch(params: dict[str, Any], search: bool, most: float = 600.0) -> float:
        """The third and later epochs from there."""
        given = {"tol": 0.0, "max_iter": 6, **params}
        seconds, _, _ = worker.call("curve", "VarianceReducedKMeans", given, centers, 1, None, most, search)
        return float(np.median(np.diff(seconds)[-3:]))

    none = epoch({"epoch_size": 0}, False)
    bounds = epoch({}, False)
    plain = epoch({"max_iter": 3}, True)
    # All centers are moved at every step: some of the steps say what each costs.
    some = max(1, len(X) // 50)
    carried = epoch({"variant": "vrkm", "epoch_size": some, "max_iter": 3}, False)
    without = epoch({"epoch_size": some, "max_iter": 3}, False)
    return [
        {
            "data": name,
            "n": len(X),
            "k": k,
            "sweep s": none,
            "bounds s": bounds - none,
            "search s": plain - none,
            "search / bounds": (plain - none) / max(bounds - none, 1e-9),
            "epoch, vrkm++ s": bounds,
            "epoch, vrkm s": bounds + (carried - without) * len(X) / some,
            "vrkm / vrkm++": 1.0 + (carried - without) * len(X) / some / bounds,
        }
    ]


def quality(spec: str, workers: dict[str, common.Worker], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Agreement with the classes after an equal time."""
    from shoal.metrics import clustering_accuracy, normalized_mutual_info_score, purity

    name, X, k = common.load(spec)
    X = np.ascontiguousarray(X, dtype=np.float32)[: args.rows]
    with np.load(Path(os.environ["SHOAL_DATA"]) / f"{name}.npz") as archive:
        y = archive["y"][: args.rows]
    workers["shoal"].call("data", spec, args.rows)
    table = []
    starts = [common.distinct_rows(X, k, seed) for seed in range(args.quality_seeds)]
    for method, (kind, params) in METHODS.items():
        scores = []
        for seed, start in enumerate(starts):
            labels, inertia = workers["shoal"].call("budget", kind, params, start, seed, args.budget)
            nmi = normalized_mutual_info_score(y, labels, average_method="geometric")
            scores.append((clustering_accuracy(y, labels), nmi, purity(y, labels), inertia))
        mean, spread = np.mean(scores, axis=0), np.std(scores, axis=0, ddof=1)
        line: dict[str, Any] = {"data": name, "k": k, "method": method, "seconds": args.budget}
        for i, score in enumerate(("ACC", "NMI", "purity", "inertia")):
            line[score], line[f"{score} std"] = float(mean[i]), float(spread[i])
        table.append(line)
        print(line, flush=True)
    return table


def rates(spec: str, workers: dict[str, common.Worker], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Inertia over epochs, for rates and epoch sizes."""
    name, X, k = common.load(spec)
    X = np.ascontiguousarray(X, dtype=np.float32)[: args.rows]
    workers["shoal"].call("data", spec, args.rows)
    start = common.distinct_rows(X, k, 0)
    table = []
    for multiple in MULTIPLES:
        rate = min(1.0, multiple * k / len(X))
        for size in SIZES:
            if isinstance(size, str):
                epochs = int(np.log2(2 * len(X)))
                curve = workers["shoal"].call("growing", start, 0, rate, epochs)
                seconds: list[float | None] = [None] * len(curve)
            else:
                given = {"tol": 0.0, "max_iter": args.epochs, "learning_rate": rate, "epoch_size": size}
                seconds, curve, _ = workers["shoal"].call(
                    "curve", "VarianceReducedKMeans", given, start, 0, None, 600.0
                )
            table += [
                {
                    "data": name,
                    "k": k,
                    "K/n": multiple,
                    "rate": rate,
                    "T/n": size,
                    "epoch": e + 1,
                    "s": s,
                    "inertia": f,
                }
                for e, (s, f) in enumerate(zip(seconds, curve, strict=True))
            ]
            print(f"{name}: {multiple:g} K/n, T = {size}: {curve[-1]:.8g}", flush=True)
    return table


def picture(path: Path, table: list[dict[str, Any]]) -> None:
    """The figure of `rates`: a panel for each set and rate."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["data"] for row in table))
    figure = Figure(figsize=(13, 4 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(names), len(MULTIPLES), squeeze=False, sharey="row")
    for line, name in zip(panels, names, strict=True):
        best = min(row["inertia"] for row in table if row["data"] == name)
        for axes, multiple in zip(line, MULTIPLES, strict=True):
            for size in SIZES:
                mine = [r for r in table if (r["data"], r["K/n"], r["T/n"]) == (name, multiple, size)]
                excess = [max(r["inertia"] / best - 1, 1e-5) for r in mine]
                axes.plot(
                    [r["epoch"] for r in mine], excess, label=f"T = {size} n" if size != "2^epoch" else size
                )
            axes.set_yscale("log")
            axes.set_title(f"{name}, rate {multiple:g} K/n")
            axes.set_xlabel("epoch")
            axes.grid(alpha=0.3, which="both")
        line[0].set_ylabel("inertia over the lowest, less 1")
        line[0].legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"drawn as {path}")


COLUMNS = {
    "speed": {
        "data": "", "k": "d", "method": "", "took": ".2f", "ratio": ".2f", "own": ".2f", "never": "d",
        "steps": ".0f", "end": ".5f",
    },
    "inner": {
        "data": "", "k": "d", "sweep s": ".3f", "bounds s": ".3f", "search s": ".2f",
        "search / bounds": ".1f",
        "epoch, vrkm++ s": ".3f", "epoch, vrkm s": ".2f", "vrkm / vrkm++": ".1f",
    },
    "quality": {
        "data": "", "method": "", "ACC": ".4f", "ACC std": ".4f", "NMI": ".4f", "NMI std": ".4f",
        "purity": ".4f", "purity std": ".4f", "inertia": ".6g",
    },
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--data", nargs="+", help="sets and clusters, as name:k (default: those of the part)")
    parser.add_argument("--seeds", type=int, default=3, help="starts of `speed` (default 3)")
    parser.add_argument("--quality-seeds", type=int, default=10)
    parser.add_argument("--budget", type=float, default=2.0, help="seconds of `quality` (default 2)")
    parser.add_argument("--epochs", type=int, default=15, help="epochs of `rates` (default 15)")
    parser.add_argument("--threads", type=int, default=common.cores())
    parser.add_argument("--rows", type=int, help="only so many rows")
    parser.add_argument(
        "--csv", help="where to keep the table of the one part (default: benches/results/<processor>/)"
    )
    parser.add_argument("--quick", action="store_true", help="2000 rows, few starts, nothing kept")
    parser.add_argument("--worker", choices=["shoal", "sklearn"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        common.serve(Handler(args.worker))
        return
    if args.quick:
        args.rows, args.seeds, args.quality_seeds, args.budget, args.epochs = 2000, 1, 2, 0.2, 3
    head = common.description(["numpy", "shoal", "scikit-learn"])
    head["threads"] = str(args.threads)
    head["paper"] = "; ".join(f"{n}: VRKM++ {a} x, VRKM {b} x batch" for n, (a, b) in PAPER.items())
    print("\n".join(f"{key}: {value}" for key, value in head.items()), flush=True)
    core = common.blas_core()
    workers = {
        "shoal": common.Worker(__file__, "shoal", threads=args.threads),
        "sklearn": common.Worker(
            __file__, "sklearn", threads=args.threads, env={"OPENBLAS_CORETYPE": core} if core else None
        ),
    }
    sets = {"speed": SPEED, "inner": SPEED, "quality": QUALITY, "rates": RATES}
    programs = {"speed": speed, "inner": inner, "quality": quality, "rates": rates}
    try:
        for part in args.parts:
            table = []
            for spec in args.data or sets[part]:
                table += programs[part](spec, workers, args)
            if part in COLUMNS:
                print("\n" + common.table(table, COLUMNS[part]), flush=True)
            elif not args.quick:
                picture(common.results(f"vrkm-{part}", "png"), table)
            common.keep(f"vrkm-{part}", head, table, args.csv, args.quick)
    finally:
        for worker in workers.values():
            worker.close()


if __name__ == "__main__":
    main()
