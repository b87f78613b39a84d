//! Tests of steps against their definition, and of labels by bounds against a full search at every step.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::inner::STEPS_CHECKED;
use super::moving::Moving;
use super::{EpochSize, VarianceReduced, VarianceReducedParams, VarianceReducedRun, Variant};
use crate::data::{Access, AnySource, Block, Chunk, Chunks, Csr, DataSource, Dense, Source, Weighted};
use crate::error::{Error, Result};
use crate::fit::StopReason;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::seeding::Seeding;

fn noise(n: usize, seed: u64) -> Vec<f64> {
    let mut rng = Rng::keyed(seed, Purpose::Seeding, 0);
    (0..n).map(|_| rng.unit() - 0.5).collect()
}

fn length(a: &[f64]) -> f64 {
    a.iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[test]
fn centers_move_as_they_should_and_no_further_than_is_said() {
    let (k, d) = (3, 7);
    let means = noise(k * d, 1);
    let mut moving = Moving::new(means.clone(), d, 2.0);
    let mut centers = means.clone();
    let mut rng = Rng::keyed(1, Purpose::Epoch, 0);
    for step in 0..400 {
        let (j, x) = (rng.below(3) as usize, noise(d, step));
        let rate = [0.1, 0.5, 1.0, 1e-3][rng.below(4) as usize];
        let row = j * d..(j + 1) * d;
        let before = centers[row.clone()].to_vec();
        let kind = rng.below(3);
        for ((c, &mean), x) in centers[row.clone()].iter_mut().zip(&means[row.clone()]).zip(&x) {
            *c += match kind {
                0 => rate * (mean - *c),
                1 => rate * (x - *c),
                _ => rate * (mean - x),
            };
        }
        let moved = match kind {
            0 => moving.pull(j, rate),
            1 => moving.attract(j, &x, rate),
            _ => moving.push(j, &x, rate),
        };
        let mut now = vec![0.0f64; d];
        moving.write(j, &mut now);
        let difference =
            |a: &[f64], b: &[f64]| length(&a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>());
        assert!(difference(&now, &centers[row.clone()]) <= 1e-12, "step {step}");
        assert!(moved >= 2.0 * difference(&now, &before) - 1e-12, "step {step}");
        assert!(moving.apart(j) >= 2.0 * difference(&now, &means[row.clone()]) - 1e-12, "step {step}");
        if kind == 0 {
            // On the segment to the mean, never past it.
            let (far, near) = (difference(&before, &means[row.clone()]), difference(&now, &means[row]));
            assert!((near - (1.0 - rate) * far).abs() <= 1e-12);
        }
    }
    // A rate of 1 moves a center exactly to its mean.
    (0..k).for_each(|j| _ = moving.pull(j, 1.0));
    let mut now = vec![0.0f64; d];
    moving.write(0, &mut now);
    assert_eq!(now, means[..d]);
}

/// Centers (as bits) and labels at the end of a fit.
fn bits<S: Source + ?Sized>(params: &VarianceReducedParams, rows: &S) -> (Vec<u64>, Vec<u32>) {
    let cx = Executor::new(Some(2)).unwrap();
    let mut run = params.start(rows).unwrap();
    while run.advance_on(rows, &cx).unwrap().is_some() {}
    run.finish_on(rows, &cx).unwrap();
    (run.centers::<f64>().into_iter().map(f64::to_bits).collect(), run.labels())
}

#[test]
fn bounds_change_no_label() {
    // The fourth set lies far from the origin, the fifth has rows far from all others.
    for (n, d, k, width, offset, outlier) in [
        (4000, 20, 180, 0.2, 0.0, 1.0),
        (3000, 3, 80, 0.1, 0.0, 1.0),
        (1200, 270, 130, 0.5, 0.0, 1.0),
        (2000, 4, 70, 0.1, 300.0, 1.0),
        (2000, 4, 70, 0.1, 0.0, 1e3),
        (200, 1, 30, 0.1, 0.0, 1.0),
    ] {
        let middles = noise(40 * d, 2);
        let values = noise(n * d, 3);
        let far = |i: usize| if (i / d).is_multiple_of(97) { outlier } else { 1.0 };
        let at = |i: usize| offset + far(i) * (middles[i / d * 7 % 40 * d + i % d] + width * values[i]);
        let wide: Vec<f64> = (0..n * d).map(at).collect();
        let narrow: Vec<f32> = wide.iter().map(|&x| x as f32).collect();
        for (variant, rate, epochs) in
            [(Variant::PlusPlus, 0.02, 8), (Variant::PlusPlus, 0.3, 3), (Variant::Plain, 0.05, 2)]
        {
            let params = VarianceReduced::params(k).seeding(Seeding::Random).variant(variant);
            let params = params.learning_rate(Some(rate)).max_iter(epochs).tolerance(0.0);
            let plain = params.clone().search_always(true);
            let (wide, narrow) = (Dense::new(&wide, d).unwrap(), Dense::new(&narrow, d).unwrap());
            let what = format!("{n} x {d} at {offset}, k={k}, {variant:?}, rate {rate}");
            let (a, b) = (bits(&params, &wide), bits(&plain, &wide));
            assert_eq!(a, b, "{what}, f64");
            let (a, b) = (bits(&params, &narrow), bits(&plain, &narrow));
            assert_eq!(a, b, "{what}, f32");
        }
    }
}

#[test]
fn sparse_rows_change_no_label_either() {
    let (n, d, k) = (1500, 50, 140);
    let mut rng = Rng::keyed(3, Purpose::Seeding, 0);
    // The rows of the second set are much nearer to each other than to the origin.
    for (offset, width, one_in) in [(0.0, 1.0, 6), (1e3, 1e-3, 1)] {
        let (mut starts, mut columns, mut values) = (vec![0i64], Vec::new(), Vec::new());
        for _ in 0..n {
            for column in 0..d {
                if rng.below(one_in) == 0 {
                    columns.push(column);
                    values.push(offset + width * rng.unit());
                }
            }
            starts.push(columns.len() as i64);
        }
        let narrow: Vec<f32> = values.iter().map(|&x| x as f32).collect();
        let params = VarianceReduced::params(k).seeding(Seeding::Random).max_iter(4).tolerance(0.0);
        let shape = (n, d as usize);
        let rows = Csr::new(shape, starts[..].into(), columns[..].into(), &values).unwrap();
        let (a, b) = (bits(&params, &rows), bits(&params.clone().search_always(true), &rows));
        assert_eq!(a, b, "{offset}, f64");
        let rows = Csr::new(shape, starts[..].into(), columns[..].into(), &narrow).unwrap();
        let (a, b) = (bits(&params, &rows), bits(&params.clone().search_always(true), &rows));
        assert_eq!(a, b, "{offset}, f32");
    }
}

/// Rows in memory that set the interrupt after a number of `gather` calls, and count the later calls.
struct Telling<'a> {
    rows: Dense<'a, f64>,
    cx: &'a Executor,
    left: AtomicU64,
    late: AtomicU64,
}

