//! Tests of the bounds against true distances.

use super::*;
use crate::data::Dense;
use crate::fit::{Restartable, Solver};
use crate::kmeans::lloyd::params::{Algorithm, KMeans};
use crate::kmeans::lloyd::solver::Lloyd;
use crate::parallel::Executor;
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
                upper * (1.0 + 1e-6) >= distance(label as usize),
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
                        lower * (1.0 - 1e-6) <= truth,
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
    bounds.pack(MatRef::new(&values, d), false);
    for (size, starts_again) in [(0.5, false), (1e-4, false), (1e-9, true), (1e-10, false), (1e3, true)] {
        let before = bounds.unit;
        bounds.rows.upper.fill(1.0);
        bounds.pack(MatRef::new(&of(size), d), false);
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
