"""
A coreset
=========

A coreset is a small set of weighted rows that stands for all rows. Rows far from the mean are drawn
more often and get a smaller weight. k-means of the coreset finds centers that are almost as good.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal

rng = np.random.default_rng(1)
sizes = rng.integers(200, 9000, size=12)
X = np.concatenate([rng.normal(rng.uniform(-10, 10, 2), 0.6, size=(size, 2)) for size in sizes])

coreset = shoal.lightweight_coreset(X, 600, random_state=0)
small = shoal.KMeans(12, n_init=5, random_state=0).fit(coreset)
full = shoal.KMeans(12, n_init=5, random_state=0).fit(X)
worse = shoal.metrics.inertia(X, small.cluster_centers_) / full.inertia_ - 1

# %%
plt.scatter(*X[::10].T, s=1, c="0.75", label=f"{len(X):,} rows")
plt.scatter(*coreset.points.T, s=coreset.weights / 10, alpha=0.6, label="600 rows; area: weight")
plt.scatter(*small.cluster_centers_.T, marker="x", c="black", label="centers")
plt.title(f"inertia {worse:+.1%} compared with a fit of all rows")
plt.legend(loc="lower left", fontsize="x-small")
plt.show()
