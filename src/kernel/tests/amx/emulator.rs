//! Tile instructions in software, for processors without AMX.
//!
//! Such a processor raises SIGILL at a tile instruction. The handler of this file decodes the instruction, executes it
//! on tiles in memory and continues behind it. Anything else ends the process, as without the handler.

use std::cell::{Cell, UnsafeCell};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t, ucontext_t};

use crate::kernel::arch::amx;
use crate::kernel::arch::engine::{Product, Tile};
use crate::kernel::isa::Isa;

/// The order in which products of bf16 are added. Every order is legal within the bound of the rounding errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::kernel) enum Order {
    /// Even and odd columns of a tile apart, then together: the order of Intel's manual.
    Halves,
    /// The two products of a word first.
    Words,
    /// One chain from the last column to the first.
    Backward,
}

/// Every order.
pub(in crate::kernel) const ORDERS: [Order; 3] = [Order::Halves, Order::Words, Order::Backward];

/// The number of tile instructions that were emulated so far.
pub(in crate::kernel) static EXECUTED: AtomicUsize = AtomicUsize::new(0);

/// Makes tile instructions work in this process. Whether they are emulated.
pub(in crate::kernel) fn install() -> bool {
    static INSTALLED: Once = Once::new();
    if Isa::Amx.is_available() {
        return false;
    }
    INSTALLED.call_once(|| {
        // SAFETY: zeros are a valid `sigaction`, and the handler has the signature that SA_SIGINFO asks for. The
        // handler touches only memory that the interrupted instruction names, and values that need no lock.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            assert_eq!(libc::sigaction(libc::SIGILL, &raw const action, std::ptr::null_mut()), 0);
        }
        amx::EMULATED.store(true, Ordering::Release);
    });
    true
}

/// Sets the order of additions on this thread.
pub(in crate::kernel) fn set_order(order: Order) {
    ORDER.set(order);
}

/// The tile unit of a thread.
struct Unit {
    config: [u8; 64],
    tiles: [Tile; 8],
}

/// A unit without configuration.
const RELEASED: Unit = Unit { config: [0; 64], tiles: [Tile::ZERO; 8] };

thread_local! {
    static ORDER: Cell<Order> = const { Cell::new(Order::Halves) };
    static UNIT: UnsafeCell<Unit> = const { UnsafeCell::new(RELEASED) };
}

extern "C" fn handle(_signal: c_int, _info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: `context` points to the registers of the interrupted thread, which only this handler uses until it
    // returns.
    let registers = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs };
    let at = registers[libc::REG_RIP as usize] as *const u8;
    // SAFETY: the processor has read the instruction at `at`.
    let executed = unsafe { decode(at, registers) }.and_then(|(instruction, length)| {
        // SAFETY: only this handler uses the unit of its thread, and it executes no tile instruction itself.
        UNIT.with(|unit| unsafe { execute(instruction, &mut *unit.get()) }).then_some(length)
    });
    match executed {
        Some(length) => {
            registers[libc::REG_RIP as usize] += length as i64;
            EXECUTED.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: SIG_DFL is a valid action. The instruction then raises the signal again and ends the process.
        None => unsafe {
            libc::signal(libc::SIGILL, libc::SIG_DFL);
        },
    }
}

/// The tile instructions that the library and its tests use. Addresses are as in the instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Instruction {
    LoadConfig { from: usize },
    StoreConfig { to: usize },
    Release,
    Load { tile: usize, from: usize, stride: usize },
    Store { tile: usize, to: usize, stride: usize },
    Multiply { product: Product, c: usize, a: usize, b: usize },
}

