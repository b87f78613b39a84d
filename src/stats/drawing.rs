//! Draws the rows of a lightweight coreset: the rows on which the events of a Poisson process fall.

use super::coreset::{Coreset, SamplingLaw, cut};
use crate::data::DataSource;
use crate::error::{Error, Result};
use crate::kernel::{self, Compute};
use crate::parallel::Executor;
use crate::pass::{Chunk, Unread, sweep};
use crate::rng::{Purpose, Rng};

/// Rows on which events fell.
#[derive(Debug)]
pub(crate) struct Drawn<T> {
    /// The rows, with their odds instead of weights.
    pub(crate) rows: Coreset<T>,
    /// The shares of all rows seen so far.
    pub(crate) all: f64,
    pub(crate) seen: u64,
}

impl<T: Compute> Drawn<T> {
    /// No rows yet, of `dim` columns.
    pub(crate) fn new(dim: usize) -> Self {
        Self { rows: Coreset::new(dim), all: 0.0, seen: 0 }
    }

    /// Chooses the final `m` events (Knuth's algorithm S), of at least as many, and weights their rows.
    pub(crate) fn chosen(&self, law: &SamplingLaw<T>, key: u64, m: usize) -> Coreset<T> {
        let drawn = &self.rows;
        let mut rng = Rng::keyed(key, Purpose::Coreset, u64::MAX);
        let (n, mut wanted) = (drawn.rows.len(), m);
        let mut kept: Vec<usize> = Vec::with_capacity(wanted);
        for i in 0..n {
            if rng.below((n - i) as u64) < wanted as u64 {
                kept.push(i);
                wanted -= 1;
            }
        }
        kept.sort_by_key(|&i| drawn.rows[i]);
        let mut coreset = Coreset::new(drawn.points.cols());
        for i in kept {
            let weight = law.stands_for(drawn.weights[i], self.all, m);
            coreset.push(drawn.points.rows(), i, weight, drawn.rows[i]);
        }
        coreset
    }

    /// Adds rows of a chunk, with their odds.
    fn push(&mut self, chunk: &Chunk<'_, T>, hits: &[(u32, f64)]) {
        for &(i, odds) in hits {
            self.rows.push(chunk.rows, i as usize, odds, chunk.first_row + u64::from(i));
        }
    }
}

/// What has a random stream of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Streams {
    /// Every chunk. The rows must be the same in the same blocks.
    Chunks,
    /// Every row, by its number among all rows. The first row here has this number.
    Rows(u64),
}

/// How the second pass draws rows.
struct Draw<'a, T> {
    law: &'a SamplingLaw<T>,
    /// The key of the random streams.
    key: u64,
    streams: Streams,
    /// The expected number of events.
    events: f64,
    /// Upper limit of the events on the rows of a tile.
    most: usize,
    /// Whether the shares of all rows are summed.
    sum_shares: bool,
}

/// Buffers of a worker: squared distances of the rows of a chunk, and the rows on which events fell, with their odds.
#[derive(Default)]
struct DrawingBuffers {
    sq_dists: Vec<f64>,
    hits: Vec<(u32, f64)>,
}

impl<T: Compute> Draw<'_, T> {
    /// Finds the rows of a chunk on which events fall.
    fn hits(
        &self,
        sq_dists: &[f64],
        first_row: u64,
        weights: Option<&[f64]>,
        part: &mut Drawn<T>,
        hits: &mut Vec<(u32, f64)>,
    ) -> Result<()> {
        let stream = |number| Rng::keyed(self.key, Purpose::Coreset, number);
        let wait = |rng: &mut Rng| -(1.0 - rng.unit()).ln();
        let mut rng = stream(first_row);
        let (mut due, mut passed) = (wait(&mut rng), 0.0);
        hits.clear();
        for (i, &sq_dist) in sq_dists.iter().enumerate() {
            if let Streams::Rows(first) = self.streams {
                rng = stream(first + first_row + i as u64);
                (due, passed) = (wait(&mut rng), 0.0);
            }
            let (odds, weight) = (self.law.odds(sq_dist), weights.map_or(1.0, |w| w[i]));
            let share = self.law.share(weight, sq_dist);
            if self.sum_shares {
                part.all += share;
            }
            passed += share * self.events;
            while due < passed {
                if part.rows.rows.len() + hits.len() > self.most {
                    return Err(other_rows());
                }
                hits.push((i as u32, odds));
                due += wait(&mut rng);
            }
        }
        part.seen += sq_dists.len() as u64;
        Ok(())
    }
}

