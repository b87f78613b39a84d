"""Clustering of Ray Datasets, on the workers.

Ray schedules the passes of :mod:`shoal.distributed`, one task per block, and runs lost tasks again. Needs Ray
Data (``pip install 'shoal-cluster[ray]'``), and shoal on all workers.

For a given list of blocks, results are bit-identical for any number of workers, after retries, and on any
engine. The blocks of a ``MaterializedDataset`` are used as they are. Those of other Datasets are computed
once per fit, in the order of the rows; a function in the Dataset that returns other rows each time, or in
another order, gives another result.

Examples
--------
>>> from shoal.ray import KMeans
>>> model = KMeans(n_clusters=100, random_state=0).fit(ds, features="data")  # doctest: +SKIP
>>> model.predict(ds).show(3)  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ._distributed.estimators import KMeansOnEngine, MiniBatchKMeansOnEngine
from ._distributed.ray_engine import RayEngine
from ._distributed.seeding import drawn_coreset
from ._distributed.tables import OnTable
from .coreset import Coreset
from .typing import Metric, RandomState

__all__ = ["KMeans", "MiniBatchKMeans", "lightweight_coreset"]


class _OnRay(OnTable):
    """Fits and predicts on the workers of Ray."""

    _engine = RayEngine
    _features = "data"


class KMeans(_OnRay, KMeansOnEngine):
    """Exact k-means over the blocks of a Ray Dataset.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters, at least 1 and at most the number of rows.
    init : {"k-means++", "afk-mc2", "k-means||"} or array-like, default="k-means++"
        How to choose the first centers, as for :class:`shoal.distributed.KMeans`.
    max_iter : int, default=300
        Maximum number of sweeps, at least 1.
    tol : float, default=1e-4
        As for :class:`shoal.distributed.KMeans`.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"`` is spherical k-means, as for :class:`shoal.KMeans`.
    random_state : int, RandomState, Generator or None, default=None
        An int makes results repeatable.
    Expert parameters
        The parameters below are needed less often.
    oversampling_factor, n_rounds, coreset_size
        As for :class:`shoal.distributed.KMeans`.
    compute_labels : bool, default=True
        Whether `labels_` is set.
    n_jobs : int or None, default=None
        Cores and threads per task, at least 1. None: 1. Results do not depend on it.
    verbose, callbacks
        As for :class:`shoal.distributed.KMeans`.

    Attributes
    ----------
    labels_ : ray.data.Dataset
        The rows of the fit with a column of labels, which Ray computes when it is used.
    cluster_centers_, inertia_, counts_, n_iter_, history_, stop_reason_, init_, n_features_in_,
    feature_names_in_
        As for :class:`shoal.distributed.KMeans`.

    See Also
    --------
    shoal.distributed.KMeans : The same on an executor of ``concurrent.futures``.

    Notes
    -----
    A sweep costs ``2 n_samples n_clusters n_features`` floating-point operations, spread over the tasks. Each
    task returns ``n_clusters * (n_features + 2)`` numbers of 8 bytes, merged in a tree of tasks. Tensors and
    lists are read in place from Ray's object store, which holds the rows of a fit and spills them to disk.

    Examples
    --------
    >>> model = KMeans(n_clusters=100, random_state=0).fit(ds, features=["x", "y"])  # doctest: +SKIP
    """


class MiniBatchKMeans(_OnRay, MiniBatchKMeansOnEngine):
    """Mini-batch k-means over the blocks of a Ray Dataset.

    Each step is one pass over all rows; see :class:`shoal.distributed.MiniBatchPass`.

    Parameters
    ----------
    n_clusters, init, batch_size, max_iter, tol, metric, random_state
        As for :class:`shoal.distributed.MiniBatchKMeans`.
    Expert parameters
        The parameters below are needed less often.
    oversampling_factor, n_rounds, coreset_size, compute_labels, n_jobs, verbose, callbacks
        As for :class:`KMeans`.

    Attributes
    ----------
    labels_ : ray.data.Dataset
        As for :class:`KMeans`.
    cluster_centers_, counts_, inertia_, n_iter_, history_, stop_reason_, init_, n_features_in_,
    feature_names_in_
        As for :class:`shoal.distributed.MiniBatchKMeans`.

    See Also
    --------
    KMeans : Exact k-means.

    Examples
    --------
    >>> model = MiniBatchKMeans(n_clusters=100, random_state=0).fit(ds)  # doctest: +SKIP
    """


def lightweight_coreset(
    X: Any,
    n_samples: int,
    features: str | Sequence[str] = "data",
    weights: str | None = None,
    *,
    metric: Metric = "euclidean",
    random_state: RandomState = None,
    n_jobs: int | None = None,
) -> Coreset:
    """Draw a lightweight coreset of the rows of a Dataset, in two passes.

    Fit any local estimator to it, for example a :class:`shoal.TruncatedGaussianMixture`.

    Parameters
    ----------
    X, features, weights
        As for :meth:`KMeans.fit`.
    n_samples : int
        Rows in the coreset, at least 1. If there are no more rows than this, the coreset is all rows.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"``: a coreset of the rows scaled to length 1.
    random_state : int, RandomState, Generator or None
        An int makes the draw repeatable.
    n_jobs : int or None
        Threads per task, as for :class:`KMeans`.

    Returns
    -------
    shoal.Coreset
        Points in the order of the rows; see :class:`shoal.distributed.CoresetPass`.

    Raises
    ------
    ImportError, ValueError, TypeError, RuntimeError
        As :meth:`KMeans.fit`.

    See Also
    --------
    shoal.lightweight_coreset : On one machine.

    Examples
    --------
    >>> coreset = lightweight_coreset(ds, 100_000, random_state=0)  # doctest: +SKIP
    """
    engine = partial(RayEngine, X, features, weights, None, n_jobs)
    return drawn_coreset(engine, n_samples, metric, random_state, n_jobs)
