//! Mini-batch k-means: bit-identical results over all sources and numbers of threads, streams, interrupts and
//! the update rule.

use proptest::prelude::*;
use shoal::data::{AnySource, Chunks, Dense, Source, Weighted};
use shoal::fit::StopReason;
use shoal::kernel::Compute;
use shoal::kmeans::{MiniBatchParams, MiniBatchRun};
use shoal::{Error, Executor, MatRef, MiniBatch, Seeding};

use crate::common::{Any, Bits, bits, chunks, rows};

/// A fit with the given number of threads.
fn fit(params: &MiniBatchParams, source: &dyn Source, threads: usize, labels: bool) -> Bits {
    bits(&params.clone().threads(Some(threads)).compute_labels(labels).fit(source).unwrap())
}

fn same_for_all_threads<T: Compute>(k: usize, n: usize, d: usize, batch: u64) {
    let values: Vec<T> = rows(n, d);
    let weights: Vec<f64> = (0..n).map(|i| (i % 5) as f64 / 2.0).collect();
    let dense = Dense::new(&values, d).unwrap();
    let weighted = Weighted::new::<T>(dense, &weights[..]).unwrap();
    let params = MiniBatch::params(k).rng_seed(3).batch_size(batch).max_iter(2).half_life(Some(5e4));
    for weights in [None, Some(&weights[..])] {
        let source =
            Any(if weights.is_some() { AnySource::of::<T>(&weighted) } else { AnySource::of::<T>(&dense) });
        let drawn = fit(&params, &source, 1, true);
        let mut passed = None;
        for threads in [1, 2, 3, 8] {
            assert_eq!(fit(&params, &source, threads, true), drawn, "{threads} threads");
            for lengths in [&[7, 1, 300][..], &[100_000]] {
                let stream = Chunks::replay(d, || Box::new(chunks(&values, d, weights, lengths)));
                let found = fit(&params, &Any(AnySource::of::<T>(&stream)), threads, true);
                assert_eq!(
                    &found,
                    passed.get_or_insert_with(|| found.clone()),
                    "{threads} threads, {lengths:?}"
                );
                let once = Chunks::once(d, chunks(&values, d, weights, lengths));
                let first = fit(&params, &Any(AnySource::of::<T>(&once)), threads, true);
                assert!(first.2.is_empty() && f64::from_bits(first.3).is_nan() && first.4 == 1);
            }
        }
    }
}

#[test]
fn threads_and_chunk_lengths_do_not_change_results() {
    same_for_all_threads::<f32>(5, 4000, 3, 1000);
    same_for_all_threads::<f64>(40, 2500, 60, 900);
}

fn stream_of<T: Compute>(params: &MiniBatchParams, first: &Dense<'_, T>) -> MiniBatchRun {
    params.stream(first).unwrap()
}

#[test]
fn a_pass_over_a_stream_equals_partial_fit_on_its_batches() {
    let (n, d, k) = (2300, 4, 6);
    let values: Vec<f64> = rows(n, d);
    let weights: Vec<f64> = (0..n).map(|i| 0.5 + (i % 3) as f64).collect();
    let params = MiniBatch::params(k)
        .seeding(Seeding::Given(values[..k * d].to_vec()))
        .batch_size(250)
        .max_iter(1)
        .compute_labels(false)
        .max_no_improvement(None);
    let cx = Executor::new(Some(2)).unwrap();
    let mut run = stream_of(&params, &Dense::new(&values, d).unwrap());
    for (batch, weights) in values.chunks(250 * d).zip(weights.chunks(250)) {
        let batch = Weighted::new::<f64>(Dense::new(batch, d).unwrap(), weights).unwrap();
        run.partial_fit_on(&Any(AnySource::F64(&batch)), &cx).unwrap().unwrap();
    }
    let lengths = &[33, 700];
    let replay = Chunks::replay(d, || Box::new(chunks(&values, d, Some(&weights), lengths)));
    let once = Chunks::once(d, chunks(&values, d, Some(&weights), lengths));
    for stream in [replay, once] {
        let model = params.fit(&Any(AnySource::F64(&stream))).unwrap();
        assert_eq!(model.centers::<f64>(), run.centers::<f64>());
        assert_eq!(model.cluster_weights(), run.cluster_weights());
    }
    assert_eq!(run.n_steps(), 10);
}

