"""What holds for all estimators and functions for a while."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from ._common import params as _params
from .typing import Memory

__all__ = ["config_context"]


@contextmanager
def config_context(*, n_threads: int | None = None, memory: Memory | None = None) -> Generator[None]:
    """Set threads and memory for everything that runs inside a ``with`` block.

    Parameters
    ----------
    n_threads : int, optional
        Threads where ``n_jobs=None``, in place of ``SHOAL_NUM_THREADS`` and ``OMP_NUM_THREADS``; at least 1.
        Default: as outside of the block.
    memory : str or int, optional
        Memory budget for parameters left at ``"1GB"``: `bounds_memory`, `buffer_memory`,
        `responsibilities_memory` and `memory_limit`. Such as ``"500MB"``, or a number of bytes. An explicit
        ``"1GB"`` counts as the default: pass ``10**9`` to keep it. Default: as outside of the block.

    Raises
    ------
    ValueError, TypeError
        For what is no number of threads or amount of memory.

    Notes
    -----
    ``n_jobs=None`` is the number of threads that is set here, else the number in the environment variable
    ``SHOAL_NUM_THREADS``, else the first one in ``OMP_NUM_THREADS``, which joblib sets for its workers, else
    all that the process may use. A variable that is empty counts as not set; another one that is no number
    of threads raises a ValueError. However many are asked for, there are at most 4 threads a core, or 16 if
    that is more; a larger `n_jobs` warns. Threads end once other numbers of threads are used.

    The settings are those of the present thread and of tasks of ``asyncio`` begun in the block; threads of
    Python that are started in it do not have them. A fit that is made step by step keeps what held at its
    first step.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> X = np.arange(10.0).reshape(5, 2)
    >>> with shoal.config_context(n_threads=1, memory="100MB"):
    ...     model = shoal.KMeans(2, random_state=0).fit(X)
    >>> model.counts_.sum()
    np.float64(5.0)
    """
    problems = _params.Problems()
    if n_threads is not None:
        most = _params.MOST_THREADS
        problems.check(_params.whole, "n_threads", n_threads, 1, most=most, other="None or ")
    if memory is not None:
        problems.check(_params.n_bytes, "memory", memory)
    problems.refuse()
    # Both before one is set: to look at the threads may warn, and warnings may be errors.
    amount = None if memory is None else _params.n_bytes("memory", memory)
    threads = None if n_threads is None else _params.threads(n_threads)
    set_memory = None if amount is None else _params.MEMORY.set(amount)
    set_threads = None if threads is None else _params.N_THREADS.set(threads)
    try:
        yield
    finally:
        if set_threads is not None:
            _params.N_THREADS.reset(set_threads)
        if set_memory is not None:
            _params.MEMORY.reset(set_memory)
