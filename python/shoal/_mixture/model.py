"""A fitted mixture of Gaussians: labels, responsibilities, densities, criteria and samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from shoal import _core
from shoal._checks import params as _params
from shoal._core import Source
from shoal._fit.bases import DensityMixin
from shoal._fit.centers import CenterFitter
from shoal._fit.results import label_into
from shoal._rows.sparse import csr_of_equal_rows
from shoal._rows.zeros import SeenBy
from shoal.typing import Metric, PathName, Rows, Search, Weights

#: Types with covariances between features.
WHOLE = ("tied", "full")


def covariance_shape(covariance_type: str, k: int, d: int) -> tuple[int, ...]:
    """Return the shape of `covariances_` of `k` components in `d` features."""
    shapes: dict[str, tuple[int, ...]] = {
        "tied_spherical": (),
        "spherical": (k,),
        "tied": (d, d),
        "full": (k, d, d),
    }
    return shapes.get(covariance_type, (k, d))


class MixtureOfGaussians(DensityMixin, CenterFitter):
    """Base of the Gaussian mixtures: everything that needs only the fitted parameters."""

    covariances_: Any
    loadings_: npt.NDArray[np.float64] | None
    weights_: npt.NDArray[np.float64]
    neighbors_: npt.NDArray[np.int32]

    covariance_type: Any
    n_active: Any

    @property
    def _metric_of_centers(self) -> Metric:
        # Means lie inside the unit sphere.
        return "euclidean"

    @property
    def means_(self) -> npt.NDArray[Any]:
        """Means of the components, an array of shape (n_components, n_features)."""
        if not hasattr(self, "cluster_centers_"):
            raise _params.missing_attribute(self, "means_")
        return self.cluster_centers_

    @property
    def precisions_(self) -> Any:
        """Inverses of the covariances: a float or an array in the shape of `covariances_`.

        With ``covariance_type="factor"`` an array of shape (n_components, n_features, n_features).
        """
        check_is_fitted(self, "cluster_centers_")
        if self.covariance_type in WHOLE:
            # Positive definite also for a covariance that is nearly singular.
            whiteners = np.linalg.inv(np.linalg.cholesky(self.covariances_))
            return whiteners.swapaxes(-1, -2) @ whiteners
        if self.loadings_ is None:
            return 1 / self.covariances_
        unit = np.eye(self.loadings_.shape[2])
        products = self.loadings_.swapaxes(1, 2) @ self.loadings_
        return np.linalg.inv(products + self.covariances_[:, None] * unit)

    @property
    def n_factors_(self) -> int | None:
        """Number of factors per component; None unless `covariance_type` is ``"factor"``."""
        check_is_fitted(self, "cluster_centers_")
        return None if self.loadings_ is None else int(self.loadings_.shape[1])

    def _mixture(self, search: Search = "exact") -> _core.Mixture:
        """Return the compiled model."""
        walks = _params.one_of("search", search, Search) == "neighbors"
        return _core.Mixture(
            self.cluster_centers_,
            np.atleast_1d(np.asarray(self.covariances_, dtype=np.float64)).ravel(),
            self.weights_,
            self.covariance_type,
            int(self.n_active),
            self.neighbors_ if walks else None,
            None if self.loadings_ is None else self.loadings_.ravel(),
        )

    def predict(
        self,
        X: Rows,
        out: npt.NDArray[np.int32] | PathName | None = None,
        distances: npt.NDArray[np.float64] | PathName | None = None,
        *,
        search: Search = "exact",
    ) -> npt.NDArray[np.int32]:
        """Label rows with their most likely components.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`fit`; an iterator is allowed too. Computed in the type of the means.
        out : ndarray of shape (n_samples,), int32, or path, optional
            Where to write the labels, as for :meth:`shoal.KMeans.predict`.
        distances : ndarray of shape (n_samples,), float64, or path, optional
            Where to write the Euclidean distance of every row to the mean of its component; only with
            ``covariance_type="tied_spherical"``.
        search : {"exact", "neighbors"}, default="exact"
            ``"neighbors"`` evaluates only some components, and the neighbors of the nearest of these. It is
            faster for thousands of components, but may miss the most likely component.

        Returns
        -------
        ndarray of shape (n_samples,), int32
            The component with the largest density at every row; the lower index wins a tie.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        ValueError, TypeError, OSError, MemoryError
            As :meth:`shoal.KMeans.predict`.
        """
        model = self._mixture_for(search)
        if out is None and distances is None:
            with SeenBy(self._fitted_rows(X), self.metric) as rows:
                return model.predict(rows, search != "exact", self._threads)
        if search != "exact":
            raise ValueError(
                f"search must be 'exact' with out or distances, got {search!r}. "
                "Omit out and distances to get the labels in memory."
            )
        if distances is not None:
            self._require_distances("distances")
        return label_into(self, X, out, distances)

    def _require_distances(self, argument: str) -> None:
        if self.covariance_type != "tied_spherical":
            raise ValueError(
                f"{argument} must be None with covariance_type={self.covariance_type!r}: the mean of the "
                "most likely component is not always the nearest one. Use covariance_type='tied_spherical'."
            )

    def _labeled(
        self, part: Source, first_row: int, with_distances: bool
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64] | None]:
        if with_distances:
            return super()._labeled(part, first_row, with_distances)
        return self._mixture().predict(part, False, self._threads, first_row), None

    def predict_proba(self, X: Rows, dense: bool = False, *, search: Search = "exact") -> Any:
        """Compute the responsibilities of the components for each row.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`predict`.
        dense : bool, default=False
            Whether to return an array, as :class:`sklearn.mixture.GaussianMixture` does. An array takes ``8 *
            n_samples * n_components`` bytes, 8 GB for 1,000,000 rows and 1000 components. The sparse matrix
            takes at most ``12 * n_samples * n_active`` bytes.
        search : {"exact", "neighbors"}, default="exact"
            As for :meth:`predict`.

        Returns
        -------
        scipy.sparse.csr_matrix or ndarray of shape (n_samples, n_components), float64
            Each row has at most `n_active` values above 0, for the components with the largest densities.
            They sum to 1.

        Raises
        ------
        ValueError, TypeError, OSError, MemoryError
            As :meth:`predict`.
        """
        model = self._mixture_for(search)
        with SeenBy(self._fitted_rows(X), self.metric) as rows:
            ids, shares = model.shares(rows, search != "exact", self._threads)
        found = csr_of_equal_rows(shares, ids, len(self.cluster_centers_))
        if dense:
            return found.toarray()
        found.eliminate_zeros()
        found.sort_indices()
        return found

    def _mixture_for(self, search: Search) -> _core.Mixture:
        check_is_fitted(self, "cluster_centers_")
        return self._mixture(search)

    def score_samples(self, X: Rows) -> npt.NDArray[np.float64]:
        """Compute the log density of every row.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`predict`.

        Returns
        -------
        ndarray of shape (n_samples,), float64
            Logarithm of the density, over all components.

        Raises
        ------
        ValueError, TypeError, OSError, MemoryError
            As :meth:`predict`.
        """
        model = self._mixture_for("exact")
        with SeenBy(self._fitted_rows(X), self.metric) as rows:
            return model.log_densities(rows, self._threads)

    def score(self, X: Rows, y: Any = None, sample_weight: Weights = None) -> float:
        """Compute the mean log density of rows.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`predict`.
        y : ignored
            Present for scikit-learn compatibility.
        sample_weight : array-like of shape (n_samples,), float or None
            As for :meth:`fit`.

        Returns
        -------
        float
            Weighted mean of :meth:`score_samples`.

        Raises
        ------
        ValueError, TypeError, OSError
            As :meth:`predict`.
        """
        total, weight = self._log_likelihood(X, sample_weight)
        return total / weight

    def _log_likelihood(self, X: Rows, sample_weight: Weights) -> tuple[float, float]:
        model = self._mixture_for("exact")
        source, weights = self._fitted_weighted(X, sample_weight)
        with SeenBy(source, self.metric) as rows:
            return model.log_likelihood(rows, weights, self._threads)

    def bic(self, X: Rows, sample_weight: Weights = None) -> float:
        """Compute the Bayesian information criterion; lower is better.

        Parameters
        ----------
        X, sample_weight
            As for :meth:`score`.

        Returns
        -------
        float
            The number of free parameters times the logarithm of the total weight, minus twice the
            log-likelihood.

        Raises
        ------
        ValueError, TypeError, OSError
            As :meth:`predict`.
        """
        total, weight = self._log_likelihood(X, sample_weight)
        return float(self._n_free() * math.log(weight) - 2 * total)

    def aic(self, X: Rows, sample_weight: Weights = None) -> float:
        """Compute the Akaike information criterion; lower is better.

        Parameters
        ----------
        X, sample_weight
            As for :meth:`score`.

        Returns
        -------
        float
            Twice the number of free parameters, minus twice the log-likelihood of all rows.

        Raises
        ------
        ValueError, TypeError, OSError
            As :meth:`predict`.
        """
        return float(2 * self._n_free() - 2 * self._log_likelihood(X, sample_weight)[0])

    def _n_free(self) -> int:
        """Return the number of free parameters."""
        k, d = self.cluster_centers_.shape
        free = {"tied_spherical": k * d + 1, "spherical": k * d + 2 * k - 1, "diag": 2 * k * d + k - 1}
        of_matrix = d * (d + 1) // 2
        free |= {"tied": k * d + of_matrix + k - 1, "full": k * d + k * of_matrix + k - 1}
        if self.loadings_ is None:
            return int(free[self.covariance_type])
        h = self.loadings_.shape[1]
        # Rotated factors give the same density.
        return int(free["diag"] + k * (d * h - h * (h - 1) // 2))

    def sample(self, n_samples: int = 1) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
        """Draw random rows from the mixture.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows, at least 1.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features), of the type of the means
            The rows, ordered by component.
        labels : ndarray of shape (n_samples,), int32
            The component of every row.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        ValueError, TypeError
            If `n_samples` is not a positive integer.
        """
        check_is_fitted(self, "cluster_centers_")
        n = _params.whole("n_samples", n_samples, 1)
        rng = _params.random_state_of(_params.seed(self.random_state))
        counts = rng.multinomial(n, self.weights_ / self.weights_.sum())
        labels = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        ends = counts.cumsum()
        if self.covariance_type in WHOLE:
            rows = rng.standard_normal((n, self.n_features_in_))
            roots = np.linalg.cholesky(self.covariances_)
            for c, (end, count) in enumerate(zip(ends, counts, strict=True)):
                root = roots if roots.ndim == 2 else roots[c]
                rows[end - count : end] = rows[end - count : end] @ root.T
            return (rows + self.cluster_centers_[labels]).astype(self.cluster_centers_.dtype), labels
        variances = np.asarray(self.covariances_, dtype=np.float64)
        if variances.ndim < 2:
            # One variance for all features.
            variances = variances.reshape(-1, 1)
        spread = np.sqrt(np.broadcast_to(variances, (len(counts), variances.shape[1]))[labels])
        rows = self.cluster_centers_[labels] + spread * rng.standard_normal((n, self.n_features_in_))
        if self.loadings_ is not None:
            factors = rng.standard_normal((n, self.loadings_.shape[1]))
            for loadings, end, count in zip(self.loadings_, ends, counts, strict=True):
                rows[end - count : end] += factors[end - count : end] @ loadings
        return rows.astype(self.cluster_centers_.dtype), labels
