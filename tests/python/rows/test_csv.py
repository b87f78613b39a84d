"""CSV files: values, names, options, errors and memory."""

import gzip
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import shoal
from shoal import KMeans, MiniBatchKMeans
from shoal.cli import main

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

X = np.random.default_rng(0).normal(size=(500, 3))


def text_file(path, text):
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def csv_file(path, rows=X, names=("a", "b", "c"), **options):
    delimiter = "\t" if ".tsv" in path.name else ","
    pd.DataFrame(rows, columns=list(names)).to_csv(path, index=False, sep=delimiter, **options)
    return path


def rows_of(path, **options):
    return np.concatenate(list(shoal.open(path, **options).blocks()))


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch):
    """Parse small blocks: a file has many of them."""
    monkeypatch.setattr("shoal.formats.csv.TEXT_BYTES", 1000)


@pytest.mark.parametrize("name", ["x.csv", "x.CSV", "x.tsv", "x.csv.gz", "x.tsv.gz"])
def test_the_values_are_those_that_pandas_reads(name, tmp_path):
    path = csv_file(tmp_path / name)
    source = shoal.open(path)
    assert source.shape == (None, 3)
    assert source.dtype == np.float64
    assert source.access == "replay"
    assert source.feature_names == ["a", "b", "c"]
    assert (rows_of(path) == X).all()
    frame = pd.read_csv(path, sep="\t" if "tsv" in name else ",")
    # Some versions of pandas round the last digits.
    np.testing.assert_allclose(rows_of(path), frame.to_numpy(), rtol=1e-12)
    assert (rows_of(path, columns=["c", "a"]) == X[:, [2, 0]]).all()


def test_float32_rows(tmp_path):
    rows = X.astype(np.float32)
    path = csv_file(tmp_path / "x.csv", rows)
    source = shoal.open(path, dtype="float32")
    assert source.dtype == np.float32
    assert (np.concatenate(list(source.blocks())) == rows).all()
    for dtype in ("int32", "float16"):
        with pytest.raises(
            ValueError, match=f"dtype of a CSV file must be float32 or float64, got '{dtype}'"
        ):
            shoal.open(path, dtype=dtype)
    with pytest.raises(ValueError, match="has its own shape"):
        shoal.open(path, shape=(3, 3), dtype="float32")
    again = pickle.loads(pickle.dumps(source))
    assert again.dtype == np.float32
    assert (next(again.blocks()) == rows[: len(next(source.blocks()))]).all()


def test_fits_equal_those_of_blocks(tmp_path):
    path = csv_file(tmp_path / "x.csv")
    expected = KMeans(4, random_state=0).fit(lambda: iter([X]))
    model = KMeans(4, random_state=0).fit(path)
    assert (model.cluster_centers_ == expected.cluster_centers_).all()
    assert (model.labels_ == expected.labels_).all()
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert (model.predict(path) == expected.labels_).all()
    batch = MiniBatchKMeans(3, random_state=0).partial_fit(path)
    assert (
        batch.cluster_centers_ == MiniBatchKMeans(3, random_state=0).partial_fit(X).cluster_centers_
    ).all()


def test_integers_booleans_and_blanks(tmp_path):
    # Whole numbers in the first block, fractions in a later one.
    lines = [f"{i},{'true' if i % 2 else 'false'}\n" for i in range(400)]
    path = text_file(tmp_path / "x.csv", "n,b\n" + "".join(lines) + "0.5,true\n-1e3,false\n\n")
    found = rows_of(path)
    assert found.dtype == np.float64
    assert (found[:400, 0] == np.arange(400)).all()
    assert (found[:400, 1] == np.arange(400) % 2).all()
    assert (found[400:] == [[0.5, 1], [-1000, 0]]).all()
    for text in ('"n" \n1\n', '\ufeffa,"b ""c"""\r\n 1 , 2\r\n3,4', "a\n1"):
        assert len(rows_of(text_file(tmp_path / "y.csv", text)))
    assert shoal.open(text_file(tmp_path / "y.csv", '\ufeffa,"b ""c"""\n1,2\n')).feature_names == [
        "a",
        'b "c"',
    ]


