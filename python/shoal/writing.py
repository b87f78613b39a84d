"""Files of rows: write blocks to a file, or shuffle rows on disk."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from . import _core
from ._checks import params as _params
from ._checks.marked import MarkedError
from ._checks.params import ParameterError
from ._files.outputs import ARRAYS, check_output
from ._rows.opening import open_path
from ._rows.overwriting import refuse_over
from ._rows.source import DataSource
from ._terminal.progress import Bar
from .data import open
from .formats.stream import BLOCK_BYTES
from .typing import Memory, PathName, RandomState, Rows

__all__ = ["shuffle", "write"]

#: Lower limit of `memory_limit`; the blocks of the source need this much.
LEAST_MEMORY = 1_000_000
#: Disk space of the buckets, at most, relative to the rows: they hold keys and differ in length.
SPARE = 1.25


def write(blocks: Rows, out: PathName) -> DataSource:
    """Write blocks of rows to an ``.npy`` file and open it.

    Parameters
    ----------
    blocks : rows
        Any input of :func:`shoal.open`, typically an iterator of blocks. All blocks must have the same number
        of columns and the same type. The file has this type too (``float32`` for ``bfloat16``).
    out : str or os.PathLike
        The file; the name must end in ``.npy``. An existing file is replaced. The file appears whole or not
        at all.

    Returns
    -------
    DataSource
        The opened file.

    Raises
    ------
    ValueError, TypeError
        If the blocks differ in columns or type, if the number of rows differs from the announced one, or if
        there are no rows or sparse rows. An existing file is not changed then.
    OSError
        If the file cannot be written.

    See Also
    --------
    shuffle : Write the rows in random order.

    Notes
    -----
    A killed process leaves a temporary file next to `out`, whose name begins with ``.shoal-``. The next call
    that writes `out` removes it; ``shoal info DIR --clean`` removes all such files in a folder. Files of a
    running process are locked, and are not removed.

    Examples
    --------
    >>> import numpy as np, shoal, tempfile
    >>> blocks = (np.full((2, 3), i, dtype="uint8") for i in range(4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source = shoal.write(blocks, f"{folder}/rows.npy")
    ...     source.shape, source.dtype.name
    ((8, 3), 'uint8')
    """
    return write_blocks(blocks, out, in_order=False)


def write_blocks(blocks: Rows, out: PathName, *, in_order: bool) -> DataSource:
    """Write blocks as `write` does; `in_order`: in the order of the other passes, which is checked."""
    name = _output_of(out)
    rows = _rows_of(blocks, name)
    writer = _core.NpyWriter(name, rows.dtype.name, rows.shape[1])
    with contextlib.closing(writer), rows._prefetched() if in_order else rows._batches() as ahead:
        for block in ahead:
            writer.append(block)
        writer.finish()
    return open_path(name)


def shuffle(
    source: Rows,
    out: PathName,
    *,
    random_state: RandomState = None,
    memory_limit: Memory = "1GB",
    progress: bool | int = False,
) -> DataSource:
    """Write rows in uniformly random order to an ``.npy`` file and open it.

    Every order is equally likely. The order depends only on the seed, neither on `memory_limit` nor on the
    block size of the source. Memory is bounded.

    Parameters
    ----------
    source : rows
        Any input of :func:`shoal.open`, including streams that can be read only once. It is read once.
    out : str or os.PathLike
        The file; the name must end in ``.npy``. It has the type of the rows (``float32`` for ``bfloat16``).
        An existing file is replaced. The file appears whole or not at all.
    random_state : int, RandomState, Generator or None, default=None
        An int (0 to 2**64 - 1) makes the order repeatable. A generator gives each call another seed.
    memory_limit : int or str, default="1GB"
        Memory budget, in bytes or as text such as ``"500MiB"``, at least 1 MB.
    progress : bool or int, default=False
        Whether to show a progress bar on stderr, as `verbose` of estimators.

    Returns
    -------
    DataSource
        The opened file.

    Raises
    ------
    ValueError, TypeError
        If a parameter is invalid, if the rows are sparse or otherwise invalid, or if the number of rows
        differs from the announced one.
    OSError
        If there is not enough disk space, which is checked first if the number of rows is known, or if the
        file cannot be written. No files are left behind then.

    See Also
    --------
    write : Write the rows in their order.

    Notes
    -----
    Rows that do not fit into memory are read once, and then written and read twice. They are distributed at
    random to buckets in a folder next to `out`, and then put in order bucket by bucket. The folder takes as
    much space as the rows plus 8 bytes per row, and is emptied while the file is written. If the process is
    killed, the leftovers are removed as for :func:`shoal.write`.

    References
    ----------
    M. Sandelius, "A simple randomization procedure", Journal of the Royal Statistical Society B 24 (1962).

    Examples
    --------
    >>> import numpy as np, shoal, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = shoal.shuffle(np.arange(10).reshape(5, 2), f"{folder}/shuffled.npy", random_state=0)
    ...     sorted(rows.take(range(5))[:, 0].tolist())
    [0, 2, 4, 6, 8]
    """
    problems = _params.Problems()
    limit = problems.check(_check_memory, memory_limit)
    seed = problems.check(_params.seed, random_state)
    shows = problems.check(_params.verbosity, progress, "progress")
    problems.refuse()
    name = _output_of(out)
    rows = _rows_of(source, name)
    n, d = rows.shape
    n_bytes = rows.nbytes
    if n is not None and n_bytes is not None:
        in_memory = n_bytes + 24 * n < limit // 4
        check_space(n_bytes if in_memory else int(SPARE * n_bytes) + 8 * n, name)
    width = d * rows.dtype.itemsize
    # A stream sets its own block size.
    block = None if rows.access != "random" else max(1, min(BLOCK_BYTES, limit // 16) // width)
    writer = _core.ShuffledWriter(name, rows.dtype.name, d, n, seed, limit)
    with contextlib.closing(writer), _shown(n, on=shows) as show:
        with rows._batches(block) as ahead:
            for each in ahead:
                writer.append(each)
                show(len(each))
        while (written := writer.write_some()) is not None:
            show(written)
        writer.finish()
    return open_path(name)


def _check_memory(memory_limit: Any) -> int:
    limit = _params.memory("memory_limit", memory_limit)
    if limit < LEAST_MEMORY:
        raise ParameterError(f"`memory_limit` must be at least 1 MB, got {_params.shown(memory_limit)}")
    return limit


def _output_of(out: PathName) -> str:
    """Return the name of the output file; raise if it cannot be written."""
    check_output("out", out, ARRAYS)
    return os.fsdecode(out)


def _rows_of(source: Any, name: str) -> DataSource:
    """Open the rows that will be written to the file `name`."""
    rows = open(source)
    if rows.sparse:
        raise TypeError(
            "rows must be dense, got sparse rows: an .npy file would hold all of their zeros. Shuffle the "
            "matrix itself with X[rng.permutation(X.shape[0])], and save it with scipy.sparse.save_npz."
        )
    if rows.shape[0] == 0:
        raise ValueError(f"X must have at least one row, got shape {rows.shape}")
    if rows.sample_weight is not None:
        problem = f"rows must have no weights, which an .npy file cannot hold, got {_params.shown(rows)}."
        raise MarkedError(
            f"{problem} Use `key`='points' to write the points without weights.",
            f"{problem} Write coreset.points, or save the coreset with coreset.save.",
        )
    refuse_over(rows, "out", name)
    return rows


def check_space(need: int, name: str) -> None:
    """Raise `OSError` if the disk of the file `name` has less than `need` bytes of space."""
    free = shutil.disk_usage(Path(name).parent).free
    if free < need:
        raise OSError(
            errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: needs {need} bytes, {free} bytes are free", name
        )


@contextlib.contextmanager
def _shown(rows: int | None, *, on: bool) -> Generator[Callable[[int], None]]:
    """Yield a function that shows that more rows were read or written; each row is both."""
    if not on:
        yield lambda _: None
        return
    total, done = None if rows is None else 2 * rows, 0

    def show(more: int) -> None:
        nonlocal done
        done += more
        bar.show(f"{done}{'' if total is None else f' of {total}'} rows read or written", done=more)

    with contextlib.closing(Bar("shuffle", "row", total)) as bar:
        yield show