#[test]
fn a_one_pass_stream_is_seeded_from_its_first_rows() {
    let (n, d) = (5000, 3);
    let values: Vec<f32> = rows(n, d);
    let params = MiniBatch::params(9).batch_size(100);
    let once = Chunks::once(d, chunks(&values, d, None, &[64]));
    let mut run = params.start(&Any(AnySource::F32(&once))).unwrap();
    let cx = Executor::new(Some(2)).unwrap();
    // The first step uses all rows that the seeding read, every further step one batch.
    let mut steps = Vec::new();
    while let Some(step) = run.advance_on(&Any(AnySource::F32(&once)), &cx).unwrap() {
        steps.push(step);
    }
    assert_eq!(steps[0].rows_seen, steps[0].batch_size);
    assert!(steps.len() > 1 && steps[1..].iter().all(|step| step.batch_size == 100));
    let last = steps.last().unwrap();
    assert_eq!((last.rows_seen, last.iteration), (5000, 50));
    assert_eq!(last.stop_reason, Some(StopReason::MaxIterations));
    assert_eq!(run.cluster_weights().iter().sum::<f64>(), 5009.0);
    let refused = run.finish_on(&Any(AnySource::F32(&once)), &cx).unwrap_err();
    assert!(refused.to_string().contains("predict"), "{refused}");
    // Too few rows for the clusters are only detected at the end of the stream.
    let few = Chunks::once(d, chunks(&values[..6 * d], d, None, &[2]));
    let refused = params.fit(&Any(AnySource::F32(&few))).unwrap_err();
    assert_eq!(refused.to_string(), "n_clusters must be at most the number of rows, 6, got 9");
}

#[test]
fn an_interrupted_batch_is_repeated() {
    let values: Vec<f32> = rows(3000, 5);
    let source = Dense::new(&values, 5).unwrap();
    let params = MiniBatch::params(7).batch_size(300).max_iter(3).max_no_improvement(None);
    let cx = Executor::new(Some(2)).unwrap();
    let (mut plain, mut broken) = (params.start(&source).unwrap(), params.start(&source).unwrap());
    let mut turn = 0;
    while let Some(step) = plain.advance_on(&source, &cx).unwrap() {
        turn += 1;
        if turn % 2 == 0 {
            cx.interrupt().set();
            let before = (broken.centers::<f64>(), broken.cluster_weights().to_vec());
            assert!(matches!(broken.advance_on(&source, &cx), Err(Error::Interrupted)));
            assert_eq!(before, (broken.centers::<f64>(), broken.cluster_weights().to_vec()));
            cx.interrupt().clear();
        }
        let other = broken.advance_on(&source, &cx).unwrap().unwrap();
        assert_eq!((step.objective, step.center_shift), (other.objective, other.center_shift));
    }
    assert_eq!(bits(&plain.model()), bits(&broken.model()));
    assert_eq!(turn, 30);
}

#[test]
fn invalid_parameters_and_batches_are_refused() {
    let cx = Executor::new(Some(1)).unwrap();
    let refused = MiniBatch::params(0)
        .batch_size(0)
        .max_iter(0)
        .tolerance(f64::NAN)
        .reassignment_ratio(-1.0)
        .half_life(Some(0.0))
        .fit(&[[1.0f32]])
        .unwrap_err()
        .to_string();
    for name in ["n_clusters", "batch_size", "max_iter", "tolerance", "reassignment_ratio", "half_life"] {
        assert!(refused.contains(&format!("{name} must be")), "{refused}");
    }
    let mut run = MiniBatch::params(2).stream(&[[1.0f32, 2.0]]).unwrap();
    run.partial_fit_on(&[[1.0f32, 2.0]], &cx).unwrap();
    assert!(matches!(run.partial_fit_on(&[[1.0f32]], &cx), Err(Error::Shape(_))));
    assert!(matches!(run.partial_fit_on(&[[1.0f64, 2.0]], &cx), Err(Error::Source(_))));
    assert!(matches!(run.partial_fit_on(&Vec::<[f32; 2]>::new(), &cx), Err(Error::Empty(_))));
    assert!(run.partial_fit_on(&[[3.0f32, 2.0]], &cx).unwrap().is_some());
    assert_eq!(run.cluster_weights().iter().sum::<f64>(), 4.0);
}

