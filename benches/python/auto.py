"""Whole fits of exact k-means: ``algorithm="auto"`` against the best of the algorithms that it chooses among.

Every set of the folder ``$SHOAL_DATA`` (of suites the members with at least 1,000 rows) is fitted with every
number of clusters and every algorithm, from the same k-means++ centers, with the default tolerance. Fits run
one after the other (A B C A B C ...), once unmeasured before all others, and the median of the rounds counts;
an algorithm that takes more than 1.4 times as long as the fastest in the first round is not measured again.
All must come to the same inertia, to the last bit; the run fails where they do not.

A plain fit is expected to take ``--seconds`` at most with one thread: where 300 sweeps over all rows would
take longer, there are fewer sweeps, down to 50, then fewer rows (a random part), down to 20,000, then
fewer sweeps again, down to 20. The columns ``n`` and ``most sweeps`` say so.

The thresholds in ``src/tuning.rs`` were set on the sets in `TUNED`, the costs in ``src/kmeans/costs.rs`` on
single sweeps of these and some others; what is not in `TUNED` is for validation. Each line of the table is
kept as soon as it is there, and a run that finds lines in its ``--csv`` goes on behind them.

    python benches/python/auto.py --csv auto.csv                          # the whole table, 25 minutes
    python benches/python/auto.py --csv auto.csv --threads 1 --seconds 0.2 --clusters 20 50 100 1024
    python benches/python/auto.py --csv auto.csv --clock processor --threads 1    # beside other work
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
from pathlib import Path
from typing import Any

import _common as common
import numpy as np

OWN = ("lloyd", "yinyang", "elkan", "hamerly", "exponion")
CLUSTERS = (8, 20, 50, 100, 128, 256, 1024)
#: Sets whose figures set thresholds.
TUNED = {
    "wordvec_ppmi_svd100",
    "letter_20k",
    "campaign_41k",
    "fsdd_logmel40_spkA",
    "mnist_70k",
    "uk_accidents_lnglat_140k",
    "skin_245k",
    "sift_bsds_trainval",
    "resnet18_cifar_16k",
    "gagolews_a/sipu/birch1",
    "gagolews_a/other/chameleon_t7_10k",
}
#: Rows of the smallest member of a suite, and rows for each cluster at least.
LEAST_ROWS, ROWS_A_CLUSTER = 1_000, 4
#: Rows, and sweeps with all and with fewer rows, that a set is not cut below.
CUT_ROWS, CUT_SWEEPS, LEAST_SWEEPS = 20_000, 50, 20
#: Algorithms so much slower than the fastest are measured once.
HOPELESS = 1.4
#: Rounds: at least, at most, and so many that the fastest fit takes so many seconds in all.
ROUNDS, MOST_ROUNDS, ENOUGH = 3, 25, 0.3
#: What "auto" may take, relative to the best.
WANTED = 1.05

# ---------------------------------------------------------------- data


def sets() -> list[str]:
    """The names of all sets, small ones first."""
    folder = Path(os.environ.get("SHOAL_DATA") or ".")
    found: list[tuple[int, str]] = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as archive:
            if "X" in archive.files or "indptr" in archive.files:
                found.append((path.stat().st_size, path.stem))
                continue
            for member in archive.files:
                rows = archive[member]
                if rows.ndim == 2 and len(rows) >= LEAST_ROWS:
                    found.append((rows.nbytes // 4, f"{path.stem}/{member.removesuffix('/X')}"))
    if not found:
        raise SystemExit("set SHOAL_DATA to the folder that holds the data sets")
    return [name for _, name in sorted(found)]


def load(name: str) -> Any:
    """The rows of a set as they are computed: an array or a sparse matrix."""
    stem, _, member = name.partition("/")
    with np.load(Path(os.environ["SHOAL_DATA"]) / f"{stem}.npz") as archive:
        if "indptr" in archive.files:
            import scipy.sparse as sp

            parts = (archive["data"].astype(np.float32), archive["indices"], archive["indptr"])
            return sp.csr_matrix(parts, shape=tuple(archive["shape"]))
        key = member if member in archive.files else f"{member}/X" if member else "X"
        X = archive[key]
    return np.ascontiguousarray(X, dtype=np.float32 if X.dtype.name in common.NARROW else np.float64)


def plain_seconds(n: int, d: int, k: int) -> float:
    """About what a plain sweep takes with one thread."""
    return n * (20 + 0.5 * d + k * (0.2 + 0.0125 * d)) * 1e-9


def cut(n: int, d: int, k: int, seconds: float) -> tuple[int, int]:
    """Rows and sweeps of a fit that takes about so long."""
    sweeps = int(np.clip(seconds / plain_seconds(n, d, k), min(CUT_SWEEPS, 300), 300))
    if plain_seconds(n, d, k) * sweeps > seconds:
        n = min(n, max(CUT_ROWS, ROWS_A_CLUSTER * k, int(seconds / plain_seconds(1, d, k) / sweeps)))
        sweeps = int(np.clip(seconds / plain_seconds(n, d, k), LEAST_SWEEPS, sweeps))
    return n, sweeps


# ---------------------------------------------------------------- the worker's side


class Handler:
    """Commands of the parent."""

    def __init__(self, clock: str) -> None:
        self._clock = time.process_time if clock == "processor" else time.perf_counter
        self._threads = int(os.environ["SHOAL_BENCH_THREADS"])
        self._name, self._all, self._X, self._start = "", None, None, np.empty((0, 0))

    def __call__(self, command: str, *args: Any) -> Any:
        return getattr(self, command)(*args)

    def prepare(self, name: str, k: int, seconds: float) -> tuple[int, int, int, str, int] | None:
        """Read rows, choose first centers; rows, columns, stored rows, type and sweeps, or nothing."""
        import shoal

        if name != self._name:
            self._name, self._all = name, load(name)
        X: Any = self._all
        stored, d = X.shape
        # Stored values are what a sparse sweep costs.
        values = d if isinstance(X, np.ndarray) else max(1, X.nnz // stored)
        n, sweeps = cut(stored, values, k, seconds)
        if n < stored:
            X = X[np.sort(np.random.default_rng(0).permutation(stored)[:n])]
        if k * ROWS_A_CLUSTER > n:
            return None
        sample = X[np.random.default_rng(1).permutation(n)[: max(10 * k, 4_000)]]
        self._start = shoal.kmeans_plusplus(sample, k, greedy=False, random_state=0)[0]
        self._X = X
        if len(np.unique(self._start, axis=0)) < k:
            return None
        return n, d, stored, {"float32": "f32", "float64": "f64"}[X.dtype.name], sweeps

    def fit(self, algorithm: str, sweeps: int) -> tuple[float, int, float, str]:
        """Seconds, sweeps, inertia, and what "auto" ended with."""
        import shoal

        model = shoal.KMeans(
            len(self._start),
            init=self._start,
            n_init=1,
            max_iter=sweeps,
            algorithm=algorithm,
            n_jobs=self._threads,
        )
        begun = self._clock()
        model.fit(self._X)
        return self._clock() - begun, model.n_iter_, model.inertia_, model.algorithm_


# ---------------------------------------------------------------- the parent's side


def measure(name: str, k: int, worker: common.Worker, args: argparse.Namespace) -> dict[str, Any] | None:
    """One line of the table."""
    about = worker.call("prepare", name, k, args.seconds)
    if about is None:
        return None
    n, d, stored, kind, most_sweeps = about
    methods = ["auto", *OWN]
    for method in methods:
        # Memory and caches wake up.
        worker.call("fit", method, 3)
    times: dict[str, list[float]] = {method: [] for method in methods}
    ends: set[tuple[int, float]] = set()
    used, rounds, running = "", ROUNDS, methods
    turn = 0
    while turn < rounds:
        # Another one begins each round.
        for method in running[turn % len(running) :] + running[: turn % len(running)]:
            seconds, sweeps, inertia, ended = worker.call("fit", method, most_sweeps)
            times[method].append(seconds)
            ends.add((sweeps, inertia))
            used = ended if method == "auto" else used
        if len(ends) > 1:
            raise SystemExit(f"{name}, k = {k}: the exact methods differ: {ends}")
        if turn == 0:
            fastest = min(times[method][0] for method in OWN)
            running = [m for m in methods if m == "auto" or times[m][0] <= HOPELESS * fastest]
            rounds = int(np.clip(np.ceil(ENOUGH / fastest), ROUNDS, MOST_ROUNDS))
        turn += 1
    line: dict[str, Any] = {"data": name, "part": "tuned" if name in TUNED else "validation"}
    line |= {"n": n, "of": stored, "d": d, "type": kind, "k": k, "threads": args.at}
    line |= {"most sweeps": most_sweeps, "sweeps": ends.pop()[0]}
    line |= {method: common.median(times[method]) for method in methods}
    best = min(OWN, key=lambda method: line[method])
    ratios = [a / b for a, b in zip(times["auto"], times[best], strict=False)]
    return line | {"best": best, "ended with": used, "auto/best": common.median(ratios)}


def summary(table: list[dict[str, Any]]) -> list[str]:
    """How often "auto" takes as long as wanted at most, and where it is worst."""
    lines = []
    for threads in sorted({int(row["threads"]) for row in table}):
        for part in ("tuned", "validation"):
            rows = [r for r in table if int(r["threads"]) == threads and r["part"] == part]
            if not rows:
                continue
            ratios = np.array([float(row["auto/best"]) for row in rows])
            worst = sorted(rows, key=lambda row: -float(row["auto/best"]))[:8]
            lines.append(
                f"{threads} thread(s), {part}: {len(rows)} fits, auto/best at most {WANTED} in "
                f"{(ratios <= WANTED).mean():.0%}, at most 1.1 in {(ratios <= 1.1).mean():.0%}, "
                f"median {np.median(ratios):.3f}; worst: "
                + ", ".join(f"{w['data']}:{w['k']} {float(w['auto/best']):.2f} ({w['best']})" for w in worst)
            )
    return lines


COLUMNS = {
    "data": "",
    "n": "d",
    "d": "d",
    "k": "d",
    "threads": "d",
    "sweeps": "d",
    **dict.fromkeys(("auto", *OWN), ".4f"),
    "best": "",
    "ended with": "",
    "auto/best": ".2f",
}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", nargs="+", metavar="NAME", help="default: all sets in SHOAL_DATA")
    parser.add_argument("--clusters", nargs="+", type=int, default=list(CLUSTERS))
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, common.cores()}))
    parser.add_argument("--seconds", type=float, default=0.6, help="of a plain fit, about (default 0.6)")
    parser.add_argument("--clock", choices=["wall", "processor"], default="wall")
    parser.add_argument("--csv", help="where to keep the table, or one to go on with")
    parser.add_argument("--worker", choices=["wall", "processor"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        # Of empty clusters, and of fits that are cut short.
        warnings.simplefilter("ignore")
        common.serve(Handler(args.worker))
        return
    if not all(1 <= threads <= common.cores() for threads in args.threads):
        parser.error(f"1 to {common.cores()} threads")
    path = Path(args.csv) if args.csv else common.results("auto", "csv")
    table: list[dict[str, Any]] = []
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            table = list(csv.DictReader(line for line in file if not line.startswith("#")))
    done = {(row["data"], int(row["k"]), int(row["threads"])) for row in table}
    head = common.announced(["numpy", "shoal"])
    path.parent.mkdir(parents=True, exist_ok=True)
    workers = {at: common.Worker(__file__, args.clock, threads=at) for at in args.threads}
    columns: list[str] = list(table[0]) if table else []
    begun = time.perf_counter()
    with common.closing(workers.values()), path.open("a", encoding="utf-8", newline="") as file:
        file.writelines(f"# {key}: {value}\n" for key, value in head.items())
        for name in args.data or sets():
            shown = []
            for k in args.clusters:
                for at in args.threads:
                    if (name, k, at) in done:
                        continue
                    args.at = at
                    line = measure(name, k, workers[at], args)
                    if line is None:
                        continue
                    writer = csv.DictWriter(file, columns or list(line), lineterminator="\n")
                    if not columns:
                        columns = list(line)
                        writer.writeheader()
                    writer.writerow(line)
                    file.flush()
                    shown.append(line)
            table += shown
            if shown:
                print("\n" + common.table(shown, COLUMNS), flush=True)
    print(f"\n{time.perf_counter() - begun:.0f} s")
    print("\n".join(summary(table)))
    print(f"kept as {path}")


if __name__ == "__main__":
    main()
