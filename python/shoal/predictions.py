"""Write labels beside columns of the input, and rows by cluster to folders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._checks import params as _params
from ._fit.estimator import Clusterer
from ._fit.results import LabeledPart, Taker, label_rows, refuse_mixed
from ._fit.tables import PartitionWriter, TableWriter
from ._rows.opening import list_names
from .typing import Memory, PathName, Rows

__all__ = ["write_partitions", "write_predictions"]


def write_predictions(
    model: Any,
    X: Rows,
    out: PathName,
    *,
    keep: Sequence[str] | str | None = None,
    distances: bool = False,
) -> int:
    """Label rows, and write the labels beside columns of the input to one table.

    Parameters
    ----------
    model : estimator
        A fitted estimator of shoal.
    X : rows of shape (n_samples, n_features)
        As for ``predict``. With `keep`, a table: one or many Parquet or Arrow files, a pyarrow table, a data
        frame, or a :class:`DataSource` of one. Use ``shoal.open(X, columns=[...])`` to choose the columns
        that hold the features.
    out : path
        The file, whose suffix gives the format: ``.parquet``, ``.arrow``, ``.feather`` or ``.csv``. It is
        written to a temporary name and renamed. An existing file is replaced.
    keep : list of str, optional
        Columns of X that are copied to the table, of any type, such as identifiers. Dictionary-encoded
        columns (categories) are decoded.
    distances : bool, default=False
        Whether to add the distance of every row to its center.

    Returns
    -------
    int
        The number of rows.

    Raises
    ------
    ValueError, TypeError, OSError
        As for ``predict``. Also if X has no column of a name in `keep`, if a kept column is named ``label``
        or ``distance``, or if a ``.csv`` file would have a column of lists. No file is left behind.
    ImportError
        If pyarrow is missing (extra ``arrow``).

    See Also
    --------
    write_partitions : Write the rows of every cluster to its own folder.
    KMeans.predict : Labels only, also as ``.npy`` and ``.txt``.

    Notes
    -----
    The table has the kept columns in the given order, then ``label`` (int32) and ``distance`` (float64). The
    kept columns are read separately from the features, at most 65,536 rows at a time, so memory is bounded.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.parquet as pq, shoal, tempfile
    >>> table = pa.table({"id": ["a", "b", "c"], "x": [0.0, 0.1, 9.0]})
    >>> rows = shoal.open(table, columns=["x"])
    >>> model = shoal.KMeans(2, init=[[0.0], [9.0]]).fit(rows)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     n = shoal.write_predictions(model, rows, f"{folder}/labels.parquet", keep=["id"])
    ...     pq.read_table(f"{folder}/labels.parquet").to_pydict()
    {'id': ['a', 'b', 'c'], 'label': [0, 0, 1]}
    """
    check_model(model, distances="distances" if distances else None)
    refuse_mixed(X, out, None)
    with TableWriter(out, kept_names(keep), distances=bool(distances)) as table:
        return label_all(model, X, [table]).n_rows


def write_partitions(
    model: Any,
    X: Rows,
    folder: PathName,
    *,
    keep: Sequence[str] | str | None = None,
    distances: bool = False,
    memory_limit: Memory = "1GB",
) -> int:
    """Label rows, and write the rows of every cluster to its own Parquet file.

    The file of cluster 17 is ``cluster=17/part-0.parquet`` in the folder. pyarrow, polars, DuckDB and Spark
    read the folder as one table with the column ``cluster`` (hive partitioning).

    Parameters
    ----------
    model : estimator
        A fitted estimator of shoal.
    X : rows of shape (n_samples, n_features)
        As for :func:`write_predictions`; must be dense.
    folder : path
        A folder that does not exist or is empty. It is written to a temporary name and renamed.
    keep : list of str, optional
        Columns of X that are written beside the features. Default: the column ``row``, the row number.
    distances : bool, default=False
        Whether to add the column ``distance``, the distance of every row to its center.
    memory_limit : int or str, default="1GB"
        Memory budget for collected rows, in bytes or as text.

    Returns
    -------
    int
        The number of rows.

    Raises
    ------
    ValueError, TypeError, OSError
        As :func:`write_predictions`. Also if the folder is not empty. Nothing is left behind.
    ImportError
        If pyarrow is missing (extra ``arrow``).

    See Also
    --------
    write_predictions : Write labels only.

    Notes
    -----
    The columns are the kept columns or ``row``, the features as one column of vectors or one column per named
    feature, and ``distance``. The features have the type of the source. The rows of a cluster keep their
    order. Empty clusters have no folder.

    Rows beyond the memory limit are sorted in runs by cluster, and written and read once more: the temporary
    files take as much space as the rows. At most two files are open at a time for any number of clusters.

    Examples
    --------
    >>> import numpy as np, pyarrow.dataset as ds, shoal, tempfile
    >>> X = np.array([[0.0], [9.0], [0.1]])
    >>> model = shoal.KMeans(2, init=[[0.0], [9.0]]).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     n = shoal.write_partitions(model, X, f"{folder}/rows")
    ...     ds.dataset(f"{folder}/rows", partitioning="hive").to_table(columns=["row", "cluster"]).to_pydict()
    {'row': [0, 2, 1], 'cluster': [0, 0, 1]}
    """
    memory = _params.memory("memory_limit", memory_limit)
    check_model(model, distances="distances" if distances else None)
    names, clusters = kept_names(keep), len(model._representatives)
    with PartitionWriter(folder, clusters, names, distances=bool(distances), memory=memory) as partitions:
        return label_all(model, X, [partitions]).n_rows


def kept_names(keep: Any) -> list[Any]:
    """Return `keep` as a list; a single string is one name."""
    return [] if keep is None else list_names(keep, "keep")


def check_model(model: Any, *, distances: str | None = None) -> None:
    """Raise unless `model` is a fitted estimator; `distances` names a parameter that asks for distances."""
    if not (issubclass(type(model), Clusterer) and hasattr(model, "_labeled")):
        raise TypeError(f"model must be a fitted estimator of shoal, got {type(model).__name__}")
    model._require_fitted()
    if distances is not None:
        model._require_distances(distances)


def label_all(model: Any, X: Rows, takers: Sequence[Taker]) -> Counted:
    """Label rows in one pass for all takers, and count the rows of every cluster."""
    counted = Counted(len(model._representatives))
    label_rows(model, X, [*takers, counted])
    return counted


class Counted(Taker):
    """Counts the rows of every cluster: `counts`."""

    def __init__(self, clusters: int) -> None:
        self.counts = np.zeros(clusters, dtype=np.int64)

    def take(self, part: LabeledPart) -> None:
        self.counts += np.bincount(part.labels, minlength=len(self.counts))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.counts.sum())
