//! Tests of batches, votes and batch growth, with access to private state.

use super::params::{Bounds, NestedMiniBatch, NestedParams};
use super::solver::{Nested, PATIENCE};
use crate::data::{Access, DataSource, Dense, RawRows, Weighted};
use crate::error::{Error, Result};
use crate::fit::{FitSolver, Metric, Solver, SolverState, Step, StopReason, StreamSolver};
use crate::kernel::{self, Compute};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::seeding::Seeding;

fn values(n: usize, d: usize, seed: u64) -> Vec<f64> {
    let mut rng = Rng::keyed(seed, Purpose::Seeding, 9);
    (0..n * d).map(|i| ((i / d % 9) as f64 * 3.0 + rng.unit() * 4.0).round() / 2.0).collect()
}

fn params(k: usize, first: u64) -> NestedParams {
    NestedMiniBatch::params(k).batch_size(first).rho(5.0).rng_seed(4)
}

/// Checks votes, sums and energies against the rows and the labels of the last sweep.
fn assert_votes(run: &Nested<f64>, source: &[f64], before: &[f64], what: &str) {
    let (k, d) = (run.params.n_clusters, run.dim);
    let sums = run.sums.clone().unwrap().into_clusters();
    let (mut count, mut sum, mut energy) = (vec![0.0; k], vec![0.0; k * d], 0.0);
    let row_of = |i: usize| run.rows.row(i) as usize;
    for (i, j) in run.labels.of_rows.view().iter().enumerate() {
        let row = &source[row_of(i) * d..][..d];
        let distance = |j: usize| kernel::sq_dist(row, &before[j * d..][..d]);
        let nearest = (0..k).map(distance).fold(f64::INFINITY, f64::min);
        assert!(
            distance(j as usize) <= nearest * (1.0 + 1e-12),
            "{what}: row {i} is not labeled with its nearest"
        );
        count[j as usize] += 1.0;
        sum[j as usize * d..][..d].iter_mut().zip(row).for_each(|(s, x)| *s += x);
        energy += distance(j as usize);
    }
    assert_eq!(sums.weights(), count, "{what}");
    for j in 0..k {
        let off = sums.sum(j).iter().zip(&sum[j * d..]).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(off <= 1e-10, "{what}: sum {j} off by {off}");
        if count[j] > 0.0 {
            let mean = sum[j * d..][..d].iter().map(|s| s / count[j]);
            let off = run.centers[j * d..].iter().zip(mean).map(|(c, m)| (c - m).abs()).fold(0.0, f64::max);
            assert!(off <= 1e-12, "{what}: center {j} is no mean, off by {off}");
        }
    }
    assert!((run.energy - energy).abs() <= 1e-10 * energy.max(1e-300), "{what}: {} not {energy}", run.energy);
}

#[test]
fn every_row_of_a_batch_has_one_vote() {
    let (n, d, k) = (5000, 6, 24);
    let source = values(n, d, 1);
    let data = Dense::new(&source, d).unwrap();
    let cx = Executor::new(Some(2)).unwrap();
    for shuffle in [true, false] {
        let mut run = Nested::<f64>::plan(&params(k, 300).shuffle(shuffle).bounds(Bounds::Elkan));
        let (mut batches, mut energies) = (Vec::new(), Vec::new());
        loop {
            let before = run.centers.clone();
            let step = run.step(&data, &cx).unwrap();
            if !before.is_empty() {
                assert_votes(&run, &source, &before, &format!("round {}", step.iteration));
            }
            assert!((1..run.batch()).all(|i| run.rows.row(i - 1) < run.rows.row(i)));
            // Without growth the energy falls.
            if batches.last() == Some(&step.batch_size) {
                assert!(step.objective <= energies.last().unwrap() * (1.0 + 1e-12));
            }
            batches.push(step.batch_size);
            energies.push(step.objective);
            if step.stop_reason.is_some() {
                break;
            }
        }
        assert_eq!((batches[0], *batches.last().unwrap()), (300, n as u64));
        assert!(batches.is_sorted());
        // A fixed point of Lloyd's algorithm.
        let inertia = run.finish(&data, &cx).unwrap();
        let labels = crate::centers::predict(&run.centers, Metric::Euclidean, &data, &cx).unwrap();
        assert_eq!(run.snapshot().labels.to_vec(), labels);
        assert_eq!(
            inertia,
            crate::centers::inertia(&run.centers, None, Metric::Euclidean, &data, &cx).unwrap()
        );
    }
}

