//! Bounded sweeps give bit-identical labels, sums and steps to plain sweeps.

use proptest::prelude::*;
use shoal::data::{AnySource, Dense, Weighted};
use shoal::fit::StopReason;
use shoal::kmeans::{Bounds, KMeansParams, KMeansRun, NestedParams};
use shoal::{Algorithm, Executor, KMeans, Metric, NestedMiniBatch, Seeding};

use crate::common::Draws;

/// Kinds of test data.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Overlapping clusters.
    Blobs,
    /// Small integers with many ties and duplicates.
    Ties,
    /// Clusters at a distance of 1e4 from the origin.
    Far,
    /// Clusters scaled by 1e25.
    Huge,
    /// Clusters scaled by 1e-25.
    Tiny,
    /// Few distinct rows, so that empty clusters are relocated.
    Few,
}

pub(crate) const KINDS: [Kind; 6] = [Kind::Blobs, Kind::Ties, Kind::Far, Kind::Huge, Kind::Tiny, Kind::Few];

pub(crate) fn rows(kind: Kind, n: usize, d: usize, seed: u64) -> Vec<f64> {
    let mut draws = Draws::new(seed);
    let middles: Vec<f64> = (0..40 * d).map(|_| 8.0 * draws.unit()).collect();
    (0..n)
        .flat_map(|_| {
            let blob = (draws.unit() * 40.0) as usize;
            let middle = &middles[blob * d..(blob + 1) * d];
            middle
                .iter()
                .map(|m| {
                    let x = m + 2.0 * draws.unit() - 1.0;
                    match kind {
                        Kind::Blobs => x,
                        Kind::Ties => (x / 3.0).round(),
                        Kind::Far => x + 1e4,
                        Kind::Huge => x * 1e25,
                        Kind::Tiny => x * 1e-25,
                        Kind::Few => (*m).round() * f64::from(u8::from(blob < 5)),
                    }
                })
                .collect::<Vec<f64>>()
        })
        .collect()
}

/// The labels and centers after each step, the final labels, and the inertia.
pub(crate) type Trace = (Vec<Vec<u64>>, Vec<u32>, u64);

fn steps(params: &KMeansParams, cx: &Executor, source: AnySource<'_>) -> Trace {
    let source = &source;
    let mut run: KMeansRun = params.start(source).unwrap();
    let mut steps = Vec::new();
    while let Some(step) = run.advance_on(source, cx).unwrap() {
        let mut bits = vec![
            step.iteration,
            step.n_changed,
            step.objective.to_bits(),
            step.center_shift.to_bits(),
            u64::from(step.stop_reason == Some(StopReason::LabelsStable)),
        ];
        bits.extend(run.labels().iter().map(|&j| u64::from(j)));
        bits.extend(run.centers::<f64>().iter().map(|c| c.to_bits()));
        steps.push(bits);
    }
    let inertia = run.finish_on(source, cx).unwrap();
    (steps, run.labels(), inertia.to_bits())
}

pub(crate) struct Case<'a> {
    pub(crate) n: usize,
    pub(crate) d: usize,
    pub(crate) k: usize,
    pub(crate) values: &'a [f64],
    pub(crate) weights: Option<&'a [f64]>,
    pub(crate) single: bool,
    pub(crate) metric: Metric,
    pub(crate) seed: u64,
}

