"""Generated rows that the tests of several methods share."""

from functools import partial

import numpy as np


def blobs(n=400, d=4, k=5, seed=0, *, apart=4.0, width=1.0, dtype=np.float64):
    """Return rows normal with deviation `width` around centers that are normal with deviation `apart`."""
    rng = np.random.default_rng(seed)
    centers = apart * rng.normal(size=(k, d))
    return (centers[rng.integers(k, size=n)] + width * rng.normal(size=(n, d))).astype(dtype)


def groups(size):
    """Return rows of 15 separate groups of `size` rows each, group after group."""
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(c, 0.3, size=(size, 3)) for c in rng.uniform(-20, 20, size=(15, 3))])


#: Rows whose clusters hardly overlap.
tight_blobs = partial(blobs, apart=3.0, width=0.3)
