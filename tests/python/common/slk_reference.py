"""A slow, dense float64 reference of Laplacian K-modes with a symmetric affinity."""

import itertools
from typing import NamedTuple

import numpy as np
from reference import sq_dists
from scipy.sparse import csr_matrix


def neighbors(X, m):
    """Return the `m` nearest other rows of every row (ties by index), and their squared distances."""
    X = np.asarray(X, dtype=np.float64)
    d = np.array([((X - row) ** 2).sum(axis=1) for row in X])
    np.fill_diagonal(d, np.inf)
    order = np.lexsort((np.broadcast_to(np.arange(len(d)), d.shape), d))[:, :m]
    return order, np.take_along_axis(d, order, axis=1)


def affinity(X, m):
    """Symmetric k-nearest-neighbor affinity: the mean of both directions of a 0/1 graph."""
    order, _ = neighbors(X, m)
    W = np.zeros((len(X), len(X)))
    np.put_along_axis(W, order, 1.0, axis=1)
    return (W + W.T) / 2


def kernel(X, modes, variance):
    return np.exp(-sq_dists(X, modes) / (2 * variance))


def softmax(logits):
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def watched(Z, A, W, weight):
    """The relaxed energy, which no update increases."""
    return float((Z * np.log(Z)).sum() - (Z * A).sum() - weight / 2 * (Z * (W @ Z)).sum())


def energy(labels, A, W, weight):
    """The discrete energy: kernels to the own modes, plus the weight of pairs with different labels."""
    apart = labels[:, None] != labels[None, :]
    return float(-A[np.arange(len(labels)), labels].sum() + weight * (W * apart).sum())


def inner(A, W, weight, shift, limit=1000, leave=False):
    """Update from softmax(A) until the relaxed energy converges; with `leave`, stop when it rises."""
    S = csr_matrix(W + np.diag(shift))
    Z = softmax(A)
    values = [watched(Z, A, S, weight)]
    for _ in range(limit):
        Z = softmax(A + weight * (S @ Z))
        values.append(watched(Z, A, S, weight))
        if abs(values[-1] - values[-2]) <= 1e-6 * abs(values[-2]) or (leave and rises(values[-2:])):
            break
    return Z, values


def rises(values):
    return any(new > old + 1e-12 * abs(old) for old, new in itertools.pairwise(values))


def mean_shift(rows, mode, variance):
    for _ in range(1000):
        weights = np.exp(-((rows - mode) ** 2).sum(axis=1) / (2 * variance))
        new = weights @ rows / weights.sum()
        moved = np.abs(new - mode).max()
        mode = new
        if moved < 1e-5 * np.abs(new).max():
            break
    return mode


class Fit(NamedTuple):
    labels: np.ndarray
    modes: np.ndarray
    rows: np.ndarray | None
    Z: np.ndarray
    energies: list
    watched: list
    collapsed: bool
    shifted: bool


def slk(X, seeds, weight, m=5, variance=None, variant="byproduct", shift="auto", W=None, max_iter=100):
    """Run the algorithm of the specification, section 5, on unnormalized rows."""
    X = np.asarray(X, dtype=np.float64)
    if W is None:
        W = affinity(X, m)
    if variance is None:
        variance = neighbors(X, m)[1].mean()
    k, n = len(seeds), len(X)
    labels = sq_dists(X, seeds).argmin(axis=1)
    modes, rows = np.array(seeds, dtype=np.float64), None
    if variant == "byproduct":
        rows = np.empty(k, dtype=np.int64)
        for cluster in range(k):
            members = np.flatnonzero(labels == cluster)
            rows[cluster] = members[kernel(X[members], X[members], variance).sum(axis=1).argmax()]
        modes = X[rows]
    Z, before, shifted = None, None, False
    energies, loops = [], []
    for _iteration in range(max_iter):
        if variant == "mean-shift":
            old = modes
            modes = np.array([mean_shift(X[labels == j], modes[j], variance) for j in range(k)])
        A = kernel(X, modes, variance)
        delta = np.zeros(n) if shift == "auto" else np.full(n, float(shift))
        safe = np.maximum(W.sum(axis=1) - 2 / weight, 0) if weight > 0 else np.zeros(n)
        may_shift = shift == "auto" and not shifted
        new, values = inner(A, W, weight, safe if shifted else delta, leave=may_shift)
        if may_shift and rises(values):
            shifted = True
            new, values = inner(A, W, weight, safe)
        found = new.argmax(axis=1)
        loops.append(values)
        if len(np.unique(found)) < k:
            if variant == "mean-shift":
                modes = old
            if Z is None:
                # The first iteration collapsed: there are only modes, so labels use no neighbors.
                Z = softmax(kernel(X, modes, variance))
                labels = Z.argmax(axis=1)
            return Fit(labels, modes, rows, Z, energies, loops, True, shifted)
        expected = -(new * A).sum() - weight * (new * (W @ new)).sum()
        labels, Z = found, new
        if variant == "byproduct":
            # The largest responsibility, even if it rounds to 1.
            others = np.array([np.delete(Z, cluster, axis=1).sum(axis=1) for cluster in range(k)])
            picked = others.argmin(axis=1)
            same = (picked == rows).all()
            rows, modes = picked, X[picked]
        else:
            same = (modes == old).all()
        energies.append(energy(labels, kernel(X, modes, variance), W, weight))
        settled = before is not None and abs(expected - before) <= 1e-5 * abs(before)
        before = expected
        if same or settled:
            break
    return Fit(labels, modes, rows, Z, energies, loops, False, shifted)
