"""
Rows far from every center
==========================

The distance to the nearest center is a simple score of outliers. `nearest` computes labels and
squared distances in one pass.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal

rng = np.random.default_rng(0)
X = np.concatenate([rng.normal(rng.uniform(-8, 8, 2), 0.7, size=(500, 2)) for _ in range(6)])
strays = rng.uniform(-12, 12, size=(40, 2))
rows = np.concatenate([X, strays])

model = shoal.KMeans(6, n_init=5, random_state=0).fit(X)
_, sq_dists = shoal.nearest(rows, model.cluster_centers_)

# %%
limit = np.quantile(sq_dists, 0.985)
far = sq_dists > limit
plt.scatter(*rows[~far].T, s=3, c="0.6")
plt.scatter(*rows[far].T, s=14, c=np.sqrt(sq_dists[far]), cmap="autumn_r")
plt.colorbar(label="distance to the nearest center")
plt.scatter(*model.cluster_centers_.T, marker="x", c="black")
plt.show()
