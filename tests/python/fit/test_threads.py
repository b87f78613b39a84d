"""The number of threads: pools, limits, the environment and `config_context`."""

import os
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import numpy as np
import pytest
import shoal
from shoal import KMeans, _core
from shoal._checks import params as _params
from shoal.cli import main
from shoal.formats.stream import chunk_limit

ROWS = np.random.default_rng(0).normal(size=(20_000, 8)).astype(np.float32)

linux = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads in /proc")


def script(code, **environment):
    """Run code in a fresh process with the given environment; return its output."""
    env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=env | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    return done.stdout


COUNTING = """
    import os, time, warnings
    import numpy as np, shoal
    from shoal import KMeans, MiniBatchKMeans, _core

    def ours():
        names = []
        for task in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{task}/comm") as file:
                    names.append(file.read())
            except (FileNotFoundError, ProcessLookupError):  # The thread has ended.
                pass
        return sum(name.startswith("shoal-") for name in names)

    def settled(least, most):
        # Threads take their names and end in their own time.
        for _ in range(1000):
            if least <= ours() <= most:
                break
            time.sleep(0.02)
        return ours()

    X = np.random.default_rng(0).normal(size=(20_000, 8)).astype(np.float32)
    warnings.simplefilter("ignore")
"""


@linux
def test_threads_end_when_another_number_is_used():
    said = script(
        COUNTING
        + """
    for n in (1, 2, 3, 5, 8, 13, 16):
        KMeans(30, init="random", n_init=1, n_jobs=n, max_iter=2).fit(X)
    print(settled(6, 99) > 5)
    KMeans(30, init="random", n_init=1, n_jobs=2, max_iter=2).fit(X)
    KMeans(30, init="random", n_init=1, n_jobs=3, max_iter=2).fit(X)
    print(settled(2, 5))
    """
    )
    many, left = said.split()
    assert many == "True"
    assert int(left) <= 5


@linux
def test_a_loaded_model_keeps_its_number_of_threads(tmp_path):
    said = script(
        COUNTING
        + f"""
    model = KMeans(30, init="random", n_init=1, n_jobs=4096, max_iter=2).fit(X)
    print(ours() <= _core.at_most_threads(4096) < 4096 // 2)
    path = {str(tmp_path / "m.safetensors")!r}
    model.save(path)
    again = shoal.load(path)
    print(again.n_jobs, (again.predict(X) == model.labels_).all())
    again.n_jobs = 2
    again.predict(X)
    """
    )
    assert said.split() == ["True", "4096", "True"]


def test_a_file_without_a_number_of_threads_is_read(tmp_path):
    path = tmp_path / "model.safetensors"
    model = shoal.MiniBatchKMeans(3, random_state=0, n_jobs=2, callbacks=[print]).partial_fit(ROWS[:100])
    model.save(path)
    kind, arrays, meta = _core.load_model(str(path))
    assert '"n_jobs": 2, ' in meta["params"]
    meta["params"] = meta["params"].replace('"n_jobs": 2, ', "")
    _core.save_model(str(path), kind, arrays, meta)
    again = shoal.load(path)
    assert again.n_jobs is None
    np.testing.assert_array_equal(again.cluster_centers_, model.cluster_centers_)


def test_a_resumed_fit_keeps_its_number_of_threads(tmp_path):
    path = tmp_path / "kept.safetensors"
    kept = shoal.callbacks.Checkpoint(path, every_steps=1)
    whole = KMeans(9, random_state=0, tol=0.0, n_jobs=2, max_iter=6)
    left = KMeans(9, random_state=0, tol=0.0, n_jobs=2, max_iter=6, callbacks=[kept])
    for i, _ in enumerate(left.iter_fit(ROWS)):
        if i == 2:
            break
    again = shoal.resume(path, ROWS)
    assert again.n_jobs == 2
    np.testing.assert_array_equal(again.labels_, whole.fit(ROWS).labels_)
    assert shoal.resume(path, ROWS, n_jobs=1).n_jobs == 1


def test_too_many_threads_warn():
    most = _core.at_most_threads(65_535)
    assert 16 <= most == max(16, 4 * _core.available_threads())
    with pytest.warns(RuntimeWarning, match=f"n_jobs=5000 is more than {most} threads"):
        many = KMeans(5, random_state=0, n_jobs=5000).fit(ROWS)
    np.testing.assert_array_equal(many.labels_, KMeans(5, random_state=0, n_jobs=1).fit(ROWS).labels_)


THREADS_OF_NONE = """
    import sys
    from shoal._checks import params as _params
    print(_params.threads(None), _params.threads(-1) == _params.threads(-2) + 1 or _params.threads(-1) == 1)
"""


@pytest.mark.parametrize(
    ("variables", "threads"),
    [
        ({}, "None"),
        ({"SHOAL_NUM_THREADS": "3"}, "3"),
        ({"OMP_NUM_THREADS": "2"}, "2"),
        ({"OMP_NUM_THREADS": " 4, 2"}, "4"),
        ({"SHOAL_NUM_THREADS": "3", "OMP_NUM_THREADS": "nonsense"}, "3"),
        ({"SHOAL_NUM_THREADS": "", "OMP_NUM_THREADS": "5"}, "5"),
    ],
)
def test_the_environment_sets_the_default(variables, threads):
    assert script(THREADS_OF_NONE, **variables).split() == [threads, "True"]


