"""Data loaders, tensors, bfloat16, dense .npz files, coresets and pipes as X."""

import io
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import array_api_strict as xp
import ml_dtypes
import numpy as np
import pytest
import scipy
import shoal
from hypothesis import given, settings
from hypothesis import strategies as st
from shoal import cli
from sklearn.base import clone

X = np.random.default_rng(0).normal(size=(700, 5)).astype("f4")
X[:200] += 3
CORESET = shoal.lightweight_coreset(X, 120, random_state=0)

WEIGHTED = {
    "KMeans": shoal.KMeans(4, random_state=0),
    "KMeans, restarts": shoal.KMeans(4, init="random", n_init=3, random_state=0),
    "MiniBatchKMeans": shoal.MiniBatchKMeans(4, batch_size=50, random_state=0),
    "NestedMiniBatchKMeans": shoal.NestedMiniBatchKMeans(4, batch_size=50, random_state=0),
    "HierarchicalKMeans": shoal.HierarchicalKMeans(4, random_state=0),
    "BreathingKMeans": shoal.BreathingKMeans(4, m=2, random_state=0),
    "BalancedKMeans": shoal.BalancedKMeans(4, size_max=1.1, random_state=0),
    "VarianceReducedKMeans": shoal.VarianceReducedKMeans(4, random_state=0),
    "BackwardEulerKMeans": shoal.BackwardEulerKMeans(4, batch_size=40, random_state=0),
    "TruncatedGaussianMixture": shoal.TruncatedGaussianMixture(4, n_active=3, random_state=0),
}


class Loader:
    """Blocks of rows, from the first on in every pass, as those of a data loader."""

    def __init__(self, rows=X, size=64, wrap=lambda block: block, order=None):
        self.rows, self.size, self.wrap, self.order = rows, size, wrap, order
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        rows = self.rows if self.order is None else self.rows[self.order(len(self.rows))]
        return (self.wrap(rows[at : at + self.size]) for at in range(0, len(rows), self.size))


class Tensor:
    """An array behind the protocols of DLPack, as a tensor of another library."""

    def __init__(self, rows, device=(1, 0)):
        self._rows, self._device, self.dtype, self.shape = rows, device, "fake.float32", rows.shape

    def __dlpack__(self, **options):
        return self._rows.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._device


class GradTensor(Tensor):
    """A tensor that only gives its values once it is detached."""

    requires_grad = True

    def detach(self):
        return Tensor(self._rows)

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("use tensor.detach().numpy() instead")


def parts(model):
    """Return the fitted values of a model as bytes."""
    found = [model.cluster_centers_, model.labels_, np.float64(model.inertia_)]
    if isinstance(model, shoal.TruncatedGaussianMixture):
        found += [model.covariances_, model.weights_, np.float64(model.lower_bound_)]
    return [np.asarray(each).tobytes() for each in found]


# ---------------------------------------------------------------- streams


def test_an_object_that_iterates_afresh_is_a_stream():
    loader = Loader()
    with shoal.open(loader) as source:
        assert source.shape == (None, 5)
        assert (source.access, source.dtype) == ("replay", np.dtype("f4"))
        assert "Loader" in repr(source)
        np.testing.assert_array_equal(np.concatenate(list(source.blocks())), X)
    by_callable = shoal.KMeans(3, random_state=0).fit(lambda: iter(Loader()))
    model = shoal.KMeans(3, random_state=0).fit(loader)
    assert parts(model) == parts(by_callable)
    assert loader.passes > 2
    np.testing.assert_array_equal(model.predict(loader), model.predict(X))


@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: (x,), lambda x: x.tolist()])
def test_a_block_may_be_wrapped(wrap):
    source = shoal.open(Loader(X.astype("f8"), wrap=wrap))
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), X)


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda x: (x, x[:, 0]), "2 arrays.*for x, "),
        (lambda x: [x[:, 0], x], "2 arrays"),
        (lambda x: {"features": x, "target": x[:, 0]}, "dictionary of 'features', 'target'"),
    ],
)
def test_blocks_of_several_arrays_are_refused_with_the_remedy(wrap, message):
    with pytest.raises(TypeError, match=f"block 0 of X: must be an array of rows, got .*{message}"):
        shoal.KMeans(2).fit(Loader(wrap=wrap))
    fitted = shoal.KMeans(2, random_state=0).fit(lambda: (x for x, _ in Loader(wrap=lambda x: (x, x[:, 0]))))
    assert parts(fitted) == parts(shoal.KMeans(2, random_state=0).fit(Loader()))


