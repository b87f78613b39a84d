"""Rows that are transformed as they are read: normalize, standardize, project, map."""

import copy
import math
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import shoal
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA, IncrementalPCA
from sklearn.preprocessing import Normalizer, StandardScaler
from stored import DTYPES, made

X = np.random.default_rng(0).normal(size=(700, 9)) * np.logspace(-2, 2, 9) + 5
AXES = np.random.default_rng(1).normal(size=(4, 9))


def compute(dtype):
    return "float32" if dtype in {"uint8", "int8", "int16", "uint16", "float16", "float32"} else "float64"


def streams(rows, block=37):
    return lambda: (rows[i : i + block] for i in range(0, len(rows), block))


def sources(rows, folder):
    """The same rows in every storage that keeps them dense."""
    np.save(folder / "rows.npy", rows)
    wide = np.zeros((len(rows), 2 * rows.shape[1]), dtype=rows.dtype)
    wide[:, ::2] = rows
    return {
        "array": shoal.open(rows),
        "Fortran": shoal.open(np.asfortranarray(rows)),
        "strides": shoal.open(wide[:, ::2]),
        "reversed": shoal.open(rows[::-1].copy()[::-1]),
        "file": shoal.open(folder / "rows.npy"),
        "part": shoal.open(np.concatenate([rows[:3], rows])).slice(3, 3 + len(rows)),
        "stream": shoal.open(streams(rows)),
    }


def standardized(rows, mean, scale):
    """As documented: computed in float64, rounded once."""
    return ((rows.astype(np.float64) - mean) / scale).astype(compute(rows.dtype.name))


def same(found, expected):
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(found, expected)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_every_storage_type(dtype, tmp_path):
    rows = made(dtype, rows=61, cols=5)
    rows[:, 2] = rows[7] = 0
    axes = np.random.default_rng(2).normal(size=(11, 5))
    wide = rows.astype(np.float64)
    scaler = StandardScaler().fit(wide)
    tolerance = (
        {"rtol": 2e-6, "atol": 2e-5} if compute(dtype) == "float32" else {"rtol": 1e-13, "atol": 1e-12}
    )
    bits = {}
    for name, source in sources(rows, tmp_path).items():
        unit, standard = source.normalize(), source.standardize()
        np.testing.assert_allclose(standard.mean_, scaler.mean_, rtol=1e-14, err_msg=name)
        np.testing.assert_allclose(standard.scale_, scaler.scale_, rtol=1e-13, err_msg=name)
        assert standard.scale_[2] == 1
        projected = source.project(axes, mean=scaler.mean_)
        np.testing.assert_allclose(np.asarray(unit), Normalizer().transform(wide), **tolerance)
        assert not np.asarray(unit)[7].any()
        np.testing.assert_allclose(np.asarray(standard), scaler.transform(wide), **tolerance)
        same(np.asarray(standard), standardized(rows, standard.mean_, standard.scale_))
        np.testing.assert_allclose(np.asarray(projected), (wide - scaler.mean_) @ axes.T, **tolerance)
        for made_, cols in [(unit, 5), (standard, 5), (projected, 11)]:
            found = np.asarray(made_)
            assert made_.shape == (None if name == "stream" else 61, cols)
            assert made_.dtype == found.dtype == compute(dtype)
            assert made_.access == source.access
            assert not made_.sparse
            assert made_.nbytes == (None if name == "stream" else found.nbytes)
            # Bit-identical for every storage and every way to read.
            same(found, bits.setdefault((made_._view[1].name), found))
            same(made_.take([60, 3, 3]), found[[60, 3, 3]])
            same(np.concatenate(list(made_.blocks(7))), found)
            assert [len(block) for block in made_.blocks(25)] == [25, 25, 11]


