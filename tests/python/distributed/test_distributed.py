"""The passes of `shoal.distributed` against a slow reference, and what they refuse."""

import doctest
import importlib
import itertools
import multiprocessing
import os
import pickle
import re
import signal
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import shoal
import sklearn.base
from distributed_suite import CUTS, blobs, cut, same
from shoal import _core, distributed
from shoal._distributed import seeding
from shoal._distributed.batches import Arriving, Seen, absorbed_pieces, printed
from shoal._distributed.engine import absorbed, merged, n_sums, runs
from shoal._distributed.executor import ExecutorEngine
from shoal.callbacks import Checkpoint
from shoal.distributed import CoresetPass, KMeans, KMeansPass, LabelPass, Partial, SeedPass
from sklearn.exceptions import ConvergenceWarning, NotFittedError


def sweep(rows, centers, weights=None, metric="euclidean"):
    """One sweep of k-means by definition: centers, inertia and counts."""
    rows, centers = rows.astype(np.float64), centers.astype(np.float64)
    weights = np.ones(len(rows)) if weights is None else np.asarray(weights)

    def unit(x):
        lengths = np.linalg.norm(x, axis=1, keepdims=True)
        return x / np.where(lengths > 0, lengths, 1)

    if metric == "cosine":
        rows, centers = unit(rows), unit(centers)
    sq = ((rows[:, None] - centers) ** 2).sum(axis=2)
    labels, nearest = sq.argmin(axis=1), sq.min(axis=1)
    inertia = float(weights @ nearest)
    empty = [j for j in range(len(centers)) if weights[labels == j].sum() == 0]
    far = np.argsort(-np.where(weights > 0, nearest, -1), kind="stable")
    for j, row in zip(empty, far, strict=False):
        labels[row] = j
    counts = np.bincount(labels, weights, len(centers))
    moved = centers.copy()
    for j in np.flatnonzero(counts):
        moved[j] = weights[labels == j] @ rows[labels == j] / (counts[j] if metric == "euclidean" else 1)
    return unit(moved) if metric == "cosine" else moved, inertia, counts


