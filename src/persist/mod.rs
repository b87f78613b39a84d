//! Fitted models as files: safetensors, with a format version.
//!
//! A file is a set of named [arrays](Array) and a few texts; [`schema`] says which texts every file of shoal carries. Reading runs no code and
//! believes nothing: whatever a file claims is checked against its length before anything of that size is allocated, and what is wrong is
//! an [`Error::Format`](crate::Error::Format) that names the file. Writing goes to a file without a name, which takes the place of an older
//! one once it is whole and on the disk.
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
pub mod schema;

pub use array::{Array, Number};
pub use schema::{Contents, read, write};

#[cfg(test)]
mod tests;
