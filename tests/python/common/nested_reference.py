"""A slow float64 reference of nested mini-batch k-means."""

from typing import NamedTuple

import numpy as np
from reference import sq_dists


class Round(NamedTuple):
    batch: int
    changed: int
    objective: float
    centers: np.ndarray
    """Centers after the round."""


def nested(X, centers, batch_size, rho, weights=None, rounds=1000, metric="euclidean"):
    """Run rounds over growing prefixes of X until no label changes with all rows in use.

    Newling and Fleuret (2016), algorithm 5, with sums from zero: the standard error of a center is sqrt(sse /
    v / (n_eff - 1)), where n_eff = v^2 / sum of w^2. With the cosine metric, X has rows of length 1, and
    centers are the directions of sums.
    """
    X = np.asarray(X, dtype=np.float64)
    centers = np.array(centers, dtype=np.float64)
    n, k = len(X), len(centers)
    w = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    batch = min(batch_size, n)
    labels = np.full(n, -1)
    out = []
    while len(out) < rounds:
        d = sq_dists(X[:batch], centers)
        new = d.argmin(axis=1)
        changed = int((new != labels[:batch]).sum())
        labels[:batch] = new
        each = w[:batch] * d[np.arange(batch), new]
        v, sse, squares = (
            np.bincount(new, weights=values, minlength=k) for values in (w[:batch], each, w[:batch] ** 2)
        )
        before = centers.copy()
        for j in np.flatnonzero(v > 0):
            inside = new == j
            centers[j] = (w[:batch][inside, None] * X[:batch][inside]).sum(axis=0)
            centers[j] /= v[j] if metric == "euclidean" else np.linalg.norm(centers[j])
        moved = np.sqrt(((centers - before) ** 2).sum(axis=1))
        out.append(Round(batch, changed, float(each.sum()), centers.copy()))
        if changed == 0 and batch == n:
            break
        ratio = np.full(k, np.inf)
        for j in range(k):
            effective = v[j] ** 2 / squares[j] if v[j] > 0 else 0.0
            if moved[j] > 0 and effective >= 2:
                ratio[j] = np.sqrt(sse[j] / v[j] / (effective - 1)) / moved[j]
        if batch < n and (changed == 0 or not moved.any() or ratio.min() > rho):
            batch = min(2 * batch, n)
    return out
