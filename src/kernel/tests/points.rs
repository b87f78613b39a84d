//! Distances of rows to a few points have the bits of distances between single rows.

use crate::kernel::distances::Points;
use crate::kernel::operations;
use crate::kernel::tier::tier_of;
use crate::kernel::{Compute, Isa};
use crate::matrix::MatRef;
use crate::rng::{Purpose, Rng};

fn distances_have_the_same_bits<T: Compute>(isa: Isa, d: usize, m: usize, gap: usize) {
    let n = 45;
    let mut rng = Rng::keyed(8, Purpose::Seeding, (d * m) as u64);
    let mut draw = |n: usize| (0..n).map(|_| T::from_f64(300.0 * rng.unit())).collect::<Vec<T>>();
    let (x, values) = (draw((n - 1) * (d + gap) + d), draw(m * d));
    let (rows, points) = (MatRef::with_stride(&x, n, d, d + gap), MatRef::new(&values, d));
    let picked: Vec<u32> = (0..n as u32).filter(|r| r % 7 != 3).collect();
    let needed: Vec<u32> = picked.iter().map(|_| (rng.below(1 << m)) as u32).collect();
    let mut found = vec![f64::NAN; picked.len() * m];
    let wide = Points::new(points).wide;
    operations::sq_dists_to(tier_of::<T>(isa), rows, (&picked, &needed), &wide, &mut found);
    for ((&r, needed), found) in picked.iter().zip(needed).zip(found.chunks(m)) {
        for p in (0..m).filter(|p| needed >> p & 1 == 1) {
            let expected =
                operations::sq_dist(tier_of::<T>(Isa::Scalar), rows.row(r as usize), points.row(p));
            assert_eq!(found[p].to_bits(), expected.to_bits(), "{isa} {} d={d} m={m}: {r}, {p}", T::NAME);
        }
    }
}

#[test]
fn distances_to_points_have_the_bits_of_single_ones() {
    for isa in Isa::available() {
        for d in [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 512, 515] {
            for (m, gap) in [(1, 0), (2, 3), (3, 0), (4, 1), (5, 0), (9, 2), (32, 0)] {
                distances_have_the_same_bits::<f32>(isa, d, m, gap);
                distances_have_the_same_bits::<f64>(isa, d, m, gap);
            }
        }
    }
}
