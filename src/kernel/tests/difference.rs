//! Tests centers whose tile values `T` cannot represent.

use super::battery::without_zeros;
use crate::float::Float;
use crate::kernel::{self, Compute, Isa, PackedCenters, Scratch, distances, nearest, nearest_m, nearest_two};
use crate::matrix::MatRef;
use crate::rng::{Purpose, Rng};
use crate::rows::Rows;

/// Rows near multiples of 10, times `unit`, with every seventh row at `far`. The first `k` rows are centers,
/// and the last center is moved to `far`.
fn problem<T: Float>(n: usize, k: usize, d: usize, (unit, far): (f64, f64)) -> (Vec<T>, Vec<T>) {
    let mut rng = Rng::keyed(7, Purpose::Seeding, (n + d) as u64);
    let mut value = |i: usize| {
        if i % 7 == 6 { far } else { unit * (10.0 * (i % k) as f64 + rng.unit()) }
    };
    let rows: Vec<T> = (0..n).flat_map(|i| vec![value(i); d]).map(T::from_f64).collect();
    let mut centers = rows[..k * d].to_vec();
    centers[(k - 1) * d..].fill(T::from_f64(far));
    (rows, centers)
}

/// Distances, computed without overflow.
fn expected_lengths<T: Float>(rows: MatRef<'_, T>, centers: MatRef<'_, T>) -> Vec<Vec<f64>> {
    let pair = |x: &[T], c: &[T]| {
        let apart = || x.iter().zip(c).map(|(a, b)| (a.to_f64() - b.to_f64()).abs());
        let most = apart().fold(0.0, f64::max);
        if most > 0.0 { most * apart().map(|a| (a / most).powi(2)).sum::<f64>().sqrt() } else { 0.0 }
    };
    rows.iter().map(|x| centers.iter().map(|c| pair(x, c)).collect()).collect()
}

fn check<T: Compute>(isa: Isa, (n, k, d): (usize, usize, usize), range: (f64, f64)) {
    let (x, c) = problem::<T>(n, k, d, range);
    let (rows, centers) = (MatRef::new(&x, d), MatRef::new(&c, d));
    let expected = expected_lengths(rows, centers);
    let first = |lengths: &[f64]| {
        let least = lengths.iter().copied().fold(f64::INFINITY, f64::min);
        lengths.iter().position(|&l| l <= least * (1.0 + 1e-12)).unwrap() as u32
    };
    let labels: Vec<u32> = expected.iter().map(|lengths| first(lengths)).collect();
    let sparse = without_zeros(rows);
    for (rows, packed) in [
        (Rows::from(rows), PackedCenters::for_isa(centers, isa)),
        (sparse.rows(), PackedCenters::sparse_for_isa(centers, isa)),
    ] {
        assert!(packed.by_difference(), "{isa} {k} {d} {range:?}");
        let scratch = &mut Scratch::default();
        let mut found = vec![9; n];
        nearest(rows, &packed, &mut found, scratch);
        assert_eq!(found, labels, "{isa} {k} {d} {range:?}");
        let (mut best, mut second) = (vec![0.0; n], vec![0.0; n]);
        nearest_two(rows, &packed, &mut found, &mut best, &mut second, scratch);
        let (m, mut all) = (k.min(3), vec![0.0; n * k]);
        let (mut several, mut sq_dists) = (vec![0; n * m], vec![0.0; n * m]);
        nearest_m(rows, &packed, m, &mut several, &mut sq_dists, scratch);
        distances(rows, &packed, &mut all, scratch);
        let mut plain = vec![0.0; n * k];
        kernel::lengths(rows, &packed, &mut plain, scratch);
        assert_eq!(found, labels);
        let equal = |sq_dist: f64, length: f64| {
            let expected = length * length;
            assert!(
                sq_dist == expected || (sq_dist - expected).abs() <= 1e-9 * expected + f64::MIN_POSITIVE,
                "{sq_dist} {expected}"
            );
        };
        for (i, lengths) in expected.iter().enumerate() {
            assert_eq!(several[i * m], labels[i]);
            let mut sorted = lengths.clone();
            sorted.sort_by(f64::total_cmp);
            equal(best[i], sorted[0]);
            equal(second[i], sorted[1]);
            (0..m).for_each(|q| equal(sq_dists[i * m + q], sorted[q]));
            (0..k).for_each(|j| equal(all[i * k + j], lengths[j]));
            for (found, expected) in plain[i * k..][..k].iter().zip(lengths) {
                assert!((found - expected).abs() <= 1e-9 * expected, "{found:e} {expected:e}");
            }
        }
    }
}

