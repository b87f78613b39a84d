"""How often each criterion of ``select_n_clusters`` finds the number of classes of labeled sets.

The sets are those of the batteries ``sipu`` and ``fcps`` of ``gagolews_a``. The numbers of clusters range
from 2 to twice the number of classes, and to 10 at least. k-means cannot find classes of any shape, so the
adjusted Rand index of k-means with the number of classes is given too, and the counts are repeated for the
sets on which it is at least 0.8. One line per set, then one per criterion: how often it was right, and off by
at most 10% of the number of classes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import _common as common
import numpy as np
import shoal
from shoal import metrics
from shoal._quality.choosing import CRITERIA

BATTERIES = ("sipu", "fcps")
#: k-means finds the classes of a set if the adjusted Rand index is at least this.
FOUND = 0.8


def members(folder: Path) -> list[str]:
    """List the sets of the batteries."""
    with np.load(folder / "gagolews_a.npz") as file:
        names = {name.rpartition("/")[0] for name in file.files}
    return sorted(name for name in names if name.split("/")[0] in BATTERIES)


def measured(folder: Path, name: str, resamples: int) -> tuple[dict[str, Any], np.ndarray]:
    """Return the choices for one set, and the table of the selection."""
    with np.load(folder / "gagolews_a.npz") as file:
        X, y = file[f"{name}/X"].astype(np.float64), file[f"{name}/y0"]
    classes = y > 0
    k = len(np.unique(y[classes]))
    found = shoal.select_n_clusters(
        X, range(2, min(len(X) - 1, max(10, 2 * k)) + 1), n_resamples=resamples, random_state=0
    )
    labels = shoal.nearest(X, found.centers_[k])[0]
    line = {"set": name, "n": len(X), "d": X.shape[1], "classes": k}
    line["ari of k-means"] = round(float(metrics.adjusted_rand_score(y[classes], labels[classes])), 4)
    return line | found.suggestions_, found.table_


def summary(lines: list[dict[str, Any]], battery: str, *, found: bool) -> list[dict[str, Any]]:
    """Count right choices."""
    some = [line for line in lines if line["set"].startswith(battery)]
    some = [line for line in some if not found or line["ari of k-means"] >= FOUND]
    table = []
    for name in CRITERIA:
        chosen = np.array([line[name] or 0 for line in some])
        true = np.array([line["classes"] for line in some])
        table.append(
            {
                "sets": f"{battery or 'all'}{f', k-means ARI >= {FOUND}' if found else ''}",
                "number": len(some),
                "criterion": name,
                "right": int((chosen == true).sum()),
                "within 10%": int((np.abs(chosen - true) <= 0.1 * true).sum()),
            }
        )
    return table


def main() -> None:
    """Measure all sets."""
    parser = common.parser(__doc__)
    common.add_options(parser, quick="sets of at most 5,000 rows and 20 classes")
    parser.add_argument("--resamples", type=int, default=5)
    parser.add_argument("--tables", help="also store the tables of all selections in this .npz file")
    args = parser.parse_args()
    head = common.announced(["numpy", "shoal", "scikit-learn"])
    folder = Path(os.environ.get("SHOAL_DATA") or sys.exit("set SHOAL_DATA to the folder of data sets"))
    lines, tables = [], {}
    for name in members(folder):
        if args.quick:
            with np.load(folder / "gagolews_a.npz") as file:
                if len(file[f"{name}/X"]) > 5000 or file[f"{name}/y0"].max() > 20:
                    continue
        line, table = measured(folder, name, args.resamples)
        print(" ".join(f"{key} {value}" for key, value in line.items()), flush=True)
        lines.append(line)
        tables[name.replace("/", ".")] = table
    counts = [
        line
        for battery in ("", *(f"{name}/" for name in BATTERIES))
        for found in (False, True)
        for line in summary(lines, battery, found=found)
    ]
    for line in counts:
        print(" ".join(f"{key} {value}" for key, value in line.items()))
    if args.tables:
        np.savez(args.tables, **tables)
    common.keep("choosing-k", head, [*lines, *counts], args.csv, args.quick)


if __name__ == "__main__":
    main()
