"""Run fits of endless streams for a long time, kill them at random moments, and check results and memory.

Usage: ``python tests/soak.py [--minutes 60] [--seed 0]``. Every fit runs in a process of its own, which is
killed and resumed until it ends. Its result must be bit-identical to that of a fit that nobody killed, its
memory must not grow with the length of the stream, and no temporary file may be left. The exit status is 1
if a check fails.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

COLUMNS, ROWS = 16, 5000
#: Most megabytes of a process, with Python, NumPy and SciPy. A stream of 2,000 blocks has 640 MB.
MOST_MEGABYTES = 400


def block(seed: int, number: int) -> np.ndarray:
    """Return a block of the stream, which drifts."""
    rng = np.random.default_rng([seed, number])
    corners = np.random.default_rng(seed).normal(size=(40, COLUMNS)) * 5 + number * 1e-3
    return (corners[rng.integers(40, size=ROWS)] + rng.normal(size=(ROWS, COLUMNS))).astype(np.float32)


def blocks(seed: int, count: int):
    """Return a function that yields the blocks of a stream."""
    return lambda: (block(seed, number) for number in range(count))


def estimators(seed: int):
    """Return the fits by name: the estimator without callbacks, and the length of its stream in blocks."""
    import shoal

    given = {"random_state": seed, "n_jobs": 1}
    return {
        "minibatch": (
            lambda **more: shoal.MiniBatchKMeans(
                40,
                batch_size=1000,
                max_iter=1,
                max_no_improvement=None,
                compute_labels=False,
                **given,
                **more,
            ),
            2000,
        ),
        "fading": (
            lambda **more: shoal.MiniBatchKMeans(
                40,
                batch_size=700,
                half_life=1e5,
                max_iter=1,
                max_no_improvement=None,
                compute_labels=False,
                **given,
                **more,
            ),
            800,
        ),
        "kmeans": (lambda **more: shoal.KMeans(40, init="random", tol=0, max_iter=20, **given, **more), 40),
        "nested": (
            lambda **more: shoal.NestedMiniBatchKMeans(
                40, batch_size=2000, shuffle=False, compute_labels=False, **given, **more
            ),
            60,
        ),
    }


def child(name: str, seed: int, path: Path) -> None:
    """Fit or resume, and print the digest of the centers and the peak of the memory."""
    import resource

    import shoal
    from shoal.callbacks import Checkpoint

    plan, count = estimators(seed)[name]
    rows = blocks(seed, count)
    if path.exists():
        model = shoal.resume(path, rows, callbacks=[Checkpoint(path, every=0.3)])
    else:
        model = plan(callbacks=[Checkpoint(path, every=0.3)]).fit(rows)
    digest = hashlib.sha256(model.cluster_centers_.tobytes()).hexdigest()
    print(digest, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, flush=True)


def run_once(name: str, seed: int, path: Path, seconds: float | None) -> tuple[str, int] | None:
    """Run a child; with `seconds`, kill it after that time. Return what it printed, if it ended."""
    command = [sys.executable, __file__, "--child", name, "--seed", str(seed), "--path", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return None
    if process.returncode:
        raise SystemExit(f"{name}: a process ended with status {process.returncode}")
    digest, megabytes = out.split()
    if int(megabytes) > MOST_MEGABYTES:
        raise SystemExit(f"{name}: {megabytes} MB, more than {MOST_MEGABYTES}")
    return digest, int(megabytes)


def round_of(name: str, seed: int, rng: random.Random, end: float) -> None:
    """Kill and resume one fit until it ends, and compare it with a fit that is not killed."""
    with tempfile.TemporaryDirectory(prefix="shoal-soak-") as folder:
        path, kills = Path(folder) / "run.safetensors", 0
        done = None
        while done is None:
            # The later, the longer the process lives, so that the round ends.
            done = run_once(
                name, seed, path, None if time.monotonic() > end else rng.uniform(1, 4 + 2 * kills)
            )
            kills += done is None
            left = sorted(file.name for file in Path(folder).iterdir())
            if len(left) > 2:
                raise SystemExit(f"{name}: temporary files pile up: {left}")
        whole = run_once(name, seed, Path(folder) / "whole.safetensors", None)
        left = sorted(file.name for file in Path(folder).iterdir())
        if left != ["run.safetensors", "whole.safetensors"]:
            raise SystemExit(f"{name}: temporary files are left: {left}")
    if whole is None or whole[0] != done[0]:
        raise SystemExit(f"{name}, seed {seed}: the resumed fit differs from the whole one")
    print(f"{name}, seed {seed}: {kills} kills, {done[1]} MB resumed, {whole[1]} MB whole", flush=True)


def main() -> None:
    """Run rounds until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child")
    parser.add_argument("--path", type=Path)
    args = parser.parse_args()
    if args.child:
        child(args.child, args.seed, args.path)
        return
    rng, end = random.Random(args.seed), time.monotonic() + 60 * args.minutes
    names, number = [*estimators(0)], 0
    while number < 1 or time.monotonic() < end:
        round_of(names[number % len(names)], args.seed + number, rng, end)
        number += 1


if __name__ == "__main__":
    main()
