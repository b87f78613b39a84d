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


def test_correct_code_passes_and_errors_are_found(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "correct.py").write_text(SNIPPET)
    (tmp_path / "wrong.py").write_text(WRONG)
    # Untyped packages that shoal imports are not checked.
    settings = tmp_path / "mypy.ini"
    settings.write_text(
        "[mypy]\nstrict = true\nfollow_untyped_imports = false\n"
        "[mypy-sklearn.*,scipy.*]\nignore_missing_imports = true\n"
    )
    # One run for both files: reading the package takes most of the time.
    options = ["--config-file", settings, "--cache-dir", tmp_path / "cache"]
    command = [sys.executable, "-m", "mypy", *options, "correct.py", "wrong.py"]
    result = subprocess.run(command, capture_output=True, check=False, cwd=tmp_path, text=True)
    assert "crashed" not in result.stderr
    assert result.returncode == 1, result.stdout
    found = [line for line in result.stdout.splitlines() if ": error" in line]
    assert [line for line in found if not line.startswith("wrong.py:")] == []
    for line in range(4, 10):
        assert any(error.startswith(f"wrong.py:{line}: error") for error in found), line


def test_the_package_is_marked_as_typed():
    import shoal

    folder = Path(shoal.__file__).parent
    assert (folder / "py.typed").exists()
    assert (folder / "_core.pyi").exists()
