"""Output files: formats by suffix, atomic replacement, and checks before any work."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import shoal
from shoal import cli
from shoal._files import outputs as _outputs
from shoal._files import tables as _tables
from shoal.callbacks import Checkpoint

feather = pytest.importorskip("pyarrow.feather")

X = np.random.default_rng(2).normal(size=(3000, 4)).astype("f4")
MODEL = shoal.KMeans(7, random_state=0).fit(X)
LABELS = MODEL.predict(X)
DISTANCES = np.linalg.norm(X.astype("f8") - MODEL.cluster_centers_[LABELS].astype("f8"), axis=1)

#: Readers of files with one value per row.
READERS = {
    ".npy": lambda path, column: np.load(path),
    ".csv": lambda path, column: pd.read_csv(path)[column].to_numpy(),
    ".txt": lambda path, column: np.loadtxt(path),
    ".parquet": lambda path, column: pd.read_parquet(path)[column].to_numpy(),
    ".arrow": lambda path, column: feather.read_table(path)[column].to_numpy(),
    ".feather": lambda path, column: pd.read_feather(path)[column].to_numpy(),
}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("suffix", READERS)
def test_the_suffix_selects_the_format(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(_tables, "GROUP_ROWS", 700)
    monkeypatch.setattr(_outputs, "TEXT_ROWS", 64)
    out, distances = tmp_path / f"l{suffix}", tmp_path / f"d{suffix.upper()}"
    out.write_bytes(b"older")
    found = MODEL.predict(lambda: iter(np.array_split(X, 11)), out=out, distances=distances)
    assert found.dtype == np.int32
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, LABELS)
    np.testing.assert_array_equal(READERS[suffix](out, "label"), LABELS)
    stored = READERS[suffix](distances, "distance")
    # No digit is lost.
    exact = np.empty(len(X))
    MODEL.predict(X, distances=exact)
    np.testing.assert_array_equal(stored, exact)
    np.testing.assert_allclose(stored, DISTANCES, rtol=1e-12)
    assert names(tmp_path) == sorted([out.name, distances.name])


def test_parquet_files_have_row_groups_and_types(tmp_path, monkeypatch):
    from pyarrow import parquet

    monkeypatch.setattr(_tables, "GROUP_ROWS", 700)
    MODEL.predict(X, out=tmp_path / "l.parquet", distances=tmp_path / "d.parquet")
    with parquet.ParquetFile(tmp_path / "l.parquet") as file:
        groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        assert groups == [700, 700, 700, 700, 200]
        assert str(file.schema_arrow.field("label").type) == "int32"
    with parquet.ParquetFile(tmp_path / "d.parquet") as file:
        assert str(file.schema_arrow.field("distance").type) == "double"


@pytest.mark.parametrize("suffix", READERS)
def test_a_failed_pass_keeps_the_old_file(suffix, tmp_path):
    def broken():
        yield X[:100]
        raise RuntimeError("no more")

    out = tmp_path / f"l{suffix}"
    out.write_bytes(b"older")
    with pytest.raises(RuntimeError, match="no more"):
        MODEL.predict(broken(), out=out, distances=tmp_path / f"d{suffix}")
    assert out.read_bytes() == b"older"
    assert names(tmp_path) == [out.name]


@pytest.mark.parametrize("name", ["l.foo", "l", "l.npz", "l.json", "l.npy.gz"])
def test_unknown_suffixes_are_refused_before_reading(name, tmp_path):
    rows = iter([X])
    text = (
        r"{} must be a file that ends in \.npy, \.csv, \.txt, \.parquet, \.arrow or \.feather, got .*" + name
    )
    with pytest.raises(ValueError, match=text.format("out")):
        MODEL.predict(rows, out=tmp_path / name)
    with pytest.raises(ValueError, match=text.format("distances")):
        MODEL.predict(rows, distances=tmp_path / name)
    assert len(list(rows)) == 1
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["m.npy", "m.parquet", "m.csv", "m.json", "m.pkl"])
def test_models_cannot_have_the_suffix_of_another_format(name, tmp_path):
    text = rf"path must be a file that ends in \.safetensors, got .*{name}"
    coreset = shoal.StreamingCoreset(10, random_state=0).partial_fit(X)
    for save in (MODEL.save, coreset.save):
        with pytest.raises(ValueError, match=text):
            save(tmp_path / name)
    with pytest.raises(ValueError, match=text):
        shoal.KMeans(2, callbacks=[Checkpoint(tmp_path / name)]).fit(X)
    with pytest.raises(ValueError, match=r"must be a file that ends in \.npz"):
        coreset.result().save(tmp_path / name)
    assert names(tmp_path) == []


def test_labels_cannot_replace_files_that_are_read(tmp_path):
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1]}).to_parquet(tmp_path / "a.parquet")
    model = shoal.KMeans(2, random_state=0).fit(tmp_path)
    with pytest.raises(ValueError, match="lies in the folder that is read"):
        model.predict(tmp_path, out=tmp_path / "labels.parquet")
    assert names(tmp_path) == ["a.parquet"]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that takes no files")
def test_an_unwritable_folder_fails_before_any_work(tmp_path, capsys, monkeypatch):
    np.save(tmp_path / "rows.npy", X)
    with pytest.raises(OSError, match="/proc/x"):
        shoal.write(X, "/proc/x.npy")
    monkeypatch.setattr(shoal.KMeans, "fit", lambda *_: pytest.fail("work was begun"))
    fit = ["fit", str(tmp_path / "rows.npy"), "-k", "3", "--quiet"]
    for option, name in (("-o", "/proc/x"), ("--labels", "/proc/x.csv"), ("--checkpoint", "/proc/x")):
        assert cli.main([*fit, option, name]) == 1
        assert f"shoal: error: {name}: cannot be written: " in capsys.readouterr().err
    # So does a name that is too long.
    long = str(tmp_path / f"{'x' * 300}.npy")
    assert cli.main([*fit, "--labels", long]) == 1
    assert "too long" in capsys.readouterr().err


def test_the_command_line_selects_formats_by_suffix(tmp_path, capsys):
    np.save(tmp_path / "rows.npy", X)
    rows, model = str(tmp_path / "rows.npy"), str(tmp_path / "m.safetensors")
    for suffix, read in READERS.items():
        out, distances = tmp_path / f"l{suffix}", tmp_path / f"d{suffix}"
        fit = ["fit", rows, "-k", "7", "--quiet", "-o", model, "--labels", str(out)]
        assert cli.main(fit) == 0
        np.testing.assert_array_equal(read(out, "label"), shoal.KMeans(7, random_state=0).fit(X).labels_)
        predict = ["predict", model, rows, "-o", str(out), "--distances", str(distances), "--quiet"]
        assert cli.main(predict) == 0
        np.testing.assert_array_equal(read(out, "label"), LABELS)
        np.testing.assert_allclose(read(distances, "distance"), DISTANCES, rtol=1e-12)
        seed = ["seed", rows, "-k", "7", "-o", str(tmp_path / "c.npy"), "--indices", str(out)]
        assert cli.main(seed) == 0
        assert read(out, "index").shape == (7,)
    capsys.readouterr()


def test_the_command_line_refuses_other_suffixes_before_any_work(tmp_path, capsys, monkeypatch):
    np.save(tmp_path / "rows.npy", X)
    rows, model = str(tmp_path / "rows.npy"), str(tmp_path / "m.safetensors")
    MODEL.save(model)
    before = names(tmp_path)
    monkeypatch.setattr(shoal, "open", lambda *_, **__: pytest.fail("work was begun"))
    for args, option in (
        (["fit", rows, "-k", "3", "-o", "x.npy"], "--output"),
        (["fit", rows, "-k", "3", "--labels", "x.safetensors"], "--labels"),
        (["fit", rows, "-k", "3", "--labels", "x"], "--labels"),
        (["fit", rows, "-k", "3", "--checkpoint", "x.csv"], "--checkpoint"),
        (["fit", rows, "-k", "3", "--plot", "x.pdf"], "--plot"),
        (["predict", model, rows, "-o", "x.json"], "--output"),
        (["predict", model, rows, "-o", "x.npy", "--distances", "x.npz"], "--distances"),
        (["seed", rows, "-k", "3", "-o", "x.csv"], "--output"),
        (["coreset", rows, "-m", "3", "-o", "x.npy"], "--output"),
        (["knn", rows, "-m", "3", "-o", "x.npy"], "--output"),
        (["shuffle", rows, "-o", "x.csv"], "--output"),
    ):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit) as raised:
            cli.main(args)
        assert raised.value.code == 2
        assert f"shoal: error: {option} must be a file that ends in " in capsys.readouterr().err
        assert names(tmp_path) == before


# ---------------------------------------------------------------- names that are not UTF-8


def text(name):
    """Return the form in which an error message shows a name that is not UTF-8."""
    return os.fsdecode(name)


@pytest.fixture
def odd(tmp_path):
    """A folder and a file whose names are not UTF-8."""
    folder = tmp_path / text(b"f\xff")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("names are text here")
    np.save(folder / text(b"r\xfe.npy"), X)
    return folder


def test_names_that_are_not_utf_8_in_python(odd):
    import h5py
    import pyarrow as pa
    import pyarrow.parquet as pq
    import scipy.sparse as sp

    rows = odd / text(b"r\xfe.npy")
    for name in (rows, str(rows), os.fsencode(rows)):
        assert shoal.open(name).shape == X.shape
        model = shoal.KMeans(7, random_state=0).fit(name)
        assert shoal.StreamingCoreset(10).partial_fit(name).n_rows_ == 3000

    def named(suffix):
        return odd / text(b"x\xff" + suffix)

    for suffix in (b".npy", b".csv", b".txt", b".parquet"):
        model.predict(rows, out=os.fsencode(named(suffix)), distances=odd / text(b"d\xff" + suffix))
        assert named(suffix).exists()
    model.save(os.fsencode(named(b".safetensors")))
    assert shoal.load(named(b".safetensors")).n_clusters == 7
    assert shoal.write(X, named(b".npy")).shape == X.shape
    assert shoal.shuffle(rows, named(b".npy"), random_state=0).shape == X.shape
    kept = os.fsencode(named(b".checkpoint"))
    for step in shoal.KMeans(7, random_state=0, callbacks=[Checkpoint(kept)]).iter_fit(rows):
        if step.iteration == 2:
            break
    np.testing.assert_array_equal(shoal.resume(kept, rows).labels_, LABELS)
    shoal.lightweight_coreset(rows, 50, random_state=0).save(named(b".npz"))
    assert shoal.Coreset.load(named(b".npz")).points.shape == (50, 4)

    with named(b".parquet").open("wb") as file:
        pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1]}), file)
    schema = pa.schema([("a", pa.float32())])
    with named(b".arrow").open("wb") as file, pa.ipc.new_file(file, schema) as to:
        to.write_table(pa.table({"a": X[:, 0]}))
    with h5py.File(named(b".h5"), "w") as file:
        file["X"] = X
    with named(b".npz").open("wb") as file:
        sp.save_npz(file, sp.csr_array(X))
    for suffix, cols in ((b".parquet", 2), (b".arrow", 1), (b".h5", 4), (b".npz", 4)):
        with shoal.open(named(suffix)) as source:
            assert source.shape == (3000, cols)
            assert sum(block.shape[0] for block in source.blocks()) == 3000


def test_errors_name_a_file_that_is_not_utf_8(odd):
    none, bad = odd / text(b"none\xff.npy"), odd / text(b"bad\xff.npy")
    with pytest.raises(FileNotFoundError) as missing:
        shoal.KMeans(2).fit(none)
    assert missing.value.filename == str(none)
    bad.write_bytes(b"\x93NUMPY")
    with pytest.raises(ValueError, match="ends within") as damaged:
        shoal.KMeans(2).fit(bad)
    assert str(bad) in str(damaged.value)
    with pytest.raises(ValueError, match="null character"):
        shoal.open("x\0.npy")
    for empty in (b"", ""):
        with pytest.raises(ValueError, match="empty path"):
            shoal.KMeans(2).fit(empty)


def shoal_program(*args, **how):
    """Run the command line in a process of its own with strict text output."""
    return subprocess.run(
        [sys.executable, "-m", "shoal", *args],
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
        timeout=120,
        **how,
    )


def test_names_that_are_not_utf_8_on_the_command_line(odd):
    rows, model = odd / text(b"r\xfe.npy"), odd / text(b"m\xff.safetensors")
    labels = odd / text(b"l\xff.csv")
    done = shoal_program("fit", rows, "-k", "7", "-o", model, "--labels", labels, capture_output=True)
    assert done.returncode == 0, done.stderr
    # The bytes of the name are printed unchanged.
    assert os.fsencode(rows) in done.stdout
    assert len(pd.read_csv(labels)) == 3000
    done = shoal_program("info", rows, "--json", capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b'"kind": "rows"' in done.stdout
    done = shoal_program("info", odd / text(b"none\xff.npy"), capture_output=True)
    assert done.returncode == 1
    assert done.stderr.startswith(b"shoal: error: ")
    assert b"No such file" in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="closes file descriptors")
@pytest.mark.parametrize("verb", ["fit", "info"])
def test_a_closed_standard_output_fails_before_any_work(verb, tmp_path):
    np.save(tmp_path / "rows.npy", X)
    more = ["-k", "3", "-o", str(tmp_path / "m.safetensors")] if verb == "fit" else []
    done = shoal_program(
        verb, tmp_path / "rows.npy", *more, stderr=subprocess.PIPE, preexec_fn=lambda: os.close(1)
    )
    assert done.returncode == 1
    assert done.stderr.startswith(b"shoal: error: standard output is closed")
    assert names(tmp_path) == ["rows.npy"]


@pytest.mark.skipif(os.name != "posix", reason="closes file descriptors")
def test_a_closed_standard_error_does_not_matter(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    done = shoal_program(
        "info", tmp_path / "rows.npy", stdout=subprocess.PIPE, preexec_fn=lambda: os.close(2)
    )
    assert done.returncode == 0
    assert b"rows" in done.stdout
    done = shoal_program(
        "info", tmp_path / "none.npy", stdout=subprocess.PIPE, preexec_fn=lambda: os.close(2)
    )
    assert (done.returncode, done.stdout) == (1, b"")
