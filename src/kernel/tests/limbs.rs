//! Whole numbers and pairs are the same on every instruction set as by definition.

use super::battery::for_each_isa;
use crate::kernel::generic::limbs::{NO_GRID, Split, plus, split, values_of};
use crate::kernel::tier::tier_of;
use crate::kernel::{Compute, Limbs, operations};
use crate::matrix::MatRef;
use crate::rng::{Purpose, Rng};

const K: usize = 3;

/// `1.5 * 2^52` grids of `2^exponent`.
fn grid(exponent: i32) -> f64 {
    1.5 * 2f64.powi(exponent + 52)
}

fn split_of(two: bool, value: f64, grid: f64) -> Split {
    if two { split::<true>(value, grid) } else { split::<false>(value, grid) }
}

/// Adds or moves rows, and compares the whole numbers with those by definition.
fn check<T: Compute>(d: usize, (two, weighted, moved): (bool, bool, bool), spread: i32, rng: &mut Rng) {
    let n = 9;
    let mut value = |i: usize| {
        let value = (rng.unit() - 0.5) * 2f64.powi(-(rng.below(1 + spread as u64) as i32));
        T::from_f64(if i % 11 == 3 { -0.0 } else { value })
    };
    let rows: Vec<T> = (0..n * d).map(&mut value).collect();
    let grids: Vec<f64> =
        (0..d).map(|t| if spread > 30 && t % 5 == 4 { NO_GRID } else { grid(-50) }).collect();
    let labels: Vec<u32> = (0..n as u32).map(|i| i * 2 % K as u32).collect();
    let old: Vec<u32> = (0..n as u32).map(|i| i % K as u32).collect();
    let weights: Vec<f64> = (0..n).map(|i| 0.3 * i as f64).collect();
    let (mut high, mut low) = (vec![0i64; K * d], vec![0i64; if two { K * d } else { 0 }]);
    let mut exact = true;
    for i in 0..n {
        let factor = if weighted { weights[i] } else { 1.0 };
        let entries = match moved {
            true if old[i] == labels[i] => vec![],
            true => vec![(old[i], -1.0), (labels[i], 1.0)],
            false => vec![(labels[i], factor)],
        };
        for (j, factor) in entries {
            for t in 0..d {
                let split = split_of(two, factor * rows[i * d + t].to_f64(), grids[t]);
                let at = j as usize * d + t;
                high[at] = high[at].wrapping_add(split.high);
                if two {
                    low[at] = low[at].wrapping_add(split.low);
                }
                exact &= split.is_exact();
            }
        }
    }
    assert!(exact || spread > 0 || weighted || T::WIDE, "values on the grid");
    for_each_isa(|isa| {
        let (mut found_high, mut found_low) = (vec![0i64; K * d], vec![0i64; low.len()]);
        let to = Limbs { grids: &grids, high: &mut found_high, low: &mut found_low };
        let (tier, rows) = (tier_of::<T>(isa), MatRef::new(&rows, d));
        let found = if moved {
            operations::reassign(tier, rows, (&old, &labels), to)
        } else {
            operations::add_rows(tier, rows, &labels, weighted.then_some(&weights[..]), to)
        };
        assert_eq!(
            (found, &found_high, &found_low),
            (exact, &high, &low),
            "{isa} {d} {two} {weighted} {moved}"
        );
    });
}

#[test]
fn whole_numbers_by_definition() {
    let rng = &mut Rng::keyed(2, Purpose::Seeding, 0);
    for d in (1..20).chain([32, 67]) {
        for spread in [0, 20, 60] {
            for two in [false, true] {
                for (weighted, moved) in [(false, false), (true, false), (false, true)] {
                    check::<f32>(d, (two, weighted, moved), spread, rng);
                    check::<f64>(d, (two, weighted, moved), spread, rng);
                }
            }
        }
    }
}

#[test]
fn pairs_by_definition() {
    let rng = &mut Rng::keyed(3, Purpose::Seeding, 0);
    for d in (1..20).chain([67]) {
        for two in [false, true] {
            let grids: Vec<f64> = (0..d).map(|t| if t % 7 == 6 { NO_GRID } else { grid(-20) }).collect();
            let mut number = |t: usize, bits: u64| {
                let number = (rng.below(1 << bits) as i64 - (1 << (bits - 1))) << rng.below(2);
                if grids[t] == NO_GRID { 0 } else { number }
            };
            let high: Vec<i64> = (0..d).map(|t| number(t, 61)).collect();
            let low: Vec<i64> = (0..if two { d } else { 0 }).map(|t| number(t, 50)).collect();
            let sums: Vec<f64> = (0..d).map(|_| rng.unit()).collect();
            // Some pairs have no room for more.
            let lows: Vec<f64> = (0..d).map(|t| if t % 3 == 1 { 1e-25 } else { 0.0 }).collect();
            let added: Vec<_> = (0..d)
                .map(|t| {
                    plus(sums[t], lows[t], values_of(high[t], low.get(t).copied().unwrap_or(0), grids[t]))
                })
                .collect();
            for_each_isa(|isa| {
                let (mut found_high, mut found_low) = (high.clone(), low.clone());
                let (mut found_sums, mut found_lows) = (sums.clone(), lows.clone());
                let from = Limbs { grids: &grids, high: &mut found_high, low: &mut found_low };
                let all = operations::settle(tier_of::<f64>(isa), from, &mut found_sums, &mut found_lows);
                assert_eq!(all, added.iter().all(|sum| sum.2 == 0.0), "{isa}");
                for t in 0..d {
                    let (sum, rest, lost) = added[t];
                    let expected = if lost == 0.0 { (sum, rest, 0) } else { (sums[t], lows[t], high[t]) };
                    assert_eq!((found_sums[t], found_lows[t], found_high[t]), expected, "{isa} {d} {t}");
                }
                let (mut to, mut to_lows) = (vec![1.0; d], vec![0.0; d]);
                let (from, from_lows) = (found_sums.clone(), found_lows.clone());
                let pairs = (&mut found_sums[..], &mut found_lows[..]);
                operations::merge_pairs(tier_of::<f64>(isa), pairs, &mut to, &mut to_lows);
                for t in 0..d {
                    let (sum, rest, lost) = plus(1.0, 0.0, [from[t], from_lows[t]]);
                    let expected = if lost == 0.0 { (sum, rest, 0.0) } else { (1.0, 0.0, from[t]) };
                    assert_eq!((to[t], to_lows[t], found_sums[t]), expected, "{isa} {d} {t}");
                }
            });
        }
    }
}
