"""Feature names: the column names of data frames and tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.formats import libraries_of
from shoal.formats.stream import listed

#: Libraries whose frames name their columns.
FRAMES = {"cudf", "modin", "pandas", "polars", "pyarrow"}


def header_of(obj: Any) -> Any:
    """Return an empty frame with the columns of `obj`; None if `obj` is not a frame."""
    if libraries_of(obj).isdisjoint(FRAMES) or not hasattr(obj, "columns") or not hasattr(obj, "shape"):
        return None
    # pandas has `iloc`; polars and pyarrow have `slice`.
    return obj.iloc[:0] if hasattr(obj, "iloc") else wrap_batch(obj).slice(0, 0)


def wrap_batch(obj: Any) -> Any:
    """Wrap a record batch of pyarrow in a table: scikit-learn reads names of tables only."""
    if type(obj).__name__ == "RecordBatch" and type(obj).__module__.startswith("pyarrow"):
        import pyarrow as pa

        return pa.Table.from_batches([obj])
    return obj


def find_names(header: Any) -> list[str] | None:
    """Return the feature names that scikit-learn finds in a frame; None if they are not strings."""
    if header is None:
        return None
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import validate_data

    noted = BaseEstimator()
    validate_data(noted, header, skip_check_array=True)
    names = getattr(noted, "feature_names_in_", None)
    return None if names is None else list(names)


def names_of(estimator: Any) -> list[str] | None:
    """Return the feature names of a fitted estimator; None if the features have no names."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else list(map(str, names))


def refuse_other_columns(frame: Any, cause: Exception | None = None) -> None:
    """Raise `ValueError` if columns of a frame do not convert to numbers; the error names them."""
    if header_of(frame) is None:
        return
    others: list[str] = []
    names = getattr(frame, "column_names", None) or list(frame.columns)
    for i, name in enumerate(names):
        # pyarrow raises for a name that two columns have.
        by_position = hasattr(frame, "column_names")
        column = frame.iloc[:, i] if hasattr(frame, "iloc") else frame[i if by_position else name]
        values = np.asarray(column)
        try:
            values.astype(np.float64)
        except (TypeError, ValueError):
            others.append(str(name))
        else:
            # NumPy converts dates and times, but not together with numbers.
            if values.dtype.kind in "mM":
                others.append(str(name))
    if others:
        raise ValueError(
            f"X must hold columns of numbers, got other values in {listed(others)}. Choose columns of "
            "numbers, or one column of vectors, with shoal.open(X, columns=[...])."
        ) from cause


def refuse_other_names(names: list[str], header: Any) -> None:
    """Raise `ValueError` as scikit-learn does if a frame has other feature names than `names`."""
    if find_names(header) is None:
        return
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import validate_data

    fitted: Any = BaseEstimator()
    fitted.feature_names_in_, fitted.n_features_in_ = np.array(names, dtype=object), len(names)
    validate_data(fitted, header, reset=False, skip_check_array=True)


class SameNames:
    """Checks that all named blocks of a stream have the feature names of the first block."""

    def __init__(self) -> None:
        self.header: Any = None
        self._names: list[str] | None = None
        self._begun = False

    def check(self, block: Any) -> None:
        """Raise `ValueError` if a block has other names than the first one."""
        header = header_of(block)
        if not self._begun:
            self.header, self._names, self._begun = header, find_names(header), True
        elif header is not None and self._names is not None:
            names = find_names(header)
            if names is not None and names != self._names:
                raise ValueError(f"its features are {listed(names)}, those of X are {listed(self._names)}")
