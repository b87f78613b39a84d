"""Mixtures of Gaussians, fitted by truncated variational EM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

from . import _core
from ._common import params as _params
from ._common.warn import warn
from ._core import Run, Source, Step
from ._densities import MixtureOfGaussians
from ._fit.centers import State
from ._fit.saved import Arrays, Claims, Texts, floats, need
from .coreset import Coreset, coreset_of

__all__ = ["TruncatedGaussianMixture"]

COVARIANCES = ("tied_spherical", "spherical", "diag")
STARTS = ("cells", "random")
STOPPINGS = ("auto", "per-weight", "relative")
#: Reasons to end a fit that its user gives.
ENDED_BY_USER = ("callback", "deadline", "patience")


class TruncatedGaussianMixture(MixtureOfGaussians):
    """A mixture of Gaussians, or soft k-means, in time that hardly depends on the number of components.

    Choose it for densities (``covariance_type="diag"`` or ``"spherical"``), for rows that belong to several
    clusters in part (:meth:`predict_proba`), and for thousands of clusters. A row looks only at the
    neighbours of the few components that it was near to before, at ``n_active * n_neighbors`` of them at
    most, however many there are. With `coreset_size` the fit looks at a few weighted rows in place of all,
    and reads a file only twice.

    Prefer :class:`KMeans` with ``init="afk-mc2"`` for up to about 1000 clusters, where the squared error is
    what counts. On eight sets with 200 to 1000 clusters and one thread, this class took 1 to 12 times as
    long. Its squared error was between 1.6% lower and 2.2% higher with 10 features and more, and 14% higher
    with 2 features: means that share rows are drawn together. With 4000 clusters this class was ahead. It
    took 0.5 to 0.9 times as long, and its error was 0.5% lower on 60,000 SIFT descriptors (128 features) and
    3.6% lower on 100,000 rows of land cover (10 features).

    Prefer weighted ``KMeans(init="afk-mc2")`` on a :func:`lightweight_coreset` for a quick result. On the
    same eight sets, with 5000 to 16,384 rows, it took 2% to 19% of the time of this class on all rows. Its
    error was 5% to 11% higher with 10 features and more, and lower with 2. With the same `coreset_size` this
    class took 1.4 to 5 times as long as k-means there, for an error from 2.2% lower to 0.9% higher. All
    figures are those of default parameters (``benches/python/papers/vcgmm.py defaults``).

    With clusters of very different sizes that lie far apart, the result depends on the seeds. Use
    ``init="plain-k-means++"``, because a short AFK-MC2 chain seeds poorly there.

    Results are bit-identical for any number of threads, and for an array, a memory map or an ``.npy`` file
    with the same rows.

    Parameters
    ----------
    n_components : int, default=8
        Number of components, at least 1 and at most the number of rows (of the coreset, if there is one).
    n_active : int, default=5
        Components that share a row (C'), at least 1; all of them, where there are fewer. 1: hard labels, as
        k-means; all: textbook EM.
    n_neighbors : int, default=5
        Components in a neighbourhood, itself included (G), at least 1; all of them, where there are fewer.
        The paper advises 5 to 10, as for `n_active`.
    explore : "auto" or int, default="auto"
        Components that each row looks at by chance in every iteration. ``"auto"``: 1 where `n_active` is at
        most 3, which keeps so few from getting stuck, else 0. Take 1 for clusters that lie far apart.
    coreset_size : int, float or None, default=None
        Fit to a lightweight coreset (see :func:`lightweight_coreset`) of so many rows, or of that share of
        the rows (above 0, at most 1); all rows, where there are no more. None: fit to all rows.
    covariance_type : {"tied_spherical", "spherical", "diag"}, default="tied_spherical"
        ``"tied_spherical"``: one variance for all components, and equal weights, which finds clusters as
        k-means does. ``"spherical"``: a variance and a weight for each component. ``"diag"``: a variance for
        each component and feature, and weights; not for sparse rows. The latter two begin with two iterations
        of the first.
    init : {"auto", "random", "k-means++", "plain-k-means++", "afk-mc2", "k-mc2", "k-means||"}, array-like \
            or callable, default="afk-mc2"
        First means, as for :class:`KMeans`.
    chain_length : int, default=20
        Candidates for each mean with ``init="afk-mc2"`` and ``"k-mc2"``.
    start : {"cells", "random"}, default="cells"
        Where rows look for their first components. ``"cells"``: among the first ``sqrt(2 * n_components)``
        means, and those around the nearest two of these, about ``sqrt(8 * n_components)`` distances a row,
        once, and more where means are spread unevenly about the first ones. ``"random"``: among the
        neighbours of some that are drawn, as in the paper, which takes some iterations more; where clusters
        are of very different sizes, many rows do not find the means near them before these have moved.
        Without effect where `n_active` or `n_neighbors` is `n_components` or more.
    n_initial_e_steps : int, default=0
        Searches before the first means are moved, beside the one that there always is. The paper has tried 2
        to 4 of them, for data of few features.
    n_init : int, default=1
        Number of starts, of which the one with the highest bound wins, the earlier among equals. All of them
        are fitted to the same coreset, if there is one. Means that `means_init`, or an array or a callable as
        `init` gives are those of a single start; a larger `n_init` then leads to a RuntimeWarning.
    means_init : array-like of shape (n_components, n_features) or None, default=None
        First means, the same as ``init=array``; of the names of `init` none is used then.
    stopping : {"auto", "per-weight", "relative"}, default="auto"
        When a start has converged. ``"auto"``: when an iteration raises the bound by at most `tol` nats per
        unit of weight and feature. This does not depend on the unit of X; with
        ``covariance_type="tied_spherical"`` an iteration then lowers the squared error by about ``2 * tol``
        of itself. ``"per-weight"``: by at most `tol` nats per unit of weight, which is stricter the more
        features there are. ``"relative"``: when it changes the bound by at most `tol` times itself, as in the
        paper. This depends on the unit of X.
    max_iter : int, default=200
        Most iterations of a start; at least 1. A fit that has not converged by then raises a
        :class:`~sklearn.exceptions.ConvergenceWarning`.
    tol : float, default=1e-4
        See `stopping`.
    random_state : int, RandomState, Generator or None, default=None
        An int (0 to 2**64 - 1) makes results repeatable. 64 bits are drawn from a generator at every fit.
    n_jobs : int or None, default=None
        Threads. None: ``SHOAL_NUM_THREADS``, else ``OMP_NUM_THREADS``, else all that the process may use;
        -1: all that it may use. At most 4 a core, or 16 (see :func:`shoal.config_context`). Results do not
        depend on it.
    verbose : int, default=0
        1: a progress bar on stderr.
    callbacks : iterable of callables or None, default=None
        Called as ``cb(estimator, step)`` after every iteration; a true result ends the run. See
        :mod:`shoal.callbacks`.

    Attributes
    ----------
    means_, cluster_centers_ : ndarray of shape (n_components, n_features), float32 or float64
        Means, in the type that rows are computed in. Both are one array.
    covariances_ : float or ndarray of shape (n_components,) or (n_components, n_features), float64
        Variances, as `covariance_type` says.
    weights_ : ndarray of shape (n_components,), float64
        Priors of the components; 0 for one that has lost all rows.
    lower_bound_ : float
        The bound of the mean log-likelihood by weight, at the last search of the best start.
    lower_bounds_ : ndarray of shape (n_iter_,)
        The same at every iteration of that start.
    converged_ : bool
        Whether `tol` ended that start.
    n_iter_ : int
        Iterations of that start.
    n_distances_ : int
        Distances that seeding and searches of all starts have measured, between rows and means, and between
        means.
    coreset_ : Coreset or None
        The rows with weights that it was fitted to; None for all rows. Files do not keep it.
    neighbors_ : ndarray of shape (n_components, n_neighbors), int32
        The nearest components of each, itself first, as rows have found them.
    labels_ : ndarray of shape (n_samples,), int32
        Most likely component of every row, made on first access: a pass over all rows that looks at all
        components. What ``predict(X)`` gives.
    inertia_ : float
        Weighted sum of squared distances of all rows to the means of their components, likewise.
    counts_ : ndarray of shape (n_components,), float64
        Weight of the rows of each component, shared ones in part.
    history_ : structured ndarray of shape (n_steps,)
        A row for every iteration of every start; `objective` is the bound.
    stop_reason_ : str or None
        ``"tolerance"``, ``"max-iter"``, ``"callback"``, ``"deadline"``, ``"patience"``; None while running.
    timings_ : dict of str to float
        Seconds by phase: ``seeding`` (and the coreset), ``sweeps``, ``final``.
    init_ : str
        What was used, ``"auto"`` resolved.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, when X has any that are strings.

    Notes
    -----
    An iteration costs at most ``n_samples * n_active * n_neighbors`` distances, the first one what `start`
    says. Memory beyond the rows: ``8 * n_active`` bytes a row (of the coreset, if there is one; twice that
    with several starts), ``O(n_components * n_features)``, and some MB for each thread.

    The bound never falls: a row keeps its components until it finds nearer ones. Variances stay above floors,
    since a component on a single row would have an infinite density: above what rounding makes of values, and
    where components have their own, above a billionth of the shared variance at the end of the first two
    iterations (``"diag"``: of what it is in that feature).

    Densities are computed in the type of the means: with float32 a squared distance to a component that
    matters errs by about 1e-7 of itself.

    References
    ----------
    F. Hirschberger, D. Forster and J. Lücke, "Large scale clustering with variational EM for Gaussian mixture
    models", arXiv 1810.00803 (2018); "A variational EM acceleration for efficient clustering at very large
    scales", IEEE TPAMI 44 (2022).

    O. Bachem, M. Lucic and A. Krause, "Scalable k-means clustering via lightweight coresets", KDD 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import TruncatedGaussianMixture
    >>> rng, middles = np.random.default_rng(0), np.array([[0, 0], [9, 0], [0, 9]])
    >>> X = rng.normal(size=(3000, 2)) + np.repeat(middles, 1000, axis=0)
    >>> model = TruncatedGaussianMixture(3, random_state=0).fit(X)
    >>> sorted((model.means_.round() + 0.0).tolist())
    [[0.0, 0.0], [0.0, 9.0], [9.0, 0.0]]
    >>> 0.9 < model.covariances_ < 1.1
    True
    """

    _kind = "gaussian-mixture"

    converged_: bool
    coreset_: Coreset | None

    _count = "n_components"
    #: Whether the variances are all as small as they may be.
    _floored = False
    #: The bound at every iteration of the best start.
    _bounds: npt.NDArray[np.float64] | None = None

    def __init__(
        self,
        n_components: int = 8,
        *,
        n_active: int = 5,
        n_neighbors: int = 5,
        explore: Any = "auto",
        coreset_size: Any = None,
        covariance_type: str = "tied_spherical",
        init: Any = "afk-mc2",
        chain_length: int = 20,
        start: str = "cells",
        n_initial_e_steps: int = 0,
        n_init: int = 1,
        means_init: Any = None,
        stopping: str = "auto",
        max_iter: int = 200,
        tol: float = 1e-4,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        callbacks: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_active = n_active
        self.n_neighbors = n_neighbors
        self.explore = explore
        self.coreset_size = coreset_size
        self.covariance_type = covariance_type
        self.init = init
        self.chain_length = chain_length
        self.start = start
        self.n_initial_e_steps = n_initial_e_steps
        self.n_init = n_init
        self.means_init = means_init
        self.stopping = stopping
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    # ---------------------------------------------------------------- fitting

    def _rules(self, problems: _params.Problems) -> None:
        p = _params
        super()._rules(problems)
        problems.check(p.whole, "n_active", self.n_active, 1)
        problems.check(p.whole, "n_neighbors", self.n_neighbors, 1)
        if not (isinstance(self.explore, str) and self.explore == "auto"):
            problems.check(p.whole, "explore", self.explore, 0, other="'auto' or ")
        size = self.coreset_size
        if isinstance(size, (float, np.floating)):
            if not 0 < size <= 1:
                problems.add(f"coreset_size must be a share above 0 and at most 1, got {p.shown(size)}")
        elif size is not None:
            problems.check(p.whole, "coreset_size", size, 1, other="None, a share of the rows or ")
            # What is wrong with either of them was said.
            if p.is_whole(size) and p.is_whole(self.n_components) and 1 <= size < self.n_components:
                problems.add(
                    f"n_components={self.n_components} must be at most the number of rows of the coreset, "
                    f"{size}"
                )
        problems.check(p.one_of, "covariance_type", self.covariance_type, COVARIANCES)
        problems.check(p.whole, "chain_length", self.chain_length, 1)
        problems.check(p.one_of, "start", self.start, STARTS)
        problems.check(p.whole, "n_initial_e_steps", self.n_initial_e_steps, 0)
        problems.check(p.whole, "n_init", self.n_init, 1)
        if self.means_init is not None:
            if isinstance(self.means_init, str) or callable(self.means_init):
                problems.add(f"means_init must be None or an array, got {p.shown(self.means_init)}")
            elif not isinstance(self.init, str):
                problems.add("means_init must be None where init is an array or a callable: both give means")
        problems.check(p.one_of, "stopping", self.stopping, STOPPINGS)

    def iter_fit(self, X: Any, sample_weight: Any = None) -> Iterator[Step]:
        """Fit to the rows of X, one iteration per ``next()``.

        After each, `means_`, `covariances_`, `weights_`, `lower_bound_`, `history_` and the like are those of
        the iteration; `labels_` and `inertia_` are made on access. Leaving the loop early leaves a usable
        estimator. Parameters and X are checked at once. ``fit(X)`` is the whole of this iterator.

        Parameters
        ----------
        X, sample_weight
            As for :meth:`fit`.

        Yields
        ------
        shoal.Step
            What the iteration did. `objective` is the bound of the mean log-likelihood by weight, of the
            parameters before it moved them; `n_changed` counts rows whose nearest component is another one.

        Raises
        ------
        ValueError, TypeError, OSError, KeyboardInterrupt
            As :meth:`fit`.
        """
        return super().iter_fit(X, sample_weight)

    @property
    def _first(self) -> Any:
        return self.init if self.means_init is None else self.means_init

    def _given(self, centers: Any, source: Source) -> npt.NDArray[Any]:
        if self.means_init is None:
            return super()._given(centers, source)
        shape = (int(self.n_components), source.shape[1])
        return _params.centers("means_init", centers, source.compute, shape)

    def _n_starts(self) -> int:
        """Give the number of starts: means that the user gives, or has given, are those of a single one."""
        return int(self.n_init) if isinstance(self._first, str) and not self._by_callable else 1

    def _step_limit(self) -> int:
        return int(self.max_iter) * self._n_starts()

    def _make_run(self, source: Source, rows: Any, weights: npt.NDArray[np.float64] | None) -> Run:
        if self._n_starts() < self.n_init:
            warn(f"first means are given: there is one start instead of n_init={self.n_init}", RuntimeWarning)
        return self._start(source, rows, weights, _params.seed(self.random_state), None)

    def _resumed_run(
        self, source: Source, rows: Any, weights: npt.NDArray[np.float64] | None, state: State
    ) -> Run:
        return self._start(source, rows, weights, 0, state)

    def _start(
        self,
        source: Source,
        rows: Any,
        weights: npt.NDArray[np.float64] | None,
        seed: int,
        state: State | None,
    ) -> Run:
        """Make a run, from its beginning or from a state."""
        # A run that goes on has the means that were given; its later starts choose theirs.
        first = ("auto", None) if state is not None and self._n_starts() == 1 else None
        seeding, centers = first or self._seeding(source, rows, seed)
        share = isinstance(self.coreset_size, (float, np.floating))
        return _core.mixture(
            source,
            n_components=int(self.n_components),
            n_active=int(self.n_active),
            n_neighbors=int(self.n_neighbors),
            explore=None if isinstance(self.explore, str) else int(self.explore),
            coreset_rows=None if share or self.coreset_size is None else int(self.coreset_size),
            coreset_share=float(self.coreset_size) if share else None,
            covariance=self.covariance_type,
            seeding=seeding,
            centers=centers,
            chain=int(self.chain_length),
            start=self.start,
            n_initial_e_steps=int(self.n_initial_e_steps),
            n_init=self._n_starts(),
            stopping=self.stopping,
            max_iter=int(self.max_iter),
            tol=float(self.tol),
            seed=seed,
            threads=_params.threads(self.n_jobs, tell=False),
            weights=weights,
            state=state,
        )

    def _forget(self) -> None:
        super()._forget()
        self._bounds = None

    def _update(self, run: Any, step: Step | None) -> None:
        super()._update(run, step)
        details = run.details()
        self._take(details["variances"], details["weights"], details["neighbors"])
        self._floored, self.converged_ = details["floored"], details["converged"]
        self._bounds = details["lower_bounds"]
        if not hasattr(self, "coreset_"):
            found = run.coreset()
            self.coreset_ = None if found is None else coreset_of(found, self.n_features_in_)

    def _take(self, variances: Any, weights: Any, neighbors: Any) -> None:
        """Set what describes the components, but for their means."""
        if self.covariance_type == "tied_spherical":
            self.covariances_ = float(variances[0])
        elif self.covariance_type == "spherical":
            self.covariances_ = variances
        else:
            self.covariances_ = variances.reshape(self.cluster_centers_.shape)
        self.weights_, self.neighbors_ = weights, neighbors

    def _conclude(self, run: Any) -> None:
        # Labels take a pass that looks at all components: it is made when somebody asks for them.
        self._visited = None
        self._history = self.history_
        if not self.converged_ and self.stop_reason_ not in ENDED_BY_USER:
            warn(
                f"the fit did not converge: after max_iter={self.max_iter} iterations the bound still rises "
                f"by more than tol={self.tol} allows. Increase max_iter or tol.",
                ConvergenceWarning,
            )
        found = len({mean.tobytes() for mean in self.means_})
        if found < self.n_components:
            warn(
                f"Number of distinct components ({found}) found smaller than n_components "
                f"({self.n_components}). Possibly due to duplicate points in X.",
                ConvergenceWarning,
            )
        if self._floored:
            least = float(np.min(self.covariances_))
            why = (
                "all rows are equal, or differ by no more than rounding"
                if found == 1
                else "all rows lie on the means, since there are no more distinct rows than components, or "
                "rows of a component differ by no more than rounding"
            )
            warn(f"the variance is as small as it may be, {least:.3g}: {why}", ConvergenceWarning)

    def _measure(
        self, source: Source, weights: npt.NDArray[np.float64] | None
    ) -> tuple[npt.NDArray[np.int32], float]:
        threads = _params.threads(self.n_jobs, tell=False)
        labels = self._mixture().predict(source, False, threads)
        return labels, _core.inertia(source, self.cluster_centers_, weights, labels, "euclidean", threads)

    # ---------------------------------------------------------------- what was found

    @property
    def lower_bounds_(self) -> npt.NDArray[np.float64]:
        """Bound of the mean log-likelihood by weight at every iteration of the best start."""
        if self._bounds is None:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute 'lower_bounds_': it is not fitted yet"
            )
        return self._bounds

    @property
    def lower_bound_(self) -> float:
        """Bound of the mean log-likelihood by weight, at the last search of the best start."""
        return float(self.lower_bounds_[-1])

    @property
    def n_distances_(self) -> int:
        """Distances that seeding and searches have measured."""
        return int(self.history_["n_distances"].sum())

    # ---------------------------------------------------------------- keeping

    def _kept(self) -> tuple[Arrays, Texts]:
        arrays, texts = super()._kept()
        variances = np.atleast_1d(np.asarray(self.covariances_, dtype=np.float64)).ravel()
        arrays |= {"variances": variances, "weights": self.weights_, "neighbors": self.neighbors_}
        arrays["lower_bounds"] = self.lower_bounds_
        return arrays, texts

    def _about(self) -> dict[str, Any]:
        return {"converged": self.converged_}

    def _recall(self, about: Claims) -> None:
        self.converged_ = about.flag("converged")

    @classmethod
    def _restored(cls, arrays: Arrays, meta: Texts) -> Self:
        model = super()._restored(arrays, meta)
        _params.one_of("covariance_type", model.covariance_type, COVARIANCES)
        k, d = model.cluster_centers_.shape
        need(model.n_components == k, f"it has {k} means, and n_components={model.n_components}")
        sizes = {"tied_spherical": 1, "spherical": k, "diag": k * d}
        variances = floats(arrays, "variances", (sizes[model.covariance_type],))
        weights = floats(arrays, "weights", (k,))
        neighbors = arrays.get("neighbors", np.empty(0))
        need(neighbors.dtype == np.int32 and neighbors.ndim == 2, "it lacks its neighbourhoods")
        model._take(variances, weights, neighbors)
        # What does not fit together is refused here.
        model._mixture("neighbors")
        model._bounds = floats(arrays, "lower_bounds", (model.n_iter_,))
        need(model.n_iter_ > 0, "it has made no iteration")
        model.coreset_ = None
        return model