def test_lists_stay_lists_of_rows():
    assert shoal.open([[1.0, 2.0], [3.0, 4.0]]).access == "random"
    assert shoal.open([X[0], X[1]]).shape == (2, 5)
    with pytest.raises(ValueError, match="dim 3"):
        shoal.open([X[:5], X[5:10]])
    for nothing in ({1, 2}, {"a": X}):
        with pytest.raises((ValueError, TypeError)):
            shoal.open(nothing)


def test_an_object_that_iterates_once_is_found_out():
    class Once:
        blocks = iter([X])

        def __iter__(self):
            return self.blocks

    with pytest.raises(ValueError, match=r"iter\(X\) returned the same iterator"):
        shoal.KMeans(2).fit(Once())


@pytest.mark.parametrize("seed", range(3))
def test_a_shuffled_loader_raises_where_the_order_matters(seed):
    rng = np.random.default_rng(seed)
    shuffled = Loader(order=rng.permutation)
    model = shoal.KMeans(2, random_state=0).fit(X)
    modes = shoal.LaplacianKModes(2, random_state=0)
    copied = shoal.open(shuffled).normalize().map(np.abs)
    for use in (
        shoal.KMeans(2).fit,
        model.predict,
        lambda rows: shoal.lightweight_coreset(rows, 10),
        # Copies the rows first, and its labels are those of the copy.
        modes.fit,
        lambda _: modes.fit(copied),
    ):
        with pytest.raises(ValueError, match=r"other rows.*same order each time.*shuffle=False"):
            use(shuffled)
    # Also where the first row stays.
    late = Loader(order=lambda n: np.concatenate([[0], 1 + rng.permutation(n - 1)]))
    with pytest.raises(ValueError, match="another order of rows"):
        shoal.KMeans(2).fit(late)


def test_partial_fit_takes_any_order():
    shuffled = Loader(order=np.random.default_rng(0).permutation)
    model = shoal.MiniBatchKMeans(3, random_state=0)
    model.partial_fit(shuffled).partial_fit(shuffled)
    assert model.n_steps_ > 0
    assert shoal.StreamingCoreset(30, random_state=0).partial_fit(shuffled).n_rows_ == len(X)


@given(cuts=st.lists(st.integers(1, 699), max_size=5), more=st.lists(st.integers(1, 699), max_size=5))
@settings(max_examples=15, deadline=None)
def test_passes_may_be_cut_differently(cuts, more):
    both = [sorted(set(cuts)), sorted(set(more))]
    passes = iter(range(10**6))
    rows = shoal.open(lambda: iter(np.split(X, both[next(passes) % 2])))
    for _ in range(3):
        np.testing.assert_array_equal(np.concatenate(list(rows.blocks())), X)


# ---------------------------------------------------------------- tensors and types


@pytest.mark.parametrize("make", [Tensor, GradTensor, xp.asarray])
def test_tensors_of_other_libraries(make):
    expected = parts(shoal.KMeans(3, random_state=0).fit(X))
    assert parts(shoal.KMeans(3, random_state=0).fit(make(X))) == expected
    expected = parts(shoal.KMeans(3, random_state=0).fit(Loader()))
    assert parts(shoal.KMeans(3, random_state=0).fit(Loader(wrap=lambda x: [make(x)]))) == expected


@pytest.mark.parametrize("device", [(2, 0), (8, 1), (10, 0)])
def test_tensors_on_other_devices_are_refused(device):
    with pytest.raises(ValueError, match=r"must be in the memory of the CPU.*X\.cpu\(\)"):
        shoal.KMeans(2).fit(Tensor(X, device))
    with pytest.raises(ValueError, match=r"block 0 of X: .*memory of the CPU"):
        shoal.KMeans(2).fit(Loader(wrap=lambda x: Tensor(x, device)))


@pytest.mark.parametrize("estimator", WEIGHTED.values(), ids=WEIGHTED)
def test_bfloat16_gives_the_bits_of_its_values_in_float32(estimator):
    small = X.astype(ml_dtypes.bfloat16)
    wide = small.astype("f4")
    expected = parts(clone(estimator).fit(wide))
    for rows in (small, np.asfortranarray(small), np.repeat(small, 2, axis=0)[::2]):
        assert parts(clone(estimator).fit(rows)) == expected
    if isinstance(estimator, shoal.HierarchicalKMeans):
        with pytest.raises(ValueError, match="needs Random access"):
            clone(estimator).fit(Loader(small))
        return
    with warnings.catch_warnings():
        # The nested method draws no rows at random from a stream.
        warnings.filterwarnings("ignore", "shuffle=True has no effect")
        streamed = clone(estimator).fit(Loader(small))
        assert parts(streamed) == parts(clone(estimator).fit(Loader(wide)))
    assert streamed.cluster_centers_.dtype == np.float32
    np.testing.assert_array_equal(streamed.predict(small), streamed.predict(wide))
    np.testing.assert_array_equal(streamed.predict(Loader(small)), streamed.predict(wide))


