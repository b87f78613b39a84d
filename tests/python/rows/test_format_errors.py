"""File formats and objects of other libraries: what they must not hold."""

import json
import struct

import numpy as np
import pytest
import shoal
from shoal import KMeans
from written import (
    WRITERS,
    hdf5_file,
    ipc_file,
    made,
    numbers,
    tensor_file,
    vectors,
    zarr_store,
)

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


BAD = {
    "nulls": (
        pa.table({"a": [1.0, 2.0], "b": [3.0, None]}),
        "column 'b' must not hold missing values, got a null at row 1",
    ),
    "null vectors": (
        pa.table({"v": pa.array([[1, 2], [3, 4], None], pa.list_(pa.int8(), 2))}),
        # Old versions of pyarrow cannot read what they wrote to Parquet.
        "(column 'v' must not hold missing values, got a null at row 2|cannot be read: Expected all lists)",
    ),
    "nulls in vectors": (
        pa.table({"v": pa.array([[1, 2], [3, None]], pa.list_(pa.int8(), 2))}),
        "column 'v' must not hold missing values, got a null at row 1",
    ),
    "strings": (
        pa.table({"a": [1.0, 2.0], "s": ["x", "y"]}),
        "column 's' is of type (large_)?string. Choose",
    ),
    "ragged": (
        pa.table({"r": [[1.0], [2.0, 3.0]]}),
        "column 'r' must hold vectors of length 1, the length of the first row, got length 2 at row 1",
    ),
    "nested": (
        pa.table({"n": pa.array([[[1.0], [2.0]]], pa.list_(pa.list_(pa.float32(), 1), 2))}),
        "column 'n' must hold vectors of real numbers, got vectors of type fixed_size_list<",
    ),
    "struct": (pa.table({"t": [{"x": 1.0}]}), r"column 't' is of type struct<x: double>. Choose"),
    "dates": (
        pa.table({"d": pa.array([0], pa.timestamp("s"))}),
        r"column 'd' is of type timestamp\[\w+\]. Choose",
    ),
    "decimals": (pa.table({"d": pa.array([1], pa.decimal128(5))}), "column 'd' is of type decimal128"),
    "dictionary": (
        pa.table({"k": pa.array(["x", "y", "x"]).dictionary_encode()}),
        "column 'k' is of type dictionary<.*>. Choose",
    ),
    "beside vectors": (
        vectors(made("int8"), a=np.arange(203)),
        "column 'v' holds vectors, so it must be the only column, got 2 columns. Choose",
    ),
}


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("kind", BAD)
def test_invalid_columns(kind, suffix, tmp_path):
    table, text = BAD[kind]
    path = tmp_path / f"x.{suffix}"
    if suffix == "parquet":
        parquet.write_table(table, path)
    else:
        ipc_file(path, table)
    for use in (KMeans(1).fit, lambda X: list(shoal.open(X).blocks())):
        with pytest.raises(ValueError, match=f"x.{suffix}: {text}"):
            use(path)


def test_missing_columns(tmp_path):
    X = made("float32")
    parquet.write_table(numbers(X), tmp_path / "x.parquet")
    ipc_file(tmp_path / "x.arrow", pa.table({}), rows=1)
    parquet.write_table(
        pa.table({"a": [1.0], "A": [2.0]}).rename_columns(["a", "a"]), tmp_path / "two.parquet"
    )
    refused = [
        ({"columns": ["c0", "z"]}, "x.parquet", "x.parquet: columns must be among 'c0', 'c1', .*, got 'z'"),
        ({"columns": [3]}, "x.parquet", "x.parquet: columns must be among 'c0', .*, got 3"),
        ({"columns": ["c0", "c0"]}, "x.parquet", "x.parquet: columns must be distinct, got 'c0' twice"),
        ({"columns": []}, "x.parquet", "x.parquet: has no columns"),
        ({"key": "c0"}, "x.parquet", "x.parquet: key='c0' does not belong to .parquet files"),
        (
            {"shape": (1, 1), "dtype": "u1"},
            "x.parquet",
            "an .parquet file has its own shape",
        ),
        ({}, "x.arrow", "x.arrow: has no columns"),
        ({}, "two.parquet", "two.parquet: has several columns with the name 'a'"),
    ]
    for given, name, text in refused:
        with pytest.raises(ValueError, match=text):
            shoal.open(tmp_path / name, **given)


def test_no_rows_at_all(tmp_path):
    table = vectors(made("float32", rows=0))
    parquet.write_table(table, tmp_path / "x.parquet")
    ipc_file(tmp_path / "x.arrow", table)
    for given in (table, table.schema.empty_table(), tmp_path / "x.parquet", tmp_path / "x.arrow"):
        source = shoal.open(given)
        assert source.shape == (0, 5)
        assert sum(len(block) for block in source.blocks()) == 0
        with pytest.raises(ValueError, match=r"n_samples=0|no rows|0 rows"):
            KMeans(1).fit(given)


def test_hundreds_of_columns(tmp_path):
    X = made("int16", rows=30, cols=300)
    parquet.write_table(numbers(X), tmp_path / "x.parquet")
    assert (np.concatenate(list(shoal.open(tmp_path / "x.parquet").blocks())) == X).all()


