"""
Factors of handwritten digits
=============================

With `covariance_type="factor"`, each component of a `TruncatedGaussianMixture` extends along a few
directions of its own, the factors. Pixels of a digit vary together, so a mixture with factors has a
higher density for new images than a diagonal one, and its samples look like digits.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal
from shoal.demo import load_digits
from shoal.plot import centers_picture

images, _ = load_digits()
rng = np.random.default_rng(0)
# Noise between two levels of brightness makes the density of integers finite.
X = (images + rng.uniform(size=images.shape)).astype(np.float32)
X, held_out = X[:1500], X[1500:]

mixtures = {}
for kind in ("diag", "factor"):
    mixture = shoal.TruncatedGaussianMixture(10, covariance_type=kind, random_state=0).fit(X)
    mixtures[kind] = mixture
    print(f"{kind}: {mixture.score(held_out):.0f} nats per held-out image")

# %%
# Samples of both mixtures.
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8))
for ax, (kind, mixture) in zip(axes, mixtures.items(), strict=True):
    rows, _ = mixture.sample(60)
    ax.imshow(centers_picture(np.clip(rows, 0, 17), (8, 8), columns=10), cmap="gray")
    ax.set_title(f'samples, covariance_type="{kind}"')
    ax.axis("off")
plt.show()

# %%
# Six components, one per row: two standard deviations against each of three factors, the mean, and two
# standard deviations along them. Factors stand for slant, thickness or size.
factor = mixtures["factor"]
largest = np.argsort(-factor.weights_)[:6]
steps = [
    factor.means_[c] + step * factor.loadings_[c, h] for c in largest for h in range(3) for step in (-2, 0, 2)
]
picture = centers_picture(np.clip(np.array(steps), 0, 17), (8, 8), columns=9)
plt.figure(figsize=(6, 4))
plt.imshow(picture, cmap="gray")
plt.axis("off")
plt.show()
