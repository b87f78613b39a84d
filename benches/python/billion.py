"""A billion rows on one machine: fits of files that are larger than memory, killed and resumed.

The rows are made first, from a seed. Set `bytes`: 1,000,000,000 x 16 bytes (16 GB) of a mixture of Gaussians.
A few groups hold most of the rows (a Zipf law), and 100 rare groups hold one row in ten million each. Set
`embeddings`: 10,000,000 x 768 float16 (15 GB) of unit length, from a mixture in 128 directions whose scales
decay. Block number b depends only on the seed and b.

Each piece is a fit in a process of its own, with a memory limit if the system has control groups that this
user may create. It is killed three times, each time half an interval after a new checkpoint, and resumed.
Times, bytes read and peaks include what was lost. The energy is the mean squared distance of all rows to
their nearest centers.

Exact k-means starts from the centers of the coreset, and ends when a sweep lowers the energy by a small
share. Nested mini-batches end when all sweeps over a batch, half of whose rows were new, lowered its energy
by as small a share.

All work is resumable: start the same command again after an interruption. Rows, checkpoints and results of
pieces are in `--folder`; `--clean` deletes them.

    python benches/python/billion.py --folder /large/disk --scale 0.01
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import ctypes
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _common as common
import numpy as np
import shoal
from shoal.callbacks import Callback, Checkpoint

#: Seed of the mixtures and of their rows, and of the fits.
SEED = 0
#: The set of bytes: groups by a Zipf law of this exponent, and rare groups with this share each.
GROUPS, EXPONENT, RARE, RARE_SHARE = 4_000, 1.05, 100, 1e-7
#: The set of embeddings.
TOPICS, DIRECTIONS, DECAY, NOISE = 20_000, 128, 0.5, 0.01
#: A nested batch doubles once every center moves less than its statistical error.
RHO = 1.0
#: Rows of the coreset, and the relative change of the energy at which fits of all rows end.
CORESET, CHANGE = 1_000_000, 1e-4
#: At full scale: the memory limit, and the budget of an estimator for what it may keep to save time.
LIMIT, BUDGET = 4_000_000_000, 500_000_000
#: How many times a piece is killed.
KILLS = 3
#: A process takes some memory for any number of rows.
LEAST_LIMIT = 300_000_000
CHECKPOINT, INTERRUPTED = "fit.safetensors", "interrupted.json"


# ---------------------------------------------------------------- rows


class Bytes:
    """Groups of rows of 16 bytes: common ones in the middle of the range, and rare ones near its ends."""

    dtype, dim, block = np.dtype(np.uint8), 16, 1 << 20

    def __init__(self) -> None:
        rng = np.random.default_rng([SEED, 1])
        shares = (np.arange(GROUPS) + 1.0) ** -EXPONENT
        shares *= (1 - RARE * RARE_SHARE) / shares.sum()
        self._shares = np.concatenate([shares, np.full(RARE, RARE_SHARE)])
        common_places = rng.uniform(50, 205, (GROUPS, self.dim))
        rare_places = rng.choice([15.0, 240.0], (RARE, self.dim))
        self._places = np.concatenate([common_places, rare_places]).astype(np.float32)
        self._scales = rng.uniform(4, 16, (GROUPS + RARE, self.dim)).astype(np.float32)

    def rows(self, number: int) -> np.ndarray:
        """Make a block."""
        rng = np.random.Generator(np.random.SFC64([SEED, 2, number]))
        groups = np.repeat(np.arange(len(self._shares)), rng.multinomial(self.block, self._shares))
        rng.shuffle(groups)
        rows = np.empty((self.block, self.dim), dtype=np.uint8)
        for begin in range(0, self.block, 1 << 14):
            part = groups[begin : begin + (1 << 14)]
            made = rng.standard_normal((len(part), self.dim), dtype=np.float32)
            made *= self._scales[part]
            made += self._places[part]
            np.rint(made, out=made)
            rows[begin : begin + len(part)] = made.clip(0, 255, out=made)
        return rows


class Embeddings:
    """Unit rows of 768 features around long-tailed topics, in directions of decaying scale."""

    dtype, dim, block = np.dtype(np.float16), 768, 1 << 15

    def __init__(self) -> None:
        rng = np.random.default_rng([SEED, 3])
        shares = (np.arange(TOPICS) + 10.0) ** -1.0
        self._shares = shares / shares.sum()
        self._scales = (np.arange(DIRECTIONS) + 1.0).astype(np.float32) ** -DECAY
        self._places = rng.standard_normal((TOPICS, DIRECTIONS), dtype=np.float32)
        turned = np.linalg.qr(rng.standard_normal((self.dim, DIRECTIONS)))[0]
        self._directions = np.ascontiguousarray(turned.T, dtype=np.float32)

    def rows(self, number: int) -> np.ndarray:
        """Make a block."""
        rng = np.random.Generator(np.random.SFC64([SEED, 4, number]))
        groups = np.repeat(np.arange(TOPICS), rng.multinomial(self.block, self._shares))
        rng.shuffle(groups)
        inner = rng.standard_normal((self.block, DIRECTIONS), dtype=np.float32)
        inner = (0.6 * inner + self._places[groups]) * self._scales
        rows = rng.standard_normal((self.block, self.dim), dtype=np.float32)
        rows *= NOISE
        rows += inner @ self._directions
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows.astype(np.float16)


@dataclass(frozen=True)
class RowSet:
    """A set of rows at full scale."""

    made_by: Callable[[], Bytes | Embeddings]
    rows: int


SETS = {"bytes": RowSet(Bytes, 1_000_000_000), "embeddings": RowSet(Embeddings, 10_000_000)}

_maker: Bytes | Embeddings


def _begin(name: str) -> None:
    global _maker  # noqa: PLW0603
    _maker = SETS[name].made_by()


def _write(path: str, offset: int, rows: int, number: int) -> int:
    """Write a block to its place in the file."""
    begin = number * _maker.block
    data = memoryview(_maker.rows(number)[: rows - begin]).cast("B")
    with Path(path).open("r+b", buffering=0) as file:
        file.seek(offset + begin * _maker.dim * _maker.dtype.itemsize)
        while data:
            data = data[file.write(data) :]
        os.fdatasync(file.fileno())
    return number


def make(name: str, path: Path, rows: int, processes: int) -> None:
    """Make the file of a set. If it was interrupted, make the blocks that are missing."""
    if path.exists():
        return
    maker = SETS[name].made_by()
    part, marks = path.with_suffix(".part"), path.with_suffix(".blocks")
    blocks = -(-rows // maker.block)
    if not marks.exists():
        part.unlink(missing_ok=True)
        file = np.lib.format.open_memmap(part, "w+", dtype=maker.dtype, shape=(rows, maker.dim))
        del file
        marks.write_bytes(bytes(blocks))
    offset = np.load(part, mmap_mode="r").offset
    missing = [number for number, mark in enumerate(marks.read_bytes()) if not mark]
    left, shown = len(missing), 0.0
    context = multiprocessing.get_context("spawn")
    with (
        concurrent.futures.ProcessPoolExecutor(
            processes, context, initializer=_begin, initargs=(name,)
        ) as pool,
        marks.open("r+b", buffering=0) as marked,
    ):
        jobs = [pool.submit(_write, str(part), offset, rows, number) for number in missing]
        for job in concurrent.futures.as_completed(jobs):
            marked.seek(job.result())
            marked.write(b"\1")
            left -= 1
            if time.monotonic() - shown > 10 or not left:
                shown = time.monotonic()
                print(f"{path.name}: {1 - left / blocks:.1%} of the rows are made", flush=True)
    part.rename(path)
    marks.unlink()


# ---------------------------------------------------------------- the worker's side


@dataclass(frozen=True)
class Task:
    """What a worker fits: the rows, the number of clusters, its files and its limits."""

    rows: str
    k: int
    folder: str
    coreset: str
    n_coreset: int
    memory: int
    every: float
    threads: int

    def path(self, name: str) -> str:
        return str(Path(self.folder, name))


class Shown(Callback):
    """A callback that prints a step every few seconds, and once in a minute how far a long step is."""

    def __init__(self, name: str) -> None:
        self._name, self._at = name, time.monotonic()

    def __call__(self, _: Any, step: Any) -> None:
        """Show a step."""
        if time.monotonic() - self._at < 5 and step.iteration > 1:
            return
        self._at = time.monotonic()
        print(
            f"{self._name}: step {step.iteration}, {step.batch_size} rows, objective {step.objective:.6g}, "
            f"{step.n_changed / step.batch_size:.2%} changed, {step.elapsed:.0f} s",
            flush=True,
        )

    def working(self, _: Any, phase: str, share: float | None, seconds: float) -> None:
        """Show a long step."""
        if time.monotonic() - self._at > 60:
            self._at = time.monotonic()
            done = "" if share is None else f" {share:.0%}"
            print(f"{self._name}: {phase or 'step'}{done}, {seconds:.0f} s", flush=True)


def settled(model: Any, _: Any) -> bool:
    """Whether the last sweep lowered the energy by a small share."""
    last = model.history_["objective"][-2:]
    return len(last) == 2 and last[0] - last[1] <= CHANGE * last[0]


def grown_enough(model: Any, _: Any) -> bool:
    """Whether the batch has just grown, and the sweeps over the one before hardly lowered its energy."""
    sizes, energies = model.history_["batch_size"], model.history_["objective"]
    ends = np.flatnonzero(np.diff(sizes))
    if len(ends) < 2 or ends[-1] != len(sizes) - 2:
        return False
    first, last = energies[ends[-2] + 1], energies[ends[-1]]
    return bool(first - last <= CHANGE * first)


def fitted(name: str, task: Task, model: Any, rows: Any, stops: list[Any]) -> Any:
    """Fit, or resume a fit from its checkpoint."""
    path = task.path(CHECKPOINT)
    run = {"callbacks": [Checkpoint(path, every=task.every), Shown(name), *stops], "n_jobs": task.threads}
    if Path(path).exists():
        return shoal.resume(path, rows, **run)
    return model.set_params(**run).fit(rows)


def fit_nested(name: str, task: Task) -> Any:
    # The rows of the file are in random order. Drawn rows would be on nearly all pages of the file.
    model = shoal.NestedMiniBatchKMeans(
        task.k, rho=RHO, tol=1e-4, shuffle=False, memory=task.memory, random_state=SEED
    )
    return fitted(name, task, model, task.rows, [grown_enough])


def fit_coreset(name: str, task: Task) -> Any:
    path = task.coreset
    if not Path(path).exists():
        callbacks = [Shown(name)]
        made = shoal.lightweight_coreset(
            task.rows,
            task.n_coreset,
            n_clusters=task.k,
            random_state=SEED,
            n_jobs=task.threads,
            callbacks=callbacks,
        )
        made.save(path)
    model = shoal.KMeans(task.k, n_init=1, memory=task.memory, random_state=SEED)
    return fitted(name, task, model, path, [])


def fit_kmeans(name: str, task: Task) -> Any:
    """Fit exact k-means, from the centers of the coreset if there are any."""
    given = Path(task.coreset).with_suffix(".centers.npy")
    init: Any = np.load(given) if given.exists() else "auto"
    model = shoal.KMeans(task.k, init=init, n_init=1, tol=0, memory=task.memory, random_state=SEED)
    return fitted(name, task, model, task.rows, [settled])


def fit_tree(name: str, task: Task) -> Any:
    model = shoal.HierarchicalKMeans(task.k, random_state=SEED)
    return fitted(name, task, model, task.rows, [])


def work(name: str, task: Task) -> None:
    """Fit a piece and write what was found."""
    if hasattr(signal, "SIGKILL") and sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # ends with its parent
    if group := os.environ.get("SHOAL_BENCH_GROUP"):
        Path(group, "cgroup.procs").write_text(str(os.getpid()), encoding="utf-8")
    model = PIECES[name].fit(name, task)
    if name == "coreset":
        np.save(Path(task.coreset).with_suffix(".centers.npy"), model.cluster_centers_)
        energy = -model.score(task.rows)
    else:
        energy = model.inertia_
    rows_read = int(model.history_["rows_seen"][-1])
    found = {
        "energy": energy,
        "steps": len(model.history_),
        "rows in steps": rows_read,
        "algorithm": getattr(model, "algorithm_", None),
        "ended by": model.stop_reason_,
    }
    part = Path(task.path("found.part"))
    part.write_text(json.dumps(found), encoding="utf-8")
    part.rename(task.path("found.json"))


@dataclass(frozen=True)
class Piece:
    """A fit: the set, the number of clusters at full scale, and the function that fits."""

    rows: str
    k: int
    fit: Callable[[str, Task], Any]
    #: Seconds between checkpoints at full scale.
    every: float = 20.0


PIECES = {
    "nested": Piece("bytes", 1_000, fit_nested),
    "coreset": Piece("bytes", 1_000, fit_coreset, every=5.0),
    "kmeans": Piece("bytes", 1_000, fit_kmeans),
    "tree": Piece("embeddings", 10_000, fit_tree),
    "kmeans-768": Piece("embeddings", 1_000, fit_kmeans),
}


# ---------------------------------------------------------------- the parent's side


@contextlib.contextmanager
def limited(limit: int) -> Iterator[str | None]:
    """Make a control group with a memory limit, if that is possible."""
    for root, file in (("memory", "memory.limit_in_bytes"), ("", "memory.max")):
        group = Path("/sys/fs/cgroup", root, f"shoal-billion-{os.getpid()}")
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / file).write_text(str(limit), encoding="utf-8")
        except OSError:
            group.rmdir()
            continue
        try:
            yield str(group)
        finally:
            with contextlib.suppress(OSError):
                group.rmdir()
        return
    yield None


def dropped_from_cache(path: str) -> None:
    """Drop a file from the page cache. Cached pages count for the process that read them first."""
    if hasattr(os, "posix_fadvise"):
        with Path(path).open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def written(folder: str) -> int:
    """Return the time of the last change of the checkpoint in nanoseconds; 0 without a checkpoint."""
    path = Path(folder, CHECKPOINT)
    return path.stat().st_mtime_ns if path.exists() else 0


def spent(pid: int) -> dict[str, float]:
    """Return what a running process has taken so far, if the system reports it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        counts = Path(f"/proc/{pid}/io").read_text(encoding="utf-8")
    except OSError:
        return {}
    ticks = os.sysconf("SC_CLK_TCK")
    read = re.search(r"^read_bytes: (\d+)", counts, re.MULTILINE)
    return {"cpu s": (int(fields[11]) + int(fields[12])) / ticks, "read": int(read[1]) if read else 0}


