"""Recall and cost of partitions that take in rows, beside a new fit.

30,000 rows, then ten batches of 3,000, around 60 points of a 10-dimensional space in 64 columns. Without
drift, all rows are drawn from all points; with drift, batch ``b`` from points ``3b`` to ``3b + 29``. The
first fit has 300 clusters: 100 rows per cell.

``recall``: after the last batch, ten true neighbors (brute force) of 10,000 queries like the last batch.
Cells are scanned in the order of their centers' distances until a share of all rows is scanned, the last cell
in part. The new fit has as many clusters. Differences are in points, with the interval of 95% of a bootstrap
over queries.
``cost``: processor seconds of an update, of ``fetch`` within it, and of a new fit of all rows, per batch:
each the median of three rounds.
``scale``, with ``--scale``: the same for 300,000 rows and 3,000 clusters.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

import _common as common
import numpy as np
import shoal

SHARES = (0.01, 0.03, 0.05)
ROUNDS = 3
Table = list[dict[str, Any]]


def draw(
    drift: bool, seed: int, first: int, batch: int, n_queries: int
) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Return the first rows, ten batches and queries."""
    rng = np.random.default_rng(seed)
    axes, points = rng.normal(size=(10, 64)), 1.5 * rng.normal(size=(60, 10))

    def rows(n: int, number: int) -> np.ndarray:
        which = rng.integers(3 * number, 3 * number + 30, size=n) if drift else rng.integers(0, 60, size=n)
        return ((points[which] + rng.normal(size=(n, 10))) @ axes).astype(np.float32)

    return rows(first, 0), [rows(batch, number) for number in range(1, 11)], rows(n_queries, 10)


def recalls(
    centers: np.ndarray, labels: np.ndarray, queries: np.ndarray, truth: np.ndarray, share: float
) -> np.ndarray:
    """Return the share of the true neighbors of every query in the rows that it scans."""
    sizes = np.bincount(labels, minlength=len(centers))
    found = np.empty(len(queries))
    sq_norms = (centers.astype(np.float64) ** 2).sum(axis=1)
    for first in range(0, len(queries), 1000):
        part = slice(first, first + 1000)
        sq_dists = sq_norms - 2 * queries[part].astype(np.float64) @ centers.T.astype(np.float64)
        order = np.argsort(sq_dists, axis=1, kind="stable")
        scanned = np.cumsum(sizes[order], axis=1)
        before = scanned - sizes[order]
        parts = np.clip((share * len(labels) - before) / np.maximum(sizes[order], 1), 0, 1)
        of_cell = np.empty_like(parts)
        np.put_along_axis(of_cell, order, parts, axis=1)
        found[part] = np.take_along_axis(of_cell, labels[truth[part]], axis=1).mean(axis=1)
    return found


