//! Clustering for data of any size: k-means and its mini-batch variants, Gaussian mixtures and K-modes.
//!
//! Fits are fast and give bit-identical results for any number of threads. Rows can be in memory, in
//! memory-mapped files or in streams larger than memory.
//!
#![cfg_attr(doc, doc = include_str!("../docs/images/peers.svg"))]
//!
//! *Time of the same work in four libraries, compared with shoal, on four data sets.*
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
//! A `.npy` file is memory-mapped and clustered without loading the file into memory:
//!
//! ```no_run
//! let rows = shoal::data::npy::open("vectors.npy")?;
//! let model = shoal::KMeans::params(1000).fit(&rows)?;
//! # Ok::<(), shoal::Error>(())
//! ```
//!
//! # Architecture
//!
//! A [source](data) yields rows in blocks. A [kernel] turns a block and packed centers into labels and
//! [sums](stats). A [method](fit) turns the sums into the next centers. One [run](fit::Run) repeats these
//! steps and checks when to stop. `ARCHITECTURE.md` describes the layers.
//!
//! # Guarantees
//!
//! - The same seed, data and parameters give bit-identical results for any number of threads and any kind of
//!   storage.
//! - Rows are computed in `f32` or `f64`. Sums and energies are always `f64`.
//! - Beyond the rows, a fit keeps a few bytes per row.
//! - Bad input returns an [`Error`] and never panics.
//!
//! # Safety
//!
//! One public function is `unsafe`: [`RawRows::from_parts`](data::raw::RawRows::from_parts), which takes a pointer and
//! a layout. Its caller must guarantee that all values of the layout are in one allocation, initialized and readable,
//! and that nothing writes to them as long as the rows exist. No other function has a condition that the compiler does
//! not check: bad arguments return an [`Error`], or panic where the documentation says so.
//!
//! A [mapped file](data::Mapped) should not change while it is used: its documentation says what happens otherwise.
//!
//! Inside of the crate, `unsafe` is allowed only in the kernels, in `data::raw` and in the conversion of NumPy arrays.
//!
//! # Requirements
//!
//! - A 64-bit processor and system: numbers of rows and bytes are indices. Other targets do not compile.
#![doc = concat!(
    "- Rust ", env!("CARGO_PKG_RUST_VERSION"), " or later, the `rust-version` of the crate. `make msrv` compiles the ",
    "crate with exactly this version, and clippy refuses functions of the standard library that are newer."
)]
//! - Instruction sets are detected when the program runs. Nothing beyond the baseline of the target is required.
//!
//! # Features
//!
//! - `python`: the bindings of the Python package. Rust programs do not need this feature.

#![warn(missing_debug_implementations)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("shoal supports only 64-bit targets");

pub mod centers;
pub mod curation;
pub mod data;
pub mod distributed;
mod error;
mod exponent;
pub mod fit;
mod float;
pub mod gmm;
pub mod graph;
pub mod hierarchical;
pub mod kernel;
pub mod kmeans;
pub mod kmodes;
mod matrix;
mod names;
mod parallel;
pub mod partition;
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
pub use error::{Error, InvalidParam, Result};
pub use fit::Metric;
pub use float::Float;
pub use gmm::{GaussianMixture, TruncatedGaussianMixture};
pub use hierarchical::HierarchicalKMeans;
pub use kmeans::{
    Algorithm, BackwardEuler, Balanced, Breathing, KMeans, MiniBatch, NestedMiniBatch, VarianceReduced,
};
pub use kmodes::LaplacianKModes;
pub use matrix::MatRef;
pub use ndarray;
pub use parallel::{Executor, Interrupt};
pub use rows::{RowBuf, Rows, SparseRef};
pub use seeding::Seeding;

/// The examples of the Rust guide run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/rust.md")]
pub struct Guide;

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
