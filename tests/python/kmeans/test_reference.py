"""Every sweep of k-means compared with a textbook implementation, for all types, weights and metrics."""

import tempfile
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import reference
import shoal
from hypothesis import given, settings
from shoal import KMeans

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

#: Upper bound of the relative rounding error of a distance, in units of the compute type's epsilon.
SLACK = {"float32": 1e-5, "float64": 1e-12}


def follow(X, init, weights=None, metric="euclidean", max_iter=10, tol=0.0):
    """Compare every sweep of a fit with the reference, starting from the centers before the sweep."""
    model = KMeans(len(init), init=init, n_init=1, metric=metric, max_iter=max_iter, tol=tol)
    rows = reference.normalized(X) if metric == "cosine" else np.asarray(X, dtype=np.float64)
    run = model.iter_fit(X, sample_weight=weights)
    compute = None
    start = before = last = None
    for step in run:
        if compute is None:
            compute = model.cluster_centers_.dtype
            slack = SLACK[compute.name]
            start = np.asarray(init).astype(compute).astype(np.float64)
            if metric == "cosine":
                start = reference.normalized(start)
            # shoal measures distances from a point near the centers, so only the spread of the rows cancels.
            scale = np.square(rows - rows.mean(axis=0)).sum(axis=1).max()
            threshold = tol * rows.var(axis=0).mean()
        labels = reference.nearest(rows, start)[0] if last is None else last
        best = np.square(rows - start[labels]).sum(axis=1)
        measured = float((best if weights is None else best * weights).sum())
        least = reference.potential(rows, start, weights)
        room = slack * scale * (len(rows) if weights is None else np.sum(weights))
        assert abs(step.objective - measured) <= max(room, slack * measured)
        assert step.objective >= least - room
        expected = reference.update(rows, start, labels, weights, metric, compute)
        sure = reference.nearest(rows, start)[2].min() > 100 * slack
        new = model.cluster_centers_.astype(np.float64)
        if last is not None or sure:
            np.testing.assert_allclose(
                new, expected.centers, rtol=10 * slack, atol=10 * slack * np.abs(rows).max()
            )
            if step.stop_reason is None:
                # Those of the labels: a row that becomes the center of an empty cluster still counts there.
                own = np.bincount(labels, weights, minlength=len(start))
                np.testing.assert_allclose(model.counts_, own, rtol=1e-12)
            assert step.center_shift == pytest.approx(
                np.sqrt(expected.moved), rel=1e-2, abs=10 * slack * np.abs(rows).max()
            )
        now = model.labels_
        d = reference.sq_dists(rows, new)
        mine = d[np.arange(len(rows)), now]
        assert (mine - d.min(axis=1) <= slack * scale).all(), "a center is nearer than the label says"
        clear = reference.nearest(rows, new)[2] * d.min(axis=1) > 10 * slack * scale
        assert (now == d.argmin(axis=1))[clear].all()
        # Compare with the labels of the previous sweep.
        if before is not None:
            assert step.n_changed == (last != before).sum()
        if step.stop_reason == "tolerance":
            assert np.square(new - start).sum() <= threshold * (1 + 1e-6) or tol == 0
        start, before, last = new, labels if last is not None or sure else None, now
    assert step.stop_reason is not None
    counts = np.bincount(model.labels_, weights, minlength=len(init))
    np.testing.assert_allclose(model.counts_, counts, rtol=1e-12)
    recomputed = reference.inertia(rows, model.cluster_centers_, model.labels_, weights)
    exact = 1e-12 if metric == "euclidean" else max(slack, 1e-12)
    assert model.inertia_ == pytest.approx(recomputed, rel=exact, abs=0 if metric == "euclidean" else slack)
    assert (model.predict(X) == model.labels_).all()
    return model


