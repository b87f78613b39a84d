"""The passes of `shoal.distributed` against a slow reference, and what they refuse."""

import doctest
import importlib
import itertools
import pickle

import numpy as np
import pytest
from distributed_suite import CUTS, blobs, cut
from shoal import _core
from shoal._distributed import seeding
from shoal._distributed.batches import Arriving, Seen, absorbed_pieces, printed
from shoal._distributed.engine import runs, tree
from shoal.distributed import CoresetPass, KMeans, KMeansPass, LabelPass, Partial, SeedPass
from sklearn.exceptions import ConvergenceWarning


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


@pytest.mark.parametrize("module", ["partial", "passes", "draws"])
def test_the_examples_of_the_passes_run(module):
    found = doctest.testmod(importlib.import_module(f"shoal._distributed.{module}"))
    assert found.attempted > 5
    assert found.failed == 0


@pytest.mark.parametrize("n", [1, 2, 5, 8, 13, 64, 100])
@pytest.mark.parametrize("n_tasks", [1, 2, 3, 7, 200])
def test_runs_take_every_partition_once(n, n_tasks):
    rng = np.random.default_rng(n)
    for own in (range(n), sorted(rng.permutation(3 * n)[:n].tolist())):
        found = runs(own, n_tasks)
        assert [i for run in found for i in run] == list(own)
        assert len(found) >= min(n, n_tasks) or n_tasks > n / 2
        assert len(found) <= n_tasks
        assert all(len(run) <= -(-n // n_tasks) for run in found)


def test_a_tree_merges_every_result_once():
    def merge(some):
        assert len(some) <= 8
        return [*itertools.chain.from_iterable(some)]

    for n, most in ((1, 1), (8, 1), (9, 1), (70, 5), (70, 0)):
        left = tree([[i] for i in range(n)], merge, most)
        assert merge(left) == list(range(n))
        assert len(left) <= max(1, most)


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
