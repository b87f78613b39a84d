"""Mixtures of scikit-learn from mixtures of shoal, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.mixture import GaussianMixture

from shoal._checks import params as _params
from shoal._fit.estimator import PHASES
from shoal._fit.history import STEP_DTYPE
from shoal._mixture.model import WHOLE
from shoal.mixture import TruncatedGaussianMixture
from shoal.neighbors import nearest
from shoal.typing import Seeding

from .fitted import copy_feature_names

#: Names of seedings in scikit-learn, with those of shoal.
SEEDINGS: dict[str, Seeding] = {"k-means++": "k-means++", "random_from_data": "random"}
#: Number of nearest components per component, the default of shoal.
N_NEIGHBORS = 5


def variances_of(source: Any) -> npt.NDArray[np.float64]:
    """Return the variances of a mixture, one row per component: of every feature, or a single one."""
    given = np.asarray(source.covariances_, dtype=np.float64)
    return given if given.ndim == 2 else np.broadcast_to(given.reshape(-1, 1), (len(source.means_), 1))


def whitened(source: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the axes of components with factors, and the logarithms of the determinants they add.

    The squared projections of ``x - mean`` onto the axes of a component are subtracted from the Mahalanobis
    distance by its variances alone.
    """
    scaled = source.loadings_ / source.covariances_[:, None, :]
    inner = scaled @ source.loadings_.swapaxes(1, 2) + np.eye(source.loadings_.shape[1])
    roots = np.linalg.cholesky(inner)
    added = 2 * np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
    return np.linalg.solve(roots, scaled), added


def shared_random_state(source: Any) -> Any:
    """Return the `random_state` of a model, or None if scikit-learn does not take it."""
    seed = source.random_state
    # It takes neither a Generator nor an integer beyond 32 bits.
    takes = isinstance(seed, np.random.RandomState) or (_params.is_whole(seed) and seed < 2**32)
    return seed if takes else None


def mixture_to_sklearn(source: Any) -> GaussianMixture:
    """Make a fitted mixture of scikit-learn."""
    means = source.means_.astype(np.float64)
    kind = {"tied_spherical": "spherical", "factor": "full"}.get(
        source.covariance_type, source.covariance_type
    )
    if kind == "spherical":
        covariances = np.array(variances_of(source)[:, 0])
    else:
        covariances = np.array(source.covariances_)
    if source.covariance_type == "factor":
        covariances = source.loadings_.swapaxes(1, 2) @ source.loadings_ + covariances[:, None] * np.eye(
            means.shape[1]
        )
    made = GaussianMixture(
        len(means),
        covariance_type=kind,
        max_iter=source.max_iter,
        tol=source.tol,
        n_init=source.n_init,
        reg_covar=source.reg_covar,
        warm_start=source.warm_start,
        random_state=shared_random_state(source),
    )
    made.weights_, made.means_, made.covariances_ = source.weights_.copy(), means, covariances
    if kind in WHOLE:
        made.precisions_cholesky_ = np.linalg.inv(np.linalg.cholesky(covariances)).swapaxes(-1, -2)
        made.precisions_ = made.precisions_cholesky_ @ made.precisions_cholesky_.swapaxes(-1, -2)
    else:
        made.precisions_ = 1 / covariances
        made.precisions_cholesky_ = np.sqrt(made.precisions_)
    made.converged_, made.n_iter_ = source.converged_, source.n_iter_
    made.lower_bound_, made.lower_bounds_ = source.lower_bound_, source.lower_bounds_.tolist()
    made.n_features_in_ = means.shape[1]
    copy_feature_names(made, source)
    return made


def mixture_of_sklearn(given: Any) -> TruncatedGaussianMixture:
    """Make the estimator from a mixture of scikit-learn."""
    k = len(given.means_)
    n_neighbors = min(N_NEIGHBORS, k)
    made = TruncatedGaussianMixture(
        k,
        n_active=k,
        n_neighbors=n_neighbors,
        covariance_type=given.covariance_type,
        init=SEEDINGS.get(given.init_params, "afk-mc2"),
        means_init=given.means_init,
        weights_init=given.weights_init,
        precisions_init=given.precisions_init,
        reg_covar=given.reg_covar,
        warm_start=given.warm_start,
        n_init=given.n_init,
        # scikit-learn's rule.
        stopping="per-weight",
        max_iter=given.max_iter,
        tol=given.tol,
        random_state=given.random_state,
        verbose=given.verbose,
    )
    made._check()
    made._forget()
    means = np.array(given.means_, order="C")
    shape = (k, int(given.n_features_in_))
    made.cluster_centers_ = _params.centers("means_", means, means.dtype, shape)
    made.n_features_in_ = shape[1]
    copy_feature_names(made, given)
    weights = np.array(given.weights_, dtype=np.float64)
    variances = np.array(given.covariances_, dtype=np.float64)
    if given.covariance_type in WHOLE:
        # Those of float32 rows are symmetric up to large rounding errors.
        variances = (variances + variances.swapaxes(-1, -2)) / 2
    variances = variances.ravel()
    made._take(variances, weights / weights.sum(), neighbors_of(means, n_neighbors))
    # Raises for variances and weights that no mixture has.
    made._mixture("neighbors")
    made.counts_ = made.weights_
    made.n_iter_ = int(given.n_iter_)
    made.n_zero_rows_ = 0
    bounds = getattr(given, "lower_bounds_", [])
    if len(bounds) != made.n_iter_:
        # scikit-learn before 1.7 keeps only the last bound.
        bounds = [given.lower_bound_] * made.n_iter_
    made._bounds = np.array(bounds, dtype=np.float64)
    made.converged_ = bool(given.converged_)
    made.timings_ = dict.fromkeys(PHASES, 0.0)
    made.init_ = "array" if given.means_init is not None else str(made.init)
    made.coreset_ = None
    made._history = np.empty(0, STEP_DTYPE)
    return made


def neighbors_of(means: npt.NDArray[Any], n_neighbors: int) -> npt.NDArray[np.int32]:
    """Return the nearest means of every mean, itself first."""
    found = nearest(means, means, n_nearest=n_neighbors)[0].reshape(len(means), n_neighbors)
    for own, row in enumerate(found):
        # Among equal means a lower index comes first.
        others = row[row != own][: n_neighbors - 1]
        row[:] = [own, *others]
    return found
