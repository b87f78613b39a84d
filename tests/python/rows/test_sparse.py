"""Sparse matrices of SciPy: compared with dense rows and NumPy, plus conversions and errors."""

import warnings

import numpy as np
import pandas as pd
import pytest
import reference
import scipy.sparse as sp
import shoal
from shoal import (
    BackwardEulerKMeans,
    BalancedKMeans,
    BreathingKMeans,
    KMeans,
    MiniBatchKMeans,
    NestedMiniBatchKMeans,
    VarianceReducedKMeans,
    metrics,
)
from shoal.cli import main
from sklearn.exceptions import DataConversionWarning

FORMATS = ("csc", "coo", "lil", "dok", "bsr")


def rows_of(n=400, d=50, dtype="float64", seed=0, topics=8):
    """Rows around a few centers with mostly zeros; some rows are empty."""
    rng = np.random.default_rng(seed)
    middles = np.where(rng.random((topics, d)) < 0.2, 1 + 4 * rng.random((topics, d)), 0)
    of = rng.integers(0, topics, n)
    used = rng.random((n, d)) < np.where(middles[of] > 0, 0.7, 0.02)
    X = np.where(used, middles[of] + rng.random((n, d)), 0)
    X[5::37] = 0
    return X.astype(dtype)


def slack(dtype):
    return 1e-5 if np.dtype(dtype) == np.float32 else 1e-11


ESTIMATORS = [
    KMeans(6, random_state=0, tol=0.0),
    KMeans(6, random_state=0, tol=1e-3, init="random", n_init=2),
    KMeans(6, random_state=0, metric="cosine", init="plain-k-means++"),
    KMeans(6, random_state=0, algorithm="yinyang", init="random", n_init=1),
    KMeans(6, random_state=0, algorithm="elkan", init="random", n_init=1),
    KMeans(6, random_state=0, algorithm="hamerly", init="random", n_init=1),
    KMeans(6, random_state=0, algorithm="exponion", init="random", n_init=1),
    MiniBatchKMeans(6, random_state=0, batch_size=64, max_iter=5, tol=1e-4),
    NestedMiniBatchKMeans(6, random_state=0, batch_size=64),
    NestedMiniBatchKMeans(6, random_state=0, batch_size=64, bounds="none", shuffle=False),
    BackwardEulerKMeans(6, random_state=0, batch_size=64, max_iter=9),
    VarianceReducedKMeans(6, random_state=0, tol=0, max_iter=4),
    BreathingKMeans(6, m=2, random_state=0),
    BalancedKMeans(6, random_state=0),
]


@pytest.mark.filterwarnings("ignore:.* rows? of X (is|are) all zeros:UserWarning")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("model", ESTIMATORS, ids=str)
def test_sparse_and_dense_agree(model, dtype, weighted):
    X = rows_of(dtype=dtype)
    weights = 0.5 + np.arange(len(X)) % 3 if weighted else None
    dense = shoal_clone(model).fit(X, sample_weight=weights)
    # On the unit sphere, the last bits of the centers decide which one is nearest to a row of zeros.
    cosine = model.metric == "cosine"
    told = X.any(axis=1) | (not cosine)
    for matrix in (sp.csr_array(X), sp.csr_matrix(X)):
        sparse = shoal_clone(model).fit(matrix, sample_weight=weights)
        close = slack(dtype)
        np.testing.assert_array_equal(sparse.labels_[told], dense.labels_[told])
        np.testing.assert_allclose(sparse.cluster_centers_, dense.cluster_centers_, rtol=0, atol=9 * close)
        assert sparse.cluster_centers_.dtype == dtype
        if not cosine:
            np.testing.assert_allclose(sparse.counts_, dense.counts_)
        assert sparse.inertia_ == pytest.approx(dense.inertia_, rel=close)
        for fitted in (sparse, dense):
            np.testing.assert_array_equal(fitted.predict(matrix), fitted.predict(X))
            np.testing.assert_allclose(
                fitted.transform(matrix), fitted.transform(X), atol=3e-3 if dtype == "float32" else 1e-6
            )
            assert fitted.score(matrix, sample_weight=weights) == pytest.approx(
                fitted.score(X, sample_weight=weights), rel=close
            )


