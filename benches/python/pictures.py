"""Draw the pictures of the guide from result files; ``claims.py`` calls these functions.

Every picture has one row of marks per method. Left: time; right: quality. A dot is a data set, and the bar
is the median. One color is one kind of data on all pages.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import hierarchical_plot
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from tables import TITLES, ClaimError, Results, Table, newest

#: Sets with clusters of very few rows, far from all others.
RARE = {"kddcup99_10pct_494k", "http_567k", "shuttle_49k", "uk_accidents_lnglat_140k"}
USUAL, RARE_COLOR, BAR = "#2f6f9f", "#d9822b", "#222222"
#: What the result files call the methods, and what the guide calls them.
METHODS = {
    "KMeans, n_init=5": "KMeans(n_init=5)",
    "VarianceReducedKMeans": "VarianceReducedKMeans",
    "NestedMiniBatchKMeans": "NestedMiniBatchKMeans",
    "BackwardEulerKMeans": "BackwardEulerKMeans",
    "TruncatedGaussianMixture": "TruncatedGaussianMixture",
    "coreset of 100 k rows, KMeans": "coreset of 100 rows per\ncluster, then KMeans",
    "MiniBatchKMeans": "MiniBatchKMeans",
}
OPTIONS = {
    ("init", "init=k-means||"): 'init="k-means||"',
    ("init", "init=plain-k-means++"): 'init="plain-k-means++"',
    ("init", "init=afk-mc2"): 'init="afk-mc2"',
    ("init", "init=random"): 'init="random"',
    ("n_init", "n_init=5"): "n_init=5",
    ("n_init", "n_init=10"): "n_init=10",
    ("batch_size", "batch_size=256"): "batch_size=256 *",
    ("batch_size", "batch_size=4096"): "batch_size=4096 *",
    ("batch_size", "batch_size=16384"): "batch_size=16384 *",
}
#: A row of marks: its name, and the marks with their colors and their values left and right.
Row = tuple[str, list[tuple[str, float, float]]]
SETS = {USUAL: "data set", RARE_COLOR: "with rare groups"}


def blank(panels: int, *, height: float) -> tuple[Figure, Sequence[Axes]]:
    """Make a picture with panels side by side that share their rows."""
    figure = Figure(figsize=(8.6, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, panels, sharey=True, squeeze=False)[0]
    for axis in axes:
        axis.grid(axis="x", alpha=0.3)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
    return figure, axes


def strips(
    rows: Sequence[Row], left: str, right: str, ticks: Sequence[float], kinds: dict[str, str]
) -> Figure:
    """Draw times on a logarithmic scale, and excess inertia in percent, linear up to 1%."""
    figure, (times, excess) = blank(2, height=0.42 * len(rows) + 1.3)
    for at, (_, marks) in enumerate(rows):
        for axis, values in ((times, [s for _, s, _ in marks]), (excess, [q for _, _, q in marks])):
            colors = [color for color, _, _ in marks]
            axis.scatter(values, [at] * len(values), c=colors, s=26, alpha=0.75, linewidths=0, zorder=3)
            if kinds is SETS:
                middle = statistics.median(values)
                axis.plot([middle, middle], [at - 0.3, at + 0.3], color=BAR, linewidth=2, zorder=4)
    times.set_yticks(range(len(rows)), [name for name, _ in rows])
    times.set_ylim(-0.6, len(rows) - 0.4)
    times.invert_yaxis()
    times.set_xscale("log")
    times.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    excess.set_xscale("symlog", linthresh=1, linscale=0.8)
    least = min(quality for _, marks in rows for _, _, quality in marks)
    shown = [mark for mark in (-30, -3, 0, 3, 30, 300) if mark >= 3 * min(least, -0.1)]
    excess.set_xticks(shown, [f"{mark:+d}%" if mark else "0" for mark in shown])
    for axis in (times, excess):
        axis.minorticks_off()
        axis.tick_params(axis="x", labelsize=9)
        axis.axvline(1 if axis is times else 0, color="gray", linewidth=1)
    times.set_xlabel(left)
    excess.set_xlabel(right)
    for color, name in kinds.items():
        excess.scatter([], [], c=color, s=26, label=name)
    if kinds is SETS:
        excess.plot([], [], color=BAR, linewidth=2, label="median")
    lines = excess.get_legend_handles_labels()
    figure.legend(*lines, loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure


def measured(table: Table, **which: str) -> list[tuple[str, float, float]]:
    """Return the sets of a variant with time and excess inertia in percent."""
    return [
        (RARE_COLOR if row["data"] in RARE else USUAL, float(row["time"]), 100 * float(row["inertia"]))
        for row in table.where(**which).rows
    ]


def methods(results: Results) -> Figure:
    """Draw all methods with their defaults."""
    table = results("guide-methods")
    rows = [(name, measured(table, part="methods", variant=variant)) for variant, name in METHODS.items()]
    return strips(rows, "time, KMeans = 1", "inertia, KMeans = 0", [0.1, 0.2, 0.5, 1, 2, 5, 10], SETS)


def options(results: Results) -> Figure:
    """Draw options of ``KMeans`` and ``MiniBatchKMeans``, and sizes of coresets."""
    table, coresets = results("guide-options"), results("guide-coresets")
    rows = [(name, measured(table, part=part, variant=of)) for (part, of), name in OPTIONS.items()]
    for count in (30, 100, 300):
        some = measured(coresets, part="coreset", variant=f"{count} rows a cluster")
        rows.append((f"coreset, {count} rows per cluster", some))
    return strips(rows, "time, default = 1", "inertia, default = 0", [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10], SETS)


LIMITS = {"size_max=1.25": USUAL, "size_min=1.0 size_max=1.0": RARE_COLOR}
SIZES = {USUAL: "at most 1.25 times the mean", RARE_COLOR: "equal sizes"}


def titled(row: dict[str, str]) -> str:
    """Name a set, its size and the number of clusters."""
    size = f"{int(row['rows']):,} x {row['columns']}"
    return f"{TITLES[row['set']]}\n{size}, k = {row['K']}"


def balanced(results: Results) -> Figure:
    """Draw the time and the inertia that limits of sizes cost."""
    rows: dict[str, list[tuple[str, float, float]]] = {}
    for row in results("balanced-limits").where(part="limits").rows:
        mark = (LIMITS[row["limits"]], float(row["times"]), float(row["above free, %"]))
        rows.setdefault(titled(row), []).append(mark)
    ticks = [1, 3, 10, 30, 100]
    return strips(list(rows.items()), "time, no limits = 1", "inertia, no limits = 0", ticks, SIZES)


def bars(names: Sequence[str], panels: Sequence[tuple[str, Sequence[float], str, Sequence[float]]]) -> Figure:
    """Draw bars with their numbers; a panel has a label, values, their format and ticks."""
    figure, axes = blank(len(panels), height=0.5 * len(names) + 1.0)
    for axis, (label, values, form, ticks) in zip(axes, panels, strict=True):
        drawn = axis.barh(range(len(names)), values, height=0.55, color=USUAL, zorder=3)
        axis.bar_label(drawn, [format(value, form) for value in values], padding=4, fontsize=9)
        axis.set_xlabel(label)
        if ticks:
            axis.set_xscale("log")
            axis.set_xlim(right=max(values) * 2.5)
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axis.minorticks_off()
        else:
            axis.set_xlim(0, max(values) * 1.2)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    return figure


def densities(results: Results) -> Figure:
    """Draw what factors gain over a diagonal covariance, and their time."""
    rows = results("factor-mixture").where(covariance="factor", factors=5).rows
    gain = [float(row["to diag"]) for row in rows]
    times = [float(row["s to diag"]) for row in rows]
    panels = [
        ("gain in nats per held-out row", gain, ".1f", [1, 3, 10, 30, 100]),
        ('time, "diag" = 1', times, ".1f", []),
    ]
    return bars([titled(row) for row in rows], panels)


def memory(results: Results) -> Figure:
    """Draw the memory of a fit beside the size of its file."""
    (row,) = results("memory").where(what="fit, path", threads=1).rows
    return beside_file("MB", ".0f", [float(row[name]) for name in ("as f32 MB", "file MB", "MB")])


def billion(results: Results) -> Figure:
    """Draw the memory of a fit of a billion rows beside the size of their file."""
    row = results("billion").where(piece="coreset")
    return beside_file(
        "GB", ".2g", [4e-9 * row.one("n") * row.one("d"), row.one("file GB"), row.one("peak GB")]
    )


def beside_file(unit: str, form: str, values: list[float]) -> Figure:
    """Draw the sizes of the rows as float32, of their file, and of the memory of a fit."""
    names = ["the rows as float32", "the file", "memory of the fit"]
    return bars(names, [(f"{unit} (lower is better)", values, form, [])])


def machines(results: Results) -> Figure:
    """Draw sweeps of distributed libraries, and the cost model beside measured sweeps."""
    names = {"shoal.dask": "shoal.dask.KMeans", "dask-ml": "dask-ml", "spark": "Spark MLlib"}
    rows = [results("distributed").where(library=name) for name in names]
    figure = Figure(figsize=(8.6, 2.9), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    middle = [row.one("against local") for row in rows]
    spread = [[m - r.one("low") for m, r in zip(middle, rows, strict=True)]]
    spread += [[r.one("high") - m for m, r in zip(middle, rows, strict=True)]]
    left.barh(range(3), middle, xerr=spread, height=0.5, color=USUAL, ecolor=BAR, capsize=3, zorder=3)
    for at, (value, row) in enumerate(zip(middle, rows, strict=True)):
        left.text(row.one("high") * 1.15, at, f"{value:.1f}", va="center", fontsize=9)
    left.set_yticks(range(3), list(names.values()))
    left.invert_yaxis()
    left.set_xscale("log")
    left.set_xlim(0.7, 90)
    left.set_xticks([1, 3, 10, 30], ["1", "3", "10", "30"])
    left.set_xlabel("time of a sweep, KMeans in one process = 1")
    shapes: dict[str, list[dict[str, str]]] = {}
    for run in results("distributed-model").rows:
        shapes.setdefault(f"k = {int(run['k']):,}, d = {run['d']}", []).append(run)
    for color, (name, some) in zip((USUAL, RARE_COLOR), shapes.items(), strict=True):
        partitions = [int(row["partitions"]) for row in some]
        right.plot(partitions, [1e3 * float(row["model s"]) for row in some], "-", color=color)
        right.plot(partitions, [1e3 * float(row["sweep s"]) for row in some], "o", color=color, label=name)
        right.set_xticks(partitions, map(str, partitions))
    right.set_xlabel("partitions, two processes")
    right.set_ylabel("ms per sweep")
    right.set_ylim(bottom=0)
    right.legend(frameon=False, fontsize=9)
    for axis in (left, right):
        axis.grid(alpha=0.3)
        axis.minorticks_off()
        axis.spines[["top", "right"]].set_visible(False)
    return figure


#: Libraries in the result files, their names, and their colors.
LIBRARIES = {
    "sklearn": ("scikit-learn", RARE_COLOR),
    "sklearnex": ("scikit-learn-intelex", "#e9b872"),
    "faiss": ("faiss", "#7f7f7f"),
    "superkmeans": ("superkmeans", "#bdbdbd"),
}


def peers(results: Results) -> Figure:
    """Draw the times of other libraries relative to shoal, with their ranges: fits and single sweeps."""
    figure = Figure(figsize=(8.6, 3.3), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 2, width_ratios=(3, 4), sharey=True)
    tables = (results("peers-auto").where(k=1024), results("peers"))
    titles = (f"fit, up to {max(tables[0]['sweeps']):.0f} sweeps", "one plain sweep of Lloyd's algorithm")
    for axis, title, table, column in zip(axes, titles, tables, ("fit ratio", "ratio"), strict=True):
        some = table.where(peer="shoal").rows
        axis.axhline(1, color=USUAL, linewidth=3, label="shoal", zorder=4)
        names = [f"{TITLES[row['data']]}\n{int(row['n']):,} x {row['d']}\nk = {row['k']}" for row in some]
        axis.set_xticks(range(len(some)), names, fontsize=8)
        axis.set_xlim(-0.55, len(some) - 0.45)
        axis.set_title(title, fontsize=10)
        axis.grid(axis="y", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(axis="x", length=0)
        for at, own in enumerate(some):
            for place, library in enumerate(LIBRARIES):
                row = table.where(data=own["data"], peer=library).rows[0]
                bar(axis, at + (place - 1.5) * 0.2, 0.18, library, row, column)
    ticks = [2**power for power in range(-1, 6)]
    axes[0].set_yscale("log", base=2)
    axes[0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[0].set_ylabel("time, shoal = 1\n(lower is better)")
    for name, color in LIBRARIES.values():
        axes[1].bar([0], [0], color=color, label=name)
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return figure


def bar(axis: Axes, x: float, width: float, library: str, row: dict[str, str], column: str) -> None:
    """Draw a ratio as a bar up or down from 1, with its range and its number."""
    middle, low, high = (float(row[f"{column}{end}"]) for end in ("", " low", " high"))
    axis.bar(x, middle - 1, width, bottom=1, color=LIBRARIES[library][1], zorder=3)
    axis.errorbar(x, middle, [[middle - low], [high - middle]], color=BAR, linewidth=1, zorder=5)
    place = (x, max(high, 1.05))
    axis.annotate(f"{middle:.1f}", place, (0, 2), textcoords="offset points", ha="center", fontsize=8)


def clusters(results: Results) -> Figure:
    """Draw the inertia of thousands of clusters over time."""
    return hierarchical_plot.figure_of(newest(results.machine, "hierarchical-curve"))


def growth(results: Results) -> Figure:
    """Draw the time of hierarchical k-means over its size."""
    return hierarchical_plot.figure_of(newest(results.machine, "hierarchical-growth"))


def draw(name: str, results: Results) -> Figure:
    """Draw a picture by the name of its function."""
    functions: dict[str, Callable[[Results], Figure]] = {f.__name__: f for f in FUNCTIONS}
    if name not in functions:
        raise ClaimError(f"pictures.py has no function {name}")
    return functions[name](results)


FUNCTIONS = (methods, options, balanced, densities, machines, memory, billion, clusters, growth, peers)
