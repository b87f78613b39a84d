"""A slow float64 reference of stochastic backward Euler."""

import numpy as np
import reference

#: Purpose key of the random stream for batches.
INNER = 8


def phi(X, centers, weights=None):
    """The objective: half the mean squared distance."""
    total = len(X) if weights is None else np.sum(weights)
    return reference.potential(X, centers, weights) / (2 * total)


def gradient(X, centers, weights=None):
    """Gradient of the objective on all rows or a mini-batch, divided by the total weight of the rows."""
    X = np.asarray(X, dtype=np.float64)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
    labels = reference.nearest(X, centers)[0]
    found = np.zeros_like(np.asarray(centers, dtype=np.float64))
    for j in range(len(centers)):
        mine = labels == j
        found[j] = (w[mine, None] * (centers[j] - X[mine])).sum(axis=0) / w.sum()
    return found


class BackwardEuler:
    """State of the method: anchor x, iterate y, and the average of the iterates."""

    def __init__(self, centers, step_size, step_decay, averaging, n_inner, step_cap=None, dtype=np.float64):
        self.x = np.array(centers, dtype=dtype).astype(np.float64)
        self.y, self.mean = self.x.copy(), self.x.copy()
        self.step_size, self.step_decay, self.averaging = step_size, step_decay, averaging
        self.n_inner, self.step_cap, self.dtype = n_inner, step_cap, dtype
        self.inner = 0
        self.step_sizes = []
        self.least_gap = 1.0
        self.inertia = 0.0

    def feed(self, X, weights=None):
        """Run one inner iteration on a mini-batch; the last one also ends the outer step."""
        X = np.asarray(X, dtype=np.float64)
        w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
        # Labels use the centers in the compute type.
        labels, sq_dists, gap = reference.nearest(X, self.y.astype(self.dtype))
        self.least_gap = min(self.least_gap, gap[w > 0].min())
        self.inertia += float((w * sq_dists).sum())
        force = np.zeros_like(self.y)
        for j in range(len(self.y)):
            mine = labels == j
            share = w[mine].sum() / w.sum()
            if share == 0:
                continue
            force[j] = (w[mine, None] * (self.y[j] - X[mine])).sum(axis=0) / w.sum()
            pull = self.step_size * share
            if self.step_cap is not None and pull > self.step_cap:
                force[j] *= self.step_cap / pull
        self.y = self.x - self.step_size * force
        self.mean = self.averaging * self.mean + (1 - self.averaging) * self.y
        self.inner += 1
        if self.inner == self.n_inner:
            self.close()

    def close(self):
        """End the outer step: the average becomes the anchor."""
        self.x, self.y, self.mean, self.inner = self.mean, self.mean.copy(), self.mean.copy(), 0
        self.step_sizes.append(self.step_size)
        self.step_size *= self.step_decay


def batch_of(seed, step, n, size):
    """Return the rows of batch `step` of a fit, in ascending order."""
    draws = reference.Rng(seed, INNER, step)
    return np.sort([draws.below(n) for _ in range(size)])
