"""The affinity and the responsibilities as SciPy matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, issparse

from shoal._core import ModesRun
from shoal._rows.sparse import csr_of, csr_of_equal_rows


def affinity_matrix(run: ModesRun) -> csr_matrix:
    """Return the affinity of a run."""
    starts, columns, weights = run.affinity()
    n = len(starts) - 1
    return csr_matrix((weights, columns, starts), shape=(n, n))


def responsibilities_matrix(kept: npt.NDArray[Any], clusters: npt.NDArray[np.int32], k: int) -> Any:
    """Return the responsibilities of `k` clusters: the array `kept`, or a sparse matrix of the largest ones.

    `kept` holds the same number of values for each row, and `clusters` the cluster of each value. `clusters`
    is empty where all responsibilities are kept.
    """
    if len(clusters) == 0:
        return kept
    return csr_of_equal_rows(kept, clusters.reshape(kept.shape), k)


def checked_affinity(affinity: Any) -> Any:
    """Return an affinity of the user as CSR, shape and type checked; the fit checks the values."""
    matrix = csr_matrix(csr_of(affinity) if issparse(affinity) else np.asarray(affinity))
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f'X must be square with affinity="precomputed", got shape {matrix.shape}')
    if matrix.dtype.kind not in "biuf":
        raise TypeError(f'X must hold real numbers with affinity="precomputed", got {matrix.dtype}')
    return matrix
