//! Test data and sources that several test modules share.

use shoal::data::{AnySource, Chunk, Dtype, Mapped, Source, npy};
use shoal::kernel::Compute;
use shoal::{KMeansModel, Result};

/// Any source of a known compute type, with or without weights.
pub(crate) struct Any<'a>(pub(crate) AnySource<'a>);

impl Source for Any<'_> {
    fn any(&self) -> AnySource<'_> {
        self.0
    }
}

/// A small generator, so that test data do not depend on the generator of the crate.
pub(crate) struct Draws(u64);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number in `[0, 1)`.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A number in `[0, 1)`: a hash of `i`.
pub(crate) fn unit(i: usize) -> f64 {
    let mut z = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// `n` rows in nine overlapping clusters.
pub(crate) fn rows<T: Compute>(n: usize, d: usize) -> Vec<T> {
    (0..n * d).map(|at| T::from_f64(unit(at) + 2.0 * unit((at / d % 9) * d + at % d + 77_777_777))).collect()
}

/// Chunks of rows and weights with the given lengths, repeated.
pub(crate) fn chunks<'a, T: Compute>(
    values: &'a [T],
    d: usize,
    weights: Option<&'a [f64]>,
    lengths: &'a [usize],
) -> impl Iterator<Item = shoal::Result<Chunk<T>>> + Send + 'a {
    let (n, mut at, mut turn) = (values.len() / d, 0, 0);
    std::iter::from_fn(move || {
        if at == n {
            return None;
        }
        let end = n.min(at + lengths[turn % lengths.len()]);
        turn += 1;
        let chunk = Chunk::from(values[at * d..end * d].to_vec());
        let chunk = match weights {
            Some(weights) => chunk.weighted(weights[at..end].to_vec()),
            None => chunk,
        };
        at = end;
        Some(Ok(chunk))
    })
}

/// Centers, cluster weights, labels, inertia and number of iterations of a model, as bits.
pub(crate) type Bits = (Vec<u64>, Vec<u64>, Vec<u32>, u64, u64);

pub(crate) fn bits(model: &KMeansModel) -> Bits {
    let of = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect();
    let (centers, weights) = (of(&model.centers::<f64>()), of(model.cluster_weights()));
    (centers, weights, model.labels().to_vec(), model.inertia().to_bits(), model.n_iter())
}

/// The message of the error of a call that must fail.
pub(crate) fn refused(result: Result<KMeansModel>) -> String {
    result.expect_err("the call must fail").to_string()
}

/// Rows in a mapped file of a folder.
pub(crate) fn file(folder: &tempfile::TempDir, name: &str, values: &[f32], cols: usize) -> Mapped {
    let path = folder.path().join(name);
    let mut writer = npy::Writer::create(&path, Dtype::F32, cols).unwrap();
    writer.append_values(values).unwrap();
    writer.finish().unwrap();
    npy::open(path).unwrap()
}
