//! Rows as bytes: strided memory and memory-mapped files of any [`Dtype`](super::Dtype).
//!
//! Rows stored in the compute type are read in place. All others are converted a tile at a time: the whole
//! input never exists twice.

mod ahead;
mod descriptor;
mod direct;
mod layout;
mod mapped;
mod reopened;
mod rows;
mod stored;
#[cfg(test)]
mod tests;

pub(super) use ahead::{Leave, due, scarce};
pub(super) use descriptor::OpenFiles;
pub use layout::Layout;
pub use mapped::{Mapped, open};
pub(super) use mapped::{Pattern, file_length, reads_ahead, suffix_of};
pub(super) use reopened::Place;
pub use rows::RawRows;
pub(super) use rows::one_block;
pub use stored::Element;
pub(super) use stored::bytes_of;

#[cfg(target_endian = "big")]
compile_error!(
    "shoal reads stored numbers without a conversion of byte order: it needs a little-endian processor"
);
