"""Arrays of bfloat16, a type that NumPy lacks: their bits, under a type that marks them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: The name in `ml_dtypes`, in PyTorch and in the Rust code.
NAME = "bfloat16"
#: The type of an array of such bits. The name of its field marks it.
BF16 = np.dtype([(NAME, np.uint16)])


def is_bf16(array: Any) -> bool:
    """Whether an array is of the type `BF16`, or of ``ml_dtypes.bfloat16``."""
    dtype = getattr(array, "dtype", None)
    return isinstance(array, np.ndarray) and (dtype == BF16 or getattr(dtype, "name", None) == NAME)


def marked(bits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """View an array of 2-byte values as `BF16`."""
    return bits if bits.dtype == BF16 else bits.view(np.uint16).view(BF16)


def widened(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert an array of `BF16` to ``float32``, exactly; return any other array as it is."""
    if array.dtype != BF16:
        return array
    return (array.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def name_of(dtype: np.dtype[Any]) -> str:
    """Return the name in the Rust code of the type of an array."""
    return NAME if dtype == BF16 else dtype.name
