//! The first centers, and checks that seedings share.

use crate::data::{Access, DataSource, check_finite, count_rows};
use crate::error::{Error, Result};
use crate::kernel::Compute;
use crate::parallel::Executor;

/// The first centers and their origin.
///
/// ```
/// use shoal::{Executor, Seeding};
/// let (rows, cx) = ([[0.0f64], [1.0], [8.0], [9.0]], Executor::new(Some(1))?);
/// let seeds = Seeding::Random.choose(&rows, 2, 7, 0, &cx)?;
/// assert_eq!((seeds.centers.len(), seeds.rows.len(), &seeds.method[..]), (2, 2, "random"));
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Seeds<T> {
    /// `k` rows, one after the other.
    pub centers: Vec<T>,
    /// The row numbers of the centers; empty if centers are not rows (given centers, means).
    pub rows: Vec<u64>,
    /// The method, in words. For `"auto"`, the method that was chosen.
    pub method: String,
    /// Number of computed distances, including distances between centers.
    pub n_distances: u64,
}

/// If a drawn row holds a value that is not finite, returns the error for the first such row of the source.
pub(super) fn finite_or_first_bad<T: Compute>(
    drawn: &[T],
    data: &dyn DataSource<T>,
    cx: &Executor,
) -> Result<()> {
    if drawn.iter().all(|x| x.finite()) { Ok(()) } else { check_finite(data, cx) }
}

/// The number of rows, after checking that there are at least `k`. A stream is counted in a pass of its own.
pub(super) fn known<T: Compute>(data: &dyn DataSource<T>, k: usize) -> Result<u64> {
    if data.access() < Access::Replay {
        return Err(Error::Source(
            "seeding needs a source that can be read again: pass the first centers instead".into(),
        ));
    }
    let n = count_rows(data)?;
    enough_rows(n, k)?;
    Ok(n)
}

/// Returns an error if there are more clusters than rows.
pub(crate) fn enough_rows(n: u64, k: usize) -> Result<()> {
    if n < k as u64 {
        return Err(Error::param("n_clusters", format!("at most the number of rows, {n}"), k));
    }
    Ok(())
}