#[test]
fn rho_says_when_a_batch_grows() {
    let (n, d, k) = (4000, 4, 10);
    let source: Vec<f64> = values(n, d, 2).iter().enumerate().map(|(i, x)| x + i as f64 * 1e-7).collect();
    let data = Dense::new(&source, d).unwrap();
    let cx = Executor::new(Some(1)).unwrap();
    let mut fast = Nested::<f64>::plan(&params(k, 100).rho(0.0));
    let batches: Vec<u64> = (0..8).map(|_| fast.step(&data, &cx).unwrap().batch_size).collect();
    assert_eq!(batches, [100, 200, 400, 800, 1600, 3200, 4000, 4000]);
    let mut slow = Nested::<f64>::plan(&params(k, 500).rho(f64::INFINITY));
    let mut last: Option<Step> = None;
    loop {
        let step = slow.step(&data, &cx).unwrap();
        if let Some(last) = last {
            assert!(step.batch_size == last.batch_size || last.n_changed == 0 || last.center_shift == 0.0);
        }
        if step.stop_reason.is_some() {
            assert_eq!(step.batch_size, n as u64);
            break;
        }
        last = Some(step);
    }
}

#[test]
fn seeds_are_distinct_while_there_are_distinct_rows() {
    // Nine of ten rows are the same.
    let source: Vec<f32> = (0..600).map(|i| if i % 10 == 0 { i as f32 } else { -1.0 }).collect();
    let data = Dense::new(&source, 1).unwrap();
    let cx = Executor::new(Some(1)).unwrap();
    for seed in 0..5 {
        let mut run = Nested::<f32>::plan(&params(40, 600).rng_seed(seed));
        run.step(&data, &cx).unwrap();
        assert!(run.weights.iter().all(|&w| w > 0.0), "{:?}", run.weights);
        let mut few = Nested::<f32>::plan(&params(70, 600).rng_seed(seed));
        few.step(&data, &cx).unwrap();
        assert_eq!(few.weights.iter().filter(|&&w| w > 0.0).count(), 61);
    }
}

#[test]
fn a_small_first_batch_is_raised_and_a_large_one_is_all() {
    assert_eq!([params(50, 20).first_batch(10_000), params(50, 20).first_batch(300)], [500, 300]);
    assert_eq!([params(50, 50).first_batch(10_000), params(50, u64::MAX).first_batch(300)], [50, 300]);
}

#[test]
fn a_row_is_named_by_its_place_in_the_source() {
    let mut source = vec![0.5f32; 3 * 4000];
    (0..4000).for_each(|i| source[3 * i] = i as f32);
    source[3 * 3998 + 1] = f32::NAN;
    let cx = Executor::new(Some(2)).unwrap();
    let mut run = Nested::<f32>::plan(&params(4, 50));
    let data = Dense::new(&source, 3).unwrap();
    let refused = loop {
        match run.step(&data, &cx) {
            Ok(step) => assert!(step.stop_reason.is_none()),
            Err(e) => break e.to_string(),
        }
    };
    assert_eq!(refused, "rows must be finite, got NaN at row 3998, column 1");
    // The state is intact: with the row corrected, the fit continues and ends.
    source[3 * 3998 + 1] = 0.5;
    let data = Dense::new(&source, 3).unwrap();
    while run.step(&data, &cx).unwrap().stop_reason.is_none() {}
    let inertia = run.finish(&data, &cx).unwrap();
    assert_eq!(inertia, crate::centers::inertia(&run.centers, None, Metric::Euclidean, &data, &cx).unwrap());
}

/// A source that records the highest row that was read.
struct Watched<'a>(RawRows<'a>, std::sync::atomic::AtomicU64);

