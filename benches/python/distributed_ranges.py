"""Bytes and memory of a distributed sweep whose results merge in a tree, or in ranges of clusters.

Every worker is simulated by processes of this machine that run one after the other. They sum real rows, cut
and merge real partial results, and exchange them in files. So the bytes are those of a cluster, and peaks of
memory are those of single processes; times are not measured. A tree merges groups of 8 results as
`shoal.dask` does, and the driver commits the total. With ranges, worker `i` merges range `i`, one result
after the other, moves its centers and serves them; the driver receives a few numbers per cluster.

    python benches/python/distributed_ranges.py
    python benches/python/distributed_ranges.py --large 1000000 128

Columns: `driver in` and `driver out` are the MB that the driver receives and sends, `worker in` and
`worker out` those of the worker with the most, and `all` the MB between all processes. `sum MB`, `merge MB`
and `move MB` are the peaks of anonymous memory of a worker that sums its rows, merges results, and moves
centers, beyond that of the process before. `in units` is the peak of a worker beside its own rows, sums and
centers, which are as large for every way, divided by ``8 k d / workers`` bytes.

Rows of the kind `model` are computed for `--large`: the bytes of the first shape, in proportion to ``k d``,
and the seconds of the exchange at `--gigabits` per second and worker.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HERE = str(Path(__file__).resolve().parent)
others = [folder for folder in sys.path if folder != HERE]
sys.path[:] = [HERE, *others]
import _common as common  # noqa: E402

sys.path[:] = others

from shoal import _core  # noqa: E402
from shoal._distributed.engine import FAN_IN  # noqa: E402
from shoal._distributed.partial import Partial  # noqa: E402
from shoal._distributed.passes import KMeansPass  # noqa: E402
from shoal._distributed.ranges import RangedSweep, Ranges, Sent, moved, report, sweep_of  # noqa: E402

#: Number of the driver among the processes.
DRIVER = -1


class Shape(NamedTuple):
    """A sweep that is simulated."""

    workers: int
    rows_per_worker: int
    k: int
    d: int
    dtype: str


#: The first for its bytes. The others for the memory: their ranges are larger than what any process needs.
SHAPES = [
    Shape(100, 100, 2000, 64, "float32"),
    Shape(10, 200, 500, 8192, "float32"),
    Shape(10, 200, 500, 8192, "float64"),
]


def peak_of(work: Callable[[], Any], send: Any) -> None:
    """Run a task in a process of its own, and send its result and the peak of its memory."""
    # Memory that earlier work has freed would hide what this task takes.
    ctypes.CDLL(None).malloc_trim(0)
    before, peak, done = common.anonymous(os.getpid()), [0], threading.Event()

    def sample() -> None:
        while True:
            peak[0] = max(peak[0], common.anonymous(os.getpid()))
            if done.wait(0.0005):
                return

    sampler = threading.Thread(target=sample)
    sampler.start()
    result = work()
    done.set()
    sampler.join()
    send.send((result, max(0, peak[0] - before)))


class Cluster:
    """Simulated workers, and the bytes between them.

    What a worker holds is a file; handles are its path, its size and its worker.
    """

    def __init__(self, folder: Path, rows: np.ndarray, workers: int) -> None:
        self.folder, self.blocks, self.workers = folder, np.array_split(rows, workers), workers
        self.received, self.sent = (dict.fromkeys(range(DRIVER, workers), 0) for _ in range(2))
        self.peaks: dict[str, int] = {}
        self._count = 0

    @property
    def n_partitions(self) -> int:
        """A partition per worker."""
        return self.workers

    def on(self, worker: int, kind: str, given: Sequence[Any], work: Callable[..., list[bytes]]) -> list[Any]:
        """Run a task on a worker, which fetches what is given; return handles of the results."""
        for _, size, place in given:
            self.move(size, place, worker)

        def run() -> list[tuple[str, int, int]]:
            # Like Dask, a worker fetches everything that a task needs before it begins.
            results = work(*[Path(path).read_bytes() for path, _, _ in given])
            return [self.store(worker, f"{start}-{i}", data) for i, data in enumerate(results)]

        self._count += 1
        start = self._count
        if kind == "merge" and worker > 0:
            # Workers merge alike: the memory of one is measured.
            return run()
        here, there = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(target=peak_of, args=(run, there))
        process.start()
        handles, peak = here.recv()
        process.join()
        self.peaks[kind] = max(self.peaks.get(kind, 0), peak)
        return handles

    def store(self, worker: int, name: str, data: bytes) -> tuple[str, int, int]:
        """Keep bytes on a worker."""
        path = self.folder / name
        path.write_bytes(data)
        return str(path), len(data), worker

    def move(self, size: int, place: int, worker: int) -> None:
        """Count bytes from one process to another."""
        if place != worker:
            self.received[worker] += size
            self.sent[place] += size

    def fetch(self, handles: list[Any]) -> list[bytes]:
        """Receive what workers hold."""
        for _, size, place in handles:
            self.move(size, place, DRIVER)
        return [Path(path).read_bytes() for path, _, _ in handles]

    def broadcast(self, size: int) -> None:
        """Count bytes that the driver sends to every worker, which pass them on."""
        self.move(size, DRIVER, 0)
        for worker in range(1, self.workers):
            self.move(size, worker - 1, worker)

    def merge(self, worker: int, group: Sequence[Any]) -> Any:
        """Merge results on a worker."""

        def work(*parts: bytes) -> list[bytes]:
            return [_core.Partial.merged(list(parts))]

        (handle,) = self.on(worker, "merge", group, work)
        self.drop(group)
        return handle

    def drop(self, handles: Sequence[Any]) -> None:
        """Forget what workers hold."""
        for path, _, _ in handles:
            Path(path).unlink(missing_ok=True)

    def tree(self, level: list[Any], worker: Callable[[list[Any]], int]) -> Any:
        """Merge results in groups."""
        while len(level) > 1:
            groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
            level = [self.merge(worker(group), group) if len(group) > 1 else group[0] for group in groups]
        return level[0]

    # ------------------------------------------------------------ an engine of ranges

    def put(self, rows: Any) -> list[Any]:
        """Send centers to the workers of their ranges."""
        held = []
        for i, own in enumerate(rows):
            held.append(self.store(i, f"centers-{self._count}-{i}", own.tobytes()))
            self.move(held[-1][1], DRIVER, i)
        self.shape, self.dtype = (-1, rows[0].shape[1]), rows[0].dtype
        return held

    def fetched(self, rows: Any) -> list[np.ndarray]:
        """Receive centers."""
        return [self.array(data) for data in self.fetch(list(rows))]

    def array(self, data: bytes) -> np.ndarray:
        """Return rows of centers from bytes."""
        return np.frombuffer(data, self.dtype).reshape(self.shape)

    def range_totals(self, sent: Sent, ranges: Ranges) -> list[Any]:
        """Sum the rows, cut the results and merge those of each range."""
        n = len(ranges.centers)
        self.broadcast(len(sent.head))
        found = []
        for i, rows in enumerate(self.blocks):

            def work(*centers: bytes, i: int = i, rows: np.ndarray = rows) -> list[bytes]:
                task = sweep_of(sent, Ranges([self.array(own) for own in centers], None))
                return task.absorb(rows, partition=i, n_jobs=1)._state.ranges(n)

            found.append(self.on(i, "sum", ranges.centers, work))
        return [reduce(lambda *two, i=i: self.merge(i, two), [own[i] for own in found]) for i in range(n)]

    def reports(self, sent: Sent, ranges: Ranges, totals: Any) -> list[bytes]:
        """Let the workers of the ranges report."""
        found = []
        for i, given in enumerate(zip(totals, ranges.centers, strict=True)):

            def work(total: bytes, centers: bytes) -> list[bytes]:
                return [report(sent, total, self.array(centers), None)]

            found += self.on(i, "move", list(given), work)
        return self.fetch(found)

    def moved(self, sent: Sent, ranges: Ranges, totals: Any, moves: bytes) -> tuple[list[Any], list[bytes]]:
        """Move the centers of every range on its worker."""
        centers, found = [], []
        for i, given in enumerate(zip(totals, ranges.centers, strict=True)):

            def work(total: bytes, own: bytes) -> list[bytes]:
                new, reported = moved(sent, total, self.array(own), None, moves)
                return [new.tobytes(), reported]

            self.move(len(moves), DRIVER, i)
            new, reported = self.on(i, "move", list(given), work)
            centers.append(new)
            found.append(reported)
        return centers, self.fetch(found)


def by_tree(cluster: Cluster, task: KMeansPass) -> tuple[np.ndarray, Any]:
    """Run a sweep whose results merge in a tree."""
    cluster.broadcast(len(task.to_bytes()))
    found = []
    for i, rows in enumerate(cluster.blocks):

        def work(i: int = i, rows: np.ndarray = rows) -> list[bytes]:
            return [task.absorb(rows, partition=i, n_jobs=1).to_bytes()]

        found += cluster.on(i, "sum", [], work)
    total = cluster.tree(found, lambda group: group[0][2])
    task, step = task.commit(Partial.from_bytes(cluster.fetch([total])[0]))
    return task.centers, step


def by_ranges(cluster: Cluster, task: KMeansPass) -> tuple[np.ndarray, Any]:
    """Run a sweep in a range per worker."""
    sweep = RangedSweep.of(cluster, task, cluster.workers)
    # The first centers come from the driver; those of other sweeps do not.
    cluster.sent[DRIVER] = 0
    cluster.received = dict.fromkeys(cluster.received, 0)
    sweep, step, _ = sweep.swept()
    found = [Path(path).read_bytes() for path, _, _ in sweep._ranges.centers]
    return np.concatenate([cluster.array(own) for own in found]), step


def measure(shape: Shape, folder: Path) -> list[dict[str, Any]]:
    """Measure a sweep of each way, and compare the results."""
    workers, rows, k, d, dtype = shape
    X = np.random.default_rng(0).standard_normal((workers * rows, d)).astype(dtype)
    found, results = [], []
    for way, run in (("tree", by_tree), ("ranges", by_ranges)):
        with tempfile.TemporaryDirectory(dir=folder) as own:
            cluster = Cluster(Path(own), X, workers)
            centers, step = run(cluster, KMeansPass(X[:k]))
        results.append((centers.tobytes(), step.objective, step.center_shift))
        row = {"kind": "measured", "way": way, "dtype": dtype, "workers": workers, "k": k, "d": d}
        row |= {"driver in": cluster.received[DRIVER] / 1e6, "driver out": cluster.sent[DRIVER] / 1e6}
        for name, counts in (("worker in", cluster.received), ("worker out", cluster.sent)):
            row[name] = max(counts[i] for i in range(workers)) / 1e6
        row["all"] = sum(cluster.received.values()) / 1e6
        row |= {f"{kind} MB": cluster.peaks.get(kind, 0) / 1e6 for kind in ("sum", "merge", "move")}
        row["in units"] = max(row["merge MB"], row["move MB"]) / (8 * k * d / workers / 1e6)
        found.append(row)
    if results[0] != results[1]:
        raise SystemExit("the two ways give different results")
    return found


def predicted(args: Any, measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compute the rows of `--large`."""
    k, d = args.large
    rows = []
    for row in measured:
        made = {name: row[name] for name in COLUMNS if name in ("way", "dtype", "workers")}
        made |= {"kind": "model", "k": k, "d": d}
        sums = k * d / (row["k"] * row["d"])
        # What the driver exchanges with ranges grows with the clusters alone.
        driver = k / row["k"] if row["way"] == "ranges" else sums
        made |= {name: row[name] * driver for name in ("driver in", "driver out")}
        made |= {name: row[name] * sums for name in ("worker in", "worker out", "all")}
        most = max(made["driver in"], made["worker in"])
        rows.append(made | {"exchange s": most * 8e6 / (args.gigabits * 1e9)})
    return rows


COLUMNS = {"kind": "", "way": "", "dtype": "", "workers": "d", "k": "d", "d": "d"}
COLUMNS |= dict.fromkeys(("driver in", "driver out", "worker in", "worker out", "all"), ".3g")
COLUMNS |= {"sum MB": ".3g", "merge MB": ".3g", "move MB": ".3g", "in units": ".3g", "exchange s": ".3g"}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument(
        "--large", nargs=2, type=int, default=[100_000, 768], help="clusters and columns of the model"
    )
    parser.add_argument("--gigabits", type=float, default=10, help="network rate of a worker (default 10)")
    common.add_options(parser, quick="one small shape, no result file")
    args = parser.parse_args()
    head = common.announced(["numpy", "shoal"])
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for shape in [Shape(5, 100, 200, 16, "float32")] if args.quick else SHAPES:
            rows += measure(shape, Path(folder))
    rows += predicted(args, rows[:2])
    print("\n" + common.table(rows, COLUMNS), flush=True)
    common.keep("distributed-ranges", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