def committed(task, partitions, weights=None):
    """Absorb partitions by number, and commit their sum."""
    weights = weights or [None] * len(partitions)
    parts = [
        task.absorb(rows, w, partition=i) for i, (rows, w) in enumerate(zip(partitions, weights, strict=True))
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total.merge(part)
    return task.commit(total)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
@pytest.mark.parametrize("name", CUTS)
def test_a_sweep_is_that_of_the_definition(metric, weighted, scale, name):
    rows = blobs(seed=7, dtype=np.float64) * scale
    centers = rows[:7].copy()
    # Its cluster is empty for both metrics.
    centers[6] = -1e3 * rows.sum(axis=0)
    weights = np.random.default_rng(1).integers(0, 3, len(rows)) / 2.0 if weighted else None
    parts = cut(rows, *CUTS[name])
    own = None if weights is None else cut(weights, *CUTS[name])
    task, step = committed(KMeansPass(centers, metric=metric), parts, own)
    moved, inertia, counts = sweep(rows, centers, weights, metric)
    np.testing.assert_allclose(task.centers, moved, rtol=1e-9, atol=1e-11 * scale)
    np.testing.assert_allclose(step.objective, inertia, rtol=1e-10)
    np.testing.assert_allclose(task.counts, counts, rtol=1e-12)
    assert (step.batch_size, step.iteration, step.n_distances) == (2400, 1, 2400 * 7)


def test_a_commit_knows_how_many_partitions_there_are():
    rows = blobs()
    for task in (
        KMeansPass(rows[:3]),
        SeedPass(4, random_state=0),
        CoresetPass(50, random_state=3),
    ):
        part = task.absorb(rows[:1000], partition=0)
        assert task.commit(part, n_partitions=1)[1].batch_size == 1000
        with pytest.raises(ValueError, match="must hold all partitions, and lacks partition 1"):
            task.commit(part, n_partitions=2)
        with pytest.raises(ValueError, match=r"lacks partitions 1 to 4, partitions 6 to 7"):
            task.commit(part.merge(task.absorb(rows[1000:], partition=5)), n_partitions=8)
        both = part.merge(task.absorb(rows[1000:], partition=1))
        with pytest.raises(ValueError, match="total must hold 1 partitions, got 2"):
            task.commit(both, n_partitions=1)
        assert task.commit(both, n_partitions=2)[1].batch_size == 2400
    blocks = task.absorb(rows[:7]).merge(task.absorb(rows[7:], first_row=7))
    with pytest.raises(ValueError, match="total must hold 3 blocks, got 2"):
        task.commit(blocks, n_partitions=3)
    assert task.commit(blocks, n_partitions=2)[1].batch_size == 2400
    with pytest.raises(ValueError, match="n_partitions must be an integer of at least 1, got 0"):
        task.commit(blocks, n_partitions=0)


def test_the_first_sweep_expects_the_rows_of_the_seeding():
    rows = blobs()
    seeds = SeedPass(4, metric="cosine", random_state=0)
    with pytest.raises(ValueError, match="the centers are not chosen yet"):
        seeds.first_sweep()
    while not seeds.done:
        seeds, _ = committed(seeds, cut(rows, 0.3))
    task = pickle.loads(pickle.dumps(seeds)).first_sweep()
    assert (task.metric, task.iteration) == ("cosine", 0)
    np.testing.assert_array_equal(task.centers, KMeansPass(seeds.centers, metric="cosine").centers)
    assert committed(task, cut(rows, 0.3))[1].iteration == 1
    for other in (cut(rows, 0.3)[:1], cut(rows[:-1], 0.3), cut(rows, 0.3, 0.6)):
        with pytest.raises(ValueError, match="must hold 2400 rows of 2 partitions, as in the pass before"):
            committed(task, other)


class OfAUser(SeedPass):
    """A class that derives from a pass."""


def test_classes_of_passes_are_known_by_their_kind():
    task = OfAUser(3, random_state=0)
    again = pickle.loads(pickle.dumps(task))
    assert type(again) is OfAUser
    assert again.to_bytes() == task.to_bytes()
    for data in (task.to_bytes(), CoresetPass(5, random_state=0).to_bytes()):
        with pytest.raises(ValueError, match="kind must be the name of a class of passes, got OfAUser"):
            _core.Pass.from_bytes(data, "OfAUser")


def test_engines_know_how_large_results_become():
    rows = blobs()
    for task in (
        KMeansPass(rows[:300]),
        SeedPass(100, random_state=0),
        CoresetPass(500, random_state=0),
        CoresetPass(5000, random_state=0),
    ):
        passes = 0
        while not getattr(task, "done", passes == 2):
            parts = [task.absorb(part, partition=i) for i, part in enumerate(cut(rows, 0.1))]
            # Beside the sums, a result has a head of about 3 kB.
            assert max(len(part.to_bytes()) for part in parts) < task.result_bytes + 4000
            task, _ = task.commit(parts[0].merge(parts[1]))
            passes += 1


def test_blocks_by_first_row_as_in_the_contract():
    rows, centers = blobs(), blobs()[:4]
    task = KMeansPass(centers, metric="euclidean")
    parts = [task.absorb(rows[i : i + 300], first_row=i) for i in range(0, 2400, 300)]
    totals = []
    for order in itertools.islice(itertools.permutations(parts), 0, 40_000, 8_000):
        total = order[0]
        for part in order[1:]:
            total = total.merge(Partial.from_bytes(part.to_bytes()))
        totals.append(total.to_bytes())
    assert len(set(totals)) == 1
    moved, _, _ = sweep(rows, centers)
    np.testing.assert_allclose(task.commit(total)[0].centers, moved, rtol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: KMeansPass(blobs()[:3], metric="cosine"),
        lambda: SeedPass(4, random_state=2**64 - 1),
        lambda: CoresetPass(50, random_state=3),
        lambda: CoresetPass(5000, random_state=3),
    ],
)
def test_passes_and_results_go_through_bytes_and_pickle(make):
    rows, task = blobs(), make()
    for _ in range(4):
        again = pickle.loads(pickle.dumps(type(task).from_bytes(task.to_bytes())))
        assert again.to_bytes() == task.to_bytes()
        if getattr(task, "done", False):
            break
        part = again.absorb(rows, partition=0)
        assert task.absorb(rows, partition=0).to_bytes() == part.to_bytes()
        assert pickle.loads(pickle.dumps(part)).to_bytes() == part.to_bytes()
        task, _ = task.commit(pickle.loads(pickle.dumps(part)))
    for other in (KMeansPass, SeedPass, CoresetPass):
        if other is not type(task):
            with pytest.raises(ValueError, match="the pass: holds a"):
                other.from_bytes(task.to_bytes())