/// Adds all rows, with their own weights.
pub(crate) fn take_all<T: Compute>(
    rows: &dyn DataSource<T>,
    all: &mut Coreset<T>,
    cx: &Executor,
) -> Result<()> {
    let dim = rows.dim();
    let absorb = |chunk: Chunk<'_, T>, (): (), part: &mut Coreset<T>, (): &mut ()| {
        chunk.check_finite()?;
        for i in 0..chunk.rows.rows() {
            let weight = chunk.weights.map_or(1.0, |w| w[i]);
            part.push(chunk.rows, i, weight, chunk.first_row + i as u64);
        }
        Ok(())
    };
    let merge = |total: &mut Coreset<T>, part: &mut Coreset<T>| {
        total.extend(part);
        part.truncate(0);
    };
    sweep(rows, cx, cut(rows), (), all, (|| Coreset::new(dim), || ()), absorb, merge)
}

/// Draws the rows on which events fall, a little more than `m` on all rows. Adds up the shares of the rows if
/// `sum_shares`.
pub(crate) fn draw_events<T: Compute>(
    rows: &dyn DataSource<T>,
    law: &SamplingLaw<T>,
    (key, streams, m): (u64, Streams, usize),
    sum_shares: bool,
    drawn: &mut Drawn<T>,
    cx: &Executor,
) -> Result<()> {
    let (dim, m) = (rows.dim(), m as f64);
    // Six standard deviations more than requested.
    let events = m + 6.0 * m.sqrt() + 20.0;
    let most = (2.0 * events) as usize;
    let point = law.point();
    let center: Vec<f64> = law.center.iter().map(|c| c.to_f64()).collect();
    let draw = Draw { law, key, streams, events, most, sum_shares };
    let absorb = |mut chunk: Unread<'_, T>, (): (), part: &mut Drawn<T>, buffers: &mut DrawingBuffers| {
        let DrawingBuffers { sq_dists, hits } = buffers;
        sq_dists.clear();
        if let Some(bytes) = chunk.bytes()? {
            sq_dists.resize(bytes.rows(), 0.0);
            kernel::byte_sq_dists(bytes, &center, sq_dists);
            draw.hits(sq_dists, chunk.first_row(), chunk.weights(), part, hits)?;
            if !hits.is_empty() {
                let picked: Vec<u32> = hits.iter().map(|&(i, _)| i).collect();
                let chunk = chunk.read_of(&picked)?;
                part.push(&chunk, hits);
            }
            return Ok(());
        }
        let chunk = chunk.read()?;
        sq_dists.extend((0..chunk.rows.rows()).map(|i| point.sq_dist(chunk.rows, i)));
        if sq_dists.iter().any(|sq_dist| !sq_dist.is_finite()) {
            return Err(chunk.not_finite());
        }
        draw.hits(sq_dists, chunk.first_row, chunk.weights, part, hits)?;
        part.push(&chunk, hits);
        Ok(())
    };
    let merge = |total: &mut Drawn<T>, part: &mut Drawn<T>| {
        total.rows.extend(&part.rows);
        part.rows.truncate(0);
        total.all += std::mem::take(&mut part.all);
        total.seen += std::mem::take(&mut part.seen);
    };
    sweep(rows, cx, cut(rows), (), drawn, (|| Drawn::new(dim), DrawingBuffers::default), absorb, merge)
}

/// The error for a pass that returned other rows than the previous pass.
pub(crate) fn other_rows() -> Error {
    Error::Source("rows or weights changed between two passes: every pass must give the same rows".into())
}