@linux
def test_the_environment_sets_the_number_of_threads():
    fit = """
    KMeans(30, init="random", n_init=1, max_iter=2).fit(X)
    print(settled({0}, {0}))
    """
    assert script(COUNTING + fit.format(5), OMP_NUM_THREADS="5,2").strip() == "5"
    assert script(COUNTING + fit.format(0), SHOAL_NUM_THREADS="1", OMP_NUM_THREADS="7").strip() == "0"


def test_workers_of_joblib_share_the_cores(monkeypatch):
    joblib = pytest.importorskip("joblib")
    monkeypatch.delenv("SHOAL_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with joblib.parallel_config("loky", inner_max_num_threads=1):
        found = joblib.Parallel(n_jobs=2)(joblib.delayed(_params.threads)(None) for _ in range(4))
    assert found == [1] * 4


@pytest.mark.parametrize("name", ["SHOAL_NUM_THREADS", "OMP_NUM_THREADS"])
@pytest.mark.parametrize("value", ["0", "-3", "two", "1.5"])
def test_an_invalid_environment_variable_is_named(monkeypatch, name, value):
    monkeypatch.delenv("SHOAL_NUM_THREADS", raising=False)
    monkeypatch.setenv(name, value)
    # Even if the work is short.
    refused = f"{name} must be a number of threads of at least 1, got"
    with pytest.raises(ValueError, match=refused):
        KMeans(1).fit([[0.0]])
    assert KMeans(1, n_jobs=1).fit([[0.0]]).inertia_ == 0


def test_the_command_line_reads_the_environment(tmp_path, monkeypatch, capsys):
    np.save(tmp_path / "rows.npy", ROWS[:100])
    command = ["fit", str(tmp_path / "rows.npy"), "-k", "2", "--quiet"]
    monkeypatch.setenv("SHOAL_NUM_THREADS", "x")
    assert main(command) == 1
    error = capsys.readouterr().err
    assert error.startswith("shoal: error: ")
    assert "SHOAL_NUM_THREADS must be a number of threads of at least 1" in error
    assert main([*command, "--threads", "1"]) == 0


def test_config_context(monkeypatch):
    monkeypatch.setenv("SHOAL_NUM_THREADS", "5")
    with shoal.config_context(n_threads=2, memory="1KB"):
        assert _params.threads(None) == 2
        assert _params.threads(3) == 3
        assert _params.memory("memory", "1GB") == 1000
        assert _params.memory("memory", "2GB") == 2 * 10**9
        # Only the memory budgets.
        assert chunk_limit("1GB") == chunk_limit(None) == 10**9
        with shoal.config_context(memory="1GB"):
            assert (_params.threads(None), _params.memory("memory", "1GB")) == (2, 10**9)
        with pytest.warns(RuntimeWarning, match="has no room for the bounds"):
            KMeans(30, algorithm="elkan", random_state=0).fit(ROWS)
    assert _params.threads(None) == 5
    assert _params.memory("memory", "1GB") == 10**9
    refused = "n_threads must be None or an integer of at least 1, got 0; memory must be an amount of memory"
    with pytest.raises(ValueError, match=refused), shoal.config_context(n_threads=0, memory="much"):
        pass


@pytest.mark.filterwarnings("error")
def test_a_warning_as_error_leaves_no_setting():
    with pytest.raises(RuntimeWarning), shoal.config_context(n_threads=60_000, memory="1KB"):
        pass
    assert _params.MEMORY.get() is None


def test_too_many_threads_warn_once():
    with pytest.warns(RuntimeWarning, match="n_jobs=5000") as told:
        KMeans(5, random_state=0, n_jobs=5000).fit(ROWS)
    assert len(told) == 1


def test_show_versions_works_in_any_environment(monkeypatch, capsys):
    monkeypatch.setenv("SHOAL_NUM_THREADS", "many")
    shoal.show_versions()
    assert "SHOAL_NUM_THREADS must be a number of threads" in capsys.readouterr().out


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_starts_its_own_threads():
    said = script(
        COUNTING
        + """
    labels = KMeans(30, random_state=0, n_jobs=4, max_iter=2).fit(X).labels_
    child = os.fork()
    if child == 0:
        for n in (4, 2, 3):
            same = (KMeans(30, random_state=0, n_jobs=n, max_iter=2).fit(X).labels_ == labels).all()
            print(same, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    """
    )
    assert said.split() == ["True"] * 3


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="needs a free-threaded Python")
def test_the_gil_stays_off():
    output = script("""
        import sys
        from shoal import _core
        print(sys._is_gil_enabled(), _core.__name__)
    """)
    assert output.split()[0] == "False"


def test_negative_numbers_leave_cores_free(monkeypatch):
    monkeypatch.setattr(_core, "available_threads", lambda: 5)
    assert [_params.threads(n) for n in (-1, -2, -5, -6, -99)] == [5, 4, 1, 1, 1]
