"""`shoal.spark` on Spark's local mode with two cores: the suite, columns, lost tasks, a dead JVM."""

import os
import signal
import subprocess
import sys
import textwrap
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

pyspark = pytest.importorskip("pyspark")

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

#: Up to four attempts per task, no network beyond this machine, and little work beside that of the tasks: the
#: plans are small, and the JVM lives for a minute.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "1",
    "spark.log.level": "OFF",
}


def session(workers=2):
    """Return the running session, or start one; skip without Java."""
    from pyspark.sql import SparkSession
    from shoal._distributed.spark_engine import JAVA, has_java

    if not has_java():
        pytest.skip(JAVA)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{workers},4]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@pytest.fixture(scope="module", autouse=True)
def stopped():
    """Stop the session after the last test."""
    yield
    session().stop()


@pytest.fixture
def spark():
    """Return the session, which starts once, or again after a test that stopped it."""
    return session()


def frame(spark, folder, partitions, weights=None):
    """Return a DataFrame with exactly these partitions: row numbers, vectors and weights."""
    kind = {"f4": "float", "f8": "double"}[partitions[0].dtype.str[1:]]
    first = np.cumsum([0, *(len(rows) for rows in partitions)])
    for i, rows in enumerate(partitions):
        np.save(folder / f"{i}.npy", rows)
        np.save(folder / f"{i}w.npy", np.ones(len(rows)) if weights is None else weights[i])
    names = str(folder)

    def read(batches):
        import pyarrow as pa

        for batch in batches:
            for i in batch.column(0).to_pylist():
                rows, w = np.load(f"{names}/{i}.npy"), np.load(f"{names}/{i}w.npy")
                lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
                arrays = {
                    "row": pa.array(np.arange(first[i], first[i + 1])),
                    "vector": lists.cast(pa.list_(lists.type.value_type)),
                    "w": pa.array(w),
                }
                yield pa.RecordBatch.from_pydict(arrays)

    empty = spark.range(0, len(partitions), 1, len(partitions))
    return empty.mapInArrow(read, f"row long, vector array<{kind}>, w double")


class Runner:
    """Runs the suite on Spark."""

    kinds = frozenset({"weights", "empty"})

    def __init__(self, folders):
        from shoal import spark as module

        self.KMeans = module.KMeans
        self.lightweight_coreset = module.lightweight_coreset
        self._folders = folders

    def given(self, partitions, sample_weight=None):
        df = frame(session(), self._folders.mktemp("rows"), partitions, sample_weight)
        return (df,), {"features": "vector", "sample_weight": None if sample_weight is None else "w"}

    def rows(self, partitions):
        return self.given(partitions)[0], {}

    def labels(self, labels):
        rows = labels.select("row", "label").toArrow()
        found = np.empty(len(rows), np.int32)
        found[rows["row"].to_numpy()] = rows["label"].to_numpy()
        return found

    def distances(self, distances):
        rows = distances.select("row", "distances").toArrow().sort_by("row")
        return np.stack(rows["distances"].to_numpy())


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    return Runner(tmp_path_factory)


class TestSuite(Suite):
    """The conformance suite."""


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_processes(runner, workers):
    session().stop()
    started = session(workers)
    try:
        Suite.both(runner, SHORT, cut(blobs(), *UNEQUAL))
    finally:
        started.stop()


PARAMS = {"n_clusters": 12, "random_state": 9, "max_iter": 4, "tol": 0.0}


def reference(partitions, **other):
    return distributed.KMeans(**(PARAMS | other)).fit(partitions)


def partitions_of(df):
    """Return the vectors of each partition, for the reference."""
    found = df.rdd.glom().collect()
    return [np.array([[float(v) for v in row[0]] for row in rows]).reshape(len(rows), -1) for rows in found]


