"""Rows and comparisons that the tests of stochastic backward Euler share."""

import numpy as np

#: The schedule of the paper except for its first step size, without polish.
PLAIN = {"step_decay": 1 / 1.01, "step_cap": None, "polish": False}


def same(one, other):
    """Whether two estimators have bit-identical state."""
    return (
        (one.cluster_centers_ == other.cluster_centers_).all()
        and (one.counts_ == other.counts_).all()
        and one.n_steps_ == other.n_steps_
        and one.n_iter_ == other.n_iter_
        and (one.step_sizes_ == other.step_sizes_).all()
    )


def close_to(dtype):
    return {"rtol": 1e-5, "atol": 1e-5} if dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-9}
