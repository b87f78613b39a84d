"""Parameters of fitted mixtures as the reference takes them."""

import numpy as np
from gmm_reference import log_joint
from reference import sq_dists

KINDS = ("tied_spherical", "spherical", "diag", "tied", "full", "factor")


def variances_of(model):
    """Variances as the reference has them."""
    variances = np.asarray(model.covariances_)
    return variances[None] if model.covariance_type == "tied" else variances


def joint_of(model, X):
    means = model.means_
    return log_joint(sq_dists(X, means), X, means, variances_of(model), model.weights_, model.loadings_)