/// The instruction at `code` and its length, if it is a tile instruction.
///
/// # Safety
/// `code` points to an instruction that the processor has read.
unsafe fn decode(code: *const u8, registers: &[i64; 23]) -> Option<(Instruction, usize)> {
    // SAFETY: `at` never asks for a byte behind the instruction.
    let at = |i: usize| unsafe { *code.add(i) };
    // VEX with three bytes, opcode map 0F 38, W = 0, L = 0.
    if at(0) != 0xc4 || at(1) & 0x1f != 2 || at(2) & 0x84 != 0 {
        return None;
    }
    let (prefix, third, opcode, modrm) = (at(2) & 3, usize::from(!at(2) >> 3 & 15), at(3), at(4));
    let (mode, reg, rm) = (modrm >> 6, usize::from(modrm >> 3 & 7), usize::from(modrm & 7));
    if mode == 3 {
        let multiply = |product| Instruction::Multiply { product, c: reg, a: rm, b: third };
        let instruction = match (opcode, prefix) {
            (0x49, 0) if modrm == 0xc0 => Instruction::Release,
            (0x5c, 2) => multiply(Product::Bf16),
            (0x5e, 2) => multiply(Product::Bytes),
            _ => return None,
        };
        return Some((instruction, 5));
    }
    let value = |register: u8, high: u8| {
        let number = usize::from(register & 7) + 8 * usize::from(!at(1) >> high & 1);
        (number, registers[GENERAL[number] as usize] as usize)
    };
    let sib = if rm == 4 { Some(at(5)) } else { None };
    let index = sib.map_or(0, |sib| match value(sib >> 3, 6) {
        (4, _) => 0,
        (_, value) => value << (sib >> 6),
    });
    let base = sib.unwrap_or(modrm) & 7;
    if (mode, base) == (0, 5) {
        // An address without base register.
        return None;
    }
    let length = 5 + usize::from(sib.is_some());
    let (shift, length) = match mode {
        0 => (0, length),
        1 => (isize::from(at(length) as i8), length + 1),
        _ => (i32::from_le_bytes([0, 1, 2, 3].map(|i| at(length + i))) as isize, length + 4),
    };
    let base = value(base, 5).1.wrapping_add_signed(shift);
    let instruction = match (opcode, prefix) {
        (0x49, 0) if reg == 0 => Instruction::LoadConfig { from: base.wrapping_add(index) },
        (0x49, 1) if reg == 0 => Instruction::StoreConfig { to: base.wrapping_add(index) },
        (0x4b, 3) if rm == 4 => Instruction::Load { tile: reg, from: base, stride: index },
        (0x4b, 2) if rm == 4 => Instruction::Store { tile: reg, to: base, stride: index },
        _ => return None,
    };
    Some((instruction, length))
}

