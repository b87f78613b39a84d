"""Data loaders, tensors, bfloat16 and dense .npz files as X."""

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
import pandas as pd
import pytest
import scipy
import shoal
from hypothesis import given, settings
from hypothesis import strategies as st
from loader import WEIGHTED, Loader, X, parts
from sklearn.base import clone


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


def test_lists_of_bfloat16_rows():
    rows = X.astype(ml_dtypes.bfloat16)
    found = shoal.open(list(rows))
    assert found.shape == rows.shape
    np.testing.assert_array_equal(np.asarray(found), rows.astype("f4"))


@pytest.mark.parametrize("convert", [np.asarray, pd.DataFrame, np.asfortranarray])
def test_a_list_of_blocks_is_a_stream(convert, tmp_path):
    blocks = [convert(X[:100]), convert(X[100:101]), convert(X[101:])]
    expected = parts(shoal.KMeans(3, random_state=0).fit(lambda: iter(blocks)))
    assert parts(shoal.KMeans(3, random_state=0).fit(blocks)) == expected
    assert (shoal.KMeans(3, init=X[:3], max_iter=1).fit(X).predict(blocks).shape) == (len(X),)
    assert np.array_equal(np.asarray(shoal.write(blocks, tmp_path / "rows.npy")), X)
    with pytest.raises(ValueError, match="block 1"):
        shoal.KMeans(3).fit([X, X[:, :2]])
    for rows in ((X, X), [X.tolist(), X.tolist()]):
        with pytest.raises(ValueError, match="dim 3"):
            shoal.KMeans(3).fit(rows)


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
