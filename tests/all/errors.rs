//! Invalid input gives a clear error with the parameter or position, the value and the allowed range.

use std::fs;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use shoal::data::{
    self, Access, AnySource, Block, Chunk, Chunks, DataSource, Dense, Dtype, Weighted, npy, raw,
};
use shoal::gmm::{CoresetSize, Covariance, TruncatedGaussianMixture};
use shoal::kernel::Compute;
use shoal::stats::{MergeReduce, lightweight_coreset};
use shoal::{Error, Executor, KMeans, MatRef, Metric, Result, Seeding};

use crate::common::{Any, file, refused};

const ROWS: [[f32; 2]; 6] = [[0.0, 0.1], [0.2, 0.0], [0.1, 0.1], [5.0, 5.1], [5.2, 5.0], [5.1, 5.1]];

#[test]
fn parameters_out_of_range() {
    let params = KMeans::params;
    for (params, message) in [
        (params(0), "n_clusters must be in 1..=16777216, got 0"),
        (params(usize::MAX), "n_clusters must be in 1..=16777216, got 18446744073709551615"),
        (params(7), "n_clusters must be at most the number of rows, 6, got 7"),
        (params(2).n_init(0), "n_init must be at least 1, got 0"),
        (params(2).max_iter(0), "max_iter must be at least 1, got 0"),
        (params(2).tolerance(f64::NAN), "tolerance must be a finite number of at least 0, got NaN"),
        (params(2).tolerance(f64::INFINITY), "tolerance must be a finite number of at least 0, got inf"),
        (params(2).tolerance(-1e-9), "tolerance must be a finite number of at least 0, got -0.000000001"),
        (params(2).threads(Some(0)), "threads must be at least 1, got 0"),
    ] {
        let error = params.fit(&ROWS).expect_err(message);
        assert!(matches!(error, Error::InvalidParam(_)), "{error:?}");
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn mixture_parameters_out_of_range() {
    let params = TruncatedGaussianMixture::params;
    for (params, message) in [
        (params(0), "n_components must be in 1..=16777216, got 0"),
        (params(7), "n_components must be at most the number of rows, 6, got 7"),
        (params(2).n_active(0), "n_active must be at least 1, got 0"),
        (params(2).n_neighbors(0), "n_neighbors must be at least 1, got 0"),
        (params(2).n_init(0), "n_init must be at least 1, got 0"),
        (params(2).n_factors(Some(1)), "n_factors must be none unless the `covariance` is \"factor\", got 1"),
        (
            params(2).covariance(Covariance::Factor).n_factors(Some(0)),
            "n_factors must be at least 1 and less than the number of columns, 2, got 0",
        ),
        (
            params(2).covariance(Covariance::Factor).n_factors(Some(2)),
            "n_factors must be at least 1 and less than the number of columns, 2, got 2",
        ),
        (
            params(2).coreset_size(Some(CoresetSize::Share(1.5))),
            "coreset_size must be a share above 0 and at most 1, got 1.5",
        ),
        (
            params(3).coreset_size(Some(CoresetSize::Rows(2))),
            "n_components must be at most the number of rows of the coreset, 2, got 3",
        ),
    ] {
        let error = params.fit(&ROWS).expect_err(message);
        assert!(matches!(error, Error::InvalidParam(_)), "{error:?}");
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn invalid_rows_and_weights_of_a_coreset() {
    let cx = Executor::new(Some(1)).unwrap();
    let rows = many(1000);
    let drawn = |weight: f64| {
        let weighted = Weighted::new::<f32>(&rows, vec![weight; 1000]).unwrap();
        lightweight_coreset::<f32>(&weighted, 100, 0, &cx).map(|coreset| coreset.weights.len())
    };
    // Products of tiny weights and squared distances would underflow.
    for (weight, message) in
        [(5e-324, "too small"), (1e-312, "too small"), (1e-284, "too small"), (1e306, "too large")]
    {
        let error = drawn(weight).expect_err(message);
        assert!(matches!(error, Error::InvalidParam(_)) && error.to_string().contains(message), "{error}");
        let weighted = Weighted::new::<f32>(&rows, vec![weight; 1000]).unwrap();
        let mut state = MergeReduce::<f32>::new(10, 0).unwrap();
        state.absorb(&rows[..3].to_vec(), &cx).unwrap();
        let before = state.state();
        assert!(state.absorb(&weighted, &cx).unwrap_err().to_string().contains(message));
        assert_eq!(state.state(), before);
    }
    assert_eq!((drawn(1e-280).unwrap(), drawn(1e270).unwrap()), (100, 100));
    // A row without weight may be at any distance.
    let mut far: Vec<[f64; 1]> = (0..500).map(|i| [f64::from(i % 7) * 1e-3]).collect();
    far.extend([[1e153], [1e153]]);
    for weight in [0.0, 1e-320] {
        let weights: Vec<f64> = (0..502).map(|i| if i < 500 { 1.0 } else { weight }).collect();
        let weighted = Weighted::new::<f64>(&far, weights).unwrap();
        assert!(lightweight_coreset::<f64>(&weighted, 50, 0, &cx).unwrap().rows.iter().all(|&row| row < 500));
    }
}

#[test]
fn a_coreset_of_rows_that_change_between_passes() {
    let (cx, pass) = (Executor::new(Some(1)).unwrap(), AtomicU64::new(0));
    for (scale, rows) in [(1e9, 5000), (1.0, 50)] {
        pass.store(0, Ordering::Relaxed);
        let chunks = Chunks::replay(1, || {
            let (scale, rows) =
                if pass.fetch_add(1, Ordering::Relaxed) == 0 { (1.0, 5000) } else { (scale, rows) };
            let values: Vec<f64> = (0..rows).map(|i| f64::from(i % 11) * scale).collect();
            [Ok(Chunk::from(values))].into_iter()
        });
        let error = lightweight_coreset::<f64>(&chunks, 100, 0, &cx).expect_err("other rows");
        assert!(error.to_string().contains("changed between two passes"), "{error}");
    }
}

#[test]
fn all_parameter_errors_are_reported_at_once() {
    let message = refused(KMeans::params(0).n_init(0).max_iter(0).tolerance(-1.0).fit(&ROWS));
    for name in ["n_clusters", "n_init", "max_iter", "tolerance"] {
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn no_rows_and_no_columns() {
    let none = Dense::<f64>::new(&[], 3).unwrap();
    assert_eq!(refused(KMeans::params(2).fit(&none)), "`rows` hold no rows");
    let none = Chunks::<f32>::replay(3, std::iter::empty);
    assert_eq!(refused(KMeans::params(2).fit(&Any(AnySource::F32(&none)))), "`rows` hold no rows");
    assert!(Dense::<f64>::new(&[], 0).is_err());
    let none = Chunks::<f32>::replay(0, || std::iter::once(Ok(vec![].into())));
    assert!(refused(KMeans::params(2).fit(&Any(AnySource::F32(&none)))).contains("at least 1 column"));
}

/// Runs all seedings on `source`, which holds one invalid value at a known position.
fn bad_value<T: Compute>(source: &dyn DataSource<T>, d: usize, message: &str) {
    let given = Seeding::Given((0..2 * d).map(|i| i as f64).collect());
    let all = [
        given,
        Seeding::Auto,
        Seeding::Random,
        Seeding::PlusPlus { greedy: false },
        Seeding::PlusPlus { greedy: true },
    ];
    for seeding in all {
        for metric in [Metric::Euclidean, Metric::Cosine] {
            for threads in [1, 3] {
                let params = KMeans::params(2).seeding(seeding.clone()).metric(metric).threads(Some(threads));
                assert_eq!(
                    refused(params.fit(&Any(AnySource::of::<T>(source)))),
                    message,
                    "{seeding:?}, {metric:?}"
                );
            }
        }
    }
}

#[test]
fn the_first_non_finite_value_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (n, row) in [(10, 7), (9000, 8123)] {
        let mut values: Vec<f64> = (0..n * 3).map(|i| (i % 17) as f64).collect();
        values[row * 3 + 1] = f64::NAN;
        let message = format!("rows must be finite, got NaN at row {row}, column 1");
        bad_value(&Dense::new(&values, 3).unwrap(), 3, &message);
        let narrow: Vec<f32> = values.iter().map(|&x| x as f32).collect();
        bad_value(&Dense::new(&narrow, 3).unwrap(), 3, &message);
        bad_value::<f32>(&file(&folder, "nan.npy", &narrow, 3), 3, &message);
        bad_value(&Chunks::replay(3, || narrow.chunks(3 * 100).map(|c| Ok(c.to_vec().into()))), 3, &message);
        values[row * 3 + 1] = f64::NEG_INFINITY;
        let message = format!("rows must be finite, got -inf at row {row}, column 1");
        bad_value(&Dense::new(&values, 3).unwrap(), 3, &message);
    }
}

#[test]
fn values_whose_squares_overflow() {
    let values = [0.0, 1e200, 1.0, -1e200];
    let message = refused(KMeans::params(2).fit(&Dense::new(&values, 2).unwrap()));
    assert!(message.contains("overflow") && message.contains("scale the data"), "{message}");
}

#[test]
fn given_centers_of_a_wrong_shape_or_value() {
    let given = |values: Vec<f64>| refused(KMeans::params(2).seeding(Seeding::Given(values)).fit(&ROWS));
    assert_eq!(given(vec![0.0; 3]), "seeding must give 2 centers of 2 values, got 3 values");
    assert_eq!(given(vec![]), "seeding must give 2 centers of 2 values, got 0 values");
    assert_eq!(given(vec![0.0; 6]), "seeding must give 2 centers of 2 values, got 6 values");
    assert_eq!(given(vec![0.0, 1.0, f64::NAN, 2.0]), "seeding must be finite, got NaN at row 1, column 0");
    // Finite in f64, but not in the type of the rows.
    assert_eq!(given(vec![0.0, 1e300, 1.0, 2.0]), "seeding must be finite, got inf at row 0, column 1");
}

#[test]
fn invalid_weights() {
    let rows = Dense::new(&[0.0f64, 1.0, 2.0], 1).unwrap();
    let weighted = |weights: Vec<f64>| Weighted::new(rows, weights).unwrap_err().to_string();
    assert_eq!(weighted(vec![1.0, f64::NAN, 1.0]), "weights must be finite and at least 0, got NaN at row 1");
    assert_eq!(
        weighted(vec![1.0, 1.0, f64::INFINITY]),
        "weights must be finite and at least 0, got inf at row 2"
    );
    assert_eq!(weighted(vec![-0.5, 1.0, 1.0]), "weights must be finite and at least 0, got -0.5 at row 0");
    assert_eq!(
        weighted(vec![0.0; 3]),
        "weights must be above 0 for at least one row, got zero for every row"
    );
    assert_eq!(weighted(vec![1.0; 2]), "weights have 2 values, `rows` have 3 rows");
}

#[test]
fn invalid_weights_of_a_stream() {
    for (bad, text) in [(f64::NAN, "NaN"), (-1.0, "-1"), (f64::INFINITY, "inf")] {
        let stream = Chunks::replay(1, || {
            [vec![1.0, 1.0], vec![1.0, bad]]
                .into_iter()
                .enumerate()
                .map(|(i, weights)| Ok(Chunk::from(vec![i as f64, i as f64 + 0.5]).weighted(weights)))
        });
        for seeding in [Seeding::Given(vec![0.0, 1.0]), Seeding::Random, Seeding::Auto] {
            let params = KMeans::params(2).seeding(seeding);
            assert_eq!(
                refused(params.fit(&Any(AnySource::F64(&stream)))),
                format!("weights must be finite and at least 0, got {text} at row 3")
            );
        }
    }
}

#[test]
fn a_one_pass_stream_is_refused_before_it_is_read() {
    static READ: AtomicU64 = AtomicU64::new(0);
    let stream = Chunks::once(
        2,
        (0..3).map(|i| {
            READ.fetch_add(1, Ordering::Relaxed);
            Ok(vec![i as f32; 8].into())
        }),
    );
    let message = refused(KMeans::params(2).fit(&Any(AnySource::F32(&stream))));
    assert_eq!(
        message,
        "this method reads its rows more than once, but `rows` can be read only once: pass a callable that returns a \
         fresh iterator, or write the rows to a .npy file and open it"
    );
    assert_eq!(READ.load(Ordering::Relaxed), 0, "rows are lost");
    let seeds =
        Seeding::Random.choose(&stream as &dyn DataSource<f32>, 2, 0, 0, &Executor::new(None).unwrap());
    assert!(seeds.unwrap_err().to_string().contains("can be read again"));
    assert_eq!(READ.load(Ordering::Relaxed), 0, "rows are lost");
}

/// A stream of the rows in chunks of seven that counts its passes.
fn stream<'a>(rows: &'a [[f32; 2]], access: Access, passes: &'a AtomicU64) -> Chunks<'a, f32> {
    let chunks = move || {
        passes.fetch_add(1, Ordering::Relaxed);
        rows.chunks(7).map(|chunk| Ok(chunk.as_flattened().to_vec().into()))
    };
    if access == Access::Once { Chunks::once(2, chunks()) } else { Chunks::replay(2, chunks) }
}

/// `n` rows around three points.
fn many(n: usize) -> Vec<[f32; 2]> {
    (0..n).map(|i| [(i % 3 * 10) as f32 + (i % 11) as f32 / 10.0, (i % 7) as f32 / 5.0]).collect()
}

#[test]
fn given_centers_take_one_pass_over_a_stream_of_unknown_length() {
    let rows = many(5000);
    for metric in [Metric::Euclidean, Metric::Cosine] {
        let model = KMeans::params(3).metric(metric).fit(&rows).unwrap();
        for access in [Access::Once, Access::Replay] {
            let passes = AtomicU64::new(0);
            let fresh = || stream(&rows, access, &passes);
            let any =
                |source: &Chunks<'_, f32>, use_it: &dyn Fn(&Any<'_>)| use_it(&Any(AnySource::F32(source)));
            any(&fresh(), &|rows| assert_eq!(model.predict(rows).unwrap(), model.labels()));
            any(&fresh(), &|streamed| {
                assert_eq!(model.inertia_of(streamed).unwrap(), model.inertia_of(&rows).unwrap());
            });
            any(&fresh(), &|streamed| {
                assert_eq!(model.nearest(streamed, 2).unwrap(), model.nearest(&rows, 2).unwrap());
            });
            any(&fresh(), &|streamed| {
                assert_eq!(model.transform(streamed).unwrap(), model.transform(&rows).unwrap());
            });
            assert_eq!(passes.load(Ordering::Relaxed), 4, "a pass each");
        }
    }
    let none = Chunks::<f32>::replay(2, std::iter::empty);
    let model = KMeans::params(3).fit(&rows).unwrap();
    assert_eq!(model.predict(&Any(AnySource::F32(&none))).unwrap(), [0; 0]);
}

#[test]
fn a_fit_counts_the_rows_of_a_stream_once() {
    let rows = many(5000);
    let passes = AtomicU64::new(0);
    let source = stream(&rows, Access::Replay, &passes);
    let params =
        KMeans::params(3).seeding(Seeding::Given(vec![0.0, 0.0, 5.0, 1.0, 30.0, 1.0])).tolerance(0.0);
    let model = params.fit(&Any(AnySource::F32(&source))).unwrap();
    // One pass to count, and one per sweep. In so few sweeps every sweep sums all rows, and the inertia needs
    // no further pass.
    assert_eq!(passes.load(Ordering::Relaxed), 1 + model.n_iter());
    assert_eq!(model.labels(), params.fit(&rows).unwrap().labels());
}

/// A source with a known number of rows, whose weights are only known after a pass.
struct Weighing(Vec<f64>);

impl DataSource<f64> for Weighing {
    fn dim(&self) -> usize {
        1
    }
    fn rows(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }
    fn access(&self) -> Access {
        Access::Replay
    }
    fn for_each_block(
        &self,
        _tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, f64>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let rows: Vec<f64> = (0..self.0.len()).map(|i| i as f64).collect();
        let rows = MatRef::new(&rows, 1);
        f(Block { first_row: 0, len: self.0.len(), rows: &rows, weights: Some(&self.0) }).map(|_| ())
    }
    fn gather(&self, _: &[u64], _: &mut Vec<f64>) -> Result<()> {
        unreachable!("it is no source of single rows")
    }
}

#[test]
fn a_stream_whose_weights_are_all_0() {
    let weightless = Chunks::replay(1, || {
        (0..3u8).map(|i| Ok(Chunk::from(vec![f64::from(i), 9.0]).weighted(vec![0.0, 0.0])))
    });
    let sources: [&dyn DataSource<f64>; 2] = [&weightless, &Weighing(vec![0.0; 6])];
    for source in sources {
        for seeding in [Seeding::Given(vec![0.0, 1.0]), Seeding::Random, Seeding::Auto] {
            let params = KMeans::params(2).seeding(seeding);
            let message = refused(params.fit(&Any(AnySource::F64(source))));
            assert_eq!(message, "weights must be above 0 for at least one row, got zero for every row");
        }
    }
    let some = Weighing(vec![0.0, 1.0, 0.0, 2.0, 3.0]);
    let params = KMeans::params(2).seeding(Seeding::Given(vec![0.0, 9.0]));
    assert_eq!(params.fit(&Any(AnySource::F64(&some))).unwrap().cluster_weights().iter().sum::<f64>(), 6.0);
}

#[test]
fn results_larger_than_memory() {
    /// A source with more rows than memory for the results. No row is read.
    struct Endless;
    impl DataSource<f32> for Endless {
        fn dim(&self) -> usize {
            2
        }
        fn rows(&self) -> Option<u64> {
            Some(1 << 50)
        }
        fn access(&self) -> Access {
            Access::Random
        }
        fn for_each_block(
            &self,
            _: usize,
            _: &mut dyn FnMut(Block<'_, f32>) -> Result<ControlFlow<()>>,
        ) -> Result<()> {
            unreachable!("the size of the result is checked first")
        }
        fn gather(&self, _: &[u64], _: &mut Vec<f32>) -> Result<()> {
            unreachable!("the size of the result is checked first")
        }
    }
    let model = KMeans::params(3).fit(&ROWS).unwrap();
    let endless = Any(AnySource::F32(&Endless));
    let refusals = [
        model.predict(&endless).map(drop),
        model.transform(&endless).map(drop),
        model.nearest(&endless, 2).map(drop),
        KMeans::params(3).fit(&endless).map(drop),
        KMeans::params(3).seeding(Seeding::PlusPlus { greedy: true }).fit(&endless).map(drop),
    ];
    for refusal in refusals {
        let error = refusal.unwrap_err();
        assert!(matches!(error, Error::Memory(_)), "{error:?}");
        assert!(error.to_string().contains("1125899906842624 rows"), "{error}");
    }
}

#[test]
fn rows_of_another_length_in_predict() {
    let rows: Vec<f32> = (0..40).map(|i| i as f32).collect();
    let model = KMeans::params(4).fit(&Dense::new(&rows, 4).unwrap()).unwrap();
    // Each of these lengths except the last divides the number of center values.
    for d in [1, 2, 8, 16, 3] {
        let other = vec![0.0f32; d];
        let other = Dense::new(&other, d).unwrap();
        let message = format!("`rows` have {d} columns, but the model was fitted to 4");
        assert_eq!(model.predict(&other).unwrap_err().to_string(), message);
        assert_eq!(model.inertia_of(&other).unwrap_err().to_string(), message);
    }
}

#[test]
fn invalid_rows_in_predict() {
    let model = KMeans::params(2).fit(&ROWS).unwrap();
    let bad = [[0.0f32, 1.0], [f32::NAN, 0.0]];
    let message = "rows must be finite, got NaN at row 1, column 0";
    assert_eq!(model.predict(&bad).unwrap_err().to_string(), message);
    assert_eq!(model.inertia_of(&bad).unwrap_err().to_string(), message);
    let none = Dense::<f32>::new(&[], 2).unwrap();
    assert_eq!(model.predict(&none).unwrap(), [0; 0]);
}

#[test]
fn rows_of_another_type_in_a_run() {
    let wide: Vec<[f64; 2]> = ROWS.iter().map(|row| row.map(f64::from)).collect();
    let mut run = KMeans::params(2).start(&ROWS).unwrap();
    let error = run.advance_on(&wide, &Executor::new(None).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "the rows must have the compute type of the run: convert them");
}

#[test]
fn invalid_matrices() {
    assert_eq!(
        Dense::new(&[1.0f32; 5], 2).unwrap_err().to_string(),
        "5 values do not divide into rows of 2 columns"
    );
    assert!(std::panic::catch_unwind(|| MatRef::new(&[1.0f32; 5], 2)).is_err());
}

#[test]
fn invalid_files() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    file(&folder, "good.npy", &[0.0; 12], 3);
    let good = fs::read(folder.path().join("good.npy")).unwrap();
    let cut = &good[..good.len() - 1];
    for (path, kind) in [
        (folder.path().join("missing.npy"), "Io"),
        (folder.path().to_path_buf(), ""),
        (write("zero.npy", &[]), "Format"),
        (write("text.npy", b"a,b\n1,2\n3,4\n5,6\n"), "Format"),
        (write("header.npy", &good[..40]), "Format"),
        (write("cut.npy", cut), "Format"),
    ] {
        let error = npy::open(&path).expect_err(&path.display().to_string());
        assert!(format!("{error:?}").starts_with(kind), "{error:?}");
        assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
    }
    assert!(raw::open(folder.path().join("good.npy"), Dtype::F32, 1000, 3, 128).is_err());
}

#[test]
fn check_finite_reads_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let mapped = file(&folder, "inf.npy", &[0.0, 1.0, 2.0, f32::INFINITY], 2);
    let error = data::check_finite::<f32>(&mapped, &Executor::new(None).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "rows must be finite, got inf at row 1, column 1");
}
