//! Clustering that is fast, exact where it says so, the same for every number of threads, and works on data larger than memory.
//!
//! # Quick start
//!
//! ```
//! use shoal::{KMeans, Seeding};
//! let rows = [[0.0f32, 0.1], [0.1, 0.0], [5.0, 5.1], [5.1, 5.0]];
//! let model = KMeans::params(2).seeding(Seeding::PlusPlus { greedy: true }).rng_seed(7).fit(&rows)?;
//! assert_eq!(model.predict(&[[4.9f32, 5.0]])?, [model.labels()[2]]);
//! # Ok::<(), shoal::Error>(())
//! ```
//!
//! A `.npy` file is memory-mapped and clustered where it lies:
//!
//! ```no_run
//! let rows = shoal::data::npy::open("vectors.npy")?;
//! let model = shoal::KMeans::params(1000).fit(&rows)?;
//! # Ok::<(), shoal::Error>(())
//! ```
//!
//! # The parts
//!
//! Rows come from a [source](data) in blocks, a [kernel] turns rows and packed centers into labels and [sums](stats), a
//! [solver] turns the sums into the next centers, and one driver repeats that and lets everybody watch. `ARCHITECTURE.md` walks through
//! the layers.
//!
//! # Promises
//!
//! The same seed, data and parameters give the same bits for every number of threads and every kind of storage. Rows are computed in
//! `f32` or `f64`, sums and energies always in `f64`. State beyond the rows is a few bytes a row. Bad input is an [`Error`], never a
//! panic.
//!
//! # Features
//!
//! - `ndarray` (default): `ndarray` arrays and views are sources, and models return their results as arrays. The crate is re-exported as
//!   `shoal::ndarray`.
//! - `python`: the bindings behind the Python package; not for Rust users.

pub mod centers;
pub mod data;
mod error;
mod exponent;
pub mod fit;
mod float;
pub mod gmm;
pub mod graph;
pub mod kernel;
pub mod kmeans;
pub mod kmodes;
mod matrix;
mod parallel;
mod pass;
pub mod persist;
#[cfg(feature = "python")]
mod python;
mod rng;
mod rows;
pub mod seeding;
mod shuffle;
pub mod stats;
mod tuning;
mod whole_file;

pub use centers::KMeansModel;
pub use error::{Error, Result};
pub use fit::Metric;
pub use float::Float;
pub use gmm::{GaussianMixture, TruncatedGaussianMixture};
pub use kmeans::{Algorithm, BackwardEuler, KMeans, MiniBatch, NestedMiniBatch, VarianceReduced};
pub use kmodes::LaplacianKModes;
pub use matrix::MatRef;
#[cfg(feature = "ndarray")]
pub use ndarray;
pub use parallel::{Executor, Interrupt};
pub use rows::{RowBuf, Rows, SparseRef};
pub use seeding::Seeding;
