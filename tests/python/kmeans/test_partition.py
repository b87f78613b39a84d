"""Partitions that grow: updates against a slow reference, the duties of `fetch`, files and errors."""

import pickle
import warnings

import numpy as np
import pytest
import shoal
from partition_reference import ReferencePartition
from shoal import HierarchicalKMeans
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

# A new fit would be better for some of these rows, which drift fast.
pytestmark = pytest.mark.filterwarnings("ignore:The inertia per row:RuntimeWarning")


def some(seed, n, at=0.0, d=5):
    """Rows around nine points, which move with `at`."""
    rng = np.random.default_rng(seed)
    points = np.random.default_rng(1).normal(size=(9, d)) * 2 + at
    return points[rng.integers(0, 9, size=n)] + rng.normal(size=(n, d))


class Database:
    """Rows with keys and cells, and the calls of `fetch`."""

    def __init__(self, rows, cells):
        self.rows, self.cells = rows, np.array(cells, dtype=np.int64)
        self.keys = np.array([f"row {i}" for i in range(len(rows))])
        self.calls = []

    def fetch(self, ids):
        self.calls.append(ids.tolist())
        found = np.flatnonzero(np.isin(self.cells, ids))
        return self.keys[found], self.cells[found], self.rows[found]

    def asked(self):
        return [i for ids in self.calls for i in ids]

    def write(self, new, change):
        self.rows = np.concatenate([self.rows, new])
        places = {key: place for place, key in enumerate(self.keys.tolist())}
        for key, was, now in change.moved.tolist():
            assert self.cells[places[key]] == was
            self.cells[places[key]] = now
        self.cells = np.concatenate([self.cells, change.labels])
        more = [f"row {i}" for i in range(len(self.keys), len(self.rows))]
        self.keys = np.concatenate([self.keys, more])
        self.calls = []


def begun(n=900, k=30, seed=0, dtype=np.float64, **params):
    rows = some(seed, n).astype(dtype)
    model = HierarchicalKMeans(k, random_state=seed, **params).fit(rows)
    return model, Database(rows, model.labels_)


@pytest.mark.parametrize("seed", range(4))
def test_updates_match_the_reference(seed):
    model, database = begun(seed=seed, n=700, k=(20, 40, 60, 30)[seed])
    target = round(700 / model.n_clusters)
    expected = ReferencePartition(model.cluster_centers_, model.counts_, target)
    for batch in range(4):
        new = some(10 * seed + batch, 120, at=0.7 * batch)
        before, centers = model.cell_ids_, model.cluster_centers_
        labels, moved, asked = expected.update(
            new, lambda ids: [part.tolist() for part in database.fetch(ids)]
        )
        database.calls = []
        change = model.update(new, fetch=database.fetch)
        assert change.labels.tolist() == labels
        assert {key: (was, now) for key, was, now in change.moved.tolist()} == moved
        assert sorted(database.asked()) == sorted(asked)
        assert model.cell_ids_.tolist() == sorted(expected.centers)
        assert model.counts_.tolist() == [expected.sizes[i] for i in sorted(expected.sizes)]
        np.testing.assert_allclose(model.cluster_centers_, [expected.centers[i] for i in model.cell_ids_])
        drift = [np.linalg.norm(expected.shifts[i]) / max(expected.sizes[i], 1) for i in model.cell_ids_]
        np.testing.assert_allclose(model.drift_, drift, atol=1e-12)
        assert set(change.new_ids) == set(model.cell_ids_) - set(before)
        assert set(change.split_ids) | set(change.joined_ids) == set(before) - set(model.cell_ids_)
        same = np.intersect1d(before, model.cell_ids_)
        was, now = (
            centers[np.searchsorted(before, same)],
            model.cluster_centers_[model._known_cells().ids.searchsorted(same)],
        )
        assert set(same[(was != now).any(axis=1)]) == set(change.recentered_ids)
        database.write(new, change)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_every_row_is_in_one_cell_within_the_limit(metric):
    model, database = begun(n=3000, k=60, dtype=np.float32, metric=metric)
    n_moved = 0
    for batch in range(6):
        new = some(batch, 300, at=0.5 * batch).astype(np.float32)
        k = len(model.cell_ids_)
        change = model.update(new, fetch=database.fetch)
        asked = database.asked()
        assert len(set(asked)) == len(asked) < k
        database.write(new, change)
        assert change.n_fetched >= len(change.moved)
        n_moved += len(change.moved)
        assert (
            np.bincount(database.cells, minlength=model.cell_ids_[-1] + 1)[model.cell_ids_].tolist()
            == model.counts_.tolist()
        )
        assert model.counts_.max() <= 100
        near = model.cell_ids_[model.predict(database.rows)] == database.cells
        assert near.mean() > 0.9
    assert n_moved > 0
    distances = model.transform(database.rows)[
        np.arange(len(database.rows)), model.cell_ids_.searchsorted(database.cells)
    ]
    assert model.inertia_ == pytest.approx((distances.astype(float) ** 2).sum(), rel=1e-5)


