"""Columns of lists of one length are vectors: in files, tables, readers, data sets and frames."""

from itertools import pairwise

import numpy as np
import pytest
import shoal
from exporters import Exporter, Sized
from hypothesis import given, settings
from hypothesis import strategies as st
from shoal import KMeans
from stored import DTYPES, made

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
dataset = pytest.importorskip("pyarrow.dataset")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")

LISTS = {
    "list": pa.list_,
    "large_list": pa.large_list,
    "list_view": pa.list_view,
    "large_list_view": pa.large_list_view,
}
#: Types that Parquet can store.
STORED = ("list", "large_list")


def lists(X, kind="list"):
    """A column of lists without a copy of the rows."""
    n, d = X.shape
    wide = np.int64 if kind.startswith("large") else np.int32
    values, bounds = pa.array(X.ravel()), np.arange(n + 1, dtype=wide) * d
    if kind.endswith("view"):
        cls = {"list_view": pa.ListViewArray, "large_list_view": pa.LargeListViewArray}[kind]
        return cls.from_arrays(pa.array(bounds[:-1]), pa.array(np.full(n, d, dtype=wide)), values)
    cls = {"list": pa.ListArray, "large_list": pa.LargeListArray}[kind]
    return cls.from_arrays(pa.array(bounds), values)


def rows_of(given, **options):
    return np.concatenate(list(shoal.open(given, **options).blocks()))


def parquet_file(table, path, **options):
    parquet.write_table(table, path / "x.parquet", **options)
    return path / "x.parquet"