def test_bfloat16_is_stored_as_it_is(tmp_path):
    small = X.astype(ml_dtypes.bfloat16)
    wide = small.astype("f4")
    for rows in (small, Loader(small)):
        with shoal.open(rows) as source:
            assert "bfloat16" in repr(source)
            assert source.dtype == np.float32
            np.testing.assert_array_equal(np.asarray(source), wide)
            np.testing.assert_array_equal(source.take([5, 0, 699]), wide[[5, 0, 699]])
    source = shoal.open(small)
    assert source.nbytes == X.nbytes // 2
    np.testing.assert_array_equal(np.asarray(source.slice(3, 40)), wide[3:40])
    np.testing.assert_array_equal(np.asarray(shoal.write(Loader(small), tmp_path / "x.npy")), wide)
    model = shoal.MiniBatchKMeans(3, random_state=0).partial_fit(small)
    other = shoal.MiniBatchKMeans(3, random_state=0).partial_fit(wide)
    assert parts(model) == parts(other)
    graph, expected = (shoal.knn_graph(rows, 3) for rows in (small, wide))
    assert (graph != expected).nnz == 0
    modes, expected = (shoal.LaplacianKModes(3, random_state=0).fit(rows) for rows in (small, wide))
    np.testing.assert_array_equal(modes.labels_, expected.labels_)
    with pytest.raises(ValueError, match=r"2-D|2D"):
        shoal.open(small[:, 0])
    small[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        shoal.KMeans(2).fit(small)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "int4"])
def test_other_small_types_are_refused(name):
    rows = X.astype(getattr(ml_dtypes, name))
    for given_rows in (rows, iter([rows])):
        with pytest.raises(TypeError, match=rf"bfloat16, got {name}.*astype"):
            shoal.KMeans(2).fit(given_rows) if given_rows is rows else shoal.open(given_rows)


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader, TensorDataset

    expected = parts(shoal.KMeans(3, random_state=0).fit(X))
    for rows in (torch.tensor(X), torch.tensor(X, requires_grad=True)):
        assert parts(shoal.KMeans(3, random_state=0).fit(rows)) == expected
    small = torch.tensor(X).to(torch.bfloat16)
    expected = parts(shoal.KMeans(3, random_state=0).fit(small.float()))
    assert parts(shoal.KMeans(3, random_state=0).fit(small)) == expected
    data = TensorDataset(torch.tensor(X))
    loader = DataLoader(data, batch_size=64)
    assert parts(shoal.KMeans(3, random_state=0).fit(loader)) == parts(
        shoal.KMeans(3, random_state=0).fit(Loader())
    )
    with pytest.raises(ValueError, match="shuffle=False"):
        shoal.KMeans(3).fit(DataLoader(data, batch_size=64, shuffle=True))


ARRAY_API = """
import array_api_strict as xp, numpy as np, shoal, sklearn
X = np.random.default_rng(0).normal(size=(300, 4))
expected = shoal.KMeans(3, random_state=0).fit(X)
with sklearn.config_context(array_api_dispatch=True):
    rows = xp.asarray(X)
    model = shoal.KMeans(3, random_state=0).fit(rows)
    results = (model.labels_, model.predict(rows), model.transform(rows), model.cluster_centers_)
    assert all(type(each) is np.ndarray for each in results)
    assert (model.labels_ == expected.labels_).all() and model.score(rows) == expected.score(X)
    assert (model.cluster_centers_ == expected.cluster_centers_).all()
    assert shoal.metrics.inertia(rows, model.cluster_centers_) == expected.inertia_
    assert shoal.open(lambda: iter([rows])).shape == (None, 4)
"""


