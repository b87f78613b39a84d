//! Blocks of tile products, against sums in `f64` and `i64`.

use std::arch::asm;
use std::panic::{AssertUnwindSafe, catch_unwind};

use half::bf16;

use super::emulator::{self, ORDERS};
use super::tiles;
use crate::kernel::arch::amx::Tiles;
use crate::kernel::arch::engine::{Engine, Product, Sums, Tile};
use crate::rng::{Purpose, Rng};

const PRODUCTS: [Product; 2] = [Product::Bf16, Product::Bytes];

/// The operands of a block: tiles of 2 x 16 centers, tiles of 2 x 16 rows, and the initial sums.
pub(super) struct Operands {
    a: [Vec<Tile>; 2],
    b: [Vec<Tile>; 2],
    from: Sums,
}

/// The values of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Values {
    /// Integers, whose sums are exact in either product.
    Whole,
    /// Random numbers between -1 and 1, of any exponent down to the subnormal ones.
    Any,
}

impl Operands {
    fn random(product: Product, values: Values, steps: usize, seed: u64) -> Self {
        let mut rng = Rng::keyed(seed, Purpose::Seeding, steps as u64);
        let mut tile = |sums: bool| {
            let mut float = || match values {
                Values::Whole => ((rng.unit() - 0.5) * 255.0).round() as f32,
                Values::Any => (rng.unit() as f32 - 0.5) * 2f32.powi(-((rng.unit() * 133.0) as i32)),
            };
            let mut word = || match (product, sums) {
                (Product::Bf16, true) => float().to_bits(),
                (Product::Bf16, false) => [float(), float()]
                    .iter()
                    .fold(0, |word, &v| word << 16 | u32::from(bf16::from_f32(v).to_bits())),
                (Product::Bytes, _) => (float() * 3e7) as i32 as u32,
            };
            Tile(std::array::from_fn(|_| std::array::from_fn(|_| word())))
        };
        let mut many = || (0..steps).map(|_| tile(false)).collect::<Vec<_>>();
        let (a, b) = ([many(), many()], [many(), many()]);
        Self { a, b, from: Sums(std::array::from_fn(|_| tile(true))) }
    }

    pub(super) fn whole(product: Product, steps: usize, seed: u64) -> Self {
        Self::random(product, Values::Whole, steps, seed)
    }

    /// The sums, by tile products. `between` as in [`Engine::block`].
    pub(super) fn sums(&self, tiles: &Tiles, product: Product, between: impl FnMut(usize)) -> Sums {
        let mut sums = self.from;
        tiles.block(product, [&self.a[0], &self.a[1]], [&self.b[0], &self.b[1]], &mut sums, between);
        sums
    }

