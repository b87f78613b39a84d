"""Certified low precision compared with the ``float32`` kernel: labels, sweeps and whole fits.

The same work runs in two processes, one with the fastest instruction set of the processor and one with
``SHOAL_ISA=avx512``, which does not use low precision. Runs alternate, a ratio is taken within a round, and
the results must be bit-identical, otherwise the run fails.

nearest
    ``predict`` of all rows of a set with the centers of a fit after one sweep (early) and after ten (late).
seeding
    Greedy k-means++ on all rows of a set.
fit
    A whole fit with ``algorithm="auto"`` of at most 100 sweeps, from given centers.
predict
    ``predict`` of 1,000,000 x 128 rows of bytes with 10,000 centers.
sweep
    A sweep of k-means compared with other libraries, measured as by ``peers.py``.

    python benches/python/certified.py --threads 1
    python benches/python/certified.py --threads 1 --clock processor --parts nearest    # on a busy machine
    python benches/python/certified.py --parts nearest --data mnist_70k:256 --tier avx512vnni
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import _common as common
import numpy as np
import peers

PARTS = ("nearest", "seeding", "fit", "predict", "sweep")
CLOCKS = ("wall", "processor")
#: The instruction set that the others are compared with by default.
PLAIN = "avx512"
#: Sets with targets.
SETS = (
    "sift_bsds_trainval:1024",
    "resnet18_cifar_16k:256",
    "resnet18_cifar_16k:1024",
    "wordvec_ppmi_svd100:1024",
    "mnist_70k:1024",
    "cifar10_test10k_rgb:1024",
)
#: The set of the parts "fit", "predict" and "sweep".
LARGE = "sift_bsds_trainval"
#: Sweeps before the centers of the part "nearest" count as early and as late, and of the part "fit".
STAGES = {"early": 1, "late": 10}
SWEEPS = 100
PREDICTED_ROWS, PREDICTED_CENTERS = 1_000_000, 10_000
#: Other libraries of the part "sweep" that accept initial centers or are among the fastest.
PEERS = ("sklearn", "sklearnex", "faiss", "superkmeans")
#: Shorter work than this many seconds is repeated within a round, and the fastest counts.
LONG_ENOUGH, MOST_REPEATS = 0.3, 10

COLUMNS = {
    "work": "",
    "data": "",
    "type": "",
    "n": "d",
    "d": "d",
    "k": "d",
    "threads": "d",
    "tier": "",
    "plain s": ".3f",
    "tier s": ".3f",
    "plain GFLOP/s": ".0f",
    "tier GFLOP/s": ".0f",
    "plain/tier": ".2f",
    "low": ".2f",
    "high": ".2f",
}

# ---------------------------------------------------------------- the worker's side


class Handler:
    """Commands of the worker."""

    def __init__(self, clock: str) -> None:
        self._clock = time.process_time if clock == "processor" else time.perf_counter
        self._threads = int(os.environ["SHOAL_BENCH_THREADS"])
        self._X = self._start = np.empty((0, 0))
        self._model: Any = None

    def __call__(self, command: str, *args: Any) -> Any:
        return getattr(self, command)(*args)

    def tier(self) -> str:
        """Return the instruction set in use."""
        from shoal import _core

        return _core.isa()

    def data(self, rows: str, start: str) -> None:
        """Read rows and initial centers."""
        self._X, self._start = np.load(rows), np.load(start)

    def _estimator(self, sweeps: int, algorithm: str) -> Any:
        import shoal

        params = {"init": self._start, "n_init": 1, "max_iter": sweeps, "tol": 0.0, "algorithm": algorithm}
        return shoal.KMeans(len(self._start), **params, n_jobs=self._threads)

    def prepare(self, rows: int, sweeps: int) -> None:
        """Fit the model of :meth:`predict` to the first rows."""
        self._model = self._estimator(sweeps, "lloyd").fit(self._X[:rows])

    def predict(self) -> tuple[float, str]:
        """Return seconds, and a checksum of the labels."""
        begun = self._clock()
        labels = self._model.predict(self._X)
        return self._clock() - begun, checksum(labels)

    def seed(self) -> tuple[float, str]:
        """Return seconds, and a checksum of the chosen centers."""
        import shoal

        begun = self._clock()
        centers, _ = shoal.kmeans_plusplus(self._X, len(self._start), random_state=0, n_jobs=self._threads)
        return self._clock() - begun, checksum(centers)

    def fit(self) -> tuple[float, str]:
        """Return seconds, and a checksum of the centers and labels."""
        begun = self._clock()
        model = self._estimator(SWEEPS, "auto").fit(self._X)
        return self._clock() - begun, checksum(model.cluster_centers_, model.labels_)


def checksum(*arrays: np.ndarray) -> str:
    """Return a checksum of values."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


