"""Levels of clusters: every level is a clustering of the centers of the level below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal import _core
from shoal._checks import params as _params
from shoal._checks.marked import mark
from shoal._checks.params import RowWeights
from shoal._core import Source
from shoal.typing import Metric

#: The largest number of clusters of exact k-means; a tree is faster for more.
MOST_FLAT = 1024
#: Sweeps of exact k-means.
SWEEPS = 50


@dataclass(frozen=True, eq=False, repr=False)
class Level:
    """One level of a :class:`~shoal.HierarchicalKMeans` with several numbers of clusters.

    Attributes
    ----------
    cluster_centers : ndarray of shape (n_clusters, n_features), float32 or float64
        The centers of the level.
    parents : ndarray of shape (n_clusters,), int32, or None
        The cluster of the next level that holds each cluster. None in the last level.
    ancestors : ndarray of shape (n_clusters of the first level,), int32
        The cluster of this level that holds each cluster of the first level. ``ancestors[model.predict(X)]``
        are the labels of any rows at this level.
    labels : ndarray of shape (n_samples,), int32
        The cluster of this level that holds each row of the fit. Not available if the model has no `labels_`.
    """

    cluster_centers: npt.NDArray[Any]
    parents: npt.NDArray[np.int32] | None
    ancestors: npt.NDArray[np.int32]
    _finest: npt.NDArray[np.int32] | None

    def __repr__(self) -> str:
        """Show the number of clusters."""
        return f"<Level of {len(self.cluster_centers)} clusters>"

    @property
    def labels(self) -> npt.NDArray[np.int32]:
        """The cluster of this level that holds each row of the fit."""
        if self._finest is None:
            raise AttributeError(
                "'Level' object has no attribute 'labels': the model has no labels_. Use "
                "level.ancestors[model.predict(X)] instead."
            )
        return self.ancestors[self._finest]


def is_several(value: Any) -> bool:
    """Whether `value` is a sequence, as the numbers of clusters of several levels are."""
    return isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes))


def counts_of_levels(name: str, value: Any, *, other: str = "") -> list[int]:
    """Return the numbers of clusters of all levels; raise an error unless they are positive and decrease.

    Messages say that `name` may also be `other`.
    """
    given: list[Any] = list(value) if is_several(value) else []
    fits = all(_params.is_whole(k) and 1 <= k <= _params.MOST for k in given)
    if not given or not fits or any(k <= after for k, after in pairwise(given)):
        raise _params.ParameterError(
            f"{mark(name)} must be {other}a sequence of decreasing integers of at least 1, got "
            f"{_params.shown(value)}"
        )
    return [int(k) for k in given]


def fit_centers(
    source: Source, k: int, *, metric: Metric, seed: int, threads: int | None, weights: RowWeights = None
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
    """Return the centers of `k` clusters, and the labels of the rows."""
    params: dict[str, Any] = {"n_clusters": k, "metric": metric, "random_state": seed, "n_jobs": threads}
    memory = _params.memory("memory", _params.DEFAULT_MEMORY)
    if k <= MOST_FLAT:
        method, options = "kmeans", {"max_iter": SWEEPS, "bounds_memory": memory}
    else:
        method, options = "hierarchical", {"memory_limit": memory}
    run = _core.start(method, source, params | options, weights=weights)
    while run.step() is not None:
        pass
    run.finish()
    return run.centers(), run.labels()


def levels_of(
    centers: list[npt.NDArray[Any]],
    parents: list[npt.NDArray[np.int32]],
    finest: npt.NDArray[np.int32] | None,
) -> list[Level]:
    """Return the levels, the finest first, with these centers; `finest` are the labels of the rows."""
    ancestors = np.arange(len(centers[0]), dtype=np.int32)
    found = []
    for level, of_level in enumerate(centers):
        above = parents[level] if level < len(parents) else None
        found.append(Level(of_level, above, ancestors, finest))
        if above is not None:
            ancestors = above[ancestors]
    return found
