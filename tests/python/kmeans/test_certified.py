"""Labels by certified low precision: bit-identical on all threads, in forked children, and under signals.

Every instruction set of the processor runs, so the tests also hold where none uses low precision.
"""

import os
import subprocess
import sys
import textwrap

import pytest
from shoal import _core

#: Defines `blocks`, pairs of rows and centers, and `labels`, the nearest centers as bytes.
PROBLEMS = """
    import numpy as np, shoal

    def block(i):
        rng = np.random.default_rng(i)
        n, d, k = 4_000 + 517 * i, (64, 100, 128, 200)[i % 4], (64, 130, 256)[i % 3]
        X = rng.integers(0, 256, (n, d)).astype(np.uint8)
        if i % 2:
            X = rng.normal(size=(n, d)).astype(np.float32)
        return X, X[:k] + rng.normal(size=(k, d)).astype(np.float32)

    blocks = [block(i) for i in range(8)]

    def labels(i):
        return shoal.nearest(*blocks[i], n_jobs=1 + i % 2)[0].tobytes()
"""
FEATURES = _core.available_isas()


def output(code, isa):
    """Run code after the problems in a fresh process with an instruction set; return its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROBLEMS + code)],
        env=os.environ | {"SHOAL_ISA": isa},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    return done.stdout


@pytest.fixture(scope="module")
def expected():
    """Checksums of the labels without vector instructions."""
    return output(CHECKSUMS, FEATURES[0])


CHECKSUMS = """
    import hashlib
    print(*(hashlib.sha256(labels(i)).hexdigest() for i in range(len(blocks))))
"""


@pytest.mark.parametrize("isa", FEATURES[1:])
def test_labels_do_not_depend_on_the_instruction_set(isa, expected):
    assert output(CHECKSUMS, isa) == expected


@pytest.mark.parametrize("isa", FEATURES)
def test_labels_of_threads_that_run_at_once(isa, expected):
    code = """
    import hashlib
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(5) as pool:
        found = list(pool.map(labels, list(range(len(blocks))) * 4))
    assert found[:8] == found[8:16] == found[16:24] == found[24:]
    print(*(hashlib.sha256(f).hexdigest() for f in found[:8]))
    """
    assert output(code, isa) == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("isa", FEATURES)
def test_labels_of_a_forked_child(isa, expected):
    code = """
    import hashlib, os, warnings
    warnings.simplefilter("ignore")
    before = labels(0)
    for _ in range(3):
        child = os.fork()
        if child == 0:
            found = [labels(i) for i in range(len(blocks))]
            print(*(hashlib.sha256(f).hexdigest() for f in found), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert labels(0) == before
    """
    assert output(code, isa) == 3 * expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no interval timers here")
@pytest.mark.parametrize("isa", FEATURES)
def test_labels_under_signals(isa, expected):
    code = """
    import hashlib, signal
    signals = 0
    def count(number, frame):
        global signals
        signals += 1
    signal.signal(signal.SIGALRM, count)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    found = [labels(i) for i in range(len(blocks))]
    while signals < 100:
        assert [labels(i) for i in range(len(blocks))] == found
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(*(hashlib.sha256(f).hexdigest() for f in found))
    """
    assert output(code, isa) == expected
