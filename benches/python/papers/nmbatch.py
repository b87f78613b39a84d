"""Nested mini-batch k-means: the experiment of Newling & Fleuret, "Nested mini-batch k-means", NIPS 2016.

Validation energy over time for mini-batch k-means, nested mini-batch k-means (several rho, with and without
bounds), Lloyd's algorithm, exact k-means with bounds, and scikit-learn's ``MiniBatchKMeans``: k = 50, batches
of 5000, one thread. For every seed all methods start from the same distinct rows and run one after the other.
Ratios are taken within a seed. Only steps count as time, not validation and its copies.

Energies are means of squared distances, and E_V is the energy of the validation rows. E* is the lowest final
E_V of all runs on a set, as in the paper. E*(seed) is the lowest of a seed, because the start decides the
last percent. During a run E_V can be lower by chance if some rows are far from all others. Such values are
not used.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import _common as common
import datasets

BATCH = 5000
RHOS = (0.1, 1.0, 10.0, 100.0, 1000.0)
#: The rho of the paper, and the rho that is compared with the other methods.
RHO = 100.0
#: A model is saved whenever the number of rows read has grown by this factor.
GROWTH = 1.2
#: Methods that run with every seed. `nested` is first because ratios refer to it.
MAIN = ("nested", "minibatch", "lloyd", "bounded", "sklearn")

# ---------------------------------------------------------------- the worker's side


@dataclass
class Track:
    """Models saved during a run; saving does not count as time."""

    seconds: float
    points: list[tuple[int, float, int, int]] = field(default_factory=list)
    centers: list[np.ndarray] = field(default_factory=list)

    def due(self, rows: int, *, last: bool) -> bool:
        """Whether to save the model after this many rows."""
        return last or not self.points or rows >= GROWTH * self.points[-1][2]

    def add(self, step: int, seconds: float, rows: int, batch: int, centers: np.ndarray) -> None:
        """Save a model."""
        self.points.append((step, seconds, rows, batch))
        self.centers.append(np.array(centers, dtype=np.float32))


def run_shoal(method: str, X: np.ndarray, start: np.ndarray, seed: int, track: Track) -> str:
    """Run a method of shoal until it ends or the time is over; return the reason."""
    name, params = SHOAL[method]
    import shoal

    model = getattr(shoal, name)(len(start), init=start, random_state=seed, n_jobs=1, **params)
    for step in model.iter_fit(X):
        over = step.elapsed >= track.seconds
        if track.due(step.rows_seen, last=over or step.stop_reason is not None):
            track.add(step.iteration, step.elapsed, step.rows_seen, step.batch_size, model.cluster_centers_)
        if over:
            return "time"
    return str(model.stop_reason_)


def run_sklearn(method: str, X: np.ndarray, start: np.ndarray, seed: int, track: Track) -> str:
    """Run scikit-learn's mini-batch k-means, with a hook in its convergence check."""
    from sklearn.cluster import MiniBatchKMeans, _kmeans

    real = _kmeans._mini_batch_step
    begun = time.perf_counter()
    watching = 0.0
    newest = start

    class Watched(MiniBatchKMeans):
        def _mini_batch_convergence(self, i: int, n_steps: int, *rest: Any) -> bool:
            nonlocal watching
            # Keep its smoothed inertia up to date, without stopping.
            super()._mini_batch_convergence(i, n_steps, *rest)
            now = time.perf_counter()
            elapsed = now - begun - watching
            # At least two steps.
            rows, over = (i + 1) * BATCH, i > 0 and elapsed >= track.seconds
            if track.due(rows, last=over or i + 1 == n_steps):
                track.add(i + 1, elapsed, rows, BATCH, newest)
            watching += time.perf_counter() - now
            return over

    def step(X: Any, sample_weight: Any, centers: Any, centers_new: Any, *rest: Any, **more: Any) -> Any:
        nonlocal newest
        result = real(X, sample_weight, centers, centers_new, *rest, **more)
        newest = centers_new
        return result

    params = {"batch_size": BATCH, "tol": 0.0, "max_no_improvement": None, "max_iter": 1_000_000}
    model = Watched(len(start), init=start, n_init=1, random_state=seed, compute_labels=False, **params)
    _kmeans._mini_batch_step = step
    try:
        begun = time.perf_counter()
        model.fit(X)
    finally:
        _kmeans._mini_batch_step = real
    return "time"


