"""Fits that a test kills, in a module that a new process can import."""

import time

import shoal
from shoal.callbacks import Checkpoint

FITS = {
    "kmeans": lambda **more: shoal.KMeans(64, tol=0, random_state=3, n_jobs=1, **more),
    "minibatch": lambda **more: shoal.MiniBatchKMeans(
        64, batch_size=100, max_iter=4, max_no_improvement=None, random_state=3, n_jobs=1, **more
    ),
    "nested": lambda **more: shoal.NestedMiniBatchKMeans(
        64, batch_size=100, random_state=3, n_jobs=1, **more
    ),
    "variance-reduced": lambda **more: shoal.VarianceReducedKMeans(
        64, tol=0, max_iter=30, random_state=3, n_jobs=1, **more
    ),
    "breathing": lambda **more: shoal.BreathingKMeans(64, random_state=3, n_jobs=1, **more),
    "balanced": lambda **more: shoal.BalancedKMeans(64, size_max=1.1, random_state=3, n_jobs=1, **more),
    "backward Euler": lambda **more: shoal.BackwardEulerKMeans(
        64, batch_size=100, polish=True, random_state=3, n_jobs=1, **more
    ),
}


def fit(name, rows, checkpoint):
    """Make the fit, with a checkpoint after each step."""
    slow = [Checkpoint(checkpoint, every=0), lambda *_: time.sleep(0.002)]
    FITS[name](callbacks=slow).fit(rows)
