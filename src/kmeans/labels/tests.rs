//! Results are bit-identical after a failed sweep and from a checkpoint, whether labels were kept or lost.

use super::NOTED_ROWS;
use crate::data::Dense;
use crate::fit::{FitSolver, SolverState};
use crate::kmeans::lloyd::LloydStarts;
use crate::kmeans::nested::Nested;
use crate::kmeans::{KMeans, NestedMiniBatch};
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};

/// What a fit does: labels, batches and objectives (as bits) by step, and the labels and the inertia at its end.
type Course = (Vec<(u64, u64, u64)>, Vec<u32>, u64);

/// A fit of `n` rows. If `fails`, every step fails once; if `stored`, every step begins from a checkpoint.
fn course<S: FitSolver<f64> + SolverState>(
    params: &S::Params,
    n: usize,
    (fails, stored): (bool, bool),
) -> Course {
    let (dim, mut rng) = (3, Rng::keyed(1, Purpose::Seeding, 0));
    let values: Vec<f64> = (0..n * dim).map(|i| (i / dim % 7) as f64 + 1.5 * rng.unit()).collect();
    let mut broken = values.clone();
    broken[n * dim / 2..].fill(f64::NAN);
    let (data, broken) = (Dense::new(&values, dim).unwrap(), Dense::new(&broken, dim).unwrap());
    let cx = Executor::new(Some(2)).unwrap();
    let mut solver = S::plan(params);
    let mut steps = Vec::new();
    loop {
        if fails {
            assert!(solver.step(&broken, &cx).is_err());
        }
        if stored && !steps.is_empty() {
            solver = S::restore(params, &solver.checkpoint()).unwrap();
            assert!(solver.fits(Some(n as u64)));
        }
        let step = solver.step(&data, &cx).unwrap();
        steps.push((step.n_changed, step.batch_size, step.objective.to_bits()));
        if step.stop_reason.is_some() {
            break;
        }
    }
    if stored {
        solver = S::restore(params, &solver.checkpoint()).unwrap();
    }
    let inertia = solver.finish(&data, &cx).unwrap().to_bits();
    let labels = solver.snapshot().labels.to_vec();
    // A finished fit may be resumed once more.
    let mut again = S::restore(params, &solver.checkpoint()).unwrap();
    assert_eq!(again.finish(&data, &cx).unwrap().to_bits(), inertia);
    assert_eq!(again.snapshot().labels.to_vec(), labels);
    (steps, labels, inertia)
}

/// Whether sweeps fail, and whether steps begin from a checkpoint.
const ALL: [(bool, bool); 3] = [(false, true), (true, false), (true, true)];

fn is_undisturbed<S: FitSolver<f64> + SolverState>(params: &S::Params, disturbances: &[(bool, bool)]) {
    for n in [NOTED_ROWS - 100, 6 * NOTED_ROWS] {
        let plain = course::<S>(params, n, (false, false));
        assert!(plain.0.len() > 5 && plain.1.len() == n, "{n}: {} steps", plain.0.len());
        for &disturbed in disturbances {
            assert!(course::<S>(params, n, disturbed) == plain, "{n} {disturbed:?}");
        }
    }
}

#[test]
fn kmeans_loses_no_labels() {
    is_undisturbed::<LloydStarts<f64>>(&KMeans::params(12).rng_seed(1), &ALL);
    is_undisturbed::<LloydStarts<f64>>(&KMeans::params(12).n_init(2).tolerance(0.0), &ALL);
}

#[test]
fn nested_batches_lose_no_labels() {
    let params = NestedMiniBatch::params(12).batch_size(60);
    is_undisturbed::<Nested<f64>>(&params.clone().rho(4.0), &ALL);
    // Batches of the first rows do not meet the rows that make a sweep fail.
    is_undisturbed::<Nested<f64>>(&params.shuffle(false).tolerance(1e-4), &ALL[..1]);
}
