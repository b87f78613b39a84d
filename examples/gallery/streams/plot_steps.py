"""
A fit, step by step
===================

`iter_fit` yields after every step, and the centers can be read at once. The lines show how they move
from poor initial centers, all in one corner. One center ends between two clusters: a local minimum,
which the default initial centers avoid.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal

rng = np.random.default_rng(3)
X = np.concatenate([rng.normal(m, 0.7, size=(400, 2)) for m in rng.uniform(-6, 6, size=(9, 2))])
start = X[np.argsort(X.sum(axis=1))[:9]]

model = shoal.KMeans(9, init=start, n_init=1)
paths = np.array([start, *(model.cluster_centers_.copy() for _ in model.iter_fit(X))])

# %%
plt.scatter(*X.T, c=model.labels_, s=3, cmap="tab10", alpha=0.5)
for path in paths.transpose(1, 2, 0):
    plt.plot(*path, "k.-", linewidth=1, markersize=4)
plt.scatter(*model.cluster_centers_.T, c="black", marker="x", s=60, zorder=3)
plt.title(f"{len(paths) - 1} sweeps")
plt.show()
