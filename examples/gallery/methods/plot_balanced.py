"""
Clusters of limited size
========================

`BalancedKMeans` keeps limits of the sizes of clusters. `gap_` is how far the assignment is from the
best one at most.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal

rng = np.random.default_rng(0)
middles = np.array([[0.0, 0.0], [6.0, 0.0], [3.0, 5.0], [8.0, 6.0]])
X = np.repeat(middles, [1800, 100, 400, 100], axis=0) + rng.normal(size=(2400, 2))

free = shoal.KMeans(8, random_state=0).fit(X)
equal = shoal.BalancedKMeans(8, size_min=1.0, size_max=1.0, random_state=0).fit(X)

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True)
for ax, model, title in zip(axes, (free, equal), ("without limits", "equal sizes"), strict=True):
    ax.scatter(*X.T, c=model.labels_, cmap="tab10", s=4)
    ax.plot(*model.cluster_centers_.T, "k+", markersize=10)
    sizes = np.bincount(model.labels_)
    ax.set_title(f"{title}: {sizes.min()} to {sizes.max()} rows")
figure.suptitle(
    f"inertia {100 * (equal.inertia_ / free.inertia_ - 1):+.0f}%, "
    f"at most {100 * equal.gap_:.2f}% above the best"
)
plt.show()
