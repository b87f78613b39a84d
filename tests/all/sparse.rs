//! Sparse rows compared with the same rows in dense storage, for every method, storage type and number of threads.

use proptest::prelude::*;
use shoal::data::{
    Access, AnySource, Csr, DataSource, Dense, Index, RawRows, RowRange, Source, Weighted, raw::Element,
};
use shoal::kernel::Compute;
use shoal::kmeans::{Bounds, KMeansParams};
use shoal::{Algorithm, Executor, KMeans, KMeansModel, Metric, MiniBatch, NestedMiniBatch, RowBuf, Seeding};

use crate::common::{Any, Draws, bits};

/// Rows around a few centers with mostly zeros, in dense and CSR storage.
struct Problem<T> {
    n: usize,
    d: usize,
    dense: Vec<T>,
    indptr: Vec<i32>,
    indices: Vec<i32>,
    values: Vec<T>,
}

impl<T: Compute> Problem<T> {
    fn of(dense: Vec<T>, d: usize) -> Self {
        let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in dense.chunks(d) {
            for (column, &x) in row.iter().enumerate().filter(|(_, x)| **x != T::ZERO) {
                indices.push(column as i32);
                values.push(x);
            }
            indptr.push(values.len() as i32);
        }
        Self { n: dense.len() / d, d, dense, indptr, indices, values }
    }

    /// Integers have ties and exact sums.
    fn new(n: usize, d: usize, seed: u64, whole: bool, scale: f64) -> Self {
        Self::with_empty_rows(n, d, seed, whole, scale, true)
    }

    fn with_empty_rows(n: usize, d: usize, seed: u64, whole: bool, scale: f64, empty: bool) -> Self {
        let mut draws = Draws::new(seed);
        let topics = 12;
        let middles: Vec<f64> =
            (0..topics * d).map(|_| if draws.unit() < 0.2 { 4.0 * draws.unit() } else { 0.0 }).collect();
        let mut dense = Vec::with_capacity(n * d);
        for i in 0..n {
            let topic = (draws.unit() * topics as f64) as usize;
            for middle in &middles[topic * d..(topic + 1) * d] {
                // Some rows are empty.
                let used = (i % 37 != 5 || !empty) && draws.unit() < if *middle > 0.0 { 0.7 } else { 0.02 };
                let x = if used { middle + draws.unit() } else { 0.0 };
                dense.push(T::from_f64(scale * if whole { x.round() } else { x }));
            }
        }
        Self::of(dense, d)
    }

    fn csr(&self) -> Csr<'_>
    where
        T: Element,
    {
        let shape = (self.n, self.d);
        Csr::new(shape, self.indptr[..].into(), self.indices[..].into(), &self.values).unwrap()
    }
}

fn close(a: &KMeansModel, b: &KMeansModel, slack: f64, what: &str) {
    assert_eq!(a.labels(), b.labels(), "{what}");
    let (x, y) = (a.centers::<f64>(), b.centers::<f64>());
    let largest = y.iter().fold(f64::MIN_POSITIVE, |most, c| most.max(c.abs()));
    for (x, y) in x.iter().zip(&y) {
        assert!((x - y).abs() <= slack * largest, "{what}: {x} is not {y}");
    }
    let apart = (a.inertia() - b.inertia()).abs();
    assert!(apart <= slack * b.inertia().max(largest * largest), "{what}: {} {}", a.inertia(), b.inertia());
}

fn exact() -> impl Iterator<Item = KMeansParams> {
    let seedings = [Seeding::Auto, Seeding::Random, Seeding::PlusPlus { greedy: false }];
    seedings.into_iter().flat_map(|seeding| {
        [Metric::Euclidean, Metric::Cosine].map(|metric| {
            KMeans::params(9).seeding(seeding.clone()).metric(metric).rng_seed(3).max_iter(30).tolerance(0.0)
        })
    })
}

