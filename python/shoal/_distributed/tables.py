"""What the estimators on Spark and Ray share: `fit`, `iter_fit` and `predict` on columns of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

from shoal._checks.warn import warn_of_name
from shoal._core import Step
from shoal._docs import documented
from shoal._rows.features import refuse_other_names
from shoal.formats.arrow import empty_table
from shoal.typing import PathName

from .engine import Engine
from .fitting import KMeansOnEngine


class OnTable(KMeansOnEngine):
    """Fits and predicts on columns of a table that an engine holds in partitions."""

    #: The class of the engine. It checks the columns of a table, and computes nothing yet.
    _engine: ClassVar[type[Any]]
    #: The columns of the features: by default, and of the last fit.
    _features: str | Sequence[str]

    @documented
    def fit(
        self,
        X: Any,
        features: str | Sequence[str] | None = None,
        sample_weight: str | None = None,
        *,
        output: str = "label",
        resume_from: PathName | None = None,
        weights: str | None = None,
    ) -> Self:
        """Cluster the rows of all partitions.

        Parameters
        ----------
        X : pyspark.sql.DataFrame or ray.data.Dataset
            The rows, in any number of partitions (blocks, in Ray). A partition may have no rows.
        features : str or sequence of str, optional
            A column of vectors of one length, or columns of numbers. Default: ``"features"`` in Spark,
            ``"data"`` in Ray, the usual names of columns of vectors.
        sample_weight : str, optional
            A column with the weight of every row: finite, at least 0, not all 0.
        output : str, default="label"
            Name of the column that `labels_` has beside those of `X`.
        {resume_from}
        weights : str, optional
            Deprecated name of `sample_weight`.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ImportError
            If the package of the engine is not installed.
        TypeError
            If `X` is of another type.
        ValueError
            If a parameter, a column or a value is invalid. Messages name the partition, and the row in it.
        RuntimeError
            If the workers are lost. The estimator then holds the state after the last complete step.
        """
        sample_weight = weights_column(sample_weight, weights)
        return self._fit(self._open(X, features, sample_weight, output), resume_from)

    def iter_fit(
        self,
        X: Any,
        features: str | Sequence[str] | None = None,
        sample_weight: str | None = None,
        *,
        output: str = "label",
        resume_from: PathName | None = None,
        weights: str | None = None,
    ) -> Iterator[Step]:
        """Cluster the rows of all partitions, one step per ``next()``.

        Parameters and errors are those of :meth:`fit`, which exhausts this iterator.

        Yields
        ------
        shoal.Step
            Figures of the step; see :meth:`shoal.distributed.KMeansPass.commit`.
        """
        sample_weight = weights_column(sample_weight, weights)
        return self._iterate(self._open(X, features, sample_weight, output), resume_from)

    def predict(self, X: Any, features: str | Sequence[str] | None = None, *, output: str = "label") -> Any:
        """Add a column with the label of every row, computed on the workers.

        Parameters
        ----------
        X : pyspark.sql.DataFrame or ray.data.Dataset
            The rows.
        features : str or sequence of str, optional
            The columns of the features. Default: those of the fit.
        output : str, default="label"
            Name of the new column, of 32-bit integers.

        Returns
        -------
        pyspark.sql.DataFrame or ray.data.Dataset
            `X` with the index of the nearest center of every row; the lower index wins a tie. The engine
            computes the labels when they are used, and reports invalid rows then.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        ImportError, TypeError
            As :meth:`fit`.
        ValueError
            If a column is missing, `X` has a column `output`, or a column holds no rows; if `features` has
            other names or another order than in :meth:`fit`.
        """
        columns = self._features if features is None else features
        engine = self._engine(X, columns, None, output, self.n_jobs)
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            named = [columns] if isinstance(columns, str) else columns
            refuse_other_names(names.tolist(), empty_table(named))
        return self._predict(engine)

    def _open(self, X: Any, features: str | Sequence[str] | None, weights: str | None, output: str) -> Engine:
        columns = type(self)._features if features is None else features
        labels = output if self.compute_labels else None
        engine: Engine = self._engine(X, columns, weights, labels, self.n_jobs)
        self._features = columns
        return engine


def weights_column(sample_weight: str | None, weights: str | None) -> str | None:
    """Return the column of the weights, which may be given by the earlier name of the parameter."""
    if weights is None:
        return sample_weight
    warn_of_name("weights", "sample_weight")
    return weights
