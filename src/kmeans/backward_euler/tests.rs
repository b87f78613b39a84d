//! Tests of the implicit step against its definition, and of the state between two steps.

use proptest::prelude::*;

use super::trajectory::{InnerStep, Trajectory};
use super::{BackwardEuler, BackwardEulerParams};
use crate::data::{Chunk, Chunks};
use crate::error::Error;
use crate::fit::{Metric, StopReason};
use crate::kernel::PackedCenters;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::seeding::Seeding;
use crate::stats::ClusterSums;

/// The schedule of the paper, without final sweeps.
fn plain(k: usize) -> BackwardEulerParams {
    let params = BackwardEuler::params(k).step_size(Some(k as f64)).step_decay(1.0 / 1.01);
    params.step_cap(Some(f64::INFINITY)).polish(false)
}

fn given(centers: &[f64]) -> BackwardEulerParams {
    plain(centers.len()).seeding(Seeding::Given(centers.to_vec()))
}

/// Sums of one-column rows by their nearest center.
fn summed(rows: &[f64], centers: &[f64]) -> ClusterSums {
    let nearest = |x: f64| {
        let sq_dist = |j: &usize| (x - centers[*j]).powi(2);
        (0..centers.len()).min_by(|i, j| sq_dist(i).total_cmp(&sq_dist(j))).unwrap() as u32
    };
    let labels: Vec<u32> = rows.iter().map(|&x| nearest(x)).collect();
    let mut sums = ClusterSums::new(centers.len(), 1);
    sums.absorb(MatRef::new(rows, 1), &labels, None, &PackedCenters::new(MatRef::new(centers, 1)));
    sums
}

proptest! {
    #[test]
    fn a_pull_is_the_mini_batch_gradient_from_the_anchor(
        rows in prop::collection::vec(-9.0f64..9.0, 1..40),
        centers in prop::collection::vec(-9.0f64..9.0, 1..6),
        step_size in 0.0f64..8.0, averaging in 0.0f64..1.0, n in 1usize..5,
    ) {
        let mut trajectory = Trajectory::new(1, &centers);
        let (mut y, mut mean) = (centers.clone(), centers.clone());
        for _ in 0..n {
            // The gradient is divided by the weight of the batch, not by the weight of the cluster.
            let sums = summed(&rows, &y);
            for j in 0..y.len() {
                let gradient = (sums.weights()[j] * y[j] - sums.sum(j)[0]) / rows.len() as f64;
                y[j] = centers[j] - step_size * gradient;
                mean[j] = averaging * mean[j] + (1.0 - averaging) * y[j];
            }
            trajectory.pull::<f64>(&sums, rows.len() as f64, &InnerStep { step_size, cap: f64::INFINITY, averaging, metric: Metric::Euclidean });
            // Copied so that rounding cannot change a label.
            y.copy_from_slice(&trajectory.iterate);
            let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-9 * (1.0 + b.abs()));
            prop_assert!(close(&trajectory.mean, &mean), "{:?} {mean:?}", trajectory.mean);
            prop_assert_eq!(&trajectory.anchor, &centers);
        }
        trajectory.close();
        prop_assert_eq!((&trajectory.anchor, &trajectory.iterate), (&trajectory.mean, &trajectory.mean));
    }
}

#[test]
fn a_cap_limits_the_pull_of_each_center() {
    let sums = summed(&[1.0, 1.0, 1.0, 11.0], &[0.0, 10.0]);
    let mut trajectory = Trajectory::new(1, &[0.0f64, 10.0]);
    trajectory.pull::<f64>(
        &sums,
        4.0,
        &InnerStep { step_size: 2.0, cap: 0.75, averaging: 0.0, metric: Metric::Euclidean },
    );
    // Without the cap, the pulls would be 1.5 and 0.5.
    assert_eq!(trajectory.iterate, [0.75, 10.5]);
}

