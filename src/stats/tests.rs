//! Tests of sums: rounding errors, squared weights, limits of means.

use super::{ClusterSums, mean_variance};
use crate::kernel::PackedCenters;
use crate::matrix::MatRef;

/// Sums of one cluster of one column: the sum, its rounding error and the weight.
fn sums(sum: f64, low: f64, weight: f64) -> ClusterSums {
    ClusterSums::of_parts(1, [vec![sum], vec![low], vec![weight], Vec::new(), vec![0.0]]).unwrap()
}

#[test]
fn merged_sums_keep_what_is_rounded_away() {
    let tiny = 2f64.powi(-60);
    // The low parts of both, and what the addition of the high parts loses.
    for (one, other) in [
        ((1.0, tiny), (2.0, 0.0)),
        ((1.0, 0.0), (2.0, tiny)),
        ((1.0, 0.0), (tiny, 0.0)),
        ((tiny, 0.0), (1.0, 0.0)),
    ] {
        let (mut total, mut part) = (sums(one.0, one.1, 1.0), sums(other.0, other.1, 1.0));
        total.merge(&mut part);
        let parts = total.parts().map(|(_, values)| values.to_vec());
        assert_eq!((parts[1][0], parts[2][0]), (tiny, 2.0), "{one:?} {other:?}");
        // The part is empty now.
        assert!(part.parts().iter().all(|(_, values)| values.iter().all(|&value| value == 0.0)));
    }
    // A row that enters and leaves again leaves nothing, however much larger the others are.
    let mut total = sums(1e16, 0.0, 1.0);
    for value in [0.25, 2f64.powi(-20), -0.25, -2f64.powi(-20)] {
        total.merge(&mut sums(value, 0.0, 0.0));
    }
    assert_eq!((total.sum(0)[0], total.parts()[1].1[0]), (1e16, 0.0));
}

#[test]
fn squared_weights_of_plain_rows_are_merged() {
    let centers = PackedCenters::new(MatRef::new(&[0.0f64], 1));
    let (mut total, mut part) = (ClusterSums::new(1, 1), ClusterSums::part(1, 1));
    total.absorb(MatRef::new(&[1.0, 2.0], 1), &[0, 0], Some(&[1.0, 4.0]), &centers);
    part.absorb(MatRef::new(&[1.0, 2.0, 3.0], 1), &[0, 0, 0], None, &centers);
    total.merge(&mut part);
    assert_eq!(total.effective_rows(0), 8.0 * 8.0 / (17.0 + 3.0));
}

#[test]
fn means_must_fit_the_type() {
    assert!(sums(1e39, 0.0, 1.0).check_means::<f32>().is_err());
    sums(1e39, 0.0, 100.0).check_means::<f32>().unwrap();
    sums(1e39, 0.0, 1.0).check_means::<f64>().unwrap();
    assert!(sums(f64::INFINITY, 0.0, 2.0).check_means::<f64>().is_err());
    // The sum of a cluster without weight is not used.
    sums(1e39, 0.0, 0.0).check_means::<f32>().unwrap();
}

#[test]
fn the_variance_is_about_the_mean() {
    let origin = [10.0f64, 0.0];
    let centers = PackedCenters::new(MatRef::new(&origin, 2));
    let mut all = ClusterSums::new(1, 2);
    all.absorb(MatRef::new(&[1.0, 0.0, 3.0, 4.0], 2), &[0, 0], None, &centers);
    assert_eq!(mean_variance(&all, &origin), f64::midpoint(1.0, 4.0));
}
