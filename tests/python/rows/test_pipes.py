"""Open files and pipes as X."""

import io
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import shoal
from loader import X
from shoal import cli


class Dripping(io.RawIOBase):
    """Gives a few bytes at a time, as a pipe may do."""

    def __init__(self, contents):
        self._file = io.BytesIO(contents)

    def readable(self):
        return True

    def read(self, size=-1):
        return self._file.read(min(size, 37))


def saved(rows):
    file = io.BytesIO()
    np.save(file, rows)
    return file.getvalue()


@pytest.mark.parametrize("dtype", ["f4", ">f8", "u1", "f2"])
@pytest.mark.parametrize("make", [io.BytesIO, Dripping])
def test_npy_from_a_file_object(make, dtype):
    rows = (10 * X).astype(dtype)
    source = shoal.open(make(saved(rows)))
    assert (source.shape, source.access) == ((700, 5), "once")
    np.testing.assert_array_equal(np.asarray(source), rows)
    model = shoal.KMeans(3, random_state=0).fit(rows)
    np.testing.assert_array_equal(model.predict(make(saved(rows))), model.labels_)
    with pytest.raises(ValueError, match="a pipe or an open file does not allow: save the rows"):
        shoal.KMeans(3).fit(make(saved(rows)))
    mini = shoal.MiniBatchKMeans(3, random_state=0).fit(make(saved(rows)))
    assert mini.cluster_centers_.shape == (3, 5)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "Empty CSV file"),
        (b"\x89HDF\r\n\0", "must hold an NPY file or CSV text"),
        (b"a,b\n1,2\n3,x\n", "column 'b' must hold numbers, got .*at row 1"),
        (b"1,2\n3,4\n", "first line must hold the names"),
        (saved(X)[:-1], "cut off.*700 rows, and row 699 is missing"),
        (saved(X)[:500], "cut off"),
        (saved(X) + b"x", "more bytes than the 3500 values"),
        (saved(np.asfortranarray(X)), "Fortran order.*ascontiguousarray"),
        (saved(X[:, 0]), "2-D array"),
        (saved(np.array([["a"]])), "real numbers"),
        (saved(X)[:40], "is damaged"),
        (b"\x93NUMPY\x09\x00" + saved(X)[8:], "version"),
        (saved(X).replace(b"(700, 5)", b"(7, 10**12)".ljust(8)), "is damaged"),
    ],
)
def test_other_bytes_from_a_file_object_are_refused(contents, message):
    with pytest.raises(ValueError, match=message):
        np.asarray(shoal.open(io.BytesIO(contents)))


@pytest.mark.parametrize("make", [io.BytesIO, Dripping])
@pytest.mark.parametrize("rows", [3, 200_000])
def test_csv_from_a_file_object(make, rows):
    pytest.importorskip("pyarrow")
    values = np.random.default_rng(0).normal(size=(rows, 3)).round(6)
    text = "a,b,c\n" + "".join(f"{a!r},{b!r},{c!r}\n" for a, b, c in values.tolist())
    if make is Dripping and rows > 3:
        text = text[: text.index("\n", 10_000) + 1]
        values = values[: text.count("\n") - 1]
    source = shoal.open(make(text.encode()))
    assert (source.access, source.feature_names) == ("once", ["a", "b", "c"])
    np.testing.assert_array_equal(np.asarray(source), values)
    chosen = shoal.open(make(text.encode()), columns=["c", "a"])
    np.testing.assert_array_equal(np.asarray(chosen), values[:, [2, 0]])


def test_text_files_and_wide_rows_are_refused(tmp_path):
    (tmp_path / "x.txt").write_text("1 2")
    with (tmp_path / "x.txt").open() as file, pytest.raises(TypeError, match="binary file"):
        shoal.open(file)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (3, 10**12)}
    )
    with pytest.raises(ValueError, match="one row must take at most"):
        shoal.open(io.BytesIO(header.getvalue()))


@pytest.fixture
def shoal_with(monkeypatch, capfd):
    """Run a command with bytes as standard input; return its exit status and output."""

    def run(stdin, *args):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = cli.main([str(arg) for arg in args])
        captured = capfd.readouterr()
        return status, captured.out, captured.err

    return run