def test_files_of_a_folder_must_have_the_same_columns(tmp_path):
    folder = tmp_path / "parts.parquet"
    folder.mkdir()
    with pytest.raises(FileNotFoundError, match=r"no \.parquet files in the folder"):
        shoal.open(folder)
    parquet.write_table(numbers(made("float32")), folder / "a.parquet")
    parquet.write_table(numbers(made("float64")), folder / "b.parquet")
    with pytest.raises(
        ValueError,
        match=r"b\.parquet: has 5 columns of float64 .*, unlike .*a\.parquet, which has 5 columns of float32",
    ):
        KMeans(2).fit(folder)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda p: hdf5_file(p / "x.h5", np.zeros(3)),
            r"x\.h5\['/X'\]: must be a 2-D array, got shape \(3,\)",
        ),
        (
            lambda p: hdf5_file(p / "x.h5", np.zeros((0, 3))),
            "must have at least one row and one column, got 0 x 3",
        ),
        (
            lambda p: hdf5_file(p / "x.h5", np.zeros((2, 3), complex)),
            "must hold real numbers, got complex128",
        ),
        (lambda p: hdf5_file(p / "x.h5", np.array([[b"ab"]])), "must hold real numbers, got .*S2"),
        (
            lambda p: zarr_store(p / "x.zarr", np.zeros((1, 2, 3))),
            r"must be a 2-D array, got shape \(1, 2, 3\)",
        ),
        (lambda p: tensor_file(p / "x.safetensors", np.zeros(3)), r"must be a 2-D tensor, got shape \(3,\)"),
        (
            lambda p: tensor_file(p / "x.safetensors", np.zeros((2, 2), "complex64")),
            "the type must be a boolean, an integer or a float",
        ),
        (lambda p: tensor_file(p / "x.safetensors", np.zeros((0, 2))), "at least 1 row"),
    ],
)
def test_invalid_arrays(make, text, tmp_path):
    path = make(tmp_path)
    with pytest.raises(ValueError, match=text):
        KMeans(1).fit(path)


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.feather", "x.h5", "x.zarr", "x.safetensors"])
def test_missing_files(name, tmp_path):
    with pytest.raises(FileNotFoundError, match=name) as caught:
        KMeans(2).fit(tmp_path / name)
    assert caught.value.filename == str(tmp_path / name)


def test_unknown_suffixes(tmp_path):
    path = tmp_path / "x.xyz"
    path.touch()
    with pytest.raises(ValueError, match=r"that end in \.xyz are not supported yet; supported") as caught:
        KMeans(2).fit(path)
    for suffix in (".npy", ".parquet", ".arrow", ".feather", ".h5", ".hdf5", ".zarr", ".safetensors"):
        assert f" {suffix}" in str(caught.value)


@pytest.mark.parametrize("contents", [b"", b"no such thing" * 100, b"ARROW1\0\0", b"FEA1" * 9, b"PAR1PAR1"])
@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.feather", "x.h5", "x.safetensors"])
def test_files_with_other_contents(name, contents, tmp_path):
    path = tmp_path / name
    path.write_bytes(contents)
    with pytest.raises(ValueError, match=name):
        shoal.open(path)


def damaged(data, rng):
    """Return the bytes with an end cut off, or with a few bits flipped, often near the start or end."""
    data = bytearray(data)
    if rng.random() < 0.2:
        return data[: rng.integers(len(data))]
    for _ in range(rng.integers(1, 4)):
        near = rng.integers(min(len(data), 500))
        at = (rng.integers(len(data)), near, len(data) - 1 - near)[rng.integers(3)]
        data[at] ^= 1 << rng.integers(8)
    return data


@pytest.mark.parametrize("kind", WRITERS)
def test_damaged_files_are_refused_or_read(kind, tmp_path):
    rng = np.random.default_rng(len(kind))
    X = made("float32")
    path = WRITERS[kind](tmp_path, X)
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    whole = [file.read_bytes() for file in files]
    refusals = []
    for _ in range(60):
        file = rng.integers(len(files))
        if not whole[file]:
            continue
        files[file].write_bytes(damaged(whole[file], rng))
        try:
            source = shoal.open(path)
            for block in source.blocks():
                assert block.shape[1:] == source.shape[1:]
        except (ValueError, OSError) as error:
            refusals.append(str(error))
        files[file].write_bytes(whole[file])
    assert refusals
    assert all(path.name in refusal for refusal in refusals)
    assert (np.concatenate(list(shoal.open(path).blocks())) == X).all()


@pytest.mark.parametrize(
    "entry",
    [
        "x",
        {},
        {"dtype": "F32", "shape": [2, 2], "data_offsets": [0]},
        {"dtype": "F32", "shape": [2, 2], "data_offsets": [8, 0]},
        {"dtype": "F32", "shape": [2, 2], "data_offsets": [-8, 8]},
        {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 15]},
        {"dtype": "F32", "shape": [2, 2], "data_offsets": [16, 32]},
        {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [2.0, 2], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [True, 4], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": 4, "data_offsets": [0, 16]},
        {"dtype": ["F32"], "shape": [2, 2], "data_offsets": [0, 16]},
    ],
)
def test_inconsistent_safetensors_headers(entry, tmp_path):
    header = json.dumps({"X": entry}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    with pytest.raises(ValueError, match=r"x\.safetensors: has a damaged header: "):
        shoal.open(path)


def test_a_file_that_changes_between_two_passes(tmp_path):
    for name, write in (
        ("x.h5", lambda X: hdf5_file(tmp_path / "x.h5", X)),
        ("x.arrow", lambda X: ipc_file(tmp_path / "x.arrow", vectors(X))),
    ):
        source = shoal.open(write(made("float32", rows=300)))
        list(source.blocks())
        write(made("float32", rows=30))
        with pytest.raises(ValueError, match=name.replace(".", r"\.") + "|rows"):
            KMeans(3).fit(source)
