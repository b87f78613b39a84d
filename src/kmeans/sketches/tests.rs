//! Sweeps by sketches over rows that the sample does not show.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use super::Sketches;
use crate::data::{Access, AnySource, Block, DataSource, Dense, Source, TileReader, Weighted};
use crate::error::Result;
use crate::float::Float;
use crate::kernel::PackedCenters;
use crate::kernel::sketched::Basis;
use crate::kmeans::choice::Choice;
use crate::kmeans::{Algorithm, KMeans, KMeansRun};
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::seeding::Seeding;
use crate::tuning::DEFAULT_MEMORY;

/// Rows much farther than all of the sample, some of which are centers that move by much.
#[test]
fn outliers_that_the_sample_misses_get_exact_labels() {
    let (n, d, k) = (5000, 40, 30);
    let sampled = Basis::sample_of(n);
    let far: Vec<usize> = (0..n).filter(|&i| !sampled.contains(&(i as u64))).take(24).collect();
    let mut rng = Rng::keyed(1, Purpose::Seeding, 0);
    for scale in [1e8, 1e14, 1e16, 3e17] {
        let mut values: Vec<f32> = (0..n * d).map(|_| rng.unit() as f32).collect();
        for (at, &i) in far.iter().enumerate() {
            values[i * d] = (scale * (1.0 + (at * at % 17) as f64)) as f32;
        }
        let rows: Vec<[f32; 40]> = values.as_chunks::<40>().0.to_vec();
        // Some centers are outliers.
        let centers =
            (0..k).flat_map(|j| rows[if j % 5 == 0 { far[j / 5] } else { j }].map(f64::from)).collect();
        let params = KMeans::params(k).seeding(Seeding::Given(centers)).tolerance(0.0).max_iter(12);
        let trace = |algorithm: Algorithm| {
            let mut run: KMeansRun = params.clone().algorithm(algorithm).start(&rows).unwrap();
            let mut steps = Vec::new();
            while run.advance(&rows).unwrap().is_some() {
                steps.push((run.labels(), run.centers::<f64>()));
            }
            (steps, run.algorithm())
        };
        let (plain, found) = (trace(Algorithm::Lloyd), trace(Algorithm::Sketch));
        assert_eq!(found.1, Algorithm::Sketch, "{scale}");
        assert!(plain.0 == found.0, "{scale}");
    }
}

/// Rows as of a file larger than memory, of which some bytes are available. Counts the rows that are read.
struct Large<'a, T> {
    rows: MatRef<'a, T>,
    memory: u64,
    read: AtomicU64,
}

impl<T: Float> TileReader<T> for Large<'_, T> {
    fn tile<'s>(&'s self, rows: Range<usize>, _: &'s mut Vec<T>) -> Result<MatRef<'s, T>> {
        self.read.fetch_add(rows.len() as u64, Ordering::Relaxed);
        Ok(self.rows.slice(rows.start, rows.end))
    }
    fn tile_of<'s>(
        &'s self,
        rows: Range<usize>,
        picked: &[u32],
        scratch: &'s mut Vec<T>,
    ) -> Result<MatRef<'s, T>> {
        self.read.fetch_add(picked.len() as u64, Ordering::Relaxed);
        // Nothing but the picked rows may be used.
        scratch.clear();
        scratch.resize(rows.len() * self.rows.cols(), T::from_f64(f64::NAN));
        for &r in picked {
            let at = r as usize * self.rows.cols();
            scratch[at..at + self.rows.cols()].copy_from_slice(self.rows.row(rows.start + r as usize));
        }
        Ok(MatRef::new(scratch, self.rows.cols()))
    }
}

impl<T: Float> DataSource<T> for Large<'_, T> {
    fn dim(&self) -> usize {
        self.rows.cols()
    }
    fn rows(&self) -> Option<u64> {
        Some(self.rows.rows() as u64)
    }
    fn access(&self) -> Access {
        Access::Random
    }
    fn scarce_memory(&self) -> Option<u64> {
        Some(self.memory)
    }
    fn for_each_block(
        &self,
        _: usize,
        f: &mut dyn FnMut(Block<'_, T>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        f(Block { first_row: 0, len: self.rows.rows(), rows: self, weights: None }).map(|_| ())
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        self.rows.gather(rows, out)
    }
}

impl<T: Float> Source for Large<'_, T> {
    fn any(&self) -> AnySource<'_> {
        AnySource::of::<T>(self)
    }
}

/// Overlapping clusters, with duplicates.
fn overlapping<T: Float>(n: usize, d: usize) -> Vec<T> {
    let mut rng = Rng::keyed(5, Purpose::Seeding, d as u64);
    let middles: Vec<f64> = (0..60 * d).map(|_| rng.unit()).collect();
    let falling = |t: usize| (1.0 + t as f64).powf(-0.6);
    let mut values: Vec<T> = (0..n * d)
        .map(|i| middles[i / d * 7 % 60 * d + i % d] + rng.unit() + rng.unit())
        .enumerate()
        .map(|(i, value)| T::from_f64(value * falling(i % d)))
        .collect();
    (0..n / 9).for_each(|i| values.copy_within(..d, i * 9 * d));
    values
}

type Trace = (Vec<(Vec<u32>, Vec<f64>, u64)>, f64, Algorithm);

