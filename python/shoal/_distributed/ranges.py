"""Sweeps of large k-means: workers merge the sums of ranges of clusters, and move their centers.

The driver sees a few numbers per cluster, and fetches centers every few sweeps or if it needs them. Results
are those of a sweep whose driver merges and commits the whole, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from shoal._core import Head, Plan, Step

from .kept import Keeping
from .passes import KMeansPass

#: After this many sweeps, the driver fetches the centers and sends them again. An engine remembers the sweeps
#: since then, and computes them again if centers are lost.
SENT_EVERY = 10


class Sent(NamedTuple):
    """What workers must know of a sweep besides its centers."""

    head: bytes
    #: The fit, if its workers keep state.
    fit: Keeping | None


class Ranges(NamedTuple):
    """Rows of centers on the workers, as the engine holds them, a value for each range."""

    centers: list[Any]
    #: The points about which squared errors are summed; None if these are the centers.
    points: list[Any] | None


@runtime_checkable
class RangeEngine(Protocol):
    """What an engine provides besides, if the workers can merge ranges of clusters."""

    @property
    def n_partitions(self) -> int:
        """Number of partitions, also of empty ones."""
        ...

    def ranged(self, task: KMeansPass) -> RangedSweep | None:
        """Return the same sweep, whose centers lie on the workers, if its results are large."""
        ...

    def put(self, rows: Sequence[npt.NDArray[Any]]) -> list[Any]:
        """Send rows of centers to the workers."""
        ...

    def fetched(self, rows: Sequence[Any]) -> list[npt.NDArray[Any]]:
        """Return rows of centers from the workers."""
        ...

    def range_totals(self, sent: Sent, ranges: Ranges) -> list[Any]:
        """Absorb every partition, and merge the results of each range on a worker."""
        ...

    def reports(self, sent: Sent, ranges: Ranges, totals: Sequence[Any]) -> list[bytes]:
        """Run :func:`report` where the totals are."""
        ...

    def moved(
        self, sent: Sent, ranges: Ranges, totals: Sequence[Any], moves: bytes
    ) -> tuple[list[Any], list[bytes]]:
        """Run :func:`moved` where the totals are; the new centers stay there."""
        ...


class RangedSweep:
    """The next sweep of a fit, as :class:`~.passes.KMeansPass`, whose centers lie on the workers."""

    #: The last step after which the driver sent centers, and these centers: later ones can be lost.
    at_hand: tuple[int, npt.NDArray[Any]]

    def __init__(
        self,
        engine: RangeEngine,
        state: Head,
        ranges: Ranges,
        fit: Keeping | None,
        at_hand: tuple[int, npt.NDArray[Any]],
    ) -> None:
        self._engine, self._state, self._ranges, self._fit = engine, state, ranges, fit
        self.at_hand = at_hand

    @classmethod
    def of(cls, engine: RangeEngine, task: KMeansPass, n: int) -> Self:
        """Cut a sweep into `n` ranges."""
        points = task._state.points
        ranges = Ranges(
            engine.put(cut(task.centers, n)), None if points is None else engine.put(cut(points, n))
        )
        # Later sweeps carry sums like the first one.
        at_hand = (task.iteration, task.centers)
        return cls(engine, task._state.carrying().head(), ranges, task._fit, at_hand)

    @property
    def centers(self) -> npt.NDArray[Any]:
        """The centers, fetched from the workers."""
        return np.concatenate(self._engine.fetched(self._ranges.centers))

    @property
    def counts(self) -> npt.NDArray[np.float64]:
        """Weight per cluster in the last sweep."""
        return self._state.counts

    @property
    def iteration(self) -> int:
        """Number of sweeps before this one."""
        return self._state.iteration

    @property
    def variance(self) -> float:
        """Variance of the rows, averaged over the features; NaN before the first sweep."""
        return self._state.variance

    @property
    def _has_points(self) -> bool:
        return self._ranges.points is not None

    def to_bytes(self) -> bytes:
        """Write the sweep with its centers to bytes, as `KMeansPass.to_bytes`."""
        held = self._ranges.points
        points = None if held is None else np.concatenate(self._engine.fetched(held))
        return self._state.with_centers(self.centers, points).to_bytes()

    def _of_fit(self, fit: Keeping | None) -> Self:
        """Return the same sweep as one of a fit, as `KMeansPass`."""
        return type(self)(self._engine, self._state, self._ranges, fit, self.at_hand)

    @property
    def _sent(self) -> Sent:
        return Sent(self._state.to_bytes(), self._fit)

    def swept(self) -> tuple[Self, Step, int]:
        """Run the sweep; return the next one, the figures of this one and the number of rows of zeros."""
        sent = self._sent
        totals, plan = self._decided(sent, self._ranges)
        centers, reports = self._engine.moved(sent, self._ranges, totals, plan.moves())
        state, step, keeps_points = self._state.end(plan, reports)
        points = (self._ranges.points or self._ranges.centers) if keeps_points else None
        at_hand = self.at_hand
        if state.iteration % SENT_EVERY == 0:
            fetched = self._engine.fetched(centers)
            at_hand = (state.iteration, np.concatenate(fetched))
            centers = self._engine.put(fetched)
            points = points and self._engine.put(self._engine.fetched(points))
        ranges = Ranges(centers, points)
        return type(self)(self._engine, state, ranges, self._fit, at_hand), step, plan.zero_rows

    def measured(self) -> Plan:
        """Measure the inertia and the weights of these centers."""
        return self._decided(self._sent, self._ranges._replace(points=None))[1]

    def _decided(self, sent: Sent, ranges: Ranges) -> tuple[list[Any], Plan]:
        """Sum the rows; return the totals, and what follows from them."""
        totals = self._engine.range_totals(sent, ranges)
        reports = self._engine.reports(sent, ranges, totals)
        return totals, self._state.decide(reports, self._engine.n_partitions)


def cut(rows: npt.NDArray[Any], n: int) -> list[npt.NDArray[Any]]:
    """Cut rows of centers into `n` ranges."""
    k = len(rows)
    return [rows[k * i // n : k * (i + 1) // n] for i in range(n)]


# ---------------------------------------------------------------- on the workers


def sweep_of(sent: Sent, ranges: Ranges) -> KMeansPass:
    """Return the sweep, from the rows of all ranges."""
    points = None if ranges.points is None else np.concatenate(ranges.points)
    state = Head.from_bytes(sent.head).with_centers(np.concatenate(ranges.centers), points)
    task = KMeansPass._of(state)
    task._fit = sent.fit
    return task


def report(sent: Sent, total: bytes, centers: npt.NDArray[Any], points: npt.NDArray[Any] | None) -> bytes:
    """Return what the driver must know of a range before its centers move."""
    return Head.from_bytes(sent.head).report(total, centers, points)


def moved(
    sent: Sent, total: bytes, centers: npt.NDArray[Any], points: npt.NDArray[Any] | None, moves: bytes
) -> tuple[npt.NDArray[Any], bytes]:
    """Return the new centers of a range, and what the driver must know of their moves."""
    return Head.from_bytes(sent.head).moved(total, centers, points, moves)
