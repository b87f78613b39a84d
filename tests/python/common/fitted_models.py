"""Rows and models that the tests of fits share."""

import numpy as np
from shoal import KMeans

X = np.random.default_rng(0).normal(size=(1200, 4))


def fitted(**given):
    return KMeans(9, **{"random_state": 0, "tol": 0.0, **given}).fit(X)
