"""Breathing k-means: exact k-means that leaves its local minimum."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Annotated, Any, ClassVar

from ._checks.params import NOT_NEGATIVE
from ._fit.clusterer import CenterClusterer
from ._fit.declared import UNSET, AtLeast, estimator
from .typing import Algorithm, Callbacks, Init, Memory, Metric, RandomState

__all__ = ["BreathingKMeans"]


@estimator
class BreathingKMeans(CenterClusterer):
    """Breathing k-means: a lower inertia than restarts of k-means.

    After exact k-means, the fit makes breaths. A breath adds `m` centers to the clusters with the largest
    squared error, runs exact k-means, removes the `m` centers whose removal raises the inertia least, and
    runs exact k-means again. A breath that does not lower the inertia is undone. Three failed breaths in a
    row lower `m` by one. The fit ends at ``m = 0``.

    The inertia is never above that of :class:`~shoal.KMeans` with the same parameters and ``n_init=1``.
    Results are bit-identical for any number of threads, and for an array, a memory map or an ``.npy`` file
    with the same rows.

    Parameters
    ----------
    {n_clusters}
    m : int, default=5
        Number of centers that the first breath adds and removes, at most `n_clusters`. More of them find
        lower minima and take longer. 0: no breath, one start of exact k-means.
    init : str, array-like or callable, default="auto"
        First centers. As for :class:`~shoal.KMeans`.
    {metric} {random_state} {expert}
    max_iter : int, default=3000
        Maximum number of sweeps, over all breaths.
    tol : float, default=1e-4
        Tolerance of exact k-means, as for :class:`~shoal.KMeans`; the last run uses ``tol / 100``. A breath
        that lowers the inertia by less than the fraction `tol` is kept, but counts as failed.
    algorithm : str, default="auto"
        How a sweep finds the nearest centers. As for :class:`~shoal.KMeans`; results do not depend on it.
    memory : str or int, default="1GB"
        Memory budget for distance bounds. As for :class:`~shoal.KMeans`.
    {n_jobs} {verbose} {callbacks}
        The fit then keeps the best clustering so far.
    bounds_memory : str or int
        Deprecated name of `memory`.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float32 or float64
        Centers of the best clustering so far, in the compute type of the rows.
    {labels_} {inertia_} {counts_}
    n_breaths_ : int
        Number of breaths.
    start_inertia_ : float
        Inertia before the first breath; NaN until exact k-means has ended for the first time.
    n_iter_ : int
        Number of sweeps, over all breaths.
    {history_}
        A step is a sweep. The objective is the inertia of the best clustering so far, and before the first
        breath that of the sweep.
    {stop_reason_} {timings_}
    algorithm_, init_ : str
        The algorithm of the best clustering and the seeding in use; ``"auto"`` resolved.
    {n_zero_rows_} {features_in}

    See Also
    --------
    KMeans : One start of exact k-means, or several, in less time.
    BackwardEulerKMeans : Another search for a lower inertia, by many mini-batches.

    Notes
    -----
    **When to use it.** Choose it for many clusters in few features, where exact k-means ends in a poor local
    minimum: every start found the lowest inertia known where the best of 20 starts of scikit-learn stayed
    above it. It pays least for few clusters, where it takes about as long as ten starts and restarts find the
    same optimum. The guide "Choosing a method" has the measurements (``benches/python/breathing.py``).

    **Cost.** A breath costs two runs of exact k-means that begin near their end, one pass that finds the two
    nearest centers of every row, and one pass over the distances to the own center.

    **Memory** beyond the rows is that of :class:`~shoal.KMeans`, with the labels and centers of the best
    clustering beside those of the present run: 2 to 8 bytes per row more.

    **Differences from the paper.** The paper lowers `m` after each failed breath. shoal first makes two more
    attempts, which add centers to clusters drawn with probability proportional to their squared error. A
    breath that lowers the inertia by less than `tol` is kept. Empty clusters get the farthest rows, as in
    :class:`~shoal.KMeans`.

    References
    ----------
    B. Fritzke, "The breathing k-means algorithm", arXiv 2006.15666, 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import BreathingKMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], dtype="float32")
    >>> model = BreathingKMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.tolist())
    [[1.0, 2.0], [10.0, 2.0]]
    >>> model.inertia_ <= model.start_inertia_
    True
    """

    n_clusters: int = 8
    _: KW_ONLY
    m: Annotated[int, AtLeast(0)] = 5
    init: Init = "auto"
    max_iter: int = 3000
    tol: Annotated[float, NOT_NEGATIVE] = 1e-4
    algorithm: Algorithm = "auto"
    metric: Metric = "euclidean"
    memory: Memory = "1GB"
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0
    callbacks: Callbacks = None
    bounds_memory: Annotated[Memory, UNSET] = UNSET

    _kind = "breathing-kmeans"
    _method = "breathing"
    _iterations = "sweeps"
    _saved_attributes: ClassVar = {
        "algorithm_": "text",
        "n_breaths_": "count",
        "start_inertia_": "figure_or_nan",
    }

    def _read(self, run: Any) -> None:
        super()._read(run)
        details = run.details()
        self.algorithm_: str = run.algorithm
        self.n_breaths_: int = details["n_breaths"]
        self.start_inertia_: float = details["start_inertia"]
