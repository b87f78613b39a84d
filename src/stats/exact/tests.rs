//! Exact sums equal those of a slow reference of 2304 bits, in any order, however they are cut and merged.

use super::{Added, Big, ErrorSums, ExactSums, Terms, rows_together};
use crate::kernel::Compute;
use crate::matrix::MatRef;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};

/// Adds all sums of `part`.
fn take_all(sums: &mut ExactSums, part: &mut ExactSums) {
    let all: Vec<u32> = (0..sums.k as u32).collect();
    sums.take(&mut [(&all, part)], Executor::caller());
}

/// A whole number of the smallest positive `f64`, in two's complement.
#[derive(Clone, PartialEq)]
struct Fixed([u64; 36]);

impl Fixed {
    fn zero() -> Self {
        Self([0; 36])
    }

    fn negate(&mut self) {
        let mut carry = true;
        for word in &mut self.0 {
            (*word, carry) = (!*word).overflowing_add(u64::from(carry));
        }
    }

    fn add(&mut self, value: f64) {
        let mut summand = Self::zero();
        let mut magnitude = value.abs();
        // Peel off bit by bit: slow, and hard to get wrong.
        let mut bit = 2098;
        while magnitude > 0.0 && bit > 0 {
            bit -= 1;
            let place = if bit >= 1074 {
                2f64.powi((bit - 1074).min(1024) as i32)
            } else {
                f64::from_bits(if bit < 52 { 1 << bit } else { ((bit - 51) as u64) << 52 })
            };
            if magnitude >= place {
                magnitude -= place;
                summand.0[bit / 64] |= 1 << (bit % 64);
            }
        }
        if value < 0.0 {
            summand.negate();
        }
        let mut carry = false;
        for (own, more) in self.0.iter_mut().zip(summand.0) {
            let (sum, one) = own.overflowing_add(more);
            let (sum, two) = sum.overflowing_add(u64::from(carry));
            (*own, carry) = (sum, one || two);
        }
    }

    fn bit(&self, bit: usize) -> bool {
        self.0[bit / 64] >> (bit % 64) & 1 == 1
    }

    /// Rounded to nearest, to even among two.
    fn round(&self) -> f64 {
        let mut value = self.clone();
        let negative = value.bit(2303);
        if negative {
            value.negate();
        }
        let Some(top) = (0..2304).rev().find(|&bit| value.bit(bit)) else { return 0.0 };
        let last = top.saturating_sub(52);
        let mut bits = (last..=top).rev().fold(0u64, |bits, bit| bits << 1 | u64::from(value.bit(bit)));
        let half = last > 0 && value.bit(last - 1);
        let below = (0..last.saturating_sub(1)).any(|bit| value.bit(bit));
        bits += u64::from(half && (below || bits & 1 == 1));
        // Below 2^53, the bits of an `f64` are those of its number.
        let rounded = if last == 0 { f64::from_bits(bits) } else { bits as f64 };
        let scaled = if last > 1023 {
            rounded * 2f64.powi(-51) * 2f64.powi(last as i32 - 1074 + 51)
        } else if last > 0 {
            // Exact in two steps: both are powers of two, and the result is normal.
            rounded * 2f64.powi(last as i32 - 537) * 2f64.powi(-537)
        } else {
            rounded
        };
        if negative { -scaled } else { scaled }
    }
}

/// Columns that are hard to add: outliers, tiny and huge scales, cancellation, zeros, subnormals, many digits.
fn hard(n: usize, wide: bool, rng: &mut Rng) -> Vec<f64> {
    let mut values = Vec::new();
    for i in 0..n {
        let (u, g) = (rng.unit(), rng.unit() - rng.unit());
        let sign = if i % 2 == 0 { 1.0 } else { -1.0 };
        let row = [
            if i % 97 == 5 { 7e8 * u } else { (u * 1000.0).floor() },
            g,
            if i == n / 2 { 1e30 } else { 1e-30 * g },
            if u < 0.1 { -0.0 } else { 1e-41 * g },
            sign * 1e8 * (1.0 + (i / 10 % 7) as f64) + if u < 0.5 { g } else { 0.0 },
            (256.0 * u).floor(),
            if wide { sign * 10f64.powf(600.0 * u - 300.0) } else { sign * 10f64.powf(60.0 * u - 30.0) },
            if wide { 5e-324 * (u * 9.0).floor() } else { 0.0 },
            if i < n / 3 { 0.0 } else { 10f64.powf(i as f64 / n as f64 * 20.0) },
            if wide { sign * 1e300 * (1.0 + u) } else { sign * 1e37 },
            // Below the smallest normal number after many zeros, and then of any size.
            if i < n / 3 {
                0.0
            } else if i < n / 2 {
                1e-310 * u
            } else {
                u
            },
        ];
        values.extend(row.map(|x| if wide { x } else { f64::from(x as f32) }));
    }
    values
}

