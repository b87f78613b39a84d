//! Balanced sampling through a hierarchy of clusters, after Vo et al., "Automatic data curation for self-supervised
//! learning: a clustering-based approach", 2024 (arXiv 2405.15613).
//!
//! A sample is shared out from the top of the hierarchy: every branch gives the same number of rows, and a branch with
//! fewer rows gives all of them.

use std::collections::BinaryHeap;

use crate::error::{Error, Result};
use crate::kernel::MAX_CENTERS;
use crate::parallel::Executor;
use crate::pass::Groups;
use crate::rng::{Purpose, Rng, mix};

/// Rows between two checks for an interrupt.
const CHECKED: usize = 1 << 16;

/// Shares out a sample of `n_samples` rows among cells, so that every branch of a hierarchy of cells gives the same
/// number of rows as far as it has them. Returns the number of rows per cell.
///
/// `sizes` are the rows per cell of the finest level, and `parents` the cell of the next level that holds each cell:
/// `parents[0]` for the cells of `sizes`, `parents[1]` for the cells of the level above, and so on. Without `parents`,
/// the cells themselves are the branches.
///
/// Of `n` rows to share out among branches with `N_j` rows, branch `j` gives `min(c, N_j)`, where `c` is the largest
/// integer for which these sum to at most `n`. The rest, less than one row per branch, goes to branches with more than
/// `c` rows, drawn with `rng_seed`. So the sum is exactly `n_samples`, or the sum of `sizes` if that is smaller.
///
/// ```
/// // The second and the third cell have the same parent.
/// let quotas = shoal::curation::balanced_quotas(&[900, 20, 7], &[vec![0, 1, 1]], 50, 7)?;
/// assert_eq!(quotas, [25, 18, 7]);
/// # Ok::<(), shoal::Error>(())
/// ```
///
/// # Errors
/// [`Error::Shape`] if a level of `parents` has another number of cells than the level below names.
/// [`Error::InvalidParam`] if a parent is not below 16,777,216, or the sizes of the cells below it sum to more than
/// [`u64::MAX`].
pub fn balanced_quotas(
    sizes: &[u64],
    parents: &[Vec<u32>],
    n_samples: u64,
    rng_seed: u64,
) -> Result<Vec<u64>> {
    let mut totals = vec![sizes.to_vec()];
    let mut branches = Vec::new();
    for (level, of) in parents.iter().enumerate() {
        let below = &totals[level];
        if of.len() != below.len() {
            let problem = format!("must hold {} cells, got {}", below.len(), of.len());
            return Err(Error::Shape(format!("`parents` of level {level} {problem}")));
        }
        let named = of.iter().max().map_or(0, |&last| last as usize + 1);
        if named > MAX_CENTERS {
            let found = format!("{} at level {level}", named - 1);
            return Err(Error::param("parents", format!("below {MAX_CENTERS}"), found));
        }
        let count = parents.get(level + 1).map_or(named, |above| above.len().max(named));
        let mut above = vec![0u64; count];
        for (&cell, &size) in of.iter().zip(below) {
            let total = &mut above[cell as usize];
            *total = total.checked_add(size).ok_or_else(|| {
                Error::param("sizes", format!("at most {} rows per cell of a level", u64::MAX), "more")
            })?;
        }
        branches.push(Groups::new(of, count));
        totals.push(above);
    }
    let draws = |level: usize, cell: usize| {
        Rng::keyed(rng_seed, Purpose::Sampling, (level as u64) << 32 | cell as u64)
    };
    let top = totals.len() - 1;
    let mut quotas = shared_out(&totals[top], n_samples, &mut draws(top + 1, 0));
    for level in (0..top).rev() {
        let mut below = vec![0; totals[level].len()];
        for (cell, &quota) in quotas.iter().enumerate() {
            let children = branches[level].of(cell);
            let caps: Vec<u64> = children.iter().map(|&child| totals[level][child as usize]).collect();
            let shares = shared_out(&caps, quota, &mut draws(level + 1, cell));
            children.iter().zip(shares).for_each(|(&child, share)| below[child as usize] = share);
        }
        quotas = below;
    }
    Ok(quotas)
}