def shoal_clone(model):
    from sklearn.base import clone

    return clone(model)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_against_numpy(metric):
    X = rows_of(300, 40, seed=3)
    # On the sphere a row of zeros is equally far from all centers, so rounding would decide.
    X = X[X.any(axis=1)]
    init = X[[0, 7, 50, 99, 203]]
    model = KMeans(5, init=init, metric=metric, tol=0.0).fit(sp.csr_array(X))
    expected = reference.lloyd(X, init, tol=0.0, metric=metric)
    np.testing.assert_array_equal(model.labels_, expected.labels)
    np.testing.assert_allclose(model.cluster_centers_, expected.centers, atol=1e-12)
    assert (model.n_iter_, model.stop_reason_) == (expected.n_iter, expected.reason)
    assert model.inertia_ == pytest.approx(expected.inertia, rel=1e-12)


def test_functions():
    X = rows_of()
    matrix, centers = sp.csr_array(X), X[[1, 2, 3]]
    labels, sq_dists = shoal.nearest(matrix, centers, n_nearest=2)
    expected = np.sort(reference.sq_dists(X, centers), axis=1)[:, :2]
    np.testing.assert_allclose(sq_dists, expected, atol=1e-11)
    np.testing.assert_array_equal(labels[:, 0], reference.nearest(X, centers)[0])
    assert metrics.inertia(matrix, centers) == pytest.approx(reference.potential(X, centers), rel=1e-12)
    seeds, rows = shoal.kmeans_plusplus(matrix, 5, random_state=0)
    np.testing.assert_array_equal(seeds, X[rows])
    np.testing.assert_array_equal(rows, shoal.kmeans_plusplus(X, 5, random_state=0)[1])
    # The distance of a row to itself as a center is exactly 0.
    assert sq_dists[[1, 2, 3], 0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("model", ESTIMATORS[:1] + ESTIMATORS[-3:-1], ids=str)
def test_storage_does_not_change_results(model):
    X = rows_of(dtype="float32")
    tidy = sp.csr_array(X)
    untidy = tidy.tocoo()
    # Every value as the sum of two entries, in any order.
    order = np.random.default_rng(0).permutation(2 * untidy.nnz)
    halves = sp.coo_array(
        (np.tile(untidy.data / 2, 2)[order], (np.tile(untidy.row, 2)[order], np.tile(untidy.col, 2)[order])),
        shape=X.shape,
    )
    by_row = np.argsort(halves.row, kind="stable")
    starts = np.r_[0, np.cumsum(np.bincount(halves.row, minlength=len(X)))]
    unsorted = sp.csr_array((halves.data[by_row], halves.col[by_row], starts), shape=X.shape)
    assert not unsorted.has_canonical_format
    wide = sp.csr_array(tidy)
    wide.indices, wide.indptr = wide.indices.astype("int64"), wide.indptr.astype("int64")
    swapped = sp.csr_array(tidy)
    swapped.data = swapped.data.astype(">f4")
    known = shoal_clone(model).fit(tidy)
    for n_jobs, other in [(1, tidy), (2, unsorted), (3, wide), (2, swapped), (2, shoal.open(tidy))]:
        again = shoal_clone(model).set_params(n_jobs=n_jobs).fit(other)
        assert again.cluster_centers_.tobytes() == known.cluster_centers_.tobytes()
        assert again.inertia_ == known.inertia_
        np.testing.assert_array_equal(again.labels_, known.labels_)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float32", "longdouble"])
def test_compute_types(dtype):
    X = rows_of(dtype="float64").round().astype(dtype)
    model = KMeans(4, random_state=0).fit(sp.csr_array(X))
    assert model.cluster_centers_.dtype == ("float32" if dtype in ("uint8", "float32") else "float64")
    np.testing.assert_array_equal(model.labels_, KMeans(4, random_state=0).fit(X).labels_)


def test_nothing_is_copied_or_changed():
    matrix = sp.csr_array(rows_of(dtype="float32"))
    before = [array.copy() for array in (matrix.data, matrix.indices, matrix.indptr)]
    source = shoal.open(matrix)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", r"\d+ rows? of X (is|are) all zeros", UserWarning)
        KMeans(3, random_state=0, metric="cosine").fit(source)
    for array, old in zip((matrix.data, matrix.indices, matrix.indptr), before, strict=True):
        np.testing.assert_array_equal(array, old)
    matrix.data[:] = 7
    assert next(source.blocks()).data[0] == 7


@pytest.mark.parametrize("kind", FORMATS)
def test_other_formats_are_converted_with_a_warning(kind):
    X = rows_of(100, 20)
    with pytest.warns(DataConversionWarning, match=f"format '{kind}' is converted to CSR"):
        model = KMeans(3, random_state=0).fit(sp.csr_array(X).asformat(kind))
    np.testing.assert_array_equal(model.labels_, KMeans(3, random_state=0).fit(X).labels_)


def test_a_call_that_fits_and_reads_again_warns_once():
    X = sp.csc_array(rows_of(100, 20))
    for call in (KMeans(3).fit_transform, MiniBatchKMeans(3, compute_labels=False).fit_predict):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(X)
        (warning,) = caught
        assert (warning.category, warning.filename) == (DataConversionWarning, __file__)


def test_a_sparse_data_frame():
    X = rows_of(100, 5)
    frame = pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(X), columns=list("abcde"))
    model = KMeans(3, random_state=0).fit(frame)
    assert model.feature_names_in_.tolist() == list("abcde")
    np.testing.assert_array_equal(model.labels_, KMeans(3, random_state=0).fit(X).labels_)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[list("edcba")])


