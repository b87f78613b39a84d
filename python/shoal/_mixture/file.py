"""Gaussian mixtures as files."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from shoal._checks import params as _params
from shoal._fit.saved import Arrays, Texts, floats, need
from shoal.coreset import Coreset
from shoal.typing import Covariance

from .model import MixtureOfGaussians, covariance_shape


class StoredMixture(MixtureOfGaussians):
    """A fitted mixture that can be saved and loaded, with the bounds of its fit."""

    converged_: bool
    coreset_: Coreset | None

    n_components: Any
    _saved_attributes: ClassVar = {"converged_": "flag"}
    #: The `covariance_type` of the fitted parameters.
    _fitted_type: str | None = None
    #: The number of factors of the run, if `n_factors` is ``"auto"``.
    _chosen_factors: int | None = None
    #: The bound after every iteration of the best start.
    _bounds: npt.NDArray[np.float64] | None = None

    @property
    def lower_bounds_(self) -> npt.NDArray[np.float64]:
        """Lower bound of the mean log-likelihood by weight, after every iteration."""
        if self._bounds is None:
            raise _params.missing_attribute(self, "lower_bounds_")
        return self._bounds

    @property
    def lower_bound_(self) -> float:
        """Lower bound of the mean log-likelihood by weight, at the last search."""
        return float(self.lower_bounds_[-1])

    def _kept(self) -> tuple[Arrays, Texts]:
        arrays, texts = super()._kept()
        variances = np.atleast_1d(np.asarray(self.covariances_, dtype=np.float64)).ravel()
        arrays |= {"variances": variances, "weights": self.weights_, "neighbors": self.neighbors_}
        arrays["lower_bounds"] = self.lower_bounds_
        if self.loadings_ is not None:
            arrays["loadings"] = self.loadings_.ravel()
        return arrays, texts

    @classmethod
    def _restored(cls, arrays: Arrays, meta: Texts) -> Self:
        model = super()._restored(arrays, meta)
        _params.one_of("covariance_type", model.covariance_type, Covariance)
        k, d = model.cluster_centers_.shape
        need(model.n_components == k, f"it has {k} means, and n_components={model.n_components}")
        size = int(np.prod(covariance_shape(model.covariance_type, k, d)))
        variances = floats(arrays, "variances", (size,))
        weights = floats(arrays, "weights", (k,))
        neighbors = arrays.get("neighbors", np.empty(0))
        need(neighbors.dtype == np.int32 and neighbors.ndim == 2, "it lacks its neighbors")
        loadings = np.empty(0)
        if model.covariance_type == "factor":
            loadings = floats(arrays, "loadings", (None,))
            need(loadings.size > 0 and loadings.size % (k * d) == 0, "its loadings do not match its means")
        model._take(variances, weights, neighbors, loadings)
        # Raises if the arrays do not match each other.
        model._mixture("neighbors")
        model._bounds = floats(arrays, "lower_bounds", (model.n_iter_,))
        need(model.n_iter_ > 0, "it has made no iteration")
        model.coreset_ = None
        return model

    def _take(self, variances: Any, weights: Any, neighbors: Any, loadings: Any = None) -> None:
        """Set the parameters of the components, except the means."""
        self._fitted_type = self.covariance_type
        shape = covariance_shape(self.covariance_type, *self.cluster_centers_.shape)
        self.covariances_ = variances.reshape(shape) if shape else float(variances[0])
        self.loadings_ = None
        if self.covariance_type == "factor":
            k, d = self.cluster_centers_.shape
            self.loadings_ = loadings.reshape(k, -1, d)
        self.weights_, self.neighbors_ = weights, neighbors
