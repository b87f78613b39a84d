"""Balanced k-means: limits of the sizes of clusters."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ._checks import params as _params
from ._checks.params import NOT_NEGATIVE, RowWeights
from ._core import Source
from ._fit.clusterer import CenterClusterer
from ._fit.declared import UNSET, estimator
from ._fit.saved import Arrays, Texts, floats, need
from .typing import Algorithm, Callbacks, Init, Memory, Metric, RandomState

__all__ = ["BalancedKMeans"]

#: The parameters that are sizes of clusters.
LIMITS = ("size_min", "size_max")


@estimator
class BalancedKMeans(CenterClusterer):
    """K-means with limits on cluster sizes, and a bound on its distance from the optimum.

    Exact k-means comes first. Each following sweep finds the assignment of least total squared distance that
    keeps the limits, and then moves the centers to the means of their rows. A price per cluster, added to
    squared distances, makes the rows of full clusters choose others. The prices also give a lower bound on
    the inertia of all assignments that keep the limits. `gap_` says how far the assignment is from the bound.

    Without limits, the result is that of :class:`~shoal.KMeans`, bit for bit. Results are bit-identical for
    any number of threads, and for an array, a memory map or an ``.npy`` file with the same rows.

    Parameters
    ----------
    {n_clusters}
    size_min : int, float, str or None, default=None
        Smallest size of a cluster. An int is a number of rows. A float, or text such as ``"0.9x"``, is a
        multiple of the mean size ``n_samples / n_clusters``, rounded down. So ``1`` is a row, while ``1.0``
        and ``"1x"`` are the mean size. None: no limit.
    size_max : int, float, str or None, default=None
        Largest size of a cluster, as `size_min`; a multiple is rounded up. ``size_min="1x", size_max="1x"``
        gives clusters of equal size, up to one row.
    init : str, array-like or callable, default="auto"
        First centers. As for :class:`~shoal.KMeans`; a callable is called once.
    n_init : "auto" or int, default="auto"
        Number of starts of exact k-means. The start with the lowest inertia is balanced. As for
        :class:`~shoal.KMeans`, but given centers and callables make one start.
    {metric} {random_state} {expert}
    max_iter : int, default=300
        Maximum number of sweeps per start of exact k-means, and of sweeps with limits.
    tol : float, default=1e-4
        Tolerance of exact k-means, as for :class:`~shoal.KMeans`. A fit with limits also ends when a sweep
        lowers the inertia by at most this fraction.
    algorithm : str, default="auto"
        How sweeps of exact k-means find the nearest centers. As for :class:`~shoal.KMeans`; results do not
        depend on it.
    memory : str or int, default="1GB"
        Memory budget for distance bounds, as for :class:`~shoal.KMeans`, and for the candidates of the rows
        in sweeps with limits. Each row has at least 2 candidates; with fewer than 8, `gap_` may be larger.
    copy_x : bool, default=True
        Accepted for compatibility with k-means-constrained. X is never modified.
    {n_jobs} {verbose} {callbacks}
        After an early end, the labels still keep the limits.
    bounds_memory : str or int
        Deprecated name of `memory`.

    Attributes
    ----------
    {cluster_centers_}
    labels_ : ndarray of shape (n_samples,), int32
        Cluster of every row. These labels keep the limits. ``predict(X)`` gives nearest centers instead.
    inertia_ : float
        Weighted sum of squared distances of the rows to the centers of `labels_`; differences and sums in
        float64.
    sizes_ : ndarray of shape (n_clusters,), float64
        Weight of the rows in each cluster. Equal to `counts_`.
    prices_ : ndarray of shape (n_clusters,), float64
        Price per cluster, in the unit of squared distances. Positive for a full cluster that more rows
        would choose, negative for one that `size_min` fills, else 0. Zeros without limits, and before the
        first sweep with limits.
    lower_bound_ : float
        No labels that keep the limits have a lower inertia for these centers. NaN before the first sweep with
        limits.
    gap_ : float
        ``(inertia_ - lower_bound_) / inertia_``, at least 0: the fraction of the inertia that better labels
        could save at most. NaN before the first sweep with limits.
    {counts_}
    n_iter_ : int
        Number of sweeps: those of the best start, and those with limits.
    {history_}
        A step is a sweep of one of the starts, or a sweep with limits. The objective is the inertia of the
        sweep, which rises when the limits begin to hold.
    {stop_reason_} {timings_}
    algorithm_, init_ : str
        The algorithm of exact k-means and the seeding in use; ``"auto"`` resolved.
    {n_zero_rows_} {features_in}

    Raises
    ------
    ValueError
        If no clustering keeps the limits. The message gives both sides of the inequality.

    See Also
    --------
    KMeans : Exact k-means without limits.
    shoal.neighbors : Inverted lists, which are searched evenly if clusters have similar sizes.

    Notes
    -----
    **Cost.** A sweep with limits computes all distances and keeps the 8 cheapest clusters of every row (all
    clusters, if there are at most 16). Newton's method on the prices then leaves few rows in the wrong
    cluster; shortest paths between clusters move these, which gives the assignment of least cost among the
    candidates. A sweep begins at the prices of the sweep before. If more than 5% of the rows must leave the
    clusters of exact k-means, centers and prices first settle on samples of up to 256 rows per cluster. In
    sweeps with limits, centers move 1.5 times the way to the means, until few labels change.

    **Memory** beyond the rows: that of :class:`~shoal.KMeans`, and at most 52 bytes per row and candidate
    during a sweep with limits: 416 bytes for 8 candidates. `memory` bounds them, and the samples.

    **Quality.** The assignment is optimal among the candidates. Rows without a free candidate, for example
    many identical ones, go to the nearest center with room, in the order that costs least. `gap_` includes
    this loss.

    **Weights.** Sizes are sums of weights. Each row stays in one cluster as a whole, so a cluster may miss a
    limit by up to the largest weight, and `lower_bound_` is that of the relaxed problem, in which a row may
    be divided among clusters. With equal weights, limits are exact up to whole rows.

    **Stopping rules.** The objective and the inertia of held-out rows rise when the limits take effect. Set
    the `patience` of :class:`shoal.callbacks.EarlyStopping` high enough for this rise.

    References
    ----------
    P. S. Bradley, K. P. Bennett and A. Demiriz, "Constrained k-means clustering", MSR-TR-2000-65, 2000.

    J. Kitagawa, Q. Mérigot and B. Thibert, "Convergence of a Newton algorithm for semi-discrete optimal
    transport", Journal of the European Mathematical Society, 2019.

    R. K. Ahuja, T. L. Magnanti and J. B. Orlin, "Network flows", 1993, chapter 9.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import BalancedKMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [2, 2], [10, 4], [10, 0]], dtype="float32")
    >>> model = BalancedKMeans(n_clusters=2, size_max=3, random_state=0).fit(X)
    >>> model.sizes_.tolist(), round(model.gap_, 6)
    ([3.0, 3.0], 0.0)
    """

    n_clusters: int = 8
    _: KW_ONLY
    size_min: float | str | None = None
    size_max: float | str | None = None
    init: Init = "auto"
    n_init: int | Literal["auto"] = "auto"
    max_iter: int = 300
    tol: Annotated[float, NOT_NEGATIVE] = 1e-4
    algorithm: Algorithm = "auto"
    metric: Metric = "euclidean"
    memory: Memory = "1GB"
    copy_x: bool = True
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0
    callbacks: Callbacks = None
    bounds_memory: Annotated[Memory, UNSET] = UNSET

    _kind = "balanced-kmeans"
    _method = "balanced"
    _saved_attributes: ClassVar = {
        "algorithm_": "text",
        "lower_bound_": "figure_or_nan",
        "gap_": "figure_or_nan",
    }

    def _rules(self, problems: _params.Problems) -> None:
        p = _params
        super()._rules(problems)
        for name in LIMITS:
            value = getattr(self, name)
            if value is not None and p.size(value) is None:
                problems.add(
                    f"`{name}` must be `None`, a number of rows as an int of at least 0, or a multiple of "
                    f"the mean size as a finite float of at least 0 or text such as '1.1x', got "
                    f"{p.shown(value)}"
                )

    @property
    def _has_limits(self) -> bool:
        return self.size_min is not None or self.size_max is not None

    @property
    def sizes_(self) -> npt.NDArray[np.float64]:
        """Weight of the rows in each cluster, an array of shape (n_clusters,)."""
        return self.counts_

    def _options(self, source: Source | None) -> dict[str, Any]:
        return {"n_init": self._n_starts()} | {name: _params.size(getattr(self, name)) for name in LIMITS}

    def _n_starts(self) -> int:
        return super()._n_starts() if isinstance(self.init, str) else 1

    def _read(self, run: Any) -> None:
        super()._read(run)
        details = run.details()
        self.algorithm_: str = run.algorithm
        prices = details["prices"]
        self.prices_: npt.NDArray[np.float64] = prices if len(prices) else np.zeros(int(self.n_clusters))
        self.lower_bound_: float = details["lower_bound"]
        self.gap_: float = details["gap"]

    def _measure(self, source: Source, weights: RowWeights) -> tuple[npt.NDArray[np.int32], float]:
        if not self._has_limits:
            return super()._measure(source, weights)
        # Finishing a run with limits does not change its next step.
        self._run.finish()
        return self._run.labels(), self._run.inertia()

    def _kept(self) -> tuple[Arrays, Texts]:
        arrays, texts = super()._kept()
        return arrays | {"prices": self.prices_}, texts

    @classmethod
    def _restored(cls, arrays: Arrays, meta: Texts) -> Any:
        model = super()._restored(arrays, meta)
        model.prices_ = floats(arrays, "prices", (len(model.counts_),))
        need(bool(np.isfinite(model.prices_).all()), "its prices are not finite")
        return model
