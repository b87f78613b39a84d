"""Mini-batch k-means: each center is a running mean of the rows it received."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import NotFittedError
from sklearn.utils.random import sample_without_replacement

from . import _core
from ._checks import params as _params
from ._checks.params import FRACTION, NOT_NEGATIVE, Number, RowWeights
from ._checks.warn import warn, warn_of_few
from ._core import Source
from ._fit.centers import called
from ._fit.declared import AtLeast, estimator
from ._fit.partial import StreamClusterer
from ._rows.arrays import some_rows
from .typing import Callbacks, Init, Metric, RandomState

__all__ = ["MiniBatchKMeans"]

#: Values of `half_life`.
ROWS = Number("a finite number of rows above 0", above=True)


@estimator
class MiniBatchKMeans(StreamClusterer):
    """Mini-batch k-means (Sculley's algorithm), for large data and streams.

    Finds good centers long before all rows are read. Each step labels a batch with the current centers and
    adds its rows to the sums of their clusters. Every center then moves to the mean of all rows that it ever
    received. A step costs the same for any number of rows. ``batch_size=1`` is online stochastic gradient
    descent (Bottou and Bengio).

    Results are bit-identical for any number of threads, and for an array, a memory map or an ``.npy`` file
    with the same rows.

    Parameters
    ----------
    {n_clusters}
    init : str, array-like or callable, default="auto"
        First centers, each counted as one row. As for :class:`~shoal.KMeans`, but ``"auto"`` is greedy
        k-means++ only on up to 3 batches of rows, or 16 rows per cluster if that is more. On more rows it is
        k-means|| with an oversampling factor of 1 and 3 rounds. This usually takes four passes over all
        rows and 16 bytes per row, and finds groups that a sample misses; see `init_size`. More than
        67,108,864 rows take as long and at most 1 GiB, as for :class:`~shoal.KMeans`. :meth:`partial_fit`
        chooses the first centers from the first batch.
    batch_size : int, default=1024
        Rows per batch of :meth:`fit`, at least 1. At most the number of rows is used.
    max_iter : int, default=100
        Maximum number of passes: :meth:`fit` draws at most ``max_iter * n_samples`` rows.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"`` is spherical k-means: rows are scaled to length 1 as they are read, and a center is the
        direction of the sum of the rows it received. See :class:`KMeans` for rows of zeros.
    {random_state_of_stream} {expert}
    tol : float, default=0.0
        :meth:`fit` ends after a batch whose squared center shift, summed over all centers, is at most `tol`
        times the mean variance of the features in the first batch, as in scikit-learn. Every shift is short
        after a batch of few rows: use `max_no_improvement` for such batches. 0 switches this rule off.
    max_no_improvement : int or None, default=10
        :meth:`fit` ends after this many consecutive batches without a new lowest inertia per row, smoothed
        over about one pass, but not before it has drawn as many rows as there are: on data with rare groups
        far from the others, scikit-learn's rule can stop after a dozen batches. None switches this rule off.
    reassignment_ratio : float, default=0.01
        From 0 to 1. About every ``10 * n_clusters`` rows, centers whose count is below this fraction of the
        largest count restart at random rows of the batch, as in scikit-learn. But a center stays if removing
        it would raise the inertia by more than one more center elsewhere lowers it: a center of a rare group,
        far from the others. An `init` array counts as no rows, so that a center of it that has received no
        row restarts. 0 never restarts a center: this is Sculley's algorithm unchanged.
    half_life : float or None, default=None
        Number of rows, above 0, after which earlier rows count half; for streams that drift. None: all rows
        count fully.
    n_init : "auto" or int, default="auto"
        Number of seedings. They are compared on a random sample of `init_size` rows, and the fit begins with
        the one that has the lowest inertia. ``"auto"``: 3 for ``init="random"`` and for a callable, else 1.
        An array is used once. :meth:`partial_fit` seeds once, as in scikit-learn; so does a callable for rows
        that can be read only once.
    init_size : int or None, default=None
        Rows in the random samples from which first centers are chosen and on which they are compared. A value
        below `n_clusters` warns and is replaced by ``3 * n_clusters``. None: all rows for the choice (see
        `init`), and 3 batches, or 16 rows per cluster if that is more, for comparisons. A callable
        gets all rows.
    {compute_labels} {n_jobs} {verbose} {callbacks}

    Attributes
    ----------
    {cluster_centers_} {labels_of_stream}
    inertia_ : float
        Weighted sum of squared distances to the centers, over the rows of `labels_`. Available whenever
        `labels_` is.
    counts_ : ndarray of shape (n_clusters,), float64
        Weight of all rows that each cluster ever received, including 1 for its first center.
    n_iter_ : int
        Number of rows drawn by :meth:`fit`, divided by the number of rows and rounded up; 0 after
        :meth:`partial_fit` alone.
    n_steps_ : int
        Number of batches so far.
    {history_}
        A step is a batch of :meth:`fit`. ``n_changed`` is 0, because a batch has no previous labels. The
        objective is the inertia of the batch.
    stop_reason_ : str or None
        ``"tolerance"``, ``"patience"``, ``"max-iter"``, ``"callback"`` or ``"deadline"``; None during the
        fit.
    {timings_} {init_} {n_zero_rows_of_stream} {features_in}

    See Also
    --------
    KMeans : Exact k-means.
    NestedMiniBatchKMeans : Growing batches that end at a solution of exact k-means.
    StreamingCoreset : A weighted summary of a stream, for any clustering method.

    Notes
    -----
    :meth:`fit` draws rows uniformly and with replacement. With `sample_weight` it draws rows in proportion to
    their weight, and each drawn row counts 1. :meth:`partial_fit` takes every row and counts its weight.
    Therefore :meth:`fit` does not depend on the unit of the weights, and :meth:`partial_fit` depends on it a
    little, because a first center counts as one row of weight 1.

    Memory beyond the rows: ``O(n_clusters * n_features)``, 16 bytes per row but at most 1 GiB while the first
    centers are chosen from all rows (see `init`), one eighth of a byte per row with weights, and 4 bytes per
    row for labels.

    With fewer distinct rows than clusters some clusters stay empty, with weight 0, and the fit raises a
    :class:`~sklearn.exceptions.ConvergenceWarning`.

    References
    ----------
    D. Sculley, "Web-scale k-means clustering", WWW 2010.

    L. Bottou and Y. Bengio, "Convergence properties of the k-means algorithms", NIPS 1995.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import MiniBatchKMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], dtype="float32")
    >>> model = MiniBatchKMeans(n_clusters=2, batch_size=6, random_state=0).fit(X)
    >>> bool(model.predict([[0, 0]])[0] == model.labels_[0])
    True
    >>> stream = MiniBatchKMeans(n_clusters=2, random_state=0)
    >>> for batch in (X[:4], X[4:]):
    ...     stream = stream.partial_fit(batch)
    >>> float(stream.counts_.sum())
    8.0
    """

    n_clusters: int = 8
    _: KW_ONLY
    init: Init = "auto"
    batch_size: int = 1024
    max_iter: int = 100
    tol: Annotated[float, NOT_NEGATIVE] = 0.0
    max_no_improvement: Annotated[int | None, AtLeast(0)] = 10
    reassignment_ratio: Annotated[float, FRACTION] = 0.01
    half_life: Annotated[float | None, ROWS] = None
    n_init: int | Literal["auto"] = "auto"
    init_size: int | None = None
    compute_labels: bool = True
    metric: Metric = "euclidean"
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0
    callbacks: Callbacks = None

    _kind = "minibatch-kmeans"
    _iterations = "sweeps"
    _method = "minibatch"
    _counts_labels = False
    _blind_starts = 3
    _one_pass = True

    def merge(self, other: MiniBatchKMeans) -> Self:
        """Add the sums and counts of another estimator, fitted to other rows.

        Centers are merged by index, so both estimators should have started from the same first centers
        (``init=array``), or one from the centers of the other. The counts of 1 for the first centers add up
        too.

        Parameters
        ----------
        other : MiniBatchKMeans
            Fitted, with the same number of centers and features, and of the same type. It is not changed.

        Returns
        -------
        self
            The estimator.

        Raises
        ------
        TypeError
            If `other` is not a MiniBatchKMeans.
        sklearn.exceptions.NotFittedError
            If one of the two has no centers yet.
        ValueError
            If the centers differ in shape or type, or `other` is this estimator; nothing is changed then.

        Examples
        --------
        >>> import numpy as np
        >>> from shoal import MiniBatchKMeans
        >>> first = np.array([[0.0], [10.0]])
        >>> one = MiniBatchKMeans(2, init=first).partial_fit([[1.0], [2.0]])
        >>> other = MiniBatchKMeans(2, init=first).partial_fit([[9.0], [7.0]])
        >>> one.merge(other).cluster_centers_.tolist()
        [[0.75], [9.0]]
        """
        self._check()
        if not isinstance(other, MiniBatchKMeans):
            raise TypeError(f"other must be a MiniBatchKMeans, got {_params.shown(other)}")
        if other is self:
            raise ValueError("other must be another estimator, got the same one: its rows would count twice")
        for name, model in (("this", self), ("the other", other)):
            if "counts_" not in model.__dict__:
                raise NotFittedError(
                    f"{name} MiniBatchKMeans has no centers to merge. Call fit or partial_fit."
                )
        stream, state = self._current_stream(), other._current_state()
        assert stream is not None
        assert state is not None
        stream.merge(*state)
        self._use_stream(stream, begun=True)
        return self

    def _seeding_rows(self) -> int | None:
        """Return the number of rows in the seeding sample, if the user sets it."""
        if self.init_size is None or self.init_size >= self.n_clusters:
            return None if self.init_size is None else int(self.init_size)
        return 3 * int(self.n_clusters)

    def _seeding_of_fit(
        self, source: Source, rows: Any, seed: int, weights: RowWeights
    ) -> str | npt.NDArray[Any]:
        starts = self._n_starts()
        found = self._k if weights is None else int(np.count_nonzero(weights))
        if found < self._k:
            # Empty clusters may move to rows of others, so `counts_` does not show them.
            warn_of_few("clusters", found, self._k)
        if self.init_size is not None and self.init_size < self.n_clusters:
            warn(
                f"`init_size` must be at least `n_clusters`={self.n_clusters}, got {self.init_size}. "
                f"`init_size`={self._seeding_rows()} is used instead.",
                RuntimeWarning,
            )
        if not callable(self.init):
            if starts > 1 and not isinstance(self.init, str):
                self._warn_of_one_start(starts)
            return super()._seeding(source, rows, seed)
        if starts == 1 or source.access == "once":
            return super()._seeding(source, rows, seed)
        # All seedings share one generator, as in KMeans.
        random_state = _params.random_state_of(seed)
        sample, sample_weights = self._validation_rows(source, weights, random_state)
        best, least = None, np.inf
        for _ in range(starts):
            centers = self._given(called(self.init, rows, self.n_clusters, random_state), source)
            found = _core.inertia(sample, centers, sample_weights, None, self.metric, self._threads)
            if best is None or found < least:
                best, least = centers, found
        assert best is not None
        return best

    def _validation_rows(
        self, source: Source, weights: RowWeights, random_state: np.random.RandomState
    ) -> tuple[Source, RowWeights]:
        """Draw rows of positive weight, to compare the centers of a callable on."""
        n, k = source.shape[0], int(self.n_clusters)
        most = self._seeding_rows() or max(3 * int(self.batch_size), 16 * k)
        weighted = None if weights is None else np.flatnonzero(weights)
        among = n if weighted is None else len(weighted)
        if n is None or among is None or among <= most:
            return source, weights
        picked = np.sort(sample_without_replacement(among, most, random_state=random_state))
        if weighted is not None:
            picked = weighted[picked]
        return some_rows(source, picked), None if weights is None else weights[picked]

    def _options(self, source: Source | None) -> dict[str, Any]:
        return {"n_init": self._n_starts(), "init_size": self._seeding_rows()}

    def _step_limit(self) -> int | None:
        if self._visited is None:
            return None
        n = self._visited[0].shape[0]
        if n is None:
            return None
        return int(self.max_iter) * n // min(int(self.batch_size), n)
