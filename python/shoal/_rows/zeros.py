"""Rows of zeros, which have no direction for the cosine metric."""

from __future__ import annotations

import warnings

from shoal._checks.warn import warn
from shoal._core import Source


class SeenBy:
    """The rows as a metric sees them, for one call: scaled to length 1 as they are read for ``"cosine"``.

    At the end of the block, one warning tells how many different rows of zeros were read.
    """

    def __init__(self, source: Source, metric: str) -> None:
        self._rows, self._metric = source.seen_by(metric), metric

    def __enter__(self) -> Source:
        return self._rows

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            warn_of_zeros(count_zeros(self._rows, self._metric))


def count_zeros(rows: Source, metric: str) -> int:
    """Return how many rows of zeros were read, as a metric sees rows; 0 if it compares no directions."""
    return rows.zero_rows if metric == "cosine" else 0


def warn_of_zeros(n_rows: int) -> None:
    """Warn of a number of rows of zeros; 0 does not warn."""
    if n_rows:
        one = n_rows == 1
        which = "1 row of X is all zeros and has" if one else f"{n_rows} rows of X are all zeros and have"
        warn(
            f"{which} no direction: no center is nearer than another. Remove such rows, or ignore their "
            "labels.",
            UserWarning,
        )


def ignore_zeros() -> None:
    """Ignore warnings of rows of zeros, within `warnings.catch_warnings`."""
    warnings.filterwarnings("ignore", r"\d+ rows? of X (is|are) all zeros", UserWarning)
