"""Fast clustering of data larger than memory: exact, streaming and deterministic.

>>> import numpy as np, shoal
>>> model = shoal.KMeans(n_clusters=2, random_state=0).fit(np.array([[0.0], [0.2], [9.0], [9.2]]))
>>> sorted(model.cluster_centers_.ravel().tolist())
[0.1, 9.1]
"""

from __future__ import annotations

import importlib

# Not imported from `typing`, which would take longer to import than this whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from . import callbacks, convert, distributed, metrics
    from ._core import Step
    from ._core import version as __version__
    from .backward_euler import BackwardEulerKMeans
    from .balanced import BalancedKMeans
    from .breathing import BreathingKMeans
    from .config import config_context
    from .coreset import Coreset, lightweight_coreset
    from .data import DataSource, open
    from .hierarchical import HierarchicalKMeans
    from .io import load, resume
    from .kmeans import KMeans
    from .kmodes import LaplacianKModes
    from .kmodes_path import laplacian_path
    from .minibatch import MiniBatchKMeans
    from .mixture import TruncatedGaussianMixture
    from .neighbors import knn_graph, nearest
    from .nested import NestedMiniBatchKMeans
    from .predictions import write_partitions, write_predictions
    from .reports import ClusterReport, report
    from .seeding import afkmc2, kmeans_parallel, kmeans_plusplus
    from .selection import KSelection, select_n_clusters
    from .streaming_coreset import StreamingCoreset
    from .variance_reduced import VarianceReducedKMeans
    from .versions import show_versions
    from .writing import shuffle, write

__all__ = [
    "BackwardEulerKMeans",
    "BalancedKMeans",
    "BreathingKMeans",
    "ClusterReport",
    "Coreset",
    "DataSource",
    "HierarchicalKMeans",
    "KMeans",
    "KSelection",
    "LaplacianKModes",
    "MiniBatchKMeans",
    "NestedMiniBatchKMeans",
    "Step",
    "StreamingCoreset",
    "TruncatedGaussianMixture",
    "VarianceReducedKMeans",
    "__version__",
    "afkmc2",
    "callbacks",
    "config_context",
    "convert",
    "distributed",
    "kmeans_parallel",
    "kmeans_plusplus",
    "knn_graph",
    "laplacian_path",
    "lightweight_coreset",
    "load",
    "metrics",
    "nearest",
    "open",
    "report",
    "resume",
    "select_n_clusters",
    "show_versions",
    "shuffle",
    "write",
    "write_partitions",
    "write_predictions",
]

#: Module and name of every public object. Objects are imported on first access, because the packages that
#: many of them need take seconds to import, which would slow down ``shoal --help``.
_HOMES = {
    "ClusterReport": ("reports", "ClusterReport"),
    "Coreset": ("coreset", "Coreset"),
    "BackwardEulerKMeans": ("backward_euler", "BackwardEulerKMeans"),
    "BalancedKMeans": ("balanced", "BalancedKMeans"),
    "BreathingKMeans": ("breathing", "BreathingKMeans"),
    "DataSource": ("data", "DataSource"),
    "HierarchicalKMeans": ("hierarchical", "HierarchicalKMeans"),
    "KMeans": ("kmeans", "KMeans"),
    "KSelection": ("selection", "KSelection"),
    "LaplacianKModes": ("kmodes", "LaplacianKModes"),
    "MiniBatchKMeans": ("minibatch", "MiniBatchKMeans"),
    "NestedMiniBatchKMeans": ("nested", "NestedMiniBatchKMeans"),
    "Step": ("_core", "Step"),
    "StreamingCoreset": ("streaming_coreset", "StreamingCoreset"),
    "VarianceReducedKMeans": ("variance_reduced", "VarianceReducedKMeans"),
    "TruncatedGaussianMixture": ("mixture", "TruncatedGaussianMixture"),
    "__version__": ("_core", "version"),
    "afkmc2": ("seeding", "afkmc2"),
    "config_context": ("config", "config_context"),
    "kmeans_parallel": ("seeding", "kmeans_parallel"),
    "kmeans_plusplus": ("seeding", "kmeans_plusplus"),
    "lightweight_coreset": ("coreset", "lightweight_coreset"),
    "knn_graph": ("neighbors", "knn_graph"),
    "laplacian_path": ("kmodes_path", "laplacian_path"),
    "load": ("io", "load"),
    "nearest": ("neighbors", "nearest"),
    "open": ("data", "open"),
    "report": ("reports", "report"),
    "resume": ("io", "resume"),
    "select_n_clusters": ("selection", "select_n_clusters"),
    "show_versions": ("versions", "show_versions"),
    "shuffle": ("writing", "shuffle"),
    "write": ("writing", "write"),
    "write_partitions": ("predictions", "write_partitions"),
    "write_predictions": ("predictions", "write_predictions"),
}
_MODULES = (
    "backward_euler",
    "balanced",
    "breathing",
    "callbacks",
    "config",
    "convert",
    "coreset",
    "dask",
    "data",
    "distributed",
    "hierarchical",
    "io",
    "kmeans",
    "kmodes",
    "kmodes_path",
    "metrics",
    "minibatch",
    "mixture",
    "neighbors",
    "nested",
    "plot",
    "predictions",
    "ray",
    "reports",
    "seeding",
    "selection",
    "spark",
    "streaming_coreset",
    "typing",
    "variance_reduced",
    "versions",
    "writing",
)


def __getattr__(name: str) -> Any:
    """Import a public object or module on first access."""
    if name in _HOMES:
        home, called = _HOMES[name]
        value = getattr(importlib.import_module(f".{home}", __name__), called)
    elif name in _MODULES:
        value = importlib.import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List all public names, imported or not."""
    return sorted({*globals(), *__all__, *_MODULES})