@pytest.mark.skipif(
    [int(part) for part in scipy.__version__.split(".")[:2]] < [1, 14],
    reason="scikit-learn dispatches by the array API with SciPy 1.14",
)
def test_array_api_arrays_under_dispatch():
    # SciPy reads the variable when it is imported.
    environment = os.environ | {"SCIPY_ARRAY_API": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ARRAY_API], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- .npz


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", ">f4", "f8", "i8", "?"])
def test_dense_npz(save, dtype, tmp_path):
    rows = (10 * X).astype(dtype)
    path = tmp_path / "x.npz"
    save(path, ids=np.arange(700), X=rows, other=rows[:9])
    for key, expected in ((None, rows), ("X", rows), ("other", rows[:9])):
        with shoal.open(path, key=key) as source:
            assert source.access == "random"
            np.testing.assert_array_equal(np.asarray(source), expected)
            again = pickle.loads(pickle.dumps(source.slice(2, 7)))
            np.testing.assert_array_equal(np.asarray(again), expected[2:7])
    save(path, embeddings=np.asfortranarray(rows), ids=np.arange(700))
    np.testing.assert_array_equal(np.asarray(shoal.open(path)), rows)
    model = shoal.KMeans(1, random_state=0).fit(path)
    expected = shoal.KMeans(1, random_state=0).fit(rows).cluster_centers_
    np.testing.assert_array_equal(model.cluster_centers_, expected)


def test_npz_arrays_are_named_when_it_is_unclear_which_to_read(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, a=X, b=X[:3], ids=np.arange(4))
    shapes = r"a \(700, 5\), b \(3, 5\), ids \(4,\)"
    with pytest.raises(
        ValueError, match=rf"x\.npz: must hold one 2-D array, or one named X, got {shapes}.*key="
    ):
        shoal.open(path)
    with pytest.raises(ValueError, match=rf"key must be the name of one of its arrays, {shapes}, got 'c'"):
        shoal.open(path, key="c")
    with pytest.raises(ValueError, match=r"key must name a 2-D array, got 'ids' of shape \(4,\)"):
        shoal.open(path, key="ids")
    with pytest.raises(ValueError, match="columns"):
        shoal.open(path, columns=["a"])
    np.savez(path, a=np.array([["x"]], dtype=object))
    with pytest.raises(ValueError, match="Python objects"):
        shoal.open(path)


@given(at=st.integers(0, 10**6), value=st.integers(0, 255), compressed=st.booleans())
@settings(max_examples=150, deadline=None)
def test_damaged_npz_files_raise_or_give_rows(at, value, compressed):
    contents = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(contents, X=X[:4], ids=np.arange(3))
    damaged = bytearray(contents.getvalue())
    damaged[at % len(damaged)] = value
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npz"
        path.write_bytes(damaged)
        try:
            with shoal.open(path) as source:
                assert np.asarray(source).shape == source.shape
        except ValueError as error:
            refused = str(error)
        else:
            refused = "x.npz"
        assert "x.npz" in refused


# ---------------------------------------------------------------- coresets


@pytest.mark.parametrize("estimator", WEIGHTED.values(), ids=WEIGHTED)
def test_a_coreset_gives_the_bits_of_its_points_and_weights(estimator, tmp_path):
    CORESET.save(tmp_path / "c.npz")
    expected = clone(estimator).fit(CORESET.points, sample_weight=CORESET.weights)
    for rows in (CORESET, tmp_path / "c.npz", shoal.open(CORESET)):
        model = clone(estimator).fit(rows)
        assert parts(model) == parts(expected)
        assert model.score(rows) == expected.score(CORESET.points, sample_weight=CORESET.weights)
    stepped = clone(estimator)
    for _ in stepped.iter_fit(CORESET):
        pass
    assert parts(stepped) == parts(expected)
    labels = clone(estimator).fit_predict(CORESET.points, sample_weight=CORESET.weights)
    np.testing.assert_array_equal(clone(estimator).fit_predict(CORESET), labels)


@given(st.integers(1, 60), st.integers(0, 2**32), st.booleans())
@settings(max_examples=20, deadline=None)
def test_any_coreset_gives_the_bits_of_its_points_and_weights(size, seed, wide):
    rows = X.astype("f8") if wide else X
    coreset = shoal.lightweight_coreset(rows, size, random_state=seed)
    k = min(3, size)
    one = shoal.KMeans(k, random_state=seed, max_iter=5)
    other = clone(one)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert parts(one.fit(coreset)) == parts(other.fit(coreset.points, sample_weight=coreset.weights))


