"""
A stream that drifts
====================

Two clusters move. Without `half_life`, a center is the mean of all rows that it ever received, and
stays behind. With `half_life`, old rows lose their weight.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal

rng = np.random.default_rng(0)
days = np.arange(40)


def middles(day):
    angle = day * np.pi / 40
    return np.array([[np.cos(angle), np.sin(angle)], [-np.cos(angle), -np.sin(angle)]]) * 5


def batch(day):
    return np.concatenate([rng.normal(middle, 0.6, size=(250, 2)) for middle in middles(day)])


models = {
    half_life: shoal.MiniBatchKMeans(2, half_life=half_life, random_state=0) for half_life in (None, 1000)
}
misses = {half_life: [] for half_life in models}
for day in days:
    rows = batch(day)
    for half_life, model in models.items():
        model.partial_fit(rows)
        _, sq_dists = shoal.nearest(middles(day), model.cluster_centers_)
        misses[half_life].append(np.sqrt(sq_dists).mean())

# %%
for half_life, miss in misses.items():
    plt.plot(days, miss, label=f"half_life={half_life}")
plt.xlabel("day")
plt.ylabel("distance to the centers")
plt.legend()
plt.show()
