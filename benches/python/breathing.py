"""Inertia and seconds of breathing k-means, compared with restarts.

``known``: small sets, 20 seeds each: how far the inertia is above the lowest one known and above the best of
20 starts of scikit-learn, and the seconds beside scikit-learn with ``n_init=10``.
``restarts``: sets of 2 to 3072 columns: breathing k-means, and restarts of exact k-means of shoal that take
at least as long.
``m``: the number of added centers, on the sets on which its default was chosen.

Fits with the same seed alternate. Seconds are processor time of one thread, unless ``--threads`` says
otherwise. Of sets with more rows than in the tables below, a random sample is used.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import warnings
from pathlib import Path
from typing import Any

import _common as common
import numpy as np
import shoal
import sklearn.cluster

#: Set, clusters, and the lowest inertia known.
KNOWN: tuple[tuple[str, int, float | None], ...] = (
    ("gagolews_a/sipu/birch1", 100, 9.27729e13),
    ("gagolews_a/sipu/a3", 50, 2.8937e10),
    ("gagolews_a/sipu/d31", 31, 3393.257),
    ("gagolews_a/sipu/s4", 15, 1.57032e13),
    ("tsplib_a/pcb3038", 10, None),
    ("tsplib_a/pcb3038", 50, None),
    ("tsplib_a/d15112", 10, None),
    ("tsplib_a/d15112", 50, None),
    ("tsplib_a/u1060", 10, None),
    ("tsplib_a/u1060", 50, None),
)
#: Set, clusters, maximum number of rows. None of them was used to choose the defaults, except that `usps_11k`
#: was in a first tuning run.
RESTARTS: tuple[tuple[str, int, int], ...] = (
    ("uk_accidents_lnglat_140k", 100, 140_029),
    ("skin_245k", 50, 60_000),
    ("cover_286k", 50, 30_000),
    ("aloi_27d_50k", 50, 49_534),
    ("fsdd_logmel40_spkA", 64, 30_000),
    ("wordvec_ppmi_svd100", 100, 34_506),
    ("sift_bsds_trainval", 256, 30_000),
    ("usps_11k", 50, 11_000),
    ("resnet18_cifar_16k", 20, 15_789),
    ("mnist_70k", 50, 10_000),
    ("cifar10_test10k_rgb", 10, 10_000),
)
#: The sets on which the default of `m` was chosen. The number of tries, the clusters that are drawn and the
#: test of convergence were chosen on `pcb3038`, `d15112`, `u1060` and `s4`, which are in `KNOWN`.
TUNED: tuple[tuple[str, int, int], ...] = (
    ("gagolews_a/sipu/a1", 20, 10_000),
    ("gagolews_a/sipu/a2", 35, 10_000),
    ("gagolews_a/sipu/s3", 15, 10_000),
    ("gagolews_a/sipu/birch2", 100, 100_000),
    ("tsplib_a/pla85900", 25, 85_900),
    ("letter_20k", 26, 20_000),
    ("letter_20k", 100, 20_000),
    ("coil20_1440", 20, 1_440),
    ("campaign_41k", 30, 20_000),
)
#: Starts of scikit-learn in the comparison of seconds, and in that of the inertia.
FEW_STARTS, STARTS = 10, 20
#: Most restarts of exact k-means.
MOST_RESTARTS = 200

Table = list[dict[str, Any]]


def processor() -> float:
    """Return the processor seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rows_of(name: str, most: int, *, quick: bool) -> np.ndarray:
    """Read at most a number of rows of a set, in their compute type."""
    stem, _, member = name.partition("/")
    if stem == "tsplib_a":
        with np.load(Path(os.environ["SHOAL_DATA"]) / f"{stem}.npz") as archive:
            X = archive[member]
    else:
        X = common.raw(name)
    kind = np.float32 if X.dtype.name in common.NARROW else np.float64
    some = np.random.default_rng(0).permutation(len(X))[: most // 10 if quick else most]
    return np.ascontiguousarray(X[np.sort(some)], dtype=kind)


def timed(model: Any, X: np.ndarray) -> tuple[Any, float]:
    """Fit, and return the model and the processor seconds."""
    begun = processor()
    model.fit(X)
    return model, processor() - begun


def above(found: float, value: float) -> float:
    """Return by how much an inertia is above a value, in percent."""
    return 100 * (found / value - 1)


def shown(table: Table, columns: dict[str, str]) -> None:
    """Print a table of the results so far."""
    print(common.table(table, columns), file=sys.stderr, flush=True)


# ---------------------------------------------------------------- known values


def known(args: argparse.Namespace) -> tuple[Table, list[str]]:
    """Compare with the lowest inertia known, and with scikit-learn."""
    table: Table = []
    for name, k, value in KNOWN:
        X = rows_of(name, 1_000_000, quick=args.quick)
        ours, seconds, theirs, lowest = [], [], [], np.inf
        sweeps, breaths = [], []
        for seed in range(args.seeds):
            model, took = timed(shoal.BreathingKMeans(k, random_state=seed, n_jobs=args.threads), X)
            ours.append(model.inertia_)
            seconds.append(took)
            sweeps.append(model.n_iter_)
            breaths.append(model.n_breaths_)
            # Two fits of ten starts are the best of twenty; the later rounds measure ours alone.
            if seed * FEW_STARTS < STARTS:
                peer = sklearn.cluster.KMeans(k, n_init=FEW_STARTS, random_state=seed)
                peer, took = timed(peer, X)
                theirs.append(took)
                lowest = min(lowest, common.objective(X, peer.cluster_centers_))
        row: dict[str, Any] = {"part": "known", "set": name, "rows": len(X), "columns": X.shape[1], "K": k}
        row |= {"seeds": args.seeds, "mean": float(np.mean(ours)), "worst": max(ours), "scikit-learn": lowest}
        row |= {"mean, %": above(float(np.mean(ours)), lowest), "worst, %": above(max(ours), lowest)}
        if value is not None:
            row |= {"known": value, "worst to known, %": above(max(ours), value)}
            row["within 0.01%"] = int(sum(inertia <= 1.0001 * value for inertia in ours))
        row |= {"s": common.median(seconds), "most s": max(seconds), "scikit-learn, s": common.median(theirs)}
        row |= {"sweeps": common.median(sweeps), "breaths": common.median(breaths)}
        table.append(row)
        shown([row], KNOWN_COLUMNS)
    lines = []
    for row in table:
        text = f"known, {row['set']}, K = {row['K']}: mean {row['mean, %']:+.3f}% to the best of {STARTS} "
        text += f"starts of scikit-learn, in {row['s'] / row['scikit-learn, s']:.2f} of the seconds of "
        text += f"{FEW_STARTS} starts"
        if "known" in row:
            text += f"; {row['within 0.01%']} of {row['seeds']} seeds within 0.01% of the known value"
        lines.append(text)
    return table, lines


KNOWN_COLUMNS = {
    "set": "",
    "K": "d",
    "mean": ".7g",
    "scikit-learn": ".7g",
    "mean, %": "+.3f",
    "worst, %": "+.3f",
    "worst to known, %": "+.4f",
    "within 0.01%": "d",
    "s": ".3f",
    "most s": ".3f",
    "scikit-learn, s": ".3f",
    "sweeps": ".0f",
    "breaths": ".0f",
}

# ---------------------------------------------------------------- restarts


def compared(sets: tuple[tuple[str, int, int], ...], ms: tuple[int, ...], part: str, args: Any) -> Table:
    """Compare each `m` with restarts of exact k-means that take at least as long."""
    table: Table = []
    for name, k, most in sets:
        X = rows_of(name, most, quick=args.quick)
        found: dict[tuple[int, str], list[float]] = {}
        for seed in range(args.few):
            given = {"random_state": seed, "n_jobs": args.threads}
            one, single = timed(shoal.KMeans(k, **given), X)
            for m in ms:
                model, took = timed(shoal.BreathingKMeans(k, m=m, **given), X)
                starts = int(np.clip(np.ceil(took / single), 1, MOST_RESTARTS))
                best, spent = timed(shoal.KMeans(k, n_init=starts, **given), X)
                figures = {
                    "one start": one.inertia_,
                    "breathing": model.inertia_,
                    "restarts": best.inertia_,
                    "s": took,
                    "restarts, s": spent,
                    "starts": starts,
                    "sweeps": model.n_iter_,
                    "breaths": model.n_breaths_,
                }
                for key, value in figures.items():
                    found.setdefault((m, key), []).append(value)
        for m in ms:
            mean = {key: float(np.mean(values)) for (of, key), values in found.items() if of == m}
            pairs = zip(found[m, "breathing"], found[m, "restarts"], strict=True)
            row = {"part": part, "set": name, "rows": len(X), "columns": X.shape[1], "K": k, "m": m}
            row |= {"seeds": args.few, **mean, "to restarts, %": above(mean["breathing"], mean["restarts"])}
            row |= {"to one start, %": above(mean["breathing"], mean["one start"])}
            row["lower"] = int(sum(a < b for a, b in pairs))
            table.append(row)
            shown([row], RESTARTS_COLUMNS)
    return table


def restarts(args: argparse.Namespace) -> tuple[Table, list[str]]:
    """Compare with restarts of exact k-means at equal time."""
    table = compared(RESTARTS, (5,), "restarts", args)
    lines = [
        f"restarts, {row['set']}, {row['columns']} columns, K = {row['K']}: {row['to restarts, %']:+.3f}% to "
        f"{row['starts']:.1f} starts ({row['s']:.2f} s, {row['restarts, s']:.2f} s), lower with "
        f"{row['lower']} of {row['seeds']} seeds"
        for row in table
    ]
    return table, lines


def added(args: argparse.Namespace) -> tuple[Table, list[str]]:
    """Compare several numbers of added centers."""
    table = compared(TUNED, (1, 2, 5, 10, 20), "m", args)
    lines = []
    for m in sorted({row["m"] for row in table}):
        those = [row for row in table if row["m"] == m]
        apart = ", ".join(f"{row['to restarts, %']:+.2f}%" for row in those)
        start = ", ".join(f"{row['to one start, %']:+.2f}%" for row in those)
        lines.append(f"m = {m}: to restarts {apart}; to one start {start}")
    return table, lines


RESTARTS_COLUMNS = {
    "set": "",
    "columns": "d",
    "K": "d",
    "m": "d",
    "breathing": ".7g",
    "to one start, %": "+.3f",
    "to restarts, %": "+.3f",
    "lower": "d",
    "s": ".3f",
    "restarts, s": ".3f",
    "starts": ".1f",
    "sweeps": ".0f",
    "breaths": ".0f",
}

PARTS: dict[str, tuple[common.Part, dict[str, str]]] = {
    "known": (known, KNOWN_COLUMNS),
    "restarts": (restarts, RESTARTS_COLUMNS),
    "m": (added, RESTARTS_COLUMNS),
}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--seeds", type=int, default=20, help="fits of each set of `known` (default 20)")
    parser.add_argument("--few", type=int, default=3, help="fits of each set of the other parts (default 3)")
    parser.add_argument("--threads", type=int, default=1)
    common.add_options(parser, quick="a tenth of the rows, 2 fits, no result file")
    args = parser.parse_args()
    if args.quick:
        args.seeds = args.few = 2
    if args.seeds < 1 or args.few < 1:
        parser.error("at least 1 fit")
    warnings.simplefilter("ignore")
    common.run_parts("breathing", args, PARTS)


if __name__ == "__main__":
    main()