impl DataSource<f32> for Watched<'_> {
    fn dim(&self) -> usize {
        DataSource::<f32>::dim(&self.0)
    }
    fn rows(&self) -> Option<u64> {
        DataSource::<f32>::rows(&self.0)
    }
    fn access(&self) -> Access {
        Access::Random
    }
    fn for_each_block(
        &self,
        tile_rows: usize,
        f: &mut dyn FnMut(crate::data::Block<'_, f32>) -> Result<std::ops::ControlFlow<()>>,
    ) -> Result<()> {
        self.0.for_each_block(tile_rows, &mut |block| {
            f(crate::data::Block { rows: &Reader(block.rows, &self.1), ..block })
        })
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<f32>) -> Result<()> {
        let most = rows.iter().copied().max().unwrap_or(0);
        self.1.fetch_max(most, std::sync::atomic::Ordering::Relaxed);
        self.0.gather(rows, out)
    }
}

struct Reader<'a>(&'a dyn crate::data::TileReader<f32>, &'a std::sync::atomic::AtomicU64);

impl crate::data::TileReader<f32> for Reader<'_> {
    fn tile<'s>(
        &'s self,
        rows: std::ops::Range<usize>,
        scratch: &'s mut Vec<f32>,
    ) -> Result<MatRef<'s, f32>> {
        self.1.fetch_max(rows.end as u64 - 1, std::sync::atomic::Ordering::Relaxed);
        self.0.tile(rows, scratch)
    }
}

#[test]
fn only_the_batch_is_read() {
    let bytes: Vec<u8> = (0..40_000u32).map(|i| (i * 7919 % 251) as u8).collect();
    let data = Watched(RawRows::new(&bytes, 4).unwrap(), 0.into());
    let cx = Executor::new(Some(2)).unwrap();
    let mut run = Nested::<f32>::plan(&params(5, 64).seeding(Seeding::Random).shuffle(false));
    for _ in 0..20 {
        let step = run.step(&data, &cx).unwrap();
        assert_eq!(data.1.load(std::sync::atomic::Ordering::Relaxed), step.batch_size - 1);
    }
}

#[test]
fn an_interrupted_round_goes_on_to_a_fixed_point() {
    let source = values(3000, 5, 3);
    let data = Dense::new(&source, 5).unwrap();
    let cx = Executor::new(Some(1)).unwrap();
    let mut run = Nested::<f64>::plan(&params(12, 200).bounds(Bounds::Hamerly));
    for round in 0.. {
        if round % 3 == 1 {
            cx.interrupt().set();
            assert!(matches!(run.step(&data, &cx), Err(Error::Interrupted)));
            cx.interrupt().clear();
        }
        let before = run.centers.clone();
        let step = run.step(&data, &cx).unwrap();
        if !before.is_empty() {
            assert_votes(&run, &source, &before, &format!("round {round}"));
        }
        if step.stop_reason.is_some() {
            break;
        }
    }
}

#[test]
fn an_interrupted_round_keeps_the_votes_before_it() {
    let source = values(3000, 5, 3);
    let data = Dense::new(&source, 5).unwrap();
    let cx = Executor::new(Some(1)).unwrap();
    // First a sweep with carried sums, then one over a batch that has just grown.
    for carried in [true, false] {
        let mut run = Nested::<f64>::plan(&params(12, 200));
        while !(run.batch() > 200 && run.carry && (run.due > run.batch() as u64) != carried) {
            run.step(&data, &cx).unwrap();
        }
        let (votes, voted) = (run.sums.clone().unwrap().into_clusters(), run.batch() as u64);
        cx.interrupt().set();
        assert!(matches!(run.step(&data, &cx), Err(Error::Interrupted)));
        cx.interrupt().clear();
        assert_eq!(run.batch() as u64 == voted, carried);
        let again = Nested::<f64>::restore_state(&run.params, &run.state()).unwrap();
        for mut run in [run, again] {
            run.partial_fit(&Dense::new(&source[..50 * 5], 5).unwrap(), &cx).unwrap();
            let gone = run.gone.as_ref().unwrap();
            assert_eq!((run.retired, gone.weights(), gone.sums()), (voted, votes.weights(), votes.sums()));
            assert_eq!(run.weights.iter().sum::<f64>(), (voted + run.batch() as u64) as f64);
        }
    }
}

