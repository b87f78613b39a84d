"""Exact k-means over a file larger than memory: bytes read from disk, seconds and processor seconds.

A control group limits the memory of each fit, the cache of files included. The cache is dropped first. The
kernel counts the bytes that the process reads from disk (``read_bytes`` in ``/proc/self/io``). All fits begin
with the same random rows and make the same sweeps. They must end with the same inertia.

The rows are made: overlapping groups whose spread falls from direction to direction, as of embeddings.

This needs Linux, control groups (version 1 or 2), and the rights of root.

    python benches/python/files.py --folder /a/folder/on/the/disk
    python benches/python/files.py --rows 3000000 --memory 2000000000 --algorithms lloyd auto
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import _common as common
import numpy as np

GROUPS = Path("/sys/fs/cgroup")
#: Rows that are made at a time.
BLOCK = 50_000
#: Groups of the made rows.
CLUMPS = 1000


def make(path: Path, n: int, d: int) -> None:
    """Write rows around random points; the spread falls from direction to direction."""
    rng = np.random.default_rng(0)
    spread = ((1 + np.arange(d)) ** -0.6).astype(np.float32)
    turned = np.linalg.qr(rng.normal(size=(d, d)))[0].astype(np.float32)
    clumps = rng.normal(size=(CLUMPS, d)).astype(np.float32) * spread
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, d))
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        rows = clumps[rng.integers(CLUMPS, size=size)]
        rows = rows + rng.standard_normal((size, d), dtype=np.float32) * spread
        out[start : start + size] = rows @ turned
    out.flush()


# ---------------------------------------------------------------- the worker's side


def read_bytes() -> int:
    """Return the bytes that this process has read from disk."""
    text = Path("/proc/self/io").read_text(encoding="utf-8")
    return int(text.split("read_bytes:")[1].split()[0])


def seconds_used() -> float:
    """Return the processor seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def handler(path: str, init: str, algorithm: str, sweeps: int, memory: int | None) -> dict[str, Any]:
    """Fit, and measure."""
    import shoal

    model = shoal.KMeans(
        init=np.load(init),
        n_clusters=len(np.load(init, mmap_mode="r")),
        algorithm=algorithm,
        max_iter=sweeps,
        tol=0.0,
        memory="auto" if memory is None else memory,
        n_jobs=int(os.environ["SHOAL_BENCH_THREADS"]),
    )
    begun, used, read, per_sweep = time.perf_counter(), seconds_used(), read_bytes(), []
    last = read
    for _ in model.iter_fit(path):
        now = read_bytes()
        per_sweep.append(now - last)
        last = now
    return {
        "ended with": model.algorithm_,
        "sweeps": model.n_iter_,
        "seconds": time.perf_counter() - begun,
        "processor seconds": seconds_used() - used,
        "read": read_bytes() - read,
        "per sweep": per_sweep,
        "inertia": float(model.inertia_),
    }


# ---------------------------------------------------------------- the parent's side


@contextlib.contextmanager
def limited(limit: int) -> Iterator[Path]:
    """Make a control group with a limit of its memory."""
    first = (GROUPS / "memory").is_dir()
    group = (GROUPS / "memory" if first else GROUPS) / f"shoal-{os.getpid()}"
    group.mkdir()
    try:
        (group / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(limit))
        yield group
    finally:
        group.rmdir()


def measured(args: argparse.Namespace, path: Path, init: Path, algorithm: str) -> dict[str, Any]:
    """Fit in a process of limited memory, with an empty cache."""
    subprocess.run(["sync"], check=True)
    Path("/proc/sys/vm/drop_caches").write_text("3")
    with limited(args.memory) as group:
        # The worker joins the group before it allocates anything.
        (group / "cgroup.procs").write_text(str(os.getpid()))
        try:
            worker = common.Worker(__file__, threads=args.threads)
        finally:
            home = "memory/cgroup.procs" if (GROUPS / "memory").is_dir() else "cgroup.procs"
            (GROUPS / home).write_text(str(os.getpid()))
        with common.closing([worker]):
            return worker.call(str(path), str(init), algorithm, args.sweeps, args.budget)


COLUMNS = {
    "algorithm": "",
    "ended with": "",
    "n": "d",
    "d": "d",
    "k": "d",
    "sweeps": "d",
    "file MB": ".0f",
    "memory MB": ".0f",
    "files read": ".2f",
    "files in the last sweeps": ".3f",
    "seconds": ".1f",
    "processor seconds": ".1f",
    "inertia": ".9g",
}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--rows", type=int, default=700_000)
    parser.add_argument("--columns", type=int, default=512)
    parser.add_argument("--clusters", type=int, default=256)
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument(
        "--memory", type=int, default=480_000_000, help="bytes of memory, the cache included (default 480 MB)"
    )
    parser.add_argument("--budget", type=int, help="`memory` of the estimator (default: its default)")
    parser.add_argument("--algorithms", nargs="+", default=["lloyd", "yinyang", "auto"])
    parser.add_argument("--folder", help="where the file is written (default: the system's temporary folder)")
    parser.add_argument("--file", help="a file made before with the same rows and columns")
    common.add_options(parser, quick="3 sweeps, no result file", threads=True, worker=True)
    args = parser.parse_args()
    if args.worker:
        common.serve(handler)
        return
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        raise SystemExit("this needs Linux and the rights of root")
    if args.quick:
        args.sweeps = 3
    head = common.announced(["numpy", "shoal"])
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path, init = Path(args.file or Path(folder, "rows.npy")), Path(folder, "init.npy")
        if not path.exists():
            make(path, args.rows, args.columns)
        rows = np.load(path, mmap_mode="r")
        n, d = rows.shape
        picked = np.sort(np.random.default_rng(1).permutation(n)[: args.clusters])
        np.save(init, np.array(rows[picked]))
        size = path.stat().st_size
        for algorithm in args.algorithms:
            fit = measured(args, path, init, algorithm)
            per_sweep = fit.pop("per sweep")
            # The last step also labels the rows by the final centers.
            last = np.mean(per_sweep[-6:-1]) if len(per_sweep) > 6 else np.nan
            row = {"algorithm": algorithm, "n": n, "d": d, "k": args.clusters, "threads": args.threads}
            row |= {"file MB": size / 1e6, "memory MB": args.memory / 1e6}
            row |= {"budget MB": "auto" if args.budget is None else args.budget / 1e6}
            row |= {"files read": fit.pop("read") / size, "files in the last sweeps": last / size}
            found.append({**row, **fit})
            print(
                f"{algorithm}: files per sweep {[round(float(b / size), 3) for b in per_sweep]}", flush=True
            )
    if len({row["inertia"] for row in found}) != 1:
        raise SystemExit("the inertias differ")
    print("\n" + common.table(found, COLUMNS), flush=True)
    common.keep("files", head, found, args.csv, args.quick)


if __name__ == "__main__":
    main()