def test_files_and_pickles_between_updates_change_nothing(tmp_path):
    model, database = begun(dtype=np.float32)
    other = shoal.load(_saved(model, tmp_path))
    for batch in range(3):
        new = some(batch, 200, at=1.0).astype(np.float32)
        # A loaded model continues as the fitted one.
        changes = [part.update(new, fetch=database.fetch) for part in (model, other)]
        for name in ("labels", "new_ids", "split_ids", "joined_ids", "recentered_ids", "moved"):
            np.testing.assert_array_equal(getattr(changes[0], name), getattr(changes[1], name))
        assert model.cluster_centers_.tobytes() == other.cluster_centers_.tobytes()
        assert model.drift_.tobytes() == other.drift_.tobytes()
        assert model.inertia_ == other.inertia_
        database.write(new, changes[0])
        other = pickle.loads(pickle.dumps(other)) if batch else shoal.load(_saved(other, tmp_path))
    assert other.n_clusters == 30 < len(other.cell_ids_)
    assert "cell_ids" not in clone(other).fit(database.rows)._kept()[0]


def _saved(model, folder):
    model.save(folder / "partition.safetensors")
    return folder / "partition.safetensors"


def test_threads_and_types_of_rows_change_nothing():
    results = []
    for n_jobs, dtype in ((1, np.float32), (3, np.float32), (2, np.float64)):
        model, database = begun(dtype=np.float32)
        model.n_jobs = n_jobs
        new = some(7, 400, at=1.0).astype(np.float32)
        change = model.update(
            new, fetch=lambda ids, d=database, t=dtype: (*d.fetch(ids)[:2], d.fetch(ids)[2].astype(t))
        )
        results.append((change.labels.tobytes(), change.moved.tobytes(), model.cluster_centers_.tobytes()))
    assert results[0] == results[1] == results[2]


def test_without_fetch_rows_get_labels_and_a_warning_names_the_remedy():
    model, database = begun()
    centers, new = model.cluster_centers_.copy(), some(3, 300, at=1.0)
    with pytest.warns(
        RuntimeWarning, match=r"more than 60 rows that were not split: \d+, because fetch is None"
    ) as told:
        change = model.update(new)
    assert told[0].filename == __file__
    np.testing.assert_array_equal(model.cluster_centers_, centers)
    np.testing.assert_array_equal(change.labels, model.predict(new))
    assert len(change.oversized_ids)
    assert not len(change.moved)
    assert not len(change.new_ids)
    assert model.drift_.max() > 0
    database.write(new, change)
    change = model.update(some(4, 1), fetch=database.fetch)
    assert len(change.split_ids)
    assert not len(change.oversized_ids)
    assert model.counts_.max() <= 60


def test_an_update_without_rows_settles_cells():
    model, database = begun()
    new = some(3, 300, at=1.0)
    with pytest.warns(RuntimeWarning, match="fetch is None"):
        database.write(new, model.update(new))
    none = np.empty((0, 5))
    change = model.update(none, fetch=database.fetch)
    assert not len(change.labels)
    assert len(change.split_ids)
    database.write(none, change)
    sizes = np.bincount(database.cells, minlength=model.cell_ids_[-1] + 1)[model.cell_ids_]
    assert sizes.tolist() == model.counts_.tolist()
    assert sizes.max() <= 60
    with pytest.raises(ValueError, match="features"):
        model.update(np.empty((0, 4)), fetch=database.fetch)


