"""Time of a sweep of k-means compared with other libraries: same rows, initial centers, sweeps and threads.

Every library runs in a process of its own. Runs are interleaved (A B C A B C ...), and ratios are taken
within a round. The time of a sweep is (time of `1 + sweeps` sweeps - time of 1 sweep) / sweeps. This leaves
out the work that is done once per fit: checks, copies, a seeding that cannot be switched off, the final
labeling. ``s/fit`` is the time of all sweeps and ``s/first`` that of a fit of 1 sweep, both with that work.
Fits of less than half a second are repeated up to ten times in every round, and the fastest counts.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import _common as common
import numpy as np

PACKAGES = {
    "shoal": "shoal",
    "sklearn": "scikit-learn",
    "sklearnex": "scikit-learn-intelex",
    "faiss": "faiss-cpu",
    "faiss-super": "faiss-cpu",
    "superkmeans": "superkmeans",
    "rustcluster": "rustcluster",
}
#: Libraries that draw their own initial centers and accept none.
OWN_START = {"faiss-super", "superkmeans", "rustcluster"}
#: Libraries that compute in float32 only.
SINGLE = {"faiss", "faiss-super", "superkmeans"}

#: A shorter fit than this many seconds is repeated up to this many times per round, and the fastest counts.
LONG_ENOUGH, MOST_REPEATS = 0.5, 10

# ---------------------------------------------------------------- the worker's side

Fit = tuple[np.ndarray, int]


def fit_shoal(X: np.ndarray, start: np.ndarray, sweeps: int, threads: int) -> Fit:
    import shoal

    algorithm = os.environ["SHOAL_BENCH_ALGORITHM"]
    params = {"init": start, "n_init": 1, "max_iter": sweeps, "tol": 0.0, "algorithm": algorithm}
    model = shoal.KMeans(len(start), **params, n_jobs=threads).fit(X)
    return model.cluster_centers_, model.n_iter_


def fit_sklearn(X: np.ndarray, start: np.ndarray, sweeps: int, threads: int) -> Fit:
    from sklearn.cluster import KMeans

    model = KMeans(len(start), init=start, n_init=1, max_iter=sweeps, tol=0.0, algorithm="lloyd").fit(X)
    return model.cluster_centers_, model.n_iter_


def fit_sklearnex(X: np.ndarray, start: np.ndarray, sweeps: int, threads: int) -> Fit:
    from sklearnex.cluster import KMeans

    model = KMeans(len(start), init=start, n_init=1, max_iter=sweeps, tol=0.0, algorithm="lloyd").fit(X)
    return model.cluster_centers_, model.n_iter_


def fit_faiss(X: np.ndarray, start: np.ndarray, sweeps: int, threads: int) -> Fit:
    import faiss

    faiss.omp_set_num_threads(threads)
    everything = {"min_points_per_centroid": 1, "max_points_per_centroid": len(X)}
    model = faiss.Kmeans(X.shape[1], len(start), niter=sweeps, nredo=1, seed=1, **everything)
    model.train(X, init_centroids=start)
    return model.centroids, len(model.obj)


def fit_faiss_super(X: np.ndarray, start: np.ndarray, sweeps: int, threads: int) -> Fit:
    import faiss

    faiss.omp_set_num_threads(threads)
    everything = {"min_points_per_centroid": 1, "max_points_per_centroid": len(X)}
    model = faiss.SuperKmeans(X.shape[1], len(start), niter=sweeps, seed=1, **everything)
    model.train(X)
    return model.centroids, len(model.obj)


def fit_superkmeans(X: np.ndarray, start: np.ndarray, sweeps: int, threads: int) -> Fit:
    from superkmeans import SuperKMeans

    model = SuperKMeans(
        len(start),
        X.shape[1],
        hierarchical=False,
        iters=sweeps,
        sampling_fraction=1.0,
        max_points_per_cluster=len(X),
        n_threads=threads,
        early_termination=False,
        tol=0.0,
    )
    centers = model.train(X)
    return np.asarray(centers), len(model.iteration_stats)


def fit_rustcluster(X: np.ndarray, start: np.ndarray, sweeps: int, threads: int) -> Fit:
    from rustcluster import KMeans

    model = KMeans(len(start), max_iter=sweeps, tol=0.0, random_state=0, n_init=1).fit(X)
    return np.asarray(model.cluster_centers_), model.n_iter_


FITS = {
    "shoal": fit_shoal,
    "sklearn": fit_sklearn,
    "sklearnex": fit_sklearnex,
    "faiss": fit_faiss,
    "faiss-super": fit_faiss_super,
    "superkmeans": fit_superkmeans,
    "rustcluster": fit_rustcluster,
}
MODULES = {"sklearn": "sklearn.cluster", "sklearnex": "sklearnex.cluster", "faiss-super": "faiss"}


class Handler:
    """Commands of the worker."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._threads = int(os.environ["SHOAL_BENCH_THREADS"])
        self._X = np.empty((0, 0))
        self._start = self._X

    def __call__(self, command: str, *args: Any) -> Any:
        return getattr(self, command)(*args)

    def ready(self) -> None:
        """Import the library."""
        __import__(MODULES.get(self._peer, self._peer))

    def data(self, rows: str, start: str) -> str:
        """Read rows and initial centers; return the compute type."""
        self._X, self._start = np.load(rows), np.load(start)
        if self._peer in SINGLE:
            self._X, self._start = self._X.astype(np.float32, copy=False), self._start.astype(np.float32)
        return {"float32": "f32", "float64": "f64"}[self._X.dtype.name]

    def fit(self, sweeps: int) -> tuple[float, float, int, np.ndarray]:
        """Return seconds, processor seconds, completed sweeps, and centers."""
        busy = resource.getrusage(resource.RUSAGE_SELF)
        t = time.perf_counter()
        centers, done = FITS[self._peer](self._X, self._start, sweeps, self._threads)
        seconds = time.perf_counter() - t
        now = resource.getrusage(resource.RUSAGE_SELF)
        used = now.ru_utime + now.ru_stime - busy.ru_utime - busy.ru_stime
        return seconds, used, int(done), np.asarray(centers)


