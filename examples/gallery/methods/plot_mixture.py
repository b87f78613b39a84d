"""
A density with many components
==============================

`TruncatedGaussianMixture` evaluates only a few components per row, so a fit with hundreds of
components stays cheap. It gives a density, soft assignments, and new samples.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal

rng = np.random.default_rng(0)
turn = rng.uniform(0.5, 4, size=20_000) * np.pi
X = np.column_stack([turn * np.cos(turn), turn * np.sin(turn)]) + rng.normal(scale=0.4, size=(20_000, 2))

model = shoal.TruncatedGaussianMixture(120, covariance_type="spherical", random_state=0).fit(X)

# %%
side = np.linspace(-14, 14, 220)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
density = model.score_samples(grid).reshape(220, 220)

figure, (left, right) = plt.subplots(1, 2, sharex=True, sharey=True)
left.imshow(np.maximum(density, -12), extent=(-14, 14, -14, 14), origin="lower")
left.set_title("log-density")
rows, _ = model.sample(4000)
right.scatter(*rows.T, s=1)
right.set_aspect("equal")
right.set_title("4,000 samples")
plt.show()
