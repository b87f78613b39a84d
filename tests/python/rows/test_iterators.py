"""Streams of blocks as X: iterators and callables."""

import gc
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
import shoal
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from shoal import BackwardEulerKMeans, KMeans, MiniBatchKMeans, NestedMiniBatchKMeans
from shoal._rows.prefetch import Prefetch

X = np.random.default_rng(0).integers(0, 200, size=(5000, 6), dtype=np.uint8)


def blocks(rows=X, size=700):
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def pullers():
    return [thread for thread in threading.enumerate() if thread.name == "shoal-read-ahead"]


def gone(seconds=5.0):
    """Wait a moment for prefetching threads to end; return whether none is left."""
    end = time.monotonic() + seconds
    while pullers() and time.monotonic() < end:
        time.sleep(0.01)
    return not pullers()


def test_a_callable_is_a_source_of_unknown_length():
    with shoal.open(blocks) as source:
        assert source.shape == (None, 6)
        assert (source.dtype, source.access, source.nbytes) == (np.dtype("uint8"), "replay", None)
        for size in (None, 1, 333, 9999):
            got = list(source.blocks(size))
            np.testing.assert_array_equal(np.concatenate(got), X)
            if size is not None:
                assert all(len(block) == size for block in got[:-1])
        np.testing.assert_array_equal(source.take([4999, 0, 0, 17]), X[[4999, 0, 0, 17]])
        with pytest.raises(IndexError, match="row 5000 does not exist"):
            source.take([0, 5000])
        with pytest.raises(IndexError, match=r"row -1 does not exist.*unknown"):
            source.take([-1])
        with pytest.raises(ValueError, match=r"no parts.*shoal\.write"):
            source.slice(0, 10)
        with pytest.raises(TypeError, match="no length"):
            len(source)
        assert "unknown x 6 uint8, access replay" in repr(source)


def test_an_iterator_is_a_one_pass_source():
    source = shoal.open(blocks())
    assert (source.shape, source.access) == ((None, 6), "once")
    with pytest.raises(ValueError, match="only once"):
        source.take([0])
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), X)
    with pytest.raises(ValueError, match="already read"):
        list(source.blocks())
    source = shoal.open(iter([X[:10]]))
    assert shoal.metrics.inertia(source, X[:1]) > 0
    with pytest.raises(ValueError, match="already read"):
        shoal.metrics.inertia(source, X[:1])


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "float32", "float64", "int64", "bool", ">f4"])
def test_a_stream_gives_the_results_of_its_rows_in_memory(dtype):
    rows = (X % 7).astype(dtype)
    one = KMeans(7, init=rows[:7].astype("f8"), max_iter=5, n_jobs=1).fit(rows)
    for threads, size in ((1, 700), (2, 700), (2, 5000)):
        other = KMeans(7, init=rows[:7].astype("f8"), max_iter=5, n_jobs=threads).fit(
            lambda s=size: blocks(rows, s)
        )
        np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
        assert one.cluster_centers_.dtype == other.cluster_centers_.dtype
        np.testing.assert_array_equal(one.labels_, other.labels_)
        assert one.inertia_ == other.inertia_
    np.testing.assert_array_equal(one.predict(rows), one.predict(blocks(rows)))
    np.testing.assert_array_equal(one.transform(rows), one.transform(blocks(rows, 1)))
    assert one.score(rows) == one.score(blocks(rows)) == one.score(lambda: blocks(rows, 64))


@settings(deadline=None, max_examples=40)
@drawn(lengths=st.lists(st.integers(0, 90), min_size=1, max_size=8), d=st.integers(1, 5), k=st.integers(1, 3))
def test_block_lengths_do_not_change_results(lengths, d, k):
    rows = np.random.default_rng(sum(lengths)).normal(size=(sum(lengths), d)).astype("f4")
    cuts = np.split(rows, np.cumsum(lengths)[:-1])
    centers = np.eye(k, d)
    if not len(rows):
        with pytest.raises(ValueError, match=f"at least 1 row, got {len(lengths)} empty blocks"):
            shoal.nearest(iter(cuts), centers)
        return
    expected = shoal.nearest(rows, centers)
    for given in (iter(cuts), lambda: cuts, lambda: iter(cuts)):
        for one, other in zip(expected, shoal.nearest(given, centers), strict=True):
            np.testing.assert_array_equal(one, other)


