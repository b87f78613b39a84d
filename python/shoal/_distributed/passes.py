"""Passes over partitions of rows: one step of k-means, one round of a seeding, the draw of a coreset, labels.

A pass is immutable and small. It absorbs the rows of a partition on any worker, and commits the merged result
on the driver: ``task, step = task.commit(total)``.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial as bound
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_array

from shoal import _core
from shoal._common import params as _params
from shoal._core import Source, Step
from shoal._fit.centers import METRICS
from shoal._rows.arrays import as_rows
from shoal._rows.checked import source_of, weights_of
from shoal._rows.opening import opened
from shoal.coreset import Coreset, coreset_of
from shoal.typing import Metric, RandomState, Rows, Weights

from .partial import Partial


class Pass(Protocol):
    """A pass over all partitions, as engines see it: picklable, and small beside a partition."""

    def absorb(
        self,
        block: Rows,
        sample_weight: Weights = None,
        first_row: int = 0,
        *,
        partition: int | None = None,
        n_jobs: int | None = None,
    ) -> Partial:
        """Run the pass over some of the rows."""
        ...


def block_of(
    block: Rows, sample_weight: Weights = None
) -> tuple[Source | None, npt.NDArray[np.float64] | None]:
    """Open a block with its weights, which may all be 0; None for a block without rows."""
    rows: Any = opened(block)
    if rows is None:
        rows = as_rows(block, bound(check_array, accept_sparse="csr", ensure_min_samples=0))
        if rows.shape[0] == 0:
            return None, None
    own = weights_of(rows)
    if own is not None and sample_weight is not None:
        raise ValueError(
            f"sample_weight must be None for rows that have weights, got {_params.shown(sample_weight)}"
        )
    source, given = source_of(rows), own if sample_weight is None else sample_weight
    if given is None:
        return source, None
    weights = np.ascontiguousarray(given, dtype=np.float64)
    if weights.ndim != 1:
        raise ValueError(f"sample_weight must be 1-D, one weight a row, got shape {weights.shape}")
    return source, weights


@contextmanager
def naming(partition: int | None) -> Generator[None]:
    """Name the partition in errors of its rows."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if partition is None or str(error).startswith("partition"):
            raise
        kind = TypeError if isinstance(error, TypeError) and not isinstance(error, ValueError) else ValueError
        raise kind(f"partition {partition}: {error}") from error
    except OSError as error:
        if partition is not None:
            error.add_note(f"while reading partition {partition}")
        raise


class CompiledPass:
    """Base class of the passes with a compiled state."""

    _state: _core.Pass

    @classmethod
    def _of(cls, state: _core.Pass) -> Self:
        made = object.__new__(cls)
        made._state = state
        return made

    def absorb(
        self,
        block: Rows,
        sample_weight: Weights = None,
        first_row: int = 0,
        *,
        partition: int | None = None,
        n_jobs: int | None = None,
    ) -> Partial:
        """Run the pass over some of the rows.

        Number the blocks in one of two ways, the same for all blocks of a pass: by `partition`, or by
        `first_row`.

        Parameters
        ----------
        block : rows of shape (n_samples, n_features)
            Anything that estimators take as `X`: an array, a data frame, a path, shards, a
            :class:`~shoal.DataSource`, also an iterator of blocks, because it is read once. It may have no
            rows.
        sample_weight : array-like of shape (n_samples,) or None
            Weight of every row, finite and at least 0. None: 1. All rows have weights, or none has.
        first_row : int, default=0
            Number of the first row of the block among all rows, without `partition`.
        partition : int, optional
            Number of the partition, if the block is a whole partition and the sizes of the partitions before
            it are not known. The rows of a partition are numbered from 0.
        n_jobs : int or None
            Number of threads, as for :class:`shoal.KMeans`. The result does not depend on it.

        Returns
        -------
        Partial
            What the pass found in these rows. The same rows under the same number give the same bytes.

        Raises
        ------
        ValueError, TypeError, OSError
            If the rows are not valid: as for :meth:`shoal.KMeans.fit`. Messages name the partition.

        Notes
        -----
        Costs one pass over the rows. Memory beyond the rows is that of the result, and one tile per thread.
        """
        p = _params
        first = p.whole("first_row", first_row, 0)
        number = None if partition is None else p.whole("partition", partition, 0)
        if number is not None and first:
            raise p.ParameterError(
                f"first_row must be 0 with partition={number}, got {first}: the rows of a partition are "
                "numbered from 0"
            )
        with naming(number):
            source, weights = block_of(block, sample_weight)
            return Partial(self._state.absorb(source, weights, number, first, p.threads(n_jobs, tell=False)))

    def _committed(self, total: Partial) -> tuple[Self, Step]:
        if not isinstance(total, Partial):
            raise TypeError(f"total must be a Partial, got {type(total).__name__}")
        state, step = self._state.commit(total._state)
        return self._of(state), step

    def to_bytes(self) -> bytes:
        """Write the pass to bytes, in the safetensors format."""
        return self._state.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a pass from bytes; raises ``ValueError`` if they are damaged or of another kind of pass."""
        return cls._of(_core.Pass.from_bytes(data, cls.__name__))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the bytes."""
        return type(self).from_bytes, (self.to_bytes(),)


