"""Memory-mapped tensors of safetensors files."""

from __future__ import annotations

import json
import math
import os
from typing import Any

from shoal._common.files import open_regular
from shoal._common.params import is_whole, shown
from shoal._core import Source

from .chunked import one_of

#: Type names of the format, with the type and the size in bytes that rows of this type have.
DTYPES = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "U16": ("uint16", 2),
    "I16": ("int16", 2),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "U32": ("uint32", 4),
    "I32": ("int32", 4),
    "F32": ("float32", 4),
    "U64": ("uint64", 8),
    "I64": ("int64", 8),
    "F64": ("float64", 8),
}
#: The longest header that the format allows, in bytes.
LONGEST_HEADER = 100_000_000


def open_safetensors(name: str, key: str | None) -> Source:
    """Open the tensor `key` of a file; None for the only tensor."""
    header, begin, size = header_of(name)
    header.pop("__metadata__", None)
    if not header:
        raise ValueError(f"{name}: holds no tensors")
    found = one_of(name, key, list(header))
    what = f"{name}[{found!r}]"
    dtype, shape, first, last = described(what, header[found])
    if dtype not in DTYPES:
        raise ValueError(f"{what}: the type must be one of {', '.join(DTYPES)}, got {shown(dtype)}")
    if len(shape) != 2:
        raise ValueError(f"{what}: must be a 2-D tensor, got shape {tuple(shape)}")
    stored, width = DTYPES[dtype]
    if last > size - begin or last - first != math.prod(shape) * width:
        raise ValueError(
            f"{what}: is damaged: shape {tuple(shape)} of {dtype} is at bytes {first} to {last} of "
            f"{size - begin}"
        )
    rows, cols = shape
    return Source.open_raw(name, stored, rows, cols, begin + first)


def header_of(name: str) -> tuple[dict[str, Any], int, int]:
    """Read the header of a file, the position of its values, and the size of the file."""
    with open_regular(name) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, LONGEST_HEADER):
            raise ValueError(f"{name}: is not a safetensors file, or is damaged: a header of {length} bytes")
        text = file.read(length)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name}: is not a safetensors file, or is damaged: {error}") from error
    if not isinstance(header, dict):
        raise ValueError(f"{name}: is not a safetensors file: the header is not a JSON object")
    return header, 8 + length, size


def described(what: str, entry: Any) -> tuple[str, list[int], int, int]:
    """Return type, shape, first byte and end of a tensor, after a check of their types and ranges."""
    if isinstance(entry, dict):
        dtype, shape, offsets = (entry.get(name) for name in ("dtype", "shape", "data_offsets"))
        if (
            isinstance(dtype, str)
            and isinstance(shape, list)
            and isinstance(offsets, list)
            and len(offsets) == 2
            and all(is_whole(value) and 0 <= value < 1 << 63 for value in (*shape, *offsets))
            and offsets[0] <= offsets[1]
        ):
            return dtype, shape, *offsets
    raise ValueError(f"{what}: is damaged: {shown(entry)}")
