//! Sweeps by sketches over rows that the sample does not show.

use crate::kernel::sketched::Basis;
use crate::kmeans::{Algorithm, KMeans, KMeansRun};
use crate::rng::{Purpose, Rng};
use crate::seeding::Seeding;

/// Rows much farther than all of the sample, some of which are centers that move by much.
#[test]
fn outliers_that_the_sample_misses_get_exact_labels() {
    let (n, d, k) = (5000, 40, 30);
    let sampled = Basis::sample_of(n);
    let far: Vec<usize> = (0..n).filter(|&i| !sampled.contains(&(i as u64))).take(24).collect();
    let mut rng = Rng::keyed(1, Purpose::Seeding, 0);
    for scale in [1e8, 1e14, 1e16, 3e17] {
        let mut values: Vec<f32> = (0..n * d).map(|_| rng.unit() as f32).collect();
        for (at, &i) in far.iter().enumerate() {
            values[i * d] = (scale * (1.0 + (at * at % 17) as f64)) as f32;
        }
        let rows: Vec<[f32; 40]> = values.as_chunks::<40>().0.to_vec();
        // Some centers are outliers.
        let centers =
            (0..k).flat_map(|j| rows[if j % 5 == 0 { far[j / 5] } else { j }].map(f64::from)).collect();
        let params = KMeans::params(k).seeding(Seeding::Given(centers)).tolerance(0.0).max_iter(12);
        let trace = |algorithm: Algorithm| {
            let mut run: KMeansRun = params.clone().algorithm(algorithm).start(&rows).unwrap();
            let mut steps = Vec::new();
            while run.advance(&rows).unwrap().is_some() {
                steps.push((run.labels(), run.centers::<f64>()));
            }
            (steps, run.algorithm())
        };
        let (plain, found) = (trace(Algorithm::Lloyd), trace(Algorithm::Sketch));
        assert_eq!(found.1, Algorithm::Sketch, "{scale}");
        assert!(plain.0 == found.0, "{scale}");
    }
}
