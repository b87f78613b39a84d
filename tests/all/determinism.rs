//! The same seed, data and parameters give bit-identical results for any number of threads, any storage and
//! any block size.

use shoal::data::raw::{Element, Layout};
use shoal::data::{AnySource, Chunks, Dense, Dtype, Mapped, RawRows, Source, Weighted, npy};
use shoal::fit::Step;
use shoal::gmm::{CoresetSize, Covariance, TruncatedGaussianMixture};
use shoal::kernel::Compute;
use shoal::kmeans::{KMeansParams, Size};
use shoal::stats::{MergeReduce, lightweight_coreset};
use shoal::{
    Algorithm, BackwardEuler, Balanced, Breathing, Executor, KMeans, KMeansModel, MatRef, Metric, MiniBatch,
    NestedMiniBatch, Seeding, VarianceReduced,
};

use crate::common::{Any, chunks, rows, unit};

const THREADS: [usize; 4] = [1, 2, 3, 8];

/// All results of a fit as bits, except times.
#[derive(Clone, Debug, PartialEq)]
struct Bits {
    centers: Vec<u64>,
    labels: Vec<u32>,
    weights: Vec<u64>,
    inertia: u64,
    n_iter: u64,
    seeded_by: String,
    history: Vec<[u64; 8]>,
}

fn bits(model: &KMeansModel, history: &[Step]) -> Bits {
    let f64_bits = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect();
    Bits {
        centers: f64_bits(&model.centers::<f64>()),
        labels: model.labels().to_vec(),
        weights: f64_bits(model.cluster_weights()),
        inertia: model.inertia().to_bits(),
        n_iter: model.n_iter(),
        seeded_by: model.seeded_by().to_string(),
        history: history
            .iter()
            .map(|step| {
                [
                    step.iteration,
                    step.rows_seen,
                    step.batch_size,
                    step.objective.to_bits(),
                    step.center_shift.to_bits(),
                    step.n_changed,
                    step.n_distances,
                    step.stop_reason.map_or(0, |reason| 1 + reason as u64),
                ]
            })
            .collect(),
    }
}

fn fit(params: &KMeansParams, source: &dyn Source, threads: usize) -> Bits {
    let cx = Executor::new(Some(threads)).unwrap();
    let mut run = params.clone().threads(Some(threads)).start(source).unwrap();
    while run.advance_on(source, &cx).unwrap().is_some() {}
    bits(&run.model(), run.history())
}

/// The rows as a stream of chunks with the given lengths, repeated.
fn stream<'a, T: Compute>(
    values: &'a [T],
    d: usize,
    weights: Option<&'a [f64]>,
    lengths: &'a [usize],
) -> Chunks<'a, T> {
    Chunks::replay(d, move || chunks(values, d, weights, lengths))
}

fn mapped<T: Compute + Element>(folder: &tempfile::TempDir, values: &[T], d: usize) -> Mapped {
    let path = folder.path().join("rows.npy");
    let mut writer = npy::Writer::create(&path, Dtype::of::<T>(), d).unwrap();
    writer.append_values(values).unwrap();
    writer.finish().unwrap();
    npy::open(path).unwrap()
}

/// The stored bytes of a value.
fn bytes<T: Compute>(value: T) -> Vec<u8> {
    if size_of::<T>() == 4 {
        (value.to_f64() as f32).to_le_bytes().to_vec()
    } else {
        value.to_f64().to_le_bytes().to_vec()
    }
}

fn seedings(given: Vec<f64>) -> [Seeding; 5] {
    [
        Seeding::Auto,
        Seeding::Random,
        Seeding::PlusPlus { greedy: false },
        Seeding::PlusPlus { greedy: true },
        Seeding::Given(given),
    ]
}

