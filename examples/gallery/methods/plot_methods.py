"""
Inertia over rows read
======================

All methods have `iter_fit`, which yields one step at a time. The steps tell how many rows were
read, and the model can be scored after each. All fits start from the same 30 images. 597 images
are held out.

Mini-batches are ahead at first: each step reads 100 new rows. Nested batches read the same rows
again until the centers settle, and end lower, at a k-means solution.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal
from shoal.demo import load_digits

images, _ = load_digits()
X = images.astype(np.float32)
train, held_out = X[:1200], X[1200:]

start = train[np.random.default_rng(0).choice(len(train), 30, replace=False)]
methods = [
    shoal.KMeans(30, init=start),
    shoal.MiniBatchKMeans(30, init=start, batch_size=100, random_state=0),
    shoal.NestedMiniBatchKMeans(30, init=start, batch_size=100, random_state=0),
    shoal.BackwardEulerKMeans(30, init=start, batch_size=100, random_state=0),
]

# %%
# Scores are minus the inertia. They are computed after every step.
for method in methods:
    energies = []
    for step in method.iter_fit(train):
        energies.append((step.rows_seen, -method.score(held_out) / len(held_out)))
        if step.rows_seen > 100_000:
            break
    plt.plot(*np.transpose(energies), label=type(method).__name__)
plt.xscale("log")
plt.xlabel("rows read")
plt.ylabel("held-out inertia per row")
plt.legend(fontsize="small")
plt.show()
