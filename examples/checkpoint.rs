//! Checkpoints a fit after five steps and resumes it from the file, as after a crash.
//!
//! ```text
//! cargo run --release --example checkpoint
//! ```

use shoal::{KMeans, persist};

fn main() -> shoal::Result<()> {
    let rows: Vec<[f32; 2]> =
        (0..20_000u32).map(|i| [(i * 7919 % 1009) as f32, (i * 31 % 997) as f32]).collect();
    let params = KMeans::params(40).rng_seed(7);
    let path = std::env::temp_dir().join(format!("shoal-checkpoint-{}.safetensors", std::process::id()));

    let mut run = params.start(&rows)?;
    for _ in 0..5 {
        run.advance(&rows)?;
    }
    persist::write(&path, &run.checkpoint(&rows)?)?;
    drop(run);

    let mut again = params.resume_fit(&persist::read(&path)?, &rows)?;
    while again.advance(&rows)?.is_some() {}
    let (resumed, whole) = (again.into_model(), params.fit(&rows)?);
    assert_eq!(resumed.centers::<f32>(), whole.centers::<f32>());
    println!("{} sweeps, inertia {}, identical to an uninterrupted fit", resumed.n_iter(), resumed.inertia());
    std::fs::remove_file(&path).map_err(|source| shoal::Error::Io { path, source })
}
