"""Damaged files, special files, and files that claim more memory than they need."""

import json
import os
import re
import subprocess
import sys
import warnings

import damage
import numpy as np
import pytest
import scipy.sparse as sp
import shoal
from damage import KINDS
from shoal.cli import main
from shoal.formats.stream import name_errors

for package in ("pyarrow", "h5py", "zarr"):
    pytest.importorskip(package)

X = np.random.default_rng(0).normal(size=(60, 4)).astype("f4")


@pytest.mark.parametrize("part", range(4))
def test_a_damaged_file_raises_value_error_or_is_read(part, tmp_path):
    """Damage to a number can leave a readable file. Reading takes little memory, whatever the file claims."""
    program, kinds = damage.__file__, [*KINDS][part::4]
    done = subprocess.run(
        [sys.executable, program, tmp_path, "40", *kinds], capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    came = json.loads(done.stdout)
    assert came["megabytes"] < 400
    for kind, ends in came["outcomes"].items():
        assert set(ends) <= {"read", "refused"}, f"{kind}: {ends}"
        assert ends["refused"] > 5, kind


# ---------------------------------------------------------------- special files

READERS = {
    **{
        f"x{suffix}": shoal.open
        for suffix in (
            ".npy",
            ".npz",
            ".safetensors",
            ".parquet",
            ".arrow",
            ".feather",
            ".csv",
            ".csv.gz",
            ".h5",
            ".zarr",
        )
    },
    **{f"x{suffix}": shoal.open for suffix in (".fvecs", ".fbin")},
    "coreset.npz": shoal.Coreset.load,
    "model.safetensors": shoal.load,
    "rows": lambda path: shoal.open(path, shape=(3, 2), dtype="f4"),
    "info.npz": lambda path: main(["info", str(path)]),
    "info": lambda path: main(["info", str(path)]),
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders here")
@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_refused(name, tmp_path, capsys):
    """Opening a pipe would block until a process writes to it."""
    os.mkfifo(tmp_path / name)
    if name.startswith("info"):
        assert READERS[name](tmp_path / name) == 1
        assert f"{name}: is not a regular file" in capsys.readouterr().err
        return
    with pytest.raises(ValueError, match=f"{name}: .*(is not a regular file|must be a folder)"):
        READERS[name](tmp_path / name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders here")
def test_a_pipe_in_a_folder_of_parts(tmp_path):
    (tmp_path / "parts").mkdir()
    os.mkfifo(tmp_path / "parts" / "a.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet: is not a regular file"):
        shoal.open(tmp_path / "parts")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders here")
def test_a_pipe_beside_files_of_another_kind(tmp_path):
    """A file named ``.npy`` could hold the labels of the rows in the other files."""
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4\n")
    np.save(tmp_path / "labels.npy", np.zeros(2, dtype=np.int32))
    assert shoal.open(tmp_path).shape == (None, 2)
    os.mkfifo(tmp_path / "b.npy")
    code = f"import shoal; shoal.open({str(tmp_path)!r})"
    # In a process of its own: Python could not interrupt a thread that waits for the pipe.
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert re.search(r"ValueError: .*b\.npy: is not a regular file: remove it from the folder", done.stderr)


# ---------------------------------------------------------------- memory


def large_page(path):
    """Write a file whose only page claims 2 GB."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": np.arange(100.0)}), path, use_dictionary=False, compression="zstd")
    at = pq.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset
    data = path.read_bytes()
    # The fields are 1, the type, and 2, the unpacked size in two bytes.
    assert data[at : at + 3] == b"\x15\x00\x15"
    assert data[at + 3] >= 0x80 > data[at + 4]
    path.write_bytes(data[: at + 3] + b"\xfe\xff\xff\xff\x0f" + data[at + 5 :])
    return path


def large_hdf5(path):
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("X", shape=(10**6, 512), chunks=(10**6, 512), dtype="f8")
    return path


def large_zarr(path):
    import zarr

    zarr.create_array(path, shape=(10**6, 2000), chunks=(10**6, 2000), dtype="f8")
    return path


def wide_zarr(path):
    import zarr

    zarr.create_array(path, shape=(10**6, 2000), chunks=(10**6, 1), dtype="f8")
    return path


def large_npz(path):
    import zipfile

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle, bundle.open("X.npy", "w") as member:
        header = {"descr": "<f8", "fortran_order": False, "shape": (10**6, 5)}
        np.lib.format.write_array_header_1_0(member, header)
        member.write(bytes(4 * 10**7))
    return path


def many_rows(path):
    """Write a sparse matrix of 1,000,000,000 rows without values."""
    empty = sp.csc_array((1, 4))
    np.savez(
        path,
        format="csc",
        shape=np.array([10**9, 4]),
        data=empty.data,
        indices=empty.indices,
        indptr=empty.indptr,
    )
    return path


@pytest.mark.parametrize(
    ("name", "make", "limit"),
    [
        ("x.parquet", large_page, None),
        ("x.h5", large_hdf5, None),
        ("x.zarr", large_zarr, None),
        ("x.zarr", wide_zarr, None),
        ("x.npz", large_npz, 1000),
        ("x.npz", many_rows, None),
    ],
)
def test_large_files_are_refused_before_memory_is_allocated(name, make, limit, tmp_path, monkeypatch):
    path = make(tmp_path / name)
    text = r"must take at most \d+ bytes unpacked, got \d+.*chunk_limit=.*SHOAL_CHUNK_LIMIT"
    with pytest.raises(ValueError, match=f"{name}.*{text}"), shoal.open(path, chunk_limit=limit) as source:
        list(source.blocks())
    monkeypatch.setenv("SHOAL_CHUNK_LIMIT", str(limit or "10MB"))
    with pytest.raises(ValueError, match=f"{name}.*{text}"):
        shoal.KMeans(2).fit(str(path))


def test_the_limit_can_be_changed(tmp_path, monkeypatch):
    import h5py

    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(60, 4))
    size = X.nbytes
    with pytest.raises(ValueError, match=f"a chunk must take at most {size - 1} bytes unpacked, got {size}"):
        shoal.open(tmp_path / "x.h5", chunk_limit=size - 1)
    monkeypatch.setenv("SHOAL_CHUNK_LIMIT", "100")
    assert shoal.open(tmp_path / "x.h5", chunk_limit=size).shape == X.shape
    with pytest.raises(ValueError, match="at most 100 bytes"):
        shoal.open(tmp_path / "x.h5")
    monkeypatch.setenv("SHOAL_CHUNK_LIMIT", "much")
    with pytest.raises(ValueError, match="SHOAL_CHUNK_LIMIT must be an amount of memory"):
        shoal.open(tmp_path / "x.h5")
    with pytest.raises(ValueError, match="chunk_limit must be an amount of memory"):
        shoal.open(tmp_path / "x.h5", chunk_limit="much")


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("vectors", [False, True])
def test_page_headers_of_valid_files_are_read(version, vectors, tmp_path):
    """The headers contain statistics, dictionaries, checksums and long lists."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = np.random.default_rng(0).integers(0, 50, size=(5000, 3)).astype("f4")
    columns = {f"c{j}": rows[:, j] for j in range(3)}
    if vectors:
        columns = {"text": ["long " * 100] * 5000, "v": pa.FixedSizeListArray.from_arrays(rows.ravel(), 3)}
    pq.write_table(
        pa.table(columns),
        tmp_path / "x.parquet",
        row_group_size=700,
        data_page_size=500,
        data_page_version=version,
        write_page_checksum=True,
        write_page_index=True,
        compression="snappy",
    )
    source = shoal.open(tmp_path / "x.parquet", columns=["v"] if vectors else None)
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), rows)


def test_passes_over_a_parquet_file_can_overlap(tmp_path, monkeypatch):
    """A second pass reads the whole file while the first one checks the pages of a row group."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from shoal.formats import parquet

    pq.write_table(pa.table({f"c{j}": X[:, j] for j in range(4)}), tmp_path / "x.parquet", row_group_size=30)
    source = shoal.open(tmp_path / "x.parquet")
    check, checked, other = parquet.check_pages, [], []

    def overlapped(headers, name, metadata, group, *options):
        checked.append(group)
        if len(checked) == 1:
            other.extend(source.blocks())
        check(headers, name, metadata, group, *options)

    monkeypatch.setattr(parquet, "check_pages", overlapped)
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), X)
    np.testing.assert_array_equal(np.concatenate(other), X)
    assert checked == [0, 0, 1, 1]


@pytest.mark.parametrize("suffix", [".arrow", ".feather"])
@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("codec", ["zstd", "lz4", None])
def test_a_compressed_batch_is_refused_before_it_is_unpacked(suffix, indexed, codec, tmp_path):
    import pyarrow as pa

    path, rows = tmp_path / f"x{suffix}", 50_000
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(rows * 4)), 4)
    batch = pa.RecordBatch.from_arrays([vectors], ["X"])
    options = pa.ipc.IpcWriteOptions(compression=codec)
    new = pa.ipc.new_file if indexed else pa.ipc.new_stream
    with new(str(path), batch.schema, options=options) as writer:
        writer.write_batch(batch)
    size = vectors.flatten().nbytes
    for limit in (size // 2, size):
        with shoal.open(path, chunk_limit=10 * size) as source:
            assert source.shape == (rows, 4)
        if limit < size and codec:
            with pytest.raises(
                ValueError, match=f"{path.name}: a batch must take at most {limit} bytes unpacked, got {size}"
            ):
                list(shoal.open(path, chunk_limit=limit).blocks())
        else:
            assert sum(map(len, shoal.open(path, chunk_limit=limit).blocks())) == rows


def test_chunk_limit_applies_only_to_chunked_formats(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", X)
    for rows, what in (
        (tmp_path / "x.npy", "npy files"),
        (X, "ndarray objects"),
        (lambda: iter([X]), "objects"),
    ):
        with pytest.raises(ValueError, match=f"chunk_limit='1MB' does not belong to .*{what}"):
            shoal.open(rows, chunk_limit="1MB")
    # An invalid limit in the environment does not matter for these either.
    monkeypatch.setenv("SHOAL_CHUNK_LIMIT", "much")
    assert shoal.open(tmp_path / "x.npy").shape == shoal.open(X).shape == X.shape


@pytest.mark.parametrize("entry", ["weights", "extra.bin", "weights.npy"])
def test_npz_files_with_other_or_repeated_entries_are_refused(entry, tmp_path):
    import zipfile

    path = tmp_path / "x.npz"
    shoal.lightweight_coreset(X, 10, random_state=0).save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as bundle:
            bundle.writestr(entry, bytes(10**6))
    for read in (shoal.Coreset.load, shoal.open):
        with pytest.raises(ValueError, match=r"x\.npz: .*entry '.*' (is not an .npy array|occurs twice)"):
            read(path)


def test_memory_errors_are_not_reported_as_damage():
    with pytest.raises(MemoryError), name_errors("x.h5"):
        raise MemoryError
