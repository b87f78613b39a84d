"""Balanced samples of rows through a hierarchy of clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from shoal import _core
from shoal._checks import params as _params
from shoal._checks.marked import mark
from shoal._checks.params import RowWeights
from shoal._core import Source
from shoal._docs import documented
from shoal._fit.levels import counts_of_levels, fit_centers, is_several
from shoal._fit.watch import watched
from shoal._quality.growing import gather
from shoal._quality.indices import check_count
from shoal._quality.labeled import open_all
from shoal._rows.arrays import source_of_values
from shoal._rows.checked import weighted
from shoal._rows.spool import with_random_access
from shoal._rows.zeros import SeenBy
from shoal.hierarchical import HierarchicalKMeans
from shoal.typing import Callbacks, Metric, RandomState, Rows, Weights, Within

__all__ = ["sample"]

Method = Literal["balanced"]
#: Rounds of resampling per level.
ROUNDS = 3
#: Rows per cell of a resample: the share of a mean cell, and the most.
SHARE, MOST_ROWS = 0.5, 16

Ints = npt.NDArray[np.int64]
Labels = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
#: Rounds of resampling, and the rows per cluster that a round takes; 0: the default.
Plan = tuple[int, int]


@documented
def sample(
    X: Rows,
    n_samples: int,
    *,
    levels: Sequence[int] | HierarchicalKMeans,
    method: Method = "balanced",
    within: Within = "random",
    metric: Metric | None = None,
    sample_weight: Weights = None,
    n_resamples: int | Sequence[int] | None = None,
    resample_size: int | Sequence[int] | None = None,
    random_state: RandomState = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    callbacks: Callbacks = None,
) -> Ints:
    """Draw a sample that is balanced over a hierarchy of clusters.

    Choose it for data sets with a long tail: a few topics with most of the rows, and many topics with few. A
    uniform sample repeats these proportions. This sample takes the same number of rows from every branch of
    the hierarchy, as far as a branch has them, so rare topics are not lost.

    The sample is the same for any number of threads, and for rows in memory and in a file.

    Parameters
    ----------
    X : rows of shape (n_samples_in, n_features)
        Any input of :meth:`shoal.KMeans.fit`. Sequential sources (Parquet, a callable that returns blocks)
        are written to a temporary file first, unless `levels` is a model.
    n_samples : int
        Rows in the sample, at least 1. If X has no more rows than this, the sample is all of them.
    levels : sequence of int, or HierarchicalKMeans
        Numbers of clusters per level, in decreasing order, such as ``[1000, 300, 100]``. Three or four levels
        are usual; the first one has some dozens of rows per cluster, and each further one three to ten times
        fewer clusters. Or a fitted model, whose levels are used as they are: one pass over X, which may also
        be an iterator.
    method : {"balanced"}, default="balanced"
        How the sample is shared out.
    within : {"random", "nearest"}, default="random"
        Which rows a cluster of the first level gives: random ones, without replacement, or those nearest to
        its center.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"`` scales rows to length 1, as :class:`shoal.KMeans`. With a model, its metric.
    sample_weight : array-like of shape (n_samples_in,), float or None
        Weight of every row, finite, at least 0, not all 0. None: 1. Rows with weight 0 are never drawn, and
        all others are equally likely. The first clustering of the rows uses the weights.
    {seed}
    {expert}
    n_resamples : int or sequence of int, default=3
        Rounds of resampling per level. A round takes the rows nearest to each center, clusters only these
        anew, and labels all rows. 0: none, which leaves more clusters where rows are dense. Not with a model.
    resample_size : int or sequence of int, optional
        Rows per cluster that a round takes, all if a cluster has fewer. Default: half of the mean number of
        rows per cluster, at least 2 and at most 16. Not with a model.
    {threads}
    {verbose}
    callbacks : iterable of callables, optional
        Called as ``callback(None, step)`` after each clustering; see :mod:`shoal.callbacks`. ``Checkpoint``,
        ``ValidationCurve`` and ``EarlyStopping`` need a fit and do not work here. `step` counts rows and has
        no objective (NaN). A true result ends the call with a `RuntimeError`.

    Returns
    -------
    ndarray of shape (n_samples,), int64
        Row numbers of the sample, in ascending order, each once. ``shoal.open(X).take(rows)`` reads the rows.

    Raises
    ------
    {invalid}
    RuntimeError
        If a callback ended the call.

    See Also
    --------
    HierarchicalKMeans : Levels of clusters, with `n_clusters` of several numbers.
    lightweight_coreset : Weighted rows that represent the proportions of all rows.

    Notes
    -----
    **Clusters.** k-means puts more centers where rows are dense, so a sample that is balanced over one level
    still prefers frequent topics. Each further level clusters the centers of the level below as rows of
    weight 1, and resampling moves centers from dense regions to others. Levels with up to 1,024 clusters are
    those of exact k-means, with at most 50 sweeps; larger ones those of :class:`shoal.HierarchicalKMeans`.

    **Sharing out.** The sample is shared out from the last level to the first. Of `m` rows that the children
    of a cluster give together, a child with ``N`` rows below it gives ``min(c, N)``, with the largest integer
    ``c`` for which the sum is at most `m`. What is missing goes to children with more than ``c`` rows, one
    row each, drawn at random.

    **Cost.** A clustering of all rows, and ``2 n k d`` operations per round of the first level: for very many
    rows set ``n_resamples=[0, 3, 3]``. Memory beyond the rows: about 30 bytes per row, and `resample_size`
    rows per cluster.

    References
    ----------
    H. V. Vo et al., "Automatic data curation for self-supervised learning: a clustering-based approach",
    TMLR 2024 (arXiv 2405.15613).

    Examples
    --------
    A frequent topic with 9,000 rows, and nine rare ones with 100 each:

    >>> import numpy as np, shoal
    >>> topics = np.repeat(np.arange(10), [9000] + 9 * [100])
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(9900, 4)) + 20 * rng.normal(size=(10, 4))[topics]
    >>> rows = shoal.curation.sample(X, 500, levels=[100, 10], random_state=0)
    >>> np.bincount(topics[rows]).tolist()
    [50, 50, 50, 50, 50, 50, 50, 50, 50, 50]
    """
    problems = _params.Problems()
    problems.check(_params.whole, "n_samples", n_samples, 1)
    model = levels if isinstance(levels, HierarchicalKMeans) else None
    counts: list[int] = []
    if model is None:
        other = "a fitted HierarchicalKMeans or "
        counts = problems.check(counts_of_levels, "levels", levels, other=other) or []
    problems.check(_params.one_of, "method", method, Method)
    problems.check(_params.one_of, "within", within, Within)
    if metric is not None:
        problems.check(_params.one_of, "metric", metric, Metric)
    depth = len(counts) or None
    rounds = problems.check(per_level, "n_resamples", n_resamples, depth, 0, ROUNDS)
    sizes = problems.check(per_level, "resample_size", resample_size, depth, 1, 0)
    problems.check(_params.threads, n_jobs)
    problems.check(_params.verbosity, verbose)
    _params.check_callbacks(problems, callbacks)
    problems.refuse()
    seed, threads = _params.seed(random_state), _params.threads(n_jobs, tell=False)
    total = 1 if model is not None else sum(1 + n for n in rounds)
    with watched("sample", None, verbose, callbacks, "a sample", ("clustering", total)) as tell_of:

        def tell(n: int) -> None:
            if tell_of(n):
                raise RuntimeError("a callback ended sample before the sample was complete")

        if model is not None:
            options = {"metric": metric, "n_resamples": n_resamples, "resample_size": resample_size}
            check_options(model, options)
            cells = cells_of_model(model, X, sample_weight, threads)
            tell(len(cells.labels))
        else:
            fits = Fits(metric or "euclidean", seed, threads, tell)
            cells = fits.all(X, sample_weight, counts, list(zip(rounds, sizes, strict=True)))
    labels, weights = cells.labels, cells.weights
    drawn = labels if weights is None else labels[weights > 0]
    totals = np.bincount(drawn, minlength=cells.n_cells).astype(np.int64)
    quotas = _core.balanced_quotas(totals, cells.parents, n_samples, seed)
    return _core.pick_rows(labels, quotas, cells.sq_dists if within == "nearest" else None, seed, weights)


class Cells(NamedTuple):
    """The cluster of the first level of every row, and the parent of every cluster."""

    labels: Labels
    sq_dists: Floats
    weights: RowWeights
    n_cells: int
    parents: list[Labels]


def per_level(name: str, value: Any, depth: int | None, least: int, default: int) -> list[int]:
    """Return an option of every level: `value` for all of them, or one value for each.

    `depth` is None if there is a model, or if the levels are invalid.
    """
    if value is None:
        return [default] * (depth or 0)
    given = list(value) if is_several(value) else [value]
    if not all(_params.is_whole(each) and least <= each <= _params.MOST for each in given):
        raise _params.ParameterError(
            f"{mark(name)} must be `None`, an integer of at least {least}, or one for each level, got "
            f"{_params.shown(value)}"
        )
    if not is_several(value):
        given *= depth or 0
    elif depth is not None and len(given) != depth:
        raise _params.ParameterError(
            f"{mark(name)} must be one number for each of {depth} levels, got {_params.shown(value)}"
        )
    return [int(each) for each in given]


def check_options(model: HierarchicalKMeans, options: dict[str, Any]) -> None:
    """Raise an error for a model that is not fitted, or for options that do not go with it."""
    check_is_fitted(model, "cluster_centers_")
    if options["metric"] not in (None, model.metric):
        raise _params.ParameterError(
            f"`metric` must be {model.metric!r}, that of `levels`, got {options['metric']!r}"
        )
    for name in ("n_resamples", "resample_size"):
        if options[name] is not None:
            raise _params.ParameterError(
                f"{mark(name)} must be `None` if `levels` is a model, got {_params.shown(options[name])}"
            )


def cells_of_model(model: HierarchicalKMeans, X: Rows, sample_weight: Weights, threads: int | None) -> Cells:
    """Return the rows in the clusters of a model."""
    parents = [level.parents for level in model.levels_ if level.parents is not None]
    centers = model.cluster_centers_
    source, weights = model._fitted_weighted(X, sample_weight)
    with SeenBy(source, model.metric) as seen:
        labels, sq_dists = _core.nearest(seen, centers, 1, model.metric, threads)
    return Cells(labels, sq_dists, weights, len(centers), parents)


class Fits:
    """The clusterings of all levels. Each has a seed of its own; `tell` gets the rows of each."""

    def __init__(self, metric: Metric, seed: int, threads: int | None, tell: Callable[[int], None]) -> None:
        self.metric: Metric = metric
        self._seeds = _params.random_state_of(seed)
        self._threads, self._tell = threads, tell

    def all(self, X: Rows, sample_weight: Weights, counts: list[int], plans: list[Plan]) -> Cells:
        """Cluster rows, and the centers of every level."""
        rows = open_all(with_random_access(X, "sample"))
        source, weights = weighted(rows, sample_weight)
        n = len(rows) if weights is None else int(np.count_nonzero(weights))
        check_count("levels", counts[0], n, weights)
        with SeenBy(source, self.metric) as seen:
            centers, labels, sq_dists = self.level(
                source, seen, partial(gather, rows), counts[0], plans[0], weights
            )
        n_cells, parents = len(centers), []
        for k, plan in zip(counts[1:], plans[1:], strict=True):
            below = source_of_values(centers)
            centers, above, _ = self.level(below, below, centers.__getitem__, min(k, len(centers)), plan)
            parents.append(above)
        return Cells(labels, sq_dists, weights, n_cells, parents)

    def level(
        self,
        source: Source,
        seen: Source,
        take: Callable[[Ints], Any],
        k: int,
        plan: Plan,
        weights: RowWeights = None,
    ) -> tuple[npt.NDArray[Any], Labels, Floats]:
        """Return the centers of a level, and label and squared distance of every row of `source`.

        `seen` are the rows as the metric sees them, and `take` copies some of them.
        """
        metric, threads = self.metric, self._threads
        centers, labels = self._fit(source, k, weights)
        sq_dists = _core.sq_dists_to(seen, centers, labels, metric, threads)
        rounds, size = plan
        per_cluster = size or min(max(2, round(SHARE * len(labels) / k)), MOST_ROWS)
        for _ in range(rounds):
            quotas = np.full(len(centers), per_cluster, dtype=np.int64)
            picked = _core.pick_rows(labels, quotas, sq_dists, 0, weights)
            centers, _ = self._fit(source_of_values(take(picked)), min(k, len(picked)), None)
            labels, sq_dists = _core.nearest(seen, centers, 1, metric, threads)
        return centers, labels, sq_dists

    def _fit(self, source: Source, k: int, weights: RowWeights) -> tuple[npt.NDArray[Any], Labels]:
        seed = int.from_bytes(self._seeds.bytes(8), "little")
        found = fit_centers(source, k, metric=self.metric, seed=seed, threads=self._threads, weights=weights)
        self._tell(source.shape[0] or 0)
        return found
