"""Memory-mapped tensors of safetensors files."""

from __future__ import annotations

from shoal._core import Source, array_layouts

from .chunked import choose_key
from .stream import Reading


def open_safetensors(name: str, reading: Reading) -> Source:
    """Open the tensor `key` of a file; None for the only tensor."""
    tensors = array_layouts(name)
    if not tensors:
        raise ValueError(f"{name}: holds no tensors")
    found = choose_key(name, reading.key, list(tensors))
    what = f"{name}[{found!r}]"
    dtype, shape, first = tensors[found]
    if dtype is None:
        raise ValueError(f"{what}: the type must be a boolean, an integer or a float of 16 to 64 bits")
    if len(shape) != 2:
        raise ValueError(f"{what}: must be a 2-D tensor, got shape {tuple(shape)}")
    rows, cols = shape
    return Source.open_raw(name, dtype, rows, cols, first)
