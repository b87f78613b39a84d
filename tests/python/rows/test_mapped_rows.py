"""Rows that a function of the user maps as they are read."""

import numpy as np
import pytest
import shoal
from scipy import sparse
from sklearn.base import clone
from stored import made
from transformed import X, same, streams


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