/// The place of each general register, by its number, among the registers of a context.
const GENERAL: [c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// Eight tiles of 16 lines of 64 bytes: the only configuration that the emulator supports.
fn is_supported(config: &[u8; 64]) -> bool {
    let tiles = (0..8).all(|t| config[16 + 2 * t..][..2] == [64, 0] && config[48 + t] == 16);
    tiles && config[..16] == [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// Executes `instruction`. Returns `false` where a tile unit would raise an exception.
///
/// # Safety
/// The memory operand is valid.
unsafe fn execute(instruction: Instruction, unit: &mut Unit) -> bool {
    let line = |at: usize, i: usize, stride: usize| at.wrapping_add(i.wrapping_mul(stride)) as *mut [u32; 16];
    match instruction {
        Instruction::LoadConfig { from } => {
            // SAFETY: this function requires a valid operand, here 64 bytes at `from`.
            let config = unsafe { *(from as *const [u8; 64]) };
            *unit = Unit { config, ..RELEASED };
            return is_supported(&config);
        }
        // SAFETY: this function requires a valid operand, here 64 bytes at `to`.
        Instruction::StoreConfig { to } => unsafe { *(to as *mut [u8; 64]) = unit.config },
        Instruction::Release => *unit = RELEASED,
        _ if unit.config[0] == 0 => return false,
        Instruction::Load { tile, from, stride } => {
            for (i, out) in unit.tiles[tile].0.iter_mut().enumerate() {
                // SAFETY: this function requires a valid operand, here 16 lines from `from` on.
                *out = unsafe { line(from, i, stride).read_unaligned() };
            }
        }
        Instruction::Store { tile, to, stride } => {
            for (i, &words) in unit.tiles[tile].0.iter().enumerate() {
                // SAFETY: this function requires a valid operand, here 16 lines from `to` on.
                unsafe { line(to, i, stride).write_unaligned(words) };
            }
        }
        Instruction::Multiply { product, c, a, b } => {
            if a == b || a == c || b == c || b > 7 {
                return false;
            }
            let (a, b) = (unit.tiles[a], unit.tiles[b]);
            for (sums, center) in unit.tiles[c].0.iter_mut().zip(&a.0) {
                match product {
                    Product::Bf16 => halves(sums, center, &b),
                    Product::Bytes => bytes(sums, center, &b),
                }
            }
        }
    }
    true
}

/// Adds the products of the bytes of one center and all rows.
fn bytes(sums: &mut [u32; 16], center: &[u32; 16], rows: &Tile) {
    for (center, rows) in center.iter().zip(&rows.0) {
        for byte in 0..4 {
            let center = i32::from(center.to_le_bytes()[byte] as i8);
            for (sum, row) in sums.iter_mut().zip(rows) {
                *sum = sum.wrapping_add((center * i32::from(row.to_le_bytes()[byte])) as u32);
            }
        }
    }
}

/// Adds the products of the bf16 of one center and all rows.
fn halves(sums: &mut [u32; 16], center: &[u32; 16], rows: &Tile) {
    let value = |word: u32, half: usize| flush(f32::from_bits(word << (16 * (1 - half)) & 0xffff_0000));
    // Fused: the product of two bf16 is exact in f64.
    let add = |mut sums: [f32; 16], t: usize| {
        let center = f64::from(value(center[t / 2], t % 2));
        for (sum, &row) in sums.iter_mut().zip(&rows.0[t / 2]) {
            *sum = flush((f64::from(*sum) + center * f64::from(value(row, t % 2))) as f32);
        }
        sums
    };
    let both = |x: [f32; 16], y: [f32; 16]| std::array::from_fn(|j| flush(x[j] + y[j]));
    let old = sums.map(|sum| flush(f32::from_bits(sum)));
    let new = match ORDER.get() {
        Order::Halves => {
            let half = |first: usize| (first..32).step_by(2).fold([0.0; 16], add);
            both(old, both(half(0), half(1)))
        }
        Order::Words => (0..16).fold(old, |sums, w| both(sums, add(add([0.0; 16], 2 * w), 2 * w + 1))),
        Order::Backward => (0..32).rev().fold(old, add),
    };
    *sums = new.map(f32::to_bits);
}

/// Subnormal values count as zero.
fn flush(v: f32) -> f32 {
    if v.is_subnormal() { 0.0 } else { v }
}

#[test]
fn operands_of_any_form() {
    let Some(_tiles) = super::tiles() else { return };
    let words: Vec<u32> = (0..2048).collect();
    let at = words.as_ptr();
    let mut stored = [[0u32; 16]; 3 * 16];
    // SAFETY: the lines that are read, 128 or 256 bytes apart, lie within `words`, and three tiles fit into `stored`.
    unsafe {
        std::arch::asm!(
            "tileloadd tmm1, [r13 + r15*2]",
            "tileloadd tmm6, [r13 + 2*r10 + 64]",
            "tileloadd tmm7, [r12 + r15 + 1024]",
            "tilestored [r8 + r9], tmm1",
            "tilestored [r8 + r9 + 1024], tmm6",
            "tilestored [r8 + r9 + 2048], tmm7",
            in("r12") at,
            in("r13") at,
            in("r15") 64usize,
            in("r10") 128usize,
            in("r8") stored.as_mut_ptr(),
            in("r9") 64usize,
            out("tmm1") _, out("tmm6") _, out("tmm7") _,
            options(nostack, preserves_flags));
    }
    for i in 0..16 {
        assert_eq!(stored[i][..], words[32 * i..][..16], "line {i}");
        assert_eq!(stored[16 + i][..], words[16 + 64 * i..][..16], "line {i}");
        assert_eq!(stored[32 + i][..], words[256 + 16 * i..][..16], "line {i}");
    }
}
