"""A billion rows on one machine: fits of files that are larger than memory, killed and resumed.

The rows are made first, from a seed. Set `bytes`: 1,000,000,000 x 16 bytes (16 GB) of a mixture of Gaussians.
A few groups hold most of the rows (a Zipf law), and 100 rare groups hold one row in ten million each. Set
`embeddings`: 10,000,000 x 768 float16 (15 GB) of unit length, from a mixture in 128 directions whose scales
decay. Block number b depends only on the seed and b.
"""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _common as common
import numpy as np

#: Seed of the mixtures and of their rows.
SEED = 0
#: The set of bytes: groups by a Zipf law of this exponent, and rare groups with this share each.
GROUPS, EXPONENT, RARE, RARE_SHARE = 4_000, 1.05, 100, 1e-7
#: The set of embeddings.
TOPICS, DIRECTIONS, DECAY, NOISE = 20_000, 128, 0.5, 0.01


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
class Set:
    """A set of rows at full scale."""

    made_by: Callable[[], Bytes | Embeddings]
    rows: int


SETS = {"bytes": Set(Bytes, 1_000_000_000), "embeddings": Set(Embeddings, 10_000_000)}

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


def make(name: str, path: Path, rows: int) -> None:
    """Make the file of a set, with two processes. If it was interrupted, make the blocks that are missing."""
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
        concurrent.futures.ProcessPoolExecutor(2, context, initializer=_begin, initargs=(name,)) as pool,
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
