"""A slow float64 reference of truncated EM for Gaussian mixtures."""

from typing import NamedTuple

import numpy as np
from reference import Rng, sq_dists

EXPLORING = 12
NEIGHBORHOODS = (1 << 24) - 1


class Draws(Rng):
    """The random stream for exploration, keyed by row and search as in shoal."""

    def __init__(self, seed, search, row, purpose=EXPLORING):
        super().__init__(seed, purpose, (search << 40) ^ row)


def explore(space, n, k, draws):
    """Add `n` random components that are not in the list `space`, or all remaining ones."""
    for _ in range(min(n, k - len(space))):
        others = k - len(space)
        if 2 * others >= k:
            while (j := draws.below(k)) in space:
                pass
        else:
            j = [c for c in range(k) if c not in space][draws.below(others)]
        space.append(j)


class State(NamedTuple):
    bound: float
    """Weighted mean log-likelihood bound before the M-step."""
    n_distances: int
    near: np.ndarray
    """The active components per row, nearest first."""
    neighbors: np.ndarray
    means: np.ndarray
    variances: np.ndarray
    weights: np.ndarray
    """Mixture weights."""
    loadings: np.ndarray | None
    """Loadings of factors; None before there are any."""
    shares: np.ndarray
    """Responsibilities before the M-step, rows by components."""
    after_e: float
    """Free energy with entropy after the E-step. `after_m` is the free energy after the M-step."""
    after_m: float


@np.errstate(divide="ignore", invalid="ignore")
def log_joint(d2, X, means, variances, priors, loadings=None):
    """log p(c, y) for all pairs; the shape of `variances` gives the covariance type.

    Covariances of features have the shape (k, d, d), or (1, d, d) if they are shared.
    """
    dim = means.shape[1]
    log_priors = np.log(priors)
    if loadings is not None or variances.ndim == 3:
        out = np.empty((len(X), len(means)))
        for c, mean in enumerate(means):
            if loadings is None:
                covariance = variances[c % len(variances)]
            else:
                covariance = loadings[c].T @ loadings[c] + np.diag(variances[c])
            apart = X - mean
            mahalanobis = (apart * np.linalg.solve(covariance, apart.T).T).sum(axis=1)
            log_det = np.linalg.slogdet(2 * np.pi * covariance)[1]
            out[:, c] = log_priors[c] - 0.5 * (log_det + mahalanobis)
        return out
    if variances.size == 1:
        return log_priors - 0.5 * dim * np.log(2 * np.pi * variances) - d2 / (2 * variances)
    if variances.ndim == 1:
        return log_priors - 0.5 * dim * np.log(2 * np.pi * variances) - d2 / (2 * variances)
    mahalanobis = (((X[:, None, :] - means) ** 2) / variances).sum(axis=2)
    return log_priors - 0.5 * np.log(2 * np.pi * variances).sum(axis=1) - 0.5 * mahalanobis


@np.errstate(divide="ignore", invalid="ignore")
def free_energy(X, w, shares, means, variances, priors, loadings=None):
    """Equation (4): weighted mean of the expected log joint plus the entropy."""
    joint = log_joint(sq_dists(X, means), X, means, variances, priors, loadings)
    q = np.where(shares > 0, shares, 1.0)
    terms = np.where(shares > 0, shares * (joint - np.log(q)), 0.0)
    return float((w * terms.sum(axis=1)).sum() / w.sum())


def first_factors(variances, floors, h):
    """Split the largest variances of every component into a loading and a rest."""
    variances, loadings = variances.copy(), np.zeros((len(variances), h, variances.shape[1]))
    for of_component, rest in zip(loadings, variances, strict=True):
        for factor, column in zip(of_component, np.argsort(-rest, kind="stable")[:h], strict=True):
            own = max(rest[column] / 2, floors[column])
            factor[column], rest[column] = np.sqrt(rest[column] - own), own
    return variances, loadings