class Database:
    """Rows in lists, one per cell, as a database keeps them."""

    def __init__(self, rows: np.ndarray, cells: np.ndarray) -> None:
        self.rows, self.cells = rows, cells.copy()
        self.seconds = 0.0
        self._sort()

    def _sort(self) -> None:
        order = np.argsort(self.cells, kind="stable")
        starts = np.flatnonzero(np.diff(self.cells[order], prepend=-1))
        lists = np.split(order, starts[1:])
        self.lists = dict(zip(self.cells[order][starts].tolist(), lists, strict=True))

    def fetch(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows of some cells."""
        begun = time.process_time()
        keys = np.concatenate([self.lists[i] for i in ids.tolist()])
        found = keys, self.cells[keys], self.rows[keys]
        self.seconds += time.process_time() - begun
        return found

    def write(self, new: np.ndarray, change: shoal.PartitionChange) -> None:
        """Store new rows, and move others."""
        self.cells[change.moved["key"]] = change.moved["to_id"]
        self.rows = np.concatenate([self.rows, new])
        self.cells = np.concatenate([self.cells, change.labels])
        self._sort()


def timed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, float]:
    """Return the result of a call, and its processor seconds."""
    begun = time.process_time()
    return function(*args, **kwargs), time.process_time() - begun


def grown(
    drift: bool, seed: int, first: int, batch: int, n_queries: int, *, fits: bool
) -> tuple[shoal.HierarchicalKMeans, Database, np.ndarray, Table]:
    """Take in all batches; return the model, the rows, the queries and the figures of every batch."""
    X, batches, queries = draw(drift, seed, first, batch, n_queries)
    model = shoal.HierarchicalKMeans(first // 100, random_state=seed).fit(X)
    database, table = Database(X, model.labels_.astype(np.int64)), []
    for number, new in enumerate(batches, 1):
        rounds = []
        for copy in [*(pickle.loads(pickle.dumps(model)) for _ in range(ROUNDS - 1 if fits else 0)), model]:
            database.seconds = 0.0
            change, seconds = timed(copy.update, new, fetch=database.fetch)
            rounds.append((seconds, database.seconds))
        seconds, fetching = (float(np.median(part)) for part in zip(*rounds, strict=True))
        database.write(new, change)
        row = {
            "batch": number,
            "cells": len(model.cell_ids_),
            "fetched per new row": change.n_fetched / len(new),
            "moved per new row": len(change.moved) / len(new),
            "largest cell": int(model.counts_.max()),
            "variation": model.counts_.std() / model.counts_.mean(),
            "update, s": seconds,
            "fetch, s": fetching,
        }
        if fits:
            fresh = shoal.HierarchicalKMeans(len(model.cell_ids_), random_state=seed + 1)
            row["new fit, s"] = float(np.median([timed(fresh.fit, database.rows)[1] for _ in range(ROUNDS)]))
            row["update, % of a new fit"] = 100 * seconds / row["new fit, s"]
            row["update without fetch, %"] = 100 * (seconds - fetching) / row["new fit, s"]
        table.append(row)
    return model, database, queries, table


def measure_recall(n_queries: int, seeds: int) -> Table:
    """Compare the recall with that of a new fit."""
    table: Table = []
    for drift in (False, True):
        for seed in range(seeds):
            model, database, queries, steps = grown(drift, seed, 30_000, 3_000, n_queries, fits=False)
            X, k = database.rows, len(model.cell_ids_)
            truth = shoal.nearest(queries, X, n_nearest=10)[0]
            labels = np.searchsorted(model.cell_ids_, database.cells)
            fresh = shoal.HierarchicalKMeans(k, random_state=seed + 1).fit(X)
            row: dict[str, Any] = {
                "case": "drift" if drift else "no drift",
                "seed": seed,
                "cells": k,
                "fetched per new row": float(np.mean([step["fetched per new row"] for step in steps])),
                "largest cell": max(step["largest cell"] for step in steps),
                "variation": steps[-1]["variation"],
                "variation, new fit": fresh.counts_.std() / fresh.counts_.mean(),
                "labels nearest, %": 100 * float((model.predict(X) == labels).mean()),
            }
            draws = np.random.default_rng(0).integers(0, n_queries, size=(1000, n_queries))
            for share in SHARES:
                ours = recalls(model.cluster_centers_, labels, queries, truth, share)
                theirs = recalls(fresh.cluster_centers_, fresh.labels_, queries, truth, share)
                apart = 100 * (ours - theirs)
                low, high = np.quantile(apart[draws].mean(axis=1), (0.025, 0.975))
                row |= {
                    f"recall, {share:.0%}": 100 * ours.mean(),
                    f"new fit, {share:.0%}": 100 * theirs.mean(),
                    f"difference, {share:.0%}": apart.mean(),
                    f"low, {share:.0%}": low,
                    f"high, {share:.0%}": high,
                }
            table.append(row)
            print(row, flush=True)
    return table


def measure_cost(first: int) -> Table:
    """Compare the seconds with those of a new fit."""
    table: Table = []
    for drift in (False, True):
        for row in grown(drift, 0, first, first // 10, 1, fits=True)[3]:
            table.append({"case": "drift" if drift else "no drift", "first rows": first, **row})
            print(table[-1], flush=True)
    return table


def main() -> None:
    """Run the parts, and write their tables."""
    parser = common.parser(__doc__)
    common.add_options(parser, quick="fewer queries, one seed")
    parser.add_argument("--scale", action="store_true", help="also measure the cost with ten times the rows")
    args = parser.parse_args()
    head = common.announced(["shoal", "numpy"])
    rows = tagged("cost", measure_cost(30_000))
    rows += tagged("recall", measure_recall(*((1000, 1) if args.quick else (10_000, 3))))
    if args.scale:
        rows += tagged("scale", measure_cost(300_000))
    common.keep("partitions", head, rows, args.csv, args.quick)


def tagged(part: str, table: Table) -> Table:
    """Add the name of the part."""
    return [{"part": part, **row} for row in table]


if __name__ == "__main__":
    main()
