//! Tests that every kernel must pass, for every instruction set.

use proptest::prelude::*;

use super::naive;
use crate::float::Float;
use crate::kernel::listed::RowCenters;
use crate::kernel::{
    Compute, Isa, PackedCenters, Scratch, accumulate, distances, nearest, nearest_m, nearest_two, sq_dist,
    sq_dists,
};
use crate::matrix::MatRef;
use crate::rng::{Purpose, Rng};
use crate::rows::{RowBuf, Rows, SparseRef, spread};

/// A kind of test values.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Between -1 and 1.
    Plain,
    /// Small integers with many ties and duplicates.
    Ties,
    /// Plain, 1e4 away from the origin.
    Far,
    /// Plain, times 1e25 (or the `f64` equivalent).
    Huge,
    /// Plain, times 1e-25 (or the `f64` equivalent).
    Tiny,
    /// Small integers, nearly all zero, so that whole columns of a micro tile are zero.
    Zeros,
}

const KINDS: [Kind; 6] = [Kind::Plain, Kind::Ties, Kind::Far, Kind::Huge, Kind::Tiny, Kind::Zeros];

fn values<T: Float>(kind: Kind, len: usize, seed: u64) -> Vec<T> {
    let mut rng = Rng::keyed(seed, Purpose::Seeding, len as u64);
    let power = if size_of::<T>() == 4 { 25 } else { 140 };
    (0..len)
        .map(|_| {
            let unit = 2.0 * rng.unit() - 1.0;
            T::from_f64(match kind {
                Kind::Plain => unit,
                Kind::Ties => (unit * 2.5).round(),
                Kind::Far => unit + 1e4,
                Kind::Huge => unit * 10f64.powi(power),
                Kind::Tiny => unit * 10f64.powi(-power),
                Kind::Zeros => ((unit - 0.97).max(0.0) * 200.0).ceil(),
            })
        })
        .collect()
}

/// Rows and centers of one kind. Every third center equals a row, so that there are distances of 0 and
/// duplicates.
pub(super) fn problem<T: Float>(kind: Kind, n: usize, k: usize, d: usize, seed: u64) -> (Vec<T>, Vec<T>) {
    let x = values(kind, n * d, seed);
    let mut c = values(kind, k * d, seed + 1);
    for j in (0..k).step_by(3) {
        let i = (j * 7) % n;
        c[j * d..(j + 1) * d].copy_from_slice(&x[i * d..(i + 1) * d]);
    }
    (x, c)
}

fn check<T: Compute>(isa: Isa, kind: Kind, n: usize, k: usize, d: usize, seed: u64) {
    check_rows::<T>(isa, kind, (n, k, d), seed, false);
    check_rows::<T>(isa, kind, (n, k, d), seed, true);
}

/// The same rows in sparse form.
pub(super) fn without_zeros<T: Float>(rows: MatRef<'_, T>) -> RowBuf<T> {
    let mut sparse = RowBuf::sparse(rows.cols());
    for row in rows.iter() {
        for (column, &x) in row.iter().enumerate().filter(|(_, x)| **x != T::ZERO) {
            sparse.columns.push(column as i32);
            sparse.values.push(x);
        }
        sparse.end_row();
    }
    sparse
}

