//! Tests of a breath against its definition, and of whole fits against exact k-means.

use super::centers::{drawn, largest, with_copies, without_useless};
use super::passes::utilities;
use super::{Breathing, BreathingParams, BreathingRun};
use crate::data::{Access, Block, Csr, DataSource, Dense, Source, Weighted};
use crate::error::{Error, Result};
use crate::fit::{FitSolver, Method, Solver, SolverState};
use crate::kernel::sq_dist;
use crate::kmeans::KMeans;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::seeding::Seeding;

fn noise(n: usize, seed: u64) -> Vec<f64> {
    let mut rng = Rng::keyed(seed, Purpose::Seeding, 0);
    (0..n).map(|_| rng.unit() - 0.5).collect()
}

/// Rows in 30 groups.
fn grouped(n: usize, d: usize, seed: u64) -> Vec<f64> {
    let (middles, values) = (noise(30 * d, seed), noise(n * d, seed + 1));
    (0..n * d).map(|i| 9.0 * middles[i / d * 7 % 30 * d + i % d] + values[i]).collect()
}

#[test]
fn the_worst_clusters_get_a_copy_of_their_center_beside_it() {
    let centers: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let centers = MatRef::new(&centers, 2);
    let errors = [0.0, 3.0, 5.0, 3.0, 0.0, 1.0];
    let copied = |m| {
        let rng = &mut Rng::keyed(1, Purpose::Breathing, 0);
        let all = with_copies(centers, &largest(&errors, m), 0.25, rng);
        assert_eq!(&all[..12], centers.data());
        let copies: Vec<usize> = all[12..]
            .chunks(2)
            .map(|copy| (0..6).find(|&j| (sq_dist(copy, centers.row(j)) - 0.0625).abs() < 1e-6).unwrap())
            .collect();
        copies
    };
    assert_eq!(copied(1), [2]);
    assert_eq!(copied(3), [2, 1, 3]);
    // Clusters without error are not split.
    assert_eq!(copied(6), [2, 1, 3, 5]);
}

#[test]
fn clusters_are_drawn_by_their_errors_and_once() {
    let errors = [0.0, 1.0, 2.0, 0.0, 5.0];
    let (mut first, mut rng) = ([0u32; 5], Rng::keyed(1, Purpose::Breathing, 0));
    for _ in 0..8000 {
        let mut found = drawn(&errors, 2, &mut rng);
        first[found[0]] += 1;
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), 2);
    }
    assert!(first[0] == 0 && first[3] == 0);
    let near = |count: u32, expected: u32| count.abs_diff(expected) < 200;
    assert!(near(first[1], 1000) && near(first[2], 2000) && near(first[4], 5000), "{first:?}");
    // No more clusters than have an error.
    assert_eq!(drawn(&errors, 9, &mut rng).len(), 3);
    assert_eq!(drawn(&[0.0; 3], 2, &mut rng), [0; 0]);
}

#[test]
fn a_copy_of_a_huge_center_is_finite() {
    let huge = [f32::MAX, -f32::MAX];
    let rng = &mut Rng::keyed(1, Purpose::Breathing, 0);
    let all = with_copies(MatRef::new(&huge, 2), &[0], 1e38, rng);
    assert!(all.len() == 4 && all.iter().all(|x| x.is_finite()));
}

#[test]
fn the_least_useful_centers_go_but_not_their_neighbors() {
    // Two close pairs, and two centers apart.
    let centers = [0.0f64, 1.0, 10.0, 11.0, 30.0, 60.0];
    let centers = MatRef::new(&centers, 1);
    let left = |utilities: &[f64], k| {
        let heirs = without_useless(centers, utilities, k);
        (0..6).filter(|&j| heirs[j] == j).collect::<Vec<_>>()
    };
    let utilities = [1.0, 2.0, 3.0, 4.0, 50.0, 60.0];
    assert_eq!(left(&utilities, 5), [1, 2, 3, 4, 5]);
    // Center 1 has the second lowest utility, but is needed once center 0 is gone.
    assert_eq!(left(&utilities, 4), [1, 3, 4, 5]);
    // The neighbor of center 2 is frozen too, so center 4 goes.
    assert_eq!(left(&utilities, 3), [1, 3, 5]);
    // Too few others would be left, so neighbors are removed.
    assert_eq!(left(&utilities, 2).len(), 2);
    assert_eq!(left(&[0.0; 6], 1).len(), 1);
    // The lower index goes among equals.
    assert_eq!(left(&[7.0; 6], 5), [1, 2, 3, 4, 5]);
}

#[test]
fn every_removed_center_has_a_heir_that_is_left() {
    let mut rng = Rng::keyed(3, Purpose::Seeding, 0);
    for round in 0..300 {
        let (n, d) = (2 + rng.below(20) as usize, 1 + rng.below(3) as usize);
        let k = 1 + rng.below(n as u64 - 1) as usize;
        let (centers, utilities) = (noise(n * d, round), noise(n, round + 1));
        let heirs = without_useless(MatRef::new(&centers, d), &utilities, k);
        assert_eq!((0..n).filter(|&j| heirs[j] == j).count(), k, "round {round}");
        assert!(heirs.iter().all(|&heir| heirs[heir] == heir), "round {round}");
    }
}

