"""First centers, as functions of their own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _core
from ._common import params as _params
from ._rows.checked import as_source
from ._rows.streams import refuse_once
from .typing import RandomState, Rows, Weights

__all__ = ["afkmc2", "kmeans_parallel", "kmeans_plusplus"]

#: Candidates of a chain at most: more would be all rows of most data, many times.
LONGEST_CHAIN = 2**24


def kmeans_plusplus(
    X: Rows,
    n_clusters: int,
    *,
    sample_weight: Weights = None,
    greedy: bool = True,
    random_state: RandomState = None,
    n_jobs: int | None = None,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Choose first centers among the rows of X by k-means++.

    Choose it for the best start at up to some hundred clusters; :func:`afkmc2` and
    :func:`kmeans_parallel` come close to it at less cost where there are more, or where rows are
    dear to read.

    Parameters
    ----------
    X : rows of shape (n_samples, n_features)
        Anything that :meth:`shoal.KMeans.fit` takes.
    n_clusters : int
        Number of centers, at least 1 and at most the number of rows.
    sample_weight : array-like of shape (n_samples,), float or None
        Weight of every row, finite, at least 0, not all 0. None: 1.
    greedy : bool, default=True
        Draw ``2 + ln k`` candidates for each center and keep the best, as scikit-learn does; else one.
    random_state : int, RandomState, Generator or None
        An int makes the choice repeatable.
    n_jobs : int or None
        Threads; None: as many as for :class:`shoal.KMeans`. The choice does not depend on it.

    Returns
    -------
    centers : ndarray of shape (n_clusters, n_features), float32 or float64
        The rows chosen, in the type that they are computed in.
    indices : ndarray of shape (n_clusters,), int64
        Which rows they are: ``X[indices]``.

    Raises
    ------
    ValueError
        For parameters, shapes or values that are refused.
    TypeError
        For values that are no numbers.

    Notes
    -----
    Costs up to ``n k d`` operations, times the number of candidates; many pairs are pruned by the triangle
    inequality.

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
    how = How(greedily)
    return chosen("kmeans_plusplus", how, X, n_clusters, sample_weight, random_state, n_jobs)[:2]


def afkmc2(
    X: Rows,
    n_clusters: int,
    *,
    chain_length: int = 200,
    adaptive: bool = True,
    sample_weight: Weights = None,
    random_state: RandomState = None,
    n_jobs: int | None = None,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Choose first centers among the rows of X by AFK-MC2, which approximates k-means++ by short chains.

    Choose it for many clusters of many rows: it makes one pass over the rows, where k-means++ makes one for
    each center, and starts about as low as ``kmeans_plusplus(greedy=False)``.

    Parameters
    ----------
    X : rows of shape (n_samples, n_features)
        Anything that :meth:`shoal.KMeans.fit` takes.
    n_clusters : int
        Number of centers, at least 1 and at most the number of rows.
    chain_length : int, default=200
        Candidates for each center, at least 1. The longer the chains, the nearer their law comes to that of
        k-means++; 20 are enough for most data. Far-off rows and clusters of very different sizes need more.
    adaptive : bool, default=True
        Draw candidates half by squared distance to the first center, half by weight. False: by weight alone
        (K-MC2), without the pass over the rows; only for data without far-off rows.
    sample_weight : array-like of shape (n_samples,), float or None
        Weight of every row, finite, at least 0, not all 0. None: 1.
    random_state : int, RandomState, Generator or None
        An int makes the choice repeatable.
    n_jobs : int or None
        Threads; None: as many as for :class:`shoal.KMeans`. The choice does not depend on it.

    Returns
    -------
    centers : ndarray of shape (n_clusters, n_features), float32 or float64
        The rows chosen, in the type that they are computed in.
    indices : ndarray of shape (n_clusters,), int64
        Which rows they are: ``X[indices]``. No row comes twice, and no place, as long as rows differ.

    Raises
    ------
    ValueError
        For parameters, shapes or values that are refused.
    TypeError
        For values that are no numbers.

    Notes
    -----
    Costs ``n d`` operations, and at most ``chain_length n_clusters**2 / 2`` distances. Chains are read from
    their ends backwards, and only as far as what they end in depends on: where the first center
    serves the rows ``s`` times as badly as all centers do, that is about ``s`` candidates.

    Candidates are drawn by sums of the odds, of which only some are kept, rather than by the paper's alias
    table, which would take 12 bytes a row: the law of the draws is the same.

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
    how = How("afk-mc2" if adaptive else "k-mc2", chain=chain_length)
    return chosen("afkmc2", how, X, n_clusters, sample_weight, random_state, n_jobs)[:2]


def kmeans_parallel(
    X: Rows,
    n_clusters: int,
    *,
    oversampling_factor: float = 2.0,
    n_rounds: int = 5,
    sample_weight: Weights = None,
    random_state: RandomState = None,
    n_jobs: int | None = None,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Choose first centers among the rows of X by k-means||, many at a time.

    Choose it where a pass over the rows is dear, as it is for files larger than memory and for streams: it
    makes `n_rounds` and one, where k-means++ makes one for each center. It measures more distances than that,
    but many at a time. For many clusters :func:`afkmc2` is cheaper.

    Parameters
    ----------
    X : rows of shape (n_samples, n_features)
        Anything that :meth:`shoal.KMeans.fit` takes.
    n_clusters : int
        Number of centers, at least 1 and at most the number of rows.
    oversampling_factor : float, default=2.0
        How many rows join in each round, by the number of clusters: finite and above 0. Usual are 0.5 to 10.
    n_rounds : int, default=5
        How often rows join, at least 1.
    sample_weight : array-like of shape (n_samples,), float or None
        Weight of every row, finite, at least 0, not all 0. None: 1.
    random_state : int, RandomState, Generator or None
        An int makes the choice repeatable.
    n_jobs : int or None
        Threads; None: as many as for :class:`shoal.KMeans`. The choice does not depend on it.

    Returns
    -------
    centers : ndarray of shape (n_clusters, n_features), float32 or float64
        The rows chosen, in the type that they are computed in.
    indices : ndarray of shape (n_clusters,), int64
        Which rows they are: ``X[indices]``.

    Raises
    ------
    ValueError
        For parameters, shapes or values that are refused.
    TypeError
        For values that are no numbers.

    Notes
    -----
    Each row that joined weighs what the rows do that it is nearest to, and greedy k-means++ chooses the
    centers among them. When too few rows have joined, k-means++ over all rows goes on.

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
    how = How("k-means||", oversampling=oversampling_factor, rounds=n_rounds)
    return chosen("kmeans_parallel", how, X, n_clusters, sample_weight, random_state, n_jobs)[:2]


class How(NamedTuple):
    """A seeding by its name, and its parameters as they were given; None: the usual ones."""

    name: str
    chain: Any = None
    oversampling: Any = None
    rounds: Any = None


def chosen(
    who: str,
    how: How,
    X: Rows,
    n_clusters: Any,
    sample_weight: Weights,
    random_state: Any,
    n_jobs: Any,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], int]:
    """Give centers, which rows they are, and the number of distances that were measured for them."""
    p, problems = _params, _params.Problems()
    problems.check(p.whole, "n_clusters", n_clusters, 1)
    if how.chain is not None:
        problems.check(p.whole, "chain_length", how.chain, 1, most=LONGEST_CHAIN)
    if how.oversampling is not None and not (p.is_number(how.oversampling) and how.oversampling > 0):
        problems.add(f"oversampling_factor must be a finite number above 0, got {p.shown(how.oversampling)}")
    if how.rounds is not None:
        problems.check(p.whole, "n_rounds", how.rounds, 1)
    threads: list[int | None] = []
    problems.check(lambda: threads.append(p.threads(n_jobs)))
    problems.refuse()
    refuse_once(X, who)
    source = as_source(X)
    rows = source.shape[0]
    if rows is not None and rows < n_clusters:
        raise ValueError(f"n_samples={rows} should be >= n_clusters={n_clusters}.")
    return _core.first_centers(
        source,
        n_clusters=int(n_clusters),
        seeding=how.name,
        chain=how.chain,
        oversampling=how.oversampling,
        rounds=how.rounds,
        seed=p.seed(random_state),
        weights=p.weights(sample_weight, rows),
        threads=threads[0],
    )
