"""K-means on sparse rows compared with scikit-learn: sweeps, batches, nested fits, and their inertia.

The rows are word counts as tf-idf vectors of length 1 (``news20_counts`` in ``$SHOAL_DATA``: members
``data``, ``indices``, ``indptr`` and ``shape`` of a CSR matrix). All methods start from the same rows and use
the same matrix. The time of a sweep is (time with ``max_iter=13`` - time with ``max_iter=3``) / 10. A batch
is one ``partial_fit``. Both are interleaved. Ratios are taken between neighbors, and their median and
quartiles are shown. Fits with batches are compared with a whole fit of scikit-learn's mini-batches: a whole
fit of ours, and the time of nested batches and mini-batches until the inertia of all rows is as low.
Measuring the inertia does not count, and nan means that a fit never gets there.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path
from typing import Any

import _common as common
import numpy as np
import scipy.sparse as sp

SHORT, LONG = 3, 13
#: Steps between two measurements of the inertia, and maximum number of steps.
LOOK_EVERY, MOST_STEPS = 4, 2_000
#: Fits that run until they are as good as scikit-learn.
TO_REACH = ("mini-batch", "nested")


def tf_idf(name: str, dtype: str) -> sp.csr_matrix:
    """Convert counts to tf-idf: smooth inverse document frequencies, rows of length 1."""
    folder = os.environ.get("SHOAL_DATA")
    if not folder:
        raise SystemExit("set SHOAL_DATA to the folder that holds the data sets")
    with np.load(Path(folder) / f"{name}.npz") as file:
        parts = (file["data"].astype(np.float64), file["indices"], file["indptr"])
        counts = sp.csr_matrix(parts, shape=tuple(file["shape"]))
    counts.sort_indices()
    n = counts.shape[0]
    frequency = np.log((1 + n) / (1 + np.bincount(counts.indices, minlength=counts.shape[1]))) + 1
    counts.data *= frequency[counts.indices]
    lengths = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
    counts.data /= np.repeat(np.where(lengths > 0, lengths, 1), np.diff(counts.indptr))
    out = counts.astype(dtype)
    out.indices, out.indptr = out.indices.astype(np.int32), out.indptr.astype(np.int32)
    return out


# ---------------------------------------------------------------- the worker's side


class Handler:
    """Commands of the worker."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._threads = int(os.environ["SHOAL_BENCH_THREADS"])
        self._model: Any = None
        self._X: Any = None
        self._init: Any = None
        warnings.simplefilter("ignore")

    def __call__(self, command: str, *args: Any) -> Any:
        return getattr(self, command)(*args)

    def begin(self, name: str, dtype: str, k: int, batch: int) -> None:
        """Import the library, make the rows, and take the first batch."""
        self._X = tf_idf(name, dtype)
        rows = np.random.default_rng(0).permutation(self._X.shape[0])[:k]
        self._init = self._X[rows].toarray()
        self._model = self._small(k, batch).partial_fit(self._X[:batch])

    def _small(self, k: int, batch: int, **more: Any) -> Any:
        if self._peer == "shoal":
            from shoal import MiniBatchKMeans

            return MiniBatchKMeans(k, init=self._init, batch_size=batch, n_jobs=self._threads, **more)
        from sklearn.cluster import MiniBatchKMeans as Theirs

        return Theirs(k, init=self._init, batch_size=batch, n_init=1, **more)

    def step(self, start: int, rows: int) -> float:
        """Return the seconds of a batch."""
        batch = self._X[start : start + rows]
        begun = time.perf_counter()
        self._model.partial_fit(batch)
        return time.perf_counter() - begun

    def sweep(self, k: int, algorithm: str) -> tuple[float, float]:
        """Return the seconds of a sweep, and the final inertia."""
        spent = []
        for limit in (SHORT, LONG):
            if self._peer == "shoal":
                from shoal import KMeans

                model: Any = KMeans(
                    k, init=self._init, max_iter=limit, tol=0, algorithm=algorithm, n_jobs=self._threads
                )
            else:
                from sklearn.cluster import KMeans as Theirs

                model = Theirs(k, init=self._init, max_iter=limit, tol=0, n_init=1, algorithm="lloyd")
            begun = time.perf_counter()
            model.fit(self._X)
            spent.append(time.perf_counter() - begun)
        return (spent[1] - spent[0]) / (LONG - SHORT), float(model.inertia_)

    def fit(self, k: int, batch: int) -> tuple[float, float]:
        """Return the seconds of a whole fit of mini-batches, and its inertia."""
        model = self._small(k, batch, random_state=0)
        begun = time.perf_counter()
        model.fit(self._X)
        return time.perf_counter() - begun, float(model.inertia_)

    def reach(self, what: str, k: int, batch: int, goal: float) -> tuple[float, float]:
        """Return the seconds until the inertia of a fit is at most `goal`, and the inertia."""
        from shoal import NestedMiniBatchKMeans
        from shoal.metrics import inertia

        model: Any = self._small(k, batch, random_state=0)
        if what == "nested":
            model = NestedMiniBatchKMeans(
                k, init=self._init, batch_size=batch, random_state=0, n_jobs=self._threads
            )
        steps = model.iter_fit(self._X)
        spent, reached = 0.0, np.inf
        for turn in range(1, MOST_STEPS + 1):
            begun = time.perf_counter()
            step = next(steps, None)
            spent += time.perf_counter() - begun
            if step is None or turn % LOOK_EVERY == 0:
                reached = inertia(self._X, model.cluster_centers_)
                if reached <= goal:
                    return spent, reached
            if step is None:
                break
        return np.nan, reached


