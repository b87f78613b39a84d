"""A slow float64 reference of assignments with limits: exact ones, the dual bound, and a price ascent."""

import numpy as np
from reference import sq_dists
from scipy.optimize import linear_sum_assignment


def least_energy(X, centers, least, most):
    """Assign rows to slots: `most` per center, of which the first `least` must be filled."""
    costs = np.repeat(sq_dists(X, centers), most, axis=1)
    spare = costs.shape[1] - len(X)
    # Rows that cost nothing fill the other slots, but not those that must be filled.
    filler = np.where(np.arange(costs.shape[1]) % most < least, 1e6 * (1 + costs.max()), 0.0)
    all_costs = np.concatenate([costs, np.tile(filler, (spare, 1))])
    rows, slots = linear_sum_assignment(all_costs)
    real = rows < len(X)
    return all_costs[rows[real], slots[real]].sum(), slots[real] // most


def dual(X, centers, prices, least, most, weights=None):
    """Return the Lagrangian dual: a lower bound for any prices."""
    w = np.ones(len(X)) if weights is None else weights
    cheapest = (sq_dists(X, centers) + prices).min(axis=1)
    return (w * cheapest).sum() - most * np.maximum(prices, 0).sum() - least * np.minimum(prices, 0).sum()


def ascent(X, centers, least, most, steps=400):
    """Raise the prices of full clusters and lower those of others, in shorter and shorter steps."""
    d = sq_dists(X, centers)
    prices, best = np.zeros(len(centers)), -np.inf
    two = np.sort(d, axis=1)
    step = (two[:, min(1, len(centers) - 1)] - two[:, 0]).mean()
    for _ in range(steps):
        best = max(best, dual(X, centers, prices, least, most))
        sizes = np.bincount((d + prices).argmin(axis=1), minlength=len(centers))
        excess = np.where((sizes > most) | (prices > 0), sizes - most, 0)
        excess = np.where((sizes < least) | (prices < 0), sizes - least, excess)
        moved = prices + step * excess / (len(X) / len(centers))
        inside = (sizes >= least) & (sizes <= most)
        prices = np.where(inside & (np.sign(moved) != np.sign(prices)), 0, moved)
        step *= 0.985
    return best