/// Compares every storage and number of threads with an array in memory and one thread.
fn check<T>(n: usize, d: usize, k: usize, weighted: bool, change: impl Fn(KMeansParams) -> KMeansParams)
where
    T: Compute + Element,
{
    let folder = tempfile::tempdir().unwrap();
    let values = rows::<T>(n, d);
    let weights: Option<Vec<f64>> =
        weighted.then(|| (0..n).map(|i| (4.0 * unit(i + 5_000_000)).floor() / 2.0).collect());
    let dense = Dense::new(&values, d).unwrap();
    let file = mapped(&folder, &values, d);
    let raw = RawRows::new(&values, d).unwrap();
    let columns: Vec<u8> = (0..n * d).flat_map(|at| bytes(values[at % n * d + at / n])).collect();
    let columns = RawRows::from_bytes(&columns, 0, Layout::column_major(Dtype::of::<T>(), n, d)).unwrap();
    let wide: Vec<T> = values.chunks(d).flat_map(|row| row.iter().copied().chain([T::ZERO; 3])).collect();
    let strided = MatRef::with_stride(&wide, n, d, d + 3);
    let odd = [1usize, 7, 4096, 333, 2048, 5001];
    let short = [13usize];
    let long = [usize::MAX / 2];
    let streams =
        [&odd[..], &short[..], &long[..]].map(|lengths| stream(&values, d, weights.as_deref(), lengths));
    for seeding in seedings(values[..k * d].iter().map(|x| x.to_f64()).collect()) {
        let params = change(KMeans::params(k).seeding(seeding).rng_seed(3).max_iter(6));
        let run = |source: &dyn Source, threads| fit(&params, source, threads);
        let expected = match &weights {
            None => run(&dense, 1),
            Some(w) => run(&Any(AnySource::of::<T>(&Weighted::new(dense, &w[..]).unwrap())), 1),
        };
        let name = format!("{} n={n} d={d} k={k} {:?}", T::NAME, expected.seeded_by);
        for threads in THREADS {
            match &weights {
                None => {
                    assert_eq!(run(&dense, threads), expected, "{name}: memory, {threads} threads");
                    assert_eq!(run(&file, threads), expected, "{name}: file, {threads} threads");
                    assert_eq!(run(&raw, threads), expected, "{name}: stored rows, {threads} threads");
                    assert_eq!(run(&columns, threads), expected, "{name}: columns, {threads} threads");
                    assert_eq!(run(&strided, threads), expected, "{name}: strided rows, {threads} threads");
                }
                Some(w) => {
                    let dense = Weighted::new(dense, &w[..]).unwrap();
                    let file = Weighted::new::<T>(&file, &w[..]).unwrap();
                    assert_eq!(
                        run(&Any(AnySource::of::<T>(&dense)), threads),
                        expected,
                        "{name}: memory, {threads} threads"
                    );
                    assert_eq!(
                        run(&Any(AnySource::of::<T>(&file)), threads),
                        expected,
                        "{name}: file, {threads} threads"
                    );
                }
            }
            // Short chunks are slow, so they are tested with two numbers of threads only.
            for stream in streams.iter().take(if threads > 2 { 1 } else { 3 }) {
                assert_eq!(
                    run(&Any(AnySource::of::<T>(stream)), threads),
                    expected,
                    "{name}: stream, {threads} threads"
                );
            }
        }
    }
}

#[test]
fn several_tiles_in_f32() {
    check::<f32>(20_000, 6, 8, false, |params| params);
}

#[test]
fn several_tiles_in_f64() {
    check::<f64>(9_000, 20, 13, false, |params| params);
}

#[test]
fn a_few_rows() {
    check::<f32>(50, 3, 7, false, |params| params);
}

#[test]
fn weights() {
    check::<f32>(12_000, 5, 9, true, |params| params);
}

#[test]
fn cosine() {
    check::<f32>(10_000, 18, 6, false, |params| params.metric(Metric::Cosine));
}

#[test]
fn several_starts() {
    check::<f64>(6_000, 3, 5, false, |params| params.n_init(3));
}

#[test]
fn kmeans_f32_by_blocks() {
    check::<f32>(20_000, 3, 40, false, |params| params.algorithm(Algorithm::Filtering).n_init(2));
}

#[test]
fn kmeans_f32_by_balls() {
    check::<f32>(20_000, 4, 100, false, |params| params.algorithm(Algorithm::Exponion));
}

#[test]
fn kmeans_f32_by_sketches() {
    check::<f32>(6_000, 40, 60, false, |params| params.algorithm(Algorithm::Sketch).n_init(2));
}

#[test]
fn seeding_of_many_rows() {
    // More rows than `Seeding::Auto` runs greedy k-means++ on: see `greedy_seeding_rows` in src/seeding/mod.rs.
    let values = rows::<f32>(70_000, 2);
    let source = Dense::new(&values, 2).unwrap();
    let params = KMeans::params(40).rng_seed(5).max_iter(2);
    let expected = fit(&params, &source, 1);
    assert_eq!(expected.seeded_by, "k-means||");
    for threads in [2, 3] {
        assert_eq!(fit(&params, &source, threads), expected);
    }
    let odd = [1234usize, 9];
    assert_eq!(fit(&params, &Any(AnySource::of::<f32>(&stream(&values, 2, None, &odd))), 2), expected);
}

#[test]
fn empty_clusters() {
    let values = rows::<f32>(10_000, 3);
    let source = Dense::new(&values, 3).unwrap();
    let params = KMeans::params(6).seeding(Seeding::Given(vec![0.5; 18])).max_iter(5);
    let expected = fit(&params, &source, 1);
    assert!(expected.weights.iter().all(|&w| f64::from_bits(w) > 0.0));
    for threads in [2, 3, 8] {
        assert_eq!(fit(&params, &source, threads), expected);
    }
    let odd = [777usize];
    assert_eq!(fit(&params, &Any(AnySource::of::<f32>(&stream(&values, 3, None, &odd))), 3), expected);
}

