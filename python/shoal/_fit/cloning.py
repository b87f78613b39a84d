"""Clones of estimators, whose callbacks may not be copyable."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from sklearn.base import BaseEstimator

E = TypeVar("E", bound=BaseEstimator)


def cloned(estimator: E) -> E:
    """Make an unfitted estimator with the same parameters, and callbacks copied where they can be."""
    bare = object.__new__(type(estimator))
    bare.__dict__.update(vars(estimator), callbacks=None)
    made: E = BaseEstimator.__sklearn_clone__(bare)
    made.callbacks = copied_or_same(estimator.callbacks)
    return made


def copied_or_same(callbacks: Any) -> Any:
    """Copy callbacks; those that cannot be copied are the same ones."""

    def copied(thing: Any) -> Any:
        try:
            return copy.deepcopy(thing)
        except Exception:  # noqa: BLE001 - whatever code of the user raises
            return thing

    if type(callbacks) in (list, tuple):
        return type(callbacks)(map(copied, callbacks))
    return copied(callbacks)
