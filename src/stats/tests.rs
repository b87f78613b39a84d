//! Tests of sums with their rounding errors.

use super::ClusterSums;

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