def test_files_without_a_line_of_names(tmp_path):
    path = csv_file(tmp_path / "x.csv", header=False)
    with pytest.raises(
        ValueError, match=r"x\.csv: the first line must hold the names .* got numbers: .* Name all 3"
    ):
        shoal.open(path)
    with pytest.raises(ValueError, match="Name all 3 columns"):
        shoal.open(path, columns=["u", "v"])
    with pytest.raises(ValueError, match="Name all 3 columns"):
        shoal.open(path, columns=[0, 1, 2])
    source = shoal.open(path, columns=["u", "v", "w"])
    assert source.feature_names == ["u", "v", "w"]
    assert (np.concatenate(list(source.blocks())) == X).all()
    # pandas numbers columns without names.
    path = csv_file(tmp_path / "x.csv", names=("0", "1", "2"))
    with pytest.raises(ValueError, match="got numbers: '0', '1', '2'"):
        shoal.open(path)
    assert (rows_of(path, columns=["0", "1", "2"]) == X).all()
    assert (rows_of(path, columns=["2"])[:, 0] == X[:, 2]).all()
    bad = text_file(tmp_path / "y.csv", "1,2\n3,4\n5,x\n")
    with pytest.raises(
        ValueError, match=r"y\.csv: column 'v' must hold numbers, got invalid value 'x' at row 2"
    ):
        rows_of(bad, columns=["u", "v"])


NO_NAMES = [
    # A missing value in the first row.
    (
        "1,,3\n4,5,6\n7,8,9\n",
        "column 1 must not hold missing values, got '' at row 0: the first line holds no",
    ),
    ("1,NA,3\n4,5,6\n", "column 1 must not hold missing values, got 'NA' at row 0"),
    ("NaN,2\n4,5\n", "column 0 must not hold missing values, got 'NaN' at row 0"),
    ("null\n4\n", "column 0 must not hold missing values, got 'null' at row 0"),
    ("1,,3\n", "column 1 must not hold missing values, got '' at row 0"),
    (",\n,\n", "column 0 must not hold missing values, got '' at row 0"),
    # The index of a data frame before columns that are numbered.
    (",0,1\n0,1.5,2.5\n", "first line holds no names, got '', '0', '1'. Name all 3 columns"),
    ('"1","2"\n1,2\n', "must hold the names of the columns, got numbers: '1', '2'"),
    ("inf,2\n3,4\n", "must hold the names of the columns, got numbers: 'inf', '2'"),
    ("true,1.5\nfalse,2.5\n", "must hold the names of the columns, got values: 'true', '1.5'"),
    # A text above a text is not a name if every number of the line stands above numbers.
    ("id1,1,2\nid2,3,4\n", "must hold the names of the columns, got values: 'id1', '1', '2'"),
]


@pytest.mark.parametrize(("text", "message"), NO_NAMES)
def test_a_first_line_of_values_is_no_line_of_names(text, message, tmp_path):
    path = text_file(tmp_path / "h.csv", text)
    with pytest.raises(ValueError, match=re.escape(message)):
        shoal.open(path)
    with path.open("rb") as file, pytest.raises(ValueError, match=re.escape(message)):
        shoal.open(file)


