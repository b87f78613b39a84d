//! Nothing is left of what was worked on before: in buffers, in sums, in packed centers.

use super::battery::{Kind, for_each_isa, problem};
use crate::kernel::{PackedCenters, Scratch, nearest, reassign};
use crate::matrix::MatRef;

/// Columns that were skipped for other centers are not skipped again.
#[test]
fn buffers_remember_no_columns() {
    for_each_isa(|isa| {
        let (n, d) = (60, 300);
        let (sparse, many) = problem::<f32>(Kind::Zeros, n, 80, d, 3);
        let (x, few) = problem::<f32>(Kind::Plain, n, 40, d, 4);
        let labels = |scratch: &mut Scratch<f32>| {
            let mut labels = vec![0; n];
            let packed = PackedCenters::for_isa(MatRef::new(&few, d), isa);
            nearest(MatRef::new(&x, d), &packed, &mut labels, scratch);
            labels
        };
        let mut used = Scratch::default();
        let packed = PackedCenters::for_isa(MatRef::new(&many, d), isa);
        nearest(MatRef::new(&sparse, d), &packed, &mut vec![0; n], &mut used);
        assert!(used.skipping, "{isa}");
        assert_eq!(labels(&mut used), labels(&mut Scratch::default()), "{isa}");
    });
}

/// The rounding errors of sums are collected: a huge row that enters and leaves again leaves nothing.
#[test]
fn a_row_that_leaves_leaves_nothing() {
    for_each_isa(|isa| {
        for d in [1, 20] {
            let (row, centers) = (vec![1e17f64; d], vec![0.0f64; 2 * d]);
            let packed = PackedCenters::for_isa(MatRef::new(&centers, d), isa);
            let (mut sums, mut lows) = (vec![1.0; 2 * d], vec![0.0; 2 * d]);
            let (mut totals, mut energies) = ([1.0; 2], [0.0; 2]);
            for (old, new) in [(1, 0), (0, 1)] {
                let to = (&mut sums[..], &mut lows[..]);
                reassign(MatRef::new(&row, d), &[old], &[new], &packed, to, &mut totals, &mut energies);
            }
            let left = sums.iter().zip(&lows).map(|(sum, low)| sum + low);
            assert!(left.into_iter().all(|left| left == 1.0), "{isa} d={d}");
        }
    });
}
