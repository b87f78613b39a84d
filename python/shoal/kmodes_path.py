"""Comparison of several Laplacian weights without labels."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from ._checks import params as _params
from ._kmodes.spectral import Spectral, spectral_labels
from ._rows.checked import open_or_check, refuse_weights
from ._rows.source import DataSource
from ._rows.spool import with_random_access
from ._rows.zeros import ignore_zeros, warn_of_zeros
from .kmodes import LaplacianKModes
from .typing import RandomState, Rows

__all__ = ["PATH_DTYPE", "laplacian_path", "plot_path"]

#: Fields of the table, except the sizes.
FIELDS: tuple[tuple[str, str], ...] = (
    ("weight", "f8"),
    ("energy", "f8"),
    ("kernel", "f8"),
    ("cut", "f8"),
    ("smallest", "i8"),
    ("largest", "i8"),
    ("stability", "f8"),
    ("stability_std", "f8"),
    ("collapsed", "?"),
    ("n_iter", "i8"),
)
PATH_DTYPE = np.dtype(list(FIELDS))
#: Default weights, as multiples of the weight of ``"auto"``.
MULTIPLES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
#: Fraction of the rows in a resample.
RESAMPLED = 0.8


def laplacian_path(
    X: Rows,
    n_clusters: int,
    *,
    weights: Iterable[float] | None = None,
    n_resamples: int = 5,
    random_state: RandomState = None,
    **params: Any,
) -> npt.NDArray[np.void]:
    """Fit Laplacian K-modes with several weights and tabulate the results.

    True labels are never used. A weight is a good choice if the clusters are stable, no cluster is tiny and
    none has collapsed. Among such weights, prefer one at which the cut falls steeply for a small loss of the
    kernel term. The energy itself grows with the weight, and dips where groups of neighbors merge.

    Parameters
    ----------
    X : rows of shape (n_samples, n_features)
        As for :meth:`shoal.LaplacianKModes.fit`.
    n_clusters : int
        Number of clusters.
    weights : iterable of float, optional
        Weights to try, at least 0. Default: 0, 0.25, 0.5, 0.75, 1, 1.5, 2 and 3 times the weight of
        ``laplacian_weight="auto"``.
    n_resamples : int, default=5
        Number of fits per weight to random samples of four fifths of the rows. 0 measures no stability.
    random_state : int, RandomState, Generator or None, default=None
        Seed of all draws. The fits of all weights begin with the same first modes.
    **params
        Other parameters of :class:`~shoal.LaplacianKModes`, such as ``n_neighbors`` and ``metric``.

    Returns
    -------
    table : structured ndarray of shape (n_weights,)
        One row per weight, in ascending order, with the fields

        - ``weight``;
        - ``energy``: ``weight * cut - kernel``;
        - ``kernel``: sum of the kernels between the rows and their modes;
        - ``cut``: affinity between rows of different clusters;
        - ``smallest``, ``largest``: rows of the smallest and the largest cluster;
        - ``stability``, ``stability_std``: mean and standard deviation of the adjusted Rand index between the
          labels of a sample and those of all rows (NaN without resamples);
        - ``collapsed``: whether a cluster lost its last row;
        - ``n_iter``: number of iterations;
        - ``sizes``: rows of every cluster, largest first.

    Raises
    ------
    ValueError, TypeError
        If a parameter or the rows are invalid.

    See Also
    --------
    shoal.kmodes_path.plot_path : Plot the table.
    LaplacianKModes : The estimator.

    Notes
    -----
    The neighbor graph and the labels of ``init="spectral"`` are computed once for all weights, and once per
    resample.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(size=(40, 3)) + 9, rng.normal(size=(40, 3)) - 9])
    >>> table = shoal.laplacian_path(X, 2, weights=[0.0, 1.0], n_resamples=2, random_state=0)
    >>> table["stability"].tolist(), table["sizes"].tolist()
    ([1.0, 1.0], [[40, 40], [40, 40]])
    """
    given = None if weights is None else _weights_of(weights)
    resamples = _params.whole("n_resamples", n_resamples, 0)
    seed = _params.seed(random_state)
    for name in ("laplacian_weight", "affinity", "random_state"):
        if name in params:
            raise TypeError(f"{name} must not be passed: laplacian_path sets it")
    # Raises early for parameters that no fit accepts.
    most: float | Literal["auto"] = "auto" if given is None else given[-1]
    model = LaplacianKModes(n_clusters, laplacian_weight=most, random_state=seed, **params)
    model._check()
    refuse_weights(X, "laplacian_path")
    X = with_random_access(X, "laplacian_path")
    rows = open_or_check(X)
    spectral = _computed_once()
    begun = _begin(rows, model, spectral)
    warn_of_zeros(begun.n_zero_rows_)
    # Samples of the rows are scaled like all of them.
    model.set_params(normalize=begun.normalize_)
    grid = [multiple * begun.laplacian_weight_ for multiple in MULTIPLES] if given is None else given
    found = _fit_all(rows, model, grid, begun, spectral)
    table = np.zeros(len(grid), dtype=np.dtype([*FIELDS, ("sizes", "i8", (int(n_clusters),))]))
    for at, one in enumerate(found):
        sizes = np.sort(np.bincount(one.labels, minlength=int(n_clusters)))[::-1]
        kernel = grid[at] * one.cut - one.energy
        table[at] = (
            grid[at],
            one.energy,
            kernel,
            one.cut,
            sizes[-1],
            sizes[0],
            np.nan,
            np.nan,
            one.collapsed,
            one.n_iter,
            sizes,
        )
    if resamples:
        draws = _params.random_state_of(seed)
        n = len(found[0].labels)
        # A fit needs at least as many rows as clusters, and more rows than neighbors.
        size = min(n, max(int(n_clusters), begun.n_neighbors_ + 1, int(RESAMPLED * n)))
        alike = np.empty((len(grid), resamples))
        for trial in range(resamples):
            picked = np.sort(draws.choice(n, size, replace=False))
            some = _some(rows, picked)
            spectral = _computed_once()
            begun = _begin(some, model, spectral)
            for at, one in enumerate(_fit_all(some, model, grid, begun, spectral)):
                alike[at, trial] = adjusted_rand_score(found[at].labels[picked], one.labels)
        table["stability"], table["stability_std"] = alike.mean(axis=1), alike.std(axis=1)
    return table


def plot_path(path: str | os.PathLike[str], table: npt.NDArray[np.void]) -> None:
    """Plot energies, cluster sizes and stability over the weight.

    Parameters
    ----------
    path : str or os.PathLike
        The PNG file. It appears whole or not at all.
    table : structured ndarray
        The result of :func:`shoal.laplacian_path`.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import numpy as np, shoal, tempfile
    >>> from shoal.kmodes_path import plot_path
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> table = shoal.laplacian_path(X, 2, weights=[0.0, 0.5], n_resamples=1, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     plot_path(f"{folder}/path.png", table)
    """
    from ._files.staged import replace_file
    from .plot import require_matplotlib

    require_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.6), layout="constrained")
    energies, sizes, stability = figure.subplots(1, 3)
    weight = table["weight"]
    energies.plot(weight, table["kernel"], "o-", label="kernel term")
    energies.plot(weight, table["cut"], "s-", label="cut")
    energies.legend()
    energies.set_title("terms of the energy")
    for at in range(table["sizes"].shape[1]):
        sizes.plot(weight, table["sizes"][:, at], ".-", color="tab:blue", alpha=0.6)
    sizes.set_title("rows per cluster")
    sizes.set_yscale("symlog")
    stability.errorbar(weight, table["stability"], table["stability_std"], fmt="o-", capsize=3)
    gone = table["collapsed"]
    stability.plot(weight[gone], table["stability"][gone], "rx", markersize=10, label="collapsed")
    stability.set_ylim(top=1.02)
    stability.set_title("stability under resampling")
    if gone.any():
        stability.legend()
    for axes in (energies, sizes, stability):
        axes.set_xlabel("weight")
    with replace_file(path) as file:
        figure.savefig(file, format="png", dpi=110)


def _weights_of(weights: Iterable[float]) -> list[float]:
    given = list(weights)
    if len(given) == 0:
        raise _params.ParameterError("`weights` must not be empty")
    return sorted(_params.NOT_NEGATIVE.check("weights", weight) for weight in given)


def _some(rows: Any, picked: npt.NDArray[np.int64]) -> Any:
    """Return the picked rows as an array or a sparse matrix."""
    return rows.take(picked) if isinstance(rows, DataSource) else rows[picked]


def _cut(fitted: LaplacianKModes) -> float:
    """Return the sum of the affinity between rows of different clusters."""
    pairs = fitted.affinity_.tocoo()
    return float(pairs.data[fitted.labels_[pairs.row] != fitted.labels_[pairs.col]].sum())


class _Fit(NamedTuple):
    """The parts of a fit that are kept; responsibilities and graphs are dropped."""

    labels: npt.NDArray[np.int32]
    energy: float
    cut: float
    collapsed: bool
    n_iter: int


def _computed_once() -> Spectral:
    """Return a function that computes spectral labels once and then repeats them."""
    found: list[npt.NDArray[np.int32] | None] = []

    def spectral(affinity: Any, n_clusters: int, **given: Any) -> npt.NDArray[np.int32] | None:
        if not found:
            found.append(spectral_labels(affinity, n_clusters, **given))
        return found[0]

    return spectral


def _begin(rows: Any, model: LaplacianKModes, spectral: Spectral) -> LaplacianKModes:
    """Fit one iteration, for the graph, the bandwidth and the weight of ``"auto"``."""
    given: dict[str, Any] = {
        "laplacian_weight": "auto",
        "max_iter": 1,
        "on_collapse": "restore",
        "callbacks": None,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ignore_zeros()
        begun = LaplacianKModes(**{**model.get_params(), **given})
        for _ in begun._iter_fit(rows, None, spectral):
            pass
        return begun


def _fit_all(
    rows: Any, model: LaplacianKModes, grid: list[float], begun: LaplacianKModes, spectral: Spectral
) -> list[_Fit]:
    """Fit every weight to the same rows, with one graph and one start."""
    fitted: list[_Fit] = []
    params: dict[str, Any] = {
        **model.get_params(),
        "affinity": "precomputed",
        "bandwidth": begun.bandwidth_,
    }
    for weight in grid:
        params["laplacian_weight"] = weight
        one = LaplacianKModes(**params)
        with warnings.catch_warnings():
            # The table has a column for collapses.
            warnings.simplefilter("ignore", ConvergenceWarning)
            ignore_zeros()
            for _ in one._iter_fit(begun.affinity_, rows, spectral):
                pass
        fitted.append(_Fit(one.labels_, one.energy_, _cut(one), one.collapsed_, one.n_iter_))
    return fitted