def test_the_first_row_of_a_file_without_names_is_read(tmp_path):
    path = text_file(tmp_path / "h.csv", "1,,3\n4,5,6\n7,8,9\n")
    with pytest.raises(ValueError, match="column 'v' must not hold missing values, got a null at row 0"):
        rows_of(path, columns=["u", "v", "w"])
    path = text_file(tmp_path / "h.csv", "true,1.5\nfalse,2.5\n")
    assert rows_of(path, columns=["t", "x"]).tolist() == [[1, 1.5], [0, 2.5]]
    path = text_file(tmp_path / "h.csv", "id1,1,2\nid2,3,4\n")
    with pytest.raises(
        ValueError, match=r"column 'i' is of type string\. To leave out columns, add a first line"
    ):
        shoal.open(path, columns=["i", "u", "v"])


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        (",a,b\n0,1,2\n", ["", "a", "b"], [[0, 1, 2]]),
        ('"a","",c\n1,2,3\n', ["a", "", "c"], [[1, 2, 3]]),
        ("id,0,1\n5,3,4\n", ["id", "0", "1"], [[5, 3, 4]]),
        ("0_0,0_1\n5,3\n", ["0_0", "0_1"], [[5, 3]]),
        ("a,,b\n", ["a", "", "b"], []),
    ],
)
def test_names_beside_numbers_and_empty_cells(text, names, rows, tmp_path):
    path = text_file(tmp_path / "h.csv", text)
    assert shoal.open(path).feature_names == names
    assert [row for block in shoal.open(path).blocks() for row in block.tolist()] == rows


def test_numbered_columns_are_chosen_by_name(tmp_path):
    for text in (",0,1\n0,1.5,2.5\n", "label,0,1\ncat,1.5,2.5\n"):
        assert rows_of(text_file(tmp_path / "h.csv", text), columns=["0", "1"]).tolist() == [[1.5, 2.5]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        # The name of the test holds the bytes, so all processes must make the same ones.
        (
            gzip.compress(b"a,b\n1,2\n", mtime=0),
            "is compressed with gzip: decompress it, or let its name end in .gz",
        ),
        (b"PK\x03\x04" + bytes(30), "is compressed with zip: decompress it"),
        ("a,b\n1,2\n".encode("utf-16"), "is not UTF-8 but UTF-16: convert it to UTF-8"),
        ("größe,b\n1,2\n".encode("latin-1"), "the first line is not UTF-8 text. Convert the file to UTF-8"),
        (
            "a,ort\n1,Köln\n".encode("latin-1"),
            "column 'ort' is of type binary: it holds text that is not UTF-8",
        ),
        (b"a\n" + b"1\n" * 900 + "ö\n".encode("latin-1"), "column 'a' must hold numbers, got invalid value"),
    ],
)
def test_files_that_are_not_utf_8(data, message, tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="x.csv: " + re.escape(message)):
        rows_of(path)
    if b"ort" in data:
        assert rows_of(path, columns=["a"]).tolist() == [[1]]


def body(row, line, rows=300):
    """A file of `rows` lines, of which one is another."""
    lines = [f"{i},{i}.5,{i}" for i in range(rows)]
    lines[row] = line
    return "a,b,c\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize("row", [0, 3, 250, 299])
@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("1,x,2", "column 'b' must hold numbers, got invalid value 'x' at row {}"),
        ("1,2,0x10", "column 'c' must hold numbers, got invalid value '0x10' at row {}"),
        ("1,,2", "column 'b' must not hold missing values, got a null at row {}"),
        ("1,2,NA", "column 'c' must not hold missing values, got a null at row {}"),
        ("1,2", "row {}: Expected 3 columns, got 2: 1,2"),
        ("1,2,3,4", "row {}: Expected 3 columns, got 4: 1,2,3,4"),
    ],
)
def test_the_error_names_file_column_and_row(line, row, text, tmp_path):
    if row == 0 and "value 'x'" in text:
        # A column whose first value is text is a column of text.
        text = "column 'b' is of type string. Choose columns of numbers with columns="
    for name in ("x.csv", "x.csv.gz"):
        path = text_file(tmp_path / name, body(row, line))
        with pytest.raises(ValueError, match=f"{name}: " + text.format(row)):
            rows_of(path)
        with pytest.raises(ValueError, match=name):
            KMeans(2).fit(path)
    # A bad value in a column that is not read does not matter.
    if "column" in text and "Expected" not in text:
        assert (rows_of(path, columns=["a"])[row + 1 :, 0] == np.arange(row + 1, 300)).all()


