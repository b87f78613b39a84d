"""How often `select_n_clusters` finds the number of groups or classes, and how often it is in doubt.

The rows are of four kinds:

- ``points``: the batteries ``sipu`` and ``fcps`` of ``gagolews_a``, labeled points in two or three features;
- ``made``: normal groups. The nearest two centers are 3.5 to 7 of the largest standard deviations of a group
  apart. Groups have equal or very different sizes, and are round, round with different spreads, or longer
  along some features;
- ``real``: labeled sets;
- ``noise``: rows without groups.

The numbers of clusters range from 2 to twice the number of groups, and to 10 at least; of noise, to 20. Sets
that were not looked at before the search between the fits and the reasons to doubt were fixed have ``held
out`` in their kind. k-means cannot find classes of any shape, so the adjusted Rand index of k-means with the
number of classes is given too, and the counts are repeated for the ``points`` on which it is at least 0.8.
One line per set, then one per criterion: how often it was right, and off by at most 10% of the number of
classes. For ``best``, the default, the counts are repeated for the choices without and with doubts.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import _common as common
import numpy as np
import scipy.sparse
import shoal
from shoal import metrics
from shoal._quality.choosing import CRITERIA
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import TfidfTransformer

BATTERIES = ("sipu", "fcps")
#: k-means finds the classes of a set if the adjusted Rand index is at least this.
FOUND = 0.8
#: Distance of the nearest two centers, sizes of the groups, and their shape.
GROUPS = ((3.5, "equal", "round"), (5.0, "unequal", "varied"), (7.0, "equal", "long"))
GROUPS_HELD_OUT = ((4.0, "unequal", "long"), (6.0, "equal", "varied"))
REAL = (
    "digits",
    "gagolews_a/other/iris",
    "gagolews_a/uci/wine",
    "gagolews_a/uci/statlog",
    "gagolews_a/uci/ecoli",
    "usps_11k",
    "coil20_1440",
    "letter_20k",
    "resnet18_cifar_16k",
)
REAL_HELD_OUT = (
    "gagolews_a/uci/wdbc",
    "gagolews_a/uci/yeast",
    "gagolews_a/uci/glass",
    "mnist_70k",
    "fsdd_logmel40_spkA",
    "stc_stackoverflow_counts",
)
#: Rows of a set, at most.
MOST_ROWS = 20_000

#: Rows, and their classes.
Labeled = tuple[Any, np.ndarray]


def made(d: int, k: int, apart: float, sizes: str, shape: str, seed: int) -> Labeled:
    """Draw normal groups, 150 rows per group on average."""
    rng = np.random.default_rng(seed)

    def drawn(n: int) -> np.ndarray:
        return rng.normal(size=(n, d)) if d > 3 else rng.uniform(-1, 1, size=(n, d))

    centers = drawn(1)
    while len(centers) < k:
        # Of some candidates, one of those that lie farther from the centers so far.
        some = drawn(20)
        near = np.linalg.norm(some[:, None] - centers, axis=2).min(axis=1)
        centers = np.concatenate([centers, some[[rng.choice(np.argsort(near)[10:])]]])
    gaps = np.linalg.norm(centers[:, None] - centers, axis=2)
    centers *= apart / gaps[gaps > 0].min()
    shares = np.ones(k) if sizes == "equal" else np.geomspace(1, 10, k)
    counts = np.maximum(20, 150 * k * shares / shares.sum()).astype(int)
    rng.shuffle(counts)
    spreads = {
        "round": lambda: 1.0,
        "varied": lambda: rng.uniform(0.5, 1.0),
        "long": lambda: rng.uniform(0.4, 1.0, size=d),
    }[shape]
    parts = [center + spreads() * rng.normal(size=(n, d)) for center, n in zip(centers, counts, strict=True)]
    order = rng.permutation(counts.sum())
    return np.concatenate(parts)[order].astype(np.float32), np.repeat(np.arange(k), counts)[order]


def noise(d: int, kind: str) -> Labeled:
    """Draw rows without groups."""
    rng = np.random.default_rng(d)
    n = 2000
    X = {
        "uniform": lambda: rng.uniform(size=(n, d)),
        "normal": lambda: rng.normal(size=(n, d)),
        "heavy tails": lambda: rng.standard_t(3, size=(n, d)),
        "long": lambda: rng.normal(size=(n, d)) * np.where(np.arange(d) == 0, 10.0, 1.0),
    }[kind]()
    return X.astype(np.float32), np.zeros(n, dtype=int)


def stored(folder: Path, name: str) -> Labeled:
    """Read a labeled set, at most `MOST_ROWS` rows; counts of words get tf-idf weights."""
    if name == "digits":
        return load_digits(return_X_y=True)
    stem, _, member = name.partition("/")
    with np.load(folder / f"{stem}.npz") as file:
        if "indptr" in file.files:
            parts = (file["data"].astype(float), file["indices"], file["indptr"])
            X = TfidfTransformer().fit_transform(scipy.sparse.csr_array(parts, shape=tuple(file["shape"])))
            return scipy.sparse.csr_array(X), file["y"]
        X, y = (file[f"{member}/X"], file[f"{member}/y0"]) if member else (file["X"], file["y"])
    if not member:
        return X[:MOST_ROWS].astype(np.float32), y[:MOST_ROWS]
    X = X.astype(np.float64)
    if member.startswith("uci/"):
        spread = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    # Class 0 is noise.
    return X, np.where(y > 0, y, -1)


def points(folder: Path) -> list[str]:
    """List the sets of the batteries."""
    with np.load(folder / "gagolews_a.npz") as file:
        names = {name.rpartition("/")[0] for name in file.files}
    return sorted(name for name in names if name.split("/")[0] in BATTERIES)


def all_sets(folder: Path) -> Iterator[tuple[str, str, Labeled]]:
    """Yield the kind, the name and the rows of each set."""
    for name in points(folder):
        yield "points", name, stored(folder, f"gagolews_a/{name}")
    for kind, dims, counts, groups, first in (
        ("made", (2, 8, 32), (5, 10, 20, 30), GROUPS, 0),
        ("made, held out", (3, 16, 64), (8, 15, 25, 40), GROUPS_HELD_OUT, 1000),
    ):
        for seed, (d, k, group) in enumerate(product(dims, counts, groups), start=first):
            yield kind, f"{k} groups {d} features {' '.join(map(str, group))}", made(d, k, *group, seed)
    for kind, names in (("real", REAL), ("real, held out", REAL_HELD_OUT)):
        for name in names:
            yield kind, name.removeprefix("gagolews_a/"), stored(folder, name)
    for d, name in product((2, 3, 8, 32), ("uniform", "normal", "heavy tails", "long")):
        yield "noise", f"{name} {d} features", noise(d, name)


def measured(X: Any, y: np.ndarray, resamples: int) -> tuple[dict[str, Any], np.ndarray]:
    """Return the choices for one set, and the table of the selection."""
    classes = y >= 0
    k = len(np.unique(y[classes]))
    metric = "cosine" if scipy.sparse.issparse(X) else "euclidean"
    most = min(X.shape[0] - 1, max(10, 2 * k)) if k > 1 else 20
    begun = time.process_time()
    found = shoal.select_n_clusters(
        X,
        range(2, most + 1),
        estimator=shoal.KMeans(metric=metric),
        n_resamples=resamples,
        random_state=0,
    )
    seconds = time.process_time() - begun
    line: dict[str, Any] = {"n": X.shape[0], "d": X.shape[1], "classes": k}
    if k > 1:
        labels = shoal.nearest(X, found.centers_[k], metric=metric)[0]
        line["ari of k-means"] = round(float(metrics.adjusted_rand_score(y[classes], labels[classes])), 4)
    line |= found.suggestions_
    line |= {"best": found.best_, "agree": len(found.agreement_), "margin": round(found.margin_, 4)}
    line |= {"doubts": len(found.doubts_), "cpu s": round(seconds, 3)}
    return line, found.table_


def summary(lines: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Count right choices, of each kind of sets."""
    kinds = dict.fromkeys(line["kind"] for line in lines)
    groups = {kind: [line for line in lines if line["kind"] == kind] for kind in kinds}
    suited = [line for line in groups.get("points", []) if line["ari of k-means"] >= FOUND]
    groups[f"points, k-means ARI >= {FOUND}"] = suited
    for kind, some in groups.items():
        sure, unsure = ([line for line in some if bool(line["doubts"]) == doubt] for doubt in (False, True))
        rows = [(name, some) for name in (*CRITERIA, "best")]
        for name, which in [*rows, ("best, no doubts", sure), ("best, doubts", unsure)]:
            chosen = np.array([line[name.partition(",")[0]] or 0 for line in which])
            true = np.array([line["classes"] for line in which])
            yield {
                "sets": kind,
                "number": len(which),
                "criterion": name,
                "right": int((chosen == true).sum()),
                "within 10%": int((np.abs(chosen - true) <= 0.1 * true).sum()),
                "cpu s": round(sum(line["cpu s"] for line in which), 2),
            }


