"""Partial results of a pass: what the workers send back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shoal import _core


class Partial:
    """What a pass found in some of the rows; partial results of all rows merge into the result of the pass.

    Created by ``absorb`` of a pass. It can be pickled, and written to bytes for engines without pickle.

    A partial result knows its pass, and the partitions or the range of rows that it covers. Partial results
    can be merged in any order and grouping with bit-identical results, because all sums are exact.

    Attributes
    ----------
    n_rows : int
        Number of rows.
    n_partitions : int
        Number of partitions, or of blocks that are numbered by their first row.
    inertia : float
        Weighted sum of squared distances of the rows to their nearest centers; NaN without centers.
    counts : ndarray of shape (n_clusters,), float64
        Weight of the rows that are nearest to each center; empty if the pass has no centers.
    n_zero_rows : int
        Number of rows of zeros, which have no direction; 0 with ``metric="euclidean"``.

    See Also
    --------
    KMeansPass.absorb : Creates partial results.

    Notes
    -----
    A partial result of a :class:`KMeansPass` has ``n_clusters * (n_features + 2)`` numbers of 8 to 16 bytes,
    and 16 rows farthest from their centers if a cluster is empty. A number takes 16 bytes if its exact sum
    needs more bits than a float64 has. Partial results of all passes have one sum for any partitions, and
    24 bytes per partition. Neighboring blocks that are numbered by their first row take them once.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal.distributed import KMeansPass, Partial
    >>> task = KMeansPass(np.array([[0.0], [9.0]]))
    >>> parts = [task.absorb(rows, partition=i) for i, rows in enumerate([[[1.0]], [[2.0], [8.0]]])]
    >>> total = parts[1].merge(Partial.from_bytes(parts[0].to_bytes()))
    >>> total.n_rows, total.n_partitions, total.inertia
    (3, 2, 6.0)
    """

    def __init__(self, state: _core.Partial) -> None:
        if not isinstance(state, _core.Partial):
            raise TypeError("a Partial is made by the absorb method of a pass, or by Partial.from_bytes")
        self._state = state

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self._state.n_rows

    @property
    def n_partitions(self) -> int:
        """Number of partitions, or of blocks that are numbered by their first row."""
        return self._state.n_partitions

    @property
    def inertia(self) -> float:
        """Weighted sum of squared distances of the rows to their nearest centers."""
        return self._state.inertia

    @property
    def n_zero_rows(self) -> int:
        """Number of rows of zeros; 0 with ``metric="euclidean"``."""
        return self._state.zero_rows

    @property
    def counts(self) -> npt.NDArray[np.float64]:
        """Weight of the rows that are nearest to each center; empty if the pass has no centers."""
        return self._state.counts

    def merge(self, other: Partial) -> Partial:
        """Return the partial result of the rows of both. Neither is changed.

        Parameters
        ----------
        other : Partial
            Of the same pass, and of other partitions.

        Returns
        -------
        Partial
            Of all rows of both.

        Raises
        ------
        TypeError
            If `other` is not a Partial.
        ValueError
            If both hold the same partition or overlapping rows, as after a retried task, or if they belong to
            different passes; if their rows have different widths, types or feature names, or the names in
            another order; if one has sparse rows and the other dense ones. The message names the partitions.

        Notes
        -----
        Copies the sums of both.
        """
        if not isinstance(other, Partial):
            raise TypeError(f"other must be a Partial, got {type(other).__name__}")
        return Partial(self._state.merge(other._state))

    def to_bytes(self) -> bytes:
        """Write the partial result to bytes, in the safetensors format.

        Returns
        -------
        bytes
            Equal for equal results. :meth:`from_bytes` reads them, in any process and on any machine.
        """
        return self._state.to_bytes()

    @staticmethod
    def from_bytes(data: bytes) -> Partial:
        """Read a partial result from bytes.

        Parameters
        ----------
        data : bytes
            What :meth:`to_bytes` returned. No code is run, and everything is checked.

        Raises
        ------
        ValueError
            If the bytes are damaged, truncated, or not a partial result.
        """
        return Partial(_core.Partial.from_bytes(data))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the bytes."""
        return Partial.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        """Show the number of rows and partitions."""
        return f"<Partial: {self.n_rows} rows, {self.n_partitions} partitions>"
