"""
Centers of handwritten digits
=============================

scikit-learn ships 1,797 images of digits. Each center is the mean of the images of its cluster, so it
is an image too.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal
from shoal.demo import load_digits
from shoal.plot import centers_picture

images, digits = load_digits()
model = shoal.KMeans(n_clusters=48, random_state=0).fit(images)  # uint8: converted one tile at a time
print("purity:", round(shoal.metrics.purity(digits, model.labels_), 3))

# %%
# The largest clusters come first.
order = np.argsort(-model.counts_)
plt.imshow(centers_picture(model.cluster_centers_[order], (8, 8), columns=12), cmap="gray")
plt.axis("off")
plt.show()
