//! Invariants of updates: every row in one cell, limits, frozen cells, and labels of brute force.

use std::collections::{BTreeMap, BTreeSet};

use super::draft::Draft;
use super::update::Rules;
use super::{Cells, Fetched, Moved, Partition, PartitionChange};
use crate::data::Dense;
use crate::error::{Error, Result};
use crate::fit::Metric;
use crate::float::{Typed, either};
use crate::kernel::sq_dist;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::{HierarchicalKMeans, KMeans};

/// Rows and their cells, as a database keeps them.
struct Store {
    dim: usize,
    rows: Vec<f32>,
    cells: Vec<u64>,
    partition: Partition,
    /// Ids of all calls of the last update.
    asked: Vec<Vec<u64>>,
}

/// `n` rows around `groups` points, which lie within `spread` from `at`.
fn rows(seed: u64, n: usize, dim: usize, groups: usize, at: f64) -> Vec<f32> {
    let mut rng = Rng::keyed(seed, Purpose::Coreset, 0);
    let points: Vec<f64> = (0..groups * dim).map(|_| at + 4.0 * rng.unit()).collect();
    let mut out = Vec::with_capacity(n * dim);
    for _ in 0..n {
        let group = rng.below(groups as u64) as usize;
        out.extend((0..dim).map(|t| {
            let noise: f64 = (0..4).map(|_| rng.unit() - 0.5).sum();
            (points[group * dim + t] + noise) as f32
        }));
    }
    out
}

impl Store {
    fn new(seed: u64, n: usize, dim: usize, k: usize, metric: Metric) -> Self {
        let rows = rows(seed, n, dim, 9, 0.5);
        let data = Dense::new(&rows, dim).unwrap();
        let model = HierarchicalKMeans::params(k).metric(metric).rng_seed(seed).fit(data).unwrap();
        let cells = model.labels().iter().map(|&label| u64::from(label)).collect();
        let partition = Partition::from_model(&model).unwrap();
        Self { dim, rows, cells, partition, asked: Vec::new() }
    }

    fn row(&self, i: usize) -> &[f32] {
        &self.rows[i * self.dim..][..self.dim]
    }

    fn update(&mut self, new: &[f32], rules: &Rules, threads: usize) -> PartitionChange {
        let cx = Executor::new(Some(threads)).unwrap();
        let Self { dim, rows, cells, partition, asked } = self;
        asked.clear();
        let mut fetch = |ids: &[u64]| {
            asked.push(ids.to_vec());
            let mut fetched = Fetched::default();
            for (i, &cell) in cells.iter().enumerate().filter(|(_, cell)| ids.contains(cell)) {
                fetched.push(i as u64, cell, &rows[i * *dim..][..*dim]);
            }
            Ok(fetched)
        };
        let Typed::F32(own) = &mut partition.cells else { panic!("rows are f32") };
        let change = own.update(rules, Dense::new(new, *dim).unwrap(), Some(&mut fetch), &cx).unwrap();
        self.apply(new, &change);
        change
    }

    fn apply(&mut self, new: &[f32], change: &PartitionChange) {
        self.rows.extend_from_slice(new);
        for &Moved { key, from, to } in &change.moved {
            assert_eq!(std::mem::replace(&mut self.cells[key as usize], to), from);
        }
        self.cells.extend(&change.labels);
    }

    fn centers(&self) -> BTreeMap<u64, Vec<f32>> {
        let centers = self.partition.centers::<f32>();
        self.partition.ids().iter().copied().zip(centers.chunks(self.dim).map(<[f32]>::to_vec)).collect()
    }

    /// Sizes, inertia and ids agree with the rows.
    fn check(&self) {
        let mut sizes: BTreeMap<u64, u64> = self.partition.ids().iter().map(|&id| (id, 0)).collect();
        for cell in &self.cells {
            *sizes.get_mut(cell).expect("a cell that exists") += 1;
        }
        assert_eq!(sizes.values().copied().collect::<Vec<_>>(), self.partition.sizes());
        assert!(self.partition.ids().is_sorted_by(|a, b| a < b));
        let centers = self.centers();
        if either!(&self.partition.cells, cells => cells.metric) == Metric::Euclidean {
            let inertia: f64 =
                self.cells.iter().enumerate().map(|(i, cell)| sq_dist(self.row(i), &centers[cell])).sum();
            let found = self.partition.inertia();
            assert!((found - inertia).abs() <= 1e-9 * inertia, "{found} {inertia}");
        }
    }
}

