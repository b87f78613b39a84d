//! Sources that change, miscount, shrink or fail give a clear error.

use std::fs;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use shoal::data::{self, Access, AnySource, Block, Chunks, DataSource, Dense, Permuted, Source, TileReader};
use shoal::fit::{Driver, Method, Run, Step};
use shoal::kmeans::Size;
use shoal::kmodes::LaplacianKModes;
use shoal::stats::{MergeReduce, lightweight_coreset};
use shoal::{
    BackwardEuler, Balanced, Breathing, Error, Executor, HierarchicalKMeans, KMeans, MatRef, MiniBatch,
    NestedMiniBatch, Result, Seeding, TruncatedGaussianMixture, VarianceReduced,
};

use crate::common::{self, Any, file, refused};

#[test]
fn a_stream_that_changes_between_passes() {
    for change in [-1i64, 1] {
        let pass = AtomicU64::new(0);
        let stream = Chunks::replay(1, || {
            let pass = pass.fetch_add(1, Ordering::Relaxed) as i64;
            let rows = if pass < 3 { 5000 } else { 5000 + change };
            std::iter::once(Ok((0..rows).map(|i| (i % 7) as f64).collect::<Vec<_>>().into()))
        });
        let params = KMeans::params(3).seeding(Seeding::Given(vec![0.0, 1.0, 2.0])).tolerance(0.0);
        let message = refused(params.fit(&Any(AnySource::F64(&stream))));
        let found = if change < 0 { "4999" } else { "more than 5000" };
        assert_eq!(message, format!("the source gave {found} rows in one pass, but announced 5000"));
    }
}

/// A source of one column whose rows do not match its announcement.
#[derive(Clone, Copy)]
struct Miscounted {
    announced: u64,
    /// Rows of a pass, in one block.
    passed: usize,
    /// Number of values that `gather` leaves out.
    withheld: usize,
    /// Number of rows that a tile leaves out.
    short: usize,
    /// The first row of a pass.
    first_row: u64,
    weights: Option<&'static [f64]>,
    access: Access,
}

impl Miscounted {
    const EXACT: Self = Self {
        announced: 2000,
        passed: 2000,
        withheld: 0,
        short: 0,
        first_row: 0,
        weights: None,
        access: Access::Random,
    };

    fn value(row: u64) -> f32 {
        (row % 3) as f32 * 10.0 + (row % 7) as f32
    }
}

impl TileReader<f32> for Miscounted {
    fn tile<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<f32>) -> Result<MatRef<'s, f32>> {
        scratch.clear();
        let rows = rows.start..rows.end.saturating_sub(self.short).max(rows.start);
        scratch.extend(rows.map(|row| Self::value(row as u64)));
        Ok(MatRef::new(scratch, 1))
    }
}

impl DataSource<f32> for Miscounted {
    fn dim(&self) -> usize {
        1
    }
    fn rows(&self) -> Option<u64> {
        Some(self.announced)
    }
    fn access(&self) -> Access {
        self.access
    }
    fn for_each_block(
        &self,
        _tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, f32>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let Self { first_row, passed, weights, .. } = *self;
        f(Block { first_row, len: passed, rows: self, weights }).map(drop)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<f32>) -> Result<()> {
        out.extend(rows.iter().take(rows.len().saturating_sub(self.withheld)).map(|&row| Self::value(row)));
        Ok(())
    }
}

impl Source for Miscounted {
    fn any(&self) -> AnySource<'_> {
        AnySource::F32(self)
    }
}

#[test]
fn a_wrong_number_of_rows_is_refused_by_every_consumer() {
    let cx = Executor::new(Some(1)).unwrap();
    let exact = Miscounted { access: Access::Replay, ..Miscounted::EXACT };
    let model = KMeans::params(3).fit(&Miscounted::EXACT).unwrap();
    for (passed, found) in [(500, "500 rows"), (2500, "more than 2000 rows")] {
        let source = Miscounted { passed, access: Access::Replay, ..Miscounted::EXACT };
        let mut coreset = MergeReduce::new(50, 0).unwrap();
        let mut stream = MiniBatch::params(3).stream(&source).unwrap();
        let outcomes = [
            KMeans::params(3).fit(&source).map(drop),
            KMeans::params(3).seeding(Seeding::Given(vec![0.0, 1.0, 2.0])).fit(&source).map(drop),
            MiniBatch::params(3).fit(&source).map(drop),
            BackwardEuler::params(3).fit(&source).map(drop),
            NestedMiniBatch::params(3).shuffle(false).fit(&source).map(drop),
            VarianceReduced::params(3).fit(&source).map(drop),
            Breathing::params(3).fit(&source).map(drop),
            Balanced::params(3).fit(&source).map(drop),
            lightweight_coreset(&source, 50, 0, &cx).map(drop),
            coreset.absorb(&source, &cx),
            data::check_finite(&source, &cx),
            model.predict(&source).map(drop),
            model.inertia_of(&source).map(drop),
        ];
        for (i, outcome) in outcomes.into_iter().enumerate() {
            let message = outcome.expect_err(&format!("consumer {i} of {passed} rows")).to_string();
            assert_eq!(message, format!("the source gave {found} in one pass, but announced 2000"), "{i}");
        }
        assert!(stream.partial_fit_on(&source, &cx).is_err());
        // The error left no rows in the coreset.
        assert_eq!(coreset.rows(), 0);
        coreset.absorb(&exact, &cx).unwrap();
        assert_eq!(coreset.rows(), 2000);
    }
}

