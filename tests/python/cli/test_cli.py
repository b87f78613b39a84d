"""The command line: options, output, errors and exit statuses."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import shoal
from command_line import failure, interrupted, program, run
from shoal import cli
from shoal.cli import arguments


@pytest.fixture
def rows(tmp_path):
    """A file with three clusters; the working folder is that of the file."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(c, 0.1, size=(50, 3)) for c in (0, 5, 9)]).astype(np.float32)
    path = tmp_path / "rows.npy"
    np.save(path, X)
    return path


# ---------------------------------------------------------------- fit


def test_fit_writes_a_model_and_labels(capsys, rows, tmp_path):
    model, labels = tmp_path / "model.safetensors", tmp_path / "labels.npy"
    status, out, err = run(capsys, "fit", rows, "-k", 3, "-o", model, "--labels", labels, "--json")
    assert status == 0
    result = json.loads(out)
    assert (result["rows"], result["columns"], result["clusters"]) == (150, 3, 3)
    assert result["inertia"] == pytest.approx(150 * 3 * 0.01, rel=0.2)
    assert "shoal fit" in err
    again = shoal.load(model)
    assert np.array_equal(np.load(labels), again.predict(rows))
    assert np.load(labels).dtype == np.int32
    expected = shoal.KMeans(3, random_state=0).fit(rows)
    assert np.array_equal(again.cluster_centers_, expected.cluster_centers_)
    assert result["inertia"] == expected.inertia_
    assert sorted(p.name for p in tmp_path.iterdir()) == ["labels.npy", "model.safetensors", "rows.npy"]


def test_fit_prints_aligned_lines(capsys, rows):
    status, out, err = run(capsys, "fit", rows, "-k", 3, "--quiet")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert len({re.match(r"\S+ +", line).end() for line in lines}) == 1
    assert {line.split()[0] for line in lines} == {
        "data",
        "method",
        "start",
        "clusters",
        "iterations",
        "inertia",
        "seconds",
    }


def test_options_reach_the_method(capsys, rows, tmp_path):
    np.save(tmp_path / "init.npy", np.load(rows)[[0, 60, 120]])
    options = ["--seed", 3, "--threads", 1, "--max-iter", 7, "--tol", 0, "--metric", "cosine"]
    options += ["--set", "n_init=2", "--set", "algorithm=lloyd", "--init", "random", "--quiet"]
    assert run(capsys, "fit", rows, "-k", 3, *options, "-o", tmp_path / "m.safetensors")[0] == 0
    params = shoal.load(tmp_path / "m.safetensors").get_params()
    assert params["random_state"] == 3
    assert params["n_jobs"] == 1
    assert (params["max_iter"], params["tol"], params["metric"]) == (7, 0, "cosine")
    assert (params["n_init"], params["algorithm"], params["init"]) == (2, "lloyd", "random")
    status, out, err = run(capsys, "fit", rows, "-k", 3, "--init", tmp_path / "init.npy", "--json", "--quiet")
    assert (status, err) == (0, "")
    assert json.loads(out)["init"] == "array"


def test_raw_files(capsys, tmp_path):
    X = np.random.default_rng(0).integers(0, 9, size=(40, 4), dtype=np.uint8)
    X.tofile(tmp_path / "rows.bin")
    args = ["--shape", "40,4", "--dtype", "u1"]
    status, out, _ = run(capsys, "fit", tmp_path / "rows.bin", "-k", 2, *args, "--json", "--quiet")
    assert status == 0
    assert json.loads(out)["inertia"] == shoal.KMeans(2, random_state=0).fit(X).inertia_
    assert "both --shape and --dtype" in failure(
        capsys, "fit", tmp_path / "rows.bin", "-k", 2, "--dtype", "u1", status=2
    )
    text = failure(capsys, "info", tmp_path / "rows.bin", "--shape", "40,5", "--dtype", "u1")
    assert "200 bytes" in text
    failure(capsys, "info", tmp_path / "rows.bin", "--shape", "40,0", "--dtype", "u1", status=2)
    assert "number type such as u1, i2, float32, float64 or bfloat16, got 'u9'" in failure(
        capsys, "info", tmp_path / "rows.bin", "--shape", "40,4", "--dtype", "u9", status=2
    )