/// Sculley's algorithm.
fn naive(centers: &mut [Vec<f64>], counts: &mut [f64], batch: &[Vec<f64>], weights: &[f64]) {
    let sq_dist = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
    let labels: Vec<usize> = batch
        .iter()
        .map(|x| {
            let all: Vec<f64> = centers.iter().map(|c| sq_dist(x, c)).collect();
            (0..all.len()).min_by(|&i, &j| all[i].total_cmp(&all[j])).unwrap()
        })
        .collect();
    for ((x, j), &weight) in batch.iter().zip(labels).zip(weights) {
        if weight > 0.0 {
            counts[j] += weight;
            let rate = weight / counts[j];
            centers[j].iter_mut().zip(x).for_each(|(c, x)| *c += rate * (x - *c));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Small integers with ties, duplicates and centers without rows; distances are exact until a center moves.
    #[test]
    fn one_batch_equals_sculley_s_algorithm(
        d in 1usize..5,
        k in 1usize..9,
        values in prop::collection::vec(-4i32..5, 8..160),
        weighted in any::<bool>(),
        threads in 1usize..4,
    ) {
        let values: Vec<f64> = values.iter().map(|&x| f64::from(x)).collect();
        let n = values.len() / d;
        let batch: Vec<Vec<f64>> = values.chunks_exact(d).map(<[f64]>::to_vec).collect();
        let weights: Vec<f64> = (0..n).map(|i| if weighted { (i % 3) as f64 } else { 1.0 }).collect();
        prop_assume!(weights.iter().any(|&w| w > 0.0));
        // Distinct centers.
        let mut centers: Vec<Vec<f64>> =
            (0..k).map(|j| (0..d).map(|t| (j as f64 - 3.0) + (t * j % 3) as f64).collect()).collect();
        let mut counts = vec![1.0; k];
        let params = MiniBatch::params(k).seeding(Seeding::Given(centers.concat())).reassignment_ratio(0.0);
        let cx = Executor::new(Some(threads)).unwrap();
        let rows = MatRef::new(&values[..n * d], d);
        let source = Weighted::new::<f64>(rows, &weights[..]).unwrap();
        let mut run = params.stream(&Any(AnySource::F64(&source))).unwrap();
        run.partial_fit_on(&Any(AnySource::F64(&source)), &cx).unwrap();
        naive(&mut centers, &mut counts, &batch, &weights);
        prop_assert_eq!(run.cluster_weights(), &counts[..]);
        for (found, expected) in run.centers::<f64>().iter().zip(centers.concat()) {
            prop_assert!((found - expected).abs() <= 1e-12, "{} {}", found, expected);
        }
    }
}

#[test]
fn weights_halve_by_rows_and_not_by_batches() {
    let (rows, cx) = (vec![[0.0f64]; 200], Executor::new(Some(1)).unwrap());
    let params = MiniBatch::params(1).seeding(Seeding::Given(vec![0.0])).half_life(Some(100.0));
    let mut run = params.stream(&rows).unwrap();
    let mut expected = 1.0;
    for batch in [50, 200, 1, 49] {
        run.partial_fit_on(&rows[..batch], &cx).unwrap();
        expected = expected * (-(batch as f64) / 100.0).exp2() + batch as f64;
        let found = run.cluster_weights()[0];
        assert!((found - expected).abs() <= 1e-12 * expected, "{found} {expected}");
    }
}

#[test]
fn centers_starve_by_decayed_weights() {
    let near = |center: f64, n: usize| (0..n).map(move |i| [center + i as f64 * 1e-3]);
    let first: Vec<[f64; 1]> = near(0.0, 50).chain(near(10.0, 50)).collect();
    let later: Vec<[f64; 1]> = near(10.0, 100).collect();
    let cx = Executor::new(Some(1)).unwrap();
    // The first cluster has 51 rows, the second one 251. Half-lives of 5 rows decay the first one to 1e-10 rows: moving
    // its center costs less than another one saves.
    let left = |half_life: Option<f64>| {
        let seeds = Seeding::Given(vec![0.0, 10.0]);
        let params = MiniBatch::params(2).seeding(seeds).reassignment_ratio(0.1).half_life(half_life);
        let mut run = params.stream(&first).unwrap();
        run.partial_fit_on(&first, &cx).unwrap();
        for _ in 0..2 {
            run.partial_fit_on(&later, &cx).unwrap();
        }
        run.centers::<f64>()[0]
    };
    assert!(left(None) < 1.0);
    assert!(left(Some(5.0)) >= 10.0);
}

#[test]
fn a_far_row_takes_no_center_away_from_another() {
    let with = |far: f64| (0..60).map(|i| [f64::from(i) * 1e-3]).chain([[far]]).collect::<Vec<_>>();
    let (first, second, cx) = (with(1e3), with(-1e4), Executor::new(Some(1)).unwrap());
    let seeds = Seeding::Given(vec![0.0, 1e3]);
    let mut run = MiniBatch::params(2).seeding(seeds).reassignment_ratio(0.1).stream(&first).unwrap();
    run.partial_fit_on(&first, &cx).unwrap();
    // The far row has nearly all of the squared error of its batch.
    run.partial_fit_on(&second, &cx).unwrap();
    assert_eq!(run.centers::<f64>()[1], 1e3);
}

#[test]
fn a_starving_center_does_not_move_onto_another_one() {
    let (rows, cx) = (vec![[10.0f64]; 40], Executor::new(Some(1)).unwrap());
    let params = MiniBatch::params(2).seeding(Seeding::Given(vec![0.0, 10.0])).reassignment_ratio(0.5);
    let mut run = params.stream(&rows).unwrap();
    run.partial_fit_on(&rows, &cx).unwrap();
    assert_eq!(run.centers::<f64>(), [0.0, 10.0]);
    // It does move onto a row where no center is.
    let rows: Vec<[f64; 1]> = (0..40).map(|i| [10.0 + f64::from(i)]).collect();
    run.partial_fit_on(&rows, &cx).unwrap();
    assert!(run.centers::<f64>()[0] >= 10.0);
}

#[test]
fn merged_runs_add_their_counts() {
    let params = MiniBatch::params(1).seeding(Seeding::Given(vec![0.0]));
    let rows = [[1.0f64], [2.0], [3.0]];
    let (mut one, mut other) = (params.stream(&rows).unwrap(), params.stream(&rows).unwrap());
    one.partial_fit(&rows[..2]).unwrap();
    other.partial_fit(&rows).unwrap();
    other.partial_fit(&rows[..1]).unwrap();
    one.merge(&other).unwrap();
    let step = one.partial_fit(&rows[..1]).unwrap().unwrap();
    assert_eq!((step.iteration, step.rows_seen), (4, 7));
    assert_eq!(one.cluster_weights(), [9.0]);
}

#[test]
fn as_many_whole_batches_as_fit_into_the_passes() {
    let rows: Vec<[f64; 1]> = (0..100).map(|i| [f64::from(i)]).collect();
    let params = MiniBatch::params(2).seeding(Seeding::Given(vec![0.0, 50.0])).max_no_improvement(None);
    for (batch, passes, steps) in [(50, 1, 2), (50, 2, 4), (40, 1, 2), (60, 1, 1), (100, 3, 3)] {
        let mut run = params.clone().batch_size(batch).max_iter(passes).start(&rows).unwrap();
        while run.advance(&rows).unwrap().is_some() {}
        assert_eq!(run.history().len(), steps, "{batch} {passes}");
        assert_eq!(run.history().last().unwrap().stop_reason, Some(StopReason::MaxIterations));
    }
}

#[test]
fn a_bad_value_is_named_by_its_row_in_the_stream() {
    let mut values = vec![1.0f64; 60];
    values[33] = f64::NAN;
    let params = MiniBatch::params(1).seeding(Seeding::Given(vec![0.0])).batch_size(10);
    for lengths in [&[60][..], &[7, 50]] {
        let stream = Chunks::once(1, chunks(&values, 1, None, lengths));
        let refused = params.fit(&stream).unwrap_err().to_string();
        assert!(refused.contains("row 33"), "{refused}");
    }
}
