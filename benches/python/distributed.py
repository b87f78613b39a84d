"""k-means on a Dask cluster of local processes, compared with one process, dask-ml and Spark MLlib.

All run on the same rows and the same number of threads, and take turns (A B C A B C ...). A sweep is the time
of a fit of many sweeps minus that of a fit of few, divided by the difference in sweeps: it has neither the
start of a fit nor its last pass. Workers of `shoal.dask` keep no state. Spark chooses its first centers
itself; all others start from the same rows. `seeding` is the time of a fit with one sweep and the seeding
minus that of one with one sweep and given centers. Peers that are not installed are skipped.

`cluster MB` is the peak of anonymous memory of the client and the scheduler, which share a process, and
`worker MB` that of the largest worker, both beyond the memory before the fit.

    python benches/python/distributed.py
    python benches/python/distributed.py --model      # seconds of a sweep by partitions and bytes of a result
    python benches/python/distributed.py --cuts 4 256 # the same rows in more partitions
    python benches/python/distributed.py --kept 2000000:32:100  # sweeps whose workers keep state, or nothing

`--model` measures sweeps over few rows, which cost little but the exchange of results, and fits
``seconds = a + b * partitions + c * partitions * bytes of a result + e * operations``.

`--cuts` measures sweeps of `shoal.dask` over the same rows in several numbers of partitions, which the fit
computes (``fit``) or which were persisted before, where Dask put them (``caller``).

`--kept` measures the sweeps of a fit of `--sweeps` sweeps, for rows, columns and clusters: of `shoal.dask`
whose workers keep state, of `shoal.dask` whose workers keep nothing, and of `shoal.KMeans`. `early s` is the
median of sweeps 2 to 4, and `late s` that of the last third.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

# The folder of this script must not hide the packages `distributed` and `sparse`, also in processes that Dask
# starts, which run these lines again.
HERE = str(Path(__file__).resolve().parent)
others = [folder for folder in sys.path if folder != HERE]
sys.path[:] = [HERE, *others]
import _common as common  # noqa: E402

sys.path[:] = others

#: Target: time of a sweep on the cluster, divided by that of one process with the same threads.
TARGET = 1.3
#: The sweeps of the two fits whose times are subtracted.
FEW, MANY = 2, 12
PEERS = {"local": "shoal", "shoal.dask": "distributed", "dask-ml": "dask_ml", "spark": "pyspark"}


def rows_of(n: int, d: int, k: int) -> np.ndarray:
    """Make blobs: the centers are as far apart as rows of one blob."""
    rng = np.random.default_rng(0)
    middles = rng.normal(size=(k, d)).astype(np.float32)
    X = rng.standard_normal((n, d), dtype=np.float32)
    X += middles[rng.integers(0, k, n)]
    return X


class Local:
    """`shoal.KMeans` in this process."""

    def open(self, path: str, partitions: int, threads: int) -> None:
        self.rows, self.threads = np.load(path), threads

    def fit(self, k: int, init: Any, sweeps: int, **options: Any) -> Any:
        from shoal import KMeans

        options = {"algorithm": "lloyd", "random_state": 0, "n_jobs": self.threads} | options
        model = KMeans(k, init=init, n_init=1, max_iter=sweeps, tol=0.0, **options).fit(self.rows)
        self.elapsed = model.history_["elapsed"]
        return model.cluster_centers_

    def cpu(self) -> float:
        """Return the CPU seconds of this process."""
        return time.process_time()


class OnCluster:
    """The parts that all users of a Dask cluster share."""

    def open(self, path: str, partitions: int, threads: int, persisted: bool = True) -> None:
        from distributed import Client, LocalCluster, wait

        self.cluster = LocalCluster(
            n_workers=threads,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            memory_limit=0,
            silence_logs=logging.ERROR,
        )
        self.client = Client(self.cluster)
        self.rows = self.array(path, partitions)
        if persisted:
            self.rows = self.client.persist(self.rows)
            wait(self.rows)

    def array(self, path: str, partitions: int) -> Any:
        import dask.array as da

        mapped = np.load(path, mmap_mode="r")
        n, d = mapped.shape
        edges = np.linspace(0, n, partitions + 1).astype(int)
        sizes = tuple(int(size) for size in np.diff(edges))
        return da.map_blocks(
            read, path, chunks=(sizes, (d,)), dtype=mapped.dtype, meta=np.empty((0, 0), mapped.dtype)
        )

    def cpu(self) -> float:
        """Return the CPU seconds of the client, the scheduler and the workers."""
        return time.process_time() + sum(self.client.run(time.process_time).values())

    def pids(self) -> list[int]:
        return list(self.client.run(os.getpid).values())


def read(path: str, block_info: Any = None) -> np.ndarray:
    """Read one partition on its worker."""
    (start, stop), _ = block_info[None]["array-location"]
    return np.array(np.load(path, mmap_mode="r")[start:stop])


class ShoalDask(OnCluster):
    """`shoal.dask.KMeans`."""

    def fit(self, k: int, init: Any, sweeps: int, **options: Any) -> Any:
        from shoal.dask import KMeans

        # Sweeps that measure all distances, like those of the others.
        options = {"memory": 0, "random_state": 0, "compute_labels": False} | options
        model = KMeans(k, init=init, max_iter=sweeps, tol=0.0, **options).fit(self.rows, client=self.client)
        self.elapsed = model.history_["elapsed"]
        return model.cluster_centers_


class DaskML(OnCluster):
    """`dask_ml.cluster.KMeans`."""

    def fit(self, k: int, init: Any, sweeps: int, **options: Any) -> Any:
        from dask_ml.cluster import KMeans

        return (
            KMeans(k, init=init, max_iter=sweeps, tol=0.0, random_state=0, **options)
            .fit(self.rows)
            .cluster_centers_
        )


class Spark:
    """`pyspark.ml.clustering.KMeans` on threads of one Java process."""

    def open(self, path: str, partitions: int, threads: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq
        from pyspark.ml.functions import array_to_vector
        from pyspark.sql import SparkSession

        self.folder = tempfile.TemporaryDirectory()
        X = np.load(path)
        for i, part in enumerate(np.array_split(X, partitions)):
            values = pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), part.shape[1])
            pq.write_table(
                pa.table({"x": values.cast(pa.list_(pa.float32()))}), f"{self.folder.name}/{i}.parquet"
            )
        self.session = (
            SparkSession.builder.master(f"local[{threads}]")
            .config("spark.driver.memory", "6g")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .getOrCreate()
        )
        self.session.sparkContext.setLogLevel("ERROR")
        frame = self.session.read.parquet(self.folder.name)
        self.rows = frame.select(array_to_vector("x").alias("features")).cache()
        self.rows.count()

    def fit(self, k: int, init: Any, sweeps: int, **options: Any) -> Any:
        from pyspark.ml.clustering import KMeans

        mode = init if isinstance(init, str) else "random"
        model = KMeans(k=k, maxIter=sweeps, tol=0.0, seed=1, initMode=mode, **options).fit(self.rows)
        return np.array(model.clusterCenters())


class Handler:
    """The worker: commands that return seconds."""

    def __init__(self, name: str) -> None:
        self.user: Any = {"local": Local, "shoal.dask": ShoalDask, "dask-ml": DaskML, "spark": Spark}[name]()

    def __call__(self, command: str, *args: Any) -> Any:
        """Run one of the methods below."""
        return getattr(self, command)(*args)

    def open(self, *args: Any) -> None:
        """Load the rows."""
        self.user.open(*args)

    def fit(self, k: int, init: Any, sweeps: int, options: dict[str, Any]) -> tuple[float, Any]:
        """Return the seconds of a fit, and its centers."""
        begun = time.perf_counter()
        centers = self.user.fit(k, init, sweeps, **options)
        return time.perf_counter() - begun, centers

    def sweeps(self, k: int, init: Any, n: int) -> tuple[list[float], float]:
        """Return the seconds of the sweeps of a fit but the first one, and the CPU seconds of a sweep."""
        spent = []
        for sweeps in (FEW, n):
            before = self.user.cpu()
            self.user.fit(k, init, sweeps)
            spent.append(self.user.cpu() - before)
        return np.diff(self.user.elapsed).tolist(), (spent[1] - spent[0]) / (n - FEW)

    def every_sweep(
        self, k: int, init: Any, n: int, options: dict[str, Any]
    ) -> tuple[list[float], float, float]:
        """Return the seconds of the sweeps of a fit but the first one, its CPU seconds, and its seconds."""
        before, begun = self.user.cpu(), time.perf_counter()
        self.user.fit(k, init, n, **options)
        seconds, cpu = time.perf_counter() - begun, self.user.cpu() - before
        return np.diff(self.user.elapsed).tolist(), cpu, seconds

    def memory(self, k: int, init: Any) -> tuple[int, int]:
        """Return the peaks of this process and of the largest worker during a fit."""
        here, there = os.getpid(), self.user.pids()
        before = {pid: common.anonymous(pid) for pid in (here, *there)}
        peaks, done = dict(before), threading.Event()

        def sample() -> None:
            while not done.wait(0.002):
                for pid, peak in peaks.items():
                    peaks[pid] = max(peak, common.anonymous(pid))

        sampler = threading.Thread(target=sample)
        sampler.start()
        try:
            self.user.fit(k, init, MANY)
        finally:
            done.set()
            sampler.join()
        more = {pid: peaks[pid] - before[pid] for pid in peaks}
        return more[here], max(more[pid] for pid in there)


COLUMNS = {
    "library": "",
    "n": "d",
    "d": "d",
    "k": "d",
    "partitions": "d",
    "threads": "d",
    "sweep s": ".4f",
    "against local": ".2f",
    "low": ".2f",
    "high": ".2f",
    "seeding": "",
    "seeding s": ".2f",
    "inertia": ".5g",
    "cluster MB": ".0f",
    "worker MB": ".0f",
}

#: Names of the seedings of each library that are measured.
SEEDINGS = {
    "local": ("auto", "k-means||"),
    "shoal.dask": ("k-means++", "k-means||"),
    "dask-ml": ("k-means||",),
    "spark": ("k-means||",),
}


def installed(name: str) -> bool:
    """Whether a library can be measured here."""
    return importlib.util.find_spec(PEERS[name]) is not None


def compare(args: Any, names: list[str], path: Path) -> list[dict[str, Any]]:
    """Measure sweeps, seedings and memory of all libraries."""
    X = np.load(path, mmap_mode="r")
    start = common.distinct_rows(np.asarray(X[:100_000]), args.k)
    workers = {name: common.Worker(__file__, name, threads=args.threads) for name in names}
    with common.closing(workers.values()):
        for worker in workers.values():
            worker.call("open", str(path), args.partitions, args.threads)
            worker.call("fit", args.k, start, 1, {})
        bests: dict[str, list[float]] = {name: [] for name in names}
        variants = {name: {} for name in names}
        if "local" in names:
            variants["local, auto"] = {"algorithm": "auto"}
            bests["local, auto"] = []
        centers: dict[str, Any] = {}
        for _ in range(args.rounds):
            for name, options in variants.items():
                worker = workers[name.partition(",")[0]]
                few, _ = worker.call("fit", args.k, start, FEW, options)
                many, centers[name] = worker.call("fit", args.k, start, MANY, options)
                bests[name].append((many - few) / (MANY - FEW))
        rows = []
        for name, seconds in bests.items():
            row = {"library": name, "n": len(X), "d": X.shape[1], "k": args.k, "partitions": args.partitions}
            row |= {"threads": args.threads, "sweep s": common.median(seconds)}
            if "local" in bests:
                ratios = [own / one for own, one in zip(seconds, bests["local"], strict=True)]
                row |= {"against local": common.median(ratios), "low": min(ratios), "high": max(ratios)}
            row["inertia"] = common.objective(np.asarray(X[:200_000]), centers[name])
            if name in ("shoal.dask", "dask-ml"):
                row["cluster MB"], row["worker MB"] = (
                    each / 1e6 for each in workers[name].call("memory", args.k, start)
                )
            rows.append(row)
        for name in names:
            for seeding in SEEDINGS[name] if args.seedings else ():
                spent = []
                for _ in range(args.seedings):
                    whole, centers[name] = workers[name].call("fit", args.k, seeding, 1, {})
                    one, _ = workers[name].call("fit", args.k, start, 1, {})
                    spent.append(whole - one)
                row = {
                    "library": name,
                    "n": len(X),
                    "d": X.shape[1],
                    "k": args.k,
                    "partitions": args.partitions,
                }
                row |= {"threads": args.threads, "seeding": seeding, "seeding s": common.median(spent)}
                row["inertia"] = common.objective(np.asarray(X[:200_000]), centers[name])
                rows.append(row)
    print("\n" + common.table(rows, COLUMNS), flush=True)
    if {"local", "shoal.dask"} <= set(names):
        reached = next(row["against local"] for row in rows if row["library"] == "shoal.dask")
        print(f"target: {TARGET}; reached: {reached:.2f}")
    return rows


def model(args: Any, folder: Path) -> list[dict[str, Any]]:
    """Measure what a sweep costs beside its arithmetic, and fit constants."""
    rows: list[dict[str, Any]] = []
    for partitions, k, d in args.shapes:
        path = folder / f"{partitions}-{k}-{d}.npy"
        # Few rows, but too many to converge within the sweeps.
        X = rows_of(max(20_000, 8 * k), d, min(k, 100))
        np.save(path, X)
        worker = common.Worker(__file__, "shoal.dask", threads=args.threads)
        with common.closing([worker]):
            worker.call("open", str(path), partitions, args.threads)
            worker.call("fit", k, X[:k], 1, {})
            spent = []
            for _ in range(args.rounds):
                few, _ = worker.call("fit", k, X[:k], FEW, {})
                many, _ = worker.call("fit", k, X[:k], MANY, {})
                spent.append((many - few) / (MANY - FEW))
        size = k * (d + 2) * 16
        row = {"partitions": partitions, "k": k, "d": d, "bytes": size}
        rows.append(row | {"operations": 2 * len(X) * k * d, "sweep s": min(spent)})
        path.unlink()
    P, size, seconds = (
        np.array([row[name] for row in rows], float) for name in ("partitions", "bytes", "sweep s")
    )
    operations = np.array([row["operations"] for row in rows], float)
    A = np.stack([np.ones_like(P), P, P * size, operations], axis=1)
    # Relative errors, so that short sweeps count too.
    found, *_ = np.linalg.lstsq(A / seconds[:, None], np.ones_like(seconds), rcond=None)
    for row, expected in zip(rows, A @ found, strict=True):
        row["model s"] = float(expected)
    columns = {"partitions": "d", "k": "d", "d": "d", "bytes": "d", "sweep s": ".4f", "model s": ".4f"}
    print("\n" + common.table(rows, columns))
    a, b, c, e = found * (1e3, 1e3, 1e9, 1e12)
    print(f"a = {a:.1f} ms, b = {b:.2f} ms a partition, c = {c:.2f} ns a byte, {e:.1f} ps an operation")
    return rows


def cuts(args: Any, path: Path) -> list[dict[str, Any]]:
    """Measure sweeps over the same rows in several numbers of partitions."""
    X = np.load(path, mmap_mode="r")
    start = common.distinct_rows(np.asarray(X[:100_000]), args.k)
    spent: dict[tuple[str, int], list[float]] = {
        (place, n): [] for place in ("fit", "caller") for n in args.cuts
    }
    cpu: dict[tuple[str, int], list[float]] = {key: [] for key in spent}
    for _ in range(args.rounds):
        for (place, n), seconds in spent.items():
            # One cluster at a time: the processes of an idle one work, too.
            worker = common.Worker(__file__, "shoal.dask", threads=args.threads)
            with common.closing([worker]):
                worker.call("open", str(path), n, args.threads, place == "caller")
                worker.call("fit", args.k, start, 1, {})
                each, of_cpu = worker.call("sweeps", args.k, start, args.sweeps)
            seconds += each
            cpu[place, n].append(of_cpu)
    rows = []
    for (place, n), seconds in spent.items():
        own, first = cpu[place, n], spent[place, args.cuts[0]]
        first_cpu = common.median(cpu[place, args.cuts[0]])
        row = {"placed by": place, "n": len(X), "d": X.shape[1], "k": args.k}
        row |= {"partitions": n, "threads": args.threads, "sweep s": common.median(seconds)}
        row |= {"against first": common.median(seconds) / common.median(first), "least s": min(seconds)}
        row |= {"least against first": min(seconds) / min(first), "cpu s": common.median(own)}
        rows.append(row | {"cpu against first": common.median(own) / first_cpu})
    columns = {"placed by": "", "partitions": "d", "sweep s": ".4f", "against first": ".2f"}
    columns |= {"least s": ".4f", "least against first": ".2f", "cpu s": ".4f", "cpu against first": ".2f"}
    print("\n" + common.table(rows, columns), flush=True)
    return rows


#: What `--kept` measures: a library, and the options of its estimator.
KEEPING = {
    "local": ("local", {"algorithm": "auto"}),
    "kept": ("shoal.dask", {"memory": "1GB"}),
    "nothing kept": ("shoal.dask", {}),
}


def kept(args: Any, path: Path, k: int) -> list[dict[str, Any]]:
    """Measure the sweeps of fits whose workers keep state, or nothing."""
    X = np.load(path, mmap_mode="r")
    start = common.distinct_rows(np.asarray(X[:100_000]), k)
    measured: dict[str, list[tuple[float, ...]]] = {name: [] for name in KEEPING}
    for _ in range(args.rounds):
        for name, (library, options) in KEEPING.items():
            # One cluster at a time: the processes of an idle one work, too.
            worker = common.Worker(__file__, library, threads=args.threads)
            with common.closing([worker]):
                worker.call("open", str(path), args.partitions, args.threads)
                worker.call("fit", k, start, FEW, options)
                sweeps, cpu, seconds = worker.call("every_sweep", k, start, args.sweeps, options)
            late = sweeps[-(len(sweeps) // 3) :]
            measured[name].append((common.median(sweeps[:3]), common.median(late), seconds, cpu))
    rows = []
    for name, found in measured.items():
        row = {"library": KEEPING[name][0], "state": name, "n": len(X), "d": X.shape[1], "k": k}
        row |= {"partitions": args.partitions, "threads": args.threads, "sweeps": args.sweeps}
        for i, column in enumerate(("early s", "late s", "fit s", "fit cpu s")):
            row[column] = common.median([each[i] for each in found])
        ratios = [each[1] / full[1] for each, full in zip(found, measured["nothing kept"], strict=True)]
        rows.append(row | {"late against nothing kept": common.median(ratios)})
    columns = {"state": "", "early s": ".4f", "late s": ".4f", "fit s": ".3f", "fit cpu s": ".3f"}
    print("\n" + common.table(rows, columns | {"late against nothing kept": ".2f"}), flush=True)
    return rows


def shape(text: str) -> tuple[int, int, int]:
    """Parse three numbers such as ``partitions:k:d``."""
    one, two, three = (int(part) for part in text.split(":"))
    return one, two, three


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("-n", type=int, default=2_000_000, help="rows (default 2,000,000)")
    parser.add_argument("-d", type=int, default=32, help="columns (default 32)")
    parser.add_argument("-k", type=int, default=100, help="clusters (default 100)")
    parser.add_argument("--partitions", type=int, default=4, help="partitions (default 4)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument(
        "--seedings", type=int, default=1, help="rounds of the seedings, 0 for none (default 1)"
    )
    parser.add_argument("--libraries", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--model", action="store_true", help="measure the exchange of results instead")
    parser.add_argument("--cuts", nargs="+", type=int, help="numbers of partitions to compare instead")
    parser.add_argument(
        "--kept", nargs="+", type=shape, help="n:d:k; measure the state that workers keep instead"
    )
    parser.add_argument(
        "--sweeps", type=int, default=30, help="sweeps of a fit of --cuts and --kept (default 30)"
    )
    parser.add_argument(
        "--shapes",
        nargs="+",
        type=shape,
        default=[shape(s) for s in ("2:10:8", "16:10:8", "64:10:8", "2:1000:64", "16:1000:64", "64:1000:64")],
        help="partitions:k:d of --model",
    )
    common.add_options(parser, quick="20,000 rows, 1 round, no result file", threads=True, worker=list(PEERS))
    args = parser.parse_args()
    if args.worker:
        common.serve(Handler(args.worker))
        return
    if args.quick:
        args.n, args.rounds, args.k = 20_000, 1, min(args.k, 20)
        args.kept = args.kept and [(20_000, args.d, args.k)]
        args.shapes = [(2, 10, 8), (4, 10, 8), (2, 100, 64)]
    names = [name for name in args.libraries if installed(name)]
    for name in set(args.libraries) - set(names):
        print(f"{name} is not installed")
    head = common.announced(["numpy", "shoal", "dask", "distributed", "dask-ml", "pyspark"])
    with tempfile.TemporaryDirectory() as folder:
        path, kind = Path(folder) / "rows.npy", "distributed"
        if args.model:
            rows, kind = model(args, Path(folder)), "distributed-model"
        elif args.kept:
            rows, kind = [], "distributed-kept"
            for n, d, k in args.kept:
                np.save(path, rows_of(n, d, k))
                rows += kept(args, path, k)
        else:
            np.save(path, rows_of(args.n, args.d, args.k))
            if args.cuts:
                rows, kind = cuts(args, path), "distributed-partitions"
            else:
                rows = compare(args, names, path)
    common.keep(kind, head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