def random_rows(n, d, dtype, seed, scale=1.0, offset=0.0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) * scale + offset).astype(dtype)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("n", "d", "k"),
    [
        (1, 1, 1),
        (2, 1, 2),
        (7, 3, 1),
        (9, 3, 9),
        (40, 2, 5),
        (257, 3, 17),
        (300, 17, 16),
        (301, 17, 33),
        (200, 130, 7),
        (130, 1, 4),
    ],
)
def test_every_sweep(n, d, k, dtype, metric, weighted):
    X = random_rows(n, d, dtype, seed=n * d + k)
    weights = np.random.default_rng(n).uniform(0.1, 2.0, size=n) if weighted else None
    follow(X, X[np.random.default_rng(1).permutation(n)[:k]], weights, metric)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_tiny_and_huge_values(scale, dtype):
    X = random_rows(300, 5, dtype, seed=0, scale=scale)
    small = follow(X, X[:7])
    plain = KMeans(7, init=X[:7] / dtype(scale), tol=0.0, max_iter=10).fit(X / dtype(scale))
    assert (small.labels_ == plain.labels_).mean() > 0.95


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_from_the_origin(dtype):
    X = random_rows(500, 6, dtype, seed=0, offset=1e4)
    model = follow(X, X[:9])
    # The same result as around the origin, up to the rounding of the rows.
    near = X.astype(np.float64) - 1e4
    other = reference.lloyd(near, near[:9], tol=0.0, max_iter=10)
    assert model.inertia_ == pytest.approx(other.inertia, rel=1e-3 if dtype == np.float32 else 1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_duplicates_and_ties(dtype):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(400, 3)).astype(dtype)
    follow(X, X[:6])
    follow(np.repeat(X[:10], 30, axis=0), X[:5])


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_the_lowest_index_wins_a_tie(dtype):
    X = np.array([[0, 0], [2, 0], [4, 0], [1, 5], [3, 5]], dtype=dtype)
    centers = np.array([[3, 9], [1, 0], [3, 0], [1, 0]], dtype=np.float64)
    labels, sq_dists = shoal.nearest(X, centers)
    assert labels.tolist() == [1, 1, 2, 0, 0]
    assert sq_dists.tolist() == [1, 1, 1, 20, 16]
    same = np.zeros((70, 2))
    assert (shoal.nearest(X, same)[0] == 0).all()
    assert shoal.nearest(X, same, n_nearest=3)[0].tolist() == [[0, 1, 2]] * 5