def factor_step(X, wq, means, variances, loadings, floors, reg=0.0):
    """One M-step of a mixture of factor analyzers, with inverses of whole covariances."""
    means, variances, loadings = means.copy(), variances.copy(), loadings.copy()
    h = loadings.shape[1]
    for c, q in enumerate(wq.T):
        if q.sum() == 0:
            continue
        L, x = loadings[c], X - means[c]
        gain = np.linalg.solve(L.T @ L + np.diag(variances[c]), L.T).T
        factors = np.column_stack([x @ gain.T, np.ones(len(X))])
        moments = factors.T @ (q[:, None] * factors)
        moments[:h, :h] += q.sum() * (np.eye(h) - gain @ L.T)
        products = (q[:, None] * x).T @ factors
        both = np.linalg.solve(moments, products.T).T
        rest = (q @ x**2 - (both * products).sum(axis=1)) / q.sum()
        means[c] += both[:, h]
        loadings[c], variances[c] = both[:, :h].T, np.maximum(rest + reg, floors)
    return means, variances, loadings


@np.errstate(divide="ignore", invalid="ignore")
def truncated(
    X,
    means,
    active,
    size,
    *,
    weights=None,
    exploring=0,
    seed=0,
    start="random",
    initial=0,
    kind="tied_spherical",
    n_factors=None,
    reg=0.0,
    first=None,
    rounds=50,
):
    """Run truncated EM from given means; components and neighborhoods are drawn as in shoal.

    `first` holds the variances, weights and loadings with which the iterations begin; None for a shared
    variance and equal weights. With ``start="cells"``, which is not in the paper, the first search compares
    every row with the pivots and with the cells of the two nearest pivots.
    """
    X = np.asarray(X, dtype=np.float64)
    means = np.array(means, dtype=np.float64)
    (n, dim), k = X.shape, len(means)
    active, size = min(active, k), min(size, k)
    w = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    near, neighbors = None, []
    for c in range(k):
        members = [c]
        explore(members, size - 1, k, Draws(seed, NEIGHBORHOODS, c))
        neighbors.append(members)
    priors, variances, searches, count = np.full(k, 1 / k), None, 0, 0
    loadings = floors = None
    pivots = 0
    if start == "cells" and max(active, size) < k:
        pivots = min(k, int(np.ceil(np.sqrt(2 * k))))
        cell_of = sq_dists(means, means[:pivots]).argmin(axis=1)
        count = k * pivots

    def search(near, neighbors):
        d2 = sq_dists(X, means)
        cost, far = d2, d2
        if variances is not None and variances.ndim > 0:
            joint = log_joint(d2, X, means, variances, priors, loadings)
            cost, far = -joint, -(joint - np.log(np.where(priors > 0, priors, 1.0)))
        looked, found = 0, []
        sums, totals = np.zeros((k, k)), np.zeros((k, k))
        for m in range(n):
            if active == k:
                space = list(range(k))
            elif near is None and pivots:
                # The lowest pivot wins a tie.
                probed = sorted(set(cell_of), key=lambda p: (d2[m, p], p))[:2]
                space = list(range(pivots)) + [b for b in range(pivots, k) if cell_of[b] in probed]
                explore(space, max(exploring, active - len(space)), k, Draws(seed, searches, m))
            else:
                of_row = near[m] if near is not None else []
                if near is None:
                    explore(of_row, active, k, Draws(seed, 0, m))
                space = list(dict.fromkeys(b for c in of_row for b in neighbors[c]))
                explore(space, exploring, k, Draws(seed, searches, m))
            looked += len(space)
            ordered = sorted(space, key=lambda b: (cost[m, b], b))
            if near is None and pivots:
                # Statistics of the first search are limited to as many components as a later search can have.
                space = ordered[: active * size]
            found.append(ordered[:active])
            for b in space:
                sums[ordered[0], b] += w[m] * far[m, b]
                totals[ordered[0], b] += w[m]
        new = []
        for c in range(k):
            met = [b for b in range(k) if b != c and totals[c, b] > 0]
            met.sort(key=lambda b: (sums[c, b] / totals[c, b], b))
            old = [b for b in neighbors[c][1:] if b not in met[: size - 1]]
            new.append([c, *(met[: size - 1] + old)[: size - 1]])
        return found, new, looked, d2

    out = []
    for it in range(rounds):
        for _ in range(initial + 1 if it == 0 else 1):
            searches += 1
            near, neighbors, looked, d2 = search(near, neighbors)
            count += looked
            if it == 0:
                # Equation (8) of the paper.
                least = np.array([d2[m, near[m][0]] for m in range(n)])
                variances = np.array((w * least).sum() / (dim * w.sum()) + reg)
        if it == 0 and first is not None:
            variances, priors, loadings = (None if part is None else np.array(part) for part in first)
            searches += 1
            near, neighbors, looked, d2 = search(near, neighbors)
            count += looked
        joint = log_joint(d2, X, means, variances, priors, loadings)
        inside = np.zeros((n, k), dtype=bool)
        for m in range(n):
            inside[m, near[m]] = True
        truncated_joint = np.where(inside, joint, -np.inf)
        best = truncated_joint.max(axis=1, keepdims=True)
        parts = np.exp(truncated_joint - best)
        shares = parts / parts.sum(axis=1, keepdims=True)
        lse = best[:, 0] + np.log(parts.sum(axis=1))
        bound = float((w * lse).sum() / w.sum())
        after_e = free_energy(X, w, shares, means, variances, priors, loadings)
        totals = (w[:, None] * shares).sum(axis=0)
        alive = totals > 0
        before, old_means = variances, means
        means = means.copy()
        means[alive] = ((w[:, None] * shares).T @ X)[alive] / totals[alive, None]
        apart = sq_dists(X, means)
        warm = it > 0 or first is not None
        if loadings is not None:
            if floors is None:
                squares = np.einsum("mc,mcd->d", w[:, None] * shares, (X[:, None, :] - old_means) ** 2)
                floors = np.minimum(1e-4 * squares / totals.sum(), variances.mean())
            means, variances, loadings = factor_step(
                X, w[:, None] * shares, old_means, variances, loadings, floors, reg
            )
        elif kind == "tied_spherical" or not warm:
            variances = np.array((w[:, None] * shares * apart).sum() / (dim * w.sum()) + reg)
        elif kind in ("tied", "full") and variances.ndim == 3:
            joint_shares = w[:, None] * shares
            scatters = np.stack(
                [
                    (q[:, None] * (X - mean)).T @ (X - mean)
                    for q, mean in zip(joint_shares.T, means, strict=True)
                ]
            )
            if kind == "tied":
                variances = scatters.sum(axis=0, keepdims=True) / w.sum() + reg * np.eye(dim)
            else:
                found = scatters / np.where(alive, totals, 1)[:, None, None] + reg * np.eye(dim)
                if np.linalg.eigvalsh(found[alive]).min() < 1e-6:
                    # The limits of singular covariances are not part of this reference.
                    break
                variances = np.where(alive[:, None, None], found, variances)
        elif kind == "spherical":
            energies = (w[:, None] * shares * apart).sum(axis=0)
            old = np.broadcast_to(before, k)
            variances = np.where(alive, energies / (dim * np.where(alive, totals, 1)) + reg, old)
        else:
            old = np.broadcast_to(before, (k, dim))
            squares = np.einsum("mc,mcd->cd", w[:, None] * shares, (X[:, None, :] - means) ** 2)
            variances = np.where(alive[:, None], squares / np.where(alive, totals, 1)[:, None] + reg, old)
            if kind == "tied":
                variances = np.diag(totals @ variances / totals.sum())[None]
            elif kind == "full":
                variances = np.stack([np.diag(of) for of in variances])
            if kind in ("tied", "full") and np.linalg.eigvalsh(variances).min() < 1e-6:
                break
            if kind == "factor":
                within = squares.sum(axis=0) / totals.sum()
                floors = np.minimum(1e-4 * within, before)
                variances = np.maximum(variances, floors)
                h = min(5, dim - 1) if n_factors is None else n_factors
                variances, loadings = first_factors(variances, floors, h)
        if kind != "tied_spherical" and warm:
            priors = totals / totals.sum()
        after_m = free_energy(X, w, shares, means, variances, priors, loadings)
        out.append(
            State(
                bound,
                count,
                np.array(near),
                np.array(neighbors),
                means,
                variances,
                priors,
                loadings,
                shares,
                after_e,
                after_m,
            )
        )
        count = 0
    return out