def test_seeding_and_all_methods_accept_streams():
    centers, indices = shoal.kmeans_plusplus(blocks, 5, random_state=0)
    np.testing.assert_array_equal(centers, X[indices])
    again = shoal.kmeans_plusplus(X, 5, random_state=0)
    np.testing.assert_array_equal(again[1], indices)
    nested = NestedMiniBatchKMeans(4, shuffle=False, max_iter=3, random_state=0).fit(blocks)
    assert len(nested.labels_) == len(X)
    with pytest.warns(RuntimeWarning, match="shuffle=True has no effect"):
        in_order = NestedMiniBatchKMeans(4, max_iter=3, random_state=0).fit(blocks)
    np.testing.assert_array_equal(in_order.cluster_centers_, nested.cluster_centers_)
    assert in_order.shuffle is True
    graph, info = shoal.knn_graph(blocks, 3, return_info=True)
    expected, other = shoal.knn_graph(X, 3, return_info=True)
    assert info == other
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(graph, part), getattr(expected, part))
    with pytest.raises(ValueError, match="knn_graph reads its rows more than once"):
        shoal.knn_graph(blocks(), 3)
    mini = MiniBatchKMeans(4, random_state=0).fit(blocks)
    np.testing.assert_array_equal(mini.labels_, mini.predict(X))


def test_one_pass_methods_accept_iterators():
    mini = MiniBatchKMeans(4, random_state=0).fit(blocks())
    assert mini.counts_.sum() >= len(X)
    for name in ("labels_", "inertia_"):
        with pytest.raises(AttributeError, match=r"no longer available.*Use predict"):
            getattr(mini, name)
    assert mini.predict(X).shape == (len(X),)
    for make in (MiniBatchKMeans, NestedMiniBatchKMeans, BackwardEulerKMeans):
        streamed = make(4, random_state=0).partial_fit(blocks()).partial_fit(lambda: blocks(X[::2], 300))
        batches = make(4, random_state=0)
        for block in (*blocks(), *blocks(X[::2], 300)):
            batches.partial_fit(block)
        np.testing.assert_array_equal(batches.cluster_centers_, streamed.cluster_centers_)
        assert batches.n_steps_ == streamed.n_steps_
        with pytest.raises(ValueError, match=r"sample_weight must be None for a stream"):
            streamed.partial_fit(blocks(), sample_weight=np.ones(len(X)))
        with pytest.raises(OddError):
            streamed.partial_fit(failing(2)())
        assert streamed.n_steps_ == batches.n_steps_ + 2
    for step in MiniBatchKMeans(4, random_state=0).iter_fit(blocks()):
        assert step.objective > 0


@pytest.mark.parametrize(
    "use",
    [
        lambda X: KMeans(3).fit(X),
        lambda X: KMeans(3).fit_predict(X),
        lambda X: NestedMiniBatchKMeans(3).fit(X),
        lambda X: MiniBatchKMeans(3).fit_predict(X),
        lambda X: MiniBatchKMeans(3).fit_transform(X),
        lambda X: shoal.kmeans_plusplus(X, 3),
    ],
)
def test_multi_pass_methods_refuse_iterators_before_reading(use):
    untouched = blocks()
    with pytest.raises(
        ValueError, match=r"more than once.*callable that returns a fresh iterator.*shoal\.write"
    ):
        use(untouched)
    np.testing.assert_array_equal(np.concatenate(list(untouched)), X)
    opened = shoal.open(blocks())
    with pytest.raises(ValueError, match="more than once"):
        use(opened)
    np.testing.assert_array_equal(np.concatenate(list(opened.blocks())), X)


def test_block_types():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    rows = X[:60].astype("f4")
    mixed = [
        rows[:10],
        pandas.DataFrame(rows[10:20]),
        polars.DataFrame(rows[20:30]),
        np.asfortranarray(rows[30:40]),
        rows[40:50].astype(">f4"),
        rows[::-1][9::-1][::-1][:0],
        rows[50:],
    ]
    centers = rows[:3]
    np.testing.assert_array_equal(shoal.nearest(iter(mixed), centers)[0], shoal.nearest(rows, centers)[0])
    assert shoal.nearest(iter([[[1, 2], [3, 4]]]), [[0, 0]])[1].tolist() == [5.0, 25.0]


