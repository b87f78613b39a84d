"""What an update of the cells of an inverted file changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from . import _core
from ._checks import params as _params
from ._checks.warn import warn
from ._core import Source
from ._fit.saved import Arrays, floats, need

__all__ = ["PartitionChange"]

#: Returns keys, ids of cells and values of the rows that are stored in some cells.
Fetch: TypeAlias = Callable[[npt.NDArray[np.int64]], tuple[Any, Any, Any]]

#: A new fit pays from this growth of the inertia per row on.
MOST_GROWTH = 1.1


@dataclass(frozen=True, repr=False, eq=False)
class PartitionChange:
    """What :meth:`shoal.HierarchicalKMeans.update` changed: write it to the database as one transaction.

    Attributes
    ----------
    labels : ndarray of shape (n_samples,), int64
        The id of the cell of each new row.
    new_ids : ndarray of int64
        Cells that did not exist before, ascending.
    split_ids : ndarray of int64
        Cells that were split and no longer exist, ascending. All of their rows are in `moved`.
    joined_ids : ndarray of int64
        Cells that had too few rows and no longer exist, ascending. All of their rows are in `moved`.
    moved : structured ndarray
        Stored rows that belong to another cell now: ``key`` (as `fetch` returned it), ``from_id`` and
        ``to_id``. ``moved.tolist()`` is a list of tuples.
    recentered_ids : ndarray of int64
        Cells that still exist, whose centers moved, ascending. All other centers are bit-equal.
    oversized_ids : ndarray of int64
        Cells above the limit that are left as they are, ascending: they cannot be divided, because most of
        their rows are identical, or there was no `fetch`.
    n_fetched : int
        Number of stored rows that `fetch` returned.
    """

    labels: npt.NDArray[np.int64]
    new_ids: npt.NDArray[np.int64]
    split_ids: npt.NDArray[np.int64]
    joined_ids: npt.NDArray[np.int64]
    moved: npt.NDArray[np.void]
    recentered_ids: npt.NDArray[np.int64]
    oversized_ids: npt.NDArray[np.int64]
    n_fetched: int

    def __repr__(self) -> str:
        """Show the counts."""
        counts = {
            "new rows": len(self.labels),
            "new cells": len(self.new_ids),
            "split": len(self.split_ids),
            "joined": len(self.joined_ids),
            "moved rows": len(self.moved),
            "fetched rows": self.n_fetched,
        }
        return f"PartitionChange({', '.join(f'{name}: {count}' for name, count in counts.items())})"


class Cells(NamedTuple):
    """The cells of an estimator, beside their centers and sizes."""

    ids: npt.NDArray[np.int64]
    shifts: npt.NDArray[np.float64]
    next_id: int
    target: int
    inertia: float
    inertia_at_fit: float

    @classmethod
    def of_fit(cls, model: Any) -> Cells:
        """Return the cells of a fit: their ids are its labels."""
        k, n, inertia = len(model.counts_), model.counts_.sum(), model.__dict__.get("_inertia")
        inertia = float("nan") if inertia is None else float(inertia)
        target = max(1, round(n / k))
        return cls(np.arange(k), np.zeros(model.cluster_centers_.shape), k, target, inertia, inertia / n)

    def arrays(self) -> Arrays:
        """Return the arrays of a file."""
        return {
            "cell_ids": self.ids,
            "cell_shifts": self.shifts,
            "cell_counts": np.array([self.next_id, self.target]),
            "cell_inertia": np.array([self.inertia, self.inertia_at_fit]),
        }

    @classmethod
    def of_arrays(cls, arrays: Arrays, shape: tuple[int, int]) -> Cells:
        """Return the cells of a file."""

        def whole(name: str, n: int) -> npt.NDArray[np.int64]:
            need(name in arrays, f"it lacks the array {name!r}")
            found = arrays[name]
            need(found.shape == (n,), f"its array {name!r} has shape {found.shape}")
            need(found.dtype == np.int64, f"its array {name!r} is of type {found.dtype}")
            need(bool((found >= 0).all()), f"its array {name!r} has negative numbers")
            return found

        ids, (next_id, target) = whole("cell_ids", shape[0]), whole("cell_counts", 2)
        need(bool((np.diff(ids) > 0).all() and ids[-1] < next_id), "its ids of cells do not ascend")
        need(bool(target > 0), "its target is 0 rows")
        need("cell_inertia" in arrays, "it lacks the array 'cell_inertia'")
        inertia = arrays["cell_inertia"]
        need(inertia.shape == (2,) and inertia.dtype == np.float64, "its array 'cell_inertia' is no pair")
        shifts = floats(arrays, "cell_shifts", shape)
        return cls(ids, shifts.astype(np.float64), int(next_id), int(target), *map(float, inertia))


class _Fetching:
    """Calls `fetch` of the user, checks what it returns, and collects the keys."""

    def __init__(self, fetch: Fetch, dtype: npt.DTypeLike, n_features: int) -> None:
        self._fetch = fetch
        self._dtype = dtype
        self._n_features = n_features
        self._keys: list[npt.NDArray[Any]] = []

    def __call__(self, ids: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        found = self._fetch(ids)
        if not isinstance(found, tuple) or len(found) != 3:
            raise _params.ParameterError(
                f"`fetch` must return a tuple (keys, cell_ids, rows), got {_params.shown(found)}"
            )
        keys, cells, rows = _keys_of(found[0]), *(_array_of(part) for part in found[1:])
        if keys.ndim != 1 or cells.shape != keys.shape:
            raise _params.ParameterError(
                "`fetch` must return 1-D keys and cell_ids of one length, got shapes "
                f"{keys.shape} and {cells.shape}"
            )
        if not len(keys) and not rows.size:
            return np.empty(0, np.int64), np.empty((0, self._n_features), self._dtype)
        if rows.dtype.kind not in "biuf":
            raise _params.ParameterError(f"`fetch` must return rows of real numbers, got {rows.dtype}")
        if rows.shape != (len(keys), self._n_features):
            raise _params.ParameterError(
                f"`fetch` must return rows of shape {(len(keys), self._n_features)}, got {rows.shape}"
            )
        if cells.dtype.kind not in "iu":
            raise _params.ParameterError(f"`fetch` must return cell_ids that are integers, got {cells.dtype}")
        if not np.isin(cells, ids).all():
            strange = cells[~np.isin(cells, ids)][0]
            raise _params.ParameterError(
                f"`fetch` must return rows of the cells that it was asked for, got cell {strange}"
            )
        self._keys.append(keys)
        return cells.astype(np.int64), np.ascontiguousarray(rows, dtype=self._dtype)

    def keys(self) -> npt.NDArray[Any]:
        """Return the keys of all fetched rows, which must differ."""
        if not self._keys:
            return np.empty(0, np.int64)
        same = len({keys.dtype for keys in self._keys}) == 1
        keys = np.concatenate([part if same else part.astype(object) for part in self._keys])
        if keys.dtype.kind in "iu":
            ordered = np.sort(keys)
            twice = bool((ordered[1:] == ordered[:-1]).any())
        else:
            twice = len(set(keys.tolist())) < len(keys)
        if twice:
            raise _params.ParameterError("`fetch` must return every row once, got a key twice")
        return keys


def _array_of(values: Any) -> npt.NDArray[Any]:
    """Return what `fetch` returned as an array."""
    try:
        return np.asarray(values)
    except ValueError as error:
        raise _params.ParameterError(f"`fetch` must return rows of one length: {error}") from error


def _keys_of(keys: Any) -> npt.NDArray[Any]:
    """Return keys as an array that holds each of them unchanged: NumPy cuts zeros off the end of bytes."""
    if isinstance(keys, np.ndarray):
        return keys
    listed = list(keys)
    if all(type(key) is int and -(2**63) <= key < 2**63 for key in listed):
        return np.array(listed, np.int64)
    out = np.empty(len(listed), object)
    out[:] = listed
    return out


def _moved(keys: npt.NDArray[Any], change: dict[str, Any]) -> npt.NDArray[np.void]:
    """Return the table of the rows that moved."""
    keys = keys[change["moved_rows"]]
    fields = np.dtype([("key", keys.dtype), ("from_id", np.int64), ("to_id", np.int64)])
    table = np.empty(len(keys), fields)
    table["key"], table["from_id"], table["to_id"] = keys, change["moved_from"], change["moved_to"]
    return table


def _warn(change: PartitionChange, cells: Cells, n: int, fetched: bool) -> None:
    """Warn of cells that should be split, and of a partition that should be fitted again."""
    if n_large := len(change.oversized_ids):
        why = "most of their rows are identical" if fetched else "`fetch` is None. Pass it in the next call"
        problem = (
            f"Cells with more than {2 * cells.target} rows that were not split: {n_large}, because {why}."
        )
        warn(problem, RuntimeWarning)
    per_row = cells.inertia / max(n, 1)
    growth = per_row / cells.inertia_at_fit if cells.inertia_at_fit > 0 else 1.0 if per_row == 0 else np.inf
    if growth > MOST_GROWTH:
        warn(
            f"The inertia per row is {growth:.2f} times that of the fit. Fit the estimator again for a "
            "better partition.",
            RuntimeWarning,
        )


def update(
    model: Any, cells: Cells, source: Source, fetch: Fetch | None, target: int | None, threads: int | None
) -> tuple[PartitionChange, Cells, npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Take in the rows of `source`; return the change, the cells, their centers and their sizes."""
    if not (fetch is None or callable(fetch)):
        raise _params.ParameterError(f"`fetch` must be a callable or None, got {_params.shown(fetch)}")
    if target is not None:
        cells = cells._replace(target=_params.whole("target_size", target, 1, most=2**40))
    counts = model.counts_
    n_rows = model.__dict__.get("_n_rows")
    if (counts != np.rint(counts)).any() or (n_rows is not None and counts.sum() != n_rows):
        raise ValueError(
            "update counts rows, but the estimator was fitted with sample weights: fit it without "
            "sample_weight"
        )
    centers = model.cluster_centers_
    caller = None if fetch is None else _Fetching(fetch, centers.dtype, centers.shape[1])
    state = (centers, cells.ids, counts.astype(np.int64), *cells[1:])
    found, changed = _core.update_partition(source, state, model.metric, caller, threads)
    centers, ids, sizes, *rest = found
    cells = Cells(ids, *rest)
    change = PartitionChange(
        moved=_moved(caller.keys() if caller else np.empty(0, np.int64), changed),
        **{name: value for name, value in changed.items() if not name.startswith("moved_")},
    )
    _warn(change, cells, int(sizes.sum()), fetch is not None)
    return change, cells, centers, sizes
