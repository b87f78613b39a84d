"""Draw the modes of Laplacian K-modes above the means of k-means, for the digits of MNIST.

    python examples/modes.py modes.png [data.npz]

Each mode is a row of the data, so it looks like a digit. A mean is a blurred average. The default data are
the images that ship with the package. An .npz file must have a member X.
"""

import sys
import warnings
from importlib.resources import files

import numpy as np
import shoal
from shoal.plot import centers_picture, write_png


def main(picture: str, data: str | None = None) -> None:
    """Cluster the digits with both methods, and draw modes and means."""
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