@pytest.mark.parametrize(("rows", "cols", "components"), [(1, 1, 1), (2, 300, 1), (70, 513, 17), (33, 8, 8)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_projections_of_any_shape(rows, cols, components, dtype):
    values = np.random.default_rng(3).normal(size=(rows, cols)).astype(dtype) + 1000
    axes = np.random.default_rng(4).normal(size=(components, cols))
    mean = values.mean(axis=0, dtype=np.float64)
    found = np.asarray(shoal.open(values).project(axes, mean=mean))
    centered = (values - mean).astype(dtype).astype(np.float64)
    # Of sums of at most 256 terms, and of their sums.
    bound = np.finfo(dtype).eps * 300 * (np.abs(centered) @ np.abs(axes.T)) + np.finfo(dtype).eps
    assert (np.abs(found - centered @ axes.T) <= bound).all()
    same(
        np.asarray(shoal.open(values).project(axes.astype("f4"))),
        np.asarray(shoal.open(values).project(axes.astype("f4").tolist())),
    )


def test_projection_equals_pca():
    pca = PCA(n_components=3, svd_solver="full").fit(X)
    found = shoal.open(X).project(pca.components_, mean=pca.mean_)
    np.testing.assert_allclose(np.asarray(found), pca.transform(X), rtol=1e-10, atol=1e-10)
    # A large mean costs no digits: it is subtracted first.
    far = X.astype(np.float32) + np.float32(1e4)
    found = shoal.open(far).project(pca.components_, mean=far.mean(axis=0, dtype=np.float64))
    expected = (far.astype(np.float64) - far.mean(axis=0, dtype=np.float64)) @ pca.components_.T
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-4)


def test_standardize_takes_what_is_given():
    source = shoal.open(X)
    measured = source.standardize()
    for mean, scale in [
        (0, None),
        (None, 1),
        (0, 1.0),
        (3, 2),
        (X[0], np.arange(1, 10)),
        (np.float32(2), [2] * 9),
    ]:
        found = source.standardize(mean=mean, scale=scale)
        same(found.mean_, measured.mean_ if mean is None else np.broadcast_to(np.asarray(mean, float), 9))
        # The standard deviation is about the measured mean, whichever mean is subtracted.
        same(found.scale_, measured.scale_ if scale is None else np.broadcast_to(np.asarray(scale, float), 9))
        same(np.asarray(found), (X - found.mean_) / found.scale_)
    same(np.asarray(source.standardize(0, 1)), X)
    scaler = StandardScaler(with_mean=False).fit(X)
    np.testing.assert_allclose(np.asarray(source.standardize(mean=0)), scaler.transform(X), rtol=1e-12)
    assert source.mean_ is None
    assert source.scale_ is None
    assert measured.normalize().mean_ is None
    same(measured.slice(3, 9).scale_, measured.scale_)


def test_weights_are_measured_and_kept():
    weights = np.random.default_rng(5).uniform(size=len(X))
    source = shoal.open(X)._source
    weight, mean, variance = source.column_moments(weights)
    scaler = StandardScaler().fit(X, sample_weight=weights)
    assert weight == pytest.approx(weights.sum(), rel=1e-14)
    np.testing.assert_allclose(mean, scaler.mean_, rtol=1e-13)
    np.testing.assert_allclose(variance, scaler.var_, rtol=1e-12)
    # Weights of a fit go with the rows, transformed or not.
    found = shoal.KMeans(4, random_state=0).fit(shoal.open(X).standardize(), sample_weight=weights)
    expected = shoal.KMeans(4, random_state=0).fit(
        np.asarray(shoal.open(X).standardize()), sample_weight=weights
    )
    same(found.cluster_centers_, expected.cluster_centers_)


@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e30, 1e150])
def test_huge_and_tiny_values(scale):
    source = shoal.open(X * scale)
    np.testing.assert_allclose(
        np.asarray(source.standardize()), np.asarray(shoal.open(X).standardize()), rtol=1e-9
    )
    np.testing.assert_allclose(np.asarray(source.normalize()), Normalizer().transform(X), rtol=1e-13)
    np.testing.assert_allclose(np.asarray(source.project(AXES)), (X * scale) @ AXES.T, rtol=1e-9)


