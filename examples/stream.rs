//! Clusters streams of chunks: mini-batches over a one-pass stream, an exact fit over a re-readable stream,
//! and an exact fit over a shuffled copy on disk.
//!
//! ```sh
//! cargo run --release --example stream
//! ```

use shoal::data::{Chunks, Dtype, Shuffler, npy};
use shoal::{Executor, KMeans, MiniBatch};

/// 100 chunks of 1,000 rows with two columns, in ten clusters.
fn chunks() -> impl Iterator<Item = shoal::Result<shoal::data::Chunk<f32>>> {
    (0..100u16).map(|chunk| {
        let rows = (0..1000u16).flat_map(move |row| {
            let noise = f32::from((chunk * 7 + row * 13) % 97) / 97.0;
            [f32::from(row % 10) * 10.0 + noise, f32::from(row % 10) - noise]
        });
        Ok(rows.collect::<Vec<_>>().into())
    })
}

fn main() -> shoal::Result<()> {
    let once = Chunks::once(2, chunks());
    let model = MiniBatch::params(10).rng_seed(7).compute_labels(false).fit(&once)?;
    println!(
        "mini-batches: {} clusters are not empty",
        model.cluster_weights().iter().filter(|&&w| w > 0.0).count()
    );

    let replayed = Chunks::replay(2, chunks);
    let model = KMeans::params(10).rng_seed(7).fit(&replayed)?;
    println!("exact: {} sweeps, inertia {:.1}", model.n_iter(), model.inertia());

    let path = std::env::temp_dir().join(format!("shoal-stream-{}.npy", std::process::id()));
    let mut rows = Shuffler::create(&path, Dtype::F32, 2, None, 7, 100 << 20)?;
    for chunk in chunks() {
        let bytes: Vec<u8> = chunk?.values.iter().flat_map(|x| x.to_le_bytes()).collect();
        rows.push(&bytes)?;
    }
    println!("shuffled: {} rows", rows.finish(&Executor::new(None)?)?);
    let model = KMeans::params(10).rng_seed(7).fit(&npy::open(&path)?)?;
    println!("exact: {} sweeps, inertia {:.1}", model.n_iter(), model.inertia());
    std::fs::remove_file(&path).map_err(|source| shoal::Error::Io { path, source })
}
