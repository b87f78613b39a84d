"""The same labels as scikit-learn after every sweep, on real and synthetic rows."""

import warnings

import numpy as np
import pytest
import reference
import sklearn.cluster
import sklearn.datasets
from shoal import KMeans
from sklearn.exceptions import ConvergenceWarning

SWEEPS = 8
#: Rows whose two best distances differ relatively by less than this are ties.
NEAR_TIE = 1e-9


def z_scored(X):
    X = X.astype(np.float64)
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def sklearn_blobs(n, d, k, spread, seed):
    return sklearn.datasets.make_blobs(n, d, centers=k, cluster_std=spread, random_state=seed)[0]


def anisotropic(seed):
    rng = np.random.default_rng(seed)
    return sklearn_blobs(2000, 6, 5, 1.0, seed) @ rng.normal(size=(6, 6))


def heavy_tailed(seed):
    return np.random.default_rng(seed).standard_t(2.0, size=(3000, 5))


def offset(seed):
    return np.random.default_rng(seed).normal(size=(3000, 8)) + 1e4


def integer_grid(seed):
    return np.random.default_rng(seed).integers(0, 6, size=(3000, 3))


def many_duplicates(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(40, 4))[rng.integers(0, 40, size=3000)]


#: Data sets without files: generated, or part of scikit-learn. Name, rows, clusters.
AT_HAND = {
    "blobs": (lambda: sklearn_blobs(3000, 10, 12, 3.0, 0), 12),
    "one column": (lambda: np.random.default_rng(1).normal(size=(2000, 1)), 9),
    "wide": (lambda: np.random.default_rng(2).normal(size=(600, 300)), 10),
    "anisotropic": (lambda: anisotropic(3), 9),
    "heavy tails": (lambda: heavy_tailed(4), 20),
    "far from the origin": (lambda: offset(5), 16),
    "small integers": (lambda: integer_grid(6), 15),
    "duplicates": (lambda: many_duplicates(7), 12),
    "moons": (lambda: sklearn.datasets.make_moons(2000, noise=0.1, random_state=8)[0], 7),
    "as many clusters as rows": (lambda: np.random.default_rng(9).normal(size=(60, 3)), 60),
    "iris": (lambda: sklearn.datasets.load_iris().data, 6),
    "wine": (lambda: sklearn.datasets.load_wine().data, 5),
    "breast cancer": (lambda: sklearn.datasets.load_breast_cancer().data, 8),
    "digits": (lambda: sklearn.datasets.load_digits().data, 20),
}

#: Data sets in $SHOAL_DATA: file, member, clusters, maximum number of rows, preparation.
REAL = {
    "letter": ("letter_20k", None, 26, 20_000, None),
    "s1": ("gagolews_a", "sipu/s1", 15, None, None),
    "s4": ("gagolews_a", "sipu/s4", 15, None, None),
    "a3": ("gagolews_a", "sipu/a3", 50, None, None),
    "d31": ("gagolews_a", "sipu/d31", 31, None, None),
    "unbalance": ("gagolews_a", "sipu/unbalance", 8, None, None),
    "birch1": ("gagolews_a", "sipu/birch1", 40, 10_000, None),
    "worms_2": ("gagolews_a", "sipu/worms_2", 35, 10_000, None),
    "u1060": ("tsplib_a", "u1060", 20, None, None),
    "pcb3038": ("tsplib_a", "pcb3038", 25, None, None),
    "d15112": ("tsplib_a", "d15112", 25, 10_000, None),
    "usps": ("usps_11k", None, 10, 4_000, None),
    "aloi": ("aloi_27d_50k", None, 30, 10_000, None),
    "campaign": ("campaign_41k", None, 10, 8_000, None),
    "shuttle": ("shuttle_49k", None, 7, 10_000, None),
    "skin": ("skin_245k", None, 20, 10_000, None),
    "cover": ("cover_286k", None, 30, 10_000, None),
    "http": ("http_567k", None, 10, 10_000, None),
    "wordvec": ("wordvec_ppmi_svd100", None, 30, 6_000, None),
    "resnet18": ("resnet18_cifar_16k", None, 10, 2_000, None),
    "uk_accidents": ("uk_accidents_lnglat_140k", None, 50, 10_000, None),
    "kddcup99": ("kddcup99_10pct_494k", None, 23, 10_000, z_scored),
}


def some_rows(X, most):
    if most is None or len(X) <= most:
        return X
    return X[np.sort(np.random.default_rng(0).choice(len(X), most, replace=False))]


def first_centers(X, k):
    """Draw distinct rows."""
    rows = np.unique(X, axis=0)
    return rows[np.random.default_rng(1).permutation(len(rows))[:k]]


def theirs(X, centers, sweeps):
    """Run scikit-learn for a number of sweeps."""
    model = sklearn.cluster.KMeans(len(centers), init=centers, n_init=1, max_iter=sweeps, tol=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X)


