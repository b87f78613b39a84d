"""The declared types of the package, checked by a type checker."""

import subprocess
import sys
from pathlib import Path

import pytest

SNIPPET = """
from pathlib import Path
from typing import assert_type

import numpy as np
import numpy.typing as npt
import shoal
from shoal import DataSource, KMeans, Step
from shoal.callbacks import Callback, Deadline
from shoal.typing import Init, Metric, RandomState, Rows

X = np.zeros((10, 2))
source = shoal.open(X)
assert_type(source, DataSource)
assert_type(source.shape, tuple[int | None, int])
model = KMeans(3, init="random", tol=0.0, callbacks=[Deadline(1.0)])
assert_type(model.fit(X), KMeans)
assert_type(model.predict(source), npt.NDArray[np.int32])
assert_type(model.labels_, npt.NDArray[np.int32])
assert_type(model.inertia_, float)
assert_type(model.n_iter_, int)
for step in model.iter_fit(source):
    assert_type(step, Step)
    assert_type(step.objective, float)
    assert_type(step.stop_reason, str | None)
labels, sq_dists = shoal.nearest(X, X[:3])
assert_type(labels, npt.NDArray[np.int32])
assert_type(sq_dists, npt.NDArray[np.float64])
assert_type(shoal.metrics.purity([0], [1]), float)


def clustered(X: Rows, init: Init, metric: Metric, random_state: RandomState) -> float:
    return KMeans(2, init=init, metric=metric, random_state=random_state).fit(X).inertia_


clustered([[0.0], [1.0]], "k-means++", "cosine", 0)
clustered("rows.npy", X[:2], "euclidean", np.random.default_rng(0))
clustered(Path("rows.npy"), lambda X, n_clusters, random_state: X[:n_clusters], "cosine", None)
clustered(lambda: (X[i : i + 2] for i in range(5)), [[0.0, 1.0], [1.0, 1.0]], "cosine", None)
clustered(source, "auto", "euclidean", np.random.RandomState(0))
shoal.MiniBatchKMeans(2).partial_fit(X[i : i + 5] for i in (0, 5))


class Mine(Callback):
    def __call__(self, estimator: KMeans, step: Step) -> bool | None:
        return step.iteration > 3
"""

WRONG = """
import shoal

shoal.KMeans(3, clusters=4)
shoal.KMeans(3).fit()
shoal.KMeans(3).predict([[0.0]]).no_such
shoal.KMeans("three")
shoal.KMeans(3, algorithm="loyd")
shoal.KMeans(3, init="kmeans++")
shoal.KMeans(3, metric="l1")
"""


def check(text, folder):
    pytest.importorskip("mypy")
    path = folder / "snippet.py"
    path.write_text(text)
    # Untyped packages that shoal imports are not checked.
    settings = folder / "mypy.ini"
    settings.write_text(
        "[mypy]\nstrict = true\nfollow_untyped_imports = false\n"
        "[mypy-sklearn.*,scipy.*]\nignore_missing_imports = true\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", settings, "--cache-dir", folder / "cache", path]
    result = subprocess.run(command, capture_output=True, check=False, cwd=folder, text=True)
    assert "crashed" not in result.stderr
    return result.returncode, result.stdout


def test_correct_code_passes(tmp_path):
    status, said = check(SNIPPET, tmp_path)
    assert status == 0, said


def test_errors_are_found(tmp_path):
    status, said = check(WRONG, tmp_path)
    assert status == 1, said
    for line in range(4, 10):
        assert f"snippet.py:{line}: error" in said


def test_the_package_is_marked_as_typed():
    import shoal

    folder = Path(shoal.__file__).parent
    assert (folder / "py.typed").exists()
    assert (folder / "_core.pyi").exists()
