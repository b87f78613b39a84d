"""Seedings: functions that choose the first centers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _core
from ._checks import params as _params
from ._docs import documented
from ._rows.checked import as_weighted
from ._rows.streams import refuse_once
from ._rows.zeros import SeenBy
from .typing import Metric, RandomState, Rows, Weights

__all__ = ["afkmc2", "kmeans_parallel", "kmeans_plusplus"]

#: Upper limit of `chain_length`. Longer chains would visit all rows of most data many times.
LONGEST_CHAIN = 2**24


@documented
def kmeans_plusplus(
    X: Rows,
    n_clusters: int,
    *,
    sample_weight: Weights = None,
    greedy: bool = True,
    metric: Metric = "euclidean",
    random_state: RandomState = None,
    n_jobs: int | None = None,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Choose first centers among the rows of X by k-means++.

    Gives the best starts for up to some hundred clusters. With more clusters, or if rows are slow to read,
    :func:`afkmc2` and :func:`kmeans_parallel` are almost as good at a lower cost.

    Parameters
    ----------
    {X} {seeded} {sample_weight}
    greedy : bool, default=True
        Whether to draw ``2 + ln k`` candidates per center and keep the best, as scikit-learn does. False
        draws one.
    {seeded_metric} {seed} {threads}

    Returns
    -------
    {seeded_centers}

    Raises
    ------
    {invalid}

    See Also
    --------
    afkmc2 : For many clusters; one pass over the rows.
    kmeans_parallel : For rows that are slow to read; few passes.

    Notes
    -----
    Costs up to ``n k d`` operations, times the number of candidates. The triangle inequality skips many
    distance computations.

    References
    ----------
    D. Arthur and S. Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> X = np.array([[0.0], [0.1], [9.0], [9.1]])
    >>> centers, indices = shoal.kmeans_plusplus(X, 2, random_state=0)
    >>> bool((centers == X[indices]).all())
    True
    """
    greedily = "k-means++" if greedy else "plain-k-means++"
    how = How(greedily, metric=metric)
    return choose_centers("kmeans_plusplus", how, X, n_clusters, sample_weight, random_state, n_jobs)[:2]


