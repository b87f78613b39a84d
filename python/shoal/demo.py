"""The 10,000 test images of MNIST, which ship with the package, clustered where they lie in a file."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ._common.text import table

__all__ = ["ATTRIBUTION", "Comparison", "Report", "Row", "load_digits", "run"]

#: Whose the images are, and how they may be used.
ATTRIBUTION = (
    "MNIST test images by Yann LeCun, Corinna Cortes and Christopher J. C. Burges "
    "(http://yann.lecun.com/exdb/mnist/), used under CC BY-SA 3.0 "
    "(https://creativecommons.org/licenses/by-sa/3.0/)"
)

#: Numbers of clusters that are tried.
CLUSTERS = (10, 64)
#: Height and width of an image.
IMAGE = (28, 28)

#: What `--compare` asks of a run beside scikit-learn's: the difference of the inertias, relative, and the
#: share of equal labels. Both compute in float64, but add in another order, so that single rows that lie
#: between two centers may differ.
INERTIA_WITHIN = 1e-5
LABELS_EQUAL = 0.999


@dataclass(frozen=True)
class Row:
    """Figures of one fit."""

    clusters: int
    seconds: float
    iterations: int
    inertia: float
    nmi: float
    purity: float


@dataclass(frozen=True)
class Comparison:
    """Figures of two fits from the same starting centers, shoal's and scikit-learn's."""

    clusters: int
    seconds: float
    seconds_sklearn: float
    iterations: int
    iterations_sklearn: int
    equal_labels: float
    inertia_difference: float

    @property
    def agrees(self) -> bool:
        """Whether the two results are the same to rounding."""
        return self.equal_labels >= LABELS_EQUAL and self.inertia_difference <= INERTIA_WITHIN


@dataclass(frozen=True)
class Report:
    """What a run of the demo found and wrote."""

    data: Path
    picture: Path
    rows: list[Row]
    comparisons: list[Comparison]

    @property
    def agrees(self) -> bool:
        """Whether all comparisons that were made agree."""
        return all(comparison.agrees for comparison in self.comparisons)

    def as_dict(self) -> dict[str, Any]:
        """Give plain values, for JSON.

        Returns
        -------
        dict
        """
        return {
            "data": str(self.data),
            "picture": str(self.picture),
            "attribution": ATTRIBUTION,
            "results": [asdict(row) for row in self.rows],
            "comparisons": [asdict(c) | {"agrees": c.agrees} for c in self.comparisons],
        }

    def as_text(self) -> str:
        """Give aligned tables and what was written where.

        Returns
        -------
        str
        """
        parts = [
            table(
                ("clusters", "seconds", "iterations", "inertia", "NMI", "purity"),
                [
                    (
                        str(r.clusters),
                        f"{r.seconds:.3f}",
                        str(r.iterations),
                        f"{r.inertia:.6e}",
                        f"{r.nmi:.3f}",
                        f"{r.purity:.3f}",
                    )
                    for r in self.rows
                ],
            )
        ]
        if self.comparisons:
            head = ("clusters", "seconds", "scikit-learn", "ratio", "equal labels", "inertia off by", "")
            body = [
                (
                    str(c.clusters),
                    f"{c.seconds:.3f}",
                    f"{c.seconds_sklearn:.3f}",
                    f"{c.seconds_sklearn / c.seconds:.1f}x",
                    f"{c.equal_labels:.4%}",
                    f"{c.inertia_difference:.1e}",
                    "agrees" if c.agrees else "DIFFERS",
                )
                for c in self.comparisons
            ]
            parts += ["\nbeside scikit-learn, both from the same centers and in float64:", table(head, body)]
        parts += [
            f"\npicture of the {CLUSTERS[-1]} centers: {self.picture}",
            f"images, for experiments of your own: {self.data}",
            f"data: {ATTRIBUTION}",
        ]
        return "\n".join(parts)


def load_digits() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Read the images that ship with the package.

    Returns
    -------
    images : ndarray of shape (10000, 784), uint8
        Each one 28 x 28, row by row; 0 is the background.
    digits : ndarray of shape (10000,), uint8
        What they show.

    Examples
    --------
    >>> from shoal.demo import load_digits
    >>> images, digits = load_digits()
    >>> images.shape, digits[:4].tolist()
    ((10000, 784), [7, 2, 1, 0])
    """
    with as_file(files("shoal") / "_data" / "mnist_test.npz") as path, np.load(path) as archive:
        return archive["X"], archive["y"]


