"""Values of rows that are transformed as they are read: normalize, standardize, project."""

import numpy as np
import pytest
import shoal
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.preprocessing import Normalizer, StandardScaler
from stored import DTYPES, made
from transformed import AXES, X, same, streams


def compute(dtype):
    return "float32" if dtype in {"uint8", "int8", "int16", "uint16", "float16", "float32"} else "float64"


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
