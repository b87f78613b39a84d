"""Fits that do not sweep over all rows, on sets with rare groups and on others.

``inertia``: the inertia over all rows, relative to ``KMeans`` with the same number of clusters and random
state; mean of all random states. ``high``: the highest. ``time``: processor seconds relative to those of
``KMeans``. ``seconds``: processor seconds of a fit, with one thread.

minibatch
    ``MiniBatchKMeans(k)``; ``init_size``: with seeds from a sample of three batches.
nested, sbe
    ``NestedMiniBatchKMeans(k)`` and ``BackwardEulerKMeans(k)``; ``first batch``: with ``init="k-means++"``;
    ``random``: with ``init="random"``; ``no polish``: with ``polish=False``.
coreset, N
    ``KMeans`` on a coreset of N rows per cluster, drawn with ``n_clusters=k`` or without.
kmeans, parts
    ``KMeans(k)`` seeded as if there were more than 67,108,864 rows: by greedy k-means++ on a coreset that
    unites those of eight parts of the rows. For sets of many rows.
hierarchical
    ``HierarchicalKMeans(k)``; ``128``: with ``n_candidates=128, tol=0.001``. For few rows per cluster.

Sets in `UNSEEN` were not used while tuning. Sets in `init.SCALED` are standardized.

    python benches/python/rare.py
    python benches/python/rare.py --data letter_20k:2000 --fits hierarchical "hierarchical, 128"
    python benches/python/rare.py --data http_567k:100 cover_286k:100 skin_245k:100 --fits "kmeans, parts"
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import _common as common
import numpy as np
import shoal
from against_sklearn import processor
from init import standardized

SETS = (
    "shuttle_49k:100",
    "shuttle_49k:500",
    "kddcup99_10pct_494k:100",
    "http_567k:100",
    "cover_286k:100",
    "fsdd_logmel40_spkA:100",
    "skin_245k:100",
    "campaign_41k:100",
    "uk_accidents_lnglat_140k:200",
    "wordvec_ppmi_svd100:100",
)
UNSEEN = {"skin_245k", "campaign_41k", "uk_accidents_lnglat_140k", "wordvec_ppmi_svd100"}


def on_coreset(per_cluster: int, *, known: bool) -> Callable[[np.ndarray, int, int], np.ndarray]:
    """Return a fit of ``KMeans`` on a coreset."""

    def fit(X: np.ndarray, k: int, seed: int) -> np.ndarray:
        more = {"n_clusters": k} if known else {}
        coreset = shoal.lightweight_coreset(X, per_cluster * k, random_state=seed, n_jobs=1, **more)
        return shoal.KMeans(k, random_state=seed, n_jobs=1).fit(coreset).cluster_centers_

    return fit


def estimator(name: str, **given: Any) -> Callable[[np.ndarray, int, int], np.ndarray]:
    """Return a fit of an estimator."""

    def fit(X: np.ndarray, k: int, seed: int) -> np.ndarray:
        return getattr(shoal, name)(k, random_state=seed, n_jobs=1, **given).fit(X).cluster_centers_

    return fit


def seeded_in_parts(X: np.ndarray, k: int, seed: int) -> np.ndarray:
    """Fit ``KMeans`` with the default seeding of huge sets."""
    parts = np.array_split(X, 8)
    given = {"n_clusters": k, "random_state": seed, "n_jobs": 1}
    drawn = [shoal.lightweight_coreset(part, max(32 * k, 65_536) // len(parts), **given) for part in parts]
    points, weights = (np.concatenate([getattr(one, of) for one in drawn]) for of in ("points", "weights"))
    init, _ = shoal.kmeans_plusplus(points, k, sample_weight=weights, random_state=seed, n_jobs=1)
    return estimator("KMeans", init=init)(X, k, seed)


FITS: dict[str, Callable[[np.ndarray, int, int], np.ndarray]] = {
    "minibatch": estimator("MiniBatchKMeans"),
    "minibatch, init_size": estimator("MiniBatchKMeans", init_size=3072),
    "nested": estimator("NestedMiniBatchKMeans"),
    "nested, first batch": estimator("NestedMiniBatchKMeans", init="k-means++"),
    "sbe": estimator("BackwardEulerKMeans"),
    "sbe, random": estimator("BackwardEulerKMeans", init="random"),
    "sbe, no polish": estimator("BackwardEulerKMeans", polish=False),
    "coreset, 100": on_coreset(100, known=False),
    "coreset, 100, n_clusters": on_coreset(100, known=True),
    "coreset, 300": on_coreset(300, known=False),
    "coreset, 300, n_clusters": on_coreset(300, known=True),
    "kmeans, parts": seeded_in_parts,
    "hierarchical": estimator("HierarchicalKMeans"),
    "hierarchical, 128": estimator("HierarchicalKMeans", n_candidates=128, tol=1e-3),
}


def measure(spec: str, fits: list[str], rounds: int) -> list[dict[str, Any]]:
    """Return the lines of the table for one set and number of clusters."""
    name, X, k = common.load(f"{spec}:f32")
    X = standardized(name, X)
    ends: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    for seed in range(rounds):
        for fit in ("KMeans", *fits):
            begun = processor()
            centers = FITS.get(fit, estimator("KMeans"))(X, k, seed)
            seconds.setdefault(fit, []).append(processor() - begun)
            ends.setdefault(fit, []).append(shoal.metrics.inertia(X, centers))
    best, spent = np.array(ends["KMeans"]), float(np.mean(seconds["KMeans"]))
    lines = []
    for fit in fits:
        line = {"data": name, "n": len(X), "d": X.shape[1], "k": k, "unseen": name in UNSEEN, "fit": fit}
        line |= {"inertia": float(np.mean(ends[fit] / best)), "high": float(np.max(ends[fit] / best))}
        mean = float(np.mean(seconds[fit]))
        lines.append(line | {"time": mean / spent, "seconds": mean})
    return lines


COLUMNS = {"data": "", "n": "d", "d": "d", "k": "d", "unseen": "", "fit": ""}
COLUMNS |= {"inertia": ".4f", "high": ".4f", "time": ".2f", "seconds": ".2f"}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", nargs="+", default=list(SETS), metavar="NAME:K")
    parser.add_argument(
        "--fits", nargs="+", default=[fit for fit in FITS if fit != "kmeans, parts"], choices=list(FITS)
    )
    parser.add_argument("--rounds", type=int, default=3, help="random states (default 3)")
    common.add_options(parser, quick="one set, one random state, no result file")
    args = parser.parse_args()
    if args.quick:
        args.data, args.rounds = args.data[:1], 1
    warnings.simplefilter("ignore")
    head = common.announced(["numpy", "shoal"])
    rows = []
    for spec in args.data:
        part = measure(spec, args.fits, args.rounds)
        print("\n" + common.table(part, COLUMNS), flush=True)
        rows += part
    common.keep("rare", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
