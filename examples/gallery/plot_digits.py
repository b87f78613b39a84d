"""
Centers of handwritten digits
=============================

The package ships with the 10,000 test images of MNIST, by Yann LeCun, Corinna Cortes and
Christopher J. C. Burges (CC BY-SA 3.0). Each center is the mean of the images of its cluster, so it
is an image too.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal
from shoal.demo import load_digits
from shoal.plot import centers_picture

images, digits = load_digits()
X = images.reshape(len(images), -1)  # uint8: converted one tile at a time

model = shoal.KMeans(n_clusters=48, random_state=0).fit(X)
print("purity:", round(shoal.metrics.purity(digits, model.labels_), 3))

# %%
# The largest clusters come first.
order = np.argsort(-model.counts_)
plt.imshow(centers_picture(model.cluster_centers_[order], (28, 28), columns=12), cmap="gray")
plt.axis("off")
plt.show()
