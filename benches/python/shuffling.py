"""An external shuffle of a file of uint8 vectors, compared with sequential passes that copy the file.

`passes` is the time of the shuffle divided by the time of one copy. The file is not in the page cache at the
start, and the output is flushed to disk. `MB` is anonymous memory beyond that of the process before.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import _common as common
import sources


class Handler:
    """The worker: commands that return seconds."""

    def __call__(self, command: str, *args: Any) -> Any:
        """Run one of the methods below."""
        return getattr(self, command)(*args)

    def begin(self) -> None:
        """Import the packages."""
        import shoal.writing  # noqa: F401

    def copy(self, path: str, out: str) -> float:
        """Copy a file."""
        sources.forget(path)
        begun = time.perf_counter()
        with Path(path).open("rb", buffering=0) as file, Path(out).open("wb", buffering=0) as to:
            while piece := file.read(sources.READ):
                to.write(piece)
            os.fsync(to.fileno())
        return time.perf_counter() - begun

    def shuffle(self, path: str, out: str, memory_limit: str) -> float:
        """Shuffle a file."""
        import shoal

        sources.forget(path)
        begun = time.perf_counter()
        shoal.shuffle(path, out, random_state=0, memory_limit=memory_limit)
        return time.perf_counter() - begun


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--gigabytes", type=float, default=12.0, help="of the file (default 12)")
    parser.add_argument("--memory-limit", default="1GB")
    parser.add_argument("--rounds", type=int, default=1, help="interleaved rounds (default 1)")
    parser.add_argument("--folder", help="where the files are made (default: that of temporary files)")
    common.add_options(parser, quick="20 MB, 10 MB of memory, no result file", worker=True)
    args = parser.parse_args()
    if args.worker:
        common.serve(Handler())
        return
    if args.quick:
        args.gigabytes, args.memory_limit = 0.02, "10MB"
    n = max(1, int(args.gigabytes * 1e9) // sources.COLUMNS_OF_ROWS)
    head = common.announced(["numpy", "shoal"])
    rows = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path, out = Path(folder, "rows.npy"), Path(folder, "out.npy")
        sources.write("npy", path, n)
        for turn in range(args.rounds):
            worker = common.Worker(__file__, threads=common.cores())
            with common.closing([worker]):
                worker.call("begin")
                copied = worker.call("copy", str(path), str(out))
                out.unlink()
                seconds, peak = worker.watched("shuffle", str(path), str(out), args.memory_limit)
                out.unlink()
            about = {
                "round": turn + 1,
                "n": n,
                "file MB": path.stat().st_size / 1e6,
                "limit": args.memory_limit,
            }
            rows.append(
                about | {"pass": copied, "shuffle": seconds, "passes": seconds / copied, "MB": peak / 1e6}
            )
    columns = {"round": "d", "n": "d", "file MB": ".0f", "limit": "", "pass": ".1f", "shuffle": ".1f"}
    print("\n" + common.table(rows, columns | {"passes": ".2f", "MB": ".0f"}), flush=True)
    common.keep("shuffling", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