@pytest.mark.parametrize("name", ["MiniBatchKMeans", "NestedMiniBatchKMeans", "BackwardEulerKMeans"])
def test_partial_fit_of_a_coreset(name):
    one, other = clone(WEIGHTED[name]), clone(WEIGHTED[name])
    for _ in range(2):
        one.partial_fit(CORESET)
        other.partial_fit(CORESET.points, sample_weight=CORESET.weights)
    assert parts(one) == parts(other)
    with pytest.raises(ValueError, match="sample_weight must be None for rows that have weights"):
        one.partial_fit(CORESET, sample_weight=CORESET.weights)


def test_functions_take_coresets():
    points, weights, _ = CORESET
    for how in (shoal.kmeans_plusplus, shoal.afkmc2, shoal.kmeans_parallel):
        one = how(CORESET, 5, random_state=0)
        other = how(points, 5, sample_weight=weights, random_state=0)
        np.testing.assert_array_equal(one[1], other[1])
    one = shoal.lightweight_coreset(CORESET, 40, random_state=0)
    other = shoal.lightweight_coreset(points, 40, sample_weight=weights, random_state=0)
    np.testing.assert_array_equal(one.weights, other.weights)
    np.testing.assert_array_equal(one.points, points[one.indices])
    centers = points[:3]
    assert shoal.metrics.inertia(CORESET, centers) == shoal.metrics.inertia(points, centers, weights)
    assert shoal.metrics.inertia(CORESET, centers) != shoal.metrics.inertia(points, centers)
    one = shoal.StreamingCoreset(40, random_state=0).partial_fit(CORESET).result()
    other = shoal.StreamingCoreset(40, random_state=0).partial_fit(points, sample_weight=weights).result()
    np.testing.assert_array_equal(one.weights, other.weights)
    for use in (
        lambda given_weights: shoal.KMeans(2).fit(CORESET, sample_weight=given_weights),
        lambda given_weights: shoal.KMeans(2).fit(X).score(CORESET, sample_weight=given_weights),
        lambda given_weights: shoal.metrics.inertia(CORESET, centers, given_weights),
        lambda given_weights: shoal.kmeans_plusplus(CORESET, 2, sample_weight=given_weights),
        lambda given_weights: shoal.StreamingCoreset(9).partial_fit(CORESET, sample_weight=given_weights),
    ):
        for given_weights in (weights, 1.0):
            with pytest.raises(ValueError, match="sample_weight must be None for rows that have weights"):
                use(given_weights)


def test_callbacks_weight_the_held_out_coreset():
    curve = shoal.callbacks.ValidationCurve(CORESET)
    model = shoal.KMeans(3, random_state=0, callbacks=[curve]).fit(X)
    expected = -shoal.metrics.inertia(CORESET.points, model.cluster_centers_, CORESET.weights)
    assert curve.scores_[-1] == pytest.approx(expected, rel=1e-3)


def test_a_weighted_source(tmp_path):
    CORESET.save(tmp_path / "c.npz")
    for source in (shoal.open(CORESET), shoal.open(tmp_path / "c.npz")):
        np.testing.assert_array_equal(source.sample_weight, CORESET.weights)
        np.testing.assert_array_equal(source.slice(3, 9).sample_weight, CORESET.weights[3:9])
        assert "weighted" in repr(source)
        np.testing.assert_array_equal(np.asarray(source), CORESET.points)
    again = pickle.loads(pickle.dumps(source.slice(3, 9)))
    np.testing.assert_array_equal(again.sample_weight, CORESET.weights[3:9])
    assert shoal.open(X).sample_weight is None
    # An array of the file alone has no weights.
    assert shoal.open(tmp_path / "c.npz", key="points").sample_weight is None
    zero = CORESET._replace(weights=np.zeros(len(CORESET.weights)))
    with pytest.raises(ValueError, match="above 0"):
        shoal.KMeans(2).fit(zero)
    short = CORESET._replace(weights=CORESET.weights[:-1])
    with pytest.raises(ValueError, match="119 values, X has 120 rows"):
        shoal.KMeans(2).fit(short)


