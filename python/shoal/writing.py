"""Files of rows: as they come, or in random order."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from . import _core
from ._common import params as _params
from ._common.files import check_place
from ._common.outputs import ARRAYS, check_suffix
from ._common.params import ParameterError
from ._rows.opening import open_path
from ._rows.overwriting import refuse_over
from ._rows.source import BLOCK_BYTES, DataSource
from .data import open
from .typing import Memory, PathName, RandomState, Rows

__all__ = ["shuffle", "write"]

#: Below this there is no room for the blocks that rows come in.
LEAST_MEMORY = 1_000_000
#: Of the rows' own bytes: what a key for each row and the buckets' uneven lengths take besides, at most.
SPARE = 1.25


def write(blocks: Rows, out: PathName) -> DataSource:
    """Write rows to an ``.npy`` file, a block at a time, and open it.

    Parameters
    ----------
    blocks : rows
        Anything that :func:`shoal.open` takes: an iterator of blocks, above all. All blocks must have the
        same number of columns and one type, which is that of the file (``float32`` for ``bfloat16``).
    out : str or os.PathLike
        The file, which ends in ``.npy``. It appears whole or not at all; one that exists is replaced.

    Returns
    -------
    DataSource
        The file, opened.

    Raises
    ------
    ValueError, TypeError
        For blocks that are not alike, another number of rows than the source announced, no rows at all, or
        sparse rows. An older file is as it was then.
    OSError
        When the file cannot be written.

    Notes
    -----
    A process that is killed leaves a temporary file beside `out`, whose name begins with ``.shoal-``. The
    next run that writes `out` removes it; ``shoal info DIR --clean`` removes all such files in a folder.
    Files of a live process are locked, and stay.

    Examples
    --------
    >>> import numpy as np, shoal, tempfile
    >>> blocks = (np.full((2, 3), i, dtype="uint8") for i in range(4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source = shoal.write(blocks, f"{folder}/rows.npy")
    ...     source.shape, source.dtype.name
    ((8, 3), 'uint8')
    """
    name = _output_of(out)
    rows = _rows_of(blocks, name)
    writer = _core.NpyWriter(name, rows.dtype.name, rows.shape[1])
    with contextlib.closing(writer), rows._prefetched() as ahead:
        for block in ahead:
            writer.append(block)
        writer.finish()
    return open_path(name, None, None)


def shuffle(
    source: Rows,
    out: PathName,
    *,
    random_state: RandomState = None,
    memory_limit: Memory = "1GB",
    progress: bool = False,
) -> DataSource:
    """Write rows in a uniformly random order to an ``.npy`` file, in bounded memory, and open it.

    Every order of the rows is equally likely. Which one it is depends on the seed alone: neither on
    `memory_limit` nor on the blocks that the rows come in.

    Parameters
    ----------
    source : rows
        Anything that :func:`shoal.open` takes, streams that can be read once too; it is read once.
    out : str or os.PathLike
        The file, which ends in ``.npy``, of the same type (``float32`` for ``bfloat16``). It appears whole or
        not at all; one that exists is replaced.
    random_state : int, RandomState, Generator or None, default=None
        An int (0 to 2**64 - 1) makes the order repeatable. 64 bits are drawn from a generator.
    memory_limit : int or str, default="1GB"
        Memory to use, as bytes or as text such as ``"500MiB"``, at least 1 MB.
    progress : bool, default=False
        Whether to show a line on stderr that says how far it is.

    Returns
    -------
    DataSource
        The file, opened.

    Raises
    ------
    ValueError, TypeError
        For parameters and rows that are refused, sparse ones among them, and for another number of rows than
        the source announced.
    OSError
        When there is no space left, which is looked at first where the number of rows is known, or the file
        cannot be written. Nothing is left behind then.

    Notes
    -----
    Rows that do not fit into memory are read once, and written and read twice: dealt out at random to buckets
    in a folder beside `out`, then put in order a bucket at a time. The folder takes as much space as the rows
    and 8 bytes for each, and is emptied while the file is written. What a killed process leaves of it is
    removed as for :func:`shoal.write`.

    References
    ----------
    M. Sandelius, "A simple randomization procedure", Journal of the Royal Statistical Society B 24 (1962).

    Examples
    --------
    >>> import numpy as np, shoal, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = shoal.shuffle(np.arange(10).reshape(5, 2), f"{folder}/shuffled.npy", random_state=0)
    ...     sorted(rows.take(range(5))[:, 0].tolist())
    [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    problems, found = _params.Problems(), list[int]()
    problems.check(lambda: found.append(_memory(memory_limit)))
    problems.check(lambda: found.append(_params.seed(random_state)))
    problems.refuse()
    limit, seed = found
    name = _output_of(out)
    rows = _rows_of(source, name)
    n, d = rows.shape
    _check_space(rows, name, limit)
    width = d * rows.dtype.itemsize
    # Those of a stream come as they are.
    block = None if rows.access != "random" else max(1, min(BLOCK_BYTES, limit // 16) // width)
    writer = _core.ShuffledWriter(name, rows.dtype.name, d, n, seed, limit)
    with contextlib.closing(writer), _Progress(n if progress else None, on=progress) as show:
        with rows._prefetched(block) as ahead:
            for each in ahead:
                writer.append(each)
                show(len(each))
        while (written := writer.write_some()) is not None:
            show(written)
        writer.finish()
    return open_path(name, None, None)


def _memory(memory_limit: Any) -> int:
    limit = _params.memory("memory_limit", memory_limit)
    if limit < LEAST_MEMORY:
        raise ParameterError(f"memory_limit must be at least 1 MB, got {_params.shown(memory_limit)}")
    return limit


def _output_of(out: PathName) -> str:
    """Give the name of a file that can be written, before any row is read for it."""
    check_suffix("out", out, ARRAYS)
    check_place(out)
    return os.fsdecode(out)


def _rows_of(source: Any, name: str) -> DataSource:
    """Open what is to be written to the file `name`."""
    rows = open(source)
    if rows.sparse:
        raise TypeError(
            "sparse rows cannot be written as .npy, which would hold all of their zeros: shuffle the matrix "
            "itself (X[rng.permutation(X.shape[0])]), and keep it with scipy.sparse.save_npz"
        )
    if rows.shape[0] == 0:
        raise ValueError(f"there are no rows to write: X has shape {rows.shape}")
    refuse_over(rows, "out", name)
    return rows


def _check_space(rows: DataSource, name: str, limit: int) -> None:
    """Refuse what the disk has no space for, where that can be told."""
    n, size = rows.shape[0], rows.nbytes
    if n is None or size is None:
        return
    need = size if size + 24 * n < limit // 4 else int(SPARE * size) + 8 * n
    free = shutil.disk_usage(Path(name).parent).free
    if free < need:
        raise OSError(
            errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {need} bytes are needed, {free} are free", name
        )


class _Progress:
    """A line on stderr: by tqdm where it is installed, else plain text. Each row counts twice."""

    def __init__(self, rows: int | None, *, on: bool) -> None:
        self._total = None if rows is None else 2 * rows
        self._on = on
        self._done = 0
        self._bar: Any = None

    def __enter__(self) -> _Progress:
        if self._on:
            with contextlib.suppress(ImportError):
                from tqdm.auto import tqdm

                self._bar = tqdm(
                    total=self._total, desc="shuffle", unit="row", unit_scale=True, file=sys.stderr
                )
        return self

    def __call__(self, rows: int) -> None:
        """So many more are done."""
        self._done += rows
        if self._bar is not None:
            self._bar.update(rows)
        elif self._on:
            share = "" if self._total is None else f" of {self._total}"
            sys.stderr.write(f"\rshuffle: {self._done}{share} rows read or written")
            sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._on:
            sys.stderr.write("\n")
