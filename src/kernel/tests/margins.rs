//! Bounds that must hold for every rounding, next to the values that they bound; and where centers are moved to.

use super::battery::for_each_isa;
use crate::kernel::bounded::{Margins, between};
use crate::kernel::frame::Frame;
use crate::kernel::near::{Near, near};
use crate::kernel::operations;
use crate::kernel::tier::tier_of;
use crate::kernel::{PackedCenters, Scratch, nearest};
use crate::matrix::MatRef;
use crate::rng::{Purpose, Rng};
use crate::rows::Rows;

fn sq_dist(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum()
}

/// Every pair of rows is found that is exactly as far apart as the reach, although sums of many columns are rounded.
#[test]
fn near_misses_no_pair_at_the_reach() {
    let (n, d, mut rng) = (40, 512, Rng::keyed(3, Purpose::Seeding, 0));
    let centers: Vec<f32> = (0..n * d).map(|_| rng.unit() as f32 - 0.5).collect();
    // Short rows: nearly all rounding is that of the packed ones.
    let rows: Vec<f32> = (0..n * d).map(|_| (rng.unit() as f32 - 0.5) * 0.05).collect();
    let (centers, rows) = (MatRef::new(&centers, d), MatRef::new(&rows, d));
    let frame = Frame::of(centers, 0.5, false);
    let packed = PackedCenters::framed(centers, &frame, d, false);
    let none = packed.limits((0..n).map(|_| -1.0));
    let mut buffers = Near::default();
    for j in 0..n {
        let reach: Vec<f64> = (0..n).map(|r| sq_dist(rows.row(r), centers.row(j))).collect();
        let mut found = vec![false; n];
        near(Rows::Dense(rows), &packed, &reach, &none, &mut buffers, |r, other, _| {
            found[r] |= other == j;
            reach[r]
        });
        assert!(found.iter().all(|&found| found), "packed row {j}");
    }
}

/// Distances between centers are rounded down, also if moving the centers to the shift rounds them.
#[test]
fn centers_are_at_least_as_far_apart_as_between_says() {
    let (k, mut rng) = (120, Rng::keyed(4, Purpose::Seeding, 0));
    // The first column makes the shift pay. The second one is finer at the shift than at 512, where moving rounds
    // centers next to each other by different amounts.
    let values: Vec<f32> = (0..k)
        .flat_map(|j| {
            let apart = rng.unit() as f32 - 0.5;
            let second = match j % 5 {
                0 => 2000.0 * apart,
                1 => 512.1 + 0.01 * apart,
                _ => 0.1,
            };
            [1e6, second]
        })
        .collect();
    let centers = MatRef::new(&values, 2);
    let packed = PackedCenters::new(centers);
    assert_eq!(packed.shift[1], 0.1);
    let norm = packed.largest_norm();
    let margins = Margins { norm: norm as f32, gamma: (18.0 * f32::EPSILON), unit: 1.0, off: 0.0 };
    let found = between(&packed, margins);
    for i in 0..k {
        for j in 0..k {
            let (least, truth) =
                (f64::from(found[i * k + j]), sq_dist(centers.row(i), centers.row(j)).sqrt());
            assert!(least <= truth, "{least} for centers {i} and {j}, at {truth}");
        }
    }
}

/// The reach of a row covers the rounding of two tile values.
#[test]
fn the_reach_covers_rounding() {
    let upper: Vec<f32> = (0..40).map(|i| 1.5f32.powi(i - 30)).collect();
    let (norm, gamma) = (3.0f64, 1e-5);
    let margins = Margins { norm: norm as f32, gamma: gamma as f32, unit: 1.0, off: 0.0 };
    for_each_isa(|isa| {
        let mut out = vec![0.0; upper.len()];
        operations::reach(tier_of::<f32>(isa), margins, &upper, &mut out);
        for (&upper, &reach) in upper.iter().zip(&out) {
            let (upper, reach) = (f64::from(upper), f64::from(reach));
            let least = (upper * upper + 4.0 * gamma * ((norm + upper).powi(2) + norm * norm)).sqrt();
            assert!((least * (1.0 - 1e-6)..least * 1.001).contains(&reach), "{isa}: {reach} of {least}");
        }
    });
}

/// Whether rows and centers are moved.
fn is_shifted(centers: &[f32]) -> bool {
    PackedCenters::new(MatRef::new(centers, 1)).shift[0] != 0.0
}

/// The shift is used once the median is farther from the origin than the centers from each other.
#[test]
fn the_shift_depends_on_the_spread() {
    assert!(!is_shifted(&[-1.0, 1.0, 3.0]));
    assert!(is_shifted(&[2.0, 3.0, 4.0]) && is_shifted(&[-2.0, -3.0, -4.0]));
    assert!(!is_shifted(&[0.5, 3.0, 20.0]));
    // One outlier does not hide a clump.
    assert!(is_shifted(&[100.0, 100.5, 101.0, 101.5, -1e6]));
}

/// Prices count where many centers of few columns share a comparison, and also if they are negative.
#[test]
fn prices_count_among_many_centers() {
    let centers: Vec<f32> = (0..600).map(|j| j as f32).collect();
    for (dear, others) in [(1e6, 0.0), (0.0, -1e6)] {
        let mut prices = vec![others; 600];
        prices[0] = dear;
        let packed = PackedCenters::new(MatRef::new(&centers, 1)).priced(&prices);
        let mut labels = [9; 2];
        nearest(MatRef::new(&[0.2, 7.3], 1), &packed, &mut labels, &mut Scratch::default());
        assert_eq!(labels, [1, 7]);
    }
}

/// A price is in the units of the rows, also where centers are scaled.
#[test]
fn prices_are_scaled_with_the_centers() {
    let (k, d, n) = (12, 20, 50);
    for size in [1.0f32, 1e-12, 1e12] {
        let mut rng = Rng::keyed(6, Purpose::Seeding, 0);
        let mut values = |n: usize| (0..n * d).map(|_| rng.unit() as f32 * size).collect::<Vec<f32>>();
        let (rows, centers) = (values(n), values(k));
        let (rows, centers) = (MatRef::new(&rows, d), MatRef::new(&centers, d));
        let prices: Vec<f64> = (0..k).map(|j| (j * 7 % k) as f64 * 0.3 * f64::from(size).powi(2)).collect();
        let packed = PackedCenters::new(centers).priced(&prices);
        assert_eq!(packed.scale() == 1.0, size == 1.0);
        let mut labels = vec![0; n];
        nearest(rows, &packed, &mut labels, &mut Scratch::default());
        let cost = |i: usize, j: usize| sq_dist(rows.row(i), centers.row(j)) + prices[j];
        let wanted =
            (0..n).map(|i| (0..k).min_by(|&a, &b| cost(i, a).total_cmp(&cost(i, b))).unwrap() as u32);
        assert!(wanted.eq(labels), "{size}");
    }
}