/// Returns the stored rows of some cells.
type Given = fn(&[u64]) -> Result<Fetched<f32>>;

/// All cells are neighbors, and nothing but rule 3 moves rows.
const EXACT: Rules = Rules {
    neighbors: usize::MAX,
    refreshed: 0.0,
    most_fetched: 9.0,
    joins: false,
    sweeps: 0,
    candidates: 1,
};

#[test]
fn updates_keep_every_row_once_and_other_cells_as_they_are() {
    for (seed, dim, metric) in [(1, 2, Metric::Euclidean), (2, 9, Metric::Euclidean), (3, 9, Metric::Cosine)]
    {
        let mut store = Store::new(seed, 2000, dim, 50, metric);
        let limit = 2 * store.partition.target();
        let mut retired = BTreeSet::new();
        for batch in 0..8 {
            let before = store.centers();
            let new = rows(100 + seed, 150, dim, 4, 0.3 * f64::from(batch));
            let change = store.update(&new, &Rules::default(), 2);
            store.check();
            let after = store.centers();
            let gone: BTreeSet<u64> = change.split_ids.iter().chain(&change.joined_ids).copied().collect();
            let expected: BTreeSet<u64> = before.keys().copied().filter(|id| !gone.contains(id)).collect();
            let fresh: BTreeSet<u64> = change.new_ids.iter().copied().collect();
            assert_eq!(after.keys().copied().collect::<BTreeSet<_>>(), &expected | &fresh);
            for (id, center) in &after {
                let touched = fresh.contains(id) || change.recentered_ids.contains(id);
                assert!(touched || before[id] == *center, "{id}");
                assert_eq!(fresh.contains(id), !before.contains_key(id));
            }
            assert!(fresh.is_disjoint(&retired));
            retired.extend(gone);
            let asked: Vec<u64> = store.asked.concat();
            let once: BTreeSet<u64> = asked.iter().copied().collect();
            assert_eq!(once.len(), asked.len());
            assert!(once.len() < before.len(), "all cells were asked for");
            assert!(change.recentered_ids.iter().all(|id| once.contains(id)));
            assert!(store.partition.sizes().iter().all(|&size| size <= limit));
            assert!(change.oversized_ids.is_empty());
        }
        assert!(!retired.is_empty());
    }
}

#[test]
fn results_do_not_depend_on_threads_or_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("partition.safetensors");
    let mut stores =
        [Store::new(5, 1500, 6, 40, Metric::Euclidean), Store::new(5, 1500, 6, 40, Metric::Euclidean)];
    for batch in 0..4 {
        let new = rows(50 + batch, 300, 6, 5, 0.5 * batch as f64);
        let [one, other] = &mut stores;
        let changes = (one.update(&new, &Rules::default(), 1), other.update(&new, &Rules::default(), 3));
        assert_eq!(changes.0, changes.1);
        assert_eq!(one.partition, other.partition);
        other.partition.save(&path).unwrap();
        other.partition = Partition::load(&path).unwrap();
        assert_eq!(one.partition, other.partition);
    }
}

#[test]
fn with_all_cells_as_neighbors_labels_are_those_of_brute_force() {
    for (seed, dim) in [(1, 2), (2, 5), (3, 12)] {
        let mut store = Store::new(seed, 1000, dim, 25, Metric::Euclidean);
        let mut splits = 0;
        for batch in 0..5 {
            // Hundreds of rows for a few cells: some split more than once.
            let change = store.update(&rows(seed * 10 + batch, 400, dim, 3, batch as f64), &EXACT, 2);
            splits += change.split_ids.len();
            store.check();
            let nearest = store.partition.predict(Dense::new(&store.rows, dim).unwrap()).unwrap();
            assert_eq!(nearest, store.cells, "{seed} {batch}");
        }
        assert!(splits > 5);
    }
}

