"""Lazy frames, relations and results of databases as rows."""

import warnings

import numpy as np
import pytest
import shoal
from shoal import KMeans, MiniBatchKMeans

pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")
parquet = pytest.importorskip("pyarrow.parquet")

X = np.random.default_rng(0).normal(size=(900, 3)).astype(np.float32)
NUMBERS = pa.table({name: X[:, j] for j, name in enumerate("abc")})
VECTORS = pa.table({"id": np.arange(900), "v": pa.array(list(X), pa.list_(pa.float32()))})


def lazy(table):
    return pl.from_arrow(table).lazy()


def relation(table):
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("rows", table)
    return connection.sql("SELECT * FROM rows")


QUERIES = {"lazy frame": lazy, "relation": relation}


def rows_of(given, **options):
    return np.concatenate(list(shoal.open(given, **options).blocks()))


@pytest.mark.parametrize("make", QUERIES.values(), ids=QUERIES)
def test_queries_run_again_for_every_pass(make, monkeypatch):
    monkeypatch.setattr("shoal.formats.queries.NUMBERS", 300)
    query = make(NUMBERS)
    source = shoal.open(query)
    assert source.access == "replay"
    assert source.shape == (None, 3)
    assert source.dtype == np.float32
    assert source.feature_names == ["a", "b", "c"]
    for _ in range(3):
        assert (np.concatenate(list(source.blocks(77))) == X).all()
    # A pass that ends early does not disturb the next one.
    next(source.blocks())
    assert (source.take([3, 500, 3]) == X[[3, 500, 3]]).all()
    assert (rows_of(query, columns=["c", "a"]) == X[:, [2, 0]]).all()
    expected = KMeans(4, random_state=0).fit(lambda: iter([X]))
    model = KMeans(4, random_state=0).fit(query)
    assert (model.cluster_centers_ == expected.cluster_centers_).all()
    assert (model.labels_ == expected.labels_).all()
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        model.predict(make(NUMBERS.select(["b", "a", "c"])))


@pytest.mark.parametrize("make", QUERIES.values(), ids=QUERIES)
def test_vectors_of_queries(make, monkeypatch):
    monkeypatch.setattr("shoal.formats.queries.NUMBERS", 300)
    query = make(VECTORS)
    source = shoal.open(query, columns="v")
    assert source.shape == (None, 3)
    assert source.feature_names is None
    for _ in range(2):
        assert (np.concatenate(list(source.blocks())) == X).all()
    with pytest.raises(
        ValueError, match=r"column 'v' holds vectors, .*Choose the vectors with columns=\['v'\]"
    ):
        shoal.open(query)
    with pytest.raises(ValueError, match="columns must be among 'id', 'v', got 'w'"):
        shoal.open(query, columns=["w"])


@pytest.mark.parametrize("make", QUERIES.values(), ids=QUERIES)
@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (None, "column 'v' must not hold missing values, got a null at row 700"),
        ([1.0, None, 2.0], "column 'v' must not hold missing values, got a null at row 700"),
        ([1.0], "length 3, the length of the first row, got length 1 at row 700"),
    ],
)
def test_the_error_names_the_row(make, bad, text, monkeypatch):
    monkeypatch.setattr("shoal.formats.queries.NUMBERS", 300)
    rows = X.tolist()
    rows[700] = bad
    with pytest.raises(ValueError, match=text):
        rows_of(make(pa.table({"v": pa.array(rows, pa.list_(pa.float32()))})))


@pytest.mark.parametrize("make", QUERIES.values(), ids=QUERIES)
def test_queries_without_rows(make):
    source = shoal.open(make(NUMBERS.slice(0, 0)))
    assert list(source.blocks()) == []
    with pytest.raises(ValueError, match="row"):
        KMeans(1).fit(make(NUMBERS.slice(0, 0)))
    with pytest.raises(ValueError, match="has no rows, so the length of the lists in column 'v' is unknown"):
        shoal.open(make(VECTORS.slice(0, 0)), columns=["v"])


def test_fixed_size_vectors_of_queries():
    for query in (
        pl.DataFrame({"v": X}).lazy(),
        relation(pa.table({"v": pa.array(list(X), pa.list_(pa.float32(), 3))})),
    ):
        assert (rows_of(query) == X).all()


def test_lazy_frames_of_files(tmp_path):
    parquet.write_table(VECTORS, tmp_path / "x.parquet", row_group_size=100)
    query = pl.scan_parquet(tmp_path / "x.parquet").filter(pl.col("id") % 2 == 0)
    assert (rows_of(query, columns=["v"]) == X[::2]).all()
    with pytest.raises(ValueError, match=r"polars LazyFrame: cannot be read: .*missing"):
        shoal.open(pl.scan_parquet(tmp_path / "missing.parquet"))
    with pytest.raises(ValueError, match="polars LazyFrame: cannot be read: "):
        rows_of(lazy(NUMBERS).with_columns(d=pl.lit("x").cast(pl.Float64)))
    with pytest.raises(
        ValueError, match=r"polars LazyFrame: column 's' is of type .*string.* Choose columns of"
    ):
        shoal.open(lazy(NUMBERS).with_columns(s=pl.lit("x")))


