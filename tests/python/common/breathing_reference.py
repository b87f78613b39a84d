"""A slow float64 reference of breathing k-means."""

from typing import NamedTuple

import numpy as np
from reference import Rng, inertia, nearest, normalized, sq_dists, update

#: Purpose key of the random stream for the added centers.
BREATHING = 15
#: The constants of src/kmeans/breathing/solver.rs.
OFFSET, TRIES, LAST_TOLERANCE, RUN_SWEEPS = 0.01, 3, 0.01, 300
#: Runs that end at the same clusters, in another order, differ by less.
NEGLIGIBLE = 1e-9


class Fit(NamedTuple):
    centers: np.ndarray
    labels: np.ndarray
    inertia: float
    start: float
    """Inertia before the first breath."""
    sweeps: list
    """Phase and number of centers of every sweep, and the inertia that its step reports."""
    breaths: int
    least_gap: float
    """The smallest relative gap between the two best distances of a row in any sweep."""


class Run(NamedTuple):
    centers: np.ndarray
    labels: np.ndarray
    energies: list
    gap: float


def lloyd(X, centers, threshold, weights, metric):
    """Sweep until the centers move little."""
    energies, least = [], 1.0
    while len(energies) < RUN_SWEEPS:
        labels, _, gap = nearest(X, centers)
        least = min(least, gap.min())
        energies.append(inertia(X, centers, labels, weights))
        centers, _, moved, _ = update(X, centers, labels, weights, metric)
        if moved <= threshold:
            break
    labels, _, gap = nearest(X, centers)
    return Run(centers, labels, energies, min(least, gap.min()))


def added(X, w, run, m, seed, breath, failures):
    """Copy `m` centers, of the largest errors or drawn after failures, and move the copies."""
    d2 = ((X - run.centers[run.labels]) ** 2).sum(axis=1)
    errors = np.bincount(run.labels, weights=w * d2, minlength=len(run.centers))
    length = OFFSET * np.sqrt(errors.sum() / w.sum())
    rng = Rng(seed, BREATHING, breath)
    split = [j for j in np.argsort(-errors, kind="stable") if errors[j] > 0][:m]
    if failures:
        split, left = [], [j for j in range(len(errors)) if errors[j] > 0]
        while len(split) < m and left:
            ends = np.cumsum(errors[left])
            split.append(left.pop(int(np.searchsorted(ends, rng.unit() * ends[-1], side="right"))))
    copies = []
    for j in split:
        towards = np.array([2 * rng.unit() - 1 for _ in range(X.shape[1])])
        copies.append(run.centers[j] + length * towards / np.sqrt((towards**2).sum()))
    return np.concatenate([run.centers, copies]) if copies else None


def removed(X, w, centers, k):
    """Choose the centers that go: the least useful first, except the nearest neighbors of those that went."""
    d = np.sort(sq_dists(X, centers), axis=1)
    labels = sq_dists(X, centers).argmin(axis=1)
    utility = np.bincount(labels, weights=w * (d[:, 1] - d[:, 0]), minlength=len(centers))
    between = sq_dists(centers, centers)
    gone, frozen = [], set()
    for j in np.argsort(utility, kind="stable"):
        if len(gone) == len(centers) - k:
            break
        if j in frozen:
            continue
        gone.append(j)
        left = [i for i in range(len(centers)) if i not in gone]
        neighbor = min(left, key=lambda i: (between[j, i], i))
        can_go = len([i for i in left if i not in frozen])
        if neighbor not in frozen and can_go > len(centers) - k - len(gone):
            frozen.add(neighbor)
    return sorted(gone)


def breathing(X, centers, m, seed, weights=None, tol=1e-4, metric="euclidean"):
    """Breathe from these first centers until `m` is 0."""
    X = normalized(X) if metric == "cosine" else np.asarray(X, dtype=np.float64)
    centers = normalized(centers) if metric == "cosine" else np.array(centers, dtype=np.float64)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
    k, threshold = len(centers), tol * X.var(axis=0).mean()
    sweeps, gaps = [], []

    def swept(phase, centers, threshold, best):
        run = lloyd(X, centers, threshold, weights, metric)
        seen = [energy if best is None else best for energy in run.energies]
        sweeps.extend((phase, len(centers), energy) for energy in seen)
        gaps.append(run.gap)
        return run

    def settled(value):
        # The last sweep of a run reports the result of the run.
        sweeps[-1] = (*sweeps[-1][:2], value)

    best = swept("start", centers, threshold, None)
    lowest = start = inertia(X, best.centers, best.labels, weights)
    settled(lowest)
    breaths = failures = 0
    m = 0 if k == 1 else min(m, k, len(X) - k)
    while m > 0:
        more = added(X, w, best, m, seed, breaths, failures)
        if more is None:
            break
        more = normalized(more) if metric == "cosine" else more
        breaths += 1
        wide = swept("in", more, threshold, lowest)
        fewer = np.delete(wide.centers, removed(X, w, wide.centers, k), axis=0)
        run = swept("out", fewer, threshold, lowest)
        found = inertia(X, run.centers, run.labels, weights)
        failures = 0 if found < lowest * (1 - max(tol, NEGLIGIBLE)) else failures + 1
        if failures == TRIES:
            m, failures = m - 1, 0
        if found < lowest * (1 - NEGLIGIBLE):
            best, lowest = run, found
        settled(lowest)
    if breaths > 0 and threshold > LAST_TOLERANCE * threshold:
        run = swept("last", best.centers, LAST_TOLERANCE * threshold, lowest)
        found = inertia(X, run.centers, run.labels, weights)
        if found < lowest * (1 - NEGLIGIBLE):
            best, lowest = run, found
        settled(lowest)
    return Fit(best.centers, best.labels, lowest, start, sweeps, breaths, min(gaps))
