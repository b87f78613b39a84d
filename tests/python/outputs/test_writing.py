"""Writing rows with `shoal.write` and `shoal.shuffle`."""

import errno
import itertools
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections import namedtuple

import numpy as np
import pytest
import shoal

ROWS = np.random.default_rng(3).integers(0, 256, size=(4000, 9)).astype("u1")


def numbered(n, cols=2, dtype="f4"):
    """Rows whose values are their indices."""
    return np.repeat(np.arange(n, dtype=dtype)[:, np.newaxis], cols, axis=1)


def left(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("write", [shoal.write, shoal.shuffle])
def test_all_kinds_of_rows_are_written(tmp_path, write):
    npy = tmp_path / "in.npy"
    np.save(npy, ROWS)
    out = tmp_path / "out.npy"
    for given in (
        ROWS,
        ROWS.astype("f8"),
        np.asfortranarray(ROWS),
        str(npy),
        shoal.open(npy),
        iter([ROWS[:7], ROWS[7:]]),
        lambda: iter([ROWS[:1], ROWS[:0], ROWS[1:]]),
        shoal.open(ROWS).slice(3, 50),
        ROWS.tolist()[:100],
    ):
        with write(given, out) as rows:
            expected = ROWS if not isinstance(given, (list, shoal.DataSource)) else None
            dtype = {list: "i8", np.ndarray: getattr(given, "dtype", None)}.get(type(given), "u1")
            assert (rows.dtype, rows.access) == (np.dtype(dtype), "random")
        found = np.load(out)
        if expected is not None:
            assert found.shape == expected.shape
            order = np.lexsort(found.T[::-1]) if write is shoal.shuffle else slice(None)
            other = np.lexsort(expected.T[::-1]) if write is shoal.shuffle else slice(None)
            np.testing.assert_array_equal(found[order], expected[other])
    assert left(tmp_path) == ["in.npy", "out.npy"]


@pytest.mark.parametrize("write", [shoal.write, shoal.shuffle])
def test_rows_that_cannot_be_written_leave_no_file(tmp_path, write):
    out = tmp_path / "out.npy"
    out.write_bytes(b"older")

    def broken():
        yield ROWS
        raise RuntimeError("broken")

    for given, kind, message in (
        (iter([ROWS, ROWS[:, :3]]), ValueError, "block 1 of X has 3 columns, the first one has 9"),
        (iter([ROWS, ROWS.astype("f4")]), ValueError, "block 1 of X holds float32, the first one uint8"),
        (iter([]), ValueError, "X must have at least 1 row"),
        (ROWS[:0], ValueError, "at least one row, got shape"),
        (broken(), RuntimeError, "broken"),
        (ROWS.astype(complex), ValueError, "Complex"),
        (tmp_path / "none.npy", FileNotFoundError, "none.npy"),
    ):
        with pytest.raises(kind, match=message):
            write(given, out)
        assert out.read_bytes() == b"older"
        assert left(tmp_path) == ["out.npy"]
    np.save(out, ROWS)
    for read in (out, shoal.open(out), shoal.open(out).slice(0, 2), np.load(out, mmap_mode="r")):
        with pytest.raises(ValueError, match="is the file that is read"):
            write(read, out)
    untouched = iter([ROWS])
    for bad, kind in (
        (tmp_path / "no" / "x.npy", FileNotFoundError),
        (tmp_path / "x.txt", ValueError),
        (tmp_path, ValueError),
    ):
        with pytest.raises(kind):
            write(untouched, bad)
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(IsADirectoryError):
        write(untouched, tmp_path / "folder.npy")
    for use in (write, shoal.shuffle):
        with pytest.raises(OSError, match=r"x{300}"):
            use(untouched, tmp_path / ("x" * 300 + ".npy"))
    assert next(untouched) is ROWS


def test_the_order_depends_on_the_seed_alone(tmp_path):
    rows = numbered(40_000, 8)
    first = None
    for limit in ("1GB", 1_000_000, "1.2MB"):
        for given in (rows, lambda: iter(np.array_split(rows, 13)), iter([rows])):
            found = next(
                shoal.shuffle(given, tmp_path / "x.npy", random_state=7, memory_limit=limit).blocks(10**9)
            )
            first = found if first is None else first
            np.testing.assert_array_equal(found, first)
    np.testing.assert_array_equal(np.sort(first[:, 0]), rows[:, 0])
    assert (first == first[:, :1]).all()
    other = next(shoal.shuffle(rows, tmp_path / "x.npy", random_state=8).blocks(10**9))
    assert (other != first).mean() > 0.99
    one, two = (
        shoal.shuffle(rows, tmp_path / "x.npy", random_state=np.random.default_rng(0)).take(range(5))
        for _ in range(2)
    )
    np.testing.assert_array_equal(one, two)
    assert left(tmp_path) == ["x.npy"]


def test_every_order_is_equally_likely(tmp_path):
    seeds, seen = 24 * 20, {}
    for seed in range(seeds):
        found = tuple(
            shoal.shuffle(numbered(4), tmp_path / "x.npy", random_state=seed).take(range(4))[:, 0].tolist()
        )
        seen[found] = seen.get(found, 0) + 1
    assert set(seen) == set(itertools.permutations([0.0, 1.0, 2.0, 3.0]))
    chi_squared = sum((count - 20) ** 2 / 20 for count in seen.values())
    # Six standard deviations above the mean of 23 degrees of freedom.
    assert chi_squared < 64, seen


def test_positions_are_uniform_with_many_buckets(tmp_path):
    n, blocks = 100_000, 50
    found = np.load(
        shoal.shuffle(numbered(n, 16), tmp_path / "x.npy", random_state=1, memory_limit="1MB")._name
    )[:, 0]
    table = np.zeros((blocks, blocks))
    np.add.at(table, (np.arange(n) * blocks // n, found.astype(int) * blocks // n), 1)
    expected = n / blocks**2
    chi_squared = ((table - expected) ** 2 / expected).sum()
    freedom = (blocks - 1) ** 2
    assert abs(chi_squared - freedom) < 6 * np.sqrt(2 * freedom)
    # Rows do not stay near their neighbors.
    gaps = np.abs(np.diff(found))
    assert abs(gaps.mean() / (n / 3) - 1) < 0.02


def test_all_parameter_errors_are_listed(tmp_path):
    with pytest.raises(
        ValueError, match=r"memory_limit must be at least 1 MB, got '10KB'; random_state must be"
    ):
        shoal.shuffle(ROWS, tmp_path / "x.npy", random_state=-1, memory_limit="10KB")
    assert left(tmp_path) == []


def test_disk_space_is_checked_first(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, 1000))
    with pytest.raises(OSError, match="needs 36000 bytes, 1000 bytes are free") as caught:
        shoal.shuffle(ROWS, tmp_path / "x.npy")
    assert caught.value.errno == errno.ENOSPC
    assert left(tmp_path) == []


@pytest.mark.skipif(sys.platform != "linux", reason="a limit on the size of files")
@pytest.mark.parametrize("limit", ["1GB", "1MB"])
def test_a_full_disk_leaves_no_file(tmp_path, limit):
    code = f"""
        import resource, signal, numpy as np, shoal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        try:
            rows = np.zeros((100_000, 10), dtype="u1")
            shoal.shuffle(rows, {str(tmp_path / "x.npy")!r}, memory_limit={limit!r})
        except OSError as error:
            print(type(error).__name__, error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert "OSError" in done.stdout, done
    assert "x.npy" in done.stdout, done
    assert left(tmp_path) == []


def test_memory_is_bounded(tmp_path):
    code = f"""
        import resource, numpy as np, shoal
        def make():
            for i in range(200):
                yield np.full((20_000, 64), i, dtype="u1")
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        shoal.shuffle(np.zeros((10, 4)), {str(tmp_path / "small.npy")!r}, memory_limit="1MB")
        before = peak()
        rows = shoal.shuffle(make, {str(tmp_path / "x.npy")!r}, memory_limit="40MB", random_state=0)
        print(peak() - before, *rows.shape)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    grown, rows, cols = map(int, done.stdout.split())
    # 244 MiB of rows.
    assert (rows, cols) == (4_000_000, 64)
    assert grown < 80, grown
    counts = np.bincount(np.load(tmp_path / "x.npy")[:, 0])
    assert (counts == 20_000).all()


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_leaves_no_file(tmp_path):
    code = f"""
        import time, numpy as np, shoal
        def slow():
            for i in range(10_000):
                yield np.zeros((20_000, 10), dtype="u1")
                print(i, flush=True)
                time.sleep(0.01)
        try:
            shoal.shuffle(slow(), {str(tmp_path / "x.npy")!r}, memory_limit="1MB")
        except KeyboardInterrupt:
            print("seen", flush=True)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while child.stdout.readline() != "20\n":
        pass
    assert len(left(tmp_path)) == 2
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=100)
    assert "seen" in out, err
    assert left(tmp_path) == []


def test_progress_goes_to_stderr(tmp_path, capsys, monkeypatch):
    shoal.shuffle(ROWS, tmp_path / "x.npy", progress=True)
    assert "shuffle" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    shoal.shuffle(ROWS, tmp_path / "x.npy", progress=True)
    assert "shuffle: 8000 of 8000 rows read or written" in capsys.readouterr().err
    shoal.shuffle(ROWS, tmp_path / "x.npy", progress=2)
    assert "shuffle: 8000" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"progress must be True, False or an integer .*, got 'yes'"):
        shoal.shuffle(ROWS, tmp_path / "x.npy", progress="yes")
    shoal.shuffle(ROWS, tmp_path / "x.npy")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("write", [shoal.write, shoal.shuffle])
def test_sparse_rows_are_refused(tmp_path, write):
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match="sparse rows"):
        write(sparse.csr_matrix(ROWS), tmp_path / "out.npy")
    assert left(tmp_path) == []


KILLED = """
import os, signal, sys
import numpy as np, shoal
verb, out = sys.argv[1:]
def blocks():
    for i in range(200):
        yield np.full((2000, 64), i, dtype="f4")
        if i == 100:
            os.kill(os.getpid(), signal.SIGKILL)
if verb == "write":
    shoal.write(blocks(), out)
elif verb == "shuffle":
    shoal.shuffle(blocks(), out, memory_limit="1MB")
else:
    from shoal._files.staged import replace_file
    with replace_file(out) as file:
        file.write(b"some")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs locks on files that others may write to")
@pytest.mark.parametrize("verb", ["write", "shuffle", "whole"])
def test_the_next_run_removes_files_of_a_killed_one(verb, tmp_path):
    from shoal._files.staged import replace_file

    out, other = tmp_path / "rows.npy", tmp_path / "other.npy"
    for killed in (out, other):
        done = subprocess.run([sys.executable, "-c", KILLED, verb, str(killed)], check=False)
        assert done.returncode == -signal.SIGKILL
    litter = left(tmp_path)
    assert len(litter) == (4 if verb == "shuffle" else 2)
    assert all(name.startswith(".shoal-") for name in litter)
    # Files for other output names are kept: another command may have to be repeated.
    if verb == "whole":
        with replace_file(out) as file:
            file.write(b"all")
    else:
        getattr(shoal, verb)(ROWS, out)
    assert len(left(tmp_path)) == 1 + len(litter) // 2
    assert "rows.npy" in left(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="needs locks on files that others may write to")
def test_temporary_files_of_a_running_process_are_kept(tmp_path):
    from shoal import _core
    from shoal._files.staged import replace_file

    out = tmp_path / "rows.npy"
    with replace_file(out) as file, replace_file(out) as again:
        file.write(b"one")
        again.write(b"two")
        assert _core.leftovers(tmp_path, remove=True) == []
        shoal.write(ROWS, out)
        assert len(left(tmp_path)) == 3
    assert out.read_bytes() == b"one"
    assert left(tmp_path) == ["rows.npy"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs locks on files that others may write to")
def test_info_clean_lists_and_removes_temporary_files(tmp_path):
    def cleaned(*more):
        command = [sys.executable, "-m", "shoal", "info", str(tmp_path), "--clean", *more]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    subprocess.run([sys.executable, "-c", KILLED, "write", str(tmp_path / "x.npy")], check=False)
    (litter,) = tmp_path.iterdir()
    (tmp_path / "kept").touch()
    with shoal._files.staged.replace_file(tmp_path / "busy"):
        assert cleaned() == f"removed {litter}\n"
        assert cleaned("--json").split() == ["{", '"folder":', f'"{tmp_path}",', '"removed":', "[]", "}"]
    assert left(tmp_path) == ["busy", "kept"]
    for option in ("--key=x", "--dtype=u1", "--shape=1,2"):
        command = [sys.executable, "-m", "shoal", "info", str(tmp_path), "--clean", option]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 2
        assert "--clean takes a folder" in done.stderr