fn agree<T: Compute + Element>(slack: f64) {
    // On the sphere an empty row is equally far from all centers, so rounding would decide.
    let problem = Problem::<T>::with_empty_rows(700, 60, 5, false, 1.0, false);
    let (csr, dense) = (problem.csr(), Dense::new(&problem.dense, problem.d).unwrap());
    let weights: Vec<f64> = (0..problem.n).map(|i| 0.5 + (i % 3) as f64).collect();
    let heavy_csr = Weighted::new::<T>(csr, &weights).unwrap();
    let heavy = Weighted::new::<T>(dense, &weights).unwrap();
    for (i, params) in exact().enumerate() {
        let what = format!("{} {i}", T::NAME);
        let (a, b) = (params.fit(&csr).unwrap(), params.fit(&dense).unwrap());
        close(&a, &b, slack, &what);
        assert_eq!(a.predict(&csr).unwrap(), a.labels(), "{what}");
        assert_eq!(b.predict(&csr).unwrap(), b.labels(), "{what}");
        let (a, b) = (
            params.fit(&Any(AnySource::of::<T>(&heavy_csr))).unwrap(),
            params.fit(&Any(AnySource::of::<T>(&heavy))).unwrap(),
        );
        close(&a, &b, slack, &what);
    }
    let small = MiniBatch::params(6).batch_size(100).rng_seed(4).max_iter(4).tolerance(1e-6);
    close(&small.fit(&csr).unwrap(), &small.fit(&dense).unwrap(), slack, "mini-batch");
    for bounds in [Bounds::None, Bounds::Auto, Bounds::Yinyang, Bounds::Hamerly] {
        let nested = NestedMiniBatch::params(6).batch_size(100).rng_seed(4).bounds(bounds).max_iter(Some(40));
        close(&nested.fit(&csr).unwrap(), &nested.fit(&dense).unwrap(), slack, "nested");
    }
}

#[test]
fn sparse_and_dense_fits_agree_up_to_rounding() {
    agree::<f32>(1e-5);
    agree::<f64>(1e-12);
}

#[test]
fn sparse_and_dense_distances_agree() {
    let problem = Problem::<f64>::new(300, 40, 8, false, 1.0);
    let (csr, dense) = (problem.csr(), Dense::new(&problem.dense, problem.d).unwrap());
    for metric in [Metric::Euclidean, Metric::Cosine] {
        let model = KMeans::params(7).metric(metric).rng_seed(1).fit(&dense).unwrap();
        assert_eq!(model.predict(&csr).unwrap(), model.predict(&dense).unwrap());
        let (a, b) = (model.nearest(&csr, 3).unwrap(), model.nearest(&dense, 3).unwrap());
        assert_eq!(a.0, b.0);
        assert!(a.1.iter().zip(&b.1).all(|(a, b)| (a - b).abs() <= 1e-12));
    }
}

/// The steps of an exact fit, with labels and centers after each.
fn steps(params: &KMeansParams, source: &impl Source) -> Vec<(u64, Vec<u32>, Vec<u64>)> {
    let cx = Executor::new(Some(2)).unwrap();
    let mut run = params.start(source).unwrap();
    let mut steps = Vec::new();
    while let Some(step) = run.advance_on(source, &cx).unwrap() {
        let centers = run.centers::<f64>().into_iter().map(f64::to_bits).collect();
        steps.push((step.n_changed, run.labels(), centers));
    }
    steps
}

