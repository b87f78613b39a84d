"""
A sample without the long tail
==============================

A few topics have most of the rows, and many topics have few. A uniform sample keeps these proportions.
`shoal.curation.sample` takes equally many rows from every branch of a hierarchy of clusters.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal

rng = np.random.default_rng(3)
topics = np.repeat(np.arange(24), 12_000 // np.arange(1, 25) ** 2)
X = rng.uniform(-9, 9, size=(24, 2))[topics] + rng.normal(scale=0.5, size=(len(topics), 2))

uniform = rng.choice(len(X), 500, replace=False)
balanced = shoal.curation.sample(X, 500, levels=[400, 120, 40], random_state=0)

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 4.5), sharex=True, sharey=True)
for ax, rows, title in zip(axes, (uniform, balanced), ("uniform", "balanced"), strict=True):
    ax.scatter(*X[rows].T, c=topics[rows], cmap="turbo", s=5, vmin=0, vmax=23)
    sizes = np.bincount(topics[rows], minlength=24)
    ax.set_title(f"{title}: {sizes.min()} to {sizes.max()} rows of a topic")
    ax.set_aspect("equal")
plt.show()
