//! Coresets for a number of clusters: rows drawn by their sensitivity to a rough solution.
//!
//! The sensitivity of a row bounds its share of the squared error of any centers (Feldman and Langberg, "A unified
//! framework for approximating and clustering data", 2011). About a solution with clusters `b` of weight `W_b` and
//! squared error `S`, a row of weight `w` in `b` is drawn with the share `w / 3W + w d2 / 3S + w / (3 c W_b)`: by
//! weight, by squared distance to the nearest of the `c` centers, and equally from every cluster. The candidates of
//! k-means|| are the solution. They include rows of rare groups, which a single mean does not tell from the others.

use std::ops::{ControlFlow, Range};

use super::scalable::{DRAWN_ROWS, Rounds, candidates};
use super::seeds::known;
use crate::data::{
    Access, Converted, DataSource, RowRange, Stretch, Weighted, check_finite, copy, no_weight, read,
    row_bytes, too_heavy, too_light, weights_of,
};
use crate::error::{Error, Result};
use crate::kernel::Compute;
use crate::matrix::make_room;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::rows::RowBuf;
use crate::stats::{Coreset, LIGHTEST, take_all};
use crate::tuning::tile_rows;

/// The rounds of k-means|| for the rough solution of coresets, which also draw rows far
/// from all candidates. More candidates take longer, and coresets are as good (`rare.py`).
const CORESET_ROUNDS: Rounds = Rounds { oversampling: 0.5, rounds: 3 };

/// Rows up to which the default seeding and coresets keep a distance per row, 16 bytes each: at most 1 GiB. More rows
/// are seeded on a coreset of their parts.
pub(super) const BRIEF_ROWS: u64 = 1 << 26;

/// Bytes of the rows of a part that has a coreset of its own. They are copied if the source is a stream.
const CORESET_PART_BYTES: usize = 1 << 30;

/// When a source is read in parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartLimits {
    /// Rows up to which it is not, and the upper limit of the rows of a part.
    pub(super) rows: u64,
    /// Bytes of a part.
    pub(super) bytes: usize,
}

impl Default for PartLimits {
    fn default() -> Self {
        Self { rows: BRIEF_ROWS, bytes: CORESET_PART_BYTES }
    }
}

impl PartLimits {
    /// The parts of `n` rows of `row_bytes` each, for `k` clusters. Their lengths differ by at most 1.
    ///
    /// # Errors
    /// [`Error::Memory`] for too many parts: each has rows in the coreset.
    fn parts(self, n: u64, row_bytes: usize, k: usize) -> Result<Vec<Range<u64>>> {
        // Fewer rows would say little about the clusters.
        let rows = ((self.bytes / row_bytes.max(1)) as u64).max(16 * k as u64).min(self.rows).max(1);
        let parts = if n <= self.rows { 1 } else { n.div_ceil(rows) };
        let (each, longer) = (n / parts, n % parts);
        let begin = |part: u64| part * each + part.min(longer);
        let mut ranges = Vec::new();
        make_room(&mut ranges, "parts of a coreset", parts, 1)?;
        ranges.extend((0..parts).map(|part| begin(part)..begin(part + 1)));
        Ok(ranges)
    }
}

/// Draws a coreset of `m` rows of `data` for fits of about `k` clusters.
///
/// It finds rare groups that [`lightweight_coreset`](crate::stats::lightweight_coreset) misses, and takes longer: about
/// `1.5 k` distances per row in four passes (in up to twelve if outliers hold nearly all of the squared error), and 16
/// bytes per row. If the source has at most `m` rows, the coreset holds all rows with their own weights.
///
/// More than 67,108,864 rows are read in consecutive parts of 1 GiB. The coreset unites the coresets of the parts, each
/// with at least one row, and its state takes at most 1 GiB. A stream is read once for all parts, each of which is
/// copied.
///
/// ```
/// use shoal::{Executor, data::Dense, seeding::sensitivity_coreset};
/// // A group of ten rows among 10,000.
/// let values: Vec<f64> = (0..10_000).map(|i| if i % 1000 == 0 { 5.0 } else { f64::from(i % 2) }).collect();
/// let coreset = sensitivity_coreset(&Dense::new(&values, 1)?, 10, 60, 7, &Executor::new(None)?)?;
/// let of_group = (0..60).filter(|&i| coreset.points.rows().stored(i) == [5.0]);
/// let rows: f64 = of_group.map(|i| coreset.weights[i]).sum();
/// assert!((rows - 10.0).abs() < 3.0);
/// # Ok::<(), shoal::Error>(())
/// ```
///
/// # Errors
/// [`Error::InvalidParam`] if `m` is 0, there are fewer rows than `k`, or the weights are all 0, or too small or too
/// large. [`Error::Source`] if the source can be read only once. [`Error::NotFinite`] for NaN or infinite values.
/// [`Error::Memory`] for more rows than memory holds 16 bytes each of.
pub fn sensitivity_coreset<T: Compute>(
    data: &dyn DataSource<T>,
    k: usize,
    m: usize,
    seed: u64,
    cx: &Executor,
) -> Result<Coreset<T>> {
    coreset_within(data, k, m, seed, PartLimits::default(), cx).map(|(coreset, _)| coreset)
}