/// The growth of the energy when a center is removed, by definition.
fn growths(rows: &[f64], d: usize, centers: &[f64], weights: &[f64]) -> Vec<f64> {
    let k = centers.len() / d;
    let energy = |without: usize| -> f64 {
        let nearest = |row: &[f64]| {
            let left = (0..k).filter(|&j| j != without);
            left.map(|j| sq_dist(row, &centers[j * d..][..d])).fold(f64::INFINITY, f64::min)
        };
        rows.chunks(d).zip(weights).map(|(row, weight)| weight * nearest(row)).sum()
    };
    let all = energy(k);
    (0..k).map(|j| energy(j) - all).collect()
}

#[test]
fn a_utility_is_the_growth_of_the_energy() {
    let cx = Executor::new(Some(2)).unwrap();
    for (n, d, k) in [(5000, 3, 40), (700, 90, 70), (300, 1, 2)] {
        let (rows, centers) = (grouped(n, d, 1), grouped(k, d, 5));
        let weights: Vec<f64> = (0..n).map(|i| (i % 4) as f64 / 2.0).collect();
        let expected = growths(&rows, d, &centers, &weights);
        let close = |found: Vec<f64>, tolerance: f64| {
            let most = expected.iter().fold(0.0, |a: f64, &b| a.max(b));
            assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= tolerance * most), "{n} x {d}");
        };
        let wide = Weighted::new::<f64>(Dense::new(&rows, d).unwrap(), &weights[..]).unwrap();
        close(utilities::<f64>(MatRef::new(&centers, d), &wide, &cx).unwrap(), 1e-10);
        let narrow: Vec<f32> = rows.iter().map(|&x| x as f32).collect();
        let fewer: Vec<f32> = centers.iter().map(|&x| x as f32).collect();
        let narrow = Weighted::new::<f32>(Dense::new(&narrow, d).unwrap(), &weights[..]).unwrap();
        close(utilities::<f32>(MatRef::new(&fewer, d), &narrow, &cx).unwrap(), 1e-4);
        let (starts, columns): (Vec<i64>, Vec<i64>) =
            ((0..=n).map(|i| (i * d) as i64).collect(), (0..n * d).map(|i| (i % d) as i64).collect());
        let sparse = Csr::new((n, d), starts[..].into(), columns[..].into(), &rows[..]).unwrap();
        let sparse = Weighted::new::<f64>(sparse, &weights[..]).unwrap();
        close(utilities::<f64>(MatRef::new(&centers, d), &sparse, &cx).unwrap(), 1e-10);
    }
}

/// Centers (as bits), labels, inertia (as bits) and history at the end of a fit.
type Outcome = (Vec<u64>, Vec<u32>, u64, Vec<(u64, u64)>);

fn outcome<S: Source + ?Sized>(params: &BreathingParams, rows: &S, threads: usize) -> Outcome {
    let cx = Executor::new(Some(threads)).unwrap();
    let mut run = params.start(rows).unwrap();
    while run.advance_on(rows, &cx).unwrap().is_some() {}
    of(&run)
}

fn of(run: &BreathingRun) -> Outcome {
    let history = run.history().iter().map(|step| (step.objective.to_bits(), step.n_changed)).collect();
    let centers = run.centers::<f64>().into_iter().map(f64::to_bits).collect();
    (centers, run.labels(), run.inertia().to_bits(), history)
}

#[test]
fn every_best_is_lower_than_the_one_before() {
    let rows = grouped(3000, 3, 4);
    let data = Dense::new(&rows, 3).unwrap();
    let mut improved = 0;
    for seed in 0..6 {
        let params = Breathing::params(20).seeding(Seeding::Random).rng_seed(seed);
        let start = KMeans::params(20).seeding(Seeding::Random).rng_seed(seed).fit(&data).unwrap();
        let mut run = params.start(&data).unwrap();
        let mut lowest = f64::INFINITY;
        while let Some(step) = run.advance(&data).unwrap() {
            if run.start_inertia().is_finite() {
                assert!(step.objective <= lowest && step.objective == run.inertia());
                lowest = step.objective;
            }
        }
        assert_eq!(run.start_inertia().to_bits(), start.inertia().to_bits());
        assert_eq!(run.inertia(), lowest);
        improved += u32::from(lowest < 0.99 * start.inertia());
    }
    assert!(improved >= 5, "{improved} of 6");
}

#[test]
fn one_center_and_as_many_as_rows_return_at_once() {
    let rows = grouped(40, 2, 4);
    let data = Dense::new(&rows, 2).unwrap();
    for (k, m) in [(1, 5), (40, 5), (7, 0)] {
        let exact = KMeans::params(k).rng_seed(3);
        let mut plain = exact.start(&data).unwrap();
        while plain.advance(&data).unwrap().is_some() {}
        let mut run = Breathing::params(k).m(m).rng_seed(3).start(&data).unwrap();
        while run.advance(&data).unwrap().is_some() {}
        assert_eq!((run.n_breaths(), run.n_iter()), (0, plain.n_iter()), "k = {k}");
        assert_eq!(run.centers::<f64>(), plain.centers::<f64>());
        assert_eq!(run.history().last().unwrap().stop_reason, plain.history().last().unwrap().stop_reason);
    }
    // More centers are added than there are clusters or other rows.
    for (k, m) in [(2, 9), (39, 5), (38, 1000)] {
        let model = Breathing::params(k).m(m).seeding(Seeding::Random).fit(&data).unwrap();
        assert_eq!(model.n_clusters(), k);
    }
}

