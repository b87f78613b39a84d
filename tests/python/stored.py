"""Rows of every type that they can be stored in."""

import numpy as np

DTYPES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "uint16",
    "float16",
    "float32",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float64",
]


def made(dtype, rows=23, cols=3):
    """Whole numbers below 100, or bits, always the same ones."""
    values = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, size=(rows, cols))
    return values.astype(dtype)