const WIDTH: usize = 11;

/// Rows as values and weights, with their labels.
struct Labeled<T> {
    rows: Vec<T>,
    weights: Option<Vec<f64>>,
    labels: Vec<u32>,
}

impl<T: Compute> Labeled<T> {
    /// The sums of rows `order`, added in this order. If `moved`, the rows come to their clusters from others.
    fn part(&self, k: usize, order: &[usize], moved: bool) -> ExactSums {
        let mut sums = ExactSums::new(k, WIDTH);
        for some in order.chunks(rows_together(WIDTH)) {
            let rows: Vec<T> = some.iter().flat_map(|&i| &self.rows[i * WIDTH..][..WIDTH]).copied().collect();
            let labels: Vec<u32> = some.iter().map(|&i| self.labels[i]).collect();
            let weights: Option<Vec<f64>> =
                self.weights.as_ref().map(|weights| some.iter().map(|&i| weights[i]).collect());
            let rows = MatRef::new(&rows, WIDTH);
            if moved {
                let others: Vec<u32> = some.iter().map(|&i| (i * 7 % k) as u32).collect();
                sums.add(rows, &others, None);
                sums.reassign(rows, (&others, &labels));
            } else {
                sums.add(rows, &labels, weights.as_deref());
            }
            // As often as `Added` asks for, or oftener.
            if some.len() < 30 || order.len() > 1000 {
                (0..k).for_each(|j| sums.settle(j));
            }
        }
        sums
    }

