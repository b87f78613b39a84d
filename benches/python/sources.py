"""One sweep over a file that is not in the page cache, compared with reading alone and computing alone.

The files are .npy, Parquet and Arrow IPC files of uint8 vectors (FixedSizeList). Reading alone is plain
read() for .npy, and pyarrow alone for the others. Computing alone is the same sweep over rows in memory. The
sweep cannot be faster than the longer of the two, and `ratio` is its time divided by that time. The last part
is a whole fit of a cached file compared with the same rows in memory: results must be bit-identical, and the
ratio of the times is shown.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import _common as common
import numpy as np

KINDS = ("npy", "parquet", "arrow")
COLUMNS_OF_ROWS = 128
#: Rows per piece when a file is written, and rows per batch of Arrow IPC.
PIECE = 1 << 16
#: Maximum number of rows in memory for computing alone; its time is scaled up in proportion.
IN_MEMORY = 1 << 22
READ = 8 << 20

# ---------------------------------------------------------------- the worker's side


class Handler:
    """Commands of the worker; each returns seconds."""

    def __init__(self) -> None:
        self._rows: np.ndarray | None = None

    def __call__(self, command: str, *args: Any) -> Any:
        """Run one of the methods below."""
        return getattr(self, command)(*args)

    def begin(self) -> None:
        """Import the packages, and start the threads."""
        import pyarrow.parquet  # noqa: F401

        sweep(np.eye(2), np.eye(2))

    def hold(self, path: str, rows: int) -> None:
        """Load the first rows of an .npy file."""
        self._rows = np.array(np.load(path, mmap_mode="r")[:rows])

    def read(self, kind: str, path: str) -> float:
        """Read a file without using the bytes."""
        forget(path)
        begun = time.perf_counter()
        {"npy": read_bytes, "parquet": read_parquet, "arrow": read_arrow}[kind](path)
        return time.perf_counter() - begun

    def compute(self, k: int) -> float:
        """Run a sweep over the rows in memory."""
        return sweep(self._rows, self._centers(k))

    def sweep(self, path: str, k: int, sweeps: int = 1) -> float:
        """Run sweeps over the file."""
        centers = self._centers(k)
        forget(path)
        return sweep(path, centers, sweeps)

    def _centers(self, k: int) -> np.ndarray:
        """Return the first rows as centers: each is nearest to itself, so no cluster is empty and needs a
        further pass.
        """
        return self._rows[:k].astype(np.float32)

    def fit(self, path: str | None, k: int, sweeps: int) -> tuple[float, str]:
        """Fit the file or the rows in memory; return seconds and a digest of the result."""
        import shoal

        begun = time.perf_counter()
        model = shoal.KMeans(
            k, init="random", n_init=1, random_state=0, max_iter=sweeps, tol=0.0, n_jobs=threads()
        )
        model.fit(self._rows if path is None else path)
        seconds = time.perf_counter() - begun
        return seconds, hashlib.sha256(model.cluster_centers_.tobytes() + model.labels_.tobytes()).hexdigest()


def threads() -> int:
    return int(os.environ["SHOAL_BENCH_THREADS"])


def sweep(rows: Any, centers: np.ndarray, sweeps: int = 1) -> float:
    """Return the seconds of the first steps from given centers: one pass each if no cluster is empty."""
    import shoal

    # A last step would add one more pass.
    params = {"init": centers, "n_init": 1, "max_iter": sweeps + 1, "tol": 0.0, "algorithm": "lloyd"}
    model = shoal.KMeans(len(centers), **params, n_jobs=threads())
    begun = time.perf_counter()
    steps = model.iter_fit(rows)
    for _ in range(sweeps):
        next(steps)
    return time.perf_counter() - begun


def forget(path: str) -> None:
    """Drop a file from the page cache."""
    with Path(path).open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_bytes(path: str) -> None:
    buffer = bytearray(READ)
    with Path(path).open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def read_parquet(path: str) -> None:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches():
            batch.column(0).flatten()


def read_arrow(path: str) -> None:
    import pyarrow as pa

    with pa.memory_map(path) as file:
        reader = pa.ipc.open_file(file)
        for i in range(reader.num_record_batches):
            reader.get_batch(i).column(0).flatten().to_numpy()[::4096].max()


# ---------------------------------------------------------------- the parent's side


def write(kind: str, path: Path, rows: int) -> None:
    """Write a file of random vectors."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    sizes = [min(PIECE, rows - start) for start in range(0, rows, PIECE)]
    pieces = (rng.integers(0, 256, size=(size, COLUMNS_OF_ROWS), dtype=np.uint8) for size in sizes)
    if kind == "npy":
        out = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(rows, COLUMNS_OF_ROWS))
        start = 0
        for piece in pieces:
            out[start : start + len(piece)] = piece
            start += len(piece)
        out.flush()
        return
    schema = pa.schema([("vector", pa.list_(pa.uint8(), COLUMNS_OF_ROWS))])
    opened = parquet.ParquetWriter if kind == "parquet" else pa.ipc.new_file
    with opened(str(path), schema) as writer:
        for piece in pieces:
            values = pa.FixedSizeListArray.from_arrays(pa.array(piece.ravel()), COLUMNS_OF_ROWS)
            writer.write_table(pa.table([values], schema=schema))


