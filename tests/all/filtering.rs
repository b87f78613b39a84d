//! Sweeps by blocks of rows give bit-identical labels, sums and steps to plain sweeps.

use proptest::prelude::*;
use shoal::{Algorithm, Metric};

use crate::bounded::{Case, KINDS, Kind, measured, rows};
use crate::common::Draws;

/// What is done to the rows of a kind.
#[derive(Clone, Copy, Debug)]
enum Change {
    Nothing,
    /// The first column is constant, and the last repeats another.
    Constant,
    /// A few rows are farther away than the others by a factor of 1e8.
    Outliers,
    /// Sorted by the first column, as in a file of measurements.
    Sorted,
    /// Every row three times.
    Thrice,
}

const CHANGES: [Change; 5] =
    [Change::Nothing, Change::Constant, Change::Outliers, Change::Sorted, Change::Thrice];

fn changed(change: Change, mut values: Vec<f64>, d: usize) -> Vec<f64> {
    match change {
        Change::Nothing => {}
        Change::Constant => values.chunks_mut(d).for_each(|row| {
            row[0] = 3.5;
            row[d - 1] = row[d / 2];
        }),
        Change::Outliers => {
            values.chunks_mut(d).skip(5).step_by(997).flatten().for_each(|x| *x *= 1e8);
        }
        Change::Sorted => {
            let mut rows: Vec<Vec<f64>> = values.chunks(d).map(<[f64]>::to_vec).collect();
            rows.sort_by(|a, b| a[0].total_cmp(&b[0]));
            values = rows.concat();
        }
        Change::Thrice => {
            let n = values.len() / d;
            values = (0..n).flat_map(|i| values[i / 3 * d..][..d].to_vec()).collect();
        }
    }
    values
}

fn check(case: &Case<'_>, what: &str) {
    let plain = case.trace(Algorithm::Lloyd, 0, 1);
    for (algorithm, threads) in [(Algorithm::Filtering, 1), (Algorithm::Filtering, 3), (Algorithm::Auto, 2)] {
        let found = case.trace(algorithm, 1 << 30, threads);
        assert_eq!(found.0.len(), plain.0.len(), "{what}: steps of {algorithm:?}");
        for (i, (a, b)) in found.0.iter().zip(&plain.0).enumerate() {
            assert!(a == b, "{what}: step {i} of {algorithm:?} differs");
        }
        assert_eq!((&found.1, found.2), (&plain.1, plain.2), "{what} {algorithm:?}");
    }
}

#[test]
fn many_branches_on_every_kind_of_data() {
    for (at, kind) in KINDS.into_iter().enumerate() {
        for change in CHANGES {
            let (n, d, k) = [(20_000, 3, 60), (17_000, 2, 200), (18_000, 10, 30)][at % 3];
            let values = changed(change, rows(kind, n, d, at as u64 + 7), d);
            for (single, metric) in
                [(true, Metric::Euclidean), (false, Metric::Euclidean), (true, Metric::Cosine)]
            {
                if metric == Metric::Cosine && !matches!(kind, Kind::Blobs) {
                    continue;
                }
                let case = Case { n, d, k, values: &values, weights: None, single, metric, seed: 3 };
                check(&case, &format!("{kind:?} {change:?} n={n} d={d} k={k} f32={single} {metric:?}"));
            }
        }
    }
}

#[test]
fn weighted_rows() {
    let (n, d, k) = (18_000, 4, 50);
    let values = rows(Kind::Blobs, n, d, 5);
    let weights: Vec<f64> = (0..n).map(|i| [0.0, 0.3, 1.0, 2.5][i % 4]).collect();
    for single in [true, false] {
        let metric = Metric::Euclidean;
        let case = Case { n, d, k, values: &values, weights: Some(&weights), single, metric, seed: 1 };
        check(&case, "weights");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_shape(n in 1usize..9000, d in 1usize..17, k in 1usize..140, kind in 0..KINDS.len(), change in 0..CHANGES.len(), single: bool, seed in 0u64..1000) {
        let k = k.min(n);
        let values = changed(CHANGES[change], rows(KINDS[kind], n, d, seed), d);
        let case = Case { n, d, k, values: &values, weights: None, single, metric: Metric::Euclidean, seed };
        check(&case, &format!("{:?} {:?} n={n} d={d} k={k} f32={single}", KINDS[kind], CHANGES[change]));
    }
}

#[test]
fn few_distances_in_few_columns_and_auto_leaves_blocks_in_many() {
    let values: Vec<f32> = rows(Kind::Blobs, 40_000, 2, 1).into_iter().map(|x| x as f32).collect();
    for algorithm in [Algorithm::Filtering, Algorithm::Auto] {
        let found = measured(algorithm, &values, 2, 100);
        assert!(found < 0.05, "{algorithm:?}: {found}");
    }
    let mut draws = Draws::new(3);
    let values: Vec<f32> = (0..20_000 * 14).map(|_| draws.unit() as f32).collect();
    // Every box of such rows is near most centers.
    assert!(measured(Algorithm::Filtering, &values, 14, 40) > 0.8);
    assert!(measured(Algorithm::Auto, &values, 14, 40) < 1.05);
}
