//! Tests of fits that are interrupted at any read of rows, and continued.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use super::affinity::Affinity;
use super::params::{Collapse, KModesParams, LaplacianKModes, ModeUpdate};
use super::solver::KModesSolver;
use crate::data::{Access, Block, DataSource, Dense, RawRows};
use crate::error::{Error, Result};
use crate::fit::{Solver, SolverState};
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};

const N: usize = 150;
const DIM: usize = 6;

/// Rows that set the interrupt at read number `at`.
struct Interrupting<'a> {
    rows: Dense<'a, f64>,
    cx: &'a Executor,
    reads: AtomicU64,
    at: u64,
}

impl Interrupting<'_> {
    fn read(&self) {
        if self.reads.fetch_add(1, Ordering::Relaxed) + 1 == self.at {
            self.cx.interrupt().set();
        }
    }
}

impl DataSource<f64> for Interrupting<'_> {
    fn dim(&self) -> usize {
        self.rows.dim()
    }
    fn rows(&self) -> Option<u64> {
        self.rows.rows()
    }
    fn access(&self) -> Access {
        Access::Random
    }
    fn for_each_block(
        &self,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, f64>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.read();
        self.rows.for_each_block(tile_rows, f)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<f64>) -> Result<()> {
        self.read();
        self.rows.gather(rows, out)
    }
}

/// Labels to start from; some rows have none.
fn labels() -> Vec<Option<u32>> {
    (0..N as u32).map(|i| (i % 7 != 6).then_some(i % 6)).collect()
}

