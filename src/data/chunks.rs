//! Streams of rows: iterators of chunks as sources.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use super::pass::{OpenPass, Piece, StreamPass};
use super::weights::{check_weights, no_weight};
use super::{Access, DataSource, Tile, TileReader, Visit, Wanted};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::matrix::MatRef;
use crate::rows::RowBuf;

/// Consecutive rows and their weights.
///
/// ```
/// use shoal::data::Chunk;
/// let chunk = Chunk::from(vec![1.0f32, 2.0]).weighted(vec![0.5]);
/// assert_eq!(chunk.weights.unwrap(), [0.5]);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chunk<T> {
    /// The values of a whole number of rows.
    pub values: Vec<T>,
    /// One weight per row. Either all chunks of a source have weights or none.
    pub weights: Option<Vec<f64>>,
}

impl<T> Chunk<T> {
    /// The same rows with the given weights.
    ///
    /// ```
    /// use shoal::data::Chunk;
    /// assert!(Chunk::from(vec![1.0f64]).weighted(vec![2.0]).weights.is_some());
    /// ```
    #[must_use]
    pub fn weighted(mut self, weights: Vec<f64>) -> Self {
        self.weights = Some(weights);
        self
    }
}

impl<T> From<Vec<T>> for Chunk<T> {
    fn from(values: Vec<T>) -> Self {
        Self { values, weights: None }
    }
}

type Iter<'a, T> = Box<dyn Iterator<Item = Result<Chunk<T>>> + Send + 'a>;

/// An iterator that checks the lengths and weights of chunks.
struct Checked<'a, T> {
    chunks: Iter<'a, T>,
    dim: usize,
    /// Whether the chunks have weights; known after the first chunk.
    weighted: Option<bool>,
    seen: u64,
    heavy: bool,
}

/// Rows of `dim` columns.
struct ChunkRows<T> {
    chunk: Chunk<T>,
    dim: usize,
    len: usize,
}

enum Feed<'a, T> {
    Once(Mutex<Option<Iter<'a, T>>>),
    Replay(Box<dyn Fn() -> Iter<'a, T> + Sync + 'a>),
}

/// A stream of chunks of any lengths as a source: an iterator, which can be read once, or a function that
/// returns a new iterator for each pass.
///
/// ```
/// use shoal::data::{Access, Chunks, DataSource};
/// let stream = Chunks::once(2, (0..3).map(|i| Ok(vec![i as f32; 4].into())));
/// assert_eq!((stream.access(), stream.rows()), (Access::Once, None));
/// ```
pub struct Chunks<'a, T> {
    dim: usize,
    feed: Feed<'a, T>,
    open: OpenPass<Checked<'a, T>, ChunkRows<T>>,
}

impl<T> fmt::Debug for Chunks<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunks").field("dim", &self.dim).finish_non_exhaustive()
    }
}

impl<'a, T: Float> Chunks<'a, T> {
    /// Rows of `dim` columns that can be read once. After a pass that ends early, the remaining rows are
    /// lost, unless the pass was begun with [`DataSource::for_each_block_from`].
    ///
    /// ```
    /// use shoal::data::{Chunk, Chunks, DataSource};
    /// let stream = Chunks::once(1, [Ok(Chunk::from(vec![1.0f64, 2.0]))].into_iter());
    /// assert_eq!(stream.dim(), 1);
    /// ```
    pub fn once(dim: usize, chunks: impl Iterator<Item = Result<Chunk<T>>> + Send + 'a) -> Self {
        Self { dim, feed: Feed::Once(Mutex::new(Some(Box::new(chunks)))), open: OpenPass::default() }
    }