def test_damaged_bytes_are_refused():
    task = KMeansPass(blobs()[:3])
    part = task.absorb(blobs(), partition=0).to_bytes()
    for made, read in ((part, Partial.from_bytes), (task.to_bytes(), KMeansPass.from_bytes)):
        for bad in (
            b"",
            made[:50],
            made[:-1],
            made + b"x",
            b"\xff" * len(made),
            made.replace(b"distributed-", b"distribution"),
        ):
            with pytest.raises(ValueError, match=r"the partial result|the pass"):
                read(bad)
    with pytest.raises(TypeError):
        Partial("sums")


def test_what_does_not_belong_together_is_refused():
    rows = blobs()
    task = KMeansPass(rows[:3])
    one, two = task.absorb(rows[:100], partition=0), task.absorb(rows[100:], partition=1)
    for _ in range(2):
        with pytest.raises(ValueError, match="partition 1 would be counted twice"):
            one.merge(two).merge(two)
    with pytest.raises(ValueError, match="lacks partition 0"):
        task.commit(two)
    with pytest.raises(ValueError, match=r"lacks rows 0\.\.7"):
        task.commit(task.absorb(rows, first_row=7))
    with pytest.raises(ValueError, match=r"rows 5\.\.100 would be counted twice"):
        task.absorb(rows[:100]).merge(task.absorb(rows, first_row=5))
    with pytest.raises(ValueError, match="numbered in the same way"):
        one.merge(task.absorb(rows, first_row=100))
    with pytest.raises(ValueError, match="partition 4: X has 2 columns, but the centers have 5"):
        task.absorb(rows[:, :2], partition=4)
    wide = task.absorb(rows[100:].astype(np.float64), partition=1)
    with pytest.raises(ValueError, match="got float64 in partition 1 and float32 in partition 0"):
        one.merge(wide)
    following, _ = task.commit(one.merge(two))
    with pytest.raises(ValueError, match="must be a result of this pass"):
        following.commit(one.merge(two))
    with pytest.raises(ValueError, match="a partition is missing"):
        following.commit(following.absorb(rows[:100], partition=0))
    with pytest.raises(ValueError, match="first_row must be 0 with partition=1, got 5"):
        task.absorb(rows, first_row=5, partition=1)
    with pytest.raises(ValueError, match="partition must be an integer of at least 0, got -1"):
        task.absorb(rows, partition=-1)
    with pytest.raises(TypeError, match="other must be a Partial, got int"):
        one.merge(3)
    with pytest.raises(TypeError, match="total must be a Partial, got NoneType"):
        task.commit(None)
    with pytest.raises(ValueError, match=r"partition 3: .*sample_weight"):
        task.absorb(rows, np.full(len(rows), -1.0), partition=3)
    with pytest.raises(FileNotFoundError, match=r"partition 3, on process .*'/nothing\.npy'"):
        task.absorb("/nothing.npy", partition=3)


@pytest.mark.parametrize("bad", [[1.0, 2.0], [[np.nan]], np.zeros((0, 3)), [[1j]], [["a"]]])
def test_centers_are_checked(bad):
    for cls in (KMeansPass, LabelPass):
        with pytest.raises(ValueError, match="centers"):
            cls(bad)


