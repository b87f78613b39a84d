"""Criteria that choose a number of clusters from a table of measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from shoal.typing import Criterion

from .elbow import differences, elbow

#: Values of the parameter `criterion`, and the criteria that have a measure of their own.
OPTIONS: tuple[str, ...] = get_args(Criterion)
CRITERIA: tuple[str, ...] = tuple(name for name in OPTIONS if name != "auto")
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
#: The criteria that vote with ``"auto"``; the first one decides if all choices differ. The Davies-Bouldin
#: index nearly repeats the silhouette, and the stability is measured only with resamples.
VOTERS = ("silhouette", "elbow", "calinski_harabasz")
#: Numbers of clusters are about the same if they differ by at most this fraction of the larger one.
ABOUT = 0.1


def suggest_all(table: npt.NDArray[np.void]) -> dict[str, int | None]:
    """Return the number of clusters that each criterion chooses; None if it cannot choose."""
    return {name: choose(name, table) for name in CRITERIA}


def verdict(criterion: str, choices: Mapping[str, int | None]) -> int | None:
    """Return the number of clusters that the value of the parameter `criterion` chooses.

    ``"auto"`` returns the choice of one of the `VOTERS` that is about the same as those of most of them. Of
    choices with equal counts, the one that most of them make exactly is taken, then that of the first.
    """
    if criterion != "auto":
        return choices[criterion]
    made = [k for name in VOTERS if (k := choices[name]) is not None]
    return max(made, key=lambda k: (sum(is_about(k, other) for other in made), made.count(k)), default=None)


def is_about(k: int, other: int) -> bool:
    """Return whether two numbers of clusters are about the same."""
    return abs(k - other) <= ABOUT * max(k, other)


def margin(criterion: str, k: int, table: npt.NDArray[np.void]) -> float:
    """Return how far the value of a criterion at `k` lies ahead of all numbers that are not about `k`.

    The unit is the difference between the best and the worst value. 0: another number is as good. NaN if no
    other number has a value.
    """
    ks: Any = table["n_clusters"]
    values = scores(criterion, table)
    known = ~np.isnan(values)
    rivals = known & np.array([not is_about(k, int(other)) for other in ks])
    if not rivals.any():
        return float("nan")
    ahead, spread = float(values[ks == k][0] - values[rivals].max()), float(np.ptp(values[known]))
    return max(0.0, ahead / spread) if spread > 0.0 else 0.0


def scores(criterion: str, table: npt.NDArray[np.void]) -> npt.NDArray[np.float64]:
    """Return a value of every number of clusters that is large where the criterion finds it good."""
    if criterion == "elbow":
        return differences(table["n_clusters"], logarithms(table["inertia"]))
    values = np.asarray(table[criterion], dtype=np.float64)
    return -values if criterion == "davies_bouldin" else values


def choose(criterion: str, table: npt.NDArray[np.void]) -> int | None:
    """Return the number of clusters that a criterion with a measure chooses.

    Of equal values, that of the smallest number of clusters counts, for the stability that of the largest.
    """
    ks: Any = table["n_clusters"]
    if criterion == "elbow":
        at = elbow(ks, logarithms(table["inertia"]))
        return None if at is None else int(ks[at])
    values = scores(criterion, table)
    if np.isnan(values).all():
        return None
    best = np.flatnonzero(values == np.nanmax(values))
    return int(ks[best[-1 if criterion == "stability" else 0]])


def logarithms(inertia: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return logarithms of inertias: splitting any cluster changes them by a similar amount."""
    most = float(inertia.max())
    return np.log(np.maximum(inertia, VANISHING * most)) if most > 0.0 else np.zeros(len(inertia))