def test_the_curve(capsys, rows, tmp_path):
    pytest.importorskip("matplotlib")
    status, _, _ = run(capsys, "fit", rows, "-k", 3, "--plot", tmp_path / "curve.png", "--quiet")
    assert status == 0
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_settings_are_checked(capsys, rows):
    fit = ["fit", rows, "-k", 3, "--quiet"]
    text = failure(capsys, *fit, "--set", "n_clustres=3", status=2)
    assert "no parameter 'n_clustres'" in text
    assert text.endswith(". Did you mean 'n_clusters'?")
    for name in ("n_init", "tol", "metric", "memory"):
        assert name in text
    assert "callbacks" not in text
    assert "given twice" in failure(capsys, *fit, "--tol", 0, "--set", "tol=1", status=2)
    assert "NAME=VALUE" in failure(capsys, *fit, "--set", "tol", status=2)
    assert "max_iter" in failure(capsys, *fit, "--set", "max_iter=0", status=2)


def test_mini_batches(capsys, rows, tmp_path):
    model, labels, again = (tmp_path / name for name in ("m.safetensors", "labels.npy", "again.npy"))
    given = ["fit", rows, "-k", 3, "--method", "minibatch", "--set", "batch_size=30", "-o", model]
    status, out, err = run(capsys, *given, "--labels", labels, "--json")
    assert status == 0
    assert "shoal fit" in err
    result = json.loads(out)
    assert (result["method"], result["clusters"], result["algorithm"]) == ("minibatch", 3, None)
    kept = shoal.load(model)
    assert isinstance(kept, shoal.MiniBatchKMeans)
    assert kept.batch_size == 30
    assert kept.inertia_ == result["inertia"]
    assert run(capsys, "predict", model, rows, "-o", again)[0] == 0
    assert (np.load(labels) == np.load(again)).all()
    assert json.loads(run(capsys, "info", model, "--json")[1])["kind"] == "minibatch-kmeans-model"
    # Without stored labels, and with text output.
    status, out, _ = run(capsys, *given, "--set", "compute_labels=false", "--labels", labels, "--quiet")
    assert status == 0
    assert "inertia" not in out
    assert (np.load(labels) == np.load(again)).all()
    assert "minibatch has no parameter 'rho'" in failure(capsys, *given, "--set", "rho=1", status=2)
    assert "half_life" in failure(capsys, *given, "--set", "half_life=0", status=2)


def test_parameter_values_are_parsed():
    read = [arguments.parse_value(t) for t in ("3", "0.5", "1e-3", "none", "True", "false", "1GB", "nan1")]
    assert read == [3, 0.5, 1e-3, None, True, False, "1GB", "nan1"]


def test_empty_file_names(capsys, rows):
    for args in (["fit", "", "-k", 3], ["fit", rows, "-k", 3, "-o", ""], ["info", ""], ["predict", "", rows]):
        assert "must not be empty" in failure(capsys, *args, status=2)


def test_unknown_methods_get_a_suggestion(capsys, rows):
    text = failure(capsys, "fit", rows, "-k", 3, "--method", "means", status=2)
    assert "must be one of kmeans, minibatch, " in text
    assert text.endswith("got 'means'. Did you mean 'kmeans'?")


def test_wrong_usage(capsys, rows):
    assert run(capsys)[0] == 2
    for args in (["fit", rows], ["fit", rows, "-k", "many"], ["predict", "m", rows], ["stir", rows]):
        failure(capsys, *args, status=2)
    status, out, _ = run(capsys, "--version")
    assert (status, out) == (0, f"shoal {shoal.__version__}\n")
    assert run(capsys, "fit", "--help")[0] == 0


# ---------------------------------------------------------------- bad input


