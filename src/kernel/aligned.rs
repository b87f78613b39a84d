//! This module knows how to keep values at the start of a cache line.

use crate::float::Float;

/// Bytes of a cache line, and of the widest vector.
pub(super) const LINE: usize = 64;

/// A growable buffer whose first value lies at the start of a cache line, so that no vector load straddles two.
#[derive(Debug)]
pub(super) struct Aligned<T> {
    buffer: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Float> Default for Aligned<T> {
    fn default() -> Self {
        Self { buffer: Vec::new(), start: 0, len: 0 }
    }
}

impl<T: Float> Aligned<T> {
    /// `len` values, all `value`.
    pub(super) fn filled(len: usize, value: T) -> Self {
        let mut new = Self::default();
        new.grow(len, value);
        new
    }

    /// Makes the buffer at least `len` values long; it is all `value` after it had to grow.
    pub(super) fn grow(&mut self, len: usize, value: T) {
        if len > self.len {
            self.buffer = vec![value; len + LINE / size_of::<T>()];
            self.start = self.buffer.as_ptr().align_offset(LINE);
            self.len = len;
        }
    }
}

impl<T> std::ops::Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.buffer[self.start..][..self.len]
    }
}

impl<T> std::ops::DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.buffer[self.start..][..self.len]
    }
}