    /// Rows of `dim` columns that `chunks` returns for every pass. Each pass must give the same rows.
    ///
    /// ```
    /// use shoal::data::{Access, Chunks, DataSource};
    /// let stream = Chunks::replay(2, || (0..3).map(|i| Ok(vec![i as f32; 4].into())));
    /// assert_eq!(stream.access(), Access::Replay);
    /// ```
    pub fn replay<I>(dim: usize, chunks: impl Fn() -> I + Sync + 'a) -> Self
    where
        I: Iterator<Item = Result<Chunk<T>>> + Send + 'a,
    {
        Self { dim, feed: Feed::Replay(Box::new(move || Box::new(chunks()))), open: OpenPass::default() }
    }

    /// A new pass, before its first row.
    fn pass(&self) -> Result<StreamPass<Checked<'a, T>, ChunkRows<T>>> {
        if self.dim == 0 {
            return Err(Error::Empty("rows need at least 1 column, got 0".into()));
        }
        let chunks = match &self.feed {
            Feed::Replay(make) => make(),
            Feed::Once(chunks) => {
                chunks.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(|| {
                    Error::Source(
                        "this stream can be read only once, and was already read: pass a new stream".into(),
                    )
                })?
            }
        };
        Ok(StreamPass::new(Checked { chunks, dim: self.dim, weighted: None, seen: 0, heavy: false }))
    }
}

impl<T: Float> Checked<'_, T> {
    /// The number of rows of a chunk.
    fn rows_of(&mut self, chunk: &Chunk<T>) -> Result<usize> {
        let (values, dim) = (chunk.values.len(), self.dim);
        let weighted = *self.weighted.get_or_insert(chunk.weights.is_some());
        if !values.is_multiple_of(dim) {
            return Err(Error::Shape(format!(
                "a chunk of {values} values does not divide into rows of {dim} columns"
            )));
        }
        let rows = values / dim;
        match &chunk.weights {
            Some(weights) if weights.len() != rows => {
                Err(Error::Shape(format!("a chunk has {} weights for {rows} rows", weights.len())))
            }
            weights if weights.is_some() != weighted => {
                Err(Error::Shape("some chunks have weights and others have none".into()))
            }
            _ => Ok(rows),
        }
    }
}

impl<T: Float> Iterator for Checked<'_, T> {
    type Item = Result<ChunkRows<T>>;

    fn next(&mut self) -> Option<Result<ChunkRows<T>>> {
        loop {
            let chunk = match self.chunks.next() {
                Some(Ok(chunk)) if chunk.values.is_empty() => continue,
                Some(Ok(chunk)) => chunk,
                Some(Err(error)) => return Some(Err(error)),
                None if self.weighted == Some(true) && !self.heavy => return Some(Err(no_weight())),
                None => return None,
            };
            let rows = self.rows_of(&chunk).and_then(|len| {
                if let Some(weights) = &chunk.weights {
                    check_weights(weights, self.seen)?;
                    self.heavy |= weights.iter().any(|&w| w > 0.0);
                }
                self.seen += len as u64;
                Ok(ChunkRows { chunk, dim: self.dim, len })
            });
            return Some(rows);
        }
    }
}

