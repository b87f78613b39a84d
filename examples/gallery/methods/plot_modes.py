"""
Clusters that are not round
===========================

`LaplacianKModes` clusters along a graph of nearest neighbors. Its clusters may have any shape, and
each is represented by one of its own rows. k-means cuts both shapes in two.
"""

import matplotlib.pyplot as plt
import shoal
from sklearn.datasets import make_moons

X, truth = make_moons(3000, noise=0.07, random_state=0)

modes = shoal.LaplacianKModes(2, random_state=0).fit(X)
means = shoal.KMeans(2, random_state=0).fit(X)

# %%
figure, axes = plt.subplots(1, 2, sharex=True, sharey=True)
for ax, model, middles in zip(axes, (means, modes), (means.cluster_centers_, modes.modes_), strict=True):
    ax.scatter(*X.T, c=model.labels_, s=3, cmap="coolwarm")
    ax.scatter(*middles.T, c="black", marker="x")
    accuracy = shoal.metrics.clustering_accuracy(truth, model.labels_)
    ax.set_title(f"{type(model).__name__}\n{accuracy:.1%} right")
plt.show()
