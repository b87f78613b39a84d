//! The journal of a sweep, which restores the labels before it.

use std::sync::{Mutex, PoisonError};

/// Old labels of the rows that one worker of a sweep relabeled, in the order of the rows.
///
/// A change is stored as the distance from the last changed row and the old label plus one, each in groups of
/// 7 bits: 2 or 3 bytes for most rows of up to 16,383 clusters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal {
    bytes: Vec<u8>,
    /// The row after the last changed one.
    next: usize,
}

impl Journal {
    pub(super) fn note(&mut self, row: usize, old: u32) {
        self.put((row - self.next) as u64);
        self.put(u64::from(old.wrapping_add(1)));
        self.next = row + 1;
    }

    #[inline]
    fn put(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// The changed rows and their old labels.
    pub(super) fn changes(&self) -> impl Iterator<Item = (usize, u32)> {
        let mut bytes = self.bytes.iter();
        let mut number = move || {
            let (mut number, mut shift) = (0, 0);
            loop {
                let byte = *bytes.next()?;
                number |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    return Some(number);
                }
                shift += 7;
            }
        };
        let mut next = 0;
        std::iter::from_fn(move || {
            let row = next + number()? as usize;
            next = row + 1;
            Some((row, (number()? as u32).wrapping_sub(1)))
        })
    }
}

/// A worker's buffer and journal. The journal is added to a list when the worker ends, also after an error.
pub(crate) struct Editing<'a> {
    /// `None` if no row had a label, so that there is nothing to note.
    pub(super) all: Option<&'a Mutex<Vec<Journal>>>,
    pub(super) mine: Journal,
    /// The labels of a chunk in 32 bits.
    pub(super) room: Vec<u32>,
}

impl<'a> Editing<'a> {
    pub(crate) fn new(all: Option<&'a Mutex<Vec<Journal>>>) -> Self {
        Self { all, mine: Journal::default(), room: Vec::new() }
    }
}

impl Drop for Editing<'_> {
    fn drop(&mut self) {
        if let Some(all) = self.all.filter(|_| !self.mine.bytes.is_empty()) {
            all.lock().unwrap_or_else(PoisonError::into_inner).push(std::mem::take(&mut self.mine));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::labels::LabelList;

    #[test]
    fn a_change_takes_few_bytes() {
        let all = Mutex::default();
        let mut list = LabelList::of(vec![200; 10_000], 1000);
        let mut editing = Editing::new(Some(&all));
        let labels = list.view_mut();
        labels.open(&mut editing).iter_mut().step_by(2).for_each(|label| *label += 1);
        labels.store(&mut editing);
        drop(editing);
        assert_eq!(all.into_inner().unwrap()[0].bytes.len(), 3 * 5000);
    }
}