def test_columns_are_counted_in_the_file(tmp_path):
    path = text_file(tmp_path / "x.csv", body(120, "1,2,x"))
    with pytest.raises(ValueError, match="column 'c' must hold numbers, got invalid value 'x' at row 120"):
        rows_of(path, columns=["c", "a"])


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "x.csv: cannot be read: Empty CSV file"),
        (
            "id,x\nq,1\nr,2\n",
            {},
            "column 'id' is of type string. Choose columns of numbers with columns=.'x'.",
        ),
        ("id,x\nq,1\n", {"columns": ["id"]}, "column 'id' is of type string. Choose"),
        ("d,x\n2020-01-01,1\n", {}, "column 'd' is of type date32.day.. Choose"),
        ("a;b\n1;2\n", {}, "column 'a;b' is of type string"),
        ("a,a\n1,2\n", {}, "has several columns with the name 'a'"),
        ("a,b\n1,2\n", {"columns": ["z"]}, "columns must be among 'a', 'b', got 'z'"),
        ("a,b\n1,2\n", {"columns": ["a", "a"]}, "columns must be distinct, got 'a' twice"),
        ("a,b\n1,2\n", {"key": "a"}, "key='a' does not belong to .csv files"),
        ("a,b\n1,2\n", {"chunk_limit": 9}, "chunk_limit=9 does not belong to .csv files"),
        ("a,b\n1," + "2" * 5000 + "\n", {}, "a line must take at most 1000 bytes"),
        (b"a,b\n1,\xff\n", {}, "column 'b' is of type binary"),
    ],
)
def test_bad_files(text, options, message, tmp_path):
    path = text_file(tmp_path / "x.csv", text)
    with pytest.raises(ValueError, match=message) as caught:
        shoal.open(path, **options)
    assert "x.csv" in str(caught.value)


def test_files_without_rows(tmp_path):
    path = text_file(tmp_path / "x.csv", "a,b\n")
    source = shoal.open(path)
    assert source.feature_names == ["a", "b"]
    assert list(source.blocks()) == []
    with pytest.raises(ValueError, match="row"):
        KMeans(1).fit(path)


def test_files_that_are_no_gzip(tmp_path):
    path = tmp_path / "x.csv.gz"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"x\.csv\.gz: cannot be read: .*inflate"):
        shoal.open(path)
    whole = gzip.compress(b"a,b\n" + b"1.25,2.5\n" * 5000)
    path.write_bytes(whole[:-30])
    with pytest.raises(ValueError, match=r"x\.csv\.gz: "):
        rows_of(path)


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        shoal.open(tmp_path / "x.csv")
    assert caught.value.filename == str(tmp_path / "x.csv")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_does_not_grow_with_the_file(tmp_path):
    line = ",".join(["1.25"] * 64) + "\n"
    path = tmp_path / "x.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write((",".join(f"c{j}" for j in range(64)) + "\n").encode())
        for _ in range(60):
            file.write(line.encode() * 5000)
    code = f"""
import re, shoal
def now():
    with open("/proc/self/status") as file:
        return int(re.search(r"RssAnon:\\s*(\\d+)", file.read())[1])
source = shoal.open({str(path)!r})
next(source.blocks())
before, most, rows = now(), 0, 0
for block in source.blocks():
    rows += len(block)
    most = max(most, now())
print(rows, (most - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rows, megabytes = map(int, done.stdout.split())
    assert rows == 300_000
    # The rows take 154 MB, a block 8 MB.
    assert megabytes < 90


def test_command_line(tmp_path, capsys):
    path = csv_file(tmp_path / "x.csv")
    labels = tmp_path / "labels.npy"
    fit = ["fit", str(path), "-k", "3", "--seed", "0", "--labels", str(labels), "--quiet", "--columns", "a"]
    assert main(fit) == 0
    expected = KMeans(3, random_state=0).fit(lambda: iter([X[:, :1]]))
    assert (np.load(labels) == expected.labels_).all()
    text_file(path, "id,x\nq,1\n")
    assert main(["info", str(path)]) == 1
    assert "x.csv: column 'id' is of type string" in capsys.readouterr().err
