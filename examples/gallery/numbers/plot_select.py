"""
The number of clusters
======================

`select_n_clusters` fits several numbers of clusters and measures each result by five criteria. Here
all of them choose the number of groups, and nothing speaks against it: `doubts_` is empty.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal

rng = np.random.default_rng(3)
turn = np.arange(8) * np.pi / 4
middles = np.column_stack([np.cos(turn), np.sin(turn)]) * rng.uniform(4, 8, size=(8, 1))
X = np.concatenate([rng.normal(m, 0.8, size=(400, 2)) for m in middles])

found = shoal.select_n_clusters(X, range(2, 16), random_state=0)
print(found)
print(found.agreement_, found.doubts_)

# %%
figure, (left, right) = plt.subplots(1, 2)
left.plot(found.table_["n_clusters"], found.table_["silhouette"], "o-")
left.axvline(found.best_, color="0.6")
left.set_xlabel("clusters")
left.set_title("silhouette")
model = shoal.KMeans(found.best_, random_state=0).fit(X)
right.scatter(*X.T, c=model.labels_, s=3, cmap="tab10")
right.set_title(f"{found.best_} clusters")
plt.show()