# ---------------------------------------------------------------- the parent's side


class Pair:
    """A worker without low precision and one with it, which have the same rows and centers."""

    def __init__(self, threads: int, tier: str | None, plain: str, clock: str) -> None:
        self.threads = threads
        environments = ({"SHOAL_ISA": plain}, {"SHOAL_ISA": tier} if tier else {})
        self.workers = [common.Worker(__file__, clock, threads=threads, env=env) for env in environments]
        self.tier = self.both("tier")[1]
        self._folder = tempfile.TemporaryDirectory()

    def both(self, *command: Any) -> list[Any]:
        """Call both workers, one after the other."""
        return [worker.call(*command) for worker in self.workers]

    def data(self, X: np.ndarray, k: int) -> None:
        """Give both workers the rows, and k of them as initial centers."""
        files = [str(Path(self._folder.name, name)) for name in ("rows.npy", "start.npy")]
        np.save(files[0], X)
        np.save(files[1], common.distinct_rows(X, k).astype(np.float32))
        self.both("data", *files)

    def compare(self, work: str, command: str, rounds: int) -> dict[str, Any]:
        """Alternate the command; return medians and ratios."""
        # A warm-up, which also tells how often to repeat and whether the results agree.
        warm = self.both(command)
        if warm[0][1] != warm[1][1]:
            raise SystemExit(f"{work}: the results differ")
        repeats = int(np.clip(np.ceil(LONG_ENOUGH / max(warm[1][0], 1e-9)), 1, MOST_REPEATS))
        times: list[list[float]] = [[], []]
        for round_ in range(rounds):
            for which in (0, 1) if round_ % 2 == 0 else (1, 0):
                found = [self.workers[which].call(command) for _ in range(repeats)]
                if any(result != warm[0][1] for _, result in found):
                    raise SystemExit(f"{work}: the results differ")
                times[which].append(min(found)[0])
        ratios = [plain / tier for plain, tier in zip(*times, strict=True)]
        return {
            "work": work,
            "threads": self.threads,
            "tier": self.tier,
            "plain s": common.median(times[0]),
            "tier s": common.median(times[1]),
            "plain/tier": common.median(ratios),
            "low": min(ratios),
            "high": max(ratios),
        }

    def close(self) -> None:
        """End both processes and remove their files."""
        for worker in self.workers:
            worker.close()
        self._folder.cleanup()


def described(row: dict[str, Any], data: str, X: np.ndarray, k: int, sweeps: int = 0) -> dict[str, Any]:
    """Add the size of the work, and the rates if the number of sweeps is known."""
    row |= {"data": data, "type": X.dtype.name, "n": len(X), "d": X.shape[1], "k": k}
    if sweeps:
        operations = 2e-9 * len(X) * X.shape[1] * k * sweeps
        row |= {f"{name} GFLOP/s": operations / row[f"{name} s"] for name in ("plain", "tier")}
    return row


def stored(name: str, quick: bool) -> np.ndarray:
    """Read the rows of a set in their stored type."""
    X = common.raw(name)
    return np.ascontiguousarray(X[:6_000] if quick else X)