def test_a_source_of_sparse_rows(tmp_path):
    X = rows_of(300, 30, "float32")
    matrix = sp.csr_array(X)
    path = tmp_path / "rows.npz"
    sp.save_npz(path, matrix)
    for source in (shoal.open(matrix), shoal.open(path)):
        assert source.sparse
        assert (source.shape, source.dtype, source.access, len(source)) == (
            (300, 30),
            "float32",
            "random",
            300,
        )
        assert source.nbytes == matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
        assert "sparse float32" in repr(source)
        blocks = list(source.blocks(77))
        assert all(sp.issparse(block) and block.format == "csr" for block in blocks)
        np.testing.assert_array_equal(sp.vstack(blocks).toarray(), X)
        np.testing.assert_array_equal(source.take([5, -1, 0]), X[[5, -1, 0]])
        part = source.slice(10, 250).slice(5, 100)
        np.testing.assert_array_equal(sp.vstack(list(part.blocks(40))).toarray(), X[15:110])
        assert part.nbytes < source.nbytes
        expected = KMeans(3, random_state=0).fit(matrix[15:110])
        assert KMeans(3, random_state=0).fit(part).inertia_ == expected.inertia_
    assert not shoal.open(X).sparse
    empty = shoal.open(sp.csr_array((0, 4)))
    assert (empty.shape, list(empty.blocks())) == ((0, 4), [])


def test_paths_of_sparse_files_are_accepted_everywhere(tmp_path, capsys):
    X = rows_of(200, 20)
    path, model, labels = tmp_path / "rows.npz", tmp_path / "model.safetensors", tmp_path / "labels.npy"
    sp.save_npz(path, sp.csr_matrix(X))
    expected = KMeans(4, random_state=0).fit(path)
    np.testing.assert_array_equal(expected.labels_, KMeans(4, random_state=0).fit(X).labels_)
    assert main(["fit", str(path), "-k", "4", "--seed", "0", "-o", str(model), "--quiet"]) == 0
    assert main(["predict", str(model), str(path), "-o", str(labels), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["info", str(path)]) == 0
    assert "sparse" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load(labels), expected.labels_)


def test_files_without_a_sparse_matrix(tmp_path):
    for name, text in {"text": b"no zip", "empty": b""}.items():
        (tmp_path / f"{name}.npz").write_bytes(text)
    np.savez(
        tmp_path / "beyond.npz",
        format=b"csr",
        shape=(2, 2),
        indptr=[0, 1, 2],
        indices=np.array([0, 9], "int32"),
        data=[1.0, 2.0],
    )
    np.savez(tmp_path / "object.npz", data=np.array([{}], dtype=object))
    for name in ("text", "empty", "beyond", "object"):
        with pytest.raises(ValueError, match=r"holds no (arrays|2-D array|sparse matrix)|0 to 1, got 9"):
            shoal.open(tmp_path / f"{name}.npz")
    with pytest.raises(FileNotFoundError):
        shoal.open(tmp_path / "none.npz")
    with pytest.raises(ValueError, match="has its own shape"):
        shoal.open(tmp_path / "text.npz", shape=(3, 2), dtype="f8")


def damaged(**changes):
    matrix = sp.csr_array(np.eye(4))
    for name, value in changes.items():
        setattr(matrix, name, np.asarray(value, dtype=getattr(matrix, name).dtype))
    return matrix


