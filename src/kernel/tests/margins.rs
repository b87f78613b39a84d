//! Bounds that must hold for every rounding, next to the values that they bound; and where centers are moved to.

use crate::kernel::blocks::of_differences;
use crate::kernel::bounded::{BoundColumn, Gathered, Margins, Radii, between, radii, renew, upper};
use crate::kernel::candidates::gamma;
use crate::kernel::frame::Frame;
use crate::kernel::near::{Near, near};
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

/// Every column but the first has a product that is lost in the sum, so that a long row or a long packed row makes the
/// tile value too large.
#[test]
fn near_finds_pairs_whose_products_are_lost() {
    let d = 512;
    let frame = Frame::of(MatRef::new(&vec![0.0f32; d], d), 1.0, false);
    for (of_row, of_packed) in [(1.0f32, 1.0 / 16.0), (1.0 / 16.0, 1.0)] {
        // Less than half a unit in the last place of the sum of the first column.
        let sum = if of_packed < of_row { 2f32.powi(-3) } else { 0.5 };
        let small = (0.48 * sum * f32::EPSILON / 4.0).sqrt();
        let [row, packed] = [of_row, of_packed].map(|first| {
            let mut values = vec![small; d];
            values[0] = first;
            values
        });
        let reach = [sq_dist(&row, &packed)];
        let packed = PackedCenters::framed(MatRef::new(&packed, d), &frame, d, false);
        let (none, mut found) = (packed.limits(std::iter::once(-1.0)), 0);
        near(MatRef::new(&row, d).into(), &packed, &reach, &none, &mut Near::default(), |_, _, sq_dist| {
            found += usize::from(sq_dist <= reach[0]);
            reach[0]
        });
        assert_eq!(found, 1, "{of_row} {of_packed}");
    }
}

/// Squares that underflow do not hide a pair.
#[test]
fn near_finds_pairs_at_distances_that_underflow() {
    let frame = Frame::of(MatRef::new(&[0.0f32], 1), 1.0, false);
    let packed = PackedCenters::framed(MatRef::new(&[0.0f32, 1.0], 1), &frame, 1, false);
    let (none, mut found) = (packed.limits([-1.0, -1.0].into_iter()), Vec::new());
    near(MatRef::new(&[1e-25f32], 1).into(), &packed, &[1e-49], &none, &mut Near::default(), |_, j, _| {
        found.push(j);
        1e-49
    });
    assert_eq!(found, [0]);
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

/// Bounds on distances are rounded outward where they become `f32`, and every margin widens them.
#[test]
fn bounds_of_rows_are_rounded_outward() {
    let mut rng = Rng::keyed(5, Purpose::Seeding, 0);
    let n = 200;
    let own: Vec<f64> = (0..n).map(|_| 4.0 * rng.unit()).collect();
    let plain = Margins { norm: 0.0, gamma: 0.0, unit: 1.0, off: 0.0 };
    for margins in [
        plain,
        Margins { off: 1.0, ..plain },
        Margins { gamma: 1e-3, ..plain },
        Margins { gamma: 1e-3, norm: 2.0, ..plain },
        Margins { norm: 1e10, ..plain },
    ] {
        let mut found = Radii { own: own.clone(), ..Radii::default() };
        found.resize(n);
        radii(margins, &mut found);
        let Margins { norm, gamma, off, .. } = margins;
        for (i, own) in own.iter().enumerate() {
            let distance = (own + off).sqrt();
            let (row, upper) = (norm + distance, f64::from(found.upper[i]));
            let least = distance * (1.0 + gamma) + 4.0 * f64::EPSILON * (row + norm);
            assert!(upper >= least * (1.0 + 1e-9), "{margins:?}: {upper} {least}");
            let least = 2.0 * gamma * (row * row + norm * norm);
            assert!(found.error[i] >= least * (1.0 - 1e-9), "{margins:?}: {} {least}", found.error[i]);
        }
    }
    // The squared distance is that of `own`, as a tile value and two squared lengths.
    let gathered = Gathered { sq_norm: vec![1.0; n], ..Gathered::default() };
    let low: Vec<f64> = own.iter().map(|own| own - 1.0).collect();
    let picked: Vec<u32> = (0..n as u32).collect();
    for (error, drift) in [(0.0, 0.0), (0.5, 0.0), (0.0, 1.0), (0.5, 300.0)] {
        let mut bounds = vec![0.0; n];
        let to = BoundColumn { lower: &mut bounds, width: 1, column: 0 };
        renew(&gathered, &picked, (&low, &vec![error; n]), plain, drift, to);
        for (i, (&own, lower)) in own.iter().zip(bounds).enumerate() {
            let (least, most) = (f64::max(own - error, 0.0).sqrt() + f64::from(drift), (own + error).sqrt());
            assert!(f64::from(lower) <= least * (1.0 - 1e-9), "{error} {drift}: {lower} {least}");
            let upper = f64::from(upper(&gathered, i, low[i], error, plain));
            assert!(upper >= most * (1.0 + 1e-9), "{error}: {upper} {most}");
        }
    }
}

/// Margins of boxes, of leaves and of pairs of rows have every rounding, for few columns and for many.
#[test]
fn margins_grow_with_the_columns() {
    let epsilon = f64::from(f32::EPSILON);
    for d in [1, 1000] {
        let wide = d as f64;
        assert!(f64::from(gamma::<f32>(d)) >= (2.0 * wide + 9.0) * epsilon, "{d}");
        assert!(f64::from(of_differences::<f32>(d).share) >= (2.0 * wide + 15.0) * epsilon, "{d}");
        let row = vec![1.0f32; d];
        let frame = Frame::of(MatRef::new(&row, d), 1.0, false);
        let packed = PackedCenters::framed(MatRef::new(&row, d), &frame, d, false);
        assert!(packed.slack >= (wide + 4.0) * epsilon, "{d}");
    }
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
