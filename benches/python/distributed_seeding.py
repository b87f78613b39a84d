"""The seedings of the distributed estimators: time, and inertia at the start and at the end of a fit.

Fits of ``shoal.distributed.KMeans`` over partitions in this process, whose sweeps measure all distances.
Every round has its own seed, and the seedings take turns within a round. ``first`` and ``final`` are the
inertia before the first sweep and after the fit, relative to that of the first seeding in the same round;
``sweeps`` are those of the fit, and ``seeding sweeps`` is the time of the seeding in sweeps. Seconds are
those of the processor. Medians of the rounds, and the range of ``final``.

The set ``made`` has about 400,000 rows: 500 large groups, and 2,000 of 20 rows.

    python benches/python/distributed_seeding.py
    python benches/python/distributed_seeding.py --data made:1000 made:4000 made:16000 --sweeps 5 \\
        --inits k-means++ hierarchical
"""

from __future__ import annotations

import warnings
from typing import Any

import _common as common
import numpy as np
from against_sklearn import processor
from shoal.distributed import KMeans
from sklearn.exceptions import ConvergenceWarning

#: The seedings; the others are compared with the first.
INITS = ("k-means||", "k-means++", "hierarchical")
SETS = (
    "sift_bsds_trainval:256",
    "sift_bsds_trainval:1000",
    "mnist_70k:50",
    "mnist_70k:500",
    "fsdd_logmel40_spkA:100",
    "resnet18_cifar_16k:20",
    "wordvec_ppmi_svd100:100",
    "cover_286k:50",
    "letter_20k:26",
    "bsds_pixels_rgb:64",
    "uk_accidents_lnglat_140k:100",
    "uk_accidents_lnglat_140k:1000",
    "kddcup99_10pct_494k:23",
    "gagolews_a/sipu/birch1:100",
)
#: Columns of these sets have very different scales, so each is divided by its standard deviation.
SCALED = ("kddcup99_10pct_494k",)

COLUMNS = {
    "data": "",
    "n": "d",
    "d": "d",
    "k": "d",
    "init": "",
    "seeding s": ".3f",
    "seeding sweeps": ".1f",
    "sweeps": ".0f",
    "first": ".4f",
    "final": ".4f",
    "low": ".4f",
    "high": ".4f",
}


def made() -> np.ndarray:
    """Make rows in groups of very different sizes, of which many are rare."""
    rng = np.random.default_rng(0)
    n_large, n_rare, rare = 500, 2000, 20
    sizes = rng.pareto(1.0, n_large) + 1
    sizes = np.maximum(1, sizes / sizes.sum() * (400_000 - n_rare * rare)).astype(int)
    sizes = np.append(sizes, np.full(n_rare, rare))
    centers = rng.normal(scale=4, size=(len(sizes), 32))
    return (np.repeat(centers, sizes, axis=0) + rng.normal(size=(sizes.sum(), 32))).astype(np.float32)


def fit(parts: list[np.ndarray], k: int, init: str, seed: int, args: Any) -> dict[str, float]:
    """Fit once, and return the figures."""
    given = {"max_iter": args.sweeps, "random_state": seed, "n_jobs": args.threads}
    model = KMeans(k, init=init, **given, compute_labels=False, memory=0)
    begun = processor()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        elapsed = [processor() - begun for _ in model.iter_fit(parts)]
    steps = model.history_
    sweep = float(np.median(np.diff(elapsed))) if len(elapsed) > 1 else np.nan
    return {
        "seeding s": elapsed[0] - sweep,
        "sweep s": sweep,
        "sweeps": len(steps),
        "first": float(steps["objective"][0]),
        "final": model.inertia_,
    }


def compare(spec: str, args: Any) -> list[dict[str, Any]]:
    """Compare the seedings on a data set."""
    if spec.startswith("made:"):
        name, X, k = "made", made(), int(spec.removeprefix("made:"))
    else:
        name, X, k = common.load(spec)
    if name in SCALED:
        X = X / np.maximum(X.std(axis=0), 1e-12).astype(X.dtype)
    X = X[np.random.default_rng(0).permutation(len(X))]
    parts = np.array_split(X[: 4 * k] if args.quick else X, args.partitions)
    rounds: dict[str, list[dict[str, float]]] = {init: [] for init in args.inits}
    for seed in range(args.rounds):
        for init in args.inits:
            rounds[init].append(fit(parts, k, init, seed, args))
    known = rounds[args.inits[0]]
    rows = []
    for init, found in rounds.items():
        ratios = {
            name: [own[name] / one[name] for own, one in zip(found, known, strict=True)]
            for name in ("first", "final")
        }
        row = {"data": name, "n": len(X), "d": X.shape[1], "k": k, "init": init}
        row |= {
            name: common.median(one[name] for one in found) for name in ("seeding s", "sweep s", "sweeps")
        }
        row["seeding sweeps"] = common.median(one["seeding s"] / one["sweep s"] for one in found)
        row |= {name: common.median(values) for name, values in ratios.items()}
        rows.append(row | {"low": min(ratios["final"]), "high": max(ratios["final"])})
    return rows


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", nargs="+", default=SETS, metavar="NAME:K")
    parser.add_argument("--inits", nargs="+", default=INITS, choices=INITS)
    parser.add_argument("--sweeps", type=int, default=300, help="most sweeps of a fit (default 300)")
    parser.add_argument("--partitions", type=int, default=4, help="partitions (default 4)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, each with its own seed (default 5)")
    common.add_options(parser, quick="4 rows per cluster, 1 round, no result file", threads=True)
    args = parser.parse_args()
    if args.quick:
        args.rounds = 1
    head = common.announced(["numpy", "shoal"])
    rows = []
    for spec in args.data:
        rows += compare(spec, args)
        print("\n" + common.table(rows[-len(args.inits) :], COLUMNS), flush=True)
    common.keep("distributed-seeding", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