def compare(images: npt.NDArray[np.uint8], clusters: int, n_jobs: int | None = None) -> Comparison:
    """Run shoal and scikit-learn on the same rows from the same starting centers.

    Parameters
    ----------
    images : ndarray of shape (n_images, n_pixels), uint8
        Computed as float64 by both.
    clusters : int
        Number of clusters.
    n_jobs : int, optional
        Threads of shoal.

    Returns
    -------
    Comparison
    """
    from sklearn.cluster import KMeans as Reference

    from . import KMeans, kmeans_plusplus

    rows = images.astype(np.float64)
    start, _ = kmeans_plusplus(rows, clusters, random_state=0, n_jobs=n_jobs)
    begun = time.perf_counter()
    own = KMeans(clusters, init=start, n_init=1, n_jobs=n_jobs).fit(rows)
    seconds = time.perf_counter() - begun
    begun = time.perf_counter()
    other = Reference(clusters, init=start, n_init=1).fit(rows)
    seconds_sklearn = time.perf_counter() - begun
    return Comparison(
        clusters=clusters,
        seconds=seconds,
        seconds_sklearn=seconds_sklearn,
        iterations=own.n_iter_,
        iterations_sklearn=int(other.n_iter_),
        equal_labels=float(np.mean(own.labels_ == other.labels_)),
        inertia_difference=abs(own.inertia_ - float(other.inertia_)) / float(other.inertia_),
    )


def run(
    out: str | os.PathLike[str] | None = None, *, with_sklearn: bool = False, n_jobs: int | None = None
) -> Report:
    """Write the images to a file, cluster it, and draw the centers.

    Parameters
    ----------
    out : str or os.PathLike, optional
        Folder for the file and the picture; made if it is not there. Default: a new one among the system's
        temporary folders, which stays.
    with_sklearn : bool, default=False
        Whether to compare with scikit-learn too.
    n_jobs : int, optional
        Threads; None: as many as for :class:`shoal.KMeans`.

    Returns
    -------
    Report

    Raises
    ------
    OSError
        When a file cannot be written.

    Examples
    --------
    >>> from shoal import demo
    >>> print(demo.run().as_text())  # doctest: +SKIP
    """
    from . import KMeans, metrics
    from ._common.files import write_npy
    from .plot import centers_picture, write_png

    if out is None:
        folder = Path(tempfile.mkdtemp(prefix="shoal-demo-"))
    else:
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
    path, picture = folder / "mnist_test.npy", folder / "centers.png"
    images, digits = load_digits()
    write_npy(path, images)

    results: list[Row] = []
    fits: list[KMeans] = []
    for clusters in CLUSTERS:
        begun = time.perf_counter()
        model = KMeans(clusters, random_state=0, n_jobs=n_jobs).fit(path)
        seconds = time.perf_counter() - begun
        nmi = metrics.normalized_mutual_info_score(digits, model.labels_, average_method="arithmetic")
        purity = metrics.purity(digits, model.labels_)
        fits.append(model)
        results.append(Row(clusters, seconds, model.n_iter_, model.inertia_, nmi, purity))
    model = fits[-1]
    # Clusters are sorted by the digit that most of their images show.
    votes = np.zeros((CLUSTERS[-1], 10), dtype=np.int64)
    np.add.at(votes, (model.labels_, digits), 1)
    order = np.lexsort((-votes.max(axis=1), votes.argmax(axis=1)))
    write_png(picture, centers_picture(model.cluster_centers_[order], IMAGE))
    comparisons = [compare(images, clusters, n_jobs) for clusters in CLUSTERS] if with_sklearn else []
    return Report(path, picture, results, comparisons)
