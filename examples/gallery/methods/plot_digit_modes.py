"""
Modes and means
===============

A mean of images is a blurred image. A mode is a row of the data, so it looks like a digit.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal
from shoal.demo import load_digits
from shoal.plot import centers_picture

X, _ = load_digits()
modes = shoal.LaplacianKModes(10, random_state=1).fit(X)
means = shoal.KMeans(10, random_state=1).fit(X)

# %%
# Modes above, means below.
both = np.concatenate([X[modes.mode_indices_], means.cluster_centers_])
plt.imshow(centers_picture(both, (8, 8), columns=10), cmap="gray")
plt.axis("off")
plt.show()
