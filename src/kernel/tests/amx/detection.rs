//! Detection of the tile unit: if anything is missing the answer is no, and Linux is asked last.

use std::cell::Cell;

use crate::kernel::arch::amx::detection::{Host, Machine, detect};

/// A processor with AMX under a Linux that permits its use, until a test changes an answer.
struct Answers {
    highest_leaf: u32,
    leaf_1_ecx: u32,
    leaf_7_edx: u32,
    palettes: u32,
    palette: [u32; 3],
    state: u64,
    permitted: bool,
    asked: Cell<usize>,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            highest_leaf: 0x20,
            leaf_1_ecx: 1 << 27,
            leaf_7_edx: 1 << 22 | 1 << 24 | 1 << 25,
            palettes: 1,
            palette: [1024 << 16 | 8192, 8 << 16 | 64, 16],
            state: 0x6_02e7,
            permitted: true,
            asked: Cell::new(0),
        }
    }
}

impl Host for Answers {
    fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        match (leaf, subleaf) {
            (0, 0) => [self.highest_leaf, 0, 0, 0],
            (1, 0) => [0, 0, self.leaf_1_ecx, 0],
            (7, 0) => [0, 0, 0, self.leaf_7_edx],
            (0x1d, 0) => [self.palettes, 0, 0, 0],
            (0x1d, 1) => [self.palette[0], self.palette[1], self.palette[2], 0],
            other => panic!("asked for leaf {other:x?}"),
        }
    }

    fn saved_state(&self) -> u64 {
        assert_ne!(self.leaf_1_ecx, 0, "a processor without OSXSAVE has no such register");
        self.state
    }

    fn permit(&self) -> bool {
        self.asked.set(self.asked.get() + 1);
        self.permitted
    }
}

#[test]
fn a_complete_unit_is_found() {
    let host = Answers::default();
    assert!(detect(&host));
    assert_eq!(host.asked.get(), 1);
}

#[test]
fn a_refused_permission_means_no_tiles() {
    let host = Answers { permitted: false, ..Answers::default() };
    assert!(!detect(&host));
    assert_eq!(host.asked.get(), 1);
}

#[test]
fn linux_is_not_asked_if_something_is_missing() {
    let all = Answers::default;
    let lacking = [
        Answers { highest_leaf: 0x1c, ..all() },
        Answers { leaf_1_ecx: 0, ..all() },
        Answers { leaf_7_edx: 1 << 24 | 1 << 25, ..all() },
        Answers { leaf_7_edx: 1 << 22 | 1 << 25, ..all() },
        Answers { leaf_7_edx: 1 << 22 | 1 << 24, ..all() },
        Answers { palettes: 0, ..all() },
        Answers { palette: [512 << 16 | 8192, 8 << 16 | 64, 16], ..all() },
        Answers { palette: [1024 << 16 | 8192, 8 << 16 | 32, 16], ..all() },
        Answers { palette: [1024 << 16 | 8192, 4 << 16 | 64, 16], ..all() },
        Answers { palette: [1024 << 16 | 8192, 8 << 16 | 64, 8], ..all() },
        Answers { state: 0x2_02e7, ..all() },
        Answers { state: 0x4_02e7, ..all() },
        Answers { state: 0, ..all() },
    ];
    for (i, host) in lacking.iter().enumerate() {
        assert!(!detect(host), "case {i}");
        assert_eq!(host.asked.get(), 0, "case {i}");
    }
}

/// A processor that claims everything, under the Linux of this machine.
struct Pretender(Answers);

impl Host for Pretender {
    fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        self.0.cpuid(leaf, subleaf)
    }

    fn saved_state(&self) -> u64 {
        self.0.saved_state()
    }

    fn permit(&self) -> bool {
        Machine.permit()
    }
}

#[test]
fn linux_refuses_tiles_that_the_processor_has_not() {
    let real = detect(&Machine);
    assert_eq!(detect(&Pretender(Answers::default())), real);
}