def test_a_target_is_kept(tmp_path):
    model, database = begun()
    new = some(3, 50)
    change = model.update(new, fetch=database.fetch, target_size=10)
    database.write(new, change)
    assert model.counts_.max() <= 20
    again = shoal.load(_saved(model, tmp_path))
    assert again.update(some(5, 800), fetch=database.fetch).n_fetched > 0
    assert again.counts_.max() <= 20


def test_growth_of_the_inertia_is_reported():
    model, database = begun()
    with pytest.warns(RuntimeWarning, match=r"times that of the fit. Fit the estimator again"):
        model.update(20 * some(4, 60), fetch=database.fetch)


def test_deleted_rows_are_left_out():
    model, database = begun()
    kept = np.arange(len(database.rows)) % 2 == 0
    database.rows, database.cells, database.keys = (
        part[kept] for part in (database.rows, database.cells, database.keys)
    )
    new = some(3, 200, at=1.0)
    change = model.update(new, fetch=database.fetch)
    asked = set(database.asked())
    database.write(new, change)
    sizes = dict(zip(model.cell_ids_.tolist(), model.counts_.tolist(), strict=True))
    for i in asked & sizes.keys():
        assert sizes[i] == (database.cells == i).sum()


def test_wrong_rows_of_fetch_are_refused_and_change_nothing():
    model, database = begun()
    new = some(3, 300, at=1.0)
    state = pickle.dumps(model)

    def returning(change):
        return lambda ids: change(*database.fetch(ids))

    cases = [
        (lambda keys, cells, rows: rows, r"fetch must return a tuple \(keys, cell_ids, rows\), got array"),
        (lambda keys, cells, rows: (keys[1:], cells, rows), "one length"),
        (lambda keys, cells, rows: (keys, cells, rows[:, 1:]), r"fetch must return rows of shape \(\d+, 5\)"),
        (lambda keys, cells, rows: (keys, cells, rows.astype(str)), "rows of real numbers, got <U"),
        (lambda keys, cells, rows: (keys, cells, rows + 1j), "rows of real numbers, got complex128"),
        (lambda keys, cells, rows: (keys, cells.astype(float), rows), "integers, got float64"),
        (lambda keys, cells, rows: (keys, cells + 1000, rows), "cells that it was asked for, got cell 1"),
        (
            lambda keys, cells, rows: (keys, cells, rows * np.nan),
            "fetch must be finite, got NaN at row 0, column 0",
        ),
    ]
    for change, told in cases:
        with pytest.raises(ValueError, match=told):
            model.update(new, fetch=returning(change))
    with pytest.raises(ConnectionError, match="gone"):
        model.update(new, fetch=returning(lambda *_: (_ for _ in ()).throw(ConnectionError("gone"))))
    with pytest.raises(ValueError, match="NaN"):
        model.update(np.full((3, 5), np.nan), fetch=database.fetch)
    with pytest.raises(ValueError, match="features"):
        model.update(new[:, 1:], fetch=database.fetch)
    with pytest.raises(ValueError, match="fetch must be a callable or None, got 5"):
        model.update(new, fetch=5)
    with pytest.raises(ValueError, match="target_size must be an integer of at least 1, got 0"):
        model.update(new, fetch=database.fetch, target_size=0)
    assert pickle.dumps(model) == state
    with pytest.raises(NotFittedError):
        HierarchicalKMeans(3).update(new)
    weighted = HierarchicalKMeans(5, random_state=0).fit(new, sample_weight=np.linspace(0.1, 1, len(new)))
    with pytest.raises(ValueError, match="without sample_weight"):
        weighted.update(new)


def test_identical_rows_are_left():
    model, database = begun()
    new = np.repeat(some(3, 1, at=9.0), 150, axis=0)
    with pytest.warns(
        RuntimeWarning, match="more than 60 rows that were not split: 1, because most of their rows"
    ):
        change = model.update(new, fetch=database.fetch)
    assert set(change.labels) == set(change.oversized_ids)
    assert "new rows: 150" in repr(change)


def test_models_of_a_sample_can_be_updated():
    rows = some(0, 2000)
    model = HierarchicalKMeans(40, compute_labels=False, random_state=0).fit(rows)
    cells = model.cell_ids_[model.predict(rows)]
    database = Database(rows, cells)
    new = some(1, 600, at=1.0)
    change = model.update(new, fetch=database.fetch)
    database.write(new, change)
    assert not hasattr(model, "labels_")
    assert not hasattr(model, "inertia_")
    assert len(change.split_ids)


