"""Wrong rows and arguments of transforms raise errors that name them."""

import math

import numpy as np
import pytest
import shoal
from transformed import AXES, X, same, streams


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_are_not_finite_are_named(bad, dtype):
    rows = X.astype(dtype)
    rows[431, 4] = bad
    source = shoal.open(rows)
    with pytest.raises(ValueError, match=r"X must be finite, got .* at row 431, column 4"):
        source.standardize()
    for made_ in (
        source.normalize(),
        source.standardize(1, 2),
        source.project(AXES),
        source.map(np.negative),
    ):
        column = "0" if made_.shape[1] == 4 else "4"
        with pytest.raises(ValueError, match=f"X must be finite, got .* at row 431, column {column}"):
            shoal.KMeans(3).fit(made_)


def test_values_that_overflow_are_told():
    source = shoal.open(np.array([[1.0, 1e300], [2.0, -1e300]]))
    with pytest.raises(ValueError, match="the variance of column 1 overflows: give the mean and the scale"):
        source.standardize()
    same(np.asarray(source.standardize(0, [1, 1e300])), np.array([[1.0, 1], [2, -1]]))
    with pytest.raises(ValueError, match="X must be finite, got inf at row 0, column 0"):
        shoal.KMeans(2).fit(shoal.open(np.array([[1e30], [1.0]], "f4")).standardize(0, 1e-30))
    with pytest.raises(ValueError, match="must have at least 1 row, got 0"):
        shoal.open(X[:0]).standardize()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda s: s.standardize(mean=[1, 2]),
            ValueError,
            "mean must be a number or one number for each of 9 columns, got 2",
        ),
        (
            lambda s: s.standardize(mean="x"),
            ValueError,
            "mean must be a number or one number per column, got 'x'",
        ),
        (
            lambda s: s.standardize(mean=np.eye(9)),
            ValueError,
            "mean must be a number or one number per column",
        ),
        (
            lambda s: s.standardize(mean=True),
            ValueError,
            "mean must be a number or one number per column, got True",
        ),
        (
            lambda s: s.standardize(0, math.nan),
            ValueError,
            "scale must be finite and above 0, got NaN at column 0",
        ),
        (lambda s: s.standardize(0, 0), ValueError, "scale must be finite and above 0, got 0 at column 0"),
        (
            lambda s: s.standardize(0, [1] * 8 + [-2]),
            ValueError,
            "scale must be finite and above 0, got -2 at column 8",
        ),
        (lambda s: s.standardize(math.inf, 1), ValueError, "mean must be finite, got inf at column 0"),
        (lambda s: s.project(np.eye(8)), ValueError, "components must have 9 columns, as X has, got 8"),
        (
            lambda s: s.project(np.ones(9)),
            ValueError,
            "components must be a 2-D array of numbers with at least 1 row",
        ),
        (
            lambda s: s.project(np.ones((0, 9))),
            ValueError,
            "components must be a 2-D array of numbers with at least 1",
        ),
        (lambda s: s.project([["a"] * 9]), ValueError, "components must be a 2-D array of numbers"),
        (lambda s: s.project([[1j] * 9]), ValueError, "components must be a 2-D array of numbers"),
        (
            lambda s: s.project([[0] * 8 + [math.nan]]),
            ValueError,
            "components must be finite, got NaN at row 0, column 8",
        ),
        (
            lambda s: s.project(AXES, mean=[1]),
            ValueError,
            "mean must be a number or one number for each of 9 columns",
        ),
        (lambda s: s.project(AXES, mean=math.nan), ValueError, "mean must be finite, got NaN at column 0"),
        (lambda s: s.map(3), TypeError, "fn must be a function of a block of rows, got 3"),
        (
            lambda s: s.map(np.abs, dim=0),
            ValueError,
            "dim must be an integer of at least 1, got 0|dim must be",
        ),
        (
            lambda s: s.map(np.abs, dtype="complex64"),
            ValueError,
            "dtype must be a type of real numbers .* got complex64",
        ),
        (
            lambda s: s.map(np.abs, dtype="object"),
            ValueError,
            "dtype must be a type of real numbers .* got object",
        ),
    ],
)
def test_wrong_arguments_are_refused(call, error, message):
    for source in (shoal.open(X), shoal.open(streams(X))):
        with pytest.raises(error, match=message):
            call(source)