impl<T: Float> TileReader<T> for ChunkRows<T> {
    fn read(&self, wanted: Wanted<'_>, _buffer: &mut RowBuf<T>) -> Result<Option<Tile<'_, T>>> {
        let all = MatRef::new(&self.chunk.values, self.dim);
        Ok(Some(Tile::InPlace(all.slice(wanted.rows.start, wanted.rows.end).into())))
    }
}

impl<T: Float> Piece<T> for ChunkRows<T> {
    fn reader(&self) -> &dyn TileReader<T> {
        self
    }
    fn len(&self) -> usize {
        self.len
    }
    fn weights(&self) -> Option<&[f64]> {
        self.chunk.weights.as_deref()
    }
}

impl<T: Float> DataSource<T> for Chunks<'_, T> {
    fn dim(&self) -> usize {
        self.dim
    }
    fn rows(&self) -> Option<u64> {
        None
    }
    fn access(&self) -> Access {
        match self.feed {
            Feed::Once(_) => Access::Once,
            Feed::Replay(_) => Access::Replay,
        }
    }
    fn for_each_block(&self, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        self.pass()?.read(self.dim, tile_rows, f)
    }
    fn for_each_block_from(&self, row: u64, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        self.open.read_from(row, || self.pass(), (self.dim, tile_rows), f)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::super::{Block, take};
    use super::*;

    fn stream() -> impl Iterator<Item = Result<Chunk<f32>>> {
        (0..100u16).map(|i| Ok(vec![f32::from(i); usize::from(i % 5) * 2].into()))
    }

    fn seen(source: &dyn DataSource<f32>) -> Result<Vec<f32>> {
        let mut seen = Vec::new();
        source.for_each_block(3, &mut |block| {
            let mut scratch = Vec::new();
            block.rows.tile(0..block.len, &mut scratch)?.iter().for_each(|row| seen.push(row[1]));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(seen)
    }

    #[test]
    fn a_stream_is_read_once_and_a_function_again_and_again() {
        let expected: Vec<f32> = (0..100u16).flat_map(|i| vec![f32::from(i); usize::from(i % 5)]).collect();
        let (once, replay) = (Chunks::once(2, stream()), Chunks::replay(2, stream));
        assert_eq!(seen(&once).unwrap(), expected);
        assert_eq!(
            seen(&once).unwrap_err().to_string(),
            "this stream can be read only once, and was already read: pass a new stream"
        );
        assert_eq!((seen(&replay).unwrap(), seen(&replay).unwrap()), (expected.clone(), expected.clone()));
        assert_eq!(take(&replay, &[150, 0, 7]).unwrap(), [150, 150, 0, 0, 7, 7].map(|i: usize| expected[i]));
        assert_eq!(take(&replay, &[200]).unwrap_err().to_string(), "row 200 does not exist");
    }

    #[test]
    fn chunks_that_do_not_fit_are_refused() {
        let text = |chunks: Vec<Chunk<f32>>| {
            seen(&Chunks::once(2, chunks.into_iter().map(Ok))).unwrap_err().to_string()
        };
        let two = || Chunk::from(vec![0.0; 4]);
        assert_eq!(
            text(vec![vec![0.0; 3].into()]),
            "a chunk of 3 values does not divide into rows of 2 columns"
        );
        assert_eq!(text(vec![two().weighted(vec![1.0])]), "a chunk has 1 weights for 2 rows");
        assert_eq!(
            text(vec![two(), two().weighted(vec![1.0, 2.0])]),
            "some chunks have weights and others have none"
        );
    }

    #[test]
    fn weights_that_are_all_0_are_refused() {
        let chunks = |last: f32| {
            let weights = [0.0, f64::from(last)];
            Chunks::replay(1, move || {
                weights.into_iter().map(|w| Ok(Chunk::from(vec![1.0f32]).weighted(vec![w])))
            })
        };
        let pass =
            |source: &dyn DataSource<f32>| source.for_each_block(1, &mut |_| Ok(ControlFlow::Continue(())));
        assert!(pass(&chunks(1.0)).is_ok());
        let refused = pass(&chunks(0.0)).unwrap_err().to_string();
        assert_eq!(refused, "weights must be above 0 for at least one row, got zero for every row");
    }

    #[test]
    fn its_errors_are_passed_on() {
        let broken = Chunks::<f32>::once(1, [Err(Error::Empty("broken".into()))].into_iter());
        assert_eq!(seen(&broken).unwrap_err().to_string(), "broken");
    }

    #[test]
    fn a_pass_that_was_left_goes_on_where_it_is_told_to() {
        // Pieces of 0 to 4 rows, 200 rows in all.
        let whole = seen(&Chunks::replay(2, stream)).unwrap();
        let once = Chunks::once(2, stream());
        let replay = Chunks::replay(2, stream);
        for source in [&once, &replay] {
            let (mut at, mut found) = (0, Vec::new());
            // A few rows of every block are taken, not always all of them.
            for step in 1.. {
                let mut taken = 0;
                source
                    .for_each_block_from(at, 3, &mut |block| {
                        assert_eq!(block.first_row, at);
                        taken = block.len.min(1 + step % 3);
                        let mut scratch = Vec::new();
                        block.rows.tile(0..taken, &mut scratch)?.iter().for_each(|row| found.push(row[1]));
                        Ok(ControlFlow::Break(()))
                    })
                    .unwrap();
                if taken == 0 {
                    break;
                }
                at += taken as u64;
            }
            assert_eq!(found, whole);
        }
        // A stream that can be read once has lost its earlier rows; a replayed one has not.
        let mut first = None;
        let mut look = |block: Block<'_, f32>| {
            first = Some(block.rows.tile(0..1, &mut Vec::new())?.row(0)[1]);
            Ok(ControlFlow::Break(()))
        };
        assert!(once.for_each_block_from(1, 3, &mut look).is_err());
        replay.for_each_block_from(1, 3, &mut look).unwrap();
        assert_eq!(first, Some(whole[1]));
    }
}