def arrow_file(table, path, new=pa.ipc.new_file, rows=40, **options):
    with new(path / "x.arrow", table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path / "x.arrow"


def folder_of_parts(table, path):
    for i, (start, stop) in enumerate(((0, 0), (0, 50), (50, 50), (50, len(table)))):
        parquet.write_table(table.slice(start, stop - start), path / f"{i}.parquet")
    return path


#: For every form: a function of a table and a folder, and the number of passes.
FORMS = {
    "parquet": (lambda t, p: parquet_file(t, p, row_group_size=30), "replay"),
    "folder": (folder_of_parts, "replay"),
    "arrow": (arrow_file, "replay"),
    "arrow stream": (lambda t, p: arrow_file(t, p, pa.ipc.new_stream), "replay"),
    "arrow, zstd": (lambda t, p: arrow_file(t, p, compression="zstd"), "replay"),
    "feather": (lambda t, p: feather.write_feather(t, p / "x.feather") or p / "x.feather", "replay"),
    "table": (lambda t, p: t, "random"),
    "batch": (lambda t, p: t.to_batches()[0], "random"),
    "column": (lambda t, p: t.column(0), "random"),
    "array": (lambda t, p: t.column(0).chunk(0), "random"),
    "chunks": (lambda t, p: pa.concat_tables([t.slice(0, 0), t.slice(0, 9), t.slice(9)]), "replay"),
    "reader": (lambda t, p: t.to_reader(17), "once"),
    "scanner": (lambda t, p: dataset.dataset(t).scanner(), "once"),
    "data set": (lambda t, p: dataset.dataset(parquet_file(t, p)), "replay"),
    "exporter": (lambda t, p: Exporter(t), "once"),
    "sized exporter": (lambda t, p: Sized(t), "replay"),
    "batches": (lambda t, p: lambda: iter(t.to_batches(max_chunksize=31)), "replay"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", LISTS)
def test_lists_are_vectors(kind, form, tmp_path):
    make, access = FORMS[form]
    if form in ("parquet", "folder", "data set") and kind not in STORED:
        pytest.skip("Parquet has no list views")
    for dtype in DTYPES if kind == "list" else ("float32",):
        X = made(dtype, 203, 5)
        source = shoal.open(make(pa.table({"v": lists(X, kind)}), tmp_path))
        assert source.access == access
        assert source.dtype == dtype
        assert source.shape[1] == 5
        assert source.shape[0] in (203, None)
        assert source.feature_names is None
        assert (np.concatenate(list(source.blocks())) == X).all()


@pytest.mark.parametrize("kind", LISTS)
def test_contiguous_lists_are_not_copied(kind):
    X = made("float32", 5000, 4)
    table = pa.table({"id": np.arange(5000), "v": lists(X, kind)})
    before = pa.total_allocated_bytes()
    source = shoal.open(table, columns="v")
    assert source.access == "random"
    assert pa.total_allocated_bytes() == before
    X[7] = 99
    assert (source.take([7]) == 99).all()
    assert (shoal.open(table.slice(6, 3), columns=["v"]).take([1]) == 99).all()


@pytest.mark.parametrize("kind", ["list_view", "large_list_view"])
def test_list_views_in_any_order(kind):
    X = made("float32", 50, 3)
    wide = np.int64 if kind.startswith("large") else np.int32
    order = np.random.default_rng(0).permutation(50)
    cls = {"list_view": pa.ListViewArray, "large_list_view": pa.LargeListViewArray}[kind]
    column = cls.from_arrays(
        pa.array((order * 3).astype(wide)), pa.array(np.full(50, 3, dtype=wide)), pa.array(X.ravel())
    )
    assert (rows_of(pa.table({"v": column})) == X[order]).all()
    assert (rows_of(pa.table({"v": column.slice(11)})) == X[order[11:]]).all()


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(list(LISTS)),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    ahead=st.integers(0, 5),
    cols=st.integers(1, 4),
    block=st.integers(1, 400),
)
def test_any_chunks_and_slices(kind, cuts, ahead, cols, block):
    X = made("float32", 60, cols)
    column = lists(X, kind)
    bounds = [ahead, *sorted(max(cut, ahead) for cut in cuts), 60]
    chunks = [column.slice(a, b - a) for a, b in pairwise(bounds)]
    table = pa.table({"v": pa.chunked_array(chunks, column.type)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shoal.formats.stream.BLOCK_BYTES", block)
        for data in (table, table.to_reader(), Sized(table)):
            assert (rows_of(data) == X[ahead:]).all()


def test_fits_equal_those_of_arrays(tmp_path):
    X = np.random.default_rng(0).normal(size=(2000, 6)).astype(np.float32)
    expected = KMeans(5, random_state=0).fit(X)
    table = pa.table({"id": [f"row {i}" for i in range(2000)], "v": lists(X)})
    frames = (table, pl.from_arrow(table), table.to_pandas())
    for frame in frames:
        model = KMeans(5, random_state=0).fit(shoal.open(frame, columns=["v"]))
        assert (model.cluster_centers_ == expected.cluster_centers_).all()
        assert model.n_features_in_ == 6
        assert not hasattr(model, "feature_names_in_")
        assert (model.predict(shoal.open(frame, columns=["v"])) == expected.labels_).all()
    streamed = KMeans(5, random_state=0).fit(lambda: iter([X]))
    path = parquet_file(table, tmp_path, row_group_size=300)
    model = KMeans(5, random_state=0).fit(shoal.open(path, columns=["v"]))
    assert (model.cluster_centers_ == streamed.cluster_centers_).all()
    assert (model.labels_ == streamed.labels_).all()


# ---------------------------------------------------------------- frames

WIDE = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32)


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda: pd.DataFrame({"v": list(WIDE)}), "float32"),
        (lambda: pd.Series(list(WIDE)), "float32"),
        (lambda: pd.Series(list(WIDE), index=range(100, 140), name="v"), "float32"),
        (lambda: pd.DataFrame({"v": WIDE.tolist()}), "float64"),
        (lambda: pd.DataFrame({"v": [tuple(row) for row in WIDE.tolist()]}), "float64"),
        (lambda: pd.DataFrame({"v": [np.array(row, dtype=object) for row in WIDE.tolist()]}), "float64"),
        (lambda: pd.Series(WIDE.tolist(), dtype=pd.ArrowDtype(pa.list_(pa.float32()))), "float32"),
        (lambda: pl.Series(WIDE), "float32"),
        (lambda: pl.Series(WIDE.tolist(), dtype=pl.List(pl.Float32)), "float32"),
        (lambda: pl.DataFrame({"v": WIDE}), "float32"),
        (lambda: pl.DataFrame({"v": WIDE.tolist()}, schema={"v": pl.List(pl.Float32)}), "float32"),
    ],
)
def test_frames_with_one_column_of_vectors(make, dtype):
    source = shoal.open(make())
    assert source.access == "random"
    assert source.dtype == dtype
    assert (np.concatenate(list(source.blocks())) == WIDE).all()
    assert KMeans(2, random_state=0).fit(make()).n_features_in_ == 3
    blocks = shoal.open(lambda: iter([make(), make()]))
    assert (np.concatenate(list(blocks.blocks())) == np.concatenate([WIDE, WIDE])).all()


def test_other_byte_orders_in_pandas():
    for dtype in (">f4", np.longdouble):
        source = shoal.open(pd.Series(list(WIDE.astype(dtype))))
        assert source.dtype == ("float32" if dtype == ">f4" else "float64")
        assert (next(source.blocks()) == WIDE).all()


