"""`Coreset`: points with weights, and the files of them."""

from __future__ import annotations

import os
from collections.abc import Container
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from shoal._files.outputs import BUNDLES, check_output
from shoal._files.staged import replace_file
from shoal.formats.npz import checked_npz
from shoal.formats.stream import chunk_limit, name_errors
from shoal.typing import PathName

from .sparse import csr_of


class Coreset(NamedTuple):
    """Weighted rows that represent many more rows.

    For any centers, the weighted k-means cost on the coreset is about the cost on all rows. Every estimator
    that accepts weights can be fitted to it: ``KMeans(50).fit(coreset)`` is ``KMeans(50).fit(coreset.points,
    sample_weight=coreset.weights)``. So can its file.

    Attributes
    ----------
    points : ndarray or scipy.sparse.csr_array of shape (m, n_features), float32 or float64
        The rows, in their compute type; sparse if the source is.
    weights : ndarray of shape (m,), float64
        How many rows each point represents. Their sum is about the weight of all rows.
    indices : ndarray of shape (m,), int64
        Row numbers of the points in the source: ``X[indices]``. A row that was drawn several times appears
        several times.

    See Also
    --------
    lightweight_coreset : Draw a coreset in two passes.
    StreamingCoreset : Build a coreset in one pass.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> X = np.random.default_rng(0).normal(size=(10_000, 3))
    >>> c = shoal.lightweight_coreset(X, 500, random_state=0)
    >>> model = shoal.KMeans(5, random_state=0).fit(c)
    >>> bool(shoal.metrics.inertia(X, model.cluster_centers_) < 1.1 * shoal.KMeans(5).fit(X).inertia_)
    True
    """

    points: Any
    weights: npt.NDArray[np.float64]
    indices: npt.NDArray[np.int64]

    def __repr__(self) -> str:
        """Show shape, type and total weight, not the arrays."""
        sparse = hasattr(self.points, "indptr")
        points = self.points if sparse else np.asarray(self.points)
        size = " x ".join(map(str, points.shape))
        kind = f"sparse {points.dtype}" if sparse else str(points.dtype)
        return f"<Coreset: {size} {kind}, total weight {np.sum(self.weights):.6g}>"

    def save(self, path: PathName) -> None:
        """Write the coreset to an ``.npz`` file.

        The arrays are `points`, `weights` and `indices`. For sparse rows `points_data`, `points_indices`,
        `points_indptr` and `points_shape` replace `points`.

        Parameters
        ----------
        path : str, bytes or os.PathLike
            The file; an existing file is replaced. It appears whole or not at all.

        Raises
        ------
        ValueError
            If the path does not end in ``.npz``.
        OSError
            If the file cannot be written.
        """
        check_output("path", path, BUNDLES)
        arrays: dict[str, npt.NDArray[Any]] = {"weights": self.weights, "indices": self.indices}
        if hasattr(self.points, "indptr"):
            arrays |= {f"points_{name}": getattr(self.points, name) for name in ("data", "indices", "indptr")}
            arrays["points_shape"] = np.array(self.points.shape, dtype=np.int64)
        else:
            arrays["points"] = self.points
        with replace_file(path) as file:
            np.savez(file, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: PathName) -> Self:
        """Read a coreset that :meth:`save` wrote, without running code from the file.

        Parameters
        ----------
        path : str, bytes or os.PathLike
            The file.

        Returns
        -------
        Coreset
            The coreset.

        Raises
        ------
        OSError
            If the file cannot be read.
        ValueError
            If the file is damaged, holds no coreset, or would take more memory than :func:`shoal.open` allows
            (its parameter `chunk_limit`, or ``SHOAL_CHUNK_LIMIT`` in the environment).
        """
        return cls(*read_coreset(os.fsdecode(path), chunk_limit(None)))


# The public name, in pickles too.
Coreset.__module__ = "shoal.coreset"


def csr(parts: Any, shape: tuple[int, int]) -> Any:
    """Make a CSR matrix from its three arrays."""
    from scipy.sparse import csr_array

    return csr_array(parts, shape=shape)


def is_coreset(arrays: Container[str]) -> bool:
    """Whether the arrays of an ``.npz`` file are those of a coreset."""
    return all(name in arrays for name in ("weights", "indices")) and any(
        name in arrays for name in ("points", "points_data")
    )


def read_coreset(name: str, limit: int) -> Coreset:
    """Read a coreset from a file; `limit` is the ``chunk_limit`` of :func:`shoal.open`."""
    with (
        name_errors(name, "holds no coreset as shoal writes it"),
        checked_npz(name, limit) as opened,
        np.load(opened, allow_pickle=False) as file,
    ):
        weights, found = file["weights"], file["indices"]
        if "points" in file.files:
            points: Any = file["points"]
        else:
            data, indices, indptr = (file[f"points_{part}"] for part in ("data", "indices", "indptr"))
            rows, cols = (int(side) for side in file["points_shape"])
            points = csr_of(csr((data, indices, indptr), (rows, cols)), "it")
        if not (points.ndim == 2 and weights.shape == found.shape == (points.shape[0],)):
            raise ValueError("its arrays do not match each other")
        kinds = (points.dtype.kind, weights.dtype.kind, found.dtype.kind)
        if kinds != ("f", "f", "i") or not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise ValueError(
                "weights must be finite and at least 0, points floating-point and indices integers"
            )
    return Coreset(points, weights, found)
