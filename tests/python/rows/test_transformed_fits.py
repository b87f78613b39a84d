"""Fits and functions take transformed rows, which stay on disk."""

import copy
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import shoal
from sklearn.decomposition import IncrementalPCA
from transformed import AXES, X, same, streams


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8"])
@pytest.mark.parametrize("kind", ["file", "stream"])
def test_a_fit_equals_the_fit_of_transformed_rows(dtype, kind, tmp_path):
    rows = np.abs(np.random.default_rng(7).normal(size=(3000, 12)) * 20).astype(dtype)
    np.save(tmp_path / "rows.npy", rows)
    axes = np.random.default_rng(8).normal(size=(5, 12))
    source = shoal.open(tmp_path / "rows.npy" if kind == "file" else streams(rows, 700))
    for transformed in (
        source.normalize(),
        source.standardize(),
        source.project(axes, mean=2),
        source.standardize().project(axes).normalize(),
    ):
        before = np.asarray(transformed)
        given = before if kind == "file" else streams(before, 700)
        methods = [shoal.KMeans(6, random_state=0), shoal.MiniBatchKMeans(6, random_state=0, max_iter=3)]
        if kind == "file":
            # Draws rows, and skips rows with bounds.
            methods += [
                shoal.NestedMiniBatchKMeans(6, random_state=0),
                shoal.KMeans(40, algorithm="elkan", random_state=0),
            ]
        for method in methods:
            expected = copy.deepcopy(method).fit(given)
            for threads in (1, 3):
                found = copy.deepcopy(method).set_params(n_jobs=threads).fit(transformed)
                same(found.cluster_centers_, expected.cluster_centers_)
                same(found.labels_, expected.labels_)
        same(expected.predict(transformed), expected.predict(before))
    points = shoal.lightweight_coreset(transformed, 50, random_state=0)
    same(points.points, shoal.lightweight_coreset(given, 50, random_state=0).points)


def test_measured_values_do_not_depend_on_threads_or_storage(tmp_path):
    rows = np.random.default_rng(9).normal(size=(50_000, 3)).astype("f4")
    np.save(tmp_path / "rows.npy", rows)
    found = []
    for threads in (1, 3):
        with shoal.config_context(n_threads=threads):
            found += [
                shoal.open(given).standardize() for given in (rows, tmp_path / "rows.npy", streams(rows, 999))
            ]
    for other in found[1:]:
        same(other.mean_, found[0].mean_)
        same(other.scale_, found[0].scale_)


def test_functions_take_transformed_rows(tmp_path):
    source = shoal.open(X).standardize().project(AXES)
    rows = np.asarray(source)
    same(
        shoal.kmeans_plusplus(source, 5, random_state=0)[0], shoal.kmeans_plusplus(rows, 5, random_state=0)[0]
    )
    same(shoal.afkmc2(source, 5, random_state=0)[0], shoal.afkmc2(rows, 5, random_state=0)[0])
    same(shoal.nearest(source, rows[:5])[0], shoal.nearest(rows, rows[:5])[0])
    same(shoal.knn_graph(source, 3).data, shoal.knn_graph(rows, 3).data)
    written = shoal.write(source.blocks(100), tmp_path / "rows.npy")
    same(np.asarray(written), rows)
    same(
        np.asarray(shoal.shuffle(source, tmp_path / "a.npy", random_state=0)),
        np.asarray(shoal.shuffle(rows, tmp_path / "b.npy", random_state=0)),
    )
    # A checkpoint recognizes the rows.
    half = shoal.KMeans(
        6, random_state=0, callbacks=[shoal.callbacks.Checkpoint(tmp_path / "c.safetensors", every_steps=1)]
    )
    for step in half.iter_fit(source):
        if step.iteration == 2:
            break
    resumed = shoal.resume(tmp_path / "c.safetensors", shoal.open(X).standardize().project(AXES))
    same(resumed.cluster_centers_, shoal.KMeans(6, random_state=0).fit(rows).cluster_centers_)
    with pytest.raises(ValueError, match="X or sample_weight does not match the checkpoint"):
        shoal.resume(tmp_path / "c.safetensors", shoal.open(X).project(AXES))


def test_rows_on_disk_stay_there(tmp_path):
    code = f"""
        import resource, numpy as np, shoal
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        rows = np.lib.format.open_memmap({str(tmp_path / "rows.npy")!r}, "w+", "float16", (2_000_000, 64))
        rows[::1000] = np.arange(64)
        del rows
        shoal.KMeans(2, max_iter=1).fit(np.eye(2))
        before = peak()
        source = shoal.open({str(tmp_path / "rows.npy")!r})
        axes = np.eye(64)[:16]
        standard = source.standardize()
        shoal.MiniBatchKMeans(4, random_state=0, max_iter=1).fit(standard.project(axes).normalize())
        shoal.MiniBatchKMeans(4, random_state=0, max_iter=1).fit(source.map(lambda b: b[:, :4].astype("f4")))
        sums = sum(float(block.sum()) for block in standard.project(axes).blocks())
        # Pages of the mapped file count as resident, so the file alone is what a plain pass adds.
        print(peak() - before, standard.mean_[63] > 0)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    grown, found = done.stdout.split()
    assert found == "True"
    # 244 MiB of mapped pages; the rows as float32 would take 488 MiB more.
    assert int(grown) < 244 + 150, grown


def test_the_recipe_for_principal_components():
    source = shoal.open(streams(X, 100))
    pca = IncrementalPCA(3)
    for block in source.blocks(350):
        pca.partial_fit(block)
    projected = source.project(pca.components_, mean=pca.mean_)
    np.testing.assert_allclose(np.asarray(projected), pca.transform(X), rtol=1e-9, atol=1e-9)
