"""Stochastic backward Euler: the experiments of Yin, Pham, Oberman & Osher, "Stochastic backward Euler: an
implicit gradient descent algorithm for k-means clustering", 2018, and further ones.

The objective is that of the paper, phi = inertia / (2 rows). For every seed all methods start from the same
distinct random rows. ``iris`` and ``gaussians`` are the small examples of the paper. ``digits`` is 8 images
of MNIST with Gaussian noise such that phi at the 8 images is 15.68. ``mnist`` is the first 60,000 digits with
pixels from 0 to 1. ``steps`` compares step sizes, caps and decays on starts that no other part uses, to check
the choice of the other parts. ``equal`` gives stochastic backward Euler the time of 10 starts of exact
k-means with k-means++. ``unbalanced`` tries a step size per center, in NumPy: every center is pulled by the
same share.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import _common as common
import datasets
import shoal

#: Standard deviation of the noise: 784 * 0.2 ** 2 / 2 = 15.68.
NOISE = 0.2
ROWS = 60_000
#: Data, clusters, rows per batch, outer steps, inner iterations.
SETTINGS = (
    ("digits", 8, 1000, 150, 10),
    ("digits", 6, 500, 100, 5),
    ("digits", 8, 500, 100, 5),
    ("digits", 10, 500, 100, 5),
    ("mnist", 10, 1000, 150, 10),
    ("mnist", 8, 500, 100, 5),
    ("mnist", 10, 500, 100, 5),
    ("mnist", 12, 500, 100, 5),
)
#: First step size relative to the number of clusters, the cap of the pull on a center, and the total decay of
#: the step size (None: 1.01 per outer step). PLAIN is the schedule of the paper. CAPPED is the default of the
#: estimator: for a long time it pulls the centers of small clusters as hard as those of large ones, and it
#: leaves almost no batch noise at the end. ``steps`` shows which schedule is best.
Schedule = tuple[float, float | None, float | None]
PLAIN: Schedule = (1.0, None, None)
CAPPED: Schedule = (3.0, 1.8, 20.0)
SCHEDULES: tuple[Schedule, ...] = (
    (0.7, None, None),
    PLAIN,
    (1.3, None, None),
    (1.5, None, 8.0),
    (2.0, None, None),
    (2.0, 1.5, 8.0),
    (3.0, 1.8, 8.0),
    CAPPED,
    (3.0, 1.2, 20.0),
    (3.0, 1.5, 20.0),
    (5.0, 1.8, 40.0),
)
METHODS = ("lloyd", "minibatch", "sbe", "sbe, capped")
#: The first seed of ``steps``; all other parts use lower seeds.
OTHER_SEEDS = 10_000
#: Minimum, maximum and mean phi of 100 starts in the paper; "lloyd" is its EM with 50 iterations.
PAPER = {
    ("digits", 8, 1000, "lloyd"): (15.6800, 27.2828, 20.0203),
    ("digits", 8, 1000, "sbe"): (15.6808, 15.6808, 15.6808),
    ("digits", 6, 500, "minibatch"): (20.44, 23.4721, 21.8393),
    ("digits", 6, 500, "sbe"): (20.2989, 21.2047, 20.4939),
    ("digits", 8, 500, "minibatch"): (15.9193, 18.5820, 16.4009),
    ("digits", 8, 500, "sbe"): (15.6816, 15.6821, 15.6820),
    ("digits", 10, 500, "minibatch"): (15.9148, 18.1848, 16.1727),
    ("digits", 10, 500, "sbe"): (15.6823, 15.6825, 15.6824),
    ("mnist", 10, 1000, "lloyd"): (19.6069, 19.8195, 19.6725),
    ("mnist", 10, 1000, "sbe"): (19.6087, 19.7279, 19.6201),
    ("mnist", 8, 500, "minibatch"): (20.4948, 20.7126, 20.5958),
    ("mnist", 8, 500, "sbe"): (20.2723, 20.4104, 20.3090),
    ("mnist", 10, 500, "minibatch"): (19.9029, 20.2347, 20.0146),
    ("mnist", 10, 500, "sbe"): (19.6103, 19.7293, 19.6354),
    ("mnist", 12, 500, "minibatch"): (19.3978, 19.7147, 19.5136),
    ("mnist", 12, 500, "sbe"): (19.0492, 19.1582, 19.0972),
}


def rows_of(name: str, *, quick: bool) -> np.ndarray:
    """Read the rows of a set as float32."""
    n = ROWS // 10 if quick else ROWS
    X = (common.raw("mnist_70k")[:n] / 255).astype(np.float32)
    if name == "mnist":
        return X
    # The paper does not say which images it used.
    rng = np.random.default_rng(0)
    images = X[rng.choice(len(X), 8, replace=False)]
    which = np.repeat(np.arange(8), -(-n // 8))[:n]
    noise = rng.normal(scale=NOISE, size=(n, X.shape[1])).astype(np.float32)
    return rng.permutation(images[which] + noise)


def phi(X: np.ndarray, centers: np.ndarray) -> float:
    """Half the mean squared distance."""
    return shoal.metrics.inertia(X, centers) / (2 * len(X))


def sbe(k: int, seed: int, batch: int, outer: int, inner: int, **more: Any) -> Any:
    """Create an estimator with the settings of the paper."""
    given = {"batch_size": batch, "max_iter": outer, "n_inner": inner, "compute_labels": False}
    plain = {"step_size": float(k), "step_decay": 1 / 1.01, "step_cap": None, "polish": False}
    return shoal.BackwardEulerKMeans(k, random_state=seed, **given, **plain | more)


def spread(values: list[float]) -> dict[str, Any]:
    """Return minimum, maximum, mean, standard deviation, and standard error of the mean."""
    found = np.array(values)
    deviation = float(found.std(ddof=1)) if len(found) > 1 else 0.0
    error = deviation / np.sqrt(len(found))
    figures = {"min": found.min(), "max": found.max(), "mean": found.mean(), "std": deviation, "error": error}
    return {name: float(value) for name, value in figures.items()}


def given(schedule: Schedule, k: int, outer: int, inner: int) -> dict[str, Any]:
    """Return the parameters of a schedule."""
    length, cap, fall = schedule
    if cap is not None and inner > 5:
        # The part of the pull beyond 1 is multiplied in every inner iteration.
        cap = min(cap, 1.5)
    return {
        "step_size": length * k,
        "step_cap": cap,
        "step_decay": 1 / 1.01 if fall is None else fall ** (-1 / outer),
    }


def verdict(holds: bool, text: str) -> str:
    """Format whether a claim holds."""
    return f"{'holds' if holds else 'does not hold'}: {text}"


# ---------------------------------------------------------------- the small examples


def iris(args: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    """Run random starts on Iris over step sizes and inner iterations."""
    from sklearn.datasets import load_iris

    X = load_iris().data
    table: list[dict[str, Any]] = []

    def row(method: str, make: Callable[[int], Any], **about: Any) -> dict[str, Any]:
        found = [phi(X, make(seed).fit(X).cluster_centers_) for seed in range(args.starts)]
        share = float(np.mean(np.array(found) < 0.27))
        about = {"part": "iris", "K": 3, "method": method, **about, "starts": len(found)}
        return about | {"below 0.27": share} | spread(found)

    table.append(
        row(
            "lloyd",
            lambda seed: shoal.KMeans(3, init="random", n_init=1, random_state=seed, n_jobs=args.threads),
        )
    )
    sizes = (3.0,) if args.quick else (0.9, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
    for inner, outer in ((5, 100), (10, 40)):
        for size in sizes:

            def make(seed: int, size: float = size, inner: int = inner, outer: int = outer) -> Any:
                return sbe(3, seed, 60, outer, inner, step_size=size, n_jobs=args.threads)

            table.append(row("sbe", make, batch=60, outer=outer, inner=inner, step_size=size))
    capped = row(
        "sbe, cap 1.5",
        lambda seed: sbe(3, seed, 60, 100, 5, step_cap=1.5, n_jobs=args.threads),
        batch=60,
        outer=100,
        inner=5,
        step_size=3.0,
        step_cap=1.5,
    )
    table.append(capped)
    ours = next(row for row in table if row.get("step_size") == 3.0 and row.get("inner") == 5)
    share, exact = ours["below 0.27"], table[0]["below 0.27"]
    return table, [
        verdict(
            share >= 0.98, f"iris: {share:.0%} of the starts below 0.27 (wanted: 98%, Lloyd: {exact:.0%})"
        )
    ]


def gaussians(args: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    """Start in the plane from a point where Lloyd's algorithm is stuck."""
    rng = np.random.default_rng(0)
    means = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0], [5.0, 5.0]])
    X = (means[:, None] + 0.5 * rng.normal(size=(4, 1000, 2))).reshape(-1, 2)
    stuck = shoal.KMeans(4, init=[[-0.5, 0], [0.5, 0], [0, 5], [5, 2.5]], n_init=1, tol=0.0).fit(X)
    best = shoal.KMeans(4, init=means, n_init=1, tol=0.0).fit(X)
    low, high = (model.inertia_ / (2 * len(X)) for model in (best, stuck))
    paths, curves = [], []
    for seed in range(args.starts):
        model = sbe(4, seed, 1000, 100, 5, init=stuck.cluster_centers_, n_jobs=args.threads)
        path = [stuck.cluster_centers_]
        path += [model.cluster_centers_.copy() for _ in model.iter_fit(X)]
        paths.append(np.stack(path))
        curves.append([phi(X, centers) for centers in path])
    ends = [curve[-1] for curve in curves]
    left = sum(end < 1.01 * low for end in ends)
    table = [
        {"part": "gaussians", "K": 4, "method": "lloyd", "starts": 1, **spread([high])},
        {
            "part": "gaussians",
            "K": 4,
            "method": "sbe",
            "batch": 1000,
            "outer": 100,
            "inner": 5,
            "starts": args.starts,
            **spread(ends),
        },
    ]
    if args.plots or not args.quick:
        picture(common.results("sbe-gaussians", "png", folder=args.plots), X, paths[0], curves, (low, high))
    text = f"gaussians: {left} of {len(ends)} runs leave Lloyd's stuck point ({high:.4f})"
    text += f" for the optimum ({low:.4f})"
    rises = sum(max(curve) > 1.001 * high for curve in curves)
    return table, [
        verdict(left == len(ends), text),
        verdict(rises > 0, f"gaussians: phi rises on the way, in {rises} runs"),
    ]


