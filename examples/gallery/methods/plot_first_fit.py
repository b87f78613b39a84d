"""
Cells of k-means
================

`KMeans` divides the plane into one cell per center. Every row belongs to the nearest center.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal

rng = np.random.default_rng(3)
X = np.concatenate([rng.normal(m, 0.7, size=(400, 2)) for m in rng.uniform(-6, 6, size=(9, 2))])

model = shoal.KMeans(n_clusters=9, random_state=0).fit(X)

# %%
# `predict` takes any rows, here the points of a grid.
low, high = X.min(axis=0) - 1, X.max(axis=0) + 1
x, y = np.meshgrid(np.linspace(low[0], high[0], 400), np.linspace(low[1], high[1], 300))
cells = model.predict(np.column_stack([x.ravel(), y.ravel()])).reshape(x.shape)

plt.imshow(cells, extent=(low[0], high[0], low[1], high[1]), origin="lower", cmap="tab10", alpha=0.35)
plt.scatter(*X.T, c=model.labels_, s=3, cmap="tab10")
plt.scatter(*model.cluster_centers_.T, c="black", marker="x")
plt.title(f"inertia {model.inertia_:.0f}, {model.n_iter_} sweeps")
plt.show()
