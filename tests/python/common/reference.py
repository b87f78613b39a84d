"""Textbook k-means, slow, in float64 and by coordinate differences, as the reference of the tests."""

from typing import NamedTuple

import numpy as np

MASK = 2**64 - 1


def mix(z):
    """One step of SplitMix64."""
    z = (z + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


class Rng:
    """The generator xoshiro256++, keyed as in shoal."""

    def __init__(self, seed, purpose, step):
        key = mix(mix(mix(seed) ^ purpose) ^ step)
        self.state = [mix((key + i * 0x9E3779B97F4A7C15) & MASK) for i in range(4)]

    def bits(self):
        """Return 64 random bits."""
        a, b, c, d = self.state

        def rotated(x, by):
            return ((x << by) | (x >> (64 - by))) & MASK

        result = (rotated((a + d) & MASK, 23) + a) & MASK
        c, d = c ^ a, d ^ b
        self.state = [a ^ d, b ^ c, c ^ ((b << 17) & MASK), rotated(d, 45)]
        return result

    def unit(self):
        """Return a uniform float in [0, 1)."""
        return (self.bits() >> 11) / 2**53

    def below(self, n):
        """Return a uniform integer in [0, n)."""
        while True:
            wide = self.bits() * n
            if wide & MASK >= (-n & MASK) % n:
                return wide >> 64


def sq_dists(X, centers):
    """Squared distances of all rows to all centers by coordinate differences, (n, k)."""
    X, centers = np.asarray(X, dtype=np.float64), np.asarray(centers, dtype=np.float64)
    out = np.empty((len(X), len(centers)))
    for j, center in enumerate(centers):
        out[:, j] = ((X - center) ** 2).sum(axis=1)
    return out


def normalized(X):
    """Scale rows to length 1; rows of zeros are unchanged."""
    X = np.asarray(X, dtype=np.float64)
    length = np.sqrt((X**2).sum(axis=1, keepdims=True))
    return np.divide(X, length, out=np.zeros_like(X), where=length > 0)


def nearest(X, centers):
    """Return labels (lowest index in a tie), squared distances, and the relative gap to the second best."""
    d = sq_dists(X, centers)
    labels = d.argmin(axis=1)
    best = d[np.arange(len(d)), labels]
    if d.shape[1] == 1:
        return labels, best, np.ones(len(d))
    second = np.partition(d, 1, axis=1)[:, 1]
    gap = np.divide(second - best, second, out=np.zeros_like(best), where=second > 0)
    return labels, best, gap


def inertia(X, centers, labels, weights=None):
    """Weighted sum of squared distances to the labels' centers, summed in extended precision."""
    X, centers = np.asarray(X, dtype=np.float64), np.asarray(centers, dtype=np.float64)
    each = ((X - centers[labels]) ** 2).sum(axis=1).astype(np.longdouble)
    return float((each if weights is None else each * np.asarray(weights)).sum())


def potential(X, centers, weights=None):
    """Weighted sum of squared distances to the nearest of `centers`."""
    best = sq_dists(X, centers).min(axis=1)
    return float((best if weights is None else best * weights).sum())


class Sweep(NamedTuple):
    centers: np.ndarray
    counts: np.ndarray
    moved: float
    relocated: int


def update(X, centers, labels, weights=None, metric="euclidean", dtype=np.float64):
    """Move every center to the mean of its rows, and empty clusters to the rows with the largest distances.

    The farthest row comes first, the lowest index among equals, and it leaves its old cluster. Rows at
    distance 0 and rows without weight are not taken. A cluster that stays empty keeps its center.
    """
    X, centers = np.asarray(X, dtype=np.float64), np.asarray(centers, dtype=np.float64)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
    k = len(centers)
    counts = np.bincount(labels, weights=w, minlength=k)
    sums = np.zeros_like(centers)
    for j in range(k):
        mine = labels == j
        sums[j] = (X[mine] * w[mine, None]).sum(axis=0)
    far = ((X - centers[labels]) ** 2).sum(axis=1)
    order = [i for i in np.lexsort((np.arange(len(X)), -far)) if far[i] > 0 and w[i] > 0]
    empty = np.flatnonzero(counts <= 0)
    relocated = 0
    for j, i in zip(empty, order, strict=False):
        sums[labels[i]] -= w[i] * X[i]
        counts[labels[i]] -= w[i]
        sums[j], counts[j] = w[i] * X[i], w[i]
        relocated += 1
    new = centers.copy()
    for j in range(k):
        divisor = counts[j] if metric == "euclidean" else np.sqrt((sums[j] ** 2).sum())
        if counts[j] > 0 and divisor > 0:
            new[j] = (sums[j] / divisor).astype(dtype)
    return Sweep(new, counts, float(((new - centers) ** 2).sum()), relocated)


class Fitted(NamedTuple):
    centers: np.ndarray
    labels: np.ndarray
    inertia: float
    n_iter: int
    reason: str
    least_gap: float


def lloyd(X, centers, weights=None, max_iter=300, tol=1e-4, metric="euclidean"):
    """Lloyd's algorithm with the stop rules of scikit-learn.

    It stops if no label changed, or if the squared length of the center shift is at most `tol` times the mean
    variance of the columns. `least_gap` is the smallest relative gap between the two best distances of a row
    in any sweep. If the gap is far above rounding, all labels are determined.
    """
    X = normalized(X) if metric == "cosine" else np.asarray(X, dtype=np.float64)
    centers = normalized(centers) if metric == "cosine" else np.asarray(centers, dtype=np.float64)
    threshold = tol * X.var(axis=0).mean()
    old, least, reason = None, 1.0, "max-iter"
    for n_iter in range(1, max_iter + 1):  # noqa: B007
        labels, _, gap = nearest(X, centers)
        least = min(least, gap.min())
        centers, _, moved, relocated = update(X, centers, labels, weights, metric)
        if old is not None and (labels == old).all() and not relocated:
            reason = "labels-stable"
            break
        if tol > 0 and moved <= threshold:
            reason = "tolerance"
            break
        old = labels
    labels, _, gap = nearest(X, centers)
    return Fitted(
        centers, labels, inertia(X, centers, labels, weights), n_iter, reason, min(least, gap.min())
    )
