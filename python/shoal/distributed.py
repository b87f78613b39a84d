"""Clustering on many machines, on ``concurrent.futures`` or your own engine.

The engine that you have schedules tasks, retries and places data: see :mod:`shoal.dask`, :mod:`shoal.spark`
and :mod:`shoal.ray`. This module has the passes that they run, for engines of your own, and the estimators on
an executor of ``concurrent.futures``.

For a given list of partitions, results are bit-identical for any number of workers, any order of completion,
after retries, and on any engine. They differ from those of a local fit in the last bits.

Examples
--------
>>> import numpy as np
>>> from concurrent.futures import ThreadPoolExecutor
>>> from shoal.distributed import KMeans
>>> X = np.random.default_rng(0).normal(size=(1000, 2))
>>> with ThreadPoolExecutor(2) as pool:
...     model = KMeans(5, random_state=0).fit([X[:700], X[700:]], executor=pool)
>>> model.cluster_centers_.shape, len(model.labels_)
((5, 2), 1000)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ._core import Step
from ._distributed.draws import CoresetPass, SeedPass
from ._distributed.executor import ExecutorEngine
from ._distributed.fitting import KMeansOnEngine, MiniBatchKMeansOnEngine
from ._distributed.partial import Partial
from ._distributed.passes import KMeansPass, LabelPass, MiniBatchPass
from ._distributed.seeding import drawn_coreset
from ._docs import documented
from .coreset import Coreset
from .typing import Metric, PathName, RandomState, Rows, Weights

__all__ = [
    "CoresetPass",
    "KMeans",
    "KMeansPass",
    "LabelPass",
    "MiniBatchKMeans",
    "MiniBatchPass",
    "Partial",
    "SeedPass",
    "lightweight_coreset",
]


class _OnExecutor(KMeansOnEngine):
    """Fits and predicts on an executor."""

    @documented
    def fit(
        self,
        X: Sequence[Rows],
        y: Any = None,
        sample_weight: Sequence[Weights] | None = None,
        *,
        executor: Executor | None = None,
        resume_from: PathName | None = None,
    ) -> Self:
        """Cluster the rows of all partitions.

        Parameters
        ----------
        X : sequence of rows, each of shape (n_samples_i, n_features)
            The partitions: anything that local estimators take as `X`. Paths are opened by the workers. A
            partition may have no rows. Partitions with column names must have the same names in one order.
        y : ignored
        sample_weight : sequence of array-like, or None
            The weights of each partition: finite, at least 0, not all 0.
        executor : concurrent.futures.Executor, optional
            Where passes run, one task per partition. Default: this thread. A process pool receives the
            partitions by pickle in every pass: pass paths instead of large arrays.
        {resume_from}

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError, TypeError, OSError
            As for :meth:`shoal.KMeans.fit`. Messages name the partition.
        RuntimeError
            If the executor breaks, for example because a process was killed. The estimator then holds the
            state after the last complete step.
        """
        engine = _engine(X, sample_weight, executor, self.n_jobs)
        return self._fit(engine, resume_from)

    def iter_fit(
        self,
        X: Sequence[Rows],
        sample_weight: Sequence[Weights] | None = None,
        *,
        executor: Executor | None = None,
        resume_from: PathName | None = None,
    ) -> Iterator[Step]:
        """Cluster the rows of all partitions, one step per ``next()``.

        Parameters and errors are those of :meth:`fit`, which exhausts this iterator.

        Yields
        ------
        shoal.Step
            Figures of the step; see :meth:`KMeansPass.commit`.
        """
        engine = _engine(X, sample_weight, executor, self.n_jobs)
        return self._iterate(engine, resume_from)

    def predict(self, X: Sequence[Rows], *, executor: Executor | None = None) -> npt.NDArray[np.int32]:
        """Label the rows of all partitions with their nearest centers.

        Parameters
        ----------
        X, executor
            As for :meth:`fit`.

        Returns
        -------
        ndarray of shape (n_samples,), int32
            The labels, in the order of the partitions; the lower index wins a tie.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        ValueError, TypeError, OSError, RuntimeError
            As :meth:`fit`.
        """
        labels: npt.NDArray[np.int32] = self._predict(_engine(X, None, executor, self.n_jobs))
        return labels


def _engine(
    X: Sequence[Rows],
    sample_weight: Sequence[Weights] | None,
    executor: Executor | None,
    n_jobs: int | None,
) -> ExecutorEngine:
    """Return the engine; `n_jobs` of None is 1 on an executor, which has workers of its own."""
    threads = 1 if executor is not None and n_jobs is None else n_jobs
    return ExecutorEngine(X, sample_weight, executor, threads)


@documented
class KMeans(_OnExecutor):
    """Exact k-means over partitions, on an executor of ``concurrent.futures``.

    Parameters
    ----------
    {n_clusters} {init_of_partitions} {sweeps_of_partitions} {tol_of_partitions} {metric} {random_state}
    {expert_of_partitions}
    n_jobs : int or None, default=None
        Threads per task. None: 1 on an executor, else as for :class:`shoal.KMeans`. Results do not depend on
        it.
    {verbose} {callbacks}

    Attributes
    ----------
    {fitted_to_partitions} {counts_}
    labels_ : ndarray of shape (n_samples,), int32
        Nearest center of every row, in the order of the partitions.

    See Also
    --------
    shoal.KMeans : On one machine; faster there, because it skips most distances.
    MiniBatchKMeans : A rough result from few passes.

    Notes
    -----
    A sweep costs ``2 n_samples n_clusters n_features`` floating-point operations, spread over the tasks. Each
    task returns ``n_clusters * (n_features + 2)`` numbers of 8 bytes. Workers keep nothing between sweeps.

    For a given list of partitions, results are bit-identical for any number of workers and any order of
    completion.

    References
    ----------
    S. P. Lloyd, "Least squares quantization in PCM", IEEE Transactions on Information Theory 28 (1982).

    Examples
    --------
    >>> import numpy as np
    >>> from shoal.distributed import KMeans
    >>> parts = [np.array([[1.0, 2], [1, 4], [10, 2]]), np.array([[10.0, 4], [10, 0], [1, 0]])]
    >>> model = KMeans(2, random_state=0).fit(parts)
    >>> sorted(model.cluster_centers_.tolist()), model.inertia_
    ([[1.0, 2.0], [10.0, 2.0]], 16.0)
    """


@documented
class MiniBatchKMeans(_OnExecutor, MiniBatchKMeansOnEngine):
    """Mini-batch k-means over partitions, on an executor of ``concurrent.futures``.

    Each step is one pass over all rows: every partition learns from its batches, starting with the common
    centers, and the states are merged; see :class:`MiniBatchPass`.

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
    labels_ : ndarray of shape (n_samples,), int32
        Nearest center of every row, in the order of the partitions.

    See Also
    --------
    shoal.MiniBatchKMeans : On one machine.

    References
    ----------
    D. Sculley, "Web-scale k-means clustering", WWW 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal.distributed import MiniBatchKMeans
    >>> X = np.random.default_rng(0).normal(size=(4000, 2)) + np.repeat([[0.0], [20.0]], 2000, axis=0)
    >>> model = MiniBatchKMeans(2, random_state=0).fit([X[::2], X[1::2]])
    >>> sorted(abs(model.cluster_centers_[:, 0]).round().tolist())
    [0.0, 20.0]
    """


@documented
def lightweight_coreset(
    X: Sequence[Rows],
    n_samples: int,
    *,
    sample_weight: Sequence[Weights] | None = None,
    metric: Metric = "euclidean",
    random_state: RandomState = None,
    n_jobs: int | None = None,
    executor: Executor | None = None,
) -> Coreset:
    """Draw a lightweight coreset of the rows of all partitions, in two passes.

    Fit any local estimator to it, for example a :class:`shoal.TruncatedGaussianMixture`.

    Parameters
    ----------
    X, sample_weight, executor
        As for :meth:`KMeans.fit`.
    {coreset_rows} {threads_of_task}

    Returns
    -------
    shoal.Coreset
        Points in the order of the rows; see :class:`CoresetPass`.

    Raises
    ------
    ValueError, TypeError, OSError, RuntimeError
        As :meth:`KMeans.fit`.

    See Also
    --------
    shoal.lightweight_coreset : On one machine.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> X = np.random.default_rng(0).normal(size=(10_000, 2)) + np.repeat([[0.0], [20.0]], 5000, axis=0)
    >>> coreset = shoal.distributed.lightweight_coreset([X[::2], X[1::2]], 1000, random_state=0)
    >>> mixture = shoal.TruncatedGaussianMixture(2, random_state=0).fit(coreset)
    >>> sorted(abs(mixture.means_[:, 0]).round().tolist())
    [0.0, 20.0]
    """
    engine = partial(_engine, X, sample_weight, executor, n_jobs)
    return drawn_coreset(engine, n_samples, metric, random_state, n_jobs)