class TestColumns:
    """What may hold the rows."""

    def test_dense_and_sparse_ml_vectors(self, spark):
        from pyspark.ml.linalg import Vectors
        from shoal.spark import KMeans

        rows = np.round(blobs(n=400, d=6, dtype=np.float64), 2)
        rows[rows < 0] = 0.0
        given = [
            (Vectors.sparse(6, {j: v for j, v in enumerate(row) if v}) if i % 3 else Vectors.dense(row),)
            for i, row in enumerate(rows)
        ]
        df = spark.createDataFrame(given, ["features"]).repartition(1).cache()
        model = KMeans(**PARAMS).fit(df)
        known = reference(partitions_of(df))
        same(model, known)
        found = model.labels_.toPandas()
        assert list(found.columns) == ["features", "label"]
        np.testing.assert_array_equal(found["label"], known.labels_)

    def test_columns_are_read_by_their_names(self, spark):
        import pandas as pd
        from shoal.spark import KMeans

        names = ["a", "b", "c"]
        table = pd.DataFrame(blobs(n=300, d=3, dtype=np.float64), columns=names)
        first, rest = spark.createDataFrame(table[:100]), spark.createDataFrame(table[100:][names[::-1]])
        df = first.unionByName(rest).repartition(1).cache()
        model = KMeans(**PARAMS).fit(df, features=names)
        same(model, reference([np.array(df.collect())]))
        assert model.feature_names_in_.tolist() == names
        found = model.predict(df.select("c", "a", "b")).toPandas()["label"]
        np.testing.assert_array_equal(found, model.labels_.toPandas()["label"])
        with pytest.raises(ValueError, match="same order as they were in fit"):
            model.predict(df, features=["c", "b", "a"])

    def test_columns_of_numbers_with_awkward_names(self, spark):
        from shoal.spark import KMeans

        rows = np.round(blobs(n=200, d=3, dtype=np.float64))
        names = ["a.b", "c`d", "e f"]
        df = spark.createDataFrame([(int(a), float(b), int(c)) for a, b, c in rows], names).coalesce(1)
        model = KMeans(**PARAMS, compute_labels=False).fit(df, features=names)
        known = reference([rows])
        same(model, known)
        found = model.predict(df, output="cluster").toPandas()
        np.testing.assert_array_equal(found["cluster"], known.labels_)

    def test_one_column_of_numbers(self, spark):
        from shoal.spark import KMeans

        df = spark.range(0, 100, 1, 3).selectExpr("cast(id + if(id < 50, 0, 1000) as double) as x")
        model = KMeans(n_clusters=2, random_state=0).fit(df, features="x")
        assert sorted(model.cluster_centers_.ravel().tolist()) == [24.5, 1074.5]

    def test_bad_columns(self, spark):
        from shoal.spark import KMeans

        df = spark.createDataFrame([([1.0], "a", 1.0)], ["v", "s", "label"])
        check_bad_columns(KMeans, df)
        with pytest.raises(TypeError, match="X must be a DataFrame of pyspark, got ndarray"):
            KMeans(2).fit(np.zeros((3, 2)))

    @pytest.mark.parametrize(("bad", "problem"), BAD_ROWS)
    def test_bad_rows_name_partition_and_row(self, spark, bad, problem):
        from shoal.spark import KMeans

        rows = spark.sparkContext.parallelize([(row,) for row in with_bad_row(bad)], 2)
        df = spark.createDataFrame(rows, "v array<double>")
        with pytest.raises(ValueError, match=problem):
            KMeans(2, compute_labels=False).fit(df, features="v")

    def test_other_lengths_in_another_partition(self, spark):
        from shoal.spark import KMeans

        rows = [([1.0, 2.0],)] * 4 + [([1.0],)] * 4
        df = spark.createDataFrame(spark.sparkContext.parallelize(rows, 2), "v array<double>")
        with pytest.raises(ValueError, match="partition"):
            KMeans(2, compute_labels=False).fit(df, features="v")

    def test_no_rows(self, spark):
        from shoal.spark import KMeans

        df = spark.createDataFrame([], "v array<double>")
        with pytest.raises(ValueError, match=r"at least 1|n_samples=0"):
            KMeans(2, compute_labels=False).fit(df, features="v")


