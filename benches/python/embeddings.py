"""Clusters embeddings in many Parquet files by angle and writes the labels beside their identifiers.

The program makes Parquet shards with a text column ``id`` and a list column ``vector`` (``list<float>``):
directions around random prototypes, with random lengths. It then runs the two commands that a user would
run, and samples the anonymous memory of each process every 10 ms. Anonymous memory is memory that the process
has allocated. The last step reads the written table and checks identifiers, number of rows and labels.
"""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import _common as common
import numpy as np

PACKAGES = ("shoal", "numpy", "pyarrow")
#: Rows that are made at a time.
PART = 50_000


def make(folder: Path, rows: int, shards: int, dim: int, prototypes: int) -> int:
    """Write the shards; return their size in bytes."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    centers = rng.normal(size=(prototypes, dim)).astype(np.float32)
    schema = pa.schema([("id", pa.string()), ("vector", pa.list_(pa.float32()))])
    edges = np.linspace(0, rows, shards + 1).astype(int)
    for shard, (first, last) in enumerate(itertools.pairwise(edges)):
        with parquet.ParquetWriter(folder / f"part-{shard:05}.parquet", schema, compression="zstd") as file:
            for start in range(first, last, PART):
                n = min(PART, last - start)
                vectors = centers[rng.integers(prototypes, size=n)]
                vectors += rng.normal(size=vectors.shape).astype(np.float32)
                vectors *= rng.lognormal(size=(n, 1)).astype(np.float32)
                lists = pa.ListArray.from_arrays(
                    np.arange(0, n * dim + 1, dim, dtype=np.int32), vectors.ravel()
                )
                ids = pa.array([f"doc-{i}" for i in range(start, start + n)])
                file.write_table(pa.table([ids, lists], schema=schema))
    return sum(path.stat().st_size for path in folder.iterdir())


def watched(command: str, folder: Path, threads: int) -> tuple[float, int]:
    """Run a command of shoal in a folder; return its seconds and its peak of anonymous memory in bytes."""
    env = os.environ | {"SHOAL_NUM_THREADS": str(threads)}
    begun, peak = time.perf_counter(), 0
    process = subprocess.Popen(
        [sys.executable, "-m", *shlex.split(command)], cwd=folder, env=env, stdout=subprocess.DEVNULL
    )
    while process.poll() is None:
        peak = max(peak, common.anonymous(process.pid))
        time.sleep(0.01)
    if process.returncode:
        raise SystemExit(f"{command}: status {process.returncode}")
    return time.perf_counter() - begun, peak


def check(path: Path, rows: int, k: int) -> int:
    """Check the written table; return the number of clusters in use."""
    from pyarrow import parquet

    used, row = np.zeros(k, dtype=bool), 0
    for batch in parquet.ParquetFile(path).iter_batches(columns=["id", "label"]):
        expected = [f"doc-{i}" for i in range(row, row + len(batch))]
        if batch["id"].to_pylist() != expected:
            raise SystemExit(f"{path}: the identifiers from row {row} on are not those of the shards")
        used[batch["label"].to_numpy()] = True
        row += len(batch)
    if row != rows:
        raise SystemExit(f"{path}: has {row} rows instead of {rows}")
    return int(used.sum())


def main() -> None:
    """Make the shards, run the commands and write the results."""
    parser = common.parser(__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of all shards (default 2,000,000)")
    parser.add_argument("--shards", type=int, default=200, help="number of files (default 200)")
    parser.add_argument("--dim", type=int, default=256, help="length of a vector (default 256)")
    parser.add_argument("-k", "--clusters", type=int, default=1000, help="number of clusters (default 1,000)")
    parser.add_argument("--max-iter", type=int, default=10, help="sweeps of k-means (default 10)")
    parser.add_argument(
        "--methods", nargs="+", default=["kmeans", "minibatch"], help="methods of `shoal fit`"
    )
    parser.add_argument("--folder", help="existing folder for the temporary files")
    common.add_options(parser, quick="20,000 rows, 20 clusters, no result file", threads=True)
    args = parser.parse_args()
    if args.quick:
        args.rows, args.clusters = 20_000, 20
    head = common.announced(PACKAGES)
    n, k = args.rows, args.clusters
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        (folder / "shards").mkdir()
        size = make(folder / "shards", n, args.shards, args.dim, 2 * k)
        rows = "shards --columns vector"
        for method in args.methods:
            sweeps = f"--max-iter {args.max_iter} " if method == "kmeans" else ""
            how = f"--method {method} --metric cosine -k {k} {sweeps}--seed 0 --quiet"
            for command in (
                f"shoal fit {rows} {how} -o model.safetensors",
                f"shoal predict model.safetensors {rows} --keep id -o labels.parquet",
            ):
                seconds, peak = watched(command, folder, args.threads)
                row = {"command": command, "n": n, "d": args.dim, "k": k, "shards": args.shards}
                cost = {"seconds": seconds, "peak MB": peak / 1e6, "data MB": size / 1e6}
                found.append({**row, "threads": args.threads, **cost})
            found[-1]["clusters in use"] = check(folder / "labels.parquet", n, k)
    columns = {"command": "", "n": "d", "d": "d", "k": "d", "shards": "d", "threads": "d", "seconds": ".1f"}
    print(common.table(found, {**columns, "peak MB": ".0f", "data MB": ".0f", "clusters in use": "d"}))
    common.keep("embeddings", head, found, args.csv, args.quick)


if __name__ == "__main__":
    main()
