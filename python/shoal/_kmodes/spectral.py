"""Spectral clustering of an affinity: the start of ``init="spectral"``."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, diags
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from sklearn.exceptions import ConvergenceWarning

from shoal.kmeans import KMeans

#: Computes the labels of a spectral start; the signature is that of `spectral_labels`.
Spectral = Callable[..., npt.NDArray[np.int32] | None]

#: Residual of an eigenvector relative to its eigenvalue, far below the differences between clusters.
TOLERANCE = 1e-4
#: Up to how many rows a dense solver is faster: in general, and if a fourth of all vectors is computed.
DENSE_ROWS, DENSE_ROWS_OF_MANY = 400, 4000
#: A component with fewer rows than this share of the mean cluster size gets no eigenvector.
TOO_SMALL = 0.1
#: Starts of k-means on the eigenvectors. They are cheap, and single starts vary too much.
STARTS = 5


def spectral_labels(
    affinity: csr_matrix, n_clusters: int, *, seed: int, n_jobs: int | None
) -> npt.NDArray[np.int32] | None:
    """Cluster the rows of a symmetric affinity by its leading eigenvectors.

    The eigenvectors of ``D**-1/2 W D**-1/2``, each row scaled to length 1, are clustered by
    :class:`~shoal.KMeans` (Ng, Jordan and Weiss, 2001). The eigenvalue 1 has one eigenvector per connected
    component. These eigenvectors are known, so the solver only looks for the others. It uses one thread, so
    that the labels do not depend on `n_jobs`.

    Label -1 marks rows of components that are too small to be a cluster, and, with more large components than
    clusters, rows of all but the largest ones. Returns None if most rows lie in components that are too
    small: the graph does not tell which of these components belong together.
    """
    n, k = affinity.shape[0], n_clusters
    labels = np.full(n, -1, dtype=np.int32)
    if k == 1:
        labels[:] = 0
        return labels
    _, parts = connected_components(affinity, directed=False)
    sizes = np.bincount(parts)
    large = np.flatnonzero(sizes >= TOO_SMALL * n / k)
    if sizes[large].sum() < n / 2:
        return None
    if len(large) >= k:
        # The stable sort prefers the first of equally large components.
        largest = large[np.argsort(-sizes[large], kind="stable")[:k]]
        for label, part in enumerate(np.sort(largest)):
            labels[parts == part] = label
        return labels
    rows = np.flatnonzero(np.isin(parts, large))
    W = affinity if len(rows) == n else affinity[rows][:, rows]
    embedded = embed(csr_matrix(W, dtype=np.float64), k)
    labels[rows] = cluster_rows(embedded, k, seed, n_jobs)
    return labels


def embed(W: csr_matrix, k: int) -> npt.NDArray[np.float64]:
    """Return the `k` leading eigenvectors of the normalized affinity, each row scaled to length 1."""
    from threadpoolctl import threadpool_limits

    n = W.shape[0]
    degrees = np.asarray(W.sum(axis=1), dtype=np.float64).ravel()
    # A row without neighbors is a component of its own, with eigenvector 1.
    degrees[degrees <= 0] = 1.0
    scale = diags(1 / np.sqrt(degrees))
    A = csr_matrix(scale @ W @ scale)
    n_parts, parts = connected_components(W, directed=False)
    known = np.sqrt(degrees / np.bincount(parts, weights=degrees)[parts])
    # With several threads the order of summation would change the last bits.
    with threadpool_limits(1, user_api="blas"):
        if n <= DENSE_ROWS or n <= min(DENSE_ROWS_OF_MANY, 4 * k):
            vectors = np.linalg.eigh(A.toarray())[1][:, : -k - 1 : -1]
        else:
            U = csr_matrix((known, (np.arange(n), parts)), shape=(n, n_parts))
            others = leading_vectors(A, U, k - min(k, n_parts))
            vectors = np.hstack([U[:, :k].toarray(), others])
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: npt.NDArray[np.float64] = vectors / np.maximum(lengths, np.finfo(np.float64).tiny)
    return scaled


def leading_vectors(A: csr_matrix, U: csr_matrix, count: int) -> npt.NDArray[np.float64]:
    """Return `count` eigenvectors of the largest eigenvalues of `A`, orthogonal to the known ones in `U`."""
    n = A.shape[0]
    if count == 0:
        return np.empty((n, 0))
    transposed = csr_matrix(U.T)

    def product(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        y = A @ x
        # Shifts the known eigenvalue 1 to -1, below all eigenvalues of interest.
        y -= U @ (2.0 * (transposed @ x))
        return np.asarray(y)

    operator = LinearOperator((n, n), matvec=product, dtype=np.float64)
    given: dict[str, Any] = {}
    if "rng" in inspect.signature(eigsh).parameters:
        given["rng"] = np.random.default_rng(0)
    first = np.random.default_rng(0).uniform(-1.0, 1.0, n)
    try:
        values, vectors = eigsh(operator, k=count, which="LA", v0=first, tol=TOLERANCE, **given)
    except ArpackNoConvergence as error:
        raise ValueError(
            f'init="spectral" found only {len(error.eigenvalues)} of {count} eigenvectors of the affinity. '
            "Use another init, or increase n_neighbors."
        ) from error
    # Versions of SciPy differ in the order of equal eigenvalues.
    found: npt.NDArray[np.float64] = vectors[:, np.argsort(-values, kind="stable")]
    return found


def cluster_rows(
    rows: npt.NDArray[np.float64], k: int, seed: int, n_jobs: int | None
) -> npt.NDArray[np.int32]:
    """Label rows by k-means, so that every cluster has at least one row."""
    model = KMeans(k, n_init=STARTS, random_state=seed, n_jobs=n_jobs)
    with warnings.catch_warnings():
        # Raised for fewer distinct rows than clusters; the loop below fills empty clusters.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = model.fit(np.ascontiguousarray(rows)).labels_.copy()
    sizes = np.bincount(labels, minlength=k)
    for empty in np.flatnonzero(sizes == 0):
        fullest = int(sizes.argmax())
        labels[np.flatnonzero(labels == fullest)[-1]] = empty
        sizes[fullest] -= 1
        sizes[empty] += 1
    return labels
