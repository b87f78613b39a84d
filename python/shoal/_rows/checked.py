"""Checks `X` as scikit-learn does, and opens it as a source."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from shoal._core import Source

from .arrays import as_rows, source_of_values
from .opening import opened
from .source import DataSource


def as_source(X: Any) -> Source:
    """Open the rows that a function takes; estimators use `checked_rows`, which checks feature names."""
    source = opened(X)
    if source is not None:
        return source_of(source)
    return source_of(as_rows(X, partial(check_array, accept_sparse="csr")))


def source_of(rows: Any) -> Source:
    """Return the compiled source of checked rows: an array, a CSR matrix or a `DataSource`."""
    return rows._source if isinstance(rows, DataSource) else source_of_values(rows)


def checked_rows(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """Return `X` as an array of numbers, a CSR matrix or an open source.

    scikit-learn checks the number and names of the features, or stores them with `reset=True`.
    """
    source = opened(X)
    if source is None:
        return as_rows(X, partial(validate_data, estimator, reset=reset, accept_sparse="csr"))
    known = source if source._header is None else source._header
    validate_data(estimator, known, reset=reset, skip_check_array=True)
    return source


@contextmanager
def features_unless_refused(estimator: BaseEstimator) -> Generator[None]:
    """Restore the features of the previous fit if the block raises."""
    noted = ("n_features_in_", "feature_names_in_")
    before = {name: value for name, value in vars(estimator).items() if name in noted}
    try:
        yield
    except BaseException:
        for name in noted:
            estimator.__dict__.pop(name, None)
        estimator.__dict__.update(before)
        raise
