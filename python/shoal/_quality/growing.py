"""Starts of fits with more clusters: known centers, and rows far from them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import vstack

from shoal import _core
from shoal._checks.params import RowWeights
from shoal._rows.arrays import source_of_values
from shoal._rows.source import DataSource

from .indices import total

#: Rows from which further centers are chosen: the least number per cluster, the least number in all, and the
#: largest number of bytes beyond these.
POOL_PER_CLUSTER, POOL_ROWS, POOL_BYTES = 20, 20_000, 256 << 20


def pool_size(n: int, d: int, k: int) -> int:
    """Return how many of `n` rows are held in memory to grow to `k` clusters."""
    return min(n, max(POOL_PER_CLUSTER * k, min(POOL_ROWS, POOL_BYTES // (8 * d))))


def gather(rows: DataSource, picked: npt.NDArray[np.int64]) -> Any:
    """Return single rows as an array, or as a sparse matrix; `picked` is in ascending order."""
    if not rows.sparse:
        return rows.take(picked)
    parts, first = [], 0
    for block in rows.blocks():
        start, stop = np.searchsorted(picked, (first, first + block.shape[0]))
        parts.append(block[picked[start:stop] - first])
        first += block.shape[0]
    return vstack(parts, format="csr")


class Pool:
    """Rows in memory, with weights, that further centers are chosen from."""

    def __init__(self, values: Any, weights: RowWeights, metric: str, threads: int | None) -> None:
        self.values, self.weights = values, weights
        self._metric, self._threads = metric, threads
        self._seen = source_of_values(values).seen_by(metric)

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def part(self, picked: npt.NDArray[np.int64]) -> Pool:
        """Return some of the rows as a pool."""
        weights = None if self.weights is None else self.weights[picked]
        return Pool(self.values[picked], weights, self._metric, self._threads)

    def labeled(self, centers: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int32], float]:
        """Return labels of the rows, and their inertia."""
        labels, sq_dists = _core.nearest(self._seen, centers, 1, self._metric, self._threads)
        return labels, total(sq_dists, self.weights)

    def grown(
        self, centers: npt.NDArray[Any], n_clusters: int, draws: np.random.RandomState
    ) -> npt.NDArray[Any]:
        """Return `centers` and further rows, `n_clusters` in all, by greedy k-means++.

        Each further center is the best of a few rows, drawn with probabilities proportional to their squared
        distances to the centers so far.
        """
        _, sq_dists = _core.nearest(self._seen, centers, 1, self._metric, self._threads)
        trials = 2 + int(math.log(n_clusters))
        found = [centers]
        for _ in range(n_clusters - len(centers)):
            odds = sq_dists if self.weights is None else sq_dists * self.weights
            sums = np.cumsum(odds)
            if sums[-1] > 0.0:
                drawn = np.searchsorted(sums, draws.random_sample(trials) * sums[-1], side="right")
                drawn = np.minimum(drawn, len(odds) - 1)
            else:
                # Fewer different rows than clusters.
                drawn = draws.randint(len(odds), size=1)
            rows = self._seen.take(drawn.astype(np.int64)).astype(centers.dtype)
            apart = np.square(
                _core.transform(self._seen, rows, self._metric, self._threads), dtype=np.float64
            )
            left = np.minimum(apart, sq_dists[:, None])
            costs = left.sum(axis=0) if self.weights is None else self.weights @ left
            best = int(costs.argmin())
            found.append(rows[best : best + 1])
            sq_dists = left[:, best]
        return np.concatenate(found)