def test_columns_that_are_constant_up_to_rounding_get_scale_1():
    rows = np.c_[
        np.full(5000, 0.1),
        np.full(5000, 1e12),
        1 / (np.full(5000, 3.0)) * 3,
        np.zeros(5000),
        X[0, 0] + np.arange(5000),
    ]
    found = shoal.open(rows).standardize()
    same(found.scale_[:4], np.ones(4))
    scaler = StandardScaler().fit(rows)
    np.testing.assert_allclose(found.scale_, scaler.scale_, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(found), scaler.transform(rows), atol=1e-9)


# ---------------------------------------------------------------- sparse rows


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "int64"])
def test_sparse_rows(dtype):
    matrix = sparse.csr_array(sparse.random(200, 30, density=0.2, random_state=6))
    matrix.data = np.round(matrix.data * 100)
    matrix = matrix.astype(dtype)
    # Zeros that are stored stay stored, and rows may be empty.
    matrix.data[::7] = 0
    matrix.data[matrix.indptr[5] : matrix.indptr[6]] = 0
    dense = matrix.toarray()
    source = shoal.open(matrix)
    tolerance = (
        {"rtol": 3e-6, "atol": 1e-4} if compute(dtype) == "float32" else {"rtol": 1e-13, "atol": 1e-11}
    )
    unit, standard, projected = (
        source.normalize(),
        source.standardize(mean=0),
        source.project(dense[:3], mean=1),
    )
    scaler = StandardScaler(with_mean=False).fit(matrix.astype(np.float64))
    np.testing.assert_allclose(standard.scale_, scaler.scale_, rtol=1e-12)
    chained = source.normalize().standardize(0, 2).normalize()
    for found, expected in [
        (unit, Normalizer().transform(dense.astype(float))),
        (standard, dense / scaler.scale_),
        (chained, Normalizer().transform(dense.astype(float))),
    ]:
        assert found.sparse
        assert found.dtype == compute(dtype)
        whole = sparse.vstack(list(found.blocks(33)))
        assert whole.dtype == found.dtype
        assert whole.nnz == matrix.nnz
        assert found.nbytes == whole.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
        np.testing.assert_allclose(whole.toarray(), expected, **tolerance)
        # `take` fills in the zeros of the rows that `blocks` gives.
        taken = found.take([3, 0])
        assert taken.dtype == found.dtype
        np.testing.assert_array_equal(taken, whole.toarray()[[3, 0]])
        part = found.slice(20, 60)
        same(sparse.vstack(list(part.blocks())).toarray(), whole.toarray()[20:60])
        labels = shoal.KMeans(3, random_state=0).fit(found)
        expected_labels = shoal.KMeans(3, random_state=0).fit(whole)
        same(labels.labels_, expected_labels.labels_)
        same(labels.cluster_centers_, expected_labels.cluster_centers_)
    assert not projected.sparse
    assert projected.nbytes == 200 * 3 * projected.dtype.itemsize
    np.testing.assert_allclose(
        np.asarray(projected), (dense.astype(float) - 1) @ dense[:3].astype(float).T, **tolerance
    )
    counts = source.map(lambda block: block.sum(axis=1).reshape(-1, 1), dtype="float64")
    np.testing.assert_allclose(np.asarray(counts), dense.sum(axis=1, keepdims=True))


def test_a_mean_for_sparse_rows_is_refused():
    source = shoal.open(sparse.csr_array(np.eye(4)))
    with pytest.raises(
        ValueError, match=r"mean must be 0 for sparse rows, got None: .* Use standardize\(mean=0\)"
    ):
        source.standardize()
    for scale in (None, 2):
        with pytest.raises(ValueError, match=r"mean must be 0 for sparse rows, .*got 0.5 at column 1"):
            source.standardize(mean=[0, 0.5, 0, 0], scale=scale)


