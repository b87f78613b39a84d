"""The demo: clusters the 1,797 images of digits that scikit-learn ships."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ._terminal.text import format_table

__all__ = ["ATTRIBUTION", "Comparison", "Report", "Row", "load_digits", "run"]

#: Source of the images.
ATTRIBUTION = (
    "handwritten digits by E. Alpaydin and C. Kaynak (UCI Machine Learning Repository), "
    "as shipped with scikit-learn: sklearn.datasets.load_digits()"
)

#: Numbers of clusters to fit.
CLUSTERS = (10, 64)
#: Height and width of an image.
IMAGE = (8, 8)
#: Width of a pixel of an image, in pixels of the picture.
SCALE = 8

#: Tolerances of `--compare` with scikit-learn: relative difference of the inertias, and fraction of equal
#: labels. Both libraries compute in float64 but sum in different orders, so single rows between two centers
#: may get different labels.
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
    """Figures of two fits from the same first centers, by shoal and scikit-learn."""

    clusters: int
    iterations: int
    iterations_sklearn: int
    equal_labels: float
    inertia_difference: float

    @property
    def agrees(self) -> bool:
        """Whether the two results are equal up to rounding."""
        return self.equal_labels >= LABELS_EQUAL and self.inertia_difference <= INERTIA_WITHIN


@dataclass(frozen=True)
class Report:
    """Results and files of a demo run."""

    data: Path
    picture: Path
    rows: list[Row]
    comparisons: list[Comparison]

    @property
    def agrees(self) -> bool:
        """Whether all comparisons agree."""
        return all(comparison.agrees for comparison in self.comparisons)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON.

        Returns
        -------
        dict
            The files, the figures of all fits and the comparisons.
        """
        return {
            "data": str(self.data),
            "picture": str(self.picture),
            "attribution": ATTRIBUTION,
            "results": [asdict(row) for row in self.rows],
            "comparisons": [asdict(c) | {"agrees": c.agrees} for c in self.comparisons],
        }

    def as_text(self) -> str:
        """Return the report as aligned tables, with the names of the files.

        Returns
        -------
        str
            The text.
        """
        parts = [
            format_table(
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
            head = ("clusters", "iterations", "scikit-learn", "equal labels", "inertia off by", "")
            body = [
                (
                    str(c.clusters),
                    str(c.iterations),
                    str(c.iterations_sklearn),
                    f"{c.equal_labels:.4%}",
                    f"{c.inertia_difference:.1e}",
                    "agrees" if c.agrees else "DIFFERS",
                )
                for c in self.comparisons
            ]
            parts += [
                "\ncompared with scikit-learn, both from the same first centers and in float64:",
                format_table(head, body),
            ]
        parts += [
            f"\npicture of the {CLUSTERS[-1]} centers: {self.picture}",
            f"images, for your own experiments: {self.data}",
            f"data: {ATTRIBUTION}",
        ]
        return "\n".join(parts)


def load_digits() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Load the images of the demo: handwritten digits, which scikit-learn ships.

    Returns
    -------
    images : ndarray of shape (1797, 64), uint8
        Images of 8 x 8 pixels from 0 to 16, row by row; 0 is the background.
    digits : ndarray of shape (1797,), uint8
        The digit on each image.

    Examples
    --------
    >>> from shoal.demo import load_digits
    >>> images, digits = load_digits()
    >>> images.shape, digits[:4].tolist()
    ((1797, 64), [0, 1, 2, 3])
    """
    from sklearn import datasets

    images, digits = datasets.load_digits(return_X_y=True)
    return images.astype(np.uint8), digits.astype(np.uint8)


def compare(images: npt.NDArray[np.uint8], clusters: int, n_jobs: int | None = None) -> Comparison:
    """Fit shoal and scikit-learn to the same rows, in float64, from the same first centers."""
    from sklearn.cluster import KMeans as Reference

    from . import KMeans, kmeans_plusplus

    rows = images.astype(np.float64)
    start, _ = kmeans_plusplus(rows, clusters, random_state=0, n_jobs=n_jobs)
    own = KMeans(clusters, init=start, n_init=1, n_jobs=n_jobs).fit(rows)
    other = Reference(clusters, init=start, n_init=1).fit(rows)
    return Comparison(
        clusters=clusters,
        iterations=own.n_iter_,
        iterations_sklearn=int(other.n_iter_),
        equal_labels=float(np.mean(own.labels_ == other.labels_)),
        inertia_difference=abs(own.inertia_ - float(other.inertia_)) / float(other.inertia_),
    )


def run(
    out: str | os.PathLike[str] | None = None, *, with_sklearn: bool = False, n_jobs: int | None = None
) -> Report:
    """Write the images to a file, cluster the file, and draw the centers.

    Parameters
    ----------
    out : str or os.PathLike, optional
        Folder for the file and the picture; created if missing. Default: a new temporary folder, which is
        not removed.
    with_sklearn : bool, default=False
        Whether to compare with scikit-learn too.
    n_jobs : int, optional
        Number of threads, as for :class:`shoal.KMeans`.

    Returns
    -------
    Report
        The results and the names of the files.

    Raises
    ------
    OSError
        If a file cannot be written.

    Examples
    --------
    >>> from shoal import demo
    >>> print(demo.run().as_text())  # doctest: +SKIP
    """
    from . import KMeans, metrics
    from ._files.staged import write_npy
    from .plot import centers_picture, write_png

    if out is None:
        folder = Path(tempfile.mkdtemp(prefix="shoal-demo-"))
    else:
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
    path, picture = folder / "digits.npy", folder / "centers.png"
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
    # Clusters are sorted by the digit of most of their images.
    votes = np.zeros((CLUSTERS[-1], 10), dtype=np.int64)
    np.add.at(votes, (model.labels_, digits), 1)
    order = np.lexsort((-votes.max(axis=1), votes.argmax(axis=1)))
    write_png(picture, centers_picture(model.cluster_centers_[order], IMAGE, scale=SCALE))
    comparisons = [compare(images, clusters, n_jobs) for clusters in CLUSTERS] if with_sklearn else []
    return Report(path, picture, results, comparisons)
