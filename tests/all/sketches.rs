//! When sketches are used, and what they save.

use shoal::data::{AnySource, Dense};
use shoal::kernel::Isa;
use shoal::kmeans::KMeansRun;
use shoal::{Algorithm, Executor, KMeans, Seeding};

use crate::bounded::measured;
use crate::common::Draws;

/// Overlapping clusters in few of `d` directions.
fn loose(n: usize, d: usize) -> Vec<f32> {
    let mut draws = Draws::new(1);
    let mixed: Vec<f64> = (0..20 * d).map(|_| draws.unit() - 0.5).collect();
    let row = |_| {
        let weights: Vec<f64> = (0..20).map(|_| draws.unit() + (draws.unit() * 4.0).floor()).collect();
        let value = |t: usize| (0..20).map(|h| weights[h] * mixed[h * d + t]).sum::<f64>();
        (0..d).map(|t| value(t) as f32).collect::<Vec<f32>>()
    };
    (0..n).flat_map(row).collect()
}

/// The algorithm in use after three sweeps of `"auto"`.
fn chosen(values: &[f32], d: usize, k: usize) -> Algorithm {
    let dense = Dense::new(values, d).unwrap();
    let source = &AnySource::of::<f32>(&dense);
    let cx = Executor::new(Some(2)).unwrap();
    let mut run: KMeansRun = KMeans::params(k).seeding(Seeding::Random).tolerance(0.0).start(source).unwrap();
    for _ in 0..3 {
        run.advance_on(source, &cx).unwrap();
    }
    run.algorithm()
}

#[test]
fn sketches_exclude_nearly_all_centers() {
    let found = measured(Algorithm::Sketch, &loose(4000, 96), 96, 100);
    assert!(found < 0.03, "{found}");
}

#[test]
fn auto_uses_sketches_for_many_columns_and_clusters() {
    let fast = matches!(Isa::active(), Isa::NeonDot | Isa::AvxVnni | Isa::Avx512Vnni | Isa::Amx);
    // More rows than blocks of rows need, which come first in few columns.
    for n in [5000, 17_000] {
        let rows = loose(n, 256);
        assert_eq!(chosen(&rows, 256, 200) == Algorithm::Sketch, fast, "{n} rows");
        // Too few clusters.
        assert_ne!(chosen(&rows, 256, 20), Algorithm::Sketch, "{n} rows");
    }
}

#[test]
fn auto_leaves_sketches_that_exclude_too_little() {
    let (n, d, mut draws) = (5000, 256, Draws::new(2));
    // One column has two values, so far apart that a byte cannot hold what the others tell.
    let mut value =
        |i: usize| if i.is_multiple_of(d) { 1e6 * (2.0 * draws.unit()).floor() } else { draws.unit() };
    let values: Vec<f32> = (0..n * d).map(|i| value(i) as f32).collect();
    assert_ne!(chosen(&values, d, 250), Algorithm::Sketch);
}