def test_empty_blocks_of_tables_are_skipped():
    table = pa.table({"v": pa.array([], pa.list_(pa.float32()))})
    empty = [table, pl.from_arrow(table), pd.DataFrame({"v": []}, dtype=object)]
    found = shoal.open(lambda: iter([*empty, pd.Series(list(WIDE)), *empty, pl.Series(WIDE)]))
    assert (np.concatenate(list(found.blocks())) == np.concatenate([WIDE, WIDE])).all()


def test_half_precision_and_mixed_types_in_pandas():
    half = WIDE.astype(np.float16)
    assert shoal.open(pd.Series(list(half))).dtype == np.float16
    assert shoal.open(pd.Series([*half[:5], *WIDE[:5]])).dtype == np.float32
    mixed = shoal.open(pd.Series([[1, 2], [0.5, 2]]))
    assert mixed.dtype == np.float64
    assert (next(mixed.blocks()) == [[1, 2], [0.5, 2]]).all()
    # A NaN within a list is a value, which the method refuses.
    with pytest.raises(ValueError, match="finite"):
        KMeans(1).fit(pd.Series([[1.0, np.nan]]))


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (None, "must not hold missing values, got a null at row 4"),
        (np.nan, "must not hold missing values, got a null at row 4"),
        (pd.NA, "must not hold missing values, got a null at row 4"),
        ([1.0, None, 2.0], "must not hold missing values, got a null at row 4"),
        ([1.0, 2.0], "must hold vectors of length 3, the length of the first row, got length 2 at row 4"),
        ([], "must hold vectors of length 3, the length of the first row, got length 0 at row 4"),
        ([1.0, "x", 2.0], r"must hold vectors of real numbers, got \[1.0, 'x', 2.0\] at row 4"),
        ([1.0, 2j, 2.0], "must hold vectors of real numbers, got .* at row 4"),
        ([[1.0], [2.0], [3.0]], "must hold vectors of real numbers, got .* at row 4"),
        ([[1.0], [2.0, 3.0], 4.0], "must hold vectors of real numbers, got .* at row 4"),
        (7.0, "must hold vectors of real numbers, got 7.0 at row 4"),
        ("text", "must hold vectors of real numbers, got 'text' at row 4"),
    ],
)
def test_bad_rows_of_pandas(bad, text):
    frame = pd.DataFrame({"v": pd.Series([*WIDE.tolist()[:4], bad, *WIDE.tolist()], dtype=object)})
    for use in (shoal.open, KMeans(1).fit):
        with pytest.raises(ValueError, match=f"pandas DataFrame: column 'v' {text}"):
            use(frame)


def test_several_columns_of_frames():
    both = {"id": ["a", "b"], "v": [[1.0, 2.0], [3.0, 4.0]]}
    for frame in (pd.DataFrame(both), pl.DataFrame(both), pa.table(both)):
        for use in (shoal.open, KMeans(1).fit):
            with pytest.raises(ValueError, match=r"Choose the vectors with columns=\['v'\]"):
                use(frame)
        assert (rows_of(frame, columns=["v"]) == both["v"]).all()
    mixed = {"id": ["a", "b"], "x": [1.0, 2.0], "word": ["c", "d"]}
    for frame in (pd.DataFrame(mixed), pl.DataFrame(mixed), pa.table(mixed)):
        with pytest.raises(ValueError, match=r"got other values in 'id', 'word'. Choose columns"):
            KMeans(1).fit(frame)
        assert (rows_of(frame, columns=["x"])[:, 0] == [1, 2]).all()


# ---------------------------------------------------------------- errors


NULL = "column '{}' must not hold missing values, got a null at row {}"
LENGTH = "column '{}' must hold vectors of length 3, the length of the first row, got length L at row {}"


def harmed(column, row, new):
    """A column of 100 lists of length 3 with another value in one row."""
    values = made("float32", 100, 3).tolist()
    values[row] = new
    return pa.table({"v": pa.array(values, column(pa.float32()))})


