//! Tests packing centers into the memory of older ones.

use crate::kernel::{PackedCenters, Scratch, nearest};
use crate::matrix::MatRef;
use crate::rng::{Purpose, Rng};
use crate::rows::SparseRef;

#[test]
fn nothing_is_left_of_the_centers_before() {
    let (dim, mut rng) = (11, Rng::keyed(5, Purpose::Batch, 0));
    let mut last = None;
    // As many, fewer and more than before. Every instruction set pads a panel of 40.
    for k in [40, 40, 3, 40, 41] {
        let centers: Vec<f32> = (0..k * dim).map(|_| rng.unit() as f32).collect();
        let fresh = PackedCenters::for_rows(MatRef::new(&centers, dim), true);
        let again = PackedCenters::in_place_of(
            last,
            MatRef::new(&centers, dim),
            true,
            crate::parallel::Executor::caller(),
        );
        assert_eq!((&fresh.data[..], &fresh.norms[..]), (&again.data[..], &again.norms[..]));
        assert_eq!((&fresh.sq_norms, again.centers().iter().count()), (&again.sq_norms, k));
        let rows = SparseRef::new(&[0, 2, 3], &[0, 4, 10], &[0.5f32, 0.9, 0.1], dim);
        let mut labels = [[0; 2]; 2];
        for (labels, packed) in labels.iter_mut().zip([&fresh, &again]) {
            nearest(rows, packed, labels, &mut Scratch::default());
        }
        assert_eq!(labels[0], labels[1]);
        last = Some(again);
    }
}
