"""Writes fitted estimators to files."""

from __future__ import annotations

import os
from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from shoal import _core
from shoal._files.outputs import MODELS, check_suffix
from shoal.typing import PathName


def save(estimator: Any, path: PathName) -> None:
    """Write a fitted estimator to one safetensors file, by way of an atomic rename."""
    refuse_waiting(estimator)
    check_is_fitted(
        estimator,
        ["cluster_centers_", "modes_"],
        msg="this %(name)s is not fitted yet: it has no centers to save",
        all_or_any=any,
    )
    check_suffix("path", path, MODELS)
    arrays, meta = estimator._kept()
    _core.save_model(os.fsdecode(path), f"{estimator._kind}-model", arrays, meta)


def refuse_waiting(estimator: Any) -> None:
    """Raise `NotFittedError` if the rows of `partial_fit` wait for more: a model file holds no rows."""
    waiting = estimator.__dict__.get("_n_waiting", 0)
    if waiting:
        raise NotFittedError(
            f"this {type(estimator).__name__} has no centers to save yet: partial_fit has {waiting} of "
            f"{estimator.n_clusters} rows so far. Call it with more rows, or pickle the estimator, "
            "which keeps these rows."
        )
