"""Passes with centers over partitions of rows: a sweep of k-means, and labels or distances of the rows.

A pass is immutable and small. It absorbs the rows of a partition on any worker, and commits the merged result
on the driver: ``task, step = task.commit(total)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from shoal import _core
from shoal._checks import params as _params
from shoal._rows.features import refuse_other_names
from shoal.typing import Metric, Rows

from .base import Given, Pass, block_of, naming
from .kept import STATES, Keeping

__all__ = ["DistancePass", "KMeansPass", "LabelPass", "Pass", "RowPass", "checked_centers"]


class KMeansPass(Pass):
    """One sweep of exact k-means: labels every row, and sums rows per cluster.

    Parameters
    ----------
    centers : array-like of shape (n_clusters, n_features)
        The centers, finite. float32 centers compute in float32, all others in float64.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"``: rows are scaled to length 1 as they are read, and the centers lie on the unit sphere.

    Attributes
    ----------
    centers : ndarray of shape (n_clusters, n_features), float32 or float64
        The centers.
    metric : str
        The metric.
    iteration : int
        Number of sweeps before this one.
    variance : float
        Variance of the rows, averaged over the features, as the last sweep measured it; NaN before. For the
        tolerance of scikit-learn: stop when ``step.center_shift**2 <= tol * task.variance``.
    counts : ndarray of shape (n_clusters,), float64
        Weight per cluster in the last sweep; zeros before.

    See Also
    --------
    SeedPass : Chooses the first centers.
    LabelPass : Labels the rows for the last centers.
    shoal.distributed.KMeans : The loop around this pass.

    Notes
    -----
    A sweep costs ``2 n_samples n_clusters n_features`` floating-point operations, spread over the partitions.

    The commit moves the centers to the means of their rows. Each empty cluster moves to one of the rows that
    are farthest from their centers, and this row leaves its cluster, as in :class:`shoal.KMeans`. A partial
    result holds 16 such rows, so that at most 16 clusters move in one sweep.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal.distributed import KMeansPass
    >>> task = KMeansPass(np.array([[0.0], [9.0]]))
    >>> parts = [task.absorb([[1.0], [8.0]], partition=0), task.absorb([[3.0]], partition=1)]
    >>> task, step = task.commit(parts[1].merge(parts[0]))
    >>> task.centers.tolist(), step.objective
    ([[2.0], [8.0]], 11.0)
    """

    _kind = "KMeansPass"
    #: The fit, if its workers keep state.
    _fit: Keeping | None = None

    def __init__(self, centers: npt.ArrayLike, *, metric: Metric = "euclidean") -> None:
        self._state = _core.Pass.kmeans(checked_centers(centers), _params.one_of("metric", metric, Metric))

    @property
    def centers(self) -> npt.NDArray[Any]:
        """The centers, an array of shape (n_clusters, n_features)."""
        return self._state.centers

    @property
    def metric(self) -> str:
        """The metric."""
        return self._state.metric

    @property
    def iteration(self) -> int:
        """Number of sweeps before this one."""
        return self._state.iteration

    @property
    def variance(self) -> float:
        """Variance of the rows, averaged over the features; NaN before the first sweep."""
        return self._state.variance

    @property
    def counts(self) -> npt.NDArray[np.float64]:
        """Weight per cluster in the last sweep."""
        return self._state.counts

    @property
    def _has_points(self) -> bool:
        return self._state.has_points

    def _absorb_open(self, given: Given) -> _core.Partial:
        if self._fit is None or given.partition is None or given.source is None:
            return super()._absorb_open(given)
        with STATES.lent(self._fit, given.partition) as (kept, budget):
            found = self._state.absorb(*given, kept, budget)
        STATES.put(self._fit, given.partition, kept, found.n_rows)
        return found

    def _of_fit(self, fit: Keeping | None) -> Self:
        """Return the same sweep as one of a fit: it carries sums, and workers keep state for the next one."""
        made = self._of(self._state.carrying())
        made._fit = fit
        return made

    def _after(self, other: Pass) -> Self:
        """Return this pass, which expects the rows, the partitions and the feature names of another."""
        return self._of(self._state.after(other._state))


class RowPass(ABC):
    """What is computed for every row from known centers, one block at a time: labels, or distances."""

    #: The name of the column of the results.
    column: ClassVar[str]

    def __init__(self, centers: npt.ArrayLike, *, metric: Metric = "euclidean") -> None:
        self.centers = checked_centers(centers)
        self.metric = _params.one_of("metric", metric, Metric)
        # The names of the features of the fit. Named rows must have the same.
        self._names: list[str] | None = None
        #: The fit, if its workers keep labels.
        self._fit: Keeping | None = None

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The type of the results."""

    @property
    def width(self) -> int | None:
        """Number of results per row; None if a row has one result, and results are one-dimensional."""
        return None

    @property
    def none(self) -> npt.NDArray[Any]:
        """The results of no rows."""
        return np.zeros((0,) if self.width is None else (0, self.width), self.dtype)

    def of(self, block: Rows, *, partition: int | None = None, n_jobs: int | None = None) -> npt.NDArray[Any]:
        """Compute the results of the rows of a block, with the parameters and errors of `LabelPass.label`."""
        with naming(partition):
            source, _, header = block_of(block)
            if source is None:
                return self.none
            if self._names is not None:
                refuse_other_names(self._names, header)
            seen, threads = source.seen_by(self.metric), _params.threads(n_jobs, tell=False)
            known = None if self._fit is None or partition is None else self._kept(self._fit, partition)
            return self._computed(seen, threads) if known is None else known

    @abstractmethod
    def _computed(self, rows: Any, threads: int | None) -> npt.NDArray[Any]:
        """Compute the results of rows as the metric sees them."""

    def _kept(self, fit: Keeping, partition: int) -> npt.NDArray[Any] | None:
        """Return the results that this process keeps of a partition, if it does."""
        return None