class KMeansPass(CompiledPass):
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

    def __init__(self, centers: npt.ArrayLike, *, metric: Metric = "euclidean") -> None:
        self._state = _core.Pass.kmeans(checked_centers(centers), _params.one_of("metric", metric, METRICS))

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

    def commit(self, total: Partial) -> tuple[Self, Step]:
        """Move the centers to the means of their rows.

        Parameters
        ----------
        total : Partial
            The merged result of all partitions.

        Returns
        -------
        task : pass of the same class
            The next sweep.
        step : shoal.Step
            Figures of this sweep. `objective` is the inertia of the rows for the centers before the move.
            `n_changed` is 0, because no labels are kept. `stop_reason` is ``"labels-stable"`` if no center
            moved. `elapsed` is 0: a pass does not look at the clock.

        Raises
        ------
        ValueError
            If partitions or rows are missing, or if their number differs from that of the sweep before; if
            `total` belongs to another sweep; if a mean overflows. The message names the partitions.

        Notes
        -----
        Each empty cluster moves to one of the rows that are farthest from their centers, and this row leaves
        its cluster, as in :class:`shoal.KMeans`. A partial result holds 16 such rows, so that at most 16
        clusters move in one sweep.
        """
        return self._committed(total)


class MiniBatchPass(KMeansPass):
    """One epoch of mini-batch k-means over all rows, with the states of the partitions merged at its end.

    Every partition starts with the common centers and counts, and takes its rows in batches, in their order.
    After each batch, a center moves to the mean of all rows that were ever assigned to it: here, and in
    earlier epochs anywhere. The commit adds the sums of all partitions.

    Parameters
    ----------
    centers : array-like of shape (n_clusters, n_features)
        The first centers, as for :class:`KMeansPass`. Each counts as one row.
    batch_size : int, default=1024
        Rows per batch of a partition.
    metric : {"euclidean", "cosine"}, default="euclidean"
        As for :class:`KMeansPass`.

    Attributes
    ----------
    centers, metric, iteration, variance
        As for :class:`KMeansPass`.
    counts : ndarray of shape (n_clusters,), float64
        Weight of all rows that were ever assigned to a center.

    See Also
    --------
    shoal.MiniBatchKMeans : The same on one machine, with batches drawn at random.

    Notes
    -----
    The rows of a partition should be in random order. Labels and sums of early batches belong to earlier
    centers; exact k-means does better within a few sweeps, and costs the same per pass.

    References
    ----------
    D. Sculley, "Web-scale k-means clustering", WWW 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal.distributed import MiniBatchPass
    >>> task = MiniBatchPass(np.array([[0.0], [10.0]]), batch_size=2)
    >>> total = task.absorb([[1.0], [2.0]], partition=0).merge(task.absorb([[9.0], [7.0]], partition=1))
    >>> task, step = task.commit(total)
    >>> task.centers.tolist(), task.counts.tolist()
    ([[1.0], [8.666666666666666]], [3.0, 3.0])
    """

    def __init__(
        self, centers: npt.ArrayLike, *, batch_size: int = 1024, metric: Metric = "euclidean"
    ) -> None:
        named = _params.one_of("metric", metric, METRICS)
        size = _params.whole("batch_size", batch_size, 1)
        self._state = _core.Pass.minibatch(checked_centers(centers), size, named)


