"""Large data sets for the experiments of papers, made from small ones and cached as ``.npy`` files.

The files are in the folder ``$SHOAL_BENCH_CACHE``, by default in ``~/.cache/shoal-bench``, never in the
repository. Rows are in random order, and the last rows are for validation. The contents depend on the seed
only, except for the rounding of matrix products: a gray value can differ by one between machines.

    python benches/python/datasets.py deformed-mnist --picture digits.png
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _common as common
import numpy as np

SIDE = 28
#: Digits that are deformed in one block. The random numbers depend on it.
BLOCK = 1024
#: Maximum rotation in degrees, change of scale, shear, and shift in pixels; the standard deviation of the
#: elastic displacement in pixels, and that of the Gaussian that smooths it.
TURN, SCALE, SLANT, SHIFT = 10.0, 0.1, 0.1, 1.5
ELASTIC, SMOOTH = 1.0, 4.0


# ---------------------------------------------------------------- deformed digits


def smoother(side: int, width: float) -> np.ndarray:
    """Return a matrix that smooths a line with a Gaussian and keeps the variance of white noise.

    Multiplied from both sides, it smooths an image.
    """
    at = np.arange(side)
    weights = np.exp(-0.5 * ((at[:, None] - at[None]) / width) ** 2)
    return weights / np.sqrt((weights**2).sum(axis=1, keepdims=True))


def deform(digits: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Deform each of the digits (m, side, side) by an affine and an elastic map of its own.

    A pixel of the result is interpolated between the four pixels around its source position. Pixels outside
    the image are 0.
    """
    m, side, _ = digits.shape
    turn = np.deg2rad(rng.uniform(-TURN, TURN, m))
    grow_x, grow_y = 1.0 + rng.uniform(-SCALE, SCALE, (2, m))
    slant = rng.uniform(-SLANT, SLANT, m)
    shift = rng.uniform(-SHIFT, SHIFT, (m, 2))
    cos, sin = np.cos(turn), np.sin(turn)
    turned = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], -2)
    bent = np.stack([np.stack([grow_x, slant * grow_y], -1), np.stack([0 * slant, grow_y], -1)], -2)
    middle = (side - 1) / 2
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), -1) - middle
    smooth = smoother(side, SMOOTH)
    noise = rng.standard_normal((2, m, side, side))
    place = np.moveaxis(ELASTIC * (smooth @ noise @ smooth.T), 0, -1)
    place += (grid.reshape(-1, 2) @ np.swapaxes(turned @ bent, 1, 2)).reshape(m, side, side, 2)
    place += shift[:, None, None, :] + middle
    # A frame of zeros for positions outside the image.
    framed = np.zeros((m, side + 2, side + 2), dtype=np.float32)
    framed[:, 1:-1, 1:-1] = digits
    place = np.clip(place + 1.0, 0.0, side + 0.999)
    corner = place.astype(np.intp)
    down, right = np.moveaxis((place - corner).astype(np.float32), -1, 0)
    first = (np.arange(m)[:, None, None] * (side + 2) + corner[..., 0]) * (side + 2) + corner[..., 1]
    flat = framed.ravel()
    above = flat[first] * (1 - right) + flat[first + 1] * right
    below = flat[first + side + 2] * (1 - right) + flat[first + side + 3] * right
    return np.rint(above * (1 - down) + below * down).astype(np.uint8)


def deformed_mnist(rows: int, seed: int) -> Iterator[np.ndarray]:
    """Yield blocks of random digits of MNIST, each deformed."""
    digits = common.raw("mnist_70k").reshape(-1, SIDE, SIDE)
    for number, begin in enumerate(range(0, rows, BLOCK)):
        rng = np.random.default_rng([seed, number])
        drawn = digits[rng.integers(0, len(digits), BLOCK)]
        yield deform(drawn, rng).reshape(BLOCK, -1)[: rows - begin]


# ---------------------------------------------------------------- others