def test_a_reused_buffer_is_copied_in_time():
    def reused():
        buffer = np.empty((500, 6), dtype=X.dtype)
        for start in range(0, len(X), 500):
            buffer[:] = X[start : start + 500]
            yield buffer
        buffer[:] = 255

    centers = X[:9]
    np.testing.assert_array_equal(shoal.nearest(reused(), centers)[0], shoal.nearest(X, centers)[0])


@pytest.mark.parametrize(
    ("bad", "kind", "message"),
    [
        (X[:9, :5], ValueError, "block 2 of X has 5 columns, the first one has 6"),
        (X[:9].astype("f4"), ValueError, "block 2 of X holds float32, the first one uint8"),
        (X[0], ValueError, r"block 2 of X: Expected 2D array, got 1D"),
        (X[None], ValueError, r"block 2 of X: Found array with dim 3"),
        (X[:9].astype(complex), ValueError, "block 2 of X: Complex data not supported"),
        ([["a", "b"]], ValueError, "block 2 of X"),
        (None, ValueError, "block 2 of X"),
        ([[1, 2], [3]], ValueError, "block 2 of X"),
    ],
)
def test_an_invalid_block_is_named(bad, kind, message):
    model = KMeans(3, random_state=0).fit(X)
    cuts = [X[:50], X[50:99], bad, X[99:]]
    for given in (iter(cuts), lambda: cuts):
        with pytest.raises(kind, match=message):
            model.predict(given)
    assert gone()


def test_empty_streams_are_refused():
    for nothing in ([], [X[:0]], [X[:0], X[:0]]):
        for given in (iter(nothing), lambda n=nothing: iter(n), lambda n=nothing: n):
            with pytest.raises(ValueError, match=f"at least 1 row, got {len(nothing)} empty blocks"):
                MiniBatchKMeans(2).fit(given)
    for wrong in (lambda: 5, lambda: None):
        with pytest.raises(TypeError, match=r"X\(\) must return an iterator of blocks"):
            KMeans(2).fit(wrong)
    with pytest.raises(ValueError, match=r"n_samples=2|at most"):
        KMeans(3).fit(lambda: iter([X[:1], X[1:2]]))


class OddError(Exception):
    pass


def failing(after):
    def make():
        yield from itertools.islice(blocks(), after)
        raise OddError(after)

    return make


def test_errors_of_the_iterator_are_raised():
    with pytest.raises(OddError):
        KMeans(3).fit(failing(0))
    model = MiniBatchKMeans(3, random_state=0)
    with pytest.raises(OddError) as caught:
        model.fit(failing(4)())
    assert caught.value.args == (4,)
    # The traceback includes the line that raised the error.
    assert any(entry.name == "make" for entry in caught.traceback)
    fitted = KMeans(3, random_state=0).fit(X)
    before = fitted.cluster_centers_.copy()
    for use in (fitted.predict, fitted.transform, fitted.score, fitted.fit):
        with pytest.raises(OddError):
            use(failing(3))
    np.testing.assert_array_equal(fitted.cluster_centers_, before)

    def interrupted():
        yield X
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted.predict(interrupted())
    assert gone()


def test_a_failed_pass_keeps_the_last_complete_step():
    broken = [False]

    def make():
        yield X[:2500]
        if broken[0]:
            raise OddError
        yield X[2500:]

    model = KMeans(3, init=X[:3].astype("f8"), tol=0, random_state=0)
    steps = model.iter_fit(make)
    next(steps)
    after_one = model.cluster_centers_.copy()
    broken[0] = True
    with pytest.raises(OddError):
        next(steps)
    np.testing.assert_array_equal(model.cluster_centers_, after_one)
    assert len(model.history_) == 1
    assert model.predict(X).shape == (len(X),)


def test_a_callable_must_give_fresh_iterators():
    same = blocks()
    with pytest.raises(ValueError, match="same iterator for two passes"):
        KMeans(3).fit(lambda: same)
    same = map(np.asarray, blocks())
    with pytest.raises(ValueError, match="same iterator for two passes"):
        KMeans(3).fit(lambda: same)
    whole = blocks()
    with pytest.raises(ValueError, match=r"gave other rows.*the same rows"):
        KMeans(3).fit(lambda: (block for block in whole))
    lengths = itertools.chain([5000, 5000], itertools.repeat(4999))
    with pytest.raises(ValueError, match="5000 rows in one pass and 4999 in another"):
        KMeans(3).fit(lambda: iter([X[: next(lengths)]]))


