"""Duplicates against brute force, and the ways to call the search."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import shoal
from scipy import sparse
from shoal import cli
from shoal._curation import duplicates
from shoal.curation import deduplicate


def near_copies(n: int = 3000, d: int = 12, seed: int = 0) -> np.ndarray:
    """Draw rows of which a third are near-copies of earlier rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    copies = rng.choice(n, n // 3, replace=False)
    X[copies] = X[rng.integers(0, n, len(copies))] + 0.05 * rng.normal(size=(len(copies), d))
    return X.astype(np.float32)


def distances(X: np.ndarray, metric: str) -> np.ndarray:
    """Measure all pairs of rows, in float64."""
    if metric == "cosine":
        unit = X.astype(np.float64)
        unit = (unit / np.linalg.norm(unit, axis=1, keepdims=True)).astype(X.dtype).astype(np.float64)
        return ((unit[:, None] - unit[None]) ** 2).sum(axis=2) / 2
    X = X.astype(np.float64)
    return np.sqrt(((X[:, None] - X[None]) ** 2).sum(axis=2))


def leaders(near: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Keep rows in this order unless they are near a kept row; return the first kept row of every row."""
    kept: list[int] = []
    groups = np.arange(len(near))
    for row in order:
        found = [k for k in kept if near[row, k]]
        if found:
            groups[row] = found[0]
        else:
            kept.append(row)
    return groups


@pytest.mark.parametrize(("metric", "threshold"), [("cosine", 0.01), ("euclidean", 0.4)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_pairs_and_groups_are_those_of_brute_force(metric: str, threshold: float, dtype: type) -> None:
    X = near_copies(800).astype(dtype)
    compute = np.float64 if dtype is np.float64 else np.float32
    near = distances(X.astype(compute), metric) <= threshold
    found = deduplicate(X, threshold, metric=metric, n_clusters=40, random_state=0)
    assert found.n_pairs_ == np.triu(near, 1).sum() > 100
    np.testing.assert_array_equal(found.groups_, leaders(near, np.arange(len(X))))
    np.testing.assert_array_equal(found.keep_, found.groups_ == np.arange(len(X)))
    assert found.recall_ == 1.0
    np.testing.assert_array_equal(found.weights_, np.bincount(found.groups_)[found.keep_])


def test_kept_rows_of_the_linkages_are_nested() -> None:
    X = near_copies(d=3)
    kept = {
        linkage: deduplicate(X, 0.002, linkage=linkage, random_state=0).keep_
        for linkage in ("components", "semdedup", "leader")
    }
    assert not (kept["components"] & ~kept["semdedup"]).any()
    assert not (kept["semdedup"] & ~kept["leader"]).any()
    assert kept["components"].sum() < kept["leader"].sum()


def test_the_result_does_not_depend_on_cells_threads_storage_or_memory(tmp_path) -> None:
    X = near_copies(5000)
    expected = deduplicate(X, 0.01, n_clusters=1, n_jobs=1)
    np.save(tmp_path / "rows.npy", X)
    blocks = lambda: iter(np.array_split(X, 7))  # noqa: E731 - a callable that returns blocks
    for rows, options in [
        (X, {"n_clusters": 90, "n_jobs": 3}),
        (tmp_path / "rows.npy", {}),
        (np.load(tmp_path / "rows.npy", mmap_mode="r"), {"memory": 1000, "n_clusters": 30}),
        (sparse.csr_matrix(X), {}),
        (blocks, {}),
    ]:
        found = deduplicate(rows, 0.01, random_state=1, **options)
        np.testing.assert_array_equal(found.groups_, expected.groups_)
        assert found.n_pairs_ == expected.n_pairs_ > 100


def test_rows_near_the_center_are_kept_first() -> None:
    X = near_copies(900)
    near = distances(X, "euclidean") <= 0.4
    center = X.astype(np.float64).mean(axis=0).astype(np.float32)
    far = np.linalg.norm(X.astype(np.float64) - center, axis=1)
    for keep, sign in (("nearest-to-center", 1), ("farthest-from-center", -1)):
        found = deduplicate(X, 0.4, metric="euclidean", keep=keep, n_clusters=1, memory="1GB")
        np.testing.assert_array_equal(found.groups_, leaders(near, np.argsort(sign * far, kind="stable")))


def test_searches_within_cells_miss_pairs_and_say_so() -> None:
    X = near_copies(6000, d=6)
    everything = deduplicate(X, 0.01, random_state=0, n_clusters=200)
    within = deduplicate(X, 0.01, random_state=0, n_clusters=200, exact=False, n_probes=1, linkage="semdedup")
    near = deduplicate(X, 0.01, random_state=0, n_clusters=200, exact=False)
    assert within.n_pairs_ < near.n_pairs_ <= everything.n_pairs_
    assert within.recall_ < near.recall_ <= 1.0
    assert abs(within.recall_ - within.n_pairs_ / everything.n_pairs_) < 0.1


def test_a_search_goes_on_from_its_checkpoint(tmp_path, monkeypatch) -> None:
    X = near_copies(6000)
    expected = deduplicate(X, 0.01, n_clusters=60, random_state=0)
    monkeypatch.setattr(duplicates, "CHECKPOINT_PAUSE", 0.0)
    file, written = tmp_path / "search.safetensors", []

    class Stopping:
        """A search that ends after a checkpoint, as a killed process would."""

        def __init__(self, *args: object, **options: object) -> None:
            self._search = search(*args, **options)

        def __getattr__(self, name: str) -> object:
            return getattr(self._search, name)

        def write(self, path: str) -> None:
            self._search.write(path)
            written.append(path)
            raise KeyboardInterrupt

    search = duplicates._core.DuplicateSearch
    monkeypatch.setattr(duplicates._core, "DuplicateSearch", Stopping)
    for rounds in range(1, 100):
        try:
            found = deduplicate(X, 0.01, n_clusters=60, random_state=rounds, memory=20_000, checkpoint=file)
        except KeyboardInterrupt:
            assert file.exists()
            continue
        break
    assert len(written) > 2
    np.testing.assert_array_equal(found.groups_, expected.groups_)
    assert found.n_pairs_ == expected.n_pairs_
    assert not file.exists()


def test_the_checkpoint_of_another_search_is_refused(tmp_path) -> None:
    file = tmp_path / "model.safetensors"
    shoal.KMeans(2, random_state=0).fit(near_copies(100)).save(file)
    before = file.read_bytes()
    with pytest.raises(ValueError, match="the checkpoint cannot be used: "):
        deduplicate(near_copies(100), 0.01, checkpoint=file)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"linkage": "semdedup"}, "of a search with .*linkage=semdedup.*, got .*linkage=leader"),
        ({"sample_weight": np.arange(1.0, 901.0)}, "of a search among these rows, got other rows or weights"),
    ],
)
def test_a_checkpoint_belongs_to_rows_and_parameters(tmp_path, monkeypatch, change, message) -> None:
    X, file = near_copies(900), tmp_path / "search.safetensors"

    class Interrupted:
        """A search that Ctrl-C ends in its first step."""

        def __init__(self, *args: object, **options: object) -> None:
            self._search = search(*args, **options)

        def __getattr__(self, name: str) -> object:
            return getattr(self._search, name)

        def advance(self, *args: object) -> bool:
            raise KeyboardInterrupt

    search = duplicates._core.DuplicateSearch
    with monkeypatch.context() as patched:
        patched.setattr(duplicates._core, "DuplicateSearch", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            deduplicate(X, 0.01, checkpoint=file)
    with pytest.raises(ValueError, match=message):
        deduplicate(X, 0.01, checkpoint=file, **change)
    deduplicate(X, 0.01, checkpoint=file)
    assert not file.exists()


def test_rows_without_weight_are_kept_last() -> None:
    X = np.array([[0.0], [0.0], [5.0], [5.1]])
    found = deduplicate(X, 0.2, metric="euclidean", sample_weight=[0.0, 2.0, 3.0, 0.5])
    assert found.groups_.tolist() == [1, 1, 2, 2]
    assert found.weights_.tolist() == [2.0, 3.5]


def test_rows_of_zeros_have_no_duplicates() -> None:
    found = deduplicate(np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]), 0.5)
    assert found.groups_.tolist() == [0, 1, 2, 2]


def test_the_mask_is_written(tmp_path) -> None:
    X = near_copies(500)
    found = deduplicate(X, 0.01, out=tmp_path / "keep.npy")
    written = np.load(tmp_path / "keep.npy")
    assert written.dtype == np.bool_
    np.testing.assert_array_equal(written, found.keep_)
    with pytest.raises(ValueError, match=r"out must be a file that ends in .npy"):
        deduplicate(X, 0.01, out=tmp_path / "keep.csv")


def test_the_table_lists_removed_rows() -> None:
    pytest.importorskip("pandas")
    found = deduplicate(np.array([[1.0, 0], [0, 1], [2, 0]]), 0.0)
    assert found.to_frame().to_dict("list") == {"row": [2], "representative": [0]}
    assert "2 of 3 rows are kept, 1 pairs" in repr(found)


def test_progress_is_shown(capsys) -> None:
    deduplicate(near_copies(500), 0.01, verbose=1)
    assert "0% of about 100.00% of all pairs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": -0.1}, "threshold must be a finite number of at least 0, got -0.1"),
        ({"metric": "manhattan"}, "metric must be one of euclidean, cosine"),
        ({"keep": "last"}, "keep must be one of first, nearest-to-center, farthest-from-center, got 'last'"),
        ({"linkage": "single"}, "linkage must be one of leader, components, semdedup"),
        ({"n_clusters": 0}, "n_clusters must be 'auto' or an integer of at least 1, got 0"),
        ({"n_clusters": 301}, "n_clusters must be at most the number of rows, 300, got 301"),
        ({"exact": 1}, "exact must be True or False, got 1"),
        ({"n_probes": 0}, "n_probes must be an integer of at least 1, got 0"),
        ({"memory": "much"}, "memory must be an amount of memory"),
    ],
)
def test_bad_parameters_are_named(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        deduplicate(near_copies(300), **{"threshold": 0.1, **options})


def test_bad_values_are_named() -> None:
    X = near_copies(300)
    X[7, 3] = np.nan
    with pytest.raises(ValueError, match="got NaN at row 7, column 3"):
        deduplicate(X, 0.1)
    with pytest.raises(ValueError, match="iterator"):
        deduplicate(iter([X]), 0.1)


def test_the_module_is_loaded_on_access() -> None:
    # The program asserts: a failed one raises `CalledProcessError`.
    code = "import sys, shoal; assert 'shoal.curation' not in sys.modules; shoal.curation.deduplicate"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_chain_keeps_a_row_without_weight_if_no_kept_row_is_near() -> None:
    found = deduplicate([[0.0], [0.9], [1.8]], 1.0, metric="euclidean", sample_weight=[1, 1, 0])
    assert found.keep_.tolist() == [True, False, True]


def test_parallel_rows_are_found_with_a_small_threshold() -> None:
    X = np.arange(1, 9)[:, None] * np.array([1.0, 2.0, 5.0])
    assert deduplicate(X, 1e-6).groups_.tolist() == [0] * 8


@pytest.mark.parametrize("options", [{"keep": "nearest-to-center"}, {"exact": False}])
def test_results_do_not_depend_on_the_number_of_threads(options: dict) -> None:
    X = near_copies(6000)
    one, three = (deduplicate(X, 0.01, random_state=0, n_jobs=jobs, **options) for jobs in (1, 3))
    np.testing.assert_array_equal(one.groups_, three.groups_)
    assert one.n_pairs_ == three.n_pairs_


def test_the_command_writes_what_the_function_finds(tmp_path) -> None:
    X = near_copies(5000)
    np.save(tmp_path / "rows.npy", X)
    command = (
        f"dedup {tmp_path}/rows.npy -t 0.01 -o {tmp_path}/keep.npy --groups {tmp_path}/groups.npy --quiet"
    )
    assert cli.main([*command.split(), "--checkpoint", f"{tmp_path}/c.safetensors"]) == 0
    found = deduplicate(X, 0.01, random_state=0)
    np.testing.assert_array_equal(np.load(tmp_path / "keep.npy"), found.keep_)
    np.testing.assert_array_equal(np.load(tmp_path / "groups.npy"), found.groups_)
    assert not (tmp_path / "c.safetensors").exists()


def test_a_choice_that_begins_as_given_is_suggested():
    with pytest.raises(ValueError, match="Did you mean 'farthest-from-center'"):
        deduplicate(np.zeros((9, 2)), 0.01, keep="farthest")