def picture(
    path: Path, X: np.ndarray, way: np.ndarray, curves: list[list[float]], ends: tuple[float, float]
) -> None:
    """Draw the paths of the centers from the stuck point, and phi over the outer steps of some runs."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    left.plot(*X.T, ".", color="0.8", markersize=2)
    for j in range(way.shape[1]):
        left.plot(*way[:, j].T, "-", color=f"C{j}", linewidth=1)
        left.plot(*way[0, j], "x", color=f"C{j}", markersize=9, markeredgewidth=2)
        left.plot(*way[-1, j], "o", color=f"C{j}", markersize=7)
    left.set_title("from Lloyd's fixed point (x) to the end (o)")
    left.set_aspect("equal")
    for curve in curves[:20]:
        right.plot(curve, linewidth=0.8, color="C0", alpha=0.6)
    for end, name in zip(ends, ("optimum", "stuck"), strict=True):
        right.axhline(end, color="0.4", linestyle="--", linewidth=1)
        right.annotate(name, (0.99, end), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    right.set_xlabel("outer steps")
    right.set_ylabel("phi")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"drawn as {path}")


# ---------------------------------------------------------------- the large examples


def fitted(
    method: str,
    X: np.ndarray,
    start: np.ndarray,
    seed: int,
    setting: tuple[int, int, int],
    threads: int,
    schedule: Schedule | None = None,
) -> tuple[float, float]:
    """Return objective and seconds of one run; the pass that measures the objective does not count."""
    batch, outer, inner = setting
    k, begun = len(start), time.perf_counter()
    if method.startswith("sbe"):
        more = given(schedule or (CAPPED if method == "sbe, capped" else PLAIN), k, outer, inner)
        model: Any = sbe(k, seed, batch, outer, inner, init=start, n_jobs=threads, **more).fit(X)
    elif method == "lloyd":
        model = shoal.KMeans(k, init=start, n_init=1, max_iter=50, tol=0.0, n_jobs=threads).fit(X)
    else:
        # The same number of batches.
        pure = {"max_no_improvement": None, "reassignment_ratio": 0.0, "compute_labels": False}
        model = shoal.MiniBatchKMeans(
            k, init=start, batch_size=batch, max_iter=1000, random_state=seed, n_jobs=threads, **pure
        )
        for step in model.iter_fit(X):
            if step.iteration == outer * inner:
                break
    seconds = time.perf_counter() - begun
    return phi(X, model.cluster_centers_), seconds


def large(name: str, args: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    """Reproduce the table of the paper for a set."""
    X = rows_of(name, quick=args.quick)
    table, lines = [], []
    exact: dict[int, list[tuple[float, float]]] = {}
    for data, k, batch, outer, inner in SETTINGS:
        if data != name:
            continue
        starts = [common.distinct_rows(X, k, seed) for seed in range(args.starts)]
        means = {}
        for method in args.methods:
            if method == "lloyd" and k in exact:
                runs = exact[k]
            else:
                runs = [
                    fitted(method, X, start, seed, (batch, outer, inner), args.threads)
                    for seed, start in enumerate(starts)
                ]
            if method == "lloyd":
                exact[k] = runs
            found = spread([value for value, _ in runs])
            means[method] = found["mean"]
            row = {"part": name, "K": k, "batch": batch, "outer": outer, "inner": inner, "method": method}
            row |= {"starts": len(runs), **found, "s": common.median(seconds for _, seconds in runs)}
            theirs = PAPER.get((name, k, batch, method.partition(",")[0]))
            if method.startswith("sbe"):
                row |= given(CAPPED if method == "sbe, capped" else PLAIN, k, outer, inner)
            if theirs:
                row |= dict(zip(("paper min", "paper max", "paper mean"), theirs, strict=True))
            if theirs and method.startswith("sbe") and name == "mnist":
                apart = (found["mean"] - theirs[2]) / max(found["error"], 1e-12)
                text = f"{name}, K = {k}, batch {batch}, {method}: mean {found['mean']:.4f} +- "
                text += f"{found['error']:.4f}, {apart:+.1f} standard errors from the paper's {theirs[2]:.4f}"
                worst = f"largest {found['max']:.4f} against {theirs[1]:.4f}"
                lines.append(verdict(abs(apart) <= 2, f"{text}: within two on either side; {worst}"))
                lines.append(verdict(apart <= 2, f"{text}: not above it by more than two"))
            table.append(row)
            print(common.table([row], COLUMNS), file=sys.stderr, flush=True)
        others = {method: mean for method, mean in means.items() if not method.startswith("sbe")}
        shown = ", ".join(f"{method} {mean:.4f}" for method, mean in others.items())
        for method in [m for m in means if m not in others and others]:
            below = all(means[method] < mean for mean in others.values())
            text = f"{name}, K = {k}, batch {batch}, {method}: mean {means[method]:.4f} is below {shown}"
            lines.append(verdict(below, text))
    return table, lines


def steps(args: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    """Find the best schedule on starts that no other part uses."""
    X, k, setting = rows_of("mnist", quick=args.quick), 10, (500, 100, 5)
    seeds = range(OTHER_SEEDS, OTHER_SEEDS + args.trials)
    table = []
    for schedule in SCHEDULES:
        runs = [
            fitted("sbe", X, common.distinct_rows(X, k, seed), seed, setting, args.threads, schedule)
            for seed in seeds
        ]
        batch, outer, inner = setting
        row = {"part": "steps, mnist", "K": k, "batch": batch, "outer": outer, "inner": inner}
        row |= {
            "method": "sbe",
            **given(schedule, k, outer, inner),
            "starts": len(runs),
            **spread([v for v, _ in runs]),
        }
        table.append(row | {"s": common.median(seconds for _, seconds in runs)})
        print(common.table([table[-1]], COLUMNS), file=sys.stderr, flush=True)
    best = min(table, key=lambda row: row["mean"])
    ours = table[SCHEDULES.index(CAPPED)]
    close = ours["mean"] <= best["mean"] + 2 * best["error"]
    text = (
        f"mnist, K = {k}, other starts: the capped schedule, mean {ours['mean']:.4f}, is within two standard"
    )
    text += f" errors of the best of {len(SCHEDULES)}, step {best['step_size']:g}, cap"
    text += f" {best['step_cap']}, decay {best['step_decay']:.4f}, {best['mean']:.4f}"
    return table, [verdict(close, text)]


def equal(args: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    """Compare 10 starts of Lloyd with k-means++ with stochastic backward Euler in the same time."""
    table, lines = [], []
    for name, clusters in (("digits", (8,)), ("mnist", (8, 10, 12))):
        X = rows_of(name, quick=args.quick)
        for k in clusters:
            runs: dict[str, list[tuple[float, float, int]]] = {}
            for trial in range(args.trials):
                begun = time.perf_counter()
                model = shoal.KMeans(
                    k, init="k-means++", n_init=10, random_state=trial, n_jobs=args.threads
                ).fit(X)
                allowed = time.perf_counter() - begun
                runs.setdefault("lloyd, 10 starts", []).append((model.inertia_ / (2 * len(X)), allowed, 10))
                capped = given(CAPPED, k, 100, 5) | {"polish": True}
                for method, more in (
                    ("sbe", {}),
                    ("sbe, capped, polished", capped),
                    ("sbe, capped, k-means++, polished", capped | {"init": "auto"}),
                ):
                    best, n, begun = np.inf, 0, time.perf_counter()
                    # Start another run only if it is expected to fit into the time.
                    while n == 0 or (time.perf_counter() - begun) * (n + 1) / n <= allowed:
                        found = sbe(k, 1000 * trial + n, 500, 100, 5, n_jobs=args.threads, **more).fit(X)
                        best, n = min(best, phi(X, found.cluster_centers_)), n + 1
                    runs.setdefault(method, []).append((best, time.perf_counter() - begun, n))
            for method, found in runs.items():
                row = {"part": f"equal, {name}", "K": k, "method": method, "starts": len(found)}
                row |= spread([value for value, _, _ in found])
                row["s"] = common.median(seconds for _, seconds, _ in found)
                row["restarts"] = common.median(n for _, _, n in found)
                table.append(row)
                print(common.table([row], COLUMNS), file=sys.stderr, flush=True)
            exact = np.array([value for value, _, _ in runs["lloyd, 10 starts"]])
            for method in list(runs)[1:]:
                ours = np.array([value for value, _, _ in runs[method]])
                text = (
                    f"{name}, K = {k}: {method} in the time of 10 starts of Lloyd with k-means++: mean of the"
                )
                text += f" best {ours.mean():.4f} below {exact.mean():.4f}"
                text += f"; lower in {(ours < exact).sum()} of {len(ours)}"
                lines.append(verdict(bool(ours.mean() < exact.mean()), text))
    return table, lines


# ---------------------------------------------------------------- a step size per center


def stochastic(
    X: np.ndarray, start: np.ndarray, seed: int, batch: int, outer: int, inner: int, *, each: bool
) -> np.ndarray:
    """Stochastic backward Euler in NumPy; with `each`, every center is pulled by the same share."""
    rng = np.random.default_rng(seed)
    k, fade, x = len(start), 1.0, start.astype(np.float64)
    for _ in range(outer):
        y, mean = x.copy(), x.copy()
        for _ in range(inner):
            some = X[rng.integers(len(X), size=batch)]
            labels = ((y**2).sum(axis=1) - 2 * some @ y.T).argmin(axis=1)
            counts = np.bincount(labels, minlength=k)
            sums = np.zeros_like(y)
            np.add.at(sums, labels, some)
            pull = fade * ((counts > 0) if each else k * counts / batch)
            means = sums / np.maximum(counts, 1)[:, None]
            y = x - pull[:, None] * (y - means)
            mean = 0.75 * mean + 0.25 * y
        x, fade = mean, fade / 1.01
    return x


def unbalanced(args: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    """Compare both on clusters of very different sizes."""
    table, lines = [], []
    kddcup = next(datasets.scaled_kddcup(50_000 if args.quick else 494_021, 0)).astype(np.float64)
    for name, X, k in (("unbalance", common.raw("gagolews_a/sipu/unbalance"), 8), ("kddcup", kddcup, 23)):
        X = np.ascontiguousarray(X, dtype=np.float64)
        means = {}
        runs: dict[str, list[float]] = {}
        for seed in range(args.trials if name == "kddcup" else args.starts):
            start = common.distinct_rows(X, k, seed)
            exact = shoal.KMeans(k, init=start, n_init=1, tol=0.0, n_jobs=args.threads).fit(X)
            runs.setdefault("lloyd", []).append(phi(X, exact.cluster_centers_))
            for each in (False, True):
                method = "sbe, a step for each" if each else "sbe"
                found = stochastic(X, start, seed, 1000, 150, 5, each=each)
                runs.setdefault(method, []).append(phi(X, found))
                polished = shoal.KMeans(k, init=found, n_init=1, n_jobs=args.threads).fit(X)
                runs.setdefault(f"{method}, polished", []).append(phi(X, polished.cluster_centers_))
            seeded = shoal.KMeans(k, init="k-means++", n_init=1, random_state=seed, n_jobs=args.threads)
            runs.setdefault("lloyd, k-means++", []).append(phi(X, seeded.fit(X).cluster_centers_))
        for method, values in runs.items():
            row = {"part": f"unbalanced, {name}", "K": k, "method": method, "starts": len(values)}
            row |= spread(values)
            row["median"] = common.median(values)
            table.append(row)
            means[method] = row["median"]
        plain, each_one = means["sbe"], means["sbe, a step for each"]
        text = f"{name}: a step size for each center is better: median phi {each_one:.6g} against {plain:.6g}"
        lines.append(verdict(each_one < plain, f"{text} (Lloyd {means['lloyd']:.6g})"))
    return table, lines


COLUMNS = {
    "part": "",
    "K": "d",
    "batch": "d",
    "outer": "d",
    "inner": "d",
    "step_size": "g",
    "step_cap": "g",
    "step_decay": ".4f",
    "method": "",
    "starts": "d",
    "below 0.27": ".0%",
    "min": ".6g",
    "max": ".6g",
    "mean": ".6g",
    "std": ".2g",
    "error": ".2g",
    "median": ".6g",
    "paper min": ".6g",
    "paper max": ".6g",
    "paper mean": ".6g",
    "s": ".2f",
    "restarts": ".0f",
}
PARTS: dict[str, Callable[[argparse.Namespace], tuple[list[dict[str, Any]], list[str]]]] = {
    "iris": iris,
    "gaussians": gaussians,
    "digits": lambda args: large("digits", args),
    "mnist": lambda args: large("mnist", args),
    "steps": steps,
    "equal": equal,
    "unbalanced": unbalanced,
}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--starts", type=int, default=100, help="random starts (default 100)")
    parser.add_argument(
        "--trials",
        type=int,
        default=20,
        help="of `equal` and `steps`, and of `unbalanced` on kddcup (default 20)",
    )
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=METHODS, help="of `digits` and `mnist`"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plots", help="folder of the figure (default: likewise)")
    common.add_options(parser, quick="a tenth of the rows, 3 starts, 1 trial, no result file")
    args = parser.parse_args()
    if args.quick:
        args.starts, args.trials = min(args.starts, 3), 1
    if args.starts < 1 or args.trials < 1:
        parser.error("at least 1 start and 1 trial")
    # Warnings of empty clusters, and of steps that are too long on purpose.
    warnings.simplefilter("ignore")
    common.run_parts("sbe", args, {name: (measure, COLUMNS) for name, measure in PARTS.items()})


if __name__ == "__main__":
    main()