fn check_rows<T: Compute>(isa: Isa, kind: Kind, (n, k, d): (usize, usize, usize), seed: u64, sparse: bool) {
    let (x, c) = problem::<T>(kind, n, k, d, seed);
    let (dense, centers) = (MatRef::new(&x, d), MatRef::new(&c, d));
    let stored = without_zeros(dense);
    let rows = if sparse { stored.rows() } else { dense.into() };
    let packed = if sparse {
        PackedCenters::sparse_for_isa(centers, isa, crate::parallel::Executor::caller())
    } else {
        PackedCenters::for_isa(centers, isa)
    };
    let scratch = &mut Scratch::default();
    let truth = naive::distances(dense, centers);
    let what = format!("{isa} {kind:?} {} sparse={sparse} n={n} k={k} d={d}", T::NAME);
    let widest = c.iter().chain(&x).map(|v| v.to_f64().abs()).fold(0.0, f64::max);
    // The distance of a sparse row is a difference of sums.
    let apart = if sparse { 1e-15 * widest * widest * (d * d) as f64 } else { 0.0 };
    let widest = if matches!(kind, Kind::Far) && !sparse { 3.0 } else { widest };
    let slack = naive::tolerance::<T>(d, widest * widest * d as f64, widest * widest * d as f64);

    let mut labels = vec![u32::MAX; n];
    nearest(rows, &packed, &mut labels, scratch);
    let (mut labels2, mut best, mut second) = (vec![u32::MAX; n], vec![0.0; n], vec![0.0; n]);
    nearest_two(rows, &packed, &mut labels2, &mut best, &mut second, scratch);
    assert_eq!(labels, labels2, "{what}");
    let m = k.min(5);
    let (mut near, mut near_dists) = (vec![0; n * m], vec![0.0; n * m]);
    nearest_m(rows, &packed, m, &mut near, &mut near_dists, scratch);
    let mut all = vec![0.0; n * k];
    distances(rows, &packed, &mut all, scratch);
    let mut own = vec![0.0; n];
    sq_dists(rows, &labels, &packed, &mut own);

    for i in 0..n {
        let t = &truth[i];
        let mut sorted = t.clone();
        sorted.sort_by(f64::total_cmp);
        let j = labels[i] as usize;
        // The lowest index among equals.
        let exact: Vec<f64> = centers.iter().map(|c| sq_dist(dense.row(i), c)).collect();
        let least = exact.iter().copied().fold(f64::INFINITY, f64::min);
        assert_eq!(Some(j), exact.iter().position(|&v| v == least), "{what}: row {i}");
        assert!((own[i] - t[j]).abs() <= 1e-13 * t[j] + apart, "{what}");
        assert_eq!(best[i], own[i], "{what}");
        if k > 1 {
            assert!((second[i] - sorted[1]).abs() <= slack, "{what}: second {} not {}", second[i], sorted[1]);
        } else {
            assert_eq!(second[i], f64::INFINITY);
        }
        for q in 0..m {
            let at = near[i * m + q] as usize;
            assert!((t[at] - sorted[q]).abs() <= slack, "{what}: neighbor {q} of row {i}");
            assert!((near_dists[i * m + q] - t[at]).abs() <= 1e-13 * t[at] + apart, "{what}");
        }
        assert_eq!(near[i * m], labels[i], "{what}");
        for (a, t) in all[i * k..(i + 1) * k].iter().zip(t) {
            assert!((a - t).abs() <= slack.min(0.02 * t), "{what}: distance {a} not {t}");
        }
    }

    check_listed(isa, (rows, centers), &truth, apart, &what);

    check_sums(rows, dense, &labels, &packed, &truth, apart, &what);
}

/// Adds the rows to the sums of their centers, with and without weights.
fn check_sums<T: Compute>(
    rows: Rows<'_, T>,
    dense: MatRef<'_, T>,
    labels: &[u32],
    packed: &PackedCenters<T>,
    truth: &[Vec<f64>],
    apart: f64,
    what: &str,
) {
    let (n, k, d) = (dense.rows(), packed.n_centers(), dense.cols());
    let weights: Vec<f64> = (0..n).map(|i| 0.5 + (i % 4) as f64).collect();
    for weights in [None, Some(&weights[..])] {
        let (mut sums, mut totals) = (vec![0.0; k * d], vec![0.0; k]);
        let mut energies = vec![0.0; k];
        accumulate(rows, labels, weights, packed, &mut sums, &mut totals, &mut energies);
        let (mut sums_t, mut totals_t, mut energies_t) = (vec![0.0; k * d], vec![0.0; k], vec![0.0; k]);
        for (i, &j) in labels.iter().enumerate() {
            let w = weights.map_or(1.0, |w| w[i]);
            energies_t[j as usize] += w * truth[i][j as usize];
            totals_t[j as usize] += w;
            for t in 0..d {
                sums_t[j as usize * d + t] += w * dense.row(i)[t].to_f64();
            }
        }
        assert_eq!((sums, totals), (sums_t, totals_t), "{what}");
        for (energy, energy_t) in energies.iter().zip(energies_t) {
            assert!((energy - energy_t).abs() <= 1e-12 * energy_t + apart * n as f64, "{what}");
        }
    }
}

