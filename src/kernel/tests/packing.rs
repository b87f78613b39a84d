//! Tests packing centers: into the memory of older ones, and on several threads.

use crate::kernel::{PackedCenters, Scratch, nearest};
use crate::matrix::MatRef;
use crate::parallel::Executor;
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
        let again = PackedCenters::in_place_of(last, MatRef::new(&centers, dim), true, Executor::caller());
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

/// Several parts of centers, with a part of a panel at the end. Every center alone has the same place.
#[test]
fn parts_are_packed_where_single_centers_are() {
    let mut rng = Rng::keyed(6, Purpose::Batch, 0);
    for (k, dim, sparse, scale) in [
        (1100, 16, false, 1.0f32),
        (1100, 40, false, 1e-20),
        (5001, 4, false, 1.0),
        (300, 130, true, 1.0),
        (300, 130, true, 1e-20),
    ] {
        let centers: Vec<f32> = (0..k * dim).map(|_| (rng.unit() as f32 - 0.5) * scale).collect();
        let centers = MatRef::new(&centers, dim);
        for threads in [1, 3] {
            let packed = PackedCenters::on(centers, sparse, &Executor::new(Some(threads)).unwrap());
            let mut placed = packed.places(k);
            (0..k).for_each(|j| placed.place(j, j, centers.row(j)));
            assert_eq!(packed.scale != 1.0, scale < 1.0);
            assert_eq!(&packed.data[..], &placed.data[..], "{k} {dim} {sparse}");
            assert_eq!(&packed.norms[..], &placed.norms[..], "{k} {dim} {sparse}");
            assert_eq!((&packed.sq_norms, packed.centers().data()), (&placed.sq_norms, centers.data()));
        }
    }
}
