"""Names of columns, sparse rows and paths in partitions, on an executor and on Dask."""

import logging
import os
import re
import socket
import subprocess
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
import shoal
from distributed_suite import blobs, cut, same
from shoal import distributed
from shoal.callbacks import Checkpoint
from shoal.distributed import CoresetPass, KMeansPass, Partial, SeedPass

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

NAMES = list("abcde")
FRAME = pd.DataFrame(blobs(), columns=NAMES)
ORDER = r'same features in the same order, but feature 0 is "\w" in partition \d and "\w" in partition \d'
#: Fits of every kind of pass.
FITS = {
    "k-means++": lambda cls: cls.KMeans(6, random_state=0, max_iter=2),
    "k-means||": lambda cls: cls.KMeans(6, init="k-means||", random_state=0, max_iter=2),
    "array": lambda cls: cls.KMeans(6, init=blobs()[:6], max_iter=2),
}


def halves(other):
    """Two partitions; the second one has the columns of `other`."""
    return [FRAME[:1000], other[1000:]]


def paths(partitions, folder):
    """Write partitions to Parquet files."""
    names = [str(folder / f"{i}.parquet") for i in range(len(partitions))]
    for name, frame in zip(names, partitions, strict=True):
        frame.to_parquet(name)
    return names


@pytest.mark.parametrize(
    ("init", "unused"),
    [
        ("k-means||", {"coreset_size": 500}),
        ("k-means++", {"oversampling_factor": 3.0, "n_rounds": 2}),
        ("hierarchical", {"n_rounds": 2}),
        (blobs()[:6], {"coreset_size": 500, "n_rounds": 2}),
    ],
)
def test_parameters_that_the_seeding_does_not_use(init, unused):
    parts = cut(blobs(), 0.5)
    params = {"init": init, "random_state": 0, "max_iter": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        expected = distributed.KMeans(6, **params).fit(parts)
    with pytest.warns(RuntimeWarning) as found:
        same(distributed.KMeans(6, **params, **unused).fit(parts), expected)
    got = "an array" if not isinstance(init, str) else repr(init)
    texts = [str(warning.message) for warning in found]
    assert [text.split("=")[0] for text in texts] == list(unused)
    assert all(text.endswith(f", got {got}") for text in texts)
    assert all(warning.filename == __file__ for warning in found)


REORDERED = FRAME[NAMES[::-1]]
RENAMED = FRAME.rename(columns={"a": "z"})


class TestExecutor:
    """Passes on threads and processes."""

    @pytest.mark.parametrize("how", FITS)
    @pytest.mark.parametrize("other", [REORDERED, RENAMED], ids=["reordered", "renamed"])
    def test_other_columns_are_refused(self, how, other):
        with pytest.raises(ValueError, match=ORDER):
            FITS[how](distributed).fit(halves(other))
        with pytest.raises(ValueError, match=ORDER), ThreadPoolExecutor(2) as pool:
            FITS[how](distributed).fit(halves(other), executor=pool)

    @pytest.mark.parametrize(
        "form",
        [
            lambda frames, folder: [pl.from_pandas(frame) for frame in frames],
            lambda frames, folder: [pa.Table.from_pandas(frame) for frame in frames],
            lambda frames, folder: [pa.RecordBatch.from_pandas(frame) for frame in frames],
            lambda frames, folder: [lambda frame=frame: iter([frame]) for frame in frames],
            lambda frames, folder: [shoal.open(frame) for frame in frames],
            paths,
        ],
    )
    def test_all_kinds_of_tables_have_names(self, form, tmp_path):
        frames = [part.reset_index(drop=True) for part in halves(FRAME)]
        model = distributed.KMeans(3, init=blobs()[:3]).fit(form(frames, tmp_path))
        assert model.feature_names_in_.tolist() == NAMES
        frames[1] = frames[1][NAMES[::-1]]
        with pytest.raises(ValueError, match=ORDER):
            distributed.KMeans(3, init=blobs()[:3]).fit(form(frames, tmp_path))

    @pytest.mark.parametrize("how", FITS)
    def test_the_names_are_those_of_the_fit(self, how, tmp_path):
        model = FITS[how](distributed).fit([FRAME[:0], *halves(FRAME)])
        known = FITS[how](distributed).fit(cut(blobs(), 0.0, 1000.5 / 2400))
        same(model, known)
        assert model.feature_names_in_.tolist() == NAMES
        assert not hasattr(known, "feature_names_in_")
        assert model.to_local().feature_names_in_.tolist() == NAMES
        np.testing.assert_array_equal(model.predict([FRAME, FRAME[:0]]), known.predict([blobs()]))
        # Rows without names are accepted.
        np.testing.assert_array_equal(model.predict([blobs()]), known.predict([blobs()]))
        message = "(?s)partition 1: The feature names should match.*same order as they were in fit"
        with pytest.raises(ValueError, match=message):
            model.predict(halves(REORDERED))
        with pytest.raises(ValueError, match=r"(?s)partition 1: .*Feature names unseen at fit time:\n- z"):
            model.predict(halves(RENAMED))
        for method in (model.transform, model.score):
            method(halves(FRAME))
            with pytest.raises(ValueError, match=message):
                method(halves(REORDERED))
        with ProcessPoolExecutor(1) as pool, pytest.raises(ValueError, match=message):
            model.score(halves(REORDERED), executor=pool)
        model.fit([blobs()])
        assert not hasattr(model, "feature_names_in_")

    def test_rows_without_names_beside_named_ones_are_refused(self):
        message = "have names of features, or none: got names in partition 0 and none in partition 1"
        with pytest.raises(ValueError, match=message):
            distributed.KMeans(3, init=blobs()[:3]).fit([FRAME[:1000], blobs()[1000:]])
        # A partition without rows has no columns.
        model = distributed.KMeans(3, init=blobs()[:3]).fit([RENAMED[:0], FRAME, np.zeros((0, 5))])
        assert model.feature_names_in_.tolist() == NAMES

    @pytest.mark.parametrize("steps", [2, 4], ids=["begun", "complete"])
    def test_a_resumed_fit_expects_the_names(self, steps, tmp_path):
        path = tmp_path / "run.safetensors"
        params = {"n_clusters": 12, "random_state": 9, "tol": 0.0, "max_iter": 4, "compute_labels": False}
        stop = [Checkpoint(path, every_steps=1), lambda _, step: step.iteration == steps]
        model = distributed.KMeans(**params, callbacks=stop).fit(halves(FRAME))
        assert (model.n_iter_, model.stop_reason_) == (steps, "callback" if steps == 2 else "max-iter")
        message = (
            'features of the pass before, in the same order, but feature 0 was "a" and is "e" in partition 0'
        )
        swapped = [part[NAMES[::-1]] for part in halves(FRAME)]
        with pytest.raises(ValueError, match=message):
            distributed.KMeans(**params).fit(swapped, resume_from=path)
        found = distributed.KMeans(**params).fit(halves(FRAME), resume_from=path)
        same(found, distributed.KMeans(**params).fit(halves(FRAME)))
        assert found.feature_names_in_.tolist() == NAMES

    @pytest.mark.parametrize(
        "make",
        [
            lambda: KMeansPass(blobs()[:3]),
            lambda: SeedPass(4, random_state=0),
            lambda: CoresetPass(50, random_state=0),
            lambda: CoresetPass(5000, random_state=0),
        ],
    )
    def test_every_merge_and_every_commit_checks_the_names(self, make):
        task = make()
        for _ in range(2):
            one, two = (task.absorb(part, partition=i) for i, part in enumerate(halves(FRAME)))
            for bad in (REORDERED, RENAMED):
                part = Partial.from_bytes(task.absorb(bad[1000:], partition=1).to_bytes())
                with pytest.raises(ValueError, match=ORDER):
                    one.merge(part)
                with pytest.raises(ValueError, match=ORDER):
                    part.merge(one)
            following, _ = task.commit(one.merge(two))
            # The next pass, after bytes, refuses rows whose columns all changed.
            following = type(task).from_bytes(following.to_bytes())
            if getattr(following, "done", False):
                break
            parts = [following.absorb(part[NAMES[::-1]], partition=i) for i, part in enumerate(halves(FRAME))]
            with pytest.raises(ValueError, match="must have the features of the pass before"):
                following.commit(parts[0].merge(parts[1]))
            task = following

    def test_a_coreset_of_other_columns_is_refused(self):
        with pytest.raises(ValueError, match=ORDER):
            distributed.lightweight_coreset(halves(REORDERED), 100)

    @pytest.mark.parametrize("how", FITS)
    def test_a_sparse_partition_beside_a_dense_one_is_refused(self, how):
        parts = cut(blobs(), 0.5)
        message = "sparse, or all dense: got sparse rows in partition 1 and dense rows in partition 0"
        with pytest.raises(ValueError, match=message):
            FITS[how](distributed).fit([parts[0], sp.csr_matrix(parts[1])])

    def test_a_missing_path_names_partition_and_worker(self, tmp_path):
        np.save(tmp_path / "rows.npy", blobs())
        there, gone = str(tmp_path / "rows.npy"), str(tmp_path / "gone.npy")
        host = re.escape(socket.gethostname())
        message = (
            rf"partition 1, on process (\d+) of {host}; paths are opened on the workers\): '.*gone\.npy'"
        )
        with pytest.raises(FileNotFoundError, match=message) as caught:
            distributed.KMeans(3).fit([there, gone])
        assert (caught.value.filename, str(os.getpid()) in str(caught.value)) == (gone, True)
        with ProcessPoolExecutor(1) as pool, pytest.raises(FileNotFoundError, match=message) as caught:
            distributed.KMeans(3).fit([there, gone], executor=pool)
        assert str(os.getpid()) not in str(caught.value)


dask = pytest.importorskip("dask")
pytest.importorskip("distributed")
import dask.array as da  # noqa: E402
import dask.dataframe as dd  # noqa: E402
import shoal.dask  # noqa: E402

from distributed import Client, LocalCluster  # noqa: E402


def local():
    return LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        dashboard_address="127.0.0.1:0",
        memory_limit=0,
    )


