//! An allocator that remembers the largest allocation per thread.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// The size of the largest allocation of this thread since the last call.
pub(crate) fn largest() -> usize {
    LARGEST.replace(0)
}

fn note(size: usize) {
    // A thread that ends has no cell any more.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(size)));
}

struct Noting;

// SAFETY: every call goes to the allocator of the system; a `Cell` of a number needs no allocation.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Noting = Noting;

#[test]
fn large_allocations_are_noticed() {
    largest();
    drop(std::hint::black_box(vec![0u8; 12_345_678]));
    assert_eq!(largest(), 12_345_678);
    assert!(largest() < 12_345_678);
}