def test_fewer_rows_than_clusters_are_refused():
    with pytest.raises(ValueError, match=r"n_samples=3 should be >= n_clusters=4"):
        KMeans(4).fit(np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"n_samples=3 should be >= n_clusters=4"):
        shoal.kmeans_plusplus(np.zeros((3, 2)), 4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_empty_clusters_move_to_the_farthest_rows(dtype):
    # The two farthest rows are row 6 and the first of three rows at equal distance.
    X = np.array([[0], [1], [-3], [-3], [3], [0], [9]], dtype=dtype)
    init = np.array([[0], [100], [200], [300]], dtype=dtype)
    model = KMeans(4, init=init, tol=0.0, max_iter=1).fit(X)
    assert model.cluster_centers_.ravel().tolist() == [1.0, 9.0, -3.0, -3.0]
    assert model.labels_.tolist() == [0, 0, 2, 2, 0, 0, 1]
    full = KMeans(4, init=init, tol=0.0).fit(X)
    expected = reference.lloyd(X, init, tol=0.0)
    assert (full.labels_ == expected.labels).all()
    np.testing.assert_allclose(full.cluster_centers_, expected.centers, rtol=1e-6)


def test_a_row_without_weight_does_not_move_a_cluster():
    X = np.array([[0.0], [1.0], [50.0], [7.0]])
    model = KMeans(2, init=[[0.0], [1000.0]], max_iter=1).fit(X, sample_weight=[1, 1, 0, 1])
    assert model.cluster_centers_.ravel().tolist() == [0.5, 7.0]


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("tol", [0.0, 1e-3])
@pytest.mark.parametrize("seed", range(6))
def test_whole_fits(seed, tol, metric):
    rng = np.random.default_rng(seed)
    n, d, k = int(rng.integers(50, 800)), int(rng.integers(1, 20)), int(rng.integers(1, 12))
    X = rng.normal(size=(n, d)) + (3.0 if metric == "cosine" and d == 1 else 0.0)
    weights = rng.uniform(0.5, 2.0, size=n) if seed % 2 else None
    if metric == "cosine" and d == 1:
        # All rows are one point on the unit sphere.
        X = np.abs(X) + 1.0
        k = 1
    expected = reference.lloyd(X, X[:k], weights, tol=tol, metric=metric)
    assert k == 1 or expected.least_gap > 1e-10, "another seed: this course is not determined"
    model = KMeans(k, init=X[:k], tol=tol, metric=metric).fit(X, sample_weight=weights)
    assert (model.labels_ == expected.labels).all()
    np.testing.assert_allclose(model.cluster_centers_, expected.centers, rtol=1e-9, atol=1e-12)
    assert model.n_iter_ == expected.n_iter
    assert model.stop_reason_ == expected.reason
    assert model.inertia_ == pytest.approx(expected.inertia, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cosine_is_euclidean_on_normalized_rows(dtype):
    X = random_rows(600, 12, dtype, seed=4)
    unit = reference.normalized(X).astype(dtype)
    model = KMeans(8, init=X[:8], metric="cosine", tol=0.0).fit(X)
    close = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(np.linalg.norm(model.cluster_centers_, axis=1), 1.0, rtol=close)
    # The nearest center is the center with the largest dot product.
    products = unit.astype(np.float64) @ model.cluster_centers_.astype(np.float64).T
    rows = np.arange(len(X))
    assert (products.max(axis=1) - products[rows, model.labels_] < close).all()
    # Cosine ignores the length of a row.
    lengths = np.random.default_rng(0).choice([0.25, 4.0], size=(600, 1)).astype(dtype)
    assert (KMeans(8, init=X[:8], metric="cosine", tol=0.0).fit(X * lengths).labels_ == model.labels_).all()
    np.testing.assert_allclose(
        model.transform(X),
        np.sqrt(reference.sq_dists(unit, model.cluster_centers_)),
        atol=1e-3 if dtype == np.float32 else 1e-7,
    )


def drawn(rows, k, random_state):
    return rows[random_state.permutation(len(rows))[:k]]


@pytest.mark.parametrize("init", ["random", "k-means++", drawn])
@pytest.mark.parametrize("weighted", [False, True])
def test_n_init_keeps_the_best_start(init, weighted):
    X = random_rows(400, 3, np.float64, seed=1)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=400) if weighted else None
    # Without a tolerance, the last sweep of every start measures its final inertia.
    model = KMeans(12, init=init, n_init=8, random_state=0, tol=0.0).fit(X, sample_weight=weights)
    history = model.history_
    begins = np.flatnonzero(history["n_changed"] == len(X))
    assert len(begins) == 8
    ends = history["objective"][[*(begins[1:] - 1), -1]]
    assert len(set(ends)) > 1
    assert model.inertia_ == pytest.approx(ends.min(), rel=1e-12)
    assert model.n_iter_ == np.diff([*begins, len(history)])[ends.argmin()]
    recomputed = reference.inertia(X, model.cluster_centers_, model.labels_, weights)
    assert model.inertia_ == pytest.approx(recomputed, rel=1e-12)
    single = KMeans(12, init=init, n_init=1, random_state=0, tol=0.0).fit(X, sample_weight=weights)
    assert single.inertia_ == pytest.approx(single.history_["objective"][-1], rel=1e-12)
    assert (
        history[["objective", "n_changed"]][: len(single.history_)]
        == single.history_[["objective", "n_changed"]]
    ).all()


# ---------------------------------------------------------------- storage types and layouts

AS_F32 = ["uint8", "int8", "int16", "uint16", "float16", "float32"]
AS_F64 = ["bool", "int32", "uint32", "int64", "float64"]
LAYOUTS = [
    "C",
    "Fortran",
    "rows reversed",
    "columns reversed",
    "every other row",
    "every third column",
    "transposed",
    "read-only",
    "unaligned",
    "memory map",
    "file",
]


def stored(rng, n, d, dtype):
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random((n, d)) < 0.5
    if dtype.kind == "f":
        return rng.normal(size=(n, d)).astype(dtype)
    span = np.iinfo(dtype)
    # float64 holds these values exactly.
    return rng.integers(max(span.min, -(2**52)), min(span.max, 2**52), size=(n, d), dtype=dtype)


def laid_out(X, layout, folder):
    """Yield the same values in other memory layouts, and from a file."""
    n, d = X.shape
    if layout == "Fortran":
        return np.asfortranarray(X)
    if layout == "rows reversed":
        return np.ascontiguousarray(X[::-1])[::-1]
    if layout == "columns reversed":
        return np.ascontiguousarray(X[:, ::-1])[:, ::-1]
    if layout == "every other row":
        wide = np.empty((2 * n, d), dtype=X.dtype)
        wide[::2], wide[1::2] = X, X[::-1]
        return wide[::2]
    if layout == "every third column":
        wide = np.zeros((n, 3 * d), dtype=X.dtype)
        wide[:, 1::3] = X
        return wide[:, 1::3]
    if layout == "transposed":
        return np.ascontiguousarray(X.T).T
    if layout == "read-only":
        fixed = X.copy()
        fixed.setflags(write=False)
        return fixed
    if layout == "unaligned":
        odd = np.frombuffer(bytearray(b"\0" + X.tobytes()), dtype=np.uint8)[1:]
        return odd.view(X.dtype).reshape(n, d)
    if layout in ("memory map", "file"):
        path = folder / f"{np.random.default_rng().integers(1 << 60)}.npy"
        np.save(path, X)
        return np.load(path, mmap_mode="r") if layout == "memory map" else path
    return X.copy()


def same_bits(a, b):
    assert a.cluster_centers_.dtype == b.cluster_centers_.dtype
    assert (a.cluster_centers_ == b.cluster_centers_).all()
    assert (a.labels_ == b.labels_).all()
    assert a.inertia_ == b.inertia_
    assert (a.counts_ == b.counts_).all()


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", AS_F32 + AS_F64)
def test_storage_and_layout_do_not_change_results(folder, dtype, layout):
    X = stored(np.random.default_rng(7), 150, 5, dtype)
    compute = np.float32 if dtype in AS_F32 else np.float64
    plain = KMeans(4, random_state=0, max_iter=5).fit(np.ascontiguousarray(X, dtype=compute))
    assert plain.cluster_centers_.dtype == compute
    other = laid_out(X, layout, folder)
    model = KMeans(4, random_state=0, max_iter=5).fit(other)
    same_bits(plain, model)
    assert (model.predict(other) == plain.labels_).all()
    assert (model.transform(other) == plain.transform(X.astype(compute))).all()
    assert model.score(other) == plain.score(X.astype(compute))


@settings(max_examples=80, deadline=None, derandomize=True)
@pytest.mark.filterwarnings("ignore:.* rows? of X (is|are) all zeros:UserWarning")
@given(data=st.data())
def test_any_shape_type_and_layout(folder, data):
    n, d = data.draw(st.integers(1, 300)), data.draw(st.integers(1, 40))
    k = data.draw(st.integers(1, min(n, 40)))
    dtype, layout = data.draw(st.sampled_from(AS_F32 + AS_F64)), data.draw(st.sampled_from(LAYOUTS))
    metric = data.draw(st.sampled_from(["euclidean", "cosine"]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    X = stored(rng, n, d, dtype)
    weights = rng.uniform(0.0, 2.0, size=n) + 1e-3 if data.draw(st.booleans()) else None
    compute = np.float32 if dtype in AS_F32 else np.float64
    given = {"init": X[:k].astype(compute), "n_init": 1, "max_iter": 3, "metric": metric}
    plain = KMeans(k, **given).fit(X.astype(compute), sample_weight=weights)
    model = KMeans(k, n_jobs=data.draw(st.integers(1, 3)), **given)
    model.fit(laid_out(X, layout, folder), sample_weight=weights)
    same_bits(plain, model)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_sweep(data):
    n, d = data.draw(st.integers(1, 120)), data.draw(st.integers(1, 20))
    k = data.draw(st.integers(1, min(n, 20)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    X = rng.normal(size=(n, d)) * data.draw(st.sampled_from([1e-3, 1.0, 1e6]))
    if data.draw(st.booleans()):
        X = np.round(X)
    X = X.astype(dtype)
    weights = rng.uniform(0.1, 2.0, size=n) if data.draw(st.booleans()) else None
    follow(X, X[:k], weights, max_iter=4)


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i2", "float128", "uint64"])
def test_types_that_are_converted(dtype):
    if dtype == "float128" and not hasattr(np, "float128"):
        pytest.skip("no such type here")
    X = np.random.default_rng(0).integers(0, 100, size=(80, 3)).astype(dtype)
    plain = KMeans(4, random_state=0).fit(X.astype(np.float32 if dtype in (">f4", ">i2") else np.float64))
    same_bits(plain, KMeans(4, random_state=0).fit(X))


def test_lists_and_objects_with_array_protocols():
    X = np.random.default_rng(0).normal(size=(30, 2))

    class Wrapped:
        def __array__(self, dtype=None, copy=None):
            return X if dtype is None else X.astype(dtype)

    class Exchanged:
        def __dlpack__(self, **kwargs):
            return X.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return X.__dlpack_device__()

    plain = KMeans(3, random_state=0).fit(X)
    for other in (X.tolist(), Wrapped(), Exchanged()):
        same_bits(plain, KMeans(3, random_state=0).fit(other))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "float32", "float64"])
def test_nearest_against_all_distances(dtype):
    rng = np.random.default_rng(2)
    X = stored(rng, 300, 19, dtype)
    compute = np.float64 if dtype == "float64" else np.float32
    centers = X[rng.permutation(300)[:37]].astype(compute) * compute(0.75)
    d = reference.sq_dists(X, centers)
    scale = np.square(X - X.mean(axis=0, dtype=np.float64)).sum(axis=1).max()
    for m in (1, 2, 5, 37):
        labels, sq_dists = shoal.nearest(X, centers, n_nearest=m)
        labels, sq_dists = labels.reshape(300, m), sq_dists.reshape(300, m)
        assert labels.dtype == np.int32
        assert sq_dists.dtype == np.float64
        # Distances belong to the labels exactly. Their order is correct up to rounding.
        np.testing.assert_allclose(sq_dists, np.take_along_axis(d, labels, axis=1), rtol=1e-12)
        np.testing.assert_allclose(
            sq_dists, np.sort(d, axis=1)[:, :m], atol=scale * SLACK[np.dtype(compute).name]
        )
        assert all(len(set(row)) == m for row in labels.tolist())


def test_centers_stay_exact_when_nearly_all_rows_leave():
    """A cluster far from the origin that loses nearly all of its rows keeps the exact mean of the others."""
    rng = np.random.default_rng(0)
    parts = [(0.1 * rng.random(5000)), [30000.0], np.full(1000, -5.0), np.full(500, -30.0)]
    parts += [np.full(500, -42.0), np.full(20000, -1e6)]
    X = 1e8 + np.concatenate(parts)[:, None]
    init = 1e8 + np.array([[5.0], [-10.0], [-58.0], [-1e6]])
    model = KMeans(4, init=init, n_init=1, tol=0.0).fit(X)
    assert model.stop_reason_ == "labels-stable"
    for j, center in enumerate(model.cluster_centers_[:, 0]):
        mean = np.float64(np.mean((X[model.labels_ == j, 0] - 1e8).astype(np.longdouble)))
        assert center == pytest.approx(1e8 + mean, abs=4e-8, rel=0)
    assert model.history_["objective"][-1] == pytest.approx(model.inertia_, rel=1e-11)


def test_the_objective_stays_exact_when_it_nearly_vanishes():
    X = np.concatenate([np.random.default_rng(0).random(3000), [1e9]])[:, None]
    model = KMeans(10, init=np.linspace(0.02, 0.98, 10)[:, None], n_init=1, tol=0.0)
    before = None
    for step in model.iter_fit(X):
        if before is not None:
            labels = np.abs(X - before[:, 0]).argmin(axis=1)
            assert step.objective == pytest.approx(np.square(X[:, 0] - before[labels, 0]).sum(), rel=1e-9)
        before = model.cluster_centers_.copy()
    assert model.inertia_ < 4
