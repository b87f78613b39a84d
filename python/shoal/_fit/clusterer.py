"""The base class of clusterers: `predict`, `transform` and `score`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shoal import _core
from shoal._rows.arrays import as_csr
from shoal._rows.streams import refuse_once
from shoal._rows.zeros import SeenBy
from shoal.typing import PathName, Rows, Weights

from .bases import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from .centers import CenterFitter
from .results import label_into, transform_into


class CenterClusterer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, CenterFitter):
    """Base class of the estimators whose clusters are given by centers."""

    # `ClusterMixin` comes first in the method resolution order.
    fit_predict = CenterFitter.fit_predict

    def fit_transform(self, X: Rows, y: Any = None, sample_weight: Weights = None) -> npt.NDArray[Any]:
        """Cluster the rows of X and return their distances to the centers.

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
        X = as_csr(X)
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
            As for :meth:`fit`, or an iterator. Computed in the type of the centers.
        out : ndarray of shape (n_samples,), int32, or path, optional
            Destination of the labels: an array, or a file with the suffix ``.npy``, ``.csv`` (column
            ``label``), ``.txt`` (one label per line), ``.parquet``, ``.arrow`` or ``.feather`` (column
            ``label``; these need the extra ``arrow``). The file is written block by block to a temporary name
            and renamed, so the labels need no memory.
        distances : ndarray of shape (n_samples,), float64, or path, optional
            Destination of the Euclidean distance of every row to its center, as for `out` (column
            ``distance``). With ``metric="cosine"``, the distance of the normalized row.

        Returns
        -------
        ndarray of shape (n_samples,), int32
            Index of the nearest center of every row. The lower index wins a tie. If `out` is an array, the
            result is `out`. If `out` is a path, the result is a read-only memory map of the ``.npy`` file, or
            of an anonymous temporary file for other formats.

        See Also
        --------
        shoal.write_predictions : Write labels beside columns of the input.
        shoal.write_partitions : Write the rows of every cluster to its own folder.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        ValueError, TypeError, OSError
            As for :meth:`fit`. Also if X has another number of features, if an array has another type or
            length, or if a file has another suffix or cannot be written. Outputs are checked before any row
            is read, where possible. After an error, the contents of an array are undefined.
        MemoryError
            If the result is larger than memory.
        """
        if out is not None or distances is not None:
            self._require_fitted()
            return label_into(self, X, out, distances)
        with SeenBy(self._fitted_rows(X), self.metric) as rows:
            return _core.predict(rows, self.cluster_centers_, self.metric, self._threads)

    def transform(self, X: Rows, out: npt.NDArray[Any] | PathName | None = None) -> npt.NDArray[Any]:
        """Compute the distances of rows to all centers.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`predict`.
        out : ndarray of shape (n_samples, n_clusters), of the type of the centers, or path, optional
            Destination of the distances: an array, or a file with the suffix ``.npy``, ``.parquet``,
            ``.arrow`` or ``.feather`` (a column of vectors named ``distances``; needs the extra ``arrow``).
            The file is written block by block, so the distances need no memory.

        Returns
        -------
        ndarray of shape (n_samples, n_clusters), of the type of the centers
            Euclidean distances (not squared), ``n_samples * n_clusters`` values. With ``metric="cosine"``,
            distances of the normalized rows. If `out` is an array or a path, the result is as for
            :meth:`predict`.

        Raises
        ------
        ValueError, TypeError, OSError, MemoryError
            As :meth:`predict`.
        """
        if out is not None:
            self._require_fitted()
            return transform_into(self, X, out)
        return self._distances(X)

    def _distances(self, X: Rows) -> npt.NDArray[Any]:
        with SeenBy(self._fitted_rows(X), self.metric) as rows:
            return _core.transform(rows, self.cluster_centers_, self.metric, self._threads)

    def score(self, X: Rows, y: Any = None, sample_weight: Weights = None) -> float:
        """Return the negative inertia of rows.

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
        source, weights = self._fitted_weighted(X, sample_weight)
        with SeenBy(source, self.metric) as rows:
            return -_core.inertia(rows, self.cluster_centers_, weights, None, self.metric, self._threads)

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def __sklearn_tags__(self) -> Any:
        """Return the tags of scikit-learn: `transform` keeps float32 and float64."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
