//! Sources made from other sources: with weights, in part, in another order, with transformed rows.

mod counted;
mod normalized;
mod permuted;
mod projected;
mod range;
mod standardized;
mod stretch;
mod subset;
mod watched;
mod weighted;

pub(crate) use counted::Counted;
pub use normalized::Normalized;
pub(crate) use normalized::{ZeroRows, normalize_rows};
pub use permuted::{Permuted, RowIndex};
pub use projected::Projected;
#[cfg(feature = "python")]
pub(crate) use projected::Projection;
pub use range::RowRange;
#[cfg(feature = "python")]
pub(crate) use standardized::Standard;
pub use standardized::Standardized;
pub(crate) use stretch::Stretch;
pub(crate) use subset::Subset;
pub(crate) use watched::Watched;
pub use weighted::Weighted;

/// Implements methods of [`DataSource`](super::DataSource) that call the same method of the field `$field`.
macro_rules! forward {
    ($field:tt: $($method:ident)*) => { $(forward!(@ $method $field);)* };
    (@ dim $field:tt) => {
        fn dim(&self) -> usize {
            self.$field.dim()
        }
    };
    (@ rows $field:tt) => {
        fn rows(&self) -> Option<u64> {
            self.$field.rows()
        }
    };
    (@ access $field:tt) => {
        fn access(&self) -> Access {
            self.$field.access()
        }
    };
    (@ weights $field:tt) => {
        fn weights(&self) -> Option<&[f64]> {
            self.$field.weights()
        }
        fn has_weights(&self) -> bool {
            self.$field.has_weights()
        }
    };
    (@ always_finite $field:tt) => {
        fn always_finite(&self) -> bool {
            self.$field.always_finite()
        }
    };
    (@ most_values $field:tt) => {
        fn most_values(&self) -> Option<usize> {
            self.$field.most_values()
        }
    };
    (@ for_each_block $field:tt) => {
        fn for_each_block(&self, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
            self.$field.for_each_block(tile_rows, f)
        }
    };
    (@ for_each_block_from $field:tt) => {
        fn for_each_block_from(&self, row: u64, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
            self.$field.for_each_block_from(row, tile_rows, f)
        }
    };
    (@ gather $field:tt) => {
        fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
            self.$field.gather(rows, out)
        }
    };
    (@ copy $field:tt) => {
        fn copy(&self, rows: &[u64], out: &mut RowBuf<T>) -> Result<()> {
            self.$field.copy(rows, out)
        }
    };
}
use forward;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod transformed_tests;
