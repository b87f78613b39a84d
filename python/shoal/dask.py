"""Clustering on a Dask cluster: arrays, data frames, or one file per partition.

Rows stay on the workers. Every step submits one graph of tasks, which run where the partitions lie; their
results are merged on the workers, in a tree. For a given list of partitions, results are bit-identical for
any number of workers and threads, any order of completion, and after a worker died.

Needs ``pip install 'shoal-cluster[dask]'`` on the client, the scheduler and the workers.

Examples
--------
>>> import dask.array as da
>>> from distributed import Client
>>> from shoal.dask import KMeans
>>> client = Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0")
>>> X = da.random.default_rng(0).normal(size=(10_000, 2), chunks=(2500, 2))
>>> model = KMeans(5, random_state=0).fit(X)
>>> model.cluster_centers_.shape, model.labels_.chunks
((5, 2), ((2500, 2500, 2500, 2500),))
>>> client.close()
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from ._core import Step
from ._distributed.dask_engine import DaskEngine, is_lost, labeled_here
from ._distributed.dask_rows import concatenated, library, partitions_of
from ._distributed.fitting import KMeansOnEngine, MiniBatchKMeansOnEngine
from ._distributed.seeding import drawn_coreset
from ._docs import documented
from .coreset import Coreset
from .typing import Metric, PathName, RandomState

__all__ = ["KMeans", "MiniBatchKMeans", "lightweight_coreset"]


class _OnDask(KMeansOnEngine):
    """Fits and predicts on a Dask cluster."""

    @documented
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        client: Any = None,
        resume_from: PathName | None = None,
    ) -> Self:
        """Cluster the rows of all partitions.

        Parameters
        ----------
        X : dask array, dask data frame, or list, of shape (n_samples, n_features)
            - A dask array, chunked by rows only.
            - A dask data frame.
            - A list of paths: each file is one partition, which the workers open. All workers must see the
              files.
            - A list of ``dask.delayed`` values: each computes the rows of one partition, as anything that
              local estimators take as `X`.

            Partitions may be empty. Those with column names must have the same names in one order, which are
            kept in `feature_names_in_`. Arrays, frames and delayed values are computed once and stay in the
            memory of the workers during the fit, as with ``persist()``.
        y : ignored
        sample_weight : dask array, dask series, or list of array-like, of shape (n_samples,), optional
            Weight of every row, finite and at least 0, not all 0. For a list of paths: a list of arrays. Dask
            collections must have the partitions of X; those of known size are rechunked.
        client : distributed.Client, optional
            Default: the current client.
        {resume_from}

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ImportError
            If dask is not installed.
        ValueError, TypeError, OSError
            If the rows or the parameters are not valid, or there is no client. Messages name the partition.
        RuntimeError
            If the cluster or the client is closed, or a task killed its worker several times. The estimator
            then holds the state after the last complete step.
        """
        for _ in self.iter_fit(X, sample_weight, client=client, resume_from=resume_from):
            pass
        return self

    def iter_fit(
        self,
        X: Any,
        sample_weight: Any = None,
        *,
        client: Any = None,
        resume_from: PathName | None = None,
    ) -> Iterator[Step]:
        """Cluster the rows of all partitions, one step per ``next()``.

        Parameters and errors are those of :meth:`fit`, which exhausts this iterator.

        Yields
        ------
        shoal.Step
            Figures of the step; see :meth:`shoal.distributed.KMeansPass.commit`.
        """
        self._check()
        engine = DaskEngine(partitions_of(X, sample_weight), client, self.n_jobs)
        return self._iterate(engine, resume_from)

    def predict(self, X: Any) -> Any:
        """Label the rows of all partitions with their nearest centers.

        Parameters
        ----------
        X : dask array, dask data frame, or list
            As for :meth:`fit`.

        Returns
        -------
        dask array of shape (n_samples,), int32
            The labels, in the partitions of X; the lower index wins a tie. They are computed when the array
            is, by any scheduler of Dask.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        ValueError, TypeError
            If X is not such a collection, or has other features. Errors of the rows are raised when the
            labels are computed.
        """
        check_is_fitted(self, "cluster_centers_")
        rows = partitions_of(X)
        if rows.header is not None:
            validate_data(self, rows.header, reset=False, skip_check_array=True)
        delayed = library("dask").delayed
        task = delayed(pickle.dumps(self._labeling()), pure=False)
        work = delayed(labeled_here, pure=False)
        labels = [work(task, i, block, self.n_jobs) for i, block in enumerate(rows.blocks.lazy())]
        return concatenated(labels, rows.sizes, "labels", np.int32)

    @property
    def labels_(self) -> Any:
        """Label of every row, a dask array whose chunks are on the workers."""
        labels = super().labels_
        if is_lost(labels):
            raise self._missing(
                "labels_",
                "the labels were on a cluster that is closed. Use predict, or compute labels_ before the "
                "cluster is closed.",
            )
        return labels

    def __getstate__(self) -> dict[str, Any]:
        """Return the picklable state, without the labels, which live on the cluster."""
        state = super().__getstate__()
        return {**state, "_labels": None} if "_labels" in state else state


@documented
class KMeans(_OnDask):
    """Exact k-means on a Dask cluster.

    Parameters
    ----------
    {n_clusters} {init_of_partitions} {sweeps_of_partitions} {tol_of_partitions} {metric} {random_state}
    {expert_of_partitions}
    n_jobs : int or None, default=None
        Threads per task. None: tasks take turns on a worker, and each uses all its threads. Results do not
        depend on it.
    {verbose} {callbacks}

    Attributes
    ----------
    {fitted_to_partitions} {counts_}
    labels_ : dask array of shape (n_samples,), int32
        Nearest center of every row, in the partitions of X. The labels stay on the workers until the cluster
        is closed, and are not pickled with the estimator.

    See Also
    --------
    shoal.KMeans : On one machine; faster there, because it skips most distances.
    shoal.distributed.KMeans : On an executor of ``concurrent.futures``, with the same results.
    MiniBatchKMeans : A rough result from few passes.
    lightweight_coreset : Few weighted rows, to cluster on one machine.

    Notes
    -----
    A sweep costs ``2 n_samples n_clusters n_features`` floating-point operations, spread over the workers.
    Every partition sends ``n_clusters * (n_features + 2)`` numbers of 8 bytes, to a worker that merges 8 of
    them. The client and the scheduler handle one such result, and the centers. The workers keep no results
    between sweeps.

    Dask runs the tasks of a lost worker again, with the same result. A lost partition must be computable
    again, so data that was scattered by a client is lost with its worker.

    References
    ----------
    S. P. Lloyd, "Least squares quantization in PCM", IEEE Transactions on Information Theory 28 (1982).

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from distributed import Client
    >>> from shoal.dask import KMeans
    >>> client = Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0")
    >>> rows = np.array([[1.0, 2], [1, 4], [10, 2], [10, 4], [10, 0], [1, 0]])
    >>> model = KMeans(2, random_state=0).fit(da.from_array(rows, chunks=(3, 2)))
    >>> sorted(model.cluster_centers_.tolist()), model.inertia_
    ([[1.0, 2.0], [10.0, 2.0]], 16.0)
    >>> client.close()
    """


@documented
class MiniBatchKMeans(_OnDask, MiniBatchKMeansOnEngine):
    """Mini-batch k-means on a Dask cluster.

    Each step is one pass over all rows: every partition learns from its batches, starting with the common
    centers, and the states are merged; see :class:`shoal.distributed.MiniBatchPass`.

    Parameters
    ----------
    {n_clusters} {init_of_partitions} {batches_of_partitions} {tol_of_partitions} {metric} {random_state}
    {expert_of_partitions}
    n_jobs : int or None, default=None
        As for :class:`KMeans`.
    {verbose} {callbacks}

    Attributes
    ----------
    {fitted_to_partitions} {counts_of_batches}
    labels_ : dask array of shape (n_samples,), int32
        As for :class:`KMeans`.

    See Also
    --------
    shoal.MiniBatchKMeans : On one machine.
    shoal.distributed.MiniBatchKMeans : On an executor of ``concurrent.futures``, with the same results.

    References
    ----------
    D. Sculley, "Web-scale k-means clustering", WWW 2010.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from distributed import Client
    >>> from shoal.dask import MiniBatchKMeans
    >>> client = Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0")
    >>> X = np.random.default_rng(0).normal(size=(4000, 2)) + np.tile([[0.0], [20.0]], (2000, 1))
    >>> model = MiniBatchKMeans(2, random_state=0).fit(da.from_array(X, chunks=(1000, 2)))
    >>> sorted(model.cluster_centers_[:, 0].round().tolist())
    [0.0, 20.0]
    >>> client.close()
    """


@documented
def lightweight_coreset(
    X: Any,
    n_samples: int,
    *,
    sample_weight: Any = None,
    metric: Metric = "euclidean",
    random_state: RandomState = None,
    n_jobs: int | None = None,
    client: Any = None,
) -> Coreset:
    """Draw a lightweight coreset of the rows of a Dask cluster, in two passes.

    Fit any local estimator to it, for example a :class:`shoal.TruncatedGaussianMixture`.

    Parameters
    ----------
    X, sample_weight, client
        As for :meth:`KMeans.fit`.
    {coreset_rows} {threads_of_task}

    Returns
    -------
    shoal.Coreset
        In the memory of this process. Points in the order of the rows; see
        :class:`shoal.distributed.CoresetPass`.

    Raises
    ------
    ImportError, ValueError, TypeError, OSError, RuntimeError
        As :meth:`KMeans.fit`.

    See Also
    --------
    shoal.lightweight_coreset : On one machine.
    shoal.distributed.lightweight_coreset : On an executor, with the same result.

    Examples
    --------
    >>> import dask.array as da, shoal
    >>> from distributed import Client
    >>> client = Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0")
    >>> X = da.random.default_rng(0).normal(size=(10_000, 3), chunks=(2500, 3))
    >>> coreset = shoal.dask.lightweight_coreset(X, 100, random_state=0)
    >>> coreset.points.shape, bool(coreset.weights.max() <= 200)
    ((100, 3), True)
    >>> client.close()
    """

    def open_engine() -> DaskEngine:
        return DaskEngine(partitions_of(X, sample_weight), client, n_jobs)

    return drawn_coreset(open_engine, n_samples, metric, random_state, n_jobs)
