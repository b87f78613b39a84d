"""The base of the estimators that label rows with the nearest of their centers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from shoal import _core
from shoal._common import params as _params
from shoal._rows.streams import refuse_once
from shoal.typing import PathName, Rows, Weights

from .centers import CenterFitter
from .results import label_into


class CenterClusterer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, CenterFitter):
    """Base of the estimators that end in the centers of clusters."""

    # The one of ClusterMixin would come first.
    fit_predict = CenterFitter.fit_predict

    def fit_transform(self, X: Rows, y: Any = None, sample_weight: Weights = None) -> npt.NDArray[Any]:
        """Cluster the rows of X and give their distances to the centers.

        Parameters
        ----------
        X, y, sample_weight
            As for :meth:`fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_clusters)
            As :meth:`transform`.
        """
        refuse_once(X, f"{type(self).__name__}.fit_transform")
        return self.fit(X, sample_weight=sample_weight)._distances(X)

    def predict(
        self,
        X: Rows,
        out: npt.NDArray[np.int32] | PathName | None = None,
        distances: npt.NDArray[np.float64] | PathName | None = None,
    ) -> npt.NDArray[np.int32]:
        """Label rows with their nearest centers.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`fit`, an iterator too; computed in the type of the centers.
        out : ndarray of shape (n_samples,), int32, or path, optional
            Where the labels go: an array, or a file that ends in ``.npy``, ``.csv`` (with the column
            ``label``), ``.txt`` (a label in every line) or ``.parquet`` (with the column ``label``; extra
            ``arrow``). The file appears whole or not at all and is written block by block, so that the
            labels of any number of rows take no memory.
        distances : ndarray of shape (n_samples,), float64, or path, optional
            Where the Euclidean distance of every row to its center goes, likewise (the column is
            ``distance``); with ``metric="cosine"`` that of the normalised row.

        Returns
        -------
        ndarray of shape (n_samples,), int32
            The nearest center of every row; the lower index wins a tie. This is `out` where that is an array,
            and a read-only memory map where it is a path: of the ``.npy`` file, or of a nameless copy beside
            a file of another format.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        ValueError, TypeError, OSError
            As :meth:`fit`, and for another number of features; for an array of another type or length, and a
            file of another suffix or that cannot be written, before a row is read where that can be told.
            What an array holds after an error is undefined.
        MemoryError
            When the result is larger than memory.
        """
        if out is not None or distances is not None:
            check_is_fitted(self, "cluster_centers_")
            return label_into(self, X, out, distances)
        source = self._fitted_rows(X)
        return _core.predict(
            source, self.cluster_centers_, self.metric, _params.threads(self.n_jobs, tell=False)
        )

    def transform(self, X: Rows) -> npt.NDArray[Any]:
        """Return the distances of rows to all centers.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`predict`.

        Returns
        -------
        ndarray of shape (n_samples, n_clusters), of the type of the centers
            Euclidean distances (not squared); with ``metric="cosine"`` those of the normalised rows. This is
            ``n * k`` values.

        Raises
        ------
        ValueError, TypeError, OSError, MemoryError
            As :meth:`predict`.
        """
        return self._distances(X)

    def _distances(self, X: Rows) -> npt.NDArray[Any]:
        source = self._fitted_rows(X)
        return _core.transform(
            source, self.cluster_centers_, self.metric, _params.threads(self.n_jobs, tell=False)
        )

    def score(self, X: Rows, y: Any = None, sample_weight: Weights = None) -> float:
        """Return minus the inertia of rows about the centers.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`predict`.
        y : ignored
        sample_weight : array-like of shape (n_samples,), float or None
            As for :meth:`fit`.

        Returns
        -------
        float
            Minus the weighted sum of squared distances of the rows to their nearest centers.

        Raises
        ------
        ValueError, TypeError, OSError
            As :meth:`predict`.
        """
        source = self._fitted_rows(X)
        weights = _params.weights(sample_weight, source.shape[0])
        threads = _params.threads(self.n_jobs, tell=False)
        return -_core.inertia(source, self.cluster_centers_, weights, None, self.metric, threads)

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def __sklearn_tags__(self) -> Any:
        """Say to scikit-learn what this estimator can do."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
