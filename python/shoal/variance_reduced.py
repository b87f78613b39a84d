"""Variance-reduced k-means: sweeps with many small steps between them."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Annotated, Any, ClassVar, Literal

from ._checks import params as _params
from ._checks.params import FRACTION, NOT_NEGATIVE
from ._core import Source, Step
from ._fit.clusterer import CenterClusterer
from ._fit.declared import estimator
from .typing import Callbacks, Init, Memory, Metric, RandomState, Variant

__all__ = ["VarianceReducedKMeans"]

#: Upper limits of `epoch_size`: as a fraction of the rows, and in steps.
MOST_PASSES = 1e6
MOST_STEPS = 10**18
#: The value of `epoch_size` for epochs that double.
DOUBLING = "doubling"


@estimator
class VarianceReducedKMeans(CenterClusterer):
    """K-means by variance-reduced stochastic steps (VRKM and VRKM++).

    An epoch labels all rows and moves every center to the mean of its rows. Then it makes steps with one
    random row each. If the row keeps its label, its center moves back toward this mean. If its label changes,
    the new center moves toward the row and the old center away from it. Only rows whose label changes add
    noise, so the learning rate can stay constant.

    Triangle-inequality bounds skip most distance computations of the steps and change no label. Results are
    bit-identical for any number of threads, and for an array, a memory map or an ``.npy`` file with the same
    rows.

    Parameters
    ----------
    {n_clusters}
    init : str, array-like or callable, default="auto"
        First centers. As for :class:`~shoal.KMeans`.
    max_iter : int, default=50
        Maximum number of epochs.
    tol : float, default=1e-4
        The fit ends when the inertia has fallen by less than this fraction in each of two consecutive epochs.
        0 switches this rule off.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"`` is spherical k-means: rows are scaled to length 1 as they are read, and centers return to
        the unit sphere at the end of each epoch. See :class:`KMeans` for rows of zeros.
    {random_state} {expert}
    variant : {"vrkm++", "vrkm"}, default="vrkm++"
        ``"vrkm"`` computes the gradient of the sweep in a separate pass and subtracts it from all centers at
        every step, as in the first algorithm of the paper. This gradient is zero, so the centers are equal up
        to rounding, for much more work. It is meant for comparisons.
    learning_rate : float or "auto", default="auto"
        Length of a step, from 0 to 1. ``"auto"`` is ``3 * n_clusters / n_samples``, at most 0.05. The paper
        takes ``n_clusters / n_samples`` and finds larger rates faster. With ten times that rate the noise in
        the centers is as large as the gain of an epoch, and fits do not settle. An epoch that increases the
        inertia by more than 1% is undone, and the rate is halved. 0 makes every epoch an iteration of Lloyd's
        algorithm.
    epoch_size : float, int, str or "doubling", default=1.0
        Steps per epoch: a float, or text such as ``"0.5x"``, is a multiple of the number of rows, an int a
        number of steps, at most 10**18. So ``1.0`` and ``"1x"`` are as many steps as rows, and ``1`` is a
        single step. 0 makes every epoch an iteration of Lloyd's algorithm. ``"doubling"``: 2 steps in the
        first epoch, then twice as many as in the previous epoch, up to the number of rows; `tol` applies
        from there on.
    polish : bool, default=True
        Whether a fit whose last epoch made steps ends with one more sweep, so that the centers are means.
        Leaving a loop over :meth:`iter_fit` early, or an interrupt, keeps the current centers.
    memory : str or int, default="1GB"
        Memory budget for distance bounds, as for :class:`KMeans`.
    {n_jobs} {verbose} {callbacks}

    Attributes
    ----------
    {cluster_centers_} {labels_}
    inertia_ : float
        Weighted sum of squared distances of the rows to their centers.
    {counts_}
    learning_rate_ : float
        The learning rate at the end: the first one, ``"auto"`` resolved, unless it was halved.
    n_iter_ : int
        Number of epochs.
    history_ : structured ndarray of shape (n_iter_,)
        One row per epoch: ``iteration, rows_seen`` (rows of sweeps, plus steps), ``batch_size, objective,
        center_shift, n_changed, n_distances, elapsed`` and ``stop_reason``. The objective is the inertia that
        the sweep of the epoch measured, before it moved the centers.
    stop_reason_ : str or None
        ``"tolerance"``, ``"labels-stable"``, ``"max-iter"``, ``"callback"`` or ``"deadline"``; None during
        the fit.
    timings_ : dict of str to float
        Seconds by phase: ``seeding``, ``sweeps`` (with their steps), ``final``.
    {init_} {n_zero_rows_} {features_in}

    See Also
    --------
    KMeans : Exact k-means, the better choice when time counts.
    BackwardEulerKMeans : For a lower inertia with few clusters.

    Notes
    -----
    **When to use it.** Choose it for 256 clusters or more, when time does not matter. From the same random
    rows, its inertia is below that of converged exact k-means in most cases. With fewer clusters it is
    above about as often as below. A fit takes longer than one of :class:`~shoal.KMeans`. Doubling epochs take
    less time, and their inertia is above that of exact k-means more often (``benches/python/defaults.py``).

    Keep the default `init` where groups are rare. Random rows miss rare groups, and neither this class nor
    exact k-means from the same rows finds them later (``benches/python/papers/vrkm.py --parts random``).

    Choose :class:`~shoal.KMeans` when time counts. An epoch is worth many sweeps, but it costs more than two
    plain sweeps, while a sweep with bounds soon costs a fraction of one. On classes of images both are about
    equally accurate after the same time (``benches/python/papers/vrkm.py``).

    **Rows.** Rows are drawn uniformly and with replacement, with `sample_weight` in proportion to their
    weight. This needs random access: rows in memory or in a mapped file. From a re-readable stream, runs of
    some thousand consecutive rows are drawn, one after the other. This differs slightly from the paper, but
    takes bounded memory. An iterator, which can be read only once, raises `ValueError`.

    **Cost.** An epoch costs one sweep, which bounds make cheaper as labels settle, and `epoch_size`
    sequential steps. A step searches ``n_clusters`` distances if the bounds do not determine the label, and
    none if they do. ``variant="vrkm"`` adds one pass, and an update of all centers at every step.

    The center of an empty cluster moves to the row that is farthest from its center, as in
    :class:`~shoal.KMeans`.

    **Memory** beyond the rows is that of :class:`~shoal.KMeans`: labels before and after a sweep (8 bytes per
    row, 8 more for weights), and bounds as with ``algorithm="auto"`` there, up to `memory`. In addition: 24
    bytes for every value of a center, 16 MB for drawn rows, and with weights one eighth of a byte per row.

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

    n_clusters: int = 8
    _: KW_ONLY
    init: Init = "auto"
    variant: Variant = "vrkm++"
    learning_rate: Annotated[float | Literal["auto"], FRACTION] = "auto"
    epoch_size: float | str = 1.0
    max_iter: int = 50
    tol: Annotated[float, NOT_NEGATIVE] = 1e-4
    polish: bool = True
    metric: Metric = "euclidean"
    memory: Memory = "1GB"
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0
    callbacks: Callbacks = None

    _kind = "variance-reduced-kmeans"
    _method = "variance-reduced"
    _hidden = ("search_always",)
    #: Whether every step computes all distances; for tests and benchmarks.
    _search_always = False
    _saved_attributes: ClassVar = {"learning_rate_": "figure"}

    def _rules(self, problems: _params.Problems) -> None:
        p = _params
        super()._rules(problems)
        size = self._epoch_size
        most = MOST_STEPS if p.is_whole(size) else MOST_PASSES
        if size != DOUBLING and (size is None or not size <= most):
            problems.add(
                f"`epoch_size` must be an integer from 0 to {MOST_STEPS:.0e} (steps), a float from 0 to "
                f"{MOST_PASSES:g} or text such as '0.5x' (multiple of the rows), or {DOUBLING!r}, got "
                f"{p.shown(self.epoch_size)}"
            )

    @property
    def _epoch_size(self) -> Any:
        """The steps per epoch as the compiled half takes them; None for an invalid value."""
        size = self.epoch_size
        return DOUBLING if isinstance(size, str) and size == DOUBLING else _params.size(size)

    def _options(self, source: Source | None) -> dict[str, Any]:
        return {"search_always": self._search_always, "epoch_size": self._epoch_size}

    def _update(self, run: Any, step: Step | None) -> None:
        super()._update(run, step)
        self.learning_rate_: float = run.details()["learning_rate"]