def test_transforms_keep_weights_and_types():
    source = shoal.open(CORESET)
    average = np.average(CORESET.points.astype("f8"), axis=0, weights=CORESET.weights)
    np.testing.assert_allclose(source.standardize().mean_, average, rtol=1e-5)
    for made in (source.normalize(), source.standardize()):
        np.testing.assert_array_equal(made.sample_weight, CORESET.weights)
        np.testing.assert_array_equal(made.slice(2, 9).sample_weight, CORESET.weights[2:9])
        expected = shoal.KMeans(3, random_state=0).fit(np.asarray(made), sample_weight=CORESET.weights)
        assert parts(shoal.KMeans(3, random_state=0).fit(made)) == parts(expected)
        with pytest.raises(ValueError, match="rows that have weights"):
            shoal.KMeans(3).fit(made, sample_weight=CORESET.weights)
    mapped = source.map(lambda block: block[:, :2])
    stream = shoal.open(lambda: iter([CORESET.points[:, :2]]))
    expected = shoal.KMeans(3, random_state=0).fit(stream, sample_weight=CORESET.weights)
    assert parts(shoal.KMeans(3, random_state=0).fit(mapped)) == parts(expected)
    small = X.astype(ml_dtypes.bfloat16)
    for rows in (small, Loader(small)):
        wide = np.asarray(shoal.open(rows))
        np.testing.assert_array_equal(
            np.asarray(shoal.open(rows).normalize()), np.asarray(shoal.open(wide).normalize())
        )
        np.testing.assert_array_equal(np.asarray(shoal.open(rows).map(lambda block: block + 1)), wide + 1)


def test_sparse_coresets(tmp_path):
    sparse = pytest.importorskip("scipy.sparse")
    rows = sparse.csr_array(np.where(X > 0.5, X, 0))
    coreset = shoal.lightweight_coreset(rows, 90, random_state=0)
    coreset.save(tmp_path / "c.npz")
    expected = shoal.KMeans(3, random_state=0).fit(coreset.points, sample_weight=coreset.weights)
    for given_rows in (coreset, tmp_path / "c.npz"):
        assert parts(shoal.KMeans(3, random_state=0).fit(given_rows)) == parts(expected)
        assert shoal.open(given_rows).sparse


def test_weights_are_never_ignored_silently(tmp_path):
    CORESET.save(tmp_path / "c.npz")
    for rows in (CORESET, shoal.open(CORESET), tmp_path / "c.npz"):
        for use in (shoal.LaplacianKModes(2).fit, lambda rows: shoal.laplacian_path(rows, 2)):
            with pytest.raises(ValueError, match="takes rows without weights"):
                use(rows)
        with pytest.warns(UserWarning, match="knn_graph ignores the weights"):
            shoal.knn_graph(rows, 2)
        with pytest.warns(UserWarning, match="nearest ignores the weights"):
            shoal.nearest(rows, X[:2])
        for use in (shoal.write, shoal.shuffle):
            with pytest.raises(ValueError, match="rows must have no weights"):
                use(rows, tmp_path / "x.npy")
    with pytest.raises((TypeError, ValueError), match="block 0 of X"):
        shoal.KMeans(2).fit(lambda: iter([CORESET]))
    with pytest.raises(ValueError, match="without weights"):
        shoal.KMeans(2).fit(lambda: iter([shoal.open(CORESET)]))


# ---------------------------------------------------------------- pipes


class Dripping(io.RawIOBase):
    """Gives a few bytes at a time, as a pipe may do."""

    def __init__(self, contents):
        self._file = io.BytesIO(contents)

    def readable(self):
        return True

    def read(self, size=-1):
        return self._file.read(min(size, 37))


def saved(rows):
    file = io.BytesIO()
    np.save(file, rows)
    return file.getvalue()


@pytest.mark.parametrize("dtype", ["f4", ">f8", "u1", "f2"])
@pytest.mark.parametrize("make", [io.BytesIO, Dripping])
def test_npy_from_a_file_object(make, dtype):
    rows = (10 * X).astype(dtype)
    source = shoal.open(make(saved(rows)))
    assert (source.shape, source.access) == ((700, 5), "once")
    np.testing.assert_array_equal(np.asarray(source), rows)
    model = shoal.KMeans(3, random_state=0).fit(rows)
    np.testing.assert_array_equal(model.predict(make(saved(rows))), model.labels_)
    with pytest.raises(ValueError, match="a pipe or an open file does not allow: save the rows"):
        shoal.KMeans(3).fit(make(saved(rows)))
    mini = shoal.MiniBatchKMeans(3, random_state=0).fit(make(saved(rows)))
    assert mini.cluster_centers_.shape == (3, 5)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "Empty CSV file"),
        (b"\x89HDF\r\n\0", "must hold an NPY file or CSV text"),
        (b"a,b\n1,2\n3,x\n", "column 'b' must hold numbers, got .*at row 1"),
        (b"1,2\n3,4\n", "first line must hold the names"),
        (saved(X)[:-1], "cut off.*700 rows, and row 699 is missing"),
        (saved(X)[:500], "cut off"),
        (saved(X) + b"x", "more bytes than the 3500 values"),
        (saved(np.asfortranarray(X)), "Fortran order.*ascontiguousarray"),
        (saved(X[:, 0]), "2-D array"),
        (saved(np.array([["a"]])), "real numbers"),
        (saved(X)[:40], "is damaged"),
        (b"\x93NUMPY\x09\x00" + saved(X)[8:], "version"),
        (saved(X).replace(b"(700, 5)", b"(7, 10**12)".ljust(8)), "is damaged"),
    ],
)
def test_other_bytes_from_a_file_object_are_refused(contents, message):
    with pytest.raises(ValueError, match=message):
        np.asarray(shoal.open(io.BytesIO(contents)))