#[test]
fn few_neighbors_leave_few_rows_elsewhere() {
    let mut store = Store::new(4, 4000, 8, 80, Metric::Euclidean);
    for batch in 0..4 {
        store.update(&rows(40 + batch, 400, 8, 9, 0.5), &Rules::default(), 2);
    }
    let nearest = store.partition.predict(Dense::new(&store.rows, 8).unwrap()).unwrap();
    let same = nearest.iter().zip(&store.cells).filter(|(a, b)| a == b).count();
    assert!(same as f64 > 0.94 * nearest.len() as f64, "{same} of {}", nearest.len());
}

#[test]
fn identical_rows_are_left_and_reported() {
    let mut store = Store::new(6, 600, 3, 20, Metric::Euclidean);
    let target = store.partition.target();
    let same = [100.0f32, 50.0, 25.0].repeat(5 * target as usize);
    let change = store.update(&same, &Rules::default(), 2);
    store.check();
    // Other rows of the cell may have been split off.
    assert_eq!(change.oversized_ids.len(), 1);
    let id = change.oversized_ids[0];
    assert!(change.labels.iter().all(|&label| label == id));
    assert!(store.cells.iter().filter(|&&cell| cell == id).count() as u64 >= 5 * target);
    let change = store.update(&rows(7, 100, 3, 5, 0.5), &Rules::default(), 2);
    store.check();
    assert_eq!(change.oversized_ids, [id]);
}

#[test]
fn starving_cells_join_and_an_empty_partition_keeps_a_cell() {
    let rows: Vec<[f64; 1]> = (0..40).map(|i| [f64::from(i)]).collect();
    let model = KMeans::params(4).rng_seed(1).fit(&rows).unwrap();
    let cells: Vec<u64> = model.labels().iter().map(|&label| u64::from(label)).collect();
    let mut partition = Partition::from_model(&model).unwrap();
    let gone = cells[39];
    // The database has lost all but one row of a cell, and a row of another.
    let kept: Vec<usize> = (0..40).filter(|&i| i == 39 || (i > 0 && cells[i] != gone)).collect();
    let mut store = cells.clone();
    let cx = Executor::new(Some(1)).unwrap();
    // All cells are fetched.
    let rules = Rules { most_fetched: 9.0, ..Rules::default() };
    let mut take = |partition: &mut Partition, new: &[[f64; 1]]| {
        let mut fetch = |ids: &[u64]| {
            let mut fetched = Fetched::default();
            for &i in kept.iter().filter(|&&i| ids.contains(&store[i])) {
                fetched.push(i as u64, store[i], &rows[i]);
            }
            Ok(fetched)
        };
        let Typed::F64(own) = &mut partition.cells else { panic!("rows are f64") };
        let change = own.update(&rules, new, Some(&mut fetch), &cx).unwrap();
        for moved in &change.moved {
            store[moved.key as usize] = moved.to;
        }
        change
    };
    // A split of every other cell makes that of the lost rows a neighbor, which is fetched.
    let new: Vec<[f64; 1]> = (0..25).map(|i| [f64::from(i) / 25.0]).collect();
    let change = take(&mut partition, &new);
    assert_eq!(change.split_ids.len(), 1);
    let change = [change, take(&mut partition, &new[..1])];
    assert!(change.iter().any(|change| change.joined_ids == [gone]), "{change:?}");
    let moved =
        change.iter().flat_map(|change| &change.moved).find(|moved| moved.key == 39 && moved.from == gone);
    assert_ne!(moved.unwrap().to, gone);
}