def test_rows_without_weight_and_empty_partitions():
    rows = blobs()
    parts = [rows[:0], rows[:1200], rows[1200:], rows[:0].astype(np.float64)]
    weights = [np.zeros(0), np.ones(1200), np.zeros(1200), None]
    params = {"n_clusters": 6, "init": "k-means||", "random_state": 0}
    found = KMeans(**params).fit(parts, sample_weight=weights)
    expected = KMeans(**params).fit([rows[:0], rows[:1200]])
    np.testing.assert_array_equal(found.cluster_centers_, expected.cluster_centers_)
    assert len(found.labels_) == 2400
    with pytest.raises(ValueError, match="sample_weight must be above 0 for at least one row"):
        KMeans(6).fit([rows], sample_weight=[np.zeros(2400)])
    with pytest.raises(ValueError, match="at least 1 row"):
        KMeans(6).fit([rows[:0], rows[:0]])
    for init in seeding.INITS:
        with pytest.raises(ValueError, match="n_clusters must be at most the number of rows, 3, got 6"):
            KMeans(6, init=init).fit([rows[:1], rows[:2]])
        # Two rows have weight.
        with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(2\)"):
            model = KMeans(3, init=init, random_state=0).fit([rows[:9]], sample_weight=[np.arange(9) // 7])
        assert (model.init_, model.inertia_) == (init, 0.0)
    with pytest.raises(ValueError, match="coreset_size must be None or an integer of at least 6, got 5"):
        KMeans(6, coreset_size=5).fit([rows])


def test_streams_sparse_rows_and_shards_are_partitions(tmp_path):
    import scipy.sparse as sp

    rows = blobs()
    rows[np.abs(rows) < 4] = 0
    init = rows[:6]
    dense = KMeans(6, init=init).fit(cut(rows, *CUTS["even"]))
    found = KMeans(6, init=init).fit([sp.csr_matrix(part) for part in cut(rows, *CUTS["even"])])
    np.testing.assert_allclose(found.cluster_centers_, dense.cluster_centers_, rtol=1e-5, atol=1e-6)
    seeded = KMeans(6, random_state=0, init="k-means||").fit([sp.csr_matrix(part) for part in cut(rows, 0.5)])
    assert np.isfinite(seeded.inertia_)
    streams = [lambda part=part: iter(np.array_split(part, 7)) for part in cut(rows, *CUTS["even"])]
    same(KMeans(6, init=init).fit(streams), dense)
    for i, part in enumerate(np.array_split(rows[:600], 3)):
        np.save(tmp_path / f"{i}.npy", part)
    same(KMeans(6, init=init).fit([str(tmp_path), *cut(rows, *CUTS["even"])[1:]]), dense)


@pytest.mark.parametrize("init", ["k-means++", "k-means||"])
def test_seeds_are_rows_far_from_each_other(init):
    rows = blobs(n=6000, k=12, seed=3)
    found = [
        KMeans(12, init=init, random_state=s, max_iter=1, tol=0)
        .fit(cut(rows, 0.2, 0.9))
        .history_["objective"][0]
        for s in range(5)
    ]
    local = [
        shoal.metrics.inertia(rows, shoal.kmeans_parallel(rows, 12, random_state=s)[0]) for s in range(5)
    ]
    random = shoal.metrics.inertia(rows, rows[:12])
    assert np.mean(found) < 1.3 * np.mean(local) < random


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_many_centers_are_chosen_by_a_tree_of_the_coreset(metric):
    rows = blobs(n=12_000, k=12, seed=3)
    params = {"metric": metric, "random_state": 4, "max_iter": 1, "tol": 0}
    parts = cut(rows, 0.2, 0.9)
    tree = KMeans(40, init="hierarchical", **params).fit(parts)
    coreset = distributed.lightweight_coreset(parts, 10_000, metric=metric, random_state=4)
    local = shoal.KMeans(40, init="hierarchical", n_init=1, **params).iter_fit(coreset)
    # The first step of the local fit measures the same centers, over the coreset.
    expected = next(local).objective
    assert tree.history_["objective"][0] == pytest.approx(expected, rel=0.05)
    assert tree.history_["objective"][0] != expected


def test_a_tree_finds_rare_groups():
    rng = np.random.default_rng(0)
    rare = rng.normal(size=(5, 8)) * 100
    rows = np.concatenate([rng.normal(size=(20_000, 8)), np.repeat(rare, 4, axis=0)])
    rows = rows[rng.permutation(len(rows))]
    for seed in range(5):
        model = KMeans(100, init="hierarchical", random_state=seed, max_iter=1).fit(cut(rows, 0.5))
        assert (shoal.nearest(rare, model.cluster_centers_)[1] < 1).all()


def test_draws_of_seeds_follow_weights_and_squared_distances():
    # From a center at 0, the odds of 1, 2 and 3 are 1 : 4 : 9; each round draws one row.
    rows, counts = np.array([[0.0], [1.0], [2.0], [3.0]]), np.zeros(4)
    for seed in range(1500):
        task = SeedPass(2, oversampling_factor=0.5, n_rounds=1, random_state=seed)
        task, _ = task.commit(task.absorb(rows, [1e12, 1e-12, 1e-12, 1e-12], partition=0))
        task, _ = task.commit(task.absorb(rows, partition=0))
        task, _ = task.commit(task.absorb(rows, partition=0))
        assert task.done
        counts[int(task.centers.max())] += 1
    expected = 1500 * np.array([0, 1, 4, 9]) / 14
    assert counts[0] == 0
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected + 1)).all(), counts


