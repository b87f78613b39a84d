//! Centers with axes, compared with sums in `f64`.

use crate::kernel::isa::Isa;
use crate::kernel::listed::RowCenters;
use crate::kernel::tier::Compute;
use crate::matrix::MatRef;
use crate::rng::{Purpose, Rng};

/// Compares distances of rows to centers with axes, projections, and sums of products.
fn check<T: Compute>(isa: Isa, (k, d, n_axes): (usize, usize, usize)) {
    let what = format!("{isa} {k} x {d}, {n_axes} axes");
    let mut rng = Rng::keyed(7, Purpose::Exploring, (d * n_axes) as u64);
    let mut drawn = |n: usize, size: f64| -> Vec<T> {
        (0..n).map(|_| T::from_f64(size * (2.0 * rng.unit() - 1.0))).collect()
    };
    let (rows, centers, factors) = (drawn(6 * d, 9.0), drawn(k * d, 9.0), drawn(k * d, 2.0));
    // Squares of all axes add up to less than 1, as those of components do.
    let axes = drawn(k * n_axes * d, 1.0 / ((n_axes * d) as f64).sqrt());
    let centers = MatRef::new(&centers, d);
    let scaled = RowCenters::with_factors_for_isa(centers, &factors, isa);
    let with_axes = RowCenters::with_axes_for_isa(centers, &factors, &axes, isa);
    assert_eq!((with_axes.n_axes(), scaled.n_axes()), (n_axes, 0));
    let (mut products, mut products_t) = (vec![0.0; k * n_axes * d], vec![0.0; k * n_axes * d]);
    for (i, row) in rows.chunks_exact(d).enumerate() {
        let list = [(i % k) as u32, ((i + 2) % k) as u32, (k - 1) as u32];
        let (mut out, mut onto) = ([T::INFINITY; 3], vec![T::INFINITY; 3 * n_axes]);
        let (mut lengths, mut alone) = ([T::ZERO; 3], [T::INFINITY; 3]);
        with_axes.project(row, &list, &mut out, &mut onto);
        with_axes.sq_dists(MatRef::new(&rows, d).into(), i, &list, &mut alone);
        scaled.sq_dists(MatRef::new(&rows, d).into(), i, &list, &mut lengths);
        assert_eq!(out, alone, "{what}");
        let parts: Vec<f64> = (0..3 * n_axes).map(|q| 0.5 + q as f64).collect();
        with_axes.add_products(row, &list, &parts, &mut products);
        for (q, &j) in list.iter().enumerate() {
            let (j, length) = (j as usize, lengths[q].to_f64());
            let (mut exact, slack) = (length, (d + 8) as f64 * T::EPSILON * length);
            for h in 0..n_axes {
                let mut along = 0.0;
                for t in 0..d {
                    let apart = row[t].to_f64() - centers.row(j)[t].to_f64();
                    let at = (j * n_axes + h) * d + t;
                    along += apart * factors[j * d + t].to_f64() * axes[at].to_f64();
                    products_t[at] += parts[q * n_axes + h] * apart;
                }
                exact -= along * along;
                let found = onto[q * n_axes + h].to_f64();
                assert!((found - along).abs() <= slack / length.sqrt(), "{what}: {found} not {along}");
            }
            let found = out[q].to_f64();
            assert!((found - exact).abs() <= 4.0 * slack, "{what}: {found} not {exact}");
        }
    }
    assert_eq!(products, products_t, "{what}");
}

#[test]
fn centers_with_axes() {
    for isa in Isa::available() {
        for d in [1, 2, 7, 16, 33, 64, 150, 784] {
            for n_axes in [1, 2, 3, 4, 5, 6, 7, 8, 9, 19] {
                check::<f32>(isa, (4, d, n_axes));
                check::<f64>(isa, (4, d, n_axes));
            }
        }
    }
}

#[test]
fn distances_are_never_undefined_or_negative() {
    for isa in Isa::available() {
        // An axis as long as the difference leaves nothing of its length.
        let one = [1.0f32; 20].map(|x| x / 20f32.sqrt());
        let centers = RowCenters::with_axes_for_isa(MatRef::new(&[0.0; 20], 20), &[1.0; 20], &one, isa);
        for (value, least, most) in [(3.0, 0.0, 1e-3), (f32::INFINITY, f32::INFINITY, f32::INFINITY)] {
            let mut out = [f32::NAN];
            centers.project(&[value; 20], &[0], &mut out, &mut []);
            assert!((least..=most).contains(&out[0]), "{isa}: {}", out[0]);
        }
        let mut out = [0.0];
        centers.project(&[f32::NAN; 20], &[0], &mut out, &mut []);
        assert!(out[0].is_nan(), "rows that are not finite are found by their distances");
    }
}
