"""Checks the rows that users pass to estimators and functions."""

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
    """Give rows of any kind as a source, for functions; estimators look at feature names too."""
    source = opened(X)
    if source is not None:
        return source_of(source)
    return source_of(as_rows(X, partial(check_array, accept_sparse="csr")))


def source_of(rows: Any) -> Source:
    """Give the source behind rows that were checked: an array, a CSR matrix, or an open source."""
    return rows._source if isinstance(rows, DataSource) else source_of_values(rows)


def checked_rows(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """Give `X` as an array of numbers, a CSR matrix or an open source.

    The number and the names of its features are checked or, with `reset`, noted: by scikit-learn, also where
    it does not know the rows.
    """
    source = opened(X)
    if source is None:
        return as_rows(X, partial(validate_data, estimator, reset=reset, accept_sparse="csr"))
    known = source if source._header is None else source._header
    validate_data(estimator, known, reset=reset, skip_check_array=True)
    return source


@contextmanager
def features_unless_refused(estimator: BaseEstimator) -> Generator[None]:
    """Note the features of rows that a fit takes; where it refuses them, those of the last fit remain."""
    noted = ("n_features_in_", "feature_names_in_")
    before = {name: value for name, value in vars(estimator).items() if name in noted}
    try:
        yield
    except BaseException:
        for name in noted:
            estimator.__dict__.pop(name, None)
        estimator.__dict__.update(before)
        raise