def nested(rho: float, bounds: str) -> tuple[str, dict[str, Any]]:
    """The nested method with the given rho."""
    return "NestedMiniBatchKMeans", {
        "batch_size": BATCH,
        "rho": rho,
        "bounds": bounds,
        "compute_labels": False,
    }


def label(rho: float, *, bounds: bool = True) -> str:
    """The name of a nested method in tables; the rho of the paper has the plain name."""
    if bounds and rho == RHO:
        return "nested"
    return f"nested rho={rho:g}" + ("" if bounds else " no bounds")


#: Class and parameters of the methods of shoal.
SHOAL: dict[str, tuple[str, dict[str, Any]]] = {
    "lloyd": ("KMeans", {"algorithm": "lloyd", "n_init": 1, "tol": 0.0, "max_iter": 100_000}),
    "bounded": ("KMeans", {"algorithm": "auto", "n_init": 1, "tol": 0.0, "max_iter": 100_000}),
    # Sculley's algorithm as in the paper, without reassignment and early stopping.
    "minibatch": (
        "MiniBatchKMeans",
        {
            "batch_size": BATCH,
            "max_iter": 1_000_000,
            "max_no_improvement": None,
            "reassignment_ratio": 0.0,
            "compute_labels": False,
        },
    ),
    **{label(rho): nested(rho, "auto") for rho in RHOS},
    **{label(rho, bounds=False): nested(rho, "none") for rho in RHOS},
}


class Handler:
    """Commands of the worker."""

    def __init__(self, library: str) -> None:
        self._library = library
        self._X = np.empty((0, 0), dtype=np.float32)

    def __call__(self, command: str, *args: Any) -> Any:
        return getattr(self, command)(*args)

    def ready(self) -> list[str]:
        """Import the library; return its methods."""
        if self._library == "sklearn":
            import sklearn.cluster

            assert sklearn.cluster
            return ["sklearn"]
        import shoal

        return [method for method, (name, _) in SHOAL.items() if hasattr(shoal, name)]

    def data(self, name: str, quick: bool) -> None:
        """Read the rows; all methods get them as float32."""
        self._X = np.ascontiguousarray(datasets.parts_of(name, quick=quick)[0], dtype=np.float32)
        # Warm up pools, kernels and caches.
        self.run(self.ready()[-1], self._X[:50], 0, 0.1)

    def run(
        self, method: str, start: np.ndarray, seed: int, seconds: float
    ) -> tuple[list[tuple[int, float, int, int]], np.ndarray, str]:
        """Return points (step, seconds, rows, batch) and centers of a run, and why it ended."""
        track = Track(seconds)
        program = run_sklearn if self._library == "sklearn" else run_shoal
        reason = program(method, self._X, start, seed, track)
        return track.points, np.stack(track.centers), reason


# ---------------------------------------------------------------- the parent's side


@dataclass(frozen=True)
class Run:
    """The curve of one method from one start."""

    method: str
    seed: int
    steps: np.ndarray
    seconds: np.ndarray
    rows: np.ndarray
    batch: np.ndarray
    energy: np.ndarray
    training: float
    reason: str

    def seconds_to(self, energy: float) -> float:
        """Time until E_V was first at most `energy`; infinite if never."""
        low = np.flatnonzero(self.energy <= energy)
        return float(self.seconds[low[0]]) if low.size else np.inf


def energy_of(rows: np.ndarray, centers: np.ndarray) -> float:
    """Mean squared distance of rows to the nearest centers."""
    import shoal

    return shoal.metrics.inertia(rows, centers) / len(rows)


def measure(name: str, workers: dict[str, common.Worker], args: argparse.Namespace) -> list[Run]:
    """Run all methods on a set: seed by seed, method by method."""
    training, validation = (
        np.ascontiguousarray(part, dtype=np.float32) for part in datasets.parts_of(name, quick=args.quick)
    )
    for worker in {id(worker): worker for worker in workers.values()}.values():
        worker.call("data", name, args.quick)
    found = []
    for seed in range(args.seeds):
        start = common.distinct_rows(training, args.clusters, seed)
        for method, worker in workers.items():
            if method not in MAIN and seed >= args.variant_seeds:
                continue
            points, centers, reason = worker.call("run", method, start, seed, args.seconds)
            steps, seconds, rows, batch = (np.array(column) for column in zip(*points, strict=True))
            energy = np.array([energy_of(validation, each) for each in centers])
            last = energy_of(training, centers[-1])
            found.append(Run(method, seed, steps, seconds, rows, batch, energy, last, reason))
            print(
                f"{name}, seed {seed}: {method}: {seconds[-1]:.2f} s, {steps[-1]} steps, "
                f"E_V {energy[-1]:.6g} ({reason})",
                file=sys.stderr,
                flush=True,
            )
    return found


