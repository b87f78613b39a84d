"""
Inertia over rows read
======================

All methods have `iter_fit`, which yields one step at a time. The steps tell how many rows were
read, and the model can be scored after each. Here, 5,000 images are held out.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal
from shoal.demo import load_digits

images, _ = load_digits()
X = images.reshape(len(images), -1).astype(np.float32)
train, held_out = X[:5000], X[5000:]

methods = {
    "KMeans": shoal.KMeans(30, init="random", n_init=1, random_state=0),
    "MiniBatchKMeans": shoal.MiniBatchKMeans(30, init="random", n_init=1, batch_size=500, random_state=0),
    "NestedMiniBatchKMeans": shoal.NestedMiniBatchKMeans(30, init="random", batch_size=500, random_state=0),
    "BackwardEulerKMeans": shoal.BackwardEulerKMeans(30, batch_size=500, random_state=0),
}

# %%
# Scores are minus the inertia. They are computed after every step.
for name, method in methods.items():
    rows, energies = 0, []
    for step in method.iter_fit(train):
        rows += step.rows_seen
        energies.append((rows, -method.score(held_out) / len(held_out)))
        if rows > 300_000:
            break
    plt.plot(*np.transpose(energies), label=name)
plt.xscale("log")
plt.xlabel("rows read")
plt.ylabel("mean squared distance, held-out rows")
plt.legend()
plt.show()
