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
#: A number of clusters is stable if the mean agreement of resamples is at least this.
STABLE = 0.9


def suggested(table: npt.NDArray[np.void]) -> dict[str, int | None]:
    """Return the number of clusters that each criterion chooses; None if it cannot choose."""
    return {name: chosen(name, table) for name in CRITERIA}


def chosen(criterion: str, table: npt.NDArray[np.void]) -> int | None:
    """Return the number of clusters that a criterion chooses; the smallest of equals."""
    ks: Any = table["n_clusters"]
    if criterion == "elbow":
        at = elbow(ks, table["inertia"])
        return None if at is None else int(ks[at])
    values = np.asarray(table[criterion], dtype=np.float64)
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return None
    values = values[known]
    if criterion == "stability":
        stable = known[values >= STABLE]
        return int(ks[stable[-1]]) if len(stable) else int(ks[known[values.argmax()]])
    best = values.argmin() if criterion == "davies_bouldin" else values.argmax()
    return int(ks[known[best]])
