//! Orders the centers so that similar ones stand together.

use crate::kernel::Compute;
use crate::matrix::MatRef;

/// An order of the centers in which each `width` that follow each other are near each other. Halves the set
/// along the direction of largest spread, down to `width`. Within these the indices ascend, as the tie-breaking of
/// panels requires.
pub(in crate::kmeans) fn similar_together<T: Compute>(centers: MatRef<'_, T>, width: usize) -> Vec<u32> {
    fn split<T: Compute>(centers: MatRef<'_, T>, members: &mut [u32], width: usize) {
        if members.len() <= width {
            members.sort_unstable();
            return;
        }
        let d = centers.cols();
        let row = |j: u32| centers.row(j as usize);
        let mut mean = vec![0.0; d];
        for &j in &*members {
            mean.iter_mut().zip(row(j)).for_each(|(mean, x)| *mean += x.to_f64() / members.len() as f64);
        }
        let off = |j: u32| row(j).iter().zip(&mean).map(|(x, mean)| x.to_f64() - mean);
        let sq_norm = |j: u32| off(j).map(|x| x * x).sum::<f64>();
        let far = members.iter().copied().max_by(|&a, &b| sq_norm(a).total_cmp(&sq_norm(b)));
        let mut direction: Vec<f64> = far.map_or(vec![0.0; d], |j| off(j).collect());
        let mut along = vec![0.0; members.len()];
        // Power iteration; a rough direction is enough.
        for _ in 0..8 {
            let length = direction.iter().map(|x| x * x).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
            let mut next = vec![0.0; d];
            for (along, &j) in along.iter_mut().zip(&*members) {
                *along = off(j).zip(&direction).map(|(x, v)| x * v / length).sum();
                next.iter_mut().zip(off(j)).for_each(|(next, x)| *next += *along * x);
            }
            direction = next;
        }
        let mut order: Vec<usize> = (0..members.len()).collect();
        order.sort_by(|&a, &b| along[a].total_cmp(&along[b]).then(members[a].cmp(&members[b])));
        let sorted: Vec<u32> = order.into_iter().map(|i| members[i]).collect();
        members.copy_from_slice(&sorted);
        let left = members.len().div_ceil(width) / 2 * width;
        let (a, b) = members.split_at_mut(left);
        split(centers, a, width);
        split(centers, b, width);
    }
    let mut order: Vec<u32> = (0..centers.rows() as u32).collect();
    split(centers, &mut order, width);
    order
}
