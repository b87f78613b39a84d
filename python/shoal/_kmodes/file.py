"""Laplacian K-modes models as files."""

from __future__ import annotations

import json
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, issparse

from shoal._fit.saved import Arrays, Claims, Texts, floats, need
from shoal._rows.source import DataSource

from .matrices import responsibilities_matrix
from .model import FittedKModes


class StoredKModes(FittedKModes):
    """A fitted model that can be pickled, saved and loaded."""

    _phases = ("graph", "seeding", "iterations")

    graph_method_: str
    graph_recall_: float

    def __getstate__(self) -> dict[str, Any]:
        """Return the picklable state, without rows that lie in a file."""
        state = super().__getstate__()
        if isinstance(state.get("_fit_rows"), DataSource):
            state["_fit_rows"] = None
        return state

    def _kept(self) -> tuple[Arrays, Texts]:
        arrays, texts = self._described()
        z: Any = self.responsibilities_
        sparse: bool = issparse(z)
        if sparse:
            arrays["responsibilities_clusters"] = z.indices.astype(np.int32)
        arrays |= {
            "modes": self.modes_,
            "labels": self.labels_,
            "responsibilities": z.data.reshape(z.shape[0], -1) if sparse else z,
            "affinity_starts": self.affinity_.indptr.astype(np.int64),
            "affinity_columns": self.affinity_.indices.astype(np.int32),
            "affinity_weights": self.affinity_.data,
            "energies": self.energies_,
            "watched": np.concatenate([*self.relaxed_energies_, np.empty(0)]),
            "loops": np.array([len(loop) for loop in self.relaxed_energies_], dtype=np.int64),
        }
        if self.mode_update == "byproduct":
            arrays["mode_indices"] = self.mode_indices_
        rows = self._fit_rows
        if isinstance(rows, DataSource):
            rows = rows._source.read(0, rows.shape[0] or 0)
        if issparse(rows):
            csr: Any = rows
            arrays |= {"rows": csr.data, "rows_columns": csr.indices, "rows_starts": csr.indptr}
        elif rows is not None:
            arrays["rows"] = np.ascontiguousarray(rows)
        arrays["history"], about = self._kept_fit(texts)
        about |= {
            "bandwidth": self.bandwidth_,
            "laplacian_weight": self.laplacian_weight_,
            "collapsed": self.collapsed_,
            "shifted": self.shifted_,
            "normalize": self.normalize_,
            "n_neighbors": self.n_neighbors_,
            "graph_method": self.graph_method_,
            "graph_recall": self.graph_recall_,
        }
        return arrays, {"params": texts["params"], "fitted": json.dumps(about)}

    @classmethod
    def _restored(cls, arrays: Arrays, meta: Texts) -> Self:
        about = Claims.read(meta, "fitted")
        modes = floats(arrays, "modes", (None, None))
        k, d = modes.shape
        need(k > 0 and d > 0, f"it has {k} modes of {d} columns")
        clusters = np.empty(0, dtype=np.int32)
        z = floats(arrays, "responsibilities", (None, None))
        n, top = z.shape
        if "responsibilities_clusters" in arrays:
            clusters = whole_numbers(arrays, "responsibilities_clusters", n * top, k).astype(np.int32)
        need(top > 0 and (len(clusters) > 0 or top == k), "its responsibilities do not fit its modes")
        labels = whole_numbers(arrays, "labels", n, k)
        starts = whole_numbers(arrays, "affinity_starts", n + 1, None)
        stored = int(starts[-1])
        columns = whole_numbers(arrays, "affinity_columns", stored, n)
        need(bool((np.diff(starts) >= 0).all()) and starts[0] == 0, "its affinity is damaged")
        weights = floats(arrays, "affinity_weights", (stored,))
        model = cls._of_params(arrays, meta)
        model._check()
        model._forget()
        model.modes_, model.responsibilities_ = modes, responsibilities_matrix(z, clusters, k)
        model._labels = labels.astype(np.int32)
        model.affinity_ = csr_matrix((weights, columns, starts), shape=(n, n))
        if model.mode_update == "byproduct":
            model.mode_indices_ = whole_numbers(arrays, "mode_indices", k, n).astype(np.int64)
        model._recall_fit(arrays, about, d)
        model.energies_ = floats(arrays, "energies", (None,))
        watched = floats(arrays, "watched", (None,))
        loops = whole_numbers(arrays, "loops", None, None)
        need(int(loops.sum()) == len(watched), "its energies are inconsistent")
        model.relaxed_energies_ = np.split(watched, np.cumsum(loops)[:-1]) if len(loops) else []
        model._fit_rows = restore_rows(arrays, n, d)
        model.bandwidth_ = about.figure("bandwidth") or 0.0
        model.laplacian_weight_ = about.figure("laplacian_weight") or 0.0
        model.collapsed_, model.shifted_ = about.flag("collapsed"), about.flag("shifted")
        # Files of Rust hold what a fit chose as parameters.
        given = model.normalize if isinstance(model.normalize, bool) else None
        model.normalize_ = about.flag("normalize", missing=given)
        is_given = not isinstance(model.n_neighbors, str)
        model.n_neighbors_ = about.count("n_neighbors", optional=is_given) or int(model.n_neighbors)
        model.graph_method_ = str(about.text("graph_method"))
        model.graph_recall_ = about.figure("graph_recall") or 0.0
        return model


def whole_numbers(
    arrays: Arrays, name: str, length: int | None, below: int | None
) -> npt.NDArray[np.integer[Any]]:
    """Return a stored array of `length` integers from 0 to below `below`; None lifts either limit."""
    need(name in arrays, f"it lacks the array {name!r}")
    array = arrays[name]
    need(array.ndim == 1 and length in (None, len(array)), f"its array {name!r} has shape {array.shape}")
    need(array.dtype.kind == "i", f"its array {name!r} is of type {array.dtype}")
    inside = len(array) == 0 or (array.min() >= 0 and (below is None or array.max() < below))
    need(bool(inside), f"its array {name!r} holds numbers out of range")
    return array


def restore_rows(arrays: Arrays, n: int, d: int) -> Any:
    """Return the rows of the fit from a file, checked; None if the file has none."""
    if "rows" not in arrays:
        return None
    if "rows_starts" not in arrays:
        rows = arrays["rows"]
        need(rows.shape == (n, d), f"its array 'rows' has shape {rows.shape}")
        return rows
    starts = whole_numbers(arrays, "rows_starts", n + 1, None)
    need(bool((np.diff(starts) >= 0).all()) and starts[0] == 0, "its rows are damaged")
    columns = whole_numbers(arrays, "rows_columns", int(starts[-1]), d)
    need(arrays["rows"].shape == columns.shape, "its rows are damaged")
    return csr_matrix((arrays["rows"], columns, starts), shape=(n, d))
