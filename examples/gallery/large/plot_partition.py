"""
A partition that grows
======================

`update` takes in new rows without a new fit. Here, rows arrive in a region where there were few. Cells
that outgrow their limit are split (black crosses: new centers), and cells around them move a little.
All other cells keep their ids and their centers.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal

rng = np.random.default_rng(0)
rows = rng.normal(size=(6000, 2))
model = shoal.HierarchicalKMeans(60, random_state=0).fit(rows)
cells = model.cell_ids_[model.labels_]


def fetch(ids):
    """Return the keys, cells and values of the rows in some cells."""
    keys = np.flatnonzero(np.isin(cells, ids))
    return keys, cells[keys], rows[keys]


# %%
# The rows stay in the database, here two arrays. It stores the new rows, and moves others.
states = [(rows, cells, model.cluster_centers_, model.cell_ids_)]
for shift in (1.5, 2.0, 2.5):
    new = rng.normal(loc=(shift, 0), scale=0.6, size=(600, 2))
    change = model.update(new, fetch=fetch)
    print(change)
    rows, cells = np.concatenate([rows, new]), np.concatenate([cells, change.labels])
    cells[change.moved["key"]] = change.moved["to_id"]
states.append((rows, cells, model.cluster_centers_, model.cell_ids_))

# %%
colors = rng.permutation(model.cell_ids_[-1] + 1)
figure, axes = plt.subplots(1, 2, sharex=True, sharey=True, figsize=(9, 4.5))
for ax, (points, ids, centers, known), title in zip(axes, states, ("fit", "three updates"), strict=True):
    ax.scatter(*points.T, c=colors[ids], s=2, cmap="prism")
    ax.scatter(*centers[known < 60].T, c="white", edgecolors="black", s=16)
    ax.scatter(*centers[known >= 60].T, c="black", marker="x", s=30)
    ax.set_aspect("equal")
    ax.set_title(f"{title}: {len(known)} cells")
plt.show()
