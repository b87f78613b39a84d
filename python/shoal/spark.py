"""Clustering of Spark DataFrames, on the executors.

Spark schedules the passes of :mod:`shoal.distributed`, and runs lost tasks again. Needs pyspark 4.1 or later
(``pip install 'shoal-cluster[spark]'``), Java 17 or later, and shoal on all executors.

The same rows in the same order give bit-identical results for any partitions, any number of executors, after
retries, and on any engine. The rows are packed and persisted by the first pass, so the partitions stay as
they are during a fit. For the same result in another fit, Spark must give the rows in the same order, as it
does for files that are read with the same configuration. After a shuffle, sort by columns that identify a
row, or write the rows to files first.

Examples
--------
>>> from shoal.spark import KMeans
>>> model = KMeans(n_clusters=100, random_state=0).fit(df, features="vector")  # doctest: +SKIP
>>> model.predict(df).groupBy("label").count().show()  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ._distributed.engine import missing
from ._distributed.seeding import drawn_coreset
from ._distributed.spark_engine import SparkEngine
from ._distributed.tables import OnTable, weights_column
from ._docs import documented
from ._fit.declared import estimator
from .coreset import Coreset
from .formats.stream import required
from .typing import Metric, RandomState

__all__ = ["KMeans", "lightweight_coreset"]


@estimator
class KMeans(OnTable, auto_wrap_output_keys=None):
    """Exact k-means over the partitions of a Spark DataFrame.

    `X` is a ``pyspark.sql.DataFrame``, in any number of partitions. `sample_weight` is the name of a column.
    The options of all methods name columns, too:

    - ``features=``: a column of vectors of one length, or several columns of numbers. Default:
      ``"features"`` in a fit, then the columns of the fit.
    - ``output=``: the new column of the result: 32-bit labels, ``"label"`` by default, or the vectors of
      :meth:`transform`, ``"distances"`` by default. Results are `X` with this column, which Spark computes
      when it is used.
    - ``weights=``: deprecated name of `sample_weight`.

    Parameters
    ----------
    {n_clusters} {init_of_partitions} {sweeps_of_partitions} {tol_of_partitions} {metric} {random_state}
    {expert_of_partitions}
    n_jobs : int or None, default=None
        Threads per task. None: ``spark.task.cpus``. Results do not depend on it.
    {verbose} {callbacks}

    Attributes
    ----------
    {fitted_to_partitions} {counts_}
    labels_ : pyspark.sql.DataFrame
        The rows of the fit with a column of labels, which Spark computes when it is used.

    See Also
    --------
    shoal.distributed.KMeans : The same on an executor of ``concurrent.futures``.

    Notes
    -----
    A sweep costs ``2 n_samples n_clusters n_features`` floating-point operations, spread over the tasks. Each
    task returns ``n_clusters * (n_features + 2)`` numbers of 8 to 16 bytes. If these take more than 64 MB,
    they are merged on the executors before the driver collects them.

    The first pass packs the rows and persists them in memory or on disk until the fit ends, as many bytes as
    an array of them has. A task holds up to 10,000 records of 8 kB of its partition at a time, or the whole
    partition if the rows have weights. ML vectors and arrays of double compute in float64, arrays of float
    in float32. Sparse vectors are made dense, one block at a time.

    Examples
    --------
    >>> model = KMeans(n_clusters=100, random_state=0).fit(df, features=["x", "y"])  # doctest: +SKIP
    """

    _features = "features"
    _engine = SparkEngine

    def stage(self) -> Any:
        """Return a stage of a pipeline of Spark with these parameters.

        Returns
        -------
        pyspark.ml.Estimator
            With the methods `setFeaturesCol` (default: ``"features"``), `setPredictionCol` (default:
            ``"prediction"``) and `setWeightCol`. Its `fit` returns a ``pyspark.ml.Model``, whose `transform`
            adds the column of labels, and whose attribute `kmeans` is the fitted estimator. Save that one:
            ``kmeans.to_local().save(path)``.

        Examples
        --------
        >>> from pyspark.ml import Pipeline  # doctest: +SKIP
        >>> stage = KMeans(n_clusters=100, random_state=0).stage()  # doctest: +SKIP
        >>> model = Pipeline(stages=[assembler, stage]).fit(df)  # doctest: +SKIP
        """
        required("pyspark", "spark", "shoal.spark")
        from ._distributed.spark_stage import KMeansStage

        return KMeansStage(self)


@documented
def lightweight_coreset(
    X: Any,
    n_samples: int,
    features: str | Sequence[str] = "features",
    sample_weight: str | None = None,
    *,
    metric: Metric = "euclidean",
    random_state: RandomState = None,
    n_jobs: int | None = None,
    weights: str | None = None,
) -> Coreset:
    """Draw a lightweight coreset of the rows of a DataFrame.

    {coreset_of_table}

    Examples
    --------
    >>> coreset = lightweight_coreset(df, 100_000, random_state=0)  # doctest: +SKIP
    """
    engine = partial(SparkEngine, X, features, weights_column(sample_weight, weights), None, n_jobs)
    return drawn_coreset(engine, n_samples, metric, random_state, n_jobs)


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
