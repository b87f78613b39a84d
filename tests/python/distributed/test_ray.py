"""`shoal.ray` on a local Ray with two cores: the conformance suite, columns, lost tasks."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import shoal
from distributed_suite import (
    BAD_ROWS,
    SHORT,
    UNEQUAL,
    Suite,
    blobs,
    check_bad_columns,
    cut,
    same,
    with_bad_row,
)
from shoal import distributed

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
ray = pytest.importorskip("ray")
data = pytest.importorskip("ray.data")

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

#: Up to four workers, a small object store, no dashboard, no network beyond this machine.
SETTINGS = {
    "num_cpus": 4,
    "object_store_memory": 200 << 20,
    "include_dashboard": False,
    "log_to_driver": False,
    "logging_level": "ERROR",
    "_node_ip_address": "127.0.0.1",
}


def start():
    """Start Ray on this machine."""
    ray.init(**SETTINGS)
    data.DataContext.get_current().enable_progress_bars = False


@pytest.fixture(scope="module", autouse=True)
def cluster():
    start()
    yield
    ray.shutdown()


def table(partitions, i, weights=None):
    """Return a partition as a table: row numbers, vectors and weights."""
    import pyarrow as pa

    rows, first = partitions[i], sum(map(len, partitions[:i]))
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(rows).ravel()), rows.shape[1])
    return pa.table(
        {
            "row": np.arange(first, first + len(rows)),
            "vector": vectors,
            "w": np.ones(len(rows)) if weights is None else weights[i],
        }
    )


class Runner:
    """Runs the suite on Ray."""

    kinds = frozenset({"weights", "empty", "storage"})

    def __init__(self):
        from shoal import ray as module

        self.KMeans = module.KMeans
        self.lightweight_coreset = module.lightweight_coreset

    def given(self, partitions, sample_weight=None):
        ds = data.from_arrow([table(partitions, i, sample_weight) for i in range(len(partitions))])
        return (ds,), {"features": "vector", "sample_weight": None if sample_weight is None else "w"}

    def rows(self, partitions):
        return self.given(partitions)[0], {}

    def labels(self, labels):
        rows = labels.select_columns(["row", "label"]).to_pandas().sort_values("row")
        return rows["label"].to_numpy().astype(np.int32)

    def distances(self, distances):
        rows = distances.select_columns(["row", "distances"]).to_pandas().sort_values("row")
        return np.stack(rows["distances"].to_list())


@pytest.fixture(scope="module")
def runner(cluster):
    return Runner()


class TestSuite(Suite):
    """The conformance suite."""


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_processes(runner, workers):
    # Each task takes a share of the four cores.
    Suite.both(runner, SHORT | {"n_jobs": 4 // workers}, cut(blobs(), *UNEQUAL))


PARAMS = {"n_clusters": 12, "random_state": 9, "max_iter": 4, "tol": 0.0}


def reference(partitions, **other):
    return distributed.KMeans(**(PARAMS | other)).fit(partitions)


class TestColumns:
    """What may hold the rows."""

    def test_tensors(self):
        from shoal.ray import KMeans

        ds = data.from_numpy([blobs()[:1000], blobs()[1000:]])
        model = KMeans(**PARAMS).fit(ds)
        known = reference([blobs()[:1000], blobs()[1000:]])
        same(model, known)
        assert set(model.labels_.columns()) == {"data", "label"}
        np.testing.assert_array_equal(model.labels_.to_pandas()["label"], known.labels_)

    def test_lists_of_one_length(self):
        import pyarrow as pa
        from shoal.ray import KMeans

        lists = pa.table({"v": pa.array(blobs().tolist(), pa.list_(pa.float32()))})
        same(KMeans(**PARAMS).fit(data.from_arrow(lists), features="v"), reference([blobs()]))

    def test_columns_of_numbers_of_pandas(self):
        import pandas as pd
        from shoal.ray import KMeans

        rows = np.round(blobs(n=200, d=3, dtype=np.float64))
        one = pd.DataFrame({"a": rows[:, 0].astype(int), "b": rows[:, 1], "c": rows[:, 2].astype(int)})
        model = KMeans(**PARAMS, compute_labels=False).fit(data.from_pandas(one), features=["a", "b", "c"])
        known = reference([rows])
        same(model, known)
        found = model.predict(data.from_pandas(one), output="cluster").to_pandas()
        np.testing.assert_array_equal(found["cluster"], known.labels_)

    def test_columns_are_read_by_their_names(self):
        import pyarrow as pa
        from shoal.ray import KMeans

        rows = blobs(n=300, d=3)
        one = pa.table({name: rows[:, i] for i, name in enumerate("abc")})
        blocks, names = [one[:100], one[100:].select(["c", "b", "a"])], ["a", "b", "c"]
        model = KMeans(**PARAMS).fit(data.from_arrow(blocks), features=names)
        known = reference([rows[:100], rows[100:]])
        same(model, known)
        assert model.feature_names_in_.tolist() == names
        np.testing.assert_array_equal(
            model.predict(data.from_arrow(blocks)).to_pandas()["label"], known.labels_
        )
        with pytest.raises(ValueError, match="same order as they were in fit"):
            model.predict(data.from_arrow(blocks), features=["c", "b", "a"])
        # The column of labels is there already, and a score adds none.
        np.testing.assert_allclose(model.score(model.labels_), known.score([rows]), rtol=1e-12)
        with pytest.raises(TypeError, match=r"y must be None, got 'a'\. Name columns with features="):
            model.fit(data.from_arrow(blocks), "a")
        blocks[1] = blocks[1].rename_columns(["c", "b", "z"])
        with pytest.raises(ValueError, match=r"partition 1: .*features must be among 'c', 'b', 'z', got 'a'"):
            KMeans(**PARAMS).fit(data.from_arrow(blocks), features=names)

    def test_a_lazy_dataset_keeps_the_order_of_the_rows(self):
        import time

        from shoal.ray import KMeans

        rows = blobs()

        def slow(batch):
            # The first blocks are the last to be complete.
            if batch["id"][0] < 1200:
                time.sleep(0.5)
            return {"v": rows[batch["id"]]}

        ds = data.range(2400, override_num_blocks=4).map_batches(slow, batch_size=None)
        order = ds.context.execution_options.preserve_order
        model = KMeans(**PARAMS, compute_labels=False).fit(ds, features="v")
        same(model, reference(np.split(rows, 4)))
        assert ds.context.execution_options.preserve_order == order

    def test_bad_columns(self):
        import pyarrow as pa
        from shoal.ray import KMeans

        ds = data.from_arrow(pa.table({"v": [[1.0]], "s": ["a"], "label": [1.0]}))
        check_bad_columns(KMeans, ds)
        with pytest.raises(TypeError, match=r"X must be a Dataset of ray\.data, got ndarray"):
            KMeans(1).fit(np.zeros((3, 2)))
        with pytest.raises(ValueError, match="one-dimensional tensors"):
            KMeans(1).fit(data.from_numpy(np.zeros((4, 2, 2))))

    @pytest.mark.parametrize(("bad", "problem"), BAD_ROWS)
    def test_bad_rows_name_partition_and_row(self, bad, problem):
        import pyarrow as pa
        from shoal.ray import KMeans

        rows = with_bad_row(bad)
        tables = [pa.table({"v": pa.array(some, pa.list_(pa.float64()))}) for some in (rows[:4], rows[4:])]
        with pytest.raises(ValueError, match=problem):
            KMeans(2, compute_labels=False).fit(data.from_arrow(tables), features="v")

    def test_other_widths_and_types_in_another_block(self):
        import pyarrow as pa
        from shoal.ray import KMeans

        for kind, last in ((pa.float64(), [[1.0]]), (pa.float32(), [[1.0, 2.0]])):
            tables = [
                pa.table({"v": pa.array([[1.0, 2.0]] * 4, pa.list_(pa.float64()))}),
                pa.table({"v": pa.array(last * 4, pa.list_(kind))}),
            ]
            with pytest.raises(ValueError, match="partition"):
                KMeans(2, compute_labels=False).fit(data.from_arrow(tables), features="v")


class TestEngine:
    """What Ray does with the tasks."""

    @pytest.mark.parametrize("victim", ["absorb", "merge_all"])
    def test_a_killed_worker_is_retried_to_the_same_bits(self, runner, victim, monkeypatch, tmp_path):
        from shoal._distributed import ray_engine

        partitions = cut(blobs(), 0.3, 0.6)
        args, options = runner.given(partitions)
        mark, task = str(tmp_path / "killed"), getattr(ray_engine, victim)
        # Otherwise the driver merges results that are so small.
        monkeypatch.setattr(ray_engine, "MOST_GATHERED", 1)

        def deadly(*given):
            if not Path(mark).exists():
                Path(mark).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return task(*given)

        monkeypatch.setattr(ray_engine, victim, deadly)
        model = runner.KMeans(**PARAMS).fit(*args, **options)
        assert Path(mark).exists()
        same(model, reference(partitions))

    def test_rows_that_change_are_refused(self, runner):
        from shoal._distributed import ray_engine

        args, options = runner.given(cut(blobs(), 0.5))
        engine = ray_engine.RayEngine(*args, **options, output=None, n_jobs=None)
        task = distributed.KMeansPass(blobs()[:6])
        assert engine.total(task).to_bytes() == engine.total(task).to_bytes()
        engine._prints[1] += 1
        with pytest.raises(ValueError, match="partition 1: the engine gave other rows"):
            engine.total(task)

    def test_weights_that_change_are_refused(self, runner):
        from shoal._distributed import ray_engine

        task, parts = distributed.KMeansPass(blobs()[:6]), cut(blobs(), 0.5)
        engines = []
        for weight in (1.0, 2.0):
            args, options = runner.given(parts, [np.full(len(rows), weight) for rows in parts])
            engines.append(ray_engine.RayEngine(*args, **options, output=None, n_jobs=None))
        engines[0].total(task)
        engines[1]._prints = engines[0]._prints
        with pytest.raises(ValueError, match="the engine gave other rows or weights"):
            engines[1].total(task)

    def test_no_rows_and_negative_cores_are_refused(self, runner):
        args, options = runner.given([blobs()])
        with pytest.raises(ValueError, match="n_jobs must be None or a number of cores per task"):
            runner.KMeans(n_clusters=2, n_jobs=-1).fit(*args, **options)
        with pytest.raises(ValueError, match="X must have at least 1 row, got 0"):
            runner.KMeans(n_clusters=2).fit(data.from_items([]), features="v")

    def test_a_pass_that_ends_early_submits_no_more_tasks(self, runner, monkeypatch, tmp_path):
        from shoal._distributed import ray_engine

        rows = cut(blobs(), *(i / 40 for i in range(1, 40)))
        rows[0] = np.full_like(rows[0], np.nan)
        args, options = runner.given(rows)
        engine = ray_engine.RayEngine(*args, **options, output=None, n_jobs=None)
        absorb, folder = ray_engine.absorb, tmp_path

        def counted(task, partitions, *given):
            (folder / str(partitions[0])).touch()
            # The others take longer than the first one, which fails.
            while partitions[0] and not (folder / "0").exists():
                time.sleep(0.01)
            time.sleep(0.5 if partitions[0] else 0)
            return absorb(task, partitions, *given)

        monkeypatch.setattr(ray_engine, "absorb", counted)
        # Otherwise a task takes as many blocks as there are for it.
        monkeypatch.setattr(ray_engine, "runs", lambda own, n_tasks: [[i] for i in own])
        assert len(engine._tasks()) >= 20
        with pytest.raises(ValueError, match="partition 0"):
            engine.total(distributed.KMeansPass(blobs()[:6]))
        # Two tasks for each of the four cores, and those that began before the error arrived.
        assert len(list(folder.iterdir())) < 18

    def test_machines_take_the_blocks_that_they_hold(self):
        from shoal._distributed.ray_engine import spread

        cores = {"a": 2, "b": 2, "head": 0}
        assert spread([["a"], ["a"], ["b"], ["b", "a"], ["head"], []], cores) == {
            "a": [0, 1, 3],
            "b": [2],
            None: [4, 5],
        }
        # One machine holds all blocks: others take a part of them.
        assert spread([["b"]] * 8, cores) == {"b": [0, 1, 2, 3, 4, 5], None: [6, 7]}
        assert spread([[]] * 3, {"a": 4}) == {None: [0, 1, 2]}

    def test_the_rows_are_computed_once(self, tmp_path):
        from shoal.ray import KMeans

        rows, log = blobs(), str(tmp_path / "log")

        def counted(batch):
            with open(log, "a") as file:  # noqa: PTH123 - runs on a worker
                file.write("x")
            return {"v": rows[batch["id"]]}

        ds = data.range(2400, override_num_blocks=2).map_batches(counted, batch_size=None)
        # `columns` has to run a function to see its columns.
        names = ds.columns()
        before = len(Path(log).read_text())
        model = KMeans(**PARAMS, compute_labels=False).fit(ds, features=names[0])
        assert model.n_iter_ == 4
        assert len(Path(log).read_text()) - before <= 3


#: Of this module, and of those that tests share.
FOLDERS = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "common")]
DEAD = """
    import os, signal, sys
    import numpy as np
    sys.path[:0] = {folders!r}
    from distributed_suite import blobs, cut
    from shoal.callbacks import Checkpoint
    from shoal.ray import KMeans
    from test_ray import PARAMS, data, ray, start

    def shutdown():
        ray.shutdown()

    def kill():
        (raylet,) = ray._private.worker._global_node.all_processes["raylet"]
        os.kill(raylet.process.pid, signal.SIGKILL)

    def die(model, step):
        if step.iteration == 2:
            {how}()

    start()
    ds = data.from_numpy(cut(blobs(), 0.3, 0.6))
    model = KMeans(**PARAMS, callbacks=[Checkpoint({path!r}, every_steps=1), die])
    try:
        model.fit(ds)
    except RuntimeError as error:
        print(error)
    print("steps", model.n_iter_, len(model.history_))
    np.save({centers!r}, model.cluster_centers_)