# ---------------------------------------------------------------- fits


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8"])
@pytest.mark.parametrize("kind", ["file", "stream"])
def test_a_fit_equals_the_fit_of_transformed_rows(dtype, kind, tmp_path):
    rows = np.abs(np.random.default_rng(7).normal(size=(3000, 12)) * 20).astype(dtype)
    np.save(tmp_path / "rows.npy", rows)
    axes = np.random.default_rng(8).normal(size=(5, 12))
    source = shoal.open(tmp_path / "rows.npy" if kind == "file" else streams(rows, 700))
    for transformed in (
        source.normalize(),
        source.standardize(),
        source.project(axes, mean=2),
        source.standardize().project(axes).normalize(),
    ):
        before = np.asarray(transformed)
        given = before if kind == "file" else streams(before, 700)
        methods = [shoal.KMeans(6, random_state=0), shoal.MiniBatchKMeans(6, random_state=0, max_iter=3)]
        if kind == "file":
            # Draws rows, and skips rows with bounds.
            methods += [
                shoal.NestedMiniBatchKMeans(6, random_state=0),
                shoal.KMeans(40, algorithm="elkan", random_state=0),
            ]
        for method in methods:
            expected = copy.deepcopy(method).fit(given)
            for threads in (1, 3):
                found = copy.deepcopy(method).set_params(n_jobs=threads).fit(transformed)
                same(found.cluster_centers_, expected.cluster_centers_)
                same(found.labels_, expected.labels_)
        same(expected.predict(transformed), expected.predict(before))
    points = shoal.lightweight_coreset(transformed, 50, random_state=0)
    same(points.points, shoal.lightweight_coreset(given, 50, random_state=0).points)


def test_measured_values_do_not_depend_on_threads_or_storage(tmp_path):
    rows = np.random.default_rng(9).normal(size=(50_000, 3)).astype("f4")
    np.save(tmp_path / "rows.npy", rows)
    found = []
    for threads in (1, 3):
        with shoal.config_context(n_threads=threads):
            found += [
                shoal.open(given).standardize() for given in (rows, tmp_path / "rows.npy", streams(rows, 999))
            ]
    for other in found[1:]:
        same(other.mean_, found[0].mean_)
        same(other.scale_, found[0].scale_)


def test_functions_take_transformed_rows(tmp_path):
    source = shoal.open(X).standardize().project(AXES)
    rows = np.asarray(source)
    same(
        shoal.kmeans_plusplus(source, 5, random_state=0)[0], shoal.kmeans_plusplus(rows, 5, random_state=0)[0]
    )
    same(shoal.afkmc2(source, 5, random_state=0)[0], shoal.afkmc2(rows, 5, random_state=0)[0])
    same(shoal.nearest(source, rows[:5])[0], shoal.nearest(rows, rows[:5])[0])
    same(shoal.knn_graph(source, 3).data, shoal.knn_graph(rows, 3).data)
    written = shoal.write(source.blocks(100), tmp_path / "rows.npy")
    same(np.asarray(written), rows)
    same(
        np.asarray(shoal.shuffle(source, tmp_path / "a.npy", random_state=0)),
        np.asarray(shoal.shuffle(rows, tmp_path / "b.npy", random_state=0)),
    )
    # A checkpoint recognizes the rows.
    half = shoal.KMeans(
        6, random_state=0, callbacks=[shoal.callbacks.Checkpoint(tmp_path / "c.safetensors", every_steps=1)]
    )
    for step in half.iter_fit(source):
        if step.iteration == 2:
            break
    resumed = shoal.resume(tmp_path / "c.safetensors", shoal.open(X).standardize().project(AXES))
    same(resumed.cluster_centers_, shoal.KMeans(6, random_state=0).fit(rows).cluster_centers_)
    with pytest.raises(ValueError, match="X or sample_weight does not match the checkpoint"):
        shoal.resume(tmp_path / "c.safetensors", shoal.open(X).project(AXES))


# ---------------------------------------------------------------- map