#[test]
fn centers_that_need_differences() {
    // One center is so far away that the tile values of the others lose all digits.
    fn of<T: Compute + Element>(far: f64) {
        let (n, d) = (9000, 3);
        let mut values = rows::<T>(n, d);
        values[(n - 1) * d..].fill(T::from_f64(far));
        let given: Vec<f64> =
            values[..8 * d].iter().chain(&values[(n - 1) * d..]).map(|x| x.to_f64()).collect();
        let source = Dense::new(&values, d).unwrap();
        for algorithm in [Algorithm::Auto, Algorithm::Lloyd, Algorithm::Hamerly] {
            let params =
                KMeans::params(9).seeding(Seeding::Given(given.clone())).algorithm(algorithm).max_iter(4);
            let expected = fit(&params, &source, 1);
            for threads in THREADS {
                assert_eq!(fit(&params, &source, threads), expected, "{threads} threads");
            }
            let odd = [777usize];
            assert_eq!(fit(&params, &Any(AnySource::of::<T>(&stream(&values, d, None, &odd))), 3), expected);
            let used = params.fit(&source).unwrap().algorithm().to_string();
            assert_eq!(used, "lloyd", "bounds are of no use");
        }
    }
    of::<f32>(1e20);
    of::<f64>(1e150);
}

#[test]
fn another_seed_gives_other_centers() {
    let values = rows::<f32>(500, 3);
    let source = Dense::new(&values, 3).unwrap();
    let params = KMeans::params(9).seeding(Seeding::Random).max_iter(1);
    assert_ne!(fit(&params, &source, 1), fit(&params.clone().rng_seed(1), &source, 1));
}

#[test]
fn a_fit_equals_its_steps() {
    let values = rows::<f64>(3000, 4);
    let source = Dense::new(&values, 4).unwrap();
    for seeding in seedings(values[..24].to_vec()) {
        let params = KMeans::params(6).seeding(seeding).n_init(2).max_iter(7).threads(Some(2));
        let stepped = fit(&params, &source, 2);
        let cx = Executor::new(Some(2)).unwrap();
        let mut run = params.start(&source).unwrap();
        while run.advance_on(&source, &cx).unwrap().is_some() {}
        assert_eq!(bits(&params.fit(&source).unwrap(), run.history()), stepped);
        let solved: Vec<Step> = params.solve(&source).unwrap().map(Result::unwrap).collect();
        assert_eq!(bits(&run.model(), &solved), stepped);
        assert!(solved.iter().zip(1..).all(|(step, number)| step.iteration == number), "steps are numbered");
    }
}

#[test]
fn weights_of_1_equal_no_weights() {
    let (n, d, k) = (3000, 4, 20);
    let values = rows::<f32>(n, d);
    let plain = Dense::new(&values, d).unwrap();
    let ones = Weighted::new(plain, vec![1.0; n]).unwrap();
    let same = |fit: &dyn Fn(&dyn Source) -> KMeansModel, what: &str| {
        let [one, other] =
            [AnySource::F32(&plain), AnySource::F32(&ones)].map(|rows| bits(&fit(&Any(rows)), &[]));
        assert_eq!(one, other, "{what}");
    };
    for seeding in seedings(values[..k * d].iter().map(|&x| f64::from(x)).collect()) {
        let params = KMeans::params(k).seeding(seeding.clone()).max_iter(4);
        same(&|rows| params.fit(rows).unwrap(), "k-means");
        let params = MiniBatch::params(k).seeding(seeding).batch_size(200).n_init(2).init_size(Some(400));
        same(&|rows| params.fit(rows).unwrap(), "mini-batches");
    }
    same(&|rows| NestedMiniBatch::params(k).batch_size(200).fit(rows).unwrap(), "nested batches");
    same(&|rows| BackwardEuler::params(k).batch_size(200).max_iter(5).fit(rows).unwrap(), "backward Euler");
    same(&|rows| VarianceReduced::params(k).max_iter(3).fit(rows).unwrap(), "variance reduction");
    same(&|rows| Breathing::params(k).m(2).fit(rows).unwrap(), "breathing");
    let balanced = Balanced::params(k).size_max(Size::TimesMean(1.1));
    same(&|rows| balanced.fit(rows).unwrap(), "balanced");
    let cx = Executor::new(Some(2)).unwrap();
    let drawn = lightweight_coreset::<f32>(&plain, 100, 7, &cx).unwrap();
    let also = lightweight_coreset::<f32>(&ones, 100, 7, &cx).unwrap();
    assert_eq!((drawn.rows, drawn.weights), (also.rows, also.weights));
    let streamed = [AnySource::F32(&plain), AnySource::F32(&ones)].map(|rows| {
        let mut coreset = MergeReduce::<f32>::new(100, 7).unwrap();
        let AnySource::F32(rows) = rows else { unreachable!("rows of f32") };
        coreset.absorb(rows, &cx).unwrap();
        let drawn = coreset.result(&cx).unwrap();
        (drawn.rows, drawn.weights)
    });
    assert_eq!(streamed[0], streamed[1]);
    let mixed = [AnySource::F32(&plain), AnySource::F32(&ones)].map(|rows| {
        let model = TruncatedGaussianMixture::params(k).max_iter(3).fit(&Any(rows)).unwrap();
        (model.means::<f64>(), model.variances().to_vec(), model.lower_bound().to_bits())
    });
    assert_eq!(mixed[0], mixed[1]);
}

