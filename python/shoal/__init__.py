"""Fast clustering of data larger than memory: exact, streaming and deterministic.

>>> import numpy as np, shoal
>>> model = shoal.KMeans(n_clusters=2, random_state=0).fit(np.array([[0.0], [0.2], [9.0], [9.2]]))
>>> sorted(model.cluster_centers_.ravel().tolist())
[0.1, 9.1]
"""

from . import callbacks, metrics
from ._core import Step
from ._core import version as __version__
from .data import DataSource, open
from .io import load
from .kmeans import KMeans
from .neighbors import nearest
from .seeding import kmeans_plusplus
from .versions import show_versions

__all__ = [
    "DataSource",
    "KMeans",
    "Step",
    "__version__",
    "callbacks",
    "kmeans_plusplus",
    "load",
    "metrics",
    "nearest",
    "open",
    "show_versions",
]
