"""
Places on a map
===============

Places of 4,000 road accidents in Great Britain: dense in cities, sparse elsewhere. Restarts of k-means
stay in poor local minima of such data. `BreathingKMeans` adds and removes centers until the inertia no
longer falls.

The places, in `accidents.csv` next to this program, are a sample of the road safety data of the
Department for Transport, public sector information licensed under the Open Government Licence v3.0.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal

places = np.loadtxt("accidents.csv", delimiter=",", skiprows=1)
# A degree of longitude is shorter than one of latitude.
scale = np.array([np.cos(np.radians(54)), 1.0])
X = places * scale

one = shoal.KMeans(60, random_state=0).fit(X)
breathing = shoal.BreathingKMeans(60, random_state=0).fit(X)

# %%
figure, axes = plt.subplots(1, 2, sharex=True, sharey=True, figsize=(6.4, 5.2))
for ax, model in zip(axes, (one, breathing), strict=True):
    ax.scatter(*X.T, c=model.labels_, s=2, cmap="tab20")
    ax.scatter(*model.cluster_centers_.T, c="black", s=9)
    ax.set_title(f"{type(model).__name__}\ninertia {model.inertia_:.1f}")
    ax.set_aspect("equal")
    ax.axis("off")
plt.show()