def many_rows(X: np.ndarray, n: int) -> np.ndarray:
    """Draw n rows and change each value by up to 8, so that no two rows are equal."""
    rng = np.random.default_rng(0)
    drawn = X[rng.integers(0, len(X), n)].astype(np.int16)
    drawn += rng.integers(-8, 9, drawn.shape, dtype=np.int16)
    return np.clip(drawn, 0, 255).astype(np.uint8)


def measured(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the parts that compare two instruction sets."""
    rows: list[dict[str, Any]] = []

    def add(row: dict[str, Any]) -> None:
        print(common.table([row], COLUMNS), flush=True)
        rows.append(row)

    pair = Pair(args.threads, args.tier, args.plain, args.clock)
    try:
        if pair.tier == args.plain:
            raise SystemExit(
                f"{args.plain} is the fastest instruction set of this processor: nothing to compare"
            )
        for spec in args.data if "nearest" in args.parts else ():
            name, k = spec.split(":")
            X = stored(name, args.quick)
            pair.data(X, int(k))
            for stage, sweeps in STAGES.items():
                pair.both("prepare", len(X), sweeps)
                row = pair.compare(f"nearest, {stage}", "predict", args.rounds)
                add(described(row, name, X, int(k), 1))
        for spec in args.data if "seeding" in args.parts else ():
            name, k = spec.split(":")
            X = stored(name, args.quick)
            pair.data(X, int(k))
            row = pair.compare("greedy k-means++", "seed", max(1, args.rounds // 2))
            add(described(row, name, X, int(k)))
        if "fit" in args.parts:
            X = stored(LARGE, args.quick)
            pair.data(X, 1024)
            row = pair.compare(f"fit, {SWEEPS} sweeps", "fit", max(1, args.rounds // 3))
            add(described(row, LARGE, X, 1024))
        if "predict" in args.parts:
            n, k = (20_000, 1_000) if args.quick else (PREDICTED_ROWS, PREDICTED_CENTERS)
            X = many_rows(stored(LARGE, args.quick), n)
            pair.data(X, k)
            pair.both("prepare", 5 * k, 1)
            row = pair.compare("predict", "predict", max(1, args.rounds // 2))
            add(described(row, f"{LARGE}, changed", X, k, 1))
    finally:
        pair.close()
    return rows


def swept(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure a sweep of k-means, with low precision, without it, and by other libraries."""
    tier = {"SHOAL_ISA": args.tier} if args.tier else {}
    workers, missing = peers.start_workers(list(PEERS), args.threads)
    print("\n".join(missing))
    ours = {"shoal": tier, f"shoal {args.plain}": {"SHOAL_ISA": args.plain}}
    own = {
        name: common.Worker(peers.__file__, "shoal", threads=args.threads, env=env)
        for name, env in ours.items()
    }
    workers = own | workers
    with common.closing(workers.values()):
        rows = peers.measure(f"{LARGE}:1024", workers, args)
    print("\n" + common.table(rows, peers.COLUMNS), flush=True)
    return [{"work": "sweep", **row} for row in rows]


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument(
        "--data", nargs="+", default=list(SETS), metavar="NAME:K", help='for "nearest" and "seeding"'
    )
    parser.add_argument("--tier", metavar="ISA", help="low precision (default: the fastest)")
    parser.add_argument("--plain", metavar="ISA", default=PLAIN, help=f"without it (default {PLAIN})")
    parser.add_argument("--sweeps", type=int, default=5, help='timed sweeps of "sweep" (default 5)')
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default 7)")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help='not for "sweep" (default wall)')
    common.add_options(parser, quick="few rows, 2 rounds, no result file", threads=True, worker=CLOCKS)
    args = parser.parse_args()
    if args.worker:
        # Centers without rows, and fits that did not converge.
        warnings.simplefilter("ignore")
        common.serve(Handler(args.worker))
        return
    if args.quick:
        args.rounds = min(args.rounds, 2)
    head = common.announced(["numpy", *(peers.PACKAGES[p] for p in ("shoal", *PEERS))])
    rows = measured(args) if set(args.parts) - {"sweep"} else []
    if "sweep" in args.parts:
        rows += swept(args)
    common.keep("certified", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