@pytest.mark.parametrize("make", [io.BytesIO, Dripping])
@pytest.mark.parametrize("rows", [3, 200_000])
def test_csv_from_a_file_object(make, rows):
    pytest.importorskip("pyarrow")
    values = np.random.default_rng(0).normal(size=(rows, 3)).round(6)
    text = "a,b,c\n" + "".join(f"{a!r},{b!r},{c!r}\n" for a, b, c in values.tolist())
    if make is Dripping and rows > 3:
        text = text[: text.index("\n", 10_000) + 1]
        values = values[: text.count("\n") - 1]
    source = shoal.open(make(text.encode()))
    assert (source.access, source.feature_names) == ("once", ["a", "b", "c"])
    np.testing.assert_array_equal(np.asarray(source), values)
    chosen = shoal.open(make(text.encode()), columns=["c", "a"])
    np.testing.assert_array_equal(np.asarray(chosen), values[:, [2, 0]])


def test_text_files_and_wide_rows_are_refused(tmp_path):
    (tmp_path / "x.txt").write_text("1 2")
    with (tmp_path / "x.txt").open() as file, pytest.raises(TypeError, match="binary file"):
        shoal.open(file)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (3, 10**12)}
    )
    with pytest.raises(ValueError, match="one row must take at most"):
        shoal.open(io.BytesIO(header.getvalue()))


@pytest.fixture
def shoal_with(monkeypatch, capfd):
    """Run a command with bytes as standard input; return its exit status and output."""

    def run(stdin, *args):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = cli.main([str(arg) for arg in args])
        captured = capfd.readouterr()
        return status, captured.out, captured.err

    return run


def test_standard_input_on_the_command_line(shoal_with, tmp_path, capfd):
    model = shoal.KMeans(3, random_state=0).fit(X)
    model.save(tmp_path / "m.safetensors")
    status, _, problem = shoal_with(
        saved(X), "predict", tmp_path / "m.safetensors", "-", "-o", tmp_path / "l.npy"
    )
    assert status == 0, problem
    np.testing.assert_array_equal(np.load(tmp_path / "l.npy"), model.labels_)
    status, result, problem = shoal_with(saved(X), "info", "-")
    assert "700 x 5" in result, problem
    status, _, problem = shoal_with(saved(X), "fit", "-", "-k", "3", "--method", "minibatch", "--quiet")
    assert status == 0, problem
    status, _, problem = shoal_with(saved(X), "fit", "-", "-k", "3", "--quiet")
    assert (status, problem.count("\n")) == (1, 1)
    assert "save the rows to a file" in problem
    text = b"a,b\n" + b"".join(b"%d,%d\n" % (i % 7, i % 3) for i in range(300))
    status, result, problem = shoal_with(text, "info", "-")
    assert "unknown x 2" in result, problem
    status, _, problem = shoal_with(saved(X)[:-1], "fit", "-", "-k", "3", "--method", "minibatch", "--quiet")
    assert status == 1
    assert "standard input: is cut off" in problem
    with pytest.raises(SystemExit, match="2"):
        shoal_with(saved(X), "fit", "-", "-k", "3", "--key", "X")
    with pytest.raises(SystemExit, match="2"):
        shoal_with(saved(X), "fit", "-", "-k", "3", "--method", "minibatch", "--labels", tmp_path / "fit.npy")
    assert "--labels needs a second pass" in capfd.readouterr().err
    assert not (tmp_path / "fit.npy").exists()


def test_a_pipe_as_standard_input(tmp_path):
    shoal.KMeans(3, random_state=0).fit(X).save(tmp_path / "m.safetensors")
    command = [sys.executable, "-m", "shoal", "predict", "m.safetensors", "-", "-o", "l.npy"]
    done = subprocess.run(command, input=saved(X), cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "l.npy").shape == (700,)