#[test]
fn blocks_with_a_wrong_position_or_number_of_weights_are_refused() {
    let cx = Executor::new(Some(1)).unwrap();
    let exact = Miscounted { access: Access::Replay, ..Miscounted::EXACT };
    let late = Miscounted { first_row: 7, ..exact };
    let light = Miscounted { weights: Some(&[1.0; 5]), ..exact };
    for (source, message) in [
        (&late, "the source gave a block that begins with row 7, and 0 rows before it"),
        (&light, "the source gave 5 weights for a block of 2000 rows"),
    ] {
        let given = KMeans::params(3).seeding(Seeding::Given(vec![0.0, 1.0, 2.0]));
        assert_eq!(refused(given.fit(source)), message);
        assert_eq!(refused(MiniBatch::params(3).fit(source)), message);
        assert_eq!(data::check_finite(source, &cx).unwrap_err().to_string(), message);
    }
    // Methods that read single rows.
    let short = Miscounted { short: 1, ..exact };
    let message = refused(KMeans::params(3).seeding(Seeding::Random).fit(&short));
    assert!(message.starts_with("the source gave 0 rows of"), "{message}");
    let mut run = LaplacianKModes::params(3).start(&Miscounted { short: 1, ..Miscounted::EXACT }).unwrap();
    let message = run.know_rows(&short).unwrap_err().to_string();
    assert_eq!(message, "the source gave 0 rows of 1 columns in place of one of 1");
}

#[test]
fn missing_rows_of_gather_and_tiles_are_refused() {
    let cx = Executor::new(Some(1)).unwrap();
    let few = Miscounted { withheld: 1, ..Miscounted::EXACT };
    let outcomes = [
        KMeans::params(3).seeding(Seeding::Random).fit(&few).map(drop),
        KMeans::params(3).seeding(Seeding::AfkMc2 { chain: 20 }).fit(&few).map(drop),
        MiniBatch::params(3).fit(&few).map(drop),
        NestedMiniBatch::params(3).fit(&few).map(drop),
        BackwardEuler::params(3).fit(&few).map(drop),
        VarianceReduced::params(3).fit(&few).map(drop),
        Breathing::params(3).fit(&few).map(drop),
        Balanced::params(3).fit(&few).map(drop),
        data::check_finite::<f32>(&Permuted::new::<f32>(&few, vec![5u32, 1, 0]).unwrap(), &cx),
    ];
    for (i, outcome) in outcomes.into_iter().enumerate() {
        let message = outcome.expect_err(&format!("consumer {i}")).to_string();
        assert!(
            message.starts_with("the source gave") && message.ends_with("rows of 1 columns"),
            "{i}: {message}"
        );
    }
    let short = Miscounted { short: 1, ..Miscounted::EXACT };
    let given = KMeans::params(3).seeding(Seeding::Given(vec![0.0, 1.0, 2.0]));
    assert!(refused(given.fit(&short)).contains("rows of a tile of"));
    assert!(data::check_finite(&short, &cx).unwrap_err().to_string().contains("rows of a tile of"));
}

#[cfg(unix)]
#[test]
fn a_file_truncated_while_it_is_open_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let values: Vec<f32> = (0..200_000).map(|i| (i % 17) as f32).collect();
    let cx = Executor::new(Some(2)).unwrap();
    let rows = file(&folder, "rows.npy", &values, 2);
    let mut run = KMeans::params(3).seeding(Seeding::Random).start(&rows).unwrap();
    run.advance_on(&rows, &cx).unwrap();
    let path = folder.path().join("rows.npy");
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100_000).unwrap();
    let message = "was cut while it was open: its rows need 800128 bytes, 100000 are left";
    let cut = [
        run.advance_on(&rows, &cx).map(drop),
        DataSource::<f32>::gather(&rows, &[99_999], &mut Vec::new()),
        data::check_finite::<f32>(&rows, &cx),
    ];
    for outcome in cut {
        assert!(outcome.unwrap_err().to_string().ends_with(message));
    }
}

