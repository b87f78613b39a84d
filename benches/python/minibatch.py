"""Rows per second of mini-batch k-means and scikit-learn, and a step on many rows compared with few.

``partial_fit`` runs on the same batches from the same initial centers, interleaved batch by batch. Ratios are
taken between neighbors, and their median and quartiles are shown. A step of ``fit`` is measured on mapped
files of 1 million and of 50 million rows of zeros. The files are sparse and take no disk space, and every
page is read once before.
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

#: Columns of the files, numbers of rows, and clusters.
SMALL, LARGE, COLUMNS_OF_FILE, CLUSTERS = 1_000_000, 50_000_000, 16, 50

# ---------------------------------------------------------------- the worker's side


class Handler:
    """Commands of the worker."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._threads = int(os.environ["SHOAL_BENCH_THREADS"])
        self._X = np.empty((0, 0))
        self._model: Any = None

    def __call__(self, command: str, *args: Any) -> Any:
        return getattr(self, command)(*args)

    def begin(self, rows: str, k: int, batch: int) -> None:
        """Import the library, read the rows, and take the first batch."""
        self._X = np.load(rows)
        init = common.distinct_rows(self._X[:20_000], k)
        if self._peer == "shoal":
            from shoal import MiniBatchKMeans

            self._model = MiniBatchKMeans(k, init=init, batch_size=batch, n_jobs=self._threads)
        else:
            from sklearn.cluster import MiniBatchKMeans as Theirs

            self._model = Theirs(k, init=init, batch_size=batch, n_init=1)
        self._model.partial_fit(self._X[:batch])

    def step(self, start: int, rows: int) -> float:
        """Return the seconds of a batch."""
        batch = self._X[start : start + rows]
        begun = time.perf_counter()
        self._model.partial_fit(batch)
        return time.perf_counter() - begun

    def fit(self, rows: str, k: int, steps: int, batch: int) -> float:
        """Return the median seconds of a step of `fit`, after as many warm-up steps."""
        from shoal import MiniBatchKMeans

        X = np.load(rows, mmap_mode="r")
        # Read a value of every page, because the first access to a page costs extra time.
        assert X[:: 4096 // X.strides[0], 0].sum() == 0
        init = np.random.default_rng(0).normal(size=(k, X.shape[1])).astype(X.dtype)
        model = MiniBatchKMeans(
            k, init=init, batch_size=batch, random_state=0, n_jobs=self._threads, max_no_improvement=None
        )
        elapsed = [0.0]
        for step in model.iter_fit(X):
            elapsed.append(step.elapsed)
            if step.iteration == 2 * steps:
                break
        return common.median(np.diff(elapsed)[steps:])


# ---------------------------------------------------------------- the parent's side


def rates(
    spec: str, workers: dict[str, common.Worker], args: argparse.Namespace, folder: Path
) -> list[dict[str, Any]]:
    """Measure the rows of the table for one data set."""
    if spec.startswith("normal:"):
        d, k = (int(part) for part in spec.split(":")[1:])
        name = "normal"
        X = np.random.default_rng(0).normal(size=(100_000, d)).astype(np.float32)
    else:
        name, X, k = common.load(spec)
    path = str(folder / "rows.npy")
    np.save(path, X)
    for worker in workers.values():
        worker.call("begin", path, k, args.batch)
    seconds: dict[str, list[float]] = {peer: [] for peer in workers}
    for turn in range(1, args.steps + 1):
        start = turn * args.batch % (len(X) - args.batch)
        for peer, worker in workers.items():
            seconds[peer].append(worker.call("step", start, args.batch))
    shape = {"data": name, "n": len(X), "d": X.shape[1], "k": k, "batch": args.batch, "threads": args.threads}
    rows = []
    for peer, spent in seconds.items():
        ratios = np.array(spent) / np.array(seconds["shoal"])
        low, middle, high = (float(q) for q in np.quantile(ratios, [0.25, 0.5, 0.75]))
        typical = common.median(spent)
        row = {"what": "partial_fit", "peer": peer, "ms/step": 1e3 * typical, "rows/s": args.batch / typical}
        rows.append({**shape, **row, "ratio": middle, "ratio low": low, "ratio high": high})
    return rows


def growth(workers: dict[str, common.Worker], args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Compare a step on many rows with a step on few rows."""
    paths = {}
    for n in (SMALL, LARGE):
        # Never written to, so the file is a single hole that reads as zeros.
        path = folder / f"{n}.npy"
        np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, COLUMNS_OF_FILE)).flush()
        paths[n] = str(path)
    spent: dict[int, list[float]] = {n: [] for n in paths}
    for _ in range(args.rounds):
        for n, path in paths.items():
            spent[n].append(workers["shoal"].call("fit", path, CLUSTERS, args.steps, args.batch))
    rows = []
    for n, seconds in spent.items():
        ratios = [here / there for here, there in zip(seconds, spent[SMALL], strict=True)]
        shape = {"data": "zeros in a file", "n": n, "d": COLUMNS_OF_FILE, "k": CLUSTERS, "batch": args.batch}
        row = {"what": "step of fit", "peer": "shoal", "threads": args.threads}
        spread = {"ratio": common.median(ratios), "ratio low": min(ratios), "ratio high": max(ratios)}
        typical = common.median(seconds)
        rows.append({**shape, **row, "ms/step": 1e3 * typical, "rows/s": args.batch / typical, **spread})
    return rows


COLUMNS = {
    "data": "",
    "n": "d",
    "d": "d",
    "k": "d",
    "batch": "d",
    "threads": "d",
    "what": "",
    "peer": "",
    "ms/step": ".3f",
    "rows/s": ".0f",
    "ratio": ".2f",
    "ratio low": ".2f",
    "ratio high": ".2f",
}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument(
        "--data",
        nargs="*",
        default=["mnist_70k:50", "mnist_70k:256", "normal:16:10"],
        metavar="NAME:K[:f32|f64]",
        help="data sets, or normal:D:K for random rows",
    )
    parser.add_argument("--steps", type=int, default=200, help="batches (default 200)")
    parser.add_argument("--batch", type=int, default=1024, help="rows of a batch (default 1024)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds of fits (default 5)")
    common.add_options(
        parser, quick="20 batches, 1 round, no result file", threads=True, worker=["shoal", "sklearn"]
    )
    args = parser.parse_args()
    if args.worker:
        common.serve(Handler(args.worker))
        return
    if args.steps < 1 or args.rounds < 1 or args.batch < 1 or not 1 <= args.threads <= common.cores():
        parser.error(f"at least 1 step, round and row, and 1 to {common.cores()} threads")
    if args.quick:
        args.steps, args.rounds = min(args.steps, 20), 1
    head = common.announced(["numpy", "shoal", "scikit-learn"])
    workers = {peer: common.Worker(__file__, peer, threads=args.threads) for peer in ("shoal", "sklearn")}
    rows = []
    with common.closing(workers.values()), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = [lambda spec=spec: rates(spec, workers, args, folder) for spec in args.data]
        for part in [*parts, lambda: growth(workers, args, folder)]:
            found = part()
            print("\n" + common.table(found, COLUMNS), flush=True)
            rows += found
    common.keep("minibatch", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
