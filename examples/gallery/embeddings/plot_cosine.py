"""
Angles instead of distances
===========================

With `metric="cosine"`, only the direction of a row matters. Centers lie on the unit circle.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal

rng = np.random.default_rng(0)
angles = rng.choice([0.3, 1.4, 2.6, 4.0, 5.2], size=2000) + rng.normal(scale=0.13, size=2000)
X = np.column_stack([np.cos(angles), np.sin(angles)]) * rng.uniform(0.2, 4, size=(2000, 1))

# %%
figure, axes = plt.subplots(1, 2, sharex=True, sharey=True)
for ax, metric in zip(axes, ("euclidean", "cosine"), strict=True):
    model = shoal.KMeans(5, metric=metric, random_state=0).fit(X)
    ax.scatter(*X.T, c=model.labels_, s=3, cmap="tab10")
    ax.scatter(*model.cluster_centers_.T, c="black", marker="x")
    ax.set_aspect("equal")
    ax.set_title(metric)
plt.show()
