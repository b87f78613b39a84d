"""Laplacian K-modes with all defaults: what it chooses, and how well it finds classes.

The sets are shapes in two and three dimensions, tables of measurements, and sets with many features:
those of ``papers/slk.py --part defaults``. Per set and seed, the table has the NMI (geometric, as in
the paper) and the accuracy of

- ``scaled``: rows of length 1 and five neighbors, as in the paper;
- ``unscaled``: five neighbors;
- ``SLK``: all defaults;
- ``k-means``;
- ``spectral``: scikit-learn's spectral clustering on the graph of five neighbors, scaled as in ``SLK``;
- ``spectral, same graph``: on the graph of ``SLK``.

A fit that raises an error scores 0. Two shares decide whether rows are scaled. ``filled`` is the share
of nonzero values. ``lengths`` is the variance of the lengths of rows as a share of the variance of the
rows.

Shapes and tables are in ``gagolews_a.npz``, and in the folder ``clustering-data-v1`` next to it, if
there is one. The folder is a copy of https://github.com/gagolews/clustering-data-v1.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import _common as common
import numpy as np

sys.path.append(str(Path(__file__).with_name("papers")))
import _slk as slk

PACKAGES = ("shoal", "numpy", "scipy", "scikit-learn")
#: Suites of sets of up to 10,000 rows, and the kind of their sets.
SUITES = {"graves": "shapes", "wut": "shapes", "fcps": "shapes", "other": "shapes", "uci": "tables"}
#: Sets with many features; in the last one, some features outweigh the others.
OTHERS = (*slk.TUNED, *slk.OTHERS, "kddcup99_10pct_494k")
#: The most rows on which the choice of scaling is based.
SEEN = 1024
SHOWN = {
    "data": "",
    "kind": "",
    "rows": "d",
    "columns": "d",
    "clusters": "d",
    "lengths": ".2f",
    "neighbors": "d",
}


def suites() -> Iterator[tuple[str, str, Any, np.ndarray]]:
    """Yield name, kind, rows and classes of the sets of all suites, without rows of noise."""
    folder = Path(os.environ["SHOAL_DATA"])
    found = {}
    with np.load(folder / "gagolews_a.npz") as archive:
        for name in {member.rpartition("/")[0] for member in archive.files}:
            if name.partition("/")[0] in SUITES:
                found[name] = (archive[f"{name}/X"].astype(np.float64), archive[f"{name}/y0"])
    for suite in SUITES:
        for path in (folder / "clustering-data-v1" / suite).glob("*.data.gz"):
            name = path.name.removesuffix(".data.gz")
            labels = np.loadtxt(path.with_name(f"{name}.labels0.gz"), dtype=np.int64)
            found.setdefault(f"{suite}/{name}", (np.loadtxt(path, ndmin=2), labels))
    for name, (X, y) in sorted(found.items()):
        yield name, SUITES[name.partition("/")[0]], X[y > 0], y[y > 0]


def sets(args: argparse.Namespace) -> Iterator[tuple[str, str, Any, np.ndarray]]:
    """Yield name, kind, rows and classes of all chosen sets."""
    for name, kind, X, y in suites():
        if kind in args.kinds:
            yield name, kind, X, y
    for name in OTHERS if "features" in args.kinds else ():
        if name.partition("/")[0] not in slk.BATTERIES:
            X, y, _ = slk.classes(name, args.most_rows)
            yield name, "features", X, y


def of_the_rule(X: Any) -> dict[str, float]:
    """Return what the rule of ``normalize="auto"`` measures."""
    count = min(SEEN, X.shape[0])
    some = X[np.arange(count) * X.shape[0] // count]
    some = np.asarray(some.todense() if hasattr(some, "todense") else some, dtype=np.float64)
    lengths = np.linalg.norm(some, axis=1)
    return {"filled": float((some != 0).mean()), "lengths": float(lengths.var() / some.var(axis=0).sum())}


def measured(X: Any, y: np.ndarray, seed: int, threads: int) -> Iterator[dict[str, Any]]:
    """Yield the scores of all methods on one set."""
    import shoal
    from sklearn.cluster import SpectralClustering

    k = len(np.unique(y))
    given = {"random_state": seed, "n_jobs": threads}

    def scored(what: str, make: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
        row: dict[str, Any] = {"what": what, "seed": seed}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                seconds, model = slk.timed(make)
        except ValueError as error:
            return None, row | {"nmi": 0.0, "acc": 0.0, "raised": str(error).partition(",")[0]}
        chosen = {
            "neighbors": getattr(model, "n_neighbors_", None),
            "scales": getattr(model, "normalize_", None),
        }
        return model, row | {"seconds": seconds} | chosen | slk.scores(y, model)

    def modes(**params: Any) -> Callable[[], Any]:
        return lambda: shoal.LaplacianKModes(k, **given, **params).fit(X)

    def spectral(graph: Any) -> Callable[[], Any]:
        return lambda: SpectralClustering(k, affinity="precomputed", random_state=seed).fit(graph)

    yield scored("k-means", lambda: shoal.KMeans(k, **given).fit(X))[1]
    scaled, row = scored("scaled", modes(normalize=True, n_neighbors=5))
    yield row
    unscaled, row = scored("unscaled", modes(normalize=False, n_neighbors=5))
    yield row
    model, row = scored("SLK", modes())
    yield row
    yield scored("spectral", spectral((scaled if model.normalize_ else unscaled).affinity_))[1]
    yield scored("spectral, same graph", spectral(model.affinity_))[1]


def means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row per set: the mean NMI of every method over the seeds."""
    table: dict[str, dict[str, Any]] = {}
    values: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        of_set = table.setdefault(row["data"], {name: row.get(name) for name in SHOWN})
        if row["what"] == "SLK":
            of_set |= {"neighbors": row["neighbors"], "scales": row["scales"]}
        values.setdefault((row["data"], row["what"]), []).append(row["nmi"])
    for (name, what), nmi in values.items():
        table[name][what] = float(np.mean(nmi))
    return list(table.values())