class LabelPass(RowPass):
    """The labels of rows for known centers, one block at a time.

    Parameters
    ----------
    centers : array-like of shape (n_clusters, n_features)
        The centers, as for :class:`KMeansPass`.
    metric : {"euclidean", "cosine"}, default="euclidean"
        As for :class:`KMeansPass`.

    Attributes
    ----------
    centers : ndarray of shape (n_clusters, n_features), float32 or float64
        The centers.
    metric : str
        The metric.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal.distributed import LabelPass
    >>> LabelPass(np.array([[0.0], [9.0]])).label([[1.0], [8.0]])
    array([0, 1], dtype=int32)
    """

    column = "label"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of labels."""
        return np.dtype(np.int32)

    def label(
        self, block: Rows, *, partition: int | None = None, n_jobs: int | None = None
    ) -> npt.NDArray[np.int32]:
        """Label the rows of a block.

        Parameters
        ----------
        block : rows of shape (n_samples, n_features)
            As for :meth:`KMeansPass.absorb`.
        partition : int, optional
            Number of the partition, for messages.
        n_jobs : int or None
            Number of threads.

        Returns
        -------
        ndarray of shape (n_samples,), int32
            Index of the nearest center of every row; the lower index wins a tie.

        Raises
        ------
        ValueError, TypeError, OSError
            As :meth:`KMeansPass.absorb`.
        """
        return self.of(block, partition=partition, n_jobs=n_jobs)

    def _computed(self, rows: Any, threads: int | None) -> npt.NDArray[Any]:
        return _core.predict(rows, self.centers, self.metric, threads)

    def _kept(self, fit: Keeping, partition: int) -> npt.NDArray[Any] | None:
        return STATES.labels(fit, partition, self.centers)


class DistancePass(RowPass):
    """The Euclidean distances of rows to known centers, one block at a time."""

    column = "distances"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of distances, that of the centers."""
        return self.centers.dtype

    @property
    def width(self) -> int | None:
        """Number of centers."""
        return len(self.centers)

    def _computed(self, rows: Any, threads: int | None) -> npt.NDArray[Any]:
        return _core.transform(rows, self.centers, self.metric, threads)


def checked_centers(centers: Any) -> npt.NDArray[Any]:
    """Return centers as a finite 2-D array of float32 or float64."""
    given = np.asarray(centers)
    if given.ndim != 2 or 0 in given.shape:
        raise ValueError(f"centers must have shape (n_clusters, n_features), got {given.shape}")
    dtype = np.float32 if given.dtype == np.float32 else np.float64
    return _params.centers("centers", given, dtype, (None, given.shape[1]))
