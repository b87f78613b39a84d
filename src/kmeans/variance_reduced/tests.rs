//! Steps against what they are by definition, and labels by bounds against a search at every step.

use super::moving::Moving;
use super::*;
use crate::data::{Csr, Dense};
use crate::rng::{Purpose, Rng};

fn noise(n: usize, seed: u64) -> Vec<f64> {
    let mut rng = Rng::keyed(seed, Purpose::Seeding, 0);
    (0..n).map(|_| rng.unit() - 0.5).collect()
}

fn length(a: &[f64]) -> f64 {
    a.iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[test]
fn centers_move_as_they_should_and_no_further_than_is_said() {
    let (k, d) = (3, 7);
    let means = noise(k * d, 1);
    let mut moving = Moving::new(means.clone(), d, 2.0);
    let mut centers = means.clone();
    let mut rng = Rng::keyed(1, Purpose::Epoch, 0);
    for step in 0..400 {
        let (j, x) = (rng.below(3) as usize, noise(d, step));
        let rate = [0.1, 0.5, 1.0, 1e-3][rng.below(4) as usize];
        let row = j * d..(j + 1) * d;
        let before = centers[row.clone()].to_vec();
        let kind = rng.below(3);
        for ((c, &mean), x) in centers[row.clone()].iter_mut().zip(&means[row.clone()]).zip(&x) {
            *c += match kind {
                0 => rate * (mean - *c),
                1 => rate * (x - *c),
                _ => rate * (mean - x),
            };
        }
        let moved = match kind {
            0 => moving.pull(j, rate),
            1 => moving.attract(j, &x, rate),
            _ => moving.push(j, &x, rate),
        };
        let mut now = vec![0.0f64; d];
        moving.write(j, &mut now);
        let difference =
            |a: &[f64], b: &[f64]| length(&a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>());
        assert!(difference(&now, &centers[row.clone()]) <= 1e-12, "step {step}");
        assert!(moved >= 2.0 * difference(&now, &before) - 1e-12, "step {step}");
        assert!(moving.apart(j) >= 2.0 * difference(&now, &means[row.clone()]) - 1e-12, "step {step}");
        if kind == 0 {
            // On the segment to the mean, never past it.
            let (far, near) = (difference(&before, &means[row.clone()]), difference(&now, &means[row]));
            assert!((near - (1.0 - rate) * far).abs() <= 1e-12);
        }
    }
    // All the way to the mean is the mean, to the bit.
    (0..k).for_each(|j| _ = moving.pull(j, 1.0));
    let mut now = vec![0.0f64; d];
    moving.write(0, &mut now);
    assert_eq!(now, means[..d]);
}

/// What a fit ends in, bit for bit.
fn bits<S: Source + ?Sized>(params: &VarianceReducedParams, rows: &S) -> (Vec<u64>, Vec<u32>) {
    let cx = Executor::new(Some(2)).unwrap();
    let mut run = params.start(rows).unwrap();
    while run.advance(rows, &cx).unwrap().is_some() {}
    run.finish(rows, &cx).unwrap();
    (run.centers::<f64>().into_iter().map(f64::to_bits).collect(), run.labels().to_vec())
}

#[test]
fn bounds_change_no_label() {
    for (n, d, k, width) in
        [(4000, 20, 180, 0.2), (3000, 3, 80, 0.1), (1200, 270, 130, 0.5), (200, 1, 30, 0.1)]
    {
        let middles = noise(40 * d, 2);
        let values = noise(n * d, 3);
        let at = |i: usize| middles[i / d * 7 % 40 * d + i % d] + width * values[i];
        let wide: Vec<f64> = (0..n * d).map(at).collect();
        let narrow: Vec<f32> = wide.iter().map(|&x| x as f32).collect();
        for (variant, rate, epochs) in
            [(Variant::PlusPlus, 0.02, 8), (Variant::PlusPlus, 0.3, 3), (Variant::Plain, 0.05, 2)]
        {
            let params = VarianceReduced::params(k).seeding(Seeding::Random).variant(variant);
            let params = params.learning_rate(Some(rate)).max_iter(epochs).tolerance(0.0);
            let plain = params.clone().search_always(true);
            let (wide, narrow) = (Dense::new(&wide, d).unwrap(), Dense::new(&narrow, d).unwrap());
            let what = format!("{n} x {d}, k={k}, {variant:?}, rate {rate}");
            let (a, b) = (bits(&params, &wide), bits(&plain, &wide));
            assert_eq!(a, b, "{what}, f64");
            let (a, b) = (bits(&params, &narrow), bits(&plain, &narrow));
            assert_eq!(a, b, "{what}, f32");
        }
    }
}

#[test]
fn sparse_rows_change_no_label_either() {
    let (n, d, k) = (1500, 50, 140);
    let mut rng = Rng::keyed(3, Purpose::Seeding, 0);
    let (mut starts, mut columns, mut values) = (vec![0i64], Vec::new(), Vec::new());
    for _ in 0..n {
        for column in 0..d {
            if rng.below(6) == 0 {
                columns.push(column);
                values.push(rng.unit() as f32);
            }
        }
        starts.push(columns.len() as i64);
    }
    let rows = Csr::new((n, d as usize), starts[..].into(), columns[..].into(), &values).unwrap();
    let params = VarianceReduced::params(k).seeding(Seeding::Random).max_iter(4).tolerance(0.0);
    let (a, b) = (bits(&params, &rows), bits(&params.clone().search_always(true), &rows));
    assert_eq!(a, b);
}