impl<'a> Telling<'a> {
    fn new(rows: Dense<'a, f64>, cx: &'a Executor) -> Self {
        Self { rows, cx, left: AtomicU64::new(u64::MAX), late: AtomicU64::new(0) }
    }

    /// Whether an epoch of `run` is interrupted when the interrupt is set after `after` calls.
    fn stops(&self, run: &mut VarianceReducedRun, after: u64) -> bool {
        self.left.store(after, Relaxed);
        let done = run.advance_on(self, self.cx);
        self.left.store(u64::MAX, Relaxed);
        self.cx.interrupt().clear();
        assert!(matches!(done, Ok(_) | Err(Error::Interrupted)), "{done:?}");
        done.is_err()
    }
}

impl Source for Telling<'_> {
    fn any(&self) -> AnySource<'_> {
        AnySource::F64(self)
    }
}

impl DataSource<f64> for Telling<'_> {
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
        self.rows.for_each_block(tile_rows, f)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<f64>) -> Result<()> {
        let left = self.left.load(Relaxed);
        if left == 0 {
            self.late.fetch_add(1, Relaxed);
        } else if left < u64::MAX {
            self.left.store(left - 1, Relaxed);
            if left == 1 {
                self.cx.interrupt().set();
            }
        }
        self.rows.gather(rows, out)
    }
}