/// As [`sensitivity_coreset`], with these `limits`; and the number of computed distances.
pub(super) fn coreset_within<T: Compute>(
    data: &dyn DataSource<T>,
    k: usize,
    m: usize,
    seed: u64,
    limits: PartLimits,
    cx: &Executor,
) -> Result<(Coreset<T>, u64)> {
    if m == 0 {
        return Err(Error::param("n_samples", "at least 1", 0));
    }
    let n = known(data, k)?;
    let mut coreset = Coreset::new(data.dim());
    let _phase = cx.phase("coreset", n.saturating_mul(4));
    let weights = weights_of(data)?;
    let weights = weights.as_deref();
    if n <= m as u64 {
        take_all(data, &mut coreset, cx)?;
        return if weights.is_some_and(|w| w.iter().all(|&w| w <= 0.0)) {
            Err(no_weight())
        } else {
            Ok((coreset, 0))
        };
    }
    let of_part = |part: &Range<u64>| weights.map(|w| &w[part.start as usize..part.end as usize]);
    let weight = |part: &Range<u64>| match of_part(part) {
        Some(weights) => weights.iter().sum::<f64>(),
        None => (part.end - part.start) as f64,
    };
    let parts = limits.parts(n, row_bytes(data), k)?;
    if parts.len() == 1 {
        let rng = &mut Rng::keyed(seed, Purpose::Coreset, 0);
        return draw(data, (n, weights), k, m, rng, cx);
    }
    let all: f64 = parts.iter().map(weight).sum();
    if all <= 0.0 {
        return Err(no_weight());
    }
    let (mut n_distances, mut passed, mut before) = (0, 0.0, 0);
    for (number, part) in parts.into_iter().enumerate() {
        // The draws are shared by weight.
        passed += weight(&part);
        let until = (passed / all * m as f64).round() as usize;
        let draws = (until - before).max(1);
        before = until;
        let (n, weights) = (part.end - part.start, of_part(&part));
        let rng = &mut Rng::keyed(seed, Purpose::Coreset, number as u64);
        let drawn = with_part(data, &part, weights, |rows| {
            if weight(&part) > 0.0 {
                return draw(rows, (n, weights), k, draws, rng, cx);
            }
            check_finite(rows, cx)?;
            Ok((Coreset::new(rows.dim()), 0))
        });
        let (mut drawn, measured) = drawn.map_err(|error| error.renumbered(|row| row + part.start))?;
        drawn.rows.iter_mut().for_each(|row| *row += part.start);
        coreset.extend(&drawn);
        n_distances += measured;
    }
    Ok((coreset, n_distances))
}

