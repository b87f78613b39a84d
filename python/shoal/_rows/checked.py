"""Checks `X` as scikit-learn does, and opens it as a source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from shoal._checks.marked import MarkedError, mark
from shoal._checks.params import RowWeights, shown, weights
from shoal._checks.warn import warn
from shoal._core import Source
from shoal._files.staged import is_name

from .arrays import array_source, as_rows, source_of_values
from .bfloat16 import is_bf16
from .coreset import Coreset
from .opening import open_rows
from .source import DataSource


def open_or_check(X: Any) -> Any:
    """Return the rows that a function takes as an open source, or as a checked array or CSR matrix.

    Estimators use `checked_rows`, which also checks feature names.
    """
    source = open_rows(X)
    return as_rows(X) if source is None else source


def as_source(X: Any) -> Source:
    """Return the rows that a function takes as a compiled source."""
    return source_of(open_or_check(X))


def as_weighted(X: Any, sample_weight: Any) -> tuple[Source, RowWeights]:
    """Return the rows that a function takes as a compiled source, and their weights."""
    return weighted(open_or_check(X), sample_weight)


def weighted(rows: Any, sample_weight: Any, *, may_be_0: bool = False) -> tuple[Source, RowWeights]:
    """Return the compiled source of checked rows and their weights: those of the source, or `sample_weight`.

    Raises `ValueError` if there are both. `may_be_0` allows that all weights are 0.
    """
    source, own = source_of(rows), own_weights(rows)
    if own is None:
        return source, weights(sample_weight, source.shape[0], may_be_0=may_be_0)
    if sample_weight is not None:
        raise ValueError(
            "sample_weight must be None for rows that have weights, such as a coreset, got "
            f"{shown(sample_weight)}. For other weights, pass coreset.points and sample_weight."
        )
    return source, weights(own, source.shape[0], may_be_0=may_be_0)


def refuse_weights_of_stream(sample_weight: Any) -> None:
    """Raise `ValueError` if weights are given for a stream, whose blocks are batches."""
    if sample_weight is not None:
        raise ValueError(
            "sample_weight must be None for a stream. Use partial_fit with each block and the weights of the "
            "block instead."
        )


def learn_blocks(rows: DataSource, blocks: Iterable[Any], learn: Callable[[Any, Any], object]) -> None:
    """Call `learn` with each block of `rows` and its weights, until it returns a true value."""
    first, own = 0, rows.sample_weight
    for block in blocks:
        try:
            if learn(block, None if own is None else own[first : first + len(block)]):
                return
        except ValueError as error:
            # The message counts rows from the beginning of the block.
            raise ValueError(f"block of X from row {first} on: {error}") from error
        first += len(block)


def own_weights(rows: Any) -> RowWeights:
    """Return the weights that rows carry, or None."""
    return rows.sample_weight if isinstance(rows, DataSource) else None


def carries_weights(X: Any) -> bool:
    """Whether X has weights of its own: a coreset, its file, or a source of one."""
    if is_name(X):
        X = open_rows(X)
    return isinstance(X, Coreset) or own_weights(X) is not None


def refuse_weights(X: Any, who: str) -> None:
    """Raise `ValueError` if X has weights: `who` would ignore them."""
    if carries_weights(X):
        problem = f"takes rows without weights, got {shown(X)}. To ignore the weights,"
        raise MarkedError(
            f"{mark(who)} {problem} use `key`='points'.",
            f"{who} {problem} pass coreset.points, or open the file with key='points'.",
        )


def warn_of_weights(X: Any, who: str) -> None:
    """Warn if X has weights: `who` ignores them."""
    if carries_weights(X):
        problem = f"ignores the weights of {shown(X)}."
        warn(
            f"{mark(who)} {problem} Use `key`='points' to silence this.",
            UserWarning,
            f"{who} {problem} Pass coreset.points to silence this.",
        )


def source_of(rows: Any) -> Source:
    """Return the compiled source of checked rows: an array, a CSR matrix or a `DataSource`."""
    return rows._source if isinstance(rows, DataSource) else source_of_values(rows)


def checked_rows(estimator: BaseEstimator, X: Any, *, reset: bool, least: int = 1) -> Any:
    """Return `X`, with at least so many rows, as an array of numbers, a CSR matrix or an open source.

    scikit-learn checks the number and names of the features, or stores them with `reset=True`.
    """
    source = open_rows(X)
    if source is None:
        rows = as_rows(
            X,
            partial(validate_data, estimator, reset=reset, accept_sparse="csr", ensure_min_samples=least),
        )
        # A source, because NumPy cannot compute with the array.
        return DataSource(array_source(rows)) if is_bf16(rows) else rows
    known = source if source._header is None else source._header
    validate_data(estimator, known, reset=reset, skip_check_array=True)
    return source