#: SciPy, which checks the arrays, says what is wrong.
DAMAGED = "^X is a damaged sparse matrix of format 'csr': "


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"indptr": [0, 1, 3, 2, 4]}, DAMAGED),
        ({"indptr": [0, 1, 2, 3]}, DAMAGED),
        ({"indptr": [1, 1, 2, 3, 4]}, DAMAGED),
        ({"indptr": [0, 1, 2, 3, 5]}, DAMAGED),
        ({"indices": [0, 1, 2, 4]}, DAMAGED),
        ({"indices": [0, 1, -2, 3]}, DAMAGED),
        ({"indices": [0, 1, 2]}, DAMAGED),
        ({"data": [1, 2, np.nan, 3]}, "X must be finite, got NaN at row 2, column 2"),
        ({"data": [1, np.inf, 2, 3]}, "X must be finite, got inf at row 1, column 1"),
    ],
)
@pytest.mark.parametrize("model", [KMeans(2), MiniBatchKMeans(2), NestedMiniBatchKMeans(2)], ids=str)
def test_objects_that_are_not_matrices(model, changes, text):
    fitted = shoal_clone(model).fit(np.eye(4))
    with pytest.raises(ValueError, match=text):
        shoal_clone(model).fit(damaged(**changes))
    with pytest.raises(ValueError, match=text):
        fitted.predict(damaged(**changes))


def test_other_errors():
    X = sp.csr_array(rows_of(10, 5))
    with pytest.raises(ValueError, match="n_samples=10 should be >= n_clusters=11"):
        KMeans(11).fit(X)
    with pytest.raises(ValueError, match="Complex data not supported"):
        KMeans(2).fit(X.astype(complex))
    with pytest.raises(ValueError, match="X has 4 features, but KMeans is expecting 5"):
        KMeans(2).fit(X).predict(X[:, :4])
    with pytest.raises(ValueError, match=r"0 feature\(s\)"):
        KMeans(2).fit(sp.csr_array((3, 0)))


@pytest.mark.parametrize(
    "model", [MiniBatchKMeans(5, random_state=0), NestedMiniBatchKMeans(5, random_state=0)], ids=str
)
def test_sparse_and_dense_batches(model, tmp_path):
    X = rows_of(600, 30)
    pieces = [slice(0, 3), slice(3, 100), slice(100, 300), slice(300, 600)]
    known = shoal_clone(model)
    for piece in pieces:
        known.partial_fit(X[piece])
    mixed, kept = shoal_clone(model), shoal_clone(model)
    for i, piece in enumerate(pieces):
        mixed.partial_fit(sp.csr_array(X[piece]) if i % 2 == 0 else X[piece])
        kept.partial_fit(sp.csr_array(X[piece]))
        if i > 0:
            kept.save(tmp_path / "kept.safetensors")
            kept = shoal.load(tmp_path / "kept.safetensors")
    for other in (mixed, kept):
        np.testing.assert_allclose(other.cluster_centers_, known.cluster_centers_, atol=1e-9)