#[test]
fn joins_follow_the_slow_rule() {
    // All cells starve, and all but a few of a row's neighbors are gone when its cell joins.
    let rows: Vec<[f64; 2]> = (0..400u32).map(|i| [f64::from(i % 20), f64::from(i / 20) * 1.01]).collect();
    let model = KMeans::params(400).rng_seed(1).fit(&rows).unwrap();
    let cells: Vec<u64> = model.labels().iter().map(|&label| u64::from(label)).collect();
    let mut partition = Partition::from_model(&model).unwrap().with_target(30).unwrap();
    let (mut sizes, mut expected) = (partition.sizes().to_vec(), cells.clone());
    let centers = partition.centers::<f64>();
    let mut order: Vec<usize> = (0..400).collect();
    order.sort_by_key(|&j| (sizes[j], j));
    let mut gone = BTreeSet::new();
    for j in order {
        if 4 * sizes[j] >= 30 || gone.len() == 399 {
            continue;
        }
        gone.insert(j as u64);
        for row in (0..400).filter(|&i| expected[i] == j as u64).collect::<Vec<_>>() {
            let far = |q: &u64| sq_dist(&rows[row], &centers[2 * *q as usize..][..2]);
            let room = (0..400u64).filter(|q| !gone.contains(q) && sizes[*q as usize] < 60);
            let place = room.min_by(|a, b| far(a).total_cmp(&far(b)).then(a.cmp(b))).unwrap();
            expected[row] = place;
            sizes[place as usize] += 1;
        }
    }
    let rules = Rules { joins: true, ..EXACT };
    let mut fetch = |ids: &[u64]| {
        let mut fetched = Fetched::default();
        (0..400)
            .filter(|&i| ids.contains(&cells[i]))
            .for_each(|i| fetched.push(i as u64, cells[i], &rows[i]));
        Ok(fetched)
    };
    let Typed::F64(own) = &mut partition.cells else { panic!("rows are f64") };
    let none = Dense::new(&[0.0f64; 0], 2).unwrap();
    let change = own.update(&rules, none, Some(&mut fetch), &Executor::new(Some(2)).unwrap()).unwrap();
    let mut found = cells.clone();
    for moved in &change.moved {
        found[moved.key as usize] = moved.to;
    }
    assert_eq!(found, expected);
    assert_eq!(change.joined_ids, gone.into_iter().collect::<Vec<_>>());
}

#[test]
fn a_cell_that_gets_thousands_of_rows_is_split_into_many_parts() {
    let mut store = Store::new(14, 1000, 4, 4, Metric::Euclidean);
    store.partition = store.partition.clone().with_target(5).unwrap();
    let change = store.update(&rows(15, 2000, 4, 9, 0.5), &Rules::default(), 2);
    store.check();
    assert_eq!(change.split_ids.len(), 4);
    assert!(store.partition.ids().len() > 300);
    assert!(store.partition.sizes().iter().all(|&size| size <= 10));
    let nearest = store.partition.predict(Dense::new(&store.rows, 4).unwrap()).unwrap();
    let same = nearest.iter().zip(&store.cells).filter(|(a, b)| a == b).count();
    assert!(same as f64 > 0.95 * nearest.len() as f64, "{same} of {}", nearest.len());
}

#[test]
fn an_interrupt_leaves_the_partition_as_it_was() {
    let mut store = Store::new(16, 1000, 4, 20, Metric::Euclidean);
    let (before, new) = (store.partition.clone(), rows(17, 400, 4, 1, 2.0));
    let cx = Executor::new(Some(2)).unwrap();
    let Store { partition, cells, rows, .. } = &mut store;
    let mut fetch = |ids: &[u64]| {
        cx.interrupt().set();
        let mut fetched = Fetched::default();
        for (i, &cell) in cells.iter().enumerate().filter(|(_, cell)| ids.contains(cell)) {
            fetched.push(i as u64, cell, &rows[i * 4..][..4]);
        }
        Ok(fetched)
    };
    let Typed::F32(own) = &mut partition.cells else { panic!("rows are f32") };
    let found = own.update(&Rules::default(), Dense::new(&new, 4).unwrap(), Some(&mut fetch), &cx);
    assert!(matches!(found, Err(Error::Interrupted)));
    assert_eq!(*partition, before);
}

#[test]
fn an_update_without_rows_splits_what_an_insert_left() {
    let mut store = Store::new(18, 500, 4, 10, Metric::Euclidean);
    let new = rows(19, 400, 4, 1, 2.0);
    let change = store.partition.insert(Dense::new(&new, 4).unwrap()).unwrap();
    store.apply(&new, &change);
    let change = store.update(&[], &Rules::default(), 2);
    store.check();
    assert!(change.labels.is_empty() && !change.split_ids.is_empty() && change.oversized_ids.is_empty());
}

