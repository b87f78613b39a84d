"""The tables behind "Which method when" and "Which option when": every method and option with defaults.

``methods``: every method of k-means and the mixture with default parameters. ``inertia`` is over all rows and
relative to the mean of ``KMeans`` on the set. ``init``, ``n_init``, ``batch_size``, ``tol`` and ``coreset``
vary one parameter of ``KMeans`` or ``MiniBatchKMeans``.

``large`` has the methods whose time grows slowly, for complete sets (``--rows 1000000``).

Every round has its own seed, and the variants are interleaved within a round. Ratios of time are taken within
a round; the median, the least and the largest are shown. No default of the library was chosen from this
table.

    python benches/python/guide.py --clock processor --threads 1    # on a busy machine
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import _common as common
import numpy as np
import shoal

SETS = (
    "sift_bsds_trainval:256",
    "mnist_70k:50",
    "fsdd_logmel40_spkA:100",
    "resnet18_cifar_16k:20",
    "usps_11k:10",
    "wordvec_ppmi_svd100:100",
    "cover_286k:50",
    "letter_20k:26",
    "bsds_pixels_rgb:64",
    "uk_accidents_lnglat_140k:100",
    "kddcup99_10pct_494k:23",
    "gagolews_a/sipu/birch1:100",
    "http_567k:20",
    "shuttle_49k:10",
    "aloi_27d_50k:50",
)
#: Columns of these sets have very different scales, so each is divided by its standard deviation.
SCALED = ("kddcup99_10pct_494k",)

Fit = Callable[[np.ndarray, int, int, int], np.ndarray]


def of(name: str, **params: Any) -> Fit:
    """Fit the estimator of the given name; return its centers."""

    def fit(X: np.ndarray, k: int, seed: int, threads: int) -> np.ndarray:
        model = getattr(shoal, name)(k, random_state=seed, n_jobs=threads, **params).fit(X)
        return model.means_ if hasattr(model, "means_") else model.cluster_centers_

    return fit


def on_coreset(per_cluster: int, *, streamed: bool = False) -> Fit:
    """Draw a coreset with a number of rows per cluster, and fit weighted ``KMeans`` to it."""

    def fit(X: np.ndarray, k: int, seed: int, threads: int) -> np.ndarray:
        m = per_cluster * k
        if streamed:
            builder = shoal.StreamingCoreset(m, random_state=seed)
            for block in np.array_split(X, 20):
                builder.partial_fit(block)
            coreset = builder.result()
        else:
            coreset = shoal.lightweight_coreset(X, m, random_state=seed, n_jobs=threads)
        model = shoal.KMeans(k, random_state=seed, n_jobs=threads)
        return model.fit(coreset.points, sample_weight=coreset.weights).cluster_centers_

    return fit


SEEDINGS = ("auto", "k-means++", "plain-k-means++", "afk-mc2", "k-means||", "random")
METHODS: dict[str, Fit] = {
    "KMeans": of("KMeans"),
    "MiniBatchKMeans": of("MiniBatchKMeans"),
    "NestedMiniBatchKMeans": of("NestedMiniBatchKMeans"),
    "BackwardEulerKMeans": of("BackwardEulerKMeans"),
    "coreset of 100 k rows, KMeans": on_coreset(100),
}
#: The other variants of a part are compared with its first one.
PARTS: dict[str, dict[str, Fit]] = {
    "methods": METHODS
    | {
        "KMeans, n_init=5": of("KMeans", n_init=5),
        "VarianceReducedKMeans": of("VarianceReducedKMeans"),
        "TruncatedGaussianMixture": of("TruncatedGaussianMixture"),
    },
    "large": METHODS,
    "init": {f"init={name}": of("KMeans", init=name, n_init=1) for name in SEEDINGS},
    "n_init": {f"n_init={starts}": of("KMeans", n_init=starts) for starts in (1, 5, 10)},
    "batch_size": {
        f"batch_size={rows}": of("MiniBatchKMeans", batch_size=rows) for rows in (1024, 256, 4096, 16_384)
    },
    "tol": {f"tol={tol:g}": of("KMeans", tol=tol, max_iter=1000) for tol in (1e-4, 0.0)},
    "coreset": {
        "all rows": of("KMeans"),
        **{f"{rows} rows a cluster": on_coreset(rows) for rows in (30, 100, 300)},
        "100 rows a cluster, streamed": on_coreset(100, streamed=True),
    },
}


def rows_of(spec: str, most: int) -> tuple[str, np.ndarray, int]:
    """Return name, rows and k; at most a number of random rows."""
    name, X, k = common.load(spec)
    if len(X) > most:
        X = X[np.sort(np.random.default_rng(0).permutation(len(X))[:most])]
    if name in SCALED:
        X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)
    return name, np.ascontiguousarray(X), k


def measure(part: str, spec: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the rows of the table for one part and one set."""
    name, X, k = rows_of(spec, args.rows)
    seconds: dict[str, list[float]] = {variant: [] for variant in PARTS[part]}
    inertia: dict[str, list[float]] = {variant: [] for variant in PARTS[part]}
    clock = time.process_time if args.clock == "processor" else time.perf_counter
    for seed in range(args.rounds):
        for variant, fit in PARTS[part].items():
            begun = clock()
            centers = fit(X, k, seed, args.threads)
            seconds[variant].append(clock() - begun)
            inertia[variant].append(common.objective(X, centers))
    reference = next(iter(PARTS[part]))
    base = float(np.mean(inertia[reference]))
    ratios = {
        variant: [a / b for a, b in zip(seconds[variant], seconds[reference], strict=True)]
        for variant in seconds
    }
    return [
        {
            "part": part,
            "data": name,
            "n": len(X),
            "d": X.shape[1],
            "k": k,
            "threads": args.threads,
            "rounds": args.rounds,
            "variant": variant,
            "s": common.median(seconds[variant]),
            "time": common.median(ratios[variant]),
            "time low": min(ratios[variant]),
            "time high": max(ratios[variant]),
            "inertia": float(np.mean(inertia[variant])) / base - 1.0,
            "best": min(inertia[variant]) / base - 1.0,
            "worst": max(inertia[variant]) / base - 1.0,
        }
        for variant in PARTS[part]
    ]