impl Case<'_> {
    pub(crate) fn trace(&self, algorithm: Algorithm, bounds_memory: u64, threads: usize) -> Trace {
        let params = KMeans::params(self.k)
            .seeding(Seeding::Random)
            .rng_seed(self.seed)
            .max_iter(40)
            .tolerance(0.0)
            .metric(self.metric)
            .algorithm(algorithm)
            .bounds_memory(bounds_memory)
            .threads(Some(threads));
        let cx = Executor::new(Some(threads)).unwrap();
        let weights = self.weights;
        macro_rules! go {
            ($t:ty) => {{
                let values: Vec<$t> = self.values.iter().map(|&x| x as $t).collect();
                let dense = Dense::new(&values, self.d).unwrap();
                match weights {
                    Some(weights) => {
                        steps(&params, &cx, AnySource::of::<$t>(&Weighted::new(dense, weights).unwrap()))
                    }
                    None => steps(&params, &cx, AnySource::of::<$t>(&dense)),
                }
            }};
        }
        if self.single { go!(f32) } else { go!(f64) }
    }

    fn check(&self, what: &str) {
        let plain = self.trace(Algorithm::Lloyd, 0, 1);
        let rows = 4 * self.n as u64;
        let yinyang = [1 << 30, 4 * rows, 3 * rows, 0].map(|memory| (Algorithm::Yinyang, memory));
        let others = [
            (Algorithm::Elkan, 1 << 30),
            (Algorithm::Elkan, 5 * rows),
            (Algorithm::Hamerly, 1 << 30),
            (Algorithm::Exponion, 1 << 30),
            (Algorithm::Exponion, 2 * rows),
            (Algorithm::Filtering, 1 << 30),
            (Algorithm::Filtering, rows),
            (Algorithm::Sketch, 1 << 30),
            (Algorithm::Sketch, rows),
        ];
        for (algorithm, memory) in yinyang.into_iter().chain(others) {
            let bounded = self.trace(algorithm, memory, 2);
            let what = format!("{what} {algorithm:?}");
            assert_eq!(bounded.0.len(), plain.0.len(), "{what}: steps with {memory} bytes");
            for (i, (a, b)) in bounded.0.iter().zip(&plain.0).enumerate() {
                assert!(a == b, "{what}: step {i} with {memory} bytes differs");
            }
            assert_eq!((&bounded.1, bounded.2), (&plain.1, plain.2), "{what}");
        }
        assert_eq!(self.trace(Algorithm::Auto, 1 << 30, 2), plain, "{what}");
    }
}

#[test]
fn bounded_sweeps_equal_plain_sweeps_on_every_kind_of_data() {
    for (at, kind) in KINDS.into_iter().enumerate() {
        for (n, d, k) in [
            (3000, 20, 150),
            (2500, 40, 70),
            (300, 1, 40),
            (400, 3, 1),
            (40, 5, 40),
            (2100, 130, 33),
            (6000, 2, 90),
        ] {
            let values = rows(kind, n, d, at as u64 + 1);
            for single in [true, false] {
                let metric =
                    if matches!(kind, Kind::Blobs) && single { Metric::Cosine } else { Metric::Euclidean };
                for metric in [metric, Metric::Euclidean] {
                    let case = Case { n, d, k, values: &values, weights: None, single, metric, seed: 3 };
                    case.check(&format!("{kind:?} n={n} d={d} k={k} f32={single} {metric:?}"));
                }
            }
        }
    }
}

/// The distances that a fit measures, relative to plain sweeps.
pub(crate) fn measured(algorithm: Algorithm, values: &[f32], d: usize, k: usize) -> f64 {
    let dense = Dense::new(values, d).unwrap();
    let source = &AnySource::of::<f32>(&dense);
    let cx = Executor::new(Some(2)).unwrap();
    let params = KMeans::params(k).seeding(Seeding::Random).max_iter(60).tolerance(0.0).algorithm(algorithm);
    let mut run: KMeansRun = params.start(source).unwrap();
    let (mut distances, mut all) = (0, 0);
    while let Some(step) = run.advance_on(source, &cx).unwrap() {
        distances += step.n_distances;
        all += (values.len() / d * k) as u64;
    }
    distances as f64 / all as f64
}

#[test]
fn auto_uses_bounds_for_few_clusters() {
    // Overlapping clusters, so that a fit takes dozens of sweeps.
    let loose = |n: usize, d: usize| -> Vec<f32> {
        let mut draws = Draws::new(1);
        let middles: Vec<f64> = (0..40 * d).map(|_| 8.0 * draws.unit()).collect();
        let row = |_| {
            let blob = (draws.unit() * 40.0) as usize;
            let row = middles[blob * d..][..d].iter().map(|m| (m + 12.0 * draws.unit()) as f32);
            row.collect::<Vec<f32>>()
        };
        (0..n).flat_map(row).collect()
    };
    for (n, d, k) in [(4000, 32, 24), (4000, 32, 48), (6000, 2, 100)] {
        let found = measured(Algorithm::Auto, &loose(n, d), d, k);
        assert!(found < 0.85, "n={n} d={d} k={k}: {found}");
    }
}

#[test]
fn auto_uses_no_bounds_if_rounding_dominates() {
    // One column is so large that f32 tile values lose the digits of the other columns.
    for (n, d, k) in [(3000, 40, 60), (4000, 5, 60)] {
        let mut draws = Draws::new(2);
        let mut value =
            |i: usize| if i.is_multiple_of(d) { 1e6 * (draws.unit() * 20.0).floor() } else { draws.unit() };
        let values: Vec<f32> = (0..n * d).map(|i| value(i) as f32).collect();
        assert_eq!(measured(Algorithm::Auto, &values, d, k), 1.0, "n={n} d={d} k={k}");
    }
}

