"""Coresets and AFK-MC2 as their papers have them: slow, in float64. What the tests hold shoal against."""

import numpy as np
import reference


def odds(X, weights=None):
    """Odds of a lightweight coreset: half by weight, half by weight times squared distance to the mean."""
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
    """Give the law of the next center of (AFK-)MC2 after the rows `centers`, the first of which makes `q`.

    The chain starts with `q`, and makes ``chain - 1`` steps of Metropolis and Hastings. A chain that
    ends where a center is counts as not drawn.
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
