"""
Initial centers
===============

A good seeding makes a fit shorter and its result better. The picture shows 20 seeds of five
seedings, before and after k-means.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal

rng = np.random.default_rng(0)
X = np.concatenate([rng.normal(rng.uniform(-20, 20, 2), 0.8, size=(120, 2)) for _ in range(25)])

# %%
names = ["random", "afk-mc2", "plain-k-means++", "k-means++", "k-means||"]
before, after = [], []
for name in names:
    fits = [shoal.KMeans(25, init=name, n_init=1, random_state=seed).fit(X) for seed in range(20)]
    before.append([fit.history_["objective"][0] for fit in fits])
    after.append([fit.inertia_ for fit in fits])

lowest = min(map(min, after))
figure, axes = plt.subplots(1, 2, sharey=True)
for ax, title, values in zip(axes, ("initial centers", "after k-means"), (before, after), strict=True):
    ax.boxplot([np.divide(v, lowest) for v in values], orientation="horizontal", tick_labels=names)
    ax.set_title(title)
    ax.set_xlabel("inertia / lowest")
plt.show()