def test_weights_of_a_stream_must_match_its_length():
    weights = np.random.default_rng(1).random(len(X))
    init = X[:4].astype("f8")
    one = KMeans(4, init=init, max_iter=4).fit(X, sample_weight=weights)
    other = KMeans(4, init=init, max_iter=4).fit(blocks, sample_weight=weights)
    np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
    assert one.score(X, sample_weight=weights) == one.score(blocks(), sample_weight=weights)
    for wrong in (weights[:-1], np.append(weights, 1)):
        with pytest.raises(ValueError, match=f"sample_weight has {len(wrong)} values"):
            KMeans(4, init=init).fit(blocks, sample_weight=wrong)
    with pytest.raises(ValueError, match="must be an array, one weight per row, for a stream"):
        KMeans(4).fit(blocks, sample_weight=2.0)


def test_generators_are_closed_and_threads_end():
    closed = []

    def make():
        try:
            for i in itertools.count():
                yield X[:100] + np.uint8(i % 3)
        finally:
            closed.append(threading.current_thread().name)

    source = shoal.open(make)
    assert len(closed) == 1
    # A pass that ends early, over an endless stream.
    np.testing.assert_array_equal(source.take([0]), X[:1])
    assert gone()
    assert closed == ["MainThread", "shoal-read-ahead"]
    given = itertools.count()

    def bad():
        yield X
        try:
            yield X[:, :2]
            yield X
        finally:
            next(given)

    with pytest.raises(ValueError, match="block 1"):
        KMeans(2, random_state=0).fit(X).predict(bad())
    assert gone()
    assert next(given) == 1


def test_exactly_one_block_is_prefetched():
    pulled = []

    def make():
        for i in range(12):
            pulled.append(i)
            yield np.zeros((20, 1), dtype="u1")

    with Prefetch(make()) as ahead:
        for taken, _ in enumerate(itertools.islice(ahead, 6), start=1):
            time.sleep(0.05)
            assert taken <= len(pulled) <= taken + 1
    assert gone()
    assert len(pulled) <= 7


def test_memory_of_a_stream_is_bounded():
    code = """
        import resource, numpy as np, shoal
        def make():
            for i in range(300):
                yield np.full((20000, 64), i % 50, dtype=np.uint8)
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        shoal.KMeans(2, max_iter=2, n_jobs=2).fit(np.random.default_rng(0).random((3000, 64), dtype="f4"))
        before = peak()
        init = np.repeat([[0.0], [12], [24], [36]], 64, axis=1)
        model = shoal.KMeans(4, init=init, max_iter=2, n_jobs=2).fit(make)
        # 366 MiB of rows; 23 MiB of labels, twice while they are handed over, and 4 collected blocks in f32.
        print(peak() - before, len(model.labels_))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    grown, rows = map(int, done.stdout.split())
    assert rows == 6_000_000
    assert grown < 200, grown


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_during_a_sleeping_iterator_takes_less_than_a_second():
    code = """
        import sys, time, numpy as np, shoal
        def slow():
            yield np.zeros((10, 2))
            print("asleep", flush=True)
            time.sleep(100)
            yield np.zeros((10, 2))
        try:
            shoal.nearest(slow(), [[0.0, 0.0]])
        except KeyboardInterrupt:
            print("seen", flush=True)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "asleep\n"
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert out == "seen\n", err
    assert child.returncode == 0, err
    assert err == ""