#[test]
fn bounded_sweeps_equal_plain_sweeps_with_weights() {
    let (n, d, k) = (2500, 24, 100);
    let values = rows(Kind::Blobs, n, d, 5);
    let weights: Vec<f64> = (0..n).map(|i| [0.0, 0.3, 1.0, 2.5][i % 4]).collect();
    for single in [true, false] {
        let case = Case {
            n,
            d,
            k,
            values: &values,
            weights: Some(&weights),
            single,
            metric: Metric::Euclidean,
            seed: 1,
        };
        case.check("weights");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn bounded_sweeps_equal_plain_sweeps_for_any_shape(n in 1usize..2600, d in 1usize..70, k in 1usize..140, kind in 0..KINDS.len(), single: bool, seed in 0u64..1000) {
        let k = k.min(n);
        let values = rows(KINDS[kind], n, d, seed);
        let case = Case { n, d, k, values: &values, weights: None, single, metric: Metric::Euclidean, seed };
        case.check(&format!("{:?} n={n} d={d} k={k} f32={single}", KINDS[kind]));
    }
}

/// The steps of a nested fit with the centers after each, the final labels, and the inertia.
fn nested_steps(params: &NestedParams, cx: &Executor, source: AnySource<'_>) -> Trace {
    let source = &source;
    let mut run = params.start(source).unwrap();
    let mut steps = Vec::new();
    while let Some(step) = run.advance_on(source, cx).unwrap() {
        let mut bits = vec![
            step.batch_size,
            step.n_changed,
            step.objective.to_bits(),
            step.center_shift.to_bits(),
            u64::from(step.stop_reason == Some(StopReason::LabelsStable)),
        ];
        bits.extend(run.centers::<f64>().iter().map(|c| c.to_bits()));
        bits.extend(run.cluster_weights().iter().map(|w| w.to_bits()));
        steps.push(bits);
    }
    let inertia = run.finish_on(source, cx).unwrap();
    (steps, run.labels(), inertia.to_bits())
}

/// A nested fit of a case with `first` rows in the first batch.
struct NestedCase<'a> {
    case: Case<'a>,
    first: u64,
    rho: f64,
    shuffle: bool,
}

impl NestedCase<'_> {
    fn trace(&self, bounds: Bounds, bounds_memory: u64, threads: usize) -> Trace {
        let Case { d, k, values, weights, single, seed, .. } = self.case;
        let params = NestedMiniBatch::params(k)
            .rng_seed(seed)
            .batch_size(self.first)
            .rho(self.rho)
            .shuffle(self.shuffle)
            .max_iter(Some(60))
            .bounds(bounds)
            .bounds_memory(bounds_memory);
        let cx = Executor::new(Some(threads)).unwrap();
        macro_rules! go {
            ($t:ty) => {{
                let values: Vec<$t> = values.iter().map(|&x| x as $t).collect();
                let dense = Dense::new(&values, d).unwrap();
                match weights {
                    Some(w) => {
                        nested_steps(&params, &cx, AnySource::of::<$t>(&Weighted::new(dense, w).unwrap()))
                    }
                    None => nested_steps(&params, &cx, AnySource::of::<$t>(&dense)),
                }
            }};
        }
        if single { go!(f32) } else { go!(f64) }
    }

    /// Compare all kinds of bounds, memory limits that are reached during the fit, and numbers of threads.
    fn check(&self, what: &str) {
        let plain = self.trace(Bounds::None, 0, 1);
        let n = self.case.n as u64;
        let some = [
            (Bounds::Elkan, 1 << 30, 1),
            (Bounds::Elkan, 4 * 3 * n, 2),
            (Bounds::Elkan, 4 * 2 * n, 1),
            (Bounds::Elkan, n, 3),
            (Bounds::Yinyang, 1 << 30, 2),
            (Bounds::Hamerly, 1 << 30, 2),
            (Bounds::Auto, 1 << 30, 1),
            (Bounds::None, 0, 3),
        ];
        for (bounds, memory, threads) in some {
            let found = self.trace(bounds, memory, threads);
            assert_eq!(found.0.len(), plain.0.len(), "{what}: steps with {bounds:?} in {memory} bytes");
            for (i, (a, b)) in found.0.iter().zip(&plain.0).enumerate() {
                assert!(a == b, "{what}: step {i} with {bounds:?} in {memory} bytes differs");
            }
            assert_eq!((&found.1, found.2), (&plain.1, plain.2), "{what} {bounds:?}");
        }
        // A batch has twice the rows of the previous batch, all rows, or the same rows.
        for pair in plain.0.windows(2) {
            let (before, after) = (pair[0][0], pair[1][0]);
            assert!(after == before || after == (2 * before).min(n), "{what}: {before} {after}");
        }
    }
}