"""


@pytest.mark.parametrize("how", ["shutdown", "kill"])
def test_a_dead_cluster_leaves_the_last_whole_step(how, tmp_path):
    path, centers = str(tmp_path / "run.safetensors"), tmp_path / "centers.npy"
    script = textwrap.dedent(DEAD).format(folders=FOLDERS, how=how, path=path, centers=str(centers))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    partitions = cut(blobs(), 0.3, 0.6)
    if how == "shutdown":
        assert "Ray lost a task: ConnectionError: Ray was shut down" in done.stdout, done.stderr[-2000:]
        assert "The estimator holds the state after step 2" in done.stdout
        assert "steps 2 2" in done.stdout
        np.testing.assert_array_equal(np.load(centers), reference(partitions, max_iter=2).cluster_centers_)
    else:
        # Ray ends the process of a driver whose raylet is gone: only the checkpoint is left.
        assert done.returncode != 0
        assert not centers.exists()
    same(distributed.KMeans(**PARAMS).fit(partitions, resume_from=path), reference(partitions))


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    from shoal.ray import KMeans

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"shoal.ray needs ray: pip install 'shoal-cluster\[ray\]'"):
        KMeans(2).fit(np.zeros((3, 2)))


def test_the_guide_runs(cluster, tmp_path, monkeypatch):
    from pages import DOCS, run

    monkeypatch.chdir(tmp_path)
    run(DOCS / "ray.md")
    assert (tmp_path / "labels.npy").is_file()
    assert shoal.load(tmp_path / "model.safetensors").n_features_in_ == 8
