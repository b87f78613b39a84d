"""Clustering of Ray Datasets, on the workers.

Ray schedules the passes of :mod:`shoal.distributed`, one task per block, and runs lost tasks again. Needs Ray
Data (``pip install 'shoal-cluster[ray]'``), and shoal on all workers.

The same rows in the same order give bit-identical results for any blocks, any number of workers, after
retries, and on any engine. The blocks of a ``MaterializedDataset`` are used as they are. Those of other
Datasets are computed once per fit, in the order of the rows; a function in the Dataset that returns other
rows each time, or in another order, gives another result.

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

from ._distributed.engine import missing
from ._distributed.ray_engine import RayEngine
from ._distributed.seeding import drawn_coreset
from ._distributed.tables import OnTable, weights_column
from ._docs import documented
from ._fit.declared import estimator
from .coreset import Coreset
from .typing import Metric, RandomState

__all__ = ["KMeans", "lightweight_coreset"]


@estimator
class KMeans(OnTable, auto_wrap_output_keys=None):
    """Exact k-means over the blocks of a Ray Dataset.

    `X` is a ``ray.data.Dataset``, in any number of blocks. `sample_weight` is the name of a column. The
    options of all methods name columns, too:

    - ``features=``: a column of vectors of one length, or several columns of numbers. Default:
      ``"data"`` in a fit, then the columns of the fit.
    - ``output=``: the new column of the result: 32-bit labels, ``"label"`` by default, or the vectors of
      :meth:`transform`, ``"distances"`` by default. Results are `X` with this column, which Ray computes
      when it is used.
    - ``weights=``: deprecated name of `sample_weight`.

    Parameters
    ----------
    {n_clusters} {init_of_partitions} {sweeps_of_partitions} {tol_of_partitions} {metric} {random_state}
    {expert_of_partitions}
    n_jobs : int or None, default=None
        Cores and threads per task, at least 1. None: 1. Results do not depend on it.
    {verbose} {callbacks}

    Attributes
    ----------
    {fitted_to_partitions} {counts_}
    labels_ : ray.data.Dataset
        The rows of the fit with a column of labels, which Ray computes when it is used.

    See Also
    --------
    shoal.distributed.KMeans : The same on an executor of ``concurrent.futures``.

    Notes
    -----
    A sweep costs ``2 n_samples n_clusters n_features`` floating-point operations, spread over the tasks. Each
    task returns ``n_clusters * (n_features + 2)`` numbers of 8 to 16 bytes, merged in a tree of tasks.
    Tensors and lists are read in place from Ray's object store, which holds the rows of a fit and spills
    them to disk.

    Examples
    --------
    >>> model = KMeans(n_clusters=100, random_state=0).fit(ds, features=["x", "y"])  # doctest: +SKIP
    """

    _features = "data"
    _engine = RayEngine


@documented
def lightweight_coreset(
    X: Any,
    n_samples: int,
    features: str | Sequence[str] = "data",
    sample_weight: str | None = None,
    *,
    metric: Metric = "euclidean",
    random_state: RandomState = None,
    n_jobs: int | None = None,
    weights: str | None = None,
) -> Coreset:
    """Draw a lightweight coreset of the rows of a Dataset.

    {coreset_of_table}

    Examples
    --------
    >>> coreset = lightweight_coreset(ds, 100_000, random_state=0)  # doctest: +SKIP
    """
    engine = partial(RayEngine, X, features, weights_column(sample_weight, weights), None, n_jobs)
    return drawn_coreset(engine, n_samples, metric, random_state, n_jobs)


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
