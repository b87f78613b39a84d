//! Finds the first value that is NaN or infinite.

use std::ops::ControlFlow;

use super::{Converted, DataSource, read, row_values};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::parallel::Executor;

/// Values per tile: enough to make scheduling cheap, few enough that a converted tile stays in cache.
const TILE_VALUES: usize = 1 << 15;

/// Checks that all values of a source are finite, in one pass; without a pass where integers are stored.
///
/// # Errors
/// [`Error::NotFinite`] with the first NaN or infinity in row order, for any number of threads; those of reading;
/// [`Error::Interrupted`].
///
/// ```
/// use shoal::{Executor, data::{self, Dense}};
/// let rows = Dense::new(&[1.0f32, f32::NAN], 1).unwrap();
/// let refused = data::check_finite(&rows, &Executor::new(Some(1)).unwrap()).unwrap_err();
/// assert!(refused.to_string().starts_with("rows must be finite, got NaN at row 1, column 0"));
/// ```
pub fn check_finite<T: Float>(source: &dyn DataSource<T>, executor: &Executor) -> Result<()> {
    if source.always_finite() {
        return Ok(());
    }
    let tile_rows = (TILE_VALUES / row_values(source)).max(1);
    read(source, tile_rows, &mut |block| {
        executor.for_each((0..block.len).step_by(tile_rows), Converted::default, |start, scratch| {
            let tile = scratch.read(block.rows, start..block.len.min(start + tile_rows), None)?;
            match tile.first_not_finite() {
                None => Ok(()),
                Some((i, column, value)) => {
                    Err(Error::not_finite("rows", value, block.first_row + (start + i) as u64, column))
                }
            }
        })?;
        Ok(ControlFlow::Continue(()))
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Dense, RawRows};
    use super::*;

    #[test]
    fn the_first_bad_value_in_row_order_is_named() {
        let mut values = vec![0.5f64; 3 * 50_000];
        values[3 * 40_000 + 1] = f64::NEG_INFINITY;
        values[3 * 49_999] = f64::NAN;
        for threads in 1..4 {
            let cx = Executor::new(Some(threads)).unwrap();
            let refused = check_finite(&Dense::new(&values, 3).unwrap(), &cx).unwrap_err();
            assert_eq!(refused.to_string(), "rows must be finite, got -inf at row 40000, column 1");
        }
    }

    #[test]
    fn finite_rows_and_integers_pass() {
        let cx = Executor::new(Some(2)).unwrap();
        check_finite(&Dense::new(&[1.0f32, f32::MAX], 2).unwrap(), &cx).unwrap();
        check_finite::<f32>(&RawRows::new(&[u64::MAX, 0], 1).unwrap(), &cx).unwrap();
    }

    #[test]
    fn what_overflows_the_compute_type_is_refused() {
        let cx = Executor::new(Some(1)).unwrap();
        let rows = [1e300f64];
        check_finite::<f64>(&RawRows::new(&rows, 1).unwrap(), &cx).unwrap();
        assert!(check_finite::<f32>(&RawRows::new(&rows, 1).unwrap(), &cx).is_err());
    }
}
