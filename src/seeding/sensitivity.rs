//! Coresets for a number of clusters: rows drawn by their sensitivity to a rough solution.
//!
//! The sensitivity of a row bounds its share of the squared error of any centers (Feldman and Langberg, "A unified
//! framework for approximating and clustering data", 2011). About a solution with clusters `b` of weight `W_b` and
//! squared error `S`, a row of weight `w` in `b` is drawn with the share `w / 3W + w d2 / 3S + w / (3 c W_b)`: by
//! weight, by squared distance to the nearest of the `c` centers, and equally from every cluster. The candidates of
//! k-means|| are the solution. They include rows of rare groups, which a single mean does not tell from the others.

use super::known;
use super::scalable::{DRAWN_ROWS, candidates};
use crate::data::{DataSource, copy, no_weight, too_heavy, too_light, weights_of};
use crate::error::{Error, Result};
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::stats::{Coreset, LIGHTEST, take_all};
use crate::tuning::BRIEF_CANDIDATES;

/// Draws a coreset of `m` rows of `data` for fits of about `k` clusters.
///
/// It finds rare groups that [`lightweight_coreset`](crate::stats::lightweight_coreset) misses, and takes longer: about
/// `1.5 k` distances per row in four passes (in up to twelve if outliers hold nearly all of the squared error), and 16
/// bytes per row. If the source has at most `m` rows, the coreset holds all rows with their own weights.
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
/// [`Error::InvalidParam`] if `m` is 0, there are fewer rows than `k`, or the weights are all 0, or too small or too large.
/// [`Error::Source`] if the source can be read only once. [`Error::NotFinite`] for NaN or infinite values.
pub fn sensitivity_coreset<T: Compute>(
    data: &dyn DataSource<T>,
    k: usize,
    m: usize,
    seed: u64,
    cx: &Executor,
) -> Result<Coreset<T>> {
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
            Ok(coreset)
        };
    }
    let rng = &mut Rng::keyed(seed, Purpose::Coreset, 0);
    let rough = candidates(data, (n, weights), k, BRIEF_CANDIDATES, rng, cx)?;
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
    Ok(coreset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Dense, Weighted};

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
        let rough = candidates(&data, (3000, Some(&own)), k, BRIEF_CANDIDATES, rng, &cx).unwrap();
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
        for centers in [&[0.0, 3.0, 40.0][..], &[20.0]] {
            let exact = cost(&values, None, centers);
            let mut mean = 0.0;
            for seed in 0..60 {
                let coreset = sensitivity_coreset(&data, 3, 100, seed, &cx).unwrap();
                assert!(coreset.points.values.iter().any(|&x| x >= 40.0));
                mean += cost(&coreset.points.values, Some(&coreset.weights), centers) / 60.0;
            }
            assert!((mean / exact - 1.0).abs() < 0.03, "{mean} {exact}");
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
