"""A fitted Laplacian K-modes model: energy, labels and responsibilities of new rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn.utils.validation import check_is_fitted

from shoal import _core
from shoal._checks.params import RowWeights, missing_attribute
from shoal._core import Source
from shoal._fit.bases import ClusterMixin
from shoal._fit.estimator import Clusterer
from shoal._fit.results import label_into
from shoal._rows.checked import source_of
from shoal._rows.zeros import SeenBy
from shoal.typing import Metric, PathName, Rows


class FittedKModes(ClusterMixin, Clusterer):
    """Base of :class:`~shoal.LaplacianKModes`: everything that needs only the fitted attributes."""

    modes_: npt.NDArray[Any]
    mode_indices_: npt.NDArray[np.int64]
    responsibilities_: Any
    affinity_: Any
    bandwidth_: float
    normalize_: bool
    n_neighbors_: int
    energies_: npt.NDArray[np.float64]
    relaxed_energies_: list[npt.NDArray[np.float64]]
    collapsed_: bool
    shifted_: bool
    laplacian_weight_: float

    mode_update: Any
    n_neighbors: Any
    affinity: Any
    normalize: Any
    laplacian_weight: Any
    on_collapse: Any
    #: The rows of the fit, for predictions; None after unpickling a model fitted to a file.
    _fit_rows: Any

    @property
    def _representatives(self) -> npt.NDArray[Any]:
        return self.modes_

    @property
    def _metric_of_rows(self) -> Metric:
        return "cosine" if self.normalize_ else "euclidean"

    def _measure(self, source: Source, weights: RowWeights) -> tuple[npt.NDArray[np.int32], float]:
        raise AttributeError("LaplacianKModes has no inertia, and sets labels_ in every iteration")

    @property
    def inertia_(self) -> float:
        """Not available: modes are not means. See `energy_`."""
        raise AttributeError("'LaplacianKModes' object has no attribute 'inertia_'. Use energy_ instead.")

    @inertia_.setter
    def inertia_(self, inertia: float) -> None:
        raise AttributeError("'LaplacianKModes' object has no attribute 'inertia_'. Use energy_ instead.")

    @property
    def energy_(self) -> float:
        """The energy of `labels_` and `modes_`."""
        if "energies_" not in self.__dict__:
            raise missing_attribute(self, "energy_")
        return float(self.energies_[-1])

    def predict(self, X: Rows, out: npt.NDArray[np.int32] | PathName | None = None) -> npt.NDArray[np.int32]:
        """Label new rows by the modes and by their neighbors among the fitted rows.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`fit`; computed in the type of the modes.
        out : ndarray of shape (n_samples,), int32, or path, optional
            Where to write the labels, as for :meth:`shoal.KMeans.predict`.

        Returns
        -------
        ndarray of shape (n_samples,), int32
            The cluster with the highest responsibility; the lowest index among equals.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        ValueError, TypeError, OSError
            As :meth:`fit`, and for another number of features.
        """
        self._require_fitted()
        return label_into(self, X, out, None)

    def _labeled(
        self, part: Source, first_row: int, with_distances: bool
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64] | None]:
        return self._responsibilities_of(part).argmax(axis=1).astype(np.int32), None

    def responsibilities(self, X: Rows) -> npt.NDArray[Any]:
        """Compute the responsibilities of the clusters for new rows.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`predict`.

        Returns
        -------
        ndarray of shape (n_samples, n_clusters)
            ``softmax(k(x, modes) + laplacian_weight_ * sum of w times the responsibilities of the nearest
            n_neighbors_ rows of the fit)``. The weight `w` of a neighbor is 1 with ``affinity="knn"`` and the
            kernel of its distance with ``"gaussian"``. With ``"precomputed"`` it is the mean row sum of
            `affinity_` divided by `n_neighbors_`, so that neighbors pull new rows as much as rows of the fit.

        Raises
        ------
        ValueError, TypeError, OSError
            As :meth:`predict`.
        """
        self._require_fitted()
        with SeenBy(self._rows(X, reset=False), self._metric_of_rows) as rows:
            return self._responsibilities_of(rows)

    def _require_distances(self, argument: str) -> None:
        raise ValueError(f"{argument} must be None for {type(self).__name__}, whose modes are not centers")

    def _require_fitted(self) -> None:
        check_is_fitted(self, "modes_")
        if self._fit_rows is None:
            raise ValueError(
                "prediction needs the rows of the fit, which were in a file and are not part of the pickle. "
                "Use save and shoal.load instead of pickle, or fit again."
            )

    def _responsibilities_of(self, source: Source) -> npt.NDArray[Any]:
        z, n = self.responsibilities_, self.responsibilities_.shape[0]
        m = min(self.n_neighbors_, n)
        kept, clusters = z, np.empty(0, dtype=np.int32)
        if issparse(z):
            kept, clusters = z.data.reshape(n, -1), z.indices.astype(np.int32, copy=False)
        pull = None if self.affinity == "gaussian" else float(self.affinity_.data.sum()) / (n * m)
        return _core.kmodes_responsibilities(
            source,
            source_of(self._fit_rows),
            self.modes_,
            (kept, clusters),
            (m, pull, self.bandwidth_, self.laplacian_weight_),
            self.normalize_,
            self._threads,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.affinity == "precomputed"
        return tags
