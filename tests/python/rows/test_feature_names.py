"""Feature names are recorded and checked for every kind of table and storage."""

import numpy as np
import pytest
import shoal
from exporters import Sized
from shoal import BackwardEulerKMeans, KMeans, MiniBatchKMeans, NestedMiniBatchKMeans, StreamingCoreset
from shoal.callbacks import Checkpoint

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
dataset = pytest.importorskip("pyarrow.dataset")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")

X = np.random.default_rng(0).normal(size=(300, 2))
TABLE = pa.table({"a": X[:, 0], "b": X[:, 1]})
#: The same columns in another order.
SWAPPED = TABLE.select(["b", "a"])
ORDER = "Feature names must be in the same order as they were in fit"


def parquet_file(table, folder):
    parquet.write_table(table, folder / "x.parquet")
    return folder / "x.parquet"


def parquet_folder(table, folder):
    parquet.write_table(table.slice(0, 100), folder / "0.parquet")
    parquet.write_table(table.slice(100), folder / "1.parquet")
    return folder


def feather_file(table, folder):
    feather.write_feather(table, folder / "x.feather")
    return folder / "x.feather"


def arrow_file(table, folder):
    with pa.ipc.new_file(folder / "x.arrow", table.schema) as writer:
        writer.write_table(table)
    return folder / "x.arrow"


def csv_file(table, folder):
    table.to_pandas().to_csv(folder / "x.csv", index=False)
    return folder / "x.csv"


def relation(table):
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("rows", table)
    return connection.sql("SELECT * FROM rows")


FORMS = {
    "parquet": parquet_file,
    "folder of parquet": parquet_folder,
    "feather": feather_file,
    "arrow": arrow_file,
    "open file": lambda table, folder: shoal.open(parquet_file(table, folder)),
    "chosen columns": lambda table, folder: shoal.open(
        parquet_file(table.append_column("c", table.column(0)), folder), columns=table.column_names
    ),
    "data set": lambda table, folder: dataset.dataset(parquet_file(table, folder)),
    "table": lambda table, _: table,
    "batch": lambda table, _: table.to_batches()[0],
    "exporter": lambda table, _: Sized(table),
    "pandas": lambda table, _: table.to_pandas(),
    "polars": lambda table, _: pl.from_arrow(table),
    "open frame": lambda table, _: shoal.open(table.to_pandas()),
    "open table": lambda table, _: shoal.open(table),
    "chosen columns of a frame": lambda table, _: shoal.open(
        table.to_pandas().assign(c=0.0), columns=table.column_names
    ),
    "csv": csv_file,
    "lazy frame": lambda table, _: pl.from_arrow(table).lazy(),
    "relation": lambda table, _: relation(table),
    "slice": lambda table, _: shoal.open(pl.from_arrow(table)).slice(0, 200),
    "frames from a callable": lambda table, _: (
        lambda: iter([table.to_pandas(), table.slice(0, 9).to_pandas()])
    ),
}
#: Sources that can be read once.
ONCE = {
    "reader": lambda table, _: table.to_reader(),
    "frames": lambda table, _: iter([pl.from_arrow(table)]),
}


def folder_of(tmp_path, name):
    (tmp_path / name).mkdir()
    return tmp_path / name


@pytest.mark.parametrize("form", FORMS)
def test_columns_in_another_order_are_refused(form, tmp_path):
    good = FORMS[form](TABLE, folder_of(tmp_path, "good"))
    bad = FORMS[form](SWAPPED, folder_of(tmp_path, "bad"))
    model = KMeans(3, random_state=0).fit(good)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    for call in (model.predict, model.transform, model.score):
        call(good)
        with pytest.raises(ValueError, match=ORDER):
            call(bad)
    with pytest.raises(ValueError, match=ORDER):
        model.predict(bad, out=tmp_path / "labels.npy")
    with pytest.raises(ValueError, match="Feature names unseen at fit time"):
        model.predict(FORMS[form](TABLE.rename_columns(["a", "z"]), folder_of(tmp_path, "other")))
    # Rows without names are accepted with a warning.
    with pytest.warns(UserWarning, match="X does not have valid feature names, but KMeans was fitted with"):
        model.predict(shoal.open(X))


@pytest.mark.parametrize("form", [*FORMS, *ONCE])
@pytest.mark.parametrize(
    "cls",
    [MiniBatchKMeans, NestedMiniBatchKMeans, BackwardEulerKMeans, StreamingCoreset],
    ids=lambda c: c.__name__,
)
def test_batches_are_checked(cls, form, tmp_path):
    def make(table, name):
        return (FORMS | ONCE)[form](table, folder_of(tmp_path, name))

    model = cls(3, random_state=0).partial_fit(make(TABLE, "first"))
    assert model.feature_names_in_.tolist() == ["a", "b"]
    model.partial_fit(make(TABLE, "second"))
    with pytest.raises(ValueError, match=ORDER):
        model.partial_fit(make(SWAPPED, "swapped"))
    assert model.feature_names_in_.tolist() == ["a", "b"]
    model.save(tmp_path / "model.safetensors")
    again = shoal.load(tmp_path / "model.safetensors")
    assert again.feature_names_in_.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match=ORDER):
        again.partial_fit(make(SWAPPED, "swapped again"))