def test_coreset_files_on_the_command_line(tmp_path, capsys):
    CORESET.save(tmp_path / "c.npz")
    name = str(tmp_path / "c.npz")
    assert (
        cli.main(["fit", name, "-k", "3", "--seed", "0", "--quiet", "-o", str(tmp_path / "m.safetensors")])
        == 0
    )
    expected = shoal.KMeans(3, random_state=0).fit(CORESET.points, sample_weight=CORESET.weights)
    np.testing.assert_array_equal(
        shoal.load(tmp_path / "m.safetensors").cluster_centers_, expected.cluster_centers_
    )
    assert cli.main(["info", name]) == 0
    assert "coreset" in capsys.readouterr().out
    for more in ([], ["--shuffle"]):
        options = ["-k", "3", "--methods", "kmeans", "--held-out", "30", "--quiet"]
        assert cli.main(["compare", name, *options, *more]) == 0
    assert cli.main(["fit", name, "-k", "3", "--method", "kmodes", "--quiet"]) == 1
    assert "takes rows without weights" in capsys.readouterr().err


def test_one_pass_takes_any_order_through_transforms(tmp_path):
    shuffled = Loader(order=np.random.default_rng(0).permutation)
    rows = shoal.open(shuffled)
    for source in (rows.normalize(), rows.map(np.cbrt), rows.standardize().map(np.cbrt).normalize()):
        model = shoal.MiniBatchKMeans(3, random_state=0).partial_fit(source).partial_fit(source)
        assert model.n_steps_ > 0
        with pytest.raises(ValueError, match="another order of rows"):
            shoal.KMeans(2).fit(source)
    expected = X[np.lexsort(X.T)]
    for write in (shoal.write, shoal.shuffle):
        found = np.asarray(write(shuffled, tmp_path / "rows.npy"))
        np.testing.assert_array_equal(found[np.lexsort(found.T)], expected)


def test_named_files_of_the_standard_library(tmp_path):
    for suffix, data in ((".npy", saved(X)), (".csv", b"a,b\n1,2\n3,4\n")):
        with tempfile.NamedTemporaryFile(suffix=suffix, dir=tmp_path) as file:
            file.write(data)
            file.seek(0)
            expected = np.asarray(shoal.open(io.BytesIO(data)))
            np.testing.assert_array_equal(np.asarray(shoal.open(file)), expected)
            file.seek(0)
            with pytest.raises(ValueError, match="a pipe or an open file does not allow"):
                shoal.KMeans(1).fit(file)
    with (
        tempfile.NamedTemporaryFile("w+", dir=tmp_path) as text,
        pytest.raises(TypeError, match="must be a binary file"),
    ):
        shoal.open(text)


def test_open_files_and_datasets_are_not_replaced(tmp_path):
    ds = pytest.importorskip("pyarrow.dataset")
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    model = shoal.KMeans(3, random_state=0).fit(X)
    np.save(tmp_path / "x.npy", X)
    before = (tmp_path / "x.npy").read_bytes()
    with (tmp_path / "x.npy").open("rb") as file:
        # Opened or not, and transformed.
        for made in (lambda: file, lambda: shoal.open(file), lambda: shoal.open(file).normalize()):
            with pytest.raises(ValueError, match="is one of the files that are read"):
                model.predict(made(), out=tmp_path / "x.npy")
            file.seek(0)
        with pytest.raises(ValueError, match="is one of the files that are read"):
            shoal.write(file, tmp_path / "x.npy")
    assert (tmp_path / "x.npy").read_bytes() == before
    name = tmp_path / "x.parquet"
    pq.write_table(pa.table({"v": list(X.astype("f4"))}), name)
    before = name.read_bytes()
    found = ds.dataset(name)
    for rows in (found, shoal.open(found), ds.dataset([found]), shoal.open(found).map(np.abs)):
        with pytest.raises(ValueError, match="is one of the files that are read"):
            model.predict(rows, out=name)
    assert name.read_bytes() == before


def test_lists_of_bfloat16_rows():
    rows = X.astype(ml_dtypes.bfloat16)
    found = shoal.open(list(rows))
    assert found.shape == rows.shape
    np.testing.assert_array_equal(np.asarray(found), rows.astype("f4"))
    with pytest.raises(ValueError, match="dim 3"):
        shoal.write([rows], "rows.npy")
