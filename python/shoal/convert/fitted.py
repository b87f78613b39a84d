"""Checks of the models that can be converted."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from shoal._checks.params import shown
from shoal._files.staged import is_name
from shoal._fit.centers import CenterFitter
from shoal._fit.clusterer import CenterClusterer
from shoal._mixture.model import MixtureOfGaussians
from shoal._rows.features import names_of

#: Largest difference from 1 of the length of a center on the unit sphere.
OFF_SPHERE = 1e-3


def fitted(model: Any) -> CenterFitter:
    """Return `model` if it is an estimator with centers or means, else raise `TypeError`.

    Raises `NotFittedError` if it is not fitted.
    """
    if not isinstance(model, (CenterClusterer, MixtureOfGaussians)):
        if is_name(model):
            remedy = " Use shoal.load to read a model file."
        elif hasattr(model, "modes_") or hasattr(model, "responsibilities"):
            remedy = " Its labels depend on all rows of the fit, not only on the modes."
        else:
            remedy = ""
        raise TypeError(
            "model must be a fitted KMeans, MiniBatchKMeans, NestedMiniBatchKMeans, HierarchicalKMeans, "
            "BreathingKMeans, BalancedKMeans, VarianceReducedKMeans, BackwardEulerKMeans or "
            f"TruncatedGaussianMixture of shoal, got {shown(model)}.{remedy}"
        )
    check_is_fitted(model, "cluster_centers_")
    return model


def is_mixture(model: CenterFitter) -> bool:
    """Whether a model is a mixture of Gaussians."""
    return isinstance(model, MixtureOfGaussians)


def is_cosine(model: CenterFitter) -> bool:
    """Whether a model compares rows by angle."""
    return getattr(model, "metric", "euclidean") == "cosine"


def off_sphere(model: CenterFitter) -> list[int]:
    """Return the indices of the centers whose length is not 1."""
    lengths = np.linalg.norm(model.cluster_centers_.astype(np.float64), axis=1)
    return [int(index) for index in np.flatnonzero(np.abs(lengths - 1) > OFF_SPHERE)]


def copy_feature_names(made: Any, given: Any) -> None:
    """Set `feature_names_in_`, if the features of a model have names."""
    names = names_of(given)
    if names is not None:
        made.feature_names_in_ = np.array(names, dtype=object)
