"""Lightweight coresets: a few weighted rows that represent all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from . import _core
from ._common import params as _params
from ._common.zeros import SeenBy
from ._docs import documented
from ._fit.centers import METRICS
from ._fit.watch import watched
from ._rows.checked import as_weighted
from ._rows.coreset import Coreset, csr
from ._rows.streams import refuse_once
from .typing import Callbacks, Metric, RandomState, Rows, Weights

__all__ = ["Coreset", "lightweight_coreset"]

#: Points, weights and indices from the compiled code; sparse points are the three arrays of a CSR matrix.
Parts = tuple[Any, npt.NDArray[np.float64], npt.NDArray[np.int64]]


@documented
def lightweight_coreset(
    X: Rows,
    n_samples: int,
    *,
    sample_weight: Weights = None,
    metric: Metric = "euclidean",
    random_state: RandomState = None,
    n_jobs: int | None = None,
    progress: bool = False,
    callbacks: Callbacks = None,
) -> Coreset:
    """Draw a lightweight coreset: weighted rows that represent all rows.

    Choose it for data that is too large for many passes: it takes two. For any centers, the
    expected weighted sum of squared distances on the coreset equals the sum on all rows. A small coreset may
    miss clusters of few rows near the mean of all data.

    Parameters
    ----------
    X : rows of shape (n_samples_in, n_features)
        Any input of :meth:`shoal.KMeans.fit`.
    n_samples : int
        Rows in the coreset, at least 1. If X has no more rows than this, the coreset is all rows, each with
        its own weight.
    sample_weight : array-like, float or None
        Weight of every row of X, finite, at least 0, not all 0. None: 1.
    metric : {"euclidean", "cosine"}, default="euclidean"
        ``"cosine"``: a coreset of the rows scaled to length 1. The points are these scaled rows, so that
        a fit to the coreset needs no other input. A warning counts rows of zeros, which are not scaled.
    {seed} {threads}
    progress : bool, default=False
        Whether to show a progress line on stderr.
    callbacks : iterable of callables, optional
        Called as ``callback(None, step)`` after each part of a pass; see :mod:`shoal.callbacks`.
        ``Checkpoint``, ``ValidationCurve`` and ``EarlyStopping`` need a fit and do not work here. `step`
        counts rows and has no objective (NaN). A true result ends the call with a `RuntimeError`.

    Returns
    -------
    Coreset
        Points in the order of X. A row that is drawn twice appears twice.

    Raises
    ------
    {invalid}
    RuntimeError
        If a callback ended the call.

    See Also
    --------
    StreamingCoreset : For rows that can be read only once.

    Notes
    -----
    Rows are drawn with replacement, each with probability ``q = w / (2 W) + w d2 / (2 S)``, where ``d2`` is
    the squared distance to the mean, and ``W`` and ``S`` are the sums of ``w`` and ``w d2``. A drawn row gets
    the weight ``w / (n_samples q)``, which is at most ``2 W / n_samples``.

    References
    ----------
    O. Bachem, M. Lucic and A. Krause, "Scalable k-means clustering via lightweight coresets", KDD 2018.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> X = np.random.default_rng(0).normal(size=(10_000, 3))
    >>> coreset = shoal.lightweight_coreset(X, 100, random_state=0)
    >>> coreset.points.shape, bool(coreset.weights.max() <= 200)
    ((100, 3), True)
    """
    problems, found = _params.Problems(), list[Any]()
    problems.check(lambda: found.append(_params.whole("n_samples", n_samples, 1)))
    problems.check(lambda: found.append(_params.threads(n_jobs)))
    problems.check(_params.one_of, "metric", metric, METRICS)
    _params.check_callbacks(problems, callbacks)
    problems.refuse()
    refuse_once(X, "lightweight_coreset")
    source, weights = as_weighted(X, sample_weight)
    n = source.shape[0]
    # Two passes.
    counted = ("row", None if n is None else 2 * n)
    watching = watched("lightweight_coreset", None, progress, callbacks, counted=counted)
    with SeenBy(source, metric) as seen, watching as tell:
        run = _core.LightweightCoreset(seen, found[0], _params.seed(random_state), weights, found[1])
        while (rows := run.step()) is not None:
            if tell(rows):
                raise RuntimeError("a callback ended lightweight_coreset before the coreset was complete")
    return coreset_of(run.result(), source.shape[1])


def coreset_of(parts: Parts, cols: int) -> Coreset:
    points, weights, indices = parts
    if isinstance(points, tuple):
        points = csr(points, (len(weights), cols))
    return Coreset(points, weights, indices)
