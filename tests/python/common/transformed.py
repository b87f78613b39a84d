"""Rows, axes and comparisons for tests of transforms."""

import numpy as np

X = np.random.default_rng(0).normal(size=(700, 9)) * np.logspace(-2, 2, 9) + 5
AXES = np.random.default_rng(1).normal(size=(4, 9))


def streams(rows, block=37):
    return lambda: (rows[i : i + block] for i in range(0, len(rows), block))


def same(found, expected):
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(found, expected)