/// Cells of one column with these centers, one row each.
fn cells_at(centers: &[f64]) -> Cells<f64> {
    let k = centers.len();
    Cells {
        dim: 1,
        metric: Metric::Euclidean,
        target: 10,
        ids: (0..k as u64).collect(),
        next_id: k as u64,
        centers: centers.to_vec(),
        sizes: vec![1; k],
        shifts: vec![0.0; k],
        inertia: 0.0,
        inertia_at_fit: 0.0,
    }
}

#[test]
fn the_rounding_of_a_row_that_left_does_not_stay_in_a_center() {
    let cells = cells_at(&[0.0, 1e17]);
    let cx = Executor::new(Some(1)).unwrap();
    let mut fetch = |_: &[u64]| {
        Ok(Fetched { keys: vec![0, 1, 2, 3], cells: vec![0; 4], rows: vec![1.0, 1.25, 1e17, 1.5] })
    };
    let mut draft = Draft::new(&cells, Vec::new(), Some(&mut fetch), &cx).unwrap();
    draft.hold(&[0]).unwrap();
    draft.settle(&Rules::default()).unwrap();
    assert_eq!(draft.cell, [0, 0, 1, 0]);
    assert_eq!(draft.center(0), [1.25]);
}

#[test]
fn an_outlier_does_not_hide_cells_that_drifted_less() {
    let cells = cells_at(&[0.0, 10.0, 20.0, 30.0, 40.0]);
    let cx = Executor::new(Some(1)).unwrap();
    let mut fetch = |_: &[u64]| Ok(Fetched::default());
    let new = vec![11.0, 21.0, 1e9];
    let mut draft = Draft::new(&cells, new, Some(&mut fetch), &cx).unwrap();
    draft.hold(&[0]).unwrap();
    draft.hold_drifted(&Rules { refreshed: 4.0, most_fetched: 1.0, ..Rules::default() }).unwrap();
    // No row came to the cell at 30.
    assert_eq!(draft.held, [true, true, true, false, true]);
}

#[test]
fn without_fetch_cells_only_grow() {
    let mut store = Store::new(8, 500, 4, 10, Metric::Euclidean);
    let before = store.centers();
    let new = rows(9, 400, 4, 1, 2.0);
    let change = store.partition.insert(Dense::new(&new, 4).unwrap()).unwrap();
    store.apply(&new, &change);
    store.check();
    assert_eq!(store.centers(), before);
    assert!(change.moved.is_empty() && change.new_ids.is_empty() && !change.oversized_ids.is_empty());
    assert!(store.partition.drift().iter().any(|&drift| drift > 0.0));
    let wide: Vec<f64> = rows(10, 1, 4, 1, 2.0).iter().map(|&x| f64::from(x)).collect();
    let change = store.update(&rows(10, 1, 4, 1, 2.0), &Rules::default(), 1);
    assert!(!change.split_ids.is_empty() && change.oversized_ids.is_empty());
    store.check();
    // Rows of the other type.
    assert_eq!(store.partition.insert(Dense::new(&wide, 4).unwrap()).unwrap().labels.len(), 1);
}

