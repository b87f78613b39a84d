"""The page of a :class:`shoal.ClusterReport`: one HTML file without any other file."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from shoal._terminal.text import printable

from . import pictures
from .describing import format_measure

#: Clusters that have a line on the page, the largest first.
MOST_LINES = 200
FEATURES = "features, in standard deviations from the mean"
ABOUT = (
    "Largest first. Cohesion is the mean simplified silhouette of the rows. Overlap is the sum of the mean "
    "distances of a cluster and the closest one, divided by the distance of their centers."
)

STYLE = """
.shoal-report{--accent:#4269a5;--line:#d8dbe0;--soft:#5b6470;color:#1d232b;background:#fff;
font:14px/1.45 system-ui,sans-serif;max-width:1320px;margin:0 auto;padding:20px}
.shoal-report h1{font-size:22px;margin:0 0 4px}.shoal-report h2{font-size:16px;margin:26px 0 8px}
.shoal-report p{margin:4px 0}.shoal-report .soft{color:var(--soft)}
.shoal-report .figures{display:flex;flex-wrap:wrap;gap:10px;margin:14px 0}
.shoal-report .figures div{border:1px solid var(--line);border-radius:6px;padding:6px 12px}
.shoal-report .figures b{display:block;font-size:18px;font-weight:600}
.shoal-report .pictures{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:16px}
.shoal-report svg{width:100%;height:auto;border:1px solid var(--line);border-radius:6px}
.shoal-report .name{font:600 11px system-ui,sans-serif;text-anchor:middle;fill:#111;
paint-order:stroke;stroke:#fff;stroke-width:2.5px}
.shoal-report .axis{font:12px system-ui,sans-serif;fill:var(--soft)}
.shoal-report table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
.shoal-report th,.shoal-report td{border-bottom:1px solid var(--line);padding:4px 8px;text-align:right;
vertical-align:middle}.shoal-report th{color:var(--soft);font-weight:600}
.shoal-report .text{text-align:left}.shoal-report .key{display:inline-block;width:10px;height:10px;
border-radius:50%;margin-right:6px}.shoal-report .tile{image-rendering:pixelated;display:block}
"""


class Markup(str):
    """Elements of the page, which are not escaped."""

    __slots__ = ()


def safe(text: str) -> str:
    """Escape text, and replace characters that cannot be shown."""
    return escape(printable(text))


def cells(values: list[str], kind: str = "td") -> str:
    """Return a row of a table; :class:`Markup` is used as it is, and aligned to the left."""
    parts = []
    for value in values:
        own = isinstance(value, Markup)
        left = ' class="text"' if own else ""
        parts.append(f"<{kind}{left}>{value if own else safe(value)}</{kind}>")
    return f"<tr>{''.join(parts)}</tr>"


def left(text: str) -> Markup:
    """Mark text as aligned to the left."""
    return Markup(f"<span>{safe(text)}</span>")


def fragment(report: Any) -> str:
    """Return the report as an element with its style, for notebooks and pages."""
    k = report.n_clusters
    figures = [
        (f"{report.n_rows:,}", "rows"),
        (f"{report.n_features:,}", "features"),
        (f"{k:,}", "clusters"),
        (f"{report.inertia:.6g}", "inertia"),
        (format_measure(report.silhouette), "silhouette (simplified)"),
        (format_measure(report.calinski_harabasz), "Calinski-Harabasz"),
        (format_measure(report.davies_bouldin), "Davies-Bouldin"),
    ]
    parts = [
        f"<h1>{safe(report.title)}</h1>",
        f'<p class="soft">{safe(report.model)}</p>',
        '<div class="figures">',
        *(f"<div><b>{escape(value)}</b>{escape(name)}</div>" for value, name in figures),
        "</div>",
        '<div class="pictures">',
        pictures.projection(report.points, report.point_labels, report.center_points, report.sizes),
        pictures.histogram(report.sizes),
        "</div>",
        *clusters_table(report),
        *pairs_table(report),
    ]
    return f'<style>{STYLE}</style><div class="shoal-report">{"".join(parts)}</div>'


def clusters_table(report: Any) -> list[str]:
    """Return the table with a line per cluster."""
    shown = np.argsort(-report.sizes, kind="stable")[:MOST_LINES].tolist()
    # Columns that only some reports have.
    tiles = {j: Markup(each) for j, each in report.tiles.items()}
    more: dict[str, dict[int, Markup]] = {
        "images": tiles,
        "nearest rows": {},
        "farthest rows": {},
        FEATURES: {},
    }
    for j in shown:
        for name, rows in (("nearest rows", report.exemplars), ("farthest rows", report.outliers)):
            if rows.shape[1]:
                more[name][j] = left(" ".join(str(i) for i in rows[j].tolist() if i >= 0))
        if any(report.features):
            more[FEATURES][j] = left(report.features[j])
    kept = {name: column for name, column in more.items() if column}
    head = ["cluster", "rows", "share", "mean distance", "radius", "cohesion", "closest", "overlap"]
    body = []
    for j in shown:
        row = report.table[j]
        key = Markup(f'<span class="key" style="background:{pictures.color(j)}"></span>{j}')
        values: list[str] = [key, f"{row['size']:,}", f"{row['share']:.2%}"]
        values += [format_measure(row[name]) for name in ("mean_distance", "radius", "cohesion")]
        values += [str(row["closest"]) if row["closest"] >= 0 else "-", format_measure(row["overlap"])]
        body.append(cells([*values, *(column.get(j, left("")) for column in kept.values())]))
    note = f" The {MOST_LINES} largest of {report.n_clusters} are shown."
    images = " Images show the center, then (of files and arrays) the nearest and the farthest rows."
    return [
        "<h2>Clusters</h2>",
        f'<p class="soft">{ABOUT}{images * bool(report.tiles)}{note * (report.n_clusters > MOST_LINES)}</p>',
        f"<table>{cells([*head, *(left(name) for name in kept)], 'th')}{''.join(body)}</table>",
    ]


def pairs_table(report: Any) -> list[str]:
    """Return the table of close pairs."""
    if not len(report.pairs):
        return []
    body = [
        cells(
            [str(p["first"]), str(p["second"]), format_measure(p["distance"]), format_measure(p["overlap"])]
        )
        for p in report.pairs
    ]
    head = cells(["cluster", "cluster", "distance of centers", "overlap"], "th")
    return ["<h2>Close pairs</h2>", f'<table style="width:auto">{head}{"".join(body)}</table>']


def page(report: Any) -> str:
    """Return the report as a whole page."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(report.title)}</title></head><body>{fragment(report)}</body></html>\n"
    )
