"""Chooses the number of factors of a mixture by the likelihood of held-out rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.random import sample_without_replacement

from shoal._checks.marked import mark
from shoal._checks.params import ParameterError, RowWeights
from shoal._core import Source
from shoal.callbacks import Checkpoint, ProgressBar, ValidationCurve

#: The numbers that are tried: each about 1.6 times the one before.
GRID = (1, 2, 3, 5, 8, 13, 21, 34, 55)
#: Rows of the sample: per component, and at least.
ROWS_PER_COMPONENT, LEAST_ROWS = 500, 10_000
#: Upper limit of the copied sample, in bytes, unless the fit or the comparison needs more rows.
MOST_BYTES = 256 << 20
#: Share of the sample that is held out, and the fewest rows of it. With fewer, the standard error is a guess.
HELD_OUT, LEAST_HELD_OUT = 0.25, 30
#: Standard errors that a difference must exceed.
DOUBT = 2.0
#: Iterations of the fits that are compared.
ITERATIONS = 50


def chosen_factors(mixture: Any, source: Source, weights: RowWeights, seed: int) -> int | None:
    """Return the number of factors with the highest held-out likelihood; None if there can be none.

    The numbers of `GRID` are tried in ascending order, as in :func:`best_of`.
    """
    n, d = source.shape
    # The run refuses sparse rows.
    grid = [] if source.sparse else [h for h in GRID if h < d]
    if n is None or source.access == "once":
        raise ParameterError(
            f"{mark('n_factors')} must be a number for rows that can be read only once, or whose number is "
            "not known, got 'auto'"
        )
    if len(grid) < 2:
        return grid[0] if grid else None
    trained, held = _parts(mixture, source, n, weights, seed)
    watchers = _watchers(mixture.callbacks)
    given = {"coreset_size": None, "n_init": 1, "verbose": 0, "warm_start": False}
    given |= {"random_state": seed % 2**32, "max_iter": min(int(mixture.max_iter), ITERATIONS)}
    train, test = source.take(trained), source.take(held)
    shares = (None, None) if weights is None else (weights[trained], weights[held])

    def densities(h: int) -> npt.NDArray[np.float64]:
        kind = type(mixture)
        bar = [ProgressBar(f"{kind.__name__}, trying n_factors={h}")] if mixture.verbose else []
        own = {"n_factors": h, "callbacks": [*bar, *watchers]}
        model = kind(**(mixture.get_params(deep=False) | given | own))
        with warnings.catch_warnings():
            # Fits that have not converged are compared as well.
            warnings.simplefilter("ignore")
            found: npt.NDArray[np.float64] = model.fit(train, sample_weight=shares[0]).score_samples(test)
            return found

    return best_of(grid, densities, shares[1])


def best_of(
    grid: list[int], densities: Callable[[int], npt.NDArray[np.float64]], weights: RowWeights = None
) -> int:
    """Return the number with the highest mean log density; stop after two in a row that are no better.

    A number is better than a smaller one if the mean of the differences is above `DOUBT` standard errors.
    With weights, the number of rows in the error is the effective one, ``sum(w) ** 2 / sum(w ** 2)``.
    """
    best, highest, worse = grid[0], densities(grid[0]), 0
    w = np.ones(len(highest)) if weights is None else weights / weights.max()
    effective = w.sum() ** 2 / (w**2).sum()
    for h in grid[1:]:
        found = densities(h)
        gains = found - highest
        mean = np.average(gains, weights=w)
        squares = np.average((gains - mean) ** 2, weights=w)
        # A single row has no error to measure.
        if effective > 1 and mean > DOUBT * np.sqrt(squares / (effective - 1)):
            best, highest, worse = h, found, 0
        else:
            worse += 1
            if worse == 2:
                break
    return best


def _watchers(callbacks: Any) -> list[Any]:
    """Return the callbacks that watch the fits of the search."""
    # An iterator would be used up before the fit itself.
    if callbacks is None or isinstance(callbacks, Iterator):
        return []
    return [each for each in callbacks if not isinstance(each, (Checkpoint, ValidationCurve))]


def _parts(
    mixture: Any, source: Source, n: int, weights: RowWeights, seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the rows to fit, and those held out, in ascending order; rows of weight 0 are left out."""
    weighted = None if weights is None else np.flatnonzero(weights)
    among, k = n if weighted is None else len(weighted), int(mixture.n_components)
    # The fit needs a row for each component.
    least = max(int(LEAST_HELD_OUT / HELD_OUT), k + LEAST_HELD_OUT)
    if among < least:
        raise ParameterError(
            f"{mark('n_factors')} must be `None` or a number if fewer than {least} rows have a weight "
            f"above 0 (here {among}), got 'auto'"
        )
    fitting = MOST_BYTES // (source.shape[1] * np.dtype(source.compute).itemsize)
    size = min(among, max(LEAST_ROWS, ROWS_PER_COMPONENT * k), max(least, fitting))
    rng = np.random.RandomState(seed % 2**32)
    drawn = sample_without_replacement(among, size, random_state=rng).astype(np.int64)
    if weighted is not None:
        drawn = weighted[drawn]
    drawn = drawn[rng.permutation(size)]
    held = min(int(HELD_OUT * size), size - k)
    return np.sort(drawn[held:]), np.sort(drawn[:held])
