"""Laplacian K-modes: clusters of any shape, represented by their own rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import KW_ONLY
from functools import partial
from typing import Annotated, Any, Literal, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from . import _core
from ._checks import params as _params
from ._checks.params import NOT_NEGATIVE, POSITIVE
from ._checks.warn import warn
from ._core import ModesRun, Source, Step
from ._fit.centers import INITS, called
from ._fit.declared import UNSET, estimator
from ._fit.estimator import has_begun, seed_of
from ._fit.saved import State
from ._kmodes.file import StoredKModes
from ._kmodes.matrices import affinity_matrix, checked_affinity, responsibilities_matrix
from ._kmodes.spectral import Spectral, spectral_labels
from ._rows.checked import refuse_weights, source_of
from ._rows.spool import with_random_access
from .typing import (
    Affinity,
    Callbacks,
    GraphMethod,
    Init,
    Memory,
    Metric,
    ModeUpdate,
    OnCollapse,
    RandomState,
    Rows,
)

__all__ = ["LaplacianKModes"]

SPECTRAL = "spectral"
#: Allowed names for `init`.
STARTS = (SPECTRAL, *INITS)


@estimator
class LaplacianKModes(StoredKModes):
    """Scalable Laplacian K-modes (SLK): clusters of any shape, each with a mode.

    Choose it for clusters of any shape whose rows are linked through near neighbors, such as images of digits
    or objects, and if one row should represent each cluster. :class:`~shoal.KMeans` finds round clusters
    faster.

    The fit minimizes ``E = - sum_p k(x_p, mode of p's cluster) + laplacian_weight * sum_pq w_pq [labels of p
    and q differ]`` with a Gaussian kernel `k` and an affinity `w` between neighbors. By default it starts
    from spectral clustering of the neighbor graph. The NMI of the labels is within about 0.01 of that of
    spectral clustering. In addition, the fit finds modes, and labels new rows.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters, at least 1 and at most the number of distinct rows.
    laplacian_weight : "auto" or float, default="auto"
        Weight of the neighbors (lambda), at least 0; 0 is K-modes. A weight that is too small gives nearly
        the labels of weight 0. With a weight that is far too large, the largest clusters of a seeded start
        absorb the others: see `on_collapse`. :func:`shoal.laplacian_path` compares weights without labels.

        ``"auto"`` follows from `n_clusters` and the mean row sum `s` of the affinity. Neighbors can hold a
        common label once ``laplacian_weight * s`` is at least ``c = 2 (k - 1) / (k - 2) ln(k - 1)`` (2 for
        two clusters). With ``init="spectral"`` the weight is ``2 c / s``, enough for the rows whose affinity
        sum is half of the mean. With any other `init` it is ``max(c, k / 2) / s``: 1 for 10 clusters and five
        neighbors, 2 for 20, 5 for 50.
    n_neighbors : "auto" or int, default="auto"
        Number of neighbors of a row in the graph, not counting the row itself. ``"auto"``: 5, unless
        the graph falls apart with 5. The number is then the smallest one, up to 40, with which the graph has
        at most `n_clusters` connected components and most rows lie in them. Components with fewer rows than
        a tenth of ``n_samples / n_clusters`` do not count. If 40 neighbors are too few, for example because
        of many duplicate rows, 5 are used. With ``affinity="precomputed"``, only predictions use the number.
    init : {"spectral", "k-means++", "plain-k-means++", "random", "auto", "afk-mc2", "k-mc2", "k-means||", \
            "hierarchical"}, array-like or callable, default="spectral"
        The start.

        ``"spectral"``: the labels of k-means on the `n_clusters` leading eigenvectors of the normalized
        affinity, each row scaled to length 1. The first modes are the densest rows of these clusters, and
        each iteration continues from the responsibilities of the previous iteration. Connected components
        with fewer rows than a tenth of ``n_samples / n_clusters`` get no eigenvector; their rows join the
        nearest mode. If at least `n_clusters` components are above this size, the largest ones are the
        clusters. If most rows lie in smaller components, for example because of many duplicates,
        ``"k-means++"`` is used instead, with a warning.

        All other values choose first modes, as for :class:`~shoal.KMeans`; an array holds one mode per row.
        Each iteration then begins with the responsibilities of the modes alone, as in the paper. If two drawn
        modes coincide, one is replaced by the row that is farthest from all modes. With
        ``mode_update="byproduct"`` each drawn mode is replaced by the row of its cluster where the rows are
        densest. In a cluster of more than 1,024 rows, the density is estimated from 1,024 evenly spaced rows.
    {random_state} {expert}
    mode_update : {"byproduct", "mean-shift"}, default="byproduct"
        ``"byproduct"`` (SLK-BO): a mode is the row with the highest responsibility in its cluster, at no
        cost. ``"mean-shift"`` (SLK-MS): a mode is a mean, shifted to where the rows of its cluster are
        densest. It is not a row, and the fit is slower. Each row counts only in the mean of its own cluster,
        according to its label. The authors' program does the same; the paper weights every row by its
        responsibility.
    bandwidth : "auto" or float, default="auto"
        Width sigma of the kernel ``exp(-|x - m|**2 / (2 sigma**2))``. ``"auto"``: the root of the mean
        squared distance between neighbors.
    affinity : {"knn", "gaussian", "precomputed"}, default="knn"
        ``"knn"``: neighbors have weight 1; ``"gaussian"``: the weight is the kernel of their distance. The
        affinity of two rows is the mean of both directions. ``"precomputed"``: X is the affinity, and the
        rows are passed as `features`.
    diagonal_shift : "auto" or float, default="auto"
        Value added to the diagonal of the affinity. It slows label changes and does not change the best
        labels. ``"auto"``: 0 until the monitored energy rises; then a value per row that prevents further
        rises. 0: as in the paper, where labels may alternate forever.
    on_collapse : {"restore", "reduce"}, default="restore"
        What to do if a cluster loses its last row. ``"restore"``: return to the clusters of the previous
        iteration, and stop. ``"reduce"``: repeat the iteration with 0.8 times the weight, as often as needed.
        Both set `collapsed_`.
    normalize : "auto" or bool, default="auto"
        Whether to scale rows to length 1 as they are read, so that only their directions count. The authors'
        program always does. A row of zeros has no direction and is not scaled; a warning and `n_zero_rows_`
        tell how many there are.

        ``"auto"`` is right for shapes in a plane or in space, and for embeddings, images and texts. Rows
        with fewer than 8 features are not scaled. Other rows are scaled, with one exception: more than a
        tenth of the values are nonzero, and at least 0.99 of the variance of the rows is the variance of
        their lengths, so that scaling would leave nearly nothing. This is so in tables in which one
        feature outweighs all others. Both shares are measured on up to 1,024 evenly spaced rows.
        `normalize_` holds the choice.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"`` compares rows by angle: it is another name for ``normalize=True``.
    max_iter : int, default=100
        Maximum number of iterations, at least 1. Each iteration updates all responsibilities up to 1,000
        times.
    graph_method : {"auto", "exact", "kd-tree", "ivf"}, default="auto"
        How to find neighbors: see :func:`shoal.knn_graph`.
    memory : str, int or None, default="1GB"
        Memory budget in bytes for the responsibilities, of which a fit holds three copies. If they take more,
        only the largest ones per row are kept: as many as fit, at least two. The other clusters share the
        rest equally. `responsibilities_` is then sparse, and the monitored energies may rise a little. None:
        keep all.
    {n_jobs} {verbose} {callbacks}
    responsibilities_memory : str or int
        Deprecated name of `memory`.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int32
        The cluster with the highest responsibility for each row; the lowest index among equals. Differs from
        ``predict(X)``, which treats X as new rows. After a collapse in the first iteration: the labels of the
        start with ``init="spectral"``, else those of the first modes without a Laplacian.
    modes_ : ndarray of shape (n_clusters, n_features), float32 or float64
        Modes; with `normalize_`, modes of the normalized rows.
    mode_indices_ : ndarray of shape (n_clusters,), int64
        Indices of the rows that are modes; only with ``mode_update="byproduct"``.
    responsibilities_ : ndarray or csr_matrix of shape (n_samples, n_clusters), float32 or float64
        Positive, with sum 1 in each row; 0 and 1 after a collapse in the first iteration of a spectral start.
        Above `memory`: a sparse matrix of the largest values per row. The other clusters
        share the rest of the sum equally.
    affinity_ : scipy.sparse.csr_matrix of shape (n_samples, n_samples)
        The affinity, symmetric.
    normalize_ : bool
        Whether rows are scaled to length 1, ``"auto"`` resolved.
    n_neighbors_ : int
        The number of neighbors in use, ``"auto"`` resolved.
    bandwidth_ : float
        Width sigma of the kernel.
    energy_ : float
        The energy `E` of `labels_` and `modes_`.
    energies_ : ndarray of shape (n_iter_,)
        The energy after each iteration.
    relaxed_energies_ : list of ndarray
        Per iteration, the monitored energy that its updates decrease, at the beginning and after each update:
        ``sum z log z - sum z k - (laplacian_weight / 2) sum_pq w_pq z_p.z_q``, including the diagonal shift.
    collapsed_ : bool
        Whether a cluster has lost its last row.
    shifted_ : bool
        Whether ``diagonal_shift="auto"`` was switched on.
    laplacian_weight_ : float
        The weight in use, ``"auto"`` resolved. After a collapse with ``on_collapse="reduce"`` it is lower
        than the parameter.
    graph_method_, graph_recall_ : str, float
        How neighbors were found, and the fraction of true neighbors among them.
    n_iter_ : int
        Number of iterations.
    history_ : structured ndarray of shape (n_iter_,)
        One row per iteration; `objective` is the energy.
    stop_reason_ : str or None
        ``"labels-stable"``, ``"tolerance"``, ``"max-iter"``, ``"collapsed"``, ``"callback"``, ``"deadline"``
        or ``"patience"``; None during the fit.
    timings_ : dict of str to float
        Seconds by phase: ``graph``, ``seeding``, ``iterations``.
    init_ : str
        The start in use.
    n_zero_rows_ : int
        Rows of zeros; 0 without `normalize_`.
    {features_in}

    See Also
    --------
    KMeans : Faster, for round clusters.
    laplacian_path : Compares values of `laplacian_weight` without labels.
    knn_graph : The neighbor graph.

    Notes
    -----
    **When to use it.** On images of digits, objects, speech and long texts, both this class and spectral
    clustering are far above k-means in NMI. On short texts and on tables of measurements the neighbor graph
    follows the classes less: k-means, or ``init="k-means++"``, is better there
    (``benches/python/papers/slk.py --part defaults``). Do not use it for streams, for round clusters, or for
    thousands of clusters.

    **Cost.** The neighbor graph (see :func:`shoal.knn_graph`). With ``n_neighbors="auto"``, up to three more
    graphs are computed if the first one falls apart. Then, in each iteration, ``n n_clusters d`` for the
    kernel and ``n n_neighbors n_clusters`` for each of some dozens of updates. ``init="spectral"`` adds some
    hundred products of the affinity with a vector, each followed by ``n n_clusters`` operations, and five
    runs of k-means in `n_clusters` columns.

    **Memory** beyond the rows: about ``28 n_clusters`` bytes per row for float32 rows (56 for float64; less
    if only the largest responsibilities are kept), and ``90 n_neighbors_`` bytes per row for the graph, the
    affinity and its copies. Computing the eigenvectors takes about ``40 n_clusters`` bytes per row.

    The fit needs random access to the rows: arrays, sparse matrices and files. :meth:`predict` needs the rows
    of the fit. The model keeps a reference to an array, and includes the rows when it is pickled or saved.
    Rows from a file are included when the model is saved, but not when it is pickled.

    References
    ----------
    I. M. Ziko, E. Granger and I. Ben Ayed, "Scalable Laplacian K-modes", NeurIPS 2018.

    A. Y. Ng, M. I. Jordan and Y. Weiss, "On spectral clustering: analysis and an algorithm", NIPS 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import LaplacianKModes
    >>> X = np.array([[1, 0], [1, 0.1], [1, 0.2], [0, 1], [0.1, 1], [0.2, 1]])
    >>> model = LaplacianKModes(n_clusters=2, n_neighbors=2, random_state=0).fit(X)
    >>> bool(model.labels_[0] == model.labels_[2] != model.labels_[3])
    True
    """

    n_clusters: int = 8
    _: KW_ONLY
    laplacian_weight: Annotated[float | Literal["auto"], NOT_NEGATIVE] = "auto"
    mode_update: ModeUpdate = "byproduct"
    n_neighbors: int | Literal["auto"] = "auto"
    bandwidth: Annotated[float | Literal["auto"], POSITIVE] = "auto"
    affinity: Affinity = "knn"
    diagonal_shift: Annotated[float | Literal["auto"], NOT_NEGATIVE] = "auto"
    on_collapse: OnCollapse = "restore"
    normalize: bool | Literal["auto"] = "auto"
    metric: Metric = "euclidean"
    init: Init | Literal["spectral"] = "spectral"
    max_iter: int = 100
    graph_method: GraphMethod = "auto"
    memory: Memory | None = "1GB"
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0
    callbacks: Callbacks = None
    responsibilities_memory: Annotated[Memory | None, UNSET] = UNSET

    _kind = "laplacian-kmodes"
    _method = "kmodes"
    _hidden = ("gaussian",)

    def fit(self, X: Rows, y: Any = None, *, features: Rows | None = None) -> Self:
        """Cluster the rows of X.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            An array, a list, a numeric frame, a memory map, a sparse matrix, the path of a file, or a
            :class:`~shoal.DataSource`. Sequential sources (Parquet, a callable that returns blocks) are
            written to a temporary file first.

            With ``affinity="precomputed"``: a sparse matrix of shape (n_samples, n_samples) with values of at
            least 0, which is symmetrized. Larger values mean nearer rows, as in scikit-learn's
            ``kneighbors_graph(mode="connectivity")``. The graph of :func:`shoal.knn_graph` holds distances,
            which would give distant rows the largest weights: set ``graph.data[:] = 1`` first.
        y : ignored
            Present for scikit-learn compatibility.
        features : rows of shape (n_samples, n_features), optional
            The rows, with ``affinity="precomputed"``.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter, shape or value is invalid. The message names all invalid parameters.
        TypeError
            If values are not numbers.
        OSError
            If a file cannot be read.
        KeyboardInterrupt
            On Ctrl-C. The result of the last complete iteration stays usable.
        """
        for _ in self.iter_fit(X, features=features):
            pass
        return self

    def iter_fit(self, X: Rows, *, features: Rows | None = None) -> Iterator[Step]:
        """Cluster the rows of X, one iteration per ``next()``.

        After each iteration all fitted attributes are current. Leaving the loop early leaves a usable
        estimator. Exhausting this iterator equals ``fit(X)``.

        Parameters
        ----------
        X, features
            As for :meth:`fit`.

        Yields
        ------
        shoal.Step
            The figures of the iteration. `objective` is the energy of the labels.

        Raises
        ------
        ValueError, TypeError, OSError, KeyboardInterrupt
            As :meth:`fit`.
        """
        return self._iter_fit(X, features)

    def _iter_fit(
        self, X: Rows, features: Rows | None, spectral: Spectral = spectral_labels
    ) -> Iterator[Step]:
        """Iterate over a fit; `spectral` computes the labels of ``init="spectral"``."""
        self._check()
        with self._set_aside():
            if self.affinity != "precomputed":
                if features is not None:
                    raise ValueError(
                        f'features must be None with affinity={self.affinity!r}. Use affinity="precomputed" '
                        "to pass the affinity as X and the rows as features."
                    )
                source, rows = self._taken(X)
                return self._iterate_from_start(source, rows, None, spectral)
            affinity = checked_affinity(X)
            if features is None:
                raise ValueError(
                    'features must be the rows with affinity="precomputed", got None. '
                    "Use fit(affinity, features=rows)."
                )
            source, rows = self._taken(features)
            if source.shape[0] != affinity.shape[0]:
                raise ValueError(
                    f"features must have as many rows as the affinity X, {affinity.shape[0]}, "
                    f"got {source.shape[0]}"
                )
            return self._iterate_from_start(source, rows, affinity, spectral)

    def _iterate_from_start(
        self, source: Source, rows: Any, affinity: Any, spectral: Spectral
    ) -> Iterator[Step]:
        self._by_callable = False
        seed = _params.seed(self.random_state)
        run = self._start(source, rows, seed, affinity, None)
        return self._iterate_over(run, source, rows, seed if self._is_spectral else None, spectral)

    def _iterate_over(
        self,
        run: ModesRun,
        source: Source,
        rows: Any,
        seed: int | None = None,
        spectral: Spectral = spectral_labels,
    ) -> Iterator[Step]:
        """Iterate over a run; a `seed` asks for a spectral start."""
        prepare = None
        if seed is not None:
            prepare = partial(self._start_from_spectral_labels, run, seed, spectral)
        return self._iterate(run, source, None, prepare, _fit_rows=rows)

    @property
    def _is_spectral(self) -> bool:
        return isinstance(self.init, str) and self.init == SPECTRAL

    def _start_from_spectral_labels(self, run: ModesRun, seed: int, spectral: Spectral) -> None:
        """Give a run the labels of spectral clustering on its own neighbor graph."""
        run.prepare()
        started = time.perf_counter()
        labels = spectral(affinity_matrix(run), int(self.n_clusters), seed=seed, n_jobs=self.n_jobs)
        if labels is not None:
            run.begin_with(labels, SPECTRAL, time.perf_counter() - started)
            return
        warn(
            '`init`="spectral" found no clusters, so `init`="k-means++" is used: most rows lie in connected '
            "components of the neighbor graph that are much smaller than a cluster. Duplicate rows are a "
            "common reason. Increase `n_neighbors`, or remove duplicate rows.",
            RuntimeWarning,
        )

    def _taken(self, X: Rows, sample_weight: Any = None) -> tuple[Source, Any]:
        """Check parameters and rows of a fit; return the source and the rows as the user gave them."""
        self._check()
        if sample_weight is not None:
            raise ValueError("sample_weight must be None for LaplacianKModes")
        refuse_weights(X, type(self).__name__)
        rows = self._checked(with_random_access(X, type(self).__name__), reset=True)
        source = source_of(rows)
        n = source.shape[0]
        if source.shape[1] == 1 and (self.metric == "cosine" or self.normalize not in ("auto", False)):
            raise _params.ParameterError(
                "`normalize` must be `False` for n_features=1, got `True`: all rows of one feature are equal "
                "once scaled to length 1"
            )
        if n is not None and n < self.n_clusters:
            raise _params.too_many_clusters("n_clusters", self.n_clusters, n)
        if self.affinity == "precomputed" or n is None:
            return source, rows
        if isinstance(self.n_neighbors, str):
            if n < 2:
                raise ValueError(f"X must have at least 2 rows for a neighbor graph, got n_samples={n}")
        elif n <= self.n_neighbors:
            raise _params.ParameterError(
                f"`n_neighbors` must be less than the number of rows, {n}, got {self.n_neighbors}",
                f"n_neighbors={self.n_neighbors} must be less than n_samples={n}",
            )
        return source, rows

    def _go_on(self, state: State, source: Source, rows: Any) -> Iterator[Step]:
        """Iterate over the remaining steps of a stored fit; the other arguments come from `_taken`."""
        self._by_callable = self._same_features(state[2])
        if not has_begun(state):
            if self.affinity == "precomputed":
                raise ValueError(
                    "the fit was interrupted before its first step, and a precomputed affinity is not in the "
                    "checkpoint yet: fit again"
                )
            run = self._made_anew(
                state, lambda: self._start(source, rows, _params.seed(self.random_state), None, None)
            )
            seed = seed_of(state)
            return self._iterate_over(run, source, rows, seed if self._is_spectral else None)
        return self._iterate_over(self._start(source, rows, 0, None, state), source, rows)

    def _start(self, source: Source, rows: Any, seed: int, affinity: Any, state: State | None) -> ModesRun:
        init: Any = self.init if isinstance(self.init, str) and not self._is_spectral else "k-means++"
        if state is None and not isinstance(self.init, str):
            init = self.init
            if callable(init):
                init = called(init, rows, self.n_clusters, _params.random_state_of(seed))
            shape = (int(self.n_clusters), source.shape[1])
            init = _params.centers("init", init, source.compute, shape)
        parts = None
        if affinity is not None:
            parts = (
                affinity.indptr.astype(np.int64),
                affinity.indices.astype(np.int32),
                affinity.data.astype(np.float64),
            )
        given: dict[str, Any] = {"gaussian": self.affinity == "gaussian"}
        if not isinstance(self.n_neighbors, str):
            # With a given affinity there may be fewer rows.
            given["n_neighbors"] = max(1, min(int(self.n_neighbors), (source.shape[0] or 1) - 1))
        params = self._run_params(init, seed, **given)
        return _core.start_modes(source, params, parts, state=state)

    def _rules(self, problems: _params.Problems) -> None:
        p = _params
        super()._rules(problems)
        if self.metric == "cosine" and not self.normalize:
            problems.add(f"`normalize` must be `True` with `metric`='cosine', got {p.shown(self.normalize)}")
        if isinstance(self.init, str):
            problems.check(p.seeding, self.init, STARTS)
        self._rules_of_a_run(problems)

    def _update(self, run: Any, step: Step | None) -> None:
        details = run.details()
        self.modes_ = run.centers()
        if self.mode_update == "byproduct":
            self.mode_indices_ = details["mode_rows"]
        self._labels = run.labels()
        self.responsibilities_ = responsibilities_matrix(
            details["responsibilities"], details["responsibilities_clusters"], len(self.modes_)
        )
        if not hasattr(self, "affinity_"):
            self.affinity_ = affinity_matrix(run)
        self.relaxed_energies_, self.energies_ = details["relaxed_energies"], details["energies"]
        self.bandwidth_, self.laplacian_weight_ = details["bandwidth"], details["laplacian_weight"]
        self.normalize_, self.n_neighbors_ = details["normalize"], details["n_neighbors"]
        self.graph_method_, self.graph_recall_ = details["graph_method"], details["graph_recall"]
        self.collapsed_, self.shifted_ = details["collapsed"], details["shifted"]
        self._blind, self.init_ = details["blind"], self._describe_init(self.init, run)
        self.n_iter_ = run.n_iter
        self.n_zero_rows_ = run.zero_rows
        self.timings_ = details["timings"]

    def _complete(self, run: Any) -> None:
        self._run = None

    def _conclude(self, run: Any) -> None:
        super()._conclude(run)
        if self._blind:
            warn(
                f"The kernel with bandwidth {self.bandwidth_:g} is 0 between most rows and every mode: the "
                "modes have no influence. Increase `bandwidth`, or scale the rows.",
                RuntimeWarning,
            )
        elif self.collapsed_:
            weight = (
                self.laplacian_weight
                if isinstance(self.laplacian_weight, str)
                else f"{self.laplacian_weight:g}"
            )
            done = (
                f"the weight was reduced to {self.laplacian_weight_:g}"
                if self.on_collapse == "reduce"
                else "the clusters of the previous iteration were restored"
            )
            warn(
                f"a cluster lost its last row with `laplacian_weight`={weight}: {done}. Use a smaller "
                '`laplacian_weight`, `on_collapse`="reduce", `init`="spectral" or fewer clusters.',
                ConvergenceWarning,
            )
