"""Clones estimators; callbacks that cannot be copied are shared."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from .bases import BaseEstimator

E = TypeVar("E", bound=BaseEstimator)


def clone_estimator(estimator: E) -> E:
    """Return an unfitted estimator with the same parameters, and copies of the callbacks."""
    bare = object.__new__(type(estimator))
    bare.__dict__.update(vars(estimator), callbacks=None)
    made: E = BaseEstimator.__sklearn_clone__(bare)
    vars(made)["callbacks"] = copy_callbacks(vars(estimator)["callbacks"])
    return made


def copy_callbacks(callbacks: Any) -> Any:
    """Copy callbacks; return those that cannot be copied unchanged."""

    def copied(thing: Any) -> Any:
        try:
            return copy.deepcopy(thing)
        except Exception:  # noqa: BLE001 - code of the user may raise anything
            return thing

    if type(callbacks) in (list, tuple):
        return type(callbacks)(map(copied, callbacks))
    return copied(callbacks)
