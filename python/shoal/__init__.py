"""Fast clustering of data larger than memory: exact, streaming and deterministic.

>>> import numpy as np, shoal
>>> model = shoal.KMeans(n_clusters=2, random_state=0).fit(np.array([[0.0], [0.2], [9.0], [9.2]]))
>>> sorted(model.cluster_centers_.ravel().tolist())
[0.1, 9.1]
"""

from __future__ import annotations

import importlib

#: Modules with their public names, which `__init__.pyi` lists for type checkers. All are imported on first
#: access, because the packages that many of them need take seconds to import, which would slow down
#: ``shoal --help``.
_NAMES = {
    "_core": ("Step", "__version__"),
    "backward_euler": ("BackwardEulerKMeans",),
    "balanced": ("BalancedKMeans",),
    "breathing": ("BreathingKMeans",),
    "callbacks": (),
    "config": ("config_context",),
    "convert": (),
    "coreset": ("Coreset", "StreamingCoreset", "lightweight_coreset"),
    "curation": (),
    "dask": (),
    "data": ("DataSource", "open"),
    "distributed": (),
    "hierarchical": ("HierarchicalKMeans",),
    "io": ("load", "resume"),
    "kmeans": ("KMeans",),
    "kmodes": ("LaplacianKModes",),
    "kmodes_path": ("laplacian_path",),
    "metrics": (),
    "minibatch": ("MiniBatchKMeans",),
    "mixture": ("TruncatedGaussianMixture",),
    "neighbors": ("knn_graph", "nearest"),
    "nested": ("NestedMiniBatchKMeans",),
    "partition": ("PartitionChange",),
    "plot": (),
    "predictions": ("write_partitions", "write_predictions"),
    "ray": (),
    "reports": ("ClusterReport", "report"),
    "seeding": ("afkmc2", "kmeans_parallel", "kmeans_plusplus"),
    "selection": ("KSelection", "select_n_clusters"),
    "spark": (),
    "streaming_coreset": (),
    "typing": (),
    "variance_reduced": ("VarianceReducedKMeans",),
    "versions": ("show_versions",),
    "writing": ("shuffle", "write"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

# Type checkers read `__init__.pyi`.
__all__ = sorted(  # noqa: PLE0605 # pyright: ignore[reportUnsupportedDunderAll]
    [*_HOMES, "callbacks", "convert", "curation", "distributed", "metrics"]
)
# Errors are not imported by name: `except ValueError` catches them. Pickles find their classes here.
_HOMES |= dict.fromkeys(("MarkedError", "ParameterError"), "_checks.marked")
# The module that makes steps picklable.
_HOMES["Step"] = "_fit.history"


def __getattr__(name: str) -> object:
    """Import a public object or module on first access."""
    if name not in _HOMES and name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{_HOMES.get(name, name)}", __name__)
    value = module if name in _NAMES else getattr(module, name.strip("_"))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List all public names, imported or not."""
    return sorted({*globals(), *__all__, *_NAMES})