def test_coresets_estimate_the_cost():
    rows = blobs(n=20_000, seed=4)
    centers = rows[:6]
    exact = shoal.metrics.inertia(rows, centers)
    errors = []
    for seed in range(8):
        coreset = distributed.lightweight_coreset(cut(rows, 0.1, 0.15, 0.8), 1000, random_state=seed)
        np.testing.assert_array_equal(rows[coreset.indices], coreset.points)
        assert (np.diff(coreset.indices) >= 0).all()
        errors.append(shoal.metrics.inertia(coreset.points, centers, coreset.weights) / exact - 1)
    assert abs(np.mean(errors)) < 0.04
    assert max(map(abs, errors)) < 0.2
    few = distributed.lightweight_coreset(cut(rows[:50], 0.1, 0.1, 0.8), 50)
    np.testing.assert_array_equal(few.indices, np.arange(50))
    np.testing.assert_array_equal(few.weights, np.ones(50))


def test_fewer_distinct_rows_than_clusters():
    rows = np.repeat([[0.0, 1.0], [5.0, 5.0]], 30, axis=0)
    with pytest.warns(
        ConvergenceWarning, match=r"distinct clusters \(2\) found smaller than n_clusters \(4\)"
    ):
        model = KMeans(4, random_state=0).fit(cut(rows, 0.3, 0.7))
    assert model.inertia_ == 0
    assert sorted(model.counts_.tolist()) == [0, 0, 30, 30]


def test_rows_of_zeros_are_counted():
    rows = np.concatenate([np.zeros((3, 5), np.float32), blobs(), np.zeros((2, 5), np.float32)])
    with pytest.warns(UserWarning, match="5 rows of X are all zeros"):
        model = KMeans(3, metric="cosine", random_state=0, max_iter=3).fit(cut(rows, 0.4))
    assert model.n_zero_rows_ == 5


@pytest.mark.parametrize("module", ["partial", "passes", "draws"])
def test_the_examples_of_the_passes_run(module):
    found = doctest.testmod(importlib.import_module(f"shoal._distributed.{module}"))
    assert found.attempted > 5
    assert found.failed == 0


def test_a_fitted_estimator_becomes_a_local_one(tmp_path):
    rows = blobs()
    model = KMeans(6, random_state=0).fit(cut(rows, 0.5))
    local = model.to_local()
    np.testing.assert_array_equal(local.predict(rows), model.labels_)
    assert (local.inertia_, local.n_iter_) == (model.inertia_, model.n_iter_)
    local.save(tmp_path / "model.safetensors")
    again = shoal.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(rows), model.predict(cut(rows, 0.2)))
    copied = pickle.loads(pickle.dumps(model))
    same(copied, model)
    with pytest.raises(NotFittedError):
        KMeans(3).to_local()
    with pytest.raises(NotFittedError):
        KMeans(3).predict([rows])


def test_parameters_are_checked_together():
    with pytest.raises(
        ValueError, match=r"n_clusters must .*; tol must .*; init must be one of k-means\+\+, hier"
    ) as caught:
        KMeans(0, tol=-1, init="random").fit([blobs()])
    assert "got 'random'" in str(caught.value)
    with pytest.raises(ValueError, match="X must be a list of partitions"):
        KMeans(2).fit(blobs())
    with pytest.raises(ValueError, match="X must be a list of partitions"):
        KMeans(2).fit("rows.npy")
    with pytest.raises(ValueError, match="partition 1 reads its rows more than once, which an iterator"):
        KMeans(2).fit([blobs(), iter([blobs()])])
    with pytest.raises(ValueError, match="at least 1 partition, got 0"):
        KMeans(2).fit([])
    with pytest.raises(ValueError, match=r"executor must be a concurrent\.futures\.Executor or None, got 3"):
        KMeans(2).fit([blobs()], executor=3)
    with pytest.raises(ValueError, match="sample_weight must be a list of 1 arrays"):
        KMeans(2).fit([blobs()], sample_weight=[None, None])
    with pytest.raises(ValueError, match=r"init must have shape \(2, n_features\), got \(3, 5\)"):
        KMeans(2, init=blobs()[:3]).fit([blobs()])