@pytest.fixture(scope="class")
def client():
    with local() as cluster, Client(cluster) as client:
        yield client


def delayed_of(partitions, folder):
    """Partitions as delayed values."""
    return [dask.delayed(part) for part in partitions]


def frame_of(partitions, folder):
    """A dask data frame, all partitions of which have the columns of its header: Dask compares them."""
    return dd.from_pandas(pd.concat(partitions), npartitions=len(partitions))


class TestDask:
    """The same on a cluster of Dask."""

    @pytest.mark.parametrize("how", FITS)
    @pytest.mark.parametrize("form", [delayed_of, paths])
    @pytest.mark.parametrize("other", [REORDERED, RENAMED], ids=["reordered", "renamed"])
    def test_other_columns_are_refused(self, client, how, form, other, tmp_path):
        with pytest.raises(ValueError, match=ORDER):
            FITS[how](shoal.dask).fit(form(halves(other), tmp_path), client=client)

    @pytest.mark.parametrize("form", [delayed_of, paths, frame_of])
    def test_the_names_are_those_of_the_fit(self, client, form, tmp_path):
        model = FITS["k-means++"](shoal.dask).fit(form(halves(FRAME), tmp_path), client=client)
        assert model.feature_names_in_.tolist() == NAMES
        bad = model.predict(delayed_of(halves(RENAMED), tmp_path))
        with pytest.raises(ValueError, match=r"(?s)partition 1: .*Feature names unseen at fit time:\n- z"):
            bad.compute()

    def test_a_sparse_partition_beside_a_dense_one_is_refused(self, client, tmp_path):
        parts = [blobs()[:1000], sp.csr_matrix(blobs()[1000:])]
        message = "got sparse rows in partition 1 and dense rows in partition 0"
        with pytest.raises(ValueError, match=message):
            shoal.dask.KMeans(3, random_state=0).fit(delayed_of(parts, tmp_path), client=client)

    def test_a_missing_path_names_partition_and_worker(self, client, tmp_path):
        np.save(tmp_path / "rows.npy", blobs())
        files = [tmp_path / "rows.npy", tmp_path / "gone.npy"]
        message = r"partition 1, on worker \S+://\S+; paths are opened on the workers\): '.*gone\.npy'"
        with pytest.raises(FileNotFoundError, match=message):
            shoal.dask.KMeans(3).fit(files, client=client)

    def test_a_column_of_text_is_named(self, client):
        table = FRAME.assign(city="Rome", day=pd.Timestamp("2026-01-01"))
        X = dd.from_pandas(table, npartitions=2)
        message = r"numbers, got other values in 'city', 'day'\. Choose columns of numbers"
        for call in (
            lambda: shoal.dask.KMeans(3).fit(X, client=client),
            lambda: shoal.dask.lightweight_coreset(X, 10, client=client),
            lambda: FITS["array"](shoal.dask).fit(X[NAMES], client=client).predict(X),
        ):
            with pytest.raises(ValueError, match=message):
                call()
        # Only the values of a column of objects tell what it holds.
        with dask.config.set({"dataframe.convert-string": False}):
            X = dd.from_pandas(table.drop(columns="day"), npartitions=2)
        with pytest.raises(ValueError, match=r"partition \d: .*got other values in 'city'"):
            shoal.dask.KMeans(3).fit(X, client=client)

    @pytest.mark.parametrize("close", ["client", "cluster"])
    def test_labels_after_the_cluster_was_closed(self, close):
        cluster = local()
        other = Client(cluster)
        X = da.from_array(blobs(), chunks=(600, 5))
        model = shoal.dask.KMeans(3, random_state=0).fit(X, client=other)
        assert other.compute(model.labels_).result().shape == (2400,)
        (other if close == "client" else cluster).close()
        with pytest.raises(AttributeError, match=r"labels were on a cluster that is closed\. Use predict"):
            _ = model.labels_
        assert model.predict(X).compute(scheduler="threads").shape == (2400,)
        other.close()
        cluster.close()

    def rows():
        """Rows of which Dask rewrites the tasks when it optimizes a graph."""
        random = da.random.default_rng(0).normal(size=(2400, 5), chunks=(600, 5))
        yield "array", random.astype("float32")
        yield "arrays", (random + 1).astype("float32") * 2
        yield "frame", dd.from_pandas(FRAME, npartitions=3).astype("float64")
        load, clean = dask.delayed(np.asarray, pure=False), dask.delayed(np.negative, pure=False)
        yield "delayed", [clean(load(part)) for part in cut(blobs(), 0.3)]

    @pytest.mark.parametrize(("name", "X"), list(rows()), ids=lambda x: x if isinstance(x, str) else "")
    def test_predict_after_fit_warns_of_nothing(self, client, name, X, caplog):
        loggers = [logging.getLogger(f"distributed.{part}") for part in ("scheduler", "worker", "client")]
        before = [logger.propagate for logger in loggers]
        for logger in loggers:
            logger.propagate = True
        try:
            with caplog.at_level(logging.WARNING):
                model = shoal.dask.KMeans(6, random_state=0, max_iter=2).fit(X, client=client)
                labels = client.compute(model.predict(X)).result()
                np.testing.assert_array_equal(labels, client.compute(model.labels_).result())
                client.compute(model.predict(X).sum()).result()
        finally:
            for logger, given in zip(loggers, before, strict=True):
                logger.propagate = given
        assert [record.getMessage() for record in caplog.records] == []


def test_the_program_of_the_guide_prints_no_warnings(tmp_path):
    from pages import ROOT, examples

    program = "\n".join(examples(ROOT / "docs" / "dask.md"))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300
    )
    assert "run_spec" not in done.stdout + done.stderr


def test_errors_without_a_file_name_the_partition():
    def broken():
        yield np.zeros((3, 2), np.float32)
        raise ConnectionError("lost")

    with pytest.raises(ConnectionError, match="lost") as raised:
        shoal.distributed.KMeansPass(np.zeros((1, 2))).absorb(broken(), partition=7)
    assert "while reading partition 7" in raised.value.__notes__
