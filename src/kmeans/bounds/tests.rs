//! Tests of the bounds against true distances.

use super::rounded::{difference_down, down, sum_down, sum_up};
use super::rules::lost_of;
use super::*;
use crate::data::Dense;
use crate::fit::{Restartable, Solver};
use crate::kernel::bounded::Margins;
use crate::kernel::sq_dist;
use crate::kmeans::lloyd::params::{Algorithm, KMeans};
use crate::kmeans::lloyd::solver::Lloyd;
use crate::rng::{Purpose, Rng};
use crate::seeding::Seeding;

impl PanelBounds {
    /// Checks every bound against the true distances to the centers last passed to [`PanelBounds::follow`].
    pub(in crate::kmeans) fn assert_true<T: Compute>(
        &self,
        rows: MatRef<'_, T>,
        labels: &[u32],
        centers: MatRef<'_, T>,
        what: &str,
    ) {
        let width = PackedCenters::<T>::panel_centers();
        for (r, (row, &label)) in rows.iter().zip(labels).enumerate() {
            let distance = |j: usize| {
                let sums = row
                    .iter()
                    .zip(centers.row(j))
                    .map(|(x, c)| ((x.to_f64() - c.to_f64()) * self.scale).powi(2));
                sums.sum::<f64>().sqrt() * self.unit
            };
            let upper = f64::from(self.rows.upper[r]) + f64::from(self.moves[label as usize]);
            assert!(
                upper * (1.0 + 1e-12) >= distance(label as usize),
                "{what}: upper bound {upper} of row {r}"
            );
            for (slot, &j) in self.order.iter().enumerate().filter(|&(_, &j)| j != label) {
                let truth = distance(j as usize);
                let mut lower = vec![f64::from(self.rows.least[r]) - self.far_drift];
                if !self.is_single() {
                    let group = if self.fine { slot } else { slot / width / self.group_panels };
                    lower.push(f64::from(self.rows.lower[r * self.n_groups + group]) - self.drift[group]);
                }
                for lower in lower {
                    assert!(
                        lower * (1.0 - 1e-12) <= truth,
                        "{what}: {lower} for center {j} of row {r}, at {truth}"
                    );
                }
            }
        }
    }
}

fn bounds_hold<T: Compute>(algorithm: Algorithm, offset: f64, scale: f64, bounds_memory: u64) {
    let (n, k) = (500, 150);
    // Exponion's balls need few columns.
    let d = if algorithm == Algorithm::Exponion { 4 } else { 18 };
    let mut rng = Rng::keyed(7, Purpose::Seeding, 1);
    // Columns of very different ranges.
    let values: Vec<T> = (0..n * d)
        .map(|i| T::from_f64((offset + (rng.unit() - 0.5) * 10f64.powi((i % d) as i32 % 5 - 2)) * scale))
        .collect();
    let data = Dense::new(&values, d).unwrap();
    let cx = Executor::new(Some(1)).unwrap();
    let params = KMeans::params(k)
        .seeding(Seeding::Random)
        .tolerance(0.0)
        .algorithm(algorithm)
        .bounds_memory(bounds_memory);
    let mut run = Lloyd::<T>::plan(params).begin(0, &data, &cx).unwrap();
    for sweep in 0..3 * BASE_SWEEPS {
        let labels_known = sweep > 0;
        run.step(&data, &cx).unwrap();
        if labels_known {
            let centers = MatRef::new(run.centers(), d);
            let what = format!("{} offset {offset} scale {scale} sweep {sweep}", T::NAME);
            assert_eq!(run.algorithm(), algorithm);
            assert_eq!(run.bounds().unwrap().balls, algorithm == Algorithm::Exponion);
            run.bounds().unwrap().assert_true(
                MatRef::new(&values, d),
                &run.labels().to_vec(),
                centers,
                &what,
            );
        }
    }
}

#[test]
fn bounds_hold_on_badly_scaled_data() {
    let kinds = [
        (Algorithm::Yinyang, 1 << 30),
        (Algorithm::Yinyang, 500 * 4 * 4),
        (Algorithm::Elkan, 1 << 30),
        (Algorithm::Hamerly, 1 << 30),
        (Algorithm::Exponion, 1 << 30),
    ];
    for (algorithm, memory) in kinds {
        bounds_hold::<f32>(algorithm, 0.0, 1.0, memory);
        bounds_hold::<f32>(algorithm, 1e4, 1.0, memory);
        bounds_hold::<f32>(algorithm, 0.0, 1e25, memory);
        bounds_hold::<f64>(algorithm, 1e6, 1e-25, memory);
    }
}

