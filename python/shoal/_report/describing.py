"""Descriptions of measured clusters for a report: images, close pairs and features."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._rows.source import DataSource

from .measuring import Measured
from .pictures import tile

PAIRS = np.dtype([("first", "i8"), ("second", "i8"), ("distance", "f8"), ("overlap", "f8")])
#: Largest number of pairs.
MOST_PAIRS = 10
#: Clusters whose rows are shown as images, and images of nearest and of farthest rows.
MOST_TILES, NEAR_TILES, FAR_TILES = 200, 5, 2


def format_measure(value: Any) -> str:
    """Format a measure; a dash for NaN."""
    return "-" if np.isnan(value) else f"{value:.4g}"


def tiles_of(rows: DataSource, measured: Measured, shape: tuple[int, ...]) -> dict[int, str]:
    """Return images of the center, the nearest and the farthest rows of the largest clusters."""
    shown = np.argsort(-measured.sizes, kind="stable")[:MOST_TILES].tolist()
    images = {j: [measured.centers[j : j + 1].astype(np.float64)] for j in shown}
    if rows.access == "random" and not rows.sparse:
        for rows_of, most in ((measured.nearest, NEAR_TILES), (measured.farthest, FAR_TILES)):
            picked = rows_of.rows[shown, :most]
            found = rows.take(picked[picked >= 0])
            ends = np.cumsum((picked >= 0).sum(axis=1))
            for j, some in zip(shown, np.split(found, ends[:-1]), strict=True):
                images[j].append(some.astype(np.float64))
    if measured._metric[0] == "cosine":
        # Centers have length 1, rows have any length.
        images = {j: [unit(each) for each in parts] for j, parts in images.items()}
    strips = {j: np.concatenate(parts) for j, parts in images.items()}
    limits = (min(s.min() for s in strips.values()), max(s.max() for s in strips.values()))
    return {j: tile(strip, shape, limits) for j, strip in strips.items()}


def unit(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Divide rows by their lengths."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0.0, lengths, 1.0)


def distances_of(keys: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return distances, and NaN where there is no row."""
    return np.where(np.isfinite(keys), keys, np.nan)


def find_pairs(
    centers: npt.NDArray[Any],
    used: npt.NDArray[np.int64],
    others: npt.NDArray[np.int64],
    ratios: npt.NDArray[np.float64],
) -> npt.NDArray[np.void]:
    """Return the closest pairs of clusters, each once."""
    both = np.sort(np.column_stack([used, others]), axis=1)
    both, at = np.unique(both, axis=0, return_index=True)
    ratios = ratios[at]
    order = np.argsort(-ratios, kind="stable")[:MOST_PAIRS]
    order = order[both[order, 0] != both[order, 1]]
    pairs = np.zeros(len(order), dtype=PAIRS)
    pairs["first"], pairs["second"] = both[order].T
    off = centers[pairs["first"]].astype(np.float64) - centers[pairs["second"]]
    pairs["distance"], pairs["overlap"] = np.linalg.norm(off, axis=1), ratios[order]
    return pairs


def describe_features(measured: Measured, names: list[str], most: int) -> list[str]:
    """Return, per cluster, the features whose means differ most from those of all rows."""
    weight, mean, spread = measured.columns
    scale = np.sqrt(spread / weight)
    found = []
    for total, sums in zip(measured.totals, measured.sums, strict=True):
        if total <= 0:
            found.append("")
            continue
        off = np.zeros(len(names))
        np.divide(sums / total - mean, scale, out=off, where=scale > 0)
        order = np.argsort(-np.abs(off), kind="stable")[:most]
        found.append(", ".join(f"{names[j]} {off[j]:+.2f}" for j in order.tolist() if off[j] != 0.0))
    return found
