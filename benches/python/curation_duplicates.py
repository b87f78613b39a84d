"""Duplicates: which pairs are found, and in what time, against brute force over all pairs.

The ways are the exact search, the search of a few nearest cells, and the rule of SemDeDup, which compares
rows within their cells only, on the same cells. `recall` is the number of found pairs over the number of
pairs that brute force finds (NumPy, float64). `compared` are computed distances as a fraction of all
pairs, and `kept` is the fraction of the rows that are kept. `seconds` are medians over the rounds.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import _common as common
import numpy as np
import shoal
from datasets import cache

#: Data sets with their largest number of rows, and cosine distances.
SETS: dict[str, tuple[int, tuple[float, ...]]] = {
    "mnist_70k": (50_000, (0.02, 0.05, 0.1)),
    "resnet18_cifar_16k": (50_000, (0.02, 0.05, 0.1)),
    "wordvec_ppmi_svd100": (50_000, (0.02, 0.05, 0.1)),
    "sift_bsds_trainval": (50_000, (0.02, 0.05, 0.1)),
}
WAYS: dict[str, dict[str, Any]] = {
    "exact": {},
    "4 cells": {"exact": False, "n_probes": 4},
    "within cells (SemDeDup)": {
        "exact": False,
        "n_probes": 1,
        "linkage": "semdedup",
        "keep": "farthest-from-center",
    },
}
COLUMNS = {
    "data": "",
    "way": "",
    "n": "d",
    "d": "d",
    "threshold": "g",
    "pairs": "d",
    "recall": ".4f",
    "compared": ".4f",
    "kept": ".3f",
    "seconds": ".2f",
    "peak MB": ".0f",
}
#: Rows of a block of brute force.
BLOCK = 2048


def brute_force(X: np.ndarray, thresholds: tuple[float, ...]) -> list[int]:
    """Count the pairs of rows within every cosine distance."""
    unit = X.astype(np.float64)
    norms = np.linalg.norm(unit, axis=1, keepdims=True)
    unit = (unit / np.where(norms > 0, norms, 1)).astype(np.float32).astype(np.float64)
    counts = np.zeros(len(thresholds), dtype=np.int64)
    sq_norms = (unit**2).sum(axis=1)
    for first in range(0, len(unit), BLOCK):
        block = unit[first : first + BLOCK]
        far = (sq_norms[first : first + BLOCK, None] + sq_norms[first:]) / 2 - block @ unit[first:].T
        later = np.arange(len(unit) - first) > np.arange(len(block))[:, None]
        counts += [int((later & (far <= t)).sum()) for t in thresholds]
    return counts.tolist()


def made_file(n: int) -> Path:
    """Return a file of `n` rows of 256 half-precision values in tight groups, with near-copies."""
    path = cache() / f"near-copies-{n}.npy"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    means, spread = rng.normal(size=(2000, 32)), rng.normal(size=(32, 256)).astype(np.float32) / np.sqrt(32)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        header = {"descr": "<f2", "fortran_order": False, "shape": (n, 256)}
        np.lib.format.write_array_header_1_0(file, header)
        for first in range(0, n, 50_000):
            m = min(50_000, n - first)
            latent = means[rng.integers(0, 2000, m)] + 0.7 * rng.normal(size=(m, 32))
            block = latent.astype(np.float32) @ spread + 0.05 * rng.normal(size=(m, 256)).astype(np.float32)
            copies, originals = rng.integers(0, m, (2, m // 20))
            block[copies] = block[originals] + 0.1 * rng.normal(size=(m // 20, 256)).astype(np.float32)
            file.write(block.astype(np.float16).tobytes())
    part.rename(path)
    return path


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """Yield a list that holds, after the block, the largest anonymous memory of this process in MB."""
    found, over = [0.0], threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            found[0] = max(found[0], common.anonymous(os.getpid()) / 1e6)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield found
    finally:
        over.set()
        watcher.join()


def large(n: int, threads: int) -> dict[str, Any]:
    """Measure a search of a file once."""
    path = made_file(n)
    begun = time.perf_counter()
    with peak_memory() as peak:
        found = shoal.curation.deduplicate(path, 0.05, random_state=0, n_jobs=threads, verbose=1)
    row: dict[str, Any] = {"data": "file of made rows", "way": "exact", "n": n, "d": 256, "threshold": 0.05}
    row |= {"pairs": found.n_pairs_, "compared": found.compared_, "cells": found.n_clusters_}
    row |= {"kept": found.keep_.mean(), "rounds": 1, "seconds": time.perf_counter() - begun}
    return row | {"peak MB": peak[0]}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="runs of every search (default 3)")
    parser.add_argument("--threads", type=int, default=2, help="threads (default 2)")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="default: all")
    parser.add_argument("--large", type=int, metavar="N", help="also search a file of N made rows, once")
    common.add_options(parser, quick="3,000 rows, one round, no result file")
    args = parser.parse_args()
    head = common.announced(["numpy", "shoal"])
    rows = []
    for data in args.sets:
        most, thresholds = SETS[data]
        X = np.ascontiguousarray(common.raw(data)[: 3000 if args.quick else most], dtype=np.float32)
        X = X[np.any(X != 0, axis=1)]
        begun = time.perf_counter()
        expected = brute_force(X, thresholds)
        seconds = time.perf_counter() - begun
        sizes = {"data": data, "n": len(X), "d": X.shape[1]}
        brute = [
            {
                **sizes,
                "way": "brute force (NumPy)",
                "threshold": t,
                "pairs": n,
                "recall": 1.0,
                "seconds": seconds,
            }
            for t, n in zip(thresholds, expected, strict=True)
        ]
        rows += brute
        for threshold, n_pairs in zip(thresholds, expected, strict=True):
            for way, options in WAYS.items():
                taken = []
                for _ in range(1 if args.quick else args.rounds):
                    begun = time.perf_counter()
                    found = shoal.curation.deduplicate(
                        X, threshold, random_state=0, n_jobs=args.threads, **options
                    )
                    taken.append(time.perf_counter() - begun)
                row = {**sizes, "way": way, "threshold": threshold, "pairs": found.n_pairs_}
                row |= {"recall": found.n_pairs_ / n_pairs if n_pairs else 1.0, "compared": found.compared_}
                row |= {"cells": found.n_clusters_, "kept": found.keep_.mean(), "rounds": len(taken)}
                row["seconds"] = statistics.median(taken)
                rows.append(row)
                print(common.table([row], COLUMNS), flush=True)
    if args.large:
        rows.append(large(args.large, args.threads))
        print(common.table(rows[-1:], COLUMNS), flush=True)
    common.keep("duplicates", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
