"""Dense rows of ``.npz`` files, which are checked before they are unpacked."""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from shoal._checks.marked import MarkedError, ParameterError
from shoal._checks.params import shown
from shoal._core import Source
from shoal._files.staged import open_regular

from .stream import MOST_NAMES, name_errors, refuse_large

#: The error for a file that cannot be read.
DAMAGED = "holds no arrays as numpy.savez writes them"
#: Header before an entry of a zip file: its mark, then the lengths of the name and of the extra field.
LOCAL = struct.Struct("<4s22xHH")
#: Shape, whether in Fortran order, type, and length of the header of an array.
Header = tuple[tuple[int, ...], bool, np.dtype[Any], int]

#: Arrays larger than this many times the file need an explicit limit. Deflate rarely compresses that much.
RATIO = 100
#: Readers of the header of an .npy array, by format version.
HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def most_unpacked(name: str, limit: int) -> int:
    """Return the maximum unpacked size of a file: `limit`, or 100 times its own size if that is more."""
    return max(limit, RATIO * Path(name).stat().st_size)


@contextmanager
def checked_npz(name: str, limit: int) -> Generator[IO[bytes]]:
    """Open an ``.npz`` file after a check that its arrays match their headers and are not too large.

    The unpacked arrays may take `limit` bytes, those of a large file more: see :func:`most_unpacked`. A
    damaged file raises exceptions of many types: see :func:`shoal.formats.stream.name_errors`.
    """
    with open_regular(name) as file:
        with zipfile.ZipFile(file) as bundle:
            members = bundle.infolist()
            check_names(members)
            size = sum(member.file_size for member in members)
            refuse_large(name, "the content", size, most_unpacked(name, limit))
            for member in members:
                check_member(bundle, member)
        file.seek(0)
        yield file


def check_names(members: list[zipfile.ZipInfo]) -> None:
    """Raise `ValueError` for entries that are not arrays or occur twice; readers skip or replace them."""
    seen: set[str] = set()
    for member in members:
        name = member.filename
        if not name.endswith(".npy"):
            raise ValueError(f"the entry {shown(name)} is not an .npy array")
        if name in seen:
            raise ValueError(f"the entry {shown(name)} occurs twice")
        seen.add(name)


def members_of(name: str) -> dict[str, zipfile.ZipInfo]:
    """Return the entries of an ``.npz`` file by the names of their arrays."""
    with name_errors(name, DAMAGED), open_regular(name) as file, zipfile.ZipFile(file) as bundle:
        members = bundle.infolist()
        check_names(members)
        return {member.filename.removesuffix(".npy"): member for member in members}


def open_member(name: str, key: str | None, limit: int) -> Source | npt.NDArray[Any]:
    """Open a 2-D array of an ``.npz`` file: in place if it is not compressed, else loaded.

    `key` is None for ``X``, else for the only 2-D array. Only the array that is read has a limit, as for
    :func:`checked_npz`.
    """
    with name_errors(name, DAMAGED), open_regular(name) as file, zipfile.ZipFile(file) as bundle:
        members = bundle.infolist()
        check_names(members)
        headers = {
            member.filename.removesuffix(".npy"): (member, check_member(bundle, member)) for member in members
        }
        found = find_member(name, {each: header for each, (_, header) in headers.items()}, key)
        member, (shape, fortran, dtype, begin) = headers[found]
        if member.compress_type == zipfile.ZIP_STORED and not fortran and is_mappable(dtype):
            at = begin_of(file, member) + begin
            return Source.open_raw(name, dtype.name, shape[0], shape[1], at)
        refuse_large(name, f"the array {found!r}", member.file_size, most_unpacked(name, limit))
        with bundle.open(member) as stream:
            rows: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        return rows


def find_member(name: str, headers: dict[str, Header], key: str | None) -> str:
    """Return the name of the array to read: `key`, ``X``, or the only 2-D array."""
    shapes = ", ".join(f"{each} {header[0]}" for each, header in list(headers.items())[:MOST_NAMES])
    if key is not None:
        if key not in headers:
            raise ValueError(f"{name}: key must be the name of one of its arrays, {shapes}, got {shown(key)}")
        if len(headers[key][0]) != 2:
            raise ParameterError(
                f"{name}: `key` must name a 2-D array, got {shown(key)} of shape {headers[key][0]}"
            )
        return key
    matrices = [each for each, header in headers.items() if len(header[0]) == 2]
    if "X" in matrices:
        return "X"
    if len(matrices) != 1:
        raise MarkedError(
            f"{name}: must hold one 2-D array, or one named X, got {shapes or 'no array'}. Choose one with "
            "`key`="
        )
    return matrices[0]


def is_mappable(dtype: np.dtype[Any]) -> bool:
    """Whether numbers of a type can be read in place: little-endian, of at most 8 bytes."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8 and dtype.newbyteorder("<") == dtype


def begin_of(file: IO[bytes], member: zipfile.ZipInfo) -> int:
    """Return the position of the first byte of an entry that is not compressed."""
    file.seek(member.header_offset)
    header = file.read(LOCAL.size)
    mark, name, extra = LOCAL.unpack(header)
    if mark != b"PK\3\4":
        raise ValueError(f"the entry {shown(member.filename)} has no local header")
    return member.header_offset + LOCAL.size + int(name) + int(extra)


def check_member(bundle: zipfile.ZipFile, member: zipfile.ZipInfo) -> Header:
    """Return the header of an array; raise `ValueError` if it does not match the size in the file."""
    with bundle.open(member) as array:
        version = np.lib.format.read_magic(array)
        if version not in HEADERS:
            raise ValueError(f"the version of {member.filename} must be (1, 0) or (2, 0), got {version}")
        shape, fortran, dtype = HEADERS[version](array)
        if dtype.hasobject:
            raise ValueError(f"{member.filename} must hold numbers, got Python objects")
        begin = array.tell()
        size = begin + math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or size != member.file_size:
        raise ValueError(
            f"the header of {member.filename} has shape {shape} and dtype {dtype}, but the array has "
            f"{member.file_size} bytes"
        )
    return shape, fortran, dtype, begin