/// Checks that the weights are the votes of the batch plus those of retired rows.
fn assert_all_votes(run: &Nested<f32>, fed: u64, what: &str) {
    let votes: f64 = run.weights.iter().sum();
    assert_eq!(votes as u64, run.retired + run.batch() as u64, "{what}");
    let waiting = run.kept.rows.len() as u64 - run.batch() as u64;
    assert_eq!(run.retired + run.batch() as u64 + waiting, fed, "{what}");
}

#[test]
fn pieces_of_any_length_are_fed() {
    let (n, d, k) = (6000, 3, 8);
    let source: Vec<f32> = values(n, d, 5).iter().map(|&x| x as f32).collect();
    let cx = Executor::new(Some(2)).unwrap();
    for (piece, buffer) in
        [(7, 1 << 30), (500, 1 << 30), (6000, 1 << 30), (500, 1000 * 20), (6000, 1000 * 20), (90, 9 * 20)]
    {
        let mut run = Nested::<f32>::plan(&params(k, 100).buffer_memory(buffer));
        let mut fed = 0;
        for rows in source.chunks(piece * d) {
            let step = run.partial_fit(&Dense::new(rows, d).unwrap(), &cx).unwrap();
            fed += (rows.len() / d) as u64;
            // With 8 bytes for a weight.
            assert!(run.kept.rows.values.capacity() as u64 / d as u64 * 20 <= buffer);
            assert_eq!(step.is_some(), fed >= k as u64);
            if step.is_some() {
                assert_all_votes(&run, fed, &format!("{piece} {buffer} {fed}"));
            }
        }
        assert_eq!(run.retired == 0, buffer == 1 << 30);
        // Centers are means of all votes.
        let sums = run.sums.clone().unwrap().into_clusters();
        for j in 0..k {
            for (c, s) in run.centers[j * d..(j + 1) * d].iter().zip(sums.sum(j)) {
                assert!((f64::from(*c) - s / sums.weights()[j]).abs() < 1e-5);
            }
        }
        // If nothing retired, sweeps converge to a fixed point of Lloyd's algorithm.
        if buffer == 1 << 30 {
            let last = &source[(n - 1) * d..];
            let mut step = run.partial_fit(&Dense::new(last, d).unwrap(), &cx).unwrap().unwrap();
            for _ in 0..500 {
                if step.n_changed == 0 && run.batch() == n + 1 {
                    break;
                }
                step = run.round_of_kept(&cx).unwrap();
            }
            assert!(run.current, "{step:?}");
        }
    }
}

#[test]
fn the_rows_of_a_fit_retire_when_others_come() {
    let source: Vec<f32> = values(2000, 3, 5).iter().map(|&x| x as f32).collect();
    let cx = Executor::new(Some(1)).unwrap();
    let data = Dense::new(&source, 3).unwrap();
    let mut run = Nested::<f32>::plan(&params(6, 100));
    while run.step(&data, &cx).unwrap().stop_reason.is_none() {}
    run.partial_fit(&Dense::new(&source[..300], 3).unwrap(), &cx).unwrap();
    assert_eq!(run.retired, 2000);
    assert_all_votes(&run, 2100, "after a fit");
}