fn trace(source: &impl Source, algorithm: Algorithm, k: usize, mut each: impl FnMut()) -> Trace {
    let params = KMeans::params(k).seeding(Seeding::Random).tolerance(0.0).max_iter(15).algorithm(algorithm);
    let mut run: KMeansRun = params.start(source).unwrap();
    let mut steps = Vec::new();
    while let Some(step) = run.advance(source).unwrap() {
        steps.push((run.labels(), run.centers::<f64>(), step.objective.to_bits()));
        each();
    }
    let algorithm = run.algorithm();
    (steps, run.into_model().inertia(), algorithm)
}

fn check_large<T: Float>(d: usize, weighted: bool) {
    let (n, k) = (6000, 50);
    let values: Vec<T> = overlapping(n, d);
    let weights: Vec<f64> = (0..n).map(|i| (i % 5) as f64 / 2.0).collect();
    let with_weights = |source: &dyn DataSource<T>, algorithm: Algorithm, each: &mut dyn FnMut()| {
        if weighted {
            let weighted = Weighted::new::<T>(source, &weights[..]).unwrap();
            trace(&AnySource::of::<T>(&weighted), algorithm, k, each)
        } else {
            trace(&AnySource::of::<T>(source), algorithm, k, each)
        }
    };
    let plain = with_weights(&Dense::new(&values, d).unwrap(), Algorithm::Lloyd, &mut || ());
    // Bytes of memory per row: for the most directions, and for fewer.
    for memory in [9 * d as u64 + 300, 250] {
        let large =
            Large { rows: MatRef::new(&values, d), memory: memory * n as u64, read: AtomicU64::new(0) };
        let mut read = Vec::new();
        let found =
            with_weights(&large, Algorithm::Auto, &mut || read.push(large.read.swap(0, Ordering::Relaxed)));
        assert_eq!(found.2, Algorithm::Sketch, "{d} columns, {memory} bytes");
        assert!(plain.0 == found.0 && plain.1.to_bits() == found.1.to_bits(), "{d} columns, {memory} bytes");
        // Rows with weights are always summed again.
        let last = read[read.len() - 3];
        assert!(weighted || read.len() > 5 && last < n as u64 / 5, "{d} columns, {memory} bytes: {read:?}");
    }
}

#[test]
fn late_sweeps_over_large_files_read_few_rows() {
    for d in [70, 140] {
        check_large::<f32>(d, false);
        check_large::<f64>(d, false);
    }
    check_large::<f32>(140, true);
}

/// The budget of sketches is [`DEFAULT_MEMORY`]; for a file larger than memory, most of what is available may be more.
#[test]
fn the_default_budget_grows_with_the_memory_beside_large_files() {
    let values = [0.0f32; 2];
    let rows = MatRef::new(&values[..], 1);
    let large = |memory| Large { rows, memory, read: AtomicU64::new(0) };
    let choice = |memory: Option<u64>| Choice::new(Algorithm::Auto, memory, 9);
    assert_eq!(choice(None).sketch_budget::<f32>(&Dense::new(&values[..], 1).unwrap()), DEFAULT_MEMORY);
    assert_eq!(choice(None).sketch_budget(&large(10 * DEFAULT_MEMORY)), 8 * DEFAULT_MEMORY);
    assert_eq!(choice(None).sketch_budget(&large(DEFAULT_MEMORY)), DEFAULT_MEMORY);
    assert_eq!(choice(None).sketch_budget(&large(u64::MAX)), DEFAULT_MEMORY);
    assert_eq!(choice(Some(7)).sketch_budget(&large(10 * DEFAULT_MEMORY)), 7);
}

/// A center that is not a number has moved by an unknown length: no bound holds any more.
#[test]
fn moves_that_are_not_numbers_end_the_bounds() {
    let rows: Vec<f32> = overlapping(100, 40);
    let data = Dense::new(&rows[..], 40).unwrap();
    let centers = &rows[..5 * 40];
    let (of, cx) = (MatRef::new(centers, 40), Executor::caller());
    let mut sketches =
        Sketches::new::<f32>(&data, 100, &PackedCenters::on(of, false, cx), (1 << 20, true), cx)
            .unwrap()
            .unwrap();
    drop(sketches.rules(of, cx));
    let all = sketches.take_rows();
    sketches.put_rows(all);
    let mut moved = centers.to_vec();
    moved[3] += 1.0;
    sketches.follow(of, MatRef::new(&moved, 40), cx);
    assert!(sketches.are_known);
    let all = sketches.take_rows();
    sketches.put_rows(all);
    moved[3] = f32::NAN;
    sketches.follow(of, MatRef::new(&moved, 40), cx);
    assert!(!sketches.are_known);
}

/// Squares of differences that underflow do not decide.
#[test]
fn differences_with_squares_of_zero_get_exact_labels() {
    let (n, k, tiny) = (60, 6, 1e-170);
    let row = |i: usize, far: f64| {
        let mut row = [0.0f64; 40];
        (row[i % 3], row[39]) = (1.0, far * tiny);
        row
    };
    let rows: Vec<[f64; 40]> = (0..n).map(|i| row(i, (i % 10) as f64)).collect();
    let centers = (0..k).flat_map(|j| row(j % 3, if j < 3 { 9.0 } else { 2.0 })).collect();
    let params = KMeans::params(k).seeding(Seeding::Given(centers));
    let first = |algorithm| {
        let mut run: KMeansRun = params.clone().algorithm(algorithm).start(&rows).unwrap();
        run.advance(&rows).unwrap();
        run.labels()
    };
    let found = first(Algorithm::Sketch);
    assert_eq!(found, first(Algorithm::Lloyd));
    // The centers are now at 7.5 and 2.5 times this length.
    assert!((0..n).all(|i| (found[i] < 3) == (i % 10 >= 5)), "{found:?}");
}