def test_map_calls_the_function_with_stored_blocks(tmp_path):
    rows = made("uint8", rows=100)
    np.save(tmp_path / "rows.npy", rows)
    types = set()

    def halves(block):
        types.add((block.dtype.name, block.ndim))
        return np.concatenate([block / 2, block[:, :1]], axis=1).astype("f4")

    for given in (rows, tmp_path / "rows.npy", streams(rows)):
        source = shoal.open(given).map(halves)
        assert (source.shape[1], source.dtype, source.access) == (4, "float32", "replay")
        assert source.shape[0] == (None if callable(given) else 100)
        expected = halves(rows)
        same(np.asarray(source), expected)
        same(np.concatenate(list(source.blocks(9))), expected)
        same(source.take([99, 0]), expected[[99, 0]])
        found = shoal.KMeans(4, random_state=0).fit(source)
        same(found.cluster_centers_, shoal.KMeans(4, random_state=0).fit(streams(expected)).cluster_centers_)
    assert types == {("uint8", 2)}
    part = shoal.open(rows).map(halves).slice(5, 30)
    assert part.shape == (25, 4)
    same(np.asarray(part), halves(rows[5:30]))


def test_map_asks_only_for_what_is_not_given():
    calls = []

    def fn(block):
        calls.append(len(block))
        return block[:, :2]

    source = shoal.open(X).map(fn, dim=2, dtype="float32")
    assert calls == []
    same(np.asarray(source), X[:, :2].astype("f4"))
    assert calls == [700]
    found = shoal.open(X).map(fn, dtype="float32")
    assert (calls, found.dtype, found.shape) == ([700, 32], "float32", (700, 2))
    assert shoal.open(X[:0]).map(fn, dim=2, dtype="f8").shape == (0, 2)
    with pytest.raises(ValueError, match="no rows to call fn with: give dim and dtype"):
        shoal.open(X[:0]).map(fn)


def test_map_of_rows_that_are_read_once():
    for dim, dtype in [(None, None), (9, "float64")]:
        source = shoal.open(iter(streams(X)())).map(np.abs, dim=dim, dtype=dtype)
        assert source.access == "once"
        found = np.concatenate(list(source.blocks()))
        same(found, np.abs(X))
    chained = shoal.open(iter(streams(X)())).map(np.abs).normalize().standardize(0, 2)
    model = shoal.MiniBatchKMeans(3, random_state=0).fit(chained)
    expected = shoal.open(iter(streams(np.abs(X))())).normalize().standardize(0, 2)
    same(model.cluster_centers_, shoal.MiniBatchKMeans(3, random_state=0).fit(expected).cluster_centers_)
    for refused in (
        chained.standardize,
        lambda: chained.standardize(mean=0),
        lambda: chained.standardize(scale=1),
    ):
        with pytest.raises(
            ValueError, match="mean and scale must be given for rows that can be read only once"
        ):
            refused()


def test_map_may_reuse_its_memory_and_change_its_block():
    out = np.empty((1000, 9))

    def fn(block):
        block += 1
        return np.multiply(block, 2, out=out[: len(block)])

    before = X.copy()
    same(np.concatenate(list(shoal.open(streams(X, 10)).map(fn).blocks())), (X + 1) * 2)
    same(np.asarray(shoal.open(X).map(fn)), (X + 1) * 2)
    same(X, before)


def test_errors_of_the_function_are_raised_unchanged():
    error = LookupError("no such word")

    def fn(block):
        raise error

    source = shoal.open(X).map(fn, dim=2, dtype="f4")
    for use in (lambda: shoal.KMeans(2).fit(source), lambda: np.asarray(source), lambda: source.take([0])):
        with pytest.raises(LookupError) as caught:
            use()
        assert caught.value is error
    with pytest.raises(LookupError, match="no such word"):
        shoal.open(X).map(fn)


