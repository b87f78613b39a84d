"""What a fitted mixture of Gaussians says of rows: components, shares, densities, criteria, samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from . import _core
from ._common import params as _params
from ._core import Source
from ._fit.centers import CenterFitter
from ._fit.results import label_into

SEARCHES = ("exact", "neighbors")


class MixtureOfGaussians(DensityMixin, CenterFitter):
    """Base of the estimators that end in a mixture of Gaussians: all that its parameters are enough for."""

    covariances_: Any
    weights_: npt.NDArray[np.float64]
    neighbors_: npt.NDArray[np.int32]

    covariance_type: Any
    n_active: Any

    @property
    def means_(self) -> npt.NDArray[Any]:
        """Means of the components, an array of shape (n_components, n_features)."""
        if not hasattr(self, "cluster_centers_"):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute 'means_': it is not fitted yet"
            )
        return self.cluster_centers_

    def _mixture(self, search: str = "exact") -> _core.Mixture:
        """Give the compiled half of the model."""
        walks = _params.one_of("search", search, SEARCHES) == "neighbors"
        return _core.Mixture(
            self.cluster_centers_,
            np.atleast_1d(np.asarray(self.covariances_, dtype=np.float64)).ravel(),
            self.weights_,
            self.covariance_type,
            int(self.n_active),
            self.neighbors_ if walks else None,
        )

    def predict(
        self, X: Any, out: Any = None, distances: Any = None, *, search: str = "exact"
    ) -> npt.NDArray[np.int32]:
        """Label rows with their most likely components.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`fit`, an iterator too; computed in the type of the means.
        out : ndarray of shape (n_samples,), int32, or path, optional
            Where the labels go, as for :meth:`KMeans.predict`.
        distances : ndarray of shape (n_samples,), float64, or path, optional
            Where the Euclidean distances of rows to the means of their components go, likewise; with
            ``covariance_type="tied_spherical"`` only.
        search : {"exact", "neighbors"}, default="exact"
            ``"neighbors"`` looks only at some components, and at the neighbours of the nearest of these:
            faster for thousands of components, and not always right.

        Returns
        -------
        ndarray of shape (n_samples,), int32
            The component of the largest density at every row; the lower index wins a tie.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        ValueError, TypeError, OSError, MemoryError
            As :meth:`KMeans.predict`.
        """
        model = self._mixture_for(search)
        if out is None and distances is None:
            return model.predict(
                self._fitted_rows(X), search != "exact", _params.threads(self.n_jobs, tell=False)
            )
        if search != "exact":
            raise ValueError(f"search={search!r} gives labels in memory: leave out and distances away")
        if distances is not None and self.covariance_type != "tied_spherical":
            raise ValueError(
                "distances are those to the nearest mean, which is not that of the most likely component "
                f"with covariance_type={self.covariance_type!r}"
            )
        return label_into(self, X, out, distances)

    def _labelled(
        self, part: Source, first_row: int, with_distances: bool
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64] | None]:
        if with_distances:
            return super()._labelled(part, first_row, with_distances)
        return self._mixture().predict(part, False, _params.threads(self.n_jobs, tell=False), first_row), None

    def predict_proba(self, X: Any, dense: bool = False, *, search: str = "exact") -> Any:
        """Give the shares that components have in rows.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`predict`.
        dense : bool, default=False
            Whether to give an array, as :class:`sklearn.mixture.GaussianMixture` does. It takes ``8 *
            n_samples * n_components`` bytes, 8 GB for 1,000,000 rows and 1000 components; the sparse matrix
            takes at most ``12 * n_samples * n_active``.
        search : {"exact", "neighbors"}, default="exact"
            As for :meth:`predict`.

        Returns
        -------
        scipy.sparse.csr_array or ndarray of shape (n_samples, n_components), float64
            For every row at most `n_active` shares above 0, those of the components of the largest densities,
            which add up to 1.

        Raises
        ------
        ValueError, TypeError, OSError, MemoryError
            As :meth:`predict`.
        """
        from scipy.sparse import csr_array

        model, source = self._mixture_for(search), self._fitted_rows(X)
        ids, shares = model.shares(source, search != "exact", _params.threads(self.n_jobs, tell=False))
        rows, active = ids.shape
        starts = np.arange(rows + 1, dtype=np.int64) * active
        shape = (rows, len(self.cluster_centers_))
        found = csr_array((shares.ravel(), ids.ravel(), starts), shape=shape)
        if dense:
            return found.toarray()
        found.eliminate_zeros()
        found.sort_indices()
        return found

    def _mixture_for(self, search: str) -> _core.Mixture:
        check_is_fitted(self, "cluster_centers_")
        return self._mixture(search)

    def score_samples(self, X: Any) -> npt.NDArray[np.float64]:
        """Give the log density of every row.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`predict`.

        Returns
        -------
        ndarray of shape (n_samples,), float64
            The logarithm of the density, over all components.

        Raises
        ------
        ValueError, TypeError, OSError, MemoryError
            As :meth:`predict`.
        """
        model = self._mixture_for("exact")
        return model.log_densities(self._fitted_rows(X), _params.threads(self.n_jobs, tell=False))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Give the mean log density of rows.

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
            The mean of :meth:`score_samples` by weight.

        Raises
        ------
        ValueError, TypeError, OSError
            As :meth:`predict`.
        """
        total, weight = self._log_likelihood(X, sample_weight)
        return total / weight

    def _log_likelihood(self, X: Any, sample_weight: Any) -> tuple[float, float]:
        model, source = self._mixture_for("exact"), self._fitted_rows(X)
        weights = _params.weights(sample_weight, source.shape[0])
        return model.log_likelihood(source, weights, _params.threads(self.n_jobs, tell=False))

    def bic(self, X: Any, sample_weight: Any = None) -> float:
        """Give the Bayesian information criterion; the lower the better.

        Parameters
        ----------
        X, sample_weight
            As for :meth:`score`.

        Returns
        -------
        float
            The number of free parameters times the logarithm of the weight of all rows, less twice their log
            likelihood.

        Raises
        ------
        ValueError, TypeError, OSError
            As :meth:`predict`.
        """
        total, weight = self._log_likelihood(X, sample_weight)
        return float(self._n_free() * math.log(weight) - 2 * total)

    def aic(self, X: Any, sample_weight: Any = None) -> float:
        """Give the Akaike information criterion; the lower the better.

        Parameters
        ----------
        X, sample_weight
            As for :meth:`score`.

        Returns
        -------
        float
            Twice the number of free parameters, less twice the log-likelihood of all rows.

        Raises
        ------
        ValueError, TypeError, OSError
            As :meth:`predict`.
        """
        return float(2 * self._n_free() - 2 * self._log_likelihood(X, sample_weight)[0])

    def _n_free(self) -> int:
        """Count the free parameters."""
        k, d = self.cluster_centers_.shape
        free = {"tied_spherical": k * d + 1, "spherical": k * d + 2 * k - 1, "diag": 2 * k * d + k - 1}
        return int(free[self.covariance_type])

    def sample(self, n_samples: int = 1) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
        """Draw rows from the mixture.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows, at least 1.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features), of the type of the means
            The rows, component by component.
        labels : ndarray of shape (n_samples,), int32
            The component of each.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        ValueError, TypeError
            For another number of rows.
        """
        check_is_fitted(self, "cluster_centers_")
        n = _params.whole("n_samples", n_samples, 1)
        rng = _params.random_state_of(_params.seed(self.random_state))
        counts = rng.multinomial(n, self.weights_ / self.weights_.sum())
        labels = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        # A column, or as many as there are features.
        variances = np.asarray(self.covariances_, dtype=np.float64).reshape(-1, 1)
        if self.covariance_type == "diag":
            variances = self.covariances_
        spread = np.sqrt(np.broadcast_to(variances, (len(counts), variances.shape[1]))[labels])
        rows = self.cluster_centers_[labels] + spread * rng.standard_normal((n, self.n_features_in_))
        return rows.astype(self.cluster_centers_.dtype), labels
