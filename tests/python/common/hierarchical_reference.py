"""A slow float64 reference of the sweeps of hierarchical k-means."""

import numpy as np


def sq_dists(X, centers):
    """Squared distances of all rows to all centers."""
    return ((X[:, None, :] - centers[None]) ** 2).sum(axis=-1)


def lists_of(centers, m):
    """The lists of all centers: each center and the m nearest to it."""
    apart = sq_dists(centers, centers)
    np.fill_diagonal(apart, -1.0)
    return np.argsort(apart, axis=1, kind="stable")[:, : m + 1]


def sweeps(X, centers, labels, m, count, weights=None, dtype=np.float32):
    """Make `count` sweeps from the tree's centers and labels. Return centers, labels and objectives."""
    X, centers = X.astype(np.float64), centers.astype(np.float64)
    weights = np.ones(len(X)) if weights is None else weights
    made, objectives = 0, []
    for sweep in range(count):
        # Lists are made again when the number of sweeps has doubled.
        if sweep == 0 or 2 * (sweep - made) > sweep:
            lists, made = lists_of(centers, min(m, len(centers) - 1)), sweep
        nearest = np.empty_like(labels)
        for j in range(len(centers)):
            rows, near = np.flatnonzero(labels == j), np.sort(lists[j])
            if len(rows):
                nearest[rows] = near[sq_dists(X[rows], centers[near]).argmin(axis=1)]
        labels = nearest
        objective = 0.0
        for j in range(len(centers)):
            mine = labels == j
            assert weights[mine].sum() > 0, "the reference repairs no empty clusters"
            mean = np.average(X[mine], axis=0, weights=weights[mine])
            centers[j] = mean.astype(dtype)
            objective += (weights[mine] * ((X[mine] - centers[j]) ** 2).sum(axis=1)).sum()
        objectives.append(objective)
    return centers, labels, objectives
