//! Sources made from other sources.
//!
//! There are two kinds of view. [`Transformed`] maps each row; its submodules say how. [`Selected`] selects rows; its
//! submodules say which. The remaining views have the rows of their source as they are.

mod counted;
mod listed;
mod marks;
mod normalized;
mod permuted;
mod projected;
mod range;
mod selected;
mod standardized;
mod stretch;
mod subset;
mod transformed;
mod watched;
mod weighted;

pub(crate) use counted::Counted;
pub use listed::RowIndex;
pub(crate) use listed::RowNumbers;
pub(crate) use marks::RowMarks;
pub use normalized::Normalized;
pub(crate) use normalized::{ZeroRows, normalize_rows};
pub use permuted::Permuted;
pub use projected::Projected;
#[cfg(feature = "python")]
pub(crate) use projected::Projection;
pub use range::RowRange;
pub use selected::Selected;
#[cfg(feature = "python")]
pub(crate) use standardized::Standard;
pub use standardized::Standardized;
pub(crate) use stretch::Stretch;
pub(crate) use subset::{MarkedRows, Subset};
pub use transformed::Transformed;
pub(crate) use watched::Watched;
pub use weighted::Weighted;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod transformed_tests;
