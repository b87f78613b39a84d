"""Sums over millions of float32 rows stay exact."""

import math

import numpy as np
import pytest
import reference
from shoal import KMeans


def check(n):
    """Two clusters of `n` rows each, uniform on (0, 1) and (10, 11)."""
    rng = np.random.default_rng(0)
    X = np.empty((2 * n, 1), dtype=np.float32)
    X[:n, 0] = rng.random(n, dtype=np.float32)
    X[n:, 0] = rng.random(n, dtype=np.float32)
    # Means of the rows as they are after rounding to float32.
    X[n:] += np.float32(10)
    model = KMeans(2, init=np.array([[0.0], [10.0]]), n_init=1, max_iter=3).fit(X)
    assert (model.labels_[:n] == 0).all()
    assert (model.labels_[n:] == 1).all()
    assert model.counts_.tolist() == [n, n]
    means = [X[:n].mean(dtype=np.float64), X[n:].mean(dtype=np.float64)]
    np.testing.assert_allclose(model.cluster_centers_.ravel(), means, rtol=0, atol=1e-6)
    centers = model.cluster_centers_.astype(np.float64)
    expected = math.fsum(
        reference.inertia(part, centers, np.full(len(part), j))
        for j, rows in enumerate((X[:n], X[n:]))
        for part in np.array_split(rows, max(1, n // 1_000_000))
    )
    assert model.inertia_ == pytest.approx(expected, rel=1e-9, abs=0)


def test_two_million_rows_per_cluster():
    check(2_000_000)


@pytest.mark.slow
def test_thirty_million_rows_per_cluster():
    check(30_000_000)
