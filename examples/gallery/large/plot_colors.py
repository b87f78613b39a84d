"""
Colors of a picture
===================

k-means of the colors of a picture finds a palette. Three features and many rows: here
`algorithm="auto"` chooses `"filtering"`, which compares whole boxes of rows with the centers.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal

y, x = np.mgrid[0:1:240j, 0:1:360j]
hill = 0.62 + 0.1 * np.sin(6 * x) + 0.04 * np.sin(23 * x)
sun = np.exp(-((x - 0.7) ** 2 + (y - 0.3) ** 2) / 0.02)
red, green, blue = 0.3 + 0.6 * y + sun, 0.35 + 0.3 * y + 0.7 * sun, 0.75 - 0.35 * y + 0.2 * sun
picture = np.stack(
    [np.where(y > hill, c * (1.3 - y), s) for c, s in ((0.2, red), (0.6, green), (0.3, blue))], axis=-1
)
picture = (np.clip(picture, 0, 1) * 255).astype(np.uint8)

pixels = picture.reshape(-1, 3)
model = shoal.KMeans(16, random_state=0).fit(pixels)
print(model.algorithm_, model.n_iter_)

# %%
figure, axes = plt.subplots(1, 2)
axes[0].imshow(picture)
axes[0].set_title(f"{len(np.unique(pixels, axis=0)):,} colors")
axes[1].imshow(model.cluster_centers_[model.labels_].astype(np.uint8).reshape(picture.shape))
axes[1].set_title("16 colors")
for ax in axes:
    ax.axis("off")
plt.show()