def of(runs: Iterable[Run], method: str) -> dict[int, Run]:
    """Return the runs of a method by seed."""
    return {run.seed: run for run in runs if run.method == method}


def lowest_of_seeds(runs: list[Run]) -> dict[int, float]:
    """Return E*(seed), the lowest final energy per seed."""
    return {seed: min(float(r.energy[-1]) for r in runs if r.seed == seed) for seed in {r.seed for r in runs}}


def mean_excess(runs: dict[int, Run], lowest: float, at: np.ndarray) -> np.ndarray:
    """Return the mean over the seeds of (E_V - E*) / E* at some times; NaN before all seeds have a model."""
    curves = []
    for run in runs.values():
        index = np.searchsorted(run.seconds, at, side="right") - 1
        curves.append(np.where(index >= 0, run.energy[np.maximum(index, 0)] / lowest - 1.0, np.nan))
    return np.mean(curves, axis=0)


def grid(runs: Iterable[Run]) -> np.ndarray:
    """Return the times at which curves are drawn."""
    every = np.concatenate([run.seconds for run in runs])
    return np.geomspace(max(every.min(), 1e-4), every.max(), 400)


def ratios(ours: dict[int, Run], theirs: dict[int, Run], near: dict[int, float]) -> tuple[list[float], int]:
    """Return their seconds to an energy divided by ours per seed, and how many are lower bounds.

    A run that never gets there counts with all of its seconds. If ours does not get there either, the seed is
    skipped. If only ours does not, the ratio is 0.
    """
    found, bounds = [], 0
    for seed in sorted(ours.keys() & theirs.keys()):
        a, b = ours[seed].seconds_to(near[seed]), theirs[seed].seconds_to(near[seed])
        if np.isinf(a):
            if np.isfinite(b):
                found.append(0.0)
            continue
        if np.isinf(b):
            bounds += 1
            b = float(theirs[seed].seconds[-1])
        found.append(b / a)
    return found, bounds


def same_energy(ours: dict[int, Run], theirs: dict[int, Run]) -> list[float]:
    """Return their seconds divided by ours to a common energy: 1% above the higher final energy."""
    found = []
    for seed in sorted(ours.keys() & theirs.keys()):
        level = 1.01 * float(max(ours[seed].energy[-1], theirs[seed].energy[-1]))
        found.append(theirs[seed].seconds_to(level) / ours[seed].seconds_to(level))
    return found


def summary(name: str, runs: list[Run]) -> list[dict[str, Any]]:
    """Summarize a set with one line per method."""
    lowest = lowest_of_seeds(runs)
    near = {seed: 1.01 * energy for seed, energy in lowest.items()}
    best = min(lowest.values())
    at = grid(runs)
    ours = of(runs, "nested")
    table = []
    for method in dict.fromkeys(run.method for run in runs):
        mine = of(runs, method)
        reached = [run.seconds_to(near[seed]) for seed, run in mine.items()]
        last = np.array([run.energy[-1] for run in mine.values()])
        training = np.array([run.training for run in mine.values()])
        spread = float(last.std(ddof=1)) if len(last) > 1 else 0.0
        row: dict[str, Any] = {"data": name, "method": method, "seeds": len(mine)}
        row |= {"E_V": float(last.mean()), "E_V std": spread, "E training": float(training.mean())}
        row["E training std"] = float(training.std(ddof=1)) if len(last) > 1 else 0.0
        row |= {"best": float(last.min() / best - 1.0), "never": int(np.isinf(reached).sum())}
        row["s to 1%"] = common.median(reached) if np.isfinite(common.median(reached)) else None
        pairs, bounds = ratios(ours, mine, near)
        if pairs:
            row |= {"ratio": common.median(pairs), "ratio low": min(pairs), "ratio high": max(pairs)}
            row["at least"] = bounds
        if same := same_energy(ours, mine):
            row["ratio same"] = common.median(same)
        excess = mean_excess(mine, best, at)
        for percent in (5, 2, 1):
            low = np.flatnonzero(excess <= percent / 100)
            row[f"mean to {percent}%"] = float(at[low[0]]) if low.size else None
        row["s"] = common.median(run.seconds[-1] for run in mine.values())
        row["steps"] = common.median(run.steps[-1] for run in mine.values())
        row["ended"] = ", ".join(sorted({run.reason for run in mine.values()}))
        table.append(row)
    return table


