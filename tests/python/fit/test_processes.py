"""Fits in processes of their own: forks, mapped files, Ctrl-C and imports."""

import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import ExitStack

import numpy as np
import pytest
import shoal


def script(text, *args, **given):
    """Run a script in a process of its own; return its output."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), *map(str, args)],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
        **given,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_after_a_fit_can_fit():
    said = script(
        """
        import os, sys, warnings
        import numpy as np
        from shoal import KMeans

        warnings.simplefilter("ignore")
        X = np.random.default_rng(0).normal(size=(20_000, 16))
        def fit():
            return KMeans(20, random_state=0, n_jobs=2, max_iter=3).fit(X)
        first = fit()
        child = os.fork()
        if child == 0:
            good = (fit().labels_ == first.labels_).all() and (first.predict(X) == first.labels_).all()
            os._exit(0 if good else 3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (fit().labels_ == first.labels_).all()
        print("good")
        """
    )
    assert said == "good\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("seeding", ["random", "auto"])
def test_a_memory_mapped_file_is_not_copied(tmp_path, seeding):
    """Anonymous memory of a fit is at most 16 bytes per row + 8 bytes per center value + 64 MB."""
    rows, cols, k = 400_000, 128, 16
    path = tmp_path / "rows.npy"
    block = np.random.default_rng(0).integers(0, 256, size=(rows // 20, cols), dtype=np.uint8)
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(rows, cols))
    for i in range(20):
        file[i * len(block) : (i + 1) * len(block)] = np.roll(block, i)
    del file
    said = script(
        """
        import re, sys, threading, time
        import numpy as np
        import shoal

        def anonymous():
            with open("/proc/self/status") as status:
                return int(re.search(r"RssAnon:\\s+(\\d+) kB", status.read())[1]) * 1024

        path, seeding, k = sys.argv[1], sys.argv[2], int(sys.argv[3])
        shoal.KMeans(2, random_state=0).fit(np.zeros((8, 2)) + np.arange(8)[:, None])
        before = peak = anonymous()
        done = threading.Event()
        def watch():
            global peak
            while not done.is_set():
                peak = max(peak, anonymous())
                time.sleep(0.001)
        thread = threading.Thread(target=watch)
        thread.start()
        # The array first: nothing of it is widened either.
        for X in (np.load(path, mmap_mode="r"), path):
            model = shoal.KMeans(k, init=seeding, n_init=1, max_iter=2, random_state=0, n_jobs=2).fit(X)
            model.predict(X)
        done.set()
        thread.join()
        print(peak - before)
        """,
        path,
        seeding,
        k,
    )
    allowed = 16 * rows + 8 * k * cols + 64_000_000
    assert allowed < 4 * rows * cols / 2, "the test would not see a copy"
    assert int(said) <= allowed


LONG_WORK = {
    # Each function runs some seconds in one call.
    "seeding": "model = KMeans(5000, init='k-means++', random_state=0); work = lambda: model.fit(X)",
    "nearest": "work = lambda: shoal.nearest(X, X[:60_000])",
    "sweep": "model = KMeans(60_000, init=X[:60_000], max_iter=1000); work = lambda: model.fit(X)",
    "exact graph": "shoal.knn_graph(X[:100], 5); work = lambda: shoal.knn_graph(X, 5, method='exact')",
    "approximate graph": (
        "shoal.knn_graph(X[:100], 5); X = np.concatenate([X] * 10); "
        "work = lambda: shoal.knn_graph(X, 50, method='ivf', recall=1.0)"
    ),
    "sweeps": (
        "told = []; first = lambda *_: (told or told.append(print('ready', flush=True))) and None; "
        "model = KMeans(300, init='random', n_init=1, random_state=0, tol=0, max_iter=10**9); "
        "model.callbacks = [first]; "
        "work = lambda: [model.fit(X) for _ in range(1000)]"
    ),
}


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
@pytest.mark.parametrize("what", LONG_WORK)
def test_ctrl_c_before_the_work_is_over(what):
    code = """
        import sys, time
        import numpy as np
        import shoal
        from shoal import KMeans

        X = np.random.default_rng(0).normal(size=(200_000, 32)).astype(np.float32)
        model = None
        exec(sys.argv[1])
        if sys.argv[2] != "sweeps":
            # Else after the first of them.
            print("ready", flush=True)
        try:
            work()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        else:
            print("over", flush=True)
        if sys.argv[2] == "sweeps":
            # What the last whole sweep left can be used.
            assert model.predict(X[:10]).shape == (10,)
            assert len(model.history_) == model.n_iter_ > 0
            assert model.stop_reason_ is None
        if model is not None:
            small = model.set_params(n_clusters=5, init="random", max_iter=5, callbacks=None).fit(X[:1000])
            again = KMeans(5, init="random", n_init=small.n_init, tol=small.tol, max_iter=5, random_state=0)
            if small.random_state == 0:
                assert (again.fit(X[:1000]).labels_ == small.labels_).all()
        print("usable", flush=True)
    """
    with ExitStack() as stack:
        # The other process still works when the interrupted one reports.
        process, other = (
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", textwrap.dedent(code), LONG_WORK[what], what],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(2)
        )
        stack.callback(process.kill)
        stack.callback(other.kill)
        for one in (other, process):
            assert one.stdout.readline() == "ready\n", one.stderr.read()
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n", process.stderr.read()
        over = select.select([other.stdout], [], [], 0)[0]
        assert not over, "the work was over: nothing was interrupted"
        assert process.stdout.readline() == "usable\n", process.stderr.read()


def test_optional_packages_are_not_imported():
    """`import shoal` imports neither matplotlib nor pandas nor tqdm."""
    said = script("import sys, shoal; print([m for m in ('matplotlib', 'tqdm') if m in sys.modules])")
    assert said == "[]\n"


def test_versions(capsys):
    shoal.show_versions()
    said = capsys.readouterr().out
    for word in ("shoal", "python", "numpy", "scikit-learn", "instruction set", "threads", shoal.__version__):
        assert word in said
