"""Names of the columns of data frames and tables."""

from __future__ import annotations

from typing import Any

from shoal.formats.stream import listed

#: Libraries whose frames name their columns.
FRAMES = {"cudf", "modin", "pandas", "polars", "pyarrow"}


def header_of(obj: Any) -> Any:
    """Give a frame without rows that has the columns of `obj`; None for what is no frame."""
    libraries = {cls.__module__.partition(".")[0] for cls in type(obj).__mro__}
    if not libraries & FRAMES or not hasattr(obj, "columns") or not hasattr(obj, "shape"):
        return None
    # As frames of pandas have it, else as those of polars and pyarrow.
    return obj.iloc[:0] if hasattr(obj, "iloc") else table_of(obj).slice(0, 0)


def table_of(obj: Any) -> Any:
    """Give a batch of pyarrow as a table, in place: scikit-learn takes the names of tables alone."""
    if type(obj).__name__ == "RecordBatch" and type(obj).__module__.startswith("pyarrow"):
        import pyarrow as pa

        return pa.Table.from_batches([obj])
    return obj


def names_of(header: Any) -> list[str] | None:
    """Give the names that scikit-learn finds in a frame; None where there are none, or they are no texts."""
    if header is None:
        return None
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import validate_data

    noted = BaseEstimator()
    validate_data(noted, header, skip_check_array=True)
    names = getattr(noted, "feature_names_in_", None)
    return None if names is None else list(names)


class SameNames:
    """The names of features in the first block of a stream; others that have names must have the same."""

    def __init__(self) -> None:
        self.header: Any = None
        self._names: list[str] | None = None
        self._begun = False

    def check(self, block: Any) -> None:
        """Refuse a block with other names than the first one."""
        header = header_of(block)
        if not self._begun:
            self.header, self._names, self._begun = header, names_of(header), True
        elif header is not None and self._names is not None:
            names = names_of(header)
            if names is not None and names != self._names:
                raise ValueError(f"its features are {listed(names)}, those of X are {listed(self._names)}")
