//! Kernels: distances, labels and sums for a block of rows against packed centers, on this processor.
//!
//! All functions are safe and start no threads. The functions of a sweep do not allocate once their
//! [`Scratch`] has grown. They process strips of rows and write a row by center matrix only if asked to.
//!
//! All functions use the same label: the center with the smallest sum of squared differences in `f64`, and the
//! lowest index among equals. Faster comparisons only exclude centers, by error bounds. Labels, and distances to the
//! centers of labels, are the same on every instruction set.
//!
//! ```
//! use shoal::MatRef;
//! use shoal::kernel::{PackedCenters, Scratch, nearest};
//! let centers = PackedCenters::new(MatRef::new(&[0.0f32, 0.0, 10.0, 10.0], 2));
//! let rows = MatRef::new(&[9.0f32, 8.0, 1.0, -1.0, 10.0, 10.0], 2);
//! let mut labels = [0; 3];
//! nearest(rows, &centers, &mut labels, &mut Scratch::default());
//! assert_eq!(labels, [1, 0, 1]);
//! ```

mod aligned;
mod arbiter;
mod arch;
pub(crate) mod blocks;
pub(crate) mod bounded;
mod by_tiles;
mod bytes;
mod candidates;
#[cfg_attr(
    not(all(target_os = "linux", target_arch = "x86_64")),
    allow(dead_code, unused_variables, reason = "other targets have no engine, and only test this")
)]
mod certified;
mod chosen;
mod comparison;
mod distances;
mod doubt;
mod exact;
mod frame;
mod generic;
mod isa;
pub(crate) mod listed;
pub(crate) mod near;
mod nearest;
mod operations;
mod pack;
mod scratch;
mod simd;
pub(crate) mod sketched;
mod strips;
mod sums;
#[cfg(test)]
mod tests;
mod tier;

pub(crate) use arbiter::is_exact;
pub(crate) use bytes::{add_bytes, byte_sq_dists};
pub(crate) use certified::certified_pays;
pub(crate) use distances::Points;
pub(crate) use distances::lengths;
pub use distances::{Point, distances, sq_dist, sq_dists, sq_dists_few};
pub(crate) use exact::{Limbs, NO_GRID, add_rows, merge_pairs, plus, reassign, settle, split, values_of};
pub(crate) use frame::Frame;
pub use isa::Isa;
pub use nearest::{nearest, nearest_m, nearest_two};
pub use pack::{MAX_CENTERS, PackedCenters};
pub use scratch::Scratch;
pub use sums::accumulate;
pub use tier::Compute;