#[test]
fn every_row_finds_its_center_whatever_the_range() {
    for isa in Isa::available() {
        for (k, d) in [(4, 1), (5, 3), (4, 17), (20, 40), (40, 2), (64, 130)] {
            for range in [(1.0, 1e20), (1.0, 1e38), (1e-25, 1.0), (1e-40, 1e38)] {
                check::<f32>(isa, (75, k, d), range);
            }
            for range in [(1.0, 1e200), (1e-160, 1.0), (1e-300, 1e300), (1e-310, 1.0)] {
                check::<f64>(isa, (75, k, d), range);
            }
        }
    }
}

/// Checks distances of `n` random rows to `k` centers, all of magnitude `unit`.
fn check_lengths<T: Compute>(isa: Isa, (n, k, d): (usize, usize, usize), unit: f64) {
    let mut rng = Rng::keyed(11, Purpose::Seeding, (n * k + d) as u64);
    let mut values = |n: usize| -> Vec<T> {
        (0..n * d).map(|i| T::from_f64(if i % 3 == 1 { 0.0 } else { unit * (rng.unit() - 0.5) })).collect()
    };
    let (mut x, c) = (values(n), values(k));
    // A row at a center, and one next to it.
    x[..d].copy_from_slice(&c[..d]);
    x[d..2 * d].copy_from_slice(&c[..d]);
    x[d] = T::from_f64(x[d].to_f64() * (1.0 + 1e-3));
    let (rows, centers) = (MatRef::new(&x, d), MatRef::new(&c, d));
    let (expected, sparse) = (expected_lengths(rows, centers), without_zeros(rows));
    for (rows, packed) in [
        (Rows::from(rows), PackedCenters::for_isa(centers, isa)),
        (sparse.rows(), PackedCenters::sparse_for_isa(centers, isa)),
    ] {
        let mut found = vec![f64::NAN; n * k];
        kernel::lengths(rows, &packed, &mut found, &mut Scratch::default());
        for (found, expected) in found.iter().zip(expected.iter().flatten()) {
            let off = (found - expected).abs();
            // Tile values have half of the digits of `T`.
            assert!(
                off <= T::EPSILON.sqrt() * expected,
                "{isa} {k} {d} {unit:e}: {found:e}, not {expected:e}"
            );
        }
    }
}

#[test]
fn distances_of_any_magnitude_are_measured() {
    for isa in Isa::available() {
        for (k, d) in [(1, 1), (3, 4), (5, 17), (40, 3), (64, 130)] {
            for unit in [1e-310, 1e-300, 1e-170, 1e-155, 1e-100, 1.0, 1e100, 1e153, 1e170, 1e300] {
                check_lengths::<f64>(isa, (40, k, d), unit);
            }
            for unit in [1e-30, 1e-20, 1.0, 1e20, 1e37] {
                check_lengths::<f32>(isa, (40, k, d), unit);
            }
        }
        // Rows and centers of different magnitude.
        let centers = PackedCenters::for_isa(MatRef::new(&[0.0, 1.0], 1), isa);
        let mut found = [0.0; 6];
        let rows = MatRef::new(&[1e-170, 3e-320, 1e170], 1);
        kernel::lengths(rows.into(), &centers, &mut found, &mut Scratch::default());
        assert_eq!(found, [1e-170, 1.0, 3e-320, 1.0, 1e170, 1e170]);
    }
}

fn differs<T: Compute>(centers: &[f64]) -> [bool; 2] {
    let centers: Vec<T> = centers.iter().map(|&c| T::from_f64(c)).collect();
    [false, true].map(|sparse| PackedCenters::for_rows(MatRef::new(&centers, 1), sparse).by_difference())
}

#[test]
fn ordinary_centers_have_tile_values() {
    for centers in [
        &[0.0, 10.0, 20.0, 1e9][..],
        &[0.0, 10.0, 20.0, 1e16],
        &[5.0, 5.0, 5.0, 5.0],
        &[0.0, 0.0, 1e30],
        &[1e30, 2e30, 3e30],
        &[1e-30, 2e-30, 3e-30],
        &[1e-40, 2e-40, 3e-40],
        &[0.0],
    ] {
        assert_eq!(
            (differs::<f32>(centers), differs::<f64>(centers)),
            ([false; 2], [false; 2]),
            "{centers:?}"
        );
    }
    // Too close for f32 only; near the shift of dense rows, but not near the origin.
    assert_eq!(
        (differs::<f32>(&[0.0, 10.0, 1e20]), differs::<f64>(&[0.0, 10.0, 1e20])),
        ([true; 2], [false; 2])
    );
    assert_eq!(differs::<f32>(&[1e4, 10_001.0, 10_002.0]), [false, true]);
    // The distance that tells two centers apart is `2 sqrt(EPSILON)` times the length of the longer one: 7e-4 of 1, or
    // of 2 after the shift of dense rows.
    for (apart, differ) in [(5e-4, [true; 2]), (9e-4, [true, false]), (2e-3, [false; 2])] {
        assert_eq!(differs::<f32>(&[1.0, 1.0 + apart, -1.0 - apart, -1.0]), differ, "{apart}");
    }
    assert_eq!(differs::<f32>(&[1e4, 10_001.0, 10_002.0, -1e4]), [false, true]);
    assert_eq!(differs::<f32>(&[1e4, 10_001.0, -10_001.0, -1e4]), [true; 2]);
    assert_eq!(differs::<f64>(&[1e4, 10_001.0, -10_001.0, -1e4]), [false; 2]);
    assert_eq!(differs::<f64>(&[1e9, 1e9 + 1.0, -1e9]), [false, true]);
}

