"""Passes that draw rows of partitions: first centers by k-means||, and lightweight coresets."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from shoal import _core
from shoal._checks import params as _params
from shoal._docs import documented
from shoal.coreset import Coreset, coreset_of
from shoal.typing import Metric, RandomState

from .base import Pass
from .passes import KMeansPass


class SeedPass(Pass):
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
    The first pass draws one of the distinct rows, by weight. Each round draws
    ``oversampling_factor * n_clusters`` rows: those of the smallest exponential waiting times, at a rate of
    weight times squared distance to the candidates so far (sampling without replacement). The last pass gives
    each candidate the weight of its nearest rows. Greedy k-means++ then chooses the centers among the
    candidates. If there are fewer candidates than centers, more rounds follow.

    The draw of a row is keyed by the seed, the round, and the number of the row among all rows: the rows of
    partition 0 come first, then those of partition 1, and so on. The first pass does not know these numbers,
    and keys its draw by the values of a row. So the centers do not depend on how the rows are cut into
    partitions, on retries, or on where partitions lie.

    Workers keep nothing between the passes, so each round measures the distances to all candidates: about
    ``oversampling_factor * n_rounds * (n_rounds + 1) / 2`` sweeps, 30 with the defaults. k-means++ on a
    coreset costs two passes: ``KMeans(init="k-means++")``.

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

    _kind = "SeedPass"

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
        problems.check(p.POSITIVE.check, "oversampling_factor", oversampling_factor)
        problems.check(p.whole, "n_rounds", n_rounds, 1)
        problems.check(p.one_of, "metric", metric, Metric)
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

    def first_sweep(self) -> KMeansPass:
        """Return the first sweep of k-means from the chosen centers.

        Returns
        -------
        KMeansPass
            With the metric of the seeding. Its commit expects the number of rows and partitions of the
            seeding.

        Raises
        ------
        ValueError
            Before `done`.
        """
        return KMeansPass._of(self._state.first_sweep())


@documented
class CoresetPass(Pass):
    """One of the passes that draw a lightweight coreset: weighted rows that represent all rows.

    Repeat ``task, step = task.commit(total)`` until `done`; then `coreset` holds the coreset.

    Parameters
    ----------
    {coreset_rows}

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
    are kept. The last pass therefore returns about ``n_samples / n_partitions`` rows per partition. If all
    rows are very far from the origin, compared with their spread, one more pass between the two measures the
    spread again, about the mean.

    Sums are exact, and the events on a row are keyed by the seed and the number of the row among all rows. So
    the coreset does not depend on how the rows are cut into partitions.

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

    _kind = "CoresetPass"

    def __init__(
        self, n_samples: int, *, metric: Metric = "euclidean", random_state: RandomState = None
    ) -> None:
        p, problems = _params, _params.Problems()
        problems.check(p.whole, "n_samples", n_samples, 1)
        problems.check(p.one_of, "metric", metric, Metric)
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