#[test]
fn errors_of_a_source_are_returned() {
    let stream = Chunks::<f32>::replay(1, || {
        [Ok(vec![0.0, 1.0].into()), Err(Error::Source("the disk is gone".into()))].into_iter()
    });
    let params = KMeans::params(2).seeding(Seeding::Given(vec![0.0, 1.0]));
    assert_eq!(refused(params.fit(&Any(AnySource::F32(&stream)))), "the disk is gone");
}

/// A run over 200 rows refuses other numbers of rows, before and after each of its first steps, and ends as if it had
/// never met them.
fn keeps_its_rows<M: Method>(name: &str, start: impl Fn(&Dense<'_, f64>) -> Result<Run<M>>) {
    let values: Vec<f64> = common::rows(400, 2);
    let of = |n: usize| Dense::new(&values[..2 * n], 2).unwrap();
    let rows = of(200);
    let (mut plain, mut run) = (start(&rows).unwrap(), start(&rows).unwrap());
    for _ in 0..4 {
        for n in [1, 20, 199, 201, 400] {
            let message =
                format!("`rows` have {n} rows, but the run began with 200: pass the rows of the run");
            let refused = run.advance(of(n)).expect_err(name);
            assert!(matches!(refused, Error::Shape(_)), "{name}: {refused:?}");
            assert_eq!(refused.to_string(), message, "{name}");
            if !run.history().is_empty() {
                assert_eq!(run.finish(of(n)).expect_err(name).to_string(), message, "{name}");
            }
        }
        let objective = |step: Option<Step>| step.map(|step| (step.objective.to_bits(), step.rows_seen));
        assert_eq!(objective(run.advance(rows).unwrap()), objective(plain.advance(rows).unwrap()), "{name}");
    }
}

#[test]
fn a_run_keeps_its_number_of_rows() {
    keeps_its_rows("kmeans", |rows| KMeans::params(3).rng_seed(1).start(rows));
    keeps_its_rows("minibatch", |rows| MiniBatch::params(3).batch_size(50).rng_seed(1).start(rows));
    for shuffle in [false, true] {
        let params = NestedMiniBatch::params(3).batch_size(20).shuffle(shuffle).rng_seed(1);
        keeps_its_rows("nested", |rows| params.start(rows));
    }
    keeps_its_rows("variance reduced", |rows| VarianceReduced::params(3).rng_seed(1).start(rows));
    keeps_its_rows("backward Euler", |rows| BackwardEuler::params(3).batch_size(50).rng_seed(1).start(rows));
    keeps_its_rows("balanced", |rows| Balanced::params(3).size_max(Size::Rows(80)).rng_seed(1).start(rows));
    keeps_its_rows("breathing", |rows| Breathing::params(3).rng_seed(1).start(rows));
    keeps_its_rows("hierarchical", |rows| HierarchicalKMeans::params(3).rng_seed(1).start(rows));
    keeps_its_rows("mixture", |rows| TruncatedGaussianMixture::params(3).rng_seed(1).start(rows));
    keeps_its_rows("K-modes", |rows| LaplacianKModes::params(3).rng_seed(1).start(rows));
}

#[test]
fn a_driver_keeps_its_number_of_rows() {
    let (values, cx): (Vec<f64>, _) = (common::rows(100, 2), Executor::new(Some(1)).unwrap());
    let of = |n: usize| Dense::new(&values[..2 * n], 2).unwrap();
    let mut driver = Driver::new(MiniBatch::solver::<f64>(&MiniBatch::params(3)));
    driver.advance(&of(50), &cx).unwrap();
    let refused = driver.advance(&of(40), &cx).unwrap_err().to_string();
    assert_eq!(refused, "`rows` have 40 rows, but the run began with 50: pass the rows of the run");
}

#[test]
fn a_run_keeps_its_columns_from_its_start_on() {
    let (narrow, wide): (Vec<[f64; 2]>, Vec<[f64; 3]>) = (vec![[0.0; 2]; 9], vec![[0.0; 3]; 9]);
    let told = "`rows` have 3 columns, but the run began with 2: pass the rows of the run";
    let mut run = KMeans::params(1).start(&narrow).unwrap();
    assert_eq!(run.advance(&wide).unwrap_err().to_string(), told);
    run.advance(&narrow).unwrap();
    assert_eq!(run.finish(&wide).unwrap_err().to_string(), told);
    let saved = KMeans::params(1).start(&narrow).unwrap().checkpoint(&narrow).unwrap();
    let mut run = KMeans::params(1).resume_fit(&saved, &narrow).unwrap();
    assert_eq!(run.advance(&wide).unwrap_err().to_string(), told);
}
