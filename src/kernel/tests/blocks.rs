//! Tests that centers dropped for a box are never the label of a row within it, and that the rows of a leaf get the
//! label of their nearest center.

use crate::kernel::blocks::{Candidates, Leaf, Narrowing, Relabeled, Skin, apart, narrow, relabel};
use crate::kernel::{Compute, Isa, PackedCenters, Scratch, nearest, sq_dist};
use crate::matrix::MatRef;
use crate::rng::{Purpose, Rng};

/// Rows of a box with its corners among them, and centers some of which are the same distance from a corner.
fn problem<T: Compute>(d: usize, k: usize, seed: u64, (size, offset, unit): (f64, f64, f64)) -> [Vec<T>; 3] {
    let mut rng = Rng::keyed(seed, Purpose::Seeding, (d * k) as u64);
    let low: Vec<f64> = (0..d).map(|_| 4.0 * rng.unit()).collect();
    let sizes: Vec<f64> = (0..d).map(|_| size * rng.unit()).collect();
    let value = |x: f64| T::from_f64((x + offset) * unit);
    let mut rows = Vec::new();
    for i in 0..64 {
        for t in 0..d {
            let share = if i < 32 { f64::from(i >> (t % 5) & 1) } else { rng.unit() };
            rows.push(value(low[t] + sizes[t] * share));
        }
    }
    let mut centers: Vec<T> = Vec::new();
    for j in 0..k {
        let corner = rows[(j % 32) * d..][..d].to_vec();
        for (t, &x) in corner.iter().enumerate() {
            // Every third center mirrors the one before at a corner.
            centers.push(match j % 3 {
                2 => T::from_f64(2.0 * x.to_f64() - centers[(j - 1) * d + t].to_f64()),
                _ => value(4.0 * rng.unit()),
            });
        }
    }
    let mut faces = rows[..2 * d].to_vec();
    for (i, &x) in rows.iter().enumerate() {
        let t = i % d;
        faces[t] = if x < faces[t] { x } else { faces[t] };
        faces[d + t] = if x > faces[d + t] { x } else { faces[d + t] };
    }
    [rows, centers, faces]
}

fn check<T: Compute>(isa: Isa) -> (usize, usize) {
    let (mut all, mut stay) = (0, 0);
    for (d, k) in [(1, 3), (2, 1), (2, 17), (3, 40), (5, 33), (10, 64), (16, 100)] {
        for (s, scale) in
            [(0.05, 0.0, 1.0), (0.5, 0.0, 1.0), (1e-7, 1e3, 1.0), (0.3, 1e4, 1e-20), (0.3, 0.0, 1e20)]
                .into_iter()
                .enumerate()
        {
            for seed in 0..8 {
                let [rows, centers, faces] = problem::<T>(d, k, seed + 100 * s as u64, scale);
                let packed = PackedCenters::for_isa(MatRef::new(&centers, d), isa);
                let scalar = PackedCenters::for_isa(MatRef::new(&centers, d), Isa::Scalar);
                let from = Candidates::all(&packed, None);
                let (mut to, mut same) = (Candidates::default(), Candidates::default());
                let work = &mut Narrowing::default();
                let kept = if narrow(&packed, &faces, Skin::default(), &from, &mut to, work) {
                    to.ids()
                } else {
                    from.ids()
                };
                let expected = if narrow(&scalar, &faces, Skin::default(), &from, &mut same, work) {
                    same.ids()
                } else {
                    from.ids()
                };
                assert_eq!(kept, expected, "{isa} d={d} k={k} {scale:?} {seed}");
                let mut labels = vec![0; 64];
                nearest(MatRef::new(&rows, d), &packed, &mut labels, &mut Scratch::default());
                for (row, label) in labels.iter().enumerate() {
                    assert!(kept.contains(label), "{isa} d={d} k={k} {scale:?} {seed}: row {row}, {label}");
                }
                // What is left of the rest stays when it is narrowed again.
                let mut again = Candidates::default();
                if kept.len() < k {
                    assert!(
                        !narrow(&packed, &faces, Skin::default(), &to, &mut again, work)
                            || again.ids().len() < kept.len()
                    );
                }
                (all, stay) = (all + k, stay + kept.len());
            }
        }
    }
    (all, stay)
}

#[test]
fn no_label_is_dropped() {
    for isa in Isa::available() {
        for (all, stay) in [check::<f32>(isa), check::<f64>(isa)] {
            assert!(2 * stay < all, "{isa}: {stay} of {all} centers stay");
        }
    }
}