# ---------------------------------------------------------------- claims


def verdict(holds: bool, text: str) -> str:
    """Format whether a claim holds."""
    return f"{'holds' if holds else 'does not hold'}: {text}"


def claims(name: str, runs: list[Run]) -> list[str]:
    """Compare the results with the claims of the paper and with the targets of shoal."""
    lowest = lowest_of_seeds(runs)
    ours = of(runs, "nested")
    lines = []

    def earlier(than: str, within: float, wanted: float, who: str) -> None:
        theirs = of(runs, than)
        pairs, bounds = ratios(ours, theirs, {seed: within * energy for seed, energy in lowest.items()})
        if pairs:
            ratio = common.median(pairs)
            more = f", in {bounds} of {len(pairs)} seeds a bound from below" if bounds else ""
            text = f"{name}: nested is {ratio:.1f} x as early within {within - 1:.0%} of E*(seed) as {than}"
            lines.append(verdict(ratio >= wanted, f"{text} (wanted: {wanted:g}, {who}){more}"))

    if ours:
        earlier("sklearn", 1.01, 10.0, "target")
        if same := same_energy(ours, of(runs, "bounded")):
            ratio = common.median(same)
            text = (
                f"{name}: nested is {ratio:.1f} x as early as bounded at the same energy (wanted: 3, target)"
            )
            lines.append(verdict(ratio >= 3.0, text))
        earlier("minibatch", 1.02, 10.0, "paper, dense sets")
        earlier("minibatch", 1.01, 10.0, "paper, dense sets")
    exact = of(runs, "lloyd")
    if ours and len(exact) > 1:
        for what, values in (
            ("E_V", {s: (float(ours[s].energy[-1]), float(exact[s].energy[-1])) for s in ours}),
            ("training", {s: (ours[s].training, exact[s].training) for s in ours}),
        ):
            pairs = np.array(list(values.values()))
            apart, spread = float(np.diff(pairs.mean(axis=0))[0]), float(pairs[:, 1].std(ddof=1))
            text = f"{name}: final energy ({what}): lloyd - nested = {apart:.4g}, std of lloyd {spread:.4g}"
            lines.append(verdict(abs(apart) <= spread, text))
    for rho in RHOS:
        on, off = of(runs, label(rho)), of(runs, label(rho, bounds=False))
        seeds = sorted(on.keys() & off.keys())
        if seeds:
            same = all(agree(on[seed], off[seed]) for seed in seeds)
            lines.append(verdict(same, f"{name}: rho={rho:g}: the same energies with bounds and without"))
    for bounds, wanted in ((True, (10.0, 100.0, 1000.0)), (False, (10.0,))):
        to: dict[float, float] = {}
        for rho in RHOS:
            every = of(runs, label(rho, bounds=bounds))
            reached = [
                run.seconds_to(1.01 * lowest[seed]) for seed, run in every.items() if seed in shared(runs)
            ]
            if reached:
                to[rho] = common.median(reached)
        if len(to) == len(RHOS):
            first = min(to, key=lambda rho: to[rho])
            shown = ", ".join(f"{rho:g}: {seconds:.2f} s" for rho, seconds in to.items())
            kind = "with bounds" if bounds else "without"
            said = " or ".join(f"{rho:g}" for rho in wanted)
            text = f"{name}: {kind}, rho={first:g} is first within 1% (paper: {said}); {shown}"
            lines.append(verdict(first in wanted, text))
    return lines


def shared(runs: list[Run]) -> set[int]:
    """Return the seeds that every method ran with."""
    methods = {run.method for run in runs}
    return set.intersection(*(set(of(runs, method)) for method in methods))


def agree(a: Run, b: Run) -> bool:
    """Whether two runs have identical models at all steps that both saved."""
    _, left, right = np.intersect1d(a.steps, b.steps, return_indices=True)
    return bool(np.array_equal(a.energy[left], b.energy[right]))


# ---------------------------------------------------------------- files


def curve_rows(name: str, runs: list[Run]) -> list[dict[str, Any]]:
    """Return whole curves as rows of a table."""
    return [
        {
            "data": name,
            "method": run.method,
            "seed": run.seed,
            "step": int(step),
            "s": f"{seconds:.4f}",
            "rows": int(rows),
            "batch": int(batch),
            "E_V": f"{energy:.8g}",
        }
        for run in runs
        for step, seconds, rows, batch, energy in zip(
            run.steps, run.seconds, run.rows, run.batch, run.energy, strict=True
        )
    ]