def sweeps(worker: common.Worker, args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Measure a cold sweep over each kind of file."""
    n = max(1, int(args.gigabytes * 1e9) // COLUMNS_OF_ROWS)
    part = min(n, IN_MEMORY)
    found = []
    for kind in args.kinds:
        path = folder / f"rows.{kind}"
        held = folder / "held.npy"
        write("npy", held, part)
        worker.call("hold", str(held), part)
        write(kind, path, n)
        spent: dict[str, list[float]] = {"reading": [], "computing": [], "sweep": []}
        for _ in range(args.rounds):
            spent["reading"].append(worker.call("read", kind, str(path)))
            spent["computing"].append(worker.call("compute", args.clusters) * n / part)
            spent["sweep"].append(worker.call("sweep", str(path), args.clusters))
        ratios = [
            s / max(r, c)
            for r, c, s in zip(spent["reading"], spent["computing"], spent["sweep"], strict=True)
        ]
        row = {"what": f"sweep, {kind}", "n": n, "k": args.clusters, "threads": args.threads}
        times = {name: common.median(values) for name, values in spent.items()}
        spread = {"ratio": common.median(ratios), "ratio low": min(ratios), "ratio high": max(ratios)}
        file = {"file MB": path.stat().st_size / 1e6, "MB": peak(held, path, args) / 1e6}
        found.append({**row, **times, **spread, **file})
        path.unlink()
    return found


def peak(held: Path, path: Path, args: argparse.Namespace) -> int:
    """Measure the anonymous memory of two sweeps over a file, in a process that has not read any file before.

    The second one can be undone, so it takes more memory than the first.
    """
    worker = common.Worker(__file__, threads=args.threads)
    with common.closing([worker]):
        worker.call("begin")
        worker.call("hold", str(held), args.clusters)
        return worker.watched("sweep", str(path), args.clusters, 2)[1]


def fits(worker: common.Worker, args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Measure a warm fit."""
    path = folder / "rows.npy"
    write("npy", path, args.rows)
    worker.call("hold", str(path), args.rows)
    spent: dict[str, list[float]] = {"computing": [], "sweep": []}
    for _ in range(args.rounds):
        seconds, in_memory = worker.call("fit", None, args.fit_clusters, args.sweeps)
        spent["computing"].append(seconds)
        seconds, from_file = worker.call("fit", str(path), args.fit_clusters, args.sweeps)
        spent["sweep"].append(seconds)
        if in_memory != from_file:
            raise SystemExit("the fit of the file differs from that of the rows in memory")
    ratios = [s / c for c, s in zip(spent["computing"], spent["sweep"], strict=True)]
    row = {"what": "warm fit, npy", "n": args.rows, "k": args.fit_clusters, "threads": args.threads}
    times = {name: common.median(values) for name, values in spent.items()}
    spread = {"ratio": common.median(ratios), "ratio low": min(ratios), "ratio high": max(ratios)}
    return [{**row, **times, **spread, "file MB": path.stat().st_size / 1e6}]


COLUMNS = {
    "what": "",
    "n": "d",
    "k": "d",
    "threads": "d",
    "reading": ".2f",
    "computing": ".2f",
    "sweep": ".2f",
    "ratio": ".2f",
    "ratio low": ".2f",
    "ratio high": ".2f",
    "file MB": ".0f",
    "MB": ".0f",
}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of rows in each file (default 1)")
    parser.add_argument("--clusters", type=int, default=256, help="of a sweep (default 256)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the warm fit (default 1,000,000)")
    parser.add_argument("--fit-clusters", type=int, default=1024, help="of the warm fit (default 1024)")
    parser.add_argument("--sweeps", type=int, default=5, help="of the warm fit (default 5)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default 3)")
    parser.add_argument("--folder", help="where the files are made (default: that of temporary files)")
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, default=KINDS, help="of the files (default all)", metavar="KIND"
    )
    parser.add_argument(
        "--file-cache",
        type=int,
        metavar="BYTES",
        help="of a file that stay cached (default: by memory)",
    )
    common.add_options(parser, quick="20 MB, 1 round, no result file", threads=True, worker=True)
    args = parser.parse_args()
    if args.worker:
        common.serve(Handler())
        return
    if args.gigabytes <= 0 or args.rounds < 1 or not 1 <= args.threads <= common.cores():
        parser.error(f"more than 0 gigabytes, at least 1 round, and 1 to {common.cores()} threads")
    if args.file_cache is not None:
        os.environ["SHOAL_FILE_CACHE"] = str(args.file_cache)
    if args.quick:
        args.gigabytes, args.rounds, args.rows = 0.02, 1, 20_000
    head = common.announced(["numpy", "pyarrow", "shoal"])
    rows = []
    worker = common.Worker(__file__, threads=args.threads)
    with common.closing([worker]):
        worker.call("begin")
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            for part in (sweeps, fits):
                found = part(worker, args, Path(folder))
                print("\n" + common.table(found, COLUMNS), flush=True)
                rows += found
    common.keep("sources", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
