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
from ._core import Source
from ._docs import documented
from ._fit.clusterer import CenterClusterer
from ._fit.watch import watched
from ._quality.choosing import CRITERIA, FIELDS, suggest_all
from ._quality.growing import Pool, gather, pool_size
from ._quality.indices import calinski_harabasz, davies_bouldin, mean, rows_with_weight, total, widths
from ._quality.labeled import open_all
from ._rows.checked import weighted
from ._rows.source import DataSource
from ._rows.zeros import ignore_zeros
from ._terminal.text import format_table as text_table
from .kmeans import KMeans
from .typing import Callbacks, Criterion, PathName, RandomState, Rows, Weights

__all__ = ["KSelection", "select_n_clusters"]

#: Fraction of the pool in a resample.
RESAMPLED = 0.8
#: Largest number of numbers of clusters.
MOST_COUNTS = 100_000


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
        found = self.suggestions_[self.criterion_]
        if found is None:
            raise AttributeError(
                f"criterion={self.criterion_!r} chooses none of {sorted(self.centers_)} clusters. "
                "See table_, suggestions_ and plot()."
            )
        return found

    def __str__(self) -> str:
        """Show the table, and what every criterion chooses."""
        numbers = ("inertia", "silhouette", "calinski_harabasz", "davies_bouldin", "stability")
        body = [
            (str(row["n_clusters"]), *("-" if np.isnan(row[n]) else f"{row[n]:.5g}" for n in numbers))
            for row in self.table_
        ]
        head = ("clusters", *(name.replace("_", " ") for name in numbers))
        choices = ", ".join(
            f"{name.replace('_', ' ')} {'-' if k is None else k}" for name, k in self.suggestions_.items()
        )
        return f"{text_table(head, body)}\n\nchosen by: {choices}"

    def __repr__(self) -> str:
        """Show the numbers of clusters and the choice."""
        ks = self.table_["n_clusters"].tolist()
        tried = f"{ks[0]} to {ks[-1]}" if ks else "none"
        return f"<KSelection of {tried}: {self.suggestions_[self.criterion_]} by {self.criterion_}>"

    def plot(self, path: PathName | None = None) -> Any:
        """Plot all measures over the number of clusters.

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

        figure = Figure(figsize=(16, 3.4), layout="constrained")
        FigureCanvasAgg(figure)
        table, choices = self.table_, self.suggestions_
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
                chosen = "C3" if name == self.criterion_ else "0.4"
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
    criterion: Criterion = "silhouette",
    n_resamples: int = 5,
    sample_weight: Weights = None,
    random_state: RandomState = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    callbacks: Callbacks = None,
) -> KSelection:
    """Compare several numbers of clusters by their results, and choose one.

    The fit with the next number of clusters starts from the centers of the last one, and from rows that lie
    far from them, so it needs few iterations.

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
    criterion : {"elbow", "silhouette", "calinski_harabasz", "davies_bouldin", "stability"}
        The criterion for `best_`. All of them are measured. Default: ``"silhouette"``.
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
    Each number of clusters takes a fit and one pass of ``2 n k d`` operations. The elbow is found by Kneedle
    on the logarithm of the inertia. The silhouette, the Calinski-Harabasz and the Davies-Bouldin index are
    measured to the centers. The stability is the mean adjusted Rand index over the resamples; ``"stability"``
    chooses the number of clusters with the highest one, the largest among equals. ``docs/choosing-k.md``
    tells how often each criterion was right on sets with known classes. Memory beyond the rows and a fit:
    about 70 bytes per row, the sample, four fifths of it per resample, and the centers of all fits.

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
    _params.one_of("criterion", criterion, CRITERIA)
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

    def __init__(self, model: Any, pool: Pool, seed: int) -> None:
        self._model, self._pool = model, pool
        self._seed, self._draws = seed, _params.random_state_of(seed)
        self._centers: npt.NDArray[Any] | None = None

    def fit(self, k: int, rows: Any, weights: npt.NDArray[np.float64] | None) -> Any:
        """Return a model with `k` clusters."""
        model = clone(self._model).set_params(n_clusters=k, random_state=self._seed)
        if self._centers is not None:
            model.set_params(init=self._pool.grown(self._centers, k, self._draws))
            if "n_init" in model.get_params():
                model.set_params(n_init=1)
        model.fit(rows, sample_weight=weights)
        self._centers = model.cluster_centers_
        return model


