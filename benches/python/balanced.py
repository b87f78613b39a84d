"""Seconds, gap and inertia of balanced k-means.

``large``: descriptors with many clusters and an upper limit, compared with the fit without limits.
``equal``: clusters of equal size, compared with k-means-constrained where it is installed: its seconds, and
its inertia from the same first centers.
``limits``: sets of 2 to 784 columns with a loose and a tight limit: inertia beside the fit without limits,
and the gap.
``identical``: clusters of equal size where half of the rows are identical.
``weighted``: rows of different weights: the gap, and by how much limits are missed.

Fits alternate. The median of the rounds counts, with its extremes. Of sets with more rows than in the tables
below, a random sample is used.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import _common as common
import numpy as np
import shoal

#: Set, clusters, maximum number of rows, limits.
LIMITS: tuple[tuple[str, int, int, dict[str, float]], ...] = tuple(
    (name, k, most, limits)
    for name, k, most in (
        ("uk_accidents_lnglat_140k", 100, 100_000),
        ("cover_286k", 50, 100_000),
        ("letter_20k", 26, 20_000),
        ("aloi_27d_50k", 100, 49_534),
        ("sift_bsds_trainval", 100, 20_000),
        ("mnist_70k", 20, 20_000),
        ("skin_245k", 64, 100_000),
        ("bsds_pixels_rgb", 64, 100_000),
    )
    for limits in ({"size_max": 1.25}, {"size_min": 1.0, "size_max": 1.0})
)

Table = list[dict[str, Any]]


def rows_of(name: str, most: int, *, quick: bool) -> np.ndarray:
    """Read at most a number of rows of a set, as float32."""
    X = common.raw(name)
    some = np.random.default_rng(0).permutation(len(X))[: most // 10 if quick else most]
    return np.ascontiguousarray(X[np.sort(some)], dtype=np.float32)


def timed(args: argparse.Namespace, fits: dict[str, Callable[[], Any]]) -> dict[str, tuple[Any, list[float]]]:
    """Run fits in turn, and return the last model and the seconds of all rounds of each."""
    clock = time.process_time if args.clock == "processor" else time.perf_counter
    found: dict[str, tuple[Any, list[float]]] = {}
    for _ in range(args.rounds):
        for name, fit in fits.items():
            begun = clock()
            model = fit()
            found[name] = (model, [*found.get(name, (None, []))[1], clock() - begun])
    return found


def figures(model: Any) -> dict[str, Any]:
    """Return what a fit reports, and the sizes of its clusters in units of the mean."""
    sizes = model.sizes_ / model.sizes_.mean()
    return {
        "gap, %": 100 * model.gap_,
        "least size": sizes.min(),
        "largest size": sizes.max(),
        "sweeps": model.n_iter_,
        "inertia": model.inertia_,
    }


def ratios(name: str, ours: list[float], theirs: list[float]) -> dict[str, float]:
    """Return the median and the extremes of the ratios of all rounds."""
    found = [a / b for a, b in zip(ours, theirs, strict=True)]
    return {name: common.median(found), f"{name}, low": min(found), f"{name}, high": max(found)}


def measured(X: np.ndarray, k: int, limits: dict[str, float], args: argparse.Namespace) -> dict[str, Any]:
    """Fit with and without limits."""
    given = {"random_state": 0, "n_jobs": args.threads}
    found = timed(
        args,
        {
            "free": lambda: shoal.KMeans(k, **given).fit(X),
            "limited": lambda: shoal.BalancedKMeans(k, **limits, **given).fit(X),
        },
    )
    (free, seconds), (model, took) = found["free"], found["limited"]
    row: dict[str, Any] = {"rows": len(X), "columns": X.shape[1], "K": k}
    row |= {"limits": " ".join(f"{name}={value}" for name, value in limits.items())}
    row |= figures(model)
    row |= {
        "above free, %": 100 * (model.inertia_ / free.inertia_ - 1),
        "s": common.median(took),
        "free, s": common.median(seconds),
    }
    return row | ratios("times", took, seconds) | {"free sweeps": free.n_iter_, "rounds": args.rounds}


def shown(row: dict[str, Any]) -> None:
    """Print a row of the results."""
    print(common.table([row], {name: form for name, form in COLUMNS.items() if name in row}), file=sys.stderr)


def told(row: dict[str, Any]) -> str:
    """Describe a row in one line."""
    text = f"{row['set']}, {row['rows']} x {row['columns']}, K = {row['K']}, {row['limits']}: "
    text += f"gap {row['gap, %']:.4f}%"
    if "times" in row:
        text += f", {row['times']:.2f} times the {row['free, s']:.2f} s without limits"
        text += f", inertia {row['above free, %']:+.2f}%"
    else:
        text += f", {row['s']:.3f} s"
    return text


def large(args: argparse.Namespace) -> Table:
    """Many clusters with an upper limit."""
    X = rows_of("sift_bsds_trainval", 200_000, quick=args.quick)
    row = {"part": "large", "set": "sift_bsds_trainval"}
    row |= measured(X, 102 if args.quick else 1024, {"size_max": 1.1}, args)
    shown(row)
    return [row]


def equal(args: argparse.Namespace) -> Table:
    """Clusters of equal size, compared with k-means-constrained."""
    table: Table = []
    try:
        from k_means_constrained import KMeansConstrained
    except ImportError:
        KMeansConstrained = None
    for n in (1_000, 2_300, 5_000, 23_000):
        if args.quick and n > 1_000:
            break
        X = rows_of("mnist_70k", 70_000, quick=False)[:n]
        # The first 50 principal components.
        X = np.ascontiguousarray(
            (X - X.mean(axis=0)) @ np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:50].T
        )
        least, most = n // 10, -(-n // 10)
        first = X[np.random.default_rng(0).choice(n, 10, replace=False)]
        ours = lambda X=X, a=least, b=most, first=first: shoal.BalancedKMeans(  # noqa: E731
            10, size_min=a, size_max=b, init=first, random_state=0, n_jobs=args.threads
        ).fit(X)
        fits = {"ours": ours}
        if KMeansConstrained is not None and n <= args.peer_rows:
            peer = KMeansConstrained(10, size_min=least, size_max=most, init=first, n_init=1, random_state=0)
            fits["peer"] = lambda peer=peer, X=X: peer.fit(X)
        found = timed(args, fits)
        model, took = found["ours"]
        row = {"part": "equal", "set": "mnist_70k, 50 components", "rows": n, "columns": 50, "K": 10}
        row |= {"limits": f"size_min={least} size_max={most}", **figures(model), "s": common.median(took)}
        if "peer" in found:
            peer, spent = found["peer"]
            inertia = float(((X - peer.cluster_centers_[peer.labels_]) ** 2).sum())
            row |= {"peer, s": common.median(spent), "to peer, %": 100 * (model.inertia_ / inertia - 1)}
            row |= ratios("faster", spent, took) | {"rounds": args.rounds}
        shown(row)
        table.append(row)
    return table


def several(args: argparse.Namespace) -> Table:
    """Sets with a loose and a tight limit."""
    table: Table = []
    for name, k, most, limits in LIMITS:
        row = {"part": "limits", "set": name}
        row |= measured(rows_of(name, most, quick=args.quick), k, limits, args)
        shown(row)
        table.append(row)
    return table


def identical(args: argparse.Namespace) -> Table:
    """Half of the rows are identical."""
    table: Table = []
    for k in (10, 100, 1000):
        X = rows_of("sift_bsds_trainval", 20_000, quick=args.quick)
        X[np.random.default_rng(0).permutation(len(X))[: len(X) // 2]] = X[0]
        row = {"part": "identical", "set": "sift_bsds_trainval"}
        row |= measured(X, k, {"size_min": 1.0, "size_max": 1.0}, args)
        shown(row)
        table.append(row)
    return table


def weighted(args: argparse.Namespace) -> Table:
    """Rows of different weights."""
    table: Table = []
    for name, k, most, limits in LIMITS:
        X = rows_of(name, most, quick=args.quick)
        weights = np.random.default_rng(0).exponential(size=len(X))
        fit = lambda X=X, k=k, limits=limits, w=weights: shoal.BalancedKMeans(  # noqa: E731
            k, **limits, random_state=0, n_jobs=args.threads
        ).fit(X, sample_weight=w)
        model, took = timed(args, {"fit": fit})["fit"]
        row = {"part": "weighted", "set": name, "rows": len(X), "columns": X.shape[1], "K": k}
        row |= {"limits": " ".join(f"{name}={value}" for name, value in limits.items())}
        row |= figures(model) | {
            "s": common.median(took),
            "largest weight": weights.max() / model.sizes_.mean(),
        }
        shown(row)
        table.append(row)
    return table


COLUMNS = {
    "set": "",
    "rows": "d",
    "columns": "d",
    "K": "d",
    "limits": "",
    "gap, %": ".4f",
    "above free, %": "+.2f",
    "least size": ".3f",
    "largest size": ".3f",
    "largest weight": ".3f",
    "sweeps": "d",
    "free sweeps": "d",
    "s": ".3f",
    "free, s": ".3f",
    "times": ".2f",
    "peer, s": ".2f",
    "to peer, %": "+.3f",
    "faster": ".0f",
}

PARTS: dict[str, Callable[[argparse.Namespace], Table]] = {
    "large": large,
    "equal": equal,
    "limits": several,
    "identical": identical,
    "weighted": weighted,
}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--rounds", type=int, default=3, help="fits of each kind (default 3)")
    parser.add_argument("--clock", choices=["wall", "processor"], default="wall")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--peer-rows", type=int, default=5_000, help="most rows for k-means-constrained (default 5000)"
    )
    common.add_options(parser, quick="a tenth of the rows, 1 fit, no result file")
    args = parser.parse_args()
    if args.quick:
        args.rounds = 1
    warnings.simplefilter("ignore")
    head = common.announced(["numpy", "shoal", "k-means-constrained"])
    table: Table = []
    for name in args.parts:
        part = PARTS[name](args)
        lines = [told(row) for row in part]
        print("\n".join(lines), flush=True)
        head |= {f"{name}, {number}": line for number, line in enumerate(lines, 1)}
        table += part
    common.keep("balanced", head, table, args.csv, args.quick)


if __name__ == "__main__":
    main()
