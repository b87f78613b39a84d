//! Writes a `.npy` file of bytes and clusters it without loading it into memory.
//!
//! The file is memory-mapped, and its rows are converted to `f32` one tile at a time. The fit needs a few
//! bytes per row beside the file, for any number of columns. The labels are written to a second `.npy` file,
//! which `numpy.load` can read. `npy::Writer` writes to a temporary file and renames it when it is complete.

use shoal::KMeans;
use shoal::data::{DataSource, Dtype, npy};

const COLUMNS: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("vectors.npy");

    // Four clusters: bytes around 30, 90, 150 and 210.
    let mut writer = npy::Writer::create(&path, Dtype::U8, COLUMNS)?;
    for block in 0..20u32 {
        let values: Vec<u8> = (0..1000 * COLUMNS as u32)
            .map(|at| {
                let kind = (at / COLUMNS as u32) % 4;
                (30 + 60 * kind + (at + block).wrapping_mul(2_654_435_761) % 17) as u8
            })
            .collect();
        writer.append_values(&values)?;
    }
    println!("{} rows in {}", writer.finish()?, path.display());

    let rows = npy::open(&path)?;
    assert_eq!(DataSource::<f32>::rows(&rows), Some(20_000));
    let model = KMeans::params(4).rng_seed(1).fit(&rows)?;
    println!("{} sweeps, inertia {:.0}, seeded by {}", model.n_iter(), model.inertia(), model.seeded_by());

    let mut labels = npy::Writer::create_1d(folder.path().join("labels.npy"), Dtype::I32)?;
    let values: Vec<i32> = model.predict(&rows)?.into_iter().map(u32::cast_signed).collect();
    labels.append_values(&values)?;
    labels.finish()?;

    // The fit finds the four clusters.
    assert_eq!(model.cluster_weights(), [5000.0; 4]);
    assert!(values.iter().enumerate().all(|(row, &label)| label == values[row % 4]));
    Ok(())
}