@pytest.mark.parametrize(
    ("fn", "given", "message"),
    [
        (lambda b: b[1:], {}, "fn must return one row per row, got 36 rows for the 37 rows of block 0"),
        (lambda b: b[:, :3], {"dim": 4}, "fn must return 4 columns, got 3 for block 0"),
        (lambda b: b[:, : len(b)], {"dim": 9}, "fn must return 9 columns, got 7 for block 18"),
        (
            lambda b: b[:, 0],
            {"dim": 1},
            "fn must return a 2-D array of numbers, got 1-D of float64 for block 0",
        ),
        (lambda b: b.astype(str), {}, "fn must return a 2-D array of numbers, got 2-D of <U32 for block 0"),
        (lambda b: b * 1j, {}, "fn must return a 2-D array of numbers, got 2-D of complex128 for block 0"),
        (
            lambda b: sparse.csr_array(b, copy=True),
            {},
            "fn must return dense rows, got a sparse matrix for block 0",
        ),
        (
            lambda b: b,
            {"dtype": "int64"},
            "fn must return values that convert to int64, got float64 for block 0",
        ),
    ],
)
def test_wrong_results_name_the_block(fn, given, message):
    rows = X[:673]
    given = {"dim": 9, "dtype": "float64", **given}
    with pytest.raises(ValueError, match=message.replace("(", "\\(")):
        np.asarray(shoal.open(streams(rows)).map(fn, **given))
    with pytest.raises(ValueError, match=message.replace("(", "\\(")):
        shoal.KMeans(2).fit(shoal.open(streams(rows)).map(fn, **given))


def test_blocks_of_another_type_than_the_first_rows_are_refused():
    source = shoal.open(streams(X)).map(lambda b: b if b[0, 0] != X[37, 0] else b.astype("f4"))
    with pytest.raises(
        ValueError, match="fn must return float64, as for the first rows, got float32 for block 1: give"
    ):
        np.asarray(source)


# ---------------------------------------------------------------- chains, pickles, names