@documented
def afkmc2(
    X: Rows,
    n_clusters: int,
    *,
    chain_length: int = 200,
    adaptive: bool = True,
    sample_weight: Weights = None,
    metric: Metric = "euclidean",
    random_state: RandomState = None,
    n_jobs: int | None = None,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Choose first centers by AFK-MC2, which approximates k-means++ by Markov chains.

    Choose it for many clusters and many rows: it makes one pass over the rows, while k-means++ makes one pass
    per center. Its starts are about as good as those of ``kmeans_plusplus(greedy=False)``.

    Parameters
    ----------
    {X} {seeded}
    chain_length : int, default=200
        Candidates per center, at least 1. Longer chains approximate the distribution of k-means++ better; 20
        are enough for most data. Distant rows and clusters of very different sizes need more.
    adaptive : bool, default=True
        Whether to draw half of the candidates by squared distance to the first center, and half by weight.
        False draws all by weight (K-MC2), without the pass over the rows; only for data without distant rows.
    {sample_weight} {seeded_metric} {seed} {threads}

    Returns
    -------
    {seeded_centers}
        No row is chosen twice, and no two centers are equal as long as there are enough distinct rows.

    Raises
    ------
    {invalid}

    See Also
    --------
    kmeans_plusplus : For up to some hundred clusters.

    Notes
    -----
    Costs ``n d`` operations, and at most ``chain_length n_clusters**2 / 2`` distances. Chains are evaluated
    backward from their end, and only as far as their last state depends on: if the cost of the rows with the
    first center alone is ``s`` times their cost with all centers, this takes about ``s`` candidates.

    Candidates are drawn from partial sums of the probabilities instead of the alias table of the paper, which
    would take 12 bytes per row. The distribution of the draws is the same.

    References
    ----------
    O. Bachem, M. Lucic, S. H. Hassani and A. Krause, "Fast and provably good seedings for k-means", NeurIPS
    2016; "Approximate k-means++ in sublinear time", AAAI 2016.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> X = np.array([[0.0], [0.1], [9.0], [9.1]])
    >>> centers, indices = shoal.afkmc2(X, 2, random_state=0)
    >>> bool((centers == X[indices]).all())
    True
    """
    how = How("afk-mc2" if adaptive else "k-mc2", chain=chain_length, metric=metric)
    return choose_centers("afkmc2", how, X, n_clusters, sample_weight, random_state, n_jobs)[:2]


@documented
def kmeans_parallel(
    X: Rows,
    n_clusters: int,
    *,
    oversampling_factor: float = 2.0,
    n_rounds: int = 5,
    sample_weight: Weights = None,
    metric: Metric = "euclidean",
    random_state: RandomState = None,
    n_jobs: int | None = None,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Choose first centers among the rows of X by k-means||, many at a time.

    Choose it if a pass over the rows is expensive, as for files larger than memory and for streams. It makes
    ``n_rounds + 1`` passes, while k-means++ makes one pass per center. It computes more distances, but many
    at a time. For many clusters :func:`afkmc2` is cheaper.

    Parameters
    ----------
    {X} {seeded}
    oversampling_factor : float, default=2.0
        Candidates per round, as a multiple of `n_clusters`; finite and above 0. Usual values are 0.5 to 10.
    n_rounds : int, default=5
        Number of rounds, at least 1. Up to eight more follow while the last one more than halved the sum of
        squared distances, as happens with outliers, or while at most `n_clusters` rows are drawn.
    {sample_weight} {seeded_metric} {seed} {threads}

    Returns
    -------
    {seeded_centers}

    Raises
    ------
    {invalid}

    See Also
    --------
    kmeans_plusplus : For up to some hundred clusters.
    afkmc2 : For many clusters.

    Notes
    -----
    Each candidate gets the weight of the rows that are nearest to it, and greedy k-means++ chooses the
    centers among the candidates. If there are too few candidates, k-means++ over all rows adds the missing
    centers.

    References
    ----------
    B. Bahmani, B. Moseley, A. Vattani, R. Kumar and S. Vassilvitskii, "Scalable k-means++", VLDB 2012.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> X = np.array([[0.0], [0.1], [9.0], [9.1]])
    >>> centers, indices = shoal.kmeans_parallel(X, 2, random_state=0)
    >>> bool((centers == X[indices]).all())
    True
    """
    how = How("k-means||", oversampling=oversampling_factor, rounds=n_rounds, metric=metric)
    return choose_centers("kmeans_parallel", how, X, n_clusters, sample_weight, random_state, n_jobs)[:2]


class How(NamedTuple):
    """A seeding by name with its parameters; None stands for the default."""

    name: str
    chain: Any = None
    oversampling: Any = None
    rounds: Any = None
    metric: Any = "euclidean"


def choose_centers(
    who: str,
    how: How,
    X: Rows,
    n_clusters: Any,
    sample_weight: Weights,
    random_state: Any,
    n_jobs: Any,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], int]:
    """Return centers, their row numbers, and the number of distances computed."""
    p, problems = _params, _params.Problems()
    problems.check(p.whole, "n_clusters", n_clusters, 1)
    if how.chain is not None:
        problems.check(p.whole, "chain_length", how.chain, 1, most=LONGEST_CHAIN)
    if how.oversampling is not None:
        problems.check(p.POSITIVE.check, "oversampling_factor", how.oversampling)
    if how.rounds is not None:
        problems.check(p.whole, "n_rounds", how.rounds, 1)
    problems.check(p.one_of, "metric", how.metric, Metric)
    threads = problems.check(p.threads, n_jobs)
    problems.refuse()
    refuse_once(X, who)
    source, weights = as_weighted(X, sample_weight)
    rows = source.shape[0]
    if rows is not None and rows < n_clusters:
        raise _params.too_many_clusters("n_clusters", n_clusters, rows)
    with SeenBy(source, how.metric) as seen:
        return _core.first_centers(
            seen,
            n_clusters=int(n_clusters),
            seeding=how.name,
            options=(how.chain, how.oversampling, how.rounds),
            seed=p.seed(random_state),
            weights=weights,
            threads=threads,
        )
