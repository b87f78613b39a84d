"""Rows, a loader that gives them in blocks, and estimators for them that take weights."""

import numpy as np
import shoal

X = np.random.default_rng(0).normal(size=(700, 5)).astype("f4")
X[:200] += 3

WEIGHTED = {
    "KMeans": shoal.KMeans(4, random_state=0),
    "KMeans, restarts": shoal.KMeans(4, init="random", n_init=3, random_state=0),
    "MiniBatchKMeans": shoal.MiniBatchKMeans(4, batch_size=50, random_state=0),
    "NestedMiniBatchKMeans": shoal.NestedMiniBatchKMeans(4, batch_size=50, random_state=0),
    "HierarchicalKMeans": shoal.HierarchicalKMeans(4, random_state=0),
    "BreathingKMeans": shoal.BreathingKMeans(4, m=2, random_state=0),
    "BalancedKMeans": shoal.BalancedKMeans(4, size_max=1.1, random_state=0),
    "VarianceReducedKMeans": shoal.VarianceReducedKMeans(4, random_state=0),
    "BackwardEulerKMeans": shoal.BackwardEulerKMeans(4, batch_size=40, random_state=0),
    "TruncatedGaussianMixture": shoal.TruncatedGaussianMixture(4, n_active=3, random_state=0),
}


class Loader:
    """Blocks of rows, from the first on in every pass, as those of a data loader."""

    def __init__(self, rows=X, size=64, wrap=lambda block: block, order=None):
        self.rows, self.size, self.wrap, self.order = rows, size, wrap, order
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        rows = self.rows if self.order is None else self.rows[self.order(len(self.rows))]
        return (self.wrap(rows[at : at + self.size]) for at in range(0, len(rows), self.size))


def parts(model):
    """Return the fitted values of a model as bytes."""
    found = [model.cluster_centers_, model.labels_, np.float64(model.inertia_)]
    if isinstance(model, shoal.TruncatedGaussianMixture):
        found += [model.covariances_, model.weights_, np.float64(model.lower_bound_)]
    return [np.asarray(each).tobytes() for each in found]
