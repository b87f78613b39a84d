"""Slow float64 references of lightweight coresets and AFK-MC2."""

import numpy as np
import reference


def odds(X, weights=None):
    """Sampling probabilities of a lightweight coreset: half by weight, half by weighted squared distance."""
    X = np.asarray(X, dtype=np.float64)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
    mean = (w[:, None] * X).sum(axis=0) / w.sum()
    spread = w * ((X - mean) ** 2).sum(axis=1)
    if spread.sum() == 0:
        return w / w.sum()
    return w / w.sum() / 2 + spread / spread.sum() / 2


def cost(points, centers, weights):
    """Weighted sum of squared distances to the nearest center."""
    return reference.potential(points, centers, np.asarray(weights))


def chain_law(X, weights, centers, chain, *, adaptive=True):
    """Return the distribution of the next center of (AFK-)MC2, given the rows `centers`.

    The first center defines the proposal `q`. The chain starts with a draw from `q` and makes ``chain - 1``
    Metropolis-Hastings steps. A chain that ends at an existing center is drawn again.
    """
    X = np.asarray(X, dtype=np.float64)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
    d = reference.sq_dists(X, X[centers])
    q = w / w.sum()
    if adaptive:
        q = w * d[:, 0] / (w * d[:, 0]).sum() / 2 + w / w.sum() / 2
    k = w * d.min(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        r = np.where(q > 0, k / q, 0)
        accept = np.where(r[:, None] == 0, 1, np.minimum(1, r[None, :] / r[:, None]))
    steps = q[None, :] * accept
    steps[np.diag_indices(len(X))] = 0
    steps[np.diag_indices(len(X))] = 1 - steps.sum(axis=1)
    law = q
    for _ in range(chain - 1):
        law = law @ steps
    law = np.where(k > 0, law, 0)
    return law / law.sum()
