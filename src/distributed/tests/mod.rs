//! Passes against slow references, in every order of merging, and their bytes, damaged.

mod draws;
mod files;
mod kept;
mod merging;
mod ranges;
mod sweeps;

use super::*;
use crate::data::Dense;
use crate::fit::Metric;
use crate::parallel::Executor;
use crate::persist::{self, Contents};
use crate::rng::{Purpose, Rng};

fn cx(threads: usize) -> Executor {
    Executor::new(Some(threads)).unwrap()
}

/// Rows around a few centers.
fn blobs(n: usize, d: usize, seed: u64) -> Vec<f64> {
    let mut rng = Rng::keyed(seed, Purpose::Seeding, 0);
    (0..n * d).map(|i| rng.unit() + (i / d % 5 * 7) as f64).collect()
}

/// The lengths of `p` partitions of `n` rows, some of them empty.
fn lengths(n: usize, p: usize, seed: u64) -> Vec<usize> {
    let mut rng = Rng::keyed(seed, Purpose::Batch, 1);
    let mut cuts: Vec<usize> = (1..p).map(|_| rng.below(n as u64 + 1) as usize).collect();
    cuts.extend([0, n]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// The partial results of all partitions.
fn parts(task: &KMeansPass, x: &[f64], d: usize, lengths: &[usize], threads: usize) -> Vec<Partial> {
    let mut start = 0;
    let part = |(i, &length): (usize, &usize)| {
        let rows = &x[start * d..(start + length) * d];
        start += length;
        let place = Place::Partition(i as u64);
        if length == 0 {
            return task.absorb_nothing(place);
        }
        task.absorb(&Dense::new(rows, d).unwrap(), place, &cx(threads)).unwrap()
    };
    lengths.iter().enumerate().map(part).collect()
}

/// Merges in a random order and grouping, some of it by way of bytes.
fn merged(mut parts: Vec<Partial>, seed: u64) -> Partial {
    let mut rng = Rng::keyed(seed, Purpose::Permutation, 2);
    while parts.len() > 1 {
        let one = parts.swap_remove(rng.below(parts.len() as u64) as usize);
        let two = rng.below(parts.len() as u64) as usize;
        let mut both = one.merge(&parts[two]).unwrap();
        if rng.below(3) == 0 {
            both = Partial::from_bytes(&both.to_bytes().unwrap()).unwrap();
        }
        parts[two] = both;
    }
    parts.pop().unwrap()
}

/// Rows for the samples of bytes.
fn small() -> Vec<[f32; 2]> {
    (0..40).map(|i| [(i % 7) as f32, (i * i % 11) as f32]).collect()
}

fn kmeans() -> KMeansPass {
    KMeansPass::new(&[0.0f32, 0.0, 9.0, 9.0, 1e5, 1e5], 2, Metric::Euclidean).unwrap()
}

/// A partial result whose contents are changed: the text, the arrays, then the sums.
fn crafted(part: &Partial, change: impl Fn(&mut serde_json::Value, &mut Contents, &mut Contents)) -> Vec<u8> {
    let mut contents = persist::from_bytes("it", &part.to_bytes().unwrap()).unwrap();
    let mut text = serde_json::from_str(&contents.meta["partial"]).unwrap();
    let mut sums = contents.part("sums").unwrap();
    change(&mut text, &mut contents, &mut sums);
    contents.meta.insert("partial".into(), text.to_string());
    contents.put("sums", sums);
    persist::to_bytes(&contents).unwrap()
}