class Dying:
    """A partition that kills its process the third time that one reads it."""

    def __init__(self, rows, folder):
        self.rows, self.folder = rows, folder

    def __array__(self, dtype=None, copy=None):
        marks = Path(self.folder)
        n = len(list(marks.iterdir()))
        (marks / str(n)).touch()
        if n == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.rows


def test_a_killed_worker_leaves_the_last_whole_step(tmp_path):
    partitions = cut(blobs(), *CUTS["even"])
    params = {"n_clusters": 12, "init": blobs()[:12], "tol": 0.0}
    whole = KMeans(**params).fit(partitions)
    assert whole.n_iter_ > 3
    path, marks = tmp_path / "run.safetensors", tmp_path / "marks"
    marks.mkdir()
    dying = [partitions[0], Dying(partitions[1], str(marks)), *partitions[2:]]
    model = KMeans(**params, callbacks=[Checkpoint(path, every=3600)])
    lost = r"the executor lost a task: BrokenProcessPool.*state after step \d"
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(2, mp_context=context) as pool, pytest.raises(RuntimeError, match=lost):
        model.fit(dying, executor=pool)
    assert 0 < len(model.history_) < whole.n_iter_
    np.testing.assert_array_equal(
        model.history_["objective"], whole.history_["objective"][: len(model.history_)]
    )
    with pytest.raises(AttributeError, match="inertia_"):
        _ = model.inertia_
    with ThreadPoolExecutor(2) as pool:
        found = KMeans(**params).fit(partitions, executor=pool, resume_from=path)
    same(found, whole)
    with pytest.raises(ValueError, match=r"tol must be 0\.0, as in the checkpoint, got 0\.5"):
        KMeans(**params | {"tol": 0.5}).fit(partitions, resume_from=path)

    class Other(KMeans):
        pass

    with pytest.raises(ValueError, match="must hold a fit of Other, got one of KMeans"):
        Other(**params).fit(partitions, resume_from=path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"run\.safetensors"):
        KMeans(**params).fit(partitions, resume_from=path)


class Losing(ExecutorEngine):
    """Loses the last partition in one pass, or its machines when rows are labeled."""

    name = "the lossy engine"

    def __init__(self, partitions, lost=None, labels=False):
        super().__init__(partitions)
        self.passes, self.lost, self.without_labels = 0, lost, labels

    def total(self, task):
        self.passes += 1
        if self.passes != self.lost:
            return super().total(task)
        return merged(task.absorb(rows, partition=i) for i, rows in enumerate(self._partitions[:-1]))

    def rows(self, task):
        if self.without_labels:
            raise ConnectionError("gone")
        return super().rows(task)


def fitted(model, engine):
    """Fit to the rows of an engine."""
    for _ in model._iterate(engine):
        pass
    return model


@pytest.mark.parametrize(
    ("init", "lost"),
    [("k-means||", 1), ("k-means||", 3), ("k-means++", 1), ("array", 1), ("array", 2), ("array", 3)],
)
def test_a_missing_last_partition_is_an_error(init, lost):
    first = blobs()[:6] if init == "array" else init
    engine = Losing(cut(blobs(), 0.3, 0.6, 0.9), lost)
    model = KMeans(6, init=first, max_iter=2, tol=0.0, random_state=0)
    with pytest.raises(RuntimeError, match="the lossy engine returned results of 3 of 4 partitions"):
        fitted(model, engine)
    assert engine.passes == lost
    assert "_labels" not in vars(model) or model._labels is None


def test_empty_partitions_are_not_missing():
    rows = blobs()
    same(
        fitted(KMeans(6, random_state=0), Losing([rows[:0], rows, rows[:0]])),
        KMeans(6, random_state=0).fit([rows[:0], rows, rows[:0]]),
    )


def test_machines_lost_while_rows_are_labeled(monkeypatch):
    parts = cut(blobs(), 0.5)
    model = KMeans(6, init=blobs()[:6])
    with pytest.raises(
        RuntimeError, match=r"the lossy engine lost a task: ConnectionError: gone\. .*step \d"
    ):
        fitted(model, Losing(parts, labels=True))
    assert model.inertia_ > 0
    monkeypatch.setattr(model, "_open", lambda X, weights, reset: Losing(X, labels=True))
    with pytest.raises(
        RuntimeError, match=r"lost a task: ConnectionError: gone\. The estimator is unchanged"
    ):
        model.predict(parts)


