"""Exact k-means: sweeps over all rows until the labels settle."""

from __future__ import annotations

from dataclasses import KW_ONLY
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from ._checks import params as _params
from ._checks.params import NOT_NEGATIVE, RowWeights
from ._checks.warn import warn
from ._core import Run, Source, Step
from ._fit.centers import called
from ._fit.clusterer import CenterClusterer
from ._fit.declared import UNSET, estimator
from ._fit.saved import State
from ._fit.starts import STARTS, Maker, Starts
from .typing import Algorithm, Callbacks, Init, Memory, Metric, RandomState

__all__ = ["KMeans"]


@estimator
class KMeans(CenterClusterer):
    """Exact k-means by sweeps over all rows (Lloyd's algorithm).

    Triangle-inequality bounds skip distance computations without changing any result. Results are
    bit-identical for any number of threads, and for an array, a memory map or an ``.npy`` file with the same
    rows. Rows are read in place. Small types are converted one tile at a time, never as a whole, and sums are
    kept in float64.

    Parameters
    ----------
    {n_clusters}
    init : str, array-like or callable, default="auto"
        How to choose the first centers.

        - ``"auto"`` looks at all rows, so that rare groups get centers. For fewer than 4,000 clusters it is
          greedy k-means++ for up to 65,536 rows or 32 rows per cluster, else ``"k-means||"``. For more
          clusters it is ``"k-means||"`` with an oversampling factor of 1 and 3 rounds. More than
          67,108,864 rows, for which these would take more than 1 GiB, are first reduced to a coreset for
          `n_clusters` clusters (:func:`shoal.lightweight_coreset`); the first centers are rows of it.
        - ``"k-means++"``: greedy k-means++, as in scikit-learn.
        - ``"plain-k-means++"``: k-means++ with one candidate per center.
        - ``"random"``: distinct random rows.
        - ``"afk-mc2"``, ``"k-mc2"``: the Markov chains of :func:`shoal.afkmc2`, for many clusters.
        - ``"k-means||"``: :func:`shoal.kmeans_parallel`, for rows that are slow to read.
        - ``"hierarchical"``: the tree of :class:`HierarchicalKMeans`, for thousands of clusters. It takes a
          fraction of a sweep, and its centers are means, not rows. Needs random access: rows in memory or
          in a mapped file.
        - An array of shape (n_clusters, n_features).
        - A callable, called as ``init(X, n_clusters, random_state=RandomState)``, that returns such an array.
          It gets X as an array, or as a :class:`~shoal.DataSource` if X is a path or a source. The rows are
          not scaled, also with ``metric="cosine"``: a callable that compares rows should normalize them.
          Seedings with options are such callables, without `sample_weight`:
          ``functools.partial(shoal.kmeans_parallel, oversampling_factor=4)``.
    n_init : "auto" or int, default="auto"
        Number of starts. The start with the lowest inertia wins. ``"auto"``: 10 for ``init="random"`` and for
        a callable, else 1.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"`` is spherical k-means: rows are scaled to length 1 as they are read, and centers lie on
        the unit sphere. Each row belongs to the center of the largest cosine similarity, and squared
        distances are twice the cosine distance.

        A row of zeros is not scaled, and has the squared distance 1 to every center. Rounding alone decides
        its label, in the same way in fits and predictions. A warning and `n_zero_rows_` report the number of
        such rows.
    {random_state} {expert}
    max_iter : int, default=300
        Maximum number of sweeps per start, at least 1.
    tol : float, default=1e-4
        A start has converged when the squared length of the center shift is at most `tol` times the mean
        variance of the features, or when no label changes. 0: only when no label changes.
    algorithm : str, default="auto"
        How a sweep finds the nearest centers. Results are bit-identical for all values.

        - ``"lloyd"`` computes all distances.
        - ``"elkan"`` keeps one bound per row and center.
        - ``"yinyang"`` keeps one bound per row and group of a few dozen centers. It computes only the
          distances that the bounds cannot skip, and these become fewer as the centers settle.
        - ``"hamerly"`` keeps one bound per row.
        - ``"exponion"`` keeps one bound per row. In up to 16 dimensions it also searches only the centers
          near the row's current center.
        - ``"filtering"``, for up to 16 dimensions, builds a tree of boxes of rows once. A sweep drops the
          centers that cannot be nearest to any row of a box, and compares rows only with the others. It wins
          where rows lie near few dimensions (coordinates, point clouds, colors, many equal rows), and loses
          where they fill 8 or more. Sparse rows, more dimensions, centers so far apart or so close together
          that squares of distances may be out of range, and a small `memory` get plain sweeps, with a
          warning.
        - ``"sketch"`` keeps 32 bytes per row or more in memory: certified sketches, which tell which centers
          cannot be the nearest. A sweep reads only the rows that bounds do not decide. It wins with many
          dimensions and clusters. Sparse rows and a small `memory` get plain sweeps, with a warning.
        - ``"auto"`` tries ``"filtering"`` first for at least 4096 rows and 8 clusters in up to 16 dimensions,
          and keeps it while a row is compared with at most ``12 + 0.15 * n_clusters`` centers on average,
          unless bounds are expected to cost much less. On processors with AVX-512 VNNI, AVX-VNNI or Arm dot
          products, it chooses ``"sketch"`` from 48 dimensions on if there are at least 96 and 12,500 /
          dimensions clusters, from 32 on if there are at least 36,000 / dimensions, and leaves it if it
          excludes too few centers. For a mapped file larger than memory, it chooses ``"sketch"`` from 64
          dimensions on, if there is at least one cluster per four dimensions. Otherwise the fit begins with
          plain sweeps. Bounds start once few enough labels change: ``"elkan"`` (from 160 dimensions on, or
          for up to 64 clusters) or ``"yinyang"`` above 16 dimensions; ``"hamerly"``, ``"exponion"`` or
          ``"yinyang"`` below, from 24 clusters on. Bounds pause while they cost more distances than they
          save. The choice never depends on a clock. Sparse rows get plain sweeps, because bounds skip almost
          no distances there.
    memory : str or int, default="auto"
        Memory budget for distance bounds, in bytes or as text such as ``"500MB"``. With a smaller budget more
        centers share a bound, down to no bounds at all, with a warning if `algorithm` names bounds. The tree
        of ``"filtering"``, with a copy of the rows, and the sketches must fit too. For a file larger than
        memory, sketches take 0.5 to 1 byte per value. Not used by ``"lloyd"``. ``"auto"``: ``"1GB"``; for the
        sketches of a mapped file larger than memory, four fifths of the available memory, if that is more.
    copy_x : bool, default=True
        Has no effect; present for scikit-learn compatibility. X is never modified.
    {n_jobs} {verbose} {callbacks}
    bounds_memory : str or int
        Deprecated name of `memory`.

    Attributes
    ----------
    {cluster_centers_} {labels_} {inertia_}
    counts_ : ndarray of shape (n_clusters,), float64
        Weight of the rows in each cluster: according to `labels_` if they are known, else according to the
        last sweep.
    n_iter_ : int
        Number of sweeps of the best start.
    {history_}
        A step is a sweep of one of the starts.
    {stop_reason_}
    timings_ : dict of str to float
        Seconds by phase, summed over all starts: ``seeding``, ``sweeps``, ``final``.
    algorithm_, init_ : str
        The algorithm and the seeding in use; ``"auto"`` resolved.
    {n_zero_rows_} {features_in}

    See Also
    --------
    MiniBatchKMeans : For streams, and for good centers before all rows are read.
    NestedMiniBatchKMeans : Growing batches, for many rows.
    BackwardEulerKMeans : For a lower inertia with few clusters.
    HierarchicalKMeans : For 2,000 to millions of clusters.
    BreathingKMeans : For a lower inertia than restarts reach.
    BalancedKMeans : For clusters of limited sizes.
    TruncatedGaussianMixture : For densities and soft labels.

    Notes
    -----
    A sweep without bounds costs about ``2 n k d`` floating-point operations. Memory beyond the rows: a few
    bytes per row, ``O(k d)``, and one tile per thread, plus the bounds.

    An empty cluster gets the row that lies farthest from its center. With fewer distinct rows than clusters
    some clusters stay empty, with weight 0, and the fit raises a
    :class:`~sklearn.exceptions.ConvergenceWarning`.

    The label of a row is the center with the smallest sum of squared differences in float64, and the lowest
    index among equals. It is the same on every instruction set. Rows that faster arithmetic leaves in doubt
    are compared in float64. There are more of them if values are large compared with the distances between
    centers.

    No other thread may write to ``X`` during a call.

    References
    ----------
    Y. Ding et al., "Yinyang k-means: a drop-in replacement of the classic k-means with consistent speedup",
    ICML 2015.

    S. P. Lloyd, "Least squares quantization in PCM", IEEE Transactions on Information Theory 28 (1982).

    D. Arthur and S. Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import KMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], dtype="float32")
    >>> model = KMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.tolist())
    [[1.0, 2.0], [10.0, 2.0]]
    >>> model.inertia_
    16.0
    """

    n_clusters: int = 8
    _: KW_ONLY
    init: Init = "auto"
    n_init: int | Literal["auto"] = "auto"
    max_iter: int = 300
    tol: Annotated[float, NOT_NEGATIVE] = 1e-4
    algorithm: Algorithm = "auto"
    metric: Metric = "euclidean"
    memory: Memory | Literal["auto"] = "auto"
    copy_x: bool = True
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0
    callbacks: Callbacks = None
    bounds_memory: Annotated[Memory, UNSET] = UNSET

    _kind = "kmeans"
    _method = "kmeans"
    _iterations = "sweeps"
    _saved_attributes: ClassVar = {"algorithm_": "text"}

    def _make_run(self, source: Source, rows: Any, weights: RowWeights) -> Run | Starts:
        """Return the run of a fit; callables of the user get `rows`."""
        seed = _params.seed(self.random_state)
        n_init = self._n_starts()
        if isinstance(self.init, str):
            return self._start(source, weights, self.init, seed, n_init=n_init)
        if not callable(self.init):
            if n_init != 1:
                self._warn_of_one_start(n_init)
            return self._start(source, weights, self._given(self.init, source), seed, n_init=1)
        return Starts(self._maker(source, rows, weights, seed), n_init, _params.random_state_of(seed))

    def _resumed_run(self, source: Source, rows: Any, weights: RowWeights, state: State) -> Run | Starts:
        if STARTS in state[2]:
            make = self._maker(source, rows, weights, 0)
            if not callable(self.init):
                make = None
            resume = partial(self._start, source, weights, "auto", 0, n_init=1)
            return Starts.resumed(make, resume, state)
        init = self._seeding(source, rows, 0)
        return self._start(source, weights, init, 0, state, n_init=self._n_starts())

    def _maker(self, source: Source, rows: Any, weights: RowWeights, seed: int) -> Maker | None:
        """Return a function that makes a start from centers of the user's callable."""
        choose: Any = self.init

        def make(random_state: np.random.RandomState) -> Run:
            centers = self._given(called(choose, rows, self.n_clusters, random_state), source)
            return self._start(source, weights, centers, seed, n_init=1)

        return make

    def _update(self, run: Any, step: Step | None) -> None:
        super()._update(run, step)
        self.algorithm_: str = run.algorithm

    def _conclude(self, run: Any) -> None:
        super()._conclude(run)
        # The first sweep never has bounds.
        named = self.algorithm not in ("auto", "lloyd")
        needs = {
            "filtering": "dense rows of at most 16 features, squares of distances in range and room for a "
            "copy of the rows",
            "sketch": "dense rows and room for their sketches",
        }.get(self.algorithm)
        if needs and self.algorithm_ == "lloyd":
            name, budget = self._budget("bounds_memory")
            warn(
                f"`algorithm`={self.algorithm!r} needs {needs} in `{name}`={budget}: "
                "every distance was measured. The result is the same.",
                RuntimeWarning,
            )
        elif named and self.algorithm_ == "lloyd" and self.n_iter_ > 1:
            self._warn_if_boundless(f"`algorithm`={self.algorithm!r}")
