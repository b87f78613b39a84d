"""Files behind URLs, which fsspec opens: here, from its file system in memory."""

import gzip
import io
import pickle
import sys

import numpy as np
import pytest
import shoal

fsspec = pytest.importorskip("fsspec")
pa = pytest.importorskip("pyarrow")

X = np.random.default_rng(0).normal(size=(3000, 4)).astype("float32")
FOLDER = "memory://bucket"
NAMES = ("rows.npy", "rows.parquet", "rows.csv", "rows.csv.gz")


def contents(name):
    """The bytes of a file of `X`."""
    from pyarrow import csv, parquet

    table, file = pa.table({f"c{j}": X[:, j] for j in range(4)}), io.BytesIO()
    write = {
        "rows.npy": lambda: np.save(file, X),
        "rows.parquet": lambda: parquet.write_table(table, file),
    }
    write.get(name, lambda: csv.write_csv(table, file))()
    return gzip.compress(file.getvalue()) if name.endswith(".gz") else file.getvalue()


@pytest.fixture
def write():
    """Return a function that writes a file in memory, and returns its URL."""

    def put(name, data=None):
        with fsspec.open(f"{FOLDER}/{name}", "wb") as file:
            file.write(contents(name) if data is None else data)
        return f"{FOLDER}/{name}"

    yield put
    fsspec.filesystem("memory").store.clear()


@pytest.mark.parametrize("name", NAMES)
def test_a_url_is_read_in_every_pass(name, write, tmp_path):
    url = write(name)
    source = shoal.open(url, dtype="float32" if "csv" in name else None)
    assert source.access == "replay"
    model = shoal.KMeans(5, random_state=0).fit(source)
    np.testing.assert_array_equal(model.labels_, shoal.KMeans(5, random_state=0).fit(X).labels_)
    labels = model.predict(url, out=tmp_path / "labels.npy")
    np.testing.assert_array_equal(labels, model.labels_)
    again = pickle.loads(pickle.dumps(source))
    assert repr(again) == repr(source)
    np.testing.assert_array_equal(np.concatenate(list(again.blocks())), X)


def test_many_urls_and_queries(write):
    urls = [write("rows.npy"), write("rows.parquet")]
    with pytest.raises(ValueError, match="must be one URL or a list of local paths") as told:
        shoal.open(urls)
    remedy = str(told.value).partition("X = ")[2].rstrip(".")
    both = eval(remedy, {"urls": urls, "shoal": shoal})
    assert shoal.KMeans(5, random_state=0).fit(both).labels_.shape == (2 * len(X),)
    assert shoal.formats.suffix_of("https://host/a.Parquet?download=true") == ".parquet"
    assert shoal.formats.suffix_of("what?.npy") == ".npy"


def test_a_file_that_is_replaced_by_another(write):
    source = shoal.open(write("rows.npy"))
    file = io.BytesIO()
    np.save(file, X[:10])
    write("rows.npy", file.getvalue())
    with pytest.raises(ValueError, match="was changed or replaced while it was open"):
        list(source.blocks())


def test_other_formats_and_missing_files(write):
    with pytest.raises(ValueError, match=r"must end in one of \.npy, .* got \.h5\. .* copy the file first"):
        shoal.open(f"{FOLDER}/rows.h5")
    with pytest.raises(ValueError, match="got no suffix"):
        shoal.open(f"{FOLDER}/rows")
    with pytest.raises(ValueError, match="has its own shape and dtype"):
        shoal.open(f"{FOLDER}/rows.npy", shape=(1, 1), dtype="float32")
    for name in NAMES:
        with pytest.raises(FileNotFoundError, match=f"No such file or directory: '{FOLDER}/{name}'"):
            shoal.open(f"{FOLDER}/{name}")
    for name in NAMES:
        with pytest.raises(OSError, match=f"cannot be opened: Protocol not known: nope: 'nope://{name}'"):
            shoal.open(f"nope://{name}")
    with pytest.raises(ValueError, match="is damaged"):
        shoal.open(write("rows.npy", b"none"))


def test_missing_packages(write, monkeypatch):
    url = write("rows.npy")

    def missing(*args, **kwargs):
        raise ImportError("Install s3fs to access S3")

    with monkeypatch.context() as patched:
        patched.setattr(fsspec, "open", missing)
        with pytest.raises(ImportError, match=r"rows\.npy: Install s3fs to access S3"):
            shoal.open(url)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ImportError, match=r"rows\.npy needs fsspec: pip install 'shoal-cluster\[remote\]'"):
        shoal.open(url)


def test_a_path_with_a_colon_is_no_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a::b:c.npy", X)
    assert shoal.open("a::b:c.npy").access == "random"
