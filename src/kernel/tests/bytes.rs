//! Rows of bytes: sums and distances equal those of the converted rows.

use crate::kernel::Isa;
use crate::kernel::operations;
use crate::kernel::tier::tier_of;
use crate::matrix::MatRef;
use crate::rng::{Purpose, Rng};

/// `n` rows of `d` bytes, `stride` apart; a fifth of them are 255, the largest square.
fn bytes(n: usize, d: usize, stride: usize) -> Vec<u8> {
    let mut rng = Rng::keyed(5, Purpose::Seeding, (n * d) as u64);
    let value = |_| if rng.below(5) == 0 { 255 } else { rng.below(256) as u8 };
    (0..(n - 1) * stride + d).map(value).collect()
}

#[test]
fn bytes_are_summed_and_measured_as_converted() {
    for isa in Isa::available() {
        let tier = tier_of::<f32>(isa);
        for d in [1, 3, 15, 16, 17, 63, 64, 65, 128, 150, 784] {
            for (n, gap) in [(1, 0), (2, 7), (255, 0), (256, 1), (257, 0), (600, 3)] {
                let x = bytes(n, d, d + gap);
                let rows = MatRef::with_stride(&x, n, d, d + gap);
                let (mut sums, mut expected, mut squares) = (vec![7; d], vec![7u64; d], 0);
                for row in rows.iter() {
                    for (sum, &x) in expected.iter_mut().zip(row) {
                        *sum += u64::from(x);
                        squares += u64::from(x) * u64::from(x);
                    }
                }
                assert_eq!(operations::add_bytes(tier, rows, &mut sums), squares, "{isa} n={n} d={d}");
                assert_eq!(sums, expected, "{isa} n={n} d={d}");

                let point: Vec<f32> = (0..d).map(|t| 127.3 + (t as f32).sin() * 90.0).collect();
                let wide: Vec<f64> = point.iter().map(|&p| f64::from(p)).collect();
                let mut found = vec![f64::NAN; n];
                operations::byte_sq_dists(tier, rows, &wide, &mut found);
                for (row, found) in rows.iter().zip(found) {
                    let row: Vec<f32> = row.iter().map(|&x| f32::from(x)).collect();
                    let expected = operations::sq_dist(tier_of::<f32>(Isa::Scalar), &row, &point);
                    assert_eq!(found.to_bits(), expected.to_bits(), "{isa} n={n} d={d}");
                }
            }
        }
    }
}

#[test]
fn full_sums_do_not_overflow() {
    for isa in Isa::available() {
        let (n, d) = (1000, 130);
        let x = vec![255u8; n * d];
        let mut sums = vec![0; d];
        let squares = operations::add_bytes(tier_of::<f32>(isa), MatRef::new(&x, d), &mut sums);
        assert_eq!(squares, (n * d * 255 * 255) as u64, "{isa}");
        assert!(sums.iter().all(|&sum| sum == (n * 255) as u64), "{isa}");
    }
}