/// The distances between centers, with which centers are excluded, are limits of the true ones, and near them.
fn neighbors_hold<T: Compute>(balls: bool, offset: f64, scale: f64) {
    let (n, k, d) = (10_000, 60, 5);
    let mut rng = Rng::keyed(11, Purpose::Seeding, 1);
    let mut values: Vec<T> = (0..k * d).map(|_| T::from_f64((offset + rng.unit() - 0.5) * scale)).collect();
    // A pair much nearer than the others, and a pair of equal centers.
    for (to, from, apart) in [(0, 1, 1e-3), (2, 3, 0.0)] {
        let value = |t: usize, values: &[T]| T::from_f64(values[from * d + t].to_f64() + apart * scale);
        (0..d).for_each(|t| values[to * d + t] = value(t, &values));
    }
    let centers = MatRef::new(&values, d);
    let mut bounds = PanelBounds::single(centers, n, 1 << 30, balls).unwrap();
    let packed = bounds.pack(centers, false, Executor::caller());
    let rules = bounds.rules(&packed, d);
    let what = format!("{} balls {balls} offset {offset} scale {scale}", T::NAME);
    let distance = |i: usize, j: usize| sq_dist(centers.row(i), centers.row(j)).sqrt() * bounds.unit();
    // Halves come from tile values, which cancel.
    let (lost, of_halves) = (2e-5, if T::WIDE { 2e-5 } else { 1e-2 });
    for j in 0..k {
        let nearest = (0..k).filter(|&i| i != j).map(|i| distance(i, j)).fold(f64::INFINITY, f64::min);
        let half = f64::from(rules.neighbors.halves[j]);
        assert!(
            half <= 0.5 * nearest && half >= 0.5 * nearest - if balls { lost } else { of_halves },
            "{what}: {half}, {nearest}"
        );
        if balls {
            let within = f64::from(rules.neighbors.nearest[j]);
            assert!(within >= nearest && within <= nearest + lost, "{what}: {within}, {nearest}");
            for i in (0..k).filter(|&i| i != j) {
                let apart = f64::from(rules.neighbors.apart[j * k + i]);
                let truth = distance(i, j);
                assert!(apart <= truth && apart >= truth - lost, "{what}: {apart}, {truth}");
            }
        }
    }
}

#[test]
fn distances_between_centers_are_limits() {
    for balls in [false, true] {
        for (offset, scale) in [(0.0, 1.0), (100.0, 1e3), (0.0, 1e-20)] {
            neighbors_hold::<f32>(balls, offset, scale);
            neighbors_hold::<f64>(balls, offset, scale);
        }
    }
}

#[test]
fn an_order_is_a_permutation_of_sorted_panels() {
    for k in [1, 5, 32, 33, 100, 257] {
        let mut rng = Rng::keyed(1, Purpose::Seeding, k as u64);
        let values: Vec<f32> = (0..k * 3).map(|_| rng.unit() as f32).collect();
        let order = similar_together(MatRef::new(&values, 3), 32);
        assert!(order.chunks(32).all(<[u32]>::is_sorted), "{order:?}");
        let mut all = order;
        all.sort_unstable();
        assert!(all.into_iter().eq(0..k as u32));
    }
}

/// Bounds in `f32` start again in another unit when the centers shrink or grow so much that they could not tell them
/// apart.
#[test]
fn the_unit_follows_the_centers() {
    let (k, d) = (40, 18);
    let mut rng = Rng::keyed(2, Purpose::Seeding, 0);
    let values: Vec<f64> = (0..k * d).map(|_| rng.unit()).collect();
    let of = |size: f64| values.iter().map(|v| v * size).collect::<Vec<f64>>();
    let mut bounds = PanelBounds::new(MatRef::new(&values, d), 10, 1 << 20).unwrap();
    bounds.pack(MatRef::new(&values, d), false, Executor::caller());
    for (size, starts_again) in [(0.5, false), (1e-4, false), (1e-9, true), (1e-10, false), (1e3, true)] {
        let before = bounds.unit;
        bounds.rows.upper.fill(1.0);
        bounds.pack(MatRef::new(&of(size), d), false, Executor::caller());
        let forgotten = bounds.rows.upper.iter().all(|&upper| upper == f32::INFINITY);
        assert_eq!((forgotten, bounds.unit != before), (starts_again, starts_again), "{size}");
    }
}