class TestPipeline:
    """The estimator as a stage of a pipeline of Spark."""

    def test_a_stage_after_an_assembler(self, spark):
        from pyspark.ml import Estimator, Model, Pipeline
        from pyspark.ml.feature import VectorAssembler
        from shoal.spark import KMeans

        rows, names = np.round(blobs(n=300, d=3, dtype=np.float64), 2), ["a", "b", "c"]
        weights = np.arange(300) % 3 / 2
        given = [(*row.tolist(), weight) for row, weight in zip(rows, weights.tolist(), strict=True)]
        df = spark.createDataFrame(given, [*names, "w"]).coalesce(1).cache()
        stage = KMeans(**PARAMS).stage()
        assert isinstance(stage, Estimator)
        assembler = VectorAssembler(inputCols=names, outputCol="vector")
        for weighted in (False, True):
            stage.setFeaturesCol("vector").setPredictionCol("cluster")
            if weighted:
                stage.setWeightCol("w")
            model = Pipeline(stages=[assembler, stage]).fit(df)
            known = distributed.KMeans(**PARAMS).fit([rows], sample_weight=[weights] if weighted else None)
            assert isinstance(model.stages[-1], Model)
            same(model.stages[-1].kmeans, known)
            found = model.transform(df).toPandas()
            assert list(found.columns) == [*names, "w", "vector", "cluster"]
            np.testing.assert_array_equal(found["cluster"], known.labels_)
        # A fit changes neither the stage nor its copies.
        assert not hasattr(stage.kmeans, "cluster_centers_")
        assert stage.copy().getFeaturesCol() == "vector"
        assert KMeans(2).stage().getPredictionCol() == "prediction"


class TestEngine:
    """What Spark does with the tasks."""

    def test_a_killed_worker_is_retried_to_the_same_bits(self, spark, runner, tmp_path):
        partitions = cut(blobs(), 0.3, 0.6)
        (df,), options = runner.given(partitions)
        mark = str(tmp_path / "killed")

        def deadly(batches):
            yield from batches
            if pyspark.TaskContext.get().partitionId() == 1 and not Path(mark).exists():
                Path(mark).touch()
                os.kill(os.getpid(), signal.SIGKILL)

        model = runner.KMeans(**PARAMS).fit(df.mapInArrow(deadly, df.schema), **options)
        assert Path(mark).exists()
        same(model, reference(partitions))

    def test_a_worker_killed_in_a_sweep(self, runner, monkeypatch, tmp_path):
        from shoal._distributed import spark_engine, spark_tasks

        partitions = cut(blobs(), 0.3, 0.6)
        args, options = runner.given(partitions)
        mark, run = str(tmp_path / "killed"), spark_tasks.run

        def deadly(*given):
            if pyspark.TaskContext.get().partitionId() == 2 and not Path(mark).exists():
                Path(mark).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return run(*given)

        monkeypatch.setattr(spark_engine, "run", deadly)
        model = runner.KMeans(**PARAMS).fit(*args, **options)
        assert Path(mark).exists()
        same(model, reference(partitions))

    def test_results_merged_on_the_executors(self, runner, monkeypatch):
        from shoal._distributed import spark_engine

        partitions = cut(blobs(), *(i / 19 for i in range(1, 19)))
        args, options = runner.given(partitions)
        calls = []
        grouped = spark_engine.grouped
        monkeypatch.setattr(spark_engine, "MOST_COLLECTED", 1)
        monkeypatch.setattr(spark_engine, "TASKS_PER_CORE", 19)
        monkeypatch.setattr(spark_engine, "grouped", lambda parts: calls.append(1) or grouped(parts))
        one = {"max_iter": 1, "init": blobs()[:12]}
        model = runner.KMeans(**(PARAMS | one), compute_labels=False).fit(*args, **options)
        same(model, reference(partitions, **one))
        # 19 results, then 3, then 1; two passes.
        assert len(calls) == 4

    def test_rows_that_change_are_refused(self, runner, monkeypatch):
        from shoal._distributed import spark_engine

        args, options = runner.given(cut(blobs(), 0.5))
        engine = spark_engine.SparkEngine(*args, **options, output=None, n_jobs=None)
        engine._fingerprints[1] += 1
        with pytest.raises(ValueError, match="partition 1: the engine gave other rows"):
            engine.total(distributed.KMeansPass(blobs()[:6]))
        engine.close()

    def test_weights_that_change_are_refused(self, spark, tmp_path):
        from shoal._distributed import spark_engine

        df = frame(spark, tmp_path, cut(blobs(), 0.5))
        engine = spark_engine.SparkEngine(df, "vector", "w", None, None)
        task = distributed.KMeansPass(blobs()[:6])
        engine.total(task)
        # Spark loses the rows, and reads other weights.
        engine._packed.unpersist(True)
        np.save(tmp_path / "1w.npy", np.full(1200, 2.0))
        with pytest.raises(ValueError, match="partition 1: the engine gave other rows or weights"):
            engine.total(task)
        engine.close()

    def test_nothing_stays_persisted(self, spark, runner):
        args, options = runner.given(cut(blobs(), 0.5))
        before = spark.sparkContext._jsc.getPersistentRDDs().size()
        runner.KMeans(**PARAMS).fit(*args, **options)
        with pytest.raises(ValueError, match="n_clusters must be at most"):
            runner.KMeans(n_clusters=5000).fit(*args, **options)
        assert spark.sparkContext._jsc.getPersistentRDDs().size() == before

    def test_the_rows_are_read_once(self, spark, runner, tmp_path):
        partitions = cut(blobs(), 0.5)
        (df,), options = runner.given(partitions)
        log = str(tmp_path / "log")

        def counted(batches):
            with open(log, "a") as file:  # noqa: PTH123 - runs on a worker
                file.write("x")
            yield from batches

        runner.KMeans(**PARAMS, compute_labels=False).fit(df.mapInArrow(counted, df.schema), **options)
        assert Path(log).read_text() == "xx"