def color_patches(rows: int, seed: int) -> Iterator[np.ndarray]:
    """Yield blocks of 6 x 6 color patches of photographs, from the loader of the data folder."""
    folder = os.environ.get("SHOAL_DATA")
    loader = Path(folder or ".") / "load.py"
    if not folder or not loader.exists():
        raise SystemExit("color patches are cut by load.py in the folder $SHOAL_DATA")
    spec = importlib.util.spec_from_file_location("shoal_data_load", loader)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module.patches(n=rows, side=6, seed=seed)


def scaled_kddcup(rows: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the network connections in random order, with columns of mean 0 and variance 1, or constant 0."""
    X = common.raw("kddcup99_10pct_494k").astype(np.float64)
    spread = X.std(axis=0)
    scaled = ((X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)).astype(np.float32)
    yield scaled[np.random.default_rng(seed).permutation(len(X))[:rows]]


def photo_patches(rows: int, seed: int) -> Iterator[np.ndarray]:
    """Yield patches of 4 x 4 color pixels of the photographs that scikit-learn ships, in random order."""
    from sklearn.datasets import load_sample_images

    patches = [
        np.moveaxis(np.lib.stride_tricks.sliding_window_view(image, (4, 4), axis=(0, 1)), 2, -1).reshape(
            -1, 48
        )
        for image in load_sample_images().images
    ]
    yield np.random.default_rng(seed).permutation(np.concatenate(patches))[:rows]


@dataclass(frozen=True)
class Made:
    """A data set: its source of blocks, the number of rows, and how many of the last are for validation."""

    blocks: Callable[[int, int], Iterator[np.ndarray]]
    rows: int
    validation: int


SETS = {
    "patches": Made(color_patches, 1_000_000, 40_000),
    "deformed-mnist": Made(deformed_mnist, 440_000, 40_000),
    "kddcup": Made(scaled_kddcup, 494_021, 40_000),
    "photo-patches": Made(photo_patches, 540_176, 40_000),
}


# ---------------------------------------------------------------- files


def cache() -> Path:
    """Return the folder of the cached sets."""
    given = os.environ.get("SHOAL_BENCH_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "shoal-bench"


def path_of(name: str, *, quick: bool = False, seed: int = 0) -> Path:
    """Return the file of a set, and make it first if it is missing; with `quick`, a tenth of the rows."""
    made = SETS[name]
    rows = made.rows // 10 if quick else made.rows
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{rows}-{seed}.npy"
    if path.exists():
        return path
    print(f"making {path} ...", flush=True)
    blocks = made.blocks(rows, seed)
    first = next(blocks)
    part = path.with_name(f".{secrets.token_hex(6)}.npy")
    try:
        file = np.lib.format.open_memmap(part, "w+", dtype=first.dtype, shape=(rows, first.shape[1]))
        begin = 0
        for block in itertools.chain([first], blocks):
            file[begin : begin + len(block)] = block
            begin += len(block)
        if begin != rows:
            raise SystemExit(f"{name}: {begin} rows instead of {rows}")
        file.flush()
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def parts_of(name: str, *, quick: bool = False, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to fit and the validation rows, both memory-mapped."""
    made = SETS[name]
    rows: Any = np.load(path_of(name, quick=quick, seed=seed), mmap_mode="r")
    last = made.validation // 10 if quick else made.validation
    return rows[:-last], rows[-last:]


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"some of: {', '.join(SETS)} (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--picture", help="draw 100 rows of the deformed digits to this PNG file")
    args = parser.parse_args()
    for name in args.sets or SETS:
        if name not in SETS:
            parser.error(f"there is no set {name!r}: choose among {', '.join(SETS)}")
        path = path_of(name, quick=args.quick, seed=args.seed)
        rows = np.load(path, mmap_mode="r")
        digest = hashlib.sha256()
        for begin in range(0, len(rows), 1 << 16):
            digest.update(np.ascontiguousarray(rows[begin : begin + (1 << 16)]).tobytes())
        print(
            f"{path}: {rows.shape[0]} x {rows.shape[1]} {rows.dtype}, sha256 {digest.hexdigest()}", flush=True
        )
        if args.picture and name == "deformed-mnist":
            from shoal.plot import centers_picture, write_png

            write_png(args.picture, centers_picture(rows[:100], (SIDE, SIDE), columns=10, scale=2))


if __name__ == "__main__":
    main()
