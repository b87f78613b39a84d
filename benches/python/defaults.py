"""Energies and seconds of three methods with default parameters, compared with exact k-means.

``sbe``: stochastic backward Euler and exact k-means from the same random rows, until both converge: with the
defaults, without the polish, and with the schedule of the paper (first step K, decay 1 / 1.01, no cap, no
polish). Sets on which the schedule was tuned are marked.
``nested``: nested batches started from random rows and from AFK-MC2 on the first batch, and from seeds among
all rows (the default), and mini-batch k-means: the final energy, the processor seconds until the energy is
within 1% of it, and until it is within 1% of the lowest energy of all runs.
``vrkm``: variance-reduced k-means with epochs of one step per row and with doubling epochs, and exact k-means
from the same random rows, for several numbers of clusters.

Seconds are processor time of one thread, unless ``--threads`` says otherwise. Of sets with more rows than in
the tables below, a random sample is used.
"""

from __future__ import annotations

import argparse
import resource
import sys
import warnings
from collections.abc import Callable
from typing import Any

import _common as common
import numpy as np
import shoal

#: Name of a set, clusters, maximum number of rows.
Sized = tuple[str, int, int]
#: Sets on which the schedule of stochastic backward Euler was tuned.
TUNED: tuple[Sized, ...] = (
    ("mnist_70k", 10, 20_000),
    ("usps_11k", 20, 20_000),
    ("letter_20k", 26, 20_000),
    ("shuttle_49k", 10, 30_000),
    ("cover_286k", 20, 30_000),
    ("gagolews_a/sipu/s3", 15, 30_000),
)
OTHERS: tuple[Sized, ...] = (
    ("fsdd_logmel40_spkA", 20, 30_000),
    ("wordvec_ppmi_svd100", 20, 30_000),
    ("aloi_27d_50k", 20, 30_000),
    ("campaign_41k", 10, 30_000),
    ("skin_245k", 10, 30_000),
    ("uk_accidents_lnglat_140k", 20, 30_000),
    ("kddcup99_10pct_494k, scaled", 23, 30_000),
    ("resnet18_cifar_16k", 20, 16_000),
    ("bsds_pixels_rgb", 16, 30_000),
    ("coil20_1440", 20, 30_000),
    ("sift_bsds_trainval", 20, 30_000),
    ("http_567k", 8, 30_000),
)
NESTED: tuple[Sized, ...] = (
    ("kddcup99_10pct_494k, scaled", 50, 200_000),
    ("kddcup99_10pct_494k, logarithms", 50, 200_000),
    ("http_567k", 20, 200_000),
    ("cover_286k", 50, 200_000),
    ("bsds_pixels_rgb", 50, 200_000),
    ("sift_bsds_trainval", 50, 60_000),
    ("sift_bsds_trainval", 500, 30_000),
    ("mnist_70k", 50, 20_000),
)
#: Without the number of clusters, which is one of `CLUSTERS`.
REDUCED: tuple[tuple[str, int], ...] = (
    ("letter_20k", 20_000),
    ("fsdd_logmel40_spkA", 20_000),
    ("sift_bsds_trainval", 10_000),
    ("wordvec_ppmi_svd100", 10_000),
    ("cover_286k", 20_000),
)
CLUSTERS = (20, 50, 100, 256, 1024)
#: A run of `nested` is stopped after this many processor seconds.
MOST_SECONDS = 1.5
#: The first seed of `sbe`. The schedule was tuned on other seeds.
FIRST_SEED = 500

Table = list[dict[str, Any]]