def main() -> None:
    """Measure all sets."""
    parser = common.parser(__doc__)
    common.add_options(parser, quick="sets of at most 5,000 rows and 20 classes")
    parser.add_argument("--resamples", type=int, default=5)
    parser.add_argument("--tables", help="also store the tables of all selections in this .npz file")
    args = parser.parse_args()
    head = common.announced(["numpy", "shoal", "scikit-learn"])
    folder = Path(os.environ.get("SHOAL_DATA") or sys.exit("set SHOAL_DATA to the folder of data sets"))
    # Rows of zeros, in counts of words, and sets with fewer distinct rows than clusters.
    warnings.simplefilter("ignore", UserWarning)
    lines, tables = [], {}
    for kind, name, (X, y) in all_sets(folder):
        if args.quick and (X.shape[0] > 5000 or len(np.unique(y)) > 20):
            continue
        line, table = measured(X, y, args.resamples)
        line = {"kind": kind, "set": name} | line
        print(" ".join(f"{key} {value}" for key, value in line.items()), flush=True)
        lines.append(line)
        tables[f"{kind} {name}".replace("/", ".")] = table
    counts = list(summary(lines))
    for line in counts:
        print(" ".join(f"{key} {value}" for key, value in line.items()))
    if args.tables:
        np.savez(args.tables, **tables)
    common.keep("choosing-k", head, [*lines, *counts], args.csv, args.quick)


if __name__ == "__main__":
    main()