def picture(path: Path, name: str, runs: list[Run]) -> None:
    """Draw all methods on the left, and rho with and without bounds on the right."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    best = min(lowest_of_seeds(runs).values())
    figure = Figure(figsize=(13, 5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True, sharex=True)

    def draw(axes: Any, method: str, **style: Any) -> None:
        mine = of(runs, method)
        if mine:
            at = grid(mine.values())
            axes.plot(at, mean_excess(mine, best, at), label=f"{method} ({len(mine)} seeds)", **style)

    for method in MAIN:
        draw(left, method, linewidth=1.6)
    for number, rho in enumerate(RHOS):
        draw(right, label(rho), color=f"C{number}", linewidth=1.6)
        draw(right, label(rho, bounds=False), color=f"C{number}", linewidth=1.2, linestyle="--")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("seconds, one thread")
        axes.grid(alpha=0.3, which="both")
        if axes.lines:
            axes.legend(fontsize="small")
    left.set_ylabel("(E_V - E*) / E*, mean of the seeds")
    figure.suptitle(f"{name}, k-means with batches of {BATCH} rows")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"drawn as {path}")


COLUMNS = {
    "data": "",
    "method": "",
    "seeds": "d",
    "E_V": ".6g",
    "E_V std": ".2g",
    "E training": ".6g",
    "best": ".2%",
    "never": "d",
    "s to 1%": ".3f",
    "ratio": ".2f",
    "ratio low": ".2f",
    "ratio high": ".2f",
    "at least": "d",
    "ratio same": ".2f",
    "mean to 5%": ".3f",
    "mean to 2%": ".3f",
    "mean to 1%": ".3f",
    "s": ".2f",
    "steps": ".0f",
    "ended": "",
}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", nargs="+", default=list(datasets.SETS), choices=list(datasets.SETS))
    every = [*MAIN, *(method for method in SHOAL if method not in MAIN)]
    parser.add_argument(
        "--methods", nargs="+", default=every, choices=every, metavar="METHOD", help=", ".join(every)
    )
    parser.add_argument("--clusters", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=20, help="starts (default 20)")
    parser.add_argument(
        "--variant-seeds", type=int, default=5, help="starts of the other rho and of no bounds (default 5)"
    )
    parser.add_argument("--seconds", type=float, default=40.0, help="most time of a run (default 40)")
    parser.add_argument("--curves", help="where to keep the curves (default: likewise)")
    parser.add_argument("--plots", help="folder of the figures (default: likewise)")
    common.add_options(
        parser, quick="a tenth of the rows, 2 seeds, 2 s, no result file", worker=["shoal", "sklearn"]
    )
    args = parser.parse_args()
    if args.worker:
        # Warnings of empty clusters, because some rows are equal.
        warnings.simplefilter("ignore")
        common.serve(Handler(args.worker))
        return
    if args.seeds < 1 or args.clusters < 1 or args.seconds <= 0:
        parser.error("at least 1 seed, 1 cluster, and some seconds")
    if args.quick:
        args.seeds, args.variant_seeds, args.seconds = min(args.seeds, 2), 1, min(args.seconds, 2.0)
    head = common.description(["numpy", "shoal", "scikit-learn"])
    processes = {library: common.Worker(__file__, library, threads=1) for library in ("shoal", "sklearn")}
    table, curves = [], []
    with common.closing(processes.values()):
        known = {method: worker for worker in processes.values() for method in worker.call("ready")}
        workers = {method: known[method] for method in every if method in args.methods and method in known}
        missing = [method for method in args.methods if method not in known]
        if missing:
            head["missing"] = ", ".join(missing)
        common.announce(head)
        for name in args.data:
            runs = measure(name, workers, args)
            part = summary(name, runs)
            print("\n" + common.table(part, COLUMNS))
            lines = claims(name, runs)
            print("\n".join(lines), flush=True)
            head |= {f"{name}, {number}": line for number, line in enumerate(lines, 1)}
            table += part
            curves += curve_rows(name, runs)
            if args.plots or not args.quick:
                picture(common.results(f"nmbatch-{name}", "png", folder=args.plots), name, runs)
    common.keep("nmbatch", head, table, args.csv, args.quick)
    common.keep("nmbatch-curves", head, curves, args.curves, args.quick)


if __name__ == "__main__":
    main()