/// Shares out `n` among branches that can give at most `caps`.
fn shared_out(caps: &[u64], n: u64, rng: &mut Rng) -> Vec<u64> {
    let mut ascending = caps.to_vec();
    ascending.sort_unstable();
    let (mut left, mut level) = (n, None);
    for (done, &cap) in ascending.iter().enumerate() {
        let branches = (caps.len() - done) as u64;
        if cap > left / branches {
            level = Some(left / branches);
            left %= branches;
            break;
        }
        left -= cap;
    }
    let Some(level) = level else { return caps.to_vec() };
    let mut shares: Vec<u64> = caps.iter().map(|&cap| cap.min(level)).collect();
    let mut more: Vec<usize> = (0..caps.len()).filter(|&j| caps[j] > level).collect();
    for drawn in 0..left as usize {
        let at = drawn + rng.below((more.len() - drawn) as u64) as usize;
        more.swap(drawn, at);
        shares[more[drawn]] += 1;
    }
    shares
}

/// Which rows of a cell [`pick_rows`] takes.
///
/// See [`pick_rows`] for an example.
#[derive(Clone, Copy, Debug)]
pub enum Pick<'a> {
    /// Rows at random, without replacement.
    Random {
        /// The seed of the draws.
        rng_seed: u64,
    },
    /// The rows nearest to the center of their cell; the lower row wins a tie.
    Nearest {
        /// The squared distance of every row to its center.
        sq_dists: &'a [f64],
    },
}