/// Rows of bytes are summed and measured without conversion.
#[test]
fn coresets_of_bytes_are_those_of_floats() {
    let (n, d) = (20_000, 21);
    let bytes: Vec<u8> = rows::<f32>(n, d).iter().map(|x| (x * 20.0 + 128.0) as u8).collect();
    let floats: Vec<f32> = bytes.iter().map(|&x| f32::from(x)).collect();
    let (bytes, floats) = (RawRows::new(&bytes, d).unwrap(), Dense::new(&floats, d).unwrap());
    let weights: Vec<f64> = (0..n).map(|i| 0.5 + (i % 7) as f64).collect();
    let weighted = |rows| Weighted::new::<f32>(rows, &weights[..]).unwrap();
    let cx = Executor::new(Some(2)).unwrap();
    let weighted_bytes = Weighted::new::<f32>(bytes, &weights[..]).unwrap();
    let pairs: [[&dyn shoal::data::DataSource<f32>; 2]; 2] =
        [[&bytes, &floats], [&weighted_bytes, &weighted(&floats)]];
    for [bytes, floats] in pairs {
        let drawn = lightweight_coreset::<f32>(bytes, 300, 5, &cx).unwrap();
        let expected = lightweight_coreset::<f32>(floats, 300, 5, &cx).unwrap();
        assert_eq!(drawn.rows, expected.rows);
        let to_bits = |weights: &[f64]| weights.iter().map(|w| w.to_bits()).collect::<Vec<_>>();
        assert_eq!(to_bits(&drawn.weights), to_bits(&expected.weights));
        let points = |points: &shoal::RowBuf<f32>| format!("{points:?}");
        assert_eq!(points(&drawn.points), points(&expected.points));
    }
}

#[test]
fn mixtures_and_coresets() {
    let (n, d) = (5000, 7);
    let values = rows::<f32>(n, d);
    let weights: Vec<f64> = (0..n).map(|i| f64::from(u8::from(i % 3 == 0)) + unit(i)).collect();
    let dense = Weighted::new::<f32>(Dense::new(&values, d).unwrap(), &weights[..]).unwrap();
    let chunks = stream(&values, d, Some(&weights), &[1, 700, 1300]);
    let sources = [Any(AnySource::F32(&dense)), Any(AnySource::F32(&chunks))];
    let to_bits = |values: Vec<f64>| values.iter().map(|x| x.to_bits()).collect::<Vec<u64>>();
    for shape in [Covariance::TiedSpherical, Covariance::Spherical, Covariance::Diag, Covariance::Factor] {
        for size in [None, Some(CoresetSize::Rows(900))] {
            let params = TruncatedGaussianMixture::params(40)
                .covariance(shape)
                .coreset_size(size)
                .max_iter(5)
                .n_init(2);
            let mut found = Vec::new();
            for (source, threads) in sources.iter().flat_map(|source| THREADS.map(|t| (source, t))) {
                let model = params.clone().threads(Some(threads)).fit(source).unwrap();
                let (variances, loadings) = (model.variances().to_vec(), model.loadings().to_vec());
                assert_eq!(loadings.len(), if shape == Covariance::Factor { 40 * 5 * d } else { 0 });
                let parts = [model.means::<f64>(), variances, loadings, model.weights().to_vec()];
                found.push((parts.map(to_bits), model.lower_bound().to_bits(), model.n_iter()));
            }
            assert!(found.iter().all(|other| *other == found[0]), "{shape:?} {size:?}");
        }
    }
    let mut coresets = Vec::new();
    for threads in THREADS {
        let cx = Executor::new(Some(threads)).unwrap();
        coresets.push(lightweight_coreset::<f32>(&dense, 300, 5, &cx).unwrap());
        coresets.push(lightweight_coreset::<f32>(&chunks, 300, 5, &cx).unwrap());
    }
    for other in &coresets {
        assert_eq!(other.rows, coresets[0].rows);
        assert_eq!(to_bits(other.weights.clone()), to_bits(coresets[0].weights.clone()));
    }
}
