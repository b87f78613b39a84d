"""Settings for all estimators and functions within a ``with`` block."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from ._checks import params as _params
from .typing import Memory

__all__ = ["config_context"]


@contextmanager
def config_context(*, n_threads: int | None = None, memory: Memory | None = None) -> Generator[None]:
    """Set the number of threads and the memory budget within a ``with`` block.

    Parameters
    ----------
    n_threads : int, optional
        Number of threads for ``n_jobs=None``, at least 1. Takes precedence over ``SHOAL_NUM_THREADS`` and
        ``OMP_NUM_THREADS``. Default: no change.
    memory : str or int, optional
        Memory budget for parameters left at ``"1GB"`` or ``"auto"``: `memory` of estimators, `memory_limit`
        of functions. Text such as ``"500MB"``, or a number of bytes. An explicit ``"1GB"`` counts as the
        default and is replaced too. Pass ``10**9`` for a fixed budget of 1 GB. Default: no change.

    Raises
    ------
    ValueError, TypeError
        If a value is not a valid number of threads or amount of memory.

    Notes
    -----
    ``n_jobs=None`` takes the number of threads that is set here, else the environment variable
    ``SHOAL_NUM_THREADS``, else the first number in ``OMP_NUM_THREADS``, which joblib sets for its workers,
    else all cores that the process may use. An empty variable counts as not set; any other value that is not
    a number of threads raises a ValueError. The number of threads is limited to 4 per core, or to 16 if that
    is more; a larger `n_jobs` warns. Unused threads end when other numbers of threads are used.

    The settings apply to the current thread, and to ``asyncio`` tasks that are started in the block. They do
    not apply to Python threads that are started in the block. A fit that advances step by step keeps the
    settings of its first step.

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
        problems.check(_params.whole, "n_threads", n_threads, 1, most=most, other="`None` or ")
    if memory is not None:
        problems.check(_params.n_bytes, "memory", memory)
    problems.refuse()
    # Compute both before setting one: `threads` may warn, and warnings may be errors.
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