/// Takes `quotas[j]` rows with label `j`, or all of them if there are fewer. Returns the row numbers in ascending
/// order.
///
/// Rows with weight 0 are never taken.
///
/// A balanced sample through two levels of clusters:
///
/// ```
/// use shoal::curation::{Pick, balanced_quotas, pick_rows};
/// use shoal::{HierarchicalKMeans, KMeans, MatRef};
/// let rows: Vec<[f32; 2]> =
///     (0..3000u32).map(|i| [(i * 7919 % 1009) as f32, (i % 97 * (i % 89)) as f32]).collect();
/// let fine = HierarchicalKMeans::params(60).rng_seed(1).fit(&rows)?;
/// let centers = fine.centers::<f32>();
/// let coarse = KMeans::params(8).rng_seed(1).fit(&MatRef::new(&centers, 2))?;
///
/// let sizes: Vec<u64> = fine.cluster_weights().iter().map(|&rows| rows as u64).collect();
/// let quotas = balanced_quotas(&sizes, &[coarse.labels().to_vec()], 400, 7)?;
/// let cx = shoal::Executor::new(None)?;
/// let sample = pick_rows(fine.labels(), &quotas, Pick::Random { rng_seed: 7 }, None, &cx)?;
/// assert_eq!(sample.len(), 400);
/// # Ok::<(), shoal::Error>(())
/// ```
///
/// # Errors
/// [`Error::Shape`] if there is another number of `weights` or distances than of labels.
/// [`Error::InvalidParam`] if a label is not below the number of quotas, or if a weight or a distance is negative or
/// not finite. [`Error::Interrupted`].
pub fn pick_rows(
    labels: &[u32],
    quotas: &[u64],
    by: Pick<'_>,
    weights: Option<&[f64]>,
    cx: &Executor,
) -> Result<Vec<u64>> {
    let given = [
        ("weights", weights),
        ("sq_dists", if let Pick::Nearest { sq_dists } = by { Some(sq_dists) } else { None }),
    ];
    for (name, values) in given {
        let Some(values) = values else { continue };
        if values.len() != labels.len() {
            let problem = format!("must hold {} values, one for each label", labels.len());
            return Err(Error::Shape(format!("`{name}` {problem}, got {}", values.len())));
        }
        if let Some(row) = values.iter().position(|value| !(value.is_finite() && *value >= 0.0)) {
            let found = format!("{} at row {row}", values[row]);
            return Err(Error::param(name, "finite and at least 0", found));
        }
    }
    // A one-to-one mapping of row numbers, so that no two rows have the same key.
    let salt = match by {
        Pick::Random { rng_seed } => Rng::keyed(rng_seed, Purpose::Sampling, u64::MAX).bits(),
        Pick::Nearest { .. } => 0,
    };
    let key = |row: usize| match by {
        Pick::Random { .. } => mix(salt ^ row as u64),
        // The bits of numbers from 0 on have the order of the numbers. Adding 0 makes -0 positive.
        Pick::Nearest { sq_dists } => (sq_dists[row] + 0.0).to_bits(),
    };
    // The rows with the smallest keys so far, per cell, the largest of them on top.
    let mut taken: Vec<BinaryHeap<(u64, u64)>> = quotas.iter().map(|_| BinaryHeap::new()).collect();
    for (row, &label) in labels.iter().enumerate() {
        if row % CHECKED == 0 {
            cx.check()?;
        }
        let cell = label as usize;
        let Some(&quota) = quotas.get(cell) else {
            return Err(Error::param(
                "labels",
                format!("below {}", quotas.len()),
                format!("{label} at row {row}"),
            ));
        };
        if quota == 0 || weights.is_some_and(|weights| weights[row] == 0.0) {
            continue;
        }
        let (heap, new) = (&mut taken[cell], (key(row), row as u64));
        if (heap.len() as u64) < quota {
            heap.push(new);
        } else if let Some(mut last) = heap.peek_mut()
            && new < *last
        {
            *last = new;
        }
    }
    let mut rows: Vec<u64> = taken.into_iter().flatten().map(|(_, row)| row).collect();
    rows.sort_unstable();
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executor() -> Executor {
        Executor::new(Some(1)).unwrap()
    }

    /// Gives one row after the other to the branches that have given least.
    fn one_by_one(caps: &[u64], n: u64) -> Vec<u64> {
        let mut shares = vec![0; caps.len()];
        for _ in 0..n {
            let open = (0..caps.len()).filter(|&j| shares[j] < caps[j]);
            let Some(j) = open.min_by_key(|&j| shares[j]) else { break };
            shares[j] += 1;
        }
        shares
    }

    #[test]
    fn branches_give_equal_shares_up_to_their_rows() {
        let mut rng = Rng::keyed(1, Purpose::Sampling, 0);
        for trial in 0..500 {
            let caps: Vec<u64> =
                (0..rng.below(9)).map(|_| rng.below(4) * rng.below(1 + trial % 40)).collect();
            let n = rng.below(120);
            let (mut shares, mut expected) = (shared_out(&caps, n, &mut rng), one_by_one(&caps, n));
            assert!(shares.iter().zip(&caps).all(|(share, cap)| share <= cap));
            assert_eq!(shares.iter().sum::<u64>(), n.min(caps.iter().sum()));
            // Branches that have more rows than the others may get one row more: which of them is random.
            shares.sort_unstable();
            expected.sort_unstable();
            assert_eq!(shares, expected, "{caps:?} {n}");
        }
    }

    #[test]
    fn the_last_rows_go_to_branches_at_random() {
        let mut got = [0u64; 5];
        for seed in 0..4000 {
            let shares = balanced_quotas(&[9, 3, 9, 9, 9], &[], 17, seed).unwrap();
            assert_eq!(shares.iter().sum::<u64>(), 17);
            shares.iter().zip(&mut got).for_each(|(share, got)| *got += share - 3);
        }
        // 2 of 4 branches: 2,000 each, with a standard deviation of 32.
        assert_eq!(got[1], 0);
        assert!(got.iter().enumerate().all(|(j, got)| j == 1 || got.abs_diff(2000) < 160), "{got:?}");
    }

    #[test]
    fn shares_go_down_the_levels() {
        // Cells 0 to 2 in branch 0, cell 3 in branch 1, cell 4 in branch 2, which is below another top branch.
        let parents = [vec![0, 0, 0, 1, 2], vec![0, 0, 1]];
        assert_eq!(balanced_quotas(&[50, 1, 50, 4, 90], &parents, 40, 3).unwrap().iter().sum::<u64>(), 40);
        // Half for each top branch. Of 20, branch 1 has 4; of the other 16, cell 1 has 1.
        let quotas = balanced_quotas(&[50, 1, 50, 4, 90], &parents, 40, 3).unwrap();
        assert_eq!((quotas[1], quotas[3], quotas[4]), (1, 4, 20));
        assert_eq!(quotas[0] + quotas[2], 15);
        assert!(quotas[0].abs_diff(quotas[2]) == 1);
        // All rows, and none.
        assert_eq!(balanced_quotas(&[5, 1, 5, 4, 9], &parents, 24, 3).unwrap(), [5, 1, 5, 4, 9]);
        assert_eq!(balanced_quotas(&[5, 1, 5, 4, 9], &parents, u64::MAX, 3).unwrap(), [5, 1, 5, 4, 9]);
        assert_eq!(balanced_quotas(&[5, 1, 5, 4, 9], &parents, 0, 3).unwrap(), [0; 5]);
        // A level may have cells without children.
        assert_eq!(balanced_quotas(&[3, 3], &[vec![2, 2], vec![0, 0, 1, 1]], 4, 3).unwrap(), [2, 2]);
        let problem = balanced_quotas(&[3, 3], &[vec![0]], 4, 3).unwrap_err().to_string();
        assert_eq!(problem, "`parents` of level 0 must hold 2 cells, got 1");
        let problem = balanced_quotas(&[3, 3], &[vec![0, 4], vec![0, 0]], 4, 3).unwrap_err().to_string();
        assert_eq!(problem, "`parents` of level 1 must hold 5 cells, got 2");
        let problem = balanced_quotas(&[3, 3], &[vec![0, u32::MAX]], 4, 3).unwrap_err().to_string();
        assert_eq!(problem, "parents must be below 16777216, got 4294967295 at level 0");
        let problem = balanced_quotas(&[u64::MAX; 2], &[vec![0, 0]], 4, 3).unwrap_err().to_string();
        assert_eq!(problem, "sizes must be at most 18446744073709551615 rows per cell of a level, got more");
        assert_eq!(
            balanced_quotas(&[u64::MAX; 2], &[vec![0, 1]], u64::MAX - 1, 3).unwrap(),
            [u64::MAX / 2; 2]
        );
    }

    #[test]
    fn the_nearest_rows_of_every_cell_are_taken() {
        let labels = [0, 1, 0, 1, 0, 0, 2];
        let sq_dists = [4.0, 0.5, 1.0, -0.0, 1.0, 3.0, 9.0];
        let by = Pick::Nearest { sq_dists: &sq_dists };
        assert_eq!(pick_rows(&labels, &[2, 1, 0], by, None, &executor()).unwrap(), [2, 3, 4]);
        assert_eq!(pick_rows(&labels, &[1, 5, 5], by, None, &executor()).unwrap(), [1, 2, 3, 6]);
        let weights = [1.0, 1.0, 0.0, 0.0, 0.5, 1.0, 0.0];
        assert_eq!(pick_rows(&labels, &[2, 1, 1], by, Some(&weights), &executor()).unwrap(), [1, 4, 5]);
    }

    #[test]
    fn random_rows_are_drawn_without_replacement_and_uniformly() {
        let labels: Vec<u32> = (0..40).map(|row| u32::from(row % 4 == 0)).collect();
        let mut drawn = [0u64; 40];
        for rng_seed in 0..4000 {
            let rows = pick_rows(&labels, &[3, 2], Pick::Random { rng_seed }, None, &executor()).unwrap();
            assert_eq!(rows.len(), 5);
            assert_eq!(rows.iter().filter(|&&row| row % 4 == 0).count(), 2);
            assert!(rows.is_sorted_by(|a, b| a < b));
            for row in rows {
                drawn[row as usize] += 1;
            }
        }
        // 400 and 800 draws per row, with a standard deviation of 19 and 25.
        for (row, drawn) in drawn.into_iter().enumerate() {
            assert!(drawn.abs_diff(if row % 4 == 0 { 800 } else { 400 }) < 130, "{row} {drawn}");
        }
    }

    #[test]
    fn wrong_input_is_an_error() {
        let problem = |labels: &[u32], by: Pick<'_>, weights: Option<&[f64]>| {
            pick_rows(labels, &[1, 1], by, weights, &executor()).unwrap_err().to_string()
        };
        let random = Pick::Random { rng_seed: 0 };
        assert_eq!(problem(&[0, 2], random, None), "labels must be below 2, got 2 at row 1");
        let told = "`weights` must hold 2 values, one for each label, got 1";
        assert_eq!(problem(&[0, 1], random, Some(&[1.0])), told);
        let told = "weights must be finite and at least 0, got -1 at row 1";
        assert_eq!(problem(&[0, 1], random, Some(&[1.0, -1.0])), told);
        let told = "sq_dists must be finite and at least 0, got NaN at row 0";
        assert_eq!(problem(&[0, 1], Pick::Nearest { sq_dists: &[f64::NAN, 0.0] }, None), told);
        let cx = executor();
        cx.interrupt().set();
        let stopped = pick_rows(&[0, 1], &[1, 1], random, None, &cx).unwrap_err();
        assert!(matches!(stopped, Error::Interrupted));
    }
}