/// The end of a fit that is interrupted at read `at`, or before every step if `always`, and the number of
/// interrupts.
fn end(
    params: &KModesParams,
    values: &[f64],
    (affinity, from_labels): (Option<&Affinity>, bool),
    at: u64,
    always: bool,
) -> (KModesSolver<f64>, u64) {
    let cx = Executor::new(Some(1)).unwrap();
    let data = Interrupting { rows: Dense::new(values, DIM).unwrap(), cx: &cx, reads: 0.into(), at };
    let mut solver = KModesSolver::plan(params);
    if let Some(affinity) = affinity {
        solver.take_affinity(affinity.clone());
    }
    if from_labels {
        solver.begin_with(labels(), ("", 0.0));
    }
    let (mut interrupted, mut due) = (0, always);
    loop {
        if due {
            cx.interrupt().set();
        }
        match solver.step(&data, &cx) {
            Ok(step) if step.stop_reason.is_some() => return (solver, interrupted),
            Ok(_) => due = always,
            Err(Error::Interrupted) => {
                interrupted += 1;
                due = false;
                cx.interrupt().clear();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Everything that a fit exposes, except timings.
fn shown(solver: &KModesSolver<f64>) -> impl PartialEq + std::fmt::Debug {
    let state = solver;
    let flags = (state.collapsed, state.shifted, state.blind, state.n_iter, solver.rows_seen);
    let figures = [state.variance, state.lambda, state.recall].map(f64::to_bits);
    (solver.checkpoint().arrays, flags, figures, state.about.clone(), solver.expected.map(f64::to_bits))
}

/// Rows without cluster structure, so that some clusters collapse under a large weight.
fn scattered(seed: u64) -> Vec<f64> {
    let mut rng = Rng::keyed(seed, Purpose::Seeding, 0);
    (0..N * DIM).map(|_| rng.unit() + rng.unit() + rng.unit()).collect()
}

#[test]
fn an_interrupt_anywhere_changes_nothing() {
    let ring: Vec<u32> = (0..N as u32).map(|i| (i + 3) % N as u32).collect();
    let starts: Vec<usize> = (0..=N).collect();
    let ring = Affinity::symmetrized(&starts, &ring, &[1.0; N]).unwrap();
    let params = LaplacianKModes::params(6).normalize(false).laplacian_weight(2.0);
    let reducing = params.clone().on_collapse(Collapse::Reduce);
    let shifting = params.clone().laplacian_weight(8.0);
    let shifts = ModeUpdate::MeanShift;
    let mut totals = (0, 0, 0);
    for (params, affinity) in [
        (params.clone(), None),
        (params.clone(), Some(&ring)),
        (params.clone().gaussian(true).responsibilities_memory(Some(0)), None),
        (params.mode_update(shifts), None),
        (reducing.clone(), None),
        (reducing.mode_update(shifts), None),
        (shifting.clone(), None),
        (shifting.mode_update(shifts), None),
    ] {
        for (seed, from_labels) in (0..3).flat_map(|seed| [(seed, false), (seed, true)]) {
            let (values, start) = (scattered(seed), (affinity, from_labels));
            let whole = end(&params, &values, start, 0, false).0;
            let state = &whole;
            totals.0 += u64::from(state.shifted);
            totals.1 += u64::from(state.collapsed);
            totals.2 += u64::from(state.n_iter > 2);
            let (again, interrupted) = end(&params, &values, start, 0, true);
            assert!(interrupted >= state.n_iter && shown(&again) == shown(&whole), "{params:?}");
            // Every read for the first seed, some reads for the others.
            for at in (1..).step_by(1 + 2 * seed as usize) {
                let (again, interrupted) = end(&params, &values, start, at, false);
                assert!(shown(&again) == shown(&whole), "read {at}: {params:?}");
                if interrupted == 0 {
                    assert!(at > 5);
                    break;
                }
            }
        }
    }
    assert!(totals.0 > 0 && totals.1 > 0 && totals.2 > 0, "{totals:?}");
}

#[test]
fn labels_replace_a_beginning_that_was_interrupted() {
    let params = LaplacianKModes::params(6).normalize(false).laplacian_weight(2.0);
    let values = scattered(1);
    let expected = end(&params, &values, (None, true), 0, false).0;
    for at in 1.. {
        let cx = Executor::new(Some(1)).unwrap();
        let data = Interrupting { rows: Dense::new(&values, DIM).unwrap(), cx: &cx, reads: 0.into(), at };
        let mut solver = KModesSolver::plan(&params);
        if solver.step(&data, &cx).is_ok() {
            assert!(at > 3);
            break;
        }
        cx.interrupt().clear();
        solver.begin_with(labels(), ("", 0.0));
        while solver.step(&data, &cx).unwrap().stop_reason.is_none() {}
        assert!(shown(&solver) == shown(&expected), "read {at}");
    }
}

#[test]
fn a_resumed_fit_keeps_what_it_chose() {
    let values = scattered(2);
    let rows = RawRows::new(&values, DIM).unwrap();
    let auto = LaplacianKModes::params(3);
    for scaled in [false, true] {
        // The rule chooses false for few columns.
        let params = auto.clone().normalize(scaled).n_neighbors(7);
        let mut run = params.start(&rows).unwrap();
        run.advance(&rows).unwrap();
        let mut again = auto.resume_fit(&run.checkpoint(&rows).unwrap(), &rows).unwrap();
        while run.advance(&rows).unwrap().is_some() {}
        while again.advance(&rows).unwrap().is_some() {}
        let (whole, again) = (run.into_model(), again.into_model());
        assert_eq!((again.normalize(), again.n_neighbors()), (scaled, 7));
        assert_eq!((again.labels(), again.energies()), (whole.labels(), whole.energies()));
        let other = auto.clone().normalize(!scaled).start(&rows).unwrap().checkpoint(&rows).unwrap();
        assert!(params.resume_fit(&other, &rows).is_err());
    }
}

#[test]
fn cosine_is_another_name_for_scaled_rows() {
    let values = scattered(3);
    let rows = RawRows::new(&values, DIM).unwrap();
    let cosine = LaplacianKModes::params(3).metric(crate::Metric::Cosine).fit(&rows).unwrap();
    let scaled = LaplacianKModes::params(3).normalize(true).fit(&rows).unwrap();
    assert!(cosine.normalize());
    assert_eq!((cosine.labels(), cosine.energies()), (scaled.labels(), scaled.energies()));
}
