//! Whether this process may use the tile unit.

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::sync::OnceLock;

use crate::kernel::arch::engine::Tile;

/// Bytes of a line of a tile.
pub(super) const LINE: usize = 64;

/// Whether this processor has tiles with products of bf16 and of bytes, and Linux lets this process use them. Call it
/// only on a processor with AVX-512 VNNI, which the tiles of this crate need as well.
///
/// The first call asks Linux for the permission. It holds for all threads and is inherited by forked children. From
/// then on, Linux accepts only alternate signal stacks that have room for the tiles. Therefore call this function
/// only to use tiles.
pub(in crate::kernel) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| detect(&Machine))
}

/// What detection asks the processor and the operating system; the tests substitute other answers.
pub(in crate::kernel) trait Host {
    /// Registers `eax`, `ebx`, `ecx` and `edx` of `cpuid`.
    fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4];

    /// The kinds of processor state that the operating system saves; called only if it tells them.
    fn saved_state(&self) -> u64;

    /// Asks for the permission to use tiles. Whether it was given.
    fn permit(&self) -> bool;
}

/// Whether `host` has the tile unit that this file needs. Asks for the permission last, only if all else is there.
pub(in crate::kernel) fn detect(host: &impl Host) -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const FEATURES: u32 = 1 << 22 | 1 << 24 | 1 << 25; // AMX-BF16, AMX-TILE, AMX-INT8
    const STATE: u64 = 1 << 17 | 1 << 18; // XTILECFG, XTILEDATA
    const TILE_LEAF: u32 = 0x1d;
    if host.cpuid(0, 0)[0] < TILE_LEAF || host.cpuid(1, 0)[2] & OSXSAVE == 0 {
        return false;
    }
    let [palettes, ..] = host.cpuid(TILE_LEAF, 0);
    let [bytes, lines, rows, _] = host.cpuid(TILE_LEAF, 1);
    host.cpuid(7, 0)[3] & FEATURES == FEATURES
        && palettes >= 1
        && [bytes >> 16, lines & 0xffff, lines >> 16, rows & 0xffff]
            == [size_of::<Tile>() as u32, LINE as u32, 8, 16]
        && host.saved_state() & STATE == STATE
        && host.permit()
}

/// This processor, under this operating system.
pub(in crate::kernel) struct Machine;

impl Host for Machine {
    fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        // Older Rust declares the function as unsafe.
        #[allow(unused_unsafe)]
        // SAFETY: every x86-64 processor has the instruction.
        let r = unsafe { __cpuid_count(leaf, subleaf) };
        [r.eax, r.ebx, r.ecx, r.edx]
    }

    fn saved_state(&self) -> u64 {
        /// # Safety
        /// The processor has the instruction `xgetbv`, and the operating system has enabled it.
        #[target_feature(enable = "xsave")]
        fn read() -> u64 {
            // SAFETY: register 0 exists wherever the instruction does.
            unsafe { _xgetbv(0) }
        }
        // SAFETY: `detect` has found the bit OSXSAVE.
        unsafe { read() }
    }

    fn permit(&self) -> bool {
        const ARCH_PRCTL: i64 = 158;
        const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
        const XTILEDATA: u64 = 18;
        let result: i64;
        // SAFETY: the system call takes two numbers and no pointers. It changes only `rax`, `rcx` and `r11`. An older
        // Linux or a sandbox answers with an error.
        unsafe {
            asm!("syscall",
                inlateout("rax") ARCH_PRCTL => result,
                in("rdi") ARCH_REQ_XCOMP_PERM,
                in("rsi") XTILEDATA,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack));
        }
        result == 0
    }
}
