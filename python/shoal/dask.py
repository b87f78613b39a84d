"""Clustering on a Dask cluster: arrays, data frames, or one file per partition.

Rows stay on the workers. Every step submits one task per worker, which takes the partitions that lie there;
large results are merged in a tree. The same rows in the same order give bit-identical results for any
partitions, any number of workers and threads, any order of completion, and after a worker died.

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

from typing import Any

from sklearn.utils.validation import validate_data

from ._distributed.dask_engine import DaskEngine, is_lost, lazily
from ._distributed.dask_rows import partitions_of
from ._distributed.engine import missing
from ._distributed.fitting import KMeansOnEngine
from ._distributed.passes import RowPass
from ._distributed.seeding import drawn_coreset
from ._docs import documented
from ._fit.declared import estimator
from .coreset import Coreset
from .typing import Metric, RandomState

__all__ = ["KMeans", "lightweight_coreset"]


@estimator
class KMeans(KMeansOnEngine, auto_wrap_output_keys=None):
    """Exact k-means on a Dask cluster.

    `X` is one of

    - a dask array, chunked by rows only;
    - a dask data frame: labels are a dask series with its index, and distances a dask data frame;
    - a list of paths: each file is one partition, which the workers open. All workers must see the files;
    - a list of ``dask.delayed`` values: each computes the rows of one partition, as anything that local
      estimators take as `X`.

    Arrays, frames and delayed values are computed once and stay in the memory of the workers during the fit,
    as with ``persist()``. `sample_weight` is a dask array or series with the partitions of `X` (those of
    known size are rechunked), or a list of arrays for a list of paths.

    The options of all methods are

    - ``client=``, a ``distributed.Client``. Default: the current client. `predict` and `transform` need none:
      their results are computed when they are used, by any scheduler of Dask.
    - ``persist=``, for a list of paths. Files that must be decoded, such as Parquet, are decoded once in a
      fit, and each worker process keeps their rows until its budget is used up: half of its memory limit
      (1 GB without a limit), or an amount such as ``"4GB"``. The files that remain are decoded in every pass,
      and with False all are. Mapped files, such as ``.npy``, are never copied. The result does not depend on
      it.

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
    labels_ : dask array of shape (n_samples,), int32, or dask series
        Nearest center of every row, in the partitions of X. The labels stay on the workers until the cluster
        is closed, and are not pickled with the estimator.

    See Also
    --------
    shoal.KMeans : On one machine; faster there, because it sends no results.
    shoal.distributed.KMeans : On an executor of ``concurrent.futures``, with the same results.
    lightweight_coreset : Few weighted rows, to cluster on one machine.

    Notes
    -----
    A sweep costs ``2 n_samples n_clusters n_features`` floating-point operations, spread over the workers. It
    is one task per worker. A task returns ``n_clusters * (n_features + 2)`` numbers of 8 to 16 bytes. The
    client handles one such result, and the centers; if they may take 256 MB or more, it handles a few
    numbers per cluster, and the centers every 10 sweeps. Later sweeps cost less: the
    workers keep labels and bounds of their partitions, each process in at most `memory` bytes and a quarter
    of its memory limit, until the fit ends.

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

    _options = ("client", "persist")

    def _open(
        self,
        X: Any,
        sample_weight: Any,
        *,
        reset: bool,
        client: Any = None,
        persist: bool | str | int = True,
    ) -> DaskEngine:
        # A score is a single pass.
        rows = partitions_of(X, sample_weight, persist if reset else False)
        return DaskEngine(rows, client, self.n_jobs)

    def _over_rows(self, task: RowPass, X: Any, **options: Any) -> Any:
        rows = partitions_of(X, persist=False)
        if rows.header is not None:
            validate_data(self, rows.header, reset=False, skip_check_array=True)
        return lazily(task, rows, self.n_jobs)

    @property
    def labels_(self) -> Any:
        """Label of every row, whose chunks are on the workers."""
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
    """Draw a lightweight coreset of the rows of a Dask cluster.

    Fit any local estimator to it, for example a :class:`shoal.TruncatedGaussianMixture`.

    Parameters
    ----------
    X, sample_weight, client
        As for :class:`KMeans`.
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


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
