"""Criteria that choose a number of clusters from a table of measures."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from shoal.typing import Criterion

from .elbow import elbow

CRITERIA: tuple[str, ...] = get_args(Criterion)
#: Fields of the table of a selection.
FIELDS: tuple[tuple[str, str], ...] = (
    ("n_clusters", "i8"),
    ("inertia", "f8"),
    ("silhouette", "f8"),
    ("calinski_harabasz", "f8"),
    ("davies_bouldin", "f8"),
    ("stability", "f8"),
    ("stability_std", "f8"),
    ("n_iter", "i8"),
)
#: Inertias below this fraction of the largest one count as equal: they are zero up to rounding.
VANISHING = 1e-12


def suggest_all(table: npt.NDArray[np.void]) -> dict[str, int | None]:
    """Return the number of clusters that each criterion chooses; None if it cannot choose."""
    return {name: choose(name, table) for name in CRITERIA}


def choose(criterion: str, table: npt.NDArray[np.void]) -> int | None:
    """Return the number of clusters that a criterion chooses.

    Of equal values, that of the smallest number of clusters counts, for the stability that of the largest.
    """
    ks: Any = table["n_clusters"]
    if criterion == "elbow":
        at = elbow(ks, logarithms(table["inertia"]))
        return None if at is None else int(ks[at])
    values = np.asarray(table[criterion], dtype=np.float64)
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return None
    values = values[known]
    if criterion == "stability":
        return int(ks[known[values >= values.max()][-1]])
    best = values.argmin() if criterion == "davies_bouldin" else values.argmax()
    return int(ks[known[best]])


def logarithms(inertia: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return logarithms of inertias: splitting any cluster changes them by a similar amount."""
    most = float(inertia.max())
    return np.log(np.maximum(inertia, VANISHING * most)) if most > 0.0 else np.zeros(len(inertia))