#[test]
fn a_step_that_is_not_finite_is_dropped_and_ends_the_run() {
    let cx = Executor::new(Some(1)).unwrap();
    let rows = [[0.0f32], [1.0], [8.0], [9.0]];
    for (step_size, n_inner) in [(f64::MAX, 5), (1e39, 1), (1e30, 2)] {
        let params = given(&[1.0, 7.0]).step_size(Some(step_size)).n_inner(n_inner).averaging(0.0);
        let mut run = params.start(&rows).unwrap();
        let step = run.advance_on(&rows, &cx).unwrap().unwrap();
        assert_eq!(step.stop_reason, Some(StopReason::Diverged), "{step_size:e}");
        assert_eq!(run.centers::<f32>(), [1.0, 7.0]);
        assert!(run.advance_on(&rows, &cx).unwrap().is_none() && run.step_sizes().is_empty());
        run.finish_on(&rows, &cx).unwrap();
        assert_eq!(run.labels(), [0, 0, 1, 1]);
        // A stream reports the divergence for the batch, and continues from where it was.
        let mut stream = params.stream(&rows).unwrap();
        let steps: Vec<_> = (0..2).map(|_| stream.partial_fit_on(&rows, &cx).unwrap().unwrap()).collect();
        assert!(steps.iter().any(|step| step.stop_reason == Some(StopReason::Diverged)));
    }
    // Rows whose own distances overflow are an error, not a divergence.
    let huge = [[1e200f64], [-1e200], [1e200]];
    let refused = given(&[0.0]).start(&huge).unwrap().advance_on(&huge, &cx).unwrap_err();
    assert!(refused.to_string().contains("squared distances overflow"), "{refused}");
}

#[test]
fn a_step_diverges_long_before_numbers_end_and_rows_far_away_are_no_divergence() {
    let cx = Executor::new(Some(1)).unwrap();
    let rows: Vec<[f64; 1]> =
        (0..600).map(|i| [f64::from(i % 4) * 9.0 + f64::from(i * 37 % 101) / 50.0]).collect();
    let end = |step_size: f64, n_inner: u64, rows: &[[f64; 1]]| {
        let params = plain(4).step_size(Some(step_size)).n_inner(n_inner).max_iter(100).batch_size(100);
        let mut run = params.rng_seed(3).start(&rows).unwrap();
        while run.advance_on(&rows, &cx).unwrap().is_some() {}
        run.finish_on(&rows, &cx).unwrap();
        (run.history().last().unwrap().stop_reason.unwrap(), run.inertia())
    };
    for step_size in [25.0, 50.0, 100.0] {
        let (reason, inertia) = end(step_size, 10, &rows);
        assert_eq!(reason, StopReason::Diverged, "{step_size}");
        assert!(inertia < 1e6 * 600.0 * 729.0, "{step_size}: {inertia:e}");
    }
    for (step_size, n_inner) in [(4.0, 10), (8.0, 5), (8.0, 10)] {
        assert_eq!(end(step_size, n_inner, &rows).0, StopReason::MaxIterations, "{step_size}, {n_inner}");
    }
    // One row at 1e9, which few batches contain.
    let far: Vec<[f64; 1]> = rows.iter().enumerate().map(|(i, x)| if i == 77 { [1e9] } else { *x }).collect();
    assert_eq!(end(4.0, 5, &far).0, StopReason::MaxIterations);
    // A stream whose rows move far away.
    let params = given(&[0.0, 2.5]).n_inner(3).averaging(0.5);
    let mut stream = params.stream(&rows).unwrap();
    for place in [0.0, 1e5, -1e9] {
        let batch: Vec<[f64; 1]> = rows.iter().map(|x| [x[0] + place]).collect();
        let steps: Vec<_> = (0..9).map(|_| stream.partial_fit_on(&batch, &cx).unwrap().unwrap()).collect();
        assert!(steps.iter().all(|step| step.stop_reason.is_none()), "{place}");
    }
}