def test_names_survive_files_and_checkpoints(tmp_path):
    good, bad = (
        parquet_file(TABLE, folder_of(tmp_path, "good")),
        parquet_file(SWAPPED, folder_of(tmp_path, "bad")),
    )
    model = KMeans(3, random_state=0).fit(good)
    model.save(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=ORDER):
        shoal.load(tmp_path / "model.safetensors").predict(bad)
    kept = tmp_path / "run.safetensors"
    for _ in KMeans(3, random_state=0, callbacks=[Checkpoint(kept)]).iter_fit(good):
        break
    with pytest.raises(ValueError, match="must have the features of the checkpoint"):
        shoal.resume(kept, bad)
    assert shoal.resume(kept, good).feature_names_in_.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    "cls", [shoal.LaplacianKModes, shoal.VarianceReducedKMeans, shoal.TruncatedGaussianMixture]
)
def test_every_estimator_records_names(cls, tmp_path):
    model = cls(3, random_state=0).fit(parquet_file(TABLE, tmp_path))
    assert model.feature_names_in_.tolist() == ["a", "b"]


def test_sources_have_feature_names(tmp_path):
    source = shoal.open(parquet_file(TABLE, tmp_path))
    assert source.feature_names == ["a", "b"]
    assert shoal.open(TABLE.to_pandas()).slice(3, 9).feature_names == ["a", "b"]
    assert shoal.open(tmp_path / "x.parquet", columns=["b"]).feature_names == ["b"]
    assert shoal.open(X).feature_names is None
    assert shoal.open(pd.DataFrame(X)).feature_names is None


def test_one_column_of_vectors_has_no_names(tmp_path):
    values = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 2)
    table = pa.table({"v": values})
    for given in (table, parquet_file(table, tmp_path), shoal.open(table), pa.concat_tables([table, table])):
        model = KMeans(3, random_state=0).fit(given)
        assert not hasattr(model, "feature_names_in_")
        assert shoal.open(given).feature_names is None


def test_all_blocks_of_a_stream_must_have_the_same_names():
    frame, swapped = TABLE.to_pandas(), SWAPPED.to_pandas()
    with pytest.raises(ValueError, match="block 1 of X: its features are 'b', 'a', those of X are 'a', 'b'"):
        KMeans(3).fit(lambda: iter([frame, swapped]))
    # Arrays among the frames have no names.
    model = KMeans(3, random_state=0).fit(lambda: iter([frame, X]))
    assert model.feature_names_in_.tolist() == ["a", "b"]


def test_coresets_with_other_names_are_not_merged():
    ours, theirs = (
        StreamingCoreset(9, random_state=i).partial_fit(t) for i, t in enumerate((TABLE, SWAPPED))
    )
    with pytest.raises(ValueError, match="must have the feature names"):
        ours.merge(theirs)
    empty = StreamingCoreset(9, random_state=3).merge(theirs)
    assert empty.feature_names_in_.tolist() == ["b", "a"]


def test_an_invalid_first_batch_records_no_names():
    bad = TABLE.to_pandas().assign(a=np.nan)
    coreset = StreamingCoreset(9)
    with pytest.raises(ValueError, match="NaN"):
        coreset.partial_fit(bad)
    assert not hasattr(coreset, "feature_names_in_")
    assert not hasattr(coreset, "n_features_in_")


@pytest.mark.parametrize("values", [pd.date_range("2020", periods=9), pd.to_timedelta(range(9))])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("convert", [lambda frame: frame, pa.Table.from_pandas])
def test_columns_of_dates_are_named(values, alone, convert):
    frame = pd.DataFrame({"when": values}) if alone else pd.DataFrame({"a": np.arange(9.0), "when": values})
    with pytest.raises(ValueError, match=r"^X must hold columns of numbers, got other values in 'when'\."):
        KMeans(2).fit(convert(frame))


def test_names_given_twice_are_refused():
    column = np.arange(9.0)
    for X in (
        pa.Table.from_arrays([pa.array(column)] * 2, names=["a", "a"]),
        pd.DataFrame(np.stack([column] * 2, axis=1), columns=["a", "a"]),
    ):
        with pytest.raises(ValueError, match="unique column names"):
            KMeans(2).fit(X)