#[test]
fn no_room_no_bounds() {
    let centers = MatRef::new(&[0.0f32; 200], 2);
    assert!(PanelBounds::new(centers, 1000, 11_999).is_none());
    assert_eq!(PanelBounds::new(centers, 1000, 12_000).unwrap().n_groups(), 1);
    assert_eq!(
        PanelBounds::new(centers, 1000, 1 << 30).unwrap().n_groups(),
        100usize.div_ceil(PackedCenters::<f32>::panel_centers())
    );
    assert!(PanelBounds::single(centers, 1000, 7999, false).is_none());
    assert!(!PanelBounds::single(centers, 1000, 8000, true).unwrap().balls);
    assert!(PanelBounds::single(centers, 1000, 48_000, true).unwrap().balls);
}

/// `k` centers about the origin, the longest of length 1.
fn about_the_origin(k: usize, d: usize) -> Vec<f64> {
    let mut centers = vec![0.0; k * d];
    (centers[0], centers[d]) = (1.0, -1.0);
    centers
}

/// Moves and drifts are rounded up, as `f64` and as `f32`.
#[test]
fn moves_are_rounded_up() {
    let (k, d) = (40, 18);
    let old = about_the_origin(k, d);
    for square in 1..=d {
        let mut new = old.clone();
        new[3 * d..][..square].fill(1.0);
        let mut bounds = PanelBounds::new(MatRef::new(&old, d), 10, 1 << 20).unwrap();
        let packed = bounds.pack(MatRef::new(&old, d), false, Executor::caller());
        bounds.follow(MatRef::new(&old, d), MatRef::new(&new, d), Executor::caller());
        let group = bounds.slot[3] as usize / PackedCenters::<f64>::panel_centers() / bounds.group_panels;
        let rules = bounds.rules(&packed, d);
        let stored = [bounds.moves[3], rules.drift[group], rules.far_drift].map(f64::from);
        for moved in [bounds.far_drift, bounds.drift[group]].into_iter().chain(stored) {
            // The exact difference of the squares, rounded once.
            assert!(moved.mul_add(moved, -(square as f64)) >= 0.0, "{square}: {moved}");
        }
    }
}

/// The lower bound on a distance has every margin, and is not rounded up.
#[test]
fn measured_distances_are_rounded_down() {
    let (k, d) = (40, 18);
    let centers = about_the_origin(k, d);
    let mut bounds = PanelBounds::new(MatRef::new(&centers, d), 10, 1 << 20).unwrap();
    let packed = bounds.pack(MatRef::new(&centers, d), false, Executor::caller());
    let mut rules = bounds.rules(&packed, d);
    let plain = Margins { norm: 0.0, gamma: 0.0, unit: 1.0, off: 0.0 };
    let mut rng = Rng::keyed(3, Purpose::Seeding, 0);
    for margins in [
        plain,
        Margins { off: 0.1, ..plain },
        Margins { gamma: 1e-3, ..plain },
        Margins { norm: 1e12, ..plain },
    ] {
        rules.margins = margins;
        for _ in 0..100 {
            let own = 1.0 + rng.unit();
            let distance = (own - margins.off).sqrt();
            let lost = distance * margins.gamma + 4.0 * f64::EPSILON * (2.0 * margins.norm + distance);
            let (found, most) = (f64::from(rules.at_least(own)), distance - lost);
            assert!(found <= most, "{margins:?}: {found} {most}");
        }
    }
}