def rows_of(name: str, most: int, *, quick: bool) -> np.ndarray:
    """Read at most a number of rows of a set, in their compute type."""
    stem, _, how = name.partition(", ")
    X = common.raw(stem)
    kind = np.float32 if X.dtype.name in common.NARROW else np.float64
    if how == "scaled":
        spread = X.astype(np.float64).std(axis=0)
        X = (X - X.mean(axis=0, dtype=np.float64)) / np.where(spread > 0, spread, 1.0)
    elif how == "logarithms":
        X = np.log1p(X.astype(np.float64))
    some = np.random.default_rng(0).permutation(len(X))[: most // 10 if quick else most]
    return np.ascontiguousarray(X[some], dtype=kind)


def processor() -> float:
    """Return the processor seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def timed(model: Any, X: np.ndarray) -> tuple[float, float, float]:
    """Return inertia, processor seconds, and the size of the smallest cluster relative to the mean."""
    begun = processor()
    model.fit(X)
    return model.inertia_, processor() - begun, float(model.counts_.min() / model.counts_.mean())


def percent(ours: list[float], theirs: list[float]) -> float:
    """Return by how much the mean of ours is above the mean of theirs."""
    return 100 * (float(np.mean(ours)) / float(np.mean(theirs)) - 1)


def shown(table: Table, columns: dict[str, str]) -> None:
    """Print a table of the results so far."""
    print(common.table(table, columns), file=sys.stderr, flush=True)


# ---------------------------------------------------------------- stochastic backward Euler


def sbe(args: argparse.Namespace) -> tuple[Table, list[str]]:
    """Compare with exact k-means from the same random rows."""
    table: Table = []
    for name, k, most in (*OTHERS, *TUNED):
        X = rows_of(name, most, quick=args.quick)
        runs: dict[str, list[tuple[float, float, float]]] = {}
        paper = {"step_size": float(k), "step_decay": 1 / 1.01, "step_cap": None, "polish": False}
        ways = {"defaults": {}, "no polish": {"polish": False}, "paper": paper}
        for seed in range(FIRST_SEED, FIRST_SEED + args.seeds):
            start = common.distinct_rows(X, k, seed)
            given = {"init": start, "n_jobs": args.threads}
            exact = shoal.KMeans(k, n_init=1, tol=0.0, max_iter=1000, **given)
            runs.setdefault("lloyd", []).append(timed(exact, X))
            for way, more in ways.items():
                model = shoal.BackwardEulerKMeans(k, random_state=seed, **given, **more)
                runs.setdefault(way, []).append(timed(model, X))
        theirs = [value for value, _, _ in runs["lloyd"]]
        tuned = any(name == other for other, _, _ in TUNED)
        row: dict[str, Any] = {"part": "sbe", "set": name, "rows": len(X), "columns": X.shape[1], "K": k}
        row |= {"chosen on": "yes" if tuned else "", "starts": args.seeds, "lloyd": float(np.mean(theirs))}
        for way in ways:
            ours = [value for value, _, _ in runs[way]]
            row[f"{way}, %"] = percent(ours, theirs)
            row[f"{way}, lower"] = int(sum(a <= b for a, b in zip(ours, theirs, strict=True)))
        for way, found in runs.items():
            row[f"{way}, s"] = common.median(seconds for _, seconds, _ in found)
        row["smallest, paper"] = min(share for _, _, share in runs["paper"])
        row["smallest"] = min(share for _, _, share in runs["defaults"])
        table.append(row)
        shown([row], SBE_COLUMNS)
    lines = []
    for way in ("defaults", "no polish", "paper"):
        for tuned in ("", "yes"):
            those = [row for row in table if row["chosen on"] == tuned]
            good = [row for row in those if row[f"{way}, %"] <= 0]
            above = ", ".join(f"{r['set']} {r[f'{way}, %']:+.2f}%" for r in those if r not in good)
            text = f"sbe, {way}: mean inertia at or below exact k-means from the same starts on {len(good)} "
            text += f"of {len(those)} sets that the schedule was {'' if tuned else 'not '}chosen on"
            lines.append(f"{text}; above it: {above or 'none'}")
    return table, lines


SBE_COLUMNS = {
    "set": "",
    "rows": "d",
    "columns": "d",
    "K": "d",
    "chosen on": "",
    "starts": "d",
    "lloyd": ".6g",
    "defaults, %": "+.2f",
    "defaults, lower": "d",
    "no polish, %": "+.2f",
    "no polish, lower": "d",
    "paper, %": "+.2f",
    "paper, lower": "d",
    "lloyd, s": ".2f",
    "defaults, s": ".2f",
    "no polish, s": ".2f",
    "paper, s": ".2f",
    "smallest": ".3f",
    "smallest, paper": ".3f",
}


# ---------------------------------------------------------------- nested batches


def curve_of(model: Any, X: np.ndarray, held: np.ndarray) -> list[tuple[float, float]]:
    """Return processor seconds and energy after each step; measuring the energy does not count."""
    steps, curve, spent, due = model.iter_fit(X), [], 0.0, 0.0
    step: Any = True
    while step is not None:
        begun = processor()
        step = next(steps, None) if spent < MOST_SECONDS else None
        spent += processor() - begun
        # After every further 5% of the seconds, and at the end.
        if step is None or spent >= due:
            curve.append((spent, shoal.metrics.inertia(held, model.cluster_centers_)))
            due = 1.05 * spent
    return curve


def until(curve: list[tuple[float, float]], energy: float) -> float:
    """Return the seconds until an energy is reached; infinite if it never is."""
    return next((seconds for seconds, value in curve if value <= energy), np.inf)


def nested(args: argparse.Namespace) -> tuple[Table, list[str]]:
    """Compare seedings of nested batches, and mini-batches."""
    table: Table = []
    factors = {}
    for name, k, most in NESTED:
        X = rows_of(name, most, quick=args.quick)
        held = X[:5000]
        curves: dict[str, list[list[tuple[float, float]]]] = {}
        for seed in range(args.seeds):
            given = {"random_state": seed, "n_jobs": args.threads, "compute_labels": False}
            for init in ("random", "auto", "afk-mc2"):
                model: Any = shoal.NestedMiniBatchKMeans(k, init=init, **given)
                curves.setdefault(f"nested, {init}", []).append(curve_of(model, X, held))
            model = shoal.MiniBatchKMeans(k, max_no_improvement=None, **given)
            curves.setdefault("minibatch", []).append(curve_of(model, X, held))
        ends = {method: [curve[-1][1] for curve in runs] for method, runs in curves.items()}
        lowest = min(min(values) for values in ends.values())
        for method, runs in curves.items():
            own = [until(curve, 1.01 * curve[-1][1]) for curve in runs]
            to_best = [until(curve, 1.01 * lowest) for curve in runs]
            row: dict[str, Any] = {"part": "nested", "set": name, "rows": len(X), "columns": X.shape[1]}
            row |= {"K": k, "method": method, "seeds": len(runs)}
            row["end, %"] = 100 * (float(np.mean(ends[method])) / lowest - 1)
            row["worst end, %"] = 100 * (max(ends[method]) / lowest - 1)
            row["own 1%, s"] = common.median(own)
            row["reached"] = int(np.isfinite(to_best).sum())
            row["best 1%, s"] = float(np.median(to_best))
            table.append(row)
        shown(table[-len(curves) :], NESTED_COLUMNS)
        random, auto, small = (curves[method] for method in ("nested, random", "nested, auto", "minibatch"))
        # Down to the higher of the two final means, plus 1%.
        goal = 1.01 * max(np.mean(ends["nested, random"]), np.mean(ends["nested, auto"]))
        seconds = [np.median([until(curve, goal) for curve in runs]) for runs in (random, auto, small)]
        factors[f"{name}, K = {k}"] = seconds
    lines = []
    for name, (random, auto, small) in factors.items():
        text = f"nested, {name}: seconds to 1% above the worse end: auto {auto:.3f}, random {random:.3f}"
        lines.append(f"{text}, mini-batch {small:.3f}")
    return table, lines


NESTED_COLUMNS = {
    "set": "",
    "rows": "d",
    "columns": "d",
    "K": "d",
    "method": "",
    "seeds": "d",
    "end, %": "+.2f",
    "worst end, %": "+.2f",
    "own 1%, s": ".3f",
    "reached": "d",
    "best 1%, s": ".3f",
}


# ---------------------------------------------------------------- variance reduction


def vrkm(args: argparse.Namespace) -> tuple[Table, list[str]]:
    """Compare with exact k-means for several numbers of clusters."""
    table: Table = []
    seeds = range(1 if args.quick else args.seeds + 3)
    for name, most in REDUCED:
        X = rows_of(name, most, quick=args.quick)
        for k in CLUSTERS:
            if 5 * k > len(X):
                continue
            runs: dict[str, list[tuple[float, float, float]]] = {}
            for seed in seeds:
                given = {"init": common.distinct_rows(X, k, seed), "n_jobs": args.threads}
                exact = shoal.KMeans(k, n_init=1, tol=0.0, max_iter=1000, **given)
                runs.setdefault("lloyd", []).append(timed(exact, X))
                for size in (1.0, "doubling"):
                    model = shoal.VarianceReducedKMeans(k, epoch_size=size, random_state=seed, **given)
                    runs.setdefault(str(size), []).append(timed(model, X))
            theirs = [value for value, _, _ in runs["lloyd"]]
            row: dict[str, Any] = {"part": "vrkm", "set": name, "rows": len(X), "columns": X.shape[1]}
            row |= {"K": k, "starts": len(seeds), "lloyd": float(np.mean(theirs))}
            for way in ("1.0", "doubling"):
                ours = [value for value, _, _ in runs[way]]
                row[f"{way}, %"] = percent(ours, theirs)
                row[f"{way}, lower"] = int(sum(a <= b for a, b in zip(ours, theirs, strict=True)))
            for way, found in runs.items():
                row[f"{way}, s"] = common.median(seconds for _, seconds, _ in found)
            table.append(row)
            shown([row], VRKM_COLUMNS)
    lines = []
    for k in CLUSTERS:
        those = [row for row in table if row["K"] == k]
        for way in ("1.0", "doubling"):
            apart = ", ".join(f"{row[f'{way}, %']:+.2f}%" for row in those)
            below = sum(row[f"{way}, %"] <= 0 for row in those)
            text = f"vrkm, K = {k}, epochs {way}: mean inertia at or below exact k-means on {below} of "
            lines.append(f"{text}{len(those)} sets: {apart}")
    return table, lines


VRKM_COLUMNS = {
    "set": "",
    "rows": "d",
    "columns": "d",
    "K": "d",
    "starts": "d",
    "lloyd": ".6g",
    "1.0, %": "+.2f",
    "1.0, lower": "d",
    "doubling, %": "+.2f",
    "doubling, lower": "d",
    "lloyd, s": ".2f",
    "1.0, s": ".2f",
    "doubling, s": ".2f",
}

PARTS: dict[str, tuple[Callable[[argparse.Namespace], tuple[Table, list[str]]], dict[str, str]]] = {
    "sbe": (sbe, SBE_COLUMNS),
    "nested": (nested, NESTED_COLUMNS),
    "vrkm": (vrkm, VRKM_COLUMNS),
}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--seeds", type=int, default=5, help="starts (default 5; 3 more of `vrkm`)")
    parser.add_argument("--threads", type=int, default=1)
    common.add_options(parser, quick="a tenth of the rows, 1 start, no result file")
    args = parser.parse_args()
    if args.quick:
        args.seeds = 1
    if args.seeds < 1:
        parser.error("at least 1 start")
    # Warnings of empty and starving clusters.
    warnings.simplefilter("ignore")
    head = common.announced(["numpy", "shoal", "scikit-learn"])
    table: Table = []
    for name in args.parts:
        measure, columns = PARTS[name]
        begun = processor()
        part, lines = measure(args)
        lines.append(f"{name}: {processor() - begun:.0f} processor seconds in all")
        print("\n" + common.table(part, columns))
        print("\n".join(lines), flush=True)
        head |= {f"{name}, {number}": line for number, line in enumerate(lines, 1)}
        table += part
    common.keep("defaults", head, table, args.csv, args.quick)


if __name__ == "__main__":
    main()
