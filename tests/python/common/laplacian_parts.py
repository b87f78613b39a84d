"""Rows and first modes for the tests of Laplacian K-modes."""

import numpy as np
from sklearn.datasets import load_digits

DIGITS = load_digits()


def labeled_blobs(n=160, d=6, k=3, seed=0, apart=3.0):
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % k
    centers = rng.normal(size=(k, d)) * apart
    return centers[truth] + rng.normal(size=(n, d)), truth
