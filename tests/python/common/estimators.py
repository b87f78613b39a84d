"""Small estimators of every method, which a few steps fit to a few hundred rows."""

import shoal

SMALL = {"random_state": 0, "max_iter": 3}
MIXTURE = shoal.TruncatedGaussianMixture(4, **SMALL)
#: Estimators whose labels need a pass during a fit.
WITH_A_PASS = [
    shoal.KMeans(4, **SMALL),
    shoal.MiniBatchKMeans(4, batch_size=100, **SMALL),
    shoal.NestedMiniBatchKMeans(4, batch_size=100, **SMALL),
    shoal.BackwardEulerKMeans(4, batch_size=100, **SMALL),
    shoal.VarianceReducedKMeans(4, **SMALL),
    shoal.HierarchicalKMeans(20, n_candidates=5, **SMALL),
    shoal.BreathingKMeans(4, m=1, **SMALL),
    MIXTURE,
]
ESTIMATORS = [*WITH_A_PASS, shoal.BalancedKMeans(4, size_max=1.5, **SMALL), shoal.LaplacianKModes(4, **SMALL)]


def class_name(estimator):
    """Return the name of an estimator's class, as the id of a test."""
    return type(estimator).__name__
