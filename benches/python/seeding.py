"""Time of k-means++ compared with scikit-learn, and of ``init="auto"`` in sweeps.

Both run plain k-means++ with one candidate per center (``n_local_trials=1`` in scikit-learn). Runs are
interleaved with a new random state in every round, and ratios are taken within a round. The generators
differ, so the centers differ too. The sum of squared distances to the centers is shown for comparison.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import _common as common
import numpy as np

# ---------------------------------------------------------------- the worker's side


class Handler:
    """Commands of the worker."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._threads = int(os.environ["SHOAL_BENCH_THREADS"])
        self._X = np.empty((0, 0))

    def __call__(self, command: str, *args: Any) -> Any:
        return getattr(self, command)(*args)

    def data(self, rows: str) -> None:
        """Import the library and read the rows."""
        __import__("shoal" if self._peer == "shoal" else "sklearn.cluster")
        self._X = np.load(rows)

    def seed(self, k: int, random_state: int) -> tuple[float, np.ndarray]:
        """Return seconds and centers."""
        if self._peer == "shoal":
            import shoal

            t = time.perf_counter()
            centers, _ = shoal.kmeans_plusplus(
                self._X, k, greedy=False, random_state=random_state, n_jobs=self._threads
            )
        else:
            from sklearn.cluster import kmeans_plusplus

            t = time.perf_counter()
            centers, _ = kmeans_plusplus(self._X, k, n_local_trials=1, random_state=random_state)
        return time.perf_counter() - t, np.asarray(centers)

    def auto(self, k: int, sweeps: int, random_state: int) -> tuple[float, float, str]:
        """Return the seconds of the seeding, the seconds of a sweep, and the chosen method."""
        import shoal

        params = {"init": "auto", "max_iter": sweeps, "tol": 0.0, "algorithm": "lloyd"}
        model = shoal.KMeans(k, **params, random_state=random_state, n_jobs=self._threads).fit(self._X)
        return model.timings_["seeding"], model.timings_["sweeps"] / model.n_iter_, str(model.init_)


# ---------------------------------------------------------------- the parent's side


def measure(spec: str, workers: dict[str, common.Worker], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the rows of the table for one data set."""
    name, X, k = common.load(spec)
    if args.quick:
        X = np.ascontiguousarray(X[: max(20_000, 20 * k)])
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "rows.npy"))
        np.save(path, X)
        for worker in workers.values():
            worker.call("data", path)
    times: dict[str, list[float]] = {peer: [] for peer in workers}
    sums: dict[str, list[float]] = {peer: [] for peer in workers}
    auto = []
    # Round 0 is a warm-up.
    for turn in range(args.rounds + 1):
        for peer, worker in workers.items():
            seconds, centers = worker.call("seed", k, turn)
            if turn:
                times[peer].append(seconds)
                sums[peer].append(common.objective(X, centers))
        result = workers["shoal"].call("auto", k, args.sweeps, turn)
        if turn:
            auto.append(result)
    shape = {"data": name, "n": len(X), "d": X.shape[1], "k": k, "threads": args.threads}
    rows: list[dict[str, Any]] = []
    for peer in workers:
        ratios = [t / ours for t, ours in zip(times[peer], times["shoal"], strict=True)]
        row = {"what": "plain k-means++", "peer": peer, "s": common.median(times[peer])}
        spread = {"ratio": common.median(ratios), "ratio low": min(ratios), "ratio high": max(ratios)}
        rows.append({**shape, **row, **spread, "objective": common.median(sums[peer])})
    row = {"what": "init='auto'", "peer": "shoal", "s": common.median(a[0] for a in auto)}
    cost = {
        "s/sweep": common.median(a[1] for a in auto),
        "in sweeps": common.median(a[0] / a[1] for a in auto),
    }
    rows.append({**shape, **row, **cost, "note": auto[0][2]})
    return rows


COLUMNS = {
    "data": "",
    "n": "d",
    "k": "d",
    "threads": "d",
    "what": "",
    "peer": "",
    "s": ".3f",
    "ratio": ".2f",
    "ratio low": ".2f",
    "ratio high": ".2f",
    "objective": ".6g",
    "s/sweep": ".4f",
    "in sweeps": ".2f",
    "note": "",
}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", nargs="+", default=["sift_bsds_trainval:1024"], metavar="NAME:K[:f32|f64]")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--sweeps", type=int, default=5, help='sweeps after init="auto" (default 5)')
    common.add_options(
        parser, quick="20,000 rows, 1 round, no result file", threads=True, worker=["shoal", "sklearn"]
    )
    args = parser.parse_args()
    if args.worker:
        common.serve(Handler(args.worker))
        return
    if args.sweeps < 1 or args.rounds < 1 or not 1 <= args.threads <= common.cores():
        parser.error(f"at least 1 sweep and 1 round, and 1 to {common.cores()} threads")
    if args.quick:
        args.rounds = 1
    head = common.announced(["numpy", "shoal", "scikit-learn"])
    workers = {peer: common.Worker(__file__, peer, threads=args.threads) for peer in ("shoal", "sklearn")}
    rows = []
    with common.closing(workers.values()):
        for spec in args.data:
            part = measure(spec, workers, args)
            print("\n" + common.table(part, COLUMNS), flush=True)
            rows += part
    common.keep("seeding", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