def test_iterators_may_call_shoal():
    code = """
        import sys, numpy as np, shoal
        A = np.random.default_rng(0).normal(size=(20_000, 32))
        for threads in (1, 2):
            pre = shoal.KMeans(16, n_jobs=threads, random_state=0, max_iter=2, tol=0).fit(A)
            def blocks():
                # In the thread that asks for an iterator, and in the one that reads ahead.
                pre.score(A)
                return (pre.transform(A) for _ in range(3))
            kept = np.concatenate(list(blocks()))
            for model in (
                shoal.KMeans(8, n_jobs=threads, random_state=0, max_iter=3, tol=0, init=kept[:8]),
                shoal.MiniBatchKMeans(8, n_jobs=threads, random_state=0, max_iter=2, init=kept[:8]),
                shoal.NestedMiniBatchKMeans(8, shuffle=False, n_jobs=threads, random_state=0, max_iter=3),
            ):
                model.fit(blocks)
                assert np.array_equal(model.predict(blocks), model.predict(kept))
                out = np.empty(len(kept), "i4")
                assert np.array_equal(model.predict(blocks(), out=out), model.predict(kept))
        print("done")
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    assert done.stdout == "done\n"


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("where", ["work", "iterator", "callable"])
def test_ctrl_c_stops_all_work_on_a_stream(where):
    code = """
        import sys, numpy as np, shoal
        where = sys.argv[1]
        A = np.random.default_rng(0).normal(size=(20_000, 32))
        long = dict(init="random", n_jobs=1, max_iter=10**6, tol=0, random_state=0)
        calls = 0
        def endless():
            print("ready", flush=True)
            shoal.MiniBatchKMeans(64, max_no_improvement=None, **long).fit(A)
        def pull():
            for i in range(2):
                if where == "iterator" and i:
                    endless()
                yield A
        def blocks():
            global calls
            calls += 1
            if calls > 1 and where == "callable":
                endless()
            if calls == 2 and where == "work":
                print("ready", flush=True)
            return pull()
        try:
            shoal.KMeans(64, **long).fit(blocks)
        except KeyboardInterrupt:
            print("seen", flush=True)
        if where != "iterator":
            print(shoal.KMeans(2, n_jobs=1).fit(A[:9000]).n_iter_ > 0, flush=True)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        # Work that ignores the signal would run for hours, so the process is killed.
        watchdog = threading.Timer(100, child.kill)
        watchdog.start()
        try:
            assert child.stdout.readline() == "ready\n", child.stderr.read()
            time.sleep(0.3)
            child.send_signal(signal.SIGINT)
            assert child.stdout.readline() == "seen\n", child.stderr.read()
            if where != "iterator":
                assert child.stdout.readline() == "True\n", child.stderr.read()
        finally:
            watchdog.cancel()
            child.kill()


@pytest.mark.parametrize("cls", [MiniBatchKMeans, NestedMiniBatchKMeans, BackwardEulerKMeans])
def test_partial_fit_names_an_invalid_block(cls):
    rows = np.random.default_rng(1).normal(size=(3000, 4))
    rows[2500, 1] = np.nan

    def batches():
        yield rows[:0]
        yield from blocks(rows, 1000)

    model, good = cls(3, random_state=0), cls(3, random_state=0)
    with pytest.raises(
        ValueError, match=r"block of X from row 2000 on: X must be finite, got NaN at row 500, column 1$"
    ):
        model.partial_fit(batches())
    good.partial_fit(rows[:1000]).partial_fit(rows[1000:2000])
    np.testing.assert_array_equal(model.cluster_centers_, good.cluster_centers_)

    def broken():
        yield rows[:1000]
        raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$"):
        cls(3).partial_fit(broken())


def test_only_fitted_models_of_streams_can_be_pickled():
    model = MiniBatchKMeans(3, random_state=0).fit(blocks())
    import pickle

    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    for _ in (steps := MiniBatchKMeans(3, random_state=0)).iter_fit(blocks()):
        break
    with pytest.raises(AttributeError, match="no longer available"):
        _ = steps.labels_
    # An abandoned fit releases its rows with the estimator.
    del steps
    gc.collect()
    assert gone()


FORKED = """
import os, sys
import numpy as np, shoal
X = np.random.default_rng(0).normal(size=(4000, 3))
def blocks():
    for start in range(0, len(X), 500):
        yield X[start : start + 500]
def child(work):
    pid = os.fork()
    if not pid:
        try:
            work()
            os._exit(3)
        except RuntimeError as error:
            os._exit(0 if "forked in the middle of a pass" in str(error) else 4)
        except BaseException:
            os._exit(5)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

pulled = shoal.open(blocks)._prefetched()
next(pulled)
assert child(lambda: next(pulled)) == 0
assert len(list(pulled)) == 7

for given in (blocks, blocks()):
    steps = shoal.MiniBatchKMeans(3, batch_size=700).iter_fit(given)
    next(steps)
    assert child(lambda: list(steps)) == 0
    # The parent goes on, and a fit of its own works in a child.
    list(steps)
    def fresh():
        shoal.KMeans(3).fit(blocks)
        raise RuntimeError("forked in the middle of a pass, not")
    assert child(fresh) == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_in_the_middle_of_a_pass_is_an_error_in_the_child():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], timeout=120, check=False)
    assert done.returncode == 0


def test_an_exhausted_block_iterator_stays_exhausted():
    blocks = Prefetch(iter([X[:3]]))
    assert len(list(blocks)) == 1
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(blocks)
