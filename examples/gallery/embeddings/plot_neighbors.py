"""
A graph of nearest neighbors
============================

`knn_graph` connects every row with its nearest rows. The result is a sparse matrix of squared
distances.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal
from matplotlib.collections import LineCollection

rng = np.random.default_rng(4)
X = np.concatenate(
    [rng.normal(m, s, size=(200, 2)) for m, s in (((0, 0), 0.5), ((3, 1), 0.8), ((1, 3), 0.3))]
)

graph = shoal.knn_graph(X, 6).tocoo()

# %%
lines = LineCollection(X[np.column_stack([graph.row, graph.col])], linewidths=0.5, colors="0.6")
plt.gca().add_collection(lines)
plt.scatter(*X.T, c=graph.tocsr().max(axis=1).toarray().ravel(), s=9, norm="log")
plt.colorbar(label="sq. distance to sixth neighbor")
plt.gca().set_aspect("equal")
plt.show()