#[test]
fn what_is_refused_leaves_the_state_as_it_was() {
    let source = values(200, 2, 1);
    let cx = Executor::new(Some(1)).unwrap();
    let mut run = Nested::<f64>::plan(&params(3, 50).seeding(Seeding::PlusPlus { greedy: true }));
    run.partial_fit(&Dense::new(&source, 2).unwrap(), &cx).unwrap();
    let before = (run.centers.clone(), run.kept.rows.len(), run.weights.clone(), run.iteration);
    let mut text =
        |rows: &[f64], d: usize| run.partial_fit(&Dense::new(rows, d).unwrap(), &cx).unwrap_err().to_string();
    assert_eq!(text(&[1.0; 3], 3), "`rows` have 3 columns, but the first rows had 2");
    assert_eq!(text(&[], 2), "`rows` hold no rows");
    assert!(text(&[1.0, f64::NAN], 2).starts_with("rows must be finite, got NaN at row 0, column 1"));
    // Squared distances of these rows overflow: once kept, they would fail every sweep.
    assert_eq!(
        text(&[1.0, 2.0, 3.0, 1e200], 2),
        "`rows` hold values so large that squared distances overflow near row 1: scale the data"
    );
    assert_eq!(before, (run.centers.clone(), run.kept.rows.len(), run.weights.clone(), run.iteration));
    let mut small = Nested::<f64>::plan(&params(3, 50).buffer_memory(63));
    let refused = small.partial_fit(&Dense::new(&source, 2).unwrap(), &cx).unwrap_err().to_string();
    assert!(
        refused.contains(
            "buffer_memory must be at least 96 bytes, to have room for more rows than clusters, got 63"
        ),
        "{refused}"
    );
}

#[test]
fn a_round_that_fails_takes_its_rows_back() {
    let source = values(600, 2, 1);
    let cx = Executor::new(Some(1)).unwrap();
    let data = Dense::new(&source, 2).unwrap();
    // Too few values, and centers too far from any row.
    for given in [vec![1.0; 5], vec![1e200; 6]] {
        let mut run = Nested::<f64>::plan(&params(3, 50).seeding(Seeding::Given(given)));
        let first = Weighted::new(Dense::new(&source[..4], 2).unwrap(), &[1.0, 2.0]).unwrap();
        let few = Dense::new(&source[..4], 2).unwrap();
        for first in [&few as &dyn DataSource<f64>, &first] {
            assert!(run.partial_fit(&data, &cx).is_err());
            assert_eq!((run.dim, run.fed, run.rows_kept(), run.batch(), run.due), (0, false, 0, 0, 0));
            assert!(run.partial_fit(first, &cx).unwrap().is_none());
            let before = run.state();
            assert!(run.partial_fit(&data, &cx).is_err());
            assert_eq!(run.state(), before);
            run = Nested::plan(&run.params);
        }
    }
}

/// A source that sets the interrupt in its second pass.
struct Interrupting<'a>(Dense<'a, f64>, &'a Executor, std::sync::atomic::AtomicU64);

impl DataSource<f64> for Interrupting<'_> {
    fn dim(&self) -> usize {
        self.0.dim()
    }
    fn rows(&self) -> Option<u64> {
        self.0.rows()
    }
    fn access(&self) -> Access {
        Access::Random
    }
    fn for_each_block(
        &self,
        tile_rows: usize,
        f: &mut dyn FnMut(crate::data::Block<'_, f64>) -> Result<std::ops::ControlFlow<()>>,
    ) -> Result<()> {
        if self.2.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1 {
            self.1.interrupt().set();
        }
        self.0.for_each_block(tile_rows, f)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<f64>) -> Result<()> {
        self.0.gather(rows, out)
    }
}

