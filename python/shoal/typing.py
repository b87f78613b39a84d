"""Types for annotations: rows, options, random states and callbacks.

Examples
--------
>>> from shoal.typing import Metric, Rows
>>> def fit(X: Rows, metric: Metric = "euclidean") -> None: ...
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from ._core import Step

__all__ = [
    "ActiveStart",
    "Affinity",
    "Algorithm",
    "BlockStream",
    "Bounds",
    "Callbacks",
    "Centers",
    "Covariance",
    "Criterion",
    "GraphMethod",
    "Init",
    "Keep",
    "Linkage",
    "Memory",
    "Metric",
    "ModeUpdate",
    "NearestMethod",
    "OnCollapse",
    "PathName",
    "RandomState",
    "Rows",
    "RowsInMemory",
    "Search",
    "Seeding",
    "SparseMatrix",
    "Stopping",
    "SupportsArray",
    "SupportsArrow",
    "SupportsDLPack",
    "Variant",
    "Weights",
    "Within",
]


@runtime_checkable
class SupportsArray(Protocol):
    """An object that becomes a NumPy array: an array, a data frame, an open source."""

    def __array__(self) -> npt.NDArray[Any]:
        """Give the array."""
        ...


@runtime_checkable
class SupportsArrow(Protocol):
    """An object that exports the Arrow C stream interface, such as a table."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Give the capsule of the stream."""
        ...


@runtime_checkable
class SupportsDLPack(Protocol):
    """An array of another library on the CPU, by way of DLPack."""

    def __dlpack__(self) -> Any:
        """Give the capsule of the tensor."""
        ...


@runtime_checkable
class SparseMatrix(Protocol):
    """A sparse matrix or array of SciPy; formats other than CSR are converted."""

    @property
    def nnz(self) -> int:
        """Number of stored values."""
        ...

    def tocsr(self, copy: bool = False) -> Any:
        """Convert to CSR."""
        ...


#: The path of a file.
PathName: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]
#: Rows in memory: an array-like, a data frame, a sparse matrix.
RowsInMemory: TypeAlias = npt.ArrayLike | SupportsArray | SupportsArrow | SupportsDLPack | SparseMatrix
#: A stream: an iterator of blocks, an object that can be iterated repeatedly (a data loader), a callable that
#: returns a fresh iterable for each pass, or a binary file object.
BlockStream: TypeAlias = Iterable[Any] | Callable[[], Iterable[RowsInMemory]] | BinaryIO
#: What `X` may be: rows in memory, one path or a list of paths, a :class:`~shoal.DataSource`,
#: a stream of blocks.
Rows: TypeAlias = RowsInMemory | PathName | Sequence[PathName] | BlockStream

#: Initial centers as an array, or nested sequences of numbers.
Centers: TypeAlias = SupportsArray | Sequence[Sequence[float]] | Sequence[npt.NDArray[Any]]
#: Names of seedings.
Seeding: TypeAlias = Literal[
    "auto", "random", "k-means++", "plain-k-means++", "afk-mc2", "k-mc2", "k-means||", "hierarchical"
]
#: How initial centers are chosen: a seeding, an array, or ``f(X, n_clusters, *, random_state) -> centers``.
Init: TypeAlias = Seeding | Centers | Callable[..., npt.ArrayLike]
#: Distances that centers are assigned by.
Metric: TypeAlias = Literal["euclidean", "cosine"]
#: How :class:`~shoal.KMeans` finds the nearest centers.
Algorithm: TypeAlias = Literal[
    "auto", "lloyd", "elkan", "yinyang", "hamerly", "exponion", "filtering", "sketch"
]
#: Bounds of :class:`~shoal.NestedMiniBatchKMeans`.
Bounds: TypeAlias = Literal["auto", "elkan", "yinyang", "hamerly", "none"]
#: Variants of :class:`~shoal.VarianceReducedKMeans`.
Variant: TypeAlias = Literal["vrkm++", "vrkm"]
#: Mode updates of :class:`~shoal.LaplacianKModes`.
ModeUpdate: TypeAlias = Literal["byproduct", "mean-shift"]
#: Affinities of :class:`~shoal.LaplacianKModes`.
Affinity: TypeAlias = Literal["knn", "gaussian", "precomputed"]
#: What :class:`~shoal.LaplacianKModes` does when clusters collapse.
OnCollapse: TypeAlias = Literal["restore", "reduce"]
#: Covariances of :class:`~shoal.TruncatedGaussianMixture`.
Covariance: TypeAlias = Literal["tied_spherical", "spherical", "diag", "tied", "full", "factor"]
#: How :class:`~shoal.TruncatedGaussianMixture` chooses the initial components per row.
ActiveStart: TypeAlias = Literal["cells", "random"]
#: Stopping rules of :class:`~shoal.TruncatedGaussianMixture`.
Stopping: TypeAlias = Literal["auto", "per-weight", "relative"]
#: How a fitted :class:`~shoal.TruncatedGaussianMixture` finds the components of a row.
Search: TypeAlias = Literal["exact", "neighbors"]
#: How :func:`shoal.knn_graph` finds neighbors.
GraphMethod: TypeAlias = Literal["auto", "exact", "kd-tree", "ivf"]
#: How :func:`shoal.nearest` finds centers.
NearestMethod: TypeAlias = Literal["exact", "approximate"]
#: Which row of a group of duplicates :func:`shoal.curation.deduplicate` keeps.
Keep: TypeAlias = Literal["first", "nearest-to-center", "farthest-from-center"]
#: How :func:`shoal.curation.deduplicate` makes groups of pairs.
Linkage: TypeAlias = Literal["leader", "components", "semdedup"]
#: Criteria that choose a number of clusters.
Criterion: TypeAlias = Literal[
    "auto", "elbow", "silhouette", "calinski_harabasz", "davies_bouldin", "stability"
]
#: Which rows of a cluster :func:`shoal.curation.sample` draws.
Within: TypeAlias = Literal["random", "nearest"]
#: An int for repeatable results, a NumPy generator, or None.
RandomState: TypeAlias = int | np.random.RandomState | np.random.Generator | None
#: Weights of the rows, one value for each, or None: 1.
Weights: TypeAlias = npt.ArrayLike | None
#: An amount of memory: bytes, or text such as ``"500MB"``.
Memory: TypeAlias = int | str
#: Callables ``f(estimator, step)`` that are called after every step. A true value ends the fit.
Callbacks: TypeAlias = Iterable[Callable[[Any, Step], object]] | None
