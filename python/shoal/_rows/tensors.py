"""Tensors of other libraries as NumPy arrays, without a copy where the memory is that of the CPU."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._checks.params import shown

from .bfloat16 import NAME, marked

#: Kinds of memory in DLPack that the CPU reads: its own, and memory pinned for CUDA or ROCm.
CPU_KINDS = (1, 3, 11)


def array_of(obj: Any) -> Any:
    """Return a tensor or an array of the array API as a NumPy array; any other object as it is."""
    if isinstance(obj, np.ndarray) or not hasattr(obj, "__dlpack__"):
        return obj
    refuse_device(obj)
    if getattr(obj, "requires_grad", False):
        obj = obj.detach()
    if str(getattr(obj, "dtype", None)) == f"torch.{NAME}":
        # NumPy takes the bits only under another name.
        bits: npt.NDArray[Any] = np.asarray(obj.view(sys.modules["torch"].int16))
        return marked(bits)
    try:
        return np.asarray(obj) if hasattr(obj, "__array__") else np.from_dlpack(obj)
    except (TypeError, BufferError, RuntimeError) as error:
        dtype = getattr(obj, "dtype", "unknown type")
        raise TypeError(
            f"X must be readable as a NumPy array, got {type(obj).__name__} of {dtype}: {error}. Convert it "
            "to float32 first."
        ) from error


def refuse_device(obj: Any) -> None:
    """Raise `ValueError` if a tensor is not in the memory of the CPU."""
    if not hasattr(obj, "__dlpack_device__"):
        return
    try:
        kind = int(obj.__dlpack_device__()[0])
    except (BufferError, RuntimeError, ValueError) as error:
        raise ValueError(f"X must be in the memory of the CPU, got {type(obj).__name__}: {error}") from error
    if kind not in CPU_KINDS:
        device = getattr(obj, "device", f"device type {kind} of DLPack")
        raise ValueError(
            f"X must be in the memory of the CPU, got {type(obj).__name__} on {shown(device)}. Move it "
            "first, for example with X.cpu()."
        )