class SeedPass(CompiledPass):
    """One pass of k-means||, which chooses the first centers among the rows.

    Repeat ``task, step = task.commit(total)`` until `done`; then `centers` holds the centers.

    Parameters
    ----------
    n_clusters : int
        Number of centers, at least 1 and at most the number of rows.
    oversampling_factor : float, default=2.0
        Candidates per round, as a multiple of `n_clusters`; finite and above 0.
    n_rounds : int, default=5
        Number of rounds, at least 1.
    metric : {"euclidean", "cosine"}, default="euclidean"
        As for :class:`KMeansPass`.
    random_state : int, RandomState, Generator or None
        An int makes the choice repeatable.

    Attributes
    ----------
    done : bool
        Whether the centers are chosen.
    centers : ndarray of shape (n_clusters, n_features), or None
        The centers, in the compute type of the rows; None until `done`.

    See Also
    --------
    shoal.kmeans_parallel : The same method on one machine, with other draws.

    Notes
    -----
    The first pass draws one row by weight. Each round draws ``oversampling_factor * n_clusters`` rows: those
    of the smallest exponential waiting times, at a rate of weight times squared distance to the candidates so
    far (sampling without replacement). The last pass gives each candidate the weight of its nearest rows.
    Greedy k-means++ then chooses the centers among the candidates. If there are fewer candidates than
    centers, more rounds follow.

    The draw of a row is keyed by the seed, the round, and the number of the row: its number among all rows
    with `first_row`, else the numbers of its partition and of the row within it. Retries and the placement of
    partitions change nothing.

    Workers keep nothing between the passes, so each round measures the distances to all candidates: about
    ``oversampling_factor * n_rounds**2 / 2`` sweeps, 30 with the defaults. A coreset with AFK-MC2 costs two
    passes: ``KMeans(init="afk-mc2")``.

    References
    ----------
    B. Bahmani, B. Moseley, A. Vattani, R. Kumar and S. Vassilvitskii, "Scalable k-means++", VLDB 2012.

    P. S. Efraimidis and P. G. Spirakis, "Weighted random sampling with a reservoir", Information Processing
    Letters 97 (2006).

    Examples
    --------
    >>> import numpy as np
    >>> from shoal.distributed import SeedPass
    >>> X = np.array([[0.0], [0.1], [9.0], [9.1]])
    >>> task = SeedPass(2, random_state=0)
    >>> while not task.done:
    ...     total = task.absorb(X[:2], partition=0).merge(task.absorb(X[2:], partition=1))
    ...     task, step = task.commit(total)
    >>> sorted(task.centers.round().ravel().tolist())
    [0.0, 9.0]
    """

    def __init__(
        self,
        n_clusters: int,
        *,
        oversampling_factor: float = 2.0,
        n_rounds: int = 5,
        metric: Metric = "euclidean",
        random_state: RandomState = None,
    ) -> None:
        p, problems = _params, _params.Problems()
        problems.check(p.whole, "n_clusters", n_clusters, 1)
        rules_of_seeding(problems, oversampling_factor, n_rounds)
        problems.check(p.one_of, "metric", metric, METRICS)
        problems.refuse()
        self._state = _core.Pass.seed(
            int(n_clusters), float(oversampling_factor), int(n_rounds), metric, p.seed(random_state)
        )

    @property
    def done(self) -> bool:
        """Whether the centers are chosen."""
        return self._state.done

    @property
    def centers(self) -> npt.NDArray[Any] | None:
        """The centers; None until `done`."""
        return self._state.centers if self.done else None

    def commit(self, total: Partial) -> tuple[Self, Step]:
        """Add the drawn rows to the candidates, or choose the centers among them.

        Parameters
        ----------
        total : Partial
            The merged result of all partitions.

        Returns
        -------
        task : SeedPass
            The next pass.
        step : shoal.Step
            Figures of this pass. `objective` is the weighted sum of squared distances of the rows to the
            candidates before the pass; NaN for the first pass.

        Raises
        ------
        ValueError
            As :meth:`KMeansPass.commit`, and if there are fewer rows than `n_clusters`, or no row has weight.
        """
        return self._committed(total)