#[test]
fn values_that_are_no_numbers_keep_all_centers() {
    let centers = [0.0f32, 0.0, 1.0, 0.0, 9.0, 9.0];
    let packed = PackedCenters::new(MatRef::new(&centers, 2));
    let from = Candidates::all(&packed, None);
    let (mut to, work) = (Candidates::default(), &mut Narrowing::default());
    for bad in [f32::NAN, f32::INFINITY] {
        assert!(!narrow(&packed, &[0.0, 0.0, 0.1, bad], Skin::default(), &from, &mut to, work));
    }
    assert!(narrow(&packed, &[0.0, 0.0, 0.1, 0.1], Skin::default(), &from, &mut to, work));
    assert_eq!(to.ids(), [0]);
}

/// A dropped center is farther from every corner of the box than the one nearest to the middle, even if both move by
/// their allowances in the worst direction.
#[test]
fn the_skin_covers_all_moves() {
    let (mut rng, mut dropped) = (Rng::keyed(9, Purpose::Seeding, 0), 0);
    for trial in 0..40_000 {
        let d = 1 + trial % 3;
        let mut draw = |n: usize, by: f64| (0..n).map(|_| by * (rng.unit() - 0.5)).collect::<Vec<f64>>();
        // Boxes that are long in some columns and flat in others.
        let sides: Vec<f64> =
            draw(d, 2.0).iter().map(|&x| x.abs() * if trial / 3 % 2 == 0 { 1.0 } else { x * x }).collect();
        let low = draw(d, 1.0);
        let mut centers = draw(3 * d, 4.0);
        // The last center is near the first.
        let near = draw(d, 0.2);
        (0..d).for_each(|t| centers[2 * d + t] = centers[t] + near[t]);
        let (by, moves) = (draw(3, 1.0), draw(3 * d, 0.1));
        let last: Vec<f64> = (0..3 * d).map(|i| centers[i] + by[i / d].powi(3) * moves[i]).collect();
        let faces: Vec<f64> =
            (0..2 * d).map(|i| low[i % d] + if i < d { 0.0 } else { sides[i % d] }).collect();
        let packed = PackedCenters::for_isa(MatRef::new(&centers, d), Isa::Scalar);
        let from = Candidates::all(&packed, Some(&last));
        let skin = Skin { moves: 3.0, least: 1e-6, shift: 0.0 };
        let mut to = Candidates::default();
        if !narrow(&packed, &faces, skin, &from, &mut to, &mut Narrowing::default()) {
            continue;
        }
        let length = |x: &[f64], j: usize| sq_dist(x, &centers[j * d..][..d]).sqrt();
        let middle: Vec<f64> = (0..d).map(|t| low[t] + sides[t] / 2.0).collect();
        let nearest = (0..3).min_by(|&a, &b| length(&middle, a).total_cmp(&length(&middle, b))).unwrap();
        let allowed = from.allowed(skin);
        for j in (0..3).filter(|&j| !to.ids().contains(&(j as u32))) {
            dropped += 1;
            for corner in 0..1 << d {
                let x: Vec<f64> =
                    (0..d).map(|t| faces[if corner >> t & 1 == 1 { d + t } else { t }]).collect();
                let (near, far) = (length(&x, nearest) + allowed[nearest], length(&x, j) - allowed[j]);
                assert!(near < far, "trial {trial}: {near} {far}");
            }
        }
    }
    assert!(dropped > 10_000, "{dropped}");
}

/// If the shift may move far, rows and centers are rounded as values of that length.
#[test]
fn a_shift_that_moves_far_keeps_centers() {
    let packed = PackedCenters::for_isa(MatRef::new(&[0.0f32, 1.0], 1), Isa::Scalar);
    let from = Candidates::all(&packed, Some(&[0.0, 1.0]));
    let narrowed = |shift: f32| {
        let skin = Skin { moves: 0.0, least: 0.0, shift };
        narrow(&packed, &[0.0, 0.0], skin, &from, &mut Candidates::default(), &mut Narrowing::default())
    };
    // The margins are `18 EPSILON` times the square of both lengths, here up to 0.94 and 0.25 per center. Their sum is
    // compared with 1.
    assert!(!narrowed(330.0) && narrowed(170.0));
}

