"""Stochastic backward Euler k-means: long implicit steps that leave poor optima."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

from ._checks import params as _params
from ._checks.params import FRACTION, NOT_NEGATIVE, POSITIVE, POSITIVE_FRACTION, RowWeights
from ._checks.warn import warn
from ._core import Source, Step
from ._fit.declared import estimator
from ._fit.partial import StreamClusterer
from ._fit.saved import Arrays, Texts, floats
from ._rows.source import DataSource
from ._rows.streams import refuse_once
from .typing import Callbacks, Init, Memory, Metric, RandomState, Rows, Weights

__all__ = ["BackwardEulerKMeans"]

#: :meth:`partial_fit` warns of starving clusters every so many batches.
SELDOM = 100


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _cap(value: Any) -> float | None:
    """Return the cap for the compiled code: None for "auto", infinity for no limit."""
    if _is_auto(value):
        return None
    return np.inf if value is None else float(value)


@estimator
class BackwardEulerKMeans(StreamClusterer):
    """K-means by stochastic backward Euler, which leaves poor local optima.

    An outer step is implicit: ``x <- x - step_size * gradient(new x)``. It is solved by `n_inner` iterations
    around the fixed `x`, each with the gradient of another mini-batch. The iterates are averaged, and the
    average is the next `x`. The step size starts so large that a step looks beyond the current local optimum,
    and decays.

    Results are bit-identical for any number of threads, and for an array, a memory map or an ``.npy`` file
    with the same rows.

    Parameters
    ----------
    {n_clusters}
    init : str, array-like or callable, default="auto"
        First centers; the paper starts from ``"random"`` rows. As for :class:`~shoal.KMeans`, but ``"auto"``
        is greedy k-means++ only on up to 3 batches of rows, or 16 rows per cluster if that is more. On more
        rows it is k-means|| with an oversampling factor of 1 and 3 rounds, which takes 16 bytes per row.
        More than 67,108,864 rows take at most 1 GiB, and no more time per row.
        :meth:`partial_fit` chooses the first centers from the first batch.
    max_iter : int, default=150
        Number of outer steps of :meth:`fit`, before the sweeps of `polish`. No other rule ends them.
    polish : "auto" or bool, default="auto"
        Whether :meth:`fit` continues with sweeps over all rows, as in :class:`~shoal.KMeans`, until they
        converge. The result is then an optimum of the exact method, and empty clusters are relocated.
        ``"auto"``: for all rows except those of an iterator, which can be read only once.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"`` is spherical k-means: rows are scaled to length 1 as they are read, and centers return to
        the unit sphere after each batch. See :class:`KMeans` for rows of zeros.
    {random_state_of_stream} {expert}
    batch_size : int, default=1000
        Rows per batch of :meth:`fit`, at least 1. With the number of rows or more, every batch holds each row
        once, and only the first centers are random.
    step_size : "auto" or float, default="auto"
        The first step size (gamma), finite, at least 0. A cluster with the fraction `p` of the rows of a
        batch is pulled toward their mean by ``step_size * p`` of the distance, but at most by `step_cap`.
        ``"auto"`` is ``3 * n_clusters``: a pull of 3 for clusters of equal size, before the cap. For a single
        cluster or without a cap it is ``n_clusters``, because longer steps diverge. If all pulls are below 1,
        the fit does not leave the local optimum in which it starts.
    step_decay : "auto" or float, default="auto"
        Factor of the step size after every outer step (beta), above 0 and at most 1. ``"auto"`` is
        ``20 ** (-1 / max_iter)``: after `max_iter` outer steps the step size is a twentieth of the first one.
    averaging : float, default=0.75
        Weight of the previous average in each inner iteration (alpha), from 0 to 1. 0: no averaging, the last
        iterate is the result.
    n_inner : int, default=5
        Inner iterations per outer step, at least 1, each with its own batch.
    step_cap : "auto", float or None, default="auto"
        Upper limit of the pull of a center, above 0; None: no limit. With a cap, `step_size` may be so large
        that small clusters are pulled as far as large ones. ``"auto"`` is 1.8, or 1.5 with more than 5 inner
        iterations, because each iteration amplifies pulls above 1.
    memory : str or int, default="1GB"
        Memory budget for the distance bounds of the sweeps of `polish`, as for :class:`KMeans`.
    {compute_labels} {n_jobs} {verbose} {callbacks}

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float32 or float64
        Centers, in the compute type of the rows: the average of the current outer step, or of the last outer
        step if no new one has begun.
    {labels_of_stream}
    inertia_ : float
        Weighted sum of squared distances of the rows to their centers; available whenever `labels_` is. The
        objective of the paper is ``inertia_ / (2 * n_samples)``.
    counts_ : ndarray of shape (n_clusters,), float64
        Weight of the rows in each cluster: according to `labels_` if a fit has computed them, else over all
        rows that the cluster ever received.
    step_sizes_ : ndarray of float64
        Step size of each outer step of the fit. Steps of :meth:`partial_fit` are not listed, because their
        number has no limit. Empty after :meth:`partial_fit` alone.
    n_iter_ : int
        Number of outer steps.
    n_steps_ : int
        Number of batches, one per inner iteration.
    {history_}
        A step is an outer step of :meth:`fit` or a sweep of the polish. For an outer step, ``batch_size``
        counts the rows of all its batches, the objective is the sum of the inertias of its batches, each
        about the iterate that labeled it, and ``n_changed`` is 0, because a batch has no previous labels.
    stop_reason_ : str or None
        ``"max-iter"``, ``"diverged"``, ``"callback"``, ``"deadline"``, ``"patience"``, with `polish` also
        ``"labels-stable"`` and ``"tolerance"``; None during the fit.
    {timings_} {init_} {n_zero_rows_of_stream} {features_in}

    See Also
    --------
    KMeans : Exact k-means; with k-means++ and several starts the usual alternative.
    MiniBatchKMeans : For hundreds of clusters, and for streams.

    Notes
    -----
    **Rows.** :meth:`fit` draws rows uniformly and with replacement. With `sample_weight` it draws rows in
    proportion to their weight, and each drawn row counts 1. Streams are cut into consecutive batches, pass
    after pass, and their rows count their weight. The rows of a stream should be in random order: use
    :func:`shoal.shuffle` first if they are not. With an iterator, which gives one pass, the last outer step
    may have fewer batches.

    :meth:`partial_fit` makes one inner iteration whose batch is all rows that it receives. Every `n_inner`
    calls are one outer step. The step size decays as in a fit of `max_iter` outer steps, and keeps decaying
    after them; ``step_decay=1`` keeps it constant.

    **Starving clusters.** A center without rows in a batch is not pulled, and returns to its position at the
    beginning of the outer step. The fewer rows a cluster has, the shorter are its steps. A cluster starves if
    it gets less than a hundredth of the mean number of rows per cluster over some 100 batches: its center
    hardly moves any more. A :class:`~sklearn.exceptions.ConvergenceWarning` names these clusters at the end
    of a fit without polish, and every 100 batches of :meth:`partial_fit`. The same warning is raised if a
    cluster never got a row.

    **Divergence.** The fit raises the same warning if the step size was so large that the centers moved a
    thousand times as far away as the rows are spread. It drops that outer step, keeps the centers before it,
    and ends (``"diverged"``).

    **When to use it.** Choose it for few clusters, when the optimum matters more than time: its long steps
    leave optima in which exact k-means stays. From the same random rows, the mean inertia was at or below
    that of converged exact k-means on most sets. The margin was largest where the sizes of clusters differ
    most; but random rows miss rare groups, and ``init="auto"`` ends lower there. A fit takes about twice as
    long as one of :class:`~shoal.KMeans`, less with very many rows, and many times as long where that takes
    milliseconds. Where groups are very rare, exact k-means is better.

    From random rows without polish, the inertia is much higher on sets whose clusters differ in size by a
    factor of a thousand (network connections, measurements of the space shuttle): keep one of both there. The
    schedule of the paper is ``step_decay=1/1.01, step_cap=None, polish=False`` (the step size is then
    `n_clusters`); it seldom reaches exact k-means (``benches/python/defaults.py``).

    The alternative is :class:`~shoal.KMeans` with k-means++ and several starts (`n_init`), which ends in an
    exact optimum: 10 such starts are as good on images of digits as the restarts of this class that fit into
    the same time. Do not choose this class for hundreds of clusters, because a batch then holds few rows per
    cluster: :class:`~shoal.MiniBatchKMeans` keeps what each center has learned.

    **Cost.** An outer step labels ``n_inner * batch_size`` rows, for any number of rows. The default 150
    outer steps label as many rows as 12.5 passes over 60,000 rows. Every sweep of `polish` reads all rows:
    use ``polish=False`` for many millions of rows, or for a stream that is slow to read, and an `init` that
    does not read all rows four times. Without polish
    nothing converges: batches keep the centers moving while the step size is large.

    **Memory** beyond the rows: about a dozen copies of the centers in float64 and a few per thread, one
    eighth of a byte per row with weights, and 4 bytes per row for labels; 16 bytes per row but at most 1 GiB
    while the first centers are chosen from all rows; with `polish` also the memory of
    :class:`~shoal.KMeans`, with bounds up to `memory`.

    References
    ----------
    P. Yin, M. Pham, A. Oberman and S. Osher, "Stochastic backward Euler: an implicit gradient descent
    algorithm for k-means clustering", Journal of Scientific Computing 77 (2018).

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import BackwardEulerKMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], dtype="float32")
    >>> model = BackwardEulerKMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.tolist())
    [[1.0, 2.0], [10.0, 2.0]]
    >>> model.step_sizes_[[0, -1]].round(2).tolist()
    [6.0, 0.31]
    """

    n_clusters: int = 8
    _: KW_ONLY
    init: Init = "auto"
    batch_size: int = 1000
    step_size: Annotated[float | Literal["auto"], NOT_NEGATIVE] = "auto"
    step_decay: Annotated[float | Literal["auto"], POSITIVE_FRACTION] = "auto"
    averaging: Annotated[float, FRACTION] = 0.75
    n_inner: int = 5
    max_iter: int = 150
    step_cap: Annotated[float | Literal["auto"] | None, POSITIVE] = "auto"
    polish: bool | Literal["auto"] = "auto"
    compute_labels: bool = True
    metric: Metric = "euclidean"
    memory: Memory = "1GB"
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0
    callbacks: Callbacks = None

    _kind = "backward-euler-kmeans"
    _method = "backward-euler"
    _one_pass = True

    def _options(self, source: Source | None) -> dict[str, Any]:
        return {"step_cap": _cap(self.step_cap)}

    def _taken(
        self, X: Rows, sample_weight: Weights
    ) -> tuple[Source, npt.NDArray[Any] | DataSource, RowWeights]:
        self._check()
        if not _is_auto(self.polish) and self.polish:
            refuse_once(X, "BackwardEulerKMeans with polish=True")
        return super()._taken(X, sample_weight)

    def _step_limit(self) -> int | None:
        return None if _is_auto(self.polish) or self.polish else int(self.max_iter)

    def _update(self, run: Any, step: Step | None) -> None:
        super()._update(run, step)
        if step is not None:
            self.step_sizes_: npt.NDArray[np.float64] = run.details()["step_sizes"]
        elif "step_sizes_" not in self.__dict__:
            self.step_sizes_ = np.empty(0)

    def _conclude(self, run: Any) -> None:
        super()._conclude(run)
        if self.stop_reason_ == "diverged":
            self._warn_of_divergence()
        else:
            # Clusters without any row have a warning of their own.
            self._warn_of_starvation([j for j in run.details()["starved"] if self.counts_[j] > 0])

    def _warn_if_few(self) -> None:
        # The warning of divergence explains the empty clusters.
        if self.stop_reason_ != "diverged":
            super()._warn_if_few()

    def _warn_of(self, step: Step) -> None:
        if step.stop_reason == "diverged":
            self._warn_of_divergence()
        elif self._stream is not None and self.n_steps_ % SELDOM == 0:
            self._warn_of_starvation(self._stream.details()["starved"])

    def _warn_of_starvation(self, starved: list[int]) -> None:
        if not starved:
            return
        shown = ", ".join(map(str, starved[:10])) + (", ..." if len(starved) > 10 else "")
        warn(
            f"{len(starved)} of {self.n_clusters} clusters starve: they got less than a hundredth of the "
            f"mean number of rows per cluster, and their centers hardly moved (clusters {shown}). Use "
            "`init`='auto' to begin with centers near the rows, or `polish`=True to end with full sweeps.",
            ConvergenceWarning,
        )

    def _warn_of_divergence(self) -> None:
        warn(
            f"With `step_size`={_params.shown(self.step_size)} and `n_inner`={self.n_inner} the fit diverged "
            f"after {self.n_iter_} outer steps: the centers left the rows far behind. The fit stopped and "
            "kept the previous centers, which are unreliable. Use a smaller `step_size` (at most "
            "2 * `n_clusters`), a smaller `n_inner`, or `step_cap`=1.",
            ConvergenceWarning,
        )

    def _kept(self) -> tuple[Arrays, Texts]:
        arrays, texts = super()._kept()
        return arrays | {"step_sizes": self.step_sizes_}, texts

    @classmethod
    def _restored(cls, arrays: Arrays, meta: Texts) -> Self:
        model = super()._restored(arrays, meta)
        model.step_sizes_ = floats(arrays, "step_sizes", (None,))
        return model