def agree(X, k):
    """Compare all sweeps; return the result of shoal, and the number of sweeps before the first tie.

    Until a row is nearly tied, both libraries have the same labels. A tie can be broken differently, because
    scikit-learn subtracts the mean of the rows first. After a tie, each sweep of scikit-learn starts from the
    centers of shoal.
    """
    X = np.ascontiguousarray(X, dtype=np.float64)
    centers = first_centers(X, k)
    model = KMeans(k, init=centers, n_init=1, max_iter=SWEEPS, tol=0.0, n_jobs=2)
    single = sklearn.cluster.KMeans(k, init=centers, n_init=1, max_iter=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        single.fit(X[:k])
    together, start = 0, centers
    tied_before = reference.nearest(X, start)[2] < NEAR_TIE
    steps = 0
    for step in model.iter_fit(X):
        steps += 1
        before = reference.nearest(X, start)[0]
        labels = model.labels_
        mine, _, gap = reference.nearest(X, model.cluster_centers_)
        tied = gap < NEAR_TIE
        assert (labels == mine)[~tied].all(), f"sweep {step.iteration}: against float64 distances"
        # The same centers, labeled by scikit-learn.
        single.cluster_centers_ = model.cluster_centers_.copy()
        assert (single.predict(X) == labels)[~tied].all(), f"sweep {step.iteration}: the same centers"
        # One sweep from the same centers, compared on clusters that no nearly tied row could join or leave.
        if not tied_before.any():
            moved = theirs(X, start, 1).cluster_centers_
            np.testing.assert_allclose(
                moved, model.cluster_centers_, rtol=1e-9, atol=1e-9 * np.abs(X).max(), err_msg=str(step)
            )
        else:
            d = reference.sq_dists(X[tied_before], start)
            near = d <= d.min(axis=1, keepdims=True) * (1 + 10 * NEAR_TIE)
            settled = ~near.any(axis=0)
            if (np.bincount(before, minlength=k) > 0).all():
                moved = theirs(X, start, 1).cluster_centers_
                np.testing.assert_allclose(
                    moved[settled],
                    model.cluster_centers_[settled],
                    rtol=1e-9,
                    atol=1e-9 * np.abs(X).max(),
                    err_msg=str(step),
                )
        if together == step.iteration - 1 and not tied_before.any():
            whole = theirs(X, centers, step.iteration)
            assert (whole.labels_ == labels)[~tied].all(), f"sweep {step.iteration}: the whole course"
            together = step.iteration
        start, tied_before = model.cluster_centers_.copy(), tied
    assert steps == len(model.history_)
    recomputed = reference.inertia(X, model.cluster_centers_, model.labels_)
    assert model.inertia_ == pytest.approx(recomputed, rel=1e-12, abs=0)
    return model, together


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", AT_HAND)
def test_labels_at_every_sweep(name):
    make, k = AT_HAND[name]
    _, together = agree(make(), k)
    if name not in ("small integers", "iris", "wine", "digits"):
        assert together >= 1, "no sweep of the whole course was compared"


@pytest.mark.parametrize("name", REAL)
def test_labels_at_every_sweep_on_real_rows(shoal_data, name):
    file, member, k, most, prepare = REAL[name]
    X = shoal_data(file, member)
    agree(some_rows(X if prepare is None else prepare(X), most), k)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("name", ["blobs", "far from the origin", "heavy tails", "digits", "wide"])
def test_inertia_is_that_of_labels_and_centers(name, dtype):
    make, k = AT_HAND[name]
    X = make()
    if dtype == np.uint8:
        X = np.clip(X - X.min(), 0, 255)
    X = X.astype(dtype)
    weights = np.random.default_rng(0).uniform(0.1, 3.0, size=len(X))
    for given in (None, weights):
        for max_iter in (1, 3, 300):
            model = KMeans(k, random_state=0, max_iter=max_iter).fit(X, sample_weight=given)
            recomputed = reference.inertia(X, model.cluster_centers_, model.labels_, given)
            assert model.inertia_ == pytest.approx(recomputed, rel=1e-12, abs=0)
            assert (model.predict(X) == model.labels_).all()


def test_stop_sweep_and_reason_are_those_of_scikit_learn():
    """The number of sweeps and the reason to stop: unchanged labels, or the tolerance."""
    X = np.random.default_rng(0).normal(size=(3000, 5))
    init = X[:12]
    for tol in (0.0, 1e-4, 1e-2):
        mine = KMeans(12, init=init, tol=tol).fit(X)
        other = sklearn.cluster.KMeans(12, init=init, n_init=1, tol=tol).fit(X)
        assert mine.n_iter_ == other.n_iter_
        assert mine.stop_reason_ == ("tolerance" if tol else "labels-stable")
        assert (mine.labels_ == other.labels_).all()
        assert mine.inertia_ == pytest.approx(other.inertia_, rel=1e-9)


def test_weights_as_in_scikit_learn():
    X = sklearn_blobs(2000, 4, 8, 3.0, 1)
    weights = np.random.default_rng(0).uniform(0.0, 2.0, size=2000)
    weights[::7] = 0.0
    mine = KMeans(8, init=X[1:9], tol=0.0).fit(X, sample_weight=weights)
    other = sklearn.cluster.KMeans(8, init=X[1:9], n_init=1, tol=0.0).fit(X, sample_weight=weights)
    assert (mine.labels_ == other.labels_).all()
    assert mine.n_iter_ == other.n_iter_
    np.testing.assert_allclose(mine.cluster_centers_, other.cluster_centers_, rtol=1e-9)


def test_empty_clusters_as_in_scikit_learn():
    X = sklearn_blobs(500, 3, 4, 1.0, 2)
    # No row is nearest to the last three centers.
    init = np.concatenate([X[:4], np.full((3, 3), 1e3) + np.arange(3)[:, None]])
    for max_iter in range(1, 6):
        mine = KMeans(7, init=init, tol=0.0, max_iter=max_iter).fit(X)
        other = theirs(X, init, max_iter)
        assert (mine.labels_ == other.labels_).all()
        np.testing.assert_allclose(mine.cluster_centers_, other.cluster_centers_, rtol=1e-9, atol=1e-9)
    assert (mine.counts_ > 0).all()