def test_transforms_compose_slice_and_pickle(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    source = shoal.open(tmp_path / "rows.npy").slice(10, 650)
    rows = X[10:650]
    chain = source.standardize().project(AXES, mean=0.5).normalize()
    standard = (rows - chain._view[0]._view[0].mean_) / chain._view[0]._view[0].scale_
    expected = Normalizer().transform((standard - 0.5) @ AXES.T)
    np.testing.assert_allclose(np.asarray(chain), expected, rtol=1e-11, atol=1e-13)
    same(np.asarray(chain.slice(5, 100).slice(2, 9)), np.asarray(chain)[7:14])
    mapped = chain.map(np.cbrt)
    for made_ in (chain, chain.slice(3, 90), mapped, mapped.slice(3, 90), mapped.normalize()):
        for again in (pickle.loads(pickle.dumps(made_)), copy.copy(made_), copy.deepcopy(made_)):
            assert repr(again) == repr(made_)
            same(np.asarray(again), np.asarray(made_))
    assert repr(mapped.slice(3, 90)).startswith(
        f"<DataSource {tmp_path / 'rows.npy'}, rows 10..650, rows 3..90, "
    )
    assert repr(mapped.normalize()).endswith(
        "projected to 4 columns, normalized, mapped by cbrt, normalized: 640 x 4 float64, access replay>"
    )
    standard = pickle.loads(pickle.dumps(source.standardize()))
    same(standard.mean_, source.standardize().mean_)
    with pytest.raises(TypeError, match="was not opened by the path of a file"):
        pickle.dumps(shoal.open(X).normalize())
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(source.map(lambda block: block))


def test_slices_are_checked():
    for source in (shoal.open(X).normalize(), shoal.open(X).map(np.abs)):
        with pytest.raises(IndexError, match=r"rows 3..701 do not lie within 0..700"):
            source.slice(3, 701)
    for source in (shoal.open(streams(X)).normalize(), shoal.open(streams(X)).map(np.abs)):
        with pytest.raises(ValueError, match="has no parts"):
            source.slice(0, 1)
    with pytest.raises(IndexError, match="row 700 does not exist"):
        shoal.open(X).project(AXES).take([700])


def test_a_transformed_source_stays_open():
    with shoal.open(X) as source:
        unit, mapped = source.normalize(), source.map(np.abs)
    for made_ in (unit, mapped):
        assert np.asarray(made_).shape == X.shape
        assert made_.slice(1, 3).shape == (2, 9)
        made_.close()
        for use in (made_.normalize, lambda: made_.slice(1, 3), lambda: made_.map(np.abs)):  # noqa: B023
            with pytest.raises(ValueError, match="is closed"):
                use()
    with pytest.raises(ValueError, match="is closed"):
        source.normalize()


def test_feature_names_are_kept_where_columns_are(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    names = [f"x{i}" for i in range(9)]
    pandas.DataFrame(X, columns=names).to_parquet(tmp_path / "rows.parquet")
    source = shoal.open(tmp_path / "rows.parquet")
    assert source.normalize().standardize().feature_names == names
    assert source.project(AXES).feature_names is None
    assert source.map(np.abs).feature_names is None
    model = shoal.KMeans(3, random_state=0).fit(source.normalize())
    assert list(model.feature_names_in_) == names
    assert not hasattr(
        shoal.KMeans(3, random_state=0).fit(source.normalize().project(AXES)), "feature_names_in_"
    )


def test_an_output_does_not_replace_the_rows(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    for source in (
        shoal.open(tmp_path / "rows.npy").normalize(),
        shoal.open(tmp_path / "rows.npy").map(np.abs),
    ):
        model = shoal.KMeans(3, random_state=0).fit(source)
        with pytest.raises(ValueError, match=r"rows.npy"):
            model.predict(source, out=tmp_path / "rows.npy")
        with pytest.raises(ValueError, match=r"rows.npy"):
            shoal.shuffle(source, tmp_path / "rows.npy")
    same(np.load(tmp_path / "rows.npy"), X)


# ---------------------------------------------------------------- wrong input


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_are_not_finite_are_named(bad, dtype):
    rows = X.astype(dtype)
    rows[431, 4] = bad
    source = shoal.open(rows)
    with pytest.raises(ValueError, match=r"X must be finite, got .* at row 431, column 4"):
        source.standardize()
    for made_ in (
        source.normalize(),
        source.standardize(1, 2),
        source.project(AXES),
        source.map(np.negative),
    ):
        column = "0" if made_.shape[1] == 4 else "4"
        with pytest.raises(ValueError, match=f"X must be finite, got .* at row 431, column {column}"):
            shoal.KMeans(3).fit(made_)


def test_values_that_overflow_are_told():
    source = shoal.open(np.array([[1.0, 1e300], [2.0, -1e300]]))
    with pytest.raises(ValueError, match="the variance of column 1 overflows: give the mean and the scale"):
        source.standardize()
    same(np.asarray(source.standardize(0, [1, 1e300])), np.array([[1.0, 1], [2, -1]]))
    with pytest.raises(ValueError, match="X must be finite, got inf at row 0, column 0"):
        shoal.KMeans(2).fit(shoal.open(np.array([[1e30], [1.0]], "f4")).standardize(0, 1e-30))
    with pytest.raises(ValueError, match="must have at least 1 row, got 0"):
        shoal.open(X[:0]).standardize()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda s: s.standardize(mean=[1, 2]),
            ValueError,
            "mean must be a number or one number for each of 9 columns, got 2",
        ),
        (
            lambda s: s.standardize(mean="x"),
            ValueError,
            "mean must be a number or one number per column, got 'x'",
        ),
        (
            lambda s: s.standardize(mean=np.eye(9)),
            ValueError,
            "mean must be a number or one number per column",
        ),
        (
            lambda s: s.standardize(mean=True),
            ValueError,
            "mean must be a number or one number per column, got True",
        ),
        (
            lambda s: s.standardize(0, math.nan),
            ValueError,
            "scale must be finite and above 0, got NaN at column 0",
        ),
        (lambda s: s.standardize(0, 0), ValueError, "scale must be finite and above 0, got 0 at column 0"),
        (
            lambda s: s.standardize(0, [1] * 8 + [-2]),
            ValueError,
            "scale must be finite and above 0, got -2 at column 8",
        ),
        (lambda s: s.standardize(math.inf, 1), ValueError, "mean must be finite, got inf at column 0"),
        (lambda s: s.project(np.eye(8)), ValueError, "components must have 9 columns, as X has, got 8"),
        (
            lambda s: s.project(np.ones(9)),
            ValueError,
            "components must be a 2-D array of numbers with at least 1 row",
        ),
        (
            lambda s: s.project(np.ones((0, 9))),
            ValueError,
            "components must be a 2-D array of numbers with at least 1",
        ),
        (lambda s: s.project([["a"] * 9]), ValueError, "components must be a 2-D array of numbers"),
        (lambda s: s.project([[1j] * 9]), ValueError, "components must be a 2-D array of numbers"),
        (
            lambda s: s.project([[0] * 8 + [math.nan]]),
            ValueError,
            "components must be finite, got NaN at row 0, column 8",
        ),
        (
            lambda s: s.project(AXES, mean=[1]),
            ValueError,
            "mean must be a number or one number for each of 9 columns",
        ),
        (lambda s: s.project(AXES, mean=math.nan), ValueError, "mean must be finite, got NaN at column 0"),
        (lambda s: s.map(3), TypeError, "fn must be a function of a block of rows, got 3"),
        (
            lambda s: s.map(np.abs, dim=0),
            ValueError,
            "dim must be an integer of at least 1, got 0|dim must be",
        ),
        (
            lambda s: s.map(np.abs, dtype="complex64"),
            ValueError,
            "dtype must be a type of real numbers .* got complex64",
        ),
        (
            lambda s: s.map(np.abs, dtype="object"),
            ValueError,
            "dtype must be a type of real numbers .* got object",
        ),
    ],
)
def test_wrong_arguments_are_refused(call, error, message):
    for source in (shoal.open(X), shoal.open(streams(X))):
        with pytest.raises(error, match=message):
            call(source)


