"""AFK-MC2 and k-means|| compared with plain k-means++: time, distances, and energy after Lloyd.

The setting is that of Bachem, Lucic, Hassani & Krause, "Fast and provably good seedings for k-means", NIPS
2016. All methods have the same random state in a round, and ratios are taken within a round. `distances` are
measured distances without pruned ones. The last lines are the seeding alone, for growing numbers of centers.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import _common as common
import datasets

#: Set, number of centers, chain length: the cases with targets.
CASES = ("sift_bsds_trainval:4000:20", "patches:500:200")
PLAIN = "plain-k-means++"


class Handler:
    """The worker of this program."""

    def __init__(self) -> None:
        self._threads = int(os.environ["SHOAL_BENCH_THREADS"])
        self._X = np.empty((0, 0))

    def __call__(self, command: str, *args: Any) -> Any:
        """Run one of the methods below."""
        return getattr(self, command)(*args)

    def data(self, name: str, rows: int | None) -> tuple[int, int]:
        """Read a set."""
        quick = rows is not None
        X = datasets.parts_of(name, quick=quick)[0] if name in datasets.SETS else common.raw(name)
        self._X = np.ascontiguousarray(X[:rows], dtype=np.float32)
        n, d = self._X.shape
        return n, d

    def seed(self, method: str, k: int, chain: int, random_state: int) -> tuple[float, int, np.ndarray]:
        """Return seconds, distances and centers."""
        from shoal import _core
        from shoal._rows.checked import as_source

        source = as_source(self._X)
        begun = time.perf_counter()
        centers, _, n_distances = _core.first_centers(
            source,
            n_clusters=k,
            seeding=method,
            options=(chain, None, None),
            seed=random_state,
            weights=None,
            threads=self._threads,
        )
        return time.perf_counter() - begun, n_distances, centers

    def lloyd(self, centers: np.ndarray, sweeps: int) -> tuple[float, float]:
        """Return the energy of the centers, and the energy after Lloyd's algorithm."""
        import shoal

        model = shoal.KMeans(
            len(centers), init=centers, n_init=1, max_iter=sweeps, tol=1e-5, n_jobs=self._threads
        ).fit(self._X)
        return float(model.history_["objective"][0]), model.inertia_


def compared(case: str, worker: common.Worker, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the lines of one case."""
    name, k, chain = case.split(":")
    n, d = worker.call("data", name, 20_000 if args.quick else None)
    clusters = min(int(k), n // 10)
    found: dict[str, list[tuple[float, int, float, float]]] = {method: [] for method in args.methods}
    for turn in range(args.rounds):
        for method in args.methods:
            seconds, distances, centers = worker.call("seed", method, clusters, int(chain), turn)
            found[method].append((seconds, distances, *worker.call("lloyd", centers, args.sweeps)))
    rows = []
    for method, runs in found.items():
        row = {"data": name, "n": n, "d": d, "k": clusters, "method": method, "threads": args.threads}
        if method == "afk-mc2":
            row["chain"] = int(chain)
        pairs = list(zip(found[PLAIN], runs, strict=True))
        ratios = [plain[0] / mine[0] for plain, mine in pairs]
        row |= {"s": common.median(run[0] for run in runs), "distances": int(np.median([r[1] for r in runs]))}
        row |= {"ratio": common.median(ratios), "ratio low": min(ratios), "ratio high": max(ratios)}
        row["fewer distances"] = common.median(plain[1] / mine[1] for plain, mine in pairs)
        for column, at in (("start", 2), ("lloyd", 3)):
            row[column] = common.median(mine[at] / plain[at] for plain, mine in pairs)
        rows.append(row)
    return rows


def growth(worker: common.Worker, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the lines of growing numbers of centers."""
    name, chain = args.growth.split(":")
    n, d = worker.call("data", name, None)
    rows = []
    for k in args.centers:
        for method in (PLAIN, "afk-mc2"):
            if method == PLAIN and k > args.plain_centers:
                continue
            times, distances = [], 0
            for turn in range(args.rounds if k < 8000 else 1):
                seconds, distances, _ = worker.call("seed", method, k, int(chain), turn)
                times.append(seconds)
            row = {"data": name, "n": n, "d": d, "k": k, "method": method, "threads": args.threads}
            if method == "afk-mc2":
                row["chain"] = int(chain)
            rows.append({**row, "s": common.median(times), "distances": distances})
            print(rows[-1], flush=True)
    return rows


COLUMNS = {
    "data": "",
    "n": "d",
    "d": "d",
    "k": "d",
    "chain": "d",
    "threads": "d",
    "method": "",
    "s": ".3f",
    "distances": "d",
    "ratio": ".2f",
    "ratio low": ".2f",
    "ratio high": ".2f",
    "fewer distances": ".1f",
    "start": ".3f",
    "lloyd": ".4f",
}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", nargs="*", default=list(CASES), metavar="NAME:K:CHAIN")
    parser.add_argument("--methods", nargs="+", default=[PLAIN, "afk-mc2"], metavar="NAME")
    parser.add_argument("--growth", default="sift_bsds_trainval:20", metavar="NAME:CHAIN")
    parser.add_argument("--centers", nargs="*", type=int, default=[1000, 2000, 4000, 8000, 16_000, 32_000])
    parser.add_argument("--plain-centers", type=int, default=8000, help="most for k-means++ (default 8000)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default 3)")
    parser.add_argument("--sweeps", type=int, default=30, help="of Lloyd's algorithm (default 30)")
    common.add_options(parser, quick="20,000 rows, 1 round, no result file", threads=True, worker=True)
    args = parser.parse_args()
    if args.worker:
        common.serve(Handler())
        return
    if args.rounds < 1 or not 1 <= args.threads <= common.cores():
        parser.error(f"at least 1 round, and 1 to {common.cores()} threads")
    if PLAIN not in args.methods:
        parser.error(f"ratios are taken with {PLAIN}")
    if args.quick:
        args.rounds, args.centers = 1, []
    head = common.announced(["numpy", "shoal"])
    rows = []
    worker = common.Worker(__file__, threads=args.threads)
    with common.closing([worker]):
        for case in args.data:
            part = compared(case, worker, args)
            print("\n" + common.table(part, COLUMNS), flush=True)
            rows += part
        if args.centers:
            rows += growth(worker, args)
    common.keep("seeding", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
