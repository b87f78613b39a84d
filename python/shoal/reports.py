"""Reports about the clusters of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from ._checks import params as _params
from ._fit.centers import CenterFitter
from ._fit.results import open_checked
from ._fit.watch import watched
from ._quality.indices import calinski_harabasz, overlaps
from ._quality.labeled import codes_of
from ._report.describing import PAIRS, describe_features, distances_of, find_pairs, format_measure, tiles_of
from ._report.measuring import Measured
from ._rows.checked import weighted
from ._rows.features import names_of
from ._rows.source import DataSource
from ._terminal.text import format_table as text_table
from ._terminal.text import printable
from .predictions import check_model
from .typing import PathName, Rows, Weights

__all__ = ["ClusterReport", "report"]

#: Clusters in the text of a report.
MOST_LINES = 20

#: Fields of the table, except the features.
FIELDS: tuple[tuple[str, str], ...] = (
    ("cluster", "i8"),
    ("size", "i8"),
    ("weight", "f8"),
    ("share", "f8"),
    ("mean_distance", "f8"),
    ("radius", "f8"),
    ("cohesion", "f8"),
    ("exemplar", "i8"),
    ("outlier", "i8"),
    ("closest", "i8"),
    ("overlap", "f8"),
)


@dataclass(frozen=True, repr=False, eq=False)
class ClusterReport:
    """Measures of every cluster of a model.

    :func:`shoal.report` returns one. Notebooks show it as a page; ``print`` shows it as text.

    Attributes
    ----------
    model : str
        The model.
    n_rows, n_features, n_clusters : int
        Numbers of rows, features and clusters.
    inertia, silhouette, calinski_harabasz, davies_bouldin : float
        Weighted sum of squared distances of the rows to the centers of their clusters, and the measures of
        :mod:`shoal.metrics` about these centers (the silhouette is the simplified one). NaN if not defined.
    table : structured ndarray of shape (n_clusters,)
        One row per cluster: ``cluster``, ``size`` (rows), ``weight``, ``share`` (of the weight),
        ``mean_distance`` and ``radius`` (mean and largest distance of a row to the center), ``cohesion``
        (mean simplified silhouette of the rows), ``exemplar`` and ``outlier`` (numbers of the nearest and the
        farthest row), ``closest`` (the cluster with the largest overlap) and ``overlap`` (the sum of the mean
        distances of both, divided by the distance of the centers). NaN or -1 if not defined.
    exemplars, outliers : ndarray of shape (n_clusters, n), int64
        Numbers of the nearest rows (nearest first) and of the farthest rows (farthest first); -1 if a cluster
        has fewer rows.
    exemplar_distances, outlier_distances : ndarray of shape (n_clusters, n), float64
        Their distances to the center; NaN if there is no row.
    pairs : structured ndarray
        The closest pairs of clusters, largest overlap first: ``first``, ``second``, ``distance`` (of the
        centers) and ``overlap``.
    features : list of str
        Per cluster, the features whose means differ most from those of all rows, in standard deviations.
    title : str
        Title of the page.
    """

    model: str
    n_rows: int
    n_features: int
    inertia: float
    silhouette: float
    calinski_harabasz: float
    davies_bouldin: float
    table: npt.NDArray[np.void]
    exemplars: npt.NDArray[np.int64]
    exemplar_distances: npt.NDArray[np.float64]
    outliers: npt.NDArray[np.int64]
    outlier_distances: npt.NDArray[np.float64]
    pairs: npt.NDArray[np.void]
    features: list[str]
    title: str
    #: Positions and labels of sampled rows on the picture, and positions of the centers.
    points: npt.NDArray[np.float64]
    point_labels: npt.NDArray[np.int32]
    center_points: npt.NDArray[np.float64]
    #: Elements with images of rows, by cluster.
    tiles: dict[int, str] = field(default_factory=dict)

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(self.table)

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Number of rows of every cluster."""
        return self.table["size"]

    def to_frame(self) -> Any:
        """Return the table with the features as text, one row per cluster.

        Returns
        -------
        pandas.DataFrame, polars.DataFrame or structured ndarray
            A data frame of pandas if it is installed, else of polars; without both, a structured array.

        Examples
        --------
        >>> import numpy as np, shoal
        >>> model = shoal.KMeans(2, init=[[0.0], [9.0]]).fit(np.array([[0.0], [1.0], [9.0]]))
        >>> shoal.report(model, [[0.0], [1.0], [9.0]]).to_frame()["size"].tolist()
        [2, 1]
        """
        columns = {name: self.table[name] for name, _ in FIELDS}
        for library in ("pandas", "polars"):
            try:
                frames = import_module(library)
            except ImportError:
                continue
            return frames.DataFrame({**columns, "features": self.features})
        width = max(1, *map(len, self.features))
        found = np.zeros(self.n_clusters, dtype=np.dtype([*FIELDS, ("features", f"U{width}")]))
        for name, values in columns.items():
            found[name] = values
        found["features"] = self.features
        return found

    def to_html(self, path: PathName | None = None) -> str:
        """Return the report as a page without any other file, and write it to `path`.

        Parameters
        ----------
        path : path, optional
            The file. It is written to a temporary name and renamed.

        Returns
        -------
        str
            The page, with pictures inline.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        from ._files.staged import replace_file
        from ._report.page import page

        text = page(self)
        if path is not None:
            with replace_file(path) as file:
                file.write(text.encode())
        return text

    def _repr_html_(self) -> str:
        """Return the report for a notebook."""
        from ._report.page import fragment

        return fragment(self)

    def __repr__(self) -> str:
        """Show the numbers of clusters and rows."""
        return f"<ClusterReport of {self.n_clusters} clusters of {self.n_rows} rows by {self.model}>"

    def __str__(self) -> str:
        """Show the figures, the largest clusters and the closest pairs as text."""
        names = ("silhouette", "calinski_harabasz", "davies_bouldin")
        parts = [
            f"{printable(self.model)}: {self.n_clusters} clusters of {self.n_rows} x {self.n_features} rows",
            f"inertia {self.inertia:.6g}",
            ", ".join(f"{name.replace('_', '-')} {format_measure(getattr(self, name))}" for name in names),
            "",
        ]
        order = np.argsort(-self.sizes, kind="stable")
        numbers = ("mean_distance", "radius", "cohesion")
        body = []
        for j in order[:MOST_LINES].tolist():
            row = self.table[j]
            closest = str(row["closest"]) if row["closest"] >= 0 else "-"
            body.append(
                (
                    str(j),
                    str(row["size"]),
                    f"{row['share']:.2%}",
                    *(format_measure(row[name]) for name in numbers),
                    str(row["exemplar"]) if row["exemplar"] >= 0 else "-",
                    str(row["outlier"]) if row["outlier"] >= 0 else "-",
                    closest,
                    format_measure(row["overlap"]),
                    printable(self.features[j]),
                )
            )
        head = ("cluster", "rows", "share", *(name.replace("_", " ") for name in numbers))
        parts.append(text_table((*head, "nearest", "farthest", "closest", "overlap", "features"), body))
        if self.n_clusters > MOST_LINES:
            parts.append(f"... and {self.n_clusters - MOST_LINES} smaller clusters")
        if len(self.pairs):
            parts += [
                "",
                "closest pairs (overlap): "
                + ", ".join(
                    f"{p['first']} and {p['second']} ({format_measure(p['overlap'])})" for p in self.pairs
                ),
            ]
        return "\n".join(parts)


def report(
    model: Any,
    X: Rows,
    *,
    labels: npt.ArrayLike | None = None,
    sample_weight: Weights = None,
    n_exemplars: int = 5,
    n_outliers: int = 5,
    n_features: int = 5,
    image_shape: Sequence[int] | None = None,
    title: str = "Clusters",
    progress: bool | int = False,
) -> ClusterReport:
    """Describe the clusters of a model in one pass over rows.

    Parameters
    ----------
    model : estimator
        A fitted estimator of shoal.
    X : rows of shape (n_samples, n_features)
        As for ``predict``: also an iterator.
    labels : array-like of shape (n_samples,), int, optional
        Labels of the rows. Default: those of ``predict``. Pass ``model.labels_`` where they differ, as for
        clusters of limited sizes.
    sample_weight : array-like of shape (n_samples,), float or None
        Weight of every row, as for :meth:`shoal.KMeans.fit`. Means and sums are weighted; sizes, radii and
        the nearest and farthest rows are not.
    n_exemplars, n_outliers : int, default=5
        Number of nearest and of farthest rows per cluster.
    n_features : int, default=5
        Number of features per cluster.
    image_shape : (int, int) or (int, int, int), optional
        Height and width of rows that are images, and 3 for RGB. The page then shows every center as an image,
        and, if X allows random access, the nearest and the farthest rows.
    title : str, default="Clusters"
        Title of the page.
    progress : bool or int, default=False
        Whether to show a progress bar on stderr, as `verbose` of estimators.

    Returns
    -------
    ClusterReport
        The measures, as arrays, text, page or frame.

    Raises
    ------
    ValueError
        If a parameter, shape or value is invalid.
    TypeError
        If the model is not an estimator of shoal, or values are not numbers.
    sklearn.exceptions.NotFittedError
        If the model is not fitted.
    OSError
        If a file cannot be read.
    KeyboardInterrupt
        On Ctrl-C.

    See Also
    --------
    shoal.select_n_clusters : Choose the number of clusters.
    shoal.write_partitions : Write the rows of every cluster to its own folder.

    Notes
    -----
    One pass of ``2 n k d`` operations, then ``2 k**2 d`` operations for the pairs. Rows are read in parts of
    4 million values, or of 4,096 sparse rows. Each part adds ``k d`` sums, which can take longer than the
    distances if there are very many features. Memory: about ``40 k d`` bytes, 16 bytes per nearest or
    farthest row, and about 100 MB for a part and for distances of centers. Images are gathered after the
    pass. Features are compared by their means in standard deviations of all rows. With ``metric="cosine"``,
    all measures are those of rows of length 1. Results are bit-identical for arrays, files and streams of the
    same rows, and for any number of threads.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> X = np.array([[0.0], [1.0], [9.0], [9.0], [12.0]])
    >>> model = shoal.KMeans(2, random_state=0, init=[[0.0], [9.0]]).fit(X)
    >>> found = shoal.report(model, X, n_exemplars=1, n_outliers=1)
    >>> found.sizes.tolist(), found.table["radius"].tolist(), found.outliers.ravel().tolist()
    ([2, 3], [0.5, 2.0], [0, 4])
    """
    check_model(model)
    near, far = _params.whole("n_exemplars", n_exemplars, 0), _params.whole("n_outliers", n_outliers, 0)
    top = _params.whole("n_features", n_features, 0)
    rows = open_checked(model, X)
    centers = model._representatives
    shape = check_image_shape(image_shape, rows.shape[1])
    source, weights = weighted(rows, sample_weight)
    given = None if labels is None else check_labels(labels, source.shape[0], len(centers))
    metric = model._metric_of_rows
    measured = Measured(
        None if type(model)._labeled is CenterFitter._labeled else model,
        centers,
        given,
        weights,
        (metric, getattr(model, "_metric_of_centers", metric)),
        model._threads,
        # The table names one of each.
        (max(1, near), max(1, far)),
    )
    with watched("report", model, progress, None, counted=("row", rows.shape[0])) as tell:
        measured.read(rows, tell)
    names = name_features(model, rows)
    tiles = tiles_of(rows, measured, shape) if shape is not None else {}
    return make_report(model, measured, names, (near, far, top), tiles, title)


def check_labels(labels: Any, n: int | None, k: int) -> npt.NDArray[np.int32]:
    """Return given labels as int32; raise unless they are numbers of clusters."""
    given = codes_of(labels, n)
    if given.dtype.kind not in "iu" or not len(given) or given.min() < 0 or given.max() >= k:
        found = given.dtype if given.dtype.kind not in "iu" else f"{given.min()} to {given.max()}"
        raise ValueError(f"labels must be integers from 0 to {k - 1}, got {found}")
    return given.astype(np.int32)


def check_image_shape(shape: Any, d: int) -> tuple[int, ...] | None:
    """Check the shape of images."""
    if shape is None:
        return None
    sides = tuple(_params.whole("image_shape", side, 1) for side in shape)
    if len(sides) not in (2, 3) or (len(sides) == 3 and sides[2] != 3) or int(np.prod(sides)) != d:
        raise _params.ParameterError(
            f"`image_shape` must be (height, width) or (height, width, 3), with {d} values as the rows have, "
            f"got {_params.shown(shape)}"
        )
    return sides


def name_features(model: Any, rows: DataSource) -> list[str]:
    """Return the names of the features; ``x0`` and so on if they have none."""
    names = names_of(model) or rows.feature_names
    return [f"x{j}" for j in range(rows.shape[1])] if names is None else names


def make_report(
    model: Any,
    measured: Measured,
    names: list[str],
    wanted: tuple[int, int, int],
    tiles: dict[int, str],
    title: str,
) -> ClusterReport:
    """Make the report of what was measured."""
    k = len(measured.centers)
    near, far, top = wanted
    totals = measured.totals
    used = np.flatnonzero(totals > 0)
    divisor = np.where(totals > 0, totals, np.nan)
    scatter, cohesion = measured.distances / divisor, measured.widths / divisor
    inertia = float(measured.sq_distances.sum())
    table = np.zeros(k, dtype=np.dtype(list(FIELDS)))
    table["cluster"], table["size"], table["weight"] = np.arange(k), measured.sizes, totals
    table["share"] = totals / totals.sum()
    table["mean_distance"], table["radius"] = scatter, measured.radii
    table["cohesion"] = cohesion if len(used) > 1 else np.nan
    table["exemplar"], table["outlier"] = measured.nearest.rows[:, 0], measured.farthest.rows[:, 0]
    table["closest"], table["overlap"] = -1, np.nan
    scores = [np.nan] * 3
    pairs = np.empty(0, dtype=PAIRS)
    if len(used) > 1:
        centers, own = measured.centers[used], scatter[used]
        ratios, others = overlaps(centers, own, measured.threads)
        table["closest"][used], table["overlap"][used] = used[others], ratios
        pairs = find_pairs(measured.centers, used, used[others], ratios)
        n = int(measured.weighty.sum())
        if len(used) < n:
            scores = [
                float(measured.widths.sum() / totals.sum()),
                calinski_harabasz(centers, totals[used], inertia, n),
                # The Davies-Bouldin index.
                float(ratios.mean()),
            ]
    return ClusterReport(
        model=" ".join(BaseEstimator.__repr__(model).split()),
        n_rows=measured.n_rows,
        n_features=measured.centers.shape[1],
        inertia=inertia,
        silhouette=scores[0],
        calinski_harabasz=scores[1],
        davies_bouldin=scores[2],
        table=table,
        exemplars=measured.nearest.rows[:, :near],
        exemplar_distances=distances_of(measured.nearest.keys[:, :near]),
        outliers=measured.farthest.rows[:, :far],
        outlier_distances=distances_of(-measured.farthest.keys[:, :far]),
        pairs=pairs,
        features=describe_features(measured, names, top),
        title=title,
        points=measured.sample.points,
        point_labels=measured.sample.labels,
        center_points=measured.projected(),
        tiles=tiles,
    )