#[test]
fn nested_batches_on_every_kind_of_data() {
    for (at, kind) in KINDS.into_iter().enumerate() {
        for (n, d, k, first) in [
            (9000, 20, 150, 300),
            (6500, 40, 70, 1000),
            (300, 1, 40, 41),
            (400, 3, 1, 7),
            (9001, 17, 33, 2049),
        ] {
            let values = rows(kind, n, d, at as u64 + 1);
            for (single, shuffle) in [(true, true), (true, false), (false, true)] {
                let case = Case {
                    n,
                    d,
                    k,
                    values: &values,
                    weights: None,
                    single,
                    metric: Metric::Euclidean,
                    seed: 3,
                };
                let what = format!("{kind:?} n={n} d={d} k={k} f32={single} shuffle={shuffle}");
                NestedCase { case, first, rho: 3.0, shuffle }.check(&what);
            }
        }
    }
}

#[test]
fn nested_batches_with_weights() {
    let (n, d, k) = (5000, 24, 100);
    let values = rows(Kind::Blobs, n, d, 5);
    let weights: Vec<f64> = (0..n).map(|i| [0.0, 0.3, 1.0, 2.5][i % 4]).collect();
    let (weights, metric) = (Some(&weights[..]), Metric::Euclidean);
    for single in [true, false] {
        let case = Case { n, d, k, values: &values, weights, single, metric, seed: 1 };
        NestedCase { case, first: 500, rho: 10.0, shuffle: true }.check("weights");
    }
}

#[test]
fn a_first_batch_of_all_rows_equals_lloyd() {
    for (kind, single) in [(Kind::Blobs, true), (Kind::Far, true), (Kind::Ties, false), (Kind::Blobs, false)]
    {
        let (n, d, k) = (4000, 12, 30);
        let values = rows(kind, n, d, 11);
        // No cluster is empty: Lloyd relocates empty clusters, nested batches do not.
        let init: Vec<f64> =
            values[..k * d].iter().enumerate().map(|(i, x)| x + 1e-3 * (i % 7) as f64).collect();
        let cx = Executor::new(Some(2)).unwrap();
        macro_rules! go {
            ($t:ty) => {{
                let values: Vec<$t> = values.iter().map(|&x| x as $t).collect();
                let dense = Dense::new(&values, d).unwrap();
                let lloyd =
                    KMeans::params(k).seeding(Seeding::Given(init.clone())).tolerance(0.0).max_iter(40);
                let nested = NestedMiniBatch::params(k)
                    .seeding(Seeding::Given(init.clone()))
                    .batch_size(1 << 40)
                    .max_iter(Some(40));
                let (mut a, mut b) = (lloyd.start(&dense).unwrap(), nested.start(&dense).unwrap());
                loop {
                    let (x, y) = (a.advance_on(&dense, &cx).unwrap(), b.advance_on(&dense, &cx).unwrap());
                    let Some(x) = x else { break assert!(y.is_none()) };
                    let y = y.unwrap();
                    assert!(a.cluster_weights().iter().all(|&w| w > 0.0), "choose other data");
                    assert_eq!(
                        (x.objective, x.n_changed, x.stop_reason),
                        (y.objective, y.n_changed, y.stop_reason)
                    );
                    assert_eq!(a.centers::<$t>(), b.centers::<$t>());
                }
                b.finish_on(&dense, &cx).unwrap();
                assert_eq!((a.labels(), a.inertia()), (b.labels(), b.inertia()));
            }};
        }
        if single { go!(f32) } else { go!(f64) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn nested_batches_of_any_shape(
        n in 1usize..6000, d in 1usize..50, k in 1usize..140, first in 1u64..3000, kind in 0..KINDS.len(), single: bool,
        shuffle: bool, rho in 0.0f64..20.0, seed in 0u64..1000,
    ) {
        let k = k.min(n);
        let values = rows(KINDS[kind], n, d, seed);
        let case = Case { n, d, k, values: &values, weights: None, single, metric: Metric::Euclidean, seed };
        let what = format!("{:?} n={n} d={d} k={k} f32={single}", KINDS[kind]);
        NestedCase { case, first, rho, shuffle }.check(&what);
    }
}
