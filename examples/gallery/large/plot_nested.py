"""
Nested mini-batches
===================

`NestedMiniBatchKMeans` begins with a small batch, and doubles it when the centers no longer move
much. The last steps are those of exact k-means.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal

rng = np.random.default_rng(0)
X = rng.normal(size=(40_000, 8)) + rng.integers(0, 5, size=(40_000, 1))

model = shoal.NestedMiniBatchKMeans(40, batch_size=500, random_state=0)
held_out = rng.normal(size=(5_000, 8)) + rng.integers(0, 5, size=(5_000, 1))
sizes, energies = [], []
for step in model.iter_fit(X):
    sizes.append(step.batch_size)
    energies.append(-model.score(held_out) / len(held_out))

# %%
figure, (top, bottom) = plt.subplots(2, sharex=True)
top.step(range(1, len(sizes) + 1), sizes, where="mid")
top.set_ylabel("rows in the batch")
top.set_yscale("log")
bottom.plot(range(1, len(sizes) + 1), energies)
bottom.set_ylabel("energy, held-out")
bottom.set_xlabel("step")
plt.show()
