//! An interrupted run stops between tiles and continues with bit-identical results.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use shoal::data::{Access, AnySource, Block, DataSource, Dense, Source, TileReader};
use shoal::{Error, Executor, Interrupt, KMeans, MatRef, Result, Seeding};

/// Rows in one block. When the sixth tile is read, another thread sets the interrupt.
struct Watched<'a> {
    rows: MatRef<'a, f64>,
    interrupt: &'a Interrupt,
    read: AtomicU64,
    read_afterwards: AtomicU64,
}

impl TileReader<f64> for Watched<'_> {
    fn tile<'s>(&'s self, rows: Range<usize>, _scratch: &'s mut Vec<f64>) -> Result<MatRef<'s, f64>> {
        if self.interrupt.is_set() {
            self.read_afterwards.fetch_add(1, Ordering::Relaxed);
        }
        if self.read.fetch_add(1, Ordering::Relaxed) == 5 {
            std::thread::scope(|s| s.spawn(|| self.interrupt.set()).join()).unwrap();
        }
        Ok(self.rows.slice(rows.start, rows.end))
    }
}

impl DataSource<f64> for Watched<'_> {
    fn dim(&self) -> usize {
        self.rows.cols()
    }
    fn rows(&self) -> Option<u64> {
        Some(MatRef::rows(&self.rows) as u64)
    }
    fn access(&self) -> Access {
        Access::Random
    }
    fn for_each_block(
        &self,
        _tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, f64>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        f(Block { first_row: 0, len: MatRef::rows(&self.rows), rows: self, weights: None }).map(|_| ())
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<f64>) -> Result<()> {
        self.rows.gather(rows, out)
    }
}

impl Source for Watched<'_> {
    fn any(&self) -> AnySource<'_> {
        AnySource::F64(self)
    }
}

#[test]
fn another_thread_can_interrupt_a_sweep_between_tiles() {
    let values: Vec<f64> = (0..200_000).map(|i| f64::from(i % 1009)).collect();
    for threads in [1, 3] {
        let cx = Executor::new(Some(threads)).unwrap();
        let source = Watched {
            rows: MatRef::new(&values, 2),
            interrupt: cx.interrupt(),
            read: AtomicU64::new(0),
            read_afterwards: AtomicU64::new(0),
        };
        let params = KMeans::params(2).seeding(Seeding::Given(vec![0.0, 1.0, 2.0, 3.0]));
        let mut run = params.start(&source).unwrap();
        let error = run.advance_on(&source, &cx).unwrap_err();
        assert!(matches!(error, Error::Interrupted), "{error}");
        assert_eq!(error.to_string(), "interrupted");
        // Each of the other threads may already have started to read one tile.
        let afterwards = source.read_afterwards.load(Ordering::Relaxed);
        assert!(afterwards < threads as u64, "{afterwards} tiles were read afterwards");
    }
}

/// A source of small blocks that sets the interrupt when it reads block `at`, counted over all passes.
struct Trap<'a> {
    rows: Dense<'a, f64>,
    executor: &'a Executor,
    read: AtomicU64,
    at: u64,
}

impl DataSource<f64> for Trap<'_> {
    fn dim(&self) -> usize {
        self.rows.dim()
    }
    fn rows(&self) -> Option<u64> {
        DataSource::rows(&self.rows)
    }
    fn access(&self) -> Access {
        Access::Random
    }
    fn for_each_block(
        &self,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, f64>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let matrix = self.rows.matrix();
        for start in (0..matrix.rows()).step_by(tile_rows) {
            if self.read.fetch_add(1, Ordering::Relaxed) == self.at {
                self.executor.interrupt().set();
            }
            let rows = matrix.slice(start, matrix.rows().min(start + tile_rows));
            if f(Block { first_row: start as u64, len: rows.rows(), rows: &rows, weights: None })?.is_break()
            {
                break;
            }
        }
        Ok(())
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<f64>) -> Result<()> {
        self.rows.gather(rows, out)
    }
}

impl Source for Trap<'_> {
    fn any(&self) -> AnySource<'_> {
        AnySource::F64(self)
    }
}

#[test]
fn an_interrupted_run_continues_with_identical_results() {
    let values: Vec<f64> = (0..9000).map(|i| f64::from(i * 7919 % 1009) + f64::from(i % 3) * 500.0).collect();
    // Three equal centers leave two clusters empty, so that sweeps relocate them.
    let plain =
        KMeans::params(4).seeding(Seeding::Given(vec![0.0, 0.0, 0.0, 900.0])).tolerance(0.0).max_iter(4);
    interrupted_anywhere(&plain, Dense::new(&values, 1).unwrap());
    // More centers than a panel holds: bounded sweeps pack the centers in another order. The values have
    // rounded sums, so the order of the sums shows.
    let values: Vec<f64> = values.iter().map(|x| x / 7.0).collect();
    for algorithm in [
        shoal::Algorithm::Yinyang,
        shoal::Algorithm::Elkan,
        shoal::Algorithm::Exponion,
        shoal::Algorithm::Filtering,
        shoal::Algorithm::Sketch,
    ] {
        let bounded =
            KMeans::params(70).seeding(Seeding::Random).tolerance(0.0).max_iter(6).algorithm(algorithm);
        interrupted_anywhere(&bounded, Dense::new(&values, 2).unwrap());
    }
}

/// Interrupts a run at every block, including the last pass.
fn interrupted_anywhere(params: &shoal::kmeans::KMeansParams, rows: Dense<'_, f64>) {
    let expected = params.fit(&rows).unwrap();
    for at in 0.. {
        let cx = Executor::new(Some(2)).unwrap();
        let trap = Trap { rows, executor: &cx, read: AtomicU64::new(0), at };
        let mut run = params.start(&trap).unwrap();
        let mut interrupted = false;
        loop {
            match run.advance_on(&trap, &cx) {
                Ok(Some(_)) => (),
                Ok(None) => break,
                Err(Error::Interrupted) => {
                    interrupted = true;
                    cx.interrupt().clear();
                    // The step has no effect, so a checkpoint holds the state after the previous step.
                    if !run.history().is_empty() {
                        run = params.resume_fit(&run.checkpoint(&trap).unwrap(), &trap).unwrap();
                    }
                }
                Err(e) => panic!("{e}"),
            }
        }
        let model = run.into_model();
        assert_eq!(model.labels(), expected.labels(), "interrupted at block {at}");
        assert_eq!(model.centers::<f64>(), expected.centers::<f64>(), "interrupted at block {at}");
        assert_eq!(model.inertia(), expected.inertia(), "interrupted at block {at}");
        assert_eq!(model.n_iter(), expected.n_iter(), "interrupted at block {at}");
        if !interrupted {
            assert!(at > 20, "there are that many blocks");
            break;
        }
    }
}
