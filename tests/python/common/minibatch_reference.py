"""Slow float64 references of mini-batch k-means."""

import numpy as np
import reference


class Sculley:
    """Mini-batch k-means by Sculley: a center is the running mean of its rows.

    The initial center counts as one row. With the cosine metric, a center is the direction of its sum.
    """

    def __init__(self, centers, half_life=None, dtype=np.float64, metric="euclidean"):
        self.centers = np.asarray(centers, dtype=dtype).astype(np.float64)
        self.sums = self.centers.copy()
        self.counts = np.ones(len(centers))
        self.half_life = half_life
        self.metric = metric
        self.dtype = dtype
        self.least_gap = 1.0

    def step(self, X, weights=None):
        """Label the batch with the current centers, then add its rows; return inertia and center shift."""
        X = np.asarray(X, dtype=np.float64)
        w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
        labels, sq_dists, gap = reference.nearest(X, self.centers)
        self.least_gap = min(self.least_gap, gap.min())
        if self.half_life is not None:
            fade = 0.5 ** (len(X) / self.half_life)
            self.sums *= fade
            self.counts *= fade
        before = self.centers.copy()
        for j in np.unique(labels[w > 0]):
            mine = labels == j
            self.sums[j] += (X[mine] * w[mine, None]).sum(axis=0)
            self.counts[j] += w[mine].sum()
            divisor = self.counts[j] if self.metric == "euclidean" else np.linalg.norm(self.sums[j])
            self.centers[j] = (self.sums[j] / divisor).astype(self.dtype)
        return float((sq_dists * w).sum()), float(np.sqrt(((self.centers - before) ** 2).sum()))


def online(X, centers):
    """Stochastic gradient descent, one row at a time, with the learning rate 1 / count."""
    centers = np.array(centers, dtype=np.float64)
    counts = np.ones(len(centers))
    for x in np.asarray(X, dtype=np.float64):
        j = ((centers - x) ** 2).sum(axis=1).argmin()
        counts[j] += 1
        centers[j] += (x - centers[j]) / counts[j]
    return centers, counts
