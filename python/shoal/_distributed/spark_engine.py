"""The engine of Spark: partitions of a DataFrame, packed once, and passes by `mapInArrow`."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from shoal.formats.stream import required

from .base import Pass
from .batches import Layout, Wanted, rows_seen, wanted
from .engine import FAN_IN, at_once, merged
from .partial import Partial
from .passes import RowPass
from .spark_tasks import FOUND, LOOK, PACKED, look_at, merge_group, pack, row_function, run

#: Bytes of partial results that the driver collects at once; more are first merged on the executors. Merging
#: takes a shuffle, a job of about half a second, in which a driver collects and merges 64 MB.
MOST_COLLECTED = 64 << 20

#: Tasks of a pass per core, at most, if their results are small.
TASKS_PER_CORE = 2

NO_ROWS = np.zeros((0, 1))

JAVA = "Spark needs Java 17 or later, which is not installed here"


def has_java() -> bool:
    """Whether Spark would find Java on this machine."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin") if home else None) is not None


class SparkEngine:
    """Runs passes over the partitions of a DataFrame.

    The rows are packed into bytes and persisted by the first pass. Later passes read these bytes: they are
    stable as long as Spark keeps them, and they are not converted from the JVM's objects again. Without
    `n_jobs`, a task uses ``spark.task.cpus`` threads.
    """

    name = "Spark"
    # Any process may run a task, and there is one per core.
    keeps = False

    def __init__(
        self,
        X: Any,
        features: str | Sequence[str],
        sample_weight: str | None,
        output: str | None,
        n_jobs: int | None,
    ) -> None:
        self._of, self._layout = checked(X, features, sample_weight, output)
        self._df, self._output, self._threads = X, output, n_jobs
        self._packed: Any = None

    @cached_property
    def _fingerprints(self) -> list[int]:
        """Pack and persist the rows; return the fingerprint of every partition."""
        from pyspark import StorageLevel

        # Spark cannot hand columns of any name to `mapInArrow`.
        rows = self._df.select(
            *(self._df[quoted(name)].alias(f"column{i}") for i, name in enumerate(self._of.names))
        )
        packed = rows.mapInArrow(partial(pack, self._of), PACKED)
        self._packed = packed.persist(StorageLevel.MEMORY_AND_DISK)
        look = partial(look_at, self._layout.dtype.str)
        found = sorted(self._packed.mapInArrow(look, LOOK).collect(), key=number)
        refuse(found)
        return [row.fingerprint for row in found]

    @property
    def n_partitions(self) -> int:
        """Number of partitions."""
        return len(self._fingerprints)

    def total(self, task: Pass) -> Partial:
        """Run a pass on the executors, and merge what they return."""
        prints = self._fingerprints
        data = pickle.dumps((task, prints, self._layout.header))
        context = self._df.sparkSession.sparkContext
        # Destroyed after the pass. If Spark broadcast a large function itself, it would stay on the disk.
        sent = context.broadcast(data)
        n_tasks = TASKS_PER_CORE * context.defaultParallelism
        try:
            do = partial(run, sent, self._layout.dtype.str, self._layout.weighted, self._threads)
            # Spark prefers to join partitions of one executor.
            parts = self._packed.coalesce(n_tasks).mapInArrow(do, FOUND)
            if len(prints) > at_once(task, MOST_COLLECTED):
                groups = min(n_tasks, len(prints))
                while groups > 1:
                    parts, groups = grouped(parts), -(-groups // FAN_IN)
            found = sorted(parts.collect(), key=number)
        finally:
            released(sent.destroy)
        refuse(found)
        parts = (Partial.from_bytes(bytes(row.part)) for row in found)
        # No task knows of partitions without rows.
        empty = (task.absorb(NO_ROWS, partition=i) for i, seen in enumerate(prints) if not rows_seen(seen))
        return merged(chain(parts, empty))

    def rows(self, task: RowPass) -> Any:
        """Return the DataFrame with a column of labels or distances, which Spark computes when it is used."""
        functions: Any = import_module("pyspark.sql.functions")

        kinds = {np.dtype(np.int32): "int", np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
        kind = kinds[task.dtype] if task.width is None else f"array<{kinds[task.dtype]}>"
        values = functions.arrow_udf(row_function(self._of, task, self._threads), kind)
        columns = (self._df[quoted(name)] for name in self._of.features)
        return self._df.withColumn(self._output, values(*columns))

    def forget(self, fit: tuple[str, int]) -> None:
        """Do nothing: nothing is kept."""

    def close(self) -> None:
        """Drop the packed rows."""
        if self._packed is not None:
            released(self._packed.unpersist)


def checked(
    X: Any, features: str | Sequence[str], weights: str | None, output: str | None
) -> tuple[Wanted, Layout]:
    """Check a DataFrame and the names of its columns."""
    required("pyspark", "spark", "shoal.spark")
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.types import to_arrow_schema

    if not isinstance(X, DataFrame):
        raise TypeError(
            f"X must be a DataFrame of pyspark, got {type(X).__name__}" + ("" if has_java() else f". {JAVA}")
        )
    if not hasattr(X, "_jdf"):
        raise TypeError("X must be a DataFrame of a classic session, got one of Spark Connect")
    of = wanted("X", features, weights, output, X.columns)
    known = X.select(*(quoted(name) for name in of.names)).schema
    return of, Layout("X", to_arrow_schema(known), of)


def quoted(name: str) -> str:
    """Quote the name of a column, which may hold a period."""
    return "`" + name.replace("`", "``") + "`"


def refuse(found: Iterable[Any]) -> None:
    """Raise the error of the first partition that has one."""
    for row in found:
        if row.error is not None:
            raise pickle.loads(bytes(row.error))


def released(call: Callable[[], object]) -> None:
    """Release something in the JVM. The error of a JVM that has ended is ignored: the pass raises its own."""
    protocol: Any = import_module("py4j.protocol")
    with suppress(OSError, protocol.Py4JError):
        call()


def number(row: Any) -> int:
    """Return the number of the partition of a row of results."""
    return int(row.partition)


def grouped(parts: Any) -> Any:
    """Merge partial results on the executors, `FAN_IN` neighbors each."""
    return parts.groupBy((parts["partition"] / FAN_IN).cast("int")).applyInArrow(merge_group, FOUND)