@pytest.mark.parametrize("module", ["distributed", "dask", "spark", "ray"])
def test_what_replaces_mini_batches_is_named(module):
    found = importlib.import_module(f"shoal.{module}")
    message = rf"'shoal\.{module}' has no attribute 'MiniBatchKMeans'.*lightweight_coreset.*KMeans\(max_iter"
    with pytest.raises(AttributeError, match=message):
        _ = found.MiniBatchKMeans
    with pytest.raises(AttributeError, match=r"has no attribute 'Other'$"):
        _ = found.Other
    for name, instead in (("afk-mc2", "Use"), ("random", "Use"), ("kmeans++", "Did you mean")):
        with pytest.raises(ValueError, match=rf"got '{re.escape(name)}'\. {instead} 'k-means\+\+'"):
            found.KMeans(2, init=name).fit([blobs()])
    with pytest.raises(TypeError, match=r"^KMeans\.__init__\(\) got an unexpected keyword argument 'n_init'"):
        found.KMeans(2, n_init=3)


def test_the_output_of_transform_can_be_set():
    pandas = pytest.importorskip("pandas")
    parts = cut(blobs(), 0.3)
    model = KMeans(3, random_state=0).fit(parts)
    known = model.transform(parts)
    assert isinstance(known, np.ndarray)
    model.set_output(transform="pandas")
    for found in (model.transform(parts), model.fit_transform(parts)):
        assert isinstance(found, pandas.DataFrame)
        assert found.columns.tolist() == ["kmeans0", "kmeans1", "kmeans2"]
        np.testing.assert_array_equal(found, known)
    for module in ("dask", "spark", "ray"):
        # The kind of the output is that of the input.
        assert not hasattr(importlib.import_module(f"shoal.{module}").KMeans(), "set_output")


def test_a_loop_takes_the_weights_of_its_rows():
    parts, weights = cut(blobs(), 0.3), cut(np.arange(2400) % 3, 0.3)
    steps = list((model := KMeans(3, random_state=0)).iter_fit(parts, weights))
    assert len(steps) == model.n_iter_
    same(model, KMeans(3, random_state=0).fit(parts, sample_weight=weights))


def test_what_needs_a_fit_says_so():
    for name in ("predict", "transform", "score"):
        with pytest.raises(NotFittedError):
            getattr(KMeans(3), name)([blobs()])
    model = KMeans(3, random_state=0).fit([blobs()])
    for name in ("predict", "transform", "score"):
        message = r"partition 0: (centers have 5 columns, X has 4|X has 4 columns)"
        with pytest.raises(ValueError, match=message):
            getattr(model, name)([blobs()[:, :4]])
    with pytest.raises(ValueError, match="X must have at least 1 row, got 0"):
        model.score([blobs()[:0]])
    assert sorted(sklearn.base.clone(model).get_params()) == sorted(model.get_params())