def test_memory_does_not_grow_with_the_columns():
    """As float32, 2,000 rows of 100,000 columns would take 800 MB, far more than the limit here."""
    import resource

    rng = np.random.default_rng(0)
    matrix = sp.csr_array(
        sp.random(2000, 100_000, density=3e-4, random_state=rng, dtype="float32", format="csr")
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for model in (
        KMeans(4, max_iter=3),
        MiniBatchKMeans(4, max_iter=2),
        NestedMiniBatchKMeans(4, max_iter=4),
    ):
        model.set_params(random_state=0, n_jobs=2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(matrix).predict(matrix)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 250_000, f"{grown} KiB"


def test_rows_near_a_long_center_keep_their_distance():
    """If a row and its center share a large value, squared lengths lose the digits of their distance."""
    rows = np.array([[1e8, 0], [1e8, 1], [1e8, 0], [1e8, 1]])
    for X in (rows, sp.csr_matrix(rows)):
        assert shoal.KMeans(1, init=rows[:1]).fit(X).inertia_ == 1.0


def test_values_after_the_last_row_are_ignored():
    matrix = sp.csr_matrix(np.eye(3))
    matrix.indices = np.append(matrix.indices, 99).astype(matrix.indices.dtype)
    matrix.data = np.append(matrix.data, 5.0)
    assert shoal.open(matrix).shape == (3, 3)
    assert shoal.KMeans(3, random_state=0).fit(matrix).inertia_ == 0.0


# ---------------------------------------------------------------- unchecked matrices


def csc(dtype="f4"):
    return sp.csc_array(sp.random(40, 12, density=0.3, dtype=dtype, random_state=np.random.default_rng(0)))


def set_index(matrix, name, at, value):
    getattr(matrix, name)[at] = value
    return matrix


def shaped(matrix, shape):
    matrix._shape = shape
    return matrix


def lil_with(rows=None, values=None):
    matrix = csc().tolil()
    if rows is not None:
        matrix.rows[3] = rows
    if values is not None:
        matrix.data[3] = values
    return matrix


def dok_with(key):
    matrix = csc().todok()
    # Before SciPy 1.13, the matrix is the dictionary.
    dict.__setitem__(getattr(matrix, "_dict", matrix), key, 1.0)
    return matrix


#: Valid matrices that are changed afterwards: SciPy does not check them again.
CHANGED = {
    "csc, index": lambda: set_index(csc(), "indices", 0, 10**6),
    "csc, negative index": lambda: set_index(csc(), "indices", 5, -1),
    "csc, pointer": lambda: set_index(csc(), "indptr", -1, 10**8),
    "csc, falling pointer": lambda: set_index(csc(), "indptr", 3, 10**6),
    "csc, first pointer": lambda: set_index(csc(), "indptr", 0, -(10**6)),
    "csc, shape": lambda: shaped(csc(), (3, 12)),
    "csc, more columns": lambda: shaped(csc(), (40, 10**6)),
    "csr, index": lambda: set_index(csc().tocsr(), "indices", 0, 10**6),
    "csr, shape": lambda: shaped(csc().tocsr(), (10**6, 12)),
    "bsr, index": lambda: set_index(csc().tobsr((4, 3)), "indices", 0, 10**6),
    "bsr, pointer": lambda: set_index(csc().tobsr((4, 3)), "indptr", -1, 10**6),
    "bsr, shape": lambda: shaped(csc().tobsr((4, 3)), (41, 12)),
    "coo, row": lambda: set_index(csc().tocoo(), "row", 0, 10**6),
    "coo, negative row": lambda: set_index(csc().tocoo(), "row", 0, -5),
    "coo, column": lambda: set_index(csc().tocoo(), "col", 0, 12),
    "coo, shape": lambda: shaped(csc().tocoo(), (2, 2)),
    "dia, offsets": lambda: set_index(sp.dia_array(csc().toarray()), "offsets", slice(None), 1),
    "dia, fewer offsets": lambda: replaced(sp.dia_array(csc().toarray()), "offsets", np.arange(100)),
    "lil, column": lambda: lil_with(rows=[10**6], values=[1.0]),
    "lil, negative column": lambda: lil_with(rows=[-3], values=[1.0]),
    "lil, more values": lambda: lil_with(rows=[1], values=[1.0] * 10**5),
    "lil, no list": lambda: lil_with(rows=7),
    "dok, key": lambda: dok_with((10**6, 0)),
    "dok, negative key": lambda: dok_with((0, -1)),
    "dok, no key": lambda: dok_with("x"),
}


def replaced(matrix, name, value):
    setattr(matrix, name, value)
    return matrix


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@pytest.mark.parametrize("change", CHANGED)
def test_a_changed_matrix_is_refused_before_it_is_converted(change):
    kind = change.partition(",")[0]
    text = f"is a damaged sparse matrix of format '{kind}': "
    for use in (
        KMeans(2).fit,
        shoal.open,
        KMeans(2, random_state=0).fit(csc().tocsr()).predict,
        lambda X: shoal.lightweight_coreset(X, 3),
        lambda X: shoal.LaplacianKModes(2, affinity="precomputed").fit(X, features=np.zeros((40, 2))),
    ):
        with pytest.raises(ValueError, match=text):
            use(CHANGED[change]())


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "coo", "dia"])
def test_a_file_with_an_index_out_of_range_is_refused(kind, tmp_path):
    matrix = csc().asformat(kind)
    sp.save_npz(tmp_path / "x.npz", matrix)
    with np.load(tmp_path / "x.npz") as file:
        arrays = dict(file)
    indices = {"coo": "row", "dia": "offsets"}.get(kind, "indices")
    # A diagonal cannot be out of range, but it can occur twice.
    for wrong in [arrays[indices][1]] if kind == "dia" else [10**6, -1]:
        arrays[indices][0] = wrong
        np.savez(tmp_path / "bad.npz", **arrays)
        with pytest.raises(ValueError, match=r"bad\.npz: holds no sparse matrix"):
            shoal.open(tmp_path / "bad.npz")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
def test_valid_matrices_of_all_formats_give_the_same_rows():
    dense = csc().toarray()
    far = sp.dia_array((np.ones((3, 12), dtype="f4"), [0, 10**6, -(10**6)]), shape=(40, 12))
    # SciPy allows diagonals outside the matrix.
    with shoal.open(far) as source:
        np.testing.assert_array_equal(source.take(range(40)), np.eye(40, 12, dtype="f4"))
    for kind in (*FORMATS, "csr", "dia"):
        for container in (sp.csr_array, sp.csr_matrix):
            with shoal.open(container(dense).asformat(kind)) as source:
                np.testing.assert_array_equal(source.take(range(40)), dense)
