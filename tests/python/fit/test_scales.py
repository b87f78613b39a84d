"""Rows of very small and very large values: right distances, and errors that name the rows."""

import numpy as np
import pytest
import scipy.sparse
import shoal
from refusals import refused
from shoal import KMeans, TruncatedGaussianMixture
from shoal.distributed import SeedPass

RNG = np.random.default_rng(0)
#: Three clusters, all values of order 1 to 10.
ROWS = RNG.normal(size=(60, 3)) + 5.0 * RNG.integers(0, 3, size=(60, 1))


def lengths(X, centers):
    """Distances of rows to centers, by differences divided by the largest."""
    apart = np.abs(X[:, None] - centers)
    largest = apart.max(axis=2)
    unit = np.where(largest > 0, largest, 1.0)[..., None]
    return largest * np.sqrt(np.square(apart / unit).sum(axis=2))


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e-160, 1e-100, 1.0, 1e100, 1e150])
@pytest.mark.parametrize("kind", ["dense", "Fortran", "sparse", "source"])
def test_transform_of_rows_of_any_scale(scale, kind):
    X = ROWS * scale
    model = KMeans(3, init=X[:3], n_init=1, max_iter=1).fit(X)
    given = {
        "dense": lambda: X,
        "Fortran": lambda: np.asfortranarray(X),
        "sparse": lambda: scipy.sparse.csr_array(X),
        "source": lambda: shoal.open(X),
    }[kind]()
    expected = lengths(X, model.cluster_centers_)
    assert (expected > 0).all()
    np.testing.assert_allclose(model.transform(given), expected, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-170, 1e170])
def test_transform_of_rows_of_another_scale_than_the_centers(scale):
    model = KMeans(3, random_state=0).fit(ROWS - ROWS.mean(axis=0))
    model.cluster_centers_ = np.array([[0.0, 0, 0], [1, 2, 3], [3, 2, 1]])
    X = ROWS * scale
    np.testing.assert_allclose(model.transform(X), lengths(X, model.cluster_centers_), rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-170, 1e-160])
@pytest.mark.parametrize("shape", ["tied_spherical", "spherical", "diag", "tied", "full", "factor"])
def test_a_mixture_of_rows_whose_squares_underflow(shape, scale):
    text = "^X holds values so small that squared distances underflow: scale the data$"
    for coreset_size in (None, 40):
        mixture = TruncatedGaussianMixture(
            3, covariance_type=shape, coreset_size=coreset_size, random_state=0
        )
        refused(ValueError, text, lambda mixture=mixture: mixture.fit(ROWS * scale))


@pytest.mark.parametrize("init", ["afk-mc2", ROWS[:3] * 1e153], ids=["drawn", "given"])
def test_a_mixture_of_rows_whose_squares_overflow(init):
    with pytest.raises(ValueError, match=r"overflow.*: scale the (data|X)") as raised:
        TruncatedGaussianMixture(3, init=init, random_state=0).fit(ROWS * 1e153)
    assert "sample_weight" not in str(raised.value)


SUMS = {
    "k-means++": lambda X, **weights: shoal.kmeans_plusplus(X, 3, random_state=0, **weights),
    "k-means||": lambda X, **weights: shoal.kmeans_parallel(X, 3, random_state=0, **weights),
    "afk-mc2": lambda X, **weights: shoal.afkmc2(X, 3, random_state=0, **weights),
    "coreset": lambda X, **weights: shoal.lightweight_coreset(X, 5, random_state=0, **weights),
}


@pytest.mark.parametrize("use", ["k-means++", "k-means||"])
def test_sums_that_overflow_are_due_to_the_rows(use):
    # Each squared distance, and the sum of those of a tile, is finite.
    X = np.resize([[0.0], [1e152]], (40_000, 1))
    refused(ValueError, "X holds values so large that .* overflow.*: scale the data$", lambda: SUMS[use](X))


@pytest.mark.parametrize("use", SUMS)
def test_sums_that_overflow_are_due_to_the_weights(use):
    X = np.resize([[0.0], [1.0]], (40, 1))
    text = "^sample_weight must be of a finite sum, .*: scale the weights$"
    refused(ValueError, text, lambda: SUMS[use](X, sample_weight=np.full(40, 1e307)))


@pytest.mark.parametrize("seed", range(8))
def test_distributed_seeds_of_rows_whose_weighted_distances_overflow(seed):
    """A squared distance is finite, but not its product with the number of rows that it stands for."""
    X = np.zeros((11_000, 1))
    X[3_000:] = 1e152 * 3**0.5
    task = SeedPass(2, random_state=seed)
    while not task.done:
        first, second = task.absorb(X[:6_000], partition=0), task.absorb(X[6_000:], partition=1)
        task, _ = task.commit(first.merge(second))
    np.testing.assert_array_equal(np.sort(task.centers, axis=0), X[[0, -1]])