#[test]
fn an_interrupted_batch_is_taken_back_unless_rows_had_to_retire() {
    let source = values(900, 2, 1);
    let cx = Executor::new(Some(1)).unwrap();
    let piece =
        |range: std::ops::Range<usize>| Dense::new(&source[2 * range.start..2 * range.end], 2).unwrap();
    let mut fitted = Nested::<f64>::plan(&params(3, 50));
    fitted.step(&piece(0..300), &cx).unwrap();
    let mut fed = Nested::<f64>::plan(&params(3, 50));
    fed.partial_fit(&piece(0..300), &cx).unwrap();
    for mut run in [Nested::<f64>::plan(&params(3, 50)), fitted, fed] {
        let (before, rows) = (run.state(), (run.batch(), run.retired));
        let broken = Interrupting(piece(300..600), &cx, 0.into());
        assert!(matches!(run.partial_fit(&broken, &cx), Err(Error::Interrupted)));
        cx.interrupt().clear();
        assert_eq!((run.state(), (run.batch(), run.retired)), (before, rows));
        let mut other = run.clone();
        for run in [&mut run, &mut other] {
            run.partial_fit(&piece(300..600), &cx).unwrap();
        }
        assert_eq!(run.centers, other.centers);
    }
    // Retired rows cannot come back; the others stay and count once.
    let mut full = Nested::<f64>::plan(&params(3, 50).buffer_memory(400 * 24));
    full.partial_fit(&piece(0..400), &cx).unwrap();
    let broken = Interrupting(piece(400..700), &cx, 1.into());
    assert!(matches!(full.partial_fit(&broken, &cx), Err(Error::Interrupted)));
    cx.interrupt().clear();
    full.partial_fit(&piece(700..900), &cx).unwrap();
    let votes: f64 = full.weights.iter().sum();
    assert_eq!(votes, (full.retired + full.batch() as u64) as f64);
}

#[test]
fn pieces_of_any_storage_are_kept_as_they_are_computed() {
    let bytes: Vec<u8> = (0..3 * 5000u32).map(|i| (i * 7919 % 251) as u8).collect();
    let wide: Vec<f32> = bytes.iter().map(|&x| f32::from(x)).collect();
    let cx = Executor::new(Some(2)).unwrap();
    let [mut stored, mut plain] = [(); 2].map(|()| Nested::<f32>::plan(&params(5, 100)));
    stored.partial_fit(&RawRows::new(&bytes, 3).unwrap(), &cx).unwrap();
    plain.partial_fit(&Dense::new(&wide, 3).unwrap(), &cx).unwrap();
    assert_eq!(stored.kept.rows.values, wide);
    assert_eq!(stored.state(), plain.state());
}

#[test]
fn seeds_that_are_replaced_weigh_something() {
    // Half of the rows are equal, and every second one of the others has weight 0.
    let source: Vec<f64> = (0..400).map(|i| if i % 2 == 0 { -1.0 } else { f64::from(i) }).collect();
    let weights: Vec<f64> = (0..400).map(|i| f64::from(u8::from(i % 4 != 3))).collect();
    let data = Weighted::new(Dense::new(&source, 1).unwrap(), &weights[..]).unwrap();
    let cx = Executor::new(Some(1)).unwrap();
    for seed in 0..5 {
        let mut run = Nested::<f64>::plan(&params(60, 400).rng_seed(seed));
        run.step(&data, &cx).unwrap();
        assert!(run.weights.iter().all(|&w| w > 0.0), "{:?}", run.weights);
    }
}

#[test]
fn a_batch_of_all_rows_is_lloyd() {
    let (n, d, k) = (5000, 4, 30);
    let source = values(n, d, 6);
    let data = Dense::new(&source, d).unwrap();
    let cx = Executor::new(Some(2)).unwrap();
    let seeding =
        Seeding::Given(source[..k * d].iter().enumerate().map(|(i, x)| x + i as f64 * 1e-3).collect());
    let lloyd = crate::KMeans::params(k).seeding(seeding.clone()).tolerance(0.0).max_iter(1000);
    let lloyd = lloyd.algorithm(crate::Algorithm::Lloyd);
    let mut theirs = lloyd.start(&data).unwrap();
    while theirs.advance_on(&data, &cx).unwrap().is_some() {}
    let mut ours = Nested::<f64>::plan(&params(k, n as u64).seeding(seeding).bounds(Bounds::None));
    for theirs in theirs.history() {
        let ours = ours.step(&data, &cx).unwrap();
        assert_eq!(ours, Step { elapsed: 0.0, ..*theirs });
    }
    assert!(theirs.history().len() > 5);
    assert_eq!(ours.centers, theirs.centers::<f64>());
    assert_eq!(ours.labels.of_rows.view().to_vec(), theirs.labels());
}