def summary(table: list[dict[str, Any]]) -> list[str]:
    """Summarize each variant: its median over the sets, and the sets where it beats the first variant."""
    lines = []
    for part, variants in PARTS.items():
        for variant in variants:
            rows = [row for row in table if (row["part"], row["variant"]) == (part, variant)]
            if rows:
                lower = sum(row["inertia"] < 0 for row in rows)
                faster = sum(row["time"] < 1 for row in rows)
                lines.append(
                    f"{part}: {variant}: inertia {common.median(r['inertia'] for r in rows):+.2%} "
                    f"({min(r['inertia'] for r in rows):+.2%} to {max(r['inertia'] for r in rows):+.2%}), "
                    f"time {common.median(r['time'] for r in rows):.2f} "
                    f"({min(r['time'] for r in rows):.2f} to {max(r['time'] for r in rows):.2f}), "
                    f"lower on {lower} and faster on {faster} of {len(rows)} sets"
                )
    return lines


COLUMNS = {
    "part": "",
    "data": "",
    "n": "d",
    "d": "d",
    "k": "d",
    "variant": "",
    "s": ".3f",
    "time": ".2f",
    "time low": ".2f",
    "time high": ".2f",
    "inertia": "+.2%",
    "best": "+.2%",
    "worst": "+.2%",
}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument(
        "--part", nargs="+", choices=list(PARTS), default=[part for part in PARTS if part != "large"]
    )
    parser.add_argument("--data", nargs="+", metavar="NAME:K", default=SETS)
    parser.add_argument("--rows", type=int, default=60_000, help="most rows of a set (default 60,000)")
    parser.add_argument("--rounds", type=int, default=3, help="seeds (default 3)")
    parser.add_argument("--clock", choices=["wall", "processor"], default="wall")
    common.add_options(parser, quick="3,000 rows, 1 round, no result file", threads=True)
    args = parser.parse_args()
    if args.quick:
        args.rows, args.rounds = 3_000, 1
    # Warnings of runs that end at max_iter and of empty clusters.
    warnings.simplefilter("ignore")
    head = common.announced(["numpy", "shoal"])
    path = args.csv or str(common.results("guide", "csv"))
    table, lines = [], []
    for part in args.part:
        for spec in args.data:
            rows = measure(part, spec, args)
            print("\n" + common.table(rows, COLUMNS), flush=True)
            table += rows
            lines = summary(table)
            # Save after every set, so that an interrupt loses only the current set.
            if not args.quick or args.csv:
                about = {f"summary {number}": line for number, line in enumerate(lines, 1)}
                common.keep("guide", head | about, table, path, args.quick)
    print("\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