# ---------------------------------------------------------------- the parent's side


def start_workers(args: argparse.Namespace) -> tuple[dict[str, common.Worker], list[str]]:
    """Start workers of the libraries that can be imported; also return why the others cannot."""
    workers, missing = {}, []
    for peer in args.peers:
        env = {"SHOAL_BENCH_ALGORITHM": args.algorithm} if peer == "shoal" else {}
        if peer.startswith("faiss"):
            env = common.blas_settings()
        worker = common.Worker(__file__, peer, threads=args.threads, env=env)
        try:
            worker.call("ready")
            workers[peer] = worker
        except RuntimeError as error:
            worker.close()
            missing.append(f"{peer}: missing ({error})")
    return workers, missing


def measure(spec: str, workers: dict[str, common.Worker], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the rows of the table for one data set."""
    name, X, k = common.load(spec)
    if args.quick:
        X = np.ascontiguousarray(X[: max(20_000, 20 * k)])
    start = common.distinct_rows(X, k)
    found: dict[str, dict[str, Any]] = {}
    repeats: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        rows_file, start_file = str(Path(folder, "rows.npy")), str(Path(folder, "start.npy"))
        np.save(rows_file, X)
        np.save(start_file, start)
        for peer, worker in workers.items():
            row: dict[str, Any] = {"data": name, "n": len(X), "d": X.shape[1], "k": k, "peer": peer}
            row |= {"threads": args.threads, "rounds": args.rounds}
            row["start"] = "own" if peer in OWN_START else "given"
            found[peer] = row
            try:
                row["type"] = worker.call("data", rows_file, start_file)
                # The warm-up measures the memory, because sampling would disturb the timings.
                (seconds, _, done, centers), peak = worker.watched("fit", 1 + args.sweeps)
            except RuntimeError as error:
                row["note"] = f"failed: {error}"
                continue
            repeats[peer] = int(np.clip(np.ceil(LONG_ENOUGH / seconds), 1, MOST_REPEATS))
            row["sweeps"] = done
            row["MB"] = peak / 1e6
            row["objective"] = common.objective(X, centers)
            if done != 1 + args.sweeps:
                row["note"] = f"{done} sweeps instead of {1 + args.sweeps}"
    alive = [peer for peer, row in found.items() if "objective" in row]
    times: dict[str, list[tuple[float, float, float, float]]] = {peer: [] for peer in alive}
    for _ in range(args.rounds):
        for peer in alive:
            short = [workers[peer].call("fit", 1)[:3] for _ in range(repeats[peer])]
            long = [workers[peer].call("fit", 1 + args.sweeps)[:3] for _ in range(repeats[peer])]
            clock = 1 if args.clock == "processor" else 0
            few, few_done = min((fit[clock], fit[2]) for fit in short)
            many, many_done, wall, used = min((fit[clock], fit[2], fit[0], fit[1]) for fit in long)
            times[peer].append(((many - few) / max(1, many_done - few_done), many, used / wall, few))
    for peer in alive:
        row = found[peer]
        row["ms/sweep"] = 1e3 * common.median(t[0] for t in times[peer])
        row["s/fit"] = common.median(t[1] for t in times[peer])
        row["cpus"] = common.median(t[2] for t in times[peer])
        row["s/first"] = common.median(t[3] for t in times[peer])
        if min(t[0] for t in times[peer]) <= 0.0:
            row["note"] = "more noise than time: take more sweeps, or a quiet machine"
        if "shoal" in times:
            pairs = list(zip(times[peer], times["shoal"], strict=True))
            for column, at in (("ratio", 0), ("fit ratio", 1), ("first ratio", 3)):
                ratios = [t[at] / ours[at] for t, ours in pairs]
                row[column] = common.median(ratios)
                row[f"{column} low"], row[f"{column} high"] = min(ratios), max(ratios)
        reference = found[alive[0]]["objective"]
        row["objective +"] = row["objective"] / reference - 1.0
    return list(found.values())


COLUMNS = {
    "data": "",
    "k": "d",
    "peer": "",
    "type": "",
    "start": "",
    "threads": "d",
    "sweeps": "d",
    "ms/sweep": ".1f",
    "ratio": ".2f",
    "ratio low": ".2f",
    "ratio high": ".2f",
    "s/fit": ".2f",
    "fit ratio": ".2f",
    "s/first": ".3f",
    "first ratio": ".2f",
    "cpus": ".2f",
    "MB": ".0f",
    "objective": ".9g",
    "objective +": "+.1e",
    "note": "",
}


def main() -> None:
    parser = common.parser(__doc__)
    default = ["sift_bsds_trainval:1024", "mnist_70k:256", "cover_286k:50", "uk_accidents_lnglat_140k:100"]
    parser.add_argument("--data", nargs="+", default=default, metavar="NAME:K[:f32|f64]")
    parser.add_argument("--peers", nargs="+", default=list(FITS), choices=list(FITS))
    parser.add_argument("--sweeps", type=int, default=5, help="sweeps that are timed (default 5)")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default 7)")
    parser.add_argument("--clock", choices=["wall", "processor"], default="wall")
    parser.add_argument("--algorithm", default="lloyd", help="of shoal.KMeans (default lloyd)")
    common.add_options(parser, quick="20,000 rows, 2 rounds, no result file", threads=True)
    parser.add_argument("--worker", choices=list(FITS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        common.serve(Handler(args.worker))
        return
    if args.sweeps < 1 or args.rounds < 1 or not 1 <= args.threads <= common.cores():
        parser.error(f"at least 1 sweep and 1 round, and 1 to {common.cores()} threads")
    if args.quick:
        args.rounds = min(args.rounds, 2)
    head = common.description(dict.fromkeys(["numpy", *(PACKAGES[p] for p in args.peers)]))
    head["faiss BLAS core"] = common.blas_core() or "as found"
    workers, missing = start_workers(args)
    for line in missing:
        head[line.split(":")[0]] = line.split(": ", 1)[1]
    common.announce(head)
    rows = []
    with common.closing(workers.values()):
        for spec in args.data:
            part = measure(spec, workers, args)
            print("\n" + common.table(part, COLUMNS), flush=True)
            rows += part
    common.keep("peers", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