#[test]
fn threads_change_no_bit() {
    let rows = grouped(9000, 5, 4);
    let narrow: Vec<f32> = rows.iter().map(|&x| x as f32).collect();
    let data = Dense::new(&narrow, 5).unwrap();
    let params = Breathing::params(35).m(3).seeding(Seeding::Random).rng_seed(8);
    let one = outcome(&params, &data, 1);
    assert!((2..5).all(|threads| outcome(&params, &data, threads) == one));
}

/// Rows whose passes fail while `failing` is set.
struct Failing<'a> {
    rows: Dense<'a, f64>,
    /// Passes until one fails.
    left: std::sync::atomic::AtomicI64,
}

impl DataSource<f64> for Failing<'_> {
    fn dim(&self) -> usize {
        self.rows.dim()
    }
    fn rows(&self) -> Option<u64> {
        self.rows.rows()
    }
    fn access(&self) -> Access {
        self.rows.access()
    }
    fn for_each_block(
        &self,
        tile: usize,
        f: &mut dyn FnMut(Block<'_, f64>) -> Result<std::ops::ControlFlow<()>>,
    ) -> Result<()> {
        if self.left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 1 {
            return Err(Error::Source("broken".into()));
        }
        self.rows.for_each_block(tile, f)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<f64>) -> Result<()> {
        self.rows.gather(rows, out)
    }
}

#[test]
fn a_pass_that_fails_can_be_repeated() {
    let rows = grouped(600, 2, 4);
    let data = Dense::new(&rows, 2).unwrap();
    let params = Breathing::params(8).m(2).seeding(Seeding::Random).rng_seed(1);
    let expected = outcome(&params, &data, 2);
    let failing = Failing { rows: data, left: 0.into() };
    let cx = Executor::new(Some(2)).unwrap();
    let mut failures = 0;
    for at in 1.. {
        let mut solver = Breathing::solver::<f64>(&params);
        failing.left.store(at, std::sync::atomic::Ordering::Relaxed);
        let mut objectives = Vec::new();
        let mut failed = false;
        loop {
            if let Ok(step) = solver.step(&failing, &cx) {
                objectives.push(step.objective.to_bits());
                if step.stop_reason.is_some() {
                    break;
                }
            } else {
                assert!(!failed);
                failed = true;
                // The state between the passes of a step can be stored too.
                if FitSolver::<f64>::has_begun(&solver) {
                    let stored = solver.checkpoint();
                    solver = SolverState::restore(&params, &stored).unwrap();
                }
            }
        }
        let found: Vec<u64> = expected.3.iter().map(|&(objective, _)| objective).collect();
        assert_eq!(objectives, found, "pass {at}");
        assert_eq!(solver.snapshot().inertia.to_bits(), expected.2, "pass {at}");
        if !failed {
            break;
        }
        failures += 1;
    }
    assert!(failures > expected.3.len(), "every sweep and the passes of breaths failed once");
}

#[test]
fn damaged_checkpoints_are_errors() {
    let rows = grouped(300, 2, 4);
    let data = Dense::new(&rows, 2).unwrap();
    let params = Breathing::params(8).m(2).seeding(Seeding::Random).rng_seed(1);
    let mut run = params.start(&data).unwrap();
    while run.n_breaths() == 0 {
        run.advance(&data).unwrap();
    }
    let whole = run.checkpoint(&data).unwrap();
    assert!(params.resume_fit(&whole, &data).is_ok());
    for (from, to, problem) in [
        ("\"m\":2", "\"m\":3", "its \\\"m\\\" is 3"),
        ("\"centers\":10", "\"centers\":8", "it holds 8 centers"),
        ("\"centers\":10", "\"centers\":11", "it holds 11 centers"),
        ("\"phase\":\"in\"", "\"phase\":\"out\"", "it holds 10 centers"),
        ("\"phase\":\"in\"", "\"phase\":\"up\"", "phase must be one of"),
    ] {
        let mut damaged = whole.clone();
        let state = damaged.meta.get_mut("state").unwrap();
        assert!(state.contains(from), "{state}");
        *state = state.replace(from, to);
        let Err(refused) = params.resume_fit(&damaged, &data) else { panic!("{to} is accepted") };
        let refused = refused.to_string();
        assert!(refused.replace('\\', "").contains(&problem.replace('\\', "")), "{refused}");
    }
    let mut damaged = whole;
    damaged.arrays.retain(|name, _| !name.starts_with("best."));
    damaged.meta.retain(|name, _| !name.starts_with("best."));
    assert!(params.resume_fit(&damaged, &data).is_err());
}
