//! What a pass over partitions is. A kind of pass says what it sums and what follows from the total.

use std::fmt::Debug;
use std::sync::Arc;

use super::extent::{Before, Extent};
use super::message::Message;
use super::partial::{About, Partial, Seen};
use super::place::{Place, Starts};
use super::sums::AnySums;
use crate::data::{AnySource, DataSource, Normalized, Watched, ZeroRows};
use crate::error::{Error, Result};
use crate::fit::{Metric, Step};
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::persist::kept::Values;
use crate::rng::mix;

/// What errors call bytes that are read.
pub(super) const NAME: &str = "the pass";

/// Facts about a pass.
pub(crate) struct PassFacts<'a> {
    pub(crate) metric: Metric,
    /// The columns of the rows, and whether they are computed as `f64`; `None` before the first rows.
    pub(crate) shape: Option<(usize, bool)>,
    pub(crate) before: &'a Before,
    /// The centers, once they are known.
    #[cfg_attr(not(feature = "python"), expect(dead_code, reason = "for Python"))]
    pub(crate) centers: Option<&'a Values>,
    /// Whether there is a result: centers or a coreset.
    #[cfg_attr(not(any(test, feature = "python")), expect(dead_code, reason = "for Python"))]
    pub(crate) is_done: bool,
    /// Approximate upper limit of the bytes of one partial result.
    #[cfg_attr(not(feature = "python"), expect(dead_code, reason = "for Python"))]
    pub(crate) result_bytes: usize,
}

/// The number of rows of a partition, and their sums.
pub(super) type Summed = (u64, AnySums);

/// A pass over partitions: immutable, and small beside a partition.
pub(crate) trait Pass: Message + Clone + Debug + Send + Sync + 'static {
    fn facts(&self) -> PassFacts<'_>;

    fn before_mut(&mut self) -> &mut Before;

    /// Identifies the pass in its partial results.
    fn digest(&self) -> u64;

    /// Sums rows as the metric sees them.
    fn sum<T: Compute>(&self, rows: &dyn DataSource<T>, place: Place, cx: &Executor) -> Result<Summed>;

    /// The sums of no rows.
    fn no_sums(&self) -> AnySums;

    /// The pass that follows, and the figures of this one. `now` is what the next pass knows of this one, and `starts` are
    /// the first rows of the partitions.
    fn next(&self, now: Before, starts: Starts, total: AnySums) -> Result<(Self, Step)>;

    fn absorb(&self, rows: AnySource<'_>, place: Place, cx: &Executor) -> Result<Partial> {
        let zeros = Arc::default();
        match rows {
            AnySource::F32(rows) => absorbed(self, rows, place, zeros, |rows| self.sum(rows, place, cx)),
            AnySource::F64(rows) => absorbed(self, rows, place, zeros, |rows| self.sum(rows, place, cx)),
        }
    }

    fn absorb_nothing(&self, place: Place) -> Partial {
        Partial::empty(self.digest(), place, self.no_sums())
    }

    fn commit(&self, total: &Partial) -> Result<(Self, Step)> {
        let before = self.facts().before;
        let (extent, starts, sums) = total.clone().whole(self.digest(), before.extent.as_ref())?;
        self.next(before.and(extent), starts, sums)
    }

    /// The same pass, which expects the rows of `extent`.
    #[cfg_attr(not(feature = "python"), expect(dead_code, reason = "for Python"))]
    fn after(mut self, extent: Option<&Extent>) -> Self {
        self.before_mut().extent = extent.cloned();
        self
    }
}

/// The partial result of what `sum` finds in rows as the metric sees them. `zeros` are the rows of zeros that are known.
pub(super) fn absorbed<T: Compute>(
    pass: &impl Pass,
    rows: &dyn DataSource<T>,
    place: Place,
    zeros: Arc<ZeroRows>,
    sum: impl FnOnce(&dyn DataSource<T>) -> Result<Summed>,
) -> Result<Partial> {
    place.check()?;
    let PassFacts { metric, shape, .. } = pass.facts();
    if let Some((dim, wide)) = shape {
        check_fit(rows, dim, wide)?;
    }
    let watched = Watched::new(rows);
    let ((n, sums), zeros) = if metric == Metric::Euclidean {
        (sum(&watched)?, 0)
    } else {
        let scaled = Normalized::by(&watched, zeros);
        (sum(&scaled)?, scaled.zero_rows())
    };
    let seen = Seen { zeros, weighted: watched.weighted(), sparse: rows.most_values().is_some() };
    Partial::new(pass.digest(), place, n, About::new::<T>(rows.dim(), place, seen), sums)
}

/// Returns an error for rows of another width or compute type than the centers.
pub(super) fn check_fit<T: Compute>(data: &dyn DataSource<T>, dim: usize, wide: bool) -> Result<()> {
    if data.dim() != dim {
        return Err(Error::Shape(format!("`rows` have {} columns, but the centers have {dim}", data.dim())));
    }
    if wide != T::WIDE {
        let name = if wide { "f64" } else { "f32" };
        return Err(Error::Shape(format!("`rows` are computed as {}, but the centers are {name}", T::NAME)));
    }
    Ok(())
}

/// A number that differs, with near certainty, for passes that differ.
pub(super) fn digest(kind: u64, numbers: &[u64], values: &Values) -> u64 {
    let begun = numbers.iter().fold(mix(kind), |hash, &number| mix(hash ^ number));
    match values {
        Values::F32(values) => values.iter().fold(begun, |hash, v| mix(hash ^ u64::from(v.to_bits()))),
        Values::F64(values) => values.iter().fold(mix(begun), |hash, v| mix(hash ^ v.to_bits())),
    }
}

/// The public methods that all passes have. Their documentation is the same, except that of `commit`.
macro_rules! public_pass {
    ($pass:ident: $(#[$commit:meta])+ commit) => {
        impl $pass {
            /// Sums the rows of a partition, in one pass.
            ///
            /// # Errors
            /// [`Error::Shape`] for rows of another width or compute type than the centers, or than those of the pass
            /// before. [`Error::Source`] if the result is complete. Those of the source, [`Error::NotFinite`],
            /// [`Error::Interrupted`].
            pub fn absorb<S: Source + ?Sized>(&self, rows: &S, place: Place, cx: &Executor) -> Result<Partial> {
                Pass::absorb(self, rows.any(), place, cx)
            }

            /// The partial result of a partition without rows, which no source can be.
            pub fn absorb_nothing(&self, place: Place) -> Partial {
                Pass::absorb_nothing(self, place)
            }

            $(#[$commit])+
            pub fn commit(&self, total: &Partial) -> Result<(Self, Step)> {
                Pass::commit(self, total)
            }

            /// The pass as bytes, in the safetensors format.
            ///
            /// # Errors
            /// None for passes of this crate.
            pub fn to_bytes(&self) -> Result<Vec<u8>> {
                Message::to_bytes(self)
            }

            /// Reads what `to_bytes` wrote. Runs no code, and checks everything.
            ///
            /// # Errors
            /// [`Error::Format`] for bytes that are damaged, truncated or of another kind.
            pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
                Message::from_bytes(bytes)
            }
        }
    };
}
pub(super) use public_pass;
