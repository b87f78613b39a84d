"""Files behind a URL, such as ``s3://bucket/rows.parquet``, which fsspec opens."""

from __future__ import annotations

import errno
import os
import re
from typing import IO

from shoal._files.staged import open_regular

from .stream import required

#: The protocol of a URL, or several of fsspec: ``simplecache::s3://``.
PROTOCOL = re.compile(r"[A-Za-z][\w+.-]+(::[\w+.-]+)*://")
#: Suffixes of the files that can be read by a URL; the others are mapped, or read in any order.
SUFFIXES = (".npy", ".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz")


def is_url(name: str) -> bool:
    """Whether a name is a URL, and not the path of a file."""
    return PROTOCOL.match(name) is not None


def check_url(name: str, suffix: str) -> None:
    """Raise `ValueError` if files of that suffix cannot be read by a URL."""
    if suffix not in SUFFIXES:
        raise ValueError(
            f"{name}: a file that is read by its URL must end in one of {', '.join(SUFFIXES)}, got "
            f"{suffix or 'no suffix'}. For other formats, copy the file first: "
            f"fsspec.open_local({'simplecache::' + name!r}) returns the path of the copy."
        )


def open_file(name: str) -> IO[bytes]:
    """Open a regular file, or the file behind a URL."""
    if not is_url(name):
        return open_regular(name)
    fsspec = required("fsspec", "remote", name)
    try:
        file: IO[bytes] = fsspec.open(name, "rb").open()
    except ImportError as error:
        # The package of a protocol is missing, such as s3fs; fsspec tells its name.
        raise ImportError(f"{name}: {error}") from error
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from error
    except Exception as error:
        # Every protocol has its own errors.
        problem = f"cannot be opened: {str(error) or type(error).__name__}"
        raise OSError(errno.EIO, problem, name) from error
    return file
