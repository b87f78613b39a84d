"""What all passes share: blocks of rows, names of partitions in errors, the compiled state."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from shoal import _core
from shoal._checks import params as _params
from shoal._checks.params import RowWeights
from shoal._core import Source, Step
from shoal._rows.arrays import as_rows, source_of_values
from shoal._rows.checked import weighted
from shoal._rows.features import find_names, header_of, refuse_other_names
from shoal._rows.opening import open_rows
from shoal._rows.source import DataSource
from shoal.typing import Rows, Weights

from .decoded import Decoded
from .partial import Partial


class OpenBlock(NamedTuple):
    """A block of rows that a pass reads."""

    #: None without rows.
    source: Source | None
    weights: RowWeights
    #: An empty frame with the columns; None if they have no names.
    header: Any


class Given(NamedTuple):
    """What the compiled pass absorbs."""

    #: None without rows.
    source: Source | None
    weights: RowWeights
    names: list[str] | None
    partition: int | None
    first_row: int
    threads: int | None


#: What messages say of a path that cannot be opened.
HERE = "paths are opened on the workers"


def block_of(block: Rows | Decoded, sample_weight: Weights = None) -> OpenBlock:
    """Open a block with its weights, which may all be 0."""
    if isinstance(block, Decoded):
        block = DataSource(source_of_values(block.rows), "X", header=block.header)
    if is_plain(block):
        source = source_of_values(block)
        return OpenBlock(source, _params.weights(sample_weight, source.shape[0], may_be_0=True), None)
    rows: Any = open_rows(block)
    header = rows._header if isinstance(rows, DataSource) else header_of(block)
    if rows is None:
        rows = as_rows(block, least=0)
        if rows.shape[0] == 0:
            return OpenBlock(None, None, None)
    return OpenBlock(*weighted(rows, sample_weight, may_be_0=True), header)


def is_plain(block: Any) -> bool:
    """Whether a block is an array that needs no check, which would take as long as a pass over few rows."""
    return (
        type(block) is np.ndarray
        and block.ndim == 2
        and block.dtype.name in ("float32", "float64")
        and block.dtype.isnative
        and block.size > 0
    )


@contextmanager
def naming(partition: int | None) -> Generator[None]:
    """Name the partition in errors of its rows."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if partition is None or str(error).startswith("partition"):
            raise
        kind = TypeError if isinstance(error, TypeError) and not isinstance(error, ValueError) else ValueError
        raise kind(f"partition {partition}: {error}") from error
    except OSError as error:
        if partition is None or HERE in str(error):
            raise
        if error.filename is None:
            error.add_note(f"while reading partition {partition}")
            raise
        problem = f"{error.strerror} (partition {partition}, on {this_worker()}; {HERE})"
        raise OSError(error.errno, problem, error.filename) from error


def this_worker() -> str:
    """Return what messages call the worker on which this function runs."""
    process = f"process {os.getpid()} of {socket.gethostname()}"
    dask: Any = sys.modules.get("distributed")
    try:
        return process if dask is None else f"worker {dask.get_worker().address}"
    except ValueError:
        # Not a worker of Dask.
        return process


