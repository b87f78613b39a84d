"""What passes over mapped files leave in the system's cache of files."""

import ctypes
import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import shoal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux drops files from its cache")

MB = 1 << 20
#: One sweep over the files given as arguments; prints the inertia.
CODE = """
import sys, numpy as np, shoal
paths = sys.argv[1:]
rows = shoal.open(paths[0] if len(paths) == 1 else paths)
init = np.zeros((2, 128)); init[1] = 200
print(next(shoal.KMeans(2, init=init, algorithm="lloyd", max_iter=2, n_jobs=2).iter_fit(rows)).objective)
"""


def cached(path, start, stop):
    """Return the share of some bytes of a file that is in the cache."""
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        whole = np.frombuffer(mapped, np.uint8)
        pages = np.zeros(-(-(stop - start) // mmap.PAGESIZE), np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        address, length = ctypes.c_void_p(whole.ctypes.data + start), ctypes.c_size_t(stop - start)
        assert libc.mincore(address, length, ctypes.c_void_p(pages.ctypes.data)) == 0
        del whole
        return float((pages & 1).mean())


def sweep(paths, kept=None):
    env = {key: value for key, value in os.environ.items() if key != "SHOAL_FILE_CACHE"}
    env |= {} if kept is None else {"SHOAL_FILE_CACHE": str(kept)}
    command = [sys.executable, "-c", CODE, *map(str, paths)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Two files of 80 MiB, on disk."""
    folder = tmp_path_factory.mktemp("cache")
    rows = np.random.default_rng(0).integers(0, 256, size=(80 * MB // 128, 128), dtype=np.uint8)
    found = [folder / "a.npy", folder / "b.npy"]
    for path in found:
        np.save(path, rows)
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if cached(path, 16 * MB, 64 * MB) > 0:
            pytest.skip("this file system has no files outside the cache")
    return found


def test_passes_keep_the_first_bytes_and_drop_the_others(paths):
    a, b = paths
    whole = sweep([a, b])
    assert whole.returncode == 0, whole.stderr
    assert all(cached(path, 0, 80 * MB) == 1 for path in paths), "small files stay"
    # Bytes are dropped 48 MiB behind the read-ahead, after some tiles.
    one = sweep([a], 8 * MB)
    assert cached(a, 0, 8 * MB) == 1
    assert cached(a, 9 * MB, 24 * MB) < 0.01
    assert cached(a, 64 * MB, 80 * MB) == 1
    assert one.stdout == sweep([a], 0).stdout
    assert cached(a, 0, 24 * MB) < 0.01
    many = sweep([a, b], 0)
    assert cached(a, 0, 79 * MB) < 0.01
    assert cached(b, 0, 24 * MB) < 0.01
    assert many.stdout == whole.stdout


def test_the_variable_must_hold_a_number_of_bytes(paths):
    refused = sweep(paths[:1], "1GB")
    assert refused.returncode == 1
    assert 'Error: SHOAL_FILE_CACHE must be a number of bytes, got "1GB"' in refused.stderr
    assert sweep(paths[:1], "").returncode == 0


def test_results_do_not_depend_on_what_stays(paths, monkeypatch):
    rows = np.load(paths[0])
    expected = shoal.KMeans(2, init=rows[:2], max_iter=1).fit(rows)
    monkeypatch.setenv("SHOAL_FILE_CACHE", "0")
    found = shoal.KMeans(2, init=rows[:2], max_iter=1).fit(paths[0])
    assert np.array_equal(found.labels_, expected.labels_)
    assert found.inertia_ == expected.inertia_


@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("dtype", ["f4", "f2", "u1"])
def test_files_larger_than_memory_give_the_same_fits(files, dtype, tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    rows = (
        rng.integers(0, 9, size=(40, 48)).repeat(500, 0) * 9 + rng.integers(0, 30, size=(20_000, 48))
    ).astype(dtype)
    rows = rows[rng.permutation(len(rows))]
    paths = [tmp_path / f"{i}.npy" for i in range(files)]
    for path, part in zip(paths, np.array_split(rows, files), strict=True):
        np.save(path, part)
    weights = rng.uniform(0.5, 2, size=len(rows))
    fits = [
        lambda X: shoal.HierarchicalKMeans(400, n_candidates=20, max_iter=4, random_state=0).fit(
            X, sample_weight=weights
        ),
        lambda X: shoal.HierarchicalKMeans(300, metric="cosine", memory=4 << 20, random_state=0).fit(X),
        lambda X: shoal.KMeans(300, init="hierarchical", algorithm="sketch", max_iter=9, random_state=0).fit(
            X
        ),
        lambda X: shoal.KMeans(300, init="random", max_iter=9, random_state=0).fit(X),
    ]
    expected = [fit(rows) for fit in fits]
    monkeypatch.setenv("SHOAL_FILE_CACHE", "0")
    for fit, same in zip(fits, expected, strict=True):
        found = fit(paths if files > 1 else paths[0])
        assert np.array_equal(found.cluster_centers_, same.cluster_centers_)
        assert np.array_equal(found.labels_, same.labels_)
        assert found.inertia_ == same.inertia_
        assert found.n_iter_ == same.n_iter_
        assert getattr(found, "certified_", None) == getattr(same, "certified_", None)
