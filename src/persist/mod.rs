//! Saves and loads models and checkpoints as safetensors files with a format version.
//!
//! A file is a set of named [arrays](Array) and texts. [`schema`] lists the texts that every file has.
//!
//! Reading runs no code. Every size in a file is checked against the file length before memory is allocated.
//! A damaged file returns [`Error::Format`](crate::Error::Format) with the file name.
//!
//! Writing goes to a temporary file, which then replaces an older file with an atomic rename.
//!
//! ```
//! use std::collections::BTreeMap;
//! use shoal::persist::{self, Array, Contents};
//! # let folder = tempfile::tempdir().unwrap();
//! let path = folder.path().join("pair.safetensors");
//! let mut contents = Contents::new("pair");
//! contents.arrays.insert("values".into(), Array::new(&[2], &[1.5f64, -2.0]).unwrap());
//! contents.meta.insert("params".into(), "{}".into());
//! persist::write(&path, &contents).unwrap();
//!
//! let read = persist::read(&path).unwrap();
//! assert_eq!(read.kind, "pair");
//! assert_eq!(read.arrays["values"].values::<f64>().unwrap(), [1.5, -2.0]);
//! ```

mod array;
mod file;
pub(crate) mod kept;
pub(crate) mod model;
pub mod schema;
pub(crate) mod state;

pub use array::{Array, Number};
#[cfg(feature = "python")]
pub(crate) use file::array_layouts;
pub use schema::{Contents, read, write};
pub(crate) use schema::{from_bytes, to_bytes};

#[cfg(test)]
mod tests;