#[test]
fn an_outer_step_goes_on_in_the_next_pass_and_ends_with_the_last_row() {
    let cx = Executor::new(Some(1)).unwrap();
    let rows: Vec<f64> = (0..10).map(|i| f64::from(i % 4)).collect();
    let pieces = || rows.chunks(3).map(|piece| Ok(Chunk::from(piece.to_vec())));
    let params = given(&[0.0, 2.5]).batch_size(4).n_inner(2).max_iter(3);
    let stream = Chunks::replay(1, || Box::new(pieces()));
    let mut run = params.start(&stream).unwrap();
    let mut steps = Vec::new();
    while let Some(step) = run.advance_on(&stream, &cx).unwrap() {
        steps.push(step);
    }
    // Batches of 4, 4 and 2 rows, repeated.
    assert_eq!(steps.iter().map(|step| step.batch_size).collect::<Vec<_>>(), [8, 6, 6]);
    let mut batches = params.stream(&stream).unwrap();
    for batch in [&rows[..4], &rows[4..8], &rows[8..], &rows[..4], &rows[4..8], &rows[8..]] {
        let batch: Vec<[f64; 1]> = batch.iter().map(|&x| [x]).collect();
        batches.partial_fit_on(&batch, &cx).unwrap();
    }
    assert_eq!(run.centers::<f64>(), batches.centers::<f64>());
    assert_eq!((run.n_iter(), run.n_steps(), run.step_sizes().len()), (3, 6, 3));
    let once = Chunks::once(1, pieces());
    let mut run = params.start(&once).unwrap();
    let steps: Vec<_> = std::iter::from_fn(|| run.advance_on(&once, &cx).unwrap()).collect();
    assert_eq!(steps.iter().map(|step| step.batch_size).collect::<Vec<_>>(), [8, 2]);
    assert_eq!((run.n_iter(), steps[1].stop_reason), (2, Some(StopReason::MaxIterations)));
    let refused = params.polish(true).start(&Chunks::once(1, pieces())).err();
    assert!(matches!(refused, Some(Error::Source(_))), "{refused:?}");
}

#[test]
fn an_interrupted_step_was_not_begun() {
    let rows: Vec<[f64; 1]> = (0..500).map(|i| [f64::from(i * 37 % 101)]).collect();
    let params = BackwardEuler::params(4).batch_size(50).max_iter(8).polish(true).rng_seed(3);
    let cx = Executor::new(Some(1)).unwrap();
    let (mut plain, mut stopped) = (params.start(&rows).unwrap(), params.start(&rows).unwrap());
    while plain.advance_on(&rows, &cx).unwrap().is_some() {
        cx.interrupt().set();
        assert!(matches!(stopped.advance_on(&rows, &cx), Err(Error::Interrupted)));
        cx.interrupt().clear();
        let checkpoint = plain.checkpoint(&rows).unwrap();
        stopped.advance_on(&rows, &cx).unwrap();
        assert_eq!(plain.centers::<f64>(), stopped.centers::<f64>());
        let mut resumed = params.resume_fit(&checkpoint, &rows).unwrap();
        while resumed.advance_on(&rows, &cx).unwrap().is_some() {}
        assert!(resumed.n_iter() == 8 && resumed.history().len() >= 9);
    }
    plain.finish_on(&rows, &cx).unwrap();
    let whole = params.fit(&rows).unwrap();
    assert_eq!(whole.centers::<f64>(), plain.centers::<f64>());
    assert_eq!((whole.inertia(), whole.labels()), (plain.inertia(), &plain.labels()[..]));
    assert_eq!(plain.history().last().unwrap().stop_reason, stopped.history().last().unwrap().stop_reason);
}

#[test]
fn the_schedule_by_default_goes_from_three_times_the_clusters_to_a_twentieth_under_a_cap() {
    let rows: Vec<[f64; 1]> = (0..500).map(|i| [f64::from(i * 37 % 101)]).collect();
    let auto = BackwardEuler::params(4).batch_size(50).max_iter(40).rng_seed(3);
    let spelt = auto.clone().step_size(Some(12.0)).step_decay(0.05f64.powf(1.0 / 40.0)).step_cap(Some(1.8));
    let centers = |params: &BackwardEulerParams| params.fit(&rows).unwrap().centers::<f64>();
    assert_eq!(centers(&auto), centers(&spelt.clone().polish(true)));
    // Compared before the final sweeps, which may make the centers equal. The cap falls with `n_inner`.
    let rough = auto.clone().polish(false);
    assert_ne!(centers(&rough), centers(&rough.clone().step_cap(Some(f64::INFINITY))));
    let spelt = spelt.polish(false).n_inner(6).step_cap(Some(1.5));
    assert_eq!(centers(&rough.clone().n_inner(6)), centers(&spelt));
    let cx = Executor::new(Some(1)).unwrap();
    let mut run = auto.start(&rows).unwrap();
    while run.advance_on(&rows, &cx).unwrap().is_some() {}
    assert_eq!((run.step_sizes()[0], run.step_sizes().len()), (12.0, 40));
    assert!((run.step_sizes()[39] * auto.decay() - 0.6).abs() < 1e-12);
}

