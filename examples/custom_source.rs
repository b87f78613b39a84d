//! A custom source: rows that are computed when they are read, and never held in memory as a whole.
//!
//! A source yields blocks. A block has a reader, which many threads call for one tile at a time. Every block
//! but the last has a whole number of tiles, and the same rows must have the same values in every pass. A
//! reader may fail: the error ends the pass. This source can compute any row, so it has random access and
//! implements `gather`; a source that is only read in passes has a default for it.
//!
//! ```text
//! cargo run --release --example custom_source
//! ```

use std::ops::{ControlFlow, Range};

use shoal::data::{Access, AnySource, Block, DataSource, Source, TileReader};
use shoal::{Error, KMeans, MatRef, Result};

/// Points on three circles of radius 1, with centers at 0, 20 and 40 on the first axis.
struct Rings {
    rows: u64,
}

impl Rings {
    fn row(index: u64) -> [f32; 2] {
        let angle = index as f32 * 0.618;
        let middle = (index % 3) as f32 * 20.0;
        [middle + angle.cos(), angle.sin()]
    }

    fn fill(rows: impl Iterator<Item = u64>, out: &mut Vec<f32>) {
        rows.for_each(|index| out.extend(Self::row(index)));
    }
}

impl TileReader<f32> for Rings {
    fn tile<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<f32>) -> Result<MatRef<'s, f32>> {
        scratch.clear();
        Self::fill(rows.start as u64..rows.end as u64, scratch);
        Ok(MatRef::new(scratch, 2))
    }
}

impl DataSource<f32> for Rings {
    fn dim(&self) -> usize {
        2
    }

    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn access(&self) -> Access {
        Access::Random
    }

    // Tiles are computed on demand: all rows can be one block.
    fn for_each_block(
        &self,
        _tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, f32>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        f(Block { first_row: 0, len: self.rows as usize, rows: self, weights: None }).map(|_| ())
    }

    fn gather(&self, rows: &[u64], out: &mut Vec<f32>) -> Result<()> {
        if let Some(beyond) = rows.iter().find(|&&row| row >= self.rows) {
            return Err(Error::Shape(format!("row {beyond} is out of range")));
        }
        Self::fill(rows.iter().copied(), out);
        Ok(())
    }
}

impl Source for Rings {
    fn any(&self) -> AnySource<'_> {
        AnySource::F32(self)
    }
}

fn main() -> Result<()> {
    let model = KMeans::params(3).rng_seed(2).fit(&Rings { rows: 300_000 })?;
    let mut middles: Vec<f32> = model.centers::<f32>().chunks(2).map(|center| center[0]).collect();
    middles.sort_by(f32::total_cmp);
    println!("rings around {middles:.3?}, {} sweeps", model.n_iter());
    for (middle, expected) in middles.iter().zip([0.0, 20.0, 40.0]) {
        assert!((middle - expected).abs() < 0.01);
    }
    Ok(())
}