def run(name: str, task: Task, group: str | None, kill: bool) -> dict[str, Any]:
    """Run a worker to its end, or kill it soon after its first checkpoint. Return what it took."""
    env = {**os.environ, "SHOAL_BENCH_GROUP": group or "", "SHOAL_NUM_THREADS": str(task.threads)}
    dropped_from_cache(task.rows)
    last, begun = written(task.folder), time.monotonic()
    kill_at, peak, killed, noted = float("inf"), 0, False, begun
    command = [sys.executable, __file__, "--folder", task.folder, "--worker", json.dumps([name, vars(task)])]
    worker = subprocess.Popen(command, env=env)
    while True:
        ended, status, used = os.wait4(worker.pid, os.WNOHANG)
        if ended:
            break
        peak = max(peak, common.anonymous(worker.pid))
        if (now := written(task.folder)) != last:
            last = now
            if kill:
                kill, kill_at = False, time.monotonic() + task.every / 2
        if time.monotonic() > noted + 5:
            # Counts if this process is interrupted.
            noted = time.monotonic()
            now_spent = {"s": noted - begun, "cpu s": 0.0, "read": 0, "peak": peak, "kills": 0}
            now_spent |= spent(worker.pid) | {"limited": group is not None}
            Path(task.path(INTERRUPTED)).write_text(json.dumps(now_spent), encoding="utf-8")
        if time.monotonic() > kill_at and not killed:
            worker.kill()
            killed = True
        time.sleep(0.02)
    worker.returncode = status
    if status and not killed:
        raise SystemExit(f"{name}: the worker has failed")
    return {
        "s": time.monotonic() - begun,
        "cpu s": used.ru_utime + used.ru_stime,
        "read": used.ru_inblock * 512,
        "peak": peak,
        "kills": int(killed and status != 0),
    }