/// Compares rows with some centers, partly repeated, and adds rows to their sums.
fn check_listed<T: Compute>(
    isa: Isa,
    (rows, centers): (Rows<'_, T>, MatRef<'_, T>),
    truth: &[Vec<f64>],
    apart: f64,
    what: &str,
) {
    let (k, d) = (centers.rows(), centers.cols());
    let sparse = matches!(rows, Rows::Sparse(_));
    let listed = RowCenters::for_isa(centers, sparse, isa);
    let unit = listed.unit();
    let slack = 2.0 * (d + 4) as f64 * T::EPSILON;
    let factors: Vec<T> = (0..k * d).map(|i| T::from_f64(0.25 + (i % 7) as f64)).collect();
    let scaled = (!sparse).then(|| RowCenters::with_factors_for_isa(centers, &factors, isa));
    let (mut sums, mut sums_t) = (vec![0.0; k * d], vec![0.0; k * d]);
    let (mut squares, mut squares_t) = (vec![0.0; k * d], vec![0.0; k * d]);
    for (i, truth) in truth.iter().enumerate() {
        let list: Vec<u32> = (0..(i % 11).min(2 * k)).map(|q| ((i + 3 * q) % k) as u32).collect();
        let mut out = vec![T::INFINITY; list.len()];
        listed.sq_dists(rows, i, &list, &mut out);
        for (&j, out) in list.iter().zip(&out) {
            let (found, exact) = (out.to_f64() / unit, truth[j as usize]);
            assert!((found - exact).abs() <= slack * exact + apart, "{what}: {found} not {exact}");
            let found = listed.sq_dist(rows, i, j as usize);
            assert!((found - exact).abs() <= 1e-13 * exact + apart, "{what}: {found} not {exact}");
        }
        let mut row = vec![T::ZERO; d];
        match rows {
            Rows::Dense(rows) => row.copy_from_slice(rows.row(i)),
            Rows::Sparse(rows) => spread(rows.row(i), &mut row),
        }
        let parts: Vec<f64> = (0..list.len()).map(|q| 0.5 + q as f64).collect();
        listed.add_parts(rows, i, &list, &parts, &mut sums);
        if let Some(scaled) = &scaled {
            scaled.sq_dists(rows, i, &list, &mut out);
            scaled.add_squares(&row, &list, &parts, &mut squares);
        }
        for (q, &j) in list.iter().enumerate() {
            let j = j as usize;
            let mut exact = 0.0;
            for t in 0..d {
                let (x, c) = (row[t].to_f64(), centers.row(j)[t].to_f64());
                sums_t[j * d + t] += parts[q] * x;
                squares_t[j * d + t] += parts[q] * ((x - c) * (x - c));
                exact += ((x - c) * factors[j * d + t].to_f64()).powi(2);
            }
            // A float32 overflows or underflows if it cannot hold such squares.
            let held = exact == 0.0 || (1e-30..1e30).contains(&exact) || size_of::<T>() == 8;
            if scaled.is_some() && held {
                let found = out[q].to_f64();
                assert!((found - exact).abs() <= slack * exact, "{what}: {found} not {exact}");
            }
        }
    }
    assert_eq!(sums, sums_t, "{what}");
    if scaled.is_some() {
        assert_eq!(squares, squares_t, "{what}");
    }
}

pub(super) fn for_each_isa(f: impl FnMut(Isa)) {
    Isa::available().into_iter().for_each(f);
}

#[test]
fn strips_of_many_columns() {
    for_each_isa(|isa| {
        for d in [600, 1500, 3100, 5000] {
            check::<f32>(isa, Kind::Plain, 100, 35, d, d as u64);
            check::<f64>(isa, Kind::Plain, 100, 35, d / 2, d as u64);
        }
    });
}

#[test]
fn every_remainder() {
    for_each_isa(|isa| {
        for d in (1..=20).chain([31, 32, 33, 63, 64, 65, 127, 128, 129, 130, 200]) {
            for k in [1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 47, 48, 49, 100] {
                let kind = KINDS[(d + k) % KINDS.len()];
                check::<f32>(isa, kind, 13 + d % 5, k, d, (d * 1000 + k) as u64);
                check::<f64>(isa, kind, 13 + d % 5, k, d, (d * 1000 + k) as u64);
            }
        }
        for n in 1..60 {
            check::<f32>(isa, Kind::Plain, n, 5, 3, n as u64);
            check::<f32>(isa, Kind::Ties, n, 40, 19, n as u64);
            check::<f64>(isa, Kind::Far, n, 21, 24, n as u64);
        }
    });
}