#[test]
fn errors_leave_the_partition_as_it_was() {
    let mut store = Store::new(11, 500, 4, 10, Metric::Euclidean);
    let before = store.partition.clone();
    let new = rows(12, 400, 4, 1, 2.0);
    let new = Dense::new(&new, 4).unwrap();
    let cases: [(Given, &str); 5] = [
        (|_| Err(Error::foreign("no connection")), "no connection"),
        (
            |ids| Ok(Fetched { keys: vec![1], cells: ids[..1].to_vec(), rows: vec![1.0; 3] }),
            "4 values per row",
        ),
        (|ids| Ok(Fetched { keys: vec![1], cells: vec![], rows: vec![1.0; ids.len()] }), "1 keys, 0 cells"),
        (|_| Ok(Fetched { keys: vec![1], cells: vec![99], rows: vec![1.0; 4] }), "got cell 99 at row 0"),
        (
            |ids| {
                Ok(Fetched { keys: vec![1], cells: ids[..1].to_vec(), rows: vec![1.0, 2.0, f32::NAN, 1.0] })
            },
            "rows of `fetch` must be finite, got NaN at row 0, column 2",
        ),
    ];
    for (fetch, told) in cases {
        let error = store.partition.update(new, fetch).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
        assert_eq!(store.partition, before);
    }
    let error = store.partition.insert(&[[1.0f32, 2.0]]).unwrap_err().to_string();
    assert_eq!(error, "`rows` have 2 columns, but the partition has 4");
    let error = store.partition.insert(&[[1.0f32, 2.0, f32::INFINITY, 0.0]]).unwrap_err().to_string();
    assert_eq!(error, "rows must be finite, got inf at row 0, column 2");
    assert_eq!(store.partition, before);
    let weighted = crate::data::Weighted::new(&[[1.0f64], [2.0]], vec![0.5, 1.0]).unwrap();
    let model = KMeans::params(1).fit(weighted).unwrap();
    assert!(Partition::from_model(&model).unwrap_err().to_string().contains("without weights"));
}

#[test]
fn rows_with_weights_are_an_error() {
    use crate::data::{Chunk, Chunks, Weighted};
    let model = KMeans::params(2).fit(&[[0.0f64], [4.0]]).unwrap();
    let mut partition = Partition::from_model(&model).unwrap();
    let before = partition.clone();
    let new = [[1.0f64], [2.0]];
    let error = partition.insert(Weighted::new(&new, vec![3.0, 1.0]).unwrap()).unwrap_err().to_string();
    assert!(error.contains("without weights"), "{error}");
    let chunk = || Chunk::from(vec![1.0f64, 2.0]).weighted(vec![1.0, 0.0]);
    let error = partition.insert(Chunks::once(1, [Ok(chunk())].into_iter())).unwrap_err().to_string();
    assert!(error.contains("without weights"), "{error}");
    assert_eq!(partition, before);
    partition.insert(Weighted::new(&new, vec![1.0; 2]).unwrap()).unwrap();
    assert_eq!(partition.sizes().iter().sum::<u64>(), 4);
}

#[test]
fn the_model_of_a_run_before_its_first_step_is_no_partition_and_no_file() {
    let model = KMeans::params(2).start(&[[0.0f64], [4.0]]).unwrap().into_model();
    let told = "a model needs at least one step: advance the run first";
    assert_eq!(Partition::from_model(&model).unwrap_err().to_string(), told);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    assert_eq!(model.save(&path).unwrap_err().to_string(), told);
    let mixture = crate::TruncatedGaussianMixture::params(2).start(&[[0.0f64], [4.0]]).unwrap().into_model();
    assert_eq!(mixture.save(&path).unwrap_err().to_string(), told);
    assert!(!path.exists());
}

#[test]
fn the_nearest_cells_are_those_of_brute_force() {
    let (dim, mut store) = (3, Store::new(1, 900, 3, 20, Metric::Euclidean));
    store.update(&rows(2, 300, dim, 2, 3.0), &Rules::default(), 1);
    let partition = &store.partition;
    let (queries, centers, m) = (rows(3, 50, dim, 4, 1.0), partition.centers::<f32>(), 6);
    let (cells, sq_dists) = partition.nearest(Dense::new(&queries, dim).unwrap(), m).unwrap();
    for (i, query) in queries.chunks_exact(dim).enumerate() {
        let each =
            centers.chunks_exact(dim).zip(partition.ids()).map(|(center, &id)| (sq_dist(query, center), id));
        let mut expected: Vec<(f64, u64)> = each.collect();
        expected.sort_by(|a, b| a.partial_cmp(b).unwrap());
        for (at, &(sq_dist, id)) in (i * m..(i + 1) * m).zip(&expected[..m]) {
            assert_eq!(cells[at], id);
            assert!((sq_dists[at] - sq_dist).abs() <= 1e-12 * sq_dist);
        }
    }
    for wrong in [partition.nearest(&[[1.0f32]], 1).map(drop), partition.predict(&[[1.0f32]]).map(drop)] {
        assert_eq!(wrong.unwrap_err().to_string(), "`rows` have 1 columns, but the partition has 3");
    }
}