def measure(name: str, task: Task, limit: int) -> dict[str, Any]:
    """Fit a piece, killing and resuming it, and return its line of the table."""
    folder = Path(task.folder)
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "runs.json"
    runs = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else []
    found, interrupted = folder / "found.json", folder / INTERRUPTED
    if interrupted.exists():
        runs.append(json.loads(interrupted.read_text(encoding="utf-8")))
        kept.write_text(json.dumps(runs), encoding="utf-8")
        interrupted.unlink()
    while not found.exists():
        kills = sum(one["kills"] for one in runs)
        with limited(limit) as group:
            one = run(name, task, group, kills < KILLS)
        runs.append({**one, "limited": group is not None})
        kept.write_text(json.dumps(runs), encoding="utf-8")
        interrupted.unlink(missing_ok=True)
        print(f"{name}: {'killed' if one['kills'] else 'ended'} after {one['s']:.0f} s", flush=True)
    n, d = np.load(task.rows, mmap_mode="r").shape
    result = json.loads(found.read_text(encoding="utf-8"))
    total = {key: sum(one[key] for one in runs) for key in ("s", "cpu s", "read", "kills")}
    return {
        "piece": name,
        "n": n,
        "d": d,
        "k": task.k,
        "file GB": Path(task.rows).stat().st_size / 1e9,
        "limit GB": limit / 1e9 if all(one["limited"] for one in runs) else None,
        "s": total["s"],
        "cpu s": total["cpu s"],
        "read GB": total["read"] / 1e9,
        "peak GB": max(one["peak"] for one in runs) / 1e9,
        "kills": total["kills"],
        "energy": result["energy"] / n,
        "steps": result["steps"],
        "sweeps": result["rows in steps"] / n,
        "algorithm": result["algorithm"],
        "ended by": result["ended by"],
    }