# ---------------------------------------------------------------- memory, recipes


def test_rows_on_disk_stay_there(tmp_path):
    code = f"""
        import resource, numpy as np, shoal
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        rows = np.lib.format.open_memmap({str(tmp_path / "rows.npy")!r}, "w+", "float16", (2_000_000, 64))
        rows[::1000] = np.arange(64)
        del rows
        shoal.KMeans(2, max_iter=1).fit(np.eye(2))
        before = peak()
        source = shoal.open({str(tmp_path / "rows.npy")!r})
        axes = np.eye(64)[:16]
        standard = source.standardize()
        shoal.MiniBatchKMeans(4, random_state=0, max_iter=1).fit(standard.project(axes).normalize())
        shoal.MiniBatchKMeans(4, random_state=0, max_iter=1).fit(source.map(lambda b: b[:, :4].astype("f4")))
        sums = sum(float(block.sum()) for block in standard.project(axes).blocks())
        # Pages of the mapped file count as resident, so the file alone is what a plain pass adds.
        print(peak() - before, standard.mean_[63] > 0)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    grown, found = done.stdout.split()
    assert found == "True"
    # 244 MiB of mapped pages; the rows as float32 would take 488 MiB more.
    assert int(grown) < 244 + 150, grown


def test_the_recipe_for_principal_components():
    source = shoal.open(streams(X, 100))
    pca = IncrementalPCA(3)
    for block in source.blocks(350):
        pca.partial_fit(block)
    projected = source.project(pca.components_, mean=pca.mean_)
    np.testing.assert_allclose(np.asarray(projected), pca.transform(X), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        shoal.MiniBatchKMeans(3, random_state=0),
        shoal.NestedMiniBatchKMeans(3, random_state=0),
        shoal.BackwardEulerKMeans(3, random_state=0),
        shoal.StreamingCoreset(20, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_partial_fit_of_mapped_rows_takes_their_weights(model):
    weights = np.arange(1.0, len(X) + 1)
    weights[::3] = 1e-3
    source = shoal.open(shoal.Coreset(X, weights, np.arange(len(X)))).map(lambda block: block)
    # Several blocks, so that each must get its own weights.
    source._make = streams(X)
    found = clone(model).partial_fit(source)
    expected = clone(model)
    for start in range(0, len(X), 37):
        expected.partial_fit(X[start : start + 37], sample_weight=weights[start : start + 37])
    if isinstance(model, shoal.StreamingCoreset):
        same(found.result().weights, expected.result().weights)
        same(found.result().points, expected.result().points)
    else:
        same(found.cluster_centers_, expected.cluster_centers_)
