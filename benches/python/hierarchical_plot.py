"""Pictures of recorded parts of ``hierarchical.py``: inertia against seconds, or seconds against size.

``claims.py`` draws them.
"""

import csv
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

BARE = " without labels"
#: What belongs together, and the prefixes of its fits.
GROUPS = {
    "HierarchicalKMeans": ("tree", "m=", "default"),
    "HierarchicalKMeans, centers only": (BARE,),
    "KMeans, 25 sweeps": ("flat",),
    "TruncatedGaussianMixture": ("mixture",),
    "faiss, 25 sweeps": ("faiss",),
    "superkmeans": ("superkmeans",),
}


#: Columns of seconds in a growth, with their labels.
PHASES = {"seconds": "the fit", "tree s": "tree", "sweeps s": "sweeps", "final s": "exact labels"}


def recorded(path: Path) -> list[dict[str, str]]:
    """Return the rows of a result file."""
    with path.open(encoding="utf-8") as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def curves(axes: Axes, fits: dict[str, tuple[float, float]]) -> None:
    """Draw seconds and excess inertia of fits by name."""
    for label, starts in GROUPS.items():
        some = sorted(point for name, point in fits.items() if name.startswith(starts))
        line = "-" if label.startswith("HierarchicalKMeans") else ""
        axes.plot([s for s, _ in some], [over for _, over in some], "o" + line, label=label, markersize=5)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axhline(0, color="gray", linewidth=0.8)
    axes.set_xlabel("seconds, two cores")
    axes.set_ylabel("inertia above flat k-means, %")


def growth(axes: Axes, column: str, rows: list[dict[str, str]]) -> None:
    """Draw seconds by phase for growing values of a column."""
    sizes = [int(row[column]) for row in rows]
    for phase, label in PHASES.items():
        seconds = [float(row[phase]) for row in rows]
        axes.plot(sizes, seconds, "o-", label=label, markersize=4)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=20)
    axes.minorticks_off()
    axes.set_xlabel("clusters" if column == "k" else "rows")
    axes.set_ylabel("seconds, two cores")
    axes.legend(frameon=False, fontsize=8)


def figure_of(source: Path) -> Figure:
    """Draw the panels of a recorded file."""
    rows = recorded(source)
    found: dict[int, dict[str, tuple[float, float]]] = {}
    for row in rows:
        if row["work"].startswith("curve"):
            name = BARE + row["fit"] if row["fit"].endswith(BARE) else row["fit"]
            point = (float(row["seconds"]), 100 * float(row["over flat"]))
            found.setdefault(int(row["k"]), {})[name] = point
    grown = {
        column: [row for row in rows if row["work"].startswith(f"growth in {column}")]
        for column in ("k", "n")
    }
    panels = [(f"{k:,} clusters", partial(curves, fits=fits)) for k, fits in found.items()]
    panels += [
        (f"{int(some[0][fixed]):,} {word}", partial(growth, column=column, rows=some))
        for (column, some), (fixed, word) in zip(
            grown.items(), (("n", "rows"), ("k", "clusters")), strict=True
        )
        if some
    ]
    figure = Figure(figsize=(4.6 * len(panels), 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (title, draw) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        axes.set_xscale("log")
        draw(axes)
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.3)
    if found:
        figure.axes[0].legend(frameon=False, fontsize=8)
    return figure
