"""Laplacian K-modes: clusters that follow the shape of the data, with modes that are rows of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, issparse
from sklearn.base import ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from . import _core
from ._common import params as _params
from ._common.warn import warn
from ._core import ModesRun, Source, Step
from ._fit.centers import INITS
from ._fit.estimator import Clusterer
from ._fit.results import label_into
from ._fit.saved import Arrays, Claims, Texts, floats, need
from ._rows.checked import features_unless_refused, source_of
from ._rows.source import DataSource
from ._rows.sparse import csr_of
from ._rows.spool import at_any_place
from ._spectral import spectral_labels
from .neighbors import METHODS

__all__ = ["LaplacianKModes"]

MODE_UPDATES = ("byproduct", "mean-shift")
AFFINITIES = ("knn", "gaussian", "precomputed")
ON_COLLAPSE = ("restore", "reduce")
SPECTRAL = "spectral"
#: Ways to find a start by their names.
STARTS = (SPECTRAL, *INITS)
#: Keys of `timings_`.
PHASES = ("graph", "seeding", "iterations")
#: What a run keeps: its kind, arrays and texts.
State = tuple[str, Arrays, Texts]
#: Finds the labels of a spectral start, as `spectral_labels` does.
Spectral = Callable[..., npt.NDArray[np.int32] | None]


class LaplacianKModes(ClusterMixin, Clusterer):
    """Scalable Laplacian K-modes (SLK): a mode for every cluster, and one label for rows that are neighbours.

    The fit minimises ``E = - sum_p k(x_p, mode of p's cluster) + laplacian_weight * sum_pq w_pq [labels
    of p and q differ]``, with a Gaussian kernel `k` and an affinity `w` of neighbours. Choose it for
    clusters of any shape whose rows are linked through near neighbours, such as images of digits or
    objects, and where one row should represent each cluster. Where clusters are round,
    :class:`~shoal.KMeans` finds them faster.

    By default the fit begins with spectral clustering of the neighbour graph. It ends within about 0.01 of
    the NMI of spectral clustering, above or below, and adds modes and labels for new rows. On images of
    digits, objects, speech and long texts both are far above k-means. On short texts and on tables of
    measurements the neighbour graph follows the classes less: there k-means, or ``init="k-means++"``, is
    better (``benches/python/papers/slk.py --part defaults``).

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters, at least 1 and at most the number of distinct rows.
    laplacian_weight : "auto" or float, default="auto"
        How much neighbours count (lambda), at least 0. 0 is K-modes. ``"auto"`` follows from `n_clusters`
        and the mean row sum of the affinity, `s`. Neighbours can hold a common label from
        ``c = 2 (k - 1) / (k - 2) ln(k - 1)`` of ``laplacian_weight * s`` on (2 for two clusters). With
        ``init="spectral"`` the weight is ``2 c / s``, enough for the rows that have half of the mean sum.
        With every other `init` it is ``max(c, k / 2) / s``: 1 for 10 clusters and five neighbours, 2 for 20,
        5 for 50. A smaller weight gives nearly the labels of weight 0. Far above it, the largest clusters of
        a seeded start absorb the others: see `on_collapse`. :func:`shoal.laplacian_path` compares weights
        without labels.
    mode_update : {"byproduct", "mean-shift"}, default="byproduct"
        ``"byproduct"`` (SLK-BO): a mode is the row of which its cluster is most certain, at no cost.
        ``"mean-shift"`` (SLK-MS): a mode is a mean, shifted to where the rows of its cluster are densest. It
        is not a row, and the fit is slower. Each row counts in the mean of its own cluster only, by its
        label: the authors' program does the same, while the paper weights every row by its responsibility.
    n_neighbors : int, default=5
        Neighbours of a row in the graph, itself not among them.
    bandwidth : "auto" or float, default="auto"
        Width sigma of the kernel ``exp(-|x - m|**2 / (2 sigma**2))``. ``"auto"``: the root of the mean
        squared distance of neighbours.
    affinity : {"knn", "gaussian", "precomputed"}, default="knn"
        ``"knn"``: neighbours weigh 1; ``"gaussian"``: as much as the kernel says. Both are symmetrised by the
        mean of both directions. ``"precomputed"``: X is the affinity, and the rows are given as `features`.
    diagonal_shift : "auto" or float, default="auto"
        What is added to the diagonal of the affinity: inertia, which does not change the best labels.
        ``"auto"``: none until what is watched rises, from then on, row by row, as much as keeps it from ever
        rising. 0: as in the paper, where labels may swap for ever.
    on_collapse : {"restore", "reduce"}, default="restore"
        What to do when a cluster loses its last row. ``"restore"``: the clusters of the iteration before,
        and stop. ``"reduce"``: the iteration is made again with 0.8 times the weight, as often as it takes.
        Both set `collapsed_`.
    normalize : bool, default=True
        Whether rows are scaled to length 1 as they are read, as the authors' program does.
    init : {"spectral", "k-means++", "plain-k-means++", "random", "auto", "afk-mc2", "k-mc2", "k-means||"}, \
            array-like or callable, default="spectral"
        The start. ``"spectral"``: the labels of k-means on the `n_clusters` leading eigenvectors of the
        normalized affinity, each row scaled to length 1. The first modes are the densest rows of these
        clusters, and each iteration continues from the responsibilities of the iteration before. Connected
        components with fewer rows than a tenth of ``n_samples / n_clusters`` get no eigenvector; their rows
        join the nearest mode. With `n_clusters` components or more above that size, the largest ones are
        the clusters. Where most rows lie in smaller components, as with many duplicates, ``"k-means++"``
        replaces it with a warning.

        All other starts are first modes, as of :class:`~shoal.KMeans`; an array holds one mode per row. Each
        iteration then begins with the responsibilities of the modes alone, as in the paper. Of modes that
        are drawn, one that coincides with another is replaced by the row that is farthest from all.
        With ``mode_update="byproduct"`` each is replaced by the row of its cluster where the rows are
        densest. In clusters of more than 1,024 rows that many, evenly spaced, represent all.
    max_iter : int, default=100
        Most iterations; at least 1. Each has up to 1,000 updates of all responsibilities.
    graph_method : {"auto", "exact", "kd-tree", "ivf"}, default="auto"
        How neighbours are found: see :func:`shoal.knn_graph`.
    responsibilities_memory : str, int or None, default="1GB"
        Bytes for responsibilities, of which a fit holds three copies. Where all of them take more, the
        largest of each row are kept, as many as fit, at least two, and the other clusters share what is left
        equally; then `responsibilities_` is sparse, and the watched energies may rise a little. None: all
        are kept.
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
    labels_ : ndarray of shape (n_samples,), int32
        The cluster that is most responsible for each row; the lowest among equals. Not what ``predict(X)``
        gives, which takes rows as new ones. After a collapse in the first iteration: the labels of the start
        with ``init="spectral"``, else those of the first modes without a Laplacian.
    modes_ : ndarray of shape (n_clusters, n_features), float32 or float64
        Modes, of rows of length 1 with `normalize`.
    mode_indices_ : ndarray of shape (n_clusters,), int64
        The rows that modes are; only with ``mode_update="byproduct"``.
    responsibilities_ : ndarray or csr_matrix of shape (n_samples, n_clusters), float32 or float64
        Positive, of sum 1 in each row; 0 and 1 after a collapse in the first iteration of a spectral start.
        Above `responsibilities_memory` a sparse matrix of the largest ones of
        each row; what their sum lacks of 1 is shared equally by the other clusters.
    affinity_ : scipy.sparse.csr_matrix of shape (n_samples, n_samples)
        The affinity, symmetric.
    bandwidth_ : float
        Width sigma of the kernel.
    energy_ : float
        `E` of `labels_` and `modes_`.
    energies_ : ndarray of shape (n_iter_,)
        The energy after each iteration.
    relaxed_energies_ : list of ndarray
        Of each iteration, what its updates make smaller: ``sum z log z - sum z k - (laplacian_weight / 2)
        sum_pq w_pq z_p.z_q``, the shift of the diagonal included, at the beginning and after each update.
    collapsed_ : bool
        Whether a cluster has lost its last row.
    shifted_ : bool
        Whether ``diagonal_shift="auto"`` was switched on.
    laplacian_weight_ : float
        The weight in use: what ``"auto"`` chose; lower than the parameter after a collapse, with
        ``on_collapse="reduce"``.
    graph_method_, graph_recall_ : str, float
        How neighbours were found, and which share of them.
    n_iter_ : int
        Iterations.
    history_ : structured ndarray of shape (n_iter_,)
        A row for every iteration; `objective` is the energy.
    stop_reason_ : str or None
        ``"labels-stable"``, ``"tolerance"``, ``"max-iter"``, ``"collapsed"``, ``"callback"``, ``"deadline"``,
        ``"patience"``; None while running.
    timings_ : dict of str to float
        Seconds by phase: ``graph``, ``seeding``, ``iterations``.
    init_ : str
        The start that was made.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, when X has any that are strings.

    Notes
    -----
    Cost: the neighbour graph, see :func:`shoal.knn_graph`, then in each iteration ``n n_clusters d`` for the
    kernel and ``n n_neighbors n_clusters`` for each of some dozens of updates. ``init="spectral"`` adds some
    hundred products of the affinity with a vector, each followed by ``n n_clusters`` operations, and five
    runs of k-means in `n_clusters` columns. Not for rows in streams, not where clusters are round, nor for
    thousands of clusters.

    Memory beyond the rows: about ``28 n_clusters`` bytes a row for float32 rows (56 for float64; less where
    the largest responsibilities are kept only), and ``90 n_neighbors`` for the graph, the affinity and its
    copies. While eigenvectors are found, about ``40 n_clusters`` bytes a row. The rows must be readable at
    any place: arrays, sparse matrices and files, no streams. `predict` needs the rows of the fit: an array
    is kept, not copied, and goes along when the model is pickled or saved; so do rows that were read from a
    file when the model is saved, but not when it is pickled.

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

    _kind = "laplacian-kmodes"

    modes_: npt.NDArray[Any]
    mode_indices_: npt.NDArray[np.int64]
    responsibilities_: Any
    affinity_: Any
    bandwidth_: float
    energies_: npt.NDArray[np.float64]
    relaxed_energies_: list[npt.NDArray[np.float64]]
    collapsed_: bool
    shifted_: bool
    laplacian_weight_: float
    n_iter_: int
    timings_: dict[str, float]
    init_: str

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        laplacian_weight: Any = "auto",
        mode_update: str = "byproduct",
        n_neighbors: int = 5,
        bandwidth: Any = "auto",
        affinity: str = "knn",
        diagonal_shift: Any = "auto",
        on_collapse: str = "restore",
        normalize: bool = True,
        init: Any = "spectral",
        max_iter: int = 100,
        graph_method: str = "auto",
        responsibilities_memory: str | int | None = "1GB",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        callbacks: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.laplacian_weight = laplacian_weight
        self.mode_update = mode_update
        self.n_neighbors = n_neighbors
        self.bandwidth = bandwidth
        self.affinity = affinity
        self.diagonal_shift = diagonal_shift
        self.on_collapse = on_collapse
        self.normalize = normalize
        self.init = init
        self.max_iter = max_iter
        self.graph_method = graph_method
        self.responsibilities_memory = responsibilities_memory
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    # ---------------------------------------------------------------- fitting

    def fit(self, X: Any, y: Any = None, *, features: Any = None) -> Self:
        """Cluster the rows of X.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            An array, a list, a numeric frame, a memory map, a sparse matrix, the path of a file, or a
            :class:`~shoal.DataSource` of one; what can only be read in its order (Parquet, a callable that
            gives blocks) is written to a temporary file first.
            With ``affinity="precomputed"`` a sparse matrix of shape (n_samples, n_samples), at least 0, which
            is symmetrised: `w` for who is near, such as scikit-learn's
            ``kneighbors_graph(mode="connectivity")``. The graph of :func:`shoal.knn_graph` has distances,
            under which those who are far would weigh most: set ``graph.data[:] = 1`` first.
        y : ignored
        features : rows of shape (n_samples, n_features), optional
            The rows, with ``affinity="precomputed"``.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            For parameters, shapes or values that are refused; the message names them.
        TypeError
            For values that are no numbers.
        OSError
            When a file cannot be read.
        KeyboardInterrupt
            On Ctrl-C; what the last whole iteration left stays usable.
        """
        for _ in self.iter_fit(X, features=features):
            pass
        return self

    def iter_fit(self, X: Any, *, features: Any = None) -> Iterator[Step]:
        """Cluster the rows of X, one iteration per ``next()``.

        After each, all fitted attributes are those of the iteration. Leaving the loop early leaves a usable
        estimator. ``fit(X)`` is the whole of this iterator.

        Parameters
        ----------
        X, features
            As for :meth:`fit`.

        Yields
        ------
        shoal.Step
            What the iteration did. `objective` is the energy of the labels.

        Raises
        ------
        ValueError, TypeError, OSError, KeyboardInterrupt
            As :meth:`fit`.
        """
        return self._iter_fit(X, features)

    def _iter_fit(self, X: Any, features: Any, spectral: Spectral = spectral_labels) -> Iterator[Step]:
        """Give the iterations of a fit; `spectral` finds the labels of ``init="spectral"``."""
        self._check()
        with features_unless_refused(self):
            if self.affinity != "precomputed":
                if features is not None:
                    raise ValueError(
                        'features are the rows for affinity="precomputed", where X is the affinity'
                    )
                source, rows = self._taken(X)
                return self._begun(source, rows, None, spectral)
            affinity = matrix_of(X)
            if features is None:
                raise ValueError('affinity="precomputed" needs the rows too: fit(affinity, features=rows)')
            source, rows = self._taken(features)
            if source.shape[0] != affinity.shape[0]:
                raise ValueError(
                    f"X is an affinity of {affinity.shape[0]} rows, and features has {source.shape[0]}"
                )
            return self._begun(source, rows, affinity, spectral)

    def _begun(self, source: Source, rows: Any, affinity: Any, spectral: Spectral) -> Iterator[Step]:
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
        """Iterate; with a `seed` from the labels of spectral clustering."""
        if seed is not None:
            self._begin_with_spectral(run, seed, spectral)
        self._fit_rows = rows
        yield from self._iterate(run, source, None)

    @property
    def _is_spectral(self) -> bool:
        return isinstance(self.init, str) and self.init == SPECTRAL

    def _begin_with_spectral(self, run: ModesRun, seed: int, spectral: Spectral) -> None:
        """Give a run the labels of spectral clustering on its own graph."""
        run.prepare()
        begun = time.perf_counter()
        labels = spectral(affinity_of(run), int(self.n_clusters), seed=seed, n_jobs=self.n_jobs)
        if labels is not None:
            run.begin_with(labels, SPECTRAL, time.perf_counter() - begun)
            return
        warn(
            "most rows lie in components of the neighbour graph that are much smaller than a cluster: "
            'init="spectral" finds no clusters there, and init="k-means++" is used instead. Duplicate rows '
            "are a common reason; more neighbours (n_neighbors) may help.",
            RuntimeWarning,
        )

    def _taken(self, X: Any, sample_weight: Any = None) -> tuple[Source, Any]:
        """Check parameters and rows of a fit."""
        self._check()
        if sample_weight is not None:
            raise ValueError("LaplacianKModes takes no sample_weight")
        rows = self._checked(at_any_place(X, type(self).__name__), reset=True)
        source = source_of(rows)
        n = source.shape[0]
        if self.normalize and source.shape[1] == 1:
            raise ValueError(
                "rows of n_features=1 are all alike once they have length 1: use normalize=False"
            )
        if n is not None and n < self.n_clusters:
            raise ValueError(f"n_samples={n} should be >= n_clusters={self.n_clusters}.")
        if n is not None and n <= self.n_neighbors and self.affinity != "precomputed":
            raise ValueError(f"n_neighbors={self.n_neighbors} must be less than n_samples={n}")
        return source, rows

    def _go_on(self, state: State, source: Source, rows: Any) -> Iterator[Step]:
        """Iterate over what is left of the fit that `state` was kept of; the rest is what `_taken` gave."""
        self._by_callable = self._same_features(state[2])
        return self._iterate_over(self._start(source, rows, 0, None, state), source, rows)

    def _start(self, source: Source, rows: Any, seed: int, affinity: Any, state: State | None) -> ModesRun:
        seeding = self.init if isinstance(self.init, str) and not self._is_spectral else "k-means++"
        centers = None
        if state is None and not isinstance(self.init, str):
            centers = self.init
            if callable(centers):
                centers = centers(rows, int(self.n_clusters), random_state=_params.random_state_of(seed))
            shape = (int(self.n_clusters), source.shape[1])
            seeding, centers = "given", _params.centers("init", centers, source.compute, shape)
        parts = None
        if affinity is not None:
            parts = (
                affinity.indptr.astype(np.int64),
                affinity.indices.astype(np.int32),
                affinity.data.astype(np.float64),
            )
        most, memory = (source.shape[0] or 1) - 1, self.responsibilities_memory
        return _core.kmodes(
            source,
            n_clusters=int(self.n_clusters),
            laplacian_weight=None if isinstance(self.laplacian_weight, str) else float(self.laplacian_weight),
            mode_update=self.mode_update,
            n_neighbors=max(1, min(int(self.n_neighbors), most)),
            bandwidth=None if isinstance(self.bandwidth, str) else float(self.bandwidth),
            gaussian=self.affinity == "gaussian",
            diagonal_shift=None if isinstance(self.diagonal_shift, str) else float(self.diagonal_shift),
            on_collapse=self.on_collapse,
            normalize=bool(self.normalize),
            seeding=seeding,
            centers=centers,
            max_iter=int(self.max_iter),
            graph_method=self.graph_method,
            responsibilities_memory=None
            if memory is None
            else _params.memory("responsibilities_memory", memory),
            seed=seed,
            threads=_params.threads(self.n_jobs, tell=False),
            affinity=parts,
            state=state,
        )

    def _check(self) -> None:
        """Refuse parameters of a wrong type or range, all together."""
        p, problems = _params, _params.Problems()
        problems.check(p.whole, "n_clusters", self.n_clusters, 1)
        weight = self.laplacian_weight
        if not (isinstance(weight, str) and weight == "auto") and not (p.is_number(weight) and weight >= 0):
            problems.add(
                f"laplacian_weight must be 'auto' or a finite number of at least 0, got {p.shown(weight)}"
            )
        problems.check(p.one_of, "mode_update", self.mode_update, MODE_UPDATES)
        problems.check(p.whole, "n_neighbors", self.n_neighbors, 1)
        if not (isinstance(self.bandwidth, str) and self.bandwidth == "auto") and not (
            p.is_number(self.bandwidth) and self.bandwidth > 0
        ):
            problems.add(f"bandwidth must be 'auto' or a number above 0, got {p.shown(self.bandwidth)}")
        problems.check(p.one_of, "affinity", self.affinity, AFFINITIES)
        if not (isinstance(self.diagonal_shift, str) and self.diagonal_shift == "auto") and not (
            p.is_number(self.diagonal_shift) and self.diagonal_shift >= 0
        ):
            problems.add(
                f"diagonal_shift must be 'auto' or a number of at least 0, got {p.shown(self.diagonal_shift)}"
            )
        problems.check(p.one_of, "on_collapse", self.on_collapse, ON_COLLAPSE)
        if not isinstance(self.normalize, (bool, np.bool_)):
            problems.add(f"normalize must be True or False, got {p.shown(self.normalize)}")
        if isinstance(self.init, str) and self.init not in STARTS:
            problems.add(
                f"init must be one of {', '.join(STARTS)}, an array or a callable, got {p.shown(self.init)}"
            )
        problems.check(p.whole, "max_iter", self.max_iter, 1)
        problems.check(p.one_of, "graph_method", self.graph_method, METHODS)
        if self.responsibilities_memory is not None:
            problems.check(p.memory, "responsibilities_memory", self.responsibilities_memory)
        self._rules_of_a_run(problems)
        problems.refuse()

    def _update(self, run: Any, step: Step | None) -> None:
        details = run.details()
        self.modes_ = run.centers()
        if self.mode_update == "byproduct":
            self.mode_indices_ = details["mode_rows"]
        self._labels = run.labels()
        self.responsibilities_ = kept_of(
            details["responsibilities"], details["responsibilities_clusters"], len(self.modes_)
        )
        if not hasattr(self, "affinity_"):
            self.affinity_ = affinity_of(run)
        self.relaxed_energies_, self.energies_ = details["relaxed_energies"], details["energies"]
        self.bandwidth_, self.laplacian_weight_ = details["bandwidth"], details["laplacian_weight"]
        self.graph_method_, self.graph_recall_ = details["graph_method"], details["graph_recall"]
        self.collapsed_, self.shifted_ = details["collapsed"], details["shifted"]
        self._blind, by = details["blind"], run.init
        if self._by_callable or callable(self.init):
            self.init_ = "callable"
        else:
            self.init_ = by if isinstance(self.init, str) else "array"
        self.n_iter_ = run.n_iter
        self.timings_ = details["timings"]

    def _complete(self, run: Any) -> None:
        self._run = None

    def _conclude(self, run: Any) -> None:
        super()._conclude(run)
        if self._blind:
            warn(
                f"the kernel of bandwidth {self.bandwidth_:g} is 0 for most rows, whatever the mode, so that "
                "modes have no say: give a larger bandwidth, or scale the rows",
                RuntimeWarning,
            )
        elif self.collapsed_:
            weight = (
                self.laplacian_weight
                if isinstance(self.laplacian_weight, str)
                else f"{self.laplacian_weight:g}"
            )
            done = (
                f"its weight was reduced to {self.laplacian_weight_:g}"
                if self.on_collapse == "reduce"
                else "the clusters of the iteration before were restored"
            )
            warn(
                f"a cluster lost its last row with laplacian_weight={weight}: {done}. A "
                'smaller weight, on_collapse="reduce", init="spectral" or fewer clusters may help.',
                ConvergenceWarning,
            )

    def _measure(
        self, source: Source, weights: npt.NDArray[np.float64] | None
    ) -> tuple[npt.NDArray[np.int32], float]:
        raise AttributeError("LaplacianKModes has labels after every iteration, and no inertia")

    @property
    def inertia_(self) -> float:
        """There is none: modes are no means."""
        raise AttributeError("'LaplacianKModes' object has no attribute 'inertia_': see energy_")

    @inertia_.setter
    def inertia_(self, inertia: float) -> None:
        raise AttributeError("'LaplacianKModes' object has no attribute 'inertia_': see energy_")

    @property
    def energy_(self) -> float:
        """The energy of `labels_` and `modes_`."""
        if "energies_" not in self.__dict__:
            raise AttributeError("'LaplacianKModes' object has no attribute 'energy_': it is not fitted yet")
        return float(self.energies_[-1])

    # ---------------------------------------------------------------- using

    def predict(self, X: Any, out: Any = None) -> npt.NDArray[np.int32]:
        """Label rows that were not in the fit, through their modes and their neighbours that were.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`fit`; computed in the type of the modes.
        out : ndarray of shape (n_samples,), int32, or path, optional
            Where the labels go, as for :meth:`KMeans.predict`.

        Returns
        -------
        ndarray of shape (n_samples,), int32
            The most responsible cluster; the lowest among equals.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before :meth:`fit`.
        ValueError, TypeError, OSError
            As :meth:`fit`, and for another number of features.
        """
        self._at_hand()
        return label_into(self, X, out, None)

    def _labelled(
        self, part: Source, first_row: int, with_distances: bool
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64] | None]:
        return self._responsible(part).argmax(axis=1).astype(np.int32), None

    def responsibilities(self, X: Any) -> npt.NDArray[Any]:
        """Give the responsibilities of clusters for rows that were not in the fit.

        Parameters
        ----------
        X : rows of shape (n_samples, n_features)
            As for :meth:`predict`.

        Returns
        -------
        ndarray of shape (n_samples, n_clusters)
            ``softmax(k(x, modes) + laplacian_weight_ * sum of w times the responsibilities of the nearest
            n_neighbors rows of the fit)``. A neighbour's `w` is 1; the kernel of its distance with
            ``affinity="gaussian"``; with ``"precomputed"`` the mean sum of a row of `affinity_`, divided by
            `n_neighbors`, so that new rows are pulled as much as those of the fit.

        Raises
        ------
        ValueError, TypeError, OSError
            As :meth:`predict`.
        """
        self._at_hand()
        return self._responsible(self._rows(X, reset=False))

    def _at_hand(self) -> None:
        """Refuse what needs the rows of the fit where there are none."""
        check_is_fitted(self, "modes_")
        if self._fit_rows is None:
            raise ValueError(
                "the rows of the fit, which prediction needs, were in a file and are not at hand"
            )

    def _responsible(self, source: Source) -> npt.NDArray[Any]:
        z, n = self.responsibilities_, self.responsibilities_.shape[0]
        m = min(int(self.n_neighbors), n)
        kept, clusters = z, np.empty(0, dtype=np.int32)
        if issparse(z):
            kept, clusters = z.data.reshape(n, -1), z.indices.astype(np.int32, copy=False)
        return _core.kmodes_responsibilities(
            source,
            source_of(self._fit_rows),
            self.modes_,
            (kept, clusters),
            m,
            None if self.affinity == "gaussian" else float(self.affinity_.data.sum()) / (n * m),
            self.bandwidth_,
            self.laplacian_weight_,
            bool(self.normalize),
            _params.threads(self.n_jobs, tell=False),
        )

    def __sklearn_tags__(self) -> Any:
        """Say to scikit-learn what this estimator can do."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.affinity == "precomputed"
        return tags

    # ---------------------------------------------------------------- keeping

    def __getstate__(self) -> dict[str, Any]:
        """Give plain values and arrays: rows in a file stay where they are."""
        state = super().__getstate__()
        if isinstance(state.get("_fit_rows"), DataSource):
            state["_fit_rows"] = None
        return state

    def _compute_type(self) -> npt.DTypeLike:
        dtype: npt.DTypeLike = self.modes_.dtype
        return dtype

    def _kept(self) -> tuple[Arrays, Texts]:
        arrays, texts = self._described()
        z = self.responsibilities_
        if issparse(z):
            arrays["responsibilities_clusters"] = z.indices.astype(np.int32)
        arrays |= {
            "modes": self.modes_,
            "labels": self.labels_,
            "responsibilities": z.data.reshape(z.shape[0], -1) if issparse(z) else z,
            "affinity_starts": self.affinity_.indptr.astype(np.int64),
            "affinity_columns": self.affinity_.indices.astype(np.int32),
            "affinity_weights": self.affinity_.data,
            "energies": self.energies_,
            "watched": np.concatenate([*self.relaxed_energies_, np.empty(0)]),
            "loops": np.array([len(loop) for loop in self.relaxed_energies_], dtype=np.int64),
        }
        if self.mode_update == "byproduct":
            arrays["mode_indices"] = self.mode_indices_
        rows = self._fit_rows
        if isinstance(rows, DataSource):
            rows = rows._source.read(0, rows.shape[0] or 0)
        if issparse(rows):
            arrays |= {"rows": rows.data, "rows_columns": rows.indices, "rows_starts": rows.indptr}
        elif rows is not None:
            arrays["rows"] = np.ascontiguousarray(rows)
        arrays["history"], about = self._kept_history()
        about |= {
            "n_iter": self.n_iter_,
            "bandwidth": self.bandwidth_,
            "laplacian_weight": self.laplacian_weight_,
            "collapsed": self.collapsed_,
            "shifted": self.shifted_,
            "graph_method": self.graph_method_,
            "graph_recall": self.graph_recall_,
            "timings": self.timings_,
            "init": self.init_,
            "feature_names": json.loads(texts["features"])["feature_names"],
        }
        return arrays, {"params": texts["params"], "fitted": json.dumps(about)}

    @classmethod
    def _restored(cls, arrays: Arrays, meta: Texts) -> Self:
        about = Claims.read(meta, "fitted")
        modes = floats(arrays, "modes", (None, None))
        k, d = modes.shape
        need(k > 0 and d > 0, f"it has {k} modes of {d} columns")
        clusters = np.empty(0, dtype=np.int32)
        z = floats(arrays, "responsibilities", (None, None))
        n, top = z.shape
        if "responsibilities_clusters" in arrays:
            clusters = whole_numbers(arrays, "responsibilities_clusters", n * top, k).astype(np.int32)
        need(top > 0 and (len(clusters) > 0 or top == k), "its responsibilities do not fit its modes")
        labels = whole_numbers(arrays, "labels", n, k)
        starts = whole_numbers(arrays, "affinity_starts", n + 1, None)
        stored = int(starts[-1])
        columns = whole_numbers(arrays, "affinity_columns", stored, n)
        need(bool((np.diff(starts) >= 0).all()) and starts[0] == 0, "its affinity is damaged")
        weights = floats(arrays, "affinity_weights", (stored,))
        model = cls._of_params(arrays, meta)
        model._check()
        model._forget()
        model.modes_, model.responsibilities_ = modes, kept_of(z, clusters, k)
        model._labels = labels.astype(np.int32)
        model.affinity_ = csr_matrix((weights, columns, starts), shape=(n, n))
        if model.mode_update == "byproduct":
            model.mode_indices_ = whole_numbers(arrays, "mode_indices", k, n).astype(np.int64)
        model.n_features_in_ = d
        model._recall_names(about)
        model.energies_ = floats(arrays, "energies", (None,))
        watched = floats(arrays, "watched", (None,))
        loops = whole_numbers(arrays, "loops", None, None)
        need(int(loops.sum()) == len(watched), "its energies do not fit together")
        model.relaxed_energies_ = np.split(watched, np.cumsum(loops)[:-1]) if len(loops) else []
        model._fit_rows = kept_rows(arrays, n, d)
        model.n_iter_ = about.count("n_iter")
        model.bandwidth_ = about.figure("bandwidth") or 0.0
        model.laplacian_weight_ = about.figure("laplacian_weight") or 0.0
        model.collapsed_, model.shifted_ = about.flag("collapsed"), about.flag("shifted")
        model.graph_method_ = str(about.text("graph_method"))
        model.graph_recall_ = about.figure("graph_recall") or 0.0
        model.timings_ = about.figures("timings", PHASES)
        model.init_ = str(about.text("init"))
        model._recall_history(arrays, about)
        return model


def affinity_of(run: ModesRun) -> csr_matrix:
    """Give the affinity of a run as a matrix."""
    starts, columns, weights = run.affinity()
    n = len(starts) - 1
    return csr_matrix((weights, columns, starts), shape=(n, n))


def kept_of(kept: npt.NDArray[Any], clusters: npt.NDArray[np.int32], k: int) -> Any:
    """Give responsibilities as an array, or as a sparse matrix where those of some `clusters` are kept."""
    if len(clusters) == 0:
        return kept
    n, top = kept.shape
    starts = np.arange(0, n * top + 1, top, dtype=np.int32 if n * top < 2**31 else np.int64)
    return csr_matrix((kept.ravel(), clusters, starts), shape=(n, k), copy=False)


def matrix_of(affinity: Any) -> Any:
    """Check shape and type of an affinity that the user gives; values are checked where they are used."""
    matrix = csr_matrix(csr_of(affinity) if issparse(affinity) else np.asarray(affinity))
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f'X must be square with affinity="precomputed", got shape {matrix.shape}')
    if matrix.dtype.kind not in "biuf":
        raise TypeError(f'X must hold real numbers with affinity="precomputed", got {matrix.dtype}')
    return matrix


def whole_numbers(
    arrays: Arrays, name: str, length: int | None, below: int | None
) -> npt.NDArray[np.integer[Any]]:
    """Give an array of a file that holds so many whole numbers of at least 0, all below another."""
    need(name in arrays, f"it lacks the array {name!r}")
    array = arrays[name]
    need(array.ndim == 1 and length in (None, len(array)), f"its array {name!r} has shape {array.shape}")
    need(array.dtype.kind == "i", f"its array {name!r} is of type {array.dtype}")
    inside = len(array) == 0 or (array.min() >= 0 and (below is None or array.max() < below))
    need(bool(inside), f"its array {name!r} holds numbers out of range")
    return array


def kept_rows(arrays: Arrays, n: int, d: int) -> Any:
    """Give the rows of the fit that a file holds, checked; None if it holds none."""
    if "rows" not in arrays:
        return None
    if "rows_starts" not in arrays:
        rows = arrays["rows"]
        need(rows.shape == (n, d), f"its array 'rows' has shape {rows.shape}")
        return rows
    starts = whole_numbers(arrays, "rows_starts", n + 1, None)
    need(bool((np.diff(starts) >= 0).all()) and starts[0] == 0, "its rows are damaged")
    columns = whole_numbers(arrays, "rows_columns", int(starts[-1]), d)
    need(arrays["rows"].shape == columns.shape, "its rows are damaged")
    return csr_matrix((arrays["rows"], columns, starts), shape=(n, d))
