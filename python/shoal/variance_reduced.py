"""Variance-reduced k-means: sweeps, and many small steps between them."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from . import _core
from ._common import params as _params
from ._core import Run, Source, Step
from ._fit.centers import State
from ._fit.clusterer import CenterClusterer
from ._fit.saved import Claims
from .typing import Callbacks, Init, RandomState, Variant

__all__ = ["VarianceReducedKMeans"]

VARIANTS: tuple[str, ...] = get_args(Variant)
#: The largest epoch, in passes and in steps.
MOST_PASSES = 1e6
MOST_STEPS = 10**18
#: Epochs that become longer.
DOUBLING = "doubling"


class VarianceReducedKMeans(CenterClusterer):
    """K-means by stochastic steps with reduced variance (VRKM and VRKM++, Zhao and others).

    An epoch labels all rows, moves every center to the mean of its rows, and then makes steps with one random
    row each. If the row keeps its label, its center moves back towards that mean. If its label changes, the
    new center moves towards the row and the old center away from it. Only rows whose label changes add
    noise, so the learning rate can stay constant.

    Triangle-inequality bounds skip most distance computations of the steps and change no label.

    Results are bit-identical for any number of threads, and for an array, a memory map or an ``.npy`` file
    with the same rows.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters, at least 1 and at most the number of rows.
    init : str, array-like or callable, default="auto"
        First centers. As for :class:`~shoal.KMeans`.
    variant : {"vrkm++", "vrkm"}, default="vrkm++"
        ``"vrkm"`` measures the gradient of the sweep in a pass of its own and takes it from all centers at
        every step, as in the first algorithm of the paper. That gradient is zero: centers are the same to
        rounding, for much more work. It is there for comparisons.
    learning_rate : float or "auto", default="auto"
        How far a step goes, from 0 to 1. ``"auto"`` is ``3 * n_clusters / n_samples``, at most 0.05. The
        paper takes ``n_clusters / n_samples`` and finds larger ones faster; with ten times that as much noise
        stays in the centers as an epoch gains, and fits do not settle. An epoch that makes the inertia worse
        by more than one percent is taken back, and the rate halved. 0 makes every epoch an iteration of
        Lloyd's algorithm.
    epoch_size : float, int or "doubling", default=1.0
        Steps of an epoch: a float is a share of the rows, an int a number, at most 10**18. So 1.0 is as many
        steps as there are rows, and 1 is a single step. 0 makes every epoch an iteration of Lloyd's
        algorithm. ``"doubling"``: 2 in the first epoch, then twice as many as in the epoch before, up to as
        many as there are rows; `tol` counts from there on.
    max_iter : int, default=50
        Most epochs.
    tol : float, default=1e-4
        The fit ends when the inertia has fallen by less than this share in each of two epochs. 0: no such
        rule.
    polish : bool, default=True
        Whether a fit whose last epoch made steps ends with one more sweep, so that the centers are means. A
        loop over :meth:`iter_fit` that is left before its end keeps its centers, as an interrupt does.
    random_state : int, RandomState, Generator or None, default=None
        An int (0 to 2**64 - 1) makes results repeatable. 64 bits are drawn from a generator at every fit.
    n_jobs : int or None, default=None
        Threads. None: ``SHOAL_NUM_THREADS``, else ``OMP_NUM_THREADS``, else all that the process may use;
        -1: all that it may use. At most 4 a core, or 16 (see :func:`shoal.config_context`). Results do not
        depend on it.
    verbose : int, default=0
        1: a progress bar on stderr.
    callbacks : iterable of callables or None, default=None
        Called as ``cb(estimator, step)`` after every epoch; a true result ends the fit. See
        :mod:`shoal.callbacks`.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float32 or float64
        Centers, in the type that rows are computed in.
    labels_ : ndarray of shape (n_samples,), int32
        Nearest center of every row; the lower index wins a tie. What ``predict(X)`` gives.
    inertia_ : float
        Sum of `sample_weight` times squared distance of the rows to their centers.
    counts_ : ndarray of shape (n_clusters,), float64
        Weight of each cluster.
    learning_rate_ : float
        The rate in the end: that of the beginning, ``"auto"`` resolved, unless it was halved.
    n_iter_ : int
        Number of epochs.
    history_ : structured ndarray of shape (n_iter_,)
        A row for every epoch: ``iteration, rows_seen`` (those of sweeps, and steps), ``batch_size,
        objective, center_shift, n_changed, n_distances, elapsed`` and ``stop_reason``. The objective is the
        inertia that the sweep of the epoch measured, before its centers moved.
    stop_reason_ : str or None
        ``"tolerance"``, ``"labels-stable"``, ``"max-iter"``, ``"callback"``, ``"deadline"``; None while
        running.
    timings_ : dict of str to float
        Seconds by phase: ``seeding``, ``sweeps`` (with their steps), ``final``.
    init_ : str
        How the first centers were chosen, ``"auto"`` resolved.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, when X has any that are strings.

    Notes
    -----
    Choose it for 256 clusters or more, where time does not matter. From the same random rows (five sets of
    10,000 or 20,000 rows, 6 starts each) its mean inertia was below that of converged exact k-means on all
    five sets with 256 clusters (by 0.1% to 1.0%) and with 1,024 (by 0.05% to 0.3%). With 50 and 100 clusters
    it was below on four of five (from 1.0% below to 0.6% above), with 20 on three of five (from 0.2% below to
    0.4% above). A fit took 1.3 to 2.9 times the processor time of :class:`~shoal.KMeans`. Doubling epochs
    take less time: 1.1 to 2.5 times. They ended below exact k-means on all five sets with 256 clusters, on
    four with 100, on three with 50 and 1,024, and on two with 20 (``benches/python/defaults.py``).

    Choose :class:`~shoal.KMeans` where time counts: an epoch is worth many sweeps (13 of them 115 on
    200,000 SIFT descriptors with 1000 clusters, 9 of them 43 on 10,000 images of 3072 columns with 100),
    but costs two plain sweeps and more, where sweeps with bounds soon cost a tenth of one. To the inertia
    that exact k-means ends with it took 1.7, 1.4 and 2.5 times as long as :class:`~shoal.KMeans` on these
    three, and 0.6, 0.13 and 2.3 times as long as scikit-learn's. Classes of images are met about as well
    after the same time (70,000 digits, 10 clusters, 3 seconds: accuracy 0.548, and 0.545 with
    :class:`~shoal.KMeans`, 0.554 with :class:`~shoal.NestedMiniBatchKMeans`).

    Rows are drawn uniformly and with replacement, with `sample_weight` by weight. This needs rows that can be
    had at random, in memory or a mapped file; a stream that can be repeated is drawn from in stretches of
    some thousand rows, one after the other, which is not quite what the paper does, but takes bounded memory.
    Rows that can be read once are refused.

    An epoch costs a sweep, which bounds make cheaper as labels settle, and `epoch_size` steps, one after the
    other: each a search of ``n_clusters`` distances where bounds do not tell the label, and none where they
    do. ``variant="vrkm"`` adds a pass, and work on all values of all centers at every step.

    An empty cluster keeps its place. Beyond the rows, memory is that of :class:`~shoal.KMeans`: labels before
    and after a sweep (8 bytes a row, 8 more for weights), and bounds as ``algorithm="auto"`` has them there,
    up to a gigabyte. Beside these, 24 bytes for every value of a center, 16 MB for rows that were drawn, and
    with weights an eighth of a byte a row to draw by.

    References
    ----------
    Y. Zhao, Y. Ming, X. Liu, E. Zhu, K. Zhao and J. Yin, "Large-scale k-means clustering via variance
    reduction", Neurocomputing 307, 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import VarianceReducedKMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], dtype="float32")
    >>> model = VarianceReducedKMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.tolist())
    [[1.0, 2.0], [10.0, 2.0]]
    >>> model.inertia_
    16.0
    """

    _kind = "variance-reduced-kmeans"

    learning_rate_: float
    #: Whether every step measures all distances: for tests and benchmarks.
    _search_always = False

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Init = "auto",
        variant: Variant = "vrkm++",
        learning_rate: float | Literal["auto"] = "auto",
        epoch_size: float | Literal["doubling"] = 1.0,
        max_iter: int = 50,
        tol: float = 1e-4,
        polish: bool = True,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.variant = variant
        self.learning_rate = learning_rate
        self.epoch_size = epoch_size
        self.max_iter = max_iter
        self.tol = tol
        self.polish = polish
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    def _rules(self, problems: _params.Problems) -> None:
        p = _params
        super()._rules(problems)
        problems.check(p.one_of, "variant", self.variant, VARIANTS)
        rate: Any = self.learning_rate
        known = rate == "auto" if isinstance(rate, str) else p.is_number(rate) and 0 <= rate <= 1
        if not known:
            problems.add(f"learning_rate must be 'auto' or a number from 0 to 1, got {p.shown(rate)}")
        size: Any = self.epoch_size
        most = MOST_STEPS if p.is_whole(size) else MOST_PASSES
        doubling = isinstance(size, str) and size == DOUBLING
        if not doubling and not (p.is_number(size) and 0 <= size <= most):
            problems.add(
                f"epoch_size must be a whole number of steps up to {MOST_STEPS:.0e}, a share of the rows "
                f"as a float up to {MOST_PASSES:g}, of at least 0, or {DOUBLING!r}, got {p.shown(size)}"
            )
        if not isinstance(self.polish, (bool, np.bool_)):
            problems.add(f"polish must be True or False, got {p.shown(self.polish)}")

    def _start(
        self,
        source: Source,
        weights: npt.NDArray[np.float64] | None,
        seeding: str,
        centers: npt.NDArray[Any] | None,
        seed: int,
        state: State | None = None,
    ) -> Run:
        """Make a run, from its beginning or from a state."""
        steps = _params.is_whole(self.epoch_size)
        share = _params.is_number(self.epoch_size) and not steps
        return _core.variance_reduced(
            source,
            n_clusters=int(self.n_clusters),
            seeding=seeding,
            centers=centers,
            variant=self.variant,
            learning_rate=None if isinstance(self.learning_rate, str) else float(self.learning_rate),
            epoch_share=float(self.epoch_size) if share else None,
            epoch_steps=int(self.epoch_size) if steps else None,
            max_iter=int(self.max_iter),
            tol=float(self.tol),
            polish=bool(self.polish),
            search_always=self._search_always,
            seed=seed,
            threads=_params.threads(self.n_jobs, tell=False),
            weights=weights,
            state=state,
        )

    def _make_run(self, source: Source, rows: Any, weights: npt.NDArray[np.float64] | None) -> Run:
        seed = _params.seed(self.random_state)
        seeding, centers = self._seeding(source, rows, seed)
        return self._start(source, weights, seeding, centers, seed)

    def _resumed_run(
        self, source: Source, rows: Any, weights: npt.NDArray[np.float64] | None, state: State
    ) -> Run:
        # Seed and centers are in the state already.
        return self._start(source, weights, "auto", None, 0, state)

    def _update(self, run: Any, step: Step | None) -> None:
        super()._update(run, step)
        self.learning_rate_ = run.details()["learning_rate"]

    def _about(self) -> dict[str, Any]:
        return {**super()._about(), "learning_rate": self.learning_rate_}

    def _recall(self, about: Claims) -> None:
        super()._recall(about)
        self.learning_rate_ = float(about.figure("learning_rate") or 0.0)
