"""Pictures of a report: inline SVG, and tiles of images as inline PNG."""

from __future__ import annotations

import base64
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.plot import png

#: Width and height of a picture, and its margin.
WIDTH, HEIGHT, MARGIN = 620, 420, 24
#: Clusters whose numbers are written on the picture; sizes that have a bar of their own.
MOST_NAMES, MOST_BARS = 60, 80
#: Bars of a histogram.
BINS = 40


def color(cluster: int) -> str:
    """Return a color that differs from those of the next numbers."""
    return f"hsl({cluster * 137.508 % 360:.0f} 62% {(45, 58, 35)[cluster % 3]}%)"


def svg(parts: list[str], title: str, height: int = HEIGHT) -> str:
    """Return a picture of the given elements."""
    label = escape(title, quote=True)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{label}</title>{"".join(parts)}</svg>'
    )


def projection(
    points: npt.NDArray[np.float64],
    labels: npt.NDArray[np.int32],
    centers: npt.NDArray[np.float64],
    sizes: npt.NDArray[np.int64],
) -> str:
    """Draw sampled rows and the centers of clusters that have rows."""
    used = np.flatnonzero(sizes)
    every = np.concatenate([points, centers[used]])
    low, span = every.min(axis=0), np.ptp(every, axis=0)
    # One scale for both axes, so that distances can be compared.
    scale = min((side - 2 * MARGIN) / (each or 1.0) for side, each in zip((WIDTH, HEIGHT), span, strict=True))
    if not span.any():
        scale = 1.0
    free = (np.array([WIDTH, HEIGHT]) - scale * span) / 2

    def at(point: npt.NDArray[np.float64]) -> tuple[float, float]:
        x, y = (point - low) * scale + free
        return float(x), HEIGHT - float(y)

    parts = []
    for point, label in zip(points, labels.tolist(), strict=True):
        x, y = at(point)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.8" fill="{color(label)}" opacity=".55"/>')
    largest = sizes.max()
    for cluster in used.tolist():
        x, y = at(centers[cluster])
        radius = 4 + 12 * np.sqrt(sizes[cluster] / largest)
        name = escape(f"cluster {cluster}: {sizes[cluster]} rows")
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{color(cluster)}" '
            f'fill-opacity=".35" stroke="{color(cluster)}" stroke-width="1.5"><title>{name}</title></circle>'
        )
        if len(used) <= MOST_NAMES:
            parts.append(f'<text x="{x:.1f}" y="{y + 4:.1f}" class="name">{cluster}</text>')
    return svg(parts, "rows and centers on the principal axes of the centers")


def histogram(sizes: npt.NDArray[np.int64]) -> str:
    """Draw the size of every cluster, or of many clusters a histogram of their sizes."""
    height, base = 220, 196
    if len(sizes) <= MOST_BARS:
        order = np.argsort(-sizes, kind="stable")
        counts, colors = sizes[order], [color(cluster) for cluster in order.tolist()]
        names = [f"cluster {c}: {n} rows" for c, n in zip(order.tolist(), counts.tolist(), strict=True)]
        title, left, right = "rows per cluster, largest first", f"{counts[0]}", f"{counts[-1]}"
    else:
        least, most = max(1, int(sizes.min())), int(sizes.max())
        # Sizes often differ by orders of magnitude.
        wide = most > 20 * least
        edges = np.geomspace(least, most + 1, BINS + 1) if wide else np.linspace(least, most + 1, BINS + 1)
        counts, _ = np.histogram(np.maximum(sizes, least), edges)
        colors = ["var(--accent)"] * BINS
        names = [
            f"{n} clusters of {a:.0f} to {b:.0f} rows"
            for n, a, b in zip(counts.tolist(), edges[:-1], edges[1:], strict=True)
        ]
        title = "clusters by number of rows" + (" (logarithmic)" if wide else "")
        left, right = f"{least} rows", f"{most} rows"
    step = (WIDTH - 2 * MARGIN) / len(counts)
    parts = [f'<text x="{MARGIN}" y="16" class="axis">{escape(title)}</text>']
    for i, count in enumerate(counts.tolist()):
        tall = (base - 30) * count / max(1, int(counts.max()))
        parts.append(
            f'<rect x="{MARGIN + i * step:.1f}" y="{base - tall:.1f}" width="{max(1.0, step - 1):.1f}" '
            f'height="{tall:.1f}" fill="{colors[i]}"><title>{escape(names[i])}</title></rect>'
        )
    parts.append(f'<text x="{MARGIN}" y="{height - 8}" class="axis">{left}</text>')
    parts.append(f'<text x="{WIDTH - MARGIN}" y="{height - 8}" class="axis" text-anchor="end">{right}</text>')
    return svg(parts, title, height)


def tile(rows: npt.NDArray[Any], shape: tuple[int, ...], limits: tuple[float, float]) -> str:
    """Return an image element that shows rows next to each other as images.

    `limits` are the values that become black and white.
    """
    low, high = limits
    scaled = (np.asarray(rows, dtype=np.float64) - low) * (255.0 / (high - low or 1.0))
    images = np.rint(np.clip(scaled, 0.0, 255.0)).astype(np.uint8).reshape(len(rows), *shape)
    gap = np.full((shape[0], 1, *shape[2:]), 128, dtype=np.uint8)
    strip = np.concatenate([part for image in images for part in (image, gap)][:-1], axis=1)
    data = base64.b64encode(png(strip)).decode()
    height = max(32, min(shape[0], 96))
    return f'<img alt="" class="tile" style="height:{height}px" src="data:image/png;base64,{data}">'