@pytest.mark.parametrize("row", [1, 57, 99])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", STORED)
def test_the_error_names_the_row(kind, form, row, tmp_path, monkeypatch):
    monkeypatch.setattr("shoal.formats.stream.BLOCK_BYTES", 100)
    for new, text in (
        (None, NULL),
        ([1.0, None, 2.0], NULL),
        (
            [1.0],
            LENGTH.replace("L", "1"),
        ),
        (
            [],
            LENGTH.replace("L", "0"),
        ),
    ):
        table = harmed(LISTS[kind], row, new)
        name = "vectors" if form in ("column", "array") else "v"
        # In a stream of batches each block starts at its own row 0, and the message gives the block.
        if form == "batches":
            text = f"block {row // 31} of X: .*" + text
            at, name = row % 31, "v"
            if at == 0:
                continue
        else:
            at = row
        with pytest.raises(ValueError, match=text.format(name, at) + r"( \(row \d+ of the file\))?$"):
            rows_of(FORMS[form][0](table, tmp_path))


def test_rows_of_later_files_have_both_numbers(tmp_path):
    folder_of_parts(harmed(pa.list_, 57, None), tmp_path)
    with pytest.raises(ValueError, match=r"3\.parquet: column 'v' .* at row 57 \(row 7 of the file\)$"):
        rows_of(tmp_path)


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (None, "must not hold missing values, got a null at row 0"),
        ([], "must hold vectors of length 1 or more, got length 0 at row 0"),
        ([None, 1.0, 2.0], "must not hold missing values, got a null at row 0"),
        ([1.0], "must hold vectors of length 1, the length of the first row, got length 3 at row 1"),
    ],
)
@pytest.mark.parametrize("form", ["parquet", "arrow", "table", "reader", "data set"])
def test_an_invalid_first_row(form, first, text, tmp_path):
    with pytest.raises(ValueError, match=text):
        rows_of(FORMS[form][0](harmed(pa.list_, 0, first), tmp_path))


@pytest.mark.parametrize("form", [form for form in FORMS if form not in ("array", "batch", "batches")])
def test_without_rows_the_length_is_unknown(form, tmp_path):
    table = pa.table({"v": pa.array([], pa.list_(pa.float32()))})
    with pytest.raises(ValueError, match="has no rows, so the length of the lists in column"):
        shoal.open(FORMS[form][0](table, tmp_path))


def test_lists_of_another_length_in_another_file(tmp_path):
    parquet.write_table(pa.table({"v": lists(made("float32", 9, 3))}), tmp_path / "a.parquet")
    parquet.write_table(pa.table({"v": lists(made("float32", 9, 4))}), tmp_path / "b.parquet")
    with pytest.raises(
        ValueError, match=r"b\.parquet: has 4 columns of float32 .*, unlike .*a\.parquet, which has 3 columns"
    ):
        rows_of(tmp_path)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.list_(pa.string()), "must hold vectors of real numbers, got vectors of type string"),
        (pa.list_(pa.null()), "must hold vectors of real numbers, got vectors of type null"),
        (pa.list_(pa.list_(pa.float32())), "must hold vectors of real numbers, got vectors of type list"),
        (
            pa.list_(pa.decimal128(5, 2)),
            r".* of type decimal128\(5, 2\). Cast it to",
        ),
        (pa.decimal128(5, 2), r"is of type decimal128\(5, 2\). Cast it to a floating-point type"),
        (pa.dictionary(pa.int8(), pa.float32()), "is of type dictionary<.*>. Cast it to a floating-point"),
        (pa.map_(pa.int8(), pa.float32()), "is of type map<"),
        (pa.uuid(), "is of type extension<arrow.uuid>"),
    ],
)
def test_other_types_are_refused(kind, text, tmp_path):
    table = pa.table({"a": pa.array([], pa.float32()), "v": pa.array([], kind)})
    for data, columns in ((table.to_reader(), ["v"]), (arrow_file(table, tmp_path), None)):
        with pytest.raises(ValueError, match=f"column 'v' {text}.*Choose"):
            shoal.open(data, columns=columns)


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("value", [-7, 1 << 30, 59, 2**31 - 1, -(2**31)])
def test_damaged_offsets(kind, value, tmp_path):
    X = made("float32", 20, 3)
    column = lists(X, kind)
    path = arrow_file(pa.table({"v": column}), tmp_path)
    intact = path.read_bytes()
    assert (rows_of(path) == X).all()
    wide = np.int64 if kind.startswith("large") else np.int32
    offsets = np.frombuffer(column.buffers()[1], dtype=wide)[:20]
    assert intact.count(offsets.tobytes()) == 1
    for place in (0, 1, 7, 19):
        bad = offsets.copy()
        bad[place] = value
        path.write_bytes(intact.replace(offsets.tobytes(), bad.tobytes()))
        with pytest.raises(ValueError, match=r"x\.arrow: "):
            rows_of(path)