#[test]
fn a_batch_stays_or_doubles_or_is_all() {
    let (n, d) = (3333u64, 3);
    let source = values(n as usize, d, 8);
    let data = Dense::new(&source, d).unwrap();
    let cx = Executor::new(Some(1)).unwrap();
    for (rho, first) in [(0.0, 64), (1.0, 100), (5.0, 37), (100.0, 500), (f64::INFINITY, 1000)] {
        let mut run = Nested::<f64>::plan(&params(9, first).rho(rho));
        let mut last = first;
        loop {
            let step = run.step(&data, &cx).unwrap();
            let now = step.batch_size;
            assert!(now == last || now == (2 * last).min(n), "{rho}: {last} rows, then {now}");
            last = now;
            if step.stop_reason.is_some() {
                break;
            }
        }
        assert_eq!(last, n);
    }
}

#[test]
fn rounds_end_that_find_no_lower_energy() {
    let (n, k) = (3000, 60);
    // Uniformly spread rows take many sweeps.
    let mut rng = Rng::keyed(3, Purpose::Seeding, 9);
    let source: Vec<f64> = (0..2 * n).map(|_| rng.unit()).collect();
    let data = Dense::new(&source, 2).unwrap();
    let cx = Executor::new(Some(1)).unwrap();
    let mut run = Nested::<f64>::plan(&params(k, 200).rho(f64::INFINITY));
    let mut stuck = |wanted: Option<StopReason>, batch: usize| {
        while run.batch() < batch {
            run.step(&data, &cx).unwrap();
        }
        // Simulates an energy that cycles from here on.
        (run.lowest, run.stalled, run.carry) = (-1.0, PATIENCE - 1, false);
        let step = run.step(&data, &cx).unwrap();
        assert!(step.n_changed > 0 && step.batch_size == batch as u64, "{step:?}");
        assert_eq!(step.stop_reason, wanted);
        run.due
    };
    assert_eq!(stuck(None, 200), 400);
    assert_eq!(stuck(None, 400), 800);
    assert_eq!(stuck(Some(StopReason::Patience), n), n as u64);
}

/// Rows of three directions, and more clusters: rounding alone separates the rows of a direction, and what is left of
/// the energy is less than the sums lose. Such ties must end too.
#[test]
fn ties_of_equal_directions_end() {
    let cx = Executor::new(Some(1)).unwrap();
    for seed in 0..60 {
        let mut rng = Rng::keyed(seed, Purpose::Seeding, 5);
        let (n, d, k) = (30, 3, 8);
        let directions: Vec<f64> = (0..3 * d).map(|_| rng.unit() - 0.5).collect();
        let source: Vec<f64> = (0..n)
            .flat_map(|i| {
                let length = 0.1 + 9.0 * rng.unit();
                directions[i % 3 * d..][..d].iter().map(|x| x * length).collect::<Vec<_>>()
            })
            .collect();
        let data = Dense::new(&source, d).unwrap();
        let mut run = params(k, n as u64).metric(Metric::Cosine).rng_seed(seed).start(data).unwrap();
        let ended = (0..500).any(|_| run.advance_on(data, &cx).unwrap().is_none());
        assert!(ended, "seed {seed} goes on after 500 sweeps");
    }
}

