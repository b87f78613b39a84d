"""Checks of ``.npz`` files before their arrays are unpacked."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from shoal._common.files import open_regular
from shoal._common.params import shown

from .stream import refuse_large

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

    Parameters
    ----------
    name : str
        The file.
    limit : int
        Size in bytes that the unpacked arrays may always have. Large files may take more, see
        :func:`most_unpacked`.

    Yields
    ------
    file object
        At its beginning, for ``numpy.load`` and ``scipy.sparse.load_npz``.

    Raises
    ------
    OSError
        If the file cannot be opened.
    Exception
        Of many types, if the file is damaged; see :func:`shoal.formats.stream.told_of`.
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


def check_member(bundle: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Raise `ValueError` for an array whose header does not match its size in the file."""
    with bundle.open(member) as array:
        version = np.lib.format.read_magic(array)
        if version not in HEADERS:
            raise ValueError(f"the version of {member.filename} must be (1, 0) or (2, 0), got {version}")
        shape, _, dtype = HEADERS[version](array)
        if dtype.hasobject:
            raise ValueError(f"{member.filename} must hold numbers, got Python objects")
        size = array.tell() + math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or size != member.file_size:
        raise ValueError(
            f"the header of {member.filename} has shape {shape} and dtype {dtype}, but the array has "
            f"{member.file_size} bytes"
        )
