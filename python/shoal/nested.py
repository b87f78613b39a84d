"""Nested mini-batch k-means: batches that grow up to all rows."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from ._checks import params as _params
from ._checks.params import NOT_NEGATIVE, RowWeights
from ._checks.warn import warn
from ._core import Run, Source, Step
from ._fit.declared import UNSET, estimator
from ._fit.partial import StreamClusterer
from .typing import Bounds, Callbacks, Init, Memory, Metric, RandomState

__all__ = ["NestedMiniBatchKMeans"]


@estimator
class NestedMiniBatchKMeans(StreamClusterer):
    """K-means on nested batches that grow until they hold all rows.

    Comes close to an optimum early, and ends at a fixed point of Lloyd's algorithm. A batch contains all
    previous batches. Every row counts once, in the cluster of its current label. The batch doubles once the
    statistical error of every center exceeds `rho` times the last move of the center. With all rows in the
    batch, the fit ends when no label changes. Steps read only the rows of the current batch.

    Results are bit-identical for any number of threads, and for an array, a memory map or an ``.npy`` file
    with the same rows.

    Parameters
    ----------
    {n_clusters}
    init : str, array-like or callable, default="auto"
        First centers, with distinct values while there are enough of them. ``"auto"`` looks at all rows, as
        for :class:`MiniBatchKMeans`: many rows in four passes, in about the time of labeling them three
        times. All other values are as for :class:`KMeans`, on the rows of the first batch, so that steps
        begin sooner; a callable gets all rows. :meth:`partial_fit` chooses the first centers from the first
        batch.
    batch_size : int, default=5000
        Rows of the first batch, at least 1. At most the number of rows is used. A value below `n_clusters`
        becomes ``10 * n_clusters``, with a warning.
    max_iter : int or None, default=None
        Maximum number of steps; None: no limit. After 30 steps on the same batch without a new lowest
        objective the batch grows, or the fit ends (``"patience"``).
    {metric} {random_state_of_stream} {expert}
    rho : float, default=100.0
        The batch grows once the statistical error of every center is this many times its last move; at least
        0, or infinity. 0 doubles the batch at every step, infinity only when no label changes. Values from 10
        to 1000 are about equally good; without bounds, use 10.
    bounds : {"auto", "elkan", "yinyang", "hamerly", "none"}, default="auto"
        How many lower bounds of distances to keep per row, to skip distance computations. Results are
        bit-identical for all values. Distances are computed for panels of a few dozen centers at a time, and
        a bound covers at least one panel: ``"elkan"`` keeps one bound per panel, ``"yinyang"`` one per four
        panels, ``"hamerly"`` one per row, ``"none"`` none. ``"auto"`` is ``"elkan"`` once few labels change,
        and none for short or sparse rows. If `memory` is too small, more panels share a bound.
    memory : str or int, default="1GB"
        Memory budget for bounds, and another one of that size for the rows that :meth:`partial_fit` keeps,
        each with 8 bytes for its weight. In bytes, or as text such as ``"500MB"``. The fit warns if there is
        no room for any of the bounds that `bounds` names.
    tol : float, default=0.0
        With all rows in the batch, the fit also ends when the squared length of the center shift is at most
        `tol` times the mean variance of the features (in the first batch).
    shuffle : bool, default=True
        Whether to draw batches from all rows. False takes the first rows in file order and assumes that they
        are in random order: use it for shuffled files. Sequential sources are always read in order, with a
        warning.
    {compute_labels} {n_jobs} {verbose} {callbacks}
    bounds_memory, buffer_memory : str or int
        Deprecated: the parts of `memory` for bounds and for rows.

    Attributes
    ----------
    {cluster_centers_} {labels_of_stream}
    inertia_ : float
        Weighted sum of squared distances of all rows to their centers; differences and sums in float64.
    counts_ : ndarray of shape (n_clusters,), float64
        Weight of the rows in each cluster: according to `labels_` if a fit has computed them, else over all
        counted rows.
    n_iter_ : int
        Number of steps.
    batch_sizes_ : ndarray of int64
        Batch size of each step of the fit.
    rows_used_ : int
        Rows of the last batch. Only `init` reads others.
    rows_retired_ : int
        Rows that are no longer visited but still count in their cluster; see :meth:`partial_fit`. The result
        is a fixed point of Lloyd's algorithm only if this is 0.
    {history_}
        The objective is the inertia of the batch.
    {stop_reason_} {timings_} {init_}
    bounds_ : str
        The bounds in use at the end: ``"elkan"``, ``"yinyang"``, ``"hamerly"`` or ``"none"``. A small
        `memory` leads to fewer bounds than asked for.
    {n_zero_rows_of_stream} {features_in}

    See Also
    --------
    KMeans : Exact k-means from the first sweep on.
    MiniBatchKMeans : Batches of constant size, with bounded state on streams.

    Notes
    -----
    Memory beyond the rows, per row of the batch: 8 bytes for labels, 8 for the row number until the batch
    holds all rows, and 4 for each bound and for two more values. Rows of a batch are read in ascending order,
    also when they were drawn at random. Rows with weights are all read in every step. While the first centers
    are chosen from all rows: 16 bytes per row, but at most 1 GiB.

    The first centers matter if clusters differ much in size: a first batch, and even more so random rows, may
    miss small clusters, and no batch moves a center there. On such data (network connections, measurements of
    the space shuttle) ``init="k-means++"`` ends above ``init="auto"`` (``benches/python/rare.py``). On digits
    and SIFT descriptors, whose clusters are of similar size, all end equally low, and ``init="random"`` gets
    there sooner: choose it for such data (``benches/python/defaults.py``).

    :meth:`partial_fit` keeps the rows that it receives, and batches grow over them as in a fit. New rows wait
    until the growth rule admits them, and never more rows wait than are counted. A call makes one step, and
    further steps while the batch grows. When the rows fill `memory`, the older half retires: these
    rows still count in their cluster, but are not visited again. Rows of an earlier :meth:`fit` retire too.

    An empty cluster keeps its center, and the fit raises a :class:`~sklearn.exceptions.ConvergenceWarning`.

    No other thread may write to ``X`` during a call.

    References
    ----------
    J. Newling and F. Fleuret, "Nested mini-batch k-means", NIPS 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import NestedMiniBatchKMeans
    >>> X = np.repeat([[0.0], [1.0], [8.0], [9.0]], 1000, axis=0)
    >>> model = NestedMiniBatchKMeans(n_clusters=2, batch_size=100, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.ravel().tolist())
    [0.5, 8.5]
    >>> model.rows_used_, model.inertia_
    (4000, 1000.0)
    """

    n_clusters: int = 8
    _: KW_ONLY
    init: Init = "auto"
    batch_size: int = 5000
    rho: float = 100.0
    bounds: Bounds = "auto"
    memory: Memory = "1GB"
    max_iter: int | None = None
    tol: Annotated[float, NOT_NEGATIVE] = 0.0
    shuffle: bool = True
    compute_labels: bool = True
    metric: Metric = "euclidean"
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0
    callbacks: Callbacks = None
    bounds_memory: Annotated[Memory, UNSET] = UNSET
    buffer_memory: Annotated[Memory, UNSET] = UNSET

    _kind = "nested-kmeans"
    _method = "nested"
    _saved_attributes: ClassVar = {
        **StreamClusterer._saved_attributes,
        "rows_used_": "count",
        "rows_retired_": "count",
        "bounds_": "text",
    }

    def _rules(self, problems: _params.Problems) -> None:
        p = _params
        super()._rules(problems)
        known = p.is_number(self.rho) or (p.is_real(self.rho) and self.rho == math.inf)
        if not known or self.rho < 0:
            problems.add(f"`rho` must be a number of at least 0, or infinity, got {p.shown(self.rho)}")

    def _warn_of_small_batches(self, n: int | None = None) -> None:
        """Warn if batches have fewer rows than clusters; `n` is the number of rows."""
        k = int(self.n_clusters)
        if self.batch_size < k:
            rows = f"up to {10 * k}" if n is None else min(n, 10 * k)
            warn(
                f"`batch_size`={self.batch_size} is below `n_clusters`={k}: the first batch has {rows} rows.",
                RuntimeWarning,
            )

    def _options(self, source: Source | None) -> dict[str, Any]:
        in_order = source is not None and source.access != "random"
        return {"shuffle": False} if in_order else {}

    def _make_run(self, source: Source, rows: Any, weights: RowWeights) -> Run:
        if self.shuffle and source.access != "random":
            useless = "has no effect on a sequential source: the batches begin with the first rows."
            warn(
                f"`shuffle`=True {useless} Shuffle the rows first, or use `shuffle`=False if they are in "
                "random order.",
                RuntimeWarning,
                f"shuffle=True {useless} Use shoal.shuffle first, or shuffle=False if the rows are in random "
                "order.",
            )
        self._warn_of_small_batches(source.shape[0])
        return super()._make_run(source, rows, weights)

    def _update(self, run: Any, step: Step | None) -> None:
        super()._update(run, step)
        details = run.details()
        self.rows_used_: int = details["rows_used"]
        self.rows_retired_: int = details["rows_retired"]
        self.bounds_: str = run.algorithm

    def _conclude(self, run: Any) -> None:
        super()._conclude(run)
        # The first step never has bounds.
        named = self.bounds not in ("auto", "none")
        if named and self.bounds_ == "none" and self.n_iter_ > 1:
            self._warn_if_boundless(f"`bounds`={self.bounds!r}")

    def _first_stream(self, source: Source, rows: Any) -> Run:
        self._warn_of_small_batches()
        return super()._first_stream(source, rows)

    @property
    def batch_sizes_(self) -> npt.NDArray[np.int64]:
        """Batch size of each step of the fit."""
        sizes: npt.NDArray[np.int64] = self.history_["batch_size"]
        return sizes
