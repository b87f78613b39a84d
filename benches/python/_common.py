"""Shared parts of the benchmarks: data sets, command line, worker processes, tables and result files."""

from __future__ import annotations

import argparse
import contextlib
import csv
import datetime as dt
import importlib.metadata
import os
import pickle
import platform
import re
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

#: Measures a part of a program: rows of a table, and lines of text about them.
Part = Callable[[argparse.Namespace], tuple[list[dict[str, Any]], list[str]]]

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benches" / "results"
#: Storage types that are computed as float32; all others as float64.
NARROW = {"uint8", "int8", "int16", "uint16", "float16", "float32"}


# ---------------------------------------------------------------- machine


def cpu_info() -> tuple[str, set[str]]:
    """Return the name of the processor and its flags."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    name = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.*)$", text, re.MULTILINE)
    fallback = platform.processor() or platform.machine()
    return (name[1].strip() if name else fallback), set(flags[1].split() if flags else ())


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def blas_core() -> str | None:
    """Return the value for ``OPENBLAS_CORETYPE``: old OpenBLAS wheels do not detect new processors."""
    flags = cpu_info()[1]
    if "avx512f" in flags:
        return "SkylakeX"
    return "Haswell" if "avx2" in flags else None


def blas_settings() -> dict[str, str]:
    """Return the environment of a worker whose library has an old OpenBLAS."""
    core = blas_core()
    return {"OPENBLAS_CORETYPE": core} if core else {}


# Distributions whose name is not that of the module.
DISTRIBUTIONS = {"shoal": "shoal-cluster"}


def versions(packages: Iterable[str]) -> str:
    """Return ``name version`` for each package."""
    found = []
    for name in packages:
        try:
            found.append(f"{name} {importlib.metadata.version(DISTRIBUTIONS.get(name, name))}")
        except importlib.metadata.PackageNotFoundError:
            # Not installed, or found through PYTHONPATH only.
            found.append(f"{name} unknown")
    return ", ".join(found)


def description(packages: Iterable[str]) -> dict[str, str]:
    """Describe machine, versions, commit and command, for the head of a result."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    now = dt.datetime.now(tz=dt.UTC)
    return {
        "date": now.isoformat(timespec="minutes"),
        "cpu": f"{cpu_info()[0]}, {cores()} cores usable",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "load": " ".join(f"{x:.2f}" for x in os.getloadavg()) if hasattr(os, "getloadavg") else "",
        "versions": versions(packages),
        "commit": commit,
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def announce(head: dict[str, str]) -> None:
    """Print the head of a result."""
    print("\n".join(f"{key}: {value}" for key, value in head.items()), flush=True)


def announced(packages: Iterable[str]) -> dict[str, str]:
    """Describe this run as :func:`description` does, and print the description."""
    head = description(packages)
    announce(head)
    return head


# ---------------------------------------------------------------- command line


def parser(about: str | None) -> argparse.ArgumentParser:
    """Make a parser whose help shows the docstring of a program with its line breaks."""
    return argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_options(
    to: argparse.ArgumentParser, *, quick: str, threads: bool = False, worker: Sequence[str] | bool = False
) -> None:
    """Add the options that most programs share.

    Parameters
    ----------
    to : argparse.ArgumentParser
        The parser.
    quick : str
        What ``--quick`` changes.
    threads : bool
        Whether to add ``--threads``; the default is all cores.
    worker : sequence of str or bool
        Values of the hidden option ``--worker``, or True for a flag; False for programs without workers.
    """
    if threads:
        to.add_argument("--threads", type=int, default=cores(), help="default: all cores")
    to.add_argument("--csv", help="file for the table (default: a new one in benches/results/<processor>/)")
    to.add_argument("--quick", action="store_true", help=quick)
    if worker is True:
        to.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    elif worker:
        to.add_argument("--worker", choices=list(worker), help=argparse.SUPPRESS)


# ---------------------------------------------------------------- data


def load(spec: str) -> tuple[str, np.ndarray, int]:
    """Read a data set ``name:k`` or ``name/member:k``, optionally followed by ``:f32`` or ``:f64``.

    Returns the name, the rows in their compute type, and k. The name is that of an ``.npz`` file with a
    member ``X`` in the folder ``$SHOAL_DATA``, or the path of an ``.npy`` file.
    """
    name, *rest = spec.split(":")
    if not rest or not rest[0].isdigit():
        raise SystemExit(f"--data {spec}: expected name:k")
    X = raw(name)
    kind = rest[1] if len(rest) > 1 else ("f32" if X.dtype.name in NARROW else "f64")
    if kind not in ("f32", "f64"):
        raise SystemExit(f"--data {spec}: the type must be f32 or f64")
    return name, np.ascontiguousarray(X, dtype=np.float32 if kind == "f32" else np.float64), int(rest[0])


def raw(name: str) -> np.ndarray:
    """Read the rows of a data set in their stored type."""
    if name.endswith(".npy"):
        return np.load(name)
    folder = os.environ.get("SHOAL_DATA")
    if not folder:
        raise SystemExit("set SHOAL_DATA to the folder that holds the data sets (.npz with a member X)")
    stem, _, member = name.partition("/")
    path = Path(folder) / f"{stem}.npz"
    if not path.exists():
        raise SystemExit(f"no {path.name} in SHOAL_DATA")
    with np.load(path) as archive:
        return archive[f"{member}/X" if member else "X"]


def distinct_rows(X: np.ndarray, k: int, seed: int = 0) -> np.ndarray:
    """Return the first k distinct rows of a random order, the initial centers for all libraries."""
    seen: set[bytes] = set()
    chosen = []
    for i in np.random.default_rng(seed).permutation(len(X)):
        key = X[i].tobytes()
        if key not in seen:
            seen.add(key)
            chosen.append(i)
            if len(chosen) == k:
                return X[np.array(chosen)].copy()
    raise SystemExit(f"only {len(chosen)} distinct rows for {k} centers")


def objective(X: np.ndarray, centers: np.ndarray) -> float:
    """Sum the squared distances of all rows to their nearest centers in float64."""
    C = np.asarray(centers, dtype=np.float64)
    shift = C.mean(axis=0)
    moved = C - shift
    norms = (moved**2).sum(axis=1)
    total = 0.0
    step = max(1, 4_000_000 // max(len(C), X.shape[1]))
    for start in range(0, len(X), step):
        rows = X[start : start + step].astype(np.float64)
        labels = (norms - 2.0 * ((rows - shift) @ moved.T)).argmin(axis=1)
        total += float(((rows - C[labels]) ** 2).sum())
    return total


# ---------------------------------------------------------------- workers


class Worker:
    """A worker process with its own thread pools and settings that answers commands until it is closed."""

    def __init__(
        self,
        script: str | Path,
        *args: str,
        threads: int,
        env: dict[str, str] | None = None,
        python: str | None = None,
    ) -> None:
        count = str(threads)
        pools = ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "RAYON")
        settings = {f"{pool}_NUM_THREADS": count for pool in pools}
        self._process = subprocess.Popen(
            [python or sys.executable, str(script), "--worker", *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **settings, "SHOAL_BENCH_THREADS": count, **(env or {})},
        )

    def send(self, *command: Any) -> None:
        """Send a command."""
        data = pickle.dumps(command)
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(struct.pack("<Q", len(data)) + data)
            pipe.flush()
        except BrokenPipeError:
            raise RuntimeError("the worker has died") from None

    def receive(self) -> Any:
        """Wait for the answer; raise an error if the command failed."""
        pipe = self._process.stdout
        assert pipe is not None
        head = pipe.read(8)
        if len(head) < 8:
            raise RuntimeError(f"the worker has died (exit code {self._process.wait()})")
        ok, value = pickle.loads(pipe.read(struct.unpack("<Q", head)[0]))
        if not ok:
            raise RuntimeError(value)
        return value

    def call(self, *command: Any) -> Any:
        """Send a command and wait for the answer."""
        self.send(*command)
        return self.receive()

    def watched(self, *command: Any) -> tuple[Any, int]:
        """Call, and measure the peak of anonymous memory in bytes beyond the memory before the call.

        This process samples the peak, so that it also sees code that holds the interpreter lock of the
        worker.
        """
        before = anonymous(self._process.pid)
        peak = before
        done = threading.Event()

        def sample() -> None:
            nonlocal peak
            while not done.is_set():
                peak = max(peak, anonymous(self._process.pid))
                time.sleep(0.001)

        sampler = threading.Thread(target=sample)
        sampler.start()
        try:
            value = self.call(*command)
        finally:
            done.set()
            sampler.join()
        return value, peak - before

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def closing(workers: Iterable[Worker]) -> Iterator[None]:
    """Close all workers at the end of a block.

    A view such as ``dict.values()`` includes workers that are added within the block.
    """
    try:
        yield
    finally:
        for worker in workers:
            worker.close()


def serve(handler: Callable[..., Any]) -> None:
    """Answer commands until the pipe closes; the worker's side of `Worker`."""
    threads = int(os.environ["SHOAL_BENCH_THREADS"])
    if hasattr(os, "sched_setaffinity"):
        # The same cores for every library. This also limits pools that read no environment variable (TBB).
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with the answers
    while len(head := sys.stdin.buffer.read(8)) == 8:
        command = pickle.loads(sys.stdin.buffer.read(struct.unpack("<Q", head)[0]))
        try:
            answer = (True, handler(*command))
        except Exception as error:  # noqa: BLE001
            answer = (False, f"{type(error).__name__}: {error}")
        data = pickle.dumps(answer)
        answers.write(struct.pack("<Q", len(data)) + data)
        answers.flush()


def anonymous(pid: int) -> int:
    """Return the anonymous resident memory of a process in bytes; 0 if the system does not report it."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.search(r"^RssAnon:\s*(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


# ---------------------------------------------------------------- results


def table(rows: list[dict[str, Any]], columns: dict[str, str]) -> str:
    """Format rows as text; `columns` maps column names to format specifications."""

    def cell(row: dict[str, Any], name: str) -> str:
        value = row.get(name)
        if value is None:
            return "-"
        if isinstance(value, str):
            return value if len(value) <= 60 else value[:57] + "..."
        return format(value, columns[name])

    text = [list(columns)] + [[cell(row, name) for name in columns] for row in rows]
    widths = [max(len(line[i]) for line in text) for i in range(len(columns))]
    return "\n".join("  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in text)


def results(kind: str, suffix: str, folder: str | None = None) -> Path:
    """Return an unused path ``<date>-<kind>.<suffix>`` in `folder`, by default
    ``benches/results/<processor>``.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((r|tm)\)|@", " ", cpu_info()[0].lower())).strip("-")
    stem = f"{dt.datetime.now(tz=dt.UTC).date()}-{kind}"
    path = (RESULTS / slug if folder is None else Path(folder)) / f"{stem}.{suffix}"
    number = 1
    while path.exists():
        number += 1
        path = path.with_name(f"{stem}-{number}.{suffix}")
    return path


def keep(kind: str, head: dict[str, str], rows: list[dict[str, Any]], to: str | None, quick: bool) -> None:
    """Write rows as CSV to the path `to`, by default to a new file of `results`."""
    if quick and to is None:
        print("not kept (--quick); --csv PATH keeps it")
        return
    path = results(kind, "csv") if to is None else Path(to)
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(f"# {name}: {value}\n" for name, value in head.items())
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"kept as {path}")


def run_parts(kind: str, args: argparse.Namespace, parts: dict[str, tuple[Part, dict[str, str]]]) -> None:
    """Measure the parts that ``--parts`` names, print their tables and lines, and keep all of their rows.

    A part is a function that takes the options and returns rows and lines, with the columns of its table.
    """
    head = announced(["numpy", "shoal", "scikit-learn"])
    rows: list[dict[str, Any]] = []
    for name in args.parts:
        measure, columns = parts[name]
        found, lines = measure(args)
        print("\n" + table(found, columns))
        print("\n".join(lines), flush=True)
        head |= {f"{name}, {number}": line for number, line in enumerate(lines, 1)}
        rows += found
    keep(kind, head, rows, args.csv, args.quick)


def median(values: Iterable[float]) -> float:
    """Return the median as a Python float."""
    return float(np.median(list(values)))
