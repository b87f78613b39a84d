//! Tests labels where tile values tell little: values of any range, ties, near centers, far rows.

use super::battery::without_zeros;
use super::naive;
use crate::float::Float;
use crate::kernel::arbiter::is_exact;
use crate::kernel::doubt::{Doubt, Doubts};
use crate::kernel::strips::for_each_strip;
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
    let (dense, expected) = (rows, expected_lengths(rows, centers));
    let first = |lengths: &[f64]| {
        let least = lengths.iter().copied().fold(f64::INFINITY, f64::min);
        lengths.iter().position(|&l| l <= least * (1.0 + 1e-12)).unwrap() as u32
    };
    let labels: Vec<u32> = expected.iter().map(|lengths| first(lengths)).collect();
    let sparse = without_zeros(rows);
    for (rows, packed) in [
        (Rows::from(rows), PackedCenters::for_isa(centers, isa)),
        (sparse.rows(), PackedCenters::sparse_for_isa(centers, isa, crate::parallel::Executor::caller())),
    ] {
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
        let equal_to = |sq_dist: f64, length: f64, off: f64| {
            let expected = length * length;
            assert!(
                sq_dist == expected || (sq_dist - expected).abs() <= off * expected + f64::MIN_POSITIVE,
                "{sq_dist} {expected}"
            );
        };
        let equal = |sq_dist: f64, length: f64| equal_to(sq_dist, length, 1e-9);
        // Tile values have half of the digits of `T`.
        let half = T::EPSILON.sqrt();
        for (i, lengths) in expected.iter().enumerate() {
            assert_eq!(several[i * m], labels[i]);
            let mut sorted = lengths.clone();
            sorted.sort_by(f64::total_cmp);
            equal(best[i], sorted[0]);
            // The second is computed from a tile value.
            let j = lengths.iter().position(|&l| l == sorted[1]).unwrap();
            let norm = |v: &[T]| v.iter().map(|v| v.to_f64().powi(2)).sum::<f64>().sqrt();
            let size = (norm(dense.row(i)) + norm(centers.row(j))).powi(2);
            let off = (d + 4) as f64 * T::EPSILON * size;
            assert!((second[i] - sorted[1] * sorted[1]).abs() <= off || second[i] == sorted[1] * sorted[1]);
            (0..m).for_each(|q| equal(sq_dists[i * m + q], sorted[q]));
            (0..k).for_each(|j| equal_to(all[i * k + j], lengths[j], (d + 4) as f64 * half));
            for (found, expected) in plain[i * k..][..k].iter().zip(lengths) {
                assert!(
                    (found - expected).abs() <= (d + 4) as f64 * half * expected,
                    "{found:e} {expected:e}"
                );
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
        (sparse.rows(), PackedCenters::sparse_for_isa(centers, isa, crate::parallel::Executor::caller())),
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

/// Labels by the arbiter alone.
fn by_the_arbiter<T: Compute>(rows: MatRef<'_, T>, centers: MatRef<'_, T>) -> Vec<u32> {
    let label = |x: &[T]| {
        let sq_dists: Vec<f64> = centers.iter().map(|c| kernel::sq_dist(x, c)).collect();
        let least = sq_dists.iter().copied().fold(f64::INFINITY, f64::min);
        sq_dists.iter().position(|&sq_dist| sq_dist == least).unwrap() as u32
    };
    rows.iter().map(label).collect()
}

/// Checks the labels of every way to find them.
fn check_labels<T: Compute>(isa: Isa, rows: MatRef<'_, T>, centers: MatRef<'_, T>, what: &str) {
    let (n, k) = (rows.rows(), centers.rows());
    let wanted = by_the_arbiter(rows, centers);
    let (mut found, mut scratch) = (vec![u32::MAX; n], Scratch::default());
    nearest(rows, &PackedCenters::for_isa(centers, isa), &mut found, &mut scratch);
    assert_eq!(found, wanted, "{isa} {what}");
    let sparse = without_zeros(rows);
    nearest(
        sparse.rows(),
        &PackedCenters::sparse_for_isa(centers, isa, crate::parallel::Executor::caller()),
        &mut found,
        &mut scratch,
    );
    assert_eq!(found, wanted, "{isa} {what}, sparse");
    let m = k.min(3);
    let (mut several, mut sq_dists) = (vec![0; n * m], vec![0.0; n * m]);
    let packed = PackedCenters::for_isa(centers, isa);
    nearest_m(rows, &packed, m, &mut several, &mut sq_dists, &mut scratch);
    for (i, (several, sq_dists)) in several.chunks(m).zip(sq_dists.chunks(m)).enumerate() {
        let mut all: Vec<(f64, u32)> =
            (0..k).map(|j| (kernel::sq_dist(rows.row(i), centers.row(j)), j as u32)).collect();
        all.sort_by(|a, b| a.partial_cmp(b).unwrap());
        let found: Vec<(f64, u32)> = sq_dists.iter().copied().zip(several.iter().copied()).collect();
        assert_eq!(found, all[..m], "{isa} {what}, several");
    }
}

fn check_near<T: Compute>(isa: Isa, (n, k, d): (usize, usize, usize)) {
    let what = |kind: &str| format!("{kind} {} n={n} k={k} d={d}", T::NAME);
    let mut rng = Rng::keyed(5, Purpose::Seeding, (n * k + d) as u64);
    let mut values = |n: usize, from: f64, by: f64| -> Vec<T> {
        (0..n * d).map(|_| T::from_f64(from + by * rng.unit())).collect()
    };
    let ulp = T::EPSILON;
    for (kind, from, by) in [
        ("far", 1e4, 1.0),
        ("very far", 1e7, 10.0),
        ("nothing but rounding", 1.0, 40.0 * ulp),
        ("around the origin", -0.5, 1.0),
    ] {
        let (x, mut c) = (values(n, from, by), values(k, from, by));
        // Twins, and centers next to each other.
        for j in (1..k).step_by(3) {
            c.copy_within((j - 1) * d..j * d, j * d);
            if j % 2 == 0 {
                let value = &mut c[j * d + d / 2];
                *value = T::from_f64(value.to_f64() * (1.0 + ulp));
            }
        }
        check_labels(isa, MatRef::new(&x, d), MatRef::new(&c, d), &what(kind));
    }
    // Rows far from all centers.
    let (x, c) = (values(n, 1e5, 1.0), values(k, -0.5, 1.0));
    check_labels(isa, MatRef::new(&x, d), MatRef::new(&c, d), &what("far rows"));
    // Halfway between two centers, up to rounding.
    let c = values(k, -0.5, 1.0);
    let half = |i: usize, t: usize| {
        let (a, b) = (c[i % k * d + t].to_f64(), c[(i + 1) % k * d + t].to_f64());
        T::from_f64(f64::midpoint(a, b))
    };
    let x: Vec<T> = (0..n).flat_map(|i| (0..d).map(move |t| (i, t))).map(|(i, t)| half(i, t)).collect();
    check_labels(isa, MatRef::new(&x, d), MatRef::new(&c, d), &what("halfway"));
}

#[test]
fn labels_are_those_of_the_arbiter() {
    for isa in Isa::available() {
        for (n, k, d) in [(50, 3, 1), (70, 9, 2), (64, 40, 5), (40, 33, 17), (30, 70, 64), (25, 100, 300)] {
            check_near::<f32>(isa, (n, k, d));
            check_near::<f64>(isa, (n, k, d));
        }
    }
}

/// Points on a line, each of which is nearest to itself.
#[test]
fn every_point_is_its_own_nearest() {
    let points: Vec<f32> = (0..10_000).map(|i| i as f32).collect();
    let points = MatRef::new(&points, 1);
    let mut labels = vec![0; 10_000];
    nearest(points, &PackedCenters::new(points), &mut labels, &mut Scratch::default());
    assert!(labels.iter().enumerate().all(|(i, &label)| i == label as usize));
}

/// Twice the rounding of a tile value is within the doubt, also where all sums are rounded to one side.
#[test]
fn the_doubt_covers_the_rounding_of_tile_values() {
    for isa in Isa::available() {
        for d in [1usize, 4, 16, 100, 1000] {
            let (mut most, mut rng) = (0.0f64, Rng::keyed(1, Purpose::Seeding, d as u64));
            for step in 1..200 {
                // Every product is `step` of 400 units in the last place of the sum, so that each is lost or rounded
                // up. The other centers keep the shift at zero, and the one at the origin has the smallest value.
                let c: Vec<f32> =
                    (0..d).map(|t| if t == 0 { 1.0 + rng.unit() as f32 / 4.0 } else { 1e-3 }).collect();
                let unit = step as f32 / 400.0 * f32::EPSILON;
                let x: Vec<f32> = (0..d).map(|t| if t == 0 { 0.0 } else { unit / 2e-3 }).collect();
                let all: Vec<f32> =
                    c.iter().copied().chain(c.iter().map(|c| -c)).chain(vec![0.0; d]).collect();
                let packed = PackedCenters::for_isa(MatRef::new(&all, d), isa);
                assert!(packed.shift.iter().all(|&s| s == 0.0) && packed.scale == 1.0);
                let (mut label, scratch) = ([0], &mut Scratch::default());
                for_each_strip(MatRef::new(&x, d).into(), &packed, scratch, |_, strip, scratch| {
                    strip.two(&packed, scratch, &mut label);
                });
                let sq_norm: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
                let off = (f64::from(scratch.second[0]) + sq_norm - kernel::sq_dist(&x, &c)).abs();
                let doubt = f64::from(packed.doubt(d).of(sq_norm as f32, f32::INFINITY));
                assert!(2.0 * off <= doubt, "{isa} d={d}: {off:e} of {doubt:e}");
                most = most.max(2.0 * off / doubt);
            }
            // A bound without the number of columns would fail.
            assert!(d < 100 || most > 0.3, "{isa} d={d}: {most}");
        }
    }
}

/// The doubt has every rounding of tile values and of the arbiter, for few columns and for many.
fn check_roundings<T: Compute>(least: impl Fn(f64) -> f64) {
    for d in [1, 1000] {
        let mut centers = vec![T::ZERO; 2 * d];
        (centers[0], centers[d]) = (T::from_f32(1.0), T::from_f32(-1.0));
        let centers = MatRef::new(&centers, d);
        let (sparse, wide) = (
            PackedCenters::sparse_for_isa(centers, Isa::Scalar, crate::parallel::Executor::caller()),
            d as f64,
        );
        // For a row of length 1, with centers of the same length.
        let of = |values: usize| sparse.doubt_about(values, 1.0).of(T::from_f32(1.0), T::INFINITY).to_f64();
        let unit = 3.0 * T::EPSILON;
        assert!(of(d) >= least(wide) * unit, "{}, {d} columns: {:e}", T::NAME, of(d));
        // The squared length of a center in `f64` is a sum over all columns.
        assert!(!T::WIDE || of(1) >= wide * unit, "{d} columns: {:e}", of(1));
        // Errors of very long sums grow faster than the number of terms.
        let sum = 2e6 * 17.0 / 16.0 * f64::from(f32::EPSILON) / 2.0;
        assert!(T::WIDE || of(2_000_000) >= 5.999 * sum / (1.0 - sum), "{:e}", of(2_000_000));
        let far = Doubt::<T>::new(0.1, 1.0);
        assert!(far.of(T::ZERO, T::ZERO).to_f64() >= 0.3, "only small errors leave few centers in doubt");
        let near = sparse.doubt_about(d, 1.0);
        assert!(near.of(T::ZERO, T::ZERO) > T::ZERO, "squares may have underflowed");
    }
    let mut rng = Rng::keyed(8, Purpose::Seeding, 0);
    for _ in 0..50 {
        let center = [T::from_f64(rng.unit()), T::from_f64(rng.unit())];
        let all = [center, center.map(|x| T::ZERO - x), [T::ZERO; 2]].concat();
        let largest = PackedCenters::for_isa(MatRef::new(&all, 2), Isa::Scalar).largest_norm();
        assert!(largest >= center.iter().map(|x| x.to_f64().powi(2)).sum::<f64>().sqrt());
    }
}

#[test]
fn the_doubt_grows_with_the_columns() {
    check_roundings::<f32>(|d| 17.0 / 16.0 * d + 11.0);
    check_roundings::<f64>(|d| 3.0 * d + 12.0);
    assert!(is_exact::<f32>(1e-300) && !is_exact::<f64>(1e-300) && !is_exact::<f64>(f64::INFINITY));
}

/// Rows much longer than all centers need the share of their own length.
#[test]
fn the_doubt_grows_with_the_row() {
    for isa in Isa::available() {
        let (d, mut rng, mut beyond) = (100, Rng::keyed(2, Purpose::Seeding, 0), 0);
        for _ in 0..50 {
            let mut values = |by: f64| (0..d).map(|_| (by * (0.5 + rng.unit())) as f32).collect::<Vec<f32>>();
            let (x, c) = (values(1.0), values(1e-4));
            let all: Vec<f32> = c.iter().copied().chain(c.iter().map(|c| -c)).chain(vec![0.0; d]).collect();
            let packed = PackedCenters::for_isa(MatRef::new(&all, d), isa);
            let (mut label, scratch) = ([9], &mut Scratch::default());
            for_each_strip(MatRef::new(&x, d).into(), &packed, scratch, |_, strip, scratch| {
                strip.two(&packed, scratch, &mut label);
            });
            assert_eq!(label, [0]);
            let sq_norm: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
            let off = (f64::from(scratch.best[0]) + sq_norm - kernel::sq_dist(&x, &c)).abs();
            let doubt = packed.doubt(d);
            assert!(2.0 * off <= f64::from(doubt.of(sq_norm as f32, f32::INFINITY)), "{isa}");
            beyond += usize::from(2.0 * off > f64::from(doubt.of(0.0, f32::INFINITY)));
        }
        assert!(beyond > 0, "{isa}");
    }
}

/// With one center far away, few rows are in doubt: those whose tile values do not determine the nearest of the other
/// centers. Rows are near the centers of groups, or at a distance of about 1 from all centers, or much longer than
/// their distances from the nearest centers, so that each term of the doubt is needed.
#[test]
fn a_center_far_away_leaves_few_rows_in_doubt() {
    for isa in Isa::available() {
        for d in [2, 9, 40, 200] {
            check_far(isa, d, "groups", (1.0, 1.0));
        }
        for (name, length, apart) in [("sphere", 0.03, 1.0), ("long", 100.0, 1e-3)] {
            let differ = [2, 9, 40, 200].map(|d| check_far(isa, d, name, (length, apart)));
            assert!(differ.contains(&true), "{isa} {name}: tile values determine all labels");
        }
    }
}

/// Centers are `apart` from points at `length` from the origin. Rows are those points, or near centers. Returns whether
/// tile values alone give other labels.
fn check_far(isa: Isa, d: usize, name: &str, (length, apart): (f64, f64)) -> bool {
    let (n, k, mut rng) = (120, 24, Rng::keyed(5, Purpose::Seeding, d as u64));
    let mut direction = |by: f64| {
        let values: Vec<f64> = (0..d).map(|_| rng.unit() - 0.5).collect();
        let norm = values.iter().map(|x| x * x).sum::<f64>().sqrt();
        values.into_iter().map(|x| by * x / norm).collect::<Vec<f64>>()
    };
    let m = if name == "sphere" { 1 } else { 3 };
    let points: Vec<Vec<f64>> = (0..m).map(|_| direction(length)).collect();
    let near = |point: &[f64], by: Vec<f64>, sign: f64| -> Vec<f32> {
        point.iter().zip(by).map(|(x, y)| (sign * (x + y)) as f32).collect()
    };
    // Long centers are mirrored, so that no shift makes them short.
    let sign = |i: usize| if name == "sphere" || i.is_multiple_of(2) { 1.0 } else { -1.0 };
    let mut c: Vec<f32> = (0..k).flat_map(|j| near(&points[j % m], direction(apart), sign(j))).collect();
    c.extend(std::iter::repeat_n(1e6, d));
    let x: Vec<f32> = if name == "groups" {
        (0..n).flat_map(|i| c[i % k * d..][..d].iter().map(|c| c * 1.01).collect::<Vec<_>>()).collect()
    } else {
        (0..n).flat_map(|i| near(&points[i % m], direction(apart * 1e-8), sign(i))).collect()
    };
    let (rows, centers) = (MatRef::new(&x, d), MatRef::new(&c, d));
    let packed = PackedCenters::for_isa(centers, isa);
    let (mut labels, mut two, scratch) = (vec![9; n], vec![9; n], &mut Scratch::default());
    nearest(rows, &packed, &mut labels, scratch);
    let truth = naive::distances(rows, centers);
    let first = |all: &Vec<f64>| (0..all.len()).min_by(|&a, &b| all[a].total_cmp(&all[b])).unwrap() as u32;
    assert!(truth.iter().map(first).eq(labels.iter().copied()), "{isa} d={d} {name}");
    let mut doubts = Doubts::default();
    doubts.begin(&packed);
    for_each_strip(rows.into(), &packed, scratch, |range, strip, scratch| {
        strip.two(&packed, scratch, &mut two[range.clone()]);
        doubts.note_strip(rows.into(), range, &packed, scratch);
    });
    if name == "groups" {
        assert!(doubts.rows().len() < n / 20, "{isa} d={d}: {} rows", doubts.rows().len());
    }
    two != labels
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
        (sparse.rows(), PackedCenters::sparse_for_isa(centers, isa, crate::parallel::Executor::caller())),
    ]
    .map(|(rows, packed)| {
        let scratch = &mut Scratch::default();
        let (mut labels, mut also, mut several) = (vec![9; n], vec![9; n], vec![9; n * m]);
        let (mut best, mut second, mut sq_dists) = (vec![0.0; n], vec![0.0; n], vec![0.0; n * m]);
        nearest(rows, &packed, &mut labels, scratch);
        nearest_two(rows, &packed, &mut also, &mut best, &mut second, scratch);
        nearest_m(rows, &packed, m, &mut several, &mut sq_dists, scratch);
        assert_eq!(labels, also);
        for i in 0..n {
            assert_eq!(several[i * m], labels[i]);
            let near = |a: f64, b: f64| (a - b).abs() <= T::EPSILON.sqrt() * b;
            assert!(near(sq_dists[i * m], best[i]) && near(sq_dists[i * m + 1], second[i]));
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
    let (mut labels, mut sq_dists) = ([9; 4], [0.0; 4]);
    nearest_m(MatRef::new(&[-f64::MAX], 1), &packed, 4, &mut labels, &mut sq_dists, &mut Scratch::default());
    assert_eq!((labels, sq_dists[0]), ([3, 1, 2, 0], 0.0));
    assert!(sq_dists[1..].iter().all(|sq_dist| sq_dist.is_infinite()));
}
