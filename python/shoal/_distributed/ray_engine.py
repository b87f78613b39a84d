"""The engine of Ray: the blocks of a Dataset, and a few tasks per core, which take many blocks each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import repeat
from typing import Any

from shoal._checks.params import ParameterError, is_whole
from shoal.formats.stream import required

from .base import Pass, naming
from .batches import Arriving, Layout, Wanted, absorbed_pieces, over_pieces, wanted
from .engine import MOST_GATHERED, at_once, merged, runs, tree
from .partial import Partial
from .passes import RowPass

#: Tasks per core of the cluster, and how many are submitted ahead: they keep the cores busy. If a pass ends
#: early, by an error or by Ctrl-C, these still run. They are not canceled, because Ray 2.60 aborts the
#: process of the driver if a task is canceled while its arguments or its result arrive.
TASKS_PER_CORE = 2

#: Message for a Dataset without blocks or columns.
NO_ROWS = "X must have at least 1 row, got 0"


class RayEngine:
    """Runs passes over the blocks of a Dataset.

    The first pass computes the blocks of the rows and keeps them in Ray's object store, which spills them to
    disk if memory is short. Later passes read them there, without a copy. A task uses
    `n_jobs` cores and threads, by default 1.
    """

    name = "Ray"
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
        required("ray", "ray", "shoal.ray")
        data = required("ray.data", "ray", "shoal.ray")
        if not isinstance(X, data.Dataset):
            raise TypeError(f"X must be a Dataset of ray.data, got {type(X).__name__}")
        if is_whole(n_jobs) and n_jobs < 0:
            raise ParameterError(
                f"n_jobs must be None or a number of cores per task, at least 1, got {n_jobs}: workers may "
                "have different numbers of cores"
            )
        there = X.columns() or []
        if not there:
            raise ValueError(NO_ROWS)
        self._of = wanted("X", features, sample_weight, output, there)
        self._ds, self._output, self._threads = X, output, n_jobs
        self._prints: list[int] | None = None

    @cached_property
    def _blocks(self) -> list[Any]:
        """References to the blocks, in the order of the rows."""
        from ray.data.dataset import MaterializedDataset

        if isinstance(self._ds, MaterializedDataset):
            return list(self._ds.to_arrow_refs())
        rows = self._ds.select_columns(self._of.names)
        options = rows.context.execution_options
        given = options.preserve_order
        try:
            # Otherwise blocks come in the order of completion.
            options.preserve_order = True
            return list(rows.materialize().to_arrow_refs())
        finally:
            options.preserve_order = given

    @property
    def n_partitions(self) -> int:
        """Number of blocks."""
        return len(self._blocks)

    @property
    def _cores(self) -> int:
        """Cores to ask for per task."""
        return max(1, self._threads or 1)

    @cached_property
    def _remote(self) -> tuple[Any, Any]:
        """The tasks that absorb a block and merge results, sent to the workers once."""
        import ray

        return (
            ray.remote(num_cpus=self._cores, num_returns=2)(absorb),
            ray.remote(num_cpus=self._cores)(merge_all),
        )

    def _tasks(self) -> list[tuple[str | None, list[int]]]:
        """Cut the blocks of every machine into runs; return the machines and the runs."""
        import ray
        from ray.experimental import get_object_locations

        cores = {
            node["NodeID"]: int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]
        }
        places = get_object_locations(self._blocks) if len(cores) > 1 else {}
        nodes = [places.get(block, {}).get("node_ids", []) for block in self._blocks]
        everywhere = sum(cores.values())
        return [
            (node, run)
            for node, own in spread(nodes, cores).items()
            for run in runs(own, TASKS_PER_CORE * cores.get(node or "", everywhere) // self._cores)
        ]

    def total(self, task: Pass) -> Partial:
        """Run a pass, in tasks of many blocks, and merge the results in a tree of tasks."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if not ray.is_initialized():
            # Otherwise `ray.put` would start another cluster, which does not know the blocks.
            raise ConnectionError("Ray was shut down")
        if not self._blocks:
            raise ValueError(NO_ROWS)
        (run, merge), sent = self._remote, ray.put(task)
        most = max(1, TASKS_PER_CORE * int(ray.cluster_resources().get("CPU", 1)) // self._cores)
        parts: list[Any] = []
        prints: list[Any] = []
        running: list[Any] = []
        tasks = self._tasks()
        for node, own in tasks:
            known = None if self._prints is None else [self._prints[i] for i in own]
            where = "DEFAULT" if node is None else NodeAffinitySchedulingStrategy(node, soft=True)
            # Blocks in a list are read by the task one by one; as arguments they would all be pinned.
            part, seen = run.options(scheduling_strategy=where).remote(
                sent, own, self._of, [self._blocks[i] for i in own], known, self._threads or 1
            )
            parts.append(part)
            prints.append(seen)
            running.append(seen)
            if len(running) >= most:
                done, running = ray.wait(running)
                got(ray, done)
        few = tree(parts, lambda some: merge.remote(*some), at_once(task, MOST_GATHERED))
        total = merged(got(ray, few))
        if self._prints is None:
            found = zip(tasks, got(ray, prints), strict=True)
            by_number = {i: seen for (_, own), each in found for i, seen in zip(own, each, strict=True)}
            self._prints = [by_number[i] for i in range(self.n_partitions)]
        return total

    def rows(self, task: RowPass) -> Any:
        """Return the Dataset with a column of labels or distances, which Ray computes when it is used."""
        return self._ds.map_batches(
            partial(with_column, self._of, task, self._output, self._threads or 1),
            batch_size=None,
            batch_format="pyarrow",
            zero_copy_batch=True,
            num_cpus=self._cores,
        )

    def forget(self, fit: tuple[str, int]) -> None:
        """Do nothing: nothing is kept."""

    def close(self) -> None:
        """Forget the blocks, so that the object store can drop them."""
        self.__dict__.pop("_blocks", None)


def spread(nodes: list[list[str]], cores: dict[str, int]) -> dict[str | None, list[int]]:
    """Return which blocks each machine takes; those under None may run on any machine.

    A machine takes the blocks that it holds, up to half more than its share by cores.
    """
    everywhere = max(1, sum(cores.values()))
    taken: dict[str | None, list[int]] = {}
    for i, holders in enumerate(nodes):
        node = min((node for node in holders if cores.get(node)), default=None)
        if node is not None and len(taken.get(node, ())) >= 1.5 * len(nodes) * cores[node] / everywhere:
            node = None
        taken.setdefault(node, []).append(i)
    return taken


def got(ray: Any, refs: Any) -> Any:
    """Return the values of references; raise the errors of the rows as they were raised by the task."""
    try:
        return ray.get(refs)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, (ValueError, TypeError, OSError)):
            raise error.cause from None
        raise