def test_old_versions_of_polars(monkeypatch):
    monkeypatch.delattr(pl.LazyFrame, "collect_batches")
    with pytest.raises(ImportError, match=r"polars LazyFrame needs polars 1\.34 or later"):
        shoal.open(lazy(NUMBERS))


def test_rows_in_another_order_are_refused():
    """Labels would belong to other rows."""
    seeds = iter(range(100))
    shuffled = lazy(NUMBERS).map_batches(
        lambda frame: frame.sample(fraction=1.0, shuffle=True, seed=next(seeds)), streamable=False
    )
    source = shoal.open(shuffled)
    list(source.blocks())
    with pytest.raises(
        ValueError, match="polars LazyFrame: must give the same rows in the same order each time"
    ):
        list(source.blocks())
    duckdb = pytest.importorskip("duckdb")
    random = duckdb.connect().sql("SELECT random() AS a, i AS b FROM range(500) t(i)")
    with pytest.raises(ValueError, match=r"DuckDB relation: must give the same rows .* Sort the rows"):
        KMeans(3, random_state=0).fit(random)


def test_a_relation_has_one_pass_at_a_time(monkeypatch):
    monkeypatch.setattr("shoal.formats.queries.NUMBERS", 300)
    monkeypatch.setattr("shoal.formats.stream.BLOCK_BYTES", 1200)
    source = shoal.open(relation(NUMBERS))
    earlier = source.blocks()
    next(earlier)
    assert (np.concatenate(list(source.blocks())) == X).all()
    with pytest.raises(ValueError, match="another pass began before this one ended"):
        list(earlier)
    # Passes that end early are closed in other threads.
    for seed in range(20):
        assert len(shoal.kmeans_plusplus(source, 3, random_state=seed)[0]) == 3
        source.take([5])


def test_results_of_duckdb_can_be_read_once():
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("rows", NUMBERS)
    connection.execute("SELECT a, c FROM rows")
    with warnings.catch_warnings():
        # DuckDB recommends the relation.
        warnings.simplefilter("ignore", UserWarning)
        source = shoal.open(connection)
    assert source.access == "once"
    assert source.feature_names == ["a", "c"]
    assert (np.concatenate(list(source.blocks())) == X[:, [0, 2]]).all()
    with pytest.raises(ValueError, match="once"):
        list(source.blocks())
    with pytest.raises(ValueError, match="DuckDB connection: "):
        shoal.open(duckdb.connect())
    with pytest.raises(ValueError, match=r"type decimal128\(2, 1\)\. Cast it to a floating-point type"):
        shoal.open(connection.sql("SELECT [1.0, 2.0] AS v"))
    reader = connection.sql("SELECT b FROM rows").to_arrow_reader(100)
    assert (rows_of(reader)[:, 0] == X[:, 1]).all()


def test_results_of_adbc_can_be_read_once():
    dbapi = pytest.importorskip("adbc_driver_sqlite.dbapi")
    with dbapi.connect() as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("rows", NUMBERS)
        wide = X.astype(np.float64)
        for result in (lambda: cursor, cursor.fetch_record_batch, cursor.fetch_arrow):
            cursor.execute("SELECT c, a FROM rows")
            source = shoal.open(result())
            assert source.access == "once"
            assert source.feature_names == ["c", "a"]
            assert (np.concatenate(list(source.blocks())) == wide[:, [2, 0]]).all()
        cursor.execute("SELECT * FROM rows")
        with pytest.raises(ValueError, match=r"[Oo]nce"):
            KMeans(3).fit(cursor)
        cursor.execute("SELECT * FROM rows")
        model = MiniBatchKMeans(3, random_state=0).partial_fit(cursor)
        assert model.feature_names_in_.tolist() == ["a", "b", "c"]
        expected = MiniBatchKMeans(3, random_state=0).partial_fit(wide)
        assert (model.cluster_centers_ == expected.cluster_centers_).all()
        cursor.execute("SELECT b, a, c FROM rows")
        with pytest.raises(ValueError, match="Feature names must be in the same order"):
            model.partial_fit(cursor)
        cursor.execute("SELECT a, 'x' AS s FROM rows")
        with pytest.raises(ValueError, match="ADBC cursor: column 's' is of type string"):
            shoal.open(cursor)
        cursor.execute("SELECT a, NULL AS b FROM rows")
        with pytest.raises(ValueError, match="ADBC cursor: column 'b'"):
            rows_of(cursor)
