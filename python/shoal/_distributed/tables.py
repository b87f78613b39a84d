"""What the estimators on Spark and Ray share: rows are columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from shoal._checks.params import shown
from shoal._checks.warn import warn_of_name
from shoal._rows.features import refuse_other_names
from shoal.formats.arrow import empty_table

from .engine import Engine
from .fitting import KMeansOnEngine
from .passes import RowPass


class OnTable(KMeansOnEngine, auto_wrap_output_keys=None):
    """Fits and predicts on columns of a table that an engine holds in partitions."""

    _options = ("features", "output", "weights")
    #: The class of the engine, called with the table, the columns of the features and of the weights, the new
    #: column of results (None if none is wanted) and `n_jobs`. It checks them, and computes nothing yet.
    _engine: ClassVar[type[Any]]
    #: The columns of the features: by default, and of the last fit.
    _features: str | Sequence[str]

    def _open(
        self,
        X: Any,
        sample_weight: str | None,
        *,
        reset: bool,
        features: str | Sequence[str] | None = None,
        output: str | None = None,
        weights: str | None = None,
    ) -> Engine:
        sample_weight = weights_column(sample_weight, weights)
        columns = (type(self) if reset else self)._features if features is None else features
        if reset:
            output = (output or "label") if self.compute_labels else None
        engine: Engine = self._engine(X, columns, sample_weight, output, self.n_jobs)
        if reset:
            self._features = columns
        elif hasattr(self, "feature_names_in_"):
            named = [columns] if isinstance(columns, str) else columns
            refuse_other_names(self.feature_names_in_.tolist(), empty_table(named))
        return engine

    def _refuse(self, y: Any, options: dict[str, Any]) -> None:
        super()._refuse(y, options)
        if y is not None:
            raise TypeError(f"y must be None, got {shown(y)}. Name columns with features=.")

    def _over_rows(self, task: RowPass, X: Any, *, output: str | None = None, **options: Any) -> Any:
        column = task.column if output is None else output
        return super()._over_rows(task, X, output=column, **options)


def weights_column(sample_weight: str | None, weights: str | None) -> str | None:
    """Return the column of the weights, which may be given by the earlier name of the parameter."""
    if weights is None:
        return sample_weight
    warn_of_name("weights", "sample_weight")
    return weights
