"""Arrays in every storage type."""

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
    """Random integers from 0 to 99, or random booleans, from a fixed seed."""
    values = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, size=(rows, cols))
    return values.astype(dtype)
