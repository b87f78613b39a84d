"""Gaussian mixtures, fitted by truncated variational EM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

from . import _core
from ._checks import params as _params
from ._checks.marked import unmarked
from ._checks.params import NOT_NEGATIVE, RowWeights
from ._checks.warn import warn, warn_of_few
from ._core import Run, Source, Step
from ._fit.declared import AtLeast, estimator
from ._fit.earlier import STOPPED
from ._fit.estimator import BEGIN
from ._fit.saved import Claims, State
from ._mixture.factors import chosen_factors
from ._mixture.file import StoredMixture
from ._mixture.model import WHOLE, covariance_shape
from .coreset import coreset_of
from .typing import ActiveStart, Callbacks, Covariance, Init, Metric, RandomState, Rows, Stopping, Weights

__all__ = ["TruncatedGaussianMixture"]


def _factors_of(state: State) -> int:
    """Return the number of factors that was chosen for the fit of a checkpoint."""
    return Claims.read(state[2], BEGIN).count("n_factors")


@estimator
class TruncatedGaussianMixture(StoredMixture):
    """Gaussian mixture for thousands of components, by truncated variational EM.

    Each iteration evaluates only a few components per row, so its cost barely grows with the number of
    components. For each row, it evaluates the neighbors of the `n_active` nearest components found so far, at
    most ``n_active * n_neighbors``. With `coreset_size`, the fit uses a weighted sample of the rows, and
    reads a file only twice.

    Choose it for densities (``covariance_type="diag"`` or ``"spherical"``), for soft labels
    (:meth:`predict_proba`), and for thousands of clusters.

    Results are bit-identical for any number of threads, and for an array, a memory map or an ``.npy`` file
    with the same rows.

    Parameters
    ----------
    n_components : int, default=8
        Number of components, at least 1 and at most the number of rows (of the coreset, if there is one).
    covariance_type : {"tied_spherical", "spherical", "diag", "tied", "full", "factor"}, \
            default="tied_spherical"
        - ``"tied_spherical"``: one variance for all components, and equal weights. This finds clusters as
          k-means does.
        - ``"spherical"``: a variance and a weight for each component.
        - ``"diag"``: a variance for each component and feature, and weights; not for sparse rows.
        - ``"tied"``: one covariance between features for all components, and weights; not for sparse rows.
        - ``"full"``: a covariance between features for each component, and weights, for up to about 100
          features and enough rows per component; not for sparse rows. See Notes for the cost.
        - ``"factor"``: a mixture of factor analyzers. Each component has `n_factors` directions in which it
          extends, in addition to the variances of ``"diag"``; not for sparse rows. This is the best density
          for many correlated features, such as the pixels of images.

        All but ``"tied_spherical"`` begin with two iterations of ``"tied_spherical"``.
    n_factors : int, "auto" or None, default=None
        Number of factors per component (H), at least 1 and less than the number of features. Only for
        ``covariance_type="factor"``. None: 5, or all features but one if there are fewer than 6. ``"auto"``
        chooses it by the likelihood of held-out rows, see Notes.
    init : {"auto", "random", "k-means++", "plain-k-means++", "afk-mc2", "k-mc2", "k-means||", \
            "hierarchical"}, array-like or callable, default="afk-mc2"
        First means, as for :class:`KMeans`.
    coreset_size : int, float or None, default=None
        Fit to a lightweight coreset (see :func:`lightweight_coreset`) of this many rows, or of this fraction
        of the rows (above 0, at most 1). None, or a size of at least the number of rows: fit to all rows.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"`` fits the mixture to the rows scaled to length 1 as they are read, and scores rows in the
        same way. Means are not projected to the unit sphere. See :class:`KMeans` for rows of zeros.
    {random_state} {expert}
    n_active : int, default=5
        Number of components that share a row (C'), at least 1 and at most `n_components`. 1: hard labels, as
        in k-means; `n_components`: textbook EM.
    n_neighbors : int, default=5
        Number of components in a neighborhood (G), including the component itself; at least 1 and at most
        `n_components`. The paper recommends 5 to 10, as for `n_active`.
    explore : "auto" or int, default="auto"
        Number of random components that each row also evaluates in every iteration. ``"auto"``: 1 if
        `n_active` is at most 3, because so few components get stuck otherwise, else 0. Use 1 for clusters
        that lie far apart.
    chain_length : int, default=20
        Candidates per mean for ``init="afk-mc2"`` and ``init="k-mc2"``.
    start : {"cells", "random"}, default="cells"
        How rows find their first components. Has no effect if `n_active` or `n_neighbors` is `n_components`
        or more.

        - ``"cells"``: searches the first ``sqrt(2 * n_components)`` means, and the means around the nearest
          two of these. This takes about ``sqrt(8 * n_components)`` distances per row, once, and more if the
          means are spread unevenly around the first ones.
        - ``"random"``: searches the neighbors of randomly drawn means, as in the paper. This takes some more
          iterations. If clusters differ greatly in size, many rows do not find the nearby means before these
          have moved.
    n_initial_e_steps : int, default=0
        Number of additional E-steps before the first M-step; one is always made. The paper tried 2 to 4
        additional ones, for data with few features.
    n_init : int, default=1
        Number of starts. The start with the highest bound wins, the earlier one among equals. All starts are
        fitted to the same coreset, if there is one. If `means_init`, or an array or a callable as `init`,
        gives the means, the fit makes a single start, and a larger `n_init` raises a RuntimeWarning.
    means_init : array-like of shape (n_components, n_features) or None, default=None
        First means; the same as ``init=array``. Overrides a name in `init`.
    weights_init : array-like of shape (n_components,) or None, default=None
        First weights of the components, which sum to 1. None: equal weights. A fit with `weights_init` or
        `precisions_init` does not begin with iterations of ``"tied_spherical"``. Must be None for
        ``covariance_type="tied_spherical"`` and ``"factor"``.
    precisions_init : float, array-like or None, default=None
        First precisions, the inverses of the covariances, in the shape of `covariances_`. None: from the
        rows. Must be None for ``covariance_type="factor"``.
    reg_covar : float, default=0.0
        A number of at least 0 that every iteration adds to the variances it computes. Variances also have
        lower limits without it, see Notes. If it is above 0, the bound can fall a little, and a fit has
        converged when the bound changes by at most `tol`. scikit-learn adds 1e-6.
    warm_start : bool, default=False
        Whether a fit begins with the means, variances, loadings and weights of the previous fit of this
        estimator, if there is one. It then makes a single start, and ignores `init`, `means_init`,
        `weights_init` and `precisions_init`.
    stopping : {"auto", "per-weight", "relative"}, default="auto"
        When a start has converged.

        - ``"auto"``: an iteration raises the bound by at most `tol` nats per unit of weight and feature. This
          does not depend on the unit of X. With ``covariance_type="tied_spherical"`` an iteration then lowers
          the squared error by a fraction of about ``2 * tol``.
        - ``"per-weight"``: an iteration raises the bound by at most `tol` nats per unit of weight. This rule
          is stricter the more features there are.
        - ``"relative"``: an iteration changes the bound by at most `tol` times its value, as in the paper.
          This depends on the unit of X.
    max_iter : int, default=200
        Maximum number of iterations per start, at least 1. A fit that has not converged by then raises a
        :class:`~sklearn.exceptions.ConvergenceWarning`.
    tol : float, default=1e-4
        See `stopping`.
    {n_jobs} {verbose} {callbacks}

    Attributes
    ----------
    means_, cluster_centers_ : ndarray of shape (n_components, n_features), float32 or float64
        Means, in the compute type of the rows. Both names refer to one array.
    covariances_ : float or ndarray, float64
        Variances, or covariances of features. A float for ``"tied_spherical"``; an array of shape
        (n_components,) for ``"spherical"``, (n_components, n_features) for ``"diag"`` and ``"factor"``,
        (n_features, n_features) for ``"tied"`` and (n_components, n_features, n_features) for ``"full"``.
        With ``"factor"``: the variances that the factors do not explain.
    precisions_ : float or ndarray, float64
        Inverses of the covariances, in the shape of `covariances_`; with ``"factor"`` in the shape of
        ``"full"``.
    loadings_ : ndarray of shape (n_components, n_factors, n_features), float64, or None
        Loadings of the factors; None unless `covariance_type` is ``"factor"``. The covariance of component
        ``c`` is ``loadings_[c].T @ loadings_[c] + np.diag(covariances_[c])``.
    n_factors_ : int or None
        Number of factors per component; None unless `covariance_type` is ``"factor"``.
    weights_ : ndarray of shape (n_components,), float64
        Prior weights of the components; 0 for a component that has lost all rows.
    lower_bound_ : float
        Lower bound of the mean log-likelihood by weight, at the last search of the best start.
    lower_bounds_ : ndarray of shape (n_iter_,)
        The same bound after every iteration of the best start.
    converged_ : bool
        Whether the best start ended by `tol`.
    n_iter_ : int
        Number of iterations of the best start.
    n_distances_ : int
        Number of distances that the seeding and the searches of all starts computed: from rows to means, and
        from means to means.
    coreset_ : Coreset or None
        The weighted rows of the fit; None if the fit used all rows. Not saved to files.
    neighbors_ : ndarray of shape (n_components, n_neighbors), int32
        The nearest components per component, itself first, as estimated from the rows.
    labels_ : ndarray of shape (n_samples,), int32
        Most likely component of every row; equal to ``predict(X)``. Computed on first access by a pass over
        all rows and all components.
    inertia_ : float
        Weighted sum of squared distances of all rows to the means of their components. Also computed on first
        access.
    counts_ : ndarray of shape (n_components,), float64
        Total weight of the rows per component; shared rows count in part.
    history_ : structured ndarray of shape (n_steps,)
        One row per iteration of every start; `objective` is the bound.
    stop_reason_ : str or None
        ``"tolerance"``, ``"max-iter"``, ``"callback"``, ``"deadline"`` or ``"patience"``; None during the
        fit.
    timings_ : dict of str to float
        Seconds by phase: ``seeding`` (with the coreset), ``sweeps``, ``final``.
    {init_} {n_zero_rows_} {features_in}

    See Also
    --------
    KMeans : Exact k-means, for up to about 1000 clusters.
    lightweight_coreset : The weighted rows that `coreset_size` uses.

    Notes
    -----
    **When to use it.** Prefer :class:`KMeans` with ``init="afk-mc2"`` for up to about 1000 clusters, if the
    squared error is what counts: it is faster in most cases. The errors are about equal with 10 features and
    more. With 2 features the error of this class is higher, because means that share rows are pulled
    together. With tens of thousands of clusters this class is faster, and its error can be slightly higher.

    Prefer weighted ``KMeans(init="afk-mc2")`` on a :func:`lightweight_coreset` for a quick result. It takes a
    fraction of the time of this class on all rows, for a higher error (``benches/python/papers/vcgmm.py
    defaults``).

    With clusters of very different sizes that lie far apart, the result depends on the seeds. Use
    ``init="plain-k-means++"``, because a short AFK-MC2 chain seeds poorly there.

    **Cost.** An iteration computes at most ``n_samples * n_active * n_neighbors`` distances; for the first
    iteration see `start`. Memory beyond the rows: ``8 * n_active`` bytes per row (of the coreset, if there is
    one; twice that with several starts), ``O(n_components * n_features)``, and some MB per thread.

    **Bound and variances.** The bound never falls: a row keeps its components until it finds nearer ones.
    (With ``"full"`` it may fall slightly where a covariance is nearly singular: see `reg_covar`.) Variances
    have lower limits, because a component on a single row would have an infinite density. The
    limits lie above the rounding errors of the values. If components have their own variances, the limits are
    also at least a billionth of the shared variance at the end of the first two iterations (``"diag"``,
    ``"tied"`` and ``"full"``: of the variance of that feature; ``"factor"``: a ten-thousandth of it).

    Densities are computed in the type of the means: with float32, a squared distance to a relevant component
    has a relative error of about 1e-7. With ``"factor"`` a distance is a difference of two squares, and this
    is the relative error of the larger one.

    **Covariances of features.** With d features, an iteration of ``"tied"`` takes ``d**2`` multiplications
    per row in addition to its distances. A distance of ``"full"`` takes ``d**2`` multiplications, and the
    sums of an iteration take ``8 * n_components * d**2`` bytes per thread. Both types begin without
    correlation. The lower limits hold for the variance of a feature given the features before it. They are
    small, so components of ``"full"`` with fewer rows than features need `reg_covar`.

    **Factors.** A component with loadings ``L`` of H factors and variances ``D`` has the covariance ``L.T @ L
    + np.diag(D)``. A distance takes ``O(n_features * H)`` by the identity of Woodbury; no matrix of
    ``n_features`` squared is ever formed. The sums of an iteration take ``8 * n_components * n_features * (H
    + 2)`` bytes, those of ``"diag"`` twice ``8 * n_components * n_features``. When the
    fit switches to factors, each component turns its H features of largest variance into one factor each.
    Its density does not change, so the bound does not fall.

    ``n_factors="auto"`` fits mixtures of 1, 2, 3, 5, 8, 13, 21, 34 and 55 factors to three quarters of a
    sample of the rows, in at most 50 iterations, and takes the number with the highest mean log density of
    the last quarter. More factors must gain more than two standard errors of the difference. The search
    stops after two numbers in a row that gain less. The sample has 500 rows per component, and at least
    10,000, but takes at most 256 MB, so the cost does not grow with the number of rows. At least 120 rows
    are needed, or 30 more than components. The draws follow from `random_state`. :func:`shoal.resume` reads
    the number from the checkpoint. Progress bars and callbacks see these fits one by one, with an estimator
    that has the number as `n_factors`; a true value of a callback ends the one in progress. Only
    ``Checkpoint`` and ``ValidationCurve`` do not see them.

    References
    ----------
    F. Hirschberger, D. Forster and J. Lücke, "Large scale clustering with variational EM for Gaussian mixture
    models", arXiv 1810.00803 (2018); "A variational EM acceleration for efficient clustering at very large
    scales", IEEE TPAMI 44 (2022).

    S. Salwig, T. Kahlke, F. Hirschberger, D. Forster and J. Lücke, "Sublinear variational optimization of
    Gaussian mixture models with millions to billions of parameters", arXiv 2501.12299 (2025), for
    ``"factor"``. Z. Ghahramani and G. E. Hinton, "The EM algorithm for mixtures of factor analyzers",
    technical report CRG-TR-96-1, University of Toronto (1996).

    O. Bachem, M. Lucic and A. Krause, "Scalable k-means clustering via lightweight coresets", KDD 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import TruncatedGaussianMixture
    >>> rng, true_means = np.random.default_rng(0), np.array([[0, 0], [9, 0], [0, 9]])
    >>> X = rng.normal(size=(3000, 2)) + np.repeat(true_means, 1000, axis=0)
    >>> model = TruncatedGaussianMixture(3, random_state=0).fit(X)
    >>> sorted((model.means_.round() + 0.0).tolist())
    [[0.0, 0.0], [0.0, 9.0], [9.0, 0.0]]
    >>> 0.9 < model.covariances_ < 1.1
    True
    """

    n_components: int = 8
    _: KW_ONLY
    n_active: int = 5
    n_neighbors: int = 5
    explore: Annotated[int | Literal["auto"], AtLeast(0)] = "auto"
    coreset_size: float | None = None
    covariance_type: Covariance = "tied_spherical"
    n_factors: int | Literal["auto"] | None = None
    init: Init = "afk-mc2"
    chain_length: int = 20
    start: ActiveStart = "cells"
    n_initial_e_steps: Annotated[int, AtLeast(0)] = 0
    n_init: int = 1
    means_init: npt.ArrayLike | None = None
    weights_init: npt.ArrayLike | None = None
    precisions_init: npt.ArrayLike | None = None
    reg_covar: Annotated[float, NOT_NEGATIVE] = 0.0
    warm_start: bool = False
    stopping: Stopping = "auto"
    max_iter: int = 200
    tol: Annotated[float, NOT_NEGATIVE] = 1e-4
    metric: Metric = "euclidean"
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0
    callbacks: Callbacks = None

    _kind = "gaussian-mixture"
    _method = "mixture"
    _counts_labels = False
    # A warm start sets them.
    _hidden = ("loadings_init",)

    _count = "n_components"
    #: Whether all variances lie at their lower limit.
    _floored = False

    def __sklearn_tags__(self) -> Any:
        """Return the tags of scikit-learn: sparse rows need one variance per component."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.covariance_type in ("tied_spherical", "spherical")
        return tags

    def _rules(self, problems: _params.Problems) -> None:
        p = _params
        super()._rules(problems)
        size = self.coreset_size
        if isinstance(size, (float, np.floating)):
            if not 0 < size <= 1:
                problems.add(f"`coreset_size` must be a fraction above 0 and at most 1, got {p.shown(size)}")
        elif size is not None:
            problems.check(p.whole, "coreset_size", size, 1, other="`None`, a fraction of the rows or ")
            # Compared only if both values are valid by themselves.
            if p.is_whole(size) and p.is_whole(self.n_components) and 1 <= size < self.n_components:
                problems.add(
                    f"`n_components`={self.n_components} must be at most the number of rows of the coreset, "
                    f"{size}"
                )
        if self.n_factors is not None and self.covariance_type != "factor":
            problem = (
                f"with `covariance_type`={p.shown(self.covariance_type)}, got {p.shown(self.n_factors)}. "
                "Use `covariance_type`='factor' for components with factors."
            )
            problems.add(
                f"`n_factors` must be left out {problem}", unmarked(f"n_factors must be None {problem}")
            )
        if self.means_init is not None:
            if isinstance(self.means_init, str) or callable(self.means_init):
                problems.add(f"`means_init` must be `None` or an array, got {p.shown(self.means_init)}")
            elif not isinstance(self.init, str):
                problems.add(
                    "`means_init` must be `None` if `init` is an array or a callable: both set the first "
                    "means"
                )
        without = {"weights_init": ("tied_spherical", "factor"), "precisions_init": ("factor",)}
        for name, types in without.items():
            if getattr(self, name) is not None and self.covariance_type in types:
                problems.add(
                    f"`{name}` must be `None` with `covariance_type`={p.shown(self.covariance_type)}, got "
                    f"{p.shown(getattr(self, name))}"
                )

    def iter_fit(self, X: Rows, sample_weight: Weights = None) -> Iterator[Step]:
        """Fit to the rows of X, one iteration per ``next()``.

        After each iteration `means_`, `covariances_`, `weights_`, `lower_bound_`, `history_` and similar
        attributes are current. `labels_` and `inertia_` are computed on access. Leaving the loop early leaves
        a usable estimator. Parameters and X are checked at the call. Exhausting this iterator equals
        ``fit(X)``.

        Parameters
        ----------
        X, sample_weight
            As for :meth:`fit`.

        Yields
        ------
        shoal.Step
            The figures of the iteration. `objective` is the bound of the mean log-likelihood by weight, for
            the parameters before the iteration changed them. `n_changed` is the number of rows whose nearest
            component changed.

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
        """Return the number of starts: 1 if the user sets the first means, else `n_init`."""
        return int(self.n_init) if isinstance(self._first, str) and not self._by_callable else 1

    def _step_limit(self) -> int:
        return int(self.max_iter) * self._n_starts()

    def _make_run(self, source: Source, rows: Any, weights: RowWeights) -> Any:
        if self._n_starts() < self.n_init:
            warn(
                f"`n_init`={self.n_init} is ignored: the first means are given, so the fit makes one start",
                RuntimeWarning,
            )
        return super()._make_run(source, rows, weights)

    def _resumed_run(self, source: Source, rows: Any, weights: RowWeights, state: State) -> Run:
        # The state of a single start already holds its first means; several starts still draw theirs.
        init = "auto" if self._n_starts() == 1 else self._seeding(source, rows, 0)
        return self._start(source, weights, init, 0, state)

    def _options(self, source: Source | None) -> dict[str, Any]:
        assert source is not None
        options = {"n_init": self._n_starts(), "chain_length": int(self.chain_length)}
        return options | self._first_parameters(source.shape[1])

    def _first_parameters(self, d: int) -> dict[str, Any]:
        """Return the parameters with which a fit to rows of `d` features begins, except the means."""
        if self._is_warm:
            equal = self.covariance_type == "tied_spherical"
            # Those of factors are the inverses of the variances that the factors do not explain.
            found = 1 / self.covariances_ if self.covariance_type == "factor" else self.precisions_
            precisions = np.atleast_1d(np.asarray(found, dtype=np.float64)).ravel()
            loadings = None if self.loadings_ is None else self.loadings_.ravel()
            return {
                "weights_init": None if equal else self.weights_,
                "precisions_init": precisions,
                "loadings_init": loadings,
            }
        k = int(self.n_components)
        given: dict[str, Any] = {"weights_init": None, "precisions_init": None}
        if self.weights_init is not None:
            given["weights_init"] = _params.numbers("weights_init", self.weights_init, (k,))
        if self.precisions_init is not None:
            shape = covariance_shape(self.covariance_type, k, d)
            given["precisions_init"] = _params.numbers("precisions_init", self.precisions_init, shape).ravel()
        return given

    def _start(
        self,
        source: Source | None,
        weights: RowWeights,
        init: str | npt.NDArray[Any],
        seed: int,
        state: State | None = None,
        **more: Any,
    ) -> Run:
        if self.n_factors == "auto":
            assert source is not None
            if state is not None:
                self._chosen_factors = _factors_of(state)
            elif self._is_warm:
                self._chosen_factors = self.n_factors_
            else:
                self._chosen_factors = chosen_factors(self, source, weights, seed)
            more["n_factors"] = self._chosen_factors
        return super()._start(source, weights, init, seed, state, **more)

    def _at_begin(self) -> dict[str, Any]:
        chosen = {"n_factors": self._chosen_factors} if self.n_factors == "auto" else {}
        return super()._at_begin() | chosen

    def _made_anew(self, state: State, make: Callable[[], Any]) -> Any:
        if self.n_factors != "auto":
            return super()._made_anew(state, make)
        self._chosen_factors = self.n_factors = _factors_of(state)
        try:
            return super()._made_anew(state, make)
        finally:
            self.n_factors = "auto"

    @property
    def _is_warm(self) -> bool:
        """Whether the next fit begins with the solution of the previous one."""
        return bool(self.warm_start) and hasattr(self, "weights_")

    def _seeding(self, source: Source, rows: Any, seed: int) -> str | npt.NDArray[Any]:
        if not self._is_warm:
            return super()._seeding(source, rows, seed)
        shape, wanted = self.means_.shape, (int(self.n_components), source.shape[1])
        same = self._fitted_type == self.covariance_type
        if self.n_factors not in (None, "auto"):
            same = same and self.n_factors == self.n_factors_
        if shape != wanted or not same:
            raise ValueError(
                "warm_start must be False if n_components, covariance_type, n_factors or the number of "
                f"features of X changes: the previous fit has means of shape {shape}, this one {wanted}"
            )
        return self.means_.astype(source.compute)

    def _go_on(self, state: State, source: Source, rows: Any, weights: RowWeights) -> Iterator[Step]:
        if self.warm_start and not len(state[1].get("history_counts", ())):
            raise ValueError(
                "the checkpoint must hold an iteration of a fit with warm_start=True: it lacks the previous "
                "fit. Call fit again."
            )
        return super()._go_on(state, source, rows, weights)

    def _forget(self) -> None:
        super()._forget()
        self._bounds = None

    def _update(self, run: Any, step: Step | None) -> None:
        super()._update(run, step)
        if self.init_ == "given":
            # The means of the previous fit.
            self.init_ = "array"
        details = run.details()
        self._take(details["variances"], details["weights"], details["neighbors"], details["loadings"])
        self._floored, self.converged_ = details["floored"], details["converged"]
        self._bounds = details["lower_bounds"]
        if not hasattr(self, "coreset_"):
            found = run.coreset()
            self.coreset_ = None if found is None else coreset_of(found, self.n_features_in_)

    def _conclude(self, run: Any) -> None:
        # Labels need a pass over all components. It is made on first access.
        self._visited = None
        self._history = self.history_
        if not self.converged_ and self.stop_reason_ not in STOPPED:
            warn(
                f"the fit did not converge: after `max_iter`={self.max_iter} iterations the bound still "
                f"rises by more than `tol`={self.tol}. Increase `max_iter` or `tol`.",
                ConvergenceWarning,
            )
        found = len({mean.tobytes() for mean in self.means_})
        if found < self.n_components:
            warn_of_few("components", found, self.n_components)
        if self._floored:
            variances = np.asarray(self.covariances_)
            whole = self.covariance_type in WHOLE
            least = float(np.min(variances.diagonal(axis1=-2, axis2=-1) if whole else variances))
            why = (
                "all rows are equal, or differ only by rounding"
                if found == 1
                else "all rows lie on the means, because there are no more distinct rows than components, or "
                "the rows within every component differ only by rounding"
            )
            warn(f"all variances are at their lower limit, {least:.3g}: {why}", ConvergenceWarning)

    def _measure(self, source: Source, weights: RowWeights) -> tuple[npt.NDArray[np.int32], float]:
        rows = source.seen_by(self.metric)
        labels = self._mixture().predict(rows, False, self._threads)
        return labels, _core.inertia(rows, self.cluster_centers_, weights, labels, "euclidean", self._threads)

    @property
    def n_distances_(self) -> int:
        """Number of distances computed by the seeding and the searches."""
        return int(self.history_["n_distances"].sum())