    fn expected(&self, k: usize) -> Vec<f64> {
        let mut sums = vec![Fixed::zero(); k * WIDTH];
        for (i, row) in self.rows.chunks_exact(WIDTH).enumerate() {
            for (t, x) in row.iter().enumerate() {
                let weight = self.weights.as_ref().map_or(1.0, |weights| weights[i]);
                sums[self.labels[i] as usize * WIDTH + t].add(weight * x.to_f64());
            }
        }
        sums.iter().map(Fixed::round).collect()
    }
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn stored(sums: &ExactSums) -> (Vec<u64>, Vec<u64>) {
    let Terms { values, places } = sums.terms();
    (bits(&values), places)
}

fn is_exact<T: Compute>(weighted: bool, trials: usize, rng: &mut Rng) {
    let (n, k) = (1500, 5);
    let rows: Vec<T> = hard(n, T::WIDE && !weighted, rng).into_iter().map(T::from_f64).collect();
    let weights = weighted.then(|| (0..n).map(|_| 10f64.powf(24.0 * rng.unit() - 12.0)).collect());
    let labels = (0..n).map(|i| (i % 13).min(k - 1) as u32).collect();
    let all = Labeled { rows, weights, labels };
    let expected = all.expected(k);
    let mut terms = None;
    for trial in 0..trials {
        let mut order: Vec<usize> = (0..n).collect();
        if trial > 0 {
            (1..n).rev().for_each(|i| order.swap(i, rng.below(i as u64 + 1) as usize));
        }
        let (mut parts, mut rest) = (Vec::new(), &order[..]);
        let most = [n as u64, 40, 300][trial % 3];
        while !rest.is_empty() {
            let (some, others) = rest.split_at((1 + rng.below(most) as usize).min(rest.len()));
            parts.push(all.part(k, some, !weighted && trial % 2 == 1));
            rest = others;
        }
        while parts.len() > 1 || trial % 4 == 0 {
            let mut part = parts.swap_remove(rng.below(parts.len() as u64) as usize);
            if parts.is_empty() {
                parts.push(ExactSums::new(k, WIDTH));
            }
            let to = rng.below(parts.len() as u64) as usize;
            take_all(&mut parts[to], &mut part);
            parts[to].finish();
            if parts.len() == 1 {
                break;
            }
        }
        let sums = &mut parts[0];
        (0..k).for_each(|j| sums.settle(j));
        sums.finish();
        assert_eq!(bits(sums.values()), bits(&expected), "trial {trial}");
        // Equal sums have equal terms, also after they were stored.
        let found = stored(sums);
        assert_eq!(stored(&ExactSums::of_terms(k, WIDTH, sums.terms())), found, "trial {trial}");
        assert!(terms.get_or_insert_with(|| found.clone()) == &found, "trial {trial}");
    }
}

#[test]
fn sums_are_exact_in_any_order() {
    let rng = &mut Rng::keyed(5, Purpose::Seeding, 0);
    is_exact::<f32>(false, 60, rng);
    is_exact::<f64>(false, 60, rng);
    is_exact::<f32>(true, 30, rng);
    is_exact::<f64>(true, 30, rng);
}

/// More rows per cluster than whole numbers hold, near the largest values that their grid allows.
#[test]
fn whole_numbers_never_overflow() {
    let n = 20_000;
    let rows: Vec<f32> =
        (0..n).map(|i| if i < 300 { 1.999 } else { 15.99 + (i % 7) as f32 * 1e-3 }).collect();
    let mut sums = ExactSums::new(2, 1);
    let mut expected = Fixed::zero();
    let mut added = Added::new(2);
    for some in rows.chunks(rows_together(1)) {
        let labels = vec![1; some.len()];
        sums.add(MatRef::new(some, 1), &labels, None);
        if added.count(&labels, |i| [1, -1, 3][i % 3]) {
            assert!(added.is_full(1) && !added.is_full(0));
            let (rows, weight) = added.take(1);
            // Every three rows have changed the weight by 3.
            assert!(rows as i32 - weight <= 3 * 14, "{rows} {weight}");
            sums.settle(1);
        }
    }
    for &x in &rows {
        expected.add(f64::from(x));
    }
    sums.settle(1);
    assert_eq!(sums.values(), [0.0, expected.round()]);
}

#[test]
fn what_enters_and_leaves_leaves_nothing() {
    let mut sums = ExactSums::new(2, 1);
    sums.fill();
    for value in [1e300, 1e-300, 0.1, 5e-324, -1e300, -0.1, -5e-324] {
        sums.add_value(0, value);
        sums.finish();
    }
    assert_eq!((sums.values(), sums.terms().values.len()), (&[1e-300, 0.0][..], 2));
    sums.add_value(0, -1e-300);
    assert_eq!((sums.row(0)[0].to_bits(), sums.lows.as_slice()), (0, &[0.0, 0.0][..]));
}

#[test]
fn few_remainders_are_stored_with_their_places() {
    let (k, width) = (10, 3);
    let made = |values: &[(usize, f64)]| {
        let mut sums = ExactSums::new(k, width);
        (0..k * width).for_each(|at| sums.add_value(at, 1.0));
        for &(at, value) in values {
            sums.add_value(at, value);
        }
        sums.finish();
        sums
    };
    let mut sums = made(&[(7, 1e-30), (20, 1e-30), (20, 1e-60)]);
    let Terms { values, places } = sums.terms();
    assert_eq!((&values[30..], &places[..]), (&[1e-30, 1e-30, 1e-60][..], &[37, 50, 80][..]));
    assert_eq!(stored(&ExactSums::of_terms(k, width, sums.terms())), stored(&sums));
    // With many remainders, places would take more than zeros.
    let many: Vec<(usize, f64)> = (0..15).map(|at| (at, 1e-30)).collect();
    assert_eq!(made(&many).terms().values.len(), 60);
    assert_eq!(made(&[]).terms().values, [1.0; 30]);
    // Sums without remainders merge with others.
    let mut part = made(&[]);
    take_all(&mut sums, &mut part);
    sums.finish();
    assert_eq!((sums.values(), &sums.terms().places[..]), (&[2.0; 30][..], &[37, 50, 80][..]));
    assert_eq!(part.values(), [0.0; 30]);
    for places in [vec![37], vec![37, 50, 80, 81]] {
        assert!(!Terms { values: values.clone(), places }.fit(30));
    }
    assert!(!Terms { values: vec![0.0], places: vec![0] }.fit(0));
}

#[test]
fn sums_beyond_the_largest_number_come_back() {
    let (mut sums, mut part) = (ExactSums::new(1, 1), ExactSums::new(1, 1));
    for numbers in [&mut sums, &mut part] {
        numbers.fill();
        numbers.add_value(0, f64::MAX);
    }
    take_all(&mut sums, &mut part);
    sums.finish();
    assert_eq!(sums.values(), [f64::INFINITY]);
    for value in [-f64::MAX, -f64::MAX, 1.0] {
        sums.add_value(0, value);
    }
    sums.finish();
    assert_eq!(sums.values(), [1.0]);
    // Infinity and NaN stay.
    sums.add_value(0, f64::INFINITY);
    take_all(&mut part, &mut sums);
    part.add_value(0, 1.0);
    part.finish();
    assert!(part.values()[0].is_nan());
}

#[test]
fn rounds_as_the_reference() {
    let rng = &mut Rng::keyed(6, Purpose::Seeding, 0);
    for trial in 0..300 {
        let (mut big, mut fixed) = (Big::default(), Fixed::zero());
        let center = rng.unit() * 2000.0 - 1000.0;
        for _ in 0..=rng.below(6) {
            let exponent = (center + rng.unit() * 120.0 - 60.0).clamp(-1074.0, 1020.0);
            let value = (rng.unit() - 0.5) * 2f64.powf(exponent);
            // Also halves of last places, which are ties.
            let value = if trial % 3 == 0 { f64::from_bits(value.to_bits() >> 40 << 40) } else { value };
            big.add(value);
            fixed.add(value);
            assert_eq!(big.round().to_bits(), fixed.round().to_bits(), "trial {trial}");
        }
    }
}

/// Several parts at a time, on several threads: ranges of clusters, of which some are left out, with and without a
/// second part of the whole numbers, and sums that two `f64` cannot hold.
#[test]
fn parts_are_taken_together() {
    let (k, width, n) = (700, 64, 3000);
    let mut rng = Rng::keyed(8, Purpose::Seeding, 3);
    let label = |i: usize| (i * i % k) as u32;
    let mut rows = |parts: usize| -> Vec<f64> {
        (0..n / parts * width)
            .map(|i| {
                (rng.unit() - 0.5)
                    * if i % 977 == 0 { 1e60 } else { 1.0 }
                    * if i % 31 == 0 { 1e-40 } else { 1.0 }
            })
            .collect()
    };
    let parts: Vec<Vec<f64>> = (0..5).map(|_| rows(5)).collect();
    let summed = |values: &[f64]| {
        let mut part = ExactSums::new(k, width);
        for (i, row) in values.chunks_exact(width).enumerate() {
            if i % 3 == 0 {
                row.iter().enumerate().for_each(|(t, &v)| part.add_value(label(i) as usize * width + t, v));
            } else {
                part.add(MatRef::new(row, width), &[label(i)], None);
            }
        }
        part
    };
    let mut one_by_one = ExactSums::new(k, width);
    for values in &parts {
        take_all(&mut one_by_one, &mut summed(values));
        one_by_one.finish();
    }
    for threads in 1..4 {
        let cx = Executor::new(Some(threads)).unwrap();
        let mut made: Vec<ExactSums> = parts.iter().map(|values| summed(values)).collect();
        let mut listed: Vec<u32> = (0..n / 5).map(label).collect();
        listed.sort_unstable();
        listed.dedup();
        assert!(listed.len() < k);
        let mut sums = ExactSums::new(k, width);
        let mut from: Vec<(&[u32], &mut ExactSums)> =
            made.iter_mut().map(|part| (&listed[..], part)).collect();
        sums.take(&mut from, &cx);
        sums.finish();
        assert_eq!(bits(sums.values()), bits(one_by_one.values()), "{threads} threads");
        for part in &mut made {
            (0..k).for_each(|j| part.settle(j));
            part.finish();
            assert!(part.values().iter().all(|&v| v == 0.0) && part.rests.is_empty());
        }
    }
}

#[test]
fn errors_are_exact() {
    let errors: Vec<f64> =
        (0..3000).map(|i| 1.0 / f64::from(i + 1) * if i % 31 == 0 { 1e12 } else { 1.0 }).collect();
    let labels: Vec<u32> = (0..3000).map(|i| i % 3).collect();
    let mut expected = vec![Fixed::zero(); 3];
    errors.iter().zip(&labels).for_each(|(&error, &j)| expected[j as usize].add(error));
    let mut total = ErrorSums::new(3);
    for (errors, labels) in errors.chunks(700).zip(labels.chunks(700)).rev() {
        let mut part = ErrorSums::new(3);
        assert!(part.absorb(errors, labels, None));
        total.merge(&mut [part]);
    }
    assert_eq!(total.into_values().unwrap(), expected.iter().map(Fixed::round).collect::<Vec<_>>());
    assert!(!ErrorSums::new(1).absorb(&[f64::NAN], &[0], Some(&[0.0])));
}
