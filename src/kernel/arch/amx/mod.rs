//! Products of tiles by AMX, the matrix unit of some x86-64 processors, on Linux.
//!
//! Stable Rust has no intrinsics for AMX, so the instructions are inline assembly. Each `asm!` names the tile registers
//! that it changes as clobbers. The sums of a block stay in four of them from one `asm!` to the next. This holds
//! because the compiler puts nothing into tile registers except values of the AMX intrinsics, which this crate
//! does not use.

pub(in crate::kernel) mod detection;
mod rows;

use std::arch::asm;
use std::cell::Cell;
use std::marker::PhantomData;

use self::detection::LINE;
use super::avx512::Avx512F32;
use super::engine::{Engine, Line, Product, Sums, Tile, WithEngine, certified_groups};
use super::vnni::Vnni;
use crate::kernel::isa::Isa;

/// [`certified_groups`] for the matrix unit (measured on a Xeon with AMX, k = 1024, d = 100 to 3072): of rows with many
/// tiles it takes more at a time, because it reads the centers faster.
fn tile_unit_groups(steps: usize) -> usize {
    if steps <= 8 {
        return certified_groups(steps);
    }
    let kilobytes = (16 * steps).clamp(256, 800);
    (kilobytes / steps / 2 * 2).clamp(4, 32)
}

/// Permission to use the tile unit on this thread.
///
/// The first value on a thread configures the tiles, and the last one that is dropped releases them. Released
/// tiles cost nothing at a context switch, and other code of the thread finds the unit unused.
#[derive(Debug)]
pub(in crate::kernel) struct Tiles {
    /// For what is not a product.
    vectors: Vnni,
    /// The configuration is a thread's own, so the value must stay on its thread.
    thread: PhantomData<*const ()>,
}

thread_local! {
    /// The number of values of [`Tiles`] on this thread.
    static USERS: Cell<usize> = const { Cell::new(0) };
}

/// The operand of `ldtilecfg`: eight tiles of 16 lines of 64 bytes.
#[repr(C, align(64))]
struct Config([u8; 64]);

static CONFIG: Config = {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    let mut tile = 0;
    while tile < 8 {
        bytes[16 + 2 * tile] = LINE as u8;
        bytes[48 + tile] = (size_of::<Tile>() / LINE) as u8;
        tile += 1;
    }
    Config(bytes)
};

impl Tiles {
    /// The tile unit, if [`Isa::Amx`] is available.
    pub(in crate::kernel) fn configured() -> Option<Self> {
        if !Isa::Amx.is_available() && !emulated() {
            return None;
        }
        let vectors = Vnni::available()?;
        USERS.with(|users| {
            if users.get() == 0 {
                // SAFETY: the processor has tiles, and this process may use them. `CONFIG` is valid for palette 1,
                // which `detect` has found. No tile of this thread is in use, because there is no other `Tiles`.
                unsafe {
                    asm!("ldtilecfg [{config}]", config = in(reg) &raw const CONFIG,
                        out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                        out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                        options(nostack, preserves_flags, readonly));
                }
            }
            users.set(users.get() + 1);
        });
        Some(Self { vectors, thread: PhantomData })
    }
}

