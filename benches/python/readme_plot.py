"""Draw the figure of the README from the recorded curves of ``papers/nmbatch.py``.

Usage: ``python benches/python/readme_plot.py CURVES.csv docs/images/validation-energy.png``
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

DATA = "patches"
LABELS = {
    "nested": "shoal.NestedMiniBatchKMeans",
    "bounded": "shoal.KMeans",
    "minibatch": "shoal.MiniBatchKMeans",
    "sklearn": "sklearn MiniBatchKMeans",
}


def curves(path: Path) -> dict[str, dict[int, tuple[np.ndarray, np.ndarray]]]:
    """Seconds and validation energies, per method and seed."""
    points: dict[str, dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    with path.open(encoding="utf-8") as lines:
        for row in csv.DictReader(line for line in lines if not line.startswith("#")):
            if row["data"] == DATA:
                points[row["method"]][int(row["seed"])].append((float(row["s"]), float(row["E_V"])))
    return {
        method: {seed: (np.array(p)[:, 0], np.array(p)[:, 1]) for seed, p in seeds.items()}
        for method, seeds in points.items()
    }


def main(source: Path, target: Path) -> None:
    """Draw the mean over the seeds of the excess energy."""
    runs = curves(source)
    lowest = min(energy.min() for seeds in runs.values() for _, energy in seeds.values())
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for method, label in LABELS.items():
        seeds = list(runs[method].values())
        start = max(seconds[0] for seconds, _ in seeds)
        at = np.geomspace(start, min(seconds[-1] for seconds, _ in seeds), 300)
        # The energy of the last step that was complete at each time.
        held = [energy[np.searchsorted(seconds, at, side="right") - 1] for seconds, energy in seeds]
        axes.plot(at, 100 * (np.mean(held, axis=0) / lowest - 1), label=label, linewidth=1.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.set_xlabel("seconds, one thread")
    axes.set_ylabel("validation energy above the lowest, %")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=120)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
