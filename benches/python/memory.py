"""Anonymous memory of a fit over a memory-mapped uint8 file, and the time of ``import shoal``.

Anonymous memory (RssAnon) is memory that a process has allocated, without the pages of mapped files, which
the system can drop at any time. Each fit runs in a fresh process that has imported shoal. Another process
samples the peak every millisecond. The bound is 16 bytes per row, 8 bytes per center value, and 64 MB. For a
mixture on all rows it is 40 bytes per row (8 for each component that shares the row) and 100 MB more, for
pairs of clusters that were compared; on a coreset it is nothing per row.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import _common as common
import numpy as np

#: Methods other than k-means: the bytes per row that they may use, and beside the rows.
MIXTURES = {"mixture": (40, 164e6), "mixture, coreset": (0, 64e6)}
KMEANS = (16, 64e6)

# ---------------------------------------------------------------- the worker's side


def handler(command: str, *args: Any) -> Any:
    """Commands of the worker."""
    import shoal

    # Modules are loaded on first use. They do not belong to the memory of the fit.
    shoal.KMeans()
    shoal.TruncatedGaussianMixture()
    if command == "import":
        return None
    how, path, k, sweeps = args
    X: Any = path
    if how == "memmap":
        X = np.load(path, mmap_mode="r")
    elif how == "open":
        X = shoal.open(path)
    params = {"max_iter": sweeps, "tol": 0.0, "random_state": 0}
    params["n_jobs"] = int(os.environ["SHOAL_BENCH_THREADS"])
    if how in MIXTURES:
        size = {"coreset_size": 20_000} if how == "mixture, coreset" else {}
        mixture = shoal.TruncatedGaussianMixture(k, **params, **size).fit(X)
        return float(mixture.lower_bound_), int(mixture.n_iter_)
    model = shoal.KMeans(k, algorithm="lloyd", **params).fit(X)
    return float(model.inertia_), int(model.n_iter_)


# ---------------------------------------------------------------- the parent's side


def write(path: Path, X: np.ndarray, rows: int) -> None:
    """Write a file of `rows` rows that repeats the rows of X."""
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(rows, X.shape[1]))
    for start in range(0, rows, len(X)):
        stop = min(rows, start + len(X))
        out[start:stop] = X[: stop - start]
    out.flush()


def fits(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the peak for each way to pass the file."""
    name, _, k = args.data.partition(":")
    X = common.raw(name)
    if X.dtype != np.uint8 or not k.isdigit():
        raise SystemExit(f"--data {args.data}: expected name:k of a set of type uint8")
    n, d = args.rows, X.shape[1]
    found = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = Path(folder, "rows.npy")
        write(path, X, n)
        for how in ("path", "open", "memmap", *MIXTURES):
            per_row, other = MIXTURES.get(how, KMEANS)
            bound = per_row * n + 8 * int(k) * d + other
            for threads in sorted({1, args.threads}):
                worker = common.Worker(__file__, threads=threads)
                with common.closing([worker]):
                    worker.call("import")
                    (inertia, sweeps), peak = worker.watched("fit", how, str(path), int(k), args.sweeps)
                row = {"what": f"fit, {how}", "data": name, "n": n, "d": d, "k": int(k), "threads": threads}
                use = {"sweeps": sweeps, "MB": peak / 1e6, "bound MB": bound / 1e6, "of bound": peak / bound}
                copies = {"file MB": n * d / 1e6, "as f32 MB": 4 * n * d / 1e6, "inertia": inertia}
                found.append({**row, **use, **copies})
    return found


def imports(rounds: int) -> list[dict[str, Any]]:
    """Measure the seconds of imports, in fresh processes and interleaved."""
    modules = ("numpy", "sklearn", "sklearn.cluster", "shoal")
    code = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    seconds: dict[str, list[float]] = {module: [] for module in modules}
    # Round 0 fills the file cache.
    for turn in range(rounds + 1):
        for module in modules:
            command = [sys.executable, "-c", code.format(module)]
            # As for an installed package, byte code is cached.
            env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
            run = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
            if turn:
                seconds[module].append(float(run.stdout))
    found = []
    for module in modules:
        row: dict[str, Any] = {"what": f"import {module}", "ms": 1e3 * common.median(seconds[module])}
        for other in ("sklearn", "sklearn.cluster"):
            pairs = zip(seconds[module], seconds[other], strict=True)
            row[f"ms over {other}"] = 1e3 * common.median(a - b for a, b in pairs)
        found.append(row)
    return found


FIT_COLUMNS = {
    "what": "",
    "data": "",
    "n": "d",
    "k": "d",
    "threads": "d",
    "sweeps": "d",
    "MB": ".1f",
    "bound MB": ".1f",
    "of bound": ".2f",
    "file MB": ".0f",
    "as f32 MB": ".0f",
    "inertia": ".9g",
}
IMPORT_COLUMNS = {"what": "", "ms": ".0f", "ms over sklearn": "+.0f", "ms over sklearn.cluster": "+.0f"}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument(
        "--data", default="sift_bsds_trainval:256", metavar="NAME:K", help="a set of type uint8"
    )
    parser.add_argument(
        "--rows", type=int, default=2_000_000, help="rows of the file, repeated (default 2,000,000)"
    )
    parser.add_argument("--sweeps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=15, help="rounds of the imports (default 15)")
    parser.add_argument("--folder", help="where the file is written (default: the system's temporary folder)")
    common.add_options(parser, quick="200,000 rows, 3 rounds, no result file", threads=True, worker=True)
    args = parser.parse_args()
    if args.worker:
        common.serve(handler)
        return
    if args.rows < 1 or args.rounds < 1 or not 1 <= args.threads <= common.cores():
        parser.error(f"at least 1 row and 1 round, and 1 to {common.cores()} threads")
    if args.quick:
        args.rows, args.rounds, args.sweeps = min(args.rows, 200_000), 3, 1
    if not common.anonymous(os.getpid()):
        raise SystemExit("this system does not tell anonymous memory (RssAnon in /proc/self/status)")
    head = common.announced(["numpy", "shoal", "scikit-learn"])
    rows = imports(args.rounds)
    print("\n" + common.table(rows, IMPORT_COLUMNS), flush=True)
    more = fits(args)
    print("\n" + common.table(more, FIT_COLUMNS), flush=True)
    common.keep("memory", head, rows + more, args.csv, args.quick)


if __name__ == "__main__":
    main()
