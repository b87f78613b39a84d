"""
Distances that bounds skip
==========================

All algorithms of `KMeans` give bit-identical results. They differ in the number of distances that a
sweep computes. The history of a fit counts them.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 16))[rng.integers(60, size=30_000)] * 3 + rng.normal(size=(30_000, 16))
start = X[:100]

# %%
labels = []
for algorithm in ("lloyd", "hamerly", "yinyang", "elkan"):
    model = shoal.KMeans(100, init=start, n_init=1, algorithm=algorithm, tol=0, max_iter=60).fit(X)
    labels.append(model.labels_)
    share = model.history_["n_distances"] / (len(X) * 100)
    plt.plot(np.arange(1, len(share) + 1), share, label=algorithm)
assert all((other == labels[0]).all() for other in labels)

plt.xlabel("sweep")
plt.ylabel("share of all distances computed")
plt.ylim(0)
plt.legend()
plt.show()