def test_damaged_files_are_refused(tmp_path):
    from shoal import _core

    model, database = begun()
    model.update(some(3, 300, at=1.0), fetch=database.fetch)
    kind, arrays, texts = _core.load_model(str(_saved(model, tmp_path)))
    for name, wrong in {
        "cell_ids": arrays["cell_ids"][::-1].copy(),
        "cell_shifts": arrays["cell_shifts"][1:],
        "cell_counts": np.array([3, 0]),
        "cell_inertia": np.array([1.0]),
    }.items():
        path = tmp_path / "damaged.safetensors"
        _core.save_model(str(path), kind, arrays | {name: wrong}, texts)
        with pytest.raises(ValueError, match="damaged"):
            shoal.load(path)


def fitted_store(seed=0, n=900):
    rows = some(seed, n)
    model = HierarchicalKMeans(30, random_state=0).fit(rows)
    return model, rows, model.cell_ids_[model.labels_]


@pytest.mark.parametrize(
    "key_of",
    [
        lambda i: i.to_bytes(4, "little"),
        lambda i: 2**63 + i if i % 2 else i,
        lambda i: (i, "row"),
        lambda i: f"row {i}" if i % 2 else i,
    ],
)
def test_keys_come_back_as_they_are(key_of):
    model, rows, cells = fitted_store()

    def fetch(ids):
        found = np.flatnonzero(np.isin(cells, ids)).tolist()
        return [key_of(i) for i in found], cells[found], rows[found]

    change = model.update(some(1, 400, at=2.0), fetch=fetch)
    places = {key_of(i): i for i in range(len(rows))}
    assert len(change.moved) > 20
    for key, was, _ in change.moved.tolist():
        assert cells[places[key]] == was


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda k, c, r: (k[:0], c[:0], r), "rows of shape"),
        (lambda k, c, r: (np.tile(k, 2), np.tile(c, 2), np.tile(r, (2, 1))), "got a key twice"),
        (lambda k, c, r: (k, c - 10_000, r), "cells that it was asked for, got cell -"),
        (lambda k, c, r: (k, c, [row[: 1 + i % 2] for i, row in enumerate(r)]), "fetch.* rows of one length"),
    ],
)
def test_wrong_results_of_fetch_are_refused(change, message):
    model, rows, cells = fitted_store()
    before = model.cluster_centers_.copy()

    def fetch(ids):
        found = np.flatnonzero(np.isin(cells, ids))
        return change(found, cells[found], rows[found])

    with pytest.raises(ValueError, match=message):
        model.update(some(1, 400, at=2.0), fetch=fetch)
    np.testing.assert_array_equal(model.cluster_centers_, before)


def test_sizes_after_a_loop_that_ended_early_are_those_of_the_labels():
    rows = some(0, 900)
    model = HierarchicalKMeans(30, random_state=0)
    for step in model.iter_fit(rows):
        if step.iteration == 3:
            break
    cells = model.cell_ids_[model.labels_]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        model.update(some(1, 5))
    sizes = np.bincount(np.concatenate([cells, model.predict(some(1, 5))]), minlength=30)
    np.testing.assert_array_equal(model.counts_, sizes)


def test_models_with_weights_are_refused():
    model = HierarchicalKMeans(30, random_state=0).fit(some(0, 900), sample_weight=np.full(900, 3.0))
    with pytest.raises(ValueError, match="fitted with sample weights"):
        model.update(some(1, 5))


def test_ids_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        fitted_store()[0].cell_ids_[:] = 0


def test_levels_after_an_update_do_not_depend_on_a_file(tmp_path):
    rows = some(0, 900)
    model = HierarchicalKMeans([30, 8, 3], random_state=7).fit(rows)
    model.save(tmp_path / "model.safetensors")
    loaded = shoal.load(tmp_path / "model.safetensors")
    cells = model.cell_ids_[model.labels_]

    def fetch(ids):
        found = np.flatnonzero(np.isin(cells, ids))
        return found, cells[found], rows[found]

    for each in (model, loaded):
        each.update(some(1, 400, at=2.0), fetch=fetch)
    assert len(model.cluster_centers_) > 30
    for one, other in zip(model.levels_, loaded.levels_, strict=True):
        np.testing.assert_array_equal(one.cluster_centers, other.cluster_centers)
