"""Where whole fits of ``KMeans`` end, by seeding: the default, k-means|| and greedy k-means++ on all rows.

Every set is fitted with every number of clusters and the same random states. ``auto``, ``k-means||`` and
``k-means++``: the mean inertia, relative to that of greedy k-means++ on all rows. ``... s``: seconds of whole
fits, means. Sets in `SCALED` have columns of very different ranges and are standardized; in these, most rows
are in a few dense groups and some groups are rare.

    python benches/python/init.py --csv init.csv        # five minutes
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import _common as common
import numpy as np
import shoal

SETS = (
    "kddcup99_10pct_494k",
    "shuttle_49k",
    "http_567k",
    "cover_286k",
    "campaign_41k",
    "skin_245k",
    "uk_accidents_lnglat_140k",
    "mnist_70k",
    "fsdd_logmel40_spkA",
    "wordvec_ppmi_svd100",
    "sift_bsds_trainval",
)
SCALED = {"kddcup99_10pct_494k", "shuttle_49k", "cover_286k", "campaign_41k"}
SEEDINGS = ("auto", "k-means||", "k-means++")


def standardized(name: str, X: np.ndarray) -> np.ndarray:
    """Return the rows of a set, standardized if it is in `SCALED`."""
    if name not in SCALED:
        return X
    spread = X.std(0)
    return np.ascontiguousarray((X - X.mean(0)) / np.where(spread > 0, spread, 1).astype(X.dtype))


def measure(name: str, k: int, args: Any) -> dict[str, Any]:
    """Return the line of the table for one set and number of clusters."""
    _, X, _ = common.load(f"{name}:{k}:f32")
    X = standardized(name, X)
    ends: dict[str, list[float]] = {init: [] for init in SEEDINGS}
    seconds: dict[str, list[float]] = {init: [] for init in SEEDINGS}
    for seed in range(args.rounds):
        for init in SEEDINGS:
            t = time.perf_counter()
            model = shoal.KMeans(
                k, init=init, max_iter=args.sweeps, random_state=seed, n_jobs=args.threads
            ).fit(X)
            seconds[init].append(time.perf_counter() - t)
            ends[init].append(model.inertia_)
    best = float(np.mean(ends["k-means++"]))
    line: dict[str, Any] = {"data": name, "n": len(X), "d": X.shape[1], "k": k}
    line |= {init: float(np.mean(ends[init])) / best for init in SEEDINGS}
    return line | {f"{init} s": float(np.mean(seconds[init])) for init in SEEDINGS}


COLUMNS = {"data": "", "n": "d", "d": "d", "k": "d"}
COLUMNS |= dict.fromkeys(SEEDINGS, ".4f") | {f"{init} s": ".2f" for init in SEEDINGS}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", nargs="+", default=list(SETS), metavar="NAME")
    parser.add_argument("--clusters", nargs="+", type=int, default=[100, 1000])
    parser.add_argument("--rounds", type=int, default=2, help="random states (default 2)")
    parser.add_argument("--sweeps", type=int, default=30, help="most sweeps of a fit (default 30)")
    common.add_options(parser, quick="two sets, 100 clusters, one random state, no result file", threads=True)
    args = parser.parse_args()
    if args.quick:
        args.data, args.clusters, args.rounds = args.data[1:3], [100], 1
    warnings.simplefilter("ignore")
    head = common.announced(["numpy", "shoal"])
    rows = []
    for name in args.data:
        part = [measure(name, k, args) for k in args.clusters]
        print("\n" + common.table(part, COLUMNS), flush=True)
        rows += part
    common.keep("init", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