#[test]
fn rows_that_can_be_read_again_are_polished_unless_that_is_not_wanted() {
    let cx = Executor::new(Some(1)).unwrap();
    let rows: Vec<f64> = (0..200).map(|i| f64::from(i * 37 % 101)).collect();
    let pieces = || rows.chunks(30).map(|piece| Ok(Chunk::from(piece.to_vec())));
    let auto = BackwardEuler::params(3).seeding(Seeding::Random).batch_size(40).max_iter(5).n_inner(1);
    let steps = |params: &BackwardEulerParams, stream: &Chunks<'_, f64>| {
        let mut run = params.start(stream).unwrap();
        std::iter::from_fn(|| run.advance_on(stream, &cx).unwrap()).count()
    };
    assert!(steps(&auto, &Chunks::replay(1, || Box::new(pieces()))) > 5);
    assert_eq!(steps(&auto.clone().polish(false), &Chunks::replay(1, || Box::new(pieces()))), 5);
    assert_eq!(steps(&auto, &Chunks::once(1, pieces())), 5);
}

#[test]
fn clusters_that_get_no_rows_starve_once_enough_rows_came_and_a_checkpoint_knows_it() {
    let cx = Executor::new(Some(1)).unwrap();
    let rows: Vec<[f64; 1]> = (0..500).map(|i| [f64::from(i % 7)]).collect();
    // The threshold of 200 rows per cluster is passed after the sixth batch.
    let params = given(&[1.0, 4.0, 1e3]).batch_size(100).n_inner(1).max_iter(9);
    let mut run = params.start(&rows).unwrap();
    for step in 1..=9 {
        run.advance_on(&rows, &cx).unwrap().unwrap();
        // Older rows have faded a little.
        assert_eq!(run.starved(), if step <= 6 { vec![] } else { vec![2] }, "{step}");
        let again = params.resume_fit(&run.checkpoint(&rows).unwrap(), &rows).unwrap();
        assert_eq!(run.starved(), again.starved());
    }
    let mut polished = params.polish(true).start(&rows).unwrap();
    while polished.advance_on(&rows, &cx).unwrap().is_some() {}
    assert_eq!(polished.starved(), [0; 0]);
    // A cluster with a hundredth of the rows, 3% of the mean, does not starve.
    let rows: Vec<[f64; 1]> = (0..500).map(|i| [f64::from(if i % 100 == 0 { 9 } else { i % 4 })]).collect();
    let mut fed = given(&[0.0, 3.0, 9.0]).n_inner(1).max_iter(20).step_size(Some(0.0)).start(&rows).unwrap();
    while fed.advance_on(&rows, &cx).unwrap().is_some() {}
    assert_eq!(fed.starved(), [0; 0]);
}

/// The only optimum of one cluster is the mean: longer steps than 1 would leave it.
#[test]
fn one_cluster_ends_at_the_mean() {
    let rows: Vec<[f64; 2]> = (0..500).map(|i| [f64::from(i * 37 % 101), f64::from(i % 7)]).collect();
    let mean = [0, 1].map(|t| rows.iter().map(|row| row[t]).sum::<f64>() / 500.0);
    for polish in [false, true] {
        let model = BackwardEuler::params(1).batch_size(500).polish(polish).rng_seed(3).fit(&rows).unwrap();
        let center = model.centers::<f64>();
        assert!(center.iter().zip(mean).all(|(c, mean)| (c - mean).abs() < 1e-6), "{center:?}");
    }
}