def test_rows_that_cannot_be_clustered(capsys, rows, tmp_path):
    def refused(X, k=2, status=1):
        np.save(tmp_path / "bad.npy", X)
        return failure(capsys, "fit", tmp_path / "bad.npy", "-k", k, "--quiet", status=status)

    holed = np.load(rows)
    holed[7, 1] = np.nan
    assert "row 7, column 1" in refused(holed)
    assert "shape (5,)" in refused(np.zeros(5))
    assert "complex" in refused(np.zeros((5, 2), complex))
    assert refused(np.zeros((5, 2)), k=0, status=2).endswith(": -k must be an integer of at least 1, got 0")
    assert refused(np.zeros((5, 2)), k=-1, status=2).endswith(": -k must be an integer of at least 1, got -1")
    assert refused(np.zeros((5, 2)), k=6, status=2).endswith(
        ": -k must be at most the number of rows, 5, got 6"
    )
    whole = rows.read_bytes()
    for data in (b"", whole[:100], whole[:-1], b"not an array"):
        (tmp_path / "bad.npy").write_bytes(data)
        assert "bad.npy" in failure(capsys, "fit", tmp_path / "bad.npy", "-k", 2, "--quiet")
    assert "No such file" in failure(capsys, "fit", tmp_path / "none.npy", "-k", 2, "--quiet")
    failure(capsys, "fit", tmp_path, "-k", 2, "--quiet")
    assert "2, 3" in failure(capsys, "fit", rows, "-k", 2, "--quiet", "--init", rows, status=2)