#[test]
fn an_interrupted_epoch_was_not_begun_and_one_that_is_taken_back_neither() {
    let (n, d, k) = (600, 4, 40);
    let values = noise(n * d, 5);
    let cx = Executor::new(Some(1)).unwrap();
    let rows = Telling::new(Dense::new(&values, d).unwrap(), &cx);
    let params = VarianceReduced::params(k).seeding(Seeding::Random).max_iter(6).tolerance(0.0);
    // With the rate 1, nearly every epoch is undone.
    for (rate, taken_back) in [(0.05, false), (1.0, true)] {
        let params = params.clone().learning_rate(Some(rate));
        let (mut whole, mut broken) = (params.start(&rows).unwrap(), params.start(&rows).unwrap());
        let (mut stops, mut halved) = (0, 0);
        while whole.advance_on(&rows, &cx).unwrap().is_some() {
            let kept = (broken.centers::<f64>(), broken.history().len());
            for after in [1, 3, 9, 27] {
                if rows.stops(&mut broken, after) {
                    stops += 1;
                    // The first epoch chooses the first centers, which stay.
                    let now = (broken.centers::<f64>(), broken.history().len());
                    assert!(now == kept || kept.0.is_empty(), "after {} steps", kept.1);
                } else {
                    break;
                }
            }
            if broken.history().len() < whole.history().len() {
                broken.advance_on(&rows, &cx).unwrap();
            }
            assert_eq!(broken.centers::<f64>(), whole.centers::<f64>());
            assert_eq!(broken.learning_rate().map(f64::to_bits), whole.learning_rate().map(f64::to_bits));
            halved += u64::from(whole.learning_rate() < Some(rate));
        }
        assert!(stops > 6 && (halved > 2) == taken_back, "{stops} stops, {halved} halved");
        while broken.advance_on(&rows, &cx).unwrap().is_some() {}
        assert_eq!(broken.centers::<f64>(), whole.centers::<f64>());
    }
}

#[test]
fn steps_end_soon_after_they_are_told_to() {
    let (n, d, k) = (3000, 300, 200);
    let values = noise(n * d, 6);
    let cx = Executor::new(Some(1)).unwrap();
    let rows = Telling::new(Dense::new(&values, d).unwrap(), &cx);
    let params = VarianceReduced::params(k).seeding(Seeding::Random).search_always(true);
    let mut run = params.start(&rows).unwrap();
    run.advance_on(&rows, &cx).unwrap();
    assert!(rows.stops(&mut run, 2000));
    // A search for each step of a block of up to a thousand.
    let most = STEPS_CHECKED / (k * d) as u64 + 1;
    let late = rows.late.load(Relaxed);
    assert!(late <= most && most < 100, "{late} of {most}");
}

#[test]
fn a_run_that_is_left_keeps_its_centers_and_one_that_ends_closes_them() {
    let (n, d, k) = (800, 3, 20);
    let values = noise(n * d, 7);
    let rows = Dense::new(&values, d).unwrap();
    let cx = Executor::new(Some(1)).unwrap();
    let params = VarianceReduced::params(k).seeding(Seeding::Random).max_iter(3).tolerance(0.0);
    let params = params.learning_rate(Some(0.1));
    let mut run = params.start(&rows).unwrap();
    for _ in 0..3 {
        run.advance_on(&rows, &cx).unwrap();
        let left = run.centers::<f64>();
        let inertia = run.finish_on(&rows, &cx).unwrap();
        assert_eq!(run.centers::<f64>(), left);
        let nearest = |x: &[f64]| {
            left.chunks(d)
                .map(|c| c.iter().zip(x).map(|(c, x)| (c - x).powi(2)).sum())
                .fold(f64::MAX, f64::min)
        };
        let truth: f64 = values.chunks(d).map(nearest).sum();
        assert!((inertia - truth).abs() <= 1e-9 * truth);
    }
    let left = run.centers::<f64>();
    let inertia = run.inertia();
    assert!(run.advance_on(&rows, &cx).unwrap().is_none());
    assert_ne!(run.centers::<f64>(), left);
    assert!(run.finish_on(&rows, &cx).unwrap() < inertia);
    let closed = run.centers::<f64>();
    assert!(run.advance_on(&rows, &cx).unwrap().is_none() && run.centers::<f64>() == closed);
    assert_eq!(params.fit(&rows).unwrap().centers::<f64>(), closed);
}

