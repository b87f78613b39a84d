//! A stretch of consecutive rows, for passes that are made in steps.

use std::ops::ControlFlow;

use crate::data::source::forward;
use crate::data::{Access, Block, DataSource, Origin, Visit, weights_of_rows};
use crate::error::Result;
use crate::float::Float;
use crate::rows::RowBuf;

/// Up to `most` rows of a source from row `first` on. The rows keep their numbers.
///
/// The next stretch begins where this one ends without reading any row again: see [`DataSource::for_each_block_from`].
pub(crate) struct Stretch<'a, T: Float> {
    source: &'a dyn DataSource<T>,
    first: u64,
    most: usize,
}

impl<'a, T: Float> Stretch<'a, T> {
    /// `most` must be a multiple of the number of rows per tile.
    pub(crate) fn new(source: &'a dyn DataSource<T>, first: u64, most: usize) -> Self {
        Self { source, first, most }
    }
}

impl<T: Float> DataSource<T> for Stretch<'_, T> {
    forward!(|this| this.source => dim always_finite origin most_values gather copy);

    fn rows(&self) -> Option<u64> {
        self.source.rows().map(|n| n.saturating_sub(self.first).min(self.most as u64))
    }
    fn first_row(&self) -> u64 {
        self.first
    }
    fn access(&self) -> Access {
        Access::Once
    }
    fn for_each_block(&self, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        let mut left = self.most;
        self.source.for_each_block_from(self.first, tile_rows, &mut |block| {
            let len = block.len.min(left);
            let weights = weights_of_rows(&block, 0..len)?;
            left -= len;
            let next = f(Block { len, weights, ..block })?;
            Ok(if left == 0 { ControlFlow::Break(()) } else { next })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Weighted;
    use super::*;
    use crate::data::{Chunk, Chunks, Dense, RawRows, read};

    #[test]
    fn stretches_are_a_pass() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let dense = Dense::new(&values, 1).unwrap();
        let weighted = Weighted::new::<f64>(dense, values.clone()).unwrap();
        let stream = Chunks::replay(1, || values.chunks(7).map(|part| Ok(Chunk::from(part.to_vec()))));
        let once = Chunks::once(1, values.chunks(13).map(|part| Ok(Chunk::from(part.to_vec()))));
        let sources: [&dyn DataSource<f64>; 4] = [&dense, &weighted, &stream, &once];
        for source in sources {
            let (mut found, mut first, mut scratch) = (Vec::new(), 0, Vec::new());
            loop {
                let before = found.len();
                read(&Stretch::new(source, first, 24), 8, &mut |block| {
                    assert_eq!(block.first_row, found.len() as u64);
                    let tile = block.rows.tile(0..block.len, &mut scratch)?;
                    tile.iter().for_each(|row| found.extend_from_slice(row));
                    if let Some(weights) = block.weights {
                        assert_eq!(weights, &found[found.len() - block.len..]);
                    }
                    Ok(ControlFlow::Continue(()))
                })
                .unwrap();
                first = found.len() as u64;
                if found.len() - before < 24 {
                    break;
                }
            }
            assert_eq!(found, values);
        }
    }

    #[test]
    fn bytes_stay_bytes() {
        let values: Vec<u8> = (0..200).collect();
        let rows = RawRows::new(&values, 2).unwrap();
        for first in [0, 24] {
            let mut seen = 0;
            read(&Stretch::<f32>::new(&rows, first, 16), 8, &mut |block| {
                let bytes = block.rows.bytes(1..3)?.expect("bytes side by side");
                assert_eq!(bytes.row(1)[0], 2 * (block.first_row as u8 + 2));
                seen += block.len;
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
            assert_eq!(seen, 16);
        }
    }
}
