"""Clustering on many machines, on ``concurrent.futures`` or your own engine.

The engine that you have schedules tasks, retries and places data: see :mod:`shoal.dask`, :mod:`shoal.spark`
and :mod:`shoal.ray`. This module has the passes that they run, for engines of your own, and the estimators on
an executor of ``concurrent.futures``.

The same rows in the same order give bit-identical results for any partitions, any number of workers, any
order of completion, after retries, and on any engine. From given centers, centers, labels, counts and inertia
equal those of a local fit.

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

from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

from ._distributed.draws import CoresetPass, SeedPass
from ._distributed.engine import missing
from ._distributed.executor import ExecutorEngine
from ._distributed.fitting import KMeansOnEngine
from ._distributed.partial import Partial
from ._distributed.passes import KMeansPass, LabelPass
from ._distributed.seeding import drawn_coreset
from ._docs import documented
from ._fit.declared import estimator
from .coreset import Coreset
from .typing import Metric, RandomState, Rows, Weights

__all__ = [
    "CoresetPass",
    "KMeans",
    "KMeansPass",
    "LabelPass",
    "Partial",
    "SeedPass",
    "lightweight_coreset",
]


@estimator
class KMeans(KMeansOnEngine):
    """Exact k-means over partitions, on an executor of ``concurrent.futures``.

    `X` is a sequence of partitions: anything that local estimators take as `X`, each of shape
    (n_samples_i, n_features). Paths are opened by the workers, in every pass. `sample_weight` is a sequence
    of arrays, the weights of each partition.

    The option of all methods is ``executor=``, where passes run, a few tasks per worker. Default: this
    thread. A process pool receives the partitions by pickle in every pass: pass paths instead of large
    arrays.

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
        Nearest center of every row, in the order of the partitions. Methods return arrays of all rows, too.

    See Also
    --------
    shoal.KMeans : On one machine; faster there, because it sends no results.
    lightweight_coreset : Few weighted rows, to cluster on one machine.

    Notes
    -----
    A sweep costs ``2 n_samples n_clusters n_features`` floating-point operations, spread over the tasks, and
    later sweeps cost less: every process keeps labels and bounds of the partitions that it has worked on, in
    at most `memory` bytes. Each task returns ``n_clusters * (n_features + 2)`` numbers of 8 to 16 bytes.

    The same rows in the same order give bit-identical results for any partitions, any number of workers and
    any order of completion.

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

    _options = ("executor",)

    def _open(
        self, X: Any, sample_weight: Any, *, reset: bool, executor: Executor | None = None
    ) -> ExecutorEngine:
        return ExecutorEngine(X, sample_weight, executor, self.n_jobs)


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
    """Draw a lightweight coreset of the rows of all partitions.

    Fit any local estimator to it, for example a :class:`shoal.TruncatedGaussianMixture`.

    Parameters
    ----------
    X, sample_weight, executor
        As for :class:`KMeans`.
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
    engine = partial(ExecutorEngine, X, sample_weight, executor, n_jobs)
    return drawn_coreset(engine, n_samples, metric, random_state, n_jobs)


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