#[test]
fn the_last_steps_are_taken_back_too() {
    let (n, d, k) = (600, 4, 40);
    let values = noise(n * d, 5);
    let rows = Dense::new(&values, d).unwrap();
    let params = VarianceReduced::params(k).seeding(Seeding::Random).max_iter(1).learning_rate(Some(1.0));
    let means = params.clone().learning_rate(Some(0.0)).polish(false).fit(&rows).unwrap();
    let rough = params.polish(false).fit(&rows).unwrap();
    assert_eq!(rough.centers::<f64>(), means.centers::<f64>());
    assert_eq!((rough.labels(), rough.inertia().to_bits()), (means.labels(), means.inertia().to_bits()));
}

#[test]
fn doubling_epochs_grow_to_all_rows_and_the_tolerance_waits_for_them() {
    let (n, d, k) = (2000, 3, 20);
    let values = noise(n * d, 5);
    let rows = Dense::new(&values, d).unwrap();
    let cx = Executor::new(Some(1)).unwrap();
    let params = VarianceReduced::params(k).seeding(Seeding::Random).epoch_size(EpochSize::Doubling);
    // With this tolerance every epoch counts as one without progress.
    let params = params.tolerance(0.9).max_iter(20).learning_rate(Some(0.02));
    let mut run = params.start(&rows).unwrap();
    let mut seen = 0;
    let mut steps = Vec::new();
    while let Some(step) = run.advance_on(&rows, &cx).unwrap() {
        steps.push(step.rows_seen - seen - n as u64);
        seen = step.rows_seen;
    }
    // 2048 exceeds 2000: epochs are whole from the eleventh on, and the sweeps of the next two see no
    // progress.
    assert_eq!(steps, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2000, 2000, 0]);
    assert_eq!(run.history().last().unwrap().stop_reason, Some(StopReason::Tolerance));
    let long: Vec<u64> = [63, 64, u64::MAX].map(|epoch| EpochSize::Doubling.steps(1 << 62, epoch)).into();
    assert_eq!(long, [1 << 62; 3]);
}

/// In an epoch, centers move only if a drawn row has another label than in the sweep. Here such rows have no weight.
#[test]
fn rows_without_weight_are_not_drawn() {
    let rows: Vec<[f64; 1]> = (0..90).map(|i| [[0.0], [10.0], [4.6]][i % 3]).collect();
    let weights =
        |boundary: f64| (0..90).map(|i| if i % 3 == 2 { boundary } else { 1.0 }).collect::<Vec<f64>>();
    // The sweep gives the rows at 4.6 to the center 8; from the means 0 and 10 they are nearer to 0.
    let params = VarianceReduced::params(2).seeding(Seeding::Given(vec![0.0, 8.0])).learning_rate(Some(0.3));
    let cx = Executor::new(Some(1)).unwrap();
    let centers = |rows: &dyn Source| {
        let mut run = params.start(rows).unwrap();
        run.advance_on(rows, &cx).unwrap();
        run.centers::<f64>()
    };
    let of = |boundary| {
        let weights = weights(boundary);
        let memory = Weighted::new::<f64>(&rows, &weights[..]).unwrap();
        let chunk =
            || Chunk::from(rows.iter().map(|row| row[0]).collect::<Vec<_>>()).weighted(weights.clone());
        let stream = Chunks::replay(1, || [Ok(chunk())].into_iter());
        [centers(&memory), centers(&stream)]
    };
    assert_eq!(of(0.0), [[0.0, 10.0], [0.0, 10.0]]);
    for moved in of(0.1) {
        assert!(moved[0] > 0.01, "{moved:?}");
    }
}