# ---------------------------------------------------------------- the parent's side


def against(
    workers: dict[str, common.Worker], seconds: dict[str, list[float]]
) -> dict[str, dict[str, float]]:
    """Return the median seconds of each library, and the ratios to shoal."""
    found = {}
    for peer in workers:
        ratios = np.array(seconds[peer]) / np.array(seconds["shoal"])
        low, middle, high = (float(q) for q in np.quantile(ratios, [0.25, 0.5, 0.75]))
        typical = 1e3 * common.median(seconds[peer])
        found[peer] = {"ms": typical, "ratio": middle, "ratio low": low, "ratio high": high}
    return found


def measure(workers: dict[str, common.Worker], args: argparse.Namespace, k: int) -> list[dict[str, Any]]:
    """Measure the rows of the table for one number of clusters."""
    for worker in workers.values():
        worker.call("begin", args.data, args.dtype, k, args.batch)
    shape = {"data": args.data, "k": k, "dtype": args.dtype, "threads": args.threads}
    rows: list[dict[str, Any]] = []

    def note(what: str, seconds: dict[str, list[float]], inertia: dict[str, float]) -> None:
        for peer, figures in against(workers, seconds).items():
            rows.append(
                {**shape, "what": what, "peer": peer, **figures, "inertia": inertia.get(peer, np.nan)}
            )

    for algorithm in ("lloyd", "auto"):
        seconds: dict[str, list[float]] = {peer: [] for peer in workers}
        inertia: dict[str, float] = {}
        for _ in range(args.rounds):
            for peer, worker in workers.items():
                spent, inertia[peer] = worker.call("sweep", k, algorithm)
                seconds[peer].append(spent)
        note(f"sweep, {algorithm}", seconds, inertia)
    seconds = {peer: [] for peer in workers}
    for turn in range(args.steps):
        for peer, worker in workers.items():
            seconds[peer].append(worker.call("step", turn * args.batch % 15_000, args.batch))
    note("partial_fit", seconds, {})
    seconds = {peer: [] for peer in workers}
    until: dict[str, dict[str, list[float]]] = {what: {peer: [] for peer in workers} for what in TO_REACH}
    inertia, ends = {}, dict.fromkeys(TO_REACH, np.nan)
    for _ in range(args.rounds):
        for peer, worker in workers.items():
            spent, inertia[peer] = worker.call("fit", k, args.batch)
            seconds[peer].append(spent)
        for what, both in until.items():
            both["sklearn"].append(seconds["sklearn"][-1])
            spent, ends[what] = workers["shoal"].call("reach", what, k, args.batch, inertia["sklearn"])
            both["shoal"].append(spent)
    note("mini-batch fit", seconds, inertia)
    for what, both in until.items():
        note(f"{what} until as low", both, {**inertia, "shoal": ends[what]})
    return rows


COLUMNS = {
    "data": "",
    "dtype": "",
    "k": "d",
    "threads": "d",
    "what": "",
    "peer": "",
    "ms": ".2f",
    "ratio": ".2f",
    "ratio low": ".2f",
    "ratio high": ".2f",
    "inertia": ".6g",
}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", default="news20_counts", help="the data set (default news20_counts)")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float64")
    parser.add_argument("-k", type=int, nargs="*", default=[20, 200], help="clusters (default 20 200)")
    parser.add_argument("--steps", type=int, default=30, help="batches (default 30)")
    parser.add_argument("--batch", type=int, default=1024, help="rows of a batch (default 1024)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    common.add_options(
        parser, quick="5 batches, 1 round, no result file", threads=True, worker=["shoal", "sklearn"]
    )
    args = parser.parse_args()
    if args.worker:
        common.serve(Handler(args.worker))
        return
    if args.quick:
        args.steps, args.rounds = min(args.steps, 5), 1
    head = common.announced(["numpy", "scipy", "shoal", "scikit-learn"])
    workers = {peer: common.Worker(__file__, peer, threads=args.threads) for peer in ("shoal", "sklearn")}
    rows = []
    with common.closing(workers.values()):
        for k in args.k:
            found = measure(workers, args, k)
            print("\n" + common.table(found, COLUMNS), flush=True)
            rows += found
    common.keep("sparse", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