/// Calls `f` with some rows as a source, in place if single rows can be read.
fn with_part<T: Compute, R>(
    data: &dyn DataSource<T>,
    part: &Range<u64>,
    weights: Option<&[f64]>,
    f: impl FnOnce(&dyn DataSource<T>) -> Result<R>,
) -> Result<R> {
    if data.access() == Access::Random {
        return f(&RowRange::new::<T>(data, part.clone())?);
    }
    let (mut rows, mut scratch) = (RowBuf::new(data.dim()), Converted::default());
    if data.most_values().is_some() {
        rows.begin_sparse(data.dim());
    }
    let n = (part.end - part.start) as usize;
    read(&Stretch::new(data, part.start, n), 1, &mut |block| {
        for first in (0..block.len).step_by(tile_rows(1)) {
            rows.extend(scratch.read(block.rows, first..block.len.min(first + tile_rows(1)), None)?);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if rows.len() != n {
        return Err(Error::Source(format!(
            "the source gave {} rows in one pass and fewer in another: every pass must give the same rows",
            part.end
        )));
    }
    match weights {
        Some(weights) => f(&Weighted::vouched(&rows, weights)),
        None => f(&rows),
    }
}

/// Draws `m` of the `n` rows, which are more, and counts the distances.
fn draw<T: Compute>(
    data: &dyn DataSource<T>,
    (n, weights): (u64, Option<&[f64]>),
    k: usize,
    m: usize,
    rng: &mut Rng,
    cx: &Executor,
) -> Result<(Coreset<T>, u64)> {
    let mut coreset = Coreset::new(data.dim());
    let rough = candidates(data, (n, weights), k, CORESET_ROUNDS, rng, cx)?;
    let spread = rough.total(weights.is_some())?;
    let votes = rough.votes(weights, cx)?;
    let all: f64 = votes.iter().sum();
    if all <= 0.0 {
        return Err(no_weight());
    } else if all < LIGHTEST {
        return Err(too_light());
    } else if !all.is_finite() {
        return Err(too_heavy(true));
    }
    let clusters = votes.iter().filter(|&&weight| weight > 0.0).count() as f64;
    // The share of a row of weight 1. Its three parts have the same sum over all rows, if distances are not all 0.
    let density = |row: usize| {
        let (sq_dist, nearest) = rough.near[row];
        let by_distance = if spread > 0.0 { sq_dist / spread } else { 0.0 };
        1.0 / all + by_distance + 1.0 / (clusters * votes[nearest as usize])
    };
    let share = |row: usize| match weights.map_or(1.0, |w| w[row]) {
        // The density is infinite if all rows of the cluster have weight 0.
        0.0 => 0.0,
        weight => weight * density(row),
    };
    let checked = |row: usize| if row.is_multiple_of(DRAWN_ROWS) { cx.check() } else { Ok(()) };
    let mut total = 0.0;
    for row in 0..n as usize {
        checked(row)?;
        total += share(row);
    }
    // One draw in each of `m` equal parts of the shares: as unbiased as independent draws, with less variance.
    let (mut passed, mut row) = (share(0), 0);
    let mut drawn = Vec::new();
    for i in 0..m {
        let at = (i as f64 + rng.unit()) / m as f64 * total;
        // Rounding must not lead past the last row.
        while passed <= at && row + 1 < n as usize {
            row += 1;
            checked(row)?;
            passed += share(row);
        }
        if share(row) > 0.0 {
            drawn.push(row as u64);
        }
    }
    let mut rows = drawn.clone();
    rows.dedup();
    let points = copy(data, &rows)?;
    let mut at = 0;
    for row in drawn {
        at += usize::from(rows[at] != row);
        coreset.push(points.rows(), at, total / (m as f64 * density(row as usize)), row);
    }
    Ok((coreset, rough.n_distances))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::data::{Chunk, Chunks, Dense, Weighted};

    /// Parts of 2000 rows, of more than 4000.
    const SHORT: PartLimits = PartLimits { rows: 4000, bytes: 8 * 2000 };

    /// Rows in three groups, of which the last is rare.
    fn groups(n: usize) -> Vec<f64> {
        (0..n)
            .map(|i| (if i % 97 == 0 { 40.0 } else { (i % 2) as f64 * 3.0 }) + (i % 13) as f64 / 20.0)
            .collect()
    }

    #[test]
    fn weights_follow_from_the_shares_by_definition() {
        let values = groups(3000);
        let own: Vec<f64> = (0..3000).map(|i| f64::from(i % 4)).collect();
        let data = Weighted::new::<f64>(Dense::new(&values, 1).unwrap(), &own[..]).unwrap();
        let cx = Executor::new(Some(2)).unwrap();
        let (k, m) = (5, 200);
        let coreset = sensitivity_coreset(&data, k, m, 9, &cx).unwrap();
        let rng = &mut Rng::keyed(9, Purpose::Coreset, 0);
        let rough = candidates(&data, (3000, Some(&own)), k, CORESET_ROUNDS, rng, &cx).unwrap();
        // For each row: the squared distance to the nearest center, and which center is that.
        let near: Vec<(f64, usize)> = values
            .iter()
            .map(|x| {
                let each = rough.centers.iter().map(|c| (x - c).powi(2)).zip(0..);
                each.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap()
            })
            .collect();
        let mut sizes = vec![0.0; rough.centers.len()];
        near.iter().zip(&own).for_each(|(&(_, b), w)| sizes[b] += w);
        let all: f64 = own.iter().sum();
        let spread: f64 = near.iter().zip(&own).map(|((d, _), w)| w * d).sum();
        let used = sizes.iter().filter(|&&size| size > 0.0).count() as f64;
        let share =
            |i: usize| own[i] * (1.0 / all + near[i].0 / spread + 1.0 / (used * sizes[near[i].1])) / 3.0;
        assert!(((0..3000).map(share).sum::<f64>() - 1.0).abs() < 1e-9);
        assert_eq!(coreset.rows.len(), m);
        for (i, (&row, &weight)) in coreset.rows.iter().zip(&coreset.weights).enumerate() {
            let row = row as usize;
            assert!((weight * share(row) * m as f64 / own[row] - 1.0).abs() < 1e-9);
            assert_eq!(coreset.points.values[i], values[row]);
        }
    }

    #[test]
    fn costs_of_any_centers_are_right_on_average_and_rare_groups_are_never_missed() {
        let values = groups(20_000);
        let (data, cx) = (Dense::new(&values, 1).unwrap(), Executor::new(Some(2)).unwrap());
        let cost = |values: &[f64], weights: Option<&[f64]>, centers: &[f64]| -> f64 {
            let least = |x: &f64| centers.iter().map(|c| (x - c).powi(2)).fold(f64::INFINITY, f64::min);
            values.iter().enumerate().map(|(i, x)| weights.map_or(1.0, |w| w[i]) * least(x)).sum()
        };
        let drawn = |seed, limits| coreset_within(&data, 3, 100, seed, limits, &cx).unwrap().0;
        let cases = [(&[0.0, 3.0, 40.0][..], PartLimits::default()), (&[20.0], PartLimits::default())];
        for (centers, limits) in cases.into_iter().chain(cases.map(|(centers, _)| (centers, SHORT))) {
            let exact = cost(&values, None, centers);
            let mut mean = 0.0;
            for seed in 0..60 {
                let coreset = drawn(seed, limits);
                assert!(coreset.points.values.iter().any(|&x| x >= 40.0));
                mean += cost(&coreset.points.values, Some(&coreset.weights), centers) / 60.0;
            }
            assert!((mean / exact - 1.0).abs() < 0.03, "{mean} {exact}");
        }
    }

    #[test]
    fn parts_have_nearly_equal_lengths() {
        for (n, k, expected) in
            [(4000, 3, 1), (4001, 3, 3), (20_000, 3, 10), (20_001, 3, 11), (20_001, 1000, 6)]
        {
            let parts = SHORT.parts(n, 8, k).unwrap();
            assert_eq!((parts.len(), parts[0].start, parts[parts.len() - 1].end), (expected, 0, n));
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
            let lengths: Vec<u64> = parts.iter().map(|part| part.end - part.start).collect();
            assert!(lengths.iter().max().unwrap() - lengths.iter().min().unwrap() <= 1);
        }
        // Rows that are longer than a part.
        let short = PartLimits { rows: 1, bytes: 1 };
        assert_eq!(short.parts(5, 8, 0).unwrap().len(), 5);
        assert!(matches!(short.parts(1 << 62, 8, 0), Err(Error::Memory(_))));
    }

    #[test]
    fn streams_are_read_once_for_all_parts_and_give_the_same_coreset() {
        let values = groups(10_001);
        // The first part has no weight.
        let weights: Vec<f64> = (0..10_001).map(|i| if i < 2500 { 0.0 } else { f64::from(i % 3) }).collect();
        let passes = AtomicU64::new(0);
        for weights in [None, Some(&weights)] {
            let weighted =
                weights.map(|w| Weighted::new::<f64>(Dense::new(&values, 1).unwrap(), &w[..]).unwrap());
            let dense = Dense::new(&values, 1).unwrap();
            let stream = Chunks::replay(1, || {
                passes.fetch_add(1, Ordering::Relaxed);
                (0..10_001).step_by(700).map(|first| {
                    let rows = first..(first + 700).min(10_001);
                    let chunk = Chunk::from(values[rows.clone()].to_vec());
                    Ok(Chunk { weights: weights.map(|w| w[rows].to_vec()), ..chunk })
                })
            });
            let array: &dyn DataSource<f64> = match &weighted {
                Some(weighted) => weighted,
                None => &dense,
            };
            let drawn = |data: &dyn DataSource<f64>, threads, m| {
                let cx = Executor::new(Some(threads)).unwrap();
                let (Coreset { points, weights, rows }, distances) =
                    coreset_within(data, 5, m, 4, SHORT, &cx).unwrap();
                (points.values, weights, rows, distances)
            };
            let expected = drawn(array, 1, 600);
            assert_eq!(drawn(array, 4, 600), expected);
            passes.store(0, Ordering::Relaxed);
            assert_eq!(drawn(&stream, 2, 600), expected);
            // One counts the rows, and one collects the weights or finds that there are none.
            assert_eq!(passes.load(Ordering::Relaxed), 3);
            assert_eq!(expected.2.len(), 600);
            assert!(expected.2.is_sorted());
            let own = |row: u64| weights.map_or(1.0, |w| w[row as usize]);
            assert!(expected.2.iter().all(|&row| own(row) > 0.0));
            assert!(expected.2.iter().zip(&expected.0).all(|(&row, &x)| values[row as usize] == x));
            let all: f64 = (0..10_001).map(own).sum();
            assert!((expected.1.iter().sum::<f64>() / all - 1.0).abs() < 0.1);
            // At least one row of each part with weight.
            let few = drawn(array, 1, 2).2.len();
            assert_eq!(few, if weights.is_some() { 5 } else { 6 });
        }
    }

    #[test]
    fn a_bad_value_in_a_later_part_has_its_row_number() {
        let mut values = groups(10_000);
        values[7001] = f64::NAN;
        let cx = Executor::new(Some(2)).unwrap();
        let weights: Vec<f64> = (0..10_000).map(|i| f64::from(u8::from(i < 2000))).collect();
        let dense = Dense::new(&values, 1).unwrap();
        let weighted = Weighted::new::<f64>(dense, &weights[..]).unwrap();
        let stream = Chunks::replay(1, || values.chunks(700).map(|part| Ok(Chunk::from(part.to_vec()))));
        for data in [&dense as &dyn DataSource<f64>, &weighted, &stream] {
            let error = coreset_within(data, 5, 100, 4, SHORT, &cx).unwrap_err();
            assert!(matches!(error, Error::NotFinite { row: 7001, column: 0, .. }), "{error:?}");
        }
    }

    #[test]
    fn the_same_for_any_number_of_threads_and_all_rows_if_few() {
        let values = groups(9000);
        let data = Dense::new(&values, 1).unwrap();
        let drawn = |threads, m| {
            let cx = Executor::new(Some(threads)).unwrap();
            let Coreset { rows, weights, .. } = sensitivity_coreset::<f64>(&data, 4, m, 1, &cx).unwrap();
            (rows, weights)
        };
        assert_eq!(drawn(1, 300), drawn(4, 300));
        assert_eq!(drawn(2, 9000), ((0..9000).collect(), vec![1.0; 9000]));
        // Rows that are all equal.
        let equal = vec![2.0; 5000];
        let cx = Executor::new(Some(1)).unwrap();
        let coreset = sensitivity_coreset(&Dense::new(&equal, 1).unwrap(), 3, 50, 0, &cx).unwrap();
        assert!(coreset.weights.iter().all(|&w| (w - 100.0).abs() < 1e-9));
        let none = Weighted::new::<f64>(Dense::new(&equal, 1).unwrap(), vec![0.0; 5000]);
        assert!(none.is_err() || sensitivity_coreset(&none.unwrap(), 3, 50, 0, &cx).is_err());
        assert!(sensitivity_coreset(&Dense::new(&equal, 1).unwrap(), 3, 0, 0, &cx).is_err());
    }
}