    /// Whether some order of additions gives these sums.
    pub(super) fn check(&self, product: Product, sums: &Sums) -> Result<(), String> {
        for (q, sums) in sums.0.iter().enumerate() {
            let (a, b) = (&self.a[q / 2], &self.b[q % 2]);
            for (line, sums) in sums.0.iter().enumerate() {
                for (column, &got) in sums.iter().enumerate() {
                    let words = a
                        .iter()
                        .zip(b)
                        .flat_map(|(a, b)| (0..16).map(move |w| (a.0[line][w], b.0[w][column])));
                    let old = self.from.0[q].0[line][column];
                    if !is_sum(product, old, words, got) {
                        return Err(format!("{product:?}, tile {q}, line {line}, column {column}: {got:#x}"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether `got` is the sum of `old` and the products of all words.
fn is_sum(product: Product, old: u32, words: impl Iterator<Item = (u32, u32)>, got: u32) -> bool {
    match product {
        Product::Bytes => {
            let sum: i64 = words
                .flat_map(|(a, b)| a.to_le_bytes().into_iter().zip(b.to_le_bytes()))
                .map(|(a, b)| i64::from(a as i8) * i64::from(b))
                .sum();
            got == (i64::from(old) + sum) as u32
        }
        Product::Bf16 => {
            let halves = |v: u32| [v << 16, v & 0xffff_0000].map(|half| f64::from(f32::from_bits(half)));
            let old = f64::from(f32::from_bits(old));
            let (mut sum, mut size, mut count) = (old, old.abs(), 1.0);
            for (x, y) in words.flat_map(|(a, b)| halves(a).into_iter().zip(halves(b))) {
                sum += x * y;
                size += (x * y).abs();
                count += 1.0;
            }
            // Up to two roundings for each term, and values that are flushed to zero.
            let bound = 2.0 * count * (size * 2f64.powi(-24) * 1.01 + 2.0 * f64::from(f32::MIN_POSITIVE));
            (f64::from(f32::from_bits(got)) - sum).abs() <= bound
        }
    }
}

#[test]
fn blocks_equal_scalar_sums() {
    let Some(tiles) = tiles() else { return };
    for steps in (0..=12).chain([13, 16, 24, 31, 48, 64]) {
        for product in PRODUCTS {
            for values in [Values::Whole, Values::Any] {
                let operands = Operands::random(product, values, steps, 7);
                for order in ORDERS {
                    emulator::set_order(order);
                    let mut calls = Vec::new();
                    let sums = operands.sums(&tiles, product, |step| calls.push(step));
                    operands.check(product, &sums).unwrap();
                    assert!(calls.into_iter().eq(0..steps), "once after each step, in order");
                    if product == Product::Bytes || values == Values::Whole {
                        let again = operands.sums(&tiles, product, |_| ());
                        assert_eq!(again.0, sums.0);
                    }
                }
            }
        }
    }
}

#[test]
fn the_check_finds_one_wrong_sum() {
    let Some(tiles) = tiles() else { return };
    for product in PRODUCTS {
        let operands = Operands::whole(product, 5, 8);
        let mut sums = operands.sums(&tiles, product, |_| ());
        operands.check(product, &sums).unwrap();
        sums.0[3].0[15][15] ^= 1 << 16;
        assert!(operands.check(product, &sums).is_err());
    }
}

#[test]
fn sums_of_whole_numbers_are_exact() {
    let Some(tiles) = tiles() else { return };
    let operands = Operands::whole(Product::Bf16, 24, 8);
    for order in ORDERS {
        emulator::set_order(order);
        let sums = operands.sums(&tiles, Product::Bf16, |_| ());
        let fraction = |v: &u32| f32::from_bits(*v).fract();
        assert!(sums.0.iter().flat_map(|tile| tile.0.as_flattened()).all(|v| fraction(v) == 0.0));
    }
}

#[test]
fn vectors_between_the_steps_do_not_disturb_the_sums() {
    if !is_x86_feature_detected!("avx512f") {
        eprintln!("skipped: no AVX-512");
        return;
    }
    let Some(tiles) = tiles() else { return };
    for product in PRODUCTS {
        let operands = Operands::whole(product, 20, 9);
        let (mut lanes, mut expected) = ([1.5f32; 64], [1.5f32; 64]);
        let sums = operands.sums(&tiles, product, |step| {
            // SAFETY: the processor has AVX-512, and the vectors lie within the array.
            unsafe { fold(&mut lanes, step as f32) };
        });
        operands.check(product, &sums).unwrap();
        (0..20).for_each(|step| expected.iter_mut().for_each(|v| *v = v.mul_add(0.5, step as f32)));
        assert_eq!(lanes, expected);
    }
}

/// Changes all 32 vector registers.
///
/// # Safety
/// The processor has AVX-512.
#[target_feature(enable = "avx512f,fma")]
unsafe fn fold(lanes: &mut [f32; 64], add: f32) {
    for v in lanes.iter_mut() {
        *v = v.mul_add(0.5, add);
    }
    // SAFETY: the instructions change only the registers that they name.
    unsafe {
        asm!(
            "vpternlogd zmm0, zmm0, zmm0, 255", "vmovdqa64 zmm7, zmm0", "vmovdqa64 zmm15, zmm0",
            "vmovdqa64 zmm16, zmm0", "vmovdqa64 zmm31, zmm0", "vzeroupper",
            out("zmm0") _, out("zmm7") _, out("zmm15") _, out("zmm16") _, out("zmm31") _,
            options(nostack, nomem, preserves_flags));
    }
}

#[test]
fn a_block_in_parts_equals_a_whole_block() {
    let Some(tiles) = tiles() else { return };
    for product in PRODUCTS {
        let operands = Operands::random(product, Values::Any, 21, 10);
        let whole = operands.sums(&tiles, product, |_| ());
        for depth in [1, 8, 20] {
            let mut sums = operands.from;
            for begin in (0..21).step_by(depth) {
                let here = begin..21.min(begin + depth);
                let a = [0, 1].map(|i| &operands.a[i][here.clone()]);
                let b = [0, 1].map(|i| &operands.b[i][here.clone()]);
                tiles.block(product, a, b, &mut sums, |_| ());
            }
            assert!(sums.0 == whole.0, "{product:?}, {depth} steps at a time");
        }
    }
}

#[test]
fn slices_of_different_lengths_are_refused() {
    let Some(tiles) = tiles() else { return };
    let mut operands = Operands::whole(Product::Bytes, 4, 11);
    operands.b[1].pop();
    let result = catch_unwind(AssertUnwindSafe(|| operands.sums(&tiles, Product::Bytes, |_| ())));
    assert!(result.is_err());
}

#[test]
fn infinite_sums_stay_infinite() {
    let Some(tiles) = tiles() else { return };
    let mut operands = Operands::whole(Product::Bf16, 4, 11);
    operands.from.0[1] = Tile([[f32::INFINITY.to_bits(); 16]; 16]);
    let sums = operands.sums(&tiles, Product::Bf16, |_| ());
    assert_eq!(sums.0[1], operands.from.0[1]);
    assert!(sums.0[0].0.as_flattened().iter().all(|&v| f32::from_bits(v).is_finite()));
}
