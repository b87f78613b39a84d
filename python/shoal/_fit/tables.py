"""Takers that write tables: labels beside kept columns, and the rows of every cluster in its own folder."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal import _core
from shoal._files import tables
from shoal._files.outputs import check_output
from shoal._files.staged import Name, PlainFile, named_errors
from shoal._rows.source import DataSource
from shoal.formats.kept import Kept

from .results import PART_ROWS, LabeledPart, Taker

#: Maximum number of rows per part with kept columns, whose values may be long.
KEPT_ROWS = 1 << 16
#: Name of the column of vectors, if the input has none.
VECTOR = "vector"


def kept_of(source: DataSource, keep: Sequence[Any], argument: str) -> tuple[Any, list[str]]:
    """Return the table of a source and the checked names of its kept columns."""
    table = source._kept_from()
    if table is None:
        raise ValueError(
            f"{argument} must be None for {source!r}, which has no other columns that can be read beside the "
            f"features, got {list(keep)}. Pass a Parquet or Arrow file, or a table."
        )
    return table, table.check(keep, argument)


def columns_beside(source: DataSource, table: Any, names: list[str]) -> Kept | None:
    """Open the kept columns `names` at the first row of the source; None if there are none."""
    return Kept(table, names, sum(start for start, _ in source._slices)) if names else None


def refuse_reserved(argument: str, names: Sequence[str], reserved: Sequence[str]) -> None:
    """Raise `ValueError` if a column has the name of a column that is added."""
    for name in names:
        if name in reserved:
            raise ValueError(
                f"{argument} must not have a column {name!r}, which is added to the output. "
                "Rename the column."
            )


class TableWriter(Taker):
    """Writes a table of kept columns, labels and distances.

    Messages name the parameters for the file and for the kept columns as in `arguments`.
    """

    def __init__(
        self,
        path: Name,
        keep: Sequence[Any],
        *,
        distances: bool,
        arguments: tuple[str, str] = ("out", "keep"),
    ) -> None:
        argument, self._argument = arguments
        check_output(argument, path, tables.TABLES)
        self._path, self._keep = path, list(keep)
        self.distances, self.most_rows = distances, KEPT_ROWS if keep else PART_ROWS
        self._pa = tables.require_pyarrow(os.fsdecode(path))
        self._opened = ExitStack()
        self._kept: Kept | None = None
        self._file: Any = None
        self._names = ["label", "distance"] if distances else ["label"]

    def begin(self, source: DataSource) -> None:
        fields = []
        if self._keep:
            table, names = kept_of(source, self._keep, self._argument)
            refuse_reserved(self._argument, names, self._names)
            self._kept = columns_beside(source, table, names)
            assert self._kept is not None
            self._opened.callback(self._kept.close)
            fields += list(self._kept.schema)
        kinds = [self._pa.int32(), self._pa.float64()]
        fields += [self._pa.field(*added, False) for added in zip(self._names, kinds, strict=False)]
        self._schema = self._pa.schema(fields)
        self._target = self._file = self._opened.enter_context(tables.TableFile(self._path, self._schema))

    def take(self, part: LabeledPart) -> None:
        columns = [] if self._kept is None else self._kept.take(len(part.labels)).columns
        added = [part.labels, part.distances] if self.distances else [part.labels]
        arrays = [*columns, *(self._pa.array(values) for values in added)]
        self._file.append(self._pa.record_batch(arrays, schema=self._schema))

    def close(self) -> None:
        self._opened.close()


class PartitionWriter(Taker):
    """Writes the rows of every cluster to a Parquet file ``cluster=<label>/part-0.parquet`` of a folder.

    Rows are collected up to half of the memory limit, sorted by cluster, and appended as one run to a file.
    At the end the file is memory-mapped, and every cluster is gathered from all runs. At most two files are
    open at a time. Everything is written to a temporary folder, which is renamed at the end.
    """

    rows = True

    def __init__(
        self,
        folder: Name,
        clusters: int,
        keep: Sequence[Any],
        *,
        distances: bool,
        memory: int,
        arguments: tuple[str, str] = ("folder", "keep"),
    ) -> None:
        self._argument, self._keep_argument = arguments
        # The folder that a link points to.
        self._folder = Path(os.fsdecode(folder)).resolve()
        check_folder(self._argument, self._folder)
        self._pa = tables.require_pyarrow(str(self._folder))
        self._keep = list(keep)
        self.distances, self.most_rows = distances, KEPT_ROWS if keep else PART_ROWS
        self._run_bytes = max(1, memory // 2)
        self._counts = np.zeros(clusters, dtype=np.int64)
        self._waiting: list[Any] = []
        self._bytes = 0
        self._kept: Kept | None = None
        self._spill: Any = None
        self._opened = ExitStack()
        with named_errors(self._folder):
            self._temporary = _core.TemporaryFolder(self._folder)
            self._opened.callback(self._temporary.close)
            # In the temporary folder, which is private: this one has the usual permissions.
            self._made = Path(self._temporary.name) / "made"
            self._made.mkdir()

    def begin(self, source: DataSource) -> None:
        if source.sparse:
            raise TypeError(
                f"rows must be dense for {self._argument}, got sparse rows, whose zeros would be written. "
                "Write the labels, and select rows of the matrix by label."
            )
        pa, features, table = self._pa, source.feature_names, source._kept_from()
        self._single = features is None
        kind = pa.from_numpy_dtype(source.dtype)
        if features is None:
            features = table.features if table is not None and len(table.features) == 1 else [VECTOR]
            kind = pa.list_(kind, source.shape[1])
        fields = []
        names: list[str] = []
        if self._keep:
            table, names = kept_of(source, self._keep, self._keep_argument)
            # Features are written anyway.
            names = [name for name in names if name not in features]
            self._kept = columns_beside(source, table, names)
        if self._kept is None:
            fields.append(pa.field("row", pa.int64(), False))
        else:
            self._opened.callback(self._kept.close)
            fields += list(self._kept.schema)
        refuse_reserved("X", [*names, *features], ["cluster", *self._added()])
        fields += [pa.field(name, kind, False) for name in features]
        fields += [pa.field("distance", pa.float64(), False)] if self.distances else []
        self._schema = pa.schema(fields)
        # Runs also hold the labels.
        self._run_schema = pa.schema([pa.field("label", pa.int32(), False), *without_names(pa, fields)])

    def _added(self) -> list[str]:
        added = ["row"] if self._kept is None else []
        return [*added, "distance"] if self.distances else added

    def take(self, part: LabeledPart) -> None:
        pa, n = self._pa, len(part.labels)
        if not n:
            return
        columns = [pa.array(part.labels)]
        if self._kept is None:
            columns.append(pa.array(np.arange(part.first, part.first + n)))
        else:
            columns += self._kept.take(n).columns
        if self._single:
            columns.append(tables.column_of(pa, np.ascontiguousarray(part.rows)))
        else:
            columns += [pa.array(np.ascontiguousarray(values)) for values in part.rows.T]
        if self.distances:
            columns.append(pa.array(part.distances))
        batch = pa.record_batch(columns, schema=self._run_schema)
        self._counts += np.bincount(part.labels, minlength=len(self._counts))
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= self._run_bytes:
            self._write_run()

    def _sorted_run(self) -> Any:
        """Return the collected rows as one batch, sorted by cluster; rows of a cluster keep their order."""
        pa = self._pa
        table = pa.Table.from_batches(self._waiting, schema=self._run_schema).combine_chunks()
        self._waiting, self._bytes = [], 0
        labels = table.column(0).to_numpy()
        order = pa.array(np.argsort(labels, kind="stable"))
        return table.take(order).combine_chunks().to_batches()[0]

    def _write_run(self) -> None:
        """Append the collected rows to the file of runs."""
        run = self._sorted_run()
        with named_errors(self._folder):
            if self._spill is None:
                file = self._opened.enter_context((Path(self._temporary.name) / "runs").open("wb"))
                self._spill = file, self._pa.ipc.new_file(file, self._run_schema)
            self._spill[1].write_batch(run)

    def _runs(self, opened: ExitStack) -> list[Any]:
        """Return all runs; those of the file are memory-mapped."""
        if self._spill is None:
            return [self._sorted_run()] if self._waiting else []
        if self._waiting:
            self._write_run()
        with named_errors(self._folder):
            file, writer = self._spill
            writer.close()
            file.close()
            mapped = opened.enter_context(self._pa.memory_map(file.name))
            reader = self._pa.ipc.open_file(mapped)
            return [reader.get_batch(i) for i in range(reader.num_record_batches)]

    def prepare(self) -> None:
        with ExitStack() as opened:
            runs = [SortedRows(batch) for batch in self._runs(opened)]
            for cluster in np.flatnonzero(self._counts).tolist():
                self._write(cluster, runs)
            left = sum(run.rows_left() for run in runs)
            if left:
                raise ValueError(f"{self._folder}: {left} rows have labels of no cluster")
            del runs

    def _write(self, cluster: int, runs: list[SortedRows]) -> None:
        with named_errors(self._folder):
            folder = self._made / f"cluster={cluster}"
            folder.mkdir()
            path = folder / "part-0.parquet"
            rows = 0
            with tables.TableFile(path, self._schema, PlainFile(path, self._folder)) as file:
                for run in runs:
                    for batch in run.rows_of(cluster):
                        rows += batch.num_rows
                        file.append(self._pa.record_batch(batch.columns[1:], schema=self._schema))
                file.finish()
        if rows != self._counts[cluster]:
            raise ValueError(
                f"{self._folder}: cluster {cluster} has {self._counts[cluster]} rows, {rows} were written"
            )

    def finish(self) -> None:
        with named_errors(self._folder):
            if self._folder.is_dir():
                # Not all systems replace an empty folder.
                self._folder.rmdir()
            self._made.rename(self._folder)
            sync_folder(self._folder.parent)

    def close(self) -> None:
        self._waiting = []
        self._opened.close()


class SortedRows:
    """Rows sorted by cluster, given out cluster by cluster in ascending order."""

    def __init__(self, batch: Any) -> None:
        self._batch, self._at = batch, 0
        self._labels: npt.NDArray[np.int32] = batch.column(0).to_numpy()

    def rows_of(self, cluster: int) -> Iterator[Any]:
        """Yield the rows of a cluster, in batches of limited length."""
        end = self._at + int(np.searchsorted(self._labels[self._at :], cluster, side="right"))
        for start in range(self._at, end, KEPT_ROWS):
            yield self._batch.slice(start, min(KEPT_ROWS, end - start))
        self._at = end

    def rows_left(self) -> int:
        """Return the number of rows that were not given out."""
        return len(self._labels) - self._at


def without_names(pa: Any, fields: list[Any]) -> list[Any]:
    """Return fields named by their numbers: a column may have the name that runs use for labels."""
    return [pa.field(str(i), field.type, field.nullable) for i, field in enumerate(fields)]


def check_folder(argument: str, folder: Path) -> None:
    """Raise if a folder cannot be made, or exists and is not empty."""
    name = str(folder)
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(errno.EEXIST, f"{argument} must be a new or empty folder, got a file", name)
    if folder.is_dir() and any(folder.iterdir()):
        raise FileExistsError(
            errno.EEXIST, f"{argument} must be a new or empty folder, got one with files", name
        )
    if not folder.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "its parent folder does not exist", name)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that a rename in it survives a power failure."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # Some network file systems do not support syncing folders.
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
