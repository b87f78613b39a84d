"""Rows of files that must be decoded, such as Parquet, kept by the workers within a memory budget."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._rows.source import DataSource


@dataclass(frozen=True)
class Decoded:
    """The rows of a file in memory; unlike a source of them, it can be pickled."""

    rows: npt.NDArray[Any]
    #: An empty table with the names of the features; None if they have no names.
    header: Any

    def __sizeof__(self) -> int:
        """Return the bytes of the rows: Dask asks for the size of what a worker holds."""
        return self.rows.nbytes


class Budget:
    """The bytes of decoded rows that this process holds."""

    def __init__(self) -> None:
        self._held, self._lock = 0, threading.Lock()

    def take(self, amount: int, most: int) -> bool:
        """Take an amount if all amounts together are then at most `most`."""
        with self._lock:
            if self._held + amount > most:
                return False
            self._held += amount
            return True

    def release(self, amount: int) -> None:
        """Give an amount back."""
        with self._lock:
            self._held -= amount


BUDGET = Budget()


def decoded(source: DataSource, most: int) -> DataSource | Decoded:
    """Read the rows of a source that would be decoded in every pass, unless this process then holds too many.

    Rows in mapped files stay there, and so do rows of files that do not tell how many there are.
    """
    size = source.nbytes
    same = np.dtype(source.dtype).name == source._source.dtype
    if source.access != "replay" or source.sparse or size is None or not same:
        return source
    if not BUDGET.take(size, most):
        return source
    try:
        rows = np.asarray(source)
    except BaseException:
        BUDGET.release(size)
        raise
    weakref.finalize(rows, BUDGET.release, size)
    return Decoded(rows, source._header)