class Pass:
    """Base class of the passes whose results merge: picklable, and small beside a partition."""

    _state: _core.Pass
    #: The name of the class that is compiled, also for classes that derive from it.
    _kind: ClassVar[str]
    #: The names of the features of a fit; named rows must have the same. Bytes do not keep them.
    _names: list[str] | None = None

    @classmethod
    def _of(cls, state: _core.Pass) -> Self:
        made = object.__new__(cls)
        made._state = state
        return made

    def absorb(
        self,
        block: Rows,
        sample_weight: Weights = None,
        first_row: int = 0,
        *,
        partition: int | None = None,
        n_jobs: int | None = None,
    ) -> Partial:
        """Run the pass over some of the rows.

        Number the blocks in one of two ways, the same for all blocks of a pass: by `partition`, or by
        `first_row`.

        Parameters
        ----------
        block : rows of shape (n_samples, n_features)
            Anything that estimators take as `X`: an array, a data frame, a path, shards, a
            :class:`~shoal.DataSource`, also an iterator of blocks, because it is read once. It may have no
            rows. All blocks have the same feature names in the same order, or none has names.
        sample_weight : array-like of shape (n_samples,) or None
            Weight of every row, finite and at least 0. None: 1. All rows have weights, or none has.
        first_row : int, default=0
            Number of the first row of the block among all rows, without `partition`.
        partition : int, optional
            Number of the partition, if the block is a whole partition and the sizes of the partitions before
            it are not known. The rows of a partition are numbered from 0.
        n_jobs : int or None
            Number of threads, as for :class:`shoal.KMeans`. The result does not depend on it.

        Returns
        -------
        Partial
            What the pass found in these rows. The same rows under the same number give the same bytes.

        Raises
        ------
        ValueError, TypeError, OSError
            If the rows are not valid: as for :meth:`shoal.KMeans.fit`. Messages name the partition.

        Notes
        -----
        Costs one pass over the rows. Memory beyond the rows is that of the result, and one tile per thread.
        """
        p = _params
        first = p.whole("first_row", first_row, 0)
        number = None if partition is None else p.whole("partition", partition, 0)
        if number is not None and first:
            raise p.ParameterError(
                f"first_row must be 0 with partition={number}, got {first}: the rows of a partition are "
                "numbered from 0"
            )
        with naming(number):
            source, weights, header = block_of(block, sample_weight)
            if self._names is not None:
                refuse_other_names(self._names, header)
            threads = p.threads(n_jobs, tell=False)
            return Partial(
                self._absorb_open(Given(source, weights, find_names(header), number, first, threads))
            )

    def _absorb_open(self, given: Given) -> _core.Partial:
        """Run the pass over rows that are open."""
        return self._state.absorb(*given)

    def commit(self, total: Partial, *, n_partitions: int | None = None) -> tuple[Self, Step]:
        """Take over the merged result of all partitions.

        Parameters
        ----------
        total : Partial
            The merged result of all partitions.
        n_partitions : int, optional
            Number of partitions, or of blocks that are numbered by their first row. Loops of your own should
            pass it: without it, the first pass cannot know that the last partitions are missing.

        Returns
        -------
        task : pass of the same class
            The next pass.
        step : shoal.Step
            Figures of this pass. `objective` is the weighted sum of squared distances of the rows to the
            centers before the commit, or to the candidates of a seeding. It is NaN for coresets and for the
            first pass of a seeding. `n_changed` is 0, and `n_distances` that of a full sweep: they would
            depend on what workers keep. `stop_reason` is ``"labels-stable"`` if no center moved. `elapsed` is
            0: a pass does not look at the clock.

        Raises
        ------
        ValueError
            If partitions or rows are missing, or if their number differs from that of the pass before; if
            `total` belongs to another pass; if a mean overflows; if there are fewer rows than centers, or no
            row has weight. The message names the partitions.
        """
        if not isinstance(total, Partial):
            raise TypeError(f"total must be a Partial, got {type(total).__name__}")
        number = None if n_partitions is None else _params.whole("n_partitions", n_partitions, 1)
        state, step = self._state.commit(total._state, number)
        return self._of(state), step

    @property
    def result_bytes(self) -> int:
        """Upper limit of the bytes of one partial result, about; engines choose by it where to merge."""
        return self._state.result_bytes

    def to_bytes(self) -> bytes:
        """Write the pass to bytes, in the safetensors format."""
        return self._state.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a pass from bytes; raises ``ValueError`` if they are damaged or of another kind of pass."""
        return cls._of(_core.Pass.from_bytes(data, cls._kind))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the bytes, and what they do not keep."""
        given = {name: value for name, value in vars(self).items() if name != "_state"}
        return type(self).from_bytes, (self.to_bytes(),), given or None
