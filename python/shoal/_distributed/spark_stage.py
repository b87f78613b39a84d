"""The stage of a pipeline of Spark: an `Estimator`, and the `Model` that it fits."""

from __future__ import annotations

from typing import Any, Self

from pyspark.ml import Estimator, Model
from pyspark.ml.param.shared import HasFeaturesCol, HasPredictionCol, HasWeightCol
from sklearn.base import clone


class Columns(HasFeaturesCol, HasPredictionCol):
    """The columns of a stage, and the estimator of shoal that reads them."""

    def __init__(self, kmeans: Any) -> None:
        super().__init__()
        self.kmeans = kmeans
        self._setDefault(featuresCol="features", predictionCol="prediction")

    def setFeaturesCol(self, value: str) -> Self:  # noqa: N802 - as in Spark
        """Set the column of vectors."""
        self._set(featuresCol=value)
        return self

    def setPredictionCol(self, value: str) -> Self:  # noqa: N802 - as in Spark
        """Set the new column of labels."""
        self._set(predictionCol=value)
        return self


class KMeansModel(Columns, Model):
    """The fitted stage: `transform` adds the column of labels. `kmeans` is the fitted estimator of shoal."""

    def _transform(self, dataset: Any) -> Any:
        columns = {"features": self.getFeaturesCol(), "output": self.getPredictionCol()}
        return self.kmeans.predict(dataset, **columns)


class KMeansStage(Columns, Estimator[KMeansModel], HasWeightCol):
    """The stage before the fit."""

    def setWeightCol(self, value: str) -> Self:  # noqa: N802 - as in Spark
        """Set the column of weights."""
        self._set(weightCol=value)
        return self

    def _fit(self, dataset: Any) -> KMeansModel:
        weights = self.getWeightCol() if self.isDefined("weightCol") else None
        # The model labels the rows that it is given.
        fitted = clone(self.kmeans).set_params(compute_labels=False)
        fitted.fit(dataset, sample_weight=weights, features=self.getFeaturesCol())
        model: KMeansModel = self._copyValues(KMeansModel(fitted))
        return model