/// Sums and differences of bounds are rounded in the direction that keeps them bounds.
#[test]
fn sums_of_bounds_are_rounded_outward() {
    let mut rng = Rng::keyed(9, Purpose::Seeding, 0);
    for _ in 0..10_000 {
        let mut draw = || (rng.unit() * 2f64.powi((16.0 * rng.unit()) as i32)) as f32;
        let (a, b) = (draw(), draw());
        // Sums of such numbers are exact in `f64`.
        let (sum, difference) = (f64::from(a) + f64::from(b), f64::from(a) - f64::from(b));
        assert!(f64::from(sum_up(a, b)) >= sum && f64::from(sum_up(a, b)) <= sum * (1.0 + 1e-6));
        assert!(f64::from(sum_down(a, b)) <= sum && f64::from(sum_down(a, b)) >= sum * (1.0 - 1e-6));
        let found = f64::from(difference_down(a, b));
        assert!(found <= difference && found >= difference - 1e-6 * sum, "{a} - {b}: {found}");
    }
    assert_eq!(difference_down(f32::INFINITY, 1.0), f32::INFINITY);
    assert!(difference_down(LOWEST, 1.0) < 0.0);
    let between = 1.0 + f64::EPSILON;
    assert_eq!((up(between), down(between)), (1f32.next_up(), 1.0));
    assert_eq!((up(-between), down(-between)), (-1.0, -1f32.next_up()));
}

/// A group merged from two keeps the lower of the two bounds, whatever drift they hold.
#[test]
fn merged_groups_keep_the_lower_bound() {
    let (n, d) = (50, 2);
    let mut rng = Rng::keyed(10, Purpose::Seeding, 0);
    let k = 5 * PackedCenters::<f32>::panel_centers();
    let centers: Vec<f32> = (0..k * d).map(|_| rng.unit() as f32).collect();
    let mut bounds = PanelBounds::new(MatRef::new(&centers, d), n, 1 << 20).unwrap();
    assert_eq!(bounds.n_groups(), 5);
    bounds.drift.iter_mut().for_each(|drift| *drift = rng.unit());
    bounds.rows.lower.iter_mut().for_each(|bound| *bound = 1.0 + rng.unit() as f32);
    let before = bounds.clone();
    assert!(bounds.grow(|i| i, n, 4 * 5 * n as u64));
    assert_eq!(bounds.n_groups(), 3);
    for i in 0..n {
        for group in 0..3 {
            let two = 2 * group..(2 * group + 2).min(5);
            let truth = two.map(|g| f64::from(before.rows.lower[i * 5 + g]) - before.drift[g]);
            let truth = truth.fold(f64::INFINITY, f64::min);
            let merged = f64::from(bounds.rows.lower[i * 3 + group]) - bounds.drift[group];
            assert!(merged <= truth && merged >= truth - 1e-6, "row {i}, group {group}: {merged}, {truth}");
        }
    }
}

/// Centers that are not numbers leave no bound.
#[test]
fn moves_that_are_not_numbers_end_the_bounds() {
    let (k, d) = (40, 18);
    let old = about_the_origin(k, d);
    let mut new = old.clone();
    new[5 * d] = f64::NAN;
    let mut bounds = PanelBounds::new(MatRef::new(&old, d), 10, 1 << 20).unwrap();
    bounds.pack(MatRef::new(&old, d), false, Executor::caller());
    bounds.rows.upper.fill(1.0);
    bounds.rows.lower.fill(2.0);
    bounds.follow(MatRef::new(&old, d), MatRef::new(&new, d), Executor::caller());
    assert!(bounds.rows.upper.iter().all(|&upper| upper == f32::INFINITY));
    assert!(bounds.rows.lower.iter().all(|&lower| lower == LOWEST));
}