/// Lengths and moves of candidates are not rounded down.
#[test]
fn lengths_and_moves_are_rounded_up() {
    let (d, k, mut rng) = (37, 100, Rng::keyed(10, Purpose::Seeding, 0));
    let mut values = || (0..k * d).map(|_| rng.unit() as f32 - 0.5).collect::<Vec<f32>>();
    let (centers, last) = (values(), values());
    let packed = PackedCenters::for_isa(MatRef::new(&centers, d), Isa::Scalar);
    assert!(packed.shift.iter().all(|&s| s == 0.0) && packed.scale == 1.0);
    let all = Candidates::all(&packed, Some(&last));
    for (j, (center, last)) in centers.chunks_exact(d).zip(last.chunks_exact(d)).enumerate() {
        let (length, moved) = (sq_dist(center, &vec![0.0; d]).sqrt(), sq_dist(center, last).sqrt());
        assert!(f64::from(all.values[d * all.stride + j]) >= length, "length of center {j}");
        assert!(f64::from(apart(center, last, 1.0)) >= moved, "move of center {j}");
    }
}

/// The nearest of the listed centers, by exact differences, and whether another one is about as near.
fn naive<T: Compute>(row: &[T], centers: &[T], list: &[u32]) -> (u32, bool) {
    let sq_dists = list.iter().map(|&j| (sq_dist(row, &centers[j as usize * row.len()..][..row.len()]), j));
    let mut sorted: Vec<(f64, u32)> = sq_dists.collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (best, next) = (sorted[0], sorted[1]);
    (best.1, next.0 <= best.0 * (1.0 + 400.0 * T::EPSILON))
}

/// Compares the rows of a leaf with every second center, once without labels and once with the labels found. Returns
/// the numbers of rows and of rows in doubt.
fn check_leaf<T: Compute>(isa: Isa, far: f64) -> (usize, usize) {
    let (mut all, mut in_doubt) = (0, 0);
    for (d, k) in [(1, 5), (2, 17), (3, 40), (4, 9), (10, 64), (11, 7), (16, 100)] {
        for seed in 0..6 {
            let [rows, centers, _] = problem::<T>(d, k, seed, (1.5, far, 1.0));
            let packed = PackedCenters::for_isa(MatRef::new(&centers, d), isa);
            let list: Vec<u32> = (0..k as u32).step_by(2).collect();
            // One, two or three vectors of 16 rows.
            let n = 16 * (1 + seed as usize % 3);
            let mut columns = vec![T::ZERO; n * d];
            for (i, row) in rows.chunks_exact(d).take(n).enumerate() {
                row.iter().enumerate().for_each(|(t, &x)| columns[t * n + i] = x);
            }
            let mut labels = vec![T::from_f32(-1.0); n];
            let mut to = Relabeled::default();
            for turn in 0..2 {
                relabel(&packed, Leaf { columns: &columns, labels: &labels }, &list, &mut to);
                let what = format!("{isa} d={d} k={k} {seed} {turn}");
                assert!(turn == 0 || to.changed.is_empty(), "{what}: labels change again");
                assert!(turn == 1 || to.changed.len() + to.in_doubt.len() == n, "{what}: rows without label");
                for &(r, label) in &to.changed {
                    labels[r as usize] = T::from_f32(label as f32);
                }
                for (r, row) in rows.chunks_exact(d).take(n).enumerate() {
                    let (nearest, is_close) = naive(row, &centers, &list);
                    if to.in_doubt.contains(&(r as u32)) {
                        assert!(is_close, "{what}: row {r} is in doubt");
                    } else {
                        assert_eq!(labels[r].to_f64(), f64::from(nearest), "{what}: row {r}");
                    }
                }
            }
            (all, in_doubt) = (all + n, in_doubt + to.in_doubt.len());
        }
    }
    (all, in_doubt)
}

#[test]
fn rows_of_a_leaf_get_the_nearest_label_or_are_in_doubt() {
    for isa in Isa::available() {
        for far in [0.0, 1e3] {
            for (all, in_doubt) in [check_leaf::<f32>(isa, far), check_leaf::<f64>(isa, far)] {
                assert!(in_doubt < all / 2, "{isa}: {in_doubt} of {all} rows are in doubt");
            }
        }
    }
}

#[test]
fn a_leaf_of_values_out_of_range_is_in_doubt() {
    for isa in Isa::available() {
        for unit in [1e25f32, 1e-22, 1e-30, f32::NAN, f32::INFINITY] {
            let centers = [0.0f32, 1.0, 3.0].map(|c| if unit.is_finite() { c * unit } else { c });
            let packed = PackedCenters::for_isa(MatRef::new(&centers, 1), isa);
            let (columns, labels) = ([1.2 * unit; 16], [1.0; 16]);
            let mut to = Relabeled::default();
            relabel(&packed, Leaf { columns: &columns, labels: &labels }, &[0, 1, 2], &mut to);
            assert_eq!((to.changed.len(), to.in_doubt.len()), (0, 16), "{isa} {unit}");
        }
    }
}
