"""Modes beside means: the digits of MNIST that stand for clusters, above the means of k-means.

    python examples/modes.py modes.png

Modes of Laplacian K-modes are rows of the data; means look like nothing that was ever written. Runs on the
images that come with the package; with the name of an .npz file behind the picture's, on its member X.
"""

import sys
import warnings
from importlib.resources import files

import numpy as np
import shoal
from shoal.plot import centers_picture, write_png


def main(picture: str, data: str | None = None) -> None:
    """Cluster digits both ways and draw what stands for the clusters."""
    path = data or files("shoal") / "_data" / "mnist_test.npz"
    with np.load(path) as archive:
        images = archive["X"] if "X" in archive.files else archive[archive.files[0]]
    X = images.reshape(len(images), -1)
    modes = shoal.LaplacianKModes(10, random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modes.fit(X)
    means = shoal.KMeans(10, random_state=1).fit(X)
    both = np.concatenate([X[modes.mode_indices_], means.cluster_centers_])
    write_png(picture, centers_picture(both, (28, 28), columns=10))
    print(f"{picture}: modes above, means below; sizes {np.bincount(modes.labels_, minlength=10).tolist()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
