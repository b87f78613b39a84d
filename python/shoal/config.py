"""Threads and memory budget for all estimators and functions in a ``with`` block."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from ._common import params as _params
from .typing import Memory

__all__ = ["config_context"]


@contextmanager
def config_context(*, n_threads: int | None = None, memory: Memory | None = None) -> Generator[None]:
    """Set threads and memory budget inside a ``with`` block.

    Parameters
    ----------
    n_threads : int, optional
        Threads for ``n_jobs=None``, instead of ``SHOAL_NUM_THREADS`` and ``OMP_NUM_THREADS``. At least 1.
        Default: unchanged.
    memory : str or int, optional
        Memory budget for parameters left at ``"1GB"``: `bounds_memory`, `buffer_memory`,
        `responsibilities_memory` and `memory_limit`. Text such as ``"500MB"``, or a number of bytes. An
        explicit ``"1GB"`` counts as the default: pass ``10**9`` to keep it. Default: unchanged.

    Raises
    ------
    ValueError, TypeError
        If a value is not a number of threads or an amount of memory.

    Notes
    -----
    ``n_jobs=None`` means the number of threads set here. Without it, the environment variable
    ``SHOAL_NUM_THREADS`` applies, then the first number in ``OMP_NUM_THREADS`` (which joblib sets for its
    workers), then all threads that the process may use. An empty variable counts as not set. A variable that
    is not a number of threads raises ``ValueError``. The upper limit is 4 threads per core, or 16 if that is
    more; a larger `n_jobs` warns. Idle threads end when another number of threads is used.

    The settings apply to the current thread and to ``asyncio`` tasks that begin in the block. They do not
    apply to Python threads started in the block. A fit with ``iter_fit`` keeps the settings of its first
    step.

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
    # Both are computed before either is set: `threads` may warn, and warnings may be errors.
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