#[test]
fn the_order_of_the_centers_does_not_matter() {
    let mut centers: Vec<f32> = (0..40).map(|j| j as f32).collect();
    for far in [100.0, 1e20] {
        centers[17] = far;
        let order: Vec<u32> = (0..40).map(|s| (s * 7) % 40).collect();
        let matrix = MatRef::new(&centers, 1);
        let ordered = PackedCenters::in_order(matrix, &order, false);
        assert_eq!(ordered.by_difference(), PackedCenters::new(matrix).by_difference());
        assert_eq!(ordered.by_difference(), far > 1e9);
    }
}

/// Rows that are palindromes, and pairs of centers that are reversed copies of each other: only the order of
/// summation decides between them.
fn check_ties<T: Compute>(isa: Isa, d: usize, far: f64) {
    let (n, k, m) = (70, 9, 4);
    let mut rng = Rng::keyed(3, Purpose::Seeding, d as u64);
    let mut value = || if rng.unit() < 0.4 { 0.0 } else { rng.unit() };
    let mut centers: Vec<T> = Vec::new();
    for _ in 0..k / 2 {
        let center: Vec<T> = (0..d).map(|_| T::from_f64(value())).collect();
        centers.extend(&center);
        centers.extend(center.iter().rev());
    }
    centers.extend(vec![T::from_f64(far); d]);
    let mut rows: Vec<T> = (0..n * d).map(|_| T::from_f64(value())).collect();
    for row in rows.chunks_exact_mut(d) {
        (0..d / 2).for_each(|t| row[d - 1 - t] = row[t]);
    }
    let (rows, centers) = (MatRef::new(&rows, d), MatRef::new(&centers, d));
    let sparse = without_zeros(rows);
    let [dense, sparse] = [
        (Rows::from(rows), PackedCenters::for_isa(centers, isa)),
        (sparse.rows(), PackedCenters::sparse_for_isa(centers, isa)),
    ]
    .map(|(rows, packed)| {
        assert!(packed.by_difference());
        let scratch = &mut Scratch::default();
        let (mut labels, mut also, mut several) = (vec![9; n], vec![9; n], vec![9; n * m]);
        let (mut best, mut second, mut sq_dists) = (vec![0.0; n], vec![0.0; n], vec![0.0; n * m]);
        nearest(rows, &packed, &mut labels, scratch);
        nearest_two(rows, &packed, &mut also, &mut best, &mut second, scratch);
        nearest_m(rows, &packed, m, &mut several, &mut sq_dists, scratch);
        assert_eq!(labels, also);
        for i in 0..n {
            assert_eq!(several[i * m], labels[i]);
            assert_eq!((sq_dists[i * m], sq_dists[i * m + 1]), (best[i], second[i]));
            assert!(sq_dists[i * m..][..m].is_sorted(), "{:?}", &sq_dists[i * m..][..m]);
        }
        (several, sq_dists)
    });
    assert_eq!(dense, sparse, "{isa} {d}");
}

#[test]
fn sparse_rows_have_the_labels_of_dense_ones() {
    for isa in Isa::available() {
        for d in [2, 5, 17, 40, 130] {
            check_ties::<f32>(isa, d, 1e20);
            check_ties::<f64>(isa, d, 1e200);
        }
    }
}

#[test]
fn centers_at_no_finite_distance_come_last() {
    let centers = [f64::MAX, 1.0, 3.0, -f64::MAX];
    let packed = PackedCenters::new(MatRef::new(&centers, 1));
    assert!(packed.by_difference());
    let (mut labels, mut sq_dists) = ([9; 4], [0.0; 4]);
    nearest_m(MatRef::new(&[-f64::MAX], 1), &packed, 4, &mut labels, &mut sq_dists, &mut Scratch::default());
    assert_eq!((labels, sq_dists[0]), ([3, 1, 2, 0], 0.0));
    assert!(sq_dists[1..].iter().all(|sq_dist| sq_dist.is_infinite()));
}
