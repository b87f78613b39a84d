//! Buffers whose first value is at the start of a cache line.
#![allow(unsafe_code)]

use memmap2::MmapMut;

use crate::float::Float;

/// Bytes of a cache line, and of the widest vector.
pub(super) const LINE: usize = 64;

/// A growable buffer whose first value is at the start of a cache line, so that no vector load crosses two
/// lines.
#[derive(Debug)]
pub(super) struct Aligned<T> {
    buffer: Buffer<T>,
    start: usize,
    len: usize,
}

/// The memory that holds the values.
#[derive(Debug)]
enum Buffer<T> {
    Heap(Vec<T>),
    /// A memory mapping of its own, used for large buffers.
    Pages(MmapMut),
}

/// Smallest buffer in bytes that gets its own mapping: a few huge pages.
const LARGE: usize = 8 << 20;

impl<T> Default for Aligned<T> {
    fn default() -> Self {
        Self { buffer: Buffer::Heap(Vec::new()), start: 0, len: 0 }
    }
}

impl<T: Float> Aligned<T> {
    /// `len` values, all equal to `value`.
    pub(super) fn filled(len: usize, value: T) -> Self {
        let mut new = Self::default();
        new.grow(len, value);
        new
    }

    /// `len` zeros for random access. Large buffers use huge pages if the system has them, because with small
    /// pages nearly every read would miss the TLB.
    pub(super) fn scattered(len: usize) -> Self {
        let bytes = len * size_of::<T>();
        match MmapMut::map_anon(bytes.max(1)) {
            Ok(pages) if bytes >= LARGE => {
                // If the system provides no huge pages, small pages work too.
                #[cfg(all(target_os = "linux", not(miri)))]
                let _ = pages.advise(memmap2::Advice::HugePage);
                Self { buffer: Buffer::Pages(pages), start: 0, len }
            }
            _ => Self::filled(len, T::ZERO),
        }
    }

    /// Changes the length to `len` values, which must have been allocated.
    pub(super) fn cut(&mut self, len: usize) {
        let room = match &self.buffer {
            Buffer::Heap(values) => values.len() - self.start,
            Buffer::Pages(pages) => pages.len() / size_of::<T>(),
        };
        assert!(len <= room, "{len} values in room for {room}");
        self.len = len;
    }

    /// Grows the buffer to at least `len` values. If it had to grow, all values are `value`.
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
            // SAFETY: the mapping has room for `len` values and lives as long as `self`. It starts at a page
            // boundary, which is aligned for any type, and its bytes are initialized. Any bits are a valid
            // `f32` or `f64`.
            Buffer::Pages(pages) => unsafe { std::slice::from_raw_parts(pages.as_ptr().cast(), self.len) },
        }
    }
}

impl<T: Float> std::ops::DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.buffer {
            Buffer::Heap(values) => &mut values[self.start..][..self.len],
            // SAFETY: the mapping has room for `len` values of any bits, as `deref` explains. `self` is
            // borrowed mutably, so no other reference to the mapping exists.
            Buffer::Pages(pages) => unsafe {
                std::slice::from_raw_parts_mut(pages.as_mut_ptr().cast(), self.len)
            },
        }
    }
}
