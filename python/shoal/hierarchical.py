"""Hierarchical k-means: a tree, then sweeps among neighboring centers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from ._checks.params import NOT_NEGATIVE
from ._fit.declared import UNSET, AtLeast, estimator
from ._fit.leveled import LeveledClusterer
from ._fit.saved import Arrays, Texts
from ._rows.checked import checked_rows, source_of
from ._rows.spool import with_random_access
from .partition import Cells, Fetch, PartitionChange
from .partition import update as update_cells
from .typing import Callbacks, Memory, Metric, RandomState, Rows

__all__ = ["HierarchicalKMeans"]


@estimator
class HierarchicalKMeans(LeveledClusterer):
    """K-means for thousands to millions of clusters.

    A tree of small k-means fits gives the first centers. Sweeps then compare every row only with centers near
    its own, so the cost of a sweep grows slowly with the number of clusters. Unless ``compute_labels=False``,
    one last pass compares rows with all centers: `labels_` are exact.

    Results are bit-identical for any number of threads, and for an array, a memory map or an ``.npy`` file
    with the same rows.

    Parameters
    ----------
    n_clusters : int or sequence of int, default=1000
        Number of clusters, at least 1 and at most the number of rows. Several numbers, in decreasing order,
        are the levels of a hierarchy, such as ``[100_000, 10_000, 1_000]``: the first one is the number of
        clusters that all other attributes and methods refer to, and every further one clusters the centers of
        the level below it. See `levels_`.
    n_candidates : int or "auto", default="auto"
        Number of centers around its own that a row is compared with, at least 1. Fewer are faster and end at
        a higher inertia. With at least ``n_clusters - 1``, sweeps are those of exact k-means, and no
        clusters are merged between them. ``"auto"``: 32, or 128 in sweeps by lists with more than 64
        features, see Notes.
    max_iter : int, default=20
        Maximum number of sweeps after the tree. 0: only the tree.
    tol : float or "auto", default="auto"
        The fit ends when at most this share of the labels changes in a sweep. 0: only when no label changes.
        ``"auto"``: 0.001 in sweeps by lists, 0.02 in sweeps by cells.
    {metric} {random_state} {expert}
    branching_factor : int or "auto", default="auto"
        Largest number of children of a node of the tree, at least 2. ``"auto"`` makes two levels.
    memory : str or int, default="1GB"
        Memory budget for the rows that a node of the tree is fitted to, in bytes or as text such as
        ``"500MB"``. Larger nodes are fitted to a coreset of their rows. It also limits the rows that are
        copied together from a file larger than memory.
    compute_labels : bool, default=True
        Whether the fit ends with a pass over all rows for `labels_` and `inertia_`, which takes most of the
        time of a short fit with many clusters. With False they do not exist after the fit, `counts_` are
        those of the last sweep or of the tree, and a center may be nearest to no row.
    {n_jobs} {verbose} {callbacks}
        A step is a level of the tree or a sweep. A fit that ends while the tree grows has fewer than
        `n_clusters` centers.
    memory_limit : str or int
        Deprecated name of `memory`.

    Attributes
    ----------
    {cluster_centers_} {labels_}
        Not set with ``compute_labels=False``.
    {inertia_}
        Not set with ``compute_labels=False``.
    {counts_}
    levels_ : list of Level
        The levels of the hierarchy, the first one first; a single one if `n_clusters` is an int. A level has
        `cluster_centers`; `parents`, the cluster of the next level that holds each of its clusters (None in
        the last level); `ancestors`, the cluster of this level that holds each cluster of the first level;
        and `labels`, the cluster of this level that holds each row of the fit. Labels of other rows at a
        level are ``level.ancestors[model.predict(X)]``.
    certified_ : float
        Share of the rows whose label was proven by the centers around their own alone, before the last pass
        compared the other rows with all centers. It tells how much work the lists saved, not how good the
        labels are: `labels_` are exact at any value. 0 after sweeps by cells, which keep no lists, so that
        the last pass compares every row with all centers. NaN during the fit, and with
        ``compute_labels=False``.
    cell_ids_ : ndarray of shape (n_clusters,), int64
        Ids of the clusters as cells of a partition that :meth:`update` keeps: after a fit, 0 to
        ``n_clusters - 1``.
    drift_ : ndarray of shape (n_clusters,), float64
        Distance of every center from the mean of its rows, as far as :meth:`update` has taken in rows; 0
        after a fit.
    sample_rows_ : int
        The largest number of rows that a node of the tree was fitted to. Less than the number of rows if the
        first level of the tree used a coreset.
    n_iter_ : int
        Number of sweeps after the tree.
    {history_}
        The steps are the levels of the tree, then the sweeps. The objective is the inertia of the labels of
        the step, measured to the centers at the end of the step.
    stop_reason_ : str or None
        ``"tolerance"``, ``"labels-stable"``, ``"max-iter"``, ``"callback"`` or ``"deadline"``; None during
        the fit.
    timings_ : dict of str to float
        Seconds by phase: ``seeding`` (the tree), ``sweeps``, ``final``.
    init_ : str
        The tree in words.
    {n_zero_rows_} {features_in}

    See Also
    --------
    KMeans : Exact k-means, for up to a few thousand clusters.
    TruncatedGaussianMixture : For densities and soft labels with thousands of clusters.

    Notes
    -----
    **The tree.** Each level splits all nodes by k-means fits that begin by k-means++. Nodes get clusters by
    the squared error `e` of their rows, in proportion to ``e ** (d / (d + 2))`` with `d` the number of
    features, at most 12, as far as they have enough rows. A node is fitted to at most 256 rows per child:
    larger nodes to a lightweight coreset, which keeps rare groups that are far from the others. When the tree
    is complete, pairs of near clusters become one as long as splitting another cluster in two saves more.

    **A sweep** compares every row with its own center and with the centers near it, and then moves centers to
    the means of their rows. An empty cluster takes a row of the cluster with the largest squared error. There
    are two kinds of sweeps:

    - By lists, if there are at most 1,024 clusters, or at least 50 rows per cluster, or few features: the
      rows of a cluster are compared with its center and the `n_candidates` centers nearest to it. If no row
      has joined or left the cluster, they are compared only with the centers that have moved. The lists are
      made again when the number of sweeps has doubled; before that, pairs of near clusters become one where
      splitting another cluster saves more.
    - By cells, otherwise: a row is compared with about ``2 * n_candidates`` centers, those in the nearest
      cells of a k-means partition of the centers. A row moves if the squared error falls by moving this row
      alone (Hartigan). This rule also moves rows that are slightly nearer to their own center, because a row
      pulls the center of a small cluster to itself. With the cosine metric, a row moves to the nearest
      center.

    **Quality.** With few features, the squared error of sweeps by lists is mostly lower than that of flat
    k-means, because clusters are merged and split. With many, it is about the same. The squared error of
    sweeps by cells is lower than that of flat k-means if clusters have about ten rows.

    **Levels.** The centers of a level are clustered as rows of weight 1, up to 1,024 clusters by exact
    k-means, otherwise by this method. The rows are not read again. A label at a level is the cluster that
    holds the center nearest to the row, which is not always the cluster whose own center is nearest.

    **Proofs.** Let ``r`` be the distance from the center of a row to the nearest center outside its list. By
    the triangle inequality, no center outside the list is nearer to the row than the best of the list, if
    ``r`` minus the distance of the row to its center is at least the distance to the best. Bounds are rounded
    so that a proven label is exact. With few features nearly all labels are proven; with hundreds hardly any.

    **Rows** are visited in the order of their clusters. This needs random access: rows in memory or in mapped
    files. Files larger than memory are read in order, up to `memory` bytes at a time by two threads of their
    own, and the rows of a node of the tree are copied once if they fit; results are the same. Rows that can
    only be read from the first to the last (Parquet files, callables, iterables) are first copied to a
    temporary ``.npy`` file, in the folder of the variable ``TMPDIR``.

    **Cost.** A sweep by lists takes about ``2 n m d`` operations with ``m = n_candidates + 1`` (lists
    ``k^2 d``), a sweep by cells ``4 n (m + sqrt(k)) d``, and the last pass ``2 n k d`` unless labels are
    proven. Memory beyond the rows: 32 bytes per row, ``32 k m`` while lists are made, and ``O(k d)``.

    References
    ----------
    C.-H. Deng and W.-L. Zhao, "Fast k-means based on k-NN graph", ICDE 2018.

    J. A. Hartigan, "Clustering Algorithms", Wiley 1975.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import HierarchicalKMeans
    >>> X = np.random.default_rng(0).normal(size=(5000, 8)).astype(np.float32)
    >>> model = HierarchicalKMeans(500, random_state=0).fit(X)
    >>> model.cluster_centers_.shape
    (500, 8)
    >>> bool((model.predict(X) == model.labels_).all())
    True

    Three levels:

    >>> model = HierarchicalKMeans([500, 50, 5], random_state=0).fit(X)
    >>> [level.cluster_centers.shape for level in model.levels_]
    [(500, 8), (50, 8), (5, 8)]
    >>> bool((model.levels_[1].labels == model.levels_[0].parents[model.labels_]).all())
    True
    """

    n_clusters: int | Sequence[int] = 1000
    _: KW_ONLY
    branching_factor: Annotated[int | Literal["auto"], AtLeast(2)] = "auto"
    n_candidates: int | Literal["auto"] = "auto"
    max_iter: Annotated[int, AtLeast(0)] = 20
    tol: Annotated[float | Literal["auto"], NOT_NEGATIVE] = "auto"
    metric: Metric = "euclidean"
    memory: Memory = "1GB"
    compute_labels: bool = True
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0
    callbacks: Callbacks = None
    memory_limit: Annotated[Memory, UNSET] = UNSET

    _kind = "hierarchical-kmeans"
    _method = "hierarchical"
    _iterations = "sweeps"
    _saved_attributes: ClassVar = {"certified_": "figure_or_nan", "sample_rows_": "count"}
    #: The tree takes the place of a seeding.
    init = "auto"

    def _readable(self, X: Rows) -> Any:
        return with_random_access(X, type(self).__name__)

    def _run_params(self, init: Any, seed: int, **other: Any) -> dict[str, Any]:
        params = super()._run_params(init, seed, **other)
        del params["init"]
        return params

    def _conclude(self, run: Any) -> None:
        if self.compute_labels:
            super()._conclude(run)
        else:
            self._conclude_without_labels(run)
        self._conclude_levels()

    def _read(self, run: Any) -> None:
        super()._read(run)
        details = run.details()
        self.sample_rows_: int = details["sample_rows"]
        self.certified_: float = details["certified"]

    def _forget(self) -> None:
        super()._forget()
        # After an update; None for the cells of the fit.
        self._cells: Cells | None = None

    # ---------------------------------------------------------------- a partition that grows

    @property
    def cell_ids_(self) -> npt.NDArray[np.int64]:
        """The id of every cell, an ascending int64 array of shape (n_cells,); read-only."""
        ids = self._known_cells().ids.view()
        ids.flags.writeable = False
        return ids

    @property
    def drift_(self) -> npt.NDArray[np.float64]:
        """Distance of every center from the mean of its rows, a float64 array of shape (n_cells,)."""
        shifts = self._known_cells().shifts
        if self.metric == "cosine":
            # A mean of directions is shorter than 1.
            centers = self.cluster_centers_.astype(np.float64)
            shifts = shifts - (shifts * centers).sum(axis=1, keepdims=True) * centers
        drift: npt.NDArray[np.float64] = np.linalg.norm(shifts, axis=1) / np.maximum(self.counts_, 1)
        return drift

    def _known_cells(self) -> Cells:
        self._require_fitted()
        return self.__dict__.get("_cells") or Cells.of_fit(self)

    def update(
        self, X_new: Rows, *, fetch: Fetch | None = None, target_size: int | None = None
    ) -> PartitionChange:
        """Take in new rows, and keep the clusters as the cells of an inverted file.

        The estimator holds ids, centers and sums of the cells. The rows stay in a database. New rows go to
        their nearest centers. A cell that outgrew its limit is split, a cell that starved joins its
        neighbors, and rows near the changed borders move. All other cells keep their ids and their centers,
        bit for bit. After a fit, the ids are the labels.

        Parameters
        ----------
        X_new : rows of shape (n_samples, n_features)
            Rows that are in no cell yet, as for :meth:`predict`. They are held in memory. Without a row, an
            array of shape (0, n_features), cells are still split, joined and recentered.
        fetch : callable, optional
            ``fetch(cell_ids)`` returns the rows that are stored in the cells with these ids, an ascending
            int64 array: a tuple ``(keys, cell_ids, rows)``, in any order. It is called a few times, never
            twice with the same id.

            ============ ============================= ==================================================
            returned     shape and type                content
            ============ ============================= ==================================================
            ``keys``     (m,), any type                Name of the row in `PartitionChange.moved`, such as
                                                       the primary key
            ``cell_ids`` (m,), integers                Cell in which the row is stored
            ``rows``     (m, n_features), real numbers Values, converted to the type of the centers
            ============ ============================= ==================================================

            Leave rows of `X_new` out: they would be counted twice. Store them after the call, or mark them in
            the database as rows without a cell. Rows that were deleted from the database are left out:
            `counts_` are then corrected. Without `fetch`, new rows get labels, and a warning counts the cells
            that should be split.
        target_size : int, optional
            Wanted number of rows per cell, at least 1, for this and all later updates. A cell with more than
            twice as many is split; one with less than a quarter joins its neighbors. By default, the mean
            size at the fit.

        Returns
        -------
        shoal.PartitionChange
            The cells of the new rows, cells that are new or gone, and stored rows that moved.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        ValueError
            If X_new or the rows of `fetch` have another number of features, NaN or infinity; if `fetch`
            returns rows of other cells, a key twice, or something else than keys, integers and real
            numbers; after a fit with sample weights. The estimator is then unchanged, as after any
            exception of `fetch`.

        Warns
        -----
        RuntimeWarning
            If a cell is left above its limit, or the inertia per row exceeds 1.1 times that of the fit: then
            fit again.

        Notes
        -----
        `cluster_centers_`, `counts_` (rows per cell) and `inertia_` are those of the cells after the update,
        in the order of `cell_ids_`; `n_clusters` stays. ``cell_ids_[predict(X)]`` are the ids of the cells
        nearest to rows, and ``cell_ids_[shoal.nearest(X, cluster_centers_, n_nearest=m)[0]]`` those of the
        `m` nearest. `labels_` are no longer available. :meth:`save` writes the cells too.

        **Rules.** A cell is split by 2-means with at least a third of the rows on each side; afterwards, rows
        go to the nearer side. Rows of the 16 nearest cells move to a new center if it is nearer than their
        own. Rows of the split cell move elsewhere only if both new centers are farther than the old one:
        otherwise no other center is nearer. Cells whose centers have drifted most from the means of their
        rows are fetched too, three for ten others. Then the centers of all fetched cells move to the means of
        their rows, and these rows to the nearest of 48 centers around, in at most 12 sweeps. Bounds on the
        distances skip rows that cannot move. An update fetches at most three quarters of the cells, unless
        more must be split or joined. A cell with rows for more than 64 parts is split in two, and its parts
        again.

        **Cost.** An update fetches the cells that it splits or joins, up to 16 cells around each split, and
        the drifted ones. Splits share neighbors. Labels of the new rows take ``2 n k d`` operations. Memory:
        the new rows, the fetched rows, and ``O(k d)``.

        References
        ----------
        Y. Xu et al., "SPFresh: Incremental In-Place Update for Billion-Scale Vector Search", SOSP 2023. The
        rules for splits and moves are those of its protocol LIRE. Identical rows are never dropped here.

        Examples
        --------
        >>> import numpy as np
        >>> from shoal import HierarchicalKMeans
        >>> rng = np.random.default_rng(0)
        >>> rows = rng.normal(size=(4000, 8)).astype(np.float32)
        >>> model = HierarchicalKMeans(40, random_state=0).fit(rows)
        >>> cells = model.cell_ids_[model.labels_]
        >>> def fetch(ids):
        ...     keys = np.flatnonzero(np.isin(cells, ids))
        ...     return keys, cells[keys], rows[keys]
        >>> new = rng.normal(loc=0.5, size=(1000, 8)).astype(np.float32)
        >>> change = model.update(new, fetch=fetch)
        >>> rows, cells = np.concatenate([rows, new]), np.concatenate([cells, change.labels])
        >>> cells[change.moved["key"]] = change.moved["to_id"]
        >>> bool((np.bincount(cells)[model.cell_ids_] == model.counts_).all())
        True
        """
        self._require_fitted()
        source = source_of(checked_rows(self, X_new, reset=False, least=0))
        if self._run is not None and self.__dict__.get("_labels") is None:
            # A loop ended early: this completes the fit, so that sizes are those of the labels.
            _ = self.labels_
        change, cells, centers, sizes = update_cells(
            self, self._known_cells(), source, fetch, target_size, self._threads
        )
        self._cells = cells
        self.cluster_centers_, self.counts_ = centers, sizes.astype(np.float64)
        self._drop_labels()
        self._run = self._visited = None
        self._n_rows = int(sizes.sum())
        if not np.isnan(cells.inertia):
            self._inertia = cells.inertia
        return change

    def _kept(self) -> tuple[Arrays, Texts]:
        arrays, texts = super()._kept()
        cells: Cells | None = self.__dict__.get("_cells")
        return (arrays if cells is None else arrays | cells.arrays()), texts

    @classmethod
    def _restored(cls, arrays: Arrays, meta: Texts) -> Self:
        model = super()._restored(arrays, meta)
        if "cell_ids" in arrays:
            k, d = model.cluster_centers_.shape
            model._cells = Cells.of_arrays(arrays, (k, d))
        return model