def test_standard_input_on_the_command_line(shoal_with, tmp_path, capfd):
    model = shoal.KMeans(3, random_state=0).fit(X)
    model.save(tmp_path / "m.safetensors")
    status, _, problem = shoal_with(
        saved(X), "predict", tmp_path / "m.safetensors", "-", "-o", tmp_path / "l.npy"
    )
    assert status == 0, problem
    np.testing.assert_array_equal(np.load(tmp_path / "l.npy"), model.labels_)
    status, result, problem = shoal_with(saved(X), "info", "-")
    assert "700 x 5" in result, problem
    status, _, problem = shoal_with(saved(X), "fit", "-", "-k", "3", "--method", "minibatch", "--quiet")
    assert status == 0, problem
    status, _, problem = shoal_with(saved(X), "fit", "-", "-k", "3", "--quiet")
    assert (status, problem.count("\n")) == (1, 1)
    assert "save the rows to a file" in problem
    text = b"a,b\n" + b"".join(b"%d,%d\n" % (i % 7, i % 3) for i in range(300))
    status, result, problem = shoal_with(text, "info", "-")
    assert "unknown x 2" in result, problem
    status, _, problem = shoal_with(saved(X)[:-1], "fit", "-", "-k", "3", "--method", "minibatch", "--quiet")
    assert status == 1
    assert "standard input: is cut off" in problem
    with pytest.raises(SystemExit, match="2"):
        shoal_with(saved(X), "fit", "-", "-k", "3", "--key", "X")
    with pytest.raises(SystemExit, match="2"):
        shoal_with(saved(X), "fit", "-", "-k", "3", "--method", "minibatch", "--labels", tmp_path / "fit.npy")
    assert "--labels needs a second pass" in capfd.readouterr().err
    assert not (tmp_path / "fit.npy").exists()


def test_a_pipe_as_standard_input(tmp_path):
    shoal.KMeans(3, random_state=0).fit(X).save(tmp_path / "m.safetensors")
    command = [sys.executable, "-m", "shoal", "predict", "m.safetensors", "-", "-o", "l.npy"]
    done = subprocess.run(command, input=saved(X), cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "l.npy").shape == (700,)


def test_named_files_of_the_standard_library(tmp_path):
    for suffix, data in ((".npy", saved(X)), (".csv", b"a,b\n1,2\n3,4\n")):
        with tempfile.NamedTemporaryFile(suffix=suffix, dir=tmp_path) as file:
            file.write(data)
            file.seek(0)
            expected = np.asarray(shoal.open(io.BytesIO(data)))
            np.testing.assert_array_equal(np.asarray(shoal.open(file)), expected)
            file.seek(0)
            with pytest.raises(ValueError, match="a pipe or an open file does not allow"):
                shoal.KMeans(1).fit(file)
    with (
        tempfile.NamedTemporaryFile("w+", dir=tmp_path) as text,
        pytest.raises(TypeError, match="must be a binary file"),
    ):
        shoal.open(text)


def test_open_files_and_datasets_are_not_replaced(tmp_path):
    ds = pytest.importorskip("pyarrow.dataset")
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    model = shoal.KMeans(3, random_state=0).fit(X)
    np.save(tmp_path / "x.npy", X)
    before = (tmp_path / "x.npy").read_bytes()
    with (tmp_path / "x.npy").open("rb") as file:
        # Opened or not, and transformed.
        for made in (lambda: file, lambda: shoal.open(file), lambda: shoal.open(file).normalize()):
            with pytest.raises(ValueError, match="is one of the files that are read"):
                model.predict(made(), out=tmp_path / "x.npy")
            file.seek(0)
        with pytest.raises(ValueError, match="is one of the files that are read"):
            shoal.write(file, tmp_path / "x.npy")
    assert (tmp_path / "x.npy").read_bytes() == before
    name = tmp_path / "x.parquet"
    pq.write_table(pa.table({"v": list(X.astype("f4"))}), name)
    before = name.read_bytes()
    found = ds.dataset(name)
    for rows in (found, shoal.open(found), ds.dataset([found]), shoal.open(found).map(np.abs)):
        with pytest.raises(ValueError, match="is one of the files that are read"):
            model.predict(rows, out=name)
    assert name.read_bytes() == before
