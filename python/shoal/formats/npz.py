"""Bundles of arrays as NumPy writes them, looked through before anything of them is unpacked."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from shoal._common.files import open_regular
from shoal._common.params import shown

from .stream import refuse_large

#: Deflate makes the arrays of a matrix smaller, but seldom by more than this factor.
RATIO = 100
HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def most_unpacked(name: str, limit: int) -> int:
    """Give the bytes that a file may take when it is unpacked: `limit`, or many times its own size."""
    return max(limit, RATIO * Path(name).stat().st_size)


@contextmanager
def checked_npz(name: str, limit: int) -> Iterator[IO[bytes]]:
    """Open an ``.npz`` file whose arrays have the sizes that they claim, and take no more than allowed.

    Parameters
    ----------
    name : str
        The file.
    limit : int
        Bytes that its arrays may take, however small the file is.

    Yields
    ------
    file object
        At its beginning, for ``numpy.load`` and ``scipy.sparse.load_npz``.

    Raises
    ------
    OSError
        When the file cannot be opened.
    Exception
        Of nearly any kind, when it is damaged: see :func:`shoal.formats.stream.told_of`.
    """
    with open_regular(name) as file:
        with zipfile.ZipFile(file) as bundle:
            members = bundle.infolist()
            refuse_foreign(members)
            size = sum(member.file_size for member in members)
            refuse_large(name, "what it holds", size, most_unpacked(name, limit))
            for member in members:
                check_member(bundle, member)
        file.seek(0)
        yield file


def refuse_foreign(members: list[zipfile.ZipInfo]) -> None:
    """Refuse entries that are no arrays, or that come twice: readers would not see what was checked."""
    seen: set[str] = set()
    for member in members:
        name = member.filename
        if not name.endswith(".npy"):
            raise ValueError(f"the entry {shown(name)} is no .npy array")
        if name in seen:
            raise ValueError(f"the entry {shown(name)} comes twice")
        seen.add(name)


def check_member(bundle: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Refuse an array whose header claims another size than the bundle does."""
    with bundle.open(member) as array:
        version = np.lib.format.read_magic(array)
        if version not in HEADERS:
            raise ValueError(f"{member.filename} is of version {version}, those read are 1.0 and 2.0")
        shape, _, dtype = HEADERS[version](array)
        if dtype.hasobject:
            raise ValueError(f"{member.filename} holds Python objects, which are not read")
        size = array.tell() + math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or size != member.file_size:
        raise ValueError(
            f"{member.filename} claims shape {shape} of {dtype}, which does not fit into "
            f"{member.file_size} bytes"
        )