COLUMNS = {
    "piece": "",
    "n": "d",
    "d": "d",
    "k": "d",
    "file GB": ".2f",
    "limit GB": ".2f",
    "s": ".1f",
    "cpu s": ".1f",
    "read GB": ".2f",
    "peak GB": ".3f",
    "kills": "d",
    "energy": ".6g",
    "steps": "d",
    "sweeps": ".2f",
    "algorithm": "",
    "ended by": "",
}


def clean(folder: Path) -> None:
    """Delete the files of all sets and pieces of any scale, and nothing else in the folder."""
    rows = re.compile(rf"({'|'.join(SETS)})-\d+(\.\w+)+")
    pieces = re.compile(rf"({'|'.join(PIECES)})-\d+")
    for path in folder.iterdir():
        if path.is_dir() and pieces.fullmatch(path.name):
            shutil.rmtree(path)
        elif rows.fullmatch(path.name):
            path.unlink()


def main() -> None:
    """Make the rows, measure the pieces and write the table."""
    parser = common.parser(__doc__)
    parser.add_argument("--folder", required=True, help="where rows and checkpoints are")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on all numbers of rows and bytes")
    parser.add_argument("--pieces", nargs="+", choices=PIECES, default=list(PIECES), metavar="PIECE")
    parser.add_argument("--note", help="a line for the head of the table")
    parser.add_argument("--clean", action="store_true", help="only delete the rows and all files of pieces")
    parser.add_argument("--threads", type=int, default=common.cores(), help="default: all cores")
    parser.add_argument("--csv", help="file for the table (default: a new one in benches/results)")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        name, task = json.loads(args.worker)
        work(name, Task(**task))
        return
    folder = Path(args.folder)
    if args.clean:
        clean(folder)
        return
    folder.mkdir(parents=True, exist_ok=True)
    head = common.announced(["numpy", "shoal"]) | ({"note": args.note} if args.note else {})
    lines = []
    for name in args.pieces:
        piece = PIECES[name]
        n = round(SETS[piece.rows].rows * args.scale)
        rows = folder / f"{piece.rows}-{n}.npy"
        make(piece.rows, rows, n, args.threads)
        task = Task(
            rows=str(rows),
            k=piece.k,
            folder=str(folder / f"{name}-{n}"),
            coreset=str(folder / f"{piece.rows}-{n}.coreset.npz"),
            n_coreset=min(CORESET, max(20 * piece.k, round(CORESET * args.scale))),
            memory=max(1, round(BUDGET * args.scale)),
            every=max(0.2, piece.every * min(1.0, args.scale)),
            threads=args.threads,
        )
        lines.append(measure(name, task, max(LEAST_LIMIT, round(LIMIT * args.scale))))
        print("\n" + common.table(lines, COLUMNS), flush=True)
    common.keep("billion", head, lines, args.csv, args.scale < 1)


if __name__ == "__main__":
    main()
