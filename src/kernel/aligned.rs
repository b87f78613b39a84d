//! This module knows how to keep values at the start of a cache line.
#![allow(unsafe_code)]

use memmap2::MmapMut;

use crate::float::Float;

/// Bytes of a cache line, and of the widest vector.
pub(super) const LINE: usize = 64;

/// A growable buffer whose first value lies at the start of a cache line, so that no vector load straddles two.
#[derive(Debug)]
pub(super) struct Aligned<T> {
    buffer: Buffer<T>,
    start: usize,
    len: usize,
}

/// Where the values lie.
#[derive(Debug)]
enum Buffer<T> {
    Heap(Vec<T>),
    /// Memory of its own.
    Pages(MmapMut),
}

/// Bytes from which memory of its own pays: a few large pages.
const LARGE: usize = 8 << 20;

impl<T: Float> Default for Aligned<T> {
    fn default() -> Self {
        Self { buffer: Buffer::Heap(Vec::new()), start: 0, len: 0 }
    }
}

impl<T: Float> Aligned<T> {
    /// `len` values, all `value`.
    pub(super) fn filled(len: usize, value: T) -> Self {
        let mut new = Self::default();
        new.grow(len, value);
        new
    }

    /// `len` zeros that will be read here and there: in large pages, where the system has them, because it would look up a small one for
    /// nearly every read.
    pub(super) fn scattered(len: usize) -> Self {
        let bytes = len * size_of::<T>();
        match MmapMut::map_anon(bytes.max(1)) {
            Ok(pages) if bytes >= LARGE => {
                // Where it is refused, small pages do.
                #[cfg(target_os = "linux")]
                let _ = pages.advise(memmap2::Advice::HugePage);
                Self { buffer: Buffer::Pages(pages), start: 0, len }
            }
            _ => Self::filled(len, T::ZERO),
        }
    }

    /// Makes the buffer at least `len` values long; it is all `value` after it had to grow.
    pub(super) fn grow(&mut self, len: usize, value: T) {
        if len > self.len {
            let buffer = vec![value; len + LINE / size_of::<T>()];
            self.start = buffer.as_ptr().align_offset(LINE);
            self.buffer = Buffer::Heap(buffer);
            self.len = len;
        }
    }
}

impl<T: Float> std::ops::Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.buffer {
            Buffer::Heap(values) => &values[self.start..][..self.len],
            // SAFETY: the mapping was made with room for `len` values and lives as long as `self`; it begins with a page, which is aligned
            // for any type, and its bytes are initialised: any bits are a value of T, which is `f32` or `f64`.
            Buffer::Pages(pages) => unsafe { std::slice::from_raw_parts(pages.as_ptr().cast(), self.len) },
        }
    }
}

impl<T: Float> std::ops::DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.buffer {
            Buffer::Heap(values) => &mut values[self.start..][..self.len],
            // SAFETY: as for `deref`, and nobody else has the mapping.
            Buffer::Pages(pages) => unsafe {
                std::slice::from_raw_parts_mut(pages.as_mut_ptr().cast(), self.len)
            },
        }
    }
}
