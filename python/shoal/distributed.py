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
from ._distributed.estimators import KMeansOnEngine, MiniBatchKMeansOnEngine
from ._distributed.executor import ExecutorEngine
from ._distributed.partial import Partial
from ._distributed.passes import KMeansPass, LabelPass, MiniBatchPass
from ._distributed.seeding import drawn_coreset
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


class _OnExecutor:
    """Fits and predicts on an executor."""

    _fit: Any
    _iterate: Any
    _predict: Any
    n_jobs: Any

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
        resume_from : path, optional
            A checkpoint that :class:`shoal.callbacks.Checkpoint` wrote in a fit with the same parameters,
            to the same partitions. The result is bit-identical to that of a fit without interruption.

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
        engine = ExecutorEngine(X, sample_weight, executor, _threads(self.n_jobs, executor))
        fitted: Self = self._fit(engine, resume_from)
        return fitted

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
        engine = ExecutorEngine(X, sample_weight, executor, _threads(self.n_jobs, executor))
        steps: Iterator[Step] = self._iterate(engine, resume_from)
        return steps

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
        labels: npt.NDArray[np.int32] = self._predict(
            ExecutorEngine(X, None, executor, _threads(self.n_jobs, executor))
        )
        return labels


def _threads(n_jobs: Any, executor: Executor | None) -> int | None:
    """Return the threads per task: one on an executor, which has workers of its own."""
    return 1 if executor is not None and n_jobs is None else n_jobs


class KMeans(_OnExecutor, KMeansOnEngine):
    """Exact k-means over partitions, on an executor of ``concurrent.futures``.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters, at least 1 and at most the number of rows.
    init : {"k-means++", "afk-mc2", "k-means||"} or array-like, default="k-means++"
        How to choose the first centers.

        - ``"k-means++"``: greedy k-means++ among the rows of a coreset, which takes two passes.
        - ``"afk-mc2"``: AFK-MC2 among the same rows, for thousands of clusters.
        - ``"k-means||"``: :class:`SeedPass`, among all rows: about ``n_rounds + 2`` passes, which take the
          time of about 30 sweeps.
        - An array of shape (n_clusters, n_features).
    max_iter : int, default=300
        Maximum number of sweeps, at least 1.
    tol : float, default=1e-4
        The fit has converged when the squared length of the center shift is at most `tol` times the mean
        variance of the features (weighted, if the rows have weights), or when no center moves.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"`` is spherical k-means, as for :class:`shoal.KMeans`.
    random_state : int, RandomState, Generator or None, default=None
        An int makes results repeatable.
    Expert parameters
        The parameters below are needed less often.
    oversampling_factor, n_rounds : float, int
        As for :class:`SeedPass`.
    coreset_size : int or None, default=None
        Rows of the coreset that ``init="k-means++"`` and ``"afk-mc2"`` choose from, at least `n_clusters`.
        None: 20 per cluster, at least 10,000.
    compute_labels : bool, default=True
        Whether to label the rows at the end, in one more pass.
    n_jobs : int or None, default=None
        Threads per task. None: 1 on an executor, else as for :class:`shoal.KMeans`. Results do not depend on
        it.
    verbose : int, default=0
        1 shows a progress bar on stderr.
    callbacks : iterable of callables or None, default=None
        Called as ``cb(estimator, step)`` after every sweep. A true value ends the fit. See
        :mod:`shoal.callbacks`.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float32 or float64
        Centers, in the compute type of the rows, or of an array `init`.
    labels_ : ndarray of shape (n_samples,), int32
        Nearest center of every row, in the order of the partitions.
    inertia_ : float
        Weighted sum of squared distances of the rows to their centers.
    counts_ : ndarray of shape (n_clusters,), float64
        Weight of the rows in each cluster.
    n_iter_ : int
        Number of sweeps.
    history_ : structured ndarray of shape (n_iter_,)
        One row per sweep, as for :class:`shoal.KMeans`; ``n_changed`` is 0.
    stop_reason_ : str or None
        As for :class:`shoal.KMeans`.
    init_ : str
        The seeding, or ``"array"``.
    n_zero_rows_ : int
        Rows of zeros; 0 with ``metric="euclidean"``.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if the partitions have columns with string names.

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


class MiniBatchKMeans(_OnExecutor, MiniBatchKMeansOnEngine):
    """Mini-batch k-means over partitions, on an executor of ``concurrent.futures``.

    Each step is one pass over all rows: every partition learns from its batches, starting with the common
    centers, and the states are merged; see :class:`MiniBatchPass`.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    init : {"k-means++", "afk-mc2", "k-means||"} or array-like, default="k-means++"
        As for :class:`KMeans`.
    batch_size : int, default=1024
        Rows per batch of a partition.
    max_iter : int, default=10
        Maximum number of passes, at least 1.
    tol, metric, random_state
        As for :class:`KMeans`.
    Expert parameters
        The parameters below are needed less often.
    oversampling_factor, n_rounds, coreset_size, compute_labels, n_jobs, verbose, callbacks
        As for :class:`KMeans`.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, n_iter_, history_, stop_reason_, init_, n_features_in_,
    feature_names_in_
        As for :class:`KMeans`.
    counts_ : ndarray of shape (n_clusters,), float64
        Weight of the rows in each cluster after a complete fit; during the fit, of all rows ever assigned.

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
    engine = partial(ExecutorEngine, X, sample_weight, executor, _threads(n_jobs, executor))
    return drawn_coreset(engine, n_samples, metric, random_state, n_jobs)