class Selecting:
    """The fits and measures of a selection."""

    def __init__(
        self,
        rows: DataSource,
        source: Source,
        weights: npt.NDArray[np.float64] | None,
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
        if most > len(counted):
            what = "rows" if weights is None else "rows with weight"
            raise _params.ParameterError(
                f"`ks` must be at most the number of {what}, {len(counted)}, got {most}"
            )
        draws = _params.random_state_of(seed)
        self._rows, self._weights, self._threads = rows, weights, threads
        self._metric = model.metric
        self._seen = source.seen_by(self._metric)
        size = pool_size(len(counted), source.shape[1], most)
        self._picked = np.sort(draws.choice(counted, size, replace=False)).astype(np.int64)
        some = None if weights is None else weights[self._picked]
        self._pool = Pool(gather(rows, self._picked), some, self._metric, threads)
        self._chain = Chain(model, self._pool, seed)
        # A fit needs at least as many rows as clusters.
        part = min(size, max(most, int(RESAMPLED * size)))
        self._resamples = []
        for trial in range(resamples):
            inside = np.sort(draws.choice(size, part, replace=False))
            again = (seed + 1 + trial) % 2**32
            self._resamples.append((inside, Chain(model, self._pool.part(inside), again)))

    def fitted(self, k: int) -> tuple[npt.NDArray[Any], tuple[Any, ...]]:
        """Return the centers and the measures of a fit with `k` clusters."""
        own = self._rows.sample_weight is not None
        model = self._chain.fit(k, self._rows, None if own else self._weights)
        centers = model.cluster_centers_
        labels, inertia, scores = self._scores(centers)
        # Any two clusterings with one cluster are equal.
        resamples = self._resamples if k > 1 else []
        alike = [self._agreement(k, labels, *each) for each in resamples]
        stability = (float(np.mean(alike)), float(np.std(alike))) if alike else (np.nan, np.nan)
        return centers, (k, inertia, *scores, *stability, model.n_iter_)

    def _scores(
        self, centers: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.int32], float, tuple[float, float, float]]:
        """Return labels, inertia, silhouette, Calinski-Harabasz and Davies-Bouldin index, in one pass."""
        k, weights = len(centers), self._weights
        near, sq_dists = _core.nearest(self._seen, centers, min(2, k), self._metric, self._threads)
        if k == 1:
            return near, total(sq_dists, weights), (np.nan, np.nan, np.nan)
        labels, nearest = near[:, 0], sq_dists[:, 0]
        totals = np.bincount(labels, weights, minlength=k).astype(np.float64)
        inertia = total(nearest, weights)
        used = totals > 0
        if not used.all():
            # Fewer different rows than clusters: measured as a clustering without the empty clusters.
            _, _, scores = self._scores(centers[used])
            return labels, inertia, scores
        own, other = np.sqrt(nearest), np.sqrt(sq_dists[:, 1])
        scatter = np.bincount(labels, own if weights is None else own * weights, minlength=k) / totals
        sizes = rows_with_weight(labels, weights, k)
        n = int(sizes.sum())
        if k == n:
            return labels, inertia, (np.nan, np.nan, np.nan)
        silhouette = mean(widths(own, other, sizes[labels] == 1), weights)
        return (
            labels,
            inertia,
            (
                silhouette,
                calinski_harabasz(centers, totals, inertia, n),
                davies_bouldin(centers, scatter, self._threads),
            ),
        )

    def _agreement(
        self, k: int, labels: npt.NDArray[np.int32], inside: npt.NDArray[np.int64], chain: Chain
    ) -> float:
        """Return the adjusted Rand index between the labels of a resample and those of all rows."""
        pool = chain._pool
        with warnings.catch_warnings():
            # The fit of all rows warns too.
            warnings.simplefilter("ignore", ConvergenceWarning)
            ignore_zeros()
            model = chain.fit(k, pool.values, pool.weights)
            own = model.predict(pool.values)
        return float(adjusted_rand_score(labels[self._picked[inside]], own))
