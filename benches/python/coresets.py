"""A lightweight coreset of a file of uint8 vectors, compared with reading the file twice.

Both run with a cold page cache and a warm one. `ratio` is the time of the coreset divided by the time of two
passes of plain read().
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import _common as common
import numpy as np
import sources


class Handler:
    """The worker: commands that return seconds."""

    def __call__(self, command: str, *args: Any) -> Any:
        """Run one of the methods below."""
        return getattr(self, command)(*args)

    def read(self, path: str, cold: bool) -> float:
        """Read a file twice without using the bytes."""
        spent = 0.0
        for _ in range(2):
            if cold:
                sources.forget(path)
            begun = time.perf_counter()
            sources.read_bytes(path)
            spent += time.perf_counter() - begun
        return spent

    def coreset(self, path: str, cold: bool, m: int, seed: int) -> tuple[float, float]:
        """Draw a coreset; also return the sum of its weights."""
        import shoal

        if cold:
            sources.forget(path)
        begun = time.perf_counter()
        found = shoal.lightweight_coreset(path, m, random_state=seed, n_jobs=sources.threads())
        return time.perf_counter() - begun, float(found.weights.sum())


COLUMNS = {
    "what": "",
    "n": "d",
    "d": "d",
    "m": "d",
    "threads": "d",
    "reading twice": ".2f",
    "coreset": ".2f",
    "ratio": ".2f",
    "ratio low": ".2f",
    "ratio high": ".2f",
    "GB/s": ".2f",
}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--gigabytes", type=float, default=12.0, help="of rows in the file (default 12)")
    parser.add_argument("--samples", type=int, default=65_536, help="rows of the coreset (default 65,536)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default 3)")
    parser.add_argument("--folder", help="where the file is made (default: that of temporary files)")
    common.add_options(parser, quick="20 MB, 1 round, no result file", threads=True, worker=True)
    args = parser.parse_args()
    if args.worker:
        common.serve(Handler())
        return
    if args.gigabytes <= 0 or args.rounds < 1 or not 1 <= args.threads <= common.cores():
        parser.error(f"more than 0 gigabytes, at least 1 round, and 1 to {common.cores()} threads")
    if args.quick:
        args.gigabytes, args.rounds, args.samples = 0.02, 1, 100
    head = common.announced(["numpy", "shoal"])
    n, d = max(1, int(args.gigabytes * 1e9) // sources.COLUMNS_OF_ROWS), sources.COLUMNS_OF_ROWS
    rows = []
    worker = common.Worker(__file__, threads=args.threads)
    with common.closing([worker]), tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = Path(folder) / "rows.npy"
        sources.write("npy", path, n)
        worker.call("coreset", str(path), False, args.samples, 0)
        for what, cold in (("cold file", True), ("file in the page cache", False)):
            reading, drawing = [], []
            for turn in range(args.rounds):
                reading.append(worker.call("read", str(path), cold))
                seconds, weight = worker.call("coreset", str(path), cold, args.samples, turn)
                if not np.isclose(weight, n, rtol=0.1):
                    raise SystemExit(f"the weights add up to {weight}, there are {n} rows")
                drawing.append(seconds)
            ratios = [d / r for r, d in zip(reading, drawing, strict=True)]
            row = {"what": what, "n": n, "d": d, "m": args.samples, "threads": args.threads}
            row |= {"reading twice": common.median(reading), "coreset": common.median(drawing)}
            row |= {"ratio": common.median(ratios), "ratio low": min(ratios), "ratio high": max(ratios)}
            row["GB/s"] = 2 * path.stat().st_size / 1e9 / row["coreset"]
            rows.append(row)
            print("\n" + common.table([row], COLUMNS), flush=True)
    common.keep("coresets", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
