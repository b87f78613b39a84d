//! Sums over millions of f32 rows per cluster stay exact, because sums and energies are f64.

use shoal::data::Dense;
use shoal::{KMeans, Seeding};

/// A number in `[0, 1)` with 24 bits, which is exact in f32.
fn unit(i: u64) -> f32 {
    let mut z = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 40) as f32 / (1u32 << 24) as f32
}

/// Compensated (Kahan) sum.
fn sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for value in values {
        let term = value - lost;
        let next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    sum
}

/// Two clusters of `n` one-dimensional rows each, at a distance of 10.
fn check(n: usize) {
    let rows: Vec<f32> = (0..2 * n as u64).map(|i| unit(i) + if i % 2 == 0 { 0.0 } else { 10.0 }).collect();
    let source = Dense::new(&rows, 1).unwrap();
    let model = KMeans::params(2).seeding(Seeding::Given(vec![0.0, 10.0])).max_iter(5).fit(&source).unwrap();
    let centers = model.centers::<f32>();
    for (c, &center) in centers.iter().enumerate() {
        let mean = sum(rows.iter().skip(c).step_by(2).map(|&x| f64::from(x))) / n as f64;
        assert!((f64::from(center) - mean).abs() < 1e-6, "center {center} instead of {mean}");
        assert_eq!(model.cluster_weights()[c], n as f64);
    }
    let inertia =
        sum(rows.iter().enumerate().map(|(i, &x)| (f64::from(x) - f64::from(centers[i % 2])).powi(2)));
    let off = (model.inertia() - inertia).abs() / inertia;
    assert!(off < 1e-9, "inertia {} instead of {inertia}", model.inertia());
    assert!(model.labels().iter().enumerate().all(|(i, &label)| label as usize == i % 2));
}

#[test]
fn two_million_rows() {
    check(1_000_000);
}

#[test]
#[ignore = "whole size: 60 million rows, 700 MB"]
fn sixty_million_rows() {
    check(30_000_000);
}
