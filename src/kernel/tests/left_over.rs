//! Nothing is left of what was worked on before: in buffers, in packed centers.

use super::battery::{Kind, for_each_isa, problem};
use crate::kernel::{PackedCenters, Scratch, nearest};
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
