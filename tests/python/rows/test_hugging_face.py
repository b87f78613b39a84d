"""Datasets of Hugging Face as rows: of the library `datasets` if it is installed, and of a stand-in."""

import sys

import numpy as np
import pytest
import shoal

pa = pytest.importorskip("pyarrow")

X = np.random.default_rng(0).normal(size=(3000, 4)).astype("float32")


class IterableDataset:
    """Stands in for ``datasets.IterableDataset``: rows that come one batch at a time."""

    __module__ = "datasets.iterable_dataset"
    features = None

    def __init__(self, table):
        self.table = table

    def select_columns(self, columns):
        return type(self)(self.table.select(columns))

    def with_format(self, kind):
        assert kind == "arrow"
        return self

    def iter(self, batch_size):
        for start in range(0, self.table.num_rows, batch_size):
            yield self.table.slice(start, batch_size)


class Dataset(IterableDataset):
    """Stands in for ``datasets.Dataset``: with a length, features and a format."""

    __module__ = "datasets.arrow_dataset"

    def __init__(self, table, chosen=None):
        super().__init__(table)
        self.format = {"type": None, "columns": chosen or table.column_names}
        self.features = type("Features", (), {"arrow_schema": table.schema})

    def __len__(self):
        return self.table.num_rows


class DatasetDict(dict):
    """Stands in for ``datasets.DatasetDict``."""

    __module__ = "datasets.dataset_dict"

    def with_format(self, kind):
        return self


@pytest.fixture(params=["stand-in", "datasets"])
def make(request):
    """Return functions that make a dataset, an iterable dataset and a dictionary of splits."""
    table = pa.table({"text": ["..."] * len(X), "vector": pa.array(X.tolist(), pa.list_(pa.float32()))})
    if request.param == "stand-in":
        return Dataset(table), Dataset(table, ["vector"]), IterableDataset(table), DatasetDict
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset(table)
    return (
        data,
        data.with_format("numpy", columns=["vector"]),
        data.to_iterable_dataset(),
        datasets.DatasetDict,
    )


def test_a_dataset_is_a_stream_of_its_rows(make):
    data, formatted, iterable, _ = make
    expected = shoal.KMeans(5, random_state=0).fit(X)
    for rows, count in ((shoal.open(data, columns=["vector"]), len(X)), (shoal.open(formatted), len(X))):
        assert (rows.shape, rows.dtype.name, rows.access) == ((count, 4), "float32", "replay")
        np.testing.assert_array_equal(shoal.KMeans(5, random_state=0).fit(rows).labels_, expected.labels_)
    rows = shoal.open(iterable, columns=["vector"])
    assert rows.shape == (None, 4)
    np.testing.assert_array_equal(shoal.KMeans(5, random_state=0).fit(rows).labels_, expected.labels_)
    np.testing.assert_array_equal(expected.predict(formatted), expected.labels_)


def test_columns_and_splits_are_chosen(make):
    data, _, iterable, splits = make
    for rows in (data, iterable):
        with pytest.raises(ValueError, match=r"'text' is of type string. Choose .* columns=\['vector'\]"):
            shoal.open(rows)
    with pytest.raises(TypeError, match=r"must be one split of a DatasetDict: pass X\['train'\]"):
        shoal.KMeans(5).fit(splits({"train": data}))


def test_columns_of_numbers_have_names():
    model = shoal.KMeans(2, random_state=0).fit(Dataset(pa.table({"x": X[:, 0], "y": X[:, 1]})))
    assert model.feature_names_in_.tolist() == ["x", "y"]
    with pytest.raises(ValueError, match="has no rows"):
        shoal.open(IterableDataset(pa.table({"x": np.empty(0)})))


def test_other_objects_of_a_module_of_this_name():
    loader = type("Loader", (), {"__module__": "datasets", "__iter__": lambda self: iter([X])})
    assert shoal.open(loader()).dtype.name == "float32"


def test_datasets_is_not_imported():
    shoal.open(Dataset(pa.table({"x": X[:, 0]})))
    assert "datasets" not in sys.modules or hasattr(sys.modules["datasets"], "load_dataset")