#[test]
fn votes_that_retired_are_those_of_their_rows() {
    let (n, d, k) = (800, 3, 6);
    let source = values(n, d, 4);
    let weights: Vec<f64> = (0..n).map(|i| [0.5, 2.0, 1.0][i % 3]).collect();
    let cx = Executor::new(Some(1)).unwrap();
    let plain = Dense::new(&source, d).unwrap();
    let weighted = Weighted::new(plain, &weights[..]).unwrap();
    for data in [&plain as &dyn DataSource<f64>, &weighted] {
        let weight = |i: usize| data.weights().map_or(1.0, |weights| weights[i]);
        let mut run = Nested::<f64>::plan(&params(k, 100));
        run.partial_fit(data, &cx).unwrap();
        run.due = n as u64;
        run.round_of_kept(&cx).unwrap();
        let labels = run.labels.of_rows.view().to_vec();
        run.retire_half(&cx).unwrap();
        assert_eq!((run.retired, run.rows_kept(), run.batch()), (400, 400, 400));
        assert_eq!(run.kept.rows.values, source[400 * d..]);
        for round in 0..4 {
            let gone = run.gone.as_ref().unwrap();
            let (mut count, mut sum, mut energy) = (vec![0.0; k], vec![0.0; k * d], vec![0.0; k]);
            for (i, &j) in labels[..400].iter().enumerate() {
                let (row, j) = (&source[i * d..][..d], j as usize);
                count[j] += weight(i);
                sum[j * d..][..d].iter_mut().zip(row).for_each(|(s, x)| *s += weight(i) * x);
                energy[j] += weight(i) * kernel::sq_dist(row, &run.centers[j * d..][..d]);
            }
            let close =
                |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-9 * (1.0 + b.abs()));
            assert!(close(gone.weights(), &count) && close(gone.sums(), &sum), "round {round}");
            assert!(close(gone.energies(), &energy), "round {round}: {:?} {energy:?}", gone.energies());
            run.round_of_kept(&cx).unwrap();
        }
        // All votes are those of retired rows and those of the rows still there.
        let total: f64 = (0..n).map(weight).sum();
        assert!((run.weights.iter().sum::<f64>() - total).abs() <= 1e-9 * total);
    }
}

#[test]
fn bounds_of_one_panel_are_called_what_was_asked_for() {
    let source = values(900, 3, 2);
    let data = Dense::new(&source, 3).unwrap();
    let cx = Executor::new(Some(1)).unwrap();
    for bounds in [Bounds::Hamerly, Bounds::Yinyang, Bounds::Elkan] {
        let mut run = Nested::<f64>::plan(&params(4, 900).bounds(bounds));
        for _ in 0..2 {
            run.step(&data, &cx).unwrap();
        }
        assert_eq!(run.snapshot().algorithm, bounds.name());
    }
}

fn bounds_hold<T: Compute>(offset: f64, scale: f64, bounds: Bounds, bounds_memory: u64) {
    let (n, d, k) = (4500, 18, 150);
    let mut rng = Rng::keyed(7, Purpose::Seeding, 1);
    // Columns of very different ranges.
    let source: Vec<T> = (0..n * d)
        .map(|i| T::from_f64((offset + (rng.unit() - 0.5) * 10f64.powi((i % d) as i32 % 5 - 2)) * scale))
        .collect();
    let data = Dense::new(&source, d).unwrap();
    let cx = Executor::new(Some(1)).unwrap();
    let plan = params(k, 300).rho(2.0).bounds(bounds).bounds_memory(bounds_memory);
    let mut run = Nested::<T>::plan(&plan);
    let mut seen = false;
    let mut batch = 0;
    for round in 0..40 {
        let step = run.step(&data, &cx).unwrap();
        let look = step.batch_size > batch || round % 9 == 0;
        batch = step.batch_size;
        if let (true, Some(bounds)) = (look, run.labels.bounds.as_ref()) {
            let rows: Vec<u64> = (0..run.batch()).map(|i| run.rows.row(i)).collect();
            let mut values = Vec::new();
            data.gather(&rows, &mut values).unwrap();
            let what = format!("{} offset {offset} scale {scale} round {round} {}", T::NAME, step.batch_size);
            let centers = MatRef::new(&run.centers, d);
            bounds.assert_true(MatRef::new(&values, d), &run.labels.of_rows.view().to_vec(), centers, &what);
            seen = true;
        }
    }
    assert!(seen && run.batch() == n, "{}", run.batch());
}

#[test]
fn bounds_hold_while_a_batch_grows_and_memory_gets_short() {
    for (bounds, memory) in
        [(Bounds::Elkan, 1 << 30), (Bounds::Elkan, 4500 * 4 * 3), (Bounds::Hamerly, 1 << 30)]
    {
        bounds_hold::<f32>(0.0, 1.0, bounds, memory);
        bounds_hold::<f32>(1e4, 1.0, bounds, memory);
        bounds_hold::<f32>(0.0, 1e25, bounds, memory);
        bounds_hold::<f64>(1e6, 1e-25, bounds, memory);
    }
}
