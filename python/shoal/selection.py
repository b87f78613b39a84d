"""Choice of the number of clusters."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from . import _core
from ._checks import params as _params
from ._checks.params import RowWeights
from ._core import Source
from ._docs import documented
from ._fit.clusterer import CenterClusterer
from ._fit.watch import watched
from ._quality.choosing import CRITERIA, FIELDS, is_about, margin, suggest_all, verdict
from ._quality.growing import Pool, gather, pool_size
from ._quality.indices import (
    calinski_harabasz,
    check_count,
    davies_bouldin,
    mean,
    per_cluster,
    rows_with_weight,
    total,
    widths,
)
from ._quality.labeled import open_all
from ._rows.checked import weighted
from ._rows.source import DataSource
from ._rows.zeros import ignore_zeros
from ._terminal.text import format_table as text_table
from .breathing import BreathingKMeans
from .kmeans import KMeans
from .typing import Callbacks, Criterion, PathName, RandomState, Rows, Weights

__all__ = ["KSelection", "select_n_clusters"]

#: Fraction of the pool in a resample.
RESAMPLED = 0.8
#: Largest number of numbers of clusters.
MOST_COUNTS = 100_000
#: The search for a better start of a fit: centers that a breath moves at a time, and its tolerance.
MOVED, SLACK = 1, 1e-3
#: A fit of a resample is repeated from a better start if its inertia exceeds that of the centers of all rows
#: by this fraction.
STUCK = 0.01
#: A choice is in doubt if its stability or its margin is lower.
STABLE, CLEAR = 0.9, 0.02


class KSelection:
    """Measures of several numbers of clusters, and the choice among them.

    :func:`shoal.select_n_clusters` returns one.

    Attributes
    ----------
    table_ : structured ndarray of shape (n_ks,)
        One row per number of clusters, in ascending order, with the fields ``n_clusters``, ``inertia``,
        ``silhouette`` (simplified), ``calinski_harabasz``, ``davies_bouldin``, ``stability`` and
        ``stability_std`` (mean and standard deviation of the adjusted Rand index over the resamples), and
        ``n_iter``. Measures that are not defined are NaN: those of a single cluster, and the stability
        without resamples.
    best_ : int
        The number of clusters that the criterion chooses.
    criterion_ : str
        The criterion.
    suggestions_ : dict of str to (int or None)
        The number of clusters that each criterion chooses; None if it cannot choose.
    agreement_ : list of str
        The criteria that choose about `best_`: off by at most 10%.
    margin_ : float
        How far the best value of the criterion lies ahead of the best value of all numbers of clusters that
        are not about the same, as a fraction of the range of the values. 0: another number is as good. Of
        ``"auto"``, the mean over the criteria in `agreement_`. NaN if all numbers are about the same.
    doubts_ : list of str
        Reasons to doubt `best_`, in words; empty if there are none. See the notes of
        :func:`shoal.select_n_clusters`.
    centers_ : dict of int to ndarray of shape (n_clusters, n_features)
        The centers of all fits.
    """

    def __init__(self, criterion: str) -> None:
        self.criterion_ = criterion
        self.centers_: dict[int, npt.NDArray[Any]] = {}
        self._rows: list[tuple[Any, ...]] = []

    @property
    def table_(self) -> npt.NDArray[np.void]:
        """The measures, one row per number of clusters."""
        return np.array(self._rows, dtype=np.dtype(list(FIELDS)))

    @property
    def suggestions_(self) -> dict[str, int | None]:
        """The number of clusters that each criterion chooses."""
        return suggest_all(self.table_)

    @property
    def best_(self) -> int:
        """The number of clusters that the criterion chooses."""
        found = verdict(self.criterion_, self.suggestions_)
        if found is None:
            raise AttributeError(
                f"criterion={self.criterion_!r} chooses none of {sorted(self.centers_)} clusters. "
                "See table_, suggestions_ and plot()."
            )
        return found

    @property
    def agreement_(self) -> list[str]:
        """The criteria that choose about `best_`."""
        choices = self.suggestions_
        best = verdict(self.criterion_, choices)
        return [] if best is None else [name for name, k in choices.items() if k and is_about(k, best)]

    @property
    def margin_(self) -> float:
        """How clear the optimum of the criterion is."""
        table, choices = self.table_, self.suggestions_
        names = self.agreement_ if self.criterion_ == "auto" else [self.criterion_]
        margins = [margin(name, k, table) for name in names if (k := choices[name]) is not None]
        return float(np.mean(margins)) if margins else float("nan")

    @property
    def doubts_(self) -> list[str]:
        """Reasons to doubt `best_`."""
        table, choices = self.table_, self.suggestions_
        best = verdict(self.criterion_, choices)
        if best is None:
            return ["no number of clusters is chosen"]
        found, ks = [], table["n_clusters"]
        made = [name for name, k in choices.items() if k is not None]
        if 2 * (n := len(self.agreement_)) <= len(made):
            verb = "chooses" if n == 1 else "choose"
            found.append(f"only {n} of {len(made)} criteria {verb} about {best} clusters")
        if best == ks[-1]:
            found.append(f"{best} is the largest number of clusters compared")
        elif best == ks[ks > 1][0]:
            found.append(f"{best} is the smallest number of clusters compared")
        stability = float(table["stability"][ks == best][0])
        if stability < STABLE:
            found.append(f"fits of samples differ: the stability is {stability:.2f}")
        if self.margin_ < CLEAR:
            found.append(f"other numbers of clusters are nearly as good: the margin is {self.margin_:.3f}")
        return found

    def _verdict(self) -> str:
        """Return the choice, how many criteria agree, and the margin, as one line of text."""
        choices = self.suggestions_
        best = verdict(self.criterion_, choices)
        if best is None:
            return f"none by {self.criterion_}"
        made = sum(k is not None for k in choices.values())
        clear = "" if np.isnan(self.margin_) else f", margin {self.margin_:.2f}"
        return f"{best} by {self.criterion_}, {len(self.agreement_)} of {made} criteria agree{clear}"

    def __str__(self) -> str:
        """Show the table, what every criterion chooses, and how sure the choice is."""
        numbers = ("inertia", "silhouette", "calinski_harabasz", "davies_bouldin", "stability")
        body = [
            (str(row["n_clusters"]), *("-" if np.isnan(row[n]) else f"{row[n]:.5g}" for n in numbers))
            for row in self.table_
        ]
        head = ("clusters", *(name.replace("_", " ") for name in numbers))
        choices = ", ".join(
            f"{name.replace('_', ' ')} {'-' if k is None else k}" for name, k in self.suggestions_.items()
        )
        doubts = "".join(f"\ndoubt: {doubt}" for doubt in self.doubts_)
        return f"{text_table(head, body)}\n\nchosen by: {choices}\nbest: {self._verdict()}{doubts}"

    def __repr__(self) -> str:
        """Show the numbers of clusters, the choice, and how many criteria agree."""
        ks = self.table_["n_clusters"].tolist()
        tried = f"{ks[0]} to {ks[-1]}" if ks else "none"
        doubts = f", {n} doubt{'s' if n > 1 else ''}" if ks and (n := len(self.doubts_)) else ""
        return f"<KSelection of {tried}: {self._verdict() if ks else 'no choice'}{doubts}>"

    def plot(self, path: PathName | None = None) -> Any:
        """Plot all measures over the number of clusters.

        A dashed line marks the choice of each criterion, in red if it is about `best_`.

        Parameters
        ----------
        path : path, optional
            A PNG file, which is written to a temporary name and renamed.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ValueError
            If matplotlib is missing (extra ``plot``).
        OSError
            If the file cannot be written.

        Examples
        --------
        >>> import numpy as np, shoal, tempfile
        >>> X = np.random.default_rng(0).normal(size=(60, 3))
        >>> found = shoal.select_n_clusters(X, [2, 3, 4], n_resamples=0, random_state=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     figure = found.plot(f"{folder}/k.png")
        """
        from ._files.staged import replace_file
        from .plot import require_matplotlib

        require_matplotlib()
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(16, 3.6), layout="constrained")
        FigureCanvasAgg(figure)
        table, choices, agreeing = self.table_, self.suggestions_, self.agreement_
        figure.suptitle("; ".join([self._verdict(), *self.doubts_]))
        ks = table["n_clusters"]
        for axes, name in zip(figure.subplots(1, len(CRITERIA)), CRITERIA, strict=True):
            values = table["inertia" if name == "elbow" else name]
            if name == "stability":
                axes.errorbar(ks, values, table["stability_std"], fmt=".-", capsize=2)
            else:
                axes.plot(ks, values, ".-")
            title = {"elbow": "Inertia", "davies_bouldin": "Davies-Bouldin (low is good)"}.get(name)
            if name == "elbow" and values.min() > 0:
                axes.set_yscale("log")
            axes.set_title(title or name.replace("_", "-").title())
            axes.set_xlabel("clusters")
            axes.grid(alpha=0.3)
            k = choices[name]
            if k is not None:
                chosen = "C3" if name in agreeing else "0.4"
                axes.axvline(k, color=chosen, linestyle="--", label=f"{name.replace('_', '-')}: {k}")
                axes.legend()
        if path is not None:
            with replace_file(path) as file:
                figure.savefig(file, format="png", dpi=110)
        return figure


@documented
def select_n_clusters(
    X: Rows,
    ks: Iterable[int],
    *,
    estimator: Any = None,
    criterion: Criterion = "auto",
    n_resamples: int = 5,
    sample_weight: Weights = None,
    random_state: RandomState = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    callbacks: Callbacks = None,
) -> KSelection:
    """Compare several numbers of clusters by their results, and choose one.

    The fit with the next number of clusters starts from the centers of the last one and from rows that lie
    far from them. First, a search on a sample moves centers that are in the wrong place.

    Parameters
    ----------
    X : rows of shape (n_samples, n_features)
        Any input of :meth:`shoal.KMeans.fit` that can be read more than once.
    ks : iterable of int
        Numbers of clusters, at least 1 and at most the number of rows with weight; sorted, and each used
        once. Two or more are needed for a choice, and 100,000 at most.
    estimator : estimator, optional
        An estimator of shoal with centers and the parameter `init`, such as ``MiniBatchKMeans()``. Default:
        ``KMeans()``. It is cloned, and `n_clusters`, `init`, `n_init` and `random_state` are set.
    criterion : {"auto", "elbow", "silhouette", "calinski_harabasz", "davies_bouldin", "stability"}
        The criterion for `best_`. All of them are measured. Default: ``"auto"``, the choice of most of
        the silhouette, the elbow and the Calinski-Harabasz index.
    n_resamples : int, default=5
        Number of samples of four fifths of the rows (of at most 20,000 rows, or 20 per cluster) whose fits
        are compared with those of all rows. 0 measures no stability.
    sample_weight : array-like of shape (n_samples,), float or None
        Weight of every row, as for :meth:`shoal.KMeans.fit`. All measures but the inertia depend on the
        shares of the total weight alone. Samples are drawn from the rows with weight, all equally likely.
    random_state : int, RandomState, Generator or None, default=None
        Seed of all draws.
    {threads}
    verbose : int, default=0
        1: show progress on standard error.
    callbacks : list of callables, optional
        Called as ``callback(selection, step)`` after every number of clusters. The selection ends with the
        numbers so far if a callback returns a true value.

    Returns
    -------
    KSelection
        The table, the choice and a plot.

    Raises
    ------
    ValueError
        If a parameter, shape or value is invalid, or X is an iterator.
    TypeError
        If the estimator has no centers, or values are not numbers.
    KeyboardInterrupt
        On Ctrl-C.

    See Also
    --------
    shoal.laplacian_path : Choose the weight of Laplacian K-modes.
    shoal.metrics.silhouette_score : The silhouette of one clustering.

    Notes
    -----
    **Cost.** Each number of clusters takes a fit, one pass of ``2 n k d`` operations, a few breaths of
    :class:`shoal.BreathingKMeans` on a sample of 20,000 rows (or 20 per cluster), and a fit of each resample.
    The fit of a resample is repeated after such breaths if the centers of all rows are clearly better there.
    With ``estimator=BreathingKMeans()``, its own breaths are the only ones. Memory beyond the rows and a fit:
    about 70 bytes per row, the sample, four fifths of it per resample, and the centers of all fits.

    **Criteria.** The elbow is found by Kneedle on the logarithm of the inertia. The silhouette, the
    Calinski-Harabasz and the Davies-Bouldin index are measured to the centers. The stability is the mean
    adjusted Rand index over the resamples; ``"stability"`` chooses the number of clusters with the highest
    one, the largest among equals. ``"auto"`` takes the choice that at least two of the silhouette, the elbow
    and the Calinski-Harabasz index agree about, up to a difference of 10%, and that of the silhouette if all
    three differ.

    **Doubts.** `doubts_` names what speaks against `best_`: at most half of the criteria choose about
    `best_`; `best_` is the smallest or the largest number compared, so a number outside of the range may be
    better; the stability at `best_` is below 0.9; `margin_` is below 0.02. The guide "Choosing k and
    understanding clusters" tells how often the choices were right on sets with known classes, with doubts and
    without.

    References
    ----------
    V. Satopaa, J. Albrecht, D. Irwin and B. Raghavan, "Finding a 'kneedle' in a haystack", 2011. A. Ben-Hur,
    A. Elisseeff and I. Guyon, "A stability based method for discovering structure in clustered data", 2002.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(size=(50, 2)) + center for center in ([0, 0], [9, 0], [0, 9])])
    >>> found = shoal.select_n_clusters(X, range(2, 7), random_state=0)
    >>> found.best_, found.suggestions_["elbow"]
    (3, 3)
    """
    counts = check_counts(ks)
    _params.one_of("criterion", criterion, Criterion)
    resamples = _params.whole("n_resamples", n_resamples, 0)
    model = estimator_of(estimator, n_jobs)
    seed = _params.seed(random_state)
    rows = open_all(X, "select_n_clusters")
    source, weights = weighted(rows, sample_weight)
    found = KSelection(criterion)
    begun = Selecting(rows, source, weights, model, counts[-1], resamples, seed, _params.threads(n_jobs))
    bar, tried = _params.verbosity(verbose), ("fit", len(counts))
    with watched("select_n_clusters", found, bar, callbacks, "a selection", tried) as tell:
        for k in counts:
            centers, measures = begun.fitted(k)
            found.centers_[k] = centers
            found._rows.append(measures)
            if tell(begun.n_rows):
                break
    return found


def check_counts(ks: Any) -> list[int]:
    """Return the numbers of clusters, sorted, each once."""
    if isinstance(ks, (str, bytes)) or not hasattr(ks, "__iter__"):
        raise _params.ParameterError(f"`ks` must be an iterable of integers, got {_params.shown(ks)}")
    given = list(islice(ks, MOST_COUNTS + 1))
    if len(given) > MOST_COUNTS:
        raise _params.ParameterError(f"`ks` must hold at most {MOST_COUNTS} numbers of clusters, got more")
    counts = sorted({_params.whole("ks", k, 1, other="") for k in given})
    if not counts:
        raise _params.ParameterError("`ks` must not be empty")
    return counts


def estimator_of(estimator: Any, n_jobs: Any) -> Any:
    """Return a copy of the estimator to fit, or the default one."""
    if estimator is None:
        return KMeans(n_jobs=n_jobs)
    if not isinstance(estimator, CenterClusterer) or "init" not in estimator.get_params():
        raise TypeError(
            "estimator must be an estimator of shoal with centers and the parameter init, such as KMeans(), "
            f"got {_params.shown(estimator)}"
        )
    model = clone(estimator)
    return model if n_jobs is None else model.set_params(n_jobs=n_jobs)


class Chain:
    """Fits of the same rows with growing numbers of clusters, each from the centers of the last one."""

    def __init__(self, model: Any, rows: Any, weights: RowWeights, pool: Pool, seed: int) -> None:
        self._model, self._rows, self._weights, self._pool = model, rows, weights, pool
        self._seed, self._draws = seed, _params.random_state_of(seed)
        #: Whether fits need a search for better starts.
        self.searches = not isinstance(model, BreathingKMeans)
        self._centers: npt.NDArray[Any] | None = None

    def grow(self, k: int) -> Any:
        """Return a model with `k` clusters, from the last centers and further rows."""
        return self._fit(k, self._grown(k))

    def improve(self) -> Any:
        """Return a model that starts from the last centers after breaths in the pool."""
        assert self._centers is not None
        return self._fit(len(self._centers), self._breathed(self._centers))

    def search(self, k: int) -> Any:
        """Return a model with `k` clusters, from a start that breaths in the pool have improved."""
        if not self.searches or k == 1:
            return self.grow(k)
        if self._centers is None:
            self.grow(k)
        before, start = self._inertia, self._grown(k)
        model = self._fit(k, self._breathed(start))
        # A start that is better in the pool may be worse for all rows.
        return self._fit(k, start) if self._inertia > before else model

    def _grown(self, k: int) -> npt.NDArray[Any] | None:
        return None if self._centers is None else self._pool.grown(self._centers, k, self._draws)

    def _breathed(self, centers: Any) -> npt.NDArray[Any]:
        search = BreathingKMeans(
            len(centers),
            m=MOVED,
            init=centers,
            tol=SLACK,
            metric=self._model.metric,
            random_state=self._seed,
            n_jobs=self._model.n_jobs,
        )
        with warnings.catch_warnings():
            # The fit that follows warns too.
            warnings.simplefilter("ignore")
            search.fit(self._pool.values, sample_weight=self._pool.weights)
        return search.cluster_centers_

    def _fit(self, k: int, start: npt.NDArray[Any] | None) -> Any:
        model = clone(self._model).set_params(n_clusters=k, random_state=self._seed)
        if start is not None:
            model.set_params(init=start)
            if "n_init" in model.get_params():
                model.set_params(n_init=1)
        model.fit(self._rows, sample_weight=self._weights)
        self._centers = model.cluster_centers_
        # Other methods need not lower the inertia, or do not measure it.
        self._inertia = model.inertia_ if isinstance(model, KMeans) else 0.0
        return model


class Selecting:
    """The fits and measures of a selection."""

    def __init__(
        self,
        rows: DataSource,
        source: Source,
        weights: RowWeights,
        model: Any,
        most: int,
        resamples: int,
        seed: int,
        threads: int | None,
    ) -> None:
        n = source.shape[0]
        self.n_rows = sum(len(block) for block in rows.blocks()) if n is None else n
        if weights is not None and len(weights) != self.n_rows:
            raise _params.ParameterError(
                f"`sample_weight` has {len(weights)} values, X has {self.n_rows} rows"
            )
        counted = np.arange(self.n_rows) if weights is None else np.flatnonzero(weights)
        check_count("ks", most, len(counted), weights)
        draws = _params.random_state_of(seed)
        self._rows, self._weights, self._threads = rows, weights, threads
        self._metric = model.metric
        self._seen = source.seen_by(self._metric)
        size = pool_size(len(counted), source.shape[1], most)
        self._picked = np.sort(draws.choice(counted, size, replace=False)).astype(np.int64)
        some = None if weights is None else weights[self._picked]
        self._pool = Pool(gather(rows, self._picked), some, self._metric, threads)
        own = rows.sample_weight is not None
        self._chain = Chain(model, rows, None if own else weights, self._pool, seed)
        # A fit needs at least as many rows as clusters.
        part = min(size, max(most, int(RESAMPLED * size)))
        self._resamples = []
        for trial in range(resamples):
            inside = np.sort(draws.choice(size, part, replace=False))
            again, few = (seed + 1 + trial) % 2**32, self._pool.part(inside)
            self._resamples.append((inside, few, Chain(model, few.values, few.weights, few, again)))

    def fitted(self, k: int) -> tuple[npt.NDArray[Any], tuple[Any, ...]]:
        """Return the centers and the measures of a fit with `k` clusters."""
        model = self._chain.search(k)
        centers = model.cluster_centers_
        labels, sq_dists, scores = self._scores(centers)
        inertia = total(sq_dists, self._weights)
        # Any two clusterings with one cluster are equal.
        resamples = self._resamples if k > 1 else []
        alike = [self._agreement(k, labels, sq_dists, *each) for each in resamples]
        stability = (float(np.mean(alike)), float(np.std(alike))) if alike else (np.nan, np.nan)
        return centers, (k, inertia, *scores, *stability, model.n_iter_)

    def _scores(
        self, centers: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64], tuple[float, float, float]]:
        """Return, in one pass, labels, squared distances, and the indices.

        These are the silhouette, the Calinski-Harabasz and the Davies-Bouldin index.
        """
        k, weights = len(centers), self._weights
        near, sq_dists = _core.nearest(self._seen, centers, min(2, k), self._metric, self._threads)
        if k == 1:
            return near, sq_dists, (np.nan, np.nan, np.nan)
        labels, nearest = near[:, 0], sq_dists[:, 0]
        totals = np.bincount(labels, weights, minlength=k).astype(np.float64)
        inertia = total(nearest, weights)
        used = totals > 0
        if not used.all():
            # Fewer different rows than clusters: measured as a clustering without the empty clusters.
            _, _, scores = self._scores(centers[used])
            return labels, nearest, scores
        own, other = np.sqrt(nearest), np.sqrt(sq_dists[:, 1])
        scatter = per_cluster(own, labels, weights, k) / totals
        sizes = rows_with_weight(labels, weights, k)
        n = int(sizes.sum())
        if k == n:
            return labels, nearest, (np.nan, np.nan, np.nan)
        silhouette = mean(widths(own, other, sizes[labels] == 1), weights)
        return (
            labels,
            nearest,
            (
                silhouette,
                calinski_harabasz(centers, totals, inertia, n),
                davies_bouldin(centers, scatter, self._threads),
            ),
        )

    def _agreement(
        self,
        k: int,
        labels: npt.NDArray[np.int32],
        sq_dists: npt.NDArray[np.float64],
        inside: npt.NDArray[np.int64],
        pool: Pool,
        chain: Chain,
    ) -> float:
        """Return the adjusted Rand index between the labels of a resample and those of all rows."""
        picked = self._picked[inside]
        with warnings.catch_warnings():
            # The fit of all rows warns too.
            warnings.simplefilter("ignore", ConvergenceWarning)
            ignore_zeros()
            own, inertia = pool.labeled(chain.grow(k).cluster_centers_)
            if chain.searches and inertia > (1.0 + STUCK) * total(sq_dists[picked], pool.weights):
                own, _ = pool.labeled(chain.improve().cluster_centers_)
        return float(adjusted_rand_score(labels[picked], own))