#[test]
fn more_rows_than_a_strip_and_many_columns() {
    for_each_isa(|isa| {
        for kind in KINDS {
            check::<f32>(isa, kind, 500, 70, 40, 1);
            check::<f64>(isa, kind, 500, 70, 6, 2);
            check::<f32>(isa, kind, 60, 35, 3072, 3);
            check::<f64>(isa, kind, 60, 35, 1025, 4);
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_shape(n in 1usize..300, k in 1usize..150, d in 1usize..300, kind in 0..KINDS.len(), seed: u32) {
        for_each_isa(|isa| {
            check::<f32>(isa, KINDS[kind], n, k, d, u64::from(seed));
            check::<f64>(isa, KINDS[kind], n, k, d, u64::from(seed));
        });
    }
}

/// The label depends neither on the position of a row in a tile, nor on the number of rows, nor on
/// the instruction set.
#[test]
fn one_label_wherever_a_row_stands() {
    for d in [2, 5, 16, 17, 130] {
        let (x, c) = problem::<f32>(Kind::Plain, 300, 90, d, 5);
        // Rows halfway between two centers: near-ties that rounding decides.
        let x: Vec<f32> = (0..300 * d)
            .map(|i| {
                let (row, t) = (i / d, i % d);
                if row % 2 == 0 {
                    x[i]
                } else {
                    f32::midpoint(c[row % 90 * d + t], c[(row + 1) % 90 * d + t])
                }
            })
            .collect();
        let rows = MatRef::new(&x, d);
        let mut of_all: Option<Vec<u32>> = None;
        for_each_isa(|isa| {
            let packed = PackedCenters::for_isa(MatRef::new(&c, d), isa);
            let scratch = &mut Scratch::default();
            let mut whole = vec![0; 300];
            nearest(rows, &packed, &mut whole, scratch);
            for (i, &label) in whole.iter().enumerate() {
                let mut one = [0];
                nearest(rows.slice(i, i + 1), &packed, &mut one, scratch);
                assert_eq!(one[0], label, "{isa} d={d} row {i}");
            }
            assert_eq!(of_all.get_or_insert_with(|| whole.clone()), &whole, "{isa} d={d}");
        });
    }
}

/// Skipping columns of zeros keeps every value bit-identical.
#[test]
fn zeros_are_skipped_without_a_trace() {
    for_each_isa(|isa| {
        let (n, k, d) = (100, 80, 300);
        let (x, c) = problem::<f32>(Kind::Zeros, n, k, d, 11);
        let (rows, packed) = (MatRef::new(&x, d), PackedCenters::for_isa(MatRef::new(&c, d), isa));
        let values = |scratch: &mut Scratch<f32>, skipping: bool| {
            let (mut labels, mut best, mut second) = (vec![0; n], vec![0.0; n], vec![0.0; n]);
            nearest_two(rows, &packed, &mut labels, &mut best, &mut second, scratch);
            assert_eq!(scratch.skipping, skipping, "{isa}");
            (labels, second)
        };
        let mut blind = Scratch { pause: u32::MAX, ..Scratch::default() };
        assert_eq!(values(&mut Scratch::default(), true), values(&mut blind, false), "{isa}");
        // NaN is not zero: no center is nearer than another one.
        let mut x = x.clone();
        x[7 * d + 100] = f32::NAN;
        let (mut labels, mut scratch) = (vec![0; n], Scratch::default());
        nearest(MatRef::new(&x, d), &packed, &mut labels, &mut scratch);
        assert_eq!(labels[7], 0, "{isa} {labels:?}");
    });
}

/// Skipping zeros keeps the tile values bit-identical, for any position of rows and centers.
#[test]
fn sparse_rows_have_the_tile_values_of_dense_ones() {
    for_each_isa(|isa| {
        for (k, d) in [(1, 3), (5, 16), (17, 40), (33, 300), (130, 130), (200, 20), (300, 33)] {
            let (x, c) = problem::<f32>(Kind::Zeros, 250, k, d, 3);
            let (rows, centers) = (MatRef::new(&x, d), MatRef::new(&c, d));
            let (stored, order) = (without_zeros(rows), (0..k as u32).rev().collect::<Vec<u32>>());
            let dense = PackedCenters::for_isa(centers, isa);
            if dense.shift.iter().any(|&s| s != 0.0) {
                continue;
            }
            let values = |rows: Rows<'_, f32>, packed: &PackedCenters<f32>| {
                let (mut labels, mut best, mut second) = (vec![0; 250], vec![0.0; 250], vec![0.0; 250]);
                nearest_two(rows, packed, &mut labels, &mut best, &mut second, &mut Scratch::default());
                (labels, second)
            };
            let sparse = values(
                stored.rows(),
                &PackedCenters::sparse_for_isa(centers, isa, crate::parallel::Executor::caller()),
            );
            assert_eq!(sparse, values(rows.into(), &dense), "{isa} k={k} d={d}");
            if isa == Isa::active() {
                let other = values(
                    stored.rows(),
                    &PackedCenters::in_order(centers, &order, true, crate::parallel::Executor::caller()),
                );
                let label =
                    |labels: Vec<u32>| labels.into_iter().map(|j| k as u32 - 1 - j).collect::<Vec<_>>();
                assert_eq!(other.1, sparse.1, "{isa} k={k} d={d}");
                // Among equal centers, the other order puts another one first.
                let differ = label(other.0).iter().zip(&sparse.0).filter(|(a, b)| a != b).count();
                assert!(differ < 250, "{isa} k={k} d={d}: {differ}");
            }
        }
    });
}

/// Sums of squares overflow `f64`, but distances do not.
#[test]
fn sparse_rows_of_any_length_are_measured() {
    let c = [1e160f64, 0.0, 3e160, 0.0];
    let packed = PackedCenters::for_rows(MatRef::new(&c, 4), true);
    let (columns, values) = ([0, 2], [1e160, 3e160]);
    let row = SparseRef::new(&[0, 2], &columns, &values, 4);
    let (mut out, mut labels) = ([1.0], [7]);
    sq_dists(row, &[0], &packed, &mut out);
    nearest(row, &packed, &mut labels, &mut Scratch::default());
    assert_eq!((out, labels), ([0.0], [0]));
}

#[test]
fn rows_apart_are_read_in_place() {
    for_each_isa(|isa| {
        // Rows in lanes, and centers in lanes.
        for d in [5, 24] {
            let (x, c) = problem::<f32>(Kind::Plain, 50, 20, d, 9);
            let mut wide = vec![f32::NAN; 50 * 31];
            (0..50).for_each(|i| wide[i * 31..i * 31 + d].copy_from_slice(&x[i * d..(i + 1) * d]));
            let packed = PackedCenters::for_isa(MatRef::new(&c, d), isa);
            let (mut a, mut b) = ([0; 50], [0; 50]);
            nearest(MatRef::new(&x, d), &packed, &mut a, &mut Scratch::default());
            nearest(MatRef::with_stride(&wide, 50, d, 31), &packed, &mut b, &mut Scratch::default());
            assert_eq!(a, b, "{isa} d={d}");
        }
    });
}

#[test]
fn rows_out_of_range_get_a_label_and_show_it() {
    for_each_isa(|isa| {
        for d in [3, 40] {
            let c: Vec<f32> = (0..20 * d).map(|i| 1e9 * if i % 3 == 0 { 1.0 } else { -1.0 }).collect();
            let mut x = vec![3e38f32; 3 * d];
            x[d] = f32::NAN;
            x[2 * d] = f32::NEG_INFINITY;
            let packed = PackedCenters::for_isa(MatRef::new(&c, d), isa);
            let mut labels = [u32::MAX; 3];
            nearest(MatRef::new(&x, d), &packed, &mut labels, &mut Scratch::default());
            assert!(labels.iter().all(|&j| j < 20), "{isa} {labels:?}");
            let mut dists = [0.0; 3];
            sq_dists(MatRef::new(&x, d), &labels, &packed, &mut dists);
            assert!(dists[0].is_finite() && !dists[1].is_finite() && !dists[2].is_finite(), "{isa}");
        }
    });
}
