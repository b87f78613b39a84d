"""A slow float64 reference of variance-reduced k-means."""

from typing import NamedTuple

import numpy as np
from reference import Rng, sq_dists

#: Purpose key of the random stream for rows.
EPOCH = 7


def drawn(rng, n, weights):
    """Draw a row with probability proportional to its weight."""
    if weights is None:
        return rng.below(n)
    ends = np.cumsum(weights)
    return int(np.searchsorted(ends, rng.unit() * ends[-1], side="right"))


def gamma(x, j, s, centers, means):
    """The variance-reduced gradient of a row with label j, and label s at the snapshot, as a matrix."""
    out = np.zeros_like(centers)
    out[j] += centers[j] - x
    out[s] -= means[s] - x
    return out


class Epoch(NamedTuple):
    objective: float
    changed: int
    """Labels of the snapshot that differ from the previous snapshot."""
    means: np.ndarray
    centers: np.ndarray
    """Centers after the steps of the epoch."""
    switched: int
    """Steps whose row has another label than at the snapshot."""


def vrkm(X, centers, rate, steps, epochs, seed, weights=None, plain=False, dtype=np.float64):
    """Run a number of epochs without a stop rule (Zhao et al., algorithms 3 and 4, means in closed form)."""
    X = np.asarray(X, dtype=np.float64)
    centers = np.array(centers, dtype=np.float64)
    n, k = len(X), len(centers)
    w = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    before = np.full(n, -1)
    out = []
    for epoch in range(epochs):
        d = sq_dists(X, centers)
        labels = d.argmin(axis=1)
        objective = float((w * d[np.arange(n), labels]).sum())
        means = centers.copy()
        gradient = np.zeros_like(centers)
        for j in range(k):
            mine = labels == j
            if w[mine].sum() > 0:
                means[j] = (w[mine, None] * X[mine]).sum(axis=0) / w[mine].sum()
                gradient[j] = (w[mine, None] * (means[j] - X[mine])).sum(axis=0) / w[mine].sum()
        # Empty clusters begin anew at the farthest rows, which keep their labels until the next sweep.
        empty = [j for j in range(k) if w[labels == j].sum() == 0]
        own = d[np.arange(n), labels]
        far = [i for i in np.lexsort((np.arange(n), -own)) if own[i] > 0 and w[i] > 0]
        for j, i in zip(empty, far, strict=False):
            means[j] = X[i]
        changed, before = int((labels != before).sum()), labels
        rng = Rng(seed, EPOCH, epoch)
        now, switched = means.copy(), 0
        for _ in range(steps):
            i = drawn(rng, n, weights)
            s = labels[i]
            # Labels use the centers in the compute type.
            j = sq_dists(X[i : i + 1], now.astype(dtype)).argmin()
            switched += int(j != s)
            now -= rate * gamma(X[i], j, s, now, means)
            if plain:
                now -= rate * gradient
        centers = now.astype(dtype).astype(np.float64)
        out.append(Epoch(objective, changed, means, centers.copy(), switched))
    return out