# ------------------------------------------------------------------ on the workers


def layout_of(block: Any, of: Wanted) -> tuple[Layout, list[Any]]:
    """Return how to read a block, and its batches."""
    import pyarrow as pa

    table = block if isinstance(block, pa.Table) else pa.Table.from_pandas(block)
    if not table.num_rows and not set(of.names) <= set(table.column_names):
        # Ray forgets the columns of some blocks without rows.
        table = pa.table({name: pa.array([], pa.float64()) for name in of.names})
    return Layout("X", table.schema, of), table.to_batches()


def absorb(
    task: Pass, partitions: list[int], of: Wanted, blocks: list[Any], expected: list[int] | None, n_jobs: int
) -> tuple[Partial, list[int]]:
    """Run a pass over some blocks; return the result and the fingerprints of the rows of each."""
    import ray

    prints: list[int] = []

    def parts() -> Iterator[Partial]:
        for i, block, known in zip(partitions, blocks, expected or repeat(None), strict=False):
            with naming(i):
                layout, batches = layout_of(ray.get(block), of)
                arriving = Arriving(i, layout.pieces(batches), layout.weighted, layout.header)
                part, seen = absorbed_pieces(task, arriving, known, n_jobs)
            prints.append(seen)
            yield part

    return merged(parts()), prints


def merge_all(*parts: Partial) -> Partial:
    """Merge partial results."""
    return merged(parts)


def with_column(of: Wanted, task: RowPass, output: str | None, n_jobs: int, block: Any) -> Any:
    """Add the column of labels or distances to a block."""
    import pyarrow as pa
    from ray.data.extensions import ArrowTensorArray

    layout, batches = layout_of(block, Wanted(of.features, None))
    values = over_pieces(task, layout.pieces(batches), n_jobs)
    column = pa.array(values) if task.width is None else ArrowTensorArray.from_numpy(values)
    return block.append_column(output, column)