def about(rows: list[dict[str, Any]]) -> list[str]:
    """Compare the defaults with the other methods, by means over the sets of a kind."""
    table, lines = means(rows), []
    for kind in dict.fromkeys(row["kind"] for row in table):
        mine = [row for row in table if row["kind"] == kind]
        for other in ("scaled", "unscaled", "k-means", "spectral", "spectral, same graph"):
            gaps = [row["SLK"] - row[other] for row in mine]
            ours, theirs = (float(np.mean([row[what] for row in mine])) for what in ("SLK", other))
            text = f"{kind}, {len(mine)} sets: SLK has NMI {ours:.3f}, {other} {theirs:.3f} "
            text += f"({ours - theirs:+.4f}); worst {mine[int(np.argmin(gaps))]['data']} {min(gaps):+.3f}"
            wanted = 0.01 if other.startswith("spectral") and kind == "shapes" else 0.0
            lines.append(slk.verdict(ours - theirs >= wanted, text))
    return lines


def main() -> None:
    """Measure all sets."""
    parser = common.parser(__doc__)
    parser.add_argument("--kinds", nargs="+", default=["shapes", "tables", "features"])
    parser.add_argument("--most-rows", type=int, default=5000, help="of a set with many features")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=common.cores())
    parser.add_argument("--csv", help="where to keep the table")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its numbers mean nothing")
    args = parser.parse_args()
    if args.quick:
        args.kinds, args.seeds = ["tables"], 1
    rows: list[dict[str, Any]] = []
    shown = {
        **SHOWN,
        "scales": "",
        **dict.fromkeys(("k-means", "scaled", "unscaled", "spectral", "spectral, same graph", "SLK"), ".3f"),
    }
    for name, kind, X, y in sets(args):
        head = {"data": name, "kind": kind, "rows": X.shape[0], "columns": X.shape[1]}
        head |= {"clusters": len(np.unique(y)), **of_the_rule(X)}
        for seed in range(args.seeds):
            rows += [head | row for row in measured(X, y, seed, args.threads)]
        print(common.table(means([row for row in rows if row["data"] == name]), shown), flush=True)
    print("\n".join(about(rows)))
    common.keep("shapes", common.description(PACKAGES), rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