fn bounded_is_plain<T: Compute + Element>(problem: &Problem<T>, k: usize, metric: Metric) {
    let csr = problem.csr();
    let params =
        KMeans::params(k).rng_seed(2).seeding(Seeding::Random).metric(metric).tolerance(0.0).max_iter(25);
    let plain = steps(&params.clone().algorithm(Algorithm::Lloyd), &csr);
    for algorithm in
        [Algorithm::Yinyang, Algorithm::Elkan, Algorithm::Hamerly, Algorithm::Exponion, Algorithm::Auto]
    {
        let bounded = steps(&params.clone().algorithm(algorithm), &csr);
        assert!(bounded == plain, "{algorithm:?} {} k={k} {metric:?}", T::NAME);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn bounded_sweeps_equal_plain_sweeps_on_sparse_rows(
        n in 150usize..600, d in 1usize..90, k in 1usize..120, seed in any::<u64>(), whole in any::<bool>(),
        scale in prop::sample::select(vec![1.0, 1e25, 1e-25]), cosine in any::<bool>(),
    ) {
        let metric = if cosine { Metric::Cosine } else { Metric::Euclidean };
        bounded_is_plain(&Problem::<f32>::new(n, d, seed, whole, scale), k, metric);
        bounded_is_plain(&Problem::<f64>::new(n, d, seed, whole, scale), k, metric);
    }
}

#[test]
fn bounds_skip_distances_on_sparse_rows_too() {
    let problem = Problem::<f64>::new(3000, 80, 4, false, 1.0);
    let csr = problem.csr();
    let distances = |algorithm| {
        let cx = Executor::new(Some(1)).unwrap();
        let params =
            KMeans::params(64).rng_seed(2).seeding(Seeding::Random).algorithm(algorithm).max_iter(20);
        let mut run = params.start(&csr).unwrap();
        let mut sum = 0;
        while let Some(step) = run.advance_on(&csr, &cx).unwrap() {
            sum += step.n_distances;
        }
        sum
    };
    let (plain, bounded) = (distances(Algorithm::Lloyd), distances(Algorithm::Yinyang));
    assert!(bounded < plain / 2, "{bounded} of {plain}");
}

#[test]
fn threads_and_storage_do_not_change_results() {
    let problem = Problem::<f32>::new(5000, 70, 6, false, 1.0);
    let long = |values: &[i32]| values.iter().map(|&x| i64::from(x)).collect::<Vec<i64>>();
    let (indptr, indices) = (long(&problem.indptr), long(&problem.indices));
    // Each row in reverse order, with its first value as the sum of two halves.
    let (mut at, mut back, mut halves) = (vec![0i32], Vec::new(), Vec::new());
    for row in problem.indptr.windows(2) {
        let stored = row[0] as usize..row[1] as usize;
        for i in stored.clone().rev() {
            back.push(problem.indices[i]);
            halves.push(if i == stored.start { problem.values[i] / 2.0 } else { problem.values[i] });
        }
        if let Some(i) = stored.clone().next() {
            back.push(problem.indices[i]);
            halves.push(problem.values[i] / 2.0);
        }
        at.push(halves.len() as i32);
    }
    let shape = (problem.n, problem.d);
    let wide = Csr::new(shape, indptr[..].into(), indices[..].into(), &problem.values).unwrap();
    let mixed = Csr::new(shape, problem.indptr[..].into(), indices[..].into(), &problem.values).unwrap();
    let untidy = Csr::new(shape, at[..].into(), back[..].into(), &halves).unwrap();
    let spread: Vec<f32> = problem.values.iter().flat_map(|&x| [x, -1.0]).collect();
    let layout = shoal::data::raw::Layout {
        row_stride: 8,
        ..shoal::data::raw::Layout::row_major(shoal::data::Dtype::F32, problem.values.len(), 1)
    };
    let bytes: Vec<u8> = spread.iter().flat_map(|x| x.to_le_bytes()).collect();
    let apart = RawRows::from_bytes(&bytes, 0, layout).unwrap();
    let apart = Csr::of_raw(shape, problem.indptr[..].into(), problem.indices[..].into(), apart).unwrap();
    let mut copied = RowBuf::new(problem.d);
    let all: Vec<u64> = (0..problem.n as u64).collect();
    DataSource::<f32>::copy(&problem.csr(), &all, &mut copied).unwrap();
    let sources: Vec<(&str, AnySource<'_>)> = vec![
        ("64 bits", AnySource::F32(&wide)),
        ("mixed", AnySource::F32(&mixed)),
        ("untidy", AnySource::F32(&untidy)),
        ("apart", AnySource::F32(&apart)),
        ("copied", AnySource::F32(&copied)),
    ];
    let kmeans = KMeans::params(20).rng_seed(1).max_iter(12);
    let cosine = kmeans.clone().metric(Metric::Cosine).algorithm(Algorithm::Yinyang);
    let small = MiniBatch::params(20).rng_seed(1).batch_size(300).max_iter(2);
    let nested = NestedMiniBatch::params(20).rng_seed(1).batch_size(300).max_iter(Some(30));
    let fit = |source: &dyn Source, threads| {
        [
            bits(&kmeans.clone().threads(Some(threads)).fit(source).unwrap()),
            bits(&cosine.clone().threads(Some(threads)).fit(source).unwrap()),
            bits(&small.clone().threads(Some(threads)).fit(source).unwrap()),
            bits(&nested.clone().threads(Some(threads)).fit(source).unwrap()),
        ]
    };
    let known = fit(&problem.csr(), 1);
    for threads in [2, 3, 8] {
        assert!(fit(&problem.csr(), threads) == known, "{threads} threads");
    }
    for (what, source) in sources {
        assert!(fit(&source, 2) == known, "{what}");
    }
}

#[test]
fn stored_types_have_their_compute_types() {
    let problem = Problem::<f32>::new(400, 30, 9, true, 1.0);
    let counts: Vec<u16> = problem.values.iter().map(|&x| x as u16).collect();
    let wide: Vec<i64> = problem.values.iter().map(|&x| x as i64).collect();
    let shape = (problem.n, problem.d);
    let (at, columns): (Index<'_>, Index<'_>) = (problem.indptr[..].into(), problem.indices[..].into());
    let counts = Csr::new(shape, at, columns, &counts).unwrap();
    let wide = Csr::new(shape, at, columns, &wide).unwrap();
    assert!(matches!((counts.any(), wide.any()), (AnySource::F32(_), AnySource::F64(_))));
    assert!(DataSource::<f32>::always_finite(&counts));
    let params = KMeans::params(5).rng_seed(2);
    assert_eq!(bits(&params.fit(&counts).unwrap()), bits(&params.fit(&problem.csr()).unwrap()));
    let doubled = Problem::<f64>::new(400, 30, 9, true, 1.0);
    assert_eq!(bits(&params.fit(&wide).unwrap()), bits(&params.fit(&doubled.csr()).unwrap()));
}

#[test]
fn row_ranges_and_gathered_rows_equal_the_matrix() {
    let problem = Problem::<f32>::new(900, 25, 3, false, 1.0);
    let (csr, d) = (problem.csr(), problem.d);
    let part = RowRange::new::<f32>(csr, 100..731).unwrap();
    let dense = Dense::new(&problem.dense[100 * d..731 * d], d).unwrap();
    assert_eq!(DataSource::<f32>::most_values(&part), DataSource::<f32>::most_values(&csr));
    assert_eq!(DataSource::<f32>::access(&part), Access::Random);
    let params = KMeans::params(4).rng_seed(1).tolerance(0.0);
    close(&params.fit(&Any(AnySource::F32(&part))).unwrap(), &params.fit(&dense).unwrap(), 1e-5, "a range");
    let mut rows = Vec::<f32>::new();
    csr.gather(&[7, 0, 899], &mut rows).unwrap();
    let expected: Vec<f32> =
        [7, 0, 899].iter().flat_map(|&i| problem.dense[i * d..(i + 1) * d].to_vec()).collect();
    assert_eq!(rows, expected);
    assert_eq!(
        DataSource::<f32>::gather(&csr, &[900], &mut rows).unwrap_err().to_string(),
        "row 900 does not exist"
    );
}

#[test]
fn rows_of_zeros_only() {
    let problem = Problem::of(vec![0.0f32; 50 * 6], 6);
    let csr = problem.csr();
    for metric in [Metric::Euclidean, Metric::Cosine] {
        let model = KMeans::params(3).metric(metric).rng_seed(1).fit(&csr).unwrap();
        assert_eq!((model.inertia(), model.labels()), (0.0, &[0; 50][..]));
        assert_eq!(model.cluster_weights(), [50.0, 0.0, 0.0]);
    }
    assert_eq!(MiniBatch::params(3).rng_seed(1).fit(&csr).unwrap().inertia(), 0.0);
    assert_eq!(NestedMiniBatch::params(3).rng_seed(1).fit(&csr).unwrap().inertia(), 0.0);
}

/// Sparse and dense batches in turn, each resumed from the state of the previous one.
#[test]
fn batches_may_be_sparse_or_dense() {
    let problem = Problem::<f32>::new(1200, 30, 12, false, 1.0);
    let (csr, d) = (problem.csr(), problem.d);
    let cx = Executor::new(Some(2)).unwrap();
    let ranges = [(0u64, 3u64), (3, 40), (40, 500), (500, 1200)];
    let small = MiniBatch::params(8).rng_seed(1);
    let nested = NestedMiniBatch::params(8).rng_seed(1).batch_size(64);
    let (mut found, mut retired) = (Vec::new(), Vec::new());
    // Which batches are sparse, and a buffer that is too small for all rows.
    for (sparse, buffer) in [
        ([true; 4], 1 << 30),
        ([false; 4], 1 << 30),
        ([true, false, true, true], 1 << 30),
        ([false, true, true, false], 1 << 30),
        ([true; 4], 20_000),
    ] {
        let nested = nested.clone().buffer_memory(buffer);
        let (mut a, mut b) = (None, None);
        for ((start, end), sparse) in ranges.into_iter().zip(sparse) {
            let part = RowRange::new::<f32>(csr, start..end).unwrap();
            let dense = Dense::new(&problem.dense[start as usize * d..end as usize * d], d).unwrap();
            let rows = Any(if sparse { AnySource::F32(&part) } else { AnySource::F32(&dense) });
            let mut one = a.take().map_or_else(|| small.stream(&rows), |state| small.resume(&state)).unwrap();
            let mut two =
                b.take().map_or_else(|| nested.stream(&rows), |state| nested.resume(&state)).unwrap();
            one.partial_fit_on(&rows, &cx).unwrap();
            two.partial_fit_on(&rows, &cx).unwrap();
            (a, b) = (Some(one.state()), Some(two.state()));
            if end == 1200 {
                found.push([one.model(), two.model()].map(|model| model.centers::<f64>()));
                retired.push(b.as_ref().unwrap().object("state").unwrap()["retired"].as_u64().unwrap());
            }
        }
    }
    for other in &found[1..4] {
        for (a, b) in found[0].iter().flatten().zip(other.iter().flatten()) {
            assert!((a - b).abs() < 1e-4, "{a} {b}");
        }
    }
    assert!(retired[..4].iter().all(|&n| n == 0) && retired[4] > 0, "{retired:?}");
}

#[test]
fn invalid_matrices_are_refused() {
    let refused = |shape, indptr: &[i64], indices: &[i64], values: &[f32]| {
        Csr::new(shape, indptr.into(), indices.into(), values).unwrap_err().to_string()
    };
    let one: &[f32] = &[1.0];
    assert_eq!(refused((1, 0), &[0, 0], &[], &[]), "rows need at least 1 column, got 0");
    assert_eq!(refused((1, 2), &[0, 1], &[0, 1], one), "indices and data must have one length, got 2 and 1");
    assert_eq!(
        refused((2, 2), &[0, 1], &[0], one),
        "indptr must have one value more than the 2 rows, got 2 values"
    );
    assert_eq!(refused((1, 2), &[1, 1], &[0], one), "indptr must begin with 0, got 1");
    assert_eq!(refused((2, 2), &[0, 1, 0], &[0], one), "indptr must not decrease, got 0 after 1 at row 1");
    assert_eq!(refused((1, 2), &[0, 2], &[0], one), "indptr must end within the 1 stored values, got 2");
    assert_eq!(refused((1, 2), &[0, 1], &[2], one), "indices must be columns, 0 to 1, got 2 at position 0");
    assert_eq!(refused((1, 2), &[0, 1], &[-1], one), "indices must be columns, 0 to 1, got -1 at position 0");
    assert!(refused((0, 1 << 31), &[0], &[], &[]).contains("at most 2147483647 columns"));
    assert_eq!(
        refused((usize::MAX, 2), &[0], &[], &[]).split(',').next().unwrap(),
        "indptr must have one value more than the 18446744073709551615 rows"
    );
}

#[test]
fn non_finite_values_are_named() {
    for bad in [f64::NAN, f64::INFINITY] {
        let mut problem = Problem::<f64>::new(300, 20, 2, false, 1.0);
        let at = problem.indptr[200] as usize;
        problem.values[at] = bad;
        let row = problem.indptr.iter().rposition(|&start| start as usize <= at).unwrap();
        let expected = format!("rows must be finite, got {bad} at row {row}, column {}", problem.indices[at]);
        let csr = problem.csr();
        let text = |result: shoal::Result<KMeansModel>| result.map(|_| ()).unwrap_err().to_string();
        for metric in [Metric::Euclidean, Metric::Cosine] {
            assert_eq!(text(KMeans::params(3).metric(metric).fit(&csr)), expected);
        }
        assert_eq!(text(MiniBatch::params(3).fit(&csr)), expected);
        assert_eq!(text(NestedMiniBatch::params(3).fit(&csr)), expected);
        let clean = Problem::<f64>::new(300, 20, 2, false, 1.0);
        let model = KMeans::params(3).fit(&clean.csr()).unwrap();
        assert_eq!(model.predict(&csr).unwrap_err().to_string(), expected);
    }
}

#[test]
fn more_clusters_than_rows_are_refused() {
    let problem = Problem::<f32>::new(4, 3, 1, false, 1.0);
    let refused = KMeans::params(5).fit(&problem.csr()).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("n_clusters must be at most the number of rows"), "{refused}");
}
