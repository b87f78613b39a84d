//! Computes a fixed number of values for every row in one pass.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Chunk, Cut, Wide, sweep};
use crate::data::DataSource;
use crate::error::{Error, Result};
use crate::kernel::Compute;
use crate::matrix::make_room;
use crate::parallel::Executor;

/// Computes `width` values of type `V` and `width` of type `W` for every row, in one pass. Use `()` for a
/// type that is not needed; it takes no memory.
///
/// If the source does not know its number of rows, the results grow as blocks arrive. A separate counting
/// pass would use up a stream that allows only one pass.
pub(crate) fn for_all_rows<T: Compute, V: PerValue, W: PerValue, S>(
    what: &str,
    data: &dyn DataSource<T>,
    cx: &Executor,
    (cut, width): (impl Into<Cut>, usize),
    scratch: impl Fn() -> S + Sync,
    fill: impl Fn(&Chunk<'_, T>, &mut [V], &mut [W], &mut S) -> Result<()> + Sync,
) -> Result<(Vec<V>, Vec<W>)> {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    if let Some(n) = data.rows() {
        make_room(&mut first, what, n, width)?;
        make_room(&mut second, what, n, width)?;
        first.resize(n as usize * width, V::default());
        second.resize(n as usize * width, W::default());
        let state = (Wide { values: &mut first[..], width }, Wide { values: &mut second[..], width });
        let absorb =
            |chunk: Chunk<'_, T>,
             (first, second): (Wide<'_, V>, Wide<'_, W>),
             (): &mut (),
             scratch: &mut S| fill(&chunk, first.values, second.values, scratch);
        sweep(data, cx, cut, state, &mut (), (|| (), scratch), absorb, |(), ()| ())?;
        return Ok((first, second));
    }
    let full = AtomicBool::new(false);
    let no_room = |rows: usize| Error::Memory(format!("{what} of more than {rows} rows"));
    let absorb = |chunk: Chunk<'_, T>, (): (), (first, second): &mut (Vec<V>, Vec<W>), scratch: &mut S| {
        if full.load(Ordering::Relaxed) {
            return Err(no_room(chunk.first_row as usize));
        }
        let (start, end) = (first.len(), first.len() + chunk.rows.rows() * width);
        make_room(first, what, chunk.rows.rows() as u64, width)?;
        make_room(second, what, chunk.rows.rows() as u64, width)?;
        first.resize(end, V::default());
        second.resize(end, W::default());
        fill(&chunk, &mut first[start..], &mut second[start..], scratch)
    };
    // `sweep` merges in row order, so appending keeps the rows in order.
    let merge = |all: &mut (Vec<V>, Vec<W>), part: &mut (Vec<V>, Vec<W>)| {
        let room = all.0.try_reserve(part.0.len()).is_ok() && all.1.try_reserve(part.1.len()).is_ok();
        if room && !full.load(Ordering::Relaxed) {
            all.0.append(&mut part.0);
            all.1.append(&mut part.1);
        } else {
            full.store(true, Ordering::Relaxed);
            part.0.clear();
            part.1.clear();
        }
    };
    let mut all = (first, second);
    sweep(data, cx, cut, (), &mut all, (Default::default, scratch), absorb, merge)?;
    if full.load(Ordering::Relaxed) { Err(no_room(all.0.len() / width)) } else { Ok(all) }
}

/// A value that a pass can compute for a row.
pub(crate) trait PerValue: Copy + Default + Send {}
impl<V: Copy + Default + Send> PerValue for V {}
