"""Labels are those of squared differences in float64, and fits are bit-identical on every instruction set."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import shoal
from shoal import _core

#: Prints a checksum of the labels and centers of every data set.
FITS = """
import hashlib, sys
import numpy as np, shoal

for name, X in np.load(sys.argv[1]).items():
    k = min(128, len(X) // 4)
    found = hashlib.sha256()
    for rows in (X, np.asarray(X, np.float32)):
        kmeans = shoal.KMeans(k, init=X[:: len(X) // k][:k], max_iter=3, n_jobs=1).fit(rows)
        found.update(kmeans.labels_.tobytes() + kmeans.cluster_centers_.tobytes())
        found.update(shoal.nearest(rows, X[:k].astype(np.float32))[0].tobytes())
    print(name, found.hexdigest())
"""

#: Prints a checksum of a fit of every method and seeding.
METHODS = """
import hashlib
import numpy as np, scipy.sparse, shoal

rng = np.random.default_rng(3)
around = rng.normal(size=(30, 3, 20))

def rows(d, dtype, offset=0.0, factor=1.0):
    X = np.repeat(around.reshape(30, -1)[:, :d], 100, axis=0) + rng.normal(size=(3000, d))
    return (X * factor + offset).astype(dtype)

def show(name, model):
    found = hashlib.sha256(model.labels_.tobytes() + model.cluster_centers_.tobytes())
    print(name, found.hexdigest(), model.inertia_.hex())

for name, X in {
    "plane": rows(2, np.float32),
    "float32": rows(60, np.float32),
    "float64": rows(20, np.float64),
    "far": rows(20, np.float32, 1000.0),
    "bytes": np.clip(rows(60, np.float64, 128.0, 30.0), 0, 255).astype(np.uint8),
    "sparse": scipy.sparse.random(2000, 200, 0.05, "csr", dtype=np.float32, random_state=0),
}.items():
    init = np.asarray((X[:70].toarray() if name == "sparse" else X[:70]), np.float64)
    for algorithm in ("lloyd", "auto", "yinyang", "elkan", "hamerly", "exponion", "sketch"):
        model = shoal.KMeans(70, init=init, max_iter=8, algorithm=algorithm, n_jobs=1)
        show(f"{name} {algorithm}", model.fit(X))
    for seeding in ("k-means++", "plain-k-means++", "afk-mc2", "k-means||", "random"):
        show(f"{name} {seeding}", shoal.KMeans(40, init=seeding, max_iter=1, random_state=0, n_jobs=1).fit(X))
    for method in (shoal.MiniBatchKMeans, shoal.NestedMiniBatchKMeans, shoal.BackwardEulerKMeans):
        model = method(40, batch_size=500, max_iter=5, random_state=0, n_jobs=1)
        show(f"{name} {method.__name__}", model.fit(X))
    for method in (shoal.VarianceReducedKMeans, shoal.BreathingKMeans, shoal.HierarchicalKMeans):
        show(f"{name} {method.__name__}", method(40, max_iter=5, random_state=0, n_jobs=1).fit(X))
    model = shoal.BalancedKMeans(8, size_max=1.1, max_iter=5, random_state=0, n_jobs=1)
    show(f"{name} balanced", model.fit(X))
"""

ISAS = _core.available_isas()


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """Save a few thousand rows of every dense set in one file; return its path."""
    folder = os.environ.get("SHOAL_DATA")
    if not folder:
        pytest.skip("SHOAL_DATA names no folder of data sets")
    rows = {}
    for path in sorted(Path(folder).glob("*.npz")):
        with np.load(path) as file:
            name = next((name for name in file.files if name == "X" or name.endswith("/X")), None)
            if name is None:
                continue
            X = file[name]
        X = X[:: max(1, len(X) // 3000)][:3000]
        rows[path.stem] = X if X.dtype.kind in "uf" else X.astype(np.float32)
    assert len(rows) > 10
    path = tmp_path_factory.mktemp("sets") / "sets.npz"
    np.savez(path, **rows)
    return path


def output(code, isa, *arguments):
    """Run code in a fresh process with an instruction set; return the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)],
        env=os.environ | {"SHOAL_ISA": isa},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def fits_of_sets(sets):
    """Fits of every set with the best instruction set."""
    return output(FITS, ISAS[-1], sets)


@pytest.mark.parametrize("isa", ISAS[:-1])
def test_labels_of_every_dense_set(sets, isa, fits_of_sets):
    assert output(FITS, isa, sets) == fits_of_sets


@pytest.fixture(scope="module")
def fits_of_methods():
    """Fits of every method with the best instruction set."""
    return output(METHODS, ISAS[-1])


@pytest.mark.parametrize("isa", ISAS[:-1])
def test_fits_of_every_method(isa, fits_of_methods):
    assert len(fits_of_methods) > 100
    assert output(METHODS, isa) == fits_of_methods


def test_labels_are_the_nearest_centers(sets):
    for name, X in np.load(sets).items():
        rows = np.asarray(X, np.float32)
        centers = rows[:: max(1, len(rows) // 100)]
        found, _ = shoal.nearest(rows, centers)
        for start in range(0, len(rows), 500):
            part = rows[start : start + 500].astype(np.float64)
            sq_dists = np.stack(
                [((part - center) ** 2).sum(axis=1) for center in centers.astype(np.float64)], axis=1
            )
            labels = found[start : start + 500]
            nearest = sq_dists.min(axis=1)
            # Sums in another order differ in the last bits; equal centers have equal sums.
            ours = np.take_along_axis(sq_dists, labels[:, None], axis=1)[:, 0]
            assert (ours <= nearest * (1 + 1e-12)).all(), name
            exact = np.take_along_axis(sq_dists, sq_dists.argmin(axis=1)[:, None], axis=1)[:, 0] == ours
            assert (labels[exact] <= sq_dists.argmin(axis=1)[exact]).all(), name
