//! Tests of the tile unit, which is emulated where the processor has none.

#![allow(unsafe_code)]

mod blocks;
mod detection;
pub(in crate::kernel) mod emulator;
mod guard;

use crate::kernel::arch::amx::Tiles;

/// The tile unit of this thread, emulated if need be. None if the processor lacks the vectors that go with it.
pub(in crate::kernel) fn tiles() -> Option<Tiles> {
    emulator::install();
    let tiles = Tiles::configured();
    if tiles.is_none() {
        eprintln!("skipped: no AVX-512 VNNI");
    }
    tiles
}