/// Runs work with the tile unit.
///
/// # Panics
/// If this process has no tiles.
pub(in crate::kernel) fn run<W: WithEngine>(work: W) -> W::Output {
    let tiles = Tiles::configured().expect("this process has no AMX");
    // SAFETY: `tiles` shows that the processor has the instructions.
    unsafe { run_with(&tiles, work) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")]
#[inline(never)]
fn run_with<W: WithEngine>(tiles: &Tiles, work: W) -> W::Output {
    work.run(tiles)
}

impl Engine for Tiles {
    type Vectors = Avx512F32;

    #[inline(always)]
    fn groups(&self, steps: usize) -> usize {
        tile_unit_groups(steps)
    }

    #[inline(always)]
    fn block(
        &self,
        product: Product,
        a: [&[Tile]; 2],
        b: [&[Tile]; 2],
        sums: &mut Sums,
        mut between: impl FnMut(usize),
    ) {
        // Loads are ordered so that a product waits for as few of them as possible.
        macro_rules! step {
            ($multiply:literal, $step:expr) => {
                asm!(
                    "tileloadd tmm4, [{a0} + {line}]",
                    "tileloadd tmm6, [{b0} + {line}]",
                    concat!($multiply, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm5, [{a1} + {line}]",
                    concat!($multiply, " tmm2, tmm5, tmm6"),
                    "tileloadd tmm7, [{b1} + {line}]",
                    concat!($multiply, " tmm1, tmm4, tmm7"),
                    concat!($multiply, " tmm3, tmm5, tmm7"),
                    a0 = in(reg) a[0].as_ptr().add($step),
                    a1 = in(reg) a[1].as_ptr().add($step),
                    b0 = in(reg) b[0].as_ptr().add($step),
                    b1 = in(reg) b[1].as_ptr().add($step),
                    line = in(reg) LINE,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack, preserves_flags, readonly),
                )
            };
        }
        let steps = a[0].len();
        assert!(a[1].len() == steps && b[0].len() == steps && b[1].len() == steps);
        // SAFETY: `self` shows that the tiles are configured, so that each load and store moves a whole `Tile`. `sums`
        // has four, the slices have `steps`. Tile instructions touch neither the stack nor the flags, and only
        // `tilestored` writes to memory.
        unsafe {
            asm!(
                "tileloadd tmm0, [{sums} + {line}]",
                "tileloadd tmm1, [{sums} + {line} + 1024]",
                "tileloadd tmm2, [{sums} + {line} + 2048]",
                "tileloadd tmm3, [{sums} + {line} + 3072]",
                sums = in(reg) &raw const *sums,
                line = in(reg) LINE,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                options(nostack, preserves_flags, readonly),
            );
            for step in 0..steps {
                match product {
                    Product::Bf16 => step!("tdpbf16ps", step),
                    Product::Bytes => step!("tdpbsud", step),
                }
                between(step);
            }
            asm!(
                "tilestored [{sums} + {line}], tmm0",
                "tilestored [{sums} + {line} + 1024], tmm1",
                "tilestored [{sums} + {line} + 2048], tmm2",
                "tilestored [{sums} + {line} + 3072], tmm3",
                sums = in(reg) &raw mut *sums,
                line = in(reg) LINE,
                options(nostack, preserves_flags),
            );
        }
    }

    #[inline(always)]
    fn bytes(&self, x: &[f32], middle: &[f32], line: &mut [u32; 16], squares: &mut Line) -> bool {
        self.vectors.bytes(x, middle, line, squares)
    }

    #[inline(always)]
    fn transposed(&self, lines: &Tile) -> Tile {
        self.vectors.transposed(lines)
    }

    #[inline(always)]
    fn at_most(&self, values: &Line, limits: &Line) -> u16 {
        self.vectors.at_most(values, limits)
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        USERS.with(|users| {
            users.set(users.get() - 1);
            if users.get() == 0 {
                // SAFETY: this was the last `Tiles` of the thread, so no value in a tile is needed any more.
                unsafe {
                    asm!("tilerelease",
                        out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                        out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                        options(nostack, preserves_flags, nomem));
                }
            }
        });
    }
}

/// Whether the tests execute tile instructions by software in this process.
fn emulated() -> bool {
    #[cfg(test)]
    return EMULATED.load(std::sync::atomic::Ordering::Acquire);
    #[cfg(not(test))]
    return false;
}

/// Set by the tests once their emulator handles tile instructions.
#[cfg(test)]
pub(in crate::kernel) static EMULATED: std::sync::atomic::AtomicBool =
    std::sync::atomic::AtomicBool::new(false);
