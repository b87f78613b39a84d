"""Whole fits of exact k-means to convergence: bounded sweeps compared with plain sweeps and scikit-learn.

All methods start from the same random distinct rows, which differ in every round, and stop when no label
changes. Fits are interleaved (A B C A B C ...), and ratios are taken within a round. Fits of less than half a
second are repeated up to ten times in every round, and the fastest counts. The methods of shoal must take the
same number of sweeps and end with bit-identical inertia, otherwise the run fails.

    python benches/python/bounded.py                    # the sets with targets
    python benches/python/bounded.py --grid             # "auto" against plain sweeps, many sets and k
    python benches/python/bounded.py --by-sweep --methods auto lloyd exponion --data cover_286k:50 --threads 1

``--by-sweep`` shows the milliseconds of single sweeps and the share of all distances that they measured, next
to the share of labels that changed in the sweep before. It shows from which sweep on bounds save time. All
rounds have the same start, and the fastest counts.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _common as common
import numpy as np

#: A shorter fit than this many seconds is repeated up to this many times per round, and the fastest counts.
LONG_ENOUGH, MOST_REPEATS = 0.5, 10
PEERS = ("sklearn-lloyd", "sklearn-elkan")


@dataclass(frozen=True)
class Wanted:
    """Targets: times of plain sweeps and of the faster method of scikit-learn, divided by that of "auto"."""

    lloyd: float
    sklearn: float | None = None


TARGETS = {
    "sift_bsds_trainval:1024": Wanted(4.5, 10.0),
    "mnist_70k:256": Wanted(4.0, 8.0),
    "fsdd_logmel40_spkA:1024": Wanted(5.0, 12.0),
    "resnet18_cifar_16k:256": Wanted(2.5, 5.0),
    "uk_accidents_lnglat_140k:100": Wanted(3.0),
    "uk_accidents_lnglat_140k:1000": Wanted(3.0),
    "cover_286k:50": Wanted(3.0),
    "gagolews_a/sipu/birch1:100": Wanted(3.0),
    "gagolews_a/sipu/birch2:100": Wanted(3.0),
}
#: Sets and numbers of clusters for which "auto" must not be slower than plain sweeps.
GRID_SETS = (
    "sift_bsds_trainval",
    "mnist_70k",
    "fsdd_logmel40_spkA",
    "resnet18_cifar_16k",
    "cover_286k",
    "uk_accidents_lnglat_140k",
    "gagolews_a/sipu/birch1",
    "gagolews_a/sipu/birch2",
    "kddcup99_10pct_494k",
    "letter_20k",
    "shuttle_49k",
    "aloi_27d_50k",
    "usps_11k",
    "wordvec_ppmi_svd100",
    "cifar10_test10k_rgb",
    "campaign_41k",
    "http_567k",
    "skin_245k",
    "bsds_pixels_rgb",
)
GRID_CLUSTERS = (8, 64, 1024)
#: The lowest ratio that counts as not slower, where bounds do not help.
NEVER_BELOW = 0.95

# ---------------------------------------------------------------- the worker's side


class Handler:
    """Commands of the worker."""

    def __init__(self, library: str) -> None:
        self._library = library
        self._threads = int(os.environ["SHOAL_BENCH_THREADS"])
        self._X = np.empty((0, 0))
        self._clock = time.perf_counter

    def __call__(self, command: str, *args: Any) -> Any:
        return getattr(self, command)(*args)

    def data(self, rows: str, clock: str) -> None:
        """Import the library and read the rows."""
        self._clock = time.process_time if clock == "processor" else time.perf_counter
        __import__("sklearn.cluster" if self._library == "sklearn" else "shoal")
        self._X = np.load(rows)

    def knows(self, algorithm: str) -> bool:
        """Whether this version of shoal has an algorithm."""
        if self._library == "sklearn":
            return True
        import shoal

        few = np.arange(4.0).reshape(-1, 1)
        try:
            shoal.KMeans(2, algorithm=algorithm, init=few[:2], n_init=1).fit(few)
        except ValueError:
            return False
        return True

    def fit(
        self, algorithm: str, start: np.ndarray, sweeps: int
    ) -> tuple[float, int, float, int | None, str]:
        """Return seconds, sweeps, inertia, measured distances, and the algorithm that "auto" ended with."""
        params = {"init": start, "n_init": 1, "max_iter": sweeps, "tol": 0.0, "algorithm": algorithm}
        if self._library == "sklearn":
            from sklearn.cluster import KMeans

            t = self._clock()
            model = KMeans(len(start), **params).fit(self._X)
            return self._clock() - t, int(model.n_iter_), float(model.inertia_), None, algorithm
        import shoal

        t = self._clock()
        own = shoal.KMeans(len(start), **params, n_jobs=self._threads).fit(self._X)
        seconds = self._clock() - t
        return seconds, own.n_iter_, own.inertia_, int(own.history_["n_distances"].sum()), own.algorithm_

    def sweeps(
        self, algorithm: str, start: np.ndarray, sweeps: int
    ) -> tuple[list[float], list[int], list[int]]:
        """Return for each sweep the seconds, the changed labels, and the measured distances."""
        import shoal

        params = {"init": start, "n_init": 1, "max_iter": sweeps, "tol": 0.0, "algorithm": algorithm}
        steps = list(shoal.KMeans(len(start), **params, n_jobs=self._threads).iter_fit(self._X))
        seconds = np.diff([step.elapsed for step in steps], prepend=0.0).tolist()
        return seconds, [step.n_changed for step in steps], [step.n_distances for step in steps]


def library_of(method: str) -> tuple[str, str]:
    """Return the library and the algorithm of a method."""
    return ("sklearn", method.removeprefix("sklearn-")) if method in PEERS else ("shoal", method)


# ---------------------------------------------------------------- the parent's side


def measure(
    spec: str, methods: list[str], workers: dict[str, common.Worker], args: argparse.Namespace
) -> list[dict[str, Any]]:
    """Measure the rows of the table for one data set."""
    name, X, k = common.load(spec)
    if args.quick:
        X = np.ascontiguousarray(X[: max(5_000, 5 * k)])
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "rows.npy"))
        np.save(path, X)
        for worker in workers.values():
            worker.call("data", path, args.clock)
    known = [m for m in methods if workers[library_of(m)[0]].call("knows", library_of(m)[1])]
    times: dict[str, list[float]] = {method: [] for method in known}
    rows: dict[str, dict[str, Any]] = {}
    kind = {"float32": "f32", "float64": "f64"}[X.dtype.name]
    for turn in range(args.rounds):
        start = common.distinct_rows(X, k, turn)
        fits: dict[str, list[tuple[float, int, float, int | None, str]]] = {method: [] for method in known}
        repeats = dict.fromkeys(known, 1)
        for again in range(MOST_REPEATS):
            for method in known:
                library, algorithm = library_of(method)
                if turn == again == 0:
                    # Warm up threads, kernels and caches.
                    workers[library].call("fit", algorithm, start, 1)
                if again < repeats[method]:
                    fits[method].append(workers[library].call("fit", algorithm, start, args.sweeps))
                    repeats[method] = int(np.ceil(LONG_ENOUGH / fits[method][0][0]))
        ends = {}
        for method in known:
            seconds, sweeps, inertia, distances, used = min(fits[method])
            times[method].append(seconds)
            if method not in PEERS:
                ends[method] = (sweeps, inertia)
            row = rows.setdefault(method, {"sweeps": [], "inertia": [], "measured": [], "used": set()})
            row["sweeps"].append(sweeps)
            row["inertia"].append(inertia)
            row["used"].add(used)
            if distances is not None:
                row["measured"].append(distances / (len(X) * k * sweeps))
        if len(set(ends.values())) > 1:
            raise SystemExit(f"{spec}, round {turn}: the exact methods differ: {ends}")
    table = []
    for method in known:
        row = rows[method]
        line: dict[str, Any] = {"data": name, "n": len(X), "d": X.shape[1], "k": k, "type": kind}
        line |= {
            "threads": args.threads,
            "rounds": args.rounds,
            "method": method,
            "sweeps": common.median(row["sweeps"]),
        }
        line |= {"s": common.median(times[method]), "inertia": common.median(row["inertia"])}
        line["measured"] = common.median(row["measured"]) if row["measured"] else None
        for other, column in (("lloyd", "lloyd/this"), ("auto", "this/auto")):
            if other in times:
                pairs = zip(times[method], times[other], strict=True)
                ratios = [b / a if other == "lloyd" else a / b for a, b in pairs]
                line |= {column: common.median(ratios)}
                line |= {f"{column} low": min(ratios), f"{column} high": max(ratios)}
        peers = [times[peer] for peer in PEERS if peer in times]
        if method == "auto" and peers:
            better = [min(each) for each in zip(*peers, strict=True)]
            ratios = [b / a for a, b in zip(times[method], better, strict=True)]
            line["sklearn/this"] = common.median(ratios)
            line |= {"sklearn/this low": min(ratios), "sklearn/this high": max(ratios)}
        if method == "auto":
            line["note"] = "ended with " + ", ".join(sorted(row["used"]))
        if max(row["sweeps"]) >= args.sweeps:
            line["note"] = f"{line.get('note', '')} stopped after {args.sweeps} sweeps".strip()
        table.append(line)
    return table


def by_sweep(
    spec: str, methods: list[str], worker: common.Worker, args: argparse.Namespace
) -> list[dict[str, Any]]:
    """Measure the milliseconds of single sweeps, the minimum over the rounds."""
    name, X, k = common.load(spec)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        np.save(path, X)
        worker.call("data", str(path), args.clock)
    start = common.distinct_rows(X, k, 0)
    least: dict[str, np.ndarray] = {}
    measured: dict[str, list[int]] = {}
    changed: list[int] = []
    for _ in range(args.rounds):
        for method in methods:
            seconds, changed, measured[method] = worker.call("sweeps", method, start, args.sweeps)
            least[method] = np.minimum(least.get(method, np.inf), seconds)
    # The first sweeps, then a selection.
    shown = sorted(
        {*range(12), *range(12, len(changed), max(1, len(changed) // 24))} & set(range(len(changed)))
    )
    about = {"data": name, "n": len(X), "d": X.shape[1], "k": k, "threads": args.threads}
    return [
        {
            **about,
            "sweep": i + 1,
            "changed": changed[i - 1] / len(X) if i else 1.0,
            **{f"{method} ms": 1e3 * float(times[i]) for method, times in least.items()},
            **{f"{method} share": found[i] / (len(X) * k) for method, found in measured.items()},
        }
        for i in shown
    ] + [{**about, "sweep": "all", **{f"{m} ms": 1e3 * float(times.sum()) for m, times in least.items()}}]


def verdicts(table: list[dict[str, Any]], *, grid: bool) -> list[str]:
    """List which targets are reached."""
    lines = []
    for row in table:
        if row["method"] != "auto" or "lloyd/this" not in row:
            continue
        spec = f"{row['data']}:{row['k']}"
        wanted = None if grid else TARGETS.get(spec)
        least = NEVER_BELOW if wanted is None else wanted.lloyd
        for column, target in (("lloyd/this", least), ("sklearn/this", wanted and wanted.sklearn)):
            if target is not None and column in row:
                holds = "holds" if row[column] >= target else "does not hold"
                lines.append(f"{holds}: {spec}: {column} = {row[column]:.2f} (wanted: {target:g})")
    return lines


COLUMNS = {
    "data": "",
    "n": "d",
    "d": "d",
    "k": "d",
    "type": "",
    "method": "",
    "sweeps": ".0f",
    "s": ".3f",
    "measured": ".1%",
    "lloyd/this": ".2f",
    "lloyd/this low": ".2f",
    "lloyd/this high": ".2f",
    "this/auto": ".2f",
    "sklearn/this": ".2f",
    "inertia": ".9g",
    "note": "",
}


def main() -> None:
    parser = common.parser(__doc__)
    own = ["auto", "lloyd", "yinyang", "hamerly", "elkan", "exponion"]
    parser.add_argument(
        "--data", nargs="+", metavar="NAME:K[:f32|f64]", help="default: the sets with targets"
    )
    parser.add_argument("--methods", nargs="+", choices=[*own, *PEERS], help="default: all; of --grid: two")
    parser.add_argument("--grid", action="store_true", help="many sets, k = 8, 64, 1024: auto against lloyd")
    parser.add_argument("--by-sweep", action="store_true", help="milliseconds of single sweeps")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds, a start each (default 3)")
    parser.add_argument("--sweeps", type=int, default=1000, help="most sweeps of a fit (default 1000)")
    parser.add_argument("--clock", choices=["wall", "processor"], default="wall")
    common.add_options(
        parser,
        quick="5,000 rows, 1 round, 50 sweeps, no result file",
        threads=True,
        worker=["shoal", "sklearn"],
    )
    args = parser.parse_args()
    if args.worker:
        # Warnings of empty clusters, which all methods have alike.
        warnings.simplefilter("ignore")
        common.serve(Handler(args.worker))
        return
    if args.sweeps < 1 or args.rounds < 1 or not 1 <= args.threads <= common.cores():
        parser.error(f"at least 1 sweep and 1 round, and 1 to {common.cores()} threads")
    if args.by_sweep and set(args.methods or PEERS) & set(PEERS):
        parser.error("--by-sweep: name methods of shoal with --methods")
    if args.quick:
        args.rounds, args.sweeps = 1, min(args.sweeps, 50)
    methods = args.methods or (["auto", "lloyd"] if args.grid else [*own, *PEERS])
    grid = [f"{name}:{k}" for name in GRID_SETS for k in GRID_CLUSTERS]
    specs = args.data or (grid if args.grid else list(TARGETS))
    head = common.announced(["numpy", "shoal", "scikit-learn"])
    libraries = dict.fromkeys(library_of(method)[0] for method in methods)
    workers = {name: common.Worker(__file__, name, threads=args.threads) for name in libraries}
    rows = []
    with common.closing(workers.values()):
        if args.by_sweep:
            columns = {"data": "", "k": "d", "sweep": "", "changed": ".4f"}
            columns |= {f"{method} ms": ".2f" for method in methods}
            columns |= {f"{method} share": ".3f" for method in methods}
            for spec in specs:
                part = by_sweep(spec, methods, workers["shoal"], args)
                print("\n" + common.table(part, columns), flush=True)
                rows += part
            common.keep("bounded-by-sweep", head, rows, args.csv, args.quick)
            return
        for spec in specs:
            part = measure(spec, methods, workers, args)
            print("\n" + common.table(part, COLUMNS))
            print("\n".join(verdicts(part, grid=args.grid)), flush=True)
            rows += part
    lines = verdicts(rows, grid=args.grid)
    print("\nin all:\n" + "\n".join(lines))
    head |= {f"target {number}": line for number, line in enumerate(lines, 1)}
    common.keep("bounded-grid" if args.grid else "bounded", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