@pytest.mark.parametrize("n", [1, 2, 5, 8, 13, 64, 100])
@pytest.mark.parametrize("n_tasks", [1, 2, 3, 7, 200])
@pytest.mark.parametrize("most", [1, 2, 5, 1000])
def test_runs_take_every_partition_once(n, n_tasks, most):
    rng = np.random.default_rng(n)
    for own in (range(n), sorted(rng.permutation(3 * n)[:n].tolist())):
        found = runs(own, n_tasks, most)
        assert [i for run in found for i in run] == list(own)
        assert len(found) >= min(n, n_tasks) or n_tasks > n / 2
        for run in found:
            assert len(run) <= -(-n // n_tasks)
            assert n_sums(run) <= most
        if most == 1000:
            assert len(found) <= n_tasks


def test_sums_are_those_that_a_result_holds():
    rows = blobs()
    task = KMeansPass(rows[:3])
    rng = np.random.default_rng(0)
    for _ in range(30):
        numbers = sorted(rng.permutation(20)[: rng.integers(1, 20)].tolist())
        part = absorbed(task, [(i, rows[4 * i :][:4], None) for i in numbers], 1)
        assert part.to_bytes().count(b'.clusters_energies"') == n_sums(numbers)


def test_a_fingerprint_has_all_weights():
    rows, weights = blobs(), np.ones(2400)
    task = KMeansPass(rows[:3])

    def pieces(given, *at):
        return zip(cut(rows, *at), cut(given, *at), strict=True)

    part, found = absorbed_pieces(task, Arriving(0, pieces(weights), True), None, 1)
    again, _ = absorbed_pieces(task, Arriving(0, pieces(weights, 0.1, 0.7), True), found, 1)
    assert again.to_bytes() == part.to_bytes()
    for row in (0, 1, 1234, 2399):
        other = weights.copy()
        other[row] = 2
        with pytest.raises(ValueError, match="partition 0: the engine gave other rows or weights"):
            absorbed_pieces(task, Arriving(0, pieces(other, 0.1), True), found, 1)
    seen = Seen()
    assert sum(len(block) for block, _ in printed(pieces(weights, 0.4), seen)) == 2400
    assert seen.number() == found


def test_a_checkpoint_has_a_digest_of_the_first_centers(tmp_path):
    path, rows, init = tmp_path / "run.safetensors", blobs(), blobs()[:6]
    KMeans(6, init=init, callbacks=[Checkpoint(path, every_steps=1)]).fit([rows])
    assert b"sha256" in path.read_bytes()
    KMeans(6, init=init.tolist()).fit([rows], resume_from=path)
    other = init.copy()
    other[3, 2] = np.nextafter(other[3, 2], np.float32(0))
    for given in (other, init[:, :2], "k-means++"):
        with pytest.raises(ValueError, match=r"init must be .*as in the checkpoint"):
            KMeans(6, init=given).fit([rows], resume_from=path)


@pytest.mark.parametrize("max_iter", [2, 50])
def test_a_resumed_fit_knows_the_rows_of_zeros(max_iter, tmp_path):
    path = tmp_path / "run.safetensors"
    rows = np.concatenate([np.zeros((3, 5)), blobs(dtype=np.float64)])
    params = {"n_clusters": 3, "metric": "cosine", "init": rows[10:13], "max_iter": max_iter, "tol": 0.0}
    for options in ({}, {"resume_from": path}):
        with pytest.warns(UserWarning, match="3 rows of X are all zeros"):
            model = KMeans(**params, callbacks=[Checkpoint(path, every_steps=1)]).fit([rows], **options)
        assert model.n_zero_rows_ == 3
    assert model.stop_reason_ == ("max-iter" if max_iter == 2 else "labels-stable")


def test_a_checkpoint_whose_history_is_of_another_length_is_refused(tmp_path):
    path, rows = tmp_path / "run.safetensors", blobs()

    def write_too_few(model, step):
        last = model._history.pop()
        model._write_checkpoint(path)
        model._history.append(last)

    KMeans(6, init=rows[:6], max_iter=3, tol=0.0, callbacks=[write_too_few]).fit([rows])
    with pytest.raises(ValueError, match=r"run\.safetensors: is damaged: its pass comes after 3 steps"):
        KMeans(6, init=rows[:6], max_iter=3, tol=0.0).fit([rows], resume_from=path)


def test_weights_are_checked_by_name():
    rows = blobs()
    for bad, problem in (
        (np.ones(2400, complex), "sample_weight must be real, got complex numbers"),
        (["heavy"] * 2400, "sample_weight must hold numbers"),
        (np.ones((2400, 1)), r"sample_weight must be 1-D, one weight per row, got shape \(2400, 1\)"),
        (np.ones(7), "sample_weight has 7 values, X has 2400 rows"),
    ):
        with pytest.raises(ValueError, match="partition 0: " + problem):
            KMeans(2).fit([rows], sample_weight=[bad])
    for bad in (5, "weights", np.float64(2), np.array(1.0)):
        with pytest.raises(
            TypeError, match="sample_weight must be a list of 1 arrays, one per partition, got"
        ):
            KMeans(2).fit([rows], sample_weight=bad)


@pytest.mark.parametrize("seed", range(4))
def test_inertia_has_the_bits_of_a_local_fit_for_any_number_of_partitions(seed):
    X = np.random.default_rng(seed).normal(size=(1500, 5))
    local = shoal.KMeans(9, init=X[:9], max_iter=5, tol=0, algorithm="lloyd").fit(X)
    for n in (1, 2, 3, 5, 10):
        model = KMeans(9, init=X[:9], max_iter=5, tol=0).fit(np.array_split(X, n))
        assert model.inertia_ == local.inertia_
        np.testing.assert_array_equal(model.cluster_centers_, local.cluster_centers_)