/// Rows midway between two centers, as exactly as values allow, have the label of the arbiter, and bounds that hold.
fn ties_are_decided<T: Compute>(what: &str, offset: f64, make: impl Fn(MatRef<'_, T>, usize) -> PanelBounds) {
    let (n, k, d) = (4000, 100, 2);
    let mut rng = Rng::keyed(12, Purpose::Seeding, 0);
    let mut draw = |n: usize| (0..n).map(|_| T::from_f64(offset + rng.unit())).collect::<Vec<T>>();
    let (first, second) = (draw(k * d), draw(k * d));
    let mut bounds = make(MatRef::new(&first, d), n);
    let mut labels = vec![0; n];
    for centers in [&first, &second] {
        let centers = MatRef::new(centers, d);
        let midway = |(a, b): (usize, usize), t: usize| {
            T::from_f64(f64::midpoint(centers.row(a)[t].to_f64(), centers.row(b)[t].to_f64()))
        };
        // Between a center and one of those near it.
        let pair = |i: usize| {
            let mut others: Vec<usize> = (0..k).filter(|&j| j != i % k).collect();
            others.sort_by(|&a, &b| {
                let to = |j: usize| sq_dist(centers.row(i % k), centers.row(j));
                to(a).total_cmp(&to(b))
            });
            (i % k, others[i / k % 8])
        };
        let values: Vec<T> = (0..n).flat_map(|i| [midway(pair(i), 0), midway(pair(i), 1)]).collect();
        let rows = MatRef::new(&values, d);
        let packed = bounds.pack(centers, false, Executor::caller());
        bounds.forget();
        let (mut of_rows, mut work) = (bounds.take_rows(), BoundBuffers::default());
        let rules = bounds.rules(&packed, d);
        let RowBounds { upper, least, lower } = &mut of_rows;
        let mut of_sweep = RowBoundsMut { upper, least, lower };
        rules.near(&labels, &mut of_sweep, &mut work);
        rules.label(rows.into(), &labels, of_sweep, &mut work);
        for &(row, label) in &work.changes {
            labels[row as usize] = label;
        }
        for (r, &label) in labels.iter().enumerate() {
            let to = |j: usize| sq_dist(rows.row(r), centers.row(j));
            let nearest = (1..k).fold(0, |best, j| if to(j) < to(best) { j } else { best });
            assert_eq!(label as usize, nearest, "{what}, {}, offset {offset}: row {r}", T::NAME);
        }
        bounds.put_rows(of_rows);
        bounds.assert_true(rows, &labels, centers, what);
    }
}

/// Rows at the place of all centers get the first label, although all bounds are 0.
#[test]
fn rows_at_equal_centers_get_the_first_label() {
    let (n, k, d) = (30, 40, 2);
    let (rows, centers) = (vec![3.0f32; n * d], vec![3.0f32; k * d]);
    let (rows, centers) = (MatRef::new(&rows, d), MatRef::new(&centers, d));
    for balls in [false, true] {
        let mut bounds = PanelBounds::single(centers, n, 1 << 30, balls).unwrap();
        let packed = bounds.pack(centers, false, Executor::caller());
        let (mut of_rows, mut work) = (bounds.take_rows(), BoundBuffers::default());
        let RowBounds { upper, least, lower } = &mut of_rows;
        let rules = bounds.rules(&packed, d);
        let labels = vec![1; n];
        let mut of_sweep = RowBoundsMut { upper, least, lower };
        rules.near(&labels, &mut of_sweep, &mut work);
        rules.label(rows.into(), &labels, of_sweep, &mut work);
        assert!(
            work.changes.iter().map(|&(_, label)| label).eq([0; 30]),
            "balls {balls}: {:?}",
            work.changes
        );
    }
}

fn all_ties_are_decided<T: Compute>() {
    for offset in [0.0, 1e3] {
        ties_are_decided::<T>("balls", offset, |c, n| PanelBounds::single(c, n, 1 << 30, true).unwrap());
        ties_are_decided::<T>("one", offset, |c, n| PanelBounds::single(c, n, 1 << 30, false).unwrap());
        ties_are_decided::<T>("panels", offset, |c, n| PanelBounds::new(c, n, 1 << 30).unwrap());
        ties_are_decided::<T>("pairs", offset, |c, n| PanelBounds::grouped(c, n, 1 << 30, 2).unwrap());
        ties_are_decided::<T>("centers", offset, |c, n| PanelBounds::fine(c, n, 1 << 30).unwrap());
    }
}

#[test]
fn ties_are_decided_by_the_arbiter() {
    all_ties_are_decided::<f32>();
    all_ties_are_decided::<f64>();
}

/// The roundings that bounds allow grow with the values of a row, or with all columns.
#[test]
fn roundings_grow_with_the_columns() {
    let (k, d) = (40, 180);
    let centers = about_the_origin(k, d);
    let centers = MatRef::new(&centers, d);
    let [dense, sparse] = [false, true].map(|sparse| PackedCenters::for_rows(centers, sparse));
    let columns = d as f64 * f64::EPSILON;
    assert!(rounding_of(&dense, 1) >= 5.0 * f64::EPSILON && rounding_of(&dense, d) >= columns);
    assert!(rounding_of(&sparse, 1) >= columns && lost_of(&sparse) >= 2.0 * columns);
}

/// Bounds of `what` after a sweep over rows that all had the label 0 hold, also for centers that move afterwards, and
/// rows are labeled by the moved centers. Every bound of a row that may change its label within `beyond` is measured.
fn bounds_hold_apart(what: &str, by: f64, make: impl Fn(MatRef<'_, f64>, usize) -> PanelBounds) {
    let (n, d, k) = (400, 6, 150);
    let mut rng = Rng::keyed(4, Purpose::Seeding, 0);
    let mut draw = |n: usize, by: f64| (0..n).map(|_| by * (rng.unit() - 0.5)).collect::<Vec<f64>>();
    let (values, old) = (draw(n * d, 2.0), draw(k * d, 2.0));
    // Most centers move little, and some far.
    let far: Vec<f64> = draw(k, 2.0).iter().map(|share| by * share.powi(3)).collect();
    let new: Vec<f64> = draw(k * d, 1.0).iter().enumerate().map(|(i, x)| old[i] + far[i / d] * x).collect();
    let (rows, centers) = (MatRef::new(&values, d), MatRef::new(&old, d));
    let mut bounds = make(centers, n);
    let packed = bounds.pack(centers, false, Executor::caller());
    let (mut labels, mut of_rows, mut work) = (vec![0; n], bounds.take_rows(), BoundBuffers::default());
    let RowBounds { upper, least, lower } = &mut of_rows;
    let mut of_sweep = RowBoundsMut { upper, least, lower };
    let rules = bounds.rules(&packed, d);
    rules.near(&labels, &mut of_sweep, &mut work);
    rules.label(rows.into(), &labels, of_sweep, &mut work);
    for &(row, label) in &work.changes {
        labels[row as usize] = label;
    }
    bounds.put_rows(of_rows);
    bounds.assert_true(rows, &labels, centers, what);

    let unit = bounds.unit();
    let distance = |row: &[f64], center: &[f64]| unit * crate::kernel::sq_dist(row, center).sqrt();
    let moves =
        old.chunks_exact(d).zip(new.chunks_exact(d)).map(|(old, new)| distance(old, new) * (1.0 + 1e-9));
    let apart = bounds.apart::<f64>(&moves.collect::<Vec<f64>>());
    let packed = bounds.pack_apart(MatRef::new(&new, d), false).unwrap();
    let numbers: Vec<u32> = (0..n as u32).collect();
    let mut by_group = Vec::new();
    apart.by_group(&numbers, &mut by_group);
    let truth = |r: usize, label: u32| {
        let to = new.chunks_exact(d).map(|center| distance(rows.row(r), center));
        let others = to.clone().enumerate().filter(|&(j, _)| j != label as usize).map(|(_, to)| to);
        (to.clone().nth(label as usize).unwrap(), others.fold(f64::INFINITY, f64::min))
    };
    for (r, &label) in labels.iter().enumerate() {
        let ((own, others), (upper, least)) = (truth(r, label), apart.of_row(r, label));
        assert!(f64::from(upper) >= own && f64::from(least) <= others, "{what}: row {r}");
        assert!(by_group.get(r).is_none_or(|&least| f64::from(least) <= others), "{what}: groups of row {r}");
    }
    for beyond in [0.0f32, 0.1, 0.3] {
        let mut found = Vec::new();
        let rules = apart.rules(&packed, d, beyond);
        apart.settle(&rules, rows.into(), (&numbers, &labels), &mut Settling::default(), &mut found);
        for (r, &(label, upper, least)) in found.iter().enumerate() {
            let (own, others) = truth(r, label);
            assert!(own <= others, "{what}: label {label} of row {r}");
            assert!(upper >= own && least <= others, "{what}: bounds of row {r}");
            let settled = least >= own + f64::from(beyond) - 1e-4;
            assert!(
                settled || others - least < 1e-4,
                "{what}, {beyond}: row {r} at {own}, others {least}, {others}"
            );
        }
    }
}

#[test]
fn bounds_hold_for_centers_that_moved_since_the_sweep() {
    for by in [1.0, 0.1, 0.01] {
        bounds_hold_apart("panels", by, |centers, n| PanelBounds::new(centers, n, 1 << 20).unwrap());
        bounds_hold_apart("pairs", by, |centers, n| PanelBounds::grouped(centers, n, 1 << 20, 2).unwrap());
        bounds_hold_apart("one", by, |centers, n| PanelBounds::single(centers, n, 1 << 20, false).unwrap());
    }
}
