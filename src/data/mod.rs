//! Sources of rows: arrays, files, streams, and sources made from other sources.
//!
//! A [`DataSource`] hands out rows in *blocks*. Workers cut a block into *tiles* and read one tile at a time,
//! which converts the stored type to the compute type. Sources in memory and memory-mapped files are one
//! block, which is read without copying; streams are many blocks. A method states which [`Access`] it needs;
//! a source with less access is an error.
//!
//! # What `fit` and `predict` take
//!
//! | your rows | pass |
//! |---|---|
//! | `Vec<[f32; D]>`, `[[f32; D]; N]`, or a slice of them; any [stored type](raw::Element) | `&rows`, `&rows[..100]` |
//! | a flat `&[f32]` or `&[f64]` with a number of columns | [`Dense::new(values, columns)`](Dense::new) |
//! | a flat `&[u8]`, `&[i16]`, ... with a number of columns | [`RawRows::new(values, columns)`](RawRows::new) |
//! | `Vec<Vec<f32>>`, `&[Vec<f64>]`: copied a tile at a time | `&rows` |
//! | an `ndarray` array or view of any strides | `&array` |
//! | a [`MatRef`](crate::MatRef) | `matrix` |
//! | sparse rows | [`Csr::new`] |
//! | a file | [`npy::open`], [`vecs::open`], [`bin::open`], [`raw::open`] |
//! | many files as one source | [`Shards::open`] |
//! | a stream | [`Chunks::once`], [`Chunks::replay`] |
//! | rows with weights, in part, in another order | [`Weighted`], [`RowRange`], [`Permuted`] |
//! | rows of length 1, standardized, projected | [`Normalized`], [`Standardized`], [`Projected`] |
//! | anything else | your own type with [`DataSource`] and [`Source`] |

mod any;
pub mod bin;
mod chunks;
mod csr;
mod dtype;
mod fingerprint;
mod finite;
mod memory;
pub mod npy;
pub(crate) mod pass;
pub mod raw;
mod reading;
mod reblock;
mod shards;
mod shuffler;
mod source;
mod tile;
pub mod vecs;
mod vectors;
mod view;
mod weights;

pub use crate::float::Typed;
#[cfg(feature = "python")]
pub(crate) use any::stored;
pub use any::{AnySource, Source};
pub use chunks::{Chunk, Chunks};
pub use csr::{Csr, Index};
pub use dtype::Dtype;
pub(crate) use fingerprint::fingerprint;
#[cfg(feature = "python")]
pub(crate) use fingerprint::fingerprint_of_batch;
pub use finite::check_finite;
pub use memory::Dense;
pub use raw::{Mapped, RawRows};
pub(crate) use reading::{
    Visit, copy, copy_to, count_rows, gather, no_such_row, read, read_from, row_bytes, row_values, take,
    weights_of,
};
use reading::{check_rows, gather_in_pass, single_row, weights_of_rows};
pub use shards::Shards;
#[cfg(feature = "python")]
pub(crate) use shards::{Gathered, open_shard};
pub use shuffler::Shuffler;
#[doc(hidden)]
pub use source::Origin;
pub(crate) use source::forward;
pub use source::{Access, Block, DataSource};
pub(crate) use tile::Converted;
pub use tile::TileReader;
#[doc(hidden)]
pub use tile::{Tile, Wanted};
pub(crate) use view::{
    Counted, MarkedRows, RowMarks, RowNumbers, Stretch, Subset, Watched, ZeroRows, normalize_rows,
};
pub use view::{
    Normalized, Permuted, Projected, RowIndex, RowRange, Selected, Standardized, Transformed, Weighted,
};
#[cfg(feature = "python")]
pub(crate) use view::{Projection, Standard};
pub(crate) use weights::{no_weight, too_far, too_heavy, too_light, too_near};
