"""Draw inertia against seconds from the recorded curve of ``hierarchical.py``.

Usage: ``python benches/python/hierarchical_plot.py CURVE.csv docs/images/many-clusters.png``
"""

import csv
import sys
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

#: What belongs together, and the prefixes of its fits.
GROUPS = {
    "HierarchicalKMeans": ("tree", "m=", "default"),
    "KMeans, 25 sweeps": ("flat",),
    "TruncatedGaussianMixture": ("mixture",),
    "faiss, 25 sweeps": ("faiss",),
    "superkmeans": ("superkmeans",),
}


def points(path: Path) -> dict[int, list[tuple[str, float, float]]]:
    """Name, seconds and excess inertia of the fits, per number of clusters."""
    found: dict[int, list[tuple[str, float, float]]] = {}
    with path.open(encoding="utf-8") as lines:
        for row in csv.DictReader(line for line in lines if not line.startswith("#")):
            if row["work"].startswith("curve"):
                point = (row["fit"], float(row["seconds"]), 100 * float(row["over flat"]))
                found.setdefault(int(row["k"]), []).append(point)
    return found


def main(source: Path, target: Path) -> None:
    """Draw one panel per number of clusters."""
    panels = points(source)
    figure = Figure(figsize=(4.6 * len(panels), 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (k, fits) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for label, starts in GROUPS.items():
            some = sorted((s, over) for name, s, over in fits if name.startswith(starts))
            line = "-" if label == "HierarchicalKMeans" else ""
            axes.plot([s for s, _ in some], [over for _, over in some], "o" + line, label=label, markersize=5)
        axes.axhline(0, color="gray", linewidth=0.8)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_title(f"{k:,} clusters", fontsize=10)
        axes.set_xlabel("seconds, two cores")
        axes.set_ylabel("inertia above flat k-means, %")
        axes.grid(alpha=0.3)
    figure.axes[0].legend(frameon=False, fontsize=8)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=120)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
