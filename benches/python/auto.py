"""Whole fits of exact k-means: ``algorithm="auto"`` compared with the best of its algorithms.

Every set of the folder ``$SHOAL_DATA`` (of suites, the members with at least 1,000 rows) is fitted with every
number of clusters and every algorithm, from the same k-means++ centers and with the default tolerance. Fits
are interleaved (A B C A B C ...) after a warm-up, and the median over the rounds counts. An algorithm that
takes more than 1.4 times as long as the fastest in the first round is not measured again. All algorithms must
end with bit-identical inertia, otherwise the run fails.

A plain fit should take at most ``--seconds`` with one thread. If 300 sweeps over all rows would take longer,
the number of sweeps is reduced to at least 50, then the number of rows (a random sample) to at least 20,000,
then the number of sweeps again to at least 20. The columns ``n`` and ``most sweeps`` show the result.

The thresholds in ``src/kmeans`` were tuned on the sets in `TUNED`, and the costs in
``src/kmeans/costs.rs`` on single sweeps of these and some other sets. All sets that are not in `TUNED` are
for validation. Each line of the table is saved at once, and a run whose ``--csv`` exists continues after its
last line.

    python benches/python/auto.py --csv auto.csv                          # the whole table, 25 minutes
    python benches/python/auto.py --csv auto.csv --threads 1 --seconds 0.2 --clusters 20 50 100 1024
    python benches/python/auto.py --csv auto.csv --clock processor --threads 1    # on a busy machine
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

OWN = ("lloyd", "yinyang", "elkan", "hamerly", "exponion", "filtering", "sketch")
CLUSTERS = (8, 20, 50, 100, 128, 256, 1024)
#: Sets on which thresholds were tuned.
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
#: Minimum number of rows of a member of a suite, and minimum number of rows per cluster.
LEAST_ROWS, ROWS_A_CLUSTER = 1_000, 4
#: Minimum number of rows, and minimum numbers of sweeps with all rows and with fewer rows.
CUT_ROWS, CUT_SWEEPS, LEAST_SWEEPS = 20_000, 50, 20
#: Algorithms that are slower than the fastest by this factor are measured once.
HOPELESS = 1.4
#: Minimum and maximum number of rounds, and the total seconds of the fastest fits that the rounds should
#: reach.
ROUNDS, MOST_ROUNDS, ENOUGH = 3, 25, 0.3
#: The target for the time of "auto", relative to the best.
WANTED = 1.05

# ---------------------------------------------------------------- data


def sets() -> list[str]:
    """List the names of all sets, small ones first."""
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
    """Read the rows of a set in their compute type, as an array or a sparse matrix."""
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
    """Estimate the seconds of a plain sweep with one thread."""
    return n * (20 + 0.5 * d + k * (0.2 + 0.0125 * d)) * 1e-9


def cut(n: int, d: int, k: int, seconds: float) -> tuple[int, int]:
    """Choose the numbers of rows and sweeps for a fit of about the given seconds."""
    sweeps = int(np.clip(seconds / plain_seconds(n, d, k), min(CUT_SWEEPS, 300), 300))
    if plain_seconds(n, d, k) * sweeps > seconds:
        n = min(n, max(CUT_ROWS, ROWS_A_CLUSTER * k, int(seconds / plain_seconds(1, d, k) / sweeps)))
        sweeps = int(np.clip(seconds / plain_seconds(n, d, k), LEAST_SWEEPS, sweeps))
    return n, sweeps


# ---------------------------------------------------------------- the worker's side


class Handler:
    """Commands of the worker."""

    def __init__(self, clock: str) -> None:
        self._clock = time.process_time if clock == "processor" else time.perf_counter
        self._threads = int(os.environ["SHOAL_BENCH_THREADS"])
        self._name, self._all, self._X, self._start = "", None, None, np.empty((0, 0))

    def __call__(self, command: str, *args: Any) -> Any:
        return getattr(self, command)(*args)

    def prepare(self, name: str, k: int, seconds: float) -> tuple[int, int, int, str, int] | None:
        """Read rows and choose initial centers; return rows, columns, stored rows, type, sweeps, or None."""
        import shoal

        if name != self._name:
            self._name, self._all = name, load(name)
        X: Any = self._all
        stored, d = X.shape
        # The cost of a sparse sweep depends on the stored values.
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
        """Return seconds, sweeps, inertia, and the algorithm that "auto" ended with."""
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
    """Measure one line of the table."""
    about = worker.call("prepare", name, k, args.seconds)
    if about is None:
        return None
    n, d, stored, kind, most_sweeps = about
    methods = ["auto", *OWN]
    for method in methods:
        # Warm up memory and caches.
        worker.call("fit", method, 3)
    times: dict[str, list[float]] = {method: [] for method in methods}
    ends: set[tuple[int, float]] = set()
    used, rounds, running = "", ROUNDS, methods
    turn = 0
    while turn < rounds:
        # Rotate the order in each round.
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
    """Summarize how often "auto" reaches the target, and where it is slowest."""
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
    parser.add_argument("--csv", help="file for the table; an existing one is continued")
    parser.add_argument("--worker", choices=["wall", "processor"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        # Warnings of empty clusters and of fits that are cut short.
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