class CoresetPass(CompiledPass):
    """One of the two passes that draw a lightweight coreset: weighted rows that represent all rows.

    Repeat ``task, step = task.commit(total)`` until `done`; then `coreset` holds the coreset.

    Parameters
    ----------
    n_samples : int
        Rows in the coreset, at least 1. If there are no more rows than this, the coreset is all rows.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"``: a coreset of the rows scaled to length 1.
    random_state : int, RandomState, Generator or None
        An int makes the draw repeatable.

    Attributes
    ----------
    done : bool
        Whether the coreset is complete.
    coreset : shoal.Coreset or None
        The coreset, in the order of the rows; None until `done`. Its `indices` are row numbers.

    See Also
    --------
    shoal.lightweight_coreset : The same method on one machine, with other draws.
    shoal.StreamingCoreset : For rows that can be read only once.

    Notes
    -----
    The first pass measures the mean and the variance. In the second pass, events fall on the rows at a rate
    proportional to ``w / (2 W) + w d2 / (2 S)``, a little more than `n_samples` of them; `n_samples` of these
    are kept. The second pass therefore returns about ``n_samples / n_partitions`` rows per partition.

    References
    ----------
    O. Bachem, M. Lucic and A. Krause, "Scalable k-means clustering via lightweight coresets", KDD 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal.distributed import CoresetPass
    >>> X = np.random.default_rng(0).normal(size=(10_000, 3))
    >>> task = CoresetPass(100, random_state=0)
    >>> while not task.done:
    ...     parts = [task.absorb(X[i * 2500 :][:2500], partition=i) for i in range(4)]
    ...     task, step = task.commit(parts[0].merge(parts[1]).merge(parts[2]).merge(parts[3]))
    >>> task.coreset.points.shape
    (100, 3)
    """

    def __init__(
        self, n_samples: int, *, metric: Metric = "euclidean", random_state: RandomState = None
    ) -> None:
        p, problems = _params, _params.Problems()
        problems.check(p.whole, "n_samples", n_samples, 1)
        problems.check(p.one_of, "metric", metric, METRICS)
        problems.refuse()
        self._state = _core.Pass.coreset(int(n_samples), metric, p.seed(random_state))

    @property
    def done(self) -> bool:
        """Whether the coreset is complete."""
        return self._state.done

    @property
    def coreset(self) -> Coreset | None:
        """The coreset; None until `done`."""
        if not self.done:
            return None
        return coreset_of(self._state.coreset_parts, self._state.dim)

    def commit(self, total: Partial) -> tuple[Self, Step]:
        """Take over what the pass measured or drew.

        Parameters
        ----------
        total : Partial
            The merged result of all partitions.

        Returns
        -------
        task : CoresetPass
            The next pass.
        step : shoal.Step
            Figures of this pass, without an objective (NaN).

        Raises
        ------
        ValueError
            As :meth:`KMeansPass.commit`, and if all rows have weight 0.
        """
        return self._committed(total)


class LabelPass:
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

    def __init__(self, centers: npt.ArrayLike, *, metric: Metric = "euclidean") -> None:
        self.centers = checked_centers(centers)
        self.metric = _params.one_of("metric", metric, METRICS)

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
        with naming(partition):
            source, _ = block_of(block)
            if source is None:
                return np.zeros(0, np.int32)
            seen = source.seen_by(self.metric)
            return _core.predict(seen, self.centers, self.metric, _params.threads(n_jobs, tell=False))


def checked_centers(centers: Any) -> npt.NDArray[Any]:
    """Return centers as a finite 2-D array of float32 or float64."""
    given = np.asarray(centers)
    if given.ndim != 2 or 0 in given.shape:
        raise ValueError(f"centers must have shape (n_clusters, n_features), got {given.shape}")
    dtype = np.float32 if given.dtype == np.float32 else np.float64
    return _params.centers("centers", given, dtype, (None, given.shape[1]))


def rules_of_seeding(problems: _params.Problems, oversampling_factor: Any, n_rounds: Any) -> None:
    """Check the parameters of k-means||."""
    p = _params
    if not (p.is_number(oversampling_factor) and oversampling_factor > 0):
        problems.add(
            f"oversampling_factor must be a finite number above 0, got {p.shown(oversampling_factor)}"
        )
    problems.check(p.whole, "n_rounds", n_rounds, 1)