#: Of this module, and of those that tests share.
FOLDERS = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "common")]
DEAD = """
    import os, signal, sys
    import numpy as np
    sys.path[:0] = {folders!r}
    from distributed_suite import blobs, cut
    from shoal.callbacks import Checkpoint
    from shoal.spark import KMeans
    from test_spark import PARAMS, session

    spark = session()
    rows = [(row.tolist(),) for row in blobs().astype(float)]
    df = spark.createDataFrame(spark.sparkContext.parallelize(rows, 3), "v array<double>")

    def kill(model, step):
        if step.iteration == 2:
            os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)

    model = KMeans(**PARAMS, callbacks=[Checkpoint({path!r}, every_steps=1), kill])
    try:
        model.fit(df, features="v")
    except RuntimeError as error:
        print(error)
    print("steps", model.n_iter_, len(model.history_))
    np.save({centers!r}, model.cluster_centers_)
    os._exit(0)
"""


def test_a_dead_jvm_leaves_the_last_whole_step(spark, tmp_path):
    path, centers = str(tmp_path / "run.safetensors"), str(tmp_path / "centers.npy")
    script = textwrap.dedent(DEAD).format(folders=FOLDERS, path=path, centers=centers)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "Spark lost a task" in done.stdout, done.stderr[-2000:]
    assert "The estimator holds the state after step 2" in done.stdout
    assert "steps 2 2" in done.stdout
    partitions = np.array_split(blobs().astype(float), 3)
    same_start = distributed.KMeans(**PARAMS).fit(partitions, resume_from=path)
    same(same_start, reference(partitions))
    np.testing.assert_array_equal(np.load(centers), reference(partitions, max_iter=2).cluster_centers_)


def test_neither_package_is_imported_with_shoal():
    script = "import sys, shoal, shoal.spark, shoal.ray; print({'pyspark', 'ray'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    from shoal.spark import KMeans

    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ImportError, match=r"shoal.spark needs pyspark: pip install 'shoal-cluster\[spark\]'"):
        KMeans(2).fit(np.zeros((3, 2)))


def test_without_java_the_error_says_so(monkeypatch, tmp_path):
    from shoal.spark import KMeans

    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(TypeError, match="Spark needs Java 17 or later, which is not installed here"):
        KMeans(2).fit(np.zeros((3, 2)))


def test_the_guide_runs(spark, tmp_path, monkeypatch):
    from pages import DOCS, run

    monkeypatch.chdir(tmp_path)
    run(DOCS / "spark.md")
    assert (tmp_path / "labels.npy").is_file()
    assert shoal.load(tmp_path / "model.safetensors").n_features_in_ == 8
