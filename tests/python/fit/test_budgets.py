"""Memory budgets that are not parameters, and the space of temporary copies."""

from __future__ import annotations

import errno
import inspect
import os
import shutil
import tempfile
from types import SimpleNamespace

import numpy as np
import pytest
import shoal
from shoal._checks import params

RNG = np.random.default_rng(0)
X = (RNG.normal(size=(3000, 30)) + 9 * RNG.normal(size=(80, 30))[RNG.integers(0, 80, 3000)]).astype("float32")


def blocks():
    """Yield the rows as a stream of unknown length."""
    yield X[:2000]
    yield X[2000:]


def table(folder):
    """Write the rows to a Parquet file, a stream of known length."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = folder / "rows.parquet"
    parquet.write_table(arrow.table({f"x{i}": X[:, i] for i in range(X.shape[1])}), path)
    return path


COPYING = {
    "knn_graph": lambda rows: shoal.knn_graph(rows, 2),
    "LaplacianKModes": lambda rows: shoal.LaplacianKModes(3, init="k-means++", random_state=0).fit(rows),
}


@pytest.mark.parametrize("copying", COPYING)
def test_the_space_of_a_copy_is_checked_first(copying, monkeypatch, tmp_path):
    path = table(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=X.nbytes - 1))
    expected = rf"needs {X.nbytes} bytes, {X.nbytes - 1} bytes are free\. {copying} copies.*set TMPDIR"
    with pytest.raises(OSError, match=expected) as refused:
        COPYING[copying](path)
    assert refused.value.errno == errno.ENOSPC
    assert refused.value.filename == str(tmp_path)


def test_an_error_of_a_copy_names_the_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def full(rows, out, *, in_order):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(out))

    monkeypatch.setattr("shoal._rows.spool.write_blocks", full)
    with pytest.raises(OSError, match=r"knn_graph copies a stream .* set TMPDIR") as refused:
        COPYING["knn_graph"](blocks)
    assert refused.value.filename == str(tmp_path)
    # Nothing is left, and errors of the stream itself stay as they are.
    assert not list(tmp_path.rglob("*.npy"))

    def broken(rows, out, *, in_order):
        raise FileNotFoundError(errno.ENOENT, "gone", "/of/the/stream")

    monkeypatch.setattr("shoal._rows.spool.write_blocks", broken)
    with pytest.raises(FileNotFoundError, match="gone") as refused:
        COPYING["knn_graph"](blocks)
    assert refused.value.filename == "/of/the/stream"


@pytest.mark.parametrize(
    "model",
    [
        shoal.VarianceReducedKMeans(64, max_iter=6, random_state=0),
        shoal.BackwardEulerKMeans(64, init="random", batch_size=500, max_iter=2, polish=True, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_budget_for_all_limits_bounds_without_a_parameter(model):
    free = model.fit(X)
    centers, distances = free.cluster_centers_, free.history_["n_distances"].sum()
    with shoal.config_context(memory=1000):
        bound = model.fit(X)
    np.testing.assert_array_equal(bound.cluster_centers_, centers)
    # Without room for bounds, other distances are computed.
    assert bound.history_["n_distances"].sum() != distances


def test_all_budgets_have_one_default():
    for function in (shoal.shuffle, shoal.write_partitions, shoal.KMeans, shoal.HierarchicalKMeans):
        given = inspect.signature(function).parameters
        names = {"memory_limit", "memory"} & {name for name in given if given[name].default != "deprecated"}
        assert names
        default = "auto" if function is shoal.KMeans else "1GB"
        assert {given[name].default for name in names} == {default}


def test_an_automatic_budget_is_that_of_the_context():
    assert params.for_run("memory", "auto", auto=True) is None
    with shoal.config_context(memory="5MB"):
        assert params.for_run("memory", "auto", auto=True) == 5_000_000
    with pytest.raises(ValueError, match=r"memory must be 'auto' or an amount of memory such as '1GB'"):
        shoal.KMeans(2, memory="atuo").fit(X)