def test_outputs_are_checked_before_any_work(capsys, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(shoal.KMeans, "fit", lambda *_: pytest.fail("work was begun"))
    fit = ["fit", rows, "-k", 3, "--quiet"]
    assert "no folder" in failure(capsys, *fit, "-o", tmp_path / "no/such/m.safetensors")
    assert "is a directory" in failure(capsys, *fit, "-o", tmp_path)
    assert "also read" in failure(capsys, *fit, "--labels", rows)
    assert "written twice" in failure(capsys, *fit, "-o", tmp_path / "x", "--labels", tmp_path / "x")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders here")
def test_special_files_are_not_replaced(capsys, rows, tmp_path):
    pipe, labels = tmp_path / "pipe", tmp_path / "labels.npy"
    os.mkfifo(pipe)
    os.mkfifo(labels)
    for option in ("-o", "--labels", "--plot"):
        text = failure(capsys, "fit", rows, "-k", 3, "--quiet", option, pipe)
        assert text == f"shoal: error: {pipe}: is a device, a pipe or a socket, which no file can replace"
    with pytest.raises(OSError, match="which no file can replace"):
        shoal.KMeans(3, random_state=0).fit(rows).save(pipe)
    with pytest.raises(OSError, match="which no file can replace"):
        shoal.KMeans(3, random_state=0).fit(rows).predict(rows, out=labels)
    assert pipe.is_fifo()
    assert labels.is_fifo()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["labels.npy", "pipe", "rows.npy"]


def test_a_full_disk_keeps_the_old_file(capsys, rows, tmp_path, monkeypatch):
    labels = tmp_path / "labels.npy"
    labels.write_text("older")

    def full(file, *_, **__):
        file.write(b"half")
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(np.lib.format, "write_array", full)
    text = failure(capsys, "fit", rows, "-k", 3, "--quiet", "--labels", labels)
    assert text == f"shoal: error: {labels}: No space left on device"
    assert labels.read_text() == "older"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["labels.npy", "rows.npy"]


@pytest.mark.skipif(os.name == "nt", reason="sets a POSIX limit")
@pytest.mark.parametrize("option", ["-o", "--labels"])
def test_a_full_disk_is_one_line(tmp_path, option):
    X = np.random.default_rng(0).normal(size=(4000, 2000)).astype(np.float32)
    np.save(tmp_path / "rows.npy", X)
    out = tmp_path / ("out.npy" if option == "--labels" else "out.safetensors")
    out.write_text("older")
    # A limit on the file size makes a write fail as a full disk does.
    limited = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)); "
        "from shoal.__main__ import main; sys.exit(main())"
    )
    args = [
        "fit",
        tmp_path / "rows.npy",
        "-k",
        "3",
        "--max-iter",
        "1",
        "--init",
        "random",
        "--quiet",
        option,
        out,
    ]
    done = subprocess.run(
        [sys.executable, "-c", limited, *map(str, args)],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"shoal: error: {out}: File too large\n"
    assert out.read_text() == "older"
    assert sorted(p.name for p in tmp_path.iterdir()) == [out.name, "rows.npy"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to(capsys, rows, tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    for option in ("-o", "--labels", "--plot"):
        assert "no permission to write" in failure(
            capsys, "fit", rows, "-k", 3, "--quiet", option, folder / "x"
        )
    assert list(folder.iterdir()) == []


def test_a_traceback_on_request(capsys, rows, monkeypatch):
    monkeypatch.setenv("SHOAL_TRACEBACK", "1")
    with pytest.raises(ValueError, match="n_clusters"):
        cli.main(["fit", str(rows), "-k", "0", "--quiet"])


# ---------------------------------------------------------------- predict, info


@pytest.fixture
def model(rows, tmp_path):
    path = tmp_path / "model.safetensors"
    shoal.KMeans(3, random_state=0, n_init=2).fit(np.load(rows)).save(path)
    return path


def test_predict(capsys, rows, model, tmp_path):
    labels, distances = tmp_path / "labels.npy", tmp_path / "distances.npy"
    args = ["predict", model, rows, "-o", labels, "--json"]
    status, out, _ = run(capsys, *args)
    assert status == 0
    assert json.loads(out)["rows"] == 150
    loaded = shoal.load(model)
    expected = loaded.predict(rows)
    assert np.array_equal(np.load(labels), expected)
    labels.unlink()
    assert run(capsys, *args, "--distances", distances)[0] == 0
    assert np.array_equal(np.load(labels), expected)
    far = np.linalg.norm(np.load(rows) - loaded.cluster_centers_[expected], axis=1)
    assert np.load(distances) == pytest.approx(far, rel=1e-4)


def test_predict_errors(capsys, rows, model, tmp_path):
    np.save(tmp_path / "narrow.npy", np.zeros((5, 2), np.float32))
    out = ["-o", tmp_path / "labels.npy"]
    assert "narrow.npy has 2 columns, but the model has 3" in failure(
        capsys, "predict", model, tmp_path / "narrow.npy", *out
    )
    assert "narrow.npy has 2 columns, but the model has 3" in failure(
        capsys, "predict", model, tmp_path / "narrow.npy", *out, "--distances", tmp_path / "d.npy"
    )
    assert "also read" in failure(capsys, "predict", model, rows, "-o", rows)
    assert "rows.npy" in failure(capsys, "predict", rows, rows, *out)
    whole = model.read_bytes()
    for damaged in (
        whole[:-1],
        whole[:50],
        b"",
        whole.replace(b'\\"n_clusters\\": 3', b'\\"n_clusters\\": X'),
    ):
        assert damaged != whole
        model.write_bytes(damaged)
        assert "model.safetensors" in failure(capsys, "predict", model, rows, *out)
    assert not (tmp_path / "labels.npy").exists()


def test_info(capsys, rows, model, tmp_path):
    status, out, _ = run(capsys, "info", rows, "--json")
    assert status == 0
    found = json.loads(out)
    assert (found["shape"], found["dtype"], found["bytes"]) == ([150, 3], "float32", 1800)
    assert found["access"] == "random"
    status, out, _ = run(capsys, "info", rows)
    assert "150 x 3" in out
    status, out, _ = run(capsys, "info", model, "--json")
    found = json.loads(out)
    assert (found["kind"], found["clusters"], found["columns"]) == ("kmeans-model", 3, 3)
    assert found["version"] == shoal.__version__
    assert found["params"]["n_init"] == 2
    assert "n_init=2" in run(capsys, "info", model)[1]
    endless = tmp_path / "endless.safetensors"
    shoal.NestedMiniBatchKMeans(2, rho=float("inf"), random_state=0).fit(np.load(rows)).save(endless)
    out = run(capsys, "info", endless, "--json")[1]
    # Infinity is a string in JSON.
    assert json.loads(out, parse_constant=pytest.fail)["params"]["rho"] == "inf"
    (tmp_path / "note.txt").write_text("hello there")
    assert "neither" in failure(capsys, "info", tmp_path / "note.txt")
    failure(capsys, "info", tmp_path)
    assert "none.npy: No such file" in failure(capsys, "info", tmp_path / "none.npy")


@pytest.mark.parametrize(
    ("array", "shape", "dtype", "why"),
    [
        (np.zeros(7), [7], "float64", "rows need 2 dimensions: reshape it to (7, 1)"),
        (np.zeros((2, 3, 4), np.uint8), [2, 3, 4], "uint8", "rows need 2 dimensions"),
        (np.float32(3), [], "float32", "rows need 2 dimensions"),
        (np.zeros((0, 3)), [0, 3], "float64", "at least 1 row"),
        (np.zeros((5, 2), complex), [5, 2], "complex128", "complex"),
        (np.array([["a", {}]], dtype=object), [1, 2], "object", "Python objects"),
    ],
)
def test_info_of_arrays_that_cannot_be_clustered(capsys, tmp_path, array, shape, dtype, why):
    path = tmp_path / "x.npy"
    np.save(path, array)
    status, out, err = run(capsys, "info", path, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert (found["kind"], found["shape"], found["dtype"]) == ("array", shape, dtype)
    assert found["clustering"].startswith("not possible: ")
    assert why in found["clustering"]
    if dtype != "object":
        assert found["bytes"] == np.asarray(array).nbytes
    text = run(capsys, "info", path)[1]
    assert why in text
    assert str(shape) in text
    # A damaged file is not described as an array.
    whole = path.read_bytes()
    for cut in (100, len(whole) - 1) if np.size(array) and dtype != "object" else (100,):
        path.write_bytes(whole[:cut])
        assert "x.npy: " in failure(capsys, "info", path)


# ---------------------------------------------------------------- as a program


def shadowed(folder, *names, code="raise KeyboardInterrupt"):
    """Return an environment in which importing some packages runs `code`, by default a Ctrl-C."""
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(code)
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_version_and_help_do_not_import_numpy(tmp_path):
    environment = shadowed(tmp_path, "numpy", "sklearn", "scipy")
    done = program("--version", env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"shoal {shoal.__version__}\n", "")
    for args in (["--help"], ["fit", "--help"]):
        done = program(*args, env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        assert "usage: shoal" in done.stdout
    done = program("fit", env=environment)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("package", ["numpy", "sklearn"])
@pytest.mark.parametrize(
    "code", ["raise KeyboardInterrupt", "raise RuntimeError('no class') from KeyboardInterrupt()"]
)
def test_an_interrupt_during_the_imports(rows, tmp_path, package, code):
    done = program("fit", rows, "-k", 3, env=shadowed(tmp_path / "shadow", package, code=code))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "shoal: interrupted\n")


def test_info_of_a_file_needs_no_scikit_learn(rows, tmp_path):
    done = program("info", rows, env=shadowed(tmp_path / "shadow", "sklearn"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "150 x 3" in done.stdout


def test_importing_is_lazy(tmp_path):
    code = (
        "import sys, shoal; assert not {'numpy', 'sklearn', 'scipy'} & set(sys.modules); "
        "from shoal import *; assert KMeans is shoal.KMeans is shoal.kmeans.KMeans; "
        "assert set(shoal.__all__) <= set(dir(shoal)); assert open is shoal.open; "
        "assert shoal.callbacks.ProgressBar; assert 'sklearn' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    with pytest.raises(AttributeError, match="module 'shoal' has no attribute 'nothing'"):
        _ = shoal.nothing


def test_results_go_to_stdout_and_progress_to_stderr(rows):
    done = program("fit", rows, "-k", 3, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["clusters"] == 3
    assert "shoal fit" in done.stderr
    failed = program("fit", rows, "-k", 1000)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.splitlines()[-1].startswith("shoal: error: ")
    assert "Traceback" not in failed.stderr


def test_warnings_are_one_line(tmp_path):
    np.save(tmp_path / "same.npy", np.ones((9, 2)))
    done = program("fit", tmp_path / "same.npy", "-k", 3, "--quiet")
    assert done.returncode == 0
    assert re.fullmatch(r"shoal: warning: .*distinct.*\n", done.stderr)


@pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal")
def test_interrupted(tmp_path):
    # A sweep takes seconds, and the fit would take hours.
    X = np.random.default_rng(0).normal(size=(200_000, 64)).astype(np.float32)
    np.save(tmp_path / "large.npy", X)
    args = ["fit", "large.npy", "-k", "512", "--init", "random", "--set", "n_init=1000", "--tol", "0"]
    args += ["-o", "m.safetensors", "--labels", "l.npy"]
    err = interrupted(tmp_path, *args)
    assert b"Traceback" not in err
    assert err.endswith(b"shoal: interrupted; no checkpoint was kept: use --checkpoint to keep one\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["large.npy"]


def test_shuffle(capsys, rows, tmp_path):
    out = tmp_path / "shuffled.npy"
    status, text, err = run(
        capsys, "shuffle", rows, "-o", out, "--seed", 5, "--memory-limit", "2MB", "--json"
    )
    assert status == 0
    assert "shuffle" in err
    found = json.loads(text)
    assert (found["rows"], found["columns"], found["dtype"], found["seed"]) == (150, 3, "float32", 5)
    expected = shoal.shuffle(np.load(rows), tmp_path / "again.npy", random_state=5)
    assert np.array_equal(np.load(out), next(expected.blocks()))
    status, text, err = run(capsys, "shuffle", rows, "-o", out, "--quiet")
    assert (status, err) == (0, "")
    assert "rows" in text


def test_shuffle_errors(capsys, rows, tmp_path):
    assert "also read" in failure(capsys, "shuffle", rows, "-o", rows)
    assert "no folder" in failure(capsys, "shuffle", rows, "-o", tmp_path / "none" / "x.npy")
    assert "--memory-limit must be" in failure(
        capsys, "shuffle", rows, "-o", tmp_path / "x.npy", "--memory-limit", "few", status=2
    )
    assert "--seed must be" in failure(
        capsys, "shuffle", rows, "-o", tmp_path / "x.npy", "--seed", -1, status=2
    )
    assert ".npy" in failure(capsys, "shuffle", rows, "-o", tmp_path / "x.bin", status=2)
    failure(capsys, "shuffle", rows, status=2)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npy"]


@pytest.mark.parametrize(("suffix", "lead"), [(".fbin", "whole"), (".fvecs", "rows")])
def test_every_command_reads_vector_files(capsys, rows, model, tmp_path, suffix, lead):
    values = np.load(rows)
    other = tmp_path / f"rows{suffix}"
    if lead == "whole":
        other.write_bytes(np.array(values.shape, "<u4").tobytes() + values.tobytes())
    else:
        heads = np.full((len(values), 1), values.shape[1], "<i4").view("<f4")
        other.write_bytes(np.hstack([heads, values]).tobytes())
    found = json.loads(run(capsys, "info", other, "--json")[1])
    assert (found["kind"], found["shape"], found["dtype"]) == ("rows", [150, 3], "float32")
    assert (found["bytes"], found["access"]) == (1800, "random")
    for verb in (["predict", model, other], ["predict", model, rows]):
        assert run(capsys, *verb, "-o", tmp_path / f"{verb[-1].suffix[1:]}.npy", "--quiet")[0] == 0
    assert np.array_equal(np.load(tmp_path / f"{suffix[1:]}.npy"), np.load(tmp_path / "npy.npy"))
    assert run(capsys, "fit", other, "-k", 3, "-o", tmp_path / "m.safetensors", "--quiet")[0] == 0
    assert run(capsys, "shuffle", other, "-o", tmp_path / "s.npy", "--quiet")[0] == 0
    other.write_bytes(other.read_bytes()[:-1])
    assert other.name in failure(capsys, "info", other)


@pytest.mark.filterwarnings("ignore:the fit did not converge")
@pytest.mark.parametrize(
    "method",
    [
        "kmeans",
        "minibatch",
        "nested",
        "vrkm",
        "vrkm++",
        "hierarchical",
        "sbe",
        "breathing",
        "balanced",
        "gmm",
        "kmodes",
    ],
)
def test_models_of_every_method(capsys, rows, tmp_path, method):
    from shoal.cli.methods import METHODS

    assert method in METHODS
    assert len(METHODS) == 11
    model, kept, labels = (tmp_path / name for name in ("m.safetensors", "c.safetensors", "l.npy"))
    fit = ["fit", rows, "-k", 3, "--method", method, "--max-iter", 3, "-o", model, "--quiet"]
    assert run(capsys, *fit, "--checkpoint", kept)[0] == 0
    loaded = shoal.load(model)
    status, out, _ = run(capsys, "predict", model, rows, "-o", labels, "--json", "--quiet")
    found = json.loads(out)
    assert (status, found["clusters"], found["rows"]) == (0, 3, 150)
    expected = loaded.predict(np.load(rows))
    assert found["clusters_used"] == len(np.unique(expected))
    np.testing.assert_array_equal(np.load(labels), expected)
    assert json.loads(run(capsys, "info", model, "--json")[1])["clusters"] == 3
    # The command line writes a final checkpoint only after an interrupt.
    callback = shoal.callbacks.Checkpoint(kept, every_steps=1, overwrite=True)
    # The sweeps of the polish would also be steps.
    more = {"polish": False} if method == "sbe" else {}
    type(loaded)(3, max_iter=2, random_state=0, callbacks=[callback], **more).fit(np.load(rows))
    found = json.loads(run(capsys, "info", kept, "--json")[1])
    assert found["kind"].endswith("-checkpoint")
    assert (found["rows"], found["columns"], found["steps"]) == (150, 3, 2)
    assert found["params"]["max_iter"] == 2
    assert "max_iter=2" in run(capsys, "info", kept)[1]
    assert "--checkpoint FILE --resume" in failure(capsys, "predict", kept, rows, "-o", labels)


def test_a_coreset_is_not_a_model(capsys, rows, tmp_path):
    small, kept = tmp_path / "c.npz", tmp_path / "s.safetensors"
    assert run(capsys, "coreset", rows, "-m", 20, "-o", small, "--quiet")[0] == 0
    found = json.loads(run(capsys, "info", small, "--json")[1])
    assert (found["kind"], found["shape"]) == ("coreset", [20, 3])
    assert found["weight"] == pytest.approx(150, rel=0.5)
    assert "[20, 3]" in run(capsys, "info", small)[1]
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    assert "other.npz" in failure(capsys, "info", tmp_path / "other.npz")
    shoal.StreamingCoreset(20, random_state=0).partial_fit(np.load(rows)).save(kept)
    assert "holds a coreset" in failure(capsys, "predict", kept, rows, "-o", tmp_path / "l.npy")


def test_validation_is_refused_for_modes(capsys, rows):
    with pytest.raises(SystemExit) as ended:
        cli.main(["fit", str(rows), "-k", "3", "--method", "kmodes", "--validation", str(rows)])
    assert ended.value.code == 2
    assert "--validation" in capsys.readouterr().err


def test_info_of_tensors_and_streams(capsys, rows, tmp_path):
    pytest.importorskip("pyarrow")
    from pyarrow import parquet, table
    from safetensors.numpy import save_file

    X = np.load(rows)
    save_file({"x": X}, tmp_path / "x.safetensors")
    found = json.loads(run(capsys, "info", tmp_path / "x.safetensors", "--json")[1])
    assert (found["kind"], found["shape"], found["access"]) == ("rows", [150, 3], "random")
    parquet.write_table(table({str(i): X[:, i] for i in range(3)}), tmp_path / "x.parquet")
    found = json.loads(run(capsys, "info", tmp_path / "x.parquet", "--json")[1])
    assert (found["kind"], found["shape"], found["access"]) == ("rows", [150, 3], "replay")
    assert "in order" in failure(capsys, "compare", tmp_path / "x.parquet", "-k", 2)
    status, _, _ = run(capsys, "shuffle", tmp_path / "x.parquet", "-o", tmp_path / "s.npy", "--quiet")
    assert status == 0
    assert np.array_equal(np.sort(np.load(tmp_path / "s.npy"), axis=0), np.sort(X, axis=0))
    save_file({"x": X, "y": X}, tmp_path / "x.safetensors")
    assert "x.safetensors" in failure(capsys, "info", tmp_path / "x.safetensors")
